// SPDX-License-Identifier: Apache-2.0
// Softmax and losses. Sums are made in pieces of fixed size and added in order, so they do not
// depend on the number of threads.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

enum { PIECE_ROWS = 64, PIECE_ELEMENTS = 4096 };

struct loss {
    const struct cpu_loss_loops *loops;
    const struct ls_op_attributes *attributes;
    const float *x, *other; // other: targets, probabilities, y
    const int32_t *labels;
    float *y;
    double *pieces; // two of each
    int64_t count, columns;
    float scale;
};

static int64_t columns_of(const struct ls_tensor_desc *desc)
{
    return desc->dims[desc->ndims - 1];
}

static int64_t pieces_of(int64_t count, int64_t piece)
{
    return (count + piece - 1) / piece;
}

static struct loss loss_of(const struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    const struct ls_tensor_desc *desc = &kernel->arguments[0];
    const int64_t columns = columns_of(desc);
    return (struct loss){.loops = device->loops->loss,
                         .attributes = &kernel->attributes,
                         .x = launch->arguments[0],
                         .other = launch->arguments[1],
                         .y = cpu_output(kernel, launch, 0),
                         .pieces = launch->scratch,
                         .count = (int64_t)ls_tensor_elements(desc) / columns,
                         .columns = columns};
}

static double row_work(const struct loss *loss)
{
    return (double)loss->count * (20.0 + (double)loss->columns * 0.5);
}

// ---- softmax ----

static void softmax_part(void *context, int64_t begin, int64_t end)
{
    const struct loss *l = context;
    l->loops->softmax(l->x + begin * l->columns, l->y + begin * l->columns, end - begin,
                      l->columns);
}

static int32_t run_softmax(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct loss l = loss_of(device, kernel, launch);
    cpu_parallel(device, l.count, 16, row_work(&l), softmax_part, &l);
    return LS_OK;
}

int32_t cpu_softmax(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_softmax;
    answer->in_place = 1;
    cpu_implementation(device, answer, "softmax");
    return cpu_all_plain(device, request, kernel);
}

static void softmax_backward_part(void *context, int64_t begin, int64_t end)
{
    const struct loss *l = context;
    const int64_t at = begin * l->columns;
    l->loops->softmax_backward(l->x + at, l->other + at, l->y + at, end - begin, l->columns);
}

static int32_t run_softmax_backward(struct ls_device *device, struct ls_kernel *kernel,
                                    const struct cpu_call *launch)
{
    struct loss l = loss_of(device, kernel, launch);
    cpu_parallel(device, l.count, 16, row_work(&l), softmax_backward_part, &l);
    return LS_OK;
}

int32_t cpu_softmax_backward(struct ls_device *device, const struct ls_kernel_request *request,
                             struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_softmax_backward;
    answer->in_place = 3;
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

static void cross_entropy_part(void *context, int64_t begin, int64_t end)
{
    const struct loss *l = context;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece * PIECE_ROWS, left = l->count - first, at = first * l->columns;
        const int64_t rows = left < PIECE_ROWS ? left : PIECE_ROWS;
        double *out = l->pieces + 2 * piece;
        out[0] = out[1] = 0.0;
        if (l->attributes->from_logits)
            l->loops->cross_entropy_logits(l->x + at, l->labels + first, l->y + at, rows,
                                           l->columns, out);
        else
            l->loops->cross_entropy_probabilities(l->x + at, l->labels + first,
                                                  l->attributes->epsilon, rows, l->columns, out);
    }
}

static int32_t run_cross_entropy(struct ls_device *device, struct ls_kernel *kernel,
                                 const struct cpu_call *launch)
{
    struct loss l = loss_of(device, kernel, launch);
    const int64_t pieces = pieces_of(l.count, PIECE_ROWS);
    l.labels = launch->arguments[1];
    // Without a `saved` the probabilities go behind the pieces.
    l.y =
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
    answer->scratch_bytes = (uint64_t)pieces_of(rows, PIECE_ROWS) * 2 * sizeof(double);
    if (request->output_count < 2)
        answer->scratch_bytes += elements * sizeof(float);
    cpu_implementation(device, answer, "cross-entropy");
    return cpu_all_plain(device, request, kernel);
}

