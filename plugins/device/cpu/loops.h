// SPDX-License-Identifier: Apache-2.0
// The vectorised loops: plain C, compiled once for each instruction set, and the table that
// chooses. They know nothing of devices and threads; who calls them splits the work.
#ifndef LS_CPU_LOOPS_H
#define LS_CPU_LOOPS_H

#include "core/plugin/device.h"

#include <stdint.h>

struct cpu_function {
    uint32_t activation;
    float alpha;
};

// How a pooling sees its tensors: x (outer, height, width, inner), y (outer, out_height, out_width,
// inner).
enum {
    CPU_POOL_ROOM = 16384
}; // floats: a row of 16 channels of dx, where it is added up from halves
struct cpu_pool {
    int64_t outer, height, width, inner, out_height, out_width;
    int64_t kernel[2], strides[2], before[2]; // before: padding at top and left
    uint32_t index_bytes; // of one saved index: 1 or 4; 0: none is saved
    uint32_t relu; // backward: no gradient where the largest is not above 0
    uint32_t dtype; // of x and y
};

// How batch normalization sees its tensors: blocks of channels, of each of which there is a row for every pixel of every
// example. Distances are in elements.
enum { CPU_LANES = 64 }; // the most channels of a block
struct cpu_normalization {
    int64_t channels, blocks;
    int64_t width, last_width; // of a block, of the last one, which may end in padding
    int64_t rows, plane; // of a block; how many of them follow each other at the distance `row`
    int64_t row, block, example; // to the next row, block, plane
    float low, high; // y is clamped to these; then `function` runs over it
    struct cpu_function function;
};

// Rows begin <= row < end of one block.
struct cpu_rows {
    int64_t block, begin, end;
};

// Of each channel of a block, repeated: y = (x - mean) scale + shift; dx = dy scale + shift + (x - mean) slope.
struct cpu_lanes {
    float mean[CPU_LANES], scale[CPU_LANES], shift[CPU_LANES], slope[CPU_LANES];
};

// How normalization sees an example whose channels are normalized in groups: (rows, groups, width).
struct cpu_groups {
    int64_t rows, groups, width;
};

struct cpu_elementwise_loops {
    void (*activate)(struct cpu_function function, const float *x, float *y, int64_t n);
    void (*activate_backward)(struct cpu_function function, const float *dy, const float *y,
                              float *dx, int64_t n);
    // y (rows, columns) with row distance `stride`: y = function(y + bias); bias NULL: none
    void (*bias_activate)(struct cpu_function function, const float *bias, float *y, int64_t rows,
                          int64_t columns, int64_t stride);
    // y (rows, columns) of row distance y_stride, dx likewise: dx = dx function'(y)
    void (*activate_backward_rows)(struct cpu_function function, const float *y, int64_t y_stride,
                                   float *dx, int64_t dx_stride, int64_t rows, int64_t columns);
    // sums (columns) = [sums +] over rows of x (rows, columns) with row distance `stride`
    void (*column_sums)(const float *x, int64_t rows, int64_t columns, int64_t stride, uint32_t add,
                        float *sums);
    void (*add)(const float *a, const float *b, float *y, int64_t n);
    void (*maximum)(const float *a, const float *b, float *y, int64_t n);
    // da may be dy or a
    void (*maximum_backward)(const float *dy, const float *a, const float *b, float *da, float *db,
                             int64_t n);
    // y = x / divisor, rounded once
    void (*from_bytes)(float divisor, const uint8_t *x, float *y, int64_t n);
    // Elements first .. first + n of an example.
    void (*dropout)(uint64_t key, uint32_t first, float rate, const float *x, float *y, int64_t n);
    // Likewise, all of which share the draw of `element`.
    void (*dropout_shared)(uint64_t key, uint32_t element, float rate, const float *x, float *y,
                           int64_t n);
    // Elements first .. first + n of an example: normal noise of this deviation is added.
    void (*noise)(uint64_t key, uint64_t first, float deviation, const float *x, float *y,
                  int64_t n);
    void (*sgd)(float rate, float momentum, uint32_t nesterov, const float *g, float *w, float *v,
                int64_t n);
    // out: sum of squares of the finite elements, number of the others.
    void (*measure)(const float *x, int64_t n, double *out);
};

// The coefficients of one update of an optimizer; those of time are computed by who calls.
struct cpu_optimizer {
    uint32_t function, nesterov; // enum ls_update
    float rate; // the learning rate, or for Adam, Adamax and Nadam that with what depends on time
    float keep; // what is left of a parameter after weight decay
    float momentum, beta1, beta2, epsilon;
    float first, second, third; // of time: Nadam, LAMB
};

