// SPDX-License-Identifier: Apache-2.0
// From a graph to what a replica runs: kernels of one device for one batch size, in order, with
// every buffer planned. The parameter plan (master layouts, offsets in the flat buffers, shadows)
// is shared by the programs of a replica and is the same on all of them; it is made by the first
// program. [main thread, but for ls_program_run and ls_plan_refresh_shadows: replica thread]
#ifndef LS_GRAPH_PROGRAM_H
#define LS_GRAPH_PROGRAM_H

#include "core/base/trace.h"
#include "core/device/device.h"
#include "core/graph/graph.h"

#include <stddef.h>

#define LS_SUMS 4 // floats: loss, right, examples, 0

// Where one parameter is in the flat buffers.
struct ls_parameter_place {
    const struct ls_tensor *parameter;
    struct ls_layout layout; // master layout
    uint64_t offset; // bytes, a multiple of LS_ALIGNMENT
    uint64_t bytes; // padding of the layout included
};

// A second layout of a parameter that some kernel reads, or its halves; refreshed after each
// update.
struct ls_shadow {
    uint32_t place; // index of the parameter's place
    struct ls_layout layout;
    uint32_t dtype; // LS_F32 or a half type
    uint64_t offset; // bytes in the shadow buffer
    struct ls_kernel *convert; // master -> shadow
    uint64_t scratch_bytes;
    bool together; // the plan's `refresh` makes it, where there is one
};

// Float64 sums that operations of a training program leave in the buffer of totals. All replicas
// add up theirs before the next operation runs, in the order of this list.
struct ls_total {
    const struct ls_tensor *tensor; // the graph's
    uint64_t offset; // bytes, a multiple of LS_ALIGNMENT
    uint64_t count; // elements
    bool backward; // a backward operation makes it
    bool of_mask; // how many steps the output's mask leaves, not statistics of a layer
    uint32_t place; // the first whose gradient is complete with it or later; reduced_count: none
};

// Of one device instance. All replicas of a job have plans of equal fingerprints. Places are in the
// order of zones (enum ls_zone), and in each in the order in which a pass finishes what is reduced:
// statistics from the first layer to the last, gradients from the last to the first.
struct ls_parameter_plan {
    struct ls_device *device;
    struct ls_parameter_place *places;
    const struct ls_parameter_place **by_name; // the same, sorted by name
    uint32_t place_count, reduced_count; // the first of them: not those that are frozen
    uint64_t flat_bytes; // of the parameters
    uint64_t reduced_bytes; // of the gradients, and of each state of the optimizer
    uint64_t statistics_bytes; // of these, what comes before the first trained place
    struct ls_shadow *shadows;
    uint32_t shadow_count;
    uint64_t shadow_bytes;
    struct ls_kernel *refresh; // makes several shadows at once; NULL: one by one
    struct ls_memory *refresh_memory; // masters and shadows, in turn
    uint32_t refresh_count; // shadows that there were when the device was asked for it
    uint64_t refresh_scratch_bytes;
    struct ls_total *totals; // in the order in which every pass makes them
    uint32_t total_count; // 0 without backward operations
    uint64_t total_bytes;
};

#define LS_NO_PLACE UINT32_MAX
// The place of the parameter with that name; LS_NO_PLACE: there is none.
uint32_t ls_plan_find(const struct ls_parameter_plan *plan, const char *name);

// Hash of names, offsets and layouts: equal fingerprints mean that flat buffers can be reduced as
// they are.
uint64_t ls_plan_fingerprint(const struct ls_parameter_plan *plan);

// Makes the plan for `graph` on a device: master layouts are those that the forward kernels choose
// at `batch` (the largest share); `plain` forces the plain layout.
LS_STATUS ls_plan_create(const struct ls_graph *graph, struct ls_device *device, int64_t batch,
                         bool plain, struct ls_parameter_plan **out);
void ls_plan_destroy(struct ls_parameter_plan *plan);

