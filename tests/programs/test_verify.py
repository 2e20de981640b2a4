#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lockstep verify: shipped collectives hold; broken ones, written here and compiled, are refused where they break."""
import json
import os
import shlex
import subprocess
import time
import unittest

from support import BAD_INPUT, DONE, FAILED, UNAVAILABLE, USAGE, ProgramTest, main

SOURCE = os.environ["LOCKSTEP_SOURCE"]
BUILD = os.environ["LOCKSTEP_BUILD"]
COMPILER = shlex.split(os.environ["LOCKSTEP_COMPILER"])
SHIPPED = ("ring", "hierarchical-copy", "tree", "halving-doubling", "torus", "direct", "two-level")
OPERATIONS = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce")

PLUGIN = """
#include "core/plugin/collective.h"
#include <stdlib.h>

static int32_t describe(const struct ls_collective_call *call, struct ls_schedule *schedule)
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
    .describe = describe,
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
        with open(path) as file:
            report = json.load(file)
        self.assertTrue(report["passed"])
        self.assertEqual({row["collective"] for row in report["rows"]}, set(SHIPPED))
        for row in report["rows"]:
            self.assertTrue(row["passed"], row)
            self.assertEqual(row["worlds"], "1-64")
            self.assertEqual(row["declined_cases"], 0)
            self.assertTrue(row["same_order"])
            self.assertGreaterEqual(row["ratio"], 1)
            self.assertGreaterEqual(row["rounds"], row["least_rounds"])

    def test_a_ring_has_the_rounds_and_bytes_it_is_known_for(self):
        path = self.path("rows.json")
        outcome = self.verify(DONE, "ring", "--world=8", "--count=8192", "--operation=all", "--json=" + path)
        with open(path) as file:
            rows = {row["operation"]: row for row in json.load(file)["rows"]}
        self.assertEqual(set(rows), {"all-reduce", "reduce-scatter", "all-gather"})
        row = rows["all-reduce"]
        self.assertEqual((row["rounds"], row["least_rounds"], row["bytes"], row["ratio"]), (14, 3, 57344, 1))
        self.assertEqual(rows["all-gather"]["bytes"], 28672)
        self.assertEqual(len(outcome.out.splitlines()), 4)

    def test_what_is_not_offered_is_verified_as_the_host_does_it(self):
        path = self.path("rows.json")
        self.verify(DONE, "hierarchical-copy", "--world=1-9", "--operation=" + ",".join(OPERATIONS), "--json=" + path)
        with open(path) as file:
            rows = {row["operation"]: row for row in json.load(file)["rows"]}
        self.assertEqual(set(rows), set(OPERATIONS))
        self.assertEqual([name for name in OPERATIONS if rows[name]["offered"]], ["all-reduce"])

    def test_options_reach_the_collective_and_declined_worlds_are_said(self):
        path = self.path("rows.json")
        outcome = self.verify(DONE, "hierarchical-copy:groups=4", "--world=2-6", "--count=100", "--json=" + path)
        self.assertIn("groups=4 does not fit 2 ranks", outcome.out)
        with open(path) as file:
            row = json.load(file)["rows"][0]
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
        with open(path) as file:
            report = json.load(file)
        self.assertFalse(report["passed"])
        row = report["rows"][0]
        self.assertEqual((row["passed"], row["refused_world"], row["refused_count"], row["refused_rank"],
                          row["refused_round"]), (False, 4, 1000, 0, 3))
        self.assertIn("rank 0, round 3: ", row["reason"])

    def test_orders_that_differ(self):
        self.verify(FAILED, self.plugin(OWN_FIRST), "--world=3", "--count=10",
                    says=["rank 2, in the end: elements 0 to 9 are added in another order than at rank 0"])
        outcome = self.verify(DONE, self.plugin(OWN_FIRST, deterministic=0), "--world=3", "--count=10")
        self.assertIn("ranks add in different orders", outcome.out)

    def test_a_describe_that_never_returns(self):
        begin = time.monotonic()
        self.verify(FAILED, self.plugin("volatile int go = 1; while (go && rank == 2) {}"), "--world=3", "--count=0",
                    "--deadline=1", says=["3 ranks, 0 elements: describe for rank 2 has not ended within 1 s"])
        self.assertLess(time.monotonic() - begin, 60)

    def test_a_describe_that_never_stops_describing(self):
        self.verify(FAILED, self.plugin("for (;;) ls_end_round(schedule);"), "--world=2", "--count=0",
                    says=["rank 0, round 8388608: ", "more than 8388608 steps and rounds"])
        self.verify(FAILED, self.plugin("while (!ls_send(schedule, next, ls_data_range(0, 1))) {}"), "--world=2",
                    "--count=9", says=["more than 8388608 steps and rounds"])

    def test_a_describe_that_crashes_or_ends_the_process(self):
        self.verify(FAILED, self.plugin("if (rank == 1) abort();"), "--world=2", "--count=1",
                    says=["describe for rank 1 crashed (signal 6)"])
        self.verify(FAILED, self.plugin("if (rank == 1) exit(0);"), "--world=2", "--count=1",
                    says=["describe for rank 1 ended the process; a plugin must never do that"])

    def test_memory_that_no_machine_has(self):
        self.verify(FAILED, self.plugin("ls_scratch(schedule, UINT64_MAX / 8);"), "--world=2", "--count=1",
                    says=["elements of scratch; no machine has so much memory"])


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
