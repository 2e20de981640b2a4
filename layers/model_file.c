// SPDX-License-Identifier: Apache-2.0
// Files of Keras model JSON.
#include "core/graph/layer.h"

#include "core/base/file_kind.h"
#include "core/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum ls_status ls_model_read(const char *path, json_t **out)
{
    struct stat about;
    json_error_t error;
    char place[512];

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
    char start[LS_FILE_KIND_BYTES];
    const char *kind = ls_file_kind(start, fread(start, 1, sizeof(start), file));
    if (kind && strcmp(kind, "JSON") != 0) {
        fclose(file);
        ls_error(path,
                 "the model file is %s, not JSON; docs/models.md says how to get JSON from "
                 "Keras (model.to_json(), or config.json in a .keras archive)",
                 kind);
        return LS_BAD_INPUT;
    }
    rewind(file);
    json_t *model = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!model) {
        snprintf(place, sizeof(place), "%s:%d:%d", path, error.line, error.column);
        ls_error(place, "malformed JSON: %s", error.text);
        return LS_BAD_INPUT;
    }
    *out = model;
    return LS_OK;
}

enum ls_status ls_model_load(const char *path, const struct ls_shape *input_shape,
                             struct ls_graph **out)
{
    json_t *model = NULL;
    enum ls_status status = ls_model_read(path, &model);
    if (!status)
        status = ls_model_build(path, model, input_shape, out);
    json_decref(model);
    return status;
}
