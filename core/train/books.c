// SPDX-License-Identifier: Apache-2.0
// Steps of replicas that do not wait for each other.
#include "core/train/books.h"

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

static const struct ls_trace_label input_slice = {.category = "input", .name = "input"};

#define SLOTS_AT_FIRST 64
#define GLANCE_NS 20000000 // a wait looks this often whether the run was aborted

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

struct ls_books {
    struct ls_fit *fit;
    uint64_t steps_before; // of the model
    uint32_t count;
    pthread_mutex_t lock; // of all below, and of what a fit notes of its steps
    pthread_cond_t changed;
    struct share *shares; // one a replica
    struct slot *slots; // a ring: of step `fit->steps + 1` and those after it
    uint64_t slot_count;
    bool stopping; // the user has asked for it: nobody begins another share
    uint64_t changed_ns; // when a share was last done
    bool late_said;
};

// What a replica does next.
struct turn {
    uint32_t index; // whose share
    uint64_t number; // of the replica's step
    bool rests; // nothing yet
    bool over; // nothing
};

enum ls_status ls_books_create(struct ls_fit *fit, struct ls_books **out)
{
    struct ls_books *books = calloc(1, sizeof(*books));
    if (!books)
        return LS_OUT_OF_MEMORY;
    books->fit = fit;
    books->steps_before = fit->model->steps_done;
    books->count = fit->session->count;
    pthread_mutex_init(&books->lock, NULL);
    ls_condition_init(&books->changed);
    books->slot_count = SLOTS_AT_FIRST;
    books->shares = calloc(books->count, sizeof(*books->shares));
    books->slots = calloc(books->slot_count, sizeof(*books->slots));
    if (!books->shares || !books->slots) {
        ls_books_destroy(books);
        return LS_OUT_OF_MEMORY;
    }
    *out = books;
    return LS_OK;
}

void ls_books_destroy(struct ls_books *books)
{
    if (!books)
        return;
    pthread_cond_destroy(&books->changed);
    pthread_mutex_destroy(&books->lock);
    free(books->shares);
    free(books->slots);
    free(books);
}

// ---- Steps that are complete ----

static struct slot *slot_of(struct ls_books *books, uint64_t step)
{
    return &books->slots[step % books->slot_count];
}

// A replica may be far ahead of the slowest.
static enum ls_status need_slots(struct ls_books *books, uint64_t step)
{
    const uint64_t first = books->fit->steps + 1;
    uint64_t count = books->slot_count;
    while (step - first >= count)
        count *= 2;
    if (count == books->slot_count)
        return LS_OK;
    struct slot *grown = calloc(count, sizeof(*grown));
    if (!grown)
        return LS_OUT_OF_MEMORY;
    for (uint64_t i = first; i < first + books->slot_count; i++)
        grown[i % count] = *slot_of(books, i);
    free(books->slots);
    books->slots = grown;
    books->slot_count = count;
    return LS_OK;
}

static void note_complete_steps(struct ls_books *books)
{
    for (;;) {
        struct slot *slot = slot_of(books, books->fit->steps + 1);
        if (slot->shares < books->count)
            break;
        for (int i = 0; i < LS_SUMS; i++)
            slot->result.sums[i] = (float)slot->sums[i];
        slot->result.stop = books->stopping;
        const struct slot complete = *slot;
        *slot = (struct slot){0};
        ls_clients_step_times(&books->fit->clients, &complete.result, complete.step_ns,
                              complete.input_ns);
        ls_fit_note_step(books->fit, &complete.result);
    }
}

static enum ls_status add_share(struct ls_books *books, uint64_t step, uint32_t index,
                                const struct ls_step_result *result, uint64_t step_ns,
                                uint64_t input_ns)
{
    const enum ls_status status = need_slots(books, step);
    if (status)
        return status;
    struct slot *slot = slot_of(books, step);
    for (int i = 0; i < LS_SUMS; i++)
        slot->sums[i] += (double)result->sums[i];
    if (slot->shares++ == 0 || index < slot->index) {
        slot->index = index;
        slot->result = *result;
        slot->step_ns = step_ns;
        slot->input_ns = input_ns;
    }
    note_complete_steps(books);
    return LS_OK;
}

// ---- Whose turn it is ----

// A lost replica's share before `limit` that nobody trains now; books->count: none.
static uint32_t find_orphan(const struct ls_books *books, uint64_t limit)
{
    for (uint32_t i = 0; i < books->count; i++)
        if (!books->shares[i].busy && books->shares[i].done < limit &&
            ls_driver_is_lost(books->fit->session->driver, i))
            return i;
    return books->count;
}

static bool all_done(const struct ls_books *books, uint64_t limit)
{
    for (uint32_t i = 0; i < books->count; i++)
        if (books->shares[i].done < limit)
            return false;
    return true;
}

