// SPDX-License-Identifier: Apache-2.0
// Metrics of counts by class, and of points of a curve. Arithmetic as in keras.metrics.
#include "core/model/class_metrics.h"

#include <math.h>

#define KERAS_EPSILON 1e-7

struct rates {
    double right, wrong,
        missed; // predictions of a class that are right, that are wrong; targets that are not predicted
};

static struct rates rates_of(const struct ls_metric_source *source, const double *counts,
                             uint32_t class)
{
    const uint32_t classes = source->classes;
    struct rates rates = {0};

    if (source->counts.attributes.function == LS_METRIC_EACH_CLASS)
        return (struct rates){counts[3 * class], counts[3 * class + 1], counts[3 * class + 2]};
    if (source->counts.attributes.function ==
        LS_METRIC_CONFUSION) // class 0 is what is not positive
        return (struct rates){class ? counts[0] : counts[3], class ? counts[1] : counts[2],
                              class ? counts[2] : counts[1]};
    for (uint32_t i = 0; i < classes; i++) {
        rates.missed += i != class ? counts[class * classes + i] : 0;
        rates.wrong += i != class ? counts[i * classes + class] : 0;
    }
    rates.right = counts[class * classes + class];
    return rates;
}

static double fbeta(const struct rates *r, double beta)
{
    const double precision = r->right / (r->right + r->wrong + KERAS_EPSILON);
    const double recall = r->right / (r->right + r->missed + KERAS_EPSILON);
    const double both = beta * beta * precision + recall + KERAS_EPSILON;
    return precision * recall / both * (1 + beta * beta);
}

double ls_metric_fbeta(const struct ls_metric_source *source, const double *counts)
{
    struct rates all = {0};
    double sum = 0, targets = 0;

    for (uint32_t i = 0; i < source->classes; i++) {
        const struct rates one = rates_of(source, counts, i);
        const double weight = one.right + one.missed;
        all.right += one.right;
        all.wrong += one.wrong;
        all.missed += one.missed;
        sum += fbeta(&one, source->limit) * (source->average == LS_AVERAGE_WEIGHTED ? weight : 1);
        targets += weight;
    }
    switch (source->average) {
    case LS_AVERAGE_MICRO: return fbeta(&all, source->limit);
    case LS_AVERAGE_WEIGHTED: return sum / (targets + KERAS_EPSILON);
    default: return sum / source->classes;
    }
}

double ls_metric_union(const struct ls_metric_source *source, const double *counts)
{
    double sum = 0, valid = 0;

    for (uint32_t i = 0; i < source->classes; i++) {
        const struct rates one = rates_of(source, counts, i);
        const double all = one.right + one.wrong + one.missed;
        bool taken = source->class_count == 0;
        for (uint32_t k = 0; k < source->class_count; k++)
            taken = taken || source->class_ids[k] == i;
        if (!taken)
            continue;
        valid += all > 0;
        sum += one.right / (all + KERAS_EPSILON);
    }
    return valid > 0 ? sum / valid : 0;
}

static double quotient(double a, double b)
{
    return b > 0 ? a / b : 0; // as Keras divides them
}

double ls_metric_at(const struct ls_metric_source *source, const double *counts)
{
    const uint32_t points = source->counts.attributes.count;
    const double *positives = counts, *negatives = counts + points;
    double all = 0, none = 0, right = 0, wrong = 0, best = 0;

    for (uint32_t i = 0; i < points; i++) {
        all += positives[i];
        none += negatives[i];
    }
    for (uint32_t i = points; i-- > 0;) { // from the highest threshold to the lowest
        right += positives[i];
        wrong += negatives[i];
        const double recall = quotient(right, all), precision = quotient(right, right + wrong),
                     specificity = quotient(none - wrong, none);
        double value = 0, limited = 0;
        switch (source->kind) {
        case LS_METRIC_PRECISION_AT: value = precision, limited = recall; break;
        case LS_METRIC_RECALL_AT: value = recall, limited = precision; break;
        case LS_METRIC_SENSITIVITY_AT: value = recall, limited = specificity; break;
        default: value = specificity, limited = recall; break;
        }
        if (limited >= source->limit && value > best)
            best = value;
    }
    return best;
}

double ls_metric_r2(const struct ls_metric_source *source, const double *counts)
{
    const double regressors = source->limit;
    double sum = 0, weights = 0, elements = 0;

    for (uint32_t i = 0; i < source->classes; i++) {
        const double *sums = &counts[5 * i];
        const double spread = sums[1] - sums[0] * (sums[0] / sums[3]);
        const double score = 1 - sums[2] / spread,
                     weight = source->average == LS_AVERAGE_WEIGHTED ? spread : 1;
        sum += weight * (isinf(score) ? 0 : score);
        weights += weight;
        elements += sums[4];
    }
    const double score = sum / weights;
    if (regressors == 0 || regressors >= elements - 1)
        return score;
    return 1 - (1 - score) * (elements - 1) / (elements - regressors - 1);
}
