// SPDX-License-Identifier: Apache-2.0
// Attention: for each example and head a few products, whose factors stay in the cache, with the
// softmax between them. Queries are taken in blocks of fixed size, so that the bits do not depend
// on the number of threads, and so that of causal attention only the keys that a block sees are
// computed. What is saved is p before the dropout.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { BLOCK = 64 }; // queries

// q: (B,T,H,D), k: (B,S,H,D), v: (B,S,H,E), y: (B,T,H,E), p: (B,H,T,S)
struct attention {
    int64_t batch, queries, keys, heads, depth, width, blocks;
    bool causal;
    float rate, scale;
};

struct running {
    struct attention a;
    const struct cpu_loops *loops;
    const struct ls_step_record *record;
    uint32_t key;
    const float *q, *k, *v, *dy;
    float *y, *p, *dq, *dk, *dv; // p NULL: not saved
    char *scratch; // for each thread two blocks of (BLOCK,S)
};

static struct attention attention_of(const struct ls_kernel *kernel, const struct ls_tensor_desc *q)
{
    struct attention a = {.batch = q[0].dims[0],
                          .queries = q[0].dims[1],
                          .heads = q[0].dims[2],
                          .depth = q[0].dims[3],
                          .keys = q[1].dims[1],
                          .width = q[2].dims[3],
                          .causal = kernel->attributes.causal != 0,
                          .rate = kernel->attributes.rate};
    a.blocks = (a.queries + BLOCK - 1) / BLOCK;
    a.scale = (float)(1.0 / sqrt((double)a.depth));
    return a;
}

static uint64_t block_bytes(const struct attention *a)
{
    return cpu_aligned((uint64_t)BLOCK * (uint64_t)a->keys * sizeof(float));
}

static float *room_of(const struct running *r, uint64_t which)
{
    const uint64_t thread = (uint64_t)omp_get_thread_num();
    return (float *)(void *)(r->scratch + (2 * thread + which) * block_bytes(&r->a));
}

// A block of queries of one example and head.
struct block {
    int64_t b, h, first, rows;
    int64_t columns; // keys that any of them sees
    int64_t visible; // keys that the first of them sees
};

static struct block block_of(const struct attention *a, int64_t head, int64_t index)
{
    struct block k = {.b = head / a->heads, .h = head % a->heads, .first = index * BLOCK};
    k.rows = a->queries - k.first < BLOCK ? a->queries - k.first : BLOCK;
    k.columns = a->keys;
    k.visible = a->causal ? k.first + 1 : a->keys;
    if (a->causal && k.first + k.rows < a->keys)
        k.columns = k.first + k.rows;
    return k;
}

// Where head h of a position of an example begins.
static int64_t at(const struct attention *a, const struct block *k, int64_t position,
                  int64_t positions, int64_t elements)
{
    return ((k->b * positions + position) * a->heads + k->h) * elements;
}

static float *saved_of(const struct running *r, const struct block *k)
{
    const struct attention *a = &r->a;
    return r->p + ((k->b * a->heads + k->h) * a->queries + k->first) * a->keys;
}

// to = from with elements dropped, in rows as long as all keys; of a block.
static void drop(const struct running *r, const struct block *k, const float *from, float *to)
{
    const struct attention *a = &r->a;
    const uint64_t key = ls_dropout_key(r->record, r->key, (uint64_t)k->b);
    for (int64_t i = 0; i < k->rows; i++) {
        const int64_t first = (k->h * a->queries + k->first + i) * a->keys;
        r->loops->elementwise->dropout(key, (uint32_t)first, a->rate, from + i * a->keys,
                                       to + i * a->keys, k->columns);
    }
}

// ---- forward ----

static void forward_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const struct attention *a = &r->a;
    const int64_t in = a->heads * a->depth, out = a->heads * a->width;

    omp_set_num_threads(1); // the library may not divide a block
    for (int64_t i = begin; i < end; i++) {
        const struct block k = block_of(a, i / a->blocks, i % a->blocks);
        float *p = r->p ? saved_of(r, &k) : room_of(r, 0), *kept = p;
        dnnl_sgemm('N', 'T', k.rows, k.columns, a->depth, a->scale,
                   r->q + at(a, &k, k.first, a->queries, a->depth), in,
                   r->k + at(a, &k, 0, a->keys, a->depth), in, 0.0f, p, a->keys);
        r->loops->layers->attention_softmax(p, a->keys, k.rows, k.columns, k.visible);
        if (a->rate > 0.0f) {
            kept = room_of(r, 1);
            drop(r, &k, p, kept);
        }
        dnnl_sgemm('N', 'N', k.rows, a->width, k.columns, 1.0f, kept, a->keys,
                   r->v + at(a, &k, 0, a->keys, a->width), out, 0.0f,
                   r->y + at(a, &k, k.first, a->queries, a->width), out);
    }
}

