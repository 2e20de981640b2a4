// SPDX-License-Identifier: Apache-2.0
// Finds JSON files that are installed with Lockstep, one folder a kind.
#include "core/run/resource_files.h"

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/loader/loader.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".json"

static const struct ls_resource_folder models = {"model",
                                                 "models",
                                                 "LOCKSTEP_MODEL_PATH",
                                                 LS_MODELS_FROM_PROGRAM,
                                                 LS_MODELS_FROM_LIBRARY,
                                                 "a file of Keras model JSON"};

static bool has_suffix(const char *name)
{
    const size_t length = strlen(name), suffix = strlen(SUFFIX);
    return length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

// Whether a name can only be that of a file.
static bool is_file(const char *name)
{
    const size_t length = strlen(name);
    return strchr(name, '/') || has_suffix(name) ||
           (length > 6 && strcmp(name + length - 6, ".keras") == 0) ||
           (length > 3 && strcmp(name + length - 3, ".h5") == 0);
}

static bool find_folder(const struct ls_resource_folder *kind, char *path)
{
    const char *given = getenv(kind->variable);
    if (given && strlen(given) < PATH_MAX) {
        strcpy(path, given);
        return true;
    }
    return ls_find_installed(kind->from_program, kind->from_library, kind->folder, path);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Names without suffix, sorted; ends with NULL. The caller frees the names.
static void list_names(const char *folder, char *names[LS_RESOURCES_MOST + 1])
{
    size_t count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry;
         directory && count < LS_RESOURCES_MOST && (entry = readdir(directory));)
        if (has_suffix(entry->d_name)) {
            names[count] = strndup(entry->d_name, strlen(entry->d_name) - strlen(SUFFIX));
            count += names[count] != NULL;
        }
    if (directory)
        closedir(directory);
    names[count] = NULL;
    qsort(names, count, sizeof(*names), compare);
}

static enum ls_status fail_unknown(const struct ls_resource_folder *kind, const char *scope,
                                   const char *name, const char *folder)
{
    char *names[LS_RESOURCES_MOST + 1];
    char known[512] = "";
    list_names(folder, names);
    for (size_t i = 0, length = 0; names[i] && length < sizeof(known); i++)
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s", i ? ", " : "",
                                   names[i]);
    const char *nearest = ls_nearest(name, (const char *const *)names);
    if (!names[0])
        ls_error(scope, "there is no %s '%s', and no built-in one in %s", kind->what, name, folder);
    else
        ls_error(scope, "there is no %s '%s'%s%s%s; there are: %s, or %s", kind->what, name,
                 nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "",
                 known, kind->else_what);
    for (size_t i = 0; names[i]; i++)
        free(names[i]);
    return LS_USAGE;
}

enum ls_status ls_resource_find(const struct ls_resource_folder *kind, const char *scope,
                                const char *name, char **out)
{
    char folder[PATH_MAX], path[PATH_MAX];
    if (is_file(name)) {
        *out = strdup(name);
        return *out ? LS_OK : LS_OUT_OF_MEMORY;
    }
    if (!find_folder(kind, folder)) {
        ls_error(scope, "the %ss that come with Lockstep were not found; %s names their folder",
                 kind->what, kind->variable);
        return LS_UNAVAILABLE;
    }
    const int length = snprintf(path, sizeof(path), "%s/%s%s", folder, name, SUFFIX);
    const bool built_in = length >= 0 && (size_t)length < sizeof(path) && access(path, F_OK) == 0;
    struct stat about;
    if (!built_in && (stat(name, &about) || !S_ISREG(about.st_mode)))
        return fail_unknown(kind, scope, name, folder);
    *out = strdup(built_in ? path : name); // of a file of another kind its reader says what it is
    return *out ? LS_OK : LS_OUT_OF_MEMORY;
}

enum ls_status ls_model_find(const char *name, char **out)
{
    return ls_resource_find(&models, "--model", name, out);
}

enum ls_status ls_model_list(char **names)
{
    char folder[PATH_MAX];
    if (!find_folder(&models, folder)) {
        ls_error("--model",
                 "the models that come with Lockstep were not found; %s names their "
                 "folder",
                 models.variable);
        return LS_UNAVAILABLE;
    }
    list_names(folder, names);
    return LS_OK;
}
