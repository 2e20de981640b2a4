# SPDX-License-Identifier: Apache-2.0
"""Makes python/lockstep/layers.pyi, model.pyi and laboratory.pyi, for type checkers and editors: the options of layers are those that layers/*.c
declares, `**options` of a model's methods are the fields of the structs of lockstep.h, and those of `compare` and the others the command's.

usage: python_stubs.py            writes the files
       python_stubs.py --check    says whether they are what the sources say; a test
"""
import ast
import ctypes
import glob
import os
import re
import sys

import reference

SELF = "lab/pages/python_stubs.py"
PACKAGE = os.path.join(reference.ROOT, "python", "lockstep")
HEAD = f"# SPDX-License-Identifier: Apache-2.0\n# Made by {SELF} from the package, layers/, tools/ and lockstep.h; change those, not this file.\n"

# ---- Layers ----

SIZES, NAMED = "Sizes", "Named"
ALIASES = "Sizes = Union[int, Sequence[int]]\nNamed = Union[str, Mapping[str, Any], None]  # a name, or an object as Keras writes it"
# What each function of layers/config.h reads from a layer's options.
READ = {"integer": "int", "number": "Optional[float]", "boolean": "bool", "activation": NAMED, "initializer": NAMED, "sizes": SIZES,
        "borders": "Union[int, Sequence[Any]]", "ends": SIZES, "numbers": "Union[float, Sequence[float]]", "shape": "Sequence[Optional[int]]",
        "choice": "str"}
# Those that are read by functions of their own.
READ_OTHERWISE = {"padding": "str", "recurrent_activation": NAMED, "data_format": "Optional[str]", "interpolation": "str", "seed": "Optional[int]", "strides": f"Optional[{SIZES}]",
                  **dict.fromkeys(("factor", "height_factor", "width_factor"), "Union[float, Sequence[float], None]"), "value_range": "Sequence[float]",
                  "target_shape": "Sequence[int]", "dims": "Sequence[int]", "name": "str", "trainable": "bool", **dict.fromkeys(("max_tokens", "num_bins", "oov_token", "mask_token", "vocabulary_size"), "Optional[int]"),
                  "dtype": NAMED}
# Where a layer means something else by the name.
OF_LAYERS = {("ZeroPadding3D", "padding"): READ["borders"], ("Cropping3D", "cropping"): READ["borders"], ("ZeroPadding1D", "padding"): READ["ends"], ("ZeroPadding2D", "padding"): READ["borders"],
             ("BatchNormalization", "axis"): SIZES, ("LayerNormalization", "axis"): SIZES}


class Layers:
    """The layers of layers/*.c: their options, the types of these, and which must be given."""

    def __init__(self):
        self.options, self.summaries = {}, {}
        self.types = {}  # of an option, in all files
        texts = {path: open(path, encoding="utf-8").read() for path in sorted(glob.glob(os.path.join(reference.ROOT, "layers", "*.c")))}
        public = {}
        for text in texts.values():
            public.update({name: keys for name, keys in self.lists(text).items() if name.startswith("ls_")})
        for text in texts.values():
            for kind, key in re.findall(r'ls_config_(\w+)\(\s*&?\w+,\s*"(\w+)"', text):
                if kind in READ:
                    self.types.setdefault(key, set()).add(READ[kind])
        for text in texts.values():
            lists = {**public, **self.lists(text)}
            refused = set(lists.get("unsupported", ())) | set(re.findall(r'ls_config_null\(\s*&?\w+,\s*"(\w+)"', text))
            for body in re.findall(r"^const struct ls_layer_kind \w+ = \{(.*?)^\};", text, re.S | re.M):
                name = re.search(r'\.class_name = "(\w+)"', body)[1]
                keys = re.search(r"\.keys = (\w+)", body)
                self.options[name] = [key for key in lists[keys[1]] if key not in refused] if keys else []
                self.summaries[name] = "".join(re.findall(r'"([^"]*)"', re.search(r"\.summary =\s*((?:\"[^\"]*\"\s*)+)", body)[1]))
            for name, summary, keys in re.findall(r'^const struct ls_layer_kind \w+ =\s*\w+\("(\w+)",\s*"([^"]*)",\s*(\w+)\);', text, re.M):
                self.options[name], self.summaries[name] = [key for key in lists[keys] if key not in refused], summary
            for name, summary in re.findall(r'^    MERGE\("(\w+)", "([^"]*)"', text, re.M):
                self.options[name], self.summaries[name] = list(lists["keys"]), summary
        must = re.compile(r'ls_config_integer\(\s*&?\w+,\s*"(\w+)",[^;]*?LS_CONFIG_NONE\)', re.S)
        self.must = {key for text in texts.values() for key in must.findall(text)} | {"kernel_size", "rate", "stddev", "target_shape", "dims", "axes", "equation", "output_shape", "output_size", "layer", "cell"}
        self.must -= {"max_tokens"}  # null, too

    @staticmethod
    def lists(text):
        macros = {}
        for name, body in re.findall(r"#define (\w+) ((?:[^\n]*\\\n)*[^\n]*)", text):  # of keys, and of macros before it
            macros[name] = [key for word in re.findall(r'"?\w+"?', body) for key in ([word.strip('"')] if word[0] == '"' else macros.get(word, []))]
        found = {}
        for name, body in re.findall(r"const char \*const (\w+)\[\] = \{(.*?)\};", text, re.S):
            found[name] = [key for word in re.findall(r'"?\w+"?', body) for key in ([word.strip('"')] if word[0] == '"' else macros.get(word, []))]
        return found

    def type_of(self, layer, key):
        if (layer, key) in OF_LAYERS:
            return OF_LAYERS[layer, key]
        if key in READ_OTHERWISE or key.endswith("_regularizer"):
            return READ_OTHERWISE.get(key, NAMED)
        found = self.types.get(key, set())
        return next(iter(found)) if len(found) == 1 else "Any"  # files differ, or read it as JSON


