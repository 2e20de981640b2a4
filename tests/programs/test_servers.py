# SPDX-License-Identifier: Apache-2.0
"""Parameter servers as processes: whole trainings whose workers and servers are killed and come back, under TF_CONFIG and
`lockstep launch`.

usage: test_servers.py [CLASS]
"""
import json
import os
import random
import re
import signal
import socket
import subprocess
import time

from support import DONE, FAILED, FASHION, INTERRUPTED, LOCKSTEP, PEER_LOST, TERMINATED, USAGE, ProgramTest, free_ports, main, read_json

SYNTHETIC = "--dataset=synthetic:shape=28x28x1,classes=10"
SECRET = "a secret of this very job"
PATIENCE = 300  # seconds, for a training to end
EPOCHS = 4  # after one, two undisturbed runs differ by as much as a point


class Job(ProgramTest):
    """Tasks of a TF_CONFIG, started by hand."""

    def setUp(self):
        super().setUp()
        self.tasks = {}
        self.addCleanup(self.end_all)

    def end_all(self):
        for process, out in self.tasks.values():
            if process.poll() is None:
                process.kill()
            process.wait()
            out.close()

    def describe(self, workers, servers, *arguments):
        ports = free_ports(workers + servers)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        self.cluster = {"chief": addresses[:1], "worker": addresses[1:workers], "ps": addresses[workers:]}
        self.arguments = arguments

    def start(self, task, index, *more):
        config = {"cluster": self.cluster, "task": {"type": task, "index": index}}
        environment = dict(os.environ, TF_CONFIG=json.dumps(config), LOCKSTEP_SECRET=SECRET)
        out = open(self.path(f"{task}{index}.log"), "a+")
        process = subprocess.Popen([LOCKSTEP, "train", "--threads=1", *self.arguments, *more], env=environment, stdout=out,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.folder)
        self.tasks[task, index] = process, out

    def kill(self, task, index):
        process, out = self.tasks[task, index]
        process.kill()
        process.wait()
        out.close()

    def said(self, task, index):
        with open(self.path(f"{task}{index}.log")) as log:
            return log.read()

    def end(self, task, index):
        return self.tasks[task, index][0].wait(timeout=PATIENCE)

    def runs(self, task, index):
        return self.tasks[task, index][0].poll() is None

    def start_all(self, *more):
        for i in range(len(self.cluster["ps"])):
            self.start("ps", i, *more)
        self.start("chief", 0, *more)
        for i in range(len(self.cluster["worker"])):
            self.start("worker", i, *more)

    def expect_done(self):
        for task, index in self.tasks:
            self.assertEqual(self.end(task, index), DONE, f"{task} {index}: {self.said(task, index)}")
        return read_json(self.path("report.json"))

    def await_step(self, step):
        """Waits until the servers have heard so much, by the size of what is printed: `--log-every` of the chief."""
        self.wait_for(lambda: re.search(rf"step {step}\b", self.said("chief", 0)), PATIENCE, said=lambda: self.said("chief", 0))

    def expect_each_push_once(self, report, workers, steps):
        self.assertEqual(report["staleness"]["pushes"], workers * steps * sum(report["servers"]["shards"]))


class Trainings(Job):
    def train_and_kill(self, mode):
        strategy = f"--strategy=parameter-server:folder={self.folder},mode={mode},delay_replica=0,delay_ms=20"
        # 10 000 examples in batches of 192 are 53 steps, and no share is empty.
        self.describe(3, 2, "--model=mlp", SYNTHETIC, strategy, "--deadline=60", "--epochs=2", "--log-every=1",
                      "--report=" + self.path("report.json"))
        self.start_all()
        self.await_step(8)
        for task, index in (("ps", 0), ("worker", 1), ("ps", 1), ("chief", 0)):
            self.kill(task, index)
            time.sleep(0.05)
            self.start(task, index)
            time.sleep(0.2)
        report = self.expect_done()
        self.expect_each_push_once(report, 3, 106)
        self.assertIn("goes on after", self.said("ps", 0))
        self.assertIn("goes on after", self.said("ps", 1))
        self.assertIn("worker 0 goes on after step", self.said("chief", 0))
        self.assertEqual(report["status"], "done")
        self.assertGreater(report["epochs"][-1]["val_accuracy"], 0.99)
        for epoch in report["epochs"]:  # sums travel with the pushes: those of all workers, each once
            self.assertEqual(epoch["examples"], 10000)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("lockstep-")], [])


