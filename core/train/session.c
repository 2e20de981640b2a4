// SPDX-License-Identifier: Apache-2.0
// A session from its opening to its end: the programs and input of its replicas, and what becomes of
// it when one fails. Work on their threads is in session_threads.c, parameters and states are in
// session_values.c, passes that do not train in session_evaluate.c.
#include "core/train/session.h"

#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/base/shared_memory.h"
#include "core/base/trace.h"
#include "core/base/watchdog.h"
#include "core/model/learned_classes.h"
#include "core/model/pixels.h"
#include "core/train/rank_values.h"
#include "core/train/session_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label prepare_span = {.category = "start", .name = "prepare"};

// ---- The threads of the replicas ----

// A replica failed: nobody may wait for it.
static void wake_all(void *context, enum ls_status status)
{
    struct ls_session *session = context;
    if (status == LS_PEER_LOST)
        session->hung = true;
    // An interrupted evaluation ends its own stream alone: the communicators are needed
    // afterwards. A replica that was aborted follows another one, which has done this already.
    // A loss that is not finite is found by all workers in the same step, and needs no abort, which
    // could reach another one before that.
    const bool alone = ls_cluster_workers(session->cluster) == 1;
    const bool found = session->driver && ls_driver_not_finite(session->driver);
    if (session->lacks && status == LS_UNAVAILABLE)
        return; // the workers meet, and take another device (agree_on_lack)
    if (session->driver && status != LS_INTERRUPTED && status != LS_ABORTED && (alone || !found))
        ls_driver_abort(session->driver);
    // A worker that has lost a peer says nothing: all are to name the peer, and not this worker.
    if (status != LS_INTERRUPTED && status != LS_ABORTED && status != LS_PEER_LOST && !found)
        ls_workers_give_up(session->run);
    struct ls_stream *stream = session->stream;
    if (stream)
        ls_stream_abort(stream);
    for (uint32_t i = 0; session->input.own && !stream && i < session->count; i++)
        ls_stream_abort(session->input.own[i]);
}

// A worker is lost: whatever the replicas do ends with LS_ABORTED, or did already. [any thread]
static void abort_session(void *context)
{
    struct ls_session *session = context;
    atomic_store(&session->aborted, true);
    if (session->driver)
        ls_driver_abort(session->driver);
}

// After a replica has failed: a kernel takes that long at times, whatever the deadline is; and no
// replica is waited for longer, as what it does is not needed any more.
#define LEAST_PATIENCE_NS UINT64_C(2000000000)
#define MOST_PATIENCE_NS UINT64_C(8000000000)

static void say_stuck(void *context, uint32_t rank)
{
    ((struct ls_session *)context)->run->stuck(rank);
}

// Whether the device computes beside the threads of the replicas.
static bool works_on(const struct ls_session *session)
{
    return !((const struct ls_device_interface *)session->run->device->interface)->blocking;
}

// Runs what prepares kernels. Where a device chooses them by measurements, worker 0 does so first,
// and the others take its choices. What a device lacks it lacks on all of them.
static enum ls_status run_preparing(struct ls_session *session, const char *doing,
                                    enum ls_status (*function)(void *context, uint32_t index),
                                    void *context)
{
    const bool shares = ls_workers_share_choices(session->run);
    const bool first = !shares || ls_cluster_worker(session->cluster) == 0;
    if (first && shares)
        ls_cluster_say(session->cluster, LS_NO_STEP, "the choice of kernels for all workers");
    enum ls_status status = first ? ls_session_run(session, doing, function, context) : LS_OK;
    bool lacks = false;
    for (uint32_t i = 0; session->lacks && i < session->count; i++)
        lacks = lacks || session->lacks[i][0];
    if (!shares || (status && !lacks))
        return status;
    session->run->doing = "taking over worker 0's choices of kernels";
    const enum ls_status handed = ls_workers_hand_choices(session->run);
    if (!first && !handed)
        status = ls_session_run(session, doing, function, context);
    return handed ? handed : status;
}

// ---- Programs ----

// Sizes of blocks, each once.
struct sizes {
    uint64_t *list;
    uint32_t count;
    enum ls_status status;
};

static void add_size(struct sizes *sizes, uint64_t size)
{
    for (uint32_t i = 0; i < sizes->count; i++)
        if (sizes->list[i] == size)
            return;
    uint64_t *grown = realloc(sizes->list, (sizes->count + 1) * sizeof(*grown));
    if (!grown) {
        sizes->status = LS_OUT_OF_MEMORY;
        return;
    }
    sizes->list = grown;
    sizes->list[sizes->count++] = size;
}

// What a batch is divided into, and which of that is a replica's.
struct division {
    struct ls_shares shares;
    uint32_t first;
};

// Of the blocks of a replica in the batches of an epoch of `examples`: they have two sizes, all but
// the last and the last.
static void add_sizes(const struct ls_session *session, uint64_t examples,
                      const struct division *division, uint32_t index, uint32_t microbatches,
                      struct sizes *sizes)
{
    const uint64_t batch = session->need.global_batch;
    const uint64_t batches[] = {examples < batch ? examples : batch, examples % batch};
    for (int i = 0; i < 2; i++) {
        for (uint32_t block = 0; block < microbatches && block < batches[i]; block++) {
            uint64_t offset, size;
            ls_share_block(&division->shares, batches[i], microbatches, division->first + index,
                           block, &offset, &size);
            add_size(sizes, size);
        }
    }
}

