// SPDX-License-Identifier: Apache-2.0
// lockstep predict: what a model makes of each example.
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/run_callbacks.h"
#include "tools/run_options.h"

#include "core/base/clock.h"
#include "core/base/log.h"

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to predict"},
    {"model", "NAME|FILE", NULL, "a built-in model, Keras model JSON, or a .keras or .h5 file",
     .first_day = true},
    {"initial-weights", "FILE", NULL,
     "the model's weights: .safetensors, .weights.h5, .keras or .h5; default: those in the model's "
     "file, else untrained ones",
     .first_day = true},
    {"dataset", "NAME[:option=value,...]", NULL, "as for train; its labels are not used",
     .first_day = true},
    {"split", "train|test", "test", "which part of the dataset", .first_day = true},
    {"out", "FILE.npy|FILE.csv", NULL,
     "file to write: .npy is float32 in C order, of shape (examples, outputs...), for numpy.load; "
     ".csv is a line for each example",
     .writes = true, .first_day = true},
    {"seed", "N", "0", "seed of untrained weights", .excludes = "initial-weights"},
    {NULL, NULL, NULL, "How"},
    RUN_ARGUMENTS,
    {"callback", "NAME[:option=value,...]", NULL,
     "a callback that is told of the prediction, a plugin by its name or path (docs/callbacks.md); "
     "may be given several times",
     .repeats = true},
    RESULT_ARGUMENTS,
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "The predictions are in the order of the dataset, one for each example; number of replicas "
    "and\n"
    "batch change nothing but the speed. They are what Keras's model.predict() returns: with a\n"
    "softmax at the end of the model probabilities, else logits. The file is complete, or is not\n"
    "written.\n"
    "\n"
    "Examples:\n"
    "  lockstep predict --model=cnn --dataset=fashion-mnist --initial-weights=cnn.safetensors "
    "--out=scores.npy\n"
    "  python3 -c \"import numpy; print(numpy.load('scores.npy').argmax(axis=1))\"\n";

// Those that Lockstep has are about trainings.
static void warn_of_deaf(const struct run_callbacks *callbacks)
{
    for (uint32_t i = 0; i < callbacks->count; i++) {
        const struct ls_callbacks *callback = &callbacks->tables[i];
        if (!callback->on_predict_begin && !callback->on_predict_end &&
            !callback->on_predict_batch_begin && !callback->on_predict_batch_end)
            ls_warn("--callback", "%s has nothing to do in a prediction", callback->name);
    }
}

static enum ls_status predict(const struct arguments *arguments, struct ls_run *run,
                              struct ls_data *data, const struct run_callbacks *callbacks,
                              bool says)
{
    struct ls_model *model = NULL;
    uint64_t batch = 0, replica_batch = 0;
    const char *out = arguments_text(arguments, "out");
    enum ls_status status = run_options_batch(arguments, &batch, &replica_batch);
    if (!status)
        status = ls_model_open(run, arguments_text(arguments, "model"), data, &model);
    if (!status)
        status = run_options_load_weights(arguments, model);
    if (!status)
        status = ls_set_callbacks(model, callbacks->tables, callbacks->count);
    if (!status)
        run_options_warn_untrained(model, "predict");
    if (!status)
        run_options_warn_idle(arguments, run);
    const uint64_t start = ls_clock_ns();
    if (!status)
        status = ls_predict_to_file(model, data,
                                    batch ? batch : replica_batch * ls_run_replicas(run), out);
    if (!status && says && ls_run_is_chief(run))
        printf("%llu examples - %.2f s - %s\n", (unsigned long long)ls_data_count(data),
               (double)(ls_clock_ns() - start) * 1e-9, out);
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
        status = run_options_need(arguments, "out", "predictions.npy");
    if (!status)
        status = run_options_read(arguments, &options);
    if (!status)
        status = arguments_count(arguments, "seed", 0, INT64_MAX, &options.seed);
    if (!status)
        status = ls_run_open(&options, &run);
    if (!status)
        status = ls_run_data_open(run, arguments_text(arguments, "dataset"),
                                  arguments_text(arguments, "split"), &data);
    if (!status)
        status = run_callbacks_open(arguments, run, &callbacks);
    warn_of_deaf(&callbacks);
    interrupt_run(run);
    if (!status)
        status = predict(arguments, run, data, &callbacks, options.progress);
    if (status == LS_INTERRUPTED)
        ls_warn("predict", "interrupted; nothing was written");
    interrupt_run(NULL);
    run_callbacks_close(&callbacks);
    ls_run_close(run);
    ls_data_close(data);
    return status;
}

const struct command predict_command = {
    .name = "predict",
    .operands = "",
    .summary = "writes what a model predicts for each example of a dataset",
    .help = help,
    .arguments = table,
    .run = run,
};
