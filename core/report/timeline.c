// SPDX-License-Identifier: Apache-2.0
// A recording in the Trace Event Format: one JSON object whose "traceEvents" has an event a line. Times are
// microseconds, written with the three digits that make them nanoseconds.
#include "core/report/timeline.h"

#include "core/base/log.h"
#include "core/report/timeline_flows.h"
#include "core/report/whole_file.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct writer {
    FILE *stream;
    bool any; // event so far
    uint32_t process, track; // of the spans that follow
    struct ls_timeline_flows flows;
};

// ---- Texts ----

// How many bytes make the UTF-8 character that begins here; 0: none does.
static size_t character_bytes(const unsigned char *text)
{
    const size_t bytes = text[0] < 0x80                       ? 1
                         : text[0] >= 0xc2 && text[0] <= 0xdf ? 2
                         : text[0] >= 0xe0 && text[0] <= 0xef ? 3
                         : text[0] >= 0xf0 && text[0] <= 0xf4 ? 4
                                                              : 0;
    for (size_t i = 1; i < bytes; i++)
        if (text[i] < 0x80 || text[i] > 0xbf)
            return 0;
    const bool overlong =
        (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
    const bool surrogate = text[0] == 0xed && text[1] > 0x9f;
    const bool beyond = text[0] == 0xf4 && text[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : bytes;
}

// What comes from model files and file names may hold anything; bytes that are no UTF-8 become question marks.
static void write_characters(FILE *stream, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        const size_t bytes = character_bytes(at);
        if (bytes == 0)
            fputc('?', stream);
        else if (*at == '"' || *at == '\\')
            fprintf(stream, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            fprintf(stream, "\\u%04x", *at);
        else
            fwrite(at, 1, bytes, stream);
        at += bytes ? bytes : 1;
    }
}

static void write_text(FILE *stream, const char *text)
{
    fputc('"', stream);
    write_characters(stream, text);
    fputc('"', stream);
}

static void write_member(FILE *stream, const char *name, const char *text)
{
    if (!text)
        return;
    fprintf(stream, ",\"%s\":", name);
    write_text(stream, text);
}

// ---- Events ----

static void begin_event(struct writer *writer, const char *phase)
{
    fprintf(writer->stream, "%s{\"ph\":\"%s\",\"pid\":%" PRIu32, writer->any ? ",\n" : "\n", phase,
            writer->process);
    writer->any = true;
}

static void write_process(void *context, uint32_t process, const char *name, const char *remark)
{
    struct writer *writer = context;
    FILE *stream = writer->stream;
    writer->process = process + 1; // viewers take 0 for the idle process
    begin_event(writer, "M");
    fputs(",\"name\":\"process_name\",\"args\":{\"name\":", stream);
    write_text(stream, name);
    fputs("}}", stream);
    if (remark) {
        begin_event(writer, "M");
        fputs(",\"name\":\"process_labels\",\"args\":{\"labels\":", stream);
        write_text(stream, remark);
        fputs("}}", stream);
    }
    begin_event(writer, "M");
    fprintf(stream, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%" PRIu32 "}}",
            process);
}

static void write_track(void *context, uint32_t process, uint32_t track, const char *name)
{
    struct writer *writer = context;
    writer->process = process + 1;
    writer->track = track;
    begin_event(writer, "M");
    fprintf(writer->stream,
            ",\"tid\":%" PRIu32 ",\"name\":\"thread_name\",\"args\":{\"name\":", track);
    write_text(writer->stream, name);
    fputs("}}", writer->stream);
    begin_event(writer, "M");
    fprintf(writer->stream,
            ",\"tid\":%" PRIu32 ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%" PRIu32
            "}}",
            track, track);
}

static void write_arguments(FILE *stream, const struct ls_trace_span *span)
{
    const struct ls_trace_label *label = span->label;
    const char *separator = ",\"args\":{";
    for (uint32_t i = 0; i < LS_TRACE_DETAILS && label->details[i].name; i++) {
        const struct ls_trace_detail *detail = &label->details[i];
        fputs(separator, stream);
        separator = ",";
        write_text(stream, detail->name);
        fputc(':', stream);
        if (detail->text)
            write_text(stream, detail->text);
        else
            fprintf(stream, "%" PRIu64, detail->number);
    }
    if (label->value) {
        fputs(separator, stream);
        separator = ",";
        write_text(stream, label->value);
        fprintf(stream, ":%" PRIu64, span->number);
    }
    if (span->unfinished) {
        fprintf(stream, "%s\"unfinished\":true", separator);
        separator = ",";
    }
    if (separator[1] == '\0')
        fputc('}', stream);
}

static void write_time(FILE *stream, const char *name, uint64_t nanoseconds)
{
    fprintf(stream, ",\"%s\":%" PRIu64 ".%03u", name, nanoseconds / 1000,
            (unsigned)(nanoseconds % 1000));
}

