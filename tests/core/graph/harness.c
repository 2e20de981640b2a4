// SPDX-License-Identifier: Apache-2.0
// Small graphs, and programs with their memory, for the tests of core/graph.
#include "tests/core/graph/harness.h"

#include "core/base/instance.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "tests/support/plugin.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Devices and messages ----

bool harness_open(const char *name, struct harness_device *out)
{
    return harness_open_threads(name, 1, out);
}

bool harness_open_threads(const char *name, uint32_t threads, struct harness_device *out)
{
    static struct test_host hosts[8]; // one an opened device, valid as long as the test
    static uint32_t opened;
    struct test_host *host = &hosts[opened++ % 8];
    char full_name[64];
    snprintf(full_name, sizeof(full_name), "device-%s", name);
    const struct ls_plugin *plugin = test_plugin_open(full_name);
    if (!plugin)
        return false;
    test_host_init(host, plugin);
    const struct ls_device_config config = {.struct_size = sizeof(config), .threads = threads};
    out->ops = (const struct ls_device_interface *)plugin->interface;
    ck_assert_int_eq(ls_device_open_state(out->ops, &host->host, &config, &out->device), LS_OK);
    return true;
}

void harness_close(struct harness_device *device)
{
    ls_device_close(harness_face(*device)); // by its own table, whichever it was called by
}

struct ls_device *harness_face(struct harness_device device)
{
    static const struct ls_known_plugin mock = {
        .kind = LS_KIND_DEVICE, .label = "device-mock", .name = "mock"};
    struct ls_instance *instance = ls_instance_of(device.device);
    if (!instance->plugin)
        instance->plugin = &mock;
    instance->own = instance->interface = device.ops;
    return device.device;
}

static uint64_t tile_room;

static uint64_t tile_bytes(struct ls_device *device)
{
    (void)device;
    return tile_room;
}

struct harness_device harness_with_tiles(struct harness_device device, uint64_t bytes)
{
    static struct ls_device_interface ops;
    static struct ls_device_kernels kernels;
    ops = *device.ops;
    kernels = *device.ops->kernels;
    kernels.tile_bytes = tile_bytes;
    ops.kernels = &kernels;
    tile_room = bytes;
    return (struct harness_device){.ops = &ops, .device = device.device};
}

static int32_t open_stream(struct ls_device *device, void **out)
{
    static char stream;
    (void)device;
    *out = &stream;
    return LS_OK;
}

static void close_stream(struct ls_device *device, void *stream)
{
    (void)device, (void)stream;
}

static int32_t open_event(struct ls_device *device, struct ls_event **out)
{
    static char event;
    (void)device;
    *out = (struct ls_event *)&event;
    return LS_OK;
}

static void close_event(struct ls_device *device, struct ls_event *event)
{
    (void)device, (void)event;
}

struct harness_device harness_with_streams(struct harness_device device)
{
    static struct ls_device_interface ops;
    static const struct ls_device_streams streams = {.struct_size = sizeof(streams),
                                                     .open = open_stream,
                                                     .close = close_stream,
                                                     .event_open = open_event,
                                                     .event_close = close_event,
                                                     .branches = 1};
    ops = *device.ops;
    ops.streams = &streams;
    return (struct harness_device){.ops = &ops, .device = device.device};
}

static char last_message[1024];

static void keep_message(void *context, uint32_t level, const char *line)
{
    (void)context, (void)level;
    snprintf(last_message, sizeof(last_message), "%s", line);
}

void harness_capture_messages(void)
{
    last_message[0] = '\0';
    ls_log_set_writer(keep_message, NULL);
}

const char *harness_message(void)
{
    return last_message;
}

// ---- Graphs ----

static const struct ls_initializer zeros = {.kind = LS_ZEROS};

struct ls_graph *harness_graph(const int64_t *example, uint32_t ndims)
{
    struct ls_graph *graph;
    struct ls_tensor *input;
    struct ls_shape shape = {.ndims = ndims};
    memcpy(shape.dims, example, ndims * sizeof(*example));
    ck_assert_int_eq(ls_graph_create("test", &graph), LS_OK);
    ck_assert_int_eq(ls_graph_input(graph, &shape, &input), LS_OK);
    return graph;
}

