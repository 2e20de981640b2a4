// SPDX-License-Identifier: Apache-2.0
// Batch normalization of device `cuda` on the fake. NOT A GPU. What the device suite does not ask: how its kernels divide
// rows and channels of every kind between blocks, how many they are, and that they can be recorded.
#include "core/plugin/half.h"
#include "tests/plugins/device/cuda/on_fake.h"

#include <check.h>
#include <math.h>

static struct ls_device *device;

#define EPSILON 1e-3f
// Sums are exact to some roundings of float32 each; a row too many or too few is off by 1 / rows, 1e-5 and more.
#define SUM_TOLERANCE 3e-6
// x - mean, times gamma over the deviation, plus beta: some roundings of 1 and of the result.
#define VALUE_TOLERANCE 4e-6

// ---- One operation with its memory ----

struct operation {
    struct test_request request;
    struct ls_kernel_answer answer;
    void *arguments[TEST_ARGUMENTS];
    void *scratch;
};

// x and what is shaped like it are (rows, channels); `shaped` has a bit for each of those.
static struct test_request request_of(uint32_t op, uint32_t dtype, int64_t rows, int64_t channels,
                                      uint32_t inputs, uint32_t outputs, uint32_t shaped)
{
    struct test_request request = {.op = op,
                                   .attributes = {.epsilon = EPSILON},
                                   .input_count = inputs,
                                   .output_count = outputs};
    for (uint32_t i = 0; i < inputs + outputs; i++)
        request.arguments[i] =
            shaped >> i & 1
                ? (struct ls_tensor_desc){.dtype = dtype, .ndims = 2, .dims = {rows, channels}}
                : (struct ls_tensor_desc){.dtype = LS_F32, .ndims = 1, .dims = {channels}};
    return request;
}

static uint64_t bytes_of(const struct ls_tensor_desc *desc)
{
    return ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype);
}

static void operation_init(struct operation *o, const struct test_request *request)
{
    *o = (struct operation){.request = *request, .answer = {.struct_size = sizeof(o->answer)}};
    ck_assert_msg(test_prepare(ops, device, request, &o->answer) == LS_OK, "%s", host.message);
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        o->arguments[i] = (void *)ops->memory->allocate(device, bytes_of(&request->arguments[i]));
    if (o->answer.scratch_bytes)
        o->scratch = (void *)ops->memory->allocate(device, o->answer.scratch_bytes);
}

static void operation_write(struct operation *o, uint32_t argument, const float *values)
{
    const struct ls_tensor_desc *desc = &o->request.arguments[argument];
    const uint64_t count = ls_tensor_elements(desc);
    uint16_t *halves = malloc(count * sizeof(*halves));
    ck_assert_ptr_nonnull(halves);
    for (uint64_t i = 0; i < count && desc->dtype != LS_F32; i++)
        halves[i] = ls_half_of(desc->dtype, values[i]);
    ck_assert_int_eq(
        ops->memory->copy(device, ls_host_memory(o->arguments[argument]),
                          ls_host_memory(desc->dtype == LS_F32 ? (const void *)values : halves),
                          bytes_of(desc), NULL),
        LS_OK);
    free(halves);
}

static float *operation_read(struct operation *o, uint32_t argument)
{
    const struct ls_tensor_desc *desc = &o->request.arguments[argument];
    const uint64_t count = ls_tensor_elements(desc);
    float *values = malloc(count * sizeof(*values));
    uint16_t *halves = malloc(count * sizeof(*halves));
    ck_assert(values && halves);
    ck_assert_int_eq(
        ops->memory->copy(device, ls_host_memory(desc->dtype == LS_F32 ? (void *)values : halves),
                          ls_host_memory(o->arguments[argument]), bytes_of(desc), NULL),
        LS_OK);
    for (uint64_t i = 0; i < count && desc->dtype != LS_F32; i++)
        values[i] = ls_half_get(desc->dtype, halves[i]);
    free(halves);
    return values;
}

static void operation_launch(struct operation *o)
{
    ck_assert_int_eq(test_launch(ops, device, o->answer.kernel, o->arguments,
                                 o->request.input_count + o->request.output_count, o->scratch),
                     LS_OK);
}

static void operation_finish(struct operation *o)
{
    ops->kernels->release(device, o->answer.kernel);
    for (uint32_t i = 0; i < o->request.input_count + o->request.output_count; i++)
        ops->memory->release(device, o->arguments[i]);
    ops->memory->release(device, o->scratch);
}

// ---- Values, and what plain loops make of them ----

struct sample {
    int64_t rows, channels;
    float *x, *dy, *gamma, *beta;
    double *mean, *variance, *dgamma, *dbeta;
};

