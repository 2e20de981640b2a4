# SPDX-License-Identifier: Apache-2.0
"""Data for the library: a dataset by its text, NumPy arrays where they are, or what a generator makes."""
import ctypes
import itertools
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import _declarations as declared
from ._errors import InputError, UsageError
from ._native import check, encode, library, type_of

if TYPE_CHECKING:
    import numpy

TAKEN = ("bool", "uint8", "int32", "int64", "float32", "float64")
WIDER = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
# As the library makes examples of a generator.
MADE = {"bool": "uint8", "uint8": "uint8", "int32": "int32", "int64": "int32", "float32": "float32", "float64": "float32"}

_numbers = itertools.count(1)
_lent: Dict[int, List[Any]] = {}  # arrays that the library reads, until it gives them back


# No function of Python's own, in which the handler of a signal would run: what it raises there is printed and lost.
_release = declared.FUNCTIONS["ls_data_borrow"][1][1](_lent.pop)


class Data:
    """A struct ls_data. `kept` must last as long as the model that trains on it."""

    def __init__(self, pointer: ctypes.c_void_p, kept: Any = None) -> None:
        self.pointer = pointer
        self.kept = kept

    def __len__(self) -> int:
        return int(library().ls_data_count(self.pointer))

    def close(self) -> None:
        library().ls_data_close(self.pointer)
        self.pointer = ctypes.c_void_p()


# ---- Arrays ----

def as_array(value: Any, what: str) -> "numpy.ndarray":
    """C-contiguous, of a type that the library takes: the same array where it is so already."""
    import numpy

    if value is None or isinstance(value, dict):
        got = "None" if value is None else f"a dictionary of {', '.join(map(str, value))}: give a list of arrays, in the order of the model's inputs"
        raise InputError(f"{what}: expected an array, got {got}")
    array = numpy.asarray(value)
    name = WIDER.get(array.dtype.name, array.dtype.name)
    if name not in TAKEN:
        hint = "; number the texts first, as numpy.unique(values, return_inverse=True)[1] does" if array.dtype.kind in "OUST" else ""
        raise InputError(f"{what}: dtype {array.dtype}; expected {', '.join(TAKEN)}{hint}")
    if array.dtype.name == "uint64" and array.size and int(array.max()) >= 1 << 63:
        raise InputError(f"{what}: {int(array.max())} of uint64 is more than int64 holds")
    return numpy.asarray(array, dtype=name, order="C")


Classes = Optional[Sequence[int]]  # the shape of an example's predictions, where the loss compares them with classes


def is_of_classes(target: "numpy.ndarray", output: Sequence[int]) -> bool:
    """Whether a target has one number for each prediction."""
    return tuple(target.shape[1:]) in (tuple(output[:-1]), (*output[:-1], 1))


class Targets(List[Any]):
    """The targets of a model with several outputs: one for each that has a loss, in their order. `classes` of each beside it."""

    def __init__(self, values: Iterable[Any], classes: Sequence[Classes]) -> None:
        super().__init__(values)
        self.classes = classes


def as_targets(y: Any, classes: Classes) -> List["numpy.ndarray"]:
    """An array for each target; none where there is no y."""
    if isinstance(y, Targets):
        return [as_target(value, of, f"target {number}") for number, (value, of) in enumerate(zip(y, y.classes), 1)]
    return [] if y is None else [as_target(y, classes)]


def as_target(value: Any, classes: Classes, what: str = "the target") -> "numpy.ndarray":
    """Classes may be whole numbers of a float type, as in Keras."""
    import numpy

    target = as_array(value, what)
    if classes is None or target.dtype.kind != "f" or not target.ndim or not is_of_classes(target, classes):
        return target
    wrong = target[~((target >= 0) & (target < 1 << 31) & (target == numpy.floor(target)))]
    if wrong.size:
        raise InputError(f"{what}: {wrong[0]} is no class: labels of the model's loss are whole numbers from 0; other numbers are for "
                         "losses such as mean_squared_error")
    return target.astype("int32")