static struct ls_tensor *parameter(struct ls_graph *graph, const char *name, struct ls_shape shape)
{
    struct ls_tensor *out;
    ck_assert_int_eq(ls_graph_parameter(graph, name, &shape, &zeros, &out), LS_OK);
    return out;
}

static struct ls_tensor *add_op(struct ls_graph *graph, const char *name, uint32_t op,
                                const struct ls_op_attributes *attributes,
                                struct ls_tensor *const *inputs, uint32_t count,
                                const struct ls_shape *shape)
{
    struct ls_tensor *out;
    if (name)
        ck_assert_int_eq(ls_graph_begin_layer(graph, name, "Test"), LS_OK);
    ck_assert_int_eq(ls_graph_add(graph, op, attributes, inputs, count, shape, &out), LS_OK);
    ls_graph_end_layer(graph, out);
    return out;
}

static struct ls_tensor *add_conv(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                  int32_t filters, int32_t kernel, int32_t stride, bool same,
                                  bool bias)
{
    struct ls_op_attributes attributes = {
        .strides = {stride, stride}, .dilation = {1, 1}, .groups = 1};
    ck_assert_int_eq(ls_graph_begin_layer(graph, name, "Conv2D"), LS_OK);
    for (int axis = 0; axis < 2 && same; axis++)
        ls_same_padding(x->shape.dims[1 + axis], kernel, stride, 1, &attributes.padding[2 * axis],
                        &attributes.padding[2 * axis + 1]);
    struct ls_tensor *inputs[3] = {
        x,
        parameter(
            graph, "kernel",
            (struct ls_shape){.ndims = 4, .dims = {kernel, kernel, x->shape.dims[3], filters}}),
    };
    if (bias)
        inputs[2] = parameter(graph, "bias", (struct ls_shape){.ndims = 1, .dims = {filters}});
    return add_op(graph, NULL, LS_OP_CONV2D, &attributes, inputs, bias ? 3 : 2, NULL);
}

struct ls_tensor *harness_conv(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                               int32_t filters, int32_t kernel, int32_t stride, bool same)
{
    return add_conv(graph, name, x, filters, kernel, stride, same, true);
}

struct ls_tensor *harness_conv_norm(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                    int32_t filters, int32_t kernel, int32_t stride)
{
    char norm[64];
    snprintf(norm, sizeof(norm), "%s_norm", name);
    x = add_conv(graph, name, x, filters, kernel, stride, true, false);
    return harness_norm(graph, norm, x);
}

struct ls_tensor *harness_norm_with(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                    struct ls_tensor *gamma, struct ls_tensor *beta)
{
    const struct ls_op_attributes attributes = {.epsilon = 1e-3f};
    struct ls_tensor *inputs[3] = {x, gamma, beta};
    return add_op(graph, name, LS_OP_BATCH_NORMALIZATION, &attributes, inputs, 3, NULL);
}

struct ls_tensor *harness_norm(struct ls_graph *graph, const char *name, struct ls_tensor *x)
{
    const struct ls_shape channels = {.ndims = 1, .dims = {x->shape.dims[x->shape.ndims - 1]}};
    ck_assert_int_eq(ls_graph_begin_layer(graph, name, "BatchNormalization"), LS_OK);
    struct ls_tensor *gamma = parameter(graph, "gamma", channels);
    return harness_norm_with(graph, NULL, x, gamma, parameter(graph, "beta", channels));
}

struct ls_tensor *harness_dense(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                int64_t units)
{
    ck_assert_int_eq(ls_graph_begin_layer(graph, name, "Dense"), LS_OK);
    struct ls_tensor *inputs[3] = {
        x,
        parameter(
            graph, "kernel",
            (struct ls_shape){.ndims = 2, .dims = {x->shape.dims[x->shape.ndims - 1], units}}),
        parameter(graph, "bias", (struct ls_shape){.ndims = 1, .dims = {units}}),
    };
    return add_op(graph, NULL, LS_OP_DENSE, NULL, inputs, 3, NULL);
}

