// SPDX-License-Identifier: Apache-2.0
// Records and replays.
#include "core/replica/internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <stdio.h>
#include <string.h>

static const struct ls_trace_label replay_span = {.category = "replay", .name = "replay"};
static const char cannot[] = "the device cannot record this step";

void ls_recorder_init(struct ls_replica *replica, const struct ls_host *host)
{
    struct ls_recorder *recorder = &replica->recorder;
    const char *wanted = host->option(host, LS_RECORDING_OPTION);
    if (!ls_device_can_capture(replica->device))
        recorder->refusal = "the device has no recordings";
    else if (wanted && strcmp(wanted, "off") == 0)
        recorder->refusal = "recording=off";
}

void ls_captures_release(struct ls_replica *replica, struct ls_capture *captures, uint32_t count)
{
    for (uint32_t i = 0; captures && i < count; i++) {
        for (uint32_t set = 0; set < LS_INPUT_SETS; set++)
            if (captures[i].recordings[set])
                ls_device_release_recording(replica->device, captures[i].recordings[set]);
        captures[i] = (struct ls_capture){0};
    }
}

// ---- One capture ----

bool ls_capture_is_due(const struct ls_replica *replica, const struct ls_capture *capture)
{
    return !replica->recorder.refusal && !capture->recordings[replica->set] && capture->runs > 0;
}

bool ls_capture_is_ready(const struct ls_replica *replica, const struct ls_capture *capture)
{
    return !replica->recorder.refusal && capture->recordings[replica->set];
}

enum ls_status ls_capture_begin(struct ls_replica *replica, bool *on)
{
    const enum ls_status status = ls_device_capture_begin(replica->device);
    *on = status == LS_OK;
    if (*on && replica->branch)
        ls_branch_set(replica->branch, true);
    if (status != LS_UNSUPPORTED)
        return status;
    replica->recorder.refusal = cannot;
    return LS_OK;
}

enum ls_status ls_capture_end(struct ls_replica *replica, struct ls_capture *capture,
                              enum ls_status status)
{
    struct ls_recording *recording = NULL;
    const enum ls_status ended = ls_device_capture_end(replica->device, &recording);
    if (replica->branch)
        ls_branch_set(replica->branch, replica->branch_always);
    if (!status && !ended) {
        capture->recordings[replica->set] = recording;
        return LS_OK;
    }
    if (!ended)
        ls_device_release_recording(replica->device, recording);
    // What the work says is the reason, unless that is only that something cannot be recorded.
    const enum ls_status reason = status && (status != LS_UNSUPPORTED || !ended) ? status : ended;
    if (reason != LS_UNSUPPORTED)
        return reason;
    replica->recorder.refusal = cannot;
    return LS_OK;
}

enum ls_status ls_capture_replay(struct ls_replica *replica, const struct ls_capture *capture)
{
    const uint64_t start = ls_clock_ns();
    const enum ls_status status =
        ls_device_replay(replica->device, capture->recordings[replica->set]);
    replica->recorder.replays++;
    ls_trace_span(&replay_span, start, ls_clock_ns(), 0);
    return status;
}

enum ls_status ls_capture_run(struct ls_replica *replica, struct ls_capture *capture,
                              enum ls_status (*run)(void *context), void *context)
{
    enum ls_status status = LS_OK;
    bool on = false;
    if (replica->recorder.together)
        return run(context);
    if (ls_capture_is_due(replica, capture))
        status = ls_capture_begin(replica, &on);
    if (on)
        status = ls_capture_end(replica, capture, run(context));
    if (status)
        return status;
    if (ls_capture_is_ready(replica, capture))
        return ls_capture_replay(replica, capture);
    capture->runs++;
    return run(context);
}

// ---- Steps ----

void ls_recorder_begin_step(struct ls_replica *replica, uint64_t global_count,
                            enum ls_step_recording recording)
{
    struct ls_recorder *recorder = &replica->recorder;
    const bool whole = recording == LS_RECORD_WHOLE;
    uint32_t kind = 0;
    while (whole && kind < LS_STEP_KINDS && recorder->kinds[kind] &&
           recorder->kinds[kind] != global_count)
        kind++;
    recorder->replays = 0;
    recorder->together = recording != LS_RECORD_PARTS;
    recorder->as_it_is = recording == LS_RECORD_NOTHING || kind == LS_STEP_KINDS;
    recorder->kind = recorder->as_it_is ? 0 : kind;
    recorder->differed = recorder->differed || recording == LS_RECORD_NOTHING;
    if (whole && !recorder->as_it_is)
        recorder->kinds[kind] = global_count;
}

void ls_replica_end_step(struct ls_replica *replica, bool whole)
{
    struct ls_recorder *recorder = &replica->recorder;
    recorder->together = false;
    if (recorder->replays > recorder->parts)
        recorder->parts = recorder->replays;
    recorder->whole = whole;
}

bool ls_replica_may_record(const struct ls_replica *replica)
{
    return !replica->recorder.refusal;
}

bool ls_replica_replays(const struct ls_replica *replica)
{
    return replica->recorder.parts > 0;
}

const char *ls_replica_recording(const struct ls_replica *replica, char *text, size_t bytes)
{
    const struct ls_recorder *recorder = &replica->recorder;
    if (ls_device_blocking(replica->device))
        return NULL;
    if (recorder->refusal)
        snprintf(text, bytes, "not recorded: %s", recorder->refusal);
    else if (recorder->parts == 0 && replica->plan->total_count)
        snprintf(text, bytes, "not recorded: replicas add up statistics within it");
    else if (recorder->parts == 0 && recorder->differed)
        snprintf(text, bytes, "not recorded: the shares of replicas differ");
    else if (recorder->parts == 0)
        snprintf(text, bytes, "not recorded: no program ran twice");
    else if (recorder->whole && recorder->parts == 1)
        snprintf(text, bytes, "recorded whole");
    else
        snprintf(text, bytes, "recorded in %u part%s", recorder->parts,
                 recorder->parts == 1 ? "" : "s");
    return text;
}