def describe(array: "numpy.ndarray", what: str, first: int = 0) -> declared.ls_array:
    """The struct of an array, from dimension `first` on."""
    dims = array.shape[first:]
    if len(dims) > declared.LS_ARRAY_DIMS:
        raise InputError(f"{what}: {array.ndim} dimensions; expected at most {declared.LS_ARRAY_DIMS}")
    return declared.ls_array(dtype=array.dtype.name.encode(), ndims=len(dims), dims=(ctypes.c_int64 * declared.LS_ARRAY_DIMS)(*dims),
                             values=array.ctypes.data)


def as_inputs(x: Any) -> List["numpy.ndarray"]:
    """One array, or a list or tuple of one for each input of the model."""
    several = isinstance(x, (list, tuple)) and len(x) > 0 and all(hasattr(part, "shape") for part in x)
    return [as_array(part, f"input {index}") for index, part in enumerate(x if several else [x])]


class Arrays:
    """A struct ls_batch_arrays with what it points to."""

    def __init__(self, x: Any, y: Any = None, weights: Any = None, classes: Classes = None) -> None:
        self.inputs = as_inputs(x)
        self.targets = as_targets(y, classes)
        self.weights = None if weights is None else as_array(weights, "the weights")
        described = [describe(array, f"input {index}") for index, array in enumerate(self.inputs)]
        self.struct = declared.ls_batch_arrays(inputs=(declared.ls_array * len(described))(*described), input_count=len(described))
        if self.targets:
            of_targets = [describe(array, "the target") for array in self.targets]
            self.struct.target, self.struct.target_count = (declared.ls_array * len(of_targets))(*of_targets), len(of_targets)
        if self.weights is not None:
            self.struct.weights = ctypes.pointer(describe(self.weights, "the weights"))


def from_arrays(x: Any, y: Any = None, weights: Any = None, classes: Classes = None) -> Data:
    """Borrows the arrays: Python keeps them as long as the library reads them."""
    arrays = Arrays(x, y, weights, classes)
    number, pointer = next(_numbers), ctypes.c_void_p()
    _lent[number] = [arrays.inputs, arrays.weights]
    status = library().ls_data_borrow(ctypes.byref(arrays.struct), _release, number, ctypes.byref(pointer))
    if status:
        del _lent[number]
    check(status)
    return Data(pointer)


def split_arrays(x: Any, y: Any, weights: Any, part: float) -> Tuple[Tuple[Any, Any, Any], Tuple[Any, Any, Any]]:
    """The examples to train on, and the last part of them to validate on, as Keras does it."""
    if not 0 < part < 1:
        raise UsageError(f"validation_split={part}: expected a number between 0 and 1")
    inputs = as_inputs(x)
    targets = [as_array(one, "the target") for one in (y if isinstance(y, Targets) else [y] if y is not None else [])]
    of_examples = None if weights is None else as_array(weights, "the weights")
    at = int(len(inputs[0]) * (1 - part))
    if at in (0, len(inputs[0])):
        raise UsageError(f"validation_split={part} of {len(inputs[0])} examples leaves none to {'validate' if at else 'train'} on")

    def cut(place: slice) -> Tuple[Any, Any, Any]:
        made = [target[place] for target in targets]
        part_of_y = Targets(made, y.classes) if isinstance(y, Targets) else made[0] if made else None
        return [array[place] for array in inputs], part_of_y, None if of_examples is None else of_examples[place]

    return cut(slice(0, at)), cut(slice(at, None))


# ---- Texts ----

def from_text(run: ctypes.c_void_p, text: str, split: str) -> Optional[Data]:
    """A split of a dataset; None where there is no validation split."""
    pointer = ctypes.c_void_p()
    check(library().ls_run_data_open(run, encode(text), encode(split), ctypes.byref(pointer)))
    return Data(pointer) if pointer else None


