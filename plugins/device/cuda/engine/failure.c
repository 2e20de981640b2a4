// SPDX-License-Identifier: Apache-2.0
// What the runtime, cuBLASLt and cuDNN answer, as a status with a message; entering a call; and waits that end at a deadline.
#include "plugins/device/cuda/engine/internal.h"

#include <stdarg.h>
#include <time.h>

// ---- Failures ----

int32_t cuda_spoil(struct ls_device *device, int32_t status)
{
    if (device->recording && !device->spoilt)
        device->spoilt = status;
    return status;
}

int32_t cuda_check_recording(struct ls_device *device, const char *what)
{
    return device->recording ? cuda_spoil(device, ls_host_fail(device->host, LS_UNSUPPORTED,
                                                               "GPU %u: %s cannot be recorded",
                                                               device->index, what))
                             : LS_OK;
}

static bool is_of_recording(unsigned error)
{
    return error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread;
}

// A kernel that died, and memory or a link that failed, take everything after them along, in whatever words.
static bool is_for_good(unsigned error)
{
    return (error >= 700 && error <= cudaErrorLaunchFailure) ||
           error == cudaErrorECCUncorrectable || error == cudaErrorNvlinkUncorrectable ||
           error == cudaErrorContained;
}

bool cuda_said(struct ls_device *device, unsigned error)
{
    if (is_for_good(__atomic_load_n(&device->failure, __ATOMIC_RELAXED)))
        return true;
    return __atomic_exchange_n(&device->failure, error, __ATOMIC_RELAXED) == error;
}

void cuda_launched(struct ls_device *device, const char *name)
{
    __atomic_store_n(&device->last, name, __ATOMIC_RELAXED);
}

const char *cuda_last(const struct ls_device *device)
{
    const char *name = __atomic_load_n(&device->last, __ATOMIC_RELAXED);
    return name ? name : "nothing";
}

int32_t cuda_check(struct ls_device *device, unsigned error, const char *what)
{
    const struct cuda_calls *calls = device->calls;
    if (error == cudaSuccess)
        return LS_OK;
    calls->cudaGetLastError(); // what is not for good is forgotten
    if (is_of_recording(error))
        return cuda_spoil(
            device, ls_host_fail(device->host, LS_UNSUPPORTED,
                                 "GPU %u: %s cannot be recorded: %s (%s)", device->index, what,
                                 calls->cudaGetErrorString(error), calls->cudaGetErrorName(error)));
    cuda_spoil(device, LS_FAILED);
    if (error == cudaErrorMemoryAllocation)
        return ls_host_fail(device->host, LS_OUT_OF_MEMORY,
                            "GPU %u: %s: no memory left; a smaller batch or fewer replicas on "
                            "this GPU need less",
                            device->index, what);
    if (cuda_said(device, error))
        return LS_FAILED;
    return ls_host_fail(device->host, LS_FAILED, "GPU %u: %s: %s (%s); launched last: %s",
                        device->index, what, calls->cudaGetErrorString(error),
                        calls->cudaGetErrorName(error), cuda_last(device));
}

// What a library does not do while it is recorded, it may do otherwise: nothing of it has run.
static int32_t library_status(struct ls_device *device)
{
    return cuda_spoil(device, device->recording ? LS_UNSUPPORTED : LS_FAILED);
}

void cuda_log(struct ls_device *device, uint32_t level, const char *format, ...)
{
    char text[300];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    device->host->log(device->host, level, text);
}

// Answers that say that the library cannot do it, or does not take what it was given, and that
// nothing has run.
static bool refuses_blas(unsigned error)
{
    return error == CUBLAS_STATUS_NOT_SUPPORTED || error == CUBLAS_STATUS_INVALID_VALUE ||
           error == CUBLAS_STATUS_ARCH_MISMATCH;
}

// Thousands are the kinds of cuDNN's answers.
bool cuda_dnn_refuses(unsigned error)
{
    return error / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 ||
           error / 1000 == CUDNN_STATUS_BAD_PARAM / 1000;
}

