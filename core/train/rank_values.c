// SPDX-License-Identifier: Apache-2.0
// What each rank has of its own, to a file and back, and from one session to the next.
#include "core/train/rank_values.h"

#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/train/filter_memory.h"
#include "core/train/session_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "checkpoint"
#define NAME_BYTES 64
#define VARIABLES "ranks/variables"
#define FURTHEST "round/furthest" // what goes alone from one generation of workers to the next

// ---- Kinds of values ----

struct moving;

enum {
    NUMBERED = 1, // the number is behind the name
    EQUAL = 2, // all ranks have the same, and those of rank 0 are saved; else each has its own
    NOT_FIRST = 4, // the model's file has those of rank 0
    DIVIDED = 8, // in another world the sum of all ranks, in equal parts; else rank 0's
    ROUND = 16, // of the round under way
};

// One kind. A rank has its values in a flat buffer of the host's, in the order of the plan, or as a
// span of floats that are no variables.
struct kind {
    const char *name;
    uint32_t flags;
    uint32_t (*count)(const struct ls_session *session); // numbers: how many; 0: none of this kind
    float *(*find)(const struct moving *moving); // in place, or a copy in its room
    void (*put)(const struct moving *moving,
                const float *room); // takes a copy back; NULL: in place
    uint64_t span; // floats; 0: a flat buffer
    enum ls_round_memory memory;
};

// What is moved, and the memory for it.
struct moving {
    struct ls_session *session;
    const struct kind *kind; // and of it:
    uint32_t number, rank, index; // `index`: of the replica
    bool gives; // to the replica; else it is taken
    bool alone; // without the other workers: ranks are counted within this one
    float *values; // plain, of one rank
    float *room; // for a flat buffer, zeroed; padding stays zero
    float *marks; // of the session's variables
    char name[NAME_BYTES];
};

static bool has_rounds(const struct ls_session *session)
{
    return session->driver && ls_driver_has_rounds(session->driver);
}

static uint32_t count_rounds(const struct ls_session *session)
{
    return has_rounds(session);
}

static float *find_round(const struct moving *moving)
{
    return ls_driver_round_memory(moving->session->driver, moving->index, moving->kind->memory);
}

static uint32_t count_states(const struct ls_session *session)
{
    return has_rounds(session) ? session->model->optimizer.state_count : 0;
}

// Rounds are made in host memory.
static float *find_state(const struct moving *moving)
{
    return ls_address(ls_replica_memory(moving->session->replicas[moving->index],
                                        LS_BUFFER_STATE + moving->number));
}

// Of sums of gradients, or under rounds of differences of weights: those are in other units.
static bool has_residuals(const struct ls_session *session)
{
    return session->driver && ls_driver_residual_count(session->driver) > 0;
}

static uint32_t count_residuals(const struct ls_session *session)
{
    return has_residuals(session) && !has_rounds(session);
}

static uint32_t count_round_residuals(const struct ls_session *session)
{
    return has_residuals(session) && has_rounds(session);
}

static float *copy_residual(const struct moving *moving)
{
    ls_driver_read_residual(moving->session->driver, moving->index, moving->room);
    return moving->room;
}

static void put_residual(const struct moving *moving, const float *room)
{
    ls_driver_set_residual(moving->session->driver, moving->index, room);
}

// clang-format off
static const struct kind kinds[] = {
    {"round/notes", ROUND, count_rounds, find_round, NULL, LS_ROUND_NOTES, LS_ROUND_OWN_NOTES},
    {"round/weights", ROUND, count_rounds, find_round, NULL, 0, LS_ROUND_WEIGHTS},
    {"round/optimizer", ROUND | NUMBERED | NOT_FIRST, count_states, find_state, NULL, 0, 0},
    {"round/momentum", ROUND | EQUAL, count_rounds, find_round, NULL, 0, LS_ROUND_MOMENTUM},
    {"round/difference", ROUND | EQUAL, count_rounds, find_round, NULL, 0, LS_ROUND_DIFFERENCE},
    {"round/residual", DIVIDED, count_round_residuals, copy_residual, put_residual, 0, 0},
    {"filter/residual", DIVIDED, count_residuals, copy_residual, put_residual, 0, 0},
};
// clang-format on
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static bool is(const struct moving *moving, uint32_t flag)
{
    return moving->kind->flags & flag;
}

static bool has_any(const struct ls_session *session)
{
    bool any = false;
    for (size_t i = 0; session && i < KINDS; i++)
        any = any || kinds[i].count(session);
    return any;
}

bool ls_rank_values_over_workers(const struct ls_session *session)
{
    return has_any(session) && ls_cluster_workers(session->cluster) > 1;
}

