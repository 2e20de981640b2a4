// SPDX-License-Identifier: Apache-2.0
// From a node to a step: asks the device for a kernel, with the layouts that are known fixed and,
// where it cannot or would be slow, with fewer of them fixed; then bridges what differs with
// shadows and conversions.
#include "core/graph/build.h"

#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdio.h>
#include <string.h>

// What a request leaves to the device, or does without.
enum freedom {
    FREE_WEIGHTS = 1, // layouts of weights read and of weights' gradients written
    FREE_ACTIVATIONS = 2, // layouts of activations and their gradients
    NO_ACCUMULATE = 4, // a second gradient of a parameter is written apart and added afterwards
};

struct attempt {
    struct ls_kernel_request request; // without its arguments
    struct ls_tensor_desc arguments[LS_MAX_ARGUMENTS];
    struct ls_kernel_answer answer; // without its layouts
    struct ls_layout layouts[LS_MAX_ARGUMENTS];
    bool works;
};

#define MAX_ATTEMPTS 5
// In the order of preference; a parameter's second gradient is tried by the second row.
static const uint32_t freedoms[2][MAX_ATTEMPTS] = {
    {0, FREE_WEIGHTS, FREE_ACTIVATIONS, FREE_WEIGHTS | FREE_ACTIVATIONS},
    {0, NO_ACCUMULATE, NO_ACCUMULATE | FREE_WEIGHTS, NO_ACCUMULATE | FREE_ACTIVATIONS,
     NO_ACCUMULATE | FREE_WEIGHTS | FREE_ACTIVATIONS},
};

static struct ls_value *value_of(const struct ls_build *build, uint32_t value)
{
    return &build->buffers->values[value];
}

// ---- Requests ----

// The layout that an output has to end in; kind ANY: whatever its kernel makes. Results of the
// model and what the loss reads are plain; a gradient lies as what it is the gradient of.
static struct ls_layout wanted_layout(const struct ls_build *build, uint32_t output)
{
    const struct ls_value *value = value_of(build, output);
    struct ls_tensor_desc desc;

    if (value->layout.kind != LS_LAYOUT_ANY)
        return value->layout;
    if (value->tensor->gradient_of) {
        const uint32_t of = ls_value_same(build->buffers, value->tensor->gradient_of->id);
        return value_of(build, of)->layout;
    }
    if (!ls_is_output(build->buffers, output) && !value->loss_reads)
        return value->layout;
    ls_describe_tensor(value->tensor, build->options.batch, &desc);
    return ls_plain_layout(&desc);
}

static bool is_free(const struct ls_value *value, uint32_t freedom)
{
    switch (value->tensor->role) {
    case LS_ROLE_PARAMETER:
    case LS_ROLE_PARAMETER_GRADIENT:
        return (freedom & FREE_WEIGHTS) != 0 && value->tensor->shape.ndims > 1;
    case LS_ROLE_INPUT:
    case LS_ROLE_SEED:
    case LS_ROLE_ACTIVATION:
    case LS_ROLE_GRADIENT: return (freedom & FREE_ACTIVATIONS) != 0;
    case LS_ROLE_LABEL:
    case LS_ROLE_WEIGHT:
    case LS_ROLE_SUMS:
    case LS_ROLE_TOTAL:
    case LS_ROLE_COUNTS:
    case LS_ROLE_SAVED: break;
    }
    return false;
}

// The half type of what the node reads and writes besides parameters; 0: there is none, or it casts.
static uint32_t half_of(const struct ls_build *build, const struct ls_node *node)
{
    for (uint32_t i = 0; i < node->input_count + node->output_count && node->op != LS_OP_CONVERT;
         i++) {
        const uint32_t id =
            i < node->input_count ? node->inputs[i] : node->outputs[i - node->input_count];
        const uint32_t dtype = value_of(build, id)->tensor->dtype;
        if (ls_type_is_half(dtype))
            return dtype;
    }
    return 0;
}

