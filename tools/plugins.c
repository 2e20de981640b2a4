// SPDX-License-Identifier: Apache-2.0
// lockstep plugins: what can be chosen on this machine; lockstep plugins NAME: one plugin's options and traits.
#include "tools/command.h"

#include "core/base/log.h"
#include "core/operation/operation.h"
#include "core/loader/loader.h"
#include "core/plugin/collective.h"
#include "core/plugin/dataset.h"
#include "core/plugin/device.h"
#include "core/plugin/layer.h"
#include "core/plugin/metric.h"
#include "core/plugin/strategy.h"
#include "core/plugin/transport.h"

#include <string.h>

#define ALL_KINDS                                                                                 \
    (1u << LS_KIND_DEVICE | 1u << LS_KIND_TRANSPORT | 1u << LS_KIND_COLLECTIVE |                  \
     1u << LS_KIND_STRATEGY | 1u << LS_KIND_CALLBACK | 1u << LS_KIND_LAYER | 1u << LS_KIND_LOSS | \
     1u << LS_KIND_METRIC | 1u << LS_KIND_DATASET | 1u << LS_KIND_FILTER)

static const struct argument table[] = {
    {"plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"},
    {NULL, NULL, NULL, NULL},
};

struct line {
    char text[512];
};

static const char help[] = "Examples:\n  lockstep plugins\n  lockstep plugins hierarchical-copy\n";

// Texts of a plugin, or of what it is built from, move no cursor. The text is cut to what one line has room for.
static const char *clean(const char *text, struct line *line)
{
    snprintf(line->text, sizeof(line->text), "%s", text ? text : "");
    ls_log_replace_control_characters(line->text);
    return line->text;
}

static void print_entry(const struct ls_plugin_entry *entry)
{
    struct line name, version, text;
    printf("%-11s %-20s %-8s %s\n", ls_kind_text(entry->kind) ? ls_kind_text(entry->kind) : "?",
           clean(entry->name, &name), clean(entry->version, &version),
           entry->available ? "available" : "not available");
    printf("%-11s   %s\n", "", clean(entry->available ? entry->summary : entry->reason, &text));
}

static enum ls_status list(const struct ls_plugin_entry *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        print_entry(&entries[i]);
    if (count == 0)
        puts("no plugins found; --plugin-path and LOCKSTEP_PLUGIN_PATH name directories to search");
    return LS_OK;
}

// Prints the options of a table, and returns how many there are. `before`: those that are printed.
static size_t print_options_of(const struct ls_plugin_option *options, size_t before)
{
    struct line type, value, text;
    size_t count = 0;
    for (; options && options[count].name; count++) {
        const struct ls_plugin_option *option = &options[count];
        printf("%-13s %s (%s%s%s): %s\n", before + count ? "" : "options:", option->name,
               clean(option->type ? option->type : "text", &type),
               option->default_value ? ", default " : "", clean(option->default_value, &value),
               clean(option->help, &text));
    }
    return count;
}

static void print_options(const struct ls_opened_plugin *opened)
{
    static const struct ls_plugin_option parts[] = {
        {"collective", "text", "ring", "the name of the one that reduces; takes its options, too"},
        {"transport", "text", NULL,
         "the name of the one between the ranks; takes its options, too"},
        {NULL, NULL, NULL, NULL},
    };
    const struct ls_plugin *plugin = opened->plugin;
    const struct ls_strategy_interface *strategy = opened->interface;
    size_t count = print_options_of(plugin->options, 0);
    if (plugin->kind == LS_KIND_STRATEGY && strategy->needs_collective)
        count += print_options_of(parts, count);
    else if (plugin->kind == LS_KIND_STRATEGY && strategy->needs_transport)
        count += print_options_of(&parts[1], count);
    if (!count)
        puts("options:      none");
}

static void print_names(const char *title, uint64_t mask, const char *const *names)
{
    printf("%-13s", title);
    for (size_t i = 0; names[i]; i++)
        if (mask >> (i + 1) & 1)
            printf(" %s", names[i]);
    putchar('\n');
}

static const char *const dtype_names[] = {"float32", "float64", "float16", "bfloat16",
                                          "int32",   "int64",   "uint8",   NULL};
