// SPDX-License-Identifier: Apache-2.0
// Which of the engines that cuDNN offers device `cuda` takes for a convolution and for attention, on the fake (dnn_graph.c). NOT A
// GPU. What they compute is the device suite's business.
#include "core/plugin/device.h"
#include "tests/support/cuda-fake/fake.h"
#include "tests/support/device_calls.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>

static const struct ls_plugin *plugin;
static const struct ls_device_interface *ops;
static struct test_host host;

static struct ls_device *opened(const char *options)
{
    const struct ls_device_config config = {.struct_size = sizeof(config)};
    struct ls_device *device = NULL;
    ck_assert(test_host_set(&host, options));
    ck_assert_msg(ls_device_open_state(ops, &host.host, &config, &device) == LS_OK, "%s",
                  host.message);
    return device;
}

// x: (2, 8, 8, 8), w: (3, 3, 8, 5), y: (2, 6, 6, 5); with a bias and ReLU where `fused`. Fewer channels own kernels would take.
static struct test_request request_of(uint32_t dtype, int fused)
{
    const struct ls_tensor_desc x = {.dtype = dtype, .ndims = 4, .dims = {2, 8, 8, 8}};
    const struct ls_tensor_desc w = {.dtype = dtype, .ndims = 4, .dims = {3, 3, 8, 5}};
    const struct ls_tensor_desc bias = {.dtype = dtype, .ndims = 1, .dims = {5}};
    const struct ls_tensor_desc y = {.dtype = dtype, .ndims = 4, .dims = {2, 6, 6, 5}};
    struct test_request out = {
        .op = LS_OP_CONV2D,
        .attributes = {.strides = {1, 1},
                       .dilation = {1, 1},
                       .groups = 1,
                       .epilogue = fused ? LS_OP_ACTIVATION : LS_OP_NONE,
                       .epilogue_activation = fused ? LS_RELU : LS_LINEAR},
        .input_count = fused ? 3 : 2,
        .output_count = 1,
        .arguments = {x, w, fused ? bias : y, y},
    };
    return out;
}

static void assert_by(struct ls_device *device, uint32_t dtype, int fused, const char *by)
{
    const struct test_request request = request_of(dtype, fused);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    ck_assert_msg(test_prepare(ops, device, &request, &answer) == LS_OK, "%s", host.message);
    ck_assert_msg(strncmp(answer.implementation, by, strlen(by)) == 0, "by %s, not by %s",
                  answer.implementation, by);
    ck_assert_uint_eq(answer.slow, 0);
    ops->kernels->release(device, answer.kernel);
}

// Engines 1 to 6 must not be taken, 7 makes 0 of a NaN in its ReLU, 8 is for tensor cores.
START_TEST(the_first_engine_that_keeps_bits_precision_and_nan_is_taken)
{
    struct ls_device *device = opened("");
    assert_by(device, LS_F32, 0, "cuDNN engine 7");
    assert_by(device, LS_F32, 1, "cuDNN engine 9 + bias + relu");
    assert_by(device, LS_BF16, 0, "cuDNN engine 7");
    assert_by(device, LS_F16, 1, "cuDNN engine 8 + bias + relu");
    ls_device_close(device);
}
END_TEST

START_TEST(with_tf32_engines_that_use_it_are_first)
{
    struct ls_device *device = opened("tf32=on");
    assert_by(device, LS_F32, 0, "cuDNN engine 8");
    assert_by(device, LS_F32, 1, "cuDNN engine 8 + bias + relu");
    assert_by(device, LS_BF16, 0, "cuDNN engine 7");
    ls_device_close(device);
}
END_TEST

START_TEST(without_a_fused_engine_bias_and_relu_are_a_pass)
{
    setenv("CUDA_FAKE_NO_FUSED", "1", 1);
    struct ls_device *device = opened("");
    const struct test_request request = request_of(LS_F32, 1);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    assert_by(device, LS_F32, 1, "cuDNN engine 7");
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_OK);
    ck_assert_ptr_null(strstr(answer.implementation, "relu"));
    ops->kernels->release(device, answer.kernel);
    ls_device_close(device);
}
END_TEST

START_TEST(a_cudnn_without_its_graph_api_is_refused)
{
    const struct ls_device_config config = {.struct_size = sizeof(config)};
    struct ls_device *device = NULL;
    setenv("CUDA_FAKE_CUDNN_VERSION", "8907", 1);
    ck_assert(test_host_set(&host, ""));
    ck_assert_int_eq(ls_device_open_state(ops, &host.host, &config, &device), LS_UNAVAILABLE);
    ck_assert_str_eq(host.message, "cuDNN 8907 is too old: install 90000 or newer");
}
END_TEST

