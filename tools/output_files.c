// SPDX-License-Identifier: Apache-2.0
// Finds one file under two names.
#include "tools/output_files.h"

#include "core/base/log.h"

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
static bool name_one_file(const char *a, const char *b)
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
            if (!one || !other || !name_one_file(one, other))
                continue;
            ls_error("usage", "--%s=%s and --%s=%s name the same file", names[i], one, names[j],
                     other);
            return LS_USAGE;
        }
    return LS_OK;
}
