// SPDX-License-Identifier: Apache-2.0
// Evaluation and prediction by all replicas, with --reproducible by logical shards; those that are
// left compute the shares of those that fail.
#include "core/train/callbacks.h"
#include "core/train/session.h"
#include "core/run/workers.h"

#include "core/base/clock.h"
#include "core/base/exact_sum.h"
#include "core/base/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label input_span = {.category = "input", .name = "input"};
static const struct ls_trace_label batch_span = {
    .category = "validation", .name = "batch", .value = "batch"};
static const struct ls_trace_label validation_span = {.category = "validation",
                                                      .name = "validation"};

#define ENDS (UINT64_C(1) << 63)

// Batches after which workers that wait in each for each other's parameters ask whether somebody
// was interrupted.
#define BATCHES_BETWEEN 16

struct evaluation {
    struct ls_session *session;
    uint64_t first, steps; // batches of the dataset
    uint64_t from, to; // of `steps`, those under way
    double (*sums)[LS_STATISTICS]; // by index; NULL: of a prediction
    // With a mask (ls_graph_loss_is_masked) those by {index, batch}, and what metrics count, by
    // {index, slot}; NULL: without.
    struct ls_masked_sums *masked;
    double *counts;
    // With logical shards: (index, statistics and what metrics count). NULL: `sums` has them.
    struct ls_exact_sum *exact;
    uint32_t exact_count; // of an index
    float *outputs; // of the examples from batch `first` on; NULL: of an evaluation
    uint64_t output_elements; // of an example
    uint32_t *readers; // who computes the shares of each replica
    atomic_bool again; // a replica was lost
    const struct ls_batch_clients *batches; // NULL: nobody hears of them
    uint32_t teller; // the replica that tells
    _Atomic uint64_t begun; // batches that a replica has begun; with ENDS no other is begun
    _Atomic int32_t answer; // of the first client that did not answer LS_OK
};

// The shares of lost replicas go round among the others.
static void choose_readers(const struct ls_session *session, uint32_t *readers)
{
    uint32_t next = ls_session_first(session);
    for (uint32_t i = 0; i < session->count; i++) {
        readers[i] = i;
        if (!ls_session_is_lost(session, i))
            continue;
        readers[i] = next;
        do
            next = (next + 1) % session->count;
        while (ls_session_is_lost(session, next));
    }
}

static enum ls_status predict_share(const struct evaluation *evaluation, uint32_t index,
                                    uint64_t step, struct ls_replica_batch *batch)
{
    const struct ls_session *session = evaluation->session;
    const uint64_t example = step * session->need.global_batch + batch->example_offset;
    memset(batch->labels, 0, sizeof(batch->labels)); // whatever they are
    float *out = evaluation->outputs + example * evaluation->output_elements;
    return session->driver ? ls_driver_predict(session->driver, index, batch, out)
                           : ls_replica_predict(session->replicas[index], batch, out);
}

// What the shard adds to the sums of the replica is float32, and is added without rounding.
static enum ls_status evaluate_shard(const struct evaluation *evaluation, uint32_t index,
                                     const struct ls_replica_batch *shard)
{
    struct ls_replica *replica = evaluation->session->replicas[index];
    struct ls_exact_sum *exact = evaluation->exact + (size_t)index * evaluation->exact_count;
    double *found = calloc(evaluation->exact_count, sizeof(*found));
    if (!found)
        return LS_OUT_OF_MEMORY;
    ls_replica_clear_counts(replica);
    enum ls_status status = ls_replica_evaluate(replica, shard, found);
    if (!status)
        status = ls_replica_evaluate_end(replica, found);
    ls_replica_add_counts(replica, found + LS_STATISTICS);
    for (uint32_t i = 0; !status && i < evaluation->exact_count; i++)
        ls_exact_sum_add(&exact[i], (float)found[i]);
    free(found);
    return status;
}

static enum ls_status compute_share(const struct evaluation *evaluation, uint32_t index,
                                    uint64_t step, struct ls_replica_batch *batch)
{
    const struct ls_session *session = evaluation->session;
    struct ls_replica *replica = session->replicas[index];
    const uint32_t blocks = session->run->shards ? session->need.microbatches : 0;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < blocks; i++) {
        struct ls_replica_batch shard = ls_replica_block(replica, batch, i);
        if (shard.count)
            status = evaluation->outputs ? predict_share(evaluation, index, step, &shard)
                                         : evaluate_shard(evaluation, index, &shard);
    }
    if (blocks)
        return status;
    if (evaluation->outputs)
        return predict_share(evaluation, index, step, batch);
    double share[LS_STATISTICS] = {0};
    double *sums = evaluation->masked ? share : evaluation->sums[index];
    if (evaluation->masked)
        ls_replica_clear_counts(replica);
    status = session->driver ? ls_driver_evaluate(session->driver, index, batch, sums)
                             : ls_replica_evaluate(replica, batch, sums);
    if (status || !evaluation->masked)
        return status;
    status = ls_replica_evaluate_end(replica, share); // none is added to those of another share
    double *counts = evaluation->counts + (size_t)index * session->model->graph->count_slots;
    ls_replica_add_counts(replica, counts);
    ls_masked_sums_add(&evaluation->masked[index * evaluation->steps + step],
                       &session->model->metrics, share, counts);
    return status;
}