// A library that meets the failure of an earlier kernel only says that it could not launch; the
// runtime knows what failed.
static int32_t check_library(struct ls_device *device, const char *library, const char *text,
                             bool refuses, const char *what)
{
    const unsigned earlier = refuses ? cudaSuccess : device->calls->cudaGetLastError();
    device->refused = refuses ? text : NULL;
    if (earlier)
        return cuda_check(device, earlier, what);
    return ls_host_fail(device->host, library_status(device), "GPU %u: %s: %s answers %s",
                        device->index, what, library, text);
}

int32_t cuda_check_blas(struct ls_device *device, unsigned error, const char *what)
{
    return error ? check_library(device, "cuBLASLt", device->calls->cublasLtGetStatusString(error),
                                 refuses_blas(error), what)
                 : LS_OK;
}

int32_t cuda_check_dnn(struct ls_device *device, unsigned error, const char *what)
{
    return error ? check_library(device, "cuDNN", device->calls->cudnnGetErrorString(error),
                                 cuda_dnn_refuses(error), what)
                 : LS_OK;
}

int32_t cuda_unsupported(struct ls_device *device, const struct ls_kernel *kernel, const char *why)
{
    return ls_host_fail(device->host, LS_UNSUPPORTED, "%s: %s", kernel->operation->name, why);
}

int32_t cuda_enter(struct ls_device *device, const void *stream)
{
    const struct cuda_stream *other = device->streams;
    while (stream && other && other != stream)
        other = other->next;
    if (stream && !other)
        return cuda_spoil(device, ls_host_fail(device->host, LS_UNSUPPORTED,
                                               "GPU %u: the stream is not one of this device",
                                               device->index));
    device->stream = stream ? other->native : device->own;
    return cuda_check(device, device->calls->cudaSetDevice((int)device->index), "choosing the GPU");
}

// ---- Waiting: the libraries' own waits know no deadline ----

static unsigned query(const struct ls_device *device, struct CUevent_st *event,
                      struct CUstream_st *stream)
{
    return event ? device->calls->cudaEventQuery(event) : device->calls->cudaStreamQuery(stream);
}

static int32_t wait(struct ls_device *device, struct CUevent_st *event, struct CUstream_st *stream,
                    const char *what)
{
    const struct ls_host *host = device->host;
    const uint64_t start = host->clock_ns(host);
    int32_t status = cuda_check_recording(device, what);
    if (device->hung)
        return LS_PEER_LOST; // said before
    while (!status) {
        unsigned state = query(device, event, stream);
        // It returns at once. A profiler completes its records there, and not where one asks.
        if (!state && stream)
            state = device->calls->cudaStreamSynchronize(stream);
        if (state != cudaErrorNotReady)
            return cuda_check(device, state, what);
        const uint64_t waited = host->clock_ns(host) - start;
        if (waited > device->deadline_ns) {
            device->hung = true;
            status = ls_host_fail(host, LS_PEER_LOST,
                                  "GPU %u: %s: not done after %.1f s; launched last: %s; it hangs, "
                                  "or --deadline is too short for it",
                                  device->index, what, (double)device->deadline_ns * 1e-9,
                                  cuda_last(device));
        }
        // A step takes from tens of microseconds on; sleeping earlier would be seen in it.
        if (waited > 200000)
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return status;
}

int32_t cuda_wait(struct ls_device *device, struct CUstream_st *stream, const char *what)
{
    return wait(device, NULL, stream, what);
}

int32_t cuda_wait_all(struct ls_device *device, const char *what)
{
    int32_t status = device->own ? wait(device, NULL, device->own, what) : LS_OK;
    for (const struct cuda_stream *other = device->streams; other && status != LS_PEER_LOST;
         other = other->next) {
        const int32_t later = wait(device, NULL, other->native, what);
        status = later ? later : status;
    }
    return status;
}

int32_t cuda_wait_event(struct ls_device *device, struct CUevent_st *event, const char *what)
{
    return wait(device, event, NULL, what);
}
