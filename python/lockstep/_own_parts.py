# SPDX-License-Identifier: Apache-2.0
"""Losses, metrics and layers of one's own in Python, as plugins that the library calls when it makes a model."""
import ctypes
import inspect
import json
import math
import re
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _composition as declared
from . import layers
from ._declarations import LS_FAILED, LS_OK
from ._errors import UsageError
from ._native import check, keep_exception, library, type_of
from .ops import Composition, Refused, Tensor

LAYER, LOSS, METRIC = 6, 7, 8  # enum ls_kind
PLUGIN = {"magic": 0x315054534b434f4c, "abi_major": 1, "abi_minor": 0}  # LS_PLUGIN_HEADER
TARGETS = {"numbers": declared.LS_TARGETS_NUMBERS, "classes": declared.LS_TARGETS_CLASSES}

_plugins: Dict[Tuple[int, Any, str], "declared.ls_plugin"] = {}  # by what they are of: a plugin lasts as long as the process
_kept: List[Any] = []  # what they point to


def _in_build(composer: Any, compose: Callable[[Composition], Any]) -> int:
    """Runs the program's function as a build function of a plugin."""
    composition = Composition(composer)
    try:
        compose(composition)
        return LS_OK
    except Refused:
        return LS_OK  # the library knows
    except BaseException as error:  # noqa: B902  (nothing may pass through C)
        keep_exception(error)
        return LS_FAILED
    finally:
        composition.is_open = False


def _put(made: Any, outputs: Any, most: int, what: str) -> None:
    """The tensors that a function returns, where the library looks for them."""
    several = list(made) if isinstance(made, (list, tuple)) else [made]
    if not 0 < len(several) <= most or not all(isinstance(one, Tensor) for one in several):
        raise UsageError(f"{what} returned {made!r}: expected {'a tensor' if most == 1 else f'1 to {most} tensors'} of lockstep.ops")
    for index, one in enumerate(several):
        outputs[index] = one.pointer


def _plugin(kind: int, name: str, interface: Any, options: Any = None) -> "declared.ls_plugin":
    interface.struct_size = ctypes.sizeof(interface)
    plugin = declared.ls_plugin(**PLUGIN, struct_size=ctypes.sizeof(declared.ls_plugin), kind=kind, name=name.encode(), version=b"1", licence=b"unknown",
                                summary=b"of the program", options=options, interface=ctypes.addressof(interface))
    _kept.append(interface)
    return plugin


# ---- Losses and metrics ----

class Composed:
    """A function of y_true and y_pred, and how the library calls it."""

    def __init__(self, function: Callable[..., Any], targets: str = "numbers", name: Optional[str] = None, sums: int = 1, upwards: bool = False,
                 result: Optional[Callable[[Sequence[float], float], float]] = None) -> None:
        if targets not in TARGETS:
            raise UsageError(f"targets={targets!r}: expected 'numbers' or 'classes'")
        if not 1 <= sums <= declared.LS_METRIC_SUMS:
            raise UsageError(f"sums={sums}: expected 1 to {declared.LS_METRIC_SUMS}")
        self.function, self.targets, self.sums, self.upwards, self.result = function, targets, sums, upwards, result
        self.__name__ = name or re.sub(r"\W", "", getattr(function, "__name__", type(function).__name__)) or "own"

    def __call__(self, y_true: Tensor, y_pred: Tensor) -> Any:
        return self.function(y_true, y_pred)

    def plugin(self, kind: int, name: str) -> "declared.ls_plugin":
        table = declared.ls_loss_interface if kind == LOSS else declared.ls_metric_interface
        sums = 1 if kind == LOSS else self.sums

        def build(_host: Any, composer: Any, predictions: Any, targets: Any, values: Any) -> int:
            return _in_build(composer, lambda c: _put(self.function(c.tensor(targets), c.tensor(predictions)), values, sums, name))

        interface = table(targets=TARGETS[self.targets], build=type_of(table, "build")(build))
        if kind == METRIC:
            interface.sums, interface.upwards = self.sums, int(self.upwards)
        if kind == METRIC and self.result:
            interface.result = type_of(table, "result")(self._value)
        return _plugin(kind, name, interface)

    def _value(self, _host: Any, sums: Any, examples: float) -> float:
        try:
            return float(self.result(sums[:self.sums], examples))  # type: ignore
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            return math.nan


