// SPDX-License-Identifier: Apache-2.0
// Dense layers on halves: near to what double makes of them, in sizes that are divided in different
// ways; and by the kernels for the processor's unit the same bits for every number of threads, and
// for weights that are plain or packed.
#include "core/plugin/half.h"
#include "tests/support/device_calls.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>

static const struct ls_plugin *plugin;
static struct test_host host;

enum way { ALONE, WITH_BIAS, ADDED, INTO_FLOAT32 };

// x (m,k), w (k,n), y (m,n).
struct row {
    int64_t m, k, n;
    enum way way;
    uint32_t activation;
    float alpha;
};

static const struct row rows[] = {
    {1, 1, 1, WITH_BIAS, LS_RELU, 0},
    {1, 784, 10, WITH_BIAS, LS_TANH, 0},
    {37, 1, 53, ALONE, LS_LEAKY_RELU, 0.2f},
    {128, 40, 1, WITH_BIAS, LS_LINEAR, 0},
    {33, 2, 3, ADDED, LS_LINEAR, 0},
    {131, 257, 127, ADDED, LS_RELU, 0},
    {131, 257, 127, INTO_FLOAT32, LS_LEAKY_RELU, 0.1f},
    {64, 1024, 1000, WITH_BIAS, LS_TANH, 0}, // blocks of columns
    {31, 500, 1031, WITH_BIAS, LS_RELU, 0},
    {1087, 33, 65, INTO_FLOAT32, LS_TANH, 0}, // blocks of 64 rows
    {32, 25088, 10, WITH_BIAS, LS_TANH, 0}, // deep, and few columns: forward,
    {64, 32, 12544, ALONE, LS_RELU, 0}, // backward data,
    {8192, 256, 32, INTO_FLOAT32, LS_LINEAR, 0}, // backward weights
    {2048, 64, 192, WITH_BIAS, LS_LEAKY_RELU, 0.3f},
    {1500, 65, 17, ADDED, LS_LINEAR, 0},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]), OPERATIONS = 3, USUAL = ROWS - 2 };

static const uint32_t operations[] = {LS_OP_DENSE, LS_OP_DENSE_BACKWARD_DATA,
                                      LS_OP_DENSE_BACKWARD_WEIGHTS};
// float32 sums in any order, of the magnitudes of their terms; core/plugin/operations.h has the
// roundings.
static const double sum_tolerance = 1e-5;

struct run {
    const struct row *row;
    uint32_t half;
    struct test_request request;
    struct ls_kernel_answer answer;
    void *values[TEST_ARGUMENTS]; // owned
};

static double get(const struct run *run, uint32_t argument, int64_t i)
{
    const void *values = run->values[argument];
    return run->request.arguments[argument].dtype == LS_F32
               ? (double)((const float *)values)[i]
               : (double)ls_half_get(run->half, ((const uint16_t *)values)[i]);
}

// Drawn between -1 and 1.
static void add_argument(struct run *run, uint32_t dtype, int64_t a, int64_t b)
{
    const uint32_t at = run->request.input_count + run->request.output_count;
    struct ls_tensor_desc *desc = &run->request.arguments[at];
    const uint64_t count = (uint64_t)(a * b);
    *desc = (struct ls_tensor_desc){.dtype = dtype, .ndims = a > 0 ? 2 : 1, .dims = {a, b}};
    desc->layout.kind = LS_LAYOUT_PLAIN;
    desc->layout.bytes = count * ls_dtype_bytes(dtype);
    run->values[at] = malloc(desc->layout.bytes);
    ck_assert_ptr_nonnull(run->values[at]);
    for (uint64_t i = 0; i < count; i++) {
        const float value = (float)(ls_mix64(at, i) >> 40) * 0x1p-23f - 1;
        const uint16_t half = ls_half_of(run->half, value);
        if (dtype == LS_F32)
            ((float *)run->values[at])[i] = value;
        else
            ((uint16_t *)run->values[at])[i] = half;
    }
}

