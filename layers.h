// SPDX-License-Identifier: Apache-2.0
// Layers in C, with Keras's names. A Sequential model is an array that ends with LS_END:
//
//     LS_INPUT(28, 28, 1), LS_CONV2D(32, 3, .activation = "relu"), LS_MAX_POOLING2D(2),
//     LS_FLATTEN(), LS_DENSE(128, .activation = "relu"), LS_DENSE(10), LS_END
//
// In a functional model ls_layer_call (lockstep.h) calls one layer:
//
//     const struct ls_layer dense = LS_DENSE(10);
//     ls_layer_call(&dense, &x, 1, &y);
//
// A field that is omitted or zero has Keras's default. Exceptions are the rate of Dropout and
// SpatialDropout2D, LeakyReLU's negative_slope, ELU's alpha, GaussianNoise's stddev, Rescaling's
// scale and the sizes of the ZeroPadding and Cropping layers: they are the first arguments of their
// macros, and are used as given, even if they are zero. In all other fields LS_ZERO stands for
// zero:
//
//     LS_BATCH_NORMALIZATION(.momentum = LS_ZERO)
//
// An option that a layer does not have is an error when the model is created. Options that have no
// field here go into `options`, and any layer of docs/models.md can be made that way:
//
//     LS_LAYER("LayerNormalization", .options = "{\"axis\": [1, 2]}")
//
// Layers of your own are made in the same way (docs/own-parts.md).
#ifndef LS_LAYERS_H
#define LS_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

// Zero, for fields of options in which 0 stands for a default: a number that no such field can
// have.
#define LS_ZERO (UINT64_C(1) << 63)

// A layer with its options. The macros below fill it in.
struct ls_layer {
    const char *class_name; // "Dense"
    const char *name; // NULL: dense, dense_1, ... as Keras counts
    const char *activation; // "relu", "softmax", ...

    const char *options; // Keras's options as a JSON object, beside those of the fields

    // "he_normal", or with options "random_uniform:minval=-0.1,maxval=0.1".
    const char *kernel_initializer;
    const char *bias_initializer; // likewise, of the bias
    const char *depthwise_initializer, *pointwise_initializer; // depthwise, separable convolutions
    const char *embeddings_initializer; // Embedding
    const char *kernel_regularizer, *bias_regularizer; // "l2", "l1_l2:l1=1e-5,l2=1e-4"
    bool no_bias; // Keras's use_bias=False
    bool frozen; // Keras's trainable=False

    int64_t units; // Dense
    int64_t n; // RepeatVector

    // Convolutions. One number is for rows and columns; *_columns overrides it for the columns.
    int64_t filters;
    int64_t kernel_size, kernel_columns; // rows and columns
    int64_t strides, strides_columns; // also pooling, where 0 means pool_size
    int64_t dilation_rate, dilation_columns; // rows and columns
    int64_t groups; // also GroupNormalization (default 32)
    int64_t depth_multiplier; // DepthwiseConv2D, SeparableConv2D
    const char *padding; // "valid" (default), "same", Conv1D also "causal"; also pooling
    const char *data_format; // "channels_last" (default)

    int64_t pool_size, pool_columns; // pooling: rows and columns, as kernel_size

    // ZeroPadding2D, Cropping2D: rows above, below, columns left, right; 1D: steps
    int64_t border[4];
    int64_t size, size_columns; // UpSampling2D, UpSampling1D
    const char *interpolation; // UpSampling2D: "nearest" (default), "bilinear"

    // InputLayer: "float32" (default), "int32"; others: the policy, "mixed_bfloat16",
    // "mixed_float16"
    const char *dtype;

    // InputLayer: sizes of an example. Reshape: target_shape, one may be -1. Permute: the order of
    // the dimensions, from 1. Ends with 0.
    int64_t shape[6];

    int64_t input_dim, output_dim; // Embedding

    // MultiHeadAttention, which is called on query, value and, if it is another tensor, key.
    int64_t num_heads, key_dim, value_dim;
    double dropout; // of the attention scores
    bool causal; // Keras's use_causal_mask=True, in all of its calls

    double rate; // Dropout, SpatialDropout2D
    double stddev; // GaussianNoise
    double scale, offset; // Rescaling: x * scale + offset
    double negative_slope; // LeakyReLU: as given (Keras's default is 0.3); ReLU
    double alpha; // ELU: as given (Keras's default is 1)
    double max_value; // ReLU; 0: none

    // BatchNormalization; all but momentum and synchronized also of LayerNormalization and
    // GroupNormalization
    double momentum, epsilon;
    bool no_scale, no_center; // Keras's scale=False, center=False
    bool synchronized; // statistics of the whole batch, not of each replica's share
    const char *gamma_initializer, *beta_initializer; // as kernel_initializer
};

// The comment behind each macro names its positional arguments, which come before the named ones.
// The macros that take sizes take nothing else; with a name or a dtype, write such a layer as
//
//     LS_LAYER("InputLayer", .shape = {128}, .dtype = "int32", .name = "tokens")
//
// clang-format off
#define LS_LAYER(...) {.class_name = __VA_ARGS__} // class_name
#define LS_INPUT(...) {.class_name = "InputLayer", .shape = {__VA_ARGS__}} // sizes
#define LS_DENSE(...) {.class_name = "Dense", .units = __VA_ARGS__} // units
#define LS_CONV1D(...) {.class_name = "Conv1D", .filters = __VA_ARGS__} // filters, kernel_size
#define LS_CONV2D(...) {.class_name = "Conv2D", .filters = __VA_ARGS__} // filters, kernel_size
#define LS_CONV2D_TRANSPOSE(...) \
    {.class_name = "Conv2DTranspose", .filters = __VA_ARGS__} // filters, kernel_size
