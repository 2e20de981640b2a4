// SPDX-License-Identifier: Apache-2.0
// Datasets that are plugins.
#ifndef LS_DATA_DATASET_PLUGINS_H
#define LS_DATA_DATASET_PLUGINS_H

#include "core/data/dataset.h"
#include "core/loader/loader.h"

struct ls_dataset_plugin;

// The plugin that `text` names, with a loader of its own, so that it outlasts runs; NULL in `out`:
// datasets/ has it, or nobody does. `like`: whose search path and registered plugins it has; NULL:
// the path of this process. Errors are logged. [main thread]
LS_STATUS ls_dataset_plugin_find(const struct ls_loader *like, const char *text,
                                 struct ls_dataset_plugin **out);
void ls_dataset_plugin_close(struct ls_dataset_plugin *plugin); // after its datasets; takes NULL

// For ls_dataset_open_as; NULL for NULL.
const struct ls_dataset_kind *ls_dataset_plugin_kind(const struct ls_dataset_plugin *plugin);

#endif
