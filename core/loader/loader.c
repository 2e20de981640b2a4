// SPDX-License-Identifier: Apache-2.0
// A loader's life.
#include "core/loader/internal.h"

#include <stdlib.h>

#define PROBE_DEADLINE_NS UINT64_C(10000000000)

enum ls_status ls_loader_create(const char *plugin_path, struct ls_loader **out)
{
    struct ls_loader *loader = calloc(1, sizeof(*loader));
    if (!loader)
        return LS_OUT_OF_MEMORY;
    loader->probe_deadline_ns = PROBE_DEADLINE_NS;
    const enum ls_status status = ls_search_init(loader, plugin_path);
    if (status) {
        ls_loader_destroy(loader);
        return status;
    }
    *out = loader;
    return LS_OK;
}

enum ls_status ls_loader_create_like(const struct ls_loader *other, struct ls_loader **out)
{
    struct ls_loader *loader = calloc(1, sizeof(*loader));
    if (!loader)
        return LS_OUT_OF_MEMORY;
    loader->probe_deadline_ns = other->probe_deadline_ns;
    enum ls_status status = ls_search_copy(loader, other);
    for (const struct ls_module *module = other->modules; !status && module; module = module->next)
        if (module->registered)
            status = ls_loader_register(loader, module->theirs);
    if (status) {
        ls_loader_destroy(loader);
        return status;
    }
    *out = loader;
    return LS_OK;
}

void ls_loader_destroy(struct ls_loader *loader)
{
    if (!loader)
        return;
    ls_plugin_hosts_destroy(loader);
    ls_modules_destroy(loader);
    ls_search_finish(loader);
    free(loader);
}

void ls_loader_set_probe_deadline(struct ls_loader *loader, uint64_t nanoseconds)
{
    loader->probe_deadline_ns = nanoseconds;
}
