// SPDX-License-Identifier: Apache-2.0
// Whether a plugin's descriptor and the table of its kind can be read and have the required calls.
// Tables of an older minor version are shorter than ours and those of a newer one longer: both are
// accepted, as long as they have what version 1.0 requires.
#include "core/loader/guard.h"
#include "core/loader/internal.h"

#include "core/plugin/callback.h"
#include "core/plugin/collective.h"
#include "core/plugin/dataset.h"
#include "core/plugin/device.h"
#include "core/plugin/filter.h"
#include "core/plugin/layer.h"
#include "core/plugin/metric.h"
#include "core/plugin/strategy.h"
#include "core/plugin/transport.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

// A function pointer of a table that must not be NULL.
struct required_call {
    const char *name;
    size_t offset;
};

#define CALL(table, member)                     \
    {                                           \
#member, offsetof(struct table, member) \
    }

static const struct required_call device_calls[] = {
    CALL(ls_device_interface, describe),
    CALL(ls_device_interface, open),
    CALL(ls_device_interface, close),
    {NULL, 0},
};

static const struct required_call memory_calls[] = {
    CALL(ls_device_memory, allocate),
    CALL(ls_device_memory, release),
    CALL(ls_device_memory, copy),
    CALL(ls_device_memory, zero),
    {NULL, 0},
};

static const struct required_call kernel_calls[] = {
    CALL(ls_device_kernels, prepare),
    CALL(ls_device_kernels, launch),
    CALL(ls_device_kernels, release),
    {NULL, 0},
};

static const struct required_call stream_calls[] = {
    CALL(ls_device_streams, open),
    CALL(ls_device_streams, close),
    CALL(ls_device_streams, native),
    CALL(ls_device_streams, event_open),
    CALL(ls_device_streams, event_close),
    CALL(ls_device_streams, event_record),
    CALL(ls_device_streams, event_wait),
    CALL(ls_device_streams, event_query),
    {NULL, 0},
};

static const struct required_call staging_calls[] = {
    CALL(ls_device_staging, allocate),
    CALL(ls_device_staging, release),
    CALL(ls_device_staging, copy_async),
    {NULL, 0},
};

static const struct required_call peer_calls[] = {
    CALL(ls_device_peers, reduce),
    CALL(ls_device_peers, can_access_peer),
    {NULL, 0},
};

static const struct required_call capture_calls[] = {
    CALL(ls_device_capture, begin),
    CALL(ls_device_capture, end),
    CALL(ls_device_capture, replay),
    CALL(ls_device_capture, release),
    {NULL, 0},
};

static const struct required_call choice_calls[] = {
    CALL(ls_device_choices, depend),
    CALL(ls_device_choices, give),
    CALL(ls_device_choices, take),
    {NULL, 0},
};

