// SPDX-License-Identifier: Apache-2.0
// Cases of the losses: sums and gradients; equal predictions, certain and impossible ones, several
// positions per example.
#include "tools/conformance/device/suite.h"

#include <stdlib.h>

static const struct {
    uint32_t ndims;
    int64_t dims[4];
} shapes[] = {
    {2, {1, 2}},     {2, {5, 10}},       {2, {64, 10}},  {2, {7, 1000}},   {2, {2, 17}},
    {3, {2, 7, 10}}, {4, {3, 2, 5, 33}}, {2, {2100, 3}}, {3, {2, 300, 2}},
};

#define SHAPE_COUNT (sizeof(shapes) / sizeof(shapes[0]))

static struct ls_tensor_desc predictions_of(size_t shape)
{
    return ls_device_desc(LS_F32, shapes[shape].ndims, shapes[shape].dims);
}

static struct ls_tensor_desc labels_of(size_t shape)
{
    return ls_device_desc(LS_I32, shapes[shape].ndims - 1, shapes[shape].dims);
}

static int64_t classes_of(size_t shape)
{
    return shapes[shape].dims[shapes[shape].ndims - 1];
}

static void start(struct ls_device_case *c, uint32_t op, const char *name, size_t shape,
                  bool from_logits, enum ls_device_values values)
{
    const struct ls_tensor_desc desc = predictions_of(shape);
    const int64_t positions =
        (int64_t)ls_tensor_elements(&desc) / classes_of(shape) / shapes[shape].dims[0];
    ls_device_case_start(c, op, "%s B=%lld positions %lld classes %lld %s%s", name,
                         (long long)shapes[shape].dims[0], (long long)positions,
                         (long long)classes_of(shape),
                         from_logits ? "from logits" : "from probabilities",
                         values == LS_DEVICE_TIES ? " ties" : "");
    c->request.attributes = (struct ls_op_attributes){.from_logits = from_logits, .epsilon = 1e-7f};
    ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, desc), values);
    ls_device_case_draw_labels(c, ls_device_case_input(c, LS_DEVICE_PLAIN, labels_of(shape)),
                               classes_of(shape));
}

// A loss is a logarithm of a float32 near 1 at worst: 1e-6 for each example, beside the relative error.
static struct ls_device_tolerance sums_tolerance(int64_t examples)
{
    return (struct ls_device_tolerance){0, 1e-5, 1e-6 * (double)examples};
}

static void cross_entropy(struct ls_device_suite *suite, size_t shape, bool from_logits,
                          enum ls_device_values values, bool saved)
{
    struct ls_device_case c;
    start(&c, LS_OP_SPARSE_CROSS_ENTROPY,
          saved ? "sparse_cross_entropy" : "sparse_cross_entropy alone", shape, from_logits,
          values);
    ls_device_case_output(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, 4),
                          sums_tolerance(shapes[shape].dims[0]));
    if (saved)
        ls_device_case_output(&c, LS_DEVICE_SAVED, predictions_of(shape), LS_DEVICE_EXACT);
    ls_device_case_run(suite, &c);
}

static void cross_entropy_backward(struct ls_device_suite *suite, size_t shape, bool from_logits,
                                   enum ls_device_values values)
{
    struct ls_device_case c;
    start(&c, LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD, "sparse_cross_entropy_backward", shape,
          from_logits, values);
    ls_device_case_input(&c, LS_DEVICE_SAVED, predictions_of(shape));
    c.has_forward = c.saved_from_forward = true;
    c.forward = (struct ls_device_request){
        .op = LS_OP_SPARSE_CROSS_ENTROPY,
        .attributes = c.request.attributes,
        .input_count = 2,
        .output_count = 2,
        .arguments = {predictions_of(shape), labels_of(shape), LS_DEVICE_DESC(LS_F32, 4),
                      predictions_of(shape)},
    };
    c.forward_roles[0] = LS_DEVICE_ACTIVATION;
    c.forward_roles[3] = LS_DEVICE_SAVED;
    c.from_forward[0] = 1;
    c.from_forward[1] = 2;
    c.from_forward[2] = 4;
    ls_device_case_output(
        &c, LS_DEVICE_ACTIVATION, predictions_of(shape),
        (struct ls_device_tolerance){0, 1e-5, 1e-6 * (double)c.record.gradient_scale});
    ls_device_case_run(suite, &c);
}