// About nanoseconds: 60 multiplications each, and the softmax.
static double work_of(const struct attention *a, double products)
{
    const double scores = (double)(a->batch * a->heads) * (double)a->queries * (double)a->keys;
    return scores * (products * (double)(a->depth + a->width) / 60.0 + 1.0);
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct running r = {.a = attention_of(kernel, kernel->arguments),
                        .loops = device->loops,
                        .record = launch->record,
                        .key = kernel->attributes.key,
                        .q = launch->arguments[0],
                        .k = launch->arguments[1],
                        .v = launch->arguments[2],
                        .y = cpu_output(kernel, launch, 0),
                        .p = kernel->output_count > 1 ? cpu_output(kernel, launch, 1) : NULL,
                        .scratch = launch->scratch};
    cpu_parallel(device, r.a.batch * r.a.heads * r.a.blocks, 1, work_of(&r.a, 1.0), forward_part,
                 &r);
    return LS_OK;
}

// ---- backward ----

static void zero_head(const struct running *r, const struct block *k)
{
    const struct attention *a = &r->a;
    for (int64_t s = 0; s < a->keys; s++) {
        memset(r->dk + at(a, k, s, a->keys, a->depth), 0, (size_t)a->depth * sizeof(float));
        memset(r->dv + at(a, k, s, a->keys, a->width), 0, (size_t)a->width * sizeof(float));
    }
}

static void backward_block(const struct running *r, const struct block *k)
{
    const struct attention *a = &r->a;
    const int64_t in = a->heads * a->depth, out = a->heads * a->width;
    const int64_t query = at(a, k, k->first, a->queries, a->depth),
                  keys = at(a, k, 0, a->keys, a->depth), values = at(a, k, 0, a->keys, a->width);
    const float *dy = r->dy + at(a, k, k->first, a->queries, a->width);
    const float *p = saved_of(r, k), *kept = p;
    float *dp = room_of(r, 0);

    dnnl_sgemm('N', 'T', k->rows, k->columns, a->width, 1.0f, dy, out, r->v + values, out, 0.0f, dp,
               a->keys);
    if (a->rate > 0.0f) {
        float *room = room_of(r, 1);
        drop(r, k, p, room);
        drop(r, k, dp, dp);
        kept = room;
    }
    dnnl_sgemm('T', 'N', k->columns, a->width, k->rows, 1.0f, kept, a->keys, dy, out, 1.0f,
               r->dv + values, out);
    r->loops->layers->attention_softmax_backward(p, a->keys, dp, a->keys, k->rows, k->columns,
                                                 a->scale);
    dnnl_sgemm('N', 'N', k->rows, a->depth, k->columns, 1.0f, dp, a->keys, r->k + keys, in, 0.0f,
               r->dq + query, in);
    dnnl_sgemm('T', 'N', k->columns, a->depth, k->rows, 1.0f, dp, a->keys, r->q + query, in, 1.0f,
               r->dk + keys, in);
}

static void backward_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    omp_set_num_threads(1); // as forward
    for (int64_t head = begin; head < end; head++)
        for (int64_t i = 0; i < r->a.blocks; i++) {
            const struct block k = block_of(&r->a, head, i);
            if (i == 0)
                zero_head(r, &k);
            backward_block(r, &k);
        }
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct running r = {.a = attention_of(kernel, &kernel->arguments[1]),
                        .loops = device->loops,
                        .record = launch->record,
                        .key = kernel->attributes.key,
                        .dy = launch->arguments[0],
                        .q = launch->arguments[1],
                        .k = launch->arguments[2],
                        .v = launch->arguments[3],
                        .p = launch->arguments[4],
                        .dq = cpu_output(kernel, launch, 0),
                        .dk = cpu_output(kernel, launch, 1),
                        .dv = cpu_output(kernel, launch, 2),
                        .scratch = launch->scratch};
    cpu_parallel(device, r.a.batch * r.a.heads, 1, work_of(&r.a, 2.5), backward_part, &r);
    return LS_OK;
}

// ---- prepare ----

int32_t cpu_attention(struct ls_device *device, const struct ls_kernel_request *request,
                      struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct attention a = attention_of(kernel, kernel->arguments);
    kernel->run = run_forward;
    answer->saved_bytes =
        (uint64_t)(a.batch * a.heads) * (uint64_t)a.queries * (uint64_t)a.keys * sizeof(float);
    answer->scratch_bytes = 2 * device->threads * block_bytes(&a);
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN sgemm + own %s",
             device->loops->name);
    return cpu_all_plain(device, request, kernel);
}

int32_t cpu_attention_backward(struct ls_device *device, const struct ls_kernel_request *request,
                               struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct attention a = attention_of(kernel, &kernel->arguments[1]);
    kernel->run = run_backward;
    answer->scratch_bytes = 2 * device->threads * block_bytes(&a);
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN sgemm + own %s",
             device->loops->name);
    return cpu_all_plain(device, request, kernel);
}
