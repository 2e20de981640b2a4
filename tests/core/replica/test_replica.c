// SPDX-License-Identifier: Apache-2.0
// A replica on the reference device, on the same device as if its memory were elsewhere, and on the cpu.
#include "core/base/hash.h"
#include "core/replica/internal.h" // its buffers, programs and recorder are what is tested
#include "tests/core/replica/support.h"
#include "tests/support/suite.h"

// Sums of float32 in another order.
#define ROUNDING 2e-6

static const uint64_t sizes[] = {6, 4, 2, 0};
static struct test_device reference; // opened by every test
static struct ls_graph *graph;
static struct ls_optimizer sgd, adam;

static void set_up(void)
{
    struct test_device *device = test_device("reference");
    ck_assert_ptr_nonnull(device);
    reference = *device;
    reference.host.host.context = &reference.host;
    graph = harness_cnn();
    sgd = test_optimizer("sgd:momentum=0.5");
    adam = test_optimizer("adam");
    harness_capture_messages();
}

static void tear_down(void)
{
    ls_graph_destroy(graph);
}

static struct ls_replica *new_replica(void)
{
    const struct ls_replica_options options = test_options(&reference, graph, &sgd, sizes);
    return test_replica(&options, sizes, 1);
}

// As a device whose memory the host cannot read: everything must go through copy and zero.
static void pretend_memory_is_elsewhere(void)
{
    static struct ls_device_interface elsewhere;
    elsewhere = *reference.ops;
    elsewhere.memory_kind = LS_MEMORY_CUDA;
    reference.ops = &elsewhere;
}

// ---- Steps ----

LOOP_TEST(an_empty_share_zeroes_gradients_and_sums, 0, 2)
{
    if (_i)
        pretend_memory_is_elsewhere();
    struct ls_replica *replica = new_replica();
    const struct ls_replica_batch some = test_batch(graph, 0, 6, 6);
    const struct ls_replica_batch none = test_batch(graph, 6, 0, 6);
    size_t count;
    test_run(replica, &some);
    float *values = test_read_reduced(replica, &count);
    ck_assert_float_gt(values[0], 0);
    ck_assert_float_eq(values[2], 6);
    free(values);
    ck_assert_int_eq(test_passes(replica, &none, 2, true), LS_OK);
    values = test_read_reduced(replica, &count);
    for (size_t i = 0; i < count; i++)
        ck_assert_float_eq(values[i], i == LS_STEP_STATS_STOP ? 1 : 0);
    free(values);
    ls_replica_destroy(replica);
}

// Of a global batch it has weight 0 in the moving statistics. By itself it leaves them as they are, also in
// microbatches, all of which are empty.
LOOP_TEST(an_empty_share_changes_no_moving_statistics, 1, 5)
{
    struct ls_graph *moving = harness_moving(&(struct harness_moving){.momentum = 0.75});
    const uint32_t microbatches = (uint32_t)_i;
    const struct ls_replica_options options = test_options(&reference, moving, &sgd, sizes);
    struct ls_replica *replica = test_replica(&options, sizes, microbatches);
    const struct ls_tensor *mean = harness_parameter(moving, "norm/moving_mean");
    uint32_t index = 0;
    while (moving->parameters[index] != mean)
        index++;
    float before[4], after[4];
    for (uint64_t own = 0; own < 2; own++) {
        const struct ls_replica_batch batch = {.global_count = own ? 0 : 6};
        ck_assert_int_eq(ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, index, before),
                         LS_OK);
        test_run(replica, &batch);
        ck_assert_int_eq(ls_replica_get_buffer(replica, LS_BUFFER_GRADIENTS, index, after), LS_OK);
        for (int c = 0; c < 4; c++)
            ck_assert_float_eq(after[c], own ? before[c] : 0);
        for (uint32_t i = 0; i < ls_replica_buckets(replica)->count; i++)
            ck_assert_int_eq(ls_replica_update(replica, i), LS_OK);
        ck_assert_int_eq(ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, index, after), LS_OK);
        for (int c = 0; c < 4; c++)
            ck_assert_float_eq_tol(after[c], own ? before[c] : 0.75f * before[c], 1e-7f);
    }
    ls_replica_destroy(replica);
    ls_graph_destroy(moving);
}

