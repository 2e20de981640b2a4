# SPDX-License-Identifier: Apache-2.0
"""Models: Keras's methods over the calls of lockstep.h."""
import contextlib
import copy
import ctypes
import functools
import json
import math
import operator
import os
import re
import sys
import tempfile
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union, cast

from . import _data
from . import _declarations as declared
from ._data import Data
from ._errors import InputError, LockstepError, UsageError
from ._interrupt import Interruptible
from ._keras_callbacks import backup_of, callbacks_of, forget
from ._native import check, discard, encode, error_of, fill, flush, leave_unsaid, library, refuse_others, type_of, warn
from .callbacks import Bar, CallbackLike, Calls, History, Logs, logs_of
from .layers import Call, Layer, functional_config, is_of_keras, is_own, sequential_config, written

if TYPE_CHECKING:
    import numpy

    from .loops import Strategy

STUCK = 5  # the exit code of Lockstep where a plugin does not return
LOGICAL_SHARDS = 8  # of `reproducible=True`, as of --reproducible without a value
SPINS = "3000"
AT_EXIT = 60  # seconds that the end of the program waits for a daemon thread's step

# Fields of the structs of options that no keyword is for, because the package sets them itself.
OF_RUN = ("stuck", "python", "command_line")
OF_FIT = ("batch", "progress", "validation", "validation_epochs", "validation_epoch_count", "callback_count")

_leaving = False  # the program ends, and daemon threads may still be in a call
_models_of: "weakref.WeakKeyDictionary[Layer, weakref.WeakSet[Model]]" = weakref.WeakKeyDictionary()  # that have weights of the layer


# What programs ask a keras.Model for.
INSTEAD = {"optimizer": "model.learning_rate is its rate, which callbacks may set", "loss": "compile has it",
           "trainable_weights": "model.variables says which are trained, get_weights has their values",
           "trainable_variables": "model.variables says which are trained, get_weights has their values",
           "weights": "model.variables names them, get_weights has their values", "metrics_names": "evaluate(return_dict=True) has the names",
           "to_json": "model.save('model.keras') writes the model", "get_config": "model.layers has the options of each layer",
           "add": "a Sequential has it, and other models the layers that they are made of",
           "call": "predict and predict_on_batch run the model",
           "fit_generator": "fit takes a generator"}

Verbose = Union[int, str, None]


class Variable(NamedTuple):
    """A weight of a model."""

    name: str
    shape: Tuple[int, ...]
    trainable: bool


class Output(NamedTuple):
    """An output of a model, as the library describes it."""

    name: str
    dims: Tuple[int, ...]
    has_loss: bool
    takes_classes: bool


def _end_stuck(_rank: int) -> None:
    """The library has said who hangs; nothing that it uses can be freed, and no wait for it has an end."""
    flush()
    os._exit(STUCK)


_stuck = type_of(declared.ls_run_options, "stuck")(_end_stuck)


def _close(handles: List[ctypes.c_void_p], distributed: List[Any], lock: Any, process: int) -> bool:
    """When the program ends, a daemon thread may be in a call: it is interrupted and waited for, and comes in no more. If it does not
    come out, nothing is freed under it. Whether the lock is kept, so that nobody comes in."""
    if process != os.getpid():  # a forked child has none of the threads that would be waited for
        return False
    global _leaving
    if not lock.acquire(blocking=False):
        _leaving = True
        library().ls_run_interrupt(handles[0])
        if not lock.acquire(timeout=AT_EXIT):
            return False
    run, model = handles
    handles.clear()
    for _, dataset in distributed:
        library().ls_distributed_close(dataset)
    distributed.clear()
    library().ls_model_close(model)
    library().ls_run_close(run)
    return True


def _shorten_openmp_waits() -> None:
    """As the command does: OpenMP's threads spin for milliseconds between kernels, too long where others want the cores."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


# ---- Optimizers, losses, metrics ----

Own = Optional[Callable[[Any], str]]  # the name of a function of the program's, where there may be one


def _given(value: Any, what: str, own: Own) -> Any:
    """A text as it is; an object of Keras as Keras writes it in JSON, which the library reads as it reads that of a file."""
    if isinstance(value, str) and re.fullmatch("[A-Z][A-Za-z0-9]+", value):  # the class, as Keras takes its name
        return {"class_name": value, "config": {}}
    if value is None or isinstance(value, (str, dict)):
        return value
    if hasattr(value, "get_config") or is_of_keras(value):
        return written(value)
    if own and callable(value) and not isinstance(value, type):
        return own(value)
    such = {"optimizer": "'adam:learning_rate=0.01'", "loss": "'huber:delta=2'", "metrics": "'auc:curve=PR'"}[what]
    function = ", or a function of y_true and y_pred that composes lockstep.ops" if own else ""
    raise UsageError(f"{what}: {value!r}; expected a text as in docs/models.md, such as {such}, or an object of Keras{function}")


def _nested(value: Any, what: str, own: Own) -> Any:
    """The same of lists, and of dictionaries by the names of outputs."""
    if isinstance(value, (list, tuple)):
        return [_nested(one, what, own) for one in value]
    if isinstance(value, dict) and "class_name" not in value:
        return {name: _nested(one, what, own) for name, one in value.items()}
    return _given(value, what, own)


def _compile_text(value: Any, what: str, own: Own = None, by_output: bool = False) -> Optional[str]:
    """`by_output`: a list is one of the outputs of a model, which has several."""
    made = _nested(value, what, own)
    if isinstance(made, list) and not by_output and not any(isinstance(one, (list, dict)) for one in made):
        made = ",".join(one or "none" for one in made) or "none"
    return made if made is None or isinstance(made, str) else json.dumps(made, default=written)


def _loss_weights_text(weights: Union[None, Sequence[float], Dict[str, float]]) -> Optional[str]:
    if weights is None or isinstance(weights, str):
        return weights
    try:
        if isinstance(weights, dict):
            return ",".join(f"{name}={float(weight)!r}" for name, weight in weights.items())
        return ",".join(repr(float(weight)) for weight in weights)  # of numpy, too, whose repr says its type
    except (TypeError, ValueError):
        raise UsageError(f"loss_weights={weights!r}: expected a list of numbers, or a dictionary of them by the names of outputs") from None


# ---- Models ----

Method = TypeVar("Method", bound=Callable[..., Any])


def _by_one_thread(method: Method) -> Method:
    """The data of a call is closed before another thread comes in, or the program's end closes the run."""
    @functools.wraps(method)
    def call(self: "Model", *arguments: Any, **options: Any) -> Any:
        with self._alone():
            return method(self, *arguments, **options)

    return cast(Method, call)


