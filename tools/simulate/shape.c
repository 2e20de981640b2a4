// SPDX-License-Identifier: Apache-2.0
// Finds what the steps of one rank wait for, as the executor does: memory is cut into cells wherever a range begins or
// ends, and each cell remembers who wrote it last and who has read it since. Several reductions of one round into one
// range may receive at the same time, but are applied in the order written.
#include "tools/simulate/internal.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

#define BUFFERS 2

struct reader {
    uint32_t step;
    uint32_t next; // in `readers`
};

struct cell {
    uint32_t writer, readers; // LS_OUTLINE_NONE: nobody
    uint32_t before_writer,
        before_readers; // as they were before the writer, or the first of its round
};

struct edge {
    uint32_t before;
    uint32_t after; // with LS_DEPENDENT_ORDER
};

struct list {
    void *items;
    uint32_t count, capacity;
};

struct finder {
    const struct ls_drawing *drawing;
    struct ls_step_graph *shape;
    uint32_t *first_cell, *last_cell; // of each range; the last is not part of it
    struct cell *cells;
    uint32_t cell_count;
    struct list readers, edges;
    uint32_t *marks; // of each step: 1 + the last one found to wait for it
};

static void *added(struct list *list, size_t size)
{
    if (list->count == list->capacity) {
        const uint32_t capacity = list->capacity ? 2 * list->capacity : 64;
        void *larger = realloc(list->items, capacity * size);
        if (!larger)
            return NULL;
        list->items = larger;
        list->capacity = capacity;
    }
    return (char *)list->items + size * list->count++;
}

static bool reduces(uint32_t kind)
{
    return kind == LS_STEP_RECEIVE_AND_REDUCE || kind == LS_STEP_REDUCE;
}

// ---- Cells ----

static int compare_cuts(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static uint32_t sort_cuts(uint64_t *cuts, uint32_t count)
{
    uint32_t kept = 0;
    qsort(cuts, count, sizeof(*cuts), compare_cuts);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || cuts[i] != cuts[kept - 1])
            cuts[kept++] = cuts[i];
    return kept;
}

static uint32_t cut_at(const uint64_t *cuts, uint32_t count, uint64_t offset)
{
    const uint64_t *found = bsearch(&offset, cuts, count, sizeof(*cuts), compare_cuts);
    return (uint32_t)(found - cuts);
}

// Cells between the cuts of both buffers, those of scratch after those of data.
static enum ls_status cut_ranges(struct finder *finder)
{
    const struct ls_drawing *drawing = finder->drawing;
    uint64_t *cuts = malloc((2 * (size_t)drawing->range_count + 1) * sizeof(*cuts));
    if (!cuts)
        return LS_OUT_OF_MEMORY;
    for (uint32_t buffer = 0; buffer < BUFFERS; buffer++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < drawing->range_count; i++)
            if (drawing->ranges[i].buffer == buffer) {
                cuts[count++] = drawing->ranges[i].offset;
                cuts[count++] = drawing->ranges[i].offset + drawing->ranges[i].count;
            }
        count = sort_cuts(cuts, count);
        for (uint32_t i = 0; i < drawing->range_count; i++) {
            const struct ls_range *range = &drawing->ranges[i];
            if (range->buffer != buffer)
                continue;
            finder->first_cell[i] = finder->cell_count + cut_at(cuts, count, range->offset);
            finder->last_cell[i] =
                finder->cell_count + cut_at(cuts, count, range->offset + range->count);
        }
        finder->cell_count += count;
    }
    free(cuts);
    return LS_OK;
}

static enum ls_status make_cells(struct finder *finder)
{
    const uint32_t count = finder->drawing->range_count;
    finder->first_cell = malloc((count + 1) * sizeof(uint32_t));
    finder->last_cell = malloc((count + 1) * sizeof(uint32_t));
    if (!finder->first_cell || !finder->last_cell)
        return LS_OUT_OF_MEMORY;
    if (finder->drawing->key_is_enough) {
        finder->cell_count = count;
        for (uint32_t i = 0; i < count; i++) {
            finder->first_cell[i] = i;
            finder->last_cell[i] = i + 1;
        }
    } else {
        const enum ls_status status = cut_ranges(finder);
        if (status)
            return status;
    }
    finder->cells = malloc(((size_t)finder->cell_count + 1) * sizeof(struct cell));
    if (!finder->cells)
        return LS_OUT_OF_MEMORY;
    memset(finder->cells, 0xff, finder->cell_count * sizeof(struct cell));
    return LS_OK;
}

// ---- Who waits for whom ----

