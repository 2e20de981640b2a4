// SPDX-License-Identifier: Apache-2.0
// Recording: each thread writes spans to chunks of its own; a lock is taken only where tracks and labels are made.
#include "core/base/trace_internal.h"

#include "core/base/clock.h"

#include <stdlib.h>
#include <string.h>

_Thread_local struct ls_trace_track *ls_trace_mine;

const struct ls_trace_label ls_trace_step_label = {
    .category = "step", .name = "step", .value = "step", .numbered = true};
const struct ls_trace_label ls_trace_examples_label = {.category = "step", .name = "examples"};

// ---- Spans ----

// Keeps the steps up to `step` and no later ones.
static void hold_up_to(struct ls_trace *trace, uint64_t step)
{
    uint64_t last = atomic_load(&trace->last_step);
    while (step < last && !atomic_compare_exchange_weak(&trace->last_step, &last, step))
        continue;
}

static void out_of_memory(struct ls_trace_track *track)
{
    const struct ls_trace_track *stepper = track->owner ? track->owner : track;
    const uint64_t step =
        stepper->when == LS_TRACE_WITHIN ? stepper->step : atomic_load(&track->trace->begun_step);
    track->full = true;
    hold_up_to(track->trace, step ? step - 1 : 0);
}

static bool may_take_chunk(struct ls_trace_track *track)
{
    struct ls_trace_track *writer = track->owner ? track->owner : track;
    if (writer->when == LS_TRACE_WITHIN)
        return writer->chunks-- > 0;
    return atomic_fetch_sub(&track->trace->chunks, 1) > 0;
}

static bool add_chunk(struct ls_trace_track *track)
{
    struct ls_trace_chunk *chunk = may_take_chunk(track) ? malloc(sizeof(*chunk)) : NULL;
    if (!chunk) {
        out_of_memory(track);
        return false;
    }
    chunk->next = NULL;
    chunk->count = 0;
    if (track->last)
        track->last->next = chunk;
    else
        track->first = chunk;
    track->last = chunk;
    return true;
}

static bool records(const struct ls_trace_track *track)
{
    const struct ls_trace *trace = track->trace;
    if (track->full)
        return false;
    switch (track->when) {
    case LS_TRACE_ALWAYS: return true;
    case LS_TRACE_WITHIN: return track->inside;
    case LS_TRACE_AS_OWNER: return records(track->owner);
    case LS_TRACE_MEANWHILE: break;
    }
    return atomic_load_explicit(&trace->started, memory_order_relaxed) &&
           atomic_load_explicit(&trace->left, memory_order_relaxed) < trace->options.steppers;
}

// NULL: no memory.
static struct ls_trace_event *add_event(struct ls_trace_track *track,
                                        const struct ls_trace_label *label, uint64_t begin_ns,
                                        uint64_t number)
{
    if ((!track->last || track->last->count == LS_TRACE_CHUNK) && !add_chunk(track))
        return NULL;
    struct ls_trace_event *event = &track->last->events[track->last->count++];
    *event = (struct ls_trace_event){.label = label, .begin_ns = begin_ns, .number = number};
    return event;
}

void ls_trace_write_begin(const struct ls_trace_label *label, uint64_t number)
{
    struct ls_trace_track *track = ls_trace_mine;
    const uint32_t depth = track->depth++;
    if (depth >= LS_TRACE_DEPTH)
        return;
    struct ls_trace_event *event = NULL;
    if (label && records(track))
        event = add_event(track, label, ls_clock_ns(), number);
    track->open[depth] = (struct ls_trace_open){label, number, event};
}

void ls_trace_write_end(void)
{
    struct ls_trace_track *track = ls_trace_mine;
    if (track->depth == 0 || --track->depth >= LS_TRACE_DEPTH)
        return;
    struct ls_trace_event *event = track->open[track->depth].event;
    if (event)
        event->end_ns = ls_clock_ns();
}

