// SPDX-License-Identifier: Apache-2.0
// lockstep simulate: how long collectives would take on a network that need not be here.
#include "tools/command.h"
#include "tools/number_list.h"
#include "tools/simulate/against.h"
#include "tools/simulate/check.h"
#include "tools/size_list.h"

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/schedule/schedule.h"
#include "tools/simulate/simulation.h"
#include "core/base/watchdog.h"
#include "core/loader/loader.h"
#include "tools/report/chart.h"
#include "core/report/report.h"
#include "tools/report/rows.h"
#include "core/run/networks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COLLECTIVES_MOST 16
#define STRAGGLERS_MOST 64
#define BYTES_MOST (UINT64_C(1) << 44)
#define LABEL_LETTERS 96

#define PROGRESS_TICKS 10

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to simulate"},
    {"world", "N[,N-N...]", "8",
     "numbers of ranks: 64, or 2-16,1024; with --against its rows of such worlds are taken, by "
     "default all",
     .first_day = true},
    {"bytes", "SIZE[,SIZE...]", "64M",
     "sizes of the whole buffer; K, M, G are KiB, MiB, GiB; with --against its rows of such sizes "
     "are taken, by default all",
     .first_day = true},
    {"operation", "NAME", "all_reduce",
     "all_reduce, reduce_scatter, all_gather, broadcast, reduce or all_to_all, whose sizes are "
     "rounded up to equal blocks",
     .first_day = true, .excludes = "against"},
    {"dtype", "NAME", "float32", "float32, float64, float16, bfloat16, int32, int64 or uint8"},
    {"root", "RANK", "0", "root of broadcast and reduce",
     .needs = "operation=broadcast operation=reduce"},

    {NULL, NULL, NULL, "The network"},
    {"network", "NAME|FILE.json", "flat",
     "flat, nvlink-ndr, a100-nvlink, h100-ndr, h100-efa, h200-efa, b200-efa, ethernet-100g, "
     "tpu-torus, tpu-torus-2d, internet, or a file of your own",
     .first_day = true},
    {"straggler", "RANK:FACTOR[,...]", NULL,
     "messages and reductions of this rank take FACTOR times as long"},
    {"jitter", "FRACTION", "0",
     "each message and reduction takes longer by a random fraction, at most this one"},
    {"seed", "N", "0", "seed of the jitter: the same seed gives the same times", .needs = "jitter"},
    {"deadline", "SECONDS", "60", "longest time for the collective to describe one rank"},

    {NULL, NULL, NULL, "Whether it is right"},
    {"against", "FILE.csv", NULL,
     "simulate what was measured, and say how far the simulated times are off"},
    {"in-place", NULL, NULL,
     "take times in place where a row has them, else out of place (without it, the other way "
     "round)",
     .needs = "against"},

    {NULL, NULL, NULL, "What comes out"},
    {"json", "FILE", NULL, "write the table as JSON", .writes = true},
    {"svg", "FILE", NULL, "draw a chart of time against size (or world)", .writes = true,
     .first_day = true},
    {"plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"},
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "A collective is named as for --strategy (ring, hierarchical-copy:groups=4), or is a FILE.so.\n"
    "The simulator follows its schedule message by message: a step begins when the earlier "
    "rounds'\n"
    "steps on the same ranges are done, a message when both sides are ready; messages share the\n"
    "bandwidth of ports and links. No time comes from a formula. The schedule is verified first,\n"
    "for the simulated world or the largest similar one that can be verified, and a wrong "
    "schedule\n"
    "is refused. docs/simulate.md describes the model, the network files, and what is left out.\n\n"
    "  time    until the last rank is done\n"
    "  algbw   bytes / time; busbw: algbw times 2 (n - 1) / n for all_reduce, as in nccl-tests\n"
    "  bound   least time of any schedule on this network, divided by the time: 100 % is perfect\n"
    "  busiest link, and the share of the time in which its full bandwidth was needed\n\n"
    "Examples:\n"
    "  lockstep simulate ring --world=4096 --bytes=64M\n"
    "  lockstep simulate ring tree halving-doubling --world=8,64,512 --bytes=4K,1M,64M "
    "--network=nvlink-ndr --svg=compare.svg\n"
    "  lockstep simulate ring --world=64 --network=internet --straggler=3:10 --jitter=0.2 "
    "--seed=7\n"
    "  lockstep simulate ring --network=my-cluster.json --against=measured.csv --svg=error.svg\n"
    "  lockstep simulate ./build/collective-my-reduce.so --world=256 --network=my-cluster.json "
    "--json=rows.json\n";

