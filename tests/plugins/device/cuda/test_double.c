// SPDX-License-Identifier: Apache-2.0
// The host code of device `cuda` on the fake (tests/support/cuda-fake). NOT A GPU. What the device suite does not
// ask: copies of any size, order, several GPUs, failures, and that nothing is left behind.
#include "tests/plugins/device/cuda/on_fake.h"

#include <check.h>
#include <sched.h>
#include <signal.h>

static unsigned char *pattern(size_t bytes, unsigned seed)
{
    unsigned char *values = malloc(bytes);
    ck_assert_ptr_nonnull(values);
    for (size_t i = 0; i < bytes; i++)
        values[i] = (unsigned char)((i * 31 + seed) >> 3);
    return values;
}

// ---- Copies ----

// Larger than all pinned memory, so that each slot is used again; and sizes around one slot.
TEST(copies_of_any_size_come_back)
{
    static const size_t sizes[] = {1, 255, 262143, 262144, 262145, 9000001, 20000003};
    struct ls_device *device = opened(0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *values = pattern(sizes[i], 5), *back = pattern(sizes[i], 6);
        void *memory = (void *)ops->memory->allocate(device, sizes[i]),
             *other = (void *)ops->memory->allocate(device, sizes[i]);
        ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(memory), ls_host_memory(values),
                                           sizes[i], NULL),
                         LS_OK);
        ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(other), ls_host_memory(memory),
                                           sizes[i], NULL),
                         LS_OK);
        ck_assert_int_eq(
            ops->memory->copy(device, ls_host_memory(back), ls_host_memory(other), sizes[i], NULL),
            LS_OK);
        ck_assert_mem_eq(values, back, sizes[i]);
        ops->memory->release(device, memory);
        ops->memory->release(device, other);
        free(values);
        free(back);
    }
    ls_device_close(device);
}

// A copy from host memory has what was there when it was called, though it is done later.
TEST(the_source_of_a_copy_may_change_at_once)
{
    enum { COUNT = 200, BYTES = 5000 };
    struct ls_device *device = opened(0);
    unsigned char *values = malloc(BYTES), *back = malloc(BYTES);
    char *memory = (void *)ops->memory->allocate(device, COUNT * BYTES);
    for (int i = 0; i < COUNT; i++) {
        memset(values, i, BYTES);
        ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(memory + i * BYTES),
                                           ls_host_memory(values), BYTES, NULL),
                         LS_OK);
    }
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(back),
                                           ls_host_memory(memory + i * BYTES), BYTES, NULL),
                         LS_OK);
        ck_assert_uint_eq(back[0], (unsigned char)i);
        ck_assert_uint_eq(back[BYTES - 1], (unsigned char)i);
    }
    ops->memory->release(device, (void *)memory);
    ls_device_close(device);
    free(values);
    free(back);
}

// ---- Segments ----

enum { CASTS = 200, MOST = 5000, ROOM = MOST + 56 };

static struct ls_tensor_desc cast_desc(uint32_t dtype, int64_t count)
{
    const uint64_t bytes = (uint64_t)count * (dtype == LS_F32 ? 4 : 2);
    return (struct ls_tensor_desc){.dtype = dtype,
                                   .ndims = 1,
                                   .dims = {count},
                                   .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = bytes}};
}

