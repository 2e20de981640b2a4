# SPDX-License-Identifier: Apache-2.0
"""`lockstep simulate`: tables, files, closed forms, large worlds, and one line for what cannot be."""
import json
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

from support import BAD_INPUT, DONE, LOCKSTEP, UNAVAILABLE, USAGE, ProgramTest, main, read_json

ALPHA, BETA, GAMMA = 1e-6, 1e-10, 5e-11  # of network flat
PLUGINS = os.path.join(os.path.dirname(os.path.dirname(LOCKSTEP)), "plugins")
FLAT = {"name": "mine", "topology": "flat", "latency_us": 1, "bandwidth_gb_s": 10, "reduction_gb_s": 20}


def ring_seconds(world, size):
    return 2 * (world - 1) * (ALPHA + size / world * BETA) + (world - 1) * size / world * GAMMA


class SimulateTest(ProgramTest):
    def simulate(self, *arguments, **more):
        """The rows of a simulation that ends well."""
        path = self.path("rows.json")
        outcome = self.lockstep("simulate", "--json=" + path, *arguments, **more)
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertEqual(outcome.err, "")
        written = read_json(path)
        self.assertIs(written["passed"], True)
        self.assertEqual(written["command"], "simulate")
        self.out = outcome.out
        return written["rows"]

    def network(self, text, name="network.json"):
        with open(self.path(name), "w") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))
        return "--network=" + self.path(name)


class Tables(SimulateTest):
    def test_a_row_for_each_collective_world_and_size(self):
        rows = self.simulate("ring", "hierarchical-copy:groups=2", "--world=2,4-5", "--bytes=8,64K,1M")
        self.assertEqual(len(rows), 2 * 3 * 3)
        self.assertEqual({row["collective"] for row in rows}, {"ring", "hierarchical-copy:groups=2"})
        self.assertEqual({row["world"] for row in rows}, {2, 4, 5})
        self.assertEqual({row["bytes"] for row in rows}, {8, 65536, 1 << 20})
        self.assertEqual(len(self.out.splitlines()), 3 + len(rows))

    def test_columns_are_those_of_nccl_tests(self):
        row = self.simulate("ring", "--world=8", "--bytes=64M")[0]
        self.assertAlmostEqual(row["algbw_gb_s"], row["bytes"] / row["seconds"] / 1e9, delta=1e-6)
        self.assertAlmostEqual(row["busbw_gb_s"], row["algbw_gb_s"] * 2 * 7 / 8, delta=1e-6)
        self.assertAlmostEqual(row["bound_share"], row["bound_seconds"] / row["seconds"], delta=1e-6)
        self.assertEqual(row["sent_bytes"], 2 * 7 * row["bytes"])
        self.assertIn("port of rank", row["busiest_link"])
        for operation, factor in (("reduce_scatter", 7 / 8), ("all_gather", 7 / 8), ("all_to_all", 7 / 8), ("broadcast", 1), ("reduce", 1)):
            row = self.simulate("ring", "--operation=" + operation)[0]
            self.assertAlmostEqual(row["busbw_gb_s"], row["algbw_gb_s"] * factor, delta=1e-6)

    def test_sizes_of_an_all_to_all_are_rounded_to_equal_blocks(self):
        rows = self.simulate("ring", "--operation=all_to_all", "--world=2-3", "--bytes=4,8,12", "--svg=" + self.path("rounded.svg"))
        self.assertEqual([(row["world"], row["bytes"]) for row in rows], [(2, 8), (2, 16), (3, 12)])

    def test_ring_on_flat_equals_its_closed_form(self):
        for row in self.simulate("ring", "--world=2-9,64", "--bytes=1M,64M"):
            wanted = ring_seconds(row["world"], row["bytes"])
            self.assertLess(abs(row["seconds"] / wanted - 1), 0.01 + 4096 / row["bytes"] * row["world"], row)

    def test_rings_are_listed_in_the_order_that_they_took(self):
        rows = self.simulate("ring", "ring:channels=2", "tree", "--world=6", "--network=tpu-torus-2d")
        self.assertEqual([row["rings"] for row in rows], ["0 1 2 3 4 5", "0 1 2 5 4 3, 0 3 4 5 2 1", None])
        # Two nodes of four ranks, of which two share a card: the second ring begins at the second card.
        network = self.network({"name": "n", "topology": "nodes", "latency_us": 1, "bandwidth_gb_s": 10,
                                "node": {"ranks": 4, "cards": 2, "latency_us": 1, "bandwidth_gb_s": 100}})
        row = self.simulate("ring:channels=0", "--world=8", "--bytes=8M", network)[0]
        self.assertEqual(row["rings"], "0 1 2 3 7 6 5 4, 0 1 5 4 7 6 2 3")

    def test_channels_and_segments_come_nearer_to_the_bound(self):
        for plain, better, times in (("ring", "ring:channels=0", 4), ("tree", "tree:channels=0", 3),
                                     ("two-level", "two-level:segments=0", 1.5), ("hierarchical-copy:groups=0", "hierarchical-copy:groups=0,segments=4", 1.2)):
            before, after = self.simulate(plain, better, "--world=16", "--bytes=1G", "--network=nvlink-ndr")
            self.assertGreater(before["seconds"], times * after["seconds"], better)
            self.assertGreaterEqual(after["seconds"], after["bound_seconds"], better)

    def test_a_plugin_is_named_by_its_file_too(self):
        path = os.path.join(PLUGINS, "collective-ring.so")
        self.assertEqual(self.simulate("./collective-ring.so", cwd=PLUGINS), self.simulate("ring"))
        self.assertEqual(self.simulate(path), self.simulate("ring"))

    def test_help_teaches(self):
        outcome = self.lockstep("simulate", "--help=all")
        self.assertEqual(outcome.code, DONE)
        for text in ("--network", "Examples:", "lockstep simulate ring --world=4096", "busbw", "docs/simulate.md"):
            self.assertIn(text, outcome.out)


