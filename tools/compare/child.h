// SPDX-License-Identifier: Apache-2.0
// One run of `lockstep compare`: trains as `lockstep train` does, in a process of its own, and only
// in its turns. Over several workers a run has a process on each of them: that of worker 0 is given
// the turns, and tells the others.
#ifndef LS_TOOLS_COMPARE_CHILD_H
#define LS_TOOLS_COMPARE_CHILD_H

#include "core/base/status.h"
#include "tools/compare/comparison.h"
#include "lockstep.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The settings of all runs; texts are borrowed.
struct compare_setting {
    struct ls_run_options run; // strategy, replicas, threads and progress are the entry's
    struct ls_fit_options fit; // batches, microbatches, report and callbacks are the entry's
    struct ls_compile_options compile;
    const char *model, *dataset, *initial_weights;
    bool validation;
    bool records; // what steps do, for tools/compare/elsewhere.h
};

// The strategy of the reference.
#define COMPARE_REFERENCE "one-device"

// Statistics of the batch that layers of a model normalize by; bits.
#define COMPARE_OF_SHARES 1u // each replica by those of its own share
#define COMPARE_SYNCHRONIZED 2u // all by those of the whole batch

// The settings of one run.
struct compare_entry {
    const char *strategy; // as the user wrote it, with its filter: "ring+int8"
    uint32_t workers; // that it runs on; 1: worker 0 alone
    uint32_t replicas, threads; // replicas of each worker; threads of each replica
    uint64_t batch; // global
    uint32_t microbatches;
    // One rounding error more than the computation has by itself, which shows what rounding does to it.
    double nudge_rate; // of the learning rate, relative; 0: none
    bool nudge_weights; // of each initial weight, by its last bit
    const char *note; // on the line of progress, behind the strategy; NULL: none
    bool timed; // measures speed only: it trains until it is told to stop, and keeps no results
    struct ls_data *train; // its data, read by its parent; NULL: it reads them itself
};

// Replicas of all its workers.
static inline uint32_t compare_entry_world(const struct compare_entry *entry)
{
    return entry->workers * entry->replicas;
}

enum compare_phase {
    COMPARE_PREPARING,
    COMPARE_WAITING, // for its turn
    COMPARE_STEPPING,
    COMPARE_WORKING, // validation, or the end
};

// Memory that parent and child share. Its facts are valid after the child has sent COMPARE_SAYS_READY.
struct compare_shared {
    _Atomic uint32_t phase; // enum compare_phase
    _Atomic uint64_t beat; // steps done, and a little more at each change of phase
    uint64_t steps; // that the child will run
    uint64_t epoch_steps;
    uint32_t accuracy; // 1: the model has that metric
    char device[64]; // that it trains on
    uint32_t way; // enum ls_compared_way
    uint64_t filter_begins; // after so many updates
    uint32_t statistics; // COMPARE_OF_SHARES, COMPARE_SYNCHRONIZED
    uint32_t dtype; // the coarsest that the model computes in: LS_F32, LS_F16, LS_BF16
    // The last turn of a timed run, without its first step, because its caches are cold and its input
    // was prepared while others computed.
    _Atomic uint64_t timed_ns, timed_steps, timed_examples;
    // Results of compare_child_look.
    uint32_t maximum_replicas; // of the strategy; 0: any number
};

// Bytes that a child writes to its parent.
#define COMPARE_SAYS_READY 'r'
#define COMPARE_SAYS_DONE 'd' // with its turn; the next one may have it

// A step as a child keeps it for its parent, in the file COMPARE_STEPS.
struct compare_step {
    double seconds; // of training since the first step began; at the end of this one
    double loss, accuracy, examples; // means over so many examples
    uint64_t turn;
};

// Files in the folder of a child.
#define COMPARE_REPORT "report.json"
#define COMPARE_STEPS "steps"
#define COMPARE_WEIGHTS "weights.safetensors"
#define COMPARE_RECORDING "recording.json"

// Where the processes of a run over several workers meet, and which of them this is.
struct compare_meeting {
    uint32_t worker, workers;
    uint32_t local_worker, local_workers; // on this host; local_workers 0: not known
    char address[96]; // "10.0.0.1:40123", of worker 0
    int listener; // on worker 0: the socket that listens there; else -1
    char secret[65]; // of this run alone
};

struct compare_place {
    const char *folder; // NULL: worker 0 keeps what is to be kept
    const struct compare_meeting *meeting; // NULL: the run is of this process alone
    struct compare_shared *shared;
    int words; // reads how many steps it may do, as uint64_t; 0: end. But for worker 0 nobody reads
    int answers;
    int messages; // becomes stderr; -1: none
};

// The main function of a child; ends the process with the exit code of the run. Called in the child,
// before it starts a second thread. [main thread]
_Noreturn void compare_child_live(const struct compare_setting *setting,
                                  const struct compare_entry *entry,
                                  const struct compare_place *place);
// Only reads the traits of the item's strategy and checks its options, and those of its filter.
_Noreturn void compare_child_look(const struct compare_setting *setting, const char *item,
                                  const struct compare_place *place);

#endif
