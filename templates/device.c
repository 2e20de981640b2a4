// SPDX-License-Identifier: Apache-2.0
// my-plugin: a device of plain loops on the calling thread. It implements the operations of a linear
// model (a dense layer, mean squared error, SGD) and refuses all others with a reason; `lockstep
// plugin check` lists both.
#include "core/plugin/half.h"

#include <math.h>
#include <string.h>

struct ls_device {
    const struct ls_host *host;
};

// A prepared operation, which `launch` runs.
struct ls_kernel {
    struct ls_kernel_request request; // its arguments are those below
    struct ls_tensor_desc arguments[4]; // no operation of this device has more
    void (*run)(const struct ls_kernel_request *request, const struct ls_launch *launch);
};

// ---- Memory ----

static int32_t describe(const struct ls_host *host, struct ls_device_info *out)
{
    (void)host;
    out->physical_count = 1;
    snprintf(out->hardware, sizeof(out->hardware), "the calling thread");
    return LS_OK;
}

static int32_t open_device(const struct ls_host *host, const struct ls_device_config *config,
                           struct ls_device *device)
{
    if (config->index > 0)
        return ls_host_fail(host, LS_UNAVAILABLE, "my-plugin: there is no device %u",
                            config->index);
    device->host = host;
    return LS_OK;
}

static void close_device(struct ls_device *device)
{
    (void)device; // the host frees the state itself
}

static struct ls_buffer *allocate(struct ls_device *device, uint64_t bytes)
{
    void *memory = device->host->allocate(device->host, bytes, LS_ALIGNMENT);
    if (memory)
        memset(memory, 0, bytes);
    return (struct ls_buffer *)memory;
}

static void release(struct ls_device *device, struct ls_buffer *buffer)
{
    device->host->release(device->host, buffer);
}

static int32_t copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                    uint64_t bytes, void *stream)
{
    (void)device, (void)stream;
    memcpy(ls_address(to), ls_address(from), bytes);
    return LS_OK;
}

static int32_t zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes, void *stream)
{
    (void)device, (void)stream;
    memset(ls_address(memory), 0, bytes);
    return LS_OK;
}

// What a launch brings, by address.
static void *at(const struct ls_launch *launch, uint32_t argument)
{
    return ls_address(launch->arguments[argument]);
}

static const struct ls_step_record *record_of(const struct ls_launch *launch)
{
    return (const struct ls_step_record *)ls_address(launch->record);
}

// ---- Operations; arguments as core/plugin/operations.h lists them ----

static uint64_t elements(const struct ls_kernel_request *request, uint32_t argument)
{
    return ls_tensor_elements(&request->arguments[argument]);
}

// x seen as (M,K), w (K,N), [b (N)] -> y seen as (M,N)
static void run_dense(const struct ls_kernel_request *request, const struct ls_launch *launch)
{
    const uint32_t output = request->input_count;
    const float *x = at(launch, 0), *w = at(launch, 1);
    const float *b = output > 2 ? at(launch, 2) : NULL;
    float *y = at(launch, output);
    const uint64_t columns = (uint64_t)request->arguments[1].dims[1];
    const uint64_t inner = (uint64_t)request->arguments[1].dims[0];
    const uint64_t rows = elements(request, output) / columns;

    for (uint64_t m = 0; m < rows; m++)
        for (uint64_t n = 0; n < columns; n++) {
            double sum = b ? (double)b[n] : 0;
            for (uint64_t k = 0; k < inner; k++)
                sum += (double)x[m * inner + k] * (double)w[k * columns + n];
            y[m * columns + n] = (float)sum;
        }
}

