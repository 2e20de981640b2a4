# SPDX-License-Identifier: Apache-2.0
"""Pictures of collectives: what each rank has of the sum, round by round, played from the messages of each round."""
from picture import Picture

RANKS = 4


class Message:
    def __init__(self, source, destination, chunks, add):
        self.source, self.destination, self.chunks, self.add = source, destination, chunks, add


def ring():
    rounds = []
    for step in range(1, RANKS):
        rounds.append([Message(rank, (rank + 1) % RANKS, [(rank - step) % RANKS], True) for rank in range(RANKS)])
    for step in range(RANKS - 1):
        rounds.append([Message(rank, (rank + 1) % RANKS, [(rank - step) % RANKS], False) for rank in range(RANKS)])
    return rounds


def halving_doubling():
    halves = []
    for distance in (2, 1):
        # A rank keeps the chunks on its own side, and sends its peer those on the other.
        halves.append([Message(rank, rank ^ distance, [c for c in range(RANKS) if c & distance == (rank ^ distance) & distance
                                                       and (distance == 2 or c & 2 == rank & 2)], True)
                       for rank in range(RANKS)])
    back = [[Message(m.destination, m.source, m.chunks, False) for m in messages] for messages in reversed(halves)]
    return halves + back


def direct():
    pairs = [(a, b) for a in range(RANKS) for b in range(RANKS) if a != b]
    return [[Message(a, b, [b], True) for a, b in pairs], [Message(a, b, [a], False) for a, b in pairs]]


def hierarchical_copy():
    """Two groups of two; piece c is reduced by place c / 2 of each group, and the groups' sums meet in group c % 2."""
    def main(group, piece):
        return group * 2 + piece // 2 % 2
    inside, between = [], []
    for piece in range(RANKS):
        meeting = piece % 2
        for group in range(2):
            inside += [Message(rank, main(group, piece), [piece], True)
                       for rank in (2 * group, 2 * group + 1) if rank != main(group, piece)]
        between.append(Message(main(1 - meeting, piece), main(meeting, piece), [piece], True))
    return [merge(inside), merge(between)] + [merge([Message(m.destination, m.source, m.chunks, False) for m in messages])
                                              for messages in (between, inside)]


def merge(messages):
    """Messages of one way in one round are drawn as one arrow."""
    ways = {}
    for message in messages:
        way = (message.source, message.destination)
        if way in ways:
            ways[way].chunks = sorted(ways[way].chunks + message.chunks)
        else:
            ways[way] = Message(*way, list(message.chunks), message.add)
    return list(ways.values())


def play(rounds):
    """The state before the first round and after each: has[rank][chunk] is the set of ranks whose part is in it."""
    has = [[{rank} for _ in range(RANKS)] for rank in range(RANKS)]
    states = [has]
    for messages in rounds:
        after = [[set(parts) for parts in row] for row in has]
        for message in messages:
            for chunk in message.chunks:
                came = has[message.source][chunk]
                mine = after[message.destination][chunk]
                assert not message.add or not came & mine, "a part would be added twice"
                after[message.destination][chunk] = came | mine if message.add else set(came)
        has = after
        states.append(has)
    assert all(len(parts) == RANKS for row in has for parts in row), "the sum is not whole"
    return states


def draw_key(picture, y):
    picture.rect(14, y - 10, 12, 12, "cell")
    picture.rect(14, y - 1, 12, 3, "first")
    picture.text(32, y, "a chunk of the buffer; filled: its share of the sum", "soft")
    picture.rect(430, y - 10, 12, 12, "second")
    picture.text(448, y, "the whole sum", "soft")
    picture.arrow(566, y - 4, 606, y - 4, "first")
    picture.text(612, y, "add", "soft")
    picture.arrow(660, y - 4, 700, y - 4, "second", "dashed")
    picture.text(706, y, "copy", "soft")


def state_class(parts):
    return "second" if len(parts) == RANKS else "first"


def draw(rounds, title, description, headings, cell=15):
    states = play(rounds)
    left, top, height, row = 62, 62, 24, 52
    strip = RANKS * cell
    gap = (760 - left - 20 - strip * len(states)) / (len(states) - 1)
    picture = Picture(760, top + RANKS * row + 34, title, description)
    column = [left + i * (strip + gap) for i in range(len(states))]
    for first, last, words, colour in headings:
        x1, x2 = column[first] + strip, column[last]
        picture.text((x1 + x2) / 2, 26, words, "middle head")
        picture.line([(x1 + 4, 36), (x2 - 4, 36)], colour + "-line")
    for i, messages in enumerate(rounds):
        for message in messages:
            y1, y2 = (top + rank * row + height / 2 for rank in (message.source, message.destination))
            picture.arrow(column[i] + strip + 4, y1, column[i + 1] - 4, y2, "first" if message.add else "second",
                          "" if message.add else "dashed")
    for rank in range(RANKS):
        picture.text(14, top + rank * row + 17, f"rank {rank}", "soft")
        for i, has in enumerate(states):
            y = top + rank * row
            for chunk in range(RANKS):
                x, share = column[i] + chunk * cell, len(has[rank][chunk]) / RANKS
                picture.rect(x, y, cell, height, "cell")
                picture.rect(x, y + height * (1 - share), cell, height * share, state_class(has[rank][chunk]))
    draw_key(picture, picture.height - 14)
    return picture


def pictures():
    yield "ring", draw(ring(), "Ring all-reduce of four ranks",
                       "Each rank passes one chunk a round to the next one: three rounds to add, three to share.",
                       [(0, 3, "add: p - 1 rounds", "first"), (3, 6, "share: p - 1 rounds", "second")], 12)
    yield "halving-doubling", draw(
        halving_doubling(), "Halving and doubling among four ranks",
        "Two rounds of halving, the farthest rank first, then two rounds of doubling.",
        [(0, 2, "halve: log2 p rounds", "first"), (2, 4, "double: log2 p rounds", "second")])
    yield "direct", draw(
        direct(), "Direct all-reduce of four ranks",
        "In one round every rank gets its chunk from all others, in the next one it gives the sum to all.",
        [(0, 1, "everybody's part of my chunk", "first"), (1, 2, "my sum to everybody", "second")], 20)
    yield "hierarchical-copy", draw(
        hierarchical_copy(), "Hierarchical copy of two groups of two ranks",
        "Ranks 0 and 1 are one group, 2 and 3 the other: sums inside the groups, between them, and copies back.",
        [(0, 1, "in the group", "first"), (1, 2, "between groups", "first"), (2, 3, "between groups", "second"),
         (3, 4, "in the group", "second")])
