// SPDX-License-Identifier: Apache-2.0
// lockstep verify: proves the schedules of collectives, world by world, and sets their rounds and bytes beside the
// least possible. The plugin's code runs in a child process, so that nothing hangs and nothing is torn down.
#include "tools/command.h"
#include "tools/number_list.h"
#include "tools/verify_draw.h"

#include "core/base/child.h"
#include "core/base/log.h"
#include "core/base/options.h"
#include "core/schedule/schedule.h"
#include "core/schedule/verify.h"
#include "core/loader/loader.h"
#include "core/report/report.h"
#include "tools/report/rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPERATIONS 7 // one beyond the last number
#define ALL_ROOTS_WORLD 8
#define WORLDS_TEXT 64

static const struct argument table[] = {
    {"world", "LIST", "1-64", "numbers of ranks: numbers and ranges", .first_day = true},
    {"count", "LIST", "0,1,world-1,world,world+1,1009,104729,16777259",
     "elements of the buffer: numbers, ranges, and world, world-1, world+1 and the like",
     .first_day = true},
    {"operation", "all|NAME,...", "all",
     "all: what the collective offers; or all-reduce, reduce-scatter, all-gather, broadcast, "
     "reduce, all-to-all. An operation that the collective does not offer is verified as the host "
     "builds it",
     .first_day = true},
    {"ranks-per-host", "LIST", "0,4", "ranks that share a host; 0: the collective is not told"},
    {"draw", NULL, NULL,
     "print the schedule of one world of at most 16 ranks (default 4) and one count (default 64 "
     "elements a rank), with a column for each rank and a block for each round",
     .first_day = true},
    {"wire", NULL, NULL,
     "prove also that all ranks round alike when reductions send 16 bits, as in train --wire"},
    {"element-bytes", "N", "4", "size of an element in bytes"},
    {"deadline", "SECONDS", "30", "longest time for one world and count"},
    {"json", "FILE", NULL, "write the rows as JSON", .writes = true},
    {"plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"},
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "verify proves for every rank: each send is received, in order and with the same length; no\n"
    "rank deadlocks, even if a send completes only when it is received; no element is both "
    "written\n"
    "and read in one round; no undefined element is read; the result has each rank's contribution\n"
    "exactly once, added in the same order on all ranks. Broadcast and reduce are verified for\n"
    "every root up to 8 ranks, and for the first, second, middle and last rank in larger "
    "worlds.\n"
    "The counts of all-to-all are rounded up to equal blocks for all ranks.\n\n"
    "`rounds` and `bytes` are for the largest world and count. `least` is the lower bound of any\n"
    "schedule: of the bytes that a rank sends or receives, and of the rounds with as many "
    "messages\n"
    "at once. `worst` is the largest ratio of any world at its largest count, and that world.\n\n"
    "Exit code: 0 everything holds, 1 something does not, 4 no such collective.\n\n"
    "Examples:\n"
    "  lockstep verify ring hierarchical-copy:groups=4 --world=4-64\n"
    "  lockstep verify ./collective-my-reduce.so --world=5 --count=7 --operation=all-reduce\n"
    "  lockstep verify ring --draw --world=3 --operation=all-reduce\n";

// What is asked of every collective.
struct request {
    struct number_list worlds, counts, hosts;
    uint32_t operations; // bits; 0: those it offers
    uint64_t element_bytes;
    uint64_t deadline_ns;
    bool draw; // instead of the table
    bool halves; // messages of 16 bits
    int name_width; // of the first column
};

// One collective, opened.
struct subject {
    const struct ls_opened_plugin *opened;
    const char *name; // as the user wrote it
};

// One line of the table, filled by the child.
struct row {
    volatile uint64_t beat; // cases done
    volatile uint32_t describing;
    struct ls_verify_case running; // or the last one
    struct ls_verification found; // of it
    uint32_t status; // enum ls_status
    uint64_t held; // cases
    uint64_t declined; // cases
    char declined_reason[400]; // the first
    bool refused;
    bool orders_differ;
    struct ls_verify_case largest;
    struct ls_verification of_largest;
    uint64_t world_count_most; // the largest count that held in the world at hand
    double world_ratio; // at that count: bytes to the least possible
    double worst_ratio; // of all worlds
    uint32_t worst_world;
    uint32_t world_count; // in which something was verified
    uint32_t worlds[]; // as many as were asked for
};

static size_t row_bytes(const struct request *request)
{
    return sizeof(struct row) + request->worlds.count * sizeof(uint32_t);
}

// What the child gets.
struct task {
    const struct request *request;
    const struct subject *subject;
    uint32_t operation;
};

// ---- In the child ----

static bool is_larger(const struct ls_verify_case *one, const struct ls_verify_case *other)
{
    return one->world > other->world || (one->world == other->world && one->count > other->count);
}

static double ratio_of(const struct ls_verification *found)
{
    return found->least_bytes > 0 ? (double)found->most_bytes / found->least_bytes : 1;
}

static void note_held(struct row *row)
{
    const double ratio = ratio_of(&row->found);
    if (row->running.count > row->world_count_most ||
        (row->running.count == row->world_count_most && ratio > row->world_ratio)) {
        row->world_count_most = row->running.count;
        row->world_ratio = ratio;
    }
    row->held++;
    row->orders_differ |= !row->found.same_order;
    if (row->held == 1 || is_larger(&row->running, &row->largest)) {
        row->largest = row->running;
        row->of_largest = row->found;
    }
}

// Verifies row->running. False: the rest of the cases is not looked at.
static bool verify_one(const struct task *task, struct row *row)
{
    row->status = ls_verify_schedule(task->subject->opened->interface, task->subject->opened->host,
                                     &row->running, &row->found);
    row->beat++;
    if (row->status)
        return false;
    if (row->found.verdict == LS_VERDICT_DECLINED) {
        if (!row->declined++)
            snprintf(row->declined_reason, sizeof(row->declined_reason), "%s", row->found.reason);
    } else if (row->found.verdict == LS_VERDICT_HOLDS) {
        note_held(row);
    } else {
        row->refused = true;
    }
    return !row->refused;
}

static bool verify_roots(const struct task *task, struct row *row)
{
    const uint32_t world = row->running.world;
    const bool rooted = task->operation == LS_BROADCAST || task->operation == LS_REDUCE;
    const uint32_t some[] = {0, 1, world / 2, world - 1};
    const bool all = world <= ALL_ROOTS_WORLD;
    const uint32_t roots = !rooted ? 1 : all ? world : 4;
    for (uint32_t i = 0; i < roots; i++) {
        row->running.root = all ? i : some[i];
        if (!verify_one(task, row))
            return false;
    }
    return true;
}

static bool verify_world(const struct task *task, struct row *row)
{
    const struct request *request = task->request;
    for (size_t i = 0; i < request->counts.count; i++) {
        row->running.count = ls_collective_whole_count(
            task->operation, listed_number_get(&request->counts.numbers[i], row->running.world),
            row->running.world);
        for (size_t j = 0; j < request->hosts.count; j++) {
            row->running.ranks_per_host =
                (uint32_t)listed_number_get(&request->hosts.numbers[j], 0);
            if (!verify_roots(task, row))
                return false;
        }
    }
    return true;
}

static void verify_operation(void *argument, void *shared)
{
    const struct task *task = argument;
    struct row *row = shared;
    row->running = (struct ls_verify_case){
        .operation = task->operation,
        .element_bytes = (uint32_t)task->request->element_bytes,
        .halves = task->request->halves && ls_operation_reduces(task->operation),
        .describing = &row->describing,
    };
    for (size_t i = 0; i < task->request->worlds.count; i++) {
        const uint64_t held = row->held;
        row->running.world = (uint32_t)listed_number_get(&task->request->worlds.numbers[i], 0);
        row->world_count_most = 0;
        row->world_ratio = 0;
        if (!verify_world(task, row))
            return;
        if (row->held > held)
            row->worlds[row->world_count++] = row->running.world;
        if (row->held > held && row->world_ratio > row->worst_ratio) {
            row->worst_ratio = row->world_ratio;
            row->worst_world = row->running.world;
        }
    }
}

// ---- What came of it ----

// "ring: all-reduce, 5 ranks, 7 elements"
static const char *case_text(const struct subject *subject, const struct ls_verify_case *at,
                             char *text, size_t bytes)
{
    char root[32] = "", hosts[48] = "";
    if (at->operation == LS_BROADCAST || at->operation == LS_REDUCE)
        snprintf(root, sizeof(root), ", root %u", at->root);
    if (at->ranks_per_host)
        snprintf(hosts, sizeof(hosts), ", %u to a host", at->ranks_per_host);
    snprintf(text, bytes, "%s: %s, %u rank%s%s%s, %" PRIu64 " element%s", subject->name,
             ls_collective_operation_text(at->operation), at->world, at->world == 1 ? "" : "s",
             hosts, root, at->count, at->count == 1 ? "" : "s");
    return text;
}

static void log_refusal(const struct task *task, const struct row *row)
{
    const struct ls_verify_case *wrong = &row->running;
    char at[512], hosts[32] = "", drawn[128] = "";
    if (wrong->ranks_per_host)
        snprintf(hosts, sizeof(hosts), " --ranks-per-host=%u", wrong->ranks_per_host);
    if (!task->request->draw && wrong->world <= VERIFY_DRAW_WORLD &&
        row->found.verdict != LS_VERDICT_DESCRIBE) // there is all of it
        snprintf(drawn, sizeof(drawn), "; --draw --world=%u --count=%" PRIu64 "%s draws it",
                 wrong->world, wrong->count, hosts);
    ls_error("verify", "%s: %s%s", case_text(task->subject, wrong, at, sizeof(at)),
             row->found.reason, drawn);
}

// A child that did not return: the row says why.
static void explain_end(const struct request *request, const struct ls_child_end *end,
                        struct row *row)
{
    char where[64] = "verifying it";
    const double seconds = (double)request->deadline_ns * 1e-9;
    if (row->describing != UINT32_MAX)
        snprintf(where, sizeof(where), "build_schedule for rank %u", row->describing);
    row->refused = true;
    row->found = (struct ls_verification){.verdict = LS_VERDICT_DESCRIBE};
    char *text = row->found.reason;
    const size_t bytes = sizeof(row->found.reason);
    if (end->result == LS_CHILD_HUNG)
        snprintf(text, bytes, "%s did not end within %.3g s%s", where, seconds,
                 row->describing != UINT32_MAX ? "; does it end at all?"
                                               : "; --deadline gives it more time");
    else if (end->result == LS_CHILD_CRASHED)
        snprintf(text, bytes, "%s crashed (signal %d)", where, end->signal);
    else
        snprintf(text, bytes, "%s ended the process; a plugin must never do that", where);
}

static void print_heading(int name_width)
{
    printf("%-*s %-16s %-14s %7s %7s %7s %14s %14s %7s %13s  %s\n", name_width, "collective",
           "operation", "worlds", "cases", "rounds", "least", "bytes", "least", "ratio", "worst",
           "verdict");
}

static bool row_passed(const struct row *row)
{
    return !row->status && !row->refused && row->held > 0;
}

static void verdict_text(const struct row *row, char *text, size_t bytes)
{
    if (row->refused)
        snprintf(text, bytes, "REFUSED");
    else if (!row->held)
        snprintf(text, bytes, "declines everything");
    else if (row->orders_differ)
        snprintf(text, bytes, "holds; ranks add in different orders, as it says");
    else if (row->declined)
        snprintf(text, bytes, "holds; declines %" PRIu64 " cases: %s", row->declined,
                 row->declined_reason);
    else
        snprintf(text, bytes, "holds");
}

static void operation_text(const struct subject *subject, uint32_t operation, char *text,
                           size_t bytes)
{
    const struct ls_collective_interface *interface = subject->opened->interface;
    const bool offered = interface->operations & 1u << operation;
    snprintf(text, bytes, "%s%s", ls_collective_operation_text(operation), offered ? "" : "*");
}

static void print_row(const struct task *task, const struct row *row)
{
    const struct ls_verification *found = &row->of_largest;
    char operation[32], worlds[WORLDS_TEXT], verdict[480], worst[32];
    operation_text(task->subject, task->operation, operation, sizeof(operation));
    number_ranges_text(row->worlds, row->world_count, worlds, sizeof(worlds));
    verdict_text(row, verdict, sizeof(verdict));
    printf("%-*s %-16s %-14s %7" PRIu64 " ", task->request->name_width, task->subject->name,
           operation, *worlds ? worlds : "-", row->held);
    snprintf(worst, sizeof(worst), "%.3f at %u", row->worst_ratio, row->worst_world);
    if (row_passed(row))
        printf("%7u %7u %14" PRIu64 " %14.0f %7.3f %13s", found->rounds, found->least_rounds,
               found->most_bytes, found->least_bytes, ratio_of(found), worst);
    else
        printf("%7s %7s %14s %14s %7s %13s", "-", "-", "-", "-", "-", "-");
    printf("  %s\n", verdict);
}

// The case that was refused; or the first that holds.
static enum ls_status draw(const struct task *task, const struct row *row)
{
    const struct ls_verification *found = row->refused ? &row->found : &row->of_largest;
    const struct ls_verify_case *drawn = row->refused ? &row->running : &row->largest;
    const struct verify_drawing drawing = {
        .opened = task->subject->opened,
        .drawn = drawn,
        .found = row->refused ? found : NULL,
        .build_ended_it = row->describing != UINT32_MAX,
        .deadline_ns = task->request->deadline_ns,
    };
    char text[512];
    if (!row->refused && !row->held) {
        printf("%s\n", case_text(task->subject, &row->running, text, sizeof(text)));
        printf("verdict: declined: %s\n\n", row->declined_reason);
        return LS_OK;
    }
    printf("%s\n", case_text(task->subject, drawn, text, sizeof(text)));
    const enum ls_status status = verify_draw(&drawing);
    if (status)
        return status;
    if (row->refused)
        printf("verdict: REFUSED: %s\n\n", found->reason);
    else
        printf("verdict: holds%s; %u rounds (least %u), %" PRIu64 " bytes (least %.0f)\n\n",
               row->orders_differ ? "; ranks add in different orders, as it says" : "",
               found->rounds, found->least_rounds, found->most_bytes, found->least_bytes);
    return LS_OK;
}

static void add_json(const struct task *task, const struct row *row, struct ls_rows *rows)
{
    const struct ls_collective_interface *interface = task->subject->opened->interface;
    const struct ls_verification *found = &row->of_largest;
    char worlds[1024];
    const bool passed = row_passed(row);
    ls_rows_begin(rows);
    ls_rows_text(rows, "collective", task->subject->name);
    ls_rows_text(rows, "operation", ls_collective_operation_text(task->operation));
    ls_rows_boolean(rows, "offered", interface->operations >> task->operation & 1);
    ls_rows_text(rows, "worlds",
                 number_ranges_text(row->worlds, row->world_count, worlds, sizeof(worlds)));
    ls_rows_count(rows, "cases", row->held);
    ls_rows_count(rows, "declined_cases", row->declined);
    ls_rows_boolean(rows, "passed", passed);
    ls_rows_text(rows, "reason",
                 row->refused              ? row->found.reason
                 : row->declined_reason[0] ? row->declined_reason
                                           : NULL);
    if (row->refused) {
        ls_rows_count(rows, "refused_world", row->running.world);
        ls_rows_count(rows, "refused_count", row->running.count);
        ls_rows_count(rows, "refused_rank", row->found.rank);
        ls_rows_count(rows, "refused_round", row->found.round);
    }
    if (!passed)
        return;
    ls_rows_boolean(rows, "same_order", !row->orders_differ);
    ls_rows_count(rows, "world", row->largest.world);
    ls_rows_count(rows, "count", row->largest.count);
    ls_rows_count(rows, "rounds", found->rounds);
    ls_rows_count(rows, "least_rounds", found->least_rounds);
    ls_rows_count(rows, "messages_at_once", found->messages_at_once);
    ls_rows_count(rows, "bytes", found->most_bytes);
    ls_rows_number(rows, "least_bytes", found->least_bytes);
    ls_rows_number(rows, "ratio", ratio_of(found));
    ls_rows_number(rows, "worst_ratio", row->worst_ratio);
    ls_rows_count(rows, "worst_world", row->worst_world);
    ls_rows_count(rows, "scratch_bytes", found->scratch_bytes);
}

// ---- Row by row ----

static enum ls_status verify_row(const struct task *task, struct ls_rows *rows)
{
    const size_t bytes = row_bytes(task->request);
    struct row *row = ls_child_memory_create(bytes);
    if (!row)
        return LS_OUT_OF_MEMORY;
    const struct ls_child_work work = {
        .scope = "verify",
        .run = verify_operation,
        .argument = (void *)(uintptr_t)task,
        .shared = row,
        .beat = &row->beat,
        .deadline_ns = task->request->deadline_ns,
    };
    struct ls_child_end end;
    row->describing = UINT32_MAX;
    enum ls_status status = ls_child_run(&work, &end);
    if (!status && end.result != LS_CHILD_DONE)
        explain_end(task->request, &end, row);
    if (!status)
        status = (enum ls_status)row->status;
    if (!status) {
        if (row->refused)
            log_refusal(task, row);
        else if (!row->held)
            ls_error("verify", "%s: %s: declines every case that was asked for: %s",
                     task->subject->name, ls_collective_operation_text(task->operation),
                     row->declined_reason);
        if (task->request->draw)
            status = draw(task, row);
        else
            print_row(task, row);
    }
    if (!status) {
        add_json(task, row, rows);
        status = row_passed(row) ? LS_OK : LS_FAILED;
    }
    if (status == LS_OUT_OF_MEMORY)
        ls_error("verify", "%s: not enough memory for %u ranks; choose fewer with --world",
                 task->subject->name, row->running.world);
    ls_child_memory_destroy(row, bytes);
    return status;
}

static enum ls_status verify_subject(const struct request *request, const struct subject *subject,
                                     struct ls_rows *rows)
{
    const struct ls_collective_interface *interface = subject->opened->interface;
    const uint32_t operations = request->operations ? request->operations : interface->operations;
    enum ls_status result = LS_OK;
    for (uint32_t operation = 1; operation < OPERATIONS; operation++) {
        const struct task task = {request, subject, operation};
        if (!(operations & 1u << operation))
            continue;
        const enum ls_status status = verify_row(&task, rows);
        if (status && status != LS_FAILED)
            return status;
        if (status)
            result = status;
    }
    return result;
}

// ---- The command line ----

static enum ls_status read_operations(const char *text, uint32_t *out)
{
    char names[128];
    uint32_t found = 0;
    if (strcmp(text, "all") == 0) {
        *out = 0;
        return LS_OK;
    }
    snprintf(names, sizeof(names), "%s", text);
    char *rest = NULL;
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        uint32_t operation = 1;
        while (operation < OPERATIONS && strcmp(name, ls_collective_operation_text(operation)))
            operation++;
        if (operation == OPERATIONS) {
            ls_error("usage",
                     "--operation=%s: unknown operation '%s'; expected all, or all-reduce, "
                     "reduce-scatter, all-gather, broadcast, reduce, all-to-all",
                     text, name);
            return LS_USAGE;
        }
        found |= 1u << operation;
    }
    if (!found) {
        ls_error("usage", "--operation= names no operation");
        return LS_USAGE;
    }
    *out = found;
    return LS_OK;
}

