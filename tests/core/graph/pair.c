// SPDX-License-Identifier: Apache-2.0
// A training step on the reference device and on a mock of it, compared.
#include "tests/core/graph/pair.h"

#include <check.h>
#include <math.h>
#include <string.h>

uint32_t pair_count_steps(const struct ls_program *program, const char *text)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        count += strstr(program->steps[s].label, text) != NULL;
    return count;
}

void pair_check_gradient_layouts(const struct ls_program *program)
{
    const struct ls_program_buffers *buffers = program->buffers;
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct ls_value *value =
            &buffers->values[buffers->plans[s].values[program->steps[s].input_count]];
        const struct ls_tensor *of = value->tensor->gradient_of;
        if (!of || of->role != LS_ROLE_ACTIVATION)
            continue;
        const struct ls_layout *expected = &buffers->values[ls_value_same(buffers, of->id)].layout;
        ck_assert_msg(ls_layout_equal(&value->layout, expected), "%s", program->steps[s].label);
    }
}

void pair_start(struct pair *pair, struct ls_graph *graph, const struct mock_policy *policy,
                double tolerance)
{
    const struct ls_program_options options = {.batch = 3, .purpose = LS_PURPOSE_TRAIN};

    pair->graph = graph;
    ck_assert(harness_open("reference", &pair->reference));
    pair->mock = mock_open(pair->reference, policy);
    harness_start(&pair->expected, pair->reference, graph, NULL, options);
    harness_start(&pair->run, pair->mock, graph, NULL, options);
    harness_step(&pair->expected);
    harness_step(&pair->run);
    harness_step(&pair->run);
    ck_assert_double_le(
        fabs((double)harness_loss(&pair->expected) - (double)harness_loss(&pair->run)),
        tolerance * fabs((double)harness_loss(&pair->expected)));
    ck_assert_double_le(harness_gradient_difference(&pair->expected, &pair->run), tolerance);
}

void pair_stop(struct pair *pair)
{
    harness_stop(&pair->expected, true);
    harness_stop(&pair->run, true);
    mock_close(&pair->mock);
    harness_close(&pair->reference);
    ls_graph_destroy(pair->graph);
}
