// SPDX-License-Identifier: Apache-2.0
// What a collective plugin implements, in one of two ways.
//
// One that *describes* its algorithm has one pure function: for each rank it writes, round by
// round, which ranges are sent, received, reduced and copied. The host runs that schedule over any
// transport and any memory; because it is data, it can also be verified, simulated and drawn. It
// has no instances.
//
// A *native* one (a library's) is handed whole operations instead. The life of a rank:
//   open    [main thread] all ranks of this process at once
//   run     [thread of the rank] begins an operation; all ranks make the same calls, in order
//   done    [thread of the rank] host memory only: how many of them have ended
//   poll    [thread of the rank] whether what is under way will end at all
//   abort   [any thread] ends what is under way
//   close   [any thread] once for each rank; the host frees the memory of all ranks of an open
//           after the last of them is closed
//
// What a schedule means:
// - A round sees memory as the round before left it: its steps run at the same time. Therefore no
//   element may be written by one step and read or written by another of the same round, with one
//   exception: several reductions into one range apply in the order written.
// - The n-th message that a rank sends to a peer is the n-th that the peer receives from it; both
//   must have the same count. A send ends only when it is received.
// - Steps of count 0 are dropped, on both sides.
// - The host runs later rounds early, and in segments, where the ranges allow it; the values do not
//   depend on it.
#ifndef LS_PLUGIN_COLLECTIVE_H
#define LS_PLUGIN_COLLECTIVE_H

#include "core/plugin/device.h"
#include "core/plugin/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

// `count` is that of the whole buffer, which every rank has in full; rank r's part of it is
// ls_chunk(call, r). What lies outside the result afterwards is undefined.
enum ls_collective_operation {
    LS_ALL_REDUCE = 1, // every rank: the reduction of all
    LS_REDUCE_SCATTER = 2, // rank r: its part of the reduction
    LS_ALL_GATHER = 3, // every rank: part r as rank r had it, for all r
    LS_BROADCAST = 4, // every rank: what `root` had
    LS_REDUCE = 5, // `root`: the reduction of all
};

// What is to be described. All values but `rank` are equal on all ranks; so must be what follows
// from them.
struct ls_collective_call {
    uint32_t struct_size;
    uint32_t operation; // enum ls_collective_operation
    uint32_t rank; // 0 .. world - 1
    uint32_t world; // at least 1
    uint32_t root; // of broadcast and reduce; else 0
    uint32_t element_bytes; // size of an element
    uint64_t count; // elements, may be 0
    // The host of each rank, `world` numbers; hosts are numbered from 0 in the order in which ranks
    // first name them. NULL: unknown. What cannot be done with ranks spread like that is
    // LS_UNSUPPORTED.
    const uint32_t *hosts;
    const struct ls_host *host; // for options and messages
};

// Where a range is.
enum ls_range_buffer {
    LS_BUFFER_DATA = 0, // input when the call begins, output when it has ended
    LS_BUFFER_SCRATCH = 1, // what ls_scratch() asked for; undefined at first
};

// `count` elements from element `offset` of a buffer.
struct ls_range {
    uint32_t buffer; // enum ls_range_buffer
    uint32_t reserved;
    uint64_t offset; // in elements
    uint64_t count; // elements
};

enum ls_step_kind {
    LS_STEP_SEND = 1, // `range` to `peer`
    LS_STEP_RECEIVE = 2, // from `peer` into `range`
    LS_STEP_RECEIVE_AND_REDUCE = 3, // range = range (+) what comes from `peer`
    LS_STEP_REDUCE = 4, // range = range (+) from, on this rank
    LS_STEP_COPY = 5, // range = from, on this rank
};

// One action of a rank within a round.
struct ls_step {
    uint32_t struct_size;
    uint32_t kind; // enum ls_step_kind
    uint32_t peer; // a rank other than this one; 0 where there is none
    uint32_t reserved;
    struct ls_range range; // what is sent, received, reduced into or copied to
    struct ls_range from; // of reduce and copy; as long as `range`
};

// The schedule of one rank while it is written: a table of the host. The first failure is kept:
// later calls return it and do nothing, and the host reports it, so a plugin may ignore what they
// return.
struct ls_schedule {
    uint32_t struct_size;
    uint32_t reserved;
    void *context; // the host's own
    // Appends a step to the round under way.
    int32_t (*add)(struct ls_schedule *schedule, const struct ls_step *step);
    // The next step belongs to the next round.
    int32_t (*end_round)(struct ls_schedule *schedule);
    // This rank needs `count` elements of scratch.
    int32_t (*scratch)(struct ls_schedule *schedule, uint64_t count);
};

