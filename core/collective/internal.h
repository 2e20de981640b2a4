// SPDX-License-Identifier: Apache-2.0
// What the files behind communicator.h share.
#ifndef LS_COLLECTIVE_INTERNAL_H
#define LS_COLLECTIVE_INTERNAL_H

#include "core/base/trace.h"
#include "core/collective/communicator.h"
#include "core/schedule/compile.h"
#include "core/collective/executor.h"
#include "core/collective/recorder.h"
#include "core/base/watchdog.h"

#include <pthread.h>

// A rank's side of a device that computes beside the caller. Lives as long as the group, because
// streams and events of one rank are waited for by others.
struct ls_rank_place {
    struct ls_device *device; // NULL: host memory
    void *stream; // the communicator's
    struct ls_event *begun; // what was on the device's own stream when a run was started
    struct ls_event *replayed; // likewise after a replay
    struct ls_event *drained;
    _Atomic uint64_t meetings; // ls_communicator_barrier(), so far
};

// What the ranks of one process have in common.
struct ls_communicator_group {
    const struct ls_plugin *collective;
    const struct ls_host *collective_host;
    char *collective_text; // as a command line names it; NULL: by its name
    const struct ls_collective_interface *algorithm;
    const struct ls_plugin *transport; // NULL: none
    const struct ls_transport_interface *interface; // NULL: none
    struct ls_communicator_place *given; // one a rank of this process; NULL: host memory
    struct ls_rank_place *places; // likewise
    uint32_t *hosts; // number of each rank's host
    struct ls_surroundings around; // that schedules are made for; its hosts are always there
    pthread_mutex_t lock; // of what follows
    // One a rank of this process, where the collective is native; NULL: closed.
    struct ls_collective **libraries;
    struct ls_collective **states; // their memory, until all are closed
    uint32_t world;
    uint32_t first_rank, count; // ranks of this process
    uint64_t deadline_ns;
    uint64_t segment_bytes;
    char *name; // "gradients.0.1": of this communicator alone
    char *scope; // "gradients": in messages
    pthread_mutex_t failure_lock; // held by the first rank that fails while it says why
    _Atomic uint32_t failed; // it has
    _Atomic uint32_t lost; // 1 + the rank that the transport had lost then; 0: it knew of none
    void (*ask)(void *context, uint64_t *begun); // as struct ls_communicator_options says
    void *ask_context;
    uint64_t *answers; // of each rank: calls begun; UINT64_MAX: not known. NULL: nobody was asked
    _Atomic uint32_t open;
    _Atomic uint32_t stuck; // a device does not end what is on a stream, also after an abort
    struct ls_flight_recorder *recorders; // of each rank of this process; others ask (ask.c)
    bool unproven; // as struct ls_communicator_options says
    _Atomic uint32_t checks; // bit i: enum ls_schedule_check i, of some plan
    struct ls_expectation expectation; // not started where nothing is described or checked
    pthread_mutex_t proof_lock; // of what follows
    struct ls_proof *proofs; // a list
    uint64_t proven_steps; // so far
    bool said_orders; // that ranks add in different orders
    _Atomic uint64_t check_ns; // spent on proofs, and on known answers by rank 0
};

// A plan of calls without one (cached_plans.c).
struct ls_cached_plan {
    struct ls_collective_plan *plan;
    uint64_t turn; // of the communicator, when it was used last
    bool used; // started and not waited for
};

struct ls_communicator {
    struct ls_communicator_group *group;
    uint32_t rank;
    struct ls_flight_recorder *recorder; // of this rank
    const struct ls_host *tried; // with which plans are made while the tuner measures; else NULL
    enum ls_status status; // LS_OK, or LS_ABORTED once anything failed
    struct ls_transport *transport; // NULL in a world of one, and where the collective is native
    struct ls_collective *library; // NULL: the collective describes itself
    struct ls_rank_place *place; // NULL: the caller's thread does all work
    // Its memory has handles instead of addresses, which a schedule cannot reach: a run works on a
    // copy in host memory. NULL: buffers are where they are reduced.
    struct ls_device *behind;
    bool recording;
    uint64_t refreshes;
    struct ls_collective_plan **recorded; // that a replay runs
    uint32_t recorded_count;
    struct ls_collective_plan *
        *unsynchronized; // whose last run may not be over, in the order in which they ended
    uint32_t unsynchronized_count;
    uint64_t settled; // runs below this number are over
    struct ls_message_numbers numbers;
    uint64_t sequence; // of the next call
    uint64_t deadline_ns; // of each wait
    bool late; // it ended because a deadline passed
    struct ls_collective_plan **running; // in the order in which they began
    uint32_t running_count, running_capacity;
    uint64_t given, ended; // operations of a native collective in host memory
    void **taken; // memory of a native collective
    uint32_t taken_count;
    struct ls_transfer **waiting; // room for all pending transfers of all plans
    uint32_t operation_count; // of all plans
    struct ls_communication_times times;
    struct ls_cached_plan *cached; // LS_CACHED_PLANS; NULL: none yet
    uint32_t cached_count, known_count;
    uint64_t turn;
    struct ls_call_signature *known; // calls whose known answer was right
    // Of runs under way, and of the messages sent and received; NULL: none yet, or nothing is
    // recorded.
    struct ls_trace_track *track, *sends, *receives;
};