// Whether a replica may have to compute the shares of another.
static bool may_stand_in(const struct ls_session *session)
{
    const struct ls_strategy_interface *strategy = session->run->strategy.strategy->interface;
    return strategy->lost && session->need.microbatches == 1;
}

static void find_sizes(const struct ls_session *session, uint64_t examples, bool trains,
                       uint32_t index, uint32_t microbatches, struct sizes *sizes)
{
    const struct division division = {.shares = trains ? ls_model_division(session->model)
                                                       : ls_run_division(session->run, false),
                                      .first = trains ? ls_run_first_share(session->run)
                                                      : ls_cluster_first_rank(session->cluster)};
    if (examples == 0)
        return;
    add_sizes(session, examples, &division, index, microbatches, sizes);
    for (uint32_t i = 0; may_stand_in(session) && i < session->count; i++)
        add_sizes(session, examples, &division, i, microbatches, sizes);
}

struct preparing {
    struct ls_session *session;
    atomic_bool changed;
};

// [replica thread]
static enum ls_status prepare_replica(void *context, uint32_t index)
{
    struct preparing *preparing = context;
    struct ls_session *session = preparing->session;
    const struct ls_session_need *need = &session->need;
    struct sizes training = {0}, evaluation = {0}, prediction = {0};
    bool changed = false;
    find_sizes(session, need->training_examples, true, index, need->microbatches, &training);
    if (need->position)
        find_sizes(session, need->training_examples - need->position, true, index,
                   need->microbatches, &training);
    const uint32_t blocks = session->run->shards ? need->microbatches : 1;
    find_sizes(session, need->evaluation_examples, false, index, blocks, &evaluation);
    find_sizes(session, need->prediction_examples, false, index, blocks, &prediction);
    const struct ls_replica_need replica = {
        .sizes = {[LS_PURPOSE_TRAIN] = {training.list, training.count},
                  [LS_PURPOSE_EVALUATE] = {evaluation.list, evaluation.count},
                  [LS_PURPOSE_PREDICT] = {prediction.list, prediction.count}},
        .microbatches = need->microbatches,
        .shards = session->driver ? session->run->shards : 0};
    enum ls_status status = training.status     ? training.status
                            : evaluation.status ? evaluation.status
                                                : prediction.status;
    ls_trace_begin(&prepare_span, 0);
    if (!status)
        status = ls_replica_need(session->replicas[index], &replica, &changed);
    ls_trace_end();
    if (changed)
        preparing->changed = true;
    free(training.list);
    free(evaluation.list);
    free(prediction.list);
    return status;
}

// [replica thread]
static enum ls_status forget_recordings(void *context, uint32_t index)
{
    ls_replica_forget_recordings(((struct ls_session *)context)->replicas[index]);
    return LS_OK;
}

// Of the batches of an epoch that begins at `position`, the last one.
static uint64_t last_batch(const struct ls_session_need *need)
{
    return (need->training_examples - need->position) % need->global_batch;
}

static bool same_training(const struct ls_session_need *a, const struct ls_session_need *b)
{
    return a->global_batch == b->global_batch && a->training_examples == b->training_examples &&
           last_batch(a) == last_batch(b) && a->microbatches == b->microbatches;
}

static bool same_evaluation(const struct ls_session_need *a, const struct ls_session_need *b)
{
    return a->global_batch == b->global_batch && a->evaluation_examples == b->evaluation_examples;
}

static bool same_prediction(const struct ls_session_need *a, const struct ls_session_need *b)
{
    return a->global_batch == b->global_batch && a->prediction_examples == b->prediction_examples;
}

// Makes the programs that are not there. What replicas record together they begin to record at the
// same step: all forget what they have when one has something new, or when the batches have other
// sizes.
static enum ls_status make_programs(struct ls_session *session)
{
    struct ls_session_need *need = &session->need;
    const bool trains = need->training_examples && !same_training(need, &session->trained);
    const bool evaluates = need->evaluation_examples && !same_evaluation(need, &session->evaluated);
    const bool predicts = need->prediction_examples && !same_prediction(need, &session->predicted);
    struct preparing preparing = {.session = session};
    if (!trains && !evaluates && !predicts)
        return LS_OK;
    // Should memory run out, or a device fail, nothing is lost: host memory stays readable.
    enum ls_status status =
        ls_session_in_host_memory(session) ? LS_OK : ls_model_take(session->model, LS_TAKE_ALL);
    if (!status)
        status = run_preparing(session, "preparing the replicas", prepare_replica, &preparing);
    if (!status && (trains || preparing.changed))
        status = ls_session_run(session, "preparing the replicas", forget_recordings, session);
    if (!status && trains)
        session->trained = *need;
    if (!status && evaluates)
        session->evaluated = *need;
    if (!status && predicts)
        session->predicted = *need;
    return status;
}

