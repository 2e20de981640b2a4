// SPDX-License-Identifier: Apache-2.0
// Softmax and losses. Sums are made in pieces of fixed size and added in order, so they do not
// depend on the number of threads.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

enum { PIECE_ROWS = 64, PIECE_ELEMENTS = 4096 };

struct loss {
    const struct ls_device *device;
    const struct cpu_loss_loops *loops;
    const struct ls_op_attributes *attributes;
    const float *other; // targets, or probabilities that were saved
    const int32_t *labels;
    float *saved;
    double *pieces; // two of each
    int64_t count, columns;
    float scale;
    struct cpu_row_pass pass;
};

static int64_t columns_of(const struct ls_tensor_desc *desc)
{
    return desc->dims[desc->ndims - 1];
}

static int64_t pieces_of(int64_t count, int64_t piece)
{
    return (count + piece - 1) / piece;
}

// `loop` reads as many inputs, and writes output 0 where it writes one.
static struct loss loss_of(const struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cpu_call *launch, cpu_row_loop *loop, uint32_t inputs,
                           bool writes)
{
    const struct ls_tensor_desc *desc = &kernel->arguments[0];
    const int64_t columns = columns_of(desc);
    return (struct loss){.device = device,
                         .loops = device->loops->loss,
                         .attributes = &kernel->attributes,
                         .pieces = launch->scratch,
                         .count = (int64_t)ls_tensor_elements(desc) / columns,
                         .columns = columns,
                         .pass = {.loop = loop,
                                  .dtype = desc->dtype,
                                  .columns = columns,
                                  .in = {inputs > 0 ? launch->arguments[0] : NULL,
                                         inputs > 1 ? launch->arguments[1] : NULL},
                                  .out = writes ? cpu_output(kernel, launch, 0) : NULL,
                                  .rooms = launch->scratch}};
}

static void rows_part(void *context, int64_t begin, int64_t end)
{
    const struct loss *l = context;
    cpu_row_pass_run(l->device, &l->pass, begin, end);
}

static void run_rows(struct ls_device *device, struct loss *l, double work)
{
    l->pass.context = l;
    cpu_parallel(device, l->count, 16, work, rows_part, l);
}

static uint64_t rooms_of(const struct ls_device *device, const struct ls_tensor_desc *x)
{
    return cpu_row_rooms(device, x->dtype, columns_of(x));
}

static double row_work(const struct loss *loss)
{
    return (double)loss->count * (20.0 + (double)loss->columns * 0.5);
}

// ---- softmax ----

static void softmax_rows(const void *context, const float *const *in, float *out, int64_t first,
                         int64_t rows)
{
    const struct loss *l = context;
    (void)first;
    l->loops->softmax(in[0], out, rows, l->columns);
}

static int32_t run_softmax(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct loss l = loss_of(device, kernel, launch, softmax_rows, 1, true);
    run_rows(device, &l, row_work(&l));
    return LS_OK;
}

int32_t cpu_softmax(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_softmax;
    answer->in_place = 1;
    answer->scratch_bytes = rooms_of(device, &kernel->arguments[0]);
    cpu_implementation(device, answer, "softmax");
    return cpu_all_plain(device, request, kernel);
}

static void softmax_backward_rows(const void *context, const float *const *in, float *out,
                                  int64_t first, int64_t rows)
{
    const struct loss *l = context;
    (void)first;
    l->loops->softmax_backward(in[0], in[1], out, rows, l->columns);
}

static int32_t run_softmax_backward(struct ls_device *device, struct ls_kernel *kernel,
                                    const struct cpu_call *launch)
{
    struct loss l = loss_of(device, kernel, launch, softmax_backward_rows, 2, true);
    run_rows(device, &l, row_work(&l));
    return LS_OK;
}

int32_t cpu_softmax_backward(struct ls_device *device, const struct ls_kernel_request *request,
                             struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_softmax_backward;
    answer->in_place = 3;
    answer->scratch_bytes = rooms_of(device, &kernel->arguments[0]);
    cpu_implementation(device, answer, "softmax");
    return cpu_all_plain(device, request, kernel);
}

// ---- cross-entropy ----

