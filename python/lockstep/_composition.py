# SPDX-License-Identifier: Apache-2.0
# Made from the public headers by lab/pages/python_bindings.py; change the headers, not this file.
"""What layers, losses and metrics of one's own are composed with (core/plugin/compose.h), for ctypes."""
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p

LS_PLUGIN_ABI_MAJOR = 1
LS_PLUGIN_ABI_MINOR = 0
LS_KIND_DEVICE = 1
LS_KIND_TRANSPORT = 2
LS_KIND_COLLECTIVE = 3
LS_KIND_STRATEGY = 4
LS_KIND_CALLBACK = 5
LS_KIND_LAYER = 6
LS_KIND_LOSS = 7
LS_KIND_METRIC = 8
LS_KIND_DATASET = 9
LS_KIND_FILTER = 10
LS_F32 = 1
LS_F64 = 2
LS_F16 = 3
LS_BF16 = 4
LS_I32 = 5
LS_I64 = 6
LS_U8 = 7
LS_SUM = 1
LS_PRODUCT = 2
LS_MIN = 3
LS_MAX = 4
LS_MEAN = 5
LS_MAX_DIMS = 6
LS_OP_NONE = 0
LS_OP_CONV2D = 1
LS_OP_CONV2D_BACKWARD_DATA = 2
LS_OP_CONV2D_BACKWARD_WEIGHTS = 3
LS_OP_DENSE = 4
LS_OP_DENSE_BACKWARD_DATA = 5
LS_OP_DENSE_BACKWARD_WEIGHTS = 6
LS_OP_MAX_POOL2D = 7
LS_OP_MAX_POOL2D_BACKWARD = 8
LS_OP_AVERAGE_POOL2D = 9
LS_OP_AVERAGE_POOL2D_BACKWARD = 10
LS_OP_ACTIVATION = 11
LS_OP_ACTIVATION_BACKWARD = 12
LS_OP_SOFTMAX = 13
LS_OP_SOFTMAX_BACKWARD = 14
LS_OP_DROPOUT = 15
LS_OP_RESHAPE = 16
LS_OP_ADD = 17
LS_OP_CONVERT = 18
LS_OP_SPARSE_CROSS_ENTROPY = 19
LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD = 20
LS_OP_MEAN_SQUARED_ERROR = 21
LS_OP_MEAN_SQUARED_ERROR_BACKWARD = 22
LS_OP_SGD_UPDATE = 23
LS_OP_ADAM_UPDATE = 24
LS_OP_MEASURE = 25
LS_OP_FROM_BYTES = 26
LS_OP_GUARD = 27
LS_OP_BATCH_NORMALIZATION = 28
LS_OP_BATCH_NORMALIZATION_BACKWARD = 29
LS_OP_BATCH_NORMALIZATION_INFERENCE = 30
LS_OP_MAXIMUM = 31
LS_OP_MAXIMUM_BACKWARD = 32
LS_OP_BATCH_STATISTICS = 33
LS_OP_AVERAGE_UPDATE = 34
LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA = 35
LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS = 36
LS_OP_LAYER_NORMALIZATION = 37
LS_OP_LAYER_NORMALIZATION_BACKWARD = 38
LS_OP_GATHER_ROWS = 39
LS_OP_GATHER_ROWS_BACKWARD = 40
LS_OP_ATTENTION = 41
LS_OP_ATTENTION_BACKWARD = 42
LS_OP_MATMUL = 43
LS_OP_MATMUL_BACKWARD_LEFT = 44
LS_OP_MATMUL_BACKWARD_RIGHT = 45
LS_OP_CONV2D_TRANSPOSE = 46
LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA = 47
LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS = 48
LS_OP_PRELU = 49
LS_OP_PRELU_BACKWARD = 50
LS_OP_PENALTY = 51
LS_OP_PENALTY_BACKWARD = 52
LS_OP_FUNCTION = 53
LS_OP_FUNCTION_BACKWARD = 54
LS_OP_PAIR = 55
LS_OP_PAIR_BACKWARD_FIRST = 56
LS_OP_PAIR_BACKWARD_SECOND = 57
LS_OP_REDUCE = 58
LS_OP_REDUCE_BACKWARD = 59
LS_OP_CONCATENATE = 60
LS_OP_CONCATENATE_BACKWARD = 61
LS_OP_SLICE = 62
LS_OP_SLICE_BACKWARD = 63
LS_OP_PAD = 64
LS_OP_PAD_BACKWARD = 65
LS_OP_TRANSPOSE = 66
LS_OP_TRANSPOSE_BACKWARD = 67
LS_OP_UPSAMPLE2D = 68
LS_OP_UPSAMPLE2D_BACKWARD = 69
LS_OP_NOISE = 70
LS_OP_BATCH_MOMENTS = 71
LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED = 72
LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS = 73
LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA = 74
LS_OP_UPDATE = 75
LS_OP_CLIP = 76
LS_OP_LAMB_DIRECTION = 77
LS_OP_LAMB_UPDATE = 78
LS_OP_EMA_UPDATE = 79
LS_OP_LOSS = 80
LS_OP_LOSS_BACKWARD = 81
LS_OP_METRIC = 82
LS_OP_UNSCALE = 83
LS_OP_RECURRENT = 84
LS_OP_RECURRENT_BACKWARD = 85
LS_OP_DIFFERS = 86
LS_OP_POSITION_LOSS = 87
LS_OP_POSITION_LOSS_BACKWARD = 88
LS_OP_RESIZE2D = 90
LS_OP_RESIZE2D_BACKWARD = 91
LS_OP_DRAW = 92
LS_OP_RESAMPLE = 93
LS_OP_RESAMPLE_BACKWARD = 94
LS_OP_RECOLOUR = 95
LS_OP_RECOLOUR_BACKWARD = 96
LS_OP_ERASE = 97
LS_OP_ERASE_BACKWARD = 98
LS_OP_BUCKET = 140
LS_OP_LOOKUP = 141
LS_OP_ENCODE = 142
LS_OP_DENSE_TRANSPOSED = 143
LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA = 144
LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS = 145
LS_OP_MASKED_MEAN = 150
LS_OP_MASKED_MEAN_BACKWARD = 151
LS_OP_COUNT = 152
LS_LINEAR = 0
LS_RELU = 1
LS_LEAKY_RELU = 2
LS_ELU = 3
LS_SIGMOID = 4
LS_TANH = 5
LS_SOFTPLUS = 6
LS_EXPONENTIAL = 7
LS_RELU6 = 8
LS_SOFTSIGN = 9
LS_SELU = 10
LS_HARD_SIGMOID = 11
LS_ACTIVATION_COUNT = 12
LS_SCALE = 0
LS_GELU = 1
LS_GELU_TANH = 2
LS_SILU = 3
LS_HARD_SILU = 4
LS_MISH = 5
LS_LOG_SIGMOID = 6
LS_SQUARE = 7
LS_SQUARE_ROOT = 8
LS_LOGARITHM = 9
LS_FUNCTION_COUNT = 10
LS_PAIR_ADD = 0
LS_PAIR_SUBTRACT = 1
LS_PAIR_MULTIPLY = 2
LS_PAIR_DIVIDE = 3
LS_PAIR_MAXIMUM = 4
LS_PAIR_MINIMUM = 5
LS_PAIR_COUNT = 6
LS_REDUCE_TO_SUM = 0
LS_REDUCE_TO_MEAN = 1
LS_REDUCE_TO_MAXIMUM = 2
LS_REDUCE_COUNT = 3
LS_UPSAMPLE_NEAREST = 0
LS_UPSAMPLE_BILINEAR = 1
LS_UPSAMPLE_COUNT = 2
LS_UPDATE_SGD = 0
LS_UPDATE_ADAM = 1
LS_UPDATE_AMSGRAD = 2
LS_UPDATE_RMSPROP = 3
LS_UPDATE_RMSPROP_CENTERED = 4
LS_UPDATE_ADAGRAD = 5
LS_UPDATE_ADADELTA = 6
LS_UPDATE_ADAMAX = 7
LS_UPDATE_NADAM = 8
LS_UPDATE_COUNT = 9
LS_LOSS_SPARSE = 0
LS_LOSS_CATEGORICAL = 1
LS_LOSS_BINARY = 2
LS_LOSS_SQUARED = 3
LS_LOSS_ABSOLUTE = 4
LS_LOSS_PERCENTAGE = 5
LS_LOSS_LOGARITHMIC = 6
LS_LOSS_HUBER = 7
LS_LOSS_LOG_COSH = 8
LS_LOSS_DIVERGENCE = 9
LS_LOSS_POISSON = 10
LS_LOSS_HINGE = 11
LS_LOSS_SQUARED_HINGE = 12
LS_LOSS_CATEGORICAL_HINGE = 13
LS_LOSS_COSINE = 14
LS_LOSS_VALUES = 15
LS_LOSS_FUNCTION_COUNT = 16
LS_METRIC_BINARY = 0
LS_METRIC_CATEGORICAL = 1
LS_METRIC_TOP = 2
LS_METRIC_CONFUSION = 3
LS_METRIC_BUCKETS = 4
LS_METRIC_CLASSES = 5
LS_METRIC_EACH_CLASS = 6
LS_METRIC_SQUARES = 7
LS_METRIC_PEARSON = 8
LS_METRIC_CONCORDANCE = 9
LS_METRIC_FUNCTION_COUNT = 10
LS_METRIC_MOST_CLASSES = 1024
LS_RECURRENT_SIMPLE = 0
LS_RECURRENT_LSTM = 1
LS_RECURRENT_GRU = 2
LS_RECURRENT_GRU_RESET_AFTER = 3
LS_RECURRENT_COUNT = 4
LS_SEQUENCE_ALL = 1
LS_SEQUENCE_STATES = 2
LS_SEQUENCE_BACKWARDS = 4
LS_SEQUENCE_IN_TIME = 8
LS_SEQUENCE_ZEROS = 16
LS_DRAW_FLIP_COLUMNS = 0
LS_DRAW_FLIP_ROWS = 1
LS_DRAW_FLIP_BOTH = 2
LS_DRAW_ROTATION = 3
LS_DRAW_ZOOM = 4
LS_DRAW_ZOOM_EVEN = 5
LS_DRAW_TRANSLATION = 6
LS_DRAW_CROP = 7
LS_DRAW_CONTRAST = 8
LS_DRAW_BRIGHTNESS = 9
LS_DRAW_ERASE = 10
LS_DRAW_COUNT = 11
LS_FILL_CONSTANT = 0
LS_FILL_NEAREST = 1
LS_FILL_REFLECT = 2
LS_FILL_WRAP = 3
LS_FILL_MASK = 3
LS_RESAMPLE_BILINEAR = 4
LS_RESAMPLE_COUNT = 8
LS_RECOLOUR_PLAIN = 0
LS_RECOLOUR_AROUND_MEAN = 1
LS_RECOLOUR_COUNT = 2
LS_ERASE_VALUE = 0
LS_ERASE_NOISE = 1
LS_ERASE_COUNT = 2
LS_ENCODE_ONE_HOT = 0
LS_ENCODE_ONE_HOT_CHECKED = 1
LS_ENCODE_MULTI_HOT = 2
LS_ENCODE_COUNTS = 3
LS_ENCODE_COUNT = 4
LS_CLIP_VALUE = 0
LS_CLIP_NORM = 1
LS_CLIP_COUNT = 2
LS_CONCATENATE_INPUTS = 8
LS_LAYER_MOST_OUTPUTS = 8
LS_TARGETS_NUMBERS = 0
LS_TARGETS_CLASSES = 1
LS_METRIC_SUMS = 8


