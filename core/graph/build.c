// SPDX-License-Identifier: Apache-2.0
// The course of building a program: values and nodes from the graph, rewriting, a step for each
// node, segments, tiles, memory, and tables of what the steps need and make.
#include "core/graph/build.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BATCH_ELEMENTS \
    (INT64_C(1) << 48) // of one tensor: sizes in bytes stay far from overflow

// ---- Values ----

static enum ls_home home_of(enum ls_tensor_role role)
{
    switch (role) {
    case LS_ROLE_INPUT: return LS_HOME_INPUT;
    case LS_ROLE_LABEL: return LS_HOME_LABELS;
    case LS_ROLE_WEIGHT: return LS_HOME_WEIGHTS;
    case LS_ROLE_SEED: return LS_HOME_SEED;
    case LS_ROLE_PARAMETER: return LS_HOME_PARAMETERS;
    case LS_ROLE_PARAMETER_GRADIENT: return LS_HOME_GRADIENTS;
    case LS_ROLE_SUMS: return LS_HOME_SUMS;
    case LS_ROLE_TOTAL: return LS_HOME_TOTALS;
    case LS_ROLE_COUNTS: return LS_HOME_COUNTS;
    case LS_ROLE_ACTIVATION:
    case LS_ROLE_GRADIENT:
    case LS_ROLE_SAVED: break;
    }
    return LS_HOME_ARENA;
}

static enum ls_status find_place(const struct ls_build *build, const struct ls_tensor *parameter,
                                 struct ls_value *value)
{
    const struct ls_parameter_plan *plan = build->plan;
    const uint32_t place = ls_plan_find(plan, parameter->name);

    if (place == LS_NO_PLACE ||
        !ls_shape_equal(&plan->places[place].parameter->shape, &parameter->shape)) {
        ls_error(build->graph->name,
                 "the parameter plan has no place for '%s'; make it from this model",
                 parameter->name);
        return LS_BAD_INPUT;
    }
    value->place = place;
    value->offset = plan->places[place].offset;
    value->layout = plan->places[place].layout;
    value->next = build->of_place[place];
    build->of_place[place] = (uint32_t)(value - build->buffers->values);
    return LS_OK;
}

// Where nothing is trained nobody adds totals up: they are what the device found, in the arena.
static void find_total(const struct ls_build *build, const struct ls_tensor *tensor,
                       struct ls_value *value)
{
    value->home = ls_build_trains(build) ? LS_HOME_TOTALS : LS_HOME_ARENA;
    for (uint32_t i = 0; ls_build_trains(build) && i < build->plan->total_count; i++)
        if (build->plan->totals[i].tensor == tensor) {
            value->place = i;
            value->offset = build->plan->totals[i].offset;
        }
}

// What is known of a tensor's layout from the start.
static enum ls_status set_known(struct ls_build *build, struct ls_value *value)
{
    struct ls_tensor *tensor = value->tensor;
    struct ls_tensor_desc desc;

    value->home = home_of(tensor->role);
    if (tensor->role == LS_ROLE_PARAMETER)
        return find_place(build, tensor, value);
    if (tensor->role == LS_ROLE_PARAMETER_GRADIENT)
        return find_place(build, tensor->gradient_of, value);
    if (tensor->role == LS_ROLE_TOTAL)
        find_total(build, tensor, value);
    const bool computed = tensor->role == LS_ROLE_ACTIVATION || tensor->role == LS_ROLE_GRADIENT;
    if (computed || tensor->shape.ndims == 0)
        return LS_OK;
    ls_describe_tensor(tensor, build->options.batch, &desc);
    value->layout = ls_plain_layout(&desc);
    return LS_OK;
}

// Which of the inputs, labels or seeds a value is.
static void number_values(const struct ls_build *build)
{
    const struct ls_graph *graph = build->graph;

    for (uint32_t i = 0; i < graph->input_count; i++)
        build->buffers->values[graph->inputs[i]->id].place = i;
    for (uint32_t i = 0; i < graph->label_count; i++)
        build->buffers->values[graph->labels[i]->id].place = i;
    for (uint32_t i = 0; i < graph->seed_count; i++)
        build->buffers->values[graph->seeds[i]->id].place = i;
}

