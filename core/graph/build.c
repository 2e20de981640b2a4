// SPDX-License-Identifier: Apache-2.0
// The course of building a program: values and nodes from the graph, rewriting, then a step for
// each node.
#include "core/graph/build.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BATCH_ELEMENTS \
    (INT64_C(1) << 48) // of one tensor: sizes in bytes stay far from overflow

uint32_t ls_value_same(const struct ls_program_buffers *buffers, uint32_t value)
{
    while (buffers->values[value].same_as != value)
        value = buffers->values[value].same_as;
    return value;
}

uint32_t ls_value_memory(const struct ls_program_buffers *buffers, uint32_t value)
{
    while (buffers->values[value].memory != value)
        value = buffers->values[value].memory;
    return value;
}

void ls_describe_tensor(const struct ls_tensor *tensor, int64_t batch, struct ls_tensor_desc *out)
{
    *out = (struct ls_tensor_desc){.dtype = tensor->dtype, .ndims = tensor->shape.ndims};
    for (uint32_t i = 0; i < out->ndims; i++)
        out->dims[i] = tensor->shape.dims[i] == LS_BATCH ? batch : tensor->shape.dims[i];
    if (out->ndims == 0)
        out->ndims = 1; // `saved`: so many bytes, not known before its kernel is prepared
}

struct ls_layout ls_plain_layout(const struct ls_tensor_desc *desc)
{
    return (struct ls_layout){.kind = LS_LAYOUT_PLAIN,
                              .bytes = ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype)};
}

// ---- Values ----

static struct ls_value *add_value(struct ls_program_buffers *buffers)
{
    const uint32_t count = buffers->value_count;

    if ((count & (count - 1)) == 0) {
        const size_t capacity = count > 0 ? (size_t)count * 2 : 1;
        struct ls_value *larger = realloc(buffers->values, capacity * sizeof(*larger));
        if (!larger)
            return NULL;
        buffers->values = larger;
    }
    struct ls_value *value = &buffers->values[buffers->value_count++];
    *value = (struct ls_value){.producer = -1,
                               .same_as = count,
                               .memory = count,
                               .place = LS_NO_VALUE,
                               .converted_from = LS_NO_VALUE};
    return value;
}

static struct ls_tensor *copy_tensor(const struct ls_tensor *like, uint32_t id,
                                     enum ls_tensor_role role)
{
    struct ls_tensor *tensor = malloc(sizeof(*tensor));
    if (!tensor)
        return NULL;
    *tensor = *like;
    tensor->id = id;
    tensor->role = role;
    tensor->producer = -1;
    tensor->name = strdup(like->name);
    if (!tensor->name) {
        free(tensor);
        return NULL;
    }
    return tensor;
}

enum ls_status ls_build_value(struct ls_build *build, uint32_t like, enum ls_tensor_role role,
                              const struct ls_layout *layout, uint32_t *out)
{
    struct ls_program_buffers *buffers = build->buffers;
    const uint32_t id = buffers->value_count;
    struct ls_tensor *tensor = copy_tensor(buffers->values[like].tensor, id, role);
    if (!tensor)
        return LS_OUT_OF_MEMORY;
    struct ls_value *value = add_value(buffers);
    if (!value) {
        free(tensor->name);
        free(tensor);
        return LS_OUT_OF_MEMORY;
    }
    value->tensor = tensor;
    value->owned = true;
    value->layout = *layout;
    value->home = LS_HOME_ARENA;
    *out = id;
    return LS_OK;
}

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

// A plan that does not train has none; then no program keeps such an operation.
static void find_total(const struct ls_build *build, const struct ls_tensor *tensor,
                       struct ls_value *value)
{
    for (uint32_t i = 0; i < build->plan->total_count; i++)
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

// Which of the inputs or seeds a value is.
static void number_values(const struct ls_build *build)
{
    const struct ls_graph *graph = build->graph;

    for (uint32_t i = 0; i < graph->input_count; i++)
        build->buffers->values[graph->inputs[i]->id].place = i;
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
        struct ls_value *value = add_value(build->buffers);
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

enum ls_status ls_build_step(struct ls_build *build)
{
    struct ls_program *program = build->program;
    const uint32_t count = program->step_count;

    if ((count & (count - 1)) == 0) {
        const size_t capacity = count > 0 ? (size_t)count * 2 : 1;
        struct ls_program_step *steps = realloc(program->steps, capacity * sizeof(*steps));
        if (!steps)
            return LS_OUT_OF_MEMORY;
        program->steps = steps;
        struct ls_step_plan *plans = realloc(build->buffers->plans, capacity * sizeof(*plans));
        if (!plans)
            return LS_OUT_OF_MEMORY;
        build->buffers->plans = plans;
    }
    program->steps[count] = (struct ls_program_step){0};
    build->buffers->plans[count] = (struct ls_step_plan){0};
    program->step_count++;
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
