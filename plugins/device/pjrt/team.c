// SPDX-License-Identifier: Apache-2.0
// Teams: devices of the client that run programs together.
#include "plugins/device/pjrt/together.h"
#include "plugins/device/pjrt/meeting.h"

struct pjrt_team {
    const struct ls_host *host;
    struct pjrt_meeting meeting;
    uint64_t deadline_ns;
    uint32_t count;
    struct ls_device **devices; // one a member
    uint32_t *numbers; // of theirs in the client
    // Of one execution, by member:
    struct PJRT_Buffer *const **arguments;
    struct PJRT_Buffer ***results;
};

// What a member comes with: a text, which is compiled, or a program; and what that is to run on, or
// nothing.
struct part {
    const struct hlo *text;
    struct PJRT_LoadedExecutable *program;
    struct PJRT_Buffer *const *arguments;
    struct PJRT_Buffer **results; // NULL: it does not run yet
    size_t argument_count;
};

uint32_t pjrt_team_count(const struct pjrt_team *team)
{
    return team->count;
}

struct ls_device *pjrt_team_device(const struct pjrt_team *team, uint32_t member)
{
    return team->devices[member];
}

// ---- All have come ----

// The line of a text that has its byte `at`.
static int line_at(const struct hlo *text, size_t at, const char **out)
{
    size_t first = at, end = at;
    while (first > 0 && text->text[first - 1] != '\n')
        first--;
    while (end < text->length && text->text[end] != '\n')
        end++;
    *out = text->text + first;
    return end - first < 100 ? (int)(end - first) : 100;
}

static void say_difference(const struct pjrt_team *team, uint32_t other, const struct hlo *first,
                           const struct hlo *text)
{
    char message[500];
    const char *ours, *theirs;
    size_t at = 0, line = 1;
    for (; at < first->length && at < text->length && first->text[at] == text->text[at]; at++)
        line += first->text[at] == '\n';
    const int length = line_at(first, at, &ours), other_length = line_at(text, at, &theirs);
    snprintf(
        message, sizeof(message),
        "the steps of replicas are not recorded, because those of replicas 0 and %u differ, in "
        "line %zu: '%.*s' and '%.*s'",
        other, line, length, ours, other_length, theirs);
    team->host->log(team->host, LS_LOG_WARN, message);
}

static bool is_same_text(const struct hlo *one, const struct hlo *other)
{
    return one->length == other->length && memcmp(one->text, other->text, one->length) == 0;
}

// That all want the same.
static int32_t compare(const struct pjrt_team *team, struct part *const *parts)
{
    const struct part *first = parts[0];
    for (uint32_t i = 1; i < team->count; i++) {
        const struct part *part = parts[i];
        const bool alike = !first->text == !part->text && !first->results == !part->results;
        if (alike &&
            (first->text ? is_same_text(first->text, part->text) : first->program == part->program))
            continue;
        if (!alike || first->results)
            return ls_host_fail(team->host, LS_FAILED,
                                "replicas 0 and %u do not run the same program together", i);
        say_difference(team, i, first->text, part->text);
        return LS_UNSUPPORTED;
    }
    return LS_OK;
}

static struct pjrt_caller caller_of(const struct pjrt_team *team)
{
    struct pjrt_caller caller = team->devices[0]->caller;
    caller.host = team->host;
    return caller;
}

// Compiles, runs, or both, for all.
static int32_t act(void *context, void *const *brought)
{
    const struct pjrt_team *team = context;
    struct part *const *parts = (struct part *const *)brought;
    const struct pjrt_caller caller = caller_of(team);
    int32_t status = compare(team, parts);
    struct part *first = parts[0];
    if (!status && first->text)
        status = pjrt_compile(&caller, "what replicas run together", first->text->text,
                              first->text->length, team->numbers, team->count, &first->program);
    for (uint32_t i = 0; i < team->count; i++) {
        parts[i]->program = first->program;
        team->arguments[i] = parts[i]->arguments;
        team->results[i] = parts[i]->results;
    }
    return status || !first->results
               ? status
               : pjrt_execute_together(&caller, "what replicas run together", first->program,
                                       team->numbers, team->count, team->arguments,
                                       first->argument_count, team->results);
}

static int32_t meet(struct pjrt_team *team, uint32_t member, struct part *part)
{
    char missing[200];
    const int32_t status = pjrt_meet(&team->meeting, member, part, team->deadline_ns, act, team);
    if (status != LS_PEER_LOST)
        return status;
    pjrt_meeting_missing(&team->meeting, missing, sizeof(missing));
    return ls_host_fail(
        team->host, LS_PEER_LOST,
        "rank %u waited %.1f s for rank %s: all ranks run a program together; raise "
        "--deadline if they are only slow",
        member, (double)team->deadline_ns * 1e-9, missing);
}

