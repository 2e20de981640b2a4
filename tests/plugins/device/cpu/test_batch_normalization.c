// SPDX-License-Identifier: Apache-2.0
// Batch normalization on device `cpu` with tensors of many pieces, in each of its layouts, against float64. The device suite has
// the small shapes, and all that an operation must do.
#include "core/plugin/device.h"
#include "tests/support/device_calls.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>

// x is drawn around 1000 with a deviation of 0.6: the mean of x^2 less mean^2 would be off by more than a tenth in float32.
static const double centre = 1000;

// The rounding of the mean to float32, whose neighbours at 1000 are 6e-5 apart.
static const double mean_tolerance = 3.1e-5;
// Results are about 4, of some roundings each; an x - mean that is off by the rounding of the mean is ten times that.
static const double tolerance = 3e-6;
// Sums in float32, in any order, of each term's magnitude.
static const double sum_tolerance = 1e-5;

static const struct {
    const char *name;
    int64_t block; // channels in a block; 0: plain
} layouts[] = {{"plain", 0}, {"blocks of 16", 16}, {"blocks of 8", 8}, {"channels outside", 1}};

static const int64_t shapes[][4] = {
    {14, 28, 28, 40}, // pieces inside an example
    {37, 7, 7, 72}, // pieces of several examples
    {1500, 1, 1, 130},
    {9, 30, 31, 12}, // one block
};

enum {
    LAYOUTS = sizeof(layouts) / sizeof(layouts[0]),
    SHAPES = sizeof(shapes) / sizeof(shapes[0])
};
enum { CASES = LAYOUTS * SHAPES, THREADS = 3, MOST_CHANNELS = 130 };

static const struct ls_plugin *plugin;
static struct test_host host;

// ---- Tensors ----

struct shape {
    const int64_t *dims;
    int64_t plane, channels, block, blocks, elements; // with padding
};

static struct shape shape_of(int number)
{
    struct shape s = {.dims = shapes[number / LAYOUTS], .block = layouts[number % LAYOUTS].block};
    s.plane = s.dims[1] * s.dims[2];
    s.channels = s.dims[3];
    s.blocks = s.block ? (s.channels + s.block - 1) / s.block : 1;
    s.elements = s.dims[0] * s.plane * (s.block ? s.blocks * s.block : s.channels);
    return s;
}

// The words are those of plugins/device/cpu/layout.c: batch, channels, rows, columns, and blocks of channels inside.
static struct ls_tensor_desc tensor_of(const struct shape *s)
{
    struct ls_tensor_desc desc = {.dtype = LS_F32, .ndims = 4};
    memcpy(desc.dims, s->dims, 4 * sizeof(int64_t));
    desc.layout = (struct ls_layout){.kind = s->block ? LS_LAYOUT_OWN : LS_LAYOUT_PLAIN,
                                     .bytes = (uint64_t)s->elements * sizeof(float)};
    if (s->block) {
        desc.layout.words[0] = UINT64_C(1) | 4 << 8 | (s->block > 1) << 16 | UINT64_C(1) << 32;
        desc.layout.words[1] = 1 << 8 | 2 << 16 | 3 << 24;
        desc.layout.words[2] = s->block > 1 ? (uint64_t)s->block : 0;
        desc.layout.words[3] = s->block > 1;
    }
    return desc;
}

static struct ls_tensor_desc vector_of(const struct shape *s)
{
    return (struct ls_tensor_desc){
        .dtype = LS_F32,
        .ndims = 1,
        .dims = {s->channels},
        .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = (uint64_t)s->channels * sizeof(float)}};
}

// The channel of an element of the memory; -1: padding.
static int64_t channel_of(const struct shape *s, int64_t i)
{
    if (!s->block)
        return i % s->channels;
    const int64_t channel = i / (s->plane * s->block) % s->blocks * s->block + i % s->block;
    return channel < s->channels ? channel : -1;
}

static float *draw(int64_t count, uint64_t seed, double middle)
{
    float *values = malloc((size_t)count * sizeof(float));
    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(middle + (double)(ls_mix64(seed, (uint64_t)i) >> 11) * 0x1p-52 - 1);
    return values;
}

