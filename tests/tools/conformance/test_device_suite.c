// SPDX-License-Identifier: Apache-2.0
// The device suite itself: it passes device `reference`, and it finds what is wrong with a device that
// breaks one promise of the contract, naming the case.
#include "tools/conformance/device.h"
#include "core/plugin/half.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdbool.h>

// ---- A device that breaks one promise: `reference` behind wrong_prepare() and wrong_launch() ----

enum wrong {
    NOTHING,
    RESULT, // one element of a result is a little off
    BEHIND_OUTPUT, // writes one float behind an output
    BEHIND_SCRATCH, // announces too little scratch
    UNUSED_INPUT, // reads an input that it says it does not use
    FIXED_LAYOUT, // answers another layout than the fixed one
    NOT_REPEATABLE, // another result the second time
    ALLOCATES, // takes host memory while it runs
    IGNORES_SKIP, // updates although the step is to be skipped
    IN_PLACE, // says that output may lie over an input that it still needs
    SPLIT, // drops elements by their place in the local batch
    ACCUMULATE, // overwrites instead of adding
    OTHER_ADDED, // adds to dbeta for dgamma, and to dgamma for dbeta
    SILENT_REFUSAL, // refuses without a reason
    NO_STREAMS, // has reductions, but no streams
    EPILOGUE, // declares a fusion and leaves the epilogue out
    HALF_ROUNDING, // results in halves are one below the nearest
    CAST_ROUNDING, // the same, and declares that it takes the casts of the operation
    FLAT_HALVES, // normalized halves are the same in all rows, where nothing is added to them
    NO_HALVES, // breaks none: it refuses half types
    ONE_PASS, // a variance in one pass, in float32
    NO_ADDEND, // leaves the addend out
    GRADIENT_OF_ALL, // takes gradients with what was there before for those of the share
    NO_NORMALIZATION, // breaks none: it has no batch normalization
    FUSES_NOTHING, // declares a fusion into a batch normalization that it has not
    TILES, // breaks none: it asks for tiles
    PLACE_IN_BATCH, // what it computes of an example depends on its place in the batch
    UNEQUAL_EXAMPLES, // keeps more of the first example than of the others
};

struct ls_kernel {
    struct ls_kernel *real;
    struct ls_kernel_request request; // its arguments are those below
    struct ls_tensor_desc arguments[16];
};

static enum wrong wrong;
static uint32_t wrong_op;
static const struct ls_device_interface *real;
static const struct ls_host *device_host;
static _Thread_local uint32_t launches;

static int32_t wrong_open(const struct ls_host *host, const struct ls_device_config *config,
                          struct ls_device *device)
{
    device_host = host;
    return real->open(host, config, device);
}

static int32_t wrong_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                             struct ls_kernel_answer *out)
{
    const bool hit = request->op == wrong_op;
    struct ls_kernel_request asked = *request;
    asked.forward = NULL;
    if (hit && wrong == SILENT_REFUSAL)
        return LS_UNSUPPORTED;
    if (hit && wrong == ACCUMULATE)
        asked.accumulate = 0;
    if (hit && wrong == OTHER_ADDED)
        asked.accumulate =
            (asked.accumulate & 1) | (asked.accumulate & 2) << 1 | (asked.accumulate & 4) >> 1;
    if (hit && wrong == EPILOGUE)
        asked.attributes.epilogue = LS_OP_NONE;

    for (uint32_t i = 0; wrong == NO_HALVES && i < asked.input_count + asked.output_count; i++)
        if (ls_dtype_is_half(asked.arguments[i].dtype))
            return ls_host_fail(device_host, LS_UNSUPPORTED, "float32 only");

    if ((wrong == NO_NORMALIZATION || wrong == FUSES_NOTHING) &&
        ((asked.op >= LS_OP_BATCH_NORMALIZATION &&
          asked.op <= LS_OP_BATCH_NORMALIZATION_INFERENCE) ||
         (asked.op >= LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA &&
          asked.op <= LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS) ||
         (asked.op >= LS_OP_BATCH_MOMENTS &&
          asked.op <= LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA)))
        return ls_host_fail(device_host, LS_UNSUPPORTED, "no batch normalization");

    const int32_t status = real->kernels->prepare(device, &asked, out);
    if (status)
        return status;
    struct ls_kernel *kernel = calloc(1, sizeof(*kernel));
    ck_assert_ptr_nonnull(kernel);
    kernel->real = out->kernel;
    kernel->request = *request;
    kernel->request.arguments = kernel->arguments;
    memcpy(kernel->arguments, request->arguments,
           (request->input_count + request->output_count) * sizeof(kernel->arguments[0]));
    out->kernel = kernel;
    if (hit && wrong == BEHIND_SCRATCH && out->scratch_bytes > 8)
        out->scratch_bytes -= 8;
    if (hit && wrong == UNUSED_INPUT)
        out->used_inputs &= ~2u;
    if (hit && wrong == UNEQUAL_EXAMPLES && request->output_count == 2)
        out->layouts[2].bytes = out->saved_bytes = out->saved_bytes + 1;
    if (hit && wrong == FIXED_LAYOUT)
        out->layouts[0].words[3] = 1;
    if (hit && wrong == IN_PLACE)
        out->in_place = 1;
    return LS_OK;
}