// What is frozen can be set and read, and has zeros where it has nothing: as gradient and as state.
TEST(frozen_parameters_have_values_only)
{
    struct ls_graph *frozen = harness_moving(&(struct harness_moving){.frozen = true});
    const struct ls_replica_options options = test_options(&reference, frozen, &adam, sizes);
    struct ls_replica *replica = test_replica(&options, sizes, 1);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < frozen->parameter_count; i++) {
        float values[4] = {1, 2, 3, 4}, back[4];
        if (frozen->parameters[i]->zone != LS_ZONE_FROZEN)
            continue;
        seen++;
        ck_assert_int_eq(ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, i, values), LS_OK);
        ck_assert_int_eq(ls_replica_set_buffer(replica, LS_BUFFER_STATE + 1, i, values), LS_OK);
        ck_assert_int_eq(ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, i, back), LS_OK);
        ck_assert_mem_eq(values, back, sizeof(values));
        static const uint32_t none[] = {LS_BUFFER_GRADIENTS, LS_BUFFER_STATE, LS_BUFFER_STATE + 1};
        for (int k = 0; k < 3; k++) {
            ck_assert_int_eq(ls_replica_get_buffer(replica, none[k], i, back), LS_OK);
            for (int c = 0; c < 4; c++)
                ck_assert_float_eq(back[c], 0);
        }
    }
    ck_assert_uint_eq(seen, 4);
    ls_replica_destroy(replica);
    ls_graph_destroy(frozen);
}

LOOP_TEST(shares_add_up_to_the_whole_batch, 0, 2)
{
    if (_i)
        pretend_memory_is_elsewhere();
    struct ls_replica *replica = new_replica();
    const struct ls_replica_batch whole = test_batch(graph, 0, 6, 6);
    const struct ls_replica_batch parts[2] = {test_batch(graph, 0, 4, 6),
                                              test_batch(graph, 4, 2, 6)};
    size_t count;
    float *found[3];
    test_run(replica, &whole);
    found[0] = test_read_reduced(replica, &count);
    for (int i = 0; i < 2; i++) {
        test_run(replica, &parts[i]);
        found[1 + i] = test_read_reduced(replica, &count);
    }
    for (size_t i = 0; i < count; i++)
        found[1][i] += found[2][i];
    ck_assert_double_le(test_difference(found[0], found[1], LS_STEP_STATS), ROUNDING);
    ck_assert_double_le(
        test_difference(found[0] + LS_STEP_STATS, found[1] + LS_STEP_STATS, count - LS_STEP_STATS),
        ROUNDING);
    for (int i = 0; i < 3; i++)
        free(found[i]);
    ls_replica_destroy(replica);
}

static const struct ls_device_interface *inner;
static struct ls_memory added_to;
static unsigned adds; // to that, so far

static int32_t counting_launch(struct ls_device *device, const struct ls_kernel *kernel,
                               const struct ls_launch *launch)
{
    adds += launch->argument_count == 3 && ls_memory_is_same(launch->arguments[0], added_to) &&
            ls_memory_is_same(launch->arguments[2], added_to);
    return inner->kernels->launch(device, kernel, launch);
}

