// SPDX-License-Identifier: Apache-2.0
// The table of operations agrees with itself and with core/plugin/half.h, and requests are checked by it.
#include "core/operation/operation.h"

#include "core/plugin/half.h"
#include "tests/support/device_calls.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

static uint32_t most(const struct ls_operation_row *row, bool output)
{
    uint32_t least, count;
    ls_operation_count(row, output, &least, &count);
    return count;
}

// ---- The table ----

TEST(every_operation_has_a_row_and_a_name_of_its_own)
{
    for (uint32_t op = 0; op < LS_OP_COUNT; op++)
        for (uint32_t other = 0; other < op && ls_operation_row(op); other++)
            ck_assert_str_ne(ls_op_name(op), ls_op_name(other));
    for (uint32_t i = 0; i < LS_ACTIVATION_COUNT; i++)
        ck_assert_str_ne(ls_activation_name(i), "activation");
    ck_assert_str_eq(ls_op_name(LS_OP_COUNT), "unknown");
    ck_assert_ptr_null(ls_operation_row(LS_OP_COUNT));
    ck_assert_ptr_nonnull(ls_operation_row(LS_OP_COUNT - 1));
}

TEST(arguments_fit_into_a_request_and_optional_ones_are_the_last)
{
    for (uint32_t op = 1; op < LS_OP_COUNT; op++) {
        const struct ls_operation_row *row = ls_operation_row(op);
        if (!row) // a number that is not taken
            continue;
        ck_assert_uint_ge(most(row, false), 1);
        ck_assert_uint_ge(most(row, true), 1);
        ck_assert_uint_le(most(row, false) + most(row, true), LS_MAX_ARGUMENTS);
        for (uint32_t output = 0; output < 2; output++)
            for (uint32_t i = 1; i < most(row, output != 0); i++)
                ck_assert(!ls_operation_argument(row, i - 1, output != 0).optional ||
                          ls_operation_argument(row, i, output != 0).optional);
    }
}

// A gradient rule leads to backward operations that name the operation, and back.
TEST(backward_operations_belong_to_the_operation_that_lists_them)
{
    uint32_t found = 0, backward = 0;

    for (uint32_t op = 1; op < LS_OP_COUNT; op++) {
        const struct ls_operation_row *row = ls_operation_row(op);
        if (!row) // a number that is not taken
            continue;
        ck_assert((row->shapes != NULL) == (row->backward_of == LS_OP_NONE));
        ck_assert(row->gradient == LS_GRADIENT_NONE || row->backward[0] == LS_OP_NONE);
        backward += row->backward_of != LS_OP_NONE;
        for (uint32_t i = 0; i < LS_MAX_BACKWARD && row->backward[i]; i++, found++) {
            const struct ls_operation_row *other = ls_operation_row(row->backward[i]);
            const size_t length = strlen(row->name);
            ck_assert_uint_eq(other->backward_of, op);
            ck_assert_int_eq(strncmp(other->name, row->name, length), 0);
            ck_assert_int_eq(strncmp(other->name + length, "_backward", 9), 0);
            for (uint32_t k = 0; k < most(other, true); k++)
                ck_assert_int_eq(ls_operation_argument(other, k, true).source,
                                 LS_SOURCE_INPUT_GRADIENT);
        }
    }
    ck_assert_uint_eq(found, backward);
}

// ---- Requests ----

#define DESC(type, ...)                                                                     \
    (struct ls_tensor_desc)                                                                 \
    {                                                                                       \
        .dtype = (type), .ndims = sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
        .dims = {                                                                           \
            __VA_ARGS__                                                                     \
        }                                                                                   \
    }

static enum ls_status check_request(const struct test_request *request, char *why, size_t bytes)
{
    const struct ls_kernel_request asked = test_kernel_request(request);
    return ls_operation_check(&asked, false, why, bytes);
}

static uint32_t dtype_of(const struct test_request *request, uint32_t index)
{
    const struct ls_kernel_request asked = test_kernel_request(request);
    return ls_argument_dtype(&asked, index);
}

