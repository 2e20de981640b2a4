// SPDX-License-Identifier: Apache-2.0
// What is on the search path, each probed in a child process of its own: nothing is opened in this one.
#include "core/loader/internal.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

void ls_plugin_entries_destroy(struct ls_plugin_entry *entries, size_t count)
{
    for (size_t i = 0; entries && i < count; i++) {
        free(entries[i].name);
        free(entries[i].version);
        free(entries[i].summary);
        free(entries[i].file);
        free(entries[i].reason);
    }
    free(entries);
}

// What is open already is not probed again: it may hold a device that no child may touch.
static enum ls_status examine(struct ls_loader *loader, const char *file,
                              struct ls_probe_result *out)
{
    struct ls_file_identity identity;
    const bool built_in = strcmp(file, LS_BUILT_IN) == 0;
    *out = (struct ls_probe_result){.outcome = LS_PROBE_REFUSED};
    if (!built_in && !ls_file_check(file, &identity, &out->reason))
        return LS_OK;
    const struct ls_plugin *plugin =
        built_in ? ls_auto_module()->plugin : ls_plugin_loaded(&identity);
    if (!plugin) {
        const enum ls_status status = ls_probe_file(file, loader->probe_deadline_ns, out);
        if (!status && out->outcome == LS_PROBE_AVAILABLE)
            loader->probed = identity;
        return status;
    }
    out->outcome = LS_PROBE_AVAILABLE;
    strncpy(out->version, plugin->version, sizeof(out->version) - 1);
    strncpy(out->summary, plugin->summary, sizeof(out->summary) - 1);
    return LS_OK;
}

static enum ls_status fill_entry(struct ls_loader *loader, const struct ls_found *found,
                                 struct ls_plugin_entry *entry)
{
    struct ls_probe_result result;
    const enum ls_status status = examine(loader, found->file, &result);
    if (status)
        return status;
    *entry = (struct ls_plugin_entry){
        .kind = found->kind,
        .name = strdup(found->name),
        .version = strdup(result.version),
        .summary = strdup(result.summary),
        .file = strdup(found->file),
        .reason = strdup(result.reason.text),
        .available = result.outcome == LS_PROBE_AVAILABLE,
    };
    if (entry->name && entry->version && entry->summary && entry->file && entry->reason)
        return LS_OK;
    ls_error("plugins", "out of memory");
    return LS_OUT_OF_MEMORY;
}

enum ls_status ls_loader_list(struct ls_loader *loader, struct ls_plugin_entry **out, size_t *count)
{
    struct ls_found *found = NULL;
    size_t found_count = 0;
    enum ls_status status = ls_search_all(loader, &found, &found_count);
    if (status)
        return status;
    struct ls_plugin_entry *entries = calloc(found_count + 1, sizeof(*entries));
    if (!entries) {
        ls_error("plugins", "out of memory");
        status = LS_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < found_count && !status; i++)
        status = fill_entry(loader, &found[i], &entries[i]);
    ls_found_destroy(found, found_count);
    if (status) {
        ls_plugin_entries_destroy(entries, found_count);
        return status;
    }
    *out = entries;
    *count = found_count;
    return LS_OK;
}

// Semantic Versioning: a '-' begins the name of a pre-release, unless it belongs to what the build says after a '+'.
static bool is_released(const char *version)
{
    return version[strcspn(version, "-+")] != '-';
}

const char *ls_loader_default_device(struct ls_loader *loader)
{
    struct ls_probe_result result;
    char *file = ls_search_find(loader, LS_KIND_DEVICE, "cuda");
    const bool available =
        file && !examine(loader, file, &result) && result.outcome == LS_PROBE_AVAILABLE;
    free(file);
    if (!available)
        return "cpu";
    if (is_released(result.version))
        return "cuda";
    ls_info("--device",
            "cpu; cuda can run here, but its version %s is a pre-release, which is never the "
            "default: name it, --device=cuda, or name cpu",
            result.version);
    return "cpu";
}
