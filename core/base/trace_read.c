// SPDX-License-Identifier: Apache-2.0
// Reading a recording: which steps it holds, and the spans within them.
#include "core/base/trace_internal.h"

// From when to when spans are shown, as ls_clock_ns says it.
struct extent {
    uint64_t begin_ns, end_ns;
    bool cut; // there was more
};

void ls_trace_find_steps(const struct ls_trace *trace, struct ls_trace_steps *out)
{
    const uint64_t begun = atomic_load(&trace->begun_step), held = atomic_load(&trace->last_step);
    const uint64_t first = trace->options.first_step ? trace->options.first_step : 1;
    const uint64_t last = begun < held ? begun : held;
    *out = (struct ls_trace_steps){.begun = begun};
    if (first <= last) {
        out->first = first;
        out->last = last;
    }
}

// Threads that have not ended may still be writing.
static bool readable(const struct ls_trace_track *track)
{
    const struct ls_trace_track *writer = track->owner ? track->owner : track;
    return !atomic_load(&writer->used);
}

// All spans of a stepper, or those up to the begin of its first step that is not held.
static struct extent stepper_span(const struct ls_trace_track *track)
{
    const uint64_t held = atomic_load(&track->trace->last_step);
    struct extent extent = {.begin_ns = UINT64_MAX, .end_ns = 0};
    for (const struct ls_trace_chunk *chunk = track->first; chunk; chunk = chunk->next)
        for (uint32_t i = 0; i < chunk->count; i++) {
            const struct ls_trace_event *event = &chunk->events[i];
            if (event->label == &ls_trace_step_label && event->number > held) {
                extent.end_ns = event->begin_ns;
                extent.cut = true;
                return extent;
            }
            if (event->begin_ns < extent.begin_ns)
                extent.begin_ns = event->begin_ns;
            if (event->begin_ns > extent.end_ns)
                extent.end_ns = event->begin_ns;
            if (event->end_ns > extent.end_ns)
                extent.end_ns = event->end_ns;
        }
    return extent;
}

// Of what the steppers show, where they show less than there was; else everything.
static struct extent whole_span(const struct ls_trace *trace)
{
    const uint64_t held = atomic_load(&trace->last_step), begun = atomic_load(&trace->begun_step);
    struct extent steps = {.begin_ns = UINT64_MAX, .end_ns = 0}, whole = {.end_ns = UINT64_MAX};
    for (const struct ls_trace_track *track = trace->tracks; track; track = track->next) {
        if (!readable(track) || track->when != LS_TRACE_WITHIN)
            continue;
        const struct extent extent = stepper_span(track);
        if (extent.begin_ns < steps.begin_ns)
            steps.begin_ns = extent.begin_ns;
        if (extent.end_ns > steps.end_ns)
            steps.end_ns = extent.end_ns;
    }
    if (trace->options.first_step > 1)
        whole.begin_ns = steps.begin_ns;
    if (begun >= held) {
        whole.end_ns = steps.end_ns;
        whole.cut = true;
    }
    return whole;
}

static struct extent span_of(const struct ls_trace_track *track, const struct extent *whole)
{
    const struct ls_trace_track *writer = track->owner ? track->owner : track;
    if (writer->when != LS_TRACE_WITHIN)
        return *whole;
    struct extent extent = stepper_span(writer);
    if (!extent.cut)
        extent.end_ns = UINT64_MAX;
    return extent;
}

static uint64_t last_time(const struct ls_trace_track *track)
{
    uint64_t last = 0;
    for (const struct ls_trace_chunk *chunk = track->first; chunk; chunk = chunk->next)
        for (uint32_t i = 0; i < chunk->count; i++) {
            const struct ls_trace_event *event = &chunk->events[i];
            const uint64_t time = event->end_ns ? event->end_ns : event->begin_ns;
            last = time > last ? time : last;
        }
    return last;
}

static void visit_event(const struct ls_trace_track *track, const struct ls_trace_event *event,
                        const struct extent *extent, uint64_t last_ns,
                        const struct ls_trace_visitor *visitor)
{
    struct ls_trace_span span = {.label = event->label,
                                 .number = event->number,
                                 .begin_ns = event->begin_ns,
                                 .end_ns = event->end_ns ? event->end_ns : last_ns};
    if (span.begin_ns >= extent->end_ns || span.end_ns < extent->begin_ns)
        return;
    span.unfinished = !event->end_ns && !extent->cut;
    if (span.begin_ns < extent->begin_ns)
        span.begin_ns = extent->begin_ns;
    if (span.end_ns > extent->end_ns)
        span.end_ns = extent->end_ns;
    span.begin_ns -= track->trace->created_ns;
    span.end_ns -= track->trace->created_ns;
    visitor->span(visitor->context, &span);
}

static void visit_examples(const struct ls_trace_track *track, const struct ls_trace_event *step,
                           uint64_t examples, const struct extent *extent,
                           const struct ls_trace_visitor *visitor)
{
    const uint64_t created = track->trace->created_ns;
    if (visitor->step && step && step->begin_ns >= extent->begin_ns && step->end_ns &&
        step->end_ns <= extent->end_ns)
        visitor->step(visitor->context, examples, step->begin_ns - created, step->end_ns - created);
}

static void visit_track(const struct ls_trace_track *track, const struct extent *whole,
                        const struct ls_trace_visitor *visitor)
{
    const struct extent extent = span_of(track, whole);
    const uint64_t last = last_time(track);
    visitor->track(visitor->context, track->process->order, track->number, track->name);
    const struct ls_trace_event *step = NULL; // the last one that began
    for (const struct ls_trace_chunk *chunk = track->first; chunk; chunk = chunk->next)
        for (uint32_t i = 0; i < chunk->count; i++) {
            const struct ls_trace_event *event = &chunk->events[i];
            if (event->label == &ls_trace_examples_label) {
                visit_examples(track, step, event->number, &extent, visitor);
                continue;
            }
            if (event->label == &ls_trace_step_label)
                step = event;
            visit_event(track, event, &extent, last, visitor);
        }
}

void ls_trace_visit(const struct ls_trace *trace, const struct ls_trace_visitor *visitor)
{
    const struct extent whole = whole_span(trace);
    for (const struct ls_trace_process *process = trace->processes; process;
         process = process->next) {
        visitor->process(visitor->context, process->order, process->name, process->remark);
        for (const struct ls_trace_track *track = trace->tracks; track; track = track->next)
            if (readable(track) && track->process == process && track->first)
                visit_track(track, &whole, visitor);
    }
}
