# SPDX-License-Identifier: Apache-2.0
"""What measures over workers: the collective `auto`, lockstep bench and lockstep compare. Most workers are started by hand. Nothing
here depends on how long anything takes."""
import json
import os
import shutil
import signal
import subprocess
import time

import engines
from support import BAD_INPUT, DONE, FAILED, INTERRUPTED, LOCKSTEP, PEER_LOST, UNTIMED, USAGE, main, read_json, write_json
from test_bench import LAZY
from test_worker_ends import MODEL, SECONDS, Workers


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
        written = read_json(path)
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
        for operation in ("reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"):
            with self.subTest(operation=operation):
                self.bench("ring", "tree", "--operation=" + operation, "--bytes=12000", each=((), (), ()))

    def test_ucx(self):
        self.need("/sys/class/net")  # where UCX looks for devices
        rows = self.bench("ring", "--bytes=4000", "--transport=ucx")
        self.assertEqual({row["transport"] for row in rows}, {"ucx"})

    def test_files_are_those_of_worker_0(self):
        for folder in ("one", "other"):
            os.mkdir(self.path(folder))
        self.folders = [self.path("one"), self.path("other")]
        self.bench("ring", "direct", "--bytes=4096", "--place=in", "--tune=table.json", "--svg=bench.svg")
        self.assertEqual(sorted(os.listdir(self.path("one"))), ["bench.svg", "table.json"])
        self.assertEqual(os.listdir(self.path("other")), [])
        table = read_json(self.path("one/table.json"))
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


