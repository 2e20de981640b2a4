// SPDX-License-Identifier: Apache-2.0
// A comparison as tables for a terminal: speed, where the time of a step goes, truth; then the verdict.
#include "tools/compare/comparison.h"

#include "tools/compare/sentences.h"

#include <math.h>
#include <string.h>

#define NAME_LEAST 24
#define LINE_LETTERS 100
#define CELL_LETTERS 32
#define REASON_LETTERS 60

static bool has_results(const struct ls_compared_run *run)
{
    return isfinite(run->rate) && run->status != LS_COMPARED_FAILED &&
           run->status != LS_COMPARED_UNAVAILABLE;
}

static bool any_results(const struct ls_comparison *comparison)
{
    for (size_t i = 0; i < comparison->run_count; i++)
        if (has_results(&comparison->runs[i]))
            return true;
    return false;
}

static bool is_reference(const struct ls_comparison *comparison, size_t index)
{
    return index == comparison->reference;
}

static int name_width(const struct ls_comparison *comparison)
{
    size_t width = NAME_LEAST;
    for (size_t i = 0; i < comparison->run_count; i++) {
        const size_t length = strlen(comparison->runs[i].strategy) +
                              (is_reference(comparison, i) ? strlen(" (reference)") : 0);
        if (length > width)
            width = length;
    }
    return (int)width;
}

static void print_name(const struct ls_comparison *comparison, size_t index, FILE *out)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    char name[512];
    snprintf(name, sizeof(name), "%s%s", run->strategy,
             is_reference(comparison, index) ? " (reference)" : "");
    fprintf(out, "%-*s %8u", name_width(comparison), name, run->replicas);
}

static void print_heading(const struct ls_comparison *comparison, const char *title, FILE *out)
{
    fprintf(out, "\n%-*s %8s", name_width(comparison), title, "replicas");
}

// A number with `digits` after the point; a dash where it is not known.
static void print_number(FILE *out, int width, int digits, double value)
{
    if (isfinite(value))
        fprintf(out, " %*.*f", width, digits, value);
    else
        fprintf(out, " %*s", width, "-");
}

static void print_small(FILE *out, int width, double value)
{
    if (isfinite(value))
        fprintf(out, " %*.1e", width, value);
    else
        fprintf(out, " %*s", width, "-");
}

// "903 kB": three digits are enough to compare.
static void print_bytes(FILE *out, int width, uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    char text[CELL_LETTERS];
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        value /= 1000;
    snprintf(text, sizeof(text), "%.*f %s", unit && value < 99.95 ? 1 : 0, value, units[unit]);
    fprintf(out, " %*s", width, text);
}

// Behind the file of a plugin, which would leave no room for it.
static const char *reason_in_short(const char *reason)
{
    static const char before[] = " cannot run here: ";
    const char *found = strstr(reason, before);
    return found ? found + strlen(before) : reason;
}

// As many words as fit; the whole stands in the verdict.
static void print_start(const char *text, size_t letters, FILE *out)
{
    size_t length = strlen(text);
    if (length <= letters) {
        fputs(text, out);
        return;
    }
    for (length = letters - strlen("..."); length > letters / 2 && text[length] != ' '; length--)
        ;
    while (length && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--;
    fprintf(out, "%.*s...", (int)length, text);
}

static void print_no_result(const struct ls_compared_run *run, FILE *out)
{
    static const char *const words[] = {
        [LS_COMPARED_DONE] = "trained too few steps to be timed",
        [LS_COMPARED_UNAVAILABLE] = "not available",
        [LS_COMPARED_FAILED] = "failed",
        [LS_COMPARED_INTERRUPTED] = "interrupted before its first step",
    };
    fprintf(out, "  %s", words[run->status]);
    if (run->reason) {
        fputs(": ", out);
        print_start(reason_in_short(run->reason), REASON_LETTERS, out);
    }
    fputc('\n', out);
}

static void print_target(const struct ls_comparison *comparison, const struct ls_compared_run *run,
                         FILE *out)
{
    if (!comparison->target_metric)
        return;
    char text[CELL_LETTERS] = "never";
    if (isfinite(run->target_seconds))
        snprintf(text, sizeof(text), "%.1f s", run->target_seconds);
    fprintf(out, " %9s", text);
}

// How much stands behind the speeds, which is not what stands behind the losses.
static void print_timing(const struct ls_comparison *comparison, FILE *out)
{
    uint64_t least = UINT64_MAX, most = 0;
    size_t processes = 0;
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_run *run = &comparison->runs[i];
        if (!has_results(run) || !run->process_count)
            continue;
        processes = run->process_count;
        least = run->timed_steps < least ? run->timed_steps : least;
        most = run->timed_steps > most ? run->timed_steps : most;
    }
    if (!processes)
        return;
    fprintf(out,
            "\nexamples/s: mean (geometric) of %zu process%s of each run, which took turns; %llu",
            processes, processes == 1 ? "" : "es", (unsigned long long)least);
    if (most != least)
        fprintf(out, " to %llu", (unsigned long long)most);
    fprintf(out,
            " steps were timed.\nquartiles: of the turns. All other columns are of the training "
            "of %llu steps.\n",
            (unsigned long long)comparison->steps);
}

