// SPDX-License-Identifier: Apache-2.0
// Finds the built-in models.
#include "core/train/places.h"

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/loader/loader.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODELS_MOST 64
#define SUFFIX ".json"

static bool has_suffix(const char *name)
{
    const size_t length = strlen(name), suffix = strlen(SUFFIX);
    return length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

static bool find_folder(char *path)
{
    const char *given = getenv("LOCKSTEP_MODEL_PATH");
    if (given && strlen(given) < PATH_MAX) {
        strcpy(path, given);
        return true;
    }
    return ls_find_installed(LS_MODELS_FROM_PROGRAM, LS_MODELS_FROM_LIBRARY, "models", path);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Names without suffix, sorted; ends with NULL. The caller frees the names.
static void list_models(const char *folder, char *names[MODELS_MOST + 1])
{
    size_t count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && count < MODELS_MOST && (entry = readdir(directory));)
        if (has_suffix(entry->d_name)) {
            names[count] = strndup(entry->d_name, strlen(entry->d_name) - strlen(SUFFIX));
            count += names[count] != NULL;
        }
    if (directory)
        closedir(directory);
    names[count] = NULL;
    qsort(names, count, sizeof(*names), compare);
}

static void fail_unknown(const char *name, const char *folder)
{
    char *names[MODELS_MOST + 1];
    char known[512] = "";
    list_models(folder, names);
    for (size_t i = 0, length = 0; names[i] && length < sizeof(known); i++)
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s", i ? ", " : "",
                                   names[i]);
    if (!names[0]) {
        ls_error("--model", "there is no model '%s', and no built-in one in %s", name, folder);
        return;
    }
    const char *nearest = ls_nearest(name, (const char *const *)names);
    ls_error("--model",
             "there is no model '%s'%s%s%s; there are: %s, or a file of Keras model JSON", name,
             nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "", known);
    for (size_t i = 0; names[i]; i++)
        free(names[i]);
}

enum ls_status ls_model_find(const char *name, char **out)
{
    char folder[PATH_MAX], path[PATH_MAX];
    if (strchr(name, '/') || has_suffix(name)) {
        *out = strdup(name);
        return *out ? LS_OK : LS_OUT_OF_MEMORY;
    }
    if (!find_folder(folder)) {
        ls_error("--model",
                 "the built-in models were not found; LOCKSTEP_MODEL_PATH names their folder");
        return LS_UNAVAILABLE;
    }
    const int length = snprintf(path, sizeof(path), "%s/%s%s", folder, name, SUFFIX);
    if (length < 0 || (size_t)length >= sizeof(path) || access(path, F_OK) != 0) {
        fail_unknown(name, folder);
        return LS_USAGE;
    }
    *out = strdup(path);
    return *out ? LS_OK : LS_OUT_OF_MEMORY;
}