class Short(Trainings):
    def test_workers_and_servers_are_killed_and_come_back(self):
        self.train_and_kill("async")

    def test_a_worker_that_waits_for_a_server_obeys_a_signal(self):
        """Killed, it cannot be reached; stopped, it does not answer."""
        for number in (signal.SIGKILL, signal.SIGSTOP):
            self.describe(1, 1, "--model=mlp", SYNTHETIC, "--strategy=parameter-server", "--deadline=60", "--epochs=1000", "--log-every=1",
                          "--report=" + self.path("report.json"), "--save-weights=" + self.path(f"{number}.safetensors"))
            self.start_all()
            self.await_step(8)
            self.tasks["ps", 0][0].send_signal(number)
            time.sleep(0.5)
            start = time.monotonic()
            self.tasks["chief", 0][0].terminate()
            self.assertEqual(self.end("chief", 0), TERMINATED, self.said("chief", 0))
            self.assertLess(time.monotonic() - start, 5)
            self.assertIn("interrupted while this worker waits for a server", self.said("chief", 0))
            self.assertEqual(read_json(self.path("report.json"))["status"], "interrupted")
            self.assertEqual(self.lockstep("evaluate", "--model=mlp", SYNTHETIC, f"--initial-weights={number}.safetensors").code, DONE)
            self.end_all()
            os.unlink(self.path("chief0.log"))

    def test_only_worker_0_validates_and_reports_what_all_have_done(self):
        """The weights do not change, so it is what one device finds."""
        model = (*self.binary(1330), "--optimizer=sgd:learning_rate=1e-12", "--epochs=2", "--batch=50", "--accumulate=2")
        whole = self.train(*model)
        self.describe(2, 2, *model, f"--strategy=parameter-server:folder={self.folder}",
                      "--save-weights=" + self.path("weights.safetensors"), "--report=" + self.path("report.json"))
        self.start_all()
        report = self.expect_done()
        self.assertEqual((report["workers"], report["replicas"]), (2, 2))
        for one, other in zip(report["epochs"], whole["epochs"], strict=True):
            self.assertEqual(one["examples"], 1330)
            for key in set(other) - {"seconds", "examples_per_second"}:
                self.assertAlmostEqual(one[key], other[key], delta=1e-5, msg=key)
        self.assertIn("val_accuracy", self.said("chief", 0))
        self.assertNotIn("Epoch", self.said("worker", 0))
        self.assertNotIn("no effect", self.said("chief", 0))  # of workers that wait for servers and each other
        self.assertTrue(os.path.exists(self.path("weights.safetensors")))

    def test_one_worker_has_the_bits_of_servers_in_its_process(self):
        common = ["--model=mlp", SYNTHETIC, "--validation=off", "--steps=30"]
        for optimizer in ("adam", "sgd:learning_rate=0.01,momentum=0.9", "adagrad:clipnorm=1"):
            expected = self.train(*common, "--threads=1", "--optimizer=" + optimizer, "--strategy=parameter-server:servers=2")
            self.describe(1, 2, *common, "--optimizer=" + optimizer, f"--strategy=parameter-server:folder={self.folder}",
                          "--report=" + self.path("report.json"))
            self.start_all()
            report = self.expect_done()
            self.assertEqual(report["losses"], expected["losses"], optimizer)
            self.assertEqual(report["parameter_hashes"], expected["parameter_hashes"], optimizer)

    def test_what_servers_cannot_do_is_refused(self):
        self.describe(1, 1)
        config = {"cluster": self.cluster, "task": {"type": "chief", "index": 0}}
        for arguments, says in (
                (["--strategy=parameter-server:mode=sync"], "mode=sync"),
                (["--strategy=parameter-server", "--replicas=2"], "--replicas=1"),
                (["--strategy=parameter-server:servers=3"], "1 server processes"),
                (["--strategy=mirrored"], "no servers that are processes"),
                (["--checkpoint-dir=" + self.path("c")], "--checkpoint-dir"),
        ):
            self.refused(USAGE, "train", "--model=mlp", SYNTHETIC, *arguments,
                         environment={"TF_CONFIG": json.dumps(config), "LOCKSTEP_SECRET": SECRET}, says=[says])


