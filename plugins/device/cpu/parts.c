// SPDX-License-Identifier: Apache-2.0
// Runs the parts of an operation on the device's threads. In scratch lie the scratchpads of all parts, then what each
// part but the first has summed up.
#include "plugins/device/cpu/parts.h"

#include <omp.h>
#include <stdlib.h>

enum { SUM_GRAIN = 4096 };

struct running {
    struct cpu_parts *parts;
    struct ls_device *device;
    void *const *pointers; // of the first part
    char *scratch;
    _Atomic dnnl_status_t status;
};

bool cpu_parts_share(const dnnl_memory_desc_t *whole, int32_t count, dnnl_memory_desc_t *out)
{
    *out = *whole;
    if (whole->dims[0] % count || whole->padded_dims[0] != whole->dims[0])
        return false;
    out->dims[0] = out->padded_dims[0] /= count;
    return dnnl_memory_desc_get_size(out) * (size_t)count == dnnl_memory_desc_get_size(whole);
}

dnnl_status_t cpu_parts_init(struct cpu_parts *parts, dnnl_primitive_desc_t desc, int32_t count)
{
    parts->primitives = calloc((size_t)count, sizeof(*parts->primitives));
    if (!parts->primitives) {
        dnnl_primitive_desc_destroy(desc);
        return dnnl_out_of_memory;
    }
    parts->count = count;
    dnnl_status_t status = cpu_primitive_init(&parts->primitives[0], desc);
    for (int32_t i = 1; i < count && status == dnnl_success; i++) {
        dnnl_primitive_desc_t same = NULL;
        status = dnnl_primitive_desc_clone(&same, desc);
        if (status == dnnl_success)
            status = cpu_primitive_init(&parts->primitives[i], same);
    }
    return status;
}

dnnl_status_t cpu_parts_add(struct cpu_parts *parts, struct ls_device *device, int argument,
                            const dnnl_memory_desc_t *md)
{
    dnnl_status_t status = dnnl_success;
    for (int32_t i = 0; i < parts->count && status == dnnl_success; i++)
        status = cpu_primitive_add(&parts->primitives[i], device, argument, md);
    return status;
}

dnnl_status_t cpu_parts_add_scratch(struct cpu_parts *parts, struct ls_device *device)
{
    dnnl_status_t status = dnnl_success;
    for (int32_t i = 0; i < parts->count && status == dnnl_success; i++)
        status = cpu_primitive_add_scratch(&parts->primitives[i], device);
    return status;
}

static uint64_t pad_bytes(const struct cpu_parts *parts)
{
    return cpu_aligned(parts->primitives[0].scratch_bytes);
}

uint64_t cpu_parts_scratch(const struct cpu_parts *parts)
{
    const uint64_t others = (uint64_t)parts->count - 1;
    return (others + 1) * pad_bytes(parts) + others * cpu_aligned(parts->sum_bytes);
}

// What part `i`, not the first, sums up.
static char *sum_of(const struct cpu_parts *parts, char *scratch, int64_t i)
{
    return scratch + (uint64_t)parts->count * pad_bytes(parts) +
           (uint64_t)(i - 1) * cpu_aligned(parts->sum_bytes);
}

static void run_part(struct running *r, int64_t i)
{
    const struct cpu_parts *parts = r->parts;
    void *pointers[CPU_PART_POINTERS];
    for (int j = 0; j < CPU_PART_POINTERS; j++)
        pointers[j] =
            r->pointers[j] ? (char *)r->pointers[j] + (uint64_t)i * parts->steps[j] : NULL;
    if (parts->sum_bytes && i > 0)
        pointers[parts->sum_pointer] = sum_of(parts, r->scratch, i);
    const dnnl_status_t status =
        cpu_primitive_execute(&parts->primitives[i], r->device, pointers,
                              cpu_past(r->scratch, (uint64_t)i * pad_bytes(parts)));
    if (status != dnnl_success)
        r->status = status;
}

static void run_some(void *context, int64_t begin, int64_t end)
{
    omp_set_num_threads(1); // of this task: nor may the library divide a part
    for (int64_t i = begin; i < end; i++)
        run_part(context, i);
}

static void add_sums(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    float *sum = r->pointers[r->parts->sum_pointer];
    for (int32_t i = 1; i < r->parts->count; i++) {
        const float *more = (const float *)(const void *)sum_of(r->parts, r->scratch, i);
        r->device->loops->elementwise->add(sum + begin, more + begin, sum + begin, end - begin);
    }
}

dnnl_status_t cpu_parts_run(struct cpu_parts *parts, struct ls_device *device,
                            void *const pointers[CPU_PART_POINTERS], void *scratch)
{
    struct running r = {parts, device, pointers, scratch, dnnl_success};
    if (parts->count == 1) { // which the library divides
        run_part(&r, 0);
        return r.status;
    }
    cpu_parallel(device, parts->count, 1, parts->work, run_some, &r);
    const int64_t sums = (int64_t)(parts->sum_bytes / sizeof(float));
    if (sums)
        cpu_parallel(device, sums, SUM_GRAIN, (double)sums * parts->count * 0.15, add_sums, &r);
    return r.status;
}

void cpu_parts_finish(struct cpu_parts *parts)
{
    if (!parts)
        return;
    for (int32_t i = 0; i < parts->count; i++)
        cpu_primitive_finish(&parts->primitives[i]);
    free(parts->primitives);
    *parts = (struct cpu_parts){0};
}
