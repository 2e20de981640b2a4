// SPDX-License-Identifier: Apache-2.0
// Events of the fake: how far a stream was when it was marked. Who waits for one waits for the mark of that moment.
#include "tests/support/cuda-fake/stream.h"

#include <stdlib.h>

unsigned cudaEventCreateWithFlags(struct CUevent_st **out, unsigned flags)
{
    struct CUevent_st *event = calloc(1, sizeof(*event));
    if (!event || flags != cudaEventDisableTiming) {
        free(event);
        return cudaErrorMemoryAllocation;
    }
    event->device = double_current();
    double_add(&double_live.events, 1);
    *out = event;
    return double_failed();
}

unsigned cudaEventDestroy(struct CUevent_st *event)
{
    pthread_mutex_lock(&double_lock);
    double_line_drop(event->line);
    pthread_mutex_unlock(&double_lock);
    free(event);
    double_add(&double_live.events, -1);
    return cudaSuccess;
}

unsigned cudaEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    if (event->device != double_device_of(stream))
        return cudaErrorInvalidResourceHandle;
    pthread_mutex_lock(&double_lock);
    double_line_drop(event->line);
    event->line = NULL;
    event->capture = 0;
    if (stream->capture) {
        double_capture_record(stream, event);
    } else {
        event->line = double_line_hold(stream->line);
        event->ticket = stream->line->posted;
    }
    pthread_mutex_unlock(&double_lock);
    return double_failed();
}

unsigned cudaEventQuery(struct CUevent_st *event)
{
    pthread_mutex_lock(&double_lock);
    unsigned error = double_capture_spoils_locked();
    if (!error && event->capture)
        error = cudaErrorCapturedEvent;
    if (!error)
        error = event->line ? double_ask(event->line, event->ticket) : double_failed();
    pthread_mutex_unlock(&double_lock);
    return error;
}

unsigned cudaStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    unsigned error = flags ? 1 : double_failed();
    pthread_mutex_lock(&double_lock);
    if (!error && (stream->capture || event->capture))
        error = double_capture_wait(stream, event);
    else if (!error && event->line && event->line->done < event->ticket)
        error = double_post_wait(stream, event->line, event->ticket);
    pthread_mutex_unlock(&double_lock);
    return error;
}
