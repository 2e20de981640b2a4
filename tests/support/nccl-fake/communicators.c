// SPDX-License-Identifier: Apache-2.0
// Communicators of the fake: their life, their state, and groups of calls.
#include "tests/support/nccl-fake/fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t nccl_fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct nccl_fake_counts nccl_fake_live;
struct nccl_fake_clique *nccl_fake_cliques;
static char last_error[160];

void nccl_fake_stop(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "nccl-fake: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    abort();
}

void nccl_fake_count(struct nccl_fake_counts *out)
{
    pthread_mutex_lock(&nccl_fake_lock);
    *out = nccl_fake_live;
    pthread_mutex_unlock(&nccl_fake_lock);
}

unsigned ncclGetVersion(int *version)
{
    *version = (int)double_setting("NCCL_FAKE_VERSION", 22809);
    return ncclSuccess;
}

const char *ncclGetErrorString(unsigned error)
{
    return error == ncclRemoteError       ? "remote process exited or there was a network error"
           : error == ncclInvalidUsage    ? "invalid usage"
           : error == ncclInProgress      ? "NCCL operation in progress"
           : error == ncclInvalidArgument ? "invalid argument"
                                          : "an error of the fake";
}

const char *ncclGetLastError(struct ncclComm *comm)
{
    return comm && comm->clique->failure ? comm->clique->text : last_error;
}

unsigned ncclGetUniqueId(ncclUniqueId *id)
{
    static uint64_t made;
    const unsigned error = (unsigned)double_setting("NCCL_FAKE_ID_ERROR", 0);
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "double %lld %llu", (long long)getpid(),
             (unsigned long long)__atomic_add_fetch(&made, 1, __ATOMIC_RELAXED));
    if (!error)
        nccl_fake_listen(id);
    return error;
}

// ---- Groups: what the calls of this thread begin, begins at the end ----

struct beginning {
    struct ncclComm *comm;
    enum nccl_fake_phase phase;
};

static _Thread_local struct {
    int depth;
    unsigned error;
    uint32_t count;
    struct beginning list[4 * NCCL_FAKE_RANKS];
} group;

static void tell_others(struct ncclComm *comm, enum nccl_fake_kind kind)
{
    nccl_fake_tell(
        comm->clique,
        &(struct nccl_fake_message){
            .kind = kind, .rank = comm->rank, .world = comm->clique->world, .gpu = comm->gpu},
        NULL);
}

static unsigned begin_now(struct ncclComm *comm, enum nccl_fake_phase phase)
{
    struct nccl_fake_clique *clique = comm->clique;
    if (phase == NCCL_FAKE_JOINING && clique->own < clique->world)
        nccl_fake_connect(clique);
    if (phase == NCCL_FAKE_JOINING && comm->rank != double_setting("NCCL_FAKE_MISSING", -1))
        tell_others(comm, NCCL_FAKE_JOINS);
    if (phase == NCCL_FAKE_FINALIZING)
        tell_others(comm, NCCL_FAKE_FINALIZES);
    if (phase == NCCL_FAKE_REGISTERING)
        nccl_fake_tell(comm->clique,
                       &(struct nccl_fake_message){.kind = NCCL_FAKE_REGISTERS,
                                                   .rank = comm->rank,
                                                   .order.count = comm->windows[comm->asked].bytes},
                       NULL);
    pthread_mutex_lock(&nccl_fake_lock);
    if (phase == NCCL_FAKE_REGISTERING)
        nccl_fake_ask(comm, comm->windows[comm->asked].memory, comm->windows[comm->asked].bytes);
    comm->phase = phase;
    comm->questions = 0;
    if (phase == NCCL_FAKE_FINALIZING)
        clique->finalized++;
    pthread_mutex_unlock(&nccl_fake_lock);
    return ncclInProgress;
}

static unsigned begin(struct ncclComm *comm, enum nccl_fake_phase phase)
{
    if (group.depth == 0)
        return begin_now(comm, phase);
    for (uint32_t i = 0; i < group.count; i++)
        if (group.list[i].comm == comm && group.list[i].phase == phase)
            return ncclSuccess;
    if (group.count == sizeof(group.list) / sizeof(group.list[0]))
        nccl_fake_stop("more in a group than it holds");
    group.list[group.count++] = (struct beginning){comm, phase};
    return ncclSuccess;
}

unsigned ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

