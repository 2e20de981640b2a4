// SPDX-License-Identifier: Apache-2.0
// The face over devices: what it refuses, operations on a range, and a small fake device around `reference` that makes one
// kernel of a whole segment.
#include "core/device/device.h"

#include "core/base/log.h"
#include "tests/support/plugin.h"
#include "tests/support/errors.h"
#include "tests/support/suite.h"

#include <check.h>

enum { ROWS = 3, INNER = 5, COLUMNS = 4 };

// ---- The fake: launches the kernels of a segment itself, on memory of its own ----

enum { MOST_KERNELS = 4, MOST_VALUES = 8, MOST_OF_A_KERNEL = 4 };

static const struct ls_device_interface *real;
static struct ls_device_interface fake;
static struct ls_device_kernels fake_kernels;
static struct test_host host;
static uint32_t launches; // of segments

// The segment, or (count 0) one kernel of the reference device.
struct ls_kernel {
    struct ls_kernel *alone;
    uint32_t count;
    struct ls_kernel *kernels[MOST_KERNELS];
    uint32_t argument_counts[MOST_KERNELS], values[MOST_KERNELS][MOST_OF_A_KERNEL];
    struct ls_memory memory[MOST_VALUES], scratch[MOST_KERNELS];
    uint32_t arguments[MOST_VALUES]; // or LS_SEGMENT_INSIDE
    uint32_t value_count;
};

static int32_t fake_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                            struct ls_kernel_answer *out)
{
    const int32_t status = real->kernels->prepare(device, request, out);
    struct ls_kernel *kernel = status ? NULL : calloc(1, sizeof(*kernel));
    if (!kernel)
        return status;
    kernel->alone = out->kernel;
    out->kernel = kernel;
    return LS_OK;
}

static void fake_release(struct ls_device *device, struct ls_kernel *kernel)
{
    if (!kernel)
        return;
    real->kernels->release(device, kernel->alone);
    for (uint32_t i = 0; i < kernel->count; i++) {
        real->kernels->release(device, kernel->kernels[i]);
        real->memory->release(device, kernel->scratch[i].buffer);
    }
    for (uint32_t i = 0; i < kernel->value_count; i++)
        if (kernel->arguments[i] == LS_SEGMENT_INSIDE)
            real->memory->release(device, kernel->memory[i].buffer);
    free(kernel);
}

static int32_t fake_prepare_segment(struct ls_device *device,
                                    const struct ls_segment_request *request,
                                    struct ls_kernel_answer *out)
{
    struct ls_kernel *kernel = calloc(1, sizeof(*kernel));
    ck_assert_ptr_nonnull(kernel);
    ck_assert_uint_le(request->kernel_count, MOST_KERNELS);
    ck_assert_uint_le(request->value_count, MOST_VALUES);
    kernel->count = request->kernel_count;
    kernel->value_count = request->value_count;
    for (uint32_t i = 0; i < request->value_count; i++) {
        kernel->arguments[i] = request->values[i].argument;
        if (kernel->arguments[i] == LS_SEGMENT_INSIDE)
            kernel->memory[i] =
                ls_memory_of(real->memory->allocate(device, request->values[i].desc.layout.bytes));
    }
    for (uint32_t k = 0; k < request->kernel_count; k++) {
        const struct ls_kernel_request *asked = request->kernels[k].request;
        struct ls_layout layouts[MOST_OF_A_KERNEL] = {{0}};
        struct ls_kernel_answer answer = {.struct_size = sizeof(answer), .layouts = layouts};
        ck_assert_int_eq(real->kernels->prepare(device, asked, &answer), LS_OK);
        kernel->kernels[k] = answer.kernel;
        kernel->scratch[k] = ls_memory_of(real->memory->allocate(device, answer.scratch_bytes + 1));
        kernel->argument_counts[k] = asked->input_count + asked->output_count;
        memcpy(kernel->values[k], request->kernels[k].values,
               kernel->argument_counts[k] * sizeof(uint32_t));
    }
    out->kernel = kernel;
    snprintf(out->implementation, sizeof(out->implementation), "one of %u", kernel->count);
    return LS_OK;
}

