# SPDX-License-Identifier: Apache-2.0
# Made by lab/pages/python_stubs.py from the package, layers/, tools/ and lockstep.h; change those, not this file.
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

Sizes = Union[int, Sequence[int]]
Named = Union[str, Mapping[str, Any], None]  # a name, or an object as Keras writes it

POSITIONAL: Dict[str, str]


class Layer:
    """A layer by the name of its class, with its options."""

    class_name: str
    config: Dict[str, Any]

    def __init__(self, class_name: str, **config: Any) -> None: ...

    trainable: bool

    def get_weights(self) -> List[Any]: ...

    def set_weights(self, weights: Sequence[Any]) -> None: ...

    def __call__(self, *inputs: Any, **arguments: Any) -> Symbol: ...

    @property
    def name(self) -> str:
        """That of its options; "" for a layer that has none before it is in a model."""


class Symbol:
    """What a call of a layer makes, while a model is written. It takes + - * with another one."""

    def __add__(self, other: Any) -> Symbol: ...
    def __radd__(self, other: Any) -> Symbol: ...
    def __sub__(self, other: Any) -> Symbol: ...
    def __rsub__(self, other: Any) -> Symbol: ...
    def __mul__(self, other: Any) -> Symbol: ...
    def __rmul__(self, other: Any) -> Symbol: ...


def Input(shape: Sequence[Optional[int]], dtype: str = ..., *, name: str = ...) -> Layer:
    """The input of a model: the shape of an example."""


def sequential_config(layers: Sequence[Layer], name: str) -> Dict[str, Any]: ...