// s: the states. LAMB's direction may lie where g lies.
struct cpu_update_loops {
    void (*update)(const struct cpu_optimizer *o, const float *g, float *w, float *const *s,
                   int64_t n);
    void (*lamb_direction)(const struct cpu_optimizer *o, const float *g, float *d, float *w,
                           float *m, float *v, int64_t n);
    void (*scale)(float factor, const float *x, float *y, int64_t n);
    void (*clamp)(float bound, const float *x, float *y, int64_t n);
    void (*subtract)(float factor, const float *x, float *y, int64_t n); // y -= factor x
    void (*average)(float momentum, const float *x, float *y, int64_t n); // y = m y + (1 - m) x
};

// A function of LS_OP_FUNCTION.
struct cpu_map {
    uint32_t function;
    float factor, offset;
};

// y or dx may lie where an input lies.
struct cpu_function_loops {
    void (*map)(struct cpu_map map, const float *x, float *y, int64_t n);
    void (*map_backward)(struct cpu_map map, const float *dy, const float *x, float *dx, int64_t n);
};

// A tensor of rows: columns follow each other (step 1) or are one element repeated (step 0).
struct cpu_operand {
    const float *at;
    int64_t row, step;
};
struct cpu_result {
    float *at;
    int64_t row;
};

// What an element of dy gives to a or b.
enum cpu_term {
    CPU_TERM_SAME, // dy
    CPU_TERM_MINUS,
    CPU_TERM_TIMES_A,
    CPU_TERM_TIMES_B,
    CPU_TERM_OVER_B,
    CPU_TERM_QUOTIENT, // -dy a / b^2
    CPU_TERM_NOT_LESS, // dy where a >= b
    CPU_TERM_LESS,
    CPU_TERM_NOT_MORE, // dy where a <= b
    CPU_TERM_MORE,
    CPU_TERM_EQUAL, // dy where a == b
    CPU_TERM_COUNT, // 1 where a == b
};

struct cpu_pair_loops {
    // `function` of enum ls_pair_function
    void (*pair)(uint32_t function, int64_t rows, int64_t columns, struct cpu_operand a,
                 struct cpu_operand b, struct cpu_result y);
    // Steps of (dy, a, b): all 1, or one of a and b is 0, or those of dy and b are 0.
    void (*terms)(uint32_t term, int64_t rows, int64_t columns, struct cpu_operand dy,
                  struct cpu_operand a, struct cpu_operand b, struct cpu_result out);
    // Each column's own: adds all rows to sums; or the largest of them all and what is there.
    void (*add_rows)(const float *x, int64_t rows, int64_t columns, int64_t stride, double *sums);
    void (*largest_rows)(const float *x, int64_t rows, int64_t columns, int64_t stride,
                         double *largest);
    // One result of n: adds to the sum; or the largest.
    double (*add_run)(const float *x, int64_t n, double sum);
    double (*largest_run)(const float *x, int64_t n);
};

struct cpu_loss_loops {
    void (*softmax)(const float *x, float *y, int64_t rows, int64_t columns);
    void (*softmax_backward)(const float *dy, const float *y, float *dx, int64_t rows,
                             int64_t columns);
    // Adds to out: the losses of `rows` positions, how many are right. probabilities (rows,
    // columns).
    void (*cross_entropy_logits)(const float *x, const int32_t *labels, float *probabilities,
                                 int64_t rows, int64_t columns, double *out);
    void (*cross_entropy_probabilities)(const float *x, const int32_t *labels, float epsilon,
                                        int64_t rows, int64_t columns, double *out);
    void (*cross_entropy_logits_backward)(const float *probabilities, const int32_t *labels,
                                          float scale, float *dx, int64_t rows, int64_t columns);
    void (*cross_entropy_probabilities_backward)(const float *x, const int32_t *labels,
                                                 float epsilon, float scale, float *dx,
                                                 int64_t rows, int64_t columns);
    double (*squared_error)(const float *x, const float *target, int64_t n);
    void (*squared_error_backward)(const float *x, const float *target, float factor, float *dx,
                                   int64_t n);
};

// Rows are counted over outer: row r of y is (r / out_height, r % out_height), of x likewise.
struct cpu_pooling_loops {
    void (*largest)(const struct cpu_pool *pool, const void *x, void *y, void *saved, int64_t begin,
                    int64_t end);
    void (*largest_backward)(const struct cpu_pool *pool, const void *dy, const void *saved,
                             void *dx, int64_t begin, int64_t end);
    void (*mean)(const struct cpu_pool *pool, const void *x, void *y, int64_t begin, int64_t end);
    void (*mean_backward)(const struct cpu_pool *pool, const void *dy, void *dx, int64_t begin,
                          int64_t end);
};

