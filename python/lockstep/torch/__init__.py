# SPDX-License-Identifier: Apache-2.0
"""Backend "lockstep" of torch.distributed, for tensors in host memory:

    import lockstep.torch
    torch.distributed.init_process_group("lockstep")

DistributedDataParallel, fully_shard, DTensor and torch.distributed.checkpoint then communicate through Lockstep: the collective is
a plugin (LOCKSTEP_COLLECTIVE), each schedule is verified before it runs, and a lost process has its name in the exception.
"""
from typing import Any, Optional

import torch.distributed as dist

from ._group import NAME, LockstepBackend, LockstepProcessGroup
from ._options import Options
from ._rendezvous import open_group

__all__ = ["Options", "about", "register", "schedule_check"]


def _create(opts: Any, pg_options: Any = None) -> Any:
    """A process group where it is PyTorch's only backend; else a backend beside others, or inside PyTorch's checking wrapper."""
    core = open_group(opts, pg_options)
    several = opts.process_group is not None and opts.process_group._get_backend_name() != "custom"
    if several or dist.get_debug_level() == dist.DebugLevel.DETAIL:
        return LockstepBackend(core)
    return LockstepProcessGroup(opts.store, core)


def register() -> None:
    """Makes the backend known. Importing this module does it, and so does PyTorch where the package is installed."""
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def _core(group: Optional[dist.ProcessGroup]) -> Any:
    import torch

    group = group if group is not None else dist.group.WORLD
    core = getattr(group, "_core", None)
    if core is None and isinstance(group, dist.ProcessGroup):  # not where this process is no member
        core = getattr(group._get_backend(torch.device("cpu")), "_core", None)
    if core is None:
        raise ValueError("the process group does not communicate by backend lockstep")
    return core


def about(group: Optional[dist.ProcessGroup] = None) -> str:
    """What runs, as "ring over shared-memory, 4 ranks, verified"."""
    return _core(group).communicator.about()


def schedule_check(group: Optional[dist.ProcessGroup] = None) -> bool:
    """Whether the schedules of the group's collective have been proved right, for this number of ranks, before the first one ran. False for
    a single rank, which has none."""
    return about(group).endswith(", verified")


register()
