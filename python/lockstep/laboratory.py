# SPDX-License-Identifier: Apache-2.0
"""The commands that measure and prove, as functions. Each runs the command `lockstep` in a process of its own, because compare needs
processes of its own anyway, and returns what it writes as JSON. `lockstep NAME --help=all` explains every option; here they are keywords:
`--speed-steps=0` is `speed_steps=0`, and a list is joined by commas."""
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Dict, List, Optional, Sequence, Union

from ._errors import BY_STATUS, CommandError, UsageError
from ._native import ERROR, command_path

INTERRUPTED = 130
WARNING = "lockstep: warning: "
PROGRESS = "progress: "
WIPE = "\r\033[K"
OPTION = re.compile(r"`[^`]*`|(?<!\w)'[^']*'(?!\w)|lockstep [a-z][^;,)]*|(?<![\w/=-])--([a-z][a-z-]*)")  # not of a command line, nor between quotes
COMMAND_LINE_MOST = 100_000  # bytes
GRACE_SECONDS = 20  # that an interrupted command has to end its steps

Names = Union[str, Sequence[str], None]


class Comparison:
    """What `lockstep compare` found: `report` is its JSON, `str()` its tables and verdict, and a notebook shows its page."""

    def __init__(self, report: Dict[str, Any], text: str, page: str) -> None:
        self.report = report
        self.text = text
        self.page = page

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Comparison of {self.report['model']} on {self.report['dataset']}: {len(self.report['runs'])} runs>"

    def __getitem__(self, key: str) -> Any:
        return self.report[key]

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the page, which needs no network.

        Args:
            path: Of the HTML file.
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.page)

    def _repr_html_(self) -> str:
        """In a frame of its own, so that the page's style is not the notebook's."""
        return f'<iframe srcdoc="{html.escape(self.page, quote=True)}" style="width: 100%; height: 48em; border: 0"></iframe>'


def compare(model: Any, dataset: Any, y: Any = None, *, strategies: Names = None, verbose: Union[bool, str] = "auto", **options: Any) -> Comparison:
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
    if verbose == "auto":
        verbose = False
        options.setdefault("progress", True if sys.stderr is not None and sys.stderr.isatty() else None)
    elif verbose:
        options.setdefault("progress", True)
    verbose = bool(verbose)
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        page = os.path.join(folder, "compare.html")
        text = _run("compare", [], dict(options, strategies=strategies, html=page, quiet=None if verbose else True), folder, "report", verbose,
                    [*_model_arguments(model, dataset, folder), *_dataset_arguments(dataset, y, folder), "--advice=python"])
        with open(page, encoding="utf-8") as file:
            return Comparison(_json_of(folder), text, _told(file.read(), folder))


def verify(*collectives: str, verbose: bool = False, **options: Any) -> Dict[str, Any]:
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
    return _table("verify", collectives, verbose, options)


def simulate(*collectives: str, verbose: bool = False, **options: Any) -> Dict[str, Any]:
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
    return _table("simulate", collectives, verbose, options)


def bench(*collectives: str, verbose: bool = False, **options: Any) -> Dict[str, Any]:
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
    return _table("bench", collectives, verbose, options)


def _table(name: str, collectives: Sequence[str], verbose: bool, options: Dict[str, Any]) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        _run(name, collectives, options, folder, "json", verbose)
        return _json_of(folder)


# ---- What the command is given ----

OWN = "is written in this program, and the command, which runs as a process of its own, does not have it: make it a plugin in C (docs/own-parts.md)"


def _argument(name: str, value: Any) -> str:
    for one in value if isinstance(value, (list, tuple)) else [value]:
        if callable(one):
            raise UsageError(f"{name}: {getattr(one, '__name__', one)!r} {OWN}")
    option = "--" + name.replace("_", "-")
    if value is True:
        return option
    if value is False:
        return option + "=off"
    return f"{option}={','.join(map(str, value)) if isinstance(value, (list, tuple, range)) else value}"


def _model_arguments(model: Any, dataset: Any, folder: str) -> List[str]:
    from ._data import first_of
    from .model import Model, build_keras, is_keras, source_of

    if isinstance(model, Model):
        for _, name in model._registered.names if model._registered else ():
            raise UsageError(f"model: {name!r} {OWN}")
        path = os.path.join(folder, "model.keras")
        model.save(path)
        return ["--model=" + path, "--model-name=" + model.name]
    if is_keras(model) and not getattr(model, "built", True):
        build_keras(model, first_of(dataset))
    source, is_json = source_of(model)
    if is_json:
        name = _name_of(source)
        # Messages begin with the name of the file, which is the model's where a file can have it.
        path = os.path.join(folder, name if re.fullmatch(r"\w[\w-]{0,99}", name) else "model")
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
        arguments = ["--model=" + path, "--model-name=" + name]
    else:
        arguments = ["--model=" + os.fsdecode(source)]
    if is_keras(model):
        arguments.append("--initial-weights=" + os.path.join(folder, "model.weights.h5"))
        model.save_weights(os.path.join(folder, "model.weights.h5"))
    return arguments


