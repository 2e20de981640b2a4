// SPDX-License-Identifier: Apache-2.0
// A session: what trains and evaluates a model. It owns, in the order in which they are opened: the
// replica threads, the driver (communicators, strategy, placement), the replicas with their buffers
// and programs, and the input streams. It belongs to a model and is kept from one fit or evaluation
// to the next, until ls_compile, ls_load_weights, ls_model_close or a failure.
// [main thread]
//
// A replica has two numbers: its local index among those of this worker, and its rank among all.
// Memory is found by the index, work is shared by the rank, and what all ranks have is gathered in
// rank order.
#ifndef LS_TRAIN_SESSION_H
#define LS_TRAIN_SESSION_H

#include "core/cluster/cluster.h"
#include "core/data/stream.h"
#include "core/run/workers.h"
#include "core/replica/group.h"
#include "core/strategy/driver.h"
#include "core/model/model.h"
#include "core/train/weighting.h"

#include <stdatomic.h>

_Static_assert(LS_REPLICA_INPUTS == LS_MAX_INPUTS, "a replica takes what data may have");

// What a fit, an evaluation or a prediction is going to run.
struct ls_session_need {
    uint64_t global_batch;
    uint64_t training_examples; // of an epoch; 0: evaluation or prediction only
    uint64_t position; // of the first example in the epoch that begins
    uint64_t evaluation_examples, prediction_examples; // 0: none
    uint32_t microbatches; // blocks of a share in training; 0: 1
    float byte_divisors
        [LS_REPLICA_INPUTS]; // of the inputs, where all data has 8 bits (ls_data_byte_divisors); else 0
};

// The training data and how far its streams have come.
struct ls_session_input {
    struct ls_data *data; // held
    enum ls_shuffle shuffle;
    uint64_t shuffle_buffer, global_batch;
    uint32_t microbatches;
    struct ls_model_order order; // where the streams go on
    struct ls_stream *all; // NULL: not open
    struct ls_stream **own; // the same, one a replica, where replicas do not wait for each other
};

struct ls_session {
    uint64_t number; // of all sessions of the process: tells one from another
    struct ls_model *model;
    struct ls_run *run;
    struct ls_cluster *cluster; // the run's
    struct ls_group *group;
    // NULL: opened for evaluation only, and each replica has all parameters.
    struct ls_driver *driver;
    bool trains; // else opened for evaluation only
    struct ls_replica **replicas; // of this worker, by index
    // What the device lacks, as each replica has found; "": nothing. NULL: the device was named.
    char (*lacks)[LS_LACK_BYTES];
    char lack[LS_LACK_BYTES]; // the first of all workers, so that all take another device
    uint32_t count; // of them
    // By enum ls_held: ranks of the job hold parts of it, as all workers know.
    bool spread[LS_HELD_KINDS];
    struct ls_session_need need; // of the fit or evaluation under way
    // What programs are there for, so that nobody need look: the last needs of each purpose, and
    // the sizes of the first share that are known to have the layouts of this session.
    struct ls_session_need trained, evaluated, predicted;
    uint64_t *same_layouts;
    size_t same_count;
    struct ls_session_input input;
    struct ls_weighting weighting; // of the batches
    struct ls_stream *_Atomic stream; // that replicas read from now; NULL: from their own
    atomic_bool hung; // a replica has waited in vain for a peer or for a device
    bool unsynchronized; // steps were made since the strategy was last told to synchronise
    bool broken; // a replica failed: only to be closed
    bool differ; // replicas had different parameters
    atomic_bool aborted; // a worker is lost
    struct ls_loss_watch watch;
};

// The model's session, ready for `need`: kept, made to grow, or opened anew where there is none
// that fits. Errors are logged, and leave the model with what the host has.
LS_STATUS ls_session_ready(struct ls_model *model, const struct ls_session_need *need);
// Closes the model's session; what it had learnt and not brought to the host is lost. LS_PEER_LOST
// (logged): a thread of the strategy's hangs, and what it may use was not freed.
LS_STATUS ls_session_close(struct ls_model *model);

// Runs `function` on all replicas' threads, and waits. `doing` ("training") is named where a
// replica runs out of memory, or fails without a message.
LS_STATUS ls_session_run(struct ls_session *session, const char *doing,
                         enum ls_status (*function)(void *context, uint32_t index), void *context);

// ---- Data and steps ----

// The training data, in `order` from the model's place in it. Streams that are there already go on.
LS_STATUS ls_session_set_data(struct ls_session *session, struct ls_data *data,
                              enum ls_shuffle shuffle, uint64_t shuffle_buffer,
                              const struct ls_model_order *order);
// Where the streams go on, once a fit has ended. NULL: nobody knows, they are closed.
void ls_session_note_order(struct ls_session *session, const struct ls_model_order *order);
// A stream of `dataset` for `count` replicas from `first` on, in batches of the session, shares in
// `microbatches` blocks. `order`: shuffle, epoch and first example, and in training how many shares
// a batch has (0: as many as there are ranks); the rest is filled in. Fields come in the types that
// the model and its loss read: class numbers become float32 targets for mean_squared_error, as
// Keras casts them.
LS_STATUS ls_session_open_stream(const struct ls_session *session, const struct ls_dataset *dataset,
                                 const struct ls_stream_options *order, uint32_t microbatches,
                                 uint32_t first, uint32_t count, struct ls_stream **out);
