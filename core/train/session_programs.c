// SPDX-License-Identifier: Apache-2.0
// The programs of a session's replicas: for which sizes of blocks, and in which layouts.
#include "core/base/trace.h"
#include "core/train/session.h"

#include <stdlib.h>

static const struct ls_trace_label prepare_span = {.category = "start", .name = "prepare"};

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
    find_sizes(session, need->evaluation_examples, false, index, 1, &evaluation);
    find_sizes(session, need->prediction_examples, false, index, 1, &prediction);
    const struct ls_replica_need replica = {
        .sizes = {[LS_PURPOSE_TRAIN] = {training.list, training.count},
                  [LS_PURPOSE_EVALUATE] = {evaluation.list, evaluation.count},
                  [LS_PURPOSE_PREDICT] = {prediction.list, prediction.count}},
        .microbatches = need->microbatches};
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

enum ls_status ls_session_make_programs(struct ls_session *session)
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
        status = ls_session_run(session, "preparing the replicas", prepare_replica, &preparing);
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

uint64_t ls_session_layout_batch(const struct ls_session *session,
                                 const struct ls_session_need *need)
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

enum ls_status ls_session_note_layouts(struct ls_session *session, uint64_t batch)
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

enum ls_status ls_session_has_layouts(struct ls_session *session,
                                      const struct ls_session_need *need, bool *out)
{
    const uint64_t batch = ls_session_layout_batch(session, need);
    struct layouts layouts = {session->replicas[0], batch, false};
    *out = true;
    for (size_t i = 0; i < session->same_count; i++)
        if (session->same_layouts[i] == batch)
            return LS_OK;
    enum ls_status status = ls_session_run(session, "choosing layouts", compare_layouts, &layouts);
    if (!status && layouts.same)
        status = ls_session_note_layouts(session, batch);
    *out = layouts.same;
    return status;
}
