// SPDX-License-Identifier: Apache-2.0
// Names that users bring from other frameworks, and names of our own plugins that a build may lack:
// what to write instead, or what brings them.
#include "core/loader/internal.h"

#include "core/base/log.h"

#include <string.h>

#define STRATEGY (1u << LS_KIND_STRATEGY)
#define COLLECTIVE (1u << LS_KIND_COLLECTIVE)
#define TRANSPORT (1u << LS_KIND_TRANSPORT)
#define DEVICE (1u << LS_KIND_DEVICE)

#define INCOMPLETE                                                                             \
    "every build of Lockstep has it, so this installation is incomplete: build or install it " \
    "again, or name the folder of its plugins with --plugin-path"

const struct ls_hint ls_elsewhere[] = {
    {"DistributedDataParallel DDP DataParallel Horovod hvd DistributedOptimizer",
     "data-parallel training is `mirrored` here; the name of a collective, such as `ring`, means "
     "`mirrored` with that collective",
     STRATEGY},
    {"MirroredStrategy", "it is `mirrored` here", STRATEGY},
    {"MultiWorkerMirroredStrategy CollectiveAllReduceStrategy",
     "it is `multi-worker-mirrored` here", STRATEGY},
    {"CentralStorageStrategy", "it is `central-storage` here", STRATEGY},
    {"ParameterServerStrategy ParameterServerStrategyV2 PS",
     "it is `parameter-server` here; its servers are threads of this process, or processes: "
     "lockstep launch --servers=M",
     STRATEGY},
    {"OneDeviceStrategy default", "it is `one-device` here", STRATEGY},
    {"TPUStrategy", "it is `tpu` here: `mirrored` with collective `xla`, for --device=pjrt",
     STRATEGY},
    {"async asynchronous hogwild",
     "asynchronous training is `parameter-server`, whose default is mode=async", STRATEGY},
    {"sync synchronous",
     "`mirrored` is synchronous, and so is `parameter-server` with the option mode=sync", STRATEGY},
    {"ZeRO ZeroRedundancyOptimizer ZeRO-1",
     "it is `sharded` here, which spreads the states of the optimizer", STRATEGY},
    {"DeepSpeed ZeRO-2",
     "its stages are those of `sharded` here (stage=1, 2 or 3), which spread the states of the "
     "optimizer, "
     "gradients and parameters",
     STRATEGY},
    {"FSDP FSDP2 FullyShardedDataParallel ZeRO-3",
     "it is `sharded` with stage=3 here, which spreads parameters, gradients and the states of the "
     "optimizer",
     STRATEGY},
    {"pipeline tensor-parallel model-parallel",
     "not available: every replica holds all parameters; the nearest is `sharded`, which spreads "
     "the states of the optimizer",
     STRATEGY},
    {"Adasum",
     "not available; the nearest is `ring`: gradients are summed and divided by the number of "
     "examples",
     STRATEGY | COLLECTIVE},
    {"DeAR",
     "not available; the nearest is `mirrored`, whose all-reduce overlaps the backward pass only",
     STRATEGY},
    {"PostLocalSGD", "it is `local-sgd` here, with the option steps=H", STRATEGY},
    {"StreamingDiLoCo OpenDiLoCo hivemind torchft",
     "DiLoCo is `diloco` here; with the options fragments=F and delay=D it streams", STRATEGY},
    {"PowerSGD", "it is a filter here: --compress=powersgd", STRATEGY},
    {"NcclAllReduce", "it is `nccl` here, for --device=cuda", COLLECTIVE},
    {"HierarchicalCopyAllReduce", "it is `hierarchical-copy` here", COLLECTIVE},
    {"ReductionToOneDevice",
     "the nearest is the strategy `central-storage`, which adds gradients on the host", COLLECTIVE},
    {"all-reduce",
     "an all-reduce is named by its algorithm, such as `ring` or `tree`; `auto` measures which is "
     "fastest for each size",
     COLLECTIVE},
    {"rabenseifner recursive-halving-doubling recursive-doubling RHD bcube butterfly",
     "the nearest is `halving-doubling`", COLLECTIVE},
    {"binary-tree double-binary-tree double-tree", "it is `tree` here", COLLECTIVE},
    {"mesh 2d-torus 2d-ring", "the nearest is `torus`", COLLECTIVE},
    {"hierarchical",
     "`two-level` and `hierarchical-copy` reduce inside groups of ranks first, then between them",
     COLLECTIVE},
    {"RCCL oneCCL MSCCL",
     "not available; `nccl` is the only collective from a vendor's library, and `ring`, `tree` "
     "and others are Lockstep's own",
     COLLECTIVE},
    {"Gloo",
     "Gloo is not used; `ring` and `halving-doubling` are the collectives nearest to its own",
     COLLECTIVE | TRANSPORT},
    {"OpenMPI MPICH",
     "Open MPI is the collective `mpi`, for workers that mpirun starts; `ring` or any other "
     "collective works without it",
     COLLECTIVE | TRANSPORT},
    {"TCP sockets RDMA InfiniBand RoCE ibverbs verbs EFA",
     "UCX does that: transport `ucx` goes over InfiniBand, RoCE and TCP", TRANSPORT},
    {"GPU NVIDIA", "NVIDIA GPUs are `cuda`", DEVICE},
    {"ROCm HIP MPS Metal XPU",
     "not available; the devices are `cpu`, `cuda` (NVIDIA GPUs), `pjrt` (plugins of XLA) and "
     "`reference`",
     DEVICE},
    // Our own, where the file is missing.
    {"cpu",
     "it is built where oneDNN and OpenMP are found: install them (Debian: libdnnl-dev, gcc) and "
     "build again; -Dcpu=enabled makes their absence an error",
     DEVICE},
    {"cuda",
     "it is built where NVIDIA's nvcc, cuBLASLt and cuDNN are found: docs/gpu.md says how to get "
     "them; -Dcuda=enabled makes their absence an error",
     DEVICE},
    {"pjrt reference", INCOMPLETE, DEVICE},
    {"local shared-memory", INCOMPLETE, TRANSPORT},
    {"ucx",
     "it is built where the headers of UCX are found: install them (Debian: libucx-dev) and build "
     "again; -Ducx=enabled makes their absence an error",
     TRANSPORT},
    {"direct halving-doubling hierarchical-copy mpi nccl ring torus tree two-level xla", INCOMPLETE,
     COLLECTIVE},
    {"central-storage diloco local-sgd mirrored multi-worker-mirrored one-device parameter-server "
     "sharded",
     INCOMPLETE, STRATEGY},
    // Behind our collective `xla`.
    {"TPU XLA",
     "that is device `pjrt` with XLA's plugin, pjrt:plugin=FILE; a TPU has not been tried", DEVICE},
    {NULL, NULL, 0},
};

enum ls_status ls_loader_check_device_text(const char *text)
{
    const char *colon = strrchr(text, ':');
    if (!colon || !colon[1] || colon[1 + strspn(colon + 1, "0123456789")])
        return LS_OK;
    ls_error("--device",
             "'%s': expected the name of a device alone, such as cuda; replica i computes on GPU "
             "i, and CUDA_VISIBLE_DEVICES says which GPUs a program sees",
             text);
    return LS_USAGE;
}
