# SPDX-License-Identifier: Apache-2.0
"""examples/cluster: scripts start what they should (engines and lockstep are replaced by a program that writes down how it was
started), manifests are well-formed, agree with themselves, and give each pod its place."""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

import engines
import slurm
from json_schema import problems
from support import FASHION, LOCKSTEP, ProgramTest, main, read_json

try:
    import yaml
except ImportError:
    yaml = None

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(SOURCE, "examples", "cluster")
SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainjob.schema.json")
SHOW_PLACE = os.environ["LOCKSTEP_SHOW_PLACE"]
TRAIN = ["lockstep", "train", "--model=cnn", "--dataset=fashion-mnist", "--epochs=5", "--strategy=multi-worker-mirrored"]

# Writes down its name, words and some variables. With --make-secret=FILE it makes that file, as lockstep does.
RECORDER = """#!/bin/sh
{{ basename "$0"; for word; do echo "$word"; done; echo "secret file: $LOCKSTEP_SECRET_FILE"; echo "tf: $TF_CONFIG"; echo; }} >>{log}
for word; do case $word in --make-secret=*) umask 077; : >"${{word#*=}}" ;; esac; done
"""


def manifest(name):
    with open(os.path.join(EXAMPLES, name)) as file:
        return list(yaml.safe_load_all(file))


