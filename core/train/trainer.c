// SPDX-License-Identifier: Apache-2.0
// Opens replicas on their threads and keeps them together.
#include "core/train/trainer.h"

#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/base/watchdog.h"

#include <stdio.h>
#include <stdlib.h>

static const struct ls_trace_label prepare_slice = {.category = "start", .name = "prepare"};

// A replica failed: nobody may wait for it.
static void wake_all(void *context, enum ls_status status)
{
    struct ls_trainer *trainer = context;
    if (status == LS_PEER_LOST)
        trainer->hung = true;
    // An interrupted evaluation ends its own stream alone: the communicators are needed afterwards. Who is aborted
    // follows another, which has done this already.
    if (trainer->driver && status != LS_INTERRUPTED && status != LS_ABORTED)
        ls_driver_abort(trainer->driver);
    struct ls_stream *stream = trainer->stream;
    if (stream)
        ls_stream_abort(stream);
    for (uint32_t i = 0; trainer->own && !stream && i < trainer->count; i++)
        ls_stream_abort(trainer->own[i]);
}

// After a replica has failed: a kernel takes that long at times, whatever the deadline is; and no replica is waited for
// longer, as what it does is not needed any more.
#define LEAST_PATIENCE_NS UINT64_C(2000000000)
#define MOST_PATIENCE_NS UINT64_C(8000000000)

static void say_stuck(void *context, uint32_t replica)
{
    ((struct ls_trainer *)context)->run->stuck(replica);
}

// Whether the device computes beside the threads of the replicas.
static bool works_on(const struct ls_trainer *trainer)
{
    return !((const struct ls_device_interface *)trainer->run->device->interface)->blocking;
}

struct work {
    const char *doing;
    enum ls_status (*function)(void *context, uint32_t rank);
    void *context;
};

// [replica thread]
static enum ls_status work(void *context, uint32_t rank)
{
    const struct work *work = context;
    const uint64_t errors = ls_log_own_errors();
    const enum ls_status status = work->function(work->context, rank);
    if (status == LS_OUT_OF_MEMORY && ls_log_own_errors() == errors)
        ls_error("train", "out of memory while %s; smaller batches and fewer replicas need less",
                 work->doing);
    return status;
}

enum ls_status ls_trainer_run(struct ls_trainer *trainer, const char *doing,
                              enum ls_status (*function)(void *context, uint32_t rank),
                              void *context)
{
    struct work shared = {doing, function, context};
    trainer->run->doing = doing;
    return ls_group_run(trainer->group, work, &shared);
}

static void add_size(uint64_t *sizes, uint64_t size)
{
    for (uint32_t i = 0; i < LS_REPLICA_SIZES; i++) {
        if (sizes[i] == size || sizes[i] == 0) {
            sizes[i] = size;
            return;
        }
    }
}

// Whether a replica may have to compute the shares of another.
static bool may_stand_in(const struct ls_trainer *trainer)
{
    const struct ls_strategy_interface *strategy = trainer->run->strategy.strategy->interface;
    return strategy->lost && trainer->options.slices == 1;
}

// The sizes that programs must be ready for: those of the shares of `rank`, each in `slices` parts.
static void add_sizes(const struct ls_trainer *trainer, uint64_t examples, uint32_t rank,
                      uint32_t slices, uint64_t *sizes)
{
    uint64_t shares[2] = {0, 0};
    if (examples == 0)
        return;
    const uint32_t count =
        ls_share_sizes(examples, trainer->options.global_batch, trainer->count, rank, shares);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t part = 0; part < slices && part < shares[i]; part++) {
            uint64_t offset, size;
            ls_slice(shares[i], slices, part, &offset, &size);
            add_size(sizes, size);
        }
}

static void find_sizes(const struct ls_trainer *trainer, uint64_t examples, uint32_t rank,
                       uint32_t slices, uint64_t *sizes)
{
    add_sizes(trainer, examples, rank, slices, sizes);
    for (uint32_t i = 0; may_stand_in(trainer) && i < trainer->count; i++)
        add_sizes(trainer, examples, i, slices, sizes);
}

