"""Checks of what the builders of models are given."""

from __future__ import annotations

from ...errors import UnsupportedError
from ...support.validation import as_whole, shown
from ...topologies import Topology

__all__ = ["as_count", "as_topology"]


def as_topology(value: object) -> Topology:
    """Return `value` if it is a topology; anything else raises `UnsupportedError`."""
    if not isinstance(value, Topology):
        raise UnsupportedError(f"the topology is {shown(value)}; expected a Topology, such as topologies.ring(4)")
    return value


def as_count(value: object, what: str, *, most: int = 2**20) -> int:
    """Read a whole number from 1 to `most`.

    Parameters
    ----------
    value : int
        Numpy integers are fine; booleans, floats and text are not.
    what : str
        Names the thing in the error message, such as ``"chunks"``.
    most : int
        Included.

    Returns
    -------
    int

    Raises
    ------
    UnsupportedError
        If the value is not a whole number or outside the limits.
    """
    return as_whole(value, what, most=most)