static const char *const reduction_names[] = {"sum", "product", "min", "max", "mean", NULL};
static const char *const operation_names[] = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", NULL};
static const char *const memory_names[] = {"host", "cuda", "its own", NULL};

static void print_device(const struct ls_opened_plugin *opened)
{
    const struct ls_device_interface *ops = opened->interface;
    struct ls_device_info info = {.struct_size = sizeof(info)};
    const char *activations[LS_ACTIVATION_COUNT + 1] = {NULL};
    struct line hardware;
    for (uint32_t i = 0; i < LS_ACTIVATION_COUNT; i++)
        activations[i] = ls_activation_name(i);
    if (ops->describe(opened->host, &info) == LS_OK)
        printf("hardware:     %s, %u device%s\n", clean(info.hardware, &hardware),
               info.physical_count, info.physical_count == 1 ? "" : "s");
    print_names("memory:", UINT64_C(1) << ops->memory_kind, memory_names);
    printf("%-13s %s\n", "launches:", ops->blocking ? "on the calling thread" : "on a stream");
    uint32_t fused = 0, casts = 0;
    for (uint32_t i = 0; i < ops->pattern_count; i++) {
        char title[96];
        if (ops->patterns[i].producer == LS_OP_CONVERT)
            continue;
        snprintf(title, sizeof(title),
                 "%-13s %s + %s:", fused++ ? "" : "fuses:", ls_op_name(ops->patterns[i].producer),
                 ls_op_name(ops->patterns[i].consumer));
        print_names(title, (uint64_t)ops->patterns[i].activations << 1, activations);
    }
    for (uint32_t i = 0; i < ops->pattern_count; i++)
        if (ops->patterns[i].producer == LS_OP_CONVERT)
            printf("%-13s casts of %s\n",
                   casts++ ? "" : "takes:", ls_op_name(ops->patterns[i].consumer));
}

static const char *scope_name(uint32_t scope)
{
    static const char *const scopes[] = {"?", "threads of one process", "processes of one machine",
                                         "machines"};
    return scopes[scope < 4 ? scope : 0];
}

// A native collective: what, where and between whom.
static void print_library(const struct ls_opened_plugin *opened)
{
    const struct ls_collective_interface *ops = opened->interface;
    char text[128];
    ls_collective_about(opened, text, sizeof(text));
    struct line about;
    printf("%-13s %s\n", "runs:", text[0] ? clean(text, &about) : "itself");
    print_names("memory:", ops->memory_kinds, memory_names);
    printf("%-13s %s\n", "scope:", scope_name(ops->scope));
    printf("%-13s %s\n",
           "ranks:", ops->one_rank_a_device ? "one on a device" : "any number on a device");
}

static void print_collective(const struct ls_opened_plugin *opened)
{
    const struct ls_collective_interface *ops = opened->interface;
    print_names("operations:", ops->operations, operation_names);
    print_names("types:", ops->dtypes ? ops->dtypes : ~UINT64_C(0), dtype_names);
    print_names("reductions:", ops->reductions ? ops->reductions : ~UINT64_C(0), reduction_names);
    printf("%-13s %s\n", "result:",
           ops->deterministic ? "the same bits on all ranks and in every run"
                              : "may differ between ranks or runs");
    if (ops->maximum_world)
        printf("%-13s %u\n", "most ranks:", ops->maximum_world);
    if (!ops->build_schedule)
        print_library(opened);
}

static void print_transport(const struct ls_opened_plugin *opened)
{
    const struct ls_transport_interface *ops = opened->interface;
    printf("%-13s %s\n", "scope:", scope_name(ops->scope));
    print_names("memory:", ops->memory_kinds, memory_names);
}

static void print_strategy(const struct ls_opened_plugin *opened)
{
    const struct ls_strategy_interface *ops = opened->interface;
    printf("%-13s %s\n", "divisor:",
           ops->traits.divisor == LS_DIVISOR_GLOBAL ? "examples of the global batch"
                                                    : "the replica's own examples");
    printf("%-13s %s\n", "replicas:",
           ops->rounds ? "with weights of their own between rounds"
           : ops->traits.equality == LS_EQUAL_EVERY_STEP ? "equal after every step"
                                                         : "equal when synchronised");
    printf("%-13s %s\n", "collective:", ops->needs_collective ? "needed" : "none");
    if (ops->maximum_replicas)
        printf("%-13s %u\n", "most ranks:", ops->maximum_replicas);
}

