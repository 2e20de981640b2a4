// SPDX-License-Identifier: Apache-2.0
// Device `cuda`: NVIDIA's GPUs. This part is thin: whether a GPU can be used is asked at every start, and the driver alone
// answers it. What computes (own kernels, cuBLASLt, cuDNN: some 200 MB when loaded) lies in cuda-engine.so beside this file,
// and is opened when a device is.
//
// Options: deadline=SECONDS, how long a call may wait for the GPU; recording=off, no CUDA graphs; tf32=on lets products of float32
// round their factors to TF32 (off); timing=on takes the fastest of cuDNN's plans instead of the first, and plans=FILE keeps which
// that were; arena=off makes each buffer an allocation of its own, for compute-sanitizer.
#define _GNU_SOURCE // dladdr

#include "plugins/device/cuda/driver.h"
#include "plugins/device/cuda/engine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef CUDA_LIBRARY_FILES
#error "the build lists the libraries' files: CUDA_LIBRARY_FILES"
#endif

// ---- Is it there? ----

// Where they were when this was built, and the name by which the dynamic linker is asked otherwise.
static const struct library {
    const char *package, *file, *name;
} libraries[] = {CUDA_LIBRARY_FILES};

// Whether a folder of LD_LIBRARY_PATH has it. Opening it, to find out, takes as long as starting with it.
static int is_on_path(const char *name)
{
    char file[4096];
    for (const char *path = getenv("LD_LIBRARY_PATH"); path && *path;) {
        const size_t length = strcspn(path, ":;");
        if (length &&
            snprintf(file, sizeof(file), "%.*s/%s", (int)length, path, name) < (int)sizeof(file) &&
            access(file, R_OK) == 0)
            return 1;
        path += length + (path[length] != '\0');
    }
    return 0;
}

static int32_t find_libraries(char *reason, size_t bytes)
{
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        const struct library *library = &libraries[i];
        if (access(library->file, R_OK) == 0 || is_on_path(library->name))
            continue;
        void *handle = dlopen(library->name, RTLD_LAZY | RTLD_LOCAL);
        if (!handle) {
            snprintf(reason, bytes, "missing library: %s, neither %s nor in LD_LIBRARY_PATH (%s)",
                     library->name, library->file, library->package);
            return LS_UNAVAILABLE;
        }
        dlclose(handle);
    }
    return LS_OK;
}

static int32_t cuda_probe(char *reason, uint64_t bytes)
{
    const int32_t status = cuda_driver_ask(NULL, reason, bytes);
    return status ? status : find_libraries(reason, bytes);
}

static int32_t cuda_describe(const struct ls_host *host, struct ls_device_info *out)
{
    char reason[400];
    struct cuda_driver_info info;
    const int32_t status = cuda_driver_ask(&info, reason, sizeof(reason));
    if (status)
        return host->fail(host, status, reason);
    out->physical_count = info.count;
    snprintf(out->hardware, sizeof(out->hardware), "%s (%.0f GB, compute capability %d.%d)",
             info.name, (double)info.bytes * 1e-9, info.major, info.minor);
    return LS_OK;
}

// ---- The engine part ----

static const struct cuda_engine *engine; // set once, by the first who opens a device
static pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;

// The file beside this one.
static int engine_path(char *path, size_t bytes)
{
    Dl_info about;
    static const char here;
    if (!dladdr(&here, &about) || !about.dli_fname)
        return 0;
    const char *slash = strrchr(about.dli_fname, '/');
    const int length = slash ? (int)(slash - about.dli_fname) : 1;
    return snprintf(path, bytes, "%.*s/cuda-engine.so", length, slash ? about.dli_fname : ".") <
           (int)bytes;
}

static int32_t load_engine(const struct ls_host *host)
{
    char path[4096];
    const struct cuda_engine *(*get)(void);
    if (!engine_path(path, sizeof(path)))
        return ls_host_fail(host, LS_UNAVAILABLE, "its own folder is not known");
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return ls_host_fail(host, LS_UNAVAILABLE, "missing library: %s", dlerror());
    *(void **)&get = dlsym(handle, CUDA_ENGINE_ENTRY);
    if (!get || get()->struct_size != sizeof(struct cuda_engine) ||
        get()->calls->struct_size != sizeof(struct ls_device_interface))
        return ls_host_fail(host, LS_UNAVAILABLE, "%s is of another version: install both again",
                            path);
    engine = get();
    return LS_OK;
}

static int32_t need_engine(const struct ls_host *host)
{
    pthread_mutex_lock(&engine_lock);
    const int32_t status = engine ? LS_OK : load_engine(host);
    pthread_mutex_unlock(&engine_lock);
    return status;
}

static int32_t cuda_open(const struct ls_host *host, const struct ls_device_config *config,
                         struct ls_device *device)
{
    const int32_t status = need_engine(host);
    return status ? status : engine->calls->open(host, config, device);
}

