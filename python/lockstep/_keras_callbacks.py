# SPDX-License-Identifier: Apache-2.0
"""Callbacks as Keras's `fit` takes them: one or several. Those of Keras itself that need a keras.Model become ours by their name and
options, or are refused."""
import glob
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from ._errors import UsageError
from .callbacks import MOMENTS, Callback, CallbackLike
from .layers import PACKAGES

# What reads or sets parts of a keras.Model that Lockstep's has not, and what does the same here.
HERE = {
    "BackupAndRestore": "fit(checkpoints={'folder': 'checkpoints', 'resume': True}) keeps the whole state and goes on from it",
    "History": "fit returns a lockstep.History, and model.history() is that of the last fit",
    "LearningRateScheduler": "set self.model.learning_rate in on_epoch_begin of a lockstep.Callback, or compile(learning_rate_schedule=...)",
    "OrbaxCheckpoint": "fit(checkpoints='folder') keeps the whole state",
    "ReduceLROnPlateau": "give the text 'reduce_lr_on_plateau:monitor=val_loss,factor=0.1,patience=10'",
    "SwapEMAWeights": "compile with 'adam:use_ema=true', whose averages become the weights when the training ends",
    "TensorBoard": "give the text 'tensorboard:log_dir=logs'",
}
# The library's callback for one of Keras's: its options, which have Keras's names, and what else must have the value that changes nothing.
TEXTS: Dict[str, Tuple[str, str, Dict[str, Tuple[Any, ...]]]] = {
    "ReduceLROnPlateau": ("reduce_lr_on_plateau", "monitor factor patience mode min_delta cooldown min_lr", {}),
    "TensorBoard": ("tensorboard", "log_dir histogram_freq write_steps_per_second update_freq",
                    {"write_images": (False,), "embeddings_freq": (0,), "embeddings_metadata": (None, {}), "_should_trace": (False,)}),
}
SHOWN = {"_should_trace": "profile_batch"}  # as the argument is called


class Scheduler(Callback):
    """keras.callbacks.LearningRateScheduler."""

    def __init__(self, schedule: Any) -> None:
        self.schedule = schedule

    def on_epoch_begin(self, epoch: int, logs: Any) -> None:
        try:
            rate = self.schedule(epoch, self.model.learning_rate)
        except TypeError:
            rate = self.schedule(epoch)
        self.model.learning_rate = float(rate)


def kind_of(callback: Any) -> Tuple[Optional[str], bool]:
    """The class of Keras that it is, or that its own class is derived from; and whether it is that itself: else what it overrides would be lost."""
    for kind in type(callback).__mro__:
        if kind.__module__.split(".")[0] in PACKAGES and kind.__name__ in (*HERE, "ModelCheckpoint"):
            return kind.__name__, kind is type(callback)
    return None, False


def listed(given: Any) -> List[CallbackLike]:
    """What `fit` is given, as a list."""
    is_one = isinstance(given, str) or callable(given) or any(hasattr(given, moment) for moment in MOMENTS)
    return [given] if is_one else list(given or ())


def callbacks_of(given: Any, is_chief: bool = True) -> List[CallbackLike]:
    return [_ours(callback, is_chief) for callback in listed(given)]


def _ours(callback: Any, is_chief: bool) -> CallbackLike:
    if isinstance(callback, type):
        raise UsageError(f"callbacks: {callback.__name__} is a class; expected an object, such as {callback.__name__}()")
    name, is_itself = kind_of(callback)
    if name in TEXTS and is_itself:
        return _text(callback, *TEXTS[name])
    if name == "LearningRateScheduler" and is_itself:
        return Scheduler(callback.schedule)
    if name == "ModelCheckpoint":
        return _saver(callback, is_chief)
    if name:
        raise UsageError(f"callbacks: {name} of Keras needs a keras.Model; here {HERE[name]}")
    return callback


def _refuse(callback: Any, option: str, value: Any, instead: str = "leave it out") -> None:
    raise UsageError(f"callbacks: {type(callback).__name__} of Keras has {SHOWN.get(option, option)}={value!r}, which Lockstep does not do; {instead}")


def _text(callback: Any, name: str, options: str, idle: Dict[str, Tuple[Any, ...]]) -> str:
    for option, values in idle.items():
        value = getattr(callback, option, values[0])
        if value not in values:
            _refuse(callback, option, value)
    given = [f"{option}={_word(getattr(callback, option))}" for option in options.split() if getattr(callback, option, None) is not None]
    return f"{name}:{','.join(given)}"


def _word(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not re.search(r'[,"\\]', text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _saver(callback: Any, is_chief: bool) -> CallbackLike:
    """Keras's own object calls model.save and save_weights, on the process that saves for all."""
    path = str(callback.filepath)
    if callback.save_freq != "epoch":
        _refuse(callback, "save_freq", callback.save_freq, "fit(checkpoints={'folder': ..., 'steps': N}) keeps the whole state every N steps")
    if not path.endswith((".keras", ".weights.h5", ".safetensors")):
        _refuse(callback, "filepath", path, "a model is written as .keras, and weights as .weights.h5")
    return callback if is_chief else type("ModelCheckpoint", (Callback,), {"on_epoch_end": lambda self, epoch, logs: None})()


# ---- BackupAndRestore ----

BACKUP = "backup-{step:08}"


def backup_of(given: Any, checkpoints: Any) -> Tuple[List[CallbackLike], Any, Optional[str]]:
    """The other callbacks, the checkpoints that one of BackupAndRestore means, and the folder that it empties after a training."""
    callbacks = listed(given)
    backups = [callback for callback in callbacks if kind_of(callback) == ("BackupAndRestore", True)]
    if not backups:
        return callbacks, checkpoints, None
    if checkpoints is not None or len(backups) > 1:
        raise UsageError("callbacks: BackupAndRestore of Keras keeps checkpoints: not together with another one or with checkpoints=")
    backup, folder = backups[0], os.fspath(backups[0].backup_dir)
    steps = 0 if backup.save_freq == "epoch" else backup.save_freq
    rest = [callback for callback in callbacks if callback is not backup]
    return rest, {"folder": folder, "name": BACKUP, "steps": steps, "resume": True}, folder if backup.delete_checkpoint else None


def forget(folder: str) -> None:
    """Removes the backups of a training that is complete, as Keras does."""
    for path in glob.glob(os.path.join(glob.escape(folder), "backup-*.safetensors")):
        os.remove(path)
