// SPDX-License-Identifier: Apache-2.0
// Which bucket is in which slot.
#include "core/replica/slots.h"

#include <stdlib.h>
#include <string.h>

// Buckets as slots are given to them, and which may not have one slot.
struct choice {
    uint32_t count;
    uint32_t *order; // in which backward uses them
    bool *apart; // bit a * count + b, a and b in any order
};

static void finish_choice(struct choice *choice)
{
    free(choice->order);
    free(choice->apart);
}

// In the order of the buckets.
static enum ls_status init_choice(struct choice *choice, uint32_t count)
{
    *choice = (struct choice){count, calloc(count, sizeof(*choice->order)),
                              calloc((size_t)count * count, sizeof(*choice->apart))};
    for (uint32_t i = 0; choice->order && i < count; i++)
        choice->order[i] = i;
    return choice->order && choice->apart ? LS_OK : LS_OUT_OF_MEMORY;
}

static void keep_apart(const struct choice *choice, uint32_t a, uint32_t b)
{
    choice->apart[(size_t)a * choice->count + b] = choice->apart[(size_t)b * choice->count + a] =
        true;
}

// Whether the bucket at `at` of the order may have a slot, by those in front of it.
static bool fits(const struct ls_slots *slots, const struct choice *choice, uint32_t at,
                 uint32_t slot)
{
    const uint32_t bucket = choice->order[at];
    for (uint32_t i = 0; i < at; i++)
        if (slots->of[choice->order[i]] == slot &&
            choice->apart[(size_t)choice->order[i] * choice->count + bucket])
            return false;
    return true;
}

// Neighbours have no slot in common: one is on its way while the other is used. Bucket 0 comes to
// slot 0, in front of which there is room for the sums of the step.
static void choose(struct ls_slots *slots, const struct choice *choice)
{
    const uint32_t count = choice->count;
    for (uint32_t i = 0; i + 1 < count; i++)
        keep_apart(choice, choice->order[i], choice->order[i + 1]);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = i % 2;
        if (!fits(slots, choice, i, slot))
            for (slot = 0; !fits(slots, choice, i, slot);)
                slot++;
        slots->of[choice->order[i]] = slot;
        if (slot >= slots->count)
            slots->count = slot + 1;
    }
    const uint32_t first = slots->of[0];
    for (uint32_t i = 0; i < count; i++)
        slots->of[i] = slots->of[i] == first ? 0 : slots->of[i] == 0 ? first : slots->of[i];
}

// A slot is as long as the largest bucket in it.
static void lay_out(struct ls_slots *slots, const struct ls_parameter_plan *plan,
                    const struct ls_buckets *buckets, uint32_t count)
{
    for (uint32_t slot = 0; slot < slots->count; slot++) {
        uint64_t bytes = 0, inside = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (slots->of[i] != slot)
                continue;
            inside++;
            slots->at[i] = slots->bytes;
            bytes = buckets->list[i].bytes > bytes ? buckets->list[i].bytes : bytes;
        }
        for (uint32_t i = 0; i < count; i++)
            slots->shared[i] = slots->of[i] == slot ? inside > 1 : slots->shared[i];
        slots->bytes += bytes;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_bucket *bucket = &buckets->list[i];
        for (uint32_t k = 0; k < bucket->place_count; k++) {
            const uint32_t place = bucket->first_place + k;
            slots->buckets[place] = i;
            slots->places_at[place] = slots->at[i] + plan->places[place].offset - bucket->offset;
        }
    }
}

