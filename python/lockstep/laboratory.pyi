# SPDX-License-Identifier: Apache-2.0
# Made by lab/pages/python_stubs.py from the package, layers/, tools/ and lockstep.h; change those, not this file.
import os
from typing import Any, Dict, Optional, Sequence, Union

Value = Union[None, bool, int, float, str, Sequence[Union[int, float, str]], range]  # of an option

Names = Union[str, Sequence[str], None]

class Comparison:
    """What `lockstep compare` found: `report` is its JSON, `str()` its tables and verdict, and a notebook shows its page."""

    def __init__(self, report: Dict[str, Any], text: str, page: str) -> None:
        ...

    def __str__(self) -> str:
        ...

    def __repr__(self) -> str:
        ...

    def __getitem__(self, key: str) -> Any:
        ...

    def save(self, path: Union[str, 'os.PathLike[str]']) -> None:
        """Writes the page, which needs no network.

        Args:
            path: Of the HTML file.
        """

    def _repr_html_(self) -> str:
        """In a frame of its own, so that the page's style is not the notebook's."""

def compare(model: Any, dataset: Any, y: Any=None, *, strategies: Names=None, verbose: Union[bool, str]='auto', loss: Value=..., loss_weights: Value=..., metrics: Value=..., initial_weights: Value=..., replicas: Value=..., threads: Value=..., device: Value=..., target: Value=..., epochs: Value=..., steps: Value=..., batch: Value=..., replica_batch: Value=..., optimizer: Value=..., precision: Value=..., loss_scale: Value=..., wire: Value=..., reproducible: Value=..., seed: Value=..., shuffle: Value=..., validation: Value=..., round_steps: Value=..., speed_steps: Value=..., cluster: Value=..., join_deadline: Value=..., lost_after: Value=..., network: Value=..., insecure: Optional[bool]=..., deadline: Value=..., plugin_path: Value=..., simulate_network: Value=..., compute_scale: Value=..., step_seconds: Value=..., progress: Optional[bool]=..., model_name: Value=..., dataset_name: Value=..., advice: Value=...) -> Comparison:
    """Trains one model under several strategies, by the command `lockstep compare`.

    Args:
        model: What lockstep.Model takes, or such a model.
        dataset: The text of a dataset, or arrays.
        y: The targets of arrays.
        strategies: Which, as a list; None: those that can train the model here.
        verbose: "auto" shows on a terminal what is going on, True also the command's messages, on stderr; False nothing.
        **options: Those of the command, as `steps=10` for --steps=10.

    Returns:
        A Comparison.

    Raises:
        UsageError: There is no such option, or the model has parts of this program.

    Example:
        >>> found = lockstep.compare("mlp", x, y, strategies=["one-device", "tree"], replicas=2, steps=8, speed_steps=0, verbose=False)
        >>> [run["strategy"] for run in found.report["runs"]]
        ['one-device', 'tree']
    """

def verify(*collectives: str, verbose: bool=False, world: Value=..., count: Value=..., operation: Value=..., ranks_per_host: Value=..., draw: Optional[bool]=..., wire: Optional[bool]=..., element_bytes: Value=..., deadline: Value=..., plugin_path: Value=...) -> Dict[str, Any]:
    """Proves schedules, by the command `lockstep verify`. That something does not hold is no exception.

    Args:
        *collectives: Their names; none: as the command.
        verbose: Shows the command's messages on stderr.
        **options: Those of the command, as `world=[2, 3]`.

    Returns:
        `passed`, and `rows` with one for each collective and operation.

    Raises:
        UnavailableError: There is no such collective.

    Example:
        >>> lockstep.verify("ring", world=3)["passed"]
        True
    """

def simulate(*collectives: str, verbose: bool=False, world: Value=..., bytes: Value=..., operation: Value=..., dtype: Value=..., root: Value=..., network: Value=..., straggler: Value=..., jitter: Value=..., seed: Value=..., deadline: Value=..., against: Value=..., in_place: Optional[bool]=..., svg: Value=..., plugin_path: Value=...) -> Dict[str, Any]:
    """Follows schedules message by message on a network that need not exist, by the command `lockstep simulate`.

    Args:
        *collectives: Their names; none: as the command.
        verbose: Shows the command's messages on stderr.
        **options: Those of the command, as `network="ethernet-100g"`.

    Returns:
        `rows` with the time of each.

    Raises:
        UnavailableError: There is no such collective.

    Example:
        >>> len(lockstep.simulate("ring", "tree", world=8, bytes="64K", network="ethernet-100g")["rows"])
        2
    """

def bench(*collectives: str, verbose: bool=False, replicas: Value=..., bytes: Value=..., operation: Value=..., dtype: Value=..., wire: Value=..., reduction: Value=..., place: Value=..., transport: Value=..., device: Value=..., seconds: Value=..., iterations: Value=..., warmup: Value=..., fresh: Optional[bool]=..., pin: Value=..., deadline: Value=..., topology: Value=..., cluster: Value=..., join_deadline: Value=..., lost_after: Value=..., network: Value=..., insecure: Optional[bool]=..., svg: Value=..., tune: Value=..., write_network: Value=..., plugin_path: Value=...) -> Dict[str, Any]:
    """Times collectives on this machine, by the command `lockstep bench`.

    Args:
        *collectives: Their names; none: as the command.
        verbose: Shows the command's messages on stderr.
        **options: Those of the command, as `bytes="64K"`.

    Returns:
        `rows`, one for each collective and size.

    Raises:
        UnavailableError: There is no such collective.

    Example:
        >>> rows = lockstep.bench("ring", bytes="64K", seconds=0.01, replicas=2)["rows"]
        >>> rows[0]["collective"]
        'ring'
    """