void ls_trace_write_span(const struct ls_trace_label *label, uint64_t begin_ns, uint64_t end_ns,
                         uint64_t number)
{
    struct ls_trace_track *track = ls_trace_mine;
    struct ls_trace_event *event = NULL;
    if (label && records(track))
        event = add_event(track, label, begin_ns, number);
    if (event)
        event->end_ns = end_ns;
}

void ls_trace_write_examples(uint64_t count)
{
    const uint64_t now = ls_clock_ns();
    ls_trace_write_span(&ls_trace_examples_label, now, now, count);
}

// ---- Steps ----

// What is under way goes on in the steps that are held.
static void come_in(struct ls_trace_track *track)
{
    const uint64_t now = ls_clock_ns();
    track->inside = true;
    for (uint32_t i = 0; i < track->depth && i < LS_TRACE_DEPTH; i++)
        if (track->open[i].label && !track->open[i].event)
            track->open[i].event =
                add_event(track, track->open[i].label, now, track->open[i].number);
}

static void go_out(struct ls_trace_track *track)
{
    const uint64_t now = ls_clock_ns();
    for (uint32_t i = 0; i < track->depth && i < LS_TRACE_DEPTH; i++) {
        if (track->open[i].event)
            track->open[i].event->end_ns = now;
        track->open[i].event = NULL;
    }
    track->inside = false;
    if (!track->left)
        atomic_fetch_add(&track->trace->left, 1);
    track->left = true;
}

void ls_trace_begin_step(uint64_t step)
{
    struct ls_trace_track *track = ls_trace_mine;
    if (!track)
        return;
    struct ls_trace *trace = track->trace;
    uint64_t begun = atomic_load(&trace->begun_step);
    while (step > begun && !atomic_compare_exchange_weak(&trace->begun_step, &begun, step))
        continue;
    if (track->full && !track->left)
        hold_up_to(trace, step - 1);
    const bool early = step < trace->options.first_step;
    const bool late = step > atomic_load(&trace->last_step);
    if (track->when != LS_TRACE_WITHIN)
        track->chunks = trace->stepper_chunks;
    track->when = LS_TRACE_WITHIN;
    track->step = step;
    if (!early)
        atomic_store(&trace->started, true);
    if (late && !track->left)
        go_out(track);
    else if (!early && !late && !track->inside)
        come_in(track);
    ls_trace_write_begin(&ls_trace_step_label, step);
}

void ls_trace_end_step(void)
{
    struct ls_trace_track *track = ls_trace_mine;
    if (!track)
        return;
    ls_trace_write_end();
    if (!track->left && track->step >= atomic_load(&track->trace->last_step))
        go_out(track);
}

// ---- Processes, tracks, labels ----

static char *copy_text(const char *text)
{
    return text ? strdup(text) : NULL;
}

// With the lock held. NULL: no memory.
static struct ls_trace_process *find_process(struct ls_trace *trace, uint32_t order,
                                             const char *name, const char *remark)
{
    struct ls_trace_process **at = &trace->processes;
    while (*at && (*at)->order < order)
        at = &(*at)->next;
    if (*at && (*at)->order == order)
        return *at;
    struct ls_trace_process *process = calloc(1, sizeof(*process));
    if (!process)
        return NULL;
    *process = (struct ls_trace_process){
        .next = *at, .order = order, .name = strdup(name), .remark = copy_text(remark)};
    if (!process->name) {
        free(process->remark);
        free(process);
        return NULL;
    }
    *at = process;
    return process;
}

// With the lock held. NULL: no memory.
static struct ls_trace_track *add_track(struct ls_trace *trace, struct ls_trace_process *process,
                                        const char *name)
{
    struct ls_trace_track *track = calloc(1, sizeof(*track));
    if (!track)
        return NULL;
    track->trace = trace;
    track->process = process;
    track->name = strdup(name);
    if (!track->name) {
        free(track);
        return NULL;
    }
    track->number = ++trace->track_count;
    struct ls_trace_track **end = &trace->tracks;
    while (*end)
        end = &(*end)->next;
    *end = track;
    return track;
}

