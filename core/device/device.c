// SPDX-License-Identifier: Apache-2.0
// Opens devices; and the guard of each call of a device, which is also what the core calls.
#include "core/device/device.h"

#include "core/base/compiling.h"
#include "core/base/instance.h"
#include "core/base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// More than any machine has, and little enough that sums of such sizes stay numbers.
#define MOST_BYTES (UINT64_C(1) << 46)

// ---- Life ----

static int32_t device_describe(const struct ls_host *host, struct ls_device_info *out)
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "describe");
    const struct ls_device_interface *own = call.own;
    const int32_t status = own->describe(host, out);
    out->hardware[sizeof(out->hardware) - 1] = '\0';
    return ls_guard_answer(&call, status, true);
}

static int32_t device_open(const struct ls_host *host, const struct ls_device_config *config,
                           struct ls_device *device)
{
    ls_instance_claim(device, host);
    const struct ls_guarded_call call = ls_guard_enter_host(host, "open");
    const struct ls_device_interface *own = call.own;
    return ls_guard_opened(&call, own->open(host, config, device));
}

static void device_close(struct ls_device *device)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "close");
    const struct ls_device_interface *own = call.own;
    own->close(device);
    ls_guard_leave(&call);
}

static void device_abandon(struct ls_device *device)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "abandon");
    const struct ls_device_interface *own = call.own;
    own->abandon(device);
    ls_guard_leave(&call);
}

enum ls_status ls_device_open_state(const struct ls_device_interface *interface,
                                    const struct ls_host *host,
                                    const struct ls_device_config *config, struct ls_device **out)
{
    static const struct ls_known_plugin unknown = {
        .kind = LS_KIND_DEVICE, .label = "device", .name = "device"};
    struct ls_device *device = ls_instance_create(interface, interface->state_bytes);
    if (!device)
        return LS_OUT_OF_MEMORY;
    ls_instance_of(device)->plugin = &unknown; // until the guard of `open` knows it
    const int32_t status = interface->open(host, config, device);
    if (status) {
        ls_instance_destroy(device);
        return (enum ls_status)status;
    }
    *out = device;
    return LS_OK;
}

enum ls_status ls_device_open(const struct ls_device_options *options, struct ls_device **out)
{
    const struct ls_device_config config = {.struct_size = sizeof(config),
                                            .index = options->index,
                                            .threads = options->threads,
                                            .deadline_ns = options->deadline_ns};
    const enum ls_status status =
        ls_device_open_state(options->interface, options->host, &config, out);
    if (!status)
        ls_instance_of(*out)->context = options->lack;
    return status;
}

void ls_device_close(struct ls_device *device)
{
    if (!device)
        return;
    ls_device_interface(device)->close(device);
    ls_instance_destroy(device);
}

void ls_device_abandon(struct ls_device *device)
{
    if (device && ls_device_interface(device)->abandon)
        ls_device_interface(device)->abandon(device);
}

bool ls_device_tell_lack(const struct ls_device *device, const char *format, ...)
{
    char *lack = ls_instance_of(device)->context;
    va_list list;
    if (!lack)
        return false;
    va_start(list, format);
    vsnprintf(lack, LS_LACK_BYTES, format, list);
    va_end(list);
    return true;
}

// ---- Questions ----

const struct ls_device_interface *ls_device_interface(const struct ls_device *device)
{
    return ls_instance_of(device)->interface;
}

bool ls_device_in_host_memory(const struct ls_device *device)
{
    return ls_device_interface(device)->memory_kind == LS_MEMORY_HOST;
}

bool ls_device_blocking(const struct ls_device *device)
{
    return ls_device_interface(device)->blocking != 0;
}

bool ls_device_has_streams(const struct ls_device *device)
{
    return !ls_device_blocking(device) && ls_device_interface(device)->streams;
}

bool ls_device_has_staging(const struct ls_device *device)
{
    return ls_device_has_streams(device) && ls_device_interface(device)->staging;
}

bool ls_device_can_capture(const struct ls_device *device)
{
    return !ls_device_blocking(device) && ls_device_interface(device)->capture &&
           !ls_device_in_host_memory(device);
}

