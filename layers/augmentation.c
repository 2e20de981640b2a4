// SPDX-License-Identifier: Apache-2.0
// Random changes of images in training: each layer draws factors for every example (LS_OP_DRAW) and
// changes the images by them. What is drawn for an example depends on nothing but its place in the
// global batch, the step and the seed of the run. Where nothing is trained images stay as they are;
// those of RandomCrop get its size without chance.
#include "layers/kinds.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static const char *const flip_keys[] = {"mode", "seed", "data_format", NULL};
static const char *const rotation_keys[] = {
    "factor", "fill_mode", "interpolation", "seed", "fill_value", "data_format", NULL};
static const char *const two_factor_keys[] = {
    "height_factor", "width_factor", "fill_mode",   "interpolation",
    "seed",          "fill_value",   "data_format", NULL};
static const char *const crop_keys[] = {"height", "width", "seed", "data_format", NULL};
static const char *const colour_keys[] = {"factor", "value_range", "seed", "data_format", NULL};
static const char *const erase_keys[] = {"factor", "scale",       "fill_value", "value_range",
                                         "seed",   "data_format", NULL};

// ---- Options ----

struct range {
    float low, high;
};

// Two numbers in a list.
static struct range read_pair(struct ls_config *config, const char *key, struct range missing)
{
    struct ls_numbers numbers;
    struct range range = missing;
    ls_config_numbers(config, key, &numbers);
    if (numbers.count == 2 && numbers.values[0] <= numbers.values[1])
        range = (struct range){numbers.values[0], numbers.values[1]};
    else if (json_object_get(config->object, key) && !config->status)
        ls_config_fail(config, key, "expected a list of two numbers, the smaller one first");
    free(numbers.values);
    return range;
}

// Keras's factors: a number f is from -f to f, but not below `least`; a list has both ends in any
// order, and they must reach into least to most.
static struct range read_factor(struct ls_config *config, const char *key, float least, float most,
                                const struct range *missing)
{
    struct ls_numbers numbers;
    struct range range = missing ? *missing : (struct range){0, 0};
    ls_config_numbers(config, key, &numbers);
    const float first = numbers.count > 0 ? numbers.values[0] : 0;
    const float last = numbers.count > 1 ? numbers.values[1] : first;
    free(numbers.values);
    if (numbers.count == 0 && (missing || config->status))
        return range;
    range = (struct range){fminf(first, last), fmaxf(first, last)};
    if (numbers.count != (numbers.list ? 2 : 1) || range.low > most || range.high < least ||
        (!numbers.list && first < least))
        ls_config_fail(config, key, "expected a number from %g to %g, or a list of two",
                       (double)least, (double)most);
    if (!numbers.list)
        range = (struct range){fmaxf(-fabsf(first), least), fabsf(first)};
    return range;
}

static void read_seed_and_format(struct ls_config *config)
{
    ls_config_seed(config);
    ls_config_data_format(config);
}

// The function of LS_OP_RESAMPLE, and its fill value.
static struct ls_op_attributes read_sampling(struct ls_config *config)
{
    static const char *const fills[] = {"constant", "nearest", "reflect", "wrap", NULL};
    static const char *const kinds[] = {"nearest", "bilinear", NULL};
    struct ls_op_attributes attributes = {
        .function = ls_config_choice(config, "fill_mode", fills, LS_FILL_REFLECT)};
    if (ls_config_choice(config, "interpolation", kinds, 1) == 1)
        attributes.function |= LS_RESAMPLE_BILINEAR;
    attributes.offset = (float)ls_config_number(config, "fill_value", -FLT_MAX, FLT_MAX, 0);
    read_seed_and_format(config);
    return attributes;
}

// ---- Operations ----

// x -> factors, in float32 also where the layer computes in halves.
static enum ls_status add_draw(struct ls_graph *graph, struct ls_op_attributes attributes,
                               struct ls_tensor *x, struct ls_tensor **out)
{
    const uint32_t compute = graph->compute;
    attributes.key = graph->dropout_count++;
    graph->compute = LS_F32;
    const enum ls_status status = ls_graph_add(graph, LS_OP_DRAW, &attributes, &x, 1, NULL, out);
    graph->compute = compute;
    return status;
}

// What a layer adds: the draw, and the operation that takes the factors; `otherwise` NULL: x.
static enum ls_status add_change(struct ls_graph *graph, const struct ls_layer_call *call,
                                 const struct ls_config *config, struct ls_op_attributes draw,
                                 uint32_t op, struct ls_op_attributes change,
                                 struct ls_tensor *otherwise, struct ls_tensor **outputs)
{
    struct ls_tensor *x = ls_call_input(call), *factors;

