// SPDX-License-Identifier: Apache-2.0
// Draws rank after rank, keeps each shape and each list of lengths once, and finds each rank's place among its
// peers' peers.
#include "tools/simulate/internal.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

struct builder {
    const struct ls_outline_options *options;
    struct ls_outline *out;
    struct ls_drawing drawing;
    uint32_t *shape_slots, *sizes_slots; // hash tables, as large as twice the world
    uint32_t slot_count;
    uint64_t pair_capacity;
    uint32_t shape_capacity, sizes_capacity;
    uint64_t *bytes; // of the ranges of the rank at hand
    uint32_t bytes_capacity;
};

static bool same_key(const uint64_t a[2], const uint64_t b[2])
{
    return a[0] == b[0] && a[1] == b[1];
}

static bool grow(void *array, uint64_t needed, uint64_t *capacity, size_t size)
{
    if (needed <= *capacity)
        return true;
    uint64_t larger = *capacity ? *capacity : 64;
    while (larger < needed)
        larger *= 2;
    void *moved = realloc(*(void **)array, larger * size);
    if (!moved)
        return false;
    *(void **)array = moved;
    *capacity = larger;
    return true;
}

// ---- Shapes ----

static uint32_t find_shape(const struct builder *builder, const uint64_t key[2])
{
    uint32_t slot = (uint32_t)key[0] & (builder->slot_count - 1);
    while (builder->shape_slots[slot] != LS_OUTLINE_NONE &&
           !same_key(builder->out->shapes[builder->shape_slots[slot]]->key, key))
        slot = (slot + 1) & (builder->slot_count - 1);
    return slot;
}

// Where ranges overlap in part, the edges belong to the key.
static void add_edges_to_key(struct ls_step_graph *shape)
{
    for (uint32_t i = 0; i < shape->step_count; i++) {
        ls_key_add(shape->key, (uint64_t)shape->states[i] << 32 | shape->steps[i].first_dependent);
        for (uint32_t j = shape->steps[i].first_dependent; j < shape->steps[i + 1].first_dependent;
             j++)
            ls_key_add(shape->key, shape->dependents[j]);
    }
}

static enum ls_status keep_shape(struct builder *builder, uint32_t slot,
                                 struct ls_step_graph *shape)
{
    struct ls_outline *out = builder->out;
    uint64_t capacity = builder->shape_capacity;
    if (!grow(&out->shapes, (uint64_t)out->shape_count + 1, &capacity, sizeof(*out->shapes))) {
        ls_step_graph_destroy(shape);
        return LS_OUT_OF_MEMORY;
    }
    builder->shape_capacity = (uint32_t)capacity;
    builder->shape_slots[slot] = out->shape_count;
    out->shapes[out->shape_count++] = shape;
    out->memory_bytes += ls_step_graph_bytes(shape);
    return LS_OK;
}

static enum ls_status take_shape(struct builder *builder, const struct ls_step_graph **result)
{
    struct ls_drawing *drawing = &builder->drawing;
    struct ls_step_graph *shape = NULL;
    uint32_t slot = 0;
    if (drawing->key_is_enough) {
        slot = find_shape(builder, drawing->key);
        if (builder->shape_slots[slot] != LS_OUTLINE_NONE) {
            *result = builder->out->shapes[builder->shape_slots[slot]];
            return LS_OK;
        }
    }
    enum ls_status status = ls_step_graph_create(drawing, &shape);
    if (status)
        return status;
    memcpy(shape->key, drawing->key, sizeof(shape->key));
    if (!drawing->key_is_enough) {
        add_edges_to_key(shape);
        slot = find_shape(builder, shape->key);
        if (builder->shape_slots[slot] != LS_OUTLINE_NONE) {
            ls_step_graph_destroy(shape);
            *result = builder->out->shapes[builder->shape_slots[slot]];
            return LS_OK;
        }
    }
    *result = shape;
    return keep_shape(builder, slot, shape);
}

// ---- Lengths ----