// Whether the node takes the halves of a parameter, or makes its gradient as halves.
static bool takes_half(const struct ls_build *build, const struct ls_node *node, uint32_t index,
                       bool output, uint32_t half)
{
    const struct ls_tensor *tensor =
        value_of(build, output ? node->outputs[index] : node->inputs[index])->tensor;
    const struct ls_argument argument =
        ls_operation_argument(ls_operation_row(node->op), index, output);
    return half != 0 && argument.kind != LS_ARGUMENT_NONE && argument.type == LS_TYPE_FLOATING &&
           (tensor->role == LS_ROLE_PARAMETER || tensor->role == LS_ROLE_PARAMETER_GRADIENT);
}

static void describe_argument(const struct ls_build *build, const struct ls_node *node,
                              uint32_t index, bool output, uint32_t freedom, uint32_t half,
                              struct ls_tensor_desc *out)
{
    const uint32_t id = output ? node->outputs[index] : node->inputs[index];
    const struct ls_value *value = value_of(build, id);

    ls_describe_tensor(value->tensor, build->options.batch, out);
    if (value->tensor->shape.ndims == 0)
        out->dims[0] = (int64_t)value->layout.bytes;
    if (takes_half(build, node, index, output, half))
        out->dtype = half; // in any layout: it is converted in any case
    else if (!is_free(value, freedom))
        out->layout = output ? wanted_layout(build, id) : value->layout;
}

// The kernel of the forward operation, unless it became the epilogue of another.
static const struct ls_kernel *forward_kernel(const struct ls_build *build,
                                              const struct ls_node *node)
{
    return node->source->backward && node->source->forward >= 0
               ? build->nodes[node->source->forward].kernel
               : NULL;
}

// Whether an output before this one is the same: a parameter that the operation takes twice. The
// first is written, this one is written apart and added.
static bool is_second(const struct ls_node *node, uint32_t output)
{
    uint32_t i = 0;
    while (node->outputs[i] != node->outputs[output])
        i++;
    return i < output;
}

static uint32_t accumulate_bits(const struct ls_build *build, const struct ls_node *node)
{
    const uint32_t half = half_of(build, node);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < node->output_count; i++)
        if (value_of(build, node->outputs[i])->written && !is_second(node, i) &&
            !takes_half(build, node, i, true, half))
            bits |= 1u << i;
    return bits;
}

static void fill_request(const struct ls_build *build, const struct ls_node *node, uint32_t freedom,
                         struct attempt *attempt)
{
    const uint32_t half = half_of(build, node);
    attempt->request = (struct ls_kernel_request){
        .struct_size = sizeof(attempt->request),
        .op = node->op,
        .attributes = node->attributes,
        .input_count = node->input_count,
        .output_count = node->output_count,
        .forward = forward_kernel(build, node),
        .accumulate = (freedom & NO_ACCUMULATE) != 0 ? 0 : accumulate_bits(build, node),
    };
    for (uint32_t i = 0; i < node->input_count; i++)
        describe_argument(build, node, i, false, freedom, half, &attempt->arguments[i]);
    for (uint32_t i = 0; i < node->output_count; i++)
        describe_argument(build, node, i, true, freedom, half,
                          &attempt->arguments[node->input_count + i]);
}

// ---- Asking ----

// An answer must repeat what was fixed and say all else. Sizes of `saved` are settled here.
static enum ls_status check_answer(const struct ls_build *build, const struct ls_node *node,
                                   struct attempt *attempt)
{
    const struct ls_kernel_request *request = &attempt->request;
    const struct ls_kernel_answer *answer = &attempt->answer;

    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        const bool output = i >= request->input_count;
        const uint32_t id = output ? node->outputs[i - request->input_count] : node->inputs[i];
        const struct ls_tensor_desc *desc = &attempt->arguments[i];
        struct ls_layout *layout = &attempt->layouts[i];

        if (value_of(build, id)->tensor->shape.ndims == 0)
            *layout =
                output ? (struct ls_layout){.kind = LS_LAYOUT_PLAIN, .bytes = answer->saved_bytes}
                       : desc->layout;
        else if (desc->layout.kind != LS_LAYOUT_ANY && !ls_layout_equal(&desc->layout, layout))
            break;
        else if (layout->kind == LS_LAYOUT_PLAIN)
            *layout = desc->layout.kind == LS_LAYOUT_ANY ? ls_plain_layout(desc) : desc->layout;
        else if (layout->kind != LS_LAYOUT_OWN || layout->bytes < ls_plain_layout(desc).bytes)
            break;
        if (i + 1 == request->input_count + request->output_count)
            return LS_OK;
    }
    ls_error(build->graph->name,
             "plugin %s answered wrong layouts for operation %s; `plugin check` shows more",
             ls_inside_last_plugin(), ls_op_name(node->op));
    return LS_FAILED;
}

