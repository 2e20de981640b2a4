// SPDX-License-Identifier: Apache-2.0
// Convolutions of device `cpu` in bfloat16. Values are small multiples of a quarter, so that sums
// of their products are exact in float32 whatever their order: the result is to the bit that of the
// float32 kernel, rounded once, and gradients of weights, which are float32, are equal. Weights go
// through the layout that the kernel answers, from a plain float32 master and back.
#include "core/plugin/half.h"
#include "tests/support/device_calls.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdbool.h>

static const struct ls_plugin *plugin;
static struct test_host host;

// ---- Cases ----

// AFTER: ReLU or its derivative in the epilogue. ADDED: to what is there. HALVES: gradients of weights,
// too.
enum way { WITH_BIAS, ALONE, AFTER, ADDED, HALVES };

struct row {
    int64_t b, h, w, c, f, kernel;
    int32_t stride, dilation, groups;
    bool valid; // without padding, else as for an output of size / stride
    enum way way;
};

static const struct row rows[] = {
    {4, 8, 8, 64, 64, 3, 1, 1, 1, false}, // native wherever anything is
    {1, 1, 1, 1, 1, 1, 1, 1, 1, true},
    {4, 9, 7, 24, 40, 1, 1, 1, 1, true},
    {3, 16, 16, 64, 256, 1, 1, 1, 1, true},
    {2, 5, 5, 131, 61, 1, 1, 1, 1, true},
    {6, 2, 2, 256, 512, 1, 1, 1, 1, true}, // w is larger than x and y
    {4, 9, 8, 32, 48, 1, 2, 1, 1, true},
    {2, 7, 7, 17, 33, 1, 3, 1, 1, true},
    {4, 6, 5, 16, 24, 1, 1, 1, 1, false},
    {4, 2, 2, 64, 96, 3, 1, 1, 1, false}, // so few pixels that rows are gathered
    {3, 3, 2, 32, 16, 3, 1, 1, 1, false},
    {2, 4, 4, 96, 32, 3, 2, 1, 1, false},
    {2, 4, 4, 17, 10, 3, 1, 1, 1, false},
    {4, 4, 4, 32, 64, 3, 1, 2, 1, false},
    {2, 3, 3, 1056, 8, 3, 1, 1, 1, false}, // more channels than a room holds
    {4, 12, 13, 3, 16, 3, 1, 1, 1, false}, // the first layer
    {2, 29, 30, 3, 64, 7, 2, 1, 1, false},
    {5, 28, 28, 1, 32, 3, 1, 1, 1, true},
    {4, 13, 11, 24, 33, 3, 2, 1, 1, false},
    {3, 11, 11, 37, 19, 3, 1, 1, 1, false},
    {2, 16, 13, 16, 10, 5, 1, 2, 1, false},
    {4, 13, 13, 24, 24, 3, 1, 1, 24, false},
    {5, 7, 7, 96, 96, 3, 2, 1, 96, false},
    {5, 2, 2, 48, 48, 3, 1, 1, 48, false}, // more padding than pixels
    {2, 9, 9, 32, 64, 3, 1, 1, 2, false},
    {4, 8, 8, 64, 64, 3, 1, 1, 1, false, ALONE},
    {4, 8, 8, 64, 64, 3, 1, 1, 1, false, AFTER},
    {4, 8, 8, 64, 64, 3, 1, 1, 1, false, ADDED},
    {4, 8, 8, 64, 64, 3, 1, 1, 1, false, HALVES},
    {4, 9, 7, 24, 40, 1, 1, 1, 1, true, ALONE},
    {4, 9, 7, 24, 40, 1, 1, 1, 1, true, AFTER},
    {4, 9, 7, 24, 40, 1, 1, 1, 1, true, ADDED},
    {4, 9, 7, 24, 40, 1, 1, 1, 1, true, HALVES},
    {2, 4, 4, 17, 10, 3, 1, 1, 1, false, ALONE}, // rows are gathered
    {2, 4, 4, 17, 10, 3, 1, 1, 1, false, AFTER},
    {2, 4, 4, 17, 10, 3, 1, 1, 1, false, ADDED},
    {2, 4, 4, 17, 10, 3, 1, 1, 1, false, HALVES},
    {5, 7, 7, 96, 96, 3, 2, 1, 96, false, AFTER},
    {5, 7, 7, 96, 96, 3, 2, 1, 96, false, ADDED},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
static const uint32_t operations[] = {LS_OP_CONV2D, LS_OP_CONV2D_BACKWARD_DATA,
                                      LS_OP_CONV2D_BACKWARD_WEIGHTS};

static struct ls_tensor_desc desc_of(int64_t a, int64_t b, int64_t c, int64_t d)
{
    struct ls_tensor_desc desc = {.dtype = LS_F32, .ndims = 4, .dims = {a, b, c, d}};
    if (a == 0)
        desc = (struct ls_tensor_desc){.dtype = LS_F32, .ndims = 1, .dims = {d}};
    desc.layout.kind = LS_LAYOUT_PLAIN;
    desc.layout.bytes = ls_tensor_elements(&desc) * sizeof(float);
    return desc;
}

// In float32 and plain. A bias, and its gradient, are the last of inputs and outputs.
static struct test_request request_of(const struct row *r, uint32_t op)
{
    const int64_t span = (r->kernel - 1) * r->dilation + 1, s = r->stride;
    const int64_t oh = r->valid ? (r->h - span) / s + 1 : (r->h + s - 1) / s;
    const int64_t ow = r->valid ? (r->w - span) / s + 1 : (r->w + s - 1) / s;
    const int64_t rows_out = (oh - 1) * s + span - r->h, columns_out = (ow - 1) * s + span - r->w;
    struct test_request q = {.op = op, .input_count = 3, .output_count = 1};
    q.attributes.groups = r->groups;
    for (int i = 0; i < 2; i++) {
        q.attributes.strides[i] = r->stride;
        q.attributes.dilation[i] = r->dilation;
        const int64_t out = i ? columns_out : rows_out;
        q.attributes.padding[2 * i] = (int32_t)(out > 0 ? out / 2 : 0);
        q.attributes.padding[2 * i + 1] = (int32_t)(out > 0 ? out - out / 2 : 0);
    }
    const struct ls_tensor_desc x = desc_of(r->b, r->h, r->w, r->c),
                                y = desc_of(r->b, oh, ow, r->f),
                                w = desc_of(r->kernel, r->kernel, r->c / r->groups, r->f),
                                b = desc_of(0, 0, 0, r->f);
    const struct ls_tensor_desc forward[] = {x, w, b, y}, data[] = {y, w, x},
                                weights[] = {x, y, w, b};
    if (op == LS_OP_CONV2D)
        memcpy(q.arguments, forward, sizeof(forward));
    else if (op == LS_OP_CONV2D_BACKWARD_DATA)
        memcpy(q.arguments, data, sizeof(data));
    else
        memcpy(q.arguments, weights, sizeof(weights));
    q.input_count = op == LS_OP_CONV2D ? 3 : 2;
    q.output_count = op == LS_OP_CONV2D_BACKWARD_WEIGHTS ? 2 : 1;
    if (r->way == ALONE && op == LS_OP_CONV2D)
        q.arguments[--q.input_count] = y;
    if (r->way == ALONE && op == LS_OP_CONV2D_BACKWARD_WEIGHTS)
        q.output_count = 1;
    if (r->way == AFTER && op != LS_OP_CONV2D_BACKWARD_WEIGHTS) {
        q.attributes.epilogue = op == LS_OP_CONV2D ? LS_OP_ACTIVATION : LS_OP_ACTIVATION_BACKWARD;
        q.attributes.epilogue_activation = LS_RELU;
        if (op == LS_OP_CONV2D_BACKWARD_DATA)
            q.arguments[++q.input_count] = x;
    }
    return q;
}

// ---- Running ----

struct run {
    const struct row *row;
    struct ls_device *device;
    struct test_request request;
    void *values[TEST_ARGUMENTS]; // float32 and plain; owned
    char implementation[64];
};

static uint32_t count_of(const struct run *run)
{
    return run->request.input_count + run->request.output_count;
}

static float draw(uint64_t seed, uint64_t i)
{
    return (float)((int)(ls_mix64(seed, i) >> 60) - 8) * 0.25f;
}

static void start(struct run *run, const struct row *row, uint32_t op, uint32_t threads)
{
    const struct ls_device_config config = {.struct_size = sizeof(config), .threads = threads};
    run->row = row;
    run->request = request_of(row, op);
    ck_assert_int_eq(ls_device_open_state(plugin->interface, &host.host, &config, &run->device),
                     LS_OK);
    for (uint32_t k = 0; k < count_of(run); k++) {
        const uint64_t elements = ls_tensor_elements(&run->request.arguments[k]);
        float *values = run->values[k] = malloc(elements * sizeof(float));
        ck_assert_ptr_nonnull(values);
        for (uint64_t i = 0; i < elements; i++)
            values[i] = draw(k, i);
    }
}

static void finish(struct run *run)
{
    for (uint32_t k = 0; k < count_of(run); k++)
        free(run->values[k]);
    ls_device_close(run->device);
}

static void *allocate(const struct ls_tensor_desc *desc)
{
    void *memory = NULL;
    ck_assert_int_eq(posix_memalign(&memory, LS_ALIGNMENT, desc->layout.bytes), 0);
    memset(memory, 0xff, desc->layout.bytes);
    return memory;
}

static void launch(struct run *run, const struct ls_kernel_answer *answer, void *const *arguments,
                   uint32_t count)
{
    const struct ls_device_interface *d = plugin->interface;
    void *scratch = (void *)d->memory->allocate(run->device, answer->scratch_bytes);
    memset(scratch, 0xff, answer->scratch_bytes);
    ck_assert_int_eq(test_launch(d, run->device, answer->kernel, arguments, count, scratch), LS_OK);
    d->memory->release(run->device, scratch);
    d->kernels->release(run->device, answer->kernel);
}

// `request` gets the layouts that were answered.
static void prepare(struct run *run, struct test_request *request, struct ls_kernel_answer *answer)
{
    const int32_t status = test_prepare(plugin->interface, run->device, request, answer);
    ck_assert_msg(status == LS_OK, "%s: %s", ls_op_name(request->op), host.message);
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        request->arguments[i].layout = answer->layouts[i];
}

static void convert(struct run *run, const struct ls_tensor_desc *from, void *source,
                    const struct ls_tensor_desc *to, void *target)
{
    struct test_request request = {
        .op = LS_OP_CONVERT, .input_count = 1, .output_count = 1, .arguments = {*from, *to}};
    struct ls_kernel_answer answer;
    prepare(run, &request, &answer);
    launch(run, &answer, (void *const[]){source, target}, 2);
}

static void go(struct run *run, uint32_t dtype)
{
    const uint32_t op = run->request.op, inputs = run->request.input_count;
    struct test_request request = run->request;
    struct ls_kernel_answer answer;
    void *arguments[TEST_ARGUMENTS];
    for (uint32_t i = 0; i < count_of(run) && dtype != LS_F32; i++) {
        struct ls_tensor_desc *desc = &request.arguments[i];
        const bool gradient = op == LS_OP_CONV2D_BACKWARD_WEIGHTS && i >= inputs;
        desc->dtype = gradient && run->row->way != HALVES ? LS_F32 : dtype;
        desc->layout.bytes = ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype);
        if (i == (op == LS_OP_CONV2D_BACKWARD_WEIGHTS ? 2 : 1)) // w or dw
            desc->layout = (struct ls_layout){.kind = LS_LAYOUT_ANY};
    }
    if (run->row->way == ADDED && dtype != LS_F32)
        request.accumulate = (UINT32_C(1) << request.output_count) - 1;
    prepare(run, &request, &answer);
    snprintf(run->implementation, sizeof(run->implementation), "%s", answer.implementation);
    for (uint32_t i = 0; i < count_of(run); i++) {
        arguments[i] = allocate(&request.arguments[i]);
        if (i < inputs || request.accumulate)
            convert(run, &run->request.arguments[i], run->values[i], &request.arguments[i],
                    arguments[i]);
    }
    launch(run, &answer, arguments, count_of(run));
    for (uint32_t i = 0; i < count_of(run); i++) {
        if (i >= inputs)
            convert(run, &request.arguments[i], arguments[i], &run->request.arguments[i],
                    run->values[i]);
        free(arguments[i]);
    }
}