// From enum ls_collective_operation 1 on.
static const char *const operations[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                         "reduce",     "all_to_all",     NULL};

struct collective {
    const struct ls_opened_plugin *opened;
    char label[LABEL_LETTERS]; // as the user wrote it
};

struct settings {
    struct ls_loader *loader;
    struct collective collectives[COLLECTIVES_MOST];
    size_t collective_count;
    struct number_list worlds;
    struct size_list sizes;
    const char *operation_name, *dtype_name;
    uint32_t operation, dtype, root;
    struct ls_network network;
    struct ls_straggler stragglers[STRAGGLERS_MOST];
    size_t straggler_count;
    double jitter;
    uint64_t seed;
    const char *json, *svg;
    struct ls_rows *rows;
    uint64_t deadline_ns; // of describing a rank
    const char *against; // NULL: nothing was measured
    bool in_place;
    struct ls_measured measured;
    const struct collective
        *said_verified; // of which, in which world, was said how far it was verified
    uint32_t said_world;
    double *seconds; // by size, world and collective
    int name_width; // of the first column
    bool has_header;
};

static uint64_t world_at(const struct settings *settings, size_t i)
{
    return listed_number_get(&settings->worlds.numbers[i], 0);
}

// ---- Reading the command line ----

// The number of `name` in a list that begins at 1; LS_USAGE, logged.
static enum ls_status read_name(const struct arguments *arguments, const char *option,
                                const char *const *names, uint32_t *out)
{
    const char *name = arguments_text(arguments, option);
    for (uint32_t i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) {
            *out = i + 1;
            return LS_OK;
        }
    const char *nearest = ls_nearest(name, names);
    ls_error("usage", "--%s=%s: unknown %s; %s%s", option, name, option,
             nearest ? "did you mean " : "--help lists them", nearest ? nearest : "");
    return LS_USAGE;
}

// "3:10,7:1.5"
static enum ls_status read_stragglers(const struct arguments *arguments, struct settings *out)
{
    const char *part = arguments_text(arguments, "straggler");
    for (bool more = part != NULL; more;) {
        char one[64];
        int64_t rank;
        double factor;
        const size_t length = strcspn(part, ",");
        snprintf(one, sizeof(one), "%.*s", (int)(length < 63 ? length : 63), part);
        char *colon = strchr(one, ':');
        if (colon)
            *colon++ = '\0';
        if (!colon || length > 63 || out->straggler_count == STRAGGLERS_MOST ||
            !ls_parse_integer(one, &rank) || rank < 0 || rank >= LS_SIMULATED_WORLD_MOST ||
            !ls_parse_number(colon, &factor) || !(factor >= 1 && factor <= 1e6)) {
            ls_error("usage",
                     "--straggler=%s: expected RANK:FACTOR[,...], factors from 1 to 1000000",
                     arguments_text(arguments, "straggler"));
            return LS_USAGE;
        }
        out->stragglers[out->straggler_count++] = (struct ls_straggler){(uint32_t)rank, factor};
        more = part[length] == ',';
        part += length + more;
    }
    return LS_OK;
}

static enum ls_status read_jitter(const struct arguments *arguments, struct settings *out)
{
    const enum ls_status status = arguments_number(arguments, "jitter", &out->jitter);
    if (!status && !(out->jitter >= 0 && out->jitter <= 1000)) {
        ls_error("usage", "--jitter=%s: expected a share from 0 to 1000",
                 arguments_text(arguments, "jitter"));
        return LS_USAGE;
    }
    return status;
}

static enum ls_status check_sizes(const struct settings *settings)
{
    const uint64_t element_bytes = ls_dtype_bytes(settings->dtype);
    for (size_t i = 0; i < settings->sizes.count; i++)
        if (settings->sizes.bytes[i] % element_bytes) {
            ls_error("usage", "--bytes: %llu is not a multiple of the %llu bytes of a %s",
                     (unsigned long long)settings->sizes.bytes[i],
                     (unsigned long long)element_bytes, settings->dtype_name);
            return LS_USAGE;
        }
    for (size_t i = 0; i < settings->worlds.count; i++)
        if (settings->root >= world_at(settings, i)) {
            ls_error("usage", "--root=%u: a world of %llu has ranks 0 to %llu", settings->root,
                     (unsigned long long)world_at(settings, i),
                     (unsigned long long)world_at(settings, i) - 1);
            return LS_USAGE;
        }
    return LS_OK;
}

