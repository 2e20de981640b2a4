// SPDX-License-Identifier: Apache-2.0
// The device with layouts of its own: every kernel turns its arguments plain, runs the inner device's kernel,
// and turns the outputs back.
#include "tests/core/graph/mock.h"

#include "core/base/instance.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct ls_device {
    struct ls_device_interface ops; // its own table
    struct harness_device inner;
    struct mock_policy policy;
};

struct ls_kernel {
    struct ls_kernel *inner;
    uint32_t input_count, argument_count, accumulate;
    bool shares_x; // a pooling whose epilogue's y must be its x
    struct ls_layout layouts[LS_MAX_ARGUMENTS];
    float *plain[LS_MAX_ARGUMENTS]; // buffers for arguments that are not plain
    uint64_t elements[LS_MAX_ARGUMENTS];
};

// ---- Layouts: flavour 1 is reversed after 16 zeros, flavour 2 rotated by half after 32 zeros ----

static struct ls_layout own_layout(uint32_t flavour, uint64_t elements)
{
    return (struct ls_layout){.kind = LS_LAYOUT_OWN,
                              .bytes = ls_align((elements + 16 * flavour) * sizeof(float)),
                              .words = {flavour, elements}};
}

static uint64_t own_index(const struct ls_layout *layout, uint64_t i)
{
    const uint64_t flavour = layout->words[0], count = layout->words[1];
    return 16 * flavour + (flavour == 1 ? count - 1 - i : (i + count / 2) % count);
}

static int32_t to_plain(const struct ls_layout *layout, const float *from, float *to)
{
    const uint64_t front = 16 * layout->words[0], count = layout->words[1];
    for (uint64_t i = 0; i < front; i++)
        if (from[i] != 0)
            return LS_FAILED;
    for (uint64_t i = front + count; i < layout->bytes / sizeof(float); i++)
        if (from[i] != 0)
            return LS_FAILED;
    for (uint64_t i = 0; i < count; i++)
        to[i] = from[own_index(layout, i)];
    return LS_OK;
}

static void from_plain(const struct ls_layout *layout, const float *from, float *to)
{
    memset(to, 0, layout->bytes);
    for (uint64_t i = 0; i < layout->words[1]; i++)
        to[own_index(layout, i)] = from[i];
}

// ---- What the policy wants ----

struct wish {
    uint32_t flavour; // 0: plain
    bool strict; // else only when the choice is the device's
};

static bool is_dense(uint32_t op)
{
    return op == LS_OP_DENSE || op == LS_OP_DENSE_BACKWARD_DATA ||
           op == LS_OP_DENSE_BACKWARD_WEIGHTS;
}

static bool is_weight(const struct ls_kernel_request *request, uint32_t i)
{
    switch (request->op) {
    case LS_OP_CONV2D:
    case LS_OP_DENSE:
    case LS_OP_CONV2D_BACKWARD_DATA:
    case LS_OP_DENSE_BACKWARD_DATA: return i == 1;
    case LS_OP_CONV2D_BACKWARD_WEIGHTS:
    case LS_OP_DENSE_BACKWARD_WEIGHTS: return i == request->input_count;
    default: return false;
    }
}

static bool keeps_images(uint32_t op)
{
    return op == LS_OP_CONV2D || op == LS_OP_MAX_POOL2D || op == LS_OP_AVERAGE_POOL2D ||
           op == LS_OP_ACTIVATION || op == LS_OP_BATCH_NORMALIZATION;
}

static struct wish wish_for(const struct mock_policy *policy,
                            const struct ls_kernel_request *request, uint32_t i)
{
    const uint32_t op = request->op;
    const bool weight = is_weight(request, i), output = i >= request->input_count;

    if (weight && (op == LS_OP_CONV2D || op == LS_OP_DENSE))
        return (struct wish){policy->own_weights ? 1 : 0, false};
    if (weight && output)
        return (struct wish){policy->other_gradient ? 2 : 0, policy->other_gradient};
    if (weight)
        return (struct wish){policy->other_data ? 2 : 0, policy->other_data};
    if (request->arguments[i].ndims == 1)
        return (struct wish){0, true};
    if (is_dense(op))
        return (struct wish){0, policy->plain_dense};
    if (output && keeps_images(op))
        return (struct wish){policy->own_activations ? 1 : 0, false};
    // Softmax and losses know the plain layout only.
    return (struct wish){0, op == LS_OP_SOFTMAX || op == LS_OP_SPARSE_CROSS_ENTROPY ||
                                op == LS_OP_MEAN_SQUARED_ERROR};
}