static void release(const struct ls_build *build, struct attempt *attempt)
{
    if (attempt->works)
        ls_device_release_kernel(build->plan->device, attempt->answer.kernel);
    attempt->works = false;
}

static enum ls_status ask(const struct ls_build *build, const struct ls_node *node,
                          struct attempt *attempt)
{
    struct ls_kernel_request request = attempt->request;
    request.arguments = attempt->arguments;
    attempt->answer = (struct ls_kernel_answer){.layouts = attempt->layouts};
    ls_log_note_refusal("");
    enum ls_status status =
        ls_device_prepare(build->plan->device, ls_op_name(node->op), &request, &attempt->answer);
    attempt->answer.layouts = NULL; // an attempt is copied

    attempt->works = status == LS_OK;
    if (status)
        return status == LS_UNSUPPORTED ? LS_OK : status;
    status = check_answer(build, node, attempt);
    if (status)
        release(build, attempt);
    return status;
}

static bool asked_before(const struct attempt *attempts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(&attempts[i].request, &attempts[count].request, sizeof(attempts[i].request)) ==
                0 &&
            memcmp(attempts[i].arguments, attempts[count].arguments,
                   sizeof(attempts[i].arguments)) == 0)
            return true;
    return false;
}

// The first way that is not slow, else the first that works at all; `best->works` says whether any
// does.
static enum ls_status search(const struct ls_build *build, const struct ls_node *node,
                             struct attempt *best)
{
    struct attempt attempts[MAX_ATTEMPTS];
    const uint32_t *row = freedoms[accumulate_bits(build, node) != 0];

    best->works = false;
    for (uint32_t i = 0; i < MAX_ATTEMPTS; i++) {
        struct attempt *attempt = &attempts[i];
        attempt->works = false;
        memset(&attempt->request, 0, sizeof(attempt->request));
        memset(attempt->arguments, 0, sizeof(attempt->arguments));
        fill_request(build, node, row[i], attempt);
        if (asked_before(attempts, i))
            continue;
        enum ls_status status = ask(build, node, attempt);
        if (status) {
            release(build, best);
            return status;
        }
        if (!attempt->works)
            continue;
        if (best->works && attempt->answer.slow) {
            release(build, attempt);
            continue;
        }
        release(build, best);
        *best = *attempt;
        if (!best->answer.slow)
            break;
    }
    return LS_OK;
}

// Takes one fusion after the other back, the last first, as long as the device has no kernel or a
// slow one. `best` was found for the node as it comes.
static enum ls_status search_without_fusion(struct ls_build *build, struct ls_node *node,
                                            struct attempt *best)
{
    struct ls_node chosen = *node;

    while (node->fused_count > 0 && (!best->works || best->answer.slow)) {
        struct attempt apart;
        ls_unfuse(build, node);
        enum ls_status status = search(build, node, &apart);
        if (status) {
            release(build, best);
            return status;
        }
        if (best->works && (!apart.works || apart.answer.slow)) {
            release(build, &apart);
            continue;
        }
        release(build, best);
        *best = apart;
        chosen = *node;
    }
    for (uint32_t i = node->fused_count; i < chosen.fused_count; i++)
        build->nodes[chosen.fused[i]].removed = true;
    *node = chosen;
    return LS_OK;
}

// The device has no kernel for the node.
static enum ls_status refuse_node(const struct ls_build *build, const struct ls_node *node)
{
    const char *name = ls_operation_label(node->op, &node->attributes);
    uint32_t half = half_of(build, node);
    char label[64];

