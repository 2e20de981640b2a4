# SPDX-License-Identifier: Apache-2.0
"""Pictures of strategies: where variables live, what moves when, and who waits for whom."""
from picture import Picture


def replica(picture, x, y, number, share, width=200):
    """A replica with all that it holds under mirrored."""
    picture.rect(x, y, width, 128, "group", 8)
    picture.text(x + 12, y + 22, f"replica {number}", "head")
    picture.text(x + width - 12, y + 22, share, "soft end")
    picture.box(x + 12, y + 34, width - 24, 24, "parameters  P", "cell")
    picture.box(x + 12, y + 64, width - 24, 24, "optimizer state", "cell")
    picture.box(x + 12, y + 94, width - 24, 24, "gradients  P", "cell")


def one_device():
    picture = Picture(760, 184, "One device",
                      "Batch, forward and backward, gradients, optimizer, parameters: all on one device.")
    picture.rect(150, 22, 586, 140, "group", 8)
    picture.text(166, 46, "one device", "head")
    picture.box(24, 70, 100, 44, "whole batch\nof a step")
    for x, words in ((190, "forward,\nbackward"), (330, "gradients  P"), (470, "optimizer"), (610, "parameters  P")):
        picture.box(x, 70, 100, 44, words)
    for x in (124, 290, 430, 570):
        picture.arrow(x + 4, 92, x + (62 if x == 124 else 36), 92, "first")
    picture.line([(660, 118), (660, 134), (240, 134)], "second-line dashed")
    picture.arrow(240, 134, 240, 119, "second")
    picture.text(450, 150, "next step", "middle soft")
    return picture


def mirrored():
    picture = Picture(760, 270, "Mirrored: a copy of all variables on every replica",
                      "Each replica computes the gradients of its share of the batch; a collective gives each the sum of all; each "
                      "makes the same update.")
    for i in range(3):
        x = 30 + i * 250
        replica(picture, x, 24, i, "share: 1/3")
        picture.arrow(x + 82, 148, x + 82, 196, "first")
        picture.arrow(x + 118, 196, x + 118, 148, "second", "dashed")
    picture.box(30, 198, 700, 34, "collective: all-reduce, bucket by bucket", "first", "middle on")
    picture.arrow(30, 250, 70, 250, "first")
    picture.text(76, 254, "own gradients", "soft")
    picture.arrow(200, 250, 240, 250, "second", "dashed")
    picture.text(246, 254, "their sum, bit for bit the same on all: so the same update everywhere", "soft")
    return picture


def sharded():
    picture = Picture(760, 306, "Sharded: the optimizer's states in parts",
                      "Each replica gets the sums of its part of every bucket, updates that part with the states that it alone has, and "
                      "gives the new parameters to all.")
    colours = ("first", "second", "fourth")
    for i in range(3):
        x = 30 + i * 250
        picture.rect(x, 24, 200, 160, "group", 8)
        picture.text(x + 12, 46, f"replica {i}", "head")
        picture.text(x + 188, 46, "share: 1/3", "soft end")
        picture.box(x + 12, 58, 176, 24, "parameters  P", "cell")
        picture.box(x + 12, 88, 176, 24, "gradients  P", "cell")
        picture.box(x + 12 + i * 59, 118, 58, 24, "states", colours[i], "middle on")
        picture.text(x + 41 + i * 59, 164, f"part {i}", "middle soft")
        picture.arrow(x + 82, 184, x + 82, 232, "first")
        picture.arrow(x + 118, 232, x + 118, 184, "second", "dashed")
    picture.box(30, 234, 700, 34, "collective: reduce-scatter, then all-gather, bucket by bucket", "first", "middle on")
    picture.arrow(30, 286, 70, 286, "first")
    picture.text(76, 290, "own gradients; the sums of a part come back", "soft")
    picture.arrow(400, 286, 440, 286, "second", "dashed")
    picture.text(446, 290, "new parameters of all parts", "soft")
    return picture