unsigned ncclGroupEnd(void)
{
    if (group.depth == 0)
        return ncclInvalidUsage;
    if (--group.depth)
        return ncclSuccess;
    unsigned state = group.error;
    for (uint32_t i = 0; !group.error && i < group.count; i++)
        state = begin_now(group.list[i].comm, group.list[i].phase);
    group.count = 0;
    group.error = 0;
    return state;
}

// ---- State ----

// Refuses calls that NCCL refuses; a communicator that is gone ends the process.
static unsigned check(struct ncclComm *comm)
{
    if (!comm || comm->aborted || comm->closed)
        nccl_fake_stop("a communicator is used that is %s", comm ? "gone" : "NULL");
    const unsigned error = comm->clique->failure           ? comm->clique->failure
                           : comm->phase != NCCL_FAKE_IDLE ? ncclInvalidArgument
                                                           : ncclSuccess;
    if (error && group.depth)
        group.error = error;
    return error;
}

// Whether what has begun is over, but for having been asked twice.
static int is_over(const struct ncclComm *comm)
{
    const struct nccl_fake_clique *clique = comm->clique;
    switch (comm->phase) {
    case NCCL_FAKE_JOINING: return clique->joined == clique->world;
    case NCCL_FAKE_PUTTING: return !comm->stuck;
    case NCCL_FAKE_REGISTERING: return nccl_fake_have_asked(comm);
    case NCCL_FAKE_FINALIZING:
        return clique->finalized == clique->world && !double_setting("NCCL_FAKE_STAY", 0);
    default: return 1;
    }
}

unsigned ncclCommGetAsyncError(struct ncclComm *comm, unsigned *state)
{
    struct nccl_fake_order *orders = NULL;
    uint32_t count = 0;
    if (!comm || comm->aborted || comm->closed)
        check(comm); // ends the process
    pthread_mutex_lock(&nccl_fake_lock);
    const int waits = comm->phase != NCCL_FAKE_IDLE && (++comm->questions < 2 || !is_over(comm));
    *state = comm->clique->failure ? comm->clique->failure : waits ? ncclInProgress : ncclSuccess;
    if (*state == ncclSuccess) {
        if (comm->phase == NCCL_FAKE_REGISTERING)
            nccl_fake_answer(comm);
        comm->phase = NCCL_FAKE_IDLE;
        orders = comm->orders;
        count = comm->order_count;
        comm->orders = NULL;
        comm->order_count = comm->order_room = 0;
    }
    pthread_mutex_unlock(&nccl_fake_lock);
    if (count && nccl_fake_flush(orders, count))
        *state = ncclUnhandledCudaError;
    free(orders);
    return ncclSuccess;
}

// ---- Life ----

void nccl_fake_break(struct nccl_fake_clique *clique, unsigned error, const char *text)
{
    clique->failure = error;
    snprintf(clique->text, sizeof(clique->text), "%s", text);
}

static struct nccl_fake_clique *find_clique(const ncclUniqueId *id, int world)
{
    struct nccl_fake_clique *clique = nccl_fake_cliques;
    while (clique && memcmp(&clique->id, id, sizeof(*id)))
        clique = clique->next;
    if (clique)
        return clique;
    clique = calloc(1, sizeof(*clique));
    if (!clique)
        nccl_fake_stop("no memory");
    *clique = (struct nccl_fake_clique){.id = *id, .world = world, .next = nccl_fake_cliques};
    nccl_fake_cliques = clique;
    return clique;
}

// As NCCL does when all have come: it compares hosts and PCI buses.
static void look_for_duplicates(struct nccl_fake_clique *clique)
{
    char text[160];
    for (int i = 0; i < clique->world; i++)
        for (int k = 0; k < i && clique->ranks[i] && clique->ranks[k]; k++)
            if (clique->ranks[i]->gpu == clique->ranks[k]->gpu) {
                snprintf(text, sizeof(text),
                         "Duplicate GPU detected : rank %d and rank %d both on CUDA device %llx", k,
                         i, (unsigned long long)clique->ranks[i]->gpu);
                nccl_fake_break(clique, ncclInvalidUsage, text);
            }
}