// More than one launch takes, of any length; nothing but the tensors is written.
LOOP_TEST(a_segment_of_casts_has_the_bits_of_its_casts, 0, 2)
{
    const uint32_t dtype = _i ? LS_F16 : LS_BF16;
    static struct ls_kernel_request requests[CASTS];
    static struct ls_tensor_desc descs[2 * CASTS];
    static struct ls_segment_kernel kernels[CASTS];
    static struct ls_segment_value values[2 * CASTS];
    static struct ls_memory memory[2 * CASTS];
    static uint32_t numbers[2 * CASTS];
    struct ls_device *device = opened(0);
    const size_t bytes = (size_t)CASTS * ROOM * 2;
    unsigned char *numbers_of = pattern(2 * bytes, 7), *one = malloc(bytes), *all = malloc(bytes);
    char *from = (void *)ops->memory->allocate(device, 2 * bytes);
    char *to = (void *)ops->memory->allocate(device, bytes);
    for (size_t i = 3; i < 2 * bytes; i += 4)
        numbers_of[i] &= 0x3f; // no NaN, some beyond what float16 has
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(from), ls_host_memory(numbers_of),
                                       2 * bytes, NULL),
                     LS_OK);
    for (uint32_t i = 0; i < CASTS; i++) {
        const int64_t count = i < 20 ? i + 1 : (int64_t)i * 1237 % MOST + 1;
        descs[2 * i] = cast_desc(LS_F32, count);
        descs[2 * i + 1] = cast_desc(dtype, count);
        requests[i] = (struct ls_kernel_request){.struct_size = sizeof(requests[i]),
                                                 .op = LS_OP_CONVERT,
                                                 .input_count = 1,
                                                 .output_count = 1,
                                                 .arguments = &descs[2 * i]};
        kernels[i] = (struct ls_segment_kernel){&requests[i], &numbers[2 * i]};
        memory[2 * i] = ls_host_memory(from + (size_t)(CASTS - 1 - i) * ROOM / 16 * 64);
        memory[2 * i + 1] = ls_host_memory(to + (size_t)i * ROOM / 32 * 64);
        for (uint32_t k = 2 * i; k < 2 * i + 2; k++) {
            numbers[k] = k;
            values[k] = (struct ls_segment_value){.desc = descs[k], .argument = k};
        }
    }
    for (uint32_t i = 0; i < CASTS; i++) {
        struct ls_layout layouts[2];
        struct ls_kernel_answer answer = {.struct_size = sizeof(answer), .layouts = layouts};
        memset(layouts, 0, sizeof(layouts));
        ck_assert_int_eq(ops->kernels->prepare(device, &requests[i], &answer), LS_OK);
        const struct ls_launch launch = {
            .struct_size = sizeof(launch), .argument_count = 2, .arguments = &memory[2 * i]};
        ck_assert_int_eq(ops->kernels->launch(device, answer.kernel, &launch), LS_OK);
        ops->kernels->release(device, answer.kernel);
    }
    ck_assert_int_eq(
        ops->memory->copy(device, ls_host_memory(one), ls_host_memory(to), bytes, NULL), LS_OK);
    ck_assert_int_eq(ops->memory->zero(device, ls_host_memory(to), bytes, NULL), LS_OK);
    const struct ls_segment_request request = {.struct_size = sizeof(request),
                                               .kernel_count = CASTS,
                                               .kernels = kernels,
                                               .values = values,
                                               .value_count = 2 * CASTS,
                                               .argument_count = 2 * CASTS};
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    struct double_work_counts before, after;
    double_count_work(&before);
    ck_assert_int_eq(ops->kernels->prepare_segment(device, &request, &answer), LS_OK);
    const struct ls_launch launch = {
        .struct_size = sizeof(launch), .argument_count = 2 * CASTS, .arguments = memory};
    ck_assert_int_eq(ops->kernels->launch(device, answer.kernel, &launch), LS_OK);
    double_count_work(&after);
    ck_assert_uint_eq(after.kernels - before.kernels, 3);
    ck_assert_int_eq(
        ops->memory->copy(device, ls_host_memory(all), ls_host_memory(to), bytes, NULL), LS_OK);
    ck_assert_mem_eq(one, all, bytes);
    ops->kernels->release(device, answer.kernel);

    descs[2 * CASTS - 1].dtype = dtype == LS_F16 ? LS_BF16 : LS_F16; // casts of two types
    ck_assert_int_eq(ops->kernels->prepare_segment(device, &request, &answer), LS_UNSUPPORTED);
    ops->memory->release(device, (void *)from);
    ops->memory->release(device, (void *)to);
    ls_device_close(device);
    free(numbers_of);
    free(one);
    free(all);
}

// ---- A loss with its gradient ----

static const struct joined_loss {
    uint32_t op, backward, dtype; // of predictions
    uint32_t function; // of LS_OP_LOSS, which has weights of examples here
    int64_t examples, classes;
} joined_losses[] = {
    {LS_OP_SPARSE_CROSS_ENTROPY, LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD, LS_F32, 0, 1, 1},
    {LS_OP_SPARSE_CROSS_ENTROPY, LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD, LS_F32, 0, 1031, 10},
    {LS_OP_SPARSE_CROSS_ENTROPY, LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD, LS_BF16, 0, 700, 301},
    {LS_OP_MEAN_SQUARED_ERROR, LS_OP_MEAN_SQUARED_ERROR_BACKWARD, LS_F32, 0, 2053, 13},
    {LS_OP_MEAN_SQUARED_ERROR, LS_OP_MEAN_SQUARED_ERROR_BACKWARD, LS_BF16, 0, 2053, 11},
    {LS_OP_MEAN_SQUARED_ERROR, LS_OP_MEAN_SQUARED_ERROR_BACKWARD, LS_F32, 0, 2053, 263},
    {LS_OP_LOSS, LS_OP_LOSS_BACKWARD, LS_F32, LS_LOSS_CATEGORICAL, 515, 7},
    {LS_OP_LOSS, LS_OP_LOSS_BACKWARD, LS_F32, LS_LOSS_SPARSE, 600, 260},
};

enum { PREDICTIONS, TARGETS, WEIGHTS, SUMS, PROBABILITIES, GRADIENT, LOSS_TENSORS };

struct loss_tensors {
    struct ls_tensor_desc descs[LOSS_TENSORS];
    struct ls_memory memory[LOSS_TENSORS];
};

static struct ls_tensor_desc plain_desc(uint32_t dtype, int64_t rows, int64_t columns)
{
    const uint64_t size = dtype == LS_BF16 ? 2 : 4;
    return (struct ls_tensor_desc){
        .dtype = dtype,
        .ndims = columns ? 2 : 1,
        .dims = {rows, columns},
        .layout = {.kind = LS_LAYOUT_PLAIN,
                   .bytes = (uint64_t)(columns ? rows * columns : rows) * size}};
}

