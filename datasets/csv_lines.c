// SPDX-License-Identifier: Apache-2.0
// Bytes are looked at in pieces; the cells of a record lie one behind the other.
#include "datasets/csv_lines.h"

#include "core/base/file_kind.h"
#include "core/base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_COLUMNS (1u << 20)
#define MOST_LINE_BYTES (64u << 20)

static enum ls_status ls_csv_fail(const struct ls_csv_lines *lines, uint64_t line, const char *what)
{
    ls_error(LS_CSV_SCOPE, "%s: line %" PRIu64 ": %s", lines->path, line, what);
    return LS_BAD_INPUT;
}

// The next byte; -1 at the end of the file.
static enum ls_status next_byte(struct ls_csv_lines *lines, int *out)
{
    if (lines->at == lines->got && !lines->ended) {
        enum ls_status status =
            ls_source_read(lines->source, lines->piece, sizeof(lines->piece), &lines->got);
        lines->at = 0;
        lines->ended = lines->got == 0;
        lines->read += lines->got;
        if (!status)
            status = ls_check_expansion(LS_CSV_SCOPE, lines->path, lines->source, lines->read);
        if (status)
            return status;
    }
    *out = lines->ended ? -1 : (unsigned char)lines->piece[lines->at++];
    return LS_OK;
}

// The one after it, which stays.
static enum ls_status peek_byte(struct ls_csv_lines *lines, int *out)
{
    const enum ls_status status = next_byte(lines, out);
    if (!status && *out >= 0)
        lines->at--;
    return status;
}

size_t ls_csv_cell_count(const struct ls_csv_lines *lines)
{
    return lines->starts.used / sizeof(size_t);
}

char *ls_csv_cell(const struct ls_csv_lines *lines, size_t index)
{
    size_t start;
    memcpy(&start, lines->starts.data + index * sizeof(start), sizeof(start));
    return lines->text.data + start;
}

// A byte is 0: where it is in the first piece, the beginning of the file may say what it is.
static enum ls_status say_no_text(const struct ls_csv_lines *lines)
{
    const char *kind = lines->read == lines->got ? ls_file_kind(lines->piece, lines->got) : NULL;
    if (!kind)
        return ls_csv_fail(lines, lines->next_line, "a byte is 0, so this is no text");
    ls_error(LS_CSV_SCOPE, "%s: is %s, which cannot be read as CSV", lines->path, kind);
    return LS_BAD_INPUT;
}

static enum ls_status add_byte(struct ls_csv_lines *lines, int byte)
{
    const char one = (char)byte;
    if (byte == 0)
        return say_no_text(lines);
    if (lines->text.used >= MOST_LINE_BYTES)
        return ls_csv_fail(lines, lines->line, "longer than 64 MiB; is a quote missing?");
    return ls_bytes_add(&lines->text, &one, 1);
}

// Behind the opening quote, to the closing one.
static enum ls_status read_quoted(struct ls_csv_lines *lines)
{
    const uint64_t opened = lines->next_line;
    for (;;) {
        int byte, after;
        enum ls_status status = next_byte(lines, &byte);
        if (!status && byte < 0)
            status = ls_csv_fail(lines, opened, "the quote that opens here is never closed");
        if (!status && byte == '"') {
            status = peek_byte(lines, &after);
            if (status || after != '"')
                return status;
            status = next_byte(lines, &after);
        }
        lines->next_line += byte == '\n';
        if (!status)
            status = add_byte(lines, byte);
        if (status)
            return status;
    }
}

// Without spaces at its ends, unless they were in quotes.
static enum ls_status end_cell(struct ls_csv_lines *lines, size_t start, bool quoted)
{
    char *text = lines->text.data;
    if (!quoted) {
        while (lines->text.used > start &&
               (text[lines->text.used - 1] == ' ' || text[lines->text.used - 1] == '\t'))
            lines->text.used--;
        while (lines->text.used > start && (text[start] == ' ' || text[start] == '\t'))
            start++;
    }
    enum ls_status status = ls_bytes_add(&lines->text, "", 1);
    if (!status)
        status = ls_bytes_add(&lines->starts, &start, sizeof(start));
    return status || ls_csv_cell_count(lines) <= MOST_COLUMNS
               ? status
               : ls_csv_fail(lines, lines->line, "more than 1,048,576 columns");
}

// The plain bytes that come next, at once.
static enum ls_status add_plain_bytes(struct ls_csv_lines *lines)
{
    const size_t first = lines->at;
    size_t at = first;
    for (; at < lines->got; at++) {
        const char byte = lines->piece[at];
        if (byte == lines->separator || byte == '\n' || byte == '\r' || byte == '"' || byte == 0)
            break;
    }
    lines->at = at;
    if (lines->text.used + (at - first) > MOST_LINE_BYTES)
        return ls_csv_fail(lines, lines->line, "longer than 64 MiB; is a quote missing?");
    return at == first ? LS_OK : ls_bytes_add(&lines->text, lines->piece + first, at - first);
}

// One cell; `end` is the byte that ended it: the separator, a line break, or -1.
static enum ls_status read_cell(struct ls_csv_lines *lines, int *end)
{
    const size_t start = lines->text.used;
    bool quoted = false;
    for (;;) {
        int byte;
        enum ls_status status = next_byte(lines, &byte);
        if (status)
            return status;
        if (byte == '\r') {
            int after;
            status = peek_byte(lines, &after);
            if (status)
                return status;
            if (after == '\n')
                continue;
            byte = '\n';
        }
        if (byte < 0 || byte == '\n' || byte == lines->separator) {
            lines->next_line += byte == '\n';
            *end = byte;
            return end_cell(lines, start, quoted);
        }
        if (byte == '"' && lines->text.used == start && !quoted) {
            quoted = true;
            status = read_quoted(lines);
        } else if (quoted && byte != ' ' && byte != '\t') {
            status = ls_csv_fail(lines, lines->next_line, "text behind a closing quote");
        } else if (!quoted) {
            status = add_byte(lines, byte);
            if (!status)
                status = add_plain_bytes(lines);
        }
        if (status)
            return status;
    }
}

enum ls_status ls_csv_read_record(struct ls_csv_lines *lines, bool *there)
{
    int end = '\n';
    enum ls_status status = LS_OK;
    do {
        lines->text.used = lines->starts.used = 0;
        lines->line = lines->next_line;
        do
            status = read_cell(lines, &end);
        while (!status && end == lines->separator);
    } while (!status && end >= 0 && ls_csv_cell_count(lines) == 1 && !ls_csv_cell(lines, 0)[0]);
    if (!status)
        *there = ls_csv_cell_count(lines) > 1 || ls_csv_cell(lines, 0)[0];
    return status;
}

enum ls_status ls_csv_open_lines(const char *path, char separator, struct ls_csv_lines *lines)
{
    static const unsigned char mark[] = {0xef, 0xbb, 0xbf}; // of UTF-8
    lines->path = path;
    lines->separator = separator;
    lines->next_line = 1;
    int byte = 0;
    enum ls_status status = ls_source_open(LS_CSV_SCOPE, path, &lines->source);
    if (!status)
        status = peek_byte(lines, &byte);
    if (!status && lines->got >= sizeof(mark) && memcmp(lines->piece, mark, sizeof(mark)) == 0)
        lines->at = sizeof(mark);
    return status;
}

void ls_csv_close_lines(struct ls_csv_lines *lines)
{
    ls_source_close(lines->source);
    free(lines->text.data);
    free(lines->starts.data);
}