static enum ls_status read_settings(const struct arguments *arguments, struct settings *out)
{
    static const char *const dtypes[] = {"float32", "float64", "float16", "bfloat16",
                                         "int32",   "int64",   "uint8",   NULL};
    uint64_t root = 0, seconds = 0;
    if (arguments->operand_count == 0) {
        ls_error("usage", "the collective is missing: lockstep simulate ring --world=64");
        return LS_USAGE;
    }
    out->operation_name = arguments_text(arguments, "operation");
    out->dtype_name = arguments_text(arguments, "dtype");
    out->json = arguments_text(arguments, "json");
    out->svg = arguments_text(arguments, "svg");
    out->against = arguments_text(arguments, "against");
    out->in_place = arguments_given(arguments, "in-place");
    if (out->against && arguments->operand_count > 1) {
        ls_error("usage", "--against takes one collective, and %zu are named",
                 arguments->operand_count);
        return LS_USAGE;
    }
    enum ls_status status = LS_OK;
    if (!out->against || arguments_given(arguments, "world"))
        status = number_list_parse("--world", arguments_text(arguments, "world"), 1,
                                   LS_SIMULATED_WORLD_MOST, false, &out->worlds);
    if (!status && (!out->against || arguments_given(arguments, "bytes")))
        status = size_list_parse("bytes", arguments_text(arguments, "bytes"), 0, BYTES_MOST,
                                 &out->sizes);
    if (!status)
        status = read_name(arguments, "operation", operations, &out->operation);
    if (!status)
        status = read_name(arguments, "dtype", dtypes, &out->dtype);
    if (!status)
        status = arguments_count(arguments, "root", 0, LS_SIMULATED_WORLD_MOST - 1, &root);
    out->root = (uint32_t)root;
    if (!status)
        status = read_stragglers(arguments, out);
    if (!status)
        status = read_jitter(arguments, out);
    if (!status)
        status = arguments_count(arguments, "seed", 0, INT64_MAX, &out->seed);
    if (!status)
        status = arguments_count(arguments, "deadline", 1, 1000000, &seconds);
    out->deadline_ns = seconds * UINT64_C(1000000000);
    if (!status)
        status = check_sizes(out);
    if (!status && out->json)
        status = ls_report_check_path("--json", out->json);
    if (!status && out->svg)
        status = ls_report_check_path("--svg", out->svg);
    if (!status)
        status = ls_network_open("--network", arguments_text(arguments, "network"), LS_NETWORK_ELSE,
                                 &out->network);
    return status;
}

// ---- Collectives ----

static enum ls_status open_collective(struct settings *settings, const char *text,
                                      struct collective *out)
{
    const enum ls_status status =
        ls_loader_open_scheduled(settings->loader, "simulate", text, &out->opened);
    const char *options = strchr(text, ':');
    if (!status)
        snprintf(out->label, sizeof(out->label), "%s%s", out->opened->plugin->name,
                 options ? options : "");
    return status;
}

static enum ls_status check_collective(const struct settings *settings,
                                       const struct collective *collective)
{
    const struct ls_collective_interface *interface = collective->opened->interface;
    if (interface->dtypes && !(interface->dtypes & 1u << settings->dtype)) {
        ls_error("simulate", "%s does not do %s", collective->label, settings->dtype_name);
        return LS_USAGE;
    }
    for (size_t i = 0; i < settings->worlds.count; i++)
        if (interface->maximum_world && world_at(settings, i) > interface->maximum_world) {
            ls_error("simulate", "%s is for at most %u ranks, not %llu", collective->label,
                     interface->maximum_world, (unsigned long long)world_at(settings, i));
            return LS_USAGE;
        }
    return LS_OK;
}

static enum ls_status open_collectives(const struct arguments *arguments, struct settings *settings)
{
    enum ls_status status =
        ls_loader_create(arguments_text(arguments, "plugin-path"), &settings->loader);
    settings->name_width = 20;
    for (size_t i = 0; !status && i < arguments->operand_count; i++) {
        struct collective *collective = &settings->collectives[i];
        status = open_collective(settings, arguments->operands[i], collective);
        if (!status)
            status = check_collective(settings, collective);
        const int length = (int)strlen(collective->label);
        settings->name_width = length > settings->name_width ? length : settings->name_width;
        settings->collective_count++;
    }
    return status;
}

