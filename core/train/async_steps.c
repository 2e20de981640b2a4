// SPDX-License-Identifier: Apache-2.0
// Steps of replicas that do not wait for each other.
#include "core/train/async_steps.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/base/trace.h"
#include "core/train/fit.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label input_span = {.category = "input", .name = "input"};

#define SLOTS_AT_FIRST 64
#define POLL_NS 20000000 // a wait looks this often whether the run was aborted

// The data of one replica, share after share, and how far it was trained. Its own replica does that, or when that is
// lost, one of the others at a time.
struct share {
    uint64_t done; // shares
    bool busy; // somebody trains one
    bool pending; // `batch` was taken from the stream and is not trained yet
    struct ls_replica_batch batch;
};

// A step some of whose shares were trained.
struct slot {
    double sums[LS_SUMS];
    uint32_t shares;
    struct ls_step_result result; // of the replica of the lowest index
    uint32_t index; // that is
    uint64_t step_ns, input_ns;
};

struct ls_async_steps {
    struct ls_fit *fit;
    uint64_t steps_before; // of the model
    uint32_t count;
    pthread_mutex_t lock; // of all below, and of what a fit notes of its steps
    pthread_cond_t changed;
    struct share *shares; // one a replica
    struct slot *slots; // a ring: of step `fit->done.steps + 1` and those after it
    double *counts; // what metrics counted in the step of each slot
    uint64_t slot_count;
    bool stopping; // the user has asked for it: nobody begins another share
    uint64_t changed_ns; // when a share was last done
    bool late_said, input_said; // what ends the training
};

// What a replica does next.
struct turn {
    uint32_t index; // whose share
    uint64_t number; // of the replica's step
    bool rests; // nothing yet
    bool over; // nothing
};

static uint32_t metric_slots(const struct ls_async_steps *steps)
{
    return steps->fit->model->graph->count_slots;
}

enum ls_status ls_async_steps_create(struct ls_fit *fit, struct ls_async_steps **out)
{
    struct ls_async_steps *steps = calloc(1, sizeof(*steps));
    if (!steps)
        return LS_OUT_OF_MEMORY;
    steps->fit = fit;
    steps->steps_before = fit->model->steps_done - fit->done.steps;
    steps->count = fit->session->count;
    pthread_mutex_init(&steps->lock, NULL);
    ls_condition_init(&steps->changed);
    steps->slot_count = SLOTS_AT_FIRST;
    steps->shares = calloc(steps->count, sizeof(*steps->shares));
    steps->slots = calloc(steps->slot_count, sizeof(*steps->slots));
    steps->counts = calloc(steps->slot_count * metric_slots(steps) + 1, sizeof(*steps->counts));
    if (!steps->shares || !steps->slots || !steps->counts) {
        ls_async_steps_destroy(steps);
        return LS_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < steps->count; i++)
        steps->shares[i].done = fit->done.steps; // of a training that goes on
    *out = steps;
    return LS_OK;
}

void ls_async_steps_destroy(struct ls_async_steps *steps)
{
    if (!steps)
        return;
    pthread_cond_destroy(&steps->changed);
    pthread_mutex_destroy(&steps->lock);
    free(steps->shares);
    free(steps->slots);
    free(steps->counts);
    free(steps);
}

// ---- Steps that are complete ----

static struct slot *slot_of(struct ls_async_steps *steps, uint64_t step)
{
    return &steps->slots[step % steps->slot_count];
}

static double *counts_of(const struct ls_async_steps *steps, uint64_t step)
{
    return steps->counts + step % steps->slot_count * metric_slots(steps);
}

// A replica may be far ahead of the slowest.
static enum ls_status need_slots(struct ls_async_steps *steps, uint64_t step)
{
    const uint64_t first = steps->fit->done.steps + 1;
    uint64_t count = steps->slot_count;
    while (step - first >= count)
        count *= 2;
    if (count == steps->slot_count)
        return LS_OK;
    const uint32_t counts = metric_slots(steps);
    struct slot *grown = calloc(count, sizeof(*grown));
    double *grown_counts = calloc(count * counts + 1, sizeof(*grown_counts));
    if (!grown || !grown_counts) {
        free(grown);
        free(grown_counts);
        return LS_OUT_OF_MEMORY;
    }
    for (uint64_t i = first; i < first + steps->slot_count; i++) {
        grown[i % count] = *slot_of(steps, i);
        memcpy(grown_counts + i % count * counts, counts_of(steps, i), counts * sizeof(double));
    }
    free(steps->slots);
    free(steps->counts);
    steps->slots = grown;
    steps->counts = grown_counts;
    steps->slot_count = count;
    return LS_OK;
}

