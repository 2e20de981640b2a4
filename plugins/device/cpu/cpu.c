// SPDX-License-Identifier: Apache-2.0
// Device `cpu`: convolutions and matrix products by oneDNN, everything else by own vectorised
// loops. A virtual device is a number of OpenMP threads; each has its own engine and stream, so
// several may run side by side in one process.
#include "core/plugin/half.h"
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const struct operation {
    cpu_prepare *prepare; // NULL: there is no such operation
    // It takes halves itself. What it cannot (CPU_COPIES), and all the others, is done in float32
    // between conversions (half.c).
    bool halves;
} operations[] = {
    [LS_OP_CONV2D] = {cpu_convolution_forward, true},
    [LS_OP_CONV2D_BACKWARD_DATA] = {cpu_convolution_backward_data, true},
    [LS_OP_CONV2D_BACKWARD_WEIGHTS] = {cpu_convolution_backward_weights, true},
    [LS_OP_DENSE] = {cpu_dense_forward, true},
    [LS_OP_DENSE_BACKWARD_DATA] = {cpu_dense_backward_data, true},
    [LS_OP_DENSE_BACKWARD_WEIGHTS] = {cpu_dense_backward_weights, true},
    [LS_OP_MAX_POOL2D] = {cpu_max_pool, true},
    [LS_OP_MAX_POOL2D_BACKWARD] = {cpu_max_pool_backward, true},
    [LS_OP_AVERAGE_POOL2D] = {cpu_average_pool, true},
    [LS_OP_AVERAGE_POOL2D_BACKWARD] = {cpu_average_pool_backward, true},
    [LS_OP_ACTIVATION] = {cpu_elementwise, true},
    [LS_OP_ACTIVATION_BACKWARD] = {cpu_elementwise, true},
    [LS_OP_SOFTMAX] = {cpu_softmax, true},
    [LS_OP_SOFTMAX_BACKWARD] = {cpu_softmax_backward, true},
    [LS_OP_DROPOUT] = {cpu_dropout, true},
    [LS_OP_RESHAPE] = {cpu_reshape, true},
    [LS_OP_ADD] = {cpu_elementwise, true},
    [LS_OP_CONVERT] = {cpu_convert, true},
    [LS_OP_SPARSE_CROSS_ENTROPY] = {cpu_cross_entropy, true},
    [LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD] = {cpu_cross_entropy_backward, true},
    [LS_OP_MEAN_SQUARED_ERROR] = {cpu_squared_error, true},
    [LS_OP_MEAN_SQUARED_ERROR_BACKWARD] = {cpu_squared_error_backward, true},
    [LS_OP_SGD_UPDATE] = {cpu_flat_range},
    [LS_OP_ADAM_UPDATE] = {cpu_flat_range},
    [LS_OP_MEASURE] = {cpu_flat_range},
    [LS_OP_FROM_BYTES] = {cpu_from_bytes},
    [LS_OP_BATCH_NORMALIZATION] = {cpu_batch_normalization, true},
    [LS_OP_BATCH_NORMALIZATION_BACKWARD] = {cpu_batch_normalization, true},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE] = {cpu_batch_normalization, true},
    [LS_OP_MAXIMUM] = {cpu_elementwise, true},
    [LS_OP_MAXIMUM_BACKWARD] = {cpu_elementwise, true},
    [LS_OP_BATCH_STATISTICS] = {cpu_batch_statistics},
    [LS_OP_AVERAGE_UPDATE] = {cpu_flat_range},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA] = {cpu_batch_normalization, true},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS] = {cpu_batch_normalization, true},
    [LS_OP_LAYER_NORMALIZATION] = {cpu_layer_normalization, true},
    [LS_OP_LAYER_NORMALIZATION_BACKWARD] = {cpu_layer_normalization_backward, true},
    [LS_OP_GATHER_ROWS] = {cpu_gather_rows, true},
    [LS_OP_GATHER_ROWS_BACKWARD] = {cpu_gather_rows_backward, true},
    [LS_OP_ATTENTION] = {cpu_attention, true},
    [LS_OP_ATTENTION_BACKWARD] = {cpu_attention_backward, true},
    [LS_OP_MATMUL] = {cpu_matmul},
    [LS_OP_MATMUL_BACKWARD_LEFT] = {cpu_matmul},
    [LS_OP_MATMUL_BACKWARD_RIGHT] = {cpu_matmul},
    [LS_OP_CONV2D_TRANSPOSE] = {cpu_convolution_transpose},
    [LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA] = {cpu_convolution_transpose_backward_data},
    [LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS] = {cpu_convolution_transpose_backward_weights},
    [LS_OP_PRELU] = {cpu_prelu, true},
    [LS_OP_PRELU_BACKWARD] = {cpu_prelu_backward, true},
    [LS_OP_PENALTY] = {cpu_penalty, true},
    [LS_OP_PENALTY_BACKWARD] = {cpu_penalty_backward, true},
    [LS_OP_FUNCTION] = {cpu_function, true},
    [LS_OP_FUNCTION_BACKWARD] = {cpu_function_backward, true},
    [LS_OP_PAIR] = {cpu_pair, true},
    [LS_OP_PAIR_BACKWARD_FIRST] = {cpu_pair_backward, true},
    [LS_OP_PAIR_BACKWARD_SECOND] = {cpu_pair_backward, true},
    [LS_OP_REDUCE] = {cpu_reduce, true},
    [LS_OP_REDUCE_BACKWARD] = {cpu_reduce_backward, true},
    [LS_OP_CONCATENATE] = {cpu_concatenate, true},
    [LS_OP_CONCATENATE_BACKWARD] = {cpu_concatenate_backward, true},
    [LS_OP_SLICE] = {cpu_take_part, true},
    [LS_OP_SLICE_BACKWARD] = {cpu_put_part, true},
    [LS_OP_PAD] = {cpu_put_part, true},
    [LS_OP_PAD_BACKWARD] = {cpu_take_part, true},
    [LS_OP_TRANSPOSE] = {cpu_transpose, true},
    [LS_OP_TRANSPOSE_BACKWARD] = {cpu_transpose, true},
    [LS_OP_UPSAMPLE2D] = {cpu_upsample2d, true},
    [LS_OP_UPSAMPLE2D_BACKWARD] = {cpu_upsample2d, true},
    [LS_OP_NOISE] = {cpu_noise, true},
    [LS_OP_BATCH_MOMENTS] = {cpu_batch_normalization, true},
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED] = {cpu_batch_normalization, true},
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS] = {cpu_batch_normalization, true},
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA] = {cpu_batch_normalization, true},
    [LS_OP_LOSS] = {cpu_loss, true},
    [LS_OP_LOSS_BACKWARD] = {cpu_loss, true},
    [LS_OP_METRIC] = {cpu_metric, true},
    [LS_OP_MASKED_MEAN] = {cpu_masked_mean},
    [LS_OP_MASKED_MEAN_BACKWARD] = {cpu_masked_mean},
    [LS_OP_POSITION_LOSS] = {cpu_loss},
    [LS_OP_POSITION_LOSS_BACKWARD] = {cpu_loss},
    [LS_OP_UPDATE] = {cpu_flat_range},
    [LS_OP_CLIP] = {cpu_flat_range},
    [LS_OP_LAMB_DIRECTION] = {cpu_flat_range},
    [LS_OP_LAMB_UPDATE] = {cpu_flat_range},
    [LS_OP_EMA_UPDATE] = {cpu_flat_range},
    [LS_OP_UNSCALE] = {cpu_flat_range},
    [LS_OP_RECURRENT] = {cpu_recurrent},
    [LS_OP_RECURRENT_BACKWARD] = {cpu_recurrent_backward},
    [LS_OP_DIFFERS] = {cpu_differs},
    [LS_OP_BUCKET] = {cpu_categories},
    [LS_OP_LOOKUP] = {cpu_categories},
    [LS_OP_ENCODE] = {cpu_categories},
    [LS_OP_DENSE_TRANSPOSED] = {cpu_dense_transposed},
    [LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA] = {cpu_dense_transposed},
    [LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS] = {cpu_dense_transposed},
    [LS_OP_RESIZE2D] = {cpu_augment},
    [LS_OP_RESIZE2D_BACKWARD] = {cpu_augment},
    [LS_OP_DRAW] = {cpu_augment},
    [LS_OP_RESAMPLE] = {cpu_augment},
    [LS_OP_RESAMPLE_BACKWARD] = {cpu_augment},
    [LS_OP_RECOLOUR] = {cpu_augment},
    [LS_OP_RECOLOUR_BACKWARD] = {cpu_augment},
    [LS_OP_ERASE] = {cpu_augment},
    [LS_OP_ERASE_BACKWARD] = {cpu_augment},
};