// ---- While it takes long ----

// What is said of one cell of the table while it is simulated.
struct watch {
    struct ls_expectation expectation;
    struct ls_simulation_progress progress;
    uint32_t ticks;
};

// About every ten seconds a line.
static void say_progress(void *context)
{
    struct watch *watch = context;
    const struct ls_simulation_progress *progress = &watch->progress;
    const uint64_t steps = __atomic_load_n(&progress->steps, __ATOMIC_RELAXED);
    const uint64_t done = __atomic_load_n(&progress->steps_done, __ATOMIC_RELAXED);
    const uint64_t described = __atomic_load_n(&progress->ranks_described, __ATOMIC_RELAXED);
    if (++watch->ticks % PROGRESS_TICKS)
        return;
    if (steps)
        ls_info("simulate", "%s, %u ranks: %.1f of %.1f million steps followed",
                watch->expectation.name, watch->expectation.world, (double)done * 1e-6,
                (double)steps * 1e-6);
    else if (described)
        ls_info("simulate", "%s, %u ranks: %llu of them described", watch->expectation.name,
                watch->expectation.world, (unsigned long long)described);
    else
        ls_info("simulate", "%s, %u ranks: being verified", watch->expectation.name,
                watch->expectation.world);
}

// Once for each world of each collective.
static void say_verified(struct settings *settings, const struct collective *collective,
                         uint32_t world, uint32_t verified_world)
{
    if (verified_world == world ||
        (settings->said_verified == collective && settings->said_world == world))
        return;
    settings->said_verified = collective;
    settings->said_world = world;
    if (verified_world)
        ls_info("simulate", "%s, %u ranks: verified up to %u ranks; more take too long to verify",
                collective->label, world, verified_world);
    else
        ls_info("simulate", "%s, %u ranks: not verified; it takes too long", collective->label,
                world);
}

static enum ls_status check_and_simulate(struct settings *settings,
                                         const struct collective *collective,
                                         const struct ls_simulation *simulation,
                                         uint32_t *verified_world, struct ls_simulation_result *out)
{
    enum ls_status status = ls_simulation_fits(simulation);
    if (!status)
        status =
            simulate_check(simulation, collective->label, collective->opened->text, verified_world);
    if (!status && *verified_world)
        say_verified(settings, collective, simulation->world, *verified_world);
    if (!status)
        status = ls_simulate(simulation, out);
    if (!status)
        say_verified(settings, collective, simulation->world, *verified_world);
    return status;
}

static enum ls_status simulate_watched(struct settings *settings,
                                       const struct collective *collective,
                                       struct ls_simulation *simulation, uint32_t *verified_world,
                                       struct ls_simulation_result *out)
{
    struct watch watch = {.expectation = {.scope = "simulate",
                                          .name = simulation->name,
                                          .world = simulation->world,
                                          .deadline_ns = settings->deadline_ns,
                                          .status = LS_FAILED,
                                          .tick = say_progress,
                                          .context = &watch}};
    enum ls_status status = ls_expectation_start(&watch.expectation);
    if (status)
        return status;
    ls_expectation_enter(&watch.expectation);
    simulation->progress = &watch.progress;
    status = check_and_simulate(settings, collective, simulation, verified_world, out);
    ls_expectation_leave(&watch.expectation);
    ls_expectation_stop(&watch.expectation);
    return status;
}

// ---- The table ----

static void print_header(struct settings *settings)
{
    if (settings->has_header)
        return;
    settings->has_header = true;
    printf("%s of %s on network %s\n\n", settings->operation_name, settings->dtype_name,
           settings->network.name);
    printf("%-*s %8s %10s %12s %11s %11s %7s  %s\n", settings->name_width, "collective", "world",
           "bytes", "time", "algbw GB/s", "busbw GB/s", "bound", "busiest link");
}