struct ls_tensor *harness_dense_with(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                     struct ls_tensor *kernel, struct ls_tensor *bias)
{
    struct ls_tensor *inputs[3] = {x, kernel, bias};
    return add_op(graph, name, LS_OP_DENSE, NULL, inputs, bias ? 3 : 2, NULL);
}

struct ls_tensor *harness_pool(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                               uint32_t op, int32_t window, int32_t stride)
{
    const struct ls_op_attributes attributes = {.kernel = {window, window},
                                                .strides = {stride, stride}};
    return add_op(graph, name, op, &attributes, &x, 1, NULL);
}

struct ls_tensor *harness_activation(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                     uint32_t activation)
{
    const struct ls_op_attributes attributes = {.activation = activation, .activation_alpha = 0.3f};
    return add_op(graph, name, LS_OP_ACTIVATION, &attributes, &x, 1, NULL);
}

struct ls_tensor *harness_simple(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                 uint32_t op)
{
    return add_op(graph, name, op, NULL, &x, 1, NULL);
}

struct ls_tensor *harness_dropout(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                  float rate)
{
    const struct ls_op_attributes attributes = {.rate = rate, .key = graph->dropout_count++};
    return add_op(graph, name, LS_OP_DROPOUT, &attributes, &x, 1, NULL);
}

struct ls_tensor *harness_reshape(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                                  const int64_t *dims, uint32_t ndims)
{
    struct ls_shape shape = {.ndims = ndims + 1, .dims = {LS_BATCH}};
    memcpy(&shape.dims[1], dims, ndims * sizeof(*dims));
    return add_op(graph, name, LS_OP_RESHAPE, NULL, &x, 1, &shape);
}

struct ls_tensor *harness_flatten(struct ls_graph *graph, const char *name, struct ls_tensor *x)
{
    return harness_reshape(graph, name, x, (const int64_t[]){ls_shape_elements(&x->shape, 1)}, 1);
}

struct ls_tensor *harness_add(struct ls_graph *graph, const char *name, struct ls_tensor *a,
                              struct ls_tensor *b)
{
    struct ls_tensor *inputs[2] = {a, b};
    return add_op(graph, name, LS_OP_ADD, NULL, inputs, 2, NULL);
}

struct ls_tensor *harness_parameter(const struct ls_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (strcmp(graph->parameters[i]->name, name) == 0)
            return graph->parameters[i];
    ck_abort_msg("no parameter %s", name);
    return NULL;
}

void harness_finish(struct ls_graph *graph, enum ls_loss_kind kind, bool from_logits)
{
    const struct ls_loss loss = {.kind = kind, .from_logits = from_logits};
    ck_assert_int_eq(ls_graph_add_loss(graph, &loss), LS_OK);
    ck_assert_int_eq(ls_graph_differentiate(graph), LS_OK);
}

struct ls_graph *harness_cnn(void)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){9, 8, 2}, 3);
    struct ls_tensor *x = harness_conv(graph, "conv2d", graph->inputs[0], 3, 3, 1, true);
    x = harness_activation(graph, "relu", x, LS_RELU);
    x = harness_pool(graph, "max_pooling2d", x, LS_OP_MAX_POOL2D, 2, 2);
    x = harness_conv(graph, "conv2d_1", x, 4, 2, 1, false);
    x = harness_activation(graph, "relu_1", x, LS_RELU);
    x = harness_pool(graph, "max_pooling2d_1", x, LS_OP_MAX_POOL2D, 2, 1);
    x = harness_flatten(graph, "flatten", x);
    x = harness_dense(graph, "dense", x, 6);
    x = harness_activation(graph, "relu_2", x, LS_RELU);
    harness_dense(graph, "dense_1", x, 5);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    return graph;
}