def validation_of(run: ctypes.c_void_p, text: str) -> Optional[Data]:
    """What `lockstep train --validation-dataset=` validates on."""
    return from_text(run, text, "validation") or from_text(run, text, "test")


# ---- Generators ----

def begin_of(source: Any) -> Optional[Callable[[], Iterable[Any]]]:
    """The function that begins the batches anew; None of an iterator, which only goes on."""
    if callable(source):
        return source
    if hasattr(source, "as_numpy_iterator"):  # tf.data.Dataset
        return source.as_numpy_iterator
    if hasattr(source, "__getitem__") and hasattr(source, "on_epoch_end"):  # keras.utils.PyDataset
        return PyDataset(source)
    return None


def is_generator(x: Any) -> bool:
    """A function that returns an iterator, an iterator of batches, or a dataset of TensorFlow or Keras."""
    return hasattr(x, "__next__") or begin_of(x) is not None


class PyDataset:
    """The batches of a keras.utils.PyDataset, from their first one at each call."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.begun = False

    def __call__(self) -> Iterator[Any]:
        if self.begun:
            self.dataset.on_epoch_end()
        self.begun = True
        if hasattr(self.dataset, "on_epoch_begin"):
            self.dataset.on_epoch_begin()
        count = self.count()
        return (self.dataset[index] for index in (itertools.count() if count is None else range(count)))

    def count(self) -> Optional[int]:
        """None: it has no end."""
        return self.dataset.num_batches if hasattr(self.dataset, "num_batches") else len(self.dataset)


def _refuse_endless(source: Any, begin: Any) -> None:
    repeats = hasattr(source, "cardinality") and int(source.cardinality()) == -1  # tf.data.INFINITE_CARDINALITY
    if repeats or isinstance(begin, PyDataset) and begin.count() is None:
        raise UsageError(f"a {type(source).__name__} without an end: steps_per_epoch= or validation_steps= says how much of it is an epoch, and "
                         "predict and evaluate need one that ends")


Order = Callable[[Dict[str, Any]], Any]  # makes a list, in the order of the model's inputs


def _in_any_order(x: Dict[str, Any]) -> Any:
    return list(x.values())


class Batch:
    """Batch `number` of a generator, which is x, (x,) or (x, y)."""

    def __init__(self, made: Any, number: int, classes: Classes = None, in_order: Order = _in_any_order) -> None:
        x, y = made, None
        if isinstance(made, tuple):
            if len(made) not in (1, 2):
                raise UsageError(f"the generator made a tuple of {len(made)}; expected (x, y): weights of examples are for arrays")
            x, y = (*made, None)[:2]
        self.number = number
        self.inputs = as_inputs(in_order(x) if isinstance(x, dict) else x)
        self.target = None if y is None else as_target(y, classes)
        if any(array.ndim == 0 for array in self.arrays):
            raise InputError(f"batch {number} of the generator has a single number in it; expected arrays of examples, which .batch(32) makes of a tf.data.Dataset")
        sizes = {len(array) for array in self.arrays}
        if len(sizes) != 1 or 0 in sizes:
            raise InputError(f"batch {number} of the generator has arrays of {sorted(sizes)} examples; expected as many in each, and at least one")

    @property
    def arrays(self) -> List["numpy.ndarray"]:
        return [*self.inputs, *([] if self.target is None else [self.target])]

    @property
    def form(self) -> "Form":
        return Form(len(self.inputs), self.target is not None, [array.shape[1:] for array in self.arrays])

    def need(self, first: "Form") -> None:
        """Every batch has the parts of the first one."""
        where, mine = f"batch {self.number} of the generator has", self.form
        if mine.inputs != first.inputs:
            raise InputError(f"{where} {mine.inputs} inputs; the first batch has {first.inputs}")
        if mine.target != first.target:
            raise InputError(f"{where} {'targets' if mine.target else 'no targets'}; the first batch has {'some' if first.target else 'none'}")
        for index, (found, expected) in enumerate(zip(mine.shapes, first.shapes)):
            if found != expected:
                raise InputError(f"{where} {first.part(index)} of shape {found} after {expected} in the first batch")


class Form(NamedTuple):
    """What the batches of a generator have."""

    inputs: int
    target: bool
    shapes: List[Tuple[int, ...]]  # of an example, the target's last

    def part(self, index: int) -> str:
        return f"input {index}" if index < self.inputs else "the target"


def made_as(array: "numpy.ndarray") -> "numpy.ndarray":
    """In the type in which the library takes examples of a generator."""
    import numpy

    kind = MADE[array.dtype.name]
    if array.dtype.name == "int64" and array.size and (array.min() < -2**31 or array.max() >= 2**31):
        raise InputError("the generator made an int64 that no int32 holds; if it is not an index or a class, make float32")
    return numpy.asarray(array, dtype=kind)


class Batches:
    """Cuts the batches of a generator into the examples that the library asks for, in their order."""

    def __init__(self, source: Any, classes: Classes = None, in_order: Order = _in_any_order) -> None:
        self.classes = classes
        self.in_order = in_order
        self.restart = begin_of(source)
        self.iterator: Iterator[Any] = iter(self.restart()) if self.restart else source
        self.number = 0  # of the batch under way, from where the iterator began
        self.form: Optional[Form] = None  # of the first
        self.dtypes: List[Any] = []
        self.rest: List["numpy.ndarray"] = []  # of the batch under way
        self.at = 0  # example of the epoch that comes next; of an iterator that is never begun anew
        self.epoch: Optional[int] = None  # under way
        try:
            self.first = self.take()
        except StopIteration:
            raise InputError("the generator made no batch") from None

    def take(self) -> List["numpy.ndarray"]:
        """The next batch as arrays: inputs, and the target if there is one."""
        made = next(self.iterator)
        self.number += 1
        batch = Batch(made, self.number, self.classes, self.in_order)
        rest = [made_as(array) for array in batch.arrays]
        if self.form is None:
            self.form, self.dtypes = batch.form, [array.dtype for array in rest]
        batch.need(self.form)
        for index, array in enumerate(rest):
            if array.dtype != self.dtypes[index]:
                raise InputError(f"batch {self.number} of the generator has {self.form.part(index)} of {array.dtype} after {self.dtypes[index]} "
                                 "in the first batch")
        self.rest = rest
        return rest

    def seek(self, epoch: int, first: int) -> None:
        """A function is called anew in each epoch; an iterator goes on, and cannot go back."""
        here = (self.epoch, self.at) == (epoch, first)
        begins = first == 0 and (self.epoch is None or not self.restart and epoch == self.epoch + 1)
        if here or begins:
            self.epoch, self.at = epoch, first
            return
        if not self.restart:
            raise InputError(f"example {first} of epoch {epoch} is needed again, and an iterator cannot go back: give a function that returns one")
        self.iterator = iter(self.restart())
        self.number, self.rest, self.epoch, self.at = 0, [], epoch, 0
        while self.at < first:
            self.fill_one(first - self.at, None, 0)

    def fill_one(self, most: int, views: Optional[Sequence["numpy.ndarray"]], done: int) -> int:
        """Takes at most so many examples of the batch under way, or of the next one."""
        if not self.rest or not len(self.rest[0]):
            try:
                self.take()
            except StopIteration:
                raise InputError(f"the generator ended after {self.at} examples of an epoch; steps_per_epoch= asks for more") from None
        count = min(most, len(self.rest[0]))
        for index, part in enumerate(self.rest):
            if views is not None:
                views[index][done:done + count] = part[:count]
            self.rest[index] = part[count:]
        self.at += count
        return count

    def fill(self, epoch: int, first: int, views: Sequence["numpy.ndarray"]) -> None:
        self.seek(epoch, first)
        done = 0
        while done < len(views[0]):
            done += self.fill_one(len(views[0]) - done, views, done)


def classes_of(target: "numpy.ndarray", output: Sequence[int]) -> int:
    """How many classes a target of integers has, one of them for each prediction; 0: it has numbers."""
    return 0 if target.dtype.name == "float32" or not is_of_classes(target, output) else max(2, output[-1])


def from_generator(source: Any, examples: int, output: Sequence[int], classes: Classes, fail: Callable[[BaseException], int],
                   in_order: Order) -> Data:
    """`examples` of an epoch from a generator, in their order; `fail` keeps an exception."""
    import numpy

    batches = Batches(source, classes, in_order)
    first, form = batches.first, batches.form
    assert form is not None
    inputs = form.inputs
    described = [describe(array, "the generator", 1) for array in first]
    for struct in described:
        struct.values = None
    generator = declared.ls_generator(inputs=(declared.ls_array * inputs)(*described[:inputs]), input_count=inputs, examples=examples)
    if form.target:
        generator.target = ctypes.pointer(described[-1])
        generator.classes = classes_of(first[-1], output)
    shapes = list(zip(batches.dtypes, form.shapes))
    batches.first = []

    def view(address: int, count: int, dtype: Any, shape: Tuple[int, ...]) -> "numpy.ndarray":
        size = dtype.itemsize * count
        for dim in shape:
            size *= dim
        return numpy.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype).reshape(count, *shape)

    def fill(_context: Any, epoch: int, start: int, count: int, places: Any, target: Any, _filled: Any) -> int:
        try:
            addresses = [places[index] for index in range(inputs)] + ([target] if form.target else [])
            batches.fill(epoch, start, [view(address, count, *shape) for address, shape in zip(addresses, shapes)])
            return declared.LS_OK
        except BaseException as error:  # noqa: B902  (nothing may pass through C)
            return fail(error)

    generator.fill = type_of(declared.ls_generator, "fill")(fill)
    pointer = ctypes.c_void_p()
    check(library().ls_data_from_generator_sized(ctypes.byref(generator), ctypes.sizeof(generator), ctypes.byref(pointer)))
    return Data(pointer, generator)


def batch_of(source: Any) -> Optional[int]:
    """The examples of a batch of a dataset of TensorFlow or Keras, which a step of Keras has; None of anything else."""
    if hasattr(source, "as_numpy_iterator"):
        first = next(iter(source.as_numpy_iterator()), None)
    elif hasattr(source, "__getitem__") and hasattr(source, "on_epoch_end"):
        first = source[0]
    else:
        return None
    return None if first is None else len(Batch(first, 1).arrays[0])


def first_of(source: Any) -> Optional[List["numpy.ndarray"]]:
    """Arrays that have the shapes of the inputs; None of a text, and of an iterator, which would lose a batch."""
    if isinstance(source, str):
        return None
    if not is_generator(source):
        return as_inputs(source)
    begin = begin_of(source)
    return Batch(next(iter(begin())), 1).inputs if begin else None


def all_of(source: Any, in_order: Order = _in_any_order) -> Tuple[List["numpy.ndarray"], Optional["numpy.ndarray"]]:
    """Everything that a generator makes, as arrays."""
    import numpy

    begin = begin_of(source)
    _refuse_endless(source, begin)
    batches = [Batch(made, number, None, in_order) for number, made in enumerate(begin() if begin else source, 1)]
    if not batches:
        raise InputError("the generator made no batch")
    for batch in batches:
        batch.need(batches[0].form)
    whole = [numpy.concatenate(parts) for parts in zip(*(batch.arrays for batch in batches))]
    return (whole[:-1], whole[-1]) if batches[0].form.target else (whole, None)