// Each rank is a process of its own in a timeline.
static void name_rank(const struct ls_run *run, uint32_t rank)
{
    char name[32], remark[128];
    snprintf(name, sizeof(name), "rank %u", rank);
    snprintf(remark, sizeof(remark), "%s, %u thread%s", run->device->plugin->name, run->threads,
             run->threads == 1 ? "" : "s");
    ls_trace_move(1 + rank, name, remark);
}

// [replica thread]
static enum ls_status create_replica(void *context, uint32_t rank)
{
    struct ls_trainer *trainer = context;
    name_rank(trainer->run, rank);
    const struct ls_trainer_options *options = &trainer->options;
    struct ls_replica_options replica = {
        .ops = trainer->run->device->interface,
        .host = trainer->run->device->host,
        .device_name = trainer->run->device->plugin->name,
        .rank = rank,
        .device_index = rank % trainer->run->devices,
        .threads = trainer->run->threads,
        .graph = trainer->model->graph,
        .optimizer = options->training_examples ? &trainer->model->optimizer : NULL,
        .seed = trainer->run->seed,
        .byte_divisor = options->byte_divisor,
        .slices = trainer->options.slices,
        .first_bucket_bytes = LS_FIRST_BUCKET_BYTES,
        .bucket_bytes = LS_BUCKET_BYTES,
        .timing = trainer->run->verbose,
        .deadline_ns = trainer->run->deadline_ns,
    };
    uint64_t offset, size;
    const uint64_t examples =
        options->training_examples ? options->training_examples : options->evaluation_examples;
    ls_share(examples < options->global_batch ? examples : options->global_batch, trainer->count, 0,
             &offset, &size);
    replica.plan_batch = (int64_t)size;
    find_sizes(trainer, options->training_examples, rank, trainer->options.slices,
               replica.training_sizes);
    if (options->order.position)
        find_sizes(trainer, options->training_examples - options->order.position, rank,
                   trainer->options.slices, replica.training_sizes);
    find_sizes(trainer, options->evaluation_examples, rank, 1, replica.evaluation_sizes);
    ls_trace_begin(&prepare_slice, 0);
    enum ls_status status = ls_replica_create(&replica, &trainer->replicas[rank]);
    if (!status)
        status = ls_trainer_give_weights(trainer, rank);
    ls_trace_end();
    return status;
}

enum ls_status ls_trainer_open(struct ls_model *model, const struct ls_trainer_options *options,
                               struct ls_trainer **out)
{
    struct ls_trainer *trainer = calloc(1, sizeof(*trainer));
    if (!trainer)
        return LS_OUT_OF_MEMORY;
    trainer->model = model;
    trainer->run = model->run;
    trainer->options = *options;
    if (trainer->options.slices == 0)
        trainer->options.slices = 1;
    trainer->count = model->run->replicas;
    trainer->replicas = calloc(trainer->count, sizeof(struct ls_replica *));
    enum ls_status status = trainer->replicas ? ls_model_need_weights(model) : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_cluster_open_alone(trainer->count, &trainer->cluster);
    if (!status)
        status = ls_group_create(trainer->count, wake_all, trainer, &trainer->group);
    if (!status)
        ls_group_set_one_voice(trainer->group, works_on(trainer));
    if (!status && trainer->run->stuck)
        ls_group_set_patience(trainer->group,
                              trainer->run->deadline_ns < LEAST_PATIENCE_NS ? LEAST_PATIENCE_NS
                              : trainer->run->deadline_ns > MOST_PATIENCE_NS
                                  ? MOST_PATIENCE_NS
                                  : trainer->run->deadline_ns,
                              say_stuck);
    if (!status)
        status = ls_trainer_run(trainer, "preparing the replicas", create_replica, trainer);
    if (status) {
        (void)!ls_trainer_close(trainer);
        return status;
    }
    *out = trainer;
    return LS_OK;
}

// [replica thread]
static enum ls_status destroy_replica(void *context, uint32_t rank)
{
    struct ls_trainer *trainer = context;
    ls_replica_destroy(trainer->replicas[rank]);
    return LS_OK;
}

