// SPDX-License-Identifier: Apache-2.0
// What verify, simulate, bench and plugin check write to --json=FILE: the rows of the table that they print, and
// whether all held:
//
//     {"lockstep": "0.1.0", "made": {...}, "command": "simulate", "rows": [{"world": 8, "seconds": 0.0012}, ...], "passed": true}
//
// Units are in the keys (bytes, seconds, gb_s for 1e9 bytes a second); NaN and infinity are null; numbers have 9
// digits. [main thread]
#ifndef LS_TOOLS_REPORT_ROWS_H
#define LS_TOOLS_REPORT_ROWS_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct ls_rows;

LS_STATUS ls_rows_create(struct ls_rows **out);
void ls_rows_destroy(struct ls_rows *rows);

// Begins a row; the calls below add to it, in order. What finds no memory fails ls_rows_write.
void ls_rows_begin(struct ls_rows *rows);
void ls_rows_text(struct ls_rows *rows, const char *key, const char *value); // NULL: null
void ls_rows_count(struct ls_rows *rows, const char *key, uint64_t value);
void ls_rows_number(struct ls_rows *rows, const char *key, double value);
void ls_rows_boolean(struct ls_rows *rows, const char *key, bool value);

// LS_FAILED, logged under `scope` ("--json"). The file is whole or untouched; ls_report_check_path says
// beforehand whether it can be written.
LS_STATUS ls_rows_write(const struct ls_rows *rows, const char *scope, const char *path,
                        const char *command, bool passed);

#endif
