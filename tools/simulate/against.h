// SPDX-License-Identifier: Apache-2.0
// `lockstep simulate --against`: measured times beside simulated ones, and how far these are off.
// [main thread]
#ifndef LS_TOOLS_SIMULATE_AGAINST_H
#define LS_TOOLS_SIMULATE_AGAINST_H

#include "tools/report/rows.h"
#include "tools/simulate/measured.h"
#include "tools/simulate/simulation.h"

struct ls_against;

// `path`, `collective` and `network` are for the texts; borrowed. `most`: rows.
LS_STATUS ls_against_create(const char *path, const char *collective, const char *network,
                            size_t most, struct ls_against **out);
void ls_against_destroy(struct ls_against *against); // takes NULL

// Whether the network cannot stand for the machine of the row: `text` says why.
bool ls_against_misfits(const struct ls_network *network, const struct ls_measured_row *row,
                        char *text, size_t room);

// Prints the row and adds it to `rows`. `result`: NULL: it was not simulated.
void ls_against_add(struct ls_against *against, const struct ls_measured_row *row,
                    const struct ls_simulation_result *result, uint32_t verified_world,
                    struct ls_rows *rows);
// Prints by how much the points that count are off. LS_USAGE, logged: there are none.
LS_STATUS ls_against_finish(const struct ls_against *against);
// Draws measured and simulated times of these points, for each operation: over sizes where there
// are several, then for each world, too; else over ranks. Sorts the points. LS_FAILED, logged
// under `scope`.
LS_STATUS ls_against_draw(struct ls_against *against, const char *scope, const char *path);

const char *ls_time_text(double seconds, char *text, size_t room); // "1.250 ms"; returns `text`

#endif
