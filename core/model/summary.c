// SPDX-License-Identifier: Apache-2.0
// A model as a table, as Keras prints it, and as the JSON from which it was made.
#include "core/model/model.h"

#include "core/base/log.h"

#include <errno.h>
#include <string.h>

#define NAME_LETTERS 34 // at least
#define MOST_NAME_LETTERS 72
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

struct table {
    FILE *out;
    int name_letters;
    bool connected; // has the column "Connected to"
};

static void print_rule(const struct table *table, char letter)
{
    const int letters = table->name_letters + SHAPE_LETTERS + COUNT_LETTERS + 2;
    for (int i = 0; i < letters + (table->connected ? 2 + CONNECTED_LETTERS : 0); i++)
        fputc(letter, table->out);
    fputc('\n', table->out);
}

static void print_layer(const struct table *table, const struct ls_graph_layer *layer)
{
    char shape[96], label[512], count[32];
    snprintf(label, sizeof(label), "%s (%s)", layer->name, layer->class_name);
    fprintf(table->out, "%-*s %-*s %*s", table->name_letters, label, SHAPE_LETTERS,
            ls_shape_text(&layer->output, shape, sizeof(shape)), COUNT_LETTERS,
            grouped(layer->parameters, count));
    fprintf(table->out, "%s%s\n", layer->connected ? "  " : "",
            layer->connected ? layer->connected : "");
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
    struct table table = {.out = out, .name_letters = NAME_LETTERS};
    uint64_t parameters = 0, untrained = 0;
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        const struct ls_graph_layer *layer = &graph->layers[i];
        const size_t letters = strlen(layer->name) + strlen(layer->class_name) + 3;
        parameters += layer->parameters;
        untrained += layer->untrained;
        table.connected |= layer->connected != NULL;
        if (letters > (size_t)table.name_letters)
            table.name_letters = letters < MOST_NAME_LETTERS ? (int)letters : MOST_NAME_LETTERS;
    }
    fprintf(out, "Model: \"%s\"\n", graph->name);
    print_rule(&table, '_');
    fprintf(out, "%-*s %-*s %*s%s\n", table.name_letters, "Layer (type)", SHAPE_LETTERS,
            "Output Shape", COUNT_LETTERS, "Param #", table.connected ? "  Connected to" : "");
    print_rule(&table, '=');
    // As in Keras, the table of a chain begins with the first layer that computes.
    for (uint32_t i = 0; i < graph->layer_count; i++)
        if (table.connected || strcmp(graph->layers[i].class_name, "InputLayer") != 0)
            print_layer(&table, &graph->layers[i]);
    print_rule(&table, '=');
    print_total(out, "Total params", parameters);
    print_total(out, "Trainable params", parameters - untrained);
    print_total(out, "Non-trainable params", untrained);
}

enum ls_status ls_model_write_json(const struct ls_model *model, FILE *out)
{
    errno = 0;
    if (json_dumpf(model->json, out, JSON_COMPACT) == 0 && fflush(out) == 0 && !ferror(out))
        return LS_OK;
    ls_error("model", "the stream does not take the JSON of '%s': %s", model->source,
             errno ? strerror(errno) : "an earlier write failed");
    return LS_FAILED;
}
