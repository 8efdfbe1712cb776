"""What comes of a file that describes a network."""

from __future__ import annotations

from typing import NamedTuple

from ...network.topology import Topology

__all__ = ["Imported"]


class Imported(NamedTuple):
    """A network, and what is to be said about where it comes from.

    Attributes
    ----------
    topology : Topology
        The network.
    notes : tuple of str
        What was assumed, left out or overruled; one sentence each.
    """

    topology: Topology
    notes: tuple[str, ...] = ()