LOOP_TEST(slices_add_up_to_the_whole_share, 1, 8)
{
    static const uint64_t blocks[] = {6, 3, 2, 1, 0};
    const uint32_t microbatches = (uint32_t)_i;
    struct ls_replica *whole = new_replica();
    struct ls_replica_options options = test_options(&reference, graph, &sgd, sizes);
    options.first_bucket_bytes = options.bucket_bytes = 256;
    struct ls_replica *sliced = test_replica(&options, blocks, microbatches);
    const struct ls_replica_batch batch = test_batch(graph, 0, 6, 6);
    for (uint64_t step = 1; step <= 2; step++) { // the second: nothing of the first is left
        size_t count;
        ck_assert_int_eq(test_passes(whole, &batch, step, true), LS_OK);
        ck_assert_int_eq(test_passes(sliced, &batch, step, true), LS_OK);
        float *a = test_read_reduced(whole, &count), *b = test_read_reduced(sliced, &count);
        ck_assert_float_eq(b[LS_STEP_STATS_STOP], 1);
        ck_assert_float_eq(b[2], 6);
        ck_assert_double_le(test_difference(a, b, count), ROUNDING);
        free(a);
        free(b);
    }
    ls_replica_destroy(whole);
    ls_replica_destroy(sliced);
}

TEST(every_share_takes_as_many_passes)
{
    static const uint64_t blocks[] = {6, 2, 1, 0};
    struct ls_device_interface ops = *reference.ops;
    struct ls_device_kernels kernels = *reference.ops->kernels;
    struct test_device device = reference;
    size_t count;
    inner = reference.ops;
    device.ops = &ops;
    ops.kernels = &kernels;
    kernels.launch = counting_launch;
    const struct ls_replica_options options = test_options(&device, graph, &sgd, sizes);
    struct ls_replica *replica = test_replica(&options, blocks, 4);
    for (uint64_t examples = 0; examples <= 6; examples++) {
        const struct ls_replica_batch batch = test_batch(graph, 0, examples, 6);
        adds = 0;
        added_to = replica->reduced;
        ck_assert_int_eq(test_passes(replica, &batch, 1, true), LS_OK);
        ck_assert_uint_eq(adds, 3); // of four blocks
        float *values = test_read_reduced(replica, &count);
        ck_assert_float_eq(values[2], (float)examples);
        ck_assert_float_eq(values[LS_STEP_STATS_STOP], 1);
        free(values);
    }
    ls_replica_destroy(replica);
}

// ((0 + 1) + (2 + 3)), ((0 + 1) + (2 + 3)) + 4, ...: what the blocks have by themselves, added in that order, to the bit.
LOOP_TEST(blocks_are_added_in_a_binary_tree, 1, 7)
{
    static const uint64_t blocks[] = {6, 1, 0};
    const uint32_t microbatches = (uint32_t)_i;
    const struct ls_replica_options options = test_options(&reference, graph, &sgd, sizes);
    struct ls_replica *replica = test_replica(&options, blocks, 1);
    float *sums[6];
    size_t count;
    for (uint32_t i = 0; i < microbatches; i++) {
        const struct ls_replica_batch block = test_batch(graph, i, 1, 6);
        test_run(replica, &block);
        sums[i] = test_read_reduced(replica, &count);
    }
    for (uint32_t each = 1; each < microbatches; each *= 2)
        for (uint32_t i = 0; i + each < microbatches; i += 2 * each)
            for (size_t k = 0; k < count; k++)
                sums[i][k] += sums[i + each][k];
    bool changed = false;
    ck_assert_int_eq(test_need(replica, blocks, microbatches, &changed), LS_OK);
    ck_assert_int_eq(changed, microbatches > 1);
    const struct ls_replica_batch batch = test_batch(graph, 0, microbatches, 6);
    for (int again = 0; again < 2; again++) {
        test_run(replica, &batch);
        float *got = test_read_reduced(replica, &count);
        ck_assert_mem_eq(got, sums[0], count * sizeof(*got));
        free(got);
    }
    for (uint32_t i = 0; i < microbatches; i++)
        free(sums[i]);
    ls_replica_destroy(replica);
}