# ---- Layers ----

class Undecided:
    """Whether a layer is in training, while it is composed for trainings and predictions at once."""

    def __bool__(self) -> bool:
        raise UsageError("a layer is composed once, for training and predictions, so `training` is neither true nor false in its call: ops.dropout acts in "
                         "training alone")

    def __eq__(self, _other: object) -> bool:
        return bool(self)

    __hash__ = None  # type: ignore[assignment]


class Layer(layers.Layer):
    """A layer of one's own, as keras.layers.Layer: `build(input_shape)` makes weights by `add_weight`, and `call(inputs)` composes lockstep.ops. Its arguments
    are its options in a model's JSON: numbers, texts, lists. The library makes one by them for each model, so nothing else that an object has gets there.

    Args:
        name: In the model; None: by the class.

    Example:
        >>> class Scaled(ops.Layer):
        ...     def __init__(self, factor=1.0, name=None):
        ...         super().__init__(name)
        ...         self.factor = factor
        ...     def build(self, input_shape):
        ...         self.scale = self.add_weight((input_shape[-1],), initializer="ones", name="scale")
        ...     def call(self, inputs):
        ...         return inputs * self.scale * self.factor
        >>> own = lockstep.Sequential([layers.Input((3,)), Scaled(2.0)], device="cpu")
        >>> own.predict([[1.0, 2.0, 3.0]], verbose=0).tolist()
        [[2.0, 4.0, 6.0]]
    """

    def __new__(cls, *values: Any, **options: Any) -> "Layer":
        made = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind(made, *values, **options)
        config = {name: value for name, value in list(bound.arguments.items())[1:]}
        for name, parameter in inspect.signature(cls.__init__).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                config.update(config.pop(name, {}))
        made.class_name, made.config, made._composition = cls.__name__, {name: value for name, value in config.items() if value is not None}, None
        return made

    class_name: str
    config: Dict[str, Any]
    _composition: Optional[Composition]

    def __init__(self, name: Optional[str] = None) -> None:
        pass

    def build(self, input_shape: Any) -> None:
        """Makes the weights.

        Args:
            input_shape: As (None, 28, 28), or a list of them where there are several inputs.
        """

    def call(self, inputs: Any) -> Any:
        """Composes what the layer computes, once for training and predictions: ops.dropout acts in training alone. A parameter `training` is False where the
        model's JSON calls the layer so; else what looks at it is refused, but for `training is True`, which nothing can see.

        Args:
            inputs: A tensor, or a list of them.

        Returns:
            A tensor, or a list of up to 8.
        """
        raise NotImplementedError(f"{type(self).__name__} has no call(inputs)")

    def add_weight(self, shape: Sequence[int] = (), initializer: Any = None, dtype: Any = None, trainable: bool = True, *,
                   regularizer: None = None, constraint: None = None, name: Optional[str] = None) -> Tensor:
        """Makes a variable; in files of weights it is LAYER/name.

        Args:
            shape: Its sizes.
            initializer: A text as "zeros" or "constant:value=0.1", or an object of Keras; None: "glorot_uniform".
            dtype: None or "float32", which variables have.
            trainable: Whether gradients change it.
            regularizer: None: a loss of one's own, or an optimizer's weight_decay, has such a term.
            constraint: None.
            name: Letters, digits and underscores.

        Returns:
            The variable, as a tensor for `call`.

        Raises:
            UsageError: No model is being made, or an argument is not taken.
        """
        if self._composition is None:
            raise UsageError("add_weight is for build and call of a layer, while a model is made")
        if isinstance(shape, (str, int)):
            raise UsageError(f"add_weight({shape!r}): expected the sizes first, such as (8,); the name is a keyword")
        if dtype is not None and str(getattr(dtype, "__name__", dtype)) != "float32":
            raise UsageError(f"add_weight: dtype={dtype!r}: expected None or 'float32'; precision= of the model says in what is computed")
        for option, value in (("regularizer", regularizer), ("constraint", constraint)):
            if value is not None:
                raise UsageError(f"add_weight: {option}={value!r}: a layer of one's own has none; an optimizer's weight_decay keeps weights small")
        self._weights += 1
        return self._composition.weight(name or f"weight_{self._weights}", shape or (1,), _initializer_text(initializer), trainable)

    _weights = 0

    @classmethod
    def options(cls) -> List[str]:
        """What a model's JSON may say, besides a name."""
        return [name for name, one in list(inspect.signature(cls.__init__).parameters.items())[1:]
                if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and name != "name"]