static float *draw_tensor(const struct shape *s, uint64_t seed, double middle)
{
    float *values = draw(s->elements, seed, middle);
    for (int64_t i = 0; i < s->elements; i++)
        values[i] = channel_of(s, i) < 0 ? 0.0f : values[i];
    return values;
}

// ---- Running ----

struct operation {
    struct test_request request;
    void *values[TEST_ARGUMENTS]; // owned
};

static void add(struct operation *o, struct ls_tensor_desc desc, float *values)
{
    const uint32_t index = o->request.input_count + o->request.output_count;
    o->request.arguments[index] = desc;
    o->values[index] = values;
}

static void add_input(struct operation *o, struct ls_tensor_desc desc, float *values)
{
    add(o, desc, values);
    o->request.input_count++;
}

static void add_output(struct operation *o, struct ls_tensor_desc desc)
{
    float *values = malloc(desc.layout.bytes);
    ck_assert_ptr_nonnull(values);
    memset(values, 0xff, desc.layout.bytes); // NaN
    add(o, desc, values);
    o->request.output_count++;
}

static float *output(const struct operation *o, uint32_t i)
{
    return o->values[o->request.input_count + i];
}

static struct ls_device *open_device(uint32_t threads)
{
    const struct ls_device_config config = {.struct_size = sizeof(config), .threads = threads};
    const struct ls_device_interface *d = plugin->interface;
    struct ls_device *device = NULL;
    ck_assert_int_eq(ls_device_open_state(d, &host.host, &config, &device), LS_OK);
    return device;
}

// Output 0 lies where input `place` lies; -1: in its own memory.
static void run_at(struct operation *o, uint32_t threads, int place)
{
    const struct ls_device_interface *d = plugin->interface;
    struct ls_device *device = open_device(threads);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    void *arguments[TEST_ARGUMENTS];
    ck_assert_msg(test_prepare(d, device, &o->request, &answer) == LS_OK, "%s", host.message);
    memcpy(arguments, o->values, sizeof(arguments));
    if (place >= 0) {
        ck_assert_uint_ne(answer.in_place >> place & 1, 0);
        arguments[o->request.input_count] = arguments[place];
    }
    void *scratch = (void *)d->memory->allocate(device, answer.scratch_bytes);
    memset(scratch, 0xff, answer.scratch_bytes);
    ck_assert_int_eq(test_launch(d, device, answer.kernel, arguments,
                                 o->request.input_count + o->request.output_count, scratch),
                     LS_OK);
    d->memory->release(device, scratch);
    d->kernels->release(device, answer.kernel);
    ls_device_close(device);
}

static void run(struct operation *o, uint32_t threads)
{
    run_at(o, threads, -1);
}

static void finish(struct operation *o)
{
    for (uint32_t i = 0; i < TEST_ARGUMENTS; i++)
        free(o->values[i]);
}

static struct operation operation_of(uint32_t op)
{
    return (struct operation){.request = {.op = op, .attributes = {.epsilon = 1e-3f}}};
}

// x, gamma, beta, addend -> y, mean, variance
static struct operation forward_of(const struct shape *s)
{
    struct operation o = operation_of(LS_OP_BATCH_NORMALIZATION);
    add_input(&o, tensor_of(s), draw_tensor(s, 1, centre));
    add_input(&o, vector_of(s), draw(s->channels, 2, 1));
    add_input(&o, vector_of(s), draw(s->channels, 3, 0));
    add_input(&o, tensor_of(s), draw_tensor(s, 4, 0));
    add_output(&o, tensor_of(s));
    add_output(&o, vector_of(s));
    add_output(&o, vector_of(s));
    return o;
}

// x, gamma, mean, variance, dy -> dx, dgamma, dbeta; x in a neighbouring element has its part in dy.
static struct operation backward_of(const struct shape *s)
{
    struct operation o = operation_of(LS_OP_BATCH_NORMALIZATION_BACKWARD);
    float *x = draw_tensor(s, 1, centre), *dy = draw_tensor(s, 5, 0.5);
    for (int64_t i = 0; i < s->elements; i++)
        if (channel_of(s, i) >= 0)
            dy[i] += 0.5f * (x[i] - (float)centre);
    add_input(&o, tensor_of(s), x);
    add_input(&o, vector_of(s), draw(s->channels, 2, 1));
    add_input(&o, vector_of(s), draw(s->channels, 6, centre));
    add_input(&o, vector_of(s), draw(s->channels, 7, 1.5));
    add_input(&o, tensor_of(s), dy);
    add_output(&o, tensor_of(s));
    add_output(&o, vector_of(s));
    add_output(&o, vector_of(s));
    return o;
}