static int32_t launch_segment(struct ls_device *device, const struct ls_kernel *kernel,
                              const struct ls_launch *launch)
{
    int32_t status = LS_OK;
    launches++;
    for (uint32_t k = 0; !status && k < kernel->count; k++) {
        struct ls_memory memory[MOST_OF_A_KERNEL];
        for (uint32_t i = 0; i < kernel->argument_counts[k]; i++) {
            const uint32_t value = kernel->values[k][i], argument = kernel->arguments[value];
            memory[i] =
                argument == LS_SEGMENT_INSIDE ? kernel->memory[value] : launch->arguments[argument];
        }
        const struct ls_launch inner = {.struct_size = sizeof(inner),
                                        .argument_count = kernel->argument_counts[k],
                                        .arguments = memory,
                                        .scratch = kernel->scratch[k],
                                        .record = launch->record};
        status = real->kernels->launch(device, kernel->kernels[k], &inner);
    }
    return status;
}

static int32_t fake_launch(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct ls_launch *launch)
{
    return kernel->alone ? real->kernels->launch(device, kernel->alone, launch)
                         : launch_segment(device, kernel, launch);
}

// ---- The device under test ----

static struct ls_device *device;

static void open_fake(void)
{
    const struct ls_plugin *plugin = test_plugin_open("device-reference");
    ck_assert_ptr_nonnull(plugin);
    real = plugin->interface;
    test_host_init(&host, plugin);
    fake = *real;
    fake_kernels = *real->kernels;
    fake_kernels.prepare = fake_prepare;
    fake_kernels.launch = fake_launch;
    fake_kernels.release = fake_release;
    fake_kernels.prepare_segment = fake_prepare_segment;
    fake.kernels = &fake_kernels;
    launches = 0;
    forget_errors();
    const struct ls_device_options options = {.interface = &fake, .host = &host.host};
    ck_assert_int_eq(ls_device_open(&options, &device), LS_OK);
}

static void close_fake(void)
{
    ls_device_close(device);
    ls_log_set_writer(NULL, NULL);
}

static struct ls_tensor_desc desc_of(int64_t rows, int64_t columns)
{
    return (struct ls_tensor_desc){
        .dtype = LS_F32,
        .ndims = columns ? 2 : 1,
        .dims = {rows, columns},
        .layout = {.kind = LS_LAYOUT_PLAIN,
                   .bytes = (uint64_t)(rows * (columns ? columns : 1)) * sizeof(float)}};
}

// y = relu(x w) + z: three kernels; what is between them the host need not see.
static struct ls_tensor_desc dense_arguments[3], relu_arguments[2], add_arguments[3];
static struct ls_kernel_request dense, relu, add;
static const uint32_t dense_values[] = {0, 1, 3}, relu_values[] = {3, 4}, add_values[] = {4, 2, 5};
static struct ls_segment_value values[6];
static struct ls_segment_kernel kernels[3];
static struct ls_segment_request segment;

static void make_segment(void)
{
    const struct ls_tensor_desc x = desc_of(ROWS, INNER), w = desc_of(INNER, COLUMNS),
                                y = desc_of(ROWS, COLUMNS);
    const struct ls_tensor_desc of_values[] = {x, w, y, y, y, y};
    const uint32_t arguments[] = {0, 1, 2, LS_SEGMENT_INSIDE, LS_SEGMENT_INSIDE, 3};
    memcpy(dense_arguments, (struct ls_tensor_desc[]){x, w, y}, sizeof(dense_arguments));
    for (int i = 0; i < 3; i++)
        relu_arguments[i % 2] = add_arguments[i] = y;
    dense = (struct ls_kernel_request){.struct_size = sizeof(dense),
                                       .op = LS_OP_DENSE,
                                       .input_count = 2,
                                       .output_count = 1,
                                       .arguments = dense_arguments};
    relu = (struct ls_kernel_request){.struct_size = sizeof(relu),
                                      .op = LS_OP_ACTIVATION,
                                      .attributes = {.activation = LS_RELU},
                                      .input_count = 1,
                                      .output_count = 1,
                                      .arguments = relu_arguments};
    add = (struct ls_kernel_request){.struct_size = sizeof(add),
                                     .op = LS_OP_ADD,
                                     .input_count = 2,
                                     .output_count = 1,
                                     .arguments = add_arguments};
    for (int i = 0; i < 6; i++)
        values[i] = (struct ls_segment_value){.desc = of_values[i], .argument = arguments[i]};
    kernels[0] = (struct ls_segment_kernel){&dense, dense_values};
    kernels[1] = (struct ls_segment_kernel){&relu, relu_values};
    kernels[2] = (struct ls_segment_kernel){&add, add_values};
    segment = (struct ls_segment_request){.struct_size = sizeof(segment),
                                          .kernel_count = 3,
                                          .kernels = kernels,
                                          .values = values,
                                          .value_count = 6,
                                          .argument_count = 4};
}

