// SPDX-License-Identifier: Apache-2.0
// oneDNN primitives. Setting a memory object's address is cheap in oneDNN 2.6 (it touches no
// padding), but most addresses are the same in every step.
#include "plugins/device/cpu/primitive.h"

#include <string.h>

const char *cpu_primitive_name(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) != dnnl_success ||
        !name)
        return "unknown";
    return name;
}

dnnl_primitive_attr_t cpu_primitive_attributes(void)
{
    dnnl_primitive_attr_t attributes = NULL;
    if (dnnl_primitive_attr_create(&attributes) != dnnl_success)
        return NULL;
    dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    return attributes;
}

dnnl_status_t cpu_primitive_init(struct cpu_primitive *primitive, dnnl_primitive_desc_t desc)
{
    memset(primitive, 0, sizeof(*primitive));
    primitive->desc = desc;
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    primitive->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    return dnnl_primitive_create(&primitive->primitive, desc);
}

dnnl_status_t cpu_primitive_add(struct cpu_primitive *primitive, struct ls_device *device,
                                int argument, const dnnl_memory_desc_t *md)
{
    dnnl_memory_t memory = NULL;
    const dnnl_status_t status = dnnl_memory_create(&memory, md, device->engine, DNNL_MEMORY_NONE);
    if (status != dnnl_success)
        return status;
    primitive->arguments[primitive->count++] = (dnnl_exec_arg_t){argument, memory};
    return dnnl_success;
}

dnnl_status_t cpu_primitive_add_scratch(struct cpu_primitive *primitive, struct ls_device *device)
{
    if (primitive->scratch_bytes == 0)
        return dnnl_success;
    return cpu_primitive_add(
        primitive, device, DNNL_ARG_SCRATCHPAD,
        dnnl_primitive_desc_query_md(primitive->desc, dnnl_query_scratchpad_md, 0));
}

static dnnl_status_t set_pointer(struct cpu_primitive *primitive, int32_t i, void *pointer)
{
    if (primitive->pointers[i] == pointer)
        return dnnl_success;
    primitive->pointers[i] = pointer;
    return dnnl_memory_set_data_handle(primitive->arguments[i].memory, pointer);
}

dnnl_status_t cpu_primitive_execute(struct cpu_primitive *primitive, struct ls_device *device,
                                    void *const *pointers, void *scratch)
{
    const int32_t given = primitive->count - (primitive->scratch_bytes ? 1 : 0);
    for (int32_t i = 0; i < given; i++) {
        const dnnl_status_t status = set_pointer(primitive, i, pointers[i]);
        if (status != dnnl_success)
            return status;
    }
    if (primitive->scratch_bytes) {
        const dnnl_status_t status = set_pointer(primitive, given, scratch);
        if (status != dnnl_success)
            return status;
    }
    return dnnl_primitive_execute(primitive->primitive, device->stream, primitive->count,
                                  primitive->arguments);
}

dnnl_status_t cpu_primitive_reorder(struct cpu_primitive *primitive, struct ls_device *device,
                                    const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to)
{
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_attr_t attributes = cpu_primitive_attributes();
    if (!attributes)
        return dnnl_out_of_memory;
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(&desc, from, device->engine, to,
                                                              device->engine, attributes);
    dnnl_primitive_attr_destroy(attributes);
    if (status == dnnl_success)
        status = cpu_primitive_init(primitive, desc);
    if (status == dnnl_success)
        status = cpu_primitive_add(primitive, device, DNNL_ARG_FROM, from);
    if (status == dnnl_success)
        status = cpu_primitive_add(primitive, device, DNNL_ARG_TO, to);
    return status == dnnl_success ? cpu_primitive_add_scratch(primitive, device) : status;
}

void cpu_primitive_finish(struct cpu_primitive *primitive)
{
    if (!primitive)
        return;
    for (int32_t i = 0; i < primitive->count; i++)
        dnnl_memory_destroy(primitive->arguments[i].memory);
    if (primitive->primitive)
        dnnl_primitive_destroy(primitive->primitive);
    if (primitive->desc)
        dnnl_primitive_desc_destroy(primitive->desc);
    memset(primitive, 0, sizeof(*primitive));
}
