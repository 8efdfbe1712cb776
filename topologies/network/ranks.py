"""Lookup of ranks by number or name."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UnsupportedError
from ...support.validation import is_whole, shown


def rank_number(compute_nodes: Sequence[str], rank: object) -> int | None:
    """Return the number of a rank given by number or name; None if there is no such rank."""
    if isinstance(rank, str):
        return compute_nodes.index(rank) if rank in compute_nodes else None
    return int(rank) if is_whole(rank) and 0 <= rank < len(compute_nodes) else None


def as_root(compute_nodes: Sequence[str], root: object) -> int:
    """Return the number of the root rank, given by number or name, or raise `UnsupportedError`."""
    number = rank_number(compute_nodes, root)
    if number is None:
        raise UnsupportedError(
            f"root {shown(root)} is not a rank; expected 0..{len(compute_nodes) - 1} or a compute node's name"
        )
    return number
