// SPDX-License-Identifier: Apache-2.0
// What a collective plugin implements. There are two ways.
//
// A plugin that *describes* its algorithm has one pure function. For each rank it writes, round by
// round, which ranges are sent, received, reduced and copied. The host runs that schedule over any
// transport and any memory; because the schedule is data, the host can also verify, simulate and
// draw it. Such a plugin has no instances.
//
// A *native* plugin (one that wraps a library) gets whole operations instead. The life of a rank:
//   open    [main thread] all ranks of this process at once
//   run     [thread of the rank] begins an operation; all ranks make the same calls, in order
//   done    [thread of the rank] host memory only: how many of them have ended
//   poll    [thread of the rank] whether what is under way will end at all
//   abort   [any thread] ends what is under way
//   allocate, release   memory that the library knows, for later buffers; optional
//   close   [any thread] once for each rank; the host frees the memory of all ranks of an open
//           after the last of them is closed
//
// What a schedule means:
// - The steps of a round run at the same time, and see memory as the round before left it.
//   Therefore no step may write an element that another step of the same round reads or writes,
//   with one exception: several reductions into one range are applied in the order in which they
//   are written.
// - The n-th message that a rank sends to a peer is the n-th that the peer receives from it; both
//   sides must name the same count. A send ends only when the peer has received it.
// - Steps of count 0 are dropped, on both sides.
// - The host may run later rounds early, and in segments, if the ranges allow it; this does not
//   change the values.
#ifndef LS_PLUGIN_COLLECTIVE_H
#define LS_PLUGIN_COLLECTIVE_H

#include "core/plugin/device.h"
#include "core/plugin/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

// Every rank has the whole buffer of `count` elements; rank r's part of it is ls_chunk(call, r).
// Afterwards everything but the result is undefined.
enum ls_collective_operation {
    LS_ALL_REDUCE = 1, // every rank: the reduction of all
    LS_REDUCE_SCATTER = 2, // rank r: its part of the reduction
    LS_ALL_GATHER = 3, // every rank: part r as rank r had it, for all r
    LS_BROADCAST = 4, // every rank: what `root` had
    LS_REDUCE = 5, // `root`: the reduction of all
    // rank r, in block s: block r as rank s had it, for all s. The blocks are equal: `count` is a
    // multiple of the world, and block s is ls_block(call, s).
    LS_ALL_TO_ALL = 6,
};

// 1: elements are combined; 0: they are only copied.
static inline uint32_t ls_operation_reduces(uint32_t operation)
{
    return operation == LS_ALL_REDUCE || operation == LS_REDUCE_SCATTER || operation == LS_REDUCE;
}

// The operation to describe. All values but `rank` are equal on all ranks, and what the plugin
// derives from them must be equal, too.
struct ls_collective_call {
    uint32_t struct_size;
    uint32_t operation; // enum ls_collective_operation
    uint32_t rank; // 0 .. world - 1
    uint32_t world; // at least 1
    uint32_t root; // of broadcast and reduce; else 0
    uint32_t element_bytes; // size of an element
    uint64_t count; // elements, may be 0
    // The host of each rank, `world` numbers; hosts are numbered from 0 in the order in which they
    // first appear. NULL: unknown. LS_UNSUPPORTED: the algorithm does not work with ranks spread
    // like that.
    const uint32_t *hosts;
    const struct ls_host *host; // for options and messages
    // What else is known of the network. Ask LS_HAS(call, order) first: older hosts end above.
    // The network card that each rank uses, `world` numbers, counted from 0 over all hosts; equal
    // numbers share a card. NULL: unknown.
    const uint32_t *cards;
    // All ranks, each once, so that neighbours in this list, and its last and first rank, are near
    // each other. NULL: the order of ranks.
    const uint32_t *order;
};

