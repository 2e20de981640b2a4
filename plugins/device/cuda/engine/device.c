// SPDX-License-Identifier: Apache-2.0
// The engine part of device `cuda`: opens a virtual device (a stream and the libraries' handles for it).
// cuda.c opens this object when a device is wanted, and calls its one function.
#include "plugins/device/cuda/engine.h"
#include "plugins/device/cuda/engine/internal.h"
#include "plugins/device/cuda/tables.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_DNN 90000 // version of cuDNN whose graph API is complete enough

// ---- Opening and closing ----

static void device_abandon(struct ls_device *device)
{
    device->hung = true;
}

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
    cuda_choices_finish(device);
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

// What of the GPU decides which plans of cuDNN can be had and are fast.
static int32_t find_hardware(struct ls_device *device)
{
    enum { PART = 20 }; // of the GPU's memory
    static const unsigned asked[] = {
        cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor,
        cudaDevAttrMultiProcessorCount, cudaDevAttrGlobalMemoryBusWidth};
    const uint64_t most = UINT64_C(1) << 30;
    const struct cuda_calls *calls = device->calls;
    int answers[4] = {0};
    size_t unused, total;
    int32_t status = cuda_check(device, calls->cudaMemGetInfo(&unused, &total),
                                "asking for the size of the memory");
    for (int i = 0; !status && i < 4; i++)
        status = cuda_check(
            device, calls->cudaDeviceGetAttribute(&answers[i], asked[i], (int)device->index),
            "asking what the GPU is");
    if (status)
        return status;
    device->most_workspace = total / PART < most ? total / PART : most;
    const int64_t hardware[CUDA_HARDWARE] = {10 * answers[0] + answers[1], answers[2], answers[3],
                                             (int64_t)(total >> 30),
                                             (int64_t)calls->cudnnGetVersion()};
    memcpy(device->hardware, hardware, sizeof(hardware));
    return LS_OK;
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
        status = find_hardware(device);
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
        status = read_switch(host, "timing", &device->timing);
    device->fused_attention = true;
    if (!status)
        status = read_switch(host, "fused_attention", &device->fused_attention);
    device->alone = !arena;
    device->plans = host->option(host, "plans");
    return status ? status : cuda_choices_read(device);
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
    if (calls->cudnnGetVersion() < LEAST_DNN)
        return ls_host_fail(host, LS_UNAVAILABLE, "cuDNN %zu is too old: install %d or newer",
                            calls->cudnnGetVersion(), LEAST_DNN);
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
    .choices = &choice_calls,
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
