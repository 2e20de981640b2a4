// SPDX-License-Identifier: Apache-2.0
// Where plugins are: the search path, and the files on it that are called `<kind>-<name>.so`.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dladdr1
#endif
#include "core/loader/internal.h"

#include "core/base/log.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCOPE "plugins"

static enum ls_status out_of_memory(void)
{
    ls_error(SCOPE, "out of memory");
    return LS_OUT_OF_MEMORY;
}

// ---- The search path ----

static enum ls_status add_directory(struct ls_loader *loader, const char *path)
{
    char **more = realloc(loader->directories, (loader->directory_count + 1) * sizeof(*more));
    if (!more)
        return out_of_memory();
    loader->directories = more;
    char *copy = strdup(path);
    if (!copy)
        return out_of_memory();
    more[loader->directory_count++] = copy;
    return LS_OK;
}

// Adds one directory that somebody named. Its absolute path is kept, so that a later chdir() changes
// nothing. `must_exist`: an error when it does not, else a warning.
static enum ls_status add_named(struct ls_loader *loader, const char *scope, const char *name,
                                bool must_exist)
{
    char path[PATH_MAX];
    struct stat about;
    if (!realpath(name, path) || stat(path, &about)) {
        if (must_exist) {
            ls_error(scope, "%s: %s", name, strerror(errno));
            return LS_BAD_INPUT;
        }
        ls_warn(scope, "%s: %s", name, strerror(errno));
        return LS_OK;
    }
    if (!S_ISDIR(about.st_mode)) {
        ls_error(scope, "%s is not a directory", name);
        return LS_BAD_INPUT;
    }
    return add_directory(loader, path);
}

// Empty parts are skipped: nothing is loaded from the working directory unless it is named.
static enum ls_status add_list(struct ls_loader *loader, const char *scope, const char *list,
                               bool must_exist)
{
    char *copy = strdup(list);
    if (!copy)
        return out_of_memory();
    enum ls_status status = LS_OK;
    char *rest = NULL;
    for (char *part = strtok_r(copy, ":", &rest); part && !status;
         part = strtok_r(NULL, ":", &rest))
        status = add_named(loader, scope, part, must_exist);
    free(copy);
    return status;
}

// The absolute path of the program or library that this code is part of.
static bool find_own_file(char path[PATH_MAX])
{
    static const char here; // lies in that file
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    return realpath(*map->l_name ? map->l_name : "/proc/self/exe", path) != NULL;
}

// Cuts the last component off.
static bool to_parent(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return false;
    *slash = '\0';
    return true;
}

static bool is_directory(const char *path)
{
    struct stat about;
    return !stat(path, &about) && S_ISDIR(about.st_mode);
}

// `<directory>/<relative>` (or `relative`, where that is absolute) when that is a directory.
static bool directory_below(const char *directory, const char *relative, char path[PATH_MAX])
{
    char joined[PATH_MAX];
    const bool absolute = *relative == '/';
    const int length = snprintf(joined, sizeof(joined), "%s%s%s", absolute ? "" : directory,
                                absolute ? "" : "/", relative);
    return length > 0 && (size_t)length < sizeof(joined) && realpath(joined, path) &&
           is_directory(path);
}

// Where the library lies in <build>/subprojects/<name>, as a subproject of another meson project.
static bool is_subproject(const char *own)
{
    char path[PATH_MAX], marker[PATH_MAX];
    snprintf(path, sizeof(path), "%s", own);
    if (!to_parent(path) || !strrchr(path, '/') || strcmp(strrchr(path, '/'), "/subprojects"))
        return false;
    return to_parent(path) && directory_below(path, "meson-private", marker);
}

bool ls_find_installed(const char *from_program, const char *from_library, const char *in_build,
                       char *path)
{
    char own[PATH_MAX], marker[PATH_MAX];
    if (!find_own_file(own) || !to_parent(own))
        return false;
    if (directory_below(own, from_program, path) || directory_below(own, from_library, path))
        return true;
    for (int level = 0; level < 5; level++) {
        if ((directory_below(own, "meson-private", marker) || is_subproject(own)) &&
            directory_below(own, in_build, path))
            return true;
        if (!to_parent(own))
            break;
    }
    return false;
}

static enum ls_status add_default(struct ls_loader *loader)
{
    char found[PATH_MAX];
    if (!ls_find_installed(LS_PLUGINS_FROM_PROGRAM, LS_PLUGINS_FROM_LIBRARY, "plugins", found))
        return LS_OK;
    return add_directory(loader, found);
}

enum ls_status ls_search_init(struct ls_loader *loader, const char *plugin_path)
{
    enum ls_status status = LS_OK;
    if (plugin_path)
        status = add_list(loader, "--plugin-path", plugin_path, true);
    const char *variable = getenv("LOCKSTEP_PLUGIN_PATH");
    if (!status && variable && !getauxval(AT_SECURE))
        status = add_list(loader, "LOCKSTEP_PLUGIN_PATH", variable, false);
    return status ? status : add_default(loader);
}

