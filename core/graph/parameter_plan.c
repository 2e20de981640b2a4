// SPDX-License-Identifier: Apache-2.0
// The parameter plan: master layouts, the order of parameters in the flat buffers, their shadows,
// and the way in and out of a flat buffer.
#include "core/graph/build.h"

#include "core/base/hash.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/memory.h"

#include <stdlib.h>
#include <string.h>

// ---- Creating ----

// Where the graph has its parameters, by id of the tensor.
struct uses {
    uint32_t first_reader; // operation; UINT32_MAX: none
    uint32_t last_contribution; // operation that writes a gradient of it, and one more; 0: none
    uint32_t last_writer; // the last that writes its gradient in the flat buffer
    bool placed;
};

static struct uses *find_uses(const struct ls_graph *graph)
{
    struct uses *uses = calloc((size_t)graph->tensor_count + 1, sizeof(*uses));
    for (uint32_t i = 0; uses && i < graph->tensor_count; i++)
        uses[i].first_reader = UINT32_MAX;
    for (uint32_t i = 0; uses && i < graph->operation_count; i++) {
        const struct ls_operation *operation = &graph->operations[i];
        for (uint32_t k = 0; k < operation->input_count; k++)
            if (uses[operation->inputs[k]->id].first_reader == UINT32_MAX)
                uses[operation->inputs[k]->id].first_reader = i;
        for (uint32_t k = 0; k < operation->output_count; k++) {
            const struct ls_tensor *output = operation->outputs[k];
            if (!output->gradient_of)
                continue;
            uses[output->gradient_of->id].last_contribution = i + 1;
            if (output->role == LS_ROLE_PARAMETER_GRADIENT)
                uses[output->gradient_of->id].last_writer = i;
        }
    }
    return uses;
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

// The order in which forward finishes them.
static void order_statistics(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                             const struct uses *uses, bool plain)
{
    for (uint32_t i = 0; i < graph->operation_count; i++) {
        const struct ls_operation *operation = &graph->operations[i];
        for (uint32_t k = 0; k < operation->output_count; k++) {
            const struct ls_tensor *of = operation->outputs[k]->gradient_of;
            if (operation->outputs[k]->role == LS_ROLE_PARAMETER_GRADIENT &&
                of->zone == LS_ZONE_STATISTICS && uses[of->id].last_contribution == i + 1)
                add_place(plan, of, plain);
        }
    }
}

// The order in which backward finishes gradients: operations from the last to the first. The same
// with and without backward operations in the graph, and of what is frozen the one of its readers.
static void order_backward(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                           struct uses *uses, enum ls_zone zone, bool plain)
{
    for (uint32_t i = graph->operation_count; i > 0; i--) {
        const struct ls_operation *operation = &graph->operations[i - 1];
        for (uint32_t k = 0; k < operation->input_count && !operation->backward; k++) {
            const struct ls_tensor *input = operation->inputs[k];
            if (input->role == LS_ROLE_PARAMETER && input->zone == zone &&
                !uses[input->id].placed && uses[input->id].first_reader == i - 1) {
                add_place(plan, input, plain);
                uses[input->id].placed = true;
            }
        }
    }
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i]->zone == zone && !uses[graph->parameters[i]->id].placed)
            add_place(plan, graph->parameters[i], plain);
}

static void order_places(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                         struct uses *uses, bool plain)
{
    order_statistics(plan, graph, uses, plain);
    order_backward(plan, graph, uses, LS_ZONE_TRAINED, plain);
    plan->reduced_count = plan->place_count;
    order_backward(plan, graph, uses, LS_ZONE_FROZEN, plain);
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

static int by_name(const void *a, const void *b)
{
    const struct ls_parameter_place *const *p = a, *const *q = b;
    return strcmp((*p)->parameter->name, (*q)->parameter->name);
}

static enum ls_status sort_names(struct ls_parameter_plan *plan)
{
    plan->by_name = malloc(((size_t)plan->place_count + 1) * sizeof(*plan->by_name));
    if (!plan->by_name)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < plan->place_count; i++)
        plan->by_name[i] = &plan->places[i];
    qsort(plan->by_name, plan->place_count, sizeof(*plan->by_name), by_name);
    return LS_OK;
}

static int compare_name(const void *name, const void *place)
{
    const struct ls_parameter_place *const *of = place;
    return strcmp(name, (*of)->parameter->name);
}

