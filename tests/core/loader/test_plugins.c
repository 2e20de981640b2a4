// SPDX-License-Identifier: Apache-2.0
// Plugins that are older, newer, wrong or dangerous: each is loaded or refused with its reason, and none
// harms the program.
#include "tests/core/loader/support.h"

#include "core/base/clock.h"
#include "core/plugin/collective.h"
#include "core/plugin/strategy.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

static enum ls_status try_open(struct ls_loader *loader, uint32_t kind, const char *name,
                               const struct ls_opened_plugin **out)
{
    char file[128];
    snprintf(file, sizeof(file), "%s-%s", ls_kind_text(kind), name);
    put(file);
    last_message[0] = '\0';
    return ls_loader_open(loader, kind, name, NULL, 0, out);
}

static void assert_refused(const char *name, const char *reason)
{
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    error_count = 0;
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, name, &opened), LS_UNAVAILABLE);
    ck_assert_ptr_null(opened);
    ck_assert_message(reason);
    ck_assert_message(name);
    ck_assert_uint_eq(error_count, 1);
    ls_loader_destroy(loader);
}

TEST(a_good_plugin_is_opened_with_its_descriptor_and_table)
{
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, "good", &opened), LS_OK);
    ck_assert_str_eq(opened->plugin->name, "good");
    ck_assert_str_eq(opened->plugin->version, "1.2.3");
    ck_assert_ptr_nonnull(strstr(opened->file, "/collective-good.so"));
    const struct ls_collective_interface *table = opened->interface;
    ck_assert_uint_eq(table->struct_size, sizeof(*table));
    const struct ls_collective_call call = {.host = opened->host};
    ck_assert_int_eq(table->build_schedule(&call, NULL), LS_OK);
    ck_assert_str_eq(last_message, "");
    ls_loader_destroy(loader);
}

TEST(an_older_plugin_with_a_shorter_table_loads_and_lacks_what_is_new)
{
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(try_open(loader, LS_KIND_STRATEGY, "shorter", &opened), LS_OK);
    const struct ls_strategy_interface *table = opened->interface;
    ck_assert(!LS_HAS(table, synchronise));
    ck_assert(LS_HAS(table, end_step));
    ck_assert(table->synchronise == NULL); // although something lies there in the plugin's memory
    struct ls_strategy *state = ls_instance_create(table, 1);
    ck_assert_ptr_nonnull(state);
    ls_instance_claim(state, opened->host);
    ck_assert_int_eq(table->end_step(state, 0), LS_OK);
    ls_instance_destroy(state);
    ck_assert(table->begin_step == NULL);
    ls_loader_destroy(loader);
}

TEST(a_plugin_of_the_interface_before_1_0_is_told_to_be_built_again)
{
    put("strategy-before");
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(try_open(loader, LS_KIND_STRATEGY, "before", &opened), LS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(last_message, "strategy-before.so"));
    ck_assert_ptr_nonnull(
        strstr(last_message, "built for the plugin interface before 1.0: build it again"));
    ls_loader_destroy(loader);
}

TEST(a_newer_plugin_with_longer_tables_loads)
{
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, "longer", &opened), LS_OK);
    const struct ls_collective_interface *table = opened->interface;
    ck_assert_uint_eq(opened->plugin->abi_minor, 7);
    ck_assert_uint_eq(table->struct_size, sizeof(*table));
    const struct ls_collective_call call = {.host = opened->host};
    ck_assert_int_eq(table->build_schedule(&call, NULL), LS_OK);
    ls_loader_destroy(loader);
}

TEST(another_major_version_is_refused_with_both_numbers)
{
    assert_refused("major", "built for plugin ABI 9, this Lockstep has ABI 1");
}

TEST(what_a_descriptor_lacks_is_named)
{
    assert_refused("magic", "wrong magic number");
    assert_refused("no-symbol", "does not export lockstep_plugin()");
    assert_refused("null", "returned NULL");
    assert_refused("no-call", "neither builds a schedule (build_schedule) nor is native");
    assert_refused("too-short", "neither builds a schedule (build_schedule) nor is native (open, "
                                "close, run, poll, abort); its table has 16 bytes");
    assert_refused("no-all-reduce", "does not offer all-reduce");
    assert_refused("allocate-alone", "has only one of the calls allocate and release");
    assert_refused("no-summary", "has no summary");
    assert_refused("option-twice", "declares option groups twice");
    assert_refused("option-default", "option rate (number) with the default 'fast'");
    assert_refused("option-type", "option rate of the unknown type 'speed'");
}

TEST(the_file_must_be_called_as_the_plugin_says)
{
    assert_refused("wrong-name", "must be called collective-other.so");
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, "wrong-kind", &opened), LS_UNAVAILABLE);
    ck_assert_message("must be called transport-wrong-kind.so");
    ls_loader_destroy(loader);
}

TEST(a_symbol_that_nobody_defines_is_named)
{
    assert_refused("undefined", "ls_nobody_defines_this");
}

