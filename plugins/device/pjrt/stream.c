// SPDX-License-Identifier: Apache-2.0
// What a collective can do with a stream (team.h).
#include "plugins/device/pjrt/program.h"
#include "plugins/device/pjrt/together.h"

static struct pjrt_range range_of(const struct ls_collective_run *run)
{
    return (struct pjrt_range){run->place.buffer, run->place.offset,
                               run->count * ls_dtype_bytes(run->dtype), run->dtype};
}

// A program of this operation alone, which runs now.
static int32_t run_alone(struct pjrt_team *team, uint32_t member,
                         const struct ls_collective_run *run)
{
    struct ls_device *device = pjrt_team_device(team, member);
    const struct pjrt_range range = range_of(run);
    struct hlo h = {0}, text = {0};
    struct PJRT_Buffer *argument, *result;
    const uint32_t given_to = 1;
    const struct hlo_value x = pjrt_program_argument(&h, &range);
    const struct hlo_value y = pjrt_team_emit(&h, team, run, x);
    const struct pjrt_function function = {.instructions = &h,
                                           .arguments = &x,
                                           .results = &y,
                                           .argument_count = 1,
                                           .result_count = 1,
                                           .given_to = &given_to,
                                           .replicas = pjrt_team_count(team)};
    pjrt_program_print(&function, &text);
    int32_t status = text.failed ? ls_host_fail(device->host, LS_OUT_OF_MEMORY,
                                                "no memory for the program of an all-reduce")
                                 : pjrt_fetch(device, &range, &argument);
    if (!status)
        status = pjrt_team_run(team, member, &text, &argument, 1, &result);
    hlo_finish(&h);
    hlo_finish(&text);
    return status ? status : pjrt_store(device, &range, result);
}

static int32_t run_together(struct pjrt_team *team, uint32_t member,
                            const struct ls_collective_run *run)
{
    struct ls_device *device = pjrt_team_device(team, member);
    const int32_t status = pjrt_team_poll(team);
    if (status || run->count == 0 || pjrt_team_count(team) == 1)
        return status;
    if (!device->recording)
        return run_alone(team, member, run);
    const struct pjrt_range range = range_of(run);
    return pjrt_record_together(device, team, member, &range, run);
}

const struct pjrt_stream *pjrt_stream_calls(void)
{
    static const struct pjrt_stream calls = {
        .struct_size = sizeof(calls),
        .open_team = pjrt_team_open,
        .close_team = pjrt_team_close,
        .run = run_together,
        .poll = pjrt_team_poll,
        .abort = pjrt_team_abort,
    };
    return &calls;
}
