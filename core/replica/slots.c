// SPDX-License-Identifier: Apache-2.0
// Which bucket is in which slot.
#include "core/replica/slots.h"

#include <stdlib.h>
#include <string.h>

// Bit a * count + b: buckets a and b may not have one slot. Neighbours may not: one is on its way
// while the other is used.
static bool *neighbours(uint32_t count)
{
    bool *apart = calloc((size_t)count * count, sizeof(*apart));
    for (uint32_t i = 0; apart && i + 1 < count; i++)
        apart[(size_t)i * count + i + 1] = apart[(size_t)(i + 1) * count + i] = true;
    return apart;
}

static bool fits(const struct ls_slots *slots, const bool *apart, uint32_t count, uint32_t bucket,
                 uint32_t slot)
{
    for (uint32_t i = 0; i < bucket; i++)
        if (slots->of[i] == slot && apart[(size_t)i * count + bucket])
            return false;
    return true;
}

static void choose(struct ls_slots *slots, const bool *apart, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = i % 2;
        if (!fits(slots, apart, count, i, slot))
            for (slot = 0; !fits(slots, apart, count, i, slot);)
                slot++;
        slots->of[i] = slot;
        if (slot >= slots->count)
            slots->count = slot + 1;
    }
}

// A slot is as long as the largest bucket in it.
static void lay_out(struct ls_slots *slots, const struct ls_parameter_plan *plan,
                    const struct ls_buckets *buckets)
{
    for (uint32_t slot = 0; slot < slots->count; slot++) {
        uint64_t bytes = 0, inside = 0;
        for (uint32_t i = 0; i < buckets->count; i++) {
            if (slots->of[i] != slot)
                continue;
            inside++;
            slots->at[i] = slots->bytes;
            bytes = buckets->list[i].bytes > bytes ? buckets->list[i].bytes : bytes;
        }
        for (uint32_t i = 0; i < buckets->count; i++)
            slots->shared[i] = slots->of[i] == slot ? inside > 1 : slots->shared[i];
        slots->bytes += bytes;
    }
    for (uint32_t i = 0; i < buckets->count; i++) {
        const struct ls_bucket *bucket = &buckets->list[i];
        for (uint32_t k = 0; k < bucket->place_count; k++) {
            const uint32_t place = bucket->first_place + k;
            slots->buckets[place] = i;
            slots->places_at[place] = slots->at[i] + plan->places[place].offset - bucket->offset;
        }
    }
    for (uint32_t place = plan->reduced_count; place < plan->place_count; place++)
        slots->places_at[place] = slots->bytes + plan->places[place].offset - plan->reduced_bytes;
}

static enum ls_status create(const struct ls_parameter_plan *plan, const struct ls_buckets *buckets,
                             const bool *apart, struct ls_slots *out)
{
    *out = (struct ls_slots){
        .of = calloc(buckets->count, sizeof(*out->of)),
        .at = calloc(buckets->count, sizeof(*out->at)),
        .places_at = calloc((size_t)plan->place_count + 1, sizeof(*out->places_at)),
        .buckets = calloc((size_t)plan->place_count + 1, sizeof(*out->buckets)),
        .shared = calloc(buckets->count, sizeof(*out->shared)),
    };
    if (!apart || !out->of || !out->at || !out->places_at || !out->buckets || !out->shared)
        return LS_OUT_OF_MEMORY;
    choose(out, apart, buckets->count);
    lay_out(out, plan, buckets);
    return LS_OK;
}

void ls_slots_finish(struct ls_slots *slots)
{
    free(slots->of);
    free(slots->at);
    free(slots->places_at);
    free(slots->buckets);
    free(slots->shared);
    *slots = (struct ls_slots){0};
}

// ---- Gradients ----

// The operations between which gradients of a bucket are written. They leave in the order of the
// buckets, so that none is complete before the one in front of it.
struct span {
    uint32_t first, last;
};

static uint32_t count_forward(const struct ls_graph *graph)
{
    uint32_t count = 0;
    while (count < graph->operation_count && !graph->operations[count].backward)
        count++;
    return count;
}

static void find_spans(const struct ls_parameter_plan *plan, const struct ls_graph *graph,
                       const struct ls_buckets *buckets, struct span *spans)
{
    // What forward writes, contributions to statistics, leaves when backward begins.
    const uint32_t forward = count_forward(graph);
    for (uint32_t b = 0; b < buckets->count; b++) {
        const struct ls_bucket *bucket = &buckets->list[b];
        spans[b] = (struct span){UINT32_MAX, b ? spans[b - 1].last : forward};
        for (uint32_t i = 0; i < graph->operation_count; i++)
            for (uint32_t k = 0; k < graph->operations[i].output_count; k++) {
                const struct ls_tensor *tensor = graph->operations[i].outputs[k];
                if (tensor->role != LS_ROLE_PARAMETER_GRADIENT)
                    continue;
                const uint32_t place = ls_plan_find(plan, tensor->gradient_of->name);
                if (place < bucket->first_place ||
                    place - bucket->first_place >= bucket->place_count)
                    continue;
                spans[b].first = i < spans[b].first ? i : spans[b].first;
                spans[b].last = i > spans[b].last ? i : spans[b].last;
            }
    }
}

enum ls_status ls_slots_of_gradients(const struct ls_parameter_plan *plan,
                                     const struct ls_graph *graph, const struct ls_buckets *buckets,
                                     struct ls_slots *out)
{
    const uint32_t count = buckets->count;
    bool *apart = neighbours(count);
    struct span *spans = calloc(count, sizeof(*spans));
    enum ls_status status = apart && spans ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        find_spans(plan, graph, buckets, spans);
    for (uint32_t b = 0; !status && b < count; b++)
        for (uint32_t a = 0; a < b; a++)
            if (spans[b].first <= spans[a].last)
                apart[(size_t)a * count + b] = true;
    if (!status)
        status = create(plan, buckets, apart, out);
    free(apart);
    free(spans);
    return status;
}