struct ls_graph *harness_mixed(void)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){7, 6, 1}, 3);
    struct ls_tensor *x = harness_conv(graph, "conv2d", graph->inputs[0], 4, 3, 2, true);
    x = harness_activation(graph, "tanh", x, LS_TANH);
    x = harness_pool(graph, "average_pooling2d", x, LS_OP_AVERAGE_POOL2D, 2, 1);
    x = harness_reshape(graph, "reshape", x, (const int64_t[]){3, 8}, 2);
    x = harness_dense(graph, "rows", x, 5);
    x = harness_reshape(graph, "reshape_1", x, (const int64_t[]){5, 3}, 2);
    x = harness_flatten(graph, "flatten", x);
    x = harness_dense(graph, "dense", x, 7);
    x = harness_activation(graph, "sigmoid", x, LS_SIGMOID);
    x = harness_dropout(graph, "dropout", x, 0.3f);
    x = harness_dense(graph, "dense_1", x, 4);
    harness_simple(graph, "softmax", x, LS_OP_SOFTMAX);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, false);
    return graph;
}

struct ls_graph *harness_tied(void)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){5}, 1);
    struct ls_tensor *first = harness_dense(graph, "dense", graph->inputs[0], 5);
    struct ls_tensor *x = harness_activation(graph, "tanh", first, LS_TANH);
    x = harness_dense_with(graph, "dense_1", x, harness_parameter(graph, "dense/kernel"), NULL);
    x = harness_add(graph, "add", x, first);
    x = harness_activation(graph, "tanh_1", x, LS_TANH);
    x = harness_dense_with(graph, "dense_2", x, harness_parameter(graph, "dense/kernel"),
                           harness_parameter(graph, "dense/bias"));
    x = harness_add(graph, "add_1", x, x);
    harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);
    return graph;
}

struct ls_graph *harness_residual(uint32_t activation)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){6, 5, 3}, 3);
    struct ls_tensor *x = harness_norm(graph, "input_norm", graph->inputs[0]);
    x = harness_conv_norm(graph, "stem", x, 4, 3, 1);
    struct ls_tensor *stem = harness_activation(graph, "stem_act", x, activation);
    x = harness_conv_norm(graph, "block", stem, 4, 3, 1);
    x = harness_add(graph, "block_add", x, stem);
    struct ls_tensor *block = harness_activation(graph, "block_act", x, activation);
    struct ls_tensor *aside = harness_conv_norm(graph, "short", block, 5, 1, 2);
    x = harness_conv_norm(graph, "long", block, 5, 3, 2);
    x = harness_add(graph, "join", aside, x);
    x = harness_activation(graph, "join_act", x, activation);
    x = harness_flatten(graph, "flatten", x);
    harness_dense(graph, "dense", x, 4);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    return graph;
}

struct ls_graph *harness_tied_norm(void)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){4}, 1);
    struct ls_tensor *x = harness_dense(graph, "dense", graph->inputs[0], 3);
    x = harness_activation(graph, "tanh", x, LS_TANH);
    x = harness_norm(graph, "norm", x);
    x = harness_activation(graph, "tanh_1", x, LS_TANH);
    x = harness_norm_with(graph, "norm_1", x, harness_parameter(graph, "norm/gamma"),
                          harness_parameter(graph, "norm/beta"));
    harness_activation(graph, "sigmoid", x, LS_SIGMOID);
    harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);
    return graph;
}

static struct ls_tensor *moving_norm(struct ls_graph *graph, const struct harness_moving *kind,
                                     struct ls_tensor *x, bool again)
{
    static const char *const names[] = {"gamma", "beta", "moving_mean", "moving_variance"};
    const struct ls_op_attributes attributes = {.epsilon = 1e-3f};
    const struct ls_initializer ones = {.kind = LS_ONES};
    const struct ls_shape vector = {.ndims = 1, .dims = {x->shape.dims[x->shape.ndims - 1]}};
    struct ls_tensor *inputs[5] = {x}, *y;