static uint32_t flavour_of(const struct ls_layout *layout)
{
    return layout->kind == LS_LAYOUT_OWN ? (uint32_t)layout->words[0] : 0;
}

// Chooses every layout; false when a fixed one is refused.
static bool choose(const struct mock_policy *policy, const struct ls_kernel_request *request,
                   struct ls_kernel_answer *out)
{
    bool wanted = true;
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        const struct ls_tensor_desc *desc = &request->arguments[i];
        const struct wish wish = wish_for(policy, request, i);
        if (desc->layout.kind != LS_LAYOUT_ANY) {
            out->layouts[i] = desc->layout;
            wanted &= !wish.strict || flavour_of(&desc->layout) == wish.flavour;
        } else if (wish.flavour > 0 && desc->dtype == LS_F32) {
            out->layouts[i] = own_layout(wish.flavour, ls_tensor_elements(desc));
        } else {
            out->layouts[i] = ls_plain_layout(desc);
        }
    }
    if (!wanted && policy->slow && request->op != LS_OP_SPARSE_CROSS_ENTROPY)
        out->slow = 1;
    return wanted || out->slow;
}

// Whether a batch normalization is one of those: addend and epilogue count.
static bool is_among(uint32_t norms, const struct ls_kernel_request *request)
{
    return request->op == LS_OP_BATCH_NORMALIZATION &&
           (norms >> (request->input_count - 3 + (request->attributes.epilogue != LS_OP_NONE)) &
            1) != 0;
}

// ---- The interface ----

static int32_t mock_prepare_inner(struct ls_device *device, const struct ls_kernel_request *request,
                                  struct ls_kernel_answer *out)
{
    struct ls_kernel_request plain = *request;
    struct ls_tensor_desc arguments[LS_MAX_ARGUMENTS];
    plain.arguments = arguments;
    memcpy(arguments, request->arguments,
           (request->input_count + request->output_count) * sizeof(arguments[0]));
    plain.forward = request->forward ? request->forward->inner : NULL;
    for (uint32_t i = 0; i < plain.input_count + plain.output_count; i++) {
        if (arguments[i].dtype == LS_U8)
            continue;
        arguments[i].layout = ls_plain_layout(&arguments[i]);
    }
    return device->inner.ops->kernels->prepare(device->inner.device, &plain, out);
}

static int32_t mock_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                            struct ls_kernel_answer *out)
{
    const struct mock_policy *policy = &device->policy;
    struct ls_layout layouts[LS_MAX_ARGUMENTS] = {0};
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer), .layouts = layouts};

    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        if (policy->no_halves && ls_type_is_half(request->arguments[i].dtype))
            return LS_UNSUPPORTED;
    if ((policy->refuse_fused && request->attributes.epilogue) ||
        (policy->no_accumulate && request->accumulate) || is_among(policy->refused_norms, request))
        return LS_UNSUPPORTED;
    int32_t status = mock_prepare_inner(device, request, &answer);
    if (status)
        return status;
    const bool fits = choose(policy, request, &answer);
    if (!fits) {
        device->inner.ops->kernels->release(device->inner.device, answer.kernel);
        return LS_UNSUPPORTED;
    }
    struct ls_kernel *kernel = calloc(1, sizeof(*kernel));
    ck_assert_ptr_nonnull(kernel);
    kernel->inner = answer.kernel;
    kernel->input_count = request->input_count;
    kernel->argument_count = request->input_count + request->output_count;
    kernel->accumulate = request->accumulate;
    kernel->shares_x = request->op == LS_OP_MAX_POOL2D_BACKWARD && request->attributes.epilogue;
    memcpy(kernel->layouts, layouts, sizeof(kernel->layouts));
    for (uint32_t i = 0; i < kernel->argument_count; i++)
        if (kernel->layouts[i].kind == LS_LAYOUT_OWN)
            kernel->plain[i] = malloc(kernel->layouts[i].words[1] * sizeof(float));
    answer.kernel = kernel;
    answer.in_place &= policy->no_in_place ? 0 : policy->first_in_place ? 1 : UINT32_MAX;
    if ((policy->always_slow && request->op == LS_OP_CONV2D_BACKWARD_DATA) ||
        is_among(policy->slow_norms, request))
        answer.slow = 1;
    memcpy(out->layouts, layouts, kernel->argument_count * sizeof(layouts[0]));
    answer.layouts = out->layouts;
    *out = answer;
    return LS_OK;
}

