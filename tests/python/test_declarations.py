# SPDX-License-Identifier: Apache-2.0
"""python/lockstep/_declarations.py against the headers, as a C compiler lays them out, and against the library."""
import ctypes
import os
import shlex
import subprocess
import sys

SOURCE = os.environ["LOCKSTEP_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "python"), os.path.join(SOURCE, "tests", "programs"), os.path.join(SOURCE, "lab", "pages")]

from lockstep import _composition as composition  # noqa: E402
from lockstep import _declarations as declared  # noqa: E402
from lockstep import _native  # noqa: E402
from support import ProgramTest, main  # noqa: E402

COMPILER = shlex.split(os.environ["LOCKSTEP_COMPILER"])
NAMES = {**vars(composition), **vars(declared)}
STRUCTS = [kind for kind in NAMES.values() if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure]


class Declarations(ProgramTest):
    def test_structs_are_laid_out_as_the_compiler_does_it(self):
        lines, expected = [], []
        for kind in STRUCTS:
            name = kind.__name__
            lines.append(f'printf("%s %zu\\n", "{name}", sizeof(struct {name}));')
            expected.append(f"{name} {ctypes.sizeof(kind)}")
            for field, _ in kind._fields_:
                place = getattr(kind, field)
                lines.append(f'printf("%s %zu %zu\\n", "{name}.{field}", offsetof(struct {name}, {field}), sizeof(((struct {name} *)0)->{field}));')
                expected.append(f"{name}.{field} {place.offset} {place.size}")
        for name, value in NAMES.items():
            if name.startswith("LS_"):
                lines.append(f'printf("%s %llu\\n", "{name}", (unsigned long long){name});')
                expected.append(f"{name} {value}")
        with open(self.path("layout.c"), "w", encoding="utf-8") as file:
            file.write('#include "lockstep.h"\n#include "core/plugin/layer.h"\n#include "core/plugin/metric.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n' + "\n".join(lines) + "\nreturn 0;\n}\n")
        subprocess.run([*COMPILER, "-I", SOURCE, "-o", self.path("layout"), self.path("layout.c")], check=True, timeout=120)
        out = subprocess.run([self.path("layout")], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertEqual(out.splitlines(), expected)
        self.assertGreater(len(STRUCTS), 20)

    def test_the_library_has_every_function(self):
        library = _native.library()
        self.assertEqual([name for name in declared.FUNCTIONS if not hasattr(library, name)], [])
        self.assertGreater(len(declared.FUNCTIONS), 90)

    def test_the_files_are_what_the_generator_makes(self):
        import python_bindings

        for name, what in python_bindings.FILES.items():
            with open(os.path.join(SOURCE, "python", "lockstep", name), encoding="utf-8") as file:
                text = file.read()
            made = python_bindings.make(*what)
            self.assertEqual(text, made, f"run {python_bindings.SELF}")
            self.assertNotEqual(text.replace('c_char_p)', 'c_void_p)'), made)

    def test_the_stubs_are_what_the_generator_makes(self):
        import python_stubs

        stubs = python_stubs.make()
        for name, made in stubs.items():
            with open(os.path.join(SOURCE, "python", "lockstep", name), encoding="utf-8") as file:
                self.assertEqual(file.read(), made, f"run {python_stubs.SELF}")
        self.assertIn("def Dense(units: int, activation: Named = ..., use_bias: bool = ..., *, kernel_initializer: Named", stubs["layers.pyi"])
        self.assertRegex(stubs["laboratory.pyi"], r"def compare\(.*, strategies: .*, speed_steps: Value=\.\.\.")
        for command, (path, _) in python_stubs.COMMANDS.items():
            said = self.lockstep(command, "--no-such").err.partition("available: ")[2]
            self.assertEqual(["--" + name.replace("_", "-") for name, _ in python_stubs.table_of(path)], said.strip().split(", "), command)
        self.assertRegex(stubs["model.pyi"], r"def fit\(.*, microbatches: Optional\[int\]=\.\.\.")

    def test_the_page_of_names_is_what_the_sources_say(self):
        import keras_names

        with open(keras_names.PAGE, encoding="utf-8") as file:
            self.assertEqual(file.read(), keras_names.page(), f"run {keras_names.SELF}")
        answers = {name: (answer, why) for name, answer, why in keras_names.rows_of_layers()}
        self.assertEqual(answers["MaxPool2D"], ("yes", "as `MaxPooling2D`"))
        self.assertEqual(answers["LSTM"][0], "yes")
        self.assertIn("Python code", answers["Lambda"][1])

    def test_the_reference_is_what_the_generator_makes(self):
        import ast

        import python_reference

        with open(os.path.join(SOURCE, python_reference.PAGE), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(text, python_reference.make(), f"run {python_reference.SELF}")
        self.assertIn("- `batch_size`: Of all replicas together; None: 64 times the replicas.\n", text)
        page = python_reference.Page()
        wrong = ast.parse('def f(a, *, b=2):\n    """Does it.\n\n    Args:\n        a: One.\n    """\ndef g(a):\n    pass\ndef h(a):\n    """Does it."""')
        for node in wrong.body:
            page.function("m", node, False)
        self.assertEqual(page.wrong, ["m.f: Args has a; it takes a, b", "m.g has no docstring", "m.g: Args has nothing; it takes a",
                                      "m.h: Args has nothing; it takes a"])

    def test_types_of_c(self):
        import python_bindings

        types = python_bindings.Types({"struct ls_metrics"})
        for text, expected in (("const char *name", "c_char_p"), ("const char **names", "POINTER(c_char_p)"), ("void *const *inputs", "POINTER(c_void_p)"),
                               ("struct ls_run **out", "POINTER(c_void_p)"), ("const struct ls_metrics *metrics", "POINTER(ls_metrics)"),
                               ("struct ls_metrics metrics", "ls_metrics"), ("int64_t dims[LS_DIMS]", "c_int64 * LS_DIMS"),
                               ("void (*release)(void *context)", "CFUNCTYPE(None, c_void_p)"),
                               ("enum ls_status (*f)(void *context, float **out)", "CFUNCTYPE(c_int, c_void_p, POINTER(POINTER(c_float)))")):
            self.assertEqual(types.of(text), expected)


if __name__ == "__main__":
    main()