// ---- device ----

static void describe_processor(char *text, size_t bytes)
{
    char line[256];
    snprintf(text, bytes, "unknown processor");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file)
        return;
    while (fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, bytes, "%s", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    fclose(file);
}

static int32_t cpu_describe(const struct ls_host *host, struct ls_device_info *out)
{
    char processor[96];
    (void)host;
    describe_processor(processor, sizeof(processor));
    out->physical_count = 1;
    snprintf(out->hardware, sizeof(out->hardware), "%s (%s)", processor, cpu_loops_choose()->name);
    return LS_OK;
}

static void cpu_close(struct ls_device *device)
{
    if (device->stream)
        dnnl_stream_destroy(device->stream);
    if (device->engine)
        dnnl_engine_destroy(device->engine);
}

#define MOST_MEMORY 1e18 // bytes

static int32_t cpu_open(const struct ls_host *host, const struct ls_device_config *config,
                        struct ls_device *device)
{
    if (config->index != 0)
        return ls_host_fail(host, LS_UNAVAILABLE, "cpu: there is no device %u, only device 0",
                            config->index);
    const double limit = ls_host_number(host, "memory");
    if (limit != 0 && !(limit >= 1 && limit <= MOST_MEMORY))
        return ls_host_fail(host, LS_USAGE, "cpu: memory=%.15g: expected bytes, from 1 to %.0g",
                            limit, MOST_MEMORY);
    device->host = host;
    device->threads = config->threads ? config->threads : (uint32_t)omp_get_num_procs();
    // OpenMP gives a team no more than this, and kernels planned for more would wait for the rest.
    if (device->threads > (uint32_t)omp_get_thread_limit()) {
        device->threads = (uint32_t)omp_get_thread_limit();
        host->log(host, LS_LOG_WARN, "OMP_THREAD_LIMIT allows fewer threads than were asked for");
    }
    device->loops = cpu_loops_choose();
    device->limit = (uint64_t)limit;
    dnnl_status_t status = dnnl_engine_create(&device->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&device->stream, device->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        const int32_t failure = cpu_fail_dnnl(device, "open", status);
        cpu_close(device);
        return failure;
    }
    return LS_OK;
}

