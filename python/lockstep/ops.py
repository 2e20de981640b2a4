# SPDX-License-Identifier: Apache-2.0
"""What losses, metrics and layers of one's own are composed of, with the names of keras.ops.

    from lockstep import ops

    def log_cosh(y_true, y_pred):
        error = y_pred - y_true
        return ops.mean(error + ops.softplus(-2.0 * error) - math.log(2), axis=-1)

    model.compile("adam", loss=log_cosh)

A function runs when a model is made, on tensors that have a shape and no values yet; what it composes is trained on any device and under every
strategy, and its gradients come by themselves. Arguments and defaults are Keras's. The first dimension of a shape is None, the examples, which nothing
mixes: `axis=None` means all other dimensions.
"""
import builtins
import ctypes
import difflib
import inspect
import math
import operator
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple, Union

from . import _composition as declared
from ._errors import UsageError

if TYPE_CHECKING:
    from ._own_parts import Composed
    from ._own_parts import Layer as Layer

Number = Union[int, float]
TensorLike = Any  # a Tensor, a number or an array
Shape = Tuple[Optional[int], ...]
Axes = Union[None, int, Sequence[int]]


class Refused(Exception):
    """The library has said why a call failed."""


class Composition:
    """What operations are added to while a build function runs."""

    def __init__(self, composer: Any) -> None:
        self.table = composer.contents
        self.pointer = ctypes.cast(composer, ctypes.c_void_p)
        self.is_open = True

    @property
    def training(self) -> bool:
        return bool(self.table.training)

    def tensor(self, pointer: Optional[int]) -> "Tensor":
        if not pointer:
            raise Refused
        dims = (ctypes.c_int64 * declared.LS_MAX_DIMS)()
        count = self.table.shape(self.pointer, pointer, dims)
        return Tensor(self, pointer, tuple(None if size < 0 else size for size in dims[:count]))

    def constant(self, value: Any) -> "Tensor":
        import numpy

        array = numpy.ascontiguousarray(value, dtype="float32")
        array = array.reshape(array.shape or (1,))
        return self.tensor(self.table.constant(self.pointer, array.ndim, (ctypes.c_int64 * array.ndim)(*array.shape),
                                               array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))))

    def weight(self, name: str, shape: Sequence[int], initializer: Optional[str], trainable: bool) -> "Tensor":
        sizes = (ctypes.c_int64 * declared.LS_MAX_DIMS)(*(operator.index(size) for size in shape))
        wanted = declared.ls_weight(name=name.encode(), ndims=len(shape), frozen=not trainable, dims=sizes,
                                    initializer=initializer.encode() if initializer else None)
        return self.tensor(self.table.weight(self.pointer, ctypes.byref(wanted)))

    def operation(self, op: int, inputs: Sequence["Tensor"], shape: Optional[Shape] = None, **attributes: Any) -> "Tensor":
        made = declared.ls_op_attributes()
        for name, value in attributes.items():
            if isinstance(value, (list, tuple)):
                getattr(made, name)[:len(value)] = value
            else:
                setattr(made, name, value)
        sizes = (ctypes.c_int64 * len(shape))(*(-1 if size is None else size for size in shape)) if shape else None
        pointers = (ctypes.c_void_p * len(inputs))(*(tensor.pointer for tensor in inputs))
        return self.tensor(self.table.operation(self.pointer, op, ctypes.byref(made), pointers, len(inputs), len(shape or ()), sizes))


