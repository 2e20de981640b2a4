// SPDX-License-Identifier: Apache-2.0
// Inputs whose results are exact in every type, and the verdict on what came out.
#include "tools/conformance/collective/suite.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64 // elements on both sides of a buffer that must stay as they are
#define BLOCK 256 // elements that are compared at a time

// ---- Values ----

// Small whole numbers are exact in every type.
static void encode(void *memory, uint64_t index, uint32_t dtype, int32_t value)
{
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    switch (dtype) {
    case LS_F32: ((float *)memory)[index] = single; break;
    case LS_F64: ((double *)memory)[index] = value; break;
    case LS_F16: // same sign, exponent moved from bias 127 to 15, ten bits of mantissa
        ((uint16_t *)memory)[index] =
            (uint16_t)(value ? (bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - 0x38000000) >> 13
                             : 0);
        break;
    case LS_BF16: ((uint16_t *)memory)[index] = (uint16_t)(bits >> 16); break;
    case LS_I32: ((int32_t *)memory)[index] = value; break;
    case LS_I64: ((int64_t *)memory)[index] = value; break;
    default: ((uint8_t *)memory)[index] = (uint8_t)value; break;
    }
}

// Each rank draws for all ranks, so this is what a check spends its time on: two multiplications
// mix enough for numbers that only have to differ from element to element, rank to rank and run to run.
static uint32_t draw(uint64_t run, uint64_t index, uint32_t bound)
{
    uint64_t bits =
        (index + 1) * UINT64_C(0x9e3779b97f4a7c15) + (run + 1) * UINT64_C(0xd1342543de82ef95);
    bits = (bits ^ bits >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)((bits >> 32) * bound >> 32);
}

// What rank `rank` contributes to element `index` in run `run`. Sums stay below 256, products below 2^7, means
// are whole; unsigned types get nothing negative.
static int32_t contribution(const struct ls_collective_case *trial, uint64_t run, uint32_t rank,
                            uint64_t index)
{
    const int32_t lowest = trial->dtype == LS_U8 ? 0 : -5;
    const uint32_t world = trial->world;
    if (trial->reduction == LS_PRODUCT)
        return (rank + index + run) % 3 == 0 ? (rank % 3 == 0 ? 2 : 1)
                                             : (lowest && (rank + index) % 2 ? -1 : 1);
    if (trial->reduction == LS_MEAN)
        return (int32_t)draw(run, index, 6) + (rank == index % world ? (int32_t)world : 0);
    return lowest + (int32_t)draw(run + rank * 1000, index, 11);
}

static int32_t combined(const struct ls_collective_case *trial, uint64_t run, uint64_t index)
{
    int32_t value = contribution(trial, run, 0, index);
    for (uint32_t rank = 1; rank < trial->world; rank++) {
        const int32_t other = contribution(trial, run, rank, index);
        switch (trial->reduction) {
        case LS_PRODUCT: value *= other; break;
        case LS_MIN: value = other < value ? other : value; break;
        case LS_MAX: value = other > value ? other : value; break;
        default: value += other; break;
        }
    }
    return trial->reduction == LS_MEAN ? value / (int32_t)trial->world : value;
}

// ---- Buffers ----

bool ls_conformance_buffer_init(struct ls_collective_rank *rank,
                                struct ls_collective_buffer *buffer, uint64_t count,
                                uint64_t offset, uint32_t dtype)
{
    void *memory = NULL;
    *buffer = (struct ls_collective_buffer){0};
    buffer->element_bytes = ls_dtype_bytes(dtype);
    buffer->count = count;
    buffer->offset = offset;
    const uint64_t bytes = (count + 2 * GUARD + offset) * buffer->element_bytes;
    if (!posix_memalign(&memory, 64, bytes))
        memset(memory, 0xa5, bytes);
    else
        memory = NULL;
    buffer->memory = memory;
    if (!memory || ls_conformance_image_init(&buffer->image, &rank->suite->devices, rank->number,
                                             memory, bytes)) {
        ls_conformance_blame(rank, "rank %u: no memory for %" PRIu64 " elements", rank->number,
                             count);
        ls_communicator_abort(rank->communicator);
        ls_conformance_buffer_finish(buffer);
        return false;
    }
    buffer->data = buffer->memory + (GUARD + offset) * buffer->element_bytes;
    return true;
}

void ls_conformance_buffer_finish(struct ls_collective_buffer *buffer)
{
    ls_conformance_image_finish(&buffer->image);
    free(buffer->memory);
    *buffer = (struct ls_collective_buffer){0};
}