// x, dy -> dw, [db]
static void run_dense_weights(const struct ls_kernel_request *request,
                              const struct ls_launch *launch)
{
    const float *x = at(launch, 0), *dy = at(launch, 1);
    float *dw = at(launch, 2), *db = request->output_count > 1 ? at(launch, 3) : NULL;
    const uint64_t columns = (uint64_t)request->arguments[2].dims[1];
    const uint64_t inner = (uint64_t)request->arguments[2].dims[0];
    const uint64_t rows = elements(request, 1) / columns;

    for (uint64_t n = 0; n < columns; n++) {
        double bias = 0;
        for (uint64_t m = 0; m < rows; m++)
            bias += (double)dy[m * columns + n];
        if (db)
            db[n] = (float)bias;
        for (uint64_t k = 0; k < inner; k++) {
            double sum = 0;
            for (uint64_t m = 0; m < rows; m++)
                sum += (double)x[m * inner + k] * (double)dy[m * columns + n];
            dw[k * columns + n] = (float)sum;
        }
    }
}

// predictions (B,...), targets -> sums: the loss of an example is the mean over its elements
static void run_loss(const struct ls_kernel_request *request, const struct ls_launch *launch)
{
    const float *predictions = at(launch, 0), *targets = at(launch, 1);
    float *sums = at(launch, 2);
    const uint64_t examples = (uint64_t)request->arguments[0].dims[0];
    const uint64_t count = elements(request, 0);
    double loss = 0;

    for (uint64_t i = 0; i < count; i++) {
        const double difference = (double)predictions[i] - (double)targets[i];
        loss += difference * difference;
    }
    sums[0] = (float)(loss * (double)examples / (double)count);
    sums[1] = 0; // none is right or wrong
    sums[2] = (float)examples;
    sums[3] = 0;
}

// predictions, targets -> dpredictions
static void run_loss_backward(const struct ls_kernel_request *request,
                              const struct ls_launch *launch)
{
    const float *predictions = at(launch, 0), *targets = at(launch, 1);
    float *dx = at(launch, 2);
    const uint64_t examples = (uint64_t)request->arguments[0].dims[0];
    const uint64_t count = elements(request, 0);
    const double scale =
        2 * (double)record_of(launch)->gradient_scale * (double)examples / (double)count;

    for (uint64_t i = 0; i < count; i++)
        dx[i] = (float)(((double)predictions[i] - (double)targets[i]) * scale);
}

// gradient -> parameter, [velocity]
static void run_sgd(const struct ls_kernel_request *request, const struct ls_launch *launch)
{
    const float *gradient = at(launch, 0);
    float *w = at(launch, 1), *v = request->output_count > 1 ? at(launch, 2) : NULL;
    const float rate = record_of(launch)->learning_rate, momentum = request->attributes.momentum;

    for (uint64_t i = 0; !record_of(launch)->skip && i < elements(request, 0); i++) {
        if (v)
            v[i] = momentum * v[i] - rate * gradient[i];
        if (v && request->attributes.nesterov)
            w[i] += momentum * v[i] - rate * gradient[i];
        else
            w[i] += v ? v[i] : -rate * gradient[i];
    }
}

// x -> F64 x 2: sum of squares of the finite elements, number of the others
static void run_measure(const struct ls_kernel_request *request, const struct ls_launch *launch)
{
    const float *x = at(launch, 0);
    double *out = at(launch, 1);
    out[0] = out[1] = 0;
    for (uint64_t i = 0; i < elements(request, 0); i++) {
        if (isfinite(x[i]))
            out[0] += (double)x[i] * (double)x[i];
        else
            out[1]++;
    }
}

// The same elements, elsewhere
static void run_copy(const struct ls_kernel_request *request, const struct ls_launch *launch)
{
    const uint64_t bytes = elements(request, 0) * ls_dtype_bytes(request->arguments[0].dtype);
    memmove(at(launch, 1), at(launch, 0), bytes);
}

// ---- Preparing ----