class Networks(SimulateTest):
    def test_every_network_that_comes_with_lockstep(self):
        for name in ("flat", "nvlink-ndr", "ethernet-100g", "tpu-torus", "tpu-torus-2d", "internet", "a100-nvlink", "b200-efa", "h100-efa", "h100-ndr", "h200-efa"):
            with self.subTest(network=name):
                rows = self.simulate("ring", "--network=" + name, "--world=8,27,64", "--bytes=1M")
                for row in rows:
                    self.assertEqual(row["network"], name)
                    self.assertGreater(row["seconds"], 0)
                    self.assertLessEqual(row["bound_share"], 1)
        self.assertGreater(self.simulate("ring", "--network=internet", "--world=2")[0]["seconds"], 5)

    # Seconds and bound of 64 KiB among 27 ranks before network files had launch, efficiency and protocols.
    WITHOUT_PROTOCOLS = {
        "nvlink-ndr": {'ring': (0.00013394176, 6.24576e-06), 'tree': (4.7611776e-05, 6.24576e-06)},
        "ethernet-100g": {'ring': (0.000797749333, 2.55181235e-05), 'tree': (0.000153864, 2.55181235e-05)},
        "tpu-torus": {'ring': (3.94051556e-05, 1.5e-06), 'tree': (1.35837867e-05, 1.5e-06)},
        "shared-memory": {'ring': (7.80882424e-06, 5.73715825e-07), 'tree': (3.82740242e-06, 5.73715825e-07)},
    }

    def test_files_without_protocols_simulate_as_before_to_the_digit(self):
        for network, wanted in self.WITHOUT_PROTOCOLS.items():
            rows = self.simulate("ring", "tree", "--network=" + network, "--world=27", "--bytes=64K")
            self.assertEqual({row["collective"]: (row["seconds"], row["bound_seconds"]) for row in rows}, wanted, network)

    def test_a_file_of_ones_own(self):
        rows = self.simulate("ring", self.network(dict(FLAT, latency_us=1000)), "--world=5", "--bytes=8")
        self.assertAlmostEqual(rows[0]["seconds"], 8 * 1e-3, delta=1e-5)

    def test_a_graph_that_is_a_star_simulates_as_flat(self):
        star = self.network({**FLAT, "topology": "graph", "latency_us": 0.5, "ranks": 8, "links": [{"from": rank, "to": 8} for rank in range(8)]})
        for operation in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"):
            more = ("--world=2,5,8", "--bytes=4K,1M", "--operation=" + operation)
            rows, flat = (self.simulate("tree" if operation == "broadcast" else "ring", network, *more) for network in (star, "--network=flat"))
            for row, other in zip(rows, flat):
                self.assertAlmostEqual(row["seconds"], other["seconds"], delta=1e-12)
                self.assertAlmostEqual(row["bound_seconds"], other["bound_seconds"], delta=1e-9, msg=(row, other))
            self.assertIn("link from 0 to 8", rows[0]["busiest_link"])
        outcome = self.lockstep("simulate", "ring", star, "--world=9")
        self.assertEqual((outcome.code, outcome.err.count("\n")), (BAD_INPUT, 1))
        self.assertIn("the graph has 8 ranks, not 9", outcome.err)

    def test_the_bound_is_a_bound(self):
        trees = dict(FLAT, topology="fat-tree", node={"ranks": 4, "latency_us": 0.5, "bandwidth_gb_s": 100},
                     switches=[{"below": 2, "oversubscription": 4, "latency_us": 1}])
        line = {**FLAT, "topology": "graph", "ranks": 48, "links": [{"from": rank, "to": rank + 1, "bandwidth_gb_s": 5 + rank % 3} for rank in range(47)]}
        networks = [self.network(trees, "t.json"), self.network(line, "l.json"), "--network=tpu-torus", "--network=tpu-torus-2d", "--network=flat"]
        for network in networks:
            for operation in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"):
                for row in self.simulate("ring", network, "--world=2-9,16,48", "--bytes=4,64K,16M", "--operation=" + operation):
                    if row["seconds"]:
                        self.assertLessEqual(row["bound_share"], 1.000001, row)


