// SPDX-License-Identifier: Apache-2.0
// Brings structs of options to the size that they have in this version.
#include "core/base/sizes.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

enum ls_status ls_take_options(const char *name, const void *from, size_t bytes, void *to,
                               size_t own)
{
    const unsigned char *all = from;
    memset(to, 0, own);
    if (!from)
        return LS_OK;
    for (size_t i = own; i < bytes; i++)
        if (all[i]) {
            ls_error(name, "a field is set that this library does not know: the program was "
                           "compiled for a newer one; update the library");
            return LS_USAGE;
        }
    memcpy(to, from, bytes < own ? bytes : own);
    return LS_OK;
}

// `from` and `out` are arrays of `count` structs.
static enum ls_status take_array(const char *name, const void *from, size_t bytes, size_t count,
                                 void *out, size_t own)
{
    for (size_t i = 0; i < count; i++) {
        const enum ls_status status = ls_take_options(name, (const char *)from + i * bytes, bytes,
                                                      (char *)out + i * own, own);
        if (status)
            return status;
    }
    return LS_OK;
}

enum ls_status ls_take_layers(const struct ls_layer *from, size_t bytes, struct ls_layer **out)
{
    const char *class_name;
    size_t count = 0;
    do // the class is the first field, in every version
        memcpy(&class_name, (const char *)from + count * bytes, sizeof(class_name));
    while (class_name && ++count);
    struct ls_layer *layers = calloc(count + 1, sizeof(*layers));
    if (!layers)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status =
        take_array("struct ls_layer", from, bytes, count, layers, sizeof(*layers));
    if (status)
        free(layers);
    else
        *out = layers;
    return status;
}

enum ls_status ls_take_callbacks(const struct ls_callbacks *from, size_t bytes, uint32_t count,
                                 struct ls_callbacks **out)
{
    *out = NULL;
    if (!from || !count)
        return LS_OK;
    struct ls_callbacks *callbacks = calloc(count, sizeof(*callbacks));
    if (!callbacks)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status =
        take_array("struct ls_callbacks", from, bytes, count, callbacks, sizeof(*callbacks));
    if (status)
        free(callbacks);
    else
        *out = callbacks;
    return status;
}

enum ls_status ls_take_fit_options(const struct ls_fit_options *from, size_t bytes,
                                   size_t callbacks_bytes, size_t checkpoint_bytes,
                                   struct ls_taken_fit *out)
{
    memset(out, 0, sizeof(*out));
    enum ls_status status =
        ls_take_options("struct ls_fit_options", from, bytes, &out->options, sizeof(out->options));
    if (!status)
        status = ls_take_callbacks(out->options.callbacks, callbacks_bytes,
                                   out->options.callback_count, &out->callbacks);
    out->options.callbacks = out->callbacks;
    if (!out->callbacks)
        out->options.callback_count = 0;
    if (!status && out->options.checkpoints) {
        status = ls_take_options("struct ls_checkpoint_options", out->options.checkpoints,
                                 checkpoint_bytes, &out->checkpoints, sizeof(out->checkpoints));
        out->options.checkpoints = &out->checkpoints;
    }
    return status;
}

void ls_taken_fit_finish(struct ls_taken_fit *taken)
{
    free(taken->callbacks);
}