    ck_assert_int_eq(again ? ls_graph_reuse_layer(graph, "norm")
                           : ls_graph_begin_layer(graph, "norm", "BatchNormalization"),
                     LS_OK);
    if (kind->frozen && !again)
        ls_graph_freeze_layer(graph);
    for (int i = 0; i < 4; i++) {
        enum ls_status status;
        if (i == 0 && kind->constants)
            status = ls_graph_constant(graph, names[i], &vector, 1, &inputs[1]);
        else if (i < 2)
            status = ls_graph_parameter(graph, names[i], &vector, &ones, &inputs[1 + i]);
        else
            status = ls_graph_statistic(graph, names[i], &vector, &ones, &inputs[1 + i]);
        ck_assert_int_eq(status, LS_OK);
    }
    ck_assert_int_eq(kind->given
                         ? ls_graph_add(graph, LS_OP_BATCH_NORMALIZATION_INFERENCE, &attributes,
                                        inputs, 5, NULL, &y)
                         : ls_graph_batch_normalization(graph, &attributes, inputs, kind->momentum,
                                                        kind->synchronized, &y),
                     LS_OK);
    ls_graph_end_layer(graph, y);
    return y;
}

struct ls_graph *harness_moving(const struct harness_moving *kind)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){3}, 1);
    struct ls_tensor *x = harness_dense(graph, "dense", graph->inputs[0], 4);
    x = harness_activation(graph, "first_tanh", x, LS_TANH); // else the bias would have no gradient
    for (uint32_t use = 0; use < (kind->uses ? kind->uses : 1); use++)
        x = moving_norm(graph, kind, x, use > 0);
    x = harness_activation(graph, "tanh", x, LS_TANH);
    harness_dense(graph, "last", x, 2);
    harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);
    return graph;
}

struct ls_graph *harness_random(uint64_t seed)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){6, 6, 2}, 3);
    struct ls_tensor *x = harness_conv(graph, "first", graph->inputs[0], 2, 3, 1, true), *other = x;
    char name[32];

    for (uint32_t i = 0; i < 14; i++) {
        snprintf(name, sizeof(name), "layer_%u", i);
        switch (ls_random_u64(seed, i) % 6) {
        case 0: x = harness_conv(graph, name, x, 2, 3, 1, true); break;
        case 1: x = harness_activation(graph, name, x, LS_RELU); break;
        case 2: x = harness_dropout(graph, name, x, 0.25f); break;
        case 3: x = harness_add(graph, name, x, other); break;
        case 4: x = harness_dense(graph, name, x, 2); break;
        case 5:
            x = harness_reshape(graph, name, x, (const int64_t[]){36, 2}, 2);
            snprintf(name, sizeof(name), "back_%u", i);
            x = harness_reshape(graph, name, x, (const int64_t[]){6, 6, 2}, 3);
            break;
        }
        if (ls_random_u64(seed + 1, i) % 3 == 0)
            other = x;
    }
    x = harness_flatten(graph, "flatten", x);
    harness_dense(graph, "last", x, 3);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    return graph;
}

// ---- Programs ----