class Randomness(SimulateTest):
    def test_jitter_and_stragglers_are_reproducible(self):
        noisy = ("ring", "--world=16", "--jitter=0.3", "--straggler=3:2,5:1.5")
        self.assertEqual(self.simulate(*noisy, "--seed=1"), self.simulate(*noisy, "--seed=1"))
        self.assertNotEqual(self.simulate(*noisy, "--seed=1"), self.simulate(*noisy, "--seed=2"))

    def test_a_straggler_costs_time(self):
        plain, slow = (self.simulate("ring", *more)[0]["seconds"] for more in ((), ("--straggler=0:5",)))
        self.assertGreater(slow, 3 * plain)


class Charts(SimulateTest):
    def chart(self, *arguments):
        path = self.path("chart.svg")
        self.simulate("--svg=" + path, *arguments)
        return xml.etree.ElementTree.parse(path).getroot()

    def texts(self, root):
        return {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}

    def test_over_sizes_and_over_worlds(self):
        texts = self.texts(self.chart("ring", "hierarchical-copy", "--bytes=4K,1M,64M"))
        self.assertLessEqual({"ring", "hierarchical-copy", "size of the buffer", "time"}, texts)
        texts = self.texts(self.chart("ring", "--world=2-8"))
        self.assertLessEqual({"ring", "ranks", "all_reduce of 64 MiB on flat"}, texts)
        texts = self.texts(self.chart("ring", "--world=2,8", "--bytes=1K,1M"))
        self.assertLessEqual({"ring, 2 ranks", "ring, 8 ranks"}, texts)
        self.chart("ring", "--world=1", "--bytes=0")