static void add_vector(struct run *run, uint32_t dtype, int64_t n)
{
    const uint32_t at = run->request.input_count + run->request.output_count;
    add_argument(run, dtype, 1, n);
    run->request.arguments[at].ndims = 1;
    run->request.arguments[at].dims[0] = n;
    run->request.arguments[at].dims[1] = 0;
}

static struct run start(const struct row *row, uint32_t half, uint32_t op)
{
    struct run run = {.row = row, .half = half, .request.op = op};
    struct test_request *request = &run.request;
    const uint32_t gradient = row->way == INTO_FLOAT32 || row->way == ADDED ? LS_F32 : half;
    const bool forward = op == LS_OP_DENSE, weights = op == LS_OP_DENSE_BACKWARD_WEIGHTS;
    const bool bias = row->way != ALONE && !(op == LS_OP_DENSE_BACKWARD_DATA);
    const int64_t first[] = {row->m, forward || weights ? row->k : row->n};
    add_argument(&run, half, first[0], first[1]);
    request->input_count++;
    add_argument(&run, half, weights ? row->m : row->k, row->n);
    request->input_count++;
    if (forward && bias) {
        add_vector(&run, half, row->n);
        request->input_count++;
    }
    if (!weights && row->activation != LS_LINEAR) {
        request->attributes.epilogue = forward ? LS_OP_ACTIVATION : LS_OP_ACTIVATION_BACKWARD;
        request->attributes.epilogue_activation = row->activation;
        request->attributes.epilogue_alpha = row->alpha;
        if (!forward) {
            add_argument(&run, half, row->m, row->k);
            request->input_count++;
        }
    }
    add_argument(&run, weights ? gradient : half, weights ? row->k : row->m,
                 forward || weights ? row->n : row->k);
    request->output_count++;
    if (weights && bias) {
        add_vector(&run, gradient, row->n);
        request->output_count++;
    }
    if (row->way == ADDED)
        request->accumulate = (UINT32_C(1) << request->output_count) - 1;
    return run;
}

static void finish(struct run *run)
{
    for (uint32_t i = 0; i < TEST_ARGUMENTS; i++)
        free(run->values[i]);
}

// The weights that `run` has as halves, in a layout that a kernel answered for them: they come from
// a float32 master.
static void *pack(struct ls_device *device, const struct run *run, const struct ls_layout *layout)
{
    const struct ls_device_interface *d = plugin->interface;
    struct test_request request = {.op = LS_OP_CONVERT, .input_count = 1, .output_count = 1};
    struct ls_tensor_desc *from = &request.arguments[0], *to = &request.arguments[1];
    struct ls_kernel_answer answer;
    void *packed = NULL;
    *from = *to = run->request.arguments[1];
    const int64_t count = (int64_t)ls_tensor_elements(from);
    from->dtype = LS_F32;
    from->layout = (struct ls_layout){.kind = LS_LAYOUT_PLAIN, .bytes = (uint64_t)count * 4};
    to->layout = *layout;
    float *master = malloc(from->layout.bytes);
    ck_assert_ptr_nonnull(master);
    for (int64_t i = 0; i < count; i++)
        master[i] = (float)get(run, 1, i);
    ck_assert_int_eq(posix_memalign(&packed, LS_ALIGNMENT, layout->bytes), 0);
    memset(packed, 0xff, layout->bytes);
    ck_assert_msg(test_prepare(d, device, &request, &answer) == LS_OK, "%s", host.message);
    ck_assert_uint_eq(answer.scratch_bytes, 0);
    ck_assert_int_eq(
        test_launch(d, device, answer.kernel, (void *const[]){master, packed}, 2, NULL), LS_OK);
    d->kernels->release(device, answer.kernel);
    free(master);
    return packed;
}

