// SPDX-License-Identifier: Apache-2.0
// Memory that other processes may map: ordinary memory before the segment is opened, one sealed file afterwards.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // F_GET_SEALS
#endif
#include "core/base/random.h"
#include "core/base/shared_memory.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 40
#define TURNS 4000

static bool is_inside(const void *memory)
{
    struct ls_segment segment;
    return ls_segment_get(&segment) && (const char *)memory >= (const char *)segment.base &&
           (const char *)memory < (const char *)segment.base + segment.bytes;
}

TEST(memory_is_ordinary_until_the_segment_is_opened)
{
    struct ls_segment segment;
    ck_assert(!ls_segment_get(&segment));
    char *before = ls_segment_allocate(100000, 64);
    ck_assert_ptr_nonnull(before);
    memset(before, 7, 100000);
    ck_assert_int_eq(ls_segment_open(), LS_OK);
    ck_assert(!is_inside(before));
    ck_assert_int_eq(before[99999], 7);
    ls_segment_free(before);
    ls_segment_free(NULL);
}

TEST(what_is_written_is_in_the_file_which_cannot_be_cut_off)
{
    struct ls_segment segment;
    ck_assert_int_eq(ls_segment_open(), LS_OK);
    ck_assert_int_eq(ls_segment_open(), LS_OK);
    ck_assert(ls_segment_get(&segment));
    char *memory = ls_segment_allocate(10000, 64);
    ck_assert(is_inside(memory));
    memset(memory, 9, 10000);
    char *other = mmap(NULL, segment.bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, segment.fd, 0);
    ck_assert_ptr_ne(other, MAP_FAILED);
    ck_assert_int_eq(memcmp(other + (memory - (char *)segment.base), memory, 10000), 0);
    ck_assert_int_eq(ftruncate(segment.fd, 4096), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_ne(fcntl(segment.fd, F_GET_SEALS) & F_SEAL_SHRINK, 0);
    ls_segment_free(memory);
    ck_assert_int_eq(other[memory - (char *)segment.base], 0); // its pages were given back
    munmap(other, segment.bytes);
}

TEST(small_blocks_and_other_alignments_are_served_too)
{
    ck_assert_int_eq(ls_segment_open(), LS_OK);
    void *small = ls_segment_allocate(LS_SEGMENT_LEAST_BYTES - 1, 128);
    ck_assert(!is_inside(small));
    ck_assert_uint_eq((uintptr_t)small % 128, 0);
    void *wide = ls_segment_allocate(5000, 65536);
    ck_assert(is_inside(wide));
    ck_assert_uint_eq((uintptr_t)wide % 65536, 0);
    ck_assert_ptr_null(ls_segment_allocate(5000, 48));
    ck_assert_ptr_null(ls_segment_allocate(SIZE_MAX / 2 + 2, 64));
    ls_segment_free(small);
    ls_segment_free(wide);
}

// Blocks of random sizes come and go; none ever touches another, and the room of those that went is used again: in all, more is
// allocated than the segment has.
TEST(blocks_do_not_overlap_and_are_used_again)
{
    unsigned char *blocks[BLOCKS] = {NULL};
    size_t sizes[BLOCKS] = {0};
    ck_assert_int_eq(ls_segment_open(), LS_OK);
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        const uint32_t i = (uint32_t)(ls_random_u64(1, turn) % BLOCKS);
        if (blocks[i]) {
            for (size_t k = 0; k < sizes[i]; k += 1021)
                ck_assert_uint_eq(blocks[i][k], i + 1);
            ck_assert_uint_eq(blocks[i][sizes[i] - 1], i + 1);
            ls_segment_free(blocks[i]);
            blocks[i] = NULL;
            continue;
        }
        sizes[i] = 4096 + ls_random_u64(2, turn) % 100000;
        blocks[i] = ls_segment_allocate(sizes[i], 64);
        ck_assert(is_inside(blocks[i]));
        memset(blocks[i], (int)i + 1, sizes[i]);
    }
    for (uint32_t i = 0; i < BLOCKS; i++)
        ls_segment_free(blocks[i]);
    struct ls_segment segment;
    ck_assert(ls_segment_get(&segment));
    for (uint32_t i = 0; i < 200; i++) { // not written: no memory is taken
        void *large = ls_segment_allocate(segment.bytes / 3, 64);
        ck_assert(is_inside(large));
        ls_segment_free(large);
    }
}

// A child shares the pages: what it allocates must not be memory of its parent, and what it frees not be taken from it.
TEST(a_child_leaves_the_memory_of_its_parent_alone)
{
    struct ls_segment segment;
    int status = -1;
    ck_assert_int_eq(ls_segment_open(), LS_OK);
    char *before = ls_segment_allocate(10000, 64);
    memset(before, 5, 10000);
    const pid_t child = fork();
    if (child == 0) {
        char *own = ls_segment_allocate(10000, 64);
        const bool apart = own && !is_inside(own) && !ls_segment_get(&segment) &&
                           ls_segment_open() == LS_UNAVAILABLE;
        ls_segment_free(own);
        ls_segment_free(before);
        _exit(apart ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(before[9999], 5);
    ck_assert(is_inside(before));
    ls_segment_free(before);
}

static void limit_files(uint64_t bytes)
{
    struct rlimit most;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &most), 0);
    most.rlim_cur = bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &most), 0);
}

// Beyond the limit the system would end the process.
TEST(a_limit_of_file_sizes_is_kept)
{
    struct ls_segment segment;
    limit_files(UINT64_C(3) << 30);
    ck_assert_int_eq(ls_segment_open(), LS_OK);
    ck_assert(ls_segment_get(&segment));
    ck_assert_uint_eq(segment.bytes, UINT64_C(2) << 30);
}

TEST(without_room_for_a_segment_all_memory_is_ordinary)
{
    struct ls_segment segment;
    limit_files(4096);
    ck_assert_int_eq(ls_segment_open(), LS_UNAVAILABLE);
    ck_assert(!ls_segment_get(&segment));
    void *memory = ls_segment_allocate(100000, 64);
    ck_assert_ptr_nonnull(memory);
    ls_segment_free(memory);
}
