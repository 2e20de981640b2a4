// SPDX-License-Identifier: Apache-2.0
// What a person sees: one line an epoch in a file or a pipe, a bar on a terminal, nothing when quiet.
#define _GNU_SOURCE // pseudo-terminals, struct winsize
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/report/progress.h"
#include "tests/support/suite.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const struct ls_metrics training = {2, {{"loss", 0.5}, {"accuracy", 0.25}}};
static const struct ls_metrics both = {
    4, {{"loss", 0.5}, {"accuracy", 0.25}, {"val_loss", 0.75}, {"val_accuracy", 0.125}}};
static const struct ls_metrics loss_alone = {
    3, {{"loss", 0.5}, {"accuracy", NAN}, {"val_loss", 0.75}}};

static struct ls_progress progress;
static struct ls_callbacks shows;
static struct ls_fit_state state;

static void begin(FILE *file, bool quiet, uint64_t epochs, uint64_t epoch, uint64_t epoch_steps)
{
    ls_progress_init(&progress, file, quiet ? LS_PROGRESS_NONE : LS_PROGRESS_BAR, 0);
    shows = ls_progress_callbacks(&progress);
    state = (struct ls_fit_state){
        .epochs = epochs, .epoch_steps = epoch_steps, .epoch = {.epoch = epoch}};
    ck_assert_int_eq(shows.on_epoch_begin(shows.context, &state), LS_OK);
}

static void step(uint64_t done)
{
    state.epoch.steps = done;
    state.epoch.metrics = training;
    if (shows.on_train_batch_end)
        ck_assert_int_eq(shows.on_train_batch_end(shows.context, &state), LS_OK);
}

static void end(uint64_t steps, double seconds, uint64_t examples, const struct ls_metrics *metrics)
{
    state.epoch.steps = steps;
    state.epoch.seconds = seconds;
    state.epoch.examples = examples;
    state.epoch.metrics = *metrics;
    ck_assert_int_eq(shows.on_epoch_end(shows.context, &state), LS_OK);
}

static char shown[65536];

static const char *shown_in(FILE *file)
{
    rewind(file);
    shown[fread(shown, 1, sizeof(shown) - 1, file)] = '\0';
    return shown;
}

static unsigned lines(const char *text)
{
    unsigned count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

TEST(without_a_terminal_steps_print_nothing_and_an_epoch_one_line)
{
    FILE *file = tmpfile();
    begin(file, false, 3, 2, 1000);
    ck_assert(!progress.bar);
    for (uint64_t i = 1; i <= 1000; i++)
        step(i);
    ls_progress_clear(&progress);
    fflush(file);
    ck_assert_int_eq(ftell(file), 0);
    end(1000, 2, 64000, &both);
    ls_progress_finish(&progress);
    ck_assert_str_eq(shown_in(file), "Epoch 2/3 - 1000 steps - 2.00 s - 32000 examples/s - loss: "
                                     "0.5000 - accuracy: 0.2500 - val_loss: 0.7500 - "
                                     "val_accuracy: 0.1250\n");
    fclose(file);
}

TEST(values_that_are_not_measured_are_not_shown)
{
    FILE *file = tmpfile();
    begin(file, false, 1, 1, 1);
    end(1, 0, 64, &loss_alone); // and no rate in no time
    ck_assert_str_eq(shown_in(file),
                     "Epoch 1/1 - 1 step - 0.00 s - loss: 0.5000 - val_loss: 0.7500\n");
    fclose(file);
}

TEST(quiet_prints_nothing)
{
    FILE *file = tmpfile();
    begin(file, true, 1, 1, 10);
    step(5);
    end(10, 1, 64, &both);
    ls_progress_finish(&progress);
    ck_assert_str_eq(shown_in(file), "");
    fclose(file);
}

// ---- A terminal ----

static int master;

// NULL: there are none here.
static FILE *open_terminal(void)
{
    master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master))
        return NULL;
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    return slave < 0 ? NULL : fdopen(slave, "w");
}

