// SPDX-License-Identifier: Apache-2.0
// Finds the steps in a timeline, keeps them in a file, and finds what repeats in them.
#include "tools/compare/recording.h"

#include "core/base/log.h"
#include "core/plugin/plugin.h"
#include "tools/compare/figures.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANK_0 1 // the order of its process in a timeline
#define WAIT_FOR "wait for "
#define TAIL_LEAST 8 // steps that are halved once more

void compare_recording_finish(struct compare_recording *recording)
{
    for (size_t i = 0; i < recording->exchange_count; i++) {
        free(recording->exchanges[i].name);
        free(recording->exchanges[i].operation);
        free(recording->exchanges[i].algorithm);
    }
    for (size_t i = 0; i < recording->step_count; i++)
        free(recording->steps[i].marks);
    free(recording->exchanges);
    free(recording->steps);
    *recording = (struct compare_recording){0};
}

// ---- From a timeline ----

enum kind { STEP, KERNEL, MOVE, BEGIN, WAIT };

struct event {
    const struct ls_trace_label *label;
    uint64_t begin_ns, end_ns;
    enum kind kind;
};

struct reader {
    struct event *events;
    size_t count, capacity;
    uint32_t process;
    bool failed; // no memory
};

static bool is_category(const struct ls_trace_label *label, const char *category)
{
    return strcmp(label->category, category) == 0;
}

static const struct ls_trace_detail *detail_of(const struct ls_trace_label *label, const char *name)
{
    for (uint32_t i = 0; i < LS_TRACE_DETAILS && label->details[i].name; i++)
        if (strcmp(label->details[i].name, name) == 0)
            return &label->details[i];
    return NULL;
}

// False: of no interest here.
static bool kind_of(const struct ls_trace_label *label, enum kind *out)
{
    if (is_category(label, "step"))
        *out = STEP;
    else if (is_category(label, "forward") || is_category(label, "backward"))
        *out = KERNEL;
    else if (is_category(label, "communication") && detail_of(label, "operation"))
        *out = strncmp(label->name, WAIT_FOR, strlen(WAIT_FOR)) == 0 ? WAIT : BEGIN;
    else if (is_category(label, "communication"))
        *out = MOVE; // what moves exchanges forward here is part of how long they take
    else
        return false;
    return true;
}

static void note_process(void *context, uint32_t process, const char *name, const char *remark)
{
    struct reader *reader = context;
    (void)name;
    (void)remark;
    reader->process = process;
}

static void note_track(void *context, uint32_t process, uint32_t track, const char *name)
{
    (void)context;
    (void)process;
    (void)track;
    (void)name;
}

static void note_span(void *context, const struct ls_trace_span *span)
{
    struct reader *reader = context;
    enum kind kind;
    if (reader->process != RANK_0 || reader->failed || !kind_of(span->label, &kind))
        return;
    if (reader->count == reader->capacity) {
        const size_t capacity = reader->capacity ? 2 * reader->capacity : 4096;
        struct event *grown = realloc(reader->events, capacity * sizeof(*grown));
        reader->failed = !grown;
        if (!grown)
            return;
        reader->events = grown;
        reader->capacity = capacity;
    }
    reader->events[reader->count++] =
        (struct event){span->label, span->begin_ns, span->end_ns, kind};
}

// A step before what begins with it.
static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