// What follows from a failure that was said is not said again.
static enum ls_status close_driver(struct ls_trainer *trainer)
{
    char *error = NULL;
    if (ls_group_has_spoken(trainer->group))
        ls_log_keep(&error);
    for (uint32_t i = 0; trainer->hung && trainer->replicas && i < trainer->count; i++)
        ls_replica_abandon(trainer->replicas[i]);
    const bool closed = ls_driver_close(trainer->driver);
    trainer->driver = NULL;
    ls_log_keep(NULL);
    free(error);
    if (!closed && trainer->run->stuck)
        trainer->run->stuck(LS_NO_REPLICA);
    return closed ? LS_OK : LS_PEER_LOST;
}

enum ls_status ls_trainer_close(struct ls_trainer *trainer)
{
    if (!trainer)
        return LS_OK;
    trainer->stream = NULL;
    ls_stream_close(trainer->training);
    for (uint32_t i = 0; trainer->own && i < trainer->count; i++)
        ls_stream_close(trainer->own[i]);
    free(trainer->own);
    const enum ls_status status = close_driver(trainer);
    if (status)
        return status;
    if (trainer->group)
        (void)!ls_group_run(trainer->group, destroy_replica, trainer);
    ls_group_destroy(trainer->group);
    ls_cluster_close(trainer->cluster);
    free(trainer->replicas);
    free(trainer);
    return LS_OK;
}

// [replica thread]
static enum ls_status place(void *context, uint32_t rank)
{
    return ls_driver_initialize_parameters(((struct ls_trainer *)context)->driver, rank);
}

static struct ls_driver_plugin driver_plugin(const struct ls_opened_plugin *opened)
{
    if (!opened)
        return (struct ls_driver_plugin){0};
    return (struct ls_driver_plugin){.plugin = opened->plugin,
                                     .host = opened->host,
                                     .interface = opened->interface,
                                     .text = opened->text};
}

static struct ls_driver_plugin collective_plugin(const struct ls_run *run)
{
    if (!run->tuning.tuner)
        return driver_plugin(run->strategy.collective);
    const struct ls_plugin *plugin = ls_tuner_plugin(run->tuning.tuner);
    return (struct ls_driver_plugin){
        .plugin = plugin, .host = ls_tuner_host(run->tuning.tuner), .interface = plugin->interface};
}

// Whether the collectives are measured: `auto` without a table.
static bool measures(const struct ls_run *run)
{
    return run->tuning.tuner && !run->tuning.table;
}

// The run's own device where it computes in host memory, else the cpu device. [main thread]
static enum ls_status store_device(void *context, struct ls_driver_plugin *out)
{
    const struct ls_run *run = ((struct ls_trainer *)context)->run;
    const struct ls_device_interface *own = run->device->interface;
    const struct ls_opened_plugin *device = run->device;
    if (own->memory_kind != LS_MEMORY_HOST) {
        const enum ls_status status =
            ls_loader_open(run->loader, LS_KIND_DEVICE, "cpu", NULL, 0, &device);
        if (status)
            return status;
    }
    *out = driver_plugin(device);
    return LS_OK;
}

// Opens the driver on replicas that have all of their buffers.
static enum ls_status open_driver(struct ls_trainer *trainer)
{
    struct ls_driver_part *parts = calloc(trainer->count, sizeof(*parts));
    if (!parts)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < trainer->count; i++)
        parts[i] = ls_driver_part_of(trainer->replicas[i]);
    const struct ls_driver_options options = {
        .strategy = driver_plugin(trainer->run->strategy.strategy),
        .collective = collective_plugin(trainer->run),
        .transport = driver_plugin(trainer->run->strategy.transport),
        .tuner = measures(trainer->run) ? trainer->run->tuning.tuner : NULL,
        .deadline_ns = trainer->run->deadline_ns,
        .cluster = trainer->cluster,
        .parts = parts,
        .threads = trainer->run->threads,
        .steps_before = trainer->model->steps_done,
        .store_device = store_device,
        .context = trainer,
    };
    enum ls_status status = ls_driver_open(&options, &trainer->driver);
    free(parts);
    return status ? status : ls_driver_attach(trainer->driver, trainer->replicas);
}

