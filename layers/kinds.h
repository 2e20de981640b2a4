// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: the kinds of layers, and operations that several of them add.
#ifndef LS_LAYERS_KINDS_H
#define LS_LAYERS_KINDS_H

#include "layers/config.h"

extern const struct ls_layer_kind ls_layer_input, ls_layer_dense, ls_layer_conv2d,
    ls_layer_max_pooling2d, ls_layer_average_pooling2d, ls_layer_flatten, ls_layer_reshape,
    ls_layer_dropout, ls_layer_activation, ls_layer_relu, ls_layer_softmax, ls_layer_leaky_relu,
    ls_layer_elu, ls_layer_batch_normalization;
extern const struct ls_layer_kind ls_layer_conv1d, ls_layer_depthwise_conv2d,
    ls_layer_separable_conv2d, ls_layer_conv2d_transpose, ls_layer_layer_normalization,
    ls_layer_group_normalization, ls_layer_embedding, ls_layer_multi_head_attention, ls_layer_prelu;

extern const struct ls_layer_kind ls_layer_add, ls_layer_subtract, ls_layer_multiply,
    ls_layer_average, ls_layer_maximum, ls_layer_minimum, ls_layer_concatenate,
    ls_layer_global_average_pooling2d, ls_layer_global_max_pooling2d, ls_layer_zero_padding2d,
    ls_layer_cropping2d, ls_layer_permute, ls_layer_up_sampling2d, ls_layer_spatial_dropout2d,
    ls_layer_stochastic_depth, ls_layer_gaussian_noise, ls_layer_rescaling, ls_layer_layer_scale,
    ls_layer_custom_scale_layer, ls_layer_normalization;

extern const struct ls_layer_kind ls_layer_max_pooling1d, ls_layer_average_pooling1d,
    ls_layer_global_average_pooling1d, ls_layer_global_max_pooling1d, ls_layer_zero_padding1d,
    ls_layer_cropping1d, ls_layer_up_sampling1d, ls_layer_repeat_vector, ls_layer_identity;
extern const struct ls_layer_kind ls_layer_simple_rnn, ls_layer_lstm, ls_layer_gru, ls_layer_rnn,
    ls_layer_bidirectional, ls_layer_time_distributed, ls_layer_masking,
    ls_layer_spectral_normalization;

extern const struct ls_layer_kind ls_layer_activity_regularization, ls_layer_unit_normalization,
    ls_layer_rms_normalization, ls_layer_alpha_dropout, ls_layer_gaussian_dropout,
    ls_layer_spatial_dropout1d, ls_layer_spatial_dropout3d, ls_layer_dot, ls_layer_attention,
    ls_layer_additive_attention, ls_layer_grouped_query_attention, ls_layer_einsum_dense,
    ls_layer_separable_conv1d, ls_layer_depthwise_conv1d, ls_layer_conv1d_transpose;
extern const struct ls_layer_kind ls_layer_category_encoding, ls_layer_discretization,
    ls_layer_integer_lookup, ls_layer_reversible_embedding;
extern const struct ls_layer_kind ls_layer_resizing, ls_layer_center_crop, ls_layer_random_flip,
    ls_layer_random_rotation, ls_layer_random_zoom, ls_layer_random_translation,
    ls_layer_random_crop, ls_layer_random_contrast, ls_layer_random_brightness,
    ls_layer_random_erasing;

// Of layers on images: options height and width, and data_format; whether x is of images, said.
void ls_config_size(struct ls_config *config, int64_t out[2]);
bool ls_is_image(const struct ls_graph *graph, const struct ls_tensor *x);
// The largest window in the middle of x with the ratio of rows to columns of `to`, in that size;
// enum ls_upsample says how.
LS_STATUS ls_add_fitted(struct ls_graph *graph, uint32_t function, const int64_t to[2],
                        struct ls_tensor *x, struct ls_tensor **out);

extern const struct ls_layer_kind ls_layer_conv3d, ls_layer_conv3d_transpose,
    ls_layer_max_pooling3d, ls_layer_average_pooling3d, ls_layer_global_max_pooling3d,
    ls_layer_global_average_pooling3d, ls_layer_adaptive_average_pooling1d,
    ls_layer_adaptive_max_pooling1d, ls_layer_adaptive_average_pooling2d,
    ls_layer_adaptive_max_pooling2d, ls_layer_adaptive_average_pooling3d,
    ls_layer_adaptive_max_pooling3d, ls_layer_zero_padding3d, ls_layer_cropping3d,
    ls_layer_up_sampling3d;
// The mask of a call: its argument `mask`, by name or at this position, which functional models of
// Keras 3 have, else that of its only input, for Keras passes none by itself where there are
// several; NULL: none.
struct ls_tensor *ls_call_mask(const struct ls_layer_call *call, size_t position);

// A mask that a call gives to attention: 1 where the argument is not 0, as Keras looks at it; NULL:
// it is no tensor.
LS_STATUS ls_add_given_mask(struct ls_graph *graph, const struct ls_layer_call *call,
                            const json_t *argument, struct ls_tensor **out);