uint32_t ls_plan_find(const struct ls_parameter_plan *plan, const char *name)
{
    const struct ls_parameter_place **found =
        bsearch(name, plan->by_name, plan->place_count, sizeof(*plan->by_name), compare_name);
    return found ? (uint32_t)(*found - plan->places) : LS_NO_PLACE;
}

// In the order of the operations, which is that of the steps.
static enum ls_status list_totals(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                                  const struct uses *uses)
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
                   uses[plan->places[place].parameter->id].last_writer < i)
                place++;
            const uint64_t count = (uint64_t)ls_shape_elements(&tensor->shape, 1);
            plan->totals[plan->total_count++] =
                (struct ls_total){.tensor = tensor,
                                  .offset = plan->total_bytes,
                                  .count = count,
                                  .backward = graph->operations[i].backward,
                                  .of_mask = graph->operations[i].layer == LS_NO_LAYER,
                                  .place = place};
            plan->total_bytes += ls_align(count * sizeof(double));
        }
    return LS_OK;
}

enum ls_status ls_plan_create(const struct ls_graph *graph, struct ls_device *device, int64_t batch,
                              bool plain, struct ls_parameter_plan **out)
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
    struct uses *uses = find_uses(graph);
    enum ls_status status = uses ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status) {
        order_places(plan, graph, uses, plain);
        status = list_totals(plan, graph, uses);
    }
    free(uses);
    if (!status)
        status = sort_names(plan);
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

static void forget_refresh(struct ls_parameter_plan *plan)
{
    if (plan->refresh)
        ls_device_release_kernel(plan->device, plan->refresh);
    free(plan->refresh_memory);
    plan->refresh = NULL;
    plan->refresh_memory = NULL;
    plan->refresh_count = 0;
}

void ls_plan_destroy(struct ls_parameter_plan *plan)
{
    if (!plan)
        return;
    for (uint32_t i = 0; i < plan->shadow_count; i++)
        ls_device_release_kernel(plan->device, plan->shadows[i].convert);
    forget_refresh(plan);
    free(plan->shadows);
    free(plan->totals);
    free(plan->by_name);
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
    struct ls_memory plain; // in the plain layout; nowhere: the caller's memory
    struct ls_memory scratch; // nowhere: none needed
};

static void conversion_finish(const struct ls_parameter_plan *plan, struct conversion *conversion)
{
    ls_device_release_kernel(plan->device, conversion->answer.kernel);
    ls_device_release(plan->device, conversion->plain);
    ls_device_release(plan->device, conversion->scratch);
}

// Whether a kernel of the device may read and write `host`.
static bool is_tensor(const struct ls_parameter_plan *plan, const void *host)
{
    return ls_device_in_host_memory(plan->device) && (uintptr_t)host % LS_ALIGNMENT == 0;
}

static enum ls_status conversion_init(const struct ls_parameter_plan *plan, uint32_t place, bool in,
                                      bool direct, struct conversion *out)
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
    if (!direct)
        conversion.plain = ls_device_allocate(plan->device, plain.layout.bytes);
    if (conversion.answer.scratch_bytes > 0)
        conversion.scratch = ls_device_allocate(plan->device, conversion.answer.scratch_bytes);
    if ((!direct && ls_memory_is_null(conversion.plain)) ||
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
                              struct ls_memory at)
{
    const struct ls_parameter_place *master = &plan->places[place];
    const bool direct = is_tensor(plan, from);
    struct conversion conversion;

    if (master->layout.kind == LS_LAYOUT_PLAIN)
        return ls_device_copy(plan->device, at, ls_host_memory(from), plain_bytes(master), NULL);
    enum ls_status status = conversion_init(plan, place, true, direct, &conversion);
    if (status)
        return status;
    if (!direct)
        status = ls_device_copy(plan->device, conversion.plain, ls_host_memory(from),
                                plain_bytes(master), NULL);
    if (!status)
        status = launch_conversion(plan, conversion.answer.kernel,
                                   direct ? ls_host_memory(from) : conversion.plain, at,
                                   conversion.scratch);
    conversion_finish(plan, &conversion);
    return status;
}

enum ls_status ls_plan_export(const struct ls_parameter_plan *plan, uint32_t place,
                              struct ls_memory at, float *to)
{
    const struct ls_parameter_place *master = &plan->places[place];
    const bool direct = is_tensor(plan, to);
    struct conversion conversion;

