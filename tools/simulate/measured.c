// SPDX-License-Identifier: Apache-2.0
// Reads a table of measured collectives: a header that names the columns, then a line a measurement.
#include "tools/simulate/measured.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum column {
    OPERATION,
    BYTES,
    RANKS,
    RANKS_PER_NODE,
    OUT_OF_PLACE,
    IN_PLACE,
    ALGORITHM,
    NOTE,
    LEFT_OUT,
    COLUMNS,
};

static const char *const names[COLUMNS] = {
    "operation",        "bytes",     "ranks", "ranks_per_node", "seconds_out_of_place",
    "seconds_in_place", "algorithm", "note",  "left_out"};

#define FIELDS_MOST 32

struct reader {
    const char *path;
    unsigned line;
    bool in_place;
    size_t places[COLUMNS]; // of the columns in a line, from 1; 0: there is none
    size_t fields; // of the header
};

// A file without a line has no number of one.
__attribute__((format(printf, 2, 3))) static enum ls_status refuse(const struct reader *reader,
                                                                   const char *format, ...)
{
    char text[512], line[16] = "";
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (reader->line)
        snprintf(line, sizeof(line), ":%u", reader->line);
    ls_error("--against", "%s%s: %s", reader->path, line, text);
    return LS_BAD_INPUT;
}

// Cuts the line into its fields; one in double quotes may have commas, and "" for a quote.
static enum ls_status cut(const struct reader *reader, char *line, char **fields, size_t *count)
{
    char *from = line, *to = line;
    line[strcspn(line, "\r\n")] = '\0';
    for (*count = 0; *count < FIELDS_MOST; from++) {
        fields[(*count)++] = to;
        bool quoted = *from == '"';
        for (from += quoted; *from && (quoted || *from != ','); from++) {
            if (quoted && *from == '"' && from[1] != '"')
                quoted = false;
            else
                *to++ = quoted && *from == '"' ? *++from : *from;
        }
        if (quoted)
            return refuse(reader, "a field begins with a quote and does not end with one");
        const bool last = !*from;
        *to++ = '\0';
        if (last)
            return LS_OK;
    }
    return refuse(reader, "the line has more than %d fields", FIELDS_MOST);
}

static enum ls_status refuse_names(const struct reader *reader, char *const *fields, size_t count,
                                   const char *missing)
{
    char found[256] = "";
    for (size_t i = 0, length = 0; i < count && length < sizeof(found); i++)
        length += (size_t)snprintf(found + length, sizeof(found) - length, "%s%s", i ? ", " : "",
                                   fields[i]);
    return refuse(reader, "the header has no column %s; it has %s", missing, found);
}

static enum ls_status read_names(struct reader *reader, char *const *fields, size_t count)
{
    static const enum column required[] = {OPERATION, BYTES, RANKS};
    reader->fields = count;
    for (size_t i = 0; i < count; i++)
        for (size_t column = 0; column < COLUMNS; column++) {
            if (strcmp(fields[i], names[column]) != 0)
                continue;
            if (reader->places[column])
                return refuse(reader, "column '%s' is there twice", fields[i]);
            reader->places[column] = i + 1;
        }
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++)
        if (!reader->places[required[i]])
            return refuse_names(reader, fields, count, names[required[i]]);
    if (!reader->places[OUT_OF_PLACE] && !reader->places[IN_PLACE])
        return refuse_names(reader, fields, count, "seconds_out_of_place or seconds_in_place");
    return LS_OK;
}

// "": the file has no such column, or the row no value.
static const char *field(const struct reader *reader, char *const *fields, enum column column)
{
    return reader->places[column] ? fields[reader->places[column] - 1] : "";
}

static bool read_count(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    int64_t number;
    if (!ls_parse_integer(text, &number) || number < (int64_t)least || (uint64_t)number > most)
        return false;
    *out = (uint64_t)number;
    return true;
}

static enum ls_status copy(const struct reader *reader, const char *text, char *out, size_t room)
{
    if ((size_t)snprintf(out, room, "%s", text) >= room)
        return refuse(reader, "'%s' is longer than %zu bytes", text, room - 1);
    return LS_OK;
}

static bool is_in_switch(const char *algorithm)
{
    static const char *const those[] = {"nvls",    "nvlstree",     "sharp",
                                        "collnet", "collnetchain", "collnetdirect"};
    for (size_t i = 0; i < sizeof(those) / sizeof(those[0]); i++)
        if (strcasecmp(algorithm, those[i]) == 0)
            return true;
    return false;
}

static bool has_word(const char *text, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length)
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length]))
            return true;
    return false;
}