// The size of the largest block, by which layouts are chosen.
static uint64_t layout_batch(const struct ls_session *session, const struct ls_session_need *need)
{
    const uint64_t examples = need->training_examples     ? need->training_examples
                              : need->evaluation_examples ? need->evaluation_examples
                                                          : need->prediction_examples;
    const uint64_t batch = examples < need->global_batch ? examples : need->global_batch;
    const uint32_t microbatches = need->training_examples ? need->microbatches : 1;
    const struct ls_shares shares = need->training_examples ? ls_model_division(session->model)
                                                            : ls_run_division(session->run, false);
    return ls_largest_block(&shares, batch, microbatches);
}

// A session that is opened for this batch has the layouts of this one.
static enum ls_status note_layouts(struct ls_session *session, uint64_t batch)
{
    uint64_t *grown = realloc(session->same_layouts, (session->same_count + 1) * sizeof(*grown));
    if (!grown)
        return LS_OUT_OF_MEMORY;
    session->same_layouts = grown;
    session->same_layouts[session->same_count++] = batch;
    return LS_OK;
}

struct layouts {
    struct ls_replica *first;
    uint64_t batch;
    bool same;
};

// [replica thread]
static enum ls_status compare_layouts(void *context, uint32_t index)
{
    struct layouts *layouts = context;
    if (index)
        return LS_OK;
    return ls_replica_same_layouts(layouts->first, (int64_t)layouts->batch, &layouts->same);
}

// Whether a session that was opened for this need would keep parameters in the layouts that this
// one has. Other layouts mean other kernels, and other bits than those of the same call in a new
// process.
static enum ls_status has_layouts(struct ls_session *session, const struct ls_session_need *need,
                                  bool *out)
{
    const uint64_t batch = layout_batch(session, need);
    struct layouts layouts = {session->replicas[0], batch, false};
    *out = true;
    for (size_t i = 0; i < session->same_count; i++)
        if (session->same_layouts[i] == batch)
            return LS_OK;
    enum ls_status status = run_preparing(session, "choosing layouts", compare_layouts, &layouts);
    if (!status && layouts.same)
        status = note_layouts(session, batch);
    *out = layouts.same;
    return status;
}

// ---- Input ----

// All replicas of a session are on the same kind of device and take the same inputs as bytes.
static uint32_t input_dtype(const struct ls_session *session, uint32_t replica, uint32_t input,
                            const struct ls_field *field)
{
    const bool bytes = ls_replica_takes_bytes(session->replicas[replica]) >> input & 1;
    return bytes && field->dtype == LS_U8 && field->divisor == session->need.byte_divisors[input]
               ? LS_U8
               : session->model->graph->inputs[input]->dtype;
}

// What the fields are delivered as, and which are not: optional inputs that the model does not
// have, and targets where nothing is compared with them.
static void choose_fields(const struct ls_session *session, uint32_t replica,
                          const struct ls_dataset *dataset, struct ls_stream_options *out)
{
    const struct ls_graph *graph = session->model->graph;
    uint32_t inputs = 0, labels = 0;
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        const struct ls_field *field = &dataset->fields[i];
        switch (field->role) {
        case LS_FIELD_INPUT:
            if (inputs < graph->input_count)
                out->dtypes[i] = input_dtype(session, replica, inputs++, field);
            else
                out->left_out |= 1u << i;
            break;
        case LS_FIELD_TARGET:
            // Where the program computes the loss it gets them as they are.
            if (session->need.prediction_examples ||
                (labels >= graph->label_count && !ls_loss_set_is_none(&session->model->loss)))
                out->left_out |= 1u << i;
            else
                out->dtypes[i] = labels < graph->label_count ? graph->labels[labels]->dtype : 0;
            labels++;
            break;
        case LS_FIELD_WEIGHT:
            out->dtypes[i] = LS_F32;
            if (!graph->weights || session->need.prediction_examples)
                out->left_out |= 1u << i;
            break;
        }
    }
}

enum ls_status ls_session_open_stream(const struct ls_session *session,
                                      const struct ls_dataset *dataset,
                                      const struct ls_stream_options *order, uint32_t microbatches,
                                      uint32_t first, uint32_t count, struct ls_stream **out)
{
    struct ls_stream_options options = *order;
    options.global_batch = session->need.global_batch;
    options.first_rank =
        order->shares.world ? ls_session_share(session, first) : ls_session_rank(session, first);
    if (!order->shares.world)
        options.shares = ls_run_division(session->run, false);
    options.rank_count = count;
    options.blocks = microbatches;
    options.seed = session->run->seed;
    options.patience_ns = session->run->deadline_ns;
    choose_fields(session, first, dataset, &options);
    return ls_stream_open(dataset, &options, out);
}

static void close_streams(struct ls_session *session)
{
    struct ls_session_input *input = &session->input;
    session->stream = NULL;
    ls_stream_close(input->all);
    for (uint32_t i = 0; input->own && i < session->count; i++)
        ls_stream_close(input->own[i]);
    free(input->own);
    input->all = NULL;
    input->own = NULL;
}

static void forget_data(struct ls_session *session)
{
    close_streams(session);
    ls_data_close(session->input.data);
    session->input = (struct ls_session_input){0};
}

void ls_session_note_order(struct ls_session *session, const struct ls_model_order *order)
{
    if (order)
        session->input.order = *order;
    else
        close_streams(session);
}

