// SPDX-License-Identifier: Apache-2.0
// Works: operations of a communicator that go on by themselves. One thread at a time drives a
// communicator: who waits for a work, who has just started a small one, or else the communicator's
// own thread. So a call that others have begun is over without another thread, and what nobody
// waits for moves all the same.
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/base/shared_memory.h"
#include "core/base/threads.h"
#include "core/comm/work.h"
#include "core/plugin/waiting.h"

#include <stdlib.h>
#include <string.h>

// What a start moves itself, and for how long: the caller may have to begin something else that a
// peer waits for.
#define SMALL_BYTES 65536
#define OWN_TURN_NS UINT64_C(40000)
#define SPINS 200 // of a wait, while another thread drives
// For the news that a process is lost, or why it has ended the communicator: both are sent at once.
#define VERDICT_NS UINT64_C(1000000000)
#define TEXT_BYTES 1024

bool ls_work_is_over(const struct ls_comm_work *work)
{
    return __atomic_load_n(&work->over, __ATOMIC_SEQ_CST);
}

static void unref(struct ls_comm_work *work)
{
    if (atomic_fetch_sub(&work->users, 1) > 1)
        return;
    ls_comm_unref(work->comm);
    free(work->line);
    free(work);
}

// ---- One operation ----

// Parts of a collective begin at multiples of LS_CHUNK_ALIGNMENT elements.
static void lay_out(struct ls_comm_work *work)
{
    struct ls_comm_request *request = &work->request;
    struct ls_communicator_call *call = &request->call;
    const uint32_t world = work->comm->ranks->world;
    const uint64_t unit = LS_CHUNK_ALIGNMENT, count = request->count;
    if (request->kind == LS_COMM_ALL_GATHER || request->kind == LS_COMM_REDUCE_SCATTER) {
        const uint64_t stride = (count + unit - 1) / unit * unit;
        // A reduction changes what others send through here, and the caller's values stay.
        work->copies = request->kind == LS_COMM_REDUCE_SCATTER || stride != count;
        call->count = stride * world;
    }
    if (request->kind == LS_COMM_ALL_TO_ALL)
        call->count = count * world;
    const struct ls_wide_mean wide = ls_wide_mean_of(call->dtype, call->reduction, world);
    const bool in_place = request->kind == LS_COMM_IN_PLACE;
    const bool refused = in_place && (ls_memory_is_null(call->buffer) || // where the plan is made
                                      call->buffer.offset % ls_dtype_bytes(call->dtype) ||
                                      call->count > UINT64_MAX / 64);
    if (!wide.dtype || refused)
        return;
    if (in_place) {
        request->mine = ls_address(call->buffer);
        request->count = call->count;
    }
    work->copies = true;
    call->mean_of = call->dtype;
    call->dtype = wide.dtype;
    call->reduction = LS_SUM;
    call->count *= wide.lanes;
}

static enum ls_status make_parts(struct ls_comm *comm, const struct ls_comm_work *work)
{
    const uint64_t bytes = work->request.call.count * ls_dtype_bytes(work->request.call.dtype);
    if (bytes <= comm->room)
        return LS_OK;
    ls_segment_free(comm->parts);
    comm->room = 0;
    comm->parts = ls_segment_allocate(bytes, LS_ALIGNMENT);
    if (!comm->parts) {
        ls_error(work->request.name, "rank %u: no memory for %llu bytes of all ranks", comm->rank,
                 (unsigned long long)bytes);
        return LS_OUT_OF_MEMORY;
    }
    memset(comm->parts, 0, bytes); // what is between parts takes part in sums
    comm->room = bytes;
    return LS_OK;
}

// Between the parts of two ranks.
static uint64_t stride_bytes(const struct ls_comm_work *work)
{
    const struct ls_communicator_call *call = &work->request.call;
    return call->count / work->comm->ranks->world * ls_dtype_bytes(call->dtype);
}

