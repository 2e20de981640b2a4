// SPDX-License-Identifier: Apache-2.0
// Our own kernels for what the libraries do not have, as one call. C that is also C++, so that kernels.cu can include it. What each
// kernel does with one item is in bodies.h. Functions, activations and the step record are those of core/plugin/operations.h.
#ifndef LS_DEVICE_CUDA_KERNELS_H
#define LS_DEVICE_CUDA_KERNELS_H

#include "core/plugin/operations.h"
#include "plugins/device/cuda/engine/division.h"

#include <stdint.h>

struct CUstream_st;

// How numbers lie in memory; computed with is float32. Zero is float32, so that who says nothing has that.
enum cuda_type { CUDA_FLOAT = 0, CUDA_F16 = 1, CUDA_BF16 = 2 };

// Where element i of a result goes: epilogue, then added to what is there, or written, rounded once.
struct cuda_store {
    void *out;
    const void *y; // of an epilogue that is a backward one
    uint32_t type; // of both, enum cuda_type
    uint32_t epilogue; // 0: none, 1: activation, 2: backward of it
    uint32_t activation; // of the epilogue, enum ls_activation
    float alpha;
    uint32_t add;
};

// A window that slides over (B,H,W,C) and makes (B,OH,OW,.)
struct cuda_window {
    int64_t batch, height, width, channels;
    int64_t out_height, out_width;
    int64_t size[2], stride[2], before[2], after[2], dilation[2]; // rows, columns
};

// Where the pairs of numbers meet that the blocks of a grid add up (pairs.cuh).
#define CUDA_PAIR_BLOCKS 512 // of such a grid, at most

struct cuda_pairs {
    double *parts; // one of each block; NULL: nobody asks for the sum
    uint32_t *done; // blocks that are; 0 before and after
};

struct cuda_arguments {
    struct cuda_store store;
    const void *a, *b;
    const void *bias; // NULL: none; of the type of a
    uint32_t a_type, b_type; // enum cuda_type
    const int32_t *labels;
    int32_t *flags[2]; // of a guard
    float *first; // beside store.out: probabilities; variance
    struct cuda_pairs pairs;
    void *sums; // what comes of them
    const struct ls_step_record *record;
    struct cuda_window window;
    int64_t count; // elements
    int64_t rows, columns; // rows: M, or positions; columns: N, C, or units of a row
    int64_t positions; // of an example
    int64_t width; // how many items add side by side
    int64_t examples;
    int64_t filters, groups; // of a convolution
    int64_t tap_step,
        filter_step; // how far in w the next (row, column, channel), the next filter is
    uint32_t activation, key, from_logits;
    uint32_t add_first; // whether what goes to `first` is added to it
    float alpha, rate, epsilon, divisor, factor;
};

// Element by element (elements.cuh)
#define CUDA_ELEMENT_KERNELS(kernel)                                                             \
    kernel(finish) /* elements: a [+ bias over columns], stored */                               \
        kernel(activation) kernel(activation_backward) kernel(add) kernel(dropout) kernel(noise) \
            kernel(from_bytes) /* a holds bytes */ kernel(penalty_backward)

// name: items
#define CUDA_KERNELS(kernel)                                                         \
    kernel(transpose) /* elements: a (rows, columns) turned */                       \
        kernel(pad) /* elements of the padded tensor */                              \
        kernel(crop) /* elements of the tensor without padding [+ bias], stored */   \
        kernel(average_pool) /* elements of y */                                     \
        kernel(average_pool_backward) /* elements of x */                            \
        kernel(convolution) /* elements of y, x and w */                             \
        kernel(convolution_data) kernel(convolution_weights) /* without a library */ \
        kernel(guard) /* 1 */ kernel(batch_statistics) /* channels */