static void print_speed(const struct ls_comparison *comparison, FILE *out)
{
    print_heading(comparison, "Speed", out);
    fprintf(out, " %7s %10s %17s %10s %8s%s\n", "threads", "examples/s", "quartiles", "bytes/step",
            "memory", comparison->target_metric ? "    target" : "");
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_run *run = &comparison->runs[i];
        print_name(comparison, i, out);
        if (!has_results(run)) {
            print_no_result(run, out);
            continue;
        }
        char quartiles[2 * CELL_LETTERS];
        snprintf(quartiles, sizeof(quartiles), "%.0f .. %.0f", run->rate_low, run->rate_high);
        fprintf(out, " %7u %10.0f %17s", run->threads, run->rate, quartiles);
        print_bytes(out, 10, run->bytes_per_step);
        print_bytes(out, 8, run->replica_bytes);
        print_target(comparison, run, out);
        fputs(run->status == LS_COMPARED_INTERRUPTED ? "  interrupted\n" : "\n", out);
    }
    print_timing(comparison, out);
}

// Devices that compute beside the host: only there is a column for it.
static bool waits_for_devices(const struct ls_comparison *comparison)
{
    for (size_t i = 0; i < comparison->run_count; i++)
        if (has_results(&comparison->runs[i]) && comparison->runs[i].times.device > 0)
            return true;
    return false;
}

static void print_times(const struct ls_comparison *comparison, FILE *out)
{
    print_heading(comparison, "Time of a step, ms", out);
    const bool device = waits_for_devices(comparison);
    fprintf(out, " %9s %8s %9s %9s %8s", "step", "input", "compute", "exposed", "update");
    fprintf(out, device ? " %9s" : "", "device");
    fprintf(out, " %8s | %s\n", "other", "all communication");
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_run *run = &comparison->runs[i];
        const struct ls_compared_times *times = &run->times;
        if (!has_results(run))
            continue;
        print_name(comparison, i, out);
        print_number(out, 9, 3, 1e3 * times->median);
        print_number(out, 8, 3, 1e3 * times->input);
        print_number(out, 9, 3, 1e3 * times->compute);
        print_number(out, 9, 3, 1e3 * times->exposed_communication);
        print_number(out, 8, 3, 1e3 * times->update);
        if (device)
            print_number(out, 9, 3, 1e3 * times->device);
        print_number(out, 8, 3, 1e3 * times->other);
        fputs(" |", out);
        print_number(out, 17, 3, 1e3 * times->communication);
        fputc('\n', out);
    }
}

static void print_truth(const struct ls_comparison *comparison, FILE *out)
{
    print_heading(comparison, "Truth", out);
    const bool shares = comparison->basis == LS_BASIS_SHARES;
    const bool bits = comparison->basis == LS_BASIS_BITS;
    char twin[LS_TWIN_BYTES];
    fprintf(out, " %8s %8s %8s", "loss", "accuracy", "val_acc.");
    if (shares)
        fprintf(out, " %10s", "first two");
    fprintf(out, " %10s %10s %10s %8s%s\n", "first ten", "all steps", "parameters", "replicas",
            bits ? "     bits" : "");
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_run *run = &comparison->runs[i];
        if (!has_results(run))
            continue;
        print_name(comparison, i, out);
        print_number(out, 8, 4, run->final_loss);
        print_number(out, 8, 4, run->final_accuracy);
        print_number(out, 8, 4, run->val_accuracy);
        const bool other = !is_reference(comparison, i); // from itself nothing differs
        if (shares)
            print_small(out, 10, other ? run->loss_deviation_first_two : NAN);
        print_small(out, 10, other ? run->loss_deviation_first_ten : NAN);
        print_small(out, 10, other ? run->loss_deviation : NAN);
        print_small(out, 10, other ? run->parameter_deviation : NAN);
        fprintf(out, " %8s",
                run->replicas_equal < 0 ? "-"
                : run->replicas_equal   ? "equal"
                                        : "DIFFER");
        if (bits)
            fprintf(out, " %8s",
                    !other || run->same_bits < 0 ? "-"
                    : run->same_bits             ? "same"
                                                 : "DIFFER");
        fprintf(out, run->way ? "  %s\n" : "\n", ls_way_text(run->way));
    }
    if (bits) {
        fputs("\nfirst ten, all steps: largest difference of the losses from the reference, "
              "relative;\n"
              "parameters: absolute, after the last step. Bits: whether losses and parameters are "
              "those of the reference.\n",
              out);
        return;
    }
    fprintf(out, "%-*s %8s %8s %8s %8s", name_width(comparison), "rounding spread", "", "", "", "");
    if (shares)
        print_small(out, 10, comparison->rounding_spread_first_two);
    print_small(out, 10, comparison->rounding_spread_first_ten);
    print_small(out, 10, comparison->rounding_spread);
    print_small(out, 10, comparison->rounding_spread_parameters);
    fprintf(out,
            "\n\n%sfirst ten, all steps: largest difference of the losses from %s, relative;\n"
            "parameters: absolute, after the last step. Rounding spread: the same for %s.\n",
            shares ? "first two, " : "",
            shares ? "one device that takes the same shares" : "the reference",
            ls_twin_text(comparison, twin));
}