// All shares of a batch that are this replica's.
static enum ls_status evaluate_batch(const struct evaluation *evaluation, uint32_t index,
                                     uint64_t step)
{
    struct ls_session *session = evaluation->session;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < session->count; i++) {
        struct ls_replica_batch batch;
        if (evaluation->readers[i] != index)
            continue;
        ls_trace_begin(&input_span, 0);
        status = ls_session_next(session, i, &batch, NULL);
        ls_trace_end();
        if (!status)
            status = compute_share(evaluation, index, step, &batch);
    }
    return status;
}

static void tell(struct evaluation *evaluation, uint32_t index, uint64_t step, bool begins)
{
    const struct ls_batch_clients *batches = evaluation->batches;
    int32_t none = LS_OK;
    if (!batches || index != evaluation->teller)
        return;
    const enum ls_moment moment =
        evaluation->outputs ? (begins ? LS_ON_PREDICT_BATCH_BEGIN : LS_ON_PREDICT_BATCH_END)
                            : (begins ? LS_ON_TEST_BATCH_BEGIN : LS_ON_TEST_BATCH_END);
    batches->state->batch = evaluation->first + step + 1;
    const enum ls_status status = ls_clients_call(batches->clients, moment, batches->state);
    if (status)
        atomic_compare_exchange_strong(&evaluation->answer, &none, (int32_t)status);
}

// All replicas end behind the same batch: others may wait in each for the parameters of this one.
static bool may_begin(struct evaluation *evaluation, uint64_t step)
{
    uint64_t begun = atomic_load(&evaluation->begun);
    while (step >= (begun & ~ENDS)) {
        if (begun & ENDS)
            return false;
        if (atomic_compare_exchange_weak(&evaluation->begun, &begun, step + 1))
            break;
    }
    return true;
}

// Other workers wait in each batch for the parameters that this one holds.
static bool is_awaited(const struct ls_session *session)
{
    return ls_cluster_workers(session->cluster) > 1 && session->spread[LS_HELD_PARAMETERS];
}

// [replica thread]
static enum ls_status evaluate_shares(void *context, uint32_t index)
{
    struct evaluation *evaluation = context;
    struct ls_session *session = evaluation->session;
    const bool alone = ls_cluster_workers(session->cluster) == 1;
    const bool awaited = is_awaited(session);
    enum ls_status status = LS_OK;
    if (ls_session_is_lost(session, index))
        return LS_OK;
    if (session->driver)
        status = ls_driver_synchronise(session->driver, index);
    if (status)
        return status;
    ls_trace_begin(&validation_span, 0);
    for (uint64_t step = evaluation->from;
         !status && step < evaluation->to && may_begin(evaluation, step); step++) {
        ls_trace_begin(&batch_span, step + 1);
        tell(evaluation, index, step, true);
        status = evaluate_batch(evaluation, index, step);
        ls_trace_end();
        if (!status)
            tell(evaluation, index, step, false);
        // Workers cannot know in which batch another one was interrupted.
        if (!status && !awaited &&
            ((alone && session->run->interrupted) || atomic_load(&evaluation->answer)))
            atomic_fetch_or(&evaluation->begun, ENDS);
    }
    if (!status && (atomic_load(&evaluation->begun) & ENDS))
        status = LS_INTERRUPTED;
    if (evaluation->sums) {
        const enum ls_status settled =
            ls_replica_evaluate_end(session->replicas[index],
                                    status || evaluation->masked ? NULL : evaluation->sums[index]);
        status = status ? status : settled;
    }
    ls_trace_end();
    if (!status || !session->driver || !ls_driver_survive(session->driver, index, status))
        return status;
    ls_session_say_lost(session, index, evaluation->outputs ? "a prediction" : "an evaluation");
    atomic_store(&evaluation->again, true);
    return LS_ABORTED; // ends this evaluation for all
}

void ls_session_add_counts(const struct ls_session *session, double *sums)
{
    for (uint32_t i = 0; i < session->count; i++)
        ls_replica_add_counts(session->replicas[i], sums);
}

void ls_session_clear_counts(struct ls_session *session)
{
    for (uint32_t i = 0; i < session->count; i++)
        ls_replica_clear_counts(session->replicas[i]);
}

