// SPDX-License-Identifier: Apache-2.0
// Calls the clients of a fit: those of the core (progress bar, history, --verbose, report) and then the tables in
// ls_fit_options.callbacks. Private to train/. [main thread, but where said]
#ifndef LS_TRAIN_CALLBACKS_H
#define LS_TRAIN_CALLBACKS_H

#include "core/base/status.h"
#include "core/strategy/driver.h"
#include "lockstep.h"

// A client of the core: on_train_end is called also when the preparation failed.
struct ls_client {
    struct ls_callbacks callbacks;
    // Where the time of a step went. On a device that works beside the host it is known steps before the metrics are,
    // so it is a moment of its own. [a replica thread, one call at a time]
    void (*on_step_times)(void *context, const struct ls_step_result *times, uint64_t step_ns,
                          uint64_t input_ns);
    // The last `steps` steps ended only after the host had waited `wait_ns` for the device. [a replica thread]
    void (*on_device_wait)(void *context, uint64_t steps, uint64_t wait_ns);
};

#define LS_CLIENTS 4

struct ls_clients {
    struct ls_client list[LS_CLIENTS]; // those of the core
    uint32_t count;
    const struct ls_callbacks *tables; // of the options; borrowed
    uint32_t table_count;
    const char *call; // whose clients they are, in messages: "evaluation"; NULL: "fit"
    bool begun; // on_train_begin was called
    char stopped_by[64]; // the table that has called ls_stop_training; "": none has
};

enum ls_moment {
    LS_ON_TRAIN_BEGIN,
    LS_ON_TRAIN_END,
    LS_ON_EPOCH_BEGIN,
    LS_ON_EPOCH_END,
    LS_ON_SEGMENT_END,
    LS_ON_TRAIN_BATCH_END,
    LS_ON_TEST_BEGIN,
    LS_ON_TEST_END,
    LS_ON_TRAIN_BATCH_BEGIN,
    LS_ON_TEST_BATCH_BEGIN,
    LS_ON_TEST_BATCH_END,
    LS_ON_PREDICT_BEGIN,
    LS_ON_PREDICT_END,
    LS_ON_PREDICT_BATCH_BEGIN,
    LS_ON_PREDICT_BATCH_END,
};

// Calls every client, also after one that fails. The status of the first that fails, or else LS_INTERRUPTED if one
// returns that; a failure of a table of the options is logged. The moments of a batch are for a replica thread.
LS_STATUS ls_clients_call(struct ls_clients *clients, enum ls_moment moment,
                          const struct ls_fit_state *state);
// on_segment_begin; may lower `steps`.
LS_STATUS ls_clients_begin_segment(struct ls_clients *clients, const struct ls_fit_state *state,
                                   uint64_t *steps);
// Gives a table what it had kept; it may say that the training was over.
LS_STATUS ls_clients_load_state(struct ls_clients *clients, uint32_t index,
                                const struct ls_fit_state *fit,
                                const struct ls_callback_state *state);
// What messages and reports call a table: its own name, or its place in the array of the options.
const char *ls_clients_name(const struct ls_clients *clients, uint32_t index, char text[static 64]);
// The name of the table that lets a loss that is not finite end the training; NULL: none does.
const char *ls_clients_terminate_on_nan(const struct ls_clients *clients);
void ls_clients_step_times(const struct ls_clients *clients, const struct ls_step_result *times,
                           uint64_t step_ns, uint64_t input_ns);
void ls_clients_device_wait(const struct ls_clients *clients, uint64_t steps, uint64_t wait_ns);

#endif
