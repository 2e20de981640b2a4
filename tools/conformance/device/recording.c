// SPDX-License-Identifier: Apache-2.0
// Cases of recordings: what was recorded runs at each replay, with the memory as it is then; and one that cannot be kept leaves
// nothing behind.
#include "tools/conformance/device/suite.h"

#define REPLAYS 5

// On the own stream, on the other one, and on the own one again: three additions.
static bool put_three(struct ls_device_adder *a)
{
    return ls_device_adder_step(a, NULL) && ls_device_adder_join(a, a->event, NULL, a->stream) &&
           ls_device_adder_step(a, a->stream) &&
           ls_device_adder_join(a, a->back, a->stream, NULL) && ls_device_adder_step(a, NULL);
}

static bool record_and_replay(struct ls_device_adder *a)
{
    const struct ls_device_interface *d = a->side->interface;
    struct ls_device *device = a->side->device;
    struct ls_recording *recording = NULL;
    bool good = ls_device_adder_set(a, 100);
    if (!good || d->capture->begin(device))
        return ls_device_suite_fail(a->suite, "cannot begin: %s", a->side->message);
    good = put_three(a);
    const int32_t status = d->capture->end(device, &recording);
    if (!good || status)
        return ls_device_suite_fail(a->suite, "cannot record: status %d, %s", status,
                                    a->side->message);
    good = ls_device_adder_is(a, NULL, 100); // nothing has run
    for (int i = 0; good && i < REPLAYS; i++) {
        if (i == 3)
            good = ls_device_adder_set(a, 1000);
        if (d->capture->replay(device, recording))
            good = ls_device_suite_fail(a->suite, "replay: %s", a->side->message);
        good = good && ls_device_adder_step(a, NULL); // what is launched goes on beside it
    }
    good = good && ls_device_adder_is(a, NULL, 1000 + 4 * (REPLAYS - 3));
    d->capture->release(device, recording);
    return good;
}

static void replay_case(struct ls_device_suite *suite)
{
    const char *name = "recording: replayed with the memory as it is then";
    struct ls_device_adder adder;
    if (!ls_device_suite_begin(suite, name))
        return;
    suite->tested->interface->capture->release(suite->tested->device, NULL);
    if (ls_device_adder_open(suite, suite->tested, &adder))
        record_and_replay(&adder);
    ls_device_adder_close(&adder);
    ls_device_suite_end(suite, name, NULL);
}

// A call that cannot be recorded fails, and so does the end; then all is as before.
static bool fail_and_go_on(struct ls_device_adder *a)
{
    const struct ls_device_interface *d = a->side->interface;
    struct ls_device *device = a->side->device;
    struct ls_recording *none = NULL;
    float value;
    if (!ls_device_adder_set(a, 1))
        return false;
    for (int i = 0; i < 2; i++) {
        a->side->message[0] = '\0';
        if (d->capture->begin(device) || !ls_device_adder_step(a, NULL))
            return ls_device_suite_fail(a->suite, "cannot begin: %s", a->side->message);
        if (i == 0 && !d->memory->copy(device, ls_host_memory(&value), a->session.memory[0],
                                       sizeof(value), NULL))
            return ls_device_suite_fail(a->suite, "a copy to the host is recorded");
        if (i == 1 && d->memory->allocate(device, 1000))
            return ls_device_suite_fail(a->suite, "an allocation is recorded");
        if (!a->side->message[0])
            return ls_device_suite_fail(a->suite, "refused without a reason through host->fail");
        if (!d->capture->end(device, &none) || none)
            return ls_device_suite_fail(a->suite, "there is a recording after a failure");
        if (!ls_device_adder_is(a, NULL, 1 + i) || !ls_device_adder_step(a, NULL))
            return false;
    }
    return ls_device_adder_is(a, NULL, 3) && record_and_replay(a);
}

static void failure_case(struct ls_device_suite *suite)
{
    const char *name = "recording: one that fails is not kept, and the next one is";
    struct ls_device_adder adder;
    if (!ls_device_suite_begin(suite, name))
        return;
    if (ls_device_adder_open(suite, suite->tested, &adder))
        fail_and_go_on(&adder);
    ls_device_adder_close(&adder);
    ls_device_suite_end(suite, name, NULL);
}

void ls_device_recording_cases(struct ls_device_suite *suite)
{
    if (!ls_device_group_offered(suite, "recordings", LS_DEVICE_RECORDING))
        return;
    replay_case(suite);
    failure_case(suite);
}
