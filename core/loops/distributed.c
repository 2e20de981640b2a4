// SPDX-License-Identifier: Apache-2.0
// Shares batches out among the replicas and runs step functions on them.
#include "core/loops/distributed.h"

#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/base/trace.h"
#include "core/train/agreement.h"
#include "core/model/learned_classes.h"
#include "core/train/fit.h"
#include "core/run/workers.h"
#include "core/train/model_calls.h"
#include "core/train/session_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Opening ----

static enum ls_status check(struct ls_model *model, const struct ls_data *data, bool evaluates,
                            bool one_batch)
{
    enum ls_status status = ls_model_check_usable(model, "ls_distribute_dataset");
    if (!status)
        status = evaluates ? ls_model_check_data(model, data)
                           : ls_model_check_training_data(model, data, one_batch);
    return status || !ls_model_data_has_weights(data) ? status : ls_model_need_weighted(model);
}

// What was counted is of the metrics of one graph: it begins anew after ls_compile.
static enum ls_status need_counts(struct ls_distributed *dataset)
{
    const struct ls_model *model = dataset->model;
    const uint32_t slots = model->graph->count_slots;
    if (dataset->counts && dataset->graph_number == model->graph_number)
        return LS_OK;
    free(dataset->step_counts);
    free(dataset->counts);
    dataset->step_counts = calloc(slots + 1, sizeof(*dataset->step_counts));
    dataset->counts = calloc(slots + 1, sizeof(*dataset->counts));
    dataset->slots = slots;
    if (!dataset->step_counts || !dataset->counts)
        return LS_OUT_OF_MEMORY;
    dataset->graph_number = model->graph_number;
    memset(dataset->step_statistics, 0, sizeof(dataset->step_statistics));
    memset(dataset->statistics, 0, sizeof(dataset->statistics));
    return LS_OK;
}

static void close_stream(struct ls_distributed *dataset)
{
    ls_stream_close(dataset->stream);
    dataset->stream = NULL;
}

// Replicas that do not wait for each other have no step together that a function could be.
static enum ls_status check_strategy(const struct ls_session *session)
{
    if (!session->driver || !ls_driver_asynchronous(session->driver))
        return LS_OK;
    ls_error("ls_distribute_dataset",
             "under strategy %s each replica makes its own steps and waits for no other, so there "
             "is no step of all of them to run a function in; use ls_fit, or a strategy whose "
             "replicas step together, as mirrored or parameter-server:mode=sync",
             session->run->strategy.strategy->plugin->name);
    return LS_USAGE;
}

// A step function runs once on each replica, and sees one batch.
static enum ls_status check_shards(const struct ls_distributed *dataset)
{
    const struct ls_run *run = dataset->model->run;
    const uint32_t world = ls_cluster_world(run->workers.cluster);
    if (!run->shards || dataset->own_order)
        return LS_OK;
    if (dataset->evaluates)
        ls_error("--reproducible",
                 "what the step functions of an evaluation find has other bits for other replicas; "
                 "use ls_evaluate");
    else if (world != run->shards)
        ls_error("--reproducible",
                 "a step function of a loop of one's own runs once on each replica, which takes "
                 "one replica for each logical shard, and there %s %u for %u; use "
                 "--reproducible=%u, or ls_fit or ls_train_on_batch",
                 world == 1 ? "is" : "are", world, run->shards, world);
    return dataset->evaluates || world != run->shards ? LS_USAGE : LS_OK;
}

// A session that goes with the need, and a stream at the place where the last run ended. Both are
// kept from one run to the next.
static enum ls_status make_ready(struct ls_distributed *dataset)
{
    struct ls_model *model = dataset->model;
    const struct ls_dataset *examples = NULL;
    dataset->need.position = dataset->evaluates ? 0 : dataset->order.position;
    // Since the last run the model may have another loss, and what it compares labels with.
    enum ls_status status = dataset->evaluates ? LS_OK : ls_model_check_rate(model);
    if (!status)
        status = check_shards(dataset);
    if (!status && (!model->session || model->session->number != dataset->session))
        status = check(model, dataset->data, dataset->evaluates, dataset->own_order);
    if (!status)
        status = need_counts(dataset);
    if (!status)
        status = ls_session_ready(model, &dataset->need);
    struct ls_session *session = model->session;
    if (!status)
        status = check_strategy(session);
    if (status || (dataset->stream && dataset->session == session->number))
        return status;
    const struct ls_stream_options order = {.shuffle = dataset->shuffle,
                                            .shuffle_buffer = dataset->shuffle_buffer,
                                            .epochs_before = dataset->order.epochs,
                                            .first_example = dataset->order.position,
                                            .augment = !dataset->evaluates,
                                            // One batch is all that is wanted of such a stream.
                                            .prefetch_bytes = dataset->own_order ? 1 : 0};
    close_stream(dataset);
    dataset->session = session->number;
    if (!dataset->evaluates)
        status = ls_model_learn_classes(model, dataset->data);
    if (!status)
        status = ls_model_wait_data(model, dataset->data, true, &examples);
    return status ? status
                  : ls_session_open_stream(session, examples, &order, session->need.microbatches, 0,
                                           session->count, &dataset->stream);
}