    if (master->layout.kind == LS_LAYOUT_PLAIN)
        return ls_device_copy(plan->device, ls_host_memory(to), at, plain_bytes(master), NULL);
    enum ls_status status = conversion_init(plan, place, false, direct, &conversion);
    if (status)
        return status;
    status = launch_conversion(plan, conversion.answer.kernel, at,
                               direct ? ls_host_memory(to) : conversion.plain, conversion.scratch);
    if (!status && !direct)
        status = ls_device_copy(plan->device, ls_host_memory(to), conversion.plain,
                                plain_bytes(master), NULL);
    conversion_finish(plan, &conversion);
    return status;
}

// The device converts the numbers of the elements: as floats they are exact in two halves.
enum ls_status ls_plan_order(const struct ls_parameter_plan *plan, uint32_t place, uint32_t **out)
{
    const struct ls_parameter_place *master = &plan->places[place];
    const uint64_t own = master->bytes / sizeof(float), count = plain_bytes(master) / sizeof(float);
    if (master->layout.kind == LS_LAYOUT_PLAIN || !ls_device_in_host_memory(plan->device))
        return LS_OK;
    if (own > UINT32_MAX) {
        ls_error(master->parameter->name, "has more than 2^32 elements, which cannot be ordered");
        return LS_UNSUPPORTED;
    }
    float *marks = ls_malloc_aligned(own * sizeof(*marks));
    float *plain = ls_malloc_aligned(count * sizeof(*plain));
    uint32_t *order = calloc(count, sizeof(*order));
    enum ls_status status = marks && plain && order ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t shift = 0; !status && shift < 32; shift += 16) {
        for (uint64_t i = 0; i < own; i++)
            marks[i] = (float)(i >> shift & 0xffff);
        status = ls_plan_export(plan, place, ls_host_memory(marks), plain);
        for (uint64_t i = 0; !status && i < count; i++)
            order[i] |= (uint32_t)plain[i] << shift;
    }
    free(marks);
    free(plain);
    if (status)
        free(order);
    else
        *out = order;
    return status;
}

// ---- Shadows ----

// What a segment is made of: for each shadow a kernel, and as values its master and the shadow.
struct shadow_segment {
    struct ls_kernel_request *requests;
    struct ls_tensor_desc *descs;
    struct ls_segment_kernel *kernels;
    struct ls_segment_value *values;
    uint32_t *numbers;
    uint32_t count; // of kernels
};

// Whether the shadow lies as its master does, and is of another type.
static bool only_casts(const struct ls_parameter_plan *plan, const struct ls_shadow *shadow)
{
    const struct ls_layout *master = &plan->places[shadow->place].layout;
    return shadow->dtype != LS_F32 && shadow->layout.kind == master->kind &&
           memcmp(shadow->layout.words, master->words, sizeof(master->words)) == 0;
}

static void add_shadow(const struct ls_parameter_plan *plan, const struct ls_shadow *shadow,
                       struct shadow_segment *segment)
{
    const struct ls_parameter_place *master = &plan->places[shadow->place];
    const uint32_t i = segment->count++;
    struct ls_tensor_desc *descs = &segment->descs[2 * (size_t)i];
    ls_describe_tensor(master->parameter, 1, &descs[0]);
    descs[1] = descs[0];
    descs[0].layout = master->layout;
    descs[1].dtype = shadow->dtype;
    descs[1].layout = shadow->layout;
    segment->requests[i] = (struct ls_kernel_request){.struct_size = sizeof(*segment->requests),
                                                      .op = LS_OP_CONVERT,
                                                      .input_count = 1,
                                                      .output_count = 1,
                                                      .arguments = descs};
    segment->kernels[i] = (struct ls_segment_kernel){.request = &segment->requests[i],
                                                     .values = &segment->numbers[2 * (size_t)i]};
    for (uint32_t k = 2 * i; k < 2 * i + 2; k++) {
        segment->numbers[k] = k;
        segment->values[k] = (struct ls_segment_value){.desc = segment->descs[k], .argument = k};
    }
}

// Asks for a kernel of all shadows, or of those that are casts and no more.
static enum ls_status ask_for_refresh(struct ls_parameter_plan *plan,
                                      struct shadow_segment *segment, bool casts,
                                      struct ls_kernel_answer *answer)
{
    segment->count = 0;
    for (uint32_t i = 0; i < plan->shadow_count; i++) {
        plan->shadows[i].together = !casts || only_casts(plan, &plan->shadows[i]);
        if (plan->shadows[i].together)
            add_shadow(plan, &plan->shadows[i], segment);
    }
    const struct ls_segment_request request = {.struct_size = sizeof(request),
                                               .kernel_count = segment->count,
                                               .kernels = segment->kernels,
                                               .values = segment->values,
                                               .value_count = 2 * segment->count,
                                               .argument_count = 2 * segment->count};
    return segment->count < 2
               ? LS_UNSUPPORTED
               : ls_device_prepare_segment(plan->device, "second layouts", &request, answer);
}

