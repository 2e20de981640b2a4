// SPDX-License-Identifier: Apache-2.0
// Brings batches to the device.
#include "core/replica/input.h"
#include "core/replica/programs.h"

#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label copy_span = {.category = "input", .name = "copy to the device"};

// While one is read, one is under way and one is written.
#define SETS 3

// Room for one batch on its way: the step_stats, then what lies at `fixed` below, but with examples as they come.
struct set {
    char *host; // pinned
    struct ls_memory device;
    struct ls_event *arrived; // `host` may be written, and `device` read
    struct ls_event *read; // `device` may be written
};

struct ls_input {
    float divisor; // of examples that come as bytes; 0: they come as float32
    uint64_t elements; // of an example
    uint64_t room; // examples that there is memory for
    // What programs read: step record, labels, examples as float32. Nowhere on a device that reads host memory.
    struct ls_memory fixed;
    uint64_t labels_at, examples_at; // bytes from there
    struct ls_memory bytes; // examples as they come, where the device has no streams for it
    void *stream; // of uploads; NULL: the device has none
    struct set sets[SETS];
    uint32_t next;
};

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
}

static bool reads_host_memory(const struct ls_replica *replica)
{
    return ls_device_in_host_memory(replica->device);
}

// Where programs read the examples.
static struct ls_memory examples_of(const struct ls_input *input)
{
    return ls_memory_at(input->fixed, input->examples_at);
}

// ---- Kernels ----

// For `count` values. LS_UNSUPPORTED: the device has no such operation.
static enum ls_status prepare_from_bytes(struct ls_replica *replica, uint64_t count,
                                         struct ls_kernel **out)
{
    struct ls_tensor_desc arguments[2];
    const struct ls_kernel_request request = {.struct_size = sizeof(request),
                                              .op = LS_OP_FROM_BYTES,
                                              .attributes = {.divisor = replica->input->divisor},
                                              .input_count = 1,
                                              .output_count = 1,
                                              .arguments = arguments};
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t dtype = i ? LS_F32 : LS_U8;
        arguments[i] = (struct ls_tensor_desc){
            .dtype = dtype,
            .ndims = 1,
            .dims = {(int64_t)count},
            .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = count * ls_dtype_bytes(dtype)}};
    }
    struct ls_kernel_answer answer = {.layouts = NULL};
    const enum ls_status status =
        ls_device_prepare(replica->device, "examples from bytes", &request, &answer);
    if (status)
        return status;
    *out = answer.kernel;
    ls_replica_need_scratch(replica, answer.scratch_bytes);
    return LS_OK;
}

enum ls_status ls_input_open(struct ls_replica *replica, float byte_divisor)
{
    struct ls_input *input = calloc(1, sizeof(*input));
    if (!input)
        return LS_OUT_OF_MEMORY;
    replica->input = input;
    input->elements = (uint64_t)ls_shape_elements(&replica->graph->inputs[0]->shape, 1);
    input->divisor = reads_host_memory(replica) ? 0 : byte_divisor;
    if (input->divisor == 0)
        return LS_OK;
    struct ls_kernel *kernel = NULL; // of one example, to see whether the device has the operation
    const enum ls_status status = prepare_from_bytes(replica, input->elements, &kernel);
    if (!status)
        ls_device_release_kernel(replica->device, kernel);
    if (status == LS_UNSUPPORTED)
        input->divisor = 0;
    return status == LS_UNSUPPORTED ? LS_OK : status;
}

enum ls_status ls_input_prepare(struct ls_replica *replica, struct ls_replica_program *entry)
{
    if (replica->input->divisor == 0)
        return LS_OK;
    return prepare_from_bytes(replica,
                              (uint64_t)entry->program->options.batch * replica->input->elements,
                              &entry->from_bytes);
}

bool ls_replica_takes_bytes(const struct ls_replica *replica)
{
    return replica->input->divisor != 0;
}

