// SPDX-License-Identifier: Apache-2.0
// Attention: for each example and head a few products, whose factors stay in the cache, with the
// softmax between them. Queries are taken in blocks of fixed size, so that the bits do not depend
// on the number of threads, and so that of causal attention only the keys that a block sees are
// computed. Halves are widened into rooms of a thread, keys and values once for a head, and results
// are rounded once. What is saved is p before the dropout, in float32.
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
    struct cpu_tensor q, k, v, dy, y, dq, dk, dv;
    float *p; // NULL: not saved
    char *scratch; // for each thread its rooms
    uint64_t room_bytes; // of a thread
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

// What a thread has for itself: q to dv for halves only, and of these the gradients only backward.
struct rooms {
    float *scores, *dropped; // (BLOCK,S)
    float *q, *y, *dq, *k, *v, *dk,
        *dv; // of a block or of a head, rows one after the other; y: or dy
};

static float *take(char *base, uint64_t *used, int64_t count)
{
    const uint64_t at = *used;
    *used += cpu_aligned((uint64_t)count * sizeof(float));
    return base ? (float *)(void *)(base + at) : NULL;
}

// The rooms that begin at `base`, which may be NULL; their bytes.
static uint64_t lay_rooms(const struct attention *a, uint32_t dtype, bool backward, char *base,
                          struct rooms *out)
{
    uint64_t used = 0;
    *out = (struct rooms){NULL};
    out->scores = take(base, &used, BLOCK * a->keys);
    out->dropped = take(base, &used, BLOCK * a->keys);
    if (dtype == LS_F32)
        return used;
    out->q = take(base, &used, BLOCK * a->depth);
    out->y = take(base, &used, BLOCK * a->width);
    out->k = take(base, &used, a->keys * a->depth);
    out->v = take(base, &used, a->keys * a->width);
    if (!backward)
        return used;
    out->dq = take(base, &used, BLOCK * a->depth);
    out->dk = take(base, &used, a->keys * a->depth);
    out->dv = take(base, &used, a->keys * a->width);
    return used;
}

static uint64_t room_bytes(const struct attention *a, uint32_t dtype, bool backward)
{
    struct rooms rooms;
    return lay_rooms(a, dtype, backward, NULL, &rooms);
}

static struct rooms rooms_of(const struct running *r)
{
    struct rooms rooms;
    char *at = r->scratch + (uint64_t)omp_get_thread_num() * r->room_bytes;
    lay_rooms(&r->a, r->q.dtype, r->dk.at != NULL, at, &rooms);
    return rooms;
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

// ---- Rows of a head ----

// As they lie in float32, or in a room.
struct rows {
    float *at;
    int64_t distance;
};

static struct rows rows_of(const struct running *r, const struct cpu_tensor *t, int64_t begin,
                           int64_t elements, float *room)
{
    return t->dtype == LS_F32 ? (struct rows){(float *)t->at + begin, r->a.heads * elements}
                              : (struct rows){room, elements};
}

// `count` rows from element `begin` on, to be read.
static struct rows read_rows(const struct running *r, const struct cpu_tensor *t, int64_t begin,
                             int64_t count, int64_t elements, float *room)
{
    const uint16_t *from = (const uint16_t *)t->at + begin;
    for (int64_t i = 0; t->dtype != LS_F32 && i < count; i++)
        r->loops->half->widen(t->dtype, from + i * r->a.heads * elements, room + i * elements,
                              elements);
    return rows_of(r, t, begin, elements, room);
}

// They are complete.
static void write_rows(const struct running *r, const struct cpu_tensor *t, int64_t begin,
                       int64_t count, int64_t elements, const float *room)
{
    uint16_t *to = (uint16_t *)t->at + begin;
    for (int64_t i = 0; t->dtype != LS_F32 && i < count; i++)
        r->loops->half->narrow(t->dtype, room + i * elements, to + i * r->a.heads * elements,
                               elements);
}

// ---- forward ----

static void forward_block(const struct running *r, const struct block *k, const struct rooms *rooms,
                          struct rows keys, struct rows values)
{
    const struct attention *a = &r->a;
    const int64_t out = at(a, k, k->first, a->queries, a->width);
    const struct rows q =
        read_rows(r, &r->q, at(a, k, k->first, a->queries, a->depth), k->rows, a->depth, rooms->q);
    const struct rows y = rows_of(r, &r->y, out, a->width, rooms->y);
    float *p = r->p ? saved_of(r, k) : rooms->scores, *kept = p;

