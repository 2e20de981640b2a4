// SPDX-License-Identifier: Apache-2.0
// Brings batches to the device.
#include "core/replica/input.h"
#include "core/replica/programs.h"

#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label copy_span = {.category = "input", .name = "copy to the device"};

// A batch: step record, labels, weights, inputs as they come, then as float32 those that come as
// bytes.
struct set {
    struct ls_memory device; // where programs read
    // Where the device has streams for it:
    char *host; // pinned, up to what becomes float32
    struct ls_event *arrived; // `host` may be written, and `device` read
    struct ls_event *read; // `device` may be written
};

// One input of the model.
struct input_field {
    float divisor; // of values that come as bytes; 0: they come in the type of the input
    uint64_t elements; // of an example
    uint64_t arrives_at, at; // bytes in a set: as it comes, and where programs read it
};

struct ls_input {
    struct input_field fields[LS_REPLICA_INPUTS];
    uint32_t count;
    uint64_t room; // examples that there is memory for
    uint64_t labels_at[LS_GRAPH_LOSSES], weights_at, inputs_at; // bytes in a set
    uint64_t sent_bytes, set_bytes; // of a set: what comes from the host, and all
    void *stream; // of uploads; NULL: the device has none, and one set
    struct set sets[LS_INPUT_SETS];
};

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
}

static bool reads_host_memory(const struct ls_replica *replica)
{
    return ls_device_in_host_memory(replica->device);
}

// ---- Kernels ----

// For `count` values. LS_UNSUPPORTED: the device has no such operation, or one that wants scratch
// memory, which kernels beside it have.
static enum ls_status prepare_from_bytes(struct ls_replica *replica, float divisor, uint64_t count,
                                         struct ls_kernel **out)
{
    struct ls_tensor_desc arguments[2];
    const struct ls_kernel_request request = {.struct_size = sizeof(request),
                                              .op = LS_OP_FROM_BYTES,
                                              .attributes = {.divisor = divisor},
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
    if (answer.scratch_bytes) {
        ls_device_release_kernel(replica->device, answer.kernel);
        return LS_UNSUPPORTED;
    }
    *out = answer.kernel;
    return LS_OK;
}

// Prepares the kernel of one example, to see whether the device has the operation.
static enum ls_status choose_bytes(struct ls_replica *replica, struct input_field *field,
                                   float divisor)
{
    struct ls_kernel *kernel = NULL;
    const enum ls_status status = prepare_from_bytes(replica, divisor, field->elements, &kernel);
    if (!status)
        ls_device_release_kernel(replica->device, kernel);
    field->divisor = status ? 0 : divisor;
    return status == LS_UNSUPPORTED ? LS_OK : status;
}

enum ls_status ls_input_open(struct ls_replica *replica, const float *byte_divisors)
{
    const struct ls_graph *graph = replica->graph;
    if (graph->input_count > LS_REPLICA_INPUTS) {
        ls_error("replica", "model '%s' has %u inputs; at most %d can be given", graph->name,
                 graph->input_count, LS_REPLICA_INPUTS);
        return LS_BAD_INPUT;
    }
    struct ls_input *input = calloc(1, sizeof(*input));
    if (!input)
        return LS_OUT_OF_MEMORY;
    replica->input = input;
    input->count = graph->input_count;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < input->count; i++) {
        struct input_field *field = &input->fields[i];
        field->elements = (uint64_t)ls_shape_elements(&graph->inputs[i]->shape, 1);
        if (byte_divisors[i] != 0 && graph->inputs[i]->dtype == LS_F32 &&
            !reads_host_memory(replica))
            status = choose_bytes(replica, field, byte_divisors[i]);
    }
    return status;
}

enum ls_status ls_input_prepare(struct ls_replica *replica, struct ls_replica_program *entry)
{
    const struct ls_input *input = replica->input;
    const uint64_t batch = (uint64_t)entry->program->options.batch;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < input->count; i++)
        if (input->fields[i].divisor != 0)
            status = prepare_from_bytes(replica, input->fields[i].divisor,
                                        batch * input->fields[i].elements, &entry->from_bytes[i]);
    return status;
}

uint32_t ls_replica_takes_bytes(const struct ls_replica *replica)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < replica->input->count; i++)
        bits |= (uint32_t)(replica->input->fields[i].divisor != 0) << i;
    return bits;
}

uint64_t ls_input_example_bytes(const struct ls_replica *replica, uint32_t input)
{
    const struct input_field *field = &replica->input->fields[input];
    return field->elements *
           (field->divisor != 0 ? 1 : ls_dtype_bytes(replica->graph->inputs[input]->dtype));
}