// Whether the next example of the streams is the one that `order` begins with.
static bool goes_on(const struct ls_session *session, const struct ls_data *data,
                    enum ls_shuffle shuffle, uint64_t shuffle_buffer,
                    const struct ls_model_order *order)
{
    const struct ls_session_input *input = &session->input;
    return (input->all || input->own) && input->data == data && input->shuffle == shuffle &&
           input->shuffle_buffer == shuffle_buffer &&
           input->global_batch == session->need.global_batch &&
           input->microbatches == session->need.microbatches && input->order.key == order->key &&
           input->order.epochs == order->epochs && input->order.position == order->position;
}

enum ls_status ls_session_set_data(struct ls_session *session, struct ls_data *data,
                                   enum ls_shuffle shuffle, uint64_t shuffle_buffer,
                                   const struct ls_model_order *order)
{
    struct ls_session_input *input = &session->input;
    const struct ls_stream_options options = {
        .shuffle = shuffle,
        .shuffle_buffer = shuffle_buffer,
        .shares = ls_model_division(session->model),
        .epochs_before = order->epochs,
        .first_example = order->position,
        .augment = true,
    };
    const struct ls_dataset *dataset = NULL;
    if (goes_on(session, data, shuffle, shuffle_buffer, order)) {
        session->stream = input->all;
        return LS_OK;
    }
    close_streams(session);
    if (input->data != data) {
        forget_data(session);
        ls_data_hold(data);
        input->data = data;
    }
    enum ls_status status = ls_model_wait_data(session->model, data, true, &dataset);
    if (status)
        return status;
    if (ls_run_is_chief(session->model->run))
        ls_model_warn_of_pixels(session->model, data->text, dataset);
    input->shuffle = shuffle;
    input->shuffle_buffer = shuffle_buffer;
    input->global_batch = session->need.global_batch;
    input->microbatches = session->need.microbatches;
    input->order = *order;
    if (!ls_driver_asynchronous(session->driver)) {
        status = ls_session_open_stream(session, dataset, &options, input->microbatches, 0,
                                        session->count, &input->all);
        session->stream = input->all;
        return status;
    }
    // One stream couples its readers: none is further ahead of the slowest than the stream has
    // room.
    input->own = calloc(session->count, sizeof(struct ls_stream *));
    status = input->own ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < session->count; i++)
        status = ls_session_open_stream(session, dataset, &options, input->microbatches, i, 1,
                                        &input->own[i]);
    return status;
}

enum ls_status ls_session_next(struct ls_session *session, uint32_t index,
                               struct ls_replica_batch *out, uint64_t *waited_ns)
{
    struct ls_batch batch;
    struct ls_stream *stream = session->stream;
    const uint32_t rank =
        stream ? ls_session_rank(session, index) : ls_session_share(session, index);
    if (atomic_load(&session->aborted))
        return LS_ABORTED;
    if (!stream)
        stream = session->input.own[index];
    const enum ls_status status = ls_stream_next(stream, rank, &batch, waited_ns);
    if (status)
        return status;
    *out = (struct ls_replica_batch){.count = batch.count,
                                     .global_count = batch.global_count,
                                     .example_offset = batch.example_offset,
                                     .even = batch.even,
                                     .block_counts = batch.block_counts,
                                     .block_offsets = batch.block_offsets};
    for (uint32_t i = 0, inputs = 0, labels = 0; i < batch.dataset->field_count; i++) {
        switch (batch.dataset->fields[i].role) {
        case LS_FIELD_INPUT:
            if (!batch.fields[i])
                break;
            out->bytes |= (uint32_t)(batch.dtypes[i] == LS_U8) << inputs;
            out->inputs[inputs++] = batch.fields[i];
            break;
        case LS_FIELD_TARGET:
            if (labels < LS_GRAPH_LOSSES)
                out->labels[labels++] = batch.fields[i];
            break;
        case LS_FIELD_WEIGHT: out->weights = batch.fields[i]; break;
        }
    }
    return ls_weighting_apply(&session->weighting, index, session->model->graph, out);
}

// ---- Opening ----

// Each rank is a process of its own in a timeline.
static void name_rank(const struct ls_run *run, uint32_t rank)
{
    char name[32], remark[128];
    snprintf(name, sizeof(name), "rank %u", rank);
    snprintf(remark, sizeof(remark), "%s, %u thread%s", run->device->plugin->name, run->threads,
             run->threads == 1 ? "" : "s");
    ls_trace_move(1 + rank, name, remark);
}

// NULL: the session does not train.
static const struct ls_optimizer *optimizer_of(const struct ls_session *session)
{
    return session->trains ? &session->model->optimizer : NULL;
}

static void limit_buckets(const struct ls_run *run, struct ls_replica_options *replica)
{
    const struct ls_opened_plugin *strategy = run->strategy.strategy;
    const uint64_t bytes =
        strategy ? (uint64_t)ls_host_number(strategy->host, LS_BUCKET_OPTION) : 0;
    if (!bytes)
        return;
    replica->bucket_bytes = bytes;
    if (bytes < replica->first_bucket_bytes)
        replica->first_bucket_bytes = bytes;
}

