// SPDX-License-Identifier: Apache-2.0
#include "tools/development/gpu/plans_cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PROPERTIES 16384 // bytes of JSON

static char reason[1024];

const char *cudnn_reason(void)
{
    return reason;
}

static bool fail(const char *name, const char *text)
{
    snprintf(reason, sizeof(reason), "%s: %s", name, text);
    return false;
}

bool cudnn_ok(cudnnStatus_t status, const char *name)
{
    if (!status)
        return true;
    char more[512] = "", text[640];
    cudnnGetLastErrorString(more, sizeof(more));
    more[strcspn(more, "\n")] = 0;
    snprintf(text, sizeof(text), "%s%s%s", cudnnGetErrorString(status), *more ? ", " : "", more);
    return fail(name, text);
}

descriptor cudnn_create(cudnnBackendDescriptorType_t type)
{
    descriptor out = NULL;
    return cudnn_ok(cudnnBackendCreateDescriptor(type, &out), "cudnnBackendCreateDescriptor")
               ? out
               : NULL;
}

void cudnn_destroy(descriptor *d)
{
    if (*d)
        cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

bool cudnn_set(descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t count, const void *values)
{
    char text[64];
    snprintf(text, sizeof(text), "attribute %d", (int)name);
    return cudnn_ok(cudnnBackendSetAttribute(d, name, type, count, values), text);
}

bool cudnn_finish(descriptor d, const char *name)
{
    return cudnn_ok(cudnnBackendFinalize(d), name);
}

// ---- Properties of a GPU ----

static descriptor finish_properties(descriptor d, bool set)
{
    if (set && cudnn_finish(d, "properties"))
        return d;
    cudnn_destroy(&d);
    return NULL;
}

descriptor cudnn_properties_of_file(const char *path)
{
    char text[MOST_PROPERTIES];
    FILE *file = fopen(path, "r");
    if (!file) {
        fail(path, "cannot be opened");
        return NULL;
    }
    const size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[bytes] = 0;
    descriptor d = cudnn_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    return finish_properties(d, d && cudnn_set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                               CUDNN_TYPE_CHAR, (int64_t)bytes, text));
}

descriptor cudnn_properties_of_gpu(void)
{
    const int32_t index = 0;
    descriptor d = cudnn_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    return finish_properties(
        d, d && cudnn_set(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &index));
}

bool cudnn_properties_save(descriptor properties, const char *path)
{
    char text[MOST_PROPERTIES] = "";
    int64_t bytes = 0;
    if (!cudnn_ok(cudnnBackendGetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, sizeof(text) - 1, &bytes, text),
                  "properties as JSON"))
        return false;
    FILE *file = fopen(path, "w");
    if (!file)
        return fail(path, "cannot be opened");
    const bool written = fprintf(file, "%s\n", text) > 0;
    return (fclose(file) == 0 && written) || fail(path, "cannot be written");
}
