// SPDX-License-Identifier: Apache-2.0
// For the tests of layers: models from text, and the lines that were logged meanwhile.
#ifndef LS_TESTS_LAYERS_SUPPORT_H
#define LS_TESTS_LAYERS_SUPPORT_H

#include "core/graph/layer.h"
#include "tests/support/suite.h"

// The lines that the log got since the last call of build_text and its relatives, each with its
// newline.
extern char logged[16384];
extern int logged_lines;

// Empties `logged` and sends the log there.
void capture_log(void);

// Builds from JSON in which ' stands for ". `shape` may be NULL.
enum ls_status build_text(const char *text, const struct ls_shape *shape, struct ls_graph **out);
// The same for a Sequential model of these layers: "{'class_name': ...}, {...}", printf-like.
enum ls_status build_layers(struct ls_graph **out, const char *layers);

// Builds and must succeed.
struct ls_graph *graph_of(const char *layers);
// Must fail as LS_BAD_INPUT with one line that contains `message`.
void refuses(const char *layers, const char *message);
void refuses_model(const char *text, const char *message);

// "(None, 26, 26, 32)" of the layer called `name`, or of the parameter.
const char *layer_shape(const struct ls_graph *graph, const char *name);
const char *parameter_shape(const struct ls_graph *graph, const char *name);
const struct ls_tensor *parameter_of(const struct ls_graph *graph, const char *name);
uint64_t parameter_total(const struct ls_graph *graph);
// The only operation of a kind; fails the test when there is another number of them.
const struct ls_operation *only_operation(const struct ls_graph *graph, uint32_t op);
uint32_t operation_total(const struct ls_graph *graph, uint32_t op);

#endif
