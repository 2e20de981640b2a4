// SPDX-License-Identifier: Apache-2.0
// Opens the candidates and the network of `auto`.
#include "core/train/choice.h"

#include "core/train/networks.h"

#include <stdlib.h>

static enum ls_status create(const struct ls_opened_plugin *opened,
                             const struct ls_network *network, struct ls_choice *choice)
{
    struct ls_candidate *candidates = calloc(choice->count, sizeof(*candidates));
    if (!candidates)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < choice->count; i++)
        candidates[i] = (struct ls_candidate){.plugin = choice->candidates[i]->plugin,
                                              .host = choice->candidates[i]->host};
    const enum ls_status status = ls_auto_create(opened->plugin, opened->host, candidates,
                                                 choice->count, network, &choice->chooser);
    free(candidates);
    return status;
}

enum ls_status ls_choice_open(struct ls_loader *loader, const struct ls_opened_plugin *opened,
                              struct ls_choice *out)
{
    struct ls_network network;
    struct ls_choice choice = {0};
    enum ls_status status =
        ls_network_open("auto", opened->host->option(opened->host, "network"), &network);
    if (!status)
        status = ls_loader_candidates(loader, opened, &choice.candidates, &choice.count);
    if (!status)
        status = create(opened, &network, &choice);
    if (status)
        ls_choice_close(&choice);
    else
        *out = choice;
    return status;
}

void ls_choice_close(struct ls_choice *choice)
{
    ls_auto_destroy(choice->chooser);
    free(choice->candidates);
    *choice = (struct ls_choice){0};
}

const char *ls_choice_name(const struct ls_choice *choice, uint32_t operation, uint32_t world,
                           uint64_t count, uint32_t element_bytes)
{
    const struct ls_collective_call call = {.struct_size = sizeof(call),
                                            .operation = operation,
                                            .world = world,
                                            .ranks_per_host = world,
                                            .count = count,
                                            .element_bytes = element_bytes,
                                            .host = ls_auto_host(choice->chooser)};
    const char *name = NULL;
    return ls_auto_choose(choice->chooser, &call, &name) ? NULL : name;
}
