// SPDX-License-Identifier: Apache-2.0
// The rows.
#include "core/operation/operation.h"

#include "core/operation/rules.h"

#include <stdio.h>

// clang-format off
#define ARGUMENT(name_, kind_, type_) \
    {.name = name_, .kind = LS_ARGUMENT_##kind_, .type = LS_TYPE_##type_}
#define OPTIONAL(name_, kind_, type_) \
    {.name = name_, .kind = LS_ARGUMENT_##kind_, .type = LS_TYPE_##type_, .optional = true}
#define ANY_SHAPE(name_) {.name = name_, .kind = LS_ARGUMENT_TENSOR, .any_shape = true}
#define OPAQUE(name_) \
    {.name = name_, .kind = LS_ARGUMENT_SAVED, .type = LS_TYPE_U8, .optional = true, .opaque = true}
// Arguments of backward operations.
#define INPUT(index) {.source = LS_SOURCE_INPUT, .source_index = index}
#define OUTPUT(index) {.source = LS_SOURCE_OUTPUT, .source_index = index}
#define INPUT_GRADIENT(index) {.source = LS_SOURCE_INPUT_GRADIENT, .source_index = index}
#define OUTPUT_GRADIENT(index) {.source = LS_SOURCE_OUTPUT_GRADIENT, .source_index = index}

#define X ARGUMENT("x", TENSOR, FLOATING)
#define Y ARGUMENT("y", TENSOR, FLOATING)

// What `function` of the attributes chooses.
static const char *const function_names[LS_FUNCTION_COUNT] = {
    [LS_SCALE] = "scale",
    [LS_GELU] = "gelu",
    [LS_GELU_TANH] = "gelu_tanh",
    [LS_SILU] = "silu",
    [LS_HARD_SILU] = "hard_silu",
    [LS_MISH] = "mish",
    [LS_LOG_SIGMOID] = "log_sigmoid",
    [LS_SQUARE] = "square",
    [LS_SQUARE_ROOT] = "square_root",
    [LS_LOGARITHM] = "log",
};

static const char *const pair_names[LS_PAIR_COUNT] = {
    [LS_PAIR_ADD] = "add",
    [LS_PAIR_SUBTRACT] = "subtract",
    [LS_PAIR_MULTIPLY] = "multiply",
    [LS_PAIR_DIVIDE] = "divide",
    [LS_PAIR_MAXIMUM] = "maximum",
    [LS_PAIR_MINIMUM] = "minimum",
};

static const char *const reduce_names[LS_REDUCE_COUNT] = {
    [LS_REDUCE_TO_SUM] = "sum",
    [LS_REDUCE_TO_MEAN] = "mean",
    [LS_REDUCE_TO_MAXIMUM] = "largest",
};

static const char *const upsample_names[LS_UPSAMPLE_COUNT] = {
    [LS_UPSAMPLE_NEAREST] = "upsample2d",
    [LS_UPSAMPLE_BILINEAR] = "upsample2d_bilinear",
};

static const char *const update_names[LS_UPDATE_COUNT] = {
    [LS_UPDATE_SGD] = "update_sgd",
    [LS_UPDATE_ADAM] = "update_adam",
    [LS_UPDATE_AMSGRAD] = "update_amsgrad",
    [LS_UPDATE_RMSPROP] = "update_rmsprop",
    [LS_UPDATE_RMSPROP_CENTERED] = "update_rmsprop_centered",
    [LS_UPDATE_ADAGRAD] = "update_adagrad",
    [LS_UPDATE_ADADELTA] = "update_adadelta",
    [LS_UPDATE_ADAMAX] = "update_adamax",
    [LS_UPDATE_NADAM] = "update_nadam",
};

static const char *const clip_names[LS_CLIP_COUNT] = {
    [LS_CLIP_VALUE] = "clip_by_value",
    [LS_CLIP_NORM] = "clip_by_norm",
};

static const char *const loss_names[LS_LOSS_FUNCTION_COUNT] = {
    [LS_LOSS_SPARSE] = "weighted_sparse_cross_entropy",
    [LS_LOSS_CATEGORICAL] = "categorical_cross_entropy",
    [LS_LOSS_BINARY] = "binary_cross_entropy",
    [LS_LOSS_SQUARED] = "weighted_squared_error",
    [LS_LOSS_ABSOLUTE] = "absolute_error",
    [LS_LOSS_PERCENTAGE] = "absolute_percentage_error",
    [LS_LOSS_LOGARITHMIC] = "squared_logarithmic_error",
    [LS_LOSS_HUBER] = "huber",
    [LS_LOSS_LOG_COSH] = "log_cosh",
    [LS_LOSS_DIVERGENCE] = "kl_divergence",
    [LS_LOSS_POISSON] = "poisson",
    [LS_LOSS_HINGE] = "hinge",
    [LS_LOSS_SQUARED_HINGE] = "squared_hinge",
    [LS_LOSS_CATEGORICAL_HINGE] = "categorical_hinge",
    [LS_LOSS_COSINE] = "cosine_similarity",
    [LS_LOSS_VALUES] = "composed_loss",
};

static const char *const metric_names[LS_METRIC_FUNCTION_COUNT] = {
    [LS_METRIC_BINARY] = "binary_accuracy",
    [LS_METRIC_CATEGORICAL] = "categorical_accuracy",
    [LS_METRIC_TOP] = "top_k_accuracy",
    [LS_METRIC_CONFUSION] = "confusion",
    [LS_METRIC_BUCKETS] = "score_buckets",
    [LS_METRIC_CLASSES] = "confusion_of_classes",
    [LS_METRIC_EACH_CLASS] = "confusion_of_each_class",
    [LS_METRIC_SQUARES] = "squares_of_each_column",
    [LS_METRIC_PEARSON] = "pearson_correlation",
    [LS_METRIC_CONCORDANCE] = "concordance_correlation",
};

static const char *const recurrent_names[LS_RECURRENT_COUNT] = {
    [LS_RECURRENT_SIMPLE] = "simple_rnn",
    [LS_RECURRENT_LSTM] = "lstm",
    [LS_RECURRENT_GRU] = "gru",
    [LS_RECURRENT_GRU_RESET_AFTER] = "gru_reset_after",
};

static const char *const resize_names[LS_UPSAMPLE_COUNT] = {
    [LS_UPSAMPLE_NEAREST] = "resize2d",
    [LS_UPSAMPLE_BILINEAR] = "resize2d_bilinear",
};

static const char *const draw_names[LS_DRAW_COUNT] = {
    [LS_DRAW_FLIP_COLUMNS] = "draw_flip",
    [LS_DRAW_FLIP_ROWS] = "draw_flip_of_rows",
    [LS_DRAW_FLIP_BOTH] = "draw_flip_of_both",
    [LS_DRAW_ROTATION] = "draw_rotation",
    [LS_DRAW_ZOOM] = "draw_zoom",
    [LS_DRAW_ZOOM_EVEN] = "draw_even_zoom",
    [LS_DRAW_TRANSLATION] = "draw_translation",
    [LS_DRAW_CROP] = "draw_crop",
    [LS_DRAW_CONTRAST] = "draw_contrast",
    [LS_DRAW_BRIGHTNESS] = "draw_brightness",
    [LS_DRAW_ERASE] = "draw_patch",
};

static const char *const resample_names[LS_RESAMPLE_COUNT] = {
    [LS_FILL_CONSTANT] = "resample_constant",
    [LS_FILL_NEAREST] = "resample_nearest",
    [LS_FILL_REFLECT] = "resample_reflect",
    [LS_FILL_WRAP] = "resample_wrap",
    [LS_RESAMPLE_BILINEAR | LS_FILL_CONSTANT] = "resample_bilinear_constant",
    [LS_RESAMPLE_BILINEAR | LS_FILL_NEAREST] = "resample_bilinear_nearest",
    [LS_RESAMPLE_BILINEAR | LS_FILL_REFLECT] = "resample_bilinear_reflect",
    [LS_RESAMPLE_BILINEAR | LS_FILL_WRAP] = "resample_bilinear_wrap",
};

static const char *const recolour_names[LS_RECOLOUR_COUNT] = {
    [LS_RECOLOUR_PLAIN] = "recolour",
    [LS_RECOLOUR_AROUND_MEAN] = "recolour_around_mean",
};

static const char *const encode_names[LS_ENCODE_COUNT] = {
    [LS_ENCODE_ONE_HOT] = "one_hot",
    [LS_ENCODE_ONE_HOT_CHECKED] = "checked_one_hot",
    [LS_ENCODE_MULTI_HOT] = "multi_hot",
    [LS_ENCODE_COUNTS] = "counts_of_ids",
};

static const char *const erase_names[LS_ERASE_COUNT] = {
    [LS_ERASE_VALUE] = "erase",
    [LS_ERASE_NOISE] = "erase_with_noise",
};

static const struct ls_operation_row rows[LS_OP_COUNT] = {
    [LS_OP_NONE] = {.name = "none"},

    // ---- Weighted ----
    [LS_OP_CONV2D] = {
        .name = "conv2d",
        .inputs = {X, ARGUMENT("w", PARAMETER, FLOATING), OPTIONAL("b", PARAMETER, FLOATING)},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_EPILOGUE,
        .examples = LS_EXAMPLES_APART,
        // The gradient of the weights first: it can travel while the other one is computed.
        .backward = {LS_OP_CONV2D_BACKWARD_WEIGHTS, LS_OP_CONV2D_BACKWARD_DATA},
        .shapes = ls_shapes_of_conv2d,
    },
    [LS_OP_CONV2D_BACKWARD_DATA] = {
        .name = "conv2d_backward_data",
        .backward_of = LS_OP_CONV2D,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
        .traits = LS_TRAIT_EPILOGUE,
        .examples = LS_EXAMPLES_APART,
    },
    [LS_OP_CONV2D_BACKWARD_WEIGHTS] = {
        .name = "conv2d_backward_weights",
        .backward_of = LS_OP_CONV2D,
        .inputs = {INPUT(0), OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(1), INPUT_GRADIENT(2)},
        .traits = LS_TRAIT_EPILOGUE,
        .examples = LS_EXAMPLES_SUMMED,
    },
    [LS_OP_DENSE] = {
        .name = "dense",
        .inputs = {ANY_SHAPE("x"), ARGUMENT("w", PARAMETER, FLOATING),
                   OPTIONAL("b", PARAMETER, FLOATING)},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_EPILOGUE,
        .backward = {LS_OP_DENSE_BACKWARD_WEIGHTS, LS_OP_DENSE_BACKWARD_DATA},
        .shapes = ls_shapes_of_dense,
    },
    [LS_OP_DENSE_BACKWARD_DATA] = {
        .name = "dense_backward_data",
        .backward_of = LS_OP_DENSE,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
        .traits = LS_TRAIT_EPILOGUE,
    },
    [LS_OP_DENSE_BACKWARD_WEIGHTS] = {
        .name = "dense_backward_weights",
        .backward_of = LS_OP_DENSE,
        .inputs = {INPUT(0), OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(1), INPUT_GRADIENT(2)},
        .traits = LS_TRAIT_EPILOGUE,
    },

    // ---- Pooling ----
    [LS_OP_MAX_POOL2D] = {
        .name = "max_pool2d",
        .inputs = {X},
        .outputs = {Y, OPAQUE("saved")},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_EPILOGUE,
        .examples = LS_EXAMPLES_APART,
        .backward = {LS_OP_MAX_POOL2D_BACKWARD},
        .shapes = ls_shapes_of_pool,
    },
    [LS_OP_MAX_POOL2D_BACKWARD] = {
        .name = "max_pool2d_backward",
        .backward_of = LS_OP_MAX_POOL2D,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0), OUTPUT(0), OUTPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
        .traits = LS_TRAIT_EPILOGUE,
        .examples = LS_EXAMPLES_APART,
    },
    [LS_OP_AVERAGE_POOL2D] = {
        .name = "average_pool2d",
        .inputs = {X},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_EPILOGUE,
        .examples = LS_EXAMPLES_APART,
        .backward = {LS_OP_AVERAGE_POOL2D_BACKWARD},
        .shapes = ls_shapes_of_pool,
    },
    [LS_OP_AVERAGE_POOL2D_BACKWARD] = {
        .name = "average_pool2d_backward",
        .backward_of = LS_OP_AVERAGE_POOL2D,
        .inputs = {OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(0)},
        .traits = LS_TRAIT_EPILOGUE,
        .examples = LS_EXAMPLES_APART,
    },

    // ---- Functions of elements and of rows ----
    [LS_OP_ACTIVATION] = {
        .name = "activation",
        .inputs = {X},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_ACTIVATION | LS_TRAIT_EPILOGUE,
        .examples = LS_EXAMPLES_APART,
        .fusion = LS_FUSION_EPILOGUE,
        .backward = {LS_OP_ACTIVATION_BACKWARD},
        .shapes = ls_shapes_of_activation,
    },
    [LS_OP_ACTIVATION_BACKWARD] = {
        .name = "activation_backward",
        .backward_of = LS_OP_ACTIVATION,
        .inputs = {OUTPUT_GRADIENT(0), OUTPUT(0)},
        .outputs = {INPUT_GRADIENT(0)},
        .traits = LS_TRAIT_ACTIVATION | LS_TRAIT_EPILOGUE,
        .examples = LS_EXAMPLES_APART,
        .fusion = LS_FUSION_EPILOGUE_OF_GRADIENT,
    },
    [LS_OP_SOFTMAX] = {
        .name = "softmax",
        .inputs = {X},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_PROBABILITIES | LS_TRAIT_EPILOGUE,
        .backward = {LS_OP_SOFTMAX_BACKWARD},
        .shapes = ls_shapes_of_softmax,
    },
    [LS_OP_SOFTMAX_BACKWARD] = {
        .name = "softmax_backward",
        .backward_of = LS_OP_SOFTMAX,
        .inputs = {OUTPUT_GRADIENT(0), OUTPUT(0)},
        .outputs = {INPUT_GRADIENT(0)},
        .traits = LS_TRAIT_EPILOGUE,
    },
    [LS_OP_DROPOUT] = {
        .name = "dropout",
        .inputs = {X},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_TRAINING_ONLY | LS_TRAIT_EPILOGUE,
        .gradient = LS_GRADIENT_SAME_OPERATION,
        .shapes = ls_shapes_of_dropout,
    },
    [LS_OP_RESHAPE] = {
        .name = "reshape",
        .inputs = {ANY_SHAPE("x")},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_VIEW | LS_TRAIT_EPILOGUE,
        .gradient = LS_GRADIENT_SAME_OPERATION,
        .shapes = ls_shapes_of_reshape,
    },
    [LS_OP_ADD] = {
        .name = "add",
        .inputs = {ARGUMENT("a", TENSOR, FLOATING), ARGUMENT("b", TENSOR, FLOATING)},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_EPILOGUE,
        .fusion = LS_FUSION_ADDEND,
        .gradient = LS_GRADIENT_PASSED_ON,
        .shapes = ls_shapes_of_pair,
    },
    [LS_OP_CONVERT] = {
        .name = "convert",
        .inputs = {ARGUMENT("x", TENSOR, OWN_FLOATING)},
        .outputs = {ARGUMENT("y", TENSOR, OWN_FLOATING)},
        .gradient = LS_GRADIENT_SAME_OPERATION,
        .shapes = ls_shapes_kept,
    },

    // ---- Losses ----
    [LS_OP_SPARSE_CROSS_ENTROPY] = {
        .name = "sparse_cross_entropy",
        .inputs = {ARGUMENT("predictions", TENSOR, FLOATING), ARGUMENT("labels", LABEL, I32)},
        .outputs = {ARGUMENT("sums", SUMS, F32), OPTIONAL("saved", SAVED, F32)},
        .traits = LS_TRAIT_LOSS,
        .backward = {LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD},
        .shapes = ls_shapes_of_sparse_cross_entropy,
    },
    [LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD] = {
        .name = "sparse_cross_entropy_backward",
        .backward_of = LS_OP_SPARSE_CROSS_ENTROPY,
        .inputs = {INPUT(0), INPUT(1), OUTPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
        .traits = LS_TRAIT_EPILOGUE,
    },
    [LS_OP_MEAN_SQUARED_ERROR] = {
        .name = "mean_squared_error",
        .inputs = {ARGUMENT("predictions", TENSOR, FLOATING), ARGUMENT("targets", LABEL, F32)},
        .outputs = {ARGUMENT("sums", SUMS, F32)},
        .traits = LS_TRAIT_LOSS,
        .backward = {LS_OP_MEAN_SQUARED_ERROR_BACKWARD},
        .shapes = ls_shapes_of_mean_squared_error,
    },
    [LS_OP_MEAN_SQUARED_ERROR_BACKWARD] = {
        .name = "mean_squared_error_backward",
        .backward_of = LS_OP_MEAN_SQUARED_ERROR,
        .inputs = {INPUT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
        .traits = LS_TRAIT_EPILOGUE,
    },

    // ---- Flat ranges ----
    [LS_OP_SGD_UPDATE] = {
        .name = "sgd_update",
        .inputs = {ARGUMENT("gradient", FLAT, F32)},
        .outputs = {ARGUMENT("parameter", FLAT, F32), OPTIONAL("velocity", FLAT, F32)},
        .traits = LS_TRAIT_UPDATE,
        .shapes = ls_shapes_kept,
    },
    [LS_OP_ADAM_UPDATE] = {
        .name = "adam_update",
        .inputs = {ARGUMENT("gradient", FLAT, F32)},
        .outputs = {ARGUMENT("parameter", FLAT, F32), ARGUMENT("first moment", FLAT, F32),
                    ARGUMENT("second moment", FLAT, F32)},
        .traits = LS_TRAIT_UPDATE,
        .shapes = ls_shapes_kept,
    },
    [LS_OP_MEASURE] = {
        .name = "measure",
        .inputs = {ARGUMENT("x", FLAT, F32)},
        .outputs = {ARGUMENT("result", RESULT, F64)},
        .shapes = ls_shapes_of_measure,
    },
    [LS_OP_FROM_BYTES] = {
        .name = "from_bytes",
        .inputs = {ARGUMENT("x", TENSOR, U8)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .shapes = ls_shapes_of_from_bytes,
    },
    [LS_OP_GUARD] = {
        .name = "guard",
        .inputs = {ARGUMENT("x", FLAT, F32)},
        .outputs = {ARGUMENT("flag", RESULT, I32), ARGUMENT("skip", RESULT, I32)},
        .shapes = ls_shapes_of_guard,
    },

    // ---- Normalization ----
    [LS_OP_BATCH_NORMALIZATION] = {
        .name = "batch_normalization",
        .inputs = {X, ARGUMENT("gamma", PARAMETER, F32), ARGUMENT("beta", PARAMETER, F32),
                   OPTIONAL("addend", ADDEND, FLOATING)},
        .outputs = {Y, ARGUMENT("mean", STATISTIC, F32), ARGUMENT("variance", STATISTIC, F32)},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_EPILOGUE,
        .backward = {LS_OP_BATCH_NORMALIZATION_BACKWARD},
        .given = LS_OP_BATCH_NORMALIZATION_INFERENCE,
        .shapes = ls_shapes_of_batch_normalization,
    },
    [LS_OP_BATCH_NORMALIZATION_BACKWARD] = {
        .name = "batch_normalization_backward",
        .backward_of = LS_OP_BATCH_NORMALIZATION,
        .inputs = {INPUT(0), INPUT(1), OUTPUT(1), OUTPUT(2), OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(0), INPUT_GRADIENT(1), INPUT_GRADIENT(2)},
    },
    [LS_OP_BATCH_NORMALIZATION_INFERENCE] = {
        .name = "batch_normalization_inference",
        .inputs = {X, ARGUMENT("gamma", PARAMETER, F32), ARGUMENT("beta", PARAMETER, F32),
                   ARGUMENT("mean", PARAMETER, F32), ARGUMENT("variance", PARAMETER, F32),
                   OPTIONAL("addend", ADDEND, FLOATING)},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_EPILOGUE,
        .backward = {LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS,
                     LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA},
        .shapes = ls_shapes_of_batch_normalization,
    },

    [LS_OP_MAXIMUM] = {
        .name = "maximum",
        .inputs = {ARGUMENT("a", TENSOR, FLOATING), ARGUMENT("b", TENSOR, FLOATING)},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_MAXIMUM_BACKWARD},
        .shapes = ls_shapes_of_pair,
    },
    [LS_OP_MAXIMUM_BACKWARD] = {
        .name = "maximum_backward",
        .backward_of = LS_OP_MAXIMUM,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0), INPUT_GRADIENT(1)},
    },

    // ---- Moving statistics ----
    [LS_OP_BATCH_STATISTICS] = {
        .name = "batch_statistics",
        .inputs = {ARGUMENT("mean", STATISTIC, F32), ARGUMENT("variance", STATISTIC, F32)},
        .outputs = {ARGUMENT("moving mean", PARAMETER, F32),
                    ARGUMENT("moving variance", PARAMETER, F32)},
        .shapes = ls_shapes_of_pair,
    },
    [LS_OP_AVERAGE_UPDATE] = {
        .name = "average_update",
        .inputs = {ARGUMENT("gradient", FLAT, F32)},
        .outputs = {ARGUMENT("parameter", FLAT, F32)},
        .traits = LS_TRAIT_UPDATE,
        .shapes = ls_shapes_kept,
    },
    [LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA] = {
        .name = "batch_normalization_inference_backward_data",
        .backward_of = LS_OP_BATCH_NORMALIZATION_INFERENCE,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(1), INPUT(4)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS] = {
        .name = "batch_normalization_inference_backward_weights",
        .backward_of = LS_OP_BATCH_NORMALIZATION_INFERENCE,
        .inputs = {INPUT(0), INPUT(3), INPUT(4), OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(1), INPUT_GRADIENT(2)},
    },
    // ---- Rows of examples: normalization, embedding, attention, products ----
    [LS_OP_LAYER_NORMALIZATION] = {
        .name = "layer_normalization",
        .inputs = {ARGUMENT("x", TENSOR, F32), OPTIONAL("gamma", PARAMETER, F32),
                   OPTIONAL("beta", PARAMETER, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32), OPAQUE("saved")},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_LAYER_NORMALIZATION_BACKWARD},
        .shapes = ls_shapes_of_layer_normalization,
    },
    [LS_OP_LAYER_NORMALIZATION_BACKWARD] = {
        .name = "layer_normalization_backward",
        .backward_of = LS_OP_LAYER_NORMALIZATION,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0), OUTPUT(1), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0), INPUT_GRADIENT(1), INPUT_GRADIENT(2)},
    },
    [LS_OP_GATHER_ROWS] = {
        .name = "gather_rows",
        .inputs = {ARGUMENT("ids", TENSOR, INDEX), ARGUMENT("table", PARAMETER, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_GATHER_ROWS_BACKWARD},
        .shapes = ls_shapes_of_gather_rows,
    },
    [LS_OP_GATHER_ROWS_BACKWARD] = {
        .name = "gather_rows_backward",
        .backward_of = LS_OP_GATHER_ROWS,
        .inputs = {INPUT(0), OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(1)},
    },
    [LS_OP_ATTENTION] = {
        .name = "attention",
        .inputs = {ARGUMENT("q", TENSOR, F32), ARGUMENT("k", TENSOR, F32),
                   ARGUMENT("v", TENSOR, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32), OPAQUE("saved")},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_ATTENTION_BACKWARD},
        .shapes = ls_shapes_of_attention,
    },
    [LS_OP_ATTENTION_BACKWARD] = {
        .name = "attention_backward",
        .backward_of = LS_OP_ATTENTION,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0), INPUT(1), INPUT(2), OUTPUT(1)},
        .outputs = {INPUT_GRADIENT(0), INPUT_GRADIENT(1), INPUT_GRADIENT(2)},
    },
    [LS_OP_MATMUL] = {
        .name = "matmul",
        .inputs = {ARGUMENT("a", TENSOR, F32), ARGUMENT("b", TENSOR, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_MATMUL_BACKWARD_LEFT, LS_OP_MATMUL_BACKWARD_RIGHT},
        .shapes = ls_shapes_of_matmul,
    },
    [LS_OP_MATMUL_BACKWARD_LEFT] = {
        .name = "matmul_backward_left",
        .backward_of = LS_OP_MATMUL,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_MATMUL_BACKWARD_RIGHT] = {
        .name = "matmul_backward_right",
        .backward_of = LS_OP_MATMUL,
        .inputs = {INPUT(0), OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(1)},
    },

    // ---- More weighted ones ----
    [LS_OP_CONV2D_TRANSPOSE] = {
        .name = "conv2d_transpose",
        .inputs = {ARGUMENT("x", TENSOR, F32), ARGUMENT("w", PARAMETER, F32),
                   OPTIONAL("b", PARAMETER, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS,
                     LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA},
        .shapes = ls_shapes_of_conv2d_transpose,
    },
    [LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA] = {
        .name = "conv2d_transpose_backward_data",
        .backward_of = LS_OP_CONV2D_TRANSPOSE,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS] = {
        .name = "conv2d_transpose_backward_weights",
        .backward_of = LS_OP_CONV2D_TRANSPOSE,
        .inputs = {INPUT(0), OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(1), INPUT_GRADIENT(2)},
    },
    [LS_OP_PRELU] = {
        .name = "prelu",
        .inputs = {ARGUMENT("x", TENSOR, F32), ARGUMENT("alpha", PARAMETER, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_PRELU_BACKWARD},
        .shapes = ls_shapes_of_prelu,
    },
    [LS_OP_PRELU_BACKWARD] = {
        .name = "prelu_backward",
        .backward_of = LS_OP_PRELU,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0), INPUT_GRADIENT(1)},
    },
    [LS_OP_PENALTY] = {
        .name = "penalty",
        .inputs = {ARGUMENT("x", TENSOR, F32), ARGUMENT("w", EITHER, F32)},
        .outputs = {ARGUMENT("sums", SUMS, F32)},
        .traits = LS_TRAIT_LOSS,
        .backward = {LS_OP_PENALTY_BACKWARD},
        .shapes = ls_shapes_of_penalty,
    },
    [LS_OP_PENALTY_BACKWARD] = {
        .name = "penalty_backward",
        .backward_of = LS_OP_PENALTY,
        .inputs = {INPUT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(1)},
    },

    // ---- Functions of elements that need x again ----
    [LS_OP_FUNCTION] = {
        .name = "function",
        .inputs = {ARGUMENT("x", EITHER, FLOATING)},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER,
        .examples = LS_EXAMPLES_APART,
        .backward = {LS_OP_FUNCTION_BACKWARD},
        .functions = function_names,
        .function_count = LS_FUNCTION_COUNT,
        .shapes = ls_shapes_kept,
    },
    [LS_OP_FUNCTION_BACKWARD] = {
        .name = "function_backward",
        .backward_of = LS_OP_FUNCTION,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0)},
        .outputs = {INPUT_GRADIENT(0)},
        .examples = LS_EXAMPLES_APART,
    },

    // ---- Pairs with broadcasting, and what undoes it ----
    [LS_OP_PAIR] = {
        .name = "pair",
        .inputs = {ARGUMENT("a", EITHER, FLOATING), ARGUMENT("b", EITHER, FLOATING)},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER,
        // What is repeated more often is a parameter: its gradient can travel meanwhile.
        .backward = {LS_OP_PAIR_BACKWARD_SECOND, LS_OP_PAIR_BACKWARD_FIRST},
        .functions = pair_names,
        .function_count = LS_PAIR_COUNT,
        .shapes = ls_shapes_of_broadcast,
    },
    [LS_OP_PAIR_BACKWARD_FIRST] = {
        .name = "pair_backward_first",
        .backward_of = LS_OP_PAIR,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_PAIR_BACKWARD_SECOND] = {
        .name = "pair_backward_second",
        .backward_of = LS_OP_PAIR,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(1)},
    },
    [LS_OP_REDUCE] = {
        .name = "reduce",
        .inputs = {X},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_REDUCE_BACKWARD},
        .functions = reduce_names,
        .function_count = LS_REDUCE_COUNT,
        .shapes = ls_shapes_of_reduce,
    },
    [LS_OP_REDUCE_BACKWARD] = {
        .name = "reduce_backward",
        .backward_of = LS_OP_REDUCE,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0), OUTPUT(0)},
        .outputs = {INPUT_GRADIENT(0)},
    },

    // ---- What moves elements ----
    [LS_OP_CONCATENATE] = {
        .name = "concatenate",
        .inputs = {ARGUMENT("a", TENSOR, FLOATING), ARGUMENT("b", TENSOR, FLOATING),
                   OPTIONAL("c", TENSOR, FLOATING), OPTIONAL("d", TENSOR, FLOATING),
                   OPTIONAL("e", TENSOR, FLOATING), OPTIONAL("f", TENSOR, FLOATING),
                   OPTIONAL("g", TENSOR, FLOATING), OPTIONAL("h", TENSOR, FLOATING)},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_CONCATENATE_BACKWARD},
        .shapes = ls_shapes_of_concatenate,
    },
    [LS_OP_CONCATENATE_BACKWARD] = {
        .name = "concatenate_backward",
        .backward_of = LS_OP_CONCATENATE,
        .inputs = {OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(0), INPUT_GRADIENT(1), INPUT_GRADIENT(2), INPUT_GRADIENT(3),
                    INPUT_GRADIENT(4), INPUT_GRADIENT(5), INPUT_GRADIENT(6), INPUT_GRADIENT(7)},
    },
    [LS_OP_SLICE] = {
        .name = "slice",
        .inputs = {X},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_SLICE_BACKWARD},
        .shapes = ls_shapes_of_slice,
    },
    [LS_OP_SLICE_BACKWARD] = {
        .name = "slice_backward",
        .backward_of = LS_OP_SLICE,
        .inputs = {OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_PAD] = {
        .name = "pad",
        .inputs = {X},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_PAD_BACKWARD},
        .shapes = ls_shapes_of_pad,
    },
    [LS_OP_PAD_BACKWARD] = {
        .name = "pad_backward",
        .backward_of = LS_OP_PAD,
        .inputs = {OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_TRANSPOSE] = {
        .name = "transpose",
        .inputs = {X},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_TRANSPOSE_BACKWARD},
        .shapes = ls_shapes_of_transpose,
    },
    [LS_OP_TRANSPOSE_BACKWARD] = {
        .name = "transpose_backward",
        .backward_of = LS_OP_TRANSPOSE,
        .inputs = {OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_UPSAMPLE2D] = {
        .name = "upsample2d",
        .inputs = {X},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_UPSAMPLE2D_BACKWARD},
        .functions = upsample_names,
        .function_count = LS_UPSAMPLE_COUNT,
        .shapes = ls_shapes_of_upsample2d,
    },
    [LS_OP_UPSAMPLE2D_BACKWARD] = {
        .name = "upsample2d_backward",
        .backward_of = LS_OP_UPSAMPLE2D,
        .inputs = {OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(0)},
    },

    [LS_OP_NOISE] = {
        .name = "noise",
        .inputs = {X},
        .outputs = {Y},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_TRAINING_ONLY,
        .gradient = LS_GRADIENT_PASSED_ON,
        .shapes = ls_shapes_of_noise,
    },

    // ---- Normalization with the statistics of all replicas ----
    [LS_OP_BATCH_MOMENTS] = {
        .name = "batch_moments",
        .inputs = {ARGUMENT("x", TENSOR, F32)},
        .outputs = {ARGUMENT("moments", TOTAL, F64)},
        .traits = LS_TRAIT_LAYER,
        .gradient = LS_GRADIENT_OF_READER,
        .shapes = ls_shapes_of_moments,
    },
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED] = {
        .name = "batch_normalization_synchronized",
        .inputs = {ARGUMENT("x", TENSOR, F32), ARGUMENT("gamma", PARAMETER, F32),
                   ARGUMENT("beta", PARAMETER, F32), ARGUMENT("moments", TOTAL, F64),
                   OPTIONAL("addend", ADDEND, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32), ARGUMENT("mean", STATISTIC, F32),
                    ARGUMENT("variance", STATISTIC, F32)},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_EPILOGUE,
        .backward = {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS,
                     LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA},
        .given = LS_OP_BATCH_NORMALIZATION_INFERENCE,
        .shapes = ls_shapes_of_synchronized_normalization,
    },
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS] = {
        .name = "batch_normalization_synchronized_backward_sums",
        .backward_of = LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED,
        .inputs = {INPUT(0), OUTPUT(1), OUTPUT(2), OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(1), INPUT_GRADIENT(2), INPUT_GRADIENT(3)},
    },
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA] = {
        .name = "batch_normalization_synchronized_backward_data",
        .backward_of = LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED,
        .inputs = {INPUT(0), INPUT(1), OUTPUT(1), OUTPUT(2), OUTPUT_GRADIENT(0),
                   INPUT_GRADIENT(3)},
        .outputs = {INPUT_GRADIENT(0)},
    },

    // ---- More optimizers ----
    [LS_OP_UPDATE] = {
        .name = "update",
        .inputs = {ARGUMENT("gradient", FLAT, F32)},
        .outputs = {ARGUMENT("parameter", FLAT, F32), OPTIONAL("first state", FLAT, F32),
                    OPTIONAL("second state", FLAT, F32), OPTIONAL("third state", FLAT, F32)},
        .traits = LS_TRAIT_UPDATE,
        .functions = update_names,
        .function_count = LS_UPDATE_COUNT,
        .shapes = ls_shapes_of_update,
    },
    [LS_OP_CLIP] = {
        .name = "clip",
        .inputs = {ARGUMENT("x", FLAT, F32), OPTIONAL("measures", RESULT, F64)},
        .outputs = {ARGUMENT("y", FLAT, F32)},
        .functions = clip_names,
        .function_count = LS_CLIP_COUNT,
        .shapes = ls_shapes_of_clip,
    },
    [LS_OP_LAMB_DIRECTION] = {
        .name = "lamb_direction",
        .inputs = {ARGUMENT("gradient", FLAT, F32)},
        .outputs = {ARGUMENT("direction", FLAT, F32), ARGUMENT("parameter", FLAT, F32),
                    ARGUMENT("first moment", FLAT, F32), ARGUMENT("second moment", FLAT, F32)},
        .traits = LS_TRAIT_UPDATE,
        .shapes = ls_shapes_kept,
    },
    [LS_OP_LAMB_UPDATE] = {
        .name = "lamb_update",
        .inputs = {ARGUMENT("direction", FLAT, F32), ARGUMENT("measures", RESULT, F64)},
        .outputs = {ARGUMENT("parameter", FLAT, F32)},
        .traits = LS_TRAIT_UPDATE,
        .shapes = ls_shapes_of_lamb_update,
    },
    [LS_OP_EMA_UPDATE] = {
        .name = "ema_update",
        .inputs = {ARGUMENT("parameter", FLAT, F32)},
        .outputs = {ARGUMENT("average", FLAT, F32), ARGUMENT("parameter", FLAT, F32)},
        .traits = LS_TRAIT_UPDATE,
        .shapes = ls_shapes_kept,
    },

    // ---- More losses, metrics ----
    [LS_OP_LOSS] = {
        .name = "loss",
        .inputs = {ARGUMENT("predictions", TENSOR, F32), ARGUMENT("targets", LABEL, INDEX),
                   OPTIONAL("weights", LABEL, F32), OPTIONAL("moments", TOTAL, F64)},
        .outputs = {ARGUMENT("sums", SUMS, F32)},
        .traits = LS_TRAIT_LOSS,
        .backward = {LS_OP_LOSS_BACKWARD},
        .functions = loss_names,
        .function_count = LS_LOSS_FUNCTION_COUNT,
        .shapes = ls_shapes_of_loss,
    },
    [LS_OP_LOSS_BACKWARD] = {
        .name = "loss_backward",
        .backward_of = LS_OP_LOSS,
        .inputs = {INPUT(0), INPUT(1), INPUT(2), INPUT(3)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_POSITION_LOSS] = {
        .name = "position_loss",
        .inputs = {ARGUMENT("predictions", TENSOR, F32), ARGUMENT("targets", LABEL, INDEX)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .backward = {LS_OP_POSITION_LOSS_BACKWARD},
        .functions = loss_names,
        .function_count = LS_LOSS_FUNCTION_COUNT,
        .shapes = ls_shapes_of_position_loss,
    },
    [LS_OP_POSITION_LOSS_BACKWARD] = {
        .name = "position_loss_backward",
        .backward_of = LS_OP_POSITION_LOSS,
        .inputs = {INPUT(0), INPUT(1), OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_MASKED_MEAN] = {
        .name = "masked_mean",
        .inputs = {ARGUMENT("x", TENSOR, F32), ARGUMENT("mask", TENSOR, F32),
                   ARGUMENT("moments", TOTAL, F64)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_MASKED_MEAN_BACKWARD},
        .shapes = ls_shapes_of_masked_mean,
    },
    [LS_OP_MASKED_MEAN_BACKWARD] = {
        .name = "masked_mean_backward",
        .backward_of = LS_OP_MASKED_MEAN,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(1), INPUT(2)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_METRIC] = {
        .name = "metric",
        .inputs = {ARGUMENT("predictions", TENSOR, F32), ARGUMENT("targets", LABEL, INDEX),
                   OPTIONAL("weights", LABEL, F32)},
        .outputs = {ARGUMENT("counts", SUMS, F32)},
        .functions = metric_names,
        .function_count = LS_METRIC_FUNCTION_COUNT,
        .shapes = ls_shapes_of_metric,
    },
    [LS_OP_UNSCALE] = {
        .name = "unscale",
        .inputs = {ARGUMENT("gradient", FLAT, F32)},
        .outputs = {ARGUMENT("y", FLAT, F32)},
        .shapes = ls_shapes_kept,
    },

    // ---- Recurrent layers ----
    [LS_OP_RECURRENT] = {
        .name = "recurrent",
        .inputs = {ARGUMENT("p", TENSOR, F32), ARGUMENT("w", PARAMETER, F32),
                   ARGUMENT("b", PARAMETER, F32), ARGUMENT("s", EITHER, F32),
                   OPTIONAL("mask", TENSOR, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32), OPAQUE("saved")},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_RECURRENT_BACKWARD},
        .functions = recurrent_names,
        .function_count = LS_RECURRENT_COUNT,
        .shapes = ls_shapes_of_recurrent,
    },
    [LS_OP_RECURRENT_BACKWARD] = {
        .name = "recurrent_backward",
        .backward_of = LS_OP_RECURRENT,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0), INPUT(1), INPUT(2), INPUT(3), OUTPUT(1),
                   INPUT(4)},
        .outputs = {INPUT_GRADIENT(0), INPUT_GRADIENT(1), INPUT_GRADIENT(2), INPUT_GRADIENT(3)},
    },
    [LS_OP_DIFFERS] = {
        .name = "differs",
        .inputs = {ARGUMENT("x", TENSOR, INDEX)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .gradient = LS_GRADIENT_ZERO,
        .shapes = ls_shapes_of_differs,
    },

    // ---- Categories ----
    [LS_OP_BUCKET] = {
        .name = "bucket",
        .inputs = {ARGUMENT("x", TENSOR, INDEX), ARGUMENT("boundaries", PARAMETER, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .gradient = LS_GRADIENT_ZERO,
        .shapes = ls_shapes_of_bucket,
    },
    [LS_OP_LOOKUP] = {
        .name = "lookup",
        .inputs = {ARGUMENT("x", TENSOR, INDEX), ARGUMENT("table", PARAMETER, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .gradient = LS_GRADIENT_ZERO,
        .shapes = ls_shapes_of_lookup,
    },
    [LS_OP_ENCODE] = {
        .name = "encode",
        .inputs = {ARGUMENT("ids", TENSOR, INDEX)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .gradient = LS_GRADIENT_ZERO,
        .functions = encode_names,
        .function_count = LS_ENCODE_COUNT,
        .shapes = ls_shapes_of_encode,
    },
    [LS_OP_DENSE_TRANSPOSED] = {
        .name = "dense_transposed",
        .inputs = {ARGUMENT("x", TENSOR, F32), ARGUMENT("w", PARAMETER, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS, LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA},
        .shapes = ls_shapes_of_dense_transposed,
    },
    [LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA] = {
        .name = "dense_transposed_backward_data",
        .backward_of = LS_OP_DENSE_TRANSPOSED,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS] = {
        .name = "dense_transposed_backward_weights",
        .backward_of = LS_OP_DENSE_TRANSPOSED,
        .inputs = {INPUT(0), OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(1)},
    },

    // ---- Images ----
    [LS_OP_RESIZE2D] = {
        .name = "resize2d",
        .inputs = {ARGUMENT("x", TENSOR, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .backward = {LS_OP_RESIZE2D_BACKWARD},
        .functions = resize_names,
        .function_count = LS_UPSAMPLE_COUNT,
        .shapes = ls_shapes_of_resize2d,
    },
    [LS_OP_RESIZE2D_BACKWARD] = {
        .name = "resize2d_backward",
        .backward_of = LS_OP_RESIZE2D,
        .inputs = {OUTPUT_GRADIENT(0)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_DRAW] = {
        .name = "draw",
        .inputs = {ARGUMENT("x", TENSOR, F32)},
        .outputs = {ARGUMENT("factors", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER,
        .gradient = LS_GRADIENT_ZERO,
        .functions = draw_names,
        .function_count = LS_DRAW_COUNT,
        .shapes = ls_shapes_of_draw,
    },
    [LS_OP_RESAMPLE] = {
        .name = "resample",
        .inputs = {ARGUMENT("x", TENSOR, F32), ARGUMENT("factors", TENSOR, F32),
                   OPTIONAL("otherwise", TENSOR, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_TRAINING_ONLY,
        .backward = {LS_OP_RESAMPLE_BACKWARD},
        .functions = resample_names,
        .function_count = LS_RESAMPLE_COUNT,
        .shapes = ls_shapes_of_resample,
    },
    [LS_OP_RESAMPLE_BACKWARD] = {
        .name = "resample_backward",
        .backward_of = LS_OP_RESAMPLE,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_RECOLOUR] = {
        .name = "recolour",
        .inputs = {ARGUMENT("x", TENSOR, F32), ARGUMENT("factors", TENSOR, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_TRAINING_ONLY,
        .backward = {LS_OP_RECOLOUR_BACKWARD},
        .functions = recolour_names,
        .function_count = LS_RECOLOUR_COUNT,
        .shapes = ls_shapes_of_recolour,
    },
    [LS_OP_RECOLOUR_BACKWARD] = {
        .name = "recolour_backward",
        .backward_of = LS_OP_RECOLOUR,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
    },
    [LS_OP_ERASE] = {
        .name = "erase",
        .inputs = {ARGUMENT("x", TENSOR, F32), ARGUMENT("factors", TENSOR, F32)},
        .outputs = {ARGUMENT("y", TENSOR, F32)},
        .traits = LS_TRAIT_LAYER | LS_TRAIT_TRAINING_ONLY,
        .backward = {LS_OP_ERASE_BACKWARD},
        .functions = erase_names,
        .function_count = LS_ERASE_COUNT,
        .shapes = ls_shapes_of_erase,
    },
    [LS_OP_ERASE_BACKWARD] = {
        .name = "erase_backward",
        .backward_of = LS_OP_ERASE,
        .inputs = {OUTPUT_GRADIENT(0), INPUT(1)},
        .outputs = {INPUT_GRADIENT(0)},
    },
};
// clang-format on

const struct ls_operation_row *ls_operation_row(uint32_t op)
{
    return op < LS_OP_COUNT && rows[op].name ? &rows[op] : NULL; // numbers have gaps
}

bool ls_operation_has(uint32_t op, enum ls_operation_trait trait)
{
    const struct ls_operation_row *row = ls_operation_row(op);
    return row && (row->traits & (uint32_t)trait) != 0;
}

struct ls_argument ls_operation_argument(const struct ls_operation_row *row, uint32_t index,
                                         bool output)
{
    const struct ls_argument none = {0};
    const struct ls_argument own = index >= LS_MAX_ARGUMENTS ? none
                                   : output                  ? row->outputs[index]
                                                             : row->inputs[index];
    if (own.source == LS_SOURCE_SELF)
        return own;

    const struct ls_operation_row *forward = &rows[row->backward_of];
    const bool input = own.source == LS_SOURCE_INPUT || own.source == LS_SOURCE_INPUT_GRADIENT;
    const bool gradient =
        own.source == LS_SOURCE_INPUT_GRADIENT || own.source == LS_SOURCE_OUTPUT_GRADIENT;
    struct ls_argument out =
        input ? forward->inputs[own.source_index] : forward->outputs[own.source_index];
    out.source = own.source;
    out.source_index = own.source_index;
    out.optional = out.optional && (gradient || input);
    if (out.kind == LS_ARGUMENT_PARAMETER && out.type == LS_TYPE_FLOATING && gradient)
        out.type = LS_TYPE_GRADIENT;
    return out;
}

bool ls_argument_is_cast(const struct ls_argument *argument)
{
    return (argument->kind == LS_ARGUMENT_TENSOR || argument->kind == LS_ARGUMENT_ADDEND) &&
           (argument->type == LS_TYPE_F32 || argument->type == LS_TYPE_FLOATING);
}

void ls_operation_count(const struct ls_operation_row *row, bool output, uint32_t *least,
                        uint32_t *most)
{
    *least = *most = 0;
    for (uint32_t i = 0; i < LS_MAX_ARGUMENTS; i++) {
        const struct ls_argument argument = ls_operation_argument(row, i, output);
        if (argument.kind == LS_ARGUMENT_NONE)
            break;
        *least += !argument.optional;
        (*most)++;
    }
}

uint32_t ls_operation_input(const struct ls_operation_row *row, enum ls_argument_kind kind)
{
    for (uint32_t i = 0; i < LS_MAX_ARGUMENTS; i++)
        if (ls_operation_argument(row, i, false).kind == kind)
            return i;
    return UINT32_MAX;
}

bool ls_operation_shapes(const struct ls_operation_row *row, struct ls_shape_call *call)
{
    if (row->functions && call->attributes->function >= row->function_count) {
        snprintf(call->why, sizeof(call->why), "there is no function number %u",
                 call->attributes->function);
        return false;
    }
    return row->shapes(call);
}

bool ls_operation_is_identity(uint32_t op, const struct ls_op_attributes *attributes,
                              const struct ls_shape *x, const struct ls_shape *y, bool training)
{
    const struct ls_operation_row *row = ls_operation_row(op);
    const uint32_t traits = row->traits;
    const bool rated = row->inputs[1].kind == LS_ARGUMENT_NONE; // others have factors

    if ((traits & LS_TRAIT_TRAINING_ONLY) != 0)
        return !training || (rated && attributes->rate <= 0);
    if ((traits & LS_TRAIT_ACTIVATION) != 0)
        return attributes->activation == LS_LINEAR;
    return (traits & LS_TRAIT_VIEW) != 0 && ls_shape_equal(x, y);
}

// ---- Names ----

const char *ls_op_name(uint32_t op)
{
    const struct ls_operation_row *row = ls_operation_row(op);
    return row ? row->name : "unknown";
}

const char *ls_activation_name(uint32_t activation)
{
    static const char *const names[LS_ACTIVATION_COUNT] = {
        [LS_LINEAR] = "linear",
        [LS_RELU] = "relu",
        [LS_LEAKY_RELU] = "leaky_relu",
        [LS_ELU] = "elu",
        [LS_SIGMOID] = "sigmoid",
        [LS_TANH] = "tanh",
        [LS_SOFTPLUS] = "softplus",
        [LS_EXPONENTIAL] = "exponential",
        [LS_RELU6] = "relu6",
        [LS_SOFTSIGN] = "softsign",
        [LS_SELU] = "selu",
        [LS_HARD_SIGMOID] = "hard_sigmoid",
    };
    return activation < LS_ACTIVATION_COUNT ? names[activation] : "activation";
}

const char *ls_operation_label(uint32_t op, const struct ls_op_attributes *attributes)
{
    const struct ls_operation_row *row = ls_operation_row(op);

    if (row && row->backward_of != LS_OP_NONE && ls_operation_row(row->backward_of)->functions)
        row = ls_operation_row(row->backward_of);
    if (row && attributes->function < row->function_count)
        return row->functions[attributes->function];
    return ls_operation_has(op, LS_TRAIT_ACTIVATION) ? ls_activation_name(attributes->activation)
                                                     : ls_op_name(op);
}