class Tensor:
    """A tensor of the model that is being made: it has a `shape`, and values once the model runs. It takes + - * / ** @, and slices such as
    `x[:, 2:5]` and `x[..., None]`."""

    def __init__(self, composition: Composition, pointer: int, shape: Shape) -> None:
        self.composition, self.pointer, self.shape = composition, pointer, shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<Tensor shape={self.shape}>"

    def __bool__(self) -> bool:
        raise UsageError("a tensor of lockstep.ops has no value while a model is made: compose ops.maximum, ops.minimum or ops.clip instead of if")

    def _has_no_values(self, *_arguments: Any) -> Any:
        raise UsageError("a tensor of lockstep.ops has no values while a model is made: compose it with lockstep.ops (from lockstep import ops), not with "
                         "keras.ops, TensorFlow or NumPy")

    __array__ = __len__ = __float__ = __int__ = _has_no_values

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> "Tensor":
        """An operator between an array and a tensor, or a function of NumPy's, which is refused."""
        name = function.__name__.replace("true_", "")
        if name in COMPARISONS:
            self._compared(None)
        if name not in OPERATORS or method != "__call__" or options:
            _refuse_numpy(name)
        return globals()[name](*inputs)  # type: ignore[no-any-return]

    def __array_function__(self, function: Any, *_arguments: Any) -> Any:
        _refuse_numpy(function.__name__)

    def _compared(self, _other: Any) -> bool:
        raise UsageError("tensors of lockstep.ops cannot be compared: compose ops.maximum, ops.minimum, ops.clip or ops.one_hot")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compared  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __add__(self, other: TensorLike) -> "Tensor":
        return add(self, other)

    def __radd__(self, other: TensorLike) -> "Tensor":
        return add(self, other)

    def __sub__(self, other: TensorLike) -> "Tensor":
        return subtract(self, other)

    def __rsub__(self, other: TensorLike) -> "Tensor":
        return subtract(other, self)

    def __mul__(self, other: TensorLike) -> "Tensor":
        return multiply(self, other)

    def __rmul__(self, other: TensorLike) -> "Tensor":
        return multiply(self, other)

    def __truediv__(self, other: TensorLike) -> "Tensor":
        return divide(self, other)

    def __rtruediv__(self, other: TensorLike) -> "Tensor":
        return divide(other, self)

    def __neg__(self) -> "Tensor":
        return negative(self)

    def __pow__(self, other: TensorLike) -> "Tensor":
        return power(self, other)

    def __rpow__(self, other: TensorLike) -> "Tensor":
        return power(other, self)

    def __abs__(self) -> "Tensor":
        return absolute(self)

    def __matmul__(self, other: "Tensor") -> "Tensor":
        return matmul(self, other)

    def __getitem__(self, parts: Any) -> "Tensor":
        return _slice(self, parts if isinstance(parts, tuple) else (parts,))


# ---- NumPy's functions ----

OPERATORS = ("add", "subtract", "multiply", "divide", "power")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def _refuse_numpy(name: str) -> None:
    instead = f"take ops.{name}" if name in __dir__() else INSTEAD.get(name, "compose it with lockstep.ops")
    raise UsageError(f"numpy.{name}: a tensor of lockstep.ops has no values while a model is made: {instead} (from lockstep import ops)")


# ---- Arguments ----

def _tensors(*values: TensorLike) -> List[Tensor]:
    """Numbers and arrays become constants of the composition that the others belong to."""
    composition = next((value.composition for value in values if isinstance(value, Tensor)), None)
    if composition is None:
        raise UsageError("ops: expected a tensor that a loss, a metric or a layer of one's own is called with, got " + " and ".join(map(repr, values)))
    if not composition.is_open:
        raise UsageError("ops: a tensor is used after the function that it was made for has returned")
    return [value if isinstance(value, Tensor) else composition.constant(value) for value in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "shape", None) == ())


def _axis(x: Tensor, axis: int) -> int:
    index = operator.index(axis)
    if not -x.ndim <= index < x.ndim:
        raise UsageError(f"ops: axis={axis} of {x}: expected one from {-x.ndim} to {x.ndim - 1}")
    return index % x.ndim


def _axes(x: Tensor, axis: Axes) -> List[int]:
    """None: all but the examples."""
    first = 1 if x.shape[:1] == (None,) else 0
    made = list(range(first, x.ndim)) if axis is None else [_axis(x, one) for one in ([axis] if hasattr(axis, "__index__") else axis)]  # type: ignore
    if first and 0 in made:
        raise UsageError(f"ops: axis 0 of {x} has the examples, which nothing reduces: a loss or a metric is averaged over them by itself")
    return made


def _of_examples(x: Tensor) -> Tensor:
    """Refuses a weight, and what pairs make of weights."""
    if _tensors(x)[0].shape[:1] != (None,):
        raise UsageError(f"ops: {x} has no examples: a weight is only added, subtracted, multiplied and divided, or compared by ops.maximum and ops.minimum: "
                         "combine it with a tensor of examples first")
    return x


# ---- Pairs of tensors; shapes are broadcast as by NumPy ----

def _pair(function: int, a: TensorLike, b: TensorLike) -> Tensor:
    one, other = _tensors(a, b)
    return one.composition.operation(declared.LS_OP_PAIR, [one, other], function=function)


