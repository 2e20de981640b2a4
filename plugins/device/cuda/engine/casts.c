// SPDX-License-Identifier: Apache-2.0
// A segment that only casts tensors of float32 to halves of one type, in the order in which they lie: one kernel for many of them.
// It keeps the casts of halved weights after an update from being a launch each.
#include "plugins/device/cuda/engine/internal.h"

#include <stdlib.h>

// A launch of its kernel.
struct group {
    struct cuda_casts casts; // without addresses
    uint32_t from[CUDA_CASTS], to[CUDA_CASTS]; // arguments of the launch
};

struct segment {
    uint32_t groups;
    struct group list[];
};

static bool is_cast(const struct ls_segment_request *request, uint32_t i, uint32_t dtype)
{
    const struct ls_segment_kernel *kernel = &request->kernels[i];
    struct ls_tensor_desc from, to;
    if (kernel->request->op != LS_OP_CONVERT || kernel->request->accumulate)
        return false;
    from = kernel->request->arguments[0];
    to = kernel->request->arguments[1];
    for (int k = 0; k < 2; k++)
        if (request->values[kernel->values[k]].argument == LS_SEGMENT_INSIDE)
            return false;
    const bool plain = cuda_layout_plain(&from) && cuda_layout_plain(&to);
    const bool turned = from.layout.kind == LS_LAYOUT_OWN && to.layout.kind == LS_LAYOUT_OWN &&
                        cuda_layout_weights(&from) && cuda_layout_weights(&to);
    return from.dtype == LS_F32 && to.dtype == dtype && (plain || turned);
}

static void fill(const struct ls_segment_request *request, struct segment *segment)
{
    for (uint32_t i = 0; i < request->kernel_count; i++) {
        const struct ls_segment_kernel *kernel = &request->kernels[i];
        struct group *group = &segment->list[i / CUDA_CASTS];
        struct cuda_casts *casts = &group->casts;
        const uint32_t at = casts->count++;
        const int64_t count = (int64_t)ls_tensor_elements(&kernel->request->arguments[0]);
        casts->type = cuda_type_of(&kernel->request->arguments[1]);
        casts->casts[at].count = count;
        casts->casts[at].end =
            (at ? casts->casts[at - 1].end : 0) + (count + CUDA_CAST_TILE - 1) / CUDA_CAST_TILE;
        group->from[at] = request->values[kernel->values[0]].argument;
        group->to[at] = request->values[kernel->values[1]].argument;
    }
}

static int32_t run_casts(struct ls_device *device, const struct ls_kernel *kernel,
                         const struct ls_launch *launch)
{
    const struct segment *segment = kernel->state;
    int32_t status = LS_OK;
    cuda_launched(device, "casts");
    for (uint32_t g = 0; !status && g < segment->groups; g++) {
        const struct group *group = &segment->list[g];
        struct cuda_casts casts = group->casts;
        casts.from = ls_address(launch->arguments[group->from[0]]);
        casts.to = ls_address(launch->arguments[group->to[0]]);
        uintptr_t ends = 0; // of all addresses
        for (uint32_t i = 0; i < casts.count; i++) {
            const char *from = ls_address(launch->arguments[group->from[i]]);
            const char *to = ls_address(launch->arguments[group->to[i]]);
            ends |= (uintptr_t)from | (uintptr_t)to << 1;
            casts.casts[i].from = (from - (const char *)casts.from) / (int64_t)sizeof(float);
            casts.casts[i].to = (to - (const char *)casts.to) / (int64_t)sizeof(uint16_t);
        }
        casts.aligned = ends % 16 == 0;
        status = cuda_start_casts(device, &casts);
    }
    return status;
}

int32_t cuda_prepare_casts(struct ls_device *device, const struct ls_segment_request *request,
                           struct ls_kernel_answer *out)
{
    const uint32_t count = request->kernel_count, groups = (count + CUDA_CASTS - 1) / CUDA_CASTS;
    const uint32_t dtype = count ? request->kernels[0].request->arguments[1].dtype : LS_F32;
    bool known = dtype == LS_BF16 || dtype == LS_F16;
    for (uint32_t i = 0; known && i < count; i++)
        known = is_cast(request, i, dtype);
    if (!known)
        return ls_host_fail(device->host, LS_UNSUPPORTED, "a segment that is not all casts");
    struct ls_kernel *kernel = calloc(1, sizeof(*kernel));
    struct segment *segment = calloc(1, sizeof(*segment) + groups * sizeof(struct group));
    if (!kernel || !segment) {
        free(kernel);
        free(segment);
        return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a segment");
    }
    segment->groups = groups;
    fill(request, segment);
    kernel->state = segment;
    kernel->run_segment = run_casts;
    out->kernel = kernel;
    cuda_implementation(out, "own");
    return LS_OK;
}