// ---- Parameters ----

// The parameter that a tensor is, perhaps in another type; NULL: it is none.
static const struct ls_tensor *parameter_of(const struct ls_graph *graph,
                                            const struct ls_tensor *tensor)
{
    while (tensor->producer >= 0 && graph->operations[tensor->producer].op == LS_OP_CONVERT)
        tensor = graph->operations[tensor->producer].inputs[0];
    return tensor->role == LS_ROLE_PARAMETER ? tensor : NULL;
}

static void mark(const struct ls_parameter_plan *plan, const struct ls_buckets *buckets,
                 const struct ls_tensor *parameter, bool *reads)
{
    const uint32_t place = parameter ? ls_plan_find(plan, parameter->name) : LS_NO_PLACE;
    if (place < plan->reduced_count)
        reads[ls_buckets_find(buckets, place)] = true;
}

// The buckets that an operation reads. Where nothing is trained, normalization reads the moving
// statistics to which it contributes in training.
static void find_reads(const struct ls_parameter_plan *plan, const struct ls_graph *graph,
                       const struct ls_buckets *buckets, uint32_t index, bool trains, bool *reads)
{
    const struct ls_operation *operation = &graph->operations[index];
    memset(reads, 0, buckets->count * sizeof(*reads));
    for (uint32_t k = 0; k < operation->input_count; k++)
        mark(plan, buckets, parameter_of(graph, operation->inputs[k]), reads);
    for (uint32_t i = 0; !trains && !operation->backward && i < graph->operation_count; i++) {
        const struct ls_operation *statistics = &graph->operations[i];
        if (statistics->op != LS_OP_BATCH_STATISTICS ||
            statistics->inputs[0]->producer != (int32_t)index)
            continue;
        for (uint32_t k = 0; k < statistics->output_count; k++)
            mark(plan, buckets, statistics->outputs[k]->gradient_of, reads);
    }
}

// What a walk goes through.
struct way {
    const struct ls_parameter_plan *plan;
    const struct ls_graph *graph;
    const struct ls_buckets *buckets;
    const struct ls_slots *slots;
    const struct span *spans; // of gradients; NULL: forward alone
};

static enum ls_status walk(const struct way *way, struct ls_walk *out)
{
    const uint32_t buckets = way->buckets->count;
    bool *reads = calloc(buckets, sizeof(*reads));
    uint32_t *in = calloc(buckets, sizeof(*in)); // by slot: the bucket, and one more
    uint32_t *over = calloc(buckets, sizeof(*over)); // by bucket: its last reader, and one more
    uint32_t ready = 0, room = 0;
    const uint32_t forward = count_forward(way->graph);
    enum ls_status status = reads && in && over ? LS_OK : LS_OUT_OF_MEMORY;
    *out = (struct ls_walk){NULL, 0};
    for (uint32_t i = 0; !status && i < way->graph->operation_count; i++) {
        if (!way->spans && way->graph->operations[i].backward)
            break;
        find_reads(way->plan, way->graph, way->buckets, i, way->spans != NULL, reads);
        for (uint32_t b = buckets; !status && b-- > 0;) {
            const uint32_t slot = way->slots->of[b];
            if (!reads[b] || in[slot] == b + 1)
                continue;
            // It is begun when the last reader of what is in the slot is done. What forward makes, as
            // contributions to statistics, is ready when backward begins.
            while (in[slot] && way->spans && ready < buckets && over[in[slot] - 1] >= forward &&
                   way->spans[ready].last < over[in[slot] - 1])
                ready++;
            if (out->count == room) {
                room = 2 * room + 16;
                struct ls_walk_entry *grown = realloc(out->list, room * sizeof(*grown));
                status = grown ? LS_OK : LS_OUT_OF_MEMORY;
                out->list = grown ? grown : out->list;
            }
            if (!status)
                out->list[out->count++] = (struct ls_walk_entry){b, ready};
            in[slot] = b + 1;
        }
        for (uint32_t b = 0; b < buckets; b++)
            over[b] = reads[b] ? i + 1 : over[b];
    }
    free(reads);
    free(in);
    free(over);
    return status;
}

enum ls_status ls_slots_of_parameters(const struct ls_parameter_plan *plan,
                                      const struct ls_graph *graph,
                                      const struct ls_buckets *buckets, struct ls_slots *out,
                                      struct ls_walk *training, struct ls_walk *forward)
{
    const uint32_t count = buckets->count;
    bool *apart = neighbours(count), *reads = calloc(count, sizeof(*reads));
    struct span *spans = calloc(count, sizeof(*spans));
    enum ls_status status = apart && reads && spans ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        find_spans(plan, graph, buckets, spans);
    for (uint32_t i = 0; !status && i < graph->operation_count; i++) {
        find_reads(plan, graph, buckets, i, false, reads);
        for (uint32_t b = 0; b < count; b++)
            for (uint32_t a = 0; a < b && reads[b]; a++)
                if (reads[a])
                    apart[(size_t)a * count + b] = true;
    }
    if (!status)
        status = create(plan, buckets, apart, out);
    struct way way = {plan, graph, buckets, out, spans};
    if (!status)
        status = walk(&way, training);
    way.spans = NULL;
    if (!status)
        status = walk(&way, forward);
    free(apart);
    free(reads);
    free(spans);
    return status;
}