static void check_fits(const struct test_request *request)
{
    char why[256] = "";
    const enum ls_status status = check_request(request, why, sizeof(why));
    ck_assert_msg(status == LS_OK, "%s", why);
}

static void check_refused(const struct test_request *request, const char *text)
{
    char why[256] = "";
    ck_assert_int_eq(check_request(request, why, sizeof(why)), LS_UNSUPPORTED);
    ck_assert_msg(strstr(why, text) != NULL, "'%s' does not say '%s'", why, text);
}

static struct test_request convolution(void)
{
    return (struct test_request){
        .op = LS_OP_CONV2D,
        .attributes = {.strides = {1, 2}, .dilation = {1, 1}, .groups = 1},
        .input_count = 3,
        .output_count = 1,
        .arguments = {DESC(LS_F32, 5, 9, 8, 2), DESC(LS_F32, 3, 2, 2, 4), DESC(LS_F32, 4),
                      DESC(LS_F32, 5, 7, 4, 4)},
    };
}

TEST(a_convolution_is_checked_forward)
{
    struct test_request r = convolution();
    check_fits(&r);
    r.arguments[3].dims[1] = 8;
    check_refused(&r, "conv2d: y is (5, 8, 4, 4), expected (5, 7, 4, 4)");
    r = convolution();
    r.arguments[2].dims[0] = 5;
    check_refused(&r, "the bias must have 4 elements");
    r = convolution();
    r.attributes.groups = 3;
    check_refused(&r, "cannot be split into 3 groups");
    r = convolution();
    r.attributes.strides[1] = 0;
    check_refused(&r, "at least 1 along the columns");
    r = convolution();
    r.arguments[0].dims[3] = 0;
    check_refused(&r, "input 0 (x) is empty");
    r = convolution();
    r.arguments[1].dims[0] = INT64_C(1) << 50;
    check_refused(&r, "input 1 (w) is larger than any memory");
    r = convolution();
    r.arguments[1].dtype = LS_BF16;
    check_refused(&r, "input 1 (w) is not of the type");
    r = convolution();
    r.arguments[0].ndims = 0;
    check_refused(&r, "one to six dimensions");
    r = convolution();
    r.input_count = 1;
    check_refused(&r, "wrong number of inputs");
    r = convolution();
    r.input_count = LS_MAX_ARGUMENTS;
    check_refused(&r, "too many arguments");
    r = convolution();
    r.accumulate = 2;
    check_refused(&r, "adds into an output that it does not have");
    r = convolution();
    r.op = 999;
    check_refused(&r, "there is no operation 999");
}

TEST(a_backward_operation_fits_where_its_forward_operation_would)
{
    struct test_request r = convolution();
    r.op = LS_OP_CONV2D_BACKWARD_WEIGHTS;
    r.input_count = r.output_count = 2;
    r.arguments[1] = DESC(LS_F32, 5, 7, 4, 4);
    r.arguments[2] = DESC(LS_F32, 3, 2, 2, 4);
    r.arguments[3] = DESC(LS_F32, 4);
    check_fits(&r);
    r.accumulate = 3;
    check_fits(&r);
    r.arguments[3].dims[0] = 3;
    check_refused(&r, "the bias must have 4 elements");

    r = convolution();
    r.op = LS_OP_CONV2D_BACKWARD_DATA;
    r.input_count = 2;
    r.arguments[0] = DESC(LS_F32, 5, 7, 4, 4);
    r.arguments[2] = DESC(LS_F32, 5, 9, 8, 2);
    check_fits(&r);
    r.arguments[2].dims[1] = 10;
    check_refused(&r, "conv2d_backward_data: y is (5, 7, 4, 4), expected (5, 8, 4, 4)");

    // The gradient of y and y itself are shaped alike.
    r = (struct test_request){
        .op = LS_OP_SOFTMAX_BACKWARD,
        .input_count = 2,
        .output_count = 1,
        .arguments = {DESC(LS_F32, 3, 4), DESC(LS_F32, 4, 3), DESC(LS_F32, 3, 4)}};
    check_refused(&r, "input 1 (y) has not the shape of what it belongs to");
}

