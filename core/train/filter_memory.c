// SPDX-License-Identifier: Apache-2.0
// The shared memory of a filter, to a checkpoint and back.
#include "core/train/filter_memory.h"

#include "core/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "filter/shared_"

// Floats that hold it; 0: there is none.
static uint64_t length_of(const struct ls_session *session)
{
    const uint64_t bytes = session->driver ? ls_driver_shared_bytes(session->driver) : 0;
    return (bytes + sizeof(float) - 1) / sizeof(float);
}

static enum ls_status name_it(const struct ls_session *session, char name[static 48])
{
    uint64_t key;
    const enum ls_status status = ls_driver_shared_key(session->driver, &key);
    if (!status)
        snprintf(name, 48, PREFIX "%016" PRIx64, key);
    return status;
}

bool ls_filter_memory_has_name(const char *name)
{
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

enum ls_status ls_filter_memory_save(const struct ls_session *session,
                                     struct ls_checkpoint_image *image)
{
    const uint64_t count = length_of(session);
    char name[48];
    if (!count)
        return LS_OK;
    float *values = calloc(count, sizeof(*values));
    enum ls_status status = values ? name_it(session, name) : LS_OUT_OF_MEMORY;
    if (!status) {
        ls_driver_read_shared(session->driver, (uint8_t *)values);
        status = ls_checkpoint_add(image, name, values, count);
    }
    free(values);
    return status;
}

static const struct ls_saved_tensor *find(const struct ls_safetensors *file,
                                          const struct ls_checkpoint_image *kept)
{
    const size_t count = file ? ls_safetensors_count(file) : kept->count;
    for (size_t i = 0; i < count; i++) {
        const struct ls_saved_tensor *tensor =
            file ? ls_safetensors_get(file, i) : &kept->tensors[i];
        if (ls_filter_memory_has_name(tensor->name))
            return tensor;
    }
    return NULL;
}

enum ls_status ls_filter_memory_give(const struct ls_session *session,
                                     const struct ls_safetensors *file,
                                     const struct ls_checkpoint_image *kept)
{
    const struct ls_saved_tensor *tensor = find(file, kept);
    const uint64_t count = length_of(session);
    char name[48];
    if (!count || !tensor)
        return LS_OK;
    float *values = malloc(count * sizeof(*values));
    enum ls_status status = values ? name_it(session, name) : LS_OUT_OF_MEMORY;
    if (!status && (strcmp(tensor->name, name) != 0 || tensor->ndims != 1 ||
                    (uint64_t)tensor->dims[0] != count)) {
        ls_warn("checkpoint", "what the filter had learnt (--compress) is left out: it had other "
                              "options, or other variables are filtered together now");
    } else if (!status) {
        if (file)
            status = ls_safetensors_read(file, tensor, values);
        else
            memcpy(values, tensor->data, count * sizeof(*values));
        for (uint32_t i = 0; !status && i < session->count; i++)
            ls_driver_set_shared(session->driver, i, (const uint8_t *)values);
    }
    free(values);
    return status;
}
