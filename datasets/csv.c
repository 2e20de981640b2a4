// SPDX-License-Identifier: Apache-2.0
// csv: a table of numbers, one example a line (csv_lines.h). One column has the labels: classes from 0, other
// numbers, or names of classes.
#include "datasets/datasets.h"

#include "core/base/log.h"
#include "core/data/arrays.h"
#include "datasets/csv_lines.h"
#include "datasets/field_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE LS_CSV_SCOPE
#define MOST_NAMES 65536 // of classes
#define SHOWN 40 // letters of a cell in a message

// ---- Table ----

enum labels { LABELS_UNKNOWN, LABELS_NUMBERS, LABELS_NAMES };

// What the options ask for.
struct wish {
    const char *path;
    const char *train; // whose names of classes count; NULL: the same file
    const char *label; // NULL: the last column
    const char *columns; // NULL: all others
    const char *header, *targets; // "auto", "classes", ...; NULL: auto
    char separator;
};

// A file that is read.
struct table {
    struct ls_csv_lines *lines;
    const struct wish *wish;
    size_t columns;
    size_t label; // SIZE_MAX: none
    bool *taken; // (columns) whether it is part of x
    char **header; // (columns) names; NULL: none
    uint64_t features, count;
    struct ls_bytes values; // float
    enum labels labels;
    struct ls_bytes numbers; // double: labels
    struct ls_bytes names, name_starts; // labels, and size_t: where each begins
    char **classes; // sorted names
    uint32_t class_count;
};

static void free_strings(char **strings, size_t count)
{
    for (size_t i = 0; strings && i < count; i++)
        free(strings[i]);
    free(strings);
}

static void free_table(struct table *table)
{
    if (table->lines)
        ls_csv_close_lines(table->lines);
    free(table->lines);
    free_strings(table->header, table->columns);
    free_strings(table->classes, table->class_count);
    free(table->taken);
    free(table->values.data);
    free(table->numbers.data);
    free(table->names.data);
    free(table->name_starts.data);
    *table = (struct table){0};
}

// A whole line was taken for a cell.
static const char *one_column(const struct table *table)
{
    return table->columns == 1 ? "; the file has only one column: if no comma is between its "
                                 "cells, add separator=semicolon or separator=tab"
                               : "";
}

// A column by its name or its number, from 1 or from the end (-1).
static enum ls_status find_column(const struct table *table, const char *option, const char *text,
                                  size_t *out)
{
    int64_t number;
    for (size_t i = 0; table->header && i < table->columns; i++)
        if (strcmp(table->header[i], text) == 0) {
            *out = i;
            return LS_OK;
        }
    if (ls_parse_integer(text, &number) && number != 0 && number >= -(int64_t)table->columns &&
        number <= (int64_t)table->columns) {
        *out = (size_t)(number < 0 ? number + (int64_t)table->columns : number - 1);
        return LS_OK;
    }
    const char *nearest =
        table->header ? ls_nearest(text, (const char *const *)table->header) : NULL;
    ls_error(
        SCOPE,
        "%s: %s=%s: there is no such column%s%s%s; %s, and numbers are 1 to %zu or -1 to -%zu%s",
        table->wish->path, option, text, nearest ? "; did you mean " : "", nearest ? nearest : "",
        nearest ? "?" : "",
        table->header ? "names are in the first line" : "the file has no header with names",
        table->columns, table->columns, one_column(table));
    return LS_BAD_INPUT;
}

// columns=NAME+NAME
static enum ls_status take_columns(struct table *table)
{
    const char *text = table->wish->columns;
    enum ls_status status = LS_OK;
    for (size_t i = 0; !text && i < table->columns; i++)
        table->taken[i] = i != table->label;
    while (text && !status) {
        char *name = ls_list_take(&text);
        size_t column;
        status = name ? find_column(table, "columns", name, &column) : LS_OUT_OF_MEMORY;
        free(name);
        if (!status)
            table->taken[column] = true;
    }
    for (size_t i = 0; i < table->columns; i++)
        table->features += table->taken[i];
    if (!status && !table->features) {
        ls_error(SCOPE, "%s: no column is left to train on%s", table->wish->path,
                 one_column(table));
        status = LS_BAD_INPUT;
    }
    return status;
}

