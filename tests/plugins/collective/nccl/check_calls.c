// SPDX-License-Identifier: Apache-2.0
// Our own declarations of NCCL's calls (calls_list.h) against NVIDIA's header: it compiles, or it says where they part.
#include <nccl.h>

#include <stddef.h>

#define NCCL_CALL(result, name, arguments)                                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name), __typeof__(result arguments)), \
                   #name " is declared otherwise");
#include "plugins/collective/nccl/calls_list.h"

#define NCCL_CONSTANT(name, value) \
    _Static_assert((long long)(name) == (value), #name " has another value");
#include "plugins/collective/nccl/calls_list.h"

// The structs that calls.h declares anew; it cannot be included beside NVIDIA's.
struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
};

#define SAME(member) \
    _Static_assert(offsetof(ncclConfig_t, member) == offsetof(struct config, member), #member)

SAME(size);
SAME(magic);
SAME(version);
SAME(blocking);
SAME(maxCTAs);
SAME(splitShare);
SAME(trafficClass);
SAME(CTAPolicy);
SAME(nvlsCTAs);
_Static_assert(NCCL_CONFIG_UNDEF_INT == INT_MIN, "undefined");
_Static_assert(sizeof(ncclConfig_t) >= sizeof(struct config), "config");
_Static_assert(sizeof(ncclUniqueId) == 128, "id");

int main(void)
{
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    return config.magic == 0xcafebeefu && config.version >= 22700 ? 0 : 1;
}
