// SPDX-License-Identifier: Apache-2.0
// Streams beside the device's own, and events between streams, also of several GPUs. Only closing a stream waits.
#include "plugins/device/cuda/engine/internal.h"

#include <stdlib.h>

// ---- Streams ----

// After the clearing of the memory that there is.
static int32_t open_stream(struct ls_device *device, bool urgent, void **out)
{
    const struct cuda_calls *calls = device->calls;
    int least, greatest;
    int32_t status = cuda_enter(device, NULL);
    if (!status)
        status = cuda_check(device, calls->cudaDeviceGetStreamPriorityRange(&least, &greatest),
                            "asking for priorities");
    if (!status)
        status = cuda_wait(device, device->own, "opening a stream");
    if (status)
        return status;
    struct cuda_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a stream");
    status = cuda_check(device,
                        calls->cudaStreamCreateWithPriority(&stream->native, cudaStreamNonBlocking,
                                                            urgent ? greatest : least),
                        "making a stream");
    if (status) {
        free(stream);
        return status;
    }
    stream->next = device->streams;
    device->streams = stream;
    *out = stream;
    return LS_OK;
}

int32_t cuda_stream_open(struct ls_device *device, void **out)
{
    return open_stream(device, false, out);
}

// Else the kernels of a collective are behind all blocks of a kernel that fills the GPU, and every GPU waits for the last one.
int32_t cuda_stream_open_urgent(struct ls_device *device, void **out)
{
    return open_stream(device, true, out);
}

static void forget_stream(struct ls_device *device, struct cuda_stream *stream)
{
    struct cuda_stream **place = &device->streams;
    while (*place != stream)
        place = &(*place)->next;
    *place = stream->next;
    // cuDNN's handle must not name a stream that is no more.
    if (device->dnn && device->dnn_stream == stream->native)
        device->dnn_stream =
            device->calls->cudnnSetStream(device->dnn, device->own) ? NULL : device->own;
    device->calls->cudaStreamDestroy(stream->native);
    free(stream);
}

// A stream whose work never ends stays, as the device then does.
void cuda_stream_close(struct ls_device *device, void *stream)
{
    if (stream && !cuda_enter(device, stream) &&
        cuda_wait(device, device->stream, "closing a stream") != LS_PEER_LOST && !device->recording)
        forget_stream(device, stream);
}

void cuda_streams_finish(struct ls_device *device)
{
    while (device->streams) {
        struct cuda_stream *stream = device->streams;
        device->streams = stream->next;
        device->calls->cudaStreamDestroy(stream->native);
        free(stream);
    }
}

int32_t cuda_stream_native(struct ls_device *device, void *stream, struct ls_native_stream *out)
{
    char identity[sizeof(out->identity)] = "";
    int32_t status = cuda_enter(device, stream);
    if (!status)
        status = cuda_check(
            device,
            device->calls->cudaDeviceGetPCIBusId(identity, sizeof(identity), (int)device->index),
            "asking for the PCI bus id");
    if (status)
        return status;
    out->family = LS_STREAM_CUDA;
    out->native = device->stream;
    out->index = device->index;
    snprintf(out->identity, sizeof(out->identity), "%s", identity);
    return LS_OK;
}

// ---- Events ----

int32_t cuda_event_open(struct ls_device *device, struct ls_event **out)
{
    int32_t status = cuda_enter(device, NULL);
    if (status)
        return status;
    struct ls_event *event = calloc(1, sizeof(*event));
    if (!event)
        return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for an event");
    status = cuda_check(
        device, device->calls->cudaEventCreateWithFlags(&event->native, cudaEventDisableTiming),
        "making an event");
    if (status) {
        free(event);
        return status;
    }
    *out = event;
    return LS_OK;
}

void cuda_event_close(struct ls_device *device, struct ls_event *event)
{
    if (!event)
        return;
    device->calls->cudaEventDestroy(event->native);
    free(event);
}

int32_t cuda_event_record(struct ls_device *device, struct ls_event *event, void *stream)
{
    const int32_t status = cuda_enter(device, stream);
    return status
               ? status
               : cuda_check(device, device->calls->cudaEventRecord(event->native, device->stream),
                            "recording an event");
}

int32_t cuda_event_wait(struct ls_device *device, struct ls_event *event, void *stream)
{
    const int32_t status = cuda_enter(device, stream);
    return status ? status
                  : cuda_check(device,
                               device->calls->cudaStreamWaitEvent(device->stream, event->native, 0),
                               "waiting for an event");
}

// By any thread: it changes nothing of the device but what was said.
int32_t cuda_event_query(struct ls_device *device, const struct ls_event *event)
{
    const struct cuda_calls *calls = device->calls;
    const unsigned error = calls->cudaEventQuery(event->native);
    if (error == cudaSuccess || error == cudaErrorNotReady)
        return error ? LS_AGAIN : LS_OK;
    calls->cudaGetLastError();
    if (cuda_said(device, error))
        return LS_FAILED;
    return ls_host_fail(device->host, LS_FAILED,
                        "GPU %u: asking about an event: %s (%s); launched last: %s", device->index,
                        calls->cudaGetErrorString(error), calls->cudaGetErrorName(error),
                        cuda_last(device));
}
