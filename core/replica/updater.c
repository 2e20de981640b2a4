// SPDX-License-Identifier: Apache-2.0
// Cuts ranges into runs, and runs what updates them.
#include "core/replica/updater.h"

#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ARGUMENTS (2 + LS_OPTIMIZER_STATES)

// Where an argument of a launch is.
enum base { GRADIENTS, PARAMETERS, STATES, MEASURES = STATES + LS_OPTIMIZER_STATES, OWN, BASES };

struct place {
    enum base base;
    uint64_t offset; // bytes
};

struct step {
    struct ls_kernel *kernel; // NULL: the program's own function updates a variable
    const struct ls_parameter_place *variable;
    uint64_t first, elements; // of the variable
    struct place arguments[MOST_ARGUMENTS];
    uint32_t count;
    bool measures; // part of ls_updater_measure
};

struct ls_updater {
    struct ls_device *device;
    struct ls_own_optimizer own; // of the steps without a kernel
    struct step *steps;
    uint32_t count, room;
    uint64_t scratch_bytes;
};

// A part of the range, in floats of the flat buffers.
struct run {
    uint64_t first, count;
    bool trained; // else moving statistics
    uint32_t op;
    struct ls_op_attributes attributes;
};

// What is being made.
struct making {
    const struct ls_updater_options *options;
    struct ls_updater *updater;
    const char **missing;
    uint64_t measure; // the next one
};

// ---- Runs ----

static uint64_t first_of(const struct ls_parameter_plan *plan, uint32_t place)
{
    return plan->places[place].offset / sizeof(float);
}

// The place that float `at` belongs to; padding belongs to the place before it.
static uint32_t place_at(const struct ls_parameter_plan *plan, uint64_t at)
{
    uint32_t place = 0, end = plan->reduced_count; // the first behind it
    while (end > place + 1) {
        const uint32_t middle = place + (end - place) / 2;
        if (first_of(plan, middle) <= at)
            place = middle;
        else
            end = middle;
    }
    return place;
}

// How a place is updated, without its range.
static struct run rule_of(const struct ls_parameter_place *place,
                          const struct ls_optimizer *optimizer)
{
    if (place->parameter->zone == LS_ZONE_STATISTICS)
        return (struct run){.op = LS_OP_AVERAGE_UPDATE,
                            .attributes = {.momentum = (float)place->parameter->momentum}};
    struct run run = {.trained = true, .op = optimizer->op, .attributes = optimizer->attributes};
    if (!ls_optimizer_decays(optimizer, place->parameter->name))
        run.attributes.weight_decay = 0;
    return run;
}

static bool is_same(const struct run *a, const struct run *b)
{
    return a->op == b->op && memcmp(&a->attributes, &b->attributes, sizeof(a->attributes)) == 0;
}

// The run that begins with float `first` of a range that ends before `end`. The next one, if there
// is one, begins at a place.
static struct run run_at(const struct ls_parameter_plan *plan, const struct ls_optimizer *optimizer,
                         uint64_t first, uint64_t end)
{
    uint32_t place = place_at(plan, first);
    struct run run = rule_of(&plan->places[place], optimizer);
    for (place++; place < plan->reduced_count && first_of(plan, place) < end; place++) {
        const struct run next = rule_of(&plan->places[place], optimizer);
        if (is_same(&run, &next))
            continue;
        end = first_of(plan, place);
        break;
    }
    run.first = first;
    run.count = end - first;
    return run;
}

// The part of a range that belongs to the place at its beginning.
static struct run part_at(const struct ls_parameter_plan *plan, uint64_t first, uint64_t end)
{
    const uint32_t place = place_at(plan, first);
    if (place + 1 < plan->reduced_count && first_of(plan, place + 1) < end)
        end = first_of(plan, place + 1);
    return (struct run){.first = first,
                        .count = end - first,
                        .trained = plan->places[place].parameter->zone == LS_ZONE_TRAINED};
}

uint64_t ls_updater_count_measures(const struct ls_parameter_plan *plan, uint64_t first,
                                   uint64_t end)
{
    uint64_t count = 0;
    for (uint64_t at = first; at < end;) {
        const struct run part = part_at(plan, at, end);
        count += part.trained;
        at += part.count;
    }
    return count;
}

bool ls_updater_cuts_variables(const struct ls_parameter_plan *plan,
                               const struct ls_optimizer *optimizer, uint64_t first, uint64_t end)
{
    if (!ls_optimizer_measures_variables(optimizer))
        return false;
    for (uint64_t at = first; at < end;) {
        const struct run part = part_at(plan, at, end);
        const struct ls_parameter_place *place = &plan->places[place_at(plan, at)];
        const uint64_t begin = place->offset / sizeof(float);
        if (part.trained && (begin != at || begin + place->bytes / sizeof(float) > end))
            return true;
        at += part.count;
    }
    return false;
}

