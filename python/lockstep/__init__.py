# SPDX-License-Identifier: Apache-2.0
"""Lockstep: trains Keras models on many devices under a strategy chosen by name.

    import lockstep
    model = lockstep.Model("cnn", strategy="ring", replicas=2)
    model.compile("adam")
    model.fit(x, y, epochs=2)

docs/python.md shows the rest. Nothing is opened, and NumPy is not imported, before it is needed.
"""
from typing import TYPE_CHECKING, Any, List

from ._errors import (AbortedError, CommandError, InputError, LockstepError, OutOfMemoryError, PeerLostError, UnavailableError,
                      UnsupportedError, UsageError)

if TYPE_CHECKING:
    from . import layers, loops, ops
    from .callbacks import Callback, History
    from .laboratory import Comparison, bench, compare, simulate, verify
    from .model import Model, Sequential, Variable

    __version__: str

# Where each name of __all__ is that is neither an error nor a module of that name.
_PLACES = {"Model": "model", "Sequential": "model", "Variable": "model", "Callback": "callbacks", "History": "callbacks", "Comparison": "laboratory",
           "bench": "laboratory", "compare": "laboratory", "simulate": "laboratory", "verify": "laboratory"}

__all__ = ["AbortedError", "Callback", "CommandError", "Comparison", "History", "InputError", "LockstepError", "Model", "OutOfMemoryError",
           "PeerLostError", "Sequential", "UnavailableError", "UnsupportedError", "UsageError", "Variable", "bench", "compare", "layers", "loops", "ops",
           "simulate", "verify"]


# What programs for Keras and TensorFlow look for here.
_INSTEAD = {"callbacks": "give fit texts such as 'early_stopping:patience=3', objects of Keras, or a class of lockstep.Callback",
            "losses": "give compile a text such as 'huber:delta=2', an object of Keras, or a function that composes lockstep.ops",
            "metrics": "give compile a text such as 'auc:curve=PR', an object of Keras, or a function that composes lockstep.ops",
            "optimizers": "give compile a text such as 'adam:learning_rate=0.01', or an object of Keras",
            "load_model": "lockstep.Model('model.keras') opens a file", "models": "lockstep.Model and lockstep.Sequential are models",
            "distribute": "give a model its strategy by name, as in lockstep.Model('cnn', strategy='mirrored', replicas=2)"}


def _find(name: str) -> Any:
    import importlib

    if name == "__version__":
        from ._native import library

        return library().ls_version().decode()
    if name not in __all__:
        hint = _INSTEAD.get("distribute" if name.endswith("Strategy") else name)
        raise AttributeError(f"module 'lockstep' has no attribute '{name}'" + (f": {hint}" if hint else ""))
    if name not in _PLACES:
        return importlib.import_module("." + name, __name__)
    value = getattr(importlib.import_module("." + _PLACES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # which would take any name for one of the package
    __getattr__ = _find