static bool is_copied(const struct run *run)
{
    return strstr(run->implementation, "float32 copies") != NULL;
}

static bool has_native(uint32_t op)
{
    struct run run = {0};
    start(&run, &rows[0], op, 2);
    go(&run, LS_BF16);
    const bool native = !is_copied(&run);
    finish(&run);
    return native;
}

static float rounded(float value)
{
    return ls_half_get(LS_BF16, ls_half_of(LS_BF16, value));
}

// A result that is added may be rounded before, too.
static void check_equal(const struct run *wide, const struct run *got, uint32_t at)
{
    const bool gradient = wide->request.op == LS_OP_CONV2D_BACKWARD_WEIGHTS;
    const bool exact = gradient && wide->row->way != HALVES, added = wide->row->way == ADDED;
    const float *values = got->values[at], *wanted = wide->values[at];
    for (uint64_t i = 0; i < ls_tensor_elements(&wide->request.arguments[at]); i++) {
        const float before = added ? draw(at, i) : 0;
        const float value = exact ? wanted[i] + before : rounded(wanted[i] + before);
        const float twice = exact ? value : rounded(rounded(wanted[i]) + before);
        ck_assert_msg(values[i] == value || values[i] == twice,
                      "%s, %s: argument %u has %g at %llu, not %g", ls_op_name(got->request.op),
                      got->implementation, at, (double)values[i], (unsigned long long)i,
                      (double)value);
    }
}

LOOP_TEST(convolutions_in_bfloat16_are_those_of_float32_rounded_once, 0, ROWS)
{
    const struct row *row = &rows[_i];
    for (int k = 0; k < 3; k++) {
        const bool native = has_native(operations[k]);
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct run wide = {0}, got = {0};
            start(&wide, row, operations[k], threads);
            start(&got, row, operations[k], threads);
            go(&wide, LS_F32);
            go(&got, LS_BF16);
            for (uint32_t i = got.request.input_count; i < count_of(&got); i++)
                check_equal(&wide, &got, i);
            ck_assert_msg(!native || !is_copied(&got), "%s, row %d: %s", ls_op_name(operations[k]),
                          _i, got.implementation);
            finish(&wide);
            finish(&got);
        }
    }
}

int main(void)
{
    setenv("OMP_WAIT_POLICY", "passive", 0); // threads that spin only steal time from other tests
    plugin = test_plugin_open("device-cpu");
    if (!plugin)
        return TEST_SKIPPED;
    test_host_init(&host, plugin);
    return test_suite_run("convolutions of halves on cpu");
}
