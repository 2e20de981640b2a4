// SPDX-License-Identifier: Apache-2.0
// A layer of one's own: squeeze and excitation (Hu et al. 2018), which scales each channel of an image
// by what the channels' means say. It is composed of operations, so its gradients, every strategy
// and every device follow.
//
//     ./own_layer [strategy [replicas [dataset]]]
//
// Compile it with
//
//     cc -o own_layer own_layer.c $(pkg-config --cflags --libs lockstep)
#include "core/plugin/layer.h"
#include "lockstep.h"

#include <stdlib.h>

static void check(enum ls_status status)
{
    if (status)
        exit(1);
}

// A dense layer over the last dimension.
static struct ls_tensor *dense(const struct ls_composer *composer, struct ls_tensor *x,
                               const char *kernel, const char *bias, int64_t units,
                               const char *activation)
{
    const int64_t channels = ls_compose_channels(composer, x);
    const struct ls_weight k = {.name = kernel, .ndims = 2, .dims = {channels, units}};
    const struct ls_weight b = {.name = bias, .ndims = 1, .dims = {units}, .initializer = "zeros"};
    struct ls_tensor *y = ls_compose_dense(composer, x, composer->weight(composer, &k),
                                           composer->weight(composer, &b));
    return composer->function(composer, activation, y);
}

// x: (B, H, W, C) -> the same
static int32_t build(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *const *inputs, uint32_t input_count,
                     struct ls_tensor **outputs)
{
    struct ls_tensor *x = inputs[0];
    const int64_t channels = ls_compose_channels(composer, x);
    const int64_t ratio = (int64_t)ls_host_number(host, "ratio");
    int64_t dims[LS_MAX_DIMS];
    (void)input_count; // 1
    if (composer->shape(composer, x, dims) != 4 || ratio < 1 || channels % ratio)
        return ls_compose_fail(composer, "expected images whose channels %lld divides",
                               (long long)ratio);
    struct ls_tensor *means = ls_compose_reduce(composer, LS_REDUCE_TO_MEAN, x, 1 << 1 | 1 << 2);
    struct ls_tensor *few =
        dense(composer, means, "squeeze_kernel", "squeeze_bias", channels / ratio, "relu");
    struct ls_tensor *gate =
        dense(composer, few, "excite_kernel", "excite_bias", channels, "sigmoid");
    outputs[0] = ls_compose_multiply(composer, x, gate);
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"ratio", "integer", "4", "channels by units of the layer between"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_layer_interface interface = {
    .struct_size = sizeof(struct ls_layer_interface),
    .build = build,
};

// The same as a shared object layer-SqueezeExcite.so would return it.
static const struct ls_plugin squeeze_excite = {
    LS_PLUGIN_HEADER(LS_KIND_LAYER),
    .name = "SqueezeExcite",
    .version = "1.0",
    .licence = "Apache-2.0",
    .summary = "scales channels by what their means say",
    .options = options,
    .interface = &interface,
};

int main(int argc, char **argv)
{
    const struct ls_run_options run_options = {
        .strategy = argc > 1 ? argv[1] : "one-device",
        .replicas = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1,
        .seed = 1,
    };
    const char *dataset = argc > 3 ? argv[3] : "fashion-mnist";
    const struct ls_layer layers[] = {
        LS_INPUT(28, 28, 1),
        LS_CONV2D(8, 3, .strides = 4, .activation = "relu"),
        LS_LAYER("SqueezeExcite", .options = "{\"ratio\": 2}"),
        LS_FLATTEN(),
        LS_DENSE(10, .activation = "softmax"),
        LS_END,
    };
    struct ls_run *run;
    struct ls_model *model;
    struct ls_data *train;
    size_t count;
    check(ls_run_open(&run_options, &run));
    check(ls_plugin_register(run, &squeeze_excite));
    check(ls_sequential_create(run, "squeezed", layers, &model));
    ls_model_summary(model, stdout);
    check(ls_data_open(dataset, "train", &train));
    check(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.1"}));
    check(ls_fit(model, train, &(struct ls_fit_options){.steps = 20, .batch = 50}));
    const float *losses = ls_fit_losses(model, &count);
    for (size_t i = 0; i < count; i++)
        printf("loss of step %zu: %.6f\n", i + 1, (double)losses[i]);
    ls_model_close(model);
    ls_run_close(run);
    ls_data_close(train);
    return 0;
}