// ---- Choices, which other processes make too: these come without a device ----

static int32_t cuda_choices_give(const struct ls_host *host, void *out, uint64_t bytes,
                                 uint64_t *needed)
{
    const int32_t status = need_engine(host);
    return status ? status : engine->calls->choices->give(host, out, bytes, needed);
}

static int32_t cuda_choices_take(const struct ls_host *host, const void *choices, uint64_t bytes)
{
    const int32_t status = need_engine(host);
    return status ? status : engine->calls->choices->take(host, choices, bytes);
}

// ---- Calls of a device ----

// Who has a device came through cuda_open().
static void cuda_close(struct ls_device *device)
{
    engine->calls->close(device);
}

// A call of the plugin that is one of the engine part.
#define FORWARD(result, name, call, parameters, arguments) \
    static result name parameters                          \
    {                                                      \
        return engine->calls->call arguments;              \
    }
#define FORWARD_VOID(name, call, parameters, arguments) \
    static void name parameters                         \
    {                                                   \
        engine->calls->call arguments;                  \
    }
FORWARD(struct ls_buffer *, cuda_allocate, memory->allocate,
        (struct ls_device * device, uint64_t bytes), (device, bytes))
FORWARD_VOID(cuda_release, memory->release, (struct ls_device * device, struct ls_buffer *buffer),
             (device, buffer))
FORWARD(int32_t, cuda_copy, memory->copy,
        (struct ls_device * device, struct ls_memory to, struct ls_memory from, uint64_t bytes,
         void *stream),
        (device, to, from, bytes, stream))
FORWARD(int32_t, cuda_zero, memory->zero,
        (struct ls_device * device, struct ls_memory memory, uint64_t bytes, void *stream),
        (device, memory, bytes, stream))
FORWARD(int32_t, cuda_prepare, kernels->prepare,
        (struct ls_device * device, const struct ls_kernel_request *request,
         struct ls_kernel_answer *out),
        (device, request, out))
FORWARD(int32_t, cuda_launch, kernels->launch,
        (struct ls_device * device, const struct ls_kernel *kernel, const struct ls_launch *launch),
        (device, kernel, launch))
FORWARD_VOID(cuda_release_kernel, kernels->release,
             (struct ls_device * device, struct ls_kernel *kernel), (device, kernel))
FORWARD(int32_t, cuda_prepare_segment, kernels->prepare_segment,
        (struct ls_device * device, const struct ls_segment_request *request,
         struct ls_kernel_answer *out),
        (device, request, out))
FORWARD(int32_t, cuda_stream_open, streams->open, (struct ls_device * device, void **out),
        (device, out))
FORWARD(int32_t, cuda_stream_open_urgent, streams->open_urgent,
        (struct ls_device * device, void **out), (device, out))
FORWARD_VOID(cuda_stream_close, streams->close, (struct ls_device * device, void *stream),
             (device, stream))
FORWARD(int32_t, cuda_stream_native, streams->native,
        (struct ls_device * device, void *stream, struct ls_native_stream *out),
        (device, stream, out))
FORWARD(int32_t, cuda_event_open, streams->event_open,
        (struct ls_device * device, struct ls_event **out), (device, out))
FORWARD_VOID(cuda_event_close, streams->event_close,
             (struct ls_device * device, struct ls_event *event), (device, event))
FORWARD(int32_t, cuda_event_record, streams->event_record,
        (struct ls_device * device, struct ls_event *event, void *stream), (device, event, stream))
FORWARD(int32_t, cuda_event_wait, streams->event_wait,
        (struct ls_device * device, struct ls_event *event, void *stream), (device, event, stream))
FORWARD(int32_t, cuda_event_query, streams->event_query,
        (struct ls_device * device, const struct ls_event *event), (device, event))
FORWARD(void *, cuda_allocate_host, staging->allocate, (struct ls_device * device, uint64_t bytes),
        (device, bytes))
FORWARD_VOID(cuda_release_host, staging->release, (struct ls_device * device, void *memory),
             (device, memory))
FORWARD(int32_t, cuda_copy_async, staging->copy_async,
        (struct ls_device * device, struct ls_memory to, struct ls_memory from, uint64_t bytes,
         void *stream),
        (device, to, from, bytes, stream))
FORWARD(int32_t, cuda_reduce, peers->reduce,
        (struct ls_device * device, const struct ls_device_reduction *call, void *stream),
        (device, call, stream))
FORWARD(int32_t, cuda_can_access_peer, peers->can_access_peer,
        (struct ls_device * device, struct ls_device *other), (device, other))
FORWARD(int32_t, cuda_record_begin, capture->begin, (struct ls_device * device), (device))
FORWARD(int32_t, cuda_record_end, capture->end,
        (struct ls_device * device, struct ls_recording **out), (device, out))