// Under the lock.
static void add_rank(struct nccl_fake_clique *clique, struct ncclComm *comm, int ranks)
{
    if (clique->world != ranks || clique->ranks[comm->rank])
        nccl_fake_stop("rank %d of %d does not fit into a world of %d", comm->rank, ranks,
                       clique->world);
    comm->clique = clique;
    clique->ranks[comm->rank] = comm;
    clique->joined += comm->rank != double_setting("NCCL_FAKE_MISSING", -1);
    if (clique->joined == clique->world)
        look_for_duplicates(clique);
}

static void join(struct ncclComm *comm, const ncclUniqueId *id, int ranks)
{
    pthread_mutex_lock(&nccl_fake_lock);
    struct nccl_fake_clique *clique = find_clique(id, ranks);
    add_rank(clique, comm, ranks);
    clique->own++;
    clique->open++;
    nccl_fake_live.communicators++;
    pthread_mutex_unlock(&nccl_fake_lock);
}

static struct ncclComm *make_comm(int rank, int device, long long gpu)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    if (!comm)
        nccl_fake_stop("no memory");
    *comm = (struct ncclComm){.rank = rank, .device = device, .gpu = gpu};
    return comm;
}

int nccl_fake_hear(struct nccl_fake_clique *clique, const struct nccl_fake_message *message,
                   void *input)
{
    int news = 0;
    pthread_mutex_lock(&nccl_fake_lock);
    struct ncclComm *comm = clique->ranks[message->rank];
    switch (message->kind) {
    case NCCL_FAKE_JOINS:
        add_rank(clique, make_comm(message->rank, -1, message->gpu), message->world);
        break;
    case NCCL_FAKE_ARRIVES:
        nccl_fake_arrive(comm, &message->order, input);
        input = NULL;
        break;
    case NCCL_FAKE_REGISTERS: nccl_fake_ask(comm, NULL, message->order.count); break;
    case NCCL_FAKE_FINALIZES: clique->finalized++; break;
    case NCCL_FAKE_IS_LOST:
        news = clique->finalized < clique->world && !clique->failure;
        if (news)
            nccl_fake_break(clique, ncclRemoteError, "another process of the fake has gone");
    }
    pthread_mutex_unlock(&nccl_fake_lock);
    free(input);
    double_wake();
    return news;
}

// How much of a caller's settings a version knows.
static size_t known_bytes(int version)
{
    return version >= 22700   ? sizeof(ncclConfig_t)
           : version >= 22600 ? offsetof(ncclConfig_t, commName)
                              : offsetof(ncclConfig_t, trafficClass);
}

static int is_chosen(int value)
{
    return value != NCCL_CONFIG_UNDEF_INT;
}

// What the fake makes of the settings, as parseCommConfig() of NCCL does. 0: it refuses them.
static int read_config(const ncclConfig_t *given, ncclConfig_t *config)
{
    const int version = (int)double_setting("NCCL_FAKE_VERSION", 22809),
              open = NCCL_CONFIG_UNDEF_INT;
    *config = (ncclConfig_t){.cgaClusterSize = open,
                             .minCTAs = open,
                             .maxCTAs = open,
                             .splitShare = open,
                             .trafficClass = open,
                             .collnetEnable = open,
                             .CTAPolicy = open,
                             .shrinkShare = open,
                             .nvlsCTAs = open};
    const size_t known = known_bytes(version);
    memcpy(config, given, given->size < known ? given->size : known);
    if (config->version < 22700)
        config->collnetEnable = config->CTAPolicy = config->shrinkShare = config->nvlsCTAs = open;
    const int most_policy = version >= 22800 ? 2 : 1;
    return config->magic == NCCL_CONFIG_MAGIC && config->version >= 21400 &&
           (!is_chosen(config->maxCTAs) || config->maxCTAs > 0) &&
           (!is_chosen(config->minCTAs) || config->minCTAs > 0) &&
           config->minCTAs <= config->maxCTAs &&
           (!is_chosen(config->CTAPolicy) ||
            (config->CTAPolicy >= 0 && config->CTAPolicy <= most_policy));
}

unsigned ncclCommInitRankConfig(struct ncclComm **out, int ranks, ncclUniqueId id, int rank,
                                ncclConfig_t *given)
{
    ncclConfig_t config;
    if (!read_config(given, &config) || ranks < 1 || ranks > NCCL_FAKE_RANKS || rank < 0 ||
        rank >= ranks)
        return group.error = ncclInvalidArgument;
    if (config.blocking)
        nccl_fake_stop("only non-blocking communicators are there");
    nccl_fake_live.ctas = is_chosen(config.maxCTAs) ? config.maxCTAs : 0;
    nccl_fake_live.policy = is_chosen(config.CTAPolicy) ? config.CTAPolicy : 0;
    struct ncclComm *comm =
        make_comm(rank, double_current(), double_current() + double_setting("CUDA_FAKE_FIRST", 0));
    join(comm, &id, ranks);
    *out = comm;
    return begin(comm, NCCL_FAKE_JOINING);
}

