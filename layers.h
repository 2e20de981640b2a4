// SPDX-License-Identifier: Apache-2.0
// Layers in C, with Keras's names. A Sequential model is an array that ends with LS_END:
//
//     LS_INPUT(28, 28, 1), LS_CONV2D(32, 3, .activation = "relu"), LS_MAX_POOLING2D(2), LS_FLATTEN(),
//     LS_DENSE(128, .activation = "relu"), LS_DENSE(10), LS_END
//
// In a functional model ls_layer_call (lockstep.h) calls one layer:
//
//     const struct ls_layer dense = LS_DENSE(10);
//     ls_layer_call(&dense, &x, 1, &y);
//
// A field that is omitted or zero has Keras's default, with three exceptions: Dropout's rate,
// LeakyReLU's negative_slope and ELU's alpha are the first arguments of their macros and are used
// as given, even if they are zero. An option that a layer does not have is an error when the model
// is created.
#ifndef LS_LAYERS_H
#define LS_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

struct ls_layer {
    const char *class_name; // "Dense"
    const char *name; // NULL: dense, dense_1, ... as Keras counts
    const char *activation; // "relu", "softmax", ...

    // "he_normal", or with options "random_uniform:minval=-0.1,maxval=0.1".
    const char *kernel_initializer;
    const char *bias_initializer;
    bool no_bias; // Keras's use_bias=False
    bool frozen; // Keras's trainable=False

    int64_t units; // Dense

    // Conv2D. One number sets rows and columns; *_columns overrides it for the columns.
    int64_t filters;
    int64_t kernel_size, kernel_columns;
    int64_t strides, strides_columns; // also pooling, where 0 means pool_size
    int64_t dilation_rate, dilation_columns;
    int64_t groups;
    const char *padding; // "valid" (default), "same"; also pooling
    const char *data_format; // "channels_last" (default)

    int64_t pool_size, pool_columns;

    const char *dtype; // InputLayer: "float32" (default), "int32"

    // InputLayer: sizes of an example. Reshape: target_shape, one may be -1. Ends with 0.
    int64_t shape[6];

    double rate; // Dropout
    double negative_slope; // LeakyReLU: as given (Keras's default is 0.3); ReLU
    double alpha; // ELU: as given (Keras's default is 1)
    double max_value; // ReLU; 0: none

    // BatchNormalization
    double momentum, epsilon;
    bool no_scale, no_center; // Keras's scale=False, center=False
    const char *gamma_initializer, *beta_initializer;
};

// The comment behind each macro names its positional arguments, which precede the named ones.
// clang-format off
#define LS_INPUT(...) {.class_name = "InputLayer", .shape = {__VA_ARGS__}}                      // sizes
#define LS_DENSE(...) {.class_name = "Dense", .units = __VA_ARGS__}                             // units
#define LS_CONV2D(...) {.class_name = "Conv2D", .filters = __VA_ARGS__}                         // filters, kernel_size
#define LS_MAX_POOLING2D(...) {.class_name = "MaxPooling2D", .pool_size = __VA_ARGS__}          // pool_size
#define LS_AVERAGE_POOLING2D(...) {.class_name = "AveragePooling2D", .pool_size = __VA_ARGS__}  // pool_size
#define LS_FLATTEN(...) {.class_name = "Flatten", __VA_ARGS__}
#define LS_RESHAPE(...) {.class_name = "Reshape", .shape = {__VA_ARGS__}}                       // sizes
#define LS_DROPOUT(...) {.class_name = "Dropout", .rate = __VA_ARGS__}                          // rate
#define LS_ACTIVATION(...) {.class_name = "Activation", .activation = __VA_ARGS__}              // activation
#define LS_RELU(...) {.class_name = "ReLU", __VA_ARGS__}
#define LS_LEAKY_RELU(...) {.class_name = "LeakyReLU", .negative_slope = __VA_ARGS__}           // negative_slope
#define LS_ELU(...) {.class_name = "ELU", .alpha = __VA_ARGS__}                                 // alpha
#define LS_BATCH_NORMALIZATION(...) {.class_name = "BatchNormalization", __VA_ARGS__}
#define LS_SOFTMAX(...) {.class_name = "Softmax", __VA_ARGS__}
#define LS_BATCH_NORMALIZATION(...) {.class_name = "BatchNormalization", __VA_ARGS__}
#define LS_GLOBAL_AVERAGE_POOLING2D(...) {.class_name = "GlobalAveragePooling2D", __VA_ARGS__}
#define LS_GLOBAL_MAX_POOLING2D(...) {.class_name = "GlobalMaxPooling2D", __VA_ARGS__}
// On several symbols, in functional models.
#define LS_ADD(...) {.class_name = "Add", __VA_ARGS__}
#define LS_SUBTRACT(...) {.class_name = "Subtract", __VA_ARGS__}
#define LS_MULTIPLY(...) {.class_name = "Multiply", __VA_ARGS__}
#define LS_AVERAGE(...) {.class_name = "Average", __VA_ARGS__}
#define LS_MAXIMUM(...) {.class_name = "Maximum", __VA_ARGS__}
#define LS_MINIMUM(...) {.class_name = "Minimum", __VA_ARGS__}
#define LS_CONCATENATE(...) {.class_name = "Concatenate", __VA_ARGS__}                          // along the last axis
#define LS_END {.class_name = 0}
// clang-format on

#endif