// ---- memory ----

// With a limit, the LS_ALIGNMENT bytes in front of a buffer begin with its size.
static struct ls_buffer *cpu_allocate(struct ls_device *device, uint64_t bytes)
{
    const uint64_t front = device->limit ? LS_ALIGNMENT : 0;
    if (device->limit && bytes > device->limit - device->allocated)
        return NULL;
    unsigned char *memory = device->host->allocate(device->host, front + bytes, LS_ALIGNMENT);
    if (!memory)
        return NULL;
    memset(memory, 0, front + bytes);
    if (device->limit) {
        memcpy(memory, &bytes, sizeof(bytes));
        device->allocated += bytes;
    }
    return (struct ls_buffer *)(void *)(memory + front);
}

static void cpu_release(struct ls_device *device, struct ls_buffer *buffer)
{
    unsigned char *memory = (unsigned char *)(void *)buffer;
    uint64_t bytes;
    if (device->limit && memory) {
        memory -= LS_ALIGNMENT;
        memcpy(&bytes, memory, sizeof(bytes));
        device->allocated -= bytes;
    }
    device->host->release(device->host, memory);
}

static int32_t cpu_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                        uint64_t bytes, void *stream)
{
    (void)device, (void)stream;
    if (bytes)
        memmove(ls_address(to), ls_address(from), bytes);
    return LS_OK;
}