def _scaled(x: Tensor, factor: float, offset: float) -> Tensor:
    _tensors(x)
    return x.composition.operation(declared.LS_OP_FUNCTION, [x], function=declared.LS_SCALE, factor=factor, offset=offset)


def add(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 + x2."""
    if isinstance(x1, Tensor) and _is_number(x2):
        return _scaled(x1, 1, float(x2))
    return add(x2, x1) if isinstance(x2, Tensor) and _is_number(x1) else _pair(declared.LS_PAIR_ADD, x1, x2)


def subtract(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 - x2."""
    if isinstance(x1, Tensor) and _is_number(x2):
        return _scaled(x1, 1, -float(x2))
    return _scaled(x2, -1, float(x1)) if isinstance(x2, Tensor) and _is_number(x1) else _pair(declared.LS_PAIR_SUBTRACT, x1, x2)


def multiply(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 x2."""
    if isinstance(x1, Tensor) and _is_number(x2):
        return _scaled(x1, float(x2), 0)
    return multiply(x2, x1) if isinstance(x2, Tensor) and _is_number(x1) else _pair(declared.LS_PAIR_MULTIPLY, x1, x2)


def divide(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 / x2."""
    if isinstance(x1, Tensor) and _is_number(x2) and builtins.abs(math.frexp(x2)[0]) == 0.5:  # a power of two, whose inverse is exact
        return _scaled(x1, 1 / float(x2), 0)
    return _pair(declared.LS_PAIR_DIVIDE, x1, x2)


def maximum(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The larger one; the gradient goes to x1 where they are equal."""
    return _pair(declared.LS_PAIR_MAXIMUM, x1, x2)


def minimum(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The smaller one."""
    return _pair(declared.LS_PAIR_MINIMUM, x1, x2)


def clip(x: Tensor, x_min: Number, x_max: Number) -> Tensor:
    """x, but at least x_min and at most x_max."""
    return minimum(maximum(x, x_min), x_max)


def power(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 to the power of x2. Where x2 is a tensor, or a number that is not a multiple of 0.5, x1 must be above 0."""
    if not isinstance(x2, Tensor) and _is_number(x2):
        return _power(_tensors(x1)[0], float(x2))
    if not isinstance(x1, Tensor) and _is_number(x1):
        if float(x1) <= 0:
            raise UsageError(f"ops.power: {x1!r} to the power of a tensor: expected a base above 0")
        return exp(multiply(x2, math.log(x1)))
    return exp(multiply(x2, log(_tensors(x1, x2)[0])))


def _power(x: Tensor, exponent: float) -> Tensor:
    """By products, whose derivatives are right at 0 and below; else exp(exponent log(x))."""
    if exponent < 0:
        return divide(1, _power(x, -exponent))
    whole = math.floor(exponent) if math.isfinite(exponent) else 0
    rest = exponent - whole
    if rest not in (0, 0.5):
        return exp(multiply(log(x), exponent))
    made = sqrt(x) if rest else None
    square_of = x
    while whole:
        if whole % 2:
            made = square_of if made is None else multiply(made, square_of)
        whole //= 2
        square_of = square(square_of) if whole else square_of
    return _scaled(x, 0, 1) if made is None else made


# ---- Functions of each element ----

def _function(name: str, x: Tensor) -> Tensor:
    _of_examples(x)
    return x.composition.tensor(x.composition.table.function(x.composition.pointer, name.encode(), x.pointer))


def activation(x: Tensor, name: str) -> Tensor:
    """An activation of Keras by its name; "linear" and None leave x as it is."""
    return _function(name, x) if name else x


def absolute(x: Tensor) -> Tensor:
    """|x|."""
    return _function("abs", x)


def abs(x: Tensor) -> Tensor:  # noqa: A001  (its name in Keras)
    """|x|."""
    return absolute(x)


def negative(x: Tensor) -> Tensor:
    """-x."""
    return _scaled(x, -1, 0)


def reciprocal(x: Tensor) -> Tensor:
    """1 / x."""
    return divide(1, x)


def square(x: Tensor) -> Tensor:
    """x x."""
    return _function("square", x)


def sqrt(x: Tensor) -> Tensor:
    """The square root; the derivative at 0 is 0."""
    return _function("sqrt", x)


def rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x)."""
    return divide(1, sqrt(x))


def exp(x: Tensor) -> Tensor:
    """e to the power of x."""
    return _function("exp", x)


def log(x: Tensor) -> Tensor:
    """The natural logarithm: NaN below 0, so clip probabilities first."""
    return _function("log", x)


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return _function("relu", x)


def relu6(x: Tensor) -> Tensor:
    """min(max(x, 0), 6)."""
    return _function("relu6", x)


def _sloped(kind: int, x: Tensor, alpha: float) -> Tensor:
    _of_examples(x)
    return x.composition.operation(declared.LS_OP_ACTIVATION, [x], activation=kind, activation_alpha=alpha)


def leaky_relu(x: Tensor, negative_slope: float = 0.2) -> Tensor:
    """x above 0, negative_slope x below."""
    if negative_slope > 0:
        return _sloped(declared.LS_LEAKY_RELU, x, negative_slope)
    return subtract(relu(x), multiply(relu(negative(x)), negative_slope))


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha (exp(x) - 1) below."""
    if alpha > 0:
        return _sloped(declared.LS_ELU, x, alpha)
    return add(relu(x), multiply(subtract(exp(minimum(x, 0)), 1), alpha))


def selu(x: Tensor) -> Tensor:
    """1.0507 times elu(x, 1.6733)."""
    return _function("selu", x)


def gelu(x: Tensor, approximate: bool = True) -> Tensor:
    """x times the share of the normal distribution that is below x, computed by tanh where it may be approximate."""
    _tensors(x)
    return x.composition.operation(declared.LS_OP_FUNCTION, [x], function=declared.LS_GELU_TANH if approximate else declared.LS_GELU)


def silu(x: Tensor) -> Tensor:
    """x sigmoid(x)."""
    return _function("silu", x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return _function("sigmoid", x)


def hard_sigmoid(x: Tensor) -> Tensor:
    """relu6(x + 3) / 6."""
    return _function("hard_sigmoid", x)


def hard_silu(x: Tensor) -> Tensor:
    """x hard_sigmoid(x)."""
    return _function("hard_silu", x)


def log_sigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)), exact also far below 0."""
    return _function("log_sigmoid", x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return _function("softplus", x)


def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return _function("softsign", x)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _function("tanh", x)


def softmax(x: Tensor, axis: Axes = -1) -> Tensor:
    """exp(x) divided by its sum over these dimensions."""
    if _axes(_of_examples(x), axis) == [x.ndim - 1]:
        return _function("softmax", x)
    made = exp(subtract(x, max(x, axis, True)))
    return divide(made, sum(made, axis, True))


def log_softmax(x: Tensor, axis: Axes = -1) -> Tensor:
    """log(softmax(x)), exact also far below 0."""
    return subtract(x, logsumexp(x, axis, True))


# ---- Sums, means, maxima ----

def _reduce(function: int, x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    axes = _axes(_of_examples(x), axis)
    made = x.composition.operation(declared.LS_OP_REDUCE, [x], function=function, axes=[int(index in axes) for index in range(x.ndim)]) if axes else x
    return made if keepdims or not axes else reshape(made, tuple(size for index, size in enumerate(made.shape) if index not in axes))


def sum(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:  # noqa: A001  (its name in Keras)
    """The sum over these dimensions; None: all of an example."""
    return _reduce(declared.LS_REDUCE_TO_SUM, x, axis, keepdims)


def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean over these dimensions; None: all of an example."""
    return _reduce(declared.LS_REDUCE_TO_MEAN, x, axis, keepdims)


def max(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """The largest element over these dimensions; None: all of an example."""
    return _reduce(declared.LS_REDUCE_TO_MAXIMUM, x, axis, keepdims)


def min(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """The smallest element over these dimensions; None: all of an example."""
    return negative(max(negative(x), axis, keepdims))


def var(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean of the squared distances from the mean, over these dimensions; None: all of an example."""
    return mean(square(subtract(x, mean(x, axis, True))), axis, keepdims)


def std(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """sqrt(var(x))."""
    return sqrt(var(x, axis, keepdims))


def logsumexp(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))), without overflow."""
    most = max(x, axis, True)
    made = add(log(sum(exp(subtract(x, most)), axis, True)), most)
    return made if keepdims else reshape(made, tuple(size for index, size in enumerate(made.shape) if index not in _axes(x, axis)))


# ---- Shapes ----

def reshape(x: Tensor, newshape: Sequence[Optional[int]]) -> Tensor:
    """The same elements in another shape, the first size of which is None or -1: examples. One more -1 is what is left."""
    _of_examples(x)
    shape: List[Optional[int]] = [None if size in (None, -1) else operator.index(size) for size in newshape]
    rest = [index for index, size in enumerate(shape) if size is None and index]
    if not shape or shape[0] is not None or len(rest) > 1:
        raise UsageError(f"ops.reshape: {tuple(newshape)}: expected None first, for the examples, then sizes, at most one of them -1")
    if rest:
        whole = math.prod(size or 1 for size in x.shape[1:])
        shape[rest[0]] = whole // math.prod(size or 1 for size in shape)
    return x.composition.operation(declared.LS_OP_RESHAPE, [x], tuple(shape))


def expand_dims(x: Tensor, axis: Union[int, Sequence[int]]) -> Tensor:
    """With a dimension of size 1 at each of these places of the result."""
    _of_examples(x)
    places = [axis] if hasattr(axis, "__index__") else list(axis)  # type: ignore
    ndims = x.ndim + len(places)
    if not all(-ndims <= one < ndims and one % ndims for one in places) or len({one % ndims for one in places}) < len(places):
        raise UsageError(f"ops.expand_dims: axis={axis} of {x}: expected 1 to {ndims - 1} behind the examples, or -1 for the last")
    sizes = iter(x.shape)
    return reshape(x, [1 if index in [one % ndims for one in places] else next(sizes) for index in range(ndims)])


def squeeze(x: Tensor, axis: Axes = None) -> Tensor:
    """Without these dimensions, whose size is 1; None: without all of size 1."""
    axes = [index for index in _axes(_of_examples(x), None) if x.shape[index] == 1] if axis is None else _axes(_of_examples(x), axis)
    if any(x.shape[index] != 1 for index in axes):
        raise UsageError(f"ops.squeeze: axis={axis} of {x}: expected dimensions of size 1")
    return reshape(x, [size for index, size in enumerate(x.shape) if index not in axes])


def transpose(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Dimension i of the result is dimension axes[i] of x; the first stays the first."""
    _of_examples(x)
    return x.composition.operation(declared.LS_OP_TRANSPOSE, [x], axes=[_axis(x, axis) for axis in axes])


def concatenate(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    """One after the other along a dimension that is not the first, so axis has to be given."""
    made = [_of_examples(x) for x in _tensors(*xs)]
    along = _axis(made[0], axis)
    if not along:
        raise UsageError("ops.concatenate: axis=0 has the examples, which are not mixed: give the axis, such as axis=-1")
    return made[0].composition.operation(declared.LS_OP_CONCATENATE, made, axes=[int(index == along) for index in range(made[0].ndim)])


def _slice(x: Tensor, parts: Tuple[Any, ...]) -> Tensor:
    """NumPy's slices without steps; a number takes its dimension away, and None is a new one of size 1."""
    _of_examples(x)
    written = ", ".join(map(str, parts))
    if not all(part is None or part is Ellipsis or isinstance(part, slice) or hasattr(part, "__index__") and not getattr(part, "ndim", 0) for part in parts):
        raise UsageError(f"ops: {x}[{written}]: expected numbers, slices, ... and None; rows of a table are taken by ops.take")
    here = builtins.sum(isinstance(part, slice) or hasattr(part, "__index__") for part in parts)  # dimensions of x
    at = next((index for index, part in enumerate(parts) if part is Ellipsis), len(parts))
    parts = (*parts[:at], *[slice(None)] * (x.ndim - here), *parts[at + 1:])
    if here > x.ndim or Ellipsis in parts or parts[:1] != (slice(None),) and x.shape[:1] == (None,):
        raise UsageError(f"ops: {x}[{written}]: all examples are taken, and then at most a part of each dimension")
    begins, sizes, kept = [], [], []
    of_x = iter(enumerate(x.shape))
    for part in parts:
        if part is None:
            kept.append(1)
            continue
        index, size = next(of_x)
        begin, end, step = (part if isinstance(part, slice) else slice(part, part + 1 or None)).indices(size or 1)
        if step != 1 or end <= begin:
            raise UsageError(f"ops: {x}: the part {part} of dimension {index} is empty or has steps")
        begins.append(begin)
        sizes.append(None if size is None else end - begin)
        if isinstance(part, slice):
            kept.append(sizes[-1])
    made = x if tuple(sizes) == x.shape else x.composition.operation(declared.LS_OP_SLICE, [x], tuple(sizes), axes=begins)
    return made if kept == sizes else reshape(made, kept)


# ---- What layers are made of ----

def dense(x: Tensor, kernel: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """x (None, ..., K) times a weight (K, N), plus a weight (N)."""
    return x.composition.operation(declared.LS_OP_DENSE, _tensors(x, kernel, *([] if bias is None else [bias])))


def matmul(x1: Tensor, x2: Tensor) -> Tensor:
    """A product for each index of the leading dimensions, which are the same; of a weight (K, N), one for all."""
    one, other = _tensors(x1, x2)
    if other.ndim == 2 and other.shape[0] is not None:
        return dense(one, other)
    return one.composition.operation(declared.LS_OP_MATMUL, [one, other])


def take(x: Tensor, indices: Tensor, axis: Optional[int] = None) -> Tensor:
    """Rows of a weight (V, N), for whole numbers (None, ...): an embedding. Only axis=0 is there, and has to be given."""
    if axis != 0 or _tensors(x)[0].ndim != 2:
        raise UsageError(f"ops.take: axis={axis} of {x}: expected axis=0 of a weight of two dimensions, whose rows are taken")
    return x.composition.operation(declared.LS_OP_GATHER_ROWS, _tensors(indices, x))


def one_hot(x: Tensor, num_classes: int) -> Tensor:
    """1 where the number is the class, else 0, in one more dimension."""
    _tensors(x)
    return x.composition.tensor(x.composition.table.one_hot(x.composition.pointer, x.pointer, num_classes))


def _both(value: Union[int, Sequence[int]]) -> List[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _borders(padding: str, sizes: Sequence[Optional[int]], window: Sequence[Optional[int]], strides: Sequence[int]) -> List[int]:
    """Rows above and below, columns at the left and the right."""
    if padding not in ("valid", "same"):
        raise UsageError(f"ops: padding={padding!r}: expected 'valid' or 'same'")
    made = []
    for size, width, step in zip(sizes, window, strides):
        more = (-(-(size or 0) // step) - 1) * step + (width or 0) - (size or 0) if padding == "same" else 0
        more = builtins.max(more, 0)
        made += [more // 2, more - more // 2]
    return made


def conv(inputs: Tensor, kernel: Tensor, strides: Union[int, Sequence[int]] = 1, padding: str = "valid") -> Tensor:
    """Images (None, rows, columns, channels) with a weight (rows, columns, channels, filters)."""
    steps = _both(strides)
    return _tensors(inputs)[0].composition.operation(declared.LS_OP_CONV2D, _tensors(inputs, kernel), strides=steps, dilation=[1, 1], groups=1,
                                                     padding=_borders(padding, inputs.shape[1:3], kernel.shape[:2], steps))


def _pool(op: int, x: Tensor, pool_size: Union[int, Sequence[int]], strides: Union[None, int, Sequence[int]], padding: str) -> Tensor:
    _tensors(x)
    window = _both(pool_size)
    steps = window if strides is None else _both(strides)
    return x.composition.operation(op, [x], kernel=window, strides=steps, dilation=[1, 1], groups=1,
                                   padding=_borders(padding, x.shape[1:3], window, steps))


def max_pool(inputs: Tensor, pool_size: Union[int, Sequence[int]], strides: Union[None, int, Sequence[int]] = None, padding: str = "valid") -> Tensor:
    """The largest element of each window of images."""
    return _pool(declared.LS_OP_MAX_POOL2D, inputs, pool_size, strides, padding)


def average_pool(inputs: Tensor, pool_size: Union[int, Sequence[int]], strides: Union[None, int, Sequence[int]] = None, padding: str = "valid") -> Tensor:
    """The mean of each window of images."""
    return _pool(declared.LS_OP_AVERAGE_POOL2D, inputs, pool_size, strides, padding)


def layer_normalization(x: Tensor, gamma: Optional[Tensor] = None, beta: Optional[Tensor] = None, axis: int = -1, epsilon: Optional[float] = None) -> Tensor:
    """Each vector of the last dimension, with mean 0 and variance 1, times gamma, plus beta; epsilon=None is 1e-7, while layers.LayerNormalization has
    1e-3."""
    if _axis(_tensors(x)[0], axis) != x.ndim - 1:
        raise UsageError(f"ops.layer_normalization: axis={axis} of {x}: expected -1, the last one; ops.mean and ops.var compose others")
    epsilon = 1e-7 if epsilon is None else epsilon
    given = [one for one in (gamma, beta) if one is not None]
    return x.composition.operation(declared.LS_OP_LAYER_NORMALIZATION, _tensors(x, *given), epsilon=epsilon, only_beta=int(gamma is None and beta is not None))


def dropout(inputs: Tensor, rate: float) -> Tensor:
    """While the model is trained, each element is 0 with this probability, and the others are scaled up; else x."""
    _tensors(inputs)
    return inputs.composition.operation(declared.LS_OP_DROPOUT, [inputs], rate=rate) if inputs.composition.training else inputs


# ---- What is more than a function ----

def loss(function: Optional[Callable[..., Tensor]] = None, *, targets: str = "numbers", name: Optional[str] = None) -> Any:
    """A decorator of a loss. A plain function of y_true and y_pred is a loss with numbers already.

    Args:
        function: Of y_true and y_pred, which returns a number or more for each example.
        targets: "numbers" in the shape of predictions, or "classes": whole numbers, one for each prediction.
        name: In reports; None: that of the function.

    Returns:
        The loss, for compile.

    Example:
        >>> @ops.loss(targets="classes")
        ... def entropy(y_true, y_pred):
        ...     right = ops.sum(ops.one_hot(y_true, y_pred.shape[-1]) * ops.softmax(y_pred), axis=-1)
        ...     return -ops.log(right)
        >>> model.compile("adam", loss=entropy)
        >>> list(model.fit(x, y, verbose=0).history)
        ['loss']
    """
    from ._own_parts import Composed

    def make(given: Callable[..., Tensor]) -> "Composed":
        return Composed(given, targets, name)

    return make if function is None else make(function)


def metric(function: Optional[Callable[..., Any]] = None, *, targets: str = "numbers", sums: int = 1, upwards: bool = False,
           result: Optional[Callable[[Sequence[float], float], float]] = None, name: Optional[str] = None) -> Any:
    """A decorator of a metric that is more than a mean. A plain function of y_true and y_pred is a metric with numbers already.

    Args:
        function: Of y_true and y_pred, which returns `sums` tensors.
        targets: As in `loss`; those of the loss.
        sums: How many, up to 8, are added up over all examples of all replicas.
        upwards: Whether more is better.
        result: A function of these sums and the number of examples; None: their mean.
        name: In reports; None: that of the function.

    Returns:
        The metric, for compile.
    """
    from ._own_parts import Composed

    def make(given: Callable[..., Any]) -> "Composed":
        return Composed(given, targets, name, sums, upwards, result)

    return make if function is None else make(function)


# What programs for Keras call, and what they write here.
INSTEAD = {
    "argmax": "whole numbers have no gradient: compose ops.max", "cast": "tensors are float32; ops.one_hot makes numbers of classes",
    "convert_to_tensor": "numbers and arrays are taken as they are", "equal": "compose ops.one_hot, ops.maximum or ops.minimum",
    "greater": "compose ops.maximum, ops.minimum or ops.clip", "less": "compose ops.maximum, ops.minimum or ops.clip",
    "log1p": "write ops.log(1 + x)", "ones_like": "a number is broadcast: write 1", "shape": "write x.shape",
    "split": "write slices, such as x[:, :4]", "stack": "write ops.concatenate of x[..., None]",
    "tan": "ops.tanh is the hyperbolic tangent, another function",
    "where": "compose ops.maximum, ops.minimum, ops.clip or ops.one_hot", "zeros_like": "a number is broadcast: write 0",
}


def _find(name: str) -> Any:
    if name != "Layer":
        near = difflib.get_close_matches(name.lower(), __dir__(), 1, 0.85)
        hint = INSTEAD.get(name) or (f"did you mean {near[0]}?" if near else "")
        raise AttributeError(f"lockstep.ops has no {name}" + (f"; {hint}" if hint else ""))
    from ._own_parts import Layer

    return Layer


def __dir__() -> List[str]:
    """What a program composes with: the functions, and the classes of tensors and layers."""
    return sorted({"Layer", "Tensor", *(name for name, value in globals().items() if name[0] != "_" and inspect.isfunction(value))})


if not TYPE_CHECKING:  # which would take any name
    __getattr__ = _find
