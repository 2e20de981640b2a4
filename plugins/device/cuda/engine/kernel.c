// SPDX-License-Identifier: Apache-2.0
// Prepares and launches operations: checks a request, fixes its layouts, hands it to the file of the operation; and what
// those files share.
#include "core/plugin/half.h"
#include "plugins/device/cuda/engine/internal.h"

#include <stdlib.h>
#include <string.h>

// bodies.h names activations and reads the step record by what it knows of them.
_Static_assert(LS_RELU == 1 && LS_LEAKY_RELU == 2 && LS_ELU == 3 && LS_SIGMOID == 4 && LS_TANH == 5,
               "bodies.h has other numbers");
_Static_assert(LS_SOFTPLUS == 6 && LS_EXPONENTIAL == 7 && LS_RELU6 == 8, "bodies.h has others");
_Static_assert(LS_SOFTSIGN == 9, "bodies.h does not know the last activation");
_Static_assert(sizeof(struct cuda_record) == sizeof(struct ls_step_record), "the record differs");
_Static_assert(offsetof(struct cuda_record, gradient_scale) ==
                   offsetof(struct ls_step_record, gradient_scale),
               "the record differs");
_Static_assert(offsetof(struct cuda_record, skip) == offsetof(struct ls_step_record, skip),
               "the record differs");
_Static_assert(offsetof(struct cuda_record, update) == offsetof(struct ls_step_record, update),
               "the record differs");

static const struct cuda_operation operations[] = {
    [LS_OP_CONV2D] = {"conv2d", true, true, cuda_prepare_conv2d},
    [LS_OP_CONV2D_BACKWARD_DATA] = {"conv2d_backward_data", true, true, cuda_prepare_conv2d},
    [LS_OP_CONV2D_BACKWARD_WEIGHTS] = {"conv2d_backward_weights", false, true, cuda_prepare_conv2d},
    [LS_OP_DENSE] = {"dense", true, true, cuda_prepare_dense},
    [LS_OP_DENSE_BACKWARD_DATA] = {"dense_backward_data", true, true, cuda_prepare_dense},
    [LS_OP_DENSE_BACKWARD_WEIGHTS] = {"dense_backward_weights", false, true, cuda_prepare_dense},
    [LS_OP_MAX_POOL2D] = {"max_pool2d", true, true, cuda_prepare_pooling},
    [LS_OP_MAX_POOL2D_BACKWARD] = {"max_pool2d_backward", true, true, cuda_prepare_pooling},
    [LS_OP_AVERAGE_POOL2D] = {"average_pool2d", true, true, cuda_prepare_pooling},
    [LS_OP_AVERAGE_POOL2D_BACKWARD] = {"average_pool2d_backward", true, true, cuda_prepare_pooling},
    [LS_OP_ACTIVATION] = {"activation", true, true, cuda_prepare_elementwise},
    [LS_OP_ACTIVATION_BACKWARD] = {"activation_backward", true, true, cuda_prepare_elementwise},
    [LS_OP_SOFTMAX] = {"softmax", true, true, cuda_prepare_elementwise},
    [LS_OP_SOFTMAX_BACKWARD] = {"softmax_backward", true, true, cuda_prepare_elementwise},
    [LS_OP_DROPOUT] = {"dropout", true, true, cuda_prepare_elementwise},
    [LS_OP_RESHAPE] = {"reshape", true, true, cuda_prepare_elementwise},
    [LS_OP_ADD] = {"add", true, true, cuda_prepare_elementwise},
    [LS_OP_CONVERT] = {"convert", false, false, cuda_prepare_convert},
    [LS_OP_SPARSE_CROSS_ENTROPY] = {"sparse_cross_entropy", false, false, cuda_prepare_loss},
    [LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD] = {"sparse_cross_entropy_backward", true, true,
                                             cuda_prepare_loss},
    [LS_OP_MEAN_SQUARED_ERROR] = {"mean_squared_error", false, false, cuda_prepare_loss},
    [LS_OP_MEAN_SQUARED_ERROR_BACKWARD] = {"mean_squared_error_backward", true, true,
                                           cuda_prepare_loss},
    [LS_OP_SGD_UPDATE] = {"sgd_update", false, false, cuda_prepare_update},
    [LS_OP_ADAM_UPDATE] = {"adam_update", false, false, cuda_prepare_update},
    [LS_OP_MEASURE] = {"measure", false, false, cuda_prepare_update},
    [LS_OP_FROM_BYTES] = {"from_bytes", false, false, cuda_prepare_elementwise},
    [LS_OP_GUARD] = {"guard", false, false, cuda_prepare_guard},
    [LS_OP_BATCH_NORMALIZATION] = {"batch_normalization", true, true, cuda_prepare_normalization},
    [LS_OP_BATCH_NORMALIZATION_BACKWARD] = {"batch_normalization_backward", false, true,
                                            cuda_prepare_normalization_backward},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE] = {"batch_normalization_inference", true, true,
                                             cuda_prepare_normalization_inference},
    [LS_OP_BATCH_STATISTICS] = {"batch_statistics", false, true, cuda_prepare_statistics},
    [LS_OP_AVERAGE_UPDATE] = {"average_update", false, false, cuda_prepare_update},
    [LS_OP_LAYER_NORMALIZATION] = {"layer_normalization", false, true, cuda_prepare_layer},
    [LS_OP_LAYER_NORMALIZATION_BACKWARD] = {"layer_normalization_backward", false, true,
                                            cuda_prepare_layer},
    [LS_OP_GATHER_ROWS] = {"gather_rows", false, true, cuda_prepare_gather},
    [LS_OP_GATHER_ROWS_BACKWARD] = {"gather_rows_backward", false, true, cuda_prepare_gather},
    [LS_OP_ATTENTION] = {"attention", false, true, cuda_prepare_attention},
    [LS_OP_ATTENTION_BACKWARD] = {"attention_backward", false, true, cuda_prepare_attention},
    [LS_OP_MATMUL] = {"matmul", false, true, cuda_prepare_matmul},
    [LS_OP_MATMUL_BACKWARD_LEFT] = {"matmul_backward_left", false, true, cuda_prepare_matmul},
    [LS_OP_MATMUL_BACKWARD_RIGHT] = {"matmul_backward_right", false, true, cuda_prepare_matmul},
    [LS_OP_FUNCTION] = {"function", true, true, cuda_prepare_function},
    [LS_OP_FUNCTION_BACKWARD] = {"function_backward", true, true, cuda_prepare_function},
    [LS_OP_SLICE] = {"slice", false, true, cuda_prepare_part},
    [LS_OP_SLICE_BACKWARD] = {"slice_backward", false, true, cuda_prepare_part},
    [LS_OP_PAD] = {"pad", false, true, cuda_prepare_part},
    [LS_OP_PAD_BACKWARD] = {"pad_backward", false, true, cuda_prepare_part},
};