class Model:
    """A model, and the run that trains it. One thread uses a model at a time; several models may be used by several threads.

    Args:
        model: A built-in name ("cnn"), a file of Keras model JSON, a .keras or .h5 file, the JSON itself, or a keras.Model, whose weights are taken. Before
            outputs it is a layers.Input, or a list of them.
        outputs: What called layers returned, of a model that is written so.
        inputs: Another name for the first argument, before outputs.
        name: Of a model with outputs.
        strategy: A strategy or a collective by its name and options, as "ring" or "parameter-server:mode=sync"; None: "one-device", "mirrored" for more replicas.
        replicas: The number of replicas in this process; 0: as many as the strategy takes, which is one on the CPU.
        device: "cpu" or "cuda"; None: "cuda" where it can train the model.
        threads: The number of threads of each replica; 0: the processors are shared out.
        seed: Of the first weights, the order of examples and dropout.
        data: Arrays or the text of a dataset, which give the shape of the input to a model that does not say it; None: the first data that it gets, unless
            weights or shapes were asked for before.
        custom_objects: The classes of lockstep.ops.Layer that the model names, in a list or as Keras has them in a dictionary.
        **options: Further fields of struct ls_run_options in lockstep.h, such as `precision`, `wire`, `cluster`; `reproducible` is the number of logical shards, and True is 8.

    Raises:
        UsageError: There is no such model, or an option has a value that it cannot have.
        InputError: The model is malformed, or has a layer that Lockstep does not have.
        UnavailableError: There is no such strategy or device here.

    Example:
        >>> model = lockstep.Model("mlp", strategy="ring", replicas=2, device="cpu", threads=1)
        >>> model.replicas, model.output_shape
        (2, (None, 10))
    """

    _grows = False  # a Sequential to which layers are added
    _parts = cast(Sequence[Layer], ())  # of lockstep.layers, that it is made of

    def __init__(self, model: Any = None, outputs: Any = None, *, inputs: Any = None, name: Optional[str] = None, strategy: Optional[str] = None, replicas: int = 0, device: Optional[str] = None, threads: int = 0,
                 seed: int = 0, data: Any = None, custom_objects: Any = (), **options: Any) -> None:
        _shorten_openmp_waits()
        if outputs is None and (inputs is not None or name is not None):
            raise UsageError("Model: inputs= and name= are for a model that is written by its outputs=, too")
        if model is not None and inputs is not None:
            raise UsageError("Model: the inputs are given twice")
        if outputs is not None:
            model, parts = functional_config(inputs if model is None else model, outputs, name or "functional")
            self._parts = parts
            own = dict.fromkeys(type(layer) for layer in parts if is_own(layer))
            custom_objects = [*own, *(custom_objects.values() if isinstance(custom_objects, dict) else custom_objects)]
        self._lock = threading.RLock()
        self._compiled = False
        self._calling = False  # a fit, an evaluation or a prediction is under way
        self._late = False  # a signal of the last call may have come when that had ended, and would end the next one
        self._kept: List[Any] = []  # what the library may still call: generators of the last fit, and of those that failed after it
        self._process = os.getpid()
        self._handles = [ctypes.c_void_p(), ctypes.c_void_p()]  # the run and the model; empty: closed
        self._local_replicas: Optional[int] = None  # of this process, when strategy.run has counted them
        self._distributed: List[Any] = []  # datasets of loops: (whose it is, struct ls_distributed)
        self._unbuilt = model if _has_no_shape(model) or self._grows else None  # until data shows the shape of its input, or all layers are added
        if is_keras(self._unbuilt):
            _json_of(self._unbuilt)  # refuses what no data can build
        self._to_compile: Dict[str, Any] = {}  # then
        is_named = isinstance(model, str) and data is None and re.fullmatch("[a-z][a-z0-9-]*", model) and not os.path.exists(model)
        self._named = model if is_named else None  # a built-in model of which nobody has asked for weights or shapes: data may still show the shape
        self._rate: Optional[float] = None  # that the program has set meanwhile
        self._json: Dict[str, Any] = {}  # as Keras has it; empty: nobody has asked
        self._losses: Any = None  # as the program or the file named them
        refuse_others(self.__init__, declared.ls_run_options, OF_RUN, options)
        if options.get("reproducible") is True:
            options["reproducible"] = LOGICAL_SHARDS
        if hasattr(strategy, "scope"):  # of tf.distribute: the message says what it is called here
            strategy = type(strategy).__name__
        given = fill(declared.ls_run_options, strategy=strategy, replicas=replicas, device=device, threads=threads, seed=seed,
                     **options)
        given.stuck, given.python = _stuck, 1
        words = [os.fsencode(str(word)) for word in getattr(sys, "argv", [])]
        given.command_line = ctypes.cast((ctypes.c_char_p * (len(words) + 1))(*words), type(given.command_line))
        check(library().ls_run_open_sized(ctypes.byref(given), ctypes.sizeof(given), ctypes.byref(self._run)))
        self._finalizer = weakref.finalize(self, _close, self._handles, self._distributed, self._lock, self._process)
        if library().ls_run_is_server(self._run):
            check(library().ls_run_serve(self._run))
            sys.exit(0)
        with self._alone():  # the program may end meanwhile
            self._registered: Any = None  # losses, metrics and layers of the program's
            for kind in custom_objects.values() if isinstance(custom_objects, dict) else custom_objects:
                self._own_layer(kind)
            if self._unbuilt is None:
                self._open(model, data)
            elif data is not None:
                self._build(data)

    def _own(self) -> Any:
        from ._own_parts import Registered

        self._registered = self._registered or Registered(self._run)
        return self._registered

    def _own_layer(self, kind: Any) -> None:
        from ._own_parts import LAYER, Layer as Own

        if not isinstance(kind, type) or not issubclass(kind, Own):
            raise UsageError(f"custom_objects: {kind!r}; expected classes of lockstep.ops.Layer (losses and metrics are given to compile)")
        self._own().name_of(LAYER, kind)

    def _own_function(self, of_loss: bool) -> Callable[[Any], str]:
        def name_of(function: Any) -> str:
            from ._own_parts import LOSS, METRIC, composed_of

            return str(self._own().name_of(LOSS if of_loss else METRIC, composed_of(function)))

        return name_of

    def _build(self, x: Any) -> None:
        """A model that does not know the shape of its input is built from the first data that it gets, as in Keras."""
        model = self._unbuilt
        if model is None or self._build_added():
            return
        inputs = _data.first_of(x)
        if inputs is None and not isinstance(x, str):
            raise UsageError("the model does not know the shape of its input, and an iterator would lose a batch: give data= an array")
        if is_keras(model):
            build_keras(model, inputs)
        self._open_unbuilt(None if is_keras(model) else x if inputs is None else inputs)

    def _built_inputs(self, x: Any, y: Any = None) -> Any:
        """`x` for a model that is built by it; arrays by the names of the inputs, as Keras takes them, as a list."""
        self._build(x)
        made = self._in_order(x) if isinstance(x, dict) else x
        self._open_named(made, y)
        return made

    def _in_order(self, x: Dict[str, Any]) -> Any:
        named = self._named
        config = self._described()["config"]
        self._named = named  # names are no shapes
        ends = config.get("input_layers") if isinstance(config, dict) else None
        if isinstance(ends, dict):
            names = sorted(ends)  # as Keras goes through it
        elif ends:
            names = [end[0] for end in ([ends] if isinstance(ends[0], str) else ends)]
        else:  # of a Sequential
            first = (config if isinstance(config, list) else config["layers"])[0]
            names = [first["config"]["name"]] if first["class_name"] == "InputLayer" and "name" in first["config"] else []
        if not names:
            return x
        if set(names) != set(x):
            raise UsageError(f"the data has {', '.join(map(str, x))}; expected arrays for the inputs {', '.join(names)}")
        return [x[name] for name in names]

    def _open_named(self, x: Any, y: Any) -> None:
        """A built-in model takes the shape of the first data that it gets, as if that had been its data=."""
        if self._named is None:
            return
        data, handle = x if isinstance(x, str) else _data.first_of(x), self._handle(1)
        if data is None:
            return
        before, handle.value = handle.value, None
        try:
            self._open(self._named, data, y if len(data) == 1 else None)
        except BaseException:
            handle.value = before
            raise
        self._named, self._json = None, {}
        library().ls_model_close(before)
        if self._compiled:
            rate, self._compiled = self._rate, False
            self._need_compiled()
            if rate is not None:
                self.learning_rate = rate

    def _build_added(self) -> bool:
        """Builds a model to which layers were added, the first of which says the shape of the input."""
        if not self._grows or self._unbuilt is None or _has_no_shape(self._unbuilt):
            return False
        with self._alone():
            self._open_unbuilt(None)
        return True

    def _open_unbuilt(self, data: Any) -> None:
        self._open(self._unbuilt, data)
        self._unbuilt = None
        if self._compiled:
            self._compiled = False  # a fit after one in which this fails fails, too
            self._need_compiled()

    def _open(self, model: Any, data: Any, targets: Any = None) -> None:
        """`data` gives the shape of the input to models that do not say it."""
        shape = self._data_of(data, targets, None, "train") if data is not None else None
        try:
            source, is_json = source_of(model)
            rest = (shape and shape.pointer, ctypes.byref(self._handle(1)))
            if is_json:
                check(library().ls_model_open_json(self._run, None, encode(source), *rest))
            else:
                check(library().ls_model_open(self._run, encode(source), *rest))
        except InputError as error:
            if ": this layer is unknown; " in error.message:
                error.add("; in Python it is a class of lockstep.ops.Layer, which custom_objects= has")
            raise
        finally:
            if shape:
                shape.close()
        if is_keras(model):
            with _weights_between() as path:
                model.save_weights(path)
                self.load_weights(path)
        if self._parts:
            self._tell_of_shared(model["config"]["layers"])

    def _tell_of_shared(self, made: List[Dict[str, Any]]) -> None:
        """In Keras, models of the same layers have the same weights. `made` are the layers as JSON."""
        names = [variable.name for variable in self.variables]
        parts = [layer for layer, one in zip(self._parts[::-1], made[::-1])  # an Input may be before them
                 if any(name.startswith(one["config"]["name"] + "/") for name in names)]
        if any(other is not self and other._handles for layer in parts for other in _models_of.get(layer, ())):
            warn("model", "layers are in another model, too: each model has weights of its own; model.set_weights(other.get_weights()) copies them, or "
                          "set_weights of one of model.layers")
        for layer in parts:
            _models_of.setdefault(layer, weakref.WeakSet()).add(self)

    def close(self) -> None:
        """Frees everything, as the garbage collector does for a model that is no longer referenced."""
        with self._alone():
            if self._calling:
                raise UsageError("a callback of the model cannot close it")
            if self._finalizer():
                self._lock.release()  # other threads are told that it is closed
            self._kept = []

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError("a model cannot be copied or pickled: make another one, and give it the weights by set_weights or save and load")

    def _handle(self, index: int) -> ctypes.c_void_p:
        if not self._handles:
            raise UsageError("the model is closed")
        if self._process != os.getpid():
            raise UsageError("a forked process cannot use a model of its parent: make one after the fork")
        return self._handles[index]

    @property
    def _run(self) -> ctypes.c_void_p:
        return self._handle(0)

    @property
    def _model(self) -> ctypes.c_void_p:
        model, self._named = self._handle(1), None
        if self._unbuilt is not None and not model and not self._build_added():
            raise UsageError("the model does not know the shape of its input yet: give data= an array, or call fit, evaluate or predict first")
        return model

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuses a second thread, for which the library has no lock."""
        if not self._lock.acquire(blocking=False):
            if _leaving or not self._handles:
                sys.exit()  # of this thread
            raise UsageError("another thread uses this model; functions of a batch run on such a thread, too")
        try:
            yield
        finally:
            self._lock.release()

    # ---- What it is ----

    @property
    def replicas(self) -> int:
        """How many there are, in all workers."""
        return int(library().ls_run_replicas(self._run))

    @property
    def is_chief(self) -> bool:
        """Whether this process has rank 0, and saves what all of them have."""
        return bool(library().ls_run_is_chief(self._run))

    @property
    def strategy(self) -> "Strategy":
        """For training loops of the program's own: what shares out data, runs functions on each replica, and reduces what they return."""
        from .loops import Strategy

        return Strategy(self)

    def _forget_distributed(self) -> None:
        """Closes the datasets of loops that nobody has any more."""
        for entry in [entry for entry in self._distributed if entry[0]() is None]:
            self._distributed.remove(entry)
            library().ls_distributed_close(entry[1])

    @property
    def output_shape(self) -> Any:
        """As in Keras: None for the examples, then the sizes of a prediction; of several outputs a list of these, or a dictionary."""
        outputs = self._outputs()
        return self._arranged([(None, *output.dims) for output in outputs]) if len(outputs) > 1 else (None, *self._output_dims())

    def _output_dims(self) -> Tuple[int, ...]:
        dims = (ctypes.c_int64 * declared.LS_ARRAY_DIMS)()
        return tuple(dims[:library().ls_model_output_shape(self._model, dims)])

    @_by_one_thread
    def summary(self, print_fn: Optional[Callable[[str], Any]] = None) -> None:
        """Prints a table like Keras's.

        Args:
            print_fn: What is called with the text; None: print.
        """
        (print_fn or print)(_written(lambda stream: library().ls_model_summary(self._model, stream)).rstrip("\n"))

    @property
    def name(self) -> str:
        """That of the model's JSON."""
        described = self._described()
        return str(described["config"]["name"]) if "name" in described["config"] else described["class_name"].lower()

    @property
    def layers(self) -> List[Layer]:
        """The layers in their order, each with `name`, `class_name`, `config`, `get_weights` and `set_weights`. As in Keras, those of a
        Sequential model do not include its input."""
        described = self._described()
        config = described["config"]
        made = []
        for layer in config if isinstance(config, list) else config["layers"]:  # a list: early versions of Keras 2
            if layer["class_name"] != "InputLayer" or described["class_name"] != "Sequential":
                made.append(Layer(layer["class_name"]))
                made[-1].config = {**({"name": layer["name"]} if "name" in layer else {}), **copy.deepcopy(layer["config"])}
                made[-1]._told_by = self
        return made

    def get_layer(self, name: Optional[str] = None, index: Optional[int] = None) -> Layer:
        """One of `layers`.

        Args:
            name: Its name.
            index: Or its place.

        Returns:
            The layer.

        Raises:
            UsageError: There is none, or neither or both are given.

        Example:
            >>> lockstep.Model("mlp", device="cpu").get_layer(index=-1).class_name
            'Dense'
        """
        found, names = self.layers, [layer.name for layer in self.layers]
        if (name is None) == (index is None):
            raise UsageError("get_layer: expected name= or index=, one of both")
        if name is not None and name not in names:
            raise UsageError(f"get_layer: there is no layer {name!r}; there are: {', '.join(names)}")
        if index is not None and not -len(found) <= index < len(found):
            raise UsageError(f"get_layer: there is no layer {index}; the model has {len(found)}, numbered from 0")
        return found[names.index(name) if name is not None else operator.index(cast(int, index))]

    def __getattr__(self, name: str) -> Any:
        hint = INSTEAD.get(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}" + (f": {hint}" if hint else ""))

    def __repr__(self) -> str:
        kind = type(self).__name__
        if not self._handles:
            return f"<{kind} closed>"
        return f"<{kind} name={self.name}, layers={len(self.layers)}, built=True>" if self._handles[1] else f"<{kind} built=False>"

    def _described(self) -> Dict[str, Any]:
        model = self._model  # says why there is none
        self._json = self._json or json.loads(_written(lambda stream: check(library().ls_model_write_json(model, stream))))
        return self._json

    # ---- Weights ----

    @property
    @_by_one_thread
    def variables(self) -> List[Variable]:
        """Names, shapes, and whether gradients change them, in the order of get_weights."""
        made, found = [], declared.ls_variable()
        for index in range(library().ls_variable_count(self._model)):
            check(library().ls_variable_describe(self._model, index, ctypes.byref(found)))
            made.append(Variable(found.name.decode(), tuple(found.dims[:found.ndims]), bool(found.trained)))
        return made

    def count_params(self) -> int:
        """How many numbers the variables have, as in Keras."""
        return sum(math.prod(variable.shape) for variable in self.variables)

    @_by_one_thread
    def get_weights(self) -> List["numpy.ndarray"]:
        """A copy of all variables, in the order of `variables`."""
        return [self._read(library().ls_get_variable, index, variable) for index, variable in enumerate(self.variables)]

    @_by_one_thread
    def get_gradients(self) -> List["numpy.ndarray"]:
        """In a callback of a fit: what the last step reduced."""
        return [self._read(library().ls_get_gradient, index, variable) for index, variable in enumerate(self.variables)]

    def _read(self, call: Any, index: int, variable: Variable) -> "numpy.ndarray":
        import numpy

        out = numpy.empty(variable.shape, dtype="float32")
        check(call(self._model, index, _floats(out)))
        return out

    @_by_one_thread
    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets all variables.

        Args:
            weights: An array for each, as get_weights returns them.

        Raises:
            UsageError: Their number or a shape is another one.

        Example:
            >>> model.set_weights([2 * weight for weight in model.get_weights()])
        """
        import numpy

        variables = self.variables
        if len(weights) != len(variables):
            raise UsageError(f"{len(weights)} weights; the model has {len(variables)}")
        arrays = [numpy.ascontiguousarray(array, dtype="float32") for array in weights]
        for array, variable in zip(arrays, variables):
            if array.shape != variable.shape and not (array.size == 1 and variable.shape == ()):
                raise UsageError(f"weights of shape {array.shape} for {variable.name}, which has {variable.shape}")
        for index, array in enumerate(arrays):
            check(library().ls_set_variable(self._model, index, _floats(array)))

    def load_weights(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Reads the variables from a file.

        Args:
            path: Of .safetensors, .weights.h5, .keras or .h5.

        Raises:
            InputError: The file is not there, is damaged, or is of another model.
        """
        with self._alone():
            check(library().ls_load_weights(self._model, encode(path)))

    def save_weights(self, path: Union[str, "os.PathLike[str]"], overwrite: bool = True) -> None:
        """Writes the variables to a file.

        Args:
            path: It ends with .safetensors, .weights.h5 or .keras.
            overwrite: False: a file that is there is kept, and UsageError is raised.
        """
        _refuse_existing(path, overwrite)
        with self._alone():
            check(library().ls_save_weights(self._model, encode(path)))

    def save(self, path: Union[str, "os.PathLike[str]"], overwrite: bool = True) -> None:
        """Writes the model to a file.

        Under strategy sharded all workers call model.save at the same place; with stage=3 also save_weights and what reads or sets variables.

        Args:
            path: FILE.keras is the model for Keras's load_model. FILE.safetensors has the weights and the state of the optimizer, from which `load` goes on.
            overwrite: False: a file that is there is kept, and UsageError is raised.
        """
        if os.fspath(path).endswith(".keras"):
            self.save_weights(path, overwrite)
            return
        if not os.fspath(path).endswith(".safetensors"):
            raise UsageError(f"save: '{os.fspath(path)}': expected a name that ends with .keras, or with .safetensors for weights and the state of the optimizer; "
                             "save_weights writes .weights.h5")
        _refuse_existing(path, overwrite)
        self._need_compiled()
        with self._alone():
            check(library().ls_model_save(self._model, encode(path)))

    def load(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Goes on from a file that `save` has written.

        Args:
            path: Of a model of the same variables and the same optimizer.

        Raises:
            InputError: The file is not there, or is of another model.
        """
        self._need_compiled()
        with self._alone():
            check(library().ls_model_load(self._model, encode(path)))

    def copy_weights_to(self, keras_model: Any) -> None:
        """Gives the weights to a keras.Model of the same layers.

        Args:
            keras_model: The model that gets them.
        """
        with _weights_between() as path:
            self.save_weights(path)
            keras_model.load_weights(path)

    # ---- Training ----

    def compile(self, optimizer: Any = None, loss: Any = None, metrics: Any = None, *, loss_weights: Union[None, Sequence[float], Dict[str, float]] = None,
                run_eagerly: bool = False, steps_per_execution: Union[int, str] = 1, jit_compile: Union[bool, str] = "auto", **options: Any) -> None:
        """Says how the model is trained; what an earlier call said is forgotten.

        Args:
            optimizer: A text ("adam:learning_rate=0.01") or an object of Keras; None: as the model's file says, else adam.
            loss: A text, an object of Keras, or a function of y_true and y_pred that composes lockstep.ops; None: by the file or the last layer.
                Of a model with several outputs a list of these, or a dictionary by `output_names`; None in it: the output has no loss.
            metrics: One of these or a list; None: as in Keras none where a loss is given, else by the file or the last layer. With several
                outputs a list of lists, or a dictionary.
            loss_weights: How often the losses of several outputs count in the loss; a list or a dictionary.
            run_eagerly: Of Keras, without effect: a model is always compiled as a whole.
            steps_per_execution: Likewise.
            jit_compile: Likewise.
            **options: Further fields of struct ls_compile_options in lockstep.h, such as `loss_scale`, `learning_rate_schedule`.

        Raises:
            UsageError: There is no such optimizer, loss, metric or option; the message names what there is.

        Example:
            >>> model.compile("sgd:learning_rate=0.1", metrics=["accuracy"])
            >>> model.learning_rate
            0.1
        """
        refuse_others(self.compile, declared.ls_compile_options, (), options)
        all_given = {"optimizer": optimizer, "loss": loss, "metrics": metrics, "loss_weights": loss_weights, **options}
        if self._unbuilt is not None and not self._build_added():
            self._to_compile, self._compiled = all_given, True
            return
        config = (self._described().get("compile_config") or {}) if self._named is None and loss is None else {}
        self._losses = config.get("loss") if loss is None else loss
        if metrics is None and self._losses and not (config.get("metrics") or config.get("weighted_metrics")):
            metrics = "none"
        with self._alone():
            try:
                given = fill(declared.ls_compile_options, optimizer=_compile_text(optimizer, "optimizer"),
                             loss=_compile_text(loss, "loss", self._own_function(True)),
                             metrics=_compile_text(metrics, "metrics", self._own_function(False), library().ls_output_count(self._handle(1)) > 1),
                             loss_weights=_loss_weights_text(loss_weights), **options)
                check(library().ls_compile_sized(self._handle(1), ctypes.byref(given), ctypes.sizeof(given)))
            except UsageError as error:
                if re.search(r"\b(loss|metrics): '\w+' is (not supported yet|unknown)", error.message):
                    error.add("; lockstep.ops composes others")
                if re.search(r"\b(loss|metrics): (expected one of Keras's, got \{)|^<class ", error.message):
                    error.add("; losses and metrics of one's own are functions of y_true and y_pred that compose lockstep.ops (docs/python.md)")
                if "option learning_rate must be a number" in error.message:
                    error.add("; a schedule is learning_rate_schedule= of compile, or an object of Keras")
                raise
        self._compiled = True
        self._kept, self._rate = [], None
        if self._named is not None:
            self._to_compile = all_given

    def _need_compiled(self) -> None:
        if not self._compiled:
            self.compile(**self._to_compile)

    @property
    def learning_rate(self) -> float:
        """That of the next step; callbacks may set it between steps."""
        named = self._named
        rate = float(library().ls_learning_rate(self._model))
        self._named = named  # it has no shape
        return rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        with self._alone():
            named = self._named
            check(library().ls_set_learning_rate(self._model, rate))
            self._named, self._rate = named, rate

    @property
    def stop_training(self) -> bool:
        """In a callback, `model.stop_training = True` ends the fit, and cannot be taken back. Then it is True until the next fit begins, also
        where a callback of the library has ended the fit."""
        return bool(library().ls_training_is_stopped(self._model))

    @stop_training.setter
    def stop_training(self, stop: bool) -> None:
        if stop:
            library().ls_stop_training(self._model)

    def interrupt(self) -> None:
        """Ends the fit, evaluation or prediction under way with KeyboardInterrupt, as Ctrl-C does. [any thread]"""
        self._late = False
        library().ls_run_interrupt(self._run)

    def _begun_anew(self, call: Callable[[], int], is_interrupted: Callable[[], bool] = lambda: False) -> int:
        """The status of a call, which is begun anew where only a signal of the call before has ended it."""
        late, self._late = self._late, False
        status = call()
        if status == declared.LS_INTERRUPTED and _leaving:
            sys.exit()  # of this thread
        return call() if status == declared.LS_INTERRUPTED and late and not is_interrupted() else status

    def _call(self, calls: Calls, call: Callable[[], int]) -> None:
        """A call that takes long: Ctrl-C ends it, and exceptions of callbacks come out of it."""
        interruptible = Interruptible(lambda: library().ls_run_interrupt(self._run))
        with self._alone():
            try:
                with interruptible:
                    calls.interruptible = interruptible
                    before, self._calling = self._calling, True
                    status = self._begun_anew(call, lambda: interruptible.signalled or calls.error is not None)
                    calls.interruptible = None
                    self._calling = before
                    if status and calls.error:  # a generator that fails ahead of the last step fails nobody
                        discard()
                    error = error_of(status) if status else None
            finally:
                self._late = interruptible.signalled
        if error:
            raise calls.error or error
        check(status)

    def _data_of(self, x: Any, y: Any, weights: Any, split: str, examples: Any = None, calls: Optional[Calls] = None) -> Data:
        """`examples` of an epoch from a generator: a number, or None for all it makes."""
        if isinstance(x, str):
            if y is not None or weights is not None:
                raise UsageError(f"the dataset '{x}' has its own targets: y and sample_weight are for arrays")
            data = _data.from_text(self._run, x, split)
            if not data:
                raise UsageError(f"the dataset '{x}' has no split '{split}'")
            return data
        if _data.is_generator(x):
            if y is not None or weights is not None:
                raise UsageError("a generator makes its own targets: y and sample_weight are for arrays")
            if sum(output.has_loss for output in self._outputs()) > 1:
                raise UsageError("a generator makes the targets of one output, and the model has several with a loss: give arrays")
            if examples is None or calls is None:
                return _data.from_arrays(*_data.all_of(x, self._in_order), classes=self._classes())
            return _data.from_generator(x, examples, self._output_dims(), self._classes(), calls.fail, self._in_order)
        return _data.from_arrays(x, self._targets(y, weights), weights, self._classes())

    def _outputs(self) -> List[Output]:
        made, found, model = [], declared.ls_output(), self._handle(1)
        for index in range(library().ls_output_count(model) if model else 0):
            check(library().ls_output_describe(model, index, ctypes.byref(found)))
            made.append(Output(found.name.decode(), tuple(found.dims[:found.ndims]), bool(found.has_loss), bool(found.takes_classes)))
        return made

    @property
    def output_names(self) -> List[str]:
        """What losses and metrics call the outputs: the keys where they are a dictionary, else the names of their layers."""
        return [output.name for output in self._outputs()]

    def _targets(self, y: Any, weights: Any) -> Any:
        """`y` as it is, or those of a model with several outputs: a list or a dictionary, as Keras takes them, in their order."""
        outputs = self._outputs()
        if len(outputs) < 2 or y is None or isinstance(y, _data.Targets):
            return y[outputs[0].name] if isinstance(y, dict) and [output.name for output in outputs] == list(y) else y
        compared = [output for output in outputs if output.has_loss]
        if isinstance(weights, (list, tuple, dict)):
            raise UsageError("sample_weight: expected one array, which counts for all outputs")
        names = ", ".join(output.name for output in compared)
        if isinstance(y, dict):
            unknown = [str(name) for name in y if name not in [output.name for output in outputs]]
            missing = [output.name for output in compared if y.get(output.name) is None]
            if unknown or missing:
                raise UsageError(f"y: there is no output {unknown[0]!r}" if unknown else f"y: the targets of {missing[0]!r} are missing; expected {names}")
            found = [y[output.name] for output in compared]
        elif isinstance(y, (list, tuple)) and len(y) in (len(outputs), len(compared)):
            found = [one for one, output in zip(y, outputs) if output.has_loss] if len(y) == len(outputs) else list(y)
        elif len(compared) == 1 and not isinstance(y, (list, tuple)):
            found = [y]
        else:
            raise UsageError(f"y: expected a list of {len(compared)} arrays, or a dictionary, for the outputs {names}")
        return _data.Targets(found, [output.dims if output.takes_classes else None for output in compared])

    def _classes(self) -> _data.Classes:
        return self._output_dims() if self._handle(1) and library().ls_model_takes_classes(self._model) else None

    def _validation_of(self, given: Any, examples: Any, calls: Calls) -> Data:
        if isinstance(given, str):
            data = _data.validation_of(self._run, given)
            if not data:
                raise UsageError(f"the dataset '{given}' has nothing to validate on")
            return data
        if isinstance(given, (tuple, list)) and len(given) in (2, 3):
            return self._data_of(self._built_inputs(given[0]), given[1], given[2] if len(given) == 3 else None, "validation")
        if _data.is_generator(given):
            return self._data_of(given, None, None, "validation", examples, calls)
        raise UsageError(f"validation_data of type {type(given).__name__}: expected (x, y), (x, y, weights), a dataset text or a generator")

    @_by_one_thread
    def fit(self, x: Any = None, y: Any = None, batch_size: Optional[int] = None, epochs: int = 1, verbose: Verbose = "auto",
            callbacks: Optional[Iterable[CallbackLike]] = None, validation_split: float = 0.0, validation_data: Any = None,
            shuffle: Union[bool, int] = True, class_weight: Optional[Dict[int, float]] = None, sample_weight: Any = None, *,
            steps_per_epoch: Optional[int] = None, validation_steps: Optional[int] = None, initial_epoch: int = 0,
            validation_batch_size: Optional[int] = None, validation_freq: Union[int, Iterable[int]] = 1, split: str = "train",
            checkpoints: Union[None, str, Dict[str, Any]] = None, **options: Any) -> History:
        """Trains.

        Args:
            x: An array, a list or a dictionary of one for each input, the text of a dataset ("fashion-mnist"), a function that returns an iterator over batches (x, y), such an
                iterator, a tf.data.Dataset or a keras.utils.PyDataset. Arrays of uint8, int32 and float32 are read where they are, until the next fit on
                other data, so they must not change meanwhile.
            y: The targets of arrays; of a model with several outputs a list of them, or a dictionary by `output_names`.
            batch_size: Of all replicas together; None: 64 times the replicas.
            epochs: The number of the last epoch, which is that of all epochs unless `initial_epoch` is given.
            verbose: "auto", None and 1 show a bar on a terminal, and elsewhere, as in a notebook, a line for each epoch; 2 always lines; 0 nothing.
            callbacks: One or several: texts, functions of epoch and logs, lockstep.Callback, or those of Keras.
            validation_split: The share of arrays, at their end, that is validated on.
            validation_data: (x, y), (x, y, weights), a text or a generator.
            shuffle: Whether, or through a buffer of how many examples.
            class_weight: What an example of a class counts in the loss, as {0: 1.0, 1: 2.5}.
            sample_weight: The weight of each example.
            steps_per_epoch: Of a generator.
            validation_steps: Of a generator that is validated on.
            initial_epoch: Epochs are numbered on from it.
            validation_batch_size: Changes no number: a validation runs at the batch of the training.
            validation_freq: After every so many epochs, or after those of a list.
            split: Of a dataset's text.
            checkpoints: A folder, or fields of struct ls_checkpoint_options.
            **options: Further fields of struct ls_fit_options in lockstep.h, such as `steps`, `microbatches`, `report`, `timeline`.

        Returns:
            A History, with a list for each metric, and the loss of each step.

        Raises:
            InputError: The data does not fit the model.
            LockstepError: The loss is not finite.
            PeerLostError: A worker or replica was lost.
            KeyboardInterrupt: Ctrl-C; the model keeps what it has learnt.

        Example:
            >>> history = model.fit(x, y, batch_size=64, epochs=2, verbose=0)
            >>> sorted(history.history), len(history.losses)
            (['accuracy', 'loss'], 8)
        """
        refuse_others(self.fit, declared.ls_fit_options, OF_FIT, options)
        x = self._built_inputs(x, y)
        self._need_compiled()
        callbacks, checkpoints, backups = backup_of(callbacks, checkpoints)
        calls, history, examples = Calls(self), History(), _checked_batch(batch_size) or _data.batch_of(x) or 0
        opened: List[Data] = []
        try:
            if validation_split:
                if isinstance(x, str) or _data.is_generator(x):
                    raise UsageError("validation_split= is for arrays; a dataset text has an option of that name")
                (x, y, sample_weight), validation_data = _data.split_arrays(x, self._targets(y, sample_weight), sample_weight, validation_split)
            batch = examples or int(options.get("replica_batch") or 64) * self.replicas
            opened.append(self._data_of(x, y, sample_weight, split, _times(steps_per_epoch, batch, x), calls))
            if validation_data is not None:
                of_validation = _data.batch_of(validation_data) or batch
                opened.append(self._validation_of(validation_data, _times(validation_steps, of_validation, validation_data), calls))
            elif isinstance(x, str) and split == "train" and re.search(r"[:,]validation_split=", x):
                opened += filter(None, [_data.from_text(self._run, x, "validation")])
            calls.params = {"verbose": verbose, "epochs": epochs, "steps": -(-len(opened[0]) // batch)}
            calls.add(callbacks_of(callbacks, self.is_chief))
            calls.add_signals("on_epoch_begin", "on_epoch_end")
            bar = _shows_bar(verbose)
            if verbose != 0 and not bar:
                calls.add_function("on_epoch_end", lambda state: _print_epoch(state, epochs))
            _checked_batch(validation_batch_size, "validation_batch_size")
            every, numbers = _validated(validation_freq)
            given = fill(
                declared.ls_fit_options, epochs=epochs or declared.LS_ZERO, initial_epoch=initial_epoch, validation_freq=every,
                validation_epochs=numbers, validation_epoch_count=len(numbers or ()), batch=examples, shuffle=_shuffle_text(shuffle),
                class_weight=_class_weight_text(class_weight), validation=opened[1].pointer if len(opened) > 1 else None,
                progress=int(bar), **options)
            tables = calls.array()
            given.callbacks, given.callback_count = tables, len(calls.tables)
            if checkpoints is not None:
                fields = checkpoints if isinstance(checkpoints, dict) else {"folder": checkpoints}
                given.checkpoints = ctypes.pointer(fill(declared.ls_checkpoint_options, **fields))
            sizes = [ctypes.sizeof(kind) for kind in (declared.ls_fit_options, declared.ls_callbacks, declared.ls_checkpoint_options)]
            kept = [data.kept for data in opened if data.kept is not None]
            self._kept += kept
            self._call(calls, lambda: library().ls_fit_sized(self._model, opened[0].pointer, ctypes.byref(given), *sizes))
            self._kept = kept  # a fit that fails may leave the model with the data of the one before
        finally:
            for data in opened:
                data.close()
            calls.close()
        if backups and self.is_chief:
            forget(backups)
        return self._tell(history)

    def history(self) -> History:
        """What the last fit saw, also when it failed or was interrupted."""
        return self._tell(History())

    def _tell(self, history: History) -> History:
        import numpy

        count = ctypes.c_size_t()
        losses = library().ls_fit_losses(self._model, ctypes.byref(count))
        history.losses = numpy.array(losses[:count.value], dtype="float32")
        epochs = library().ls_fit_epochs(self._model, ctypes.byref(count))
        for epoch in epochs[:count.value]:
            history.epoch.append(epoch.epoch - 1)
            history.seconds.append(epoch.seconds)
            history.examples.append(epoch.examples)
            history.learning_rate.append(epoch.learning_rate)
            for name, value in logs_of(epoch.metrics).items():
                history.history.setdefault(name, []).append(value)
        history.model = self
        return history

    @_by_one_thread
    def evaluate(self, x: Any = None, y: Any = None, batch_size: Optional[int] = None, verbose: Verbose = "auto",
                 sample_weight: Any = None, *, callbacks: Optional[Iterable[CallbackLike]] = None, return_dict: bool = False,
                 split: str = "test") -> Union[float, List[float], Logs]:
        """Computes loss and metrics.

        Args:
            x: As in `fit`.
            y: As in `fit`.
            batch_size: Of all replicas together; None: 64 times the replicas.
            verbose: "auto", None and 1 show a bar on a terminal while it runs, and then a line, as 2 does; 0 nothing.
            sample_weight: The weight of each example.
            callbacks: As in `fit`.
            return_dict: Whether the result is a dictionary.
            split: Of a dataset's text.

        Returns:
            As in Keras a number, a list, or a dictionary.

        Raises:
            InputError: The data does not fit the model.

        Example:
            >>> sorted(model.evaluate(x, y, verbose=0, return_dict=True))
            ['accuracy', 'loss']
        """
        x = self._built_inputs(x, y)
        self._need_compiled()
        calls, scores, batch = Calls(self), declared.ls_scores(), _checked_batch(batch_size)
        bar = Bar() if _shows_bar(verbose) else None
        data = self._data_of(x, y, sample_weight, split)
        with self._told(calls, callbacks, data, bar, "on_test_batch_end"):
            self._call(calls, lambda: library().ls_evaluate(self._model, data.pointer, batch, ctypes.byref(scores)))
        logs = logs_of(scores.metrics)
        if verbose != 0:
            print(bar.end(_line(logs)) if bar else _line(logs))
        return self._as_keras(logs, return_dict)

    @_by_one_thread
    def predict(self, x: Any, batch_size: Optional[int] = None, verbose: Verbose = "auto", *, callbacks: Optional[Iterable[CallbackLike]] = None,
                split: str = "test") -> Any:
        """Computes the output for each example, in their order.

        Args:
            x: As in `fit`.
            batch_size: Of all replicas together; None: 64 times the replicas.
            verbose: "auto", None and 1 show a bar on a terminal while it runs.
            callbacks: As in `fit`.
            split: Of a dataset's text.

        Returns:
            An array of float32, a row for each example; of several outputs a list of them, or a dictionary where the model has that.

        Raises:
            InputError: The data does not fit the model.

        Example:
            >>> model.predict(x[:5], verbose=0).shape
            (5, 10)
        """
        import numpy

        x = self._built_inputs(x)
        calls, batch = Calls(self), _checked_batch(batch_size)
        bar = Bar() if _shows_bar(verbose) else None
        data = self._data_of(x, None, None, split)
        out = numpy.empty((len(data), *self._output_dims()), dtype="float32")
        with self._told(calls, callbacks, data, bar, "on_predict_batch_end"):
            self._call(calls, lambda: library().ls_predict(self._model, data.pointer, batch, _floats(out)))
        if bar:
            print(bar.end())
        return self._as_outputs(out)

    def _as_outputs(self, rows: "numpy.ndarray") -> Any:
        """The rows of a prediction as an array, or as those of several outputs."""
        import numpy

        outputs, made, at = self._outputs(), [], 0
        for output in outputs:
            size = math.prod(output.dims)
            made.append(numpy.ascontiguousarray(rows[:, at:at + size]).reshape(len(rows), *output.dims) if len(outputs) > 1 else rows)
            at += size
        return self._arranged(made)

    def _as_keras(self, logs: Logs, return_dict: bool) -> Union[float, List[float], Logs]:
        """Of several outputs the losses as they were given, then all metrics by name."""
        names = self.output_names
        if len(names) > 1 and not return_dict:
            given = self._losses if isinstance(self._losses, dict) and set(self._losses) <= set(names) else names
            losses = ["loss", *(f"{name}_loss" for name in given if f"{name}_loss" in logs)]
            logs = {key: logs[key] for key in [*losses, *sorted(set(logs) - set(losses))]}
        values = list(logs.values())
        return logs if return_dict else values[0] if len(values) == 1 else values

    def _arranged(self, made: List[Any]) -> Any:
        """What there is for each output, as the model has them: alone, in a list, or in a dictionary."""
        config = self._described()["config"]
        keys = config.get("output_layers") if isinstance(config, dict) else None  # a list: early versions of Keras 2
        names = self.output_names
        if isinstance(keys, dict) and sorted(keys) == sorted(names):  # not one inside another
            return {key: made[names.index(key)] for key in keys}
        return made if len(made) > 1 else made[0]

    @contextlib.contextmanager
    def _told(self, calls: Calls, callbacks: Optional[Iterable[CallbackLike]], data: Data, bar: Optional[Bar], moment: str) -> Iterator[None]:
        """Callbacks and the bar of an evaluation or a prediction, and the end of its data."""
        size = ctypes.sizeof(declared.ls_callbacks)
        try:
            calls.add(callbacks_of(callbacks, self.is_chief))
            if bar:
                calls.add_function(moment, bar.show)
            if calls.tables:
                check(library().ls_set_callbacks_sized(self._model, calls.array(), size, len(calls.tables)))
            yield
        except BaseException:
            if bar:
                print(bar.wiped(), end="")
            raise
        finally:
            if calls.tables:
                check(library().ls_set_callbacks_sized(self._model, None, size, 0))
            data.close()
            calls.close()

    # ---- Batches ----

    @_by_one_thread
    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, *, return_dict: bool = False) -> Union[float, List[float], Logs]:
        """Makes one step on all of these examples.

        Args:
            x: Arrays of the examples.
            y: As in `fit`.
            sample_weight: The weight of each example.
            return_dict: Whether the result is a dictionary.

        Returns:
            Loss and metrics of this batch alone: a number, a list, or a dictionary.

        Raises:
            UsageError: There are fewer examples than replicas.

        Example:
            >>> loss, accuracy = model.train_on_batch(x[:64], y[:64])
        """
        x = self._built_inputs(x, y)
        self._need_compiled()
        return self._on_batch(library().ls_train_on_batch, x, y, sample_weight, return_dict)

    @_by_one_thread
    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, *, return_dict: bool = False) -> Union[float, List[float], Logs]:
        """Computes loss and metrics of all of these examples.

        Args:
            x: Arrays of the examples.
            y: As in `fit`.
            sample_weight: The weight of each example.
            return_dict: Whether the result is a dictionary.

        Returns:
            A number, a list, or a dictionary.
        """
        x = self._built_inputs(x, y)
        self._need_compiled()
        return self._on_batch(library().ls_test_on_batch, x, y, sample_weight, return_dict)

    def _on_batch(self, call: Any, x: Any, y: Any, weights: Any, return_dict: bool) -> Union[float, List[float], Logs]:
        arrays, metrics = _data.Arrays(x, self._targets(y, weights), weights, self._classes()), declared.ls_metrics()
        check(self._begun_anew(lambda: call(self._model, ctypes.byref(arrays.struct), ctypes.byref(metrics))))
        return self._as_keras(logs_of(metrics), return_dict)

    @_by_one_thread
    def predict_on_batch(self, x: Any) -> Any:
        """Computes the output for each example.

        Args:
            x: Arrays of the examples.

        Returns:
            An array of float32, or a list of them, as `predict`.
        """
        import numpy

        x = self._built_inputs(x)
        arrays = _data.Arrays(x)
        out = numpy.empty((len(arrays.inputs[0]), *self._output_dims()), dtype="float32")
        check(self._begun_anew(lambda: library().ls_predict_on_batch(self._model, arrays.struct.inputs, arrays.struct.input_count, _floats(out))))
        return self._as_outputs(out)

    def __call__(self, x: Any, training: bool = False) -> Any:
        """As predict_on_batch, for programs that call a model of Keras.

        Args:
            x: Arrays of the examples.
            training: False.

        Returns:
            An array of float32.

        Raises:
            UsageError: `training` is true, or x is what a layer returned.
        """
        if training:
            raise UsageError("a call with training=True: expected fit, train_on_batch, or a function of strategy.run")
        if Call((x,), {}).symbols():
            raise UsageError("a model is no layer here: call its layers one by one")
        return self.predict_on_batch(x)


class Sequential(Model):
    """A model of layers, one after the other.

    Args:
        layers: Those of lockstep.layers, or of lockstep.ops.Layer; the first may be an Input. None, or an Input alone: `add` adds others.
        name: Of the model.
        **options: The keywords of Model.

    Raises:
        InputError: A layer does not fit the one before, or has an option that there is not.

    Example:
        >>> small = lockstep.Sequential([layers.Input((28, 28, 1)), layers.Flatten(), layers.Dense(10)], device="cpu")
        >>> small.count_params()
        7850
    """

    def __init__(self, layers: Optional[Sequence[Layer]] = None, name: str = "sequential", **options: Any) -> None:
        self._added = list(layers or ())
        self._grows = all(getattr(layer, "class_name", "") == "InputLayer" for layer in self._added)
        own = dict.fromkeys(type(layer) for layer in self._added if isinstance(layer, Layer) and is_own(layer))
        given = options.pop("custom_objects", ())
        self._parts = self._added
        super().__init__(sequential_config(self._added, name), custom_objects=[*own, *(given.values() if isinstance(given, dict) else given)], **options)

    def add(self, layer: Layer) -> None:
        """Adds a layer behind the others. `compile`, or what asks for weights or shapes, builds the model of them.

        Args:
            layer: Of lockstep.layers, or of lockstep.ops.Layer.

        Raises:
            UsageError: The model is built.

        Example:
            >>> grown = lockstep.Sequential(device="cpu")
            >>> grown.add(layers.Input((8,)))
            >>> grown.add(layers.Dense(2))
            >>> grown.count_params()
            18
        """
        if self._unbuilt is None:
            raise UsageError("add: the model is built; expected all layers before compile, fit and what asks for weights or shapes")
        self._unbuilt = sequential_config([*self._added, layer], self._unbuilt["config"]["name"])
        self._added.append(layer)
        if is_own(layer):
            self._own_layer(type(layer))


# ---- Small things ----

def _written(write: Callable[[ctypes.c_void_p], Any]) -> str:
    """What a call of the library writes to a stream of C."""
    libc, text, size = ctypes.CDLL(None), ctypes.c_char_p(), ctypes.c_size_t()
    libc.open_memstream.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    try:
        write(stream)
    finally:
        libc.fclose(stream)
        made = (text.value or b"").decode()
        libc.free(text)
    return made


def _floats(array: "numpy.ndarray") -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


def _refuse_existing(path: Any, overwrite: bool) -> None:
    if not overwrite and os.path.exists(path):
        raise UsageError(f"'{os.fspath(path)}' is there already, and overwrite=False keeps it")


def is_keras(model: Any) -> bool:
    return hasattr(model, "to_json") and hasattr(model, "save_weights")


def build_keras(model: Any, inputs: Optional[Sequence[Any]]) -> None:
    """By the shapes of such examples."""
    if inputs is None or not hasattr(model, "build"):
        raise UsageError("the Keras model is not built and has no weights yet, and this data does not show the shape of its input: begin it with "
                         "keras.Input, or call its build(input_shape)")
    shapes = [(None, *array.shape[1:]) for array in inputs]
    model.build(shapes[0] if len(shapes) == 1 else shapes)


def _has_no_shape(model: Any) -> bool:
    if isinstance(model, dict) and model.get("class_name") == "Sequential":  # of lockstep.Sequential
        made = model["config"]["layers"] if isinstance(model.get("config"), dict) and "layers" in model["config"] else []
        return bool(made) and not {"batch_shape", "batch_input_shape"} & set(made[0].get("config", {})) and "build_input_shape" not in model["config"]
    return is_keras(model) and not getattr(model, "built", True)


def _json_of(model: Any) -> str:
    """As Keras writes it; of a loss Keras leaves out arguments of its function, such as Huber's delta."""
    text, loss = model.to_json(), getattr(model, "loss", None)
    made = json.loads(text)
    if made.get("class_name") not in ("Sequential", "Functional", "Model"):
        raise UsageError(f"model: {type(model).__name__} is a class of the program, whose JSON has no layers: write it as a functional model, keras.Model(inputs, outputs)")
    written = (made.get("compile_config") or {}).get("loss")
    if not isinstance(written, dict) or not isinstance(written.get("config"), dict) or written.get("class_name") != type(loss).__name__:
        return text
    written["config"] = {**getattr(loss, "_fn_kwargs", {}), **written["config"]}
    return json.dumps(made)


def source_of(model: Any) -> Tuple[Any, bool]:
    """A built-in name or a file, or the JSON of a model; and whether it is JSON."""
    source = _json_of(model) if is_keras(model) else json.dumps(model, default=written) if isinstance(model, dict) else model
    if not isinstance(source, (str, bytes, os.PathLike)):
        raise UsageError(f"model: {model!r}; expected a name, a file, Keras's JSON or a Keras model")
    return source, isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith(("{", '"'))


@contextlib.contextmanager
def _weights_between() -> Iterator[str]:
    """A file for weights that go from Keras to Lockstep or back; errors do not name it."""
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        leave_unsaid(folder + os.sep)
        try:
            yield os.path.join(folder, "model.weights.h5")
        except LockstepError as error:
            error.reword(folder + os.sep, "")
            raise


def _times(steps: Optional[int], batch: int, x: Any) -> Optional[int]:
    if steps is not None and not _data.is_generator(x):
        raise UsageError("steps_per_epoch= and validation_steps= are for generators; steps= ends a fit after so many steps")
    if steps is not None and steps < 1:
        raise UsageError(f"steps_per_epoch= and validation_steps= are at least 1, not {steps}")
    return None if steps is None else steps * batch


def _checked_batch(batch_size: Optional[int], name: str = "batch_size") -> int:
    """0: the default."""
    if batch_size is None:
        return 0
    if not hasattr(batch_size, "__index__") or batch_size < 1:
        raise UsageError(f"{name}={batch_size!r}: expected a whole number of examples from 1, or None for the default")
    return operator.index(batch_size)


def _validated(freq: Any) -> Tuple[int, Any]:
    """After every so many epochs, or after those of a list."""
    if hasattr(freq, "__index__") and not hasattr(freq, "__len__") and freq >= 1:  # an array has both
        return operator.index(freq), None
    try:
        numbers = [] if isinstance(freq, str) else [operator.index(number) for number in freq]
    except TypeError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise UsageError(f"validation_freq={freq!r}: expected a whole number from 1, or a list of numbers of epochs from 1")
    return 0, (ctypes.c_uint64 * len(numbers))(*numbers)


def _shuffle_text(shuffle: Union[bool, int, str]) -> str:
    return ("on" if shuffle else "off") if isinstance(shuffle, bool) else str(shuffle)


def _class_weight_text(weights: Any) -> Optional[str]:
    if weights is None:
        return None
    try:
        pairs = [(int(number), float(weight)) for number, weight in weights.items() if int(number) == float(number)]
        fits = len(pairs) == len(weights)
    except (AttributeError, TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise UsageError(f"class_weight={weights!r}: expected a dictionary of numbers of classes and their weights, such as {{0: 1.0, 1: 2.5}}")
    return ",".join(f"{number}:{weight!r}" for number, weight in pairs) or None


def _line(logs: Logs) -> str:
    return " - ".join(f"{name}: {value:.4f}" for name, value in logs.items())


def _shows_bar(verbose: Verbose) -> bool:
    """The library draws it on stdout of C: only where the program's is the same terminal, which can wipe a line away."""
    if verbose not in ("auto", None, 0, 1, 2):
        raise UsageError(f"verbose={verbose!r}: expected 'auto', None, 0, 1 or 2")
    try:
        shows = bool(verbose in ("auto", None, 1) and sys.stdout.fileno() == 1 and sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    except (AttributeError, OSError, ValueError):  # none, closed, or a notebook's or a test's, which is no file
        return False
    if shows:
        sys.stdout.flush()
    return shows


def _print_epoch(state: declared.ls_fit_state, epochs: int) -> None:
    print(f"Epoch {state.epoch.epoch}/{epochs} - {state.epoch.seconds:.2f}s - {_line(logs_of(state.epoch.metrics))}", flush=True)