static void wrong_release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    if (kernel)
        real->kernels->release(device, kernel->real);
    free(kernel);
}

// The forward operation, whose variance has become the mean of the squares less the square of the mean.
static void vary_in_one_pass(const struct ls_kernel_request *request,
                             const struct ls_memory *arguments)
{
    const int64_t channels = request->arguments[1].dims[0];
    const int64_t n = (int64_t)ls_tensor_elements(&request->arguments[0]) / channels;
    const float *x = ls_address(arguments[0]);
    for (int64_t c = 0; c < channels; c++) {
        float mean = 0, squares = 0;
        for (int64_t i = c; i < n * channels; i += channels) {
            mean += x[i] / (float)n;
            squares += x[i] * x[i] / (float)n;
        }
        ((float *)ls_address(arguments[request->input_count + 2]))[c] = squares - mean * mean;
    }
}

// Sums that were formed in float32.
static void sum_in_float32(const struct ls_kernel_request *request,
                           const struct ls_memory *arguments)
{
    const int64_t channels = (request->arguments[1].dims[0] - 1) / 2;
    const int64_t count = (int64_t)ls_tensor_elements(&request->arguments[0]);
    const float *x = ls_address(arguments[0]);
    for (int64_t c = 0; c < channels; c++) {
        float squares = 0;
        for (int64_t i = c; i < count; i += channels)
            squares += x[i] * x[i];
        ((double *)ls_address(arguments[1]))[channels + c] = (double)squares;
    }
}

// dx with dgamma and dbeta as they are after the addition: off by the 1/n of it that was there before.
static void use_gradients_of_all(const struct ls_kernel_request *request,
                                 const struct ls_memory *arguments)
{
    const int64_t channels = request->arguments[1].dims[0];
    const int64_t count = (int64_t)ls_tensor_elements(&request->arguments[0]);
    const float *dbeta = ls_address(arguments[7]);
    for (int64_t i = 0; request->accumulate & 4 && i < count; i++)
        ((float *)ls_address(arguments[5]))[i] -=
            dbeta[i % channels] * (float)channels / (float)count;
}

