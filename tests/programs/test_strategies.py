# SPDX-License-Identifier: Apache-2.0
"""docs/strategies.md: every command of it runs, every option and report key that it names is there, and the counts in
its tables are those that the simulator and the report come to."""
import math
import os
import re
import shlex
import subprocess

from support import DONE, FASHION, LOCKSTEP, UNTIMED, ProgramTest, main, read_json

SOURCE = os.environ["LOCKSTEP_SOURCE"]
COMMAND = re.compile(r"^    (lockstep .*)$", re.M)
STEPS = "--steps=4"  # for a command that would train for whole epochs
RANKS, BYTES = 8, 8 << 20
# What the table of collectives says, for 8 ranks: bytes a rank sends on average over n, rounds, messages.
LEAST = 2 * (RANKS - 1) / RANKS
TABLE = {
    "ring": (LEAST, 2 * (RANKS - 1), 2 * (RANKS - 1)),
    "halving-doubling": (LEAST, 2 * math.log2(RANKS), 2 * math.log2(RANKS)),
    "tree:segments=1": (LEAST, 2 * math.log2(RANKS), None),
    "torus:rows=2": (LEAST, 2 * (2 - 1) + 2 * (4 - 1), 2 * (2 - 1) + 2 * (4 - 1)),
    "direct": (LEAST, 2, 2 * (RANKS - 1)),
    "two-level:node=4": (LEAST, 2 + 2 * (2 - 1), 2 * (4 - 1) + 2 * (2 - 1)),
    "hierarchical-copy:groups=2": (LEAST, 4, 2 * (RANKS - 1)),
}


def page():
    with open(os.path.join(SOURCE, "docs", "strategies.md"), encoding="utf-8") as file:
        return file.read()


