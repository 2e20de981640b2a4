// SPDX-License-Identifier: Apache-2.0
// What the kernels of batch normalization share (batch_normalization.c): passes over pieces of
// blocks, and what is done between them.
#ifndef LS_CPU_BATCH_NORMALIZATION_H
#define LS_CPU_BATCH_NORMALIZATION_H

#include "plugins/device/cpu/cpu.h"

struct cpu_blocks {
    const struct cpu_normalization_loops *loops;
    const struct cpu_half_loops *half;
    uint32_t dtype; // of x and what is shaped like it
    void (*add)(const float *a, const float *b, float *y, int64_t n);
    bool onto_y; // what is in y is added, in halves
    struct cpu_normalization shape;
    double epsilon;
    int64_t piece_rows, pieces; // of a block
    int64_t together; // blocks: each is read a second time before the first of the next ones
    // Blocks lie side by side in a row, so that neighbouring pieces are of different blocks.
    bool across;
    int32_t added; // argument that is added to the result; -1: none
};

// A launch, at the blocks from `first`.
struct cpu_run {
    const struct cpu_blocks *state;
    const void *x, *dy, *added; // of the type of the tensors
    void *result; // y or dx
    const float *gamma, *beta, *mean, *variance;
    float *out[2]; // mean, variance or dgamma, dbeta
    struct cpu_lanes *lanes; // one for each block
    double *sums; // of the pieces of `count` blocks: two of `width` each
    double *totals; // synchronized: two of each channel, then the rows
    int64_t first, count;
    // Between the passes, for each block and then for each of its channels.
    void (*join)(const struct cpu_run *r, int64_t block);
    void (*set)(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                int64_t channel);
};

// ---- Passes over the pieces of the blocks of a run; the context is the run ----

void cpu_moments_part(void *context, int64_t begin, int64_t end);
void cpu_gradient_sums_part(void *context, int64_t begin, int64_t end);
void cpu_normalize_part(void *context, int64_t begin, int64_t end);
void cpu_gradient_part(void *context, int64_t begin, int64_t end);
// `cost`: nanoseconds for an element on one thread
void cpu_pass_blocks(const struct ls_device *device, struct cpu_run *r, double cost,
                     cpu_body *body);

// ---- Between the passes ----

// What all pieces of a block come to stands where that of the first one was.
void cpu_join_moments(const struct cpu_run *r, int64_t block);
void cpu_join_gradients(const struct cpu_run *r, int64_t block);
void cpu_set_affine(const struct cpu_run *r, struct cpu_lanes *lanes, int64_t i, int64_t channel,
                    double mean, double variance);
void cpu_set_mean(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                  int64_t channel);
void cpu_set_lanes(const struct ls_device *device, struct cpu_run *r,
                   void (*join)(const struct cpu_run *, int64_t),
                   void (*set)(const struct cpu_run *, struct cpu_lanes *, const double *, int64_t,
                               int64_t));

// ---- Launch and prepare ----

struct cpu_run cpu_run_of(const struct ls_kernel *kernel, const struct cpu_call *launch);
// Takes the next blocks; false: all are done.
bool cpu_next_blocks(struct cpu_run *r);
void cpu_finish_y(struct ls_kernel *kernel, const struct cpu_run *r);
// `tensors`: the arguments that are shaped like x, and lie as it lies
int32_t cpu_settle_blocks(struct ls_device *device, const struct ls_kernel_request *request,
                          struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                          uint32_t tensors, int64_t readings);
// `vectors`: how many follow x; then comes the addend, if there is one
int32_t cpu_prepare_y(struct ls_device *device, const struct ls_kernel_request *request,
                      struct ls_kernel *kernel, struct ls_kernel_answer *answer, uint32_t vectors,
                      int64_t readings);
// The result is added to what stands there, in the same pass.
void cpu_add_to_result(const struct ls_kernel_request *request, struct ls_kernel *kernel);

#endif