static void spoil(const struct ls_kernel *kernel, const struct ls_launch *launch)
{
    const struct ls_kernel_request *request = &kernel->request;
    const uint64_t count = ls_tensor_elements(&request->arguments[request->input_count]);
    const uint64_t channels = (uint64_t)request->arguments[0].dims[request->arguments[0].ndims - 1];
    const bool addend = request->input_count == 4 || request->input_count == 6;
    float *output = ls_address(launch->arguments[request->input_count]);
    uint16_t *halves = ls_address(launch->arguments[request->input_count]);
    const bool half = ls_dtype_is_half(request->arguments[request->input_count].dtype);

    if (half && wrong != HALF_ROUNDING &&
        wrong != FLAT_HALVES) // the other mistakes are made in float32
        return;
    switch (wrong) {
    case RESULT: output[count / 2] += 1e-3f; break;
    case BEHIND_OUTPUT: output[count] = 0; break;
    case NOT_REPEATABLE: output[0] *= 1 + (float)(launches % 2) * 0x1p-23f; break;
    case ALLOCATES:
        device_host->release(device_host, device_host->allocate(device_host, 8, 8));
        break;
    case HALF_ROUNDING:
        for (uint64_t i = 0; half && i < count; i++)
            halves[i] = (uint16_t)(halves[i] & 0x7fff ? halves[i] - 1 : halves[i]);
        break;
    case FLAT_HALVES:
        for (uint64_t i = channels; half && !addend && !request->accumulate && i < count; i++)
            halves[i] = halves[i % channels];
        break;
    case IN_PLACE:
        if (output == (float *)ls_address(launch->arguments[0]))
            output[0] += 1;
        break;
    case ONE_PASS:
        if (wrong_op == LS_OP_BATCH_MOMENTS)
            sum_in_float32(request, launch->arguments);
        else
            vary_in_one_pass(request, launch->arguments);
        break;
    case NO_ADDEND:
        for (uint64_t i = 0; request->input_count == 4 && i < count; i++)
            output[i] -= ((const float *)ls_address(launch->arguments[3]))[i];
        break;
    case PLACE_IN_BATCH: output[0] += 1; break;
    case GRADIENT_OF_ALL: use_gradients_of_all(request, launch->arguments); break;
    default: break;
    }
}

static int32_t wrong_launch(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct ls_launch *launch)
{
    const bool hit = kernel->request.op == wrong_op;
    struct ls_step_record record = {0};
    struct ls_launch changed = *launch;

    launches++;
    if (!ls_memory_is_null(launch->record))
        memcpy(&record, ls_address(launch->record), sizeof(record));
    changed.record = ls_host_memory(&record);
    if (hit && wrong == IGNORES_SKIP)
        record.skip = 0;
    if (hit && wrong == SPLIT)
        record.example_offset = 0;
    const int32_t status = real->kernels->launch(device, kernel->real, &changed);
    if (hit)
        spoil(kernel, launch);
    return status;
}

// ---- Running the suite ----

struct outcome {
    struct ls_conformance_counts counts;
    enum ls_status status;
    char name[256], message[600]; // of the first failure
};

static void keep_first_failure(void *context, const struct ls_conformance_result *result)
{
    struct outcome *outcome = context;
    if (result->outcome != LS_CONFORMANCE_FAILED || outcome->name[0])
        return;
    snprintf(outcome->name, sizeof(outcome->name), "%s", result->name);
    snprintf(outcome->message, sizeof(outcome->message), "%s", result->message);
}

static int32_t no_reduction(struct ls_device *device, const struct ls_device_reduction *call,
                            void *stream)
{
    (void)device, (void)call, (void)stream;
    return LS_OK;
}

// Of `reference`, which takes the addend and the activation in one, but declares nothing.
static const struct ls_fusion_pattern norm_patterns[] = {
    {LS_OP_BATCH_NORMALIZATION, LS_OP_ADD, 0, 0},
    {LS_OP_BATCH_NORMALIZATION, LS_OP_ACTIVATION, 1u << LS_RELU | 1u << LS_TANH, 0},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE, LS_OP_ADD, 0, 0},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE, LS_OP_ACTIVATION, 1u << LS_RELU, 0},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED, LS_OP_ADD, 0, 0},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED, LS_OP_ACTIVATION, 1u << LS_RELU, 0},
};

static int32_t no_access(struct ls_device *device, struct ls_device *other)
{
    (void)device, (void)other;
    return LS_OK;
}

static const struct ls_device_peers peers = {
    .struct_size = sizeof(peers), .reduce = no_reduction, .can_access_peer = no_access};

