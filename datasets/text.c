// SPDX-License-Identifier: Apache-2.0
// text: windows of a text, for models that predict the next character. The bytes that are in the
// file, sorted, are the classes; a byte's place among them is its id. x is a window of ids, y the
// id that follows at each place of it, and a second input has the places, 0 to length - 1. Windows
// and targets share one copy of the text.
#include "datasets/datasets.h"

#include "core/base/log.h"
#include "datasets/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "text"
#define BYTES 256
#define MOST_TEXT (UINT64_C(1) << 30)
#define MOST_LENGTH (INT64_C(1) << 20)

struct storage {
    struct ls_dataset dataset;
    uint8_t *ids; // of the text
    int32_t *places; // 0 to length - 1
    char names[BYTES][5]; // of the classes: "a", "\\xff"
    const char *class_names[BYTES];
};

// What the options ask for.
struct wish {
    const char *file;
    int64_t length, stride;
};

static enum ls_status read_number(const struct ls_spec *spec, const char *name, int64_t most,
                                  int64_t *out)
{
    const char *text = ls_spec_get(spec, name);
    if (!text)
        return LS_OK;
    if (!ls_parse_integer(text, out) || *out < 1 || *out > most) {
        ls_error(SCOPE, "%s must be from 1 to %" PRId64 ", not %s", name, most, text);
        return LS_USAGE;
    }
    return LS_OK;
}

static enum ls_status read_wish(const struct ls_spec *spec, struct wish *wish)
{
    *wish = (struct wish){.file = ls_spec_get(spec, "file")};
    if (!wish->file || !ls_spec_get(spec, "length")) {
        ls_error(SCOPE, "%s is missing; expected text:file=FILE,length=N[,stride=N]",
                 wish->file ? "length" : "file");
        return LS_USAGE;
    }
    enum ls_status status = read_number(spec, "length", MOST_LENGTH, &wish->length);
    wish->stride = wish->length;
    return status ? status : read_number(spec, "stride", INT64_C(1) << 30, &wish->stride);
}

// The whole file; freed by the caller.
static enum ls_status read_text(const struct wish *wish, uint8_t **out, uint64_t *bytes)
{
    struct ls_source *source = NULL;
    uint8_t *text = NULL;
    size_t got = 0;
    enum ls_status status = ls_source_open(SCOPE, wish->file, &source);
    if (status)
        return status;
    *bytes = ls_source_most_bytes(source);
    if (ls_source_is_gzip(source)) {
        ls_error(SCOPE, "%s: is compressed; unpack it first", wish->file);
        status = LS_BAD_INPUT;
    } else if (*bytes <= (uint64_t)wish->length) {
        ls_error(SCOPE,
                 "%s: %" PRIu64 " bytes are too few for a window of %" PRId64
                 " and the byte after it",
                 wish->file, *bytes, wish->length);
        status = LS_BAD_INPUT;
    } else if (*bytes > MOST_TEXT) {
        ls_error(SCOPE, "%s: %" PRIu64 " bytes; at most %" PRIu64 " (1 GiB) can be read",
                 wish->file, *bytes, MOST_TEXT);
        status = LS_BAD_INPUT;
    } else {
        text = malloc((size_t)*bytes);
        status = text ? ls_source_read(source, text, (size_t)*bytes, &got) : LS_OUT_OF_MEMORY;
    }
    if (!status && got < *bytes) {
        ls_error(SCOPE, "%s: shrank while it was read", wish->file);
        status = LS_BAD_INPUT;
    }
    ls_source_close(source);
    if (status)
        free(text);
    else
        *out = text;
    return status;
}

// Which bytes are there; how many.
static uint32_t find_vocabulary(const uint8_t *text, uint64_t bytes, bool *there)
{
    uint32_t count = 0;
    memset(there, 0, BYTES * sizeof(*there));
    for (uint64_t i = 0; i < bytes; i++)
        there[text[i]] = true;
    for (uint32_t byte = 0; byte < BYTES; byte++)
        count += there[byte];
    return count;
}

