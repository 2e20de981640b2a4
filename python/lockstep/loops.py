# SPDX-License-Identifier: Apache-2.0
"""Training loops of the program's own: data whose batches are shared out among the replicas of a model, and functions that run on each.

    strategy = model.strategy
    train = strategy.experimental_distribute_dataset(x, y, batch_size=128)

    def train_step(replica):
        loss, gradients = replica.value_and_grad()
        replica.apply_gradients(gradients)
        return loss

    for batch in train:
        loss = strategy.reduce("sum", strategy.run(train_step, args=(batch,)))
"""
import ctypes
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional, Sequence, Tuple

from . import _data
from . import _declarations as declared
from ._errors import AbortedError, UsageError
from ._native import check, encode, fill, library
from .callbacks import Calls, Logs, logs_of

if TYPE_CHECKING:
    from .model import Model

    import numpy

_step_function = declared.FUNCTIONS["ls_strategy_run"][1][1]


class Gradients:
    """Those of a step, which the strategy reduces while they are computed. `Replica.apply_gradients` takes them."""

    def __init__(self, replica: "Replica") -> None:
        self.replica: Optional["Replica"] = replica


class Replica:
    """A replica while it runs a step function: its share of the batch, and what a step is made of. It is not to be used afterwards.

    A training step is `value_and_grad` and `apply_gradients`, or `forward` and `minimize`, once: on all replicas, or on none."""

    def __init__(self, context: int, model: "Model") -> None:
        self._context: Optional[int] = context
        self._model = model
        self._forwarded = False

    def _call(self, name: str, *arguments: Any) -> None:
        check(getattr(library(), name)(self._open(), *arguments))

    def _open(self) -> int:
        if self._context is None:
            raise UsageError("a replica is used after its step function has returned")
        return self._context

    @property
    def rank(self) -> int:
        """Its number among those of all workers."""
        return int(library().ls_context_rank(self._open()))

    @property
    def local_rank(self) -> int:
        """Its number among those of this process."""
        return int(library().ls_context_local_rank(self._open()))

    @property
    def is_chief(self) -> bool:
        """Whether it has rank 0."""
        return bool(library().ls_context_is_chief(self._open()))

    @property
    def step(self) -> int:
        """The number of the model's step, from 1."""
        return int(library().ls_context_step(self._open()))

    @property
    def examples(self) -> int:
        """Those of its share, of which there may be none at the end of an epoch."""
        return int(library().ls_context_examples(self._open()))

    @property
    def global_examples(self) -> int:
        """Those of the batch, on all replicas."""
        return int(library().ls_context_global_examples(self._open()))

    def _array(self, name: str, *arguments: Any) -> "numpy.ndarray":
        import numpy

        found = declared.ls_array()
        self._call(name, *arguments, ctypes.byref(found))
        shape, dtype = tuple(found.dims[:found.ndims]), numpy.dtype(found.dtype.decode())
        made = numpy.empty(shape, dtype)
        if made.size:
            ctypes.memmove(made.ctypes.data, found.values, made.nbytes)
        return made

    def input(self, index: int = 0) -> "numpy.ndarray":
        """A copy of the examples of an input.

        Args:
            index: Which, of a model with several.

        Returns:
            An array.
        """
        return self._array("ls_context_input", index)

    @property
    def target(self) -> "numpy.ndarray":
        """A copy of the targets."""
        return self._array("ls_context_target")

    @property
    def output(self) -> "numpy.ndarray":
        """A copy of the model's output, after `forward`, where the model is compiled with loss="none" or keep_outputs=1."""
        return self._array("ls_context_output")

    def forward(self) -> None:
        """Runs the model on the share."""
        self._call("ls_context_forward")
        self._forwarded = True

    def loss(self) -> float:
        """After `forward`: the losses of the share's examples, added up and divided by the examples of the whole batch, so that "sum" over the replicas
        is the mean loss. It counts in the metrics."""
        total = ctypes.c_double()
        self._call("ls_context_loss", ctypes.byref(total), None)
        self._call("ls_context_update_metrics")
        return total.value / self.global_examples

    def value_and_grad(self, function: Optional[Callable[..., Tuple[Any, Any]]] = None) -> Tuple[float, Gradients]:
        """Runs the model on the share, unless `forward` has, and computes loss and gradients.

        Args:
            function: For a model that is compiled with loss="none": of targets and outputs as arrays it returns the loss of each example, and the derivative of
                each by the outputs.

        Returns:
            The loss as `loss()` says it, and the gradients for `apply_gradients`.
        """
        if not self._forwarded:
            self.forward()
        value = self.loss() if function is None else self._by_hand(function)
        self._call("ls_context_gradients")
        return value, Gradients(self)

    def _by_hand(self, function: Callable[..., Tuple[Any, Any]]) -> float:
        import numpy

        total = 0.0
        if self.examples:
            output = self.output
            losses, slopes = function(self.target, output)
            room = ctypes.POINTER(ctypes.c_float)()
            self._call("ls_context_output_gradient", ctypes.byref(room))
            scaled = numpy.asarray(slopes, dtype="float32") * numpy.float32(1 / numpy.float32(self.global_examples))
            if scaled.shape != output.shape or numpy.shape(losses) != (len(output),):
                raise UsageError(f"the loss by hand returned shapes {numpy.shape(losses)} and {scaled.shape}; expected ({len(output)},), a loss for each "
                                 f"example, and {output.shape}, the derivative of each by the outputs")
            ctypes.memmove(room, numpy.ascontiguousarray(scaled).ctypes.data, scaled.nbytes)
            total = float(numpy.sum(losses, dtype="float64"))
        self._call("ls_context_set_loss", ctypes.c_double(total))
        self._call("ls_context_update_metrics")
        return total / self.global_examples

    def apply_gradients(self, gradients: Gradients) -> None:
        """Ends the reduction and updates the variables, as the strategy does.

        Args:
            gradients: Those of value_and_grad, in the same step.

        Raises:
            UsageError: They are of another replica or step.
        """
        if not isinstance(gradients, Gradients) or gradients.replica is not self:
            raise UsageError("apply_gradients takes what value_and_grad of the same replica has returned in this step")
        gradients.replica = None
        self._call("ls_context_apply")

    def minimize(self) -> None:
        """Gradients and update, after `forward`."""
        self._call("ls_context_minimize")


