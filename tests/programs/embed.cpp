// SPDX-License-Identifier: Apache-2.0
// A C++ program against the installed headers alone: it trains, hears the messages, and asks for the last error.
#include "lockstep.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

static void hear(void *context, std::uint32_t level, const char *line)
{
    if (level == LS_LOG_ERROR)
        static_cast<std::vector<std::string> *>(context)->push_back(line);
}

static ls_layer layer_of(const char *class_name, std::int64_t units)
{
    ls_layer layer = ls_layer();
    layer.class_name = class_name;
    layer.units = units;
    return layer;
}

int main()
{
    std::vector<std::string> errors;
    ls_run *run = nullptr;
    ls_data *data = nullptr;
    ls_model *model = nullptr;
    ls_set_log(hear, &errors);

    ls_run_options options = ls_run_options();
    options.strategy = "rings";
    if (ls_run_open(&options, &run) != LS_UNAVAILABLE || errors.size() != 1 ||
        errors.front() != ls_last_error())
        return 10;

    options.strategy = "ring";
    options.replicas = 2;
    options.threads = 1;
    std::vector<ls_layer> layers = {layer_of("Flatten", 0), layer_of("Dense", 10), ls_layer()};
    ls_layer input = layer_of("InputLayer", 0);
    input.shape[0] = input.shape[1] = 4;
    input.shape[2] = 1;
    layers.insert(layers.begin(), input);
    ls_compile_options compile = ls_compile_options();
    compile.optimizer = "sgd";
    ls_fit_options fit = ls_fit_options();
    fit.steps = 3;
    if (ls_run_open(&options, &run) ||
        ls_data_open("synthetic:shape=4x4x1,examples=50", "train", &data) ||
        ls_sequential_create(run, "small", layers.data(), &model) || ls_compile(model, &compile) ||
        ls_set_learning_rate(model, 0.125) || ls_fit(model, data, &fit))
        return 11;

    std::size_t count = 0;
    const float *losses = ls_fit_losses(model, &count);
    if (count != fit.steps || !(losses[0] > 0) || errors.size() != 1)
        return 12;
    std::printf("Lockstep %s from C++: %zu steps\n", ls_version(), count);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    return 0;
}
