// SPDX-License-Identifier: Apache-2.0
// Cuts steps into segments, finds what each must wait for, and fuses receive-and-reduce with the
// send of its result. Dependencies come from cells: the buffer is cut wherever a segment begins or
// ends, and each cell remembers the step that wrote it last and those that have read it since.
#include "core/schedule/compile.h"

#include "core/base/log.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS 2 // data and scratch

struct reader {
    uint32_t operation;
    uint32_t next; // in `readers`; LS_NO_OPERATION ends the list
};

struct cell {
    uint32_t writer; // LS_NO_OPERATION: nobody yet
    uint32_t readers;
    bool rounded; // its halves have the same values
};

struct edge {
    uint32_t before;
    uint32_t after;
};

struct origin {
    uint32_t step;
    uint32_t round;
    bool reduces;
};

struct compiler {
    const struct ls_drawn_schedule *schedule;
    const struct ls_compile_options *options;
    struct ls_compiled_schedule *out;
    struct origin *origins; // of each operation
    uint32_t capacity; // of operations and origins
    uint64_t *cuts[BUFFERS]; // sorted; cell i is from cut i to cut i + 1
    size_t cut_counts[BUFFERS];
    struct cell *cells[BUFFERS];
    struct reader *readers;
    uint32_t reader_count, reader_capacity;
    struct edge *edges;
    uint32_t edge_count, edge_capacity;
    uint32_t *marks; // of each operation: 1 + the last one found to depend on it
};

// Makes room for one more element; NULL: no memory (the array is still there).
static void *grown(void *array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    if (*capacity > UINT32_MAX / 4)
        return NULL;
    const uint32_t more = *capacity ? 2 * *capacity : 32;
    void *larger = realloc(array, more * size);
    if (larger)
        *capacity = more;
    return larger;
}

// ---- Segments ----

static bool writes(uint32_t kind)
{
    return kind != LS_TRANSFER_SEND;
}

static bool reduces(uint32_t kind)
{
    return kind == LS_TRANSFER_RECEIVE_REDUCE || kind == LS_TRANSFER_REDUCE;
}

static bool has_message(uint32_t kind)
{
    return kind == LS_TRANSFER_SEND || kind == LS_TRANSFER_RECEIVE ||
           kind == LS_TRANSFER_RECEIVE_REDUCE;
}

static bool is_local(uint32_t kind)
{
    return kind == LS_TRANSFER_REDUCE || kind == LS_TRANSFER_COPY;
}

static uint32_t transfer_kind(uint32_t step_kind)
{
    switch (step_kind) {
    case LS_STEP_SEND: return LS_TRANSFER_SEND;
    case LS_STEP_RECEIVE: return LS_TRANSFER_RECEIVE;
    case LS_STEP_RECEIVE_AND_REDUCE: return LS_TRANSFER_RECEIVE_REDUCE;
    case LS_STEP_REDUCE: return LS_TRANSFER_REDUCE;
    default: return LS_TRANSFER_COPY;
    }
}

static bool same_range(const struct ls_range *a, const struct ls_range *b)
{
    return a->buffer == b->buffer && a->offset == b->offset && a->count == b->count;
}

// Into how many a step of `count` elements may be cut where the caller has not chosen the length.
static uint64_t segment_limit(const struct ls_compile_options *options, uint64_t count)
{
    const uint64_t least = options->count / options->world / LS_SEGMENTS_OF_PART; // elements
    const uint64_t limit = least ? count / least : LS_SEGMENTS;
    return limit < 1 ? 1 : limit < LS_SEGMENTS ? limit : LS_SEGMENTS;
}

// Depends on the count alone, and on what all ranks know, so that both sides of a message cut
// alike.
static uint64_t segment_count(const struct compiler *compiler, uint64_t count)
{
    const struct ls_compile_options *options = compiler->options;
    const uint64_t usual = options->on_device ? LS_SEGMENT_BYTES_ON_DEVICE : LS_SEGMENT_BYTES;
    const uint64_t bytes = options->segment_bytes ? options->segment_bytes : usual;
    const uint64_t limit =
        options->segment_bytes ? LS_SEGMENTS_IF_ASKED : segment_limit(options, count);
    const uint64_t each = bytes / options->element_bytes ? bytes / options->element_bytes : 1;
    const uint64_t segments = (count - 1) / each + 1;
    return segments < limit ? segments : limit;
}