struct ls_collective_plan {
    struct ls_communicator *communicator;
    struct ls_call_signature signature;
    struct ls_compiled_schedule compiled;
    struct ls_executor *executor; // NULL: the collective is native
    enum ls_schedule_check check;
    struct ls_memory buffer;
    struct ls_memory scratch;
    void *copy; // in host memory, of a buffer that is in memory of `behind`; else NULL
    uint16_t *halves; // of data and scratch, where messages are of 16 bits
    // Of a native collective that sends halves; else NULL.
    struct ls_kernel *round, *widen;
    struct ls_memory sent; // the halves
    struct ls_event *done; // the last run, on the communicator's stream; NULL in host memory
    const struct ls_event *over; // the same, or what a replay ends with
    uint64_t sequence; // of the last run
    uint64_t blocked_since; // time of the clock when it moved last; 0: nobody has waited for it yet
    uint64_t number; // of the last run, among those that the library was given
    bool running;
    bool keeps_infinite; // as struct ls_communicator_call says
    bool has_room; // is counted in the communicator's capacities
    uint64_t met; // refreshes at the last run that was a first one
    enum ls_status result; // of the last run
    // Of a timeline; NULL: was made while nothing was recorded.
    const struct ls_trace_label *run_span, *wait_span;
    const char *algorithm; // that draws its schedule
    struct ls_executor_slices messages; // no labels: likewise
    uint64_t started_ns; // while the run is recorded
};

// ---- ask.c: what is known of the calls of any rank ----

enum ls_rank_state {
    LS_RANK_UNKNOWN, // it belongs to another process, which was not asked, or has not answered
    LS_RANK_ABSENT, // it has not made the call
    LS_RANK_CALLED,
};

// Asks the ranks of other processes, which takes a moment. `group->failure_lock` is held.
void ls_ask_all(struct ls_communicator_group *group);
enum ls_rank_state ls_ask_state(const struct ls_communicator_group *group, uint32_t rank,
                                uint64_t sequence);
// Copies the rank's call `sequence`; false: it is not known, or no longer.
bool ls_ask_call(const struct ls_communicator_group *group, uint32_t rank, uint64_t sequence,
                 struct ls_call_signature *out);

// ---- message_trace.c: messages in a timeline ----

// Without effect where nothing is recorded, or without memory.
void ls_messages_name(struct ls_collective_plan *plan);
void ls_messages_record(struct ls_collective_plan *plan); // the run that begins now
void ls_messages_forget(struct ls_collective_plan *plan);

// ---- stream_queue.c: runs on a communicator's stream that may not be over ----

// Puts the run of a plan at the end of the list; `over` ends with it. A plan is in the list once.
void ls_stream_add(struct ls_collective_plan *plan, const struct ls_event *over);
void ls_stream_remove(struct ls_communicator *communicator, const struct ls_collective_plan *plan);
// The first run that is not over; NULL: there is none. All runs with lower numbers are over.
struct ls_collective_plan *ls_stream_find_pending(const struct ls_communicator *communicator);
// Tells the flight recorder which runs are over.
void ls_stream_note_over(struct ls_communicator *communicator);
// Waits, not for long, until nothing is on the communicator's stream.
void ls_stream_drain(struct ls_communicator *communicator);
// Between two looks of a wait. For LS_STREAM_BRISK_NS it only yields; then it sleeps a little, and
// the wait also looks whether others have called the same.
#define LS_STREAM_BRISK_NS UINT64_C(2000000)
void ls_stream_pause(uint64_t waited_ns);

// ---- streams.c: runs on a device; each call does nothing where there is none ----

LS_STATUS ls_streams_open(struct ls_communicator_group *group);
void ls_streams_close(struct ls_communicator_group *group);
// What is put on the communicator's stream from now on comes after what is on the device's own.
enum ls_status ls_stream_begin(struct ls_communicator *communicator);
// All of the run is on the communicator's stream.
enum ls_status ls_stream_end(struct ls_collective_plan *plan);
// The first run, after a refresh, of a plan whose collective is native, before and after: the host
// puts nothing else on any device of this process meanwhile. What runs for the first time is loaded
// by CUDA's driver, which then waits for a device under locks that others need; a kernel of a
// library, which waits for its peers on other devices, must not be among what it waits for.
enum ls_status ls_stream_barrier(struct ls_collective_plan *plan);
enum ls_status ls_stream_part(struct ls_collective_plan *plan);
// What is put on the device's own stream from now on comes after the last run.
enum ls_status ls_stream_follow(struct ls_collective_plan *plan);
void ls_stream_forget(struct ls_collective_plan *plan); // it is destroyed