// [replica thread]
static enum ls_status open_replica(void *context, uint32_t index)
{
    struct ls_session *session = context;
    const struct ls_run *run = session->run;
    const uint32_t rank = ls_session_rank(session, index);
    name_rank(run, rank);
    struct ls_replica_options replica = {
        .ops = run->device->interface,
        .host = run->device->host,
        .device_name = run->device->plugin->name,
        .rank = rank,
        .device_index = run->chosen[index % run->chosen_count],
        .threads = run->threads,
        .graph = session->model->graph,
        .optimizer = optimizer_of(session),
        .seed = run->seed,
        .plan_batch = (int64_t)layout_batch(session, &session->need),
        .first_bucket_bytes = LS_FIRST_BUCKET_BYTES,
        .bucket_bytes = LS_BUCKET_BYTES,
        .timing = run->verbose,
        .deadline_ns = run->deadline_ns,
        .lack = session->lacks ? session->lacks[index] : NULL,
    };
    limit_buckets(run, &replica);
    memcpy(replica.byte_divisors, session->need.byte_divisors, sizeof(replica.byte_divisors));
    return ls_replica_open(&replica, &session->replicas[index]);
}

struct allocating {
    struct ls_session *session;
    struct ls_replica_placement *placements; // one a replica of this worker
};

// What the replica holds of each bucket. `ranges`: room for all kinds, which `out` refers to. [main
// thread]
static enum ls_status find_placement(struct ls_session *session, uint32_t index,
                                     struct ls_held_range *ranges, struct ls_replica_placement *out)
{
    const uint32_t rank = ls_session_rank(session, index);
    const struct ls_buckets *buckets = ls_replica_buckets(session->replicas[index]);
    struct ls_held_range *held[LS_HELD_KINDS];
    enum ls_status status = LS_OK;
    for (uint32_t kind = 0; kind < LS_HELD_KINDS; kind++) {
        held[kind] = ranges + (size_t)kind * buckets->all;
        out->held[kind] = kind == LS_HELD_STATES || session->spread[kind] ? held[kind] : NULL;
    }
    for (uint32_t i = 0; !status && i < buckets->all; i++) {
        struct ls_strategy_placement bucket;
        status = ls_driver_placement(session->driver, rank, i, &bucket);
        if (status)
            break;
        held[LS_HELD_PARAMETERS][i] =
            (struct ls_held_range){bucket.parameters.first, bucket.parameters.count};
        held[LS_HELD_GRADIENTS][i] =
            (struct ls_held_range){bucket.gradients.first, bucket.gradients.count};
        held[LS_HELD_STATES][i] = (struct ls_held_range){bucket.states.first, bucket.states.count};
    }
    return status;
}

// A worker that joins or is lost changes the ranks, and with them who holds what.
static enum ls_status refuse_elastic(const struct ls_session *session)
{
    if (!session->run->most_workers)
        return LS_OK;
    ls_error("--elastic",
             "under strategy '%s' each worker holds a part of the optimizer's state, which is "
             "lost with it; leave --elastic out, and go on from checkpoints with --resume, or "
             "use --strategy=mirrored",
             session->run->strategy.strategy->plugin->name);
    return LS_USAGE;
}

// [replica thread]
static enum ls_status allocate_replica(void *context, uint32_t index)
{
    const struct allocating *allocating = context;
    struct ls_session *session = allocating->session;
    struct ls_replica_placement *placement = &allocating->placements[index];
    enum ls_status status = LS_OK;
    placement->forward = !session->trains;
    if (session->trains && !session->spread[LS_HELD_GRADIENTS])
        status = ls_driver_take_memory(session->driver, index, &placement->reduced);
    return status ? status : ls_replica_allocate(session->replicas[index], placement);
}

static enum ls_status allocate_replicas(struct ls_session *session)
{
    struct allocating allocating = {.session = session};
    allocating.placements = calloc(session->count, sizeof(*allocating.placements));
    const size_t ranges_each =
        (size_t)LS_HELD_KINDS * ls_replica_buckets(session->replicas[0])->all;
    struct ls_held_range *ranges = calloc(session->count * ranges_each, sizeof(*ranges));
    enum ls_status status = allocating.placements && ranges ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && session->driver && i < session->count; i++)
        status = find_placement(session, i, ranges + i * ranges_each, &allocating.placements[i]);
    if (!status)
        status = ls_session_run(session, "preparing the replicas", allocate_replica, &allocating);
    free(allocating.placements);
    free(ranges);
    return status;
}

// [replica thread]
static enum ls_status initialize_parameters(void *context, uint32_t index)
{
    return ls_driver_initialize_parameters(((struct ls_session *)context)->driver, index);
}