// What metrics have counted in a step becomes part of the epoch with its sums, so that a training that goes on from here
// trains all other shares, and counts them once.
static void note_complete_steps(struct ls_async_steps *steps)
{
    for (;;) {
        struct slot *slot = slot_of(steps, steps->fit->done.steps + 1);
        double *counts = counts_of(steps, steps->fit->done.steps + 1);
        if (slot->shares < steps->count)
            break;
        for (uint32_t i = 0; i < metric_slots(steps); i++) {
            steps->fit->done.counts_before[i] += counts[i];
            counts[i] = 0;
        }
        for (int i = 0; i < LS_SUMS; i++)
            slot->result.sums[i] = (float)slot->sums[i];
        slot->result.stop = steps->stopping;
        const struct slot complete = *slot;
        *slot = (struct slot){0};
        ls_clients_step_times(&steps->fit->clients, &complete.result, complete.step_ns,
                              complete.input_ns);
        ls_fit_note_step(steps->fit, &complete.result);
    }
}

static enum ls_status add_share(struct ls_async_steps *steps, uint64_t step, uint32_t index,
                                const struct ls_step_result *result, uint64_t step_ns,
                                uint64_t input_ns)
{
    const enum ls_status status = need_slots(steps, step);
    if (status)
        return status;
    struct slot *slot = slot_of(steps, step);
    for (int i = 0; i < LS_SUMS; i++)
        slot->sums[i] += (double)result->sums[i];
    ls_replica_add_counts(steps->fit->session->replicas[index], counts_of(steps, step));
    if (slot->shares++ == 0 || index < slot->index) {
        slot->index = index;
        slot->result = *result;
        slot->step_ns = step_ns;
        slot->input_ns = input_ns;
    }
    note_complete_steps(steps);
    return LS_OK;
}

// ---- Whose turn it is ----

// A lost replica's share before `limit` that nobody trains now; steps->count: none.
static uint32_t find_orphan(const struct ls_async_steps *steps, uint64_t limit)
{
    for (uint32_t i = 0; i < steps->count; i++)
        if (!steps->shares[i].busy && steps->shares[i].done < limit &&
            ls_driver_is_lost(steps->fit->session->driver, i))
            return i;
    return steps->count;
}

static bool all_done(const struct ls_async_steps *steps, uint64_t limit)
{
    for (uint32_t i = 0; i < steps->count; i++)
        if (steps->shares[i].done < limit)
            return false;
    return true;
}

// Nobody was done with anything for as long as anybody may wait: names the first who is not.
static enum ls_status fail_deadline(struct ls_async_steps *steps, uint32_t index, uint64_t limit,
                                    uint64_t waited_ns)
{
    uint32_t late = 0;
    while (late + 1 < steps->count && steps->shares[late].done >= limit)
        late++;
    if (!steps->late_said)
        ls_error("train",
                 "replica %u waited %.1f s for replica %u, which is still in step %" PRIu64
                 "; it hangs, or --deadline is too short for it",
                 ls_session_rank(steps->fit->session, index), (double)waited_ns * 1e-9,
                 ls_session_rank(steps->fit->session, late), steps->shares[late].done + 1);
    steps->late_said = true;
    return LS_PEER_LOST;
}

// Who is told to stop has ended the share in hand, however far the others are: the steps that lack a share are not
// counted, though what was pushed of them stays. Before it leaves it rests, so that nobody waits for its next step.
static bool stops(struct ls_async_steps *steps)
{
    steps->stopping = steps->stopping || ls_fit_wants_stop(steps->fit);
    steps->fit->done.stopped = steps->fit->done.stopped || steps->stopping;
    return steps->stopping;
}

