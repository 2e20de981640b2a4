// SPDX-License-Identifier: Apache-2.0
// What a person sees: one line an epoch in a file or a pipe, a bar on a terminal, nothing when quiet.
#define _XOPEN_SOURCE 700 // pseudo-terminals
#include "core/base/log.h"
#include "core/report/progress.h"
#include "tests/support/suite.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
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
    ls_progress_init(&progress, file, quiet);
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

START_TEST(without_a_terminal_steps_print_nothing_and_an_epoch_one_line)
{
    FILE *file = tmpfile();
    begin(file, false, 3, 2, 1000);
    ck_assert(!progress.terminal);
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
END_TEST

START_TEST(values_that_are_not_measured_are_not_shown)
{
    FILE *file = tmpfile();
    begin(file, false, 1, 1, 1);
    end(1, 0, 64, &loss_alone); // and no rate in no time
    ck_assert_str_eq(shown_in(file),
                     "Epoch 1/1 - 1 steps - 0.00 s - loss: 0.5000 - val_loss: 0.7500\n");
    fclose(file);
}
END_TEST

START_TEST(quiet_prints_nothing)
{
    FILE *file = tmpfile();
    begin(file, true, 1, 1, 10);
    step(5);
    end(10, 1, 64, &both);
    ls_progress_finish(&progress);
    ck_assert_str_eq(shown_in(file), "");
    fclose(file);
}
END_TEST

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
    ck_assert(progress.terminal);
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
    Suite *suite = suite_create("core/report/progress");
    TCase *cases = tcase_create("progress");
    tcase_add_test(cases, without_a_terminal_steps_print_nothing_and_an_epoch_one_line);
    tcase_add_test(cases, values_that_are_not_measured_are_not_shown);
    tcase_add_test(cases, quiet_prints_nothing);
    FILE *terminal = open_terminal();
    if (terminal) {
        tcase_add_test(cases, a_terminal_shows_a_bar_and_is_not_flooded);
        tcase_add_test(cases, a_message_clears_the_bar_first);
        fclose(terminal);
        close(master);
    } else {
        printf("SKIP: two tests of the bar: there are no pseudo-terminals here\n");
    }
    suite_add_tcase(suite, cases);
    return test_suite_run(suite);
}
