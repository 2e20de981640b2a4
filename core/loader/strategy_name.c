// SPDX-License-Identifier: Apache-2.0
// What `--strategy=NAME[:option=value,...]` means: which strategy, collective and transport, and which
// option goes to which of them.
#include "core/loader/internal.h"

#include "core/base/log.h"
#include "core/plugin/collective.h"
#include "core/plugin/strategy.h"
#include "core/plugin/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "--strategy"

// What takes the place of a part that neither the user nor the setting names.
#define DEFAULT_STRATEGY "mirrored"
#define DEFAULT_COLLECTIVE "ring" // under a transport's name: auto:table=fixed
#define DEFAULT_TRANSPORT "local"
#define WORKERS_STRATEGY "multi-worker-mirrored" // in messages

// In the order in which names are looked up and options are routed.
enum { STRATEGY, COLLECTIVE, TRANSPORT, PARTS };

static const uint32_t part_kinds[PARTS] = {LS_KIND_STRATEGY, LS_KIND_COLLECTIVE, LS_KIND_TRANSPORT};

// Names of more than one part. Where no device is named, theirs is taken.
static const struct stands_for {
    const char *name, *strategy, *collective, *device;
} shorts[] = {
    {"tpu", "mirrored", "xla", "pjrt"},
};

struct part {
    const char *name; // borrowed
    const struct ls_module *module; // NULL: not part of it
    struct ls_option_value *options; // names and values borrowed
    size_t option_count;
};

struct resolution {
    struct ls_spec spec;
    struct part parts[PARTS];
    struct ls_strategy_setting setting;
    bool collective_by_transport; // a transport was named, and no collective
    bool transport_named;
};

static enum ls_status out_of_memory(void)
{
    ls_error(SCOPE, "out of memory");
    return LS_OUT_OF_MEMORY;
}

static const char *kind_text(int part)
{
    return ls_kind_text(part_kinds[part]);
}

// ---- Which parts ----

static const struct stands_for *find_short(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof(shorts) / sizeof(*shorts); i++)
        if (strlen(shorts[i].name) == length && strncmp(shorts[i].name, name, length) == 0)
            return &shorts[i];
    return NULL;
}

const char *ls_strategy_device(const char *text)
{
    const struct stands_for *found = find_short(text, strcspn(text, ":"));
    return found ? found->device : NULL;
}

// Finds out what the user's name is the name of.
static enum ls_status find_head(struct ls_loader *loader, struct resolution *resolution)
{
    const char *name = resolution->spec.name;
    const struct stands_for *found = find_short(name, strlen(name));
    uint32_t kinds = 0;
    if (found) {
        resolution->parts[STRATEGY].name = found->strategy;
        resolution->parts[COLLECTIVE].name = found->collective;
        return LS_OK;
    }
    for (int i = 0; i < PARTS; i++) {
        char *file = ls_search_find(loader, part_kinds[i], resolution->spec.name);
        kinds |= 1u << part_kinds[i];
        if (!file)
            continue;
        free(file);
        resolution->parts[i].name = resolution->spec.name;
        return LS_OK;
    }
    return ls_loader_report_unknown(loader, SCOPE, kinds, resolution->spec.name);
}

// The part that `collective=`, `transport=` or `strategy=` names; -1: another option.
static int selected_part(const struct ls_option_value *option)
{
    for (int i = 0; i < PARTS; i++)
        if (!strcmp(option->name, kind_text(i)))
            return i;
    return -1;
}

static enum ls_status select_parts(struct resolution *resolution)
{
    for (size_t i = 0; i < resolution->spec.option_count; i++) {
        const struct ls_option_value *option = &resolution->spec.options[i];
        const int part = selected_part(option);
        if (part < 0)
            continue;
        struct part *selected = &resolution->parts[part];
        const char *colon = strchr(option->value, ':');
        if (colon) {
            ls_error(SCOPE, "no %s is called '%s'; write %s=%.*s,%s", kind_text(part),
                     option->value, option->name, (int)(colon - option->value), option->value,
                     colon + 1);
            return LS_USAGE;
        }
        if (selected->name && strcmp(selected->name, option->value)) {
            ls_error(SCOPE, "%s is already the %s; %s=%s contradicts it", selected->name,
                     kind_text(part), option->name, option->value);
            return LS_USAGE;
        }
        selected->name = option->value;
    }
    return LS_OK;
}

static enum ls_status open_part(struct ls_loader *loader, struct resolution *resolution, int part,
                                const char *default_name)
{
    struct part *opened = &resolution->parts[part];
    if (!opened->name)
        opened->name = default_name;
    return ls_module_open_named(loader, SCOPE, part_kinds[part], opened->name, &opened->module);
}