// Converts between host memory in plain layout (elements(shape) floats) and a place in device
// memory (`at` is where it begins: at its offset in a flat buffer, or anywhere). A device in host
// memory reads and writes `from` and `to` themselves where they are aligned to LS_ALIGNMENT
// (ls_malloc_aligned).
LS_STATUS ls_plan_import(struct ls_parameter_plan *plan, uint32_t place, const float *from,
                         struct ls_memory at);
LS_STATUS ls_plan_export(const struct ls_parameter_plan *plan, uint32_t place, struct ls_memory at,
                         float *to);
// For each element in plain layout, where it is in a place: in floats from its beginning. `*out`
// stays NULL where the place is plain itself, or the device is not in host memory; the caller frees
// it.
LS_STATUS ls_plan_order(const struct ls_parameter_plan *plan, uint32_t place, uint32_t **out);

// Makes one kernel of all that make shadows, where the device can, else of all that only cast; when
// programs were created.
LS_STATUS ls_plan_gather_shadows(struct ls_parameter_plan *plan);

struct ls_bindings;
// Rewrites the shadows of places [first, first + count), of which `parameters_at` and `shadows_at`
// say where they are, as bindings do.
LS_STATUS ls_plan_refresh_places(struct ls_parameter_plan *plan, uint32_t first, uint32_t count,
                                 const struct ls_bindings *bindings, struct ls_memory scratch);

// Rewrites all shadows from the flat parameters. `scratch` as large as the largest scratch_bytes.
LS_STATUS ls_plan_refresh_shadows(struct ls_parameter_plan *plan, struct ls_memory flat,
                                  struct ls_memory shadows, struct ls_memory scratch);

enum ls_purpose {
    LS_PURPOSE_TRAIN, // forward, the loss if the graph has one, and backward
    LS_PURPOSE_EVALUATE, // forward and the loss if the graph has one
    LS_PURPOSE_PREDICT, // forward; the model's outputs can be read after the run
    LS_PURPOSE_COUNT,
};

// A second stream of a device, for the branch that a training program may have: gradients of weights
// beside those of data. All programs of a replica share it.
struct ls_branch;
LS_STATUS ls_branch_open(struct ls_device *device, struct ls_branch **out);
void ls_branch_close(struct ls_branch *branch); // takes NULL
// Whether programs use it from here on, between two runs; at first they do not. [replica thread]
void ls_branch_set(struct ls_branch *branch, bool on);

// Without a loss in the graph the outputs can be read whatever the purpose is.
struct ls_program_options {
    int64_t batch; // examples of this replica, at least 1
    enum ls_purpose purpose;
    struct ls_branch *branch; // of training; lives longer than the program; NULL: none
    // By place of the plan: its bucket. Steps that read parameters of several are not tiled
    // together. Lives as long as the program; NULL: all parameters are there at once.
    const uint32_t *buckets;
};

// One kernel of a program.
struct ls_program_step {
    const struct ls_operation
        *operation; // the first of those fused into it; NULL: an inserted conversion
    struct ls_kernel *kernel; // NULL: the step is tiled
    struct ls_op_attributes attributes; // with epilogue
    struct ls_tensor *tensors[LS_MAX_ARGUMENTS];
    uint32_t input_count, output_count;
    struct ls_memory memory[LS_MAX_ARGUMENTS]; // filled by ls_program_bind
    uint64_t scratch_bytes;
    char label[64]; // "conv2d_1 backward weights", "max_pooling2d backward + relu"
    char implementation[64];
    bool backward;
    bool slow;
    bool converts_activation;
    uint64_t nanoseconds; // summed over runs while timing is on
    const struct ls_trace_label *trace; // NULL: was made while nothing was recorded
};