// ---- Variables ----

static uint64_t elements_of(const struct ls_session *session, uint32_t parameter)
{
    return (uint64_t)ls_shape_elements(&session->model->graph->parameters[parameter]->shape, 1);
}

// Where the parameter is in the flat buffers; NULL: it is frozen, and the same everywhere.
static const struct ls_parameter_place *place_of(const struct ls_session *session,
                                                 uint32_t parameter)
{
    const struct ls_parameter_plan *plan = ls_replica_plan(session->replicas[0]);
    const uint32_t place = ls_plan_find(plan, session->model->graph->parameters[parameter]->name);
    return place < plan->reduced_count ? &plan->places[place] : NULL;
}

// 1 for each that is in the flat buffers, in the order of the graph.
static void mark_variables(const struct ls_session *session, float *out)
{
    for (uint32_t i = 0; i < session->model->graph->parameter_count; i++)
        out[i] = place_of(session, i) ? 1 : 0;
}

// Floats of a kind, with the variables that are marked.
static uint64_t length_of(const struct ls_session *session, const struct kind *kind,
                          const float *marks)
{
    uint64_t count = kind->span;
    for (uint32_t i = 0; !kind->span && i < session->model->graph->parameter_count; i++)
        count += marks[i] != 0 ? elements_of(session, i) : 0;
    return count;
}

// ---- Between a replica and plain values ----

static void finish_moving(struct moving *moving)
{
    free(moving->values);
    free(moving->room);
    free(moving->marks);
}

static enum ls_status begin_moving(struct ls_session *session, struct moving *out)
{
    const uint32_t parameters = session->model->graph->parameter_count;
    const uint64_t flat = ls_replica_plan(session->replicas[0])->reduced_bytes;
    uint64_t most = 1;
    *out = (struct moving){.session = session};
    out->marks = calloc((size_t)parameters + 1, sizeof(*out->marks));
    out->room = ls_malloc_aligned(flat + 1);
    if (!out->marks || !out->room)
        return LS_OUT_OF_MEMORY;
    memset(out->room, 0, flat);
    mark_variables(session, out->marks);
    for (size_t i = 0; i < KINDS; i++) {
        const uint64_t count = length_of(session, &kinds[i], out->marks);
        most = count > most ? count : most;
    }
    out->values = ls_malloc_aligned(most * sizeof(*out->values));
    return out->values ? LS_OK : LS_OUT_OF_MEMORY;
}

static void name_rank(struct moving *moving, uint32_t rank)
{
    char number[16] = "", whose[16] = "";
    if (is(moving, NUMBERED))
        snprintf(number, sizeof(number), "_%u", moving->number);
    if (!is(moving, EQUAL))
        snprintf(whose, sizeof(whose), "_%u", rank);
    snprintf(moving->name, NAME_BYTES, "%s%s%s", moving->kind->name, number, whose);
}

// [replica thread]
static enum ls_status move(void *context, uint32_t index)
{
    const struct moving *moving = context;
    const struct ls_session *session = moving->session;
    const struct kind *kind = moving->kind;
    float *values = moving->values;
    enum ls_status status = LS_OK;
    if (index != moving->index)
        return LS_OK;
    float *flat = kind->find(moving);
    if (kind->span)
        memcpy(moving->gives ? flat : values, moving->gives ? values : flat,
               kind->span * sizeof(*values));
    for (uint32_t i = 0; !status && !kind->span && i < session->model->graph->parameter_count;
         i++) {
        const struct ls_parameter_place *place = place_of(session, i);
        if (!place)
            continue;
        float *at = flat + place->offset / sizeof(*flat);
        status = moving->gives ? ls_replica_import(session->replicas[index], i, values, at)
                               : ls_replica_export(session->replicas[index], i, at, values);
        values += elements_of(session, i);
    }
    if (!status && moving->gives && kind->put)
        kind->put(moving, flat);
    return status;
}

// So that nothing is under way, and the weights of the last round are where parameters are.
// [replica thread]
static enum ls_status show_round(void *context, uint32_t index)
{
    return ls_driver_synchronise(((struct ls_session *)context)->driver, index);
}

static enum ls_status settle(struct ls_session *session)
{
    if (!has_rounds(session))
        return LS_OK;
    return session->broken
               ? ls_session_synchronise(session)
               : ls_session_run(session, "bringing the replicas together", show_round, session);
}

// ---- To an image ----