// Sums of a channel are doubles, (width) of the block; `added` (as x) may be NULL, and y or dx may lie where an input lies.
struct cpu_normalization_loops {
    // Of these rows: the mean, and the sum of the squares of the distances from it.
    void (*moments)(const struct cpu_normalization *n, struct cpu_rows rows, const float *x,
                    double *mean, double *squares);
    // Those of `count` more rows join those of `before` rows.
    void (*join_moments)(int64_t width, double before, double count, const double *more_mean,
                         const double *more_squares, double *mean, double *squares);
    void (*normalize)(const struct cpu_normalization *n, struct cpu_rows rows,
                      const struct cpu_lanes *lanes, const float *x, const float *added, float *y);
    // Of these rows: sum of dy, sum of dy (x - mean); mean (CPU_LANES) as in cpu_lanes
    void (*gradient_sums)(const struct cpu_normalization *n, struct cpu_rows rows,
                          const float *mean, const float *x, const float *dy, double *sum,
                          double *product);
    void (*gradient)(const struct cpu_normalization *n, struct cpu_rows rows,
                     const struct cpu_lanes *lanes, const float *x, const float *dy,
                     const float *added, float *dx);
};

// How the taps of a kernel see x and dy: pixels, of each of which `lanes` channels are looked at.
struct cpu_taps {
    int64_t examples, x_example, y_example; // how many; elements from one to the next
    int64_t x_pixel, y_pixel; // elements from one pixel to the next
    int64_t kernel[2], strides[2], dilation[2], before[2];
    int64_t x_size[2], y_size[2];
};

// x and dy begin at a block of channels, dw at the block that these two give.
struct cpu_convolution_loops {
    int64_t lanes;
    // dw (kernel rows, kernel columns, lanes of x, lanes of dy)
    void (*weights)(const struct cpu_taps *t, const float *x, const float *dy, float *dw);
    // dw (kernel rows, kernel columns, lanes)
    void (*depthwise_weights)(const struct cpu_taps *t, const float *x, const float *dy, float *dw);
};

// gamma, beta and `saved` may be NULL.
struct cpu_layer_loops {
    // saved (rows, 2): mean, 1 / deviation
    void (*normalize_rows)(const float *x, const float *gamma, const float *beta, float epsilon,
                           float *y, float *saved, int64_t rows, int64_t columns);
    // Adds to dgamma and dbeta, each of which may be NULL; dx may be dy or x.
    void (*normalize_rows_backward)(const float *dy, const float *x, const float *saved,
                                    const float *gamma, float *dx, float *dgamma, float *dbeta,
                                    int64_t rows, int64_t columns);
    // Of one example; saved (groups, 2); room for 4 values a channel.
    void (*normalize_groups)(const struct cpu_groups *g, const float *x, const float *gamma,
                             const float *beta, float epsilon, float *y, float *saved, float *room);
    // Writes dgamma and dbeta of this example; dx may be dy or x.
    void (*normalize_groups_backward)(const struct cpu_groups *g, const float *dy, const float *x,
                                      const float *saved, const float *gamma, float *dx,
                                      float *dgamma, float *dbeta, float *room);
    // p (rows, columns) with row distance `stride`: softmax over the first visible + r columns of row r, 0 in the others
    void (*attention_softmax)(float *p, int64_t stride, int64_t rows, int64_t columns,
                              int64_t visible);
    // dp = p (dp - sum of p dp) scale
    void (*attention_softmax_backward)(const float *p, int64_t p_stride, float *dp, int64_t stride,
                                       int64_t rows, int64_t columns, float scale);
    // `step` of alpha from element to element: 0 or 1
    void (*prelu)(const float *x, const float *alpha, int64_t step, float *y, int64_t n);
    // Adds to dalpha; dx may be dy or x.
    void (*prelu_backward)(const float *dy, const float *x, const float *alpha, int64_t step,
                           float *dx, float *dalpha, int64_t n);
    // out: sum of the magnitudes, of the squares
    void (*norms)(const float *w, int64_t n, double *out);
    // dw = l1 sign(w) + l2 w; dw may be w
    void (*norms_backward)(const float *w, float l1, float l2, float *dw, int64_t n);
};