static uint64_t example_bytes(const struct ls_replica *replica)
{
    return replica->input->elements * (ls_replica_takes_bytes(replica) ? 1 : sizeof(float));
}

uint64_t ls_replica_input_bytes(const struct ls_replica *replica, uint64_t count)
{
    return reads_host_memory(replica) ? 0 : count * (example_bytes(replica) + replica->label_bytes);
}

// ---- Memory ----

static enum ls_status open_set(struct ls_replica *replica, struct set *set, uint64_t bytes)
{
    set->device = ls_replica_take_memory(replica, bytes);
    if (ls_memory_is_null(set->device))
        return LS_OUT_OF_MEMORY;
    set->host = ls_device_allocate_host(replica->device, bytes);
    if (!set->host) {
        ls_error("replica",
                 "no %.1f MB of pinned host memory for input; a smaller batch needs less",
                 (double)bytes * 1e-6);
        return LS_FAILED;
    }
    enum ls_status status = ls_device_event_open(replica->device, &set->arrived);
    if (!status)
        status = ls_device_event_open(replica->device, &set->read);
    // The memory is being cleared on the own stream.
    if (!status)
        status = ls_device_event_record(replica->device, set->read, NULL);
    return status;
}

static uint64_t set_bytes(const struct ls_replica *replica)
{
    return LS_STEP_STATS_BYTES + replica->input->examples_at +
           replica->input->room * example_bytes(replica);
}

static enum ls_status open_sets(struct ls_replica *replica)
{
    struct ls_input *input = replica->input;
    const uint64_t bytes = set_bytes(replica);
    enum ls_status status = ls_device_stream_open(replica->device, &input->stream);
    for (uint32_t i = 0; !status && i < SETS; i++)
        status = open_set(replica, &input->sets[i], bytes);
    return status;
}

static void close_sets(struct ls_replica *replica)
{
    struct ls_input *input = replica->input;
    if (!input->stream)
        return;
    ls_device_stream_close(replica->device, input->stream);
    for (uint32_t i = 0; i < SETS; i++) {
        ls_device_event_close(replica->device, input->sets[i].arrived);
        ls_device_event_close(replica->device, input->sets[i].read);
        ls_replica_give_memory(replica, input->sets[i].device, set_bytes(replica));
        ls_device_release_host(replica->device, input->sets[i].host);
        input->sets[i] = (struct set){0};
    }
    input->stream = NULL;
}

static uint64_t fixed_bytes(const struct ls_input *input)
{
    return input->examples_at + input->room * input->elements * sizeof(float);
}

static void give_room(struct ls_replica *replica)
{
    struct ls_input *input = replica->input;
    close_sets(replica);
    ls_replica_give_memory(replica, input->bytes, input->room * input->elements);
    if (ls_memory_is_null(input->fixed))
        ls_replica_give_memory(replica, replica->record, sizeof(struct ls_step_record));
    else
        ls_replica_give_memory(replica, input->fixed, fixed_bytes(input));
    input->bytes = input->fixed = replica->record = (struct ls_memory){NULL, 0};
}

enum ls_status ls_input_make_room(struct ls_replica *replica)
{
    struct ls_input *input = replica->input;
    if (!ls_memory_is_null(replica->record) &&
        (reads_host_memory(replica) || replica->largest_batch <= input->room))
        return LS_OK;
    if (reads_host_memory(replica)) {
        replica->record = ls_replica_take_memory(replica, sizeof(struct ls_step_record));
        return ls_memory_is_null(replica->record) ? LS_OUT_OF_MEMORY : LS_OK;
    }
    give_room(replica);
    input->room = replica->largest_batch;
    input->labels_at = round_up(sizeof(struct ls_step_record));
    input->examples_at = input->labels_at + round_up(input->room * replica->label_bytes);
    input->fixed = ls_replica_take_memory(replica, fixed_bytes(input));
    const bool streams = ls_device_has_staging(replica->device);
    if (ls_replica_takes_bytes(replica) && !streams)
        input->bytes = ls_replica_take_memory(replica, input->room * input->elements);
    if (ls_memory_is_null(input->fixed) ||
        (ls_replica_takes_bytes(replica) && !streams && ls_memory_is_null(input->bytes)))
        return LS_OUT_OF_MEMORY;
    replica->record = input->fixed;
    return streams ? open_sets(replica) : LS_OK;
}

