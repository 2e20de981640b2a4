// SPDX-License-Identifier: Apache-2.0
// What becomes of a graph's operations before kernels are prepared: identities vanish, dense
// operations read and write through reshapes, what nobody needs is dropped, and chains that the
// device declares are fused.
#include "core/graph/build.h"

#include <string.h>

static const struct ls_shape *shape_of(const struct ls_build *build, uint32_t value)
{
    return &build->buffers->values[value].tensor->shape;
}

static struct ls_node *producer_of(const struct ls_build *build, uint32_t value)
{
    const int32_t producer = build->buffers->values[value].producer;
    return producer < 0 ? NULL : &build->nodes[producer];
}

// Whether a value must be there after the run, whoever else reads it.
static bool is_result(const struct ls_build *build, uint32_t value)
{
    const struct ls_tensor *tensor = build->buffers->values[value].tensor;

    if (tensor->role == LS_ROLE_SUMS || tensor->role == LS_ROLE_COUNTS)
        return build->options.purpose != LS_PURPOSE_PREDICT;
    return (tensor->role == LS_ROLE_PARAMETER_GRADIENT && ls_build_trains(build)) ||
           (ls_keeps_outputs(build->program) && ls_is_output(build->buffers, value));
}

static void note_reader(struct ls_build *build, uint32_t value, uint32_t node)
{
    build->buffers->values[value].readers++;
    build->buffers->values[value].reader_sum += node;
}

static void count_readers(struct ls_build *build)
{
    for (uint32_t i = 0; i < build->buffers->value_count; i++)
        build->buffers->values[i].readers = build->buffers->values[i].reader_sum = 0;
    for (uint32_t i = 0; i < build->node_count; i++)
        for (uint32_t k = 0; k < build->nodes[i].input_count && !build->nodes[i].removed; k++)
            note_reader(build, build->nodes[i].inputs[k], i);
}

// From here on the node reads nothing.
static void remove_node(struct ls_build *build, uint32_t index)
{
    struct ls_node *node = &build->nodes[index];

    node->removed = true;
    for (uint32_t k = 0; k < node->input_count; k++) {
        build->buffers->values[node->inputs[k]].readers--;
        build->buffers->values[node->inputs[k]].reader_sum -= index;
    }
}

// ---- Identities ----

enum { OTHERWISE = 2 }; // the input that stands for the result of LS_TRAIT_TRAINING_ONLY

// Reads what stands for inputs that an identity made. Nodes are visited in order, so that is known.
static void follow_inputs(struct ls_build *build, struct ls_node *node)
{
    for (uint32_t k = 0; k < node->input_count; k++)
        node->inputs[k] = ls_value_same(build->buffers, node->inputs[k]);
}

static void remove_identity(struct ls_build *build, struct ls_node *node)
{
    const uint32_t stands =
        ls_operation_has(node->op, LS_TRAIT_TRAINING_ONLY) && node->input_count > OTHERWISE
            ? OTHERWISE
            : 0;
    if (node->removed)
        return;
    if (ls_operation_is_identity(node->op, &node->attributes, shape_of(build, node->inputs[0]),
                                 shape_of(build, node->outputs[0]), ls_build_trains(build))) {
        node->removed = true;
        build->buffers->values[node->outputs[0]].same_as = node->inputs[stands];
    } else if (stands) {
        node->input_count = OTHERWISE; // nobody reads it
    }
}

// ---- Given statistics ----

// The parameter that a pass of training would contribute value `statistic` of a node to; LS_NO_VALUE: none.
static uint32_t moving_of(const struct ls_build *build, const struct ls_node *of,
                          uint32_t statistic)
{
    for (uint32_t i = (uint32_t)(of - build->nodes); i < build->node_count; i++) {
        const struct ls_node *node = &build->nodes[i];
        for (uint32_t k = 0; k < node->output_count && k < node->input_count; k++) {
            const struct ls_tensor *out = build->buffers->values[node->outputs[k]].tensor;
            if (node->inputs[k] == statistic && out->role == LS_ROLE_PARAMETER_GRADIENT)
                return out->gradient_of->id;
        }
    }
    return LS_NO_VALUE;
}