TEST(crashes_and_exits_are_told_with_their_place)
{
    assert_refused("crash-probe", "crashed in probe (signal 11)");
    assert_refused("exit-probe", "exited in probe");
    assert_refused("crash-load", "crashed while it was loaded (signal 11)");
    assert_refused("exit-load", "exited while it was loaded");
    assert_refused("crash-entry", "crashed in lockstep_plugin() (signal 11)");
}

static void assert_hangs(const char *name)
{
    struct ls_loader *loader = make_loader();
    ls_loader_set_probe_deadline(loader, 200 * 1000 * 1000);
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, name, &opened), LS_UNAVAILABLE);
    ck_assert_message("hung in probe (no answer within 0.2 s)");
    ls_loader_destroy(loader);
}

TEST(a_probe_that_hangs_ends_with_the_deadline)
{
    assert_hangs("hang-probe");
    assert_hangs("stop-probe");
    assert_hangs("deaf-probe");
}

// Whether somebody still holds the writing end of the pipe that the probe's child inherited.
static bool is_held(int pipe_end)
{
    struct pollfd end = {.fd = pipe_end, .events = POLLIN};
    return poll(&end, 1, 10000) == 0;
}

TEST(what_a_probe_starts_ends_with_it)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, "fork-probe", &opened), LS_OK);
    close(ends[1]);
    ck_assert(!is_held(ends[0]));
    close(ends[0]);
    ls_loader_destroy(loader);
}

TEST(children_that_somebody_else_reaps_do_not_confuse_us)
{
    signal(SIGCHLD, SIG_IGN);
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, "good", &opened), LS_OK);
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, "crash-probe", &opened), LS_UNAVAILABLE);
    ls_loader_destroy(loader);
}

static void end_well(int number)
{
    (void)number;
    _exit(0);
}

TEST(the_programs_handlers_are_not_called_in_the_child)
{
    struct sigaction action = {.sa_handler = end_well};
    sigaction(SIGSEGV, &action, NULL);
    assert_refused("crash-load", "crashed while it was loaded (signal 11)");
}

TEST(a_plugin_that_cannot_run_here_says_why)
{
    assert_refused("unavailable",
                   "cannot run here: no such hardware in this test; `lockstep plugins` "
                   "lists what can");
}

// What the program has not flushed yet must come out once, and nothing of the plugin.
TEST(a_probe_prints_nothing_and_flushes_nothing_of_ours)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s", in_folder("output"));
    FILE *ours = fopen(path, "w");
    ck_assert_ptr_nonnull(ours);
    ck_assert_int_ge(dup2(fileno(ours), STDOUT_FILENO), 0);
    fputs("once", ours);
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, "print-probe", &opened), LS_OK);
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, "exit-probe", &opened), LS_UNAVAILABLE);
    ck_assert_int_eq(fclose(ours), 0);
    size_t bytes;
    char *content = read_whole(path, &bytes);
    ck_assert_uint_eq(bytes, 4);
    ck_assert_mem_eq(content, "once", 4);
    free(content);
    ls_loader_destroy(loader);
}

TEST(a_file_is_opened_once_and_each_user_has_his_options)
{
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *first = NULL, *second = NULL;
    struct ls_option_value five = {(char *)"groups", (char *)"5"};
    put("collective-good");
    ck_assert_int_eq(ls_loader_open(loader, LS_KIND_COLLECTIVE, "good", NULL, 0, &first), LS_OK);
    ck_assert_int_eq(ls_loader_open(loader, LS_KIND_COLLECTIVE, "good", &five, 1, &second), LS_OK);
    ck_assert_ptr_eq(first->plugin, second->plugin);
    ck_assert_str_eq(first->host->option(first->host, "groups"), "2");
    ck_assert_str_eq(second->host->option(second->host, "groups"), "5");
    ck_assert_ptr_null(second->host->option(second->host, "note"));
    ck_assert_ptr_null(second->host->option(second->host, "nothing"));
    ls_loader_destroy(loader);
}

TEST(options_that_do_not_fit_are_usage_errors)
{
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    struct ls_option_value wrong[] = {{(char *)"group", (char *)"5"},
                                      {(char *)"groups", (char *)"many"}};
    put("collective-good");
    ck_assert_int_eq(ls_loader_open(loader, LS_KIND_COLLECTIVE, "good", &wrong[0], 1, &opened),
                     LS_USAGE);
    ck_assert_message("did you mean groups?");
    ck_assert_int_eq(ls_loader_open(loader, LS_KIND_COLLECTIVE, "good", &wrong[1], 1, &opened),
                     LS_USAGE);
    ck_assert_message("must be a whole number, not 'many'");
    ck_assert_ptr_null(opened);
    ls_loader_destroy(loader);
}

