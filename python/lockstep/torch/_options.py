# SPDX-License-Identifier: Apache-2.0
"""What a group may be told: by the environment, or by `pg_options` of init_process_group and new_group."""
import os
from typing import Any, NamedTuple, Optional

from torch._C._distributed_c10d import Backend

COLLECTIVE = "ring"


class Options(Backend.Options):
    """For `pg_options`: what is None comes from the environment.

    collective   how reductions travel: "ring", "direct", "two-level:node=2", a shared object; LOCKSTEP_COLLECTIVE
    transport    None: by hosts; "shared-memory", "ucx"; LOCKSTEP_TRANSPORT
    plugin_path  folders of plugins, before the others; LOCKSTEP_PLUGIN_PATH
    network      of transport ucx beyond this host, as `lockstep train --network`; LOCKSTEP_NETWORK
    """

    def __init__(self, collective: Optional[str] = None, transport: Optional[str] = None, plugin_path: Optional[str] = None,
                 network: Optional[str] = None) -> None:
        super().__init__("lockstep")
        self.collective = collective
        self.transport = transport
        self.plugin_path = plugin_path
        self.network = network


class Settings(NamedTuple):
    collective: str
    transport: Optional[str]
    plugin_path: Optional[str]
    network: Optional[str]


def settings_of(given: Any) -> Settings:
    if given is not None and not isinstance(given, Options):
        raise TypeError(f"pg_options of backend lockstep: expected lockstep.torch.Options, got {type(given).__name__}")

    def one(name: str) -> Optional[str]:
        return getattr(given, name, None) or os.environ.get("LOCKSTEP_" + name.upper()) or None

    return Settings(one("collective") or COLLECTIVE, one("transport"), one("plugin_path"), one("network"))
