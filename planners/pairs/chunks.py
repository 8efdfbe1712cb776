"""How many whole chunks of each pair go over each of its paths."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from ...errors import CapacityOverflowError
from ...schedules import Bound, congestion
from ...support import progress
from ...support.arrays import IntArray
from ...support.validation import as_whole
from ...topologies import Topology

if TYPE_CHECKING:
    from ...solvers.paths.decomposition import Paths

TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
"""Numbers of chunks per unit of traffic that are tried if none is asked for."""
MAX_PER_UNIT = 2**20
"""Chunks that can be asked for."""
MAX_EXACT = 2**12
"""Chunks per unit that are taken if they put exactly on each path what its flow does."""
MAX_PER_PAIR = 2**12
"""Chunks of a pair beyond which smaller ones are not tried: the traffic itself counts finely enough."""
MAX_HOPS = 2**25
"""Hops of all numbers of chunks together."""
MAX_CHUNKS = 2**62
"""All together."""
EFFORT = 2 * 10**7
"""Hops that are looked at for each number, a fraction of a second."""


def as_chunks(value: object) -> int:
    """Read a number of chunks per unit of traffic, or raise `UnsupportedError`."""
    return as_whole(value, "chunks", most=MAX_PER_UNIT)


def shared_chunks(
    paths: Paths, topology: Topology, traffic: IntArray, chunks: int | None, bound: Bound
) -> tuple[int, Paths]:
    """Share out the chunks of all pairs.

    Shapes: `traffic` int64 (ranks, ranks).
    """
    from ...solvers.paths.chunk_rounding import rounded
    from ...solvers.paths.decomposition import path_loads

    if chunks is not None and sum(traffic.ravel().tolist()) * chunks >= MAX_CHUNKS:
        raise CapacityOverflowError(
            f"the traffic counts {sum(traffic.ravel().tolist())} of its common unit, and {chunks} chunks of each "
            "overflow int64; expected fewer chunks"
        )
    ranks, capacities = topology.num_ranks, topology.arrays.capacities
    tails, heads, _, _ = topology.arrays
    sources, targets = tails[paths.links[paths.starts[:-1]]], heads[paths.links[paths.starts[1:] - 1]]
    known, pairs = np.unique(sources * ranks + targets, return_inverse=True)
    parts = traffic.reshape(-1)[known]
    best: tuple[Fraction, int, IntArray] | None = None
    numbers = [chunks] if chunks is not None else list(_numbers(paths, parts, pairs))
    for count in progress.iterate(numbers, len(numbers)):
        goal = bound.inverse_rate * count * topology.arrays.unit
        weights = rounded(paths, pairs, parts * count, capacities, goal=goal, effort=EFFORT)
        rate = congestion(path_loads(paths, weights, len(capacities)), count, topology)
        if best is None or rate < best[0]:
            best = rate, count, weights
        if rate == bound.inverse_rate:
            break
    assert best  # there is at least one number
    return best[1], paths._replace(weights=best[2])


def _numbers(paths: Paths, parts: IntArray, pairs: IntArray) -> Iterator[int]:
    """Numbers of chunks to try, the last of which puts on each path just what its flow does, if it is not too large."""
    left = MAX_HOPS // max(1, len(paths.links))
    for place, count in enumerate(TRIED):
        if place == 0 or (place < left and count * int(parts.max()) <= MAX_PER_PAIR):
            yield count
    sums = np.zeros(len(parts), dtype=np.int64)
    np.add.at(sums, pairs, paths.weights)
    # What a traffic of 1 gets is the same for all pairs.
    whole = int(sums[0] // parts[0])
    exact = whole // gcd(whole, int(np.gcd.reduce(paths.weights)))
    if exact not in TRIED and exact * int(parts.max()) <= MAX_EXACT:
        yield exact
