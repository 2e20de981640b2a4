// SPDX-License-Identifier: Apache-2.0
// collective-hostile-collective, for tests: a ring with one thing that is wrong.
#include "tests/plugins/hostile/hostile.h"

#include "core/plugin/collective.h"

const struct ls_plugin *ring_plugin(void); // the ring's own, under another name

static const struct ls_collective_interface *real;

static void endless_steps(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    for (;;)
        ls_copy(schedule, ls_data_range(0, 1), ls_data_range(call->count - 1, 1));
}

static void endless_rounds(struct ls_schedule *schedule)
{
    for (;;)
        ls_end_round(schedule);
}

static int32_t build_schedule(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t next = (call->rank + 1) % call->world;
    const uint32_t previous = (call->rank + call->world - 1) % call->world;
    const struct ls_range all = ls_data_range(0, call->count);
    atomic_store(&hostile_host, call->host);
    const int32_t wrong = hostile_call("build_schedule");
    if (wrong)
        return wrong;
    if (hostile_is("build_schedule-endless"))
        endless_steps(call, schedule);
    if (hostile_is("build_schedule-rounds"))
        endless_rounds(schedule);
    if (hostile_is("build_schedule-nothing"))
        return LS_OK;
    if (hostile_is("build_schedule-deadlock")) {
        ls_receive_and_reduce(schedule, previous, all);
        ls_end_round(schedule);
        ls_send(schedule, next, all);
        return LS_OK;
    }
    if (hostile_is("build_schedule-peer")) {
        ls_send(schedule, UINT32_MAX, all);
        return LS_OK;
    }
    if (hostile_is("build_schedule-outside")) {
        ls_send(schedule, next, ls_data_range(UINT64_MAX - 7, 16));
        ls_receive(schedule, previous, ls_data_range(UINT64_MAX - 7, 16));
        return LS_OK;
    }
    if (hostile_is("build_schedule-scratch") || hostile_is("build_schedule-wrap"))
        ls_scratch(schedule,
                   hostile_is("build_schedule-wrap") ? UINT64_MAX - 7 : UINT64_C(1) << 61);
    if (hostile_is("build_schedule-twice")) {
        ls_send(schedule, next, all);
        ls_receive_and_reduce(schedule, previous, all);
        ls_end_round(schedule);
    }
    return real->build_schedule(call, schedule);
}

static const struct ls_plugin_option options[] = HOSTILE_OPTIONS;

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    static struct ls_collective_interface interface;
    static struct ls_plugin plugin;
    hostile_early("entry");
    plugin = *ring_plugin();
    real = plugin.interface;
    interface = *real;
    interface.build_schedule = build_schedule;
    plugin.name = "hostile-collective";
    plugin.summary = "for tests: a ring with one thing that is wrong";
    plugin.options = options;
    plugin.interface = &interface;
    return &plugin;
}