// `free_weights`: they are in the layout that the kernel likes best, else plain.
static void go(struct run *run, uint32_t threads, bool free_weights)
{
    const struct ls_device_interface *d = plugin->interface;
    const struct ls_device_config config = {.struct_size = sizeof(config), .threads = threads};
    struct test_request request = run->request;
    struct ls_device *device = NULL;
    if (free_weights)
        request.arguments[1].layout = (struct ls_layout){.kind = LS_LAYOUT_ANY};
    ck_assert_int_eq(ls_device_open_state(d, &host.host, &config, &device), LS_OK);
    ck_assert_msg(test_prepare(d, device, &request, &run->answer) == LS_OK, "%s", host.message);
    if (free_weights) {
        const struct ls_layout layout = run->answer.layouts[1];
        void *packed = pack(device, run, &layout);
        free(run->values[1]);
        run->values[1] = packed;
    }
    void *scratch = (void *)d->memory->allocate(device, run->answer.scratch_bytes);
    memset(scratch, 0xff, run->answer.scratch_bytes); // NaN
    ck_assert_int_eq(test_launch(d, device, run->answer.kernel, run->values,
                                 run->request.input_count + run->request.output_count, scratch),
                     LS_OK);
    d->memory->release(device, scratch);
    d->kernels->release(device, run->answer.kernel);
    ls_device_close(device);
}

// ---- What double makes of it ----

static double activate(const struct row *row, double x)
{
    switch (row->activation) {
    case LS_RELU: return x > 0 ? x : 0;
    case LS_LEAKY_RELU: return x > 0 ? x : (double)row->alpha * x;
    case LS_TANH: return tanh(x);
    default: return x;
    }
}

static double slope(const struct row *row, double y)
{
    switch (row->activation) {
    case LS_RELU: return y > 0;
    case LS_LEAKY_RELU: return y > 0 ? 1 : (double)row->alpha;
    case LS_TANH: return 1 - y * y;
    default: return 1;
    }
}

// A matrix as double, or its transpose; the caller frees it.
static double *doubles_of(const struct run *run, uint32_t argument, bool transposed)
{
    const struct ls_tensor_desc *desc = &run->request.arguments[argument];
    const int64_t height = desc->dims[0], width = desc->dims[1];
    double *values = malloc((uint64_t)(height * width) * sizeof(*values));
    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < height; i++)
        for (int64_t j = 0; j < width; j++)
            values[transposed ? j * height + i : i * width + j] = get(run, argument, i * width + j);
    return values;
}

static void check_element(const struct run *before, const struct run *got, uint32_t output,
                          int64_t at, double sum, double magnitude)
{
    const struct row *r = got->row;
    const bool rounded = got->request.arguments[output].dtype != LS_F32;
    const double u = !rounded ? 0 : got->half == LS_BF16 ? 0x1p-8 : 0x1p-11;
    double wanted = sum, near = sum_tolerance * magnitude, followed = 0;
    if (got->request.op == LS_OP_DENSE) {
        const double b =
            got->request.input_count > 2 ? get(got, 2, at % got->request.arguments[2].dims[0]) : 0;
        wanted = activate(r, sum + b);
        followed = fabs(sum) + fabs(b);
    } else if (got->request.attributes.epilogue) {
        const double f = slope(r, get(got, 2, at));
        wanted = sum * f;
        followed = fabs(sum) * (fabs(f) + u); // what is added to 1 - y y is rounded, too
    }
    if (got->request.accumulate) {
        followed += fabs(wanted);
        wanted += get(before, output, at);
    }
    near += u * (fabs(wanted) + followed) + 1e-6;
    ck_assert_msg(fabs(get(got, output, at) - wanted) <= near,
                  "%s %lld x %lld x %lld by %s: element %lld of argument %u is %.9g, not %.9g",
                  ls_op_name(got->request.op), (long long)r->m, (long long)r->k, (long long)r->n,
                  got->answer.implementation, (long long)at, output, get(got, output, at), wanted);
}