static void *memory_for(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count, size);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

// From -1 to 1.
static float *drawn(uint32_t seed, int64_t count)
{
    float *values = memory_for(count, sizeof(float));
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(ls_mix64(seed, (uint64_t)i) >> 40) * 0x1p-23f - 1;
    return values;
}

static void sample_init(struct sample *s, uint32_t dtype, int64_t rows, int64_t channels,
                        float centre, float spread)
{
    *s = (struct sample){.rows = rows,
                         .channels = channels,
                         .x = drawn(1, rows * channels),
                         .dy = drawn(2, rows * channels),
                         .gamma = drawn(3, channels),
                         .beta = drawn(4, channels)};
    for (int64_t i = 0; i < rows * channels; i++) {
        s->x[i] = centre + spread * s->x[i];
        if (dtype != LS_F32) {
            s->x[i] = ls_half_get(dtype, ls_half_of(dtype, s->x[i]));
            s->dy[i] = ls_half_get(dtype, ls_half_of(dtype, s->dy[i]));
        }
    }
}

// Of the values as they are now; two passes in double.
static void sample_compute(struct sample *s)
{
    const int64_t rows = s->rows, channels = s->channels;
    s->mean = memory_for(channels, sizeof(double));
    s->variance = memory_for(channels, sizeof(double));
    s->dgamma = memory_for(channels, sizeof(double));
    s->dbeta = memory_for(channels, sizeof(double));
    for (int64_t i = 0; i < rows * channels; i++)
        s->mean[i % channels] += (double)s->x[i] / (double)rows;
    for (int64_t i = 0; i < rows * channels; i++)
        s->variance[i % channels] += pow((double)s->x[i] - s->mean[i % channels], 2) / (double)rows;
    for (int64_t i = 0; i < rows * channels; i++) {
        const int64_t c = i % channels;
        s->dbeta[c] += (double)s->dy[i];
        s->dgamma[c] += (double)s->dy[i] * ((double)s->x[i] - s->mean[c]) /
                        sqrt(s->variance[c] + (double)EPSILON);
    }
}

