// SPDX-License-Identifier: Apache-2.0
// Rounds, for strategies whose replicas train weights of their own and bring them together only now
// and then (local SGD, DiLoCo). core/plugin/strategy.h includes this header.
//
// Such a strategy sets `rounds` in its table. The host then keeps, beside the parameters of each
// replica, which are the replica's own:
//   LS_REPLICA_ROUND        the weights of the last round, which it keeps equal on all ranks
//   LS_REPLICA_MOMENTUM     of the outer optimizer; equal on all ranks, zeros at first
//   LS_REPLICA_DIFFERENCE   where the strategy puts what collectives->prepare reduces
//   LS_REPLICA_NOTES        LS_ROUND_NOTES floats of the replica, for counters; zeros at first
// The first three are flat buffers. When the parameters are equal for the first time, and when a
// program sets variables, the host copies them to LS_REPLICA_ROUND; in the second case it zeros the
// notes, too, as a new round begins.
//
// Evaluation, checkpoints, hashes and whoever reads weights see those of the last round: after
// `synchronise` the host exchanges LS_REPLICA_PARAMETERS and LS_REPLICA_ROUND, and exchanges them
// back before the next begin_step. So the round goes on, and no hook sees them exchanged.
//
// A checkpoint has all of these, parameters and states of each rank among them, and is taken after
// `synchronise`: nothing may be under way then, and what the strategy has to know afterwards is in
// the notes. In the same world a training goes on to the bit. In another one the ranks that were
// not there begin with what rank 0 had. [replica thread]
//
// Elastic runs need `workers_changed` of the table, and one replica a worker. A step is complete
// when end_step returns LS_OK: where host->elastic is 1 and only an exchange behind the updates
// fails with LS_ABORTED or LS_PEER_LOST, end_step may return LS_OK, and the next hook that failure,
// so that no batch is trained twice. The strategy counts in notes[LS_ROUND_NOTE_TURNS] how many
// exchanges it has applied. The furthest rank is the one with the most steps, and of these with the
// most turns; ranks differ by one at most. When workers have changed, LS_REPLICA_ROUND, _MOMENTUM
// and _DIFFERENCE of all ranks are those of the furthest; parameters, optimizer states and notes
// are still the replica's own. A new worker has the weights of the round as its parameters, the
// optimizer states of the furthest and notes of zeros. Then `workers_changed` is called on all
// ranks.
//
// Only in host memory; not with --reproducible, --wire, a loss scale or averages of weights, and
// elastic not with a filter.
#ifndef LS_PLUGIN_ROUNDS_H
#define LS_PLUGIN_ROUNDS_H

#include <stdint.h>

#define LS_ROUND_NOTES 64 // floats
#define LS_ROUND_NOTE_TURNS 3 // the note that counts exchanges; zero without `workers_changed`

// What `workers_changed` gets. Borrowed, for the call.
struct ls_round_change {
    uint32_t struct_size;
    // The row of `notes` with those of the furthest, behind those of the ranks: it may be lost by now.
    uint32_t furthest;
    const float *notes; // LS_ROUND_NOTES of each rank that is there now, as they were kept
    // To be filled in, alike on all ranks: how many examples were trained, or counted in steps that
    // are complete, whose changes reach no round.
    double *left_out;
};

#endif
