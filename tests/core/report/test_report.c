// SPDX-License-Identifier: Apache-2.0
// The run report as other programs read it: JSON with null for what is no number, 9 digits, and a file that is whole
// or untouched.
#include "core/report/report.h"
#include "core/base/log.h"
#include "core/plugin/plugin.h"
#include "core/report/made.h"
#include "tests/support/errors.h"
#include "tests/support/suite.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[64], path[128];

static void set_up(void)
{
    snprintf(folder, sizeof(folder), "/tmp/lockstep-report-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/report.json", folder);
    forget_errors();
}

static void tear_down(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0); // nothing else was left behind
}

static const uint64_t shares[] = {3, 2}, hashes[] = {1, UINT64_C(0xfedcba9876543210)};

static struct ls_report small_report(void)
{
    return (struct ls_report){.command = "train",
                              .status = "done",
                              .strategy = "mirrored",
                              .device = "cpu",
                              .model = "cnn",
                              .replicas = 2,
                              .replica_batches = shares,
                              .parameter_hashes = hashes,
                              .startup_seconds = 0.25};
}

// The file as text; freed by the caller.
static char *read_text(void)
{
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    char *text = calloc(1, 1 << 20);
    const size_t length = fread(text, 1, (1 << 20) - 1, file);
    ck_assert_uint_gt(length, 0);
    ck_assert_int_eq(text[length - 1], '\n');
    fclose(file);
    return text;
}

static json_t *write_and_read(const struct ls_report *report)
{
    json_error_t error;
    ck_assert_int_eq(ls_report_write(path, report), LS_OK);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(root != NULL, "%s", error.text);
    return root;
}

TEST(every_member_is_there_even_when_nothing_is_known)
{
    static const char *const members[] = {"lockstep",
                                          "made",
                                          "command",
                                          "status",
                                          "strategy",
                                          "collective",
                                          "transport",
                                          "device",
                                          "hardware",
                                          "precision",
                                          "options",
                                          "plugins",
                                          "workers",
                                          "replicas",
                                          "seed",
                                          "threads_per_replica",
                                          "optimizer",
                                          "model",
                                          "parameters",
                                          "dataset",
                                          "global_batch",
                                          "steps",
                                          "epochs",
                                          "losses",
                                          "step_seconds",
                                          "replica_batches",
                                          "communication",
                                          "layout",
                                          "recording",
                                          "device_bytes",
                                          "startup_seconds",
                                          "parameter_hashes",
                                          "peak_rss_bytes",
                                          "arena_bytes"};
    const struct ls_report empty = {0};
    json_t *root = write_and_read(&empty);
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        ck_assert_msg(json_object_get(root, members[i]) != NULL, "%s", members[i]);
    ck_assert(json_is_null(json_object_get(root, "collective")));
    ck_assert_uint_eq(json_array_size(json_object_get(root, "parameter_hashes")), 0);
    json_decref(root);
}

TEST(what_is_not_known_of_its_making_is_left_out)
{
    const struct ls_report report = small_report();
    json_t *root = write_and_read(&report);
    json_t *made = json_object_get(root, "made");
    ck_assert_uint_eq(json_object_size(made), 2);
    ck_assert_uint_eq(strlen(json_string_value(json_object_get(made, "date"))), 20);
    ck_assert_uint_gt(strlen(json_string_value(json_object_get(made, "host"))), 0);
    json_decref(root);
}

