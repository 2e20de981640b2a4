// SPDX-License-Identifier: Apache-2.0
#include "core/base/compiling.h"

#include "core/base/clock.h"

#include <stdatomic.h>

static _Atomic uint32_t under_way;
static _Atomic uint64_t began_ns, ended_ns; // the first of those under way; the last

void ls_compiling_begin(void)
{
    if (atomic_fetch_add(&under_way, 1) == 0)
        atomic_store(&began_ns, ls_clock_ns());
}

void ls_compiling_end(void)
{
    atomic_store(&ended_ns, ls_clock_ns());
    atomic_fetch_sub(&under_way, 1);
}

// Reads the clock last: a compilation may begin or end meanwhile, and no time read is then ahead of
// it. The number of those under way goes first, as it changes after `ended_ns`.
bool ls_compiling_excuses(uint64_t begin_ns, uint64_t deadline_ns)
{
    const bool compiles = atomic_load(&under_way) > 0;
    const uint64_t began = atomic_load(&began_ns), ended = atomic_load(&ended_ns);
    const uint64_t now = ls_clock_ns();
    if (compiles && now - began < LS_COMPILING_TIMES * deadline_ns)
        return true;
    return ended > begin_ns && now - ended < deadline_ns;
}