def Activation(activation: Named = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Activation: an activation function by name."""


def Add(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Add: the sum of its inputs."""


def Average(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Average: the mean of its inputs."""


def AveragePooling1D(pool_size: Sizes = ..., strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AveragePooling1D: the mean of each window of a sequence."""


def AveragePooling2D(pool_size: Sizes = ..., strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AveragePooling2D: the mean of each window."""


def BatchNormalization(axis: Sizes = ..., momentum: Optional[float] = ..., epsilon: Optional[float] = ..., center: bool = ..., scale: Any = ..., *, beta_initializer: Named = ..., gamma_initializer: Named = ..., moving_mean_initializer: Named = ..., moving_variance_initializer: Named = ..., beta_regularizer: Named = ..., gamma_regularizer: Named = ..., beta_constraint: Any = ..., gamma_constraint: Any = ..., synchronized: bool = ..., renorm: bool = ..., renorm_momentum: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's BatchNormalization: mean 0 and variance 1 in each channel of the batch, then scale and shift."""


def Concatenate(axis: int = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Concatenate: its inputs one behind the other."""


def Conv1D(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., lora_rank: Any = ..., lora_alpha: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Conv1D: convolution of sequences."""


def Conv2D(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., lora_rank: Any = ..., lora_alpha: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Conv2D: convolution of images."""


def Conv2DTranspose(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Conv2DTranspose: transposed convolution of images."""


def Cropping1D(cropping: Any = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Cropping1D: a sequence without its first and last steps."""


def Cropping2D(cropping: Any = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Cropping2D: an image without its outer rows and columns."""


def Dense(units: int, activation: Named = ..., use_bias: bool = ..., *, kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Dense: x times kernel plus bias over the last dimension."""


def DepthwiseConv2D(kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, depth_multiplier: int = ..., data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., depthwise_initializer: Named = ..., bias_initializer: Named = ..., depthwise_regularizer: Named = ..., bias_regularizer: Named = ..., bias_constraint: Any = ..., depthwise_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's DepthwiseConv2D: convolution of each channel by itself."""


def Dropout(rate: Optional[float], *, seed: Optional[int] = ..., noise_shape: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Dropout: drops a fraction of the elements in training."""


def ELU(alpha: Optional[float] = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ELU: x above 0, alpha (exp(x) - 1) below."""


def Embedding(input_dim: int, output_dim: int, *, embeddings_initializer: Named = ..., embeddings_regularizer: Named = ..., embeddings_constraint: Any = ..., mask_zero: bool = ..., input_length: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Embedding: a row of a table for each id."""


def Flatten(*, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Flatten: all dimensions of an example as one."""


def GaussianNoise(stddev: Optional[float], *, seed: Optional[int] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GaussianNoise: adds normal noise in training."""


def GlobalAveragePooling1D(*, data_format: Optional[str] = ..., keepdims: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GlobalAveragePooling1D: the mean of each channel of a sequence."""


def GlobalAveragePooling2D(*, data_format: Optional[str] = ..., keepdims: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GlobalAveragePooling2D: the mean of each channel."""


def GlobalMaxPooling1D(*, data_format: Optional[str] = ..., keepdims: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GlobalMaxPooling1D: the largest element of each channel of a sequence."""


def GlobalMaxPooling2D(*, data_format: Optional[str] = ..., keepdims: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GlobalMaxPooling2D: the largest element of each channel."""


def GroupNormalization(groups: int = ..., *, axis: int = ..., epsilon: Optional[float] = ..., center: bool = ..., scale: Any = ..., beta_initializer: Named = ..., gamma_initializer: Named = ..., beta_regularizer: Named = ..., gamma_regularizer: Named = ..., beta_constraint: Any = ..., gamma_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GroupNormalization: normalizes groups of channels of each example."""


def Identity(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Identity: what comes in."""


def LayerNormalization(*, axis: Sizes = ..., epsilon: Optional[float] = ..., center: bool = ..., scale: Any = ..., beta_initializer: Named = ..., gamma_initializer: Named = ..., beta_regularizer: Named = ..., gamma_regularizer: Named = ..., beta_constraint: Any = ..., gamma_constraint: Any = ..., rms_scaling: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's LayerNormalization: normalizes each example over its last axes."""


def LeakyReLU(negative_slope: Optional[float] = ..., *, alpha: Optional[float] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's LeakyReLU: x above 0, a fraction of it below."""


def MaxPooling1D(pool_size: Sizes = ..., strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's MaxPooling1D: the largest element of each window of a sequence."""


def MaxPooling2D(pool_size: Sizes = ..., strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's MaxPooling2D: the largest element of each window."""


def Maximum(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Maximum: the largest of its inputs."""


def Minimum(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Minimum: the smallest of its inputs."""


def MultiHeadAttention(num_heads: int, key_dim: int, *, value_dim: int = ..., dropout: Optional[float] = ..., use_bias: bool = ..., output_shape: Any = ..., attention_axes: Any = ..., flash_attention: Any = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., use_gate: bool = ..., seed: Optional[int] = ..., query_shape: Any = ..., key_shape: Any = ..., value_shape: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's MultiHeadAttention: attention of several heads."""


def Multiply(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Multiply: the product of its inputs."""


def PReLU(*, alpha_initializer: Named = ..., alpha_regularizer: Named = ..., alpha_constraint: Any = ..., shared_axes: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's PReLU: a trained slope for negative x."""


def Permute(dims: Sequence[int], *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Permute: the dimensions of an example in another order."""


def ReLU(*, max_value: Optional[float] = ..., negative_slope: Optional[float] = ..., threshold: Optional[float] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ReLU: rectified linear unit: max(x, 0)."""


def RepeatVector(n: int, *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RepeatVector: a sequence of one vector."""


def Rescaling(scale: Any = ..., offset: Union[float, Sequence[float]] = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Rescaling: times a scale, plus an offset."""


def Reshape(target_shape: Sequence[int], *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Reshape: the same elements in another shape."""


def SeparableConv2D(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., depth_multiplier: int = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., depthwise_initializer: Named = ..., pointwise_initializer: Named = ..., bias_initializer: Named = ..., depthwise_regularizer: Named = ..., pointwise_regularizer: Named = ..., bias_regularizer: Named = ..., depthwise_constraint: Any = ..., pointwise_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's SeparableConv2D: convolution of each channel by itself, then of the channels."""


def Softmax(axis: int = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Softmax: probabilities over the last dimension."""


def SpatialDropout2D(rate: Optional[float], *, seed: Optional[int] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's SpatialDropout2D: drops a fraction of the channels in training."""


def Subtract(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Subtract: the first input less the second."""


def UpSampling1D(size: Sizes = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's UpSampling1D: a sequence with each step repeated."""


def UpSampling2D(size: Sizes = ..., *, data_format: Optional[str] = ..., interpolation: str = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's UpSampling2D: more rows and columns, repeated or interpolated."""


def ZeroPadding1D(padding: Sizes = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ZeroPadding1D: steps of zeros before and after a sequence."""


def ZeroPadding2D(padding: Union[int, Sequence[Any]] = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ZeroPadding2D: rows and columns of zeros around an image."""