class Scripts(ProgramTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("bin"))
        for name in ("lockstep", "mpirun", "torchrun", "srun"):
            with open(self.path("bin/" + name), "w") as file:
                file.write(RECORDER.format(log=self.path("log")))
            os.chmod(self.path("bin/" + name), 0o755)

    def run_script(self, name, *arguments, **variables):
        """How programs were started: a list of lists of lines."""
        path = self.path("bin") + ":" + os.environ["PATH"]
        quiet = {key: value for key, value in os.environ.items() if not key.startswith(("LOCKSTEP_SECRET", "SLURM_", "TF_CONFIG"))}
        done = subprocess.run([os.path.join(EXAMPLES, name), *arguments], env=dict(quiet, PATH=path, HOME=self.folder, **variables),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)
        with open(self.path("log")) as file:
            return [part.splitlines() for part in file.read().strip("\n").split("\n\n")]

    def words(self, start):
        return [line for line in start if not line.startswith(("secret file: ", "tf: "))]

    def test_mpirun_on_one_host(self):
        (start,) = self.run_script("mpirun.sh", "4")
        self.assertEqual(self.words(start), ["mpirun", "--bind-to", "none", "-np", "4", *TRAIN])

    def test_mpirun_on_several_hosts_makes_a_secret_once(self):
        secret = self.path("lockstep.secret")
        made, start = self.run_script("mpirun.sh", "8", "hosts")
        self.assertEqual(self.words(made), ["lockstep", "launch", "--make-secret=" + secret])
        self.assertEqual(self.words(start), ["mpirun", "--bind-to", "none", "-np", "8", "--hostfile", "hosts", "-x", "LOCKSTEP_SECRET_FILE", *TRAIN])
        self.assertIn("secret file: " + secret, start)
        self.assertEqual(stat.S_IMODE(os.stat(secret).st_mode), 0o600)
        self.assertEqual(len(self.run_script("mpirun.sh", "8", "hosts")), 3)

    def test_torchrun(self):
        (start,) = self.run_script("torchrun.sh", "4")
        self.assertEqual(self.words(start), ["torchrun", "--standalone", "--nproc_per_node=4", "--no_python", *TRAIN])
        start = self.run_script("torchrun.sh", "4", "2", "1", "first")[1]
        self.assertEqual(self.words(start), ["torchrun", "--nnodes=2", "--node_rank=1", "--master_addr=first", "--master_port=29500",
                                             "--nproc_per_node=4", "--no_python", *TRAIN])
        self.assertIn("secret file: " + self.path("lockstep.secret"), start)

    def test_tf_config(self):
        (start,) = self.run_script("tf-config.sh", "1")
        (config,) = [line[4:] for line in start if line.startswith("tf: ")]
        self.assertEqual(self.words(start), TRAIN)
        self.assertEqual(place(TF_CONFIG=config), "place 1 2 0 0 tf-config")

    def test_slurm(self):
        made, start = self.run_script("train.sbatch", SLURM_SUBMIT_DIR=self.folder, SLURM_JOB_ID="7", SLURM_CPUS_PER_TASK="4")
        secret = self.path("lockstep-7.secret")
        self.assertEqual(self.words(made), ["lockstep", "launch", "--make-secret=" + secret])
        self.assertEqual(self.words(start), ["srun", "--kill-on-bad-exit=1", *TRAIN, "--report=lockstep-7.json"])
        self.assertIn("secret file: " + secret, start)
        self.assertFalse(os.path.exists(secret))
        with open(os.path.join(EXAMPLES, "train.sbatch")) as file:
            options = re.findall(r"^#SBATCH --([a-z-]+)=\S+$", file.read(), re.M)
        self.assertEqual(options, ["job-name", "nodes", "ntasks-per-node", "cpus-per-task", "time"])

    def test_shellcheck(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not here")
        names = [name for name in os.listdir(EXAMPLES) if name.endswith((".sh", ".sbatch"))]
        self.assertEqual(len(names), 4)
        done = subprocess.run(["shellcheck", *names], cwd=EXAMPLES, stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_options_are_those_of_train(self):
        help_text = subprocess.run([LOCKSTEP, "train", "--help=all"], stdout=subprocess.PIPE, text=True).stdout
        for word in [*TRAIN[2:], "--report=", "--replicas="]:
            self.assertIn(word.split("=")[0] + "=", help_text)


class Trained(ProgramTest):
    """The scripts as they are, with real engines and three steps instead of five epochs."""

    def setUp(self):
        super().setUp()
        self.need(FASHION)
        os.mkdir(self.path("bin"))
        with open(self.path("bin/lockstep"), "w") as file:
            file.write(f'#!/bin/sh\nwhat=$1\n[ "$what" = train ] && set -- "$@" --steps=3 --validation=off --threads=1 --quiet\nexec {LOCKSTEP} "$@"\n')
        os.chmod(self.path("bin/lockstep"), 0o755)
        if torchrun := os.environ.get("LOCKSTEP_TORCHRUN"):
            os.symlink(torchrun, self.path("bin/torchrun"))

    def variables(self):
        return engines.environment(PATH=self.path("bin") + ":" + os.environ["PATH"], HOME=self.folder,
                                   OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")

    def start(self, name, *arguments):
        return subprocess.Popen([os.path.join(EXAMPLES, name), *arguments], env=self.variables(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)

    def check(self, *processes):
        for process in processes:
            out = process.communicate(timeout=120)[0]
            self.assertEqual(process.returncode, 0, out)

    def need_engine(self, engine):
        if reason := engine.missing():
            self.skipTest(reason)

    def test_tf_config(self):
        self.check(self.start("tf-config.sh", "0"), self.start("tf-config.sh", "1"))

    def test_mpirun(self):
        self.need_engine(engines.OpenMPI())
        self.check(self.start("mpirun.sh", "2"))

    def test_torchrun(self):
        self.need_engine(engines.Torchrun())
        self.check(self.start("torchrun.sh", "2"))

    def test_sbatch(self):
        engine = engines.Slurm()
        self.need_engine(engine)
        with tempfile.TemporaryDirectory(prefix="lockstep-slurm-") as folder, slurm.Slurm(folder) as cluster:
            done = cluster.run("sbatch", "--wait", "--cpus-per-task=2", "--output=" + self.path("out"), os.path.join(EXAMPLES, "train.sbatch"),
                               environment={name: value for name, value in self.variables().items() if not name.startswith("SLURM_")},
                               cwd=self.folder)
        with open(self.path("out")) as file:
            self.assertEqual(done.returncode, 0, done.stderr + file.read())
        (report,) = [name for name in os.listdir(self.folder) if name.endswith(".json")]
        report = read_json(self.path(report))
        self.assertEqual((report["status"], report["workers"], report["steps"], len(set(report["parameter_hashes"]))), ("stopped", 4, 3, 1))
        self.assertFalse([name for name in os.listdir(self.folder) if name.endswith(".secret")])


def place(**variables):
    """What a process with these variables says about itself, before it looks for the others."""
    quiet = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH") or name.endswith("SAN_OPTIONS")}
    with subprocess.Popen([SHOW_PLACE], env=dict(quiet, **variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        line = child.stdout.readline().strip()
        child.kill()
        return line or child.stderr.read()


class Manifests(ProgramTest):
    def setUp(self):
        super().setUp()
        if not yaml:
            self.skipTest("Python has no yaml (package python3-yaml)")

    # Variables with a value.
    def variables(self, container):
        return {one["name"]: one["value"] for one in container["env"] if "value" in one}

    def secrets(self, container):
        return {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one}

    def test_an_indexed_job_agrees_with_itself(self):
        service, job = manifest("indexed-job.yaml")
        spec, name = job["spec"], job["metadata"]["name"]
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        variables = self.variables(container)
        self.assertEqual((service["apiVersion"], service["kind"], job["apiVersion"], job["kind"]), ("v1", "Service", "batch/v1", "Job"))
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(service["spec"]["selector"], {"job-name": name})
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertEqual((spec["completionMode"], spec["parallelism"], spec["backoffLimit"]), ("Indexed", spec["completions"], 0))
        self.assertEqual(variables["LOCKSTEP_WORLD_SIZE"], str(spec["completions"]))
        self.assertRegex(variables["LOCKSTEP_ADDRESS"], rf"^{name}-0\.{pod['subdomain']}:\d+$")
        self.assertEqual(container["command"] + container["args"], TRAIN)
        self.assertEqual(self.secrets(container), {"LOCKSTEP_SECRET": {"name": "lockstep", "key": "secret"}})
        for index in range(spec["completions"]):
            self.assertEqual(place(JOB_COMPLETION_INDEX=str(index), **variables), f"place {index} {spec['completions']} 0 1 kubernetes")

    def test_a_trainjob_fits_the_schema(self):
        schema = read_json(SCHEMA)
        (job,) = manifest("trainjob.yaml")
        self.assertEqual(problems(job, schema), [])
        trainer = job["spec"]["trainer"]
        self.assertEqual(trainer["command"] + trainer["args"], TRAIN)
        self.assertEqual(self.secrets(trainer), {"LOCKSTEP_SECRET": {"name": "lockstep", "key": "secret"}})
        # What the Trainer makes of it.
        name, nodes = job["metadata"]["name"], trainer["numNodes"]
        for index in range(nodes):
            self.assertEqual(place(PET_NNODES=str(nodes), PET_NPROC_PER_NODE=str(trainer["numProcPerNode"]), PET_NODE_RANK=str(index),
                                   PET_MASTER_ADDR=f"{name}-node-0-0.{name}", PET_MASTER_PORT="29500", JOB_COMPLETION_INDEX=str(index)),
                             f"place {index} {nodes} 0 1 kubernetes")

    def test_the_schema_finds_mistakes(self):
        schema = read_json(SCHEMA)
        (job,) = manifest("trainjob.yaml")

        def wrong(change):
            copy = json.loads(json.dumps(job))
            change(copy)
            return problems(copy, schema)

        self.assertEqual(wrong(lambda job: job["spec"].pop("runtimeRef")), ["$.spec: runtimeRef is missing"])
        self.assertEqual(wrong(lambda job: job["spec"]["trainer"].update(nodes=2)), ["$.spec.trainer: nodes is unknown"])
        self.assertEqual(len(wrong(lambda job: job["spec"]["trainer"].update(numNodes="2"))), 1)
        self.assertEqual(len(wrong(lambda job: job["spec"]["trainer"].update(numNodes=0))), 1)
        self.assertEqual(len(wrong(lambda job: job["spec"]["trainer"].update(numProcPerNode="two"))), 1)
        self.assertEqual(len(wrong(lambda job: job["spec"]["trainer"]["env"].append({"name": "PET_NNODES", "value": "2"}))), 1)
        self.assertEqual(len(wrong(lambda job: job["metadata"].update(name="Train"))), 1)
        self.assertEqual(len(wrong(lambda job: job["spec"]["trainer"]["resourcesPerNode"]["limits"].update(memory="2GB"))), 1)


class Image(ProgramTest):
    def test_what_the_dockerfile_takes_is_there(self):
        with open(os.path.join(EXAMPLES, "Dockerfile")) as file:
            text = file.read()
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M):
            for source in sources.split():
                self.assertTrue(os.path.exists(os.path.join(SOURCE, source)), source)
        with open(os.path.join(SOURCE, "tools", "packages")) as file:
            sections = re.findall(r"^\[(.+)\]$", file.read(), re.M)
        (named,) = re.findall(r"packages_of ([a-z -]+)\)", text)
        self.assertLessEqual(set(named.split()), set(sections))
        options = subprocess.run([sys.executable, os.path.join(SOURCE, "packaging", "package.py"), "deb", "--help"],
                                 stdout=subprocess.PIPE, text=True).stdout
        for option in re.findall(r"tools/package deb (.+?) ?\\?$", text, re.M)[0].split():
            self.assertIn(option.split("=")[0], options)
        instructions = {line.split()[0] for line in re.sub(r"\\\n", " ", text).splitlines() if line and not line.startswith("#")}
        self.assertLessEqual(instructions, {"FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "CMD"})


if __name__ == "__main__":
    main()