// The small tables that a device's table points to, and where our copy of each is.
static const struct small_table {
    const char *name;
    size_t pointer; // in struct ls_device_interface
    size_t copy; // in struct ls_device_tables
    size_t bytes;
    const struct required_call *calls;
    bool required;
} small_tables[] = {
#define SMALL(member, calls, required)                                                           \
    {                                                                                            \
#member, offsetof(struct ls_device_interface, member),                                   \
            offsetof(struct ls_device_tables, member), sizeof(struct ls_device_##member), calls, \
            required                                                                             \
    }
    SMALL(memory, memory_calls, true),   SMALL(kernels, kernel_calls, true),
    SMALL(streams, stream_calls, false), SMALL(staging, staging_calls, false),
    SMALL(peers, peer_calls, false),     SMALL(capture, capture_calls, false),
    SMALL(choices, choice_calls, false),
};
#define SMALL_TABLES (sizeof(small_tables) / sizeof(small_tables[0]))

// The first of the calls that the table lacks; NULL: none.
static const char *find_missing(const void *table, uint32_t bytes,
                                const struct required_call *calls)
{
    for (const struct required_call *call = calls; call->name; call++) {
        void (*function)(void) = NULL;
        if (bytes >= call->offset + sizeof(function))
            memcpy(&function, (const char *)table + call->offset, sizeof(function));
        if (!function)
            return call->name;
    }
    return NULL;
}

static uint32_t table_bytes(const void *table)
{
    uint32_t bytes;
    memcpy(&bytes, table, sizeof(bytes));
    return bytes;
}

// A pointer of the device's table; NULL where the plugin's is shorter.
static const void *small_table_of(const struct ls_device_interface *device,
                                  const struct small_table *small)
{
    const void *table = NULL;
    if (device->struct_size >= small->pointer + sizeof(table))
        memcpy(&table, (const char *)device + small->pointer, sizeof(table));
    return table;
}

static void link_tables(struct ls_device_tables *tables)
{
    for (size_t i = 0; i < SMALL_TABLES; i++) {
        char *copy = (char *)tables + small_tables[i].copy;
        const void *pointer = table_bytes(copy) ? copy : NULL;
        memcpy((char *)&tables->interface + small_tables[i].pointer, &pointer, sizeof(pointer));
    }
}

void ls_device_tables_copy(const struct ls_device_interface *theirs, struct ls_device_tables *out)
{
    const uint32_t bytes = theirs->struct_size;
    memset(out, 0, sizeof(*out));
    memcpy(&out->interface, theirs, bytes < sizeof(*theirs) ? bytes : sizeof(*theirs));
    if (bytes > sizeof(*theirs))
        out->interface.struct_size = sizeof(*theirs);
    for (size_t i = 0; i < SMALL_TABLES; i++) {
        const struct small_table *small = &small_tables[i];
        const void *table = small_table_of(theirs, small);
        if (!table)
            continue;
        const uint32_t whole = table_bytes(table),
                       kept = whole < small->bytes ? whole : (uint32_t)small->bytes;
        memcpy((char *)out + small->copy, table, kept);
        memcpy((char *)out + small->copy, &kept, sizeof(kept));
    }
    link_tables(out);
}

static const struct required_call transport_calls[] = {
    CALL(ls_transport_interface, open),       CALL(ls_transport_interface, close),
    CALL(ls_transport_interface, post),       CALL(ls_transport_interface, test),
    CALL(ls_transport_interface, wait_any),   CALL(ls_transport_interface, abort),
    CALL(ls_transport_interface, peer_state), {NULL, 0},
};

static const struct required_call collective_calls[] = {
    {NULL, 0}}; // check_collective() looks at them

static const struct required_call strategy_calls[] = {
    CALL(ls_strategy_interface, open),
    CALL(ls_strategy_interface, initialize_parameters),
    CALL(ls_strategy_interface, gradient_ready),
    CALL(ls_strategy_interface, end_step),
    {NULL, 0},
};

static const struct required_call callback_calls[] = {
    CALL(ls_callback_interface, open),
    {NULL, 0},
};

static const struct required_call filter_calls[] = {
    CALL(ls_filter_interface, plan),
    CALL(ls_filter_interface, run),
    {NULL, 0},
};

static const struct required_call layer_calls[] = {CALL(ls_layer_interface, build), {NULL, 0}};
static const struct required_call loss_calls[] = {CALL(ls_loss_interface, build), {NULL, 0}};
static const struct required_call metric_calls[] = {CALL(ls_metric_interface, build), {NULL, 0}};

static const struct required_call dataset_calls[] = {
    CALL(ls_dataset_interface, open),
    CALL(ls_dataset_interface, load),
    {NULL, 0},
};

// ---- Values of each kind that the core relies on ----

// What the host allocates for an instance.
#define MOST_STATE_BYTES (UINT64_C(1) << 30)

static bool check_state(uint64_t bytes, struct ls_reason *reason)
{
    if (bytes && bytes <= MOST_STATE_BYTES)
        return true;
    return ls_refuse(reason,
                     "says that an instance has %" PRIu64
                     " bytes of state (state_bytes); expected 1 to %" PRIu64,
                     bytes, MOST_STATE_BYTES);
}

static bool check_device(const void *interface, struct ls_reason *reason)
{
    const struct ls_device_interface *device = interface;
    for (size_t i = 0; i < SMALL_TABLES; i++) {
        const struct small_table *small = &small_tables[i];
        const void *table = small_table_of(device, small);
        if (!table && small->required)
            return ls_refuse(reason, "lacks the table %s, which every device has", small->name);
        const char *missing = table ? find_missing(table, table_bytes(table), small->calls) : NULL;
        if (missing)
            return ls_refuse(reason,
                             "lacks the required call %s of its table %s (which has %u bytes)",
                             missing, small->name, table_bytes(table));
    }
    if (device->memory_kind < LS_MEMORY_HOST || device->memory_kind > LS_MEMORY_OPAQUE)
        return ls_refuse(reason, "has memory of the unknown kind %u", device->memory_kind);
    if (device->pattern_count && !device->patterns)
        return ls_refuse(reason, "counts %u fusion patterns but has none", device->pattern_count);
    return check_state(device->state_bytes, reason);
}

static bool check_transport(const void *interface, struct ls_reason *reason)
{
    const struct ls_transport_interface *transport = interface;
    if (transport->scope < LS_SCOPE_PROCESS || transport->scope > LS_SCOPE_NETWORK)
        return ls_refuse(reason, "has the unknown scope %u", transport->scope);
    if (!transport->memory_kinds)
        return ls_refuse(reason, "serves no kind of memory");
    return check_state(transport->state_bytes, reason);
}

static bool check_collective(const void *interface, struct ls_reason *reason)
{
    const struct ls_collective_interface *collective = interface;
    const bool describes = LS_HAS(collective, build_schedule) && collective->build_schedule;
    const bool runs = LS_HAS(collective, abort) && collective->open && collective->close &&
                      collective->run && collective->poll && collective->abort;
    if (!describes && !runs)
        return ls_refuse(reason,
                         "neither builds a schedule (build_schedule) nor is native (open, close, "
                         "run, poll, abort); its table has %u bytes",
                         collective->struct_size);
    if (!(collective->operations & 1u << LS_ALL_REDUCE))
        return ls_refuse(reason, "does not offer all-reduce, which every collective must offer");
    const bool allocates = LS_HAS(collective, allocate) && collective->allocate;
    const bool releases = LS_HAS(collective, release) && collective->release;
    if (allocates != releases)
        return ls_refuse(reason, "has only one of the calls allocate and release");
    return !runs || check_state(collective->state_bytes, reason);
}

static bool check_strategy(const void *interface, struct ls_reason *reason)
{
    const struct ls_strategy_interface *strategy = interface;
    const struct ls_strategy_traits *traits = &strategy->traits;
    if (traits->divisor < LS_DIVISOR_GLOBAL || traits->divisor > LS_DIVISOR_SHARE)
        return ls_refuse(reason, "has the unknown divisor %u", traits->divisor);
    if (traits->equality != LS_EQUAL_EVERY_STEP && traits->equality != LS_EQUAL_AT_SYNCHRONISE)
        return ls_refuse(reason, "has the unknown equality %u", traits->equality);
    return check_state(strategy->state_bytes, reason);
}

static bool check_callback(const void *interface, struct ls_reason *reason)
{
    const struct ls_callback_interface *callback = interface;
    return check_state(callback->state_bytes, reason);
}

static bool check_layer(const void *interface, struct ls_reason *reason)
{
    const struct ls_layer_interface *layer = interface;
    if (layer->least_inputs <= layer->most_inputs)
        return true;
    return ls_refuse(reason, "takes at least %u tensors, but at most %u", layer->least_inputs,
                     layer->most_inputs);
}

static bool check_targets(uint32_t targets, struct ls_reason *reason)
{
    return targets <= LS_TARGETS_CLASSES ||
           ls_refuse(reason, "has targets of the unknown kind %u", targets);
}

static bool check_loss(const void *interface, struct ls_reason *reason)
{
    return check_targets(((const struct ls_loss_interface *)interface)->targets, reason);
}

static bool check_metric(const void *interface, struct ls_reason *reason)
{
    const struct ls_metric_interface *metric = interface;
    if (metric->sums > LS_METRIC_SUMS)
        return ls_refuse(reason, "has %u sums; expected at most %d", metric->sums, LS_METRIC_SUMS);
    return check_targets(metric->targets, reason);
}

static bool check_dataset(const void *interface, struct ls_reason *reason)
{
    const struct ls_dataset_interface *dataset = interface;
    return check_state(dataset->state_bytes, reason);
}

static bool check_filter(const void *interface, struct ls_reason *reason)
{
    (void)interface;
    (void)reason;
    return true;
}

struct kind_rules {
    size_t bytes; // of our table
    const struct required_call *calls;
    bool (*check)(const void *interface, struct ls_reason *reason);
};

static const struct kind_rules *rules_of(uint32_t kind)
{
    static const struct kind_rules rules[] = {
        [LS_KIND_DEVICE] = {sizeof(struct ls_device_tables), device_calls, check_device},
        [LS_KIND_TRANSPORT] = {sizeof(struct ls_transport_interface), transport_calls,
                               check_transport},
        [LS_KIND_COLLECTIVE] = {sizeof(struct ls_collective_interface), collective_calls,
                                check_collective},
        [LS_KIND_STRATEGY] = {sizeof(struct ls_strategy_interface), strategy_calls, check_strategy},
        [LS_KIND_CALLBACK] = {sizeof(struct ls_callback_interface), callback_calls, check_callback},
        [LS_KIND_LAYER] = {sizeof(struct ls_layer_interface), layer_calls, check_layer},
        [LS_KIND_LOSS] = {sizeof(struct ls_loss_interface), loss_calls, check_loss},
        [LS_KIND_METRIC] = {sizeof(struct ls_metric_interface), metric_calls, check_metric},
        [LS_KIND_DATASET] = {sizeof(struct ls_dataset_interface), dataset_calls, check_dataset},
        [LS_KIND_FILTER] = {sizeof(struct ls_filter_interface), filter_calls, check_filter},
    };
    return ls_kind_text(kind) ? &rules[kind] : NULL;
}

size_t ls_interface_bytes(uint32_t kind)
{
    return rules_of(kind)->bytes;
}

static bool check_interface(const struct ls_plugin *plugin, struct ls_reason *reason)
{
    const struct kind_rules *rules = rules_of(plugin->kind);
    if (!plugin->interface)
        return ls_refuse(reason, "has no interface table");
    const uint32_t bytes = table_bytes(plugin->interface);
    const char *missing = find_missing(plugin->interface, bytes, rules->calls);
    if (missing)
        return ls_refuse(reason, "lacks the required call %s of a %s (its table has %u bytes)",
                         missing, ls_kind_text(plugin->kind), bytes);
    return rules->check(plugin->interface, reason);
}

// ---- The descriptor ----

// Of the interface before 1.0.
#define MAGIC_BEFORE UINT64_C(0x504554534b434f4c)

static bool check_version(const struct ls_plugin *plugin, struct ls_reason *reason)
{
    if (plugin->magic == MAGIC_BEFORE)
        return ls_refuse(reason,
                         "was built for the plugin interface before 1.0: build it again with "
                         "the headers of this version");
    if (plugin->magic != LS_PLUGIN_MAGIC)
        return ls_refuse(reason, "is not a Lockstep plugin (wrong magic number)");
    if (plugin->abi_major != LS_PLUGIN_ABI_MAJOR)
        return ls_refuse(
            reason,
            "was built for plugin ABI %u, this Lockstep has ABI %u; build it again with "
            "the headers of this version",
            plugin->abi_major, (uint32_t)LS_PLUGIN_ABI_MAJOR);
    const size_t needed = offsetof(struct ls_plugin, interface) + sizeof(plugin->interface);
    if (plugin->struct_size < needed)
        return ls_refuse(reason, "has a descriptor of %u bytes where version 1.0 has %zu",
                         plugin->struct_size, needed);
    return true;
}

static bool check_texts(const struct ls_plugin *plugin, struct ls_reason *reason)
{
    const struct {
        const char *what, *text;
    } texts[] = {
        {"name", plugin->name},
        {"version", plugin->version},
        {"licence", plugin->licence},
        {"summary", plugin->summary},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (!texts[i].text || !*texts[i].text)
            return ls_refuse(reason, "has no %s in its descriptor", texts[i].what);
    return true;
}

static bool check_identity(const struct ls_plugin *plugin, const char *path,
                           struct ls_reason *reason)
{
    uint32_t kind;
    char name[LS_LONGEST_NAME + 1];
    if (!ls_kind_text(plugin->kind))
        return ls_refuse(reason, "is of the unknown kind %u", plugin->kind);
    if (!ls_name_is_valid(plugin->name))
        return ls_refuse(reason, "has a name that is not made of letters, digits, '-' and '_'");
    if (!ls_file_name_split(path, &kind, name) || kind != plugin->kind ||
        strcmp(name, plugin->name))
        return ls_refuse(reason, "says it is the %s %s; then its file must be called %s-%s.so",
                         ls_kind_text(plugin->kind), plugin->name, ls_kind_text(plugin->kind),
                         plugin->name);
    return true;
}

static bool is_option_name(const char *name)
{
    for (const char *letter = name; *letter; letter++)
        if (!isalnum((unsigned char)*letter) && *letter != '_')
            return false;
    return *name != '\0';
}

static bool is_option_type(const char *type)
{
    return type &&
           (!strcmp(type, "integer") || !strcmp(type, "number") || !strcmp(type, "boolean") ||
            !strcmp(type, "text") || !strncmp(type, "one of:", 7));
}

static bool check_options(const struct ls_plugin *plugin, struct ls_reason *reason)
{
    for (const struct ls_plugin_option *option = plugin->options; option && option->name;
         option++) {
        if (!is_option_name(option->name))
            return ls_refuse(reason,
                             "has an option whose name is not made of letters, digits and '_'");
        // A later minor version may have types that we do not know; their plugin checks them.
        if (!is_option_type(option->type) && plugin->abi_minor <= LS_PLUGIN_ABI_MINOR)
            return ls_refuse(reason, "has option %s of the unknown type '%s'", option->name,
                             option->type ? option->type : "(none)");
        if (ls_option_find(plugin->options, option->name) != option)
            return ls_refuse(reason, "declares option %s twice", option->name);
        if (option->default_value && !ls_option_fits(option, option->default_value))
            return ls_refuse(reason, "has option %s (%s) with the default '%s'", option->name,
                             option->type, option->default_value);
    }
    return true;
}

bool ls_tables_check(const struct ls_plugin *plugin, const char *path, struct ls_reason *reason)
{
    if (!plugin)
        return ls_refuse(reason, "has no descriptor: " LS_PLUGIN_ENTRY "() returned NULL");
    return check_version(plugin, reason) && check_texts(plugin, reason) &&
           check_identity(plugin, path, reason) && check_options(plugin, reason) &&
           check_interface(plugin, reason);
}