static enum ls_status refuse(const struct finder *finder, uint32_t step, const char *reason)
{
    char text[128];
    const struct ls_drawing *drawing = finder->drawing;
    const struct ls_raw_step *raw = &drawing->steps[step];
    ls_error("simulate", "%s: rank %u of %u, round %u: %s: %s; the plugin is wrong",
             drawing->options->name, drawing->call.rank, drawing->call.world, raw->round,
             ls_range_text(&drawing->ranges[raw->range], text, sizeof(text)), reason);
    return LS_FAILED;
}

// `flag`: 0, or LS_DEPENDENT_ORDER.
static enum ls_status add_edge(struct finder *finder, uint32_t before, uint32_t after,
                               uint32_t flag)
{
    if (before == LS_OUTLINE_NONE || finder->marks[before] == after + 1)
        return LS_OK;
    struct edge *edge = added(&finder->edges, sizeof(*edge));
    if (!edge)
        return LS_OUT_OF_MEMORY;
    uint32_t *state = &finder->shape->states[after];
    if (flag && (*state & LS_ORDER_MASK) == LS_ORDER_MASK)
        flag = 0; // no room to count more: it waits longer
    *state += flag ? LS_ORDER_ONE : 1;
    *edge = (struct edge){before, after | flag};
    finder->marks[before] = after + 1;
    return LS_OK;
}

static enum ls_status wait_for_all(struct finder *finder, uint32_t readers, uint32_t writer,
                                   uint32_t step)
{
    const struct reader *list = finder->readers.items;
    if (readers == LS_OUTLINE_NONE)
        return add_edge(finder, writer, step, 0);
    enum ls_status status = LS_OK; // the readers have waited for the writer
    for (uint32_t i = readers; !status && i != LS_OUTLINE_NONE; i = list[i].next)
        status = add_edge(finder, list[i].step, step, 0);
    return status;
}

static bool same_round(const struct finder *finder, uint32_t a, uint32_t b)
{
    return a != LS_OUTLINE_NONE &&
           finder->drawing->steps[a].round == finder->drawing->steps[b].round;
}

static enum ls_status read_cell(struct finder *finder, struct cell *cell, uint32_t step)
{
    if (same_round(finder, cell->writer, step))
        return refuse(finder, step, "one step reads what another of the same round writes");
    const enum ls_status status = add_edge(finder, cell->writer, step, 0);
    if (status)
        return status;
    struct reader *reader = added(&finder->readers, sizeof(*reader));
    if (!reader)
        return LS_OUT_OF_MEMORY;
    *reader = (struct reader){step, cell->readers};
    cell->readers = finder->readers.count - 1;
    return LS_OK;
}

static enum ls_status write_cell(struct finder *finder, struct cell *cell, uint32_t step)
{
    const struct ls_raw_step *steps = finder->drawing->steps;
    const struct reader *readers = finder->readers.items;
    // The newest reader stands first, so it tells whether any is of this round.
    if (cell->readers != LS_OUTLINE_NONE && same_round(finder, readers[cell->readers].step, step))
        return refuse(finder, step, "one step writes what another of the same round reads");
    if (same_round(finder, cell->writer, step)) {
        if (!reduces(steps[cell->writer].kind) || !reduces(steps[step].kind))
            return refuse(finder, step, "two steps of one round write it");
        enum ls_status status =
            wait_for_all(finder, cell->before_readers, cell->before_writer, step);
        if (!status)
            status = add_edge(finder, cell->writer, step, LS_DEPENDENT_ORDER);
        cell->writer = step;
        return status;
    }
    const enum ls_status status = wait_for_all(finder, cell->readers, cell->writer, step);
    *cell = (struct cell){step, LS_OUTLINE_NONE, cell->writer, cell->readers};
    return status;
}

static enum ls_status visit(struct finder *finder, uint32_t range, uint32_t step,
                            enum ls_status (*visit_cell)(struct finder *, struct cell *, uint32_t))
{
    enum ls_status status = LS_OK;
    for (uint32_t i = finder->first_cell[range]; !status && i < finder->last_cell[range]; i++)
        status = visit_cell(finder, &finder->cells[i], step);
    return status;
}

static enum ls_status find_edges(struct finder *finder)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < finder->drawing->step_count; i++) {
        const struct ls_raw_step *step = &finder->drawing->steps[i];
        if (step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY)
            status = visit(finder, step->from, i, read_cell);
        if (!status)
            status =
                visit(finder, step->range, i, step->kind == LS_STEP_SEND ? read_cell : write_cell);
    }
    return status;
}

// ---- The shape ----

