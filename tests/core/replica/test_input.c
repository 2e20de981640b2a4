// SPDX-License-Identifier: Apache-2.0
// The way of batches to a device, on device cuda over its fake, which is NOT A GPU, and on others: as float32, as bytes
// and as int32, one input and several, large and small batches in turn, with nothing read back between the steps.
#include "core/replica/internal.h" // its buffers, programs and recorder are what is tested
#include "tests/core/replica/support.h"
#include "tests/support/cuda-fake/fake.h"
#include "tests/support/suite.h"

#define MOST_INPUTS 4
#define STEPS 11 // more than batches can be under way

// Float32 on the tested device in another order than on the reference device.
#define ROUNDING 1e-5

static const uint64_t sizes[] = {6, 4, 3, 0};
static struct test_device reference, cuda; // opened by every test
static const float divisors[MOST_INPUTS] = {255, 0, 3, 0}; // 0: never as bytes
static struct ls_graph *graph;
static struct ls_optimizer sgd;

// Two inputs through one dense layer each: one that may come as bytes, one that may not.
static struct ls_graph *new_siblings(void)
{
    struct ls_graph *made = harness_graph((const int64_t[]){7}, 1);
    struct ls_tensor *left = made->inputs[0], *right;
    ck_assert_int_eq(ls_graph_input(made, &(struct ls_shape){.ndims = 1, .dims = {3}}, &right),
                     LS_OK);
    left = harness_activation(made, "left", harness_dense(made, "dense", left, CLASSES), LS_TANH);
    right =
        harness_activation(made, "right", harness_dense(made, "dense_1", right, CLASSES), LS_TANH);
    harness_add(made, "add", left, right);
    harness_finish(made, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    return made;
}

static struct test_device open_device(const char *name)
{
    struct test_device *found = test_device(name);
    ck_assert_msg(found, "there is no device %s", name);
    return *found;
}

static void set_up(void)
{
    reference = open_device("reference");
    cuda = open_device("cuda");
    reference.host.host.context = &reference.host;
    cuda.host.host.context = &cuda.host;
    graph = NULL;
    sgd = test_optimizer("sgd:momentum=0.5");
}

static void tear_down(void)
{
    ls_graph_destroy(graph);
}

static void use_graph(int index)
{
    graph = index ? new_siblings() : harness_cnn();
}

// Where batches are until the replica has taken them; then they are overwritten.
struct source {
    uint8_t bytes[MOST_INPUTS][MOST_EXAMPLES * MOST_ELEMENTS];
    float floats[MOST_INPUTS][MOST_EXAMPLES * MOST_ELEMENTS];
    int32_t integers[MOST_INPUTS][MOST_EXAMPLES * MOST_ELEMENTS];
    int32_t labels[MOST_EXAMPLES];
};

// `bytes`: bit i for input i.
static struct ls_replica_batch draw(struct source *source, uint64_t step, uint64_t count,
                                    uint32_t bytes)
{
    struct ls_replica_batch batch = {.count = count,
                                     .global_count = count ? count : 1,
                                     .bytes = bytes,
                                     .labels = {source->labels}};
    for (uint32_t k = 0; k < graph->input_count; k++) {
        const uint64_t elements = (uint64_t)ls_shape_elements(&graph->inputs[k]->shape, 1);
        ck_assert_uint_le(elements, MOST_ELEMENTS);
        for (uint64_t i = 0; i < count * elements; i++) {
            source->bytes[k][i] = (uint8_t)(ls_random_u64(step + 1000 * k, i) >> 50);
            source->integers[k][i] = (int32_t)ls_random_u64(step + 2000 * k, i);
            source->floats[k][i] =
                (float)source->bytes[k][i] / (divisors[k] != 0 ? divisors[k] : 100);
        }
        if (graph->inputs[k]->dtype == LS_I32)
            batch.inputs[k] = source->integers[k];
        else
            batch.inputs[k] = bytes >> k & 1 ? (void *)source->bytes[k] : source->floats[k];
    }
    for (uint64_t i = 0; i < count; i++)
        source->labels[i] = (int32_t)(ls_random_u64(step + 100, i) % CLASSES);
    return batch;
}

static struct ls_replica *new_replica(const struct test_device *device, bool bytes,
                                      uint32_t microbatches)
{
    struct ls_replica_options options = test_options(device, graph, &sgd, sizes);
    for (uint32_t i = 0; bytes && i < graph->input_count; i++)
        options.byte_divisors[i] = divisors[i];
    options.deadline_ns = UINT64_C(20000000000);
    static const uint64_t blocks[] = {6, 4, 3, 2, 1, 0};
    struct ls_replica *replica =
        test_replica(&options, microbatches > 1 ? blocks : sizes, microbatches);
    ck_assert_uint_eq(ls_replica_takes_bytes(replica), bytes && device->ops == cuda.ops);
    return replica;
}

// Parameters after some steps of batches of all sizes, also none; the source of each is overwritten at once.
static uint64_t train(struct ls_replica *replica, bool bytes)
{
    static const uint64_t counts[] = {6, 6, 4, 0, 6, 4};
    struct source *source = malloc(sizeof(*source));
    uint64_t hash;
    for (uint64_t step = 1; step <= STEPS; step++) {
        const struct ls_replica_batch batch =
            draw(source, step, counts[step % (sizeof(counts) / sizeof(counts[0]))], bytes);
        test_step(replica, &batch, step);
        memset(source, 0xee, sizeof(*source));
    }
    free(source);
    ck_assert_int_eq(ls_replica_hash(replica, &hash), LS_OK);
    return hash;
}

LOOP_TEST(bytes_and_floats_give_the_same_bits, 0, 4)
{
    uint64_t hashes[2];
    use_graph(_i / 2);
    for (int bytes = 0; bytes < 2; bytes++) {
        struct ls_replica *replica = new_replica(&cuda, bytes, _i % 2 ? 2 : 1);
        hashes[bytes] = train(replica, bytes);
        ls_replica_destroy(replica);
    }
    ck_assert_uint_eq(hashes[0], hashes[1]);
}

LOOP_TEST(steps_that_nobody_waits_for_equal_the_reference_device, 0, 4)
{
    struct test_device cpu = open_device("cpu");
    cpu.host.host.context = &cpu.host;
    use_graph(_i / 2);
    struct ls_replica *wanted = new_replica(&reference, false, 1);
    struct ls_replica *got = _i % 2 ? new_replica(&cpu, false, 1) : new_replica(&cuda, true, 1);
    train(wanted, false);
    train(got, _i % 2 == 0);
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const size_t count = (size_t)ls_shape_elements(&graph->parameters[i]->shape, 1);
        float *a = malloc(count * sizeof(*a)), *b = malloc(count * sizeof(*b));
        ck_assert_int_eq(ls_replica_get_buffer(wanted, LS_BUFFER_PARAMETERS, i, a), LS_OK);
        ck_assert_int_eq(ls_replica_get_buffer(got, LS_BUFFER_PARAMETERS, i, b), LS_OK);
        ck_assert_double_le(test_difference(a, b, count), ROUNDING);
        free(a);
        free(b);
    }
    ls_replica_destroy(wanted);
    ls_replica_destroy(got);
}

