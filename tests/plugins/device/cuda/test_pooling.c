// SPDX-License-Identifier: Apache-2.0
// Who does which pooling of device `cuda`, on the fake. NOT A GPU. That the results are right is the device suite's.
#include "plugins/device/cuda/engine/division.h"
#include "tests/plugins/device/cuda/on_fake.h"

#include <check.h>
#include <stdbool.h>

// ---- Who does it ----

// A window of 3x3 by steps of 2, over 9 x 9 padded by 1 on both sides, or over 8 x 8 padded only behind.
struct pooling {
    const char *by;
    uint32_t op;
    uint32_t dtype; // 0: float32
    bool one_side, saves, relu, adds;
};

static const struct pooling poolings[] = {
    {.by = "cuDNN", .op = LS_OP_AVERAGE_POOL2D},
    {.by = "cuDNN", .op = LS_OP_AVERAGE_POOL2D, .dtype = LS_BF16},
    {.by = "cuDNN", .op = LS_OP_AVERAGE_POOL2D, .dtype = LS_F16},
    {.by = "cuDNN", .op = LS_OP_AVERAGE_POOL2D, .adds = true},
    {.by = "own", .op = LS_OP_AVERAGE_POOL2D, .adds = true, .dtype = LS_F16},
    {.by = "own", .op = LS_OP_AVERAGE_POOL2D, .one_side = true},
    {.by = "own", .op = LS_OP_AVERAGE_POOL2D, .relu = true},
    {.by = "cuDNN", .op = LS_OP_AVERAGE_POOL2D_BACKWARD},
    {.by = "cuDNN", .op = LS_OP_AVERAGE_POOL2D_BACKWARD, .dtype = LS_BF16},
    {.by = "cuDNN", .op = LS_OP_AVERAGE_POOL2D_BACKWARD, .adds = true},
    {.by = "own", .op = LS_OP_AVERAGE_POOL2D_BACKWARD, .adds = true, .dtype = LS_BF16},
    {.by = "own", .op = LS_OP_AVERAGE_POOL2D_BACKWARD, .one_side = true},
    {.by = "cuDNN", .op = LS_OP_MAX_POOL2D},
    {.by = "cuDNN", .op = LS_OP_MAX_POOL2D, .dtype = LS_F16},
    {.by = "own", .op = LS_OP_MAX_POOL2D, .one_side = true},
    {.by = "own", .op = LS_OP_MAX_POOL2D, .saves = true},
    {.by = "own", .op = LS_OP_MAX_POOL2D_BACKWARD},
};

#define POOLINGS (sizeof(poolings) / sizeof(poolings[0]))

static struct test_request request_of(const struct pooling *p)
{
    const uint32_t dtype = p->dtype ? p->dtype : LS_F32;
    const int32_t before = !p->one_side;
    const int64_t in = p->one_side ? 8 : 9, side = p->one_side ? 4 : 5;
    const struct ls_tensor_desc x = {.dtype = dtype, .ndims = 4, .dims = {2, in, in, 3}};
    const struct ls_tensor_desc y = {.dtype = dtype, .ndims = 4, .dims = {2, side, side, 3}};
    const struct ls_tensor_desc saved = {.dtype = LS_U8, .ndims = 1};
    struct test_request out = {
        .op = p->op,
        .attributes = {.kernel = {3, 3},
                       .strides = {2, 2},
                       .padding = {before, 1, before, 1},
                       .epilogue = p->relu ? LS_OP_ACTIVATION : LS_OP_NONE,
                       .epilogue_activation = p->relu ? LS_RELU : LS_LINEAR},
        .input_count = p->op == LS_OP_MAX_POOL2D_BACKWARD ? 4 : 1,
        .output_count = p->saves ? 2 : 1,
        .accumulate = p->adds,
    };
    const struct ls_tensor_desc arguments[3][5] = {
        {x, y, saved}, {y, x}, {y, x, y, saved, x}}; // forward, of means, of the largest
    memcpy(out.arguments,
           arguments[p->op == LS_OP_AVERAGE_POOL2D_BACKWARD ? 1
                     : p->op == LS_OP_MAX_POOL2D_BACKWARD   ? 2
                                                            : 0],
           sizeof(arguments[0]));
    return out;
}

// All are released again, with what they made of cuDNN.
static void assert_done_by(struct ls_device *device, const struct pooling *p, const char *by)
{
    const struct test_request request = request_of(p);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    struct double_counts counts;
    ck_assert_msg(test_prepare(ops, device, &request, &answer) == LS_OK, "%s", host.message);
    ck_assert_msg(strcmp(answer.implementation, by) == 0, "case %d: by %s, not by %s",
                  (int)(p - poolings), answer.implementation, by);
    ck_assert_uint_eq(answer.slow, 0);
    ops->kernels->release(device, answer.kernel);
    double_count(&counts);
    ck_assert_uint_eq(counts.descriptors, 0);
}

TEST(cudnn_pools_what_it_can_and_own_kernels_the_rest)
{
    struct ls_device *device = opened(0);
    for (size_t i = 0; i < POOLINGS; i++)
        assert_done_by(device, &poolings[i], poolings[i].by);
    ls_device_close(device);
}

TEST(own_kernels_pool_types_that_cudnn_does_not_know)
{
    setenv("CUDA_FAKE_NO_HALVES", "1", 1);
    struct ls_device *device = opened(0);
    for (size_t i = 0; i < POOLINGS; i++)
        assert_done_by(device, &poolings[i], poolings[i].dtype ? "own" : poolings[i].by);
    ls_device_close(device);
}

// ---- What backward reads ----