enum ls_status ls_search_copy(struct ls_loader *loader, const struct ls_loader *from)
{
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < from->directory_count; i++)
        status = add_directory(loader, from->directories[i]);
    return status;
}

const char *ls_loader_path_text(const struct ls_loader *loader, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < loader->directory_count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "",
                                 loader->directories[i]);
    return text;
}

void ls_search_finish(struct ls_loader *loader)
{
    for (size_t i = 0; i < loader->directory_count; i++)
        free(loader->directories[i]);
    free(loader->directories);
    loader->directories = NULL;
    loader->directory_count = 0;
}

// ---- Names ----

static char *join(const char *directory, const char *file)
{
    const size_t bytes = strlen(directory) + strlen(file) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s", directory, file);
    return path;
}

char *ls_search_find(const struct ls_loader *loader, uint32_t kind, const char *name)
{
    char file[LS_LONGEST_NAME + 32];
    struct stat about;
    if (!ls_name_is_valid(name) || !ls_kind_text(kind))
        return NULL;
    if (kind == LS_KIND_COLLECTIVE && strcmp(name, LS_AUTO) == 0)
        return strdup(LS_BUILT_IN);
    snprintf(file, sizeof(file), "%s-%s.so", ls_kind_text(kind), name);
    for (size_t i = 0; i < loader->directory_count; i++) {
        char *path = join(loader->directories[i], file);
        if (path && !lstat(path, &about))
            return path;
        free(path);
    }
    return NULL;
}

const struct ls_module *ls_module_registered(const struct ls_loader *loader, uint32_t kind,
                                             const char *name)
{
    const struct ls_module *module = loader->modules;
    while (module && !(module->registered && module->plugin->kind == kind &&
                       strcmp(module->plugin->name, name) == 0))
        module = module->next;
    return module;
}

bool ls_loader_has(const struct ls_loader *loader, uint32_t kind, const char *name)
{
    char *file = ls_search_find(loader, kind, name);
    free(file);
    return file != NULL || ls_module_registered(loader, kind, name);
}

// ---- All that there is ----

struct found_list {
    struct ls_found *items;
    size_t count;
};

void ls_found_destroy(struct ls_found *found, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(found[i].name);
        free(found[i].file);
    }
    free(found);
}

static bool is_known(const struct found_list *list, uint32_t kind, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].kind == kind && !strcmp(list->items[i].name, name))
            return true;
    return false;
}

// Takes `file` over.
static enum ls_status add_found(struct found_list *list, uint32_t kind, const char *name,
                                char *file)
{
    struct ls_found *more = realloc(list->items, (list->count + 1) * sizeof(*more));
    if (!more) {
        free(file);
        return out_of_memory();
    }
    list->items = more;
    const struct ls_found found = {.kind = kind, .name = strdup(name), .file = file};
    more[list->count++] = found; // what is NULL is freed as such
    return found.name && found.file ? LS_OK : out_of_memory();
}

static enum ls_status add_file(struct found_list *list, const char *directory, const char *file)
{
    uint32_t kind;
    char name[LS_LONGEST_NAME + 1];
    if (!ls_file_name_split(file, &kind, name) || is_known(list, kind, name))
        return LS_OK;
    return add_found(list, kind, name, join(directory, file));
}

static enum ls_status add_files_of(struct found_list *list, const char *directory)
{
    DIR *folder = opendir(directory);
    if (!folder) {
        ls_warn(SCOPE, "%s: %s", directory, strerror(errno));
        return LS_OK;
    }
    enum ls_status status = LS_OK;
    for (struct dirent *entry; !status && (entry = readdir(folder));)
        status = add_file(list, directory, entry->d_name);
    closedir(folder);
    return status;
}

// Where there are collectives, one can be chosen among them.
static enum ls_status add_auto(struct found_list *list)
{
    bool any = false;
    for (size_t i = 0; i < list->count; i++)
        any = any || list->items[i].kind == LS_KIND_COLLECTIVE;
    if (!any || is_known(list, LS_KIND_COLLECTIVE, LS_AUTO))
        return LS_OK;
    return add_found(list, LS_KIND_COLLECTIVE, LS_AUTO, strdup(LS_BUILT_IN));
}

static int compare_found(const void *a, const void *b)
{
    const struct ls_found *left = a, *right = b;
    if (left->kind != right->kind)
        return left->kind < right->kind ? -1 : 1;
    return strcmp(left->name, right->name);
}

enum ls_status ls_search_all(const struct ls_loader *loader, struct ls_found **out, size_t *count)
{
    struct found_list list = {0};
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < loader->directory_count; i++)
        status = add_files_of(&list, loader->directories[i]);
    if (!status)
        status = add_auto(&list);
    if (status) {
        ls_found_destroy(list.items, list.count);
        return status;
    }
    if (list.count)
        qsort(list.items, list.count, sizeof(*list.items), compare_found);
    *out = list.items;
    *count = list.count;
    return LS_OK;
}

// ---- A name that does not exist ----