static int32_t cpu_zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes,
                        void *stream)
{
    (void)device, (void)stream;
    if (bytes)
        memset(ls_address(memory), 0, bytes);
    return LS_OK;
}

// Of each thread: what a tile reads and writes beside it has to lie in the second-level cache, too.
static uint64_t cpu_tile_bytes(struct ls_device *device)
{
    return device->threads * UINT64_C(393216);
}

// ---- kernels ----

static void finish_kernel(struct ls_kernel *kernel)
{
    if (kernel->finish)
        kernel->finish(kernel);
    free(kernel->state);
}

void cpu_kernel_release(struct ls_kernel *kernel)
{
    if (!kernel)
        return;
    finish_kernel(kernel);
    free(kernel);
}

static void cpu_release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    (void)device;
    cpu_kernel_release(kernel);
}

static void fill_kernel(struct ls_kernel *kernel, const struct ls_kernel_request *request)
{
    const struct ls_op_attributes *attributes = &request->attributes;
    kernel->op = request->op;
    kernel->input_count = request->input_count;
    kernel->output_count = request->output_count;
    kernel->attributes = *attributes;
    memcpy(kernel->arguments, request->arguments,
           (request->input_count + request->output_count) * sizeof(kernel->arguments[0]));
    kernel->accumulate = request->accumulate;
    kernel->epilogue = (struct cpu_epilogue){attributes->epilogue, attributes->epilogue_activation,
                                             attributes->epilogue_alpha, request->input_count - 1};
    // An epilogue reads its y beside the first output.
    struct ls_layout *output = &cpu_output_desc(kernel, 0)->layout;
    if (attributes->epilogue == LS_OP_ACTIVATION_BACKWARD && output->kind == LS_LAYOUT_ANY)
        *output = kernel->arguments[request->input_count - 1].layout;
}

// The y of an epilogue is read beside the first output, so it must lie like it.
static int32_t fix_epilogue(struct ls_device *device, const struct ls_kernel_request *request,
                            struct ls_kernel *kernel)
{
    if (request->attributes.epilogue != LS_OP_ACTIVATION_BACKWARD)
        return LS_OK;
    struct ls_layout *mine = &kernel->arguments[request->input_count - 1].layout;
    const struct ls_layout *output = &cpu_output_desc(kernel, 0)->layout;
    if (mine->kind == LS_LAYOUT_ANY)
        *mine = *output;
    if (memcmp(mine, output, sizeof(*mine)) != 0)
        return cpu_unsupported(device, request,
                               "the input of the epilogue lies in another layout than the output");
    return LS_OK;
}

// Room to compute what is then added.
static void plan_accumulation(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->scratch_bytes = answer->scratch_bytes;
    for (uint32_t i = 0; i < kernel->output_count; i++) {
        if (!(kernel->accumulate >> i & 1))
            continue;
        const uint64_t offset = cpu_aligned(answer->scratch_bytes);
        kernel->accumulate_offset[i] = offset;
        answer->scratch_bytes = offset + cpu_output_desc(kernel, i)->layout.bytes;
    }
}

// The half type of the request; LS_F32: it has none.
static uint32_t half_of(const struct ls_kernel_request *request)
{
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        if (ls_dtype_is_half(request->arguments[i].dtype))
            return request->arguments[i].dtype;
    return LS_F32;
}

static int32_t prepare_by(cpu_prepare *prepare, struct ls_device *device,
                          const struct ls_kernel_request *request, struct ls_kernel *kernel,
                          struct ls_kernel_answer *out)
{
    fill_kernel(kernel, request);
    out->used_inputs = (UINT32_C(1) << request->input_count) - 1;
    out->scratch_bytes = out->saved_bytes = 0;
    out->in_place = out->slow = 0;
    const int32_t status = prepare(device, request, kernel, out);
    return status || prepare == cpu_halves ? status : fix_epilogue(device, request, kernel);
}

