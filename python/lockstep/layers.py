# SPDX-License-Identifier: Apache-2.0
"""Layers, with Keras's names and options: `layers.Dense(10, activation="relu")`. They go into a Sequential model, or are called, as in Keras:

    x = layers.Input((8,))
    y = layers.Dense(8)(x)
    model = lockstep.Model(x, layers.Add()([x, y]))

A layer is what Keras writes of it into a model's JSON, and nothing more: Lockstep checks the options when the model is made. Those that
are not below, and plugins of one's own, are `layers.Layer("RMSNorm", epsilon=1e-5)`.
"""
import dataclasses
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._errors import UsageError

# The options that may be given by position, as in Keras.
POSITIONAL: Dict[str, str] = {
    "Activation": "activation",
    "ActivityRegularization": "l1 l2",
    "AdaptiveAveragePooling1D": "output_size",
    "AdaptiveAveragePooling2D": "output_size",
    "AdaptiveAveragePooling3D": "output_size",
    "AdaptiveMaxPooling1D": "output_size",
    "AdaptiveMaxPooling2D": "output_size",
    "AdaptiveMaxPooling3D": "output_size",
    "Add": "",
    "AdditiveAttention": "use_scale dropout",
    "AlphaDropout": "rate",
    "Attention": "use_scale score_mode dropout",
    "Average": "",
    "AveragePooling1D": "pool_size strides padding",
    "AveragePooling2D": "pool_size strides padding",
    "AveragePooling3D": "pool_size strides padding",
    "BatchNormalization": "axis momentum epsilon center scale",
    "Bidirectional": "layer merge_mode",
    "CategoryEncoding": "num_tokens output_mode",
    "CenterCrop": "height width",
    "Concatenate": "axis",
    "Conv1D": "filters kernel_size strides padding",
    "Conv1DTranspose": "filters kernel_size strides padding",
    "Conv2D": "filters kernel_size strides padding",
    "Conv2DTranspose": "filters kernel_size strides padding",
    "Conv3D": "filters kernel_size strides padding",
    "Conv3DTranspose": "filters kernel_size strides padding",
    "Cropping1D": "cropping",
    "Cropping2D": "cropping",
    "Cropping3D": "cropping",
    "Dense": "units activation use_bias",
    "DepthwiseConv1D": "kernel_size strides padding",
    "DepthwiseConv2D": "kernel_size strides padding",
    "Discretization": "bin_boundaries num_bins epsilon output_mode",
    "Dot": "axes normalize",
    "Dropout": "rate",
    "ELU": "alpha",
    "EinsumDense": "equation output_shape activation bias_axes",
    "Embedding": "input_dim output_dim",
    "Flatten": "",
    "GRU": "units activation recurrent_activation",
    "GaussianDropout": "rate",
    "GaussianNoise": "stddev",
    "GlobalAveragePooling1D": "",
    "GlobalAveragePooling2D": "",
    "GlobalAveragePooling3D": "",
    "GlobalMaxPooling1D": "",
    "GlobalMaxPooling2D": "",
    "GlobalMaxPooling3D": "",
    "GroupNormalization": "groups",
    "GroupQueryAttention": "head_dim num_query_heads num_key_value_heads dropout use_bias",
    "Identity": "",
    "IntegerLookup": "max_tokens num_oov_indices mask_token oov_token vocabulary",
    "LSTM": "units activation recurrent_activation",
    "LayerNormalization": "",
    "LeakyReLU": "negative_slope",
    "Masking": "mask_value",
    "MaxPooling1D": "pool_size strides padding",
    "MaxPooling2D": "pool_size strides padding",
    "MaxPooling3D": "pool_size strides padding",
    "Maximum": "",
    "Minimum": "",
    "MultiHeadAttention": "num_heads key_dim",
    "Multiply": "",
    "PReLU": "",
    "RNN": "cell return_sequences return_state",
    "Permute": "dims",
    "RMSNormalization": "axis epsilon",
    "RandomBrightness": "factor value_range",
    "RandomContrast": "factor value_range",
    "RandomCrop": "height width",
    "RandomErasing": "factor scale fill_value value_range",
    "RandomFlip": "mode",
    "RandomRotation": "factor fill_mode interpolation",
    "RandomTranslation": "height_factor width_factor fill_mode interpolation",
    "RandomZoom": "height_factor width_factor fill_mode interpolation",
    "ReLU": "",
    "RepeatVector": "n",
    "Rescaling": "scale offset",
    "Reshape": "target_shape",
    "Resizing": "height width interpolation crop_to_aspect_ratio",
    "ReversibleEmbedding": "input_dim output_dim tie_weights",
    "SeparableConv1D": "filters kernel_size strides padding",
    "SeparableConv2D": "filters kernel_size strides padding",
    "SimpleRNN": "units activation",
    "Softmax": "axis",
    "SpatialDropout1D": "rate",
    "SpatialDropout2D": "rate",
    "SpatialDropout3D": "rate",
    "SpectralNormalization": "layer power_iterations",
    "Subtract": "",
    "TimeDistributed": "layer",
    "UnitNormalization": "axis",
    "UpSampling1D": "size",
    "UpSampling2D": "size",
    "UpSampling3D": "size",
    "ZeroPadding1D": "padding",
    "ZeroPadding2D": "padding",
    "ZeroPadding3D": "padding",
}

