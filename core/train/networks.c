// SPDX-License-Identifier: Apache-2.0
// Finds the networks that come with Lockstep.
#include "core/train/networks.h"

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/loader/loader.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NETWORKS_MOST 64
#define SUFFIX ".json"

static bool has_suffix(const char *name)
{
    const size_t length = strlen(name), suffix = strlen(SUFFIX);
    return length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

static bool find_folder(char *path)
{
    const char *given = getenv("LOCKSTEP_NETWORK_PATH");
    if (given && strlen(given) < PATH_MAX) {
        strcpy(path, given);
        return true;
    }
    return ls_find_installed(LS_NETWORKS_FROM_PROGRAM, LS_NETWORKS_FROM_LIBRARY, "networks", path);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Names without suffix, sorted; ends with NULL. The caller frees the names.
static void list_networks(const char *folder, char *names[NETWORKS_MOST + 1])
{
    size_t count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && count < NETWORKS_MOST && (entry = readdir(directory));)
        if (has_suffix(entry->d_name)) {
            names[count] = strndup(entry->d_name, strlen(entry->d_name) - strlen(SUFFIX));
            count += names[count] != NULL;
        }
    if (directory)
        closedir(directory);
    names[count] = NULL;
    qsort(names, count, sizeof(*names), compare);
}

static enum ls_status fail_unknown(const char *scope, const char *name, const char *folder)
{
    char *names[NETWORKS_MOST + 1];
    char known[512] = "";
    list_networks(folder, names);
    for (size_t i = 0, length = 0; names[i] && length < sizeof(known); i++)
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s", i ? ", " : "",
                                   names[i]);
    const char *nearest = ls_nearest(name, (const char *const *)names);
    ls_error(scope, "there is no network '%s'%s%s%s; there are: %s, or a file of your own", name,
             nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "", known);
    for (size_t i = 0; names[i]; i++)
        free(names[i]);
    return LS_USAGE;
}

enum ls_status ls_network_open(const char *scope, const char *text, struct ls_network *out)
{
    char folder[PATH_MAX], path[PATH_MAX];
    if (strchr(text, '/') || has_suffix(text))
        return ls_network_read(text, out);
    if (!find_folder(folder)) {
        ls_error(scope, "the networks that come with Lockstep were not found; "
                        "LOCKSTEP_NETWORK_PATH names their folder");
        return LS_UNAVAILABLE;
    }
    const int length = snprintf(path, sizeof(path), "%s/%s%s", folder, text, SUFFIX);
    if (length < 0 || (size_t)length >= sizeof(path) || access(path, F_OK) != 0)
        return fail_unknown(scope, text, folder);
    return ls_network_read(path, out);
}