static struct ls_memory upload(const float *from, uint64_t count)
{
    const struct ls_memory memory = ls_device_allocate(device, count * sizeof(float));
    ck_assert(!ls_memory_is_null(memory));
    ck_assert_int_eq(
        ls_device_copy(device, memory, ls_host_memory(from), count * sizeof(float), NULL), LS_OK);
    return memory;
}

static void launch_one(const struct ls_kernel_request *request, const struct ls_memory *memory)
{
    struct ls_kernel_answer answer = {.layouts = NULL};
    ck_assert_int_eq(ls_device_prepare(device, "a kernel alone", request, &answer), LS_OK);
    const struct ls_memory scratch = ls_device_allocate(device, answer.scratch_bytes);
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = request->input_count + request->output_count,
                                     .arguments = memory,
                                     .scratch = scratch};
    ck_assert_int_eq(ls_device_launch(device, answer.kernel, &launch), LS_OK);
    ls_device_release_kernel(device, answer.kernel);
    ls_device_release(device, scratch);
}

TEST(a_segment_gives_the_bits_of_its_kernels)
{
    float x[ROWS * INNER], w[INNER * COLUMNS], z[ROWS * COLUMNS] = {0}, alone[ROWS * COLUMNS],
                                                        together[ROWS * COLUMNS];
    struct ls_kernel_answer answer = {.layouts = NULL};
    make_segment();
    for (int i = 0; i < ROWS * INNER; i++)
        x[i] = (float)(i % 7) / 3 - 1;
    for (int i = 0; i < INNER * COLUMNS; i++)
        w[i] = (float)(i % 5) / 7 - 0.3f;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        z[i] = (float)i / 11;
    const struct ls_memory in[3] = {upload(x, ROWS * INNER), upload(w, INNER * COLUMNS),
                                    upload(z, ROWS * COLUMNS)};
    const struct ls_memory out[4] = {upload(z, ROWS * COLUMNS), upload(z, ROWS * COLUMNS),
                                     upload(z, ROWS * COLUMNS), upload(z, ROWS * COLUMNS)};

    launch_one(&dense, (struct ls_memory[]){in[0], in[1], out[0]});
    launch_one(&relu, (struct ls_memory[]){out[0], out[1]});
    launch_one(&add, (struct ls_memory[]){out[1], in[2], out[2]});
    ck_assert_uint_eq(launches, 0);

    ck_assert(ls_device_takes_segments(device));
    ck_assert_int_eq(ls_device_prepare_segment(device, "a segment", &segment, &answer), LS_OK);
    ck_assert_str_eq(answer.implementation, "one of 3");
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = 4,
                                     .arguments =
                                         (struct ls_memory[]){in[0], in[1], in[2], out[3]}};
    ck_assert_int_eq(ls_device_launch(device, answer.kernel, &launch), LS_OK);
    ck_assert_uint_eq(launches, 1);
    ls_device_release_kernel(device, answer.kernel);

    ck_assert_int_eq(ls_device_copy(device, ls_host_memory(alone), out[2], sizeof(alone), NULL),
                     LS_OK);
    ck_assert_int_eq(
        ls_device_copy(device, ls_host_memory(together), out[3], sizeof(together), NULL), LS_OK);
    ck_assert_mem_eq(alone, together, sizeof(alone));
    ck_assert_mem_ne(together, z, sizeof(together));
    for (int i = 0; i < 3; i++)
        ls_device_release(device, in[i]);
    for (int i = 0; i < 4; i++)
        ls_device_release(device, out[i]);
}