// By threads that work together (rows.cuh). name: items
#define CUDA_ROW_KERNELS(kernel)                                                          \
    kernel(softmax) kernel(softmax_backward) /* rows */                                   \
        kernel(cross_entropy) /* with its gradient, where the store has a place for it */ \
        kernel(differs) /* rows: whether an element of a, or of labels, is not `factor` */
// Items that are pairs, which are added up where somebody asks; the error also with its gradient. name: items
#define CUDA_PAIR_KERNELS(kernel) kernel(squared_error) kernel(measure) kernel(penalty) /* width */

enum cuda_kernel {
#define CUDA_KERNEL_NUMBER(name) cuda_kernel_##name,
    CUDA_ELEMENT_KERNELS(CUDA_KERNEL_NUMBER) CUDA_KERNELS(CUDA_KERNEL_NUMBER)
        CUDA_ROW_KERNELS(CUDA_KERNEL_NUMBER) CUDA_PAIR_KERNELS(CUDA_KERNEL_NUMBER)
#undef CUDA_KERNEL_NUMBER
};

// Reductions for collectives (reduce_body.h).
struct cuda_reduction {
    void *to;
    const void *from; // NULL: divide
    void *also; // or NULL
    uint64_t divisor;
    int64_t head; // elements before the first pack
    int64_t packs; // of 16 bytes
    int64_t items; // packs and single elements
    uint32_t dtype; // enum ls_dtype
    uint32_t operation; // enum ls_reduction; 0: divide
};

// Moves (move.cuh). Offsets count packs: 1 element, or 4 that are moved at once; the last dimension counts packs, too.
#define CUDA_DIMS 6

#define CUDA_TURNED_TILE 32 // elements of a side

// Each element of the result is that of `from` whose place along each dimension is `shift` further, or 0 where there is no such;
// `step`: how far the next place along a dimension is in `from`.
struct cuda_move {
    struct cuda_store store;
    const void *from;
    uint32_t type; // of both
    int32_t dims, pack;
    int64_t items; // packs of the result
    int64_t out[CUDA_DIMS], in[CUDA_DIMS], shift[CUDA_DIMS], step[CUDA_DIMS];
    // The last dimension of `from`, where it is another one here: elements go by tiles of it and of the last; -1: one by one.
    int32_t turned;
    int64_t tiles[2], blocks; // of dimension `turned`, of the last; all
};

// The parts of each row are one after the other in a row of the whole.
#define CUDA_PARTS 8

struct cuda_concatenation {
    struct cuda_store store; // y; backward its type counts alone
    const void *whole; // dy, whose parts are written; NULL: parts are read
    void *parts[CUDA_PARTS];
    int64_t start[CUDA_PARTS + 1]; // of each part in a row, and the end
    int64_t items; // packs of the whole
    int32_t pack;
    uint32_t add; // bit k: part k is added to
};

// x (B, rows, columns, channels) and y, `factor` times as large; backward the store is dx, and `from` dy.
struct cuda_upsampling {
    struct cuda_store store;
    const void *from;
    uint32_t type; // of both
    uint32_t bilinear, backward;
    int32_t pack; // channels count packs
    int64_t items; // packs of the result
    int64_t rows, columns, channels, factor[2];
};

// Tensors that are walked together (walk.cuh), element by element or folded: sizes of dimensions, and how far the next place along
// each is in each tensor; 0 where an element is repeated.
#define CUDA_WALKED 4

struct cuda_walk {
    int32_t dims;
    int64_t size[CUDA_DIMS], step[CUDA_WALKED][CUDA_DIMS];
};

// What becomes of an element of each tensor.
enum cuda_term {
    cuda_term_pair, // a, b: `function` of them
    cuda_term_pair_first, // dy, a, b: dy times its derivative by a
    cuda_term_pair_second,
    cuda_term_value, // x times `factor`
    cuda_term_equal, // x, y: 1 where they are equal
    cuda_term_share, // dy, x, y, how many x are y: what such an x has of dy
    cuda_term_prelu, // x, alpha
    cuda_term_prelu_data, // dy, x, alpha: dx
    cuda_term_prelu_slope, // dy, x: what alpha gets
    cuda_term_dropout // x; the offsets of the others are the number that is drawn and the example
};

