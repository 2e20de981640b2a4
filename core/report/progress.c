// SPDX-License-Identifier: Apache-2.0
// The progress bar.
#include "core/report/progress.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <math.h>
#include <stdatomic.h>
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

void ls_progress_init(struct ls_progress *progress, FILE *stream, bool quiet)
{
    *progress = (struct ls_progress){
        .stream = stream, .terminal = isatty(fileno(stream)) == 1, .quiet = quiet};
    if (quiet || !progress->terminal)
        return;
    // One bar at a time: a second training in another thread prints lines, as to a file.
    struct ls_progress *none = NULL;
    progress->terminal = atomic_compare_exchange_strong(&shown, &none, progress);
    if (progress->terminal)
        ls_log_set_before(make_room);
}

static enum ls_status on_epoch_begin(void *context, const struct ls_fit_state *state)
{
    struct ls_progress *progress = context;
    progress->begun_ns = ls_clock_ns();
    progress->drawn_ns = 0;
    if (!progress->quiet && progress->terminal)
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

static void print_bar(const struct ls_progress *progress, const struct ls_fit_state *state)
{
    char bar[BAR_LETTERS + 1];
    const uint64_t done = state->epoch.steps;
    const uint64_t total = state->epoch_steps ? state->epoch_steps : 1;
    const uint64_t filled = done >= total ? BAR_LETTERS : done * BAR_LETTERS / total;
    memset(bar, '.', BAR_LETTERS);
    memset(bar, '=', filled);
    if (filled && filled < BAR_LETTERS)
        bar[filled - 1] = '>';
    bar[BAR_LETTERS] = '\0';
    fprintf(progress->stream, "\r\033[K%llu/%llu [%s]", (unsigned long long)done,
            (unsigned long long)state->epoch_steps, bar);
}

static enum ls_status on_train_batch_end(void *context, const struct ls_fit_state *state)
{
    struct ls_progress *progress = context;
    const uint64_t now = ls_clock_ns(), done = state->epoch.steps;
    if (now - progress->drawn_ns < REDRAW_NS)
        return LS_OK;
    progress->drawn_ns = now;
    flockfile(progress->stream); // whole against the message of another thread
    print_bar(progress, state);
    const double elapsed = (double)(now - progress->begun_ns) * 1e-9;
    const double left = elapsed / (double)done * (double)(state->epoch_steps - done);
    fprintf(progress->stream, " - %.0f s left", left);
    print_metrics(progress->stream, &state->epoch.metrics);
    fflush(progress->stream);
    progress->open = true;
    funlockfile(progress->stream);
    return LS_OK;
}

static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    struct ls_progress *progress = context;
    const struct ls_epoch *epoch = &state->epoch;
    if (progress->quiet)
        return LS_OK;
    flockfile(progress->stream);
    if (progress->terminal)
        print_bar(progress, state);
    else
        fprintf(progress->stream, "Epoch %llu/%llu - %llu steps", (unsigned long long)epoch->epoch,
                (unsigned long long)state->epochs, (unsigned long long)epoch->steps);
    fprintf(progress->stream, " - %.2f s", epoch->seconds);
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
        .on_train_batch_end = progress->terminal && !progress->quiet ? on_train_batch_end : NULL,
        .on_epoch_end = on_epoch_end,
        .on_train_end = on_train_end,
    };
}
