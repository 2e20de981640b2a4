// SPDX-License-Identifier: Apache-2.0
// Layers of the program that are written wrongly: each is refused by name, and nothing is read that
// is not there. Names of its own parts that are misspelt. What a step may have at most.
#include "core/plugin/dataset.h"
#include "core/plugin/layer.h"
#include "core/plugin/loss.h"
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

static uint32_t mistake;

static struct ls_tensor *weight_of(const struct ls_composer *composer, uint32_t ndims,
                                   int64_t second)
{
    const struct ls_weight weight = {.name = "kernel", .ndims = ndims, .dims = {4, second}};
    return composer->weight(composer, &weight);
}

typedef int32_t build_function(const struct ls_composer *c, struct ls_tensor *x,
                               struct ls_tensor **out);

static int32_t weight_is_null(const struct ls_composer *c, struct ls_tensor *x,
                              struct ls_tensor **out)
{
    (void)x;
    out[0] = c->weight(c, NULL);
    return LS_OK;
}

static int32_t weight_is_huge(const struct ls_composer *c, struct ls_tensor *x,
                              struct ls_tensor **out)
{
    out[0] = ls_compose_dense(c, x, weight_of(c, 2, INT64_MAX), NULL);
    return LS_OK;
}

static int32_t weight_has_99_dimensions(const struct ls_composer *c, struct ls_tensor *x,
                                        struct ls_tensor **out)
{
    out[0] = ls_compose_dense(c, x, weight_of(c, 99, 4), NULL);
    return LS_OK;
}

static int32_t weights_have_one_name(const struct ls_composer *c, struct ls_tensor *x,
                                     struct ls_tensor **out)
{
    struct ls_tensor *first = ls_compose_dense(c, x, weight_of(c, 2, 4), NULL);
    out[0] = ls_compose_dense(c, first, weight_of(c, 2, 4), NULL);
    return LS_OK;
}

static int32_t inputs_are_null(const struct ls_composer *c, struct ls_tensor *x,
                               struct ls_tensor **out)
{
    (void)x;
    out[0] = c->operation(c, LS_OP_DENSE, NULL, NULL, 2, 0, NULL);
    return LS_OK;
}

static int32_t operation_is_unknown(const struct ls_composer *c, struct ls_tensor *x,
                                    struct ls_tensor **out)
{
    out[0] = c->operation(c, 9999, NULL, &x, 1, 0, NULL);
    return LS_OK;
}

static int32_t function_has_no_name(const struct ls_composer *c, struct ls_tensor *x,
                                    struct ls_tensor **out)
{
    out[0] = c->function(c, NULL, x);
    return LS_OK;
}

static int32_t outputs_are_two(const struct ls_composer *c, struct ls_tensor *x,
                               struct ls_tensor **out)
{
    (void)c;
    out[0] = out[1] = x;
    return LS_OK;
}

static int32_t shape_does_not_fit(const struct ls_composer *c, struct ls_tensor *x,
                                  struct ls_tensor **out)
{
    out[0] = ls_compose_reshape(c, x, 2, (const int64_t[]){3, 4});
    return LS_OK;
}

static int32_t status_is_none(const struct ls_composer *c, struct ls_tensor *x,
                              struct ls_tensor **out)
{
    (void)c;
    out[0] = x;
    return 4711;
}

static int32_t another_rank_failed(const struct ls_composer *c, struct ls_tensor *x,
                                   struct ls_tensor **out)
{
    (void)c;
    out[0] = x;
    return LS_ABORTED;
}

static const struct {
    build_function *build;
    enum ls_status status;
    const char *says;
} mistakes[] = {
    {weight_is_null, LS_BAD_INPUT, "weight: expected what the weight is, got NULL"},
    {weight_is_huge, LS_BAD_INPUT,
     "variable 'kernel': every dimension of (4, 9223372036854775807) must be between"},
    {weight_has_99_dimensions, LS_BAD_INPUT, "a shape of 99 dimensions; expected 1 to 6"},
    {weights_have_one_name, LS_BAD_INPUT, "two variables are called"},
    {inputs_are_null, LS_BAD_INPUT, "operation: expected an array of tensors, got NULL"},
    {operation_is_unknown, LS_BAD_INPUT, "operation 9999 is not one that layers use"},
    {function_has_no_name, LS_BAD_INPUT, "'' is unknown"},
    {outputs_are_two, LS_BAD_INPUT, "has several outputs"},
    {shape_does_not_fit, LS_BAD_INPUT, "another number of elements"},
    {status_is_none, LS_FAILED, "returned 4711, which is not a status"},
    {another_rank_failed, LS_FAILED,
     "returned 'aborted because another rank failed', which it must"},
};

