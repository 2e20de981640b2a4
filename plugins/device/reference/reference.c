// SPDX-License-Identifier: Apache-2.0
// Device `reference`: plain loops over plain layouts, without any library and on one thread. It is the
// living definition of every operation; it is slow on purpose, reads like the formulas, and computes in
// double precision. An operation sees float32 only: halves are made float32 in scratch memory before it, and its results are
// rounded to what the output is. Options: none.
#include "core/plugin/half.h"
#include "plugins/device/reference/reference.h"

#include <string.h>

struct ls_device {
    const struct ls_host *host;
};

#define REFERENCE_MAX_ARGUMENTS 16 // of the operations that it knows

static const struct operation {
    reference_run *run; // NULL: there is no such operation
    uint32_t used_inputs; // bit i: reads input i
    bool element_wise; // result i depends on element i of the inputs alone
    bool direct; // reads and writes its outputs itself; the results are not used
    uint64_t (*room)(const struct ls_kernel_request *request); // doubles; NULL: it needs none
} operations[] = {
    [LS_OP_CONV2D] = {reference_conv2d, 7},
    [LS_OP_CONV2D_BACKWARD_DATA] = {reference_conv2d_backward_data, 3},
    [LS_OP_CONV2D_BACKWARD_WEIGHTS] = {reference_conv2d_backward_weights, 3},
    [LS_OP_DENSE] = {reference_dense, 7},
    [LS_OP_DENSE_BACKWARD_DATA] = {reference_dense_backward_data, 3},
    [LS_OP_DENSE_BACKWARD_WEIGHTS] = {reference_dense_backward_weights, 3},
    [LS_OP_MAX_POOL2D] = {reference_max_pool2d, 1},
    [LS_OP_MAX_POOL2D_BACKWARD] = {reference_max_pool2d_backward, 3},
    [LS_OP_AVERAGE_POOL2D] = {reference_average_pool2d, 1},
    [LS_OP_AVERAGE_POOL2D_BACKWARD] = {reference_average_pool2d_backward, 1},
    [LS_OP_ACTIVATION] = {reference_activation, 1, .element_wise = true},
    [LS_OP_ACTIVATION_BACKWARD] = {reference_activation_backward, 3, .element_wise = true},
    [LS_OP_SOFTMAX] = {reference_softmax, 1},
    [LS_OP_SOFTMAX_BACKWARD] = {reference_softmax_backward, 3},
    [LS_OP_DROPOUT] = {reference_dropout, 1, .element_wise = true},
    [LS_OP_RESHAPE] = {reference_copy, 1, .element_wise = true},
    [LS_OP_ADD] = {reference_add, 3, .element_wise = true},
    [LS_OP_CONVERT] = {reference_copy, 1, .element_wise = true},
    [LS_OP_SPARSE_CROSS_ENTROPY] = {reference_sparse_cross_entropy, 3},
    [LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD] = {reference_sparse_cross_entropy_backward, 7},
    [LS_OP_MEAN_SQUARED_ERROR] = {reference_mean_squared_error, 3},
    [LS_OP_MEAN_SQUARED_ERROR_BACKWARD] = {reference_mean_squared_error_backward, 3,
                                           .element_wise = true},
    [LS_OP_SGD_UPDATE] = {reference_sgd_update, 1, .direct = true},
    [LS_OP_ADAM_UPDATE] = {reference_adam_update, 1, .direct = true},
    [LS_OP_MEASURE] = {reference_measure, 1, .direct = true},
    [LS_OP_FROM_BYTES] = {reference_from_bytes, 1},
    [LS_OP_GUARD] = {reference_guard, 1, .direct = true},
    [LS_OP_BATCH_NORMALIZATION] = {reference_batch_normalization, 0xf},
    [LS_OP_BATCH_NORMALIZATION_BACKWARD] = {reference_batch_normalization_backward, 0x1f},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE] = {reference_batch_normalization_inference, 0x3f},
    [LS_OP_MAXIMUM] = {reference_maximum, 3, .element_wise = true},
    [LS_OP_MAXIMUM_BACKWARD] = {reference_maximum_backward, 7, .element_wise = true},
    [LS_OP_BATCH_STATISTICS] = {reference_batch_statistics, 3},
    [LS_OP_AVERAGE_UPDATE] = {reference_average_update, 1, .direct = true},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA] =
        {reference_batch_normalization_inference_backward_data, 7},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS] =
        {reference_batch_normalization_inference_backward_weights, 0xf},
    [LS_OP_LAYER_NORMALIZATION] = {reference_layer_normalization, 7},
    [LS_OP_LAYER_NORMALIZATION_BACKWARD] = {reference_layer_normalization_backward,
                                            0xb}, // nothing is saved
    [LS_OP_GATHER_ROWS] = {reference_gather_rows, 3},
    [LS_OP_GATHER_ROWS_BACKWARD] = {reference_gather_rows_backward, 3},
    [LS_OP_ATTENTION] = {reference_attention, 7},
    [LS_OP_ATTENTION_BACKWARD] = {reference_attention_backward, 0xf}, // nothing is saved
    [LS_OP_MATMUL] = {reference_matmul, 3},
    [LS_OP_MATMUL_BACKWARD_LEFT] = {reference_matmul_backward_left, 3},
    [LS_OP_MATMUL_BACKWARD_RIGHT] = {reference_matmul_backward_right, 3},
    [LS_OP_CONV2D_TRANSPOSE] = {reference_conv2d_transpose, 7},
    [LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA] = {reference_conv2d_transpose_backward_data, 3},
    [LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS] = {reference_conv2d_transpose_backward_weights, 3},
    [LS_OP_PRELU] = {reference_prelu, 3},
    [LS_OP_PRELU_BACKWARD] = {reference_prelu_backward, 7},
    [LS_OP_PENALTY] = {reference_penalty, 2},
    [LS_OP_PENALTY_BACKWARD] = {reference_penalty_backward, 2},
    [LS_OP_FUNCTION] = {reference_function, 1, .element_wise = true},
    [LS_OP_FUNCTION_BACKWARD] = {reference_function_backward, 3, .element_wise = true},
    [LS_OP_PAIR] = {reference_pair, 3},
    [LS_OP_PAIR_BACKWARD_FIRST] = {reference_pair_backward_first, 7},
    [LS_OP_PAIR_BACKWARD_SECOND] = {reference_pair_backward_second, 7},
    [LS_OP_REDUCE] = {reference_reduce, 1},
    [LS_OP_REDUCE_BACKWARD] = {reference_reduce_backward, 7},
    [LS_OP_CONCATENATE] = {reference_concatenate, (1U << LS_CONCATENATE_INPUTS) - 1},
    [LS_OP_CONCATENATE_BACKWARD] = {reference_concatenate_backward, 1},
    [LS_OP_SLICE] = {reference_take_part, 1},
    [LS_OP_SLICE_BACKWARD] = {reference_put_part, 1},
    [LS_OP_PAD] = {reference_put_part, 1},
    [LS_OP_PAD_BACKWARD] = {reference_take_part, 1},
    [LS_OP_TRANSPOSE] = {reference_transpose, 1},
    [LS_OP_TRANSPOSE_BACKWARD] = {reference_transpose_backward, 1},
    [LS_OP_UPSAMPLE2D] = {reference_upsample2d, 1},
    [LS_OP_UPSAMPLE2D_BACKWARD] = {reference_upsample2d_backward, 1},
    [LS_OP_NOISE] = {reference_noise, 1, .element_wise = true},
    [LS_OP_BATCH_MOMENTS] = {reference_batch_moments, 1},
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED] = {reference_synchronized_normalization, 0x1f},
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS] =
        {reference_synchronized_normalization_backward_sums, 0xf},
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA] =
        {reference_synchronized_normalization_backward_data, 0x3f},
    [LS_OP_LOSS] = {reference_loss, 15},
    [LS_OP_LOSS_BACKWARD] = {reference_loss_backward, 15},
    [LS_OP_METRIC] = {reference_metric, 7},
    [LS_OP_MASKED_MEAN] = {reference_masked_mean, 7},
    [LS_OP_MASKED_MEAN_BACKWARD] = {reference_masked_mean_backward, 7},
    [LS_OP_POSITION_LOSS] = {reference_position_loss, 3},
    [LS_OP_POSITION_LOSS_BACKWARD] = {reference_position_loss_backward, 7},
    [LS_OP_UPDATE] = {reference_update, 1, .direct = true},
    [LS_OP_CLIP] = {reference_clip, 3, .element_wise = true, .direct = true},
    [LS_OP_LAMB_DIRECTION] = {reference_lamb_direction, 1, .direct = true},
    [LS_OP_LAMB_UPDATE] = {reference_lamb_update, 3, .direct = true},
    [LS_OP_EMA_UPDATE] = {reference_ema_update, 1, .direct = true},
    [LS_OP_UNSCALE] = {reference_unscale, 1, .element_wise = true, .direct = true},
    [LS_OP_RECURRENT] = {reference_recurrent, 0x1f, .room = reference_recurrent_room},
    [LS_OP_RECURRENT_BACKWARD] = {reference_recurrent_backward, 0x5f,
                                  .room = reference_recurrent_room}, // nothing is saved
    [LS_OP_DIFFERS] = {reference_differs, 1},
    [LS_OP_BUCKET] = {reference_bucket, 3},
    [LS_OP_LOOKUP] = {reference_lookup, 3},
    [LS_OP_ENCODE] = {reference_encode, 1},
    [LS_OP_DENSE_TRANSPOSED] = {reference_dense_transposed, 3},
    [LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA] = {reference_dense_transposed_backward_data, 3},
    [LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS] = {reference_dense_transposed_backward_weights, 3},
    [LS_OP_RESIZE2D] = {reference_resize2d, 1},
    [LS_OP_RESIZE2D_BACKWARD] = {reference_resize2d_backward, 1},
    [LS_OP_DRAW] = {reference_draw, 0},
    [LS_OP_RESAMPLE] = {reference_resample, 3},
    [LS_OP_RESAMPLE_BACKWARD] = {reference_resample_backward, 3},
    [LS_OP_RECOLOUR] = {reference_recolour, 3},
    [LS_OP_RECOLOUR_BACKWARD] = {reference_recolour_backward, 7},
    [LS_OP_ERASE] = {reference_erase, 3},
    [LS_OP_ERASE_BACKWARD] = {reference_erase_backward, 3},
};

