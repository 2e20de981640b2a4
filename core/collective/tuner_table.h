// SPDX-License-Identifier: Apache-2.0
// Tables of the tuner that are not measured by the run: the fixed one, and files that `lockstep
// bench --tune` writes. [any thread]
#ifndef LS_COLLECTIVE_TUNER_TABLE_H
#define LS_COLLECTIVE_TUNER_TABLE_H

#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define LS_TUNER_FIXED "fixed" // auto:table=fixed
#define LS_TUNER_TABLE_ROWS 256

struct ls_tuner_entry {
    uint64_t bytes; // of the whole buffer
    char *collective; // with its options: "hierarchical-copy:groups=2"
};

struct ls_tuner_table {
    char *transport, *device; // that were measured; NULL: any
    uint32_t world; // ranks
    struct ls_tuner_entry *entries; // by growing size
    size_t count;
};

// The fixed table of `world` ranks, which needs no measurement: docs/strategies.md has it.
LS_STATUS ls_tuner_table_fixed(uint32_t world, struct ls_tuner_table *out);

// LS_BAD_INPUT, logged with path and key: no such file, malformed JSON, a key that is unknown or
// missing, a value that cannot be.
LS_STATUS ls_tuner_table_read(const char *path, struct ls_tuner_table *out);

// LS_BAD_INPUT, logged with what to do, when a table that was read from `path` is of another world,
// transport or device.
LS_STATUS ls_tuner_table_check(const struct ls_tuner_table *table, const char *path,
                               const char *transport, const char *device, uint32_t world);

void ls_tuner_table_finish(struct ls_tuner_table *table); // takes a zeroed one

#endif