// A native collective brings its own way between ranks.
static bool needs_transport(const struct resolution *resolution)
{
    const struct ls_strategy_interface *strategy = resolution->parts[STRATEGY].module->interface;
    const struct ls_module *collective = resolution->parts[COLLECTIVE].module;
    const struct ls_collective_interface *ops = collective ? collective->interface : NULL;
    return strategy->needs_transport ||
           (strategy->needs_collective && !(ops && !ops->build_schedule));
}

static enum ls_status refuse_unused(const struct resolution *resolution, int part)
{
    if (!resolution->parts[part].name)
        return LS_OK;
    if (part == TRANSPORT && resolution->parts[COLLECTIVE].module) {
        ls_error(SCOPE, "collective %s is native and uses no transport; remove transport %s",
                 resolution->parts[COLLECTIVE].name, resolution->parts[part].name);
        return LS_USAGE;
    }
    ls_error(SCOPE, "strategy %s uses no %s; remove %s %s", resolution->parts[STRATEGY].name,
             kind_text(part), kind_text(part), resolution->parts[part].name);
    return LS_USAGE;
}

// What keeps all replicas in one process has none in others.
static enum ls_status check_workers(const struct resolution *resolution)
{
    const struct ls_strategy_interface *strategy = resolution->parts[STRATEGY].module->interface;
    const uint32_t workers = resolution->setting.workers;
    if (workers < 2 || !strategy->all_here)
        return LS_OK;
    if (ls_strategy_device(resolution->spec.name)) {
        ls_error(SCOPE,
                 "strategy '%s' trains on the devices of one process, and this is one of %u "
                 "workers, which it does not connect yet; use --cluster=none to train alone",
                 resolution->spec.name, workers);
        return LS_USAGE;
    }
    ls_error(
        SCOPE,
        "strategy '%s' keeps all replicas in one process, and this is one of %u workers; %suse "
        "--strategy=" WORKERS_STRATEGY "[:collective=NAME], or --cluster=none to train alone",
        resolution->parts[STRATEGY].name, workers,
        strategy->serve ? "train with servers (lockstep launch --servers=N), " : "");
    return LS_USAGE;
}

static enum ls_status check_reach(const struct resolution *resolution)
{
    const struct ls_module *module = resolution->parts[TRANSPORT].module;
    const uint32_t workers = resolution->setting.workers;
    if (workers < 2 || !module ||
        ((const struct ls_transport_interface *)module->interface)->scope > LS_SCOPE_PROCESS)
        return LS_OK;
    ls_error(SCOPE,
             "transport '%s' connects the replicas of one process, and this is one of %u workers; "
             "use shared-memory on one machine, or ucx, or leave it out",
             resolution->parts[TRANSPORT].name, workers);
    return LS_USAGE;
}

static const char *named_or(const char *name, const char *otherwise)
{
    return name ? name : otherwise;
}

static enum ls_status open_parts(struct ls_loader *loader, struct resolution *resolution)
{
    const struct ls_strategy_setting *setting = &resolution->setting;
    enum ls_status status =
        open_part(loader, resolution, STRATEGY, named_or(setting->strategy, DEFAULT_STRATEGY));
    if (!status)
        status = check_workers(resolution);
    if (status)
        return status;
    const struct ls_strategy_interface *strategy = resolution->parts[STRATEGY].module->interface;
    resolution->transport_named = resolution->parts[TRANSPORT].name != NULL;
    resolution->collective_by_transport =
        resolution->parts[TRANSPORT].name == resolution->spec.name && strategy->needs_collective &&
        !resolution->parts[COLLECTIVE].name && !setting->collective;
    status = strategy->needs_collective
                 ? open_part(loader, resolution, COLLECTIVE,
                             resolution->collective_by_transport
                                 ? LS_AUTO
                                 : named_or(setting->collective, DEFAULT_COLLECTIVE))
                 : refuse_unused(resolution, COLLECTIVE);
    if (status)
        return status;
    status = needs_transport(resolution)
                 ? open_part(loader, resolution, TRANSPORT,
                             named_or(setting->transport, DEFAULT_TRANSPORT))
                 : refuse_unused(resolution, TRANSPORT);
    return status ? status : check_reach(resolution);
}

// ---- Which option goes where ----

static const struct ls_plugin_option *declared(const struct resolution *resolution, int part,
                                               const char *name)
{
    const struct ls_module *module = resolution->parts[part].module;
    return module ? ls_option_find(module->plugin->options, name) : NULL;
}

static size_t count_options(const struct ls_module *module)
{
    size_t count = 0;
    while (module && module->plugin->options && module->plugin->options[count].name)
        count++;
    return count;
}

