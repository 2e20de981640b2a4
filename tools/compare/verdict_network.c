// SPDX-License-Identifier: Apache-2.0
// A comparison in words: which run is the first to a loss on a network that is not here.
#include "tools/compare/sentences.h"

#include <math.h>

// Ratios nearer to 1 say nothing: what is simulated is no nearer to the truth than that.
#define RATIO_LEAST 1.1

const char *ls_long_time(double seconds, char text[static LS_LONG_TIME_BYTES])
{
    if (!isfinite(seconds))
        snprintf(text, LS_LONG_TIME_BYTES, "-");
    else if (seconds < 1)
        snprintf(text, LS_LONG_TIME_BYTES, "%.3g ms", 1e3 * seconds);
    else if (seconds < 60)
        snprintf(text, LS_LONG_TIME_BYTES, "%.3g s", seconds);
    else if (seconds < 3600)
        snprintf(text, LS_LONG_TIME_BYTES, "%.3g min", seconds / 60);
    else
        snprintf(text, LS_LONG_TIME_BYTES, "%.3g h", seconds / 3600);
    return text;
}

const char *ls_compute_text(const struct ls_comparison *comparison,
                            char text[static LS_COMPUTE_BYTES])
{
    char time[LS_LONG_TIME_BYTES];
    if (isfinite(comparison->compute_scale))
        snprintf(text, LS_COMPUTE_BYTES, "compute %g times as fast as measured here",
                 comparison->compute_scale);
    else if (isfinite(comparison->compute_seconds))
        snprintf(text, LS_COMPUTE_BYTES, "forward and backward in %s",
                 ls_long_time(comparison->compute_seconds, time));
    else
        snprintf(text, LS_COMPUTE_BYTES, "compute as measured on this CPU");
    return text;
}

const char *ls_goal_text(const struct ls_comparison *comparison, char text[static LS_GOAL_BYTES])
{
    if (comparison->target_metric)
        snprintf(text, LS_GOAL_BYTES, "%s %g", comparison->target_metric, comparison->target_value);
    else if (isfinite(comparison->goal_loss))
        snprintf(text, LS_GOAL_BYTES, "a loss of %.4g", comparison->goal_loss);
    else
        snprintf(text, LS_GOAL_BYTES, "a common loss (none: no run trained to its end)");
    return text;
}

static bool arrives(const struct ls_comparison *comparison, size_t index)
{
    return comparison->runs[index].replicas > 1 &&
           isfinite(comparison->runs[index].elsewhere.goal_seconds);
}

// The first at the goal, of runs that use the network; `plain`: of those that compute what one
// device does.
static size_t first_of(const struct ls_comparison *comparison, bool plain)
{
    size_t first = LS_COMPARISON_NONE;
    for (size_t i = 0; i < comparison->run_count; i++) {
        if (!arrives(comparison, i) || (plain && comparison->runs[i].way))
            continue;
        if (first == LS_COMPARISON_NONE || comparison->runs[i].elsewhere.goal_seconds <
                                               comparison->runs[first].elsewhere.goal_seconds)
            first = i;
    }
    return first;
}

// The mean of all steps to the goal; those before a filter begins take another time.
static double step_to_goal(const struct ls_compared_run *run)
{
    return run->elsewhere.goal_seconds / (double)run->goal_step;
}

static void put_arrival(FILE *out, const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    char total[LS_LONG_TIME_BYTES], step[LS_LONG_TIME_BYTES];
    fprintf(out, "%s (%llu step%s of %s)", ls_long_time(run->elsewhere.goal_seconds, total),
            (unsigned long long)run->goal_step, run->goal_step == 1 ? "" : "s",
            ls_long_time(step_to_goal(run), step));
}