START_TEST(a_plan_is_made_once_and_goes_with_the_device)
{
    struct double_counts first, second;
    struct ls_device *device = opened("");
    assert_by(device, LS_F32, 1, "cuDNN engine 9");
    double_count(&first);
    ck_assert_uint_gt(first.descriptors, 0);
    assert_by(device, LS_F32, 1, "cuDNN engine 9");
    double_count(&second);
    ck_assert_uint_eq(first.descriptors, second.descriptors);
    ls_device_close(device);
    double_count(&second);
    ck_assert_uint_eq(second.descriptors, 0);
}
END_TEST

// Once a replica has timed, others take what it took, though it would end otherwise for them.
START_TEST(the_fastest_is_taken_by_all_replicas_where_plans_are_timed)
{
    setenv("CUDA_FAKE_SLOW_ENGINE", "7", 1);
    struct ls_device *device = opened("timing=on"), *other = opened("timing=on");
    struct ls_device *untimed = opened("timing=off");
    assert_by(device, LS_F32, 0, "cuDNN engine 9");
    assert_by(device, LS_F32, 1, "cuDNN engine 9 + bias + relu");
    setenv("CUDA_FAKE_SLOW_ENGINE", "9", 1);
    assert_by(other, LS_F32, 0, "cuDNN engine 9");
    assert_by(other, LS_F16, 0, "cuDNN engine ");
    assert_by(untimed, LS_F32, 0, "cuDNN engine 7");
    ls_device_close(device);
    ls_device_close(other);
    ls_device_close(untimed);
}
END_TEST

// ---- Attention ----

// y of (2, 5, 3, depth) and `saved`; backward dq, dk and dv.
static void prepare_attention(struct ls_device *device, uint32_t op, uint32_t dtype, int64_t depth,
                              float rate, uint32_t accumulate, uint64_t saved_bytes,
                              struct ls_kernel_answer *out)
{
    const struct ls_tensor_desc x = {.dtype = dtype, .ndims = 4, .dims = {2, 5, 3, depth}};
    const struct ls_tensor_desc saved = {
        .dtype = LS_U8,
        .ndims = 1,
        .dims = {(int64_t)saved_bytes},
        .layout = {.kind = op == LS_OP_ATTENTION ? LS_LAYOUT_ANY : LS_LAYOUT_PLAIN,
                   .bytes = saved_bytes}};
    struct test_request request = {.op = op,
                                   .attributes = {.rate = rate, .causal = 1},
                                   .input_count = 3,
                                   .output_count = 2,
                                   .arguments = {x, x, x, x, saved},
                                   .accumulate = accumulate};
    if (op == LS_OP_ATTENTION_BACKWARD) {
        request.input_count = 5;
        request.output_count = 3;
        for (int i = 5; i < 8; i++)
            request.arguments[i] = x;
    }
    *out = (struct ls_kernel_answer){.struct_size = sizeof(*out)};
    ck_assert_msg(test_prepare(ops, device, &request, out) == LS_OK, "%s%s", test_refusal,
                  host.message);
}

