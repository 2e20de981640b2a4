// SPDX-License-Identifier: Apache-2.0
// What a device plugin implements: memory, and operations in two steps. `prepare` gets an operation
// with shapes and layouts, and returns a kernel and what the kernel needs; `launch` runs the
// kernel, in every step. The host plans and owns all memory that a kernel uses.
//
// Shapes are in the plain layout: activations B H W C (or B N), convolution kernels KH KW C F,
// dense kernels K N, vectors N. B examples, H rows, W columns, C channels, F filters, N units. A
// device may keep a tensor in a layout of its own, which `prepare` then returns.
//
// The calls are in small tables, to be implemented one after the other:
//   1. struct ls_device_interface  what the device is; describe, open, close
//   2. struct ls_device_memory     allocate, release, copy, zero
//   3. struct ls_device_kernels    prepare, launch, release
// A device that computes on the calling thread (`blocking` 1) needs only these three. One that
// computes beside the caller adds, in this order, as many as it supports:
//   4. struct ls_device_streams    streams and events: input and collectives beside the computation
//   5. struct ls_device_staging    pinned host memory, and copies that nobody waits for
//   6. struct ls_device_peers      reductions and the memory of other devices, for collectives
//   7. struct ls_device_capture    a step that is captured once and then replayed as a whole
//   8. struct ls_device_choices    what `prepare` measured, so that all processes do the same
// A pointer to a table that the device does not have is NULL. In a table that it has, all calls are
// required but those whose comment says "Optional".
//
// The life of a device, as the host runs it:
//   describe                          [main thread] before anything is opened
//   open                              [any thread] into zeroed memory of `state_bytes` bytes
//     prepare, ...                    every operation of every program; no launch is under way
//     allocate, ...                   when all programs are known: flat buffers, arena, scratch
//     copy, zero                      initial values
//     each step:  copy or copy_async (examples, step record); launch, ...; copy (sums)
//     release of kernels, then release of memory
//   close                             the host frees the state afterwards
// From `open` to `close` all calls come from one thread at a time, except those that say [any
// thread]. The host checks every request before the device sees it: the number, types and shapes of
// the arguments and the attributes are as core/plugin/operations.h describes them for the
// operation. So a device refuses (LS_UNSUPPORTED) only what it cannot do.
#ifndef LS_PLUGIN_DEVICE_H
#define LS_PLUGIN_DEVICE_H

#include "core/plugin/operations.h"
#include "core/plugin/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_ALIGNMENT 64 // of every tensor and flat buffer, in bytes

// ---- Memory ----

// What `allocate` returns; each plugin has its own. If the memory_kind of the device is
// LS_MEMORY_HOST or LS_MEMORY_CUDA, the handle is the base address itself, aligned to LS_ALIGNMENT.
struct ls_buffer;

// A place in memory: `offset` bytes from the start of `buffer`. If `buffer` is NULL, it is a place
// in host memory and `offset` is its address; NULL and 0 mean nowhere.
struct ls_memory {
    struct ls_buffer *buffer; // NULL: host memory
    uint64_t offset; // in bytes
};

// The place `bytes` bytes behind this one.
static inline struct ls_memory ls_memory_at(struct ls_memory memory, uint64_t bytes)
{
    memory.offset += bytes;
    return memory;
}

// The beginning of a buffer.
static inline struct ls_memory ls_memory_of(struct ls_buffer *buffer)
{
    struct ls_memory memory = {buffer, 0};
    return memory;
}

// The place in host memory that has this address.
static inline struct ls_memory ls_host_memory(const void *address)
{
    struct ls_memory memory = {0, (uint64_t)(uintptr_t)address};
    return memory;
}

// The address of a place in host memory, or in a buffer whose handle is its base address.
static inline void *ls_address(struct ls_memory memory)
{
    return (void *)((uintptr_t)memory.buffer + (uintptr_t)memory.offset);
}

