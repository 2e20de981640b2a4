// SPDX-License-Identifier: Apache-2.0
// All figures in three tables, how they were measured, and what the columns mean.
#include "tools/compare/page_parts.h"
#include "tools/compare/sentences.h"

#include <math.h>

enum kind {
    COUNT,
    SIGNIFICANT,
    SPEED,
    SECONDS,
    STEP_SECONDS,
    THERE, // seconds on another network
    STEPS_THERE,
    BYTES,
    DEVIATION,
    YES_NO
};

struct column {
    const char *key; // of the run, of its step_seconds, or of what was simulated
    enum kind kind;
    const char *title, *meaning;
};

static const struct column speed[] = {
    {"replicas", COUNT, "replicas", "copies of the model, each on a device of its own"},
    {"threads", COUNT, "threads", "threads of each replica"},
    {"global_batch", COUNT, "batch", "examples of a step over all replicas"},
    {"examples_per_second", SPEED, "examples/s",
     "geometric mean of the timed processes, and below it the quartiles of their turns; validation "
     "is not counted"},
    {"bytes_per_step_per_rank", BYTES, "bytes/step",
     "bytes that a rank sends in a step, padding included"},
    {"replica_bytes", BYTES, "memory",
     "largest resident memory of the process over its replicas, and that of a replica's device"},
    {"target_seconds", SECONDS, "time to target",
     "seconds of training until the target was reached, at the timed speed"},
    {"target_examples", COUNT, "examples to target", "examples trained on until then"},
};

static const struct column step[] = {
    {"median", STEP_SECONDS, "step",
     "how long a global batch takes at the timed speed; its parts have the proportions of the "
     "training"},
    {"input", STEP_SECONDS, "input", "the time that the replica waited for its batch"},
    {"compute", STEP_SECONDS, "compute", "kernels: forward, loss and backward"},
    {"communication", STEP_SECONDS, "communication",
     "all of it, also what runs while the device computes"},
    {"exposed_communication", STEP_SECONDS, "exposed",
     "the part of communication that the replica waited for"},
    {"update", STEP_SECONDS, "update", "the optimizer"},
    {"device", STEP_SECONDS, "device",
     "waiting for an asynchronous device; compute is then only the time of submitting work"},
    {"other", STEP_SECONDS, "other", "the rest of the step"},
};

static const struct column truth[] = {
    {"final_loss", SIGNIFICANT, "loss", "training loss of the last steps"},
    {"final_accuracy", SIGNIFICANT, "accuracy", "training accuracy of the last steps"},
    {"val_loss", SIGNIFICANT, "val. loss", "validation loss at the end"},
    {"val_accuracy", SIGNIFICANT, "val. accuracy", "validation accuracy at the end"},
    {"max_loss_deviation_first_two", DEVIATION, "loss dev. (2)",
     "largest relative difference from the losses of the reference over the first two steps"},
    {"max_loss_deviation_first_ten", DEVIATION, "loss dev. (10)",
     "the same over the first ten steps"},
    {"max_loss_deviation", DEVIATION, "loss dev.", "the same over all steps"},
    {"max_parameter_deviation", DEVIATION, "param. dev.",
     "largest difference from the parameters of the reference at the end, absolute"},
    {"replicas_equal", YES_NO, "replicas equal",
     "whether all replicas had the same bits in all parameters at the end"},
    {"same_bits", YES_NO, "same bits",
     "whether the losses of all steps and the parameters at the end have the bits of the "
     "reference"},
};

static const struct column elsewhere[] = {
    {"step_seconds", THERE, "step there", "how long a step would take on the network, the mean"},
    {"work_seconds", THERE, "work", "of it, what a rank computes and does itself"},
    {"exchange_seconds", THERE, "exchanges", "all exchanges of a step, hidden or not"},
    {"goal_step", STEPS_THERE, "steps to goal", "steps until the goal was reached"},
    {"goal_seconds", THERE, "time to goal",
     "as many steps there, with those before a filter begins"},
};

// As `lockstep compare` prints them, so that each is as wide as a page.
static const struct table {
    const char *title;
    const struct column *columns;
    size_t count;
} tables[] = {
    {"Speed", speed, sizeof(speed) / sizeof(speed[0])},
    {"Time of a step", step, sizeof(step) / sizeof(step[0])},
    {"Truth", truth, sizeof(truth) / sizeof(truth[0])},
    {"On the simulated network", elsewhere, sizeof(elsewhere) / sizeof(elsewhere[0])},
};
#define TABLES (sizeof(tables) / sizeof(tables[0]))

static const json_t *cell_of(const struct ls_page_run *run, const struct column *column)
{
    const json_t *from = run->json;
    if (column->kind == STEP_SECONDS)
        from = json_object_get(from, "step_seconds");
    else if (column->kind == THERE || column->kind == STEPS_THERE)
        from = json_object_get(from, "simulated");
    const json_t *cell = json_object_get(from, column->key);
    return column->kind == YES_NO ? (json_is_boolean(cell) ? cell : NULL)
                                  : (json_is_number(cell) ? cell : NULL);
}

