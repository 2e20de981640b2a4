// SPDX-License-Identifier: Apache-2.0
// What becomes of a graph's operations before kernels are prepared: identities vanish, dense operations read
// and write through reshapes, what nobody needs is dropped, and chains that the device declares are fused.
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

    if (tensor->role == LS_ROLE_SUMS || tensor->role == LS_ROLE_PARAMETER_GRADIENT)
        return true;
    return build->options.predictions && value == build->buffers->predictions;
}

// How often a value is read; `reader` (may be NULL) is set to the last node that does.
static uint32_t count_readers(const struct ls_build *build, uint32_t value, uint32_t *reader)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < build->node_count; i++) {
        const struct ls_node *node = &build->nodes[i];
        for (uint32_t k = 0; k < node->input_count && !node->removed; k++) {
            if (node->inputs[k] != value)
                continue;
            count++;
            if (reader)
                *reader = i;
        }
    }
    return count;
}

static void replace_value(struct ls_build *build, uint32_t old, uint32_t by)
{
    for (uint32_t i = 0; i < build->node_count; i++)
        for (uint32_t k = 0; k < build->nodes[i].input_count; k++)
            if (build->nodes[i].inputs[k] == old)
                build->nodes[i].inputs[k] = by;
    build->buffers->values[old].same_as = by;
}

// ---- Identities ----

static bool is_identity(const struct ls_build *build, const struct ls_node *node)
{
    switch (node->op) {
    case LS_OP_DROPOUT: return !build->options.training || node->attributes.rate <= 0;
    case LS_OP_ACTIVATION:
    case LS_OP_ACTIVATION_BACKWARD: return node->attributes.activation == LS_LINEAR;
    case LS_OP_RESHAPE:
        return ls_shape_equal(shape_of(build, node->inputs[0]), shape_of(build, node->outputs[0]));
    default: return false;
    }
}

