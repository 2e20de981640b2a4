# SPDX-License-Identifier: Apache-2.0
"""Callbacks of a training, with Keras's moments.

    model.fit(x, y, callbacks=[lambda epoch, logs: print(epoch, logs["loss"]), "early_stopping:patience=3", MyCallback()])
"""
import ctypes
import shutil
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Union

from . import _declarations as declared
from ._errors import UnavailableError
from ._interrupt import Interruptible, handled_signals
from ._native import check, encode, library, type_of

if TYPE_CHECKING:
    from .model import Model

    import numpy

Logs = Dict[str, float]
CallbackLike = Union[str, Callable[[int, Logs], Any], "Callback", Any]

# What each moment is called with, besides `logs`. The steps of a fit are numbered from 0 in each epoch, as in Keras.
MOMENTS = {
    "on_train_begin": None, "on_train_end": None, "on_epoch_begin": "epoch", "on_epoch_end": "epoch",
    "on_train_batch_begin": "step", "on_train_batch_end": "step", "on_test_begin": None, "on_test_end": None,
    "on_test_batch_begin": "batch", "on_test_batch_end": "batch", "on_predict_begin": None, "on_predict_end": None,
    "on_predict_batch_begin": "batch", "on_predict_batch_end": "batch",
}
# Where metrics are known.
TELLS_METRICS = {"on_train_end", "on_epoch_end", "on_train_batch_end", "on_test_end"}
# Those that the thread of a replica calls, while the main thread waits.
OF_REPLICAS = {moment for moment in MOMENTS if "batch" in moment}


class Callback:
    """A base for callbacks: override moments, or give them as functions. `self.model` is the model. Functions of a batch run on a thread of Lockstep and cost
    time in each step. An exception ends the fit, and comes out of it.

    Args:
        **functions: Moments by their names, as on_epoch_end.

    Example:
        >>> seen = []
        >>> note = lockstep.Callback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
        >>> model.fit(x, y, epochs=2, verbose=0, callbacks=[note])  # doctest: +ELLIPSIS
        History(...)
        >>> seen
        [0, 1]
    """

    model: "Model"

    def __init__(self, **functions: Callable[..., Any]) -> None:
        for moment, function in functions.items():
            if moment not in MOMENTS:
                raise TypeError(f"there is no moment '{moment}'; there are: {', '.join(MOMENTS)}")
            setattr(self, moment, function)

    def set_model(self, model: "Model") -> None:
        self.model = model


class History:
    """What a fit saw. `history` has a list for each metric, an entry an epoch, and `losses` one number a step (of the first 65,536)."""

    def __init__(self) -> None:
        self.epoch: List[int] = []
        self.history: Dict[str, List[float]] = {}
        self.seconds: List[float] = []  # of each epoch, without validation
        self.examples: List[int] = []
        self.learning_rate: List[float] = []
        self.losses: "numpy.ndarray"
        self.model: "Model"

    def __repr__(self) -> str:
        return f"History({self.history})"


class Bar:
    """What an evaluation or a prediction shows on a terminal while it runs, as the library does of a fit."""

    LETTERS, EVERY, WIPE = 30, 0.1, "\r\x1b[K"  # seconds between two drawings

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.drawn = 0.0
        self.batches = 0

    def line(self, done: int) -> str:
        filled = self.LETTERS * done // max(1, self.batches)
        head = ">" if 0 < filled < self.LETTERS else "="
        return f"{done}/{self.batches} [{'=' * (filled - 1) + head if filled else ''}{'.' * (self.LETTERS - filled)}]"

    def show(self, state: declared.ls_fit_state) -> None:
        """[of a thread of the library]"""
        now, self.batches = time.monotonic(), state.batches
        if now - self.drawn >= self.EVERY:
            self.drawn = now
            print(self.WIPE + self.line(state.batch)[:shutil.get_terminal_size().columns - 1], end="", flush=True)

    def wiped(self) -> str:
        return self.WIPE if self.drawn else ""

    def end(self, more: str = "") -> str:
        """The line that stays."""
        return f"{self.wiped()}{self.line(self.batches)} - {time.monotonic() - self.begun:.1f} s{' - ' if more else ''}{more}"


def logs_of(metrics: declared.ls_metrics) -> Logs:
    return {metric.name.decode(): metric.value for metric in metrics.list[:metrics.count]}


def _number_of(what: Optional[str], state: declared.ls_fit_state) -> List[int]:
    if what == "epoch":
        return [state.epoch.epoch - 1]
    if what == "step":
        return [state.batch - 1 - (state.steps_done - state.epoch.steps)]
    return [state.batch - 1] if what else []