// Where a range is.
enum ls_range_buffer {
    LS_BUFFER_DATA = 0, // input when the call begins, output when it has ended
    LS_BUFFER_SCRATCH = 1, // the memory that ls_scratch() asks for; undefined at first
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

// The schedule of one rank while it is being written: a table of the host. After a failure all
// later calls return it and do nothing, and the host reports it. So a plugin may ignore what the
// calls return.
struct ls_schedule {
    uint32_t struct_size;
    uint32_t reserved;
    void *context; // the host's own
    // Appends a step to the round under way.
    int32_t (*add)(struct ls_schedule *schedule, const struct ls_step *step);
    // Ends the round: the next step belongs to the next one.
    int32_t (*end_round)(struct ls_schedule *schedule);
    // Asks for `count` elements of scratch for this rank.
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
    void *stream; // of `device`, for all operations, in order. NULL: host memory
};

// What `open` of a native collective gets.
struct ls_collective_config {
    uint32_t struct_size;
    uint32_t world; // ranks of the whole job
    uint32_t count; // of this process
    uint32_t reserved;
    const struct ls_collective_member *members; // of this process
    const uint32_t *hosts; // the host of each rank, as in struct ls_collective_call
    uint64_t deadline_ns; // the longest that `open` may wait for the others
    // For `exchange` and `check`.
    void *context;
    // Exchanges bytes with the other processes, out of band: each process gives `bytes` bytes for
    // each of its ranks (in the order of `members`), and gets those of all ranks, in their order.
    // Only in `open`. Blocks; LS_PEER_LOST after the deadline.
    int32_t (*exchange)(void *context, const void *own, uint64_t bytes, void *all);
    // LS_OK; or an error if waiting for the others is in vain: a process is lost (LS_PEER_LOST),
    // which the host logs, or this one has given up. For waits in `open` and `close`, which `abort`
    // does not end. NULL: there is one process. [any thread]
    int32_t (*check)(void *context);
};

// One operation of a native collective, as in struct ls_collective_call; in place.
struct ls_collective_run {
    uint32_t struct_size;
    uint32_t operation; // enum ls_collective_operation
    uint32_t dtype; // enum ls_dtype
    uint32_t reduction; // enum ls_reduction; a mean is rounded once
    uint32_t root; // of broadcast and reduce; else 0
    uint32_t reserved;
    // Input when the operation begins, output when it has ended. NULL in memory of kind
    // LS_MEMORY_OPAQUE.
    void *buffer;
    uint64_t count; // elements of the whole buffer, may be 0
    // Of an all-to-all in a device's memory: as long as `buffer`, where anything may be, and the
    // same in all runs of a recording; for libraries that cannot work in place. Else NULL.
    void *scratch;
    // The same as `buffer`, in memory of every kind. Ask LS_HAS(run, place) first: older hosts end
    // above.
    struct ls_memory place;
};

// The table of a collective plugin: `build_schedule`, or the functions of a native collective.
struct ls_collective_interface {
    uint32_t struct_size;
    uint32_t operations; // bit i: enum ls_collective_operation i; all-reduce is required
    uint32_t dtypes; // bit i: enum ls_dtype i; 0: all
    uint32_t reductions; // bit i: enum ls_reduction i; 0: all
    uint32_t deterministic; // 1: equal bits on all ranks, and in every run with the same input
    uint32_t maximum_world; // 0: any
    uint32_t reserved[2];

    // Writes what `call->rank` does, round by round, into `schedule`. Pure: the same call and
    // options give the same schedule; it has no state and does no input or output. LS_USAGE (with
    // call->host->fail): the options do not fit the call. NULL: the collective is native. [any
    // thread]
    int32_t (*build_schedule)(const struct ls_collective_call *call, struct ls_schedule *schedule);

    // All that follows is for native collectives, else 0 and NULL.
    uint32_t memory_kinds; // bit i: buffers may be in memory of enum ls_memory_kind i
    uint32_t stream_families; // bit i: it puts work on streams of enum ls_stream_family i
    uint32_t scope; // enum ls_transport_scope: the widest it serves
    uint32_t one_rank_a_device; // 1: no two ranks may be on one physical device
    uint32_t capturable; // 1: `run` only puts work on the stream, so that a device may record it
    uint32_t reserved2; // zero
    uint64_t state_bytes; // of struct ls_collective

