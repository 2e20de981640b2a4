// SPDX-License-Identifier: Apache-2.0
// Operations of the fake as two pieces of work on each rank's stream: the rank arrives, with its input; and when all have, it
// takes the result. Recordings keep both, so which ones belong together is decided when they run.
#include "tests/support/nccl-fake/fake.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"all-reduce", "reduce-scatter", "all-gather",
                                    "broadcast",  "reduce",         "all-to-all"};

static size_t input_bytes(const struct nccl_fake_order *order)
{
    const int all =
        order->operation == NCCL_FAKE_REDUCE_SCATTER || order->operation == NCCL_FAKE_ALL_TO_ALL;
    const int world = all ? order->comm->clique->world : 1;
    return order->count * nccl_fake_bytes(order->type) * (size_t)world;
}

static struct nccl_fake_slot *slot_of(struct nccl_fake_clique *clique, uint64_t number)
{
    struct nccl_fake_slot *slot = clique->slots;
    while (slot && slot->number != number)
        slot = slot->next;
    if (slot)
        return slot;
    slot = calloc(1, sizeof(*slot));
    if (!slot)
        nccl_fake_stop("no memory");
    *slot = (struct nccl_fake_slot){.number = number, .next = clique->slots};
    clique->slots = slot;
    nccl_fake_live.slots++;
    return slot;
}

static void free_slot(struct nccl_fake_clique *clique, struct nccl_fake_slot *slot)
{
    struct nccl_fake_slot **place = &clique->slots;
    while (*place != slot)
        place = &(*place)->next;
    *place = slot->next;
    for (int i = 0; i < NCCL_FAKE_RANKS; i++)
        free(slot->inputs[i]);
    free(slot);
    nccl_fake_live.slots--;
}

static void compare(const struct nccl_fake_order *a, const struct nccl_fake_order *b)
{
    if (a->operation != b->operation || a->count != b->count || a->type != b->type ||
        a->reduction != b->reduction || a->root != b->root)
        nccl_fake_stop("rank %d has %s of %zu (type %u, reduction %u, root %d), rank %d has %s of "
                       "%zu (type %u, reduction %u, root %d): NCCL would hang",
                       a->comm->rank, names[a->operation], a->count, a->type, a->reduction, a->root,
                       b->comm->rank, names[b->operation], b->count, b->type, b->reduction,
                       b->root);
}

// Where ranks have symmetric windows, NCCL's kernels look at the others' memory at the places of their own.
static void compare_windows(const struct nccl_fake_order *a, const struct nccl_fake_order *b)
{
    const int gathers = a->operation == NCCL_FAKE_ALL_GATHER,
              scatters = a->operation == NCCL_FAKE_REDUCE_SCATTER;
    if (a->window != b->window || (!gathers && a->from_at != b->from_at) ||
        (!scatters && a->to_at != b->to_at))
        nccl_fake_stop("rank %d has %s at bytes %llu and %llu of window %llu, rank %d at %llu and "
                       "%llu of window "
                       "%llu (0: none): it is not symmetric",
                       a->comm->rank, names[a->operation], (unsigned long long)a->from_at,
                       (unsigned long long)a->to_at, (unsigned long long)a->window, b->comm->rank,
                       (unsigned long long)b->from_at, (unsigned long long)b->to_at,
                       (unsigned long long)b->window);
}

// NCCL: whether an operation is captured is the same on all ranks, and they launch graphs of the same capture.
static void compare_recordings(const struct nccl_fake_order *a, const struct nccl_fake_order *b)
{
    if (a->recording != b->recording)
        nccl_fake_stop("rank %d has %s from its recording %llu, rank %d from its recording %llu "
                       "(0: from none): NCCL may hang",
                       a->comm->rank, names[a->operation], (unsigned long long)a->recording,
                       b->comm->rank, (unsigned long long)b->recording);
}

void nccl_fake_arrive(struct ncclComm *comm, const struct nccl_fake_order *order, void *input)
{
    static long long arrivals;
    struct nccl_fake_slot *slot = slot_of(comm->clique, comm->arrived++);
    slot->orders[comm->rank] = *order;
    slot->orders[comm->rank].comm = comm;
    slot->inputs[comm->rank] = input;
    order = &slot->orders[comm->rank];
    for (int i = 0; i < comm->clique->world; i++)
        if (slot->inputs[i]) {
            compare(&slot->orders[i], order);
            compare_recordings(&slot->orders[i], order);
            compare_windows(&slot->orders[i], order);
        }
    slot->arrived++;
    if (arrivals++ == double_setting("NCCL_FAKE_ERROR", -1))
        nccl_fake_break(comm->clique, ncclRemoteError, "the fake was told to lose a peer");
}