// The words of a command line, and how a report has them.
static const struct {
    const char *words[5], *shown[4];
} command_lines[] = {
    {{"lockstep", "train", "--model=cnn"}, {"lockstep", "train", "--model=cnn"}},
    {{"--callback=mine:api_key=a,goal=1", "--callback=mine:goal=1,TOKEN=\"a,b\""},
     {"--callback=mine:api_key=***", "--callback=mine:goal=1,TOKEN=***"}},
    {{"a.py", "--password", "-p", "x"}, {"a.py", "--password", "***", "x"}},
    {{"a.py", "--use-token", "--x", "y"}, {"a.py", "--use-token", "--x", "y"}},
    {{"a.py", "password", "x", "--tokens=5"}, {"a.py", "password", "x", "--tokens=5"}},
    {{"--secret=", "--secret-file=a", "--mykey=\xff"},
     {"--secret=", "--secret-file=a", "--mykey=***"}},
    {{"https://me:a@b@host/x@y", "s3://k@bucket,http://@host"},
     {"https://***@y", "s3://***@bucket,http://***@host"}},
    {{"https://me:a/b?c#d@host/x", "https://host:1/x http://me@host"},
     {"https://***@host/x", "https://host:1/x http://***@host"}},
    {{"https://host/x?a=1&token=b", "\xff=1"}, {"https://host/x?a=1&token=***", "?=1"}},
    {{"a.py", "--db-pass=x", "compass=1,pass=x", "bypass=1"},
     {"a.py", "--db-pass=***", "compass=1,pass=***", "bypass=1"}},
    {{"sig=x", "mysig=1,userpwd=x", "https://host/x?X-Signature=a", "bearer=x"},
     {"sig=***", "mysig=1,userpwd=***", "https://host/x?X-Signature=***", "bearer=***"}},
};

TEST(a_command_line_has_no_secrets)
{
    for (size_t i = 0; i < sizeof(command_lines) / sizeof(command_lines[0]); i++) {
        ls_made_set_commit(i % 2 ? "unknown" : "a158e5ab");
        ls_made_set_command_line(command_lines[i].words);
        json_t *made = ls_made_json();
        const json_t *list = json_object_get(made, "command_line");
        for (size_t k = 0; k < 4 && command_lines[i].shown[k]; k++) {
            const char *word = json_string_value(json_array_get(list, k));
            ck_assert_ptr_nonnull(word);
            ck_assert_str_eq(word, command_lines[i].shown[k]);
        }
        for (size_t k = 0; k < 5 && command_lines[i].words[k]; k++)
            ck_assert_uint_gt(json_array_size(list), k);
        const char *commit = json_string_value(json_object_get(made, "commit"));
        ck_assert(i % 2 ? !commit : strcmp(commit, "a158e5ab") == 0);
        json_decref(made);
    }
    static const char *const texts[][3] = {{NULL, "mine:url=s3://k@b", "mine:url=s3://***@b"},
                                           {"api_key", "x", "***"},
                                           {"goal", "x", "x"},
                                           {"goal", NULL, NULL}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *shown = ls_made_text_json(texts[i][0], texts[i][1]);
        ck_assert_pstr_eq(json_string_value(shown), texts[i][2]);
        json_decref(shown);
    }
    ls_made_set_command_line((const char *const[]){"", NULL}); // as Python has it at its prompt
    json_t *made = ls_made_json();
    ck_assert_ptr_null(json_object_get(made, "command_line"));
    json_decref(made);
}

TEST(dots_in_the_names_of_facts_nest)
{
    static const double numbers[] = {62, 17, 0.5};
    static const double none = NAN;
    const struct ls_report_fact facts[] = {
        {"staleness.lead.max", numbers + 1, 1, false},
        {"staleness.lead.histogram", numbers, 3, true},
        {"staleness.bound", &none, 1, false},
        {"pushes", numbers, 1, false},
        {"empty", numbers, 0, true},
        {"staleness.lead.max.more", numbers, 1, false}, // something else is there
        {"staleness.lead", numbers, 1, false},
        {"steps", numbers, 1, false}, // the report's own stays
        {"communication.buckets", numbers, 1, false},
    };
    struct ls_report report = small_report();
    report.steps = 5;
    report.facts = facts;
    report.fact_count = sizeof(facts) / sizeof(facts[0]);
    json_t *root = write_and_read(&report);
    const json_t *staleness = json_object_get(root, "staleness");
    const json_t *lead = json_object_get(staleness, "lead");
    const json_t *histogram = json_object_get(lead, "histogram");
    ck_assert_int_eq(json_integer_value(json_object_get(lead, "max")), 17);
    ck_assert_uint_eq(json_array_size(histogram), 3);
    ck_assert(json_is_integer(json_array_get(histogram, 0)));
    ck_assert_double_eq(json_real_value(json_array_get(histogram, 2)), 0.5);
    ck_assert(json_is_null(json_object_get(staleness, "bound")));
    ck_assert_int_eq(json_integer_value(json_object_get(root, "pushes")), 62);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "empty")), 0);
    ck_assert_uint_eq(json_object_size(staleness), 2);
    ck_assert_uint_eq(json_object_size(lead), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "steps")), 5);
    ck_assert(json_is_array(json_object_get(json_object_get(root, "communication"), "buckets")));
    json_decref(root);
}