static enum ls_status check_batch(const struct ls_build *build)
{
    const int64_t batch = build->options.batch;

    for (uint32_t i = 0; i < build->graph->tensor_count; i++) {
        const int64_t elements = ls_shape_elements(&build->graph->tensors[i]->shape, 1);
        if (batch >= 1 && batch <= INT32_MAX && elements <= MAX_BATCH_ELEMENTS / batch)
            continue;
        ls_error(build->graph->name,
                 "a batch of %lld examples cannot be computed; choose another size",
                 (long long)batch);
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

static enum ls_status make_values(struct ls_build *build)
{
    const uint32_t places = build->plan->place_count;
    enum ls_status status = check_batch(build);
    build->of_place = malloc(((size_t)places + 1) * sizeof(*build->of_place));
    if (!build->of_place)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < places; i++)
        build->of_place[i] = LS_NO_VALUE;
    for (uint32_t i = 0; i < build->graph->tensor_count && !status; i++) {
        struct ls_value *value = ls_value_add(build->buffers);
        if (!value)
            return LS_OUT_OF_MEMORY;
        value->tensor = build->graph->tensors[i];
        status = set_known(build, value);
    }
    if (!status)
        number_values(build);
    return status;
}

// ---- Nodes and steps ----

static void make_node(struct ls_build *build, uint32_t index)
{
    const struct ls_operation *source = &build->graph->operations[index];
    struct ls_node *node = &build->nodes[index];

    *node = (struct ls_node){.op = source->op,
                             .attributes = source->attributes,
                             .input_count = source->input_count,
                             .output_count = source->output_count,
                             .source = source};
    if (!ls_build_trains(build))
        node->attributes.rate = 0; // nothing is dropped
    for (uint32_t i = 0; i < source->input_count; i++)
        node->inputs[i] = source->inputs[i]->id;
    for (uint32_t i = 0; i < source->output_count; i++) {
        node->outputs[i] = source->outputs[i]->id;
        build->buffers->values[node->outputs[i]].producer = (int32_t)index;
    }
}

static enum ls_status make_nodes(struct ls_build *build)
{
    const struct ls_graph *graph = build->graph;

    while (build->node_count < graph->operation_count &&
           (ls_build_trains(build) || !graph->operations[build->node_count].backward))
        build->node_count++;
    build->nodes = calloc((size_t)build->node_count + 1, sizeof(*build->nodes));
    if (!build->nodes)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < build->node_count; i++)
        make_node(build, i);
    return LS_OK;
}

// Whether it is of training alone, as backward operations and contributions to statistics are: no
// layout is chosen by it.
static bool only_trains(const struct ls_node *node)
{
    return node->source->backward || node->source->outputs[0]->role == LS_ROLE_PARAMETER_GRADIENT;
}

static enum ls_status prepare_nodes(struct ls_build *build)
{
    for (uint32_t i = 0; i < build->node_count; i++) {
        if (build->nodes[i].removed || (build->choosing && only_trains(&build->nodes[i])))
            continue;
        enum ls_status status = ls_prepare_node(build, i);
        if (status)
            return status;
    }
    return LS_OK;
}

static enum ls_status build_start(struct ls_build *build)
{
    struct ls_program *program = calloc(1, sizeof(*program));
    if (!program)
        return LS_OUT_OF_MEMORY;
    build->program = program;
    program->buffers = calloc(1, sizeof(*program->buffers));
    if (!program->buffers)
        return LS_OUT_OF_MEMORY;
    build->buffers = program->buffers;
    build->buffers->output_count = build->graph->output_count;
    build->buffers->outputs =
        calloc((size_t)build->graph->output_count + 1, sizeof(*build->buffers->outputs));
    if (!build->buffers->outputs)
        return LS_OUT_OF_MEMORY;
    program->plan = build->plan;
    program->graph = build->graph;
    program->options = build->options;
    return LS_OK;
}