// `in_place`: so was the time measured that the row gives.
static const char *why_left_out(const char *algorithm, const char *note, bool in_place)
{
    const bool of_other =
        in_place && (strstr(note, "out of place") || strstr(note, "out-of-place"));
    if (is_in_switch(algorithm))
        return "reduced in a switch";
    if (!of_other && has_word(note, "artefact"))
        return "an artefact";
    return strstr(note, "not for error figures") ? "doubtful" : "";
}

static enum ls_status read_texts(const struct reader *reader, char *const *fields, bool in_place,
                                 struct ls_measured_row *out)
{
    const char *algorithm = field(reader, fields, ALGORITHM);
    const char *left_out = field(reader, fields, LEFT_OUT);
    if (!*left_out)
        left_out = why_left_out(algorithm, field(reader, fields, NOTE), in_place);
    enum ls_status status =
        copy(reader, field(reader, fields, OPERATION), out->operation, sizeof(out->operation));
    for (char *letter = out->operation; *letter; letter++)
        *letter = *letter == '-' ? '_' : *letter;
    if (!status)
        status = copy(reader, algorithm, out->algorithm, sizeof(out->algorithm));
    return status ? status : copy(reader, left_out, out->left_out, sizeof(out->left_out));
}

static enum ls_status read_row(const struct reader *reader, char *const *fields,
                               struct ls_measured_row *out)
{
    const char *bytes = field(reader, fields, BYTES), *of_all = field(reader, fields, RANKS);
    const char *per_node = field(reader, fields, RANKS_PER_NODE);
    const char *here = field(reader, fields, IN_PLACE);
    const char *elsewhere = field(reader, fields, OUT_OF_PLACE);
    const bool in_place = *here && (reader->in_place || !*elsewhere);
    const char *seconds = in_place ? here : elsewhere;
    uint64_t ranks, each = 0;
    *out = (struct ls_measured_row){.line = reader->line};
    if (!read_count(bytes, 0, UINT64_C(1) << 44, &out->bytes))
        return refuse(reader, "expected a number of bytes, got '%s'", bytes);
    if (!read_count(of_all, 1, UINT32_MAX, &ranks))
        return refuse(reader, "expected a number of ranks, got '%s'", of_all);
    if (*per_node && !read_count(per_node, 1, UINT32_MAX, &each))
        return refuse(reader, "expected a number of ranks in a node, got '%s'", per_node);
    if (!ls_parse_number(seconds, &out->seconds) || !(out->seconds > 0 && out->seconds < 1e9))
        return refuse(reader, "expected a time in seconds, got '%s'", seconds);
    out->ranks = (uint32_t)ranks;
    out->ranks_per_node = (uint32_t)each;
    return read_texts(reader, fields, in_place, out);
}

static bool is_utf8(const char *line, size_t length)
{
    json_t *text = json_stringn(line, length); // refuses what is none
    const bool valid = text && strlen(line) == length;
    json_decref(text);
    return valid;
}

static enum ls_status read_line(struct reader *reader, char *line, size_t length,
                                struct ls_measured *out)
{
    static const char mark[] = "\xef\xbb\xbf"; // with which some programs begin a text in UTF-8
    char *fields[FIELDS_MOST];
    size_t count;
    if (!is_utf8(line, length))
        return refuse(reader, "the line is no text in UTF-8");
    if (reader->line == 1 && strncmp(line, mark, strlen(mark)) == 0)
        line += strlen(mark);
    enum ls_status status = cut(reader, line, fields, &count);
    if (status || (count == 1 && !*fields[0])) // an empty line
        return status;
    if (!reader->fields)
        return read_names(reader, fields, count);
    if (count != reader->fields)
        return refuse(reader, "the line has %zu field%s, the header has %zu", count,
                      count == 1 ? "" : "s", reader->fields);
    struct ls_measured_row *grown = realloc(out->rows, (out->count + 1) * sizeof(*grown));
    if (!grown)
        return LS_OUT_OF_MEMORY;
    out->rows = grown;
    return read_row(reader, fields, &out->rows[out->count++]);
}

enum ls_status ls_measured_read(const char *path, bool in_place, struct ls_measured *out)
{
    struct reader reader = {.path = path, .in_place = in_place};
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    enum ls_status status = LS_OK;
    *out = (struct ls_measured){0};
    if (!file) {
        ls_error("--against", "%s: %s", path, strerror(errno));
        return LS_BAD_INPUT;
    }
    for (ssize_t length; !status && (length = getline(&line, &room, file)) >= 0;) {
        reader.line++;
        status = read_line(&reader, line, (size_t)length, out);
    }
    if (!status && ferror(file))
        status = refuse(&reader, "cannot be read further: %s", strerror(errno));
    if (!status && !out->count)
        status = refuse(&reader, "the file has no measurement");
    if (status)
        ls_measured_finish(out);
    free(line);
    fclose(file);
    return status;
}

void ls_measured_finish(struct ls_measured *measured)
{
    free(measured->rows);
    *measured = (struct ls_measured){0};
}