static enum ls_status add_operation(struct compiler *compiler,
                                    const struct ls_compiled_operation *operation,
                                    struct origin origin)
{
    struct ls_compiled_schedule *out = compiler->out;
    uint32_t capacity = compiler->capacity;
    void *larger =
        grown(out->operations, out->operation_count, &capacity, sizeof(*out->operations));
    if (!larger)
        return LS_OUT_OF_MEMORY;
    out->operations = larger;
    larger = grown(compiler->origins, out->operation_count, &compiler->capacity,
                   sizeof(*compiler->origins));
    if (!larger)
        return LS_OUT_OF_MEMORY;
    compiler->origins = larger;
    compiler->origins[out->operation_count] = origin;
    out->operations[out->operation_count++] = *operation;
    return LS_OK;
}

static uint32_t message_bytes(const struct ls_compile_options *options)
{
    return options->halves ? sizeof(uint16_t) : options->element_bytes;
}

// What arrives goes to the halves first.
static enum ls_status add_halves(struct compiler *compiler,
                                 const struct ls_compiled_operation *operation,
                                 struct origin origin)
{
    struct ls_compiled_operation message = *operation, taken = *operation;
    const uint32_t kind = operation->kind;
    if (kind != LS_TRANSFER_RECEIVE && kind != LS_TRANSFER_RECEIVE_REDUCE)
        return add_operation(compiler, operation, origin);
    message.kind = LS_TRANSFER_RECEIVE;
    taken.kind = kind == LS_TRANSFER_RECEIVE ? LS_HALF_WIDEN : LS_HALF_ADD;
    taken.element_bytes = compiler->options->element_bytes;
    const enum ls_status status = add_operation(compiler, &message, origin);
    return status ? status : add_operation(compiler, &taken, origin);
}

// One step, segment by segment. Messages are numbered as they come.
static enum ls_status add_step(struct compiler *compiler, const struct ls_step *step, uint32_t kind,
                               struct origin origin)
{
    const uint64_t segments = segment_count(compiler, step->range.count);
    for (uint64_t i = 0; i < segments; i++) {
        struct ls_compiled_operation operation = {
            .kind = kind,
            .source = step->peer,
            .destination = step->peer,
            .element_bytes = has_message(kind) ? message_bytes(compiler->options)
                                               : compiler->options->element_bytes,
            .range = ls_part(step->range, i, segments),
            .after = LS_TRANSFER_AT_ONCE,
            .fused_send = LS_NO_OPERATION,
        };
        if (operation.range.count == 0)
            continue;
        if (is_local(kind))
            operation.from = ls_part(step->from, i, segments);
        struct ls_compiled_peer *peer = &compiler->out->peers[step->peer];
        if (kind == LS_TRANSFER_SEND)
            operation.send_number = peer->sends++;
        else if (kind == LS_TRANSFER_RECEIVE || kind == LS_TRANSFER_RECEIVE_REDUCE)
            operation.receive_number = peer->receives++;
        const enum ls_status status = compiler->options->halves
                                          ? add_halves(compiler, &operation, origin)
                                          : add_operation(compiler, &operation, origin);
        if (status)
            return status;
    }
    if (kind == LS_TRANSFER_SEND)
        compiler->out->sent_bytes += step->range.count * message_bytes(compiler->options);
    return LS_OK;
}

// Before the steps of a round: what they send, each range once.
static enum ls_status round_sends(struct compiler *compiler, size_t first)
{
    const struct ls_drawn_schedule *schedule = compiler->schedule;
    enum ls_status status = LS_OK;
    for (size_t i = first; !status && i < schedule->step_count; i++) {
        const struct ls_scheduled_step *step = &schedule->steps[i];
        if (step->round != schedule->steps[first].round)
            break;
        if (step->step.kind != LS_STEP_SEND)
            continue;
        size_t same = first;
        while (schedule->steps[same].step.kind != LS_STEP_SEND ||
               !same_range(&schedule->steps[same].step.range, &step->step.range))
            same++;
        if (same == i)
            status = add_step(compiler, &step->step, LS_HALF_ROUND,
                              (struct origin){.step = (uint32_t)i, .round = step->round});
    }
    return status;
}

