// SPDX-License-Identifier: Apache-2.0
// docs/models.md against the tables of the code: what is supported is on the page, and what is on
// the page is supported.
#include "core/model/losses.h"
#include "core/data/dataset.h"
#include "core/graph/layer.h"
#include "core/optimizer/optimizer.h"
#include "core/model/model.h"
#include "layers/kinds.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define MOST_NAMES 128
#define NAME_LETTERS 64

static char page[1 << 16];

struct names {
    char list[MOST_NAMES][NAME_LETTERS];
    size_t count;
};

static void read_page(void)
{
    FILE *file = fopen(PAGE, "r");
    ck_assert_ptr_nonnull(file);
    page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
    ck_assert(feof(file));
    fclose(file);
}

// What stands between <!-- name --> and <!-- /name -->; the page is cut there.
static char *section(const char *name)
{
    char mark[64];
    snprintf(mark, sizeof(mark), "<!-- %s -->", name);
    char *begin = strstr(page, mark);
    ck_assert_msg(begin != NULL, "no %s", mark);
    snprintf(mark, sizeof(mark), "<!-- /%s -->", name);
    char *end = strstr(begin, mark);
    ck_assert_msg(end != NULL, "no %s", mark);
    *end = '\0';
    return begin;
}

// Appends what stands between backticks, up to `end`, without a '=' at its end.
static void add_quoted(const char *text, const char *end, struct names *out)
{
    for (const char *tick = strchr(text, '`'); tick && tick < end;) {
        const char *last = strchr(tick + 1, '`');
        ck_assert(last && last < end && out->count < MOST_NAMES);
        size_t length = (size_t)(last - tick - 1);
        if (length > 0 && tick[length] == '=')
            length--;
        ck_assert_uint_lt(length, NAME_LETTERS);
        snprintf(out->list[out->count++], NAME_LETTERS, "%.*s", (int)length, tick + 1);
        tick = strchr(last + 1, '`');
    }
}

static bool has(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->list[i], name) == 0)
            return true;
    return false;
}

