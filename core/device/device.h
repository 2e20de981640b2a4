// SPDX-License-Identifier: Apache-2.0
// The one face over devices. A device is the state of an opened plugin (core/base/instance.h); what
// the core knows of it is in front of the state. Everything in core calls a device through these
// functions. Each is also the guard of the call: it records that the thread is in the plugin, calls
// the plugin, and checks the answer. The functions with the signature of a plugin's table are in
// the table that other plugins are handed, too; they return int32_t, as a plugin does.
//
// All calls come from the thread that owns the device, one at a time, but for those that say
// [any thread]. What a device does not offer is asked with the questions below before it is called.
#ifndef LS_DEVICE_DEVICE_H
#define LS_DEVICE_DEVICE_H

#include "core/attributes.h"
#include "core/base/status.h"
#include "core/plugin/device.h"

#include <stdbool.h>

// ---- Life ----

struct ls_device_options {
    const struct ls_device_interface *interface; // in the size of our headers
    const struct ls_host *host; // of the plugin
    uint32_t index; // which physical device
    uint32_t threads; // 0: the plugin's own choice
    uint64_t deadline_ns; // of a wait for the device; 0: the plugin's own choice
    // LS_LACK_BYTES, where the caller takes another device if this one lacks something; NULL: it
    // does not
    char *lack;
};

#define LS_LACK_BYTES 256

LS_STATUS ls_device_open(const struct ls_device_options *options, struct ls_device **out);
void ls_device_close(struct ls_device *device); // takes NULL
// Somebody has waited in vain: nothing waits for what is under way there any more. Takes NULL.
// [any thread]
void ls_device_abandon(struct ls_device *device);

// The device lacks what is needed, "has no operation attention": the caller returns LS_UNAVAILABLE.
// True: the lack is where its opener reads it, so that nothing is to be logged.
LS_PRINTF(2, 3)
bool ls_device_tell_lack(const struct ls_device *device, const char *format, ...);

// The same with a configuration of the caller's own.
LS_STATUS ls_device_open_state(const struct ls_device_interface *interface,
                               const struct ls_host *host, const struct ls_device_config *config,
                               struct ls_device **out);

// ---- Questions [any thread] ----

// What another plugin (a transport, a collective library) is handed.
const struct ls_device_interface *ls_device_interface(const struct ls_device *device);

bool ls_device_in_host_memory(const struct ls_device *device);
bool ls_device_blocking(const struct ls_device *device); // computes on the calling thread
bool ls_device_has_streams(const struct ls_device *device); // and events
bool ls_device_has_staging(const struct ls_device *device); // besides streams
bool ls_device_can_capture(const struct ls_device *device);
bool ls_device_takes_branches(const struct ls_device *device); // `branches` of its streams
uint64_t ls_device_tile_bytes(struct ls_device *device); // 0: it does not ask for tiles
// Whether it takes halves where activations are float32 otherwise: LS_OP_CONVERT in struct
// ls_fusion_pattern.
bool ls_device_takes_casts(const struct ls_device *device, uint32_t op);

// ---- Memory ----

// Zeroed. Nowhere: there is none left.
struct ls_memory ls_device_allocate(struct ls_device *device, uint64_t bytes);
// What `allocate` answered; nowhere: does nothing.
void ls_device_release(struct ls_device *device, struct ls_memory memory);
LS_MUST_CHECK int32_t ls_device_copy(struct ls_device *device, struct ls_memory to,
                                     struct ls_memory from, uint64_t bytes, void *stream);
LS_MUST_CHECK int32_t ls_device_zero(struct ls_device *device, struct ls_memory memory,
                                     uint64_t bytes, void *stream);

// ---- Kernels ----

// Asks for a kernel; `about` names it in messages. `out->layouts` is set by the caller, one for
// each argument, or NULL where it does not want them; all else of `out` is overwritten.
// LS_UNSUPPORTED is not logged: the device has no such kernel. LS_FAILED, logged: the request or
// the answer breaks the contract.
LS_STATUS ls_device_prepare(struct ls_device *device, const char *about,
                            const struct ls_kernel_request *request, struct ls_kernel_answer *out);