static void write_row(struct settings *settings, const struct collective *collective,
                      const struct ls_simulation *simulation, uint64_t bytes,
                      uint32_t verified_world, const struct ls_simulation_result *result)
{
    const double seconds = result->seconds;
    const double algbw = seconds > 0 ? (double)bytes / seconds / 1e9 : 0;
    const double busbw = algbw * ls_bus_factor(simulation->operation, simulation->world);
    const double share = seconds > 0 ? result->bound_seconds / seconds : 1;
    char size[32], time[32], busiest[96] = "-";
    if (*result->busiest)
        snprintf(busiest, sizeof(busiest), "%s, %.0f %%", result->busiest,
                 100 * result->busiest_share);
    print_header(settings);
    printf("%-*s %8u %10s %12s %11.3f %11.3f %5.1f %%  %s\n", settings->name_width,
           collective->label, simulation->world, size_text(bytes, size, sizeof(size)),
           ls_time_text(seconds, time, sizeof(time)), algbw, busbw, 100 * share, busiest);
    fflush(stdout);

    struct ls_rows *rows = settings->rows;
    ls_rows_begin(rows);
    ls_rows_text(rows, "collective", collective->label);
    ls_rows_text(rows, "operation", settings->operation_name);
    ls_rows_text(rows, "dtype", settings->dtype_name);
    ls_rows_text(rows, "network", settings->network.name);
    ls_rows_count(rows, "world", simulation->world);
    ls_rows_count(rows, "bytes", bytes);
    ls_rows_number(rows, "seconds", seconds);
    ls_rows_number(rows, "algbw_gb_s", algbw);
    ls_rows_number(rows, "busbw_gb_s", busbw);
    ls_rows_number(rows, "bound_seconds", result->bound_seconds);
    ls_rows_number(rows, "bound_share", share);
    ls_rows_text(rows, "busiest_link", *result->busiest ? result->busiest : NULL);
    ls_rows_number(rows, "busiest_share", result->busiest_share);
    ls_rows_count(rows, "verified_world", verified_world);
    ls_rows_count(rows, "rounds", result->rounds);
    ls_rows_count(rows, "messages", result->messages);
    ls_rows_count(rows, "sent_bytes", result->sent_bytes);
    ls_rows_text(rows, "rings", result->rings);
}

// Where the time of one cell of the table is kept.
static size_t cell(const struct settings *settings, size_t collective, size_t world, size_t size)
{
    return (collective * settings->worlds.count + world) * settings->sizes.count + size;
}

static struct ls_simulation simulation_of(const struct settings *settings,
                                          const struct collective *collective, uint32_t operation,
                                          uint32_t world, uint64_t bytes)
{
    const uint64_t element_bytes = ls_dtype_bytes(settings->dtype);
    const uint64_t count = ls_collective_whole_count(operation, bytes / element_bytes, world);
    return (struct ls_simulation){
        .collective = collective->opened->interface,
        .name = collective->opened->plugin->name,
        .host = collective->opened->host,
        .network = &settings->network,
        .operation = operation,
        .world = world,
        .root = settings->root,
        .element_bytes = (uint32_t)element_bytes,
        .count = count,
        .stragglers = settings->stragglers,
        .straggler_count = settings->straggler_count,
        .jitter = settings->jitter,
        .seed = settings->seed,
    };
}

static enum ls_status simulate_one(struct settings *settings, size_t c, size_t w, size_t s)
{
    const struct collective *collective = &settings->collectives[c];
    const uint64_t bytes = settings->sizes.bytes[s];
    struct ls_simulation_result result;
    struct ls_simulation simulation = simulation_of(settings, collective, settings->operation,
                                                    (uint32_t)world_at(settings, w), bytes);
    uint32_t verified_world = 0;
    simulation.rings = settings->json != NULL;
    const enum ls_status status =
        simulate_watched(settings, collective, &simulation, &verified_world, &result);
    if (status)
        return status;
    settings->seconds[cell(settings, c, w, s)] = result.seconds;
    write_row(settings, collective, &simulation, simulation.count * simulation.element_bytes,
              verified_world, &result);
    free(result.rings);
    return LS_OK;
}

// Whether a size before it became, rounded up to equal blocks, the same: then so is the time.
static bool is_repeated(struct settings *settings, size_t c, size_t w, size_t s)
{
    const uint64_t element_bytes = ls_dtype_bytes(settings->dtype);
    const uint32_t operation = settings->operation, world = (uint32_t)world_at(settings, w);
    const uint64_t *bytes = settings->sizes.bytes;
    for (size_t i = 0; operation == LS_ALL_TO_ALL && i < s; i++) {
        if (ls_collective_whole_count(operation, bytes[i] / element_bytes, world) !=
            ls_collective_whole_count(operation, bytes[s] / element_bytes, world))
            continue;
        settings->seconds[cell(settings, c, w, s)] = settings->seconds[cell(settings, c, w, i)];
        return true;
    }
    return false;
}

