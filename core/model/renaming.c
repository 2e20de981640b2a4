// SPDX-License-Identifier: Apache-2.0
#include "core/model/renaming.h"

#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Of "dense_12/kernel": "dense_12", its kind "dense", and 12; of "dense/kernel" 0.
struct layer {
    const char *name;
    size_t length, kind; // bytes
    uint64_t number;
};

struct layers {
    struct layer *list; // by kinds, each by its numbers
    size_t count;
};

struct ls_renaming {
    struct layers own, saved; // as many of each kind of the model
};

static struct layer layer_of(const char *name)
{
    struct layer layer = {.name = name, .length = strcspn(name, "/")};
    size_t digits = layer.length;
    while (digits && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    const bool numbered = digits > 1 && digits < layer.length && name[digits - 1] == '_' &&
                          name[digits] != '0' && layer.length - digits < 10;
    layer.kind = numbered ? digits - 1 : layer.length;
    layer.number = numbered ? strtoull(name + digits, NULL, 10) : 0;
    return layer;
}

static int compare_kinds(const struct layer *a, const struct layer *b)
{
    const int order = strncmp(a->name, b->name, a->kind < b->kind ? a->kind : b->kind);
    return order ? order : a->kind < b->kind ? -1 : a->kind > b->kind;
}

static int compare_layers(const void *a, const void *b)
{
    const struct layer *one = a, *other = b;
    const int order = compare_kinds(one, other);
    return order ? order : one->number < other->number ? -1 : one->number > other->number;
}

// Each layer once.
static void sort_layers(struct layers *layers)
{
    size_t count = 0;
    qsort(layers->list, layers->count, sizeof(*layers->list), compare_layers);
    for (size_t i = 0; i < layers->count; i++)
        if (i == 0 || compare_layers(&layers->list[i], &layers->list[count - 1]))
            layers->list[count++] = layers->list[i];
    layers->count = count;
}

static size_t count_kind(const struct layers *layers, const struct layer *of, size_t *first)
{
    size_t count = 0;
    for (size_t i = 0; i < layers->count; i++)
        if (compare_kinds(&layers->list[i], of) == 0 && count++ == 0)
            *first = i;
    return count;
}

static bool is_renamed(const struct ls_renaming *renaming)
{
    bool differs = false;
    for (size_t i = 0; i < renaming->own.count; i++) {
        const struct layer *layer = &renaming->own.list[i];
        size_t first;
        if (count_kind(&renaming->own, layer, &first) !=
            count_kind(&renaming->saved, layer, &first))
            return false;
        differs = differs || !bsearch(layer, renaming->saved.list, renaming->saved.count,
                                      sizeof(*layer), compare_layers);
    }
    return differs;
}

enum ls_status ls_renaming_create(const struct ls_model *model, const char *path,
                                  const struct ls_safetensors *file, struct ls_renaming **out)
{
    const struct ls_graph *graph = model->graph;
    const size_t saved = ls_safetensors_count(file);
    struct ls_renaming *renaming = calloc(1, sizeof(*renaming));
    char text[96];
    *out = NULL;
    if (!renaming)
        return LS_OUT_OF_MEMORY;
    renaming->own.list = calloc((size_t)graph->parameter_count + 1, sizeof(struct layer));
    renaming->saved.list = calloc(saved + 1, sizeof(struct layer));
    if (!renaming->own.list || !renaming->saved.list) {
        ls_renaming_destroy(renaming);
        return LS_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (!graph->parameters[i]->constant)
            renaming->own.list[renaming->own.count++] = layer_of(graph->parameters[i]->name);
    for (size_t i = 0; i < saved; i++)
        renaming->saved.list[renaming->saved.count++] = layer_of(ls_safetensors_get(file, i)->name);
    sort_layers(&renaming->own);
    sort_layers(&renaming->saved);
    if (!is_renamed(renaming)) {
        ls_renaming_destroy(renaming);
        return LS_OK;
    }
    ls_info("weights",
            "'%s': its layers are numbered otherwise, and taken in their order: '%s' is '%.*s'",
            path, ls_renaming_apply(renaming, renaming->own.list[0].name, text, sizeof(text)),
            (int)strlen(renaming->own.list[0].name), renaming->own.list[0].name);
    *out = renaming;
    return LS_OK;
}

void ls_renaming_destroy(struct ls_renaming *renaming)
{
    if (!renaming)
        return;
    free(renaming->own.list);
    free(renaming->saved.list);
    free(renaming);
}

const char *ls_renaming_apply(const struct ls_renaming *renaming, const char *name, char *text,
                              size_t bytes)
{
    const struct layer layer = layer_of(name);
    const struct layer *own = renaming ? bsearch(&layer, renaming->own.list, renaming->own.count,
                                                 sizeof(layer), compare_layers)
                                       : NULL;
    size_t first = 0, there = 0;
    if (!own || !count_kind(&renaming->saved, own, &there))
        return name;
    count_kind(&renaming->own, own, &first);
    const struct layer *saved =
        &renaming->saved.list[there + (size_t)(own - renaming->own.list) - first];
    snprintf(text, bytes, "%.*s%s", (int)saved->length, saved->name, name + layer.length);
    return text;
}
