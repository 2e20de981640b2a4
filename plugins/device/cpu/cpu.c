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

// Inputs and outputs: the fewest and the most, without the input of an epilogue.
static const struct operation {
    cpu_prepare *prepare;
    uint32_t inputs[2], outputs[2];
} operations[] = {
    [LS_OP_CONV2D] = {cpu_convolution_forward, {2, 3}, {1, 1}},
    [LS_OP_CONV2D_BACKWARD_DATA] = {cpu_convolution_backward_data, {2, 2}, {1, 1}},
    [LS_OP_CONV2D_BACKWARD_WEIGHTS] = {cpu_convolution_backward_weights, {2, 2}, {1, 2}},
    [LS_OP_DENSE] = {cpu_dense_forward, {2, 3}, {1, 1}},
    [LS_OP_DENSE_BACKWARD_DATA] = {cpu_dense_backward_data, {2, 2}, {1, 1}},
    [LS_OP_DENSE_BACKWARD_WEIGHTS] = {cpu_dense_backward_weights, {2, 2}, {1, 2}},
    [LS_OP_MAX_POOL2D] = {cpu_max_pool, {1, 1}, {1, 2}},
    [LS_OP_MAX_POOL2D_BACKWARD] = {cpu_max_pool_backward, {4, 4}, {1, 1}},
    [LS_OP_AVERAGE_POOL2D] = {cpu_average_pool, {1, 1}, {1, 1}},
    [LS_OP_AVERAGE_POOL2D_BACKWARD] = {cpu_average_pool_backward, {1, 1}, {1, 1}},
    [LS_OP_ACTIVATION] = {cpu_activation, {1, 1}, {1, 1}},
    [LS_OP_ACTIVATION_BACKWARD] = {cpu_activation_backward, {2, 2}, {1, 1}},
    [LS_OP_SOFTMAX] = {cpu_softmax, {1, 1}, {1, 1}},
    [LS_OP_SOFTMAX_BACKWARD] = {cpu_softmax_backward, {2, 2}, {1, 1}},
    [LS_OP_DROPOUT] = {cpu_dropout, {1, 1}, {1, 1}},
    [LS_OP_RESHAPE] = {cpu_reshape, {1, 1}, {1, 1}},
    [LS_OP_ADD] = {cpu_add, {2, 2}, {1, 1}},
    [LS_OP_CONVERT] = {cpu_convert, {1, 1}, {1, 1}},
    [LS_OP_SPARSE_CROSS_ENTROPY] = {cpu_cross_entropy, {2, 2}, {1, 2}},
    [LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD] = {cpu_cross_entropy_backward, {3, 3}, {1, 1}},
    [LS_OP_MEAN_SQUARED_ERROR] = {cpu_squared_error, {2, 2}, {1, 1}},
    [LS_OP_MEAN_SQUARED_ERROR_BACKWARD] = {cpu_squared_error_backward, {2, 2}, {1, 1}},
    [LS_OP_SGD_UPDATE] = {cpu_sgd_update, {1, 1}, {1, 2}},
    [LS_OP_ADAM_UPDATE] = {cpu_adam_update, {1, 1}, {3, 3}},
    [LS_OP_MEASURE] = {cpu_measure, {1, 1}, {1, 1}},
    [LS_OP_FROM_BYTES] = {cpu_from_bytes, {1, 1}, {1, 1}},
    [LS_OP_BATCH_NORMALIZATION] = {cpu_batch_normalization, {3, 4}, {3, 3}},
    [LS_OP_BATCH_NORMALIZATION_BACKWARD] = {cpu_batch_normalization_backward, {5, 5}, {3, 3}},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE] = {cpu_batch_normalization_inference, {5, 6}, {1, 1}},
    [LS_OP_MAXIMUM] = {cpu_maximum, {2, 2}, {1, 1}},
    [LS_OP_MAXIMUM_BACKWARD] = {cpu_maximum_backward, {3, 3}, {2, 2}},
};

// ---- failures ----

int32_t cpu_fail_dnnl(struct ls_device *device, const char *what, dnnl_status_t status)
{
    if (status == dnnl_out_of_memory)
        return cpu_out_of_memory(device);
    return ls_host_fail(device->host, status == dnnl_unimplemented ? LS_UNSUPPORTED : LS_FAILED,
                        "cpu: %s: oneDNN answers status %d", what, (int)status);
}

int32_t cpu_out_of_memory(struct ls_device *device)
{
    return ls_host_fail(device->host, LS_OUT_OF_MEMORY,
                        "cpu: out of memory while a kernel was prepared");
}

int32_t cpu_unsupported(struct ls_device *device, const struct ls_kernel_request *request,
                        const char *why)
{
    return ls_host_fail(device->host, LS_UNSUPPORTED, "cpu: operation %u: %s", request->op, why);
}

