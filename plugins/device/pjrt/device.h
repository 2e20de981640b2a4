// SPDX-License-Identifier: Apache-2.0
// The device's own structures.
#ifndef LS_DEVICE_PJRT_DEVICE_H
#define LS_DEVICE_PJRT_DEVICE_H

#include "plugins/device/pjrt/client.h"
#include "plugins/device/pjrt/operation.h"

struct pjrt_program;
struct pjrt_team;
struct ls_collective_run;

struct ls_device {
    const struct ls_host *host;
    struct pjrt_caller caller;
    struct pjrt_program *recording; // what is launched goes here; NULL: it runs
};

// ---- Memory (memory.c, pieces.c) ----
// PJRT buffers are typed values that are only written as a whole. An allocation is memory of the
// host, and buffers that hold parts of it: `pieces`. The part of a piece that is `ahead` is newer
// there than in the memory of the host; no other piece overlaps it.

struct pjrt_piece {
    uint64_t offset, bytes;
    uint32_t type; // enum ls_dtype
    bool ahead;
    struct PJRT_Buffer *buffer;
};

struct ls_buffer {
    unsigned char *host;
    uint64_t bytes;
    struct pjrt_piece *pieces;
    uint32_t piece_count, piece_room;
    uint64_t *cuts; // where parts that programs read begin or end, ascending
    uint32_t cut_count, cut_room;
};

// A part of an allocation, as elements of a type.
struct pjrt_range {
    struct ls_buffer *buffer;
    uint64_t offset, bytes;
    uint32_t type;
};

struct ls_buffer *pjrt_allocate(struct ls_device *device, uint64_t bytes);
void pjrt_free(struct ls_device *device, struct ls_buffer *buffer);
int32_t pjrt_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                  uint64_t bytes, void *stream);
int32_t pjrt_zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes, void *stream);

// The buffer that has the range; it stays the allocation's, until something else is written there.
int32_t pjrt_fetch(struct ls_device *device, const struct pjrt_range *range,
                   struct PJRT_Buffer **out);
// Takes a buffer with new values of the range.
int32_t pjrt_store(struct ls_device *device, const struct pjrt_range *range,
                   struct PJRT_Buffer *buffer);
// Something else is written there: what pieces have beyond it goes to the memory of the host.
int32_t pjrt_forget(struct ls_device *device, struct ls_buffer *buffer, uint64_t offset,
                    uint64_t bytes);
void pjrt_drop_pieces(struct ls_device *device, struct ls_buffer *buffer);
// Makes the memory of the host as new as the pieces in the range.
int32_t pjrt_gather(struct ls_device *device, struct ls_buffer *buffer, uint64_t offset,
                    uint64_t bytes);
// From now on results are split where this range begins and ends. False: no memory.
bool pjrt_cut(struct ls_buffer *buffer, uint64_t offset);

// ---- Kernels (kernel.c) ----

struct ls_kernel {
    const struct pjrt_operation *operation;
    struct ls_kernel_request request;
    struct ls_tensor_desc arguments[PJRT_MAX_ARGUMENTS]; // of the request
    struct PJRT_LoadedExecutable *alone; // its program, made by the first launch outside recordings
};

int32_t pjrt_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                     struct ls_kernel_answer *out);
void pjrt_release_kernel(struct ls_device *device, struct ls_kernel *kernel);
int32_t pjrt_launch(struct ls_device *device, const struct ls_kernel *kernel, // launch.c
                    const struct ls_launch *launch);

// What a launch reads and writes, in the order of the values below.
struct pjrt_access {
    uint32_t read_count, written_count;
    struct pjrt_range reads[2 * PJRT_MAX_ARGUMENTS], writes[PJRT_MAX_ARGUMENTS];
};
void pjrt_access_of(const struct ls_kernel *kernel, const struct ls_launch *launch,
                    struct pjrt_access *out);
// Writes the operation: flat values of what is read become flat values of what is written.
void pjrt_emit(struct hlo *h, const struct ls_kernel *kernel, const struct hlo_value *reads,
               struct hlo_value *writes);

// ---- Recordings (recording.c) ----

int32_t pjrt_record_begin(struct ls_device *device);
int32_t pjrt_record_end(struct ls_device *device, struct ls_recording **out);
int32_t pjrt_replay(struct ls_device *device, const struct ls_recording *recording);
void pjrt_release_recording(struct ls_device *device, struct ls_recording *recording);
int32_t pjrt_record_launch(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct ls_launch *launch);
int32_t pjrt_record_zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes);
int32_t pjrt_record_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                         uint64_t bytes);
// An operation of a team (team.h): the recording becomes one that all members replay together.
int32_t pjrt_record_together(struct ls_device *device, struct pjrt_team *team, uint32_t member,
                             const struct pjrt_range *range, const struct ls_collective_run *run);
// Fails, and spoils the recording, while there is one.
int32_t pjrt_check_recording(struct ls_device *device, const char *what);

#endif
