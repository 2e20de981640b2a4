// SPDX-License-Identifier: Apache-2.0
// The calls and constants of NCCL that the plugin uses, with our own declarations: what is written here and in calls.h is all
// that its C code needs to be compiled. A test compares each with NVIDIA's header where that is found. Enumerations are
// unsigned int here, as gcc has them.
//
// Whoever includes this defines NCCL_CALL(result, name, arguments) or NCCL_CONSTANT(name, value), and may define
// NCCL_LATER_CALL(since, result, name, arguments) for calls that are in version `since` and newer.

#ifdef NCCL_CALL
#ifndef NCCL_LATER_CALL
#define NCCL_LATER_CALL(since, result, name, arguments) NCCL_CALL(result, name, arguments)
#endif
NCCL_CALL(unsigned, ncclGetVersion, (int *version))
NCCL_CALL(unsigned, ncclGetUniqueId, (ncclUniqueId * id))
NCCL_CALL(unsigned, ncclCommInitRankConfig,
          (struct ncclComm * *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config))
NCCL_CALL(unsigned, ncclCommGetAsyncError, (struct ncclComm * comm, unsigned *state))
NCCL_CALL(unsigned, ncclCommFinalize, (struct ncclComm * comm))
NCCL_CALL(unsigned, ncclCommDestroy, (struct ncclComm * comm))
NCCL_CALL(unsigned, ncclCommAbort, (struct ncclComm * comm))
NCCL_CALL(const char *, ncclGetErrorString, (unsigned error))
NCCL_CALL(const char *, ncclGetLastError, (struct ncclComm * comm))
NCCL_CALL(unsigned, ncclGroupStart, (void))
NCCL_CALL(unsigned, ncclGroupEnd, (void))
NCCL_CALL(unsigned, ncclAllReduce,
          (const void *from, void *to, size_t count, unsigned type, unsigned reduction,
           struct ncclComm *comm, struct CUstream_st *stream))
NCCL_CALL(unsigned, ncclReduceScatter,
          (const void *from, void *to, size_t count, unsigned type, unsigned reduction,
           struct ncclComm *comm, struct CUstream_st *stream))
NCCL_CALL(unsigned, ncclAllGather,
          (const void *from, void *to, size_t count, unsigned type, struct ncclComm *comm,
           struct CUstream_st *stream))
NCCL_CALL(unsigned, ncclBroadcast,
          (const void *from, void *to, size_t count, unsigned type, int root, struct ncclComm *comm,
           struct CUstream_st *stream))
NCCL_CALL(unsigned, ncclReduce,
          (const void *from, void *to, size_t count, unsigned type, unsigned reduction, int root,
           struct ncclComm *comm, struct CUstream_st *stream))
NCCL_CALL(unsigned, ncclSend,
          (const void *from, size_t count, unsigned type, int peer, struct ncclComm *comm,
           struct CUstream_st *stream))
NCCL_CALL(unsigned, ncclRecv,
          (void *to, size_t count, unsigned type, int peer, struct ncclComm *comm,
           struct CUstream_st *stream))
NCCL_LATER_CALL(NCCL_LATER, unsigned, ncclMemAlloc, (void **memory, size_t bytes))
NCCL_LATER_CALL(NCCL_LATER, unsigned, ncclMemFree, (void *memory))
NCCL_LATER_CALL(NCCL_LATER, unsigned, ncclCommWindowRegister,
                (struct ncclComm * comm, void *memory, size_t bytes,
                 struct ncclWindow_vidmem **window, int flags))
NCCL_LATER_CALL(NCCL_LATER, unsigned, ncclCommWindowDeregister,
                (struct ncclComm * comm, struct ncclWindow_vidmem *window))
#undef NCCL_LATER_CALL
#undef NCCL_CALL
#endif

#ifdef NCCL_CONSTANT
NCCL_CONSTANT(ncclSuccess, 0)
NCCL_CONSTANT(ncclUnhandledCudaError, 1)
NCCL_CONSTANT(ncclInvalidArgument, 4)
NCCL_CONSTANT(ncclInvalidUsage, 5)
NCCL_CONSTANT(ncclRemoteError, 6)
NCCL_CONSTANT(ncclInProgress, 7)
NCCL_CONSTANT(ncclSum, 0)
NCCL_CONSTANT(ncclProd, 1)
NCCL_CONSTANT(ncclMax, 2)
NCCL_CONSTANT(ncclMin, 3)
NCCL_CONSTANT(ncclUint8, 1)
NCCL_CONSTANT(ncclInt32, 2)
NCCL_CONSTANT(ncclInt64, 4)
NCCL_CONSTANT(ncclFloat16, 6)
NCCL_CONSTANT(ncclFloat32, 7)
NCCL_CONSTANT(ncclFloat64, 8)
NCCL_CONSTANT(ncclBfloat16, 9)
NCCL_CONSTANT(NCCL_WIN_COLL_SYMMETRIC, 1)
NCCL_CONSTANT(NCCL_CTA_POLICY_EFFICIENCY, 1)
#undef NCCL_CONSTANT
#endif
