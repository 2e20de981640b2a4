# SPDX-License-Identifier: Apache-2.0
"""Makes python/lockstep/_declarations.py and _composition.py from the public headers: constants, structs and signatures for ctypes.

usage: python_bindings.py            writes the files
       python_bindings.py --check    says whether they are what the headers say; a test
"""
import os
import re
import sys

import reference

SELF = "lab/pages/python_bindings.py"
# Of each file: the headers, those structs alone or with an empty list all, and what it has.
FILES = {
    "_declarations.py": (("core/plugin/status.h", "core/plugin/callback.h", "core/plugin/optimizer.h", "layers.h", "lockstep.h"), (),
                         "What lockstep.h declares, for ctypes. Structs that the header only names are c_void_p."),
    "_composition.py": (("core/plugin/plugin.h", "core/plugin/operations.h", "core/plugin/compose.h", "core/plugin/layer.h", "core/plugin/loss.h",
                         "core/plugin/metric.h"),
                        ("ls_plugin_option", "ls_host", "ls_plugin", "ls_op_attributes", "ls_weight", "ls_composer", "ls_layer_interface",
                         "ls_loss_interface", "ls_metric_interface"),
                        "What layers, losses and metrics of one's own are composed with (core/plugin/compose.h), for ctypes."),
}
SCALARS = {"uint8_t": "c_uint8", "int8_t": "c_int8", "uint16_t": "c_uint16", "int16_t": "c_int16", "uint32_t": "c_uint32",
           "int32_t": "c_int32", "uint64_t": "c_uint64", "int64_t": "c_int64", "size_t": "c_size_t", "double": "c_double",
           "float": "c_float", "bool": "c_bool", "int": "c_int"}
LEFT_OUT = {"struct ls_fit_calls", "struct ls_callback_interface"}  # what plugins see of the library
HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Made from the public headers by {self}; change the headers, not this file.
"""{summary}"""
from ctypes import {names}
'''


def split_arguments(text):
    """The parts between commas that are in no parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip() not in ("", "void")]


class Types:
    """C types as ctypes has them; `structs` are those with fields."""

    def __init__(self, structs):
        self.structs = structs

    def pointer(self, base, stars):
        if base == "char" and stars:
            base, stars = "c_char_p", stars - 1
        elif base in SCALARS:
            base = SCALARS[base]
        elif base.startswith("enum "):
            base = "c_int"
        elif base in self.structs:
            base = base.split()[1]
        elif stars:  # void, FILE, or a struct that is only named
            base, stars = "c_void_p", stars - 1
        else:
            raise reference.Wrong(f"{SELF} does not know the type '{base}'")
        return "POINTER(" * stars + base + ")" * stars

    def function(self, result, arguments):
        result = "None" if result.split() == ["void"] else self.of(result)
        arguments = re.sub(r"\[\w+\]", "[]", arguments)  # an array is its address
        return f"CFUNCTYPE({', '.join([result, *(self.of(part) for part in split_arguments(arguments))])})"

    def of(self, declaration):
        """The type of a field or an argument, whose name may be missing."""
        text = re.sub(r"\b(const|LS_API|LS_MUST_CHECK)\b", " ", declaration)
        call = re.match(r"(.*?)\(\*\w*\)\s*\((.*)\)$", text.strip())
        if call:
            return self.function(call[1], call[2])
        array = re.search(r"\[(\w+)\]$", text)
        text = re.sub(r"\[\w*\]$", "", text)
        words = re.match(r"\s*((?:struct |enum )?\w+)", text)
        stars = text.count("*") + (1 if declaration.endswith("[]") else 0)
        base = self.pointer(words[1], stars)
        return f"{base} * {array[1]}" if array else base

    def fields(self, item):
        """(name, type) of each name that a field declares."""
        if "(*" in item.code:
            return [(item.names[0], self.of(item.code))]
        base = re.match(r"(?:const )?(?:(?:struct|enum) )?\w+", item.code)[0]
        names = item.code[len(base):].split(",")
        return [(name, self.of(f"{base} {part}")) for name, part in zip(item.names, names)]


def constants(items):
    for item in items:
        if item.kind == "enum":
            for part in item.parts:
                if isinstance(part, reference.Declaration) and "=" in part.code:
                    yield part.name, part.code.split("=")[1].strip()
        number = re.match(r"#define (LS_\w+) (?:(\d+)|\(UINT64_C\((\d+)\) << (\d+)\))$", item.code)
        if number:
            yield number[1], number[2] or f"{number[3]} << {number[4]}"


def signature(item, types):
    """(name, result, arguments) of what the library exports."""
    code = item.code.splitlines()[-1] if item.code.startswith("LS_INLINE_CALL") else item.code
    found = re.match(r"(?:LS_CALL|LS_API) (.*?)(\w+)\((.*)\);$", code.replace("\n", " "))
    result = "c_int" if code.startswith("LS_CALL") else "None" if found[1].strip() == "void" else types.of(found[1])
    return found[2], result, [types.of(part) for part in split_arguments(found[3])]


def make(headers, only, summary):
    items = [item for path in headers for item in reference.read_header(path) if isinstance(item, reference.Declaration)]
    structs = [item for item in items if item.kind == "struct" and item.parts and item.name not in LEFT_OUT]
    structs = [item for item in structs if not only or item.name.split()[1] in only]
    types = Types({item.name for item in structs})
    out = ["", *(f"{name} = {value}" for name, value in constants(items))]
    for item in structs:
        lines = [f'        ("{name}", {kind}),' for part in item.parts if isinstance(part, reference.Declaration)
                 for name, kind in types.fields(part)]
        name = item.name.split()[1]
        lines = [line.replace(f"POINTER({name})", "c_void_p") for line in lines]  # which is not there yet
        out += ["", "", f"class {name}(Structure):", "    _fields_ = [", *lines, "    ]"]
    head = HEAD
    if not only:
        head += "from typing import Any, Dict, List, Tuple\n"
        out += ["", "", "# name: (result, arguments)", "FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {"]
        for item in items:
            if item.kind == "function":
                name, result, arguments = signature(item, types)
                out.append(f'    "{name}": ({result}, [{", ".join(arguments)}]),')
        out.append("}")
    text = "\n".join(out) + "\n"
    used = [name for name in ("CFUNCTYPE", "POINTER", "Structure") if name in text] + sorted(set(re.findall(r"\bc_\w+\b", text)))
    return head.format(self=SELF, summary=summary, names=", ".join(used)) + text


if __name__ == "__main__":
    try:
        sys.exit(reference.keep({os.path.join("python", "lockstep", name): make(*what) for name, what in FILES.items()}, SELF))
    except reference.Wrong as wrong:
        sys.exit(str(wrong))