static enum ls_status add_steps(struct compiler *compiler)
{
    const struct ls_drawn_schedule *schedule = compiler->schedule;
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < schedule->step_count; i++) {
        const struct ls_scheduled_step *step = &schedule->steps[i];
        const uint32_t kind = transfer_kind(step->step.kind);
        const struct origin origin = {(uint32_t)i, step->round, reduces(kind)};
        if (compiler->options->halves && (i == 0 || step->round != step[-1].round))
            status = round_sends(compiler, i);
        if (!status)
            status = add_step(compiler, &step->step, kind, origin);
    }
    const struct origin end = {(uint32_t)schedule->step_count, schedule->round_count, false};
    if (!status && compiler->options->rounded.count) {
        const struct ls_step step = {.range = compiler->options->rounded};
        status = add_step(compiler, &step, LS_HALF_ROUND, end);
    }
    if (!status && compiler->options->divide.count) {
        const struct ls_step step = {.range = compiler->options->divide};
        status = add_step(compiler, &step, LS_TRANSFER_DIVIDE, end);
    }
    return status;
}

// ---- Cells ----

static int compare_cuts(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void add_cuts(struct compiler *compiler, const struct ls_range *range)
{
    uint64_t *cuts = compiler->cuts[range->buffer];
    cuts[compiler->cut_counts[range->buffer]++] = range->offset;
    cuts[compiler->cut_counts[range->buffer]++] = range->offset + range->count;
}

static void sort_cuts(struct compiler *compiler, uint32_t buffer)
{
    uint64_t *cuts = compiler->cuts[buffer];
    const size_t count = compiler->cut_counts[buffer];
    size_t kept = 0;
    qsort(cuts, count, sizeof(*cuts), compare_cuts);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || cuts[i] != cuts[kept - 1])
            cuts[kept++] = cuts[i];
    compiler->cut_counts[buffer] = kept;
}

static enum ls_status make_cells(struct compiler *compiler)
{
    const struct ls_compiled_schedule *out = compiler->out;
    for (uint32_t buffer = 0; buffer < BUFFERS; buffer++) {
        compiler->cuts[buffer] = malloc((4 * (size_t)out->operation_count + 1) * sizeof(uint64_t));
        if (!compiler->cuts[buffer])
            return LS_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < out->operation_count; i++) {
        add_cuts(compiler, &out->operations[i].range);
        if (is_local(out->operations[i].kind))
            add_cuts(compiler, &out->operations[i].from);
    }
    for (uint32_t buffer = 0; buffer < BUFFERS; buffer++) {
        sort_cuts(compiler, buffer);
        const size_t count = compiler->cut_counts[buffer];
        compiler->cells[buffer] = malloc((count + 1) * sizeof(struct cell));
        if (!compiler->cells[buffer])
            return LS_OUT_OF_MEMORY;
        for (size_t i = 0; i < count; i++)
            compiler->cells[buffer][i] = (struct cell){LS_NO_OPERATION, LS_NO_OPERATION, false};
    }
    return LS_OK;
}

static size_t cell_at(const struct compiler *compiler, uint32_t buffer, uint64_t offset)
{
    const uint64_t *cuts = compiler->cuts[buffer];
    const uint64_t *found =
        bsearch(&offset, cuts, compiler->cut_counts[buffer], sizeof(*cuts), compare_cuts);
    return (size_t)(found - cuts); // every offset of a range is a cut
}

// ---- Dependencies ----

static enum ls_status add_edge(struct compiler *compiler, uint32_t before, uint32_t after)
{
    if (compiler->marks[before] == after + 1)
        return LS_OK;
    void *larger = grown(compiler->edges, compiler->edge_count, &compiler->edge_capacity,
                         sizeof(*compiler->edges));
    if (!larger)
        return LS_OUT_OF_MEMORY;
    compiler->edges = larger;
    compiler->marks[before] = after + 1;
    compiler->edges[compiler->edge_count++] = (struct edge){before, after};
    return LS_OK;
}