// Where nothing is trained, what has statistics of training takes them instead of those of the
// batch. A model that keeps none has the batch's. Layouts are chosen with them, too, where the
// batch's need totals: a device that has no totals evaluates the model all the same.
static void take_given(struct ls_build *build, struct ls_node *node)
{
    const struct ls_operation_row *row = ls_operation_row(node->op);
    struct ls_node given = *node;

    const bool totals = ls_operation_input(row, LS_ARGUMENT_TOTAL) != UINT32_MAX;
    if (row->given == LS_OP_NONE || (ls_build_trains(build) && !(build->choosing && totals)))
        return;
    given.op = row->given;
    given.input_count = 0;
    for (uint32_t i = 0; i < node->input_count; i++) // without what the batch's are made of
        if (ls_operation_argument(row, i, false).kind != LS_ARGUMENT_TOTAL)
            given.inputs[given.input_count++] = node->inputs[i];
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (ls_operation_argument(row, i, true).kind != LS_ARGUMENT_STATISTIC)
            continue;
        const uint32_t moving = moving_of(build, node, node->outputs[i]);
        if (moving == LS_NO_VALUE)
            return;
        given.inputs[given.input_count++] = moving;
        given.output_count--;
    }
    *node = given;
}

// ---- What nobody needs ----

static void drop_unneeded(struct ls_build *build)
{
    struct ls_value *values = build->buffers->values;

    for (uint32_t i = 0; i < build->buffers->value_count; i++)
        values[i].needed = false;
    for (uint32_t i = build->node_count; i > 0; i--) {
        struct ls_node *node = &build->nodes[i - 1];
        bool any = false;
        for (uint32_t k = 0; k < node->output_count && !node->removed; k++)
            any |= values[node->outputs[k]].needed || is_result(build, node->outputs[k]);
        node->removed = !any;
        for (uint32_t k = 0; k < node->input_count && any; k++)
            values[node->inputs[k]].needed = true;
    }
}

// `saved` is left out where no backward operation reads it.
static void drop_saved(struct ls_build *build)
{
    for (uint32_t i = 0; i < build->node_count; i++) {
        struct ls_node *node = &build->nodes[i];
        if (node->output_count < 2)
            continue;
        const struct ls_value *second = &build->buffers->values[node->outputs[1]];
        if (second->tensor->role == LS_ROLE_SAVED && !second->needed)
            node->output_count = 1;
    }
}

// ---- Reshapes ----

// Whether an argument's shape does not matter: the table says so, and where there is a kernel
// (K,N), each example is one row of y (M,N).
static bool has_any_shape(const struct ls_build *build, const struct ls_node *node, uint32_t index,
                          bool output)
{
    const struct ls_operation_row *row = ls_operation_row(node->op);
    const struct ls_shape *y = NULL, *kernel = NULL;

    if (!ls_operation_argument(row, index, output).any_shape)
        return false;
    for (uint32_t i = 0; i < node->input_count + node->output_count; i++) {
        const bool out = i >= node->input_count;
        const uint32_t own = out ? i - node->input_count : i;
        const struct ls_shape *shape =
            shape_of(build, out ? node->outputs[own] : node->inputs[own]);
        const struct ls_argument argument = ls_operation_argument(row, own, out);
        const bool of_output =
            argument.source == LS_SOURCE_SELF ? out : argument.source == LS_SOURCE_OUTPUT_GRADIENT;
        if (argument.kind == LS_ARGUMENT_PARAMETER && shape->ndims == 2)
            kernel = shape;
        else if (of_output)
            y = shape;
    }
    return !kernel || (y && ls_shape_elements(y, 1) == kernel->dims[1]);
}

