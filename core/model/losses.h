// SPDX-License-Identifier: Apache-2.0
// Losses by their Keras names and options. [any thread]
#ifndef LS_MODEL_LOSSES_H
#define LS_MODEL_LOSSES_H

#include "core/graph/graph.h"
#include "core/plugin/plugin.h"
#include "core/run/own_parts.h"

// What --loss= may be, and what a metric may be that is the mean of a loss; ends with a NULL name.
// Names that mean the same follow each other; the first is the one to show.
struct ls_loss_name {
    const char *name;
    uint32_t function; // enum ls_loss_function
    const struct ls_plugin_option *options; // NULL: none
    const char *summary; // one line
};

// The entry of that name ("huber"); NULL: none.
const struct ls_loss_name *ls_loss_find(const char *name);
// Their names, for messages; ends with NULL.
extern const char *const ls_loss_names[];

// "huber:delta=2", "none", or one of the user's own (`parts` NULL: there are none). LS_USAGE, logged.
LS_STATUS ls_loss_parse(const char *text, struct ls_own_parts *parts, struct ls_loss *out);
bool ls_loss_takes_classes(const struct ls_loss *loss);

// The same as text: "huber:delta=2", without options that are as Keras has them. Cut where it does not
// fit.
void ls_loss_text(const struct ls_loss *loss, char *text, size_t bytes);

#endif