// All names that an option may have here, ending with NULL; the caller frees the array. A part that the strategy has
// no place for cannot be named.
static const char **option_names(const struct resolution *resolution)
{
    size_t count = PARTS, next = 0;
    for (int i = 0; i < PARTS; i++)
        count += count_options(resolution->parts[i].module);
    const char **names = calloc(count + 1, sizeof(*names));
    for (int i = 0; names && i < PARTS; i++) {
        const struct ls_module *module = resolution->parts[i].module;
        if (module && i != STRATEGY)
            names[next++] = kind_text(i);
        for (size_t j = 0; j < count_options(module); j++)
            names[next++] = module->plugin->options[j].name;
    }
    return names;
}

static void write_unknown(FILE *text, const struct resolution *resolution, const char *name,
                          const char *const *names)
{
    fprintf(text, "no option %s in", name);
    for (int i = 0; i < PARTS; i++)
        if (resolution->parts[i].module)
            fprintf(text, "%s %s", i ? "," : "", resolution->parts[i].name);
    const char *nearest = ls_nearest(name, names);
    if (nearest)
        fprintf(text, "; did you mean %s?", nearest);
    if (!names[0])
        fputs("; there are none", text);
    for (size_t i = 0; names[i]; i++)
        fprintf(text, "%s %s", i ? "," : nearest ? " Available:" : "; available:", names[i]);
}

static enum ls_status refuse_unknown(const struct resolution *resolution, const char *name)
{
    const char **names = option_names(resolution);
    char *line = NULL;
    size_t bytes = 0;
    FILE *text = names ? open_memstream(&line, &bytes) : NULL;
    if (text) {
        write_unknown(text, resolution, name, names);
        fclose(text);
    }
    ls_error(SCOPE, "%s", line ? line : "out of memory");
    free(line);
    free(names);
    return LS_USAGE;
}

// Splits "collective.groups": the part that is named before the dot, and what follows it. -1: no such
// part is named.
static int named_part(const char *name, const char **rest)
{
    for (int i = 0; i < PARTS; i++) {
        const size_t length = strlen(kind_text(i));
        if (!strncmp(name, kind_text(i), length) && name[length] == '.') {
            *rest = name + length + 1;
            return i;
        }
    }
    *rest = name;
    return -1;
}

// The part that `option` is for; LS_USAGE when it is none's, or more than one's.
static enum ls_status owner_of(const struct resolution *resolution, const char *name, int *out,
                               const char **rest)
{
    const int named = named_part(name, rest);
    int owner = -1;
    for (int i = 0; i < PARTS; i++) {
        if ((named >= 0 && named != i) || !declared(resolution, i, *rest))
            continue;
        if (owner >= 0) {
            ls_error(SCOPE, "both the %s %s and the %s %s have an option %s; write %s.%s or %s.%s",
                     kind_text(owner), resolution->parts[owner].name, kind_text(i),
                     resolution->parts[i].name, name, kind_text(owner), name, kind_text(i), name);
            return LS_USAGE;
        }
        owner = i;
    }
    if (owner < 0) {
        const struct ls_module *collective = resolution->parts[COLLECTIVE].module;
        const enum ls_status status = ls_auto_check_option(SCOPE, collective, *rest);
        return status ? status : refuse_unknown(resolution, name);
    }
    *out = owner;
    return LS_OK;
}

static enum ls_status route(struct resolution *resolution, const struct ls_option_value *given)
{
    int owner = 0;
    const char *name = NULL;
    enum ls_status status = owner_of(resolution, given->name, &owner, &name);
    if (status)
        return status;
    struct part *part = &resolution->parts[owner];
    for (size_t i = 0; i < part->option_count; i++) {
        if (!strcmp(part->options[i].name, name)) {
            ls_error(SCOPE, "option %s is given twice to %s", name, part->name);
            return LS_USAGE;
        }
    }
    char scope[sizeof(SCOPE) + 2 * LS_LONGEST_NAME];
    snprintf(scope, sizeof(scope), SCOPE ": %s %s", kind_text(owner), part->name);
    status = ls_option_check(scope, declared(resolution, owner, name), given->value);
    if (status)
        return status;
    part->options[part->option_count++] = (struct ls_option_value){(char *)name, given->value};
    return LS_OK;
}

static bool has_option(const struct part *part, const char *name)
{
    for (size_t i = 0; i < part->option_count; i++)
        if (strcmp(part->options[i].name, name) == 0)
            return true;
    return false;
}

// What the command line says of the network is for a transport that asks.
static enum ls_status add_network(struct resolution *resolution)
{
    struct part *transport = &resolution->parts[TRANSPORT];
    const struct ls_plugin_option *option = declared(resolution, TRANSPORT, "network");
    const char *value = resolution->setting.network;
    if (!value || !option || has_option(transport, "network"))
        return LS_OK;
    const enum ls_status status = ls_option_check("--network", option, value);
    if (!status)
        transport->options[transport->option_count++] =
            (struct ls_option_value){(char *)"network", (char *)(uintptr_t)value};
    return status;
}