void ls_input_bind(struct ls_replica *replica, struct ls_replica_program *entry)
{
    const struct ls_input *input = replica->input;
    const struct ls_memory examples = examples_of(input);
    if (!ls_memory_is_null(input->fixed))
        ls_program_set_batch(entry->program, &examples,
                             ls_memory_at(input->fixed, input->labels_at));
}

void ls_input_close(struct ls_replica *replica)
{
    if (!replica->input)
        return;
    give_room(replica);
    free(replica->input);
    replica->input = NULL;
}

// ---- A batch ----

static void use_in_place(struct ls_replica *replica, const struct ls_replica_program *entry,
                         const struct ls_replica_batch *batch, const float *step_stats)
{
    memcpy(ls_address(replica->record), &replica->host_record, sizeof(replica->host_record));
    if (step_stats)
        memcpy(ls_address(replica->reduced), step_stats, LS_STEP_STATS_BYTES);
    const struct ls_memory examples = ls_host_memory(batch->examples);
    if (entry)
        ls_program_set_batch(entry->program, &examples, ls_host_memory(batch->labels));
}

static enum ls_status copy(struct ls_replica *replica, struct ls_memory to, struct ls_memory from,
                           uint64_t bytes)
{
    return bytes == 0 ? LS_OK : ls_device_copy(replica->device, to, from, bytes, NULL);
}

// Examples of device memory to where programs read them: `from` as they came.
static enum ls_status place_bytes(struct ls_replica *replica,
                                  const struct ls_replica_program *entry, struct ls_memory from)
{
    const struct ls_input *input = replica->input;
    const struct ls_memory arguments[2] = {from, examples_of(input)};
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = 2,
                                     .arguments = arguments,
                                     .scratch = replica->scratch.memory,
                                     .record = replica->record};
    ls_inside_about("examples from bytes");
    return ls_device_launch(replica->device, entry->from_bytes, &launch);
}

static enum ls_status copy_all(struct ls_replica *replica, const struct ls_replica_program *entry,
                               const struct ls_replica_batch *batch, const float *step_stats)
{
    const struct ls_input *input = replica->input;
    const bool bytes = ls_replica_takes_bytes(replica);
    enum ls_status status = copy(replica, replica->record, ls_host_memory(&replica->host_record),
                                 sizeof(replica->host_record));
    if (!status && step_stats)
        status = copy(replica, replica->reduced, ls_host_memory(step_stats), LS_STEP_STATS_BYTES);
    if (!status)
        status = copy(replica, ls_memory_at(input->fixed, input->labels_at),
                      ls_host_memory(batch->labels), batch->count * replica->label_bytes);
    if (!status)
        status = copy(replica, bytes ? input->bytes : examples_of(input),
                      ls_host_memory(batch->examples), batch->count * example_bytes(replica));
    if (!status && bytes && entry)
        status = place_bytes(replica, entry, input->bytes);
    return status;
}

// ---- The same beside what is computed ----

// Until nothing reads the pinned memory of the set any more.
static enum ls_status wait_for_set(struct ls_replica *replica, const struct set *set)
{
    char scrap[LS_ALIGNMENT];
    const enum ls_status status = ls_device_event_query(replica->device, set->arrived);
    if (status != LS_AGAIN)
        return status;
    // A copy to host memory waits for all uploads, with the device's own deadline and message.
    return ls_device_copy(replica->device, ls_host_memory(scrap), set->device, sizeof(scrap),
                          replica->input->stream);
}