// 1: nowhere.
static inline int ls_memory_is_null(struct ls_memory memory)
{
    return !memory.buffer && !memory.offset;
}

// 1: the same place.
static inline int ls_memory_is_same(struct ls_memory one, struct ls_memory other)
{
    return one.buffer == other.buffer && one.offset == other.offset;
}

// ---- Layouts ----

enum ls_layout_kind {
    LS_LAYOUT_ANY = 0, // in a request: the device chooses
    LS_LAYOUT_PLAIN = 1, // row-major as the dims say, no padding
    LS_LAYOUT_OWN = 2, // the device's own, described by `words`
};

// How a tensor is stored. Two layouts are the same if they are equal byte by byte (unused words are
// zero), also between two instances of the device and between processes. The padding of a layout of
// the device's own is zero, and every kernel keeps it zero: it writes the padding of its outputs,
// too, because their memory may hold anything before.
struct ls_layout {
    uint32_t kind; // enum ls_layout_kind
    uint32_t reserved;
    uint64_t bytes; // of the whole tensor, padding included
    uint64_t words[14]; // the device's own
};

// Type, shape and layout of a tensor.
struct ls_tensor_desc {
    uint32_t dtype; // enum ls_dtype
    uint32_t ndims; // dimensions
    int64_t dims[LS_MAX_DIMS]; // their sizes, outermost first
    struct ls_layout layout; // how the elements are stored
};

// ---- Kernels ----

struct ls_device; // each plugin's own
struct ls_kernel; // each plugin's own; immutable once prepared

// The request to `prepare`: one operation on tensors of known types and shapes.
struct ls_kernel_request {
    uint32_t struct_size;
    uint32_t op; // enum ls_op
    struct ls_op_attributes attributes; // of the operation
    uint32_t input_count; // of `arguments`, the first ones
    uint32_t output_count; // of `arguments`, behind the inputs
    // Inputs, then outputs. A layout of kind ANY is for the device to choose; any other is fixed.
    // The array is the caller's and lives until `prepare` returns.
    const struct ls_tensor_desc *arguments;
    const struct ls_kernel *forward; // of a backward operation: its forward kernel; or NULL
    uint32_t accumulate; // bit i: output i is added to, not overwritten
    uint32_t reserved;
};

// The answer of `prepare`.
struct ls_kernel_answer {
    uint32_t struct_size;
    uint32_t used_inputs; // bit i: the kernel reads input i
    struct ls_kernel *kernel; // what was prepared, for `launch`
    struct ls_layout *layouts; // of every argument, fixed ones repeated; the caller's array, zeroed
    uint64_t scratch_bytes; // while it runs
    uint64_t saved_bytes; // size of the output `saved`
    uint32_t in_place; // bit i: output 0 may have the memory of input i, unless it is added to
    uint32_t slow; // 1: the library offers only its slow reference code for this
    char implementation[64]; // for --verbose
};

// One run of a kernel.
struct ls_launch {
    uint32_t struct_size;
    uint32_t argument_count; // of `arguments`
    const struct ls_memory *arguments; // inputs, then outputs, as in the request; nowhere: not used
    struct ls_memory scratch; // aligned to LS_ALIGNMENT; nowhere when scratch_bytes is 0
    struct ls_memory record; // a struct ls_step_record, in device memory
    void *stream; // NULL: the device's own
};

