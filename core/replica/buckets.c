// SPDX-License-Identifier: Apache-2.0
// Cuts the flat buffer into buckets.
#include "core/replica/buckets.h"

#include <stdlib.h>

struct cut {
    uint32_t first_place, end_place;
    uint64_t first_bytes, bytes; // at most, of the first and of the others
    uint64_t end; // of the last, in bytes of the flat buffer
};

// Makes buckets of a range of places: at least one. Returns how many.
static uint32_t make_buckets(const struct ls_parameter_plan *plan, const struct cut *cut,
                             struct ls_bucket *list)
{
    uint32_t count = 1;
    for (uint32_t i = cut->first_place; i < cut->end_place; i++) {
        const struct ls_parameter_place *place = &plan->places[i];
        const uint64_t end = place->offset + place->bytes;
        const uint64_t most = count == 1 ? cut->first_bytes : cut->bytes;
        struct ls_bucket *bucket = &list[count - 1];
        if (bucket->place_count && end - bucket->offset > most)
            bucket = &list[count++];
        if (!bucket->place_count)
            *bucket = (struct ls_bucket){.offset = place->offset, .first_place = i};
        bucket->place_count++;
    }
    // Up to the next bucket, so that buckets cover the padding between parameters too.
    for (uint32_t i = 0; i < count; i++)
        list[i].bytes = (i + 1 < count ? list[i + 1].offset : cut->end) - list[i].offset;
    return count;
}

enum ls_status ls_buckets_create(const struct ls_parameter_plan *plan, uint64_t first_bytes,
                                 uint64_t bytes, struct ls_buckets *out)
{
    const struct cut reduced = {0, plan->reduced_count, first_bytes, bytes, plan->reduced_bytes};
    const struct cut frozen = {plan->reduced_count, plan->place_count, bytes, bytes,
                               plan->flat_bytes};
    struct ls_bucket *list = calloc((size_t)plan->place_count + 1, sizeof(*list));
    if (!list)
        return LS_OUT_OF_MEMORY;
    out->list = list;
    out->all = out->count = make_buckets(plan, &reduced, list);
    if (plan->reduced_count < plan->place_count)
        out->all += make_buckets(plan, &frozen, list + out->count);
    return LS_OK;
}

void ls_buckets_reduced(const struct ls_buckets *buckets, uint32_t bucket, uint64_t *first,
                        uint64_t *count)
{
    const struct ls_bucket *own = &buckets->list[bucket];
    *first = bucket == 0 ? 0 : LS_STEP_STATS + own->offset / sizeof(float);
    *count = own->bytes / sizeof(float) + (bucket == 0 ? LS_STEP_STATS : 0);
}

uint32_t ls_buckets_find(const struct ls_buckets *buckets, uint32_t place)
{
    uint32_t bucket = 0;
    while (bucket < buckets->all &&
           place >= buckets->list[bucket].first_place + buckets->list[bucket].place_count)
        bucket++;
    return bucket;
}

void ls_buckets_finish(struct ls_buckets *buckets)
{
    free(buckets->list);
    *buckets = (struct ls_buckets){0};
}