static void cross_entropy_backward_part(void *context, int64_t begin, int64_t end)
{
    const struct loss *l = context;
    const int64_t at = begin * l->columns;
    if (l->attributes->from_logits)
        l->loops->cross_entropy_logits_backward(l->other + at, l->labels + begin, l->scale,
                                                l->y + at, end - begin, l->columns);
    else
        l->loops->cross_entropy_probabilities_backward(l->x + at, l->labels + begin,
                                                       l->attributes->epsilon, l->scale, l->y + at,
                                                       end - begin, l->columns);
}

static int32_t run_cross_entropy_backward(struct ls_device *device, struct ls_kernel *kernel,
                                          const struct cpu_call *launch)
{
    struct loss l = loss_of(device, kernel, launch);
    const double positions = (double)l.count / (double)kernel->arguments[0].dims[0];
    l.labels = launch->arguments[1];
    l.other = launch->arguments[2];
    l.scale = (float)((double)launch->record->gradient_scale / positions);
    cpu_parallel(device, l.count, 16, row_work(&l) * 0.2, cross_entropy_backward_part, &l);
    return LS_OK;
}

int32_t cpu_cross_entropy_backward(struct ls_device *device,
                                   const struct ls_kernel_request *request,
                                   struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_cross_entropy_backward;
    answer->used_inputs &= request->attributes.from_logits ? ~1U : ~4U;
    answer->in_place = request->attributes.from_logits ? 4 : 1;
    cpu_implementation(device, answer, "cross-entropy");
    return cpu_all_plain(device, request, kernel);
}

// ---- squared error ----

static void squared_error_part(void *context, int64_t begin, int64_t end)
{
    const struct loss *l = context;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece * PIECE_ELEMENTS, left = l->count - first;
        l->pieces[2 * piece] = l->loops->squared_error(
            l->x + first, l->other + first, left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS);
        l->pieces[2 * piece + 1] = 0.0;
    }
}

static int32_t run_squared_error(struct ls_device *device, struct ls_kernel *kernel,
                                 const struct cpu_call *launch)
{
    struct loss l = loss_of(device, kernel, launch);
    l.count *= l.columns;
    const int64_t pieces = pieces_of(l.count, PIECE_ELEMENTS);
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
    answer->scratch_bytes = (uint64_t)pieces_of(elements, PIECE_ELEMENTS) * 2 * sizeof(double);
    cpu_implementation(device, answer, "squared error");
    return cpu_all_plain(device, request, kernel);
}

static void squared_error_backward_part(void *context, int64_t begin, int64_t end)
{
    const struct loss *l = context;
    l->loops->squared_error_backward(l->x + begin, l->other + begin, l->scale, l->y + begin,
                                     end - begin);
}

static int32_t run_squared_error_backward(struct ls_device *device, struct ls_kernel *kernel,
                                          const struct cpu_call *launch)
{
    struct loss l = loss_of(device, kernel, launch);
    l.count *= l.columns;
    const double elements = (double)l.count / (double)kernel->arguments[0].dims[0];
    l.scale = (float)(2.0 * (double)launch->record->gradient_scale / elements);
    cpu_parallel(device, l.count, 1024, (double)l.count * 0.2, squared_error_backward_part, &l);
    return LS_OK;
}

int32_t cpu_squared_error_backward(struct ls_device *device,
                                   const struct ls_kernel_request *request,
                                   struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_squared_error_backward;
    answer->in_place = 3;
    cpu_implementation(device, answer, "squared error");
    return cpu_all_plain(device, request, kernel);
}
