# SPDX-License-Identifier: Apache-2.0
"""Pictures of collectives that follow the shape of the network: trees, a torus, nodes with rails; and the choice by size."""
import math

from picture import Picture

HALF = 17  # of a rank's box


def rank(picture, x, y, words, style="box"):
    picture.box(x - HALF, y - HALF, 2 * HALF, 2 * HALF, words, style)


def between(picture, a, b, colour, more="", bend=0.0, room=HALF + 4):
    """An arrow from box to box."""
    length = math.hypot(b[0] - a[0], b[1] - a[1])
    dx, dy = (b[0] - a[0]) / length, (b[1] - a[1]) / length
    reach = room / max(abs(dx), abs(dy))
    picture.arrow(a[0] + dx * reach, a[1] + dy * reach, b[0] - dx * reach, b[1] - dy * reach, colour, more, bend)


# ---- The two trees of `tree`, over seven ranks ----

def parent_place(places, place):
    bit = place & -place
    parent = (place ^ bit) | 2 * bit
    return parent if parent <= places else place ^ bit


def tree():
    picture = Picture(760, 262, "Two trees over seven ranks",
                      "Each tree adds up one half of the buffer towards its top and sends the sum down again. A rank that has "
                      "children in one tree is a leaf of the other.")
    for number, left in ((0, 20), (1, 390)):
        picture.text(left + 175, 26, "first half of the buffer" if number == 0 else "second half of the buffer", "middle head")
        where = {}
        for place in range(1, 8):
            depth = 2 - ((place & -place).bit_length() - 1)
            where[place] = (left + 25 + (place - 1) * 50, 68 + depth * 62)
        for place in range(1, 8):
            parent = parent_place(7, place)
            if parent:
                (x, y), (px, py) = where[place], where[parent]
                side = 5 if x < px else -5
                between(picture, (x - side, y), (px - side, py), "first", room=HALF + 3)
                between(picture, (px + side, py), (x + side, y), "second", "dashed", room=HALF + 3)
        for place, (x, y) in where.items():
            index = place - 1 if number == 0 else (place + 5) % 7
            rank(picture, x, y, str(index))
    y = 246
    picture.arrow(20, y - 4, 60, y - 4, "first")
    picture.text(66, y, "add, towards the top", "soft")
    picture.arrow(240, y - 4, 280, y - 4, "second", "dashed")
    picture.text(286, y, "copy, down again: one segment of the half behind the other", "soft")
    return picture


# ---- A grid of 3 rows and 4 columns ----

def torus():
    picture = Picture(760, 282, "A torus of three rows and four columns",
                      "The buffer is added up along the rows, what each rank then has along the columns, and both are shared on "
                      "the way back. Every message goes to a neighbour.")
    for left, along_rows, words, how in ((24, True, "1. along the rows", "each rank ends with a quarter, added up over its row"),
                                         (396, False, "2. along the columns", "each with a twelfth, added up over all")):
        picture.text(left + 170, 26, words, "middle head")
        for y in range(3):
            for x in range(4):
                here = (left + 62 + x * 72, 76 + y * 64)
                if along_rows:
                    if x < 3:
                        between(picture, here, (here[0] + 72, here[1]), "first")
                    else:
                        wrap(picture, (here[0] + HALF, here[1]), (left + 62 - HALF, here[1]), True)
                elif y < 2:
                    between(picture, here, (here[0], here[1] + 64), "first")
                else:
                    wrap(picture, (here[0], here[1] + HALF), (here[0], 76 - HALF), False)
                rank(picture, *here, str(y * 4 + x))
        picture.text(left + 170, 254, how, "middle soft")
    picture.text(380, 273, "then the sums are shared the same way back: columns first, rows last", "middle soft")
    return picture


def wrap(picture, a, b, sideways):
    """Round the end of a ring: out, and in again on the other side."""
    if sideways:
        picture.line([(a[0] + 3, a[1]), (a[0] + 24, a[1])], "first-line dotted")
        picture.arrow(b[0] - 24, b[1], b[0] - 3, b[1], "first", "dotted")
    else:
        picture.line([(a[0], a[1] + 3), (a[0], a[1] + 17)], "first-line dotted")
        picture.arrow(b[0], b[1] - 19, b[0], b[1] - 3, "first", "dotted")


# ---- Two nodes of four ranks ----