static void print_recorded(const struct ls_comparison *comparison, FILE *out)
{
    char time[LS_LONG_TIME_BYTES];
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_elsewhere *elsewhere = &comparison->runs[i].elsewhere;
        if (!isfinite(elsewhere->step_seconds))
            continue;
        if (elsewhere->unfiltered_steps)
            fprintf(out, "Of %s, the first %llu steps are not filtered and take %s each.\n",
                    comparison->runs[i].strategy, (unsigned long long)elsewhere->unfiltered_steps,
                    ls_long_time(elsewhere->unfiltered_seconds, time));
        if (elsewhere->recorded_steps < comparison->steps)
            fprintf(out, "Of %s, the first %llu of %llu steps were recorded.\n",
                    comparison->runs[i].strategy, (unsigned long long)elsewhere->recorded_steps,
                    (unsigned long long)comparison->steps);
    }
}

static void print_elsewhere(const struct ls_comparison *comparison, FILE *out)
{
    char title[64], goal[LS_GOAL_BYTES], compute[LS_COMPUTE_BYTES], time[LS_LONG_TIME_BYTES];
    if (!comparison->network)
        return;
    snprintf(title, sizeof(title), "On %.40s, ms", comparison->network);
    print_heading(comparison, title, out);
    fprintf(out, " %11s %11s %11s %8s %9s\n", "step", "work", "exchanges", "steps", "time");
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_run *run = &comparison->runs[i];
        const struct ls_compared_elsewhere *elsewhere = &run->elsewhere;
        if (!has_results(run))
            continue;
        print_name(comparison, i, out);
        if (!isfinite(elsewhere->step_seconds)) {
            fprintf(out, "  not simulated: %s\n",
                    elsewhere->reason ? elsewhere->reason : "it did not train to the end");
            continue;
        }
        print_number(out, 11, 3, 1e3 * elsewhere->step_seconds);
        print_number(out, 11, 3, 1e3 * elsewhere->work_seconds);
        print_number(out, 11, 3, 1e3 * elsewhere->exchange_seconds);
        if (run->goal_step)
            fprintf(out, " %8llu %9s\n", (unsigned long long)run->goal_step,
                    ls_long_time(elsewhere->goal_seconds, time));
        else
            fprintf(out, " %8s %9s\n", "-", run->status == LS_COMPARED_DONE ? "never" : "-");
    }
    fprintf(out,
            "\nSimulated, %s. Step: the mean; work: what a rank does in it itself; exchanges: all "
            "of\nthem, hidden or not. Steps and time: to %s.\n",
            ls_compute_text(comparison, compute), ls_goal_text(comparison, goal));
    print_recorded(comparison, out);
}

// A sentence with a hanging indent. A command at its end has a line of its own, that it can be copied from.
static void print_sentence(const char *sentence, FILE *out)
{
    size_t column = 0;
    const char *command = ls_sentence_code(sentence);
    for (const char *word = sentence; *word;) {
        if (word == command) {
            fprintf(out, "\n  %s", command);
            break;
        }
        const size_t length = strcspn(word, " ");
        if (column == 0 || column + length + 1 > LINE_LETTERS) {
            fputs(column ? "\n  " : "- ", out);
            column = 2;
        } else {
            fputc(' ', out);
            column++;
        }
        fwrite(word, 1, length, out);
        column += length;
        word += length;
        word += *word == ' ';
    }
    fputc('\n', out);
}

static void print_sentences(const char *title, const struct ls_sentences *sentences, FILE *out)
{
    if (sentences->count)
        fprintf(out, "\n%s\n", title);
    for (size_t i = 0; i < sentences->count; i++)
        print_sentence(sentences->list[i], out);
}

enum ls_status ls_comparison_print(const struct ls_comparison *comparison, FILE *out)
{
    struct ls_sentences verdict = {0}, suggestions = {0};
    enum ls_status status = ls_verdict(comparison, &verdict);
    if (!status)
        status = ls_suggestions(comparison, &suggestions);
    if (!status) {
        print_speed(comparison, out);
        if (any_results(comparison)) {
            print_times(comparison, out);
            print_truth(comparison, out);
            print_elsewhere(comparison, out);
        }
        print_sentences("Verdict", &verdict, out);
        print_sentences("What to try", &suggestions, out);
    }
    ls_sentences_finish(&verdict);
    ls_sentences_finish(&suggestions);
    return status;
}