// What scores of attention (B,T,S) count: those of queries and of keys that count, masks of steps
// (B,T) and (B,S), and with `causal` none behind the query. 1 and 0, of a shape that is broadcast
// to that of the scores; NULL: all.
struct ls_score_masks {
    struct ls_tensor *query, *value, *key; // NULL: none
    struct ls_tensor *scores; // (B, T or 1, S or 1); NULL: none
    bool causal;
    int64_t steps, keys; // T, S
};
LS_STATUS ls_add_score_mask(struct ls_graph *graph, const struct ls_score_masks *masks,
                            struct ls_tensor **out);
// What hides a score in the type that the layer computes in: it is added, and e^x is 0.
double ls_hidden_score(const struct ls_graph *graph);

// A layer inside the configuration of another one: {"class_name": "GRU", "config": {...}}. What is
// wrong with its form is said.
struct ls_inner_layer {
    const char *class_name, *name; // NULL: refused
    const json_t *config;
};
struct ls_inner_layer ls_config_inner(struct ls_config *config, const char *key,
                                      const json_t *value);

// A model that a layer has inside, made by model_build.c.
struct ls_inner_model {
    // `input` NULL: only options are checked. Operations then belong to the outer layer again.
    enum ls_status (*call)(struct ls_inner_model *model, struct ls_tensor *input, bool inference,
                           struct ls_tensor **outputs);
};

// The name by which Keras writes a class that it also exports by another one: MaxPool2D is
// MaxPooling2D. Other names stay as they are.
const char *ls_layer_class(const char *name);

// Calls `build` of the layer. With data_format "channels_first", which layers of Keras have for images
// and sequences, and where a normalization names other axes than the last ones, its first input and
// its outputs are transposed, so that `build` knows one order.
LS_STATUS ls_layer_build(struct ls_graph *graph, const struct ls_layer_call *call,
                         struct ls_tensor **outputs);

// Axes that a configuration names, one or a list, as bits; none is the first. 0: refused.
uint32_t ls_config_axes(struct ls_config *config, const char *key, const struct ls_tensor *x);
// The sum (function) over axes that are bits, which stay as dimensions of size 1.
LS_STATUS ls_add_reduction(struct ls_graph *graph, uint32_t function, uint32_t axes,
                           struct ls_tensor *x, struct ls_tensor **out);
// Dimension i of the result is dimension order[i] of x; x itself where that is the same. Of two
// transpositions, one behind the other, one is left, or none.
LS_STATUS ls_add_transposition(struct ls_graph *graph, const int32_t order[LS_MAX_DIMS],
                               struct ls_tensor *x, struct ls_tensor **out);
// An operation element by element. Behind inputs that are transposed alike it comes before their
// transposition, which the next layer may then undo.
LS_STATUS ls_add_elementwise(struct ls_graph *graph, uint32_t op,
                             const struct ls_op_attributes *attributes,
                             struct ls_tensor *const *inputs, uint32_t count,
                             struct ls_tensor **out);
// How many dimensions the key axis names, of a kind that moves them, which has checked them.
uint32_t ls_config_axis_count(const struct ls_config *config);
// x / max(norm, least) along axes that are bits.
LS_STATUS ls_add_unit(struct ls_graph *graph, uint32_t axes, double least, struct ls_tensor *x,
                      struct ls_tensor **out);
// dropout or noise on x in training; x itself where nothing is random.
LS_STATUS ls_add_random(struct ls_graph *graph, uint32_t op, double rate, bool inference,
                        struct ls_op_attributes attributes, struct ls_tensor *x,
                        struct ls_tensor **out);
// A rate, from 0 to below 1, that must be there.
double ls_config_rate(struct ls_config *config, const char *key);
// noise_shape of dropout: fills axes[i] with 1 where one draw is for all along dimension i.
void ls_config_noise_shape(struct ls_config *config, const struct ls_tensor *input, int32_t *axes);

// a (function) b, enum ls_pair_function, with numpy's broadcasting; either may be a parameter.
LS_STATUS ls_add_pair(struct ls_graph *graph, uint32_t function, struct ls_tensor *a,
                      struct ls_tensor *b, struct ls_tensor **out);
// x (function) numbers, one for each element of the last dimension or one for all, which become a
// constant of this name.
LS_STATUS ls_add_pair_with_numbers(struct ls_graph *graph, uint32_t function, struct ls_tensor *x,
                                   const char *name, const struct ls_numbers *numbers,
                                   struct ls_tensor **out);
// factor x + offset; x itself where that is the same.
LS_STATUS ls_add_scale(struct ls_graph *graph, double factor, double offset, struct ls_tensor *x,
                       struct ls_tensor **out);
// The inputs, one or more, one behind the other along `axis`.
LS_STATUS ls_add_concatenation(struct ls_graph *graph, struct ls_tensor *const *inputs,
                               uint32_t count, uint32_t axis, struct ls_tensor **out);

#endif
