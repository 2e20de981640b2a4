// SPDX-License-Identifier: Apache-2.0
// The lines of a table, as RFC 4180 has them: cells in double quotes may hold separators, quotes
// (doubled) and line breaks. Plain or gzipped. Errors are logged with the line: LS_BAD_INPUT.
#ifndef LS_DATASETS_CSV_LINES_H
#define LS_DATASETS_CSV_LINES_H

#include "datasets/field_options.h"
#include "datasets/source.h"

#define LS_CSV_SCOPE "csv"
#define LS_CSV_PIECE_BYTES (64u << 10) // that are read at a time

// Zeroed before it is opened; close it also when that failed.
struct ls_csv_lines {
    const char *path;
    struct ls_source *source;
    char separator;
    char piece[LS_CSV_PIECE_BYTES];
    size_t at, got;
    uint64_t read; // bytes of all pieces
    uint64_t line, next_line; // where the record begins, and the one after it
    struct ls_bytes text; // of the record: its cells, each with a NUL behind it
    struct ls_bytes starts; // size_t: where each begins in `text`
    bool ended;
};

LS_STATUS ls_csv_open_lines(const char *path, char separator, struct ls_csv_lines *lines);
void ls_csv_close_lines(struct ls_csv_lines *lines);
// The next record that is not an empty line; `there` is false at the end.
LS_STATUS ls_csv_read_record(struct ls_csv_lines *lines, bool *there);

// Of the record that was read.
size_t ls_csv_cell_count(const struct ls_csv_lines *lines);
char *ls_csv_cell(const struct ls_csv_lines *lines, size_t index);

#endif
