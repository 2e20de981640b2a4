// SPDX-License-Identifier: Apache-2.0
// Workers of one host read the files of a dataset once: the first that comes reads them into memory
// without a name, the others map it. Who finds nobody reads for itself, so nothing depends on the
// others.
#ifndef LS_DATA_DATA_HOST_H
#define LS_DATA_DATA_HOST_H

#include "core/data/dataset.h"

#include <stdatomic.h>

// What the process that has read owes the others.
struct ls_host_offer {
    int listener; // -1: nothing
    int file;
    uint32_t others; // that may come
};

// As ls_dataset_open, for a dataset of datasets/ all of whose fields have values. `processes` of
// this host open it at about the same time, with the same user, folder, text, and name of the job.
// The one that reads is waited for as long as it runs, `patience_ns` at most. `offer` is filled in
// even when it fails. [any thread]
LS_STATUS ls_host_dataset_open(const char *text, enum ls_split split, uint32_t processes,
                               const char *job, uint64_t patience_ns, struct ls_host_offer *offer,
                               struct ls_dataset **out);

// Hands the values out to those who come: until all have them, for some seconds at most, or until
// `stop`. [any thread]
void ls_host_offer_serve(struct ls_host_offer *offer, const atomic_bool *stop);
void ls_host_offer_close(struct ls_host_offer *offer); // also one that was served

#endif
