#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lockstep verify: shipped collectives hold; broken ones, written here and compiled, are refused where they break."""
import os
import re
import shlex
import subprocess
import time

from support import BAD_INPUT, DONE, FAILED, UNAVAILABLE, USAGE, ProgramTest, main, read_json

SOURCE = os.environ["LOCKSTEP_SOURCE"]
BUILD = os.environ["LOCKSTEP_BUILD"]
COMPILER = shlex.split(os.environ["LOCKSTEP_COMPILER"])
SHIPPED = ("ring", "hierarchical-copy", "tree", "halving-doubling", "torus", "direct", "two-level")
OPERATIONS = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all")

PLUGIN = """
#include "core/plugin/collective.h"
#include <stdlib.h>

static int32_t build_schedule(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint64_t world = call->world, rank = call->rank;
    const uint32_t next = (uint32_t)((rank + 1) % world), previous = (uint32_t)((rank + world - 1) % world);
    (void)next; (void)previous; (void)schedule;
@BODY@
    return LS_OK;
}

static const struct ls_collective_interface table = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE,
    .deterministic = DETERMINISTIC,
    .build_schedule = build_schedule,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "mine", .version = "1", .licence = "Apache-2.0",
    .summary = "of a test", .interface = &table,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
"""

# The second half sends to @NEXT@.
RING = """
    for (uint64_t step = 1; step < world; step++) {
        ls_send(schedule, next, ls_chunk(call, rank + world - step));
        ls_receive_and_reduce(schedule, previous, ls_chunk(call, rank + 2 * world - step - 1));
        ls_end_round(schedule);
    }
    for (uint64_t step = 0; step + 1 < world; step++) {
        ls_send(schedule, @NEXT@, ls_chunk(call, rank + world - step));
        ls_receive(schedule, previous, ls_chunk(call, rank + world - step - 1));
        ls_end_round(schedule);
    }
"""

OWN_FIRST = """
    ls_scratch(schedule, call->count * world);
    for (uint32_t peer = 0; peer < world; peer++)
        if (peer != rank) {
            ls_send(schedule, peer, ls_data_range(0, call->count));
            ls_receive(schedule, peer, ls_scratch_range(peer * call->count, call->count));
        }
    ls_end_round(schedule);
    for (uint32_t peer = 0; peer < world; peer++)
        if (peer != rank)
            ls_reduce(schedule, ls_data_range(0, call->count), ls_scratch_range(peer * call->count, call->count));
"""


class VerifyTest(ProgramTest):
    def plugin(self, body, deterministic=1, name="collective-mine.so"):
        """Compiles a collective; its path."""
        source = self.path("mine.c")
        with open(source, "w") as file:
            file.write(PLUGIN.replace("@BODY@", body))
        path = self.path(name)
        subprocess.run([*COMPILER, "-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", "-I", SOURCE,
                        f"-DDETERMINISTIC={deterministic}", "-o", path, source], check=True)
        os.chmod(path, 0o755)
        return path

    def verify(self, code, *arguments, says=(), **more):
        """Runs verify; with another code than 0, there is one line on stderr that has every text of `says`."""
        outcome = self.lockstep("verify", *arguments, **more)
        self.assertEqual(outcome.code, code, outcome.out + outcome.err)
        lines = outcome.err.splitlines()
        self.assertEqual(len(lines), 0 if code == DONE else 1, outcome.err)
        for text in says:
            self.assertIn(text, outcome.err)
        return outcome


