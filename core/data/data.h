// SPDX-License-Identifier: Apache-2.0
// A dataset split that is read in the background; several runs may share it.
#ifndef LS_DATA_DATA_H
#define LS_DATA_DATA_H

#include "core/data/arrays.h"
#include "core/data/class_names.h"
#include "core/data/dataset.h"
#include "core/data/data_host.h"
#include "lockstep.h"

#include <pthread.h>
#include <stdatomic.h>

struct ls_data {
    atomic_uint holders; // the caller of ls_data_open, and sessions that train on it
    char *text; // as the user wrote it; of memory: "memory:hash=" and its contents
    char *name; // the dataset's name alone
    enum ls_split split;
    struct ls_dataset_info info; // known at once
    struct ls_dataset_plugin *plugin; // that it is read by; NULL: datasets/ does it
    uint32_t neighbours; // processes of this host that open the same, with this one; 1: none
    char *job; // whose they are; NULL: there are none
    struct ls_host_offer offer; // to them
    pthread_t thread;
    bool started;
    atomic_bool closing; // the thread need not serve others any more
    pthread_mutex_t lock; // of what follows: runs of several threads may wait for the files at once
    pthread_cond_t ready; // `reading` has ended
    bool reading;
    enum ls_status status; // of the reading, once it has ended
    char *error; // that reading would have logged; NULL: none
    struct ls_dataset *dataset; // NULL until then
    struct ls_numbered_dataset *numbered; // the same for models that number its classes otherwise
};

// The processes of this host that open the same data, and by which plugins it may be read.
struct ls_data_sharing {
    const struct ls_loader *loader; // whose search path and registered plugins
    const char *job; // whose processes they are: the same text in all of them
    uint32_t processes; // with this one
};

// As ls_data_open and ls_data_from_memory, but may fail without a message (core/api/calls.c).
// `sharing` NULL: this process alone, with the plugins of its own path.
LS_STATUS ls_open_data(const struct ls_data_sharing *sharing, const char *text, const char *split,
                       struct ls_data **out);
LS_STATUS ls_copy_data(const struct ls_batch_arrays *arrays, struct ls_data **out);
LS_STATUS ls_borrow_data(const struct ls_batch_arrays *arrays, void (*release)(void *context),
                         void *context, struct ls_data **out);
LS_STATUS ls_generate_data(const struct ls_generator *generator, struct ls_data **out);

// Data that has a dataset already, which it owns from now on unless this fails. `text` must be
// another one for other data.
LS_STATUS ls_data_wrap(const char *text, struct ls_dataset *dataset, struct ls_data **out);
// Of each input (LS_MAX_INPUTS), by what its 8-bit values are divided; 0: it does not have 8 bits, or not that
// divisor in both. `other` may be NULL.
void ls_data_byte_divisors(const struct ls_data *data, const struct ls_data *other, float *out);

// One more user, which will call ls_data_close: the last call frees it.
void ls_data_hold(struct ls_data *data);

// Waits for the files. The dataset is owned by `data`. Each caller logs why the files cannot be
// read. [any thread]
LS_STATUS ls_data_wait(struct ls_data *data, const struct ls_dataset **out);
// The same, and its classes have the numbers of `names`. LS_BAD_INPUT, logged: an example has a
// class that is not among them; `learner` is what has learnt these. [any thread]
LS_STATUS ls_data_wait_numbered(struct ls_data *data, const struct ls_class_names *names,
                                const char *learner, const struct ls_dataset **out);
// What tells the examples from others (ls_dataset_contents), found once. Waits for the files. [any
// thread]
LS_STATUS ls_data_contents(struct ls_data *data, uint64_t *out);

#endif
