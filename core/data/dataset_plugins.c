// SPDX-License-Identifier: Apache-2.0
// Datasets that are plugins: opened by name or file, their description checked, and their examples
// loaded by the threads that make examples.
#include "core/data/dataset_plugins.h"

#include "core/base/dtype.h"
#include "core/base/instance.h"
#include "core/base/log.h"
#include "core/data/data.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (INT64_C(1) << 36) // of a field of an example

struct ls_dataset_plugin {
    struct ls_dataset_kind kind; // the first member, so that it leads here
    struct ls_loader *loader;
    const struct ls_opened_plugin *plugin; // without the user's options
};

struct source {
    struct ls_dataset dataset;
    struct ls_host host; // the loader's, but that failures name the example
    const struct ls_opened_plugin *plugin;
    const struct ls_dataset_interface *interface;
    struct ls_dataset_state *state;
    bool opened;
};

// ---- Failures ----

static _Thread_local uint64_t example_now = UINT64_MAX; // that this thread loads

static int32_t fail(const struct ls_host *host, int32_t status, const char *message)
{
    const struct source *source =
        (const struct source *)((const char *)host - offsetof(struct source, host));
    const struct ls_host *loaders = source->plugin->host;
    char text[560];
    if (example_now == UINT64_MAX || !message || !*message)
        return loaders->fail(loaders, status, message);
    snprintf(text, sizeof(text), "example %" PRIu64 ": %s", example_now, message);
    return loaders->fail(loaders, status, text);
}

// ---- The description ----

LS_PRINTF(2, 3)
static enum ls_status refuse(const struct source *source, const char *format, ...)
{
    char text[320];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    ls_error(source->plugin->plugin->name, "plugin dataset-%s describes %s",
             source->plugin->plugin->name, text);
    return LS_BAD_INPUT;
}

static enum ls_status read_field(struct source *source, const struct ls_dataset_field *theirs)
{
    const uint32_t index = source->dataset.field_count;
    struct ls_field *field = &source->dataset.fields[index];
    const char *name = theirs->name ? theirs->name : "";
    int64_t elements = 1;
    *field = (struct ls_field){.role = (enum ls_field_role)theirs->role,
                               .dtype = theirs->dtype,
                               .ndims = theirs->ndims,
                               .divisor = theirs->divisor != 0 ? theirs->divisor : 1,
                               .class_count = theirs->classes};
    if (!*name || strlen(name) >= sizeof(field->name))
        return refuse(source, "field %u without a name of at most 31 bytes", index);
    memcpy(field->name, name, strlen(name) + 1);
    if (theirs->role > LS_FIELD_WEIGHT)
        return refuse(source, "field '%s' of the unknown role %u", name, theirs->role);
    if (theirs->dtype != LS_U8 && theirs->dtype != LS_I32 && theirs->dtype != LS_F32)
        return refuse(source, "field '%s' of type %s; expected uint8, int32 or float32", name,
                      ls_dtype_bytes(theirs->dtype) ? ls_dtype_name(theirs->dtype) : "?");
    if (theirs->ndims >= LS_MAX_DIMS) // the batch is one more
        return refuse(source, "field '%s' of %u dimensions; expected at most %d", name,
                      theirs->ndims, LS_MAX_DIMS - 1);
    for (uint32_t i = 0; i < theirs->ndims; i++) {
        const int64_t dim = theirs->dims[i];
        if (dim < 1 || dim > MOST_BYTES / 4 / elements)
            return refuse(source, "field '%s' with a dimension of %" PRId64, name, dim);
        field->dims[i] = dim;
        elements *= dim;
    }
    if (!(field->divisor > 0) || !isfinite(field->divisor))
        return refuse(source, "field '%s' with the divisor %g", name, (double)theirs->divisor);
    if (theirs->classes && (theirs->role != LS_FIELD_TARGET || theirs->dtype == LS_F32))
        return refuse(source, "field '%s' with classes; expected a target of uint8 or int32", name);
    if (theirs->role == LS_FIELD_WEIGHT && (elements != 1 || theirs->dtype != LS_F32))
        return refuse(source, "weights '%s'; expected one float32 an example", name);
    if (theirs->ndims == 0 && theirs->role == LS_FIELD_INPUT) { // inputs have rows
        field->ndims = 1;
        field->dims[0] = 1;
    }
    field->stride = (uint64_t)elements * ls_dtype_bytes(theirs->dtype);
    source->dataset.field_count++;
    return LS_OK;
}