// A total has 2 C + 1 elements, also where it is the gradient of one.
TEST(totals_are_checked_forward_and_backward)
{
    struct test_request r = {.op = LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED,
                             .attributes = {.epsilon = 1e-3f},
                             .input_count = 4,
                             .output_count = 3,
                             .arguments = {DESC(LS_F32, 5, 2, 3), DESC(LS_F32, 3), DESC(LS_F32, 3),
                                           DESC(LS_F64, 7), DESC(LS_F32, 5, 2, 3), DESC(LS_F32, 3),
                                           DESC(LS_F32, 3)}};
    check_fits(&r);
    r.arguments[3].dims[0] = 6;
    check_refused(&r, "the moments must have 7 elements");
    r.arguments[3] = DESC(LS_F32, 7);
    check_refused(&r, "input 3 (moments) is not of the type");
    r.arguments[3] = DESC(LS_F64, 7);
    r.arguments[2].dims[0] = 2;
    check_refused(&r, "beta must have 3 elements");
    r.arguments[2].dims[0] = 3;
    r.accumulate = 2;
    check_refused(&r, "cannot be added to");

    r = (struct test_request){.op = LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA,
                              .input_count = 6,
                              .output_count = 1,
                              .arguments = {DESC(LS_F32, 5, 3), DESC(LS_F32, 3), DESC(LS_F32, 3),
                                            DESC(LS_F32, 3), DESC(LS_F32, 5, 3), DESC(LS_F64, 7),
                                            DESC(LS_F32, 5, 3)}};
    check_fits(&r);
    r.arguments[5].dims[0] = 8;
    check_refused(&r, "the moments must have 7 elements");
    r.arguments[5].dims[0] = 7;
    r.arguments[2].dims[0] = 4;
    check_refused(&r, "mean is (4,), expected (3,)");
}

TEST(an_epilogue_is_checked)
{
    struct test_request r = convolution();
    r.attributes.epilogue = LS_OP_ACTIVATION;
    r.attributes.epilogue_activation = LS_TANH;
    check_fits(&r);
    r.attributes.epilogue_activation = LS_ACTIVATION_COUNT;
    check_refused(&r, "no such activation for the epilogue");
    r.attributes.epilogue = LS_OP_ADD;
    check_refused(&r, "an epilogue is an activation");

    r = (struct test_request){
        .op = LS_OP_AVERAGE_POOL2D_BACKWARD,
        .attributes = {.kernel = {2, 2}, .strides = {2, 2}, .epilogue = LS_OP_ACTIVATION_BACKWARD},
        .input_count = 2,
        .output_count = 1,
        .arguments = {DESC(LS_F32, 1, 2, 2, 3), DESC(LS_F32, 1, 4, 4, 3), DESC(LS_F32, 1, 4, 4, 3)},
    };
    check_fits(&r);
    r.arguments[1].dims[3] = 2;
    check_refused(&r, "the input of the epilogue has not as many elements");
    r.input_count = 1;
    check_refused(&r, "wrong number of inputs");

    r = (struct test_request){
        .op = LS_OP_SGD_UPDATE,
        .attributes = {.epilogue = LS_OP_ACTIVATION},
        .input_count = 1,
        .output_count = 1,
        .arguments = {DESC(LS_F32, 7), DESC(LS_F32, 7)},
    };
    check_refused(&r, "it has no epilogue");
    r.attributes.epilogue = LS_OP_NONE;
    check_fits(&r);
    r.accumulate = 1;
    check_refused(&r, "output 0 (parameter) cannot be added to");
}

TEST(saved_bytes_have_any_dimensions)
{
    struct test_request r = {
        .op = LS_OP_MAX_POOL2D,
        .attributes = {.kernel = {2, 2}, .strides = {2, 2}},
        .input_count = 1,
        .output_count = 2,
        .arguments = {DESC(LS_F32, 3, 4, 4, 1), DESC(LS_F32, 3, 2, 2, 1), DESC(LS_U8, 0)},
    };
    check_fits(&r);
    r.arguments[2].dtype = LS_F32;
    check_refused(&r, "output 1 (saved) is not of the type");
}