// Chains collapse, as nodes are visited in order.
static void read_through_reshape(struct ls_build *build, struct ls_node *node)
{
    if (node->removed || !has_any_shape(build, node, 0, false))
        return;
    const struct ls_node *producer = producer_of(build, node->inputs[0]);
    if (producer && !producer->removed && ls_operation_has(producer->op, LS_TRAIT_VIEW))
        node->inputs[0] = producer->inputs[0];
}

// An operation whose only reader reshapes its result writes the reshaped one itself.
static void write_through_reshape(struct ls_build *build, uint32_t index)
{
    struct ls_node *node = &build->nodes[index];
    if (node->removed || !ls_operation_has(node->op, LS_TRAIT_VIEW))
        return;
    struct ls_node *producer = producer_of(build, node->inputs[0]);
    if (!producer || !has_any_shape(build, producer, 0, true) ||
        build->buffers->values[node->inputs[0]].readers != 1)
        return;
    producer->outputs[0] = node->outputs[0];
    build->buffers->values[node->outputs[0]].producer = (int32_t)(producer - build->nodes);
    remove_node(build, index);
}

// ---- Casts ----

// The half on the other side of the cast that makes an input, or that is all that reads an output.
static uint32_t beyond_cast(const struct ls_build *build, const struct ls_node *node,
                            uint32_t index, bool output)
{
    const uint32_t id = output ? node->outputs[index] : node->inputs[index];
    const struct ls_value *value = &build->buffers->values[id];
    const bool only = value->readers == 1 && !is_result(build, id);
    const struct ls_node *cast = !output ? producer_of(build, id)
                                 : only  ? &build->nodes[value->reader_sum]
                                         : NULL;
    if (!cast || cast->removed || cast->op != LS_OP_CONVERT)
        return LS_NO_VALUE;
    const uint32_t beyond = output ? cast->outputs[0] : cast->inputs[0];
    return ls_type_is_half(build->buffers->values[beyond].tensor->dtype) ? beyond : LS_NO_VALUE;
}

// Whether all activations of the node are float32 by casts alone, and those of one half type.
static bool takes_casts(const struct ls_build *build, const struct ls_node *node)
{
    const struct ls_operation_row *row = ls_operation_row(node->op);
    uint32_t dtype = 0;

    if (node->removed || !ls_device_takes_casts(build->plan->device, node->op))
        return false;
    for (uint32_t i = 0; i < node->input_count + node->output_count; i++) {
        const bool output = i >= node->input_count;
        const uint32_t own = output ? i - node->input_count : i;
        const struct ls_argument argument = ls_operation_argument(row, own, output);
        if (!ls_argument_is_cast(&argument))
            continue;
        const uint32_t beyond = beyond_cast(build, node, own, output);
        const uint32_t type =
            beyond == LS_NO_VALUE ? 0 : build->buffers->values[beyond].tensor->dtype;
        if (type == 0 || (dtype != 0 && type != dtype))
            return false;
        dtype = type;
    }
    return dtype != 0;
}

// The node reads and writes the halves; a cast that nobody else reads vanishes.
static void take_casts(struct ls_build *build, uint32_t index)
{
    struct ls_node *node = &build->nodes[index];
    const struct ls_operation_row *row = ls_operation_row(node->op);
    struct ls_value *values = build->buffers->values;

    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct ls_argument argument = ls_operation_argument(row, i, false);
        const uint32_t wide = node->inputs[i];
        if (!ls_argument_is_cast(&argument))
            continue;
        node->inputs[i] = beyond_cast(build, node, i, false);
        note_reader(build, node->inputs[i], index);
        values[wide].reader_sum -= index;
        if (--values[wide].readers == 0 && !is_result(build, wide))
            remove_node(build, (uint32_t)values[wide].producer);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ls_argument argument = ls_operation_argument(row, i, true);
        const uint32_t cast = (uint32_t)values[node->outputs[i]].reader_sum;
        if (!ls_argument_is_cast(&argument))
            continue;
        node->outputs[i] = beyond_cast(build, node, i, true);
        values[node->outputs[i]].producer = (int32_t)index;
        remove_node(build, cast);
    }
}

