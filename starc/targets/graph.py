"""Ways in the graphs of a machine: carriers of a GPU, GPUs of a node.

Neighbours are in order of their number relative to a node's own, modulo how many there are: in a
ring the next one comes first and the previous one last, from every node alike. Ways are shortest;
where several are, the first and the last of the neighbours that lead on are the two that are used.
"""

from __future__ import annotations

from collections.abc import Sequence


def neighbours(count: int, links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The neighbours of each of ``count`` nodes; without links they form a ring."""
    if not links:
        links = [(node, (node + 1) % count) for node in range(count)] if count > 1 else []
    beside: list[set[int]] = [set() for _ in range(count)]
    for a, b in links:
        beside[a].add(b)
        beside[b].add(a)
    return [
        sorted(found, key=lambda other, node=node: (other - node) % count)
        for node, found in enumerate(beside)
    ]


def distances(beside: Sequence[Sequence[int]]) -> list[list[int]]:
    """Links between any two nodes of a connected graph."""
    result: list[list[int]] = []
    for start in range(len(beside)):
        far = {start: 0}
        front = [start]
        while front:
            following: list[int] = []
            for node in front:
                for other in beside[node]:
                    if other not in far:
                        far[other] = far[node] + 1
                        following.append(other)
            front = following
        result.append([far[node] for node in range(len(beside))])
    return result


def next_hops(
    beside: Sequence[Sequence[int]],
) -> tuple[list[list[int]], list[list[int]]]:
    """The neighbour to go to from each node for each other, by the first and by the last of the
    shortest ways; -1 where one is there already."""
    far = distances(beside)
    count = len(beside)
    first = [[-1] * count for _ in range(count)]
    last = [[-1] * count for _ in range(count)]
    for node in range(count):
        for end in range(count):
            on = [other for other in beside[node] if far[other][end] == far[node][end] - 1]
            if on:
                first[node][end], last[node][end] = on[0], on[-1]
    return first, last