// Producer and consumer that the device can run as one kernel: the producer with the consumer as
// its epilogue. The host fuses them if only the consumer uses the producer's first output.
// LS_OP_ADD is a consumer only of LS_OP_BATCH_NORMALIZATION, LS_OP_BATCH_NORMALIZATION_INFERENCE
// and LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED, and it is no epilogue: its other term becomes the
// addend, and an activation after it may be fused, too.
//
// LS_OP_CONVERT as a producer says that the device takes halves in an operation whose activations
// are F32 otherwise ("Half types" in core/plugin/operations.h), or in a loss, so that the host
// leaves out the casts around it. All activations of a request, and the gradients of activations,
// are then of one type, F32 or a half; all else (parameters and their gradients, labels, weights,
// sums) stays as it is. What is read is exact, sums are float32 or wider, and a result is rounded
// once. In training the host does so where the backward operations are declared, too. It asks for
// halves wherever the types allow them: a device declares what it refuses no more often than F32.
struct ls_fusion_pattern {
    uint32_t producer; // enum ls_op
    uint32_t consumer; // LS_OP_ACTIVATION, LS_OP_ACTIVATION_BACKWARD or LS_OP_ADD
    uint32_t activations; // bit i: for enum ls_activation i; 0 with LS_OP_ADD and LS_OP_CONVERT
    uint32_t reserved;
};

// ---- Segments ----

// A value that flows through a segment. A value that the host sees is an argument of the launch, in
// memory of the host's. All others exist only inside the segment.
struct ls_segment_value {
    struct ls_tensor_desc desc; // with its layout, never of kind ANY
    uint32_t argument; // index among the arguments of the launch, or LS_SEGMENT_INSIDE
    uint32_t reserved;
};
#define LS_SEGMENT_INSIDE UINT32_MAX // `argument` of a value that the host does not see

// One kernel of a segment.
struct ls_segment_kernel {
    const struct ls_kernel_request *request; // all layouts fixed
    const uint32_t *values; // of each argument of the request: index of a value
};

// A list of kernels in the order in which they would be launched. A launch of the kernel that is
// made of them must leave the same bits in the arguments as these launches, and may compute them in
// any way.
struct ls_segment_request {
    uint32_t struct_size;
    uint32_t kernel_count; // of `kernels`
    const struct ls_segment_kernel *kernels; // in the order of their launches
    const struct ls_segment_value *values; // what flows between them
    uint32_t value_count; // of `values`
    uint32_t argument_count; // of the launch
};

// ---- Streams, reductions ----

struct ls_event; // each plugin's own
struct ls_recording; // each plugin's own

// CUDA: `native` is a cudaStream_t. PJRT: it is what device `pjrt` lets collectives do (struct
// pjrt_stream of its team.h).
enum ls_stream_family { LS_STREAM_NONE = 0, LS_STREAM_CUDA = 1, LS_STREAM_PJRT = 2 };

// A stream as the libraries of its family know it, and its device.
struct ls_native_stream {
    uint32_t struct_size;
    uint32_t family; // enum ls_stream_family
    void *native; // the library's own handle
    uint32_t index; // of the physical device in this process
    uint32_t reserved;
    char identity[64]; // of the physical device, the same in every process (CUDA: PCI bus id)
};

// to[i] = to[i] (+) from[i], or with `divisor` to[i] = to[i] / divisor, rounded once (integers:
// towards zero; `from` is nowhere).
struct ls_device_reduction {
    uint32_t struct_size;
    uint32_t dtype; // enum ls_dtype
    uint32_t reduction; // SUM, PRODUCT, MIN or MAX
    uint32_t reserved;
    struct ls_memory to; // what is reduced into
    struct ls_memory from; // the other operand
    struct ls_memory also; // gets a copy of the result; nowhere: nothing does; may be `from`
    uint64_t count; // elements
    uint64_t divisor; // 0: reduce
};

// ---- The tables ----

#define LS_RECORDING_OPTION "recording" // an option of a device that records: "on" or "off"
#define LS_BRANCHES_OPTION "branches" // of one whose streams say `branches`: "on" or "off"

// The memory that `allocate` returns: of the host, of a GPU that CUDA knows, or of a device that
// has handles instead of addresses.
enum ls_memory_kind { LS_MEMORY_HOST = 1, LS_MEMORY_CUDA = 2, LS_MEMORY_OPAQUE = 3 };