struct ls_kernel {
    const struct operation *operation;
    struct ls_kernel_request request;
    struct ls_tensor_desc arguments[REFERENCE_MAX_ARGUMENTS]; // of the request
};

// ---- The device and its memory ----

static int32_t device_describe(const struct ls_host *host, struct ls_device_info *out)
{
    (void)host;
    out->physical_count = 1;
    strcpy(out->hardware, "plain loops on one thread");
    return LS_OK;
}

static int32_t device_open(const struct ls_host *host, const struct ls_device_config *config,
                           struct ls_device *device)
{
    if (config->index != 0)
        return ls_host_fail(host, LS_UNAVAILABLE, "reference: there is no device %u, only device 0",
                            config->index);
    device->host = host;
    return LS_OK;
}

static void device_close(struct ls_device *device)
{
    (void)device; // it has nothing of its own
}

static struct ls_buffer *device_allocate(struct ls_device *device, uint64_t bytes)
{
    void *memory = device->host->allocate(device->host, bytes, LS_ALIGNMENT);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static void device_release(struct ls_device *device, struct ls_buffer *buffer)
{
    device->host->release(device->host, buffer);
}

static int32_t device_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                           uint64_t bytes, void *stream)
{
    (void)device, (void)stream;
    if (bytes)
        memmove(ls_address(to), ls_address(from), bytes);
    return LS_OK;
}