static enum ls_status create(const struct ls_parameter_plan *plan, const struct ls_buckets *buckets,
                             const struct choice *choice, struct ls_slots *out)
{
    *out = (struct ls_slots){
        .of = calloc(choice->count, sizeof(*out->of)),
        .at = calloc(choice->count, sizeof(*out->at)),
        .places_at = calloc((size_t)plan->place_count + 1, sizeof(*out->places_at)),
        .buckets = calloc((size_t)plan->place_count + 1, sizeof(*out->buckets)),
        .shared = calloc(choice->count, sizeof(*out->shared)),
    };
    if (!out->of || !out->at || !out->places_at || !out->buckets || !out->shared)
        return LS_OUT_OF_MEMORY;
    choose(out, choice);
    lay_out(out, plan, buckets, choice->count);
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
    struct choice choice;
    struct span *spans = calloc(buckets->count, sizeof(*spans));
    enum ls_status status = init_choice(&choice, buckets->count);
    status = spans ? status : LS_OUT_OF_MEMORY;
    if (!status)
        find_spans(plan, graph, buckets, spans);
    for (uint32_t b = 0; !status && b < buckets->count; b++)
        for (uint32_t a = 0; a < b; a++)
            if (spans[b].first <= spans[a].last)
                keep_apart(&choice, a, b);
    if (!status)
        status = create(plan, buckets, &choice, out);
    finish_choice(&choice);
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
    if (place != LS_NO_PLACE)
        reads[ls_buckets_find(buckets, place)] = true;
}

// The buckets that an operation reads. Where nothing is trained, normalization reads the moving
// statistics to which it contributes in training.
static void find_reads(const struct ls_parameter_plan *plan, const struct ls_graph *graph,
                       const struct ls_buckets *buckets, uint32_t index, bool trains, bool *reads)
{
    const struct ls_operation *operation = &graph->operations[index];
    memset(reads, 0, buckets->all * sizeof(*reads));
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
    const uint32_t buckets = way->buckets->all, reduced = way->buckets->count;
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
            while (in[slot] && way->spans && ready < reduced && over[in[slot] - 1] >= forward &&
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

// Buckets of trained and of frozen parameters, each in their order, are ordered by the last layer
// that reads them.
static void merge(struct choice *choice, uint32_t trained, const uint32_t *last)
{
    for (uint32_t i = 0, t = 0, f = trained; i < choice->count; i++) {
        const bool frozen = t == trained || (f < choice->count && last[f] > last[t]);
        choice->order[i] = frozen ? f++ : t++;
    }
}

// What is read at once is apart, and a trained and a frozen bucket also where one layer follows the
// other, which a device may compute together.
static enum ls_status find_uses(const struct ls_parameter_plan *plan, const struct ls_graph *graph,
                                const struct ls_buckets *buckets, struct choice *choice)
{
    const uint32_t count = buckets->all, forward = count_forward(graph);
    bool *reads = calloc(2 * (size_t)count, sizeof(*reads)), *before = reads + count;
    uint32_t *last = calloc(count, sizeof(*last));
    enum ls_status status = reads && last ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < graph->operation_count; i++) {
        bool any = false;
        find_reads(plan, graph, buckets, i, false, reads);
        for (uint32_t b = 0; b < count; b++) {
            any = any || reads[b];
            if (reads[b] && i < forward)
                last[b] = i;
            for (uint32_t a = 0; a < count && reads[b]; a++)
                if (a != b &&
                    (reads[a] || (before[a] && (a < buckets->count) != (b < buckets->count))))
                    keep_apart(choice, a, b);
        }
        if (any)
            memcpy(before, reads, count * sizeof(*before));
    }
    if (!status)
        merge(choice, buckets->count, last);
    free(reads);
    free(last);
    return status;
}

enum ls_status ls_slots_of_parameters(const struct ls_parameter_plan *plan,
                                      const struct ls_graph *graph,
                                      const struct ls_buckets *buckets, struct ls_slots *out,
                                      struct ls_walk *training, struct ls_walk *forward)
{
    struct choice choice;
    struct span *spans = calloc(buckets->count, sizeof(*spans));
    enum ls_status status = init_choice(&choice, buckets->all);
    status = spans ? status : LS_OUT_OF_MEMORY;
    if (!status)
        find_spans(plan, graph, buckets, spans);
    if (!status)
        status = find_uses(plan, graph, buckets, &choice);
    if (!status)
        status = create(plan, buckets, &choice, out);
    struct way way = {plan, graph, buckets, out, spans};
    if (!status)
        status = walk(&way, training);
    way.spans = NULL;
    if (!status)
        status = walk(&way, forward);
    finish_choice(&choice);
    free(spans);
    return status;
}