def step():
    """The order of bucket reductions and updates is that of mirrored's end_step."""
    picture = Picture(760, 250, "A step of mirrored in time",
                      "While backward computes earlier layers, the buckets that are complete are reduced. What is left at its end is "
                      "exposed; then each bucket is updated.")
    rows = ((60, "replica"), (120, "exchange"))
    for y, words in rows:
        picture.text(16, y + 20, words, "soft")
        picture.line([(90, y + 34), (740, y + 34)], "rule")
    for x, width, words in ((94, 150, "forward"), (246, 88, "last layers"), (336, 104, "layers before"), (442, 84, "first layers")):
        picture.box(x, 62, width, 30, words, "first", "middle on")
    picture.text(386, 46, "backward", "middle soft")
    picture.line([(246, 53), (526, 53)], "frame")
    for x, width, words in ((336, 88, "bucket 0"), (442, 96, "bucket 1"), (540, 76, "bucket 2")):
        picture.box(x, 122, width, 30, words, "second", "middle on")
        picture.arrow(x, 98 if x < 540 else 96, x, 120, "second")
    picture.box(530, 62, 28, 30, "u0", "fourth", "middle on")
    picture.box(560, 62, 28, 30, "u1", "fourth", "middle on")
    picture.rect(590, 62, 24, 30, "wait", 3)
    picture.box(618, 62, 28, 30, "u2", "fourth", "middle on")
    picture.box(660, 62, 76, 30, "next step", "box", "middle soft")
    picture.line([(602, 30), (602, 60)], "third-line dotted")
    picture.text(602, 24, "exposed: the replica waits", "middle third")
    picture.text(94, 196, "bucket 0 carries the sums of loss, metrics and examples", "soft")
    picture.text(94, 218, "u: the optimizer runs over the bucket that has arrived", "soft")
    return picture


def rounds():
    """The order is that of diloco's take_turn, with a delay of one step."""
    picture = Picture(760, 264, "A round of diloco",
                      "Replicas make steps of their own. What a fragment has changed travels while they go on, and then changes the weights "
                      "of the last round, which replace those of the replicas or are mixed with them.")
    for i, y in enumerate((30, 80)):
        picture.text(16, y + 20, f"replica {i}", "soft")
        for k in range(6):
            picture.box(96 + k * 84, y, 78, 30, f"step {k + 1}", "first", "middle on")
        picture.box(604, y, 130, 30, "weights mixed", "fourth", "middle on")
    picture.text(16, 150, "exchange", "soft")
    picture.box(518, 130, 78, 30, "all-reduce", "second", "middle on")
    picture.arrow(514, 114, 530, 128, "second")
    picture.arrow(598, 128, 614, 114, "second", "dashed")
    picture.text(16, 200, "on each", "soft")
    picture.box(96, 180, 498, 30, "g, the weights of the last round: evaluated and saved", "cell")
    picture.box(604, 180, 130, 30, "g of this round", "cell")
    picture.text(96, 234, "the difference g - w is taken after step 5 (delay=1), and its mean applied after step 6: the gradient", "soft")
    picture.text(96, 252, "of an outer optimizer with momentum; sent once in steps=6", "soft")
    return picture


def central_storage():
    picture = Picture(760, 330, "Central storage: variables once, on the host",
                      "Gradients of all replicas meet on the host. The thread of each replica adds up one range of them, in the order "
                      "of the ranks, and updates that range; then every replica takes all values.")
    picture.rect(30, 22, 700, 122, "group", 8)
    picture.text(46, 44, "host", "head")
    picture.text(714, 44, "parameters and optimizer state: one copy", "soft end")
    colours = ("first", "second", "fourth")
    for i, colour in enumerate(colours):
        picture.box(46 + i * 223, 56, 222, 30, f"range {i}", colour, "middle on")
        picture.text(157 + i * 223, 106, "added up and updated", "middle soft")
        picture.text(157 + i * 223, 124, f"by the thread of replica {i}", "middle soft")
    for i in range(3):
        x = 30 + i * 250
        picture.arrow(x + 70, 206, x + 70, 150, "first")
        picture.arrow(x + 130, 150, x + 130, 206, "second", "dashed")
        picture.text(x + 64, 182, "P", "end soft")
        picture.text(x + 138, 182, "P", "soft")
        picture.rect(x, 208, 200, 76, "group", 8)
        picture.text(x + 12, 230, f"replica {i}", "head")
        picture.text(x + 188, 230, "share: 1/3", "soft end")
        picture.box(x + 12, 244, 84, 28, "gradients", "cell")
        picture.box(x + 104, 244, 84, 28, "values", "cell")
    picture.arrow(30, 306, 70, 306, "first")
    picture.text(76, 310, "gradients, then all meet", "soft")
    picture.arrow(250, 306, 290, 306, "second", "dashed")
    picture.text(296, 310, "values, when all ranges are updated", "soft")
    return picture


