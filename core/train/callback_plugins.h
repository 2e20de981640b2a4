// SPDX-License-Identifier: Apache-2.0
// As ls_callback_open, but may fail without a message (calls.c). Private to train/. [main thread]
#ifndef LS_TRAIN_CALLBACK_PLUGINS_H
#define LS_TRAIN_CALLBACK_PLUGINS_H

#include "core/base/status.h"
#include "lockstep.h"

#include <stdio.h>

// Writes a word about a callback that is a plugin, as all workers have it: its name, and the options
// that are not those by default, without folders. Nothing of the program's own, nor of those that only the
// chief has.
void ls_callback_describe(const struct ls_callbacks *table, FILE *out);

LS_STATUS ls_open_callback(struct ls_run *run, const char *text, struct ls_callbacks **out);

#endif
