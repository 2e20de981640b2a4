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

static int32_t describe(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t next = (call->rank + 1) % call->world;
    const uint32_t previous = (call->rank + call->world - 1) % call->world;
    const struct ls_range all = ls_data_range(0, call->count);
    atomic_store(&hostile_host, call->host);
    const int32_t wrong = hostile_call("describe");
    if (wrong)
        return wrong;
    if (hostile_is("describe-endless"))
        endless_steps(call, schedule);
    if (hostile_is("describe-rounds"))
        endless_rounds(schedule);
    if (hostile_is("describe-nothing"))
        return LS_OK;
    if (hostile_is("describe-deadlock")) {
        ls_receive_and_reduce(schedule, previous, all);
        ls_end_round(schedule);
        ls_send(schedule, next, all);
        return LS_OK;
    }
    if (hostile_is("describe-peer")) {
        ls_send(schedule, UINT32_MAX, all);
        return LS_OK;
    }
    if (hostile_is("describe-outside")) {
        ls_send(schedule, next, ls_data_range(UINT64_MAX - 7, 16));
        ls_receive(schedule, previous, ls_data_range(UINT64_MAX - 7, 16));
        return LS_OK;
    }
    if (hostile_is("describe-scratch") || hostile_is("describe-wrap"))
        ls_scratch(schedule, hostile_is("describe-wrap") ? UINT64_MAX - 7 : UINT64_C(1) << 61);
    if (hostile_is("describe-twice")) {
        ls_send(schedule, next, all);
        ls_receive_and_reduce(schedule, previous, all);
        ls_end_round(schedule);
    }
    return real->describe(call, schedule);
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
    interface.describe = describe;
    plugin.name = "hostile-collective";
    plugin.summary = "for tests: a ring with one thing that is wrong";
    plugin.options = options;
    plugin.interface = &interface;
    return &plugin;
}