static void *allocate(const struct harness_run *run, uint64_t bytes)
{
    void *memory = run->device.ops->memory->allocate(run->device.device, bytes > 0 ? bytes : 1);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

int64_t harness_elements(const struct harness_run *run, const struct ls_tensor *tensor)
{
    return ls_shape_elements(&tensor->shape, run->program->options.batch);
}

static void fill_parameters(struct harness_run *run)
{
    for (uint32_t i = 0; i < run->graph->parameter_count; i++) {
        const struct ls_tensor *tensor = run->graph->parameters[i];
        const int64_t count = harness_elements(run, tensor);
        float *values = malloc((size_t)count * sizeof(float));
        const uint64_t key = ls_random_key_text(7, tensor->name);
        for (int64_t k = 0; k < count; k++)
            values[k] = (float)(ls_random_uniform(key, (uint64_t)k) - 0.5) * 1.4f;
        for (int64_t k = 0; k < count && tensor->zone != LS_ZONE_TRAINED; k++)
            values[k] = fabsf(values[k]) + 0.3f; // a variance is above 0
        harness_write(run, tensor, values);
        free(values);
    }
}

static float *random_values(const struct harness_run *run, const struct ls_tensor *tensor,
                            uint64_t key)
{
    const int64_t count = harness_elements(run, tensor);
    float *values = allocate(run, (uint64_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)ls_random_uniform(key, (uint64_t)i) * 2 - 1;
    return values;
}

static void fill_batch(struct harness_run *run)
{
    run->input = random_values(run, run->graph->inputs[0], 11);
    for (uint32_t i = 1; i < run->graph->input_count; i++)
        run->more_inputs[i - 1] = random_values(run, run->graph->inputs[i], 11 + 10 * i);
    for (uint32_t i = 0; i < run->graph->seed_count; i++)
        run->seeds[i] = random_values(run, run->graph->seeds[i], 17 + i);
    if (!run->graph->labels[0])
        return;
    const int64_t labels = harness_elements(run, run->graph->labels[0]);
    const struct ls_shape *output = &run->graph->outputs[0]->shape;
    const uint64_t classes = (uint64_t)output->dims[output->ndims - 1];
    run->labels = allocate(run, (uint64_t)labels * 4);
    for (int64_t i = 0; i < labels; i++) {
        if (run->graph->labels[0]->dtype == LS_I32)
            ((int32_t *)run->labels)[i] = (int32_t)(ls_random_u64(13, (uint64_t)i) % classes);
        else
            ((float *)run->labels)[i] = (float)ls_random_uniform(13, (uint64_t)i);
    }
}

static uint64_t largest_shadow_scratch(const struct ls_parameter_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->shadow_count; i++)
        bytes = plan->shadows[i].scratch_bytes > bytes ? plan->shadows[i].scratch_bytes : bytes;
    return bytes;
}

void harness_start(struct harness_run *run, struct harness_device device,
                   const struct ls_graph *graph, struct ls_parameter_plan *plan,
                   struct ls_program_options options)
{
    *run = (struct harness_run){.device = device, .graph = graph, .plan = plan};
    if (!plan)
        ck_assert_int_eq(
            ls_plan_create(graph, harness_face(device), options.batch, false, &run->plan), LS_OK);
    ck_assert_int_eq(ls_program_create(run->plan, graph, &options, &run->program), LS_OK);

    run->record = allocate(run, sizeof(*run->record));
    *run->record = (struct ls_step_record){.step = 3,
                                           .update = 3,
                                           .seed = 5,
                                           .gradient_scale = 1,
                                           .share_weight = 1,
                                           .learning_rate = 1};
    run->bindings =
        (struct ls_bindings){.arena = ls_memory_of(allocate(run, run->program->arena_bytes)),
                             .parameters = ls_memory_of(allocate(run, run->plan->flat_bytes)),
                             .gradients = ls_memory_of(allocate(run, run->plan->flat_bytes)),
                             .shadows = ls_memory_of(allocate(run, run->plan->shadow_bytes)),
                             .sums = ls_memory_of(allocate(run, LS_SUMS * sizeof(float))),
                             .record = ls_host_memory(run->record)};
    run->shadow_scratch = allocate(run, largest_shadow_scratch(run->plan));
    fill_parameters(run);
    fill_batch(run);
    ls_program_bind(run->program, &run->bindings);
    const struct ls_memory inputs[] = {ls_host_memory(run->input),
                                       ls_host_memory(run->more_inputs[0]),
                                       ls_host_memory(run->more_inputs[1])};
    struct ls_memory seeds[HARNESS_SEEDS];
    for (int i = 0; i < HARNESS_SEEDS; i++)
        seeds[i] = ls_host_memory(run->seeds[i]);
    const struct ls_memory labels = ls_host_memory(run->labels);
    ls_program_set_batch(run->program, inputs, &labels);
    ls_program_set_seeds(run->program, seeds);
}

void harness_stop(struct harness_run *run, bool destroy_plan)
{
    void *const memory[] = {run->record,
                            run->bindings.arena.buffer,
                            run->bindings.parameters.buffer,
                            run->bindings.gradients.buffer,
                            run->bindings.shadows.buffer,
                            run->bindings.sums.buffer,
                            run->shadow_scratch,
                            run->input,
                            run->more_inputs[0],
                            run->more_inputs[1],
                            run->labels};
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        run->device.ops->memory->release(run->device.device, memory[i]);
    for (int i = 0; i < HARNESS_SEEDS; i++)
        run->device.ops->memory->release(run->device.device, (struct ls_buffer *)run->seeds[i]);
    ls_program_destroy(run->program);
    if (destroy_plan)
        ls_plan_destroy(run->plan);
}

void harness_step(struct harness_run *run)
{
    memset(ls_address(run->bindings.arena), 0xff, run->program->arena_bytes);
    if (run->program->options.purpose == LS_PURPOSE_TRAIN)
        memset(ls_address(run->bindings.gradients), 0xff, run->plan->flat_bytes);
    ck_assert_int_eq(ls_plan_refresh_shadows(run->plan, run->bindings.parameters,
                                             run->bindings.shadows,
                                             ls_memory_of(run->shadow_scratch)),
                     LS_OK);
    ck_assert_int_eq(ls_program_run(run->program, 0, run->program->step_count, false), LS_OK);
}

const struct ls_layout *harness_output_layout(const struct harness_run *run)
{
    return &run->program->buffers->values[run->program->buffers->outputs[0]].layout;
}

float harness_loss(const struct harness_run *run)
{
    return ((const float *)ls_address(run->bindings.sums))[0];
}

static uint32_t place_of(const struct harness_run *run, const struct ls_tensor *parameter_tensor)
{
    for (uint32_t i = 0; i < run->plan->place_count; i++)
        if (strcmp(run->plan->places[i].parameter->name, parameter_tensor->name) == 0)
            return i;
    ck_abort_msg("no place for %s", parameter_tensor->name);
    return 0;
}

float *harness_read(const struct harness_run *run, const struct ls_tensor *tensor, bool gradient)
{
    float *out = malloc((size_t)harness_elements(run, tensor) * sizeof(float));
    const struct ls_memory flat = gradient ? run->bindings.gradients : run->bindings.parameters;
    const uint32_t place = place_of(run, tensor);
    ck_assert_int_eq(
        ls_plan_export(run->plan, place, ls_memory_at(flat, run->plan->places[place].offset), out),
        LS_OK);
    return out;
}

void harness_write(struct harness_run *run, const struct ls_tensor *tensor, const float *from)
{
    const uint32_t place = place_of(run, tensor);
    const uint64_t offset = run->plan->places[place].offset;
    ck_assert_int_eq(
        ls_plan_import(run->plan, place, from, ls_memory_at(run->bindings.parameters, offset)),
        LS_OK);
}

double harness_gradient_difference(const struct harness_run *a, const struct harness_run *b)
{
    double largest = 0, difference = 0;
    for (uint32_t i = 0; i < a->graph->parameter_count; i++) {
        const struct ls_tensor *tensor = a->graph->parameters[i];
        float *p = harness_read(a, tensor, true), *q = harness_read(b, tensor, true);
        for (int64_t k = 0; k < harness_elements(a, tensor); k++) {
            const double apart = fabs((double)p[k] - (double)q[k]);
            largest = fmax(largest, fabs((double)p[k]));
            difference = isnan(apart) ? INFINITY : fmax(difference, apart);
        }
        free(p);
        free(q);
    }
    return difference / largest;
}

int harness_find_step(const struct ls_program *program, const char *text)
{
    for (uint32_t s = 0; s < program->step_count; s++)
        if (strstr(program->steps[s].label, text))
            return (int)s;
    return -1;
}

void harness_print_steps(const struct ls_program *program)
{
    for (uint32_t s = 0; s < program->step_count; s++)
        printf("%3u %-44s %-16s%s%s\n", s, program->steps[s].label,
               program->steps[s].implementation, program->steps[s].slow ? " slow" : "",
               program->steps[s].converts_activation ? " converts" : "");
}
