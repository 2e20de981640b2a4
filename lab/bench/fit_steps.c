// SPDX-License-Identifier: Apache-2.0
// What a call of ls_fit costs: fits of one step in a loop, in turn with one long fit of the same model.
//
//     fit-steps MODEL DATASET REPLICAS THREADS LOOP LONG
//
// Prints JSON: seconds a step of LOOP fits of one step each, and of one fit of LONG steps. The order is loop, long,
// long, loop, so that a machine that becomes slower meanwhile does not favour one. Started by
// tools/compare-builds --speed, which compiles this file against each of the two builds.
#include <lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Adds the seconds of `fits` fits of `steps` steps each.
static enum ls_status run_fits(struct ls_model *model, struct ls_data *data, uint32_t fits,
                               uint32_t steps, double *seconds)
{
    const double begin = now();
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < fits; i++)
        status = ls_fit(model, data, &(struct ls_fit_options){.steps = steps});
    *seconds += now() - begin;
    return status;
}

static enum ls_status measure(struct ls_model *model, struct ls_data *data, uint32_t loop,
                              uint32_t steps)
{
    double loop_seconds = 0, long_seconds = 0, warm_up = 0;
    enum ls_status status = run_fits(model, data, 2, 10, &warm_up);
    if (!status)
        status = run_fits(model, data, loop, 1, &loop_seconds);
    if (!status)
        status = run_fits(model, data, 1, steps, &long_seconds);
    if (!status)
        status = run_fits(model, data, 1, steps, &long_seconds);
    if (!status)
        status = run_fits(model, data, loop, 1, &loop_seconds);
    if (!status)
        printf("{\"loop\": %.9g, \"long\": %.9g}\n", loop_seconds / (2.0 * loop),
               long_seconds / (2.0 * steps));
    return status;
}

static uint32_t number(const char *text)
{
    const long value = strtol(text, NULL, 10);
    return value > 0 && value < 1000000 ? (uint32_t)value : 0;
}

int main(int argc, char **argv)
{
    if (argc != 7 || !number(argv[3]) || !number(argv[4]) || !number(argv[5]) || !number(argv[6])) {
        fputs("fit-steps: expected MODEL DATASET REPLICAS THREADS LOOP LONG\n", stderr);
        return LS_USAGE;
    }
    const struct ls_run_options options = {
        .device = "cpu", .replicas = number(argv[3]), .threads = number(argv[4])};
    struct ls_run *run = NULL;
    struct ls_data *data = NULL;
    struct ls_model *model = NULL;
    enum ls_status status = ls_run_open(&options, &run);
    if (!status)
        status = ls_data_open(argv[2], "train", &data);
    if (!status)
        status = ls_model_open(run, argv[1], data, &model);
    if (!status)
        status = ls_compile(model, NULL);
    if (!status)
        status = measure(model, data, number(argv[5]), number(argv[6]));
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    return (int)status;
}
