# SPDX-License-Identifier: Apache-2.0
"""Pictures of the architecture: the rooms of the library, and the way of a batch and of a bucket through them."""
from picture import Picture

# From the top; a room may use the rooms below it, and neighbours on its right. (rooms of a row: name, what it has, width in columns of 12)
ROWS = (
    (("api", "the calls of lockstep.h", 12),),
    (("loops", "custom loops", 3), ("train", "sessions, fit, evaluation, callbacks, checkpoints", 9)),
    (("model", "files, metrics, weights", 4), ("run", "plugins, workers", 3), ("comm", "without a model", 3), ("report", "JSON, bar", 2)),
    (("strategy", "the step; stores, servers", 6), ("data", "examples to batches", 6)),
    (("replica", "memory and passes", 4), ("collective", "plans, executor, auto", 4), ("cluster", "workers, the store", 4)),
    (("graph", "programs", 2), ("optimizer", "updates", 2), ("topology", "networks", 2), ("schedule", "compiled, proven", 4), ("loader", "of plugins", 2)),
    (("device", "guarded", 2), ("operation", "the table", 2), ("filter", "its stages", 2), ("formats", "safetensors", 2), ("wire", "sockets", 2), ("place", "launchers", 2)),
    (("base", "status, log, options, threads, clock, shared memory, watchdog", 12),),
    (("plugin", "the contracts: plain C headers, and nothing else", 12),),
)
BATCH, BUCKET, BOTH = {"data", "graph", "train", "operation"}, {"collective", "schedule", "optimizer"}, {"strategy", "replica", "device"}


def house():
    picture = Picture(760, 606, "The rooms of the library",
                      "A room may use the rows below it and neighbours on its right. At the top are the calls of lockstep.h, at the bottom the contracts with plugins, "
                      "which are all that a plugin sees.")
    left, width, height, gap = 24, 540, 48, 8
    column = (width + gap) / 12
    picture.text(left, 32, "programs in C and Python, the lockstep command", "soft")
    picture.arrow(left + 270, 38, left + 270, 50, "first")
    for row, rooms in enumerate(ROWS):
        y, at = 52 + row * (height + gap), 0
        for name, words, columns in rooms:
            x, wide = left + at * column, columns * column - gap
            style = "first" if name in BATCH else "second" if name in BUCKET else "fourth" if name in BOTH else "box"
            text = "middle on" if style != "box" else "middle"
            picture.rect(x, y, wide, height, style, 5)
            picture.text(x + wide / 2, y + 20, name, text if style != "box" else "middle head")
            picture.text(x + wide / 2, y + 38, words, text)
            at += columns
    right, top = left + width + 36, 52
    picture.rect(right, top, 136, 9 * (height + gap) - gap, "group", 8)
    picture.text(right + 12, top + 24, "plugins/", "head")
    for i, kind in enumerate(("strategy", "collective", "transport", "device", "callback", "layer", "loss", "metric", "dataset")):
        picture.box(right + 12, top + 40 + i * 36, 112, 28, kind, "cell")
    picture.text(right + 68, top + 388, "include only", "middle soft")
    picture.text(right + 68, top + 405, "the contracts", "middle soft")
    bottom = 52 + 8 * (height + gap) + height / 2
    picture.arrow(right + 68, top + 412, right + 68, bottom - 2, "third")
    picture.arrow(right + 66, bottom + 2, left + width + 4, bottom + 2, "third")
    for x, colour, words in ((24, "first", "on the way of a batch"), (236, "second", "on the way of a bucket"), (456, "fourth", "on both")):
        picture.rect(x, 574, 16, 16, colour, 3)
        picture.text(x + 24, 587, words, "soft")
    return picture


def station(picture, x, y, width, title, words, style):
    picture.rect(x, y, width, 58, style, 5)
    text = "middle" if style == "box" else "middle on"
    picture.text(x + width / 2, y + 24, title, text if style != "box" else "middle head")
    picture.text(x + width / 2, y + 43, words, text)


def way():
    picture = Picture(760, 392, "The way of a batch and of a bucket",
                      "A batch goes from the dataset over the input thread and the replica to the kernels of the device. The gradients of each "
                      "bucket go over the strategy and the collective to the other ranks and back to an update.")
    picture.rect(208, 70, 528, 224, "group", 8)
    picture.text(722, 90, "core/strategy/step.c, on the thread of the replica", "soft end")
    station(picture, 24, 14, 150, "datasets", "examples", "box")
    for x, width, title, words in ((24, 150, "core/data", "input thread"), (232, 150, "core/replica", "to the device"),
                                   (420, 150, "core/graph", "program, kernels"), (608, 112, "core/device", "launch")):
        station(picture, x, 102, width, title, words, "first")
        if x < 608:
            picture.arrow(x + 154, 131, (228, 416, 604)[(x > 24) + (x > 232)], 131, "first")
    picture.arrow(99, 76, 99, 98, "first")
    picture.text(180, 122, "share", "soft")
    picture.arrow(495, 164, 495, 214, "second")
    picture.text(485, 194, "gradient_ready", "end soft")
    station(picture, 420, 218, 150, "core/strategy", "hooks of the plugin", "fourth")
    station(picture, 232, 218, 150, "core/collective", "schedule, executor", "second")
    station(picture, 608, 218, 112, "core/replica", "update", "second")
    picture.arrow(416, 237, 386, 237, "second")
    picture.arrow(386, 257, 416, 257, "second", "dashed")
    picture.arrow(574, 247, 604, 247, "second", "dashed")
    picture.arrow(664, 214, 664, 164, "second", "dashed")
    picture.text(654, 194, "next step", "end soft")
    station(picture, 232, 312, 150, "transport", "other ranks", "box")
    picture.arrow(296, 280, 296, 308, "second")
    picture.arrow(318, 308, 318, 280, "second", "dashed")
    station(picture, 24, 218, 150, "core/train", "loop, callbacks", "first")
    picture.arrow(228, 247, 178, 247, "fourth", "dotted")
    for y, colour, more, words in ((318, "first", "", "the batch"), (338, "second", "", "gradients of a bucket"),
                                   (358, "second", "dashed", "their sum, and the new parameters"),
                                   (378, "fourth", "dotted", "sums of the step: loss, metrics, examples")):
        picture.arrow(420, y - 4, 460, y - 4, colour, more)
        picture.text(468, y, words, "soft")
    return picture


def pictures():
    yield "house", house()
    yield "way", way()