class Measured(SimulateTest):
    NAMES = "operation,bytes,ranks,nodes,ranks_per_node,seconds_out_of_place,seconds_in_place,algorithm,note"
    FEW = "operation,bytes,ranks,seconds_in_place"

    def measured(self, *lines, names=NAMES, encoding="utf-8"):
        with open(self.path("measured.csv"), "w", encoding=encoding) as file:
            file.write("\n".join([names, *lines]) + "\n")
        return "--against=" + self.path("measured.csv")

    def sweep(self):
        """Of a machine that takes 1.25 times as long as `flat` out of place, and 0.8 times in place."""
        lines = []
        for size in (1 << 20, 1 << 22, 1 << 26):
            seconds = ring_seconds(4, size)
            lines.append("all-reduce,%d,4,1,4,%.9g,%.9g,ring," % (size, 1.25 * seconds, 0.8 * seconds))
        return lines

    def test_how_far_the_simulation_is_off(self):
        left_out = ['all-reduce,1048576,4,1,4,1,,nvls,', 'all-reduce,1048576,4,1,4,1,,unknown,"artefact, of the ""start"""']
        rows = self.simulate("ring", self.measured(*self.sweep(), *left_out), "--svg=" + self.path("error.svg"))
        self.assertEqual([row["left_out"] for row in rows], [None] * 3 + ["reduced in a switch", "an artefact"])
        for row in rows[:3]:
            self.assertAlmostEqual(row["seconds"] / row["measured_seconds"], 0.8, delta=1e-6)
        self.assertIn("3 points, off by 25.0 % ", self.out)
        self.assertIn("at worst by 25.0 %: ", self.out)
        self.assertIn("4 ranks, too fast; 2 left out", self.out)
        self.assertIn("-20.0 %", self.out)
        texts = {element.text for element in xml.etree.ElementTree.parse(self.path("error.svg")).iter("{http://www.w3.org/2000/svg}text")}
        self.assertLessEqual({"measured", "simulated", "size of the buffer", "ring on flat, against measurements"}, texts)
        self.simulate("ring", self.measured(*self.sweep()), "--in-place", "--bytes=4M,64M", "--world=4")
        self.assertIn("2 points, off by 25.0 % ", self.out)
        self.assertIn("too slow; 0 left out", self.out)
        rows = self.simulate("ring", self.measured("all_gather,4096,2,1e-3", names=self.FEW, encoding="utf-8-sig"))
        self.assertEqual((rows[0]["operation"], rows[0]["algorithm"], rows[0]["verified_world"]), ("all_gather", None, 2))
        self.assertAlmostEqual(rows[0]["error"], rows[0]["seconds"] / 1e-3 - 1, delta=1e-6)
        self.assertLessEqual(rows[0]["bound_seconds"], rows[0]["seconds"])

    def test_rows_that_do_not_count(self):
        line = "all-reduce,1048576,%d,1,4,1,%s,%s,%s"
        cases = [(line % (4, "", "NVLSTree", ""), "reduced in a switch"), (line % (4, "", "CollnetDirect", ""), "reduced in a switch"),
                 (line % (4, "", "ring", "no artefacts"), None), (line % (4, "", "ring", "artefact: out of place"), "an artefact"),
                 (line % (4, "2", "ring", "artefact; out-of-place"), None), (line % (4, "2", "ring", "artefact"), "an artefact"),
                 (line % (4, "", "ring", "not for error figures"), "doubtful"), (line % (1, "", "ring", ""), "nothing is sent"),
                 ("all-reduce,0,1,1,4,1,,ring,", "nothing is sent"), ("scan,8,4,1,4,1,,nvls,", "reduced in a switch")]
        rows = self.simulate("ring", self.measured(*[text for text, _ in cases]), "--in-place")
        self.assertEqual([row["left_out"] for row in rows], [reason for _, reason in cases])
        self.assertEqual([row["seconds"] is None for row in rows], [False] * 9 + [True]) # no such operation
        self.assertNotIn("inf", self.out)
        rows = self.simulate("ring", self.measured("all_reduce,4096,2,1,", "all_reduce,4096,4,1,a cold start", names=self.FEW + ",left_out"))
        self.assertEqual([row["left_out"] for row in rows], [None, "a cold start"])
        self.assertIn("1 point,", self.out)
        rows = self.simulate("ring", self.measured(line % (16, "", "nvls", ""), line % (4, "", "", "")), "--network=nvlink-ndr")
        self.assertEqual([row["seconds"] is None for row in rows], [True, False]) # nodes of 4, and here of 8

    def test_a_line_for_each_operation_and_world(self):
        lines = ["%s,%d,%d,1e-3" % (operation, size, world) for size in (1 << 22, 1 << 20, 1 << 21)
                 for operation in ("all_reduce", "all_gather") for world in (8, 4)]
        self.simulate("ring", self.measured(*lines, names=self.FEW), "--svg=" + self.path("lines.svg"))
        svg = "{http://www.w3.org/2000/svg}"
        root = xml.etree.ElementTree.parse(self.path("lines.svg"))
        self.assertLessEqual({"%s, %s, %d ranks" % (side, operation, world) for side in ("measured", "simulated")
                              for operation in ("all_reduce", "all_gather") for world in (4, 8)},
                             {element.text for element in root.iter(svg + "text")})
        paths = [line.get("d") for line in root.iter(svg + "path") if line.get("class") == "line" and line.get("fill")]
        drawn = [[float(x) for x in re.findall("[ML]([0-9.]+)", path)] for path in paths]
        self.assertEqual([len(line) for line in drawn], [3] * 8)
        for line in drawn:
            self.assertEqual(line, sorted(line))

    def test_tables_that_cannot_be(self):
        line = self.sweep()[0]
        for lines, says in (([line.replace(",4,1,", ",x,1,")], ("measured.csv:2", "number of ranks", "'x'")),
                            ([line, line + ",more"], ("measured.csv:3", "has 10 fields, the header has 9")),
                            ([line + '"open'], ("measured.csv:2", "quote")),
                            (["all-reduce,8,4,1,4,,,ring,"], ("measured.csv:2", "time in seconds")),
                            (["all-reduce,8,4,1,4,-1,,ring,"], ("measured.csv:2", "time in seconds")),
                            ([line, "all-reduce,7,4,1,4,1,,ring,"], ("measured.csv:3", "7 bytes", "4 bytes")),
                            ([line, "scan,8,4,1,4,1,,ring,"], ("measured.csv:3", "scan")),
                            (["all_to_all,12,4,1,4,1,,ring,"], ("measured.csv:2", "3 elements", "4 ranks")),
                            (["all-reduce,8,99999999,1,4,1,,ring,"], ("measured.csv:2", "99999999")),
                            ([line, line.replace("all", "x" * 30)], ("measured.csv:3", "longer than")), ([], ("no measurement",))):
            with self.subTest(lines=lines):
                self.refused(BAD_INPUT, "simulate", "ring", self.measured(*lines), says=says)
        self.refused(BAD_INPUT, "simulate", "ring", self.measured("1,2", names="operation,bytes"), says=("measured.csv:1", "no column ranks", "operation, bytes"))
        self.refused(BAD_INPUT, "simulate", "ring", self.measured(line, names=self.NAMES + ",bytes"), says=("measured.csv:1", "'bytes'", "twice"))
        self.refused(BAD_INPUT, "simulate", "ring", self.measured(line + "\xe9", encoding="latin-1"), says=("measured.csv:2", "UTF-8"))
        self.refused(BAD_INPUT, "simulate", "ring", self.measured(line, encoding="utf-16"), says=("measured.csv:1", "UTF-8"))
        open(self.path("measured.csv"), "w").close()
        self.refused(BAD_INPUT, "simulate", "ring", "--against=" + self.path("measured.csv"), says=("measured.csv: ", "no measurement"))
        for option in ("--json=", "--svg="):
            self.refused(USAGE, "simulate", "ring", self.measured(line), option + self.path("measured.csv"), says=("--against reads",))
        self.refused(BAD_INPUT, "simulate", "ring", "--against=none.csv", says=("none.csv",))
        graph = self.network({**FLAT, "topology": "graph", "ranks": 2, "links": [{"from": 0, "to": 1}]}, "graph.json")
        self.refused(BAD_INPUT, "simulate", "ring", self.measured("all-reduce,4096,16,4,4,1,,ring,"), graph,
                     says=("16 ranks were measured, and network mine has 2",))
        self.refused(BAD_INPUT, "simulate", "ring", self.measured("all-reduce,4096,16,4,4,1,,ring,"), "--network=nvlink-ndr",
                     says=("nodes of 4", "have 8"))
        self.refused(USAGE, "simulate", "ring", self.measured(line), "--world=8", says=("no row",))
        self.refused(USAGE, "simulate", "ring", "tree", self.measured(line), says=("one collective, and 2",))
        self.refused(USAGE, "simulate", "ring", self.measured(line), "--operation=broadcast", says=("--against",))