FORWARD(int32_t, cuda_replay, capture->replay,
        (struct ls_device * device, const struct ls_recording *recording), (device, recording))
FORWARD_VOID(cuda_release_recording, capture->release,
             (struct ls_device * device, struct ls_recording *recording), (device, recording))

static void cuda_abandon(struct ls_device *device)
{
    engine->calls->abandon(device);
}

// ---- Tables ----

enum { ALL_ACTIVATIONS = (1 << (LS_HARD_SIGMOID + 1)) - 1 }; // that bodies.h knows

static const struct ls_fusion_pattern patterns[] = {
    {LS_OP_CONV2D, LS_OP_ACTIVATION, ALL_ACTIVATIONS},
    {LS_OP_DENSE, LS_OP_ACTIVATION, ALL_ACTIVATIONS},
    {LS_OP_ADD, LS_OP_ACTIVATION, ALL_ACTIVATIONS},
    {LS_OP_BATCH_NORMALIZATION, LS_OP_ADD, 0},
    {LS_OP_BATCH_NORMALIZATION, LS_OP_ACTIVATION, ALL_ACTIVATIONS},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE, LS_OP_ADD, 0},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE, LS_OP_ACTIVATION, ALL_ACTIVATIONS},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED, LS_OP_ADD, 0},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED, LS_OP_ACTIVATION, ALL_ACTIVATIONS},
    {LS_OP_CONV2D_BACKWARD_DATA, LS_OP_ACTIVATION_BACKWARD, ALL_ACTIVATIONS},
    {LS_OP_DENSE_BACKWARD_DATA, LS_OP_ACTIVATION_BACKWARD, ALL_ACTIVATIONS},
    {LS_OP_MAX_POOL2D_BACKWARD, LS_OP_ACTIVATION_BACKWARD, ALL_ACTIVATIONS},
    {LS_OP_AVERAGE_POOL2D_BACKWARD, LS_OP_ACTIVATION_BACKWARD, ALL_ACTIVATIONS},
    {LS_OP_CONVERT, LS_OP_LAYER_NORMALIZATION, 0},
    {LS_OP_CONVERT, LS_OP_LAYER_NORMALIZATION_BACKWARD, 0},
    {LS_OP_CONVERT, LS_OP_GATHER_ROWS, 0},
    {LS_OP_CONVERT, LS_OP_GATHER_ROWS_BACKWARD, 0},
    {LS_OP_CONVERT, LS_OP_ATTENTION, 0},
    {LS_OP_CONVERT, LS_OP_ATTENTION_BACKWARD, 0},
    {LS_OP_CONVERT, LS_OP_MATMUL, 0},
    {LS_OP_CONVERT, LS_OP_MATMUL_BACKWARD_LEFT, 0},
    {LS_OP_CONVERT, LS_OP_MATMUL_BACKWARD_RIGHT, 0},
};

static const struct ls_plugin_option options[] = {
    {"deadline", "integer", NULL,
     "seconds that a call may wait for the GPU; else those of the run (--deadline)"},
    {LS_RECORDING_OPTION, "one of: on, off", "on",
     "whether steps are recorded as CUDA graphs and replayed"},
    {"tf32", "one of: off, on", "off",
     "whether products of float32 may round their factors to 10 bits"},
    {"fused_attention", "one of: on, off", "on",
     "off: attention by products and a softmax, never by a plan of cuDNN"},
    {"timing", "one of: off, on", "off",
     "on: the fastest of cuDNN's first eight plans, timed; all replicas take the same"},
    {"plans", "text", NULL,
     "a file of plans that were timed: they are taken from it, and with timing=on added to it"},
    {LS_BRANCHES_OPTION, "one of: on, off", NULL,
     "gradients of weights on a second stream beside those of data; else where steps are recorded"},
    {"arena", "one of: on, off", "on",
     "off: each buffer is an allocation of its own, so that compute-sanitizer sees its ends"},
    {NULL, NULL, NULL, NULL},
};

#include "plugins/device/cuda/tables.h" // of what is forwarded above

static const struct ls_device_interface device_interface = {
    .struct_size = sizeof(device_interface),
    .memory_kind = LS_MEMORY_CUDA,
    .patterns = patterns,
    .pattern_count = sizeof(patterns) / sizeof(patterns[0]),
    .blocking = 0,
    .state_bytes = CUDA_DEVICE_BYTES,
    .describe = cuda_describe,
    .open = cuda_open,
    .close = cuda_close,
    .abandon = cuda_abandon,
    .memory = &memory_calls,
    .kernels = &kernel_calls,
    .streams = &stream_calls,
    .staging = &staging_calls,
    .peers = &peer_calls,
    .capture = &capture_calls,
    .choices = &choice_calls,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_DEVICE),
    .name = "cuda",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "NVIDIA GPUs: cuBLASLt, cuDNN and own kernels",
    .options = options,
    .probe = cuda_probe,
    .interface = &device_interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
