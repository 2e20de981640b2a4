// SPDX-License-Identifier: Apache-2.0
// Streams of the fake: work is queued and done later, in the order of each stream and of the events between them.
#include "tests/support/cuda-fake/stream.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct work {
    double_work run; // NULL: it fails
    int hangs; // at the end of the queue stays the last one for good
    struct double_line *after; // a wait: until this line is at `ticket`; held
    uint64_t ticket;
    double_ready ready; // NULL: at once
    struct work *next;
    _Alignas(16) unsigned char data[];
};

pthread_mutex_t double_lock = PTHREAD_MUTEX_INITIALIZER;
struct CUstream_st *double_streams;
static pthread_cond_t ran =
    PTHREAD_COND_INITIALIZER; // deferred: somebody has run the first of a queue
static unsigned failure; // for good, as after a kernel that failed; changed with __atomic_* only
static uint64_t kernels;

unsigned double_failed(void)
{
    return __atomic_load_n(&failure, __ATOMIC_ACQUIRE);
}

// ---- Lines ----

struct double_line *double_line_hold(struct double_line *line)
{
    line->holders++;
    return line;
}

void double_line_drop(struct double_line *line)
{
    if (line && --line->holders == 0)
        free(line);
}

// ---- Running ----

static void wake_who_waits_for(const struct double_line *line)
{
    for (struct CUstream_st *other = double_streams; other; other = other->next)
        if (other->blocked == line || other->meeting)
            pthread_cond_signal(&other->changed);
    pthread_cond_broadcast(&ran);
}

void double_wake(void)
{
    pthread_mutex_lock(&double_lock);
    wake_who_waits_for(NULL);
    pthread_mutex_unlock(&double_lock);
}

static int is_ready(const struct work *work, struct CUstream_st **first)
{
    return !work->ready || double_failed() || work->ready(work->data, first);
}

// The first of the queue, which hangs not and waits for nobody any more.
static void run_first(struct CUstream_st *stream)
{
    struct work *work = stream->first;
    stream->running = 1;
    pthread_mutex_unlock(&double_lock);
    if (!work->run && !work->after)
        __atomic_store_n(&failure,
                         (unsigned)double_setting("CUDA_FAKE_ERROR", cudaErrorLaunchFailure),
                         __ATOMIC_RELEASE);
    else if (work->run && !double_failed())
        work->run(work->data);
    pthread_mutex_lock(&double_lock);
    stream->running = 0;
    stream->first = work->next;
    if (!stream->first)
        stream->last = &stream->first;
    stream->line->done++;
    double_line_drop(work->after);
    free(work);
    wake_who_waits_for(stream->line);
}

static int drive(struct double_line *line, uint64_t ticket);
static int may_run(struct CUstream_st *stream);

// One piece of work of a stream that somebody named. 0: there is none, or it cannot run yet.
static int advance(const struct CUstream_st *stream)
{
    const struct CUstream_st *open = stream ? double_streams : NULL;
    while (open && open != stream)
        open = open->next;
    return open && open->line->done < open->line->posted && drive(open->line, open->line->done + 1);
}

// Deferred: runs what is there until the line is at `ticket`, first what that waits for on other streams. 0: it never will be.
// Several threads may do it at once.
static int drive(struct double_line *line, uint64_t ticket)
{
    int able = 1;
    double_line_hold(line);
    while (able && line->done < ticket) {
        struct CUstream_st *stream = line->stream;
        const uint64_t number = line->done;
        if (stream->running) {
            pthread_cond_wait(&ran, &double_lock);
            continue;
        }
        const struct work *work = stream->first;
        struct CUstream_st *first = NULL;
        if (!is_ready(work, &first)) { // the work may be over when this comes back
            able = advance(first);
            continue;
        }
        able = !work->hangs && (!work->after || drive(work->after, work->ticket));
        if (able && line->done == number && !stream->running)
            run_first(stream);
    }
    double_line_drop(line);
    return able;
}

// ---- In a random order ----

uint32_t double_draw(uint32_t below)
{
    static uint64_t state; // under the lock
    if (!state) {
        const char *mode = getenv("CUDA_FAKE_STREAMS");
        state = strtoull(mode ? mode + strlen("random:") : "0", NULL, 10) * 2 + 1;
    }
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % below);
}

static struct CUstream_st *draw_stream(void)
{
    struct CUstream_st *drawn = NULL;
    uint32_t found = 0;
    for (struct CUstream_st *stream = double_streams; stream; stream = stream->next)
        if (stream->random && !stream->running && may_run(stream) && !double_draw(++found))
            drawn = stream;
    return drawn;
}