class Large(SimulateTest):
    """No time is measured here; the memory is."""

    def peak(self, *arguments):
        """Peak memory in bytes of a run of its own, and its rows."""
        code = ("import resource, subprocess, sys; code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL);"
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)")
        path = self.path("rows.json")
        done = subprocess.run([sys.executable, "-c", code, LOCKSTEP, "simulate", "--json=" + path, *arguments],
                              stdout=subprocess.PIPE, text=True, timeout=580)
        self.assertEqual(done.returncode, DONE)
        return int(done.stdout) * 1024, read_json(path)["rows"][0]

    def test_a_ring_of_4096_ranks(self):
        peak, row = self.peak("ring", "--world=4096", "--bytes=64M")
        self.assertLess(abs(row["seconds"] / ring_seconds(4096, 64 << 20) - 1), 0.01)
        self.assertEqual(row["messages"], 2 * 4095 * 4096)
        self.assertLess(peak, 2 << 30)

    def test_halving_doubling_of_65536_ranks(self):
        self.need(os.path.join(PLUGINS, "collective-halving-doubling.so"))
        peak, row = self.peak("halving-doubling", "--world=65536")
        share = 65535 / 65536 * (64 << 20)
        wanted = 2 * math.log2(65536) * ALPHA + 2 * share * BETA + share * GAMMA
        self.assertLess(abs(row["seconds"] / wanted - 1), 0.01)
        self.assertLess(peak, 2 << 30)


