// SPDX-License-Identifier: Apache-2.0
// As ls_callback_open, but may fail without a message (calls.c). Private to train/. [main thread]
#ifndef LS_TRAIN_CALLBACK_PLUGINS_H
#define LS_TRAIN_CALLBACK_PLUGINS_H

#include "core/base/status.h"
#include "lockstep.h"

LS_STATUS ls_open_callback(struct ls_run *run, const char *text, struct ls_callbacks **out);

#endif
