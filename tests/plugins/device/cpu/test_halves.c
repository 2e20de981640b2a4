// SPDX-License-Identifier: Apache-2.0
// What device `cpu` computes on halves itself is, to the bit, what its float32 kernel makes of the
// same values, rounded by core/plugin/half.h: in each layout, in place of an input, and added to
// what is there. The device suite compares with the reference device.
#include "core/plugin/half.h"
#include "tests/support/device_calls.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>

static const struct ls_plugin *plugin;
static struct test_host host;
enum { MOST_THREADS = 3 };
static struct ls_device *devices[MOST_THREADS + 1]; // by their threads

// ---- Cases ----

// Shapes of inputs > of outputs; f: float32 beside halves, d: float64; s: what a max pooling of inputs 1 and 2
// saves.
struct row {
    uint32_t op;
    const char *arguments;
    struct ls_op_attributes a;
    bool alone; // not tried added to what is there: it may not be, or the sum alone is rounded
};

#define POOL_3X3 .kernel = {3, 3}, .strides = {2, 2}, .padding = {1, 1, 1, 1}
#define AFTER(function) .epilogue = LS_OP_ACTIVATION_BACKWARD, .epilogue_activation = (function)

static const struct row rows[] = {
    {LS_OP_MAX_POOL2D, "1x1x1x1 > 1x1x1x1", {.kernel = {1, 1}, .strides = {1, 1}}},
    {LS_OP_MAX_POOL2D, "3x28x28x23 > 3x14x14x23", {.kernel = {2, 2}, .strides = {2, 2}}},
    {LS_OP_MAX_POOL2D, "2x31x30x64 > 2x16x15x64", {POOL_3X3}},
    {LS_OP_MAX_POOL2D_BACKWARD,
     "3x14x14x23 3x28x28x23 3x14x14x23 s > 3x28x28x23",
     {.kernel = {2, 2}, .strides = {2, 2}}},
    {LS_OP_MAX_POOL2D_BACKWARD,
     "3x14x14x8 3x29x29x8 3x14x14x8 s > 3x29x29x8",
     {.kernel = {2, 2}, .strides = {2, 2}}},
    {LS_OP_MAX_POOL2D_BACKWARD,
     "3x9x9x16 3x28x28x16 3x9x9x16 s > 3x28x28x16",
     {.kernel = {2, 2}, .strides = {3, 3}}},
    {LS_OP_MAX_POOL2D_BACKWARD, "2x16x15x64 2x31x30x64 2x16x15x64 s > 2x31x30x64", {POOL_3X3}},
    {LS_OP_MAX_POOL2D_BACKWARD,
     "2x3x4x19 2x14x15x19 2x3x4x19 s > 2x14x15x19",
     {.kernel = {12, 12}, .strides = {1, 1}}},
    {LS_OP_MAX_POOL2D_BACKWARD,
     "2x16x15x37 2x31x30x37 2x16x15x37 s 2x31x30x37 > 2x31x30x37",
     {POOL_3X3, AFTER(LS_RELU)}},
    {LS_OP_MAX_POOL2D_BACKWARD,
     "2x16x15x37 2x31x30x37 2x16x15x37 s 2x31x30x37 > 2x31x30x37",
     {POOL_3X3, AFTER(LS_TANH)}},
    {LS_OP_MAX_POOL2D_BACKWARD, "1x1x130x150 1x2x260x150 1x1x130x150 s > 1x2x260x150", {POOL_3X3}},
    {LS_OP_AVERAGE_POOL2D_BACKWARD, "1x1x130x150 > 1x2x260x150", {POOL_3X3}},
    {LS_OP_AVERAGE_POOL2D, "3x28x28x23 > 3x14x14x23", {.kernel = {2, 2}, .strides = {2, 2}}},
    {LS_OP_AVERAGE_POOL2D, "2x31x30x64 > 2x16x15x64", {POOL_3X3}},
    {LS_OP_AVERAGE_POOL2D, "5x7x7x131 > 5x1x1x131", {.kernel = {7, 7}, .strides = {1, 1}}},
    {LS_OP_AVERAGE_POOL2D_BACKWARD, "1x1x1x1 > 1x1x1x1", {.kernel = {1, 1}, .strides = {1, 1}}},
    {LS_OP_AVERAGE_POOL2D_BACKWARD, "5x1x1x131 > 5x7x7x131", {.kernel = {7, 7}, .strides = {1, 1}}},
    {LS_OP_AVERAGE_POOL2D_BACKWARD,
     "3x14x14x23 > 3x29x29x23",
     {.kernel = {2, 2}, .strides = {2, 2}}},
    {LS_OP_AVERAGE_POOL2D_BACKWARD,
     "2x16x15x64 2x31x30x64 > 2x31x30x64",
     {POOL_3X3, AFTER(LS_RELU)}},
    {LS_OP_AVERAGE_POOL2D_BACKWARD,
     "2x16x15x17 2x31x30x17 > 2x31x30x17",
     {POOL_3X3, AFTER(LS_TANH)}},
    {LS_OP_DROPOUT, "1x1 > 1x1", {.rate = 0.5f}},
    {LS_OP_DROPOUT, "3x7x11x53 > 3x7x11x53", {.rate = 0.3f, .key = 2}},
    {LS_OP_DROPOUT, "7x2311 > 7x2311", {.rate = 0.3f}},
    {LS_OP_DROPOUT, "3x7x11x53 > 3x7x11x53", {.rate = 0.3f, .axes = {0, 1, 1}}},
    {LS_OP_DROPOUT, "3x7x1100 > 3x7x1100", {.rate = 0.3f, .axes = {0, 0, 1}}},
    {LS_OP_NOISE, "7x2311 > 7x2311", {.rate = 0.3f}},
    {LS_OP_PAIR, "1x1 1x1 > 1x1", {.function = LS_PAIR_SUBTRACT}},
    {LS_OP_PAIR, "5x7x11x24 5x7x11x24 > 5x7x11x24", {.function = LS_PAIR_MULTIPLY}},
    {LS_OP_PAIR, "31x2113 2113 > 31x2113", {.function = LS_PAIR_ADD}},
    {LS_OP_PAIR, "5x7x11x24 1x1x1x24 > 5x7x11x24", {.function = LS_PAIR_MAXIMUM}},
    {LS_OP_PAIR, "5x1x1x32 5x14x13x32 > 5x14x13x32", {.function = LS_PAIR_MULTIPLY}},
    {LS_OP_PAIR, "5x14x13x1 5x14x13x17 > 5x14x13x17", {.function = LS_PAIR_DIVIDE}},
    {LS_OP_PAIR, "3x1x7x5 3x11x7x1 > 3x11x7x5", {.function = LS_PAIR_MINIMUM}},
    {LS_OP_PAIR_BACKWARD_FIRST,
     "5x7x11x24 5x7x11x24 5x7x11x24 > 5x7x11x24",
     {.function = LS_PAIR_DIVIDE}},
    {LS_OP_PAIR_BACKWARD_FIRST,
     "5x14x13x32 5x1x1x32 5x14x13x32 > 5x1x1x32",
     {.function = LS_PAIR_MULTIPLY}},
    {LS_OP_PAIR_BACKWARD_SECOND,
     "5x7x11x24 5x7x11x24 5x7x11x24 > 5x7x11x24",
     {.function = LS_PAIR_DIVIDE}},
    {LS_OP_PAIR_BACKWARD_SECOND, "31x2113 31x2113 2113 > 2113", {.function = LS_PAIR_SUBTRACT}},
    {LS_OP_PAIR_BACKWARD_SECOND, "31x2113 31x2113 2113 > 2113", {.function = LS_PAIR_MULTIPLY}},
    {LS_OP_PAIR_BACKWARD_SECOND,
     "5x14x13x17 5x14x13x17 5x14x13x1 > 5x14x13x1",
     {.function = LS_PAIR_MAXIMUM}},
    {LS_OP_PAIR_BACKWARD_SECOND, "3x4099 3x4099 3x1 > 3x1", {.function = LS_PAIR_MULTIPLY}},
    {LS_OP_PAIR_BACKWARD_SECOND, "100x7x131 100x7x131 131 > 131", {.function = LS_PAIR_ADD}},
    {LS_OP_REDUCE, "1x1 > 1x1", {.function = LS_REDUCE_TO_MEAN, .axes = {0, 1}}},
    {LS_OP_REDUCE, "5x14x13x40 > 5x1x1x40", {.function = LS_REDUCE_TO_MEAN, .axes = {0, 1, 1}}},
    {LS_OP_REDUCE, "5x14x13x40 > 5x1x1x40", {.function = LS_REDUCE_TO_MAXIMUM, .axes = {0, 1, 1}}},
    {LS_OP_REDUCE, "5x14x13x40 > 5x14x13x1", {.function = LS_REDUCE_TO_SUM, .axes = {0, 0, 0, 1}}},
    {LS_OP_REDUCE, "3x4099 > 3x1", {.function = LS_REDUCE_TO_SUM, .axes = {0, 1}}},
    {LS_OP_REDUCE, "3x2077 > 3x1", {.function = LS_REDUCE_TO_MAXIMUM, .axes = {0, 1}}},
    {LS_OP_REDUCE, "2x997x131 > 2x1x131", {.function = LS_REDUCE_TO_SUM, .axes = {0, 1}}},
    {LS_OP_REDUCE_BACKWARD,
     "5x1x1x40 5x14x13x40 5x1x1x40 > 5x14x13x40",
     {.function = LS_REDUCE_TO_MEAN, .axes = {0, 1, 1}}},
    {LS_OP_REDUCE_BACKWARD,
     "3x1 3x2077 3x1 > 3x2077",
     {.function = LS_REDUCE_TO_SUM, .axes = {0, 1}}},
    {LS_OP_REDUCE_BACKWARD,
     "5x1x1x24 5x7x6x24 5x1x1x24 > 5x7x6x24",
     {.function = LS_REDUCE_TO_MAXIMUM, .axes = {0, 1, 1}}},
    {LS_OP_REDUCE_BACKWARD,
     "3x1 3x2077 3x1 > 3x2077",
     {.function = LS_REDUCE_TO_MAXIMUM, .axes = {0, 1}}},
    {LS_OP_UPSAMPLE2D, "2x5x7x19 > 2x10x21x19", {.strides = {2, 3}}},
    {LS_OP_UPSAMPLE2D_BACKWARD, "2x10x21x19 > 2x5x7x19", {.strides = {2, 3}}},
    {LS_OP_UPSAMPLE2D,
     "5x5x7x40 > 5x10x21x40",
     {.function = LS_UPSAMPLE_BILINEAR, .strides = {2, 3}}},
    {LS_OP_UPSAMPLE2D_BACKWARD,
     "5x10x21x40 > 5x5x7x40",
     {.function = LS_UPSAMPLE_BILINEAR, .strides = {2, 3}}},
    {LS_OP_PRELU, "5x7x11x24 f1x1x24 > 5x7x11x24", {.groups = 0}},
    {LS_OP_PRELU, "31x2113 f2113 > 31x2113", {.groups = 0}},
    {LS_OP_PRELU, "7x3x1100 f1x1 > 7x3x1100", {.groups = 0}},
    {LS_OP_PRELU_BACKWARD, "5x7x11x24 5x7x11x24 f1x1x24 > 5x7x11x24 f1x1x24", {.groups = 0}},
    {LS_OP_PRELU_BACKWARD, "37x2113 37x2113 f2113 > 37x2113 f2113", {.groups = 0}},
    {LS_OP_PRELU_BACKWARD, "7x3x131 7x3x131 f1x1 > 7x3x131 f1x1", {.groups = 0}},
    {LS_OP_BATCH_NORMALIZATION, "1x1 f1 f1 > 1x1 f1 f1", {.epsilon = 9}, true},
    {LS_OP_BATCH_NORMALIZATION, "3x29x31x24 f24 f24 > 3x29x31x24 f24 f24", {.epsilon = 9}, true},
    {LS_OP_BATCH_NORMALIZATION,
     "5x14x13x131 f131 f131 5x14x13x131 > 5x14x13x131 f131 f131",
     {.epsilon = 9},
     true},
    {LS_OP_BATCH_NORMALIZATION_BACKWARD,
     "3x29x31x24 f24 f24 f24 3x29x31x24 > 3x29x31x24 f24 f24",
     {.epsilon = 9},
     true},
    {LS_OP_BATCH_NORMALIZATION_BACKWARD,
     "5x14x13x131 f131 f131 f131 5x14x13x131 > 5x14x13x131 f131 f131",
     {.epsilon = 9},
     true},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE,
     "7x311 f311 f311 f311 f311 > 7x311",
     {.epsilon = 9},
     true},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA,
     "3x7x11x53 f53 f53 > 3x7x11x53",
     {.epsilon = 9},
     true},
    {LS_OP_BATCH_NORMALIZATION,
     "5x14x13x131 f131 f131 5x14x13x131 > 5x14x13x131 f131 f131",
     {.epsilon = 9, .epilogue = LS_OP_ACTIVATION, .epilogue_activation = LS_RELU},
     true},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE,
     "3x29x31x24 f24 f24 f24 f24 3x29x31x24 > 3x29x31x24",
     {.epsilon = 9, .epilogue = LS_OP_ACTIVATION, .epilogue_activation = LS_RELU},
     true},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS,
     "3x7x11x53 f53 f53 3x7x11x53 > f53 f53",
     {.epsilon = 9},
     true},
    {LS_OP_BATCH_MOMENTS, "3x7x11x53 > d107", {.epsilon = 9}, true},
    {LS_OP_BATCH_MOMENTS, "31x2113 > d4227", {.epsilon = 9}, true},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS,
     "3x7x11x53 f53 f53 3x7x11x53 > f53 f53 d107",
     {.epsilon = 9},
     true},
    {LS_OP_RESHAPE, "1x1x1x1 > 1x1", {.groups = 0}},
    {LS_OP_RESHAPE, "3x5x7x24 > 3x840", {.groups = 0}},
    {LS_OP_RESHAPE, "3x35x40 > 3x5x7x40", {.groups = 0}},
    {LS_OP_RESHAPE, "31x5x7x40 > 31x35x1x40", {.groups = 0}},
    {LS_OP_RESHAPE, "2x13x6x17 > 2x17x13x6", {.groups = 0}},
    {LS_OP_CONCATENATE, "2x7x5x16 2x7x5x17 2x7x5x3 > 2x7x5x36", {.axes = {0, 0, 0, 1}}},
    {LS_OP_CONCATENATE, "9x14x14x32 9x14x14x16 > 9x14x14x48", {.axes = {0, 0, 0, 1}}},
    {LS_OP_CONCATENATE, "2x3x11x23 2x4x11x23 > 2x7x11x23", {.axes = {0, 1}}},
    {LS_OP_CONCATENATE_BACKWARD, "2x7x5x36 > 2x7x5x16 2x7x5x20", {.axes = {0, 0, 0, 1}}},
    {LS_OP_SLICE, "3x9x11x17 > 3x7x4x17", {.axes = {0, 1, 7}}},
    {LS_OP_SLICE, "3x5x6x48 > 3x4x5x9", {.axes = {0, 1, 0, 13}}},
    {LS_OP_SLICE, "3x7x10 > 3x1x1", {.axes = {0, 6, 3}}},
    {LS_OP_SLICE_BACKWARD, "3x7x4x17 > 3x9x11x17", {.axes = {0, 1, 7}}},
    {LS_OP_PAD, "5x28x28x19 > 5x31x30x19", {.axes = {0, 1, 2}}},
    {LS_OP_PAD_BACKWARD, "5x31x30x19 > 5x28x28x19", {.axes = {0, 1, 2}}},
    {LS_OP_TRANSPOSE, "2x13x11x17 > 2x17x13x11", {.axes = {0, 3, 1, 2}}},
    {LS_OP_TRANSPOSE, "2x130x11x17 > 2x11x130x17", {.axes = {0, 2, 1, 3}}},
    {LS_OP_TRANSPOSE, "3x97x131 > 3x131x97", {.axes = {0, 2, 1}}},
    {LS_OP_TRANSPOSE_BACKWARD, "2x17x13x11 > 2x13x11x17", {.axes = {0, 3, 1, 2}}},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