static void write_sums(const struct ls_kernel *kernel, const struct cpu_call *launch,
                       const double *pieces, int64_t count, double divisor)
{
    float *sums = cpu_output(kernel, launch, 0);
    double loss = 0.0, right = 0.0;
    for (int64_t i = 0; i < count; i++) {
        loss += pieces[2 * i];
        right += pieces[2 * i + 1];
    }
    sums[0] = (float)(loss / divisor);
    sums[1] = (float)(right / divisor);
    sums[2] = (float)kernel->arguments[0].dims[0];
    sums[3] = 0.0f;
}

// Rows of one piece.
static void cross_entropy_rows(const void *context, const float *const *in, float *out,
                               int64_t first, int64_t rows)
{
    const struct loss *l = context;
    double *sums = l->pieces + 2 * (first / PIECE_ROWS);
    (void)out;
    if (l->attributes->from_logits)
        l->loops->cross_entropy_logits(in[0], l->labels + first, l->saved + first * l->columns,
                                       rows, l->columns, sums);
    else
        l->loops->cross_entropy_probabilities(in[0], l->labels + first, l->attributes->epsilon,
                                              rows, l->columns, sums);
}

static void cross_entropy_part(void *context, int64_t begin, int64_t end)
{
    const struct loss *l = context;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece * PIECE_ROWS, left = l->count - first;
        l->pieces[2 * piece] = l->pieces[2 * piece + 1] = 0.0;
        cpu_row_pass_run(l->device, &l->pass, first,
                         first + (left < PIECE_ROWS ? left : PIECE_ROWS));
    }
}

static int32_t run_cross_entropy(struct ls_device *device, struct ls_kernel *kernel,
                                 const struct cpu_call *launch)
{
    struct loss l = loss_of(device, kernel, launch, cross_entropy_rows, 1, false);
    const int64_t pieces = pieces_of(l.count, PIECE_ROWS);
    l.pass.context = &l;
    l.labels = launch->arguments[1];
    // Without a `saved` the probabilities go behind the pieces.
    l.pieces = (double *)(void *)cpu_past(launch->scratch, rooms_of(device, &kernel->arguments[0]));
    l.saved =
        kernel->output_count > 1 ? cpu_output(kernel, launch, 1) : (float *)(l.pieces + 2 * pieces);
    cpu_parallel(device, pieces, 1, row_work(&l), cross_entropy_part, &l);
    write_sums(kernel, launch, l.pieces, pieces,
               (double)l.count / (double)kernel->arguments[0].dims[0]);
    return LS_OK;
}

int32_t cpu_cross_entropy(struct ls_device *device, const struct ls_kernel_request *request,
                          struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *x = &kernel->arguments[0];
    const uint64_t elements = ls_tensor_elements(x);
    const int64_t rows = (int64_t)elements / columns_of(x);
    kernel->run = run_cross_entropy;
    answer->saved_bytes = elements * sizeof(float);
    answer->scratch_bytes =
        rooms_of(device, x) + (uint64_t)pieces_of(rows, PIECE_ROWS) * 2 * sizeof(double);
    if (request->output_count < 2)
        answer->scratch_bytes += elements * sizeof(float);
    cpu_implementation(device, answer, "cross-entropy");
    return cpu_all_plain(device, request, kernel);
}

static void cross_entropy_backward_rows(const void *context, const float *const *in, float *out,
                                        int64_t first, int64_t rows)
{
    const struct loss *l = context;
    if (l->attributes->from_logits)
        l->loops->cross_entropy_logits_backward(l->other + first * l->columns, l->labels + first,
                                                l->scale, out, rows, l->columns);
    else
        l->loops->cross_entropy_probabilities_backward(
            in[0], l->labels + first, l->attributes->epsilon, l->scale, out, rows, l->columns);
}

static int32_t run_cross_entropy_backward(struct ls_device *device, struct ls_kernel *kernel,
                                          const struct cpu_call *launch)
{
    struct loss l = loss_of(device, kernel, launch, cross_entropy_backward_rows,
                            kernel->attributes.from_logits ? 0 : 1, true);
    const double positions = (double)l.count / (double)kernel->arguments[0].dims[0];
    l.labels = launch->arguments[1];
    l.other = launch->arguments[2];
    l.scale = (float)((double)launch->record->gradient_scale / positions);
    run_rows(device, &l, row_work(&l) * 0.2);
    return LS_OK;
}

