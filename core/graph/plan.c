// SPDX-License-Identifier: Apache-2.0
// The parameter plan: master layouts, the order of parameters in the flat buffers, their shadows,
// and the way in and out of a flat buffer.
#include "core/graph/build.h"

#include "core/base/hash.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

// ---- Creating ----

static bool has_place(const struct ls_parameter_plan *plan, const struct ls_tensor *parameter)
{
    for (uint32_t i = 0; i < plan->place_count; i++)
        if (plan->places[i].parameter == parameter)
            return true;
    return false;
}

static void add_place(struct ls_parameter_plan *plan, const struct ls_tensor *parameter, bool plain)
{
    struct ls_parameter_place *place = &plan->places[plan->place_count++];
    struct ls_tensor_desc desc;

    place->parameter = parameter;
    ls_describe_tensor(parameter, 1, &desc);
    if (plain || parameter->shape.ndims == 1)
        place->layout = ls_plain_layout(&desc);
}

// Whether an operation before `index` reads the parameter: its gradient is complete only there.
static bool read_before(const struct ls_graph *graph, uint32_t index,
                        const struct ls_tensor *parameter)
{
    for (uint32_t i = 0; i < index; i++)
        for (uint32_t k = 0; k < graph->operations[i].input_count; k++)
            if (graph->operations[i].inputs[k] == parameter)
                return true;
    return false;
}

// Whether an operation from `first` on contributes to the statistic, too.
static bool written_from(const struct ls_graph *graph, uint32_t first,
                         const struct ls_tensor *parameter)
{
    for (uint32_t i = first; i < graph->operation_count; i++)
        for (uint32_t k = 0; k < graph->operations[i].output_count; k++)
            if (graph->operations[i].outputs[k]->gradient_of == parameter)
                return true;
    return false;
}

// The order in which forward finishes them.
static void order_statistics(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                             bool plain)
{
    for (uint32_t i = 0; i < graph->operation_count; i++) {
        const struct ls_operation *operation = &graph->operations[i];
        for (uint32_t k = 0; k < operation->output_count; k++) {
            const struct ls_tensor *of = operation->outputs[k]->gradient_of;
            if (operation->outputs[k]->role == LS_ROLE_PARAMETER_GRADIENT &&
                of->zone == LS_ZONE_STATISTICS && !written_from(graph, i + 1, of))
                add_place(plan, of, plain);
        }
    }
}

// The order in which backward finishes gradients: operations from the last to the first. The same
// with and without backward operations in the graph.
static void order_trained(struct ls_parameter_plan *plan, const struct ls_graph *graph, bool plain)
{
    for (uint32_t i = graph->operation_count; i > 0; i--) {
        const struct ls_operation *operation = &graph->operations[i - 1];
        for (uint32_t k = 0; k < operation->input_count && !operation->backward; k++) {
            const struct ls_tensor *input = operation->inputs[k];
            if (input->role == LS_ROLE_PARAMETER && input->zone == LS_ZONE_TRAINED &&
                !has_place(plan, input) && !read_before(graph, i - 1, input))
                add_place(plan, input, plain);
        }
    }
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i]->zone == LS_ZONE_TRAINED && !has_place(plan, graph->parameters[i]))
            add_place(plan, graph->parameters[i], plain);
}

static void order_places(struct ls_parameter_plan *plan, const struct ls_graph *graph, bool plain)
{
    order_statistics(plan, graph, plain);
    order_trained(plan, graph, plain);
    plan->reduced_count = plan->place_count;
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i]->zone == LS_ZONE_FROZEN)
            add_place(plan, graph->parameters[i], plain);
}

// A program made for its choices alone.
static enum ls_status choose_layouts(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                                     int64_t batch)
{
    const bool differentiated =
        graph->operation_count > 0 && graph->operations[graph->operation_count - 1].backward;
    const struct ls_program_options options = {
        .batch = batch, .purpose = differentiated ? LS_PURPOSE_TRAIN : LS_PURPOSE_EVALUATE};
    struct ls_program *program;

    enum ls_status status = ls_build_program(plan, graph, &options, true, &program);
    if (!status)
        ls_program_destroy(program);
    return status;
}

