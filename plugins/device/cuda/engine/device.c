// SPDX-License-Identifier: Apache-2.0
// The engine part of device `cuda`: opens a virtual device (a stream and the libraries' handles for it), and says what
// failed. cuda.c opens this object when a device is wanted, and calls its one function.
#include "plugins/device/cuda/engine.h"
#include "plugins/device/cuda/engine/internal.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEAST_PLANS 90000 // version of cuDNN

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
        const unsigned state = query(device, event, stream);
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

static void device_abandon(struct ls_device *device)
{
    device->hung = true;
}

// ---- Opening and closing ----

// Devices whose work never ended: what they hold may still be written to.
static struct ls_device *_Atomic abandoned;

// The host frees the state of the device, so what still names its memory is kept in a copy.
static void keep_abandoned(const struct ls_device *device)
{
    struct ls_device *kept = malloc(sizeof(*kept));
    if (!kept)
        return;
    *kept = *device;
    kept->next = atomic_exchange(&abandoned, kept);
}

static void device_close(struct ls_device *device)
{
    const struct cuda_calls *calls = device->calls;
    struct ls_recording *unfinished = NULL;
    if (device->recording && !cuda_record_end(device, &unfinished))
        cuda_release_recording(device, unfinished);
    calls->cudaSetDevice((int)device->index);
    if (cuda_wait_all(device, "closing the device") == LS_PEER_LOST) {
        keep_abandoned(device);
        return;
    }
    cuda_plans_finish(device);
    if (device->dnn)
        calls->cudnnDestroy(device->dnn);
    if (device->blas)
        calls->cublasLtDestroy(device->blas);
    cuda_staging_close(device);
    cuda_streams_finish(device);
    cuda_arena_finish(device);
    if (device->own)
        calls->cudaStreamDestroy(device->own);
}

static int32_t find_most_workspace(struct ls_device *device)
{
    enum { PART = 20 }; // of the GPU's memory
    const uint64_t most = UINT64_C(1) << 30;
    size_t unused, total;
    const int32_t status = cuda_check(device, device->calls->cudaMemGetInfo(&unused, &total),
                                      "asking for the size of the memory");
    if (!status)
        device->most_workspace = total / PART < most ? total / PART : most;
    return status;
}

static int32_t open_handles(struct ls_device *device)
{
    const struct cuda_calls *calls = device->calls;
    int32_t status = cuda_enter(device, NULL);
    if (!status)
        status = cuda_check(device,
                            calls->cudaStreamCreateWithFlags(&device->own, cudaStreamNonBlocking),
                            "making a stream");
    if (!status)
        status = cuda_check(device, cuda_kernels_load(), "loading kernels");
    if (!status)
        status = cuda_check_blas(device, calls->cublasLtCreate(&device->blas), "opening cuBLASLt");
    if (!status)
        status = cuda_check_dnn(device, calls->cudnnCreate(&device->dnn), "opening cuDNN");
    if (!status)
        status = cuda_check_dnn(device, calls->cudnnSetStream(device->dnn, device->own),
                                "opening cuDNN");
    device->dnn_stream = device->own;
    if (!status)
        status = find_most_workspace(device);
    return status ? status : cuda_staging_open(device);
}

// What the runtime answers where it cannot run at all; the thin part asked the driver before.
static int32_t check_runtime(const struct ls_host *host, const struct cuda_calls *calls,
                             uint32_t index)
{
    int count = 0, driver = 0, runtime = 0;
    const unsigned error = calls->cudaGetDeviceCount(&count);
    calls->cudaDriverGetVersion(&driver);
    calls->cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver && driver)
        return ls_host_fail(host, LS_UNAVAILABLE,
                            "the driver knows CUDA %d.%d, the runtime needs %d.%d: install a newer "
                            "driver",
                            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error)
        return ls_host_fail(host, LS_UNAVAILABLE, "the CUDA runtime does not start: %s",
                            calls->cudaGetErrorString(error));
    if (index >= (uint32_t)count)
        return ls_host_fail(host, LS_UNAVAILABLE, "there is no GPU %u, only %d", index, count);
    return LS_OK;
}

static int32_t read_deadline(const struct ls_host *host, const struct ls_device_config *config,
                             struct ls_device *device)
{
    enum { MOST = 1000000 };
    const char *text = host->option(host, "deadline");
    const long long seconds = text ? strtoll(text, NULL, 10) : 60;
    if (seconds < 1 || seconds > MOST)
        return ls_host_fail(host, LS_USAGE, "deadline=%s: it is 1 to %d seconds", text, MOST);
    device->deadline_ns = !text && LS_HAS(config, deadline_ns) && config->deadline_ns
                              ? config->deadline_ns
                              : (uint64_t)seconds * 1000000000;
    return LS_OK;
}