// From the worker that has it to all, and into the image of the one that writes. `short_of`: set
// where there was no memory; the others go on.
static enum ls_status save_rank(struct moving *moving, struct ls_checkpoint_image *image,
                                bool *short_of)
{
    struct ls_session *session = moving->session;
    const uint32_t first = moving->alone ? 0 : ls_session_rank(session, 0);
    const bool sends = !moving->alone && ls_cluster_workers(session->cluster) > 1;
    const uint64_t count = length_of(session, moving->kind, moving->marks);
    enum ls_status status = LS_OK;
    moving->index = moving->rank - first;
    if (moving->rank >= first && moving->index < session->count)
        status = ls_session_run(session, "taking what ranks have of their own", move, moving);
    if (status && sends)
        ls_workers_give_up(session->run); // others would wait for it
    if (!status && sends)
        status = ls_cluster_broadcast(session->cluster, moving->values, count * sizeof(float),
                                      ls_cluster_rank_workers(session->cluster)[moving->rank]);
    name_rank(moving, moving->rank);
    if (!status && image && ls_checkpoint_add(image, moving->name, moving->values, count))
        *short_of = true;
    return status;
}

static enum ls_status save_kind(struct moving *moving, struct ls_checkpoint_image *image,
                                bool *short_of)
{
    const struct ls_session *session = moving->session;
    const uint32_t numbers = moving->kind->count(session);
    const uint32_t world = moving->alone ? session->count : ls_cluster_world(session->cluster);
    enum ls_status status = LS_OK;
    for (moving->number = 0; moving->number < numbers; moving->number++)
        for (moving->rank = is(moving, NOT_FIRST) && !moving->alone;
             !status && moving->rank < (is(moving, EQUAL) ? 1 : world); moving->rank++)
            status = save_rank(moving, image, short_of);
    return status;
}

static enum ls_status save_all(struct moving *moving, struct ls_checkpoint_image *image)
{
    const uint32_t parameters = moving->session->model->graph->parameter_count;
    bool short_of = image && ls_checkpoint_add(image, VARIABLES, moving->marks, parameters);
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < KINDS; i++) {
        moving->kind = &kinds[i];
        status = save_kind(moving, image, &short_of);
    }
    if (!status && image && ls_filter_memory_save(moving->session, image))
        short_of = true;
    return !status && short_of ? LS_OUT_OF_MEMORY : status;
}

enum ls_status ls_rank_values_save(struct ls_session *session, bool able,
                                   struct ls_checkpoint_image *image)
{
    struct moving moving;
    uint32_t unable;
    if (!has_any(session))
        return LS_OK;
    able = !begin_moving(session, &moving) && able;
    enum ls_status status = settle(session);
    if (!status)
        status = ls_session_agree(session, able, &unable);
    if (!status)
        status = save_all(&moving, image);
    finish_moving(&moving);
    return status;
}

// The notes of a worker's first replica go with what it has of all ranks.
static enum ls_status save_furthest(const struct ls_session *session,
                                    struct ls_checkpoint_image *kept)
{
    return has_rounds(session)
               ? ls_checkpoint_add(kept, FURTHEST,
                                   ls_driver_round_memory(session->driver, 0, LS_ROUND_OWN_NOTES),
                                   LS_ROUND_NOTES)
               : LS_OK;
}

enum ls_status ls_rank_values_keep(struct ls_session *session, struct ls_checkpoint_image *kept)
{
    struct moving moving;
    if (!has_any(session))
        return LS_OK;
    enum ls_status status = begin_moving(session, &moving);
    moving.alone = true;
    if (!status)
        status = settle(session);
    if (!status)
        status = save_all(&moving, kept);
    if (!status)
        status = save_furthest(session, kept);
    finish_moving(&moving);
    return status;
}

static bool is_of_all_ranks(const char *name)
{
    bool of_all = strcmp(name, VARIABLES) == 0 || strcmp(name, FURTHEST) == 0 ||
                  ls_filter_memory_has_name(name);
    for (size_t i = 0; i < KINDS; i++)
        of_all = of_all || ((kinds[i].flags & EQUAL) && strcmp(name, kinds[i].name) == 0);
    return of_all;
}

enum ls_status ls_rank_values_share(const struct ls_checkpoint_image *kept, bool own,
                                    struct ls_checkpoint_image *image)
{
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < kept->count; i++) {
        const struct ls_saved_tensor *tensor = &kept->tensors[i];
        if (own || is_of_all_ranks(tensor->name))
            status =
                ls_checkpoint_add(image, tensor->name, tensor->data, (uint64_t)tensor->dims[0]);
    }
    return status;
}

bool ls_rank_values_are_shared(const struct ls_safetensors *file)
{
    return ls_safetensors_find(file, FURTHEST);
}