static void make_loss_tensors(struct ls_device *device, const struct joined_loss *loss,
                              struct loss_tensors *out)
{
    const bool sparse = loss->op == LS_OP_SPARSE_CROSS_ENTROPY ||
                        (loss->op == LS_OP_LOSS && loss->function == LS_LOSS_SPARSE);
    const int64_t rows = loss->examples, columns = loss->classes;
    out->descs[PREDICTIONS] = out->descs[GRADIENT] = plain_desc(loss->dtype, rows, columns);
    out->descs[TARGETS] = sparse ? plain_desc(LS_I32, rows, 0) : plain_desc(LS_F32, rows, columns);
    out->descs[WEIGHTS] = plain_desc(LS_F32, rows, 0);
    out->descs[SUMS] = plain_desc(LS_F32, 4, 0);
    out->descs[PROBABILITIES] = plain_desc(LS_F32, rows, columns);
    for (int i = 0; i < LOSS_TENSORS; i++) {
        const uint64_t bytes = out->descs[i].layout.bytes;
        unsigned char *values = pattern(bytes + 4, (unsigned)i + 3);
        for (uint64_t k = 0; k < bytes / 4; k++) // positive, below 2; halves, too
            if (i == TARGETS && sparse)
                ((int32_t *)(void *)values)[k] = (int32_t)(k * 7 % (uint64_t)columns);
            else
                values[4 * k + 3] = values[4 * k + 1] = 0x3e;
        if (loss->dtype == LS_BF16 && i == PREDICTIONS && bytes % 4)
            values[bytes - 1] = 0x3e;
        out->memory[i] = ls_memory_of(ops->memory->allocate(device, bytes));
        ck_assert_int_eq(
            ops->memory->copy(device, out->memory[i], ls_host_memory(values), bytes, NULL), LS_OK);
        free(values);
    }
}

// The kernel, on the tensors that `of` names.
static void run_on(struct ls_device *device, const struct ls_kernel *kernel, uint64_t scratch_bytes,
                   const struct loss_tensors *tensors, const uint32_t *of, uint32_t count)
{
    struct ls_memory memory[LOSS_TENSORS];
    const struct ls_step_record record = {.step = 1, .update = 1, .gradient_scale = 0.25f};
    struct ls_buffer *scratch = ops->memory->allocate(device, scratch_bytes + 64);
    struct ls_buffer *step = ops->memory->allocate(device, sizeof(record));
    ck_assert_int_eq(ops->memory->copy(device, ls_memory_of(step), ls_host_memory(&record),
                                       sizeof(record), NULL),
                     LS_OK);
    for (uint32_t i = 0; i < count; i++)
        memory[i] = tensors->memory[of[i]];
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = count,
                                     .arguments = memory,
                                     .scratch = ls_memory_of(scratch),
                                     .record = ls_memory_of(step)};
    ck_assert_int_eq(ops->kernels->launch(device, kernel, &launch), LS_OK);
    ops->memory->release(device, scratch);
    ops->memory->release(device, step);
}

// The sums, then the gradient; both are cleared.
static unsigned char *take_results(struct ls_device *device, const struct loss_tensors *tensors)
{
    const uint64_t bytes = tensors->descs[GRADIENT].layout.bytes;
    unsigned char *out = malloc(bytes + 16);
    for (int i = 0; i < 2; i++) {
        const struct ls_memory from = tensors->memory[i ? GRADIENT : SUMS];
        const uint64_t size = i ? bytes : 16;
        ck_assert_int_eq(
            ops->memory->copy(device, ls_host_memory(out + (i ? 16 : 0)), from, size, NULL), LS_OK);
        ck_assert_int_eq(ops->memory->zero(device, from, size, NULL), LS_OK);
    }
    return out;
}

