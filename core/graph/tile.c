// SPDX-License-Identifier: Apache-2.0
// Tiles: where a step writes what only the next one reads, and that is larger than the fast memory
// of the device, both run in turn on a few examples at a time. What lies between them is then as
// large as a tile, and never leaves the cache.
#include "core/graph/build.h"

#include "core/base/clock.h"
#include "core/base/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A step of a run of steps that are tiled together.
struct ls_tile {
    uint32_t first, last; // steps of the run
    uint32_t count; // of tiles; the last may be smaller
    struct ls_kernel
        *kernels[3]; // of the first tile, of those after it, of a smaller one; NULL: the one before
    uint64_t
        strides[LS_MAX_ARGUMENTS]; // bytes from a tile to the next; 0: all have the same memory
};

static const struct ls_value *argument_of(const struct ls_program *program, uint32_t step,
                                          uint32_t argument)
{
    return &program->buffers->values[program->buffers->plans[step].values[argument]];
}

static uint32_t argument_count(const struct ls_program_step *step)
{
    return step->input_count + step->output_count;
}

// ---- Which steps ----

static enum ls_operation_examples examples_of(const struct ls_program_step *step)
{
    return step->operation ? ls_operation_row(step->operation->op)->examples : LS_EXAMPLES_TOGETHER;
}

// `saved` is of a size that the device chose, one example like the other.
static bool has_examples(const struct ls_value *value)
{
    const struct ls_shape *shape = &value->tensor->shape;
    return shape->ndims == 0 || shape->dims[0] == LS_BATCH;
}

static bool divides(const struct ls_program *program, uint32_t s)
{
    const uint64_t batch = (uint64_t)program->options.batch;
    for (uint32_t i = 0; i < argument_count(&program->steps[s]); i++) {
        const struct ls_value *value = argument_of(program, s, i);
        if (has_examples(value) && value->layout.bytes % batch != 0)
            return false;
    }
    return true;
}

static bool uses(const struct ls_program *program, uint32_t s, uint32_t value)
{
    const struct ls_step_plan *plan = &program->buffers->plans[s];
    const uint32_t inputs = program->steps[s].input_count;
    for (uint32_t i = 0; i < argument_count(&program->steps[s]); i++)
        if ((i >= inputs || (plan->used_inputs >> i & 1) != 0) &&
            ls_value_memory(program->buffers, plan->values[i]) == value)
            return true;
    return false;
}

// How many steps read or write this value's memory.
static uint32_t count_users(const struct ls_program *program, uint32_t value)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        count += uses(program, s, value);
    return count;
}

// Whether step `s` reads the value, and by no other name: a reshape's would have another size.
static bool reads(const struct ls_program *program, uint32_t s, uint32_t value)
{
    const struct ls_step_plan *plan = &program->buffers->plans[s];
    bool any = false;
    for (uint32_t i = 0; i < program->steps[s].input_count; i++) {
        if ((plan->used_inputs >> i & 1) == 0 ||
            ls_value_memory(program->buffers, plan->values[i]) != value)
            continue;
        if (plan->values[i] != value)
            return false;
        any = true;
    }
    return any;
}

// Whether the first output of step `s` is there for the next step alone.
static bool is_between(const struct ls_program *program, uint32_t s)
{
    const struct ls_program_buffers *buffers = program->buffers;
    const uint32_t value = buffers->plans[s].values[program->steps[s].input_count];
    const struct ls_value *output = &buffers->values[value];
    return output->home == LS_HOME_ARENA && output->memory == value && has_examples(output) &&
           !ls_is_output(buffers, value) && !output->loss_reads && reads(program, s + 1, value) &&
           count_users(program, value) == 2;
}

// The step before can hand its output over in tiles.
static bool follows(const struct ls_program *program, uint32_t s)
{
    return examples_of(&program->steps[s - 1]) == LS_EXAMPLES_APART &&
           examples_of(&program->steps[s]) != LS_EXAMPLES_TOGETHER &&
           program->steps[s - 1].backward == program->steps[s].backward &&
           divides(program, s - 1) && divides(program, s) && is_between(program, s - 1);
}