static uint64_t tile_bytes(struct ls_device *device)
{
    (void)device;
    return 1;
}

static struct outcome run_suite(enum wrong what, uint32_t op, const char *only)
{
    static const struct ls_fusion_pattern pattern = {LS_OP_DENSE, LS_OP_ACTIVATION, 1u << LS_TANH,
                                                     0};
    const struct ls_fusion_pattern cast = {LS_OP_CONVERT, op, 0,
                                           0}; // `reference` takes halves in all operations
    const struct ls_plugin *plugin = test_plugin_open("device-reference");
    ck_assert_ptr_nonnull(plugin);
    real = plugin->interface;
    wrong = what;
    wrong_op = op;
    struct ls_device_interface tested = *real;
    tested.open = wrong_open;
    struct ls_device_kernels kernels = *real->kernels;
    kernels.prepare = wrong_prepare;
    kernels.launch = wrong_launch;
    kernels.release = wrong_release_kernel;
    tested.kernels = &kernels;
    if (what == EPILOGUE) {
        tested.patterns = &pattern;
        tested.pattern_count = 1;
    } else if (what == CAST_ROUNDING) {
        tested.patterns = &cast;
        tested.pattern_count = 1;
        wrong = HALF_ROUNDING;
    } else if (op == LS_OP_BATCH_NORMALIZATION || op == LS_OP_BATCH_NORMALIZATION_INFERENCE) {
        tested.patterns = norm_patterns;
        tested.pattern_count = sizeof(norm_patterns) / sizeof(norm_patterns[0]);
    }

    if (what == PLACE_IN_BATCH || what == UNEQUAL_EXAMPLES || what == TILES)
        kernels.tile_bytes = tile_bytes;
    if (what == NO_STREAMS)
        tested.peers = &peers;

    struct test_host tested_host, reference_host;
    test_host_init(&tested_host, plugin);
    test_host_init(&reference_host, plugin);
    struct outcome outcome = {0};
    const struct ls_device_conformance_options options = {.only = only, .until_failure = true};
    outcome.status = ls_conformance_device(&tested, &tested_host.host, real, &reference_host.host,
                                           &options, keep_first_failure, &outcome, &outcome.counts);
    return outcome;
}

static void assert_finds(enum wrong what, uint32_t op, const char *only, const char *message)
{
    const struct outcome outcome = run_suite(what, op, only);
    ck_assert_int_eq(outcome.status, LS_FAILED);
    ck_assert_uint_gt(outcome.counts.failed, 0);
    ck_assert_ptr_nonnull(strstr(outcome.name, only));
    ck_assert_msg(strstr(outcome.message, message) != NULL, "the message is: %s", outcome.message);
}

#ifndef __SANITIZE_ADDRESS__ // there the suite on cpu runs all of it, the reference beside cpu
TEST(reference_passes_against_itself)
{
    const struct outcome outcome = run_suite(NOTHING, LS_OP_NONE, NULL);
    ck_assert_msg(outcome.status == LS_OK, "%s: %s", outcome.name, outcome.message);
    ck_assert_uint_eq(outcome.counts.failed, 0);
    ck_assert_uint_eq(outcome.counts.refused, 4); // groups of calls for devices with streams
    ck_assert_uint_gt(outcome.counts.passed, 500);
}
#endif

TEST(a_wrong_element_is_named_with_its_position)
{
    const struct outcome outcome = run_suite(RESULT, LS_OP_CONV2D_BACKWARD_DATA, "conv2d");
    ck_assert_int_eq(outcome.status, LS_FAILED);
    ck_assert_ptr_nonnull(strstr(outcome.name, "conv2d_backward_data B="));
    ck_assert_ptr_nonnull(strstr(outcome.message, "output 0 at (0,0,0,0): got "));
    ck_assert_ptr_nonnull(strstr(outcome.message, "tolerance"));
    ck_assert_ptr_nonnull(strstr(outcome.message, "plain loops"));
}

