// SPDX-License-Identifier: Apache-2.0
// A file of events as TensorBoard reads it: records with checksums (as TFRecord has them), each an
// Event of the protocol buffers tensorflow/core/util/event.proto and framework/summary.proto,
// written by hand because only a few fields are needed.
#ifndef LS_PLUGINS_CALLBACK_TENSORBOARD_EVENTS_H
#define LS_PLUGINS_CALLBACK_TENSORBOARD_EVENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct events {
    FILE *file; // NULL: not open
    char path[4096];
};

// Makes the folder, and in it a file of a name of its own. False: errno says why, and `path` where.
bool events_open(struct events *events, const char *folder);
// False: the file could not be written.
bool events_scalar(struct events *events, const char *tag, int64_t step, double value);
// How often values lie in each of 30 parts of equal width between the least and the largest one.
// Values that are not finite are left out.
bool events_histogram(struct events *events, const char *tag, int64_t step, const float *values,
                      uint64_t count);
bool events_flush(struct events *events);
bool events_close(struct events *events);

#endif
