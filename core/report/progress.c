// SPDX-License-Identifier: Apache-2.0
// The progress bar.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // struct winsize
#endif
#include "core/report/progress.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_LETTERS 30
#define BAR_LEAST 8 // a shorter one shows nothing
#define LINE_BYTES 2048
#define USUAL_COLUMNS 80 // of a terminal that does not say how wide it is
#define REDRAW_NS UINT64_C(100000000)

// The bar that messages make room on. The log calls back under its own lock.
static struct ls_progress *_Atomic shown;

static void make_room(void)
{
    struct ls_progress *progress = shown;
    if (progress)
        ls_progress_clear(progress);
}

// A dumb terminal cannot wipe a line away. mpirun gives its processes a terminal, whatever becomes of
// what they write.
static bool can_redraw(FILE *stream)
{
    const char *kind = getenv("TERM");
    if (getenv("OMPI_COMM_WORLD_RANK") || getenv("PMIX_RANK"))
        return false;
    return isatty(fileno(stream)) == 1 && !(kind && strcmp(kind, "dumb") == 0);
}

void ls_progress_init(struct ls_progress *progress, FILE *stream, enum ls_progress_kind kind,
                      uint64_t log_every)
{
    *progress = (struct ls_progress){
        .stream = stream,
        .bar = kind == LS_PROGRESS_BAR && can_redraw(stream),
        .quiet = kind == LS_PROGRESS_NONE,
        .log_every = kind == LS_PROGRESS_NONE ? 0 : log_every,
    };
    if (!progress->bar)
        return;
    // One bar at a time: a second training in another thread prints lines, as to a file.
    struct ls_progress *none = NULL;
    progress->bar = atomic_compare_exchange_strong(&shown, &none, progress);
    if (progress->bar)
        ls_log_set_before(make_room);
}

static enum ls_status on_epoch_begin(void *context, const struct ls_fit_state *state)
{
    struct ls_progress *progress = context;
    progress->begun_ns = ls_clock_ns();
    progress->begun_steps = state->epoch.steps;
    progress->drawn_ns = 0;
    if (progress->bar)
        fprintf(progress->stream, "Epoch %llu/%llu\n", (unsigned long long)state->epoch.epoch,
                (unsigned long long)state->epochs);
    return LS_OK;
}

static void print_metrics(FILE *stream, const struct ls_metrics *metrics)
{
    for (uint32_t i = 0; i < metrics->count; i++)
        if (!isnan(metrics->list[i].value))
            fprintf(stream, " - %s: %.4f", metrics->list[i].name, metrics->list[i].value);
}

// ---- The bar ----

// A line that may still lose parts, until it fits.
struct bar {
    uint32_t letters; // between its brackets; 0: no bar
    bool speed, left;
    uint32_t metrics;
};

// What a step of this epoch took in this process, in seconds.
static double step_seconds(const struct ls_progress *progress, const struct ls_fit_state *state,
                           uint64_t now)
{
    return (double)(now - progress->begun_ns) * 1e-9 /
           (double)(state->epoch.steps - progress->begun_steps);
}

static int put_speed(char *text, size_t room, double seconds)
{
    if (seconds >= 1)
        return snprintf(text, room, " - %.2f s/step", seconds);
    if (seconds >= 1e-3)
        return snprintf(text, room, " - %.0f ms/step", seconds * 1e3);
    return snprintf(text, room, " - %.0f us/step", seconds * 1e6);
}

static size_t put_count(char *line, const struct ls_fit_state *state, uint32_t letters)
{
    char bar[BAR_LETTERS + 1] = "";
    const uint64_t done = state->epoch.steps;
    const uint64_t total = state->epoch_steps ? state->epoch_steps : 1;
    const uint64_t filled = done >= total ? letters : done * letters / total;
    memset(bar, '.', letters);
    memset(bar, '=', filled);
    if (filled && filled < letters)
        bar[filled - 1] = '>';
    return (size_t)snprintf(line, LINE_BYTES, "%llu/%llu%s%s%s", (unsigned long long)done,
                            (unsigned long long)state->epoch_steps, letters ? " [" : "", bar,
                            letters ? "]" : "");
}

static size_t put_line(char *line, const struct ls_fit_state *state, const struct bar *bar,
                       double seconds)
{
    const struct ls_metrics *metrics = &state->epoch.metrics;
    size_t used = put_count(line, state, bar->letters);
    if (bar->speed)
        used += (size_t)put_speed(line + used, LINE_BYTES - used, seconds);
    if (bar->left)
        used += (size_t)snprintf(line + used, LINE_BYTES - used, " - %.0f s left",
                                 seconds * (double)(state->epoch_steps - state->epoch.steps));
    for (uint32_t i = 0; i < bar->metrics && used < LINE_BYTES; i++)
        if (!isnan(metrics->list[i].value))
            used += (size_t)snprintf(line + used, LINE_BYTES - used, " - %s: %.4f",
                                     metrics->list[i].name, metrics->list[i].value);
    return used;
}

