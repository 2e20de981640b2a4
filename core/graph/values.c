// SPDX-License-Identifier: Apache-2.0
// Values and steps of a program that is being built: what each of its parts adds, asks and
// describes.
#include "core/graph/build.h"

#include <stdlib.h>
#include <string.h>

uint32_t ls_value_same(const struct ls_program_buffers *buffers, uint32_t value)
{
    while (buffers->values[value].same_as != value)
        value = buffers->values[value].same_as;
    return value;
}

uint32_t ls_value_memory(const struct ls_program_buffers *buffers, uint32_t value)
{
    while (buffers->values[value].memory != value)
        value = buffers->values[value].memory;
    return value;
}

void ls_describe_tensor(const struct ls_tensor *tensor, int64_t batch, struct ls_tensor_desc *out)
{
    *out = (struct ls_tensor_desc){.dtype = tensor->dtype, .ndims = tensor->shape.ndims};
    for (uint32_t i = 0; i < out->ndims; i++)
        out->dims[i] = tensor->shape.dims[i] == LS_BATCH ? batch : tensor->shape.dims[i];
    if (out->ndims == 0)
        out->ndims = 1; // `saved`: so many bytes, not known before its kernel is prepared
}

struct ls_layout ls_plain_layout(const struct ls_tensor_desc *desc)
{
    return (struct ls_layout){.kind = LS_LAYOUT_PLAIN,
                              .bytes = ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype)};
}

struct ls_value *ls_value_add(struct ls_program_buffers *buffers)
{
    const uint32_t count = buffers->value_count;

    if ((count & (count - 1)) == 0) {
        const size_t capacity = count > 0 ? (size_t)count * 2 : 1;
        struct ls_value *larger = realloc(buffers->values, capacity * sizeof(*larger));
        if (!larger)
            return NULL;
        buffers->values = larger;
    }
    struct ls_value *value = &buffers->values[buffers->value_count++];
    *value = (struct ls_value){.producer = -1,
                               .same_as = count,
                               .memory = count,
                               .place = LS_NO_VALUE,
                               .converted_from = LS_NO_VALUE};
    return value;
}

static struct ls_tensor *copy_tensor(const struct ls_tensor *like, uint32_t id,
                                     enum ls_tensor_role role)
{
    struct ls_tensor *tensor = malloc(sizeof(*tensor));
    if (!tensor)
        return NULL;
    *tensor = *like;
    tensor->id = id;
    tensor->role = role;
    tensor->producer = -1;
    tensor->name = strdup(like->name);
    if (!tensor->name) {
        free(tensor);
        return NULL;
    }
    return tensor;
}

enum ls_status ls_build_value(struct ls_build *build, uint32_t like, enum ls_tensor_role role,
                              const struct ls_layout *layout, uint32_t *out)
{
    struct ls_program_buffers *buffers = build->buffers;
    const uint32_t id = buffers->value_count;
    struct ls_tensor *tensor = copy_tensor(buffers->values[like].tensor, id, role);
    if (!tensor)
        return LS_OUT_OF_MEMORY;
    struct ls_value *value = ls_value_add(buffers);
    if (!value) {
        free(tensor->name);
        free(tensor);
        return LS_OUT_OF_MEMORY;
    }
    value->tensor = tensor;
    value->owned = true;
    value->layout = *layout;
    value->home = LS_HOME_ARENA;
    *out = id;
    return LS_OK;
}

enum ls_status ls_build_step(struct ls_build *build)
{
    struct ls_program *program = build->program;
    const uint32_t count = program->step_count;

    if ((count & (count - 1)) == 0) {
        const size_t capacity = count > 0 ? (size_t)count * 2 : 1;
        struct ls_program_step *steps = realloc(program->steps, capacity * sizeof(*steps));
        if (!steps)
            return LS_OUT_OF_MEMORY;
        program->steps = steps;
        struct ls_step_plan *plans = realloc(build->buffers->plans, capacity * sizeof(*plans));
        if (!plans)
            return LS_OUT_OF_MEMORY;
        build->buffers->plans = plans;
    }
    program->steps[count] = (struct ls_program_step){0};
    build->buffers->plans[count] = (struct ls_step_plan){0};
    program->step_count++;
    return LS_OK;
}
