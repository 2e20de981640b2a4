// SPDX-License-Identifier: Apache-2.0
// lockstep predict: what a model makes of each example.
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/run_callbacks.h"
#include "tools/run_options.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/data/class_names.h"
#include "core/model/model.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define CLASSES_MOST 4096

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to predict"},
    {"model", "NAME|FILE", NULL, "a built-in model, Keras model JSON, or a .keras or .h5 file",
     .first_day = true},
    {"initial-weights", "FILE", NULL,
     "the model's weights: .safetensors, .weights.h5, .keras or .h5; default: those in the model's "
     "file, else untrained ones",
     .first_day = true},
    {"dataset", "NAME[:option=value,...]", NULL,
     "the examples, such as images:dir=new,resize=180x180; as for train, and labels are not used; "
     "a table without a column of labels has label=none",
     .first_day = true},
    {"split", "train|test", "test", "which part of the dataset", .first_day = true},
    {"out", "FILE.npy|FILE.csv", NULL,
     "file to write: .npy for numpy.load, float32 in C order of shape (examples, outputs...); .csv "
     "has a heading and a line for each example, with the names of images and classes",
     .writes = true, .first_day = true},
    {"classes", "NAME,...|FILE", NULL,
     "names of the classes by number; or a file with a line for each; for the .csv. Default: those "
     "that the weights know",
     .first_day = true},
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
    "written. A .csv begins with the names of its columns: file, where the examples are images;\n"
    "one for each output; class, the one with the largest output, where classes have names.\n"
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

// The lines of a file, or the parts of a list; the text is overwritten.
static enum ls_status take_names(char *text, bool lines, struct ls_class_names **out)
{
    const char *names[CLASSES_MOST];
    uint32_t count = 0;
    for (char *rest = text;
         rest && !(lines && !rest[strspn(rest, " \t\r\n")]);) { // only blank ones
        char *name = rest;
        size_t length = strcspn(name, lines ? "\n" : ",");
        rest = name[length] ? name + length + 1 : NULL;
        if (lines && length && name[length - 1] == '\r')
            length--;
        name[length] = '\0';
        if (!length) {
            ls_error("--classes", "%s %u is empty; expected a name for each class",
                     lines ? "line" : "name", count + 1);
            return LS_USAGE;
        }
        if (count == CLASSES_MOST) {
            ls_error("--classes", "more than %u names", CLASSES_MOST);
            return LS_USAGE;
        }
        names[count++] = name;
    }
    const enum ls_status status = ls_class_names_copy(names, count, out);
    if (status != LS_BAD_INPUT)
        return status;
    ls_error("--classes", count ? "a name is there twice" : "there is no name");
    return LS_USAGE;
}

static enum ls_status read_classes(const char *given, struct ls_class_names **out)
{
    FILE *file = fopen(given, "r");
    if (!file && !strchr(given, ',')) {
        ls_error("--classes",
                 "'%s': %s; expected a file with a name a line, or names with commas "
                 "between them",
                 given, strerror(errno));
        return LS_BAD_INPUT;
    }
    char *text = file ? NULL : strdup(given);
    size_t room = 0;
    enum ls_status status = file || text ? LS_OK : LS_OUT_OF_MEMORY;
    if (file) {
        errno = 0;
        const ssize_t bytes = getdelim(&text, &room, '\0', file); // the whole of a text
        if (bytes < 0 && (ferror(file) || !feof(file))) {
            ls_error("--classes", "cannot read '%s': %s", given, strerror(errno));
            status = LS_BAD_INPUT;
        } else if (bytes > 0 && !text[bytes - 1]) {
            ls_error("--classes", "'%s' has a zero byte: it is no text", given);
            status = LS_BAD_INPUT;
        } else if (bytes < 0 && text) {
            text[0] = '\0'; // of an empty file
        }
        fclose(file);
    }
    if (!status)
        status = take_names(text ? text : (char[]){""}, file != NULL, out);
    free(text);
    return status;
}

