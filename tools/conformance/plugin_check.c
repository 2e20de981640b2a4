// SPDX-License-Identifier: Apache-2.0
// lockstep plugin check: the conformance suites on one plugin, each case in a process of its own.
#include "tools/command.h"

#include "core/base/child.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "tools/conformance/filter.h"
#include "tools/conformance/collective.h"
#include "tools/conformance/device.h"
#include "tools/conformance/isolate.h"
#include "tools/conformance/loading.h"
#include "tools/conformance/own_parts.h"
#include "tools/conformance/schedule.h"
#include "tools/conformance/strategy.h"
#include "tools/conformance/transport.h"
#include "core/loader/loader.h"
#include "core/report/report.h"
#include "tools/report/rows.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCOPE "plugin check"
#define OPEN_SECONDS 60 // for the checks of the loader, whose own probe ends before

static const struct argument table[] = {
    {"seed", "N", "1", "seed of random values and orders; the same seed gives the same cases"},
    {"filter", "TEXT", NULL, "run only the cases with TEXT in their names, or one suite by name",
     .first_day = true},
    {"deadline", "SECONDS", "20", "longest time for each case", .first_day = true},
    {"device", "NAME", NULL,
     "collectives and transports: place the buffers in memory of this device, not of the host"},
    {"json", "FILE", NULL, "write the verdicts as a list of rows", .writes = true,
     .first_day = true},
    {"quiet", NULL, NULL, "print only failures and the summary"},
    {"plugin-path", "DIR[:DIR...]", NULL,
     "directories searched first for other plugins that a case needs"},
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "The first cases are the same for every kind: the plugin loads, exports the right symbols, has "
    "a valid descriptor,\n"
    "opens twice, prints nothing, and leaves signal handlers, environment, floating-point mode, "
    "threads and files as\n"
    "they were. The other cases check the contract of its kind. Each case runs in a process of its "
    "own, so a crash or\n"
    "a hang fails one case only.\n\n"
    "Verdicts: passed; FAILED; refused: the plugin does not offer this, and need not.\n"
    "Exit code: 0 nothing failed, 1 something failed, 3 no such file, 4 it cannot be opened.\n\n"
    "Examples:\n"
    "  lockstep plugin check build/collective-my-reduce.so\n"
    "  lockstep plugin check build/collective-my-reduce.so --filter=\"ranks=3\"\n";

struct check {
    const char *file, *filter, *device_name;
    uint64_t seed, deadline_ns;
    bool quiet;
    struct ls_loader *loader;
    struct ls_rows *rows;
    const char *suite; // that runs now
    struct ls_conformance_counts counts; // of all suites
    const struct ls_opened_plugin *tested, *helper;
    const struct ls_opened_plugin *device; // in whose memory buffers lie; NULL: the host's
    const char *left_out; // what was not checked, and why; NULL: nothing
};

// ---- Verdicts ----

static void print_verdict(void *context, const struct ls_conformance_result *result)
{
    static const char *const words[] = {"passed", "FAILED", "refused"};
    static const char *const verdicts[] = {"passed", "failed", "refused"};
    struct check *check = context;
    const char *message = result->message ? result->message : "";
    if (!check->quiet || result->outcome == LS_CONFORMANCE_FAILED)
        printf("%-8s%-11s%s%s%s\n", words[result->outcome], check->suite, result->name,
               *message ? ": " : "", message);
    fflush(stdout);
    ls_rows_begin(check->rows);
    ls_rows_text(check->rows, "suite", check->suite);
    ls_rows_text(check->rows, "case", result->name);
    ls_rows_text(check->rows, "verdict", verdicts[result->outcome]);
    ls_rows_text(check->rows, "message", message);
}

static enum ls_status run_suite(struct check *check, const char *name,
                                enum ls_status (*run)(void *argument, ls_conformance_wanted wanted,
                                                      ls_conformance_report report, void *context),
                                bool looks_itself)
{
    const struct ls_isolated_suite suite = {
        .run = run,
        .argument = check,
        .deadline_ns = check->deadline_ns,
        .looks_itself = looks_itself,
    };
    struct ls_conformance_counts counts = {0};
    check->suite = name;
    const enum ls_status status = ls_isolate_suite(&suite, print_verdict, check, &counts);
    check->counts.passed += counts.passed;
    check->counts.failed += counts.failed;
    check->counts.refused += counts.refused;
    return status == LS_FAILED && counts.failed ? LS_OK : status; // what failed is counted
}

// ---- The suites, in their children ----

// The name of a suite as the filter means all of it.
static const char *only(const struct check *check)
{
    return check->filter && strcmp(check->filter, check->suite) == 0 ? NULL : check->filter;
}

static enum ls_status run_loading(void *argument, ls_conformance_wanted wanted,
                                  ls_conformance_report report, void *context)
{
    const struct check *check = argument;
    const struct ls_loading_conformance_options options = {
        .file = check->file, .only = only(check), .wanted = wanted};
    return ls_conformance_loading(&options, report, context, NULL);
}

static enum ls_status run_schedule(void *argument, ls_conformance_wanted wanted,
                                   ls_conformance_report report, void *context)
{
    const struct check *check = argument;
    const struct ls_schedule_conformance_options options = {
        .collective = check->tested->interface,
        .host = check->tested->host,
        .only = only(check),
        .wanted = wanted,
    };
    return ls_conformance_schedule(&options, report, context, NULL);
}

static enum ls_status run_collective(void *argument, ls_conformance_wanted wanted,
                                     ls_conformance_report report, void *context)
{
    const struct check *check = argument;
    const struct ls_collective_conformance_options options = {
        .collective = check->tested->plugin,
        .collective_host = check->tested->host,
        .transport = check->helper ? check->helper->plugin : NULL,
        .transport_host = check->helper ? check->helper->host : NULL,
        .device = check->device ? check->device->interface : NULL,
        .device_host = check->device ? check->device->host : NULL,
        .seed = check->seed,
        .only = only(check),
        .wanted = wanted,
    };
    return ls_conformance_collective(&options, report, context, NULL);
}

static enum ls_status run_device(void *argument, ls_conformance_wanted wanted,
                                 ls_conformance_report report, void *context)
{
    const struct check *check = argument;
    const struct ls_device_conformance_options options = {
        .partial = true, .only = only(check), .wanted = wanted};
    return ls_conformance_device(check->tested->interface, check->tested->host,
                                 check->helper->interface, check->helper->host, &options, report,
                                 context, NULL);
}

static enum ls_status run_transport(void *argument, ls_conformance_wanted wanted,
                                    ls_conformance_report report, void *context)
{
    const struct check *check = argument;
    const struct ls_transport_conformance_options options = {
        .transport = check->tested->interface,
        .host = check->tested->host,
        .device = check->device ? check->device->interface : NULL,
        .device_host = check->device ? check->device->host : NULL,
        .deadline_ns = check->deadline_ns,
        .seed = check->seed,
        .only = only(check),
        .wanted = wanted,
    };
    return ls_conformance_transport(&options, report, context, NULL);
}

static enum ls_status run_strategy(void *argument, ls_conformance_wanted wanted,
                                   ls_conformance_report report, void *context)
{
    const struct check *check = argument;
    const struct ls_strategy_conformance_options options = {
        .strategy = check->tested->interface,
        .host = check->tested->host,
        .transport = {check->helper ? check->helper->interface : NULL,
                      check->helper ? check->helper->host : NULL},
        .seed = check->seed,
        .only = only(check),
        .wanted = wanted,
    };
    return ls_conformance_strategy(&options, report, context, NULL);
}

static enum ls_status run_filter(void *argument, ls_conformance_wanted wanted,
                                 ls_conformance_report report, void *context)
{
    const struct check *check = argument;
    const struct ls_filter_conformance_options options = {
        .filter = check->tested->interface,
        .host = check->tested->host,
        .name = check->tested->plugin->name,
        .seed = check->seed,
        .only = only(check),
        .wanted = wanted,
    };
    return ls_conformance_filter(&options, report, context, NULL);
}

static enum ls_status run_own_part(void *argument, ls_conformance_wanted wanted,
                                   ls_conformance_report report, void *context)
{
    const struct check *check = argument;
    const struct ls_own_conformance_options options = {
        .plugin = check->tested, .seed = check->seed, .only = only(check), .wanted = wanted};
    return check->tested->plugin->kind == LS_KIND_DATASET
               ? ls_conformance_dataset(&options, report, context, NULL)
               : ls_conformance_own_part(&options, report, context, NULL);
}

// ---- Opening ----

static void open_in_child(void *argument, void *shared)
{
    const struct check *check = argument;
    const struct ls_opened_plugin *opened = NULL;
    const enum ls_status status =
        ls_loader_open_file(check->loader, check->file, 0, NULL, 0, &opened);
    (void)shared;
    if (status && !ls_log_errors())
        ls_error(SCOPE, "%s: opening it failed: %s", check->file, ls_status_text(status));
    if (status)
        _exit((int)status);
}

// Opens the file in a child, so that a plugin that does harm when it is loaded does it there. Says why it cannot be
// opened.
static enum ls_status try_to_open(struct check *check)
{
    const struct ls_child_work work = {.scope = SCOPE,
                                       .run = open_in_child,
                                       .argument = check,
                                       .deadline_ns = OPEN_SECONDS * UINT64_C(1000000000),
                                       .errors = STDERR_FILENO};
    struct ls_child_end end;
    fflush(NULL); // or the child would write it again
    const enum ls_status status = ls_child_run(&work, &end);
    if (status)
        return status;
    switch (end.result) {
    case LS_CHILD_DONE: return LS_OK;
    case LS_CHILD_EXITED: ls_log_note_error(); return (enum ls_status)end.code;
    case LS_CHILD_HUNG:
        ls_error(SCOPE, "%s: opening it did not end within %d s", check->file, OPEN_SECONDS);
        break;
    case LS_CHILD_CRASHED:
        ls_error(SCOPE, "%s: opening it ended with signal %d (%s)", check->file, end.signal,
                 strsignal(end.signal));
        break;
    }
    return LS_UNAVAILABLE;
}

// Schedules first: one that is wrong would only hang when it is run.
static enum ls_status check_collective(struct check *check)
{
    const struct ls_collective_interface *collective = check->tested->interface;
    if (!collective->build_schedule && !check->device) {
        check->left_out = "; it is native, on devices of its own: it was loaded, but moved "
                          "nothing; --device=NAME says where";
        return LS_OK;
    }
    if (!collective->build_schedule)
        return run_suite(check, "collective", run_collective, false);
    enum ls_status status = run_suite(check, "schedule", run_schedule, false);
    if (status || check->counts.failed) {
        check->left_out = "; its schedules were not run: fix them first";
        return status;
    }
    status = ls_loader_open(check->loader, LS_KIND_TRANSPORT, "local", NULL, 0, &check->helper);
    return status ? status : run_suite(check, "collective", run_collective, false);
}

static enum ls_status check_strategy(struct check *check)
{
    const struct ls_strategy_interface *strategy = check->tested->interface;
    const enum ls_status status =
        strategy->needs_transport
            ? ls_loader_open(check->loader, LS_KIND_TRANSPORT, "local", NULL, 0, &check->helper)
            : LS_OK;
    return status ? status : run_suite(check, "strategy", run_strategy, false);
}

static enum ls_status open_device(struct check *check)
{
    if (!check->device_name)
        return LS_OK;
    const enum ls_status status = ls_loader_open_text(check->loader, "--device", LS_KIND_DEVICE,
                                                      check->device_name, &check->device);
    const uint32_t kind = check->tested->plugin->kind;
    if (status || kind == LS_KIND_COLLECTIVE || kind == LS_KIND_TRANSPORT)
        return status;
    ls_error(SCOPE, "--device: only collectives and transports can use memory of a device");
    return LS_USAGE;
}

static enum ls_status run_kind(struct check *check)
{
    const struct ls_opened_plugin **helper = &check->helper;
    enum ls_status status =
        ls_loader_open_file(check->loader, check->file, 0, NULL, 0, &check->tested);
    if (status)
        return status;
    status = open_device(check);
    if (status)
        return status;
    switch (check->tested->plugin->kind) {
    case LS_KIND_COLLECTIVE: return check_collective(check);
    case LS_KIND_DEVICE:
        status = ls_loader_open(check->loader, LS_KIND_DEVICE, "reference", NULL, 0, helper);
        return status ? status : run_suite(check, "device", run_device, false);
    case LS_KIND_TRANSPORT: return run_suite(check, "transport", run_transport, false);
    case LS_KIND_CALLBACK:
        check->left_out = "; a callback has no suite of its kind: it was loaded, opened and closed";
        return LS_OK;
    case LS_KIND_STRATEGY: return check_strategy(check);
    case LS_KIND_FILTER: return run_suite(check, "filter", run_filter, false);
    default:
        return run_suite(check, ls_kind_text(check->tested->plugin->kind), run_own_part, false);
    }
}

// ---- The command ----

static void print_summary(const struct check *check, double seconds)
{
    printf("%s: %u passed, %u failed, %u refused in %.1f s, seed %llu%s\n", check->file,
           check->counts.passed, check->counts.failed, check->counts.refused, seconds,
           (unsigned long long)check->seed, check->left_out ? check->left_out : "");
}

static enum ls_status run_check(struct check *check, const char *json)
{
    const uint64_t begin_ns = ls_clock_ns();
    enum ls_status status = try_to_open(check);
    if (!status)
        status = run_suite(check, "loading", run_loading, true);
    if (!status && check->counts.failed)
        check->left_out = "; the contract of its kind was not checked: fix its loading first";
    else if (!status)
        status = run_kind(check);
    if (status)
        return status;
    const bool none = !(check->counts.passed + check->counts.failed + check->counts.refused);
    if (none) {
        ls_error(SCOPE, "no case has '%s' in its name", check->filter ? check->filter : "");
        return LS_USAGE;
    }
    print_summary(check, (double)(ls_clock_ns() - begin_ns) * 1e-9);
    if (json)
        status = ls_rows_write(check->rows, "--json", json, "plugin check", !check->counts.failed);
    return status ? status : check->counts.failed ? LS_FAILED : LS_OK;
}

static enum ls_status run(const struct arguments *arguments)
{
    struct check check = {.seed = 1};
    double seconds = 0;
    const char *json = arguments_text(arguments, "json");
    if (!arguments->operand_count) {
        ls_error(SCOPE, "the file is missing: lockstep plugin check build/collective-my-reduce.so");
        return LS_USAGE;
    }
    check.file = arguments->operands[0];
    check.filter = arguments_text(arguments, "filter");
    check.device_name = arguments_text(arguments, "device");
    check.quiet = arguments_given(arguments, "quiet");
    enum ls_status status = arguments_count(arguments, "seed", 0, INT64_MAX, &check.seed);
    if (!status)
        status = arguments_number(arguments, "deadline", &seconds);
    if (!status && !(seconds >= 0.01 && seconds <= 86400)) {
        ls_error("usage", "--deadline=%s: expected seconds from 0.01 to 86400",
                 arguments_text(arguments, "deadline"));
        status = LS_USAGE;
    }
    check.deadline_ns = (uint64_t)(seconds * 1e9);
    if (!status && json)
        status = ls_report_check_path("--json", json);
    if (!status)
        status = ls_rows_create(&check.rows);
    // Thousands of tiny kernels: threads of a device that spin between them only steal time.
    setenv("OMP_WAIT_POLICY", "passive", 0);
    if (!status)
        status = ls_loader_create(arguments_text(arguments, "plugin-path"), &check.loader);
    if (!status)
        status = run_check(&check, json);
    ls_rows_destroy(check.rows);
    ls_loader_destroy(check.loader);
    return status;
}

const struct command plugin_check_command = {
    .name = "plugin check",
    .operands = "FILE.so",
    .summary = "checks a plugin against the contract of its kind",
    .help = help,
    .most_operands = 1,
    .arguments = table,
    .run = run,
};