struct cuda_broadcast {
    struct cuda_store store;
    const void *values[CUDA_WALKED]; // the fourth is float32
    const struct ls_step_record *record;
    struct cuda_walk walk;
    int64_t count;
    uint32_t type; // of the values, enum cuda_type
    uint32_t term, function; // enum cuda_term, enum ls_pair_function
    uint32_t tensors; // how many are walked
    int32_t pack; // elements of an item: 1 or 4
    uint32_t key;
    float factor, rate;
};

// A block has `across` outputs, or packs of them, and for each `down` threads, whose number is a power of two.
struct cuda_fold {
    struct cuda_store store; // without epilogue
    const void *values[CUDA_WALKED];
    double *parts; // (part_count, outputs); NULL: one part, which is stored
    struct cuda_walk kept, folded;
    struct cuda_divisor kept_by[CUDA_DIMS], folded_by[CUDA_DIMS]; // their sizes
    int64_t outputs, each; // each: elements that are folded into one; both are below 2^31
    int32_t part_count, tiles; // tiles: blocks over the outputs
    double share; // of what is added that a result is
    uint32_t type; // of the values, enum cuda_type, or CUDA_DOUBLES for values[0]
    uint32_t term, function;
    uint32_t tensors;
    uint32_t largest; // the largest, else the sum
    uint32_t rows; // elements side by side are folded, else they are of outputs side by side
    int32_t pack, across, down;
};

// Max-pooling (pooling.cuh), forward, or backward with windows that are apart or may overlap. Items and packs of channels in
// `in` and out are fewer than 2^31.
enum cuda_pooling_kernel { cuda_pooling_forward, cuda_pooling_apart, cuda_pooling_overlapping };

struct cuda_pooling {
    struct cuda_store store; // y or dx
    const void *in; // x or dy, of the store's type
    const void *largest; // y, whose ReLU the gradient goes through; NULL: what the store says
    void *saved; // which element of the window won; NULL: nobody asks
    struct cuda_divisor rows, columns, channels; // of x; channels in packs
    struct cuda_divisor out_rows, out_columns;
    struct cuda_divisor strides[2];
    struct cuda_divisor steps; // of windows that are apart, over the columns of x
    int32_t size[2], before[2]; // rows, columns
    uint32_t pack; // channels of an item: 1 or 4
    uint32_t wide; // `saved` has 4 bytes an element, else 1
    uint32_t items;
};

#define CUDA_BLOCK 256 // threads that work together

// Sums of the columns of (rows, columns), of all rows at once, or of parts of them (columns.cuh).
#define CUDA_ROWS_AHEAD 8 // that a thread asks for at once
#define CUDA_DOUBLES 3 // type of what the parts are

struct cuda_column_sums {
    struct cuda_store store; // of the sums, without epilogue
    const void *values;
    double *sums; // (parts, columns); NULL: one part, which is stored
    int64_t rows, columns;
    int64_t parts;
    int64_t turns; // until `parts` x `down` threads have had all rows
    uint32_t type; // of the values, enum cuda_type, or CUDA_DOUBLES
    uint32_t pack; // columns of a thread: 1 or 4
    uint32_t across, down; // threads of a block
    uint32_t tiles; // blocks over the columns
};

// Batch normalization (normalization.cuh). How blocks of threads lie over (rows, columns): beside each other over the columns, each
// thread with `pack` of them, and over the rows in turns of `down`.
#define CUDA_BLOCKS_BESIDE 4 // on a multiprocessor at once, with a quarter of its registers each

struct cuda_tiles {
    int64_t rows, columns;
    int64_t tiles, parts; // blocks beside each other, and over the rows
    int32_t across, down; // threads of a block
    int32_t pack; // 1, or 4 that are read at once
};

