// SPDX-License-Identifier: Apache-2.0
// Losses and their gradients. The loss of an example is the mean over its positions (elements, for the
// squared error); `sums` are added over examples, the division by the global batch is gradient_scale.
#include "plugins/device/reference/reference.h"

#include <math.h>

// ---- Cross-entropy with one label for each position ----
// predictions: (B,...,C) F32, labels: (B,...) I32, saved: as predictions
//
// From logits: q = softmax(p). From probabilities, as keras.losses does on TensorFlow: c = p clipped to
// [epsilon, 1 - epsilon], q = c / sum of c, which is softmax(log c). Loss -log(q[label]).
// Hence dloss/dp_i = q_i - [i = label] from logits; from probabilities that divided by c_i, and zero
// where p_i lies outside of the clip range. `saved` is q.

struct cross_entropy {
    int64_t examples, positions, classes; // positions of each example
};

static struct cross_entropy cross_entropy_of(const struct ls_tensor_desc *predictions)
{
    const int64_t classes = predictions->dims[predictions->ndims - 1];
    const int64_t examples = predictions->ndims > 1 ? predictions->dims[0] : 1;
    return (struct cross_entropy){
        .examples = examples,
        .positions = (int64_t)ls_tensor_elements(predictions) / classes / examples,
        .classes = classes,
    };
}

static double clipped(const struct ls_op_attributes *attributes, double p)
{
    const double low = (double)attributes->epsilon, high = 1 - (double)attributes->epsilon;
    return p < low ? low : p > high ? high : p;
}

// q of one position
static void distribution(const struct ls_op_attributes *attributes, const float *p, int64_t classes,
                         double *q)
{
    double largest = (double)p[0], sum = 0;
    for (int64_t i = 1; i < classes; i++)
        largest = fmax(largest, (double)p[i]);
    for (int64_t i = 0; i < classes; i++)
        sum += q[i] = attributes->from_logits ? exp((double)p[i] - largest)
                                              : clipped(attributes, (double)p[i]);
    for (int64_t i = 0; i < classes; i++)
        q[i] /= sum;
}

// -log(q[label]) without ever taking the logarithm of a q that became zero
static double position_loss(const struct ls_op_attributes *attributes, const float *p,
                            int64_t classes, int32_t label)
{
    if (label < 0 || label >= classes)
        return NAN;
    double largest = (double)p[0], sum = 0;
    for (int64_t i = 1; i < classes; i++)
        largest = fmax(largest, (double)p[i]);
    for (int64_t i = 0; i < classes; i++)
        sum += attributes->from_logits ? exp((double)p[i] - largest)
                                       : clipped(attributes, (double)p[i]);
    return attributes->from_logits ? log(sum) - ((double)p[label] - largest)
                                   : log(sum) - log(clipped(attributes, (double)p[label]));
}

static bool position_is_right(const float *p, int64_t classes, int32_t label)
{
    int64_t best = 0;
    for (int64_t i = 1; i < classes; i++)
        if (p[i] > p[best])
            best = i;
    return best == label;
}

// predictions, labels -> sums, saved
void reference_sparse_cross_entropy(const struct reference_call *call)
{
    const struct cross_entropy e = cross_entropy_of(&call->input_descs[0]);
    const int32_t *labels = call->inputs[1];
    double *sums = call->results[0];

    for (int64_t i = 0; i < e.examples * e.positions; i++) {
        const float *p = (const float *)call->inputs[0] + i * e.classes;
        sums[0] += position_loss(call->attributes, p, e.classes, labels[i]) / (double)e.positions;
        sums[1] += position_is_right(p, e.classes, labels[i]) / (double)e.positions;
        if (call->output_count == 2)
            distribution(call->attributes, p, e.classes, call->results[1] + i * e.classes);
    }
    sums[2] = (double)e.examples;
}

// predictions, labels, saved -> dpredictions
void reference_sparse_cross_entropy_backward(const struct reference_call *call)
{
    const struct ls_op_attributes *attributes = call->attributes;
    const struct cross_entropy e = cross_entropy_of(&call->input_descs[0]);
    const float *predictions = call->inputs[0], *q = call->inputs[2];
    const int32_t *labels = call->inputs[1];
    const double scale = (double)call->record->gradient_scale / (double)e.positions;

    for (int64_t i = 0; i < e.examples * e.positions * e.classes; i++) {
        const int32_t label = labels[i / e.classes];
        const double p = (double)predictions[i];
        double gradient =
            label < 0 || label >= e.classes ? NAN : (double)q[i] - (i % e.classes == label ? 1 : 0);
        if (!attributes->from_logits)
            gradient = clipped(attributes, p) == p ? gradient / p : 0;
        call->results[0][i] = gradient * scale;
    }
}

// ---- Mean squared error ----

// predictions, targets -> sums; nothing counts as right
void reference_mean_squared_error(const struct reference_call *call)
{
    const float *predictions = call->inputs[0], *targets = call->inputs[1];
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[0]);
    const int64_t examples = call->input_descs[0].dims[0], elements = count / examples;
    double *sums = call->results[0];

    for (int64_t i = 0; i < count; i++) {
        const double difference = (double)predictions[i] - (double)targets[i];
        sums[0] += difference * difference / (double)elements;
    }
    sums[2] = (double)examples;
}

// predictions, targets -> dpredictions = 2 (p - t) / elements
void reference_mean_squared_error_backward(const struct reference_call *call)
{
    const float *predictions = call->inputs[0], *targets = call->inputs[1];
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[0]);
    const int64_t elements = count / call->input_descs[0].dims[0];
    const double scale = (double)call->record->gradient_scale * 2 / (double)elements;

    for (int64_t i = 0; i < count; i++)
        call->results[0][i] = ((double)predictions[i] - (double)targets[i]) * scale;
}