void ls_trace_move(uint32_t order, const char *process, const char *remark)
{
    struct ls_trace_track *track = ls_trace_mine;
    if (!track)
        return;
    pthread_mutex_lock(&track->trace->lock);
    struct ls_trace_process *found = find_process(track->trace, order, process, remark);
    if (found)
        track->process = found;
    pthread_mutex_unlock(&track->trace->lock);
}

static void free_label(struct ls_trace_kept *kept)
{
    const struct ls_trace_label *label = &kept->label;
    free((void *)(uintptr_t)label->category);
    free((void *)(uintptr_t)label->name);
    free((void *)(uintptr_t)label->value);
    for (uint32_t i = 0; i < LS_TRACE_DETAILS; i++) {
        free((void *)(uintptr_t)label->details[i].name);
        free((void *)(uintptr_t)label->details[i].text);
    }
    free(kept);
}

static bool copied(const char *copy, const char *text)
{
    return copy || !text;
}

// Whether all texts are there: a label that says only half is not used.
static bool copy_label(const struct ls_trace_label *from, struct ls_trace_label *to)
{
    *to = (struct ls_trace_label){.category = copy_text(from->category),
                                  .name = copy_text(from->name),
                                  .value = copy_text(from->value),
                                  .numbered = from->numbered,
                                  .receives = from->receives,
                                  .sends = from->sends};
    bool whole = copied(to->category, from->category) && copied(to->name, from->name) &&
                 copied(to->value, from->value);
    for (uint32_t i = 0; i < LS_TRACE_DETAILS; i++) {
        to->details[i] = (struct ls_trace_detail){.name = copy_text(from->details[i].name),
                                                  .text = copy_text(from->details[i].text),
                                                  .number = from->details[i].number};
        whole = whole && copied(to->details[i].name, from->details[i].name) &&
                copied(to->details[i].text, from->details[i].text);
    }
    return whole;
}

const struct ls_trace_label *ls_trace_keep(const struct ls_trace_label *label)
{
    struct ls_trace_kept *kept = ls_trace_mine ? malloc(sizeof(*kept)) : NULL;
    if (!kept)
        return NULL;
    struct ls_trace *trace = ls_trace_mine->trace;
    if (!copy_label(label, &kept->label)) {
        free_label(kept);
        return NULL;
    }
    pthread_mutex_lock(&trace->lock);
    kept->next = trace->kept;
    trace->kept = kept;
    pthread_mutex_unlock(&trace->lock);
    return &kept->label;
}

static struct ls_trace_track *open_track(struct ls_trace_track *owner, const char *name)
{
    pthread_mutex_lock(&owner->trace->lock);
    struct ls_trace_track *track = add_track(owner->trace, owner->process, name);
    if (track) {
        track->when = LS_TRACE_AS_OWNER;
        track->owner = owner;
    }
    pthread_mutex_unlock(&owner->trace->lock);
    return track;
}

bool ls_trace_has_messages(void)
{
    return ls_trace_mine && !ls_trace_mine->trace->options.without_messages;
}

struct ls_trace_track *ls_trace_open_track(const char *name)
{
    return ls_trace_mine ? open_track(ls_trace_mine, name) : NULL;
}

// Spans come in the order of their ends: where the last one ended before this begins, they all did.
void ls_trace_slice_on(struct ls_trace_track *track, const struct ls_trace_label *label,
                       uint64_t begin_ns, uint64_t end_ns, uint64_t number)
{
    if (!track || !label || !records(track))
        return;
    while (track->last_end_ns > begin_ns) {
        if (!track->overlap)
            track->overlap = open_track(track->owner, track->name);
        track = track->overlap;
        if (!track)
            return;
    }
    struct ls_trace_event *event = track->full ? NULL : add_event(track, label, begin_ns, number);
    track->last_end_ns = end_ns;
    if (event)
        event->end_ns = end_ns;
}

// ---- Threads ----

