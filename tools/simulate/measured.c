// SPDX-License-Identifier: Apache-2.0
// Reads a table of measured collectives: a line of column names, then a line for each measurement.
#include "tools/simulate/measured.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum column {
    OPERATION,
    BYTES,
    RANKS,
    RANKS_PER_NODE,
    OUT_OF_PLACE,
    IN_PLACE,
    ALGORITHM,
    NOTE,
    COLUMNS,
};

static const char *const names[COLUMNS] = {
    "operation",        "bytes",     "ranks", "ranks_per_node", "seconds_out_of_place",
    "seconds_in_place", "algorithm", "note"};

#define FIELDS_MOST 32

struct reader {
    const char *path;
    unsigned line;
    bool in_place;
    size_t places[COLUMNS]; // of the columns in a line, from 1; 0: there is none
    size_t fields; // of the line of names
};

static enum ls_status refuse(const struct reader *reader, const char *reason, const char *value)
{
    ls_error("--against", "%s:%u: %s%s%s%s", reader->path, reader->line, reason, value ? " '" : "",
             value ? value : "", value ? "'" : "");
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
            return refuse(reader, "a field begins with a quote and does not end with one", NULL);
        const bool last = !*from;
        *to++ = '\0';
        if (last)
            return LS_OK;
    }
    return refuse(reader, "a line has too many fields", NULL);
}

static enum ls_status read_names(struct reader *reader, char *const *fields, size_t count)
{
    static const enum column required[] = {OPERATION, BYTES, RANKS};
    reader->fields = count;
    for (size_t i = 0; i < count; i++)
        for (size_t column = 0; column < COLUMNS; column++)
            if (strcmp(fields[i], names[column]) == 0)
                reader->places[column] = i + 1;
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++)
        if (!reader->places[required[i]])
            return refuse(reader, "there is no column", names[required[i]]);
    if (!reader->places[OUT_OF_PLACE] && !reader->places[IN_PLACE])
        return refuse(reader, "there is neither a column seconds_in_place nor",
                      names[OUT_OF_PLACE]);
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

static const char *why_left_out(const char *algorithm, const char *note)
{
    if (strcmp(algorithm, "nvls") == 0 || strcmp(algorithm, "sharp") == 0)
        return "reduced in a switch";
    if (strstr(note, "artefact"))
        return "an artefact";
    return strstr(note, "not for error figures") ? "doubtful" : NULL;
}

static enum ls_status read_row(const struct reader *reader, char *const *fields,
                               struct ls_measured_row *out)
{
    const char *operation = field(reader, fields, OPERATION);
    const char *algorithm = field(reader, fields, ALGORITHM);
    const char *per_node = field(reader, fields, RANKS_PER_NODE);
    const char *seconds = field(reader, fields, reader->in_place ? IN_PLACE : OUT_OF_PLACE);
    if (!*seconds)
        seconds = field(reader, fields, reader->in_place ? OUT_OF_PLACE : IN_PLACE);
    uint64_t ranks, each = 0;
    *out =
        (struct ls_measured_row){.left_out = why_left_out(algorithm, field(reader, fields, NOTE))};
    snprintf(out->operation, sizeof(out->operation), "%s", operation);
    for (char *letter = out->operation; *letter; letter++)
        *letter = *letter == '-' ? '_' : *letter;
    snprintf(out->algorithm, sizeof(out->algorithm), "%s", algorithm);
    if (!read_count(field(reader, fields, BYTES), 0, UINT64_C(1) << 44, &out->bytes))
        return refuse(reader, "expected a number of bytes, got", field(reader, fields, BYTES));
    if (!read_count(field(reader, fields, RANKS), 1, UINT32_MAX, &ranks))
        return refuse(reader, "expected a number of ranks, got", field(reader, fields, RANKS));
    if (*per_node && !read_count(per_node, 1, UINT32_MAX, &each))
        return refuse(reader, "expected a number of ranks in a node, got", per_node);
    if (!ls_parse_number(seconds, &out->seconds) || !(out->seconds > 0 && out->seconds < 1e9))
        return refuse(reader, "expected a time in seconds, got", seconds);
    out->ranks = (uint32_t)ranks;
    out->ranks_per_node = (uint32_t)each;
    return LS_OK;
}

static enum ls_status read_line(struct reader *reader, char *line, struct ls_measured *out)
{
    char *fields[FIELDS_MOST];
    size_t count;
    enum ls_status status = cut(reader, line, fields, &count);
    if (status || (count == 1 && !*fields[0])) // an empty line
        return status;
    if (!reader->fields)
        return read_names(reader, fields, count);
    if (count != reader->fields)
        return refuse(reader, "the line has not as many fields as the line of names", NULL);
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
    while (!status && getline(&line, &room, file) >= 0) {
        reader.line++;
        status = read_line(&reader, line, out);
    }
    if (!status && ferror(file))
        status = refuse(&reader, "cannot be read further", NULL);
    if (!status && !out->count)
        status = refuse(&reader, "the file has no measurement", NULL);
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