// Which device is opened, and how.
struct ls_device_config {
    uint32_t struct_size;
    uint32_t index; // which physical device, from 0
    uint32_t threads; // for this virtual device; 0: the plugin's own choice
    uint32_t reserved;
    uint64_t deadline_ns; // of the run: the longest wait for the device; 0: the plugin's own choice
};

// The answer of `describe`.
struct ls_device_info {
    uint32_t struct_size;
    uint32_t physical_count; // devices on this machine
    char hardware[128]; // "Intel Xeon ... (AVX-512)"
};

// In all tables below, `stream` is NULL for the device's own stream, else a stream that `open` of
// the table of streams has made.

// Recipe: `allocate` when all programs are known; `copy` and `zero` before the first step and
// between steps; `release` when no launch that reads the buffer is under way.
struct ls_device_memory {
    uint32_t struct_size;
    uint32_t reserved;
    // Zeroed memory; NULL when there is none. `bytes` is at least 1.
    struct ls_buffer *(*allocate)(struct ls_device *device, uint64_t bytes);
    void (*release)(struct ls_device *device, struct ls_buffer *buffer); // takes NULL
    // Copies within the device, or between it and host memory. When the call returns, a copy from
    // host memory has read its source, and a copy to host memory is complete.
    int32_t (*copy)(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                    uint64_t bytes, void *stream);
    // Sets bytes to zero.
    int32_t (*zero)(struct ls_device *device, struct ls_memory memory, uint64_t bytes,
                    void *stream);
};

// Recipe: `prepare` for each operation of each program, after `open` and outside captures; `launch`
// of a kernel any number of times, each time perhaps with other memory; `release` once. An
// element-wise operation that was prepared for N elements may be launched on any N elements of a
// larger buffer: this is how the host runs an operation on a range.
struct ls_device_kernels {
    uint32_t struct_size;
    uint32_t reserved;
    // Prepares a kernel for the operation. LS_UNSUPPORTED (with host->fail): the device cannot run
    // it with the fixed layouts or the attributes of the request. The caller sets
    // `out->struct_size` and `out->layouts`, and zeroes the rest.
    int32_t (*prepare)(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel_answer *out);
    // Runs a kernel, or puts it on the stream of the launch.
    int32_t (*launch)(struct ls_device *device, const struct ls_kernel *kernel,
                      const struct ls_launch *launch);
    void (*release)(struct ls_device *device, struct ls_kernel *kernel); // takes NULL

    // Optional. Makes one kernel of a whole segment of a program, for `launch` and `release` as any
    // other. The answer has the kernel, scratch_bytes and the implementation; its `layouts` are
    // NULL. LS_UNSUPPORTED: the host launches the kernels one by one; it has prepared each of them
    // before.
    int32_t (*prepare_segment)(struct ls_device *device, const struct ls_segment_request *request,
                               struct ls_kernel_answer *out);

    // Optional. Returns how many bytes fit into a part of the fast memory (cache) of the device's
    // cores. If a tensor between two neighbouring operations is larger, the host may compute it a
    // few examples at a time. A device with this call promises: the examples of every activation,
    // of its gradient, and of `saved` of pooling are stored one after the other in equal parts, in
    // its own layouts too, and the words of these do not depend on the number of examples; what its
    // kernels make and save of an example does not depend on its place in the batch; and arguments
    // of a launch may begin at any multiple of their element size instead of LS_ALIGNMENT.
    uint64_t (*tile_bytes)(struct ls_device *device);
};