static enum ls_status simulate_all(struct settings *settings)
{
    const size_t cells =
        settings->collective_count * settings->worlds.count * settings->sizes.count;
    settings->seconds = calloc(cells, sizeof(double));
    if (!settings->seconds)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = LS_OK;
    for (size_t w = 0; !status && w < settings->worlds.count; w++)
        for (size_t s = 0; !status && s < settings->sizes.count; s++)
            for (size_t c = 0; !status && c < settings->collective_count; c++)
                status = is_repeated(settings, c, w, s) ? LS_OK : simulate_one(settings, c, w, s);
    return status;
}

// ---- Against measurements ----

// Whether --world and --bytes, where they are given, choose the row.
static bool is_chosen(const struct settings *settings, const struct ls_measured_row *row)
{
    bool world = settings->worlds.count == 0, size = settings->sizes.count == 0;
    for (size_t i = 0; i < settings->worlds.count; i++)
        world = world || world_at(settings, i) == row->ranks;
    for (size_t i = 0; i < settings->sizes.count; i++)
        size = size || settings->sizes.bytes[i] == row->bytes;
    return world && size;
}

static uint32_t operation_of(const struct ls_measured_row *row)
{
    uint32_t operation = 0;
    while (operations[operation] && strcmp(operations[operation], row->operation) != 0)
        operation++;
    return operations[operation] ? operation + 1 : 0;
}

// Whether the row cannot be simulated: `text` says why.
static bool find_problem(const struct settings *settings, const struct ls_measured_row *row,
                         char *text, size_t room)
{
    const struct collective *collective = &settings->collectives[0];
    const struct ls_collective_interface *interface = collective->opened->interface;
    const uint32_t own = interface->maximum_world;
    const uint32_t most = own && own < LS_SIMULATED_WORLD_MOST ? own : LS_SIMULATED_WORLD_MOST;
    const uint64_t element_bytes = ls_dtype_bytes(settings->dtype);
    const uint64_t count = row->bytes / element_bytes;
    const uint32_t operation = operation_of(row);
    if (!operation)
        snprintf(text, room, "there is no operation '%s'", row->operation);
    else if (row->ranks > most)
        snprintf(text, room, "%s is for at most %u ranks, not %u", collective->label, most,
                 row->ranks);
    else if (row->bytes % element_bytes)
        snprintf(text, room, "%llu bytes are no whole number of elements of %llu bytes",
                 (unsigned long long)row->bytes, (unsigned long long)element_bytes);
    else if (ls_collective_whole_count(operation, count, row->ranks) != count)
        snprintf(text, room, "%llu elements are no equal blocks for %u ranks, as all_to_all needs",
                 (unsigned long long)count, row->ranks);
    else
        return ls_against_misfits(&settings->network, row, text, room);
    return true;
}

