// SPDX-License-Identifier: Apache-2.0
// A oneDNN primitive with its memory objects, made once and executed every step.
#ifndef LS_CPU_PRIMITIVE_H
#define LS_CPU_PRIMITIVE_H

#include "plugins/device/cpu/cpu.h"

enum { CPU_PRIMITIVE_ARGUMENTS = 6 };

struct cpu_primitive {
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[CPU_PRIMITIVE_ARGUMENTS];
    const void *pointers[CPU_PRIMITIVE_ARGUMENTS]; // what the memory objects hold
    int32_t count;
    uint64_t scratch_bytes;
};

// Takes `desc` over, also when it fails.
dnnl_status_t cpu_primitive_init(struct cpu_primitive *primitive, dnnl_primitive_desc_t desc);
// One more argument, in the order in which execute gets the pointers.
dnnl_status_t cpu_primitive_add(struct cpu_primitive *primitive, struct ls_device *device,
                                int argument, const dnnl_memory_desc_t *md);
// After the last argument: the scratchpad, if the primitive wants one.
dnnl_status_t cpu_primitive_add_scratch(struct cpu_primitive *primitive, struct ls_device *device);
// Pointers of the arguments added; scratch of scratch_bytes.
dnnl_status_t cpu_primitive_execute(struct cpu_primitive *primitive, struct ls_device *device,
                                    void *const *pointers, void *scratch);
// Ready to run: pointers of source and target.
dnnl_status_t cpu_primitive_reorder(struct cpu_primitive *primitive, struct ls_device *device,
                                    const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to);
void cpu_primitive_finish(struct cpu_primitive *primitive);

const char *cpu_primitive_name(const_dnnl_primitive_desc_t desc);
// Attributes with the scratchpad in the caller's memory; NULL: out of memory.
dnnl_primitive_attr_t cpu_primitive_attributes(void);

#endif