enum ls_status ls_open_distributed(struct ls_model *model, struct ls_data *data,
                                   const struct ls_distribute_options *options, bool own_order,
                                   struct ls_distributed **out)
{
    const bool evaluates = options->evaluation;
    enum ls_status status = check(model, data, evaluates, own_order);
    if (status)
        return status;
    struct ls_distributed *dataset = calloc(1, sizeof(*dataset));
    if (!dataset)
        return LS_OUT_OF_MEMORY;
    const uint64_t examples = ls_data_count(data);
    dataset->model = model;
    dataset->data = data;
    ls_data_hold(data);
    dataset->evaluates = evaluates;
    dataset->need = (struct ls_session_need){
        .global_batch = ls_run_global_batch(model->run, options->batch, options->replica_batch),
        .training_examples = evaluates ? 0 : examples,
        .evaluation_examples = evaluates ? examples : 0,
        .microbatches = 1};
    ls_data_byte_divisors(data, NULL, dataset->need.byte_divisors);
    status = ls_shuffle_parse(options->shuffle || !evaluates ? options->shuffle : "off",
                              &dataset->shuffle, &dataset->shuffle_buffer);
    dataset->own_order = own_order;
    if (!status && !evaluates && !own_order)
        dataset->order =
            ls_model_continue_order(model, data, dataset->shuffle, dataset->shuffle_buffer);
    if (!status)
        status = ls_agree_on_loop(model, data, dataset->need.global_batch,
                                  own_order          ? NULL
                                  : options->shuffle ? options->shuffle
                                  : evaluates        ? "off"
                                                     : "on");
    dataset->count = ls_cluster_count(model->run->workers.cluster);
    dataset->contexts = calloc(dataset->count, sizeof(*dataset->contexts));
    if (!status)
        status = dataset->contexts ? make_ready(dataset) : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_workers_agree_on_examples(model->run, data, "--dataset");
    if (status) {
        ls_distributed_close(dataset);
        return status;
    }
    *out = dataset;
    return LS_OK;
}

void ls_distributed_close(struct ls_distributed *dataset)
{
    if (!dataset)
        return;
    close_stream(dataset);
    for (uint32_t i = 0; dataset->contexts && i < dataset->count; i++)
        free(dataset->contexts[i].outputs);
    free(dataset->contexts);
    free(dataset->step_counts);
    free(dataset->counts);
    ls_data_close(dataset->data);
    free(dataset);
}

uint64_t ls_distributed_steps(const struct ls_distributed *dataset)
{
    return ls_stream_steps(ls_data_count(dataset->data), dataset->need.global_batch);
}

uint32_t ls_distributed_next(struct ls_distributed *dataset)
{
    const bool ended = dataset->ended;
    dataset->ended = false;
    return !ended;
}

static void advance(struct ls_distributed *dataset)
{
    struct ls_model_order *order = &dataset->order;
    order->position += dataset->need.global_batch;
    dataset->ended = order->position >= ls_data_count(dataset->data);
    if (dataset->ended) {
        order->epochs++;
        order->position = 0;
    }
}

// ---- A run ----

struct function_run {
    struct ls_distributed *dataset;
    enum ls_status (*function)(struct ls_replica_context *replica, void *context);
    void *context;
};

static const char *part_text(enum ls_context_part part)
{
    return part == LS_PART_FORWARD ? "ls_context_forward" : "ls_context_gradients";
}