// What was given; else the default, which is another one for a drawing.
static const char *text_or(const struct arguments *arguments, const char *name, bool draw,
                           const char *drawn)
{
    return draw && !arguments_given(arguments, name) ? drawn : arguments_text(arguments, name);
}

static enum ls_status check_drawn(const struct arguments *arguments, const struct request *request)
{
    if (request->worlds.count != 1 || request->worlds.numbers[0].value > VERIFY_DRAW_WORLD)
        ls_error("usage",
                 "--draw: expected one world of at most %d ranks, for example --world=4, "
                 "not --world=%s",
                 VERIFY_DRAW_WORLD, arguments_text(arguments, "world"));
    else if (request->counts.count != 1)
        ls_error("usage", "--draw: expected one count, for example --count=32, not --count=%s",
                 arguments_text(arguments, "count"));
    else if (request->hosts.count != 1)
        ls_error("usage",
                 "--draw: expected one number, for example --ranks-per-host=2, not "
                 "--ranks-per-host=%s",
                 arguments_text(arguments, "ranks-per-host"));
    else
        return LS_OK;
    return LS_USAGE;
}

static int longest_name(const struct arguments *arguments, int least)
{
    int longest = least;
    for (size_t i = 0; i < arguments->operand_count; i++) {
        const int length = (int)strlen(arguments_short_name(arguments->operands[i]));
        longest = length > longest ? length : longest;
    }
    return longest;
}