enum ls_status ls_build_program(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                                const struct ls_program_options *options, bool choosing,
                                struct ls_program **out)
{
    struct ls_build build = {
        .plan = plan, .graph = graph, .options = *options, .choosing = choosing};

    enum ls_status status = build_start(&build);
    if (!status)
        status = make_values(&build);
    if (!status)
        status = make_nodes(&build);
    if (!status) {
        ls_rewrite(&build);
        status = prepare_nodes(&build);
    }
    free(build.nodes);
    free(build.of_place);
    if (status) {
        ls_program_destroy(build.program);
        return status;
    }
    *out = build.program;
    return LS_OK;
}

// ---- Programs ----

// ---- Creating ----

static void find_ready(struct ls_program *program)
{
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct ls_program_step *step = &program->steps[s];
        for (uint32_t i = step->input_count; i < step->input_count + step->output_count; i++) {
            const struct ls_value *value =
                &program->buffers->values[program->buffers->plans[s].values[i]];
            if (value->home == LS_HOME_GRADIENTS)
                program->ready[value->place] = s;
        }
    }
}

// The value in whose memory it is.
static const struct ls_value *root_of(const struct ls_program *program, uint32_t value)
{
    return &program->buffers->values[ls_value_memory(program->buffers, value)];
}

// Only counts them while there is no list.
static void find_reads(struct ls_program *program)
{
    program->read_count = 0;
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct ls_step_plan *plan = &program->buffers->plans[s];
        for (uint32_t i = 0; i < program->steps[s].input_count; i++) {
            const struct ls_value *value = root_of(program, plan->values[i]);
            if (value->home != LS_HOME_PARAMETERS && value->home != LS_HOME_SHADOWS)
                continue;
            if (program->reads)
                program->reads[program->read_count] =
                    (struct ls_program_read){ls_tile_first(program, s), value->place};
            program->read_count++;
        }
    }
}

static enum ls_status list_reads(struct ls_program *program)
{
    find_reads(program);
    program->reads = calloc((size_t)program->read_count + 1, sizeof(*program->reads));
    if (!program->reads)
        return LS_OUT_OF_MEMORY;
    find_reads(program);
    return LS_OK;
}

static void find_written(struct ls_program *program)
{
    for (uint32_t place = 0; place < program->plan->place_count; place++)
        program->written[place] = program->step_count;
    for (uint32_t s = program->step_count; s-- > 0;) {
        const struct ls_program_step *step = &program->steps[s];
        const struct ls_step_plan *plan = &program->buffers->plans[s];
        for (uint32_t i = step->input_count; i < step->input_count + step->output_count; i++) {
            const struct ls_value *value = root_of(program, plan->values[i]);
            if (value->home == LS_HOME_GRADIENTS)
                program->written[value->place] = plan->tile ? ls_tile_first(program, s) : s;
        }
    }
}

// Steps that are tiled together run with the first of them.
static void find_needed(struct ls_program *program)
{
    for (uint32_t place = 0; place < program->plan->place_count; place++)
        program->needed[place] = program->step_count;
    for (uint32_t s = program->step_count; s-- > 0;) {
        const struct ls_step_plan *plan = &program->buffers->plans[s];
        for (uint32_t i = 0; i < program->steps[s].input_count; i++) {
            const struct ls_value *value = &program->buffers->values[plan->values[i]];
            if (value->home == LS_HOME_PARAMETERS || value->home == LS_HOME_SHADOWS)
                program->needed[value->place] = plan->tile ? ls_tile_first(program, s) : s;
        }
    }
}

// What is lost here would be waited for in vain by the other replicas.
static enum ls_status find_totals(struct ls_program *program)
{
    const struct ls_program_buffers *buffers = program->buffers;
    uint32_t next = 0;