static const struct {
    uint32_t op;
    const char *cases;
} computing[] = {
    {LS_OP_CONV2D, "conv2d B="},
    {LS_OP_CONV2D_BACKWARD_DATA, "conv2d_backward_data B="},
    {LS_OP_CONV2D_BACKWARD_WEIGHTS, "conv2d_backward_weights B="},
    {LS_OP_DENSE, "dense B="},
    {LS_OP_DENSE_BACKWARD_DATA, "dense_backward_data B="},
    {LS_OP_DENSE_BACKWARD_WEIGHTS, "dense_backward_weights B="},
    {LS_OP_MAX_POOL2D, "max_pool2d B="},
    {LS_OP_MAX_POOL2D_BACKWARD, "max_pool2d_backward B="},
    {LS_OP_AVERAGE_POOL2D, "average_pool2d B="},
    {LS_OP_AVERAGE_POOL2D_BACKWARD, "average_pool2d_backward B="},
    {LS_OP_ACTIVATION, "activation relu B="},
    {LS_OP_ACTIVATION_BACKWARD, "activation_backward relu B="},
    {LS_OP_SOFTMAX, "softmax B="},
    {LS_OP_SOFTMAX_BACKWARD, "softmax_backward B="},
    {LS_OP_DROPOUT, "dropout rate"},
    {LS_OP_RESHAPE, "reshape B="},
    {LS_OP_ADD, "add B="},
    {LS_OP_CONVERT, "convert B="},
    {LS_OP_SPARSE_CROSS_ENTROPY, "sparse_cross_entropy B="},
    {LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD, "sparse_cross_entropy_backward B="},
    {LS_OP_MEAN_SQUARED_ERROR, "mean_squared_error B="},
    {LS_OP_MEAN_SQUARED_ERROR_BACKWARD, "mean_squared_error_backward B="},
    {LS_OP_BATCH_NORMALIZATION, "batch_normalization B="},
    {LS_OP_BATCH_NORMALIZATION_BACKWARD, "batch_normalization_backward B="},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE, "batch_normalization_inference B="},
    {LS_OP_MAXIMUM, "maximum B="},
    {LS_OP_MAXIMUM_BACKWARD, "maximum_backward B="},
    {LS_OP_BATCH_STATISTICS, "batch_statistics N="},
    {LS_OP_AVERAGE_UPDATE, "average_update N="},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA,
     "batch_normalization_inference_backward_data B="},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS,
     "batch_normalization_inference_backward_weights B="},
    {LS_OP_LAYER_NORMALIZATION, "layer_normalization B="},
    {LS_OP_LAYER_NORMALIZATION_BACKWARD, "layer_normalization_backward B="},
    {LS_OP_GATHER_ROWS, "gather_rows B="},
    {LS_OP_GATHER_ROWS_BACKWARD, "gather_rows_backward B="},
    {LS_OP_ATTENTION, "attention B="},
    {LS_OP_ATTENTION_BACKWARD, "attention_backward B="},
    {LS_OP_MATMUL, "matmul B="},
    {LS_OP_MATMUL_BACKWARD_LEFT, "matmul_backward_left B="},
    {LS_OP_MATMUL_BACKWARD_RIGHT, "matmul_backward_right B="},
    {LS_OP_CONV2D_TRANSPOSE, "conv2d_transpose B="},
    {LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA, "conv2d_transpose_backward_data B="},
    {LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS, "conv2d_transpose_backward_weights B="},
    {LS_OP_PRELU, "prelu B="},
    {LS_OP_PRELU_BACKWARD, "prelu_backward B="},
    {LS_OP_PENALTY, "penalty B="},
    {LS_OP_PENALTY_BACKWARD, "penalty_backward B="},
    {LS_OP_RECURRENT, "recurrent B="},
    {LS_OP_RECURRENT_BACKWARD, "recurrent_backward B="},
    {LS_OP_DIFFERS, "differs B="},
    {LS_OP_BUCKET, "bucket B="},
    {LS_OP_LOOKUP, "lookup B="},
    {LS_OP_ENCODE, "encode B="},
    {LS_OP_DENSE_TRANSPOSED, "dense_transposed B="},
    {LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA, "dense_transposed_backward_data B="},
    {LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS, "dense_transposed_backward_weights B="},
    {LS_OP_RESIZE2D, "resize2d B="},
    {LS_OP_RESIZE2D_BACKWARD, "resize2d_backward B="},
    {LS_OP_DRAW, "draw B="},
    {LS_OP_RESAMPLE, "resample B="},
    {LS_OP_RESAMPLE_BACKWARD, "resample_backward B="},
    {LS_OP_RECOLOUR, "recolour B="},
    {LS_OP_RECOLOUR_BACKWARD, "recolour_backward B="},
    {LS_OP_ERASE, "erase B="},
    {LS_OP_ERASE_BACKWARD, "erase_backward B="},
    {LS_OP_FUNCTION, "function gelu 125x64"},
    {LS_OP_FUNCTION_BACKWARD, "function_backward silu 125x64"},
    {LS_OP_PAIR, "pair multiply 5x5"},
    {LS_OP_PAIR_BACKWARD_FIRST, "pair_backward_first multiply 7x33"},
    {LS_OP_PAIR_BACKWARD_SECOND, "pair_backward_second divide 2x7"},
    {LS_OP_REDUCE, "reduce mean 3x33"},
    {LS_OP_REDUCE_BACKWARD, "reduce_backward largest 2x13"},
    {LS_OP_NOISE, "noise B="},
    {LS_OP_CONCATENATE, "concatenate 3 parts"},
    {LS_OP_CONCATENATE_BACKWARD, "concatenate_backward 3 parts"},
    {LS_OP_SLICE, "slice 35 of"},
    {LS_OP_SLICE_BACKWARD, "slice_backward 35 of"},
    {LS_OP_PAD, "pad 35 of"},
    {LS_OP_PAD_BACKWARD, "pad_backward 35 of"},
    {LS_OP_TRANSPOSE, "transpose 105 as"},
    {LS_OP_TRANSPOSE_BACKWARD, "transpose_backward 105 as"},
    {LS_OP_UPSAMPLE2D, "upsample2d bilinear 3x5"},
    {LS_OP_UPSAMPLE2D_BACKWARD, "upsample2d_backward nearest 3x5"},
    {LS_OP_BATCH_MOMENTS, "batch_moments B="},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED, "batch_normalization_synchronized B="},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS,
     "batch_normalization_synchronized_backward_sums B="},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA,
     "batch_normalization_synchronized_backward_data B="},
    {LS_OP_SGD_UPDATE, "sgd_update N="},
    {LS_OP_ADAM_UPDATE, "adam_update N="},
    {LS_OP_LOSS, "loss huber B="},
    {LS_OP_LOSS_BACKWARD, "loss_backward poisson B="},
    {LS_OP_MASKED_MEAN, "masked_mean B="},
    {LS_OP_MASKED_MEAN_BACKWARD, "masked_mean_backward B="},
    {LS_OP_METRIC, "metric confusion B="},
    {LS_OP_UPDATE, "update nadam N="},
    {LS_OP_CLIP, "clip N="},
    {LS_OP_UNSCALE, "unscale N="},
    {LS_OP_LAMB_DIRECTION, "lamb_direction N="},
    {LS_OP_LAMB_UPDATE, "lamb_update N="},
    {LS_OP_EMA_UPDATE, "ema_update N="},
};