// Channels in a block; 0: plain. Only activations of the same channels lie in blocks.
static const int64_t blocks[] = {0, 16, 8, 1};
enum { LAYOUTS = sizeof(blocks) / sizeof(blocks[0]) };

static const uint32_t halves[] = {LS_BF16, LS_F16};

// ---- Tensors ----

// The words are those of plugins/device/cpu/layout.c: batch, channels, rows, columns, and blocks of
// channels inside.
static struct ls_tensor_desc tensor_of(const char *shape, uint32_t dtype, int64_t block)
{
    const bool is_named = *shape == 'f' || *shape == 'd';
    struct ls_tensor_desc desc = {.dtype = *shape == 'f' ? LS_F32 : *shape == 'd' ? LS_F64 : dtype};
    int64_t elements = 1;
    for (char *at = (char *)(uintptr_t)shape + is_named, *end; *at; at = end + (*end == 'x')) {
        desc.dims[desc.ndims] = strtoll(at, &end, 10);
        elements *= desc.dims[desc.ndims++];
    }
    desc.layout.kind = LS_LAYOUT_PLAIN;
    if (block && desc.ndims == 4) {
        const int64_t channels = desc.dims[3];
        elements = elements / channels * ((channels + block - 1) / block * block);
        desc.layout.kind = LS_LAYOUT_OWN;
        desc.layout.words[0] = UINT64_C(1) | 4 << 8 | (block > 1) << 16 | UINT64_C(1) << 32;
        desc.layout.words[1] = 1 << 8 | 2 << 16 | 3 << 24;
        desc.layout.words[2] = block > 1 ? (uint64_t)block : 0;
        desc.layout.words[3] = block > 1;
    }
    desc.layout.bytes = (uint64_t)elements * ls_dtype_bytes(desc.dtype);
    return desc;
}

