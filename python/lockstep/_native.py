# SPDX-License-Identifier: Apache-2.0
"""The shared library: where it is, its signatures, its messages as exceptions.

    lib = library()
    check(lib.ls_model_save(model, b"model.safetensors"))

Nothing here needs NumPy.
"""
import atexit
import ctypes
import glob
import os
import re
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Type, TypeVar

from . import _declarations as declared
from ._command import missing, warn_of_parts
from ._errors import BY_STATUS, LockstepError, PeerLostError, UnavailableError, UsageError  # noqa: F401  (of the package's other modules)

NAME = "liblockstep.so.0"
FOLDER = os.path.dirname(os.path.abspath(__file__))
PREFIX = os.path.join(FOLDER, "prefix")  # where a wheel has what `meson install` installs
BUILDS = ("build-dev", "build", "build-package")  # of a source tree, the first that has a library
ERROR = "lockstep: error: "

_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None
_kept: List[Tuple[int, str]] = []  # errors with the thread that logged them, until it is known whether an exception says them

_own_folders: Set[str] = set()  # of files between Keras and the library, of which nobody is told
_raised: Dict[int, BaseException] = {}  # by the thread


def library_path() -> str:
    """The file of the library: LOCKSTEP_LIBRARY, else that of the wheel, else that of the source tree's build, else the loader's."""
    named = os.environ.get("LOCKSTEP_LIBRARY")
    if named:
        return named
    installed = sorted(glob.glob(os.path.join(PREFIX, "lib*", NAME)) + glob.glob(os.path.join(PREFIX, "lib*", "*", NAME)))
    source = os.path.dirname(os.path.dirname(FOLDER))
    built = [os.path.join(source, build, NAME) for build in BUILDS if os.path.exists(os.path.join(source, "lockstep.h"))]
    return next((path for path in installed + built if os.path.exists(path)), NAME)


def command_path() -> str:
    """The command: LOCKSTEP_PROGRAM, else the one beside the library, else that of PATH."""
    folder = os.path.dirname(library_path())
    beside = [os.path.join(PREFIX, "bin", "lockstep"), os.path.join(folder, "tools", "lockstep"), os.path.join(folder, "..", "bin", "lockstep"),
              os.path.join(folder, "..", "..", "bin", "lockstep")]
    here = [path for path in beside if folder and os.access(path, os.X_OK) and os.path.isfile(path)]
    return os.environ.get("LOCKSTEP_PROGRAM") or (here[0] if here else "lockstep")


def pkg_config_path() -> str:
    """The folder of lockstep.pc, for PKG_CONFIG_PATH."""
    return os.path.join(os.path.dirname(library_path()), "pkgconfig")


def library() -> ctypes.CDLL:
    """The library with its signatures, opened at the first call. [any thread]"""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _open(library_path())
    return _library


def _open(path: str) -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL(path)
    except OSError as error:
        raise UnavailableError(f"{error}; LOCKSTEP_LIBRARY names the file {NAME}{_what_is_missing()}") from None
    warn_of_parts()
    for name, (result, arguments) in declared.FUNCTIONS.items():
        function = getattr(lib, name, None)  # an older library lacks some
        if function is not None:
            function.restype, function.argtypes = result, arguments
    lib.ls_set_log(_write_line, None)
    atexit.register(_end_log, lib)
    return lib


def _what_is_missing() -> str:
    """Of a wheel: the Debian packages of libraries that are not here."""
    packages = sorted(set(missing(["command"]).values()))
    return f"; on Debian: apt-get install {' '.join(packages)}" if packages else ""


# ---- Messages ----

def _log_line(_context: object, level: int, line: bytes) -> None:
    text = line.decode("utf-8", "replace").replace(": from the file's compile_config: ", ": from its compile_config: ")
    if level >= declared.LS_LOG_WARN and any(folder in text for folder in _own_folders):
        return
    if level == declared.LS_LOG_ERROR:
        _kept.append((threading.get_ident(), text))
    else:
        _write(text)


def leave_unsaid(folder: str) -> None:
    """Notes and warnings about files of this folder, also later ones, are not for the user, who has not made them."""
    _own_folders.add(folder)


def _write(line: str) -> None:
    if sys.stderr is not None:
        print(_in_python(line), file=sys.stderr, flush=True)


def warn(scope: str, text: str) -> None:
    """A warning, as the library writes them."""
    _write(f"lockstep: warning: {scope}: {text}")


_write_line = declared.FUNCTIONS["ls_set_log"][1][0](_log_line)


def _end_log(lib: ctypes.CDLL) -> None:
    """Python's stderr and its callbacks end before the threads of the library do."""
    lib.ls_set_log(type(_write_line)(), None)
    flush()


def flush(said: Sequence[str] = ()) -> List[str]:
    """Writes the errors of this thread and of the library's own, but for those that an exception says, and leaves those of other threads
    of Python, whose calls are about to fail. Returns the lines of this thread."""
    mine = threading.get_ident()
    # Python makes a dummy of a thread of the library that has called it.
    others = {thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)} - {mine}
    lines = []
    for entry in list(_kept):
        if entry[0] in others:
            continue
        _kept.remove(entry)
        if entry[0] == mine:
            lines.append(entry[1])
        if entry[1] not in said:
            _write(entry[1])
    return lines