// Programs that come later find room, and leave parameters, optimizer state and results as they are.
LOOP_TEST(programs_are_made_when_they_are_needed, 0, 2)
{
    static const uint64_t small[] = {2, 0}, all[] = {6, 4, 2, 0};
    if (_i)
        pretend_memory_is_elsewhere();
    const struct ls_replica_options options = test_options(&reference, graph, &adam, sizes);
    struct ls_replica *at_once = test_replica(&options, all, 1);
    struct ls_replica *later = test_replica(&options, small, 1);
    for (uint64_t step = 1; step <= 6; step++) {
        const uint64_t examples = step < 3 ? 2 : step < 5 ? 4 : 6;
        const uint64_t need[] = {examples, 0};
        const struct ls_replica_batch batch = test_batch(graph, 0, examples, 6);
        uint64_t a, b;
        bool changed = false;
        ck_assert_int_eq(test_need(later, need, 1, &changed), LS_OK);
        ck_assert_int_eq(changed, step == 3 || step == 5);
        test_step(at_once, &batch, step);
        test_step(later, &batch, step);
        ck_assert_int_eq(ls_replica_hash(at_once, &a), LS_OK);
        ck_assert_int_eq(ls_replica_hash(later, &b), LS_OK);
        ck_assert_uint_eq(a, b);
    }
    ck_assert_uint_eq(at_once->device_bytes, later->device_bytes);
    ls_replica_destroy(at_once);
    ls_replica_destroy(later);
}

TEST(slices_cover_a_share_evenly)
{
    for (uint64_t count = 0; count < 20; count++)
        for (uint32_t microbatches = 1; microbatches < 9; microbatches++) {
            uint64_t end = 0, largest = 0, smallest = UINT64_MAX;
            for (uint32_t i = 0; i < microbatches; i++) {
                uint64_t offset, size;
                ls_microbatch(count, microbatches, i, &offset, &size);
                ck_assert_uint_eq(offset, end);
                end += size;
                largest = size > largest ? size : largest;
                smallest = size < smallest ? size : smallest;
            }
            ck_assert_uint_eq(end, count);
            ck_assert_uint_le(largest - smallest, 1);
        }
}

static struct ls_replica *replica_of_many_buckets(void)
{
    struct ls_replica_options options = test_options(&reference, graph, &sgd, sizes);
    options.first_bucket_bytes = 64;
    options.bucket_bytes = 200;
    struct ls_replica *replica = test_replica(&options, sizes, 1);
    ck_assert_uint_ge(replica->buckets.count, 4);
    return replica;
}

TEST(a_share_of_a_size_that_was_not_prepared_is_refused)
{
    struct ls_replica *replica = new_replica();
    const struct ls_replica_batch batch = test_batch(graph, 0, 5, 6);
    double sums[LS_SUMS] = {0};
    ck_assert_int_eq(test_passes(replica, &batch, 1, false), LS_FAILED);
    ck_assert_ptr_nonnull(strstr(harness_message(), "5 examples"));
    ck_assert_int_eq(ls_replica_evaluate(replica, &batch, sums), LS_FAILED);
    ls_replica_destroy(replica);
}

TEST(buckets_do_not_change_what_an_update_does)
{
    struct ls_replica *one = new_replica(), *many = replica_of_many_buckets();
    uint64_t hashes[2];
    for (uint64_t step = 1; step <= 3; step++) {
        const struct ls_replica_batch batch = test_batch(graph, step, 4, 4);
        test_step(one, &batch, step);
        test_step(many, &batch, step);
    }
    ck_assert_int_eq(ls_replica_hash(one, &hashes[0]), LS_OK);
    ck_assert_int_eq(ls_replica_hash(many, &hashes[1]), LS_OK);
    ck_assert_uint_eq(hashes[0], hashes[1]);
    ls_replica_destroy(one);
    ls_replica_destroy(many);
}