def layers_stub(positional, cells, aliases):
    layers = Layers()
    out = [HEAD + "from typing import Any, Dict, List, Mapping, Optional, Sequence, Union", "", ALIASES, "", "POSITIONAL: Dict[str, str]", "CELLS: Dict[str, str]", "ALIASES: Dict[str, str]", "", "", "class Layer:",
           '    """A layer by the name of its class, with its options."""', "", "    class_name: str", "    config: Dict[str, Any]", "",
           "    def __init__(self, class_name: str, **config: Any) -> None: ...", "",
           "    trainable: bool", "", "    def get_weights(self) -> List[Any]: ...", "", "    def set_weights(self, weights: Sequence[Any]) -> None: ...", "", "    def __call__(self, *inputs: Any, **arguments: Any) -> Any: ...", "", "    @property", "    def name(self) -> str:",
           '        """That of its options; "" for a layer that has none before it is in a model."""', "", "",
           "class Symbol:", '    """What a call of a layer makes, while a model is written. It takes + - * with another one."""', "",
           *(f"    def __{name}__(self, other: Any) -> Symbol: ..." for name in ("add", "radd", "sub", "rsub", "mul", "rmul")), "", "",
           'def Input(shape: Sequence[Optional[int]], dtype: str = ..., *, name: str = ...) -> Layer:',
           '    """The input of a model: the shape of an example."""', "", "",
           "def sequential_config(layers: Sequence[Layer], name: str) -> Dict[str, Any]: ..."]
    for name, words in positional.items():
        first = words.split()
        lacking = [key for key in first if key not in layers.options[name]]
        if lacking:
            raise reference.Wrong(f"layers.py: {name} has no option {', '.join(lacking)}; layers/ declares: {', '.join(layers.options[name])}")
        rest = [key for key in layers.options[name] if key not in first] + ["name", "trainable", "dtype"]
        written = [f"{key}: {layers.type_of(name, key)}" + ("" if key in layers.must and key in first else " = ...") for key in first]
        written += ["*", *(f"{key}: {layers.type_of(name, key)} = ..." for key in dict.fromkeys(rest))]
        out += ["", "", f"def {name}({', '.join(written)}) -> Layer:", f'    """Keras\'s {name}: {layers.summaries[name]}."""']
    for name, words in cells.items():
        options = ", ".join(f"{key}: Any" + (" = ..." if i else "") for i, key in enumerate(words.split()))
        out += ["", "", f"def {name}({options}, **config: Any) -> Layer:", f'    """Keras\'s {name}, for RNN."""']
    out += ["", "", *(f"{alias} = {name}" for alias, name in aliases.items())]
    return "\n".join(out) + "\n"


# ---- Models ----

def type_of_field(kind):
    if kind is ctypes.c_char_p:
        return "Optional[str]"
    if issubclass(kind, (ctypes.c_double, ctypes.c_float)):
        return "Optional[float]"
    return "Optional[int]" if issubclass(kind, ctypes._SimpleCData) else "Any"


def options_of(struct, own, explicit):
    for name, kind in struct._fields_:
        if name not in own and name not in explicit and name != "reserved":
            yield ast.arg(arg=name, annotation=ast.parse(type_of_field(kind), mode="eval").body)


def names_of(arguments):
    return [one.arg for one in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]


def with_options(arguments, added):
    """The arguments with these keywords in the place of **options."""
    arguments.kwarg = None
    for one in added:
        arguments.kwonlyargs.append(one)
        arguments.kw_defaults.append(ast.Constant(...))


def is_told(name):
    return not name.startswith("_") or name in ("__init__", "__repr__", "__call__")


