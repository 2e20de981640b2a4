# SPDX-License-Identifier: Apache-2.0
# Made by lab/pages/python_stubs.py from the package, layers/, tools/ and lockstep.h; change those, not this file.
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

Sizes = Union[int, Sequence[int]]
Named = Union[str, Mapping[str, Any], None]  # a name, or an object as Keras writes it

POSITIONAL: Dict[str, str]
CELLS: Dict[str, str]
ALIASES: Dict[str, str]


class Layer:
    """A layer by the name of its class, with its options."""

    class_name: str
    config: Dict[str, Any]

    def __init__(self, class_name: str, **config: Any) -> None: ...

    trainable: bool

    def get_weights(self) -> List[Any]: ...

    def set_weights(self, weights: Sequence[Any]) -> None: ...

    def __call__(self, *inputs: Any, **arguments: Any) -> Any: ...

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


def ActivityRegularization(l1: Optional[float] = ..., l2: Optional[float] = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ActivityRegularization: adds a penalty of its input to the loss."""


def AdaptiveAveragePooling1D(output_size: Sizes, *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AdaptiveAveragePooling1D: the means of as many pieces of a sequence as asked for."""


def AdaptiveAveragePooling2D(output_size: Sizes, *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AdaptiveAveragePooling2D: the means of as many pieces of an image as asked for."""


def AdaptiveAveragePooling3D(output_size: Sizes, *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AdaptiveAveragePooling3D: the means of as many pieces of a volume as asked for."""


def AdaptiveMaxPooling1D(output_size: Sizes, *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AdaptiveMaxPooling1D: the largest elements of as many pieces of a sequence as asked for."""


def AdaptiveMaxPooling2D(output_size: Sizes, *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AdaptiveMaxPooling2D: the largest elements of as many pieces of an image as asked for."""


def AdaptiveMaxPooling3D(output_size: Sizes, *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AdaptiveMaxPooling3D: the largest elements of as many pieces of a volume as asked for."""


def Add(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Add: the sum of its inputs."""


def AdditiveAttention(use_scale: bool = ..., dropout: Optional[float] = ..., *, seed: Optional[int] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AdditiveAttention: attention by sums of queries and keys."""


def AlphaDropout(rate: Any, *, seed: Optional[int] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AlphaDropout: drops elements in training, and keeps mean and variance behind a SELU."""


def Attention(use_scale: bool = ..., score_mode: Any = ..., dropout: Optional[float] = ..., *, seed: Optional[int] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Attention: attention by products of queries and keys."""


def Average(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Average: the mean of its inputs."""


def AveragePooling1D(pool_size: Sizes = ..., strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AveragePooling1D: the mean of each window of a sequence."""


def AveragePooling2D(pool_size: Sizes = ..., strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AveragePooling2D: the mean of each window."""


def AveragePooling3D(pool_size: Sizes = ..., strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's AveragePooling3D: the mean of each window of a volume."""


def BatchNormalization(axis: Sizes = ..., momentum: Optional[float] = ..., epsilon: Optional[float] = ..., center: bool = ..., scale: Any = ..., *, beta_initializer: Named = ..., gamma_initializer: Named = ..., moving_mean_initializer: Named = ..., moving_variance_initializer: Named = ..., beta_regularizer: Named = ..., gamma_regularizer: Named = ..., beta_constraint: Any = ..., gamma_constraint: Any = ..., synchronized: bool = ..., renorm: bool = ..., renorm_momentum: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's BatchNormalization: mean 0 and variance 1 in each channel of the batch, then scale and shift."""


def Bidirectional(layer: Any, merge_mode: Any = ..., *, backward_layer: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Bidirectional: a recurrent layer in both directions."""


def CategoryEncoding(num_tokens: int, output_mode: str = ..., *, sparse: bool = ..., dtype: Named = ..., name: str = ..., trainable: bool = ...) -> Layer:
    """Keras's CategoryEncoding: ids as zeros and ones, or counts."""


def CenterCrop(height: int, width: int, *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's CenterCrop: the middle of an image."""


def Concatenate(axis: int = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Concatenate: its inputs one behind the other."""


def Conv1D(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Conv1D: convolution of sequences."""


def Conv1DTranspose(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Conv1DTranspose: transposed convolution of sequences."""


def Conv2D(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Conv2D: convolution of images."""


def Conv2DTranspose(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Conv2DTranspose: transposed convolution of images."""


def Conv3D(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Conv3D: convolution of volumes."""


def Conv3DTranspose(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Conv3DTranspose: transposed convolution of volumes."""


def Cropping1D(cropping: Any = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Cropping1D: a sequence without its first and last steps."""


def Cropping2D(cropping: Any = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Cropping2D: an image without its outer rows and columns."""


def Cropping3D(cropping: Union[int, Sequence[Any]] = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Cropping3D: a volume without its outer elements."""


def Dense(units: int, activation: Named = ..., use_bias: bool = ..., *, kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Dense: x times kernel plus bias over the last dimension."""


def DepthwiseConv1D(kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, depth_multiplier: int = ..., data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., depthwise_initializer: Named = ..., bias_initializer: Named = ..., depthwise_regularizer: Named = ..., bias_regularizer: Named = ..., bias_constraint: Any = ..., depthwise_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's DepthwiseConv1D: convolution of each channel of a sequence by itself."""


def DepthwiseConv2D(kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, depth_multiplier: int = ..., data_format: Optional[str] = ..., dilation_rate: Sizes = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., depthwise_initializer: Named = ..., bias_initializer: Named = ..., depthwise_regularizer: Named = ..., bias_regularizer: Named = ..., bias_constraint: Any = ..., depthwise_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's DepthwiseConv2D: convolution of each channel by itself."""


def Discretization(bin_boundaries: Union[float, Sequence[float]] = ..., num_bins: Optional[int] = ..., epsilon: Optional[float] = ..., output_mode: str = ..., *, sparse: bool = ..., dtype: Named = ..., name: str = ..., trainable: bool = ...) -> Layer:
    """Keras's Discretization: which bin numbers are in, by boundaries that are given."""


def Dot(axes: Any, normalize: bool = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Dot: products of two tensors along a dimension of each."""


def Dropout(rate: Any, *, seed: Optional[int] = ..., noise_shape: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Dropout: drops a fraction of the elements in training."""


def ELU(alpha: Optional[float] = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ELU: x above 0, alpha (exp(x) - 1) below."""


def EinsumDense(equation: Any, output_shape: Any, activation: Named = ..., bias_axes: Any = ..., *, kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's EinsumDense: input and kernel multiplied and summed as an equation says."""


def Embedding(input_dim: int, output_dim: int, *, embeddings_initializer: Named = ..., embeddings_regularizer: Named = ..., embeddings_constraint: Any = ..., mask_zero: bool = ..., input_length: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Embedding: a row of a table for each id."""


def Flatten(*, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Flatten: all dimensions of an example as one."""


def GRU(units: int, activation: Named = ..., recurrent_activation: Named = ..., *, use_bias: bool = ..., kernel_initializer: Named = ..., recurrent_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., recurrent_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., recurrent_constraint: Any = ..., bias_constraint: Any = ..., dropout: Optional[float] = ..., recurrent_dropout: Any = ..., seed: Optional[int] = ..., reset_after: bool = ..., implementation: Any = ..., return_sequences: bool = ..., return_state: bool = ..., go_backwards: bool = ..., stateful: bool = ..., unroll: Any = ..., zero_output_for_mask: bool = ..., use_cudnn: Any = ..., time_major: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GRU: gated recurrent units."""


def GaussianDropout(rate: Any, *, seed: Optional[int] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GaussianDropout: times normal numbers of mean 1 in training."""


def GaussianNoise(stddev: Optional[float], *, seed: Optional[int] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GaussianNoise: adds normal noise in training."""


def GlobalAveragePooling1D(*, data_format: Optional[str] = ..., keepdims: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GlobalAveragePooling1D: the mean of each channel of a sequence."""


def GlobalAveragePooling2D(*, data_format: Optional[str] = ..., keepdims: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GlobalAveragePooling2D: the mean of each channel."""


def GlobalAveragePooling3D(*, data_format: Optional[str] = ..., keepdims: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GlobalAveragePooling3D: the mean of each channel of a volume."""


def GlobalMaxPooling1D(*, data_format: Optional[str] = ..., keepdims: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GlobalMaxPooling1D: the largest element of each channel of a sequence."""


def GlobalMaxPooling2D(*, data_format: Optional[str] = ..., keepdims: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GlobalMaxPooling2D: the largest element of each channel."""


def GlobalMaxPooling3D(*, data_format: Optional[str] = ..., keepdims: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GlobalMaxPooling3D: the largest element of each channel of a volume."""


def GroupNormalization(groups: int = ..., *, axis: int = ..., epsilon: Optional[float] = ..., center: bool = ..., scale: Any = ..., beta_initializer: Named = ..., gamma_initializer: Named = ..., beta_regularizer: Named = ..., gamma_regularizer: Named = ..., beta_constraint: Any = ..., gamma_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GroupNormalization: normalizes groups of channels of each example."""


def GroupQueryAttention(head_dim: int, num_query_heads: int, num_key_value_heads: int, dropout: Optional[float] = ..., use_bias: bool = ..., *, flash_attention: Any = ..., kernel_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., bias_constraint: Any = ..., use_gate: bool = ..., seed: Optional[int] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's GroupQueryAttention: attention of heads that share keys and values."""


def Identity(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Identity: what comes in."""


def IntegerLookup(max_tokens: Optional[int] = ..., num_oov_indices: int = ..., mask_token: Optional[int] = ..., oov_token: Optional[int] = ..., vocabulary: Any = ..., *, vocabulary_dtype: str = ..., vocabulary_size: Optional[int] = ..., invert: bool = ..., output_mode: str = ..., sparse: bool = ..., pad_to_max_tokens: bool = ..., oov_method: str = ..., salt: Any = ..., dtype: Named = ..., name: str = ..., trainable: bool = ...) -> Layer:
    """Keras's IntegerLookup: the indices that numbers have in a vocabulary that is given."""


def LSTM(units: int, activation: Named = ..., recurrent_activation: Named = ..., *, use_bias: bool = ..., kernel_initializer: Named = ..., recurrent_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., recurrent_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., recurrent_constraint: Any = ..., bias_constraint: Any = ..., dropout: Optional[float] = ..., recurrent_dropout: Any = ..., seed: Optional[int] = ..., unit_forget_bias: bool = ..., implementation: Any = ..., return_sequences: bool = ..., return_state: bool = ..., go_backwards: bool = ..., stateful: bool = ..., unroll: Any = ..., zero_output_for_mask: bool = ..., use_cudnn: Any = ..., time_major: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's LSTM: long short-term memory."""


def LayerNormalization(*, axis: Sizes = ..., epsilon: Optional[float] = ..., center: bool = ..., scale: Any = ..., beta_initializer: Named = ..., gamma_initializer: Named = ..., beta_regularizer: Named = ..., gamma_regularizer: Named = ..., beta_constraint: Any = ..., gamma_constraint: Any = ..., rms_scaling: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's LayerNormalization: normalizes each example over some of its axes."""


def LeakyReLU(negative_slope: Optional[float] = ..., *, alpha: Optional[float] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's LeakyReLU: x above 0, a fraction of it below."""


def Masking(mask_value: Optional[float] = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Masking: leaves out steps of a given value."""


def MaxPooling1D(pool_size: Sizes = ..., strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's MaxPooling1D: the largest element of each window of a sequence."""


def MaxPooling2D(pool_size: Sizes = ..., strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's MaxPooling2D: the largest element of each window."""


def MaxPooling3D(pool_size: Sizes = ..., strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's MaxPooling3D: the largest element of each window of a volume."""


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


def RNN(cell: Any, return_sequences: bool = ..., return_state: bool = ..., *, go_backwards: bool = ..., stateful: bool = ..., unroll: Any = ..., zero_output_for_mask: bool = ..., use_cudnn: Any = ..., time_major: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RNN: recurrent cells, one above the other."""


def Permute(dims: Sequence[int], *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Permute: the dimensions of an example in another order."""


def RMSNormalization(axis: int = ..., epsilon: Optional[float] = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RMSNormalization: divides by the root of the mean square."""


def RandomBrightness(factor: Union[float, Sequence[float], None] = ..., value_range: Sequence[float] = ..., *, seed: Optional[int] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RandomBrightness: makes images brighter or darker in training."""


def RandomContrast(factor: Union[float, Sequence[float], None] = ..., value_range: Sequence[float] = ..., *, seed: Optional[int] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RandomContrast: changes the contrast of images in training."""


def RandomCrop(height: int, width: int, *, seed: Optional[int] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RandomCrop: parts of images, in training at random places."""


def RandomErasing(factor: Union[float, Sequence[float], None] = ..., scale: Any = ..., fill_value: Optional[float] = ..., value_range: Sequence[float] = ..., *, seed: Optional[int] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RandomErasing: erases patches of images in training."""


def RandomFlip(mode: str = ..., *, seed: Optional[int] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RandomFlip: mirrors half of the images in training."""


def RandomRotation(factor: Union[float, Sequence[float], None] = ..., fill_mode: str = ..., interpolation: str = ..., *, seed: Optional[int] = ..., fill_value: Optional[float] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RandomRotation: rotates images in training."""


def RandomTranslation(height_factor: Union[float, Sequence[float], None] = ..., width_factor: Union[float, Sequence[float], None] = ..., fill_mode: str = ..., interpolation: str = ..., *, seed: Optional[int] = ..., fill_value: Optional[float] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RandomTranslation: shifts images in training."""


def RandomZoom(height_factor: Union[float, Sequence[float], None] = ..., width_factor: Union[float, Sequence[float], None] = ..., fill_mode: str = ..., interpolation: str = ..., *, seed: Optional[int] = ..., fill_value: Optional[float] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RandomZoom: makes images larger or smaller in training."""


def ReLU(*, max_value: Optional[float] = ..., negative_slope: Optional[float] = ..., threshold: Optional[float] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ReLU: rectified linear unit: max(x, 0)."""


def RepeatVector(n: int, *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's RepeatVector: a sequence of one vector."""


def Rescaling(scale: Any = ..., offset: Union[float, Sequence[float]] = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Rescaling: times a scale, plus an offset."""


def Reshape(target_shape: Sequence[int], *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Reshape: the same elements in another shape."""


def Resizing(height: int, width: int, interpolation: str = ..., crop_to_aspect_ratio: bool = ..., *, pad_to_aspect_ratio: bool = ..., fill_mode: str = ..., fill_value: Optional[float] = ..., antialias: bool = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Resizing: images of another size."""


def ReversibleEmbedding(input_dim: int, output_dim: int, tie_weights: bool = ..., *, embeddings_initializer: Named = ..., embeddings_regularizer: Named = ..., embeddings_constraint: Any = ..., mask_zero: bool = ..., input_length: Any = ..., reverse_dtype: Any = ..., logit_soft_cap: Optional[float] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ReversibleEmbedding: a row of a table for each id, and in reverse a number for each row."""


def SeparableConv1D(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., depth_multiplier: int = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., depthwise_initializer: Named = ..., pointwise_initializer: Named = ..., bias_initializer: Named = ..., depthwise_regularizer: Named = ..., pointwise_regularizer: Named = ..., bias_regularizer: Named = ..., depthwise_constraint: Any = ..., pointwise_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's SeparableConv1D: convolution of each channel of a sequence by itself, then of the channels."""


def SeparableConv2D(filters: int, kernel_size: Sizes, strides: Optional[Sizes] = ..., padding: str = ..., *, data_format: Optional[str] = ..., dilation_rate: Sizes = ..., depth_multiplier: int = ..., groups: int = ..., activation: Named = ..., use_bias: bool = ..., depthwise_initializer: Named = ..., pointwise_initializer: Named = ..., bias_initializer: Named = ..., depthwise_regularizer: Named = ..., pointwise_regularizer: Named = ..., bias_regularizer: Named = ..., depthwise_constraint: Any = ..., pointwise_constraint: Any = ..., bias_constraint: Any = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's SeparableConv2D: convolution of each channel by itself, then of the channels."""


def SimpleRNN(units: int, activation: Named = ..., *, use_bias: bool = ..., kernel_initializer: Named = ..., recurrent_initializer: Named = ..., bias_initializer: Named = ..., kernel_regularizer: Named = ..., recurrent_regularizer: Named = ..., bias_regularizer: Named = ..., kernel_constraint: Any = ..., recurrent_constraint: Any = ..., bias_constraint: Any = ..., dropout: Optional[float] = ..., recurrent_dropout: Any = ..., seed: Optional[int] = ..., return_sequences: bool = ..., return_state: bool = ..., go_backwards: bool = ..., stateful: bool = ..., unroll: Any = ..., zero_output_for_mask: bool = ..., use_cudnn: Any = ..., time_major: bool = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's SimpleRNN: a fully connected recurrent layer."""


def Softmax(axis: int = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Softmax: probabilities over one dimension."""


def SpatialDropout1D(rate: Any, *, seed: Optional[int] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's SpatialDropout1D: drops a fraction of the channels in training."""


def SpatialDropout2D(rate: Any, *, seed: Optional[int] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's SpatialDropout2D: drops a fraction of the channels in training."""


def SpatialDropout3D(rate: Any, *, seed: Optional[int] = ..., data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's SpatialDropout3D: drops a fraction of the channels in training."""


def SpectralNormalization(layer: Any, power_iterations: int = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's SpectralNormalization: another layer, whose kernel has the largest singular value 1."""


def Subtract(*, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's Subtract: the first input less the second."""


def TimeDistributed(layer: Any, *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's TimeDistributed: another layer on each step of a sequence."""


def UnitNormalization(axis: int = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's UnitNormalization: vectors of length 1."""


def UpSampling1D(size: Sizes = ..., *, name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's UpSampling1D: a sequence with each step repeated."""


def UpSampling2D(size: Sizes = ..., *, data_format: Optional[str] = ..., interpolation: str = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's UpSampling2D: more rows and columns, repeated or interpolated."""


def UpSampling3D(size: Sizes = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's UpSampling3D: each element of a volume several times."""


def ZeroPadding1D(padding: Sizes = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ZeroPadding1D: steps of zeros before and after a sequence."""


def ZeroPadding2D(padding: Union[int, Sequence[Any]] = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ZeroPadding2D: rows and columns of zeros around an image."""


def ZeroPadding3D(padding: Union[int, Sequence[Any]] = ..., *, data_format: Optional[str] = ..., name: str = ..., trainable: bool = ..., dtype: Named = ...) -> Layer:
    """Keras's ZeroPadding3D: zeros around a volume."""


def GRUCell(units: Any, activation: Any = ..., recurrent_activation: Any = ..., **config: Any) -> Layer:
    """Keras's GRUCell, for RNN."""


def LSTMCell(units: Any, activation: Any = ..., recurrent_activation: Any = ..., **config: Any) -> Layer:
    """Keras's LSTMCell, for RNN."""


def SimpleRNNCell(units: Any, activation: Any = ..., **config: Any) -> Layer:
    """Keras's SimpleRNNCell, for RNN."""


def StackedRNNCells(cells: Any, **config: Any) -> Layer:
    """Keras's StackedRNNCells, for RNN."""


AvgPool1D = AveragePooling1D
AvgPool2D = AveragePooling2D
AvgPool3D = AveragePooling3D
Convolution1D = Conv1D
Convolution1DTranspose = Conv1DTranspose
Convolution2D = Conv2D
Convolution2DTranspose = Conv2DTranspose
Convolution3D = Conv3D
Convolution3DTranspose = Conv3DTranspose
GlobalAvgPool1D = GlobalAveragePooling1D
GlobalAvgPool2D = GlobalAveragePooling2D
GlobalAvgPool3D = GlobalAveragePooling3D
GlobalMaxPool1D = GlobalMaxPooling1D
GlobalMaxPool2D = GlobalMaxPooling2D
GlobalMaxPool3D = GlobalMaxPooling3D
MaxPool1D = MaxPooling1D
MaxPool2D = MaxPooling2D
MaxPool3D = MaxPooling3D
SeparableConvolution1D = SeparableConv1D
SeparableConvolution2D = SeparableConv2D
