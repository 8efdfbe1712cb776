"""Collectives between pairs that collopt does not have: ``with registered(SCATTER): ...``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from collopt.schedules import COLLECTIVES, Collective, register_collective
from collopt.support.arrays import IntArray

__all__ = ["GATHER", "HALO", "SCATTER", "SHIFT", "from_root", "registered", "to_next"]


def from_root(num_ranks: int, root: int) -> list[list[int]]:
    """Give the root a part for each rank."""
    return [[int(source == root)] * num_ranks for source in range(num_ranks)]


def to_root(num_ranks: int, root: int) -> IntArray:
    """Give each rank a part for the root, in another unit."""
    return 6 * np.array(from_root(num_ranks, root)).T


def to_next(num_ranks: int) -> Any:
    """Give each rank a part for the next one, and keep nothing."""
    return np.roll(np.eye(num_ranks), 1, axis=1)


def to_neighbors(num_ranks: int) -> Any:
    """Give each rank a part for the next one, two for the one before, and three for itself."""
    return to_next(num_ranks) + 2 * to_next(num_ranks).T + 3 * np.eye(num_ranks)


SCATTER = Collective("scatter", "one root", (), "parts", "parts", traffic=from_root)
GATHER = Collective("gather", "one root", (), "parts", "parts", traffic=to_root)
SHIFT = Collective("shift", "pairs", (), "parts", "parts", traffic=to_next)
HALO = Collective("halo", "pairs", (), "parts", "parts", traffic=to_neighbors)


@contextmanager
def registered(*collectives: Collective) -> Iterator[None]:
    """Register collectives, and take them back."""
    try:
        for each in collectives:
            register_collective(each)
        yield
    finally:
        for each in collectives:
            COLLECTIVES.pop(each.name, None)