static enum ls_status link_edges(struct finder *finder)
{
    struct ls_step_graph *shape = finder->shape;
    const struct edge *edges = finder->edges.items;
    shape->dependents = malloc(((size_t)finder->edges.count + 1) * sizeof(uint32_t));
    if (!shape->dependents)
        return LS_OUT_OF_MEMORY;
    // A counting sort by `before`: counts stand one further on, become ends, and are moved to beginnings.
    for (uint32_t i = 0; i < finder->edges.count; i++)
        shape->steps[edges[i].before + 1].first_dependent++;
    for (uint32_t i = 0; i < shape->step_count; i++)
        shape->steps[i + 1].first_dependent += shape->steps[i].first_dependent;
    for (uint32_t i = finder->edges.count; i > 0; i--)
        shape->dependents[--shape->steps[edges[i - 1].before + 1].first_dependent] =
            edges[i - 1].after;
    for (uint32_t i = 0; i < shape->step_count; i++)
        shape->steps[i].first_dependent = shape->steps[i + 1].first_dependent;
    shape->steps[shape->step_count].first_dependent = finder->edges.count;
    return LS_OK;
}

static uint32_t *messages_of(struct ls_step_graph *shape, uint32_t kind)
{
    if (kind == LS_STEP_SEND)
        return shape->first_send;
    return kind == LS_STEP_RECEIVE || kind == LS_STEP_RECEIVE_AND_REDUCE ? shape->first_receive
                                                                         : NULL;
}

// Numbers the messages with each peer, and lists them by peer.
static void number_messages(struct ls_step_graph *shape, const struct ls_raw_step *raw)
{
    for (uint32_t i = 0; i < shape->step_count; i++) {
        uint32_t *counts = messages_of(shape, raw[i].kind);
        shape->steps[i].kind_peer = raw[i].kind | raw[i].peer << 3;
        shape->steps[i].range = raw[i].range;
        if (counts)
            shape->steps[i].number = counts[raw[i].peer + 1]++;
    }
    for (uint32_t i = 0; i < shape->peer_count; i++) {
        shape->first_send[i + 1] += shape->first_send[i];
        shape->first_receive[i + 1] += shape->first_receive[i];
    }
    for (uint32_t i = 0; i < shape->step_count; i++) {
        uint32_t *first = messages_of(shape, raw[i].kind);
        uint32_t *list = raw[i].kind == LS_STEP_SEND ? shape->sends : shape->receives;
        if (first)
            list[first[raw[i].peer] + shape->steps[i].number] = i;
    }
}

static enum ls_status allocate(struct finder *finder)
{
    struct ls_step_graph *shape = finder->shape;
    const size_t steps = finder->drawing->step_count, peers = finder->drawing->peer_count;
    shape->step_count = (uint32_t)steps;
    shape->peer_count = (uint32_t)peers;
    shape->steps = calloc(steps + 1, sizeof(*shape->steps));
    shape->states = calloc(steps + 1, sizeof(uint32_t));
    shape->first_send = calloc(peers + 1, sizeof(uint32_t));
    shape->first_receive = calloc(peers + 1, sizeof(uint32_t));
    shape->sends = malloc((steps + 1) * sizeof(uint32_t));
    shape->receives = malloc((steps + 1) * sizeof(uint32_t));
    finder->marks = calloc(steps + 1, sizeof(uint32_t));
    return shape->steps && shape->states && shape->first_send && shape->first_receive &&
                   shape->sends && shape->receives && finder->marks
               ? LS_OK
               : LS_OUT_OF_MEMORY;
}

static enum ls_status run(struct finder *finder)
{
    enum ls_status status = allocate(finder);
    if (!status)
        status = make_cells(finder);
    if (!status)
        status = find_edges(finder);
    if (!status)
        status = link_edges(finder);
    if (!status)
        number_messages(finder->shape, finder->drawing->steps);
    return status;
}

enum ls_status ls_step_graph_create(const struct ls_drawing *drawing, struct ls_step_graph **out)
{
    struct finder finder = {.drawing = drawing, .shape = calloc(1, sizeof(struct ls_step_graph))};
    const enum ls_status status = finder.shape ? run(&finder) : LS_OUT_OF_MEMORY;
    free(finder.first_cell);
    free(finder.last_cell);
    free(finder.cells);
    free(finder.readers.items);
    free(finder.edges.items);
    free(finder.marks);
    if (status) {
        ls_step_graph_destroy(finder.shape);
        return status;
    }
    *out = finder.shape;
    return LS_OK;
}

void ls_step_graph_destroy(struct ls_step_graph *shape)
{
    if (!shape)
        return;
    free(shape->steps);
    free(shape->states);
    free(shape->dependents);
    free(shape->first_send);
    free(shape->first_receive);
    free(shape->sends);
    free(shape->receives);
    free(shape);
}

uint64_t ls_step_graph_bytes(const struct ls_step_graph *shape)
{
    const uint64_t dependents = shape->steps[shape->step_count].first_dependent;
    return sizeof(*shape) + (sizeof(*shape->steps) + 12) * (uint64_t)shape->step_count +
           4 * dependents + 8 * (uint64_t)shape->peer_count;
}