bool ls_device_takes_branches(const struct ls_device *device)
{
    return ls_device_has_streams(device) && ls_device_interface(device)->streams->branches == 1;
}

static uint64_t device_tile_bytes(struct ls_device *device)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "tile_bytes");
    const struct ls_device_interface *own = call.own;
    const uint64_t bytes = own->kernels->tile_bytes(device);
    ls_guard_leave(&call);
    return bytes;
}

uint64_t ls_device_tile_bytes(struct ls_device *device)
{
    return ls_device_interface(device)->kernels->tile_bytes ? device_tile_bytes(device) : 0;
}

// ---- Memory ----

static void *judge_memory(const struct ls_guarded_call *call, void *memory)
{
    ls_guard_leave(call);
    if ((uintptr_t)memory % LS_ALIGNMENT == 0)
        return memory;
    ls_error(call->plugin->name, "plugin %s: `%s` returned memory that is not aligned to %d bytes",
             call->plugin->label, call->name, LS_ALIGNMENT);
    return NULL;
}

static struct ls_buffer *device_allocate(struct ls_device *device, uint64_t bytes)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "allocate");
    const struct ls_device_interface *own = call.own;
    struct ls_buffer *buffer = own->memory->allocate(device, bytes);
    if (own->memory_kind != LS_MEMORY_OPAQUE)
        return judge_memory(&call, buffer);
    ls_guard_leave(&call);
    return buffer;
}

struct ls_memory ls_device_allocate(struct ls_device *device, uint64_t bytes)
{
    return ls_memory_of(device_allocate(device, bytes ? bytes : LS_ALIGNMENT));
}

static void device_release(struct ls_device *device, struct ls_buffer *buffer)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "release");
    const struct ls_device_interface *own = call.own;
    own->memory->release(device, buffer);
    ls_guard_leave(&call);
}

void ls_device_release(struct ls_device *device, struct ls_memory memory)
{
    device_release(device, memory.buffer);
}

int32_t ls_device_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                       uint64_t bytes, void *stream)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "copy");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->memory->copy(device, to, from, bytes, stream), true);
}

int32_t ls_device_zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes,
                       void *stream)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "zero");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->memory->zero(device, memory, bytes, stream), true);
}

// ---- Kernels ----

// What is wrong with the answer's numbers; NULL: nothing that can be seen from here.
static const char *find_wrong_number(uint32_t input_count, uint32_t count,
                                     const struct ls_kernel_answer *answer, uint64_t *number)
{
    *number = answer->scratch_bytes;
    if (answer->scratch_bytes > MOST_BYTES)
        return "bytes of scratch";
    *number = answer->saved_bytes;
    if (answer->saved_bytes > MOST_BYTES)
        return "bytes to be saved for backward";
    for (uint32_t i = 0; i < count; i++) {
        *number = answer->layouts[i].kind;
        if (answer->layouts[i].kind > LS_LAYOUT_OWN)
            return "as the kind of a layout";
        *number = answer->layouts[i].bytes;
        if (answer->layouts[i].bytes > MOST_BYTES)
            return "bytes for an argument";
    }
    *number = answer->in_place;
    return answer->in_place >> input_count ? "as inputs whose place the output may take" : NULL;
}

// `count`: arguments whose layouts the answer has. A kernel that the core does not take is
// released.
static int32_t judge_kernel(const struct ls_guarded_call *call, struct ls_device *device,
                            int32_t status, uint32_t input_count, uint32_t count,
                            struct ls_kernel_answer *answer)
{
    const struct ls_device_interface *own = call->own;
    uint64_t number = 0;
    answer->implementation[sizeof(answer->implementation) - 1] = '\0';
    status = ls_guard_answer(call, status, true);
    if (status)
        return status;
    const char *wrong = find_wrong_number(input_count, count, answer, &number);
    if (answer->kernel && !wrong)
        return LS_OK;
    if (!answer->kernel) {
        ls_error(call->plugin->name, "plugin %s: `%s` returned OK, but did not create a kernel",
                 call->plugin->label, call->name);
        return LS_FAILED;
    }
    ls_error(call->plugin->name, "plugin %s: `%s` returned %" PRIu64 " %s", call->plugin->label,
             call->name, number, wrong);
    own->kernels->release(device, answer->kernel);
    return LS_FAILED;
}