static void squared_error(struct ls_device_suite *suite, size_t shape, bool backward)
{
    struct ls_device_case c;
    const struct ls_tensor_desc desc = predictions_of(shape);

    ls_device_case_start(
        &c, backward ? LS_OP_MEAN_SQUARED_ERROR_BACKWARD : LS_OP_MEAN_SQUARED_ERROR,
        "%s B=%lld of %llu", backward ? "mean_squared_error_backward" : "mean_squared_error",
        (long long)desc.dims[0],
        (unsigned long long)ls_tensor_elements(&desc) / (uint64_t)desc.dims[0]);
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc),
                        LS_DEVICE_UNIFORM);
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_PLAIN, desc), LS_DEVICE_UNIFORM);
    if (backward)
        ls_device_case_output(&c, LS_DEVICE_ACTIVATION, desc, LS_DEVICE_ROUNDED);
    else
        ls_device_case_output(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, 4),
                              sums_tolerance(desc.dims[0]));
    ls_device_case_run(suite, &c);
}

// ---- LS_OP_LOSS, LS_OP_POSITION_LOSS, LS_OP_MASKED_MEAN, LS_OP_METRIC: a device may lack them
// ----

static const struct {
    const char *name;
    uint32_t function;
    bool from_logits;
    enum ls_device_values predictions, targets; // labels where the loss is the sparse one
    float smoothing;
} losses[] = {
    {"sparse from logits", LS_LOSS_SPARSE, true, LS_DEVICE_WIDE, LS_DEVICE_LABELS, 0},
    {"sparse", LS_LOSS_SPARSE, false, LS_DEVICE_PROBABILITIES, LS_DEVICE_LABELS, 0},
    {"categorical from logits", LS_LOSS_CATEGORICAL, true, LS_DEVICE_WIDE, LS_DEVICE_PROBABILITIES,
     0.1f},
    {"categorical", LS_LOSS_CATEGORICAL, false, LS_DEVICE_PROBABILITIES, LS_DEVICE_PROBABILITIES,
     0},
    {"binary from logits", LS_LOSS_BINARY, true, LS_DEVICE_WIDE, LS_DEVICE_PROBABILITIES, 0.2f},
    {"binary", LS_LOSS_BINARY, false, LS_DEVICE_PROBABILITIES, LS_DEVICE_PROBABILITIES, 0},
    {"squared", LS_LOSS_SQUARED, false, LS_DEVICE_UNIFORM, LS_DEVICE_UNIFORM, 0},
    {"absolute", LS_LOSS_ABSOLUTE, false, LS_DEVICE_UNIFORM, LS_DEVICE_UNIFORM, 0},
    {"absolute of ties", LS_LOSS_ABSOLUTE, false, LS_DEVICE_TIES, LS_DEVICE_TIES, 0},
    {"percentage", LS_LOSS_PERCENTAGE, false, LS_DEVICE_UNIFORM, LS_DEVICE_NEGATIVE, 0},
    {"logarithmic", LS_LOSS_LOGARITHMIC, false, LS_DEVICE_PROBABILITIES, LS_DEVICE_PROBABILITIES,
     0},
    {"huber", LS_LOSS_HUBER, false, LS_DEVICE_UNIFORM, LS_DEVICE_UNIFORM, 0},
    {"log_cosh", LS_LOSS_LOG_COSH, false, LS_DEVICE_WIDE, LS_DEVICE_UNIFORM, 0},
    {"divergence", LS_LOSS_DIVERGENCE, false, LS_DEVICE_PROBABILITIES, LS_DEVICE_PROBABILITIES, 0},
    {"poisson", LS_LOSS_POISSON, false, LS_DEVICE_PROBABILITIES, LS_DEVICE_PROBABILITIES, 0},
    {"hinge", LS_LOSS_HINGE, false, LS_DEVICE_WIDE, LS_DEVICE_TIES, 0},
    {"squared hinge", LS_LOSS_SQUARED_HINGE, false, LS_DEVICE_UNIFORM, LS_DEVICE_UNIFORM, 0},
    {"categorical hinge", LS_LOSS_CATEGORICAL_HINGE, false, LS_DEVICE_UNIFORM, LS_DEVICE_UNIFORM,
     0},
    {"cosine", LS_LOSS_COSINE, false, LS_DEVICE_UNIFORM, LS_DEVICE_UNIFORM, 0},
    {"values", LS_LOSS_VALUES, false, LS_DEVICE_WIDE, LS_DEVICE_UNIFORM, 0},
};