# What is inside of RNN, likewise.
CELLS: Dict[str, str] = {
    "GRUCell": "units activation recurrent_activation",
    "LSTMCell": "units activation recurrent_activation",
    "SimpleRNNCell": "units activation",
    "StackedRNNCells": "cells",
}

# Other names that Keras exports some of them by.
ALIASES: Dict[str, str] = {
    "AvgPool1D": "AveragePooling1D",
    "AvgPool2D": "AveragePooling2D",
    "AvgPool3D": "AveragePooling3D",
    "Convolution1D": "Conv1D",
    "Convolution1DTranspose": "Conv1DTranspose",
    "Convolution2D": "Conv2D",
    "Convolution2DTranspose": "Conv2DTranspose",
    "Convolution3D": "Conv3D",
    "Convolution3DTranspose": "Conv3DTranspose",
    "GlobalAvgPool1D": "GlobalAveragePooling1D",
    "GlobalAvgPool2D": "GlobalAveragePooling2D",
    "GlobalAvgPool3D": "GlobalAveragePooling3D",
    "GlobalMaxPool1D": "GlobalMaxPooling1D",
    "GlobalMaxPool2D": "GlobalMaxPooling2D",
    "GlobalMaxPool3D": "GlobalMaxPooling3D",
    "MaxPool1D": "MaxPooling1D",
    "MaxPool2D": "MaxPooling2D",
    "MaxPool3D": "MaxPooling3D",
    "SeparableConvolution1D": "SeparableConv1D",
    "SeparableConvolution2D": "SeparableConv2D",
}

__all__ = ["Input", "Layer", *POSITIONAL, *CELLS, *ALIASES]

PACKAGES = ("keras", "tf_keras", "tensorflow")  # whose objects are Keras's


