// SPDX-License-Identifier: Apache-2.0
// lockstep list: the names that --model=, --dataset= and the other options take, from the tables in
// which the library looks them up, and the plugins of this machine.
#include "tools/command.h"

#include "core/base/log.h"
#include "core/data/dataset.h"
#include "core/graph/layer.h"
#include "core/loader/loader.h"
#include "core/model/losses.h"
#include "core/model/metrics.h"
#include "core/optimizer/optimizer.h"
#include "core/run/resource_files.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define COLUMN 20 // where the texts begin
#define CLASSES_MOST 32 // of layers, in the line of a model

static const struct argument table[] = {
    {"plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"},
    {NULL, NULL, NULL, NULL},
};

static const char help[] = "Without a word it names the lists.\n\n"
                           "Examples:\n"
                           "  lockstep list datasets\n"
                           "  lockstep list strategies\n";

static void print_row(const char *name, const char *text)
{
    if (strlen(name) < COLUMN)
        printf("%-*s %s\n", COLUMN, name, text);
    else
        printf("%s\n%*s %s\n", name, COLUMN, "", text);
}

// "2 Conv2D, Flatten, 2 Dense": the layers of a model file, each class where it stands first.
static void describe_layers(const json_t *layers, char *text, size_t bytes)
{
    const char *names[CLASSES_MOST];
    size_t counts[CLASSES_MOST] = {0}, classes = 0, index, used = strlen(text);
    const json_t *layer;
    json_array_foreach(layers, index, layer)
    {
        const char *name = json_string_value(json_object_get(layer, "class_name"));
        size_t i = 0;
        while (name && i < classes && strcmp(names[i], name) != 0)
            i++;
        if (!name || i == CLASSES_MOST || strcmp(name, "InputLayer") == 0)
            continue;
        names[i] = name;
        counts[i]++;
        classes += i == classes;
    }
    for (size_t i = 0; i < classes && used < bytes; i++) {
        if (counts[i] > 1)
            used += (size_t)snprintf(text + used, bytes - used, "%zu ", counts[i]);
        if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", names[i],
                                     i + 1 < classes ? ", " : "");
    }
}

static enum ls_status list_models(void)
{
    char *names[LS_RESOURCES_MOST + 1] = {NULL};
    enum ls_status status = ls_model_list(names);
    for (size_t i = 0; i < LS_RESOURCES_MOST && names[i]; i++) {
        char text[512] = "", *path = NULL;
        if (!status)
            status = ls_model_find(names[i], &path);
        json_t *model = status ? NULL : json_load_file(path, 0, NULL);
        describe_layers(json_object_get(json_object_get(model, "config"), "layers"), text,
                        sizeof(text));
        if (!status)
            print_row(names[i], text);
        json_decref(model);
        free(path);
    }
    for (size_t i = 0; names[i]; i++)
        free(names[i]);
    return status;
}

static enum ls_status list_datasets(void)
{
    for (size_t i = 0; ls_dataset_kinds[i]; i++)
        print_row(ls_dataset_kinds[i]->name, ls_dataset_kinds[i]->summary);
    return LS_OK;
}

static enum ls_status list_layers(void)
{
    for (size_t i = 0; ls_layer_kinds[i]; i++)
        print_row(ls_layer_kinds[i]->class_name, ls_layer_kinds[i]->summary);
    for (const struct ls_layer_kind *kind = ls_node_kinds; kind->class_name; kind++) {
        char text[256];
        snprintf(text, sizeof(text), "operation: %s", kind->summary);
        print_row(kind->class_name, text);
    }
    return LS_OK;
}

static enum ls_status list_losses(void)
{
    for (size_t i = 0; ls_loss_names[i]; i++)
        print_row(ls_loss_names[i], ls_loss_find(ls_loss_names[i])->summary);
    return LS_OK;
}

static enum ls_status list_metrics(void)
{
    for (size_t i = 0; ls_metric_names[i]; i++)
        print_row(ls_metric_names[i], ls_metric_summary(ls_metric_names[i]));
    return LS_OK;
}

static enum ls_status list_optimizers(void)
{
    for (const struct ls_optimizer_kind *kind = ls_optimizer_kinds(); kind->name; kind++)
        print_row(kind->name, kind->summary);
    return LS_OK;
}