// ---- What is wanted ----

// Of each channel: mean of `a`, and of `a` times the distance of `b` from `from`.
static void means_of(const struct shape *s, const float *a, const float *b, const double *from,
                     double *mean, double *product)
{
    const double rows = (double)(s->dims[0] * s->plane);
    memset(mean, 0, MOST_CHANNELS * sizeof(double));
    memset(product, 0, MOST_CHANNELS * sizeof(double));
    for (int64_t i = 0; i < s->elements; i++) {
        const int64_t c = channel_of(s, i);
        if (c < 0)
            continue;
        mean[c] += (double)a[i] / rows;
        product[c] += (double)a[i] * ((double)b[i] - from[c]) / rows;
    }
}

// Check writes down every assertion that holds, and these are millions.
static void assert_close(const char *what, int64_t i, float got, double wanted, double slack)
{
    if (!(fabs((double)got - wanted) <= slack))
        ck_abort_msg("%s at %lld: got %.9g, expected %.9g", what, (long long)i, (double)got,
                     wanted);
}

// y before an activation.
static double wanted_y(const struct operation *o, int64_t i, int64_t c, double mean,
                       double variance)
{
    const float *x = o->values[0], *gamma = o->values[1], *beta = o->values[2],
                *addend = o->values[3];
    return (double)gamma[c] * ((double)x[i] - mean) / sqrt(variance + (double)1e-3f) +
           (double)beta[c] + (double)addend[i];
}

static void check_forward(const struct shape *s, const struct operation *o,
                          double (*activation)(double))
{
    double mean[MOST_CHANNELS] = {0}, variance[MOST_CHANNELS], unused[MOST_CHANNELS];
    const float *x = o->values[0];
    means_of(s, x, x, mean, mean, unused);
    means_of(s, x, x, mean, unused, variance);
    for (int64_t c = 0; c < s->channels; c++) { // the sum of x - mean is 0, but for roundings
        variance[c] -= mean[c] * (unused[c] - mean[c]);
        assert_close("mean", c, output(o, 1)[c], mean[c], mean_tolerance);
        assert_close("variance", c, output(o, 2)[c], variance[c], sum_tolerance * variance[c]);
    }
    for (int64_t i = 0; i < s->elements; i++) {
        const int64_t c = channel_of(s, i);
        const double y = c < 0 ? 0 : activation(wanted_y(o, i, c, mean[c], variance[c]));
        assert_close("y", i, output(o, 0)[i], y, c < 0 ? 0 : tolerance);
    }
}

