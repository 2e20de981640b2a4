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
// Only in host memory; not elastic, not with --reproducible, --wire, a loss scale or averages of
// weights.
#ifndef LS_PLUGIN_ROUNDS_H
#define LS_PLUGIN_ROUNDS_H

#define LS_ROUND_NOTES 64 // floats

#endif