static uint64_t elements_of(const struct ls_tensor_desc *desc)
{
    return desc->layout.bytes / ls_dtype_bytes(desc->dtype);
}

static bool is_padding(const struct ls_tensor_desc *desc, uint64_t i, int64_t block)
{
    if (desc->layout.kind == LS_LAYOUT_PLAIN)
        return false;
    const uint64_t inner = (uint64_t)block, last = (uint64_t)desc->dims[3] % inner;
    if (last == 0 || i % inner < last) // of the channels of a last block
        return false;
    const uint64_t plane = (uint64_t)(desc->dims[1] * desc->dims[2]);
    const uint64_t count = (uint64_t)desc->dims[3] / inner + 1;
    return i / (plane * inner) % count == count - 1;
}

// Up to 4 in magnitude, some of which are equal; zeros of both signs, the least half, infinity.
static uint16_t draw(uint32_t half, uint64_t i)
{
    const uint64_t bits = ls_mix64(1, i);
    const uint16_t sign = bits & 1 ? 0x8000 : 0;
    switch (bits >> 1 & 63) {
    case 0: return sign;
    case 1: return sign | 1;
    case 2: // rare: what adds up many elements makes no numbers of it
        return bits >> 7 & 7 || i % 4096 > 200 ? sign : sign | (half == LS_BF16 ? 0x7f80 : 0x7c00);
    case 3:
    case 4:
    case 5: return sign | ls_half_of(half, (float)(bits >> 8 & 15) * 0.25f);
    default: return sign | ls_half_of(half, (float)(bits >> 40) * 0x1p-22f);
    }
}