static const struct {
    const char *name;
    uint32_t function, count;
    bool labels;
    int64_t counts; // -1: for each pair of classes, -3, -5: as many for each class
} metrics[] = {
    {"binary", LS_METRIC_BINARY, 0, false, 2},
    {"categorical", LS_METRIC_CATEGORICAL, 0, false, 2},
    {"categorical of labels", LS_METRIC_CATEGORICAL, 0, true, 2},
    {"top 3", LS_METRIC_TOP, 3, false, 2},
    {"top 2 of labels", LS_METRIC_TOP, 2, true, 2},
    {"confusion", LS_METRIC_CONFUSION, 0, false, 4},
    {"confusion of labels", LS_METRIC_CONFUSION, 0, true, 4},
    {"200 buckets", LS_METRIC_BUCKETS, 200, false, 400},
    {"5000 buckets", LS_METRIC_BUCKETS, 5000, false, 10000},
    {"classes", LS_METRIC_CLASSES, 0, false, -1},
    {"classes of labels", LS_METRIC_CLASSES, 0, true, -1},
    {"each class", LS_METRIC_EACH_CLASS, 0, false, -3},
    {"each class of labels", LS_METRIC_EACH_CLASS, 0, true, -3},
    {"squares", LS_METRIC_SQUARES, 0, false, -5},
    {"pearson", LS_METRIC_PEARSON, 0, false, 2},
    {"concordance", LS_METRIC_CONCORDANCE, 0, false, 2},
};

static void add_targets(struct ls_device_case *c, size_t shape, bool labels,
                        enum ls_device_values values)
{
    if (labels)
        ls_device_case_draw_labels(c, ls_device_case_input(c, LS_DEVICE_PLAIN, labels_of(shape)),
                                   classes_of(shape));
    else
        ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_PLAIN, predictions_of(shape)),
                            values);
}

// What weighs a loss.
enum weights { UNWEIGHTED, OF_EXAMPLES, OF_POSITIONS, OF_MASK, OF_EMPTY_MASK, WEIGHTS };
static const char *const weight_names[] = {"", " weighted", " with weights of positions",
                                           " with a mask", " with a mask that leaves nothing"};

// One for each position, many of them 0.
static void add_position_weights(struct ls_device_case *c, size_t shape)
{
    struct ls_tensor_desc desc = labels_of(shape);
    desc.dtype = LS_F32;
    ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_PLAIN, desc), LS_DEVICE_TIES);
}

// Those of a mask that leaves two of three positions, or none.
static void add_moments(struct ls_device_case *c, size_t shape, bool empty)
{
    const struct ls_tensor_desc labels = labels_of(shape);
    const double count = (double)ls_tensor_elements(&labels), left = empty ? 0 : count * 2 / 3;
    const uint32_t input = ls_device_case_input(c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F64, 3));
    double *values = c->values[input] = malloc(3 * sizeof(*values));
    if (!values)
        return;
    values[0] = values[1] = left;
    values[2] = count;
}