static int is_any_running(void)
{
    const struct CUstream_st *stream = double_streams;
    while (stream && !stream->running)
        stream = stream->next;
    return stream != NULL;
}

// Runs pieces of work until the line is at `ticket`, or `most` have run, or none may.
static void wander(struct double_line *line, uint64_t ticket, uint32_t most)
{
    double_line_hold(line);
    while (most && line->done < ticket) {
        struct CUstream_st *stream = draw_stream();
        if (!stream && !is_any_running())
            break;
        if (stream)
            run_first(stream);
        else
            pthread_cond_wait(&ran, &double_lock);
        most--;
    }
    double_line_drop(line);
}

static void pause_now_and_then(uint64_t number)
{
    if (number % 61 == 7)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    else if (number % 3 == 0)
        sched_yield();
}

static int may_run(struct CUstream_st *stream)
{
    const struct work *work = stream->first;
    stream->blocked = work && work->after && work->after->done < work->ticket ? work->after : NULL;
    struct CUstream_st *first;
    stream->meeting = work && !is_ready(work, &first);
    return work && !work->hangs && !stream->blocked && !stream->meeting;
}

static void *serve(void *argument)
{
    struct CUstream_st *stream = argument;
    pthread_mutex_lock(&double_lock);
    stream->begun = 1;
    pthread_cond_signal(&stream->changed);
    while (!stream->ending || stream->first) {
        if (!may_run(stream)) {
            pthread_cond_wait(&stream->changed, &double_lock);
            continue;
        }
        const uint64_t number = stream->line->done;
        pthread_mutex_unlock(&double_lock);
        pause_now_and_then(number);
        pthread_mutex_lock(&double_lock);
        run_first(stream);
    }
    pthread_mutex_unlock(&double_lock);
    return NULL;
}

// ---- Opening and closing ----

static struct CUstream_st *make_stream(void)
{
    const char *mode = getenv("CUDA_FAKE_STREAMS");
    struct CUstream_st *stream = calloc(1, sizeof(*stream));
    struct double_line *line = calloc(1, sizeof(*line));
    if (!stream || !line) {
        free(stream);
        free(line);
        return NULL;
    }
    stream->device = double_current();
    stream->random = mode && strncmp(mode, "random:", strlen("random:")) == 0;
    stream->deferred = stream->random || (mode && strcmp(mode, "deferred") == 0);
    stream->last = &stream->first;
    stream->line = double_line_hold(line);
    line->stream = stream;
    pthread_cond_init(&stream->changed, NULL);
    return stream;
}

static void free_stream(struct CUstream_st *stream)
{
    pthread_cond_destroy(&stream->changed);
    double_line_drop(stream->line);
    free(stream);
}

enum { GREATEST_PRIORITY = -5 }; // as on an H100

unsigned cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = GREATEST_PRIORITY;
    return double_failed();
}

unsigned cudaStreamCreateWithFlags(struct CUstream_st **out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

// The real one takes any number and makes the nearest priority of it.
unsigned cudaStreamCreateWithPriority(struct CUstream_st **out, unsigned flags, int priority)
{
    struct CUstream_st *stream =
        double_failed() || flags != cudaStreamNonBlocking ? NULL : make_stream();
    if (!stream)
        return double_failed() ? double_failed() : cudaErrorMemoryAllocation;
    if (priority < GREATEST_PRIORITY || priority > 0) {
        fprintf(stderr, "cuda-fake: there is no priority %d\n", priority);
        abort();
    }
    stream->priority = priority;
    if (!stream->deferred && pthread_create(&stream->thread, NULL, serve, stream)) {
        free_stream(stream);
        return cudaErrorMemoryAllocation;
    }
    pthread_mutex_lock(&double_lock);
    // A process that is forked while a thread begins finds a sanitizer's locks taken for ever.
    while (!stream->deferred && !stream->begun)
        pthread_cond_wait(&stream->changed, &double_lock);
    stream->next = double_streams;
    double_streams = stream;
    pthread_mutex_unlock(&double_lock);
    double_add(&double_live.streams, 1);
    *out = stream;
    return cudaSuccess;
}

unsigned cudaStreamDestroy(struct CUstream_st *stream)
{
    pthread_mutex_lock(&double_lock);
    if (stream->capture) {
        fprintf(stderr, "cuda-fake: a stream is closed while it is recorded\n");
        abort();
    }
    stream->ending = 1;
    pthread_cond_signal(&stream->changed);
    if (stream->random)
        wander(stream->line, stream->line->posted, UINT32_MAX);
    else if (stream->deferred)
        drive(stream->line, stream->line->posted);
    pthread_mutex_unlock(&double_lock);
    if (!stream->deferred)
        pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&double_lock);
    struct CUstream_st **place = &double_streams;
    while (*place != stream)
        place = &(*place)->next;
    *place = stream->next;
    stream->line->stream = NULL;
    free_stream(stream);
    pthread_mutex_unlock(&double_lock);
    double_add(&double_live.streams, -1);
    return double_failed();
}