enum { DRAWN = 65536 };
static uint16_t drawn[2][DRAWN]; // of float16, of bfloat16

static void draw_all(void)
{
    for (uint64_t i = 0; i < DRAWN; i++) {
        drawn[0][i] = draw(LS_F16, i);
        drawn[1][i] = draw(LS_BF16, i);
    }
}

struct run {
    const struct row *row;
    uint32_t half; // the type that is tested
    int64_t block;
    struct test_request request;
    struct ls_kernel_answer answer;
    void *values[TEST_ARGUMENTS]; // owned
    int32_t status;
};

static uint32_t count_of(const struct run *run)
{
    return run->request.input_count + run->request.output_count;
}

// Element i of an argument, as a half.
static uint16_t get(const struct run *run, uint32_t argument, uint64_t i)
{
    return run->request.arguments[argument].dtype == LS_F32
               ? ls_half_of(run->half, ((const float *)run->values[argument])[i])
               : ((const uint16_t *)run->values[argument])[i];
}

// The values of an argument are the same in both types, and are halves.
static void draw_argument(struct run *run, uint32_t argument)
{
    const struct ls_tensor_desc *desc = &run->request.arguments[argument];
    // After a pooling's backward y is the pooling's x.
    const bool follows = run->row->op == LS_OP_MAX_POOL2D_BACKWARD && argument == 4;
    const uint64_t seed = follows ? 1 : argument;
    const uint16_t *values = drawn[run->half == LS_BF16];
    for (uint64_t i = 0; i < elements_of(desc) && desc->dtype != LS_F64; i++) {
        const uint16_t value =
            is_padding(desc, i, run->block) ? 0 : values[(i + seed * 9973) % DRAWN];
        if (desc->dtype == LS_F32)
            ((float *)run->values[argument])[i] = ls_half_get(run->half, value);
        else
            ((uint16_t *)run->values[argument])[i] = value;
    }
}