class ls_plugin_option(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type", c_char_p),
        ("default_value", c_char_p),
        ("help", c_char_p),
    ]


class ls_host(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("abi_minor", c_uint32),
        ("context", c_void_p),
        ("log", CFUNCTYPE(None, c_void_p, c_uint32, c_char_p)),
        ("fail", CFUNCTYPE(c_int32, c_void_p, c_int32, c_char_p)),
        ("allocate", CFUNCTYPE(c_void_p, c_void_p, c_uint64, c_uint64)),
        ("release", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("clock_ns", CFUNCTYPE(c_uint64, c_void_p)),
        ("option", CFUNCTYPE(c_char_p, c_void_p, c_char_p)),
    ]


class ls_plugin(Structure):
    _fields_ = [
        ("magic", c_uint64),
        ("abi_major", c_uint32),
        ("abi_minor", c_uint32),
        ("struct_size", c_uint32),
        ("kind", c_uint32),
        ("name", c_char_p),
        ("version", c_char_p),
        ("licence", c_char_p),
        ("summary", c_char_p),
        ("options", POINTER(ls_plugin_option)),
        ("probe", CFUNCTYPE(c_int32, c_char_p, c_uint64)),
        ("interface", c_void_p),
    ]


class ls_op_attributes(Structure):
    _fields_ = [
        ("kernel", c_int32 * 2),
        ("strides", c_int32 * 2),
        ("padding", c_int32 * 4),
        ("dilation", c_int32 * 2),
        ("groups", c_int32),
        ("activation", c_uint32),
        ("activation_alpha", c_float),
        ("epilogue", c_uint32),
        ("epilogue_activation", c_uint32),
        ("epilogue_alpha", c_float),
        ("rate", c_float),
        ("key", c_uint32),
        ("from_logits", c_uint32),
        ("epsilon", c_float),
        ("momentum", c_float),
        ("nesterov", c_uint32),
        ("beta1", c_float),
        ("beta2", c_float),
        ("divisor", c_float),
        ("factor", c_float),
        ("offset", c_float),
        ("only_beta", c_uint32),
        ("causal", c_uint32),
        ("l1", c_float),
        ("l2", c_float),
        ("function", c_uint32),
        ("axes", c_int32 * LS_MAX_DIMS),
        ("weight_decay", c_float),
        ("threshold", c_float),
        ("count", c_uint32),
        ("smoothing", c_float),
        ("recurrent_activation", c_uint32),
        ("sequence", c_uint32),
        ("reserved", c_uint32 * 1),
    ]


class ls_weight(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("ndims", c_uint32),
        ("frozen", c_uint32),
        ("dims", c_int64 * LS_MAX_DIMS),
        ("initializer", c_char_p),
    ]


class ls_composer(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("training", c_uint32),
        ("context", c_void_p),
        ("shape", CFUNCTYPE(c_uint32, c_void_p, c_void_p, POINTER(c_int64))),
        ("weight", CFUNCTYPE(c_void_p, c_void_p, POINTER(ls_weight))),
        ("constant", CFUNCTYPE(c_void_p, c_void_p, c_uint32, POINTER(c_int64), POINTER(c_float))),
        ("operation", CFUNCTYPE(c_void_p, c_void_p, c_uint32, POINTER(ls_op_attributes), POINTER(c_void_p), c_uint32, c_uint32, POINTER(c_int64))),
        ("function", CFUNCTYPE(c_void_p, c_void_p, c_char_p, c_void_p)),
        ("one_hot", CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_int64)),
        ("fail", CFUNCTYPE(c_int32, c_void_p, c_char_p)),
    ]


class ls_layer_interface(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("least_inputs", c_uint32),
        ("most_inputs", c_uint32),
        ("reserved", c_uint32),
        ("build", CFUNCTYPE(c_int32, POINTER(ls_host), POINTER(ls_composer), POINTER(c_void_p), c_uint32, POINTER(c_void_p))),
    ]


class ls_loss_interface(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("targets", c_uint32),
        ("build", CFUNCTYPE(c_int32, POINTER(ls_host), POINTER(ls_composer), c_void_p, c_void_p, POINTER(c_void_p))),
        ("target_shape", CFUNCTYPE(c_int32, POINTER(ls_host), POINTER(c_uint32), POINTER(c_int64))),
    ]


class ls_metric_interface(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("targets", c_uint32),
        ("sums", c_uint32),
        ("upwards", c_uint32),
        ("build", CFUNCTYPE(c_int32, POINTER(ls_host), POINTER(ls_composer), c_void_p, c_void_p, POINTER(c_void_p))),
        ("result", CFUNCTYPE(c_double, POINTER(ls_host), POINTER(c_double), c_double)),
    ]