class Batch:
    """A batch of a distributed dataset, for `Strategy.run`."""

    def __init__(self, dataset: "DistributedDataset") -> None:
        self.dataset = dataset
        self.was_given = False  # to strategy.run, which may have failed


class DistributedDataset:
    """Data whose batches are cut into shares, one for each replica, as `fit` cuts them. Iterating goes through an epoch, or after a `break` through the
    rest of it; the next epoch has an order of its own. A batch whose `Strategy.run` failed may be run again, and is also the next one of the iteration."""

    def __init__(self, model: "Model", pointer: ctypes.c_void_p) -> None:
        self._model = model
        self._pointer = pointer
        self._batch: Optional[Batch] = None  # the one that strategy.run may be given

    def _open(self) -> ctypes.c_void_p:
        self._model._run  # says where the model is closed
        return self._pointer

    def __len__(self) -> int:
        """The batches of an epoch."""
        return int(library().ls_distributed_steps(self._open()))

    def __iter__(self) -> Iterator[Batch]:
        library().ls_distributed_next(self._open())  # forgets an end of the epoch that nobody has seen, because of a break at its last batch
        while library().ls_distributed_next(self._open()):
            batch = self._batch = Batch(self)
            yield batch
            if not batch.was_given:
                raise UsageError("a batch of a distributed dataset is given to strategy.run before the next one is taken")

    def metrics(self, step: bool = False) -> Logs:
        """Loss and metrics of all steps since `reset_metrics`.

        Args:
            step: Whether of the last step alone.

        Returns:
            A dictionary.
        """
        of_step, of_all = declared.ls_metrics(), declared.ls_metrics()
        library().ls_strategy_metrics(self._open(), ctypes.byref(of_step), ctypes.byref(of_all))
        return logs_of(of_step if step else of_all)

    def reset_metrics(self) -> None:
        """As at the beginning of an epoch."""
        library().ls_strategy_reset_metrics(self._open())