TEST(memory_elsewhere_gives_the_same_bits)
{
    struct ls_replica *here = new_replica();
    pretend_memory_is_elsewhere();
    struct ls_replica *there = new_replica();
    uint64_t hashes[2];
    for (uint64_t step = 1; step <= 3; step++) {
        const struct ls_replica_batch batch = test_batch(graph, step, 6, 6);
        test_step(here, &batch, step);
        test_step(there, &batch, step);
    }
    float tails[2][LS_STEP_STATS];
    ck_assert_int_eq(ls_replica_read_step_stats(here, tails[0]), LS_OK);
    ck_assert_int_eq(ls_replica_read_step_stats(there, tails[1]), LS_OK);
    ck_assert_mem_eq(tails[0], tails[1], sizeof(tails[0]));
    ck_assert_int_eq(ls_replica_hash(here, &hashes[0]), LS_OK);
    ck_assert_int_eq(ls_replica_hash(there, &hashes[1]), LS_OK);
    ck_assert_uint_eq(hashes[0], hashes[1]);
    ls_replica_destroy(here);
    ls_replica_destroy(there);
}

TEST(the_first_value_that_is_not_finite_is_named)
{
    struct ls_replica *replica = new_replica();
    const struct ls_replica_batch some = test_batch(graph, 0, 6, 6);
    const struct ls_replica_batch none = test_batch(graph, 6, 0, 6);
    char text[128];
    test_run(replica, &some);
    ck_assert_int_eq(ls_replica_find_not_finite(replica, text, sizeof(text)), LS_OK);
    ck_assert_str_eq(text, "");
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (strcmp(graph->parameters[i]->name, "conv2d_1/bias") == 0) {
            const float values[4] = {0, NAN, 0, 0};
            ck_assert_int_eq(ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, i, values),
                             LS_OK);
        }
    test_run(replica, &some);
    ck_assert_int_eq(ls_replica_find_not_finite(replica, text, sizeof(text)), LS_OK);
    ck_assert_ptr_nonnull(strstr(text, "conv2d_1"));
    test_run(replica, &none);
    ck_assert_int_eq(ls_replica_find_not_finite(replica, text, sizeof(text)), LS_OK);
    ck_assert_str_eq(text, "");
    ls_replica_destroy(replica);
}

// ---- Evaluation ----

LOOP_TEST(evaluations_add_up, 0, 2)
{
    if (_i)
        pretend_memory_is_elsewhere();
    struct ls_replica *replica = new_replica();
    const struct ls_replica_batch whole = test_batch(graph, 0, 6, 6);
    double one[LS_SUMS] = {0}, parts[LS_SUMS] = {0};
    ck_assert_int_eq(ls_replica_evaluate(replica, &whole, one), LS_OK);
    for (uint64_t first = 0; first < 6; first += 2) {
        const struct ls_replica_batch part = test_batch(graph, first, 2, 6);
        const struct ls_replica_batch none = test_batch(graph, first, 0, 6);
        ck_assert_int_eq(ls_replica_evaluate(replica, &part, parts), LS_OK);
        ck_assert_int_eq(ls_replica_evaluate(replica, &none, parts), LS_OK);
    }
    ck_assert_double_eq(one[2], 6);
    ck_assert_double_eq(parts[2], 6);
    ck_assert_double_eq(one[1], parts[1]);
    ck_assert_double_eq_tol(one[0], parts[0], ROUNDING * one[0]);
    ls_replica_destroy(replica);
}

TEST(an_evaluation_leaves_the_step_alone)
{
    struct ls_replica *replica = new_replica();
    const struct ls_replica_batch batch = test_batch(graph, 0, 6, 6);
    double sums[LS_SUMS] = {0};
    size_t count;
    test_run(replica, &batch);
    float *before = test_read_reduced(replica, &count);
    ck_assert_int_eq(ls_replica_evaluate(replica, &batch, sums), LS_OK);
    float *after = test_read_reduced(replica, &count);
    ck_assert_mem_eq(before, after, count * sizeof(float));
    ck_assert_double_eq_tol((double)before[0], sums[0], ROUNDING * sums[0]);
    free(before);
    free(after);
    ls_replica_destroy(replica);
}