static uint64_t fill_set(const struct ls_replica *replica, const struct set *set,
                         const struct ls_replica_batch *batch, const float *step_stats)
{
    const struct ls_input *input = replica->input;
    const uint64_t bytes = batch->count * example_bytes(replica);
    char *place = set->host + LS_STEP_STATS_BYTES;
    if (step_stats)
        memcpy(set->host, step_stats, LS_STEP_STATS_BYTES);
    memcpy(place, &replica->host_record, sizeof(replica->host_record));
    if (batch->count == 0)
        return LS_STEP_STATS_BYTES + input->labels_at;
    memcpy(place + input->labels_at, batch->labels, batch->count * replica->label_bytes);
    memcpy(place + input->examples_at, batch->examples, bytes);
    return LS_STEP_STATS_BYTES + input->examples_at + bytes;
}

static enum ls_status upload(struct ls_replica *replica, const struct set *set, uint64_t bytes)
{
    struct ls_virtual_device *device = replica->device;
    void *stream = replica->input->stream;
    enum ls_status status = ls_device_event_wait(device, set->read, stream);
    if (!status)
        status =
            ls_device_copy_async(device, set->device, ls_host_memory(set->host), bytes, stream);
    if (!status)
        status = ls_device_event_record(device, set->arrived, stream);
    if (!status)
        status = ls_device_event_wait(device, set->arrived, NULL);
    return status;
}

// From the set to where programs read, on the device's own stream.
static enum ls_status place_set(struct ls_replica *replica, const struct set *set,
                                const struct ls_replica_program *entry, uint64_t bytes,
                                const float *step_stats)
{
    const struct ls_input *input = replica->input;
    const bool convert = entry && ls_replica_takes_bytes(replica);
    enum ls_status status = LS_OK;
    if (step_stats)
        status = copy(replica, replica->reduced, set->device, LS_STEP_STATS_BYTES);
    if (!status)
        status = copy(replica, input->fixed, ls_memory_at(set->device, LS_STEP_STATS_BYTES),
                      convert ? input->examples_at : bytes - LS_STEP_STATS_BYTES);
    if (!status && convert)
        status = place_bytes(replica, entry,
                             ls_memory_at(set->device, LS_STEP_STATS_BYTES + input->examples_at));
    if (!status)
        status = ls_device_event_record(replica->device, set->read, NULL);
    return status;
}

static enum ls_status send(struct ls_replica *replica, const struct ls_replica_program *entry,
                           const struct ls_replica_batch *batch, const float *step_stats)
{
    struct ls_input *input = replica->input;
    const struct set *set = &input->sets[input->next];
    enum ls_status status = wait_for_set(replica, set);
    if (status)
        return status;
    const uint64_t bytes = fill_set(replica, set, batch, step_stats);
    status = upload(replica, set, bytes);
    if (!status)
        status = place_set(replica, set, entry, bytes, step_stats);
    input->next = (input->next + 1) % SETS;
    return status;
}

enum ls_status ls_input_write(struct ls_replica *replica, const struct ls_replica_program *entry,
                              const struct ls_replica_batch *batch, const float *step_stats)
{
    if (batch->count && (batch->example_dtype == LS_U8) != ls_replica_takes_bytes(replica)) {
        ls_error("replica", "examples come as %s, but were to come as %s",
                 batch->example_dtype == LS_U8 ? "bytes" : "float32",
                 ls_replica_takes_bytes(replica) ? "bytes" : "float32");
        return LS_FAILED;
    }
    if (reads_host_memory(replica)) {
        use_in_place(replica, entry, batch, step_stats);
        return LS_OK;
    }
    ls_trace_begin(&copy_span, batch->count);
    const enum ls_status status = replica->input->stream
                                      ? send(replica, entry, batch, step_stats)
                                      : copy_all(replica, entry, batch, step_stats);
    ls_trace_end();
    return status;
}