// ---- What members do together ----

int32_t pjrt_team_compile(struct pjrt_team *team, uint32_t member, const struct hlo *text,
                          struct PJRT_LoadedExecutable **out)
{
    struct part part = {.text = text};
    const int32_t status = meet(team, member, &part);
    if (!status)
        *out = part.program;
    return status;
}

int32_t pjrt_team_run(struct pjrt_team *team, uint32_t member, const struct hlo *text,
                      struct PJRT_Buffer *const *arguments, size_t argument_count,
                      struct PJRT_Buffer **results)
{
    struct part part = {
        .text = text, .arguments = arguments, .results = results, .argument_count = argument_count};
    return meet(team, member, &part);
}

int32_t pjrt_team_execute(struct pjrt_team *team, uint32_t member,
                          struct PJRT_LoadedExecutable *program,
                          struct PJRT_Buffer *const *arguments, size_t argument_count,
                          struct PJRT_Buffer **results)
{
    struct part part = {.program = program,
                        .arguments = arguments,
                        .results = results,
                        .argument_count = argument_count};
    return meet(team, member, &part);
}

// ---- One operation ----

// What `root` has: its bits, and zeros of the others, add up to them.
static struct hlo_value broadcast(struct hlo *h, uint32_t replicas, uint32_t root,
                                  struct hlo_value x)
{
    const uint32_t size = ls_dtype_bytes(x.type);
    const uint32_t type = size == 8 ? LS_I64 : size == 4 ? LS_I32 : LS_U8;
    const struct hlo_value bits = x.type == type ? x : hlo_bitcast(h, x, type, x.shape);
    const struct hlo_value own = hlo_replica(h);
    const struct hlo_value has =
        hlo_spread(h, hlo_compare(h, "EQ", own, hlo_bits(h, HLO_U32, own.shape, root)), x.shape);
    const struct hlo_value sum =
        hlo_all_reduce(h, "add", hlo_select(h, has, bits, hlo_like(h, bits, 0)), replicas);
    return x.type == type ? sum : hlo_bitcast(h, sum, x.type, x.shape);
}

struct hlo_value pjrt_team_emit(struct hlo *h, const struct pjrt_team *team,
                                const struct ls_collective_run *run, struct hlo_value x)
{
    static const char *const names[] = {
        [LS_SUM] = "add",     [LS_PRODUCT] = "multiply", [LS_MIN] = "minimum",
        [LS_MAX] = "maximum", [LS_MEAN] = "add",
    };
    if (team->count == 1)
        return x;
    if (run->operation == LS_BROADCAST)
        return broadcast(h, team->count, run->root, x);
    const struct hlo_value y = hlo_all_reduce(h, names[run->reduction], x, team->count);
    return run->reduction == LS_MEAN ? hlo_divide(h, y, hlo_like(h, y, team->count)) : y;
}

// ---- Life ----

void pjrt_team_close(struct pjrt_team *team)
{
    if (!team)
        return;
    pjrt_meeting_finish(&team->meeting);
    free(team->devices);
    free(team->numbers);
    free(team->arguments);
    free(team->results);
    free(team);
}

int32_t pjrt_team_open(const struct pjrt_team_config *config, struct pjrt_team **out)
{
    struct pjrt_team *team = calloc(1, sizeof(*team));
    if (config->count > PJRT_MOST_TOGETHER) {
        free(team);
        return ls_host_fail(config->host, LS_UNAVAILABLE,
                            "%u devices are too many for one program: at most %d", config->count,
                            PJRT_MOST_TOGETHER);
    }
    if (team) {
        *team = (struct pjrt_team){.host = config->host,
                                   .deadline_ns = config->deadline_ns,
                                   .count = config->count,
                                   .devices = calloc(config->count, sizeof(struct ls_device *)),
                                   .numbers = calloc(config->count, sizeof(uint32_t)),
                                   .arguments = calloc(config->count, sizeof(void *)),
                                   .results = calloc(config->count, sizeof(void *))};
    }
    if (!team || !team->devices || !team->numbers || !team->arguments || !team->results ||
        pjrt_meeting_init(&team->meeting, config->count)) {
        pjrt_team_close(team);
        return ls_host_fail(config->host, LS_OUT_OF_MEMORY, "no memory for a team of devices");
    }
    for (uint32_t i = 0; i < config->count; i++) {
        team->devices[i] = config->devices[i];
        team->numbers[i] = config->devices[i]->caller.device;
    }
    *out = team;
    return LS_OK;
}

int32_t pjrt_team_poll(struct pjrt_team *team)
{
    return pjrt_meeting_is_aborted(&team->meeting) ? LS_ABORTED : LS_OK;
}

void pjrt_team_abort(struct pjrt_team *team)
{
    pjrt_meeting_abort(&team->meeting);
}