static void sample_finish(struct sample *s)
{
    void *const all[] = {s->x, s->dy, s->gamma, s->beta, s->mean, s->variance, s->dgamma, s->dbeta};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

static double h_of(const struct sample *s, int64_t i)
{
    const int64_t c = i % s->channels;
    return ((double)s->x[i] - s->mean[c]) / sqrt(s->variance[c] + (double)EPSILON);
}

static double dx_of(const struct sample *s, int64_t i)
{
    const int64_t c = i % s->channels;
    const double rows = (double)s->rows;
    return (double)s->gamma[c] / sqrt(s->variance[c] + (double)EPSILON) *
           ((double)s->dy[i] - s->dbeta[c] / rows - h_of(s, i) * s->dgamma[c] / rows);
}

// A passing assertion of Check writes to a file: too slow for every element.
static void assert_near(const struct sample *s, const char *what, int64_t i, float got,
                        double wanted, double tolerance)
{
    if (!(fabs((double)got - wanted) <= tolerance))
        ck_abort_msg("%lld rows, %lld channels: %s %lld is %.9g, not %.9g (tolerance %.2g)",
                     (long long)s->rows, (long long)s->channels, what, (long long)i, (double)got,
                     wanted, tolerance);
}

// Half of the distance to the next number of the type.
static double rounding(uint32_t dtype, double value)
{
    return dtype == LS_F32 ? 0 : fabs(value) * (dtype == LS_F16 ? 0x1p-11 : 0x1p-8) + 0x1p-25;
}

// ---- Both passes ----

// Arguments shaped like x, as bits: y of a training, and of an inference.
enum { X = 1 << 0, Y = 1 << 3, DY = 1 << 4, DX = 1 << 5, GIVEN_Y = 1 << 5 };

static struct test_request forward_request(uint32_t dtype, int64_t rows, int64_t channels)
{
    return request_of(LS_OP_BATCH_NORMALIZATION, dtype, rows, channels, 3, 3, X | Y);
}

static struct test_request backward_request(uint32_t dtype, int64_t rows, int64_t channels)
{
    return request_of(LS_OP_BATCH_NORMALIZATION_BACKWARD, dtype, rows, channels, 5, 3, X | DY | DX);
}

static void forward_write(struct operation *o, const struct sample *s)
{
    operation_write(o, 0, s->x);
    operation_write(o, 1, s->gamma);
    operation_write(o, 2, s->beta);
}

static void check_forward(struct operation *o, const struct sample *s, uint32_t dtype)
{
    float *y = operation_read(o, 3), *mean = operation_read(o, 4), *variance = operation_read(o, 5);
    for (int64_t c = 0; c < s->channels; c++) {
        const double slack = 1e-12; // of the loops above
        assert_near(s, "mean", c, mean[c], s->mean[c],
                    fabs(s->mean[c]) * 0x1p-24 + SUM_TOLERANCE * sqrt(s->variance[c]) + slack);
        assert_near(s, "variance", c, variance[c], s->variance[c],
                    SUM_TOLERANCE * s->variance[c] + slack);
    }
    for (int64_t i = 0; i < s->rows * s->channels; i++) {
        const int64_t c = i % s->channels;
        const double wanted = (double)s->gamma[c] * h_of(s, i) + (double)s->beta[c];
        assert_near(s, "y", i, y[i], wanted,
                    VALUE_TOLERANCE * (1 + fabs(wanted)) + rounding(dtype, wanted));
    }
    free(y);
    free(mean);
    free(variance);
}

static void backward_write(struct operation *o, const struct sample *s, const float *mean,
                           const float *variance)
{
    operation_write(o, 0, s->x);
    operation_write(o, 1, s->gamma);
    operation_write(o, 2, mean);
    operation_write(o, 3, variance);
    operation_write(o, 4, s->dy);
}

// The mean that backward is given has been rounded; where that is 100 it costs h 4e-6 / deviation.
static void check_backward(struct operation *o, const struct sample *s, uint32_t dtype)
{
    float *dx = operation_read(o, 5), *dgamma = operation_read(o, 6), *dbeta = operation_read(o, 7);
    const double rows = (double)s->rows;
    for (int64_t c = 0; c < s->channels; c++) {
        const double deviation = sqrt(s->variance[c] + (double)EPSILON);
        const double of_h = fabs(s->mean[c]) * 0x1p-24 / deviation;
        assert_near(s, "dbeta", c, dbeta[c], s->dbeta[c], SUM_TOLERANCE * rows);
        assert_near(s, "dgamma", c, dgamma[c], s->dgamma[c], (SUM_TOLERANCE + of_h) * rows);
    }
    for (int64_t i = 0; i < s->rows * s->channels; i++) {
        const double wanted = dx_of(s, i);
        const double deviation = sqrt(s->variance[i % s->channels] + (double)EPSILON);
        const double of_h = fabs(s->mean[i % s->channels]) * 0x1p-24 / deviation;
        assert_near(s, "dx", i, dx[i], wanted,
                    2 * (VALUE_TOLERANCE * (1 + fabs(wanted)) + of_h) / deviation +
                        rounding(dtype, wanted));
    }
    free(dx);
    free(dgamma);
    free(dbeta);
}

static void check_both(const struct sample *s, uint32_t dtype)
{
    struct operation forward, backward;
    const struct test_request there = forward_request(dtype, s->rows, s->channels);
    const struct test_request back = backward_request(dtype, s->rows, s->channels);
    operation_init(&forward, &there);
    forward_write(&forward, s);
    operation_launch(&forward);
    check_forward(&forward, s, dtype);

    float *mean = operation_read(&forward, 4), *variance = operation_read(&forward, 5);
    operation_init(&backward, &back);
    backward_write(&backward, s, mean, variance);
    operation_launch(&backward);
    check_backward(&backward, s, dtype);
    free(mean);
    free(variance);
    operation_finish(&forward);
    operation_finish(&backward);
}

// Few channels and many rows, in numbers that four do and do not divide; many channels and few rows; more threads than rows; and
// columns that do not fill the last block.
static const int64_t shapes[][2] = {{1, 1},     {30001, 1}, {30000, 1}, {10001, 2}, {10000, 3},
                                    {10001, 3}, {5002, 6},  {5011, 16}, {1500, 67}, {601, 132},
                                    {3, 5000},  {1, 4099},  {2, 20004}, {33, 2052}, {1100, 64},
                                    {70, 16400}}; // more blocks than a grid has

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

LOOP_TEST(rows_and_channels_of_any_number_are_divided_without_loss, 0, SHAPES)
{
    static const uint32_t dtypes[] = {LS_F32, LS_BF16, LS_F16};
    for (int k = 0; k < 3; k++) {
        struct sample s;
        sample_init(&s, dtypes[k], shapes[_i][0], shapes[_i][1], 0.25f, 2);
        sample_compute(&s);
        check_both(&s, dtypes[k]);
        sample_finish(&s);
    }
}

// The variance here is 3e-7, the square of the mean 1e4: in float32 their difference holds nothing.
TEST(a_large_mean_takes_nothing_from_the_variance)
{
    struct sample s;
    sample_init(&s, LS_F32, 9000, 24, 100, 1e-3f);
    sample_compute(&s);
    check_both(&s, LS_F32);
    sample_finish(&s);
}

// What a thread subtracts from all of its values is the first of them.
TEST(a_first_value_far_from_all_others_does_not_matter)
{
    struct sample s;
    sample_init(&s, LS_F32, 9000, 24, 1, 1e-2f);
    for (int64_t c = 0; c < s.channels; c++)
        s.x[c] = 1000;
    sample_compute(&s);
    check_both(&s, LS_F32);
    sample_finish(&s);
}

// ---- What is launched ----

static uint64_t kernels_so_far(void)
{
    struct double_work_counts counts;
    double_count_work(&counts);
    return counts.kernels;
}

static uint64_t kernels_of(const struct test_request *request)
{
    struct operation o;
    operation_init(&o, request);
    const uint64_t before = kernels_so_far();
    operation_launch(&o);
    const uint64_t after = kernels_so_far();
    operation_finish(&o);
    return after - before;
}

TEST(a_training_launches_three_kernels_each_way_and_an_inference_one)
{
    static const int64_t some[][2] = {{1, 1}, {50000, 3}, {50001, 3}, {4, 5000}};
    for (int i = 0; i < 4; i++) {
        const int64_t rows = some[i][0], channels = some[i][1];
        const struct test_request forward = forward_request(LS_F32, rows, channels);
        const struct test_request backward = backward_request(LS_F32, rows, channels);
        const struct test_request given = request_of(LS_OP_BATCH_NORMALIZATION_INFERENCE, LS_F32,
                                                     rows, channels, 5, 1, X | GIVEN_Y);
        ck_assert_uint_eq(kernels_of(&forward), 3);
        ck_assert_uint_eq(kernels_of(&backward), 3);
        ck_assert_uint_eq(kernels_of(&given), 1);
    }
}

// A part of the rows leaves two doubles for each channel in scratch memory, and is a block: each of 132 multiprocessors has one.
TEST(one_channel_with_many_rows_is_work_for_a_whole_gpu)
{
    static const int64_t channels[] = {1, 3, 64};
    for (int i = 0; i < 3; i++) {
        const struct test_request request = forward_request(LS_F32, 1000001, channels[i]);
        struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
        ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_OK);
        ck_assert_uint_ge(answer.scratch_bytes, 132 * (uint64_t)channels[i] * 2 * sizeof(double));
        ops->kernels->release(device, answer.kernel);
    }
}