// ---- library.c: collectives that run themselves ----

bool ls_collective_is_native(const struct ls_collective_interface *algorithm);
// Whether it can work on these ranks' devices; opens nothing.
LS_STATUS ls_library_check(const struct ls_communicator_options *options, const char *name);
LS_STATUS ls_library_open(const struct ls_communicator_options *options,
                          struct ls_communicator_group *group,
                          struct ls_communicator **communicators);
void ls_library_close(struct ls_communicator *communicator);
void ls_library_abort(struct ls_communicator_group *group); // on all ranks
// What a plan needs whose values travel in 16 bits; `halves` as struct ls_communicator_call says.
LS_STATUS ls_library_open_wire(struct ls_collective_plan *plan, struct ls_memory halves);
enum ls_status ls_library_run(struct ls_collective_plan *plan);
// Whether operations go on beside the rank's thread, and the last run of the plan has ended.
bool ls_library_overlaps(const struct ls_communicator *communicator);
enum ls_status ls_library_done(struct ls_collective_plan *plan, bool *out);
enum ls_status ls_library_poll(struct ls_communicator *communicator);
// What a rank sends in a ring, which the library need not be.
uint64_t ls_library_bytes(const struct ls_collective_plan *plan);

// ---- cached_plans.c ----

void ls_communicator_forget_calls(struct ls_communicator *communicator);

// ---- copies.c: buffers that have handles instead of addresses ----

// Whether the collective works on copies of what is in the device's memory.
bool ls_works_on_copies(const struct ls_collective_interface *algorithm,
                        const struct ls_device *device);
// Between a buffer of a call and host memory. [replica thread]
enum ls_status ls_communicator_copy(const struct ls_communicator *communicator, struct ls_memory to,
                                    struct ls_memory from, uint64_t bytes);
// Memory for the copy of a plan's buffer; and before and after a run. Nothing where none is needed.
enum ls_status ls_plan_open_copy(struct ls_collective_plan *plan);
enum ls_status ls_plan_fetch(const struct ls_collective_plan *plan);
enum ls_status ls_plan_bring_back(const struct ls_collective_plan *plan);

// ---- plan.c ----

// The next run works on another buffer, of as many elements. Not while it runs.
LS_STATUS ls_collective_plan_move(struct ls_collective_plan *plan, struct ls_memory buffer);

// ---- proof.c ----

// What call->rank does, out of schedules that were verified for all ranks and are kept until the
// group is closed; the first rank that asks verifies them, the others wait. `halves`: also that
// messages of 16 bits leave equal bits on all ranks; LS_UNAVAILABLE when they do not.
// LS_CHECK_MISSING: too large for that. LS_FAILED, logged once, when it is wrong.
enum ls_status ls_proof_draw(struct ls_communicator_group *group,
                             const struct ls_collective_call *call, bool halves,
                             struct ls_drawn_schedule *out, enum ls_schedule_check *check);
void ls_proofs_destroy(struct ls_communicator_group *group);

// ---- failure.c ----

// Ends everything on all ranks. Returns `status`, once no peer touches this rank's memory.
enum ls_status ls_communicator_give_up(struct ls_communicator *communicator, enum ls_status status);

// Each says what happened, unless another rank already has, and gives up; returns how the call
// ends.
enum ls_status ls_communicator_fail(struct ls_communicator *communicator,
                                    const struct ls_collective_plan *plan, enum ls_status status);
enum ls_status ls_communicator_fail_mismatch(struct ls_communicator *communicator,
                                             const struct ls_collective_plan *plan, uint32_t peer);
enum ls_status ls_communicator_fail_deadline(struct ls_communicator *communicator,
                                             const struct ls_collective_plan *plan,
                                             uint64_t waited_ns);

// The plan's known answer is another one: `wrong` elements on this rank, the first of which is
// `first`.
enum ls_status ls_communicator_fail_answer(struct ls_communicator *communicator,
                                           const struct ls_collective_plan *plan, uint64_t wrong,
                                           uint64_t first);

// A finite value of this rank is too large for the messages' type.
enum ls_status ls_communicator_fail_overflow(struct ls_communicator *communicator,
                                             const struct ls_collective_plan *plan);

// A rank that made this call differently; false: none is known to have.
bool ls_communicator_find_mismatch(struct ls_communicator *communicator,
                                   const struct ls_collective_plan *plan, uint32_t *rank,
                                   struct ls_call_signature *theirs);

const char *ls_call_text(const struct ls_call_signature *signature, char text[static 160]);

#endif
