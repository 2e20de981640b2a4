// SPDX-License-Identifier: Apache-2.0
// InputLayer: the shape of the examples. Keras 2 calls it batch_input_shape. In a model inside a
// model it is what the call of the model gives.
#include "layers/kinds.h"

#include <string.h>

static const char *const keys[] = {"batch_shape", "dtype", "sparse", "ragged", "optional", NULL};

static void refuse(struct ls_config *config, const char *key)
{
    if (ls_config_boolean(config, key, false))
        ls_config_fail(config, key, "not supported; set it to false");
}

// The type of what the layer makes. The examples of a model are float32 or int32; those of dtype
// bool, which are masks, are float32, and become 1 where they are not 0.
static uint32_t read_dtype(struct ls_config *config)
{
    const json_t *value = json_object_get(config->object, "dtype");
    const char *name = ls_json_dtype(value);
    char text[64];

    if (strcmp(name, "int32") == 0 || strcmp(name, "int64") == 0)
        return LS_I32; // what no int32 holds is refused where the data is read
    if (strcmp(name, "bfloat16") == 0)
        return LS_BF16;
    if (strcmp(name, "float16") == 0)
        return LS_F16;
    if (value && !json_is_null(value) && !ls_json_is_float32(value) && strcmp(name, "bool") != 0)
        ls_config_fail(
            config, "dtype",
            "only float32, bfloat16, float16, int32, int64 and bool are supported, got %s%s",
            ls_json_text(value, text, sizeof(text)),
            strcmp(name, "string") == 0 ? "; make numbers of the texts before, in the dataset"
                                        : "");
    return LS_F32;
}

static enum ls_status check_given(const struct ls_config *config, const struct ls_tensor *input,
                                  const struct ls_shape *example, uint32_t dtype)
{
    if (input->shape.ndims != example->ndims + 1 ||
        memcmp(example->dims, &input->shape.dims[1], example->ndims * sizeof(example->dims[0])) !=
            0)
        return ls_graph_fail(config->graph, input,
                             "the model is called with another shape than its "
                             "batch_shape");
    if ((input->dtype == LS_I32) != (dtype == LS_I32))
        return ls_graph_fail(config->graph, input,
                             "the model is called with another type than its dtype");
    return LS_OK;
}

// Whether x are ids of which TimeDistributed took a step, in float32.
static bool are_ids(const struct ls_graph *graph, const struct ls_tensor *x)
{
    const struct ls_operation *made = NULL;
    for (; x->producer >= 0; x = made->inputs[0]) {
        made = &graph->operations[x->producer];
        if (made->op != LS_OP_SLICE && made->op != LS_OP_RESHAPE)
            return made->op == LS_OP_LOOKUP;
    }
    return false;
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct ls_shape example;
    const bool keras2 = !json_object_get(call->config, "batch_shape") &&
                        json_object_get(call->config, "batch_input_shape");

    ls_config_shape(&c, keras2 ? "batch_input_shape" : "batch_shape", &example);
    uint32_t dtype = read_dtype(&c);
    if (graph->compute == LS_F32 && dtype != LS_I32)
        dtype = LS_F32; // all is computed in float32
    if (input && dtype == LS_I32 && input->dtype == LS_F32 && are_ids(graph, input))
        dtype = LS_F32;
    refuse(&c, "sparse");
    refuse(&c, "ragged");
    refuse(&c, "optional");
    if (c.status || (!input && call->input_count > 0))
        return c.status;
    enum ls_status status =
        input ? check_given(&c, input, &example, dtype)
              : ls_graph_typed_input(graph, dtype == LS_I32 ? LS_I32 : LS_F32, &example, &input);
    struct ls_tensor *mask = status ? NULL : input->mask; // of a model inside a model
    if (!status && input->dtype != dtype)
        status = ls_graph_convert(graph, input, dtype, &input);
    if (!status && strcmp(ls_json_dtype(json_object_get(call->config, "dtype")), "bool") == 0)
        status = ls_graph_add(graph, LS_OP_DIFFERS, NULL, &input, 1, NULL, &input);
    if (status)
        return status;
    input->mask = mask;
    *outputs = input;
    return status;
}

const struct ls_layer_kind ls_layer_input = {
    .class_name = "InputLayer",
    .summary = "the shape of the examples",
    .most_inputs = 1, // none: of the outermost model
    .keys = keys,
    .no_policy = true,
    .build = build,
};
