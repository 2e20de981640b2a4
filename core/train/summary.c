// SPDX-License-Identifier: Apache-2.0
// A model as a table, as Keras prints it.
#include "core/train/model.h"

#include <string.h>

#define NAME_LETTERS 34
#define SHAPE_LETTERS 24
#define COUNT_LETTERS 12

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

static void print_rule(FILE *out, char letter)
{
    for (int i = 0; i < NAME_LETTERS + SHAPE_LETTERS + COUNT_LETTERS + 2; i++)
        fputc(letter, out);
    fputc('\n', out);
}

void ls_model_summary(const struct ls_model *model, FILE *out)
{
    char shape[96], label[160], count[32], bytes[32];
    fprintf(out, "Model: \"%s\"\n", model->graph->name);
    print_rule(out, '_');
    fprintf(out, "%-*s %-*s %*s\n", NAME_LETTERS, "Layer (type)", SHAPE_LETTERS, "Output Shape",
            COUNT_LETTERS, "Param #");
    print_rule(out, '=');
    for (uint32_t i = 0; i < model->graph->layer_count; i++) {
        const struct ls_graph_layer *layer = &model->graph->layers[i];
        if (strcmp(layer->class_name, "InputLayer") == 0)
            continue; // as in Keras, whose table begins with the first layer that computes
        snprintf(label, sizeof(label), "%s (%s)", layer->name, layer->class_name);
        fprintf(out, "%-*s %-*s %*s\n", NAME_LETTERS, label, SHAPE_LETTERS,
                ls_shape_text(&layer->output, shape, sizeof(shape)), COUNT_LETTERS,
                grouped(layer->parameters, count));
    }
    print_rule(out, '=');
    const uint64_t parameters = ls_model_parameters(model);
    fprintf(out, "Total params: %s (%s bytes)\n", grouped(parameters, count),
            grouped(4 * parameters, bytes));
}