// Ends with NULL.
static enum ls_status keep_header(struct table *table)
{
    table->header = calloc(table->columns + 1, sizeof(*table->header));
    for (size_t i = 0; table->header && i < table->columns; i++) {
        table->header[i] = strdup(ls_csv_cell(table->lines, i));
        if (!table->header[i])
            return LS_OUT_OF_MEMORY;
    }
    return table->header ? LS_OK : LS_OUT_OF_MEMORY;
}

// As ls_parse_number, but faster for what tables are full of: 15 digits and powers of ten up to
// 22 are doubles without rounding, so that their product or quotient is rounded once, as it should be.
static bool parse_number(const char *text, double *out)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *at = text + (*text == '-');
    uint64_t digits = 0;
    unsigned count = 0, behind = 0;
    for (; *at >= '0' && *at <= '9' && count < 15; at++, count++)
        digits = digits * 10 + (uint64_t)(*at - '0');
    if (*at == '.' && count)
        for (at++; *at >= '0' && *at <= '9' && count < 15; at++, count++, behind++)
            digits = digits * 10 + (uint64_t)(*at - '0');
    if (*at || !count)
        return ls_parse_number(text, out);
    *out = (double)digits / powers[behind];
    if (*text == '-')
        *out = -*out;
    return true;
}

static bool is_number(const char *text)
{
    double number;
    return parse_number(text, &number);
}