// Bytes become their places among those that are there.
static void number_bytes(struct storage *storage, uint64_t bytes, const bool *there)
{
    uint8_t ids[BYTES] = {0};
    uint32_t next = 0;
    for (uint32_t byte = 0; byte < BYTES; byte++) {
        if (!there[byte])
            continue;
        snprintf(storage->names[next], sizeof(storage->names[next]),
                 byte > 0 && byte < 128 ? "%c" : "\\x%02x", (int)byte);
        storage->class_names[next] = storage->names[next];
        ids[byte] = (uint8_t)next++;
    }
    for (uint64_t i = 0; i < bytes; i++)
        storage->ids[i] = ids[storage->ids[i]];
}

static void describe(const struct wish *wish, uint64_t bytes, uint32_t classes, uint64_t *count,
                     struct ls_field *out)
{
    *count = (bytes - (uint64_t)wish->length - 1) / (uint64_t)wish->stride + 1;
    out[0] = (struct ls_field){.name = "x",
                               .role = LS_FIELD_INPUT,
                               .dtype = LS_U8,
                               .ndims = 1,
                               .dims = {wish->length},
                               .divisor = 1,
                               .by_name = true,
                               .stride = (uint64_t)wish->stride};
    out[1] = out[0];
    strcpy(out[1].name, "positions");
    out[1].by_name = false;
    out[1].optional = true;
    out[1].dtype = LS_I32;
    out[1].stride = 0; // the same for all
    out[2] = out[0];
    strcpy(out[2].name, "y");
    out[2].role = LS_FIELD_TARGET;
    out[2].class_count = classes;
    out[2].text = true;
}

static void storage_close(struct ls_dataset *dataset)
{
    struct storage *storage = dataset->storage;
    free(storage->ids);
    free(storage->places);
    free(storage);
}

static enum ls_status text_open(const struct ls_spec *spec, enum ls_split split,
                                struct ls_dataset **out)
{
    (void)split; // it has but one
    struct wish wish;
    uint64_t bytes = 0;
    bool there[BYTES];
    struct storage *storage = calloc(1, sizeof(*storage));
    if (!storage)
        return LS_OUT_OF_MEMORY;
    struct ls_dataset *dataset = &storage->dataset;
    *dataset = (struct ls_dataset){
        .field_count = 3, .real = true, .storage = storage, .close = storage_close};
    enum ls_status status = read_wish(spec, &wish);
    if (!status)
        status = read_text(&wish, &storage->ids, &bytes);
    if (!status) {
        storage->places = malloc((size_t)wish.length * sizeof(*storage->places));
        status = storage->places ? LS_OK : LS_OUT_OF_MEMORY;
    }
    if (status) {
        storage_close(dataset);
        return status;
    }
    for (int64_t i = 0; i < wish.length; i++)
        storage->places[i] = (int32_t)i;
    const uint32_t classes = find_vocabulary(storage->ids, bytes, there);
    number_bytes(storage, bytes, there);
    describe(&wish, bytes, classes, &dataset->count, dataset->fields);
    dataset->fields[0].values = storage->ids;
    dataset->fields[1].values = storage->places;
    dataset->fields[2].values = storage->ids + 1;
    dataset->fields[2].class_names = storage->class_names;
    *out = dataset;
    return LS_OK;
}

static enum ls_status text_describe(const struct ls_spec *spec, enum ls_split split,
                                    struct ls_dataset_info *out)
{
    (void)split;
    struct wish wish;
    uint8_t *text = NULL;
    uint64_t bytes = 0;
    bool there[BYTES];
    enum ls_status status = read_wish(spec, &wish);
    if (!status)
        status = read_text(&wish, &text, &bytes); // how many classes there are takes all of it
    if (status)
        return status;
    const uint32_t classes = find_vocabulary(text, bytes, there);
    free(text);
    *out = (struct ls_dataset_info){.field_count = 3};
    describe(&wish, bytes, classes, &out->count, out->fields);
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"file", "text", NULL, "the text; its distinct bytes are the classes"},
    {"length", "integer", NULL, "characters of a window"},
    {"stride", "integer", "length", "characters from one window to the next"},
    {0},
};

const struct ls_dataset_kind ls_dataset_text = {
    .name = "text",
    .summary = "windows of a text and the character after each: file=FILE,length=N",
    .options = options,
    .one_split = true,
    .open = text_open,
    .describe = text_describe,
};