// ---- Native collectives ----

struct ls_collective; // one rank's; each plugin's own: `state_bytes` of zeroed memory

// A rank of this process.
struct ls_collective_member {
    uint32_t struct_size;
    uint32_t rank; // 0 .. world - 1
    const struct ls_device_interface *ops; // in the size of the host's headers
    struct ls_device *device; // whose memory holds the buffers; NULL: host memory
    void *stream; // of `device`: all operations are put there, in order. NULL: host memory
};

// What a native collective is opened with.
struct ls_collective_config {
    uint32_t struct_size;
    uint32_t world; // ranks of the whole job
    uint32_t count; // of this process
    uint32_t reserved;
    const struct ls_collective_member *members; // of this process
    const uint32_t
        *hosts; // the host of each rank, `world` numbers, as in struct ls_collective_call
    uint64_t deadline_ns; // the longest that `open` may wait for the others
    // Out of band: every process gives `bytes` for each of its ranks (in the order of `members`)
    // and gets those of all ranks, in the order of the ranks. Blocks; LS_PEER_LOST after the
    // deadline. Only in `open`.
    void *context;
    // As said above `context`.
    int32_t (*exchange)(void *context, const void *own, uint64_t bytes, void *all);
    // LS_OK, or that waiting for the others is in vain: a process is lost (LS_PEER_LOST), which the
    // host says, or this one has given up. For waits in `open` and `close`, which `abort` does not
    // end. NULL: there is one process. [any thread]
    int32_t (*check)(void *context);
};

// As struct ls_collective_call says it; in place.
struct ls_collective_run {
    uint32_t struct_size;
    uint32_t operation; // enum ls_collective_operation
    uint32_t dtype; // enum ls_dtype
    uint32_t reduction; // enum ls_reduction; a mean is rounded once
    uint32_t root; // of broadcast and reduce; else 0
    uint32_t reserved;
    void *buffer; // input when the operation begins, output when it has ended
    uint64_t count; // elements of the whole buffer, may be 0
};

// The table of a collective plugin. It has `build_schedule`, or the functions of a native
// collective.
struct ls_collective_interface {
    uint32_t struct_size;
    uint32_t operations; // bit i: enum ls_collective_operation i; all-reduce is required
    uint32_t dtypes; // bit i: enum ls_dtype i; 0: all
    uint32_t reductions; // bit i: enum ls_reduction i; 0: all
    uint32_t deterministic; // 1: equal bits on all ranks, and in every run with the same input
    uint32_t maximum_world; // 0: any
    uint32_t reserved[2];

    // Writes what `call->rank` does, round by round, into `schedule`. Pure: the same call and
    // options give the same schedule; no state, no input or output. Options that do not fit the
    // call are LS_USAGE through call->host->fail. NULL: it is native. [any thread]
    int32_t (*build_schedule)(const struct ls_collective_call *call, struct ls_schedule *schedule);

    // All of what follows is for native collectives, else 0 and NULL.
    uint32_t memory_kinds; // bit i: enum ls_memory_kind i, that buffers may be in
    uint32_t stream_families; // bit i: enum ls_stream_family i, that it puts work on
    uint32_t scope; // enum ls_transport_scope: the widest it serves
    uint32_t one_rank_a_device; // 1: no two ranks may be on one physical device
    uint32_t capturable; // 1: `run` only puts work on the stream, so that a device may record it
    uint32_t reserved2; // zero
    uint64_t state_bytes; // of struct ls_collective

    // collectives[i], zeroed, is to be members[i]. When it fails, nothing is left open.
    int32_t (*open)(const struct ls_host *host, const struct ls_collective_config *config,
                    struct ls_collective *const *collectives);
    // Nothing of it is under way on a stream any more, and recordings that have operations of it
    // are released; or it was aborted. What all ranks of a process must do together is done in the
    // last of the closes.
    void (*close)(struct ls_collective *collective);
    // Puts one operation on the stream and returns. In host memory: begins it, where there is
    // `done`; else the result is there when it returns.
    int32_t (*run)(struct ls_collective *collective, const struct ls_collective_run *run);
    // Optional, for host memory: moves on without waiting, and writes how many of the operations
    // that this rank was given since `open` have ended, in their order. LS_OK, or why no more will
    // end. With it operations overlap with what the rank computes meanwhile.
    int32_t (*done)(struct ls_collective *collective, uint64_t *ended);
    // LS_OK; or why what is under way will not end: LS_PEER_LOST, LS_FAILED (through host->fail),
    // LS_ABORTED. Cheap, because it is asked often while somebody waits.
    int32_t (*poll)(struct ls_collective *collective);
    // What is under way ends soon, with undefined results; `run` and `poll` then return LS_ABORTED.
    void (*abort)(struct ls_collective *collective);
    // What runs, for the report: "NCCL 2.28.9". NUL-terminated. [any thread]
    void (*about)(char *text, uint64_t bytes);
};