static void settle_offsets(struct ls_parameter_plan *plan)
{
    for (uint32_t i = 0; i < plan->place_count; i++) {
        struct ls_parameter_place *place = &plan->places[i];
        struct ls_tensor_desc desc;
        if (place->layout.kind == LS_LAYOUT_ANY) { // no operation reads it
            ls_describe_tensor(place->parameter, 1, &desc);
            place->layout = ls_plain_layout(&desc);
        }
        place->bytes = place->layout.bytes;
        place->offset = plan->flat_bytes;
        plan->flat_bytes += ls_align(place->bytes);
        if (i < plan->reduced_count)
            plan->reduced_bytes = plan->flat_bytes;
        if (place->parameter->zone == LS_ZONE_STATISTICS)
            plan->statistics_bytes = plan->flat_bytes;
    }
}

// The last operation that writes the gradient of a place.
static uint32_t last_writer(const struct ls_graph *graph, const struct ls_tensor *parameter)
{
    for (uint32_t i = graph->operation_count; i > 0; i--)
        for (uint32_t k = 0; k < graph->operations[i - 1].output_count; k++)
            if (graph->operations[i - 1].outputs[k]->role == LS_ROLE_PARAMETER_GRADIENT &&
                graph->operations[i - 1].outputs[k]->gradient_of == parameter)
                return i - 1;
    return 0;
}

// In the order of the operations, which is that of the steps.
static enum ls_status list_totals(struct ls_parameter_plan *plan, const struct ls_graph *graph)
{
    const bool trains =
        graph->operation_count > 0 && graph->operations[graph->operation_count - 1].backward;
    plan->totals = calloc((size_t)graph->tensor_count + 1, sizeof(*plan->totals));
    if (!plan->totals)
        return LS_OUT_OF_MEMORY;
    uint32_t place = 0;
    for (uint32_t i = 0; i < graph->operation_count && trains; i++)
        for (uint32_t k = 0; k < graph->operations[i].output_count; k++) {
            const struct ls_tensor *tensor = graph->operations[i].outputs[k];
            if (tensor->role != LS_ROLE_TOTAL)
                continue;
            while (place < plan->reduced_count &&
                   last_writer(graph, plan->places[place].parameter) < i)
                place++;
            const uint64_t count = (uint64_t)ls_shape_elements(&tensor->shape, 1);
            plan->totals[plan->total_count++] = (struct ls_total){
                .tensor = tensor, .offset = plan->total_bytes, .count = count, .place = place};
            plan->total_bytes += ls_align(count * sizeof(double));
        }
    return LS_OK;
}

enum ls_status ls_plan_create(const struct ls_graph *graph, struct ls_virtual_device *device,
                              int64_t batch, bool plain, struct ls_parameter_plan **out)
{
    if (graph->input_count == 0 || graph->output_count == 0) {
        ls_error(graph->name, "the model has no layers");
        return LS_BAD_INPUT;
    }
    struct ls_parameter_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return LS_OUT_OF_MEMORY;
    plan->device = device;
    plan->places = calloc((size_t)graph->parameter_count + 1, sizeof(*plan->places));
    if (!plan->places) {
        ls_plan_destroy(plan);
        return LS_OUT_OF_MEMORY;
    }
    order_places(plan, graph, plain);
    enum ls_status status = list_totals(plan, graph);
    if (!status && !plain)
        status = choose_layouts(plan, graph, batch);
    if (status) {
        ls_plan_destroy(plan);
        return status;
    }
    settle_offsets(plan);
    *out = plan;
    return LS_OK;
}

void ls_plan_destroy(struct ls_parameter_plan *plan)
{
    if (!plan)
        return;
    for (uint32_t i = 0; i < plan->shadow_count; i++)
        ls_device_release_kernel(plan->device, plan->shadows[i].convert);
    free(plan->shadows);
    free(plan->totals);
    free(plan->places);
    free(plan);
}

uint64_t ls_plan_fingerprint(const struct ls_parameter_plan *plan)
{
    struct ls_hash *hash = ls_hash_create();
    if (!hash)
        return 0;
    for (uint32_t i = 0; i < plan->place_count; i++) {
        const struct ls_parameter_place *place = &plan->places[i];
        ls_hash_add(hash, place->parameter->name, strlen(place->parameter->name) + 1);
        ls_hash_add(hash, &place->offset, sizeof(place->offset));
        ls_hash_add(hash, &place->layout, sizeof(place->layout));
    }
    const uint64_t fingerprint = ls_hash_get(hash);
    ls_hash_destroy(hash);
    return fingerprint;
}

// ---- In and out of a flat buffer ----

struct conversion {
    struct ls_kernel_answer answer;
    struct ls_memory plain; // in the plain layout
    struct ls_memory scratch; // nowhere: none needed
};