static int32_t build(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *const *inputs, uint32_t count, struct ls_tensor **outputs)
{
    (void)host;
    (void)count;
    return mistakes[mistake].build(composer, inputs[0], outputs);
}

TABLE_TEST(a_wrong_layer_is_refused_by_name, mistakes)
{
    static const struct ls_layer_interface interface = {.struct_size = sizeof(interface),
                                                        .build = build};
    static const struct ls_plugin plugin = {
        LS_PLUGIN_HEADER(LS_KIND_LAYER), .name = "Mine",         .version = "1", .licence = "none",
        .summary = "is wrong",           .interface = &interface};
    struct ls_run *run = run_of("ring", 2);
    struct ls_model *model = NULL;
    mistake = (uint32_t)_i;
    OK(ls_plugin_register(run, &plugin));
    forget_errors();
    const struct ls_layer layers[] = {LS_INPUT(4), LS_LAYER("Mine"), LS_DENSE(3), LS_END};
    expect_error(ls_sequential_create(run, "model", layers, &model), mistakes[_i].status,
                 mistakes[_i].says);
    ck_assert_ptr_null(model);
    ls_run_close(run);
}

TEST(a_step_has_so_many_parts_and_examples_at_most)
{
    struct ls_run *run = run_of("ring", 2);
    struct ls_data *data = data_of(DATA, "train");
    struct ls_model *model = NULL;
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(10), LS_END};
    OK(ls_sequential_create(run, "model", layers, &model));
    OK(ls_compile(model, NULL));
    forget_errors();
    const struct {
        struct ls_fit_options options;
        const char *says;
    } cases[] = {
        {{.steps = 1, .batch = UINT64_MAX}, "expected at most 16777216 examples"},
        {{.steps = 1, .replica_batch = UINT64_MAX}, "expected at most 16777216 examples"},
        {{.steps = 1, .microbatches = UINT32_MAX}, "4294967295 parts are too many for one step"},
        {{.steps = 1, .accumulate = 65537}, "65537 parts are too many for one step"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_error(ls_fit(model, data, &cases[i].options), LS_USAGE, cases[i].says);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
}

static int32_t build_loss(const struct ls_host *host, const struct ls_composer *composer,
                          struct ls_tensor *predictions, struct ls_tensor *targets,
                          struct ls_tensor **values)
{
    (void)host;
    values[0] = ls_compose_subtract(composer, predictions, targets);
    return LS_OK;
}

static int32_t open_split(const struct ls_host *host, const char *split,
                          struct ls_dataset_state *state, struct ls_dataset_description *out)
{
    (void)split;
    (void)state;
    (void)out;
    return ls_host_fail(host, LS_UNSUPPORTED, "is not opened");
}

static int32_t load(struct ls_dataset_state *state, uint64_t example, void *const *fields)
{
    (void)state;
    (void)example;
    (void)fields;
    return LS_OK;
}

TEST(what_the_program_has_registered_is_suggested)
{
    static const struct ls_loss_interface loss = {.struct_size = sizeof(loss), .build = build_loss};
    static const struct ls_dataset_interface dataset = {
        .struct_size = sizeof(dataset), .state_bytes = 8, .open = open_split, .load = load};
    static const struct ls_plugin pseudo_huber = {
        LS_PLUGIN_HEADER(LS_KIND_LOSS), .name = "pseudo_huber", .version = "1", .licence = "none",
        .summary = "is registered",     .interface = &loss};
    static const struct ls_plugin wave = {
        LS_PLUGIN_HEADER(LS_KIND_DATASET), .name = "wave",       .version = "1", .licence = "none",
        .summary = "is registered",        .interface = &dataset};
    const struct ls_layer layers[] = {LS_INPUT(4), LS_DENSE(3), LS_END};
    struct ls_run *run = run_of("ring", 2);
    struct ls_model *model = NULL;
    struct ls_data *data = NULL;
    OK(ls_plugin_register(run, &pseudo_huber));
    OK(ls_plugin_register(run, &wave));
    OK(ls_sequential_create(run, "model", layers, &model));
    forget_errors();
    expect_error(ls_run_data_open(run, "waev", "train", &data), LS_USAGE,
                 "unknown dataset waev; did you mean 'wave'? registered by this program: wave; ");
    expect_error(ls_compile(model, &(struct ls_compile_options){.loss = "pseudo_hubr"}), LS_USAGE,
                 "; did you mean 'pseudo_huber'? registered by this program: pseudo_huber");
    ck_assert_ptr_null(data);
    ls_model_close(model);
    ls_run_close(run);
}