static void check_all(const struct run *before, const struct run *got)
{
    const uint32_t output = got->request.input_count, op = got->request.op;
    const struct ls_tensor_desc *desc = &got->request.arguments[output];
    // Output 0 before it is rounded, without what it is added to, is a product of rows with rows.
    double *left = doubles_of(got, 0, op == LS_OP_DENSE_BACKWARD_WEIGHTS);
    double *right = doubles_of(got, 1, op != LS_OP_DENSE_BACKWARD_DATA);
    const int64_t depth = op == LS_OP_DENSE                 ? got->row->k
                          : op == LS_OP_DENSE_BACKWARD_DATA ? got->row->n
                                                            : got->row->m;
    for (int64_t i = 0; i < desc->dims[0]; i++)
        // All of a small result; of a large one some of each row, and both edges.
        for (int64_t j = 0;
             j<desc->dims[1]; j += desc->dims[1]> 100 && j > 1 && j + 8 < desc->dims[1] ? 7 : 1) {
            double sum = 0, magnitude = 0;
            for (int64_t d = 0; d < depth; d++) {
                const double term = left[i * depth + d] * right[j * depth + d];
                sum += term;
                magnitude += fabs(term);
            }
            check_element(before, got, output, i * desc->dims[1] + j, sum, magnitude);
        }
    free(left);
    free(right);
    for (int64_t j = 0; got->request.output_count > 1 && j < got->row->n; j++) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < got->row->m; i++) {
            sum += get(got, 1, i * got->row->n + j);
            magnitude += fabs(get(got, 1, i * got->row->n + j));
        }
        check_element(before, got, output + 1, j, sum, magnitude);
    }
}

static bool is_on_copies(const struct run *run)
{
    return strstr(run->answer.implementation, "float32 copies") != NULL;
}

LOOP_TEST(dense_layers_of_halves_are_near_to_double_for_any_number_of_threads, 0,
          ROWS * 2 * OPERATIONS)
{
    static const uint32_t threads[] = {1, 2, 3, 7}, halves[] = {LS_BF16, LS_F16};
    const struct row *row = &rows[_i / OPERATIONS / 2];
    const uint32_t half = halves[_i / OPERATIONS % 2], op = operations[_i % OPERATIONS];
    struct run before = start(row, half, op), first = start(row, half, op);
    go(&first, threads[0], false);
    check_all(&before, &first);
    // The processor's unit multiplies all sizes, or it has none.
    struct run usual = start(&rows[USUAL], half, LS_OP_DENSE);
    go(&usual, 1, false);
    ck_assert_msg(is_on_copies(&first) == is_on_copies(&usual), "%s %lld x %lld x %lld by %s",
                  ls_op_name(op), (long long)row->m, (long long)row->k, (long long)row->n,
                  first.answer.implementation);
    finish(&usual);
    for (size_t t = 1; t < sizeof(threads) / sizeof(threads[0]) && !is_on_copies(&first); t++) {
        struct run other = start(row, half, op);
        go(&other, threads[t], op != LS_OP_DENSE_BACKWARD_WEIGHTS);
        for (uint32_t o = first.request.input_count;
             o < first.request.input_count + first.request.output_count; o++)
            ck_assert_msg(memcmp(other.values[o], first.values[o],
                                 first.request.arguments[o].layout.bytes) == 0,
                          "%s %lld x %lld x %lld by %s: output %u with %u threads", ls_op_name(op),
                          (long long)row->m, (long long)row->k, (long long)row->n,
                          other.answer.implementation, o, threads[t]);
        finish(&other);
    }
    finish(&before);
    finish(&first);
}

int main(void)
{
    setenv("OMP_WAIT_POLICY", "passive", 0); // threads that spin only steal time from other tests
    plugin = test_plugin_open("device-cpu");
    if (!plugin)
        return TEST_SKIPPED;
    test_host_init(&host, plugin);
    return test_suite_run("dense layers of halves on cpu");
}