// ---- Making ----

static struct place at(const struct making *making, enum base base, const struct run *run)
{
    return (struct place){base, (run->first - making->options->first) * sizeof(float)};
}

static enum ls_status make_room(struct ls_updater *updater)
{
    if (updater->count < updater->room)
        return LS_OK;
    const uint32_t room = updater->room ? 2 * updater->room : 8;
    struct step *grown = realloc(updater->steps, room * sizeof(*grown));
    if (!grown)
        return LS_OUT_OF_MEMORY;
    updater->steps = grown;
    updater->room = room;
    return LS_OK;
}

static enum ls_status add(struct making *making, const struct ls_range_operation *operation,
                          const struct place *arguments, bool measures)
{
    const struct ls_op_attributes none = {0};
    struct ls_updater *updater = making->updater;
    struct ls_kernel_answer answer;
    enum ls_status status = make_room(updater);
    if (status)
        return status;
    status = ls_device_prepare_range(making->options->device, making->options->about, operation,
                                     &answer);
    if (status == LS_UNSUPPORTED)
        *making->missing = ls_operation_label(
            operation->op, operation->attributes ? operation->attributes : &none);
    if (status)
        return status;
    struct step *step = &updater->steps[updater->count++];
    *step = (struct step){.kernel = answer.kernel,
                          .count = operation->input_count + operation->output_count,
                          .measures = measures};
    memcpy(step->arguments, arguments, step->count * sizeof(*arguments));
    if (answer.scratch_bytes > updater->scratch_bytes)
        updater->scratch_bytes = answer.scratch_bytes;
    return LS_OK;
}

static enum ls_status add_measure(struct making *making, struct place of, uint64_t count,
                                  struct place into, bool before)
{
    const struct ls_op_attributes none = {0};
    const struct ls_range_operation operation = {.op = LS_OP_MEASURE,
                                                 .attributes = &none,
                                                 .input_count = 1,
                                                 .output_count = 1,
                                                 .count = count,
                                                 .measures = 2};
    const struct place arguments[] = {of, into};
    return add(making, &operation, arguments, before);
}

// What is measured, clipped and applied are gradients of the loss itself.
static enum ls_status add_unscale(struct making *making, const struct run *run)
{
    const struct ls_range_operation operation = {
        .op = LS_OP_UNSCALE, .input_count = 1, .output_count = 1, .count = run->count};
    const struct place gradient = at(making, GRADIENTS, run);
    const struct place arguments[] = {gradient, gradient};
    return add(making, &operation, arguments, true);
}

// Measures of each part of a run; `clips`: each is then clipped by its own norm.
static enum ls_status add_norms(struct making *making, const struct run *run, bool clips)
{
    const struct ls_updater_options *options = making->options;
    const struct ls_op_attributes clip = {.function = LS_CLIP_NORM,
                                          .threshold = options->optimizer->clip};
    enum ls_status status = LS_OK;
    for (uint64_t first = run->first, end = first + run->count; !status && first < end;) {
        const struct run part = part_at(options->plan, first, end);
        const struct place gradient = at(making, GRADIENTS, &part);
        const struct place into =
            clips ? (struct place){OWN, 0}
                  : (struct place){MEASURES, making->measure++ * 2 * sizeof(double)};
        const struct place arguments[] = {gradient, into, gradient};
        const struct ls_range_operation operation = {.op = LS_OP_CLIP,
                                                     .attributes = &clip,
                                                     .input_count = 2,
                                                     .output_count = 1,
                                                     .count = part.count,
                                                     .measures = 2};
        status = add_measure(making, gradient, part.count, into, !clips);
        if (!status && clips)
            status = add(making, &operation, arguments, false);
        first += part.count;
    }
    return status;
}

// By value, or by the norm of all gradients.
static enum ls_status add_clip(struct making *making, const struct run *run)
{
    const struct ls_optimizer *optimizer = making->options->optimizer;
    const bool all = optimizer->clipping == LS_CLIP_GLOBAL_NORM;
    const struct ls_op_attributes attributes = {.function = all ? LS_CLIP_NORM : LS_CLIP_VALUE,
                                                .threshold = optimizer->clip};
    const struct ls_range_operation operation = {.op = LS_OP_CLIP,
                                                 .attributes = &attributes,
                                                 .input_count = 1 + (uint32_t)all,
                                                 .output_count = 1,
                                                 .count = run->count,
                                                 .measures =
                                                     all ? 2 * making->options->measures : 0};
    const struct place gradient = at(making, GRADIENTS, run);
    const struct place by_norm[] = {gradient, {MEASURES, 0}, gradient};
    const struct place by_value[] = {gradient, gradient};
    return add(making, &operation, all ? by_norm : by_value, false);
}

