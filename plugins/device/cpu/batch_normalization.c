// SPDX-License-Identifier: Apache-2.0
// Batch normalization in the layout in which x lies, with the statistics of this replica or,
// synchronized, of all: then what channels come to is added over the replicas, in float64, between
// two operations. Bytes decide here: oneDNN's primitive adds no second tensor and reads x once
// more, for it finds mean and variance one after the other. Own loops read x once for both, in
// pieces that stay in the cache, and once for y; backward reads x and dy twice, as everybody must.
// Pieces are the same for any number of threads, and what they come to is joined in order, in
// float64.
#include "core/plugin/half.h"
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <math.h>
#include <string.h>

enum {
    PIECE = 8192, // elements, which the first cache holds
    CACHE = 1 << 20, // bytes of what a thread has read that it finds again soon after
};

struct blocks {
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
struct run {
    const struct blocks *state;
    const void *x, *dy, *added; // of the type of the tensors
    void *result; // y or dx
    const float *gamma, *beta, *mean, *variance;
    float *out[2]; // mean, variance or dgamma, dbeta
    struct cpu_lanes *lanes; // one for each block
    double *sums; // of the pieces of `count` blocks: two of `width` each
    double *totals; // synchronized: two of each channel, then the rows
    int64_t first, count;
    // Between the passes, for each block and then for each of its channels.
    void (*join)(const struct run *r, int64_t block);
    void (*set)(const struct run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                int64_t channel);
};

// ---- Pieces ----

static int64_t rows_of_piece(const struct blocks *s, int64_t piece)
{
    const int64_t left = s->shape.rows - piece * s->piece_rows;
    return left < s->piece_rows ? left : s->piece_rows;
}

static double *sums_of(const struct run *r, int64_t block, int64_t piece)
{
    const struct blocks *s = r->state;
    return r->sums + ((block - r->first) * s->pieces + piece) * 2 * s->shape.width;
}

// Which rows are item `item` of a pass.
static struct cpu_rows rows_of(const struct run *r, int64_t item)
{
    const struct blocks *s = r->state;
    const int64_t block = s->across ? item % r->count : item / s->pieces;
    const int64_t piece = s->across ? item / r->count : item % s->pieces;
    const int64_t begin = piece * s->piece_rows;
    return (struct cpu_rows){r->first + block, begin, begin + rows_of_piece(s, piece)};
}

// ---- Halves ----

// The rows of a piece as float32. float32 itself is read and written where it is; halves pass
// through rooms that hold a piece, in the same panels, so that sums are added in the same order.
struct piece {
    struct cpu_normalization shape;
    struct cpu_rows rows; // as `shape` counts them
    struct cpu_rows place; // as the tensor counts them
};

static struct piece piece_of(const struct blocks *s, struct cpu_rows rows)
{
    struct piece piece = {s->shape, rows, rows};
    struct cpu_normalization *n = &piece.shape;
    if (s->dtype == LS_F32)
        return piece;
    const int64_t width = rows.block + 1 == n->blocks ? n->last_width : n->width;
    const int64_t before = rows.begin % n->plane;
    n->row = n->row == width ? width : CPU_LANES;
    n->width = n->last_width = width;
    n->example = n->plane * n->row;
    n->blocks = 2; // the second of which begins at the first row of the piece
    n->block = -before * n->row;
    piece.rows = (struct cpu_rows){1, before, before + rows.end - rows.begin};
    return piece;
}

// Goes through the rows of a piece that follow each other in the tensor and in the room.
static void convert_piece(const struct blocks *s, const struct piece *piece, uint16_t *tensor,
                          float *room, bool narrow)
{
    const struct cpu_normalization *n = &s->shape;
    const int64_t width = piece->shape.width, row = piece->shape.row;
    for (int64_t r = piece->place.begin, rows; r < piece->place.end;
         r += rows, room += rows * row) {
        uint16_t *at = tensor + r / n->plane * n->example + piece->place.block * n->block +
                       r % n->plane * n->row;
        rows = n->plane - r % n->plane;
        if (rows > piece->place.end - r)
            rows = piece->place.end - r;
        const bool dense = n->row == width && row == width;
        const int64_t count = dense ? 1 : rows, columns = dense ? rows * width : width;
        if (narrow)
            s->half->narrow_rows(s->dtype, room, count, columns, row, at, n->row);
        else
            s->half->widen_rows(s->dtype, at, count, columns, n->row, room, row);
    }
}

static const float *read_piece(const struct blocks *s, const struct piece *piece,
                               const void *tensor, float *room)
{
    if (s->dtype == LS_F32 || !tensor)
        return tensor;
    convert_piece(s, piece, (uint16_t *)(uintptr_t)tensor, room, false);
    return room;
}

static float *target_of(const struct blocks *s, void *tensor, float *room)
{
    return s->dtype == LS_F32 ? tensor : room;
}

static void write_piece(const struct blocks *s, const struct piece *piece, void *tensor,
                        float *room)
{
    if (s->dtype != LS_F32)
        convert_piece(s, piece, tensor, room, true);
}

// What stands in the tensor is added to what is in the first room, before that is rounded.
static void add_piece(const struct blocks *s, const struct piece *piece, void *tensor,
                      float rooms[2][PIECE])
{
    const int64_t n = (piece->rows.end - piece->rows.begin) * piece->shape.row;
    convert_piece(s, piece, tensor, rooms[1], false);
    s->add(rooms[0], rooms[1], rooms[0], n);
}

// ---- Passes ----

static void moments_part(void *context, int64_t begin, int64_t end)
{
    const struct run *r = context;
    const struct blocks *s = r->state;
    float room[PIECE];
    for (int64_t item = begin; item < end; item++) {
        const struct cpu_rows rows = rows_of(r, item);
        const struct piece piece = piece_of(s, rows);
        double *sums = sums_of(r, rows.block, rows.begin / s->piece_rows);
        s->loops->moments(&piece.shape, piece.rows, read_piece(s, &piece, r->x, room), sums,
                          sums + s->shape.width);
    }
}

static void gradient_sums_part(void *context, int64_t begin, int64_t end)
{
    const struct run *r = context;
    const struct blocks *s = r->state;
    float rooms[2][PIECE];
    for (int64_t item = begin; item < end; item++) {
        const struct cpu_rows rows = rows_of(r, item);
        const struct piece piece = piece_of(s, rows);
        double *sums = sums_of(r, rows.block, rows.begin / s->piece_rows);
        s->loops->gradient_sums(&piece.shape, piece.rows, r->lanes[rows.block].mean,
                                read_piece(s, &piece, r->x, rooms[0]),
                                read_piece(s, &piece, r->dy, rooms[1]), sums,
                                sums + s->shape.width);
    }
}

// From the last piece to the first: what was read last is still in the cache.
static void normalize_part(void *context, int64_t begin, int64_t end)
{
    const struct run *r = context;
    const struct blocks *s = r->state;
    float rooms[2][PIECE];
    for (int64_t item = end - 1; item >= begin; item--) {
        const struct cpu_rows rows = rows_of(r, item);
        const struct piece piece = piece_of(s, rows);
        s->loops->normalize(
            &piece.shape, piece.rows, &r->lanes[rows.block], read_piece(s, &piece, r->x, rooms[0]),
            read_piece(s, &piece, r->added, rooms[1]), target_of(s, r->result, rooms[0]));
        if (s->onto_y)
            add_piece(s, &piece, r->result, rooms);
        write_piece(s, &piece, r->result, rooms[0]);
    }
}

static void gradient_part(void *context, int64_t begin, int64_t end)
{
    const struct run *r = context;
    const struct blocks *s = r->state;
    float rooms[3][PIECE];
    for (int64_t item = end - 1; item >= begin; item--) {
        const struct cpu_rows rows = rows_of(r, item);
        const struct piece piece = piece_of(s, rows);
        s->loops->gradient(
            &piece.shape, piece.rows, &r->lanes[rows.block], read_piece(s, &piece, r->x, rooms[0]),
            read_piece(s, &piece, r->dy, rooms[1]), read_piece(s, &piece, r->added, rooms[2]),
            target_of(s, r->result, rooms[0]));
        write_piece(s, &piece, r->result, rooms[0]);
    }
}

// ---- Between the passes ----

static int64_t width_of(const struct blocks *s, int64_t block)
{
    return block + 1 == s->shape.blocks ? s->shape.last_width : s->shape.width;
}

// What all pieces of a block come to stands where that of the first one was.
static void join_moments(const struct run *r, int64_t block)
{
    const struct blocks *s = r->state;
    const int64_t width = s->shape.width;
    double *sums = sums_of(r, block, 0);
    for (int64_t piece = 1; piece < s->pieces; piece++) {
        const double *more = sums_of(r, block, piece);
        s->loops->join_moments(width_of(s, block), (double)(piece * s->piece_rows),
                               (double)rows_of_piece(s, piece), more, more + width, sums,
                               sums + width);
    }
}

static void join_gradients(const struct run *r, int64_t block)
{
    const struct blocks *s = r->state;
    const int64_t width = s->shape.width;
    double *sums = sums_of(r, block, 0);
    for (int64_t piece = 1; piece < s->pieces; piece++) {
        const double *more = sums_of(r, block, piece);
        for (int64_t i = 0; i < width_of(s, block); i++) {
            sums[i] += more[i];
            sums[width + i] += more[width + i];
        }
    }
}

// y = (x - mean) gamma / sqrt(variance + epsilon) + beta. The shift makes up for the rounding of
// the mean.
static void set_affine(const struct run *r, struct cpu_lanes *lanes, int64_t i, int64_t channel,
                       double mean, double variance)
{
    const double scale = (double)r->gamma[channel] / sqrt(variance + r->state->epsilon);
    lanes->mean[i] = (float)mean;
    lanes->scale[i] = (float)scale;
    lanes->shift[i] = (float)((double)r->beta[channel] + ((double)lanes->mean[i] - mean) * scale);
}

static void set_found(const struct run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                      int64_t channel)
{
    const double variance = sums[r->state->shape.width + i] / (double)r->state->shape.rows;
    set_affine(r, lanes, i, channel, sums[i], variance);
    r->out[0][channel] = (float)sums[i];
    r->out[1][channel] = (float)variance;
}

static void set_given(const struct run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                      int64_t channel)
{
    (void)sums;
    set_affine(r, lanes, i, channel, (double)r->mean[channel], (double)r->variance[channel]);
}

static void set_mean(const struct run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                     int64_t channel)
{
    (void)sums;
    lanes->mean[i] = r->mean[channel];
}

// sums: of dy, of dy (x - mean)
static void set_gradient(const struct run *r, struct cpu_lanes *lanes, const double *sums,
                         int64_t i, int64_t channel)
{
    const double rows = (double)r->state->shape.rows;
    const double inverse = 1.0 / sqrt((double)r->variance[channel] + r->state->epsilon);
    const double scale = (double)r->gamma[channel] * inverse;
    const double dgamma = sums[r->state->shape.width + i] * inverse, dbeta = sums[i];
    lanes->mean[i] = r->mean[channel];
    lanes->scale[i] = (float)scale;
    lanes->shift[i] = (float)(-scale * dbeta / rows);
    lanes->slope[i] = (float)(-scale * inverse * dgamma / rows);
    r->out[0][channel] = (float)dgamma;
    r->out[1][channel] = (float)dbeta;
}

// The same with mean and variance given, which do not depend on x.
static void set_sums(const struct run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                     int64_t channel)
{
    (void)lanes;
    const double inverse = 1.0 / sqrt((double)r->variance[channel] + r->state->epsilon);
    r->out[0][channel] = (float)(sums[r->state->shape.width + i] * inverse);
    r->out[1][channel] = (float)sums[i];
}

static void set_scale(const struct run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                      int64_t channel)
{
    (void)sums;
    lanes->scale[i] =
        (float)((double)r->gamma[channel] / sqrt((double)r->variance[channel] + r->state->epsilon));
}

// Synchronized: what this replica gives to the totals, and what is made of the totals of all.
static void set_moments(const struct run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                        int64_t channel)
{
    const struct cpu_normalization *n = &r->state->shape;
    (void)lanes;
    r->totals[channel] = sums[i] * (double)n->rows;
    r->totals[n->channels + channel] = sums[n->width + i] + sums[i] * sums[i] * (double)n->rows;
}

static void set_of_moments(const struct run *r, struct cpu_lanes *lanes, const double *sums,
                           int64_t i, int64_t channel)
{
    const int64_t channels = r->state->shape.channels;
    const double rows = r->totals[2 * channels], mean = r->totals[channel] / rows;
    const double variance = r->totals[channels + channel] / rows - mean * mean;
    (void)sums;
    // Comparisons are written so that NaN stays what it is.
    set_affine(r, lanes, i, channel, mean, variance < 0 ? 0 : variance);
    r->out[0][channel] = (float)mean;
    r->out[1][channel] = (float)(variance < 0 ? 0 : variance);
}

static void set_totals(const struct run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                       int64_t channel)
{
    const struct cpu_normalization *n = &r->state->shape;
    const double inverse = 1.0 / sqrt((double)r->variance[channel] + r->state->epsilon);
    (void)lanes;
    r->totals[channel] = sums[n->width + i] * inverse;
    r->totals[n->channels + channel] = sums[i];
    r->out[0][channel] = (float)r->totals[channel];
    r->out[1][channel] = (float)sums[i];
}

static void set_of_totals(const struct run *r, struct cpu_lanes *lanes, const double *sums,
                          int64_t i, int64_t channel)
{
    const int64_t channels = r->state->shape.channels;
    const double rows = r->totals[2 * channels];
    const double inverse = 1.0 / sqrt((double)r->variance[channel] + r->state->epsilon);
    const double scale = (double)r->gamma[channel] * inverse;
    (void)sums;
    lanes->mean[i] = r->mean[channel];
    lanes->scale[i] = (float)scale;
    lanes->shift[i] = (float)(-scale * r->totals[channels + channel] / rows);
    lanes->slope[i] = (float)(-scale * inverse * r->totals[channel] / rows);
}

// ---- Lanes ----

// The channels of a block repeat in the lanes: rows that lie close together are one vector.
static void repeat(float *lanes, int64_t width)
{
    for (int64_t l = width; l < CPU_LANES; l++)
        lanes[l] = lanes[l - width];
}

// Padding stays zero as its lanes are zero.
static void lanes_part(void *context, int64_t begin, int64_t end)
{
    const struct run *r = context;
    const struct blocks *s = r->state;
    for (int64_t block = r->first + begin; block < r->first + end; block++) {
        struct cpu_lanes *lanes = &r->lanes[block];
        const int64_t width = width_of(s, block), channel = block * s->shape.width;
        if (r->join)
            r->join(r, block);
        memset(lanes, 0, sizeof(*lanes));
        for (int64_t i = 0; i < width && channel + i < s->shape.channels; i++)
            r->set(r, lanes, sums_of(r, block, 0), i, channel + i);
        repeat(lanes->mean, width);
        repeat(lanes->scale, width);
        repeat(lanes->shift, width);
        repeat(lanes->slope, width);
    }
}

// ---- Launch ----

static void set_lanes(const struct ls_device *device, struct run *r,
                      void (*join)(const struct run *, int64_t),
                      void (*set)(const struct run *, struct cpu_lanes *, const double *, int64_t,
                                  int64_t))
{
    const struct blocks *s = r->state;
    r->join = join;
    r->set = set;
    const double work = 10.0 + (join ? (double)s->pieces : 0.0); // for each channel
    cpu_parallel(device, r->count, 1, (double)(r->count * s->shape.width) * work, lanes_part, r);
}

// `cost`: nanoseconds for an element on one thread
static void pass_blocks(const struct ls_device *device, struct run *r, double cost, cpu_body *body)
{
    const struct blocks *s = r->state;
    const double elements = (double)(r->count * s->shape.width * s->shape.rows);
    cpu_parallel(device, r->count * s->pieces, 1, elements * cost, body, r);
}

static struct run run_of(const struct ls_kernel *kernel, const struct cpu_call *launch)
{
    const struct blocks *s = kernel->state;
    struct run r = {.state = s,
                    .x = launch->arguments[0],
                    .added = s->added < 0 ? NULL : launch->arguments[s->added],
                    .gamma = launch->arguments[1],
                    .result = cpu_output(kernel, launch, 0),
                    .lanes = launch->scratch};
    r.sums = (double *)(r.lanes + s->shape.blocks);
    for (uint32_t i = 1; i < kernel->output_count; i++)
        r.out[i - 1] = cpu_output(kernel, launch, i);
    return r;
}

// Takes the next blocks; false: all are done.
static bool next_blocks(struct run *r)
{
    const struct blocks *s = r->state;
    r->first += r->count;
    const int64_t left = s->shape.blocks - r->first;
    r->count = left < s->together ? left : s->together;
    return left > 0;
}

static void finish_y(struct ls_kernel *kernel, const struct run *r)
{
    if (!cpu_activation_keeps_zero(r->state->shape.function.activation))
        cpu_zero_padding(cpu_output_desc(kernel, 0), r->result);
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct run r = run_of(kernel, launch);
    r.beta = launch->arguments[2];
    while (next_blocks(&r)) {
        pass_blocks(device, &r, 0.1, moments_part);
        set_lanes(device, &r, join_moments, set_found);
        pass_blocks(device, &r, 0.2, normalize_part);
    }
    finish_y(kernel, &r);
    return LS_OK;
}

static int32_t run_inference(struct ls_device *device, struct ls_kernel *kernel,
                             const struct cpu_call *launch)
{
    struct run r = run_of(kernel, launch);
    r.beta = launch->arguments[2];
    r.mean = launch->arguments[3];
    r.variance = launch->arguments[4];
    while (next_blocks(&r)) {
        set_lanes(device, &r, NULL, set_given);
        pass_blocks(device, &r, 0.2, normalize_part);
    }
    finish_y(kernel, &r);
    return LS_OK;
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct run r = run_of(kernel, launch);
    r.mean = launch->arguments[2];
    r.variance = launch->arguments[3];
    r.dy = launch->arguments[4];
    while (next_blocks(&r)) {
        set_lanes(device, &r, NULL, set_mean);
        pass_blocks(device, &r, 0.15, gradient_sums_part);
        set_lanes(device, &r, join_gradients, set_gradient);
        pass_blocks(device, &r, 0.25, gradient_part);
    }
    return LS_OK;
}

static int32_t run_inference_backward_data(struct ls_device *device, struct ls_kernel *kernel,
                                           const struct cpu_call *launch)
{
    struct run r = run_of(kernel, launch); // x is dy
    r.variance = launch->arguments[2];
    while (next_blocks(&r)) {
        set_lanes(device, &r, NULL, set_scale);
        pass_blocks(device, &r, 0.2, normalize_part);
    }
    return LS_OK;
}

static int32_t run_inference_backward_weights(struct ls_device *device, struct ls_kernel *kernel,
                                              const struct cpu_call *launch)
{
    struct run r = run_of(kernel, launch);
    r.mean = launch->arguments[1];
    r.variance = launch->arguments[2];
    r.dy = launch->arguments[3];
    r.out[0] = cpu_output(kernel, launch, 0);
    r.out[1] = cpu_output(kernel, launch, 1);
    while (next_blocks(&r)) {
        set_lanes(device, &r, NULL, set_mean);
        pass_blocks(device, &r, 0.15, gradient_sums_part);
        set_lanes(device, &r, join_gradients, set_sums);
    }
    return LS_OK;
}

static int32_t run_moments(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct run r = run_of(kernel, launch);
    r.totals = cpu_output(kernel, launch, 0);
    r.totals[2 * r.state->shape.channels] = (double)r.state->shape.rows;
    while (next_blocks(&r)) {
        pass_blocks(device, &r, 0.1, moments_part);
        set_lanes(device, &r, join_moments, set_moments);
    }
    return LS_OK;
}

static int32_t run_synchronized(struct ls_device *device, struct ls_kernel *kernel,
                                const struct cpu_call *launch)
{
    struct run r = run_of(kernel, launch);
    r.beta = launch->arguments[2];
    r.totals = launch->arguments[3];
    while (next_blocks(&r)) {
        set_lanes(device, &r, NULL, set_of_moments);
        pass_blocks(device, &r, 0.2, normalize_part);
    }
    finish_y(kernel, &r);
    return LS_OK;
}

static int32_t run_synchronized_backward_sums(struct ls_device *device, struct ls_kernel *kernel,
                                              const struct cpu_call *launch)
{
    struct run r = run_of(kernel, launch);
    r.mean = launch->arguments[1];
    r.variance = launch->arguments[2];
    r.dy = launch->arguments[3];
    r.out[0] = cpu_output(kernel, launch, 0);
    r.out[1] = cpu_output(kernel, launch, 1);
    r.totals = cpu_output(kernel, launch, 2);
    r.totals[2 * r.state->shape.channels] = (double)r.state->shape.rows;
    while (next_blocks(&r)) {
        set_lanes(device, &r, NULL, set_mean);
        pass_blocks(device, &r, 0.15, gradient_sums_part);
        set_lanes(device, &r, join_gradients, set_totals);
    }
    return LS_OK;
}

static int32_t run_synchronized_backward_data(struct ls_device *device, struct ls_kernel *kernel,
                                              const struct cpu_call *launch)
{
    struct run r = run_of(kernel, launch);
    r.mean = launch->arguments[2];
    r.variance = launch->arguments[3];
    r.dy = launch->arguments[4];
    r.totals = launch->arguments[5];
    while (next_blocks(&r)) {
        set_lanes(device, &r, NULL, set_of_totals);
        pass_blocks(device, &r, 0.25, gradient_part);
    }
    return LS_OK;
}

// A few channels: one thread.
static int32_t run_statistics(struct ls_device *device, struct ls_kernel *kernel,
                              const struct cpu_call *launch)
{
    (void)device;
    const float weight = kernel->attributes.factor * launch->record->share_weight;
    for (uint32_t k = 0; k < 2; k++) {
        const int64_t count = (int64_t)ls_tensor_elements(&kernel->arguments[k]);
        const float *restrict from = launch->arguments[k];
        float *restrict to = cpu_output(kernel, launch, k);
        for (int64_t i = 0; i < count; i++)
            to[i] = weight * from[i];
    }
    return LS_OK;
}

// ---- Prepare ----

// False: the channels of x do not lie in blocks.
static bool see(const struct ls_tensor_desc *x, struct blocks *s)
{
    struct cpu_normalization *n = &s->shape;
    struct cpu_view view;
    n->channels = x->dims[x->ndims - 1];
    n->rows = (int64_t)ls_tensor_elements(x) / n->channels;
    s->across = x->layout.kind == LS_LAYOUT_PLAIN;
    if (s->across) {
        n->width = n->channels < CPU_LANES ? n->channels : CPU_LANES;
        n->blocks = (n->channels + n->width - 1) / n->width;
        n->last_width = n->channels - (n->blocks - 1) * n->width;
        n->row = n->channels;
        n->block = n->width;
        n->plane = n->rows;
        return true;
    }
    if (!cpu_view_of(x, &view) || view.inner > CPU_LANES)
        return false;
    n->blocks = view.blocks;
    n->width = n->last_width = n->row = view.inner;
    n->plane = view.height * view.width;
    n->block = n->plane * view.inner;
    n->example = n->block * view.blocks;
    if (n->blocks == 1) // then examples follow each other
        n->plane = n->rows;
    return true;
}

// `readings`: tensors that are read a second time
static void plan_passes(const struct ls_device *device, struct blocks *s, int64_t readings)
{
    const struct cpu_normalization *n = &s->shape;
    const int64_t block_bytes = n->rows * n->width * (int64_t)ls_dtype_bytes(s->dtype) * readings;
    s->piece_rows = PIECE / n->width;
    s->pieces = (n->rows + s->piece_rows - 1) / s->piece_rows;
    s->together = n->blocks;
    if (!s->across && readings && (int64_t)device->threads * CACHE >= block_bytes)
        s->together = (int64_t)device->threads * CACHE / block_bytes;
    if (s->together > n->blocks)
        s->together = n->blocks;
}

// `tensors`: the arguments that are shaped like x, and lie as it lies
static int32_t settle_blocks(struct ls_device *device, const struct ls_kernel_request *request,
                             struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                             uint32_t tensors, int64_t readings)
{
    const int32_t status = cpu_same_layout(device, request, kernel, tensors);
    if (status)
        return status;
    struct blocks *s = cpu_state(device, sizeof(*s));
    if (!s)
        return LS_OUT_OF_MEMORY;
    kernel->state = s;
    s->loops = device->loops->normalization;
    s->half = device->loops->half;
    s->add = device->loops->elementwise->add;
    s->dtype = kernel->arguments[0].dtype;
    s->epsilon = (double)request->attributes.epsilon;
    s->added = -1;
    s->shape.low = -INFINITY;
    s->shape.high = INFINITY;
    if (!see(&kernel->arguments[0], s))
        return cpu_unsupported(device, request, "the channels do not lie in blocks");
    plan_passes(device, s, readings);
    answer->scratch_bytes =
        (uint64_t)s->shape.blocks * sizeof(struct cpu_lanes) +
        (uint64_t)(s->together * s->pieces * 2 * s->shape.width) * sizeof(double);
    return LS_OK;
}

// An activation runs with the normalization: as limits of y, or over what a piece leaves in the
// cache.
static const char *take_activation(struct cpu_epilogue *epilogue, struct cpu_normalization *n)
{
    if (epilogue->op != LS_OP_ACTIVATION || epilogue->activation == LS_LINEAR)
        return "";
    const bool relu = epilogue->activation == LS_RELU, relu6 = epilogue->activation == LS_RELU6;
    epilogue->op = LS_OP_NONE;
    if (relu || relu6)
        n->low = 0.0f;
    else
        n->function = (struct cpu_function){epilogue->activation, epilogue->alpha};
    if (relu6)
        n->high = 6.0f;
    return relu ? " + relu" : " + activation";
}

typedef int32_t launch(struct ls_device *device, struct ls_kernel *kernel,
                       const struct cpu_call *launch);

static const struct operation {
    uint32_t op;
    launch *run;
    const char *name;
    uint32_t like_x; // bit i: input i is shaped as x, and lies as it lies
    int64_t readings; // how often those are read a second time
    // Of what makes y: how many vectors follow x, and then the addend, if there is one.
    uint32_t vectors;
    bool makes_dx;
} operations[] = {
    {LS_OP_BATCH_NORMALIZATION, run_forward, NULL, 1, 1, 2, false},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE, run_inference, NULL, 1, 0, 4, false},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED, run_synchronized, NULL, 1, 0, 3, false},
    {LS_OP_BATCH_NORMALIZATION_BACKWARD, run_backward, "batch normalization", 17, 2, 0, true},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA, run_inference_backward_data,
     "batch normalization", 1, 0, 0, true},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS, run_inference_backward_weights,
     "batch normalization", 9, 0, 0, false},
    {LS_OP_BATCH_MOMENTS, run_moments, "batch moments", 1, 0, 0, false},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS, run_synchronized_backward_sums,
     "batch normalization", 9, 0, 0, false},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA, run_synchronized_backward_data,
     "batch normalization", 17, 0, 0, true},
};