static enum ls_status read_request(const struct arguments *arguments, struct request *out)
{
    uint64_t seconds = 0;
    char count[24];
    out->draw = arguments_given(arguments, "draw");
    out->name_width = longest_name(arguments, 22);
    out->halves = arguments_given(arguments, "wire");
    enum ls_status status =
        number_list_parse("--world", text_or(arguments, "world", out->draw, "4"), 1,
                          LS_VERIFY_WORLD, false, &out->worlds);
    if (status)
        return status;
    snprintf(count, sizeof(count), "%" PRId64, 64 * out->worlds.numbers[0].value);
    status = number_list_parse("--count", text_or(arguments, "count", out->draw, count), 0,
                               (int64_t)LS_VERIFY_COUNT - LS_VERIFY_WORLD, true, &out->counts);
    if (!status)
        status = number_list_parse("--ranks-per-host",
                                   text_or(arguments, "ranks-per-host", out->draw, "0"), 0,
                                   LS_VERIFY_WORLD, false, &out->hosts);
    if (!status && out->draw)
        status = check_drawn(arguments, out);
    if (!status)
        status = read_operations(arguments_text(arguments, "operation"), &out->operations);
    if (!status)
        status = arguments_count(arguments, "element-bytes", 1, 16, &out->element_bytes);
    if (!status)
        status = arguments_count(arguments, "deadline", 1, 1000000, &seconds);
    out->deadline_ns = seconds * UINT64_C(1000000000);
    return status;
}

