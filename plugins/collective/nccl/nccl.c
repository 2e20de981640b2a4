// SPDX-License-Identifier: Apache-2.0
// Collective `nccl`: NVIDIA's library does all-reduce and its relatives, on a stream of device `cuda`, between the GPUs of one
// machine or of several. It runs itself: it describes no schedule, so it can be neither simulated nor verified.
//
// Options: algorithm= and protocol= pin what NCCL otherwise chooses for each size (pin.c); `auto` leaves it the choice. ctas= and
// policy= are for the communicator (config.c), symmetric= for the memory of gradients (memory.c).
//
// What is promised about bits: an all-reduce gives the same on all ranks. Two runs give the same when NCCL adds in the same
// order, that is with the same version, GPUs and links, sizes, number of channels, algorithm and protocol; `ring` and `tree`
// are of this kind, `nvls` adds in the switch in an order of its own. `auto` may choose either, so the table says that
// nothing is promised between runs. A mean is the sum, divided by the number of ranks afterwards and rounded once.
//
// One communicator a rank, one thread of it, one stream. The first operations connect the GPUs: let some run before a
// recording is made, and release recordings before the communicator is closed, which waits for them.
#include "core/plugin/transport.h" // LS_SCOPE_NETWORK
#include "plugins/collective/nccl/internal.h"

// ---- What NCCL calls it ----

static const unsigned types[] = {
    [LS_F32] = ncclFloat32,   [LS_F64] = ncclFloat64, [LS_F16] = ncclFloat16,
    [LS_BF16] = ncclBfloat16, [LS_I32] = ncclInt32,   [LS_I64] = ncclInt64,
    [LS_U8] = ncclUint8,
};
static const unsigned reductions[] = {
    [LS_SUM] = ncclSum, [LS_PRODUCT] = ncclProd, [LS_MIN] = ncclMin,
    [LS_MAX] = ncclMax, [LS_MEAN] = ncclSum, // divided afterwards
};
static const char *const names[] = {
    [LS_ALL_REDUCE] = "all-reduce", [LS_REDUCE_SCATTER] = "reduce-scatter",
    [LS_ALL_GATHER] = "all-gather", [LS_BROADCAST] = "broadcast",
    [LS_REDUCE] = "reduce",         [LS_ALL_TO_ALL] = "all-to-all",
};

// ---- One operation ----

static struct ls_range part_of(const struct ls_collective *collective,
                               const struct ls_collective_run *run, uint32_t rank)
{
    return ls_part(ls_data_range(0, run->count), rank, collective->family->world);
}

static char *at(const struct ls_collective_run *run, uint64_t offset)
{
    return (char *)run->buffer + offset * ls_dtype_bytes(run->dtype);
}

static bool has_equal_parts(const struct ls_collective *collective,
                            const struct ls_collective_run *run)
{
    return run->count % (LS_CHUNK_ALIGNMENT * (uint64_t)collective->family->world) == 0;
}

// One call for a part of each rank: NCCL's own operations want equal ones. Empty parts have none.
static unsigned put_parts(struct ls_collective *collective, const struct ls_collective_run *run)
{
    const struct nccl_calls *calls = collective->family->calls;
    struct CUstream_st *stream = collective->native.native;
    unsigned error = calls->ncclGroupStart();
    for (uint32_t i = 0; !error && i < collective->family->world; i++) {
        const struct ls_range part = part_of(collective, run, i);
        char *place = at(run, part.offset);
        if (part.count == 0)
            continue;
        error =
            run->operation == LS_ALL_GATHER
                ? calls->ncclBroadcast(place, place, part.count, types[run->dtype], (int)i,
                                       collective->comm, stream)
                : calls->ncclReduce(place, place, part.count, types[run->dtype],
                                    reductions[run->reduction], (int)i, collective->comm, stream);
        error = error == ncclInProgress ? ncclSuccess : error;
    }
    const unsigned ended = calls->ncclGroupEnd();
    return error ? error : ended;
}

// As ncclAlltoAll does, which older versions lack. Messages of a group are under way at once.
static unsigned put_blocks(struct ls_collective *collective, const struct ls_collective_run *run)
{
    const struct nccl_calls *calls = collective->family->calls;
    struct CUstream_st *stream = collective->native.native;
    const unsigned type = types[run->dtype];
    const uint64_t each = run->count / collective->family->world;
    const uint64_t bytes = each * ls_dtype_bytes(run->dtype);
    unsigned error = calls->ncclGroupStart();
    for (uint32_t i = 0; !error && i < collective->family->world; i++) {
        error = calls->ncclSend((char *)run->scratch + i * bytes, each, type, (int)i,
                                collective->comm, stream);
        if (!error || error == ncclInProgress)
            error = calls->ncclRecv((char *)run->buffer + i * bytes, each, type, (int)i,
                                    collective->comm, stream);
        error = error == ncclInProgress ? ncclSuccess : error;
    }
    const unsigned ended = calls->ncclGroupEnd();
    return error ? error : ended;
}