    dnnl_sgemm('N', 'T', k->rows, k->columns, a->depth, a->scale, q.at, q.distance, keys.at,
               keys.distance, 0.0f, p, a->keys);
    r->loops->layers->attention_softmax(p, a->keys, k->rows, k->columns, k->visible);
    if (a->rate > 0.0f) {
        kept = rooms->dropped;
        drop(r, k, p, kept);
    }
    dnnl_sgemm('N', 'N', k->rows, a->width, k->columns, 1.0f, kept, a->keys, values.at,
               values.distance, 0.0f, y.at, y.distance);
    write_rows(r, &r->y, out, k->rows, a->width, rooms->y);
}

static void forward_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const struct attention *a = &r->a;
    const struct rooms rooms = rooms_of(r);
    struct rows keys = {NULL, 0}, values = {NULL, 0};

    omp_set_num_threads(1); // the library may not divide a block
    for (int64_t i = begin; i < end; i++) {
        const struct block k = block_of(a, i / a->blocks, i % a->blocks);
        if (i == begin || k.first == 0) {
            keys = read_rows(r, &r->k, at(a, &k, 0, a->keys, a->depth), a->keys, a->depth, rooms.k);
            values =
                read_rows(r, &r->v, at(a, &k, 0, a->keys, a->width), a->keys, a->width, rooms.v);
        }
        forward_block(r, &k, &rooms, keys, values);
    }
}

// About nanoseconds: 60 multiplications each, and the softmax.
static double work_of(const struct attention *a, double products)
{
    const double scores = (double)(a->batch * a->heads) * (double)a->queries * (double)a->keys;
    return scores * (products * (double)(a->depth + a->width) / 60.0 + 1.0);
}

static struct cpu_tensor tensor_of(const struct ls_kernel *kernel, const struct cpu_call *launch,
                                   uint32_t argument)
{
    return (struct cpu_tensor){launch->arguments[argument], kernel->arguments[argument].dtype};
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct running r = {.a = attention_of(kernel, kernel->arguments),
                        .loops = device->loops,
                        .record = launch->record,
                        .key = kernel->attributes.key,
                        .q = tensor_of(kernel, launch, 0),
                        .k = tensor_of(kernel, launch, 1),
                        .v = tensor_of(kernel, launch, 2),
                        .y = tensor_of(kernel, launch, 3),
                        .p = kernel->output_count > 1 ? cpu_output(kernel, launch, 1) : NULL,
                        .scratch = launch->scratch};
    r.room_bytes = room_bytes(&r.a, r.q.dtype, false);
    cpu_parallel(device, r.a.batch * r.a.heads * r.a.blocks, 1, work_of(&r.a, 1.0), forward_part,
                 &r);
    return LS_OK;
}

// ---- backward ----

// Of one head.
struct head {
    struct rows keys, values, dk, dv;
};

