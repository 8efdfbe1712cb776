"""Ranks as people give them, by number or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import UnsupportedError
from ...support.validation import is_whole, shown

if TYPE_CHECKING:
    from .topology import Topology

__all__ = ["as_root", "rank_number"]


def rank_number(topology: Topology, rank: object) -> int | None:
    """Return the number of a rank that is given by its number or name; None if there is none of it.

    >>> from collopt.topologies import ring
    >>> rank_number(ring(4), "gpu2"), rank_number(ring(4), 4)
    (2, None)
    """
    number = topology.node_index.get(rank) if isinstance(rank, str) else rank
    return int(number) if is_whole(number) and 0 <= number < topology.num_ranks else None


def as_root(topology: Topology, root: object) -> int:
    """Return the number of the rank that `root` gives by number or name, or raise `UnsupportedError`."""
    number = rank_number(topology, root)
    if number is None:
        raise UnsupportedError(
            f"root {shown(root)} is not a rank; expected 0..{topology.num_ranks - 1} or a compute node's name"
        )
    return number
