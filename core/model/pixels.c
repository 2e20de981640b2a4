// SPDX-License-Identifier: Apache-2.0
// Finds pixels that nothing scales.
#include "core/model/pixels.h"

#include "core/base/log.h"

#define LOOKED_AT 32 // examples
#define LEAST_PIXELS 64 // of an example
#define BRIGHT 128 // one of them at least is brighter

// Integers from 0 to 255, some of them large.
static bool are_pixels(const struct ls_field *field, uint64_t count)
{
    const uint64_t elements = ls_field_elements(field);
    bool bright = false;
    if (field->divisor != 1 || elements < LEAST_PIXELS ||
        (field->dtype != LS_U8 && field->dtype != LS_F32))
        return false;
    if (!field->values) // decoded when they are needed
        return field->dtype == LS_U8 && field->ndims == 3;
    for (uint64_t i = 0; i < count && i < LOOKED_AT; i++) {
        const char *example = (const char *)field->values + i * field->stride;
        for (uint64_t k = 0; k < elements; k++) {
            const float value = field->dtype == LS_U8 ? (float)((const uint8_t *)example)[k]
                                                      : ((const float *)(const void *)example)[k];
            if (!(value >= 0 && value <= 255) || value != (float)(uint8_t)value)
                return false;
            bright = bright || value > BRIGHT;
        }
    }
    return bright;
}

static const struct ls_operation *reader_of(const struct ls_graph *graph,
                                            const struct ls_tensor *tensor)
{
    for (uint32_t i = 0; i < graph->operation_count; i++)
        for (uint32_t k = 0; k < graph->operations[i].input_count; k++)
            if (graph->operations[i].inputs[k] == tensor && !graph->operations[i].backward &&
                graph->operations[i].op != LS_OP_DRAW) // which reads no values
                return &graph->operations[i];
    return NULL;
}

// Whether the first operation that changes the values multiplies them by weights.
static bool reach_weights(const struct ls_graph *graph)
{
    const struct ls_tensor *tensor = graph->input_count ? graph->inputs[0] : NULL;
    const struct ls_operation *operation;
    while (tensor && (operation = reader_of(graph, tensor))) {
        switch (operation->op) {
        case LS_OP_RESHAPE:
        case LS_OP_CONVERT:
        case LS_OP_FROM_BYTES:
        case LS_OP_PAD:
        case LS_OP_TRANSPOSE:
        case LS_OP_SLICE:
        case LS_OP_DROPOUT:
        case LS_OP_RESIZE2D:
        case LS_OP_RESAMPLE:
        case LS_OP_RECOLOUR:
        case LS_OP_ERASE:
        case LS_OP_UPSAMPLE2D: tensor = operation->outputs[0]; break;
        case LS_OP_CONV2D:
        case LS_OP_CONV2D_TRANSPOSE:
        case LS_OP_DENSE: return true;
        default: return false;
        }
    }
    return false;
}

void ls_model_warn_of_pixels(struct ls_model *model, const char *data_text,
                             const struct ls_dataset *dataset)
{
    const struct ls_field *input =
        ls_field_find(dataset->fields, dataset->field_count, LS_FIELD_INPUT, 0);
    if (model->told_of_pixels || !input || !reach_weights(model->graph) ||
        !are_pixels(input, dataset->count))
        return;
    model->told_of_pixels = true;
    ls_warn("data",
            "'%s' has numbers from 0 to 255, as pixels of images are, and nothing in model '%s' "
            "scales them; divide them by 255 (images are, without divisor=1), or begin the model "
            "with Rescaling(1/255)",
            data_text, model->source);
}
