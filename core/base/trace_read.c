// SPDX-License-Identifier: Apache-2.0
// Reading a recording: which steps it holds, and the slices within them.
#include "core/base/trace_internal.h"

// From when to when slices are shown, as ls_clock_ns says it.
struct span {
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

// All slices of a stepper, or those up to the begin of its first step that is not held.
static struct span stepper_span(const struct ls_trace_track *track)
{
    const uint64_t held = atomic_load(&track->trace->last_step);
    struct span span = {.begin_ns = UINT64_MAX, .end_ns = 0};
    for (const struct ls_trace_chunk *chunk = track->first; chunk; chunk = chunk->next)
        for (uint32_t i = 0; i < chunk->count; i++) {
            const struct ls_trace_event *event = &chunk->events[i];
            if (event->label == &ls_trace_step_label && event->number > held) {
                span.end_ns = event->begin_ns;
                span.cut = true;
                return span;
            }
            if (event->begin_ns < span.begin_ns)
                span.begin_ns = event->begin_ns;
            if (event->begin_ns > span.end_ns)
                span.end_ns = event->begin_ns;
            if (event->end_ns > span.end_ns)
                span.end_ns = event->end_ns;
        }
    return span;
}

// Of what the steppers show, where they show less than there was; else everything.
static struct span whole_span(const struct ls_trace *trace)
{
    const uint64_t held = atomic_load(&trace->last_step), begun = atomic_load(&trace->begun_step);
    struct span steps = {.begin_ns = UINT64_MAX, .end_ns = 0}, whole = {.end_ns = UINT64_MAX};
    for (const struct ls_trace_track *track = trace->tracks; track; track = track->next) {
        if (!readable(track) || track->when != LS_TRACE_WITHIN)
            continue;
        const struct span span = stepper_span(track);
        if (span.begin_ns < steps.begin_ns)
            steps.begin_ns = span.begin_ns;
        if (span.end_ns > steps.end_ns)
            steps.end_ns = span.end_ns;
    }
    if (trace->options.first_step > 1)
        whole.begin_ns = steps.begin_ns;
    if (begun >= held) {
        whole.end_ns = steps.end_ns;
        whole.cut = true;
    }
    return whole;
}

static struct span span_of(const struct ls_trace_track *track, const struct span *whole)
{
    const struct ls_trace_track *writer = track->owner ? track->owner : track;
    if (writer->when != LS_TRACE_WITHIN)
        return *whole;
    struct span span = stepper_span(writer);
    if (!span.cut)
        span.end_ns = UINT64_MAX;
    return span;
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
                        const struct span *span, uint64_t last_ns,
                        const struct ls_trace_visitor *visitor)
{
    struct ls_trace_slice slice = {.label = event->label,
                                   .number = event->number,
                                   .begin_ns = event->begin_ns,
                                   .end_ns = event->end_ns ? event->end_ns : last_ns};
    if (slice.begin_ns >= span->end_ns || slice.end_ns < span->begin_ns)
        return;
    slice.unfinished = !event->end_ns && !span->cut;
    if (slice.begin_ns < span->begin_ns)
        slice.begin_ns = span->begin_ns;
    if (slice.end_ns > span->end_ns)
        slice.end_ns = span->end_ns;
    slice.begin_ns -= track->trace->created_ns;
    slice.end_ns -= track->trace->created_ns;
    visitor->slice(visitor->context, &slice);
}

static void visit_examples(const struct ls_trace_track *track, const struct ls_trace_event *step,
                           uint64_t examples, const struct span *span,
                           const struct ls_trace_visitor *visitor)
{
    const uint64_t created = track->trace->created_ns;
    if (visitor->step && step && step->begin_ns >= span->begin_ns && step->end_ns &&
        step->end_ns <= span->end_ns)
        visitor->step(visitor->context, examples, step->begin_ns - created, step->end_ns - created);
}

static void visit_track(const struct ls_trace_track *track, const struct span *whole,
                        const struct ls_trace_visitor *visitor)
{
    const struct span span = span_of(track, whole);
    const uint64_t last = last_time(track);
    visitor->track(visitor->context, track->process->order, track->number, track->name);
    const struct ls_trace_event *step = NULL; // the last one that began
    for (const struct ls_trace_chunk *chunk = track->first; chunk; chunk = chunk->next)
        for (uint32_t i = 0; i < chunk->count; i++) {
            const struct ls_trace_event *event = &chunk->events[i];
            if (event->label == &ls_trace_examples_label) {
                visit_examples(track, step, event->number, &span, visitor);
                continue;
            }
            if (event->label == &ls_trace_step_label)
                step = event;
            visit_event(track, event, &span, last, visitor);
        }
}

void ls_trace_visit(const struct ls_trace *trace, const struct ls_trace_visitor *visitor)
{
    const struct span whole = whole_span(trace);
    for (const struct ls_trace_process *process = trace->processes; process;
         process = process->next) {
        visitor->process(visitor->context, process->order, process->name, process->remark);
        for (const struct ls_trace_track *track = trace->tracks; track; track = track->next)
            if (readable(track) && track->process == process && track->first)
                visit_track(track, &whole, visitor);
    }
}
