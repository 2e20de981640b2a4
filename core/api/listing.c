// SPDX-License-Identifier: Apache-2.0
// Lists of plugins and devices, each in one block of memory: the structs, and behind them their
// texts; and the names that no plugin can take.
#include "core/api/listing.h"

#include "core/base/log.h"
#include "core/data/dataset.h"
#include "core/graph/layer.h"
#include "core/loader/loader.h"
#include "core/model/losses.h"
#include "core/model/metrics.h"
#include "core/plugin/device.h"

#include <stdlib.h>
#include <string.h>

// Appends a copy of `text`, without what would move a cursor, and moves `*end` behind it.
static const char *put(char **end, const char *text)
{
    char *copy = strcpy(*end, text);
    ls_log_replace_control_characters(copy);
    *end += strlen(copy) + 1;
    return copy;
}

static size_t text_bytes(const struct ls_plugin_entry *entry)
{
    return strlen(entry->name) + strlen(entry->version) + strlen(entry->summary) +
           strlen(entry->file) + strlen(entry->reason) + 5;
}

// The plugins on the path, probed.
static enum ls_status look(const char *plugin_path, struct ls_loader **loader,
                           struct ls_plugin_entry **entries, size_t *count)
{
    enum ls_status status = ls_loader_create(plugin_path, loader);
    return status ? status : ls_loader_list(*loader, entries, count);
}

enum ls_status ls_make_plugin_list(const char *plugin_path, const struct ls_listed_plugin **out,
                                   size_t *count)
{
    struct ls_loader *loader = NULL;
    struct ls_plugin_entry *entries = NULL;
    size_t found = 0, texts = 0;
    enum ls_status status = look(plugin_path, &loader, &entries, &found);
    for (size_t i = 0; i < found; i++)
        texts += text_bytes(&entries[i]);
    struct ls_listed_plugin *list = status ? NULL : calloc(1, (found + 1) * sizeof(*list) + texts);
    if (!status && !list)
        status = LS_OUT_OF_MEMORY;
    char *end = list ? (char *)(list + found + 1) : NULL;
    for (size_t i = 0; list && i < found; i++) {
        const char *kind = ls_kind_text(entries[i].kind);
        list[i] = (struct ls_listed_plugin){
            .kind = kind ? kind : "?",
            .name = put(&end, entries[i].name),
            .version = put(&end, entries[i].version),
            .summary = put(&end, entries[i].summary),
            .path = put(&end, entries[i].file),
            .reason = put(&end, entries[i].reason),
            .usable = entries[i].available != 0,
        };
    }
    ls_plugin_entries_destroy(entries, found);
    ls_loader_destroy(loader);
    if (status)
        return status;
    *out = list;
    *count = found;
    return LS_OK;
}

// What the device says of itself; "" and 0 where it cannot run. One that its probe finds in order
// may fail here.
static enum ls_status describe(struct ls_loader *loader, const struct ls_plugin_entry *entry,
                               struct ls_device_info *info)
{
    const struct ls_opened_plugin *opened = NULL;
    *info = (struct ls_device_info){.struct_size = sizeof(*info)};
    if (!entry->available)
        return LS_OK;
    enum ls_status status = ls_loader_open(loader, LS_KIND_DEVICE, entry->name, NULL, 0, &opened);
    if (status)
        return status;
    const struct ls_device_interface *device = opened->interface;
    status = (enum ls_status)device->describe(opened->host, info);
    info->hardware[sizeof(info->hardware) - 1] = '\0';
    return status;
}

static enum ls_status fill_devices(struct ls_loader *loader, const struct ls_plugin_entry *entries,
                                   size_t found, struct ls_listed_device *list, size_t room,
                                   size_t *count)
{
    char *end = (char *)(list + room);
    for (size_t i = 0; i < found; i++) {
        struct ls_device_info info;
        if (entries[i].kind != LS_KIND_DEVICE)
            continue;
        const enum ls_status status = describe(loader, &entries[i], &info);
        if (status == LS_OUT_OF_MEMORY)
            return status;
        if (status)
            info = (struct ls_device_info){0};
        list[(*count)++] = (struct ls_listed_device){
            .name = put(&end, entries[i].name),
            .hardware = put(&end, info.hardware),
            .reason = put(&end, status ? ls_status_text(status) : entries[i].reason),
            .count = info.physical_count,
            .usable = !status && entries[i].available,
        };
    }
    return LS_OK;
}

enum ls_status ls_make_device_list(const char *plugin_path, const struct ls_listed_device **out,
                                   size_t *count)
{
    struct ls_loader *loader = NULL;
    struct ls_plugin_entry *entries = NULL;
    size_t found = 0, texts = 0, devices = 0;
    enum ls_status status = look(plugin_path, &loader, &entries, &found);
    for (size_t i = 0; i < found; i++)
        texts += text_bytes(&entries[i]) + sizeof(((struct ls_device_info *)0)->hardware);
    struct ls_listed_device *list = status ? NULL : calloc(1, (found + 1) * sizeof(*list) + texts);
    if (!status && !list)
        status = LS_OUT_OF_MEMORY;
    if (!status)
        status = fill_devices(loader, entries, found, list, found + 1, &devices);
    ls_plugin_entries_destroy(entries, found);
    ls_loader_destroy(loader);
    if (status) {
        free(list);
        return status;
    }
    *out = list;
    *count = devices;
    return LS_OK;
}

bool ls_is_built_in(uint32_t kind, const char *name)
{
    bool found = kind == LS_KIND_DATASET && ls_dataset_is_known(name);
    for (size_t i = 0; kind == LS_KIND_LAYER && ls_layer_kinds[i]; i++)
        found = found || strcmp(ls_layer_kinds[i]->class_name, name) == 0;
    for (size_t i = 0; kind == LS_KIND_METRIC && ls_metric_names[i]; i++)
        found = found || strcmp(ls_metric_names[i], name) == 0;
    return found || (kind == LS_KIND_LOSS && ls_loss_find(name));
}

void ls_free_list(const void *list)
{
    free((void *)(uintptr_t)list);
}