// The number of the exchange that the label names, which is added where it is new; a range may be
// scattered and gathered under one name. Both it and the
// waits for it have what is to be known of it.
static json_int_t number_of(json_t *exchanges, const struct event *event)
{
    const struct ls_trace_label *label = event->label;
    const char *name = label->name + (event->kind == WAIT ? strlen(WAIT_FOR) : 0);
    const struct ls_trace_detail *wire = detail_of(label, "wire");
    const uint64_t bytes = detail_of(label, "bytes")->number;
    const uint64_t elements = detail_of(label, "elements")->number;
    const size_t count = json_array_size(exchanges);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(exchanges, i);
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0 &&
            strcmp(json_string_value(json_object_get(one, "operation")),
                   detail_of(label, "operation")->text) == 0 &&
            json_integer_value(json_object_get(one, "elements")) == (json_int_t)elements)
            return (json_int_t)i;
    }
    json_array_append_new(exchanges, json_pack("{s:s, s:s, s:s, s:I, s:I}", "name", name,
                                               "operation", detail_of(label, "operation")->text,
                                               "algorithm", detail_of(label, "algorithm")->text,
                                               "elements", (json_int_t)elements, "element_bytes",
                                               (json_int_t)(wire       ? 2
                                                            : elements ? bytes / elements
                                                                       : 1)));
    return (json_int_t)count;
}

struct writer {
    FILE *file;
    uint64_t kernels_ns, rest_ns; // since the last mark
    const char *separator;
};

static void write_mark(struct writer *writer, json_int_t number)
{
    fprintf(writer->file, "%s%llu,%llu,%lld", writer->separator,
            (unsigned long long)writer->kernels_ns, (unsigned long long)writer->rest_ns,
            (long long)number);
    writer->kernels_ns = writer->rest_ns = 0;
    writer->separator = ",";
}

// A list of three numbers for each mark: nanoseconds in kernels and in the rest, and the exchange;
// of one that is waited for, -1 - its number. The last one has no exchange.
static size_t write_step(struct writer *writer, const struct event *events, size_t count,
                         json_t *exchanges)
{
    const uint64_t end_ns = events[0].end_ns;
    uint64_t at = events[0].begin_ns;
    size_t i = 1;
    writer->kernels_ns = writer->rest_ns = 0;
    writer->separator = "[";
    for (; i < count && events[i].kind != STEP && events[i].begin_ns < end_ns; i++) {
        const struct event *event = &events[i];
        const bool begins = event->kind == BEGIN; // an exchange, and the thread goes on
        if (event->begin_ns > at)
            writer->rest_ns += event->begin_ns - at;
        if (event->kind == KERNEL)
            writer->kernels_ns += event->end_ns - event->begin_ns;
        else if (event->kind != MOVE)
            write_mark(writer,
                       begins ? number_of(exchanges, event) : -1 - number_of(exchanges, event));
        const uint64_t until = begins ? event->begin_ns : event->end_ns;
        at = until > at ? until : at;
    }
    writer->rest_ns += end_ns > at ? end_ns - at : 0;
    fprintf(writer->file, "%s%llu,%llu]\n", writer->separator,
            (unsigned long long)writer->kernels_ns, (unsigned long long)writer->rest_ns);
    return i;
}

static void write_steps(FILE *file, const struct reader *reader)
{
    struct writer writer = {.file = file};
    json_t *exchanges = json_array();
    const char *separator = "";
    fputs("{\"steps\": [", file);
    for (size_t i = 0; i < reader->count;) {
        if (reader->events[i].kind != STEP) {
            i++;
            continue;
        }
        fputs(separator, file);
        i += write_step(&writer, reader->events + i, reader->count - i, exchanges);
        separator = ",";
    }
    fputs("], \"exchanges\": ", file);
    json_dumpf(exchanges, file, 0);
    fputs("}\n", file);
    json_decref(exchanges);
}

enum ls_status compare_recording_write(const struct ls_trace *trace, const char *path)
{
    struct reader reader = {0};
    const struct ls_trace_visitor visitor = {
        .context = &reader, .process = note_process, .track = note_track, .span = note_span};
    ls_trace_visit(trace, &visitor);
    FILE *file = reader.failed ? NULL : fopen(path, "w");
    if (file) {
        if (reader.count)
            qsort(reader.events, reader.count, sizeof(*reader.events), by_time);
        write_steps(file, &reader);
    }
    free(reader.events);
    bool written = file && !ferror(file);
    if (file)
        written = fclose(file) == 0 && written;
    if (reader.failed)
        return LS_OUT_OF_MEMORY;
    if (!written)
        ls_error("compare", "cannot write '%s': %s", path, strerror(errno));
    return written ? LS_OK : LS_FAILED;
}