static int32_t mock_launch(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct ls_launch *launch)
{
    struct ls_memory arguments[LS_MAX_ARGUMENTS];
    struct ls_launch inner = *launch;
    inner.arguments = arguments;
    if (kernel->shares_x && ls_address(launch->arguments[1]) != ls_address(launch->arguments[4]))
        return LS_FAILED;

    for (uint32_t i = 0; i < kernel->argument_count; i++) {
        void *given = ls_address(launch->arguments[i]);
        const bool read =
            i < kernel->input_count || (kernel->accumulate >> (i - kernel->input_count) & 1);
        const bool turned = given && kernel->plain[i];
        arguments[i] = turned ? ls_host_memory(kernel->plain[i]) : launch->arguments[i];
        if (turned && read && to_plain(&kernel->layouts[i], given, kernel->plain[i]))
            return LS_FAILED;
    }
    int32_t status =
        device->inner.ops->kernels->launch(device->inner.device, kernel->inner, &inner);
    for (uint32_t i = kernel->input_count; i < kernel->argument_count && !status; i++)
        if (kernel->plain[i])
            from_plain(&kernel->layouts[i], kernel->plain[i], ls_address(launch->arguments[i]));
    return status;
}

static void mock_release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    if (!kernel)
        return;
    device->inner.ops->kernels->release(device->inner.device, kernel->inner);
    for (uint32_t i = 0; i < kernel->argument_count; i++)
        free(kernel->plain[i]);
    free(kernel);
}

static struct ls_buffer *mock_allocate(struct ls_device *device, uint64_t bytes)
{
    return device->inner.ops->memory->allocate(device->inner.device, bytes);
}

static void mock_release(struct ls_device *device, struct ls_buffer *buffer)
{
    device->inner.ops->memory->release(device->inner.device, buffer);
}

static int32_t mock_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                         uint64_t bytes, void *stream)
{
    return device->inner.ops->memory->copy(device->inner.device, to, from, bytes, stream);
}

static int32_t mock_zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes,
                         void *stream)
{
    return device->inner.ops->memory->zero(device->inner.device, memory, bytes, stream);
}

static const struct ls_device_memory memory = {
    .struct_size = sizeof(memory),
    .allocate = mock_allocate,
    .release = mock_release,
    .copy = mock_copy,
    .zero = mock_zero,
};

static const struct ls_device_kernels kernels = {
    .struct_size = sizeof(kernels),
    .prepare = mock_prepare,
    .launch = mock_launch,
    .release = mock_release_kernel,
};

struct harness_device mock_open(struct harness_device inner, const struct mock_policy *policy)
{
    struct ls_device *device = ls_instance_create(NULL, sizeof(*device));
    ck_assert_ptr_nonnull(device);
    *device = (struct ls_device){
        .ops = {.struct_size = sizeof(struct ls_device_interface),
                .memory_kind = inner.ops->memory_kind,
                .patterns = policy->patterns,
                .pattern_count = policy->pattern_count,
                .blocking = inner.ops->blocking,
                .memory = &memory,
                .kernels = &kernels},
        .inner = inner,
        .policy = *policy,
    };
    return (struct harness_device){.ops = &device->ops, .device = device};
}

void mock_close(struct harness_device *mock)
{
    ls_instance_destroy(mock->device);
}
