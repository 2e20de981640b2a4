// SPDX-License-Identifier: Apache-2.0
// lockstep convert: weights from one format of file to another.
#include "tools/command.h"

#include "core/base/log.h"
#include "core/formats/keras_file.h"
#include "core/report/whole_file.h"
#include "core/model/weights.h"
#include "lockstep.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define SCOPE "convert"

static const struct argument table[] = {
    {"model", "NAME|FILE", NULL,
     "the model that the weights belong to: a built-in model, Keras model JSON, or a .keras or .h5 "
     "file; default: the model in IN",
     .first_day = true},
    {"dataset", "NAME[:option=value,...]", NULL,
     "gives the input's shape to models that do not say it", .first_day = true},
    {"quiet", NULL, NULL, "print warnings and errors only"},
    {"plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"},
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "IN is a file of weights, recognized by what it holds: .safetensors, .weights.h5 and .keras of "
    "Keras 3, .h5 of Keras 2. The suffix of OUT says what is written:\n"
    "  .safetensors   one tensor for each variable, named LAYER/VARIABLE\n"
    "  .weights.h5    for model.load_weights() of Keras 3\n"
    "  .keras         model and weights, for keras.models.load_model()\n\n"
    "A .weights.h5 file does not name its variables, and a .safetensors file has no model, so "
    "--model= is needed with both. Every variable of the model must be in IN, with its shape; "
    "tensors that the model does not have are named and left out. Numbers become float32. OUT is "
    "replaced as a whole, or not at all.\n\n"
    "Examples:\n"
    "  lockstep convert mine.keras mine.safetensors\n"
    "  lockstep convert trained.safetensors trained.weights.h5 --model=mine.json\n"
    "  lockstep convert old.h5 new.weights.h5\n";

static bool ends(const char *path, const char *suffix)
{
    const size_t length = strlen(path), bytes = strlen(suffix);
    return length > bytes && strcmp(path + length - bytes, suffix) == 0;
}

static enum ls_status check(const struct arguments *arguments)
{
    if (arguments->operand_count < 2) {
        ls_error(SCOPE, "expected two files: lockstep convert IN OUT [--model=FILE]");
        return LS_USAGE;
    }
    const char *in = arguments->operands[0], *out = arguments->operands[1];
    if (!ends(out, ".safetensors") && !ends(out, ".weights.h5") && !ends(out, ".keras")) {
        ls_error(SCOPE, "'%s': expected a name that ends in .safetensors, .weights.h5 or .keras",
                 out);
        return LS_USAGE;
    }
    if (access(in, R_OK)) {
        ls_error(SCOPE, "'%s' cannot be read: %s", in, strerror(errno));
        return LS_BAD_INPUT;
    }
    if (ls_whole_file_same(in, out)) {
        ls_error(SCOPE, "'%s' is both IN and OUT; choose another name for OUT", in);
        return LS_USAGE;
    }
    const enum ls_status checked = ls_keras_file_check(SCOPE, in);
    if (checked)
        return checked;
    if (!arguments_text(arguments, "model") && (!ls_keras_file_is(in) || ends(in, ".weights.h5"))) {
        ls_error(SCOPE,
                 "'%s' has no model in it; --model= names the model that its weights belong to, as "
                 "in --model=mine.json",
                 in);
        return LS_USAGE;
    }
    return ls_weights_check_path(SCOPE, out);
}

static enum ls_status run(const struct arguments *arguments)
{
    const struct ls_run_options options = {.plugin_path = arguments_text(arguments, "plugin-path")};
    const char *name = arguments_text(arguments, "model");
    const char *dataset = arguments_text(arguments, "dataset");
    struct ls_run *run = NULL;
    struct ls_data *data = NULL;
    struct ls_model *model = NULL;
    if (arguments_given(arguments, "quiet"))
        ls_log_set_level(LS_LOG_WARN);
    enum ls_status status = check(arguments);
    if (status)
        return status;
    const char *in = arguments->operands[0], *out = arguments->operands[1];
    status = ls_run_open(&options, &run);
    if (!status && dataset)
        status = ls_run_data_open(run, dataset, "train", &data);
    if (!status)
        status = ls_model_open(run, name ? name : in, data, &model);
    if (!status && name)
        status = ls_load_weights(model, in);
    if (!status)
        status = ls_save_weights(model, out);
    if (!status)
        ls_info(SCOPE, "wrote '%s'", out);
    ls_model_close(model);
    ls_run_close(run);
    ls_data_close(data);
    return status;
}

const struct command convert_command = {
    .name = "convert",
    .operands = "IN OUT",
    .summary = "converts weights between safetensors and the files of Keras",
    .help = help,
    .most_operands = 2,
    .arguments = table,
    .run = run,
};