static void add_weights(struct ls_device_case *c, size_t shape, enum weights weights)
{
    if (weights == OF_EXAMPLES)
        ls_device_case_draw(
            c,
            ls_device_case_input(c, LS_DEVICE_PLAIN,
                                 LS_DEVICE_DESC(LS_F32, predictions_of(shape).dims[0])),
            LS_DEVICE_UNIFORM);
    if (weights >= OF_POSITIONS)
        add_position_weights(c, shape);
    if (weights >= OF_MASK)
        add_moments(c, shape, weights == OF_EMPTY_MASK);
}

static void loss_case(struct ls_device_suite *suite, size_t which, size_t shape,
                      enum weights weights, bool backward)
{
    struct ls_device_case c;
    const struct ls_tensor_desc desc = predictions_of(shape);
    ls_device_case_start(&c, backward ? LS_OP_LOSS_BACKWARD : LS_OP_LOSS, "%s %s B=%lld of %llu%s",
                         backward ? "loss_backward" : "loss", losses[which].name,
                         (long long)desc.dims[0],
                         (unsigned long long)ls_tensor_elements(&desc) / (uint64_t)desc.dims[0],
                         weight_names[weights]);
    c.request.attributes = (struct ls_op_attributes){.function = losses[which].function,
                                                     .from_logits = losses[which].from_logits,
                                                     .smoothing = losses[which].smoothing,
                                                     .threshold = 0.5f,
                                                     .epsilon = 1e-7f};
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc),
                        losses[which].predictions);
    add_targets(&c, shape, losses[which].targets == LS_DEVICE_LABELS, losses[which].targets);
    add_weights(&c, shape, weights);
    if (backward)
        ls_device_case_output(
            &c, LS_DEVICE_ACTIVATION, desc,
            (struct ls_device_tolerance){0, 2e-5, 1e-6 * (double)c.record.gradient_scale});
    else // weights have both signs, and percentages hundreds of roundings
        ls_device_case_output(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, 4),
                              (struct ls_device_tolerance){0, 1e-5, 1e-5 * (double)desc.dims[0]});
    ls_device_case_run(suite, &c);
}

// `backward`: dy is one a position.
static void position_case(struct ls_device_suite *suite, size_t which, size_t shape, bool backward)
{
    struct ls_device_case c;
    const struct ls_tensor_desc desc = predictions_of(shape);
    struct ls_tensor_desc positions = desc;
    positions.dims[positions.ndims - 1] = 1;
    ls_device_case_start(&c, backward ? LS_OP_POSITION_LOSS_BACKWARD : LS_OP_POSITION_LOSS,
                         "%s %s B=%lld of %llu",
                         backward ? "position_loss_backward" : "position_loss", losses[which].name,
                         (long long)desc.dims[0],
                         (unsigned long long)ls_tensor_elements(&desc) / (uint64_t)desc.dims[0]);
    c.request.attributes = (struct ls_op_attributes){.function = losses[which].function,
                                                     .from_logits = losses[which].from_logits,
                                                     .smoothing = losses[which].smoothing,
                                                     .threshold = 0.5f,
                                                     .epsilon = 1e-7f};
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc),
                        losses[which].predictions);
    add_targets(&c, shape, losses[which].targets == LS_DEVICE_LABELS, losses[which].targets);
    if (backward)
        ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, positions),
                            LS_DEVICE_UNIFORM);
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, backward ? desc : positions,
                          (struct ls_device_tolerance){0, 2e-5, 1e-5});
    ls_device_case_run(suite, &c);
}