#define LS_DEPTHWISE_CONV2D(...) \
    {.class_name = "DepthwiseConv2D", .kernel_size = __VA_ARGS__} // kernel_size
#define LS_SEPARABLE_CONV2D(...) \
    {.class_name = "SeparableConv2D", .filters = __VA_ARGS__} // filters, kernel_size
#define LS_MAX_POOLING2D(...) {.class_name = "MaxPooling2D", .pool_size = __VA_ARGS__} // pool_size
#define LS_AVERAGE_POOLING2D(...) \
    {.class_name = "AveragePooling2D", .pool_size = __VA_ARGS__} // pool_size
#define LS_GLOBAL_AVERAGE_POOLING2D(...) \
    {.class_name = "GlobalAveragePooling2D", __VA_ARGS__} // none
#define LS_GLOBAL_MAX_POOLING2D(...) {.class_name = "GlobalMaxPooling2D", __VA_ARGS__} // none
#define LS_UP_SAMPLING2D(...) {.class_name = "UpSampling2D", .size = __VA_ARGS__} // size
#define LS_ZERO_PADDING2D(...) \
    {.class_name = "ZeroPadding2D", .border = {__VA_ARGS__}} // above, below, left, right
#define LS_CROPPING2D(...) \
    {.class_name = "Cropping2D", .border = {__VA_ARGS__}} // above, below, left, right
#define LS_MAX_POOLING1D(...) {.class_name = "MaxPooling1D", .pool_size = __VA_ARGS__} // pool_size
#define LS_AVERAGE_POOLING1D(...) \
    {.class_name = "AveragePooling1D", .pool_size = __VA_ARGS__} // pool_size
#define LS_GLOBAL_AVERAGE_POOLING1D(...) \
    {.class_name = "GlobalAveragePooling1D", __VA_ARGS__} // none
#define LS_GLOBAL_MAX_POOLING1D(...) {.class_name = "GlobalMaxPooling1D", __VA_ARGS__} // none
#define LS_UP_SAMPLING1D(...) {.class_name = "UpSampling1D", .size = __VA_ARGS__} // size
#define LS_ZERO_PADDING1D(...) \
    {.class_name = "ZeroPadding1D", .border = {__VA_ARGS__}} // before, after
#define LS_CROPPING1D(...) {.class_name = "Cropping1D", .border = {__VA_ARGS__}} // before, after
#define LS_REPEAT_VECTOR(...) {.class_name = "RepeatVector", .n = __VA_ARGS__} // n
#define LS_IDENTITY(...) {.class_name = "Identity", __VA_ARGS__} // none
#define LS_FLATTEN(...) {.class_name = "Flatten", __VA_ARGS__} // none
#define LS_RESHAPE(...) {.class_name = "Reshape", .shape = {__VA_ARGS__}} // sizes
#define LS_PERMUTE(...) {.class_name = "Permute", .shape = {__VA_ARGS__}} // dimensions, from 1
#define LS_DROPOUT(...) {.class_name = "Dropout", .rate = __VA_ARGS__} // rate
#define LS_SPATIAL_DROPOUT2D(...) {.class_name = "SpatialDropout2D", .rate = __VA_ARGS__} // rate
#define LS_GAUSSIAN_NOISE(...) {.class_name = "GaussianNoise", .stddev = __VA_ARGS__} // stddev
#define LS_RESCALING(...) {.class_name = "Rescaling", .scale = __VA_ARGS__} // scale, offset
#define LS_ACTIVATION(...) {.class_name = "Activation", .activation = __VA_ARGS__} // activation
#define LS_RELU(...) {.class_name = "ReLU", __VA_ARGS__} // none
#define LS_PRELU(...) {.class_name = "PReLU", __VA_ARGS__} // none
#define LS_LEAKY_RELU(...) \
    {.class_name = "LeakyReLU", .negative_slope = __VA_ARGS__} // negative_slope
#define LS_ELU(...) {.class_name = "ELU", .alpha = __VA_ARGS__} // alpha
#define LS_SOFTMAX(...) {.class_name = "Softmax", __VA_ARGS__} // none
#define LS_BATCH_NORMALIZATION(...) {.class_name = "BatchNormalization", __VA_ARGS__} // none
#define LS_LAYER_NORMALIZATION(...) {.class_name = "LayerNormalization", __VA_ARGS__} // none
#define LS_GROUP_NORMALIZATION(...) \
    {.class_name = "GroupNormalization", .groups = __VA_ARGS__} // groups
#define LS_EMBEDDING(...) \
    {.class_name = "Embedding", .input_dim = __VA_ARGS__} // input_dim, output_dim
// For several symbols, in functional models; the comments say what is computed.
#define LS_MULTI_HEAD_ATTENTION(...) \
    {.class_name = "MultiHeadAttention", .num_heads = __VA_ARGS__} // num_heads, key_dim
#define LS_ADD(...) {.class_name = "Add", __VA_ARGS__} // of all inputs
#define LS_SUBTRACT(...) {.class_name = "Subtract", __VA_ARGS__} // the second from the first
#define LS_MULTIPLY(...) {.class_name = "Multiply", __VA_ARGS__} // of all inputs
#define LS_AVERAGE(...) {.class_name = "Average", __VA_ARGS__} // of all inputs
#define LS_MAXIMUM(...) {.class_name = "Maximum", __VA_ARGS__} // of all inputs
#define LS_MINIMUM(...) {.class_name = "Minimum", __VA_ARGS__} // of all inputs
#define LS_CONCATENATE(...) {.class_name = "Concatenate", __VA_ARGS__} // along the last axis
#define LS_END {.class_name = 0} // after the last layer of an array
// clang-format on

#endif