// What interrupts one worker interrupts all.
static enum ls_status compare_interruptions(const struct ls_session *session)
{
    struct ls_run *run = session->run;
    struct ls_worker_word word = {.interrupted = run->interrupted, .signal = run->interrupted_by};
    const enum ls_status status = ls_workers_combine(run, &word);
    if (status || !word.interrupted)
        return status;
    atomic_store(&run->interrupted_by, word.signal);
    ls_run_interrupt(run);
    return LS_INTERRUPTED;
}

static enum ls_status evaluate_batches(struct evaluation *evaluation)
{
    struct ls_session *session = evaluation->session;
    const uint64_t most = is_awaited(session) ? BATCHES_BETWEEN : evaluation->steps;
    enum ls_status status = LS_OK;
    evaluation->to = 0;
    do {
        const uint64_t left = evaluation->steps - evaluation->to;
        evaluation->from = evaluation->to;
        evaluation->to += left < most ? left : most;
        status = ls_session_run(session, evaluation->outputs ? "predicting" : "evaluating",
                                evaluate_shares, evaluation);
        if (!status && evaluation->to < evaluation->steps)
            status = compare_interruptions(session);
    } while (!status && evaluation->to < evaluation->steps);
    return status;
}

// Of an index.
static uint64_t masked_bytes(const struct evaluation *evaluation)
{
    return evaluation->steps * sizeof(*evaluation->masked);
}

static enum ls_status evaluate_once(struct evaluation *evaluation, const struct ls_dataset *dataset)
{
    struct ls_session *session = evaluation->session;
    struct ls_stream *stream = NULL;
    const struct ls_stream_options order = {
        .shuffle = LS_SHUFFLE_OFF, .first_example = evaluation->first * session->need.global_batch};
    enum ls_status status = ls_session_open_stream(
        session, dataset, &order, session->run->shards ? session->need.microbatches : 1, 0,
        session->count, &stream);
    if (evaluation->sums)
        memset(evaluation->sums, 0, session->count * sizeof(*evaluation->sums));
    if (evaluation->masked) {
        memset(evaluation->masked, 0, session->count * masked_bytes(evaluation));
        memset(evaluation->counts, 0,
               (size_t)session->count * session->model->graph->count_slots *
                   sizeof(*evaluation->counts));
    }
    if (evaluation->exact)
        memset(evaluation->exact, 0,
               (size_t)session->count * evaluation->exact_count * sizeof(*evaluation->exact));
    if (evaluation->sums)
        ls_session_clear_counts(session);
    choose_readers(session, evaluation->readers);
    evaluation->teller = ls_session_first(session);
    atomic_store(&evaluation->again, false);
    atomic_store(&evaluation->begun, 0);
    if (!status) {
        session->stream = stream;
        session->model->stepping = evaluation->batches; // replicas are in their batches
        status = evaluate_batches(evaluation);
        session->model->stepping = false;
        session->stream = session->input.all;
    }
    ls_stream_close(stream);
    return status;
}

static enum ls_status evaluate_all(struct evaluation *evaluation, const struct ls_dataset *dataset)
{
    enum ls_status status;
    do
        status = evaluate_once(evaluation, dataset);
    while (status == LS_ABORTED && atomic_load(&evaluation->again));
    const enum ls_status answer = (enum ls_status)atomic_load(&evaluation->answer);
    return answer && (!status || status == LS_INTERRUPTED) ? answer : status;
}

enum ls_status ls_session_predict(struct ls_session *session, const struct ls_dataset *dataset,
                                  uint64_t first, uint64_t count,
                                  const struct ls_batch_clients *batches, float *out)
{
    struct evaluation evaluation = {.session = session,
                                    .first = first / session->need.global_batch,
                                    .steps = ls_stream_steps(count, session->need.global_batch),
                                    .outputs = out,
                                    .batches = batches,
                                    .output_elements = ls_model_output_elements(session->model),
                                    .readers = calloc(session->count, sizeof(*evaluation.readers))};
    if (!evaluation.readers)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = evaluate_all(&evaluation, dataset);
    if (!status)
        status = ls_workers_share(
            session->run,
            &(struct ls_worker_shares){.values = out,
                                       .elements = evaluation.output_elements,
                                       .count = count,
                                       .batch = session->need.global_batch,
                                       .division = ls_run_division(session->run, false)});
    free(evaluation.readers);
    return status;
}

// The sums of batches of which a loss is a mean over what a mask leaves of each.
static enum ls_status add_batches(const struct evaluation *evaluation, double *statistics,
                                  double *counts)
{
    const struct ls_session *session = evaluation->session;
    const uint32_t world = ls_cluster_world(session->cluster);
    const uint64_t bytes = masked_bytes(evaluation);
    struct ls_masked_sums *all = malloc(world * bytes + 1); // by {rank, batch}
    const enum ls_status status =
        all ? ls_cluster_gather(session->cluster, evaluation->masked, bytes, all)
            : LS_OUT_OF_MEMORY;
    for (uint64_t step = 0; !status && step < evaluation->steps; step++) {
        struct ls_masked_sums batch = {0};
        for (uint32_t i = 0; i < world; i++)
            ls_masked_sums_merge(&batch, &all[i * evaluation->steps + step]);
        ls_masked_sums_end(&batch, &session->model->metrics, statistics, counts);
    }
    free(all);
    return status;
}