static enum ls_status read_description(struct source *source,
                                       const struct ls_dataset_description *theirs)
{
    uint32_t counts[LS_FIELD_WEIGHT + 1] = {0};
    if (theirs->examples < 1 || theirs->examples >= UINT32_MAX)
        return refuse(source, "%" PRIu64 " examples; expected 1 to 4,294,967,294",
                      theirs->examples);
    if (theirs->field_count < 1 || theirs->field_count > LS_DATASET_FIELDS)
        return refuse(source, "%u fields; expected 1 to %d", theirs->field_count,
                      LS_DATASET_FIELDS);
    for (uint32_t i = 0; i < theirs->field_count; i++) {
        const enum ls_status status = read_field(source, &theirs->fields[i]);
        if (status)
            return status;
        counts[theirs->fields[i].role]++;
    }
    if (counts[LS_FIELD_INPUT] < 1 || counts[LS_FIELD_INPUT] > LS_MAX_INPUTS)
        return refuse(source, "%u inputs; expected 1 to %d", counts[LS_FIELD_INPUT], LS_MAX_INPUTS);
    if (counts[LS_FIELD_TARGET] > 1 || counts[LS_FIELD_WEIGHT] > 1)
        return refuse(source, "%u targets and %u weights; expected at most one of each",
                      counts[LS_FIELD_TARGET], counts[LS_FIELD_WEIGHT]);
    source->dataset.count = theirs->examples;
    source->dataset.identity = theirs->identity;
    return LS_OK;
}

// ---- Examples ----

static enum ls_status load(const struct ls_dataset *dataset, uint64_t epoch, uint64_t first,
                           uint64_t count, void *const *fields)
{
    const struct source *source = dataset->storage;
    (void)epoch;
    (void)count; // it is 1
    example_now = first;
    enum ls_status status = (enum ls_status)source->interface->load(source->state, first, fields);
    example_now = UINT64_MAX;
    for (uint32_t i = 0; !status && i < dataset->field_count; i++)
        if (dataset->fields[i].class_count)
            status = ls_field_check_labels(source->plugin->plugin->name, &dataset->fields[i], first,
                                           1, fields[i]);
    return status;
}

static void source_close(struct ls_dataset *dataset)
{
    struct source *source = dataset->storage;
    if (source->opened && source->interface->close)
        source->interface->close(source->state);
    ls_instance_destroy(source->state);
    free(source);
}

// The options that are the plugin's own; their texts are borrowed.
static enum ls_status open_instance(const struct ls_dataset_plugin *plugin,
                                    const struct ls_spec *spec, const struct ls_opened_plugin **out)
{
    struct ls_option_value *own = calloc(spec->option_count + 1, sizeof(*own));
    size_t count = 0;
    if (!own)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < spec->option_count; i++)
        if (ls_option_find(plugin->plugin->plugin->options, spec->options[i].name))
            own[count++] = spec->options[i];
    const enum ls_status status =
        ls_is_plugin_file(spec->name)
            ? ls_loader_open_file(plugin->loader, spec->name, LS_KIND_DATASET, own, count, out)
            : ls_loader_open(plugin->loader, LS_KIND_DATASET, spec->name, own, count, out);
    free(own);
    return status;
}

static struct source *create(const struct ls_opened_plugin *opened)
{
    struct source *source = calloc(1, sizeof(*source));
    if (!source)
        return NULL;
    source->plugin = opened;
    source->interface = opened->interface;
    source->host = *opened->host;
    source->host.fail = fail;
    source->dataset =
        (struct ls_dataset){.real = true, .load = load, .storage = source, .close = source_close};
    source->state = ls_instance_create(source->interface, source->interface->state_bytes);
    if (source->state)
        return source;
    free(source);
    return NULL;
}