    for (uint32_t i = 0; i < 2 && node->op == LS_OP_CONVERT && !half; i++) {
        const uint32_t dtype =
            value_of(build, i == 0 ? node->outputs[0] : node->inputs[0])->tensor->dtype;
        half = ls_type_is_half(dtype) ? dtype : 0;
    }
    ls_label_step(build, node, label, sizeof(label));
    const char *kind = half == LS_BF16  ? "in bfloat16"
                       : half == LS_F16 ? "in float16"
                                        : "of these shapes";
    if (ls_device_tell_lack(build->plan->device, "has no operation %s %s", name, kind))
        return LS_UNAVAILABLE;
    const char *why = ls_log_refusal();
    ls_error(build->graph->name,
             "%s: the device has no kernel for operation %s %s%s%s%s; use another device%s", label,
             name, kind, *why ? " (" : "", why, *why ? ")" : "",
             half ? ", or --precision=float32" : "");
    return LS_UNAVAILABLE;
}

static enum ls_status find_kernel(struct ls_build *build, struct ls_node *node,
                                  struct attempt *best)
{
    enum ls_status status = search(build, node, best);

    if (!status)
        status = search_without_fusion(build, node, best);
    if (status || best->works)
        return status;
    return refuse_node(build, node);
}

// ---- Steps ----

// A master layout is chosen: for the parameter, its gradient, and all later users.
static void choose_master(struct ls_build *build, uint32_t parameter,
                          const struct ls_layout *layout)
{
    const uint32_t place = value_of(build, parameter)->place;

    build->plan->places[place].layout = *layout;
    for (uint32_t i = build->of_place[place]; i != LS_NO_VALUE; i = value_of(build, i)->next)
        value_of(build, i)->layout = *layout;
}

// The float32 layout in which the device writes the gradient of a node's input in the backward
// pass; kind ANY: there is none.
static enum ls_status gradient_layout(const struct ls_build *build, const struct ls_node *node,
                                      uint32_t index, struct ls_layout *out)
{
    const struct ls_tensor *parameter = value_of(build, node->inputs[index])->tensor;
    struct attempt attempt = {.works = false};

    *out = (struct ls_layout){.kind = LS_LAYOUT_ANY};
    for (uint32_t i = 0; i < build->node_count && !attempt.works; i++) {
        const struct ls_node *backward = &build->nodes[i];
        if (backward->removed || !backward->source->backward ||
            backward->source->forward != (int32_t)(node - build->nodes))
            continue;
        for (uint32_t k = 0; k < backward->output_count && !attempt.works; k++) {
            if (value_of(build, backward->outputs[k])->tensor->gradient_of != parameter)
                continue;
            fill_request(build, backward, FREE_WEIGHTS, &attempt);
            const uint32_t at = backward->input_count + k;
            const enum ls_status status =
                attempt.arguments[at].dtype == LS_F32 ? ask(build, backward, &attempt) : LS_OK;
            if (status)
                return status;
            if (attempt.works)
                *out = attempt.layouts[at];
        }
    }
    release(build, &attempt);
    return LS_OK;
}

// Own layouts are of one type. The master of a parameter that is read as halves lies as its
// gradient is written; where that is not known, as the same operation has it in float32; else
// plain.
static enum ls_status choose_for_half(struct ls_build *build, const struct ls_node *node,
                                      uint32_t index)
{
    struct attempt wide = {.works = false};
    struct ls_layout layout;
    enum ls_status status = gradient_layout(build, node, index, &layout);
    if (status)
        return status;
    if (layout.kind != LS_LAYOUT_ANY) {
        choose_master(build, node->inputs[index], &layout);
        return LS_OK;
    }
    fill_request(build, node, FREE_WEIGHTS | FREE_ACTIVATIONS, &wide);
    for (uint32_t i = 0; i < node->input_count + node->output_count; i++)
        if (ls_type_is_half(wide.arguments[i].dtype)) {
            wide.arguments[i].dtype = LS_F32;
            wide.arguments[i].layout = (struct ls_layout){.kind = LS_LAYOUT_ANY};
        }
    status = ask(build, node, &wide);
    if (status)
        return status;
    const struct ls_layout plain = ls_plain_layout(&wide.arguments[index]);
    choose_master(build, node->inputs[index], wide.works ? &wide.layouts[index] : &plain);
    release(build, &wide);
    return LS_OK;
}