static const struct list {
    const char *name;
    const char *where; // the names are written
    enum ls_status (*print)(void); // NULL: all are plugins
    uint32_t kinds[2]; // of plugins that belong to it, enum ls_kind; 0: none
} lists[] = {
    {"models", "in --model=", list_models, {0}},
    {"datasets", "in --dataset=", list_datasets, {LS_KIND_DATASET}},
    {"layers", "in the file of a model", list_layers, {LS_KIND_LAYER}},
    {"losses", "in --loss=", list_losses, {LS_KIND_LOSS}},
    {"metrics", "in --metrics=", list_metrics, {LS_KIND_METRIC}},
    {"optimizers", "in --optimizer=", list_optimizers, {0}},
    {"callbacks", "in --callback=", NULL, {LS_KIND_CALLBACK}},
    {"filters", "in --compress=", NULL, {LS_KIND_FILTER}},
    {"strategies", "in --strategy=", NULL, {LS_KIND_STRATEGY, LS_KIND_COLLECTIVE}},
};
#define LISTS (sizeof(lists) / sizeof(lists[0]))

const char *command_list_of(const char *option)
{
    static const char begin[] = "in --";
    for (size_t i = 0; i < LISTS; i++) {
        const char *name = lists[i].where + strlen(begin);
        if (strncmp(lists[i].where, begin, strlen(begin)) == 0 &&
            strcspn(name, "=") == strlen(option) && strncmp(name, option, strlen(option)) == 0)
            return lists[i].name;
    }
    return NULL;
}

bool command_is_list(const char *word)
{
    for (size_t i = 0; i < LISTS; i++)
        if (strcmp(lists[i].name, word) == 0)
            return true;
    return false;
}

static void print_plugin(const struct list *list, const struct ls_plugin_entry *entry)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s%s%s",
             list->kinds[1] && entry->kind == list->kinds[1] ? "collective: " : "",
             entry->available ? "" : "not available: ",
             entry->available ? entry->summary : entry->reason);
    ls_log_replace_control_characters(text);
    print_row(entry->name, text); // a name has letters, digits and dashes
}

static enum ls_status list_plugins(const struct list *list, const char *plugin_path)
{
    struct ls_loader *loader = NULL;
    struct ls_plugin_entry *entries = NULL;
    size_t count = 0;
    enum ls_status status = ls_loader_create(plugin_path, &loader);
    if (!status)
        status = ls_loader_list(loader, &entries, &count);
    for (size_t kind = 0; kind < 2 && list->kinds[kind]; kind++)
        for (size_t i = 0; i < count; i++)
            if (entries[i].kind == list->kinds[kind])
                print_plugin(list, &entries[i]);
    ls_plugin_entries_destroy(entries, count);
    ls_loader_destroy(loader);
    return status;
}

static enum ls_status refuse(const char *word)
{
    const char *names[LISTS + 1] = {NULL};
    char all[256] = "";
    for (size_t i = 0, used = 0; i < LISTS; i++) {
        names[i] = lists[i].name;
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = ls_nearest(word, names);
    ls_error("list", "there is no list of '%s'%s%s%s; there are: %s", word,
             nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "", all);
    return LS_USAGE;
}

static enum ls_status run(const struct arguments *arguments)
{
    const char *word = arguments->operand_count ? arguments->operands[0] : NULL;
    const char *plugin_path = arguments_text(arguments, "plugin-path");
    size_t i = 0;
    for (i = 0; !word && i < LISTS; i++)
        printf("lockstep list %-12s names %s\n", lists[i].name, lists[i].where);
    if (!word)
        return LS_OK;
    while (i < LISTS && strcmp(lists[i].name, word) != 0)
        i++;
    if (i == LISTS)
        return refuse(word);
    enum ls_status status = lists[i].print ? lists[i].print() : LS_OK;
    if (!status && lists[i].kinds[0])
        status = list_plugins(&lists[i], plugin_path);
    return status;
}

const struct command list_command = {
    .name = "list",
    .operands = "[LIST]",
    .summary = "lists the names of models, datasets, losses, strategies and others",
    .help = help,
    .most_operands = 1,
    .arguments = table,
    .run = run,
};
