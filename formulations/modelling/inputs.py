"""Input checks of model builders, and distances in hops for direct-connect topologies."""

from __future__ import annotations

import numpy as np

from ...errors import BoundError, UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import as_whole
from ...topologies import Topology
from ...topologies.network.hop_distances import partial_hop_distances
from ...topologies.network.topology import as_topology


def as_count(value: object, what: str, *, most: int = 2**20) -> int:
    """Read a whole number from 1 to `most`."""
    return as_whole(value, what, most=most)


def hop_distances(topology: Topology) -> IntArray:
    """Fewest links from every rank to every rank. Shapes: returns int64 (num_ranks, num_ranks)."""
    if as_topology(topology).switch_nodes:
        raise UnsupportedError(
            f"{topology!r} has switches, such as {topology.switch_nodes[0]!r}; expected direct links between ranks only"
        )
    found = partial_hop_distances(topology.num_ranks, topology.arrays.tails, topology.arrays.heads)
    if (found < 0).any():
        source, rank = (topology.compute_nodes[place] for place in np.argwhere(found < 0)[0])
        raise BoundError(f"rank {source!r} cannot reach rank {rank!r}; add links until every rank reaches every other")
    return found.astype(np.int64)
