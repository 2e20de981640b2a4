# SPDX-License-Identifier: Apache-2.0
"""Says how far simulated times are from measured ones on this machine: docs/simulate.md has what came out.

    python3 lab/simulate/here.py LOCKSTEP [--rounds=5] [--ranks=2,3,4] [--seconds=0.1] [--keep=FOLDER]

LOCKSTEP is the built program. Each round calibrates (`bench --write-network`: two ranks, `ring`, sizes that are powers of two) and then
measures COLLECTIVES at SIZES, none of which the calibration has seen, all-reduces of float32 in place. Both are repeated in turn, so that a
machine that changes its speed changes it for both. The network is the median over the rounds of each number of the files, a
measured time the median of the rounds' medians. `simulate --against` compares them.

The floor is the same error between the measured times of even rounds and those of odd ones: what no model can predict. On a machine that does
other work, `chrt -f 1 python3 lab/simulate/here.py ...` measures all the same.
"""
import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

COLLECTIVES = ["direct", "halving-doubling", "hierarchical-copy", "torus", "tree"]
SIZES = [12 << 10, 192 << 10, 3 << 20, 48 << 20]
DEADLINE_SECONDS = 900


def run(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    if done.returncode:
        sys.exit(f"here: {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


# ---- Measuring ----

def calibrate(options, path):
    run([options.lockstep, "bench", f"--write-network={path}", f"--seconds={options.seconds}"])
    return read(path)


def measure(options, ranks, path):
    """{(collective, bytes): seconds}"""
    run([options.lockstep, "bench", *COLLECTIVES, f"--bytes={','.join(map(str, SIZES))}", "--place=in",
         f"--replicas={ranks}", f"--seconds={options.seconds}", f"--json={path}"])
    return {(row["collective"], row["bytes"]): row["seconds"] for row in read(path)["rows"]}


def median_network(networks):
    network = dict(networks[0], name="here")
    for key, value in networks[0].items():
        if isinstance(value, float):
            network[key] = statistics.median(each[key] for each in networks)
    points = zip(*(each["bandwidth_by_bytes"] for each in networks))
    network["bandwidth_by_bytes"] = [[point[0][0], statistics.median(speed for _, speed in point)] for point in points]
    network["bandwidth_gb_s"] = max(speed for _, speed in network["bandwidth_by_bytes"])
    return network


def median_times(rounds):
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}


# ---- Comparing ----

def against(options, collective, ranks, times, network, folder):
    """[(bytes, measured, simulated)]"""
    table, out = os.path.join(folder, "measured.csv"), os.path.join(folder, "against.json")
    with open(table, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["operation", "bytes", "ranks", "seconds_in_place", "algorithm"])
        for size in SIZES:
            writer.writerow(["all-reduce", size, ranks, times[collective, size], collective])
    run([options.lockstep, "simulate", collective, f"--network={network}", f"--against={table}", "--in-place", f"--json={out}"])
    return [(row["bytes"], row["measured_seconds"], row["seconds"]) for row in read(out)["rows"]]


def share(logarithms):
    return f"{100 * math.expm1(statistics.mean(logarithms)):.0f} %, worst {100 * math.expm1(max(logarithms)):.0f} %"


def compare(options, ranks, rounds, network, folder):
    times, apart = median_times(rounds), []
    print(f"\n{ranks} ranks\n{'collective':<18} {'bytes':>9} {'measured':>11} {'simulated':>11} {'ratio':>6}")
    for collective in COLLECTIVES:
        for size, measured, simulated in against(options, collective, ranks, times, network, folder):
            apart.append(abs(math.log(simulated / measured)))
            print(f"{collective:<18} {size:>9} {measured * 1e6:>8.2f} us {simulated * 1e6:>8.2f} us {simulated / measured:>6.2f}")
    print(f"{len(apart)} points: off by {share(apart)}", end="")
    if len(rounds) > 1:
        even, odd = median_times(rounds[::2]), median_times(rounds[1::2])
        print(f"; floor: {share([abs(math.log(even[key] / odd[key])) for key in even])}")
    else:
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lockstep")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--seconds", default="0.1")
    parser.add_argument("--keep", help="a folder for the calibrations and what was measured")
    options = parser.parse_args()
    worlds = [int(ranks) for ranks in options.ranks.split(",")]
    networks, rounds = [], {ranks: [] for ranks in worlds}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or scratch
        for number in range(options.rounds):
            networks.append(calibrate(options, os.path.join(folder, f"network-{number}.json")))
            for ranks in worlds:
                rounds[ranks].append(measure(options, ranks, os.path.join(folder, f"bench-{number}-{ranks}.json")))
        network = os.path.join(folder, "here.json")
        with open(network, "w", encoding="utf-8") as file:
            json.dump(median_network(networks), file, indent=1)
        for ranks in worlds:
            compare(options, ranks, rounds[ranks], network, scratch)


if __name__ == "__main__":
    main()
