# SPDX-License-Identifier: Apache-2.0
"""Fits the protocols of the GPU networks in networks/ (launch, latency, efficiency by size) and says how far off they are.

    python3 lab/simulate/fit_protocols.py MEASURED LOCKSTEP [--write] [--collective=NAME]

MEASURED is a folder of tables as docs/simulate.md has them, LOCKSTEP the built program. The constants are fitted on the 1st, 3rd, 5th ...
row of two tables alone (TRAINED), by least squares of ln(fitted / measured). The rows between are interpolation; all
other tables are held out. All times that are reported come from `lockstep simulate`; the closed form below only makes the fit fast, and
is held against the simulator. Without --write nothing is changed: exit code 1 when the files in networks/ have other constants.

What is simulated is `ring`, which uses one network card of a node where NCCL's channels use them all, so the cards of a node are made one that
is as fast. --collective=NAME simulates another one, on the files as they are.

A ring of p ranks passes its n bytes in R = 2 (p - 1) rounds of m = n / p (all-gather and reduce-scatter in p - 1). A hop h takes
a(h) + latency(m) + m / (B(h) e(m)); with B the data sheet's bandwidth times the efficiency of its kind of link, e the share that the protocol
reaches at this size. What comes out, to 1 %, is the larger of the slowest link's R messages one after the other and R hops along the
ring, after the launch:

    T = launch + max(R m / (B_slow e) + a_slow + latency, sum over R hops of a(h) + latency + m / (B(h) e))
"""
import csv
import json
import math
import os
import subprocess
import sys
import tempfile

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NETWORKS = os.path.join(REPOSITORY, "networks")
# Bytes for each rank of the ring: n / p.
SWITCH = 128 << 10  # from here on the bandwidth protocol is taken
LOW = [4 << 10, 64 << 10]  # points of the curve of the latency protocol
HIGH = [128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20]  # and of the other, which ends at 1

# Table, its network, options of `--against`, and the sizes that are taken (None: all that count). Rows of p5-2x8-sweep above 512M are
# faster than a ring can be, and say so.
TRAINED = [("a100x8-ring", "a100-nvlink", [], None), ("b200x4x8", "b200-efa", [], range(256 << 10, 1 << 40))]
HELD_OUT = [
    ("h200x8-ring", "h200-efa", [], None),
    ("h200-by-gpus", "h200-efa", [], None),
    ("b200-by-gpus", "b200-efa", [], None),
    ("h200x4x8-ring", "h200-efa", [], None),
    ("p5-2x8-sweep", "h100-efa", [], range(0, (512 << 20) + 1)),
    ("h100x96-ndr", "h100-ndr", [], None),
    ("h200x8-nvls", "h200-efa", [], range(0, (1 << 20) + 1)),
    ("p5-batch-8", "h100-efa", ["--in-place"], range(0, 4 << 30)),
    ("h200x8-allgather", "h200-efa", [], None),
    ("h200x8-reducescatter", "h200-efa", [], None),
]
MACHINES = ["a100-nvlink", "b200-efa", "h100-efa", "h100-ndr", "h200-efa"]


# ---- Tables ----

def read_rows(folder, name):
    with open(os.path.join(folder, name + ".csv"), encoding="utf-8") as file:
        return list(csv.DictReader(file))


def seconds_of(row, in_place=False):
    first, second = ("in_place", "out_of_place") if in_place else ("out_of_place", "in_place")
    return float(row["seconds_" + first] or row["seconds_" + second])


def chosen(folder, name, sizes):
    return [row for row in read_rows(folder, name) if sizes is None or int(row["bytes"]) in sizes]


def floor(folder, tables, least, below):
    """How far apart two times of one row are: out of place and in place."""
    apart = []
    for name, _, _, sizes in tables:
        for row in chosen(folder, name, sizes):
            if row["seconds_out_of_place"] and row["seconds_in_place"] and "artefact" not in row["note"] and least <= int(row["bytes"]) < below:
                apart.append(abs(math.log(float(row["seconds_out_of_place"]) / float(row["seconds_in_place"]))))
    return apart


# ---- Networks ----