// The sums of all replicas of all workers. `counts`: what metrics count.
static enum ls_status add_all(const struct evaluation *evaluation, double *statistics,
                              double *counts)
{
    struct ls_session *session = evaluation->session;
    const uint32_t world = ls_cluster_world(session->cluster);
    const uint32_t slots = session->model->graph->count_slots;
    const uint64_t bytes = sizeof(*evaluation->sums);
    double(*all)[LS_STATISTICS] = calloc(world, bytes); // by rank
    enum ls_status status =
        all ? ls_cluster_gather(session->cluster, evaluation->sums, bytes, all) : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < world; i++)
        for (uint32_t k = 0; k < LS_STATISTICS; k++)
            statistics[k] += all[i][k];
    free(all);
    if (!evaluation->masked)
        ls_session_add_counts(session, counts);
    for (uint32_t i = 0; evaluation->masked && i < session->count * slots; i++)
        counts[i % slots] += evaluation->counts[i];
    if (!status)
        status = ls_workers_add(session->run, counts, slots);
    return status || !evaluation->masked ? status : add_batches(evaluation, statistics, counts);
}

static enum ls_status add_all_exactly(const struct evaluation *evaluation, double *statistics,
                                      double *counts)
{
    const struct ls_session *session = evaluation->session;
    const uint32_t world = ls_cluster_world(session->cluster), count = evaluation->exact_count;
    struct ls_exact_sum *all = calloc((size_t)world * count, sizeof(*all)); // by rank
    const enum ls_status status =
        all ? ls_cluster_gather(session->cluster, evaluation->exact, count * sizeof(*all), all)
            : LS_OUT_OF_MEMORY;
    for (uint32_t k = 0; !status && k < count; k++) {
        for (uint32_t i = 1; i < world; i++)
            ls_exact_sum_merge(&all[k], &all[(size_t)i * count + k]);
        *(k < LS_STATISTICS ? &statistics[k] : &counts[k - LS_STATISTICS]) =
            ls_exact_sum_value(&all[k]);
    }
    free(all);
    return status;
}

enum ls_status ls_session_evaluate(struct ls_session *session, const struct ls_dataset *dataset,
                                   bool validation, const struct ls_batch_clients *batches,
                                   struct ls_scores *out)
{
    const uint64_t start = ls_clock_ns();
    const uint32_t slots = session->model->graph->count_slots;
    const bool exact = session->run->shards;
    double statistics[LS_STATISTICS] = {0}, *counts = calloc(slots + 1, sizeof(*counts));
    struct evaluation evaluation = {.session = session,
                                    .exact_count = LS_STATISTICS + slots,
                                    .steps =
                                        ls_stream_steps(dataset->count, session->need.global_batch),
                                    .batches = batches,
                                    .readers = calloc(session->count, sizeof(*evaluation.readers))};
    const bool masked = ls_graph_loss_is_masked(session->model->graph);
    evaluation.sums = calloc(session->count, sizeof(*evaluation.sums));
    if (masked) {
        evaluation.masked = calloc(session->count, masked_bytes(&evaluation) + 1);
        evaluation.counts = calloc(session->count * slots + 1, sizeof(*evaluation.counts));
    }
    if (exact)
        evaluation.exact =
            calloc((size_t)session->count * evaluation.exact_count, sizeof(*evaluation.exact));
    enum ls_status status = counts && evaluation.sums && evaluation.readers &&
                                    !exact == !evaluation.exact &&
                                    masked == (evaluation.masked && evaluation.counts)
                                ? LS_OK
                                : LS_OUT_OF_MEMORY;
    if (batches)
        batches->state->batches = evaluation.steps;
    if (!status)
        status = evaluate_all(&evaluation, dataset);
    if (!status)
        status = exact ? add_all_exactly(&evaluation, statistics, counts)
                       : add_all(&evaluation, statistics, counts);
    free(evaluation.exact);
    free(evaluation.sums);
    free(evaluation.masked);
    free(evaluation.counts);
    free(evaluation.readers);
    if (status) {
        free(counts);
        return status;
    }
    *out = (struct ls_scores){.examples = (uint64_t)statistics[LS_SUMS_EXAMPLES],
                              .seconds = (double)(ls_clock_ns() - start) * 1e-9};
    ls_metrics_append(&out->metrics, &session->model->metrics, statistics, counts, validation);
    free(counts);
    return LS_OK;
}