class Compared(Workers):
    """lockstep compare over workers: each run is a training of all of them."""
    RINGS = (*MODEL[:3], "--batch=75", "--optimizer=sgd:learning_rate=0.01", UNTIMED)  # 38 and 37 examples
    LONG = ("compare", "--model=mlp", "--dataset=synthetic:shape=28x28x1,classes=10,examples=20000", "--threads=1", "--validation=off",
            "--strategies=ring,tree", "--round-steps=10", UNTIMED)

    def setUp(self):
        super().setUp()
        self.temporary = self.path("temporary")  # what a comparison leaves behind would be here
        os.mkdir(self.temporary)
        self.addCleanup(self.check_nothing_is_left)

    def check_nothing_is_left(self):
        """Neither a folder nor a process: those of a comparison have this folder among their variables."""
        end = time.monotonic() + SECONDS
        while (left := [pid for pid in filter(str.isdigit, os.listdir("/proc")) if self.is_ours(pid)]) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual((left, os.listdir(self.temporary)), ([], []))

    def is_ours(self, pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return ("TMPDIR=" + self.temporary).encode() in file.read().split(b"\0")
        except OSError:
            return False

    def start(self, *workers, **variables):
        super().start(*workers, TMPDIR=self.temporary, **variables)

    def compare(self, *arguments, each=((), ())):
        """Between workers that are started by hand; returns the report, which worker 0 has written, and the runs."""
        path = self.path("compare.json")
        codes, errors = self.work(*[("compare", *arguments, *own, "--report=" + path) for own in each])
        self.assertEqual(codes, [DONE] * len(each), errors)
        report = self.report("compare.json")
        self.assertEqual((report["status"], report["workers"]), ("done", len(each)))
        for out, _ in self.texts[1:]:
            self.assertEqual(out, "")
        return report, {run["strategy"]: run for run in report["runs"]}

    def refuse(self, says, *each, code=USAGE):
        codes, errors = self.work(*[("compare", *own) for own in each])
        self.assertEqual(codes, [code] * len(each), errors)
        self.assertEqual([out for out, _ in self.texts], [""] * len(each))
        for text in says:
            self.assertIn(text, errors[0])
        return errors

    def check_launched(self, launcher):
        """Two workers with a replica each compute the bits of two replicas of one process."""
        runs = []
        for command, more in ((launcher, ("--replicas=1", "--html=" + self.path("page.html"))), ((LOCKSTEP,), ("--replicas=2",))):
            done = subprocess.run([*command, "compare", *self.RINGS, "--epochs=2", "--strategies=ring,two-level", "--report=" + self.path("compare.json"),
                                   *more], env=dict(os.environ, TMPDIR=self.temporary), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=SECONDS, cwd=self.folder)
            self.assertEqual(done.returncode, DONE, done.stdout + done.stderr)
            self.assertEqual(done.stdout.count("\nVerdict"), 1)
            runs.append({run["strategy"]: run for run in self.report("compare.json")["runs"]})
            self.assertEqual(list(runs[-1]), ["one-device", "ring", "two-level"])
        for strategy, run in runs[0].items():
            other = runs[1][strategy]
            self.assertEqual(run["workers"], 1 if strategy == "one-device" else 2)
            self.assertEqual((run["status"], run["replicas"], run["replicas_equal"]), ("done", other["replicas"], True))
            self.assertEqual(len(run["report"]["parameter_hashes"]), run["replicas"])
            for key in ("losses", "parameter_hashes"):
                self.assertEqual(run["report"][key], other["report"][key], (strategy, key))
            for key in ("val_loss", "val_accuracy", "max_loss_deviation", "max_parameter_deviation", "reference_shares", "bytes_per_step_per_rank"):
                self.assertEqual(run[key], other[key], (strategy, key))
        self.assertEqual(runs[0]["ring"]["report"]["replica_batches"], [38, 37])
        with open(self.path("page.html")) as file:
            self.assertIn("two-level", file.read())


class Compare(Compared):
    def test_the_losses_are_those_of_the_replicas_of_one_process(self):
        self.check_launched((LOCKSTEP, "launch", "-n", "2", "--"))

    def test_each_worker_has_replicas_of_its_own(self):
        """Two of one and two of the other, held against one device that takes the same four shares."""
        layers = [("InputLayer", {"batch_shape": [None, 6, 6, 2]}), ("Conv2D", {"filters": 4, "kernel_size": [3, 3]}),
                  ("BatchNormalization", {"momentum": 0.8}), ("Flatten", {}), ("Dense", {"units": 10})]
        write_json(self.path("model.json"), {"class_name": "Sequential", "config": {"name": "m", "layers": [
            {"class_name": name, "config": {"name": f"l{i}", **config}} for i, (name, config) in enumerate(layers)]}})
        report, runs = self.compare("--model=model.json", "--dataset=synthetic:shape=6x6x2,examples=100", "--optimizer=sgd:learning_rate=0.05", "--batch=31",
                                    "--steps=6", "--threads=1", "--validation=off", "--strategies=ring", "--replicas=2", UNTIMED)
        self.assertEqual(report["rounding_spread_of"], "one device, the same shares, the learning rate off by a last bit")
        self.assertEqual((runs["ring"]["replicas"], runs["ring"]["workers"], runs["ring"]["reference_shares"]), (4, 2, 4))
        self.assertEqual(runs["ring"]["report"]["replica_batches"], [8, 8, 8, 7])
        self.assertLessEqual(runs["ring"]["max_loss_deviation"], 5e-6)
        self.assertTrue(runs["ring"]["replicas_equal"])

    def test_three_workers_are_timed(self):
        report, runs = self.compare(*self.RINGS[:-1], "--steps=3", "--strategies=one-device,ring", each=((), (), ()))
        self.assertIsNotNone(report["comparisons"][0]["p"])
        for run in runs.values():
            self.assertEqual((run["status"], len(run["process_examples_per_second"])), ("done", 10))
            self.assertGreater(run["timed_steps"], 10)
        self.assertEqual((runs["ring"]["replicas"], runs["ring"]["replicas_equal"]), (3, True))
        self.assertIn("over 3 workers", self.texts[0][0])

    def test_waiting_for_a_turn_passes_no_deadline_and_takes_no_time(self):
        """The reference stands for twice the deadline, and all others wait for their turns."""
        self.start(*[(*self.LONG, "--steps=600", "--deadline=4", "--report=" + self.path("compare.json"))] * 2)
        self.assertIn("comparing", self.processes[0].stdout.readline())
        reference, *others = self.descend(0) + self.descend(1)
        os.kill(reference, signal.SIGSTOP)
        try:
            time.sleep(2)
            before = [self.cpu_seconds(pid) for pid in others]
            time.sleep(8)
            used = [self.cpu_seconds(pid) - one for pid, one in zip(others, before)]
        finally:
            os.kill(reference, signal.SIGCONT)
        codes, errors = self.finish()
        self.assertEqual(codes, [DONE, DONE], errors)
        self.assertEqual({run["status"] for run in self.report("compare.json")["runs"]}, {"done"})
        self.assertLess(max(used), 2, used)

    def cpu_seconds(self, pid):
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def test_strategies_of_one_process(self):
        """Rows where nobody has named them; else an error."""
        _, runs = self.compare(*self.RINGS, "--steps=2")
        for strategy in ("central-storage", "parameter-server"):
            self.assertEqual(runs[strategy]["status"], "unavailable")
            self.assertIn(f"strategy '{strategy}' keeps all replicas in one process, and this is one of 2 workers", runs[strategy]["reason"])
        for strategy in ("ring", "hierarchical-copy"):
            self.assertEqual((runs[strategy]["status"], runs[strategy]["replicas"]), ("done", 2))
        command = (*self.RINGS, "--strategies=ring,central-storage")
        errors = self.refuse(("--strategies: central-storage: strategy 'central-storage' keeps all replicas in one process",), command, command)
        self.assertIn("worker 0 failed, for the reason that it has logged", errors[1])

    def test_differences_are_refused_with_both(self):
        for says, more in ((("--strategies", "tree", "ring"), "--strategies=tree"), (("--steps", "5", "(default)"), "--steps=5"),
                           (("--replicas", "2", "1"), "--replicas=2"), (("--speed-steps", "9", "0"), "--speed-steps=9")):
            name = more.split("=")[0] + "="
            one = (*self.RINGS, "--strategies=ring", "--replicas=1")
            for error in self.refuse(says, one, (*[word for word in one if not word.startswith(name)], more)):
                for text in says:
                    self.assertIn(text, error)
        data = "--dataset=synthetic:shape=28x28x1,classes=10,examples=200"
        one = (*self.RINGS, "--strategies=ring")
        self.refuse(("worker 1 has --dataset", "200 examples", "300 examples"), one, (one[0], data, *one[2:]))

    def test_servers_are_refused(self):
        done = self.lockstep("launch", "-n", "2", "--servers=1", "--", "compare", *self.RINGS)
        self.assertEqual(done.code, USAGE, done.err)
        self.assertIn("leave the servers out", done.err)

    def test_workers_compare_alone_on_request(self):
        codes, errors = self.work(*[("compare", *self.RINGS, "--steps=2", "--strategies=ring", "--cluster=none")] * 2)
        self.assertEqual(codes, [DONE, DONE], errors)
        self.assertTrue(all("Verdict" in out for out, _ in self.texts))

    def test_a_run_that_one_worker_cannot_begin_is_a_row(self):
        """Worker 1 does not find the collective, which worker 0 hears long before it has waited for that process in vain."""
        _, runs = self.compare(*self.RINGS, "--steps=2", "--strategies=large-worlds,ring", "--join-deadline=600",
                               each=(("--plugin-path=" + os.environ["LOCKSTEP_FAULTS"],), ()))
        self.assertEqual((runs["large-worlds"]["status"], runs["ring"]["status"]), ("unavailable", "done"))
        self.assertRegex(runs["large-worlds"]["reason"], "^worker 1: .*large-worlds")

    def test_a_process_that_dies_is_a_row_that_names_its_worker(self):
        for worker, says in ((1, "its process on worker 1 crashed with signal 9"), (0, "its process crashed with signal 9")):
            with self.subTest(worker=worker):
                self.start(*[(*self.LONG, "--steps=1500", "--report=" + self.path("compare.json"))] * 2)
                self.assertIn("comparing", self.processes[0].stdout.readline())
                # Of worker 0 the first is the reference's.
                os.kill(self.descend(worker)[1 - worker], signal.SIGKILL)
                codes, errors = self.finish()
                self.assertEqual(codes, [DONE, DONE], errors)
                runs = {run["strategy"]: run for run in self.report("compare.json")["runs"]}
                self.assertEqual((runs["ring"]["status"], runs["tree"]["status"]), ("failed", "done"))
                self.assertIn(says, runs["ring"]["reason"])

    def children(self, pid):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]

    def descend(self, worker):
        """The processes of the runs of a worker, in the order in which they were started."""
        return sorted(self.children(self.children(self.processes[worker].pid)[0]))

    def lose(self, number, which, code):
        self.start(*[(*self.LONG, "--epochs=100000", "--html=" + self.path("page.html"))] * 2)
        self.assertIn("comparing", self.processes[0].stdout.readline())
        self.processes[which].send_signal(number)
        try:
            self.processes[1 - which].wait(20)
        finally:
            if number in (signal.SIGKILL, signal.SIGSTOP):
                self.processes[which].kill()
        codes, errors = self.finish()
        self.assertEqual(codes[1 - which], code, errors)
        self.check_nothing_is_left()
        return codes, errors

    def test_a_lost_worker_is_named_and_all_end(self):
        for number, which in ((signal.SIGKILL, 1), (signal.SIGSTOP, 1), (signal.SIGKILL, 0)):
            with self.subTest(number=number, which=which):
                _, errors = self.lose(number, which, PEER_LOST)
                self.assertRegex(errors[1 - which], rf"worker {which} \(.*\) lost")
                self.assertEqual(self.texts[0][0], "")
                self.assertFalse(os.path.exists(self.path("page.html")))

    def test_whoever_interrupts_one_worker_ends_all_with_a_table(self):
        for number, which in ((signal.SIGTERM, 1), (signal.SIGINT, 0)):
            with self.subTest(which=which):
                codes, errors = self.lose(number, which, INTERRUPTED)
                self.assertEqual(codes, [INTERRUPTED] * 2, errors)
                self.assertIn("interrupted: every run stopped after its current step", errors[0])
                self.assertIn("\nSpeed ", self.texts[0][0])

    def test_one_that_does_not_come_is_named(self):
        codes, errors = self.work(("compare", *self.RINGS, "--join-deadline=1"), ("--version",))
        self.assertEqual(codes, [PEER_LOST, DONE], errors)
        self.assertIn("worker 1 did not connect", errors[0])


class CompareUnderMpirun(Compared):
    """The same under an engine whose place of a process is not what the processes of the runs can have."""

    def test_mpirun(self):
        engine = engines.OpenMPI()
        if reason := engine.missing():
            self.skipTest(reason)
        self.check_launched(("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2", LOCKSTEP))


if __name__ == "__main__":
    main()