static void finish(struct run *run)
{
    for (uint32_t i = 0; i < TEST_ARGUMENTS; i++)
        free(run->values[i]);
}

// As test_prepare(); halves are where the device declares that it takes them, too.
static int32_t prepare(struct ls_device *device, const struct test_request *request,
                       struct ls_kernel_answer *out)
{
    static struct ls_layout layouts[TEST_ARGUMENTS];
    const struct ls_device_interface *d = plugin->interface;
    const struct ls_kernel_request asked = test_kernel_request(request);
    char why[256] = "";
    ck_assert_msg(ls_operation_check(&asked, true, why, sizeof(why)) == LS_OK, "%s", why);
    memset(layouts, 0, sizeof(layouts));
    *out = (struct ls_kernel_answer){.struct_size = sizeof(*out), .layouts = layouts};
    return d->kernels->prepare(device, &asked, out);
}

static void launch(struct ls_device *device, const struct ls_kernel *kernel, void *const *arguments,
                   uint32_t count, void *scratch)
{
    static const struct ls_step_record record = {.step = 3, .seed = 5};
    const struct ls_device_interface *d = plugin->interface;
    struct ls_memory memory[TEST_ARGUMENTS];
    for (uint32_t i = 0; i < count; i++)
        memory[i] = ls_host_memory(arguments[i]);
    const struct ls_launch call = {.struct_size = sizeof(call),
                                   .argument_count = count,
                                   .arguments = memory,
                                   .scratch = ls_host_memory(scratch),
                                   .record = ls_host_memory(&record)};
    ck_assert_int_eq(d->kernels->launch(device, kernel, &call), LS_OK);
}