static int32_t prepare_kernel(struct ls_device *device, const struct ls_kernel_request *request,
                              struct ls_kernel *kernel, struct ls_kernel_answer *out)
{
    const uint32_t half = half_of(request);
    int32_t status = CPU_COPIES;
    if (half != LS_F32 && request->op != LS_OP_CONVERT)
        cpu_say_slow(device, half);
    if (half == LS_F32 || operations[request->op].halves)
        status = prepare_by(operations[request->op].prepare, device, request, kernel, out);
    if (status == CPU_COPIES) {
        finish_kernel(kernel);
        memset(kernel, 0, sizeof(*kernel));
        status = prepare_by(cpu_halves, device, request, kernel, out);
    }
    if (status)
        return status;
    for (uint32_t i = 0; i < kernel->input_count + kernel->output_count; i++) {
        struct ls_tensor_desc *desc = &kernel->arguments[i];
        if (desc->layout.kind == LS_LAYOUT_ANY)
            cpu_layout_plain(desc, &desc->layout);
        if (desc->dtype == LS_U8 && i >= kernel->input_count)
            desc->layout.bytes = out->saved_bytes;
    }
    plan_accumulation(kernel, out);
    if (request->accumulate & 1)
        out->in_place = 0; // what is added to lies there
    for (uint32_t i = 0; i < kernel->input_count + kernel->output_count; i++)
        out->layouts[i] = kernel->arguments[i].layout;
    out->kernel = kernel;
    return LS_OK;
}

// The host has checked the request; what is asked here is what this device knows.
static int32_t check_request(struct ls_device *device, const struct ls_kernel_request *request)
{
    if (request->op >= sizeof(operations) / sizeof(operations[0]) ||
        !operations[request->op].prepare)
        return cpu_unsupported(device, request, "there is no such operation");
    return LS_OK;
}

int32_t cpu_kernel_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                           struct ls_kernel_answer *out)
{
    int32_t status = check_request(device, request);
    if (status)
        return status;
    struct ls_kernel *kernel = cpu_state(device, sizeof(*kernel));
    if (!kernel)
        return LS_OUT_OF_MEMORY;
    omp_set_num_threads((int)device->threads); // oneDNN plans for the calling thread's setting
    status = prepare_kernel(device, request, kernel, out);
    if (status)
        cpu_kernel_release(kernel);
    return status;
}

static int32_t launch_and_add(struct ls_device *device, struct ls_kernel *kernel,
                              const struct cpu_call *launch)
{
    void *arguments[CPU_MAX_ARGUMENTS];
    memcpy(arguments, launch->arguments,
           (kernel->input_count + kernel->output_count) * sizeof(arguments[0]));
    for (uint32_t i = 0; i < kernel->output_count; i++)
        if (kernel->accumulate >> i & 1)
            arguments[kernel->input_count + i] =
                (char *)launch->scratch + kernel->accumulate_offset[i];
    struct cpu_call inner = *launch;
    inner.arguments = arguments;
    const int32_t status = kernel->run(device, kernel, &inner);
    if (status)
        return status;
    cpu_epilogue_run(device, kernel, &inner, cpu_output(kernel, &inner, 0));
    for (uint32_t i = 0; i < kernel->output_count; i++)
        if (kernel->accumulate >> i & 1)
            cpu_add_into(device, cpu_output_desc(kernel, i), cpu_output(kernel, &inner, i),
                         cpu_output(kernel, launch, i));
    return LS_OK;
}

// A kernel is changed by nobody but the one thread that uses its device: oneDNN's memory objects in
// it hold the addresses of the last launch.
int32_t cpu_kernel_launch(struct ls_device *device, const struct ls_kernel *kernel,
                          const struct ls_launch *launch)
{
    struct ls_kernel *mine = (struct ls_kernel *)(uintptr_t)kernel;
    void *arguments[CPU_MAX_ARGUMENTS];
    for (uint32_t i = 0; i < launch->argument_count; i++)
        arguments[i] = ls_address(launch->arguments[i]);
    const struct cpu_call call = {arguments, ls_address(launch->scratch),
                                  ls_address(launch->record)};
    omp_set_num_threads((int)device->threads); // of the calling thread; replicas may differ
    if (mine->accumulate)
        return launch_and_add(device, mine, &call);
    const int32_t status = mine->run(device, mine, &call);
    if (status == LS_OK && mine->epilogue.op != LS_OP_NONE)
        cpu_epilogue_run(device, mine, &call, cpu_output(mine, &call, 0));
    return status;
}