// ---- From the file ----

static enum ls_status read_exchanges(const json_t *list, struct compare_recording *out)
{
    out->exchanges = calloc(json_array_size(list) + 1, sizeof(*out->exchanges));
    if (!out->exchanges)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *json = json_array_get(list, i);
        struct compare_exchange *exchange = &out->exchanges[out->exchange_count++];
        exchange->name = strdup(json_string_value(json_object_get(json, "name")));
        exchange->operation = strdup(json_string_value(json_object_get(json, "operation")));
        exchange->algorithm = strdup(json_string_value(json_object_get(json, "algorithm")));
        exchange->count = (uint64_t)json_integer_value(json_object_get(json, "elements"));
        exchange->element_bytes =
            (uint32_t)json_integer_value(json_object_get(json, "element_bytes"));
        if (!exchange->name || !exchange->operation || !exchange->algorithm)
            return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

static double seconds_at(const json_t *list, size_t index)
{
    return (double)json_integer_value(json_array_get(list, index)) * 1e-9;
}

static enum ls_status read_step(const json_t *list, struct compare_recorded_step *out)
{
    const size_t count = json_array_size(list) / 3;
    out->marks = calloc(count + 1, sizeof(*out->marks));
    if (!out->marks)
        return LS_OUT_OF_MEMORY;
    out->mark_count = count;
    for (size_t i = 0; i < count; i++) {
        const json_int_t number = json_integer_value(json_array_get(list, 3 * i + 2));
        out->marks[i] =
            (struct compare_mark){.work = {seconds_at(list, 3 * i), seconds_at(list, 3 * i + 1)},
                                  .exchange = (uint32_t)(number < 0 ? -1 - number : number),
                                  .waits = number < 0};
    }
    out->work = (struct compare_work){seconds_at(list, 3 * count), seconds_at(list, 3 * count + 1)};
    return LS_OK;
}

enum ls_status compare_recording_read(const char *path, struct compare_recording *out)
{
    struct compare_recording recording = {0};
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *steps = json_object_get(root, "steps");
    if (!root)
        return LS_FAILED;
    enum ls_status status = read_exchanges(json_object_get(root, "exchanges"), &recording);
    recording.steps = calloc(json_array_size(steps) + 1, sizeof(*recording.steps));
    if (!recording.steps)
        status = LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < json_array_size(steps); i++)
        status = read_step(json_array_get(steps, i), &recording.steps[recording.step_count++]);
    json_decref(root);
    if (status)
        compare_recording_finish(&recording);
    else
        *out = recording;
    return status;
}

// ---- What repeats ----

// Whether the marks are the same; `begins`: only those of exchanges that begin are looked at. Where
// the training pauses, for a turn of others or a validation, it waits for what is under way, and
// then a step has no wait that others of its kind have.
static bool alike(const struct compare_recorded_step *a, const struct compare_recorded_step *b,
                  bool begins)
{
    size_t i = 0, j = 0;
    for (;;) {
        while (begins && i < a->mark_count && a->marks[i].waits)
            i++;
        while (begins && j < b->mark_count && b->marks[j].waits)
            j++;
        if (i == a->mark_count || j == b->mark_count)
            return i == a->mark_count && j == b->mark_count;
        if (a->marks[i].exchange != b->marks[j].exchange || a->marks[i].waits != b->marks[j].waits)
            return false;
        i++;
        j++;
    }
}

// How many steps it takes until the same exchanges begin again; 0: that was not seen.
static size_t period_of(const struct compare_recorded_step *steps, size_t count)
{
    for (size_t period = 1; 2 * period <= count; period++) {
        size_t i = 0;
        while (i + period < count && alike(&steps[i], &steps[i + period], true))
            i++;
        if (i + period == count)
            return period;
    }
    return 0;
}

