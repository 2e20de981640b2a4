// SPDX-License-Identifier: Apache-2.0
// Streams, events and errors of the double: work is queued and done later.
#include "tests/support/cuda-double/double.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct work {
    double_work run; // NULL: it fails; at the end of the queue stays the last one for good
    int hangs;
    struct work *next;
    _Alignas(16) unsigned char data[];
};

struct CUstream_st {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    struct work *first, **last;
    uint64_t posted, done;
    uint64_t asked; // deferred: what had been posted when somebody asked last
    int deferred, ending;
};

struct CUevent_st {
    struct CUstream_st *stream; // NULL: never recorded
    uint64_t ticket;
};

static unsigned failure; // for good, as after a kernel that failed; changed with __atomic_* only
static uint64_t kernels;

static unsigned failed(void)
{
    return __atomic_load_n(&failure, __ATOMIC_ACQUIRE);
}

// The first of the queue, under the lock, which is open while it runs. 0: it never ends.
static int run_first(struct CUstream_st *stream)
{
    struct work *work = stream->first;
    if (work->hangs)
        return 0;
    pthread_mutex_unlock(&stream->lock);
    if (!work->run)
        __atomic_store_n(&failure, cudaErrorLaunchFailure, __ATOMIC_RELEASE);
    else if (!failed())
        work->run(work->data);
    pthread_mutex_lock(&stream->lock);
    stream->first = work->next;
    if (!stream->first)
        stream->last = &stream->first;
    stream->done++;
    free(work);
    return 1;
}

static void pause_now_and_then(uint64_t number)
{
    if (number % 61 == 7)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    else if (number % 3 == 0)
        sched_yield();
}

static void *serve(void *argument)
{
    struct CUstream_st *stream = argument;
    pthread_mutex_lock(&stream->lock);
    while (!stream->ending || stream->first) {
        if (!stream->first || stream->first->hangs) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        const uint64_t number = stream->done;
        pthread_mutex_unlock(&stream->lock);
        pause_now_and_then(number);
        pthread_mutex_lock(&stream->lock);
        run_first(stream);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

unsigned cudaStreamCreateWithFlags(struct CUstream_st **out, unsigned flags)
{
    const char *mode = getenv("CUDA_DOUBLE_STREAMS");
    struct CUstream_st *stream = calloc(1, sizeof(*stream));
    if (failed() || !stream || flags != cudaStreamNonBlocking) {
        free(stream);
        return failed() ? failed() : 1;
    }
    stream->deferred = mode && strcmp(mode, "deferred") == 0;
    stream->last = &stream->first;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    if (!stream->deferred && pthread_create(&stream->thread, NULL, serve, stream)) {
        free(stream);
        return cudaErrorMemoryAllocation;
    }
    double_add(&double_live.streams, 1);
    *out = stream;
    return cudaSuccess;
}

unsigned cudaStreamDestroy(struct CUstream_st *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->ending = 1;
    pthread_cond_broadcast(&stream->changed);
    while (stream->deferred && stream->first && run_first(stream))
        ;
    pthread_mutex_unlock(&stream->lock);
    if (!stream->deferred)
        pthread_join(stream->thread, NULL);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->changed);
    free(stream);
    double_add(&double_live.streams, -1);
    return failed();
}

// Whether everything up to `ticket` is done. Deferred streams do nothing at the first question.
static unsigned ask(struct CUstream_st *stream, uint64_t ticket)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->deferred && stream->done < ticket) {
        const int again = stream->asked >= ticket;
        stream->asked = stream->posted;
        while (again && stream->done < ticket && run_first(stream))
            ;
    }
    const int done = stream->done >= ticket;
    pthread_mutex_unlock(&stream->lock);
    return failed() ? failed() : done ? cudaSuccess : cudaErrorNotReady;
}

unsigned cudaStreamQuery(struct CUstream_st *stream)
{
    pthread_mutex_lock(&stream->lock);
    const uint64_t posted = stream->posted;
    pthread_mutex_unlock(&stream->lock);
    return ask(stream, posted);
}

