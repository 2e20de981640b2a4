// SPDX-License-Identifier: Apache-2.0
// What members of a team (team.h) do together: each of these calls waits for the same call of all
// others, with the deadline of the team; the last member to come does the work. LS_PEER_LOST or
// another error is told once, by the member that sees it; the others return LS_ABORTED.
#ifndef LS_DEVICE_PJRT_TOGETHER_H
#define LS_DEVICE_PJRT_TOGETHER_H

#include "plugins/device/pjrt/device.h"
#include "plugins/device/pjrt/team.h"

// As team.h says them.
int32_t pjrt_team_open(const struct pjrt_team_config *config, struct pjrt_team **out);
void pjrt_team_close(struct pjrt_team *team);
int32_t pjrt_team_poll(struct pjrt_team *team);
void pjrt_team_abort(struct pjrt_team *team);

uint32_t pjrt_team_count(const struct pjrt_team *team);
struct ls_device *pjrt_team_device(const struct pjrt_team *team, uint32_t member);

// Compiles what all members have recorded. LS_UNSUPPORTED on all, after a warning that says where,
// if the texts differ.
int32_t pjrt_team_compile(struct pjrt_team *team, uint32_t member, const struct hlo *text,
                          struct PJRT_LoadedExecutable **out);

// Runs a program on all devices, each with its own arguments; returns when it is done.
int32_t pjrt_team_execute(struct pjrt_team *team, uint32_t member,
                          struct PJRT_LoadedExecutable *program,
                          struct PJRT_Buffer *const *arguments, size_t argument_count,
                          struct PJRT_Buffer **results);

// Both: LS_FAILED if the texts differ.
int32_t pjrt_team_run(struct pjrt_team *team, uint32_t member, const struct hlo *text,
                      struct PJRT_Buffer *const *arguments, size_t argument_count,
                      struct PJRT_Buffer **results);

// The operation on one flat value, which is run->count elements of run->dtype.
struct hlo_value pjrt_team_emit(struct hlo *h, const struct pjrt_team *team,
                                const struct ls_collective_run *run, struct hlo_value x);

const struct pjrt_stream *pjrt_stream_calls(void); // stream.c

#endif