struct cuda_normalization {
    struct cuda_store store; // y or dx
    const void *x, *other; // other: dy, or the addend (NULL: none)
    uint32_t type; // of both
    uint32_t add[2]; // whether dgamma and dbeta are added to
    float epsilon;
    const float *gamma, *beta;
    float *mean, *variance; // those of the statistics are written
    float *dgamma, *dbeta;
    double *parts; // two numbers for each part of each column
    double *
        totals; // two for each channel: mean and variance; or sums of dy (x - mean) and dy. NULL: given
    // Of all replicas, in the operations for that: a sum of each channel, another one of each, and the values of a channel. Sums of
    // x and of x^2; or of dy (x - mean) / sqrt(variance + epsilon) and of dy.
    double *moments;
    int64_t channels;
    double share; // 1 / values of a channel
    struct cuda_tiles tiles; // (rows, columns): several rows of few channels may be read as one
    struct cuda_tiles merged; // (parts of a channel, channels)
    int64_t lanes; // threads over the rows in what goes element by element
};

enum cuda_normalization_kernel {
    cuda_normalization_moments, // of parts: mean and sum of squares around it
    cuda_normalization_statistics, // mean and variance of channels, of parts
    cuda_normalization_shared_statistics, // mean and variance of channels, of moments
    cuda_normalization_normalize, // y
    cuda_normalization_products, // of parts: sums of dy (x - mean) and dy
    cuda_normalization_gradients, // dgamma and dbeta, of parts
    cuda_normalization_shared_gradients, // totals, of moments
    cuda_normalization_normalize_backward // dx
};

// Functions of elements (function.cuh).
struct cuda_function {
    struct cuda_store store; // y or dx; of the type of x and dy
    const void *x, *dy; // dy NULL: forward
    uint32_t function; // enum ls_function
    float factor, offset;
    uint32_t aligned; // whether four elements are read and written at once
    int64_t count;
};

// What goes over flat ranges (update.cuh), after the optimizers of enum ls_update.
enum {
    CUDA_AVERAGE = LS_UPDATE_COUNT,
    CUDA_LAMB,
    CUDA_EMA,
    CUDA_LAMB_DIRECTION,
    CUDA_CLIP_VALUE,
    CUDA_CLIP_NORM,
    CUDA_UNSCALE,
    CUDA_UPDATES
};

#define CUDA_UPDATE_STATES 3
#define CUDA_SHARED_NUMBERS 3

struct cuda_update {
    const float *in; // gradient; direction; of an average of weights the parameter
    float *out; // parameter; average; direction; what is clipped or not scaled any more
    float *states[CUDA_UPDATE_STATES]; // NULL: there is no such
    const double *measures; // pairs
    const struct ls_step_record *record;
    int64_t count, pairs;
    uint32_t function; // enum ls_update, and those above
    uint32_t nesterov, every;
    uint32_t aligned; // whether four elements are read and written at once
    float momentum, beta1, beta2, epsilon, weight_decay, threshold;
};

// Losses with a function, and metrics (losses.cuh).
enum {
    cuda_losses_loss,
    cuda_losses_metric,
    cuda_losses_correlation, // a metric
    cuda_losses_squares, // of columns
    cuda_losses_bins, // of elements, counted
    cuda_losses_choose, // which bin each item adds to
    cuda_losses_weigh, // bins of what was chosen, with weights
    cuda_losses_masked_mean,
    cuda_losses_masked_gradient
};

#define CUDA_BINS 4096 // that a block counts at once

