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

// The loss of a model: one for each of its outputs, LS_LOSS_NONE where it has none.
struct ls_loss_set {
    struct ls_loss list[LS_GRAPH_LOSSES];
    uint32_t count; // of the outputs of the model
};

// "mean_squared_error" of all outputs, "mse,huber:delta=2" in their order, or by their names
// "size=mse,kind=poisson", where those that are not named have none. NULL: by the last layer of
// each. `weights` as "1,0.5" or "size=1,kind=0.5"; NULL: each counts once. LS_USAGE, logged.
LS_STATUS ls_loss_set_parse(const char *text, const char *weights, const struct ls_graph *graph,
                            struct ls_own_parts *parts, struct ls_loss_set *out);
// No output has a loss: the program computes it.
bool ls_loss_set_is_none(const struct ls_loss_set *set);
// The only output with a loss; LS_GRAPH_LOSSES: there is none, or more than one.
uint32_t ls_loss_set_only(const struct ls_loss_set *set);
// As ls_loss_text, with the names of the outputs where there are several.
void ls_loss_set_text(const struct ls_loss_set *set, const struct ls_graph *graph, char *text,
                      size_t bytes);

// Which output begins `text` by its name and an equals sign, and how long these are;
// LS_GRAPH_LOSSES: none.
uint32_t ls_output_named(const struct ls_graph *graph, const char *text, size_t *length);
// Logs under `scope` that `text` names no output of the model, and which there are. LS_USAGE.
LS_STATUS ls_output_refuse(const char *scope, const struct ls_graph *graph, const char *text);

// The same as text: "huber:delta=2", without options that are as Keras has them. Cut where it does not
// fit.
void ls_loss_text(const struct ls_loss *loss, char *text, size_t bytes);

#endif
