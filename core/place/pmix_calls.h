// SPDX-License-Identifier: Apache-2.0
// The few calls of PMIx that workers need to find each other, from a libpmix that is opened when a
// launcher offers PMIx. Each has a deadline: the library's own waits have none. [main thread]
#ifndef LS_PLACE_PMIX_CALLS_H
#define LS_PLACE_PMIX_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_PMIX_NAME_BYTES 256

// This process in its job.
struct ls_pmix_job {
    char name[LS_PMIX_NAME_BYTES]; // the namespace
    uint32_t rank, size;
    uint32_t local_rank, local_size; // on this host; local_size 0: the server does not say
};

// Connects to the PMIx server of this host, once in the life of the process. `library` is the file
// name of libpmix; NULL: as the system has it. False: `problem` says why.
bool ls_pmix_open(const char *library, uint64_t deadline_ns, struct ls_pmix_job *out, char *problem,
                  size_t problem_bytes);

// Rank 0 gives `text`, all others get it there. All ranks of the job call this equally often, after
// ls_pmix_open().
bool ls_pmix_share(const struct ls_pmix_job *job, uint64_t deadline_ns, char *text,
                   size_t text_bytes, char *problem, size_t problem_bytes);

// Ends the connection. Called when the process exits: one that ends while it is connected looks to
// the launcher like one that crashed. Not before, because libpmix 4.2 does not connect a second
// time, and an MPI library of the same process must. Does nothing if it is not open.
void ls_pmix_close(void);

#endif
