// SPDX-License-Identifier: Apache-2.0
// Messages are one line each, name rank and scope, and obey the level.
#include "core/base/inside.h"
#include "core/base/caller.h"
#include "core/base/log.h"
#include "core/base/option_words.h"
#include "core/base/threads.h"

#include "core/plugin/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lines {
    size_t count;
    uint32_t level;
    char last[8192];
};

static void remember(void *context, uint32_t level, const char *line)
{
    struct lines *lines = context;
    lines->count++;
    lines->level = level;
    strncpy(lines->last, line, sizeof(lines->last) - 1);
}

TEST(an_error_names_program_rank_and_scope)
{
    struct lines lines = {0};
    ls_log_set_writer(remember, &lines);
    ls_error("ring", "chunk %d of %s", 3, "four");
    ck_assert_str_eq(lines.last, "lockstep: error: ring: chunk 3 of four");
    ls_log_set_rank(2);
    ls_error("ring", "lost");
    ck_assert_str_eq(lines.last, "lockstep: error: [rank 2] ring: lost");
    ls_warn("ring", "late");
    ck_assert_str_eq(lines.last, "lockstep: warning: [rank 2] ring: late");
    ls_info("train", "of the whole training");
    ck_assert_str_eq(lines.last, "lockstep: train: of the whole training");
    ls_log_set_rank(-1);
    ls_warn("", "no scope");
    ck_assert_str_eq(lines.last, "lockstep: warning: no scope");
    ck_assert_uint_eq(lines.level, LS_LOG_WARN);
    ls_info(NULL, "no scope either");
    ck_assert_str_eq(lines.last, "lockstep: no scope either");
    ck_assert_uint_eq(lines.count, 6);
}

TEST(a_thread_can_keep_its_first_error)
{
    struct lines lines = {0};
    char *kept = NULL;
    ls_log_set_writer(remember, &lines);
    ls_log_keep(&kept);
    ls_warn("x", "written at once");
    ls_error("x", "first");
    ls_error("x", "second");
    ls_log_keep(NULL);
    ck_assert_uint_eq(lines.count, 1);
    ls_log_write_kept(&kept);
    ls_log_write_kept(&kept);
    ck_assert_str_eq(lines.last, "lockstep: error: x: first");
    ck_assert_uint_eq(lines.count, 2);
    ck_assert_ptr_null(kept);
}

static void *fail_twice(void *argument)
{
    (void)argument;
    ls_error("there", "one");
    ls_error("there", "two");
    return (void *)(uintptr_t)ls_thread_reasons();
}

TEST(errors_are_counted_and_the_last_one_is_known)
{
    struct lines lines = {0};
    char *kept = NULL, text[32];
    void *others;
    pthread_t thread;
    ls_caller_last_error(text, sizeof(text));
    ck_assert_str_eq(text, "");
    ls_log_set_writer(remember, &lines);
    ls_warn("x", "no error");
    ck_assert_uint_eq(ls_log_errors(), 0);
    ls_log_keep(&kept);
    ls_error("x", "kept");
    ls_log_keep(NULL);
    ck_assert_uint_eq(ls_log_errors(), 0); // not written yet
    ck_assert_uint_eq(ls_thread_reasons(), 1);
    ck_assert_int_eq(ls_thread_start(&thread, "fails", fail_twice, NULL), LS_OK);
    pthread_join(thread, &others);
    ck_assert_uint_eq((uintptr_t)others, 2);
    ck_assert_uint_eq(ls_log_errors(), 2);
    ls_log_write_kept(&kept);
    ck_assert_uint_eq(ls_log_errors(), 3);
    ck_assert_uint_eq(ls_thread_reasons(), 1);
    ls_caller_last_error(text, sizeof(text));
    ck_assert_str_eq(text, "lockstep: error: x: kept");
    ls_caller_last_error(text, 9);
    ck_assert_str_eq(text, "lockstep");
}

