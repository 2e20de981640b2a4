// SPDX-License-Identifier: Apache-2.0
// A fake of what device `cuda` calls of NVIDIA's libraries: on host memory, with plain loops, and with kernels.cu compiled for the
// CPU. THIS IS NOT A GPU: it shows what the host code and the source of the kernels do, and nothing about what nvcc makes of that,
// cuBLASLt, cuDNN or speed. Never installed.
//
// What makes mistakes show:
// - Memory of the "GPU" has no access rights under the addresses that are handed out; only the fake itself reads it, at
//   another address. Host code that touches it dies. A host address given to the GPU ends the process with a line.
// - Work is done later: by a thread of the stream, with pauses (CUDA_FAKE_STREAMS=thread, the default), or not at all until
//   somebody asks whether it is done, and then only at the second question (deferred), with what it waits for on other streams.
//   random:SEED: a question runs some pieces of work, each the first of any stream of any GPU that may run.
// - A recording is replayed in an order of its own, which keeps only what events and streams have fixed; random:SEED: in another
//   such order each time.
// - A wait for a whole GPU (freeing memory or a library's handle) spoils what any thread records on that GPU.
// - Work that touches memory of another GPU without peer access, and copies from host memory that is not pinned, end the process.
// - Each allocation lies between zones whose bytes are 0xff (NaN): who has written there ends the process when it is freed, and
//   under AddressSanitizer who reads there, too.
// - Fresh memory and shared memory are full of 0xff (NaN). A grid of kernels.cu has few blocks, which take several turns.
//   CUDA_FAKE_THREADS is the order of blocks, and of threads between two barriers: backward (the default), forward or random:SEED.
// CUDA_FAKE_DEVICES (1; 0: none) is the number of GPUs, and CUDA_FAKE_FIRST (0) which of the host's is the first of them: as
// CUDA_VISIBLE_DEVICES does, it gives processes GPUs of their own.
// Other variables make it fail: CUDA_FAKE_VERSION (of the driver, 13000),
// CUDA_FAKE_CAPABILITY (90), CUDA_FAKE_MULTIPROCESSORS (132), CUDA_FAKE_INIT (what cuInit answers), CUDA_FAKE_MEMORY (bytes of a GPU),
// CUDA_FAKE_FORKED (1: a forked child of a process that uses the driver may use it, too, because
// tests are such children; NVIDIA's driver refuses it),
// CUDA_FAKE_PINNED (bytes of pinned memory), CUDA_FAKE_FAIL (the so-many-th kernel fails), CUDA_FAKE_ERROR (how, 719), CUDA_FAKE_HANG (it never ends),
// CUDA_FAKE_NO_BLAS, CUDA_FAKE_NO_EPILOGUE, CUDA_FAKE_NO_CUDNN, CUDA_FAKE_NO_FUSED (1: the library knows none),
// CUDA_FAKE_REFUSE (1: the libraries say that they can, and refuse when they are called),
// CUDA_FAKE_NO_PEERS (1: no GPU reaches another), CUDA_FAKE_NO_HALVES (1: both libraries know float32 only),
// CUDA_FAKE_LACKS (an operation, by name, that device `cuda` is to lack).
// CUDA_FAKE_SLOW_ENGINE (the engine of cuDNN with this number takes milliseconds more; dnn_graph.c).
// CUDA_FAKE_GRAPHS names a file that gets a line for each recording: its kernels, and those on the longest way through it.
// CUDA_FAKE_ENGINES names a file that gets a line for each engine of cuDNN that is handed over: its number.
// CUDA_FAKE_CONVOLUTIONS names a file that gets a line for each convolution that cuDNN is asked for and knows.
#ifndef LS_TESTS_CUDA_FAKE_H
#define LS_TESTS_CUDA_FAKE_H

#include "plugins/device/cuda/engine/calls.h"
#include "plugins/device/cuda/engine/kernels.h"

#define DOUBLE_EXPORT __attribute__((visibility("default")))

// A number from the environment.
DOUBLE_EXPORT long long double_setting(const char *name, long long otherwise);

// Work on a stream; `data` is copied. Counted as a kernel when `kernel` is 1. 0 or an error of the runtime.
typedef void (*double_work)(const void *data);
DOUBLE_EXPORT unsigned double_enqueue(struct CUstream_st *stream, double_work work,
                                      const void *data, size_t bytes, int kernel);

// The same, but the work begins only once `ready` answers 1, which is asked under the lock of all streams and must be short.
// When it answers 0, `first` may name a stream whose work has to come first. Whoever changes what it looks at outside of
// work on a stream calls double_wake() then.
typedef int (*double_ready)(const void *data, struct CUstream_st **first);
DOUBLE_EXPORT unsigned double_enqueue_when(struct CUstream_st *stream, double_ready ready,
                                           double_work work, const void *data, size_t bytes);
DOUBLE_EXPORT void double_wake(void);

// Where the fake itself finds memory of a GPU; NULL stays NULL. Ends the process for an address that is none, and (_on) for
// memory of a GPU that the stream's does not reach: peer access was not enabled.
DOUBLE_EXPORT void *double_reach(const void *memory);
DOUBLE_EXPORT void *double_reach_on(const struct CUstream_st *stream, const void *memory);
// Ends the process for host memory that is not pinned.
void *double_pinned(const void *memory);

// GPUs: of a stream, of memory, of the calling thread; whether one reads the memory of another.
DOUBLE_EXPORT int double_device_of(const struct CUstream_st *stream);
DOUBLE_EXPORT int double_priority_of(const struct CUstream_st *stream);
int double_owner(const void *memory);
DOUBLE_EXPORT int double_current(void);
// The calling thread waits for all work of its GPU, which spoils what any thread records there.
void double_device_waits(void);
int double_sees(int device, int other);

// The number of the recording that the stream belongs to, another for each; 0: none.
DOUBLE_EXPORT uint64_t double_recording_of(const struct CUstream_st *stream);

// Whether the calling thread records.
DOUBLE_EXPORT int double_is_recorded(void);

// What is in use; for tests.
struct double_counts {
    uint64_t blocks, pinned, streams, events, descriptors, handles, graphs;
};
DOUBLE_EXPORT void double_count(struct double_counts *out);
extern struct double_counts double_live; // under no lock: changed with __atomic_* only

// What the host has handed over so far: kernels one by one (not those that it recorded), and recordings. For tests.
struct double_work_counts {
    uint64_t kernels, replays;
};
DOUBLE_EXPORT void double_count_work(struct double_work_counts *out);
extern struct double_work_counts double_handed; // changed as double_live

static inline void double_add(uint64_t *count, int more)
{
    __atomic_add_fetch(count, (uint64_t)(int64_t)more, __ATOMIC_RELAXED);
}

// All calls, so that each definition is compared with the declarations of the plugin.
#define CUDA_CALL(library, result, name, arguments) DOUBLE_EXPORT result name arguments;
#include "plugins/device/cuda/engine/calls_list.h"

#endif
