# SPDX-License-Identifier: Apache-2.0
"""Training speed of Lockstep beside its tuned peers, in turn, on the same model, batch, threads and data.

    bench-train --all --markdown                the lines of real models: about an hour
    bench-train --lines=gpt,resnet50-memory     some of them
    bench-train --lines=gpt --quick             a first impression of one, in a minute
    bench-train --small                         the small models of docs/performance.md: a quarter of an hour
    bench-train --model=mine.json               one model of your own, beside Debian's PyTorch
    bench-train --device=cuda                   on a GPU (bench_gpu.py says what that does)

The lines of --all: mlp1024, resnet, resnet50, mobilenet_v2, gpt, gpt768, and gpt-busy, the GPT beside two busy loops,
each in float32 and in mixed_bfloat16 beside the fastest of PyTorch from PyPI, Debian's PyTorch and Keras on TensorFlow in
both; resnet50-replicas and gpt-replicas, two replicas of one thread by one of two; resnet50-memory. gpt-loss, 2,000 steps in
some minutes, is measured only where --lines= names it. First every set-up of a peer is tried once (eager or compiled,
layouts, allocators, bound threads, in each precision); then Lockstep and the fastest set-up of each peer run in turn.
torch.compile needs g++ and compiles for minutes in the first run; --peer-dir keeps what it made, and --set-ups= takes the
set-ups that an earlier run found. A peer of PyPI is installed into --peer-dir by the first run, unless an option names the
Python that has it. The roofline, of which a line prints the share, is the least time of a step by what oneDNN multiplies
and memory copies on this machine, measured in the same run (docs/performance.md).

With --small and --model=, both train on Fashion-MNIST held in memory: shuffle, gather a batch, forward, loss, backward,
optimizer. Neither side's start or first steps count. A ratio is Lockstep's speed by the peer's in the same round;
printed are the median over the rounds and, in brackets, the smallest and largest. Start it as ./tools/bench-train.
Exit codes: 0 measured, whatever the ratios; 1 a measurement failed; 2 usage.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

import bench_gpu
import bench_lines
import line_peers
import lockstep_side
import machine
import peers

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SETTINGS = ("tuned", "tuned+malloc")

SMALL_CASES = (
    {"name": "cnn, 1 replica x 2 threads", "model": "cnn", "replicas": 1, "threads": 2, "replica_batch": 64},
    {"name": "cnn, 2 replicas x 1 thread", "model": "cnn", "replicas": 2, "threads": 1, "replica_batch": 64},
    {"name": "mlp batch 32", "model": "mlp", "replicas": 1, "threads": 2, "replica_batch": 32},
    {"name": "mlp batch 512", "model": "mlp", "replicas": 1, "threads": 2, "replica_batch": 512},
    {"name": "odd, 1 replica x 2 threads", "model": os.path.join(HERE, "odd.json"), "replicas": 1, "threads": 2,
     "replica_batch": 64},
    {"name": "cnn, 2 replicas by twice 1", "model": "cnn", "replicas": 2, "threads": 1, "replica_batch": 64,
     "against": "itself"},
    {"name": "cnn, strategy by bare loop", "model": "cnn", "replicas": 1, "threads": 1, "replica_batch": 64,
     "against": "bare"},
)
REPEATS = 3  # for each round, where the host of a virtual machine takes processors away
BARE_ROUNDS, BARE_STEPS = 20, 20  # of a block; a round has four


def progress(text):
    print(text, file=sys.stderr, flush=True)


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


class Measurement:
    """The rounds of one case: sides in turn, every other round in the opposite order."""

    def __init__(self, name, sides):
        self.name, self.sides, self.disturbed, self.repeated, self.stolen = name, sides, 0, 0, 0
        self.rates = {side: [] for side in sides}

    def round(self, number):
        """{side: rate}, and whether the host of a virtual machine took processors away meanwhile."""
        order = list(self.sides) if number % 2 == 0 else list(self.sides)[::-1]
        rates, stolen = {}, False
        for side in order:
            if not machine.wait_until_idle():
                self.disturbed += 1
            theft = machine.Theft()
            rates[side] = self.sides[side](number + 1)
            stolen |= theft.spoils()
        progress("  round %d: %s%s" % (number + 1, ", ".join(
            "%s %.0f" % (side, rates[side]) for side in self.sides), ", processors were taken away" if stolen else ""))
        return rates, stolen

    def run(self, rounds):
        """A round without its processors is measured again, whatever came out, but not for ever."""
        for number in range(rounds):
            rates, stolen = self.round(number)
            while stolen and self.repeated < REPEATS * rounds:
                self.repeated += 1
                rates, stolen = self.round(number)
            self.stolen += stolen
            for side in self.sides:
                self.rates[side].append(rates[side])

    def result(self, ratios):
        """`ratios`: label -> (numerator side, denominator side, factor of the denominator)."""
        rows = {label: summary([a / (factor * b) for a, b in zip(self.rates[above], self.rates[below])])
                for label, (above, below, factor) in ratios.items()}
        return {"case": self.name, "images_per_second": {s: summary(r) for s, r in self.rates.items()},
                "ratios": rows, "disturbed_windows": self.disturbed, "repeated_rounds": self.repeated,
                "stolen_rounds": self.stolen}


def against_itself(options, case):
    """Beside several replicas and one: as many processes of one replica at once, which is all that the machine gives."""
    one = lockstep_side.Lockstep(options.lockstep, options, 1, case["threads"], options.seconds)
    many = lockstep_side.Lockstep(options.lockstep, options, case["replicas"], case["threads"], options.seconds)
    count = case["replicas"]
    several, apart = "%d replicas" % count, "%d processes" % count
    measurement = Measurement(case["name"], {several: many.run, "1 replica": one.run,
                                             apart: lambda seed: one.run_at_once(seed, count)})
    measurement.run(options.rounds)
    return measurement.result({"%d x 1 replica" % count: (several, "1 replica", count),
                               apart: (several, apart, 1)})


def against_bare(options, case):
    """one-device through the strategy plugin by a loop that calls program and update and nothing else (choice_cost.c)."""
    program = os.path.join(os.path.dirname(options.lockstep), "choice-cost")
    disturbed = not machine.wait_until_idle()
    done = subprocess.run([program, case["model"], options.dataset, str(case["replica_batch"]), str(case["threads"]),
                           str(BARE_ROUNDS), str(BARE_STEPS)], check=True, stdout=subprocess.PIPE,
                          env=dict(os.environ, GOMP_SPINCOUNT="3000"))
    seconds = json.loads(done.stdout)
    rates = {side: [case["replica_batch"] / value for value in seconds[side]] for side in ("strategy", "bare")}
    ratios = [strategy / bare for strategy, bare in zip(seconds["strategy"], seconds["bare"])]
    quartiles = statistics.quantiles(ratios, n=4)
    return {"case": case["name"], "images_per_second": {side: summary(values) for side, values in rates.items()},
            "ratios": {"bare, of time": dict(summary(ratios), quartiles=[quartiles[0], quartiles[2]])},
            "disturbed_windows": int(disturbed)}


def start_peers(options, case):
    world, threads = (case["replicas"], case["threads"]) if case["replicas"] > 1 else (1, case["threads"])
    arguments = ["--model=" + lockstep_side.model_file(case["model"]), "--data=" + options.data, "--limit=%d" % options.limit,
                 "--batch=%d" % case["replica_batch"], "--optimizer=" + options.optimizer]
    settings = peers.tune(options.python, arguments, world, threads, options.core_types.split(","), progress,
                          variants=not options.plain)
    return {name: peers.Peer(options.python, arguments, settings[name]) for name in options.settings.split(",")}


def against_pytorch(options, case):
    running = start_peers(options, case)
    sides = {name: (lambda number, peer=peer: peer.run(options.seconds)) for name, peer in running.items()}
    ratios = {}
    if not options.pytorch_only:
        lockstep = lockstep_side.Lockstep(options.lockstep, options, case["replicas"], case["threads"],
                                          options.seconds)
        sides = {"lockstep": lockstep.run, **sides}
        ratios = {name: ("lockstep", name, 1) for name in running}
        if case["replicas"] > 1:  # the same training, each replica in a process of its own
            one = lockstep_side.Lockstep(options.lockstep, options, 1, case["threads"], options.seconds, strategy=options.strategy)
            workers = "%d workers" % case["replicas"]
            sides[workers] = lambda seed: one.run_as_workers(seed, case["replicas"])
            ratios["replicas, of " + workers] = (workers, "lockstep", 1)
            ratios.update({"%s, of %s" % (name, workers): (workers, name, 1) for name in running})
    measurement = Measurement(case["name"], sides)
    measurement.run(options.rounds)
    result = measurement.result(ratios)
    result["pytorch"] = {name: {"version": peer.version, "set_up": peers.describe(peer.setting)}
                         for name, peer in running.items()}
    for peer in running.values():
        peer.close()
    return result


AGAINST = {"pytorch": against_pytorch, "itself": against_itself, "bare": against_bare}


def print_result(result):
    print("\n%s" % result["case"])
    for side, values in result["images_per_second"].items():
        about = result.get("pytorch", {}).get(side)
        print("  %-14s %9.0f images/s (%.0f - %.0f)%s" % (
            side, values["median"], values["min"], values["max"],
            "  PyTorch %s: %s" % (about["version"], about["set_up"]) if about else ""))
    for label, values in result["ratios"].items():
        print("  ratio to %-14s %6.*f (%.*f - %.*f)" % (label, *[part for key in ("median", "min", "max") for part in (
            3 if "quartiles" in values else 2, values[key])]))
        if "quartiles" in values:
            print("  half of the rounds within %.4f - %.4f" % tuple(values["quartiles"]))
    if result["disturbed_windows"]:
        print("  %d windows were disturbed by other programs" % result["disturbed_windows"])
    if result.get("repeated_rounds"):
        print("  %d rounds were measured again, for the host had taken processors away; %d of those counted were so, too" % (
            result["repeated_rounds"], result["stolen_rounds"]))
    sys.stdout.flush()


def add_gpu_arguments(group):
    group.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    group.add_argument("--cases", default="", metavar="MODEL:BATCH:PRECISION,...",
                       help="in this order, precisions %s; instead of the next four options; gpu: those of tools/gpu-check"
                       % ", ".join(bench_gpu.PRECISIONS))
    group.add_argument("--batches", default=bench_gpu.BATCHES, help="of --model, one case each [%(default)s]")
    group.add_argument("--precision", choices=bench_lines.PRECISIONS, default="float32")
    group.add_argument("--tf32", action="store_true", help="both may round float32 factors to TF32")
    group.add_argument("--modes", default=",".join(bench_gpu.MODES), help="of PyTorch; there is compile-max, too [%(default)s]")
    group.add_argument("--budget", type=float, default=float("inf"), metavar="SECONDS",
                       help="of everything; what is not done by then is named")
    group.add_argument("--kernel-time", metavar="FILE", help="that library, made of kernel_time.c [beside lockstep]")
    group.add_argument("--copy-gb-s", type=float, default=0.0, help="what the GPU's memory copies [measured by copy_bandwidth.py]")
    group.add_argument("--plugin-path", default="", help="for lockstep; marks the result as a dry run")
    group.add_argument("--torch-device", default="cuda", help="cpu: a dry run of PyTorch's side")
    group.add_argument("--lockstep-device", default="cuda", help="another one: a dry run of Lockstep's side")


def add_line_arguments(group):
    group.add_argument("--lines", default="", metavar="NAME,...", help="of " + ", ".join(bench_lines.NAMES))
    group.add_argument("--peers", help="those to compare with [%s]; may be empty" % ",".join(line_peers.KINDS))
    group.add_argument("--precisions", default=",".join(bench_lines.PRECISIONS), help="of both sides [%(default)s]")
    group.add_argument("--quick", action="store_true", help="2 rounds of half a second, and of the peers PyTorch's eager mode alone")
    group.add_argument("--set-ups", metavar="FILE", help="the --json of an earlier run, whose fastest set-ups are not tried again")
    group.add_argument("--pytorch-python", metavar="FILE", help="has PyTorch from PyPI")
    group.add_argument("--tensorflow-python", metavar="FILE", help="has TensorFlow and Keras 3")
    group.add_argument("--debian-python", metavar="FILE", default="/usr/bin/python3", help="has Debian's PyTorch [%(default)s]")
    group.add_argument("--peer-dir", metavar="DIR", default=os.path.join(ROOT, "build-bench", "peers"),
                       help="what is installed and compiled for the peers [build-bench/peers]")
    group.add_argument("--allocator-dir", metavar="DIR", help="libjemalloc.so.2 and libtcmalloc_minimal.so.4, beside the system's")
    group.add_argument("--text", metavar="FILE", default=os.path.join(ROOT, "..", "shared", "data", "tinyshakespeare", "input.txt"),
                       help="tinyshakespeare [../shared/data/tinyshakespeare/input.txt]")
    group.add_argument("--trial-seconds", type=float, default=1.5, help="of the window in which a set-up is tried [1.5]")
    group.add_argument("--peer-deadline", type=float, default=400.0, help="seconds for one answer of a peer [400]")
    group.add_argument("--line-model", metavar="FILE", help="train this in all lines instead: to try the tool itself")
    group.add_argument("--markdown", action="store_true", help="print the tables of docs/performance.md at the end")


QUICK = {"rounds": 2, "seconds": 0.5, "trial_seconds": 0.5, "idle": 0.0}  # defaults of --quick: what is given stays


def check_lines(parser, options):
    options.lines = [name for name in options.lines.split(",") if name]
    for name in options.lines:
        if name not in bench_lines.NAMES:
            parser.error("--lines: there is no %s; there are %s" % (name, ", ".join(bench_lines.NAMES)))
    options.lines = options.lines or (list(bench_lines.ALL) if options.all else [])
    everything = ",".join(line_peers.KINDS) if not options.quick else "pytorch"
    options.peers = [name for name in (everything if options.peers is None else options.peers).split(",") if name]
    options.precisions = options.precisions.split(",")
    for name in options.precisions:
        if name not in bench_lines.PRECISIONS:
            parser.error("--precisions: there is no %s; there are %s" % (name, " and ".join(bench_lines.PRECISIONS)))
    try:
        options.known_set_ups = bench_lines.read_set_ups(options.set_ups)
    except (OSError, ValueError, KeyError, TypeError):
        parser.error("--set-ups: %s is not what --json of this version writes; leave it out, and all set-ups are tried" % options.set_ups)
    for name in options.peers:
        if name not in line_peers.KINDS:
            parser.error("--peers: there is no %s; there are %s" % (name, ", ".join(line_peers.KINDS)))
    if any("gpt" in name for name in options.lines) and not options.line_model and not os.path.isfile(options.text):
        parser.error("--text: there is no file %s" % options.text)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench-train", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="the lines of real models, one after the other")
    parser.add_argument("--small", action="store_true", help="the small models of docs/performance.md, one after the other")
    parser.add_argument("--model", default="cnn", help="name or Keras model JSON (Sequential, 10 classes)")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="per replica")
    parser.add_argument("--replica-batch", type=int, default=64)
    parser.add_argument("--strategy", default="ring", help="of several replicas")
    parser.add_argument("--optimizer", default="adam:learning_rate=0.001")
    parser.add_argument("--against", choices=("pytorch", "itself", "bare"), default="pytorch",
                        help="itself: several replicas by as many times one; bare: one-device by a loop without a strategy")
    parser.add_argument("--rounds", type=int, help="[7; of a line 5]")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one window, about [3]")
    parser.add_argument("--idle", type=float, default=machine.idle_seconds,
                        help="seconds to wait before a window for idle processors [20]")
    parser.add_argument("--limit", type=int, default=60000, help="train on the first N images")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="of PyTorch: tuned, tuned+malloc or both")
    parser.add_argument("--core-types", default=",".join(peers.CORE_TYPES), help="OpenBLAS kernels to try")
    parser.add_argument("--plain", action="store_true", help="PyTorch without foreach, torch.jit and static_graph")
    parser.add_argument("--pytorch-only", action="store_true", help="leave Lockstep out")
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--python", help="the one that has torch [/usr/bin/python3; with --device=cuda this one]")
    parser.add_argument("--lockstep", default=os.path.join(ROOT, "build-bench", "tools", "lockstep"))
    add_line_arguments(parser.add_argument_group("lines of real models"))
    add_gpu_arguments(parser.add_argument_group("with --device=cuda"))
    options = parser.parse_args()
    if options.quick:
        parser.set_defaults(**QUICK)
        options = parser.parse_args()
    check_lines(parser, options)
    options.rounds = (5 if options.lines else 7) if options.rounds is None else options.rounds
    options.python = options.python or (sys.executable if options.device == "cuda" else "/usr/bin/python3")
    for name in ("replicas", "threads", "replica_batch", "rounds", "limit"):
        if getattr(options, name) < 1:
            parser.error("--%s must be at least 1" % name.replace("_", "-"))
    for name in options.settings.split(","):
        if name not in SETTINGS:
            parser.error("--settings: there is no %s; there are %s" % (name, " and ".join(SETTINGS)))
    options.dataset = "fashion-mnist:dir=%s,limit=%d" % (options.data, options.limit)
    return options


def bench_on_gpu(options):
    rows = bench_gpu.bench(options, progress)
    if not any(side["status"] == "measured" for row in rows for side in row["sides"].values()):
        raise SystemExit("bench-train: nothing could be measured; the rows say why")


def main():
    options = parse_arguments()
    machine.idle_seconds = options.idle
    try:
        if options.lines:
            bench_lines.run(options, progress)
        else:
            (bench_on_gpu if options.device == "cuda" else bench_on_cpu)(options)
    except lockstep_side.Failed as error:
        raise SystemExit("bench-train: %s" % error) from error


def bench_on_cpu(options):
    named = {"name": "%s, %d x %d" % (options.model, options.replicas, options.threads), "model": options.model,
             "replicas": options.replicas, "threads": options.threads, "replica_batch": options.replica_batch,
             "against": options.against}
    results = []
    for case in SMALL_CASES if options.small else (named,):
        progress("%s: batch %d per replica" % (case["name"], case["replica_batch"]))
        options.model, options.replica_batch = case["model"], case["replica_batch"]
        against = case.get("against", "pytorch")
        if against != "pytorch" and options.pytorch_only:
            continue
        results.append(AGAINST[against](options, case))
        print_result(results[-1])
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"rows": results}, file, indent=1)


if __name__ == "__main__":
    main()
