// SPDX-License-Identifier: Apache-2.0
// Where workers are, the clock that judges silence, and the sentences about it.
#include "core/cluster/liveness.h"

#include "core/base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Words, because a text that is written and read at once must be made of atomics.
void ls_said_write(struct ls_said *said, uint64_t step, const char *where)
{
    union {
        char text[LS_WHERE_BYTES];
        uint64_t words[LS_WHERE_BYTES / 8];
    } copy = {{0}};
    snprintf(copy.text, sizeof(copy.text), "%s", where ? where : "");
    uint32_t version = atomic_load_explicit(&said->version, memory_order_relaxed);
    if (version & 1 ||
        !atomic_compare_exchange_strong_explicit(&said->version, &version, version + 1,
                                                 memory_order_seq_cst, memory_order_relaxed))
        return;
    atomic_store(&said->step, step);
    for (size_t i = 0; i < LS_WHERE_BYTES / 8; i++)
        atomic_store_explicit(&said->where[i], copy.words[i], memory_order_release);
    atomic_store_explicit(&said->version, version + 2, memory_order_release);
}

void ls_said_read(struct ls_said *said, struct ls_spot *out)
{
    union {
        char text[LS_WHERE_BYTES];
        uint64_t words[LS_WHERE_BYTES / 8];
    } copy;
    for (int tries = 0; tries < 4; tries++) {
        const uint32_t version = atomic_load(&said->version);
        if (version & 1)
            continue;
        const uint64_t step = atomic_load_explicit(&said->step, memory_order_acquire);
        for (size_t i = 0; i < LS_WHERE_BYTES / 8; i++)
            copy.words[i] = atomic_load_explicit(&said->where[i], memory_order_acquire);
        if (atomic_load(&said->version) != version)
            continue;
        out->step = version ? step : LS_NO_STEP;
        memcpy(out->where, copy.text, sizeof(out->where));
        return;
    }
}

uint64_t ls_stand_ns(uint64_t silence_ns)
{
    return silence_ns / 3 * 2;
}

uint64_t ls_beat_ns(uint64_t silence_ns)
{
    const uint64_t most = UINT64_C(500000000);
    return silence_ns / 6 < most ? silence_ns / 6 : most;
}

static bool stands(const struct ls_own_clock *clock)
{
    return clock->stand_ns && clock->awake_ns &&
           ls_clock_boot_ns() - clock->awake_ns > clock->stand_ns;
}

uint64_t ls_own_clock_look(struct ls_own_clock *clock, uint64_t most_ns)
{
    const uint64_t now = ls_clock_ns();
    uint64_t passed = clock->seen_ns ? now - clock->seen_ns : 0;
    passed = passed < most_ns ? passed : most_ns;
    clock->seen_ns = now;
    clock->now_ns += passed;
    if (stands(clock))
        clock->stood_ns = clock->now_ns + 1;
    if (clock->stand_ns)
        clock->awake_ns = ls_clock_boot_ns();
    return passed;
}

bool ls_own_clock_stood(const struct ls_own_clock *clock)
{
    return stands(clock) ||
           (clock->stood_ns && clock->now_ns - (clock->stood_ns - 1) <= 3 * clock->stand_ns);
}

void ls_member_name(uint32_t member, uint32_t workers, bool apart, const char *host, char *out,
                    size_t bytes)
{
    const bool server = member >= workers;
    snprintf(out, bytes, "%s %u%s%s%s",
             server  ? "server"
             : apart ? "process"
                     : "worker",
             server ? member - workers : member, *host ? " (" : "", host, *host ? ")" : "");
}

void ls_spot_text(const struct ls_spot *spot, char *out, size_t bytes)
{
    const char *where = spot->where;
    if (spot->step == LS_NO_STEP)
        snprintf(out, bytes, "%s%s", *where ? " in " : "", where);
    else
        snprintf(out, bytes, " in step %llu%s%s", (unsigned long long)spot->step,
                 *where ? ", " : "", where);
}

void ls_lost_sentence(const char *name, const struct ls_spot *spot, const char *why, char *out,
                      size_t bytes)
{
    char at[96];
    ls_spot_text(spot, at, sizeof(at));
    snprintf(out, bytes, "%s lost%s%s: %s", name, *at ? ", last heard of" : "", at, why);
}

void ls_machine_name(char out[LS_NAME_BYTES])
{
    if (gethostname(out, LS_NAME_BYTES))
        snprintf(out, LS_NAME_BYTES, "unknown");
    out[LS_NAME_BYTES - 1] = '\0';
}

// Where the kernel does not say which boot this is, the name of the machine has to do.
void ls_machine_identity(char *out, size_t bytes)
{
    char boot[64] = "", name[LS_NAME_BYTES];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file && !fgets(boot, sizeof(boot), file))
        boot[0] = '\0';
    if (file)
        fclose(file);
    boot[strcspn(boot, "\n")] = '\0';
    ls_machine_name(name);
    static const char *const namespaces[] = {"/proc/self/ns/net", "/proc/self/ns/pid"};
    unsigned long long numbers[2] = {0};
    struct stat about;
    for (int i = 0; i < 2; i++)
        if (stat(namespaces[i], &about) == 0)
            numbers[i] = about.st_ino;
    snprintf(out, bytes, "%s/%llu/%llu", *boot ? boot : name, numbers[0], numbers[1]);
}
