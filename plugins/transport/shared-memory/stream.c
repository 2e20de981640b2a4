// SPDX-License-Identifier: Apache-2.0
// Copies of messages. What one core has just written is read by another one line by line out of its
// caches, which is fast where the two share a cache, and slow where they do not; and what is
// written into caches is read from memory first. Past the caches, both cores have streams. Nobody
// can tell which it is, and it changes as a machine is shared: so both ways are measured, of long
// messages, and now and then the other one is tried.
#include "plugins/transport/shared-memory/shared_memory.h"

#include <string.h>

#define LONG_BYTES (UINT64_C(512) << 10) // under way
#define LONGER_BYTES (UINT64_C(8) << 20) // more than caches hold
#define LEAST_PAUSE 2 // messages; the first ones touch new memory, and say little
#define MOST_PAUSE 256
#define MOST_NS UINT64_C(1000000000) // that a message is believed to take
#define MIB (UINT64_C(1) << 20)

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

void shm_copy(void *to, const void *from, uint64_t bytes, bool past_caches)
{
    if (past_caches)
        copy_past_caches(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

bool shm_is_long(const struct ls_transport *transport)
{
    return transport->under_way >= LONG_BYTES;
}

enum shm_copies shm_choose_copies(const struct ls_transport *transport, uint32_t destination,
                                  uint64_t bytes)
{
    if (!shm_is_long(transport))
        return SHM_SHORT;
    struct shm_pair *pair = &transport->shared->inboxes[destination][transport->index];
    const uint32_t size = bytes >= LONGER_BYTES;
    const uint32_t best = atomic_load_explicit(&pair->sizes[size].best, memory_order_relaxed);
    const bool tries = pair->sizes[size].count++ == pair->sizes[size].next;
    if (tries) {
        const uint32_t pause = pair->sizes[size].pause;
        pair->sizes[size].pause = pause < LEAST_PAUSE  ? LEAST_PAUSE
                                  : pause < MOST_PAUSE ? 2 * pause
                                                       : MOST_PAUSE;
        pair->sizes[size].next += pair->sizes[size].pause;
    }
    return (best == SHM_CACHED) != tries ? SHM_CACHED : SHM_PAST;
}

// One that was long in coming, because a core had something else to do, counts little.
void shm_note_copies(const struct ls_transport *transport, const struct ls_transfer *transfer)
{
    const struct shm_slot *slot = SHM_RECEIVE_SLOT(transfer);
    const uint32_t copies = slot->copies;
    if (copies != SHM_CACHED && copies != SHM_PAST)
        return;
    struct shm_pair *pair = &transport->shared->inboxes[transport->index][transfer->source];
    const uint64_t bytes = shm_bytes_of(transfer);
    const uint32_t size = bytes >= LONGER_BYTES, way = copies - SHM_CACHED;
    uint32_t *ns = pair->sizes[size].ns;
    uint64_t both = atomic_load_explicit(&slot->copied_ns, memory_order_relaxed) + slot->taken_ns;
    both = both < MOST_NS ? both * MIB / bytes : MOST_NS;
    if (ns[way] && both > 2 * (uint64_t)ns[way])
        both = 2 * (uint64_t)ns[way];
    const uint64_t old = both < ns[way] ? both : ns[way]; // a better one is believed sooner
    ns[way] = (uint32_t)(ns[way] ? (2 * old + ns[way] + both) / 4 : both);
    if (ns[0] && ns[1])
        atomic_store_explicit(&pair->sizes[size].best, ns[0] < ns[1] ? SHM_CACHED : SHM_PAST,
                              memory_order_relaxed);
}
