// SPDX-License-Identifier: Apache-2.0
// Cases of every fusion pattern that the tested device declares: the producer with its epilogue, against
// the reference device, which runs the operation and then the element-wise function.
#include "tools/conformance/device/suite.h"

static void fused(struct ls_device_suite *suite, uint32_t producer,
                  const struct ls_device_epilogue *epilogue)
{
    switch (producer) {
    case LS_OP_CONV2D:
    case LS_OP_CONV2D_BACKWARD_DATA:
    case LS_OP_CONV2D_BACKWARD_WEIGHTS:
        ls_device_convolution_cases(suite, producer, epilogue);
        break;
    case LS_OP_DENSE:
    case LS_OP_DENSE_BACKWARD_DATA:
    case LS_OP_DENSE_BACKWARD_WEIGHTS: ls_device_dense_cases(suite, producer, epilogue); break;
    case LS_OP_MAX_POOL2D:
    case LS_OP_MAX_POOL2D_BACKWARD:
    case LS_OP_AVERAGE_POOL2D:
    case LS_OP_AVERAGE_POOL2D_BACKWARD: ls_device_pooling_cases(suite, producer, epilogue); break;
    case LS_OP_ACTIVATION:
    case LS_OP_ACTIVATION_BACKWARD:
    case LS_OP_SOFTMAX:
    case LS_OP_SOFTMAX_BACKWARD:
    case LS_OP_ADD: ls_device_elementwise_cases(suite, producer, epilogue); break;
    case LS_OP_BATCH_NORMALIZATION:
    case LS_OP_BATCH_NORMALIZATION_INFERENCE:
        ls_device_batch_normalization_cases(suite, producer, epilogue);
        break;
    case LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED:
        ls_device_synchronized_forward_cases(suite, epilogue);
        break;
    default: break;
    }
}

static bool normalizes(const struct ls_fusion_pattern *pattern)
{
    return pattern->producer == LS_OP_BATCH_NORMALIZATION ||
           pattern->producer == LS_OP_BATCH_NORMALIZATION_INFERENCE ||
           pattern->producer == LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED;
}

// Operations whose activations are float32 by themselves, but for the losses.
static bool is_cast(const struct ls_fusion_pattern *pattern)
{
    const uint32_t op = pattern->consumer;
    return (op >= LS_OP_LAYER_NORMALIZATION && op <= LS_OP_PENALTY_BACKWARD) ||
           (op >= LS_OP_SPARSE_CROSS_ENTROPY && op <= LS_OP_MEAN_SQUARED_ERROR_BACKWARD) ||
           (op >= LS_OP_LOSS && op <= LS_OP_METRIC);
}

static bool is_offered(struct ls_device_suite *suite, uint32_t producer)
{
    return producer == LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED
               ? ls_device_synchronized_offered(suite)
               : ls_device_batch_normalization_offered(suite, producer);
}

// Whether fused() has cases of the producer with such an epilogue. What is added to a batch normalization is its addend, which
// the cases of the operation itself have; its backward operation has no argument left for an epilogue's.
static bool is_known(const struct ls_fusion_pattern *pattern)
{
    if (normalizes(pattern))
        return pattern->consumer != LS_OP_ACTIVATION_BACKWARD;
    return pattern->consumer != LS_OP_ADD && pattern->producer >= LS_OP_CONV2D &&
           pattern->producer <= LS_OP_ADD && pattern->producer != LS_OP_DROPOUT &&
           pattern->producer != LS_OP_RESHAPE;
}

// A pattern that says something the host would not understand, or of an operation that the device has not, is a failure of its own.
static void pattern_case(struct ls_device_suite *suite, const struct ls_fusion_pattern *pattern,
                         uint32_t number)
{
    const bool cast = pattern->producer == LS_OP_CONVERT;
    const uint32_t known =
        cast || pattern->consumer == LS_OP_ADD ? 0 : (1u << LS_ACTIVATION_COUNT) - 1;
    char name[64];

    snprintf(name, sizeof(name), "fusion pattern %u is well-formed", number);
    if (!ls_device_suite_begin(suite, name))
        return;
    if (cast && !is_cast(pattern))
        ls_device_suite_fail(suite, "operation %u has no casts that a device takes",
                             pattern->consumer);
    else if (!cast && pattern->consumer != LS_OP_ACTIVATION &&
             pattern->consumer != LS_OP_ACTIVATION_BACKWARD && pattern->consumer != LS_OP_ADD)
        ls_device_suite_fail(suite, "consumer %u is no element-wise operation", pattern->consumer);
    else if (!cast && !is_known(pattern))
        ls_device_suite_fail(suite,
                             "producer %u with consumer %u is not one that this suite can try",
                             pattern->producer, pattern->consumer);
    else if ((known && !pattern->activations) || pattern->activations & ~known)
        ls_device_suite_fail(suite, "activations %x are none or unknown", pattern->activations);
    else if (normalizes(pattern) && !is_offered(suite, pattern->producer))
        ls_device_suite_fail(suite, "producer %u is refused by itself: %s", pattern->producer,
                             suite->tested->message);
    ls_device_suite_end(suite, name, NULL);
}

void ls_device_fusion_cases(struct ls_device_suite *suite)
{
    const struct ls_device_interface *d = suite->tested->interface;

    for (uint32_t i = 0; i < d->pattern_count; i++) {
        const struct ls_fusion_pattern *pattern = &d->patterns[i];
        if (!suite->dtype)
            pattern_case(suite, pattern, i);
        for (uint32_t a = 0; a < LS_ACTIVATION_COUNT; a++) { // of casts none: layers.c, loss.c
            const struct ls_device_epilogue epilogue = {.op = pattern->consumer, .activation = a};
            if (pattern->activations >> a & 1)
                fused(suite, pattern->producer, &epilogue);
        }
    }
}