// An operation and its backward operations do so together: what is saved between them is the
// device's own.
static void fold_casts(struct ls_build *build)
{
    for (uint32_t i = 0; i < build->node_count; i++)
        build->nodes[i].takes_casts = takes_casts(build, &build->nodes[i]);
    for (uint32_t i = 0; i < build->node_count; i++) {
        const struct ls_node *node = &build->nodes[i];
        if (node->source->backward && node->source->forward >= 0 && !node->removed)
            build->nodes[node->source->forward].takes_casts &= node->takes_casts;
    }
    for (uint32_t i = 0; i < build->node_count; i++) {
        struct ls_node *node = &build->nodes[i];
        if (node->source->backward && node->source->forward >= 0)
            node->takes_casts &= build->nodes[node->source->forward].takes_casts;
        if (node->takes_casts)
            take_casts(build, i);
    }
}

// ---- Fusion ----

static enum ls_operation_fusion fusion_of(const struct ls_node *consumer)
{
    return ls_operation_row(consumer->op)->fusion;
}

static bool pattern_covers(const struct ls_fusion_pattern *pattern, const struct ls_node *producer,
                           const struct ls_node *consumer)
{
    return pattern->producer == producer->op && pattern->consumer == consumer->op &&
           (fusion_of(consumer) == LS_FUSION_ADDEND ||
            (pattern->activations >> consumer->attributes.activation & 1) != 0);
}

static bool device_fuses(const struct ls_build *build, const struct ls_node *producer,
                         const struct ls_node *consumer)
{
    const struct ls_device_interface *ops = ls_device_interface(build->plan->device);
    bool any = false;

    for (uint32_t i = 0; i < ops->pattern_count; i++)
        any |= pattern_covers(&ops->patterns[i], producer, consumer);
    return any;
}

// What the producer of `y` reads more when it does what the consumer does; LS_NO_VALUE: nothing.
static uint32_t extra_input(const struct ls_node *consumer, uint32_t y)
{
    switch (fusion_of(consumer)) {
    case LS_FUSION_EPILOGUE_OF_GRADIENT: return consumer->inputs[1];
    case LS_FUSION_ADDEND: return consumer->inputs[consumer->inputs[0] == y];
    default: return LS_NO_VALUE;
    }
}

// Whether the operation has an addend, and none yet.
static bool takes_addend(const struct ls_node *node)
{
    return ls_operation_input(ls_operation_row(node->op), LS_ARGUMENT_ADDEND) == node->input_count;
}

// Whether the producer writes the gradient of `y`: a sum passes its own gradient on to its terms.
static bool writes_gradient_of(const struct ls_build *build, const struct ls_node *node, uint32_t y)
{
    const struct ls_tensor *of = build->buffers->values[node->outputs[0]].tensor->gradient_of;
    return of && ls_value_same(build->buffers, of->id) == y;
}

// What is read more must be there when the producer runs.
static bool can_follow(const struct ls_build *build, uint32_t producer,
                       const struct ls_node *consumer)
{
    const struct ls_node *node = &build->nodes[producer];
    const uint32_t extra = extra_input(consumer, node->outputs[0]);
    const bool there =
        extra == LS_NO_VALUE || (build->buffers->values[extra].producer < (int32_t)producer &&
                                 node->input_count + node->output_count < LS_MAX_ARGUMENTS);
    switch (fusion_of(consumer)) {
    case LS_FUSION_EPILOGUE: return true;
    case LS_FUSION_EPILOGUE_OF_GRADIENT:
        return there && consumer->inputs[0] == node->outputs[0] &&
               writes_gradient_of(build, node, extra);
    case LS_FUSION_ADDEND: return there && takes_addend(node);
    case LS_FUSION_NONE: break;
    }
    return false;
}