// "strategies mirrored, one-device; collectives ring".
static void write_what_there_is(FILE *text, uint32_t kinds, const struct ls_found *found,
                                size_t count)
{
    static const char *const plurals[] = {
        [LS_KIND_DEVICE] = "devices",
        [LS_KIND_TRANSPORT] = "transports",
        [LS_KIND_COLLECTIVE] = "collectives",
        [LS_KIND_STRATEGY] = "strategies",
        [LS_KIND_CALLBACK] = "callbacks",
        [LS_KIND_LAYER] = "layers",
        [LS_KIND_LOSS] = "losses",
        [LS_KIND_METRIC] = "metrics",
        [LS_KIND_DATASET] = "datasets",
        [LS_KIND_FILTER] = "filters",
    };
    const char *gap = "";
    for (uint32_t kind = LS_KINDS; kind >= 1; kind--) {
        bool first = true;
        for (size_t i = 0; i < count; i++) {
            if (found[i].kind != kind || !(kinds & 1u << kind))
                continue;
            if (first)
                fprintf(text, "%s%s %s", gap, plurals[kind], found[i].name);
            else
                fprintf(text, ", %s", found[i].name);
            first = false;
            gap = "; ";
        }
    }
}

static void write_kinds(FILE *text, uint32_t kinds)
{
    const char *gap = "no ";
    for (uint32_t kind = LS_KINDS; kind >= 1; kind--) {
        if (!(kinds & 1u << kind))
            continue;
        kinds &= ~(1u << kind);
        fprintf(text, "%s%s", gap, ls_kind_text(kind));
        gap = kinds & (kinds - 1) ? ", " : " or ";
    }
}

static void write_unknown(FILE *text, const struct ls_loader *loader, uint32_t kinds,
                          const char *name, const struct ls_found *found, size_t count,
                          const char **names)
{
    size_t known = 0;
    for (size_t i = 0; i < count; i++)
        if (kinds & 1u << found[i].kind)
            names[known++] = found[i].name;
    names[known] = NULL;

    write_kinds(text, kinds);
    fprintf(text, " is called '%s'", name);
    const char *nearest = ls_nearest(name, names);
    const struct ls_hint *hint = ls_hint_find(ls_elsewhere, kinds, name);
    if (nearest && ls_is_spelled(nearest, name))
        hint = NULL; // it is here, and not what brings it is missing
    if (hint)
        nearest = NULL;
    if (hint)
        fprintf(text, ": %s", hint->text);
    else if (nearest)
        fprintf(text, "; did you mean %s?", nearest);
    if (known) {
        fputs(hint ? ". Available: " : nearest ? " Available: " : "; available: ", text);
        write_what_there_is(text, kinds, found, count);
        if (!hint && !nearest)
            fputs("; --plugin-path names a folder with others", text);
        return;
    }
    fputs(loader->directory_count ? "; none were found in" : "; no folder of plugins was found",
          text);
    for (size_t i = 0; i < loader->directory_count; i++)
        fprintf(text, "%s %s", i ? "," : "", loader->directories[i]);
    fputs(": name one with --plugin-path", text);
}

static enum ls_status add_registered(struct found_list *list, const struct ls_loader *loader)
{
    enum ls_status status = LS_OK;
    for (const struct ls_module *module = loader->modules; module && !status; module = module->next)
        if (module->registered && !is_known(list, module->plugin->kind, module->plugin->name))
            status =
                add_found(list, module->plugin->kind, module->plugin->name, strdup(LS_BUILT_IN));
    return status;
}

enum ls_status ls_loader_report_unknown(const struct ls_loader *loader, const char *scope,
                                        uint32_t kinds, const char *name)
{
    struct ls_found *found = NULL;
    size_t count = 0, bytes = 0;
    enum ls_status status = ls_search_all(loader, &found, &count);
    if (status)
        return status;
    struct found_list list = {found, count};
    status = add_registered(&list, loader);
    found = list.items;
    count = list.count;
    const char **names = calloc(count + 1, sizeof(*names));
    char *line = NULL;
    FILE *text = names ? open_memstream(&line, &bytes) : NULL;
    if (text) {
        write_unknown(text, loader, kinds, name, found, count, names);
        fclose(text);
    }
    ls_error(scope, "%s", line ? line : "out of memory");
    free(line);
    free(names);
    ls_found_destroy(found, count);
    return status ? status : LS_UNAVAILABLE;
}

const char *ls_loader_registered_text(const struct ls_loader *loader, uint32_t kind,
                                      const char *name, char *text, size_t bytes)
{
    const char *names[64];
    size_t count = 0, used = 0;
    for (const struct ls_module *module = loader->modules; module && count < 63;
         module = module->next)
        if (module->registered && module->plugin->kind == kind)
            names[count++] = module->plugin->name;
    names[count] = NULL;
    text[0] = '\0';
    const char *nearest = ls_nearest(name, names);
    if (nearest)
        used = (size_t)snprintf(text, bytes, "did you mean '%s'? ", nearest);
    for (size_t i = 0; i < count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                 i ? ", " : "registered by this program: ", names[i]);
    return text;
}