unsigned ncclCommFinalize(struct ncclComm *comm)
{
    const unsigned error = check(comm);
    return error ? error : begin(comm, NCCL_FAKE_FINALIZING);
}

// Its memory stays: streams may still have orders of it, which then do nothing.
static void leave(struct ncclComm *comm)
{
    pthread_mutex_lock(&nccl_fake_lock);
    free(comm->orders);
    comm->orders = NULL;
    comm->order_count = 0;
    nccl_fake_live.communicators--;
    const int last = --comm->clique->open == 0;
    const int well = comm->closed && !comm->clique->failure;
    pthread_mutex_unlock(&nccl_fake_lock);
    if (last)
        nccl_fake_disconnect(comm->clique, well);
    double_wake();
}

unsigned ncclCommDestroy(struct ncclComm *comm)
{
    const unsigned error = check(comm);
    if (error)
        return error;
    if (comm->arrived != comm->done)
        nccl_fake_stop("rank %d is destroyed while it works", comm->rank);
    if (nccl_fake_open_windows(comm))
        nccl_fake_stop("rank %d is destroyed with %d windows", comm->rank,
                       nccl_fake_open_windows(comm));
    comm->closed = 1;
    leave(comm);
    return ncclSuccess;
}

unsigned ncclCommAbort(struct ncclComm *comm)
{
    if (!comm || comm->aborted || comm->closed)
        check(comm); // ends the process
    pthread_mutex_lock(&nccl_fake_lock);
    comm->aborted = 1;
    nccl_fake_live.aborts++;
    pthread_mutex_unlock(&nccl_fake_lock);
    leave(comm);
    return ncclSuccess;
}

// ---- Windows ----

unsigned ncclCommWindowRegister(struct ncclComm *comm, void *memory, size_t bytes,
                                struct ncclWindow_vidmem **out, int flags)
{
    const unsigned error = check(comm);
    if (error)
        return error;
    nccl_fake_need("ncclCommWindowRegister", NCCL_LATER);
    if (flags != NCCL_WIN_COLL_SYMMETRIC)
        nccl_fake_stop("windows of kind %d are not there", flags);
    if (double_is_recorded())
        nccl_fake_stop("rank %d registers memory within a capture", comm->rank);
    if (comm->asked == NCCL_FAKE_WINDOWS)
        nccl_fake_stop("rank %d asks for more windows than there are", comm->rank);
    nccl_fake_check_memory(memory, bytes);
    if (double_setting("NCCL_FAKE_NO_WINDOWS", 0) == 1)
        return ncclSuccess; // as where GPUs do not reach each other, and nothing else is registered
    if (double_setting("NCCL_FAKE_NO_WINDOWS", 0) == 2) {
        pthread_mutex_lock(&nccl_fake_lock);
        nccl_fake_break(comm->clique, ncclUnhandledCudaError,
                        "the fake was told to register nothing");
        pthread_mutex_unlock(&nccl_fake_lock);
        return ncclUnhandledCudaError;
    }
    comm->answer = out;
    comm->windows[comm->asked] = (struct ncclWindow_vidmem){.memory = memory, .bytes = bytes};
    return begin(comm, NCCL_FAKE_REGISTERING);
}

// ---- Operations: kept until they are asked for ----

static void keep(struct ncclComm *comm, const struct nccl_fake_order *order)
{
    if (comm->order_count == comm->order_room) {
        comm->order_room = comm->order_room ? 2 * comm->order_room : 8;
        comm->orders = realloc(comm->orders, comm->order_room * sizeof(*comm->orders));
        if (!comm->orders)
            nccl_fake_stop("no memory");
    }
    comm->orders[comm->order_count++] = *order;
}