static enum ls_status begin(struct ls_comm *comm, struct ls_comm_work *work)
{
    struct ls_comm_request *request = &work->request;
    const uint32_t world = comm->ranks->world, mean_of = request->call.mean_of;
    const uint64_t bytes = request->count * ls_dtype_bytes(mean_of ? mean_of : request->call.dtype);
    const uint64_t stride = stride_bytes(work);
    const enum ls_status status = work->copies ? make_parts(comm, work) : LS_OK;
    if (status)
        return status;
    char *parts = work->copies ? comm->parts : request->all;
    if (request->kind == LS_COMM_BARRIER)
        request->call.buffer = ls_host_memory(&work->here);
    else if (request->kind != LS_COMM_IN_PLACE || mean_of)
        request->call.buffer = ls_host_memory(parts);
    if (request->kind == LS_COMM_IN_PLACE && mean_of)
        ls_wide_mean_begin(mean_of, world, request->mine, request->count, parts);
    if (request->kind == LS_COMM_ALL_GATHER && bytes)
        memmove(parts + comm->rank * stride, request->mine, bytes);
    if (request->kind == LS_COMM_ALL_TO_ALL && bytes && parts != request->mine)
        memcpy(parts, request->mine, bytes * world);
    for (uint32_t i = 0; request->kind == LS_COMM_REDUCE_SCATTER && bytes && i < world; i++) {
        const char *part = (const char *)request->all + i * bytes;
        if (mean_of)
            ls_wide_mean_begin(mean_of, world, part, request->count, parts + i * stride);
        else
            memcpy(parts + i * stride, part, bytes);
    }
    ls_communicator_set_deadline(comm->communicator, work->deadline_ns);
    return ls_communicator_start(comm->communicator, &request->call, &work->plan);
}

static void take_result(const struct ls_comm *comm, const struct ls_comm_work *work)
{
    const struct ls_comm_request *request = &work->request;
    const struct ls_communicator_call *call = &request->call;
    const uint64_t bytes = request->count * ls_dtype_bytes(call->dtype);
    const uint64_t stride = stride_bytes(work);
    if (!work->copies || !bytes)
        return;
    if (call->mean_of) {
        const bool scatters = request->kind == LS_COMM_REDUCE_SCATTER;
        if (call->operation != LS_REDUCE || call->root == comm->rank)
            ls_wide_mean_end(call->mean_of, comm->ranks->world,
                             comm->parts + (scatters ? comm->rank * stride : 0), request->count,
                             request->mine);
        return;
    }
    if (request->kind == LS_COMM_REDUCE_SCATTER)
        memcpy(request->mine, comm->parts + comm->rank * stride, bytes);
    for (uint32_t i = 0; request->kind == LS_COMM_ALL_GATHER && i < comm->ranks->world; i++)
        memcpy((char *)request->all + i * bytes, comm->parts + i * stride, bytes);
}

// ---- Why it failed ----

enum ls_status ls_work_blame_process(const struct ls_comm *comm, const struct ls_comm_work *work,
                                     enum ls_status status, bool waits, char **line)
{
    const struct ls_comm_ranks *ranks = comm->ranks;
    const bool may_be = status == LS_PEER_LOST || status == LS_ABORTED;
    char text[TEXT_BYTES];
    if (!ranks->job || !may_be || atomic_load(&comm->aborted))
        return LS_OK;
    status = ls_job_verdict(ranks->job, comm, waits ? VERDICT_NS : 0, status == LS_PEER_LOST, text,
                            sizeof(text));
    if (!status)
        return LS_OK;
    free(*line);
    *line = NULL;
    ls_error(ranks->name, "%s; rank %u was in %s", text, comm->rank, work->request.name);
    return status;
}

static bool is_same_call(const struct ls_communicator_call *a, const struct ls_communicator_call *b)
{
    return a->operation == b->operation && a->dtype == b->dtype && a->mean_of == b->mean_of &&
           a->reduction == b->reduction && a->root == b->root && a->count == b->count;
}

// Why a collective is wrong is said once, but a caller that tries it again must be told, too.
static void remember_refusal(struct ls_comm *comm, const struct ls_comm_work *work,
                             const char *line)
{
    if (work->plan || !line)
        return;
    free(comm->refusal);
    comm->refusal = strdup(line);
    comm->refused = work->request.call;
}

// The rank that fails first has said why; the others only say that they end. Errors are kept in `line`, or
// written.
static enum ls_status explain(struct ls_comm *comm, const struct ls_comm_work *work,
                              enum ls_status status, uint64_t errors, char **line)
{
    const enum ls_status blamed = ls_communicator_is_late(comm->communicator)
                                      ? LS_OK
                                      : ls_work_blame_process(comm, work, status, true, line);
    if (blamed)
        return blamed;
    if (*line || ls_log_errors() != errors) {
        remember_refusal(comm, work, *line);
        return status;
    }
    if (is_same_call(&comm->refused, &work->request.call) && comm->refusal && !work->plan) {
        *line = strdup(comm->refusal);
        return status;
    }
    if (status == LS_ABORTED)
        ls_error(comm->ranks->name,
                 "rank %u: %s ends because another rank failed or the communicator was aborted; "
                 "close it on all ranks, and open another one",
                 comm->rank, work->request.name);
    else
        ls_error(comm->ranks->name, "rank %u: %s: %s", comm->rank, work->request.name,
                 ls_status_text(status));
    return status;
}