// All rows that count, before the first takes its time.
static enum ls_status check_rows(const struct settings *settings)
{
    char text[256];
    for (size_t i = 0; i < settings->measured.count; i++) {
        const struct ls_measured_row *row = &settings->measured.rows[i];
        if (!is_chosen(settings, row) || *row->left_out ||
            !find_problem(settings, row, text, sizeof(text)))
            continue;
        ls_error("--against", "%s:%u: %s", settings->against, row->line, text);
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

static enum ls_status simulate_row(struct settings *settings, struct ls_against *against,
                                   const struct ls_measured_row *row)
{
    const struct collective *collective = &settings->collectives[0];
    uint32_t verified_world = 0;
    char text[256], name[512];
    struct ls_simulation_result result;
    if (find_problem(settings, row, text, sizeof(text))) { // of one that is left out
        ls_against_add(against, row, NULL, 0, settings->rows);
        return LS_OK;
    }
    struct ls_simulation simulation =
        simulation_of(settings, collective, operation_of(row), row->ranks, row->bytes);
    snprintf(name, sizeof(name), "%s:%u: %s", settings->against, row->line, simulation.name);
    simulation.name = name;
    const enum ls_status status =
        simulate_watched(settings, collective, &simulation, &verified_world, &result);
    if (!status)
        ls_against_add(against, row, &result, verified_world, settings->rows);
    return status;
}

static enum ls_status simulate_measured(struct settings *settings)
{
    const struct collective *collective = &settings->collectives[0];
    struct ls_against *against = NULL;
    enum ls_status status =
        ls_measured_read(settings->against, settings->in_place, &settings->measured);
    if (!status)
        status = check_rows(settings);
    if (!status)
        status = ls_against_create(settings->against, collective->label, settings->network.name,
                                   settings->measured.count, &against);
    for (size_t i = 0; !status && i < settings->measured.count; i++)
        if (is_chosen(settings, &settings->measured.rows[i]))
            status = simulate_row(settings, against, &settings->measured.rows[i]);
    if (!status)
        status = ls_against_finish(against);
    if (!status && settings->svg)
        status = ls_against_draw(against, "--svg", settings->svg);
    ls_against_destroy(against);
    return status;
}

// ---- The chart ----

// One line for each collective, over sizes where there are several (then one for each world, too), else over worlds.
static enum ls_status write_chart(const struct settings *settings)
{
    const bool over_sizes = settings->sizes.count > 1;
    const size_t lines = settings->collective_count * (over_sizes ? settings->worlds.count : 1);
    const size_t points = over_sizes ? settings->sizes.count : settings->worlds.count;
    struct ls_chart_series *series = calloc(lines, sizeof(*series));
    double *x = calloc(points, sizeof(*x));
    char(*names)[LABEL_LETTERS + 32] = calloc(lines, sizeof(*names));
    char title[160], size[32];
    enum ls_status status = series && x && names ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < points; i++)
        x[i] = (double)(over_sizes ? settings->sizes.bytes[i] : world_at(settings, i));
    for (size_t i = 0; !status && i < lines; i++) {
        const size_t c = over_sizes ? i / settings->worlds.count : i;
        const size_t w = over_sizes ? i % settings->worlds.count : 0;
        snprintf(names[i], sizeof(names[i]), "%s", settings->collectives[c].label);
        if (over_sizes && settings->worlds.count > 1)
            snprintf(names[i], sizeof(names[i]), "%s, %llu ranks", settings->collectives[c].label,
                     (unsigned long long)world_at(settings, w));
        series[i] = (struct ls_chart_series){names[i], x,
                                             &settings->seconds[cell(settings, c, w, 0)], points};
    }
    if (over_sizes && settings->worlds.count == 1)
        snprintf(title, sizeof(title), "%s on %s, %llu ranks", settings->operation_name,
                 settings->network.name, (unsigned long long)world_at(settings, 0));
    else if (over_sizes)
        snprintf(title, sizeof(title), "%s on %s", settings->operation_name,
                 settings->network.name);
    else
        snprintf(title, sizeof(title), "%s of %s on %s", settings->operation_name,
                 size_text(settings->sizes.bytes[0], size, sizeof(size)), settings->network.name);
    const struct ls_chart chart = {
        .title = title,
        .x = {over_sizes ? "size of the buffer" : "ranks",
              over_sizes ? LS_CHART_BYTES : LS_CHART_COUNT, true},
        .y = {"time", LS_CHART_SECONDS, true},
        .series = series,
        .series_count = lines,
    };
    if (!status)
        status = ls_chart_write(&chart, "--svg", settings->svg);
    free(series);
    free(x);
    free(names);
    return status;
}

static enum ls_status run(const struct arguments *arguments)
{
    struct settings *settings = calloc(1, sizeof(*settings));
    if (!settings)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = read_settings(arguments, settings);
    if (!status)
        status = open_collectives(arguments, settings);
    if (!status)
        status = ls_rows_create(&settings->rows);
    if (!status) {
        status = settings->against ? simulate_measured(settings) : simulate_all(settings);
        // A schedule that is broken is a result, too.
        if (settings->json && (!status || status == LS_FAILED)) {
            const enum ls_status written =
                ls_rows_write(settings->rows, "--json", settings->json, "simulate", !status);
            status = status ? status : written;
        }
    }
    if (!status && settings->svg && !settings->against)
        status = write_chart(settings);
    ls_measured_finish(&settings->measured);
    ls_network_finish(&settings->network);
    ls_rows_destroy(settings->rows);
    ls_loader_destroy(settings->loader);
    number_list_finish(&settings->worlds);
    free(settings->seconds);
    free(settings);
    return status;
}

const struct command simulate_command = {
    .name = "simulate",
    .operands = "NAME[:option=value,...]|FILE.so ...",
    .summary = "predicts how long collectives take on thousands of ranks of a given network",
    .help = help,
    .most_operands = COLLECTIVES_MOST,
    .arguments = table,
    .run = run,
};