TABLE_TEST(a_wrong_result_of_every_operation_is_found, computing)
{
    const struct outcome outcome = run_suite(RESULT, computing[_i].op, computing[_i].cases);
    ck_assert_int_eq(outcome.status, LS_FAILED);
    ck_assert_uint_gt(outcome.counts.failed, 0);
}

TEST(a_write_behind_an_output_is_found)
{
    assert_finds(BEHIND_OUTPUT, LS_OP_DENSE, "dense", "wrote behind");
}

TEST(too_little_scratch_is_found)
{
    assert_finds(BEHIND_SCRATCH, LS_OP_AVERAGE_POOL2D, "average_pool2d", "wrote behind");
}

TEST(reading_an_unused_input_is_found)
{
    assert_finds(UNUSED_INPUT, LS_OP_ADD, "add B=", "output 0 at (0,0): got ");
}

TEST(a_changed_fixed_layout_is_found)
{
    assert_finds(FIXED_LAYOUT, LS_OP_SOFTMAX, "softmax B=", "fixed layout");
}

TEST(other_bits_in_the_second_run_are_found)
{
    assert_finds(NOT_REPEATABLE, LS_OP_CONV2D, "conv2d", "when run again");
}

TEST(allocation_while_running_is_found)
{
    assert_finds(ALLOCATES, LS_OP_MEASURE, "measure", "allocates");
}

