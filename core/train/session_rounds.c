// SPDX-License-Identifier: Apache-2.0
#include "core/train/session_rounds.h"

#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/run/workers.h"
#include "core/train/session_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 48
#define VARIABLES "round/variables"

bool ls_session_has_rounds(const struct ls_session *session)
{
    return session && session->driver && ls_driver_has_rounds(session->driver);
}

// One tensor of the file.
struct part {
    struct ls_session *session;
    uint32_t rank; // whose
    enum ls_round_memory memory; // LS_ROUND_MEMORIES: of the optimizer
    uint32_t state; // of the optimizer then
    bool gives; // to the replica `index`; else it is taken
    uint32_t index;
    float *values; // of all variables that travel, plain
    char name[NAME_BYTES];
};

static void name_part(struct part *part)
{
    switch (part->memory) {
    case LS_ROUND_WEIGHTS: snprintf(part->name, NAME_BYTES, "round/weights_%u", part->rank); break;
    case LS_ROUND_OWN_NOTES: snprintf(part->name, NAME_BYTES, "round/notes_%u", part->rank); break;
    case LS_ROUND_MOMENTUM: snprintf(part->name, NAME_BYTES, "round/momentum"); break;
    case LS_ROUND_DIFFERENCE: snprintf(part->name, NAME_BYTES, "round/difference"); break;
    default:
        snprintf(part->name, NAME_BYTES, "round/optimizer_%u_%u", part->state, part->rank);
        break;
    }
}

static uint64_t elements_of(const struct ls_session *session, uint32_t parameter)
{
    return (uint64_t)ls_shape_elements(&session->model->graph->parameters[parameter]->shape, 1);
}

// Where the parameter is in the flat buffers; NULL: it is frozen, and the same everywhere.
static const struct ls_parameter_place *place_of(const struct ls_session *session,
                                                 uint32_t parameter, uint32_t *place)
{
    const struct ls_parameter_plan *plan = ls_replica_plan(session->replicas[0]);
    *place = ls_plan_find(plan, session->model->graph->parameters[parameter]->name);
    return *place < plan->reduced_count ? &plan->places[*place] : NULL;
}

static uint64_t values_of(const struct ls_session *session, enum ls_round_memory memory)
{
    uint64_t count = 0;
    uint32_t place;
    if (memory == LS_ROUND_OWN_NOTES)
        return LS_ROUND_NOTES;
    for (uint32_t i = 0; i < session->model->graph->parameter_count; i++)
        count += place_of(session, i, &place) ? elements_of(session, i) : 0;
    return count;
}

// 1 for each that is in the flat buffers, in the order of the graph.
static void mark_variables(const struct ls_session *session, float *out)
{
    uint32_t place;
    for (uint32_t i = 0; i < session->model->graph->parameter_count; i++)
        out[i] = place_of(session, i, &place) ? 1 : 0;
}

// Between a flat buffer of the host's and plain values; to it by the gradients, which nobody needs
// between steps. [replica thread]
static enum ls_status convert(const struct part *part, uint32_t index, uint32_t parameter,
                              float *values)
{
    const struct ls_session *session = part->session;
    struct ls_replica *replica = session->replicas[index];
    uint32_t place;
    const struct ls_parameter_place *at = place_of(session, parameter, &place);
    float *flat =
        ls_driver_round_memory(session->driver, index, part->memory) + at->offset / sizeof(float);
    if (!part->gives)
        return ls_replica_export(replica, parameter, flat, values);
    const enum ls_status status =
        ls_replica_set_buffer(replica, LS_BUFFER_GRADIENTS, parameter, values);
    if (!status)
        memcpy(flat, ls_address(ls_replica_place_memory(replica, LS_BUFFER_GRADIENTS, place)),
               at->bytes);
    return status;
}

// [replica thread]
static enum ls_status move_part(void *context, uint32_t index)
{
    const struct part *part = context;
    const struct ls_session *session = part->session;
    const uint32_t buffer = LS_BUFFER_STATE + part->state;
    float *values = part->values;
    enum ls_status status = LS_OK;
    if (index != part->index)
        return LS_OK;
    if (part->memory == LS_ROUND_OWN_NOTES) {
        float *notes = ls_driver_round_memory(session->driver, index, LS_ROUND_OWN_NOTES);
        memcpy(part->gives ? notes : values, part->gives ? values : notes,
               LS_ROUND_NOTES * sizeof(float));
        return LS_OK;
    }
    for (uint32_t i = 0, place; !status && i < session->model->graph->parameter_count; i++) {
        struct ls_replica *replica = session->replicas[index];
        if (!place_of(session, i, &place))
            continue;
        if (part->memory != LS_ROUND_MEMORIES)
            status = convert(part, index, i, values);
        else if (part->gives)
            status = ls_replica_set_buffer(replica, buffer, i, values);
        else
            status = ls_replica_get_buffer(replica, buffer, i, values);
        values += elements_of(session, i);
    }
    return status;
}

// So that nothing is under way, and the weights of the last round are where parameters are.
// [replica thread]
static enum ls_status show_round(void *context, uint32_t index)
{
    return ls_driver_synchronise(((struct ls_session *)context)->driver, index);
}

// ---- To a file ----

// From the worker that has it to all, and into the image of the one that writes. `short_of`: set
// where there was no memory; the others go on.
static enum ls_status take_part(struct part *part, struct ls_checkpoint_image *image,
                                bool *short_of)
{
    struct ls_session *session = part->session;
    const uint32_t first = ls_session_rank(session, 0);
    const uint64_t count = values_of(session, part->memory);
    enum ls_status status = LS_OK;
    part->index = part->rank - first;
    name_part(part);
    if (part->rank >= first && part->index < session->count)
        status = ls_session_run(session, "taking the rounds", move_part, part);
    if (status)
        ls_workers_give_up(session->run); // others would wait for it
    if (!status && ls_cluster_workers(session->cluster) > 1)
        status = ls_cluster_broadcast(session->cluster, part->values, count * sizeof(float),
                                      ls_cluster_rank_workers(session->cluster)[part->rank]);
    if (!status && image && ls_checkpoint_add(image, part->name, part->values, count))
        *short_of = true;
    return status;
}