def read_network(name):
    with open(os.path.join(NETWORKS, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def with_one_card(network):
    network = json.loads(json.dumps(network))
    node = network.get("node", {})
    cards = node.get("cards", node.get("ranks", 1))
    if node:
        node["cards"] = 1
        network["bandwidth_gb_s"] *= cards
    return network


# ---- The fit ----

def never_growing(logarithms, last):
    """Slownesses of growing sizes down to `last`: each is larger than the next, whatever the logarithms are."""
    values = [last]
    for logarithm in reversed(logarithms):
        values.insert(0, values[0] + math.exp(logarithm))
    return values


class Constants:
    """From numbers that may be anything: times are above zero, shares below one, no larger buffer is less efficient."""
    def __init__(self, free):
        self.launch, self.low_latency, self.high_latency = (1e-6 * math.exp(x) for x in free[:3])
        self.inside, self.between = (1 / (1 + math.exp(x)) for x in free[3:5])
        self.low = never_growing(free[5:5 + len(LOW)], 1)[:-1]
        self.high = never_growing(free[5 + len(LOW):], 1)

    def slowness(self, size):
        return interpolated(list(zip(LOW, self.low)) if size < SWITCH else list(zip(HIGH, self.high)), size)

    def latency(self, size):
        return self.low_latency if size < SWITCH else self.high_latency


def interpolated(points, size):
    """1 / e goes in a line over the logarithm of the size."""
    if size <= points[0][0]:
        return points[0][1]
    for (a, x), (b, y) in zip(points, points[1:]):
        if size <= b:
            share = math.log(size / a) / math.log(b / a)
            return share * y + (1 - share) * x
    return points[-1][1]


def ring_seconds(network, ranks, size, constants):
    """network: as with_one_card gives it."""
    node = network.get("node")
    per_node = node["ranks"] if node else 1
    rounds, message = 2 * (ranks - 1), size / ranks
    slowness, latency = constants.slowness(message), constants.latency(message)
    hops = []
    for rank in range(ranks):
        crosses = node and rank // per_node != (rank + 1) % ranks // per_node
        link = network if crosses or not node else node
        efficiency = constants.between if crosses else constants.inside
        hops.append((link["latency_us"] * 1e-6 + latency, slowness * message / (link["bandwidth_gb_s"] * 1e9 * efficiency)))
    slowest = max(hops, key=lambda hop: hop[1])
    around = sum(sum(hop) for hop in hops)
    # The hops that are left after whole turns: the most expensive ones, next to each other, make the last rank.
    rest = rounds % ranks
    along = rounds // ranks * around + max(sum(sum(hops[(start + i) % ranks]) for i in range(rest)) for start in range(ranks))
    return constants.launch + max(along, rounds * slowest[1] + slowest[0])


def residuals(free, points):
    """ln(fitted / measured) of each point."""
    constants = Constants(free)
    return [math.log(ring_seconds(network, ranks, size, constants) / seconds) for network, ranks, size, seconds in points]


def solved(matrix, vector):
    """Gauss, with the largest pivot first."""
    rows = [list(row) + [x] for row, x in zip(matrix, vector)]
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda j: abs(rows[j][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for j in range(len(rows)):
            if j != i:
                factor = rows[j][i] / rows[i][i]
                rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i])]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def minimized(function, start, damping=1e-2):
    """Levenberg and Marquardt: the least sum of squares of what `function` returns."""
    at, found = list(start), function(start)
    for _ in range(300):
        columns = []
        for i in range(len(at)):
            moved = list(at)
            moved[i] += 1e-6
            columns.append([(b - a) / 1e-6 for a, b in zip(found, function(moved))])
        normal = [[sum(x * y for x, y in zip(u, v)) for v in columns] for u in columns]
        slope = [-sum(x * y for x, y in zip(u, found)) for u in columns]
        for i, row in enumerate(normal):
            row[i] += damping * (row[i] + 1e-6)
        tried = [x + max(-1, min(1, step)) for x, step in zip(at, solved(normal, slope))]
        value = function(tried)
        if sum(x * x for x in value) < sum(x * x for x in found):
            at, found, damping = tried, value, damping / 3
        else:
            damping *= 4
        if damping > 1e12:
            break
    return at


def fit(folder):
    points = []
    for name, machine, _, sizes in TRAINED:
        network = with_one_card(read_network(machine))
        for row in chosen(folder, name, sizes)[::2]:
            points.append((network, int(row["ranks"]), int(row["bytes"]), seconds_of(row)))
    start = [3, 0, 0, -1, -2] + [1] * len(LOW) + [-1] * (len(HIGH) - 1)
    free = minimized(lambda x: residuals(x, points), start)
    print(f"fitted on {len(points)} rows, root of the mean square {100 * math.expm1(math.sqrt(sum(x * x for x in residuals(free, points)) / len(points))):.1f} %")
    return Constants(free)


def rounded(value):
    return float(f"{value:.3g}")


def protocols(constants):
    low = [[size, rounded(1 / max(1, slowness))] for size, slowness in zip(LOW, constants.low)]
    high = [[size, rounded(1 / max(1, slowness))] for size, slowness in zip(HIGH, constants.high)]
    return [{"name": "latency", "below": SWITCH, "latency_us": rounded(constants.low_latency * 1e6), "efficiency_by_bytes": low},
            {"name": "bandwidth", "latency_us": rounded(constants.high_latency * 1e6), "efficiency_by_bytes": high}]


def with_constants(network, constants):
    """The network with these constants, its keys in the order in which a reader wants them."""
    inside, between = rounded(constants.inside), rounded(constants.between)
    found = {key: network[key] for key in ("name", "about", "sources", "topology", "latency_us", "bandwidth_gb_s")}
    found["efficiency"] = between if "node" in network else inside
    if "node" in network:
        found["node"] = dict(network["node"], efficiency=inside)
    return dict(found, launch_us=rounded(constants.launch * 1e6), protocols=protocols(constants))


def network_text(network):
    """JSON as in networks/: a list has a line for each entry, all else one line."""
    lines = []
    for key, value in network.items():
        text = json.dumps(value)
        if key in ("sources", "protocols"):
            text = "[\n" + ",\n".join("        " + json.dumps(entry) for entry in value) + "\n    ]"
        lines.append(f"    {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


# ---- The verdict: by the simulator alone ----

def simulated(lockstep, collective, folder, table, networks, part):
    name, machine, options, sizes = table
    with tempfile.TemporaryDirectory() as scratch:
        file, rows = os.path.join(scratch, "network.json"), os.path.join(scratch, "rows.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(networks[machine] if collective != "ring" else with_one_card(networks[machine]), out)
        subprocess.run([lockstep, "simulate", collective, "--network=" + file, "--against=" + os.path.join(folder, name + ".csv"), "--json=" + rows,
                        *options], check=True, stdout=subprocess.DEVNULL)
        with open(rows, encoding="utf-8") as out:
            found = json.load(out)["rows"]
    found = [row for row in found if sizes is None or row["bytes"] in sizes]
    found = found[part::2] if part is not None else found
    return [row for row in found if not row["left_out"]]


def say(title, rows, every=True):
    distances = [abs(math.log(row["seconds"] / row["measured_seconds"])) for row in rows]
    if every:
        for row in rows:
            print(f"    {row['operation']:14} {row['world']:3} ranks {row['bytes']:12}  {row['measured_seconds'] * 1e6:10.1f} us "
                  f"{row['seconds'] * 1e6:10.1f} us {100 * (row['seconds'] / row['measured_seconds'] - 1):+7.1f} %")
    print(f"{title}: {len(rows)} points, {100 * math.expm1(sum(distances) / len(distances)):.1f} %, worst {100 * math.expm1(max(distances)):.1f} %")


def main():
    folder, lockstep = sys.argv[1:3]
    collective = next((option.partition("=")[2] for option in sys.argv[3:] if option.startswith("--collective=")), "ring")
    constants = fit(folder)
    print(json.dumps(dict(launch_us=rounded(constants.launch * 1e6), inside=rounded(constants.inside), between=rounded(constants.between),
                          protocols=protocols(constants))))
    old = {name: read_network(name) for name in MACHINES}
    networks = {name: with_constants(old[name], constants) for name in MACHINES}
    for part, title in ((0, "fitted"), (1, "interpolation")):
        together = []
        for table in TRAINED:
            rows = simulated(lockstep, collective, folder, table, networks, part)
            if part == 0 and collective == "ring":
                network = with_one_card(networks[table[1]])
                apart = max(abs(ring_seconds(network, row["world"], row["bytes"], constants) / row["seconds"] - 1) for row in rows)
                print(f"{table[0]}: the closed form is within {100 * apart:.1f} % of the simulator")
            say(f"{title}, {table[0]}", rows)
            together += rows
        say(title, together, every=False)
    together = []
    for table in HELD_OUT:
        rows = simulated(lockstep, collective, folder, table, networks, None)
        say(table[0], rows)
        together += rows
    say("held out", together, every=False)
    for least, text in ((1 << 20, "1 MiB"), (4 << 30, "4 GiB")):
        say(f"held out, from {text} on", [row for row in together if row["bytes"] >= least], every=False)
    for least, below, title in ((1 << 20, 1 << 60, "from 1 MiB on"), (0, 1 << 20, "below 1 MiB")):
        apart = floor(folder, TRAINED + HELD_OUT, least, below)
        print(f"floor {title}: {len(apart)} rows, {100 * math.expm1(sum(apart) / len(apart)):.1f} %, worst {100 * math.expm1(max(apart)):.1f} %")
    if "--write" in sys.argv[3:]:
        for name in MACHINES:
            with open(os.path.join(NETWORKS, name + ".json"), "w", encoding="utf-8") as file:
                file.write(network_text(networks[name]))
    elif networks != old:
        sys.exit("networks/ has other constants; --write writes these")


main()