static double relu(double x)
{
    return x > 0 ? x : 0;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

// ---- Tests ----

LOOP_TEST(a_small_deviation_beside_a_large_mean_is_right, 0, CASES)
{
    const struct shape s = shape_of(_i);
    struct operation o = forward_of(&s);
    o.request.attributes.epilogue = LS_OP_ACTIVATION;
    o.request.attributes.epilogue_activation = LS_RELU;
    run(&o, 2);
    check_forward(&s, &o, relu);
    finish(&o);
}

LOOP_TEST(padding_is_zero_after_an_activation_that_makes_something_of_zero, 0, CASES)
{
    const struct shape s = shape_of(_i);
    struct operation o = forward_of(&s);
    o.request.attributes.epilogue = LS_OP_ACTIVATION;
    o.request.attributes.epilogue_activation = LS_SIGMOID;
    run(&o, 2);
    check_forward(&s, &o, sigmoid);
    finish(&o);
}

LOOP_TEST(gradients_are_those_of_float64_also_where_dx_is_added_to, 0, CASES)
{
    const struct shape s = shape_of(_i);
    struct operation o = backward_of(&s);
    const double rows = (double)(s.dims[0] * s.plane);
    const float *x = o.values[0], *gamma = o.values[1], *dy = o.values[4];
    double mean[MOST_CHANNELS] = {0}, dbeta[MOST_CHANNELS], product[MOST_CHANNELS];
    float *before = draw_tensor(&s, 8, 0);
    memcpy(output(&o, 0), before, (size_t)s.elements * sizeof(float));
    o.request.accumulate = 1;
    run(&o, 2);

    for (int64_t c = 0; c < s.channels; c++)
        mean[c] = (double)((const float *)o.values[2])[c];
    means_of(&s, dy, x, mean, dbeta, product);
    for (int64_t i = 0; i < s.elements; i++) {
        const int64_t c = channel_of(&s, i);
        const double variance = c < 0 ? 1 : (double)((const float *)o.values[3])[c] + (double)1e-3f;
        const double dx =
            c < 0
                ? 0
                : (double)gamma[c] / sqrt(variance) *
                      ((double)dy[i] - dbeta[c] - ((double)x[i] - mean[c]) * product[c] / variance);
        assert_close("dx", i, output(&o, 0)[i], (double)before[i] + dx, c < 0 ? 0 : 5 * tolerance);
    }
    for (int64_t c = 0; c < s.channels; c++) { // |dy| is 2 at most, |x - mean| too
        const double deviation = sqrt((double)((const float *)o.values[3])[c] + (double)1e-3f);
        assert_close("dgamma", c, output(&o, 1)[c], product[c] * rows / deviation,
                     sum_tolerance * 4 * rows / deviation);
        assert_close("dbeta", c, output(&o, 2)[c], dbeta[c] * rows, sum_tolerance * 2 * rows);
    }
    free(before);
    finish(&o);
}

static void check_threads(struct operation (*make)(const struct shape *s), int number)
{
    const struct shape s = shape_of(number);
    struct operation one = make(&s);
    run(&one, 1);
    for (uint32_t threads = 2; threads <= THREADS; threads++) {
        struct operation o = make(&s);
        run(&o, threads);
        for (uint32_t i = 0; i < o.request.output_count; i++)
            ck_assert_msg(memcmp(output(&one, i), output(&o, i),
                                 o.request.arguments[o.request.input_count + i].layout.bytes) == 0,
                          "output %u has other bits with %u threads than with one", i, threads);
        finish(&o);
    }
    finish(&one);
}

LOOP_TEST(forward_has_the_same_bits_with_any_number_of_threads, 0, CASES)
{
    check_threads(forward_of, _i);
}

LOOP_TEST(backward_has_the_same_bits_with_any_number_of_threads, 0, CASES)
{
    check_threads(backward_of, _i);
}

static void check_in_place(struct operation (*make)(const struct shape *s), int number, int place)
{
    const struct shape s = shape_of(number);
    struct operation apart = make(&s), in_place = make(&s);
    run(&apart, 2);
    run_at(&in_place, 2, place);
    ck_assert_int_eq(
        memcmp(output(&apart, 0), in_place.values[place], (size_t)s.elements * sizeof(float)), 0);
    for (uint32_t i = 1; i < apart.request.output_count; i++)
        ck_assert_int_eq(
            memcmp(output(&apart, i), output(&in_place, i), (size_t)s.channels * sizeof(float)), 0);
    finish(&apart);
    finish(&in_place);
}

LOOP_TEST(results_have_the_same_bits_in_place, 0, LAYOUTS)
{
    check_in_place(forward_of, _i, 0);
    check_in_place(forward_of, _i, 3);
    check_in_place(backward_of, _i, 0);
    check_in_place(backward_of, _i, 4);
}

// y = norm(x) + x, also where y then lies: one tensor is three arguments.
LOOP_TEST(what_is_added_may_be_x_itself, 0, LAYOUTS)
{
    const struct shape s = shape_of(_i);
    struct operation apart = forward_of(&s), same = forward_of(&s);
    memcpy(apart.values[3], apart.values[0], (size_t)s.elements * sizeof(float));
    free(same.values[3]);
    same.values[3] = same.values[0];
    run(&apart, 2);
    run(&same, 2);
    ck_assert_int_eq(
        memcmp(output(&apart, 0), output(&same, 0), (size_t)s.elements * sizeof(float)), 0);
    run_at(&same, 2, 3);
    ck_assert_int_eq(memcmp(output(&apart, 0), same.values[0], (size_t)s.elements * sizeof(float)),
                     0);
    same.values[3] = NULL;
    finish(&apart);
    finish(&same);
}

static void check_refused(struct operation *o, const char *why)
{
    const struct ls_device_interface *d = plugin->interface;
    struct ls_device *device = open_device(1);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    ck_assert_int_eq(test_prepare(d, device, &o->request, &answer), LS_UNSUPPORTED);
    ck_assert_msg(strstr(test_refusal, why) != NULL, "the message is: %s", test_refusal);
    ls_device_close(device);
    finish(o);
}

TEST(what_does_not_fit_together_is_refused)
{
    static const float epsilons[] = {-1e-3f, -INFINITY, NAN};
    struct operation (*const makers[])(const struct shape *) = {forward_of, backward_of};
    static const uint32_t inputs[] = {4, 5};
    const struct shape s = shape_of(0);
    struct operation o;
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof(epsilons) / sizeof(epsilons[0]); i++) {
            o = makers[k](&s);
            o.request.attributes.epsilon = epsilons[i];
            check_refused(&o, "epsilon");
        }
        for (uint32_t i = inputs[k] - 1; i <= inputs[k]; i++) { // addend or dy, y or dx
            o = makers[k](&s); // as many bytes, and as many channels
            o.request.arguments[i].dims[0] *= 2;
            o.request.arguments[i].dims[1] /= 2;
            check_refused(&o, "batch_normalization");
        }
        o = makers[k](&s);
        o.request.arguments[1].ndims = 2;
        o.request.arguments[1].dims[1] = 1;
        check_refused(&o, "batch_normalization");
    }
    for (uint32_t i = 1; i <= 2; i++) {
        o = forward_of(&s);
        o.request.accumulate = UINT32_C(1) << i;
        check_refused(&o, "cannot be added to");
    }
}

