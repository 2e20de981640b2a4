// SPDX-License-Identifier: Apache-2.0
// The fixed table, and the reader of table files. Every key is checked: one that is misspelt is
// refused, not ignored.
#include "core/collective/tuner_table.h"

#include "core/base/log.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SCOPE "auto"
#define FILE_BYTES_MOST (1 << 20)
#define WORLD_MOST 1000000
#define BYTES_MOST (UINT64_C(1) << 44)
#define NAME_MOST 255

// ---- The fixed table ----

// What needs fewest rounds, or least bytes in few rounds, where ranks are threads that read each
// other's memory. Two ranks add the same two numbers whatever the collective is.
static const struct fixed {
    uint32_t world; // 0: every larger one
    uint64_t bytes; // of a size that stands for those nearer to it than to another one
    const char *collective;
} fixed_rows[] = {
    {2, UINT64_C(1) << 20, "direct"}, {3, UINT64_C(4) << 10, "direct"},
    {3, UINT64_C(16) << 10, "ring"},  {4, UINT64_C(1) << 20, "halving-doubling"},
    {5, UINT64_C(16) << 10, "tree"},  {5, UINT64_C(64) << 10, "ring"},
    {6, UINT64_C(1) << 20, "torus"},  {7, UINT64_C(16) << 10, "tree"},
    {7, UINT64_C(64) << 10, "ring"},  {0, UINT64_C(1) << 20, "halving-doubling"},
};
#define FIXED_ROWS (sizeof(fixed_rows) / sizeof(fixed_rows[0]))

static enum ls_status add(struct ls_tuner_table *table, uint64_t bytes, const char *collective)
{
    struct ls_tuner_entry *entries =
        realloc(table->entries, (table->count + 1) * sizeof(*table->entries));
    if (!entries)
        return LS_OUT_OF_MEMORY;
    table->entries = entries;
    entries[table->count] =
        (struct ls_tuner_entry){.bytes = bytes, .collective = strdup(collective)};
    return entries[table->count++].collective ? LS_OK : LS_OUT_OF_MEMORY;
}

// One rank reduces nothing; the row of all is only there so that the table is not empty.
enum ls_status ls_tuner_table_fixed(uint32_t world, struct ls_tuner_table *out)
{
    struct ls_tuner_table table = {.world = world};
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < FIXED_ROWS; i++)
        if (fixed_rows[i].world == world || (!fixed_rows[i].world && !table.count))
            status = add(&table, fixed_rows[i].bytes, fixed_rows[i].collective);
    if (status)
        ls_tuner_table_finish(&table);
    else
        *out = table;
    return status;
}

// ---- A file ----

static enum ls_status refuse(const char *path, const char *key, const char *reason)
{
    ls_error(SCOPE, "%s: %s: %s; lockstep bench --tune=FILE writes a table", path, key, reason);
    return LS_BAD_INPUT;
}

static enum ls_status check_keys(const char *path, const json_t *object, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key))
            i++;
        if (!known[i]) {
            char name[64];
            snprintf(name, sizeof(name), "%s", key);
            return refuse(path, name, "there is no such key here");
        }
    }
    return LS_OK;
}

static bool is_name(const json_t *value)
{
    const size_t length = json_string_length(value);
    const char *text = json_string_value(value);
    return text && length && length <= NAME_MOST && strlen(text) == length;
}

// A file of code is not taken from a table, only names that the search path resolves.
static bool is_collective(const json_t *value)
{
    const char *text = json_string_value(value);
    return is_name(value) && !strchr(text, '/') && !strstr(text, ".so") && strncmp(text, "auto", 4);
}

static enum ls_status read_name(const char *path, const json_t *root, const char *key, char **out)
{
    const json_t *value = json_object_get(root, key);
    if (!is_name(value))
        return refuse(path, key, "expected a name");
    *out = strdup(json_string_value(value));
    return *out ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status read_row(const char *path, const json_t *row, size_t number,
                               struct ls_tuner_table *out)
{
    static const char *const known[] = {"bytes", "collective", "seconds", "spread_seconds", NULL};
    const json_t *bytes = json_object_get(row, "bytes");
    const json_t *collective = json_object_get(row, "collective");
    char place[32];
    snprintf(place, sizeof(place), "rows[%zu]", number);
    if (!json_is_object(row))
        return refuse(path, place, "expected an object of bytes and collective");
    const enum ls_status status = check_keys(path, row, known);
    if (status)
        return status;
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 1 ||
        (uint64_t)json_integer_value(bytes) > BYTES_MOST)
        return refuse(path, place, "expected bytes from 1 to 2^44");
    if (out->count && (uint64_t)json_integer_value(bytes) <= out->entries[out->count - 1].bytes)
        return refuse(path, place, "expected rows by growing bytes");
    if (!is_collective(collective))
        return refuse(path, place,
                      "expected the name of a collective, without the path of a file, not auto");
    return add(out, (uint64_t)json_integer_value(bytes), json_string_value(collective));
}