TEST(messages_above_the_level_are_not_written)
{
    struct lines lines = {0};
    ls_log_set_writer(remember, &lines);
    ls_debug("x", "hidden");
    ck_assert_uint_eq(lines.count, 0);
    ls_log_set_level(LS_LOG_DEBUG);
    ls_debug("x", "seen");
    ck_assert_str_eq(lines.last, "lockstep: debug: x: seen");
    ls_log_set_level(LS_LOG_ERROR);
    ls_warn("x", "hidden");
    ls_log(LS_LOG_INFO, "x", "hidden");
    ck_assert_uint_eq(lines.count, 1);
    ck_assert_uint_eq(ls_log_level(), LS_LOG_ERROR);
}

TEST(a_message_stays_one_line_and_moves_no_cursor)
{
    struct lines lines = {0};
    ls_log_set_writer(remember, &lines);
    ls_log(LS_LOG_ERROR, "file", "a\nb\tc\x1b[2Jd%s");
    ck_assert_str_eq(lines.last, "lockstep: error: file: a b c?[2Jd%s");
}

TEST(a_long_message_is_whole)
{
    struct lines lines = {0};
    ls_log_set_writer(remember, &lines);
    char text[5001];
    memset(text, 'x', 5000);
    text[5000] = '\0';
    ls_error("long", "%s!", text);
    ck_assert_uint_eq(strlen(lines.last), strlen("lockstep: error: long: ") + 5001);
    ck_assert_int_eq(lines.last[strlen(lines.last) - 1], '!');
}

static int times_before;

static void count_before(void)
{
    times_before++;
}

TEST(a_line_on_stderr_ends_with_a_newline_after_the_hook)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    ls_log_set_before(count_before);
    ls_info("here", "text");
    char text[128] = "";
    ck_assert_int_gt(read(ends[0], text, sizeof(text) - 1), 0);
    ck_assert_str_eq(text, "lockstep: here: text\n");
    ck_assert_int_eq(times_before, 1);
}

static void *log_as_rank(void *argument)
{
    ls_log_set_rank(*(int32_t *)argument);
    for (int i = 0; i < 200; i++)
        ls_warn("thread", "message");
    return NULL;
}

static void check_line(void *context, uint32_t level, const char *line)
{
    (void)level;
    const char *rank = strstr(line, "[rank ");
    ck_assert_ptr_nonnull(rank);
    ((size_t *)context)[atoi(rank + 6)]++;
}