static bool is_in(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

static void check_same(const char *what, const struct names *shown, const char *const *supported)
{
    for (size_t i = 0; i < shown->count; i++)
        ck_assert_msg(is_in(shown->list[i], supported),
                      "%s: '%s' is on the page, but not supported", what, shown->list[i]);
    for (; *supported; supported++)
        ck_assert_msg(has(shown, *supported), "%s: '%s' is not on the page", what, *supported);
}

// The next row of a table below its heading: the names in its first cell, and the cells behind it up
// to the end of the line.
static char *next_row(char **text, struct names *row)
{
    for (char *line = strstr(*text, "\n| `"); line; line = strstr(line + 1, "\n| `")) {
        char *cell = strchr(line + 3, '|'), *end = strchr(line + 1, '\n');
        ck_assert(cell && end && cell < end);
        *text = end;
        row->count = 0;
        add_quoted(line, cell, row);
        ck_assert_uint_gt(row->count, 0);
        if (row->list[0][0] != '-') // a heading: `--loss=`
            return cell;
    }
    return NULL;
}

// Adds those of `keys` that the page says once for all rows, in a section before them; "*_x" there
// stands for all that end in "_x". `used` counts what each entry of the section stood for.
static void add_said_once(const struct names *once, const char *const *keys, size_t *used,
                          struct names *out)
{
    for (size_t i = 0; i < once->count; i++) {
        const char *entry = once->list[i];
        for (size_t k = 0; keys[k]; k++) {
            const char *tail = keys[k];
            if (entry[0] == '*' && strlen(tail) >= strlen(entry) - 1)
                tail += strlen(tail) - (strlen(entry) - 1);
            if (strcmp(tail, entry[0] == '*' ? entry + 1 : entry) != 0)
                continue;
            used[i]++;
            if (!has(out, keys[k]))
                snprintf(out->list[out->count++], NAME_LETTERS, "%s", keys[k]);
        }
    }
}

static void check_used(const struct names *once, const size_t *used)
{
    for (size_t i = 0; i < once->count; i++)
        ck_assert_msg(used[i] > 0, "'%s' is said of all, but none has it", once->list[i]);
}

static const struct ls_layer_kind *kind_of(const char *name)
{
    for (size_t i = 0; ls_layer_kinds[i]; i++)
        if (strcmp(ls_layer_kinds[i]->class_name, name) == 0)
            return ls_layer_kinds[i];
    ck_abort_msg("layer '%s' is on the page, but not supported", name);
    return NULL;
}

TEST(every_layer_and_each_of_its_options_is_on_the_page)
{
    char *text = section("layers"), *before = section("layer-options");
    struct names once = {0}, row;
    size_t shown = 0, kinds = 0, used[MOST_NAMES] = {0};
    add_quoted(before, before + strlen(before), &once);
    for (char *cell; (cell = next_row(&text, &row)); shown += row.count)
        for (size_t i = 0; i < row.count; i++) {
            struct names options = {0};
            add_quoted(cell, strchr(cell, '\n'), &options);
            add_said_once(&once, kind_of(row.list[i])->keys, used, &options);
            check_same(row.list[i], &options, kind_of(row.list[i])->keys);
        }
    check_used(&once, used);
    while (ls_layer_kinds[kinds])
        kinds++;
    ck_assert_uint_eq(shown, kinds);
}

static void check_list(const char *what, const char *const *supported)
{
    struct names shown = {0};
    const char *text = section(what);
    add_quoted(text, text + strlen(text), &shown);
    check_same(what, &shown, supported);
}

TEST(every_activation_and_initializer_is_on_the_page)
{
    check_list("initializers", ls_initializer_names); // the later one first: the page is cut
    check_list("activations", ls_activation_names);
}

static void check_rows(const char *what, const char *const *supported)
{
    struct names shown = {0}, row;
    char *text = section(what);
    while (next_row(&text, &row))
        for (size_t i = 0; i < row.count; i++) {
            ck_assert_uint_lt(shown.count, MOST_NAMES);
            snprintf(shown.list[shown.count++], NAME_LETTERS, "%s", row.list[i]);
        }
    check_same(what, &shown, supported);
}

TEST(every_operation_is_on_the_page)
{
    const char *names[128] = {NULL};
    for (size_t i = 0; ls_node_kinds[i].class_name; i++)
        names[i] = ls_node_kinds[i].class_name;
    check_rows("operations", names);
}

TEST(every_loss_metric_and_dataset_is_on_the_page)
{
    const char *datasets[16] = {NULL};
    for (size_t i = 0; ls_dataset_kinds[i]; i++)
        datasets[i] = ls_dataset_kinds[i]->name;
    check_rows("datasets", datasets);
    check_rows("metrics", ls_metric_names);
    check_list("losses", ls_loss_names);
}

static size_t option_names(const struct ls_plugin_option *options, const char **out)
{
    size_t count = 0;
    for (; options[count].name; count++)
        out[count] = options[count].name;
    return count;
}

TEST(every_optimizer_with_its_options_is_on_the_page)
{
    const struct ls_optimizer_kind *kinds = ls_optimizer_kinds();
    char *text = section("optimizers"), *before = section("optimizer-options");
    struct names once = {0}, row;
    size_t shown = 0, count = 0, used[MOST_NAMES] = {0};
    add_quoted(before, before + strlen(before), &once);
    for (char *cell; (cell = next_row(&text, &row)); shown += row.count)
        for (size_t i = 0; i < row.count; i++) {
            const struct ls_optimizer_kind *kind = kinds;
            const char *name = row.list[i], *supported[16] = {NULL};
            struct names options = {0};
            while (kind->name && strcmp(kind->name, name) != 0)
                kind++;
            ck_assert_msg(kind->name != NULL, "optimizer '%s' is on the page, but not supported",
                          name);
            option_names(kind->options, supported);
            add_quoted(cell, strchr(cell, '\n'), &options);
            add_said_once(&once, supported, used, &options);
            check_same(name, &options, supported);
        }
    for (size_t i = 0; i < once.count; i++)
        ck_assert_uint_eq(used[i], shown); // what is said of all, each has
    while (kinds[count].name)
        count++;
    ck_assert_uint_eq(shown, count);
}

TEST(the_text_of_a_loss_has_its_options)
{
    static const char *const texts[] = {"sparse_categorical_crossentropy:from_logits=true",
                                        "sparse_categorical_crossentropy:from_logits=false",
                                        "categorical_crossentropy:from_logits=true,"
                                        "label_smoothing=0.1",
                                        "binary_crossentropy:label_smoothing=0.25",
                                        "huber:delta=0.3",
                                        "huber",
                                        "mean_squared_error",
                                        "kl_divergence"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct ls_loss loss;
        char text[96];
        ck_assert_int_eq(ls_loss_parse(texts[i], NULL, &loss), LS_OK);
        ls_loss_text(&loss, text, sizeof(text));
        ck_assert_str_eq(text, texts[i]);
        for (size_t bytes = 1; bytes < strlen(texts[i]); bytes++) {
            memset(text, '#', sizeof(text));
            ls_loss_text(&loss, text, bytes);
            ck_assert_uint_lt(strlen(text), bytes);
            ck_assert_int_eq(text[bytes], '#');
        }
    }
}

TEST_FIXTURE(read_page, NULL);