// ---- Synchronized ----

static struct ls_tensor_desc totals_of(const struct shape *s)
{
    const uint64_t count = 2 * (uint64_t)s->channels + 1;
    return (struct ls_tensor_desc){
        .dtype = LS_F64,
        .ndims = 1,
        .dims = {(int64_t)count},
        .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = count * sizeof(double)}};
}

// Takes an output over, so that it can be an input of another operation.
static void *take_output(struct operation *o, uint32_t i)
{
    void *values = output(o, i);
    o->values[o->request.input_count + i] = NULL;
    return values;
}

static float *copy_of(const struct operation *o, uint32_t argument)
{
    const uint64_t bytes = o->request.arguments[argument].layout.bytes;
    float *values = malloc(bytes);
    ck_assert_ptr_nonnull(values);
    memcpy(values, o->values[argument], bytes);
    return values;
}

static void assert_same(const char *what, const struct operation *o, uint32_t i,
                        const struct operation *expected, uint32_t k, double slack)
{
    const struct ls_tensor_desc *desc = &o->request.arguments[o->request.input_count + i];
    for (uint64_t e = 0; e < desc->layout.bytes / sizeof(float); e++)
        assert_close(what, (int64_t)e, output(o, i)[e], (double)output(expected, k)[e], slack);
}

// The totals of one share that is the whole batch make of it what the operations do that know no totals, in the same bits with
// any number of threads.
LOOP_TEST(totals_of_the_whole_batch_give_what_one_share_has, 0, CASES)
{
    const struct shape s = shape_of(_i);
    struct operation whole = forward_of(&s), sums = operation_of(LS_OP_BATCH_MOMENTS);
    struct operation o = operation_of(LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED);
    run(&whole, THREADS);
    add_input(&sums, tensor_of(&s), copy_of(&whole, 0));
    add_output(&sums, totals_of(&s));
    run(&sums, 1);
    double *alone = take_output(&sums, 0);
    sums.values[1] = malloc(totals_of(&s).layout.bytes);
    run(&sums, THREADS);
    ck_assert_mem_eq(alone, output(&sums, 0), totals_of(&s).layout.bytes);
    ck_assert_double_eq(alone[2 * s.channels], (double)(s.dims[0] * s.plane));
    add_input(&o, tensor_of(&s), copy_of(&whole, 0));
    add_input(&o, vector_of(&s), copy_of(&whole, 1));
    add_input(&o, vector_of(&s), copy_of(&whole, 2));
    add_input(&o, totals_of(&s), (float *)(void *)alone);
    add_input(&o, tensor_of(&s), copy_of(&whole, 3));
    for (uint32_t i = 0; i < 3; i++)
        add_output(&o, i == 0 ? tensor_of(&s) : vector_of(&s));
    run(&o, THREADS);
    assert_same("y", &o, 0, &whole, 0, 2e-6);
    assert_same("mean", &o, 1, &whole, 1, 1e-6);
    assert_same("variance", &o, 2, &whole, 2, 1e-6);
    finish(&whole);
    finish(&sums);
    finish(&o);
}