// What is wrong with the step of a replica whose function has returned `status`.
static enum ls_status check_end(struct ls_replica_context *replica, enum ls_status status)
{
    const struct ls_session *session = replica->dataset->model->session;
    const uint32_t rank = ls_session_rank(session, replica->index);
    if (replica->failed)
        return replica->failed;
    if (status) {
        ls_error("ls_strategy_run", "the step function answered '%s' (status %d) on replica %u",
                 ls_status_text(status), (int)status, rank);
        return status == LS_INTERRUPTED ? LS_FAILED : ls_status_of_program(status);
    }
    if (replica->part == LS_PART_FORWARD || replica->part == LS_PART_GRADIENTS) {
        ls_error("ls_strategy_run",
                 "the step function returned on replica %u after %s, without %s: a step that was "
                 "begun cannot be thrown away",
                 rank, part_text(replica->part),
                 replica->part == LS_PART_FORWARD ? "ls_context_gradients and ls_context_apply"
                                                  : "ls_context_apply");
        return LS_USAGE;
    }
    return LS_OK;
}

// A replica that made no step has returned. The others would wait for it.
static enum ls_status leave(struct ls_replica_context *replica, enum ls_status status)
{
    struct ls_distributed *dataset = replica->dataset;
    if (replica->part == LS_PART_APPLIED || (replica->forwarded && dataset->evaluates && !status) ||
        (replica->part != LS_PART_NONE && status))
        return status;
    int32_t none = LS_OK;
    atomic_compare_exchange_strong(&dataset->status, &none, (int32_t)status);
    const uint64_t left = (uint64_t)replica->index + 1;
    uint64_t seen = atomic_load(&dataset->begun_and_left);
    while (
        !atomic_compare_exchange_weak(&dataset->begun_and_left, &seen, left << 32 | (uint32_t)seen))
        continue;
    if (!(uint32_t)seen) // nothing was begun:
        return status ? LS_INTERRUPTED : LS_OK; // which ends the run, and breaks nothing
    if (!status)
        ls_error("ls_strategy_run",
                 "the step function returned on replica %u without a step, which another replica "
                 "has begun: all replicas make it, or none",
                 ls_session_rank(dataset->model->session, replica->index));
    return status ? status : LS_USAGE;
}

// [replica thread]
static enum ls_status run_replica(void *context, uint32_t index)
{
    const struct function_run *run = context;
    struct ls_distributed *dataset = run->dataset;
    struct ls_session *session = dataset->model->session;
    struct ls_replica_context *replica = &dataset->contexts[index];
    enum ls_status status = LS_OK;
    if (dataset->evaluates && session->driver)
        status = ls_driver_synchronise(session->driver, index);
    if (!status)
        status = ls_session_next(session, index, &replica->batch, NULL);
    if (status)
        return status;
    ls_trace_begin_step(replica->step);
    ls_trace_examples(replica->batch.count);
    replica->active = true;
    const locale_t own = ls_locale_enter_program();
    status = run->function(replica, run->context);
    ls_locale_return(own);
    replica->active = false;
    ls_trace_end_step();
    return leave(replica, check_end(replica, status));
}

static void reset_contexts(struct ls_distributed *dataset)
{
    struct ls_session *session = dataset->model->session;
    for (uint32_t i = 0; i < session->count; i++) {
        struct ls_replica_context *replica = &dataset->contexts[i];
        *replica = (struct ls_replica_context){.dataset = dataset,
                                               .index = i,
                                               .step = dataset->model->steps_done + 1,
                                               .outputs = replica->outputs,
                                               .output_room = replica->output_room};
    }
    ls_session_clear_counts(session);
    atomic_store(&dataset->begun_and_left, 0);
    atomic_store(&dataset->status, LS_OK);
}