static void remove_identity(struct ls_build *build, struct ls_node *node)
{
    if (node->removed || !is_identity(build, node))
        return;
    node->removed = true;
    replace_value(build, node->outputs[0], node->inputs[0]);
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

// A dense operation reads and writes any shape with one example a row.
static bool rows_are_examples(const struct ls_build *build, uint32_t rows, int64_t units)
{
    return ls_shape_elements(shape_of(build, rows), 1) == units;
}

static bool reads_through_reshape(const struct ls_build *build, const struct ls_node *node)
{
    switch (node->op) {
    case LS_OP_RESHAPE: return true;
    case LS_OP_DENSE:
        return rows_are_examples(build, node->outputs[0],
                                 shape_of(build, node->inputs[1])->dims[1]);
    case LS_OP_DENSE_BACKWARD_WEIGHTS:
        return rows_are_examples(build, node->inputs[1],
                                 shape_of(build, node->outputs[0])->dims[1]);
    default: return false;
    }
}

// Chains collapse, as nodes are visited in order.
static void read_through_reshape(struct ls_build *build, struct ls_node *node)
{
    if (node->removed || !reads_through_reshape(build, node))
        return;
    const struct ls_node *producer = producer_of(build, node->inputs[0]);
    if (producer && !producer->removed && producer->op == LS_OP_RESHAPE)
        node->inputs[0] = producer->inputs[0];
}

// dy, w -> dx whose only reader reshapes dx writes the reshaped gradient itself.
static void write_through_reshape(struct ls_build *build, uint32_t index)
{
    struct ls_node *node = &build->nodes[index];
    if (node->removed || node->op != LS_OP_RESHAPE)
        return;
    struct ls_node *dense = producer_of(build, node->inputs[0]);
    if (!dense || dense->op != LS_OP_DENSE_BACKWARD_DATA ||
        count_readers(build, node->inputs[0], NULL) != 1)
        return;
    if (!rows_are_examples(build, dense->inputs[0], shape_of(build, dense->inputs[1])->dims[1]))
        return;
    dense->outputs[0] = node->outputs[0];
    build->buffers->values[node->outputs[0]].producer = (int32_t)(dense - build->nodes);
    node->removed = true;
}

// ---- Fusion ----

static bool pattern_covers(const struct ls_fusion_pattern *pattern, const struct ls_node *producer,
                           const struct ls_node *consumer)
{
    return pattern->producer == producer->op && pattern->consumer == consumer->op &&
           (consumer->op == LS_OP_ADD ||
            (pattern->activations >> consumer->attributes.activation & 1) != 0);
}

static bool device_fuses(const struct ls_build *build, const struct ls_node *producer,
                         const struct ls_node *consumer)
{
    const struct ls_device_interface *ops = build->plan->ops;
    bool any = false;

    for (uint32_t i = 0; i < ops->pattern_count; i++)
        any |= pattern_covers(&ops->patterns[i], producer, consumer);
    return any;
}

// What the producer of `y` reads more when it does what the consumer does; LS_NO_VALUE: nothing.
static uint32_t extra_input(const struct ls_node *consumer, uint32_t y)
{
    switch (consumer->op) {
    case LS_OP_ACTIVATION_BACKWARD: return consumer->inputs[1];
    case LS_OP_ADD: return consumer->inputs[consumer->inputs[0] == y];
    default: return LS_NO_VALUE;
    }
}

// Whether the operation has an addend, and none yet.
static bool takes_addend(const struct ls_node *node)
{
    return node->op == LS_OP_BATCH_NORMALIZATION && node->input_count == 3;
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
    switch (consumer->op) {
    case LS_OP_ACTIVATION: return true;
    case LS_OP_ACTIVATION_BACKWARD:
        return there && consumer->inputs[0] == node->outputs[0] &&
               writes_gradient_of(build, node, extra);
    case LS_OP_ADD: return there && takes_addend(node);
    default: return false;
    }
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
    uint32_t reader = 0;

    if (node->removed || node->fused_count == LS_MAX_FUSED ||
        node->attributes.epilogue != LS_OP_NONE || is_result(build, y) ||
        count_readers(build, y, &reader) != 1)
        return false;
    struct ls_node *consumer = &build->nodes[reader];
    if (consumer->attributes.epilogue != LS_OP_NONE || !device_fuses(build, node, consumer) ||
        !can_follow(build, index, consumer))
        return false;

    if (consumer->op != LS_OP_ADD)
        set_epilogue(node, consumer->op, consumer->attributes.activation,
                     consumer->attributes.activation_alpha);
    if (extra_input(consumer, y) != LS_NO_VALUE)
        node->inputs[node->input_count++] = extra_input(consumer, y);
    node->fused[node->fused_count] = reader;
    node->fused_outputs[node->fused_count++] = y;
    node->outputs[0] = consumer->outputs[0];
    consumer->removed = true;
    return true;
}

void ls_unfuse(struct ls_build *build, struct ls_node *node)
{
    struct ls_node *consumer = &build->nodes[node->fused[--node->fused_count]];

    consumer->removed = false;
    node->outputs[0] = node->fused_outputs[node->fused_count];
    if (extra_input(consumer, node->outputs[0]) != LS_NO_VALUE)
        node->input_count--;
    if (consumer->op != LS_OP_ADD)
        set_epilogue(node, LS_OP_NONE, 0, 0);
}

void ls_rewrite(struct ls_build *build)
{
    build->buffers->predictions = build->graph->output->id;
    for (uint32_t i = 0; i < build->node_count; i++)
        remove_identity(build, &build->nodes[i]);
    build->buffers->predictions = ls_value_same(build->buffers, build->buffers->predictions);
    drop_unneeded(build);

    for (uint32_t i = 0; i < build->node_count; i++) {
        read_through_reshape(build, &build->nodes[i]);
        remove_identity(build, &build->nodes[i]);
    }
    build->buffers->predictions = ls_value_same(build->buffers, build->buffers->predictions);
    drop_unneeded(build);
    for (uint32_t i = 0; i < build->node_count; i++)
        write_through_reshape(build, i);
    drop_unneeded(build);
    drop_saved(build);

    for (uint32_t i = 0; i < build->node_count; i++) {
        const struct ls_node *node = &build->nodes[i];
        if (node->op == LS_OP_SPARSE_CROSS_ENTROPY || node->op == LS_OP_MEAN_SQUARED_ERROR)
            build->buffers->values[node->inputs[0]].loss_reads = true;
        while (fuse(build, i))
            continue;
    }
}