class Shipped(VerifyTest):
    def test_all_hold_in_worlds_1_to_64(self):
        path = self.path("rows.json")
        self.verify(DONE, *SHIPPED, "--json=" + path)
        report = read_json(path)
        self.assertTrue(report["passed"])
        self.assertEqual({row["collective"] for row in report["rows"]}, set(SHIPPED))
        for row in report["rows"]:
            self.assertTrue(row["passed"], row)
            self.assertEqual(row["worlds"], "1-64")
            self.assertEqual(row["declined_cases"], 0)
            self.assertTrue(row["same_order"])
            self.assertGreaterEqual(row["ratio"], 1)
            self.assertGreaterEqual(row["rounds"], row["least_rounds"])

    def test_all_ranks_round_alike_with_messages_of_16_bits(self):
        out = self.verify(DONE, *SHIPPED, "--wire", "--operation=all-reduce", "--count=1,world+1,1009,104729").out
        self.assertEqual(len(re.findall(r"(?m)^\S+ +all-reduce +1-64 +\d+ .* holds$", out)), len(SHIPPED), out)

    def test_a_long_name_moves_no_column(self):
        out = self.verify(DONE, "hierarchical-copy:groups=2", "--world=4", "--operation=all-reduce").out
        heading, row = [line for line in out.splitlines() if "operation" in line or "all-reduce" in line][:2]
        self.assertEqual(heading.index("operation"), row.index("all-reduce"))

    def test_a_ring_has_the_rounds_and_bytes_it_is_known_for(self):
        path = self.path("rows.json")
        outcome = self.verify(DONE, "ring", "--world=8", "--count=8192", "--operation=all", "--json=" + path)
        rows = {row["operation"]: row for row in read_json(path)["rows"]}
        self.assertEqual(set(rows), {"all-reduce", "reduce-scatter", "all-gather"})
        row = rows["all-reduce"]
        self.assertEqual((row["rounds"], row["least_rounds"], row["bytes"], row["ratio"]), (14, 3, 57344, 1))
        self.assertEqual(rows["all-gather"]["bytes"], 28672)
        self.assertEqual(len(outcome.out.splitlines()), 4)

    def test_the_worst_world_is_printed_beside_the_largest(self):
        path = self.path("rows.json")
        outcome = self.verify(DONE, "tree", "--world=2-20", "--operation=all-reduce", "--json=" + path)
        row = read_json(path)["rows"][0]
        self.assertAlmostEqual(row["ratio"], 20 / 19, places=3)  # its root sends twice what is least, shared by 20
        self.assertEqual((round(row["worst_ratio"], 3), row["worst_world"]), (1.333, 4))
        self.assertIn("1.333 at 4", outcome.out)

    def test_what_is_not_offered_is_verified_as_the_host_does_it(self):
        path = self.path("rows.json")
        self.verify(DONE, "hierarchical-copy", "--world=1-9", "--operation=" + ",".join(OPERATIONS), "--json=" + path)
        rows = {row["operation"]: row for row in read_json(path)["rows"]}
        self.assertEqual(set(rows), set(OPERATIONS))
        self.assertEqual([name for name in OPERATIONS if rows[name]["offered"]], ["all-reduce"])

    def test_options_reach_the_collective_and_declined_worlds_are_said(self):
        path = self.path("rows.json")
        outcome = self.verify(DONE, "hierarchical-copy:groups=4", "--world=2-6", "--count=100", "--json=" + path)
        self.assertIn("groups=4 does not fit 2 ranks", outcome.out)
        row = read_json(path)["rows"][0]
        self.assertEqual((row["worlds"], row["cases"], row["declined_cases"]), ("4-6", 6, 4))

    def test_a_world_that_is_declined_altogether_is_not_passed(self):
        outcome = self.verify(FAILED, "hierarchical-copy:groups=4", "--world=2", "--count=100",
                              says=["declines every case", "groups=4 does not fit 2 ranks"])
        self.assertIn("declines everything", outcome.out)


