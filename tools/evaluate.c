// SPDX-License-Identifier: Apache-2.0
// lockstep evaluate: loss and accuracy of saved weights.
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/run_callbacks.h"
#include "tools/run_options.h"

#include "core/base/log.h"
#include "core/report/json_values.h"
#include "core/report/made.h"
#include "core/report/report.h"
#include "core/report/whole_file.h"

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to evaluate"},
    {"model", "NAME|FILE", NULL, "a built-in model, Keras model JSON, or a .keras or .h5 file",
     .first_day = true},
    {"initial-weights", "FILE", NULL,
     "weights to evaluate: .safetensors, .weights.h5, .keras or .h5; default: those in the model's "
     "file, else untrained ones",
     .first_day = true},
    {"dataset", "NAME[:option=value,...]", NULL,
     "what to evaluate on, such as fashion-mnist; as for train", .first_day = true},
    {"split", "train|test|validation", "test",
     "which part of the dataset; validation is what train computes val_loss on", .first_day = true},
    {"loss", "NAME[:option=value,...]|OUTPUT=NAME,...", NULL, "as for train"},
    {"loss-weights", "OUTPUT=X,...", NULL, "as for train"},
    {"metrics", "[OUTPUT=]NAME[:option=value],...", NULL,
     "what to measure beside the loss, such as accuracy,auc; as for train", .first_day = true},
    {"seed", "N", "0", "seed of untrained weights", .excludes = "initial-weights"},
    {NULL, NULL, NULL, "How"},
    RUN_ARGUMENTS,
    {"callback", "NAME[:option=value,...]", NULL,
     "a callback that is told of the evaluation, a plugin by its name or path (docs/callbacks.md); "
     "may be given several times",
     .repeats = true},
    {"report", "FILE", NULL,
     "write one JSON object: model, dataset, split, examples, seconds, and each metric by its "
     "name",
     .writes = true, .first_day = true},
    RESULT_ARGUMENTS,
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "Example:\n"
    "  lockstep evaluate --model=cnn --dataset=fashion-mnist --initial-weights=cnn.safetensors\n";

static enum ls_status write_report(const struct arguments *arguments, const char *path,
                                   const struct ls_scores *scores)
{
    struct ls_whole_file file = {0};
    json_t *root = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "made", ls_made_json(),
                             "command", ls_report_text_json("evaluate"), "model",
                             ls_made_text_json(NULL, arguments_text(arguments, "model")), "dataset",
                             ls_made_text_json(NULL, arguments_text(arguments, "dataset")), "split",
                             ls_report_text_json(arguments_text(arguments, "split")), "examples",
                             ls_report_count_json(scores->examples), "seconds",
                             ls_report_number_json(scores->seconds));
    bool good = root != NULL;
    for (uint32_t i = 0; good && i < scores->metrics.count; i++)
        good = json_object_set_new(root, scores->metrics.list[i].name,
                                   ls_report_number_json(scores->metrics.list[i].value)) == 0;
    enum ls_status status = good ? ls_whole_file_open("--report", path, &file) : LS_OUT_OF_MEMORY;
    if (!status && (json_dumpf(root, file.stream, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) ||
                    fputc('\n', file.stream) == EOF)) {
        ls_error("--report", "%s: cannot be written", path);
        ls_whole_file_discard(&file);
        status = LS_FAILED;
    }
    if (!status)
        status = ls_whole_file_commit(&file);
    json_decref(root);
    return status;
}

// Those that Lockstep has are about trainings.
static void warn_of_deaf(const struct run_callbacks *callbacks)
{
    for (uint32_t i = 0; i < callbacks->count; i++) {
        const struct ls_callbacks *callback = &callbacks->tables[i];
        if (!callback->on_test_begin && !callback->on_test_end && !callback->on_test_batch_begin &&
            !callback->on_test_batch_end)
            ls_warn("--callback", "%s has nothing to do in an evaluation", callback->name);
    }
}

static enum ls_status evaluate(const struct arguments *arguments, struct ls_run *run,
                               struct ls_data *data, const struct run_callbacks *callbacks)
{
    const struct ls_compile_options options = {
        .optimizer = "sgd", // none is used, whatever the model's file says
        .loss = arguments_text(arguments, "loss"),
        .loss_weights = arguments_text(arguments, "loss-weights"),
        .metrics = arguments_text(arguments, "metrics"),
    };
    struct ls_model *model = NULL;
    struct ls_scores scores;
    uint64_t batch = 0, replica_batch = 0;
    const char *report = arguments_text(arguments, "report");
    enum ls_status status = run_options_batch(arguments, &batch, &replica_batch);
    if (!status && report)
        status = ls_report_check_path("--report", report);
    if (!status)
        status = run_options_open_model(arguments, run, data, &model);
    if (!status)
        status = ls_compile(model, &options);
    if (!status)
        status = run_options_load_weights(arguments, model);
    if (!status)
        status = ls_set_callbacks(model, callbacks->tables, callbacks->count);
    if (!status)
        run_options_warn_untrained(model, "evaluate");
    if (!status)
        run_options_warn_idle(arguments, run);
    if (!status)
        status =
            ls_evaluate(model, data, batch ? batch : replica_batch * ls_run_replicas(run), &scores);
    if (!status && ls_run_is_chief(run)) {
        printf("%llu example%s - %.2f s", (unsigned long long)scores.examples,
               scores.examples == 1 ? "" : "s", scores.seconds);
        for (uint32_t i = 0; i < scores.metrics.count; i++)
            printf(" - %s: %.4f", scores.metrics.list[i].name, scores.metrics.list[i].value);
        putchar('\n');
    }
    if (!status && report && ls_run_is_chief(run))
        status = write_report(arguments, report, &scores);
    ls_model_close(model);
    return status;
}

static enum ls_status run(const struct arguments *arguments)
{
    struct ls_run_options options = {0};
    struct ls_run *run = NULL;
    struct ls_data *data = NULL;
    struct run_callbacks callbacks = {0};
    interrupt_catch();
    enum ls_status status = run_options_need(arguments, "model", "cnn");
    if (!status)
        status = run_options_need(arguments, "dataset", "fashion-mnist");
    if (!status)
        status = run_options_read(arguments, &options);
    if (!status)
        status = arguments_count(arguments, "seed", 0, INT64_MAX, &options.seed);
    if (!status)
        status = ls_run_open(&options, &run);
    if (!status)
        status = ls_run_data_open(run, arguments_text(arguments, "dataset"),
                                  arguments_text(arguments, "split"), &data);
    if (!status && !data) {
        ls_error("--split", "'%s' is one split without validation_split=: there is no validation",
                 arguments_text(arguments, "dataset"));
        status = LS_USAGE;
    }
    if (!status)
        status = run_callbacks_open(arguments, run, &callbacks);
    warn_of_deaf(&callbacks);
    interrupt_run(run);
    if (!status)
        status = evaluate(arguments, run, data, &callbacks);
    if (status == LS_INTERRUPTED)
        ls_warn("evaluate", "interrupted");
    interrupt_run(NULL);
    run_callbacks_close(&callbacks);
    ls_run_close(run);
    ls_data_close(data);
    return status;
}

const struct command evaluate_command = {
    .name = "evaluate",
    .operands = "",
    .summary = "prints loss and accuracy of a model's weights on a dataset",
    .help = help,
    .arguments = table,
    .run = run,
};
