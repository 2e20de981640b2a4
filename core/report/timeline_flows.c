// SPDX-License-Identifier: Apache-2.0
// Joins the two sides of each message, and adds up counters.
#include "core/report/timeline_flows.h"

#include <stdlib.h>

// ---- Collecting ----

// Room for one more element of `bytes`; NULL: no memory, and `list` is as it was.
static void *grow(void *list, size_t count, size_t *capacity, size_t bytes)
{
    if (count < *capacity)
        return list;
    const size_t larger = *capacity ? 2 * *capacity : 256;
    void *grown = realloc(list, larger * bytes);
    if (grown)
        *capacity = larger;
    return grown;
}

static void add_end(struct ls_timeline_flows *flows, struct ls_timeline_ends *ends,
                    const struct ls_timeline_end *end)
{
    struct ls_timeline_end *list =
        grow(ends->list, ends->count, &ends->capacity, sizeof(*ends->list));
    if (!list) {
        flows->failed = true;
        return;
    }
    ends->list = list;
    ends->list[ends->count++] = *end;
}

static void add_change(struct ls_timeline_flows *flows, struct ls_timeline_counter *counter,
                       uint64_t time_ns, int64_t by)
{
    struct ls_timeline_change *list =
        grow(counter->list, counter->count, &counter->capacity, sizeof(*counter->list));
    if (!list) {
        flows->failed = true;
        return;
    }
    counter->list = list;
    counter->list[counter->count++] = (struct ls_timeline_change){.time_ns = time_ns, .by = by};
}

void ls_timeline_flows_add(struct ls_timeline_flows *flows, const struct ls_trace_span *span,
                           uint32_t process, uint32_t track)
{
    const struct ls_trace_label *label = span->label;
    struct ls_timeline_end end = {.run = span->number,
                                  .begin_ns = span->begin_ns,
                                  .end_ns = span->end_ns,
                                  .process = process,
                                  .track = track};
    if (span->unfinished)
        return;
    if (label->sends.group) {
        end.message = label->sends;
        add_end(flows, &flows->sends, &end);
    }
    if (label->receives.group) {
        end.message = label->receives;
        add_end(flows, &flows->receives, &end);
    }
}

// The last step counts until `until_ns`.
static void end_step(struct ls_timeline_flows *flows, uint64_t until_ns)
{
    const uint64_t begin = flows->step_begin_ns;
    if (!flows->track || !flows->step_examples || until_ns <= begin)
        return;
    const double seconds = (double)(until_ns - begin) * 1e-9;
    const int64_t rate = (int64_t)((double)flows->step_examples / seconds + 0.5);
    add_change(flows, &flows->examples, begin, rate);
    add_change(flows, &flows->examples, until_ns, -rate);
}

// A step counts until the next one begins, so that what lies between them shows in the rate and not as a gap; but a
// validation, or the rest of a replica, is a gap.
void ls_timeline_flows_add_step(struct ls_timeline_flows *flows, uint32_t track, uint64_t examples,
                                uint64_t begin_ns, uint64_t end_ns)
{
    const uint64_t before = flows->step_end_ns, length = before - flows->step_begin_ns;
    const bool follows =
        track == flows->track && begin_ns >= before && begin_ns - before <= length / 2;
    end_step(flows, follows ? begin_ns : before);
    flows->track = track;
    flows->step_begin_ns = begin_ns;
    flows->step_end_ns = end_ns;
    flows->step_examples = examples;
}

// ---- Joining ----

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_ends(const void *left, const void *right)
{
    const struct ls_timeline_end *a = left, *b = right;
    const uint64_t of_a[] = {(uintptr_t)a->message.group, a->run, a->message.from, a->message.to,
                             a->message.number};
    const uint64_t of_b[] = {(uintptr_t)b->message.group, b->run, b->message.from, b->message.to,
                             b->message.number};
    int order = 0;
    for (int i = 0; i < 5 && !order; i++)
        order = compare_numbers(of_a[i], of_b[i]);
    return order;
}

static int compare_changes(const void *left, const void *right)
{
    const struct ls_timeline_change *a = left, *b = right;
    return compare_numbers(a->time_ns, b->time_ns);
}

static void sort_ends(struct ls_timeline_ends *ends)
{
    if (ends->count)
        qsort(ends->list, ends->count, sizeof(*ends->list), compare_ends);
}

uint64_t ls_timeline_arrival_ns(const struct ls_timeline_end *send,
                                const struct ls_timeline_end *receive)
{
    return send->begin_ns > receive->begin_ns ? send->begin_ns : receive->begin_ns;
}

// A side that is missing was not recorded: its steps are not held, or the run ended before it was done.
static void join(struct ls_timeline_flows *flows)
{
    struct ls_timeline_ends *sends = &flows->sends, *receives = &flows->receives;
    size_t joined = 0, s = 0, r = 0;
    sort_ends(sends);
    sort_ends(receives);
    while (s < sends->count && r < receives->count) {
        const struct ls_timeline_end send = sends->list[s], receive = receives->list[r];
        const int order = compare_ends(&send, &receive);
        s += order <= 0;
        r += order >= 0;
        if (order || ls_timeline_arrival_ns(&send, &receive) >= receive.end_ns)
            continue;
        sends->list[joined] = send;
        receives->list[joined++] = receive;
    }
    sends->count = receives->count = joined;
}

static void count(struct ls_timeline_counter *counter)
{
    size_t kept = 0;
    int64_t value = 0;
    if (counter->count)
        qsort(counter->list, counter->count, sizeof(*counter->list), compare_changes);
    for (size_t i = 0; i < counter->count; i++) {
        value += counter->list[i].by;
        if (i + 1 < counter->count && counter->list[i + 1].time_ns == counter->list[i].time_ns)
            continue;
        counter->list[kept] = counter->list[i];
        counter->list[kept++].value = value;
    }
    counter->count = kept;
}

enum ls_status ls_timeline_flows_end(struct ls_timeline_flows *flows)
{
    end_step(flows, flows->step_end_ns);
    flows->track = 0;
    join(flows);
    for (size_t i = 0; i < flows->sends.count; i++) {
        const struct ls_timeline_end *send = &flows->sends.list[i];
        const int64_t bytes = (int64_t)send->message.bytes;
        add_change(flows, &flows->bytes, send->begin_ns, bytes);
        add_change(flows, &flows->bytes, flows->receives.list[i].end_ns, -bytes);
    }
    if (flows->failed)
        return LS_OUT_OF_MEMORY;
    count(&flows->bytes);
    count(&flows->examples);
    return LS_OK;
}

void ls_timeline_flows_finish(struct ls_timeline_flows *flows)
{
    free(flows->sends.list);
    free(flows->receives.list);
    free(flows->bytes.list);
    free(flows->examples.list);
    *flows = (struct ls_timeline_flows){0};
}