static const struct operation {
    uint32_t op, used_inputs; // bit i: input i is read
    void (*run)(const struct ls_kernel_request *request, const struct ls_launch *launch);
} operations[] = {
    {LS_OP_DENSE, 7, run_dense},
    {LS_OP_DENSE_BACKWARD_WEIGHTS, 3, run_dense_weights},
    {LS_OP_RESHAPE, 1, run_copy},
    {LS_OP_CONVERT, 1, run_copy},
    {LS_OP_MEAN_SQUARED_ERROR, 3, run_loss},
    {LS_OP_MEAN_SQUARED_ERROR_BACKWARD, 3, run_loss_backward},
    {LS_OP_SGD_UPDATE, 1, run_sgd},
    {LS_OP_MEASURE, 1, run_measure},
};

static const struct operation *find_operation(const struct ls_kernel_request *request)
{
    if (request->attributes.epilogue != LS_OP_NONE || request->accumulate)
        return NULL;
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
        if (operations[i].op == request->op)
            return &operations[i];
    return NULL;
}

// Every tensor has the plain layout, because this device has no layout of its own.
static int answer_layouts(const struct ls_kernel_request *request, struct ls_kernel_answer *out)
{
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        const struct ls_tensor_desc *desc = &request->arguments[i];
        if (desc->layout.kind == LS_LAYOUT_OWN)
            return 0;
        memset(&out->layouts[i], 0, sizeof(out->layouts[i]));
        out->layouts[i].kind = LS_LAYOUT_PLAIN;
        out->layouts[i].bytes = desc->layout.kind == LS_LAYOUT_PLAIN
                                    ? desc->layout.bytes
                                    : ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype);
    }
    return 1;
}

// This device has no half types. It must refuse them, because it would read them as float32.
static int has_types(const struct ls_kernel_request *request)
{
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        if (ls_dtype_is_half(request->arguments[i].dtype) ||
            request->arguments[i].dtype != ls_argument_dtype(request, i))
            return 0;
    return 1;
}

static int32_t prepare(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel_answer *out)
{
    const struct ls_host *host = device->host;
    const struct operation *operation = find_operation(request);
    if (!operation || !has_types(request) || !answer_layouts(request, out))
        return ls_host_fail(host, LS_UNSUPPORTED,
                            "my-plugin does not know operation %u with these attributes and types",
                            request->op);
    struct ls_kernel *kernel =
        (struct ls_kernel *)host->allocate(host, sizeof(*kernel), sizeof(uint64_t));
    if (!kernel)
        return ls_host_fail(host, LS_OUT_OF_MEMORY, "my-plugin: no memory for a kernel");
    kernel->request = *request;
    kernel->request.arguments = kernel->arguments;
    memcpy(kernel->arguments, request->arguments,
           (request->input_count + request->output_count) * sizeof(*request->arguments));
    kernel->run = operation->run;
    out->kernel = kernel;
    out->used_inputs = operation->used_inputs & ((1u << request->input_count) - 1);
    out->scratch_bytes = 0;
    out->saved_bytes = 0;
    out->in_place = 0;
    out->slow = 0;
    snprintf(out->implementation, sizeof(out->implementation), "plain loops");
    return LS_OK;
}

static int32_t launch_kernel(struct ls_device *device, const struct ls_kernel *kernel,
                             const struct ls_launch *launch)
{
    (void)device;
    kernel->run(&kernel->request, launch);
    return LS_OK;
}

static void release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    device->host->release(device->host, kernel);
}

static const struct ls_device_memory memory_calls = {
    .struct_size = sizeof(struct ls_device_memory),
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .zero = zero,
};

static const struct ls_device_kernels kernel_calls = {
    .struct_size = sizeof(struct ls_device_kernels),
    .prepare = prepare,
    .launch = launch_kernel,
    .release = release_kernel,
};

static const struct ls_device_interface interface = {
    .struct_size = sizeof(struct ls_device_interface),
    .memory_kind = LS_MEMORY_HOST,
    .blocking = 1,
    .state_bytes = sizeof(struct ls_device),
    .describe = describe,
    .open = open_device,
    .close = close_device,
    .memory = &memory_calls,
    .kernels = &kernel_calls,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_DEVICE),
    .name = "my-plugin",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "plain loops, for linear models",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