struct cuda_losses {
    const float *predictions, *targets; // targets NULL: labels
    const float *weights; // NULL: 1
    const double *moments; // of a mask of the positions; NULL: there is none
    const int32_t *labels;
    float *gradients; // NULL: nobody asks
    float *each; // the loss of each position, NULL: nobody asks; the mean of each row
    const float *dy; // of that, with its gradient; NULL: the loss of all is asked for, or means
    float *sums; // of losses; counts
    struct cuda_pairs pairs;
    uint32_t *counts; // (blocks, bins)
    int32_t *chosen; // the bin of each item, or -1
    double *parts; // (blocks, bins): sums of weights, or of squares and what is beside them
    const struct ls_step_record *record;
    int64_t rows, columns; // positions and their elements; of means examples and their positions
    int64_t positions; // of an example
    int64_t bins, items; // items: positions, or elements
    uint32_t blocks; // that count, or have a part of the items; parts of the rows
    uint32_t each_position; // whether a position has a weight; else an example has
    uint32_t add; // whether gradients are added to
    uint32_t function; // enum ls_loss_function or ls_metric_function
    uint32_t from_logits, count;
    float epsilon, smoothing, threshold;
};

// Convolutions of one group with few taps (taps.cuh). There are kernels for up to CUDA_TAPS_FEW and up to CUDA_TAPS_MOST taps.
#define CUDA_TAPS_FEW 9
#define CUDA_TAPS_MOST 27
#define CUDA_TAPS_BESIDE_FEW 4 // blocks on a multiprocessor
#define CUDA_TAPS_BESIDE_MOST 3
#define CUDA_TAPS_THREADS 128 // of a block, and most positions of a chunk
#define CUDA_TAPS_FOUR 4 // filters, and positions, of a thread at once
#define CUDA_TAPS_TOTAL 256 // threads of a block that adds parts
#define CUDA_TAPS_OUTPUTS 8 // of such a block

struct cuda_taps {
    struct cuda_store store, bias_store; // y; or dw and db
    const void *x, *dy;
    const void *w, *bias; // NULL: no bias
    float *parts; // (part_count, rows, filters)
    uint32_t type; // of what is read
    int32_t batch, height, width, channels; // of x
    int32_t out_height, out_width, positions, filters; // of y or dy; positions: of all images
    int32_t aligned; // whether four filters are read and written at once
    int32_t stride[2], before[2];
    int32_t taps, rows; // rows: taps, and one more where there is a gradient of a bias
    int32_t tap_step, filter_step; // as in struct cuda_arguments
    int32_t across, down; // threads of a block over filters, and over positions
    int32_t tiles; // blocks over filters
    int32_t size, chunks, part_count; // of a chunk, and blocks over chunks
    int32_t step[3]; // from a chunk of a block to its next: images, rows, columns of the output
    // Of taps, from where a window begins.
    int32_t row[CUDA_TAPS_MOST], column[CUDA_TAPS_MOST], offset[CUDA_TAPS_MOST];
};

enum { cuda_taps_forward, cuda_taps_weights, cuda_taps_total };

// Rows of a table by index (gather.cuh). A key is (row, position), 32 bits each.
#define CUDA_GATHER_TILE 256 // keys that a block sorts

enum cuda_gather_kernel {
    cuda_gather_forward,
    cuda_gather_sort,
    cuda_gather_merge,
    cuda_gather_find,
    cuda_gather_add
};

struct cuda_gather {
    struct cuda_store store; // y (count, width), or dtable (rows, width)
    const void *ids;
    const void *from; // table, of float32, or dy
    uint64_t *keys; // that are merged
    uint64_t *sorted; // where they go
    int32_t *starts; // the first key of each row, and of that behind the last
    int64_t count, rows, width;
    int64_t packs; // of a row
    int64_t run; // keys that lie sorted one after the other
    int64_t tiles; // blocks over the columns
    int32_t across; // threads of a block over the columns
    uint32_t type; // of `from`, enum cuda_type
    uint32_t pack; // columns of a thread: 1 or 4
    uint32_t float_ids; // else int32_t
};

