// SPDX-License-Identifier: Apache-2.0
// Weights of examples, made batch by batch.
#include "core/train/weighting.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum ls_status refuse(const char *text)
{
    ls_error("--class-weight",
             "'%s': expected CLASS:WEIGHT pairs with commas between them, such as 0:1.0,1:2.5",
             text);
    return LS_USAGE;
}

static enum ls_status read_pair(const char *text, const char *pair, size_t length,
                                struct ls_weighting *out)
{
    char word[64];
    int64_t class;
    double weight;
    snprintf(word, sizeof(word), "%.*s", (int)(length < 63 ? length : 63), pair);
    char *colon = strchr(word, ':');
    if (!colon)
        return refuse(text);
    *colon = '\0';
    if (!ls_parse_integer(word, &class) || !ls_parse_number(colon + 1, &weight) ||
        !(weight >= 0 && isfinite((float)weight)))
        return refuse(text);
    if (class < 0 || class >= (int64_t)out->class_count) {
        ls_error("--class-weight", "there is no class %s: the model tells %u apart, from 0", word,
                 out->class_count);
        return LS_USAGE;
    }
    if (out->classes[class] >= 0) {
        ls_error("--class-weight", "'%s': class %s has two weights", text, word);
        return LS_USAGE;
    }
    out->classes[class] = (float)weight;
    return LS_OK;
}

enum ls_status ls_weighting_set(struct ls_weighting *weighting, const char *text,
                                const struct ls_graph *graph)
{
    const struct ls_shape *output = &graph->outputs[0]->shape, *label = &graph->labels[0]->shape;
    const int64_t units = output->dims[output->ndims - 1];
    const bool labels = graph->labels[0]->dtype == LS_I32;
    enum ls_status status = LS_OK;
    if (graph->output_count > 1) {
        ls_error("--class-weight",
                 "the model has %u outputs, and it takes one; give a weight to each example by "
                 "sample_weight=",
                 graph->output_count);
        return LS_USAGE;
    }
    if (ls_shape_elements(label, 1) != (labels ? 1 : units)) {
        ls_error("--class-weight", "the model has several positions an example; give a weight to "
                                   "each example by sample_weight=");
        return LS_USAGE;
    }
    ls_weighting_clear(weighting);
    weighting->class_count = units == 1 ? 2 : (uint32_t)units;
    weighting->classes = malloc(weighting->class_count * sizeof(*weighting->classes));
    if (!weighting->classes)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < weighting->class_count; i++)
        weighting->classes[i] = -1; // none yet
    for (const char *at = text; !status; at++) {
        const size_t length = strcspn(at, ",");
        status = read_pair(text, at, length, weighting);
        at += length;
        if (!*at)
            break;
    }
    for (uint32_t i = 0; i < weighting->class_count; i++)
        if (weighting->classes[i] < 0)
            weighting->classes[i] = 1;
    return status;
}

void ls_weighting_clear(struct ls_weighting *weighting)
{
    free(weighting->classes);
    weighting->classes = NULL;
}

enum ls_status ls_weighting_init(struct ls_weighting *weighting, uint32_t replicas)
{
    weighting->buffers = calloc(replicas, sizeof(*weighting->buffers));
    weighting->count = weighting->buffers ? replicas : 0;
    return weighting->buffers ? LS_OK : LS_OUT_OF_MEMORY;
}

void ls_weighting_finish(struct ls_weighting *weighting)
{
    ls_weighting_clear(weighting);
    for (uint32_t i = 0; i < weighting->count; i++)
        free(weighting->buffers[i].weights);
    free(weighting->buffers);
    *weighting = (struct ls_weighting){0};
}

// The class of an example: its label, or where its target is largest.
static int64_t class_of(const struct ls_graph *graph, const void *labels, uint64_t example)
{
    const int64_t units = ls_shape_elements(&graph->labels[0]->shape, 1);
    const float *targets = (const float *)labels + example * (uint64_t)units;
    int64_t best = 0;
    if (graph->labels[0]->dtype == LS_I32)
        return ((const int32_t *)labels)[example];
    if (units == 1)
        return targets[0] > -1 && targets[0] < 2 ? (int64_t)rintf(targets[0]) : -1; // 0.5 is 0
    for (int64_t i = 1; i < units; i++)
        best = targets[i] > targets[best] ? i : best;
    return best;
}

enum ls_status ls_weighting_apply(struct ls_weighting *weighting, uint32_t replica,
                                  const struct ls_graph *graph, struct ls_replica_batch *batch)
{
    struct ls_weighting_buffer *buffer = &weighting->buffers[replica];
    if (!graph->weights || batch->count == 0 || (batch->weights && !weighting->classes))
        return LS_OK;
    if (buffer->room < batch->count) {
        free(buffer->weights);
        buffer->room = 0;
        buffer->weights =
            aligned_alloc(LS_ALIGNMENT, (batch->count * sizeof(float) + LS_ALIGNMENT - 1) /
                                            LS_ALIGNMENT * LS_ALIGNMENT);
        if (!buffer->weights)
            return LS_OUT_OF_MEMORY;
        buffer->room = batch->count;
    }
    for (uint64_t i = 0; i < batch->count; i++) {
        const int64_t class =
            weighting->classes && batch->labels[0] ? class_of(graph, batch->labels[0], i) : -1;
        const bool named = class >= 0 && class < (int64_t)weighting->class_count;
        buffer->weights[i] =
            (batch->weights ? batch->weights[i] : 1) * (named ? weighting->classes[class] : 1);
    }
    batch->weights = buffer->weights;
    return LS_OK;
}