static void conversion_finish(const struct ls_parameter_plan *plan, struct conversion *conversion)
{
    ls_device_release_kernel(plan->device, conversion->answer.kernel);
    ls_device_release(plan->device, conversion->plain);
    ls_device_release(plan->device, conversion->scratch);
}

static enum ls_status conversion_init(const struct ls_parameter_plan *plan, uint32_t place, bool in,
                                      struct conversion *out)
{
    const struct ls_parameter_place *master = &plan->places[place];
    struct ls_tensor_desc own, plain;
    struct conversion conversion = {0};

    ls_describe_tensor(master->parameter, 1, &own);
    plain = own;
    plain.layout = ls_plain_layout(&plain);
    own.layout = master->layout;
    enum ls_status status = ls_prepare_convert(plan, master->parameter->name, in ? &plain : &own,
                                               in ? &own : &plain, &conversion.answer);
    if (status)
        return status;
    conversion.plain = ls_device_allocate(plan->device, plain.layout.bytes);
    if (conversion.answer.scratch_bytes > 0)
        conversion.scratch = ls_device_allocate(plan->device, conversion.answer.scratch_bytes);
    if (ls_memory_is_null(conversion.plain) ||
        (conversion.answer.scratch_bytes > 0 && ls_memory_is_null(conversion.scratch))) {
        ls_error("device", "no memory of the device to convert the layout of '%s'",
                 master->parameter->name);
        conversion_finish(plan, &conversion);
        return LS_OUT_OF_MEMORY;
    }
    *out = conversion;
    return LS_OK;
}

static enum ls_status launch_conversion(const struct ls_parameter_plan *plan,
                                        const struct ls_kernel *kernel, struct ls_memory from,
                                        struct ls_memory to, struct ls_memory scratch)
{
    const struct ls_memory arguments[2] = {from, to};
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = 2,
                                     .arguments = arguments,
                                     .scratch = scratch};

    ls_inside_about("layout of a parameter");
    return ls_device_launch(plan->device, kernel, &launch);
}

static uint64_t plain_bytes(const struct ls_parameter_place *place)
{
    return (uint64_t)ls_shape_elements(&place->parameter->shape, 1) * sizeof(float);
}

enum ls_status ls_plan_import(struct ls_parameter_plan *plan, uint32_t place, const float *from,
                              struct ls_memory flat)
{
    const struct ls_parameter_place *master = &plan->places[place];
    const struct ls_memory to = ls_memory_at(flat, master->offset);
    struct conversion conversion;

    if (master->layout.kind == LS_LAYOUT_PLAIN)
        return ls_device_copy(plan->device, to, ls_host_memory(from), plain_bytes(master), NULL);
    enum ls_status status = conversion_init(plan, place, true, &conversion);
    if (status)
        return status;
    status = ls_device_copy(plan->device, conversion.plain, ls_host_memory(from),
                            plain_bytes(master), NULL);
    if (!status)
        status = launch_conversion(plan, conversion.answer.kernel, conversion.plain, to,
                                   conversion.scratch);
    conversion_finish(plan, &conversion);
    return status;
}

enum ls_status ls_plan_export(struct ls_parameter_plan *plan, uint32_t place, struct ls_memory flat,
                              float *to)
{
    const struct ls_parameter_place *master = &plan->places[place];
    const struct ls_memory from = ls_memory_at(flat, master->offset);
    struct conversion conversion;

    if (master->layout.kind == LS_LAYOUT_PLAIN)
        return ls_device_copy(plan->device, ls_host_memory(to), from, plain_bytes(master), NULL);
    enum ls_status status = conversion_init(plan, place, false, &conversion);
    if (status)
        return status;
    status = launch_conversion(plan, conversion.answer.kernel, from, conversion.plain,
                               conversion.scratch);
    if (!status)
        status = ls_device_copy(plan->device, ls_host_memory(to), conversion.plain,
                                plain_bytes(master), NULL);
    conversion_finish(plan, &conversion);
    return status;
}

enum ls_status ls_plan_refresh_shadows(struct ls_parameter_plan *plan, struct ls_memory flat,
                                       struct ls_memory shadows, struct ls_memory scratch)
{
    const struct ls_memory nowhere = {NULL, 0};
    for (uint32_t i = 0; i < plan->shadow_count; i++) {
        const struct ls_shadow *shadow = &plan->shadows[i];
        enum ls_status status = launch_conversion(
            plan, shadow->convert, ls_memory_at(flat, plan->places[shadow->place].offset),
            ls_memory_at(shadows, shadow->offset), shadow->scratch_bytes > 0 ? scratch : nowhere);
        if (status)
            return status;
    }
    return LS_OK;
}
