// SPDX-License-Identifier: Apache-2.0
// The one face of every collective: a communicator per rank, with plans for the buffers that are
// reduced every step. Schedules are drawn and verified when a plan is made; a step only runs them.
// A communicator owns sequence numbers, deadlines, the flight recorder of its last calls, and the
// check that all ranks call the same thing; what differs is named with both sides. [replica thread,
// one per rank]
//
// On a device that computes beside the caller a communicator has a stream of its own. A run is put
// there, after all that the device's own stream had when it was started; what is put on the
// device's own stream after `wait` comes after the run. Nobody waits for the device but
// ls_communicator_synchronize().
#ifndef LS_COLLECTIVE_COMMUNICATOR_H
#define LS_COLLECTIVE_COMMUNICATOR_H

#include "core/base/status.h"
#include "core/collective/endpoints.h"
#include "core/device/device.h"
#include "core/plugin/collective.h"
#include "core/plugin/transport.h"
#include "core/topology/surroundings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_communicator;
struct ls_collective_plan;

// "bfloat16"; "float32" for 0.
const char *ls_wire_text(uint32_t wire);

// Where a rank's buffers are.
struct ls_communicator_place {
    struct ls_device *device; // stays open until all communicators of the same open are closed
};

struct ls_communicator_options {
    const struct ls_plugin *collective; // kind collective
    const struct ls_host *collective_host;
    const char *collective_text; // as a command line names it; NULL: by its name
    const struct ls_plugin
        *transport; // kind transport; NULL: the collective is native, or one rank
    const struct ls_host *transport_host;
    uint32_t world;
    uint32_t first_rank, count; // ranks of this process; count 0: all
    uint64_t deadline_ns; // for every wait
    const char *name; // "gradients"; in messages
    uint64_t
        segment_bytes; // how finely steps are cut; 0: LS_SEGMENT_BYTES (core/schedule/compile.h)
    // One for each rank of this process; NULL: all buffers are host memory.
    const struct ls_communicator_place *places;
    const uint32_t *hosts; // number of each rank's host; NULL: all on one
    // What schedules are made for, where more is known; hosts that it names are not those above.
    // NULL: nothing
    const struct ls_surroundings *around;
    struct ls_exchange exchange; // with the other processes; empty where there are none
    // Writes how many calls each rank of another process has begun, into an array of `world`
    // numbers; those that do not answer soon stay as they are. For the message about a deadline.
    // NULL: nobody can be asked. [replica thread]
    void (*ask)(void *context, uint64_t *begun);
    void *ask_context;
    bool unproven; // for tests of what wrong collectives do when they run: nothing is checked
};

// How it is known that a plan does what it promises.
enum ls_schedule_check {
    LS_CHECK_NONE, // one rank, or the caller asked for no check
    LS_CHECK_VERIFIED, // its schedule was proven, on all ranks
    LS_CHECK_KNOWN_ANSWER, // it was run once on values whose result is known
    LS_CHECK_MISSING, // not yet: it cannot run
};

// The kind of memory (enum ls_memory_kind) in which a collective works on buffers that are in
// memory of `kind`: schedules work on copies in host memory of what has handles for addresses.
// [any thread]
uint32_t ls_collective_memory(const struct ls_collective_interface *algorithm, uint32_t kind);

// All ranks of this process at once; out[i] is rank first_rank + i. Processes open the same
// communicators in the same order. LS_UNAVAILABLE, logged, where the collective cannot work in the
// memory that the buffers have. [main thread]
LS_STATUS ls_communicators_open(const struct ls_communicator_options *options,
                                struct ls_communicator **out);
void ls_communicators_close(struct ls_communicator **communicators,
                            uint32_t count); // NULL entries too

// How the plans were checked, by the weaker way where there are two; LS_CHECK_NONE without plans.
enum ls_schedule_check ls_communicator_check(const struct ls_communicator *communicator);
const char *ls_schedule_check_text(
    enum ls_schedule_check check); // "verified", "known-answer", "none"
uint64_t ls_communicator_check_ns(
    const struct ls_communicator *communicator); // that it took so far