TEST(an_update_in_spite_of_skip_is_found)
{
    assert_finds(IGNORES_SKIP, LS_OP_ADAM_UPDATE, "adam", "skip");
}

TEST(a_false_in_place_is_found)
{
    assert_finds(IN_PLACE, LS_OP_ACTIVATION, "activation", "in place");
}

TEST(dropout_by_local_position_is_found)
{
    assert_finds(SPLIT, LS_OP_DROPOUT, "dropout of a batch in two parts", "other elements");
}

TEST(overwriting_instead_of_adding_is_found)
{
    assert_finds(ACCUMULATE, LS_OP_DENSE_BACKWARD_WEIGHTS, "added", "got ");
}

TEST(a_refusal_without_a_reason_is_found)
{
    assert_finds(SILENT_REFUSAL, LS_OP_RESHAPE, "reshape", "without a reason");
}

TEST(reductions_without_streams_are_found)
{
    assert_finds(NO_STREAMS, LS_OP_NONE, "reductions", "offered without streams and events");
}

TEST(tiles_that_differ_from_the_whole_batch_are_found)
{
    const struct outcome outcome = run_suite(TILES, LS_OP_NONE, "in tiles");
    ck_assert_msg(outcome.status == LS_OK, "%s: %s", outcome.name, outcome.message);
    ck_assert_uint_eq(outcome.counts.passed, 16);
    assert_finds(PLACE_IN_BATCH, LS_OP_CONV2D, "conv2d in tiles", "is off by 1 of");
    assert_finds(UNEQUAL_EXAMPLES, LS_OP_MAX_POOL2D, "max_pool2d in tiles", "not 6 equal examples");
}

TEST(a_missing_epilogue_is_found)
{
    assert_finds(EPILOGUE, LS_OP_DENSE, "+ tanh", "got ");
}

TEST(half_results_that_are_not_the_nearest_are_found)
{
    assert_finds(HALF_ROUNDING, LS_OP_ADD, "bfloat16 add B=", "got ");
    assert_finds(HALF_ROUNDING, LS_OP_CONVERT, "convert float32 to float16", "becomes");
}

// Halves reach operations in float32 where the device says that it takes them, and not elsewhere.
TEST(casts_that_a_device_takes_are_tried)
{
    assert_finds(CAST_ROUNDING, LS_OP_LAYER_NORMALIZATION,
                 "bfloat16 layer_normalization B=", "got ");
    assert_finds(CAST_ROUNDING, LS_OP_LOSS_BACKWARD, "float16 loss_backward ", "got ");
    assert_finds(CAST_ROUNDING, LS_OP_CONV2D, "fusion pattern 0",
                 "operation 1 has no casts that a device takes");
    const struct outcome outcome =
        run_suite(HALF_ROUNDING, LS_OP_LAYER_NORMALIZATION, "bfloat16 layer_normalization B=");
    ck_assert_uint_eq(outcome.counts.passed + outcome.counts.failed, 0);
}

TEST(half_types_need_not_be_offered)
{
    const struct outcome outcome = run_suite(NO_HALVES, LS_OP_NONE, "float16");
    ck_assert_msg(outcome.status == LS_OK, "%s: %s", outcome.name, outcome.message);
    ck_assert_uint_eq(outcome.counts.failed, 0);
    ck_assert_uint_eq(outcome.counts.passed, 0);
    ck_assert_uint_eq(outcome.counts.refused, 2);
}