enum ls_status ls_trainer_start(struct ls_trainer *trainer)
{
    trainer->run->doing = "starting the strategy";
    const enum ls_status status = open_driver(trainer);
    if (!status && ls_driver_survives(trainer->driver))
        ls_group_set_one_voice(trainer->group, false);
    return status ? status : ls_trainer_run(trainer, "placing the parameters", place, trainer);
}

// ---- Data ----

// For ranks `first` .. `first` + `count` - 1.
enum ls_status ls_trainer_open_stream(const struct ls_trainer *trainer,
                                      const struct ls_dataset *dataset,
                                      const struct ls_stream_options *order, uint32_t first,
                                      uint32_t count, struct ls_stream **out)
{
    struct ls_stream_options options = *order;
    options.global_batch = trainer->options.global_batch;
    options.world = trainer->count;
    options.first_rank = first;
    options.rank_count = count;
    options.seed = trainer->run->seed;
    // All replicas are on the same device and answer alike.
    options.bytes = ls_replica_takes_bytes(trainer->replicas[first]) &&
                    dataset->divisor == trainer->options.byte_divisor;
    return ls_stream_open(dataset, &options, out);
}

// One stream couples its readers: none is further ahead of the slowest than the stream has room.
static enum ls_status open_own_streams(struct ls_trainer *trainer, const struct ls_dataset *dataset,
                                       const struct ls_stream_options *order)
{
    trainer->own = calloc(trainer->count, sizeof(struct ls_stream *));
    enum ls_status status = trainer->own ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < trainer->count; i++)
        status = ls_trainer_open_stream(trainer, dataset, order, i, 1, &trainer->own[i]);
    return status;
}

enum ls_status ls_trainer_set_data(struct ls_trainer *trainer, const struct ls_dataset *dataset,
                                   enum ls_shuffle shuffle, uint64_t shuffle_buffer)
{
    const struct ls_stream_options order = {
        .shuffle = shuffle,
        .shuffle_buffer = shuffle_buffer,
        .epochs_before = trainer->options.order.epochs,
        .first_example = trainer->options.order.position,
    };
    if (trainer->driver && ls_driver_asynchronous(trainer->driver))
        return open_own_streams(trainer, dataset, &order);
    const enum ls_status status =
        ls_trainer_open_stream(trainer, dataset, &order, 0, trainer->count, &trainer->training);
    if (!status)
        trainer->stream = trainer->training;
    return status;
}

enum ls_status ls_trainer_next(struct ls_trainer *trainer, uint32_t rank,
                               struct ls_replica_batch *out, uint64_t *waited_ns)
{
    struct ls_batch batch;
    struct ls_stream *stream = trainer->stream;
    if (!stream)
        stream = trainer->own[rank];
    const enum ls_status status = ls_stream_next(stream, rank, &batch, waited_ns);
    if (status)
        return status;
    *out = (struct ls_replica_batch){.count = batch.count,
                                     .global_count = batch.global_count,
                                     .example_offset = batch.example_offset,
                                     .example_dtype = batch.example_dtype,
                                     .examples = batch.examples,
                                     .labels = batch.labels};
    return LS_OK;
}

// ---- Lost replicas ----

bool ls_trainer_is_lost(const struct ls_trainer *trainer, uint32_t rank)
{
    return trainer->driver && ls_driver_is_lost(trainer->driver, rank);
}

uint32_t ls_trainer_first(const struct ls_trainer *trainer)
{
    uint32_t rank = 0;
    while (rank + 1 < trainer->count && ls_trainer_is_lost(trainer, rank))
        rank++;
    return rank;
}

void ls_trainer_say_lost(const struct ls_trainer *trainer, uint32_t rank, const char *doing)
{
    char whose[48] = "";
    uint32_t left = 0;
    for (uint32_t i = 0; i < trainer->count; i++)
        if (!ls_trainer_is_lost(trainer, i) && left++ == 0)
            snprintf(whose, sizeof(whose), "replica %u trains", i);
    if (left > 1)
        snprintf(whose, sizeof(whose), "the other %u replicas train", left);
    ls_warn("train", "replica %u failed at %s (the reason was logged above); %s its examples", rank,
            doing, whose);
}