class Strategies(ProgramTest):
    def report(self, *arguments):
        return self.train("--model=mlp", "--dataset=synthetic:examples=400", "--validation=off", *arguments)

    def test_every_command_of_the_page_runs(self):
        self.need(FASHION)
        commands = COMMAND.findall(page())
        self.assertGreater(len(commands), 12)
        for command in commands:
            words = shlex.split(command)[1:]
            if words[0] == "train" and not any(word.startswith("--steps=") for word in words):
                words += [STEPS, "--validation=off"]
            elif words[0] == "launch":
                words += [STEPS, "--validation=off"]
            elif words[0] == "bench":
                words = [word for word in words if not word.startswith("--bytes=")]
                words += ["--bytes=1K", "--iterations=1", "--seconds=0"]
            elif words[0] == "compare":
                words = [word for word in words if not word.startswith("--steps=")] + [STEPS, "--validation=off", UNTIMED]
            with self.subTest(command):
                done = self.lockstep(*words)
                self.assertEqual(done.code, DONE, done.err)

    def rows_from_elsewhere(self, path, table):
        """(kinds, names, message) of each row of a table of hints in a source file."""
        with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
            text = file.read()
        body = text[text.index(f"struct ls_hint {table}[] = {{"):]
        body = body[:body.index("\n};")].replace("INCOMPLETE", '"every build of Lockstep has it"')
        rows = re.findall(r'\{((?:"[^"]*"\s*)+),\s*((?:"[^"]*"\s*)+),\s*([^}]*)\}', body)
        self.assertEqual(len(rows), body.count("\n    {") - 1)  # without the row that ends it
        whole = ["".join(re.findall('"([^"]*)"', row[0])).split() for row in rows]
        self.assertGreater(len(rows), 10)
        return [(kinds.lower(), names, "".join(re.findall('"([^"]*)"', says))) for names, (_, says, kinds) in zip(whole, rows)]

    def test_names_from_elsewhere_are_answered_with_plugins_that_exist(self):
        folder = os.path.join(SOURCE, "plugins")
        ours = {kind: set(os.listdir(os.path.join(folder, kind))) for kind in ("device", "transport", "collective", "strategy")}
        rows = self.rows_from_elsewhere("core/loader/elsewhere.c", "ls_elsewhere")
        for kinds, names, says in rows:
            for name in re.findall("`(.*?)`", says):
                self.assertIn(name, set().union(*ours.values()) | {"auto", "tpu"}, says)  # names for others
        for kind, names in ours.items():  # each has a row that says what brings it
            self.assertEqual(names - {name for kinds, known, says in rows if kind in kinds for name in known}, set(), kind)

    def test_options_from_elsewhere_are_answered_by_some_subcommand(self):
        for _, names, says in self.rows_from_elsewhere("tools/arguments.c", "arguments_elsewhere"):
            for name in names:
                errors = [self.lockstep(subcommand, "--" + name).err for subcommand in ("train", "simulate", "launch")]
                self.assertTrue(any(f"unknown option --{name}: {says}; --help=all lists all" in error for error in errors), (name, errors))

    def test_every_option_of_the_page_is_one(self):
        text = page()
        known = set()
        for subcommand in (("train",), ("compare",), ("bench",), ("simulate",), ("launch",), ("plugin", "new")):
            known |= set(re.findall(r"--[a-z-]+", self.lockstep(*subcommand, "--help=all").out))
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
        self.assertGreater(len(named), 10)
        self.assertEqual(named - known, set())

    def test_every_option_of_the_servers_is_in_the_table(self):
        shown = re.findall(r"^\| (.*=`.*?) \|", page(), re.M)
        named = set(re.findall(r"`(\w+)=`", " ".join(shown)))
        listed = self.lockstep("plugins", "parameter-server").out
        # `transport=` is not of this strategy alone: the page has it under Transports.
        self.assertEqual(named | {"transport"}, set(re.findall(r"^(?:options:)? +(\w+) \(", listed, re.M)), listed)

    def test_every_strategy_and_collective_has_its_section(self):
        headings = set(re.findall(r"^##+ (.+)$", page(), re.M))
        for kind, name in re.findall(r"^(strategy|collective) +(\S+)", self.lockstep("plugins").out, re.M):
            self.assertIn(name, headings, kind)

    def test_the_table_of_collectives_counts_right(self):
        path = self.path("rows.json")
        done = self.lockstep("simulate", *TABLE, f"--world={RANKS}", f"--bytes={BYTES}", "--network=flat", "--json=" + path)
        self.assertEqual(done.code, DONE, done.err)
        rows = read_json(path)["rows"]
        self.assertEqual(len(rows), len(TABLE))
        for row, (name, (sent, rounds, messages)) in zip(rows, TABLE.items()):
            with self.subTest(name):
                self.assertEqual(row["sent_bytes"], sent * BYTES * RANKS)
                self.assertEqual(row["rounds"], rounds)
                if messages is not None:
                    self.assertEqual(row["messages"], messages * RANKS)

    def test_bytes_of_a_step_are_as_said(self):
        sums = 64
        for strategy in ("ring", "central-storage", "parameter-server:mode=sync"):
            with self.subTest(strategy):
                report = self.report("--replicas=2", "--strategy=" + strategy, "--steps=2")
                buckets = sum(bucket["bytes"] for bucket in report["communication"]["buckets"]) - sums
                sent = report["communication"]["bytes_per_step_per_rank"]
                self.assertGreaterEqual(buckets, 4 * report["parameters"])
                self.assertLessEqual(abs(sent - buckets), 8 * sums)

    def test_the_report_has_the_keys_that_the_page_names(self):
        report = self.report("--replicas=2", "--steps=4", "--strategy=parameter-server:mode=bounded,servers=2,shard_bytes=4096")
        for key in ("mean", "max", "histogram"):
            self.assertIn(key, report["staleness"]["lead"])
            self.assertIn(key, report["staleness"]["missed_updates"])
        for key in ("waits", "waits_seconds", "pushes", "pulls", "pulls_unchanged"):
            self.assertIn(key, report["staleness"])
        for key in ("parameters", "shards"):
            self.assertEqual(len(report["servers"][key]), 2)
        self.assertLessEqual(report["staleness"]["lead"]["max"], 2)

    def test_a_collective_with_one_replica_says_how_to_have_more(self):
        for options, said in ((["--strategy=ring"], True), (["--strategy=ring", "--replicas=1"], False), (["--strategy=one-device"], False)):
            run = self.lockstep("train", "--model=mlp", "--dataset=synthetic:examples=64", "--validation=off", *options)
            self.assertEqual(run.code, DONE, run.err)
            self.assertEqual("one replica runs, so --strategy=ring has nothing to add up; --replicas=2 trains with two" in run.err, said)

    def test_a_transport_alone_means_auto_over_it(self):
        report = self.report("--replicas=2", "--steps=2", "--strategy=local")
        self.assertEqual((report["strategy"], report["collective"], report["transport"]), ("mirrored", "auto", "local"))
        listed = subprocess.run([LOCKSTEP, "plugins"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for bucket in report["communication"]["buckets"]:
            self.assertRegex(listed, rf"(?m)^collective +{bucket['algorithm']} ")
            self.assertNotEqual(bucket["algorithm"], "auto")


if __name__ == "__main__":
    main()