// The sums of a step, in front of the first gradients, may not be rounded.
static void warn_of_wire(const struct ls_session *session)
{
    const struct ls_run *run = session->run;
    if (run->wire && session->spread[LS_HELD_STATES] && ls_session_rank(session, 0) == 0 &&
        !ls_driver_rounds_ranges(session->driver))
        ls_warn("--wire",
                "no effect: under strategy '%s' the first gradients travel in float32 with the "
                "sums of the step, and this model is so small that these are all; leave it out",
                run->strategy.strategy->plugin->name);
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
    const struct ls_run *run = ((struct ls_session *)context)->run;
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

// Totals are small: what counts is the number of rounds. [main thread]
#define TOTAL_COLLECTIVE "direct"
#define TOTAL_TRANSPORT "local"

static enum ls_status total_plugins(void *context, struct ls_driver_plugin *collective,
                                    struct ls_driver_plugin *transport)
{
    struct ls_run *run = ((struct ls_session *)context)->run;
    enum ls_status status = ls_loader_open(run->loader, LS_KIND_COLLECTIVE, TOTAL_COLLECTIVE, NULL,
                                           0, &run->total_collective);
    if (!status && !transport->plugin)
        status = ls_loader_open(run->loader, LS_KIND_TRANSPORT, TOTAL_TRANSPORT, NULL, 0,
                                &run->total_transport);
    if (status)
        return status;
    *collective = driver_plugin(run->total_collective);
    if (!transport->plugin)
        *transport = driver_plugin(run->total_transport);
    return LS_OK;
}

static enum ls_status open_driver(struct ls_session *session)
{
    const struct ls_run *run = session->run;
    struct ls_driver_part *parts = calloc(session->count, sizeof(*parts));
    if (!parts)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < session->count; i++)
        parts[i] = ls_driver_part_of(session->replicas[i]);
    char agreement[128];
    snprintf(agreement, sizeof(agreement), "%llu examples, batch %llu, %u parts",
             (unsigned long long)session->need.training_examples,
             (unsigned long long)session->need.global_batch, session->need.microbatches);
    const struct ls_driver_options options = {
        .strategy = driver_plugin(run->strategy.strategy),
        .collective = collective_plugin(run),
        .transport = driver_plugin(run->strategy.transport),
        .filter = driver_plugin(session->trains ? run->filter : NULL),
        .tuner = session->trains && measures(run) ? run->tuning.tuner : NULL,
        .wire = session->trains ? run->wire : 0,
        .shards = run->shards,
        .deadline_ns = run->deadline_ns,
        .cluster = session->cluster,
        .around = &run->topology.around,
        .number = ++session->run->drivers_opened,
        .exchange = &session->run->workers.exchange,
        .parts = parts,
        .threads = run->threads,
        .whole_steps = run->most_workers,
        .forward = !session->trains,
        .optimizer = optimizer_of(session),
        .seed = run->seed,
        .steps_before = session->model->steps_done,
        .channels = run->workers.served.servers ? &run->workers.channels : NULL,
        .agreement = agreement,
        .store_device = store_device,
        .total_plugins = total_plugins,
        .context = session,
    };
    session->run->doing = "starting the strategy";
    struct ls_driver *driver = NULL;
    enum ls_status status = ls_driver_open(&options, &driver);
    free(parts);
    session->driver = driver;
    if (status == LS_PEER_LOST) // the library of a collective may see that before the cluster does
        status = ls_workers_await_verdict(session->run, session->driver, status);
    if (!status && run->share_group_count &&
        (ls_driver_asynchronous(driver) || ls_driver_has_rounds(driver))) {
        ls_error("--share",
                 "strategy '%s' with these options divides gradients by the examples of each "
                 "replica, so unequal shares would give no mean over the batch; leave it out, or "
                 "use --strategy=mirrored",
                 run->strategy.strategy->plugin->name);
        return LS_USAGE;
    }
    session->watch = (struct ls_loss_watch){.lost = abort_session, .context = session};
    if (!status)
        ls_workers_watch(session->run, &session->watch);
    if (!status && ls_driver_survives(session->driver))
        ls_group_set_first_error_only(session->group, false);
    return status;
}

static enum ls_status open_group(struct ls_session *session)
{
    const struct ls_run *run = session->run;
    const enum ls_status status =
        ls_group_create(ls_cluster_first_rank(session->cluster), session->count, wake_all, session,
                        &session->group);
    if (status)
        return status;
    ls_group_set_first_error_only(session->group, works_on(session));
    if (run->stuck)
        ls_group_set_patience(session->group,
                              run->deadline_ns < LEAST_PATIENCE_NS  ? LEAST_PATIENCE_NS
                              : run->deadline_ns > MOST_PATIENCE_NS ? MOST_PATIENCE_NS
                                                                    : run->deadline_ns,
                              say_stuck);
    return LS_OK;
}

// Whether the replicas, of any worker, found that a device that nobody named lacks something; then
// LS_UNAVAILABLE. `status` is that of this worker's.
static enum ls_status agree_on_lack(struct ls_session *session, enum ls_status status)
{
    const uint32_t workers = ls_cluster_workers(session->cluster);
    char mine[LS_LACK_BYTES] = "", (*all)[LS_LACK_BYTES];
    for (uint32_t i = 0; session->lacks && !*mine && i < session->count; i++)
        memcpy(mine, session->lacks[i], sizeof(mine));
    if (!session->lacks || (status && !*mine))
        return status;
    all = calloc(workers, sizeof(*all));
    status = all ? ls_cluster_gather_workers(session->cluster, mine, sizeof(mine), all)
                 : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < workers; i++)
        if (all[i][0]) {
            memcpy(session->lack, all[i], sizeof(session->lack));
            status = LS_UNAVAILABLE;
        }
    free(all);
    return status;
}