class Refusals(SimulateTest):
    def test_values_that_cannot_be(self):
        for option in ("--world=0", "--world=-1", "--world=x", "--world=99999999999", "--world=4,", "--bytes=-1", "--bytes=1T",
                       "--bytes=7", "--bytes=99999999G", "--jitter=-0.1", "--jitter=nan", "--straggler=1", "--straggler=1:0.5",
                       "--straggler=-1:2", "--straggler=1:inf", "--straggler=8:2", "--seed=-1", "--operation=allreduce",
                       "--dtype=float8", "--root=8", "--network=flatt"):
            with self.subTest(option=option):
                self.refused(USAGE, "simulate", "ring", option)
        self.refused(USAGE, "simulate", says=("the collective is missing",))
        self.refused(USAGE, "simulate", "hierarchical-copy:groups=9", "--world=8", says=("groups=9",))
        self.refused(USAGE, "simulate", "hierarchical-copy:gruops=2", says=("groups",))

    def test_what_is_no_collective(self):
        self.refused(UNAVAILABLE, "simulate", "rign", says=("rign", "ring"))
        self.refused(UNAVAILABLE, "simulate", "local")
        self.refused(UNAVAILABLE, "simulate", os.path.join(PLUGINS, "transport-local.so"))
        self.refused(BAD_INPUT, "simulate", "./collective-none.so", says=("collective-none.so",))

    def test_network_files_that_cannot_be(self):
        cases = [
            (dict(FLAT, bandwidth_gb_s=0), ("bandwidth_gb_s",)),
            (dict(FLAT, bandwidth_gb_s=-1), ("bandwidth_gb_s",)),
            (dict(FLAT, latencyus=1), ("latencyus", "latency_us")),
            (dict(FLAT, topology="torus", sides=[4, 4]), ("4 x 4", "16", "8")),
            ('{"name": "a",\n "topology": }', ("line 2", "column 14")),
            ("", ("line 1",)),
        ]
        for text, says in cases:
            with self.subTest(text=text):
                self.refused(BAD_INPUT, "simulate", "ring", self.network(text), "--world=8", says=says)
        self.refused(BAD_INPUT, "simulate", "ring", "--network=./none.json", says=("none.json",))

    def test_files_that_cannot_be_written(self):
        self.refused(BAD_INPUT, "simulate", "ring", "--json=/nonexistent/a.json", says=("--json", "/nonexistent"))
        self.refused(BAD_INPUT, "simulate", "ring", "--svg=" + self.folder, says=("--svg", "folder"))


if __name__ == "__main__":
    main()
