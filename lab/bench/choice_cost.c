// SPDX-License-Identifier: Apache-2.0
// What it costs that the strategy is chosen at run time: steps of one-device through the strategy plugin, in turn with a
// bare loop that runs the same program and the same update and nothing else. Same replica, same batch, same memory.
//
//     choice-cost MODEL DATASET BATCH THREADS ROUNDS STEPS
//
// A round is four blocks of STEPS steps: bare, strategy, strategy, bare. Prints JSON: seconds a step of both, by round.
// The learning rate is 0, so that what is computed stays the same. Started by ./tools/bench-train --against=bare.
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/data/data.h"
#include "core/train/session.h"

#include <stdio.h>
#include <stdlib.h>

#define WARM_UP 10

struct cost {
    struct ls_session *session;
    struct ls_replica_batch batch;
    uint32_t rounds, steps;
    double *bare, *strategy; // seconds a step, by round
};

static enum ls_status bare_step(struct ls_replica *replica, uint64_t examples)
{
    struct ls_program *program = ls_replica_training_program(replica, examples, NULL);
    enum ls_status status = ls_program_run(program, 0, program->step_count, false);
    for (uint32_t i = 0; !status && i < ls_replica_buckets(replica)->count; i++)
        status = ls_replica_update(replica, i);
    return status ? status : ls_replica_refresh(replica);
}

static enum ls_status strategy_step(const struct cost *cost)
{
    struct ls_step_result result;
    return ls_driver_step(cost->session->driver, 0, &cost->batch, 1, 0, false, &result);
}

// Adds the seconds of a block of steps.
static enum ls_status run_block(const struct cost *cost, bool bare, double *seconds)
{
    const uint64_t begin = ls_clock_ns();
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < cost->steps; i++)
        status =
            bare ? bare_step(cost->session->replicas[0], cost->batch.count) : strategy_step(cost);
    *seconds += (double)(ls_clock_ns() - begin) * 1e-9;
    return status;
}

// [replica thread]
static enum ls_status measure(void *context, uint32_t rank)
{
    static const bool bare[] = {true, false, false, true};
    struct cost *cost = context;
    enum ls_status status = ls_session_next(cost->session, rank, &cost->batch, NULL);
    for (uint32_t i = 0; !status && i < WARM_UP; i++)
        status = strategy_step(cost);
    for (uint32_t round = 0; !status && round < cost->rounds; round++)
        for (size_t block = 0; !status && block < sizeof(bare); block++)
            status = run_block(cost, bare[block],
                               bare[block] ? &cost->bare[round] : &cost->strategy[round]);
    for (uint32_t round = 0; round < cost->rounds; round++) {
        cost->bare[round] /= 2.0 * cost->steps;
        cost->strategy[round] /= 2.0 * cost->steps;
    }
    return status;
}

static void print_list(const char *name, const double *values, uint32_t count, const char *end)
{
    printf("\"%s\": [", name);
    for (uint32_t i = 0; i < count; i++)
        printf("%s%.9g", i ? ", " : "", values[i]);
    printf("]%s", end);
}

static enum ls_status run(struct cost *cost, struct ls_model *model, struct ls_data *data,
                          uint64_t batch)
{
    const struct ls_session_need need = {.global_batch = batch,
                                         .training_examples = ls_data_count(data)};
    const struct ls_model_order order = {0};
    enum ls_status status = ls_session_ready(model, &need);
    cost->session = model->session;
    if (!status)
        status = ls_session_set_data(cost->session, data, LS_SHUFFLE_OFF, 0, &order);
    if (!status)
        status = ls_session_run(cost->session, "measuring", measure, cost);
    (void)!ls_session_close(model);
    if (status)
        return status;
    putchar('{');
    print_list("bare", cost->bare, cost->rounds, ", ");
    print_list("strategy", cost->strategy, cost->rounds, "}\n");
    return LS_OK;
}

static uint32_t number(const char *text)
{
    const long value = strtol(text, NULL, 10);
    return value > 0 && value < 1000000 ? (uint32_t)value : 0;
}

int main(int argc, char **argv)
{
    if (argc != 7 || !number(argv[3]) || !number(argv[4]) || !number(argv[5]) || !number(argv[6])) {
        ls_error("choice-cost", "expected MODEL DATASET BATCH THREADS ROUNDS STEPS");
        return LS_USAGE;
    }
    struct cost cost = {.rounds = number(argv[5]), .steps = number(argv[6])};
    const struct ls_run_options options = {
        .strategy = "one-device", .replicas = 1, .threads = number(argv[4])};
    const struct ls_compile_options compile = {.optimizer = "adam:learning_rate=0"};
    struct ls_run *opened = NULL;
    struct ls_data *data = NULL;
    struct ls_model *model = NULL;
    cost.bare = calloc(cost.rounds, sizeof(double));
    cost.strategy = calloc(cost.rounds, sizeof(double));
    enum ls_status status =
        cost.bare && cost.strategy ? ls_run_open(&options, &opened) : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_data_open(argv[2], "train", &data);
    if (!status)
        status = ls_model_open(opened, argv[1], data, &model);
    if (!status)
        status = ls_compile(model, &compile);
    if (!status)
        status = run(&cost, model, data, number(argv[3]));
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(opened);
    free(cost.bare);
    free(cost.strategy);
    return (int)status;
}