static void assert_wrong(const char *text)
{
    struct ls_kernel_answer answer = {.layouts = NULL};
    forget_errors();
    ck_assert_int_eq(ls_device_prepare_segment(device, "a segment", &segment, &answer), LS_FAILED);
    ck_assert_msg(strstr(message, text) != NULL, "the message is: %s", message);
    make_segment();
}

TEST(a_segment_that_does_not_hang_together_reaches_no_device)
{
    static const uint32_t beyond[] = {0, 1, 6};
    make_segment();
    kernels[0].values = beyond;
    assert_wrong("names a value that there is not");
    kernels[0] = kernels[1];
    assert_wrong("read before it is written");
    values[5].argument = 2;
    assert_wrong("two values are the same argument");
    values[5].argument = 4;
    assert_wrong("an argument that there is not");
    values[5].argument = LS_SEGMENT_INSIDE;
    assert_wrong("an argument is no value");
    relu_arguments[1].layout.kind = LS_LAYOUT_ANY;
    assert_wrong("a layout is not fixed");
    add_arguments[1].dims[1] = COLUMNS + 1;
    assert_wrong("add: ");
}

TEST(a_device_without_segments_says_so)
{
    struct ls_kernel_answer answer = {.layouts = NULL};
    make_segment();
    fake_kernels.prepare_segment = NULL;
    ck_assert(!ls_device_takes_segments(device));
    ck_assert_int_eq(ls_device_prepare_segment(device, "a segment", &segment, &answer),
                     LS_UNSUPPORTED);
}

TEST(an_operation_runs_on_a_range_of_a_buffer)
{
    float values_of[12], sums[12];
    for (int i = 0; i < 12; i++)
        values_of[i] = (float)i;
    const struct ls_memory buffer = upload(values_of, 12);
    const struct ls_range_operation sum = {
        .op = LS_OP_ADD, .input_count = 2, .output_count = 1, .count = 3};
    struct ls_kernel_answer answer;
    ck_assert_int_eq(ls_device_prepare_range(device, "a range", &sum, &answer), LS_OK);
    ck_assert(answer.in_place & 1);
    const struct ls_memory at = ls_memory_at(buffer, 2 * sizeof(float)),
                           from = ls_memory_at(buffer, 8 * sizeof(float)),
                           scratch = ls_device_allocate(device, answer.scratch_bytes);
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = 3,
                                     .arguments = (struct ls_memory[]){at, from, at},
                                     .scratch = scratch};
    ck_assert_int_eq(ls_device_launch(device, answer.kernel, &launch), LS_OK);
    ck_assert_int_eq(ls_device_copy(device, ls_host_memory(sums), buffer, sizeof(sums), NULL),
                     LS_OK);
    for (int i = 0; i < 12; i++)
        ck_assert_float_eq(sums[i], (float)(i >= 2 && i < 5 ? i + i + 6 : i));
    ls_device_release_kernel(device, answer.kernel);
    ls_device_release(device, buffer);
    ls_device_release(device, scratch);
}

TEST(a_request_that_makes_no_sense_reaches_no_device)
{
    struct ls_kernel_answer answer = {.layouts = NULL};
    make_segment();
    dense_arguments[1].dims[0] = INNER + 1;
    ck_assert_int_eq(ls_device_prepare(device, "dense", &dense, &answer), LS_UNSUPPORTED);
    ck_assert_str_eq(host.message, ""); // it was not asked
    make_segment();
    relu.attributes.activation = LS_ACTIVATION_COUNT;
    ck_assert_int_eq(ls_device_prepare(device, "relu", &relu, &answer), LS_UNSUPPORTED);
    relu.op = 65535;
    ck_assert_int_eq(ls_device_prepare(device, "nothing", &relu, &answer), LS_UNSUPPORTED);
    ck_assert_str_eq(host.message, "");
}

TEST_FIXTURE(open_fake, close_fake);

int main(void)
{
    if (!test_plugin_open("device-reference"))
        return TEST_SKIPPED;
    return test_suite_run("core/device");
}
