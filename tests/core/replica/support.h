// SPDX-License-Identifier: Apache-2.0
// For tests of replicas: devices straight from the build tree, batches of random numbers, replicas with first values.
#ifndef LS_TESTS_REPLICA_SUPPORT_H
#define LS_TESTS_REPLICA_SUPPORT_H

#include "core/base/random.h"
#include "core/replica/replica.h"
#include "tests/core/graph/harness.h"
#include "tests/support/plugin.h"

#include <check.h>
#include <math.h>

#define MOST_EXAMPLES 16
#define MOST_ELEMENTS 256 // of an example
#define TEST_SEED 3
#define CLASSES 5 // of harness_cnn

struct test_device {
    const struct ls_device_interface *ops;
    struct test_host host;
};

// NULL, with a line that begins with SKIP, when it is not here. Valid as long as the test.
static inline struct test_device *test_device(const char *name)
{
    static struct test_device devices[4];
    static unsigned opened;
    char full_name[64];
    snprintf(full_name, sizeof(full_name), "device-%s", name);
    const struct ls_plugin *plugin = test_plugin_open(full_name);
    if (!plugin)
        return NULL;
    struct test_device *device = &devices[opened++ % 4];
    test_host_init(&device->host, plugin);
    device->ops = plugin->interface;
    return device;
}

static inline struct ls_optimizer test_optimizer(const char *text)
{
    struct ls_optimizer optimizer;
    ck_assert_int_eq(ls_optimizer_parse(text, &optimizer), LS_OK);
    return optimizer;
}

// `sizes` ends with 0.
static inline struct ls_replica_options test_options(const struct test_device *device,
                                                     const struct ls_graph *graph,
                                                     const struct ls_optimizer *optimizer,
                                                     const uint64_t *sizes)
{
    return (struct ls_replica_options){
        .ops = device->ops,
        .host = &device->host.host,
        .threads = 1,
        .graph = graph,
        .optimizer = optimizer,
        .seed = TEST_SEED,
        .plan_batch = (int64_t)sizes[0],
        .first_bucket_bytes = LS_FIRST_BUCKET_BYTES,
        .bucket_bytes = LS_BUCKET_BYTES,
    };
}

// Programs for `sizes`, in training and in evaluation.
static inline enum ls_status test_need(struct ls_replica *replica, const uint64_t *sizes,
                                       uint32_t microbatches, bool *changed)
{
    uint32_t count = 0;
    while (sizes[count])
        count++;
    const struct ls_replica_need need = {
        .sizes = {[LS_PURPOSE_TRAIN] = {sizes, count}, [LS_PURPOSE_EVALUATE] = {sizes, count}},
        .microbatches = microbatches};
    return ls_replica_need(replica, &need, changed);
}

// Every parameter gets values that depend on its name alone.
static inline void test_set_parameters(struct ls_replica *replica, const struct ls_graph *graph)
{
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const struct ls_tensor *parameter = graph->parameters[i];
        const size_t count = (size_t)ls_shape_elements(&parameter->shape, 1);
        const uint64_t key = ls_random_key_text(11, parameter->name);
        float *values = malloc(count * sizeof(*values));
        for (size_t k = 0; k < count; k++)
            values[k] = (float)(ls_random_u64(key, k) >> 40) * 0x1p-24f - 0.5f;
        ck_assert_int_eq(ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, i, values), LS_OK);
        free(values);
    }
    ck_assert_int_eq(ls_replica_refresh(replica), LS_OK);
}

static inline enum ls_status test_create(const struct ls_replica_options *options,
                                         const uint64_t *sizes, uint32_t microbatches,
                                         struct ls_replica **out)
{
    struct ls_replica *replica = NULL;
    bool changed;
    enum ls_status status = ls_replica_open(options, &replica);
    if (!status)
        status = ls_replica_allocate(replica, NULL);
    if (!status)
        status = test_need(replica, sizes, microbatches, &changed);
    if (!status)
        *out = replica;
    else
        ls_replica_destroy(replica);
    return status;
}

static inline struct ls_replica *test_replica(const struct ls_replica_options *options,
                                              const uint64_t *sizes, uint32_t microbatches)
{
    struct ls_replica *replica = NULL;
    ck_assert_int_eq(test_create(options, sizes, microbatches, &replica), LS_OK);
    test_set_parameters(replica, options->graph);
    return replica;
}