// Output 0 is where input `place` is; -1: in its own memory.
static void go(struct run *run, uint32_t threads, int place)
{
    const struct ls_device_interface *d = plugin->interface;
    struct ls_device *device = devices[threads];
    void *arguments[TEST_ARGUMENTS];
    run->status = prepare(device, &run->request, &run->answer);
    memcpy(arguments, run->values, sizeof(arguments));
    for (uint32_t i = run->request.input_count; i < count_of(run); i++)
        if (!run->request.accumulate)
            memset(arguments[i], 0xff, run->request.arguments[i].layout.bytes); // NaN
    if (!run->status && (place < 0 || run->answer.in_place >> place & 1)) {
        if (place >= 0)
            arguments[run->request.input_count] = arguments[place];
        void *scratch = (void *)d->memory->allocate(device, run->answer.scratch_bytes);
        memset(scratch, 0xff, run->answer.scratch_bytes);
        launch(device, run->answer.kernel, arguments, count_of(run), scratch);
        d->memory->release(device, scratch);
    }
    if (!run->status)
        d->kernels->release(device, run->answer.kernel);
}

// Argument `saved` is what the pooling of arguments 1 and 2 writes beside y.
static void save(struct run *run, uint32_t saved)
{
    struct run forward = {.request = {.op = LS_OP_MAX_POOL2D,
                                      .attributes = run->row->a,
                                      .input_count = 1,
                                      .output_count = 2}};
    const uint64_t most = elements_of(&run->request.arguments[2]) * 4;
    struct ls_tensor_desc *desc = &run->request.arguments[saved];
    forward.request.attributes.epilogue = LS_OP_NONE;
    *desc = (struct ls_tensor_desc){
        .dtype = LS_U8, .ndims = 1, .dims = {(int64_t)most}, .layout = {.bytes = most}};
    run->values[saved] = malloc(most);
    ck_assert_ptr_nonnull(run->values[saved]);
    memcpy(forward.request.arguments, run->request.arguments + 1, 3 * sizeof(*desc));
    memcpy(forward.values, run->values + 1, 3 * sizeof(void *));
    go(&forward, 3, -1);
    ck_assert_msg(!forward.status, "%s", host.message);
    desc->dims[0] = (int64_t)forward.answer.saved_bytes;
    desc->layout = (struct ls_layout){.kind = LS_LAYOUT_PLAIN, .bytes = forward.answer.saved_bytes};
}