TABLE_TEST(a_loss_with_its_gradient_has_the_bits_of_both, joined_losses)
{
    const struct joined_loss *loss = &joined_losses[_i];
    const bool saves = loss->op == LS_OP_SPARSE_CROSS_ENTROPY, weighted = loss->op == LS_OP_LOSS;
    const uint32_t of[2][4] = {
        {PREDICTIONS, TARGETS, weighted ? WEIGHTS : SUMS, weighted ? SUMS : PROBABILITIES},
        {PREDICTIONS, TARGETS,
         weighted ? WEIGHTS
         : saves  ? PROBABILITIES
                  : GRADIENT,
         GRADIENT}};
    const uint32_t both[] = {PREDICTIONS, TARGETS, weighted ? WEIGHTS : SUMS,
                             weighted ? SUMS : GRADIENT, GRADIENT};
    struct ls_kernel_request requests[2];
    struct ls_tensor_desc descs[2][4];
    struct ls_segment_kernel kernels[2];
    struct ls_segment_value values[LOSS_TENSORS];
    struct ls_device *device = opened(0);
    struct loss_tensors tensors;
    make_loss_tensors(device, loss, &tensors);
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t inputs = (k ? saves : false) || weighted ? 3 : 2;
        const uint32_t outputs = !k && saves ? 2 : 1;
        struct ls_layout layouts[4] = {{0}};
        struct ls_kernel_answer answer = {.struct_size = sizeof(answer), .layouts = layouts};
        for (uint32_t i = 0; i < inputs + outputs; i++)
            descs[k][i] = tensors.descs[of[k][i]];
        requests[k] = (struct ls_kernel_request){
            .struct_size = sizeof(requests[k]),
            .op = k ? loss->backward : loss->op,
            .attributes = {.from_logits = 1, .epsilon = 1e-7f, .function = loss->function},
            .input_count = inputs,
            .output_count = outputs,
            .arguments = descs[k]};
        kernels[k] = (struct ls_segment_kernel){&requests[k], of[k]};
        ck_assert_int_eq(ops->kernels->prepare(device, &requests[k], &answer), LS_OK);
        run_on(device, answer.kernel, answer.scratch_bytes, &tensors, of[k], inputs + outputs);
        ops->kernels->release(device, answer.kernel);
    }
    unsigned char *wanted = take_results(device, &tensors);
    const uint32_t count = weighted ? 5 : 4;
    for (uint32_t i = 0; i < LOSS_TENSORS; i++)
        values[i] =
            (struct ls_segment_value){.desc = tensors.descs[i], .argument = LS_SEGMENT_INSIDE};
    for (uint32_t i = 0; i < count; i++)
        values[both[i]].argument = i;
    const struct ls_segment_request request = {.struct_size = sizeof(request),
                                               .kernel_count = 2,
                                               .kernels = kernels,
                                               .values = values,
                                               .value_count = LOSS_TENSORS,
                                               .argument_count = count};
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    struct double_work_counts before, after;
    ck_assert_int_eq(ops->kernels->prepare_segment(device, &request, &answer), LS_OK);
    for (int again = 0; again < 2; again++) {
        double_count_work(&before);
        run_on(device, answer.kernel, answer.scratch_bytes, &tensors, both, count);
        double_count_work(&after);
        ck_assert_uint_eq(after.kernels - before.kernels, 1);
        unsigned char *got = take_results(device, &tensors);
        ck_assert_mem_eq(got, wanted, tensors.descs[GRADIENT].layout.bytes + 16);
        free(got);
    }
    ops->kernels->release(device, answer.kernel);
    requests[1].accumulate = 1;
    ck_assert_int_eq(ops->kernels->prepare_segment(device, &request, &answer), LS_UNSUPPORTED);
    for (int i = 0; i < LOSS_TENSORS; i++)
        ops->memory->release(device, ls_address(tensors.memory[i]));
    ls_device_close(device);
    free(wanted);
}

TEST(host_memory_is_copied_to_host_memory_and_nothing_is_copied_as_nothing)
{
    struct ls_device *device = opened(0);
    char from[] = "abc", to[] = "xyz";
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(to), ls_host_memory(from), 2, NULL),
                     LS_OK);
    ck_assert_str_eq(to, "abz");
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(NULL), ls_host_memory(NULL), 0, NULL),
                     LS_OK);
    ck_assert_int_eq(ops->memory->zero(device, ls_host_memory(NULL), 0, NULL), LS_OK);
    ls_device_close(device);
}

TEST(a_stream_of_somebody_else_is_refused)
{
    struct ls_device *device = opened(0);
    char from[4] = "abc", to[4];
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(to), ls_host_memory(from), 4, from),
                     LS_UNSUPPORTED);
    assert_says("the stream is not one of this device");
    ls_device_close(device);
}

// ---- Kernels ----

struct addition {
    struct ls_kernel_answer answer;
    void *arguments[3];
};

static void addition_prepare(struct ls_device *device, int64_t count, struct addition *out)
{
    const struct ls_tensor_desc desc = {
        .dtype = LS_F32, .ndims = 1, .dims = {count}, .layout = {.kind = LS_LAYOUT_ANY}};
    const struct test_request request = {
        .op = LS_OP_ADD, .input_count = 2, .output_count = 1, .arguments = {desc, desc, desc}};
    out->answer = (struct ls_kernel_answer){.struct_size = sizeof(out->answer)};
    ck_assert_int_eq(test_prepare(ops, device, &request, &out->answer), LS_OK);
    for (int i = 0; i < 3; i++)
        out->arguments[i] = (void *)ops->memory->allocate(device, (uint64_t)count * sizeof(float));
}

static int32_t addition_launch(struct ls_device *device, const struct addition *addition)
{
    return test_launch(ops, device, addition->answer.kernel, addition->arguments, 3, NULL);
}

static void addition_finish(struct ls_device *device, struct addition *addition)
{
    ops->kernels->release(device, addition->answer.kernel);
    for (int i = 0; i < 3; i++)
        ops->memory->release(device, addition->arguments[i]);
}

