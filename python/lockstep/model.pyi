# SPDX-License-Identifier: Apache-2.0
# Made by lab/pages/python_stubs.py from the package, layers/ and lockstep.h; change those, not this file.
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy

from .callbacks import CallbackLike, History, Logs
from .layers import Layer

class Variable(NamedTuple):
    """A weight of a model."""
    name: str
    shape: Tuple[int, ...]
    trainable: bool

class Model:
    """A model, and the run that trains it.

    `model`: a built-in name ("cnn"), a file of Keras model JSON, a .keras or .h5 file, the JSON itself, or a keras.Model, whose weights
    are taken. `custom_objects` are the classes of lockstep.ops.Layer that it names, in a list or as Keras has them in a dictionary.
    `options` are further fields of struct ls_run_options (lockstep.h).

    One thread uses a model at a time; several models may be used by several threads."""

    def __init__(self, model: Any, *, strategy: Optional[str]=None, replicas: int=0, device: Optional[str]=None, threads: int=0, seed: int=0, data: Any=None, custom_objects: Any=(), deadline_seconds: Optional[float]=..., plugin_path: Optional[str]=..., progress: Optional[int]=..., verbose: Optional[int]=..., precision: Optional[str]=..., wire: Optional[str]=..., devices: Optional[str]=..., cluster: Optional[str]=..., insecure: Optional[int]=..., network: Optional[str]=..., silence_seconds: Optional[float]=..., join_seconds: Optional[float]=..., elastic: Optional[str]=..., share: Optional[str]=...) -> None:
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
    def output_shape(self) -> Tuple[Optional[int], ...]:
        """As in Keras: None for the examples, then the sizes of a prediction."""

    def summary(self, print_fn: Optional[Callable[[str], Any]]=None) -> None:
        """A table like Keras's."""

    @property
    def name(self) -> str:
        """That of the model's JSON."""

    @property
    def layers(self) -> List[Layer]:
        """The layers in their order, each with `name`, `class_name` and `config`. As in Keras a Sequential model has its input not among
        them. They describe the model; changing them changes nothing."""

    def get_layer(self, name: Optional[str]=None, index: Optional[int]=None) -> Layer:
        """The layer of this name, or the one at this place in `layers`."""

    def __repr__(self) -> str:
        ...

    @property
    def variables(self) -> List[Variable]:
        """Names, shapes, and whether gradients change them, in the order of get_weights."""

    def count_params(self) -> int:
        """How many numbers the variables have, as in Keras."""

    def get_weights(self) -> List['numpy.ndarray']:
        ...

    def get_gradients(self) -> List['numpy.ndarray']:
        """In a callback of a fit: what the last step reduced."""

    def set_weights(self, weights: Sequence[Any]) -> None:
        ...

    def load_weights(self, path: Union[str, 'os.PathLike[str]']) -> None:
        """From .safetensors, .weights.h5, .keras or .h5."""

    def save_weights(self, path: Union[str, 'os.PathLike[str]'], overwrite: bool=True) -> None:
        """To .safetensors, .weights.h5 or .keras."""

    def save(self, path: Union[str, 'os.PathLike[str]'], overwrite: bool=True) -> None:
        """FILE.keras is the model for Keras's load_model. FILE.safetensors has the weights and the state of the optimizer, from which `load`
        goes on (docs/checkpoints.md)."""

    def load(self, path: Union[str, 'os.PathLike[str]']) -> None:
        """Goes on from a file that `save` has written, of a model of the same variables and the same optimizer."""

    def copy_weights_to(self, keras_model: Any) -> None:
        """Gives the weights to a keras.Model of the same layers."""

    def compile(self, optimizer: Any=None, loss: Any=None, metrics: Any=None, *, own_optimizer: Any=..., lr_scaling: Optional[str]=..., learning_rate_schedule: Optional[str]=..., loss_scale: Optional[str]=..., keep_outputs: Optional[int]=...) -> None:
        """Texts as in docs/models.md ("adam:learning_rate=0.01"), or objects of Keras. None: as the model's file says, else adam, and
        loss and metrics by the last layer. `options` are further fields of struct ls_compile_options."""

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

    def fit(self, x: Any=None, y: Any=None, batch_size: Optional[int]=None, epochs: int=1, verbose: Verbose='auto', callbacks: Optional[Iterable[CallbackLike]]=None, validation_split: float=0.0, validation_data: Any=None, shuffle: Union[bool, int]=True, class_weight: Optional[Dict[int, float]]=None, sample_weight: Any=None, *, steps_per_epoch: Optional[int]=None, validation_steps: Optional[int]=None, initial_epoch: int=0, validation_batch_size: Optional[int]=None, validation_freq: Union[int, Iterable[int]]=1, split: str='train', checkpoints: Union[None, str, Dict[str, Any]]=None, steps: Optional[int]=..., replica_batch: Optional[int]=..., microbatches: Optional[int]=..., accumulate: Optional[int]=..., check_replicas: Optional[int]=..., report: Optional[str]=..., timeline: Optional[str]=..., timeline_first: Optional[int]=..., timeline_last: Optional[int]=..., command: Optional[str]=..., log_every: Optional[int]=...) -> History:
        """Trains. `x`: an array, a list of one for each input, the text of a dataset ("fashion-mnist"), a function that returns an iterator
        over batches (x, y), such an iterator, a tf.data.Dataset or a keras.utils.PyDataset. Arrays of uint8, int32 and float32 are read
        where they are, until the next fit on other data, so they must not change while the model trains. `batch_size` is that of all replicas together; None: 64 times the replicas.
        `verbose`: "auto", None and 1 show a bar on a terminal, and elsewhere, as in a notebook, a line for each epoch; 2 always lines; 0 nothing.
        `validation_batch_size` changes no number: a validation runs at the batch of the training.
        `checkpoints` is a folder, or fields of struct ls_checkpoint_options; `options` are further fields of struct ls_fit_options."""

    def history(self) -> History:
        """What the last fit saw, also when it failed or was interrupted."""

    def evaluate(self, x: Any=None, y: Any=None, batch_size: Optional[int]=None, verbose: Verbose='auto', sample_weight: Any=None, *, callbacks: Optional[Iterable[CallbackLike]]=None, return_dict: bool=False, split: str='test') -> Union[float, List[float], Logs]:
        """Loss and metrics: as Keras a number, a list, or a dictionary. `verbose`: "auto", None and 1 show a bar on a terminal while it runs, and then
        a line, as 2 does; 0 nothing."""

    def predict(self, x: Any, batch_size: Optional[int]=None, verbose: Verbose='auto', *, callbacks: Optional[Iterable[CallbackLike]]=None, split: str='test') -> 'numpy.ndarray':
        """The output for each example, in their order. `verbose`: "auto", None and 1 show a bar on a terminal while it runs."""

    def train_on_batch(self, x: Any, y: Any=None, sample_weight: Any=None, *, return_dict: bool=False) -> Union[float, List[float], Logs]:
        """One step on all of these examples; loss and metrics of this batch alone."""

    def test_on_batch(self, x: Any, y: Any=None, sample_weight: Any=None, *, return_dict: bool=False) -> Union[float, List[float], Logs]:
        ...

    def predict_on_batch(self, x: Any) -> 'numpy.ndarray':
        ...

class Sequential(Model):
    """A model of layers, one after the other: `Sequential([layers.Input((784,)), layers.Dense(10)], replicas=2)`. The keywords are those
    of Model."""

    def __init__(self, layers: Sequence[Layer], name: str='sequential', *, strategy: Optional[str]=..., replicas: int=..., device: Optional[str]=..., threads: int=..., seed: int=..., data: Any=..., custom_objects: Any=..., deadline_seconds: Optional[float]=..., plugin_path: Optional[str]=..., progress: Optional[int]=..., verbose: Optional[int]=..., precision: Optional[str]=..., wire: Optional[str]=..., devices: Optional[str]=..., cluster: Optional[str]=..., insecure: Optional[int]=..., network: Optional[str]=..., silence_seconds: Optional[float]=..., join_seconds: Optional[float]=..., elastic: Optional[str]=..., share: Optional[str]=...) -> None:
        ...

def is_keras(model: Any) -> bool:
    ...

def build_keras(model: Any, inputs: Optional[Sequence[Any]]) -> None:
    """By the shapes of such examples."""

def source_of(model: Any) -> Tuple[Any, bool]:
    """A built-in name or a file, or the JSON of a model; and whether it is JSON."""
