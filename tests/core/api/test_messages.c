// SPDX-License-Identifier: Apache-2.0
// Where messages go, the last error, and what is written to stdout: nothing, unless it was asked for.
#include "core/base/threads.h"
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <pthread.h>

#define HERE "synthetic:shape=4x4x1,examples=20"

static struct lines {
    unsigned count;
    uint32_t level;
    char last[1024];
    char seen[1024]; // what ls_last_error() said at that moment
} lines;

static void hear(void *context, uint32_t level, const char *line)
{
    struct lines *heard = context;
    heard->count++;
    heard->level = level;
    snprintf(heard->last, sizeof(heard->last), "%s", line);
    snprintf(heard->seen, sizeof(heard->seen), "%s", ls_last_error());
}

// Lets `file` (1: stdout) go into a file, and gives the number that brings it back.
static int redirect(int file, const char *path)
{
    const int kept = dup(file), other = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    fflush(NULL);
    ck_assert(kept >= 0 && other >= 0 && dup2(other, file) >= 0);
    close(other);
    return kept;
}

static void bring_back(int file, int kept)
{
    fflush(NULL);
    ck_assert_int_ge(dup2(kept, file), 0);
    close(kept);
}

static void read_file(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

TEST(lines_go_to_the_function_that_was_given)
{
    char path[] = "/tmp/lockstep-messages-XXXXXX", text[1024];
    struct ls_run *run = NULL;
    close(mkstemp(path));
    const int kept = redirect(STDERR_FILENO, path);
    ck_assert_str_eq(ls_last_error(), "");
    ls_set_log(hear, &lines);
    ck_assert_int_eq(ls_run_open(&(struct ls_run_options){.strategy = "rings"}, &run),
                     LS_UNAVAILABLE);
    ck_assert_uint_eq(lines.count, 1);
    ck_assert_uint_eq(lines.level, LS_LOG_ERROR);
    ck_assert_ptr_nonnull(strstr(lines.last, "lockstep: error: "));
    ck_assert_ptr_nonnull(strstr(lines.last, "rings"));
    ck_assert_ptr_null(strchr(lines.last, '\n'));
    ck_assert_str_eq(ls_last_error(), lines.last);
    ck_assert_str_eq(lines.seen, lines.last);
    ls_set_log(NULL, NULL);
    ck_assert_int_eq(ls_run_open(&(struct ls_run_options){.device = "abacus"}, &run),
                     LS_UNAVAILABLE);
    bring_back(STDERR_FILENO, kept);
    read_file(path, text, sizeof(text));
    unlink(path);
    ck_assert_uint_eq(lines.count, 1);
    ck_assert_ptr_null(strstr(text, "rings"));
    ck_assert_ptr_nonnull(strstr(text, "abacus"));
    ck_assert_ptr_nonnull(strstr(ls_last_error(), "abacus"));
}

static void *fail_elsewhere(void *argument)
{
    ls_error("other", "%s", (const char *)argument);
    return NULL;
}

TEST(the_last_error_is_of_any_thread_of_lockstep_and_stays_until_it_is_asked_for_again)
{
    char longest[3000];
    pthread_t thread;
    ls_set_log(hear, &lines);
    ls_error("here", "first");
    const char *first = ls_last_error();
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    OK(ls_thread_start(&thread, "fails", fail_elsewhere, longest));
    pthread_join(thread, NULL);
    ck_assert_str_eq(first, "lockstep: error: here: first");
    ls_warn("here", "no error");
    ck_assert_uint_eq(strlen(ls_last_error()), 1023);
    ck_assert_int_eq(strncmp(ls_last_error(), "lockstep: error: other: xxx", 27), 0);
}

static void *fail_by_itself(void *argument)
{
    char *seen = argument; // before, and after an error of its own
    snprintf(seen, 100, "%s", ls_last_error());
    ls_error("there", "second");
    snprintf(seen + 100, 100, "%s", ls_last_error());
    return NULL;
}

TEST(another_thread_of_the_program_has_a_last_error_of_its_own)
{
    char seen[200];
    pthread_t thread;
    ls_set_log(hear, &lines);
    ls_error("here", "first");
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_by_itself, seen), 0);
    pthread_join(thread, NULL);
    ck_assert_str_eq(seen, "lockstep: error: here: first");
    ck_assert_str_eq(seen + 100, "lockstep: error: there: second");
    ck_assert_str_eq(ls_last_error(), "lockstep: error: here: first");
}

static size_t fit_and_measure_stdout(const struct ls_run_options *options, uint64_t progress,
                                     char *text, size_t bytes)
{
    char path[] = "/tmp/lockstep-messages-XXXXXX", timeline[] = "/tmp/lockstep-messages-XXXXXX";
    struct ls_run *run = NULL;
    close(mkstemp(path));
    close(mkstemp(timeline));
    const int kept = redirect(STDOUT_FILENO, path);
    OK(ls_run_open(options, &run));
    struct ls_model *model = model_of(run, "adam");
    struct ls_data *data = data_of(HERE, "train");
    OK(ls_fit(model, data,
              &(struct ls_fit_options){.epochs = 2, .timeline = timeline, .progress = progress}));
    ck_assert_int_eq(ls_fit(model, data, &(struct ls_fit_options){.progress = 7}), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(ls_last_error(), "expected 0, 1 (a bar) or 2 (lines), got 7"));
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    bring_back(STDOUT_FILENO, kept);
    read_file(path, text, bytes);
    unlink(path);
    unlink(timeline);
    return strlen(text);
}

TEST(nothing_is_printed_unless_it_was_asked_for)
{
    char text[4096];
    struct ls_run_options options = {.device = "reference", .threads = 1};
    ck_assert_uint_eq(fit_and_measure_stdout(NULL, 0, text, sizeof(text)), 0);
    ck_assert_uint_eq(fit_and_measure_stdout(&options, 0, text, sizeof(text)), 0);
    options.progress = 1;
    ck_assert_uint_gt(fit_and_measure_stdout(&options, 0, text, sizeof(text)), 0);
    ck_assert_ptr_nonnull(strstr(text, "on reference"));
    ck_assert_ptr_nonnull(strstr(text, "Epoch 2/2"));
    ck_assert_ptr_nonnull(strstr(text, "timeline: "));
    ck_assert_uint_gt(fit_and_measure_stdout(NULL, 2, text, sizeof(text)), 0); // of one fit
    ck_assert_ptr_nonnull(strstr(text, "Epoch 2/2"));
}