    if (config->status || !x)
        return config->status;
    if (!ls_is_image(graph, x))
        return LS_BAD_INPUT;
    *outputs = otherwise ? otherwise : x;
    if (call->inference)
        return LS_OK;
    const enum ls_status status = add_draw(graph, draw, x, &factors);
    struct ls_tensor *inputs[] = {x, factors, otherwise};
    change.key = op == LS_OP_ERASE ? graph->dropout_count++ : 0; // of its noise
    return status ? status
                  : ls_graph_add(graph, op, &change, inputs, otherwise ? 3 : 2, NULL, outputs);
}

static struct ls_op_attributes draw_of(uint32_t function, struct range first, struct range other)
{
    return (struct ls_op_attributes){.function = function,
                                     .l1 = first.low,
                                     .l2 = first.high,
                                     .beta1 = other.low,
                                     .beta2 = other.high};
}

static const struct range none = {0, 0};

// ---- Layers ----

static enum ls_status build_flip(struct ls_graph *graph, const struct ls_layer_call *call,
                                 struct ls_tensor **outputs)
{
    static const char *const modes[] = {"horizontal", "vertical", "horizontal_and_vertical", NULL};
    struct ls_config c = {.graph = graph, .object = call->config};
    const uint32_t mode = ls_config_choice(&c, "mode", modes, 2);
    read_seed_and_format(&c);
    return add_change(graph, call, &c, draw_of(LS_DRAW_FLIP_COLUMNS + mode, none, none),
                      LS_OP_RESAMPLE, (struct ls_op_attributes){.function = LS_FILL_NEAREST}, NULL,
                      outputs);
}

static enum ls_status build_rotation(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct ls_op_attributes sampling = read_sampling(&c);
    const struct range turns = read_factor(&c, "factor", -1, 1, NULL);
    return add_change(graph, call, &c, draw_of(LS_DRAW_ROTATION, turns, none), LS_OP_RESAMPLE,
                      sampling, NULL, outputs);
}

static enum ls_status build_zoom(struct ls_graph *graph, const struct ls_layer_call *call,
                                 struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct ls_op_attributes sampling = read_sampling(&c);
    const json_t *width = json_object_get(call->config, "width_factor");
    const bool even = !width || json_is_null(width);
    const struct range rows = read_factor(&c, "height_factor", -1, 1, NULL);
    const struct range columns = even ? rows : read_factor(&c, "width_factor", -1, 1, NULL);
    if (!c.status && (rows.low <= -1 || columns.low <= -1))
        ls_config_fail(&c, rows.low <= -1 ? "height_factor" : "width_factor",
                       "-1 would leave nothing of the image; expected more than -1");
    return add_change(graph, call, &c,
                      draw_of(even ? LS_DRAW_ZOOM_EVEN : LS_DRAW_ZOOM, rows, columns),
                      LS_OP_RESAMPLE, sampling, NULL, outputs);
}

static enum ls_status build_translation(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct ls_op_attributes sampling = read_sampling(&c);
    const struct range rows = read_factor(&c, "height_factor", -1, 1, NULL);
    const struct range columns = read_factor(&c, "width_factor", -1, 1, NULL);
    return add_change(graph, call, &c, draw_of(LS_DRAW_TRANSLATION, rows, columns), LS_OP_RESAMPLE,
                      sampling, NULL, outputs);
}

// Keras writes a seed of its own into each configuration; a run has one for all layers. An image
// that is not larger than the crop in both directions is treated as it is in inference.
static enum ls_status build_crop(struct ls_graph *graph, const struct ls_layer_call *call,
                                 struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call), *otherwise;
    int64_t size[2];

    ls_config_size(&c, size);
    if (c.status || !x)
        return c.status;
    if (!ls_is_image(graph, x))
        return LS_BAD_INPUT;
    const enum ls_status status = ls_add_fitted(graph, LS_UPSAMPLE_BILINEAR, size, x, &otherwise);
    struct ls_op_attributes draw = {.function = LS_DRAW_CROP,
                                    .kernel = {(int32_t)size[0], (int32_t)size[1]}};
    *outputs = otherwise;
    if (status || x->shape.dims[1] <= size[0] || x->shape.dims[2] <= size[1])
        return status;
    return add_change(graph, call, &c, draw, LS_OP_RESAMPLE,
                      (struct ls_op_attributes){.function = LS_FILL_NEAREST}, otherwise, outputs);
}