// Layer and group normalization (layer.cuh): x is (examples, positions, groups, width) or, over the last dimension, (rows, 1, 1,
// channels); a set has positions x width values.
enum cuda_layer_kernel {
    cuda_layer_forward,
    cuda_layer_backward,
    cuda_layer_add_part,
    cuda_layer_add_parts
};

struct cuda_layer {
    struct cuda_store store; // y or dx
    struct cuda_store gamma_store, beta_store; // gradients; out NULL: nobody asks
    const void *x, *dy;
    const float *gamma, *beta; // NULL: 1 and 0
    float *saved; // two numbers of a set; NULL: nobody asks
    float *sums; // (parts, 2, channels)
    int64_t sets, values; // values of a set
    int64_t positions, groups, width, channels;
    int64_t parts; // of the positions of all examples
    float epsilon;
    uint32_t type; // of x and dy, enum cuda_type
    uint32_t pack; // channels of a thread: 1 or 4
    uint32_t wide; // a block has a set, else a warp
};

// A product of matrices (product.cuh); steps: to the next matrix, row, column.
struct cuda_multiplication {
    const void *a, *b;
    void *d;
    uint32_t type; // of all, enum cuda_type
    int64_t rows, columns, inner, batch;
    int64_t a_steps[3], b_steps[3], d_steps[3];
    float alpha, beta;
};

// Attention around its products (attention.cuh).
#define CUDA_WARP_ROW 1024 // elements of a row that a warp has; more are for a block
#define CUDA_PACK 4 // elements that are moved at once where they can be
#define CUDA_HEAD_TENSORS 4

struct cuda_head_tensor {
    const void *from;
    void *to;
    int64_t positions, packs; // packs: of a position of a head
    int64_t items; // packs of all
    uint32_t add; // to what is there
};

struct cuda_heads {
    struct cuda_head_tensor tensors[CUDA_HEAD_TENSORS];
    int64_t heads;
    uint32_t from_type, to_type; // enum cuda_type
    uint32_t together; // heads are brought together, else back
    uint32_t pack; // 1 or CUDA_PACK
};

struct cuda_attention {
    float *scores, *gradients; // (matrices, queries, keys); gradients NULL: forward
    const struct ls_step_record *record;
    int64_t rows; // matrices x queries
    int64_t queries, keys, heads;
    int64_t first; // number of the first matrix among those of all examples and heads
    uint32_t causal, key;
    float rate;
};

// Casts of many tensors of float32 to halves (casts.cuh).
#define CUDA_CASTS 96 // arguments of a kernel have 4 KiB

struct cuda_cast {
    int64_t from, to; // elements behind those of the first
    int64_t count; // elements
    int64_t end; // tiles, of this one and those before
};

struct cuda_casts {
    const float *from; // of the first
    void *to;
    uint32_t type; // enum cuda_type of what is written
    uint32_t aligned; // 1: all may be read and written four at a time
    uint32_t count;
    struct cuda_cast casts[CUDA_CASTS];
};
#define CUDA_CAST_TILE (4 * CUDA_BLOCK) // elements of a block

// Images (augment.cuh): x (B, rows, columns, channels) and y of another size, or factors.
enum cuda_augment_kernel {
    cuda_augment_draw,
    cuda_augment_sample, // resized or transformed, and back
    cuda_augment_recolour,
    cuda_augment_erase
};

struct cuda_augment {
    struct cuda_store store; // y, dx or factors
    const float *x; // or dy, where no other image is read
    const float *dy;
    const float *factors; // NULL: an image is resized
    const struct ls_step_record *record;
    int64_t batch, rows, columns, channels; // of x
    int64_t to_rows, to_columns; // of y
    uint32_t function, key, backward;
    int32_t numbers; // that are drawn for an example
    int32_t crop[2]; // rows, columns
    float low, high, other_low, other_high, offset, factor;
};

