// SPDX-License-Identifier: Apache-2.0
// Reads `NAME:option=value,option=value` and checks it against tables of options.
#include "core/base/options.h"

#include "core/base/log.h"
#include "core/base/plain_locale.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

// ---- Values ----

bool ls_parse_integer(const char *text, int64_t *out)
{
    const char *digits = *text == '-' ? text + 1 : text;
    if (!*digits || digits[strspn(digits, "0123456789")])
        return false;
    errno = 0;
    const long long value = strtoll(text, NULL, 10);
    if (errno)
        return false;
    *out = value;
    return true;
}

static const char *skip_digits(const char *text)
{
    return text + strspn(text, "0123456789");
}

// [-+] digits [. digits] [e [-+] digits], with at least one digit before or after the point.
static bool is_number(const char *text)
{
    text += *text == '-' || *text == '+';
    const char *end = skip_digits(text);
    size_t digits = (size_t)(end - text);
    if (*end == '.') {
        const char *fraction = end + 1;
        end = skip_digits(fraction);
        digits += (size_t)(end - fraction);
    }
    if (!digits)
        return false;
    if (*end == 'e' || *end == 'E') {
        end++;
        end += *end == '-' || *end == '+';
        const char *exponent = end;
        end = skip_digits(exponent);
        if (end == exponent)
            return false;
    }
    return !*end;
}

bool ls_parse_number(const char *text, double *out)
{
    LS_PLAIN_LOCALE;
    if (!is_number(text))
        return false;
    const double value = strtod(text, NULL);
    if (value - value != 0) // too large for a double
        return false;
    *out = value;
    return true;
}

bool ls_parse_boolean(const char *text, bool *out)
{
    static const char *const yes[] = {"on", "true", "yes", "1"};
    static const char *const no[] = {"off", "false", "no", "0"};
    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++) {
        if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
            *out = !strcasecmp(text, yes[i]);
            return true;
        }
    }
    return false;
}

static const char choice_prefix[] = "one of:";

// Whether `value` is in the list "a, b, c".
static bool is_choice(const char *list, const char *value)
{
    const size_t length = strlen(value);
    while (*list) {
        list += strspn(list, ", ");
        const size_t item = strcspn(list, ", ");
        if (item && item == length && !strncmp(list, value, length))
            return true;
        list += item;
    }
    return false;
}

// What a value of `type` must be, when `value` is not; else NULL.
static const char *what_is_wanted(const char *type, const char *value)
{
    int64_t integer;
    double number;
    bool boolean;
    if (!strcmp(type, "integer"))
        return ls_parse_integer(value, &integer) ? NULL : "a whole number";
    if (!strcmp(type, "number"))
        return ls_parse_number(value, &number) ? NULL : "a number";
    if (!strcmp(type, "boolean"))
        return ls_parse_boolean(value, &boolean) ? NULL : "on or off";
    if (!strncmp(type, choice_prefix, sizeof(choice_prefix) - 1))
        return is_choice(type + sizeof(choice_prefix) - 1, value) ? NULL : type;
    return NULL; // text; a type of a later version is its plugin's to check
}

bool ls_option_fits(const struct ls_plugin_option *option, const char *value)
{
    return !option->type || !what_is_wanted(option->type, value);
}

enum ls_status ls_option_check(const char *scope, const struct ls_plugin_option *option,
                               const char *value)
{
    const char *wanted = option->type ? what_is_wanted(option->type, value) : NULL;
    if (!wanted)
        return LS_OK;
    ls_error(scope, "option %s must be %s, not '%s'", option->name, wanted, value);
    return LS_USAGE;
}

// ---- Names ----

#define LONGEST_NAME 64 // no name of ours is longer; what is has no near one

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool is_same(char a, char b)
{
    return strncasecmp(&a, &b, 1) == 0;
}