// The next share of the replica `index`, as a replica takes it. [replica thread]
LS_STATUS ls_session_next(struct ls_session *session, uint32_t index, struct ls_replica_batch *out,
                          uint64_t *waited_ns);

// What the metrics have counted on all replicas: graph->count_slots doubles are added to `sums`.
void ls_session_add_counts(const struct ls_session *session, double *sums);
// [main thread, while the replicas rest]
void ls_session_clear_counts(struct ls_session *session);

// The clients that hear of each batch of an evaluation or prediction: `state->batch` is set for it.
struct ls_batch_clients {
    struct ls_clients *clients;
    struct ls_fit_state *state;
};

// Mean loss and accuracy over `dataset`. LS_INTERRUPTED after ls_run_interrupt. When a replica
// fails whose failure the strategy survives, the others evaluate again. What a client answers ends
// it. `batches`: NULL: nobody.
LS_STATUS ls_session_evaluate(struct ls_session *session, const struct ls_dataset *dataset,
                              bool validation, const struct ls_batch_clients *batches,
                              struct ls_scores *out);

// What the model's output is for examples `first` to `first + count` of `dataset`, in their order;
// `first` is a multiple of the global batch. Statuses as of an evaluation.
LS_STATUS ls_session_predict(struct ls_session *session, const struct ls_dataset *dataset,
                             uint64_t first, uint64_t count, const struct ls_batch_clients *batches,
                             float *out);

// Where steps of a loop were made since: before weights are read.
LS_STATUS ls_session_synchronise(struct ls_session *session);

// A replica failed in a step, and all have left theirs: refuses the model where replicas differ or
// hang. Returns the number of the step whose loss was not finite, which is said and changed
// nothing; 0: it was for something else.
uint64_t ls_session_explain(struct ls_session *session);

// The rank of a replica of this worker.
uint32_t ls_session_rank(const struct ls_session *session, uint32_t index);
// The share of a replica in the batches of training.
uint32_t ls_session_share(const struct ls_session *session, uint32_t index);
// The index of the first replica that was not lost.
uint32_t ls_session_first(const struct ls_session *session);
bool ls_session_is_lost(const struct ls_session *session, uint32_t index);
// One line: a replica failed, and which ones do its work. `doing`: "step 12".
void ls_session_say_lost(const struct ls_session *session, uint32_t index, const char *doing);

// Hashes of the parameters of all ranks; LS_FAILED (logged, names ranks and hashes) when they
// differ. 0 for one that was lost.
LS_STATUS ls_session_hashes(struct ls_session *session, uint64_t *out);
// Compares the replicas of this worker alone, so that one worker may ask (for a checkpoint, or a
// variable) while others do not. Replicas that do not wait for each other have their last pushes
// applied before.
LS_STATUS ls_session_compare(struct ls_session *session);

// Copies the model's parameters and, where it has it, optimizer state to the replicas and stores,
// where variables were set on the host since. [main thread, while the replicas rest]
LS_STATUS ls_session_give_assigned(struct ls_session *session);
// An evaluation failed, which changes no parameters, and the session is going to be closed: what
// replicas of a single worker have in parts comes to the host, if it can.
void ls_session_rescue(struct ls_session *session);
// Whether the replicas compute in host memory, which stays readable when a device fails.
bool ls_session_in_host_memory(const struct ls_session *session);

// What comes to the host. The weights alone are enough to be read between fits; the state
// of the optimizer comes, too, before replicas make another step and before the session is closed.
enum ls_take { LS_TAKE_WEIGHTS, LS_TAKE_ALL };

// LS_FAILED (logged) when a parameter of the first replica, or of the stores, is not finite. Of
// parameters in parts each replica looks at its own, and all workers find the same.
LS_STATUS ls_session_check_weights(struct ls_session *session);
// The same between two epochs, of what the first replica has: nothing is synchronised or asked of
// stores. A ReLU that a library computes behind a convolution makes 0 of NaN, so the loss may not
// show it.
LS_STATUS ls_session_check_replica(struct ls_session *session);
// Copies parameters and optimizer state of the first replica, or of the stores, there, or what
// replicas hold parts of (session_values.h). LS_FAILED (logged) when a parameter is not finite.
LS_STATUS ls_session_copy(struct ls_session *session, const struct ls_values *to);
// Copies parameters and optimizer state of the first replica, or of the stores, back to the model.
// LS_FAILED (logged) when a parameter is not finite: then nothing was copied. Also after a step
// has failed.
LS_STATUS ls_session_take(struct ls_session *session, enum ls_take what);
// The same where the replicas are ahead of the host: before anybody reads the model's weights or
// optimizer state. When that fails (logged), the session is closed and the model is what the host
// had.
LS_STATUS ls_model_take(struct ls_model *model, enum ls_take what);

#endif
