// SPDX-License-Identifier: Apache-2.0
// A drawn schedule becomes a graph of transfers: steps are cut into segments, and each segment
// waits only for what touched its range before. So a later round begins as soon as its data is
// there. [any thread]
#ifndef LS_SCHEDULE_COMPILE_H
#define LS_SCHEDULE_COMPILE_H

#include "core/schedule/schedule.h"
#include "core/plugin/transport.h"

#include <stdbool.h>

// Segments are about this long: small enough that two of them stay in a core's second-level cache
// and that rounds overlap, large enough that the cost of a message (a few hundred nanoseconds) does
// not show.
#define LS_SEGMENT_BYTES (UINT64_C(256) << 10)
// In memory of devices: a segment costs launches and events, about 20 us a rank on an H200
// (docs/results), in which the card itself moves as much as this.
#define LS_SEGMENT_BYTES_ON_DEVICE (UINT64_C(8) << 20)
// Longer steps are cut into this many, larger ones: that overlaps enough, and what two ranks have
// under way then fits the window of a transport.
#define LS_SEGMENTS UINT64_C(16)
// A schedule that overlaps its rounds by itself has many steps, each short beside a rank's part of
// the buffer. They are cut less, so that a part becomes no more than this many segments, or one for
// each step. Where two ranks are the world, each sends the other one part to be added up and the
// sum of its own, 128 messages, which is a window. A sum beyond the window would be ready before
// its peer could say where it wants it: it would be copied there later, when it has left the
// caches, instead of being written there in the pass that adds. In larger worlds two ranks of a
// tree share more than a part, and may have more messages under way.
#define LS_SEGMENTS_OF_PART UINT64_C(64)
#define LS_SEGMENTS_IF_ASKED UINT64_C(1024) // where the caller chose the length

#define LS_NO_OPERATION UINT32_MAX

// Messages of 16 bits. Each element of data and scratch has a half beside it, at the same offset of
// a buffer of halves. When a round begins, what this rank sends in it is rounded, in the buffer and
// in its half; messages move halves; and what arrives is widened, or added to the float32 that is
// there. So a sender keeps what its peers got, and ranks that add the same messages in the same
// order have equal bits. These operations follow the kinds of transfers; the executor does them
// itself.
enum ls_half_operation {
    LS_HALF_NOTHING = 16, // found to be needless
    LS_HALF_ROUND = 17, // range and its halves = range, rounded
    LS_HALF_WIDEN = 18, // range = its halves
    LS_HALF_ADD = 19, // range = range + its halves
};

struct ls_compiled_operation {
    uint32_t kind; // enum ls_transfer_kind or ls_half_operation
    uint32_t source;
    uint32_t destination;
    uint32_t element_bytes; // of what a message moves, or of the buffer
    struct ls_range range;
    struct ls_range from;
    uint64_t receive_number; // counted from the first message of this run between the two ranks
    uint64_t send_number;
    uint64_t after; // LS_TRANSFER_AT_ONCE or a number like send_number, of a message to `source`

    // RECEIVE_REDUCE_SEND: the send that it does, which stays in the list for what depends on it,
    // but is not posted. What depends on this operation itself may run once it is reduced. Else
    // LS_NO_OPERATION.
    uint32_t fused_send;

    uint32_t waits_for; // operations that must be complete before; a fused send: not used
    uint32_t first_dependent; // in `dependents`
    uint32_t dependent_count;
};

struct ls_compiled_peer {
    uint32_t rank;
    uint32_t sends; // messages in one run
    uint32_t receives;
};

struct ls_compiled_schedule {
    struct ls_compiled_operation *operations;
    uint32_t operation_count;
    uint32_t nothing_count; // of them are LS_HALF_NOTHING, and not run
    uint32_t *dependents; // indices of operations
    uint32_t *first; // operations that wait for nothing, receives first; not fused sends
    uint32_t first_count;
    struct ls_compiled_peer *peers;
    uint32_t peer_count;
    uint32_t round_count;
    uint64_t scratch_count; // elements
    uint64_t sent_bytes;
    bool halves; // as the options say
};

struct ls_compile_options {
    const char *name; // of the collective, for messages
    uint32_t rank;
    uint32_t world;
    uint32_t element_bytes;
    uint64_t count; // elements of the whole buffer
    uint64_t segment_bytes; // 0: LS_SEGMENT_BYTES
    // All ranks are of this process, in memory of devices: 0 means LS_SEGMENT_BYTES_ON_DEVICE.
    bool on_device;
    struct ls_range divide; // LS_MEAN: the result, which is divided in the end; count 0: nothing
    bool halves; // messages have 2 bytes for each element
    struct ls_range rounded; // halves: the result that several ranks have, rounded in the end
};

// A round in which one step writes what another reads or writes, other than reductions in the order
// written, is LS_FAILED, logged with rank, round and range.
LS_STATUS ls_compile_schedule(const struct ls_drawn_schedule *schedule,
                              const struct ls_compile_options *options,
                              struct ls_compiled_schedule *out);
void ls_compiled_schedule_finish(struct ls_compiled_schedule *compiled); // takes a zeroed one

#endif