// Of a step the sums are those of all replicas, which the strategy has added up; else each replica
// has its own, and so has each what metrics have counted, but with logical shards.
static enum ls_status note_metrics(struct ls_distributed *dataset)
{
    struct ls_session *session = dataset->model->session;
    const uint32_t slots = dataset->slots;
    const struct ls_metric_set *metrics = &session->model->metrics;
    const bool masked = dataset->evaluates && ls_graph_loss_is_masked(session->model->graph);
    struct ls_masked_sums sums = {0};
    memset(dataset->step_statistics, 0, sizeof(dataset->step_statistics));
    memset(dataset->step_counts, 0, slots * sizeof(*dataset->step_counts));
    for (uint32_t i = 0; i < session->count; i++) {
        const struct ls_replica_context *replica = &dataset->contexts[i];
        if (!replica->updates_metrics || (session->run->shards && i > 0))
            continue;
        ls_replica_add_counts(session->replicas[i], dataset->step_counts);
        if (masked)
            ls_masked_sums_add(&sums, metrics, replica->sums, dataset->step_counts);
        for (uint32_t k = 0; k < LS_STATISTICS && (dataset->evaluates ? !masked : i == 0); k++)
            dataset->step_statistics[k] +=
                dataset->evaluates ? replica->sums[k] : (double)replica->result.sums[k];
    }
    enum ls_status status = LS_OK;
    if (dataset->evaluates)
        status = ls_workers_add(session->run, dataset->step_statistics, LS_STATISTICS);
    if (!status && masked)
        status = ls_workers_add(session->run, sums.total, sizeof(sums) / sizeof(double));
    if (!status && !session->run->shards)
        status = ls_workers_add(session->run, dataset->step_counts, slots);
    if (!status && masked)
        ls_masked_sums_end(&sums, metrics, dataset->step_statistics, dataset->step_counts);
    for (uint32_t k = 0; k < LS_STATISTICS && isfinite(dataset->step_statistics[0]); k++)
        dataset->statistics[k] += dataset->step_statistics[k];
    for (uint32_t i = 0; i < slots; i++)
        dataset->counts[i] += dataset->step_counts[i];
    return status;
}

static void note_step(struct ls_distributed *dataset)
{
    struct ls_model *model = dataset->model;
    if (dataset->contexts[0].part != LS_PART_APPLIED)
        return;
    model->steps_done++;
    model->session->unsynchronized = true;
    if (ls_optimizer_scales(&model->optimizer))
        model->scale = *ls_replica_scale(model->session->replicas[0]);
}

// After a loss that is not finite replicas and stores have what the steps before made of them;
// after anything else nobody knows, and the model is what the host has.
static void conclude_broken(struct ls_model *model)
{
    struct ls_session *session = model->session;
    const uint64_t steps = model->steps_done;
    if (ls_session_explain(session)) {
        if (ls_optimizer_scales(&model->optimizer))
            model->scale = *ls_replica_scale_before(session->replicas[0]);
        (void)!ls_session_take(session, LS_TAKE_ALL); // or it goes back to what the host has
    }
    (void)!ls_session_close(model);
    ls_model_say_back(model, steps);
}

// Whether all comes to the host before the step that follows: so that weights and states there
// belong together, and at the beginning of an epoch, to which the model goes back should a step
// fail. Not so often that steps would wait for it; and of parameters in parts nobody makes a copy
// unasked.
static bool is_due(const struct ls_distributed *dataset)
{
    const struct ls_model *model = dataset->model;
    const uint64_t steps = model->steps_done - model->on_host.steps_done;
    if (dataset->evaluates || !model->ahead)
        return !dataset->evaluates;
    if (ls_session_ahead_in_parts(model->session, LS_TAKE_WEIGHTS))
        return false;
    return dataset->order.position == 0 && steps >= (dataset->own_order ? 256 : 32);
}

static enum ls_status run_replicas(struct ls_distributed *dataset, struct function_run *run)
{
    struct ls_model *model = dataset->model;
    struct ls_session *session = model->session;
    reset_contexts(dataset);
    session->stream = dataset->stream;
    if (!dataset->evaluates)
        ls_driver_end_at_nan(session->driver, false); // as a callback of ls_fit may have said
    model->fitting = LS_FIT_STEPS;
    model->stepping = true;
    if (!dataset->evaluates)
        model->ahead = model->states_ahead = true;
    enum ls_status status = ls_session_run(session, "running the step function", run_replica, run);
    model->stepping = false;
    model->fitting = LS_FIT_NONE;
    session->stream = session->input.all;
    const enum ls_status early = (enum ls_status)atomic_load(&dataset->status);
    return status == LS_INTERRUPTED && early ? early : status;
}

