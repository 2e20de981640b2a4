// SPDX-License-Identifier: Apache-2.0
// NCCL as a table of calls, found with dlopen. Nothing of NVIDIA is needed to compile this.
#ifndef LS_COLLECTIVE_NCCL_CALLS_H
#define LS_COLLECTIVE_NCCL_CALLS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct ncclComm;
struct ncclWindow_vidmem;
struct CUstream_st;

typedef struct {
    char internal[128];
} ncclUniqueId;

// As it was in NCCL 2.27. Every later version fills in its own defaults for what came after the version that the struct names,
// and every earlier one passes over what it does not know.
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_CONFIG_VERSION 22700u
#define NCCL_CONFIG_UNDEF_INT INT_MIN
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
} ncclConfig_t;

enum {
    NCCL_LATER = 22700,
#define NCCL_CONSTANT(name, value) name = (value),
#include "plugins/collective/nccl/calls_list.h"
};

struct nccl_calls {
#define NCCL_CALL(result, name, arguments) result(*name) arguments;
#include "plugins/collective/nccl/calls_list.h"
    int version; // 22809: 2.28.9. Calls that came later (NCCL_LATER) are NULL
};

// Opens the library once in the process. NULL: `reason` says what is missing. [any thread]
const struct nccl_calls *nccl_calls_get(char *reason, size_t bytes);

// Whether there is a library to open, and a GPU to use it with. LS_OK, or LS_UNAVAILABLE with the reason, one line. Loads
// nothing of NCCL where its file is known.
int32_t nccl_probe(char *reason, uint64_t bytes);

#endif