// Recurrent layers (recurrent.cuh): B examples, T steps, U units, G gates.
enum cuda_recurrent_kernel {
    cuda_recurrent_begin,
    cuda_recurrent_reset, // of a gated unit that is reset before its product
    cuda_recurrent_step,
    cuda_recurrent_begin_backward,
    cuda_recurrent_step_backward,
    cuda_recurrent_reset_backward,
    cuda_recurrent_factor, // what the gradient of w is a product with
    cuda_recurrent_finish // gradients of the first states
};

struct cuda_recurrent {
    const float *p, *b, *start, *mask; // as LS_OP_RECURRENT has them; mask NULL: there is none
    const float *dy;
    float *y, *ds;
    float *h, *c, *shown; // (B,U): states and the output; backward gradients of these
    float *q; // (B,G U): products of h
    float *factors; // what products are with, by gate (G,B,U), and of all steps (G,B,T,U)
    float *reset; // (B,U): the state of a gated unit that is reset before; backward its gradient
    float *parts; // (G,B,U): gradients of the state through each gate
    float *before, *gates, *cells, *resets; // saved (B,T,U), gates (B,T,G U); NULL: nobody asks
    float *d, *dq; // (B,T,G U): gradients of p, and of products; may be the same
    const struct ls_step_record *record;
    int64_t batch, steps, units, gate_count, states;
    int64_t rows; // of y of an example
    int64_t time; // which step in time it is
    int64_t row; // of y, that has the output of the step; -1: none
    uint32_t last; // whether no step follows
    uint32_t join; // whether `parts` are there
    uint32_t add; // whether ds is added to
    uint32_t one_start; // all examples have the same first state
    uint32_t cell, sequence; // enum ls_recurrent, bits of enum ls_sequence
    uint32_t activation, recurrent_activation, key;
    float rate;
};

// Categories (categories.cuh): x, or ids (B,together,rest), and what a table has for them.
enum cuda_categories_kernel {
    cuda_categories_bucket,
    cuda_categories_lookup,
    cuda_categories_encode
};

struct cuda_categories {
    struct cuda_store store;
    const int32_t *whole; // NULL: they are floats
    const float *floats;
    const float *table; // boundaries, or (table_rows,3)
    int64_t items, table_rows; // items: elements of y
    int64_t together, rest; // 1 where ids do not meet
    uint32_t function, count; // function: enum ls_encode
    float offset;
};

// The kernels of a struct of arguments: one, or several by number.
#define CUDA_FAMILIES(one, several)                                                              \
    one(reduction) one(move) one(concatenation) one(upsampling) one(broadcast) one(fold)         \
        one(function) one(column_sums) one(update) one(multiplication) one(heads) one(attention) \
            one(casts) several(normalization) several(pooling) several(losses) several(taps)     \
                several(gather) several(layer) several(augment) several(recurrent)               \
                    several(categories)

#ifdef __cplusplus
extern "C" {
#endif

// Loads all kernels onto the calling thread's GPU: by itself CUDA loads each at its first launch, waits for the GPU meanwhile,
// and so for ever where that waits for another GPU, whose thread waits for a lock of the driver.
unsigned cuda_kernels_load(void);
// Puts the kernel on the stream. 0, or an error of the CUDA runtime. `arguments` is copied.
unsigned cuda_kernel_launch(uint32_t kernel, const struct cuda_arguments *arguments, int64_t items,
                            struct CUstream_st *stream);
#define CUDA_ONE(name) \
    unsigned cuda_##name##_launch(const struct cuda_##name *arguments, struct CUstream_st *stream);
#define CUDA_SEVERAL(name)                                                              \
    unsigned cuda_##name##_launch(uint32_t kernel, const struct cuda_##name *arguments, \
                                  struct CUstream_st *stream);
CUDA_FAMILIES(CUDA_ONE, CUDA_SEVERAL)
#undef CUDA_ONE
#undef CUDA_SEVERAL

#ifdef __cplusplus
}
#endif

#endif