static int is_the(const char *name, uint64_t number)
{
    return (uint64_t)double_setting(name, -1) == number;
}

unsigned double_enqueue(struct CUstream_st *stream, double_work run, const void *data, size_t bytes,
                        int kernel)
{
    const uint64_t number = kernel ? __atomic_fetch_add(&kernels, 1, __ATOMIC_RELAXED) : 0;
    struct work *work = malloc(sizeof(*work) + bytes);
    if (failed() || !work) {
        free(work);
        return failed() ? failed() : cudaErrorMemoryAllocation;
    }
    *work = (struct work){.run = run, .hangs = kernel && is_the("CUDA_DOUBLE_HANG", number)};
    if (kernel && is_the("CUDA_DOUBLE_FAIL", number))
        work->run = NULL;
    memcpy(work->data, data, bytes);
    pthread_mutex_lock(&stream->lock);
    *stream->last = work;
    stream->last = &work->next;
    stream->posted++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return cudaSuccess;
}

// ---- Copies ----

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int value;
};

static void run_copy(const void *data)
{
    const struct copy *copy = data;
    memmove(copy->to, copy->from, copy->bytes);
}

static void run_set(const void *data)
{
    const struct copy *copy = data;
    memset(copy->to, copy->value, copy->bytes);
}

unsigned cudaMemcpyAsync(void *to, const void *from, size_t bytes, unsigned kind,
                         struct CUstream_st *stream)
{
    struct copy copy = {.to = to, .from = from, .bytes = bytes};
    if (kind != cudaMemcpyDeviceToHost)
        copy.to = double_reach(to);
    if (kind != cudaMemcpyHostToDevice)
        copy.from = double_reach(from);
    return double_enqueue(stream, run_copy, &copy, sizeof(copy), 0);
}

unsigned cudaMemsetAsync(void *memory, int value, size_t bytes, struct CUstream_st *stream)
{
    const struct copy copy = {.to = double_reach(memory), .bytes = bytes, .value = value};
    return double_enqueue(stream, run_set, &copy, sizeof(copy), 0);
}

// ---- Events ----

unsigned cudaEventCreateWithFlags(struct CUevent_st **out, unsigned flags)
{
    *out = calloc(1, sizeof(**out));
    if (!*out || flags != cudaEventDisableTiming)
        return cudaErrorMemoryAllocation;
    double_add(&double_live.events, 1);
    return failed();
}

unsigned cudaEventDestroy(struct CUevent_st *event)
{
    free(event);
    double_add(&double_live.events, -1);
    return cudaSuccess;
}

unsigned cudaEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    pthread_mutex_lock(&stream->lock);
    event->stream = stream;
    event->ticket = stream->posted;
    pthread_mutex_unlock(&stream->lock);
    return failed();
}

unsigned cudaEventQuery(struct CUevent_st *event)
{
    return event->stream ? ask(event->stream, event->ticket) : failed();
}

// ---- Errors and versions ----

unsigned cudaGetLastError(void)
{
    return failed();
}

const char *cudaGetErrorName(unsigned error)
{
    return error == cudaErrorLaunchFailure      ? "cudaErrorLaunchFailure"
           : error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
           : error == cudaErrorNoDevice         ? "cudaErrorNoDevice"
                                                : "an error of the double";
}

const char *cudaGetErrorString(unsigned error)
{
    return error == cudaErrorLaunchFailure      ? "unspecified launch failure"
           : error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorNoDevice         ? "no CUDA-capable device is detected"
                                                : "an error of the double";
}

unsigned cudaDriverGetVersion(int *version)
{
    *version = (int)double_setting("CUDA_DOUBLE_VERSION", 13000);
    return cudaSuccess;
}

unsigned cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

unsigned cudaGetDeviceCount(int *count)
{
    const int found = (int)double_setting("CUDA_DOUBLE_DEVICES", 1);
    if (double_setting("CUDA_DOUBLE_VERSION", 13000) < 13000)
        return cudaErrorInsufficientDriver;
    if (found < 1)
        return cudaErrorNoDevice;
    *count = found;
    return cudaSuccess;
}