TEST(a_variance_in_one_pass_is_found)
{
    assert_finds(ONE_PASS, LS_OP_BATCH_NORMALIZATION, "around 100", "output 2 at ");
    assert_finds(ONE_PASS, LS_OP_BATCH_MOMENTS, "around 100", "output 0 at ");
}

// Around 100 the neighbours in bfloat16 are far apart; x must differ all the same.
TEST(what_x_is_in_halves_is_seen_around_100)
{
    static const uint32_t ops[] = {LS_OP_BATCH_NORMALIZATION, LS_OP_BATCH_NORMALIZATION_INFERENCE};
    for (size_t i = 0; i < 2; i++) {
        const struct outcome outcome = run_suite(FLAT_HALVES, ops[i], "around 100");
        ck_assert_int_eq(outcome.status, LS_FAILED);
        ck_assert_msg(strncmp(outcome.name, "bfloat16", 8) == 0, "%s", outcome.name);
    }
}

TEST(a_missing_addend_is_found)
{
    assert_finds(NO_ADDEND, LS_OP_BATCH_NORMALIZATION, "with addend", "output 0 at ");
}

TEST(gradients_of_more_than_this_share_are_found)
{
    assert_finds(GRADIENT_OF_ALL, LS_OP_BATCH_NORMALIZATION_BACKWARD, "added to dbeta",
                 "output 0 at ");
}

TEST(a_batch_normalization_that_is_right_passes_with_its_patterns)
{
    const struct outcome outcome =
        run_suite(NOTHING, LS_OP_BATCH_NORMALIZATION, "batch_normalization");
    ck_assert_msg(outcome.status == LS_OK, "%s: %s", outcome.name, outcome.message);
    ck_assert_uint_eq(outcome.counts.refused, 0);
    ck_assert_uint_gt(outcome.counts.passed, 100);
}

TEST(a_gradient_that_is_added_to_the_wrong_output_is_found)
{
    assert_finds(OTHER_ADDED, LS_OP_BATCH_NORMALIZATION_BACKWARD, "added to dgamma",
                 "output 1 at ");
    assert_finds(OTHER_ADDED, LS_OP_BATCH_NORMALIZATION_BACKWARD, "added to dbeta", "output 1 at ");
}

TEST(an_addition_into_y_that_is_not_made_is_found)
{
    static const char *const cases[] = {" 0 added to y", " 0 with addend added to y",
                                        " 0 added to y + relu", " 0 with addend added to y + relu"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_finds(ACCUMULATE, LS_OP_BATCH_NORMALIZATION, cases[i], "output 0 at ");
        assert_finds(ACCUMULATE, LS_OP_BATCH_NORMALIZATION_INFERENCE, cases[i], "output 0 at ");
    }
}

TEST(a_pattern_of_an_operation_that_is_not_there_is_found)
{
    assert_finds(FUSES_NOTHING, LS_OP_BATCH_NORMALIZATION, "fusion pattern 0",
                 "producer 28 is refused by itself: no batch normalization");
    const struct outcome outcome =
        run_suite(FUSES_NOTHING, LS_OP_BATCH_NORMALIZATION, "batch_normalization");
    ck_assert_uint_eq(outcome.counts.refused, 8); // each once, whatever is declared
    ck_assert_uint_eq(outcome.counts.passed, 0);
}

TEST(a_device_may_know_no_batch_normalization)
{
    const struct outcome outcome = run_suite(NO_NORMALIZATION, LS_OP_NONE, "batch_normalization");
    ck_assert_int_eq(outcome.status, LS_OK);
    ck_assert_uint_eq(outcome.counts.failed, 0);
    ck_assert_uint_eq(outcome.counts.passed, 0);
    ck_assert_uint_eq(outcome.counts.refused, 8);
}

int main(void)
{
    if (!test_plugin_open("device-reference"))
        return TEST_SKIPPED;
    return test_suite_run("device suite");
}