// Whether step `s` reads parameters of another bucket than the steps of its tile before it.
// `bucket`: theirs, then its own; LS_NO_PLACE: none yet.
static bool changes_bucket(const struct ls_program *program, uint32_t s, uint32_t *bucket)
{
    const uint32_t before = *bucket;
    bool changes = false;
    for (uint32_t i = 0; program->options.buckets && i < program->steps[s].input_count; i++) {
        const uint32_t memory =
            ls_value_memory(program->buffers, program->buffers->plans[s].values[i]);
        const struct ls_value *value = &program->buffers->values[memory];
        if (value->home != LS_HOME_PARAMETERS && value->home != LS_HOME_SHADOWS)
            continue;
        *bucket = program->options.buckets[value->place];
        changes = changes || (before != LS_NO_PLACE && *bucket != before);
    }
    return changes;
}

static uint64_t between_bytes(const struct ls_program *program, uint32_t s)
{
    return argument_of(program, s, program->steps[s].input_count)->layout.bytes;
}

// What each tile reads again, and adds to again (the kernel's own pass over it and one to add),
// beside the examples.
static uint64_t repeated_bytes(const struct ls_program *program, uint32_t s)
{
    const struct ls_program_step *step = &program->steps[s];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < argument_count(step); i++) {
        const struct ls_value *value = argument_of(program, s, i);
        if (!has_examples(value))
            bytes += value->layout.bytes * (i < step->input_count ? 1 : 4);
    }
    return bytes;
}

// Examples of a tile: the largest power of two (so that threads get equal shares) whose largest
// value between two steps is no larger than `room`. 0: everything is, or one example is not, or
// tiles would move more than they spare.
static int64_t tile_examples(const struct ls_program *program, uint32_t first, uint32_t last,
                             uint64_t room)
{
    const uint64_t batch = (uint64_t)program->options.batch;
    uint64_t largest = 0, spared = 0, repeated = 0, examples = 1;
    for (uint32_t s = first; s <= last; s++) {
        const uint64_t bytes = s < last ? between_bytes(program, s) : 0;
        largest = bytes > largest ? bytes : largest;
        spared += 2 * bytes;
        repeated += repeated_bytes(program, s);
    }
    if (largest <= room || largest / batch > room)
        return 0;
    while (examples * 2 * (largest / batch) <= room)
        examples *= 2;
    return repeated * (batch / examples) < spared ? (int64_t)examples : 0;
}

// ---- Kernels ----

static void fill_request(const struct ls_program *program, uint32_t s, int64_t examples, bool more,
                         struct ls_tensor_desc *arguments, struct ls_kernel_request *out)
{
    const struct ls_program_step *step = &program->steps[s];
    const uint64_t batch = (uint64_t)program->options.batch;

    *out = (struct ls_kernel_request){.struct_size = sizeof(*out),
                                      .op = step->operation->op,
                                      .attributes = step->attributes,
                                      .input_count = step->input_count,
                                      .output_count = step->output_count,
                                      .arguments = arguments,
                                      .accumulate = program->buffers->plans[s].accumulate};
    for (uint32_t i = 0; i < argument_count(step); i++) {
        const struct ls_value *value = argument_of(program, s, i);
        struct ls_tensor_desc *desc = &arguments[i];
        ls_describe_tensor(value->tensor, examples, desc);
        desc->layout = value->layout;
        if (has_examples(value))
            desc->layout.bytes = value->layout.bytes / batch * (uint64_t)examples;
        else if (i >= step->input_count && more)
            out->accumulate |= 1u << (i - step->input_count);
        if (value->tensor->shape.ndims > 0)
            continue;
        desc->dims[0] = (int64_t)desc->layout.bytes;
        if (i >= step->input_count)
            desc->layout = (struct ls_layout){0};
    }
}

// Whether the kernel does for a tile what that of the step does for the batch.
static bool fits(const struct ls_program *program, uint32_t s,
                 const struct ls_kernel_request *request, const struct ls_kernel_answer *answer)
{
    const struct ls_program_step *step = &program->steps[s];
    if (answer->used_inputs != program->buffers->plans[s].used_inputs ||
        (answer->slow && !step->slow))
        return false;
    for (uint32_t i = 0; i < argument_count(step); i++) {
        const bool saved = argument_of(program, s, i)->tensor->shape.ndims == 0;
        if (saved && i >= step->input_count &&
            (int64_t)answer->saved_bytes != request->arguments[i].dims[0])
            return false;
        if (!saved && !ls_layout_equal(&answer->layouts[i], &request->arguments[i].layout))
            return false;
    }
    return true;
}

