// SPDX-License-Identifier: Apache-2.0
// The device suite from end to end: opens both devices and runs the cases group by group.
#include "tools/conformance/device.h"

#include "core/base/log.h"
#include "tools/conformance/device/suite.h"

// What half types have, too.
static void run_operations(struct ls_device_suite *suite)
{
    for (uint32_t op = LS_OP_CONV2D; op <= LS_OP_CONV2D_BACKWARD_WEIGHTS; op++)
        ls_device_convolution_cases(suite, op, NULL);
    for (uint32_t op = LS_OP_DENSE; op <= LS_OP_DENSE_BACKWARD_WEIGHTS; op++)
        ls_device_dense_cases(suite, op, NULL);
    for (uint32_t op = LS_OP_MAX_POOL2D; op <= LS_OP_AVERAGE_POOL2D_BACKWARD; op++)
        ls_device_pooling_cases(suite, op, NULL);
    for (uint32_t op = LS_OP_ACTIVATION; op <= LS_OP_SOFTMAX_BACKWARD; op++)
        ls_device_elementwise_cases(suite, op, NULL);
    for (uint32_t op = LS_OP_RESHAPE; op <= LS_OP_CONVERT; op++)
        ls_device_elementwise_cases(suite, op, NULL);
    for (uint32_t op = LS_OP_BATCH_NORMALIZATION; op <= LS_OP_BATCH_NORMALIZATION_INFERENCE; op++)
        ls_device_batch_normalization_cases(suite, op, NULL);
    ls_device_given_backward_cases(suite);
    ls_device_statistics_cases(suite);
    for (uint32_t op = LS_OP_MAXIMUM; op <= LS_OP_MAXIMUM_BACKWARD; op++)
        ls_device_maximum_cases(suite, op);
    for (uint32_t op = LS_OP_FUNCTION; op <= LS_OP_FUNCTION_BACKWARD; op++)
        ls_device_function_cases(suite, op);
    for (uint32_t op = LS_OP_PAIR; op <= LS_OP_PAIR_BACKWARD_SECOND; op++)
        ls_device_pair_cases(suite, op);
    for (uint32_t op = LS_OP_REDUCE; op <= LS_OP_REDUCE_BACKWARD; op++)
        ls_device_reduction_operation_cases(suite, op);
    for (uint32_t op = LS_OP_CONCATENATE; op <= LS_OP_UPSAMPLE2D_BACKWARD; op++)
        ls_device_move_cases(suite, op);
    ls_device_dropout_cases(suite);
    ls_device_loss_cases(suite);
    ls_device_fusion_cases(suite);
    ls_device_layer_cases(suite);
}

static void run_groups(struct ls_device_suite *suite)
{
    ls_device_memory_cases(suite);
    run_operations(suite);
    ls_device_half_cases(suite, run_operations);
    ls_device_synchronized_cases(suite);
    ls_device_bytes_cases(suite);
    ls_device_update_cases(suite);
    ls_device_thread_cases(suite);
    ls_device_tile_cases(suite);
    ls_device_stream_cases(suite);
    ls_device_recording_cases(suite);
}

static enum ls_status open_side(struct ls_device_side *side,
                                const struct ls_device_interface *interface,
                                const struct ls_host *host, uint32_t threads, const char *which)
{
    const int32_t status = ls_device_side_open(side, interface, host, threads);
    if (status)
        ls_error("conformance", "the %s device does not open: %s", which, side->message);
    return (enum ls_status)status;
}

enum ls_status ls_conformance_device(const struct ls_device_interface *tested,
                                     const struct ls_host *tested_host,
                                     const struct ls_device_interface *reference,
                                     const struct ls_host *reference_host,
                                     const struct ls_device_conformance_options *options,
                                     ls_conformance_report report, void *context,
                                     struct ls_conformance_counts *counts)
{
    struct ls_device_side tested_side = {0}, reference_side = {0};
    struct ls_device_suite suite = {
        .tested = &tested_side,
        .reference = &reference_side,
        .options = options ? *options : (struct ls_device_conformance_options){0},
        .report = report,
        .context = context,
    };
    const uint32_t threads = suite.options.threads ? suite.options.threads : 2;

    enum ls_status status = open_side(&tested_side, tested, tested_host, threads, "tested");
    if (!status)
        status = open_side(&reference_side, reference, reference_host, 0, "reference");
    if (!status) {
        run_groups(&suite);
        status = suite.counts.failed ? LS_FAILED : LS_OK;
        if (counts)
            *counts = suite.counts;
    }
    ls_device_side_close(&tested_side);
    ls_device_side_close(&reference_side);
    return status;
}
