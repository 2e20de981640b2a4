// SPDX-License-Identifier: Apache-2.0
// A dataset and a loss of one's own in a program: points of a circle with their angles, and the
// distance between angles, of which 359 and 1 degrees are near. Several threads load examples at once.
//
//     ./own_dataset [strategy [replicas]]
//
// Compile it with
//
//     cc -o own_dataset own_dataset.c $(pkg-config --cflags --libs lockstep) -lm
#include "core/plugin/dataset.h"
#include "core/plugin/loss.h"
#include "lockstep.h"

#include <math.h>
#include <stdlib.h>

static const double pi = 3.14159265358979323846;

static void check(enum ls_status status)
{
    if (status)
        exit(1);
}

// ---- The dataset: points of a circle, and their angles ----

struct ls_dataset_state {
    double offset; // of test examples, which lie between those of training
    double examples;
};

static int32_t open_split(const struct ls_host *host, const char *split,
                          struct ls_dataset_state *state, struct ls_dataset_description *out)
{
    state->examples = ls_host_number(host, "examples");
    state->offset = strcmp(split, "train") ? 0.5 : 0;
    if (!(state->examples >= 1 && state->examples < 1e6))
        return ls_host_fail(host, LS_USAGE, "expected examples from 1 to 1e6");
    *out = (struct ls_dataset_description){
        .examples = (uint64_t)state->examples,
        .field_count = 2,
        .fields =
            {{.name = "point", .role = LS_FIELD_INPUT, .dtype = LS_F32, .ndims = 1, .dims = {2}},
             {.name = "turn", .role = LS_FIELD_TARGET, .dtype = LS_F32, .ndims = 1, .dims = {1}}},
    };
    return LS_OK;
}

static int32_t load(struct ls_dataset_state *state, uint64_t example, void *const *fields)
{
    const double turn = ((double)example + state->offset) / state->examples;
    float *point = fields[0], *target = fields[1];
    point[0] = (float)cos(2 * pi * turn);
    point[1] = (float)sin(2 * pi * turn);
    *target = (float)turn;
    return LS_OK;
}

static const struct ls_dataset_interface circle_interface = {
    .struct_size = sizeof(struct ls_dataset_interface),
    .state_bytes = sizeof(struct ls_dataset_state),
    .open = open_split,
    .load = load,
};

static const struct ls_plugin_option circle_options[] = {
    {"examples", "integer", "1000", "points on the circle"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin circle = {
    LS_PLUGIN_HEADER(LS_KIND_DATASET),
    .name = "circle",
    .version = "1.0",
    .licence = "Apache-2.0",
    .summary = "points of a circle and their angles",
    .options = circle_options,
    .interface = &circle_interface,
};

// ---- The loss: min(|d|, 1 - |d|) of turns from 0 to 1 ----

static int32_t build(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *predictions, struct ls_tensor *targets,
                     struct ls_tensor **values)
{
    struct ls_tensor *distance =
        composer->function(composer, "abs", ls_compose_subtract(composer, predictions, targets));
    (void)host;
    values[0] = ls_compose_pair(composer, LS_PAIR_MINIMUM, distance,
                                ls_compose_scale(composer, distance, -1, 1));
    return LS_OK;
}

static const struct ls_loss_interface turn_interface = {
    .struct_size = sizeof(struct ls_loss_interface),
    .build = build,
};

static const struct ls_plugin turn_loss = {
    LS_PLUGIN_HEADER(LS_KIND_LOSS),
    .name = "turn",
    .version = "1.0",
    .licence = "Apache-2.0",
    .summary = "the distance between two angles",
    .interface = &turn_interface,
};

int main(int argc, char **argv)
{
    const struct ls_layer layers[] = {
        LS_INPUT(2),
        LS_DENSE(64, .activation = "relu"),
        LS_DENSE(1, .activation = "sigmoid"),
        LS_END,
    };
    const struct ls_run_options run_options = {
        .strategy = argc > 1 ? argv[1] : "ring",
        .replicas = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 2,
    };
    struct ls_run *run;
    struct ls_model *model;
    struct ls_data *train, *test;
    struct ls_scores scores;
    check(ls_run_open(&run_options, &run));
    check(ls_plugin_register(run, &circle));
    check(ls_plugin_register(run, &turn_loss));
    check(ls_run_data_open(run, "circle:examples=2000", "train", &train));
    check(ls_run_data_open(run, "circle:examples=500", "test", &test));
    check(ls_sequential_create(run, "turns", layers, &model));
    check(ls_compile(model, &(struct ls_compile_options){.optimizer = "adam:learning_rate=0.01",
                                                         .loss = "turn",
                                                         .metrics = "mae"}));
    check(ls_fit(model, train, &(struct ls_fit_options){.epochs = 20, .batch = 100}));
    check(ls_evaluate(model, test, 0, &scores));
    printf("mean error of %llu angles: %.3f of a turn\n", (unsigned long long)scores.examples,
           ls_metric_value(&scores.metrics, "loss"));
    ls_model_close(model);
    ls_run_close(run);
    ls_data_close(train);
    ls_data_close(test);
    return 0;
}
