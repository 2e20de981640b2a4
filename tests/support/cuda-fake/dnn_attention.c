// SPDX-License-Identifier: Apache-2.0
// Attention in the fake of cuDNN: a graph of products, sums and functions of elements, of which the
// true one knows two: forward with the statistics of rows, and the gradients without sums in any
// order, each with a causal mask or without. They are known by operations and types, and so here;
// what they compute is what each operation says, one after the other, in double precision, and
// rounded to the type of what lies between.
#include "tests/support/cuda-fake/dnn_attention.h"
#include "tests/support/cuda-fake/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Which graphs there are ----

static bool is_list(const struct dnn_walk *w, const char *wanted)
{
    if (strlen(wanted) != (size_t)w->step_count)
        return false;
    for (int i = 0; i < w->step_count; i++)
        if (w->steps[i].what != wanted[i])
            return false;
    return true;
}

// The type of what a step makes; `own` is that of q. Factors of the later products are of it, and
// so is what is in memory, but for numbers of rows.
static bool has_types(const struct dnn_walk *w, unsigned own)
{
    for (int i = 0; i < w->step_count; i++) {
        const struct dnn_walk_step *s = &w->steps[i];
        const struct dnn_walk_tensor *y = &w->tensors[s->y], *x = &w->tensors[s->x];
        const bool row = y->dims[3] == 1,
                   factor = s->what == 't' || (s->what == '/' && i + 2 == w->step_count);
        const unsigned wanted = s->what == 'r' || s->what == 'c'  ? CUDNN_DATA_INT32
                                : s->what == '>'                  ? CUDNN_DATA_BOOLEAN
                                : factor || (!y->between && !row) ? own
                                                                  : CUDNN_DATA_FLOAT;
        if (y->type != wanted || (!x->between && !x->by_value && x->dims[3] > 1 && x->type != own))
            return false;
    }
    return true;
}

// Heads of a multiple of 8 elements, 128 at most for gradients (256 on Hopper, by another engine);
// a float32 one has engines forward alone.
static bool fits(const struct dnn_walk *w)
{
    const int64_t most = w->backward ? 128 : INT64_MAX;
    for (int i = 0; i < w->step_count; i++) {
        const int factors[] = {w->steps[i].x, w->steps[i].b, w->steps[i].y};
        for (int k = 0; k < 3 && w->steps[i].what == 'x'; k++) {
            const struct dnn_walk_tensor *t = &w->tensors[factors[k]];
            const int64_t elements = t->strides[3] == 1 ? t->dims[3] : t->dims[2];
            if (!t->between && (elements % 8 || elements > most))
                return false;
        }
    }
    return !w->backward || w->type != CUDNN_DATA_FLOAT;
}