LOOP_TEST(evaluations_between_steps_see_their_own_batch, 0, 2)
{
    use_graph(_i);
    struct ls_replica *wanted = new_replica(&reference, false, 1);
    struct ls_replica *got = new_replica(&cuda, true, 1);
    struct source *source = malloc(sizeof(*source));
    for (uint64_t step = 1; step <= 5; step++) {
        double a[LS_SUMS] = {0}, b[LS_SUMS] = {0};
        struct ls_replica_batch batch = draw(source, step, 6, false);
        test_run(wanted, &batch);
        batch = draw(source, step, 6, true);
        test_run(got, &batch);
        batch = draw(source, 50 + step, 4, false);
        ck_assert_int_eq(ls_replica_evaluate(wanted, &batch, a), LS_OK);
        batch = draw(source, 50 + step, 4, true);
        ck_assert_int_eq(ls_replica_evaluate(got, &batch, b), LS_OK);
        memset(source, 0xee, sizeof(*source));
        ck_assert_int_eq(ls_replica_evaluate_end(got, b), LS_OK);
        ck_assert_double_eq_tol(a[0], b[0], ROUNDING * a[0]);
        ck_assert_double_eq(a[2], 4);
        ck_assert_double_eq(b[2], 4);
    }
    free(source);
    ls_replica_destroy(wanted);
    ls_replica_destroy(got);
}

LOOP_TEST(steps_allocate_nothing_and_nothing_is_left, 0, 2)
{
    struct double_counts before, after;
    struct source *source = malloc(sizeof(*source));
    use_graph(_i);
    struct ls_replica *replica = new_replica(&cuda, true, 1);
    for (uint64_t step = 1; step <= STEPS; step++) {
        if (step == 2 + LS_INPUT_SETS) // before, it is recorded for each set of input
            double_count(&before);
        const struct ls_replica_batch batch = draw(source, step, 6, true);
        test_step(replica, &batch, step);
    }
    double_count(&after);
    ck_assert_mem_eq(&before, &after, sizeof(before));
    ls_replica_destroy(replica);
    double_count(&after);
    ck_assert_uint_eq(after.pinned, 0);
    ck_assert_uint_eq(after.streams, 0);
    ck_assert_uint_eq(after.events, 0);
    ck_assert_uint_eq(after.graphs, 0);
    free(source);
}