// Launches return before the work is done; a copy to the host sees all of it.
TEST(a_copy_to_the_host_waits_for_the_kernels_before_it)
{
    enum { COUNT = 1000, TIMES = 100 };
    struct ls_device *device = opened(0);
    struct addition a;
    float one[COUNT], sum[COUNT];
    addition_prepare(device, COUNT, &a);
    for (int i = 0; i < COUNT; i++)
        one[i] = 1;
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(a.arguments[1]), ls_host_memory(one),
                                       sizeof(one), NULL),
                     LS_OK);
    for (int i = 0; i < TIMES; i++) {
        ck_assert_int_eq(addition_launch(device, &a), LS_OK);
        ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(a.arguments[0]),
                                           ls_host_memory(a.arguments[2]), sizeof(one), NULL),
                         LS_OK);
    }
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(sum), ls_host_memory(a.arguments[2]),
                                       sizeof(sum), NULL),
                     LS_OK);
    for (int i = 0; i < COUNT; i++)
        ck_assert_float_eq(sum[i], TIMES);
    addition_finish(device, &a);
    ls_device_close(device);
}

// Whichever of the two has a layout of this device's own; plain beside turned is refused.
TEST(the_gradient_of_a_penalty_lies_as_its_variable)
{
    struct ls_device *device = opened(0);
    const struct ls_tensor_desc any = {
        .dtype = LS_F32, .ndims = 2, .dims = {5, 7}, .layout = {.kind = LS_LAYOUT_ANY}};
    struct ls_tensor_desc plain = any, turned = any;
    plain.layout = (struct ls_layout){.kind = LS_LAYOUT_PLAIN, .bytes = 140};
    turned.layout = (struct ls_layout){.kind = LS_LAYOUT_OWN, .bytes = 140, .words = {1}};
    const struct ls_tensor_desc pairs[][2] = {
        {any, turned}, {turned, any}, {turned, turned}, {plain, turned}, {turned, plain}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const struct test_request request = {.op = LS_OP_PENALTY_BACKWARD,
                                             .input_count = 2,
                                             .output_count = 1,
                                             .arguments = {plain, pairs[i][0], pairs[i][1]}};
        struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
        ck_assert_int_eq(test_prepare(ops, device, &request, &answer),
                         i < 3 ? LS_OK : LS_UNSUPPORTED);
        if (i >= 3)
            continue;
        ck_assert_uint_eq(answer.layouts[1].kind, LS_LAYOUT_OWN);
        ck_assert_uint_eq(answer.layouts[2].kind, LS_LAYOUT_OWN);
        ops->kernels->release(device, answer.kernel);
    }
    ls_device_close(device);
}

// ---- Several ----

TEST(several_devices_share_a_gpu)
{
    struct ls_device *devices[4];
    char in[4] = "abc", out[4] = "";
    for (int i = 0; i < 4; i++)
        devices[i] = opened(0);
    struct double_counts counts;
    double_count(&counts);
    ck_assert_uint_eq(counts.streams, 4);
    ck_assert_uint_eq(counts.handles, 8);
    void *memory = (void *)ops->memory->allocate(devices[0], 4);
    ck_assert_int_eq(
        ops->memory->copy(devices[0], ls_host_memory(memory), ls_host_memory(in), 4, NULL), LS_OK);
    ck_assert_int_eq(
        ops->memory->copy(devices[0], ls_host_memory(out), ls_host_memory(memory), 4, NULL), LS_OK);
    ck_assert_int_eq(
        ops->memory->copy(devices[3], ls_host_memory(out), ls_host_memory(memory), 4, NULL),
        LS_OK); // one context
    ck_assert_str_eq(out, "abc");
    ops->memory->release(devices[0], memory);
    for (int i = 0; i < 4; i++)
        ls_device_close(devices[i]);
}

TEST(each_gpu_has_its_own_memory)
{
    setenv("CUDA_FAKE_DEVICES", "2", 1);
    struct ls_device *first = opened(0), *second = NULL, *third = NULL;
    char bytes[4] = "abc";
    ck_assert_int_eq(open_device(1, &second), LS_OK);
    ck_assert_int_eq(open_device(2, &third), LS_UNAVAILABLE);
    assert_says("there is no GPU 2, only 2");
    void *memory = (void *)ops->memory->allocate(second, 4);
    ck_assert_int_eq(
        ops->memory->copy(second, ls_host_memory(memory), ls_host_memory(bytes), 4, NULL), LS_OK);
    ck_assert_int_eq(
        ops->memory->copy(first, ls_host_memory(bytes), ls_host_memory(memory), 4, NULL),
        LS_UNSUPPORTED);
    assert_says("whether memory of GPU 1 is reached");
    ops->memory->release(second, memory);
    ls_device_close(second);
    ls_device_close(first);
    struct ls_device_info info = {.struct_size = sizeof(info)};
    ck_assert_int_eq(ops->describe(&host.host, &info), LS_OK);
    ck_assert_uint_eq(info.physical_count, 2);
}

// ---- What is left behind ----

static void assert_nothing_left(void)
{
    struct double_counts counts;
    double_count(&counts);
    ck_assert_uint_eq(counts.blocks, 0);
    ck_assert_uint_eq(counts.pinned, 0);
    ck_assert_uint_eq(counts.streams, 0);
    ck_assert_uint_eq(counts.events, 0);
    ck_assert_uint_eq(counts.descriptors, 0);
    ck_assert_uint_eq(counts.handles, 0);
}

