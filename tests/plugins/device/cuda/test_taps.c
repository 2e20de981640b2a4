// SPDX-License-Identifier: Apache-2.0
// Who does which convolution of device `cuda`, on the fake. NOT A GPU. That the results are right is the device suite's.
#include "tests/plugins/device/cuda/on_fake.h"

#include <check.h>

static struct ls_device *device;

enum { BATCH = 64, SIDE = 28, FILTERS = 32 };

struct convolution {
    int64_t rows, columns, channels, groups;
    bool own;
};

static const struct convolution convolutions[] = {
    {3, 3, 1, 1, true},  {3, 3, 3, 1, true},   {5, 5, 1, 1, true},  {3, 2, 4, 1, true},
    {1, 1, 1, 1, true},  {7, 7, 1, 1, false},  {7, 7, 3, 1, false}, {3, 3, 4, 1, false},
    {1, 1, 8, 1, false}, {3, 3, 32, 1, false}, {3, 3, 2, 2, false},
};

#define CONVOLUTIONS (sizeof(convolutions) / sizeof(convolutions[0]))

// Forward with a bias, the gradient of the weights with that of the bias, or that of x; gradients of weights are float32.
static struct test_request request_of(const struct convolution *c, uint32_t op, uint32_t dtype)
{
    const int64_t rows = SIDE - c->rows + 1, columns = SIDE - c->columns + 1;
    const bool weights = op == LS_OP_CONV2D_BACKWARD_WEIGHTS,
               data = op == LS_OP_CONV2D_BACKWARD_DATA;
    const uint32_t of_weights = weights ? LS_F32 : dtype;
    const struct ls_tensor_desc x = {
        .dtype = dtype, .ndims = 4, .dims = {BATCH, SIDE, SIDE, c->channels}};
    const struct ls_tensor_desc y = {
        .dtype = dtype, .ndims = 4, .dims = {BATCH, rows, columns, FILTERS}};
    const struct ls_tensor_desc w = {
        .dtype = of_weights,
        .ndims = 4,
        .dims = {c->rows, c->columns, c->channels / c->groups, FILTERS}};
    const struct ls_tensor_desc b = {.dtype = of_weights, .ndims = 1, .dims = {FILTERS}};
    struct test_request out = {
        .op = op,
        .attributes = {.strides = {1, 1}, .dilation = {1, 1}, .groups = (int32_t)c->groups},
        .input_count = op == LS_OP_CONV2D ? 3 : 2,
        .output_count = weights ? 2 : 1,
        .arguments = {data ? y : x, weights ? y : w,
                      op == LS_OP_CONV2D ? b
                      : weights          ? w
                                         : x,
                      weights ? b : y},
    };
    return out;
}

static struct ls_kernel_answer prepared(const struct convolution *c, uint32_t op, uint32_t dtype)
{
    const struct test_request request = request_of(c, op, dtype);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    ck_assert_msg(test_prepare(ops, device, &request, &answer) == LS_OK, "%s", host.message);
    ops->kernels->release(device, answer.kernel);
    return answer;
}

TEST(own_kernels_do_what_has_few_taps_but_no_gradient_of_x)
{
    static const uint32_t types[] = {LS_F32, LS_BF16, LS_F16};
    for (size_t i = 0; i < CONVOLUTIONS; i++)
        for (size_t k = 0; k < 3; k++) {
            const struct convolution *c = &convolutions[i];
            const struct ls_kernel_answer forward = prepared(c, LS_OP_CONV2D, types[k]);
            const struct ls_kernel_answer weights =
                prepared(c, LS_OP_CONV2D_BACKWARD_WEIGHTS, types[k]);
            const struct ls_kernel_answer data = prepared(c, LS_OP_CONV2D_BACKWARD_DATA, types[k]);
            ck_assert_msg((strcmp(forward.implementation, "own") == 0) == c->own, "case %zu: %s", i,
                          forward.implementation);
            ck_assert_msg((strcmp(weights.implementation, "own") == 0) == c->own, "case %zu: %s", i,
                          weights.implementation);
            ck_assert_str_ne(data.implementation, "own");
            ck_assert_uint_eq(forward.slow + weights.slow, 0);
        }
}

TEST(they_need_no_copies_of_halves_for_a_gradient_in_float32)
{
    const uint64_t dy = (uint64_t)BATCH * 26 * 26 * FILTERS * sizeof(uint16_t);
    for (uint32_t dtype = LS_F32; dtype; dtype = dtype == LS_F32 ? LS_BF16 : 0) {
        const struct ls_kernel_answer answer =
            prepared(&convolutions[0], LS_OP_CONV2D_BACKWARD_WEIGHTS, dtype);
        ck_assert_uint_gt(answer.scratch_bytes, 0);
        ck_assert_uint_lt(answer.scratch_bytes, dy / 2);
    }
}

static void set_up(void)
{
    test_host_init(&host, plugin);
    device = opened(0);
}

static void close_device(void)
{
    ops->close(device);
}

TEST_FIXTURE(set_up, close_device);

int main(void)
{
    return run_on_fake("convolutions of device cuda on the fake");
}