// `out` NULL with LS_OK: the device has none, and the step stays whole. `scratch` is the largest
// that a kernel of the step needs.
static enum ls_status prepare(const struct ls_program *program, uint32_t s, int64_t examples,
                              bool more, uint64_t *scratch, struct ls_kernel **out)
{
    const struct ls_parameter_plan *plan = program->plan;
    struct ls_tensor_desc arguments[LS_MAX_ARGUMENTS];
    struct ls_layout layouts[LS_MAX_ARGUMENTS];
    struct ls_kernel_answer answer = {.layouts = layouts};
    struct ls_kernel_request request;

    fill_request(program, s, examples, more, arguments, &request);
    const enum ls_status status =
        ls_device_prepare(plan->device, ls_op_name(request.op), &request, &answer);
    if (status)
        return status == LS_UNSUPPORTED ? LS_OK : status;
    if (!fits(program, s, &request, &answer)) {
        ls_device_release_kernel(plan->device, answer.kernel);
        return LS_OK;
    }
    *scratch = answer.scratch_bytes > *scratch ? answer.scratch_bytes : *scratch;
    *out = answer.kernel;
    return LS_OK;
}

void ls_tile_destroy(struct ls_program *program, struct ls_tile *tile)
{
    for (uint32_t i = 0; tile && i < 3; i++)
        ls_device_release_kernel(program->plan->device, tile->kernels[i]);
    free(tile);
}

// `out` NULL with LS_OK: the step cannot be tiled. Fills `scratch`.
static enum ls_status make_tile(struct ls_program *program, uint32_t s, uint32_t last,
                                int64_t examples, uint64_t *scratch, struct ls_tile **out)
{
    const int64_t batch = program->options.batch, rest = batch % examples;
    const bool needed[3] = {true, examples_of(&program->steps[s]) == LS_EXAMPLES_SUMMED, rest != 0};
    struct ls_tile *tile = calloc(1, sizeof(*tile));
    enum ls_status status = tile ? LS_OK : LS_OUT_OF_MEMORY;
    bool works = tile != NULL;

    for (uint32_t i = 0; i < 3 && works && !status; i++) {
        if (!needed[i])
            continue;
        status = prepare(program, s, i == 2 ? rest : examples, i > 0, scratch, &tile->kernels[i]);
        works = tile->kernels[i] != NULL;
    }
    if (status || !works) {
        ls_tile_destroy(program, tile);
        return status;
    }
    tile->last = last;
    tile->count = (uint32_t)(batch / examples + (rest != 0));
    *out = tile;
    return LS_OK;
}

// ---- Runs ----

static void set_strides(struct ls_program *program, uint32_t s, int64_t examples)
{
    const struct ls_program_step *step = &program->steps[s];
    struct ls_tile *tile = program->buffers->plans[s].tile;
    for (uint32_t i = 0; i < argument_count(step); i++) {
        const struct ls_value *value = argument_of(program, s, i);
        if (has_examples(value))
            tile->strides[i] =
                value->layout.bytes / (uint64_t)program->options.batch * (uint64_t)examples;
    }
}

// What lies between two steps has the memory of one tile from now on.
static void shrink(struct ls_program *program, uint32_t s)
{
    const struct ls_program_buffers *buffers = program->buffers;
    const uint32_t output = program->steps[s].input_count, value = buffers->plans[s].values[output];
    struct ls_tile *tile = buffers->plans[s].tile, *next = buffers->plans[s + 1].tile;

    buffers->values[value].tile_bytes = tile->strides[output];
    tile->strides[output] = 0;
    for (uint32_t i = 0; i < program->steps[s + 1].input_count; i++)
        if (buffers->plans[s + 1].values[i] == value)
            next->strides[i] = 0;
}