// A strategy that cannot work on the device is a lack, too. All workers refuse it alike.
static enum ls_status open_strategy(struct ls_session *session)
{
    static const char prefix[] = "lockstep: error: ";
    char *error = NULL;
    if (!session->lacks)
        return open_driver(session);
    char **before = ls_log_keep(&error);
    const enum ls_status status = open_driver(session);
    ls_log_keep(before);
    if (status == LS_UNAVAILABLE && error)
        snprintf(session->lacks[0], LS_LACK_BYTES, "does not go with the strategy (%s)",
                 strncmp(error, prefix, strlen(prefix)) ? error : error + strlen(prefix));
    else
        ls_log_write_kept(&error);
    free(error);
    return agree_on_lack(session, status);
}

// Whether replicas may have parts of parameters where nothing is trained, too.
static bool may_spread_parameters(const struct ls_session *session)
{
    const struct ls_opened_plugin *strategy = session->run->strategy.strategy;
    const struct ls_strategy_interface *ops = strategy ? strategy->plugin->interface : NULL;
    return ops && ops->parameters_ahead;
}

// What follows from a failure that was said is not said again.
static enum ls_status close_driver(struct ls_session *session)
{
    char *error = NULL;
    if (ls_group_has_logged(session->group))
        ls_log_keep(&error);
    for (uint32_t i = 0; session->hung && session->replicas && i < session->count; i++)
        ls_replica_abandon(session->replicas[i]);
    const bool closed = ls_driver_close(session->driver);
    session->driver = NULL;
    ls_log_keep(NULL);
    free(error);
    if (!closed && session->run->stuck)
        session->run->stuck(LS_NO_REPLICA);
    return closed ? LS_OK : LS_PEER_LOST;
}

// What replicas hold. Where each has all parameters, an evaluation needs no strategy.
static enum ls_status ask_strategy(struct ls_session *session)
{
    struct ls_driver_held held = {0};
    enum ls_status status = ls_driver_find_held(session->driver, &held);
    memcpy(session->spread, held.spread, sizeof(session->spread));
    if (!status && held.placed && session->trains)
        status = refuse_elastic(session);
    if (status || session->trains || ls_session_spreads_parameters(session))
        return status;
    ls_workers_unwatch(session->run, &session->watch);
    return close_driver(session);
}

static enum ls_status make_programs_of_all(struct ls_session *session)
{
    return agree_on_lack(session, make_programs(session));
}

// In the order that session.h says. The strategy is opened when devices and layouts are known, and
// says what replicas hold before anything is allocated.
static enum ls_status open_session(struct ls_session *session)
{
    session->trains = session->need.training_examples;
    session->count = ls_cluster_count(session->cluster);
    if (ls_run_shares_memory(session->run))
        (void)!ls_segment_open(); // without it the transport copies
    session->replicas = calloc(session->count, sizeof(struct ls_replica *));
    if (session->run->by_default)
        session->lacks = calloc(session->count, sizeof(*session->lacks));
    if (!session->replicas || (session->run->by_default && !session->lacks))
        return LS_OUT_OF_MEMORY;
    enum ls_status status = open_group(session);
    if (!status)
        status = agree_on_lack(
            session, run_preparing(session, "opening the replicas", open_replica, session));
    if (!status)
        status = note_layouts(session, layout_batch(session, &session->need));
    if (!status && (session->trains || may_spread_parameters(session)))
        status = open_strategy(session);
    if (!status && session->driver)
        status = ask_strategy(session);
    if (!status)
        status = allocate_replicas(session);
    if (!status)
        status = make_programs_of_all(session);
    if (!status && session->driver)
        status = ls_driver_attach(session->driver, session->replicas);
    if (!status)
        status = ls_session_give_weights(session);
    if (!status && session->driver)
        status =
            ls_session_run(session, "making the parameters equal", initialize_parameters, session);
    if (!status && session->trains)
        warn_of_wire(session);
    ls_give_memory_back(); // first weights were copied one after the other
    return status;
}

// Whether the session may go on with another need.
static enum ls_status suits(struct ls_session *session, const struct ls_session_need *need,
                            bool *out)
{
    const struct ls_device_interface *device = session->run->device->interface;
    const bool bytes = device->memory_kind != LS_MEMORY_HOST; // what examples come as is fixed
    *out = false;
    if (session->broken || (need->training_examples && !session->trains) ||
        (bytes && memcmp(need->byte_divisors, session->need.byte_divisors,
                         sizeof(need->byte_divisors)) != 0))
        return LS_OK;
    return agree_on_lack(session, has_layouts(session, need, out));
}

static enum ls_status open_anew(struct ls_model *model, const struct ls_session_need *need)
{
    static _Atomic uint64_t sessions;
    struct ls_session *session = calloc(1, sizeof(*session));
    if (!session)
        return LS_OUT_OF_MEMORY;
    enum ls_status status =
        ls_weighting_init(&session->weighting, ls_cluster_count(model->run->workers.cluster));
    if (status) {
        free(session);
        return status;
    }
    session->number = atomic_fetch_add(&sessions, 1) + 1;
    session->model = model;
    session->run = model->run;
    session->cluster = model->run->workers.cluster;
    session->need = *need;
    model->session = session;
    session->run->session_count++;
    status = open_session(session);
    session->broken = session->broken || status;
    return status;
}