def parameter_server():
    picture = Picture(760, 330, "Parameter servers",
                      "Variables are cut into shards that lie on servers with their optimizer state. Each worker pulls what changed "
                      "and pushes the gradients of each bucket while backward still runs.")
    servers, workers = ((130, "server 0"), (430, "server 1")), (30, 280, 530)
    parts = ((("conv2d/kernel", "fourth"), ("dense/kernel, half", "first")), (("dense/kernel, half", "first"), ("biases", "third")))
    for (x, words), shards in zip(servers, parts):
        picture.rect(x, 22, 200, 104, "group", 8)
        picture.text(x + 12, 44, words, "head")
        for i, (shard, colour) in enumerate(shards):
            picture.box(x + 12, 54 + i * 34, 176, 28, shard, colour, "middle on")
    for i, x in enumerate(workers):
        for k, (sx, _) in enumerate(servers):
            ax, bx = x + 70 + k * 60, sx + 40 + i * 60
            picture.arrow(ax - 8, 226, bx - 8, 132, "first")
            picture.arrow(bx + 8, 132, ax + 8, 226, "second", "dashed")
        picture.rect(x, 230, 200, 56, "group", 8)
        picture.text(x + 12, 252, f"worker {i}", "head")
        picture.text(x + 188, 252, "own share", "soft end")
        picture.text(x + 12, 274, "copy of the parameters", "soft")
    picture.arrow(30, 308, 70, 308, "first")
    picture.text(76, 312, "push: gradients of a shard", "soft")
    picture.arrow(280, 308, 320, 308, "second", "dashed")
    picture.text(326, 312, "pull: values of the shards that changed since the last pull", "soft")
    return picture


# ---- Who waits for whom ----

FAST, SLOW, END = 1, 3, 9


def run(may_begin):
    """Two workers until the time END: a list of (begin, end) each. `may_begin(own, other)`: steps that both have ended."""
    cost, steps, free = (FAST, SLOW), ([], []), [0, 0]
    for now in range(END):
        ended = [sum(end <= now for _, end in made) for made in steps]
        for i in range(2):
            if free[i] <= now and may_begin(ended[i], ended[1 - i]):
                free[i] = now + cost[i]
                steps[i].append((now, free[i]))
    return steps


def pace():
    modes = (("sync", "all in step", lambda own, other: own <= other),
             ("bounded", "staleness=2", lambda own, other: own - other <= 2),
             ("async", "nobody waits", lambda own, other: True))
    picture = Picture(760, 336, "Two workers, one three times as slow, under sync, bounded and async",
                      "Under sync the fast worker waits in every step, under bounded once it is two steps ahead, under async never.")
    left, unit = 180, 61
    for row, (name, words, rule) in enumerate(modes):
        y = 20 + row * 98
        picture.text(16, y + 18, name, "head")
        picture.text(16, y + 36, words, "soft")
        for worker, made in enumerate(run(rule)):
            top, before = y + 44 - 44 * (1 - worker) + 2, 0
            for count, (begin, end) in enumerate(made, 1):
                if begin > before:
                    wait(picture, left + before * unit, top, (begin - before) * unit)
                picture.box(left + begin * unit + 1, top, (min(end, END) - begin) * unit - 2, 30, f"step {count}",
                            "first" if worker == 0 else "second", "middle on")
                before = end
            if before < END:
                wait(picture, left + before * unit, top, (END - before) * unit)
        picture.text(left - 10, y + 22, "fast", "end soft")
        picture.text(left - 10, y + 66, "slow", "end soft")
        if row < 2:
            picture.line([(16, y + 88), (744, y + 88)], "rule")
    picture.text(left - 10, 320, "time", "end soft")
    picture.arrow(left, 316, left + END * unit, 316, "first", "dotted")
    return picture


def wait(picture, x, y, width):
    picture.rect(x + 1, y, width - 2, 30, "wait", 5)
    picture.text(x + width / 2, y + 19, "waits", "middle third")


def pictures():
    yield "one-device", one_device()
    yield "mirrored", mirrored()
    yield "sharded", sharded()
    yield "diloco", rounds()
    yield "step", step()
    yield "central-storage", central_storage()
    yield "parameter-server", parameter_server()
    yield "pace", pace()
