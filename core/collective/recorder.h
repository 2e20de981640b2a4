// SPDX-License-Identifier: Apache-2.0
// The last calls of every rank of a communicator: a rank writes its own, and any may read those of
// the others, to find the rank that has not come, or has called something else. [any thread]
#ifndef LS_COLLECTIVE_RECORDER_H
#define LS_COLLECTIVE_RECORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_RECORDED_CALLS 64
#define LS_LABEL_WORDS 4
#define LS_LABEL_BYTES (8 * LS_LABEL_WORDS) // longer labels are cut

// What must be equal on all ranks, and the label.
struct ls_call_signature {
    uint32_t operation;
    uint32_t dtype;
    uint32_t wire; // type of messages; 0: dtype
    uint32_t mean_of; // type of which the caller asked a mean; 0: of none
    uint32_t reduction;
    uint32_t root;
    uint64_t count;
    uint64_t label[LS_LABEL_WORDS]; // text, NUL included; not compared
};

struct ls_recorded_call {
    _Atomic uint64_t sequence; // 0: being written; else 1 + number of the call
    _Atomic uint64_t operation_dtype;
    _Atomic uint64_t reduction_root;
    _Atomic uint64_t count;
    _Atomic uint64_t label[LS_LABEL_WORDS];
    uint64_t waited_ns; // the rank's own, not read by others
    bool ended; // likewise: it was waited for
};

struct ls_flight_recorder {
    _Alignas(64) _Atomic uint64_t begun; // calls that the rank has begun
    struct ls_recorded_call calls[LS_RECORDED_CALLS];
};

void ls_call_signature_label(struct ls_call_signature *signature, const char *label);
bool ls_call_signature_equal(const struct ls_call_signature *a, const struct ls_call_signature *b);
uint64_t ls_call_signature_hash(const struct ls_call_signature *signature, uint64_t sequence);
// "all-reduce (sum) of 100 float32, bucket 0". Returns `text`.
const char *ls_call_signature_text(const struct ls_call_signature *signature, char *text,
                                   size_t bytes);

// The owner's two calls.
void ls_flight_recorder_begin(struct ls_flight_recorder *recorder, uint64_t sequence,
                              const struct ls_call_signature *signature);
void ls_flight_recorder_end(struct ls_flight_recorder *recorder, uint64_t sequence,
                            uint64_t waited_ns);

// Copies call `sequence`; false when it is not, or no longer, recorded.
bool ls_flight_recorder_get(struct ls_flight_recorder *recorder, uint64_t sequence,
                            struct ls_call_signature *out);

// Writes all recorded calls to the log, at debug level. Called by the owner.
void ls_flight_recorder_dump(struct ls_flight_recorder *recorder, const char *name, uint32_t rank);

#endif