// A second layout of a parameter that only the backward pass reads takes memory for a whole step,
// although one kernel reads it. A large one is made in the activations' memory just before that
// kernel. Small ones stay: they cost little, and a step between two others would end their tile. So
// do all where parameters fit into a cache, in which the update has just left them.
#define LARGE_SHADOW_BYTES (256 << 10)
#define LARGE_MODEL_BYTES (16 << 20)

static bool is_made_when_read(const struct ls_build *build, const struct ls_node *node,
                              const struct ls_layout *layout)
{
    return node->source->backward && layout->bytes >= LARGE_SHADOW_BYTES &&
           build->plan->flat_bytes >= LARGE_MODEL_BYTES;
}

// The value that the kernel reads for input `index`, in the layout that it wants.
static enum ls_status bridge_input(struct ls_build *build, const struct ls_node *node,
                                   const struct attempt *attempt, uint32_t index, uint32_t *out)
{
    const uint32_t id = node->inputs[index];
    const struct ls_value *value = value_of(build, id);
    const struct ls_layout *layout = &attempt->layouts[index];
    const uint32_t dtype = attempt->arguments[index].dtype;
    const bool as_half = dtype != value->tensor->dtype;

    *out = id;
    if (value->home == LS_HOME_PARAMETERS && value->layout.kind == LS_LAYOUT_ANY) {
        const enum ls_status status = as_half ? choose_for_half(build, node, index) : LS_OK;
        if (!as_half)
            choose_master(build, id, layout);
        if (!as_half || status)
            return status;
    }
    if ((attempt->answer.used_inputs >> index & 1) == 0 ||
        (!as_half && ls_layout_equal(&value->layout, layout)))
        return LS_OK;
    if (value->home == LS_HOME_PARAMETERS && (as_half || !is_made_when_read(build, node, layout)))
        return ls_shadow_value(build, id, layout, dtype, out);
    return ls_convert_value(build, node, id, layout, dtype, out);
}

// The value that the kernel writes for output `index`: the output itself, or one to bridge from.
static enum ls_status bridge_output(struct ls_build *build, const struct ls_node *node,
                                    const struct attempt *attempt, uint32_t index, uint32_t *out)
{
    const uint32_t id = node->outputs[index];
    const struct ls_layout *layout = &attempt->layouts[node->input_count + index];
    struct ls_layout wanted = wanted_layout(build, id);
    const bool accumulated = (attempt->request.accumulate >> index & 1) != 0;

    if (wanted.kind == LS_LAYOUT_ANY)
        wanted = *layout;
    value_of(build, id)->layout = wanted;
    *out = id;
    const bool apart = is_second(node, index) || (value_of(build, id)->written && !accumulated);
    if (ls_layout_equal(layout, &wanted) && !apart)
        return LS_OK;
    const enum ls_tensor_role role = value_of(build, id)->tensor->role;
    const enum ls_status status = ls_build_value(
        build, id, role == LS_ROLE_PARAMETER_GRADIENT ? LS_ROLE_GRADIENT : role, layout, out);
    if (!status)
        value_of(build, *out)->tensor->dtype = attempt->arguments[node->input_count + index].dtype;
    return status;
}

// What follows the kernel where it did not write the output itself.
static enum ls_status finish_output(struct ls_build *build, const struct ls_node *node,
                                    uint32_t written, uint32_t output)
{
    const bool add = value_of(build, output)->written;

    const enum ls_home home = value_of(build, output)->home;
    if (home == LS_HOME_GRADIENTS || home == LS_HOME_SUMS)
        value_of(build, output)->written = true;
    if (written == output)
        return LS_OK;
    if (!add)
        return ls_insert_convert(build, node, written, output);
    const uint32_t dtype = value_of(build, output)->tensor->dtype;
    if (!ls_layout_equal(&value_of(build, written)->layout, &value_of(build, output)->layout) ||
        value_of(build, written)->tensor->dtype != dtype) {
        const struct ls_layout layout = value_of(build, output)->layout;
        enum ls_status status = ls_convert_value(build, node, written, &layout, dtype, &written);
        if (status)
            return status;
    }
    return ls_insert_add(build, node, written, output);
}