// Inputs: dy, x, y, saved, and x again, whose activation follows.
static uint32_t inputs_of_backward(struct ls_device *device, uint32_t activation, bool adds)
{
    const struct pooling p = {.op = LS_OP_MAX_POOL2D_BACKWARD, .adds = adds};
    struct test_request request = request_of(&p);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    request.attributes.epilogue = LS_OP_ACTIVATION_BACKWARD;
    request.attributes.epilogue_activation = activation;
    request.arguments[5] = request.arguments[4];
    request.arguments[4] = request.arguments[1];
    request.input_count = 5;
    ck_assert_msg(test_prepare(ops, device, &request, &answer) == LS_OK, "%s", host.message);
    ops->kernels->release(device, answer.kernel);
    return answer.used_inputs;
}

TEST(a_relu_behind_max_pooling_reads_y_instead_of_x)
{
    struct ls_device *device = opened(0);
    ck_assert_uint_eq(inputs_of_backward(device, LS_RELU, false), 1 | 4 | 8);
    ck_assert_uint_eq(inputs_of_backward(device, LS_RELU6, false), 1 | 4 | 8);
    ck_assert_uint_eq(inputs_of_backward(device, LS_TANH, false), 1 | 8 | 16);
    ck_assert_uint_eq(inputs_of_backward(device, LS_RELU, true), 1 | 8 | 16);
    ls_device_close(device);
}

// ---- Division ----

TEST(division_by_a_known_number_is_exact)
{
    static const uint32_t divisors[] = {1,    2,     3,          5,          7,         10,
                                        26,   641,   65535,      65537,      715827883, 1073741823,
                                        1024, 46341, 2147483647, 2147483648, 1431655765};
    for (size_t i = 0; i < sizeof(divisors) / sizeof(divisors[0]); i++) {
        const uint32_t by = divisors[i], most = INT32_MAX, step = most / 5000;
        const struct cuda_divisor d = cuda_divisor_of(by);
        for (uint64_t n = 0; n <= most; n += step) {
            const uint32_t below = (uint32_t)n / by * by; // where the quotient changes
            const uint32_t numbers[] = {(uint32_t)n, below, below ? below - 1 : 0};
            for (int k = 0; k < 3; k++)
                ck_assert_msg(cuda_divide(numbers[k], d) == numbers[k] / by, "%u / %u", numbers[k],
                              by);
        }
        ck_assert_uint_eq(cuda_divide(most, d), most / by);
    }
}

// ---- Running ----

static int warnings;

static void count_warnings(const struct ls_host *of, uint32_t level, const char *message)
{
    (void)of;
    warnings += level == LS_LOG_WARN && strstr(message, "the library refuses") != NULL;
}

// Twice with one kernel: x and y are of one window; what it makes is added to `out`.
static void run_twice(uint32_t op, const float *in, float *out)
{
    const bool backward = op == LS_OP_AVERAGE_POOL2D_BACKWARD;
    const struct ls_tensor_desc x = {.dtype = LS_F32, .ndims = 4, .dims = {1, 2, 2, 1}};
    const struct ls_tensor_desc y = {.dtype = LS_F32, .ndims = 4, .dims = {1, 1, 1, 1}};
    const struct test_request request = {
        .op = op,
        .attributes = {.kernel = {2, 2}, .strides = {1, 1}},
        .input_count = 1,
        .output_count = 1,
        .accumulate = 1,
        .arguments = {backward ? y : x, backward ? x : y},
    };
    const uint64_t bytes[2] = {(backward ? 1 : 4) * sizeof(float),
                               (backward ? 4 : 1) * sizeof(float)};
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    struct ls_device *device = opened(0);
    void *arguments[2] = {(void *)ops->memory->allocate(device, bytes[0]),
                          (void *)ops->memory->allocate(device, bytes[1])};
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_OK);
    ck_assert_str_eq(answer.implementation, "cuDNN");
    ck_assert_int_eq(
        ops->memory->copy(device, ls_host_memory(arguments[0]), ls_host_memory(in), bytes[0], NULL),
        LS_OK);
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(arguments[1]), ls_host_memory(out),
                                       bytes[1], NULL),
                     LS_OK);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(test_launch(ops, device, answer.kernel, arguments, 2, NULL), LS_OK);
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(out), ls_host_memory(arguments[1]),
                                       bytes[1], NULL),
                     LS_OK);
    ops->kernels->release(device, answer.kernel);
    for (int i = 0; i < 2; i++)
        ops->memory->release(device, arguments[i]);
    ls_device_close(device);
}

static void assert_means(void)
{
    const float x[4] = {1, 2, 3, 6}, dy = 8;
    float y = 10, dx[4] = {0, 1, 2, 3};
    run_twice(LS_OP_AVERAGE_POOL2D, x, &y);
    ck_assert_float_eq(y, 10 + 3 + 3);
    run_twice(LS_OP_AVERAGE_POOL2D_BACKWARD, &dy, dx);
    for (int i = 0; i < 4; i++)
        ck_assert_float_eq(dx[i], (float)i + 2 + 2);
}

TEST(cudnn_adds_means_into_an_output)
{
    assert_means();
    ck_assert_int_eq(warnings, 0);
}

// Each kernel says it once, and does not ask a second time.
TEST(what_cudnn_refuses_at_a_launch_own_kernels_do)
{
    setenv("CUDA_FAKE_REFUSE", "1", 1);
    assert_means();
    ck_assert_int_eq(warnings, 2);
}

static void set_up(void)
{
    test_host_init(&host, plugin);
    host.host.log = count_warnings;
    warnings = 0;
}

TEST_FIXTURE(set_up, NULL);

int main(void)
{
    return run_on_fake("pooling of device cuda on the fake");
}