class More(Trainings):
    """What takes longer."""

    def test_whoever_is_killed_comes_back_with_a_bound_on_the_lead(self):
        self.train_and_kill("bounded,staleness=4")

    def test_differences_are_refused_with_both_values(self):
        self.describe(2, 1, "--model=mlp", SYNTHETIC, "--deadline=5")
        strategy = f"--strategy=parameter-server:folder={self.folder},mode="
        self.start("ps", 0, strategy + "async")
        self.start("chief", 0, strategy + "async", "--epochs=1000")
        self.start("worker", 0, strategy + "bounded")
        self.assertEqual(self.end("worker", 0), USAGE)
        self.assertIn("mode=bounded, but worker 0 has mode=async", self.said("worker", 0))
        for option, says in (("--optimizer=sgd", "another model, optimizer or seed"), ("--metrics=accuracy,sparse_top_k_categorical_accuracy", "other metrics")):
            self.start("worker", 0, strategy + "async", option)
            self.assertEqual(self.end("worker", 0), USAGE)
            self.assertIn(f"worker 1 has {says} than worker 0", self.said("worker", 0))
        for task in ("chief", "ps"):
            self.kill(task, 0)
        self.start("ps", 0, strategy + "async")
        for options, says in (((strategy + "async", "--seed=9"), "another model, optimizer or seed than the training that server 0 goes on with"),
                              ((strategy + "bounded",), "mode=bounded, but the training that server 0 goes on with has mode=async")):
            self.start("chief", 0, *options)
            self.assertEqual(self.end("chief", 0), USAGE)
            self.assertIn(f"worker 0 has {says}: give the same command, or remove {self.folder}/lockstep-", self.said("chief", 0))

    def test_a_server_whose_address_is_taken_says_so(self):
        self.describe(1, 1, "--model=mlp", SYNTHETIC, f"--strategy=parameter-server:folder={self.folder}")
        host, port = self.cluster["ps"][0].split(":")
        with socket.socket() as other:
            other.bind((host, int(port)))
            other.listen()
            self.start("ps", 0)
            self.assertEqual(self.end("ps", 0), FAILED)
        self.assertIn(f"server 0 cannot listen at {host}:{port}: Address already in use; start all processes with another port", self.said("ps", 0))

    def test_nobody_comes(self):
        self.describe(1, 1, "--model=mlp", SYNTHETIC, f"--strategy=parameter-server:folder={self.folder}", "--deadline=1")
        self.start("ps", 0)
        self.assertEqual(self.end("ps", 0), PEER_LOST)
        self.assertIn("no worker was here", self.said("ps", 0))
        self.start("chief", 0)
        self.assertEqual(self.end("chief", 0), PEER_LOST)
        self.assertIn("server 0 did not answer", self.said("chief", 0))

    def test_a_worker_that_never_came_is_said_to(self):
        self.describe(2, 1, "--model=mlp", SYNTHETIC, f"--strategy=parameter-server:folder={self.folder}", "--deadline=2", "--epochs=1")
        self.start("ps", 0)
        self.start("chief", 0)
        self.assertEqual(self.end("chief", 0), PEER_LOST)
        self.assertRegex(self.said("chief", 0), r"worker 1 has not come within [2-9]\.\d s; --deadline says how long to wait")

    def test_another_secret_is_refused(self):
        self.describe(1, 1, "--model=mlp", SYNTHETIC, f"--strategy=parameter-server:folder={self.folder}", "--deadline=5")
        self.start("ps", 0)
        os.environ["LOCKSTEP_SECRET"] = "x" * 20
        self.addCleanup(os.environ.pop, "LOCKSTEP_SECRET")
        config = {"cluster": self.cluster, "task": {"type": "chief", "index": 0}}
        self.refused(USAGE, "train", *self.arguments, environment={"TF_CONFIG": json.dumps(config)}, says=["another secret"])