void *cpu_state(struct ls_device *device, uint64_t bytes)
{
    void *state = calloc(1, bytes);
    if (!state)
        cpu_out_of_memory(device);
    return state;
}

void cpu_implementation(struct ls_device *device, struct ls_kernel_answer *answer, const char *what)
{
    snprintf(answer->implementation, sizeof(answer->implementation), "own %s %s",
             device->loops->name, what);
}

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
    if (!device)
        return;
    if (device->stream)
        dnnl_stream_destroy(device->stream);
    if (device->engine)
        dnnl_engine_destroy(device->engine);
    free(device);
}

static int32_t cpu_open(const struct ls_host *host, const struct ls_device_config *config,
                        struct ls_device **out)
{
    if (config->index != 0)
        return ls_host_fail(host, LS_UNAVAILABLE, "cpu: there is no device %u, only device 0",
                            config->index);
    struct ls_device *device = calloc(1, sizeof(*device));
    if (!device)
        return ls_host_fail(host, LS_OUT_OF_MEMORY, "cpu: out of memory");
    device->host = host;
    device->threads = config->threads ? config->threads : (uint32_t)omp_get_num_procs();
    // OpenMP gives a team no more than this, and kernels planned for more would wait for the rest.
    if (device->threads > (uint32_t)omp_get_thread_limit()) {
        device->threads = (uint32_t)omp_get_thread_limit();
        host->log(host, LS_LOG_WARN, "OMP_THREAD_LIMIT allows fewer threads than were asked for");
    }
    device->loops = cpu_loops_choose();
    dnnl_status_t status = dnnl_engine_create(&device->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&device->stream, device->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        const int32_t failure = cpu_fail_dnnl(device, "open", status);
        cpu_close(device);
        return failure;
    }
    *out = device;
    return LS_OK;
}

// ---- memory ----

static void *cpu_allocate(struct ls_device *device, uint64_t bytes)
{
    void *memory = device->host->allocate(device->host, bytes ? bytes : 1, LS_ALIGNMENT);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static void cpu_release(struct ls_device *device, void *memory)
{
    device->host->release(device->host, memory);
}

static int32_t cpu_copy(struct ls_device *device, void *to, const void *from, uint64_t bytes,
                        void *stream)
{
    (void)device, (void)stream;
    if (bytes)
        memmove(to, from, bytes);
    return LS_OK;
}

static int32_t cpu_zero(struct ls_device *device, void *memory, uint64_t bytes, void *stream)
{
    (void)device, (void)stream;
    if (bytes)
        memset(memory, 0, bytes);
    return LS_OK;
}

// Of each thread: what a tile reads and writes beside it has to lie in the second-level cache, too.
static uint64_t cpu_tile_bytes(struct ls_device *device)
{
    return device->threads * UINT64_C(393216);
}

// ---- kernels ----

static void cpu_release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    (void)device;
    if (!kernel)
        return;
    if (kernel->finish)
        kernel->finish(kernel);
    free(kernel->state);
    free(kernel);
}