int32_t cpu_batch_normalization(struct ls_device *device, const struct ls_kernel_request *request,
                                struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct operation *operation = operations;
    while (operation->op != request->op)
        operation++;
    const bool makes_y = operation->vectors > 0, fused = kernel->epilogue.op != LS_OP_NONE;
    const bool follows_y = kernel->epilogue.op == LS_OP_ACTIVATION_BACKWARD;
    const uint32_t at = operation->vectors + 1, y = 1U << request->input_count;
    const bool adds = makes_y && request->input_count - follows_y > at;
    const uint32_t added = adds ? 1U << at : 0;
    char what[48];
    kernel->run = operation->run;
    if (makes_y && kernel->accumulate & 6)
        return cpu_unsupported(device, request, "mean and variance cannot be added to");
    const int32_t status = settle_blocks(
        device, request, kernel, answer,
        operation->like_x | added | (makes_y || operation->makes_dx ? y : 0), operation->readings);
    if (status)
        return status;
    struct blocks *s = kernel->state;
    if (makes_y) {
        s->added = adds ? (int32_t)at : -1;
        // Of halves the sum is rounded, not its terms.
        s->onto_y = kernel->accumulate & 1 && s->dtype != LS_F32 && !follows_y;
        snprintf(what, sizeof(what), "batch normalization%s%s", adds ? " + add" : "",
                 take_activation(&kernel->epilogue, &s->shape));
    } else if (operation->makes_dx && kernel->accumulate & 1 && !fused) {
        s->added = (int32_t)request->input_count; // dx itself, in the same pass
    }
    if (s->onto_y || (operation->makes_dx && s->added >= 0))
        kernel->accumulate &= ~1U;
    if (makes_y || operation->makes_dx)
        answer->in_place = operation->like_x | added;
    cpu_implementation(device, answer, makes_y ? what : operation->name);
    return LS_OK;
}

int32_t cpu_batch_statistics(struct ls_device *device, const struct ls_kernel_request *request,
                             struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        if (request->arguments[i].layout.kind == LS_LAYOUT_OWN)
            return cpu_unsupported(device, request, "statistics have the plain layout");
    kernel->run = run_statistics;
    cpu_implementation(device, answer, "statistics");
    return LS_OK;
}
