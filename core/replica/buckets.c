// SPDX-License-Identifier: Apache-2.0
// Cuts the flat buffer into buckets.
#include "core/replica/buckets.h"

#include <stdlib.h>

enum ls_status ls_buckets_create(const struct ls_parameter_plan *plan, uint64_t first_bytes,
                                 uint64_t bytes, struct ls_buckets *out)
{
    struct ls_bucket *list = calloc((size_t)plan->reduced_count + 1, sizeof(*list));
    if (!list)
        return LS_OUT_OF_MEMORY;
    uint32_t count = 1;
    for (uint32_t i = 0; i < plan->reduced_count; i++) {
        const struct ls_parameter_place *place = &plan->places[i];
        const uint64_t end = place->offset + place->bytes;
        struct ls_bucket *bucket = &list[count - 1];
        if (bucket->place_count && end - bucket->offset > (count == 1 ? first_bytes : bytes)) {
            bucket = &list[count++];
            bucket->offset = place->offset;
            bucket->first_place = i;
        }
        bucket->place_count++;
        bucket->bytes = end - bucket->offset;
    }
    // Up to the next bucket, so that buckets cover the padding between parameters too.
    for (uint32_t i = 0; i < count; i++)
        list[i].bytes = (i + 1 < count ? list[i + 1].offset : plan->reduced_bytes) - list[i].offset;
    out->list = list;
    out->count = count;
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
    while (bucket < buckets->count &&
           place >= buckets->list[bucket].first_place + buckets->list[bucket].place_count)
        bucket++;
    return bucket;
}

void ls_buckets_finish(struct ls_buckets *buckets)
{
    free(buckets->list);
    *buckets = (struct ls_buckets){0};
}