struct ls_program {
    struct ls_parameter_plan *plan;
    const struct ls_graph *graph;
    struct ls_program_options options;
    struct ls_program_step *steps;
    uint32_t step_count;
    uint32_t forward_count; // steps before the first backward one
    uint32_t branch_count; // steps that run on the branch
    uint64_t
        arena_bytes; // activations, gradients of activations, saved, scratch: planned by lifetimes
    uint64_t unplanned_bytes; // what the same buffers would take without sharing
    // For each place of the plan that is reduced: index of the step after which its gradient is
    // complete. Does not decrease.
    uint32_t *ready;
    // Likewise: index of the first step that writes its gradient; step_count: none.
    uint32_t *written;
    // Likewise: index of the first step that reads it, or its shadow; step_count: none.
    uint32_t *needed;
    // What steps read of parameters, or of their shadows, in the order of the steps.
    struct ls_program_read {
        uint32_t step, place;
    } * reads;
    uint32_t read_count;
    // For each total of the plan: index of the step that makes it. Increases. NULL: the program
    // does not train.
    uint32_t *totals;
    // The values and memory that the steps use; private to core/graph (build.h).
    struct ls_program_buffers *buffers;
};

// Memory that a program runs on. Programs of several batch sizes may share one arena.
struct ls_bindings {
    struct ls_memory arena; // at least arena_bytes, LS_ALIGNMENT
    struct ls_memory parameters; // flat
    // By place, and by shadow of the plan: bytes from the start of these; NULL: as in the plan.
    const uint64_t *parameters_at, *shadows_at;
    struct ls_memory gradients; // flat; nowhere without training
    const uint64_t *gradients_at; // by place: bytes from the start of these; NULL: as in the plan
    struct ls_memory shadows;
    struct ls_memory sums; // LS_SUMS floats; overwritten by the loss operation
    struct ls_memory totals; // total_bytes of the plan; nowhere without training
    struct ls_memory counts; // as many floats as the graph has slots for metrics; overwritten
    struct ls_memory record; // a struct ls_step_record
};

// Fuses, chooses layouts, prepares every kernel and plans memory. Adds shadows to the plan where
// kernels need them, so create all programs before allocating the shadow buffer.
LS_STATUS ls_program_create(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                            const struct ls_program_options *options, struct ls_program **out);
void ls_program_destroy(struct ls_program *program);

void ls_program_bind(struct ls_program *program, const struct ls_bindings *bindings);

// The examples (batch x example, plain) of each of the graph's inputs, and each of its labels
// (NULL: the graph has none) of the next run, in device memory.
void ls_program_set_batch(struct ls_program *program, const struct ls_memory *inputs,
                          const struct ls_memory *labels);
// The weights of the examples (batch floats) in the loss, of a graph that has them.
void ls_program_set_weights(struct ls_program *program, struct ls_memory weights);
// The step record of the next run.
void ls_program_set_record(struct ls_program *program, struct ls_memory record);
// The gradients that backward starts from, one for each of the graph's seeds: plain, in device
// memory.
void ls_program_set_seeds(struct ls_program *program, const struct ls_memory *seeds);

// Ends a part of the steps, of which ls_program_run may have run one after the other: what is put on
// the device's own stream from now on runs after all of them, on the branch, too. `status` is that
// of the part, which is passed on. Takes NULL.
LS_STATUS ls_program_join(struct ls_program *program, enum ls_status status);

// Runs steps [from, to); steps that are tiled together run with the first of them. Nothing is
// allocated. `timing`: adds to the steps' nanoseconds (blocking devices). The status of the device
// call that failed.
LS_STATUS ls_program_run(struct ls_program *program, uint32_t from, uint32_t to, bool timing);

// Output `index` of the model after a run whose purpose keeps it: device memory, plain layout.
struct ls_memory ls_program_output(const struct ls_program *program, uint32_t index);

// Where a value first is not finite: the name of a parameter ("conv2d/kernel"), else "input", else,
// after running forward step by step, the label of the first step with such an output ("conv2d_1
// forward"), and of rows by ids that an id was wrong; of steps that are tiled together it is the
// last one's. Empty text: all are finite. Allocates; for the end of a run that failed.
LS_STATUS ls_program_find_not_finite(struct ls_program *program, char *text, size_t bytes);

#endif