static enum ls_status read_root(const char *path, const json_t *root, struct ls_tuner_table *out)
{
    static const char *const known[] = {"lockstep", "date",  "transport", "device",
                                        "hardware", "cores", "world",     "operation",
                                        "dtype",    "rows",  NULL};
    const json_t *world = json_object_get(root, "world");
    const json_t *operation = json_object_get(root, "operation");
    const json_t *rows = json_object_get(root, "rows");
    enum ls_status status = check_keys(path, root, known);
    if (!status && !json_is_string(json_object_get(root, "lockstep")))
        status = refuse(path, "lockstep", "expected the version that wrote the table");
    if (!status)
        status = read_name(path, root, "transport", &out->transport);
    if (!status)
        status = read_name(path, root, "device", &out->device);
    if (status)
        return status;
    if (!json_is_integer(world) || json_integer_value(world) < 2 ||
        json_integer_value(world) > WORLD_MOST)
        return refuse(path, "world", "expected a number of ranks from 2 to 1000000");
    out->world = (uint32_t)json_integer_value(world);
    if (!is_name(operation) || strcmp(json_string_value(operation), "all_reduce"))
        return refuse(path, "operation", "expected all_reduce, which is what training needs");
    if (json_array_size(rows) < 1 || json_array_size(rows) > LS_TUNER_TABLE_ROWS)
        return refuse(path, "rows", "expected a list of 1 to 256 rows");
    for (size_t i = 0; !status && i < json_array_size(rows); i++)
        status = read_row(path, json_array_get(rows, i), i, out);
    return status;
}

static enum ls_status load(const char *path, json_t **out)
{
    struct stat about;
    json_error_t error;
    FILE *file = fopen(path, "r");
    if (!file || fstat(fileno(file), &about)) {
        ls_error(SCOPE, "cannot read the table %s: %s; lockstep bench --tune=FILE writes one", path,
                 strerror(errno));
        if (file)
            fclose(file);
        return LS_BAD_INPUT;
    }
    json_t *root = NULL;
    if (!S_ISREG(about.st_mode) || about.st_size > FILE_BYTES_MOST)
        ls_error(SCOPE, "%s is no table: it is %s", path,
                 S_ISREG(about.st_mode) ? "larger than 1 MiB" : "not a regular file");
    else if (!(root = json_loadf(file, JSON_REJECT_DUPLICATES, &error)))
        ls_error(SCOPE, "%s: line %d, column %d: %s", path, error.line, error.column, error.text);
    else if (!json_is_object(root))
        ls_error(SCOPE, "%s: expected one JSON object", path);
    fclose(file);
    if (!json_is_object(root)) {
        json_decref(root);
        return LS_BAD_INPUT;
    }
    *out = root;
    return LS_OK;
}

enum ls_status ls_tuner_table_read(const char *path, struct ls_tuner_table *out)
{
    json_t *root = NULL;
    struct ls_tuner_table table = {0};
    enum ls_status status = load(path, &root);
    if (status)
        return status;
    status = read_root(path, root, &table);
    json_decref(root);
    if (status)
        ls_tuner_table_finish(&table);
    else
        *out = table;
    return status;
}

enum ls_status ls_tuner_table_check(const struct ls_tuner_table *table, const char *path,
                                    const char *transport, const char *device, uint32_t world)
{
    if (table->world != world)
        ls_error(SCOPE,
                 "the table %s is for %u ranks, and this run has %u; write one with lockstep bench "
                 "--replicas=%u --tune=FILE",
                 path, table->world, world, world);
    else if (table->transport && strcmp(table->transport, transport))
        ls_error(SCOPE,
                 "the table %s is for transport %s, and this run uses %s; write one with lockstep "
                 "bench --transport=%s --tune=FILE",
                 path, table->transport, transport, transport);
    else if (table->device && strcmp(table->device, device))
        ls_error(
            SCOPE,
            "the table %s is for buffers in the memory of device %s, and those of this run are "
            "in that of %s; write another with lockstep bench --tune=FILE",
            path, table->device, device);
    else
        return LS_OK;
    return LS_BAD_INPUT;
}

void ls_tuner_table_finish(struct ls_tuner_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->entries[i].collective);
    free(table->entries);
    free(table->transport);
    free(table->device);
    *table = (struct ls_tuner_table){0};
}