// ---- Parameters ----

static void fill(float *values, size_t count, uint64_t key)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(ls_random_u64(key, i) >> 40) * 0x1p-24f + 1;
}

static void check_round_trip(const struct test_device *device, bool plain)
{
    struct ls_replica_options options = test_options(device, graph, &adam, sizes);
    options.plain = plain;
    struct ls_replica *replica = test_replica(&options, sizes, 1);
    float wrote[512], read[512];
    for (uint32_t buffer = 0; buffer < 3; buffer++)
        for (uint32_t i = 0; i < graph->parameter_count; i++) {
            fill(wrote, 512, 100 * buffer + i);
            ck_assert_int_eq(ls_replica_set_buffer(replica, buffer, i, wrote), LS_OK);
        }
    for (uint32_t buffer = 0; buffer < 3; buffer++)
        for (uint32_t i = 0; i < graph->parameter_count; i++) {
            const size_t count = (size_t)ls_shape_elements(&graph->parameters[i]->shape, 1);
            ck_assert_uint_le(count, 512);
            fill(wrote, 512, 100 * buffer + i);
            ck_assert_int_eq(ls_replica_get_buffer(replica, buffer, i, read), LS_OK);
            ck_assert_mem_eq(wrote, read, count * sizeof(float));
        }
    ls_replica_destroy(replica);
}

TEST(what_is_set_is_read_back)
{
    struct test_device *cpu = test_device("cpu");
    for (int plain = 0; plain < 2; plain++) {
        check_round_trip(&reference, plain);
        if (cpu)
            check_round_trip(cpu, plain);
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct ls_tensor *const *)a)->name,
                  (*(const struct ls_tensor *const *)b)->name);
}

// The definition: all parameters in plain layout, in name order.
static uint64_t hash_by_definition(void)
{
    const struct ls_tensor *order[16];
    struct ls_hash *hash = ls_hash_create();
    ck_assert_uint_le(graph->parameter_count, 16);
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        order[i] = graph->parameters[i];
    qsort(order, graph->parameter_count, sizeof(order[0]), compare_names);
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const size_t count = (size_t)ls_shape_elements(&order[i]->shape, 1);
        const uint64_t key = ls_random_key_text(11, order[i]->name);
        for (size_t k = 0; k < count; k++) {
            const float value = (float)(ls_random_u64(key, k) >> 40) * 0x1p-24f - 0.5f;
            ls_hash_add(hash, &value, sizeof(value));
        }
    }
    const uint64_t result = ls_hash_get(hash);
    ls_hash_destroy(hash);
    return result;
}

static uint64_t hash_on(const struct test_device *device, bool plain, bool change)
{
    struct ls_replica_options options = test_options(device, graph, &sgd, sizes);
    uint64_t hash;
    options.plain = plain;
    struct ls_replica *replica = test_replica(&options, sizes, 1);
    if (change) {
        float values[512];
        ck_assert_int_eq(ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, 1, values), LS_OK);
        values[0] = nextafterf(values[0], 1);
        ck_assert_int_eq(ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, 1, values), LS_OK);
    }
    ck_assert_int_eq(ls_replica_hash(replica, &hash), LS_OK);
    ls_replica_destroy(replica);
    return hash;
}

TEST(the_hash_does_not_depend_on_device_or_layout)
{
    struct test_device *cpu = test_device("cpu");
    const uint64_t truth = hash_by_definition();
    for (int plain = 0; plain < 2; plain++) {
        ck_assert_uint_eq(hash_on(&reference, plain, false), truth);
        if (cpu)
            ck_assert_uint_eq(hash_on(cpu, plain, false), truth);
    }
    ck_assert_uint_ne(hash_on(&reference, false, true), truth);
}