static void run_arrival(const void *data)
{
    const struct nccl_fake_order *order = data;
    struct ncclComm *comm = order->comm;
    const size_t bytes = input_bytes(order);
    void *input = malloc(bytes + 1);
    if (!input)
        nccl_fake_stop("no memory");
    memcpy(input, order->from, bytes);
    struct nccl_fake_message message = {
        .kind = NCCL_FAKE_ARRIVES, .rank = comm->rank, .order = *order, .bytes = bytes};
    message.order.comm = NULL;
    nccl_fake_tell(comm->clique, &message, input);
    pthread_mutex_lock(&nccl_fake_lock);
    nccl_fake_arrive(comm, order, input);
    pthread_mutex_unlock(&nccl_fake_lock);
}

static int is_ready(const void *data, struct CUstream_st **first)
{
    const struct ncclComm *comm = ((const struct nccl_fake_order *)data)->comm;
    const struct nccl_fake_clique *clique = comm->clique;
    int ready = 1;
    pthread_mutex_lock(&nccl_fake_lock);
    for (int i = 0; !comm->aborted && i < clique->world; i++)
        if (clique->ranks[i]->aborted || clique->ranks[i]->arrived <= comm->done) {
            *first = clique->failure ? NULL : clique->ranks[i]->stream;
            ready = 0;
        }
    if (clique->failure && !comm->aborted)
        ready = 0;
    pthread_mutex_unlock(&nccl_fake_lock);
    return ready;
}

// Elements [first, first + count) of all inputs as one, in the order of the ranks.
static void combine(const struct nccl_fake_order *order, const struct nccl_fake_slot *slot,
                    size_t first)
{
    const size_t bytes = nccl_fake_bytes(order->type);
    memcpy(order->to, (char *)slot->inputs[0] + first * bytes, order->count * bytes);
    for (int i = 1; i < order->comm->clique->world; i++)
        nccl_fake_combine(order->to, (char *)slot->inputs[i] + first * bytes, order->count,
                          order->type, order->reduction);
    if (double_setting("NCCL_FAKE_TWICE", 0)) // a wrong library, equally wrong on all ranks
        nccl_fake_combine(order->to, (char *)slot->inputs[0] + first * bytes, order->count,
                          order->type, order->reduction);
}

static void take_result(const struct nccl_fake_order *order, const struct nccl_fake_slot *slot)
{
    const size_t bytes = order->count * nccl_fake_bytes(order->type);
    const int rank = order->comm->rank, world = order->comm->clique->world;
    switch (order->operation) {
    case NCCL_FAKE_ALL_REDUCE: combine(order, slot, 0); break;
    case NCCL_FAKE_REDUCE_SCATTER: combine(order, slot, order->count * (size_t)rank); break;
    case NCCL_FAKE_ALL_GATHER:
        for (int i = 0; i < world; i++)
            memcpy((char *)order->to + (size_t)i * bytes, slot->inputs[i], bytes);
        break;
    case NCCL_FAKE_ALL_TO_ALL:
        for (int i = 0; i < world; i++)
            memcpy((char *)order->to + (size_t)i * bytes,
                   (char *)slot->inputs[i] + (size_t)rank * bytes, bytes);
        break;
    case NCCL_FAKE_BROADCAST: memcpy(order->to, slot->inputs[order->root], bytes); break;
    default:
        if (rank == order->root)
            combine(order, slot, 0);
    }
}

static void run_result(const void *data)
{
    const struct nccl_fake_order *order = data;
    struct ncclComm *comm = order->comm;
    pthread_mutex_lock(&nccl_fake_lock);
    struct nccl_fake_slot *slot = slot_of(comm->clique, comm->done++);
    if (!comm->aborted)
        take_result(order, slot);
    if (++slot->done == (uint32_t)comm->clique->own)
        free_slot(comm->clique, slot);
    pthread_mutex_unlock(&nccl_fake_lock);
}

static uint64_t count_recording(const struct nccl_fake_order *order)
{
    struct ncclComm *comm = order->comm;
    const uint64_t recording = double_recording_of(order->stream);
    if (!recording)
        return 0;
    comm->recordings += recording != comm->recording;
    comm->recording = recording;
    return comm->recordings;
}

unsigned nccl_fake_flush(struct nccl_fake_order *orders, uint32_t count)
{
    unsigned error = 0;
    for (uint32_t i = 0; !error && i < count; i++) {
        orders[i].recording = count_recording(&orders[i]);
        error = double_enqueue(orders[i].stream, run_arrival, &orders[i], sizeof(orders[i]), 0);
        if (!error)
            error = double_enqueue_when(orders[i].stream, is_ready, run_result, &orders[i],
                                        sizeof(orders[i]));
    }
    return error;
}