int32_t cpu_cross_entropy_backward(struct ls_device *device,
                                   const struct ls_kernel_request *request,
                                   struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_cross_entropy_backward;
    answer->used_inputs &= request->attributes.from_logits ? ~1U : ~4U;
    const bool wide = kernel->arguments[0].dtype == LS_F32; // as what was saved is
    answer->in_place = !request->attributes.from_logits ? 1 : wide ? 4 : 0;
    answer->scratch_bytes = rooms_of(device, &kernel->arguments[0]);
    cpu_implementation(device, answer, "cross-entropy");
    return cpu_all_plain(device, request, kernel);
}

// ---- squared error ----

// Elements of one piece.
static void squared_error_elements(const void *context, const float *const *in, float *out,
                                   int64_t first, int64_t count)
{
    const struct loss *l = context;
    (void)out;
    l->pieces[2 * (first / PIECE_ELEMENTS)] +=
        l->loops->squared_error(in[0], l->other + first, count);
}

static void squared_error_part(void *context, int64_t begin, int64_t end)
{
    const struct loss *l = context;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece * PIECE_ELEMENTS, left = l->count - first;
        l->pieces[2 * piece] = l->pieces[2 * piece + 1] = 0.0;
        cpu_row_pass_run(l->device, &l->pass, first,
                         first + (left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS));
    }
}

// Elements are rows of one.
static struct loss squared_error_of(const struct ls_device *device, const struct ls_kernel *kernel,
                                    const struct cpu_call *launch, cpu_row_loop *loop, bool writes)
{
    struct loss l = loss_of(device, kernel, launch, loop, 1, writes);
    l.count *= l.columns;
    l.columns = l.pass.columns = 1;
    l.other = launch->arguments[1];
    return l;
}

static int32_t run_squared_error(struct ls_device *device, struct ls_kernel *kernel,
                                 const struct cpu_call *launch)
{
    struct loss l = squared_error_of(device, kernel, launch, squared_error_elements, false);
    const int64_t pieces = pieces_of(l.count, PIECE_ELEMENTS);
    l.pass.context = &l;
    l.pieces = (double *)(void *)cpu_past(launch->scratch, cpu_row_rooms(device, l.pass.dtype, 1));
    cpu_parallel(device, pieces, 1, (double)l.count * 0.3, squared_error_part, &l);
    write_sums(kernel, launch, l.pieces, pieces,
               (double)l.count / (double)kernel->arguments[0].dims[0]);
    return LS_OK;
}

int32_t cpu_squared_error(struct ls_device *device, const struct ls_kernel_request *request,
                          struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const int64_t elements = (int64_t)ls_tensor_elements(&kernel->arguments[0]);
    kernel->run = run_squared_error;
    answer->scratch_bytes = cpu_row_rooms(device, kernel->arguments[0].dtype, 1) +
                            (uint64_t)pieces_of(elements, PIECE_ELEMENTS) * 2 * sizeof(double);
    cpu_implementation(device, answer, "squared error");
    return cpu_all_plain(device, request, kernel);
}

static void squared_error_backward_elements(const void *context, const float *const *in, float *out,
                                            int64_t first, int64_t count)
{
    const struct loss *l = context;
    l->loops->squared_error_backward(in[0], l->other + first, l->scale, out, count);
}

static int32_t run_squared_error_backward(struct ls_device *device, struct ls_kernel *kernel,
                                          const struct cpu_call *launch)
{
    struct loss l = squared_error_of(device, kernel, launch, squared_error_backward_elements, true);
    const double elements = (double)l.count / (double)kernel->arguments[0].dims[0];
    l.pass.context = &l;
    l.scale = (float)(2.0 * (double)launch->record->gradient_scale / elements);
    cpu_parallel(device, l.count, 1024, (double)l.count * 0.2, rows_part, &l);
    return LS_OK;
}

int32_t cpu_squared_error_backward(struct ls_device *device,
                                   const struct ls_kernel_request *request,
                                   struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_squared_error_backward;
    answer->in_place = kernel->arguments[0].dtype == LS_F32 ? 3 : 1; // targets are float32
    answer->scratch_bytes = cpu_row_rooms(device, kernel->arguments[0].dtype, 1);
    cpu_implementation(device, answer, "squared error");
    return cpu_all_plain(device, request, kernel);
}
