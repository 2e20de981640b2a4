# SPDX-License-Identifier: Apache-2.0
"""Lockstep: trains Keras models on many devices under a strategy chosen by name."""
from ._errors import (AbortedError, CommandError, InputError, LockstepError, OutOfMemoryError, PeerLostError, UnavailableError,
                      UnsupportedError, UsageError)

__all__ = ["AbortedError", "CommandError", "InputError", "LockstepError", "OutOfMemoryError", "PeerLostError", "UnavailableError",
           "UnsupportedError", "UsageError"]