static enum ls_status take_sizes(struct builder *builder, const uint64_t **result)
{
    struct ls_outline *out = builder->out;
    const struct ls_drawing *drawing = &builder->drawing;
    const uint32_t count = drawing->range_count;
    uint64_t key[2] = {count, count}, capacity = builder->bytes_capacity;
    if (!grow(&builder->bytes, (uint64_t)count + 1, &capacity, sizeof(uint64_t)))
        return LS_OUT_OF_MEMORY;
    builder->bytes_capacity = (uint32_t)capacity;
    for (uint32_t i = 0; i < count; i++) {
        builder->bytes[i] = drawing->ranges[i].count * drawing->call.element_bytes;
        ls_key_add(key, builder->bytes[i]);
    }
    uint32_t slot = (uint32_t)key[0] & (builder->slot_count - 1);
    for (; builder->sizes_slots[slot] != LS_OUTLINE_NONE;
         slot = (slot + 1) & (builder->slot_count - 1)) {
        const struct ls_sizes *known = out->sizes[builder->sizes_slots[slot]];
        if (known->count == count && same_key(known->key, key)) {
            *result = known->bytes;
            return LS_OK;
        }
    }
    capacity = builder->sizes_capacity;
    if (!grow(&out->sizes, (uint64_t)out->sizes_count + 1, &capacity, sizeof(*out->sizes)))
        return LS_OUT_OF_MEMORY;
    builder->sizes_capacity = (uint32_t)capacity;
    const size_t bytes = sizeof(struct ls_sizes) + (count + 1) * sizeof(uint64_t);
    struct ls_sizes *sizes = malloc(bytes);
    if (!sizes)
        return LS_OUT_OF_MEMORY;
    *sizes = (struct ls_sizes){{key[0], key[1]}, count, (uint64_t *)(sizes + 1)};
    memcpy(sizes->bytes, builder->bytes, count * sizeof(uint64_t));
    out->memory_bytes += bytes;
    builder->sizes_slots[slot] = out->sizes_count;
    out->sizes[out->sizes_count++] = sizes;
    *result = sizes->bytes;
    return LS_OK;
}

// ---- Ranks ----

static enum ls_status check_memory(const struct builder *builder)
{
    const struct ls_outline *out = builder->out;
    const uint64_t limit = builder->options->memory_limit;
    // A step has a state, and a pair a queue.
    const uint64_t needed = out->memory_bytes + 4 * out->step_count + 12 * out->pair_count +
                            (uint64_t)out->world * sizeof(*out->ranks);
    if (needed <= limit)
        return LS_OK;
    ls_error("simulate",
             "%s: the schedules of %u ranks need more than %llu MiB of memory; choose a smaller "
             "world",
             builder->options->name, out->world, (unsigned long long)(limit >> 20));
    return LS_USAGE;
}

static enum ls_status add_rank(struct builder *builder, uint32_t rank)
{
    struct ls_outline *out = builder->out;
    struct ls_drawing *drawing = &builder->drawing;
    struct ls_rank_outline *entry = &out->ranks[rank];
    enum ls_status status = ls_drawing_draw(drawing, rank);
    if (!status)
        status = take_shape(builder, &entry->shape);
    if (!status)
        status = take_sizes(builder, &entry->bytes);
    if (status)
        return status;
    if (!grow(&out->pairs, out->pair_count + drawing->peer_count, &builder->pair_capacity,
              sizeof(*out->pairs)))
        return LS_OUT_OF_MEMORY;
    entry->first_state = out->step_count;
    entry->first_pair = out->pair_count;
    for (uint32_t i = 0; i < drawing->peer_count; i++)
        out->pairs[out->pair_count++] = (struct ls_pair){drawing->peers[i], LS_OUTLINE_NONE};
    out->step_count += drawing->step_count;
    if (drawing->round_count > out->round_count)
        out->round_count = drawing->round_count;
    if (builder->options->ranks_described)
        __atomic_fetch_add(builder->options->ranks_described, 1, __ATOMIC_RELAXED);
    return check_memory(builder);
}

// ---- Peers ----

static enum ls_status refuse_unmatched(const struct builder *builder, uint32_t from, uint32_t to,
                                       uint32_t sent, uint32_t received)
{
    ls_error("simulate",
             "%s: rank %u sends %u message%s to rank %u, which receives %u from it: the schedule "
             "never ends; the plugin is wrong",
             builder->options->name, from, sent, sent == 1 ? "" : "s", to, received);
    return LS_FAILED;
}

static uint32_t sends_to(const struct ls_rank_outline *rank, uint32_t peer)
{
    if (peer == LS_OUTLINE_NONE)
        return 0;
    return rank->shape->first_send[peer + 1] - rank->shape->first_send[peer];
}

static uint32_t receives_from(const struct ls_rank_outline *rank, uint32_t peer)
{
    if (peer == LS_OUTLINE_NONE)
        return 0;
    return rank->shape->first_receive[peer + 1] - rank->shape->first_receive[peer];
}

static enum ls_status check_pair(const struct builder *builder, uint32_t rank, uint32_t number)
{
    const struct ls_outline *out = builder->out;
    const struct ls_rank_outline *here = &out->ranks[rank];
    const struct ls_pair *pair = &out->pairs[here->first_pair + number];
    const struct ls_rank_outline *there = &out->ranks[pair->peer];
    if (sends_to(here, number) != receives_from(there, pair->place))
        return refuse_unmatched(builder, rank, pair->peer, sends_to(here, number),
                                receives_from(there, pair->place));
    if (receives_from(here, number) != sends_to(there, pair->place))
        return refuse_unmatched(builder, pair->peer, rank, sends_to(there, pair->place),
                                receives_from(here, number));
    return LS_OK;
}