enum ls_status ls_run_step_function(struct ls_distributed *dataset,
                                    enum ls_status (*function)(struct ls_replica_context *replica,
                                                               void *context),
                                    void *context)
{
    struct ls_model *model = dataset->model;
    struct function_run run = {dataset, function, context};
    enum ls_status status = ls_model_check_usable(model, "ls_strategy_run");
    if (!status && !function) {
        ls_error("ls_strategy_run", "there is no step function");
        status = LS_USAGE;
    }
    if (!status && atomic_load(&model->run->interrupted))
        status = LS_INTERRUPTED;
    if (!status)
        status = make_ready(dataset);
    if (!status && is_due(dataset))
        status = ls_model_take(model, LS_TAKE_ALL);
    if (!status)
        status = ls_session_give_assigned(model->session);
    if (status)
        return ls_run_end_interruption(model->run, status);
    status = run_replicas(dataset, &run);
    if (status) {
        if (model->session->broken && dataset->evaluates)
            ls_session_rescue(model->session);
        if (model->session->broken && dataset->evaluates &&
            ls_session_ahead_in_parts(model->session, LS_TAKE_WEIGHTS))
            ls_warn("ls_strategy_run",
                    "replicas had the weights in parts, which are lost with a failed evaluation: "
                    "save the weights before it, and let each replica call ls_context_forward");
        // Explaining reads the examples once more; then the stream, whose readers were woken, is of
        // no use.
        if (model->session->broken)
            conclude_broken(model);
        close_stream(dataset);
        return status;
    }
    advance(dataset);
    note_step(dataset);
    if (!dataset->evaluates && !dataset->own_order)
        model->order = dataset->order;
    return note_metrics(dataset);
}

// ---- Metrics ----

void ls_strategy_metrics(const struct ls_distributed *dataset, struct ls_metrics *step,
                         struct ls_metrics *all)
{
    const struct ls_metric_set *set = &dataset->model->metrics;
    const double none[LS_STATISTICS] = {0};
    const bool counted = dataset->graph_number == dataset->model->graph_number;
    const double *of_step = counted ? dataset->step_statistics : none;
    const double *step_counts = counted ? dataset->step_counts : NULL;
    if (step && !dataset->evaluates) {
        ls_metrics_of_step(step, set, of_step, step_counts);
    } else if (step) {
        step->count = 0;
        ls_metrics_append(step, set, of_step, step_counts, false);
    }
    if (all) {
        all->count = 0;
        ls_metrics_append(all, set, counted ? dataset->statistics : none,
                          counted ? dataset->counts : NULL, false);
    }
}

void ls_strategy_reset_metrics(struct ls_distributed *dataset)
{
    memset(dataset->statistics, 0, sizeof(dataset->statistics));
    if (dataset->counts)
        memset(dataset->counts, 0, dataset->slots * sizeof(*dataset->counts));
}

// ---- Values of all replicas ----

static enum ls_status need_values(const char *call, const struct ls_run *run, const double *values,
                                  uint32_t count, const double *out)
{
    if (run && (!count || (values && out)))
        return LS_OK;
    ls_error(call, "expected %s, got NULL",
             !run      ? "a run"
             : !values ? "the values of the replicas"
                       : "room for the result");
    return LS_USAGE;
}

enum ls_status ls_strategy_gather(struct ls_run *run, const double *values, uint32_t count,
                                  double *out)
{
    LS_PLAIN_LOCALE;
    const enum ls_status given = need_values("ls_strategy_gather", run, values, count, out);
    if (given)
        return given;
    return ls_cluster_gather(run->workers.cluster, values, count * sizeof(*values), out);
}

enum ls_status ls_strategy_reduce(struct ls_run *run, const char *reduction, const double *values,
                                  uint32_t count, double *out)
{
    LS_PLAIN_LOCALE;
    const enum ls_status given = need_values("ls_strategy_reduce", run, values, count, out);
    if (given)
        return given;
    const uint32_t world = ls_cluster_world(run->workers.cluster);
    const bool mean = reduction && strcmp(reduction, "mean") == 0;
    if (!mean && (!reduction || strcmp(reduction, "sum") != 0)) {
        ls_error("ls_strategy_reduce", "'%s': expected sum or mean", reduction ? reduction : "");
        return LS_USAGE;
    }
    double *all = calloc((size_t)world * count + 1, sizeof(*all));
    enum ls_status status = all ? ls_strategy_gather(run, values, count, all) : LS_OUT_OF_MEMORY;
    for (uint32_t k = 0; !status && k < count; k++) {
        out[k] = all[k];
        for (uint32_t rank = 1; rank < world; rank++)
            out[k] += all[(size_t)rank * count + k];
        if (mean)
            out[k] /= world;
    }
    free(all);
    if (status)
        ls_error("ls_strategy_reduce", "%s", ls_status_text(status));
    return status;
}

// ---- Broadcast ----

struct broadcast {
    struct ls_session *session;
    uint32_t worker; // that has the root
    uint32_t root; // index in this worker; UINT32_MAX: another has it
    // Of the root, by place: parameters, then the states of the optimizer. NULL: replicas do not
    // hold them.
    float *buffers[1 + LS_OPTIMIZER_STATES];
};