static enum ls_status open_own(const struct ls_dataset_kind *kind, const struct ls_spec *spec,
                               enum ls_split split, struct ls_dataset **out)
{
    const struct ls_dataset_plugin *plugin = (const struct ls_dataset_plugin *)kind;
    const struct ls_opened_plugin *opened = NULL;
    struct ls_dataset_description description = {0};
    const char *cache = ls_spec_get(spec, "cache");
    enum ls_status status = open_instance(plugin, spec, &opened);
    struct source *source = status ? NULL : create(opened);
    if (!source)
        return status ? status : LS_OUT_OF_MEMORY;
    status = (enum ls_status)source->interface->open(
        &source->host, split == LS_TRAIN ? "train" : "test", source->state, &description);
    source->opened = !status;
    if (!status)
        status = read_description(source, &description);
    if (!status && !description.identity && cache && strcmp(cache, "memory") != 0) {
        ls_error("--dataset",
                 "%s: cache=%s: the plugin does not say when its examples change (identity), so a "
                 "file could be out of date; cache=memory keeps them for this run",
                 kind->name, cache);
        status = LS_USAGE;
    }
    if (status)
        source_close(&source->dataset);
    else
        *out = &source->dataset;
    return status;
}

// ---- The plugin ----

static enum ls_status open_plugin(struct ls_dataset_plugin *plugin, const char *name)
{
    const enum ls_status status =
        ls_is_plugin_file(name)
            ? ls_loader_open_file(plugin->loader, name, LS_KIND_DATASET, NULL, 0, &plugin->plugin)
            : ls_loader_open(plugin->loader, LS_KIND_DATASET, name, NULL, 0, &plugin->plugin);
    if (status)
        return status;
    const struct ls_plugin *descriptor = plugin->plugin->plugin;
    const struct ls_dataset_interface *interface = plugin->plugin->interface;
    plugin->kind = (struct ls_dataset_kind){.name = descriptor->name,
                                            .summary = descriptor->summary,
                                            .options = descriptor->options,
                                            .one_split = interface->one_split != 0,
                                            .open_own = open_own};
    return LS_OK;
}

enum ls_status ls_dataset_plugin_find(const struct ls_loader *like, const char *text,
                                      struct ls_dataset_plugin **out)
{
    struct ls_spec spec = {0};
    *out = NULL;
    enum ls_status status = ls_dataset_refuse_bare_path(text);
    if (!status)
        status = ls_spec_parse("--dataset", text, &spec);
    if (status || ls_dataset_is_known(spec.name)) {
        ls_spec_finish(&spec);
        return status;
    }
    struct ls_dataset_plugin *plugin = calloc(1, sizeof(*plugin));
    status = plugin ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = like ? ls_loader_create_like(like, &plugin->loader)
                      : ls_loader_create(NULL, &plugin->loader);
    const bool found = !status && (ls_is_plugin_file(spec.name) ||
                                   ls_loader_has(plugin->loader, LS_KIND_DATASET, spec.name));
    char own[160];
    if (!status && (!found || ls_is_plugin_file(spec.name)))
        status = ls_dataset_refuse_path(spec.name);
    if (!status && found)
        status = open_plugin(plugin, spec.name);
    if (!status && !found &&
        ls_loader_registered_text(plugin->loader, LS_KIND_DATASET, spec.name, own, sizeof(own))[0])
        status = ls_dataset_refuse_unknown(spec.name, own);
    if (status || !found)
        ls_dataset_plugin_close(plugin);
    else
        *out = plugin;
    ls_spec_finish(&spec);
    return status;
}

void ls_dataset_plugin_close(struct ls_dataset_plugin *plugin)
{
    if (!plugin)
        return;
    ls_loader_destroy(plugin->loader);
    free(plugin);
}

const struct ls_dataset_kind *ls_dataset_plugin_kind(const struct ls_dataset_plugin *plugin)
{
    return plugin ? &plugin->kind : NULL;
}
