# SPDX-License-Identifier: Apache-2.0
"""Callbacks as Keras's `fit` takes them: one or several, and those of Keras itself that need a keras.Model refused."""
from typing import Any, Iterable, List, Optional

from ._errors import UsageError
from .callbacks import MOMENTS, CallbackLike

PACKAGES = ("keras", "tf_keras", "tensorflow")

# What reads or sets parts of a keras.Model that Lockstep's has not, and what does the same here.
HERE = {
    "BackupAndRestore": "fit(checkpoints={'folder': 'checkpoints', 'resume': True}) keeps the whole state and goes on from it",
    "History": "fit returns a lockstep.History, and model.history() is that of the last fit",
    "LearningRateScheduler": "set self.model.learning_rate in on_epoch_begin of a lockstep.Callback, or compile(learning_rate_schedule=...)",
    "ModelCheckpoint": "fit(checkpoints='folder') keeps the whole state, and the text 'early_stopping:restore_best_weights=true' the best weights",
    "OrbaxCheckpoint": "fit(checkpoints='folder') keeps the whole state",
    "ReduceLROnPlateau": "give the text 'reduce_lr_on_plateau:monitor=val_loss,factor=0.1,patience=10'",
    "SwapEMAWeights": "compile with 'adam:use_ema=true', whose averages become the weights when the training ends",
    "TensorBoard": "give the text 'tensorboard:log_dir=logs'",
}


def callbacks_of(given: Any) -> Optional[Iterable[CallbackLike]]:
    """What `fit` is given as a list."""
    is_one = isinstance(given, str) or callable(given) or any(hasattr(given, moment) for moment in MOMENTS)
    callbacks: List[CallbackLike] = [given] if is_one else list(given or ())
    for callback in callbacks:
        _refuse_keras(callback)
    return callbacks


def _refuse_keras(callback: Any) -> None:
    """Also classes that are derived from those of Keras."""
    for kind in type(callback).__mro__:
        if kind.__module__.split(".")[0] in PACKAGES and kind.__name__ in HERE:
            raise UsageError(f"callbacks: {kind.__name__} of Keras needs a keras.Model; here {HERE[kind.__name__]}")