static uint64_t buffer_bytes(const struct ls_replica *replica, uint32_t number)
{
    const struct ls_parameter_plan *plan = ls_replica_plan(replica);
    return number ? plan->reduced_bytes : plan->flat_bytes;
}

static struct ls_memory buffer_memory(const struct ls_replica *replica, uint32_t number)
{
    return ls_replica_memory(replica, number ? LS_BUFFER_STATE + number - 1 : LS_BUFFER_PARAMETERS);
}

// All replicas hold the same, so that the first says what the root has.
static enum ls_status read_root(struct broadcast *broadcast)
{
    const struct ls_session *session = broadcast->session;
    const bool here = broadcast->root != UINT32_MAX;
    const struct ls_replica *root = session->replicas[here ? broadcast->root : 0];
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i <= session->model->optimizer.state_count; i++) {
        const struct ls_memory memory = buffer_memory(root, i);
        const uint64_t bytes = buffer_bytes(root, i);
        if (ls_memory_is_null(memory))
            continue;
        broadcast->buffers[i] = malloc(bytes + 1);
        if (!broadcast->buffers[i])
            return LS_OUT_OF_MEMORY;
        if (here)
            status = ls_device_copy(ls_replica_device(root), ls_host_memory(broadcast->buffers[i]),
                                    memory, bytes, NULL);
        if (!status)
            status = ls_cluster_broadcast(session->cluster, broadcast->buffers[i], bytes,
                                          broadcast->worker);
    }
    return status;
}

// Variables that live in stores are those that the root has; a round begins anew with the root's.
// [replica thread]
static enum ls_status write_others(void *context, uint32_t index)
{
    const struct broadcast *broadcast = context;
    const struct ls_session *session = broadcast->session;
    struct ls_replica *replica = session->replicas[index];
    const bool is_root = index == broadcast->root;
    enum ls_status status = LS_OK;
    if (is_root && session->driver && ls_driver_has_stores(session->driver))
        return ls_driver_fill_stores(session->driver, index, LS_BUFFER_PARAMETERS,
                                     LS_BUFFER_PARAMETERS);
    for (uint32_t i = 0; !is_root && !status && i <= session->model->optimizer.state_count; i++)
        if (broadcast->buffers[i])
            status = ls_device_copy(ls_replica_device(replica), buffer_memory(replica, i),
                                    ls_host_memory(broadcast->buffers[i]), buffer_bytes(replica, i),
                                    NULL);
    if (!status && session->driver)
        ls_driver_begin_round(session->driver, index);
    return status ? status : ls_replica_refresh(replica);
}

enum ls_status ls_broadcast_model(struct ls_model *model, uint32_t root)
{
    const uint32_t world = ls_cluster_world(model->run->workers.cluster);
    if (root >= world) {
        ls_error("ls_broadcast_variables", "there is no rank %u: the run has %u", root, world);
        return LS_USAGE;
    }
    // Replicas that are not there yet begin with the same values.
    if (!model->session)
        return LS_OK;
    const struct ls_cluster *cluster = model->run->workers.cluster;
    struct broadcast broadcast = {.session = model->session,
                                  .worker = ls_cluster_rank_workers(cluster)[root],
                                  .root = root - ls_cluster_first_rank(cluster)};
    if (broadcast.worker != ls_cluster_worker(cluster))
        broadcast.root = UINT32_MAX;
    enum ls_status status = ls_session_give_assigned(model->session);
    if (!status)
        status = ls_session_synchronise(model->session);
    if (!status)
        status = read_root(&broadcast);
    if (!status)
        status =
            ls_session_run(model->session, "broadcasting the variables", write_others, &broadcast);
    for (uint32_t i = 0; i <= LS_OPTIMIZER_STATES; i++)
        free(broadcast.buffers[i]);
    if (!status)
        model->ahead = model->states_ahead = true;
    if (model->session->broken) {
        const enum ls_status closed = ls_session_close(model);
        return status ? status : closed;
    }
    return status;
}

// ---- Whether replicas agree ----

enum ls_status ls_compare_replicas(struct ls_model *model)
{
    if (!model->session) // they begin with the same values
        return LS_OK;
    enum ls_status status = ls_session_give_assigned(model->session);
    uint64_t *hashes = calloc(ls_cluster_world(model->run->workers.cluster), sizeof(*hashes));
    if (!status)
        status = hashes ? ls_session_hashes(model->session, hashes) : LS_OUT_OF_MEMORY;
    free(hashes);
    if (model->session->broken)
        conclude_broken(model);
    return status;
}