static void backward_block(const struct running *r, const struct block *k,
                           const struct rooms *rooms, const struct head *head)
{
    const struct attention *a = &r->a;
    const int64_t query = at(a, k, k->first, a->queries, a->depth);
    const struct rows q = read_rows(r, &r->q, query, k->rows, a->depth, rooms->q),
                      dq = rows_of(r, &r->dq, query, a->depth, rooms->dq),
                      dy = read_rows(r, &r->dy, at(a, k, k->first, a->queries, a->width), k->rows,
                                     a->width, rooms->y);
    const float *p = saved_of(r, k), *kept = p;
    float *dp = rooms->scores;

    dnnl_sgemm('N', 'T', k->rows, k->columns, a->width, 1.0f, dy.at, dy.distance, head->values.at,
               head->values.distance, 0.0f, dp, a->keys);
    if (a->rate > 0.0f) {
        drop(r, k, p, rooms->dropped);
        drop(r, k, dp, dp);
        kept = rooms->dropped;
    }
    dnnl_sgemm('T', 'N', k->columns, a->width, k->rows, 1.0f, kept, a->keys, dy.at, dy.distance,
               1.0f, head->dv.at, head->dv.distance);
    r->loops->layers->attention_softmax_backward(p, a->keys, dp, a->keys, k->rows, k->columns,
                                                 a->scale);
    dnnl_sgemm('N', 'N', k->rows, a->depth, k->columns, 1.0f, dp, a->keys, head->keys.at,
               head->keys.distance, 0.0f, dq.at, dq.distance);
    write_rows(r, &r->dq, query, k->rows, a->depth, rooms->dq);
    dnnl_sgemm('T', 'N', k->columns, a->depth, k->rows, 1.0f, dp, a->keys, q.at, q.distance, 1.0f,
               head->dk.at, head->dk.distance);
}

static void zero_rows(struct rows rows, int64_t count, int64_t elements)
{
    for (int64_t i = 0; i < count; i++)
        memset(rows.at + i * rows.distance, 0, (size_t)elements * sizeof(float));
}

static void backward_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const struct attention *a = &r->a;
    const struct rooms rooms = rooms_of(r);

    omp_set_num_threads(1); // as forward
    for (int64_t i = begin; i < end; i++) {
        const struct block first = block_of(a, i, 0);
        const int64_t keys = at(a, &first, 0, a->keys, a->depth),
                      values = at(a, &first, 0, a->keys, a->width);
        const struct head head = {read_rows(r, &r->k, keys, a->keys, a->depth, rooms.k),
                                  read_rows(r, &r->v, values, a->keys, a->width, rooms.v),
                                  rows_of(r, &r->dk, keys, a->depth, rooms.dk),
                                  rows_of(r, &r->dv, values, a->width, rooms.dv)};
        zero_rows(head.dk, a->keys, a->depth);
        zero_rows(head.dv, a->keys, a->width);
        for (int64_t j = 0; j < a->blocks; j++) {
            const struct block k = block_of(a, i, j);
            backward_block(r, &k, &rooms, &head);
        }
        write_rows(r, &r->dk, keys, a->keys, a->depth, rooms.dk);
        write_rows(r, &r->dv, values, a->keys, a->width, rooms.dv);
    }
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct running r = {.a = attention_of(kernel, &kernel->arguments[1]),
                        .loops = device->loops,
                        .record = launch->record,
                        .key = kernel->attributes.key,
                        .dy = tensor_of(kernel, launch, 0),
                        .q = tensor_of(kernel, launch, 1),
                        .k = tensor_of(kernel, launch, 2),
                        .v = tensor_of(kernel, launch, 3),
                        .p = launch->arguments[4],
                        .dq = tensor_of(kernel, launch, 5),
                        .dk = tensor_of(kernel, launch, 6),
                        .dv = tensor_of(kernel, launch, 7),
                        .scratch = launch->scratch};
    r.room_bytes = room_bytes(&r.a, r.q.dtype, true);
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
    answer->scratch_bytes = device->threads * room_bytes(&a, kernel->arguments[0].dtype, false);
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN sgemm + own %s",
             device->loops->name);
    return cpu_all_plain(device, request, kernel);
}

int32_t cpu_attention_backward(struct ls_device *device, const struct ls_kernel_request *request,
                               struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct attention a = attention_of(kernel, &kernel->arguments[1]);
    kernel->run = run_backward;
    answer->scratch_bytes = device->threads * room_bytes(&a, kernel->arguments[0].dtype, true);
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN sgemm + own %s",
             device->loops->name);
    return cpu_all_plain(device, request, kernel);
}
