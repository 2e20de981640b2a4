# SPDX-License-Identifier: Apache-2.0
"""lockstep bench: its columns, its checks and what it writes. Nothing here depends on how long anything takes."""
import math
import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

from support import BAD_INPUT, DONE, FAILED, UNAVAILABLE, USAGE, ProgramTest, main, read_json, write_json

COLLECTIVES = ("direct", "halving-doubling", "hierarchical-copy", "ring", "torus", "tree", "two-level")
FACTORS = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0, "broadcast": None, "reduce": None, "all_to_all": 1.0}
QUICK = ("--seconds=0", "--iterations=1", "--warmup=0")


class Bench(ProgramTest):
    def bench(self, *arguments):
        """Runs it and returns the rows."""
        path = self.path("rows.json")
        outcome = self.lockstep("bench", *QUICK, "--json=" + path, *arguments)
        self.assertEqual(outcome.code, DONE, outcome.err)
        written = read_json(path)
        self.assertIs(written["passed"], True)
        self.assertEqual(written["command"], "bench")
        for row in written["rows"]:
            self.assertEqual(row["wrong"], 0, row)
        self.printed = [line.split() for line in outcome.out.splitlines() if line and not line.startswith("#")]
        return written["rows"]

    def test_every_collective_there_is_computes_exactly(self):
        rows = self.bench("--bytes=8,1000,40000", "--replicas=5")
        self.assertEqual({row["collective"] for row in rows} & set(COLLECTIVES), set(COLLECTIVES))
        self.assertEqual(len(rows), len({row["collective"] for row in rows}) * 3 * 2)

    def test_worlds_from_one_to_seventeen(self):
        for world in (1, 2, 3, 8, 17):
            with self.subTest(world=world):
                rows = self.bench("--bytes=4,5000", "--replicas=%d" % world)
                self.assertEqual({row["replicas"] for row in rows}, {world})

    def test_every_operation(self):
        for operation, factor in FACTORS.items():
            with self.subTest(operation=operation):
                rows = self.bench("ring", "tree", "--operation=" + operation, "--bytes=12,20000", "--replicas=4")
                for row in rows:
                    expected = 1.0 if factor is None else factor * 3 / 4
                    self.assertAlmostEqual(row["busbw_gb_s"] / row["algbw_gb_s"], expected, places=6)

    def test_every_type_and_reduction(self):
        for dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"):
            for reduction in ("sum", "product", "min", "max", "mean"):
                with self.subTest(dtype=dtype, reduction=reduction):
                    rows = self.bench("ring", "--bytes=24,3000", "--replicas=3", "--dtype=" + dtype,
                                      "--reduction=" + reduction)
                    self.assertEqual({row["reduction"] for row in rows}, {reduction})

    def test_sums_that_travel_in_16_bits(self):
        for wire in ("bfloat16", "float16"):
            rows = self.bench("ring", "tree", "direct", "auto", "--bytes=4,3000", "--replicas=3", "--wire=" + wire)
            self.assertEqual({(row["dtype"], row["wire"]) for row in rows}, {("float32", wire)})
        for option in ("--dtype=float64", "--reduction=max", "--operation=broadcast"):
            self.refused(USAGE, "bench", "ring", "--bytes=64", "--wire=bfloat16", option,
                         says=("--wire=bfloat16: only sums of float32 travel in 16 bits",))

    def test_sizes_of_an_all_to_all_are_rounded_to_equal_blocks(self):
        rows = self.bench("ring", "auto", "--operation=all_to_all", "--bytes=4,8,12,3000", "--replicas=3", "--place=in")
        self.assertEqual([row["bytes"] for row in rows], [12, 12, 3000, 3000])

    def test_the_columns_are_those_of_nccl_tests(self):
        rows = self.bench("ring", "hierarchical-copy:groups=2", "--bytes=1K:4K", "--replicas=2")
        self.assertEqual([row["bytes"] for row in rows], [1024] * 4 + [2048] * 4 + [4096] * 4)
        for row in rows:
            self.assertEqual(row["count"], row["bytes"] // 4)
            self.assertTrue(math.isclose(row["algbw_gb_s"], row["bytes"] / row["seconds"] / 1e9, rel_tol=1e-6))
            self.assertTrue(row["least_seconds"] <= row["low_seconds"] <= row["seconds"] <= row["high_seconds"])
            self.assertGreaterEqual(row["rounds"], 5)
        self.assertEqual([row["in_place"] for row in rows[:2]], [False, True])
        self.assertEqual(len(self.printed), 6)
        for words, row in zip(self.printed, rows[::2]):
            self.assertEqual(words[:5], [row["collective"], str(row["bytes"]), str(row["count"]), "float32", "sum"])
            self.assertEqual(len(words), 5 + 2 * 5)
            self.assertAlmostEqual(float(words[5]), row["seconds"] * 1e6, delta=0.006)

    def test_one_place_and_fresh_buffers(self):
        rows = self.bench("ring", "--bytes=64,100K", "--place=in", "--fresh")
        self.assertEqual([(row["in_place"], row["fresh"]) for row in rows], [(True, True)] * 2)
        rows = self.bench("ring", "--bytes=64", "--place=out", "--pin=off", "--fresh")
        self.assertEqual([row["in_place"] for row in rows], [False])

    def test_the_picture_has_a_line_for_each(self):
        path = self.path("bench.svg")
        self.bench("ring", "direct", "--bytes=8:64", "--svg=" + path)
        with open(path) as file:
            text = file.read()
        self.assertTrue(ElementTree.fromstring(text).tag.endswith("svg"))
        for name in ("ring", "direct", "all_reduce"):
            self.assertIn(name, text)

    def test_a_file_by_its_path(self):
        plugins = os.path.join(os.path.dirname(os.path.dirname(os.environ["LOCKSTEP_PROGRAM"])), "plugins")
        source = os.path.join(plugins, "collective-ring.so")
        self.need(source)
        shutil.copy(source, self.path("collective-ring.so"))
        os.chmod(self.path("collective-ring.so"), 0o755)
        rows = self.bench("./collective-ring.so", "--bytes=64")
        self.assertEqual({row["collective"] for row in rows}, {"collective-ring.so"})


# Sends nothing: every rank keeps what it had.
LAZY = """
#include "core/plugin/collective.h"
static int32_t build_schedule(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    return ls_end_round(schedule);
}
static const struct ls_collective_interface interface = {
    .struct_size = sizeof(interface), .operations = 1u << LS_ALL_REDUCE, .deterministic = 1, .build_schedule = build_schedule};
static const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "lazy", .version = "1",
                                        .licence = "Apache-2.0", .summary = "does nothing", .interface = &interface};
LS_EXPORT const struct ls_plugin *lockstep_plugin(void) { return &plugin; }
"""


class Wrong(ProgramTest):
    def test_a_collective_that_is_wrong_is_not_timed(self):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            self.skipTest("there is no C compiler here")
        with open(self.path("lazy.c"), "w") as file:
            file.write(LAZY)
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        subprocess.run([compiler, "-std=c11", "-shared", "-fPIC", "-I" + root, "-o", self.path("collective-lazy.so"),
                        self.path("lazy.c")], check=True)
        os.chmod(self.path("collective-lazy.so"), 0o755)
        for reduction in ("sum", "product", "min", "max", "mean"):
            outcome = self.lockstep("bench", "ring", "./collective-lazy.so", *QUICK, "--bytes=4000", "--replicas=3",
                                    "--reduction=" + reduction, "--json=" + self.path("rows.json"))
            self.assertEqual(outcome.code, FAILED, outcome.err)
            self.assertIn("collective lazy is wrong and was not run: all-reduce of 1000 elements, 3 ranks: rank 0", outcome.err)
            self.assertEqual(len(outcome.err.splitlines()), 1, outcome.err)
            self.assertFalse(os.path.exists(self.path("rows.json")))

    def test_values_that_come_out_wrong_are_counted_on_all_ranks(self):
        outcome = self.lockstep("bench", "ring", "--transport=corrupt", "--plugin-path=" + os.environ["LOCKSTEP_FAULTS"], *QUICK,
                                "--place=in", "--bytes=4096", "--json=" + self.path("rows.json"))
        self.assertEqual(outcome.code, FAILED, outcome.err)
        # Both halves of the ring are sent twice, and each time their first element is spoilt.
        self.assertIn("ring: 4 of the 2048 elements on all 2 ranks are wrong", outcome.err)
        written = read_json(self.path("rows.json"))
        self.assertIs(written["passed"], False)
        self.assertEqual([row["wrong"] for row in written["rows"]], [4])


class Network(ProgramTest):
    def test_simulate_reads_what_bench_writes(self):
        path, rows = self.path("here.json"), self.path("rows.json")
        # Its ring is timed beside what the table is of, and is no row of it.
        outcome = self.lockstep("bench", "direct", "--bytes=1000:32K", "--iterations=1", "--seconds=0", "--json=" + rows,
                                "--write-network=" + path)
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertEqual({row["collective"] for row in read_json(rows)["rows"]}, {"direct"})
        network = read_json(path)
        sizes = [size for size, _ in network["bandwidth_by_bytes"]]
        self.assertEqual(sizes, sorted(sizes))
        self.assertEqual((sizes[0], sizes[-1]), (8192, 128 << 20))
        outcome = self.lockstep("simulate", "ring", "--world=2", "--bytes=32K:64M", "--network=" + path,
                                "--json=" + rows)
        self.assertEqual(outcome.code, DONE, outcome.err)
        simulated = {row["bytes"]: row["seconds"] for row in read_json(rows)["rows"]}
        # The file says how long each of these takes: the launch, two messages of half the buffer, and adding one.
        self.assertGreaterEqual(network["launch_us"], 0)
        self.assertGreater(network["copy_gb_s"], 0)
        for size, speed in network["bandwidth_by_bytes"]:
            if size in simulated:
                half = size / 2
                message = (network["latency_us"] + network["overhead_us"]) * 1e-6
                expected = (network["launch_us"] * 1e-6 + 2 * (message + half / (speed * 1e9))
                            + half / (network["reduction_gb_s"] * 1e9))
                self.assertTrue(math.isclose(simulated[size], expected, rel_tol=1e-3), (size, expected))

    def test_a_table_of_bandwidths_that_cannot_be(self):
        good = {"name": "n", "topology": "flat", "latency_us": 1, "bandwidth_gb_s": 10}
        for table, says in (([], "1 to 32"), ([[0, 1]], "from 1e-9"), ([[4, -1]], "from 1e-9"), ([[4]], "pairs"),
                            ([["4", 1]], "pairs"), ([[8, 1], [4, 1]], "increasing"), ([[4, 11]], "faster than its link"),
                            ([[i + 1, 1] for i in range(33)], "1 to 32"), (5, "list")):
            with self.subTest(table=table):
                write_json(self.path("n.json"), dict(good, bandwidth_by_bytes=table))
                self.refused(BAD_INPUT, "simulate", "ring", "--world=2", "--network=" + self.path("n.json"),
                             says=("bandwidth_by_bytes", says))


class Refusals(ProgramTest):
    def test_bad_values(self):
        for option, says in (("--replicas=0", "replicas"), ("--replicas=257", "replicas"), ("--bytes=", "bytes"),
                             ("--bytes=0", "bytes"), ("--bytes=2", "bytes"), ("--bytes=8K:4K", "bytes"),
                             ("--bytes=1:2:3", "bytes"), ("--bytes=8,x", "bytes"), ("--bytes=1T", "bytes"),
                             ("--operation=all", "all_gather"), ("--dtype=float8", "bfloat16"),
                             ("--reduction=xor", "product"), ("--place=up", "out"), ("--seconds=-1", "seconds"),
                             ("--seconds=nan", "seconds"), ("--iterations=0", "iterations"), ("--warmup=x", "warmup"),
                             ("--deadline=0", "deadline"), ("--pin=maybe", "pin"), ("--itrations=3", "iterations")):
            with self.subTest(option=option):
                self.refused(USAGE, "bench", "ring", option, says=(says,))

    def test_more_memory_than_there_is(self):
        self.refused(USAGE, "bench", "ring", "--bytes=64G", "--replicas=256", says=("GiB", "smaller"))

    def test_help_says_what_out_of_place_means(self):
        outcome = self.lockstep("bench", "--help=all")
        self.assertEqual((outcome.code, outcome.err), (DONE, ""))
        self.assertIn("the time includes the copy", outcome.out)

    def test_names_that_are_not_there(self):
        self.refused(UNAVAILABLE, "bench", "rnig", says=("rnig", "ring"))
        self.refused(UNAVAILABLE, "bench", "ring", "--transport=locl", says=("locl", "local"))
        self.refused(BAD_INPUT, "bench", "./none.so", says=("none.so",))
        self.refused(USAGE, "bench", "hierarchical-copy:groups=3", "--replicas=2", says=("groups=3",))
        self.refused(USAGE, "bench", "hierarchical-copy:grups=3", says=("grups", "groups"))

    def test_files_that_cannot_be_written_are_refused_before_anything_runs(self):
        for option in ("--json", "--svg", "--write-network"):
            outcome = self.refused(BAD_INPUT, "bench", "ring", "--bytes=8", option + "=/none/file", says=(option,))
            self.assertEqual(outcome.out, "")


if __name__ == "__main__":
    main()
