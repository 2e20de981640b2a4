// SPDX-License-Identifier: Apache-2.0
// The cluster: the workers (processes) of a training, the ranks that each of them has, and one call
// in which they tell each other something. There is one worker today; nobody but this file may rely
// on that. A rank is a replica of the whole cluster; a local index is a replica of this worker.
#ifndef LS_CLUSTER_CLUSTER_H
#define LS_CLUSTER_CLUSTER_H

#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct ls_cluster;

// This process alone, with `count` replicas (at least 1): ranks 0 .. count - 1 on one host.
LS_STATUS ls_cluster_open_alone(uint32_t count, struct ls_cluster **out);
void ls_cluster_close(struct ls_cluster *cluster); // takes NULL

uint32_t ls_cluster_worker(const struct ls_cluster *cluster); // number of this worker, from 0
uint32_t ls_cluster_workers(const struct ls_cluster *cluster);
uint32_t ls_cluster_first_rank(const struct ls_cluster *cluster); // of this worker
uint32_t ls_cluster_count(const struct ls_cluster *cluster); // ranks of this worker
uint32_t ls_cluster_world(const struct ls_cluster *cluster); // ranks of all workers
// The number of the host that each rank runs on, `world` numbers; hosts count from 0 in the order
// in which ranks first name them. Borrowed.
const uint32_t *ls_cluster_hosts(const struct ls_cluster *cluster);

// Collects `bytes` bytes of each rank: `mine` has those of this worker's ranks one after the other,
// `all` gets those of all ranks in rank order. Every worker makes the same calls in the same order.
// For what is small and rare: hashes, evaluation sums, fingerprints. [main thread]
LS_STATUS ls_cluster_gather(struct ls_cluster *cluster, const void *mine, size_t bytes, void *all);

#endif
