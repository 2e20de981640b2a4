# SPDX-License-Identifier: Apache-2.0
# Made by lab/pages/python_stubs.py from the package, layers/, tools/ and lockstep.h; change those, not this file.
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy

from .callbacks import CallbackLike, History, Logs
from .layers import Layer
from .loops import Strategy

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

    def __init__(self, model: Any=None, outputs: Any=None, *, inputs: Any=None, name: Optional[str]=None, strategy: Optional[str]=None, replicas: int=0, device: Optional[str]=None, threads: int=0, seed: int=0, data: Any=None, custom_objects: Any=(), deadline_seconds: Optional[float]=..., plugin_path: Optional[str]=..., progress: Optional[int]=..., verbose: Optional[int]=..., precision: Optional[str]=..., wire: Optional[str]=..., compress: Optional[str]=..., devices: Optional[str]=..., cluster: Optional[str]=..., insecure: Optional[int]=..., network: Optional[str]=..., silence_seconds: Optional[float]=..., join_seconds: Optional[float]=..., elastic: Optional[str]=..., share: Optional[str]=..., reproducible: Optional[int]=..., topology: Optional[str]=...) -> None:
        ...

    def close(self) -> None:
        """Frees everything, as the garbage collector does for a model that is no longer referenced."""

    @property
    def replicas(self) -> int:
        """How many there are, in all workers."""

    @property
    def is_chief(self) -> bool:
        """Whether this process has rank 0, and saves what all of them have."""

    @property
    def strategy(self) -> 'Strategy':
        """For training loops of the program's own: what shares out data, runs functions on each replica, and reduces what they return."""

    @property
    def output_shape(self) -> Any:
        """As in Keras: None for the examples, then the sizes of a prediction; of several outputs a list of these, or a dictionary."""

    def summary(self, print_fn: Optional[Callable[[str], Any]]=None) -> None:
        """Prints a table like Keras's.

        Args:
            print_fn: What is called with the text; None: print.
        """

    @property
    def name(self) -> str:
        """That of the model's JSON."""

    @property
    def layers(self) -> List[Layer]:
        """The layers in their order, each with `name`, `class_name`, `config`, `get_weights` and `set_weights`. As in Keras, those of a
        Sequential model do not include its input."""

    def get_layer(self, name: Optional[str]=None, index: Optional[int]=None) -> Layer:
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

    def __repr__(self) -> str:
        ...

    @property
    def variables(self) -> List[Variable]:
        """Names, shapes, and whether gradients change them, in the order of get_weights."""

    def count_params(self) -> int:
        """How many numbers the variables have, as in Keras."""

    def get_weights(self) -> List['numpy.ndarray']:
        """A copy of all variables, in the order of `variables`."""

    def get_gradients(self) -> List['numpy.ndarray']:
        """In a callback of a fit: what the last step reduced."""

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets all variables.

        Args:
            weights: An array for each, as get_weights returns them.

        Raises:
            UsageError: Their number or a shape is another one.

        Example:
            >>> model.set_weights([2 * weight for weight in model.get_weights()])
        """

    def load_weights(self, path: Union[str, 'os.PathLike[str]']) -> None:
        """Reads the variables from a file.

        Args:
            path: Of .safetensors, .weights.h5, .keras or .h5.

        Raises:
            InputError: The file is not there, is damaged, or is of another model.
        """

    def save_weights(self, path: Union[str, 'os.PathLike[str]'], overwrite: bool=True) -> None:
        """Writes the variables to a file.

        Args:
            path: It ends with .safetensors, .weights.h5 or .keras.
            overwrite: False: a file that is there is kept, and UsageError is raised.
        """

    def save(self, path: Union[str, 'os.PathLike[str]'], overwrite: bool=True) -> None:
        """Writes the model to a file.

        Under strategy sharded all workers call model.save at the same place; with stage=3 also save_weights and what reads or sets variables.

        Args:
            path: FILE.keras is the model for Keras's load_model. FILE.safetensors has the weights and the state of the optimizer, from which `load` goes on.
            overwrite: False: a file that is there is kept, and UsageError is raised.
        """

    def load(self, path: Union[str, 'os.PathLike[str]']) -> None:
        """Goes on from a file that `save` has written.

        Args:
            path: Of a model of the same variables and the same optimizer.

        Raises:
            InputError: The file is not there, or is of another model.
        """

    def copy_weights_to(self, keras_model: Any) -> None:
        """Gives the weights to a keras.Model of the same layers.

        Args:
            keras_model: The model that gets them.
        """

    def compile(self, optimizer: Any=None, loss: Any=None, metrics: Any=None, *, loss_weights: Union[None, Sequence[float], Dict[str, float]]=None, run_eagerly: bool=False, steps_per_execution: Union[int, str]=1, jit_compile: Union[bool, str]='auto', own_optimizer: Any=..., lr_scaling: Optional[str]=..., learning_rate_schedule: Optional[str]=..., loss_scale: Optional[str]=..., keep_outputs: Optional[int]=...) -> None:
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

    @property
    def learning_rate(self) -> float:
        """That of the next step; callbacks may set it between steps."""

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        ...

    @property
    def stop_training(self) -> bool:
        """In a callback, `model.stop_training = True` ends the fit, and cannot be taken back. Then it is True until the next fit begins, also
        where a callback of the library has ended the fit."""

    @stop_training.setter
    def stop_training(self, stop: bool) -> None:
        ...

    def interrupt(self) -> None:
        """Ends the fit, evaluation or prediction under way with KeyboardInterrupt, as Ctrl-C does. [any thread]"""

    @property
    def output_names(self) -> List[str]:
        """What losses and metrics call the outputs: the keys where they are a dictionary, else the names of their layers."""

    def fit(self, x: Any=None, y: Any=None, batch_size: Optional[int]=None, epochs: int=1, verbose: Verbose='auto', callbacks: Optional[Iterable[CallbackLike]]=None, validation_split: float=0.0, validation_data: Any=None, shuffle: Union[bool, int]=True, class_weight: Optional[Dict[int, float]]=None, sample_weight: Any=None, *, steps_per_epoch: Optional[int]=None, validation_steps: Optional[int]=None, initial_epoch: int=0, validation_batch_size: Optional[int]=None, validation_freq: Union[int, Iterable[int]]=1, split: str='train', checkpoints: Union[None, str, Dict[str, Any]]=None, steps: Optional[int]=..., replica_batch: Optional[int]=..., microbatches: Optional[int]=..., accumulate: Optional[int]=..., check_replicas: Optional[int]=..., report: Optional[str]=..., timeline: Optional[str]=..., timeline_first: Optional[int]=..., timeline_last: Optional[int]=..., command: Optional[str]=..., log_every: Optional[int]=...) -> History:
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

    def history(self) -> History:
        """What the last fit saw, also when it failed or was interrupted."""

    def evaluate(self, x: Any=None, y: Any=None, batch_size: Optional[int]=None, verbose: Verbose='auto', sample_weight: Any=None, *, callbacks: Optional[Iterable[CallbackLike]]=None, return_dict: bool=False, split: str='test') -> Union[float, List[float], Logs]:
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

    def predict(self, x: Any, batch_size: Optional[int]=None, verbose: Verbose='auto', *, callbacks: Optional[Iterable[CallbackLike]]=None, split: str='test') -> Any:
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

    def train_on_batch(self, x: Any, y: Any=None, sample_weight: Any=None, *, return_dict: bool=False) -> Union[float, List[float], Logs]:
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

    def test_on_batch(self, x: Any, y: Any=None, sample_weight: Any=None, *, return_dict: bool=False) -> Union[float, List[float], Logs]:
        """Computes loss and metrics of all of these examples.

        Args:
            x: Arrays of the examples.
            y: As in `fit`.
            sample_weight: The weight of each example.
            return_dict: Whether the result is a dictionary.

        Returns:
            A number, a list, or a dictionary.
        """

    def predict_on_batch(self, x: Any) -> Any:
        """Computes the output for each example.

        Args:
            x: Arrays of the examples.

        Returns:
            An array of float32, or a list of them, as `predict`.
        """

    def __call__(self, x: Any, training: bool=False) -> Any:
        """As predict_on_batch, for programs that call a model of Keras.

        Args:
            x: Arrays of the examples.
            training: False.

        Returns:
            An array of float32.

        Raises:
            UsageError: `training` is true, or x is what a layer returned.
        """

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

    def __init__(self, layers: Optional[Sequence[Layer]]=None, name: str='sequential', *, strategy: Optional[str]=..., replicas: int=..., device: Optional[str]=..., threads: int=..., seed: int=..., data: Any=..., custom_objects: Any=..., deadline_seconds: Optional[float]=..., plugin_path: Optional[str]=..., progress: Optional[int]=..., verbose: Optional[int]=..., precision: Optional[str]=..., wire: Optional[str]=..., compress: Optional[str]=..., devices: Optional[str]=..., cluster: Optional[str]=..., insecure: Optional[int]=..., network: Optional[str]=..., silence_seconds: Optional[float]=..., join_seconds: Optional[float]=..., elastic: Optional[str]=..., share: Optional[str]=..., reproducible: Optional[int]=..., topology: Optional[str]=...) -> None:
        ...

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

def is_keras(model: Any) -> bool:
    ...

def build_keras(model: Any, inputs: Optional[Sequence[Any]]) -> None:
    """By the shapes of such examples."""

def source_of(model: Any) -> Tuple[Any, bool]:
    """A built-in name or a file, or the JSON of a model; and whether it is JSON."""