class Broken(VerifyTest):
    def test_the_unbroken_plugin_holds(self):
        self.verify(DONE, self.plugin(RING.replace("@NEXT@", "next")))

    def test_a_peer_that_is_one_off(self):
        path = self.path("rows.json")
        plugin = self.plugin(RING.replace("@NEXT@", "(uint32_t)((rank + 2) % world)"))
        outcome = self.verify(FAILED, plugin, "--world=4", "--count=1000", "--json=" + path,
                              says=["collective-mine.so: all-reduce, 4 ranks, 1000 elements: rank 0, round 3: receives "
                                    "elements 768 to 999 from rank 3, which sends nothing to rank 0 in its round 3"])
        self.assertIn("REFUSED", outcome.out)
        report = read_json(path)
        self.assertFalse(report["passed"])
        row = report["rows"][0]
        self.assertEqual((row["passed"], row["refused_world"], row["refused_count"], row["refused_rank"],
                          row["refused_round"]), (False, 4, 1000, 0, 3))
        self.assertIn("rank 0, round 3: ", row["reason"])
        plugin = self.plugin(RING.replace("@NEXT@", "call->hosts ? (uint32_t)((rank + 2) % world) : next"))
        self.verify(FAILED, plugin, "--world=4", "--count=1000", says=["; --draw --world=4 --count=1000 --ranks-per-host=4 draws it"])

    def test_orders_that_differ(self):
        self.verify(FAILED, self.plugin(OWN_FIRST), "--world=3", "--count=10",
                    says=["rank 2, in the end: elements 0 to 9 are added in another order than at rank 0", "; --draw --world=3 --count=10 draws it"])
        outcome = self.verify(DONE, self.plugin(OWN_FIRST, deterministic=0), "--world=3", "--count=10")
        self.assertIn("ranks add in different orders", outcome.out)
        # A training says so before its first step, and not only when its replicas differ at the end.
        outcome = self.lockstep("train", "--plugin-path=" + self.folder, "--strategy=mine", "--replicas=3", "--model=mlp",
                                "--dataset=synthetic:examples=30", "--steps=1")
        self.assertEqual(outcome.code, FAILED)
        self.assertEqual(outcome.err.count("with collective mine these 3 ranks add in different orders"), 1, outcome.err)

    def test_a_world_that_is_not_offered_is_said_with_its_reason(self):
        path = self.plugin('if (world == 3)\n        return ls_host_fail(call->host, LS_UNSUPPORTED, "no threes; choose ring");\n' + OWN_FIRST)
        here = "--plugin-path=" + self.folder
        self.refused(FAILED, "simulate", path, "--world=3", says=["mine does not serve 3 ranks", "no threes; choose ring"])
        self.refused(FAILED, "bench", here, "mine", "--replicas=3", "--bytes=4K", says=["does not serve these 3 ranks", "no threes; choose ring"])
        self.refused(FAILED, "train", here, "--strategy=mine", "--replicas=3", "--model=mlp", "--dataset=fashion-mnist-small", "--steps=1",
                     says=["does not serve these 3 ranks", "no threes; choose ring"])

    def test_a_describe_that_never_returns(self):
        begin = time.monotonic()
        self.verify(FAILED, self.plugin("volatile int go = 1; while (go && rank == 2) {}"), "--world=3", "--count=0",
                    "--deadline=1", says=["3 ranks, 0 elements: build_schedule for rank 2 did not end within 1 s"])
        self.assertLess(time.monotonic() - begin, 60)

    def test_a_describe_that_never_stops_describing(self):
        self.verify(FAILED, self.plugin("for (;;) ls_end_round(schedule);"), "--world=2", "--count=0",
                    says=["rank 0, round 8388608: ", "more than 8388608 steps and rounds"])
        self.verify(FAILED, self.plugin("while (!ls_send(schedule, next, ls_data_range(0, 1))) {}"), "--world=2",
                    "--count=9", says=["more than 8388608 steps and rounds"])

    def test_a_describe_that_crashes_or_ends_the_process(self):
        self.verify(FAILED, self.plugin("if (rank == 1) abort();"), "--world=2", "--count=1",
                    says=["build_schedule for rank 1 crashed (signal 6)"])
        self.verify(FAILED, self.plugin("if (rank == 1) exit(0);"), "--world=2", "--count=1",
                    says=["build_schedule for rank 1 ended the process; a plugin must never do that"])

    def test_memory_that_no_machine_has(self):
        self.verify(FAILED, self.plugin("ls_scratch(schedule, UINT64_MAX / 8);"), "--world=2", "--count=1",
                    says=["elements of scratch; no machine has so much memory"])


RING_OF_THREE = """\
ring: all-reduce, 3 ranks, 192 elements
  a-b -> r      sends elements a to b to rank r
  a-b <- r      receives elements a to b from rank r
  a-b <+ r      receives from rank r and reduces into a to b

  rank 0        rank 1        rank 2
round 0
  128-191 -> 1  0-63 -> 2     64-127 -> 0
  64-127 <+ 2   128-191 <+ 0  0-63 <+ 1
round 1
  64-127 -> 1   128-191 -> 2  0-63 -> 0
  0-63 <+ 2     64-127 <+ 0   128-191 <+ 1
round 2
  0-63 -> 1     64-127 -> 2   128-191 -> 0
  128-191 <- 2  0-63 <- 0     64-127 <- 1
round 3
  128-191 -> 1  0-63 -> 2     64-127 -> 0
  64-127 <- 2   128-191 <- 0  0-63 <- 1
verdict: holds; 4 rounds (least 2), 1024 bytes (least 1024)

"""

