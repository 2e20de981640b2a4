# SPDX-License-Identifier: Apache-2.0
"""What spans of time cover together."""


def union(spans):
    """Length of what (begin, end) pairs cover; where several do, it counts once."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered
