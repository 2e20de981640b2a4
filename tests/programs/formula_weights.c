// SPDX-License-Identifier: Apache-2.0
// Writes weights of a model that come from a formula, for test_keras_models.py: Keras got the same
// ones from lab/fixtures/keras_models.py. Files of them would be hundreds of megabytes.
//
//     formula_weights MODEL.json OUT.safetensors GAIN
//
// Kernels are GAIN times as large as keeps what they are given.
#include "core/formats/safetensors.h"
#include "core/graph/layer.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// From -1 to 1, exact in float32.
static double number(uint64_t seed, int64_t i)
{
    return (double)(ls_mix64(seed, (uint64_t)i) >> 40) * 0x1p-23 - 1;
}

// FNV-1a.
static uint64_t name_hash(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), own = strlen(end);
    return length >= own && strcmp(text + length - own, end) == 0;
}

// Kernels keep the size of what they are given; everything else is near its first value, and is not
// that value.
static void value_range(const char *name, const struct ls_shape *shape, double gain, double *middle,
                        double *width)
{
    *middle = 0;
    *width = 0.1;
    if (ends_with(name, "/gamma") || ends_with(name, "/scale")) {
        *middle = 1;
    } else if (ends_with(name, "variance")) {
        *middle = 1;
        *width = 0.5;
    } else if (ends_with(name, "/embeddings")) {
        *width = 1;
    } else if (shape->ndims >= 2) {
        const bool depthwise = shape->ndims == 4 && shape->dims[3] <= 2;
        double fan = 1;
        for (uint32_t i = 0; i < (depthwise ? 2 : shape->ndims - 1); i++)
            fan *= (double)shape->dims[i];
        *width = gain * sqrt((ends_with(name, "/depthwise_kernel") ? 3 : 6) / fan);
    }
}

static bool fill(const struct ls_tensor *parameter, double gain, struct ls_saved_tensor *out)
{
    const struct ls_shape *shape = ls_variable_shape(parameter);
    int64_t count = 1;
    double middle, width;
    *out = (struct ls_saved_tensor){.name = parameter->name, .ndims = shape->ndims};
    for (uint32_t i = 0; i < shape->ndims; i++)
        count *= out->dims[i] = shape->dims[i];
    float *values = malloc((size_t)count * sizeof(float));
    if (!values)
        return false;
    value_range(parameter->name, shape, gain, &middle, &width);
    const uint64_t seed = name_hash(parameter->name);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(middle + width * number(seed, i));
    out->data = values;
    return true;
}

static enum ls_status write_weights(const struct ls_graph *graph, double gain, const char *path)
{
    enum ls_status status = LS_OUT_OF_MEMORY;
    size_t count = 0;
    struct ls_saved_tensor *tensors = calloc(graph->parameter_count, sizeof(*tensors));
    if (!tensors)
        return status;
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        if (graph->parameters[i]->constant)
            continue;
        if (!fill(graph->parameters[i], gain, &tensors[count]))
            goto out;
        count++;
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        perror(path);
        status = LS_FAILED;
        goto out;
    }
    // Not ls_safetensors_write, which waits for the disk.
    status =
        ls_safetensors_write_to(fd, path, &(struct ls_saved){.tensors = tensors, .count = count});
    close(fd);

out:
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)tensors[i].data);
    free(tensors);
    return status;
}

int main(int count, char **arguments)
{
    struct ls_graph *graph = NULL;
    if (count != 4) {
        fprintf(stderr, "usage: formula_weights MODEL.json OUT.safetensors GAIN\n");
        return 2;
    }
    enum ls_status status = ls_model_build_file(arguments[1], NULL, &graph);
    if (!status)
        status = write_weights(graph, atof(arguments[3]), arguments[2]);
    ls_graph_destroy(graph);
    return status ? 1 : 0;
}