// Engines 2 and 6 have no plan and a workspace that is too large, 1 gives other bits, 7 makes 0 of a NaN. What is saved: 30
// statistics, to a multiple of 64 bytes, and y.
START_TEST(attention_is_cudnns_where_its_bits_and_precision_are_kept)
{
    static const char composed[] = "cuBLASLt, own softmax", plan[] = "cuDNN engine 8";
    static const struct {
        const char *options;
        uint32_t dtype;
        int64_t depth;
        float rate;
        uint32_t accumulate;
        uint64_t saved;
        const char *forward, *backward;
    } rows[] = {
        {"", LS_BF16, 8, 0, 0, 128 + 480, plan, plan},
        {"", LS_F16, 128, 0, 0, 128 + 7680, plan, plan},
        {"", LS_BF16, 8, 0, 2, 128 + 480, plan, composed}, // dk is added to
        {"", LS_F16, 136, 0, 0, 0, plan, composed}, // no gradients of as many elements
        {"", LS_BF16, 12, 0, 0, 0, composed, composed},
        {"", LS_BF16, 8, 0.5f, 0, 0, composed, composed},
        {"", LS_F32, 8, 0, 0, 0, composed, composed},
        {"tf32=on", LS_F32, 8, 0, 0, 0, plan, composed},
        {"fused_attention=off", LS_BF16, 8, 0, 0, 0, composed, composed},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ls_device *device = opened(rows[i].options);
        struct ls_kernel_answer forward, backward;
        prepare_attention(device, LS_OP_ATTENTION, rows[i].dtype, rows[i].depth, rows[i].rate, 0, 0,
                          &forward);
        ck_assert_msg(strcmp(forward.implementation, rows[i].forward) == 0, "row %zu: %s", i,
                      forward.implementation);
        ck_assert_uint_eq(forward.saved_bytes, rows[i].saved);
        prepare_attention(device, LS_OP_ATTENTION_BACKWARD, rows[i].dtype, rows[i].depth,
                          rows[i].rate, rows[i].accumulate, forward.saved_bytes, &backward);
        ck_assert_msg(strcmp(backward.implementation, rows[i].backward) == 0, "row %zu: %s", i,
                      backward.implementation);
        ck_assert_int_eq(backward.used_inputs >> 4 & 1, rows[i].backward == plan);
        ops->kernels->release(device, forward.kernel);
        ops->kernels->release(device, backward.kernel);
        ls_device_close(device);
    }
}
END_TEST

// ---- NaN ----

static float last_of_fused(struct ls_device *device, float first_of_x)
{
    float x[2 * 8 * 8 * 8] = {0}, y[2 * 6 * 6 * 5];
    const struct test_request request = request_of(LS_F32, 1);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    void *arguments[4];
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++)
        x[i] = first_of_x;
    ck_assert_msg(test_prepare(ops, device, &request, &answer) == LS_OK, "%s", host.message);
    for (uint32_t i = 0; i < 4; i++)
        arguments[i] = (void *)ops->memory->allocate(
            device, ls_tensor_elements(&request.arguments[i]) * sizeof(float));
    void *scratch = (void *)ops->memory->allocate(device, answer.scratch_bytes + 1);
    ck_assert_int_eq(
        ops->memory->copy(device, ls_host_memory(arguments[0]), ls_host_memory(x), sizeof(x), NULL),
        LS_OK);
    ck_assert_int_eq(test_launch(ops, device, answer.kernel, arguments, 4, scratch), LS_OK);
    ck_assert_int_eq(
        ops->memory->copy(device, ls_host_memory(y), ls_host_memory(arguments[3]), sizeof(y), NULL),
        LS_OK);
    ops->kernels->release(device, answer.kernel);
    for (int i = 0; i < 4; i++)
        ops->memory->release(device, arguments[i]);
    ops->memory->release(device, scratch);
    return y[sizeof(y) / sizeof(y[0]) - 1];
}

START_TEST(a_nan_comes_out_of_a_convolution_with_relu)
{
    static const char *const options[] = {"", "timing=on", "tf32=on"};
    for (int i = 0; i < 3; i++) {
        struct ls_device *device = opened(options[i]);
        ck_assert_float_eq(last_of_fused(device, 1), 0);
        ck_assert_msg(isnan(last_of_fused(device, NAN)), "%s", options[i]);
        ls_device_close(device);
    }
}
END_TEST

int main(void)
{
    printf("on the fake of CUDA: NOT A GPU\n");
    plugin = test_plugin_open("device-cuda");
    if (!plugin)
        return 1; // it says why; the fake is built wherever the tests are
    ops = plugin->interface;
    test_host_init(&host, plugin);
    Suite *suite = suite_create("convolutions of device cuda on the fake");
    TCase *tests = tcase_create("convolutions");
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, the_first_engine_that_keeps_bits_precision_and_nan_is_taken);
    tcase_add_test(tests, with_tf32_engines_that_use_it_are_first);
    tcase_add_test(tests, without_a_fused_engine_bias_and_relu_are_a_pass);
    tcase_add_test(tests, a_cudnn_without_its_graph_api_is_refused);
    tcase_add_test(tests, a_plan_is_made_once_and_goes_with_the_device);
    tcase_add_test(tests, the_fastest_is_taken_by_all_replicas_where_plans_are_timed);
    tcase_add_test(tests, attention_is_cudnns_where_its_bits_and_precision_are_kept);
    tcase_add_test(tests, a_nan_comes_out_of_a_convolution_with_relu);
    return test_suite_run(suite);
}
