// SPDX-License-Identifier: Apache-2.0
// Looks for plugins where their packages put them. That of TPUs goes first, where the machine has
// any: elsewhere libtpu asks the network for minutes what machine it is on.
#include "plugins/device/pjrt/find.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char pjrt_none_found[] =
    "no PJRT plugin: neither libtpu.so (TPU_LIBRARY_PATH; with /dev/accel0 or /dev/vfio/0 also the "
    "Python package libtpu, /usr/lib and /lib) nor xla_cuda_plugin.so (the Python package "
    "jax-cuda13-pjrt) is there for VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH, python3 of PATH or /usr; "
    "name its file: --device=pjrt:plugin=FILE";

#define OF_TPU "libtpu/libtpu.so"
#define OF_CUDA "jax_plugins/xla_cuda1[0-9]/xla_cuda_plugin.so"

// Where packages are below a prefix of an installation.
static const char *const below_prefix[] = {
    "lib/python3*/site-packages",
    "lib/python3*/dist-packages",
    "lib/python3/dist-packages",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct search {
    char *out;
    size_t bytes;
};

// The last of the files that match: the newest Python, the newest CUDA.
static bool look(const struct search *search, const char *folder, const char *name)
{
    char pattern[2048];
    glob_t found = {0};
    const int length = snprintf(pattern, sizeof(pattern), "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof(pattern) || glob(pattern, 0, NULL, &found))
        return false;
    const char *file = found.gl_pathc ? found.gl_pathv[found.gl_pathc - 1] : "";
    const bool fits = *file && strlen(file) < search->bytes;
    if (fits)
        strcpy(search->out, file);
    globfree(&found);
    return fits;
}

static bool look_below(const struct search *search, const char *prefix, const char *name)
{
    char folder[1100];
    bool found = false;
    for (size_t i = 0; !found && prefix && *prefix && i < COUNT(below_prefix); i++) {
        snprintf(folder, sizeof(folder), "%s/%s", prefix, below_prefix[i]);
        found = look(search, folder, name);
    }
    return found;
}

// Looks in each folder of a list that ':' divides, by `visit`, until one has it.
static bool each_folder(const struct search *search, const char *list, const char *name,
                        bool (*visit)(const struct search *, const char *, const char *))
{
    char folder[1024];
    bool found = false;
    while (!found && list && *list) {
        const size_t length = strcspn(list, ":");
        if (length && length < sizeof(folder)) {
            memcpy(folder, list, length);
            folder[length] = '\0';
            found = visit(search, folder, name);
        }
        list += length + (list[length] == ':');
    }
    return found;
}

// A folder of PATH that has a python3: its packages are beside it.
static bool look_beside(const struct search *search, const char *folder, const char *name)
{
    char python[1100], prefix[1024];
    snprintf(python, sizeof(python), "%s/python3", folder);
    if (access(python, X_OK))
        return false;
    const size_t length = strlen(folder);
    snprintf(prefix, sizeof(prefix), "%.*s/..", (int)length, folder);
    return look_below(search, prefix, name);
}

static bool look_everywhere(const struct search *search, const char *name)
{
    return look_below(search, getenv("VIRTUAL_ENV"), name) ||
           look_below(search, getenv("CONDA_PREFIX"), name) ||
           each_folder(search, getenv("PYTHONPATH"), name, look) ||
           each_folder(search, getenv("PATH"), name, look_beside) ||
           look_below(search, "/usr/local", name) || look_below(search, "/usr", name);
}

// The devices of its driver, old and new.
static bool has_tpu(void)
{
    char device[64];
    const struct search search = {device, sizeof(device)};
    return look(&search, "/dev", "accel[0-9]*") || look(&search, "/dev/vfio", "[0-9]*");
}

bool pjrt_find_plugin(char *out, size_t bytes)
{
    const struct search search = {out, bytes};
    const char *named = getenv("TPU_LIBRARY_PATH"); // as XLA's other clients take it
    if (named && *named && strlen(named) < bytes) {
        strcpy(out, named);
        return true;
    }
    if (has_tpu() && (look_everywhere(&search, OF_TPU) || look(&search, "/usr/lib", "libtpu.so") ||
                      look(&search, "/lib", "libtpu.so")))
        return true;
    return look_everywhere(&search, OF_CUDA);
}