// A thread of that name which has ended leaves its track to the next one.
static struct ls_trace_track *find_left_track(const struct ls_trace *trace,
                                              const struct ls_trace_process *process,
                                              const char *name)
{
    struct ls_trace_track *track = trace->tracks;
    while (track && (track->process != process || track->when != LS_TRACE_MEANWHILE ||
                     atomic_load(&track->used) || strcmp(track->name, name) != 0))
        track = track->next;
    return track;
}

struct ls_trace_track *ls_trace_fork(const char *name)
{
    const struct ls_trace_track *mine = ls_trace_mine;
    if (!mine)
        return NULL;
    pthread_mutex_lock(&mine->trace->lock);
    struct ls_trace_track *track = find_left_track(mine->trace, mine->process, name);
    if (!track)
        track = add_track(mine->trace, mine->process, name);
    if (track) {
        track->when = LS_TRACE_MEANWHILE;
        track->depth = 0;
        atomic_store(&track->used, true);
        atomic_fetch_add(&mine->trace->users, 1);
    }
    pthread_mutex_unlock(&mine->trace->lock);
    return track;
}

void ls_trace_attach(struct ls_trace_track *track)
{
    ls_trace_mine = track;
}

// ---- The recording ----

static void free_tracks(struct ls_trace *trace)
{
    while (trace->tracks) {
        struct ls_trace_track *track = trace->tracks;
        trace->tracks = track->next;
        while (track->first) {
            struct ls_trace_chunk *chunk = track->first;
            track->first = chunk->next;
            free(chunk);
        }
        free(track->name);
        free(track);
    }
}

static void leave(struct ls_trace *trace)
{
    if (atomic_fetch_sub(&trace->users, 1) > 1)
        return;
    free_tracks(trace);
    while (trace->processes) {
        struct ls_trace_process *process = trace->processes;
        trace->processes = process->next;
        free(process->name);
        free(process->remark);
        free(process);
    }
    while (trace->kept) {
        struct ls_trace_kept *kept = trace->kept;
        trace->kept = kept->next;
        free_label(kept);
    }
    pthread_mutex_destroy(&trace->lock);
    free(trace);
}

void ls_trace_detach(struct ls_trace_track *track)
{
    if (!track)
        return;
    if (ls_trace_mine == track)
        ls_trace_mine = NULL;
    atomic_store(&track->used, false);
    leave(track->trace);
}

enum ls_status ls_trace_create(const struct ls_trace_options *options, struct ls_trace **out)
{
    struct ls_trace *trace = calloc(1, sizeof(*trace));
    if (!trace)
        return LS_OUT_OF_MEMORY;
    const uint64_t spans = options->most_spans ? options->most_spans : LS_TRACE_SPANS;
    const uint64_t chunks = spans / LS_TRACE_CHUNK + (spans % LS_TRACE_CHUNK != 0);
    trace->options = *options;
    trace->created_ns = ls_clock_ns();
    trace->before = ls_trace_mine;
    pthread_mutex_init(&trace->lock, NULL);
    atomic_store(&trace->users, 1);
    trace->stepper_chunks = (long)(chunks / ((uint64_t)options->steppers + 1));
    atomic_store(&trace->chunks, (long)chunks - trace->stepper_chunks * (long)options->steppers);
    atomic_store(&trace->last_step, options->last_step ? options->last_step : UINT64_MAX);
    atomic_store(&trace->started, options->first_step <= 1);

    struct ls_trace_process *worker = find_process(trace, 0, "worker", NULL);
    trace->main = worker ? add_track(trace, worker, "main") : NULL;
    if (!trace->main) {
        leave(trace);
        return LS_OUT_OF_MEMORY;
    }
    trace->main->when = LS_TRACE_ALWAYS;
    ls_trace_mine = trace->main;
    *out = trace;
    return LS_OK;
}

void ls_trace_destroy(struct ls_trace *trace)
{
    if (!trace)
        return;
    ls_trace_mine = trace->before;
    leave(trace);
}
