// SPDX-License-Identifier: Apache-2.0
// Damages files in the ways that find mistakes of readers: bits, numbers at the edges of their
// range, pieces that are cut, doubled or moved. The same seed gives the same file, so that a
// failure can be had again.
#ifndef LS_TESTS_FUZZ_MUTATE_H
#define LS_TESTS_FUZZ_MUTATE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline uint64_t fuzz_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline size_t fuzz_below(uint64_t *state, size_t most)
{
    return most ? (size_t)(fuzz_random(state) % most) : 0;
}

static inline void fuzz_put_number(uint64_t *state, unsigned char *data, size_t bytes)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       7,
                                       8,
                                       127,
                                       128,
                                       255,
                                       256,
                                       65535,
                                       65536,
                                       INT32_MAX,
                                       UINT32_MAX,
                                       UINT64_C(1) << 32,
                                       UINT64_C(1) << 40,
                                       UINT64_C(1) << 60,
                                       INT64_MAX,
                                       UINT64_MAX,
                                       UINT64_MAX - 7};
    const uint64_t number = numbers[fuzz_below(state, sizeof(numbers) / sizeof(numbers[0]))];
    const size_t width = (size_t)1 << fuzz_below(state, 4);
    if (bytes >= width)
        memcpy(data + fuzz_below(state, bytes - width + 1), &number, width);
}

static inline void fuzz_move(uint64_t *state, unsigned char *data, size_t bytes)
{
    const size_t length = 1 + fuzz_below(state, bytes / 4);
    memmove(data + fuzz_below(state, bytes - length + 1),
            data + fuzz_below(state, bytes - length + 1), length);
}

// Damages `data` in place, in one to eight ways, and returns its new length, at most `bytes`.
static inline size_t fuzz_mutate(uint64_t *state, unsigned char *data, size_t bytes)
{
    const size_t ways = 1 + fuzz_below(state, 8);
    for (size_t i = 0; i < ways && bytes > 8; i++) {
        switch (fuzz_below(state, 8)) {
        case 0:
        case 1:
        case 2: data[fuzz_below(state, bytes)] ^= (unsigned char)(1 << fuzz_below(state, 8)); break;
        case 3: data[fuzz_below(state, bytes)] = (unsigned char)fuzz_random(state); break;
        case 4:
        case 5: fuzz_put_number(state, data, bytes); break;
        case 6: fuzz_move(state, data, bytes); break;
        default:
            if (fuzz_below(state, 4) == 0)
                bytes = 8 + fuzz_below(state, bytes - 8);
        }
    }
    return bytes;
}

// A whole file. NULL: it cannot be read, which is said.
static inline unsigned char *fuzz_load(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    unsigned char *data = malloc(1 << 20);
    *bytes = file && data ? fread(data, 1, 1 << 20, file) : 0;
    if (file)
        fclose(file);
    if (*bytes > 0)
        return data;
    fprintf(stderr, "%s: cannot be read\n", path);
    free(data);
    return NULL;
}

static inline double fuzz_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
