// SPDX-License-Identifier: Apache-2.0
// The way of batches to a device, on device cuda over its fake, which is NOT A GPU: as float32 and as bytes, large
// and small ones in turn, with nothing read back between the steps.
#include "core/replica/internal.h" // its buffers, programs and recorder are what is tested
#include "tests/core/replica/support.h"
#include "tests/support/cuda-fake/fake.h"
#include "tests/support/suite.h"

#define DIVISOR 255
#define STEPS 11 // more than batches can be under way

// Float32 on the tested device in another order than on the reference device.
#define ROUNDING 1e-5

static const uint64_t sizes[] = {6, 4, 3, 0};
static struct test_device reference, cuda; // opened by every test
static struct ls_graph *graph;
static struct ls_optimizer sgd;

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
    graph = harness_cnn();
    sgd = test_optimizer("sgd:momentum=0.5");
}

static void tear_down(void)
{
    ls_graph_destroy(graph);
}

// Where batches lie until the replica has taken them; then they are overwritten.
struct source {
    uint8_t bytes[MOST_EXAMPLES * MOST_ELEMENTS];
    float floats[MOST_EXAMPLES * MOST_ELEMENTS];
    int32_t labels[MOST_EXAMPLES];
};

static struct ls_replica_batch draw(struct source *source, uint64_t step, uint64_t count,
                                    bool bytes)
{
    const uint64_t elements = (uint64_t)ls_shape_elements(&graph->inputs[0]->shape, 1);
    for (uint64_t i = 0; i < count * elements; i++) {
        source->bytes[i] = (uint8_t)(ls_random_u64(step, i) >> 50);
        source->floats[i] = (float)source->bytes[i] / DIVISOR;
    }
    for (uint64_t i = 0; i < count; i++)
        source->labels[i] = (int32_t)(ls_random_u64(step + 100, i) % CLASSES);
    return (struct ls_replica_batch){.count = count,
                                     .global_count = count ? count : 1,
                                     .example_dtype = bytes ? LS_U8 : LS_F32,
                                     .examples =
                                         bytes ? (void *)source->bytes : (void *)source->floats,
                                     .labels = source->labels};
}

static struct ls_replica *new_replica(const struct test_device *device, bool bytes,
                                      uint32_t microbatches)
{
    struct ls_replica_options options = test_options(device, graph, &sgd, sizes);
    options.byte_divisor = bytes ? DIVISOR : 0;
    options.deadline_ns = UINT64_C(20000000000);
    static const uint64_t blocks[] = {6, 4, 3, 2, 1, 0};
    struct ls_replica *replica =
        test_replica(&options, microbatches > 1 ? blocks : sizes, microbatches);
    ck_assert_int_eq(ls_replica_takes_bytes(replica), bytes && device->ops == cuda.ops);
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

START_TEST(bytes_and_floats_give_the_same_bits)
{
    uint64_t hashes[2];
    for (int bytes = 0; bytes < 2; bytes++) {
        struct ls_replica *replica = new_replica(&cuda, bytes, _i ? 2 : 1);
        hashes[bytes] = train(replica, bytes);
        ls_replica_destroy(replica);
    }
    ck_assert_uint_eq(hashes[0], hashes[1]);
}
END_TEST

START_TEST(steps_that_nobody_waits_for_equal_the_reference_device)
{
    struct ls_replica *wanted = new_replica(&reference, false, 1);
    struct ls_replica *got = new_replica(&cuda, true, 1);
    train(wanted, false);
    train(got, true);
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
END_TEST

START_TEST(evaluations_between_steps_see_their_own_batch)
{
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
END_TEST

START_TEST(steps_allocate_nothing_and_nothing_is_left)
{
    struct double_counts before, after;
    struct source *source = malloc(sizeof(*source));
    struct ls_replica *replica = new_replica(&cuda, true, 1);
    for (uint64_t step = 1; step <= STEPS; step++) {
        if (step == 3) // a step is recorded when it runs the second time
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
END_TEST

START_TEST(floats_are_refused_where_bytes_were_to_come)
{
    struct source *source = malloc(sizeof(*source));
    struct ls_replica *replica = new_replica(&cuda, true, 1);
    const struct ls_replica_batch batch = draw(source, 1, 6, false);
    harness_capture_messages();
    ck_assert_int_eq(ls_replica_run(replica, &batch, 1, 0.1, 0, &test_no_hooks), LS_FAILED);
    ck_assert_ptr_nonnull(strstr(harness_message(), "examples come as float32"));
    ls_replica_destroy(replica);
    free(source);
}
END_TEST

int main(void)
{
    puts("on the fake of CUDA, which is NOT A GPU");
    fflush(stdout);
    Suite *suite = suite_create("replica input");
    TCase *tests = tcase_create("double");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, bytes_and_floats_give_the_same_bits, 0, 2);
    tcase_add_test(tests, steps_that_nobody_waits_for_equal_the_reference_device);
    tcase_add_test(tests, evaluations_between_steps_see_their_own_batch);
    tcase_add_test(tests, steps_allocate_nothing_and_nothing_is_left);
    tcase_add_test(tests, floats_are_refused_where_bytes_were_to_come);
    suite_add_tcase(suite, tests);
    return test_suite_run(suite);
}