// An operation on `count` floats in each argument, wherever they begin: an update of a bucket, a
// sum of two buffers, and whatever else works element by element on a range.
struct ls_range_operation {
    uint32_t op;
    const struct ls_op_attributes *attributes; // NULL: zeros
    uint32_t input_count, output_count;
    uint64_t count;
    uint64_t measures; // 0, or argument 1 is that many F64 (of LS_OP_MEASURE, or read by others)
};
LS_STATUS ls_device_prepare_range(struct ls_device *device, const char *about,
                                  const struct ls_range_operation *operation,
                                  struct ls_kernel_answer *out);

LS_MUST_CHECK int32_t ls_device_launch(struct ls_device *device, const struct ls_kernel *kernel,
                                       const struct ls_launch *launch);
void ls_device_release_kernel(struct ls_device *device, struct ls_kernel *kernel);

// ---- Segments ----

bool ls_device_takes_segments(const struct ls_device *device);
// Asks for one kernel that does what a list of prepared kernels does, one after the other. Which
// value is which is said by the caller: `values` of each kernel name the same value where one
// kernel reads what another wrote. LS_UNSUPPORTED is not logged: the kernels are launched one by
// one then. LS_FAILED, logged: the request does not hang together (an index out of range, a layout
// that is not fixed, a value inside of the segment that is read before a kernel of it wrote it).
LS_STATUS ls_device_prepare_segment(struct ls_device *device, const char *about,
                                    const struct ls_segment_request *request,
                                    struct ls_kernel_answer *out);

// ---- Streams and events: where ls_device_has_streams() ----

LS_MUST_CHECK int32_t ls_device_stream_open(struct ls_device *device, void **out);
// One that goes before the others, where the device has such.
LS_MUST_CHECK int32_t ls_device_stream_open_urgent(struct ls_device *device, void **out);
void ls_device_stream_close(struct ls_device *device, void *stream);
LS_MUST_CHECK int32_t ls_device_stream_native(struct ls_device *device, void *stream,
                                              struct ls_native_stream *out);
LS_MUST_CHECK int32_t ls_device_event_open(struct ls_device *device, struct ls_event **out);
void ls_device_event_close(struct ls_device *device, struct ls_event *event);
LS_MUST_CHECK int32_t ls_device_event_record(struct ls_device *device, struct ls_event *event,
                                             void *stream);
LS_MUST_CHECK int32_t ls_device_event_wait(struct ls_device *device, struct ls_event *event,
                                           void *stream);
// [any thread]
LS_MUST_CHECK int32_t ls_device_event_query(struct ls_device *device, const struct ls_event *event);

// ---- Staging: where ls_device_has_staging() ----

void *ls_device_allocate_host(struct ls_device *device, uint64_t bytes);
void ls_device_release_host(struct ls_device *device, void *memory);
LS_MUST_CHECK int32_t ls_device_copy_async(struct ls_device *device, struct ls_memory to,
                                           struct ls_memory from, uint64_t bytes, void *stream);

// ---- Capture: where ls_device_can_capture() ----

LS_MUST_CHECK int32_t ls_device_capture_begin(struct ls_device *device);
LS_MUST_CHECK int32_t ls_device_capture_end(struct ls_device *device, struct ls_recording **out);
LS_MUST_CHECK int32_t ls_device_replay(struct ls_device *device,
                                       const struct ls_recording *recording);
void ls_device_release_recording(struct ls_device *device, struct ls_recording *recording);

// ---- The table of guards: core/loader puts it in place of a plugin's ----

// A device's table and the small tables that it points to, in our size. The pointers are those of
// the tables beside it, or NULL.
struct ls_device_tables {
    struct ls_device_interface interface;
    struct ls_device_memory memory;
    struct ls_device_kernels kernels;
    struct ls_device_streams streams;
    struct ls_device_staging staging;
    struct ls_device_peers peers;
    struct ls_device_capture capture;
    struct ls_device_choices choices;
};

extern const struct ls_device_tables ls_device_guards; // only functions; all else is 0

#endif
