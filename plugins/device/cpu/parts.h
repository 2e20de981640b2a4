// SPDX-License-Identifier: Apache-2.0
// An operation as several primitives of one kind, each of which computes an equal share on a thread of its own; or as
// one, which the library divides among the threads.
#ifndef LS_CPU_PARTS_H
#define LS_CPU_PARTS_H

#include "plugins/device/cpu/primitive.h"

enum { CPU_PART_POINTERS = 4 };

// Begins zeroed.
struct cpu_parts {
    struct cpu_primitive *primitives;
    int32_t count;
    // For count > 1, set by the caller. Of the arguments: bytes from a part's to the next part's; 0: the
    // same for all.
    uint64_t steps[CPU_PART_POINTERS];
    // An argument that is the sum of what the parts write, and its bytes; 0: there is none.
    int32_t sum_pointer;
    uint64_t sum_bytes;
    double work; // about nanoseconds on one thread
};

// The first of `count` equal shares of the examples; false: they are no slices of the memory.
bool cpu_parts_share(const dnnl_memory_desc_t *whole, int32_t count, dnnl_memory_desc_t *out);
// Takes `desc` over, also when it fails.
dnnl_status_t cpu_parts_init(struct cpu_parts *parts, dnnl_primitive_desc_t desc, int32_t count);
// As of a primitive.
dnnl_status_t cpu_parts_add(struct cpu_parts *parts, struct ls_device *device, int argument,
                            const dnnl_memory_desc_t *md);
dnnl_status_t cpu_parts_add_scratch(struct cpu_parts *parts, struct ls_device *device);
uint64_t cpu_parts_scratch(const struct cpu_parts *parts);
// Pointers of the arguments of the first part, the others NULL; scratch of cpu_parts_scratch() bytes.
dnnl_status_t cpu_parts_run(struct cpu_parts *parts, struct ls_device *device,
                            void *const pointers[CPU_PART_POINTERS], void *scratch);
void cpu_parts_finish(struct cpu_parts *parts);

#endif