// ---- Types ----

// The type that the check accepts for an argument, 0: none or several.
static uint32_t accepted(struct test_request request, uint32_t index)
{
    static const uint32_t types[] = {LS_F32, LS_F64, LS_I32, LS_U8, LS_BF16, LS_F16};
    uint32_t found = 0, count = 0;
    char why[256];

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        request.arguments[index].dtype = types[i];
        if (!check_request(&request, why, sizeof(why)) ||
            !strstr(why, "is not of the type that it has here")) {
            found = types[i];
            count++;
        }
    }
    return count == 1 ? found : 0;
}

// core/plugin/half.h has the rule for plugins, which see no table.
// The activations of a layer normalization are halves only where the device takes their casts, and
// all of them are; vectors stay float32.
TEST(halves_reach_an_operation_in_float32_by_its_casts)
{
    static const struct {
        uint32_t x, gamma, y;
        bool casts, fits;
    } rows[] = {
        {LS_F32, LS_F32, LS_F32, false, true},    {LS_F32, LS_F32, LS_F32, true, true},
        {LS_BF16, LS_F32, LS_BF16, true, true},   {LS_F16, LS_F32, LS_F16, true, true},
        {LS_BF16, LS_F32, LS_BF16, false, false}, {LS_BF16, LS_BF16, LS_BF16, true, false},
        {LS_BF16, LS_F32, LS_F32, true, false},   {LS_F32, LS_F32, LS_BF16, true, false},
        {LS_F16, LS_F32, LS_BF16, true, false},   {LS_I32, LS_F32, LS_I32, true, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct test_request r = {
            .op = LS_OP_LAYER_NORMALIZATION,
            .attributes = {.epsilon = 1e-3f},
            .input_count = 2,
            .output_count = 1,
            .arguments = {DESC(rows[i].x, 5, 3), DESC(rows[i].gamma, 3), DESC(rows[i].y, 5, 3)},
        };
        const struct ls_kernel_request asked = test_kernel_request(&r);
        char why[256] = "";
        const enum ls_status status = ls_operation_check(&asked, rows[i].casts, why, sizeof(why));
        ck_assert_msg(status == (rows[i].fits ? LS_OK : LS_UNSUPPORTED), "row %zu: %s", i, why);
    }
}

TEST(types_are_those_that_the_contract_gives_plugins)
{
    static const uint32_t types[] = {LS_F32, LS_BF16, LS_F16};
    uint32_t compared = 0;

    for (uint32_t op = 1; op < LS_OP_COUNT; op++)
        for (uint32_t t = 0; t < 3 && ls_operation_row(op); t++) {
            const struct ls_operation_row *row = ls_operation_row(op);
            struct test_request r = {
                .op = op, .input_count = most(row, false), .output_count = most(row, true)};
            const uint32_t count = r.input_count + r.output_count;
            for (uint32_t i = 0; i < count; i++)
                r.arguments[i] = DESC(types[t], 1);
            for (uint32_t i = 0; i < count; i++)
                r.arguments[i].dtype = dtype_of(&r, i);
            for (uint32_t i = 1; i < count && op != LS_OP_CONVERT; i++) {
                if (i == r.input_count && row->outputs[0].source_index > 0)
                    continue; // a gradient of weights, which decides for the others
                const bool output = i >= r.input_count;
                const struct ls_argument argument =
                    ls_operation_argument(row, output ? i - r.input_count : i, output);
                if (argument.type == LS_TYPE_INDEX)
                    continue; // either of two
                ck_assert_msg(accepted(r, i) == dtype_of(&r, i), "%s, argument %u: %u and not %u",
                              row->name, i, accepted(r, i), dtype_of(&r, i));
                compared++;
            }
        }
    ck_assert_uint_gt(compared, 150);
}