enum ls_status ls_plan_gather_shadows(struct ls_parameter_plan *plan)
{
    const size_t count = plan->shadow_count;
    if (count < 2 || count == plan->refresh_count || !ls_device_takes_segments(plan->device))
        return LS_OK;
    struct shadow_segment segment = {
        .requests = calloc(count, sizeof(*segment.requests)),
        .descs = calloc(2 * count, sizeof(*segment.descs)),
        .kernels = calloc(count, sizeof(*segment.kernels)),
        .values = calloc(2 * count, sizeof(*segment.values)),
        .numbers = calloc(2 * count, sizeof(*segment.numbers)),
    };
    struct ls_kernel_answer answer = {.layouts = NULL};
    enum ls_status status = LS_OUT_OF_MEMORY;
    forget_refresh(plan);
    plan->refresh_memory = calloc(2 * count, sizeof(*plan->refresh_memory));
    if (segment.requests && segment.descs && segment.kernels && segment.values && segment.numbers &&
        plan->refresh_memory) {
        status = ask_for_refresh(plan, &segment, false, &answer);
        if (status == LS_UNSUPPORTED)
            status = ask_for_refresh(plan, &segment, true, &answer);
    }
    if (!status) {
        plan->refresh = answer.kernel;
        plan->refresh_scratch_bytes = answer.scratch_bytes;
    }
    if (!status || status == LS_UNSUPPORTED)
        plan->refresh_count = plan->shadow_count;
    free(segment.requests);
    free(segment.descs);
    free(segment.kernels);
    free(segment.values);
    free(segment.numbers);
    return status == LS_UNSUPPORTED ? LS_OK : status;
}

static enum ls_status refresh_together(struct ls_parameter_plan *plan, struct ls_memory flat,
                                       struct ls_memory shadows, struct ls_memory scratch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->shadow_count; i++) {
        const struct ls_shadow *shadow = &plan->shadows[i];
        if (!shadow->together)
            continue;
        plan->refresh_memory[count++] = ls_memory_at(flat, plan->places[shadow->place].offset);
        plan->refresh_memory[count++] = ls_memory_at(shadows, shadow->offset);
    }
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = count,
                                     .arguments = plan->refresh_memory,
                                     .scratch = scratch};
    ls_inside_about("second layouts");
    return ls_device_launch(plan->device, plan->refresh, &launch);
}

enum ls_status ls_plan_refresh_shadows(struct ls_parameter_plan *plan, struct ls_memory flat,
                                       struct ls_memory shadows, struct ls_memory scratch)
{
    const struct ls_memory nowhere = {NULL, 0};
    enum ls_status status = LS_OK;
    if (plan->refresh)
        status = refresh_together(plan, flat, shadows,
                                  plan->refresh_scratch_bytes > 0 ? scratch : nowhere);
    for (uint32_t i = 0; !status && i < plan->shadow_count; i++) {
        const struct ls_shadow *shadow = &plan->shadows[i];
        if (plan->refresh && shadow->together)
            continue;
        status = launch_conversion(
            plan, shadow->convert, ls_memory_at(flat, plan->places[shadow->place].offset),
            ls_memory_at(shadows, shadow->offset), shadow->scratch_bytes > 0 ? scratch : nowhere);
    }
    return status;
}

enum ls_status ls_plan_refresh_places(struct ls_parameter_plan *plan, uint32_t first,
                                      uint32_t count, const struct ls_bindings *bindings,
                                      struct ls_memory scratch)
{
    const struct ls_memory nowhere = {NULL, 0};
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < plan->shadow_count; i++) {
        const struct ls_shadow *shadow = &plan->shadows[i];
        if (shadow->place < first || shadow->place - first >= count)
            continue;
        status = launch_conversion(
            plan, shadow->convert,
            ls_memory_at(bindings->parameters, bindings->parameters_at[shadow->place]),
            ls_memory_at(bindings->shadows, bindings->shadows_at[i]),
            shadow->scratch_bytes > 0 ? scratch : nowhere);
    }
    return status;
}