// So many taps that it is cuDNN's.
static struct test_request convolution_request(void)
{
    const struct ls_tensor_desc x = {.dtype = LS_F32, .ndims = 4, .dims = {2, 8, 8, 5}};
    const struct ls_tensor_desc w = {.dtype = LS_F32, .ndims = 4, .dims = {3, 3, 5, 5}};
    const struct ls_tensor_desc y = {.dtype = LS_F32, .ndims = 4, .dims = {2, 6, 6, 5}};
    return (struct test_request){
        .op = LS_OP_CONV2D,
        .attributes = {.strides = {1, 1}, .dilation = {1, 1}, .groups = 1},
        .input_count = 2,
        .output_count = 1,
        .arguments = {x, w, y},
    };
}

TEST(closing_gives_everything_back)
{
    struct ls_device *device = opened(0);
    struct test_request request = convolution_request();
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    struct addition a;
    addition_prepare(device, 10, &a);
    addition_finish(device, &a);
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_OK);
    ops->kernels->release(device, answer.kernel);
    request.arguments[2].dims[1] = 7; // refused after descriptors were thinkable
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_UNSUPPORTED);
    ls_device_close(device);
    assert_nothing_left();
}

TEST(a_device_that_does_not_open_leaves_nothing)
{
    struct ls_device *device = NULL;
    setenv("CUDA_FAKE_PINNED", "1000", 1);
    ck_assert_int_eq(open_device(0, &device), LS_OUT_OF_MEMORY);
    assert_says("pinned");
    ck_assert_ptr_null(device);
    assert_nothing_left();
    setenv("CUDA_FAKE_VERSION", "12040", 1);
    ck_assert_int_eq(open_device(0, &device), LS_UNAVAILABLE);
    assert_says("the driver knows CUDA 12.4, the runtime needs 13.0");
    assert_nothing_left();
}

// ---- Failures ----

TEST(memory_that_is_not_there_is_null)
{
    setenv("CUDA_FAKE_MEMORY", "1000000", 1);
    struct ls_device *device = opened(0);
    void *some = (void *)ops->memory->allocate(device, 900000);
    ck_assert_ptr_nonnull(some);
    ck_assert_ptr_null((void *)ops->memory->allocate(device, 900000));
    ops->memory->release(device, some);
    some = (void *)ops->memory->allocate(device, 900000); // what was given back is there again
    ck_assert_ptr_nonnull(some);
    ops->memory->release(device, some);
    ls_device_close(device);
}

static uint64_t blocks_in_use(void)
{
    struct double_counts counts;
    double_count(&counts);
    return counts.blocks;
}

TEST(without_an_arena_each_buffer_is_an_allocation)
{
    ck_assert_int_eq(test_host_set(&host, "arena=off"), 1);
    struct ls_device *device = opened(0);
    const uint64_t before = blocks_in_use();
    void *one = (void *)ops->memory->allocate(device, 4),
         *other = (void *)ops->memory->allocate(device, 4);
    ck_assert_uint_eq(blocks_in_use(), before + 2);
    ops->memory->release(device, one);
    ck_assert_uint_eq(blocks_in_use(), before + 1);
    ops->memory->release(device, other);
    ls_device_close(device);
    ck_assert_int_eq(test_host_set(&host, "arena=small"), 1);
    ck_assert_int_eq(open_device(0, &device), LS_USAGE);
    assert_says("arena=small: it is on or off");
}

START_TEST(a_write_behind_a_buffer_ends_the_process)
{
    ck_assert_int_eq(test_host_set(&host, "arena=off"), 1);
    struct ls_device *device = opened(0);
    void *memory = (void *)ops->memory->allocate(device, 100);
    ck_assert_int_eq(ops->memory->zero(device, ls_host_memory(memory), 101, NULL), LS_OK);
    ops->memory->release(device, memory);
}
END_TEST

#ifndef __SANITIZE_ADDRESS__ // which ends the process
START_TEST(what_is_read_behind_a_buffer_is_no_number)
{
    enum { COUNT = 11 };
    float values[COUNT] = {0};
    ck_assert_int_eq(test_host_set(&host, "arena=off"), 1);
    struct ls_device *device = opened(0);
    struct addition a;
    addition_prepare(device, COUNT, &a);
    void *whole = a.arguments[1];
    a.arguments[1] = (void *)ops->memory->allocate(device, (COUNT - 1) * sizeof(float));
    ck_assert_int_eq(addition_launch(device, &a), LS_OK);
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(values),
                                       ls_host_memory(a.arguments[2]), sizeof(values), NULL),
                     LS_OK);
    ck_assert_float_eq(values[COUNT - 2], 0);
    ck_assert_float_nan(values[COUNT - 1]);
    ops->memory->release(device, whole);
    addition_finish(device, &a);
    ls_device_close(device);
}
END_TEST
#endif

