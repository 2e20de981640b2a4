# SPDX-License-Identifier: Apache-2.0
"""tools/house-figures counts what is there: circles, switches and calls of a tiny tree.

usage: house_figures.py ROOT
"""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path.cwd()
sys.path.insert(0, str(ROOT / "lab" / "pages"))
import house_figures as figures  # noqa: E402

TREE = {
    "core/a/one.h": '#include "core/a/two.h"\n',
    "core/a/one.c": '#include "core/a/one.h"\n',
    "core/a/two.c": '#include "core/a/three.h"\n',  # a circle closes through a source, too
    "core/a/two.h": "",
    "core/a/three.h": '#include "core/a/one.h"\n#include "core/a/free.h"\n',
    "core/a/free.h": "",
    "core/a/above.c": '#include "core/a/one.h"\n',
    "core/b/left.h": ' #  include "core/b/right.h"\n',
    "core/b/right.h": '#include "core/b/left.h"\n',
    "tools/x.h": '#include "tools/y.h"\n',
    "tools/y.h": '#include "tools/x.h"\n',
}
CODE = """
// switch (op) { case LS_OP_ADD: }
switch (op) {
case LS_OP_ADD: return "switch (op) { case LS_OP_ADD: }";
case LS_OP_DENSE: break;
}
switch (kind) {
case OTHER:
    switch (op) { case LS_OP_CONV2D: break; }
}
if (op == LS_OP_ADD ||
    op != LS_OP_DENSE)
    x();


else if (LS_OP_RESHAPE == op)
    y(LS_OP_RESHAPE);
"""
STACKS = """[New Thread 1]
LAUNCH
#0  cpu_launch (device=...) at ../plugins/cpu.c:370
#1  0x000055555559fb2f in run (program=...) at ../core/run.c:380
#2  0x000055555558c651 in ls_driver_step (driver=...) at ../core/driver.c:430
#3  0x0000555555592275 in main (argument=...) at ../core/main.c:105
LAUNCH
#0  cpu_launch (device=...) at ../plugins/cpu.c:370
#1  0x000055555558c651 in ls_driver_step (driver=...) at ../core/driver.c:431
LAUNCH
#0  cpu_launch (device=...) at ../plugins/cpu.c:370
#1  0x000055555558c651 in export (driver=...) at ../core/export.c:431
"""


class HouseFigures(unittest.TestCase):
    def test_circles_are_found_over_files_and_their_headers(self):
        self.assertEqual(figures.circles(figures.include_graph(TREE, "core/")),
                         [["core/a/one", "core/a/three", "core/a/two"], ["core/b/left", "core/b/right"]])

    def test_a_tree_without_circles_has_none(self):
        tree = {name: text for name, text in TREE.items() if name not in ("core/a/three.h", "core/b/right.h", "tools/y.h")}
        self.assertEqual(figures.circles(figures.include_graph(tree, "core/")), [])

    def test_switches_and_comparisons_are_counted_without_comments_and_strings(self):
        code = figures.code_only(CODE)
        self.assertEqual(figures.switches_over_operations(code), [3, 9])
        self.assertEqual(figures.comparison_places(code), [11, 16])

    def test_the_table_and_other_rooms_do_not_count(self):
        tree = {"core/graph/operations.c": CODE, "core/graph/rewrite.c": CODE, "plugins/device/cpu/cpu.c": CODE}
        self.assertEqual(figures.operation_places(tree, figures.TABLE, lambda name: name.startswith("core/")),
                         (["core/graph/rewrite.c:3", "core/graph/rewrite.c:9"],
                          ["core/graph/rewrite.c:11", "core/graph/rewrite.c:16"]))

    def test_calls_are_counted_from_the_driver_to_the_launch(self):
        depths = figures.depths_of(STACKS, "ls_driver_step")
        self.assertEqual({depth: launches for depth, (launches, _) in depths.items()}, {1: 1, 2: 1})
        self.assertEqual(depths[2][1][1], "run ../core/run.c:380")
        with self.assertRaises(SystemExit):
            figures.depths_of(STACKS, "no_such_driver")

    def test_tables_with_one_implementer_are_found(self):
        tree = {"core/a/hooks.h": "struct hooks {\n    int (*up)(void); // (*no)(\n    int (*down)(void);\n};\n"
                                  "struct one {\n    int (*up)(void);\n};\n",
                "core/plugin/device.h": "struct device {\n    int (*a)(void);\n    int (*b)(void);\n};\n",
                "core/b/one.c": "static const struct hooks table = {.up = up};\nvoid f(struct hooks *hooks) {}\n",
                "tests/core/two.c": "x = (struct hooks){.up = up};\nstruct one *one = {0};\n"}
        self.assertEqual(figures.pointer_tables(tree), {"hooks": (2, ["core/b/one.c"])})
        self.assertEqual(figures.files_with_table(tree, "hooks", ("core/", "tests/")), {"core/b/one.c", "tests/core/two.c"})

    def test_functions_have_lines_and_parameters(self):
        tree = {"core/a.c": "static int f(int a, int (*b)(int, int),\n             char *c)\n{\n    one();\n\n    two();\n}\n"
                            "\nvoid g(void)\n{\n}\n\nstatic const struct x y = {\n    h(),\n};\n",
                "tests/core/a.c": "void g(void)\n{\n}\n"}
        self.assertEqual([row[:2] for row in figures.functions(tree)], [(3, 3), (0, 0)])
        self.assertEqual([figures.at([3, 1, 2, 9], part) for part in (0.5, 0.9)], [3, 9])

    def test_folders_of_core_count_with_those_in_them(self):
        tree = {"core/a/x.c": "1\n2\n", "core/a/b/y.h": "1\n", "core/version.c": "1\n", "tools/a.c": "1\n"}
        self.assertEqual(figures.room_lines(tree), {"core/a": 3})

    def test_users_of_symbols_are_files(self):
        class Linked:
            objects = {"1.o": "core/a.c", "2.o": "tools/b.c", "3.o": "core/c.c"}
            defined = {"1.o": {"ls_a", "ls_free"}, "2.o": {"tool"}}
            arrows = {("core/c.c", "core/a.c"): {"ls_a"}, ("tools/b.c", "core/a.c"): {"ls_a"}}
        self.assertEqual(figures.symbol_users(Linked),
                         {("ls_a", "core/a.c"): {"core/c.c", "tools/b.c"}, ("ls_free", "core/a.c"): set()})

    def test_lines_and_headers_of_a_tree_on_disk(self):
        with tempfile.TemporaryDirectory(prefix="lockstep-test-") as folder:
            root = pathlib.Path(folder)
            for name, text in {**TREE, "build/meson-private/x.c": "1\n", "build/x.c": "1\n", "notes.txt": "1\n"}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            tree = figures.sources(root)
        self.assertEqual(tree, TREE)
        self.assertEqual(figures.with_headers(tree, ["core/b/left.h", "core/a/above.c"]),
                         {"core/b/left.h", "core/b/right.h", "core/a/above.c", "core/a/one.h", "core/a/two.h"})
        self.assertEqual(figures.lines(tree[name] for name in ("core/a/three.h", "core/a/one.c")), 3)


if __name__ == "__main__":
    unittest.main()