static bool guards_hold(const struct ls_collective_buffer *buffer)
{
    const uint64_t before = (GUARD + buffer->offset) * buffer->element_bytes;
    const uint64_t after = before + buffer->count * buffer->element_bytes;
    for (uint64_t i = 0; i < before; i++)
        if ((unsigned char)buffer->memory[i] != 0xa5)
            return false;
    for (uint64_t i = after; i < after + GUARD * buffer->element_bytes; i++)
        if ((unsigned char)buffer->memory[i] != 0xa5)
            return false;
    return true;
}

// ---- Judging ----

void ls_conformance_blame(struct ls_collective_rank *rank, const char *format, ...)
{
    va_list list;
    if (rank->message[0])
        return; // the first finding counts
    va_start(list, format);
    vsnprintf(rank->message, sizeof(rank->message), format, list);
    va_end(list);
}

// The part of the buffer in which the operation promises something to this rank.
static struct ls_range result_range(const struct ls_collective_rank *rank, uint64_t count,
                                    uint32_t root)
{
    const struct ls_collective_call call = {.world = rank->trial->world, .count = count};
    if (rank->trial->operation == LS_REDUCE_SCATTER)
        return ls_chunk(&call, rank->number);
    if (rank->trial->operation == LS_REDUCE && rank->number != root)
        return ls_data_range(0, 0);
    return ls_data_range(0, count);
}

static uint32_t part_owner(uint64_t count, uint32_t world, uint64_t index)
{
    const struct ls_collective_call call = {.world = world, .count = count};
    for (uint32_t i = 0; i < world; i++) {
        const struct ls_range part = ls_chunk(&call, i);
        if (index >= part.offset && index < part.offset + part.count)
            return i;
    }
    return 0;
}

// What element `index` of rank `rank` must be after the operation, where it promises anything.
static int32_t result(const struct ls_collective_case *trial, uint64_t run, uint32_t rank,
                      uint32_t root, uint64_t count, uint64_t index)
{
    const uint64_t each = count / trial->world; // of an all-to-all
    if (trial->operation == LS_ALL_TO_ALL)
        return contribution(trial, run, (uint32_t)(index / each), rank * each + index % each);
    if (trial->operation == LS_BROADCAST)
        return contribution(trial, run, root, index);
    if (trial->operation == LS_ALL_GATHER)
        return contribution(trial, run, part_owner(count, trial->world, index), index);
    return combined(trial, run, index);
}

void ls_conformance_fill(const struct ls_collective_rank *rank, struct ls_collective_buffer *buffer,
                         uint64_t run)
{
    for (uint64_t i = 0; i < buffer->count; i++)
        encode(buffer->data, i, rank->trial->dtype,
               contribution(rank->trial, run, rank->number, i));
}

void ls_conformance_judge(struct ls_collective_rank *rank,
                          const struct ls_collective_buffer *buffer, uint64_t run, uint32_t root)
{
    const struct ls_collective_case *trial = rank->trial;
    const struct ls_range range = result_range(rank, buffer->count, root);
    const uint64_t bytes = buffer->element_bytes;
    for (uint64_t first = range.offset, n; first < range.offset + range.count; first += n) {
        const uint64_t left = range.offset + range.count - first;
        uint64_t expected[BLOCK]; // of the largest type
        n = left < BLOCK ? left : BLOCK;
        for (uint64_t i = 0; i < n; i++)
            encode(expected, i, trial->dtype,
                   result(trial, run, rank->number, root, buffer->count, first + i));
        const char *found = (char *)buffer->data + first * bytes;
        if (memcmp(expected, found, n * bytes) == 0)
            continue;
        uint64_t i = 0;
        while (memcmp((char *)expected + i * bytes, found + i * bytes, bytes) == 0)
            i++;
        ls_conformance_blame(rank,
                             "rank %u: element %" PRIu64 " of %" PRIu64
                             " is not %d (root %u, offset %" PRIu64 ", run %" PRIu64 ")",
                             rank->number, first + i, buffer->count,
                             result(trial, run, rank->number, root, buffer->count, first + i), root,
                             buffer->offset, run);
        return;
    }
    if (!guards_hold(buffer))
        ls_conformance_blame(rank, "rank %u: memory outside a buffer of %" PRIu64 " was written",
                             rank->number, buffer->count);
}

void ls_conformance_expect_ok(struct ls_collective_rank *rank, enum ls_status status,
                              const char *what)
{
    if (status)
        ls_conformance_blame(rank, "rank %u: %s: %s", rank->number, what, ls_status_text(status));
}
