// SPDX-License-Identifier: Apache-2.0
// The one door for host memory that a transport may move: buffers of replicas, scratch of
// collectives. It is ordinary memory until the process opens its segment, because it has peers on
// its host; from then on it comes out of one file without a name, which peers may map (struct
// ls_transport_segment), so that they touch it where it is. What was allocated before stays where
// it is, and is copied for peers. A process that is forked afterwards shares what is in the segment
// with its parent, and gets ordinary memory from here.
#ifndef LS_BASE_SHARED_MEMORY_H
#define LS_BASE_SHARED_MEMORY_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Smaller blocks are ordinary memory.
#define LS_SEGMENT_LEAST_BYTES 4096

struct ls_segment {
    int fd;
    void *base;
    uint64_t bytes; // reserved; memory is taken when it is first written
};

// Opens the segment of this process, once; what comes later changes nothing. LS_UNAVAILABLE, logged
// as information: there is none on this machine, and all works as before, by copies. [main thread]
LS_STATUS ls_segment_open(void);
// False: it is not open, or it is that of the parent.
bool ls_segment_get(struct ls_segment *out);

// Like aligned_alloc(), but out of the segment where that is open and has room. NULL: no memory.
// `alignment` is a power of two. Freed by ls_segment_free(). [any thread]
void *ls_segment_allocate(size_t bytes, size_t alignment);
void ls_segment_free(void *memory); // takes NULL

#endif