TEST(lost_replicas_have_no_hash)
{
    static const uint64_t lost[] = {1};
    struct ls_report report = small_report();
    json_t *root = write_and_read(&report);
    ck_assert_ptr_null(json_object_get(root, "lost_replicas"));
    json_decref(root);
    report.lost_replicas = lost;
    report.lost_count = 1;
    root = write_and_read(&report);
    const json_t *list = json_object_get(root, "lost_replicas");
    ck_assert_uint_eq(json_array_size(list), 1);
    ck_assert_int_eq(json_integer_value(json_array_get(list, 0)), 1);
    const json_t *found = json_object_get(root, "parameter_hashes");
    ck_assert_str_eq(json_string_value(json_array_get(found, 0)), "0000000000000001");
    ck_assert(json_is_null(json_array_get(found, 1)));
    json_decref(root);
}

TEST(what_is_no_number_is_null)
{
    const float losses[] = {1, NAN, INFINITY, -INFINITY};
    const struct ls_epoch epoch = {
        .epoch = 1,
        .metrics = {
            4, {{"loss", NAN}, {"accuracy", NAN}, {"val_loss", INFINITY}, {"val_accuracy", 0.5}}}};
    struct ls_report report = small_report();
    report.losses = losses;
    report.loss_count = 4;
    report.epochs = &epoch;
    report.epoch_count = 1;
    report.startup_seconds = NAN;
    report.times.median = NAN;
    json_t *root = write_and_read(&report);
    const json_t *list = json_object_get(root, "losses");
    ck_assert_double_eq(json_real_value(json_array_get(list, 0)), 1);
    for (size_t i = 1; i < 4; i++)
        ck_assert(json_is_null(json_array_get(list, i)));
    const json_t *first = json_array_get(json_object_get(root, "epochs"), 0);
    ck_assert(json_is_null(json_object_get(first, "loss")));
    ck_assert(json_is_null(json_object_get(first, "val_loss")));
    ck_assert(json_is_null(json_object_get(first, "examples_per_second"))); // in no time
    ck_assert_double_eq(json_real_value(json_object_get(first, "val_accuracy")), 0.5);
    ck_assert(json_is_null(json_object_get(root, "startup_seconds")));
    json_decref(root);
}

TEST(numbers_have_nine_digits)
{
    const float losses[] = {0.1f, 2.30258512f, 1.17549435e-38f, 3.40282347e38f};
    struct ls_report report = small_report();
    report.losses = losses;
    report.loss_count = 4;
    report.startup_seconds = 1.0 / 3;
    json_t *root = write_and_read(&report);
    char *text = read_text();
    ck_assert_ptr_nonnull(strstr(text, "\"startup_seconds\": 0.333333333,"));
    for (size_t i = 0; i < 4; i++) { // 9 digits are enough for every float
        const double value = json_real_value(json_array_get(json_object_get(root, "losses"), i));
        ck_assert_float_eq((float)value, losses[i]);
    }
    free(text);
    json_decref(root);
}

TEST(at_most_a_thousand_losses_are_written)
{
    static float losses[LS_REPORT_LOSSES + 5];
    struct ls_report report = small_report();
    report.losses = losses;
    report.loss_count = LS_REPORT_LOSSES + 5;
    json_t *root = write_and_read(&report);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "losses")), LS_REPORT_LOSSES);
    json_decref(root);
}

TEST(an_epoch_has_the_metrics_that_there_are_and_no_others)
{
    const struct ls_epoch epoch = {.epoch = 1,
                                   .seconds = 2,
                                   .examples = 100,
                                   .metrics = {2, {{"loss", 0.5}, {"top_5_accuracy", 0.875}}}};
    struct ls_report report = small_report();
    report.epochs = &epoch;
    report.epoch_count = 1;
    json_t *root = write_and_read(&report);
    const json_t *first = json_array_get(json_object_get(root, "epochs"), 0);
    ck_assert_double_eq(json_real_value(json_object_get(first, "loss")), 0.5);
    ck_assert_double_eq(json_real_value(json_object_get(first, "top_5_accuracy")), 0.875);
    ck_assert_ptr_null(json_object_get(first, "accuracy"));
    ck_assert_ptr_null(json_object_get(first, "val_loss"));
    ck_assert_double_eq(json_real_value(json_object_get(first, "examples_per_second")), 50);
    json_decref(root);
}

