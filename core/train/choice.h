// SPDX-License-Identifier: Apache-2.0
// Opens what `auto` chooses among, on the network that its options name. [main thread]
#ifndef LS_TRAIN_CHOICE_H
#define LS_TRAIN_CHOICE_H

#include "core/collective/auto.h"
#include "core/loader/loader.h"

struct ls_choice {
    struct ls_auto *chooser; // NULL: a collective was named
    const struct ls_opened_plugin **candidates; // the loader's
    size_t count;
};

// `opened` is `auto` (ls_is_auto). Logged: candidates that cannot be opened, an unknown network.
LS_STATUS ls_choice_open(struct ls_loader *loader, const struct ls_opened_plugin *opened,
                         struct ls_choice *out);
void ls_choice_close(struct ls_choice *choice); // takes a zeroed one

// The name of the candidate that does `operation` (enum ls_collective_operation, root 0) over `world` ranks of one
// process; NULL: none does, logged.
const char *ls_choice_name(const struct ls_choice *choice, uint32_t operation, uint32_t world,
                           uint64_t count, uint32_t element_bytes);

#endif
