# SPDX-License-Identifier: Apache-2.0
"""Real engines start workers, and each worker finds its place and the others: show_place, which does this and nothing else."""
import os
import subprocess

import engines
import slurm
from engines import environment
from support import ProgramTest, main

SHOW_PLACE = os.environ["LOCKSTEP_SHOW_PLACE"]


class Engines(ProgramTest):
    def start(self, *command, timeout=60, **variables):
        return subprocess.run(command, env=environment(**variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=timeout, cwd=self.folder)

    def check(self, done, workers, resolver, local=None):
        """All workers ended well, have numbers 0 .. workers - 1, and met at worker 0."""
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        places = sorted(tuple(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("place "))
        self.assertEqual([place[0] for place in places], [str(i) for i in range(workers)], done.stdout + done.stderr)
        for number, (_, count, local_number, local_count, by) in enumerate(places):
            self.assertEqual((count, by), (str(workers), resolver))
            if local:
                self.assertEqual((int(local_number), int(local_count)), (number % local, local))
        met = [line for line in done.stdout.splitlines() if line.startswith("met ")]
        self.assertEqual([line.split(" at ")[0] for line in met], [f"met {workers}"], done.stdout)
        return met[0].split(" at ")[1]


class OpenMPI(Engines):
    def setUp(self):
        super().setUp()
        if reason := engines.OpenMPI().missing():
            self.skipTest(reason)

    def mpirun(self, count, *command, **variables):
        return self.start("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(count), *command, **variables)

    def test_workers_meet_through_pmix(self):
        address = self.check(self.mpirun(4, SHOW_PLACE), 4, "pmix", local=4)
        self.assertTrue(address.startswith("127.0.0.1:"), address)

    def test_the_resolver_of_open_mpi(self):
        self.check(self.mpirun(3, SHOW_PLACE, "openmpi"), 3, "openmpi", local=3)

    def test_an_address_that_is_given(self):
        port = slurm.free_ports(1)[0]
        address = self.check(self.mpirun(2, "-x", "LOCKSTEP_ADDRESS", SHOW_PLACE, LOCKSTEP_ADDRESS=f"127.0.0.1:{port}"), 2, "pmix", local=2)
        self.assertEqual(address, f"127.0.0.1:{port}")

    def test_one_worker_is_alone(self):
        done = self.mpirun(1, SHOW_PLACE)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "place 0 1 0 1 pmix"), done.stderr)

    def test_variables_without_a_server(self):
        done = self.start(SHOW_PLACE, PMIX_NAMESPACE="job", PMIX_RANK="1")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("the workers cannot find each other through PMIx", done.stderr)
        self.assertEqual(done.stdout, "")


class Torchrun(Engines):
    def torchrun(self, *arguments):
        engine = engines.Torchrun()
        if reason := engine.missing():
            self.skipTest(reason)
        return self.start(engine.program, *arguments, "--no_python", SHOW_PLACE)

    def test_alone_on_one_host(self):
        self.check(self.torchrun("--standalone", "--nproc_per_node=3"), 3, "torchrun", local=3)

    def test_a_port_that_the_agent_has(self):
        port = slurm.free_ports(1)[0]
        address = self.check(self.torchrun("--nnodes=1", "--nproc_per_node=2", "--master_addr=127.0.0.1", f"--master_port={port}"), 2,
                             "torchrun", local=2)
        self.assertNotEqual(address, f"127.0.0.1:{port}")


class ByHand(Engines):
    """What is started without an engine."""

    def check_engine(self, engine, workers, resolver):
        if reason := engine.missing():
            self.skipTest(reason)
        done = engine.run([SHOW_PLACE], workers, self.folder)
        return self.check(subprocess.CompletedProcess(engine.name, done.code, done.out, done.err), workers, resolver)

    def test_tf_config(self):
        self.assertTrue(self.check_engine(engines.TfConfig(), 3, "tf-config").startswith("localhost:"))

    def test_four_hosts(self):
        self.assertEqual(self.check_engine(engines.Hosts(), 4, "launch"), "10.77.0.1:29400")


class SlurmSteps(Engines):
    def setUp(self):
        super().setUp()
        reason = slurm.missing()
        if reason:
            self.skipTest(reason)
        self.slurm = slurm.Slurm(self.path("."))
        self.slurm.__enter__()
        self.addCleanup(self.slurm.__exit__)

    def test_steps_on_two_nodes(self):
        address = self.check(self.slurm.run("srun", "-N2", "--ntasks-per-node=2", SHOW_PLACE), 4, "slurm", local=2)
        # Uneven: three tasks on the first node, one on the second.
        self.check(self.slurm.run("srun", "-N2", "-n4", SHOW_PLACE), 4, "slurm")
        self.assertTrue(address.startswith("n1:"), address)
        self.check(self.slurm.run("srun", "-N2", "-n3", SHOW_PLACE), 3, "slurm")
        self.check(self.slurm.run("srun", "-N2", "-n4", "--distribution=cyclic", SHOW_PLACE), 4, "slurm")
        # On one node, its name does not matter.
        address = self.check(self.slurm.run("srun", "-N1", "-n4", SHOW_PLACE), 4, "slurm", local=4)
        self.assertTrue(address.startswith("127.0.0.1:"), address)
        # PMI has no address that a program may ask for, so Slurm's variables win.
        self.check(self.slurm.run("srun", "--mpi=pmi2", "-N2", "-n4", SHOW_PLACE), 4, "slurm")
        self.check_pmix()
        self.check_batch()

    # On one node: two daemons on one host would share a folder of Slurm's plugin.
    def check_pmix(self):
        kinds = self.slurm.run("srun", "--mpi=list")
        if "pmix" in kinds.stdout + kinds.stderr:
            self.check(self.slurm.run("srun", "--mpi=pmix", "-N1", "-n4", SHOW_PLACE), 4, "pmix", local=4)

    # The script has the variables of all tasks, and is one process.
    def check_batch(self):
        script = self.path("job.sh")
        with open(script, "w") as file:
            file.write(f"#!/bin/sh\n{SHOW_PLACE}; echo code $?\n{SHOW_PLACE} none\nsrun {SHOW_PLACE}\n")
        out = self.path("job.out")
        done = self.slurm.run("sbatch", "--wait", "-N2", "-n4", "--output=" + out, script)
        with open(out) as file:
            text = file.read()
        self.assertEqual(done.returncode, 0, done.stderr + text)
        self.assertIn("the Slurm job has 4 tasks, but this process is in no step of it: start the workers with srun", text)
        self.assertIn("code 2", text)
        self.assertIn("place 0 1 0 0 none", text)
        self.assertIn("met 4 at n1:", text)


if __name__ == "__main__":
    main()