// Inputs are drawn; outputs are what is added to.
static struct run start(const struct row *row, uint32_t dtype, uint32_t half, int64_t block)
{
    struct run run = {.row = row, .half = half, .block = block};
    uint32_t count = 0, *counter = &run.request.input_count;
    char shapes[128], *rest = shapes;
    run.request.op = row->op;
    run.request.attributes = row->a;
    snprintf(shapes, sizeof(shapes), "%s", row->arguments);
    for (char *shape; (shape = strtok_r(rest, " ", &rest));) {
        if (*shape == '>') {
            counter = &run.request.output_count;
            continue;
        }
        ++*counter;
        if (*shape == 's') {
            save(&run, count++);
            continue;
        }
        run.request.arguments[count] = tensor_of(shape, dtype, block);
        run.values[count] = malloc(run.request.arguments[count].layout.bytes);
        ck_assert_ptr_nonnull(run.values[count]);
        draw_argument(&run, count++);
    }
    return run;
}

// Runs in float32, and the activation after it on the result, rounded.
static void go_wide(struct run *run)
{
    const uint32_t output = run->request.input_count;
    struct ls_op_attributes *a = &run->request.attributes;
    struct run after = {.half = run->half,
                        .request = {.op = a->epilogue,
                                    .attributes = {.activation = a->epilogue_activation},
                                    .input_count = 2,
                                    .output_count = 1}};
    struct ls_tensor_desc *desc = &run->request.arguments[output];
    if (a->epilogue != LS_OP_ACTIVATION_BACKWARD) {
        go(run, 2, -1);
        return;
    }
    a->epilogue = LS_OP_NONE;
    run->request.input_count--;
    memmove(desc - 1, desc, sizeof(*desc)); // which are alike
    float *y = run->values[output - 1], *result = run->values[output];
    run->values[output - 1] = result;
    go(run, 2, -1);
    run->request.input_count++;
    run->values[output - 1] = y;
    for (uint64_t i = 0; i < elements_of(desc) && !run->status; i++)
        result[i] = ls_half_get(run->half, ls_half_of(run->half, result[i]));
    for (int i = 0; i < 3; i++)
        after.request.arguments[i] = *desc;
    after.values[0] = result;
    after.values[1] = y;
    run->values[output] = after.values[2] = malloc(desc->layout.bytes);
    ck_assert_ptr_nonnull(after.values[2]);
    if (!run->status)
        go(&after, 2, -1);
    free(result);
}

// ---- Comparing ----

static bool is_nan(uint32_t half, uint16_t value)
{
    return (value & 0x7fff) > (half == LS_BF16 ? 0x7f80 : 0x7c00);
}