HIERARCHICAL_COPY = """\
hierarchical-copy: all-reduce, 4 ranks, 5 elements
  a-b -> r      sends elements a to b to rank r
  a-b <- r      receives elements a to b from rank r
  a-b <+ r      receives from rank r and reduces into a to b

  rank 0    rank 1    rank 2    rank 3
round 0
  0-4 <+ 1  0-4 -> 0  0-4 <+ 3  0-4 -> 2
round 1
  0-4 <+ 2  -         0-4 -> 0  -
round 2
  0-4 -> 2  -         0-4 <- 0  -
round 3
  0-4 -> 1  0-4 <- 0  0-4 -> 3  0-4 <- 2
verdict: holds; 4 rounds (least 2), 40 bytes (least 30)

"""

ORDERS_THAT_DIFFER = """\
collective-mine.so: all-reduce, 3 ranks, 10 elements
  a-b -> r      sends elements a to b to rank r
  a-b <- r      receives elements a to b from rank r
  a-b += c-d    reduces c to d, on this rank, into a to b
  s             elements of scratch

  rank 0         rank 1         rank 2
scratch
  s0-29          s0-29          s0-29
round 0
  0-9 -> 1       0-9 -> 0       0-9 -> 0
  s10-19 <- 1    s0-9 <- 0      s0-9 <- 0
  0-9 -> 2       0-9 -> 2       0-9 -> 1
  s20-29 <- 2    s20-29 <- 2    s10-19 <- 1
round 1
  0-9 += s10-19  0-9 += s0-9    0-9 += s0-9
  0-9 += s20-29  0-9 += s20-29  0-9 += s10-19
in the end
                                ^ here
"""


