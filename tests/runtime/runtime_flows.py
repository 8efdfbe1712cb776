"""All-to-all(v) schedules for the tests of lowering: random ones, and what they should come to."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from collopt.schedules import FlowPath, FlowSchedule

__all__ = ["flows", "random_flow", "ring_flow"]


def random_flow(
    ranks: int, switches: int, seed: int, *, most: int | None = 4, chunks_per_unit: int = 1, stays: bool = True
) -> FlowSchedule:
    """Random traffic up to `most`, 1 everywhere if that is None, on random paths through any ranks and switches."""
    chance = random.Random(seed)
    traffic = np.ones((ranks, ranks), dtype=np.int64)
    if most is not None:
        traffic = np.array([[chance.randint(0, most) for _ in range(ranks)] for _ in range(ranks)], dtype=np.int64)
        # So that every rank has something, and a pair something to send.
        traffic += np.eye(ranks, dtype=np.int64) * stays
        traffic[0, ranks - 1] += 1
    paths = []
    for source in range(ranks):
        for destination in range(ranks):
            left = chunks_per_unit * int(traffic[source, destination]) if source != destination else 0
            while left:
                chunks = chance.randint(1, left)
                left -= chunks
                paths.append(FlowPath(chunks, *_path(chance, source, destination, ranks, switches)))
    chance.shuffle(paths)
    return FlowSchedule.from_paths(traffic, chunks_per_unit, paths)


def _path(
    chance: random.Random, source: int, destination: int, ranks: int, switches: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Nodes, and steps that rise at ranks."""
    others = [node for node in range(ranks + switches) if node not in (source, destination)]
    path = [source, *chance.sample(others, chance.randint(0, min(4, len(others)))), destination]
    steps = [chance.randint(0, 2)]
    for node, _ in list(pairwise(path))[1:]:
        steps.append(steps[-1] + (chance.randint(1, 3) if node < ranks else 0))
    return tuple(path), tuple(steps)


@st.composite
def flows(draw: st.DrawFn, max_ranks: int = 5) -> FlowSchedule:
    """All-to-alls, and all-to-allvs in which every rank has something."""
    return random_flow(
        draw(st.integers(2, max_ranks)),
        draw(st.integers(0, 2)),
        draw(st.integers(0, 2**30)),
        most=draw(st.one_of(st.none(), st.integers(0, 5))),
        chunks_per_unit=draw(st.integers(1, 4)),
    )


def ring_flow(ranks: int) -> FlowSchedule:
    """Equal parts on a one-way ring, each a step further in every step."""
    paths = [
        (1, tuple((rank + hop) % ranks for hop in range(distance + 1)), tuple(range(distance)))
        for rank in range(ranks)
        for distance in range(1, ranks)
    ]
    return FlowSchedule.from_paths(np.ones((ranks, ranks), dtype=np.int64), 1, paths)