static int32_t device_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                              struct ls_kernel_answer *out)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "prepare");
    const struct ls_device_interface *own = call.own;
    out->kernel = NULL;
    const int32_t status = own->kernels->prepare(device, request, out);
    return judge_kernel(&call, device, status, request->input_count,
                        request->input_count + request->output_count, out);
}

static int32_t device_prepare_segment(struct ls_device *device,
                                      const struct ls_segment_request *request,
                                      struct ls_kernel_answer *out)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "prepare_segment");
    const struct ls_device_interface *own = call.own;
    out->kernel = NULL;
    const int32_t status = own->kernels->prepare_segment(device, request, out);
    return judge_kernel(&call, device, status, 0, 0, out);
}

int32_t ls_device_launch(struct ls_device *device, const struct ls_kernel *kernel,
                         const struct ls_launch *launch)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "launch");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->kernels->launch(device, kernel, launch), true);
}

void ls_device_release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "release_kernel");
    const struct ls_device_interface *own = call.own;
    own->kernels->release(device, kernel);
    ls_guard_leave(&call);
}

// ---- Streams and events ----

static int32_t open_stream(struct ls_device *device, const char *name, bool urgent, void **out)
{
    const struct ls_guarded_call call = ls_guard_enter(device, name);
    const struct ls_device_interface *own = call.own;
    *out = NULL;
    int32_t status = (urgent ? own->streams->open_urgent : own->streams->open)(device, out);
    status = ls_guard_made(&call, status, *out != NULL, "a stream");
    if (status)
        *out = NULL;
    return status;
}

int32_t ls_device_stream_open(struct ls_device *device, void **out)
{
    return open_stream(device, "stream_open", false, out);
}

int32_t ls_device_stream_open_urgent(struct ls_device *device, void **out)
{
    return ls_device_interface(device)->streams->open_urgent
               ? open_stream(device, "stream_open_urgent", true, out)
               : ls_device_stream_open(device, out);
}

void ls_device_stream_close(struct ls_device *device, void *stream)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "stream_close");
    const struct ls_device_interface *own = call.own;
    own->streams->close(device, stream);
    ls_guard_leave(&call);
}

int32_t ls_device_stream_native(struct ls_device *device, void *stream,
                                struct ls_native_stream *out)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "stream_native");
    const struct ls_device_interface *own = call.own;
    const int32_t status = own->streams->native(device, stream, out);
    out->identity[sizeof(out->identity) - 1] = '\0';
    return ls_guard_answer(&call, status, true);
}

int32_t ls_device_event_open(struct ls_device *device, struct ls_event **out)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "event_open");
    const struct ls_device_interface *own = call.own;
    *out = NULL;
    int32_t status = own->streams->event_open(device, out);
    status = ls_guard_made(&call, status, *out != NULL, "an event");
    if (status)
        *out = NULL;
    return status;
}

void ls_device_event_close(struct ls_device *device, struct ls_event *event)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "event_close");
    const struct ls_device_interface *own = call.own;
    own->streams->event_close(device, event);
    ls_guard_leave(&call);
}

int32_t ls_device_event_record(struct ls_device *device, struct ls_event *event, void *stream)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "event_record");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->streams->event_record(device, event, stream), true);
}

int32_t ls_device_event_wait(struct ls_device *device, struct ls_event *event, void *stream)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "event_wait");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->streams->event_wait(device, event, stream), true);
}

int32_t ls_device_event_query(struct ls_device *device, const struct ls_event *event)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "event_query");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->streams->event_query(device, event), false);
}

// ---- Staging ----

void *ls_device_allocate_host(struct ls_device *device, uint64_t bytes)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "allocate_host");
    const struct ls_device_interface *own = call.own;
    return judge_memory(&call, own->staging->allocate(device, bytes));
}

