// SPDX-License-Identifier: Apache-2.0
// Batch normalization in the layout in which x lies. Bytes decide here: oneDNN's primitive adds no second tensor and reads x
// once more, for it finds mean and variance one after the other. Own loops read x once for both, in pieces that stay in the
// cache, and once for y; backward reads x and dy twice, as everybody must. Pieces are the same for any number of threads, and
// what they come to is joined in order, in float64.
#include "plugins/device/cpu/batch_normalization.h"
#include "core/plugin/half.h"
#include "plugins/device/cpu/layout.h"

#include <math.h>
#include <string.h>

enum {
    PIECE = 8192, // elements, which the first cache holds
    CACHE = 1 << 20, // bytes of what a thread has read that it finds again soon after
};

// ---- Pieces ----

static int64_t rows_of_piece(const struct cpu_blocks *s, int64_t piece)
{
    const int64_t left = s->shape.rows - piece * s->piece_rows;
    return left < s->piece_rows ? left : s->piece_rows;
}

static double *sums_of(const struct cpu_run *r, int64_t block, int64_t piece)
{
    const struct cpu_blocks *s = r->state;
    return r->sums + ((block - r->first) * s->pieces + piece) * 2 * s->shape.width;
}

// Which rows are item `item` of a pass.
static struct cpu_rows rows_of(const struct cpu_run *r, int64_t item)
{
    const struct cpu_blocks *s = r->state;
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

static struct piece piece_of(const struct cpu_blocks *s, struct cpu_rows rows)
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
static void convert_piece(const struct cpu_blocks *s, const struct piece *piece, uint16_t *tensor,
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

static const float *read_piece(const struct cpu_blocks *s, const struct piece *piece,
                               const void *tensor, float *room)
{
    if (s->dtype == LS_F32 || !tensor)
        return tensor;
    convert_piece(s, piece, (uint16_t *)(uintptr_t)tensor, room, false);
    return room;
}

static float *target_of(const struct cpu_blocks *s, void *tensor, float *room)
{
    return s->dtype == LS_F32 ? tensor : room;
}

static void write_piece(const struct cpu_blocks *s, const struct piece *piece, void *tensor,
                        float *room)
{
    if (s->dtype != LS_F32)
        convert_piece(s, piece, tensor, room, true);
}

// What stands in the tensor is added to what is in the first room, before that is rounded.
static void add_piece(const struct cpu_blocks *s, const struct piece *piece, void *tensor,
                      float rooms[2][PIECE])
{
    const int64_t n = (piece->rows.end - piece->rows.begin) * piece->shape.row;
    convert_piece(s, piece, tensor, rooms[1], false);
    s->add(rooms[0], rooms[1], rooms[0], n);
}

// ---- Passes ----

void cpu_moments_part(void *context, int64_t begin, int64_t end)
{
    const struct cpu_run *r = context;
    const struct cpu_blocks *s = r->state;
    float room[PIECE];
    for (int64_t item = begin; item < end; item++) {
        const struct cpu_rows rows = rows_of(r, item);
        const struct piece piece = piece_of(s, rows);
        double *sums = sums_of(r, rows.block, rows.begin / s->piece_rows);
        s->loops->moments(&piece.shape, piece.rows, read_piece(s, &piece, r->x, room), sums,
                          sums + s->shape.width);
    }
}

void cpu_gradient_sums_part(void *context, int64_t begin, int64_t end)
{
    const struct cpu_run *r = context;
    const struct cpu_blocks *s = r->state;
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
void cpu_normalize_part(void *context, int64_t begin, int64_t end)
{
    const struct cpu_run *r = context;
    const struct cpu_blocks *s = r->state;
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

void cpu_gradient_part(void *context, int64_t begin, int64_t end)
{
    const struct cpu_run *r = context;
    const struct cpu_blocks *s = r->state;
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

static int64_t width_of(const struct cpu_blocks *s, int64_t block)
{
    return block + 1 == s->shape.blocks ? s->shape.last_width : s->shape.width;
}

// What all pieces of a block come to stands where that of the first one was.
void cpu_join_moments(const struct cpu_run *r, int64_t block)
{
    const struct cpu_blocks *s = r->state;
    const int64_t width = s->shape.width;
    double *sums = sums_of(r, block, 0);
    for (int64_t piece = 1; piece < s->pieces; piece++) {
        const double *more = sums_of(r, block, piece);
        s->loops->join_moments(width_of(s, block), (double)(piece * s->piece_rows),
                               (double)rows_of_piece(s, piece), more, more + width, sums,
                               sums + width);
    }
}

void cpu_join_gradients(const struct cpu_run *r, int64_t block)
{
    const struct cpu_blocks *s = r->state;
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

// y = (x - mean) gamma / sqrt(variance + epsilon) + beta. The shift makes up for the rounding of the mean.
void cpu_set_affine(const struct cpu_run *r, struct cpu_lanes *lanes, int64_t i, int64_t channel,
                    double mean, double variance)
{
    const double scale = (double)r->gamma[channel] / sqrt(variance + r->state->epsilon);
    lanes->mean[i] = (float)mean;
    lanes->scale[i] = (float)scale;
    lanes->shift[i] = (float)((double)r->beta[channel] + ((double)lanes->mean[i] - mean) * scale);
}

static void set_found(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums,
                      int64_t i, int64_t channel)
{
    const double variance = sums[r->state->shape.width + i] / (double)r->state->shape.rows;
    cpu_set_affine(r, lanes, i, channel, sums[i], variance);
    r->out[0][channel] = (float)sums[i];
    r->out[1][channel] = (float)variance;
}

static void set_given(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums,
                      int64_t i, int64_t channel)
{
    (void)sums;
    cpu_set_affine(r, lanes, i, channel, (double)r->mean[channel], (double)r->variance[channel]);
}

void cpu_set_mean(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums, int64_t i,
                  int64_t channel)
{
    (void)sums;
    lanes->mean[i] = r->mean[channel];
}

// sums: of dy, of dy (x - mean)
static void set_gradient(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums,
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
static void set_sums(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums,
                     int64_t i, int64_t channel)
{
    (void)lanes;
    const double inverse = 1.0 / sqrt((double)r->variance[channel] + r->state->epsilon);
    r->out[0][channel] = (float)(sums[r->state->shape.width + i] * inverse);
    r->out[1][channel] = (float)sums[i];
}

static void set_scale(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums,
                      int64_t i, int64_t channel)
{
    (void)sums;
    lanes->scale[i] =
        (float)((double)r->gamma[channel] / sqrt((double)r->variance[channel] + r->state->epsilon));
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
    const struct cpu_run *r = context;
    const struct cpu_blocks *s = r->state;
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

void cpu_set_lanes(const struct ls_device *device, struct cpu_run *r,
                   void (*join)(const struct cpu_run *, int64_t),
                   void (*set)(const struct cpu_run *, struct cpu_lanes *, const double *, int64_t,
                               int64_t))
{
    const struct cpu_blocks *s = r->state;
    r->join = join;
    r->set = set;
    const double work = 10.0 + (join ? (double)s->pieces : 0.0); // for each channel
    cpu_parallel(device, r->count, 1, (double)(r->count * s->shape.width) * work, lanes_part, r);
}

// `cost`: nanoseconds for an element on one thread
void cpu_pass_blocks(const struct ls_device *device, struct cpu_run *r, double cost, cpu_body *body)
{
    const struct cpu_blocks *s = r->state;
    const double elements = (double)(r->count * s->shape.width * s->shape.rows);
    cpu_parallel(device, r->count * s->pieces, 1, elements * cost, body, r);
}

struct cpu_run cpu_run_of(const struct ls_kernel *kernel, const struct cpu_call *launch)
{
    const struct cpu_blocks *s = kernel->state;
    struct cpu_run r = {.state = s,
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
bool cpu_next_blocks(struct cpu_run *r)
{
    const struct cpu_blocks *s = r->state;
    r->first += r->count;
    const int64_t left = s->shape.blocks - r->first;
    r->count = left < s->together ? left : s->together;
    return left > 0;
}

void cpu_finish_y(struct ls_kernel *kernel, const struct cpu_run *r)
{
    if (!cpu_activation_keeps_zero(r->state->shape.function.activation))
        cpu_zero_padding(cpu_output_desc(kernel, 0), r->result);
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct cpu_run r = cpu_run_of(kernel, launch);
    r.beta = launch->arguments[2];
    while (cpu_next_blocks(&r)) {
        cpu_pass_blocks(device, &r, 0.1, cpu_moments_part);
        cpu_set_lanes(device, &r, cpu_join_moments, set_found);
        cpu_pass_blocks(device, &r, 0.2, cpu_normalize_part);
    }
    cpu_finish_y(kernel, &r);
    return LS_OK;
}

static int32_t run_inference(struct ls_device *device, struct ls_kernel *kernel,
                             const struct cpu_call *launch)
{
    struct cpu_run r = cpu_run_of(kernel, launch);
    r.beta = launch->arguments[2];
    r.mean = launch->arguments[3];
    r.variance = launch->arguments[4];
    while (cpu_next_blocks(&r)) {
        cpu_set_lanes(device, &r, NULL, set_given);
        cpu_pass_blocks(device, &r, 0.2, cpu_normalize_part);
    }
    cpu_finish_y(kernel, &r);
    return LS_OK;
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct cpu_run r = cpu_run_of(kernel, launch);
    r.mean = launch->arguments[2];
    r.variance = launch->arguments[3];
    r.dy = launch->arguments[4];
    while (cpu_next_blocks(&r)) {
        cpu_set_lanes(device, &r, NULL, cpu_set_mean);
        cpu_pass_blocks(device, &r, 0.15, cpu_gradient_sums_part);
        cpu_set_lanes(device, &r, cpu_join_gradients, set_gradient);
        cpu_pass_blocks(device, &r, 0.25, cpu_gradient_part);
    }
    return LS_OK;
}

static int32_t run_inference_backward_data(struct ls_device *device, struct ls_kernel *kernel,
                                           const struct cpu_call *launch)
{
    struct cpu_run r = cpu_run_of(kernel, launch); // x is dy
    r.variance = launch->arguments[2];
    while (cpu_next_blocks(&r)) {
        cpu_set_lanes(device, &r, NULL, set_scale);
        cpu_pass_blocks(device, &r, 0.2, cpu_normalize_part);
    }
    return LS_OK;
}

static int32_t run_inference_backward_weights(struct ls_device *device, struct ls_kernel *kernel,
                                              const struct cpu_call *launch)
{
    struct cpu_run r = cpu_run_of(kernel, launch);
    r.mean = launch->arguments[1];
    r.variance = launch->arguments[2];
    r.dy = launch->arguments[3];
    r.out[0] = cpu_output(kernel, launch, 0);
    r.out[1] = cpu_output(kernel, launch, 1);
    while (cpu_next_blocks(&r)) {
        cpu_set_lanes(device, &r, NULL, cpu_set_mean);
        cpu_pass_blocks(device, &r, 0.15, cpu_gradient_sums_part);
        cpu_set_lanes(device, &r, cpu_join_gradients, set_sums);
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
static bool see(const struct ls_tensor_desc *x, struct cpu_blocks *s)
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
static void plan_passes(const struct ls_device *device, struct cpu_blocks *s, int64_t readings)
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
int32_t cpu_settle_blocks(struct ls_device *device, const struct ls_kernel_request *request,
                          struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                          uint32_t tensors, int64_t readings)
{
    const int32_t status = cpu_same_layout(device, request, kernel, tensors);
    if (status)
        return status;
    struct cpu_blocks *s = cpu_state(device, sizeof(*s));
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

// An activation runs with the normalization: as limits of y, or over what a piece leaves in the cache.
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

// `vectors`: how many follow x; then comes the addend, if there is one
int32_t cpu_prepare_y(struct ls_device *device, const struct ls_kernel_request *request,
                      struct ls_kernel *kernel, struct ls_kernel_answer *answer, uint32_t vectors,
                      int64_t readings)
{
    const uint32_t extra = kernel->epilogue.op == LS_OP_ACTIVATION_BACKWARD, at = vectors + 1;
    const bool adds = request->input_count - extra > at;
    const uint32_t added = adds ? 1U << at : 0;
    const int32_t status = cpu_settle_blocks(device, request, kernel, answer,
                                             1U | added | 1U << request->input_count, readings);
    if (status)
        return status;
    struct cpu_blocks *s = kernel->state;
    char what[48];
    s->added = adds ? (int32_t)at : -1;
    // Of halves the sum is rounded, not its terms.
    s->onto_y = kernel->accumulate & 1 && s->dtype != LS_F32 &&
                kernel->epilogue.op != LS_OP_ACTIVATION_BACKWARD;
    if (s->onto_y)
        kernel->accumulate &= ~1U;
    answer->in_place = 1U | added;
    snprintf(what, sizeof(what), "batch normalization%s%s", adds ? " + add" : "",
             take_activation(&kernel->epilogue, &s->shape));
    cpu_implementation(device, answer, what);
    return LS_OK;
}

int32_t cpu_batch_normalization(struct ls_device *device, const struct ls_kernel_request *request,
                                struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_forward;
    if (kernel->accumulate & 6)
        return cpu_unsupported(device, request, "mean and variance cannot be added to");
    return cpu_prepare_y(device, request, kernel, answer, 2, 1);
}

int32_t cpu_batch_normalization_inference(struct ls_device *device,
                                          const struct ls_kernel_request *request,
                                          struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_inference;
    return cpu_prepare_y(device, request, kernel, answer, 4, 0);
}

// The result is added to what stands there, in the same pass.
void cpu_add_to_result(const struct ls_kernel_request *request, struct ls_kernel *kernel)
{
    struct cpu_blocks *s = kernel->state;
    if (!(kernel->accumulate & 1) || kernel->epilogue.op != LS_OP_NONE)
        return;
    s->added = (int32_t)request->input_count; // dx itself
    kernel->accumulate &= ~1U;
}

int32_t cpu_batch_normalization_backward(struct ls_device *device,
                                         const struct ls_kernel_request *request,
                                         struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const int32_t status = cpu_settle_blocks(device, request, kernel, answer,
                                             1U | 1U << 4 | 1U << request->input_count, 2);
    if (status)
        return status;
    kernel->run = run_backward;
    answer->in_place = 1U | 1U << 4;
    cpu_add_to_result(request, kernel);
    cpu_implementation(device, answer, "batch normalization");
    return LS_OK;
}

int32_t cpu_batch_normalization_inference_backward_data(struct ls_device *device,
                                                        const struct ls_kernel_request *request,
                                                        struct ls_kernel *kernel,
                                                        struct ls_kernel_answer *answer)
{
    const int32_t status =
        cpu_settle_blocks(device, request, kernel, answer, 1U | 1U << request->input_count, 0);
    if (status)
        return status;
    kernel->run = run_inference_backward_data;
    answer->in_place = 1U;
    cpu_add_to_result(request, kernel);
    cpu_implementation(device, answer, "batch normalization");
    return LS_OK;
}

int32_t cpu_batch_normalization_inference_backward_weights(struct ls_device *device,
                                                           const struct ls_kernel_request *request,
                                                           struct ls_kernel *kernel,
                                                           struct ls_kernel_answer *answer)
{
    const int32_t status = cpu_settle_blocks(device, request, kernel, answer, 1U | 1U << 3, 0);
    if (status)
        return status;
    kernel->run = run_inference_backward_weights;
    cpu_implementation(device, answer, "batch normalization");
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