// Insertions, deletions, replacements and exchanges of neighbours (optimal string alignment). Capitals are no mistake: who
// writes MPI means mpi.
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][LONGEST_NAME + 1];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above_that = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = smaller(smaller(row[j - 1], above[j]) + 1,
                             above[j - 1] + !is_same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1]))
                row[j] = smaller(row[j], above_that[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

// Whether `name` has the first letters of the words of `known`: lr of learning_rate.
static bool are_initials(const char *name, const char *known)
{
    const char *first = name;
    for (bool begins = true; *known; begins = *known == '_' || *known == '-', known++)
        if (begins && !is_same(*first++, *known))
            return false;
    return first - name > 1 && *first == '\0';
}

const char *ls_nearest(const char *name, const char *const *names)
{
    const size_t length = strlen(name);
    if (!length || length > LONGEST_NAME)
        return NULL;
    size_t best = length / 3 > 1 ? length / 3 : 1;
    const char *nearest = NULL;
    for (; *names; names++) {
        const size_t other = strlen(*names);
        if (other > LONGEST_NAME)
            continue;
        if (are_initials(name, *names))
            return *names;
        const size_t distance = edit_distance(name, length, *names, other);
        if (distance < length && (distance < best || (distance == best && !nearest))) {
            best = distance;
            nearest = *names;
        }
    }
    return nearest;
}

// ---- Names from elsewhere ----

static bool is_filler(char letter)
{
    return letter == '-' || letter == '_';
}

// Whether the `length` letters at `known` spell `name`.
static bool is_spelled(const char *known, size_t length, const char *name)
{
    const char *end = known + length;
    for (;;) {
        while (known < end && is_filler(*known))
            known++;
        while (is_filler(*name))
            name++;
        if (known == end || !*name)
            return known == end && !*name;
        if (strncasecmp(known++, name++, 1))
            return false;
    }
}

bool ls_is_spelled(const char *known, const char *name)
{
    return is_spelled(known, strlen(known), name);
}

const struct ls_hint *ls_hint_find(const struct ls_hint *table, uint32_t kinds, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (dot)
        name = dot + 1;
    for (; table->names; table++) {
        const char *word = table->names;
        while (table->kinds & kinds && *word) {
            const size_t length = strcspn(word, " ");
            if (is_spelled(word, length, name))
                return table;
            word += length + strspn(word + length, " ");
        }
    }
    return NULL;
}

// ---- Specifications ----

static enum ls_status out_of_memory(const char *scope)
{
    ls_error(scope, "out of memory");
    return LS_OUT_OF_MEMORY;
}

// What a backslash or double quotes make part of a name or value.
static bool is_sign(char letter)
{
    return letter && strchr(":,+*?[]\"\\", letter);
}

static bool is_quoted_sign(const char *text)
{
    return text[0] == '\\' && is_sign(text[1]);
}

// Letters before the first of `ends` that is not behind a backslash.
static size_t span(const char *text, const char *ends)
{
    size_t length = 0;
    while (text[length] && !strchr(ends, text[length]))
        length += is_quoted_sign(text + length) ? 2 : 1;
    return length;
}

// A copy of `length` letters without the backslashes; NULL: no memory.
static char *plain(const char *text, size_t length)
{
    char *copy = malloc(length + 1), *end = copy;
    if (!copy)
        return NULL;
    for (size_t i = 0; i < length; i++) {
        i += i + 1 < length && is_quoted_sign(text + i);
        *end++ = text[i];
    }
    *end = '\0';
    return copy;
}

void ls_spec_quote(const char *value, size_t bytes, char *out)
{
    size_t used = 0;
    for (const char *at = value; *at && used + 2 < bytes; at++) {
        if (is_sign(*at))
            out[used++] = '\\';
        out[used++] = *at;
    }
    out[used] = '\0';
}

// A copy in which backslashes stand for double quotes. These begin where a name or a value does.
static enum ls_status replace_quotes(const char *scope, const char *text, char **out)
{
    char *copy = malloc(2 * strlen(text) + 1), *end = copy;
    bool quoted = false, begins = true;
    if (!copy) {
        ls_error(scope, "out of memory");
        return LS_OUT_OF_MEMORY;
    }
    for (const char *at = text; *at; at++) {
        if (*at == '"' && (begins || quoted)) {
            quoted = !quoted;
            begins = false;
            continue;
        }
        begins = !quoted && strchr(":=,+", *at);
        if (is_quoted_sign(at))
            *end++ = *at++;
        else if (quoted && is_sign(*at))
            *end++ = '\\';
        *end++ = *at;
    }
    *end = '\0';
    *out = copy;
    if (!quoted)
        return LS_OK;
    free(copy);
    ls_error(scope,
             "'%s': a double quote opens a name and none closes it; one that belongs to the "
             "name is written \\\"",
             text);
    return LS_USAGE;
}

const char *ls_spec_get(const struct ls_spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->option_count; i++)
        if (!strcmp(spec->options[i].name, name))
            return spec->options[i].value;
    return NULL;
}

void ls_spec_finish(struct ls_spec *spec)
{
    if (!spec)
        return;
    for (size_t i = 0; i < spec->option_count; i++) {
        free(spec->options[i].name);
        free(spec->options[i].value);
        free(spec->options[i].written);
    }
    free(spec->options);
    free(spec->name);
    *spec = (struct ls_spec){0};
}

const char *ls_spec_list(const struct ls_spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->option_count; i++)
        if (!strcmp(spec->options[i].name, name))
            return spec->options[i].written ? spec->options[i].written : spec->options[i].value;
    return NULL;
}