// Argument `at` of the run in halves has what the float32 run made of output `output`, rounded; or
// `before`, to which that was added, rounded again.
static void check_output(const struct run *wide, const struct run *got, uint32_t output,
                         uint32_t at, const struct run *before)
{
    const uint32_t half = got->half;
    if (got->request.arguments[at].dtype == LS_F64) {
        ck_assert_mem_eq(got->values[at], wide->values[output],
                         got->request.arguments[at].layout.bytes);
        return;
    }
    if (got->request.arguments[at].dtype == LS_F32) {
        const float *values = got->values[at], *wanted = wide->values[output];
        for (uint64_t i = 0; i < elements_of(&wide->request.arguments[output]); i++) {
            const float sum = before ? wanted[i] + ((const float *)before->values[output])[i] : 0;
            const float value = before ? sum : wanted[i];
            if (memcmp(&values[i], &value, sizeof(value)) != 0 &&
                !(isnan(values[i]) && isnan(value)))
                ck_abort_msg("%s %s: argument %u has %.9g at %llu, not %.9g",
                             ls_op_name(got->row->op), got->row->arguments, at, (double)values[i],
                             (unsigned long long)i, (double)value);
        }
        return;
    }
    for (uint64_t i = 0; i < elements_of(&wide->request.arguments[output]); i++) {
        const uint16_t value = get(got, at, i);
        uint16_t wanted = get(wide, output, i);
        if (before)
            wanted = ls_half_of(half, ls_half_get(half, wanted) +
                                          ls_half_get(half, get(before, output, i)));
        if (value != wanted && !(is_nan(half, value) && is_nan(half, wanted)))
            ck_abort_msg("%s %s in blocks of %lld by %s%s: argument %u has 0x%04x (%g) at %llu, "
                         "not 0x%04x (%g)",
                         ls_op_name(got->row->op), got->row->arguments, (long long)got->block,
                         got->answer.implementation, before ? ", added" : "", at, value,
                         (double)ls_half_get(half, value), (unsigned long long)i, wanted,
                         (double)ls_half_get(half, wanted));
    }
}

// How results are written: added to what is there, alone, and (from 0 on) in the place of an input.
enum { ADDED = -2, ALONE };

static void compare(const struct row *row, uint32_t half, int64_t block)
{
    struct run wide = start(row, LS_F32, half, block), before = start(row, half, half, block);
    const uint32_t first = wide.request.input_count;
    go_wide(&wide);
    ck_assert_msg(!wide.status || block, "%s %s: %s", ls_op_name(row->op), row->arguments,
                  host.message);
    for (int way = row->alone ? ALONE : ADDED; way < (int)first && !wide.status; way++) {
        struct run got = start(row, half, half, block);
        if (way == ADDED)
            got.request.accumulate = (UINT32_C(1) << got.request.output_count) - 1;
        go(&got, 3, way);
        ck_assert_msg(!got.status, "%s %s: %s", ls_op_name(row->op), row->arguments, host.message);
        ck_assert_msg(!strstr(got.answer.implementation, "float32 copies"), "%s %s: %s",
                      ls_op_name(row->op), row->arguments, got.answer.implementation);
        if (way < 0 || got.answer.in_place >> way & 1)
            check_output(&wide, &got, first, way < 0 ? first : (uint32_t)way,
                         way == ADDED ? &before : NULL);
        for (uint32_t i = 0; i < first; i++)
            if (got.request.arguments[i].dtype == LS_U8)
                ck_assert_mem_eq(got.values[i], wide.values[i],
                                 got.request.arguments[i].layout.bytes);
        for (uint32_t i = first + 1; i < count_of(&got) && way < 0; i++)
            check_output(&wide, &got, i, i, way == ADDED ? &before : NULL);
        finish(&got);
    }
    finish(&wide);
    finish(&before);
}

static bool may_have_blocks(const struct row *row)
{
    struct run run = start(row, LS_F32, LS_BF16, 16);
    bool any = false;
    for (uint32_t i = 0; i < count_of(&run); i++)
        any = any || run.request.arguments[i].layout.kind == LS_LAYOUT_OWN;
    finish(&run);
    return any;
}

LOOP_TEST(halves_are_what_float32_makes_of_them, 0, ROWS)
{
    for (uint32_t threads = 2; threads <= MOST_THREADS; threads++) {
        const struct ls_device_config config = {.struct_size = sizeof(config), .threads = threads};
        ck_assert_int_eq(
            ls_device_open_state(plugin->interface, &host.host, &config, &devices[threads]), LS_OK);
    }
    const int layouts = may_have_blocks(&rows[_i]) ? LAYOUTS : 1;
    for (int h = 0; h < 2; h++)
        for (int layout = 0; layout < layouts; layout++)
            compare(&rows[_i], halves[h], blocks[layout]);
    for (uint32_t threads = 2; threads <= MOST_THREADS; threads++)
        ls_device_close(devices[threads]);
}

int main(void)
{
    setenv("OMP_WAIT_POLICY", "passive", 0); // threads that spin only steal time from other tests
    plugin = test_plugin_open("device-cpu");
    if (!plugin)
        return TEST_SKIPPED;
    test_host_init(&host, plugin);
    draw_all();
    return test_suite_run("halves on cpu");
}