def two_level():
    picture = Picture(760, 300, "Two nodes of four ranks, with a rail for each",
                      "The ranks of a node add up a quarter of the buffer each; each then adds its quarter to that of its peer on "
                      "the other node; the result comes back the same way.")
    shades = ("first", "second", "third", "fourth")
    for node in range(2):
        left = 24 + node * 436
        picture.rect(left, 46, 276, 196, "group", 8)
        picture.text(left + 138, 34, f"node {node}", "middle head")
        where = [(left + 62, 92), (left + 214, 92), (left + 62, 192), (left + 214, 192)]
        for a in range(4):
            for b in range(4):
                if a != b:
                    between(picture, where[a], where[b], shades[b], "", 5)
        for i, place in enumerate(where):
            rank(picture, *place, str(node * 4 + i))
    for i, y in enumerate((74, 112, 172, 210)):
        picture.arrow(306, y, 454, y, shades[i])
        picture.arrow(454, y, 306, y, shades[i])
        picture.text(380, y - 6, f"quarter {i}: {i} and {i + 4}", "middle soft")
    for x in (162, 598):
        picture.text(x, 264, "2 n (g - 1) / g bytes a rank", "middle soft")
    picture.text(380, 264, "2 (n / g) (N - 1) / N", "middle soft")
    picture.text(380, 286, "inside the node, then between the nodes on all rails at once, then inside again", "middle soft")
    return picture


# ---- Time against size: another collective is fastest for each ----

SIZES = [1 << i for i in range(10, 27, 2)]
# Microseconds, from: lockstep simulate ring halving-doubling tree direct --world=64 --network=ethernet-100g
# --bytes=1K,4K,16K,64K,256K,1M,4M,16M,64M
TIMES = {
    "ring": [1898.3, 1898.3, 1898.3, 1911.2, 1962.8, 2169.3, 2995.0, 6298.0, 19510.1],
    "halving-doubling": [183.4, 185.5, 187.7, 204.7, 272.7, 544.6, 1632.5, 5984.1, 23390.5],
    "tree": [194.8, 197.3, 210.2, 220.3, 275.1, 432.8, 1044.0, 3415.5, 13383.6],
    "direct": [162.7, 213.3, 3419.0, 3405.1, 3363.3, 2978.2, 2811.8, 5464.9, 18709.4],
}
STROKES = {"ring": ("first", ""), "halving-doubling": ("second", "dashed"), "tree": ("third", "dotted"),
           "direct": ("fourth", "")}


def byte_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def fastest():
    picture = Picture(760, 330, "Which is fastest",
                      "Simulated time of an all-reduce against the size of the buffer for four collectives on the network "
                      "ethernet-100g with 64 ranks, and which takes least at each size.")
    left, right, top, bottom = 70, 560, 40, 252
    low = math.log10(min(min(row) for row in TIMES.values())) - 0.1
    high = math.log10(max(max(row) for row in TIMES.values())) + 0.1

    def at(size, microseconds):
        return (left + (math.log2(size) - 9) / 18 * (right - left),
                bottom - (math.log10(microseconds) - low) / (high - low) * (bottom - top))
    for power in range(math.ceil(low), math.floor(high) + 1):
        y = at(SIZES[0], 10 ** power)[1]
        picture.line([(left, y), (right, y)], "rule")
        words = {0: "1 us", 1: "10 us", 2: "100 us", 3: "1 ms", 4: "10 ms", 5: "100 ms"}[power]
        picture.text(left - 8, y + 4, words, "end soft")
    for size in SIZES[::2]:
        x = at(size, 10 ** low)[0]
        picture.text(x, bottom + 18, byte_text(size), "middle soft")
    ends = []
    for name, row in TIMES.items():
        colour, dashes = STROKES[name]
        picture.line([at(size, value) for size, value in zip(SIZES, row)], f"{colour}-line {dashes}")
        ends.append((at(SIZES[-1], row[-1])[1], name, colour, dashes))
    picture.text(580, 66, "all-reduce of 64 ranks,", "soft")
    picture.text(580, 84, "network ethernet-100g", "soft")
    for i, (_, name, colour, dashes) in enumerate(sorted(ends)):
        y = 118 + i * 24
        picture.line([(580, y - 4), (612, y - 4)], f"{colour}-line {dashes}")
        picture.text(620, y, name)
    draw_choice(picture, at, bottom)
    return picture


def draw_choice(picture, at, bottom):
    """A band below the axis: who has least time."""
    best = [min(TIMES, key=lambda name: TIMES[name][i]) for i in range(len(SIZES))]
    picture.text(62, bottom + 49, "least", "end")
    begin = 0
    for i in range(1, len(SIZES) + 1):
        if i < len(SIZES) and best[i] == best[begin]:
            continue
        step = at(SIZES[1], 1)[0] - at(SIZES[0], 1)[0]
        x1 = at(SIZES[begin], 1)[0] - step / 2
        x2 = at(SIZES[i - 1], 1)[0] + step / 2
        picture.box(x1 + 1, bottom + 32, x2 - x1 - 2, 26, best[begin], STROKES[best[begin]][0], "middle on")
        begin = i


def pictures():
    yield "tree", tree()
    yield "torus", torus()
    yield "two-level", two_level()
    yield "fastest", fastest()