// Layouts may be padded; what is reduced, updated and broadcast includes the padding.
TEST(padding_stays_zero_on_the_cpu)
{
    struct test_device *cpu = test_device("cpu");
    const struct ls_optimizer *const optimizers[] = {&sgd, &adam};
    uint64_t parameters = 0;
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        parameters += (uint64_t)ls_shape_elements(&graph->parameters[i]->shape, 1);
    for (int k = 0; cpu && k < 2; k++) {
        const struct ls_replica_options options = test_options(cpu, graph, optimizers[k], sizes);
        struct ls_replica *replica = test_replica(&options, sizes, 1);
        const struct ls_replica_batch batch = test_batch(graph, 0, 6, 6);
        const float *const buffers[] = {ls_address(replica->parameters),
                                        ls_address(replica->states[0]),
                                        ls_address(replica->gradients)};
        for (uint64_t step = 1; step <= 3; step++)
            test_step(replica, &batch, step);
        for (int i = 0; i < 3; i++) {
            uint64_t not_zero = 0;
            for (size_t at = 0; at < replica->plan->flat_bytes / sizeof(float); at++)
                not_zero += buffers[i][at] != 0;
            ck_assert_uint_gt(not_zero, 0);
            ck_assert_uint_le(not_zero, parameters);
        }
        ls_replica_destroy(replica);
    }
}

// ---- Devices that fail ----

static int calls_left; // until one fails

static struct ls_buffer *failing_allocate(struct ls_device *device, uint64_t bytes)
{
    return calls_left-- > 0 ? inner->memory->allocate(device, bytes) : NULL;
}

static int32_t failing_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                               struct ls_kernel_answer *out)
{
    return calls_left-- > 0 ? inner->kernels->prepare(device, request, out) : LS_FAILED;
}

static int32_t failing_open(const struct ls_host *host, const struct ls_device_config *config,
                            struct ls_device *device)
{
    (void)host, (void)config, (void)device;
    return LS_UNAVAILABLE;
}

// Every allocation, then every kernel, fails once; what was made before must be released (a leak ends the test under
// AddressSanitizer).
TEST(a_device_that_fails_leaves_nothing_behind)
{
    struct ls_device_interface ops = *reference.ops;
    static const uint64_t blocks[] = {6, 3, 2, 0};
    struct test_device device = reference;
    inner = reference.ops;
    device.ops = &ops;
    ops.memory_kind = LS_MEMORY_CUDA;
    struct ls_device_memory memory = *inner->memory;
    struct ls_device_kernels kernels = *inner->kernels;
    ops.memory = &memory;
    ops.kernels = &kernels;
    for (int kind = 0; kind < 2; kind++) {
        memory.allocate = kind == 0 ? failing_allocate : inner->memory->allocate;
        kernels.prepare = kind == 1 ? failing_prepare : inner->kernels->prepare;
        int failures = 0;
        for (enum ls_status status = LS_FAILED; status; failures++) {
            const struct ls_replica_options options = test_options(&device, graph, &adam, sizes);
            struct ls_replica *replica = NULL;
            calls_left = failures;
            status = test_create(&options, blocks, 2, &replica);
            ck_assert(status == LS_OK || replica == NULL);
            ck_assert(!status || kind == 1 || status == LS_OUT_OF_MEMORY);
            ls_replica_destroy(replica);
        }
        ck_assert_int_gt(failures, 8);
    }
    ops.open = failing_open;
    const struct ls_replica_options options = test_options(&device, graph, &adam, sizes);
    struct ls_replica *replica = NULL;
    ck_assert_int_eq(ls_replica_open(&options, &replica), LS_UNAVAILABLE);
    ls_replica_destroy(NULL);
}

TEST_FIXTURE(set_up, tear_down);

int main(void)
{
    if (!test_plugin_open("device-reference"))
        return TEST_SKIPPED;
    return test_suite_run("core/replica/replica");
}