// `backward`: dy is one an example.
static void masked_mean_case(struct ls_device_suite *suite, size_t shape, bool empty, bool backward)
{
    struct ls_device_case c;
    struct ls_tensor_desc positions = predictions_of(shape), examples = positions;
    positions.dims[positions.ndims - 1] = 1;
    examples.ndims = 2;
    examples.dims[1] = 1;
    ls_device_case_start(
        &c, backward ? LS_OP_MASKED_MEAN_BACKWARD : LS_OP_MASKED_MEAN, "%s B=%lld of %llu%s",
        backward ? "masked_mean_backward" : "masked_mean", (long long)positions.dims[0],
        (unsigned long long)ls_tensor_elements(&positions) / (uint64_t)positions.dims[0],
        empty ? ", of which nothing is left" : "");
    ls_device_case_draw(
        &c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, backward ? examples : positions),
        LS_DEVICE_UNIFORM);
    add_position_weights(&c, shape);
    add_moments(&c, shape, empty);
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, backward ? positions : examples,
                          (struct ls_device_tolerance){0, 2e-5, 1e-5});
    ls_device_case_run(suite, &c);
}

static void metric_case(struct ls_device_suite *suite, size_t which, size_t shape, bool weighted)
{
    struct ls_device_case c;
    const struct ls_tensor_desc desc = predictions_of(shape);
    ls_device_case_start(&c, LS_OP_METRIC, "metric %s B=%lld of %llu%s", metrics[which].name,
                         (long long)desc.dims[0],
                         (unsigned long long)ls_tensor_elements(&desc) / (uint64_t)desc.dims[0],
                         weighted ? " weighted" : "");
    c.request.attributes = (struct ls_op_attributes){
        .function = metrics[which].function, .count = metrics[which].count, .threshold = 0.2f};
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc),
                        LS_DEVICE_PROBABILITIES);
    add_targets(&c, shape, metrics[which].labels, LS_DEVICE_TIES);
    if (weighted)
        add_position_weights(&c, shape);
    const int64_t said = metrics[which].counts, classes = classes_of(shape);
    const int64_t counts = said > 0 ? said : said == -1 ? classes * classes : classes * -said;
    ls_device_case_output(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, counts),
                          weighted ? LS_DEVICE_SUM : LS_DEVICE_EXACT);
    ls_device_case_run(suite, &c);
}

static bool offers(struct ls_device_suite *suite, const char *name, uint32_t op)
{
    const struct ls_device_request request = {
        .op = op,
        .attributes = {.function = op == LS_OP_METRIC ? LS_METRIC_BINARY : LS_LOSS_ABSOLUTE,
                       .epsilon = 1e-7f},
        .input_count = 2,
        .output_count = 1,
        .arguments = {LS_DEVICE_DESC(LS_F32, 2, 3), LS_DEVICE_DESC(LS_F32, 2, 3),
                      op == LS_OP_LOSS_BACKWARD ? LS_DEVICE_DESC(LS_F32, 2, 3)
                      : op == LS_OP_POSITION_LOSS
                          ? LS_DEVICE_DESC(LS_F32, 2, 1)
                          : LS_DEVICE_DESC(LS_F32, op == LS_OP_LOSS ? 4 : 2)}};
    return (!suite->dtype || ls_device_takes_halves(suite, op)) &&
           ls_device_operation_offered(suite, name, &request);
}

// Whether the device takes a weight for each position, and moments; a device may lack that, too.
static bool offers_masks(struct ls_device_suite *suite)
{
    const struct ls_device_request request = {
        .op = LS_OP_LOSS,
        .attributes = {.function = LS_LOSS_ABSOLUTE, .epsilon = 1e-7f},
        .input_count = 4,
        .output_count = 1,
        .arguments = {LS_DEVICE_DESC(LS_F32, 2, 3, 4), LS_DEVICE_DESC(LS_F32, 2, 3, 4),
                      LS_DEVICE_DESC(LS_F32, 2, 3), LS_DEVICE_DESC(LS_F64, 3),
                      LS_DEVICE_DESC(LS_F32, 4)}};
    return ls_device_operation_offered(suite, "loss with a mask", &request);
}