// A column that no run has anything for (no target, no validation) is not shown.
static bool is_used(const struct ls_page *page, const struct column *column)
{
    for (size_t i = 0; i < page->run_count; i++)
        if (cell_of(&page->runs[i], column))
            return true;
    return false;
}

static void print_speed(const struct ls_page *page, const struct ls_page_run *run, double value)
{
    const double low = ls_page_number(run->json, "examples_per_second_low");
    const double high = ls_page_number(run->json, "examples_per_second_high");
    fputs(ls_page_significant(value).text, page->out);
    if (low >= 0 && low <= high)
        fprintf(page->out, "<br/><small>%s\xe2\x80\x93%s</small>", ls_page_significant(low).text,
                ls_page_significant(high).text);
}

static void print_cell(const struct ls_page *page, const struct ls_page_run *run,
                       const struct column *column)
{
    const json_t *cell = cell_of(run, column);
    const double value = ls_page_value(cell);
    char time[LS_LONG_TIME_BYTES];
    fputs("<td>", page->out);
    switch (column->kind) {
    case SPEED: print_speed(page, run, value); break;
    case COUNT:
    case STEPS_THERE: fputs(ls_page_count(value).text, page->out); break;
    case SIGNIFICANT: fputs(ls_page_significant(value).text, page->out); break;
    case THERE: fputs(ls_long_time(value, time), page->out); break;
    case SECONDS:
    case STEP_SECONDS: fputs(ls_page_seconds(value).text, page->out); break;
    case BYTES: fputs(ls_page_bytes(value).text, page->out); break;
    case DEVIATION: fputs(ls_page_deviation(value).text, page->out); break;
    case YES_NO:
        fputs(!cell ? "\xe2\x80\x93" : json_is_true(cell) ? "yes" : "no", page->out);
        break;
    }
    fputs("</td>", page->out);
}

static bool has_numbers(const struct ls_page_run *run)
{
    return ls_page_number(run->json, "examples_per_second") > 0;
}

static void print_row(const struct ls_page *page, const struct ls_page_run *run,
                      const struct table *table, size_t used)
{
    fprintf(page->out, "<tr%s><th scope=\"row\">", run->done ? "" : " class=\"absent\"");
    ls_page_put_name(page, run);
    if (run->reference)
        fputs("<br/><small>reference</small>", page->out);
    if (run->other_way)
        fprintf(page->out, "<br/><small>%s</small>", run->other_way);
    if (!run->done && has_numbers(run)) {
        fputs("<br/><small>", page->out);
        ls_page_put_reason(page, run);
        fputs("</small>", page->out);
    }
    fputs("</th>", page->out);
    if (!run->done && !has_numbers(run)) {
        fprintf(page->out, "<td class=\"text\" colspan=\"%zu\"><span class=\"stay\">", used);
        ls_page_put_reason(page, run);
        fputs("</span></td></tr>\n", page->out);
        return;
    }
    for (size_t i = 0; i < table->count; i++)
        if (is_used(page, &table->columns[i]))
            print_cell(page, run, &table->columns[i]);
    fputs("</tr>\n", page->out);
}

// Returns the number of its columns, beside the names.
static size_t print_titles(const struct ls_page *page, const struct table *table)
{
    size_t used = 0;
    fprintf(page->out,
            "<h3>%s</h3>\n<div class=\"scroll\" role=\"region\" tabindex=\"0\" "
            "aria-label=\"%s\"><table>\n<thead><tr><th scope=\"col\">strategy</th>",
            table->title, table->title);
    for (size_t i = 0; i < table->count; i++)
        if (is_used(page, &table->columns[i])) {
            fprintf(page->out, "<th scope=\"col\"><abbr title=\"%s\">%s</abbr></th>",
                    table->columns[i].meaning, table->columns[i].title);
            used++;
        }
    if (!used)
        fputs("<th scope=\"col\">result</th>", page->out);
    fputs("</tr></thead>\n<tbody>\n", page->out);
    return used ? used : 1;
}

static bool is_table_used(const struct ls_page *page, const struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        if (is_used(page, &table->columns[i]))
            return true;
    return false;
}

// The first has every run, and says why those without figures have none; the others have those with figures.
void ls_page_table(struct ls_page *page)
{
    fputs("<section id=\"table\">\n<h2>All figures</h2>\n", page->out);
    for (size_t t = 0; t < TABLES; t++) {
        if (t > 0 && !is_table_used(page, &tables[t]))
            continue;
        const size_t used = print_titles(page, &tables[t]);
        for (size_t i = 0; i < page->run_count; i++)
            if (t == 0 || page->runs[i].done || has_numbers(&page->runs[i]))
                print_row(page, &page->runs[i], &tables[t], used);
        fputs("</tbody>\n</table></div>\n", page->out);
    }
    fputs("</section>\n", page->out);
}

