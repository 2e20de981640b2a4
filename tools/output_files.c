// SPDX-License-Identifier: Apache-2.0
// Finds one file under two names, among what a command writes and reads.
#include "tools/output_files.h"

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/report/whole_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OUTPUTS_MOST (2 * ARGUMENTS_MAX)

struct outputs {
    struct {
        char option[64], path[1024];
    } list[OUTPUTS_MOST];
    size_t count;
};

// Whether `path` is among the files "FILE+FILE" of an option.
static bool is_listed(const char *files, const char *path)
{
    bool found = false;
    while (files && !found) {
        char *file = ls_list_take_file(NULL, &files, NULL);
        found = file && ls_whole_file_same(file, path);
        free(file);
    }
    return found;
}

static bool is_dataset(const char *option)
{
    return strcmp(option, "dataset") == 0 || strcmp(option, "validation-dataset") == 0;
}

// Trained weights may take the place of those from which the training began.
static bool may_not_replace(const char *output, const char *input)
{
    return is_dataset(input) || strcmp(input, "against") == 0 ||
           (strcmp(output, "save-weights") != 0 &&
            (strcmp(input, "model") == 0 || strcmp(input, "initial-weights") == 0));
}

static enum ls_status look_for(const char *path, const char *input, const char *text, bool *found)
{
    struct ls_spec spec = {0};
    *found = !is_dataset(input) && ls_whole_file_same(text, path);
    if (!is_dataset(input))
        return LS_OK;
    const enum ls_status status = ls_spec_parse("--dataset", text, &spec);
    for (size_t i = 0; !status && i < spec.option_count && !*found; i++)
        *found = is_listed(spec.options[i].written, path);
    ls_spec_finish(&spec);
    return status;
}

static enum ls_status check_inputs(const struct arguments *arguments, const char *output,
                                   const char *path)
{
    const struct argument *table = arguments->table;
    struct stat folder;
    if (stat(path, &folder) == 0 && S_ISDIR(folder.st_mode)) // replaces nothing
        return LS_OK;
    for (size_t i = 0; table[i].name || table[i].help; i++) {
        const char *text = arguments->values[i];
        bool found;
        if (!text || !may_not_replace(output, table[i].name))
            continue;
        const enum ls_status status = look_for(path, table[i].name, text, &found);
        if (status)
            return status;
        if (found) {
            ls_error("usage", "--%s=%s would replace a file that --%s reads; choose another name",
                     output, path, table[i].name);
            return LS_USAGE;
        }
    }
    return LS_OK;
}

static bool is_log_folder(const char *option)
{
    const char *of_callback = strchr(option, ':');
    return strcmp(option, "tensorboard") == 0 ||
           (of_callback && strcmp(of_callback, ":log_dir") == 0);
}

// Checkpoints and logs may be in one folder, where their names differ.
static bool may_share(const char *a, const char *b)
{
    return strcmp(a, "checkpoint-dir") == 0 ? is_log_folder(b)
                                            : strcmp(b, "checkpoint-dir") == 0 && is_log_folder(a);
}

// What is written as `path` by `option`: nothing else is, and nothing that the command reads.
static enum ls_status add_output(const struct arguments *arguments, struct outputs *outputs,
                                 const char *option, const char *path)
{
    for (size_t i = 0; i < outputs->count; i++)
        if (ls_whole_file_same(outputs->list[i].path, path) &&
            !may_share(outputs->list[i].option, option)) {
            ls_error("usage", "--%s=%s and --%s=%s name the same file", outputs->list[i].option,
                     outputs->list[i].path, option, path);
            return LS_USAGE;
        }
    if (outputs->count == OUTPUTS_MOST)
        return check_inputs(arguments, option, path);
    snprintf(outputs->list[outputs->count].option, sizeof(outputs->list[0].option), "%s", option);
    snprintf(outputs->list[outputs->count++].path, sizeof(outputs->list[0].path), "%s", path);
    return check_inputs(arguments, option, path);
}

// Options of callbacks that say where they write.
static enum ls_status add_callback(const struct arguments *arguments, struct outputs *outputs,
                                   const char *text)
{
    struct ls_spec spec = {0};
    enum ls_status status = ls_spec_parse("--callback", text, &spec);
    for (size_t i = 0; !status && i < spec.option_count; i++) {
        const struct ls_option_value *option = &spec.options[i];
        char name[64];
        snprintf(name, sizeof(name), "callback=%.30s:%.20s", spec.name, option->name);
        if (strcmp(option->name, "filename") == 0 || strcmp(option->name, "log_dir") == 0)
            status = add_output(arguments, outputs, name, option->value);
    }
    ls_spec_finish(&spec);
    return status;
}

enum ls_status output_files_check(const struct arguments *arguments)
{
    struct outputs *outputs = calloc(1, sizeof(*outputs));
    enum ls_status status = outputs ? LS_OK : LS_OUT_OF_MEMORY;
    const struct argument *table = arguments->table;
    for (size_t i = 0; !status && (table[i].name || table[i].help); i++) {
        if (arguments->values[i] && table[i].writes)
            status = add_output(arguments, outputs, table[i].name, arguments->values[i]);
        if (!arguments->values[i] || strcmp(table[i].name, "callback") != 0)
            continue;
        const char *text;
        for (size_t n = 0; !status && (text = arguments_next(arguments, "callback", n)); n++)
            status = add_callback(arguments, outputs, text);
    }
    free(outputs);
    return status;
}
