// SPDX-License-Identifier: Apache-2.0
// Guards: functions that replace a plugin's own in its table. Each records that the thread is in
// the plugin (core/base/inside.h), calls the plugin, and checks the answer: OK without the
// requested object, a number that is no status, impossible sizes, and a failure without a reason
// are logged as errors with the names of plugin and call. So no caller has to check them, and none
// can forget to.
#ifndef LS_LOADER_GUARD_H
#define LS_LOADER_GUARD_H

#include "core/base/inside.h"
#include "core/plugin/callback.h"
#include "core/plugin/collective.h"
#include "core/plugin/dataset.h"
#include "core/plugin/device.h"
#include "core/plugin/layer.h"
#include "core/plugin/metric.h"
#include "core/plugin/strategy.h"
#include "core/plugin/transport.h"

#include <stdbool.h>

// How many plugins of each kind are guarded at most in one process. Further ones are called without
// guards, with a warning. Each costs a copy of the functions in guard_slot.h.
#define LS_GUARD_DEVICES 6
#define LS_GUARD_TRANSPORTS 6
#define LS_GUARD_COLLECTIVES 32
#define LS_GUARD_STRATEGIES 16
#define LS_GUARD_CALLBACKS 16
#define LS_GUARD_LAYERS 16
#define LS_GUARD_LOSSES 6
#define LS_GUARD_METRICS 6
#define LS_GUARD_DATASETS 6

// A device's table and the small tables that it points to, in our size. The pointers are those of the
// tables beside it, or NULL; ls_device_tables_link() sets them.
struct ls_device_tables {
    struct ls_device_interface interface;
    struct ls_device_memory memory;
    struct ls_device_kernels kernels;
    struct ls_device_streams streams;
    struct ls_device_staging staging;
    struct ls_device_peers peers;
    struct ls_device_capture capture;
};

// Copies what the plugin has; members that it does not have are NULL or 0.
void ls_device_tables_copy(const struct ls_device_interface *theirs, struct ls_device_tables *out);
void ls_device_tables_link(struct ls_device_tables *tables); // after it was moved

// A guarded plugin. It lives as long as the process, as plugins do.
struct ls_guard_slot {
    char label[96]; // "device-cpu"
    const char *name; // "cpu", in `label`
    const void *theirs; // its table
    union {
        struct ls_device_tables device;
        struct ls_transport_interface transport;
        struct ls_collective_interface collective;
        struct ls_strategy_interface strategy;
        struct ls_callback_interface callback;
        struct ls_layer_interface layer;
        struct ls_loss_interface loss;
        struct ls_metric_interface metric;
        struct ls_dataset_interface dataset;
    } ops; // a copy of it, in our size
};

// Replaces the functions of `interface`, our copy of `theirs`, with guards, except NULL ones.
void ls_guard_table(uint32_t kind, const char *name, const void *theirs, void *interface);

// ---- For the guards (guard_slot.h) ----

struct ls_guarded {
    const struct ls_guard_slot *slot;
    const char *call;
    struct ls_inside_call before;
    uint32_t reasons;
};

struct ls_guarded ls_guard_enter(const struct ls_guard_slot *slot, const char *call);
// After a call that returns nothing, or a value that cannot be wrong.
void ls_guard_leave(const struct ls_guarded *call);
// After a call that returns a status; returns it in turn. A number that is no status is logged and
// becomes LS_FAILED. With `must_explain`, a failure for which no reason was logged is logged here.
int32_t ls_guard_answer(const struct ls_guarded *call, int32_t status, bool must_explain);
// The same for a call that creates an object: `made` says whether it did.
int32_t ls_guard_made(const struct ls_guarded *call, int32_t status, bool made, const char *what);

// The same for a call that opens what the caller has allocated.
int32_t ls_guard_opened(const struct ls_guarded *call, int32_t status);

int32_t ls_guard_kernel(const struct ls_guarded *call, int32_t status,
                        const struct ls_kernel_request *request, struct ls_kernel_answer *answer);
int32_t ls_guard_segment(const struct ls_guarded *call, int32_t status,
                         struct ls_kernel_answer *answer);
void *ls_guard_memory(const struct ls_guarded *call, void *memory);

#endif