// `dtype`: LS_BF16 or LS_F16
struct cpu_half_loops {
    void (*widen)(uint32_t dtype, const uint16_t *x, float *y, int64_t n);
    void (*narrow)(uint32_t dtype, const float *x, uint16_t *y, int64_t n);
    // (rows, columns), whose rows are `x_stride` and `y_stride` elements apart
    void (*widen_rows)(uint32_t dtype, const uint16_t *x, int64_t rows, int64_t columns,
                       int64_t x_stride, float *y, int64_t y_stride);
    void (*narrow_rows)(uint32_t dtype, const float *x, int64_t rows, int64_t columns,
                        int64_t x_stride, uint16_t *y, int64_t y_stride);
    // sums (columns): over rows of x (rows, columns) with row distance `stride`
    void (*column_sums)(uint32_t dtype, const uint16_t *x, int64_t rows, int64_t columns,
                        int64_t stride, float *sums);
    // dx = 0 where y is not above 0
    void (*relu_backward)(uint32_t dtype, const uint16_t *y, uint16_t *dx, int64_t n);
    // The pairs in bfloat16 of `columns` columns, padded to `block` of them (a multiple of 16), in y
    // (padded / 2, block): one has rows 2i and 2i + 1 of w (depth, columns), 0 outside. Rows of w,
    // or of its transposition (columns, depth), are `stride` apart; `padded` is a multiple of 32.
    void (*pack_pairs)(const float *w, int64_t depth, int64_t columns, int64_t stride,
                       int64_t block, int64_t padded, uint32_t *y);
    void (*pack_transposed_pairs)(const float *w, int64_t depth, int64_t columns, int64_t stride,
                                  int64_t block, int64_t padded, uint32_t *y);
};

// Of recurrent layers. Rows of gates are in parts of n, as enum ls_recurrent says; an output may
// lie where an input lies.
struct cpu_recurrent_loops {
    int64_t panel; // columns of a packed matrix are padded to a multiple of it
    // Element (k, j) of the matrix is w[k row + j column]; packed (panels, depth, panel).
    void (*pack)(const float *w, int64_t depth, int64_t columns, int64_t row, int64_t column,
                 float *packed);
    // y (rows, columns) = [y +] x (rows, depth) times the packed matrix; x_row and y_row are
    // elements from one row to the next
    void (*product)(const float *x, int64_t x_row, const float *packed, int64_t depth,
                    int64_t columns, uint32_t add, float *y, int64_t y_row, int64_t rows);
    void (*add_two)(const float *a, const float *b, float *y, int64_t n); // y += a + b
    void (*multiply)(const float *a, const float *b, float *y, int64_t n);
    void (*multiply_add)(const float *a, const float *b, float *y, int64_t n); // y += a b
    void (*lstm_state)(const float *gates, const float *c, float *y, int64_t n); // c of the step
    void (*gru_state)(const float *gates, const float *h, float *y, int64_t n); // h of the step
    // Gradients d (4 n) of what the gates are functions of, but for the slopes of these, and of c
    // before the step. through: dh o f'(shown), shown: f(c) of the step
    void (*lstm_backward)(const float *gates, const float *c, const float *shown, const float *dh,
                          const float *through, float *dc, float *d, int64_t n);
    // Likewise d of z and of e; dh becomes that of h before the step past the products.
    void (*gru_backward)(const float *gates, const float *h, float *dh, float *d, int64_t n);
};

struct cpu_loops {
    const char *name;
    const struct cpu_elementwise_loops *elementwise;
    const struct cpu_layer_loops *layers;
    const struct cpu_function_loops *function;
    const struct cpu_update_loops *update;
    const struct cpu_pair_loops *pair;
    const struct cpu_loss_loops *loss;
    const struct cpu_normalization_loops *normalization;
    const struct cpu_pooling_loops *pooling;
    const struct cpu_half_loops *half;
    const struct cpu_convolution_loops *convolution;
    const struct cpu_recurrent_loops *recurrent;
};

// The best that this processor has and that oneDNN was not told to leave alone
// (ONEDNN_MAX_CPU_ISA).
const struct cpu_loops *cpu_loops_choose(void);

// In a file of loops: CPU_TABLE(elementwise) is the name of its table for the instruction set.
#define CPU_JOIN(a, b) a##_##b
#define CPU_JOINED(a, b) CPU_JOIN(a, b)
#define CPU_TABLE(group) CPU_JOINED(cpu_##group, CPU_ISA)

#define CPU_DECLARE_TABLES(isa)                                          \
    extern const struct cpu_elementwise_loops cpu_elementwise_##isa;     \
    extern const struct cpu_layer_loops cpu_layers_##isa;                \
    extern const struct cpu_function_loops cpu_function_##isa;           \
    extern const struct cpu_update_loops cpu_update_##isa;               \
    extern const struct cpu_pair_loops cpu_pair_##isa;                   \
    extern const struct cpu_loss_loops cpu_loss_##isa;                   \
    extern const struct cpu_normalization_loops cpu_normalization_##isa; \
    extern const struct cpu_pooling_loops cpu_pooling_##isa;             \
    extern const struct cpu_half_loops cpu_half_##isa;                   \
    extern const struct cpu_convolution_loops cpu_convolution_##isa;     \
    extern const struct cpu_recurrent_loops cpu_recurrent_##isa;
CPU_DECLARE_TABLES(baseline)
CPU_DECLARE_TABLES(avx2)
CPU_DECLARE_TABLES(avx512)

#endif