// Moves the work until a time of the clock; LS_AGAIN: it is not over. Threads of one process log
// when they fail, so that the cause comes first; else the error is kept for the thread that waits.
static enum ls_status move(struct ls_comm *comm, struct ls_comm_work *work, uint64_t end_ns,
                           bool keeps)
{
    const uint64_t errors = ls_log_errors();
    char **before = keeps ? ls_log_keep(&work->line) : NULL;
    enum ls_status status = LS_OK;
    if (!work->begun)
        status = begin(comm, work);
    work->begun = true;
    if (!status)
        status = ls_communicator_wait_until(comm->communicator, work->plan, end_ns);
    if (!status)
        take_result(comm, work);
    else if (status != LS_AGAIN)
        status = explain(comm, work, status, errors, &work->line);
    work->ends_all = status && status != LS_AGAIN && ls_communicator_status(comm->communicator);
    if (work->ends_all && comm->ranks->job && work->line && status != LS_ABORTED)
        ls_job_tell(comm->ranks->job, comm, work->line);
    if (keeps)
        ls_log_keep(before);
    return status;
}

// ---- The works of a communicator; the lock is held ----

static void fail_all(struct ls_comm *comm, enum ls_status status, const char *line)
{
    if (comm->failed)
        return;
    comm->failed = status;
    comm->why = line ? strdup(line) : NULL;
}

void ls_work_end(struct ls_comm_work *work, enum ls_status status)
{
    work->status = status;
    __atomic_store_n(&work->over, 1, __ATOMIC_SEQ_CST);
    if (atomic_load(&work->sleepers))
        ls_wake_word(&work->over);
    unref(work);
}

static void end_first(struct ls_comm *comm, enum ls_status status)
{
    struct ls_comm_work *work = comm->first;
    comm->first = work->next;
    if (!comm->first)
        comm->last = NULL;
    if (work->ends_all)
        fail_all(comm, status, work->line);
    ls_work_end(work, status);
}

static void end_with_all(struct ls_comm *comm, struct ls_comm_work *work)
{
    work->line = comm->why ? strdup(comm->why) : NULL;
    work->ends_all = true;
    ls_work_end(work, comm->failed);
}

static void end_queued(struct ls_comm *comm)
{
    while (comm->first && comm->failed && !comm->first->begun) {
        struct ls_comm_work *work = comm->first;
        comm->first = work->next;
        if (!comm->first)
            comm->last = NULL;
        end_with_all(comm, work);
    }
}

// Drives until the work is over (NULL: the first one), or the time has come. False: somebody else
// drives.
static bool drive(struct ls_comm *comm, const struct ls_comm_work *until, uint64_t end_ns)
{
    if (comm->driven || !comm->first)
        return false;
    comm->driven = true;
    enum ls_status status = LS_OK;
    while (comm->first && (!until || !ls_work_is_over(until)) && status != LS_AGAIN) {
        struct ls_comm_work *work = comm->first;
        const bool last = !until;
        pthread_mutex_unlock(&comm->lock);
        status = move(comm, work, end_ns, true);
        pthread_mutex_lock(&comm->lock);
        if (status != LS_AGAIN)
            end_first(comm, status);
        end_queued(comm);
        if (last)
            break;
    }
    comm->driven = false;
    if (comm->first || comm->closing)
        pthread_cond_broadcast(&comm->changed);
    return true;
}