static unsigned give(struct nccl_fake_order order)
{
    static uint64_t given;
    struct ncclComm *comm = order.comm;
    const unsigned error = check(comm);
    if (error)
        return error;
    if (!order.from || !order.to || !nccl_fake_bytes(order.type) || order.root < 0 ||
        order.root >= comm->clique->world)
        return ncclInvalidArgument;
    if (double_device_of(order.stream) != comm->device)
        nccl_fake_stop("rank %d of GPU %d is given a stream of GPU %d", comm->rank, comm->device,
                       double_device_of(order.stream));
    const void *from = order.from, *to = order.to;
    order.from = double_reach(from);
    order.to = double_reach(to);
    pthread_mutex_lock(&nccl_fake_lock);
    nccl_fake_find_window(&order, from, to);
    const long long number = (long long)given++;
    comm->stuck = number == double_setting("NCCL_FAKE_STUCK", -1);
    comm->stream = order.stream;
    keep(comm, &order);
    pthread_mutex_unlock(&nccl_fake_lock);
    return begin(comm, NCCL_FAKE_PUTTING);
}

unsigned ncclAllReduce(const void *from, void *to, size_t count, unsigned type, unsigned reduction,
                       struct ncclComm *comm, struct CUstream_st *stream)
{
    return give((struct nccl_fake_order){comm, stream, from, to, count, NCCL_FAKE_ALL_REDUCE, type,
                                         reduction, 0, 0, 0, 0, 0});
}

unsigned ncclReduceScatter(const void *from, void *to, size_t count, unsigned type,
                           unsigned reduction, struct ncclComm *comm, struct CUstream_st *stream)
{
    return give((struct nccl_fake_order){comm, stream, from, to, count, NCCL_FAKE_REDUCE_SCATTER,
                                         type, reduction, 0, 0, 0, 0, 0});
}

unsigned ncclAllGather(const void *from, void *to, size_t count, unsigned type,
                       struct ncclComm *comm, struct CUstream_st *stream)
{
    return give((struct nccl_fake_order){comm, stream, from, to, count, NCCL_FAKE_ALL_GATHER, type,
                                         ncclSum, 0, 0, 0, 0, 0});
}

unsigned ncclBroadcast(const void *from, void *to, size_t count, unsigned type, int root,
                       struct ncclComm *comm, struct CUstream_st *stream)
{
    return give((struct nccl_fake_order){comm, stream, from, to, count, NCCL_FAKE_BROADCAST, type,
                                         ncclSum, root, 0, 0, 0, 0});
}

unsigned ncclReduce(const void *from, void *to, size_t count, unsigned type, unsigned reduction,
                    int root, struct ncclComm *comm, struct CUstream_st *stream)
{
    return give((struct nccl_fake_order){comm, stream, from, to, count, NCCL_FAKE_REDUCE, type,
                                         reduction, root, 0, 0, 0, 0});
}

// ---- Messages: only groups that send a block to each rank and receive one from each, in order ----

// `blocks`: how many there were in this direction; `first`: where the first is.
static void check_block(struct ncclComm *comm, const char *name,
                        const struct nccl_fake_order *order, int peer, int blocks,
                        const void *first, const void *block)
{
    const size_t at = (size_t)peer * order->count * nccl_fake_bytes(order->type);
    if (!group.depth)
        nccl_fake_stop("rank %d calls %s outside of a group: it would hang", comm->rank, name);
    if (peer != blocks || (const char *)block != (const char *)first + at)
        nccl_fake_stop("rank %d: the fake's %s knows one block after the other", comm->rank, name);
}

unsigned ncclSend(const void *from, size_t count, unsigned type, int peer, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    struct nccl_fake_order *order = &comm->exchange;
    if (peer == 0) {
        *order = (struct nccl_fake_order){
            comm, stream, from, NULL, count, NCCL_FAKE_ALL_TO_ALL, type, ncclSum, 0, 0, 0, 0, 0};
        comm->received = comm->sent = 0;
    }
    check_block(comm, "ncclSend", order, peer, comm->sent++, order->from, from);
    return check(comm);
}

unsigned ncclRecv(void *to, size_t count, unsigned type, int peer, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    struct nccl_fake_order *order = &comm->exchange;
    if (peer == 0)
        order->to = to;
    if (count != order->count || type != order->type || stream != order->stream ||
        to == order->from)
        nccl_fake_stop("rank %d receives otherwise than it sends", comm->rank);
    check_block(comm, "ncclRecv", order, peer, comm->received++, order->to, to);
    if (comm->received < comm->clique->world || comm->sent < comm->clique->world)
        return check(comm);
    return give(*order);
}
