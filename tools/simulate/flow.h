// SPDX-License-Identifier: Apache-2.0
// The least time that any schedule needs for the bytes of an operation on a graph, from maximum
// flows (the smallest cuts). A buffer has n bytes, there are N ranks, and B+(S) is the bandwidth of
// the links that leave a set S of vertices:
//
//   all-gather      n / N max over S without all ranks of |ranks in S| / B+(S); exact: trees that reach it exist
//                   (ForestColl: Zhao et al., arXiv 2402.06787). Reduce-scatter: the same with all links turned round
//   all-reduce      n / C, C the smallest cut between any two ranks: each side needs the sum of the other; or
//                   2 (N - 1) n over the bandwidth of all ranks, whichever is larger (Patarasuk and Yuan, 2009)
//   all-to-all      n (N - 1) / N / C
//   broadcast       n / the smallest cut between the root and another rank (Edmonds, 1973), and so reduce, turned round
//
// [any thread]
#ifndef LS_TOOLS_SIMULATE_FLOW_H
#define LS_TOOLS_SIMULATE_FLOW_H

#include "core/topology/link_graph.h"

// More flows than these take too long: they go to so many ranks, evenly spread, and what comes out
// is still a bound.
#define LS_FLOWS_MOST 512

// `operation`: enum ls_collective_operation. Ranks 0 .. world - 1 take part (two or more), others
// only pass on. `out`: seconds.
LS_STATUS ls_flow_bound(const struct ls_link_graph *graph, uint32_t world, uint32_t operation,
                        uint32_t root, double bytes, double *out);

#endif