// ---- tables ----

enum { ALL_ACTIVATIONS = (1 << LS_ACTIVATION_COUNT) - 1 };

static const struct ls_fusion_pattern patterns[] = {
    {.producer = LS_OP_CONV2D, .consumer = LS_OP_ACTIVATION, .activations = ALL_ACTIVATIONS},
    {.producer = LS_OP_DENSE, .consumer = LS_OP_ACTIVATION, .activations = ALL_ACTIVATIONS},
    {.producer = LS_OP_MAX_POOL2D_BACKWARD,
     .consumer = LS_OP_ACTIVATION_BACKWARD,
     .activations = ALL_ACTIVATIONS},
    {.producer = LS_OP_AVERAGE_POOL2D_BACKWARD,
     .consumer = LS_OP_ACTIVATION_BACKWARD,
     .activations = ALL_ACTIVATIONS},
    {.producer = LS_OP_CONV2D_BACKWARD_DATA,
     .consumer = LS_OP_ACTIVATION_BACKWARD,
     .activations = ALL_ACTIVATIONS},
    {.producer = LS_OP_DENSE_BACKWARD_DATA,
     .consumer = LS_OP_ACTIVATION_BACKWARD,
     .activations = ALL_ACTIVATIONS},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_LAYER_NORMALIZATION},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_LAYER_NORMALIZATION_BACKWARD},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_GATHER_ROWS},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_GATHER_ROWS_BACKWARD},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_ATTENTION},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_ATTENTION_BACKWARD},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_MATMUL},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_MATMUL_BACKWARD_LEFT},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_MATMUL_BACKWARD_RIGHT},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_CONV2D_TRANSPOSE},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_PRELU},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_PRELU_BACKWARD},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_PENALTY},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_PENALTY_BACKWARD},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_SPARSE_CROSS_ENTROPY},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_MEAN_SQUARED_ERROR},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_MEAN_SQUARED_ERROR_BACKWARD},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_LOSS},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_LOSS_BACKWARD},
    {.producer = LS_OP_CONVERT, .consumer = LS_OP_METRIC},
    {.producer = LS_OP_BATCH_NORMALIZATION, .consumer = LS_OP_ADD},
    {.producer = LS_OP_BATCH_NORMALIZATION,
     .consumer = LS_OP_ACTIVATION,
     .activations = ALL_ACTIVATIONS},
    {.producer = LS_OP_BATCH_NORMALIZATION_INFERENCE, .consumer = LS_OP_ADD},
    {.producer = LS_OP_BATCH_NORMALIZATION_INFERENCE,
     .consumer = LS_OP_ACTIVATION,
     .activations = ALL_ACTIVATIONS},
    {.producer = LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED, .consumer = LS_OP_ADD},
    {.producer = LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED,
     .consumer = LS_OP_ACTIVATION,
     .activations = ALL_ACTIVATIONS},
};

static const struct ls_device_memory memory = {
    .struct_size = sizeof(memory),
    .allocate = cpu_allocate,
    .release = cpu_release,
    .copy = cpu_copy,
    .zero = cpu_zero,
};

static const struct ls_device_kernels kernels = {
    .struct_size = sizeof(kernels),
    .prepare = cpu_kernel_prepare,
    .launch = cpu_kernel_launch,
    .release = cpu_release_kernel,
    .tile_bytes = cpu_tile_bytes,
};

static const struct ls_device_interface interface = {
    .struct_size = sizeof(interface),
    .memory_kind = LS_MEMORY_HOST,
    .patterns = patterns,
    .pattern_count = sizeof(patterns) / sizeof(patterns[0]),
    .blocking = 1,
    .state_bytes = sizeof(struct ls_device),
    .describe = cpu_describe,
    .open = cpu_open,
    .close = cpu_close,
    .memory = &memory,
    .kernels = &kernels,
};

static const struct ls_plugin_option options[] = {
    {"memory", "integer", "0",
     "bytes that each replica may take, as of a device with memory of its own; 0: no limit"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_DEVICE),
    .name = "cpu",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "the processor's cores: oneDNN and own vectorised loops",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