// Streams and events. Work on one stream runs in the order in which it was put there; different
// streams run side by side, as far as events do not order them. A stream belongs to the thread that
// owns the device. An event stands for the work that was on the stream when it was last recorded.
// Streams of every device of this plugin in the process may wait for it, and any thread may query
// it. It may be recorded again as soon as every waiting side has called `event_wait`. An event that
// was never recorded is over. Recipe: `open` and `event_open` before the first step; each step
// `event_record` on one stream and `event_wait` on another; `event_query` while the host waits;
// `event_close`, then `close`.
struct ls_device_streams {
    uint32_t struct_size;
    uint32_t reserved;
    // A new stream.
    int32_t (*open)(struct ls_device *device, void **out);
    void (*close)(struct ls_device *device, void *stream); // takes NULL; waits for its work
    // Describes the stream. Also makes its physical device the current one of the calling thread,
    // if libraries of the family go by that (CUDA).
    int32_t (*native)(struct ls_device *device, void *stream, struct ls_native_stream *out);
    // A new event.
    int32_t (*event_open)(struct ls_device *device, struct ls_event **out);
    void (*event_close)(struct ls_device *device, struct ls_event *event); // takes NULL
    // Records the event: it is over when all work that is on `stream` now is done.
    int32_t (*event_record)(struct ls_device *device, struct ls_event *event, void *stream);
    // Makes work that is put on `stream` from now on run after the event. Returns at once.
    int32_t (*event_wait)(struct ls_device *device, struct ls_event *event, void *stream);
    // LS_OK: over; LS_AGAIN: not yet; else the work failed. [any thread]
    int32_t (*event_query)(struct ls_device *device, const struct ls_event *event);

    // 1: kernels may run on several streams at the same time, each with its own scratch memory.
    // Then input is made ready beside what the device computes. Gradients of weights run beside
    // those of data, unless the device's option LS_BRANCHES_OPTION is "off"; unsaid, only where the
    // device records steps.
    uint32_t branches;
    uint32_t reserved_too; // 0

    // Optional. A new stream whose work goes before that of all others, for collectives: other
    // devices wait for them. NULL: the host takes `open`.
    int32_t (*open_urgent)(struct ls_device *device, void **out);
};

// Pinned host memory, which a stream reads and writes by itself, and copies that are only put on a
// stream. Recipe: `allocate` before the first step; in each step the host fills the memory, calls
// `copy_async` and records an event, after which it may fill the memory again; `release` when no
// copy is under way.
struct ls_device_staging {
    uint32_t struct_size;
    uint32_t reserved;
    void *(*allocate)(struct ls_device *device, uint64_t bytes); // aligned, zeroed; NULL: none left
    void (*release)(struct ls_device *device, void *memory); // takes NULL
    // Puts a copy on the stream. One side is memory of `allocate` above, the other is memory of the
    // device. The caller leaves the bytes as they are until the copy is done.
    int32_t (*copy_async)(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                          uint64_t bytes, void *stream);
};

// What collectives need on devices that exchange data with each other. Recipe: `can_access_peer`
// for each pair of devices when communicators are opened; then `reduce`, and `copy` of the memory
// table, with memory of the peer as `from` or `also`.
struct ls_device_peers {
    uint32_t struct_size;
    uint32_t reserved;
    // Puts the reduction on the stream.
    int32_t (*reduce)(struct ls_device *device, const struct ls_device_reduction *call,
                      void *stream);
    // Makes memory of `other` readable and writable for this device. LS_UNSUPPORTED (with
    // host->fail): it cannot be.
    int32_t (*can_access_peer)(struct ls_device *device, struct ls_device *other);
};