// ---- Asking ----

// Whether everything up to `ticket` is done. Deferred streams do nothing at the first question, random ones at each as much as
// chance wants.
unsigned double_ask(struct double_line *line, uint64_t ticket)
{
    enum { PIECES = 16 };
    struct CUstream_st *stream = line->stream;
    if (stream && stream->random) {
        wander(line, ticket, double_draw(PIECES));
    } else if (stream && stream->deferred && line->done < ticket) {
        const int again = stream->asked >= ticket;
        stream->asked = line->posted;
        if (again)
            drive(line, ticket);
    }
    const int done = line->done >= ticket;
    return double_failed() ? double_failed() : done ? cudaSuccess : cudaErrorNotReady;
}

unsigned cudaStreamQuery(struct CUstream_st *stream)
{
    pthread_mutex_lock(&double_lock);
    unsigned error = double_capture_spoils_locked();
    if (!error)
        error = double_ask(stream->line, stream->line->posted);
    pthread_mutex_unlock(&double_lock);
    return error;
}

// Nobody may wait here, since that has no deadline: it is for what is done.
unsigned cudaStreamSynchronize(struct CUstream_st *stream)
{
    pthread_mutex_lock(&double_lock);
    const unsigned error = double_capture_spoils_locked();
    if (!error && stream->line->done < stream->line->posted) {
        fprintf(stderr, "cuda-fake: a wait without a deadline\n");
        abort();
    }
    pthread_mutex_unlock(&double_lock);
    return error ? error : double_failed();
}

// ---- Posting ----

static int is_the(const char *name, uint64_t number)
{
    return (uint64_t)double_setting(name, -1) == number;
}

static void append(struct CUstream_st *stream, struct work *work)
{
    *stream->last = work;
    stream->last = &work->next;
    stream->line->posted++;
    pthread_cond_signal(&stream->changed);
}

unsigned double_post(struct CUstream_st *stream, const struct double_item *item)
{
    const uint64_t number = item->kernel ? __atomic_fetch_add(&kernels, 1, __ATOMIC_RELAXED) : 0;
    struct work *work = malloc(sizeof(*work) + item->bytes);
    if (!work)
        return cudaErrorMemoryAllocation;
    *work = (struct work){.run = item->run,
                          .ready = item->ready,
                          .hangs = item->kernel && is_the("CUDA_FAKE_HANG", number)};
    if (item->kernel && is_the("CUDA_FAKE_FAIL", number))
        work->run = NULL;
    memcpy(work->data, item->data, item->bytes);
    append(stream, work);
    return cudaSuccess;
}

unsigned double_post_wait(struct CUstream_st *stream, struct double_line *line, uint64_t ticket)
{
    struct work *work = calloc(1, sizeof(*work));
    if (!work)
        return cudaErrorMemoryAllocation;
    work->after = double_line_hold(line);
    work->ticket = ticket;
    append(stream, work);
    return cudaSuccess;
}

static unsigned enqueue(struct CUstream_st *stream, const struct double_item *item)
{
    unsigned error = double_failed();
    pthread_mutex_lock(&double_lock);
    if (!error)
        error = stream->capture ? double_capture_add(stream, item) : double_post(stream, item);
    if (item->kernel && !stream->capture)
        double_add(&double_handed.kernels, 1);
    pthread_mutex_unlock(&double_lock);
    return error;
}

unsigned double_enqueue(struct CUstream_st *stream, double_work run, const void *data, size_t bytes,
                        int kernel)
{
    const struct double_item item = {run, data, bytes, kernel, NULL};
    if (!double_failed() && kernel && stream->device != double_current())
        return cudaErrorInvalidResourceHandle; // as on a stream of another GPU
    return enqueue(stream, &item);
}

unsigned double_enqueue_when(struct CUstream_st *stream, double_ready ready, double_work run,
                             const void *data, size_t bytes)
{
    return enqueue(stream, &(struct double_item){run, data, bytes, 0, ready});
}

int double_device_of(const struct CUstream_st *stream)
{
    return stream->device;
}

int double_priority_of(const struct CUstream_st *stream)
{
    return stream->priority;
}