class Launch(ProgramTest):
    def test_a_worker_and_a_server_are_started_again_alone(self):
        report = self.path("report.json")
        launch = subprocess.Popen(
            [LOCKSTEP, "launch", "-n", "3", "--servers=2", "--restart=4", "--", "train", "--model=mlp", SYNTHETIC, "--epochs=2",
             "--threads=1", "--log-every=1", "--strategy=parameter-server:delay_replica=0,delay_ms=20",
             "--report=" + report],
            env=dict(os.environ, TMPDIR=self.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        self.addCleanup(launch.stdout.close)
        self.addCleanup(launch.stderr.close)
        self.addCleanup(launch.kill)
        for line in launch.stdout:
            if "step 8" in line:
                break
        for victim in ("worker", "server"):
            os.kill(self.find(launch.pid, victim), signal.SIGKILL)
            time.sleep(0.3)
        out, err = launch.communicate(timeout=PATIENCE)
        self.assertEqual(launch.returncode, DONE, err)
        self.assertIn("worker 1 was killed by SIGKILL", err)
        self.assertIn("server 1 was killed by SIGKILL", err)
        self.assertIn("it is started again (2 of 4)", err)
        report = read_json(report)
        self.assertEqual(report["staleness"]["pushes"], 3 * 106 * sum(report["servers"]["shards"]))
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("lockstep-")], [])

    def test_an_interruption_ends_all_soon(self):
        launch = subprocess.Popen(
            [LOCKSTEP, "launch", "-n", "3", "--servers=2", "--", "train", "--model=mlp", SYNTHETIC, "--epochs=1000", "--threads=1",
             "--log-every=1", "--strategy=parameter-server:delay_replica=0,delay_ms=20"],
            env=dict(os.environ, TMPDIR=self.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        self.addCleanup(launch.stdout.close)
        self.addCleanup(launch.stderr.close)
        self.addCleanup(launch.kill)
        for line in launch.stdout:
            if "step 8" in line:
                break
        launch.send_signal(signal.SIGINT)
        out, err = launch.communicate(timeout=20)  # --deadline and --stop-grace are longer
        self.assertEqual(launch.returncode, INTERRUPTED, err)
        self.assertNotIn("had to be killed", err)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("lockstep-")], [])

    def find(self, parent, role):
        """The process of number 1 in that role."""
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/stat") as stat, open(f"/proc/{name}/environ") as environ:
                    if int(stat.read().rsplit(")", 1)[1].split()[1]) != parent:
                        continue
                    variables = environ.read().split("\0")
            except (OSError, ValueError, IndexError):
                continue
            if f"LOCKSTEP_ROLE={role}" in variables and "LOCKSTEP_RANK=1" in variables:
                return int(name)
        self.fail(f"there is no {role} 1")


class Accuracy(Job):
    """Of 3 workers and 2 servers one of each is killed and comes back, twice."""

    def train(self, kills):
        self.describe(3, 2, "--model=cnn", "--dataset=fashion-mnist", f"--strategy=parameter-server:folder={self.folder}",
                      f"--epochs={EPOCHS}", "--log-every=1", "--report=" + self.path("report.json"))
        for name in os.listdir(self.folder):
            os.unlink(self.path(name))
        self.start_all()
        draw = random.Random(11)
        for number in range(kills):
            self.await_step(60 + 80 * number)
            for task, count in (("ps", 2), ("worker", 2)):
                index = draw.randrange(count)
                if self.runs(task, index):
                    self.kill(task, index)
                    time.sleep(draw.random())
                    self.start(task, index)
        report = self.expect_done()
        self.expect_each_push_once(report, 3, EPOCHS * 313)
        return report["epochs"][-1]["val_accuracy"]

    def test_accuracy_is_that_of_the_undisturbed_run(self):
        self.need(FASHION)
        undisturbed, disturbed = self.train(0), self.train(2)
        print(f"accuracy {undisturbed:.4f} undisturbed, {disturbed:.4f} with kills")
        self.assertLess(abs(undisturbed - disturbed), 0.01)


if __name__ == "__main__":
    main()