    // Opens all ranks of this process; collectives[i], which is zeroed, becomes that of members[i].
    // A failed call leaves nothing open.
    int32_t (*open)(const struct ls_host *host, const struct ls_collective_config *config,
                    struct ls_collective *const *collectives);
    // Closes a rank. Before, all of its work on streams has ended, and recordings with operations
    // of it were released; or it was aborted. What all ranks of a process must do together, the
    // last close does.
    void (*close)(struct ls_collective *collective);
    // Puts one operation on the stream and returns. In host memory: with `done`, begins the
    // operation; without, returns when the result is there.
    int32_t (*run)(struct ls_collective *collective, const struct ls_collective_run *run);
    // Optional, for host memory. Makes progress without waiting, and writes how many operations of
    // this rank have ended since `open`; they end in order. LS_OK, or the reason why no more will
    // end. With this call operations overlap with what the rank computes meanwhile.
    int32_t (*done)(struct ls_collective *collective, uint64_t *ended);
    // LS_OK; or the reason why the work under way will not end: LS_PEER_LOST, LS_FAILED (with
    // host->fail), LS_ABORTED. Cheap, because the host calls it often while it waits.
    int32_t (*poll)(struct ls_collective *collective);
    // Makes the work under way end soon, with undefined results; `run` and `poll` then return
    // LS_ABORTED.
    void (*abort)(struct ls_collective *collective);
    // Writes what runs, for the report: "NCCL 2.28.9". NUL-terminated. [any thread]
    void (*about)(char *text, uint64_t bytes);

    // Optional, both or neither. Device memory for buffers of later operations, in which the library
    // is faster than in other memory. All ranks of the job make the same calls, in order and with
    // equal sizes, while nothing is under way or captured; so a call may wait for the other ranks.
    // `out` becomes an address aligned to LS_ALIGNMENT, where anything may be, or NULL: there is
    // none, and the host takes memory of the device. [thread of the rank]
    int32_t (*allocate)(struct ls_collective *collective, uint64_t bytes, void **out);
    // Before `close`, also after an abort. Nothing uses the memory any more, and recordings that did
    // were released. Where the device hangs it is not called: such memory stays. [any thread]
    void (*release)(struct ls_collective *collective, void *memory);

    // 1: what ranks record is one program of all of them, so they must record the same. The host
    // then records no step in which their shares of the batch differ. 0: each has its own.
    uint32_t same_recordings;
    uint32_t reserved3; // zero
};

// ---- Helpers ----

// Chunks begin at multiples of this many elements, so that ranks do not share cache lines.
#define LS_CHUNK_ALIGNMENT 64

// As much as is sent in the time that a message costs, where a schedule has to guess: 64 KiB.
#define LS_MESSAGE_BYTES UINT64_C(65536)

// Part `index` of `parts` of a range of the data buffer. The parts are as equal as whole multiples
// of LS_CHUNK_ALIGNMENT allow; some may be empty.
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

// Into how many segments a buffer is best cut whose pieces of `bytes` bytes need `rounds` rounds,
// one segment behind the other: (rounds + S - 1) (m + bytes / S), where a message costs as much as
// m bytes, is least where S S = (rounds - 1) bytes / m. At least 1, at most 1024.
static inline uint64_t ls_best_segments(uint64_t rounds, uint64_t bytes)
{
    const uint64_t messages = bytes / LS_MESSAGE_BYTES;
    uint64_t segments = 1;
    while (rounds > 1 && segments < 1024 &&
           (segments + 1) * (segments + 1) <= (rounds - 1) * messages)
        segments++;
    return segments;
}

// `count` elements of the data buffer from element `offset`.
static inline struct ls_range ls_data_range(uint64_t offset, uint64_t count)
{
    struct ls_range range = {LS_BUFFER_DATA, 0, offset, count};
    return range;
}

// The same for the scratch buffer.
static inline struct ls_range ls_scratch_range(uint64_t offset, uint64_t count)
{
    struct ls_range range = {LS_BUFFER_SCRATCH, 0, offset, count};
    return range;
}

// Chunk `index` (modulo the world) of the data buffer: the part of rank `index`.
static inline struct ls_range ls_chunk(const struct ls_collective_call *call, uint64_t index)
{
    return ls_part(ls_data_range(0, call->count), index % call->world, call->world);
}

// Block `index` (modulo the world) of the data buffer, of an all-to-all.
static inline struct ls_range ls_block(const struct ls_collective_call *call, uint64_t index)
{
    const uint64_t each = call->count / call->world;
    return ls_data_range(index % call->world * each, each);
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