void ls_device_release_host(struct ls_device *device, void *memory)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "release_host");
    const struct ls_device_interface *own = call.own;
    own->staging->release(device, memory);
    ls_guard_leave(&call);
}

int32_t ls_device_copy_async(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                             uint64_t bytes, void *stream)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "copy_async");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->staging->copy_async(device, to, from, bytes, stream), true);
}

// ---- Peers: what collectives and transports call ----

static int32_t device_reduce(struct ls_device *device, const struct ls_device_reduction *reduction,
                             void *stream)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "reduce");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->peers->reduce(device, reduction, stream), true);
}

static int32_t device_can_access_peer(struct ls_device *device, struct ls_device *other)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "can_access_peer");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->peers->can_access_peer(device, other), false);
}

// ---- Capture ----

int32_t ls_device_capture_begin(struct ls_device *device)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "record_begin");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->capture->begin(device), false);
}

int32_t ls_device_capture_end(struct ls_device *device, struct ls_recording **out)
{
    const struct ls_guarded_call call = ls_guard_enter(device, LS_COMPILING);
    const struct ls_device_interface *own = call.own;
    *out = NULL;
    ls_compiling_begin();
    const int32_t status = own->capture->end(device, out);
    ls_compiling_end();
    if (status)
        return ls_guard_answer(&call, status, false);
    return ls_guard_made(&call, status, *out != NULL, "a recording");
}

int32_t ls_device_replay(struct ls_device *device, const struct ls_recording *recording)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "replay");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->capture->replay(device, recording), true);
}

void ls_device_release_recording(struct ls_device *device, struct ls_recording *recording)
{
    const struct ls_guarded_call call = ls_guard_enter(device, "release_recording");
    const struct ls_device_interface *own = call.own;
    own->capture->release(device, recording);
    ls_guard_leave(&call);
}

// ---- Choices: of a plugin that need not be open, by its table ----

static const char *device_depend(const struct ls_host *host)
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "depend");
    const struct ls_device_interface *own = call.own;
    const char *text = own->choices->depend(host);
    ls_guard_leave(&call);
    return text;
}

static int32_t device_give(const struct ls_host *host, void *out, uint64_t bytes, uint64_t *needed)
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "give");
    const struct ls_device_interface *own = call.own;
    *needed = 0;
    return ls_guard_answer(&call, own->choices->give(host, out, bytes, needed), true);
}

static int32_t device_take(const struct ls_host *host, const void *choices, uint64_t bytes)
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "take");
    const struct ls_device_interface *own = call.own;
    return ls_guard_answer(&call, own->choices->take(host, choices, bytes), true);
}

// ---- The table that other plugins are handed ----

const struct ls_device_tables ls_device_guards = {
    .interface = {.describe = device_describe,
                  .open = device_open,
                  .close = device_close,
                  .abandon = device_abandon},
    .memory = {.allocate = device_allocate,
               .release = device_release,
               .copy = ls_device_copy,
               .zero = ls_device_zero},
    .kernels = {.prepare = device_prepare,
                .launch = ls_device_launch,
                .release = ls_device_release_kernel,
                .prepare_segment = device_prepare_segment,
                .tile_bytes = device_tile_bytes},
    .streams = {.open = ls_device_stream_open,
                .close = ls_device_stream_close,
                .native = ls_device_stream_native,
                .event_open = ls_device_event_open,
                .event_close = ls_device_event_close,
                .event_record = ls_device_event_record,
                .event_wait = ls_device_event_wait,
                .event_query = ls_device_event_query,
                .open_urgent = ls_device_stream_open_urgent},
    .staging = {.allocate = ls_device_allocate_host,
                .release = ls_device_release_host,
                .copy_async = ls_device_copy_async},
    .peers = {.reduce = device_reduce, .can_access_peer = device_can_access_peer},
    .capture = {.begin = ls_device_capture_begin,
                .end = ls_device_capture_end,
                .replay = ls_device_replay,
                .release = ls_device_release_recording},
    .choices = {.depend = device_depend, .give = device_give, .take = device_take},
};
