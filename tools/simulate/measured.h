// SPDX-License-Identifier: Apache-2.0
// Measured times of collectives, as a CSV file has them (docs/simulate.md has the form).
// [any thread]
#ifndef LS_TOOLS_SIMULATE_MEASURED_H
#define LS_TOOLS_SIMULATE_MEASURED_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_measured_row {
    unsigned line; // of the file
    char operation[24]; // as `simulate` names it: all_reduce
    uint64_t bytes; // of the whole buffer
    uint32_t ranks;
    uint32_t ranks_per_node; // 0: not known
    double seconds;
    char algorithm[24]; // that the measured library used; "": not known
    char left_out[96]; // why the row is no point of the error; "": it is one
};

struct ls_measured {
    struct ls_measured_row *rows;
    size_t count;
};

// `in_place`: seconds_in_place where a row has it, else seconds_out_of_place; false: the other way
// round. LS_BAD_INPUT, logged with path and line. On failure `out` is empty.
LS_STATUS ls_measured_read(const char *path, bool in_place, struct ls_measured *out);
void ls_measured_finish(struct ls_measured *measured); // takes a zeroed one

#endif