static void set_epilogue(struct ls_node *node, uint32_t op, uint32_t activation, float alpha)
{
    node->attributes.epilogue = op;
    node->attributes.epilogue_activation = activation;
    node->attributes.epilogue_alpha = alpha;
}

// A sum becomes the addend, another consumer the epilogue, after which nothing may come.
static bool fuse(struct ls_build *build, uint32_t index)
{
    struct ls_node *node = &build->nodes[index];
    const uint32_t y = node->outputs[0];
    const struct ls_value *value = &build->buffers->values[y];

    if (node->removed || node->fused_count == LS_MAX_FUSED ||
        node->attributes.epilogue != LS_OP_NONE || is_result(build, y) || value->readers != 1)
        return false;
    const uint32_t reader = (uint32_t)value->reader_sum;
    struct ls_node *consumer = &build->nodes[reader];
    if (consumer->attributes.epilogue != LS_OP_NONE || !device_fuses(build, node, consumer) ||
        !can_follow(build, index, consumer))
        return false;

    if (fusion_of(consumer) != LS_FUSION_ADDEND)
        set_epilogue(node, consumer->op, consumer->attributes.activation,
                     consumer->attributes.activation_alpha);
    if (extra_input(consumer, y) != LS_NO_VALUE) {
        node->inputs[node->input_count++] = extra_input(consumer, y);
        note_reader(build, extra_input(consumer, y), index);
    }
    node->fused[node->fused_count] = reader;
    node->fused_outputs[node->fused_count++] = y;
    node->outputs[0] = consumer->outputs[0];
    remove_node(build, reader);
    return true;
}

void ls_unfuse(struct ls_build *build, struct ls_node *node)
{
    struct ls_node *consumer = &build->nodes[node->fused[--node->fused_count]];

    consumer->removed = false;
    node->outputs[0] = node->fused_outputs[node->fused_count];
    if (extra_input(consumer, node->outputs[0]) != LS_NO_VALUE)
        node->input_count--;
    if (fusion_of(consumer) != LS_FUSION_ADDEND)
        set_epilogue(node, LS_OP_NONE, 0, 0);
}

// The values that the model's outputs have become.
static void follow_outputs(struct ls_build *build)
{
    for (uint32_t i = 0; i < build->graph->output_count; i++)
        build->buffers->outputs[i] = ls_value_same(build->buffers, build->graph->outputs[i]->id);
}

void ls_rewrite(struct ls_build *build)
{
    for (uint32_t i = 0; i < build->node_count; i++)
        take_given(build, &build->nodes[i]);
    for (uint32_t i = 0; i < build->node_count; i++) {
        follow_inputs(build, &build->nodes[i]);
        remove_identity(build, &build->nodes[i]);
    }
    follow_outputs(build);
    drop_unneeded(build);

    for (uint32_t i = 0; i < build->node_count; i++) {
        follow_inputs(build, &build->nodes[i]);
        read_through_reshape(build, &build->nodes[i]);
        remove_identity(build, &build->nodes[i]);
    }
    follow_outputs(build);
    drop_unneeded(build);
    count_readers(build);
    for (uint32_t i = 0; i < build->node_count; i++)
        write_through_reshape(build, i);
    drop_unneeded(build);
    drop_saved(build);

    count_readers(build);
    fold_casts(build);
    for (uint32_t i = 0; i < build->node_count; i++) {
        const struct ls_node *node = &build->nodes[i];
        const bool counts = build->buffers->values[node->outputs[0]].tensor->role == LS_ROLE_COUNTS;
        if (!node->removed && (counts || ls_operation_has(node->op, LS_TRAIT_LOSS)))
            build->buffers->values[node->inputs[0]].loss_reads = true;
        while (fuse(build, i))
            continue;
    }
}