static enum ls_status copy_tensor(const struct ls_safetensors *file,
                                  const struct ls_saved_tensor *tensor,
                                  struct ls_checkpoint_image *to)
{
    const uint64_t count = (uint64_t)tensor->dims[0];
    float *values = ls_malloc_aligned((count + 1) * sizeof(*values));
    enum ls_status status = values ? ls_safetensors_read(file, tensor, values) : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_checkpoint_add(to, tensor->name, values, count);
    free(values);
    return status;
}

enum ls_status ls_rank_values_adopt(const struct ls_safetensors *file,
                                    struct ls_checkpoint_image *kept)
{
    enum ls_status status = LS_OK;
    for (size_t i = kept->count; i-- > 0;)
        if (is_of_all_ranks(kept->tensors[i].name))
            ls_checkpoint_remove(kept, i);
    for (size_t i = 0; !status && i < ls_safetensors_count(file); i++) {
        const struct ls_saved_tensor *tensor = ls_safetensors_get(file, i);
        if (tensor->ndims == 1 && is_of_all_ranks(tensor->name))
            status = copy_tensor(file, tensor, kept);
    }
    return status;
}

// ---- From a file, or from what was kept ----

struct source {
    const struct ls_safetensors *file; // NULL: `kept`
    const struct ls_checkpoint_image *kept;
    float *marks; // of the variables that it has
    float *values; // room for one rank
};

static const struct ls_saved_tensor *find_tensor(const struct source *from, const char *name)
{
    if (from->file)
        return ls_safetensors_find(from->file, name);
    for (size_t i = 0; i < from->kept->count; i++)
        if (strcmp(from->kept->tensors[i].name, name) == 0)
            return &from->kept->tensors[i];
    return NULL;
}

static enum ls_status read_tensor(const struct source *from, const char *name, uint64_t count,
                                  float *out)
{
    const struct ls_saved_tensor *tensor = find_tensor(from, name);
    if (tensor && tensor->ndims == 1 && (uint64_t)tensor->dims[0] == count) {
        if (from->file)
            return ls_safetensors_read(from->file, tensor, out);
        memcpy(out, tensor->data, count * sizeof(*out));
        return LS_OK;
    }
    ls_error(SCOPE, "the checkpoint is damaged: '%s' is not there, or of another length", name);
    return LS_BAD_INPUT;
}

// The values of a rank are added to those of the session's variables, or become them. What the
// source has of variables that are frozen now is left out.
static enum ls_status read_rank(struct moving *moving, const struct source *from, uint32_t rank,
                                bool adds)
{
    const struct ls_session *session = moving->session;
    const float *then = from->values;
    float *now = moving->values;
    name_rank(moving, rank);
    const enum ls_status status = read_tensor(
        from, moving->name, length_of(session, moving->kind, from->marks), from->values);
    if (status)
        return status;
    if (!adds)
        memset(now, 0, length_of(session, moving->kind, moving->marks) * sizeof(*now));
    const uint32_t parts = moving->kind->span ? 1 : session->model->graph->parameter_count;
    for (uint32_t i = 0; i < parts; i++) {
        const uint64_t count = moving->kind->span ? moving->kind->span : elements_of(session, i);
        const bool had = moving->kind->span || from->marks[i] != 0;
        const bool has = moving->kind->span || moving->marks[i] != 0;
        for (uint64_t k = 0; had && has && k < count; k++)
            now[k] += then[k];
        then += had ? count : 0;
        now += has ? count : 0;
    }
    return LS_OK;
}

static uint32_t saved_ranks(struct moving *moving, const struct source *from)
{
    const uint32_t first = is(moving, NOT_FIRST) && !moving->alone;
    uint32_t ranks = first;
    do
        name_rank(moving, ranks);
    while (find_tensor(from, moving->name) && ++ranks && !is(moving, EQUAL));
    return ranks > first ? ranks : 0;
}

// The sum over all ranks that there were, in their order, divided among those that there are.
static enum ls_status read_part(struct moving *moving, const struct source *from, uint32_t saved)
{
    const float world = (float)ls_cluster_world(moving->session->cluster);
    const uint64_t count = length_of(moving->session, moving->kind, moving->marks);
    enum ls_status status = LS_OK;
    for (uint32_t rank = 0; !status && rank < saved; rank++)
        status = read_rank(moving, from, rank, rank);
    for (uint64_t i = 0; !status && i < count; i++)
        moving->values[i] /= world;
    return status;
}