def _name_of(source: str) -> str:
    """The model's own, of its JSON."""
    try:
        return str(json.loads(source)["config"]["name"])
    except (ValueError, KeyError, TypeError):  # the command says what is wrong
        return "model"


def _dataset_arguments(dataset: Any, y: Any, folder: str) -> List[str]:
    if isinstance(dataset, str):
        if y is not None:
            raise UsageError(f"the dataset '{dataset}' has its own targets: y is for arrays")
        return ["--dataset=" + dataset]
    import numpy

    from ._data import as_array, as_inputs

    named = [("x" if index == 0 else f"x{index + 1}", array) for index, array in enumerate(as_inputs(dataset))]
    for name, array in named + ([] if y is None else [("y", as_array(y, "the target"))]):
        numpy.save(os.path.join(folder, name + ".npy"), array)
    names = [name for name, _ in named] + ([] if y is None else ["y"])
    text = "arrays:" + ",".join(f"{name}={_quoted(os.path.join(folder, name))}.npy" for name in names)
    return ["--dataset=" + text, f"--dataset-name={len(named[0][1])} examples"]


def _quoted(path: str) -> str:
    """As the value of an option, whatever signs it has."""
    return re.sub(r'[:,+*?\[\]"\\]', r"\\\g<0>", path)


# ---- The process ----

def _json_path(folder: str) -> str:
    return os.path.join(folder, "result.json")


def _json_of(folder: str) -> Dict[str, Any]:
    with open(_json_path(folder), encoding="utf-8") as file:
        found: Dict[str, Any] = json.loads(_told(file.read(), folder))
        return found


def _told(text: str, folder: str) -> str:
    """What the command writes, without the folder of files that are gone when it is read."""
    return text.replace(folder + os.sep, "")


def _run(name: str, collectives: Sequence[str], options: Dict[str, Any], folder: str, writes: str, verbose: bool,
         arguments: Sequence[str] = ()) -> str:
    """What the command prints on stdout. With a result in its file it has done its work, whatever its exit code."""
    command = [command_path(), name, *collectives, *arguments, *(_argument(key, value) for key, value in options.items() if value is not None),
               f"--{writes}={_json_path(folder)}"]
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **_command_line()})
    except OSError as error:
        raise BY_STATUS[4](f"{command[0]}: {error.strerror}; LOCKSTEP_PROGRAM names the command") from None
    said: List[str] = []
    reader = threading.Thread(target=_read_lines, args=(process.stderr, said, verbose, folder), daemon=True)
    reader.start()
    try:
        out = process.stdout.read() if process.stdout else ""
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        reader.join(GRACE_SECONDS)
        for stream in (process.stdout, process.stderr):
            if stream and not reader.is_alive():
                stream.close()
    if code and (code == INTERRUPTED or not os.path.exists(_json_path(folder))):
        raise _error(name, code, said)
    return _told(out, folder)


def _command_line() -> Dict[str, str]:
    """For reports; Linux takes no variable of more than 128 KiB."""
    text = json.dumps([str(word) for word in getattr(sys, "argv", [])])
    return {"LOCKSTEP_COMMAND_LINE": text} if len(text) <= COMMAND_LINE_MOST else {}


def _read_lines(stream: Any, said: List[str], verbose: bool, folder: str) -> None:
    """On a terminal what is going on is one line that is written anew, and messages come above it."""
    out = sys.stderr
    redraws = out is not None and out.isatty() and os.environ.get("TERM") != "dumb"
    drawn = False
    for line in (_told(line, folder) for line in stream):
        is_progress = line.startswith(PROGRESS)
        if not is_progress:
            said.append(line.rstrip("\n"))
        if out is not None and is_progress and redraws:
            print(WIPE + line[len(PROGRESS):].rstrip("\n")[:shutil.get_terminal_size().columns - 1], end="", file=out, flush=True)
            drawn = True
        elif out is not None and (verbose or is_progress or line.startswith(WARNING)):
            print((WIPE if drawn else "") + _in_python(line.removeprefix(PROGRESS)), end="", file=out, flush=True)
    if drawn:
        print(WIPE, end="", file=out, flush=True)


def _end(process: "subprocess.Popen[str]") -> None:
    """Asks it to end as Ctrl-C does, which a terminal may have done already, then ends it."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=GRACE_SECONDS)
    except BaseException:  # it does not end, or the user insists
        process.kill()
        process.wait()


def _in_python(message: str) -> str:
    """With options as keywords."""
    return OPTION.sub(lambda found: found[1].replace("-", "_") if found[1] else found[0], message)


def _error(name: str, code: int, said: Sequence[str]) -> BaseException:
    if code == INTERRUPTED:
        return KeyboardInterrupt()
    errors = [line[len(ERROR):] for line in said if line.startswith(ERROR)]
    message = errors[-1] if errors else f"lockstep {name} ended with {code}: {' '.join(said[-3:]) or 'nothing was said'}"
    message = _in_python(message)
    message = re.sub(r"(?:dataset )?'arrays:x=x\.npy(?:,\w+=\w+\.npy)*'", "the data", message)
    kind: Optional[Any] = BY_STATUS.get(code)
    return kind(message) if kind and 1 <= code <= 5 else CommandError(message, code)
