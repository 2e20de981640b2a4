// SPDX-License-Identifier: Apache-2.0
// For the tests of layers: models from text, and the lines that were logged meanwhile.
#include "tests/layers/support.h"

#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char logged[16384];
int logged_lines;

static void keep_line(void *context, uint32_t level, const char *line)
{
    (void)context, (void)level;
    const size_t used = strlen(logged);
    snprintf(logged + used, sizeof(logged) - used, "%s\n", line);
    logged_lines++;
}

void capture_log(void)
{
    logged[0] = '\0';
    logged_lines = 0;
    ls_log_set_writer(keep_line, NULL);
}

enum ls_status build_text(const char *text, const struct ls_shape *shape, struct ls_graph **out)
{
    json_error_t error;
    char *copy = strdup(text);
    for (char *letter = copy; *letter; letter++)
        if (*letter == '\'')
            *letter = '"';
    json_t *json = json_loads(copy, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json != NULL, "%s: %s", error.text, copy);
    free(copy);

    capture_log();
    enum ls_status status = ls_model_build("model.json", json, shape, out);
    json_decref(json);
    return status;
}

enum ls_status build_layers(struct ls_graph **out, const char *layers)
{
    char text[8192];
    snprintf(text, sizeof(text),
             "{'class_name': 'Sequential', 'config': {'name': 'm', 'layers': [%s]}}", layers);
    return build_text(text, NULL, out);
}

struct ls_graph *graph_of(const char *layers)
{
    struct ls_graph *graph = NULL;
    const enum ls_status status = build_layers(&graph, layers);
    ck_assert_msg(status == LS_OK, "status %d: %s", status, logged);
    ck_assert_int_eq(logged_lines, 0);
    return graph;
}

static void check_refusal(enum ls_status status, const struct ls_graph *graph, const char *message)
{
    ck_assert_int_eq(status, LS_BAD_INPUT);
    ck_assert_ptr_null(graph);
    ck_assert_int_eq(logged_lines, 1);
    ck_assert_msg(strstr(logged, "model.json: ") != NULL, "no source in: %s", logged);
    ck_assert_msg(strstr(logged, message) != NULL, "expected: %s\ngot: %s", message, logged);
}

void refuses(const char *layers, const char *message)
{
    struct ls_graph *graph = NULL;
    const enum ls_status status = build_layers(&graph, layers);
    check_refusal(status, graph, message);
}

void refuses_model(const char *text, const char *message)
{
    struct ls_graph *graph = NULL;
    const enum ls_status status = build_text(text, NULL, &graph);
    check_refusal(status, graph, message);
}

const char *layer_shape(const struct ls_graph *graph, const char *name)
{
    static char text[128];
    for (uint32_t i = 0; i < graph->layer_count; i++)
        if (strcmp(graph->layers[i].name, name) == 0)
            return ls_shape_text(&graph->layers[i].output, text, sizeof(text));
    ck_abort_msg("no layer '%s'", name);
    return NULL;
}

const struct ls_tensor *parameter_of(const struct ls_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (strcmp(graph->parameters[i]->name, name) == 0)
            return graph->parameters[i];
    ck_abort_msg("no parameter '%s'", name);
    return NULL;
}

const char *parameter_shape(const struct ls_graph *graph, const char *name)
{
    static char text[128];
    return ls_shape_text(ls_variable_shape(parameter_of(graph, name)), text, sizeof(text));
}

uint64_t parameter_total(const struct ls_graph *graph)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < graph->layer_count; i++)
        total += graph->layers[i].parameters;
    return total;
}

uint32_t operation_total(const struct ls_graph *graph, uint32_t op)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < graph->operation_count; i++)
        total += graph->operations[i].op == op;
    return total;
}

const struct ls_operation *only_operation(const struct ls_graph *graph, uint32_t op)
{
    ck_assert_uint_eq(operation_total(graph, op), 1);
    for (uint32_t i = 0; i < graph->operation_count; i++)
        if (graph->operations[i].op == op)
            return &graph->operations[i];
    return NULL;
}