static enum ls_status add_reader(struct compiler *compiler, struct cell *cell, uint32_t operation)
{
    void *larger = grown(compiler->readers, compiler->reader_count, &compiler->reader_capacity,
                         sizeof(*compiler->readers));
    if (!larger)
        return LS_OUT_OF_MEMORY;
    compiler->readers = larger;
    compiler->readers[compiler->reader_count] = (struct reader){operation, cell->readers};
    cell->readers = compiler->reader_count++;
    return LS_OK;
}

static enum ls_status refuse(const struct compiler *compiler, uint32_t operation,
                             const char *reason)
{
    char text[128];
    const struct ls_compiled_operation *op = &compiler->out->operations[operation];
    ls_error("collective", "%s: rank %u of %u, round %u: %s: %s; the plugin is wrong",
             compiler->options->name, compiler->options->rank, compiler->options->world,
             compiler->origins[operation].round, ls_range_text(&op->range, text, sizeof(text)),
             reason);
    return LS_FAILED;
}

// Whether two operations are of different steps of one round. What is rounded for a round was so
// before it.
static bool at_once(const struct compiler *compiler, uint32_t one, uint32_t other)
{
    const struct ls_compiled_operation *operations = compiler->out->operations;
    const struct origin a = compiler->origins[one], b = compiler->origins[other];
    return a.round == b.round && a.step != b.step && operations[one].kind != LS_HALF_ROUND &&
           operations[other].kind != LS_HALF_ROUND;
}

static enum ls_status read_cell(struct compiler *compiler, struct cell *cell, uint32_t operation)
{
    if (cell->writer != LS_NO_OPERATION) {
        if (at_once(compiler, cell->writer, operation))
            return refuse(compiler, operation,
                          "one step reads what another of the same round writes");
        const enum ls_status status = add_edge(compiler, cell->writer, operation);
        if (status)
            return status;
    }
    return add_reader(compiler, cell, operation);
}

static enum ls_status write_cell(struct compiler *compiler, struct cell *cell, uint32_t operation)
{
    const uint32_t kind = compiler->out->operations[operation].kind;
    enum ls_status status = LS_OK;
    for (uint32_t i = cell->readers; !status && i != LS_NO_OPERATION;
         i = compiler->readers[i].next) {
        if (at_once(compiler, compiler->readers[i].operation, operation))
            return refuse(compiler, operation,
                          "one step writes what another of the same round reads");
        status = add_edge(compiler, compiler->readers[i].operation, operation);
    }
    if (status)
        return status;
    if (cell->writer != LS_NO_OPERATION) {
        const bool stacked =
            compiler->origins[cell->writer].reduces && compiler->origins[operation].reduces;
        if (!stacked && at_once(compiler, cell->writer, operation))
            return refuse(compiler, operation, "two steps of one round write it");
        status = add_edge(compiler, cell->writer, operation);
    }
    const bool rounded = kind == LS_HALF_ROUND || kind == LS_HALF_WIDEN;
    *cell = (struct cell){operation, LS_NO_OPERATION, rounded};
    return status;
}

static enum ls_status visit(struct compiler *compiler, uint32_t operation,
                            const struct ls_range *range,
                            enum ls_status (*visit_cell)(struct compiler *, struct cell *,
                                                         uint32_t))
{
    const uint32_t buffer = range->buffer;
    enum ls_status status = LS_OK;
    for (size_t i = cell_at(compiler, buffer, range->offset);
         !status && compiler->cuts[buffer][i] < range->offset + range->count; i++)
        status = visit_cell(compiler, &compiler->cells[buffer][i], operation);
    return status;
}

// Whether all of the range is rounded already: was received, or sent, and not changed since.
static bool is_rounded(const struct compiler *compiler, const struct ls_range *range)
{
    const uint64_t *cuts = compiler->cuts[range->buffer];
    for (size_t i = cell_at(compiler, range->buffer, range->offset);
         cuts[i] < range->offset + range->count; i++)
        if (!compiler->cells[range->buffer][i].rounded)
            return false;
    return true;
}

static bool overlap(const struct ls_range *a, const struct ls_range *b)
{
    return a->buffer == b->buffer && a->offset < b->offset + b->count &&
           b->offset < a->offset + a->count;
}

