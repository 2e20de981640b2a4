# SPDX-License-Identifier: Apache-2.0
"""What measures over workers: the collective `auto`, lockstep bench, and that lockstep compare does not. The workers are started
by hand. Nothing here depends on how long anything takes."""
import json
import os
import shutil
import signal
import subprocess

from support import BAD_INPUT, DONE, FAILED, PEER_LOST, USAGE, main
from test_bench import LAZY
from test_worker_ends import MODEL, Workers


class Auto(Workers):
    def train(self, *strategies, more=()):
        codes, errors = self.work(*[("train", *MODEL, "--quiet", "--report=" + self.path("report.json"), "--strategy=" + strategy, *more)
                                    for strategy in strategies])
        return codes, errors

    def table(self, name, world, *rows):
        with open(self.path(name), "w") as file:
            json.dump({"lockstep": "0.1.0", "date": "2026-11-24T00:00:00Z", "cores": 2, "transport": "shared-memory", "device": "host", "world": world, "operation": "all_reduce", "dtype": "float32",
                       "rows": [{"bytes": size, "collective": collective} for size, collective in rows]}, file)
        return self.path(name)

    def check_trained(self, source):
        report = self.report()
        self.assertEqual((report["status"], report["workers"], report["tuner"]["source"]), ("done", 2, source))
        hashes = [one["parameter_hashes"] for one in report["worker_reports"]]
        self.assertEqual(hashes[0], hashes[1])
        return {size["bytes"]: size["collective"] for size in report["tuner"]["sizes"]}

    def test_the_workers_measure_together(self):
        for strategy in ("auto", "multi-worker-mirrored:collective=auto"):
            codes, errors = self.train(strategy, strategy)
            self.assertEqual(codes, [DONE, DONE], errors)
            self.assertTrue(self.check_trained("measured"))

    def test_two_workers_of_two_replicas(self):
        codes, errors = self.train("auto", "auto", more=("--replicas=2",))
        self.assertEqual(codes, [DONE, DONE], errors)
        self.assertTrue(self.check_trained("measured"))

    def test_tables(self):
        codes, errors = self.train("auto:table=fixed", "auto:table=fixed")
        self.assertEqual(codes, [DONE, DONE], errors)
        self.check_trained("fixed")
        strategy = "auto:table=" + self.table("table.json", 2, (4096, "direct"), (1 << 20, "tree"))
        codes, errors = self.train(strategy, strategy)
        self.assertEqual(codes, [DONE, DONE], errors)
        self.assertEqual(self.check_trained("file"), {4096: "direct", 1 << 20: "tree"})

    def test_other_tables_are_refused_with_both(self):
        """The same file name, as the command lines must have it, with another content on each worker."""
        for folder, collective in (("one", "tree"), ("other", "direct")):
            os.mkdir(self.path(folder))
            self.table(os.path.join(folder, "table.json"), 2, (4096, "ring"), (1 << 20, collective))
        self.folders = [self.path("one"), self.path("other")]
        codes, errors = self.train("auto:table=table.json", "auto:table=table.json")
        self.assertEqual(codes, [USAGE, USAGE], errors)
        for error in errors:
            self.assertIn("worker 1 has the table of auto ring for 4096 bytes, direct for 1048576 bytes, "
                          "but worker 0 has ring for 4096 bytes, tree for 1048576 bytes", error)

    def test_not_where_workers_come_and_go(self):
        codes, errors = self.train("auto", "auto", more=("--elastic=1:2",))
        self.assertEqual(codes, [USAGE, USAGE], errors)
        self.assertIn("--elastic: the strategy has collective auto", errors[0])
        self.assertIn("name a collective", errors[0])


QUICK = ("--seconds=0", "--iterations=1", "--warmup=0")