class Strategy:
    """What a model is trained under, with the names of tf.distribute: `model.strategy`.

    Example:
        >>> strategy = model.strategy
        >>> train = strategy.experimental_distribute_dataset(x, y, batch_size=128)
        >>> def train_step(replica):
        ...     loss, gradients = replica.value_and_grad()
        ...     replica.apply_gradients(gradients)
        ...     return loss
        >>> losses = [strategy.reduce("sum", strategy.run(train_step, args=(batch,))) for batch in train]
        >>> len(losses) == len(train) == 2
        True
    """

    def __init__(self, model: "Model") -> None:
        self._model = model

    def __repr__(self) -> str:
        return f"<Strategy replicas={self.num_replicas_in_sync}>"

    @property
    def num_replicas_in_sync(self) -> int:
        """Those of all workers."""
        return self._model.replicas

    def experimental_distribute_dataset(self, x: Any, y: Any = None, batch_size: Optional[int] = None, sample_weight: Any = None, *,
                                        shuffle: Any = True, training: bool = True, split: str = "train") -> DistributedDataset:
        """Shares out data: its batches are cut into shares, one for each replica.

        Args:
            x: As in `fit`: arrays, the text of a dataset, a tf.data.Dataset.
            y: The targets of arrays.
            batch_size: Of all replicas together; None: 64 times the replicas.
            sample_weight: The weight of each example.
            shuffle: Whether, or through a buffer of how many examples.
            training: False: step functions evaluate, and nothing is shuffled.
            split: Of a dataset's text.

        Returns:
            A DistributedDataset, which is iterated over once for each epoch.

        Raises:
            UsageError: There are more replicas than examples, or they do not wait for each other (parameter-server without mode=sync).
        """
        from .model import _checked_batch, _shuffle_text

        model = self._model
        with model._alone():
            x = model._built_inputs(x, y)
            model._need_compiled()
            model._forget_distributed()
            batch = _checked_batch(batch_size) or _data.batch_of(x) or 0
            data = model._data_of(x, y, sample_weight, split)
            pointer = ctypes.c_void_p()
            try:
                given = fill(declared.ls_distribute_options, batch=batch, shuffle=_shuffle_text(shuffle) if training else None,
                             evaluation=int(not training))
                check(library().ls_distribute_dataset_sized(model._model, data.pointer, ctypes.byref(given), ctypes.sizeof(given), ctypes.byref(pointer)))
            finally:
                data.close()
            made = DistributedDataset(model, pointer)
            model._distributed.append((weakref.ref(made), pointer))
            return made

    def run(self, function: Callable[..., Any], args: Sequence[Any] = ()) -> List[Any]:
        """Calls a function on a thread of each replica of this process at the same time. What one raises ends the step on all, and comes out; the batch
        may be run again.

        Args:
            function: The step.
            args: Its arguments: one batch of a distributed dataset, in whose place it gets its Replica, and anything else.

        Returns:
            What each replica returned.
        """
        batches = [one for one in args if isinstance(one, Batch)]
        if len(batches) != 1 or batches[0].dataset._model is not self._model:
            raise UsageError("strategy.run: expected one batch of a distributed dataset of this model in args=")
        batch, model = batches[0], self._model
        if batch.dataset._batch is not batch:
            raise UsageError("strategy.run: this batch has been run, or another one was taken after it; expected the last one that the dataset gave")
        batch.was_given = True
        calls, results = Calls(model), {}

        def each(context: int, _context: Any) -> int:
            replica = Replica(context, model)
            try:
                results[replica.local_rank] = function(*(replica if one is batch else one for one in args))
                return declared.LS_OK
            except AbortedError as error:  # of another replica, whose reason is what comes out
                return error.status
            except BaseException as error:  # noqa: B902  (nothing may pass through C)
                return calls.fail(error)
            finally:
                replica._context = None

        called = _step_function(each)
        model._call(calls, lambda: int(library().ls_strategy_run(batch.dataset._open(), called, None)))
        batch.dataset._batch = None
        model._local_replicas = len(results)
        return [results[index] for index in sorted(results)]

    def reduce(self, reduce_op: Any, values: Sequence[Any], axis: None = None) -> Any:
        """Reduces what `run` returned over all replicas of all workers.

        Args:
            reduce_op: "sum" or "mean".
            values: A number, or an array of one shape, for each replica of this process.
            axis: None, as in TensorFlow.

        Returns:
            A number or an array.
        """
        if axis is not None:
            raise UsageError(f"strategy.reduce: axis={axis!r}; expected None: reduce inside the step")
        name = str(getattr(reduce_op, "name", reduce_op)).lower()
        return self._over_replicas(values, 1, lambda flat, count, out: library().ls_strategy_reduce(self._model._run, encode(name), flat, count, out))[0]

    def gather(self, values: Sequence[Any]) -> List[Any]:
        """Collects what all replicas of all workers returned.

        Args:
            values: A number, or an array of one shape, for each replica of this process.

        Returns:
            A list in the order of their ranks.
        """
        return self._over_replicas(values, self.num_replicas_in_sync, lambda flat, count, out: library().ls_strategy_gather(self._model._run, flat, count, out))

    def _over_replicas(self, values: Sequence[Any], parts: int, call: Callable[..., int]) -> List[Any]:
        import numpy

        arrays = [numpy.asarray(value, dtype="float64") for value in values]
        if not arrays or len({array.shape for array in arrays}) != 1:
            raise UsageError("strategy.reduce and gather: expected a number, or an array of one shape, for each replica of this process")
        here = self._model._local_replicas
        if here is None:
            raise UsageError("strategy.reduce and gather: nothing has been run yet; they take what strategy.run returned")
        if len(arrays) != here:
            raise UsageError(f"strategy.reduce and gather: {len(arrays)} values; expected one for each of the {here} replicas of this process")
        flat = numpy.concatenate([array.ravel() for array in arrays])
        shape, count = arrays[0].shape, arrays[0].size
        out = numpy.empty((parts, count))
        with self._model._alone():
            check(call(flat.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), count, out.ctypes.data_as(ctypes.POINTER(ctypes.c_double))))
        return [part.reshape(shape) if shape else float(part[0]) for part in out]