// For each variable of a run: w -= ratio of norms times rate times direction.
static enum ls_status add_lamb(struct making *making, const struct run *run)
{
    const struct place own = {OWN, 0}, own_of_direction = {OWN, 2 * sizeof(double)};
    enum ls_status status = LS_OK;
    for (uint64_t first = run->first, end = first + run->count; !status && first < end;) {
        const struct run part = part_at(making->options->plan, first, end);
        const struct place direction = at(making, GRADIENTS, &part);
        const struct place parameter = at(making, PARAMETERS, &part);
        const struct ls_range_operation operation = {.op = LS_OP_LAMB_UPDATE,
                                                     .attributes = &run->attributes,
                                                     .input_count = 2,
                                                     .output_count = 1,
                                                     .count = part.count,
                                                     .measures = 4};
        const struct place arguments[] = {direction, own, parameter};
        status = add_measure(making, parameter, part.count, own, false);
        if (!status)
            status = add_measure(making, direction, part.count, own_of_direction, false);
        if (!status)
            status = add(making, &operation, arguments, false);
        first += part.count;
    }
    return status;
}

// A call for each variable of a run.
static enum ls_status add_own(struct making *making, const struct run *run)
{
    const struct ls_parameter_plan *plan = making->options->plan;
    struct ls_updater *updater = making->updater;
    for (uint64_t first = run->first, end = run->first + run->count; first < end;) {
        const struct run part = part_at(plan, first, end);
        const struct ls_parameter_place *variable = &plan->places[place_at(plan, first)];
        const uint64_t begin = first - variable->offset / sizeof(float);
        const uint64_t all = variable->bytes / sizeof(float);
        const enum ls_status status = make_room(updater);
        if (status)
            return status;
        const uint64_t left = begin < all ? all - begin : 0; // the rest is padding
        if (left) {
            struct step *step = &updater->steps[updater->count++];
            *step = (struct step){.variable = variable,
                                  .first = begin,
                                  .elements = part.count < left ? part.count : left,
                                  .count = 2 + LS_OWN_STATES};
            step->arguments[0] = at(making, GRADIENTS, &part);
            step->arguments[1] = at(making, PARAMETERS, &part);
            for (uint32_t i = 0; i < LS_OWN_STATES; i++)
                step->arguments[2 + i] = at(making, STATES + i, &part);
        }
        first += part.count;
    }
    return LS_OK;
}

static enum ls_status add_update(struct making *making, const struct run *run)
{
    const struct ls_optimizer *optimizer = making->options->optimizer;
    if (run->trained && optimizer->own.update)
        return add_own(making, run);
    const bool lamb = run->op == LS_OP_LAMB_DIRECTION;
    const uint32_t states = run->trained ? optimizer->own_states : 0;
    struct place arguments[MOST_ARGUMENTS];
    uint32_t count = 0;
    arguments[count++] = at(making, GRADIENTS, run);
    if (lamb)
        arguments[count++] = at(making, GRADIENTS, run);
    arguments[count++] = at(making, PARAMETERS, run);
    for (uint32_t i = 0; i < states; i++)
        arguments[count++] = at(making, STATES + i, run);
    const struct ls_range_operation operation = {.op = run->op,
                                                 .attributes = &run->attributes,
                                                 .input_count = 1,
                                                 .output_count = count - 1,
                                                 .count = run->count};
    const enum ls_status status = add(making, &operation, arguments, false);
    return status || !lamb ? status : add_lamb(making, run);
}

static enum ls_status add_average(struct making *making, const struct run *run)
{
    const struct ls_optimizer *optimizer = making->options->optimizer;
    const struct ls_op_attributes attributes = {.momentum = optimizer->average_momentum,
                                                .count = optimizer->average_overwrites};
    const struct ls_range_operation operation = {.op = LS_OP_EMA_UPDATE,
                                                 .attributes = &attributes,
                                                 .input_count = 1,
                                                 .output_count = 2,
                                                 .count = run->count};
    const struct place parameter = at(making, PARAMETERS, run);
    const struct place arguments[] = {parameter, at(making, STATES + optimizer->own_states, run),
                                      parameter};
    return add(making, &operation, arguments, false);
}

static enum ls_status add_run(struct making *making, const struct run *run)
{
    const struct ls_optimizer *optimizer = making->options->optimizer;
    const enum ls_clipping clipping = run->trained ? optimizer->clipping : LS_NO_CLIPPING;
    enum ls_status status = LS_OK;
    if (run->trained && ls_optimizer_scales(optimizer))
        status = add_unscale(making, run);
    if (!status && run->trained && ls_optimizer_measures_all(optimizer))
        status = add_norms(making, run, false);
    if (!status && clipping == LS_CLIP_EACH_NORM)
        status = add_norms(making, run, true);
    if (!status && (clipping == LS_CLIP_EACH_VALUE || clipping == LS_CLIP_GLOBAL_NORM))
        status = add_clip(making, run);
    if (!status)
        status = add_update(making, run);
    if (!status && run->trained && optimizer->averages)
        status = add_average(making, run);
    return status;
}