static int32_t device_zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes,
                           void *stream)
{
    (void)device, (void)stream;
    if (bytes)
        memset(ls_address(memory), 0, bytes);
    return LS_OK;
}

// ---- Preparing ----

// Inputs of the operation itself: the epilogue's y comes after them.
static uint32_t own_input_count(const struct ls_kernel_request *request)
{
    return request->input_count - (request->attributes.epilogue == LS_OP_ACTIVATION_BACKWARD);
}

static struct reference_call call_of(const struct ls_kernel_request *request)
{
    return (struct reference_call){
        .attributes = &request->attributes,
        .input_descs = request->arguments,
        .output_descs = request->arguments + request->input_count,
        .input_count = own_input_count(request),
        .output_count = request->output_count,
    };
}

// The U8 output of max-pooling: this device saves nothing.
static bool is_saved_bytes(const struct ls_kernel_request *request,
                           const struct ls_tensor_desc *desc)
{
    return desc->dtype == LS_U8 && request->op != LS_OP_FROM_BYTES;
}

static struct ls_layout plain_layout(const struct ls_kernel_request *request,
                                     const struct ls_tensor_desc *desc)
{
    return (struct ls_layout){
        .kind = LS_LAYOUT_PLAIN,
        .bytes = is_saved_bytes(request, desc)
                     ? 0
                     : ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype),
    };
}

