// SPDX-License-Identifier: Apache-2.0
// Records and replays.
#include "core/replica/record.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <stdio.h>
#include <string.h>

static const struct ls_trace_label replay_span = {.category = "replay", .name = "replay"};

void ls_record_init(struct ls_replica *replica, const struct ls_host *host)
{
    struct ls_recorder *recorder = &replica->recorder;
    const char *wanted = host->option(host, LS_RECORDING_OPTION);
    if (!ls_device_can_capture(replica->device))
        recorder->refusal = "the device has no recordings";
    else if (wanted && strcmp(wanted, "off") == 0)
        recorder->refusal = "recording=off";
}

void ls_record_release(struct ls_replica *replica, struct ls_capture *captures, uint32_t count)
{
    for (uint32_t i = 0; captures && i < count; i++) {
        if (captures[i].recording)
            ls_device_release_recording(replica->device, captures[i].recording);
        captures[i] = (struct ls_capture){0};
    }
}

// ---- Running ----

static enum ls_status run_work(struct ls_replica *replica, const struct ls_section *section)
{
    replica->recorder.within = true;
    const enum ls_status status = section->work(section->context);
    replica->recorder.within = false;
    return status;
}

static void say(const struct ls_section *section, struct ls_replica *replica, bool on)
{
    if (section->hooks && section->hooks->recording)
        section->hooks->recording(section->hooks->context, replica, on);
}

// Nothing of it has run yet, whatever becomes of it. LS_UNSUPPORTED: it cannot be recorded.
static enum ls_status record(struct ls_replica *replica, const struct ls_section *section)
{
    struct ls_recording *recording = NULL;
    const enum ls_status begun = ls_device_capture_begin(replica->device);
    if (begun)
        return begun;
    say(section, replica, true);
    replica->recorder.recording = true;
    const enum ls_status status = run_work(replica, section);
    replica->recorder.recording = false;
    say(section, replica, false);
    const enum ls_status ended = ls_device_capture_end(replica->device, &recording);
    if (!status && !ended) {
        section->capture->recording = recording;
        return LS_OK;
    }
    if (!ended)
        ls_device_release_recording(replica->device, recording);
    // What the work says is the reason, unless that is only that something cannot be recorded.
    return status && (status != LS_UNSUPPORTED || !ended) ? status : ended;
}

static enum ls_status say_ready(const struct ls_section *section, struct ls_replica *replica,
                                bool fresh)
{
    return section->hooks && section->hooks->ready
               ? section->hooks->ready(section->hooks->context, replica, fresh)
               : LS_OK;
}

// Libraries make things ready at their first call, which cannot be recorded.
static enum ls_status run_first(struct ls_replica *replica, const struct ls_section *section)
{
    const enum ls_status status = say_ready(section, replica, true);
    return status ? status : run_work(replica, section);
}

static enum ls_status replay(struct ls_replica *replica, const struct ls_section *section)
{
    const uint64_t start = ls_clock_ns();
    enum ls_status status = ls_device_replay(replica->device, section->capture->recording);
    replica->recorder.replays++;
    ls_trace_span(&replay_span, start, ls_clock_ns(), 0);
    if (!status && section->hooks && section->hooks->replayed)
        status = section->hooks->replayed(section->hooks->context, replica);
    return status;
}

enum ls_status ls_record_run(struct ls_replica *replica, const struct ls_section *section)
{
    struct ls_recorder *recorder = &replica->recorder;
    if (recorder->within)
        return section->work(section->context);
    if (recorder->refusal)
        return section->capture->runs++ == 0 ? run_first(replica, section)
                                             : run_work(replica, section);
    if (section->capture->recording)
        return replay(replica, section);
    if (section->capture->runs++ == 0)
        return run_first(replica, section);
    const enum ls_status recorded = record(replica, section);
    const enum ls_status status =
        !recorded || recorded == LS_UNSUPPORTED ? say_ready(section, replica, false) : recorded;
    if (status)
        return status;
    if (!recorded)
        return replay(replica, section);
    recorder->refusal = "the device cannot record this step";
    return run_work(replica, section);
}

// ---- Steps ----

void ls_record_begin_step(struct ls_replica *replica, uint64_t global_count, bool together)
{
    struct ls_recorder *recorder = &replica->recorder;
    uint32_t kind = 0;
    while (together && kind < LS_STEP_KINDS && recorder->kinds[kind] &&
           recorder->kinds[kind] != global_count)
        kind++;
    recorder->replays = 0;
    recorder->within = kind == LS_STEP_KINDS; // one more than there are: as it is
    recorder->kind = recorder->within ? 0 : kind;
    if (together && !recorder->within)
        recorder->kinds[kind] = global_count;
}

void ls_record_end_step(struct ls_replica *replica, bool whole)
{
    struct ls_recorder *recorder = &replica->recorder;
    recorder->within = false;
    if (recorder->replays > recorder->parts)
        recorder->parts = recorder->replays;
    recorder->whole = whole;
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
    else if (recorder->parts == 0)
        snprintf(text, bytes, "not recorded: no program ran twice");
    else if (recorder->whole && recorder->parts == 1)
        snprintf(text, bytes, "recorded whole");
    else
        snprintf(text, bytes, "recorded in %u part%s", recorder->parts,
                 recorder->parts == 1 ? "" : "s");
    return text;
}
