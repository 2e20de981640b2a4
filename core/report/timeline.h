// SPDX-License-Identifier: Apache-2.0
// The timeline of a run: a recording (core/base/trace.h) as a Chrome trace, which Perfetto and chrome://tracing open.
// docs/timeline.md explains the result. [main thread]
#ifndef LS_REPORT_TIMELINE_H
#define LS_REPORT_TIMELINE_H

#include "core/base/status.h"
#include "core/base/trace.h"

// Facts about the run, written into the file. Texts are borrowed; NULL: none.
struct ls_timeline {
    const char *model, *dataset, *strategy, *collective, *transport, *device, *hardware;
    uint32_t replicas;
    uint64_t global_batch;
};

// Writes beside `path` and renames, so the file is whole or untouched. Span by span; only messages and steps are held
// in memory, about 250 bytes a message. LS_FAILED, LS_OUT_OF_MEMORY; logged.
LS_STATUS ls_timeline_write(const char *path, const struct ls_timeline *timeline,
                            const struct ls_trace *trace);

#endif
