// SPDX-License-Identifier: Apache-2.0
// Finds one file under two names.
#include "tools/output_files.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

// What `path` lies in. False: there is no such folder, or no memory.
static bool look_at_folder(const char *path, struct stat *out)
{
    char *copy = strdup(path);
    const bool found = copy && stat(dirname(copy), out) == 0;
    free(copy);
    return found;
}

static bool has_same_name(const char *a, const char *b)
{
    char *one = strdup(a), *other = strdup(b);
    const bool same = one && other && strcmp(basename(one), basename(other)) == 0;
    free(one);
    free(other);
    return same;
}

// Files that are not there yet are the same when they will have one name in one folder.
bool output_files_same(const char *a, const char *b)
{
    struct stat one, other;
    if (strcmp(a, b) == 0)
        return true;
    if (stat(a, &one) == 0 && stat(b, &other) == 0)
        return is_same(&one, &other);
    return has_same_name(a, b) && look_at_folder(a, &one) && look_at_folder(b, &other) &&
           is_same(&one, &other);
}

enum ls_status output_files_check(const struct arguments *arguments, const char *const *names)
{
    for (size_t i = 0; names[i]; i++)
        for (size_t j = i + 1; names[j]; j++) {
            const char *one = arguments_text(arguments, names[i]);
            const char *other = arguments_text(arguments, names[j]);
            if (!one || !other || !output_files_same(one, other))
                continue;
            ls_error("usage", "--%s=%s and --%s=%s name the same file", names[i], one, names[j],
                     other);
            return LS_USAGE;
        }
    return LS_OK;
}

// Whether `path` is among the files "FILE+FILE" of an option.
static bool is_listed(const char *files, const char *path)
{
    char *copy = strdup(files), *rest = NULL;
    bool found = false;
    for (char *file = copy ? strtok_r(copy, "+", &rest) : NULL; file && !found;
         file = strtok_r(NULL, "+", &rest))
        found = output_files_same(file, path);
    free(copy);
    return found;
}

static enum ls_status check_input(const char *output, const char *path, const char *input,
                                  const char *text)
{
    struct ls_spec spec = {0};
    bool same = false;
    if (strcmp(input, "dataset") != 0) {
        same = output_files_same(text, path);
    } else {
        const enum ls_status status = ls_spec_parse("--dataset", text, &spec);
        if (status)
            return status;
        for (size_t i = 0; i < spec.option_count && !same; i++)
            same = is_listed(spec.options[i].value, path);
    }
    ls_spec_finish(&spec);
    if (!same)
        return LS_OK;
    ls_error("usage", "--%s=%s would replace a file that --%s reads; choose another name", output,
             path, input);
    return LS_USAGE;
}

enum ls_status output_files_check_inputs(const struct arguments *arguments,
                                         const char *const *outputs, const char *const *inputs)
{
    for (size_t i = 0; outputs[i]; i++)
        for (size_t j = 0; inputs[j]; j++) {
            const char *path = arguments_text(arguments, outputs[i]);
            const char *text = arguments_text(arguments, inputs[j]);
            if (!path || !text)
                continue;
            const enum ls_status status = check_input(outputs[i], path, inputs[j], text);
            if (status)
                return status;
        }
    return LS_OK;
}