// Prepares an operation on `count` elements of `buffer` (in place), to be run many times.
// `operation` is enum ls_collective_operation, `label` names it in messages ("bucket 0"). `root`
// for broadcast. The schedules of all ranks are verified by the rank that is first, and what was
// verified is what runs: LS_FAILED, logged, names rank, round and elements of what is wrong.
LS_STATUS ls_collective_plan_create(struct ls_communicator *communicator, uint32_t operation,
                                    struct ls_memory buffer, uint64_t count, uint32_t dtype,
                                    uint32_t reduction, uint32_t root, const char *label,
                                    struct ls_collective_plan **out);
// The same, with more said. `call` may have a `wire`: then messages are half as long, and sums are
// of float32 all the same.
struct ls_communicator_call;
LS_STATUS ls_collective_plan_open(struct ls_communicator *communicator,
                                  const struct ls_communicator_call *call, const char *label,
                                  struct ls_collective_plan **out);
// After a plan was made, on all ranks, with nothing under way: where its schedule was too large to
// be verified, or the collective runs itself, runs it once on known values, compares all elements,
// and puts back what the buffer had. LS_FAILED, logged.
LS_STATUS ls_collective_known_answer(struct ls_collective_plan *plan);
void ls_collective_plan_destroy(struct ls_collective_plan *plan);
// Bytes that this rank sends in one run, and, for tests, how many rounds its schedule has. A native
// collective does not say: the bytes are those of a ring then, and the rounds 0.
uint64_t ls_collective_plan_bytes(const struct ls_collective_plan *plan);
uint32_t ls_collective_plan_rounds(const struct ls_collective_plan *plan);

// Without a plan of one's own: an operation on any buffer, for callers that have no model. Plans
// are made when an operation on so many elements comes first, and kept for the next time, with
// other buffers, too. The same calls in the same order on every rank. A communicator is used in
// this way, or with plans; [replica thread]
struct ls_communicator_call {
    uint32_t operation; // enum ls_collective_operation
    uint32_t dtype;
    uint32_t reduction;
    uint32_t root;
    struct ls_memory buffer; // in place; where struct ls_communicator_place says
    uint64_t count;
    // LS_BF16 or LS_F16: what travels is rounded to that, at its sender, too, so that all ranks
    // have equal bits. Only for sums of float32, of a plan of one's own: in host memory by schedules
    // that were verified, in a device's memory by libraries, which then add halves. 0: values
    // travel as they are.
    uint32_t wire;
    struct ls_memory halves; // for libraries: where they are; nowhere: the plan has memory for them
    // The caller asked for a mean of this type, and adds up in a wider one; messages and the check
    // that all ranks call the same say so. Two elements are then one int64. 0: the call is what it
    // says.
    uint32_t mean_of;
    // A value beyond the largest of `wire` becomes infinite, for the caller to find; else the run
    // fails. In a device's memory it always becomes infinite.
    bool keeps_infinite;
};
// Begins it. Several may be under way, LS_CACHED_PLANS at most; the buffer belongs to the
// communicator until ls_communicator_wait_until has ended `out`.
#define LS_CACHED_PLANS 64
LS_STATUS ls_communicator_start(struct ls_communicator *communicator,
                                const struct ls_communicator_call *call,
                                struct ls_collective_plan **out);
// As ls_collective_wait_until.
LS_STATUS ls_communicator_wait_until(struct ls_communicator *communicator,
                                     struct ls_collective_plan *plan, uint64_t end_ns);
// Whether its plan was made before and nobody uses it now, so that to begin it takes a moment.
bool ls_communicator_is_prepared(struct ls_communicator *communicator,
                                 const struct ls_communicator_call *call);

// Memory for buffers of this communicator in which its collective is faster, zeroed; nowhere: it has
// none. Before the first run, by all ranks in the same order and with equal sizes. It is released
// when the communicator is closed, which waits until the device's own stream is done with it.
// [replica thread]
LS_STATUS ls_communicator_allocate(struct ls_communicator *communicator, uint64_t bytes,
                                   struct ls_memory *out);