static unsigned put(struct ls_collective *collective, const struct ls_collective_run *run)
{
    const struct nccl_calls *calls = collective->family->calls;
    struct CUstream_st *stream = collective->native.native;
    struct ncclComm *comm = collective->comm;
    const unsigned type = types[run->dtype], reduction = reductions[run->reduction];
    const struct ls_range own = part_of(collective, run, collective->member.rank);
    char *all = run->buffer;
    const bool by_parts = run->operation == LS_REDUCE_SCATTER || run->operation == LS_ALL_GATHER;
    if (by_parts && !has_equal_parts(collective, run))
        return put_parts(collective, run);
    switch (run->operation) {
    case LS_ALL_REDUCE:
        return calls->ncclAllReduce(all, all, run->count, type, reduction, comm, stream);
    case LS_REDUCE_SCATTER:
        return calls->ncclReduceScatter(all, at(run, own.offset), own.count, type, reduction, comm,
                                        stream);
    case LS_ALL_GATHER:
        return calls->ncclAllGather(at(run, own.offset), all, own.count, type, comm, stream);
    case LS_ALL_TO_ALL: return put_blocks(collective, run);
    case LS_BROADCAST:
        return calls->ncclBroadcast(all, all, run->count, type, (int)run->root, comm, stream);
    default:
        return calls->ncclReduce(all, all, run->count, type, reduction, (int)run->root, comm,
                                 stream);
    }
}

// Messages of NCCL are not in place, so the input of an all-to-all is copied.
static int32_t copy_input(const struct ls_collective *collective,
                          const struct ls_collective_run *run)
{
    const struct ls_collective_member *member = &collective->member;
    return member->ops->memory->copy(member->device, ls_host_memory(run->scratch),
                                     ls_host_memory(run->buffer),
                                     run->count * ls_dtype_bytes(run->dtype), member->stream);
}

// The mean of what this rank has the sum of.
static int32_t divide(const struct ls_collective *collective, const struct ls_collective_run *run)
{
    const struct ls_collective_member *member = &collective->member;
    const struct ls_range part = run->operation == LS_REDUCE_SCATTER
                                     ? part_of(collective, run, member->rank)
                                     : ls_data_range(0, run->count);
    const bool has_sum = run->operation == LS_ALL_REDUCE || run->operation == LS_REDUCE_SCATTER ||
                         (run->operation == LS_REDUCE && run->root == member->rank);
    const struct ls_device_reduction division = {
        .struct_size = sizeof(division),
        .dtype = run->dtype,
        .reduction = LS_SUM,
        .to = ls_host_memory(at(run, part.offset)),
        .count = part.count,
        .divisor = collective->family->world,
    };
    if (run->reduction != LS_MEAN || !has_sum || division.divisor == 1 || division.count == 0)
        return LS_OK;
    if (!LS_HAS(member->ops, peers) || !member->ops->peers)
        return ls_host_fail(collective->family->host, LS_UNSUPPORTED,
                            "the device cannot divide a sum, so there is no mean");
    return member->ops->peers->reduce(member->device, &division, member->stream);
}

static int32_t nccl_run(struct ls_collective *collective, const struct ls_collective_run *run)
{
    int32_t status = nccl_poll(collective);
    if (status || run->count == 0)
        return status;
    if (run->operation == LS_ALL_TO_ALL)
        status = copy_input(collective, run);
    if (!status)
        status = nccl_synchronize(collective, put(collective, run), names[run->operation]);
    return status ? status : divide(collective, run);
}

static void nccl_about(char *text, uint64_t bytes)
{
    char reason[400], version[24];
    const struct nccl_calls *calls = nccl_calls_get(reason, sizeof(reason));
    if (!calls) {
        snprintf(text, bytes, "no NCCL");
        return;
    }
    nccl_version_text(calls->version, version, sizeof(version));
    snprintf(text, bytes, "NCCL %s", version);
}

// ---- Tables ----

static const struct ls_plugin_option options[] = {
    {"algorithm", "one of: auto, ring, tree, nvls, nvls_tree", "auto",
     "how NCCL adds: auto leaves it to NCCL, the others are pinned by NCCL_ALGO"},
    {"protocol", "one of: auto, simple, ll, ll128", "auto",
     "how NCCL sends: auto leaves it to NCCL, the others are pinned by NCCL_PROTO"},
    {"ctas", "integer", "0",
     "at most so many thread blocks of a GPU; 0: NCCL chooses. Fewer leave more to the step"},
    {"policy", "one of: auto, efficiency", "auto",
     "efficiency: fewer thread blocks where registered memory allows it"},
    {"symmetric", "one of: auto, on, off", "auto",
     "gradients in memory that is registered at all GPUs; auto: where NCCL knows that (2.27)"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_collective_interface collective_interface = {
    .struct_size = sizeof(collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER |
                  1u << LS_BROADCAST | 1u << LS_REDUCE | 1u << LS_ALL_TO_ALL,
    .memory_kinds = 1u << LS_MEMORY_CUDA,
    .stream_families = 1u << LS_STREAM_CUDA,
    .scope = LS_SCOPE_NETWORK,
    .one_rank_a_device = 1,
    .capturable = 1,
    .state_bytes = sizeof(struct ls_collective),
    .open = nccl_open,
    .close = nccl_close,
    .run = nccl_run,
    .poll = nccl_poll,
    .abort = nccl_abort,
    .about = nccl_about,
    .allocate = nccl_allocate,
    .release = nccl_release,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "nccl",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "NVIDIA's NCCL between GPUs, one rank on each",
    .options = options,
    .probe = nccl_probe,
    .interface = &collective_interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
