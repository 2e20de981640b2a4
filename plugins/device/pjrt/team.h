// SPDX-License-Identifier: Apache-2.0
// What a stream of family LS_STREAM_PJRT is to a collective: the handle `native` points to a struct
// pjrt_stream. Devices of one client make a team; what they reduce together is one program of XLA,
// with a replica on each device. Within a recording it is an instruction of the recorded program,
// which then is one for the whole team.
#ifndef LS_DEVICE_PJRT_TEAM_H
#define LS_DEVICE_PJRT_TEAM_H

#include "core/plugin/collective.h"

struct pjrt_team;

struct pjrt_team_config {
    const struct ls_host *host; // whom failures are told; stays until the team is closed
    struct ls_device *const *devices; // one a member, all different; copied
    uint32_t count; // at least 1
    uint32_t reserved;
    uint64_t deadline_ns; // of each wait for the other members
};

struct pjrt_stream {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*open_team)(const struct pjrt_team_config *config, struct pjrt_team **out);
    // After recordings with operations of it were released; takes NULL.
    void (*close_team)(struct pjrt_team *team);
    // All-reduce or broadcast of run->place, which is memory of the member's device. Outside
    // recordings it waits until all members have made the call, and returns when the result is
    // there; LS_PEER_LOST after the deadline. [thread of the member]
    int32_t (*run)(struct pjrt_team *team, uint32_t member, const struct ls_collective_run *run);
    // LS_OK, or LS_ABORTED. [any thread]
    int32_t (*poll)(struct pjrt_team *team);
    // Every wait of a member for others returns LS_ABORTED, now and later. [any thread]
    void (*abort)(struct pjrt_team *team);
};

#endif