// Examples `first` to `first + count - 1` of a global batch of `global`; always the same numbers. Valid as long as the
// test.
static inline struct ls_replica_batch test_batch(const struct ls_graph *graph, uint64_t first,
                                                 uint64_t count, uint64_t global)
{
    static float examples[MOST_EXAMPLES * MOST_ELEMENTS];
    static int32_t labels[MOST_EXAMPLES];
    const uint64_t elements = (uint64_t)ls_shape_elements(&graph->inputs[0]->shape, 1);
    ck_assert_uint_le(elements, MOST_ELEMENTS);
    ck_assert_uint_le(first + count, MOST_EXAMPLES);
    if (examples[0] == 0) { // the first call
        for (size_t i = 0; i < MOST_EXAMPLES * MOST_ELEMENTS; i++)
            examples[i] = (float)(ls_random_u64(5, i) >> 40) * 0x1p-24f;
        for (size_t i = 0; i < MOST_EXAMPLES; i++)
            labels[i] = (int32_t)(ls_random_u64(6, i) % CLASSES);
    }
    return (struct ls_replica_batch){.count = count,
                                     .global_count = global,
                                     .example_offset = first,
                                     .inputs = {examples + first * elements},
                                     .labels = {labels + first}};
}

// The whole buffer that is reduced: the step's statistics and gradients, in host memory; freed by the caller.
static inline float *test_read_reduced(struct ls_replica *replica, size_t *count)
{
    *count = LS_STEP_STATS + ls_replica_plan(replica)->reduced_bytes / sizeof(float);
    float *values = malloc(*count * sizeof(*values));
    ck_assert_int_eq(ls_device_copy(ls_replica_device(replica), ls_host_memory(values),
                                    ls_replica_memory(replica, LS_BUFFER_REDUCED),
                                    *count * sizeof(*values), NULL),
                     LS_OK);
    return values;
}

struct test_section {
    struct ls_replica *replica;
    struct ls_pass pass;
    uint32_t bucket, from, to;
};

static inline enum ls_status test_section(void *context)
{
    const struct test_section *section = context;
    enum ls_status status = LS_OK;
    if (section->to > section->from)
        status = ls_program_run(section->pass.program, section->from, section->to, false);
    status = ls_program_join(section->pass.program, status);
    return status || section->bucket == ls_replica_buckets(section->replica)->count
               ? status
               : ls_replica_end_bucket(section->replica, &section->pass, section->bucket);
}

// A pass over a block without a strategy: section by section, recorded where the device records.
static inline enum ls_status test_block(struct test_section *section)
{
    const struct ls_pass *pass = &section->pass;
    const uint32_t count = ls_replica_buckets(section->replica)->count;
    enum ls_status status = LS_OK;
    section->from = 0;
    for (uint32_t i = 0; !status && i <= count; i++) {
        const uint32_t end = i < count       ? pass->ends[i]
                             : pass->program ? pass->program->step_count
                                             : 0;
        section->bucket = i;
        section->to = end > section->from ? end : section->from;
        if (section->to > section->from || !pass->program || i < count)
            status = ls_capture_run(section->replica, &pass->captures[i], test_section, section);
        section->from = section->to;
    }
    return status ? status : ls_replica_count_block(section->replica, pass);
}

// Forward and backward pass of a step.
static inline enum ls_status test_passes(struct ls_replica *replica,
                                         const struct ls_replica_batch *batch, uint64_t step,
                                         bool stop)
{
    const struct ls_wait wait = {.deadline_ns = UINT64_C(60000000000)};
    struct test_section section = {.replica = replica};
    enum ls_status status = LS_OK;
    ls_replica_begin_step(replica, batch, step, 0.1, false);
    for (uint32_t i = 0; !status && i < ls_replica_block_count(replica); i++) {
        status = ls_replica_begin_block(replica, batch, i, stop, &wait, &section.pass);
        if (status)
            break;
        status = test_block(&section);
        ls_replica_end_block(replica, &section.pass);
    }
    ls_replica_end_step(replica, false);
    return status;
}

static inline void test_run(struct ls_replica *replica, const struct ls_replica_batch *batch)
{
    ck_assert_int_eq(test_passes(replica, batch, 1, false), LS_OK);
}

// Forward, backward, update of every bucket, refresh.
static inline void test_step(struct ls_replica *replica, const struct ls_replica_batch *batch,
                             uint64_t step)
{
    ck_assert_int_eq(test_passes(replica, batch, step, false), LS_OK);
    for (uint32_t i = 0; i < ls_replica_buckets(replica)->count; i++)
        ck_assert_int_eq(ls_replica_update(replica, i), LS_OK);
    ck_assert_int_eq(ls_replica_refresh(replica), LS_OK);
}

static inline double test_difference(const float *a, const float *b, size_t count)
{
    double largest = 0, difference = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)a[i]));
        difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
    }
    return largest > 0 ? difference / largest : difference;
}

#endif