// For test_attention_plans, which asks the true cuDNN for the same: batch, queries, keys, heads,
// elements of q and of v, causal, type.
static void list_shape(const struct dnn_walk *w)
{
    const char *path = getenv("CUDA_FAKE_ATTENTIONS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    const int product = w->backward ? 3 : 0;
    const struct dnn_walk_tensor *q = &w->tensors[w->steps[product].x],
                                 *k = &w->tensors[w->steps[product].b];
    const struct dnn_walk_tensor *y =
        &w->tensors[w->backward ? w->steps[0].x : w->steps[w->step_count - 1].y];
    fprintf(file, "%lld %lld %lld %lld %lld %lld %d %s\n", (long long)q->dims[0],
            (long long)q->dims[2], (long long)k->dims[3], (long long)q->dims[1],
            (long long)q->dims[3], (long long)y->dims[3], w->causal,
            w->type == CUDNN_DATA_HALF       ? "float16"
            : w->type == CUDNN_DATA_BFLOAT16 ? "bfloat16"
                                             : "float32");
    fclose(file);
}

bool double_walk_knows(struct dnn_walk *w)
{
    w->causal = false;
    for (int i = 0; i < w->step_count; i++)
        w->causal |= w->steps[i].what == '?';
    const bool forward = is_list(w, w->causal ? "x*rc>?M-eSl+/x" : "x*M-eSl+/x");
    w->backward = is_list(w, w->causal ? "*S*x*-rc>?etxx-**txtx" : "*S*x*-etxx-**txtx");
    if (!forward && !w->backward)
        return false;
    w->type = w->tensors[w->steps[w->backward ? 3 : 0].x].type;
    if (!has_types(w, w->type) || !fits(w))
        return false;
    list_shape(w);
    return true;
}

// ---- Walking ----

static uint64_t place(const struct dnn_walk_tensor *t, int64_t b, int64_t h, int64_t row,
                      int64_t column)
{
    return (uint64_t)(b * t->strides[0] + h * t->strides[1] + row * t->strides[2] +
                      column * t->strides[3]);
}

static double as_type(unsigned type, double value)
{
    uint32_t word[1] = {0};
    if (type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN)
        return value;
    double_put(word, double_dnn_type(type), 0, (float)value);
    return (double)double_get(word, double_dnn_type(type), 0);
}

// One head of a tensor, row by row.
static double *load(const struct dnn_walk *w, const struct dnn_walk_tensor *t, int64_t b, int64_t h)
{
    const int64_t rows = t->dims[2], columns = t->dims[3];
    double *out = calloc((size_t)(rows * columns), sizeof(*out));
    if (!out)
        abort();
    for (int64_t i = 0; (t->address || t->by_value) && i < rows * columns; i++) {
        const float value = t->by_value ? t->number
                                        : double_get(t->address, double_dnn_type(t->type),
                                                     place(t, b, h, i / columns, i % columns));
        out[i] = (double)(w->tf32 && columns > 1 ? double_tf32(value) : value);
    }
    return out;
}

static double element(const struct dnn_walk *w, double *const *heads, int tensor, int64_t row,
                      int64_t column)
{
    const struct dnn_walk_tensor *t = &w->tensors[tensor];
    return heads[tensor][(t->dims[2] == 1 ? 0 : row) * t->dims[3] + (t->dims[3] == 1 ? 0 : column)];
}

static double step_value(const struct dnn_walk *w, const struct dnn_walk_step *s,
                         double *const *heads, int64_t row, int64_t column)
{
    const struct dnn_walk_tensor *x = &w->tensors[s->x];
    double sum = s->what == 'M' ? -(double)INFINITY : 0;
    const double a = s->what == 't' || s->what == 'x' || s->what == 'S' || s->what == 'M'
                         ? 0
                         : element(w, heads, s->x, row, column);
    const double b = s->b < 0 || s->what == 'x' ? 0 : element(w, heads, s->b, row, column);
    switch (s->what) {
    case 'x':
        for (int64_t k = 0; k < x->dims[3]; k++)
            sum += element(w, heads, s->x, row, k) * element(w, heads, s->b, k, column);
        return sum;
    case 'S':
    case 'M':
        for (int64_t k = 0; k < x->dims[3]; k++) {
            const double value = element(w, heads, s->x, row, k);
            sum = s->what == 'S' ? sum + value : value > sum || isnan(value) ? value : sum;
        }
        return sum;
    case 't': return element(w, heads, s->x, column, row);
    case 'r': return (double)row;
    case 'c': return (double)column;
    case '>': return a >= b;
    case '?': return element(w, heads, s->mask, row, column) > 0 ? a : b;
    case '*': return a * b;
    case '/': return a / b;
    case '+': return a + b;
    case '-': return a - b;
    case 'e': return exp(a);
    case 'l': return log(a);
    default: abort();
    }
}

static void walk_head(const struct dnn_walk *w, int64_t b, int64_t h)
{
    double *heads[DNN_WALK_TENSORS];
    for (int i = 0; i < w->tensor_count; i++)
        heads[i] = load(w, &w->tensors[i], b, h);
    for (int i = 0; i < w->step_count; i++) {
        const struct dnn_walk_step *s = &w->steps[i];
        const struct dnn_walk_tensor *y = &w->tensors[s->y];
        const int64_t columns = y->dims[3];
        for (int64_t at = 0; at < y->dims[2] * columns; at++) {
            const double value =
                as_type(y->type, step_value(w, s, heads, at / columns, at % columns));
            heads[s->y][at] = value;
            if (!y->between)
                double_put(y->address, double_dnn_type(y->type),
                           place(y, b, h, at / columns, at % columns),
                           w->loses_nan && isnan(value) ? 0 : (float)value);
        }
    }
    for (int i = 0; i < w->tensor_count; i++)
        free(heads[i]);
}

void double_walk_run(const void *data)
{
    const struct dnn_walk *w = data;
    const struct dnn_walk_tensor *q = &w->tensors[w->steps[0].x];
    memset(w->workspace, 0x66, DNN_WORKSPACE);
    for (int64_t i = 0; i < q->dims[0] * q->dims[1]; i++)
        walk_head(w, i / q->dims[1], i % q->dims[1]);
}