// ---- What the operations share ----

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

uint32_t cuda_type_of(const struct ls_tensor_desc *desc)
{
    return desc->dtype == LS_F16 ? CUDA_F16 : desc->dtype == LS_BF16 ? CUDA_BF16 : CUDA_FLOAT;
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

static int32_t run_own(struct ls_device *device, const struct ls_kernel *kernel,
                       const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    cuda_fill(kernel, launch, &a);
    a.record = (const struct cuda_record *)launch->record;
    return cuda_start(device, (enum cuda_kernel)kernel->own, &a, kernel->items);
}

void cuda_use_own(struct ls_kernel *kernel, struct ls_kernel_answer *answer, enum cuda_kernel which,
                  int64_t items)
{
    kernel->own = which;
    kernel->items = items;
    kernel->run = run_own;
    cuda_implementation(answer, "own");
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

// ---- Checking a request ----

static bool is_saved(const struct ls_kernel_request *request, uint32_t argument)
{
    switch (request->op) {
    case LS_OP_MAX_POOL2D:
    case LS_OP_ATTENTION:
    case LS_OP_LAYER_NORMALIZATION: return argument == request->input_count + 1;
    case LS_OP_MAX_POOL2D_BACKWARD: return argument == 3;
    case LS_OP_LAYER_NORMALIZATION_BACKWARD: return argument == 2;
    case LS_OP_ATTENTION_BACKWARD: return argument == 4;
    default: return false;
    }
}

// The host has checked the request; what is asked here is what this device knows.
static const char *check_request(const struct ls_kernel_request *request,
                                 const struct cuda_operation *operation)
{
    if (request->accumulate && !operation->accumulate)
        return "it cannot add into its outputs";
    if (is_saved(request, request->input_count + 1) && request->accumulate & 2)
        return "it cannot add into this output";
    if (request->attributes.activation > LS_SOFTSIGN ||
        request->attributes.epilogue_activation > LS_SOFTSIGN)
        return "it does not know this activation";
    return request->attributes.epilogue == LS_OP_NONE || operation->epilogue
               ? NULL
               : "it has no such epilogue";
}

// ---- Preparing and launching ----

// What the operation has not laid out lies plain.
static const char *fix_layouts(struct ls_kernel *kernel, struct ls_kernel_answer *out)
{
    const struct ls_kernel_request *request = &kernel->request;
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        struct ls_tensor_desc *desc = &kernel->descs[i];
        const bool weights = desc->layout.kind == LS_LAYOUT_OWN && cuda_layout_weights(desc) &&
                             out->layouts[i].kind == LS_LAYOUT_OWN;
        if (!is_saved(request, i) && !weights && !cuda_layout_plain(desc))
            return "an argument lies in a layout that this operation does not read";
        out->layouts[i] = desc->layout;
    }
    return NULL;
}

static int32_t prepare_kernel(struct ls_device *device, struct ls_kernel *kernel,
                              struct ls_kernel_answer *out)
{
    const struct ls_kernel_request *request = &kernel->request;
    out->used_inputs = (UINT32_C(1) << request->input_count) - 1;
    out->scratch_bytes = out->saved_bytes = 0;
    out->in_place = out->slow = 0;
    // An operation that lays out weights by itself says so in the layouts, which are zero at first.
    const int32_t status = kernel->operation->prepare(device, kernel, out);
    if (status)
        return status;
    const char *why = fix_layouts(kernel, out);
    if (why)
        return cuda_unsupported(device, kernel, why);
    for (uint32_t i = 0; i < request->input_count; i++)
        if (cuda_accumulates(kernel, 0) ||
            request->arguments[i].dtype != cuda_output_desc(kernel, 0)->dtype)
            out->in_place &= ~(UINT32_C(1) << i);
    out->kernel = kernel;
    return LS_OK;
}

int32_t cuda_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                     struct ls_kernel_answer *out)
{
    const size_t known = sizeof(operations) / sizeof(operations[0]);
    if (request->op >= known || !operations[request->op].prepare)
        return ls_host_fail(device->host, LS_UNSUPPORTED, "there is no operation %u", request->op);
    const struct cuda_operation *operation = &operations[request->op];
    const char *why = check_request(request, operation);
    if (why)
        return ls_host_fail(device->host, LS_UNSUPPORTED, "%s: %s", operation->name, why);
    int32_t status = cuda_check_recording(device, "preparing an operation");
    if (!status)
        status = cuda_enter(device, NULL);
    if (status)
        return status;
    struct ls_kernel *kernel = calloc(1, sizeof(*kernel));
    if (!kernel)
        return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "%s: no memory for a kernel",
                            operation->name);
    kernel->operation = operation;
    kernel->request = *request;
    kernel->request.forward = NULL;
    kernel->request.arguments = kernel->descs;
    memcpy(kernel->descs, request->arguments,
           (request->input_count + request->output_count) * sizeof(*request->arguments));
    kernel->turn = calloc(1, sizeof(*kernel->turn));
    status = kernel->turn ? prepare_kernel(device, kernel, out)
                          : ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a kernel");
    if (status)
        cuda_release_kernel(device, kernel);
    return status;
}

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