static bool sends_back(const struct ls_compiled_operation *send,
                       const struct ls_compiled_operation *receive)
{
    return send->kind == LS_TRANSFER_SEND && send->destination == receive->source &&
           same_range(&send->range, &receive->range);
}

// A receive that waits for a send of the very same memory to the same peer may be posted before the
// send is complete, on the condition that the peer writes only what it has read: then a peer that
// reduces the message and sends back the result does both in one pass. The edge becomes that
// condition; of several such sends, that of the newest.
static void relax_receive(struct compiler *compiler, uint32_t operation, uint32_t first_edge)
{
    const struct ls_compiled_operation *operations = compiler->out->operations;
    struct ls_compiled_operation *receive = &compiler->out->operations[operation];
    uint32_t newest = LS_NO_OPERATION;
    for (uint32_t i = first_edge; i < compiler->edge_count; i++) {
        const uint32_t before = compiler->edges[i].before;
        if (sends_back(&operations[before], receive) &&
            (newest == LS_NO_OPERATION || before > newest))
            newest = before;
    }
    if (newest == LS_NO_OPERATION)
        return;
    receive->after = operations[newest].send_number;
    uint32_t kept = first_edge;
    for (uint32_t i = first_edge; i < compiler->edge_count; i++)
        if (compiler->edges[i].before != newest)
            compiler->edges[kept++] = compiler->edges[i];
    compiler->edge_count = kept;
}

// A send whose only dependency is a receive-and-reduce of the very same range is done by it. Both
// stay in the list, because what waits for the reduction must not wait for the send.
static void fuse_send(struct compiler *compiler, uint32_t operation, uint32_t first_edge)
{
    struct ls_compiled_operation *operations = compiler->out->operations;
    if (compiler->edge_count != first_edge + 1)
        return;
    struct ls_compiled_operation *before = &operations[compiler->edges[first_edge].before];
    struct ls_compiled_operation *send = &operations[operation];
    if (before->kind != LS_TRANSFER_RECEIVE_REDUCE || !same_range(&before->range, &send->range))
        return;
    before->kind = LS_TRANSFER_RECEIVE_REDUCE_SEND;
    before->fused_send = operation;
    before->destination = send->destination;
    before->send_number = send->send_number;
    compiler->edge_count = first_edge;
}

static enum ls_status find_dependencies(struct compiler *compiler)
{
    struct ls_compiled_schedule *out = compiler->out;
    for (uint32_t i = 0; i < out->operation_count; i++) {
        struct ls_compiled_operation *operation = &out->operations[i];
        const uint32_t first_edge = compiler->edge_count;
        enum ls_status status = LS_OK;
        if (operation->kind == LS_HALF_ROUND && is_rounded(compiler, &operation->range)) {
            operation->kind = LS_HALF_NOTHING;
            out->nothing_count++;
            continue;
        }
        if (is_local(operation->kind))
            status = visit(compiler, i, &operation->from, read_cell);
        if (!status)
            status = visit(compiler, i, &operation->range,
                           writes(operation->kind) ? write_cell : read_cell);
        if (status)
            return status;
        if (operation->kind == LS_TRANSFER_RECEIVE)
            relax_receive(compiler, i, first_edge);
        else if (operation->kind == LS_TRANSFER_SEND)
            fuse_send(compiler, i, first_edge);
    }
    return LS_OK;
}

// ---- The result ----

// Sorts the edges by what comes before (a counting sort), and lists what can begin.
static enum ls_status link_operations(struct compiler *compiler)
{
    struct ls_compiled_schedule *out = compiler->out;
    const uint32_t count = out->operation_count;
    out->dependents = malloc(((size_t)compiler->edge_count + 1) * sizeof(*out->dependents));
    out->first = malloc(((size_t)count + 1) * sizeof(*out->first));
    if (!out->dependents || !out->first)
        return LS_OUT_OF_MEMORY;