// What was put on the device's own stream one by one, and kernels on others.
static struct {
    uint32_t kernels, copies, beside;
} work;
static const struct ls_device_interface *original;

static int32_t count_launch(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct ls_launch *launch)
{
    *(launch->stream ? &work.beside : &work.kernels) += 1;
    return original->kernels->launch(device, kernel, launch);
}

static int32_t count_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                          uint64_t bytes, void *stream)
{
    work.copies += stream == NULL;
    return original->memory->copy(device, to, from, bytes, stream);
}

LOOP_TEST(a_replayed_step_reads_its_input_where_it_arrives, 0, 2)
{
    struct source *source = malloc(sizeof(*source));
    struct ls_device_interface counting = *cuda.ops;
    struct ls_device_kernels kernels = *counting.kernels;
    struct ls_device_memory memory = *counting.memory;
    original = cuda.ops;
    kernels.launch = count_launch;
    memory.copy = count_copy;
    counting.kernels = &kernels;
    counting.memory = &memory;
    cuda.ops = &counting;
    use_graph(_i);
    struct ls_replica *replica = new_replica(&cuda, true, 1);
    for (uint64_t step = 1; step <= STEPS; step++) {
        const struct ls_replica_batch batch = draw(source, step, 6, true);
        memset(&work, 0, sizeof(work));
        test_step(replica, &batch, step);
        if (step == 1 || step == 1 + LS_INPUT_SETS) // else it would be no input of a recording
            ck_assert_uint_gt(work.kernels, 0);
        if (step < 2 + LS_INPUT_SETS)
            continue;
        ck_assert_uint_eq(work.kernels, 0);
        ck_assert_uint_eq(work.copies, 0);
        ck_assert_uint_eq(work.beside, 1); // float32 of bytes
    }
    ls_replica_destroy(replica);
    free(source);
}

static float read_stop(struct ls_replica *replica)
{
    float found[LS_STEP_STATS];
    ck_assert_int_eq(ls_replica_read_step_stats(replica, found), LS_OK);
    return found[LS_STEP_STATS_STOP];
}

LOOP_TEST(a_stop_is_not_seen_in_a_later_step, 0, 2)
{
    struct source *source = malloc(sizeof(*source));
    const float sum = 2; // as replicas add up that of others
    use_graph(_i);
    struct ls_replica *replica = new_replica(&cuda, true, 1);
    const struct ls_replica_batch batch = draw(source, 1, 6, true);
    test_step(replica, &batch, 1);
    ck_assert_float_eq(read_stop(replica), 0);
    ck_assert_int_eq(
        ls_device_copy(ls_replica_device(replica),
                       ls_memory_at(replica->reduced, LS_STEP_STATS_STOP * sizeof(float)),
                       ls_host_memory(&sum), sizeof(sum), NULL),
        LS_OK);
    ck_assert_float_eq(read_stop(replica), sum);
    test_step(replica, &batch, 2);
    ck_assert_float_eq(read_stop(replica), 0);
    ck_assert_int_eq(test_passes(replica, &batch, 3, true), LS_OK);
    ck_assert_float_eq(read_stop(replica), 1);
    test_step(replica, &batch, 4);
    ck_assert_float_eq(read_stop(replica), 0);
    ls_replica_destroy(replica);
    free(source);
}

LOOP_TEST(floats_are_refused_where_bytes_were_to_come, 0, 2)
{
    struct source *source = malloc(sizeof(*source));
    use_graph(_i);
    struct ls_replica *replica = new_replica(&cuda, true, 1);
    const struct ls_replica_batch batch = draw(source, 1, 6, false);
    harness_capture_messages();
    ck_assert_int_eq(test_passes(replica, &batch, 1, false), LS_FAILED);
    ck_assert_ptr_nonnull(
        strstr(harness_message(), "examples of input 'input' come as float32; expected bytes"));
    ls_replica_destroy(replica);
    free(source);
}

