// SPDX-License-Identifier: Apache-2.0 Copies of messages. What one core has just written is slow to
// read for another one, line by line out of its caches, and what is written into caches is read
// from memory first. Long messages are written into memory, past the caches, from which the other
// core reads in a stream.
#include "plugins/transport/shared-memory/shared_memory.h"

#include <string.h>

// So much under way is long. Where two cores share a cache, 1 MiB would be faster through it (by a
// third), and where they do not, five times slower; nobody can tell which it is, and it changes as
// a machine is shared.
#define LONG_BYTES (UINT64_C(512) << 10)

#if defined(__x86_64__)

#include <emmintrin.h>

#define LINE 64 // bytes; what is written past the caches is written in whole lines

static void copy_past_caches(void *to, const void *from, uint64_t bytes)
{
    char *out = to;
    const char *in = from;
    const uint64_t head = (uint64_t)(-(uintptr_t)out % LINE);
    if (bytes < 4 * LINE) {
        memcpy(out, in, bytes);
        return;
    }
    memcpy(out, in, head);
    uint64_t at = head;
    for (; at + LINE <= bytes; at += LINE) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(in + at)),
                      b = _mm_loadu_si128((const __m128i *)(const void *)(in + at + 16)),
                      c = _mm_loadu_si128((const __m128i *)(const void *)(in + at + 32)),
                      d = _mm_loadu_si128((const __m128i *)(const void *)(in + at + 48));
        _mm_stream_si128((__m128i *)(void *)(out + at), a);
        _mm_stream_si128((__m128i *)(void *)(out + at + 16), b);
        _mm_stream_si128((__m128i *)(void *)(out + at + 32), c);
        _mm_stream_si128((__m128i *)(void *)(out + at + 48), d);
    }
    memcpy(out + at, in + at, bytes - at);
    _mm_sfence(); // before others are told
}

#else

static void copy_past_caches(void *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
}

#endif

void shm_copy(const struct ls_transport *transport, void *to, const void *from, uint64_t bytes)
{
    if (transport->under_way >= LONG_BYTES)
        copy_past_caches(to, from, bytes);
    else
        memcpy(to, from, bytes);
}