static void print_own_part(const struct ls_opened_plugin *opened)
{
    const uint32_t kind = opened->plugin->kind;
    const struct ls_layer_interface *layer = opened->interface;
    const struct ls_loss_interface *loss = opened->interface;
    const struct ls_metric_interface *metric = opened->interface;
    const struct ls_dataset_interface *dataset = opened->interface;
    const uint32_t targets = kind == LS_KIND_METRIC ? metric->targets : loss->targets;
    if (kind == LS_KIND_LAYER)
        printf("%-13s %u to %u\n", "inputs:", layer->most_inputs ? layer->least_inputs : 1,
               layer->most_inputs ? layer->most_inputs : 1);
    else if (kind == LS_KIND_DATASET)
        printf("%-13s %s\n", "splits:", dataset->one_split ? "one" : "train, test");
    else
        printf("%-13s %s\n", "targets:", targets == LS_TARGETS_CLASSES ? "classes" : "numbers");
}

static void print_traits(const struct ls_opened_plugin *opened)
{
    if (ls_is_auto(opened))
        return; // those of whom it chooses
    switch (opened->plugin->kind) {
    case LS_KIND_DEVICE: print_device(opened); break;
    case LS_KIND_COLLECTIVE: print_collective(opened); break;
    case LS_KIND_TRANSPORT: print_transport(opened); break;
    case LS_KIND_STRATEGY: print_strategy(opened); break;
    case LS_KIND_CALLBACK:
    case LS_KIND_FILTER: break;
    default: print_own_part(opened); break;
    }
}

// A name may be taken by a plugin of each kind; all are shown.
static enum ls_status show_entry(struct ls_loader *loader, const struct ls_plugin_entry *entry)
{
    const struct ls_opened_plugin *opened = NULL;
    struct line name, version, text;
    if (!entry->available) {
        const char *kind = ls_kind_text(entry->kind);
        ls_error("plugins", "%s '%s' is not available: %s", kind ? kind : "plugin",
                 clean(entry->name, &name), clean(entry->reason, &text));
        return LS_UNAVAILABLE;
    }
    const enum ls_status status =
        ls_loader_open(loader, entry->kind, entry->name, NULL, 0, &opened);
    if (status)
        return status;
    printf("%s '%s' %s: %s\n", ls_kind_text(entry->kind), clean(entry->name, &name),
           clean(entry->version, &version), clean(entry->summary, &text));
    printf("%-13s %s\n", "file:", clean(entry->file, &text));
    printf("%-13s %s\n", "licence:", clean(opened->plugin->licence, &text));
    print_options(opened);
    print_traits(opened);
    return LS_OK;
}

static enum ls_status show(struct ls_loader *loader, const struct ls_plugin_entry *entries,
                           size_t count, const char *name)
{
    enum ls_status status = LS_UNAVAILABLE;
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(entries[i].name, name) != 0)
            continue;
        if (found)
            putchar('\n');
        found = true;
        status = show_entry(loader, &entries[i]);
    }
    if (found)
        return status;
    return ls_loader_report_unknown(loader, "plugins", ALL_KINDS, name);
}

static enum ls_status run(const struct arguments *arguments)
{
    struct ls_loader *loader = NULL;
    struct ls_plugin_entry *entries = NULL;
    size_t count = 0;
    enum ls_status status = ls_loader_create(arguments_text(arguments, "plugin-path"), &loader);
    if (!status)
        status = ls_loader_list(loader, &entries, &count);
    if (!status)
        status = arguments->operand_count ? show(loader, entries, count, arguments->operands[0])
                                          : list(entries, count);
    ls_plugin_entries_destroy(entries, count);
    ls_loader_destroy(loader);
    return status;
}

const struct command plugins_command = {
    .name = "plugins",
    .operands = "[NAME]",
    .summary = "lists the plugins of this machine, or one with its options and traits",
    .help = help,
    .most_operands = 1,
    .arguments = table,
    .run = run,
};