    for (uint32_t i = 0; i < compiler->edge_count; i++) {
        out->operations[compiler->edges[i].before].dependent_count++;
        out->operations[compiler->edges[i].after].waits_for++;
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < count; i++) {
        out->operations[i].first_dependent = next;
        next += out->operations[i].dependent_count;
        out->operations[i].dependent_count = 0;
    }
    for (uint32_t i = 0; i < compiler->edge_count; i++) {
        struct ls_compiled_operation *before = &out->operations[compiler->edges[i].before];
        out->dependents[before->first_dependent + before->dependent_count++] =
            compiler->edges[i].after;
    }
    memset(compiler->marks, 0, count * sizeof(*compiler->marks));
    for (uint32_t i = 0; i < count; i++)
        if (out->operations[i].fused_send != LS_NO_OPERATION)
            compiler->marks[out->operations[i].fused_send] = 1;
    // Receives first: a peer that finds where its result is wanted writes it there at once.
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < count; i++)
            if (!out->operations[i].waits_for && !compiler->marks[i] &&
                out->operations[i].kind != LS_HALF_NOTHING &&
                (out->operations[i].kind == LS_TRANSFER_RECEIVE) == (pass == 0))
                out->first[out->first_count++] = i;
    return LS_OK;
}

static void keep_used_peers(struct ls_compiled_schedule *out, uint32_t world)
{
    for (uint32_t i = 0; i < world; i++)
        if (out->peers[i].sends || out->peers[i].receives)
            out->peers[out->peer_count++] = out->peers[i];
}

static enum ls_status check_local_steps(struct compiler *compiler)
{
    for (uint32_t i = 0; i < compiler->schedule->step_count; i++) {
        const struct ls_scheduled_step *step = &compiler->schedule->steps[i];
        if (is_local(transfer_kind(step->step.kind)) &&
            overlap(&step->step.range, &step->step.from)) {
            char range[128], from[128];
            ls_error("collective",
                     "%s: rank %u of %u, round %u: %s of %s overlaps %s; the plugin is wrong",
                     compiler->options->name, compiler->options->rank, compiler->options->world,
                     step->round, ls_step_kind_text(step->step.kind),
                     ls_range_text(&step->step.range, range, sizeof(range)),
                     ls_range_text(&step->step.from, from, sizeof(from)));
            return LS_FAILED;
        }
    }
    return LS_OK;
}

static void compiler_finish(struct compiler *compiler)
{
    for (uint32_t buffer = 0; buffer < BUFFERS; buffer++) {
        free(compiler->cuts[buffer]);
        free(compiler->cells[buffer]);
    }
    free(compiler->origins);
    free(compiler->readers);
    free(compiler->edges);
    free(compiler->marks);
}

static enum ls_status run_compiler(struct compiler *compiler)
{
    struct ls_compiled_schedule *out = compiler->out;
    const uint32_t world = compiler->options->world;
    out->peers = calloc(world, sizeof(*out->peers));
    if (!out->peers)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < world; i++)
        out->peers[i].rank = i;

    enum ls_status status = check_local_steps(compiler);
    if (!status)
        status = add_steps(compiler);
    if (!status)
        status = make_cells(compiler);
    if (status)
        return status;
    compiler->marks = calloc((size_t)out->operation_count + 1, sizeof(*compiler->marks));
    if (!compiler->marks)
        return LS_OUT_OF_MEMORY;
    status = find_dependencies(compiler);
    if (!status)
        status = link_operations(compiler);
    keep_used_peers(out, world);
    return status;
}

enum ls_status ls_compile_schedule(const struct ls_drawn_schedule *schedule,
                                   const struct ls_compile_options *options,
                                   struct ls_compiled_schedule *out)
{
    struct ls_compiled_schedule compiled = {.round_count = schedule->round_count,
                                            .scratch_count = schedule->scratch_count,
                                            .halves = options->halves};
    struct compiler compiler = {.schedule = schedule, .options = options, .out = &compiled};
    const enum ls_status status = run_compiler(&compiler);
    compiler_finish(&compiler);
    if (status) {
        ls_compiled_schedule_finish(&compiled);
        return status;
    }
    *out = compiled;
    return LS_OK;
}

void ls_compiled_schedule_finish(struct ls_compiled_schedule *compiled)
{
    free(compiled->operations);
    free(compiled->dependents);
    free(compiled->first);
    free(compiled->peers);
    *compiled = (struct ls_compiled_schedule){0};
}
