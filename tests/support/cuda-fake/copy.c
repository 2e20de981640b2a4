// SPDX-License-Identifier: Apache-2.0
// Copies of the fake. Host memory must be pinned, as a GPU reads and writes no other by itself.
#include "tests/support/cuda-fake/fake.h"

#include <string.h>

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int value;
};

static void run_copy(const void *data)
{
    const struct copy *copy = data;
    memmove(copy->to, copy->from, copy->bytes);
}

static void run_set(const void *data)
{
    const struct copy *copy = data;
    memset(copy->to, copy->value, copy->bytes);
}

unsigned cudaMemcpyAsync(void *to, const void *from, size_t bytes, unsigned kind,
                         struct CUstream_st *stream)
{
    const struct copy copy = {
        .to = kind == cudaMemcpyDeviceToHost ? double_pinned(to) : double_reach_on(stream, to),
        .from =
            kind == cudaMemcpyHostToDevice ? double_pinned(from) : double_reach_on(stream, from),
        .bytes = bytes};
    return double_enqueue(stream, run_copy, &copy, sizeof(copy), 0);
}

// The real one copies without peer access, too, by way of the host: nobody means that here.
unsigned cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                             size_t bytes, struct CUstream_st *stream)
{
    const struct copy copy = {
        .to = double_reach_on(stream, to), .from = double_reach_on(stream, from), .bytes = bytes};
    if (to_device != double_owner(to) || from_device != double_owner(from))
        return 1; // cudaErrorInvalidValue
    return double_enqueue(stream, run_copy, &copy, sizeof(copy), 0);
}

unsigned cudaMemsetAsync(void *memory, int value, size_t bytes, struct CUstream_st *stream)
{
    const struct copy copy = {
        .to = double_reach_on(stream, memory), .bytes = bytes, .value = value};
    return double_enqueue(stream, run_set, &copy, sizeof(copy), 0);
}