// A transport's name alone takes a table that is the same in every run, and measures nothing.
static void add_fixed_table(struct resolution *resolution)
{
    struct part *collective = &resolution->parts[COLLECTIVE];
    if (has_option(collective, "table"))
        return;
    collective->options[collective->option_count++] =
        (struct ls_option_value){(char *)"table", (char *)"fixed"};
}

static enum ls_status route_all(struct resolution *resolution)
{
    const struct ls_spec *spec = &resolution->spec;
    for (int i = 0; i < PARTS; i++) {
        resolution->parts[i].options = calloc(spec->option_count + 2, sizeof(*spec->options));
        if (!resolution->parts[i].options)
            return out_of_memory();
    }
    for (size_t i = 0; i < spec->option_count; i++) {
        const enum ls_status status =
            selected_part(&spec->options[i]) >= 0 ? LS_OK : route(resolution, &spec->options[i]);
        if (status)
            return status;
    }
    if (resolution->collective_by_transport)
        add_fixed_table(resolution);
    return add_network(resolution);
}

// ---- The answer ----

void ls_resolved_strategy_finish(struct ls_resolved_strategy *resolved)
{
    if (!resolved)
        return;
    for (size_t i = 0; i < resolved->option_count; i++) {
        free(resolved->options[i].name);
        free(resolved->options[i].value);
    }
    free(resolved->options);
    *resolved = (struct ls_resolved_strategy){0};
}

// Adds "kind.name" -> value to the answer, which has room for it.
static enum ls_status add_value(struct ls_resolved_strategy *resolved, const char *kind,
                                const char *name, const char *value)
{
    const size_t bytes = strlen(kind) + strlen(name) + 2;
    struct ls_option_value *option = &resolved->options[resolved->option_count++];
    option->name = malloc(bytes);
    option->value = strdup(value);
    if (!option->name || !option->value)
        return out_of_memory();
    snprintf(option->name, bytes, "%s.%s", kind, name);
    return LS_OK;
}

static enum ls_status add_values(struct ls_resolved_strategy *resolved,
                                 const struct ls_opened_plugin *const *opened)
{
    size_t count = 0;
    for (int i = 0; i < PARTS; i++)
        for (size_t j = 0;
             opened[i] && opened[i]->plugin->options && opened[i]->plugin->options[j].name; j++)
            count++;
    resolved->options = calloc(count + 1, sizeof(*resolved->options));
    if (!resolved->options)
        return out_of_memory();
    for (int i = 0; i < PARTS; i++) {
        const struct ls_plugin_option *option = opened[i] ? opened[i]->plugin->options : NULL;
        for (; option && option->name; option++) {
            const char *value = opened[i]->host->option(opened[i]->host, option->name);
            const enum ls_status status =
                value ? add_value(resolved, kind_text(i), option->name, value) : LS_OK;
            if (status)
                return status;
        }
    }
    return LS_OK;
}

static enum ls_status answer(struct ls_loader *loader, const struct resolution *resolution,
                             struct ls_resolved_strategy *out)
{
    const struct ls_opened_plugin *opened[PARTS] = {NULL};
    for (int i = 0; i < PARTS; i++) {
        const struct part *part = &resolution->parts[i];
        const enum ls_status status =
            part->module ? ls_plugin_host_create(loader, part->module, part->options,
                                                 part->option_count, &opened[i])
                         : LS_OK;
        if (status)
            return status;
    }
    struct ls_resolved_strategy resolved = {
        .strategy = opened[STRATEGY],
        .collective = opened[COLLECTIVE],
        .transport = opened[TRANSPORT],
        .transport_named = resolution->transport_named,
    };
    const enum ls_status status = add_values(&resolved, opened);
    if (status)
        ls_resolved_strategy_finish(&resolved);
    else
        *out = resolved;
    return status;
}

enum ls_status ls_loader_resolve_strategy(struct ls_loader *loader, const char *text,
                                          const struct ls_strategy_setting *setting,
                                          struct ls_resolved_strategy *out)
{
    struct resolution resolution = {.setting =
                                        setting ? *setting : (struct ls_strategy_setting){0}};
    enum ls_status status = ls_spec_parse(SCOPE, text, &resolution.spec);
    if (!status)
        status = find_head(loader, &resolution);
    if (!status)
        status = select_parts(&resolution);
    if (!status)
        status = open_parts(loader, &resolution);
    if (!status)
        status = route_all(&resolution);
    if (!status)
        status = answer(loader, &resolution, out);
    for (int i = 0; i < PARTS; i++)
        free(resolution.parts[i].options);
    ls_spec_finish(&resolution.spec);
    return status;
}