// An option that is on or off; `out` stays as it is where nothing is said.
static int32_t read_switch(const struct ls_host *host, const char *name, bool *out)
{
    const char *text = host->option(host, name);
    if (!text)
        return LS_OK;
    if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
        return ls_host_fail(host, LS_USAGE, "%s=%s: it is on or off", name, text);
    *out = strcmp(text, "on") == 0;
    return LS_OK;
}

// cuDNN's graph API, where it is as complete as in the version that was asked for plans, else its calls of version 7.
static int32_t read_convolutions(const struct ls_host *host, struct ls_device *device)
{
    const char *text = host->option(host, "convolutions");
    if (text && strcmp(text, "plans") != 0 && strcmp(text, "version-7") != 0)
        return ls_host_fail(host, LS_USAGE, "convolutions=%s: it is plans or version-7", text);
    device->plans =
        text ? strcmp(text, "plans") == 0 : device->calls->cudnnGetVersion() >= LEAST_PLANS;
    return read_switch(host, "timing", &device->timing);
}

static int32_t read_options(const struct ls_host *host, const struct ls_device_config *config,
                            struct ls_device *device)
{
    bool arena = true;
    int32_t status = read_deadline(host, config, device);
    if (!status)
        status = read_switch(host, "tf32", &device->tf32);
    if (!status)
        status = read_switch(host, "arena", &arena);
    if (!status)
        status = read_convolutions(host, device);
    device->alone = !arena;
    return status;
}

static int32_t device_open(const struct ls_host *host, const struct ls_device_config *config,
                           struct ls_device *device)
{
    char reason[400];
    const struct cuda_calls *calls = cuda_calls_get(reason, sizeof(reason));
    if (!calls)
        return ls_host_fail(host, LS_UNAVAILABLE, "%s", reason);
    int32_t status = check_runtime(host, calls, config->index);
    if (status)
        return status;
    device->host = host;
    device->calls = calls;
    device->index = config->index;
    status = read_options(host, config, device);
    if (!status)
        status = open_handles(device);
    if (status)
        device_close(device);
    return status;
}

_Static_assert(sizeof(struct ls_device) <= CUDA_DEVICE_BYTES, "engine.h says too little");

static const struct ls_device_memory memory_calls = {
    .struct_size = sizeof(memory_calls),
    .allocate = cuda_allocate,
    .release = cuda_release,
    .copy = cuda_copy,
    .zero = cuda_zero,
};

static const struct ls_device_kernels kernel_calls = {
    .struct_size = sizeof(kernel_calls),
    .prepare = cuda_prepare,
    .launch = cuda_launch,
    .release = cuda_release_kernel,
};

static const struct ls_device_streams stream_calls = {
    .struct_size = sizeof(stream_calls),
    .open = cuda_stream_open,
    .close = cuda_stream_close,
    .native = cuda_stream_native,
    .event_open = cuda_event_open,
    .event_close = cuda_event_close,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_query = cuda_event_query,
};

static const struct ls_device_staging staging_calls = {
    .struct_size = sizeof(staging_calls),
    .allocate = cuda_allocate_host,
    .release = cuda_release_host,
    .copy_async = cuda_copy_async,
};

static const struct ls_device_peers peer_calls = {
    .struct_size = sizeof(peer_calls),
    .reduce = cuda_reduce,
    .can_access_peer = cuda_can_access_peer,
};

static const struct ls_device_capture capture_calls = {
    .struct_size = sizeof(capture_calls),
    .begin = cuda_record_begin,
    .end = cuda_record_end,
    .replay = cuda_replay,
    .release = cuda_release_recording,
};

static const struct ls_device_interface device_calls = {
    .struct_size = sizeof(device_calls),
    .open = device_open,
    .close = device_close,
    .abandon = device_abandon,
    .memory = &memory_calls,
    .kernels = &kernel_calls,
    .streams = &stream_calls,
    .staging = &staging_calls,
    .peers = &peer_calls,
    .capture = &capture_calls,
};

CUDA_ENGINE_EXPORT const struct cuda_engine *cuda_engine_get(void)
{
    static const struct cuda_engine engine = {
        .struct_size = sizeof(engine),
        .calls = &device_calls,
        .memory_use = cuda_memory_use,
    };
    return &engine;
}