static bool is_missing(const char *text)
{
    static const char *const words[] = {"",  "NA",   "N/A",  "NaN",  "nan",
                                        "?", "null", "NULL", "None", "-"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

// The first record is a header when the options say so or name columns, or when a cell of it is a word,
// other than that of the label, which may be a name. A missing value is no word: a first example that
// has one must not be taken for a header.
static bool has_header(const struct table *table)
{
    const struct wish *wish = table->wish;
    int64_t number;
    size_t label = table->columns - 1;
    if (wish->header && strcmp(wish->header, "auto") != 0)
        return strcmp(wish->header, "on") == 0;
    if (wish->label && strcmp(wish->label, "none") == 0)
        label = SIZE_MAX;
    else if (wish->label && !ls_parse_integer(wish->label, &number))
        return true;
    else if (wish->label)
        label = (size_t)(number < 0 ? number + (int64_t)table->columns : number - 1);
    for (size_t i = 0; i < table->columns; i++)
        if (i != label && !is_number(ls_csv_cell(table->lines, i)) &&
            !is_missing(ls_csv_cell(table->lines, i)))
            return true;
    return false;
}

// By the first record. `header`: it is one.
static enum ls_status begin_table(struct table *table, bool *header)
{
    const char *label = table->wish->label;
    table->columns = ls_csv_cell_count(table->lines);
    table->label = table->columns - 1;
    table->taken = calloc(table->columns, sizeof(*table->taken));
    enum ls_status status = table->taken ? LS_OK : LS_OUT_OF_MEMORY;
    *header = has_header(table);
    if (!status && *header)
        status = keep_header(table);
    if (!status && label && strcmp(label, "none") == 0)
        table->label = SIZE_MAX;
    else if (!status && label)
        status = find_column(table, "label", label, &table->label);
    return status ? status : take_columns(table);
}

static enum ls_status fail_cell(const struct table *table, size_t column, const char *what)
{
    const char *text = ls_csv_cell(table->lines, column);
    char name[64] = "";
    if (table->header)
        snprintf(name, sizeof(name), " (%.50s)", table->header[column]);
    ls_error(SCOPE, "%s: line %" PRIu64 ", column %zu%s: '%.*s%s' %s", table->wish->path,
             table->lines->line, column + 1, name, SHOWN, text, strlen(text) > SHOWN ? "..." : "",
             what);
    return LS_BAD_INPUT;
}

#define MISSING "is a missing value; fill it in or remove the line"

static enum ls_status add_value(struct table *table, size_t column)
{
    const char *text = ls_csv_cell(table->lines, column);
    double number;
    if (!parse_number(text, &number))
        return is_missing(text)
                   ? fail_cell(table, column, MISSING)
                   : fail_cell(table, column, "is not a number; columns= says which to take");
    const float value = (float)number;
    if (value - value != 0)
        return fail_cell(table, column, "is larger than a float32 can be");
    return ls_bytes_add(&table->values, &value, sizeof(value));
}

// All labels are numbers, or all are names.
static enum ls_status add_label(struct table *table)
{
    const char *text = ls_csv_cell(table->lines, table->label);
    double number;
    const enum labels kind = parse_number(text, &number) ? LABELS_NUMBERS : LABELS_NAMES;
    if (is_missing(text))
        return fail_cell(table, table->label, MISSING);
    if (table->labels == LABELS_UNKNOWN)
        table->labels = kind;
    if (kind != table->labels)
        return fail_cell(table, table->label,
                         kind == LABELS_NAMES
                             ? "is no number, but the labels before are"
                             : "is a number, but the labels before are names; if the first line "
                               "is a header, give header=on");
    if (kind == LABELS_NUMBERS)
        return ls_bytes_add(&table->numbers, &number, sizeof(number));
    const size_t start = table->names.used;
    const enum ls_status status = ls_bytes_add(&table->name_starts, &start, sizeof(start));
    return status ? status : ls_bytes_add(&table->names, text, strlen(text) + 1);
}

static enum ls_status add_record(struct table *table)
{
    const size_t count = ls_csv_cell_count(table->lines);
    enum ls_status status = LS_OK;
    if (count != table->columns) {
        ls_error(SCOPE, "%s: line %" PRIu64 " has %zu columns, but the first has %zu",
                 table->wish->path, table->lines->line, count, table->columns);
        return LS_BAD_INPUT;
    }
    for (size_t i = 0; !status && i < count; i++)
        if (table->taken[i])
            status = add_value(table, i);
    if (!status && table->label < count)
        status = add_label(table);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static const char *label_name(const struct table *table, uint64_t index)
{
    size_t start;
    memcpy(&start, table->name_starts.data + index * sizeof(start), sizeof(start));
    return table->names.data + start;
}

// The distinct names, sorted, are the classes.
static enum ls_status sort_names(struct table *table)
{
    const char **all = malloc(table->count * sizeof(*all));
    enum ls_status status = all ? LS_OK : LS_OUT_OF_MEMORY;
    uint32_t found = 0;
    for (uint64_t i = 0; !status && i < table->count; i++)
        all[i] = label_name(table, i);
    if (!status)
        qsort(all, table->count, sizeof(*all), compare_names);
    for (uint64_t i = 0; !status && i < table->count; i++)
        if (i == 0 || strcmp(all[i], all[found - 1]) != 0)
            all[found++] = all[i];
    if (!status && found > MOST_NAMES) {
        ls_error(SCOPE, "%s: more than 65,536 different labels; column %zu has no classes",
                 table->wish->path, table->label + 1);
        status = LS_BAD_INPUT;
    }
    if (!status)
        table->classes = calloc(found, sizeof(*table->classes));
    if (!status && !table->classes)
        status = LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < found; i++) {
        table->classes[i] = strdup(all[i]);
        status = table->classes[i] ? LS_OK : LS_OUT_OF_MEMORY;
        table->class_count += !status;
    }
    free(all);
    return status;
}

static enum ls_status read_records(struct table *table)
{
    bool there = false, header = false;
    enum ls_status status = ls_csv_read_record(table->lines, &there);
    if (!status && there)
        status = begin_table(table, &header);
    while (!status && there) {
        if (!header) {
            status = add_record(table);
            table->count++;
        }
        header = false;
        if (!status)
            status = ls_csv_read_record(table->lines, &there);
    }
    if (!status && (!table->count || table->count >= UINT32_MAX)) {
        ls_error(SCOPE, "%s: %s", table->wish->path,
                 table->count ? "more than 4,294,967,294 lines" : "there are no examples");
        status = LS_BAD_INPUT;
    }
    return status;
}

static enum ls_status read_table(const struct wish *wish, struct table *table)
{
    *table = (struct table){.wish = wish, .lines = calloc(1, sizeof(*table->lines))};
    if (!table->lines)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = ls_csv_open_lines(wish->path, wish->separator, table->lines);
    if (!status)
        status = read_records(table);
    if (!status && table->labels == LABELS_NAMES)
        status = sort_names(table);
    if (!status && table->labels == LABELS_NAMES && wish->targets &&
        strcmp(wish->targets, "numbers") == 0) {
        ls_error(SCOPE, "%s: targets=numbers, but column %zu has names, as '%.40s'", wish->path,
                 table->label + 1, table->classes[0]);
        status = LS_BAD_INPUT;
    }
    if (status)
        free_table(table);
    return status;
}

// ---- Dataset ----

struct storage {
    struct ls_dataset dataset;
    struct table table;
    void *labels; // int32 or float
};

static void storage_close(struct ls_dataset *dataset)
{
    struct storage *storage = dataset->storage;
    free_table(&storage->table);
    free(storage->labels);
    free(storage);
}

static enum ls_status read_wish(const struct ls_spec *spec, enum ls_split split, struct wish *wish)
{
    const char *separator = ls_spec_get(spec, "separator");
    *wish = (struct wish){.label = ls_spec_get(spec, "label"),
                          .columns = ls_spec_list(spec, "columns"),
                          .header = ls_spec_get(spec, "header"),
                          .targets = ls_spec_get(spec, "targets"),
                          .separator = !separator || separator[0] == 'c' ? ','
                                       : separator[0] == 's'             ? ';'
                                                                         : '\t'};
    if (split == LS_TEST)
        wish->train = ls_spec_get(spec, "train");
    return ls_split_file(SCOPE, spec, split, false, &wish->path);
}

// Names of the tests are numbered as those of the training examples.
static enum ls_status take_names_of_training(const struct wish *wish, struct table *table)
{
    struct wish other = *wish;
    struct table train;
    other.path = wish->train;
    enum ls_status status = read_table(&other, &train);
    if (status)
        return status;
    for (uint32_t i = 0; !status && i < table->class_count; i++)
        if (train.labels != LABELS_NAMES ||
            !bsearch(&table->classes[i], train.classes, train.class_count, sizeof(*train.classes),
                     compare_names)) {
            ls_error(SCOPE, "%s: the label '%.40s' is not in %s, so it is no class", wish->path,
                     table->classes[i], wish->train);
            status = LS_BAD_INPUT;
        }
    char **classes = table->classes;
    const uint32_t count = table->class_count;
    table->classes = train.classes;
    table->class_count = train.class_count;
    train.classes = classes;
    train.class_count = count;
    free_table(&train);
    return status;
}

static bool is_class(double number)
{
    return number >= 0 && number < INT32_MAX && number == (double)(int32_t)number;
}

// Whole numbers from 0 are classes, unless targets= says otherwise.
static enum ls_status decide_classes(const struct table *table, bool *out)
{
    const char *targets = table->wish->targets;
    *out = !targets || strcmp(targets, "numbers") != 0;
    for (uint64_t i = 0; *out && table->labels == LABELS_NUMBERS && i < table->count; i++) {
        double number;
        memcpy(&number, table->numbers.data + i * sizeof(number), sizeof(number));
        *out = is_class(number);
        if (*out || !targets || strcmp(targets, "auto") == 0)
            continue;
        ls_error(SCOPE,
                 "%s: targets=classes, but example %" PRIu64 " has the label %g; classes are "
                 "whole numbers from 0",
                 table->wish->path, i + 1, number);
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

static enum ls_status make_labels(struct storage *storage, struct ls_field *out)
{
    const struct table *table = &storage->table;
    bool classes = true;
    enum ls_status status = decide_classes(table, &classes);
    if (status)
        return status;
    *out = (struct ls_field){.name = "y",
                             .role = LS_FIELD_TARGET,
                             .dtype = classes ? LS_I32 : LS_F32,
                             .divisor = 1,
                             .stride = 4};
    storage->labels = malloc(table->count * out->stride);
    if (!storage->labels)
        return LS_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < table->count; i++) {
        double number = 0;
        if (table->labels == LABELS_NAMES) {
            const char *name = label_name(table, i);
            char **found = bsearch(&name, table->classes, table->class_count,
                                   sizeof(*table->classes), compare_names);
            number = (double)(found - table->classes);
        } else {
            memcpy(&number, table->numbers.data + i * sizeof(number), sizeof(number));
        }
        if (classes)
            ((int32_t *)storage->labels)[i] = (int32_t)number;
        else
            ((float *)storage->labels)[i] = (float)number;
    }
    out->values = storage->labels;
    if (table->labels == LABELS_NAMES)
        out->class_count = table->class_count;
    else
        ls_array_count_classes(out, table->count);
    out->class_names = (const char *const *)table->classes;
    out->by_name = table->labels == LABELS_NAMES;
    return LS_OK;
}

static enum ls_status csv_open(const struct ls_spec *spec, enum ls_split split,
                               struct ls_dataset **out)
{
    struct wish wish;
    struct storage *storage = calloc(1, sizeof(*storage));
    if (!storage)
        return LS_OUT_OF_MEMORY;
    struct table *table = &storage->table;
    struct ls_dataset *dataset = &storage->dataset;
    *dataset = (struct ls_dataset){.real = true, .storage = storage, .close = storage_close};
    enum ls_status status = read_wish(spec, split, &wish);
    if (!status)
        status = read_table(&wish, table);
    if (!status && wish.train && table->labels == LABELS_NAMES)
        status = take_names_of_training(&wish, table);
    if (!status && table->labels)
        status = make_labels(storage, &dataset->fields[1]);
    if (status) {
        storage_close(dataset);
        return status;
    }
    ls_csv_close_lines(table->lines);
    free(table->lines);
    table->lines = NULL;
    table->wish = NULL; // ends here
    dataset->count = table->count;
    dataset->field_count = table->labels ? 2 : 1;
    dataset->fields[0] = (struct ls_field){.name = "x",
                                           .role = LS_FIELD_INPUT,
                                           .dtype = LS_F32,
                                           .ndims = 1,
                                           .dims = {(int64_t)table->features},
                                           .divisor = 1,
                                           .values = table->values.data,
                                           .stride = table->features * sizeof(float)};
    *out = dataset;
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"file", "text", NULL, "the table, plain or gzipped: an example a line"},
    {"train", "text", NULL, "instead of file: the table of training examples"},
    {"test", "text", NULL, "and that of test examples"},
    {"label", "text", "-1", "the column of the labels: its name, its number from 1, or none"},
    {"columns", "text", NULL, "columns to train on, as NAME+NAME; default: all others"},
    {"header", "one of: auto, on, off", "auto", "whether the first line has names"},
    {"separator", "one of: comma, semicolon, tab", "comma", "what is between two cells"},
    {"targets", "one of: auto, classes, numbers", "auto",
     "what labels are; auto: classes where all are names or whole numbers from 0"},
    {0},
};

const struct ls_dataset_kind ls_dataset_csv = {
    .name = "csv",
    .summary = "a table of numbers with a column of labels: file=FILE,label=NAME",
    .options = options,
    .is_one_split = ls_is_one_file,
    .open = csv_open,
    // How many examples and classes there are takes all of it: no describe.
};
