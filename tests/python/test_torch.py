# SPDX-License-Identifier: Apache-2.0
"""Backend "lockstep" of torch.distributed as users meet it: their scripts, under torchrun, beside the same under gloo."""
import glob
import os
import re
import signal
import socket
import subprocess
import sys
import time

SOURCE = os.environ["LOCKSTEP_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "programs"))
import keras_python  # noqa: E402
from support import DONE, ProgramTest, main, read_json  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.environ["LOCKSTEP_LIBRARY"]
FAULTS = os.environ["LOCKSTEP_FAULTS"]
COMPILER = os.environ["LOCKSTEP_COMPILER"].split()
CLOSE = 1e-6  # of losses: the order in which two ranks' values are added is the same
LOST_SECONDS = 3  # of silence, after which a process is lost
SECONDS = 240
GROUP_SECONDS = 60  # the timeout of the groups of torch_worker.py
ENTRY_POINT = "[torch.distributed.backends]\nlockstep = lockstep.torch:register\n"  # as in the wheel (packaging/package.py)


def find_python():
    """A Python with torch that is here: this test installs none. (path, None), or (None, why not)."""
    named = os.environ.get("LOCKSTEP_TORCH_PYTHON")
    if named:
        return (named, None) if keras_python.has_packages(named, ["torch"]) else (None, f"LOCKSTEP_TORCH_PYTHON={named} lacks torch")
    kept = os.path.join(os.environ["LOCKSTEP_TORCH_FOLDER"], "bin", "python")
    for python in (sys.executable, kept):
        if keras_python.has_packages(python, ["torch"]):
            return python, None
    return None, "torch is not here; LOCKSTEP_TORCH_PYTHON names a Python that has it"


PYTHON, MISSING = find_python()


class TorchTest(ProgramTest):
    def setUp(self):
        super().setUp()
        if MISSING:
            self.skipTest(MISSING)

    def variables(self, **more):
        foreign = re.compile(r"(LOCKSTEP|MASTER|TORCHELASTIC|LOCAL)_|RANK$|WORLD_SIZE$")
        kept = {name: value for name, value in os.environ.items() if not foreign.match(name)}
        kept.update(PYTHONPATH=os.path.join(SOURCE, "python"), LOCKSTEP_LIBRARY=LIBRARY, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="",
                    PYTHONWARNINGS="ignore")
        return dict(kept, **more)

    def start(self, backend, *scenarios, ranks=2, **variables):
        command = [PYTHON, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "--monitor-interval=2",
                   "--log-dir=" + self.path("output"), "--tee=3", os.path.join(HERE, "torch_worker.py"), backend, self.folder, *scenarios]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.variables(**variables),
                                cwd=self.folder, start_new_session=True)

    def finish(self, process, expect=0):
        try:
            text, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate()
            self.fail(f"still running after {SECONDS} s\n{text}")
        if expect is not None:
            self.assertEqual(process.returncode, expect, text)
        return text

    def found(self, scenario):
        return read_json(self.path(scenario + ".json"))

    def errors_of(self, ranks):
        """What each rank wrote, by itself: on the terminal the lines of two tracebacks may mix."""
        files = [glob.glob(self.path(f"output/*/attempt_0/{rank}/stderr.log")) for rank in range(ranks)]
        texts = []
        for found in files:
            self.assertEqual(len(found), 1, files)
            with open(found[0], encoding="utf-8") as file:
                texts.append(file.read())
            os.unlink(found[0])
        return texts

    def run_script(self, backend, *scenarios, expect=0, **more):
        # gloo sometimes aborts when its process ends ("terminate called without an active exception"): what it found is there by then.
        text = self.finish(self.start(backend, *scenarios, **more), expect if backend == "lockstep" else None)
        return {name: self.found(name) for name in scenarios} if expect == 0 else text

    def assert_close(self, found, right):
        self.assertEqual(len(found), len(right))
        for one, other in zip(found, right):
            self.assertLessEqual(abs(one - other), CLOSE * max(1, abs(other)), (found, right))