static enum ls_status take_rank(struct part *part, struct ls_checkpoint_image *image,
                                bool *short_of)
{
    const enum ls_round_memory all[] = {LS_ROUND_OWN_NOTES, LS_ROUND_WEIGHTS, LS_ROUND_MOMENTUM,
                                        LS_ROUND_DIFFERENCE};
    const uint32_t count = part->rank == 0 ? 4 : 2; // the last two are those of all ranks
    const uint32_t states = part->rank == 0 ? 0 : part->session->model->optimizer.state_count;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < count; i++) {
        part->memory = all[i];
        status = take_part(part, image, short_of);
    }
    part->memory = LS_ROUND_MEMORIES;
    for (part->state = 0; !status && part->state < states; part->state++)
        status = take_part(part, image, short_of);
    return status;
}

static enum ls_status add_variables(const struct ls_session *session,
                                    struct ls_checkpoint_image *image)
{
    const uint32_t count = session->model->graph->parameter_count;
    float *marks = malloc(count * sizeof(*marks));
    enum ls_status status = marks ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status) {
        mark_variables(session, marks);
        status = ls_checkpoint_add(image, VARIABLES, marks, count);
    }
    free(marks);
    return status;
}

enum ls_status ls_session_take_rounds(struct ls_session *session, bool able,
                                      struct ls_checkpoint_image *image)
{
    if (!ls_session_has_rounds(session))
        return LS_OK;
    const uint64_t count = values_of(session, LS_ROUND_WEIGHTS) + LS_ROUND_NOTES;
    struct part part = {.session = session, .values = ls_malloc_aligned(count * sizeof(float))};
    uint32_t unable;
    bool short_of = false;
    enum ls_status status =
        ls_session_run(session, "bringing the replicas together", show_round, session);
    if (!status)
        status = ls_session_agree(session, able && part.values, &unable);
    for (; !status && part.rank < ls_cluster_world(session->cluster); part.rank++)
        status = take_rank(&part, image, &short_of);
    if (!status && image && add_variables(session, image))
        short_of = true;
    free(part.values);
    return !status && short_of ? LS_OUT_OF_MEMORY : status;
}

// ---- From a file ----

static enum ls_status read_values(const struct ls_safetensors *file, const char *name,
                                  uint64_t count, float *out)
{
    const struct ls_saved_tensor *tensor = ls_safetensors_find(file, name);
    if (tensor && tensor->ndims == 1 && (uint64_t)tensor->dims[0] == count)
        return ls_safetensors_read(file, tensor, out);
    ls_error("checkpoint", "the checkpoint is damaged: '%s' is not there, or of another length",
             name);
    return LS_BAD_INPUT;
}

static enum ls_status give_part(struct part *part, const struct ls_safetensors *file)
{
    name_part(part);
    const enum ls_status status =
        read_values(file, part->name, values_of(part->session, part->memory), part->values);
    return status ? status
                  : ls_session_run(part->session, "preparing the replicas", move_part, part);
}

// Other layers may be frozen now; then values of the file are those of other variables.
static enum ls_status compare_variables(const struct ls_session *session,
                                        const struct ls_safetensors *file, bool *same)
{
    const uint32_t count = session->model->graph->parameter_count;
    float *now = malloc(count * sizeof(*now)), *then = malloc(count * sizeof(*then));
    enum ls_status status = now && then ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = read_values(file, VARIABLES, count, then);
    if (!status) {
        mark_variables(session, now);
        *same = memcmp(now, then, count * sizeof(*now)) == 0;
    }
    free(now);
    free(then);
    return status;
}

static enum ls_status give_replica(struct part *part, const struct ls_safetensors *file)
{
    const uint32_t states = part->rank == 0 ? 0 : part->session->model->optimizer.state_count;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < LS_ROUND_MEMORIES; i++) {
        part->memory = (enum ls_round_memory)i;
        status = give_part(part, file);
    }
    part->memory = LS_ROUND_MEMORIES;
    for (part->state = 0; !status && part->state < states; part->state++)
        status = give_part(part, file);
    return status;
}

enum ls_status ls_session_give_rounds(struct ls_session *session, const struct ls_safetensors *file)
{
    uint32_t world = 0;
    char name[NAME_BYTES];
    do
        snprintf(name, sizeof(name), "round/notes_%u", world);
    while (ls_safetensors_find(file, name) && ++world);
    if (!world || !ls_session_has_rounds(session))
        return LS_OK;
    bool same = false;
    enum ls_status status = compare_variables(session, file, &same);
    if (!status && !same)
        ls_warn("checkpoint", "other layers were frozen when the checkpoint was written: a round "
                              "begins, with the weights of its last one");
    if (status || !same)
        return status;
    const uint64_t count = values_of(session, LS_ROUND_WEIGHTS) + LS_ROUND_NOTES;
    struct part part = {
        .session = session, .gives = true, .values = ls_malloc_aligned(count * sizeof(float))};
    status = part.values ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_session_run(session, "preparing the replicas", show_round, session);
    for (; !status && part.index < session->count; part.index++) {
        const uint32_t rank = ls_session_rank(session, part.index);
        part.rank = rank < world ? rank : 0;
        status = give_replica(&part, file);
    }
    free(part.values);
    return status;
}
