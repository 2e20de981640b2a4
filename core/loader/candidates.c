// SPDX-License-Identifier: Apache-2.0
// Opens collectives that have a schedule: one that is named, or those among which `auto` chooses.
#include "core/loader/internal.h"

#include "core/base/log.h"
#include "core/plugin/collective.h"

#include <stdlib.h>
#include <string.h>

#define SEPARATORS "+"

static enum ls_status need_schedule(const char *scope, const struct ls_plugin *plugin,
                                    const struct ls_collective_interface *interface)
{
    if (interface->build_schedule)
        return LS_OK;
    ls_error(scope, "%s is native: it has no schedule", plugin->name);
    return LS_UNAVAILABLE;
}

enum ls_status ls_loader_open_scheduled(struct ls_loader *loader, const char *scope,
                                        const char *text, const struct ls_opened_plugin **out)
{
    const enum ls_status status = ls_loader_open_text(loader, scope, LS_KIND_COLLECTIVE, text, out);
    if (status)
        return status;
    if (!ls_is_auto(*out))
        return need_schedule(scope, (*out)->plugin, (*out)->interface);
    ls_error(
        scope,
        "auto has no schedule of its own: it chooses another collective for each size; name one "
        "of those");
    return LS_USAGE;
}

// ---- Candidates ----

struct list {
    const struct ls_opened_plugin **items;
    size_t count;
};

static enum ls_status add(struct ls_loader *loader, const struct ls_module *candidate,
                          struct list *list)
{
    const struct ls_opened_plugin **more =
        realloc(list->items, (list->count + 1) * sizeof(*list->items));
    if (!more) {
        ls_error(LS_AUTO, "out of memory");
        return LS_OUT_OF_MEMORY;
    }
    list->items = more;
    const enum ls_status status =
        ls_plugin_host_create(loader, candidate, NULL, 0, &more[list->count]);
    list->count += !status;
    return status;
}

static enum ls_status add_named(struct ls_loader *loader, const char *names, struct list *list)
{
    char *copy = strdup(names), *rest = NULL;
    enum ls_status status = copy ? LS_OK : LS_OUT_OF_MEMORY;
    for (char *name = copy ? strtok_r(copy, SEPARATORS, &rest) : NULL; !status && name;
         name = strtok_r(NULL, SEPARATORS, &rest)) {
        const struct ls_module *candidate = NULL;
        status = ls_module_open_named(loader, LS_AUTO, LS_KIND_COLLECTIVE, name, &candidate);
        if (!status && candidate == ls_auto_module()) {
            ls_error(LS_AUTO, "candidates=%s: auto cannot choose itself", names);
            status = LS_USAGE;
        }
        for (size_t i = 0; !status && i < list->count; i++)
            if (list->items[i]->plugin == candidate->plugin) {
                ls_error(LS_AUTO, "candidates=%s names %s twice; name each once", names, name);
                status = LS_USAGE;
            }
        if (!status)
            status = need_schedule(LS_AUTO, candidate->plugin, candidate->interface);
        if (!status)
            status = add(loader, candidate, list);
    }
    free(copy);
    if (!status && !list->count) {
        ls_error(LS_AUTO, "candidates=%s: expected names joined by +, such as ring+tree", names);
        status = LS_USAGE;
    }
    return status;
}

static bool describes(const struct ls_module *candidate)
{
    return ((const struct ls_collective_interface *)candidate->interface)->build_schedule != NULL;
}

// What cannot run here is no candidate; lockstep plugins says why. Nor is what has no schedule of
// its own.
static enum ls_status add_available(struct ls_loader *loader, struct list *list)
{
    struct ls_plugin_entry *entries = NULL;
    size_t count = 0;
    enum ls_status status = ls_loader_list(loader, &entries, &count);
    for (size_t i = 0; !status && i < count; i++) {
        const struct ls_module *candidate = NULL;
        if (entries[i].kind != LS_KIND_COLLECTIVE || !entries[i].available ||
            strcmp(entries[i].file, LS_BUILT_IN) == 0)
            continue;
        status = ls_module_open(loader, LS_AUTO, entries[i].file, &candidate);
        if (!status && describes(candidate))
            status = add(loader, candidate, list);
    }
    ls_plugin_entries_destroy(entries, count);
    return status;
}

enum ls_status ls_loader_candidates(struct ls_loader *loader, const struct ls_opened_plugin *opened,
                                    const struct ls_opened_plugin ***out, size_t *count)
{
    struct list list = {0};
    const char *names = opened->host->option(opened->host, "candidates");
    enum ls_status status = names ? add_named(loader, names, &list) : add_available(loader, &list);
    if (!status && list.count == 0) {
        ls_error(LS_AUTO, "there is no collective to choose; --plugin-path names directories");
        status = LS_UNAVAILABLE;
    }
    if (status) {
        free(list.items);
        return status;
    }
    *out = list.items;
    *count = list.count;
    return LS_OK;
}