static void fill_kernel(struct ls_kernel *kernel, const struct ls_kernel_request *request)
{
    const struct ls_op_attributes *attributes = &request->attributes;
    kernel->op = request->op;
    kernel->input_count = request->input_count;
    kernel->output_count = request->output_count;
    kernel->attributes = *attributes;
    memcpy(kernel->arguments, request->arguments, sizeof(kernel->arguments));
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

static int32_t prepare_kernel(struct ls_device *device, const struct ls_kernel_request *request,
                              struct ls_kernel *kernel, struct ls_kernel_answer *out)
{
    fill_kernel(kernel, request);
    out->used_inputs = (UINT32_C(1) << request->input_count) - 1;
    out->scratch_bytes = out->saved_bytes = 0;
    out->in_place = out->slow = 0;
    int32_t status = operations[request->op].prepare(device, request, kernel, out);
    if (status)
        return status;
    status = fix_epilogue(device, request, kernel);
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

static bool within(uint32_t count, const uint32_t range[2])
{
    return count >= range[0] && count <= range[1];
}

static int32_t check_argument(struct ls_device *device, const struct ls_kernel_request *request,
                              uint32_t index)
{
    const struct ls_tensor_desc *desc = &request->arguments[index];
    if (ls_dtype_is_half(desc->dtype))
        return cpu_unsupported(device, request, "bfloat16 and float16 are not there yet");
    if (desc->dtype != ls_argument_dtype(request, index))
        return cpu_unsupported(device, request, "an argument is not of the type it has here");
    if (desc->dtype == LS_U8 && request->op != LS_OP_FROM_BYTES)
        return LS_OK; // `saved`, whose size is ours to say
    if (desc->ndims < 1 || desc->ndims > LS_MAX_DIMS)
        return cpu_unsupported(device, request, "a tensor has from one to six dimensions");
    for (uint32_t d = 0; d < desc->ndims; d++)
        if (desc->dims[d] < 1)
            return cpu_unsupported(device, request, "a tensor is empty");
    return LS_OK;
}

// Refuses what no kernel could read.
static int32_t check_request(struct ls_device *device, const struct ls_kernel_request *request)
{
    const struct ls_op_attributes *a = &request->attributes;
    if (request->op >= sizeof(operations) / sizeof(operations[0]) ||
        !operations[request->op].prepare)
        return cpu_unsupported(device, request, "there is no such operation");
    const struct operation *operation = &operations[request->op];
    const uint32_t extra = a->epilogue == LS_OP_ACTIVATION_BACKWARD;
    if (request->input_count < extra || !within(request->input_count - extra, operation->inputs) ||
        !within(request->output_count, operation->outputs))
        return cpu_unsupported(device, request, "wrong number of arguments");
    if (a->activation >= LS_ACTIVATION_COUNT || a->epilogue_activation >= LS_ACTIVATION_COUNT)
        return cpu_unsupported(device, request, "there is no such activation");
    if (a->epilogue != LS_OP_NONE && a->epilogue != LS_OP_ACTIVATION && !extra)
        return cpu_unsupported(device, request, "an epilogue is an activation or its backward");
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < request->input_count + request->output_count; i++)
        status = check_argument(device, request, i);
    return status;
}

static int32_t cpu_prepare_kernel(struct ls_device *device, const struct ls_kernel_request *request,
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
        cpu_release_kernel(device, kernel);
    return status;
}

static int32_t launch_and_add(struct ls_device *device, struct ls_kernel *kernel,
                              const struct ls_launch *launch)
{
    void *arguments[LS_MAX_ARGUMENTS];
    memcpy(arguments, launch->arguments,
           (kernel->input_count + kernel->output_count) * sizeof(arguments[0]));
    for (uint32_t i = 0; i < kernel->output_count; i++)
        if (kernel->accumulate >> i & 1)
            arguments[kernel->input_count + i] =
                (char *)launch->scratch + kernel->accumulate_offset[i];
    struct ls_launch inner = *launch;
    inner.arguments = arguments;
    const int32_t status = kernel->run(device, kernel, &inner);
    if (status)
        return status;
    cpu_epilogue_run(device, kernel, &inner, cpu_output(kernel, &inner, 0));
    for (uint32_t i = 0; i < kernel->output_count; i++)
        if (kernel->accumulate >> i & 1)
            cpu_add_into(device, cpu_output(kernel, &inner, i), cpu_output(kernel, launch, i),
                         cpu_floats(cpu_output_desc(kernel, i)));
    return LS_OK;
}

// A kernel is changed by nobody but the one thread that uses its device: oneDNN's memory objects in
// it hold the addresses of the last launch.
static int32_t cpu_launch(struct ls_device *device, const struct ls_kernel *kernel,
                          const struct ls_launch *launch)
{
    struct ls_kernel *mine = (struct ls_kernel *)(uintptr_t)kernel;
    omp_set_num_threads((int)device->threads); // of the calling thread; replicas may differ
    if (mine->accumulate)
        return launch_and_add(device, mine, launch);
    const int32_t status = mine->run(device, mine, launch);
    if (status == LS_OK && mine->epilogue.op != LS_OP_NONE)
        cpu_epilogue_run(device, mine, launch, cpu_output(mine, launch, 0));
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
    {.producer = LS_OP_BATCH_NORMALIZATION, .consumer = LS_OP_ADD},
    {.producer = LS_OP_BATCH_NORMALIZATION,
     .consumer = LS_OP_ACTIVATION,
     .activations = ALL_ACTIVATIONS},
    {.producer = LS_OP_BATCH_NORMALIZATION_INFERENCE, .consumer = LS_OP_ADD},
    {.producer = LS_OP_BATCH_NORMALIZATION_INFERENCE,
     .consumer = LS_OP_ACTIVATION,
     .activations = ALL_ACTIVATIONS},
};

static const struct ls_device_interface interface = {
    .struct_size = sizeof(interface),
    .memory_kind = LS_MEMORY_HOST,
    .patterns = patterns,
    .pattern_count = sizeof(patterns) / sizeof(patterns[0]),
    .blocking = 1,
    .describe = cpu_describe,
    .open = cpu_open,
    .close = cpu_close,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .prepare = cpu_prepare_kernel,
    .launch = cpu_launch,
    .release_kernel = cpu_release_kernel,
    .tile_bytes = cpu_tile_bytes,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_DEVICE),
    .name = "cpu",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "the processor's cores: oneDNN and own vectorised loops",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