class Training(TorchTest):
    def test_losses_are_those_of_gloo(self):
        scenarios = ("ddp_cnn", "ddp_gpt", "fsdp_gpt", "checkpoint", "dtensor")
        right, found = self.run_script("gloo", *scenarios), None
        os.rename(self.path("checkpoint"), self.path("of-gloo"))
        found = self.run_script("lockstep", *scenarios, "about", "again", "loaders", "allocated", "refused")
        sums, losses = found["allocated"]
        self.assertEqual(sums, [[3, 3], [3, 3]])
        self.assertEqual(losses, found["fsdp_gpt"])
        for name in ("ddp_cnn", "ddp_gpt", "fsdp_gpt"):
            with self.subTest(name):
                self.assertEqual(len(found[name]), 10)
                self.assertEqual(len(set(found[name])), 10)
                self.assert_close(found[name], right[name])
        with self.subTest("checkpoint"):
            saved, loaded, begun = found["checkpoint"]
            self.assertEqual(saved, loaded)
            self.assertNotEqual(saved, begun)
            self.assert_close([saved], right["checkpoint"][:1])
        with self.subTest("dtensor"):
            self.assert_close(found["dtensor"], [0, 0])
        with self.subTest("about"):
            text, checked = found["about"]
            self.assertRegex(text, r"^ring over shared-memory, 2 ranks, verified$")
            self.assertTrue(checked)
        with self.subTest("refused"):
            said, total = found["refused"]
            self.assertEqual(len(said), 4)
            for one, expected in zip(said, ("a forked process", "is closed", "is closed", "on meta")):
                self.assertIn(expected, one)
            self.assertEqual(total, 2)
        self.assertEqual(found["again"], [1, 3, 5])
        self.assertEqual(found["loaders"], 2 * [16. + 32 * i for i in range(5)])
        with self.subTest("a reducer that asks for memory of the group"):
            asked = self.run_script("lockstep", "ddp_cnn", DDP_DISABLE_COMM_MEM="0")
            self.assert_close(asked["ddp_cnn"], right["ddp_cnn"])

    def test_an_installed_package_is_found_without_an_import(self):
        folder = self.path("lockstep-0.dist-info")
        os.mkdir(folder)
        for name, text in (("METADATA", "Metadata-Version: 2.1\nName: lockstep\nVersion: 0\n"), ("entry_points.txt", ENTRY_POINT)):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        path = os.pathsep.join((os.path.join(SOURCE, "python"), self.folder))
        found = self.run_script("lockstep", "again", FOUND_BY_PYTORCH="1", PYTHONPATH=path)
        self.assertEqual(found["again"], [1, 3, 5])

    def test_collectives_are_right_with_two_and_three_ranks(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                wrong, checks = self.run_script("lockstep", "collectives", ranks=ranks)["collectives"]
                self.assertEqual(wrong, [])
                self.assertGreater(checks, 1000)

    def test_collectives_are_right_beside_another_backend_and_in_the_wrapper_that_checks(self):
        for backend, variables in (("cpu:lockstep,cuda:gloo", {}), ("lockstep", {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})):
            with self.subTest(backend, **variables):
                wrong, checks = self.run_script(backend, "collectives", **variables)["collectives"]
                self.assertEqual(wrong, [])
                self.assertGreater(checks, 1000)


    def test_functions_of_then_may_wait_for_other_futures(self):
        found, sums = self.run_script("lockstep", "futures")["futures"]
        self.assertEqual(found, [10, [20, 30], 2])
        self.assertEqual(sums, [2 * i for i in range(50)])

    def test_sparse_tensors_that_differ_are_refused_on_all_ranks(self):
        first, second = self.run_script("lockstep", "different")["different"]
        self.assertEqual(first, second)
        self.assertEqual(len(first), 2)
        self.assertIn("differ in dtype: torch.float32 on rank 0, torch.float64 on rank 1", first[0])
        self.assertIn("differ in shape", first[1])

    def test_what_a_group_cannot_be_told_is_refused(self):
        long, no_time = "a timeout of 2592000 s: expected at most 1000000 s", "a timeout of 0 s: expected above 0"
        network = r"Options\(network='private'\): the default group, by whose network it communicates, has none"
        expected = [long, long, no_time, no_time, None, None, long, network, None]
        said = self.run_script("lockstep", "limits")["limits"]
        self.assertEqual(len(said), len(expected))
        for one, pattern in zip(said, expected):
            if pattern is None:
                self.assertIsNone(one)
            else:
                self.assertRegex(one, pattern)

    def test_a_single_rank_has_no_schedule_that_was_checked(self):
        self.assertEqual(self.run_script("lockstep", "alone")["alone"], ["ring over local, 1 rank, nothing to verify", False])


class Meeting(TorchTest):
    """Ranks without torchrun, so that each has an environment of its own."""

    def start_ranks(self, scenario, *ranks, host="127.0.0.1"):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as free:
            free.bind((host, 0))
            port = free.getsockname()[1]
        processes = []
        for rank, variables in enumerate(ranks):
            place = {"RANK": rank, "WORLD_SIZE": len(ranks), "MASTER_ADDR": host, "MASTER_PORT": port}
            processes.append(subprocess.Popen(
                [PYTHON, os.path.join(HERE, "torch_worker.py"), "lockstep", self.folder, scenario], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, cwd=self.folder, start_new_session=True,
                env=self.variables(**{name: str(value) for name, value in {**place, **variables}.items()})))
            self.addCleanup(processes[-1].kill)
        return processes

    def test_what_fails_on_a_rank_before_they_meet_is_said_by_all_at_once(self):
        for failing in (0, 1):
            with self.subTest(rank=failing):
                begin = time.monotonic()
                texts = [self.finish(process, expect=1) for process in self.start_ranks(
                    "about", *({"LOCKSTEP_LIBRARY": "/nowhere/liblockstep.so.0"} if rank == failing else {} for rank in range(3)))]
                self.assertLess(time.monotonic() - begin, GROUP_SECONDS)
                for rank, text in enumerate(texts):
                    said = r"UnavailableError: " + ("" if rank == failing else f"rank {failing} failed: ") + "/nowhere/liblockstep.so.0"
                    self.assertRegex(text, said)

    def test_a_wait_for_a_rank_that_does_not_come_ends_with_the_timeout(self):
        late = {"PRETEND_HOST": "here", "PRETEND_LATE": SECONDS}
        ranks = self.start_ranks("about", *({"GROUP_SECONDS": 10, **more} for more in ({}, {}, late)))
        begin = time.monotonic()
        for process in ranks[:2]:
            self.assertRegex(self.finish(process, expect=1), r"PeerLostError: .*Timed out waiting 10000ms for rank 2 to come")
        self.assertLess(time.monotonic() - begin, GROUP_SECONDS)
        ranks[2].kill()
        ranks[2].communicate()

    def test_ranks_meet_by_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        for process in self.start_ranks("about", {"PRETEND_HOST": "one"}, {"PRETEND_HOST": "other"}, host="::1"):
            self.finish(process)
        self.assertRegex(self.found("about")[0], "2 ranks, verified")


class OwnCollective(TorchTest):
    def test_two_variables_bring_a_collective_of_ones_own(self):
        self.assertEqual(self.lockstep("plugin", "new", "star", "--kind=collective").code, DONE)
        subprocess.run([*COMPILER, "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-I", SOURCE, "-o",
                        self.path("collective-star.so"), self.path("star/star.c")], check=True)
        right = self.run_script("gloo", "ddp_cnn")["ddp_cnn"]
        found = self.run_script("lockstep", "ddp_cnn", "about", LOCKSTEP_COLLECTIVE="star", LOCKSTEP_PLUGIN_PATH=self.folder)
        self.assert_close(found["ddp_cnn"], right)
        self.assertRegex(found["about"][0], r"^star over .*verified$")

    def test_a_wrong_one_is_refused_before_the_first_step(self):
        for name, says in (("twice", "adds to elements 0 to"), ("deadlock", "deadlock: ")):
            with self.subTest(name):
                text = self.run_script("lockstep", "ddp_cnn", expect=1, LOCKSTEP_COLLECTIVE=name, LOCKSTEP_PLUGIN_PATH=FAULTS)
                self.assertFalse(os.path.exists(self.path("ddp_cnn.json")))
                for said in self.errors_of(2):
                    last = [line for line in said.splitlines() if re.match(r"(\[rank\d\]: )?lockstep\.\w+Error: ", line)]
                    self.assertEqual(len(last), 1, text)
                    self.assertIn(name, last[0])
                    self.assertIn(says, last[0])


class Lost(TorchTest):
    def lose(self, name, ranks):
        process = self.start("lockstep", "lost", ranks=ranks, LOST=name)
        end = time.monotonic() + SECONDS
        while not os.path.exists(self.path("lost.json")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        if name == "SIGSTOP" and os.path.exists(self.path("pid")):
            with open(self.path("pid")) as file:
                os.kill(int(file.read()), signal.SIGKILL)  # torchrun waits half a minute for one that is stopped
        text = self.finish(process, expect=None)
        self.assertNotEqual(process.returncode, 0, text)
        self.assertTrue(os.path.exists(self.path("lost.json")), text)
        return self.found("lost")

    def test_a_killed_rank_is_named_at_once(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                _, message, seconds = self.lose("SIGKILL", ranks)
                self.assertRegex(message, rf"process {ranks - 1} \(")
                self.assertLess(seconds, LOST_SECONDS)
                os.unlink(self.path("lost.json"))

    def test_a_stopped_rank_is_named_within_the_time(self):
        _, message, seconds = self.lose("SIGSTOP", 2)
        self.assertRegex(message, r"process 1 \(")
        self.assertLess(seconds, 3 * LOST_SECONDS)


class Interrupted(TorchTest):
    def test_ctrl_c_ends_a_wait(self):
        self.finish(self.start("lockstep", "interrupted"), expect=None)
        self.assertLess(self.found("interrupted"), 2)


if __name__ == "__main__":
    main()
