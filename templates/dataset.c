// SPDX-License-Identifier: Apache-2.0
// my-plugin: points on intertwined spirals, each spiral a class.
#include "core/plugin/dataset.h"

#include <math.h>

// What users may write behind the name: --dataset=my-plugin:classes=3,noise=0.1
static const struct ls_plugin_option options[] = {
    {"examples", "integer", "600", "of training; there are a quarter as many for tests"},
    {"classes", "integer", "2", "spirals"},
    {"noise", "number", "0.05", "how far points lie beside their spiral"},
    {NULL, NULL, NULL, NULL},
};

// The state of an opened split.
struct ls_dataset_state {
    uint64_t first; // test examples are others than those of training
    uint32_t classes;
    double noise;
};

static int32_t open_split(const struct ls_host *host, const char *split,
                          struct ls_dataset_state *state, struct ls_dataset_description *out)
{
    const double examples = ls_host_number(host, "examples");
    const double classes = ls_host_number(host, "classes");
    const int test = !strcmp(split, "test");
    if (!(examples >= 4 && examples <= 1e9) || !(classes >= 2 && classes <= 100))
        return ls_host_fail(host, LS_USAGE,
                            "expected examples from 4 to 1e9, classes from 2 to 100");
    state->first = test ? (uint64_t)examples : 0;
    state->classes = (uint32_t)classes;
    state->noise = ls_host_number(host, "noise");
    out->examples = (uint64_t)examples / (test ? 4 : 1);
    out->field_count = 2;
    out->fields[0] = (struct ls_dataset_field){
        .name = "point", .role = LS_FIELD_INPUT, .dtype = LS_F32, .ndims = 1, .dims = {2}};
    out->fields[1] = (struct ls_dataset_field){
        .name = "spiral", .role = LS_FIELD_TARGET, .dtype = LS_I32, .classes = state->classes};
    return LS_OK;
}

// A number from -1 to 1 that depends on the example alone (splitmix64's finaliser).
static double draw(uint64_t example, uint64_t which)
{
    uint64_t z = (example * 2 + which + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
}

// Called by several threads at once: it only reads the state.
static int32_t load(struct ls_dataset_state *state, uint64_t example, void *const *fields)
{
    const double pi = 3.14159265358979323846;
    const uint64_t number = state->first + example;
    const uint32_t spiral = (uint32_t)(number % state->classes);
    const double along = (draw(number, 0) + 1) / 2;
    const double angle = 5 * along + 2 * pi * spiral / state->classes;
    const double radius = 0.1 + along + state->noise * draw(number, 1);
    float *point = fields[0];
    int32_t *label = fields[1];
    point[0] = (float)(radius * cos(angle));
    point[1] = (float)(radius * sin(angle));
    *label = (int32_t)spiral;
    return LS_OK;
}

static const struct ls_dataset_interface interface = {
    .struct_size = sizeof(struct ls_dataset_interface),
    .state_bytes = sizeof(struct ls_dataset_state),
    .open = open_split,
    .load = load,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_DATASET),
    .name = "my-plugin",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "points on intertwined spirals",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