// ---- How it was measured ----

static size_t count_processes(const struct ls_page *page)
{
    size_t most = 0;
    for (size_t i = 0; i < page->run_count; i++) {
        const size_t processes =
            json_array_size(json_object_get(page->runs[i].json, "process_examples_per_second"));
        most = processes > most ? processes : most;
    }
    return most;
}

// Texts escaped, whole numbers as they are; nothing for what is missing.
static void print_fact(const struct ls_page *page, const char *title, const json_t *value)
{
    if (json_is_string(value)) {
        fprintf(page->out, "<dt>%s</dt><dd>", title);
        ls_page_put(page, json_string_value(value));
    } else if (json_is_integer(value)) {
        fprintf(page->out, "<dt>%s</dt><dd>%" JSON_INTEGER_FORMAT, title,
                json_integer_value(value));
    } else if (json_is_number(value)) {
        fprintf(page->out, "<dt>%s</dt><dd>%s", title,
                ls_page_significant(ls_page_value(value)).text);
    } else {
        return;
    }
    fputs("</dd>\n", page->out);
}

static void print_facts(const struct ls_page *page)
{
    static const struct {
        const char *key, *title;
    } facts[] = {
        {"model", "model"},         {"dataset", "dataset"},
        {"optimizer", "optimizer"}, {"global_batch", "global batch"},
        {"steps", "steps"},         {"seed", "seed"},
        {"device", "device"},       {"hardware", "hardware"},
        {"lockstep", "lockstep"},
    };
    const json_t *target = json_object_get(page->comparison, "target");
    const char *metric = ls_page_string(target, "metric");
    fputs("<dl>\n", page->out);
    if (ls_page_number(page->comparison, "workers") > 1)
        print_fact(page, "workers", json_object_get(page->comparison, "workers"));
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
        print_fact(page, facts[i].title, json_object_get(page->comparison, facts[i].key));
    print_fact(page, "made", json_object_get(json_object_get(page->comparison, "made"), "date"));
    if (metric) {
        fputs("<dt>target</dt><dd>", page->out);
        ls_page_put(page, metric);
        fprintf(page->out, " %s</dd>\n", ls_page_significant(ls_page_number(target, "value")).text);
    }
    fputs("</dl>\n", page->out);
}

static void print_spread(const struct ls_page *page)
{
    const double first = ls_page_number(page->comparison, "rounding_spread_first_ten");
    const double all = ls_page_number(page->comparison, "rounding_spread");
    const double parameters = ls_page_number(page->comparison, "rounding_spread_parameters");
    if (!isfinite(first) && !isfinite(all) && !isfinite(parameters))
        return;
    fputs("<p>The reference ran a second time with other roundings (", page->out);
    ls_page_put(page, ls_page_twin(page));
    fprintf(page->out,
            "). The difference of the two runs is the rounding spread (losses: %s in the first ten "
            "steps, %s over all, relative; "
            "parameters: %s).</p>\n",
            ls_page_deviation(first).text, ls_page_deviation(all).text,
            ls_page_deviation(parameters).text);
}

static void print_account(const struct ls_page *page)
{
    const size_t processes = count_processes(page);
    fputs("<p>Every strategy trained the same model from the same initial weights and seed, on the "
          "same "
          "examples in the same order.",
          page->out);
    if (processes > 1)
        fprintf(page->out,
                " Then each was timed in %zu fresh processes, which took turns, so that a machine "
                "that changes its speed favours none; a difference counts if chance alone would "
                "produce it at most once in a hundred times.",
                processes);
    fputs("</p>\n", page->out);
    print_spread(page);
    for (size_t i = 0; i < page->run_count; i++) {
        if (!page->runs[i].other_way)
            continue;
        fputs("<p>A run that is asynchronous, in rounds or filtered makes other updates than the "
              "reference. Its deviation "
              "shows how different the training was, not that anything is wrong. Judge it by loss "
              "and accuracy.</p>\n",
              page->out);
        break;
    }
}

void ls_page_method(struct ls_page *page)
{
    fputs("<section id=\"method\">\n<h2>How it was measured</h2>\n", page->out);
    print_account(page);
    print_facts(page);
    fputs("<h3>Columns</h3>\n<dl>\n", page->out);
    for (size_t t = 0; t < TABLES; t++)
        for (size_t i = 0; i < tables[t].count; i++)
            if (is_used(page, &tables[t].columns[i]))
                fprintf(page->out, "<dt>%s</dt><dd>%s</dd>\n", tables[t].columns[i].title,
                        tables[t].columns[i].meaning);
    fputs("</dl>\n</section>\n", page->out);
}