static void fill_step(struct ls_build *build, struct ls_node *node, const struct attempt *attempt,
                      const uint32_t *values)
{
    const uint32_t last = build->program->step_count - 1;
    struct ls_program_step *step = &build->program->steps[last];
    struct ls_step_plan *plan = &build->buffers->plans[last];

    step->operation = node->source;
    step->kernel = attempt->answer.kernel;
    step->attributes = node->attributes;
    step->input_count = node->input_count;
    step->output_count = node->output_count;
    step->scratch_bytes = attempt->answer.scratch_bytes;
    step->backward = node->source->backward;
    step->slow = attempt->answer.slow != 0;
    ls_label_step(build, node, step->label, sizeof(step->label));
    snprintf(step->implementation, sizeof(step->implementation), "%.*s",
             (int)sizeof(step->implementation) - 1, attempt->answer.implementation);
    for (uint32_t i = 0; i < node->input_count + node->output_count; i++) {
        step->tensors[i] = value_of(build, values[i])->tensor;
        plan->values[i] = values[i];
    }
    plan->used_inputs = attempt->answer.used_inputs;
    plan->in_place = attempt->answer.in_place;
    plan->accumulate = attempt->request.accumulate;
    node->kernel = attempt->answer.kernel;
}

// Takes the kernel over, also on failure.
static enum ls_status add_step(struct ls_build *build, struct ls_node *node,
                               struct attempt *attempt)
{
    uint32_t values[LS_MAX_ARGUMENTS];
    uint32_t *outputs = &values[node->input_count];
    enum ls_status status = LS_OK;

    for (uint32_t i = 0; i < node->input_count && !status; i++)
        status = bridge_input(build, node, attempt, i, &values[i]);
    for (uint32_t i = 0; i < node->output_count && !status; i++)
        status = bridge_output(build, node, attempt, i, &outputs[i]);
    if (!status)
        status = ls_build_step(build);
    if (status) {
        release(build, attempt);
        return status;
    }
    fill_step(build, node, attempt, values);

    // The gradients of what was fused away take the layout of what came of it.
    for (uint32_t i = 0; i < node->fused_count && !node->source->backward; i++)
        value_of(build, node->fused_outputs[i])->layout = value_of(build, node->outputs[0])->layout;
    for (uint32_t i = 0; i < node->output_count && !status; i++)
        status = finish_output(build, node, outputs[i], node->outputs[i]);
    return status;
}

// ---- Reshapes ----

// In the plain layout a reshape is the same memory: only layouts of the device's own need steps.
static enum ls_status prepare_reshape(struct ls_build *build, struct ls_node *node)
{
    uint32_t x = node->inputs[0], y = node->outputs[0];
    const struct ls_layout wanted = wanted_layout(build, y);
    struct ls_tensor_desc desc;
    enum ls_status status = LS_OK;

    ls_describe_tensor(value_of(build, x)->tensor, build->options.batch, &desc);
    const struct ls_layout plain = ls_plain_layout(&desc);
    if (value_of(build, x)->layout.kind != LS_LAYOUT_PLAIN)
        status = ls_convert_value(build, node, x, &plain, desc.dtype, &x);
    if (!status && wanted.kind == LS_LAYOUT_OWN)
        status = ls_build_value(build, y, value_of(build, y)->tensor->role, &plain, &y);
    if (status)
        return status;

    value_of(build, y)->layout = plain;
    value_of(build, y)->memory = x;
    value_of(build, y)->home = value_of(build, x)->home;
    if (y == node->outputs[0])
        return LS_OK;
    value_of(build, node->outputs[0])->layout = wanted;
    return ls_insert_convert(build, node, y, node->outputs[0]);
}

enum ls_status ls_prepare_node(struct ls_build *build, uint32_t index)
{
    struct ls_node *node = &build->nodes[index];
    struct attempt best;

    if (ls_operation_has(node->op, LS_TRAIT_VIEW))
        return prepare_reshape(build, node);
    enum ls_status status = find_kernel(build, node, &best);
    if (status)
        return status;
    return add_step(build, node, &best);
}
