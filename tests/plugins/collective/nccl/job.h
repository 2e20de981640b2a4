// SPDX-License-Identifier: Apache-2.0
// Ranks of collective `nccl` on the fakes: NEITHER NCCL NOR A GPU. One thread, one device and one stream a rank.
#ifndef LS_TESTS_NCCL_JOB_H
#define LS_TESTS_NCCL_JOB_H

#include "core/plugin/collective.h"
#include "core/plugin/device.h"
#include "tests/support/nccl-fake/fake.h"
#include "tests/support/plugin.h"

#include <pthread.h>
#include <stdbool.h>

enum { MOST_RANKS = 4 };

struct job;

struct rank {
    struct job *job;
    uint32_t number;
    struct ls_device *device;
    void *stream;
    struct ls_collective *collective;
    pthread_t thread;
    int32_t status; // what the body ended with
    char message[256]; // what it found wrong; "": nothing
};

struct job {
    uint32_t world;
    struct rank ranks[MOST_RANKS];
    uint64_t deadline_ns;
    // Stands for other processes: changes what all ranks said before it is handed on. NULL: there are none.
    void (*others)(void *all, uint64_t bytes);
    uint32_t absent; // ranks, the last ones, that are of another process
    const char *algorithm, *protocol; // options; NULL: the default
    struct test_host host; // of the collective
    int failures; // how often it said why something failed
    char said[512]; // the first
    char noted[256]; // the last line for --verbose
    bool symmetric; // bodies take memory of the collective
};

extern const struct ls_plugin *job_device_plugin, *job_plugin;
extern const struct ls_device_interface *job_ops;
extern const struct ls_collective_interface *job_nccl;

// Opens both plugins; false: SKIP was printed.
bool job_load(void);

// A job of `world` ranks, rank i on gpus[i] (NULL: GPU i), with a deadline of 20 s; devices and streams are open.
void job_init(struct job *job, uint32_t world, const uint32_t *gpus);
// Opens the collective on all ranks.
int32_t job_open(struct job *job);
// Runs `body` on a thread for each rank; asserts that none found anything wrong.
void job_run(struct job *job, int32_t (*body)(struct rank *rank));
// Closes everything; asserts that nothing is left in the fakes.
void job_finish(struct job *job);

// Memory of the collective where the job is symmetric, else of the device; NULL: there is none.
void *rank_allocate(struct rank *rank, uint64_t bytes);
void rank_release(struct rank *rank, void *memory);
// An operation in place on memory of the GPU.
int32_t rank_run(struct rank *rank, uint32_t operation, void *buffer, uint64_t count);
// Until the stream is done with everything, or the collective says that it never will be.
int32_t rank_wait(struct rank *rank);
__attribute__((format(printf, 2, 3))) int32_t rank_blame(struct rank *rank, const char *format,
                                                         ...);

#endif
