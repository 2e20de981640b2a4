// SPDX-License-Identifier: Apache-2.0
// Which part of the variables is on which server: large variables are split by ranges, small ones
// kept whole and spread by size. The model is TensorFlow's MinSizePartitioner (at most one shard a
// server, none smaller than a least size, the remainder to the first shards) with its greedy
// placement by bytes. Pure: the same call gives the same plan, so workers and servers each make
// their own.
#ifndef LS_PARAMETER_SERVER_SHARDS_H
#define LS_PARAMETER_SERVER_SHARDS_H

#include "core/plugin/plugin.h"

// A range of a flat buffer, in floats.
struct range {
    uint64_t first, count;
};

struct shard {
    struct range range;
    uint32_t bucket; // the one that has it whole
    uint32_t server;
};

// Shards in the order of their memory, so those of a bucket, and those of a bucket on one server,
// are neighbours.
struct shard_plan {
    struct shard *shards; // to release with the host
    uint32_t count;
    uint64_t largest; // floats of the largest
};

// Cuts are at multiples of so many floats from the variable's begin, so that a shard begins on a
// line of the cache as its variable does.
#define SHARD_GRAIN UINT64_C(16)

// Parts of a variable of `count` floats.
uint32_t shard_parts(uint64_t count, uint64_t least_bytes, uint32_t servers);
// Part `index` of them.
struct range shard_part(struct range variable, uint32_t parts, uint32_t index);

// `variables` and `buckets` are sorted and do not overlap; each variable is in one bucket whole.
// LS_BAD_INPUT: it does not; LS_OUT_OF_MEMORY. With at least as many shards as servers, each server
// has one.
int32_t shard_plan_create(const struct ls_host *host, const struct range *variables,
                          uint32_t variable_count, const struct range *buckets,
                          uint32_t bucket_count, uint64_t least_bytes, uint32_t servers,
                          struct shard_plan *out);

#endif