// The step whose marks most of its kind have: of steps first, first + period, ...
static size_t usual_of(const struct compare_recorded_step *steps, size_t count, size_t first,
                       size_t period)
{
    size_t best = first, most = 0;
    for (size_t i = first; i < count; i += period) {
        size_t same = 0;
        for (size_t j = first; j < count; j += period)
            same += alike(&steps[i], &steps[j], false);
        if (same > most) {
            most = same;
            best = i;
        }
        if (2 * same > count / period + 1) // there can be no other
            break;
    }
    return best;
}

static double median(double *values, size_t count)
{
    compare_sort(values, count);
    return compare_quantile(values, count, 0.5);
}

// `mark` at its end: the work after the last one.
static struct compare_work median_work(const struct compare_recorded_step *steps, size_t count,
                                       size_t usual, size_t period, size_t mark, double *values)
{
    struct compare_work work;
    for (int rest = 0; rest < 2; rest++) {
        size_t found = 0;
        for (size_t i = usual % period; i < count; i += period) {
            if (!alike(&steps[i], &steps[usual], false))
                continue;
            const struct compare_work *one =
                mark < steps[i].mark_count ? &steps[i].marks[mark].work : &steps[i].work;
            values[found++] = rest ? one->rest : one->kernels;
        }
        *(rest ? &work.rest : &work.kernels) = median(values, found);
    }
    return work;
}

static enum ls_status copy_usual(const struct compare_recorded_step *steps, size_t count,
                                 size_t usual, size_t period, double *values,
                                 struct compare_recorded_step *out)
{
    const size_t marks = steps[usual].mark_count;
    out->marks = calloc(marks + 1, sizeof(*out->marks));
    if (!out->marks)
        return LS_OUT_OF_MEMORY;
    out->mark_count = marks;
    for (size_t i = 0; i < marks; i++) {
        out->marks[i] = steps[usual].marks[i];
        out->marks[i].work = median_work(steps, count, usual, period, i, values);
    }
    out->work = median_work(steps, count, usual, period, marks, values);
    return LS_OK;
}

static enum ls_status copy_exchanges(const struct compare_recording *from,
                                     struct compare_recording *to)
{
    to->exchanges = calloc(from->exchange_count + 1, sizeof(*to->exchanges));
    if (!to->exchanges)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < from->exchange_count; i++) {
        struct compare_exchange *exchange = &to->exchanges[to->exchange_count++];
        *exchange = from->exchanges[i];
        exchange->name = strdup(exchange->name);
        exchange->operation = strdup(exchange->operation);
        exchange->algorithm = strdup(exchange->algorithm);
        if (!exchange->name || !exchange->operation || !exchange->algorithm)
            return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

enum ls_status compare_recording_cycle(const struct compare_recording *recording, size_t first,
                                       size_t end, struct compare_recording *out)
{
    struct compare_recording cycle = {0};
    const size_t warm = first + 1 < end ? first + 1 : end;
    const struct compare_recorded_step *steps = recording->steps + warm;
    size_t count = end - warm, period = period_of(steps, count);
    for (bool whole = true; !period && (whole || count >= TAIL_LEAST); whole = false) {
        steps += count / 2; // the first rounds may be others
        count -= count / 2;
        period = period_of(steps, count);
    }
    double *values = calloc(count + 1, sizeof(*values));
    enum ls_status status = values ? copy_exchanges(recording, &cycle) : LS_OUT_OF_MEMORY;
    cycle.steps = calloc(period + 1, sizeof(*cycle.steps));
    if (!cycle.steps)
        status = LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < period; i++)
        status = copy_usual(steps, count, usual_of(steps, count, i, period), period, values,
                            &cycle.steps[cycle.step_count++]);
    free(values);
    if (status)
        compare_recording_finish(&cycle);
    else
        *out = cycle;
    return status;
}