// Another batch needs replicas of other layouts: what they have goes by the host.
static enum ls_status replace(struct ls_model *model, const struct ls_session_need *need)
{
    struct ls_checkpoint_image kept = {0};
    enum ls_status status = ls_model_take(model, LS_TAKE_ALL);
    if (!status && model->session && !model->session->broken)
        status = ls_rank_values_keep(model->session, &kept);
    const enum ls_status closed = ls_session_close(model);
    const bool rounds = !model->assigned; // else variables were set
    status = status ? status : closed;
    if (!status)
        status = open_anew(model, need);
    if (!status && kept.count && !need->training_examples)
        ls_warn("train", "this evaluation needs replicas anew: what they owed to the sums of "
                         "gradients, and a round under way, is left out");
    else if (!status && kept.count)
        status = ls_rank_values_put_back(model->session, rounds, &kept);
    ls_checkpoint_finish(&kept);
    return status;
}

static enum ls_status make_ready(struct ls_model *model, const struct ls_session_need *need)
{
    struct ls_session_need requested = *need;
    const struct ls_shares division = ls_run_division(model->run, true);
    const enum ls_status enough = ls_run_check_shards(model->run); // replicas may have come or gone
    if (enough)
        return enough;
    requested.microbatches = need->microbatches ? need->microbatches : 1;
    if (division.shards)
        requested.microbatches = ls_most_shards(&division);
    if (!model->session)
        return open_anew(model, &requested);
    if (!need->training_examples) // those of the last fit stay as they are
        requested.microbatches = model->session->need.microbatches;
    bool fits = false;
    enum ls_status status = suits(model->session, &requested, &fits);
    if (status) {
        const enum ls_status closed = ls_session_close(model);
        return closed ? closed : status;
    }
    if (!fits)
        return replace(model, &requested);
    model->session->need = requested;
    status = make_programs_of_all(model->session);
    return status ? status : ls_session_give_assigned(model->session);
}

// The device was nobody's choice, and lacks something that the model needs.
static enum ls_status take_cpu(struct ls_model *model)
{
    struct ls_run *run = model->run;
    char lack[LS_LACK_BYTES];
    memcpy(lack, model->session->lack, sizeof(lack));
    if (run->session_count > 1) {
        ls_error(model->source,
                 "device %s %s, and another model of this run is on it; use "
                 "--device=cpu for both",
                 run->device->plugin->name, lack);
        return LS_UNAVAILABLE;
    }
    const enum ls_status status = ls_session_close(model);
    return status ? status : ls_run_take_cpu(run, lack);
}

enum ls_status ls_session_ready(struct ls_model *model, const struct ls_session_need *need)
{
    enum ls_status status = make_ready(model, need);
    if (status != LS_UNAVAILABLE || !model->session || !*model->session->lack)
        return status;
    status = take_cpu(model);
    return status ? status : make_ready(model, need);
}

// ---- Closing ----

// [replica thread]
static enum ls_status destroy_replica(void *context, uint32_t index)
{
    ls_replica_destroy(((struct ls_session *)context)->replicas[index]);
    return LS_OK;
}

enum ls_status ls_session_close(struct ls_model *model)
{
    struct ls_session *session = model->session;
    if (!session)
        return LS_OK;
    model->session = NULL;
    ls_workers_unwatch(session->run, &session->watch);
    ls_model_give_up(model);
    forget_data(session);
    const enum ls_status status = close_driver(session);
    if (status)
        return status;
    if (session->group && session->replicas)
        (void)!ls_group_run(session->group, destroy_replica, session);
    ls_group_destroy(session->group);
    session->run->session_count--;
    ls_weighting_finish(&session->weighting);
    free(session->lacks);
    free(session->same_layouts);
    free(session->replicas);
    free(session);
    return LS_OK;
}

// ---- Taking ----

enum ls_status ls_model_take(struct ls_model *model, enum ls_take what)
{
    if (!model->ahead && (what == LS_TAKE_WEIGHTS || !model->states_ahead))
        return LS_OK;
    const uint64_t steps = model->steps_done;
    const enum ls_status status = ls_session_take(model->session, what);
    const enum ls_status closed = status ? ls_session_close(model) : LS_OK;
    ls_model_say_back(model, steps);
    return closed ? closed : status;
}

// ---- Failures and lost replicas ----

uint64_t ls_session_explain(struct ls_session *session)
{
    // What ends the communicators must not reach a worker that has not seen the loss yet.
    if (session->driver && ls_driver_not_finite(session->driver))
        (void)!ls_cluster_barrier(session->cluster);
    const uint64_t failed = session->driver ? ls_driver_explain(session->driver) : 0;
    if (session->differ || session->hung)
        session->model->refused = session->differ ? LS_REFUSED_DIFFER : LS_REFUSED_HUNG;
    return session->hung ? 0 : failed;
}

void ls_session_say_lost(const struct ls_session *session, uint32_t index, const char *doing)
{
    char whose[48] = "";
    uint32_t left = 0;
    for (uint32_t i = 0; i < session->count; i++)
        if (!ls_session_is_lost(session, i) && left++ == 0)
            snprintf(whose, sizeof(whose), "replica %u trains", ls_session_rank(session, i));
    if (left > 1)
        snprintf(whose, sizeof(whose), "the other %u replicas train", left);
    ls_warn("train", "replica %u failed at %s (the reason was logged above); %s its examples",
            ls_session_rank(session, index), doing, whose);
}
