// SPDX-License-Identifier: Apache-2.0
// Reads GNU long options by a table.
#include "tools/arguments.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <assert.h>
#include <string.h>

#define HELP_COLUMN 34
#define LINE_LETTERS 100

static bool is_end(const struct argument *entry)
{
    return !entry->name && !entry->help;
}

static size_t find(const struct argument *table, const char *name, size_t length, bool *found)
{
    size_t i = 0;
    for (; !is_end(&table[i]); i++)
        if (table[i].name && strlen(table[i].name) == length &&
            strncmp(table[i].name, name, length) == 0) {
            *found = true;
            return i;
        }
    *found = false;
    return i;
}

static enum ls_status fail_unknown(const struct argument *table, const char *name, size_t length)
{
    const char *names[ARGUMENTS_MAX + 1] = {NULL};
    size_t count = 0;
    for (size_t i = 0; !is_end(&table[i]) && count < ARGUMENTS_MAX; i++)
        if (table[i].name)
            names[count++] = table[i].name;
    char text[128];
    snprintf(text, sizeof(text), "%.*s", (int)(length < 100 ? length : 100), name);
    const char *nearest = ls_nearest(text, names);
    if (nearest)
        ls_error("usage", "there is no option --%s; did you mean --%s?", text, nearest);
    else
        ls_error("usage", "there is no option --%s; --help lists them", text);
    return LS_USAGE;
}

// One word that begins with two dashes; `used` tells whether the next word was its value.
static enum ls_status parse_option(const char *word, const char *next, struct arguments *out,
                                   bool *used)
{
    const char *name = word + 2;
    const size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    bool found;
    const size_t index = find(out->table, name, length, &found);
    *used = false;
    if (!found)
        return fail_unknown(out->table, name, length);
    const struct argument *entry = &out->table[index];
    if (out->values[index]) {
        ls_error("usage", "--%s is given twice", entry->name);
        return LS_USAGE;
    }
    if (!entry->value && value) {
        ls_error("usage", "--%s takes no value", entry->name);
        return LS_USAGE;
    }
    if (entry->value && !value) {
        if (!next) {
            ls_error("usage", "--%s wants a value: --%s=%s", entry->name, entry->name,
                     entry->value);
            return LS_USAGE;
        }
        value = next;
        *used = true;
    }
    out->values[index] = value ? value : "on";
    return LS_OK;
}

enum ls_status arguments_parse(const struct argument *table, int argc, char **argv,
                               size_t most_operands, struct arguments *out)
{
    *out = (struct arguments){.table = table};
    bool options = true;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (options && strcmp(word, "--") == 0) {
            options = false;
        } else if (options && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            out->help = true;
            return LS_OK;
        } else if (options && word[0] == '-' && word[1] == '-') {
            bool used;
            const enum ls_status status =
                parse_option(word, i + 1 < argc ? argv[i + 1] : NULL, out, &used);
            if (status)
                return status;
            i += used;
        } else if (options && word[0] == '-' && word[1]) {
            ls_error("usage", "'%s': options begin with two dashes; --help lists them", word);
            return LS_USAGE;
        } else if (out->operand_count == most_operands || out->operand_count == ARGUMENTS_MAX) {
            ls_error("usage", "'%s' is one word too many; options begin with two dashes", word);
            return LS_USAGE;
        } else {
            out->operands[out->operand_count++] = word;
        }
    }
    return LS_OK;
}

static size_t index_of(const struct arguments *arguments, const char *name)
{
    bool found;
    const size_t index = find(arguments->table, name, strlen(name), &found);
    assert(found);
    return index;
}

const char *arguments_text(const struct arguments *arguments, const char *name)
{
    const size_t index = index_of(arguments, name);
    return arguments->values[index] ? arguments->values[index]
                                    : arguments->table[index].default_value;
}

bool arguments_given(const struct arguments *arguments, const char *name)
{
    return arguments->values[index_of(arguments, name)] != NULL;
}

enum ls_status arguments_count(const struct arguments *arguments, const char *name, uint64_t least,
                               uint64_t most, uint64_t *out)
{
    const char *text = arguments_text(arguments, name);
    int64_t value;
    if (!text)
        return LS_OK;
    if (!ls_parse_integer(text, &value) || value < 0 || (uint64_t)value < least ||
        (uint64_t)value > most) {
        ls_error("usage", "--%s=%s: wanted an integer from %llu to %llu", name, text,
                 (unsigned long long)least, (unsigned long long)most);
        return LS_USAGE;
    }
    *out = (uint64_t)value;
    return LS_OK;
}

enum ls_status arguments_number(const struct arguments *arguments, const char *name, double *out)
{
    const char *text = arguments_text(arguments, name);
    if (text && !ls_parse_number(text, out)) {
        ls_error("usage", "--%s=%s: wanted a number", name, text);
        return LS_USAGE;
    }
    return LS_OK;
}

enum ls_status arguments_switch(const struct arguments *arguments, const char *name, bool *out)
{
    const char *text = arguments_text(arguments, name);
    if (text && !ls_parse_boolean(text, out)) {
        ls_error("usage", "--%s=%s: wanted on or off", name, text);
        return LS_USAGE;
    }
    return LS_OK;
}

const char *arguments_short_name(const char *text)
{
    const size_t options = strcspn(text, ":");
    size_t begin = options;
    while (begin > 0 && text[begin - 1] != '/')
        begin--;
    return text + begin;
}

// Help text in its column, broken between words.
static void print_wrapped(const char *text, FILE *out)
{
    size_t column = HELP_COLUMN;
    while (*text) {
        const size_t length = strcspn(text, " ");
        if (column > HELP_COLUMN && column + length > LINE_LETTERS) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        fprintf(out, "%.*s", (int)length, text);
        column += length + 1;
        text += length;
        if (*text == ' ') {
            text++;
            if (column + strcspn(text, " ") <= LINE_LETTERS)
                fputc(' ', out);
        }
    }
    fputc('\n', out);
}

void arguments_print(const struct argument *table, FILE *out)
{
    for (size_t i = 0; !is_end(&table[i]); i++) {
        const struct argument *entry = &table[i];
        if (!entry->name) {
            fprintf(out, "\n%s\n", entry->help);
            continue;
        }
        char left[96], help[512];
        snprintf(left, sizeof(left), "  --%s%s%s", entry->name, entry->value ? "=" : "",
                 entry->value ? entry->value : "");
        snprintf(help, sizeof(help), "%s%s%s%s", entry->help, entry->default_value ? " [" : "",
                 entry->default_value ? entry->default_value : "", entry->default_value ? "]" : "");
        if (strlen(left) + 1 > HELP_COLUMN)
            fprintf(out, "%s\n%*s", left, HELP_COLUMN, "");
        else
            fprintf(out, "%-*s", HELP_COLUMN, left);
        print_wrapped(help, out);
    }
}