static int32_t run(struct ls_device *device, const struct ls_kernel *kernel,
                   const struct cuda_call *launch)
{
    device->refused = NULL;
    const int32_t status = kernel->run(device, kernel, launch);
    if (!status || !kernel->otherwise || !cuda_turn_to_own(device, kernel))
        return status;
    return kernel->otherwise(device, kernel, launch);
}

int32_t cuda_launch(struct ls_device *device, const struct ls_kernel *kernel,
                    const struct ls_launch *launch)
{
    void *addresses[CUDA_MAX_ARGUMENTS];
    int32_t status = cuda_enter(device, launch->stream);
    if (!status)
        status = cuda_use_dnn(device);
    if (status)
        return status;
    for (uint32_t i = 0; i < launch->argument_count; i++)
        addresses[i] = ls_address(launch->arguments[i]);
    const struct cuda_call call = {addresses, ls_address(launch->scratch),
                                   ls_address(launch->record)};
    cuda_launched(device, kernel->operation->name);
    return kernel->turn->refused && kernel->otherwise ? kernel->otherwise(device, kernel, &call)
                                                      : run(device, kernel, &call);
}

void cuda_release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    if (!kernel)
        return;
    if (kernel->finish)
        kernel->finish(device, kernel);
    free(kernel->state);
    free(kernel->turn);
    free(kernel);
}
