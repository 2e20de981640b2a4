// SPDX-License-Identifier: Apache-2.0
// Rows as JSON.
#include "tools/report/rows.h"

#include "core/report/made.h"
#include "core/report/whole_file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#define DIGITS 9

struct ls_rows {
    json_t *list;
    json_t *row; // the last of `list`
    bool incomplete; // something found no memory, or is not UTF-8
};

enum ls_status ls_rows_create(struct ls_rows **out)
{
    struct ls_rows *rows = calloc(1, sizeof(*rows));
    if (rows)
        rows->list = json_array();
    if (!rows || !rows->list) {
        free(rows);
        return LS_OUT_OF_MEMORY;
    }
    *out = rows;
    return LS_OK;
}

void ls_rows_destroy(struct ls_rows *rows)
{
    if (!rows)
        return;
    json_decref(rows->list);
    free(rows);
}

void ls_rows_begin(struct ls_rows *rows)
{
    rows->row = json_object();
    if (json_array_append_new(rows->list, rows->row))
        rows->incomplete = true;
}

static void set(struct ls_rows *rows, const char *key, json_t *value)
{
    if (json_object_set_new(rows->row, key, value))
        rows->incomplete = true;
}

void ls_rows_text(struct ls_rows *rows, const char *key, const char *value)
{
    set(rows, key, value ? json_string(value) : json_null());
}

void ls_rows_count(struct ls_rows *rows, const char *key, uint64_t value)
{
    set(rows, key, json_integer((json_int_t)value));
}

void ls_rows_number(struct ls_rows *rows, const char *key, double value)
{
    set(rows, key, isfinite(value) ? json_real(value) : json_null());
}

void ls_rows_boolean(struct ls_rows *rows, const char *key, bool value)
{
    set(rows, key, json_boolean(value));
}

static enum ls_status write_json(const json_t *root, const char *scope, const char *path)
{
    struct ls_whole_file file = {0};
    const enum ls_status status = ls_whole_file_open(scope, path, &file);
    if (status)
        return status;
    // What could not be written shows as an error of the stream.
    (void)json_dumpf(root, file.stream, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS));
    fputc('\n', file.stream);
    return ls_whole_file_commit(&file);
}

enum ls_status ls_rows_write(const struct ls_rows *rows, const char *scope, const char *path,
                             const char *command, bool passed)
{
    if (rows->incomplete)
        return LS_OUT_OF_MEMORY;
    json_t *root =
        json_pack("{s:s, s:o, s:s, s:O, s:b}", "lockstep", LS_VERSION, "made", ls_made_json(),
                  "command", command, "rows", rows->list, "passed", passed);
    if (!root)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status = write_json(root, scope, path);
    json_decref(root);
    return status;
}
