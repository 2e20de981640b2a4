// SPDX-License-Identifier: Apache-2.0
// The state of a suite while its cases run: the selected cases, the first error of the running case,
// and the counts.
#ifndef LS_TOOLS_CONFORMANCE_TALLY_H
#define LS_TOOLS_CONFORMANCE_TALLY_H

#include "core/attributes.h"
#include "tools/conformance/result.h"

#include <pthread.h>

struct ls_tally {
    const char *only; // may be NULL
    ls_conformance_wanted wanted; // may be NULL
    ls_conformance_report report; // may be NULL
    void *context;
    struct ls_conformance_counts counts;
    char name[192];
    char message[512]; // of the running case: the first finding
    bool refused;
    pthread_mutex_t lock; // of message: threads of a case may blame
};

void ls_tally_init(struct ls_tally *tally, const char *only, ls_conformance_wanted wanted,
                   ls_conformance_report report, void *context);
void ls_tally_finish(struct ls_tally *tally);

// Names the next case; false: it is not to run. [main thread]
LS_PRINTF(2, 3) bool ls_tally_begin(struct ls_tally *tally, const char *format, ...);
// Something is wrong; the first finding of a case counts. Returns false. [any thread]
LS_PRINTF(2, 3) bool ls_tally_blame(struct ls_tally *tally, const char *format, ...);
// The plugin does not offer this, and need not.
LS_PRINTF(2, 3) void ls_tally_refuse(struct ls_tally *tally, const char *format, ...);
bool ls_tally_blamed(struct ls_tally *tally); // [any thread]
void ls_tally_end(struct ls_tally *tally); // reports the case [main thread]

#endif