def body_of(function):
    text = ast.get_docstring(function, clean=False)
    return [ast.Expr(ast.Constant(text if text else ...))]


def model_stub(declared, own):
    with open(os.path.join(PACKAGE, "model.py"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    classes, functions = [], []
    init = []  # keywords of Model
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            node.body = body_of(node)
            node.decorator_list = []
            functions.append(node)
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Union["):
            classes.append(node)  # a name of types
        if not isinstance(node, ast.ClassDef):
            continue
        kept = []
        for item in node.body:
            if isinstance(item, ast.Expr) or isinstance(item, ast.AnnAssign):
                kept.append(item)
            if not isinstance(item, ast.FunctionDef) or not is_told(item.name):
                continue
            item.body = body_of(item)
            item.decorator_list = [one for one in item.decorator_list if ast.unparse(one) != "_by_one_thread"]
            arguments, key = item.args, (node.name, item.name)
            if arguments.kwarg and key in own:
                struct, names = own[key]
                with_options(arguments, options_of(getattr(declared, struct), names, names_of(arguments)))
                if key == ("Model", "__init__"):
                    init = arguments.kwonlyargs
            elif arguments.kwarg and key == ("Sequential", "__init__"):
                with_options(arguments, [one for one in init if one.arg not in ("inputs", *names_of(arguments))])
            kept.append(item)
        node.body = kept
        classes.append(node)
    made = ast.fix_missing_locations(ast.Module(body=classes + functions, type_ignores=[]))
    return (HEAD + "import os\nfrom typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union\n\nimport numpy\n\n"
            "from .callbacks import CallbackLike, History, Logs\nfrom .layers import Layer\nfrom .loops import Strategy\n\n" + ast.unparse(made) + "\n")


# ---- The commands ----

# The table of a command's options, and those that the package gives itself.
COMMANDS = {"compare": ("tools/compare/compare.c", ("model", "dataset", "strategies", "report", "html", "quiet")), "verify": ("tools/verify.c", ("json",)),
            "simulate": ("tools/simulate/simulate.c", ("json",)), "bench": ("tools/bench/bench.c", ("json",))}
VALUE = "Union[None, bool, int, float, str, Sequence[Union[int, float, str]], range]"


def table_of(path):
    """(option, whether it has a value) of the rows of a command's table."""
    texts = {}
    for name in (path, "tools/run_options.h"):
        with open(os.path.join(reference.ROOT, name), encoding="utf-8") as file:
            texts[name] = file.read()
    table = re.search(r"static const struct argument table\[\] = \{\n(.*?)^\};", texts[path], re.S | re.M)
    if not table:
        raise reference.Wrong(f"{path} has no table of options")
    macros = {name: body.replace("\\\n", "\n") for name, body in re.findall(r"#define (\w+_ARGUMENTS)((?:[^\n]*\\\n)+[^\n]*)", texts["tools/run_options.h"])}
    text = re.sub(r"\b(\w+_ARGUMENTS)\b", lambda found: macros[found[1]], table[1])
    return [(name.replace("-", "_"), value != "NULL") for name, value in re.findall(r'\{\s*"([a-z-]+)",\s*(NULL|")', text)]


def laboratory_stub():
    with open(os.path.join(PACKAGE, "laboratory.py"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    made = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef):
                    one.body = body_of(one)
        elif isinstance(node, ast.FunctionDef) and node.name in COMMANDS:
            path, own = COMMANDS[node.name]
            node.body = body_of(node)
            with_options(node.args, [ast.arg(arg=name, annotation=ast.parse("Value" if has_value else "Optional[bool]", mode="eval").body)
                                     for name, has_value in table_of(path) if name not in (*own, *names_of(node.args))])
        elif not (isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Union[")):
            continue
        made.append(node)
    return HEAD + "import os\nfrom typing import Any, Dict, Optional, Sequence, Union\n\n" + f"Value = {VALUE}  # of an option\n\n" + ast.unparse(ast.fix_missing_locations(ast.Module(body=made, type_ignores=[]))) + "\n"


def make():
    sys.path.insert(0, os.path.join(reference.ROOT, "python"))
    from lockstep import _declarations, layers, model

    own = {("Model", "__init__"): ("ls_run_options", model.OF_RUN), ("Model", "compile"): ("ls_compile_options", ()),
           ("Model", "fit"): ("ls_fit_options", model.OF_FIT)}
    return {"layers.pyi": layers_stub(layers.POSITIONAL, layers.CELLS, layers.ALIASES), "model.pyi": model_stub(_declarations, own),
            "laboratory.pyi": laboratory_stub()}


if __name__ == "__main__":
    try:
        sys.exit(reference.keep({f"python/lockstep/{name}": text for name, text in make().items()}, SELF))
    except reference.Wrong as wrong:
        sys.exit(str(wrong))