def _initializer_text(given: Any) -> Optional[str]:
    """Of a text, an object of Keras, its class, or what Keras writes of it."""
    if given is None or isinstance(given, str):
        return given
    made = given() if isinstance(given, type) else given
    if not isinstance(made, dict) and not hasattr(made, "get_config"):
        raise UsageError(f"add_weight: initializer={given!r}: expected a text, such as 'zeros' or 'random_normal:stddev=0.1', or an object of Keras; "
                         "set_weights sets numbers of one's own")
    return json.dumps(made, default=layers.written)


def _given(host: Any, options: Sequence[str]) -> Dict[str, Any]:
    """The options of a layer, which come as texts."""
    made = {}
    for name in options:
        text = host.contents.option(ctypes.cast(host, ctypes.c_void_p), name.encode())
        if text is not None:
            try:
                made[name] = json.loads(text)
            except ValueError:
                made[name] = text.decode()
    return made


def _layer_plugin(kind: Any, name: str) -> "declared.ls_plugin":
    options = kind.options()

    def compose(composition: Composition, host: Any, inputs: Sequence[Any], outputs: Any) -> None:
        layer = kind(**_given(host, options))
        layer._composition = composition
        tensors = [composition.tensor(one) for one in inputs]
        layer.build(tensors[0].shape if len(tensors) == 1 else [one.shape for one in tensors])
        more = {"training": composition.training and Undecided()} if "training" in inspect.signature(layer.call).parameters else {}
        _put(layer.call(tensors[0] if len(tensors) == 1 else tensors, **more), outputs, declared.LS_LAYER_MOST_OUTPUTS, name)

    def build(host: Any, composer: Any, inputs: Any, count: int, outputs: Any) -> int:
        return _in_build(composer, lambda composition: compose(composition, host, inputs[:count], outputs))

    table = declared.ls_layer_interface(least_inputs=1, most_inputs=declared.LS_LAYER_MOST_OUTPUTS,
                                        build=type_of(declared.ls_layer_interface, "build")(build))
    listed = (declared.ls_plugin_option * (len(options) + 1))(*(declared.ls_plugin_option(one.encode(), b"text", None, b"of the program") for one in options))
    return _plugin(LAYER, name, table, listed)


# ---- Of a run ----

class Registered:
    """What a run knows by a name."""

    def __init__(self, run: ctypes.c_void_p) -> None:
        self.run = run
        self.names: Dict[Tuple[int, str], Any] = {}

    def name_of(self, kind: int, part: Any) -> str:
        """Registers a function or a class of a layer, and says by which name."""
        wanted: str = part.__name__
        name, number = wanted, 1
        while self.names.get((kind, name), part) is not part and kind != LAYER:
            number += 1
            name = f"{wanted}_{number}"
        if self.names.get((kind, name)) is part:
            return name
        if (kind, part, name) not in _plugins:
            _plugins[kind, part, name] = _layer_plugin(part, name) if kind == LAYER else part.plugin(kind, name)
        check(library().ls_plugin_register(self.run, ctypes.byref(_plugins[kind, part, name])))
        self.names[kind, name] = part
        return name


_composed: Dict[Any, Composed] = {}


def composed_of(function: Any) -> Composed:
    """The same for the same function."""
    if isinstance(function, Composed):
        return function
    if function not in _composed:
        _composed[function] = Composed(function)
    return _composed[function]