class Layer:
    """A layer by the name of its class, with its options."""

    _told_by: Any = None  # the model that has it among its `layers`

    def __init__(self, class_name: str, **config: Any) -> None:
        self.class_name = class_name
        self.config = config
        if class_name == "RNN" and isinstance(config.get("cell"), (list, tuple)):
            self.config = {**config, "cell": Layer("StackedRNNCells", cells=config["cell"])}
        if class_name == "StackedRNNCells":
            self.config = {**config, "cells": _cells(config.get("cells"))}

    def __init_subclass__(cls, **options: Any) -> None:
        if not cls.__module__.startswith("lockstep.") and not hasattr(cls, "add_weight"):
            raise UsageError(f"{cls.__name__}: a layer of one's own is a class of lockstep.ops.Layer, not of lockstep.layers.Layer")
        super().__init_subclass__(**options)

    def _variables(self) -> List[int]:
        if self._told_by is None:
            raise UsageError(f"{self!r} has no weights before it is in a model; ask the one of model.layers or model.get_layer")
        return [index for index, variable in enumerate(self._told_by.variables) if variable.name.startswith(self.name + "/")]

    def get_weights(self) -> List[Any]:
        """A copy of the variables of a layer that `layers` or `get_layer` of a model returned."""
        every = self._told_by.get_weights() if self._variables() else []
        return [every[index] for index in self._variables()]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets them."""
        places = self._variables()
        if len(weights) != len(places):
            raise UsageError(f"{len(weights)} weights; layer {self.name!r} has {len(places)}")
        every = self._told_by.get_weights()
        for index, array in zip(places, weights):
            every[index] = array
        self._told_by.set_weights(every)

    calls: Tuple["Call", ...] = ()

    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """Says what the layer takes, for lockstep.Model(inputs, outputs). A layer that is called again has the same weights in both places of a model;
        another model has weights of its own.

        Args:
            *inputs: A layers.Input, what another layer returned, or a list of them.
            **arguments: Others that the layer has in Keras.

        Returns:
            What it makes; of a recurrent layer with return_state a list: that, and its last states.

        Raises:
            UsageError: Something else is given.
        """
        if self.class_name == "InputLayer" or self._told_by is not None:
            raise UsageError(f"{self!r} cannot be called: " + ("it is an input" if self.class_name == "InputLayer" else "it tells of a model that is made"))
        call = Call(inputs, arguments)
        if not call.symbols():
            raise UsageError(f"{self.class_name} is called on {', '.join(map(repr, inputs)) or 'nothing'}: expected a layers.Input or what another layer "
                             "returned; predict runs a model, and a layer of one's own composes lockstep.ops")
        self.calls = (*self.calls, call)
        made = [Symbol(self, len(self.calls) - 1, index) for index in range(1 + (_states(self) if _returns_state(self) else 0))]
        return made if len(made) > 1 else made[0]

    @property
    def trainable(self) -> bool:
        """Whether gradients change its weights."""
        return bool(self.config.get("trainable", True))

    @trainable.setter
    def trainable(self, value: bool) -> None:
        if self._told_by is not None:
            raise UsageError(f"layer {self.name!r}: the model is made already; say trainable={value} where the layer is made, as in layers.Dense(10, "
                             f"trainable={value})")
        self.config = {**self.config, "trainable": bool(value)}

    @property
    def name(self) -> str:
        """That of its options; "" for a layer that has none before it is in a model."""
        return str(self.config.get("name", ""))

    def __repr__(self) -> str:
        return f"{self.class_name}({', '.join(f'{name}={value!r}' for name, value in self.config.items())})"


@dataclasses.dataclass(frozen=True, repr=False)
class Symbol:
    """What a call of a layer makes, while a model is written. It takes + - * with another one."""

    layer: Layer
    call: int
    index: int = 0  # of what the call makes

    def __repr__(self) -> str:
        return f"<output of {self.layer!r}>"

    def __add__(self, other: Any) -> "Symbol":
        return _merged("Add", self, other)

    def __radd__(self, other: Any) -> "Symbol":
        return _merged("Add", other, self)

    def __sub__(self, other: Any) -> "Symbol":
        return _merged("Subtract", self, other)

    def __rsub__(self, other: Any) -> "Symbol":
        return _merged("Subtract", other, self)

    def __mul__(self, other: Any) -> "Symbol":
        return _merged("Multiply", self, other)

    def __rmul__(self, other: Any) -> "Symbol":
        return _merged("Multiply", other, self)


class Call(NamedTuple):
    """What a layer was called with."""

    inputs: Tuple[Any, ...]
    arguments: Dict[str, Any]

    def symbols(self) -> List[Symbol]:
        found, waiting = [], [*self.inputs, *self.arguments.values()]
        waiting.reverse()
        while waiting:
            one = waiting.pop()
            symbol = _symbol_of(one)
            if symbol:
                found.append(symbol)
            elif isinstance(one, (list, tuple)):
                waiting += reversed(one)
        return found


STATES = {"SimpleRNN": 1, "SimpleRNNCell": 1, "LSTM": 2, "LSTMCell": 2, "GRU": 1, "GRUCell": 1}


def _cells(given: Any) -> List[Any]:
    """Cells one above the other, with the names that Keras would give them in a new session."""
    if not isinstance(given, (list, tuple)) or not given:
        raise UsageError(f"StackedRNNCells of {given!r}: expected a list of cells, as [layers.LSTMCell(8), layers.LSTMCell(8)]")
    if len({id(cell) for cell in given}) < len(given):
        raise UsageError("StackedRNNCells: a cell is in the list twice, and would share its weights with itself; make one for each place")
    counts: Dict[str, int] = {}
    made = []
    for cell in given:
        if isinstance(cell, Layer) and "name" not in cell.config:
            kind = _snake(cell.class_name)
            number = counts.get(kind, 0)
            counts[kind] = number + 1
            cell = Layer(cell.class_name, **{"name": f"{kind}_{number}" if number else kind, **cell.config})
        made.append(cell)
    return made


def _returns_state(layer: Layer) -> bool:
    inner = layer.config.get("layer") if layer.class_name == "Bidirectional" else layer
    return isinstance(inner, Layer) and bool(inner.config.get("return_state"))


def _states(layer: Any) -> int:
    """How many states a recurrent layer or a cell has."""
    if isinstance(layer, (list, tuple)):
        return sum(map(_states, layer))
    if not isinstance(layer, Layer):
        return 0
    if layer.class_name == "Bidirectional":
        return 2 * _states(layer.config.get("layer"))
    return STATES.get(layer.class_name) or _states(layer.config.get("cell", layer.config.get("cells")))


def _merged(class_name: str, one: Any, other: Any) -> Symbol:
    for given in (one, other):
        if _symbol_of(given) is None:
            raise UsageError(f"{class_name} of {given!r}: expected what a layer returned; layers.Rescaling(scale, offset) takes numbers")
    return Layer(class_name)([one, other])


def _symbol_of(value: Any) -> Optional[Symbol]:
    if isinstance(value, Layer) and value.class_name == "InputLayer":
        return Symbol(value, 0)
    return value if isinstance(value, Symbol) else None


def _call_of(symbol: Symbol) -> Symbol:
    return Symbol(symbol.layer, symbol.call)


def Input(shape: Sequence[Optional[int]], dtype: str = "float32", **config: Any) -> Layer:
    """The input of a model: the shape of an example."""
    return Layer("InputLayer", batch_shape=[None, *shape], dtype=dtype, **config)


def _layer(class_name: str, names: List[str]) -> Callable[..., Layer]:
    def make(*values: Any, **config: Any) -> Layer:
        if len(values) > len(names):
            raise TypeError(f"{class_name} takes {len(names)} options by position ({', '.join(names)}), not {len(values)}")
        twice = [name for name in names[:len(values)] if name in config]
        if twice:
            raise TypeError(f"{class_name}: {twice[0]} is given twice")
        return Layer(class_name, **dict(zip(names, values)), **config)

    make.__name__ = make.__qualname__ = class_name
    make.__doc__ = f"The layer {class_name} with Keras's options and defaults; by position: {', '.join(names) or 'nothing'}. Called on a layers.Input, it is part of a model."
    return make


globals().update({name: _layer(name, options.split()) for name, options in {**POSITIONAL, **CELLS}.items()})
globals().update({alias: globals()[name] for alias, name in ALIASES.items()})


def __getattr__(name: str) -> Callable[..., Layer]:  # for type checkers, and for names that are none
    raise AttributeError(f"there is no layer {name}; layers.Layer({name!r}, ...) makes one by the name of its class")


def _snake(name: str) -> str:
    """As Keras names layers: Conv2D is conv2d, MaxPooling2D max_pooling2d."""
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)).lower()


def is_own(layer: Layer) -> bool:
    """Whether the program has written it."""
    return type(layer) is not Layer


def is_of_keras(value: Any) -> bool:
    """A function of Keras, and not of the program."""
    return callable(value) and str(getattr(value, "__module__", "")).split(".")[0] in PACKAGES


def written(value: Any) -> Any:
    """What JSON has for an object, a class or a function of Keras, and for a number of NumPy: the default= of json.dumps."""
    if isinstance(value, type) and is_of_keras(value):
        value = value()
    if isinstance(value, Layer) and not is_own(value):
        return {"module": "keras.layers", "class_name": value.class_name, "config": {"name": _snake(value.class_name), **value.config}, "registered_name": None}
    if hasattr(value, "get_config") and not isinstance(value, type):
        config = {**getattr(value, "_fn_kwargs", {}), **value.get_config()}  # Keras leaves Huber's delta out
        return {"module": type(value).__module__, "class_name": type(value).__name__, "config": config, "registered_name": None}
    if is_of_keras(value):
        return value.__name__
    if hasattr(value, "tolist"):
        return value.tolist()
    raise UsageError(f"{value!r} in the options of a layer or an object: expected numbers, texts, lists, dictionaries and objects of Keras")


def with_input(layers: Sequence[Any]) -> List[Any]:
    """The first layer may say the shape of the input, as it could in Keras 2."""
    given = list(layers)
    first = given[0].config if given and isinstance(given[0], Layer) and not is_own(given[0]) else {}
    if "input_shape" not in first and "input_dim" not in first or given[0].class_name == "Embedding":
        return given
    rest = {name: value for name, value in first.items() if name not in ("input_shape", "input_dim")}
    return [Input(first["input_shape"] if "input_shape" in first else (first["input_dim"],)), Layer(given[0].class_name, **rest), *given[1:]]


def sequential_config(layers: Sequence[Layer], name: str) -> Dict[str, Any]:
    """The model as Keras writes it; layers without a name get those that Keras would give them in a new session."""
    return {"module": "keras", "class_name": "Sequential", "config": {"name": name, "layers": _written_layers(with_input(layers))}, "registered_name": None}


def _written_layers(layers: Sequence[Any]) -> List[Dict[str, Any]]:
    counts: Dict[str, int] = {}
    made = []
    for layer in layers:
        if not isinstance(layer, Layer):
            hint = "; lockstep.Model takes a keras.Sequential of Keras's layers" if is_of_keras(type(layer)) else ""
            raise UsageError(f"{layer!r} is no layer: expected those of lockstep.layers, as layers.Dense(10){hint}")
        kind = "input_layer" if layer.class_name == "InputLayer" else _snake(layer.class_name)
        number = counts.get(kind, 0)
        counts[kind] = number + ("name" not in layer.config)  # as Keras counts
        config = {"name": f"{kind}_{number}" if number else kind, **layer.config}
        module = type(layer).__module__
        own = {"module": module, "registered_name": f"{module}>{layer.class_name}"} if is_own(layer) else {}
        made.append({"module": "keras.layers", "class_name": layer.class_name, "config": config, "registered_name": None, **own})
    return made


def functional_config(inputs: Any, outputs: Any, name: str) -> Tuple[Dict[str, Any], List[Layer]]:
    """The model between inputs and outputs, as Keras writes it, and its layers."""
    ends = []
    for what, given in (("inputs", inputs), ("outputs", outputs)):
        several = list(given) if isinstance(given, (list, tuple)) else [given]
        found = [one for one in map(_symbol_of, several) if one]
        wrong = [type(one).__name__ for one in several if not _symbol_of(one)] or ["nothing"] * (not found)
        if wrong or what == "inputs" and any(one.layer.class_name != "InputLayer" for one in found):
            raise UsageError(f"{what}: expected {'layers.Input' if what == 'inputs' else 'what layers returned'}, or a list of them, got "
                             f"{', '.join(wrong) or repr(given)}" + ("; a keras.Model of Keras's is given alone" if any(map(is_of_keras, map(type, several))) else ""))
        ends.append(found)
    order = dict.fromkeys(ends[0])  # calls, each behind those that it takes
    waiting = [*map(_call_of, ends[1][::-1])]
    while waiting:
        end = waiting[-1]
        taken = end.layer.calls[end.call].symbols() if end.layer.calls else ()
        before = [one for one in map(_call_of, taken) if one not in order]
        waiting += before[::-1]
        if not before:
            order[waiting.pop()] = None
    layers = list(dict.fromkeys(one.layer for one in order))
    lacking = [layer for layer in layers if layer.class_name == "InputLayer" and Symbol(layer, 0) not in ends[0]]
    if lacking:
        raise UsageError(f"inputs={inputs!r}: the outputs also need {lacking[0]!r}")
    written_layers = _written_layers(layers)
    names = {layer: entry["config"]["name"] for layer, entry in zip(layers, written_layers)}
    nodes = {layer: [one.call for one in order if one.layer is layer] for layer in layers}  # calls for other models are left out

    def history(symbol: Symbol) -> List[Any]:
        return [names[symbol.layer], nodes[symbol.layer].index(symbol.call), symbol.index]

    def value(given: Any) -> Any:
        symbol = _symbol_of(given)
        if symbol:
            return {"class_name": "__keras_tensor__", "config": {"shape": [None], "dtype": "float32", "keras_history": history(symbol)}}  # Keras asks for a shape
        return [value(one) for one in given] if isinstance(given, (list, tuple)) else given

    for layer, entry in zip(layers, written_layers):
        calls = [layer.calls[call] for call in nodes[layer]] if layer.calls else []
        entry.update(name=names[layer], inbound_nodes=[{"args": [value(one) for one in call.inputs],
                                                        "kwargs": {key: value(one) for key, one in call.arguments.items()}} for call in calls])
    config = {"name": name, "layers": written_layers, "input_layers": [history(one) for one in ends[0]], "output_layers": [history(one) for one in ends[1]]}
    return {"module": "keras.src.models.functional", "class_name": "Functional", "config": config, "registered_name": "Functional"}, layers