TEST(a_kernel_that_fails_is_told_by_the_next_wait_and_once)
{
    setenv("CUDA_FAKE_FAIL", "2", 1);
    struct ls_device *device = opened(0);
    struct addition a;
    float values[10];
    addition_prepare(device, 10, &a);
    for (int i = 0; i < 3; i++)
        addition_launch(device, &a); // the third is accepted, and fails when it runs
    host.message[0] = '\0';
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(values),
                                       ls_host_memory(a.arguments[2]), sizeof(values), NULL),
                     LS_FAILED);
    assert_says("unspecified launch failure");
    assert_says("launched last: add");
    host.message[0] = '\0';
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(values),
                                       ls_host_memory(a.arguments[2]), sizeof(values), NULL),
                     LS_FAILED);
    ck_assert_str_eq(host.message, "");
    addition_finish(device, &a);
    ls_device_close(device);
}

unsigned cudaGetLastError(void); // of the fake: what failed for good

// A library that meets the failure first only says that it could not launch.
TEST(a_kernel_that_fails_is_told_by_the_next_library_call)
{
    const struct ls_tensor_desc one = {.dtype = LS_F32, .ndims = 2, .dims = {1, 1}};
    const struct test_request request = {
        .op = LS_OP_DENSE, .input_count = 2, .output_count = 1, .arguments = {one, one, one}};
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    struct addition a;
    setenv("CUDA_FAKE_FAIL", "0", 1);
    setenv("CUDA_FAKE_STREAMS", "thread", 1);
    struct ls_device *device = opened(0);
    addition_prepare(device, 1, &a);
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_OK);
    void *scratch = (void *)ops->memory->allocate(device, answer.scratch_bytes);
    ck_assert_int_eq(addition_launch(device, &a), LS_OK);
    while (!cudaGetLastError())
        sched_yield();
    ck_assert_int_eq(test_launch(ops, device, answer.kernel, a.arguments, 3, scratch), LS_FAILED);
    assert_says("unspecified launch failure");
    ops->memory->release(device, scratch);
    ops->kernels->release(device, answer.kernel);
    addition_finish(device, &a);
    ls_device_close(device);
}

// Of the same GPU nothing else is said then, in whatever words.
LOOP_TEST(after_an_error_that_stays_nothing_else_is_said, 0, 4)
{
    static const char *const errors[] = {"214", "220", "226", "719"};
    setenv("CUDA_FAKE_FAIL", "0", 1);
    setenv("CUDA_FAKE_ERROR", errors[_i], 1);
    setenv("CUDA_FAKE_DEVICES", "2", 1);
    struct ls_device *device = opened(0), *other = NULL;
    struct ls_event *event = NULL;
    struct addition a;
    float values[10];
    ck_assert_int_eq(open_device(1, &other), LS_OK);
    ck_assert_int_eq(ops->streams->event_open(other, &event), LS_OK);
    addition_prepare(device, 10, &a);
    ck_assert_int_eq(addition_launch(device, &a), LS_OK);
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(values),
                                       ls_host_memory(a.arguments[2]), sizeof(values), NULL),
                     LS_FAILED);
    assert_says("GPU 0: ");
    host.message[0] = '\0';
    ck_assert_int_eq(ops->streams->event_record(device, event, NULL), LS_FAILED);
    ck_assert_str_eq(host.message, "");
    addition_finish(device, &a);
    ops->streams->event_close(other, event);
    ls_device_close(other);
    ls_device_close(device);
}

// The library's algorithm wants some 2 KB.
LOOP_TEST(a_convolution_takes_a_twentieth_of_the_memory_as_workspace, 0, 2)
{
    static const char *const memory[] = {"30000", "60000"};
    struct test_request request = convolution_request();
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    setenv("CUDA_FAKE_MEMORY", memory[_i], 1);
    struct ls_device *device = opened(0);
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_OK);
    ck_assert_int_eq(answer.slow != 0, _i == 0);
    ops->kernels->release(device, answer.kernel);
    ls_device_close(device);
}

// Nothing is waited for a second time, and nothing freed that the GPU may still write to.
TEST(work_that_never_ends_meets_the_deadline)
{
    setenv("CUDA_FAKE_HANG", "0", 1);
    host.host.option = short_deadline;
    struct ls_device *device = opened(0);
    struct addition a;
    float values[10];
    addition_prepare(device, 10, &a);
    ck_assert_int_eq(addition_launch(device, &a), LS_OK);
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(values),
                                       ls_host_memory(a.arguments[2]), sizeof(values), NULL),
                     LS_PEER_LOST);
    assert_says("not done after 1.0 s; launched last: add");
    struct double_counts before, after;
    double_count(&before);
    addition_finish(device, &a);
    ls_device_close(device);
    double_count(&after);
    ck_assert_uint_eq(before.blocks, after.blocks);
}

TEST(types_that_do_not_go_together_are_refused)
{
    static const uint32_t wrong[][3] = {
        {LS_BF16, LS_F32, LS_BF16}, {LS_F32, LS_F32, LS_F16}, {LS_F64, LS_F64, LS_F64}};
    struct ls_device *device = opened(0);
    struct test_request request = convolution_request();
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
        for (int i = 0; i < 3; i++)
            request.arguments[i].dtype = wrong[k][i];
        ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(test_refusal, "is not of the type that it has here"));
    }
    ls_device_close(device);
}