TEST(it_can_be_recorded_and_replayed)
{
    struct operation o;
    struct ls_recording *recording = NULL;
    struct sample s;
    const struct test_request request = forward_request(LS_F32, 5000, 12);
    operation_init(&o, &request);
    sample_init(&s, LS_F32, 5000, 12, 3, 1);
    sample_compute(&s);
    ck_assert_int_eq(ops->capture->begin(device), LS_OK);
    operation_launch(&o);
    ck_assert_int_eq(ops->capture->end(device, &recording), LS_OK);
    forward_write(&o, &s);
    ck_assert_int_eq(ops->capture->replay(device, recording), LS_OK);
    check_forward(&o, &s, LS_F32);
    ops->capture->release(device, recording);
    operation_finish(&o);
    sample_finish(&s);
}

// ---- Refusals ----

static void assert_refused(const struct test_request *request, const char *says)
{
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    ck_assert_int_eq(test_prepare(ops, device, request, &answer), LS_UNSUPPORTED);
    ck_assert_msg(strstr(test_refusal, says), "\"%s\" does not say \"%s\"", test_refusal, says);
}

TEST(what_does_not_belong_together_is_refused)
{
    struct test_request request = forward_request(LS_F32, 6, 4);
    request.arguments[1].dims[0] = 6;
    assert_refused(&request, "batch_normalization");
    request = forward_request(LS_F32, 6, 4);
    request.arguments[3].dims[0] = 4; // y
    request.arguments[3].dims[1] = 6;
    assert_refused(&request, "batch_normalization");
    request = backward_request(LS_F32, 6, 4);
    request.arguments[4].dims[0] = 5; // dy
    assert_refused(&request, "batch_normalization");
    request = forward_request(LS_F32, 6, 4);
    request.attributes.epsilon = -1;
    assert_refused(&request, "epsilon");
    request = forward_request(LS_F32, 6, 4);
    request.accumulate = 2;
    assert_refused(&request, "cannot be added to");
}

static void set_up(void)
{
    test_host_init(&host, plugin);
    device = opened(0);
}

static void close_device(void)
{
    ls_device_close(device);
}

TEST_FIXTURE(set_up, close_device);

int main(void)
{
    return run_on_fake("batch normalization on the fake of CUDA");
}
