// SPDX-License-Identifier: Apache-2.0
// `lockstep simulate --against`: measured times beside simulated ones, and how far these are off.
// [main thread]
#ifndef LS_TOOLS_SIMULATE_AGAINST_H
#define LS_TOOLS_SIMULATE_AGAINST_H

#include "tools/report/rows.h"
#include "tools/simulate/measured.h"
#include "tools/simulate/network.h"

struct ls_against;

// `path`, `collective` and `network` are for the texts; borrowed. `most`: rows.
LS_STATUS ls_against_create(const char *path, const char *collective, const char *network,
                            size_t most, struct ls_against **out);
void ls_against_destroy(struct ls_against *against); // takes NULL

// LS_BAD_INPUT, logged: the row was not measured on such nodes, or its bytes are no whole elements.
LS_STATUS ls_against_fits(const char *path, const struct ls_network *network,
                          const struct ls_measured_row *row, uint32_t element_bytes);

// Prints the row and adds it to `rows`.
void ls_against_add(struct ls_against *against, const struct ls_measured_row *row, double seconds,
                    struct ls_rows *rows);
// Prints by how much the points that count are off. LS_USAGE, logged: there are none.
LS_STATUS ls_against_finish(const struct ls_against *against);
// Draws measured and simulated times of these points: over sizes where there are several, else over
// ranks. LS_FAILED, logged under `scope`.
LS_STATUS ls_against_draw(const struct ls_against *against, const char *scope, const char *path);

#endif