// Begins one run; the buffer belongs to the communicator until wait returns. Same order on every
// rank.
LS_STATUS ls_collective_start(struct ls_collective_plan *plan);
// Moves what can be moved without waiting; a few nanoseconds when nothing is pending.
LS_STATUS ls_communicator_progress(struct ls_communicator *communicator);
// Ends the run: LS_PEER_LOST after the deadline (names rank, peer, operation, sequence, label, time
// waited), LS_ABORTED when another rank failed. On a device: ends what hosts have to do for it, and
// orders the device's own stream after it; whether the work is over, and went well, is not known
// before the communicator is settled.
LS_STATUS ls_collective_wait(struct ls_collective_plan *plan);

// The same until `end_ns` of the clock (core/base/clock.h): LS_AGAIN when the run is not over by
// then, and to be waited for again. Up to a fifth of a millisecond is passed without sleeping.
LS_STATUS ls_collective_wait_until(struct ls_collective_plan *plan, uint64_t end_ns);

// Of all waits from now on, instead of that of the options. [replica thread]
void ls_communicator_set_deadline(struct ls_communicator *communicator, uint64_t deadline_ns);
// LS_OK, or LS_ABORTED once a run has failed on this rank. [replica thread]
LS_STATUS ls_communicator_status(const struct ls_communicator *communicator);
// The rank to which the transport had lost its connection when a rank of this process failed;
// false: it knew of none. [any thread]
bool ls_communicator_lost(const struct ls_communicator *communicator, uint32_t *rank);
// Whether it failed because a deadline had passed.
bool ls_communicator_is_late(const struct ls_communicator *communicator);

// On a device: waits until the last runs of all plans are over there, for at most the deadline;
// asks the collective meanwhile whether it has failed, and looks whether others have. Fails as
// ls_collective_wait does. To be called before the host waits for what a run has made, as a step's
// sums: the device's own wait would name nobody. In host memory it has nothing to do.
LS_STATUS ls_communicator_synchronize(struct ls_communicator *communicator);
// One look of such a wait, for a caller that waits for the device in another way and has done so
// for `waited_ns` (for sums of an earlier step, say): fails in the same cases, the deadline's only
// when a run is not over. Never waits.
LS_STATUS ls_communicator_poll(struct ls_communicator *communicator, uint64_t waited_ns);

// Before what it works on goes away, recordings too: nothing of it is under way on the device
// afterwards (but on one that hangs). Waits where all is well; after an abort ends what is left.
// [replica thread, or the thread that closes when that is gone]
void ls_communicator_end(struct ls_communicator *communicator);

// Recorded steps. Whether start and wait only put work on streams, so that a device may record
// them.
bool ls_communicator_capturable(const struct ls_communicator *communicator);
// Whether what ranks record is one program of all of them, so that they must record the same.
bool ls_communicator_records_alike(const struct ls_communicator *communicator);
// Between on and off starts and waits are being recorded: they count as no runs, and are not
// settled.
void ls_communicator_record(struct ls_communicator *communicator, bool on);
// What runs next on the device has not run before: no collective is under way on it now, nor until
// each of its plans has run once: the first start of each waits for all ranks, which are threads,
// and for the end. Only for collectives that run themselves, whose kernels wait for each other.
LS_STATUS ls_communicator_refresh(struct ls_communicator *communicator);
// A recording is ready: waits, not for long, until those of all ranks are. CUDA takes memory for
// it, and waits for other GPUs on which the replay of another rank may already wait for this one.
LS_STATUS ls_communicator_barrier(struct ls_communicator *communicator);
// After each replay (all recordings have the same starts): every plan in it has begun one more run,
// in the order of the starts, which is over when all that is on the device's own stream now is.
// Sequence numbers, flight recorder and settle know it.
LS_STATUS ls_communicator_replayed(struct ls_communicator *communicator);

// How many calls this rank has begun. [any thread]
uint64_t ls_communicator_begun(const struct ls_communicator *communicator);

// Makes every wait of every rank return LS_ABORTED soon. [any thread]
void ls_communicator_abort(struct ls_communicator *communicator);

// Nanoseconds spent moving data and waiting since the last call with reset. [replica thread]
struct ls_communication_times {
    uint64_t busy_ns; // moving and reducing
    uint64_t exposed_ns; // inside ls_collective_wait
};
void ls_communicator_times(struct ls_communicator *communicator, int32_t reset,
                           struct ls_communication_times *out);

#endif
