// SPDX-License-Identifier: Apache-2.0
// The progress bar.
#include "core/report/progress.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define BAR_LETTERS 30
#define REDRAW_NS UINT64_C(100000000)

// The bar that messages make room on. The log calls back under its own lock.
static struct ls_progress *_Atomic shown;

static void make_room(void)
{
    struct ls_progress *progress = shown;
    if (progress)
        ls_progress_clear(progress);
}

void ls_progress_init(struct ls_progress *progress, FILE *stream, bool quiet, uint64_t epochs)
{
    *progress = (struct ls_progress){.stream = stream,
                                     .terminal = isatty(fileno(stream)) == 1,
                                     .quiet = quiet,
                                     .epochs = epochs};
    if (quiet || !progress->terminal)
        return;
    shown = progress;
    ls_log_set_before(make_room);
}

void ls_progress_begin(struct ls_progress *progress, uint64_t epoch, uint64_t epoch_steps)
{
    progress->epoch = epoch;
    progress->epoch_steps = epoch_steps;
    progress->begun_ns = ls_clock_ns();
    progress->drawn_ns = 0;
    if (!progress->quiet && progress->terminal)
        fprintf(progress->stream, "Epoch %llu/%llu\n", (unsigned long long)epoch,
                (unsigned long long)progress->epochs);
}

static void print_metrics(FILE *stream, const struct ls_metrics *metrics)
{
    for (uint32_t i = 0; i < metrics->count; i++)
        if (!isnan(metrics->list[i].value))
            fprintf(stream, " - %s: %.4f", metrics->list[i].name, metrics->list[i].value);
}

static void print_bar(const struct ls_progress *progress, uint64_t done)
{
    char bar[BAR_LETTERS + 1];
    const uint64_t total = progress->epoch_steps ? progress->epoch_steps : 1;
    const uint64_t filled = done >= total ? BAR_LETTERS : done * BAR_LETTERS / total;
    memset(bar, '.', BAR_LETTERS);
    memset(bar, '=', filled);
    if (filled && filled < BAR_LETTERS)
        bar[filled - 1] = '>';
    bar[BAR_LETTERS] = '\0';
    fprintf(progress->stream, "\r\033[K%llu/%llu [%s]", (unsigned long long)done,
            (unsigned long long)progress->epoch_steps, bar);
}

void ls_progress_step(struct ls_progress *progress, uint64_t done, const struct ls_metrics *metrics)
{
    if (progress->quiet || !progress->terminal)
        return;
    const uint64_t now = ls_clock_ns();
    if (now - progress->drawn_ns < REDRAW_NS)
        return;
    progress->drawn_ns = now;
    flockfile(progress->stream); // whole against the message of another thread
    print_bar(progress, done);
    const double elapsed = (double)(now - progress->begun_ns) * 1e-9;
    const double left = elapsed / (double)done * (double)(progress->epoch_steps - done);
    fprintf(progress->stream, " - %.0f s left", left);
    print_metrics(progress->stream, metrics);
    fflush(progress->stream);
    progress->open = true;
    funlockfile(progress->stream);
}

void ls_progress_end(struct ls_progress *progress, uint64_t done, double seconds, uint64_t examples,
                     const struct ls_metrics *metrics)
{
    if (progress->quiet)
        return;
    flockfile(progress->stream);
    if (progress->terminal)
        print_bar(progress, done);
    else
        fprintf(progress->stream, "Epoch %llu/%llu - %llu steps",
                (unsigned long long)progress->epoch, (unsigned long long)progress->epochs,
                (unsigned long long)done);
    fprintf(progress->stream, " - %.2f s", seconds);
    if (seconds > 0)
        fprintf(progress->stream, " - %.0f examples/s", (double)examples / seconds);
    print_metrics(progress->stream, metrics);
    fputc('\n', progress->stream);
    fflush(progress->stream);
    progress->open = false;
    funlockfile(progress->stream);
}

void ls_progress_clear(struct ls_progress *progress)
{
    flockfile(progress->stream);
    if (progress->open) {
        fputs("\r\033[K", progress->stream);
        fflush(progress->stream);
        progress->open = false;
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
