// SPDX-License-Identifier: Apache-2.0
// What the files of operations share: arguments of a request and of a launch, scratch memory, own kernels, layouts.
#include "plugins/device/cuda/engine/internal.h"

#include <stdlib.h>
#include <string.h>

// ---- Arguments ----

uint32_t cuda_inputs(const struct ls_kernel *kernel)
{
    return kernel->request.input_count -
           (kernel->request.attributes.epilogue == LS_OP_ACTIVATION_BACKWARD);
}

struct ls_tensor_desc *cuda_input_desc(struct ls_kernel *kernel, uint32_t index)
{
    return &kernel->descs[index];
}

struct ls_tensor_desc *cuda_output_desc(struct ls_kernel *kernel, uint32_t index)
{
    return &kernel->descs[kernel->request.input_count + index];
}

void *cuda_output(const struct ls_kernel *kernel, const struct cuda_call *launch, uint32_t index)
{
    return launch->arguments[kernel->request.input_count + index];
}

bool cuda_accumulates(const struct ls_kernel *kernel, uint32_t output)
{
    return kernel->request.accumulate >> output & 1;
}

int64_t cuda_elements(const struct ls_tensor_desc *desc)
{
    return (int64_t)ls_tensor_elements(desc);
}

bool cuda_same_count(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    return cuda_elements(a) == cuda_elements(b);
}

uint32_t cuda_type(uint32_t dtype)
{
    return dtype == LS_F16 ? CUDA_F16 : dtype == LS_BF16 ? CUDA_BF16 : CUDA_FLOAT;
}

uint32_t cuda_type_of(const struct ls_tensor_desc *desc)
{
    return cuda_type(desc->dtype);
}

struct cuda_store cuda_store_of(const struct ls_kernel *kernel, const struct cuda_call *launch)
{
    const struct ls_op_attributes *a = &kernel->request.attributes;
    return (struct cuda_store){
        .out = cuda_output(kernel, launch, 0),
        .type = cuda_type_of(&kernel->descs[kernel->request.input_count]),
        .y = a->epilogue == LS_OP_ACTIVATION_BACKWARD
                 ? launch->arguments[kernel->request.input_count - 1]
                 : NULL,
        .epilogue = a->epilogue == LS_OP_NONE         ? 0
                    : a->epilogue == LS_OP_ACTIVATION ? 1
                                                      : 2,
        .activation = a->epilogue_activation,
        .alpha = a->epilogue_alpha,
        .add = cuda_accumulates(kernel, 0),
    };
}

void *cuda_state(struct ls_device *device, struct ls_kernel *kernel, size_t bytes)
{
    kernel->state = calloc(1, bytes);
    if (!kernel->state)
        ls_host_fail(device->host, LS_OUT_OF_MEMORY, "%s: no memory for a kernel",
                     kernel->operation->name);
    return kernel->state;
}

uint64_t cuda_scratch(struct ls_kernel_answer *answer, uint64_t bytes)
{
    const uint64_t at = (answer->scratch_bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
    answer->scratch_bytes = at + bytes;
    return at;
}

#define WORKSPACE_ALIGNMENT 256 // cuBLASLt says so; cuDNN says nothing

uint64_t cuda_workspace(struct ls_kernel_answer *answer, uint64_t bytes)
{
    return cuda_scratch(answer, bytes ? bytes + WORKSPACE_ALIGNMENT - LS_ALIGNMENT : 0);
}

void *cuda_workspace_at(const struct cuda_call *launch, uint64_t offset)
{
    const uintptr_t at = (uintptr_t)launch->scratch + offset + WORKSPACE_ALIGNMENT - 1;
    return (void *)(at - at % WORKSPACE_ALIGNMENT);
}

void cuda_implementation(struct ls_kernel_answer *answer, const char *text)
{
    snprintf(answer->implementation, sizeof(answer->implementation), "%s", text);
}

int32_t cuda_start(struct ls_device *device, enum cuda_kernel which,
                   const struct cuda_arguments *arguments, int64_t items)
{
    return cuda_check(device, cuda_kernel_launch(which, arguments, items, device->stream),
                      "launching a kernel");
}

void cuda_fill(const struct ls_kernel *kernel, const struct cuda_call *launch,
               struct cuda_arguments *out)
{
    out->store = cuda_store_of(kernel, launch);
    out->a = launch->arguments[0];
    out->a_type = cuda_type_of(&kernel->descs[0]);
    out->b = cuda_inputs(kernel) > 1 ? launch->arguments[1] : NULL;
    out->b_type = cuda_type_of(&kernel->descs[1]);
}

static int32_t run_one(struct ls_device *device, const struct ls_kernel *kernel,
                       const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    cuda_fill(kernel, launch, &a);
    a.first = kernel->request.output_count > 1 ? cuda_output(kernel, launch, 1) : NULL;
    a.record = launch->record;
    return cuda_start(device, (enum cuda_kernel)kernel->own, &a, kernel->items);
}

int32_t cuda_run_own(struct ls_kernel *kernel, struct ls_kernel_answer *answer, cuda_run *run)
{
    kernel->run = run;
    cuda_implementation(answer, "own");
    return LS_OK;
}

void cuda_use_own(struct ls_kernel *kernel, struct ls_kernel_answer *answer, enum cuda_kernel which,
                  int64_t items)
{
    kernel->own = which;
    kernel->items = items;
    cuda_run_own(kernel, answer, run_one);
}

// ---- Layouts ----

enum { TURNED = 1 }; // words[0] of the layout of weights

static uint64_t plain_bytes(const struct ls_tensor_desc *desc)
{
    return ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype);
}

static bool fix_layout(struct ls_tensor_desc *desc, const struct ls_layout *layout)
{
    if (desc->layout.kind == LS_LAYOUT_ANY)
        desc->layout = *layout;
    return memcmp(&desc->layout, layout, sizeof(*layout)) == 0;
}

bool cuda_layout_plain(struct ls_tensor_desc *desc)
{
    const struct ls_layout plain = {.kind = LS_LAYOUT_PLAIN, .bytes = plain_bytes(desc)};
    return fix_layout(desc, &plain);
}

bool cuda_layout_saved(struct ls_tensor_desc *desc, uint64_t bytes)
{
    const struct ls_layout plain = {.kind = LS_LAYOUT_PLAIN, .bytes = bytes};
    return fix_layout(desc, &plain);
}

bool cuda_layout_weights(struct ls_tensor_desc *desc)
{
    const struct ls_layout turned = {
        .kind = LS_LAYOUT_OWN, .bytes = plain_bytes(desc), .words = {TURNED}};
    return fix_layout(desc, &turned);
}

// ---- Libraries that refuse ----

// What a library answers when it is asked is no promise that it does the same when it is called. Nothing has run then.
bool cuda_turn_to_own(struct ls_device *device, const struct ls_kernel *kernel)
{
    if (!device->refused || device->recording)
        return false;
    kernel->turn->refused = true;
    cuda_log(
        device, LS_LOG_WARN,
        "GPU %u: %s: the library refuses what it said it can do (%s); own kernels run, which may "
        "be slow",
        device->index, kernel->operation->name, device->refused);
    return true;
}