// ---- TF32 ----

static const char *tf32_option;

static const char *answer_tf32(const struct ls_host *of, const char *name)
{
    (void)of;
    return strcmp(name, "tf32") == 0 ? tf32_option : NULL;
}

// One product of a dense layer or of a convolution, on a device opened with this option.
static float product(const char *tf32, uint32_t op, float x, float w)
{
    const float values[3] = {x, w, 0};
    struct test_request request = convolution_request();
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    void *arguments[3], *scratch;
    float y = 0;
    tf32_option = tf32;
    host.host.option = answer_tf32;
    struct ls_device *device = opened(0);
    request.op = op;
    for (int i = 0; i < 3; i++) {
        request.arguments[i] = (struct ls_tensor_desc){
            .dtype = LS_F32, .ndims = op == LS_OP_DENSE ? 2 : 4, .dims = {1, 1, 1, 1}};
        arguments[i] = (void *)ops->memory->allocate(device, sizeof(float));
        ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(arguments[i]),
                                           ls_host_memory(&values[i]), sizeof(float), NULL),
                         LS_OK);
    }
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_OK);
    scratch = (void *)ops->memory->allocate(device, answer.scratch_bytes);
    ck_assert_int_eq(test_launch(ops, device, answer.kernel, arguments, 3, scratch), LS_OK);
    ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(&y), ls_host_memory(arguments[2]),
                                       sizeof(y), NULL),
                     LS_OK);
    ops->kernels->release(device, answer.kernel);
    for (int i = 0; i < 3; i++)
        ops->memory->release(device, arguments[i]);
    ops->memory->release(device, scratch);
    ls_device_close(device);
    return y;
}

// A factor with 12 bits behind the point is whole in float32, and loses two of them in TF32.
TEST(tf32_is_used_only_when_it_is_asked_for)
{
    static const uint32_t operations[] = {LS_OP_DENSE, LS_OP_CONV2D_BACKWARD_DATA};
    for (int i = 0; i < 2; i++) {
        ck_assert_float_eq(product(NULL, operations[i], 1 + 0x1p-12f, 3), 3 + 0x3p-12f);
        ck_assert_float_eq(product("off", operations[i], 1 + 0x1p-12f, 3), 3 + 0x3p-12f);
        ck_assert_float_eq(product("on", operations[i], 1 + 0x1p-12f, 3), 3);
        ck_assert_float_eq(product("on", operations[i], 1 + 0x1p-10f, 3), 3 + 0x3p-10f);
    }
    struct ls_device *device = NULL;
    tf32_option = "yes";
    ck_assert_int_eq(open_device(0, &device), LS_USAGE);
    assert_says("tf32=yes: it is on or off");
}

// ---- The probe ----

static void assert_probe(const char *name, const char *value, const char *says)
{
    char reason[400] = "";
    setenv(name, value, 1);
    ck_assert_int_eq(plugin->probe(reason, sizeof(reason)), LS_UNAVAILABLE);
    unsetenv(name);
    ck_assert_msg(strstr(reason, says), "%s=%s: \"%s\" does not say \"%s\"", name, value, reason,
                  says);
}

TEST(the_probe_says_which_it_is)
{
    char reason[400] = "";
    ck_assert_int_eq(plugin->probe(reason, sizeof(reason)), LS_OK);
    assert_probe("CUDA_FAKE_INIT", "100", "no device: ");
    assert_probe("CUDA_FAKE_DEVICES", "0", "no device: ");
    assert_probe("CUDA_FAKE_INIT", "34", "no driver: ");
    assert_probe("CUDA_FAKE_INIT", "999", "the driver does not start: ");
    assert_probe("CUDA_FAKE_VERSION", "12040", "driver too old: it knows CUDA 12.4");
    assert_probe("CUDA_FAKE_CAPABILITY", "75", "GPU too old: ");
}

// A probe runs in a child of a program that may use GPUs already.
TEST(a_child_of_a_process_with_a_driver_probes_it_and_cannot_use_it)
{
    char reason[400] = "";
    struct ls_device_info info = {.struct_size = sizeof(info)};
    unsetenv("CUDA_FAKE_FORKED"); // this is a child of main(), which opened the plugin
    ck_assert_int_eq(plugin->probe(reason, sizeof(reason)), LS_OK);
    ck_assert_int_eq(ops->describe(&host.host, &info), LS_UNAVAILABLE);
    assert_says("the driver does not start: ");
}

TEST_FIXTURE(reset, NULL);

int main(void)
{
    setenv("CUDA_FAKE_FORKED", "1", 1); // each test is a child of this process
    tcase_add_test_raise_signal(test_registered(), a_write_behind_a_buffer_ends_the_process,
                                SIGABRT);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_test(test_registered(), what_is_read_behind_a_buffer_is_no_number);
#endif
    return run_on_fake("device cuda on the fake");
}
