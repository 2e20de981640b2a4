// SPDX-License-Identifier: Apache-2.0
// Records what all ranks describe, checks each step by itself, and bounds their number.
#include "core/schedule/verify/internal.h"

#include "core/schedule/schedule.h"
#include "core/base/watchdog.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

// So many calls may fail before a build_schedule that goes on counts as one that never ends.
#define FAILED_CALLS_MOST (UINT32_C(1) << 20)
// In larger worlds only one rank is asked twice.
#define ALL_ASKED_TWICE_WORLD 8

struct drawing {
    struct ls_host host; // first: its fail() casts back
    struct ls_verifier *verifier;
    uint32_t *hosts; // of each rank, from ranks_per_host; NULL: those of the case
    uint32_t rank;
    uint32_t round;
    uint64_t scratch;
    uint64_t calls; // of all ranks
    uint64_t hash; // of this rank's schedule
    uint32_t failed_calls;
    bool again; // nothing is recorded any more
    bool round_has_steps;
    enum ls_status status; // first failure
    int32_t answer; // of build_schedule
    int32_t fail_status; // what the plugin said through its host
    char fail_text[256];
    jmp_buf out_of_build;
};

static void mix(uint64_t *hash, uint64_t value)
{
    *hash = (*hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    *hash ^= *hash >> 29;
}

static void mix_range(uint64_t *hash, const struct ls_range *range)
{
    mix(hash, range->buffer);
    mix(hash, range->offset);
    mix(hash, range->count);
}

// ---- The table that a plugin writes into ----

// A plugin may ignore what the calls return, and then never end: after very many of them it is left
// behind.
static int32_t failing(struct drawing *drawing)
{
    if (++drawing->failed_calls == FAILED_CALLS_MOST)
        longjmp(drawing->out_of_build, 1);
    return drawing->status;
}

static bool within_limit(struct drawing *drawing)
{
    const uint64_t most = ls_verifier_most_steps(drawing->verifier);
    if (++drawing->calls <= most)
        return true;
    drawing->status = ls_verifier_refuse(
        drawing->verifier, LS_VERDICT_LIMIT, drawing->rank, drawing->round, NULL,
        "the ranks have described more than %" PRIu64
        " steps and rounds together; either this one never ends, or the schedule is too large to "
        "verify",
        most);
    return false;
}

static enum ls_status refuse(struct drawing *drawing, const struct ls_step *step,
                             const char *reason)
{
    char range[128];
    const char *kind = ls_step_kind_text(step->kind);
    return drawing->status = ls_verifier_refuse(
               drawing->verifier, LS_VERDICT_DESCRIBE, drawing->rank, drawing->round, &step->range,
               "%s of %s: %s", kind ? kind : "unknown step",
               ls_elements_text(&step->range, range, sizeof(range)), reason);
}

static enum ls_status refuse_peer(struct drawing *drawing, const struct ls_step *step)
{
    char reason[128];
    if (step->peer == drawing->rank)
        snprintf(reason, sizeof(reason), "its peer is the rank itself");
    else
        snprintf(reason, sizeof(reason), "its peer is rank %u, and the world has ranks 0 to %u",
                 step->peer, drawing->verifier->verified->world - 1);
    return refuse(drawing, step, reason);
}

static enum ls_status check_range(struct drawing *drawing, const struct ls_step *step,
                                  const struct ls_range *range)
{
    uint64_t count = drawing->verifier->verified->count;
    char reason[192], text[128];
    if (range->buffer == LS_BUFFER_SCRATCH) {
        count = drawing->scratch;
    } else if (range->buffer != LS_BUFFER_DATA) {
        snprintf(reason, sizeof(reason), "there is no buffer %u", range->buffer);
        return refuse(drawing, step, reason);
    }
    if (range->offset <= count && range->count <= count - range->offset)
        return LS_OK;
    snprintf(reason, sizeof(reason), "%s %s outside the buffer, which has %" PRIu64,
             ls_elements_text(range, text, sizeof(text)), range->count == 1 ? "lies" : "lie",
             count);
    return refuse(drawing, step, reason);
}

static enum ls_status check(struct drawing *drawing, const struct ls_step *step)
{
    const bool local = step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY;
    if (!ls_step_kind_text(step->kind))
        return refuse(drawing, step, "there is no such step");
    if (!local && (step->peer >= drawing->verifier->verified->world || step->peer == drawing->rank))
        return refuse_peer(drawing, step);
    if (step->range.count == 0 && (!local || step->from.count == 0))
        return LS_OK; // dropped, whatever its range
    if (check_range(drawing, step, &step->range) ||
        (local && check_range(drawing, step, &step->from)))
        return drawing->status;
    if (local && step->from.count != step->range.count)
        return refuse(drawing, step, "the two ranges differ in length");
    return LS_OK;
}

static enum ls_status record(struct drawing *drawing, const struct ls_step *step)
{
    struct ls_verifier *verifier = drawing->verifier;
    if (verifier->step_count == verifier->step_capacity) {
        const uint32_t capacity = verifier->step_capacity ? 2 * verifier->step_capacity : 256;
        struct ls_verified_step *steps =
            realloc(verifier->steps, (size_t)capacity * sizeof(*steps));
        if (!steps)
            return drawing->status = LS_OUT_OF_MEMORY;
        verifier->steps = steps;
        verifier->step_capacity = capacity;
    }
    verifier->steps[verifier->step_count++] = (struct ls_verified_step){
        .offset = step->range.offset,
        .from_offset = step->from.offset,
        .count = step->range.count,
        .peer = step->peer,
        .round = drawing->round,
        .partner = LS_NO_STEP,
        .next = LS_NO_STEP,
        .kind = (uint8_t)step->kind,
        .buffer = (uint8_t)step->range.buffer,
        .from_buffer = (uint8_t)step->from.buffer,
    };
    return LS_OK;
}

static int32_t add(struct ls_schedule *schedule, const struct ls_step *step)
{
    struct drawing *drawing = schedule->context;
    if (drawing->status)
        return failing(drawing);
    if (!within_limit(drawing) || check(drawing, step))
        return drawing->status;
    if (step->range.count == 0)
        return LS_OK;
    drawing->round_has_steps = true;
    mix(&drawing->hash, step->kind);
    mix(&drawing->hash, step->peer);
    mix_range(&drawing->hash, &step->range);
    if (step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY)
        mix_range(&drawing->hash, &step->from);
    return drawing->again ? LS_OK : (int32_t)record(drawing, step);
}

static int32_t end_round(struct ls_schedule *schedule)
{
    struct drawing *drawing = schedule->context;
    if (drawing->status)
        return failing(drawing);
    if (!within_limit(drawing))
        return drawing->status;
    mix(&drawing->hash, drawing->round++);
    drawing->round_has_steps = false;
    return LS_OK;
}

static int32_t scratch(struct ls_schedule *schedule, uint64_t count)
{
    struct drawing *drawing = schedule->context;
    if (drawing->status)
        return failing(drawing);
    if (!within_limit(drawing))
        return drawing->status;
    if (count > LS_VERIFY_COUNT)
        return drawing->status = ls_verifier_refuse(
                   drawing->verifier, LS_VERDICT_DESCRIBE, drawing->rank, drawing->round, NULL,
                   "asks for %" PRIu64 " elements of scratch; no machine has so much memory",
                   count);
    if (count > drawing->scratch)
        drawing->scratch = count;
    mix(&drawing->hash, count);
    return LS_OK;
}

// ---- The plugin's host ----

static int32_t keep_failure(const struct ls_host *host, int32_t status, const char *message)
{
    struct drawing *drawing = (struct drawing *)(uintptr_t)host;
    drawing->fail_status = status ? status : LS_FAILED;
    snprintf(drawing->fail_text, sizeof(drawing->fail_text), "%s", message ? message : "");
    return drawing->fail_status;
}

static void say_nothing(const struct ls_host *host, uint32_t level, const char *message)
{
    (void)host;
    (void)level;
    (void)message;
}

// ---- Rank by rank ----

static int32_t build_schedule(struct drawing *drawing,
                              const struct ls_collective_interface *collective, uint32_t rank)
{
    const struct ls_verify_case *verified = drawing->verifier->verified;
    const struct ls_collective_call call = {
        .struct_size = sizeof(call),
        .operation = verified->operation,
        .rank = rank,
        .world = verified->world,
        .root = verified->root,
        .hosts = drawing->hosts ? drawing->hosts : verified->hosts,
        .count = verified->count,
        .element_bytes = verified->element_bytes,
        .host = &drawing->host,
        .cards = verified->cards,
        .order = verified->order,
    };
    struct ls_schedule schedule = {
        .struct_size = sizeof(schedule),
        .context = drawing,
        .add = add,
        .end_round = end_round,
        .scratch = scratch,
    };
    drawing->rank = rank;
    drawing->round = 0;
    drawing->scratch = 0;
    drawing->hash = rank + 1;
    drawing->round_has_steps = false;
    drawing->answer = LS_FAILED;
    drawing->fail_status = 0;
    drawing->fail_text[0] = '\0';
    if (verified->describing)
        *verified->describing = rank;
    drawing->failed_calls = 0;
    const struct ls_expected expected = ls_watchdog_expect(rank);
    if (!setjmp(drawing->out_of_build))
        drawing->answer = ls_schedule_build(collective, &call, &schedule);
    ls_watchdog_returned(&expected);
    if (verified->describing)
        *verified->describing = UINT32_MAX;
    return drawing->answer;
}

// What a build_schedule that returned `status` has said of the call.
static enum ls_status judge(struct drawing *drawing, int32_t status)
{
    struct ls_verifier *verifier = drawing->verifier;
    const bool declines = status == LS_USAGE || status == LS_UNSUPPORTED;
    if (drawing->status)
        return drawing->status;
    if (status == LS_OUT_OF_MEMORY)
        return LS_OUT_OF_MEMORY;
    if (drawing->rank > 0 && declines != (verifier->out->verdict == LS_VERDICT_DECLINED))
        return ls_verifier_refuse(verifier, LS_VERDICT_DESCRIBE, drawing->rank, drawing->round,
                                  NULL, "%s what rank 0 %s", declines ? "declines" : "describes",
                                  declines ? "describes" : "declines");
    if (declines && drawing->rank == 0)
        ls_verifier_refuse(verifier, LS_VERDICT_DECLINED, 0, 0, NULL, "%s",
                           drawing->fail_text[0] ? drawing->fail_text
                                                 : "declines without a reason");
    else if (status && !declines)
        return ls_verifier_refuse(verifier, LS_VERDICT_DESCRIBE, drawing->rank, drawing->round,
                                  NULL, "build_schedule fails: %s",
                                  drawing->fail_text[0] ? drawing->fail_text
                                                        : "it gives no reason");
    return LS_OK;
}

static enum ls_status ask_again(struct drawing *drawing,
                                const struct ls_collective_interface *collective, uint32_t rank,
                                uint64_t hash)
{
    drawing->again = true;
    drawing->calls = 0;
    const int32_t status = build_schedule(drawing, collective, rank);
    if (drawing->status)
        return drawing->status;
    if (status || drawing->hash != hash)
        return ls_verifier_refuse(drawing->verifier, LS_VERDICT_DESCRIBE, rank, 0, NULL,
                                  "describes another schedule when it is asked a second time");
    return LS_OK;
}

static enum ls_status draw_all(struct drawing *drawing,
                               const struct ls_collective_interface *collective, uint64_t *hashes)
{
    struct ls_verifier *verifier = drawing->verifier;
    const uint32_t world = verifier->verified->world;
    struct ls_verification *out = verifier->out;
    for (uint32_t rank = 0; rank < world; rank++) {
        verifier->first[rank] = verifier->step_count;
        const int32_t described = build_schedule(drawing, collective, rank);
        const enum ls_status status = judge(drawing, described);
        if (status)
            return status;
        verifier->rounds[rank] = drawing->round + drawing->round_has_steps;
        verifier->scratch[rank] = drawing->scratch;
        hashes[rank] = drawing->hash;
        mix(&out->fingerprint, drawing->hash);
        if (verifier->rounds[rank] > out->rounds)
            out->rounds = verifier->rounds[rank];
        if (drawing->scratch * verifier->verified->element_bytes > out->scratch_bytes)
            out->scratch_bytes = drawing->scratch * verifier->verified->element_bytes;
    }
    verifier->first[world] = verifier->step_count;
    out->steps = verifier->step_count;
    if (out->verdict == LS_VERDICT_DECLINED)
        return LS_FAILED;
    const bool all = world <= ALL_ASKED_TWICE_WORLD;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < (all ? world : 1); i++) {
        const uint32_t rank = all ? i : (uint32_t)(verifier->verified->count % world);
        status = ask_again(drawing, collective, rank, hashes[rank]);
    }
    return status;
}

enum ls_status ls_verifier_draw(struct ls_verifier *verifier,
                                const struct ls_collective_interface *collective,
                                const struct ls_host *host)
{
    struct drawing drawing = {.verifier = verifier};
    uint64_t *hashes = malloc(verifier->verified->world * sizeof(*hashes));
    if (!hashes)
        return LS_OUT_OF_MEMORY;
    if (host)
        drawing.host = *host;
    drawing.host.struct_size = sizeof(drawing.host);
    drawing.host.fail = keep_failure;
    drawing.host.log = say_nothing;
    const struct ls_verify_case *verified = verifier->verified;
    enum ls_status status = ls_uniform_hosts(
        verified->world, verified->hosts ? 0 : verified->ranks_per_host, &drawing.hosts);
    if (!status)
        status = draw_all(&drawing, collective, hashes);
    free(drawing.hosts);
    free(hashes);
    return status;
}