    if (program->options.purpose != LS_PURPOSE_TRAIN)
        return LS_OK;
    program->totals = calloc((size_t)program->plan->total_count + 1, sizeof(*program->totals));
    if (!program->totals)
        return LS_OUT_OF_MEMORY;
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct ls_program_step *step = &program->steps[s];
        for (uint32_t i = step->input_count; i < step->input_count + step->output_count; i++) {
            const struct ls_value *value = &buffers->values[buffers->plans[s].values[i]];
            if (value->home == LS_HOME_TOTALS && value->place == next)
                program->totals[next++] = s;
        }
    }
    if (next == program->plan->total_count)
        return LS_OK;
    ls_error(program->graph->name, "statistics %u of %u that all replicas add up are never made",
             next + 1, program->plan->total_count);
    return LS_FAILED;
}

static void fill_launches(struct ls_program *program)
{
    for (uint32_t s = 0; s < program->step_count; s++)
        program->buffers->launches[s] = (struct ls_launch){
            .struct_size = sizeof(struct ls_launch),
            .arguments = program->steps[s].memory,
            .argument_count = program->steps[s].input_count + program->steps[s].output_count};
}

static void name_slices(struct ls_program *program)
{
    for (uint32_t s = 0; s < program->step_count; s++) {
        struct ls_program_step *step = &program->steps[s];
        const struct ls_trace_label label = {
            .category = step->backward ? "backward" : "forward",
            .name = step->label,
            .details = {{.name = "implementation", .text = step->implementation},
                        {.name = "examples", .number = (uint64_t)program->options.batch}},
        };
        step->trace = ls_trace_keep(&label);
    }
}

static enum ls_status make_tables(struct ls_program *program)
{
    struct ls_program_buffers *buffers = program->buffers;

    buffers->launches = calloc((size_t)program->step_count + 1, sizeof(*buffers->launches));
    program->ready = calloc((size_t)program->plan->place_count + 1, sizeof(*program->ready));
    program->written = calloc((size_t)program->plan->place_count + 1, sizeof(*program->written));
    program->needed = calloc((size_t)program->plan->place_count + 1, sizeof(*program->needed));
    if (!buffers->launches || !program->ready || !program->written || !program->needed)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = ls_program_list_slots(program);
    if (!status)
        status = find_totals(program);
    if (!status)
        status = list_reads(program);
    if (status)
        return status;
    fill_launches(program);
    name_slices(program);
    find_ready(program);
    find_written(program);
    find_needed(program);
    while (program->forward_count < program->step_count &&
           !program->steps[program->forward_count].backward)
        program->forward_count++;
    return LS_OK;
}

static enum ls_status check_graph(const struct ls_graph *graph,
                                  const struct ls_program_options *options)
{
    const char *reason = NULL;

    if (graph->input_count == 0 || graph->output_count == 0)
        reason = "has no layers";
    else if (options->purpose == LS_PURPOSE_TRAIN &&
             (graph->operation_count == 0 ||
              !graph->operations[graph->operation_count - 1].backward))
        reason = "was not differentiated, so it cannot be trained";
    if (!reason)
        return LS_OK;
    ls_error(graph->name, "the model %s", reason);
    return LS_BAD_INPUT;
}

enum ls_status ls_program_create(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                                 const struct ls_program_options *options, struct ls_program **out)
{
    struct ls_program *program;

    enum ls_status status = check_graph(graph, options);
    if (status)
        return status;
    status = ls_build_program(plan, graph, options, false, &program);
    if (status)
        return status;
    status = options->purpose == LS_PURPOSE_TRAIN ? ls_join_loss(program) : LS_OK;
    if (!status)
        status = ls_tile_steps(program);
    if (!status && options->branch)
        status = ls_branch_find(program);
    if (!status)
        status = ls_plan_memory(program);
    if (!status)
        status = make_tables(program);
    if (!status && program->branch_count)
        status = ls_branch_make_events(program);
    if (status) {
        ls_program_destroy(program);
        return status;
    }
    *out = program;
    return LS_OK;
}