uint64_t ls_input_label_bytes(const struct ls_graph *graph, uint32_t label)
{
    return 4 * (uint64_t)ls_shape_elements(&graph->labels[label]->shape, 1);
}

uint64_t ls_replica_input_bytes(const struct ls_replica *replica, uint64_t count)
{
    uint64_t bytes = replica->label_bytes;
    for (uint32_t i = 0; i < replica->input->count; i++)
        bytes += ls_input_example_bytes(replica, i);
    return reads_host_memory(replica) ? 0 : count * bytes;
}

// ---- Memory ----

static enum ls_status open_set(struct ls_replica *replica, struct set *set)
{
    const struct ls_input *input = replica->input;
    set->device = ls_replica_take_memory(replica, input->set_bytes);
    if (ls_memory_is_null(set->device))
        return LS_OUT_OF_MEMORY;
    if (!input->stream)
        return LS_OK;
    set->host = ls_device_allocate_host(replica->device, input->sent_bytes);
    if (!set->host) {
        ls_error("replica",
                 "no %.1f MB of pinned host memory for input; a smaller batch needs less",
                 (double)input->sent_bytes * 1e-6);
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

static enum ls_status open_sets(struct ls_replica *replica)
{
    struct ls_input *input = replica->input;
    enum ls_status status = LS_OK;
    if (ls_device_has_staging(replica->device) && ls_device_takes_branches(replica->device))
        status = ls_device_stream_open(replica->device, &input->stream);
    for (uint32_t i = 0; !status && i < (input->stream ? LS_INPUT_SETS : 1); i++)
        status = open_set(replica, &input->sets[i]);
    return status;
}

static void close_sets(struct ls_replica *replica)
{
    struct ls_input *input = replica->input;
    if (input->stream)
        ls_device_stream_close(replica->device, input->stream);
    input->stream = NULL;
    for (uint32_t i = 0; i < LS_INPUT_SETS; i++) {
        struct set *set = &input->sets[i];
        if (set->arrived)
            ls_device_event_close(replica->device, set->arrived);
        if (set->read)
            ls_device_event_close(replica->device, set->read);
        if (set->host)
            ls_device_release_host(replica->device, set->host);
        ls_replica_give_memory(replica, set->device, input->set_bytes);
        *set = (struct set){0};
    }
}

static void plan_room(struct ls_replica *replica)
{
    struct ls_input *input = replica->input;
    uint64_t at = round_up(sizeof(struct ls_step_record));
    for (uint32_t i = 0; i < replica->graph->label_count; i++) {
        input->labels_at[i] = at;
        at += round_up(input->room * ls_input_label_bytes(replica->graph, i));
    }
    input->weights_at = at;
    at += replica->graph->weights ? round_up(input->room * sizeof(float)) : 0;
    input->inputs_at = at;
    for (uint32_t i = 0; i < input->count; i++) {
        input->fields[i].at = input->fields[i].arrives_at = at;
        at += round_up(input->room * ls_input_example_bytes(replica, i));
    }
    input->sent_bytes = at;
    for (uint32_t i = 0; i < input->count; i++) {
        struct input_field *field = &input->fields[i];
        if (field->divisor == 0)
            continue;
        field->at = at;
        at += round_up(input->room * field->elements * sizeof(float));
    }
    input->set_bytes = at;
}

static void give_room(struct ls_replica *replica)
{
    close_sets(replica);
    if (reads_host_memory(replica))
        ls_replica_give_memory(replica, replica->record, sizeof(struct ls_step_record));
    replica->record = (struct ls_memory){NULL, 0};
    replica->set = 0;
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
    plan_room(replica);
    const enum ls_status status = open_sets(replica);
    replica->record = input->sets[0].device;
    return status;
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
    struct ls_memory inputs[LS_REPLICA_INPUTS], labels[LS_GRAPH_LOSSES];
    if (!entry)
        return;
    for (uint32_t i = 0; i < replica->input->count; i++)
        inputs[i] = ls_host_memory(batch->inputs[i]);
    for (uint32_t i = 0; i < replica->graph->label_count; i++)
        labels[i] = ls_host_memory(batch->labels[i]);
    ls_program_set_batch(entry->program, inputs, labels);
    ls_program_set_weights(entry->program, ls_host_memory(batch->weights));
}

static enum ls_status copy(struct ls_replica *replica, struct ls_memory to, struct ls_memory from,
                           uint64_t bytes)
{
    return bytes == 0 ? LS_OK : ls_device_copy(replica->device, to, from, bytes, NULL);
}

static void bind(struct ls_replica *replica, const struct ls_replica_program *entry)
{
    const struct ls_input *input = replica->input;
    struct ls_memory inputs[LS_REPLICA_INPUTS], labels[LS_GRAPH_LOSSES];
    for (uint32_t i = 0; i < input->count; i++)
        inputs[i] = ls_memory_at(replica->record, input->fields[i].at);
    for (uint32_t i = 0; i < replica->graph->label_count; i++)
        labels[i] = ls_memory_at(replica->record, input->labels_at[i]);
    ls_program_set_batch(entry->program, inputs, labels);
    ls_program_set_weights(entry->program, ls_memory_at(replica->record, input->weights_at));
    ls_program_set_record(entry->program, replica->record);
}

// Inputs that came as bytes, to where programs read them.
static enum ls_status convert_bytes(struct ls_replica *replica,
                                    const struct ls_replica_program *entry, void *stream)
{
    const struct ls_input *input = replica->input;
    enum ls_status status = LS_OK;
    ls_inside_about("examples from bytes");
    for (uint32_t i = 0; !status && entry && i < input->count; i++) {
        const struct input_field *field = &input->fields[i];
        if (field->divisor == 0)
            continue;
        const struct ls_memory arguments[2] = {ls_memory_at(replica->record, field->arrives_at),
                                               ls_memory_at(replica->record, field->at)};
        const struct ls_launch launch = {.struct_size = sizeof(launch),
                                         .argument_count = 2,
                                         .arguments = arguments,
                                         .record = replica->record,
                                         .stream = stream};
        status = ls_device_launch(replica->device, entry->from_bytes[i], &launch);
    }
    return status;
}

static enum ls_status copy_all(struct ls_replica *replica, const struct ls_replica_program *entry,
                               const struct ls_replica_batch *batch)
{
    const struct ls_input *input = replica->input;
    enum ls_status status = copy(replica, replica->record, ls_host_memory(&replica->host_record),
                                 sizeof(replica->host_record));
    for (uint32_t i = 0; !status && i < replica->graph->label_count; i++)
        if (batch->labels[i])
            status = copy(replica, ls_memory_at(replica->record, input->labels_at[i]),
                          ls_host_memory(batch->labels[i]),
                          batch->count * ls_input_label_bytes(replica->graph, i));
    if (!status && batch->weights && replica->graph->weights)
        status = copy(replica, ls_memory_at(replica->record, input->weights_at),
                      ls_host_memory(batch->weights), batch->count * sizeof(float));
    for (uint32_t i = 0; !status && i < input->count; i++)
        status = copy(replica, ls_memory_at(replica->record, input->fields[i].arrives_at),
                      ls_host_memory(batch->inputs[i]),
                      batch->count * ls_input_example_bytes(replica, i));
    return status ? status : convert_bytes(replica, entry, NULL);
}

// ---- The same beside what is computed ----

static uint64_t fill_set(const struct ls_replica *replica, const struct set *set,
                         const struct ls_replica_batch *batch)
{
    const struct ls_input *input = replica->input;
    char *place = set->host;
    uint64_t end = round_up(sizeof(struct ls_step_record));
    memcpy(place, &replica->host_record, sizeof(replica->host_record));
    if (batch->count && replica->label_bytes) {
        for (uint32_t i = 0; i < replica->graph->label_count; i++)
            if (batch->labels[i])
                memcpy(place + input->labels_at[i], batch->labels[i],
                       batch->count * ls_input_label_bytes(replica->graph, i));
        if (batch->weights && replica->graph->weights)
            memcpy(place + input->weights_at, batch->weights, batch->count * sizeof(float));
        end = input->inputs_at;
    }
    for (uint32_t i = 0; batch->count && i < input->count; i++) {
        const uint64_t at = input->fields[i].arrives_at;
        const uint64_t bytes = batch->count * ls_input_example_bytes(replica, i);
        memcpy(place + at, batch->inputs[i], bytes);
        end = end > at + bytes ? end : at + bytes;
    }
    return end;
}

static enum ls_status send(struct ls_replica *replica, const struct ls_replica_program *entry,
                           const struct ls_replica_batch *batch, const struct ls_wait *wait)
{
    struct ls_device *device = replica->device;
    const struct set *set = &replica->input->sets[replica->set];
    void *stream = replica->input->stream;
    // Until nothing reads the pinned memory of the set any more.
    enum ls_status status = ls_wait_for_event(device, set->arrived, wait);
    if (status)
        return status;
    const uint64_t bytes = fill_set(replica, set, batch);
    status = ls_device_event_wait(device, set->read, stream);
    if (!status)
        status =
            ls_device_copy_async(device, set->device, ls_host_memory(set->host), bytes, stream);
    if (!status)
        status = convert_bytes(replica, entry, stream);
    if (!status)
        status = ls_device_event_record(device, set->arrived, stream);
    if (!status)
        status = ls_device_event_wait(device, set->arrived, NULL);
    return status;
}

// A loss overwrites its sums, and replicas that add up no stop leave none: so there is nothing to
// write but a stop, zeros over one, and the sums of what has no loss.
static enum ls_status write_step_stats(struct ls_replica *replica, bool sums,
                                       const float *step_stats)
{
    const bool stops = step_stats[LS_STEP_STATS_STOP] > 0;
    if (!stops && !sums && !replica->may_stop)
        return LS_OK;
    replica->may_stop = stops;
    return copy(replica, replica->reduced, ls_host_memory(step_stats), LS_STEP_STATS_BYTES);
}

enum ls_status ls_input_choose(struct ls_replica *replica, uint64_t number)
{
    const struct ls_input *input = replica->input;
    if (!input->stream)
        return LS_OK;
    const enum ls_status status =
        ls_device_event_record(replica->device, input->sets[replica->set].read, NULL);
    replica->set = (uint32_t)(number % LS_INPUT_SETS);
    replica->record = input->sets[replica->set].device;
    return status;
}

enum ls_status ls_input_write(struct ls_replica *replica, const struct ls_replica_program *entry,
                              const struct ls_replica_batch *batch, const float *step_stats,
                              const struct ls_wait *wait)
{
    const uint32_t wrong = batch->bytes ^ ls_replica_takes_bytes(replica);
    for (uint32_t i = 0; batch->count && wrong && i < replica->input->count; i++) {
        const struct ls_tensor *tensor = replica->graph->inputs[i];
        const char *type = tensor->dtype == LS_I32 ? "int32" : "float32";
        const bool bytes = batch->bytes >> i & 1;
        if (!(wrong >> i & 1))
            continue;
        ls_error("replica", "examples of input '%s' come as %s; expected %s", tensor->name,
                 bytes ? "bytes" : type, bytes ? type : "bytes");
        return LS_FAILED;
    }
    if (reads_host_memory(replica)) {
        use_in_place(replica, entry, batch, step_stats);
        return LS_OK;
    }
    ls_trace_begin(&copy_span, batch->count);
    if (entry)
        bind(replica, entry);
    enum ls_status status = replica->input->stream ? send(replica, entry, batch, wait)
                                                   : copy_all(replica, entry, batch);
    if (!status && step_stats)
        status = write_step_stats(replica, !entry || replica->graph->seed_count, step_stats);
    ls_trace_end();
    return status;
}

// ---- The gradient of the model's first output, which the host gives where there is a seed ----

static uint64_t output_elements(const struct ls_replica *replica)
{
    return (uint64_t)ls_shape_elements(&replica->graph->outputs[0]->shape, 1);
}

void ls_seed_release(struct ls_replica *replica)
{
    struct ls_seed *seed = &replica->seed;
    if (seed->values && !ls_device_in_host_memory(replica->device))
        free(seed->values);
    ls_replica_give_memory(replica, seed->memory, seed->bytes);
    *seed = (struct ls_seed){0};
}

enum ls_status ls_seed_make_room(struct ls_replica *replica)
{
    struct ls_seed *seed = &replica->seed;
    const uint64_t bytes = replica->largest_batch * output_elements(replica) * sizeof(float);
    if (replica->graph->seed_count == 0 || bytes <= seed->bytes)
        return LS_OK;
    ls_seed_release(replica);
    seed->memory = ls_replica_take_memory(replica, bytes);
    if (ls_memory_is_null(seed->memory))
        return LS_OUT_OF_MEMORY;
    seed->bytes = bytes;
    seed->values = ls_device_in_host_memory(replica->device) ? ls_address(seed->memory)
                                                             : malloc((size_t)bytes);
    return seed->values ? LS_OK : LS_OUT_OF_MEMORY;
}

void ls_seed_bind(const struct ls_replica *replica, struct ls_program *program)
{
    if (replica->graph->seed_count)
        ls_program_set_seeds(program, &replica->seed.memory);
}

float *ls_replica_output_gradient(struct ls_replica *replica)
{
    return replica->seed.values;
}

enum ls_status ls_replica_give_loss(struct ls_replica *replica, uint64_t count, const float *sums)
{
    const struct ls_seed *seed = &replica->seed;
    const uint64_t elements = count * output_elements(replica);
    const float scale = replica->scale.scale;
    for (uint64_t i = 0; scale < 1 || scale > 1 ? i < elements : false; i++)
        seed->values[i] *= scale;
    enum ls_status status = ls_device_copy(replica->device, replica->reduced, ls_host_memory(sums),
                                           LS_SUMS * sizeof(float), NULL);
    if (!status && count && !ls_device_in_host_memory(replica->device))
        status = ls_device_copy(replica->device, seed->memory, ls_host_memory(seed->values),
                                elements * sizeof(float), NULL);
    return status;
}
