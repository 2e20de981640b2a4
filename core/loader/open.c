// SPDX-License-Identifier: Apache-2.0
// Opens plugins: the checks of the file, the probe in a child process, and only then this process.
#include "core/loader/guard.h"
#include "core/loader/internal.h"

#include "core/base/log.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// What this process has opened, whichever loader did: it stays loaded, and is not probed again, because it may hold a
// device that no child process may touch. Loaders of several threads share it, and load one after the other.
struct loaded {
    struct ls_file_identity identity;
    const struct ls_plugin *plugin;
    struct loaded *next;
};
static pthread_mutex_t loaded_lock = PTHREAD_MUTEX_INITIALIZER;
static struct loaded *first_loaded;

static enum ls_status out_of_memory(const char *scope)
{
    ls_error(scope, "out of memory");
    return LS_OUT_OF_MEMORY;
}

static bool is_same(const struct ls_file_identity *a, const struct ls_file_identity *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static const struct ls_module *find_module(const struct ls_loader *loader,
                                           const struct ls_file_identity *identity)
{
    for (const struct ls_module *module = loader->modules; module; module = module->next)
        if (is_same(&module->identity, identity))
            return module;
    return NULL;
}

// Under the lock.
static const struct ls_plugin *find_loaded(const struct ls_file_identity *identity)
{
    for (const struct loaded *loaded = first_loaded; loaded; loaded = loaded->next)
        if (is_same(&loaded->identity, identity))
            return loaded->plugin;
    return NULL;
}

const struct ls_plugin *ls_plugin_loaded(const struct ls_file_identity *identity)
{
    pthread_mutex_lock(&loaded_lock);
    const struct ls_plugin *plugin = find_loaded(identity);
    pthread_mutex_unlock(&loaded_lock);
    return plugin;
}

static void module_destroy(struct ls_module *module)
{
    if (!module)
        return;
    free(module->interface);
    free(module->file);
    free(module);
}

// The shared objects stay loaded: what they started may still run.
void ls_modules_destroy(struct ls_loader *loader)
{
    while (loader->modules) {
        struct ls_module *module = loader->modules;
        loader->modules = module->next;
        module_destroy(module);
    }
}

// A copy of the plugin's table that has all of our members: those that an older plugin does not have are
// NULL or 0. `struct_size` stays at what the plugin has, where that is less.
static void *copy_interface(const struct ls_plugin *plugin)
{
    const size_t ours = ls_interface_bytes(plugin->kind);
    uint32_t bytes;
    if (plugin->kind == LS_KIND_DEVICE) {
        struct ls_device_tables *tables = calloc(1, sizeof(*tables));
        if (tables)
            ls_device_tables_copy(plugin->interface, tables);
        return tables;
    }
    memcpy(&bytes, plugin->interface, sizeof(bytes));
    if (bytes > ours)
        bytes = (uint32_t)ours;
    char *copy = calloc(1, ours);
    if (!copy)
        return NULL;
    memcpy(copy, plugin->interface, bytes);
    memcpy(copy, &bytes, sizeof(bytes));
    return copy;
}

static enum ls_status add_module(struct ls_loader *loader, const char *scope, const char *path,
                                 const struct ls_plugin *plugin,
                                 const struct ls_file_identity *identity,
                                 const struct ls_module **out)
{
    struct ls_module *module = calloc(1, sizeof(*module));
    if (!module)
        return out_of_memory(scope);
    memcpy(&module->descriptor, plugin,
           plugin->struct_size < sizeof(*plugin) ? plugin->struct_size : sizeof(*plugin));
    module->file = strdup(path);
    module->interface = copy_interface(plugin);
    module->known = ls_plugin_know(plugin->kind, plugin->name, plugin->interface);
    if (module->interface)
        ls_guard_table(plugin->kind, module->interface);
    module->descriptor.interface = module->interface;
    module->plugin = &module->descriptor;
    module->theirs = plugin;
    module->identity = *identity;
    if (!module->file || !module->interface || !module->known) {
        module_destroy(module);
        return out_of_memory(scope);
    }
    module->next = loader->modules;
    loader->modules = module;
    *out = module;
    return LS_OK;
}

// Whether the file passes its first contact in a child process.
static enum ls_status probe(struct ls_loader *loader, const char *scope, const char *path)
{
    struct ls_probe_result result;
    const enum ls_status status = ls_probe_file(path, loader->probe_deadline_ns, &result);
    if (status)
        return status;
    if (result.outcome == LS_PROBE_AVAILABLE)
        return LS_OK;
    if (result.outcome == LS_PROBE_UNAVAILABLE)
        ls_error(scope, "%s cannot run here: %s; `lockstep plugins` lists what can", path,
                 result.reason.text);
    else
        ls_error(scope, "%s: %s", path, result.reason.text);
    return LS_UNAVAILABLE;
}

// Probes and opens the file, unless this process has. Under the lock.
static enum ls_status load(struct ls_loader *loader, const char *scope, const char *path,
                           const struct ls_file_identity *identity, const struct ls_plugin **out)
{
    struct ls_reason reason;
    *out = find_loaded(identity);
    if (*out)
        return LS_OK;
    // A GPU's takes half a second, so a plugin that was found to run here is not asked again.
    const enum ls_status status =
        is_same(identity, &loader->probed) ? LS_OK : probe(loader, scope, path);
    if (status)
        return status;
    struct loaded *loaded = malloc(sizeof(*loaded));
    if (!loaded)
        return out_of_memory(scope);
    if (!ls_module_load(path, NULL, out, &reason)) {
        free(loaded);
        ls_error(scope, "%s: %s", path, reason.text);
        return LS_UNAVAILABLE;
    }
    *loaded = (struct loaded){*identity, *out, first_loaded};
    first_loaded = loaded;
    return LS_OK;
}

enum ls_status ls_module_open(struct ls_loader *loader, const char *scope, const char *path,
                              const struct ls_module **out)
{
    struct ls_reason reason;
    struct ls_file_identity identity;
    const struct ls_plugin *plugin = NULL;
    if (strcmp(path, LS_BUILT_IN) == 0) {
        *out = ls_auto_module();
        return LS_OK;
    }
    if (!ls_file_check(path, &identity, &reason)) {
        ls_error(scope, "%s: %s", path, reason.text);
        return LS_UNAVAILABLE;
    }
    const struct ls_module *known = find_module(loader, &identity);
    if (known) {
        *out = known;
        return LS_OK;
    }
    pthread_mutex_lock(&loaded_lock);
    const enum ls_status status = load(loader, scope, path, &identity, &plugin);
    pthread_mutex_unlock(&loaded_lock);
    return status ? status : add_module(loader, scope, path, plugin, &identity, out);
}

enum ls_status ls_module_open_named(struct ls_loader *loader, const char *scope, uint32_t kind,
                                    const char *name, const struct ls_module **out)
{
    *out = ls_module_registered(loader, kind, name);
    if (*out)
        return LS_OK;
    char *path = ls_search_find(loader, kind, name);
    if (!path)
        return ls_loader_report_unknown(loader, scope, 1u << kind, name);
    const enum ls_status status = ls_module_open(loader, scope, path, out);
    free(path);
    return status;
}

enum ls_status ls_loader_register(struct ls_loader *loader, const struct ls_plugin *plugin)
{
    const struct ls_file_identity none = {0};
    const struct ls_module *module = NULL;
    const char *kind = plugin ? ls_kind_text(plugin->kind) : NULL;
    struct ls_reason reason = {"is NULL"};
    char file[LS_LONGEST_NAME + 32] = "plugin";
    if (kind && plugin->name)
        snprintf(file, sizeof(file), "%s-%.*s.so", kind, LS_LONGEST_NAME, plugin->name);
    if (!plugin || !ls_tables_check(plugin, file, &reason)) {
        ls_error("plugins", "%s, registered by the program: %s", file, reason.text);
        return LS_USAGE;
    }
    module = ls_module_registered(loader, plugin->kind, plugin->name);
    if (module && module->theirs == plugin)
        return LS_OK;
    if (module) {
        ls_error("plugins", "the program has registered another %s %s already", kind, plugin->name);
        return LS_USAGE;
    }
    const enum ls_status status =
        add_module(loader, "plugins", "registered by the program", plugin, &none, &module);
    if (!status)
        loader->modules->registered = true; // it is the first now
    return status;
}

static enum ls_status open_plugin(struct ls_loader *loader, const struct ls_module *module,
                                  const struct ls_option_value *options, size_t option_count,
                                  const struct ls_opened_plugin **out)
{
    const struct ls_spec spec = {
        .name = (char *)module->plugin->name,
        .options = (struct ls_option_value *)options,
        .option_count = option_count,
    };
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < option_count; i++)
        status = ls_auto_check_option(ls_kind_text(module->plugin->kind), module, options[i].name);
    if (!status)
        status = ls_spec_check(ls_kind_text(module->plugin->kind), &spec, module->plugin->options);
    return status ? status : ls_plugin_host_create(loader, module, options, option_count, out);
}