// Before anything is computed.
static enum ls_status set_classes(const struct arguments *arguments, struct ls_model *model,
                                  struct ls_class_names **names)
{
    const char *given = arguments_text(arguments, "classes");
    const char *out = arguments_text(arguments, "out");
    const uint64_t outputs = ls_model_output_elements(model);
    if (!given)
        return LS_OK;
    if (strlen(out) < 4 || strcmp(out + strlen(out) - 4, ".csv") != 0) {
        ls_error("usage", "--classes with --out=%s has no effect: names are written to .csv files",
                 out);
        return LS_USAGE;
    }
    if (ls_output_count(model) > 1) {
        ls_error("--classes", "model '%s' has %u outputs; names are for the classes of one",
                 model->source, ls_output_count(model));
        return LS_USAGE;
    }
    const enum ls_status status = read_classes(given, names);
    if (!status && (*names)->count != outputs) {
        ls_error("--classes", "%u names, but model '%s' has %llu output%s", (*names)->count,
                 model->source, (unsigned long long)outputs, outputs == 1 ? "" : "s");
        return LS_USAGE;
    }
    if (!status)
        model->shown_classes = *names;
    return status;
}

// A table without labels has one input less than that of the training, which is its last column. So has a model that got
// its shape of the table, and `weights` do not fit it; NULL: it is the model that has an input more.
static void tell_of_last_column(const struct arguments *arguments, const struct ls_model *model,
                                const struct ls_data *data, const char *weights)
{
    const char *dataset = arguments_text(arguments, "dataset");
    const struct ls_field *field =
        ls_field_find(data->info.fields, data->info.field_count, LS_FIELD_INPUT, 0);
    if (strncmp(dataset, "csv:", 4) != 0 || strstr(dataset, "label=") || !field)
        return;
    const uint64_t inputs = (uint64_t)ls_shape_elements(&model->graph->inputs[0]->shape, 1);
    if (weights ? access(weights, R_OK) == 0 : inputs == ls_field_elements(field) + 1)
        ls_info("predict",
                "the last column was taken as the labels; if the table has none, write "
                "%s,label=none",
                dataset);
}

static enum ls_status predict(const struct arguments *arguments, struct ls_run *run,
                              struct ls_data *data, const struct run_callbacks *callbacks,
                              bool says)
{
    struct ls_model *model = NULL;
    struct ls_class_names *names = NULL;
    uint64_t batch = 0, replica_batch = 0;
    const char *out = arguments_text(arguments, "out");
    enum ls_status status = run_options_batch(arguments, &batch, &replica_batch);
    if (!status)
        status = run_options_open_model(arguments, run, data, &model);
    if (!status)
        status = set_classes(arguments, model, &names);
    if (!status) {
        status = run_options_load_weights(arguments, model);
        if (status == LS_BAD_INPUT)
            tell_of_last_column(arguments, model, data,
                                arguments_text(arguments, "initial-weights"));
    }
    if (!status)
        status = ls_set_callbacks(model, callbacks->tables, callbacks->count);
    if (!status)
        run_options_warn_untrained(model, "predict");
    if (!status)
        run_options_warn_idle(arguments, run);
    const uint64_t start = ls_clock_ns();
    if (!status) {
        status = ls_predict_to_file(model, data,
                                    batch ? batch : replica_batch * ls_run_replicas(run), out);
        if (status == LS_BAD_INPUT)
            tell_of_last_column(arguments, model, data, NULL);
    }
    if (!status && says && ls_run_is_chief(run))
        printf("%llu prediction%s - %.2f s - %s\n", (unsigned long long)ls_data_count(data),
               ls_data_count(data) == 1 ? "" : "s", (double)(ls_clock_ns() - start) * 1e-9, out);
    ls_model_close(model);
    ls_class_names_destroy(names);
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
