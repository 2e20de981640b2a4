// SPDX-License-Identifier: Apache-2.0
// What the tests of core/graph share: small graphs written in a line a layer, a program with its
// memory on a device, and the messages that were logged.
#ifndef LS_TESTS_GRAPH_HARNESS_H
#define LS_TESTS_GRAPH_HARNESS_H

#include "core/graph/build.h"

// ---- Devices ----

struct harness_device {
    const struct ls_device_interface *ops;
    struct ls_device *device;
};

// Opens plugin "device-<name>"; false, with a line that begins with SKIP, when it is not here.
bool harness_open(const char *name, struct harness_device *out);
// As above, with so many threads and not one.
bool harness_open_threads(const char *name, uint32_t threads, struct harness_device *out);
void harness_close(struct harness_device *device);
// The device itself, which the core calls by this table from now on.
struct ls_device *harness_face(struct harness_device device);
// The same device, which asks for tiles of so many bytes. One such device at a time.
struct harness_device harness_with_tiles(struct harness_device device, uint64_t bytes);
// The same device with streams and events, which do nothing: programs with a branch are planned, and
// run only while it is off. One such device at a time.
struct harness_device harness_with_streams(struct harness_device device);

// ---- Messages ----

// From here on messages are kept instead of written; the last one.
void harness_capture_messages(void);
const char *harness_message(void);

// ---- Graphs: every call begins a layer of that name ----

struct ls_graph *harness_graph(const int64_t *example, uint32_t ndims);
struct ls_tensor *harness_conv(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                               int32_t filters, int32_t kernel, int32_t stride, bool same);
// A convolution without bias, padded so that stride 1 keeps rows and columns, and a layer
// "<name>_norm".
struct ls_tensor *harness_conv_norm(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                    int32_t filters, int32_t kernel, int32_t stride);
struct ls_tensor *harness_norm(struct ls_graph *graph, const char *name, struct ls_tensor *x);
// A batch normalization with gamma and beta that another layer has.
struct ls_tensor *harness_norm_with(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                    struct ls_tensor *gamma, struct ls_tensor *beta);
struct ls_tensor *harness_dense(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                int64_t units);
// A dense operation on a kernel and bias that another layer has.
struct ls_tensor *harness_dense_with(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                     struct ls_tensor *kernel, struct ls_tensor *bias);
struct ls_tensor *harness_pool(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                               uint32_t op, int32_t window, int32_t stride);
struct ls_tensor *harness_activation(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                     uint32_t activation);
struct ls_tensor *harness_simple(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                 uint32_t op);
struct ls_tensor *harness_dropout(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                  float rate);
struct ls_tensor *harness_reshape(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                  const int64_t *dims, uint32_t ndims);
struct ls_tensor *harness_flatten(struct ls_graph *graph, const char *name, struct ls_tensor *x);
struct ls_tensor *harness_add(struct ls_graph *graph, const char *name, struct ls_tensor *a,
                              struct ls_tensor *b);
struct ls_tensor *harness_parameter(const struct ls_graph *graph, const char *name);
// Loss and backward operations.
void harness_finish(struct ls_graph *graph, enum ls_loss_kind kind, bool from_logits);

// conv relu pool conv relu pool flatten dense relu dense, over (9, 8, 2), 5 classes, from logits.
struct ls_graph *harness_cnn(void);
// conv tanh, average pool, reshape, reshape, dense sigmoid, dropout, dense softmax, from
// probabilities.
struct ls_graph *harness_mixed(void);
// dense tanh twice with one kernel, the terms added, mean squared error.
struct ls_graph *harness_tied(void);
// Batch normalization of the input and of convolutions with short cuts around them, over (6, 5, 3),
// 4 classes: norm "input_norm"; convolution "stem", norm, activation "stem_act"; the same "block"
// with the stem added before the activation "block_act"; two convolutions "short" and "long" of
// stride 2, whose norms are added, and activation "join_act"; dense.
struct ls_graph *harness_residual(uint32_t activation);
// dense tanh norm tanh norm sigmoid, both norms with the same gamma and beta, mean squared error.
struct ls_graph *harness_tied_norm(void);
// A chain of random layers with random short cuts.
// Dense, tanh, a normalization that has moving statistics, tanh, dense; differentiated.
struct harness_moving {
    double momentum;
    bool synchronized;
    bool given; // it takes the moving statistics in training, too
    bool frozen; // it is not trained
    bool constants; // no gamma
    uint32_t uses; // 0: 1. Further uses of the same layer are on what the one before made.
};
struct ls_graph *harness_moving(const struct harness_moving *kind);
struct ls_graph *harness_random(uint64_t seed);

// ---- A program with its memory ----

enum { HARNESS_SEEDS = 8 };

struct harness_run {
    struct harness_device device;
    const struct ls_graph *graph;
    struct ls_parameter_plan *plan;
    struct ls_program *program;
    struct ls_bindings bindings;
    struct ls_step_record *record;
    float *input; // the first
    float *more_inputs[2];
    float *seeds[HARNESS_SEEDS];
    void *labels;
    struct ls_buffer *shadow_scratch;
};

// Plan (made when `plan` is NULL), program, memory; parameters are random by name, examples and
// labels random by their position. Calls ck_abort when something fails.
void harness_start(struct harness_run *run, struct harness_device device,
                   const struct ls_graph *graph, struct ls_parameter_plan *plan,
                   struct ls_program_options options);
void harness_stop(struct harness_run *run, bool destroy_plan);
// Refreshes shadows and runs all steps. Poisons the arena first: nothing may depend on its old
// content.
void harness_step(struct harness_run *run);
// Of the model's first output.
const struct ls_layout *harness_output_layout(const struct harness_run *run);
float harness_loss(const struct harness_run *run);
// A parameter's gradient (or the parameter itself), plain layout; freed by the caller.
float *harness_read(const struct harness_run *run, const struct ls_tensor *parameter,
                    bool gradient);
void harness_write(struct harness_run *run, const struct ls_tensor *parameter, const float *from);
int64_t harness_elements(const struct harness_run *run, const struct ls_tensor *tensor);
// Largest difference between the gradients of two runs, relative to the largest gradient.
double harness_gradient_difference(const struct harness_run *a, const struct harness_run *b);
// Index of the step whose label contains `text`; -1: none.
int harness_find_step(const struct ls_program *program, const char *text);
void harness_print_steps(const struct ls_program *program);

#endif