// A line that begins a second one could not be wiped away. What matters least goes first.
static void fit_line(char *line, const struct ls_fit_state *state, double seconds, size_t columns)
{
    struct bar bar = {BAR_LETTERS, true, true, state->epoch.metrics.count};
    for (size_t length; (length = put_line(line, state, &bar, seconds)) >= columns;) {
        const size_t excess = length + 1 - columns;
        if (bar.letters >= BAR_LEAST + excess)
            bar.letters -= (uint32_t)excess;
        else if (bar.letters)
            bar.letters = 0;
        else if (bar.left)
            bar.left = false;
        else if (bar.speed)
            bar.speed = false;
        else if (bar.metrics)
            bar.metrics--;
        else {
            line[columns - 1] = '\0';
            return;
        }
    }
}

// Now, as the terminal may have changed.
static size_t columns_of(const struct ls_progress *progress)
{
    struct winsize size = {0};
    const bool known = ioctl(fileno(progress->stream), TIOCGWINSZ, &size) == 0 && size.ws_col;
    return !known ? USUAL_COLUMNS : size.ws_col < LINE_BYTES ? size.ws_col : LINE_BYTES;
}

static void draw(struct ls_progress *progress, const struct ls_fit_state *state, uint64_t now)
{
    char line[LINE_BYTES];
    fit_line(line, state, step_seconds(progress, state, now), columns_of(progress));
    fprintf(progress->stream, "\r\033[K%s", line);
    fflush(progress->stream);
    progress->open = true;
    progress->drawn_ns = now;
}

// ---- Lines that stay ----

static void wipe(struct ls_progress *progress)
{
    if (progress->open)
        fputs("\r\033[K", progress->stream);
    progress->open = false;
}

static void log_step(struct ls_progress *progress, const struct ls_fit_state *state, uint64_t now)
{
    const struct ls_epoch *epoch = &state->epoch;
    char speed[64];
    put_speed(speed, sizeof(speed), step_seconds(progress, state, now));
    wipe(progress);
    fprintf(progress->stream, "Epoch %llu/%llu - step %llu/%llu%s",
            (unsigned long long)epoch->epoch, (unsigned long long)state->epochs,
            (unsigned long long)epoch->steps, (unsigned long long)state->epoch_steps, speed);
    print_metrics(progress->stream, &epoch->metrics);
    fputc('\n', progress->stream);
    fflush(progress->stream);
}

static enum ls_status on_train_batch_end(void *context, const struct ls_fit_state *state)
{
    struct ls_progress *progress = context;
    const uint64_t now = ls_clock_ns();
    const bool logs = progress->log_every && state->steps_done % progress->log_every == 0;
    const bool draws = progress->bar && now - progress->drawn_ns >= REDRAW_NS;
    if (!logs && !draws)
        return LS_OK;
    flockfile(progress->stream); // whole against the message of another thread
    if (logs)
        log_step(progress, state, now);
    if (draws)
        draw(progress, state, now);
    funlockfile(progress->stream);
    return LS_OK;
}

// It is not redrawn, so it may take two lines, except for the bar.
static void print_bar(const struct ls_progress *progress, const struct ls_fit_state *state)
{
    char line[LINE_BYTES], speed[64];
    const struct ls_epoch *epoch = &state->epoch;
    const size_t around = put_count(line, state, 0) + strlen(" []"), columns = columns_of(progress);
    const size_t room = columns > around ? columns - around - 1 : 0;
    put_count(line, state,
              room < BAR_LEAST     ? 0
              : room < BAR_LETTERS ? (uint32_t)room
                                   : BAR_LETTERS);
    fprintf(progress->stream, "\r\033[K%s - %.2f s", line, epoch->seconds);
    if (epoch->seconds > 0 && epoch->steps) {
        put_speed(speed, sizeof(speed), epoch->seconds / (double)epoch->steps);
        fputs(speed, progress->stream);
    }
}

static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    struct ls_progress *progress = context;
    const struct ls_epoch *epoch = &state->epoch;
    if (progress->quiet)
        return LS_OK;
    flockfile(progress->stream);
    if (progress->bar)
        print_bar(progress, state);
    else
        fprintf(progress->stream, "Epoch %llu/%llu - %llu step%s - %.2f s",
                (unsigned long long)epoch->epoch, (unsigned long long)state->epochs,
                (unsigned long long)epoch->steps, epoch->steps == 1 ? "" : "s", epoch->seconds);
    if (epoch->seconds > 0)
        fprintf(progress->stream, " - %.0f examples/s", (double)epoch->examples / epoch->seconds);
    print_metrics(progress->stream, &epoch->metrics);
    fputc('\n', progress->stream);
    fflush(progress->stream);
    progress->open = false;
    funlockfile(progress->stream);
    return LS_OK;
}

void ls_progress_clear(struct ls_progress *progress)
{
    flockfile(progress->stream);
    if (progress->open) {
        wipe(progress);
        fflush(progress->stream);
    }
    funlockfile(progress->stream);
}

void ls_progress_finish(struct ls_progress *progress)
{
    ls_progress_clear(progress);
    if (shown != progress)
        return;
    shown = NULL;
    ls_log_set_before(NULL); // waits for a message that is being written
}

static enum ls_status on_train_end(void *context, const struct ls_fit_state *state)
{
    (void)state;
    ls_progress_clear(context);
    return LS_OK;
}

struct ls_callbacks ls_progress_callbacks(struct ls_progress *progress)
{
    return (struct ls_callbacks){
        .context = progress,
        .on_epoch_begin = on_epoch_begin,
        .on_train_batch_end = progress->bar || progress->log_every ? on_train_batch_end : NULL,
        .on_epoch_end = on_epoch_end,
        .on_train_end = on_train_end,
    };
}