// The communicator's thread.
static void *move_works(void *argument)
{
    struct ls_comm *comm = argument;
    pthread_mutex_lock(&comm->lock);
    while (!comm->closing || comm->first)
        if (!drive(comm, NULL, UINT64_MAX))
            pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

static void append(struct ls_comm *comm, struct ls_comm_work *work)
{
    if (comm->last)
        comm->last->next = work;
    else
        comm->first = work;
    comm->last = work;
}

// ---- Starting and waiting ----

static void work_init(struct ls_comm *comm, const struct ls_comm_request *request,
                      struct ls_comm_work *work)
{
    work->comm = comm;
    work->request = *request;
    work->deadline_ns = atomic_load_explicit(&comm->deadline_ns, memory_order_relaxed);
    lay_out(work);
}

static bool is_small(struct ls_comm *comm, const struct ls_comm_work *work)
{
    const struct ls_communicator_call *call = &work->request.call;
    return call->count <= SMALL_BYTES / ls_dtype_bytes(call->dtype) &&
           ls_communicator_is_prepared(comm->communicator, call);
}

static enum ls_status start(struct ls_comm *comm, struct ls_comm_work *work)
{
    enum ls_status status = LS_OK;
    if (!comm->threaded)
        status = ls_thread_start(&comm->thread, "communicator", move_works, comm);
    if (status)
        return status;
    comm->threaded = true;
    if (comm->failed) {
        end_with_all(comm, work);
        return LS_OK;
    }
    append(comm, work);
    if (comm->first == work && !comm->driven && is_small(comm, work))
        (void)drive(comm, work, ls_clock_ns() + OWN_TURN_NS);
    else if (!comm->driven)
        pthread_cond_broadcast(&comm->changed);
    return LS_OK;
}

struct ls_comm_work *ls_work_create(struct ls_comm *comm, const struct ls_comm_request *request)
{
    struct ls_comm_work *work = calloc(1, sizeof(*work));
    if (!work) {
        ls_error(request->name, "rank %u: no memory for a work", comm->rank);
        return NULL;
    }
    work_init(comm, request, work);
    atomic_store_explicit(&work->users, 2, memory_order_relaxed);
    atomic_fetch_add(&comm->users, 1);
    return work;
}

void ls_work_discard(struct ls_comm_work *work)
{
    atomic_store(&work->users, 1);
    unref(work);
}

enum ls_status ls_comm_start(struct ls_comm *comm, const struct ls_comm_request *request,
                             struct ls_comm_work **out)
{
    LS_PLAIN_LOCALE;
    enum ls_status status = ls_comm_check_process(comm, request->name);
    if (status)
        return status;
    struct ls_comm_work *work = ls_work_create(comm, request);
    if (!work)
        return LS_OUT_OF_MEMORY;
    pthread_mutex_lock(&comm->lock);
    status = start(comm, work);
    pthread_mutex_unlock(&comm->lock);
    if (status)
        ls_work_discard(work);
    else
        *out = work;
    return status;
}

// The failure is told once, and is the last error of every thread that asks.
enum ls_status ls_work_tell(struct ls_comm_work *work)
{
    const enum ls_status status = work->status;
    if (!status || !work->line)
        return status;
    atomic_bool *told = work->ends_all ? &work->comm->told : &work->told;
    if (atomic_exchange(told, true)) {
        ls_log_note_line(work->line);
        return status;
    }
    char *line = strdup(work->line);
    ls_log_write_kept(&line);
    return status;
}

void ls_work_sleep(struct ls_comm_work *work, uint64_t end_ns)
{
    for (int i = 0; i < SPINS && !ls_work_is_over(work); i++)
        ls_relax();
    atomic_fetch_add(&work->sleepers, 1);
    for (uint64_t now; !ls_work_is_over(work) && (now = ls_clock_ns()) < end_ns;)
        ls_wait_word(&work->over, 0, end_ns - now);
    atomic_fetch_sub(&work->sleepers, 1);
}

void ls_work_drive(struct ls_comm_work *work, uint64_t end_ns)
{
    struct ls_comm *comm = work->comm;
    pthread_mutex_lock(&comm->lock);
    if (!ls_work_is_over(work))
        (void)drive(comm, work, end_ns);
    pthread_mutex_unlock(&comm->lock);
}

uint32_t ls_comm_work_source(const struct ls_comm_work *work)
{
    return work->source;
}

void ls_comm_work_free(struct ls_comm_work *work)
{
    if (work)
        unref(work);
}

bool ls_work_run(struct ls_comm *comm, const struct ls_comm_request *request, enum ls_status *out)
{
    pthread_mutex_lock(&comm->lock);
    const bool idle = !comm->first && !comm->driven, keeps = comm->ranks->job != NULL;
    const bool over = comm->failed && keeps;
    comm->driven |= idle && !over;
    pthread_mutex_unlock(&comm->lock);
    if (over)
        ls_log_note_line(comm->why); // which stays
    if (over)
        *out = comm->failed;
    if (over || !idle)
        return over;
    struct ls_comm_work work = {0};
    work_init(comm, request, &work);
    const enum ls_status status = move(comm, &work, UINT64_MAX, keeps);
    pthread_mutex_lock(&comm->lock);
    if (work.ends_all) {
        fail_all(comm, status, work.line);
        atomic_store(&comm->told, true);
    }
    comm->driven = false;
    end_queued(comm);
    if (comm->first || comm->closing)
        pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    ls_log_write_kept(&work.line);
    *out = status;
    return true;
}

// ---- The communicator's side ----

void ls_comm_works_init(struct ls_comm *comm)
{
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->changed, NULL);
}

// What is under way ends by the abort; what waits for its turn is ended here.
void ls_comm_works_close(struct ls_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->closing = true;
    if (comm->first || comm->driven) {
        ls_comm_abort_because(comm, "it was closed while works were under way");
    }
    pthread_cond_broadcast(&comm->changed);
    while (comm->driven || (comm->first && comm->threaded))
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    if (comm->threaded)
        pthread_join(comm->thread, NULL);
}

void ls_comm_unref(struct ls_comm *comm)
{
    if (atomic_fetch_sub(&comm->users, 1) > 1)
        return;
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->changed);
    free(comm->why);
    free(comm->reason);
    free(comm->refusal);
    free(comm);
}