TEST(hashes_have_sixteen_digits)
{
    const struct ls_report report = small_report();
    json_t *root = write_and_read(&report);
    const json_t *list = json_object_get(root, "parameter_hashes");
    ck_assert_uint_eq(json_array_size(list), 2);
    ck_assert_str_eq(json_string_value(json_array_get(list, 0)), "0000000000000001");
    ck_assert_str_eq(json_string_value(json_array_get(list, 1)), "fedcba9876543210");
    json_decref(root);
}

TEST(texts_of_any_bytes_are_written)
{
    const struct ls_report_plugin plugin = {"collective", "ring\xff", "0.1.0", "a\"b\\c\n.so"};
    struct ls_report report = small_report();
    report.model = "/tmp/\xc3\xa9t\xe9.json"; // first UTF-8, then Latin-1
    report.dataset = "\xc3\xa9t\xc3\xa9";
    report.plugins = &plugin;
    report.plugin_count = 1;
    json_t *root = write_and_read(&report);
    ck_assert_str_eq(json_string_value(json_object_get(root, "model")), "/tmp/??t?.json");
    ck_assert_str_eq(json_string_value(json_object_get(root, "dataset")), "\xc3\xa9t\xc3\xa9");
    const json_t *first = json_array_get(json_object_get(root, "plugins"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(first, "name")), "ring?");
    ck_assert_str_eq(json_string_value(json_object_get(first, "file")), "a\"b\\c\n.so");
    json_decref(root);
}

TEST(a_report_replaces_the_one_before)
{
    struct ls_report report = small_report();
    json_decref(write_and_read(&report));
    report.status = "failed";
    json_t *root = write_and_read(&report);
    ck_assert_str_eq(json_string_value(json_object_get(root, "status")), "failed");
    json_decref(root);
}

// A file may grow to 100 bytes only, as on a full disk.
TEST(a_write_that_fails_leaves_the_old_file)
{
    const struct ls_report report = small_report();
    FILE *file = fopen(path, "w");
    fputs("what was there before\n", file);
    fclose(file);
    const struct rlimit little = {100, 100};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &little), 0);
    ck_assert_int_eq(ls_report_write(path, &report), LS_FAILED);
    ck_assert_uint_eq(errors, 1);
    ck_assert_ptr_nonnull(strstr(message, path));
    char *text = read_text();
    ck_assert_str_eq(text, "what was there before\n");
    free(text);
}

TEST(a_folder_that_does_not_exist_is_said)
{
    char nowhere[192];
    const struct ls_report report = small_report();
    snprintf(nowhere, sizeof(nowhere), "%s/no/report.json", folder);
    ck_assert_int_eq(ls_report_write(nowhere, &report), LS_FAILED);
    ck_assert_ptr_nonnull(strstr(message, "No such file"));
    ck_assert_int_eq(ls_report_check_path("--report", nowhere), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(message, "--report: cannot write"));
    ck_assert_uint_eq(errors, 2);
}

TEST(a_path_is_checked_before_the_work_begins)
{
    ck_assert_int_eq(ls_report_check_path("--report", path), LS_OK);
    ck_assert_int_eq(ls_report_check_path("--report", "report.json"), LS_OK);
    ck_assert_uint_eq(errors, 0);
    ck_assert_int_eq(access(path, F_OK), -1); // looking makes nothing
    // A rename would put a file in the place of these.
    ck_assert_int_eq(ls_report_check_path("--report", "/dev/null"), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(message, "not a file"));
    ck_assert_int_eq(ls_report_check_path("--report", folder), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(message, "a folder"));
    ck_assert_int_eq(symlink("elsewhere.json", path), 0);
    ck_assert_int_eq(ls_report_check_path("--report", path), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(message, "a link"));
    ck_assert_uint_eq(errors, 3);
}

TEST_FIXTURE(set_up, tear_down);