static void skip(const char **list, size_t length)
{
    *list = (*list)[length] ? *list + length + 1 : NULL;
}

char *ls_list_take(const char **list)
{
    const size_t length = span(*list, "+");
    char *name = plain(*list, length);
    skip(list, length);
    return name;
}

// A name without a slash is one of the folder's. Takes `name`, which may be NULL.
static char *in_folder(const char *dir, char *name)
{
    if (!dir || !name || !*name || strchr(name, '/'))
        return name;
    const size_t bytes = strlen(dir) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s", dir, name);
    free(name);
    return path;
}

// The longest part that exists, up to a plus sign or the end; else the first.
char *ls_list_take_file(const char *dir, const char **list, bool *pattern)
{
    const char *text = *list;
    const size_t first = span(text, "+");
    if (pattern)
        *pattern = false;
    for (size_t length = strnlen(text, PATH_MAX); length; length--) {
        if (text[length] && text[length] != '+')
            continue;
        char *path = in_folder(dir, plain(text, length));
        if (!path || access(path, F_OK) == 0) {
            skip(list, length);
            return path;
        }
        free(path);
    }
    skip(list, first);
    if (pattern)
        *pattern = span(text, "*?[") < first;
    return in_folder(dir, pattern && *pattern ? strndup(text, first) : plain(text, first));
}

static bool begins_option(const char *text)
{
    const size_t name =
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    return name && text[name] == '=';
}

// Letters of the option, which ends at a comma. Where no option begins behind that, the comma may belong to
// the name of a file that exists.
static size_t length_of_option(const char *text)
{
    const size_t first = span(text, ","), name = span(text, "=");
    for (size_t end = first; text[end] && name < first && !begins_option(text + end + 1);) {
        end += 1 + span(text + end + 1, ",");
        char *path = plain(text + name + 1, end - name - 1);
        const bool exists = path && access(path, F_OK) == 0;
        free(path);
        if (exists)
            return end;
    }
    return first;
}

