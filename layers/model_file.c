// SPDX-License-Identifier: Apache-2.0
// Files of Keras model JSON.
#include "core/graph/layer.h"

#include "core/base/file_kind.h"
#include "core/base/json_size.h"
#include "core/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// What is wrong with a text that jansson refuses, where users are likely to have it so; else NULL.
static const char *find_slip(const char *text, size_t bytes)
{
    json_t *any = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
    const char *inner = json_string_value(any), *slip = NULL;
    if (inner && inner[strspn(inner, " \t\r\n")] == '{')
        slip = "the JSON is a text that holds JSON, because it was dumped twice; write what "
               "model.to_json() returns as it is";
    json_decref(any);
    any = slip ? NULL
               : json_loadb(text, bytes, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, NULL);
    if (any)
        slip = "there is more behind the end of the JSON, as where two documents are in one file; "
               "keep one";
    json_decref(any);
    return slip;
}

enum ls_status ls_model_parse(const char *path, const char *part, const char *text, size_t bytes,
                              json_t **out)
{
    json_error_t error;
    char place[512];

    if (bytes >= 3 &&
        memcmp(text, "\xef\xbb\xbf", 3) == 0) // a byte order mark, as Windows writes it
        text += 3, bytes -= 3;

    if (bytes > (size_t)LS_JSON_MOST_MIB << 20) {
        ls_error(path, "%s%sthe JSON has %zu bytes; that of a model has at most %d MiB",
                 part ? part : "", part ? ": " : "", bytes, LS_JSON_MOST_MIB);
        return LS_BAD_INPUT;
    }
    if (!ls_json_fits(text, bytes)) {
        ls_error(path, "%s%sthe JSON has more than %d values; a model has at most 10,000 layers",
                 part ? part : "", part ? ": " : "", LS_JSON_MOST_VALUES);
        return LS_BAD_INPUT;
    }
    json_t *model = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    const char *slip = model ? NULL : find_slip(text, bytes);
    if (!model && part) {
        ls_error(path, "%s: malformed JSON, line %d, column %d: %s", part, error.line, error.column,
                 slip ? slip : error.text);
        return LS_BAD_INPUT;
    }
    if (!model) {
        snprintf(place, sizeof(place), "%s:%d:%d", path, error.line, error.column);
        ls_error(place, "malformed JSON: %s", slip ? slip : error.text);
        return LS_BAD_INPUT;
    }
    *out = model;
    return LS_OK;
}

// The whole file, whose kind and size are looked at first.
static enum ls_status read_text(const char *path, FILE *file, size_t bytes, char **out)
{
    char start[LS_FILE_KIND_BYTES];
    const char *kind = ls_file_kind(start, fread(start, 1, sizeof(start), file));
    if (kind && strcmp(kind, "JSON") != 0) {
        ls_error(path,
                 "the model file is %s, not JSON; docs/models.md says how to get JSON from "
                 "Keras (model.to_json(), or config.json in a .keras archive)",
                 kind);
        return LS_BAD_INPUT;
    }
    if (bytes > (size_t)LS_JSON_MOST_MIB << 20) {
        ls_error(path, "the model file has %zu bytes; the JSON of a model has at most %d MiB",
                 bytes, LS_JSON_MOST_MIB);
        return LS_BAD_INPUT;
    }
    char *text = malloc(bytes + 1);
    if (!text)
        return LS_OUT_OF_MEMORY;
    rewind(file);
    if (fread(text, 1, bytes, file) != bytes) {
        ls_error(path, "model file cannot be read: %s",
                 ferror(file) ? strerror(errno) : "it shrank meanwhile");
        free(text);
        return LS_BAD_INPUT;
    }
    *out = text;
    return LS_OK;
}

enum ls_status ls_model_read(const char *path, json_t **out)
{
    struct stat about;

    // A pipe would be waited for, for ever.
    const bool there = stat(path, &about) == 0;
    FILE *file = there && S_ISREG(about.st_mode) ? fopen(path, "rb") : NULL;
    if (!file) {
        ls_error(path, "model file cannot be read: %s",
                 there && S_ISDIR(about.st_mode)    ? strerror(EISDIR)
                 : there && !S_ISREG(about.st_mode) ? "it is not a regular file"
                                                    : strerror(errno));
        return LS_BAD_INPUT;
    }
    const size_t bytes = (size_t)about.st_size;
    char *text = NULL;
    enum ls_status status = read_text(path, file, bytes, &text);
    fclose(file);
    if (!status)
        status = ls_model_parse(path, NULL, text, bytes, out);
    free(text);
    return status;
}

enum ls_status ls_model_build_file(const char *path, const struct ls_shape *input_shape,
                                   struct ls_graph **out)
{
    json_t *model = NULL;
    enum ls_status status = ls_model_read(path, &model);
    if (!status)
        status = ls_model_build(path, model, input_shape, out);
    json_decref(model);
    return status;
}