class Bench(Workers):
    def bench(self, *arguments, each=((), ())):
        """Between two workers; returns the rows of worker 0."""
        path = self.path("rows.json")
        codes, errors = self.work(*[("bench", *QUICK, "--json=" + path, *arguments, *own) for own in each])
        self.assertEqual(codes, [DONE] * len(each), errors)
        with open(path) as file:
            written = json.load(file)
        self.assertIs(written["passed"], True)
        for row in written["rows"]:
            self.assertEqual((row["wrong"], row["workers"]), (0, len(each)), row)
        for out, error in self.texts[1:]:
            self.assertEqual((out, error), ("", ""))
        return written["rows"]

    def test_every_collective_there_is_computes_exactly(self):
        rows = self.bench("--bytes=8,40000")
        self.assertLessEqual({"ring", "tree", "direct", "torus", "auto", "two-level"}, {row["collective"] for row in rows})
        self.assertEqual({(row["replicas"], row["transport"]) for row in rows}, {(2, "shared-memory")})
        self.assertIn("2 ranks of 2 workers, transport shared-memory", self.texts[0][0])

    def test_each_worker_has_ranks_of_its_own(self):
        rows = self.bench("ring", "auto", "--bytes=1000", "--place=in", "--fresh", each=(("--replicas=2",), ("--replicas=1",)))
        self.assertEqual({row["replicas"] for row in rows}, {3})

    def test_operations_between_three_workers(self):
        for operation in ("reduce_scatter", "all_gather", "broadcast", "reduce"):
            with self.subTest(operation=operation):
                self.bench("ring", "tree", "--operation=" + operation, "--bytes=12000", each=((), (), ()))

    def test_ucx(self):
        rows = self.bench("ring", "--bytes=4000", "--transport=ucx")
        self.assertEqual({row["transport"] for row in rows}, {"ucx"})

    def test_files_are_those_of_worker_0(self):
        for folder in ("one", "other"):
            os.mkdir(self.path(folder))
        self.folders = [self.path("one"), self.path("other")]
        self.bench("ring", "direct", "--bytes=4096", "--place=in", "--tune=table.json", "--svg=bench.svg")
        self.assertEqual(sorted(os.listdir(self.path("one"))), ["bench.svg", "table.json"])
        self.assertEqual(os.listdir(self.path("other")), [])
        with open(self.path("one/table.json")) as file:
            table = json.load(file)
        self.assertEqual((table["world"], table["transport"]), (2, "shared-memory"))
        self.folders = None
        strategy = "--strategy=auto:table=" + self.path("one/table.json")
        codes, errors = self.work(*[("train", *MODEL, "--quiet", strategy)] * 2)
        self.assertEqual(codes, [DONE, DONE], errors)

    def refuse(self, code, says, *each):
        codes, errors = self.work(*[("bench", *QUICK, *own) for own in each])
        self.assertEqual(codes, [code] * len(each), errors)
        for error in errors:
            self.assertIn(says, error)

    def test_differences(self):
        self.refuse(USAGE, "worker 1 has bytes 8, but worker 0 has 16", ("ring", "--bytes=16"), ("ring", "--bytes=8"))
        self.refuse(USAGE, "worker 1 has the collectives tree ", ("ring", "--bytes=16"), ("tree", "--bytes=16"))

    def test_a_collective_that_is_wrong_is_refused_on_every_worker(self):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            self.skipTest("there is no C compiler here")
        with open(self.path("lazy.c"), "w") as file:
            file.write(LAZY)
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        subprocess.run([compiler, "-std=c11", "-shared", "-fPIC", "-I" + root, "-o", self.path("collective-lazy.so"), self.path("lazy.c")],
                       check=True)
        os.chmod(self.path("collective-lazy.so"), 0o755)
        self.refuse(FAILED, "collective lazy is wrong and was not run: all-reduce of 1000 elements, 2 ranks: rank 0",
                    *[("ring", "./collective-lazy.so", "--bytes=4000")] * 2)

    def test_what_is_of_one_process_is_refused(self):
        self.refuse(USAGE, "--write-network measures two ranks of one process", *[("--write-network=" + self.path("net.json"),)] * 2)
        self.refuse(USAGE, "transport 'local' connects the replicas of one process", *[("ring", "--transport=local")] * 2)
        codes, errors = self.work(*[("bench", *QUICK, "ring", "--bytes=64", "--cluster=none")] * 2)
        self.assertEqual(codes, [DONE, DONE], errors)

    def test_a_failure_of_one_ends_all_with_its_code(self):
        """The folder of the file goes away while the workers measure: only worker 0 meets it."""
        os.mkdir(self.path("folder"))
        rows = "--json=" + self.path("folder/rows.json")
        self.start(*[("bench", "ring", "--bytes=64", "--place=in", "--seconds=2", rows)] * 2)
        self.assertTrue(any(line.startswith("#") for line in iter(self.processes[0].stdout.readline, "")))
        os.rmdir(self.path("folder"))
        codes, errors = self.finish()
        self.assertEqual(codes[0], codes[1], errors)
        self.assertIn(codes[0], (FAILED, BAD_INPUT), errors)
        self.assertIn("worker 0 failed, for the reason that it has logged", errors[1])

    def lose(self, number, *more):
        self.start(*[("bench", "ring", "--bytes=64K", "--seconds=600", *more)] * 2)
        self.assertTrue(self.processes[0].stdout.readline().startswith("#"))
        self.processes[1].send_signal(number)
        try:
            self.processes[0].wait(20)
        finally:
            self.processes[1].kill()
        return self.finish()

    def test_a_lost_worker_is_named(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(number=number):
                codes, errors = self.lose(number)
                self.assertEqual(codes, [PEER_LOST, -signal.SIGKILL], errors)
                self.assertIn("worker 1 ", errors[0])
                self.assertIn("lost", errors[0])


class Compare(Workers):
    def test_workers_are_refused_before_anything_is_done(self):
        compare = ("compare", *MODEL[:3], "--strategies=one-device,ring", "--steps=2", "--speed-steps=0", "--report=" + self.path("compare.json"))
        codes, errors = self.work(compare, compare)
        self.assertEqual(codes, [USAGE, USAGE], errors)
        for rank, error in enumerate(errors):
            self.assertIn(f"compare: this is worker {rank} of 2 by launch", error)
            self.assertIn("start it without the launcher, or give --cluster=none", error)
        self.assertFalse(os.path.exists(self.path("compare.json")))
        codes, errors = self.work((*compare, "--cluster=none"))
        self.assertEqual(codes, [DONE], errors)


if __name__ == "__main__":
    main()