// Output `index` of the program that ran last, in host memory.
static void read_output(struct ls_replica *replica, uint32_t index, void *out, uint64_t bytes)
{
    struct ls_program *program = NULL;
    for (uint32_t i = 0; i < replica->program_count; i++)
        if (replica->programs[i]->program->options.batch == 4)
            program = replica->programs[i]->program;
    ck_assert_ptr_nonnull(program);
    ck_assert_int_eq(ls_device_copy(ls_replica_device(replica), ls_host_memory(out),
                                    ls_program_output(program, index), bytes, NULL),
                     LS_OK);
}

// A float input, int32 ids and two inputs that may come as bytes, with operations on one of them: all of them are
// outputs of the model, too, so that what programs read can be looked at.
LOOP_TEST(inputs_of_all_types_arrive, 0, 3)
{
    static const char *const names[] = {"reference", "cpu", "cuda"};
    static const int64_t elements[MOST_INPUTS] = {5, 3, 65, 9};
    static const uint32_t dtypes[MOST_INPUTS] = {LS_F32, LS_I32, LS_F32, LS_F32};
    static const uint64_t blocks[] = {4, 0};
    struct test_device device = open_device(names[_i]);
    device.host.host.context = &device.host;
    const uint32_t bytes = _i == 2 ? 1 | 4 : 0;
    struct ls_tensor *outputs[MOST_INPUTS + 1];
    ck_assert_int_eq(ls_graph_create("test", &graph), LS_OK);
    for (uint32_t i = 0; i < MOST_INPUTS; i++)
        ck_assert_int_eq(ls_graph_typed_input(graph, dtypes[i],
                                              &(struct ls_shape){.ndims = 1, .dims = {elements[i]}},
                                              &outputs[i]),
                         LS_OK);
    outputs[MOST_INPUTS] = harness_dense(graph, "dense", outputs[0], 4);
    ck_assert_int_eq(ls_graph_set_outputs(graph, outputs, MOST_INPUTS + 1), LS_OK);
    struct ls_replica_options options = test_options(&device, graph, NULL, blocks);
    memcpy(options.byte_divisors, divisors, sizeof(divisors));
    options.byte_divisors[1] = 2; // of no meaning for int32
    struct ls_replica *replica = NULL;
    bool changed;
    const struct ls_replica_need need = {.sizes = {[LS_PURPOSE_EVALUATE] = {blocks, 1}}};
    ck_assert_int_eq(ls_replica_open(&options, &replica), LS_OK);
    ck_assert_uint_eq(ls_replica_takes_bytes(replica), bytes);
    ck_assert_uint_eq(ls_replica_input_bytes(replica, 2),
                      _i == 2 ? 2 * (5 + 4 * 3 + 65 + 4 * 9) : 0);
    ck_assert_int_eq(ls_replica_allocate(replica, NULL), LS_OK);
    ck_assert_int_eq(ls_replica_need(replica, &need, &changed), LS_OK);
    struct source *source = malloc(sizeof(*source));
    for (uint64_t step = 1; step <= STEPS; step++) {
        double sums[LS_SUMS] = {0};
        const struct ls_replica_batch batch = draw(source, step, 4, bytes);
        ck_assert_int_eq(ls_replica_evaluate(replica, &batch, sums), LS_OK);
        for (uint32_t i = 0; i < MOST_INPUTS; i++) {
            int32_t found[4 * 65];
            const uint64_t size = 4 * (uint64_t)elements[i] * sizeof(found[0]);
            read_output(replica, i, found, size);
            ck_assert_mem_eq(found,
                             dtypes[i] == LS_I32 ? (void *)source->integers[i]
                                                 : (void *)source->floats[i],
                             size);
        }
        memset(source, 0xee, sizeof(*source));
        ck_assert_int_eq(ls_replica_evaluate_end(replica, sums), LS_OK);
    }
    free(source);
    ls_replica_destroy(replica);
}

TEST(more_inputs_than_a_batch_has_are_refused)
{
    struct ls_replica *replica = NULL;
    struct ls_tensor *input;
    graph = harness_graph((const int64_t[]){2}, 1);
    for (uint32_t i = 0; i < LS_REPLICA_INPUTS; i++)
        ck_assert_int_eq(ls_graph_input(graph, &(struct ls_shape){.ndims = 1, .dims = {2}}, &input),
                         LS_OK);
    harness_dense(graph, "dense", input, 2);
    const struct ls_replica_options options = test_options(&reference, graph, NULL, sizes);
    harness_capture_messages();
    ck_assert_int_eq(ls_replica_open(&options, &replica), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "has 9 inputs; at most 8"));
}

TEST_FIXTURE(set_up, tear_down);

int main(void)
{
    puts("on the fake of CUDA, which is NOT A GPU");
    fflush(stdout);
    return test_suite_run("replica input");
}
