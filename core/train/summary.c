// SPDX-License-Identifier: Apache-2.0
// A model as a table, as Keras prints it.
#include "core/train/model.h"

#include <string.h>

#define NAME_LETTERS 34
#define SHAPE_LETTERS 24
#define COUNT_LETTERS 12
#define CONNECTED_LETTERS 28

// 225,034; `text` has room for 32 letters.
static const char *grouped(uint64_t value, char *text)
{
    char digits[24];
    const int length = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
    char *to = text;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return text;
}

static void print_rule(FILE *out, char letter, bool connected)
{
    const int letters = NAME_LETTERS + SHAPE_LETTERS + COUNT_LETTERS + 2;
    for (int i = 0; i < letters + (connected ? 2 + CONNECTED_LETTERS : 0); i++)
        fputc(letter, out);
    fputc('\n', out);
}

static void print_layer(FILE *out, const struct ls_graph_layer *layer)
{
    char shape[96], label[512], count[32];
    snprintf(label, sizeof(label), "%s (%s)", layer->name, layer->class_name);
    fprintf(out, "%-*s %-*s %*s", NAME_LETTERS, label, SHAPE_LETTERS,
            ls_shape_text(&layer->output, shape, sizeof(shape)), COUNT_LETTERS,
            grouped(layer->parameters, count));
    fprintf(out, "%s%s\n", layer->connected ? "  " : "", layer->connected ? layer->connected : "");
}

static void print_total(FILE *out, const char *what, uint64_t parameters)
{
    char count[32], bytes[32];
    fprintf(out, "%s: %s (%s bytes)\n", what, grouped(parameters, count),
            grouped(4 * parameters, bytes));
}

void ls_model_summary(const struct ls_model *model, FILE *out)
{
    const struct ls_graph *graph = model->graph;
    uint64_t parameters = 0, untrained = 0;
    bool connected = false;
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        parameters += graph->layers[i].parameters;
        untrained += graph->layers[i].untrained;
        connected |= graph->layers[i].connected != NULL;
    }
    fprintf(out, "Model: \"%s\"\n", graph->name);
    print_rule(out, '_', connected);
    fprintf(out, "%-*s %-*s %*s%s\n", NAME_LETTERS, "Layer (type)", SHAPE_LETTERS, "Output Shape",
            COUNT_LETTERS, "Param #", connected ? "  Connected to" : "");
    print_rule(out, '=', connected);
    // As in Keras, the table of a chain begins with the first layer that computes.
    for (uint32_t i = 0; i < graph->layer_count; i++)
        if (connected || strcmp(graph->layers[i].class_name, "InputLayer") != 0)
            print_layer(out, &graph->layers[i]);
    print_rule(out, '=', connected);
    print_total(out, "Total params", parameters);
    print_total(out, "Trainable params", parameters - untrained);
    print_total(out, "Non-trainable params", untrained);
}
