// SPDX-License-Identifier: Apache-2.0
// What a filter (--compress) keeps from step to step, equal on all ranks, in checkpoints: one
// tensor, whose name has a hash of the filter, its options and what it filters. Its bytes are as
// they are in memory; as floats they mean nothing. [main thread, while the replicas rest]
#ifndef LS_TRAIN_FILTER_MEMORY_H
#define LS_TRAIN_FILTER_MEMORY_H

#include "core/model/checkpoint_file.h"
#include "core/train/session.h"

// Adds it, where there is some. LS_OUT_OF_MEMORY, not logged.
// Whether a tensor of this name is such memory.
bool ls_filter_memory_has_name(const char *name);
LS_STATUS ls_filter_memory_save(const struct ls_session *session,
                                struct ls_checkpoint_image *image);
// Gives it to all replicas, from the file, or where that is NULL, from `kept`. That of other
// options or buckets is left out (a warning), and the filter begins anew.
LS_STATUS ls_filter_memory_give(const struct ls_session *session, const struct ls_safetensors *file,
                                const struct ls_checkpoint_image *kept);

#endif