static void write_span(void *context, const struct ls_trace_span *span)
{
    struct writer *writer = context;
    FILE *stream = writer->stream;
    const struct ls_trace_label *label = span->label;
    begin_event(writer, "X");
    fprintf(stream, ",\"tid\":%" PRIu32, writer->track);
    write_time(stream, "ts", span->begin_ns);
    write_time(stream, "dur", span->end_ns - span->begin_ns);
    write_member(stream, "cat", label->category);
    fputs(",\"name\":\"", stream);
    write_characters(stream, label->name);
    if (label->numbered)
        fprintf(stream, " %" PRIu64, span->number);
    fputc('"', stream);
    write_arguments(stream, span);
    fputc('}', stream);
    ls_timeline_flows_add(&writer->flows, span, writer->process, writer->track);
}

static void note_step(void *context, uint64_t examples, uint64_t begin_ns, uint64_t end_ns)
{
    struct writer *writer = context;
    ls_timeline_flows_add_step(&writer->flows, writer->track, examples, begin_ns, end_ns);
}

// ---- Arrows and counters: behind all spans, to which viewers tie them by their times ----

static void write_arrow_end(struct writer *writer, const char *phase, size_t id,
                            const struct ls_timeline_end *end, uint64_t time_ns)
{
    FILE *stream = writer->stream;
    writer->process = end->process;
    begin_event(writer, phase);
    fprintf(stream, ",\"tid\":%" PRIu32 ",\"id\":%zu", end->track, id);
    write_time(stream, "ts", time_ns);
    fputs(",\"cat\":\"message\",\"name\":\"message\"", stream);
    // The end belongs to the span around it; a start always does.
    fputs(*phase == 'f' ? ",\"bp\":\"e\"}" : "}", stream);
}

static void write_arrows(struct writer *writer)
{
    const struct ls_timeline_flows *flows = &writer->flows;
    for (size_t i = 0; i < flows->sends.count; i++) {
        const struct ls_timeline_end *send = &flows->sends.list[i];
        const struct ls_timeline_end *receive = &flows->receives.list[i];
        write_arrow_end(writer, "s", i + 1, send, send->begin_ns);
        write_arrow_end(writer, "f", i + 1, receive, ls_timeline_arrival_ns(send, receive));
    }
}

// Viewers call it by both words, of which `unit` names the value.
static void write_counter(struct writer *writer, const char *name, const char *unit,
                          const struct ls_timeline_counter *counter)
{
    writer->process = 1;
    for (size_t i = 0; i < counter->count; i++) {
        const struct ls_timeline_change *change = &counter->list[i];
        begin_event(writer, "C");
        write_time(writer->stream, "ts", change->time_ns);
        fprintf(writer->stream, ",\"name\":\"%s\",\"args\":{\"%s\":%" PRId64 "}}", name, unit,
                change->value);
    }
}

static enum ls_status write_flows(struct writer *writer, const char *path)
{
    const enum ls_status status = ls_timeline_flows_end(&writer->flows);
    if (status) {
        ls_error("--timeline",
                 "'%s' is not written: not enough memory to match its messages; choose fewer steps "
                 "with --timeline-steps",
                 path);
        return status;
    }
    write_arrows(writer);
    write_counter(writer, "bytes", "in flight", &writer->flows.bytes);
    write_counter(writer, "examples", "per second", &writer->flows.examples);
    return LS_OK;
}

static void write_facts(FILE *stream, const struct ls_timeline *timeline,
                        const struct ls_trace *trace)
{
    struct ls_trace_steps steps;
    ls_trace_find_steps(trace, &steps);
    fputs("],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"lockstep\":\"" LS_VERSION "\"",
          stream);
    write_member(stream, "model", timeline->model);
    write_member(stream, "dataset", timeline->dataset);
    write_member(stream, "strategy", timeline->strategy);
    write_member(stream, "collective", timeline->collective);
    write_member(stream, "transport", timeline->transport);
    write_member(stream, "device", timeline->device);
    write_member(stream, "hardware", timeline->hardware);
    fprintf(stream,
            ",\"replicas\":%" PRIu32 ",\"global_batch\":%" PRIu64 ",\"first_step\":%" PRIu64
            ",\"last_step\":%" PRIu64 ",\"steps\":%" PRIu64 "}}\n",
            timeline->replicas, timeline->global_batch, steps.first, steps.last, steps.begun);
}

enum ls_status ls_timeline_write(const char *path, const struct ls_timeline *timeline,
                                 const struct ls_trace *trace)
{
    struct ls_whole_file file;
    enum ls_status status = ls_whole_file_open("--timeline", path, &file);
    if (status)
        return status;
    struct writer writer = {.stream = file.stream};
    const struct ls_trace_visitor visitor = {.context = &writer,
                                             .process = write_process,
                                             .track = write_track,
                                             .span = write_span,
                                             .step = note_step};
    fputs("{\"traceEvents\":[", file.stream);
    ls_trace_visit(trace, &visitor);
    status = write_flows(&writer, path);
    if (!status) {
        write_facts(file.stream, timeline, trace);
        status = ls_whole_file_commit(&file);
    }
    ls_whole_file_discard(&file);
    ls_timeline_flows_finish(&writer.flows);
    return status;
}
