// SPDX-License-Identifier: Apache-2.0
// What the host does for an opened plugin, whatever its kind: log, fail, memory, clock, options.
#include "core/loader/internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/shared_memory.h"

#include <stdlib.h>
#include <string.h>

struct ls_plugin_host {
    struct ls_host_context context; // first: of the host
    struct ls_opened_plugin opened;
    struct ls_host host;
    const struct ls_plugin *plugin;
    char *file, *text;
    struct ls_option_value *options;
    size_t option_count;
    struct ls_plugin_host *next;
};

static void host_log(const struct ls_host *host, uint32_t level, const char *message)
{
    const struct ls_plugin_host *own = host->context;
    ls_log(level, own->plugin->name, message);
}

// A request that a plugin does not do, a call to be repeated and another rank's failure are
// answers, not errors: whoever asked knows what to do, and says so if nothing else works.
static int32_t host_fail(const struct ls_host *host, int32_t status, const char *message)
{
    const bool answer = status == LS_UNSUPPORTED || status == LS_AGAIN || status == LS_ABORTED;
    if (status == LS_UNSUPPORTED)
        ls_log_note_refusal(message ? message : "");
    if (message && *message) // else the guard says that there is no reason
        host_log(host, answer ? LS_LOG_DEBUG : LS_LOG_ERROR, message);
    return status ? status : LS_FAILED;
}

static void *host_allocate(const struct ls_host *host, uint64_t bytes, uint64_t alignment)
{
    (void)host;
    return ls_segment_allocate(bytes, alignment);
}

static void host_release(const struct ls_host *host, void *memory)
{
    (void)host;
    ls_segment_free(memory);
}

static uint64_t host_clock_ns(const struct ls_host *host)
{
    (void)host;
    return ls_clock_ns();
}

static const char *host_option(const struct ls_host *host, const char *name)
{
    const struct ls_plugin_host *own = host->context;
    for (size_t i = 0; i < own->option_count; i++)
        if (!strcmp(own->options[i].name, name))
            return own->options[i].value;
    const struct ls_plugin_option *option = ls_option_find(own->plugin->options, name);
    return option ? option->default_value : NULL;
}

bool ls_host_is_loaders(const struct ls_host *host)
{
    return host && host->fail == host_fail;
}

static void plugin_host_destroy(struct ls_plugin_host *own)
{
    if (!own)
        return;
    for (size_t i = 0; i < own->option_count; i++) {
        free(own->options[i].name);
        free(own->options[i].value);
    }
    free(own->options);
    free(own->file);
    free(own->text);
    free(own);
}

void ls_plugin_hosts_destroy(struct ls_loader *loader)
{
    while (loader->hosts) {
        struct ls_plugin_host *own = loader->hosts;
        loader->hosts = own->next;
        plugin_host_destroy(own);
    }
}

static bool copy_options(struct ls_plugin_host *own, const struct ls_option_value *options,
                         size_t option_count)
{
    own->options = calloc(option_count + 1, sizeof(*own->options));
    if (!own->options)
        return false;
    for (size_t i = 0; i < option_count; i++) {
        struct ls_option_value *copy = &own->options[own->option_count++];
        copy->name = strdup(options[i].name);
        copy->value = strdup(options[i].value);
        if (!copy->name || !copy->value)
            return false;
    }
    return true;
}

static bool write_text(struct ls_plugin_host *own)
{
    size_t bytes = 0;
    FILE *out = open_memstream(&own->text, &bytes);
    if (!out)
        return false;
    fputs(own->file, out);
    for (size_t i = 0; i < own->option_count; i++)
        fprintf(out, "%c%s=%s", i ? ',' : ':', own->options[i].name, own->options[i].value);
    const bool written = !ferror(out);
    return fclose(out) == 0 && written;
}

static void fill_tables(struct ls_plugin_host *own, const struct ls_module *module)
{
    own->context = (struct ls_host_context){LS_HOST_MAGIC, module->known};
    own->host = (struct ls_host){
        .struct_size = sizeof(own->host),
        .abi_minor = LS_PLUGIN_ABI_MINOR,
        .context = own,
        .log = host_log,
        .fail = host_fail,
        .allocate = host_allocate,
        .release = host_release,
        .clock_ns = host_clock_ns,
        .option = host_option,
    };
    own->opened = (struct ls_opened_plugin){
        .plugin = module->plugin,
        .host = &own->host,
        .interface = module->interface,
        .file = own->file,
        .text = own->text,
    };
}

// The host of a plugin without a state that has these options already: models are built anew for
// each compilation.
static const struct ls_plugin_host *find_same(const struct ls_loader *loader,
                                              const struct ls_module *module,
                                              const struct ls_option_value *options, size_t count)
{
    const uint32_t kind = module->plugin->kind;
    if (kind != LS_KIND_LAYER && kind != LS_KIND_LOSS && kind != LS_KIND_METRIC)
        return NULL;
    for (const struct ls_plugin_host *own = loader->hosts; own; own = own->next) {
        bool same = own->plugin == module->plugin && own->option_count == count;
        for (size_t i = 0; same && i < count; i++)
            same = strcmp(own->options[i].name, options[i].name) == 0 &&
                   strcmp(own->options[i].value, options[i].value) == 0;
        if (same)
            return own;
    }
    return NULL;
}

enum ls_status ls_plugin_host_create(struct ls_loader *loader, const struct ls_module *module,
                                     const struct ls_option_value *options, size_t option_count,
                                     const struct ls_opened_plugin **out)
{
    const struct ls_plugin_host *same = find_same(loader, module, options, option_count);
    if (same) {
        *out = &same->opened;
        return LS_OK;
    }
    struct ls_plugin_host *own = calloc(1, sizeof(*own));
    if (own) {
        own->plugin = module->plugin;
        own->file = strdup(module->file);
    }
    if (!own || !own->file || !copy_options(own, options, option_count) || !write_text(own)) {
        ls_error(module->plugin->name, "out of memory");
        plugin_host_destroy(own);
        return LS_OUT_OF_MEMORY;
    }
    fill_tables(own, module);
    own->next = loader->hosts;
    loader->hosts = own;
    *out = &own->opened;
    return LS_OK;
}