// Results in double precision and room, then inputs that are halves as float32.
static uint64_t results_bytes(const struct ls_kernel_request *request,
                              const struct operation *operation)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < request->output_count && !operation->direct; i++) {
        const struct ls_tensor_desc *desc = &request->arguments[request->input_count + i];
        bytes += is_saved_bytes(request, desc) ? 0 : ls_tensor_elements(desc) * sizeof(double);
    }
    if (operation->room)
        bytes += operation->room(request) * sizeof(double);
    return bytes;
}

static uint64_t scratch_bytes(const struct ls_kernel_request *request,
                              const struct operation *operation)
{
    uint64_t bytes = results_bytes(request, operation);
    for (uint32_t i = 0; i < request->input_count; i++)
        if (ls_dtype_is_half(request->arguments[i].dtype))
            bytes += ls_tensor_elements(&request->arguments[i]) * sizeof(float);
    return bytes;
}

// Inputs that lie as output 0 does, of which result i needs element i alone.
static uint32_t places(const struct ls_kernel_request *request, const struct operation *operation,
                       uint32_t used)
{
    uint32_t in_place = operation->element_wise && !(request->accumulate & 1) ? used : 0;
    for (uint32_t i = 0; i < request->input_count; i++)
        if (request->arguments[i].dtype != request->arguments[request->input_count].dtype)
            in_place &= ~(UINT32_C(1) << i);
    return in_place;
}

static void fill_answer(const struct ls_kernel_request *request, const struct operation *operation,
                        struct ls_kernel_answer *out)
{
    const uint32_t own = (1u << own_input_count(request)) - 1,
                   all = (1u << request->input_count) - 1;
    const uint32_t count = request->input_count + request->output_count;

    out->used_inputs = (operation->used_inputs & own) | (all & ~own);
    for (uint32_t i = 0; i < count; i++)
        out->layouts[i] = plain_layout(request, &request->arguments[i]);
    out->scratch_bytes = scratch_bytes(request, operation);
    out->saved_bytes = request->op == LS_OP_SPARSE_CROSS_ENTROPY
                           ? ls_tensor_elements(request->arguments) * sizeof(float)
                           : 0;
    out->in_place = places(request, operation, out->used_inputs);
    out->slow = 0;
    snprintf(out->implementation, sizeof(out->implementation), "plain loops");
}

static int32_t device_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                              struct ls_kernel_answer *out)
{
    const struct ls_host *host = device->host;
    const size_t known = sizeof(operations) / sizeof(operations[0]);
    if (request->op >= known || !operations[request->op].run)
        return ls_host_fail(host, LS_UNSUPPORTED, "reference: there is no operation %u",
                            request->op);
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        if (request->arguments[i].layout.kind == LS_LAYOUT_OWN)
            return ls_host_fail(host, LS_UNSUPPORTED,
                                "reference: operation %u, argument %u: only the plain layout is "
                                "known",
                                request->op, i);

    struct ls_kernel *kernel = host->allocate(host, sizeof(*kernel), _Alignof(struct ls_kernel));
    if (!kernel)
        return ls_host_fail(host, LS_OUT_OF_MEMORY, "reference: no memory for a kernel");
    kernel->operation = &operations[request->op];
    kernel->request = *request;
    kernel->request.forward = NULL;
    kernel->request.arguments = kernel->arguments;
    memcpy(kernel->arguments, request->arguments,
           (request->input_count + request->output_count) * sizeof(*request->arguments));
    fill_answer(request, kernel->operation, out);
    out->kernel = kernel;
    return LS_OK;
}

static void device_release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    device->host->release(device->host, kernel);
}

// ---- Launching ----

static double apply_epilogue(const struct ls_op_attributes *attributes, const float *y, uint64_t i,
                             double value)
{
    const double alpha = (double)attributes->epilogue_alpha;
    switch (attributes->epilogue) {
    case LS_OP_ACTIVATION: return reference_activate(attributes->epilogue_activation, alpha, value);
    case LS_OP_ACTIVATION_BACKWARD:
        return value *
               reference_activation_slope(attributes->epilogue_activation, alpha, (double)y[i]);
    default: return value;
    }
}