TEST(the_host_logs_fails_and_allocates_for_a_plugin)
{
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, "good", &opened), LS_OK);
    const struct ls_host *host = opened->host;

    host->log(host, LS_LOG_WARN, "be careful");
    ck_assert_str_eq(last_message, "lockstep: warning: good: be careful");
    ck_assert_int_eq(ls_host_fail(host, LS_BAD_INPUT, "chunk %d", 3), LS_BAD_INPUT);
    ck_assert_str_eq(last_message, "lockstep: error: good: chunk 3");
    last_message[0] = '\0';
    ck_assert_int_eq((host->fail)(host, LS_UNSUPPORTED, "not this shape"), LS_UNSUPPORTED);
    ck_assert_int_eq((host->fail)(host, LS_ABORTED, "another rank"), LS_ABORTED);
    ck_assert_str_eq(last_message, ""); // answers, not errors
    ck_assert_int_eq((host->fail)(host, LS_OK, "a failure is never a success"), LS_FAILED);

    for (uint64_t alignment = 1; alignment <= 4096; alignment *= 2) {
        void *memory = host->allocate(host, 100, alignment);
        ck_assert_ptr_nonnull(memory);
        ck_assert_uint_eq((uintptr_t)memory % alignment, 0);
        memset(memory, 1, 100);
        host->release(host, memory);
    }
    ck_assert_ptr_null(host->allocate(host, 100, 48));
    ck_assert_ptr_null(host->allocate(host, UINT64_MAX, 64));
    host->release(host, NULL);
    ck_assert_uint_gt(host->clock_ns(host), 0);
    ck_assert_uint_eq(host->struct_size, sizeof(*host));
    ls_loader_destroy(loader);
}

TEST(a_file_is_opened_by_its_path_and_its_kind_is_checked)
{
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    put("collective-good");
    const char *path = in_folder("collective-good.so");
    ck_assert_int_eq(ls_loader_open_file(loader, path, 0, NULL, 0, &opened), LS_OK);
    opened = NULL;
    ck_assert_int_eq(ls_loader_open_file(loader, path, LS_KIND_DEVICE, NULL, 0, &opened),
                     LS_UNAVAILABLE);
    ck_assert_message("is a collective, not a device");
    ck_assert_int_eq(
        ls_loader_open_file(loader, in_folder("collective-none.so"), 0, NULL, 0, &opened),
        LS_BAD_INPUT);
    ck_assert_ptr_null(opened);
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(
        ls_loader_open_file(loader, "collective-good.so", LS_KIND_COLLECTIVE, NULL, 0, &opened),
        LS_OK);
    ls_loader_destroy(loader);
}

TEST(a_list_tells_what_runs_and_why_the_rest_does_not)
{
    const char *const names[] = {"collective-good",       "collective-crash-probe",
                                 "collective-crash-load", "collective-unavailable",
                                 "collective-major",      "strategy-shorter"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        put(names[i]);
    write_whole(in_folder("device-text.so"), "text", 4);
    write_whole(in_folder("notes.txt"), "text", 4);
    write_whole(in_folder("transport-.so"), "text", 4);
    struct ls_loader *loader = make_loader();
    struct ls_plugin_entry *entries = NULL;
    size_t count = 0;
    error_count = 0;
    ck_assert_int_eq(ls_loader_list(loader, &entries, &count), LS_OK);
    const struct {
        const char *name, *version, *reason;
        int available;
    } expected[] = {
        {"text", "", "is not a shared object", 0},
        {"auto", "0.1.0", "", 1}, // no file: there are collectives to choose among
        {"crash-load", "", "crashed while it was loaded (signal 11)", 0},
        {"crash-probe", "1.2.3", "crashed in probe (signal 11)", 0},
        {"good", "1.2.3", "", 1},
        {"major", "", "built for plugin ABI 9", 0},
        {"unavailable", "1.2.3", "no such hardware", 0},
        {"shorter", "1.2.3", "", 1},
    };
    ck_assert_uint_eq(count, sizeof(expected) / sizeof(*expected));
    for (size_t i = 0; i < count; i++) {
        ck_assert_str_eq(entries[i].name, expected[i].name);
        ck_assert_str_eq(entries[i].version, expected[i].version);
        ck_assert_msg(strstr(entries[i].reason, expected[i].reason) != NULL, "%s",
                      entries[i].reason);
        ck_assert_int_eq(entries[i].available, expected[i].available);
    }
    ck_assert_str_eq(entries[4].summary, "a collective for tests");
    ck_assert_uint_eq(entries[7].kind, LS_KIND_STRATEGY);
    ck_assert_uint_eq(error_count, 0);
    ls_plugin_entries_destroy(entries, count);
    ls_plugin_entries_destroy(NULL, 0);
    ls_loader_destroy(loader);
}

static void *keep_allocating(void *argument)
{
    const uint32_t *stop = argument;
    while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
        free(malloc(1000));
        ls_debug("busy", "thread");
    }
    return NULL;
}

TEST(plugins_are_opened_while_other_threads_work)
{
    uint32_t stop = 0;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, keep_allocating, &stop), 0);
    for (int i = 0; i < 20; i++) {
        struct ls_loader *loader = make_loader();
        const struct ls_opened_plugin *opened = NULL;
        ck_assert_int_eq(try_open(loader, LS_KIND_COLLECTIVE, "good", &opened), LS_OK);
        ls_loader_destroy(loader);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

TEST_FIXTURE(make_folder, remove_folder);