static void take_tiles(struct ls_program *program, uint32_t first, uint32_t last, int64_t examples,
                       struct ls_tile **tiles, const uint64_t *scratch)
{
    for (uint32_t s = first; s <= last; s++) {
        struct ls_program_step *step = &program->steps[s];
        const size_t length = strlen(step->implementation);
        ls_device_release_kernel(program->plan->device, step->kernel);
        step->kernel = NULL;
        step->scratch_bytes = scratch[s - first];
        snprintf(step->implementation + length, sizeof(step->implementation) - length,
                 ", %lld at a time", (long long)examples);
        tiles[s - first]->first = first;
        program->buffers->plans[s].tile = tiles[s - first];
        set_strides(program, s, examples);
    }
    for (uint32_t s = first; s < last; s++)
        shrink(program, s);
}

// Tiles steps first .. last, or leaves them as they are where the device has no kernels for that.
static enum ls_status tile_run(struct ls_program *program, uint32_t first, uint32_t last,
                               int64_t examples)
{
    const uint32_t count = last - first + 1;
    struct ls_tile **tiles = calloc(count, sizeof(struct ls_tile *));
    uint64_t *scratch = calloc(count, sizeof(*scratch));
    enum ls_status status = tiles && scratch ? LS_OK : LS_OUT_OF_MEMORY;
    bool works = !status;

    for (uint32_t i = 0; i < count && works; i++) {
        status = make_tile(program, first + i, last, examples, &scratch[i], &tiles[i]);
        works = tiles[i] != NULL;
    }
    if (works)
        take_tiles(program, first, last, examples, tiles, scratch);
    for (uint32_t i = 0; tiles && i < count && !works; i++)
        ls_tile_destroy(program, tiles[i]);
    free(tiles);
    free(scratch);
    return status;
}

enum ls_status ls_tile_steps(struct ls_program *program)
{
    const uint64_t room = ls_device_tile_bytes(program->plan->device);

    for (uint32_t first = 0, last; room > 0 && first < program->step_count; first = last + 1) {
        uint32_t bucket = LS_NO_PLACE;
        last = first;
        (void)changes_bucket(program, first, &bucket);
        while (last + 1 < program->step_count && follows(program, last + 1) &&
               !changes_bucket(program, last + 1, &bucket))
            last++;
        const int64_t examples = tile_examples(program, first, last, room);
        const enum ls_status status = examples ? tile_run(program, first, last, examples) : LS_OK;
        if (status)
            return status;
    }
    return LS_OK;
}

// ---- Running ----

// The kernel of a tile; writes where its arguments are.
static const struct ls_kernel *place_tile(const struct ls_program *program, uint32_t s,
                                          uint32_t number, struct ls_memory *memory)
{
    const struct ls_program_step *step = &program->steps[s];
    const struct ls_tile *tile = program->buffers->plans[s].tile;

    for (uint32_t i = 0; i < argument_count(step); i++)
        memory[i] = ls_memory_is_null(step->memory[i])
                        ? step->memory[i]
                        : ls_memory_at(step->memory[i], number * tile->strides[i]);
    if (number + 1 == tile->count && tile->kernels[2]) // it is smaller
        return tile->kernels[2];
    return number > 0 && tile->kernels[1] ? tile->kernels[1] : tile->kernels[0];
}

enum ls_status ls_tile_run(struct ls_program *program, uint32_t first, bool timing)
{
    const struct ls_tile *head = program->buffers->plans[first].tile;
    uint64_t before = timing ? ls_clock_ns() : 0;

    for (uint32_t number = 0; number < head->count; number++)
        for (uint32_t s = first; s <= head->last; s++) {
            struct ls_launch launch = program->buffers->launches[s];
            struct ls_memory memory[LS_MAX_ARGUMENTS];
            const struct ls_kernel *kernel = place_tile(program, s, number, memory);
            launch.arguments = memory;
            ls_inside_about(program->steps[s].label);
            const enum ls_status status = ls_device_launch(program->plan->device, kernel, &launch);
            if (status)
                return status;
            if (!timing)
                continue;
            const uint64_t after = ls_clock_ns();
            program->steps[s].nanoseconds += after - before;
            ls_trace_span(program->steps[s].trace, before, after, 0);
            before = after;
        }
    return LS_OK;
}

uint32_t ls_tile_first(const struct ls_program *program, uint32_t step)
{
    const struct ls_tile *tile = program->buffers->plans[step].tile;
    return tile ? tile->first : step;
}

uint32_t ls_tile_last(const struct ls_program *program, uint32_t step)
{
    const struct ls_tile *tile = program->buffers->plans[step].tile;
    return tile ? tile->last : step;
}
