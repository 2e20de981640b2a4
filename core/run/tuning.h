// SPDX-License-Identifier: Apache-2.0
// Opens what `auto` chooses among, and the table that its options name. [main thread]
#ifndef LS_RUN_TUNING_H
#define LS_RUN_TUNING_H

#include "core/collective/tuner.h"
#include "core/collective/tuner_table.h"
#include "core/loader/loader.h"
#include "core/report/report.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct ls_tuning {
    struct ls_tuner *tuner; // NULL: a collective was named
    const char *table; // file, or "fixed"; borrowed. NULL: the run measures
    const struct ls_opened_plugin **candidates; // the loader's
    size_t count;
    struct ls_tuner_table rows; // of `table`; its names are those of the candidates
    bool resumed; // a checkpoint had rows for it
};

// `opened` is `auto` (ls_is_auto), in a run of `world` ranks over `transport`, whose buffers are in
// the memory of `device`: LS_TUNING_HOST, or a device's name. `hosts` has the number of each rank's
// host and is borrowed as long as `out` lives; NULL: all are on one. Logged: candidates that cannot
// be opened, a table that cannot be read or is of another run.
#define LS_TUNING_HOST "host"
LS_STATUS ls_tuning_open(struct ls_loader *loader, const struct ls_opened_plugin *opened,
                         const char *transport, const char *device, uint32_t world,
                         const uint32_t *hosts, struct ls_tuning *out);
// What it chooses among, for workers that must all have the same: the candidates in their order
// with their versions, or the rows of the table. What does not fit into `bytes` is replaced by a
// number that differs when the rest does.
void ls_tuning_describe(const struct ls_tuning *tuning, char *out, size_t bytes);
void ls_tuning_close(struct ls_tuning *tuning); // takes a zeroed one

// The name of candidates[index] in tables and reports; NULL for one that was named before.
const char *ls_tuning_candidate(const struct ls_tuning *tuning, size_t index);

// The name of the candidate that does `operation` (enum ls_collective_operation, root 0) over
// `world` ranks on their hosts; NULL: none does, logged.
const char *ls_tuning_name(const struct ls_tuning *tuning, uint32_t operation, uint32_t world,
                           uint64_t count, uint32_t element_bytes);

// What was chosen for each size, for a checkpoint, so that a training that goes on from it adds up
// in the same order. `setting`: ranks, transport and whatever else a choice depends on. json_null()
// where nothing was measured; NULL: no memory.
json_t *ls_tuning_save(const struct ls_tuning *tuning, const char *setting);
// Takes over the choices of a checkpoint, before the first plan, so that these sizes are not
// measured again. Those of another setting are left alone, as are candidates that are not there any
// more.
LS_STATUS ls_tuning_resume(struct ls_tuning *tuning, const json_t *saved, const char *setting,
                           uint32_t world);

// What was measured, one line a size: the choice, then each candidate's microseconds and spread.
// Silent where the run did not measure.
void ls_tuning_print(const struct ls_tuning *tuning, FILE *out);

// The same for the report, with tables that were given. The texts are borrowed.
LS_STATUS ls_tuning_report(const struct ls_tuning *tuning, struct ls_report_tuner *out);
void ls_tuning_report_finish(struct ls_report_tuner *report); // takes a zeroed one

#endif