static enum ls_status build_contrast(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct range factor = read_factor(&c, "factor", 0, 1, NULL);
    const struct range values = read_pair(&c, "value_range", (struct range){0, 255});
    const struct range scale = {1 - factor.low, 1 + factor.high};
    read_seed_and_format(&c);
    return add_change(graph, call, &c, draw_of(LS_DRAW_CONTRAST, scale, none), LS_OP_RECOLOUR,
                      (struct ls_op_attributes){
                          .function = LS_RECOLOUR_AROUND_MEAN, .l1 = values.low, .l2 = values.high},
                      NULL, outputs);
}

static enum ls_status build_brightness(struct ls_graph *graph, const struct ls_layer_call *call,
                                       struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct range factor = read_factor(&c, "factor", -1, 1, NULL);
    const struct range values = read_pair(&c, "value_range", (struct range){0, 255});
    const float reach = values.high - values.low;
    read_seed_and_format(&c);
    return add_change(
        graph, call, &c,
        draw_of(LS_DRAW_BRIGHTNESS, (struct range){factor.low * reach, factor.high * reach}, none),
        LS_OP_RECOLOUR,
        (struct ls_op_attributes){
            .function = LS_RECOLOUR_PLAIN, .l1 = values.low, .l2 = values.high},
        NULL, outputs);
}

static enum ls_status build_erasing(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct range chance = read_factor(&c, "factor", 0, 1, &(struct range){0, 1});
    const struct range scale = read_factor(&c, "scale", 0, 1, &(struct range){0.02f, 0.33f});
    const struct range values = read_pair(&c, "value_range", (struct range){0, 255});
    struct ls_op_attributes erase = {
        .function = LS_ERASE_NOISE, .l1 = values.low, .l2 = values.high, .factor = values.high};
    const json_t *fill = json_object_get(call->config, "fill_value");

    if (fill && !json_is_null(fill)) {
        const float value = (float)ls_config_number(&c, "fill_value", -FLT_MAX, FLT_MAX, 0);
        erase.function = LS_ERASE_VALUE;
        erase.offset = fminf(fmaxf(value, values.low), values.high);
    }
    if (!c.status && (scale.low < 0 || scale.high > 1))
        ls_config_fail(&c, "scale", "expected numbers from 0 to 1");
    read_seed_and_format(&c);
    return add_change(graph, call, &c, draw_of(LS_DRAW_ERASE, chance, scale), LS_OP_ERASE, erase,
                      NULL, outputs);
}

const struct ls_layer_kind ls_layer_random_flip = {
    .class_name = "RandomFlip",
    .summary = "mirrors half of the images in training",
    .keys = flip_keys,
    .says_training = true,
    .build = build_flip,
};

const struct ls_layer_kind ls_layer_random_rotation = {
    .class_name = "RandomRotation",
    .summary = "rotates images in training",
    .keys = rotation_keys,
    .says_training = true,
    .build = build_rotation,
};

const struct ls_layer_kind ls_layer_random_zoom = {
    .class_name = "RandomZoom",
    .summary = "makes images larger or smaller in training",
    .keys = two_factor_keys,
    .says_training = true,
    .build = build_zoom,
};

const struct ls_layer_kind ls_layer_random_translation = {
    .class_name = "RandomTranslation",
    .summary = "shifts images in training",
    .keys = two_factor_keys,
    .says_training = true,
    .build = build_translation,
};

const struct ls_layer_kind ls_layer_random_crop = {
    .class_name = "RandomCrop",
    .summary = "parts of images, in training at random places",
    .keys = crop_keys,
    .says_training = true,
    .build = build_crop,
};

const struct ls_layer_kind ls_layer_random_contrast = {
    .class_name = "RandomContrast",
    .summary = "changes the contrast of images in training",
    .keys = colour_keys,
    .says_training = true,
    .build = build_contrast,
};

const struct ls_layer_kind ls_layer_random_brightness = {
    .class_name = "RandomBrightness",
    .summary = "makes images brighter or darker in training",
    .keys = colour_keys,
    .says_training = true,
    .build = build_brightness,
};

const struct ls_layer_kind ls_layer_random_erasing = {
    .class_name = "RandomErasing",
    .summary = "erases patches of images in training",
    .keys = erase_keys,
    .says_training = true,
    .build = build_erasing,
};