enum ls_status ls_updater_create(const struct ls_updater_options *options, const char **missing,
                                 struct ls_updater **out)
{
    struct ls_updater *updater = calloc(1, sizeof(*updater));
    if (!updater)
        return LS_OUT_OF_MEMORY;
    updater->device = options->device;
    updater->own = options->optimizer->own;
    if (updater->own.update && !ls_device_in_host_memory(options->device)) {
        if (!ls_device_tell_lack(options->device,
                                 "has memory of its own, and optimizer '%s' updates variables in "
                                 "host memory",
                                 options->optimizer->name))
            ls_error("own_optimizer",
                     "'%s' updates variables in host memory, and this device has its "
                     "own; use --device=cpu, or an optimizer by name",
                     options->optimizer->name);
        free(updater);
        return LS_UNAVAILABLE;
    }
    struct making making = {options, updater, missing, options->first_measure};
    enum ls_status status = LS_OK;
    for (uint64_t first = options->first; !status && first < options->end;) {
        const struct run run = run_at(options->plan, options->optimizer, first, options->end);
        status = add_run(&making, &run);
        first += run.count;
    }
    if (status)
        ls_updater_destroy(updater);
    else
        *out = updater;
    return status;
}

void ls_updater_destroy(struct ls_updater *updater)
{
    if (!updater)
        return;
    for (uint32_t i = 0; i < updater->count; i++)
        if (updater->steps[i].kernel)
            ls_device_release_kernel(updater->device, updater->steps[i].kernel);
    free(updater->steps);
    free(updater);
}

uint64_t ls_updater_scratch_bytes(const struct ls_updater *updater)
{
    return updater->scratch_bytes;
}

// ---- Running ----

static enum ls_status run_own(const struct ls_updater *updater, const struct step *step,
                              const struct ls_memory *arguments, struct ls_memory at_record)
{
    const struct ls_step_record *record = ls_address(at_record);
    struct ls_update_range range = {.variable = step->variable->parameter->name,
                                    .first = step->first,
                                    .count = step->elements,
                                    .gradients = ls_address(arguments[0]),
                                    .parameters = ls_address(arguments[1]),
                                    .update = record->update,
                                    .learning_rate = record->learning_rate};
    for (uint32_t i = 0; i < updater->own.state_count; i++)
        range.states[i] = ls_address(arguments[2 + i]);
    const enum ls_status status = updater->own.update(updater->own.context, &range);
    if (!status)
        return LS_OK;
    ls_error("own_optimizer", "the update function answered '%s' (status %d) for '%s'",
             ls_status_text(status), (int)status, range.variable);
    return status == LS_ABORTED || status == LS_INTERRUPTED ? LS_FAILED : status;
}

static enum ls_status run_steps(const struct ls_updater *updater,
                                const struct ls_updater_memory *memory, bool measures)
{
    struct ls_memory bases[BASES] = {[GRADIENTS] = memory->gradients,
                                     [PARAMETERS] = memory->parameters,
                                     [MEASURES] = memory->measures,
                                     [OWN] = memory->own};
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; i < LS_OPTIMIZER_STATES; i++)
        bases[STATES + i] = memory->states[i];
    for (uint32_t i = 0; !status && i < updater->count; i++) {
        const struct step *step = &updater->steps[i];
        struct ls_memory arguments[MOST_ARGUMENTS];
        if (step->measures != measures)
            continue;
        for (uint32_t k = 0; k < step->count; k++)
            arguments[k] = ls_memory_at(bases[step->arguments[k].base], step->arguments[k].offset);
        if (!step->kernel) {
            status = run_own(updater, step, arguments, memory->record);
            continue;
        }
        const struct ls_launch launch = {.struct_size = sizeof(launch),
                                         .argument_count = step->count,
                                         .arguments = arguments,
                                         .scratch = memory->scratch,
                                         .record = memory->record};
        status = ls_device_launch(updater->device, step->kernel, &launch);
    }
    return status;
}

bool ls_measures_finite(const double *measures, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (measures[2 * i + 1] > 0)
            return false;
    return true;
}

enum ls_status ls_updater_measure(const struct ls_updater *updater,
                                  const struct ls_updater_memory *memory)
{
    return run_steps(updater, memory, true);
}

enum ls_status ls_updater_run(const struct ls_updater *updater,
                              const struct ls_updater_memory *memory)
{
    return run_steps(updater, memory, false);
}