struct mention {
    uint32_t rank; // who names the peer
    uint64_t pair;
};

// The mentions of each rank by others, rank after rank; `first` has world + 1 entries.
static struct mention *list_mentions(const struct ls_outline *out, uint64_t *first)
{
    struct mention *mentions = malloc((out->pair_count + 1) * sizeof(*mentions));
    if (!mentions)
        return NULL;
    for (uint64_t i = 0; i < out->pair_count; i++)
        first[out->pairs[i].peer + 1]++;
    for (uint32_t i = 0; i < out->world; i++)
        first[i + 1] += first[i];
    for (uint32_t rank = out->world; rank > 0; rank--)
        for (uint32_t i = 0; i < out->ranks[rank - 1].shape->peer_count; i++) {
            const uint64_t pair = out->ranks[rank - 1].first_pair + i;
            mentions[--first[out->pairs[pair].peer + 1]] = (struct mention){rank - 1, pair};
        }
    return mentions;
}

static enum ls_status find_places(struct builder *builder)
{
    struct ls_outline *out = builder->out;
    uint64_t *first = calloc((size_t)out->world + 2, sizeof(*first));
    uint32_t *places = malloc(out->world * sizeof(*places));
    struct mention *mentions = first ? list_mentions(out, first) : NULL;
    enum ls_status status = mentions && places ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        memset(places, 0xff, out->world * sizeof(*places));
    // After the sort, `first` of rank r + 1 is where the mentions of rank r begin.
    for (uint32_t rank = 0; !status && rank < out->world; rank++) {
        const struct ls_rank_outline *here = &out->ranks[rank];
        // Without pairs there is no list to point into.
        const struct ls_pair *own = out->pair_count ? out->pairs + here->first_pair : NULL;
        const uint64_t end = rank + 1 < out->world ? first[rank + 2] : out->pair_count;
        for (uint32_t i = 0; i < here->shape->peer_count; i++)
            places[own[i].peer] = i;
        for (uint64_t i = first[rank + 1]; i < end; i++)
            out->pairs[mentions[i].pair].place = places[mentions[i].rank];
        for (uint32_t i = 0; i < here->shape->peer_count; i++)
            places[own[i].peer] = LS_OUTLINE_NONE;
    }
    for (uint32_t rank = 0; !status && rank < out->world; rank++)
        for (uint32_t i = 0; !status && i < out->ranks[rank].shape->peer_count; i++)
            status = check_pair(builder, rank, i);
    free(first);
    free(places);
    free(mentions);
    return status;
}

// ---- The outline ----

static enum ls_status build(struct builder *builder)
{
    struct ls_outline *out = builder->out;
    builder->slot_count = 64;
    while (builder->slot_count < 2 * out->world)
        builder->slot_count *= 2;
    const size_t slots = builder->slot_count * sizeof(uint32_t);
    builder->shape_slots = malloc(slots);
    builder->sizes_slots = malloc(slots);
    out->ranks = calloc(out->world, sizeof(*out->ranks));
    if (!builder->shape_slots || !builder->sizes_slots || !out->ranks)
        return LS_OUT_OF_MEMORY;
    memset(builder->shape_slots, 0xff, slots);
    memset(builder->sizes_slots, 0xff, slots);
    enum ls_status status = ls_drawing_init(&builder->drawing, builder->options);
    if (status)
        return status;
    for (uint32_t rank = 0; !status && rank < out->world; rank++)
        status = add_rank(builder, rank);
    ls_drawing_finish(&builder->drawing);
    return status ? status : find_places(builder);
}

enum ls_status ls_outline_create(const struct ls_outline_options *options, struct ls_outline *out)
{
    struct ls_outline outline = {.world = options->call->world};
    struct builder builder = {.options = options, .out = &outline};
    const enum ls_status status = build(&builder);
    free(builder.shape_slots);
    free(builder.sizes_slots);
    free(builder.bytes);
    if (status) {
        ls_outline_finish(&outline);
        return status;
    }
    *out = outline;
    return LS_OK;
}

void ls_outline_finish(struct ls_outline *outline)
{
    for (uint32_t i = 0; i < outline->shape_count; i++)
        ls_step_graph_destroy(outline->shapes[i]);
    for (uint32_t i = 0; i < outline->sizes_count; i++)
        free(outline->sizes[i]);
    free(outline->shapes);
    free(outline->sizes);
    free(outline->ranks);
    free(outline->pairs);
    *outline = (struct ls_outline){0};
}
