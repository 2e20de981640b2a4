// SPDX-License-Identifier: Apache-2.0
// What a run and its fits do because there may be several workers: they join, agree on what they
// are about to do, end together, and stop at once when one of them is lost. With one worker each
// call returns at once.
#ifndef LS_RUN_WORKERS_H
#define LS_RUN_WORKERS_H

#include "core/cluster/cluster.h"
#include "core/strategy/channels.h"
#include "lockstep.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct ls_driver;
struct ls_data;
struct ls_run;
struct ls_tuning;

// What has to stop when a worker is lost: a session, or communicators without one.
struct ls_loss_watch {
    void (*lost)(void *context); // must not wait. [any thread]
    void *context;
    struct ls_loss_watch *next;
};

#define LS_WORKER_HOST_BYTES 65

// The workers of a run, which workers.c alone writes.
struct ls_workers {
    struct ls_worker_place place; // of this process among them
    // Where the job has servers that are processes of their own (`servers` above 0): the place of
    // this process among them and the workers. Each worker then trains for itself, with what the
    // servers have: `place` and the cluster are those of a process alone.
    struct ls_worker_place served;
    struct ls_channels_options channels; // to the servers
    char *secret; // of the job; NULL: none, or not needed
    struct ls_cluster *cluster;
    struct ls_cluster_endpoints exchange; // what transports and libraries open by
    char (*hosts)[LS_WORKER_HOST_BYTES]; // the name of each worker's machine
    bool joined; // several of them
    bool met; // they have compared where they are since this one came
    bool unformed; // interrupted while it waited for others, which may have gone on without it
    atomic_bool gave_up; // this worker has told the others that it failed
    pthread_mutex_t watch_lock; // of what follows
    struct ls_loss_watch *watches; // a list
    bool peer_lost;
};

void ls_workers_init(struct ls_run *run); // a process alone
// Finds which of the workers this process is: fills run->workers.place. [main thread]
LS_STATUS ls_workers_resolve(struct ls_run *run, const struct ls_run_options *options);

// Brings the workers together, each with `replicas` of its own: sets run->workers.cluster. They
// must agree on what `options` say of the run. [main thread]
LS_STATUS ls_workers_join(struct ls_run *run, const struct ls_run_options *options,
                          uint32_t replicas);

// As ls_run_data_open, but may fail without a message: the workers of a host read the files once.
// [main thread]
LS_STATUS ls_workers_open_data(struct ls_run *run, const char *text, const char *split,
                               struct ls_data **out);

// A server process, which has no replicas, joins nobody. [main thread]
LS_STATUS ls_workers_stay_alone(struct ls_run *run);
// It has served, and its listening socket is closed. [main thread]
void ls_workers_note_served(struct ls_run *run);

// When the run is closed. Takes workers that have not joined. [main thread]
void ls_workers_leave(struct ls_run *run);

// What all workers must have alike.
struct ls_worker_item {
    const char *name; // as the user knows it: "--batch"
    uint64_t key; // that is compared, while the value is only shown; 0: the value is compared
    char value[240];
    const char *remedy; // "; what to do" behind both values; NULL: nothing
};

// LS_USAGE, logged with both values on all workers, where an item differs: nobody is then told that
// this worker failed. All workers call this with as many items. [main thread]
LS_STATUS ls_workers_agree(struct ls_run *run, const struct ls_worker_item *items, uint32_t count);

// That `auto` chooses among the same collectives, or by the same table, on all workers. [main
// thread]
LS_STATUS ls_workers_agree_on_tuning(struct ls_run *run, const struct ls_tuning *tuning);

// Whether choices of the device depend on more than what is asked (struct ls_device_choices), so
// that the other workers take those of worker 0. [main thread]
bool ls_workers_share_choices(const struct ls_run *run);
// They do. All workers call this: worker 0 once its replicas have prepared, the others before.
// [main thread]
LS_STATUS ls_workers_hand_choices(struct ls_run *run);

// Forms the next generation of an elastic training; where that fails, the training ends. [main
// thread]
LS_STATUS ls_workers_reform(struct ls_run *run, struct ls_cluster_change *change);
// The first call of the survivors in it: what a new worker has done in ls_workers_join. [main
// thread]
LS_STATUS ls_workers_meet(struct ls_run *run);
// They have compared where they are. [main thread]
void ls_workers_note_met(struct ls_run *run);

// That the examples of `data` are the same on all workers, by ls_data_contents, however each of
// them calls the files; waits for these. Nothing once workers have come or gone. [main thread]
LS_STATUS ls_workers_agree_on_examples(struct ls_run *run, struct ls_data *data,
                                       const char *option);

// `item` becomes what is known of `data` (NULL: none) before files are read.
void ls_workers_describe_data(const struct ls_data *data, const char *name,
                              struct ls_worker_item *item);

// LS_USAGE, logged: "worker 1 has ...". All workers know it, so nobody is told that this one
// failed.
LS_STATUS ls_workers_refuse(struct ls_run *run, uint32_t worker, const char *what);

// What the workers tell each other between segments, so that all go the same way. A worker that has
// failed says nothing any more: it gives up.
struct ls_worker_word {
    uint64_t most_steps; // the least of what all say
    uint32_t stops; // as ls_stop_training; 1 where any says so
    uint32_t interrupted; // likewise
    uint32_t signal; // that has interrupted; the largest number
    uint32_t reforms; // new workers wait; 1 where any says so
    // What callbacks have set, which must be alike.
    double learning_rate;
    uint64_t set_key; // of variables
};

// `word` becomes what all workers have said together. LS_USAGE, logged: callbacks have set other
// things. [main thread]
LS_STATUS ls_workers_combine(struct ls_run *run, struct ls_worker_word *word);

// Adds up `count` values over the workers, in their order. [main thread]
LS_STATUS ls_workers_add(struct ls_run *run, double *values, uint64_t count);

// What all replicas have computed for examples in their order, each worker the shares of its own.
struct ls_worker_shares {
    float *values; // of all examples
    uint64_t elements, count; // of an example; examples
    uint64_t batch; // examples of a batch, which the ranks share
    struct ls_shares division;
};

// `values` becomes complete on all workers. [main thread]
LS_STATUS ls_workers_share(struct ls_run *run, const struct ls_worker_shares *shares);

// From now on `watch->lost` is called when a worker is lost; at once where one is already. `watch`
// stays where it is until it is taken out, which one that is not there may be, too. [main thread]
void ls_workers_watch(struct ls_run *run, struct ls_loss_watch *watch);
void ls_workers_unwatch(struct ls_run *run, const struct ls_loss_watch *watch);

// A replica has waited for a peer in vain, or was woken by one: waits until it is known which
// worker is lost, which is logged then; not for ever. `driver`, which may be NULL, knows which one
// it cannot reach. Alone it passes `status` on, else LS_PEER_LOST. [main thread]
LS_STATUS ls_workers_await_verdict(struct ls_run *run, const struct ls_driver *driver,
                                   enum ls_status status);

// The others need not wait for this worker: it has failed, with the reason that was logged. [any
// thread]
void ls_workers_give_up(struct ls_run *run);

#endif