class Drawn(VerifyTest):
    def test_a_ring_is_drawn(self):
        for _ in range(2):
            outcome = self.verify(DONE, "ring", "--draw", "--world=3", "--operation=all-reduce")
            self.assertEqual(outcome.out, RING_OF_THREE)

    def test_hierarchical_copy_is_drawn(self):
        self.assertEqual(self.verify(DONE, "hierarchical-copy", "--draw", "--count=5").out, HIERARCHICAL_COPY)

    def test_every_collective_and_operation_fits_100_columns_for_4_ranks(self):
        path = self.path("rows.json")
        out = self.verify(DONE, *SHIPPED, "--draw", "--operation=" + ",".join(OPERATIONS), "--json=" + path).out
        self.assertEqual(out.count("verdict: holds"), len(SHIPPED) * len(OPERATIONS))
        self.assertLessEqual(max(map(len, out.splitlines())), 100)
        cases = [row["cases"] for row in read_json(path)["rows"] if row["operation"] == "all-reduce"]
        self.assertEqual(cases, [1] * len(SHIPPED))
        for drawing in out.split("verdict: ")[:-1]:
            body = drawing.split("  rank 0")[1]
            sent, received = re.findall(r"\d -> ", body), re.findall(r"\d <[-+] ", body)
            self.assertEqual(len(sent), len(received))
            self.assertGreater(len(sent), 0)

    def test_the_place_of_a_refusal_is_marked(self):
        plugin = self.plugin(RING.replace("@NEXT@", "(uint32_t)((rank + 2) % world)"))
        outcome = self.verify(FAILED, plugin, "--draw", "--count=256", says=["rank 0, round 3: receives"])
        rounds = outcome.out.split("\nround ")
        self.assertEqual(rounds[4], "3\n  0-63 -> 2     64-127 -> 3   128-191 -> 0  192-255 -> 1\n"
                                    "  192-255 <- 3  0-63 <- 0     64-127 <- 1   128-191 <- 2\n  ^ here")
        self.assertEqual(outcome.out.count("^"), 1)
        self.assertIn("\nverdict: REFUSED: rank 0, round 3: receives elements 192 to 255 from rank 3", outcome.out)

    def test_a_refusal_of_the_result_is_marked_behind_the_rounds(self):
        outcome = self.verify(FAILED, self.plugin(OWN_FIRST), "--draw", "--world=3", "--count=10", says=["rank 2, in the end"])
        drawing, verdict = outcome.out.split("verdict: ")
        self.assertEqual(drawing, ORDERS_THAT_DIFFER)
        self.assertTrue(verdict.startswith("REFUSED: rank 2, in the end: elements 0 to 9 are added in another order"))

    def test_a_schedule_is_drawn_as_far_as_describe_goes(self):
        begin = "ls_send(schedule, next, ls_data_range(0, 1)); ls_end_round(schedule); "
        ends = {"volatile int go = 1; while (go && rank == 1) {}": "build_schedule for rank 1 did not end within 1 s",
                "if (rank == 1) abort();": "build_schedule for rank 1 crashed (signal 6)",
                "if (rank == 1) exit(0);": "build_schedule for rank 1 ended the process"}
        for end, says in ends.items():
            outcome = self.verify(FAILED, self.plugin(begin + end), "--draw", "--world=3", "--deadline=1", says=[says])
            self.assertIn("round 0\n  0 -> 1   0 -> 2   -\nround 1\n  -        -        -\n           ^ here\n"
                          "ranks behind rank 1 were not described\nverdict: REFUSED: " + says, outcome.out)
        outcome = self.verify(FAILED, self.plugin("for (;;) ls_end_round(schedule);"), "--draw", "--world=2",
                              says=["more than 8388608 steps"])
        self.assertIn("rounds 0 to 1023: no steps\n", outcome.out)
        self.assertIn("... cut here: a drawing has at most 16384 steps, and 1024 rounds\n", outcome.out)

    def test_steps_that_mean_nothing_are_drawn_as_they_are(self):
        outcome = self.verify(FAILED, self.plugin("ls_send(schedule, 9, ls_data_range(0, 100)); ls_end_round(schedule); "
                                                  "if (rank == 1) abort();"), "--draw", "--world=2", says=["its peer is rank 9"])
        self.assertIn("round 0\n  0-99 -> 9  0-99 -> 9\n  ^ here\n", outcome.out)
        outcome = self.verify(FAILED, self.plugin("struct ls_step step = {.struct_size = sizeof(step), .kind = 9, .range = {.count = 4}};"
                                                  "schedule->add(schedule, &step);"), "--draw", "--world=2", says=["there is no such step"])
        self.assertIn("round 0\n  0-3 ? 0  0-3 ? 0\n  ^ here\n", outcome.out)

    def test_what_is_declined_has_no_drawing(self):
        outcome = self.verify(FAILED, "hierarchical-copy:groups=4", "--draw", "--world=2", says=["declines every case"])
        self.assertRegex(outcome.out, r"\nverdict: declined: .*groups=4 does not fit 2 ranks")

    def test_one_world_of_few_ranks_and_one_count(self):
        for option in ("--world=17", "--world=2-3", "--world=1-64"):
            self.verify(USAGE, "ring", "--draw", option, says=["--draw", "one world of at most 16 ranks", option])
        self.verify(USAGE, "ring", "--draw", "--count=1,2", says=["--draw", "one count", "--count=1,2"])
        self.verify(USAGE, "ring", "--draw", "--ranks-per-host=0,2", says=["--draw", "--ranks-per-host=0,2"])
        self.assertIn("rank 15", self.verify(DONE, "ring", "--draw", "--world=16", "--count=world").out)


class Usage(VerifyTest):
    def test_what_is_no_collective(self):
        self.verify(UNAVAILABLE, "rign", says=["rign", "ring"])
        self.verify(UNAVAILABLE, "local", says=["local"])
        self.verify(UNAVAILABLE, os.path.join(BUILD, "plugins", "transport-local.so"), says=["transport"])
        self.verify(BAD_INPUT, "./collective-none.so", says=["collective-none.so"])
        self.verify(BAD_INPUT, "none.so", says=["none.so"])

    def test_values_that_do_not_exist(self):
        for option in ("--world=0", "--world=4-2", "--world=", "--world=2,", "--world=65537", "--count=x", "--count=-1",
                       "--count=world*2", "--count=99999999999999999999", "--operation=sum", "--operation=",
                       "--element-bytes=0", "--deadline=0", "--ranks-per-host=-1", "--worlds=2"):
            with self.subTest(option):
                self.verify(USAGE, "ring", option, says=[option.split("=")[0]])
        self.verify(USAGE, says=["lockstep verify ring"])
        self.verify(USAGE, "ring:groups=2", says=["groups"])

    def test_a_report_that_cannot_be_written(self):
        self.verify(BAD_INPUT, "ring", "--json=/nowhere/rows.json", says=["--json", "/nowhere"])


if __name__ == "__main__":
    main()