// All are opened before the first is verified, so that a wrong name costs no time.
static enum ls_status open_all(struct ls_loader *loader, const struct arguments *arguments,
                               struct subject *subjects)
{
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < arguments->operand_count; i++) {
        subjects[i].name = arguments_short_name(arguments->operands[i]);
        status =
            ls_loader_open_scheduled(loader, "verify", arguments->operands[i], &subjects[i].opened);
    }
    return status;
}

static enum ls_status verify_all(const struct arguments *arguments, const struct request *request,
                                 const struct subject *subjects)
{
    const char *json = arguments_text(arguments, "json");
    struct ls_rows *rows = NULL;
    enum ls_status result = ls_rows_create(&rows);
    if (result)
        return result;
    if (!request->draw)
        print_heading(request->name_width);
    for (size_t i = 0; i < arguments->operand_count; i++) {
        const enum ls_status status = verify_subject(request, &subjects[i], rows);
        if (status)
            result = status;
        if (status && status != LS_FAILED)
            break;
    }
    if (json && (!result || result == LS_FAILED)) {
        const enum ls_status written = ls_rows_write(rows, "--json", json, "verify", !result);
        result = result ? result : written;
    }
    ls_rows_destroy(rows);
    return result;
}

static enum ls_status run(const struct arguments *arguments)
{
    struct request request = {0};
    struct subject subjects[ARGUMENTS_MAX] = {{0}};
    struct ls_loader *loader = NULL;
    const char *json = arguments_text(arguments, "json");
    if (!arguments->operand_count) {
        ls_error("usage", "the collective is missing: lockstep verify ring, or a file: "
                          "lockstep verify ./collective-mine.so");
        return LS_USAGE;
    }
    enum ls_status status = read_request(arguments, &request);
    if (!status && json)
        status = ls_report_check_path("--json", json);
    if (!status)
        status = ls_loader_create(arguments_text(arguments, "plugin-path"), &loader);
    if (!status)
        status = open_all(loader, arguments, subjects);
    if (!status)
        status = verify_all(arguments, &request, subjects);
    ls_loader_destroy(loader);
    number_list_finish(&request.worlds);
    number_list_finish(&request.counts);
    number_list_finish(&request.hosts);
    return status;
}

const struct command verify_command = {
    .name = "verify",
    .operands = "NAME[:option=value,...]|FILE.so ...",
    .summary = "proves what a collective's schedule promises, and counts rounds and bytes",
    .help = help,
    .most_operands = ARGUMENTS_MAX,
    .arguments = table,
    .run = run,
};