// Whether sending less pays there, and how much.
static void say_choice(FILE *out, const struct ls_comparison *comparison, size_t first,
                       size_t plain)
{
    const double ratio = comparison->runs[plain].elsewhere.goal_seconds /
                         comparison->runs[first].elsewhere.goal_seconds;
    fputs("; ", out);
    ls_put_compared_name(out, comparison, plain);
    fputs(", which computes what one device does, after ", out);
    put_arrival(out, comparison, plain);
    if (ratio < RATIO_LEAST) {
        fputs(". That is no difference worth another algorithm: ", out);
        ls_put_compared_name(out, comparison, plain);
        fputs(" is the better choice there", out);
        return;
    }
    fprintf(out, ", %.3g times as long", ratio);
    if (step_to_goal(&comparison->runs[plain]) <
        RATIO_LEAST * step_to_goal(&comparison->runs[first]))
        fputs(". Sending less makes no step shorter there: what it gains are steps, which another "
              "learning rate may gain, too",
              out);
}

static void say_plain_is_better(FILE *out, const struct ls_comparison *comparison)
{
    size_t next = LS_COMPARISON_NONE;
    for (size_t i = 0; i < comparison->run_count; i++)
        if (arrives(comparison, i) && comparison->runs[i].way &&
            (next == LS_COMPARISON_NONE || comparison->runs[i].elsewhere.goal_seconds <
                                               comparison->runs[next].elsewhere.goal_seconds))
            next = i;
    if (next == LS_COMPARISON_NONE)
        return;
    fputs(". Sending less does not pay there: ", out);
    ls_put_compared_name(out, comparison, next);
    fputs(" would take ", out);
    put_arrival(out, comparison, next);
}

// A network may make several machines slower than one.
static void say_one_machine(struct ls_sentence_writer *writer,
                            const struct ls_comparison *comparison, size_t first)
{
    char time[LS_LONG_TIME_BYTES];
    const size_t one = comparison->reference;
    if (one == LS_COMPARISON_NONE || comparison->runs[one].replicas > 1 ||
        !(comparison->runs[one].elsewhere.goal_seconds <
          comparison->runs[first].elsewhere.goal_seconds))
        return;
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    fputs("No run over that network would be as fast as one machine: ", out);
    ls_put_compared_name(out, comparison, one);
    fprintf(out, " with %u thread%s takes %s.", comparison->runs[one].threads,
            comparison->runs[one].threads == 1 ? "" : "s",
            ls_long_time(comparison->runs[one].elsewhere.goal_seconds, time));
    ls_sentence_end(writer);
}

// Where no run over several ranks is known to reach the goal.
static void put_none(FILE *out, const struct ls_comparison *comparison)
{
    char goal[LS_GOAL_BYTES];
    bool several = false, simulated = false;
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_run *run = &comparison->runs[i];
        several = several || run->replicas > 1;
        simulated = simulated || (run->replicas > 1 && isfinite(run->elsewhere.step_seconds));
    }
    if (!several)
        fprintf(out, "nothing would travel, because each run has one replica; compare with %s=2.",
                comparison->for_python ? "replicas" : "--replicas");
    else if (!simulated)
        fputs("no run over several ranks was simulated.", out);
    else
        fprintf(out, "no run over several ranks reaches %s.", ls_goal_text(comparison, goal));
}

void ls_say_network(struct ls_sentence_writer *writer, const struct ls_comparison *comparison)
{
    char compute[LS_COMPUTE_BYTES], goal[LS_GOAL_BYTES];
    FILE *out = comparison->network ? ls_sentence_begin(writer) : NULL;
    if (!out)
        return;
    const size_t first = first_of(comparison, false), plain = first_of(comparison, true);
    fprintf(out, "On network %s (simulated, %s), ", comparison->network,
            ls_compute_text(comparison, compute));
    if (first == LS_COMPARISON_NONE) {
        put_none(out, comparison);
        ls_sentence_end(writer);
        return;
    }
    ls_put_compared_name(out, comparison, first);
    fprintf(out, " would reach %s first, after ", ls_goal_text(comparison, goal));
    put_arrival(out, comparison, first);
    if (plain == first)
        say_plain_is_better(out, comparison);
    else if (plain != LS_COMPARISON_NONE)
        say_choice(out, comparison, first, plain);
    fputs(".", out);
    ls_sentence_end(writer);
    say_one_machine(writer, comparison, first);
}