// Nobody was done with anything for as long as anybody may wait: names the first who is not.
static enum ls_status fail_deadline(struct ls_books *books, uint32_t index, uint64_t limit,
                                    uint64_t waited_ns)
{
    uint32_t late = 0;
    while (late + 1 < books->count && books->shares[late].done >= limit)
        late++;
    if (!books->late_said)
        ls_error("train",
                 "replica %u waited %.1f s for replica %u, which is still in step %" PRIu64
                 "; it hangs, or --deadline is too short for it",
                 ls_session_rank(books->fit->session, index), (double)waited_ns * 1e-9,
                 ls_session_rank(books->fit->session, late), books->shares[late].done + 1);
    books->late_said = true;
    return LS_PEER_LOST;
}

// Who is told to stop has ended the share in hand, however far the others are: the steps that lack a share are not
// counted, though what was pushed of them stays. Before it leaves it rests, so that nobody waits for its next step.
static bool stops(struct ls_books *books)
{
    books->stopping = books->stopping || ls_fit_wants_stop(books->fit);
    books->fit->stopped = books->fit->stopped || books->stopping;
    return books->stopping;
}

// A lost replica's shares are trained up to where this one is; then come its own. Who has done all waits for the others,
// because one of them may be lost yet; unless it is `resting`, that is a turn too.
static enum ls_status next_turn(struct ls_books *books, uint32_t index, uint64_t last, bool resting,
                                struct turn *out)
{
    struct ls_driver *driver = books->fit->session->driver;
    struct share *own = &books->shares[index];
    const uint64_t begin = ls_clock_ns();
    for (;;) {
        const uint32_t orphan = find_orphan(books, own->done < last ? own->done : last);
        const bool helps = orphan < books->count, stopped = stops(books);
        if (ls_driver_aborted(driver))
            return LS_ABORTED;
        if (!stopped && (helps || own->done < last)) {
            *out = (struct turn){.index = helps ? orphan : index,
                                 .number = helps ? own->done : own->done + 1};
            books->shares[out->index].busy = true;
            return LS_OK;
        }
        const bool over = stopped ? resting : all_done(books, last) || !ls_driver_survives(driver);
        if (over || !resting) {
            *out = (struct turn){.index = index, .number = own->done, .rests = !over, .over = over};
            return LS_OK;
        }
        const uint64_t now = ls_clock_ns();
        const uint64_t since = books->changed_ns > begin ? books->changed_ns : begin;
        if (now > since && now - since >= books->fit->run->deadline_ns)
            return fail_deadline(books, index, last, now - since);
        ls_condition_wait(&books->changed, &books->lock, GLANCE_NS);
    }
}

// ---- Running ----

static enum ls_status train(struct ls_books *books, uint32_t index, const struct turn *turn)
{
    struct ls_fit *fit = books->fit;
    struct share *share = &books->shares[turn->index];
    struct ls_step_result result = {0};
    const uint64_t start = ls_clock_ns();
    uint64_t waited = 0;
    enum ls_status status = LS_OK;
    ls_trace_begin_step(turn->number);
    ls_trace_begin(&input_slice, 0);
    if (!share->pending)
        status = ls_session_next(fit->session, turn->index, &share->batch, &waited);
    ls_trace_end();
    share->pending = !status;
    if (!status) {
        ls_trace_examples(share->batch.count);
        status = ls_driver_step(fit->session->driver, index, &share->batch,
                                books->steps_before + turn->number,
                                fit->model->optimizer.learning_rate, false, &result);
    }
    const uint64_t step_ns = ls_clock_ns() - start;
    pthread_mutex_lock(&books->lock);
    share->busy = false;
    books->changed_ns = ls_clock_ns();
    enum ls_status noted = LS_OK;
    if (!status) {
        share->pending = false;
        share->done++;
        noted = add_share(books, share->done, index, &result, step_ns, waited);
    }
    pthread_cond_broadcast(&books->changed);
    pthread_mutex_unlock(&books->lock);
    if (noted) // not this replica's fault alone
        ls_driver_abort(fit->session->driver);
    ls_trace_end_step();
    return status ? status : noted;
}

enum ls_status ls_books_run(struct ls_books *books, uint32_t index)
{
    struct ls_driver *driver = books->fit->session->driver;
    char doing[32];
    if (ls_driver_is_lost(driver, index))
        return LS_OK;
    // Its own share is its own alone as long as it is not lost.
    const uint64_t last = books->shares[index].done + books->fit->segment;
    for (bool resting = false;;) {
        struct turn turn;
        pthread_mutex_lock(&books->lock);
        enum ls_status status = next_turn(books, index, last, resting, &turn);
        pthread_mutex_unlock(&books->lock);
        if (status || turn.over)
            return status;
        resting = turn.rests;
        status = resting ? ls_driver_rest(driver, index) : train(books, index, &turn);
        if (status && !ls_driver_survive(driver, index, status))
            return status;
        if (status) {
            snprintf(doing, sizeof(doing), "step %" PRIu64, turn.number);
            ls_session_say_lost(books->fit->session, index, doing);
            return LS_OK;
        }
    }
}