// A step that is captured once and then replayed. Between `begin` and `end`, work that is put on
// the device's own stream is kept instead of run; so is work on streams that wait for events of it
// and that the own stream waits for again before `end`. `replay` puts all of it on the own stream
// again, with the same memory. Copies from and to host memory (`copy`), allocation, release, waits
// and `prepare` cannot be captured. An event that is recorded in between orders the streams of the
// recording; outside it means nothing (a query fails) until it is recorded again. An event that was
// recorded before cannot be waited for inside. Recipe: a step runs once as it is; `begin`, the same
// calls again, `end`; then `replay` in each step; `release` before the memory that the recording
// uses. After a failure `end` must be called all the same; it then returns the failure and no
// recording. LS_UNSUPPORTED: the work cannot be captured, and the host does without recordings, as
// it does if the device's option LS_RECORDING_OPTION is "off".
struct ls_device_capture {
    uint32_t struct_size;
    uint32_t reserved;
    // Begins a recording.
    int32_t (*begin)(struct ls_device *device);
    // Ends the recording and returns it. May compile: it gets 30 times the run's deadline.
    int32_t (*end)(struct ls_device *device, struct ls_recording **out);
    // Puts the recorded work on the own stream again.
    int32_t (*replay)(struct ls_device *device, const struct ls_recording *recording);
    void (*release)(struct ls_device *device, struct ls_recording *recording); // takes NULL
};

// Choices of `prepare` that depend on measurements or files, such as the fastest kernels of a
// library: results have other bits where replicas choose otherwise. They are the process's, for all
// of its devices. Where `depend` answers a text, several workers that are not elastic prepare as
// follows: worker 0 does, and hands over what it has chosen so far (`give`); all others `take` it,
// before they open devices, and again before each later `prepare`; then these prepare, and choose
// as worker 0 has wherever they are asked the same. A choice that cannot be followed is a failure
// of `prepare`. [main thread, while no device prepares]
struct ls_device_choices {
    uint32_t struct_size;
    uint32_t reserved;
    // Which of the options make choices depend on more than the request, "timing=on"; all workers
    // must have the same. NULL: none does, and the other calls are not made. Borrowed.
    const char *(*depend)(const struct ls_host *host);
    // Writes all choices into `out`, if its `bytes` are as many as `needed`, which is set in any
    // case.
    int32_t (*give)(const struct ls_host *host, void *out, uint64_t bytes, uint64_t *needed);
    // Takes what `give` of another process of the same version wrote; it replaces own choices.
    int32_t (*take)(const struct ls_host *host, const void *choices, uint64_t bytes);
};

// The table of a device plugin.
struct ls_device_interface {
    uint32_t struct_size;
    uint32_t memory_kind; // enum ls_memory_kind
    const struct ls_fusion_pattern *patterns; // NULL: none
    uint32_t pattern_count; // of `patterns`
    uint32_t blocking; // 1: launch and copy are complete when they return (no streams)
    uint64_t state_bytes; // size of the plugin's struct ls_device

    // [main thread]
    int32_t (*describe)(const struct ls_host *host, struct ls_device_info *out);

    // Opens a virtual device; several may share a physical one. `device` is zeroed memory of
    // `state_bytes` bytes, aligned to LS_ALIGNMENT. The host frees it after `close`, or after a
    // failed `open`, which must leave nothing behind that `close` would have to release. [any
    // thread]
    int32_t (*open)(const struct ls_host *host, const struct ls_device_config *config,
                    struct ls_device *device);
    // Closes the device, after its kernels, buffers, streams and events were released.
    void (*close)(struct ls_device *device);

    // Optional. Tells the device that its work under way may never end, which the host has already
    // logged. From now on no call waits for that work (LS_PEER_LOST, without a message), and memory
    // that it may still touch is not freed. [any thread]
    void (*abandon)(struct ls_device *device);

    const struct ls_device_memory *memory; // buffers, and copies between them
    const struct ls_device_kernels *kernels; // operations
    const struct ls_device_streams *streams; // NULL: none
    const struct ls_device_staging *staging; // NULL: none
    const struct ls_device_peers *peers; // NULL: none
    const struct ls_device_capture *capture; // NULL: none
    const struct ls_device_choices *choices; // NULL: none
};

// The number of elements of a tensor, without padding.
static inline uint64_t ls_tensor_elements(const struct ls_tensor_desc *desc)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < desc->ndims; i++)
        count *= (uint64_t)desc->dims[i];
    return count;
}

#ifdef __cplusplus
}
#endif

#endif