static double element_of(const void *values, uint32_t dtype, uint64_t i)
{
    return (double)(ls_dtype_is_half(dtype) ? ls_half_get(dtype, ((const uint16_t *)values)[i])
                                            : ((const float *)values)[i]);
}

static void set_element(void *values, uint32_t dtype, uint64_t i, double value)
{
    if (dtype == LS_F64)
        ((double *)values)[i] = value;
    else if (ls_dtype_is_half(dtype))
        ((uint16_t *)values)[i] = ls_half_of(dtype, (float)value);
    else
        ((float *)values)[i] = (float)value;
}

// Rounds the results into the outputs; the epilogue is the first output's.
static void write_outputs(const struct ls_kernel_request *request,
                          const struct reference_call *call)
{
    for (uint32_t o = 0; o < call->output_count; o++) {
        void *output = call->outputs[o];
        const float *y = call->inputs[request->input_count - 1];
        if (!call->results[o] || !output)
            continue;
        const uint32_t dtype = call->output_descs[o].dtype;
        const uint64_t count = ls_tensor_elements(&call->output_descs[o]);
        for (uint64_t i = 0; i < count; i++) {
            const double value = o == 0
                                     ? apply_epilogue(call->attributes, y, i, call->results[o][i])
                                     : call->results[o][i];
            const bool add = request->accumulate >> o & 1;
            set_element(output, dtype, i, add ? element_of(output, dtype, i) + value : value);
        }
    }
}

// Inputs as the operations read them, float32; halves are converted into `room`.
static void read_inputs(const struct ls_kernel_request *request, void *const *inputs, float *room,
                        void **out)
{
    for (uint32_t i = 0; i < request->input_count; i++) {
        const struct ls_tensor_desc *desc = &request->arguments[i];
        const uint64_t count = ls_tensor_elements(desc);
        out[i] = inputs[i];
        if (!ls_dtype_is_half(desc->dtype) || !out[i])
            continue;
        for (uint64_t k = 0; k < count; k++)
            room[k] = (float)element_of(out[i], desc->dtype, k);
        out[i] = room;
        room += count;
    }
}

static int32_t device_launch(struct ls_device *device, const struct ls_kernel *kernel,
                             const struct ls_launch *launch)
{
    (void)device;
    const struct ls_kernel_request *request = &kernel->request;
    struct reference_call call = call_of(request);
    void *addresses[REFERENCE_MAX_ARGUMENTS], *inputs[REFERENCE_MAX_ARGUMENTS];
    for (uint32_t i = 0; i < launch->argument_count; i++)
        addresses[i] = ls_address(launch->arguments[i]);
    call.inputs = addresses;
    call.outputs = addresses + request->input_count;
    call.record = ls_address(launch->record);
    if (kernel->operation->direct) {
        kernel->operation->run(&call);
        return LS_OK;
    }

    char *scratch = ls_address(launch->scratch);
    double *results = (double *)(void *)scratch;
    const uint64_t bytes = results_bytes(request, kernel->operation);
    memset(results, 0, bytes);
    for (uint32_t i = 0; i < call.output_count; i++)
        if (!is_saved_bytes(request, &call.output_descs[i])) {
            call.results[i] = results;
            results += ls_tensor_elements(&call.output_descs[i]);
        }
    call.room = results;
    read_inputs(request, addresses, (float *)(void *)(scratch + bytes), inputs);
    call.inputs = inputs;
    kernel->operation->run(&call);
    write_outputs(request, &call);
    return LS_OK;
}

static const struct ls_device_memory memory = {
    .struct_size = sizeof(memory),
    .allocate = device_allocate,
    .release = device_release,
    .copy = device_copy,
    .zero = device_zero,
};

static const struct ls_device_kernels kernels = {
    .struct_size = sizeof(kernels),
    .prepare = device_prepare,
    .launch = device_launch,
    .release = device_release_kernel,
};

static const struct ls_device_interface device_interface = {
    .struct_size = sizeof(device_interface),
    .memory_kind = LS_MEMORY_HOST,
    .blocking = 1,
    .state_bytes = sizeof(struct ls_device),
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .memory = &memory,
    .kernels = &kernels,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_DEVICE),
    .name = "reference",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "plain loops in double precision: slow, the definition of every operation",
    .interface = &device_interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