static enum ls_status give_replica(struct moving *moving, const struct source *from, uint32_t saved)
{
    struct ls_session *session = moving->session;
    const uint32_t own = moving->alone ? moving->index : ls_session_rank(session, moving->index);
    const uint32_t rank = own < saved ? own : 0;
    const bool same = moving->alone || saved == ls_cluster_world(session->cluster);
    if (is(moving, NOT_FIRST) && rank == 0 && !moving->alone)
        return LS_OK; // the model has these
    const enum ls_status status = is(moving, DIVIDED) && !same
                                      ? read_part(moving, from, saved)
                                      : read_rank(moving, from, rank, false);
    return status ? status : ls_session_run(session, "preparing the replicas", move, moving);
}

static enum ls_status give_kind(struct moving *moving, const struct source *from)
{
    const uint32_t numbers = moving->kind->count(moving->session);
    enum ls_status status = LS_OK;
    for (moving->number = 0; moving->number < numbers; moving->number++) {
        const uint32_t saved = saved_ranks(moving, from);
        for (moving->index = 0; !status && saved && moving->index < moving->session->count;
             moving->index++)
            status = give_replica(moving, from, saved);
    }
    return status;
}

static enum ls_status begin_source(const struct moving *moving, struct source *from, bool *empty)
{
    const uint32_t count = moving->session->model->graph->parameter_count;
    uint64_t most = 1;
    *empty = !find_tensor(from, VARIABLES);
    if (*empty)
        return LS_OK;
    from->marks = calloc((size_t)count + 1, sizeof(*from->marks));
    enum ls_status status =
        from->marks ? read_tensor(from, VARIABLES, count, from->marks) : LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < KINDS; i++) {
        const uint64_t length = length_of(moving->session, &kinds[i], from->marks);
        most = length > most ? length : most;
    }
    if (!status)
        from->values = ls_malloc_aligned(most * sizeof(*from->values));
    return status || from->values ? status : LS_OUT_OF_MEMORY;
}

static enum ls_status give_all(struct ls_session *session, struct source *from, bool rounds,
                               bool own)
{
    struct moving moving;
    bool empty = true;
    enum ls_status status = begin_moving(session, &moving);
    moving.gives = true;
    moving.alone = from->kept;
    if (!status)
        status = begin_source(&moving, from, &empty);
    if (!status && !empty)
        status = settle(session);
    const bool same = empty || status ||
                      memcmp(moving.marks, from->marks,
                             session->model->graph->parameter_count * sizeof(*moving.marks)) == 0;
    if (!same && has_rounds(session))
        ls_warn(SCOPE, "other layers were frozen when the checkpoint was written: a round begins, "
                       "with the weights of its last one");
    for (size_t i = 0; !status && !empty && i < KINDS; i++) {
        moving.kind = &kinds[i];
        if ((!is(&moving, ROUND) || (same && rounds)) && !(own && is(&moving, EQUAL)))
            status = give_kind(&moving, from);
    }
    if (!status)
        status = ls_filter_memory_give(session, from->file, from->kept);
    finish_moving(&moving);
    free(from->marks);
    free(from->values);
    return status;
}

static void warn_of_residuals(const struct ls_session *session, const struct ls_safetensors *file)
{
    const bool unused =
        (ls_safetensors_find(file, "filter/residual_0") && !count_residuals(session)) ||
        (ls_safetensors_find(file, "round/residual_0") && !count_round_residuals(session));
    if (unused)
        ls_warn(SCOPE, "what replicas owed to the sums of gradients (--compress) is left out: %s",
                has_residuals(session)
                    ? "this strategy sums gradients and the other one differences, or the reverse"
                    : "this training has no filter at work");
}

enum ls_status ls_rank_values_resume(struct ls_session *session, const struct ls_safetensors *file)
{
    struct source from = {.file = file};
    if (!session)
        return LS_OK;
    warn_of_residuals(session, file);
    return has_any(session) ? give_all(session, &from, true, false) : LS_OK;
}

enum ls_status ls_rank_values_put_back(struct ls_session *session, bool rounds,
                                       const struct ls_checkpoint_image *kept)
{
    struct source from = {.kept = kept};
    return has_any(session) ? give_all(session, &from, rounds, false) : LS_OK;
}

enum ls_status ls_rank_values_put_back_own(struct ls_session *session,
                                           const struct ls_checkpoint_image *kept)
{
    struct source from = {.kept = kept};
    return has_any(session) ? give_all(session, &from, true, true) : LS_OK;
}

const float *ls_rank_values_furthest(const struct ls_checkpoint_image *kept)
{
    const struct source from = {.kept = kept};
    const struct ls_saved_tensor *notes = find_tensor(&from, FURTHEST);
    return notes && notes->ndims == 1 && notes->dims[0] == LS_ROUND_NOTES ? notes->data : NULL;
}
