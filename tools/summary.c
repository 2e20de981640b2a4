// SPDX-License-Identifier: Apache-2.0
// lockstep summary: the layers of a model.
#include "tools/command.h"

#include "lockstep.h"
#include "tools/run_options.h"

static const struct argument table[] = {
    {"model", "NAME|FILE", NULL, "a built-in model, Keras model JSON, or a .keras or .h5 file"},
    {"dataset", "NAME[:option=value,...]", NULL,
     "gives the input's shape to models that do not say it"},
    {"plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"},
    {NULL, NULL, NULL, NULL},
};

static enum ls_status run(const struct arguments *arguments)
{
    const struct ls_run_options options = {.plugin_path = arguments_text(arguments, "plugin-path")};
    const char *dataset = arguments_text(arguments, "dataset");
    struct ls_run *run = NULL;
    struct ls_data *data = NULL;
    struct ls_model *model = NULL;
    enum ls_status status = run_options_need(arguments, "model", "cnn");
    if (!status)
        status = ls_run_open(&options, &run);
    if (!status && dataset)
        status = ls_run_data_open(run, dataset, "train", &data);
    if (!status)
        status = ls_model_open(run, arguments_text(arguments, "model"), data, &model);
    if (!status)
        ls_model_summary(model, stdout);
    ls_model_close(model);
    ls_run_close(run);
    ls_data_close(data);
    return status;
}

const struct command summary_command = {
    .name = "summary",
    .operands = "",
    .summary = "prints the layers of a model with shapes and parameters",
    .help = "Example:\n  lockstep summary --model=cnn\n",
    .arguments = table,
    .run = run,
};