// A lost replica's shares are trained up to where this one is; then come its own. Who has done all waits for the others,
// because one of them may be lost yet; unless it is `resting`, that is a turn too.
static enum ls_status next_turn(struct ls_async_steps *steps, uint32_t index, uint64_t last,
                                bool resting, struct turn *out)
{
    struct ls_driver *driver = steps->fit->session->driver;
    struct share *own = &steps->shares[index];
    const uint64_t begin = ls_clock_ns();
    for (;;) {
        const uint32_t orphan = find_orphan(steps, own->done < last ? own->done : last);
        const bool helps = orphan < steps->count, stopped = stops(steps);
        if (ls_driver_aborted(driver))
            return LS_ABORTED;
        if (!stopped && (helps || own->done < last)) {
            *out = (struct turn){.index = helps ? orphan : index,
                                 .number = helps ? own->done : own->done + 1};
            steps->shares[out->index].busy = true;
            return LS_OK;
        }
        const bool over = stopped ? resting : all_done(steps, last) || !ls_driver_survives(driver);
        if (over || !resting) {
            *out = (struct turn){.index = index, .number = own->done, .rests = !over, .over = over};
            return LS_OK;
        }
        const uint64_t now = ls_clock_ns();
        const uint64_t since = steps->changed_ns > begin ? steps->changed_ns : begin;
        if (now > since && now - since >= steps->fit->run->deadline_ns)
            return fail_deadline(steps, index, last, now - since);
        ls_condition_wait(&steps->changed, &steps->lock, POLL_NS);
    }
}

// ---- Running ----

static enum ls_status train(struct ls_async_steps *steps, uint32_t index, const struct turn *turn)
{
    struct ls_fit *fit = steps->fit;
    struct share *share = &steps->shares[turn->index];
    struct ls_step_result result = {0};
    const uint64_t start = ls_clock_ns();
    uint64_t waited = 0;
    enum ls_status status = LS_OK;
    ls_replica_clear_counts(fit->session->replicas[index]); // those of a step that failed, too
    if (turn->index == 0) {
        pthread_mutex_lock(&steps->lock);
        ls_fit_begin_step(fit, turn->number);
        pthread_mutex_unlock(&steps->lock);
    }
    ls_trace_begin_step(turn->number);
    ls_trace_begin(&input_span, 0);
    char *error = NULL;
    char **before = ls_log_keep(&error);
    if (!share->pending)
        status = ls_session_next(fit->session, turn->index, &share->batch, &waited);
    ls_log_keep(before);
    ls_trace_end();
    share->pending = !status;
    if (!status) {
        ls_trace_examples(share->batch.count);
        const uint64_t step = steps->steps_before + turn->number;
        status = ls_driver_step(fit->session->driver, index, &share->batch, step,
                                ls_optimizer_rate(&fit->model->optimizer, step), false, &result);
    }
    const bool lacks_input = !share->pending;
    const uint64_t step_ns = ls_clock_ns() - start;
    pthread_mutex_lock(&steps->lock);
    share->busy = false;
    steps->changed_ns = ls_clock_ns();
    if (!steps->input_said) // each replica has a stream, and all may come to the same example
        ls_log_write_kept(&error);
    steps->input_said = steps->input_said || lacks_input;
    enum ls_status noted = LS_OK;
    if (!status) {
        share->pending = false;
        share->done++;
        noted = add_share(steps, share->done, index, &result, step_ns, waited);
    }
    pthread_cond_broadcast(&steps->changed);
    pthread_mutex_unlock(&steps->lock);
    free(error);
    if (noted || lacks_input) // another replica could not do better
        ls_driver_abort(fit->session->driver);
    ls_trace_end_step();
    return status ? status : noted;
}

enum ls_status ls_async_steps_run(struct ls_async_steps *steps, uint32_t index)
{
    struct ls_driver *driver = steps->fit->session->driver;
    char doing[32];
    if (ls_driver_is_lost(driver, index))
        return LS_OK;
    // Its own share is its own alone as long as it is not lost.
    const uint64_t last = steps->shares[index].done + steps->fit->done.segment;
    for (bool resting = false;;) {
        struct turn turn;
        pthread_mutex_lock(&steps->lock);
        enum ls_status status = next_turn(steps, index, last, resting, &turn);
        pthread_mutex_unlock(&steps->lock);
        if (status || turn.over)
            return status;
        resting = turn.rests;
        status = resting ? ls_driver_rest(driver, index) : train(steps, index, &turn);
        if (status && !ls_driver_survive(driver, index, status))
            return status;
        if (status) {
            snprintf(doing, sizeof(doing), "step %" PRIu64, turn.number);
            ls_session_say_lost(steps->fit->session, index, doing);
            return LS_OK;
        }
    }
}