def discard() -> None:
    """Forgets the errors that would be written: an exception of the program is why they are there."""
    flush([line for _, line in _kept])


def keep_exception(error: BaseException) -> None:
    """What a function of the program raised in a call of this thread, which that call then raises."""
    _raised.setdefault(threading.get_ident(), error)


# Calls of C whose method here has another name.
METHODS = {"ls_strategy_run": "strategy.run", "ls_strategy_reduce": "strategy.reduce", "ls_strategy_gather": "strategy.gather",
           "ls_distribute_dataset": "experimental_distribute_dataset", "ls_context_gradients": "value_and_grad", "ls_context_apply": "apply_gradients"}


def _in_python(text: str) -> str:
    """With the names that calls of C have here."""
    def name_of(found: "re.Match[str]") -> str:
        name = found[0]
        known = name in declared.FUNCTIONS or name + "_sized" in declared.FUNCTIONS
        return METHODS.get(name, re.sub("^ls_(context_|model_)?", "", name)) if known else name

    text = re.sub(r"(?:dataset )?'memory:hash=[0-9a-f]+'", "the data", text)  # arrays have no name
    return re.sub(r"(?<![\w/'\".-])ls_\w+", name_of, text)


def error_of(status: int) -> BaseException:
    """The exception for a status of the call that this thread made last: it says the line of the call, and those that this thread had
    logged before, such as what else is wrong with a model."""
    raised = _raised.pop(threading.get_ident(), None)
    if raised is not None:
        discard()
        return raised
    if status == declared.LS_INTERRUPTED:
        flush()
        return KeyboardInterrupt()
    last = library().ls_last_error().decode("utf-8", "replace")
    lines = flush([last, *(line for ident, line in _kept if ident == threading.get_ident())])
    text = _in_python("\n".join(line[len(ERROR):] if line.startswith(ERROR) else line for line in (lines if last in lines else [*lines, last])))
    error = BY_STATUS.get(status, LockstepError)(text or f"status {status}")
    error.status = status
    return error


def check(status: int) -> None:
    """Raises what a status says; LS_INTERRUPTED is KeyboardInterrupt. Errors that made no call fail are written here, but not in a callback
    on a thread of the library: the call that they make fail is still under way."""
    if status:
        raise error_of(status)
    if _kept and threading.current_thread() is threading.main_thread():
        flush()


# ---- Structs of options ----

Struct = TypeVar("Struct", bound=ctypes.Structure)


def encode(value: Any) -> Any:
    """A value as a field has it: texts and paths as bytes, in which a NUL would be the end."""
    made = os.fsencode(value) if isinstance(value, (str, os.PathLike)) else value
    if isinstance(made, bytes) and b"\0" in made:
        raise UsageError(f"{value!r} has a NUL character, which no text and no path may have")
    return made


def type_of(kind: Type[ctypes.Structure], field: str) -> Any:
    """The type of a field, such as that of a function."""
    return next(entry[1] for entry in kind._fields_ if entry[0] == field)


def refuse_others(method: Callable[..., Any], kind: Type[ctypes.Structure], own: Sequence[str], options: Dict[str, Any]) -> None:
    """Options of a method that are neither its keywords nor fields of the struct. `own` are fields that the package sets itself."""
    fields = [entry[0] for entry in kind._fields_ if entry[0] not in own]
    for name in options:
        if name not in fields:
            import difflib
            import inspect

            named = [one.name for one in inspect.signature(method).parameters.values() if one.kind != one.VAR_KEYWORD]
            near = difflib.get_close_matches(name, names := list(dict.fromkeys([*named, *fields])), 1)
            raise TypeError(f"there is no option '{name}'; {f'did you mean {near[0]}=? ' if near else ''}there are: {', '.join(names)}")


def fill(kind: Type[Struct], /, **values: Any) -> Struct:
    """A zeroed struct with these fields; None leaves the default."""
    made = kind()
    types = {entry[0]: entry[1] for entry in kind._fields_}
    for name, value in values.items():
        if name not in types:
            raise TypeError(f"there is no option '{name}'; there are: {', '.join(types)}")
        if value is not None:
            set_field(made, name, types[name], value)
    return made


def set_field(struct: ctypes.Structure, name: str, kind: Any, value: Any) -> None:
    """ctypes would take a number for the address of a text, and wrap one that does not fit."""
    if kind is ctypes.c_char_p and not isinstance(encode(value), bytes):
        raise TypeError(f"option '{name}': {value!r}; expected a text")
    try:
        setattr(struct, name, encode(value))
    except TypeError:
        raise TypeError(f"option '{name}': {value!r} is a {type(value).__name__}, which it does not take") from None
    if hasattr(value, "__index__") and getattr(struct, name) != value:
        raise UsageError(f"option '{name}': {value} is below or above what it can be")