TEST(the_rank_is_each_threads_own_and_lines_do_not_mix)
{
    size_t counts[4] = {0};
    int32_t ranks[4] = {0, 1, 2, 3};
    pthread_t threads[4];
    ls_log_set_writer(check_line, counts);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_as_rank, &ranks[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(counts[i], 200);
}

TEST(options_are_named_as_the_caller_does)
{
    static const struct {
        const char *scope, *text, *c, *python;
    } rows[] = {
        {"--strategy", "no 'ring'", "strategy: no 'ring'", "strategy: no 'ring'"},
        {"--batch", "too large", "batch: too large", "batch_size: too large"},
        {"a", "raise --deadline", "a: raise deadline_seconds", "a: raise deadline_seconds"},
        {"a", "raise --deadline, or", "a: raise deadline_seconds, or",
         "a: raise deadline_seconds, or"},
        {"a", "use --strategy=mirrored or --loss-scale=none",
         "a: use .strategy = \"mirrored\" or .loss_scale = \"none\"",
         "a: use strategy=\"mirrored\" or loss_scale=\"none\""},
        {"a", "--elastic=1:2, but --share=2: two; (--batch=64) --replicas=N.",
         "a: .elastic = \"1:2\", but .share = \"2\": two; (.batch = 64) .replicas = N.",
         "a: elastic=\"1:2\", but share=\"2\": two; (batch_size=64) replicas=N."},
        {"a", "--verbose says why; --insecure", "a: .verbose = 1 says why; .insecure = 1",
         "a: verbose=1 says why; insecure=1"},
        {"a", "--save-weights=FILE.keras writes it",
         "a: ls_save_weights(model, \"FILE.keras\") writes it",
         "a: save_weights(\"FILE.keras\") writes it"},
        {"a", "give --model= the JSON, and --initial-weights= this",
         "a: give model the JSON, and ls_load_weights this",
         "a: give model the JSON, and load_weights this"},
        {"a", "see --timeline-steps", "a: see timeline_first and timeline_last",
         "a: see timeline_first and timeline_last"},
        {"a", "see --timeline-steps=3:4, --timeline-steps=FIRST:LAST.",
         "a: see .timeline_first = 3 and .timeline_last = 4, .timeline_first = FIRST and "
         ".timeline_last = LAST.",
         "a: see timeline_first=3 and timeline_last=4, timeline_first=FIRST and "
         "timeline_last=LAST."},
        {"a", "--resume goes on; --verbose=1", "a: .resume = 1 goes on; .verbose = 1",
         "a: checkpoints={'folder': ..., 'resume': True} goes on; verbose=1"},
        {"a", "a model's seed (--seed=)", "a: a model's seed (seed)", "a: a model's seed (seed)"},
        // What is somebody's own stays.
        {"a", "'--seed=1' and \"--batch=2\" and `--batch` in 'it's --batch'", NULL, NULL},
        {"a", "/tmp/--batch/x, x--batch, --batchy, --, --=, --no-option=1", NULL, NULL},
        {"a", "lockstep verify ring --world=2 --wire shows it", NULL, NULL},
        {"a", "write one with lockstep bench --replicas=2 --tune=FILE; --wire",
         "a: write one with lockstep bench --replicas=2 --tune=FILE; wire",
         "a: write one with lockstep bench --replicas=2 --tune=FILE; wire"},
        {"a", "leave --servers out; torchrun --no-python", NULL, NULL},
        // It is not known where a value ends, or no field takes it.
        {"a", "--strategy='a b' --report=\"a b\" --loss=`x` --share=2' --seed=1\"", NULL, NULL},
        {"a", "--optimizer=sgd(momentum=0.9) (--loss=huber(delta=1))", NULL, NULL},
        {"a", "--loss={\"class_name\": \"Huber\"} --metrics=[\"auc\"] --wire=x[0]", NULL, NULL},
        {"a", "--resume=no, --verbose=off, --verbose=10, --insecure=", NULL, NULL},
        {"a", "--timeline-steps=3, --timeline-steps=:4", NULL, NULL},
        {"a", "the replicas' --batch isn't 'x'", "a: the replicas' batch isn't 'x'",
         "a: the replicas' batch_size isn't 'x'"},
    };
    struct lines lines = {0};
    ls_log_set_writer(remember, &lines);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char as_it_is[300];
        snprintf(as_it_is, sizeof(as_it_is), "%s: %s", rows[i].scope, rows[i].text);
        const char *expected[] = {as_it_is, rows[i].c ? rows[i].c : as_it_is,
                                  rows[i].python ? rows[i].python : as_it_is};
        for (int words = LS_WORDS_COMMAND; words <= LS_WORDS_PYTHON; words++) {
            ls_option_words_set((enum ls_option_words)words);
            ls_error(rows[i].scope, "%s", rows[i].text);
            ck_assert_str_eq(lines.last + strlen("lockstep: error: "), expected[words]);
            char last[300];
            ls_caller_last_error(last, sizeof(last));
            ck_assert_str_eq(last, lines.last);
        }
    }
    ls_option_words_set(LS_WORDS_COMMAND);
}

TEST(a_kept_line_and_a_long_one_are_in_the_words_of_the_caller)
{
    struct lines lines = {0};
    char *kept = NULL, text[5000], expected[12000] = "lockstep: error: a:";
    for (size_t i = 0; i < 300; i++) {
        strcpy(text + 6 * i, "--out ");
        strcat(expected, " ls_predict_to_file");
    }
    text[6 * 300 - 1] = '\0';
    ls_log_set_writer(remember, &lines);
    ls_option_words_set(LS_WORDS_C);
    ls_log_keep(&kept);
    ls_error("a", "%s", text);
    ls_log_keep(NULL);
    ck_assert_uint_eq(lines.count, 0);
    ls_log_write_kept(&kept);
    ls_option_words_set(LS_WORDS_COMMAND);
    ck_assert_uint_eq(lines.count, 1);
    ck_assert_str_eq(lines.last, expected);
}