enum ls_status ls_loader_open(struct ls_loader *loader, uint32_t kind, const char *name,
                              const struct ls_option_value *options, size_t option_count,
                              const struct ls_opened_plugin **out)
{
    const struct ls_module *module = NULL;
    const enum ls_status status =
        ls_module_open_named(loader, ls_kind_text(kind), kind, name, &module);
    return status ? status : open_plugin(loader, module, options, option_count, out);
}

// dlopen() takes a name without a slash for one that it must search.
enum ls_status ls_loader_open_file(struct ls_loader *loader, const char *path, uint32_t kind,
                                   const struct ls_option_value *options, size_t option_count,
                                   const struct ls_opened_plugin **out)
{
    char *here = strchr(path, '/') ? strdup(path) : malloc(strlen(path) + 3);
    if (!here)
        return out_of_memory("plugins");
    if (!strchr(path, '/'))
        strcat(strcpy(here, "./"), path);
    struct stat about;
    const struct ls_module *module = NULL;
    enum ls_status status = LS_BAD_INPUT;
    if (lstat(here, &about))
        ls_error("plugins", "%s: %s", path, strerror(errno));
    else
        status = ls_module_open(loader, "plugins", here, &module);
    free(here);
    if (status)
        return status;
    if (kind && module->plugin->kind != kind) {
        ls_error("plugins", "%s is a %s, not a %s", path, ls_kind_text(module->plugin->kind),
                 ls_kind_text(kind));
        return LS_UNAVAILABLE;
    }
    return open_plugin(loader, module, options, option_count, out);
}

bool ls_is_plugin_file(const char *name)
{
    const size_t length = strlen(name);
    return strchr(name, '/') || (length > 3 && strcmp(name + length - 3, ".so") == 0);
}

enum ls_status ls_loader_open_text(struct ls_loader *loader, const char *scope, uint32_t kind,
                                   const char *text, const struct ls_opened_plugin **out)
{
    struct ls_spec spec = {0};
    enum ls_status status = kind == LS_KIND_DEVICE ? ls_loader_check_device_text(text) : LS_OK;
    if (!status)
        status = ls_spec_parse(scope, text, &spec);
    if (status)
        return status;
    status =
        ls_is_plugin_file(spec.name)
            ? ls_loader_open_file(loader, spec.name, kind, spec.options, spec.option_count, out)
            : ls_loader_open(loader, kind, spec.name, spec.options, spec.option_count, out);
    ls_spec_finish(&spec);
    return status;
}