static const char *shown_on_terminal(void)
{
    struct pollfd ready = {.fd = master, .events = POLLIN};
    size_t length = 0;
    while (poll(&ready, 1, 100) > 0 && (ready.revents & POLLIN)) {
        const ssize_t got = read(master, shown + length, sizeof(shown) - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    shown[length] = '\0';
    return shown;
}

START_TEST(a_terminal_shows_a_bar_and_is_not_flooded)
{
    FILE *terminal = open_terminal();
    begin(terminal, false, 1, 1, 100000);
    ck_assert(progress.bar);
    for (uint64_t i = 1; i <= 1000; i++)
        step(i);
    const char *text = shown_on_terminal();
    ck_assert_ptr_nonnull(strstr(text, "Epoch 1/1"));
    ck_assert_ptr_nonnull(strstr(text, "/100000 ["));
    ck_assert_ptr_nonnull(strstr(text, "s left - loss: 0.5000 - accuracy: 0.2500"));
    ck_assert_uint_lt(strlen(text), 1000 * 20); // not a bar a step
    end(100000, 1, 64, &both);
    text = shown_on_terminal();
    ck_assert_ptr_nonnull(strstr(text, "100000/100000 [==============================] - 1.00 s"));
    ck_assert_uint_eq(lines(text), 1);
    ls_progress_finish(&progress);
    fclose(terminal);
    close(master);
}
END_TEST

// The lines that were drawn over each other, without the one that stays.
static size_t longest_drawn(const char *text)
{
    size_t longest = 0;
    for (const char *drawn = strstr(text, "\r\033[K"); drawn; drawn = strstr(drawn, "\r\033[K")) {
        drawn += strlen("\r\033[K");
        const size_t length = strcspn(drawn, "\r\n");
        if (drawn[length] != '\n' && length > longest)
            longest = length;
    }
    return longest;
}

static void resize(unsigned short columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    ck_assert_int_eq(ioctl(master, TIOCSWINSZ, &size), 0);
}

static const char *redraw(uint64_t done)
{
    progress.drawn_ns = 0; // not one in ten a second
    step(done);
    return shown_on_terminal();
}

START_TEST(the_bar_fits_as_the_terminal_changes)
{
    FILE *terminal = open_terminal();
    resize(120);
    begin(terminal, false, 1, 1, 1000);
    const char *text = redraw(500);
    ck_assert_ptr_nonnull(strstr(text, "\r\033[K500/1000 [==============>...............] - "));
    ck_assert_ptr_nonnull(strstr(text, "s/step - "));
    ck_assert_ptr_nonnull(strstr(text, "s left - loss: 0.5000 - accuracy: 0.2500"));
    static const unsigned short widths[] = {100, 70, 60, 48, 40, 30, 25, 20, 12, 9, 2, 1};
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        const unsigned short columns = widths[i];
        resize(columns);
        text = redraw(501);
        ck_assert_ptr_nonnull(strstr(text, "\r\033[K"));
        ck_assert_uint_lt(longest_drawn(text), columns);
        if (columns > 24) { // the count and the loss stay longest
            ck_assert_ptr_nonnull(strstr(text, "501/1000"));
            ck_assert_ptr_nonnull(strstr(text, " - loss: 0.5000"));
        }
    }
    resize(20);
    ck_assert_str_eq(redraw(502), "\r\033[K502/1000");
    end(1000, 2, 64000, &both); // it stays, and is not redrawn: all figures
    ck_assert_str_eq(shown_on_terminal(),
                     "\r\033[K1000/1000 - 2.00 s - 2 ms/step - 32000 examples/s - loss: "
                     "0.5000 - accuracy: 0.2500 - val_loss: 0.7500 - val_accuracy: 0.1250\r\n");
    ls_progress_finish(&progress);
    fclose(terminal);
    close(master);
}
END_TEST

START_TEST(lines_where_no_bar_can_be_or_is_asked_for)
{
    for (int dumb = 0; dumb < 2; dumb++) {
        FILE *terminal = open_terminal();
        setenv("TERM", dumb ? "dumb" : "xterm", 1);
        ls_progress_init(&progress, terminal, dumb ? LS_PROGRESS_BAR : LS_PROGRESS_LINES, 0);
        shows = ls_progress_callbacks(&progress);
        ck_assert(!progress.bar);
        state = (struct ls_fit_state){.epochs = 1, .epoch_steps = 10, .epoch = {.epoch = 1}};
        ck_assert_int_eq(shows.on_epoch_begin(shows.context, &state), LS_OK);
        step(5);
        end(10, 1, 640, &training);
        ck_assert_str_eq(shown_on_terminal(), "Epoch 1/1 - 10 steps - 1.00 s - 640 examples/s - "
                                              "loss: 0.5000 - accuracy: 0.2500\r\n");
        ls_progress_finish(&progress);
        fclose(terminal);
        close(master);
    }
}
END_TEST

START_TEST(steps_are_logged_above_the_bar)
{
    FILE *terminal = open_terminal();
    setenv("TERM", "xterm", 1);
    ls_progress_init(&progress, terminal, LS_PROGRESS_BAR, 3);
    shows = ls_progress_callbacks(&progress);
    state = (struct ls_fit_state){.epochs = 2, .epoch_steps = 10, .epoch = {.epoch = 2}};
    ck_assert_int_eq(shows.on_epoch_begin(shows.context, &state), LS_OK);
    (void)redraw(2);
    state.steps_done = 13; // in the epoch it is the third
    progress.drawn_ns = ls_clock_ns();
    step(3);
    ck_assert_str_eq(shown_on_terminal(), "");
    state.steps_done = 15;
    progress.begun_ns = ls_clock_ns() - UINT64_C(10000000000); // ten seconds
    step(5);
    const char *text = shown_on_terminal();
    ck_assert_ptr_nonnull(strstr(text,
                                 "\r\033[KEpoch 2/2 - step 5/10 - 2.00 s/step - loss: 0.5000 - "
                                 "accuracy: 0.2500\r\n"));
    ls_progress_finish(&progress);
    fclose(terminal);
    close(master);
}
END_TEST

START_TEST(a_message_clears_the_bar_first)
{
    FILE *terminal = open_terminal();
    ls_log_set_writer(NULL, NULL);
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
    begin(terminal, false, 1, 1, 100);
    step(1);
    ck_assert(progress.open);
    (void)shown_on_terminal();
    ls_warn("test", "something to say");
    ck_assert(!progress.open);
    ck_assert_str_eq(shown_on_terminal(), "\r\033[K");
    ls_warn("test", "and more");
    ck_assert_str_eq(shown_on_terminal(), "");
    ls_progress_finish(&progress);
    progress.open = true;
    ls_warn("test", "nobody listens any more");
    ck_assert(progress.open);
    fclose(terminal);
    close(master);
}
END_TEST

int main(void)
{
    FILE *terminal = open_terminal();
    if (terminal) {
        tcase_add_test(test_registered(), a_terminal_shows_a_bar_and_is_not_flooded);
        tcase_add_test(test_registered(), the_bar_fits_as_the_terminal_changes);
        tcase_add_test(test_registered(), lines_where_no_bar_can_be_or_is_asked_for);
        tcase_add_test(test_registered(), steps_are_logged_above_the_bar);
        tcase_add_test(test_registered(), a_message_clears_the_bar_first);
        fclose(terminal);
        close(master);
    } else {
        printf("SKIP: five tests of the bar: there are no pseudo-terminals here\n");
    }
    return test_suite_run("core/report/progress");
}