// ---- Helpers ----

// Chunks begin at multiples of this many elements, so that ranks do not share cache lines.
#define LS_CHUNK_ALIGNMENT 64

// Part `index` of `parts` of a range of the data buffer: as even as whole multiples of
// LS_CHUNK_ALIGNMENT allow. Parts may be empty.
static inline struct ls_range ls_part(struct ls_range range, uint64_t index, uint64_t parts)
{
    const uint64_t unit = LS_CHUNK_ALIGNMENT;
    const uint64_t blocks = range.count / unit + (range.count % unit != 0);
    const uint64_t each = blocks / parts, more = blocks % parts;
    uint64_t first = (each * index + (index < more ? index : more)) * unit;
    uint64_t end = first + (each + (index < more)) * unit;
    if (first > range.count)
        first = range.count;
    if (end > range.count)
        end = range.count;
    range.offset += first;
    range.count = end - first;
    return range;
}

// The largest divisor of `world` that is not above its square root: the shorter side of a grid of
// all ranks.
static inline uint64_t ls_divisor_near_root(uint64_t world)
{
    uint64_t divisor = 1;
    for (uint64_t i = 2; i * i <= world; i++)
        if (world % i == 0)
            divisor = i;
    return divisor;
}

// `count` elements of the data buffer from element `offset`.
static inline struct ls_range ls_data_range(uint64_t offset, uint64_t count)
{
    struct ls_range range = {LS_BUFFER_DATA, 0, offset, count};
    return range;
}

// The same of the scratch buffer.
static inline struct ls_range ls_scratch_range(uint64_t offset, uint64_t count)
{
    struct ls_range range = {LS_BUFFER_SCRATCH, 0, offset, count};
    return range;
}

// Chunk `index` (taken modulo the world) of the data buffer: rank `index`'s part.
static inline struct ls_range ls_chunk(const struct ls_collective_call *call, uint64_t index)
{
    return ls_part(ls_data_range(0, call->count), index % call->world, call->world);
}

// Appends a step of any kind; the functions below are for one kind each.
static inline int32_t ls_add_step(struct ls_schedule *schedule, uint32_t kind, uint32_t peer,
                                  struct ls_range range, struct ls_range from)
{
    struct ls_step step = {(uint32_t)sizeof(struct ls_step), kind, peer, 0, range, from};
    return schedule->add(schedule, &step);
}

// Sends `range` to rank `peer`.
static inline int32_t ls_send(struct ls_schedule *schedule, uint32_t peer, struct ls_range range)
{
    return ls_add_step(schedule, LS_STEP_SEND, peer, range, ls_data_range(0, 0));
}

// Receives `range` from rank `peer`.
static inline int32_t ls_receive(struct ls_schedule *schedule, uint32_t peer, struct ls_range range)
{
    return ls_add_step(schedule, LS_STEP_RECEIVE, peer, range, ls_data_range(0, 0));
}

// Receives from rank `peer` and reduces into `range`.
static inline int32_t ls_receive_and_reduce(struct ls_schedule *schedule, uint32_t peer,
                                            struct ls_range range)
{
    return ls_add_step(schedule, LS_STEP_RECEIVE_AND_REDUCE, peer, range, ls_data_range(0, 0));
}

// Reduces `from` into `range` on this rank.
static inline int32_t ls_reduce(struct ls_schedule *schedule, struct ls_range range,
                                struct ls_range from)
{
    return ls_add_step(schedule, LS_STEP_REDUCE, 0, range, from);
}

// Copies `from` to `range` on this rank.
static inline int32_t ls_copy(struct ls_schedule *schedule, struct ls_range range,
                              struct ls_range from)
{
    return ls_add_step(schedule, LS_STEP_COPY, 0, range, from);
}

// Ends the round: steps of one round run side by side, rounds one after the other.
static inline int32_t ls_end_round(struct ls_schedule *schedule)
{
    return schedule->end_round(schedule);
}

// Asks for `count` elements of scratch.
static inline int32_t ls_scratch(struct ls_schedule *schedule, uint64_t count)
{
    return schedule->scratch(schedule, count);
}

#ifdef __cplusplus
}
#endif

#endif