// Adds `text` (`length` letters, "option=value") to `spec`, which has room for it.
static enum ls_status add_option(const char *scope, const char *text, size_t length,
                                 struct ls_spec *spec)
{
    const char *equals = memchr(text, '=', length);
    if (!equals || equals == text) {
        ls_error(scope, "'%.*s' after '%s:' is not of the form option=value%s", (int)length, text,
                 spec->name, spec->option_count ? "; a comma in a name is written \\," : "");
        return LS_USAGE;
    }
    const size_t written = length - (size_t)(equals - text) - 1;
    struct ls_option_value *option = &spec->options[spec->option_count];
    option->name = strndup(text, (size_t)(equals - text));
    option->value = plain(equals + 1, written);
    option->written = strndup(equals + 1, written);
    if (option->name && option->value && ls_spec_get(spec, option->name)) {
        ls_error(scope, "option %s is given twice to %s", option->name, spec->name);
        free(option->name);
        free(option->value);
        free(option->written);
        return LS_USAGE;
    }
    spec->option_count++; // what is NULL is freed as such
    return option->name && option->value && option->written ? LS_OK : out_of_memory(scope);
}

static enum ls_status add_options(const char *scope, const char *text, struct ls_spec *spec)
{
    size_t count = 1;
    for (const char *letter = text; *letter; letter++)
        count += *letter == ',';
    spec->options = calloc(count, sizeof(*spec->options));
    if (!spec->options)
        return out_of_memory(scope);
    for (;;) {
        const size_t length = length_of_option(text);
        const enum ls_status status = add_option(scope, text, length, spec);
        if (status || !text[length])
            return status;
        text += length + 1;
    }
}

enum ls_status ls_spec_parse(const char *scope, const char *text, struct ls_spec *out)
{
    char *written;
    enum ls_status status = replace_quotes(scope, text, &written);
    if (status)
        return status;
    const size_t length = span(written, ":");
    struct ls_spec spec = {.name = plain(written, length)};
    if (!length) {
        ls_error(scope, "no name given in '%s'; write NAME or NAME:option=value", text);
        status = LS_USAGE;
    } else {
        status = spec.name ? LS_OK : out_of_memory(scope);
    }
    if (!status && written[length])
        status = add_options(scope, written + length + 1, &spec);
    free(written);
    if (status)
        ls_spec_finish(&spec);
    else
        *out = spec;
    return status;
}

const struct ls_plugin_option *ls_option_find(const struct ls_plugin_option *table,
                                              const char *name)
{
    for (; table && table->name; table++)
        if (!strcmp(table->name, name))
            return table;
    return NULL;
}

static enum ls_status unknown_option(const char *scope, const char *owner, const char *name,
                                     const struct ls_plugin_option *table)
{
    size_t count = 0, bytes = 0;
    while (table && table[count].name)
        count++;
    if (!count) {
        ls_error(scope, "%s has no options; remove %s", owner, name);
        return LS_USAGE;
    }
    const char **names = calloc(count + 1, sizeof(*names));
    char *line = NULL;
    FILE *text = names ? open_memstream(&line, &bytes) : NULL;
    for (size_t i = 0; text && i < count; i++) {
        names[i] = table[i].name;
        fprintf(text, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = names ? ls_nearest(name, names) : NULL;
    const bool written = text && !fclose(text);
    if (written)
        ls_error(scope, "%s has no option %s; %s%s%s: %s", owner, name,
                 nearest ? "did you mean " : "", nearest ? nearest : "",
                 nearest ? "? Available" : "available", line);
    free(line);
    free(names);
    return written ? LS_USAGE : out_of_memory(scope);
}

enum ls_status ls_spec_check(const char *scope, const struct ls_spec *spec,
                             const struct ls_plugin_option *table)
{
    for (size_t i = 0; i < spec->option_count; i++) {
        const struct ls_option_value *given = &spec->options[i];
        const struct ls_plugin_option *option = ls_option_find(table, given->name);
        if (!option)
            return unknown_option(scope, spec->name, given->name, table);
        const enum ls_status status = ls_option_check(scope, option, given->value);
        if (status)
            return status;
    }
    return LS_OK;
}