class Calls:
    """What one call of the library (a fit, an evaluation, a prediction) tells to the program's callbacks, and the first exception of
    any of them."""

    def __init__(self, model: "Model") -> None:
        self.model = model
        self.params: Dict[str, Any] = {}  # as in Keras
        self.error: Optional[BaseException] = None
        self.interruptible: Optional[Interruptible] = None
        self.tables: List[declared.ls_callbacks] = []
        self.opened: List[Any] = []

    def fail(self, error: BaseException) -> int:
        """Keeps an exception of the program; the status that ends the call."""
        if self.error is None:
            self.error = error
        return declared.LS_FAILED if isinstance(error, Exception) else declared.LS_INTERRUPTED

    def function(self, moment: str, call: Callable[[declared.ls_fit_state], Any]) -> Any:
        """`call` as the library calls it."""
        on_main_thread = moment not in OF_REPLICAS

        def run(_context: Any, state: Any) -> int:
            try:
                if on_main_thread and self.interruptible:
                    self.interruptible.in_python = True
                    self.interruptible.handle()
                call(state.contents)
                return declared.LS_OK
            except BaseException as error:  # noqa: B902  (nothing may pass through C)
                return self.fail(error)
            finally:
                if on_main_thread and self.interruptible:
                    self.interruptible.in_python = False

        return type_of(declared.ls_callbacks, moment)(run)

    def add_function(self, moment: str, call: Callable[[declared.ls_fit_state], Any]) -> None:
        self.tables.append(declared.ls_callbacks(**{moment: self.function(moment, call)}))

    def add_signals(self, *moments: str) -> None:
        """Where the program has handlers of signals, these run at such moments of the main thread, too."""
        for moment in moments if handled_signals() else ():
            self.add_function(moment, lambda state: None)

    def add_object(self, callback: Any) -> None:
        if hasattr(callback, "set_params"):  # of Keras
            callback.set_params(self.params)
        if hasattr(callback, "set_model"):
            callback.set_model(self.model)
        functions = {}
        for moment, what in MOMENTS.items():
            method = getattr(callback, moment, None)
            if method is not None and moment == "on_epoch_end" and hasattr(callback, "monitor_op"):
                functions[moment] = self.function(moment, self.monitored(callback, self.told(moment, what, method)))
            elif method is not None:
                functions[moment] = self.function(moment, self.told(moment, what, method))
        if not functions:
            raise TypeError(f"{callback!r} is no callback: expected a text, a function of epoch and logs, or an object with {', '.join(MOMENTS)}")
        name = type(callback).__name__.encode()
        self.tables.append(declared.ls_callbacks(name=name, **functions))

    @staticmethod
    def monitored(callback: Any, call: Callable[[declared.ls_fit_state], Any]) -> Callable[[declared.ls_fit_state], Any]:
        """What Keras's callbacks would ask a keras.Model: whether more of a metric is better."""
        def directed(state: declared.ls_fit_state) -> None:
            for metric in state.epoch.metrics.list[:state.epoch.metrics.count]:
                if callback.mode == "auto" and metric.name.decode() == callback.monitor:
                    callback.mode = "max" if metric.upwards else "min"
            call(state)
        return directed

    @staticmethod
    def told(moment: str, what: Optional[str], method: Callable[..., Any]) -> Callable[[declared.ls_fit_state], Any]:
        def call(state: declared.ls_fit_state) -> None:
            method(*_number_of(what, state), logs_of(state.epoch.metrics) if moment in TELLS_METRICS else {})
        return call

    def add(self, callbacks: Optional[Iterable[CallbackLike]]) -> None:
        for callback in [callbacks] if isinstance(callbacks, str) or callable(callbacks) else callbacks or ():
            if isinstance(callback, str):
                table = ctypes.POINTER(declared.ls_callbacks)()
                try:
                    check(library().ls_callback_open(self.model._run, encode(callback), ctypes.byref(table)))
                except UnavailableError as error:
                    if callback.startswith("model_checkpoint"):
                        error.add("; checkpoints='folder' of fit keeps the whole state")
                    raise
                self.opened.append(table)
                self.tables.append(table.contents)
            elif callable(callback) and not any(hasattr(callback, moment) for moment in MOMENTS):
                self.add_object(Callback(on_epoch_end=callback))
            else:
                self.add_object(callback)

    def array(self) -> Any:
        """The tables one behind the other; this object must last as long."""
        return (declared.ls_callbacks * max(1, len(self.tables)))(*self.tables)

    def close(self) -> None:
        for table in self.opened:
            library().ls_callback_close(table)
        self.opened = []


# What fit takes instead of Keras's classes.
INSTEAD = {"CSVLogger": "'csv_logger:filename=log.csv'", "EarlyStopping": "'early_stopping:patience=3'", "ModelCheckpoint": "checkpoints='folder'",
           "ReduceLROnPlateau": "'reduce_lr_on_plateau:patience=3'", "TensorBoard": "'tensorboard:log_dir=logs'", "TerminateOnNaN": "'terminate_on_nan'"}


def _find(name: str) -> Any:
    raise AttributeError(f"module 'lockstep.callbacks' has no attribute '{name}'" + (f": fit takes {INSTEAD[name]}, or the object of Keras" if name in INSTEAD else ""))


if not TYPE_CHECKING:  # which would take any name
    __getattr__ = _find