LOOP_TEST(gradient_totals_of_the_whole_batch_give_what_one_share_has, 0, CASES)
{
    const struct shape s = shape_of(_i);
    struct operation whole = backward_of(&s);
    struct operation sums = operation_of(LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS);
    struct operation o = operation_of(LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA);
    run(&whole, THREADS);
    add_input(&sums, tensor_of(&s), copy_of(&whole, 0));
    add_input(&sums, vector_of(&s), copy_of(&whole, 2));
    add_input(&sums, vector_of(&s), copy_of(&whole, 3));
    add_input(&sums, tensor_of(&s), copy_of(&whole, 4));
    add_output(&sums, vector_of(&s));
    add_output(&sums, vector_of(&s));
    add_output(&sums, totals_of(&s));
    run(&sums, THREADS);
    assert_same("dgamma", &sums, 0, &whole, 1, 0);
    assert_same("dbeta", &sums, 1, &whole, 2, 0);
    for (uint32_t i = 0; i < 5; i++)
        add_input(&o, i == 0 || i == 4 ? tensor_of(&s) : vector_of(&s), copy_of(&whole, i));
    add_input(&o, totals_of(&s), take_output(&sums, 2));
    add_output(&o, tensor_of(&s));
    run(&o, THREADS);
    assert_same("dx", &o, 0, &whole, 0, 1e-6);
    finish(&whole);
    finish(&sums);
    finish(&o);
}

// Squares around 1e8, of which variances near 1/3 are left.
LOOP_TEST(variances_survive_a_mean_of_10000, 0, CASES)
{
    const struct shape s = shape_of(_i);
    struct operation sums = operation_of(LS_OP_BATCH_MOMENTS);
    double from[MOST_CHANNELS] = {0}, mean[MOST_CHANNELS], none[MOST_CHANNELS];
    double variance[MOST_CHANNELS];
    float *x = draw_tensor(&s, 8, 1e4), *distances = draw_tensor(&s, 8, 1e4);
    add_input(&sums, tensor_of(&s), x);
    add_output(&sums, totals_of(&s));
    run(&sums, THREADS);
    means_of(&s, x, x, from, mean, none);
    for (int64_t i = 0; i < s.elements; i++) // exact: neighbours of 1e4 are 2^-10 apart
        distances[i] -= channel_of(&s, i) < 0 ? 0.0f : 1e4f;
    for (int64_t c = 0; c < s.channels; c++)
        from[c] = mean[c] - 1e4;
    means_of(&s, distances, distances, from, none, variance);
    const double *totals = (const double *)(const void *)output(&sums, 0);
    const double n = totals[2 * s.channels];
    for (int64_t c = 0; c < s.channels; c++) {
        const double found = totals[c] / n;
        ck_assert_double_eq_tol(found, mean[c], 1e-5);
        ck_assert_double_eq_tol(totals[s.channels + c] / n - found * found, variance[c], 1e-5);
        ck_assert_double_gt(variance[c], 0.2);
    }
    free(distances);
    finish(&sums);
}

int main(void)
{
    setenv("OMP_WAIT_POLICY", "passive", 0); // threads that spin only steal time from other tests
    plugin = test_plugin_open("device-cpu");
    if (!plugin)
        return TEST_SKIPPED;
    test_host_init(&host, plugin);
    return test_suite_run("batch normalization on cpu");
}