static bool offers_masked_means(struct ls_device_suite *suite)
{
    const struct ls_device_request request = {
        .op = LS_OP_MASKED_MEAN,
        .input_count = 3,
        .output_count = 1,
        .arguments = {LS_DEVICE_DESC(LS_F32, 2, 3, 1), LS_DEVICE_DESC(LS_F32, 2, 3),
                      LS_DEVICE_DESC(LS_F64, 3), LS_DEVICE_DESC(LS_F32, 2, 1)}};
    return !suite->dtype && ls_device_operation_offered(suite, "masked_mean", &request);
}

// Whether it counts by classes, which a device may lack as well.
static bool offers_classes(struct ls_device_suite *suite)
{
    const struct ls_device_request request = {.op = LS_OP_METRIC,
                                              .attributes = {.function = LS_METRIC_CLASSES},
                                              .input_count = 2,
                                              .output_count = 1,
                                              .arguments = {LS_DEVICE_DESC(LS_F32, 2, 3),
                                                            LS_DEVICE_DESC(LS_F32, 2, 3),
                                                            LS_DEVICE_DESC(LS_F32, 9)}};
    return ls_device_operation_offered(suite, "metric of classes", &request);
}

static void masked_means(struct ls_device_suite *suite)
{
    static const size_t some[] = {0, 3, 5, 6, 8}; // of the shapes: 1, 7, 10 and 300 positions
    const bool offered = offers_masked_means(suite);
    for (size_t i = 0; offered && i < sizeof(some) / sizeof(some[0]); i++)
        for (int k = 0; k < 4; k++)
            masked_mean_case(suite, some[i], k / 2, k % 2);
}

static void more_losses(struct ls_device_suite *suite)
{
    static const size_t few[] = {0, 1, 3, 5, 7}; // of the shapes
    const bool forward = offers(suite, "loss", LS_OP_LOSS);
    const bool backward = offers(suite, "loss_backward", LS_OP_LOSS_BACKWARD);
    const bool counts = offers(suite, "metric", LS_OP_METRIC);
    const bool positions = offers(suite, "position_loss", LS_OP_POSITION_LOSS);
    const bool masks = forward && offers_masks(suite), classes = counts && offers_classes(suite);
    const size_t kinds = masks ? WEIGHTS : OF_POSITIONS;
    for (size_t i = 0; i < sizeof(few) / sizeof(few[0]); i++) {
        for (size_t k = 0; k < sizeof(losses) / sizeof(losses[0]); k++) {
            if (forward)
                loss_case(suite, k, few[i], (enum weights)((i + k) % kinds), false);
            if (backward)
                loss_case(suite, k, few[i], (enum weights)((i + k) % kinds), true);
            if (positions)
                position_case(suite, k, few[i], (i + k) % 2);
            if (positions)
                position_case(suite, k, few[i], (i + k) % 2 == 0);
        }
        for (size_t k = 0; counts && k < sizeof(metrics) / sizeof(metrics[0]); k++)
            if (classes || metrics[k].function < LS_METRIC_CLASSES)
                metric_case(suite, k, few[i], masks && (i + k) % 2);
    }
}

void ls_device_loss_cases(struct ls_device_suite *suite)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        cross_entropy(suite, i, true, LS_DEVICE_WIDE, true);
        cross_entropy(suite, i, true, LS_DEVICE_TIES, i % 2);
        cross_entropy(suite, i, false, LS_DEVICE_PROBABILITIES, true);
        cross_entropy_backward(suite, i, true, LS_DEVICE_WIDE);
        cross_entropy_backward(suite, i, false, LS_DEVICE_PROBABILITIES);
        squared_error(suite, i, false);
        squared_error(suite, i, true);
    }
    more_losses(suite);
    masked_means(suite);
}
