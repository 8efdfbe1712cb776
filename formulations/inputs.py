"""Input checks of model builders and of rounding, and distances in hops for direct-connect topologies."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import BoundError, UnsupportedError
from ..support.arrays import IntArray
from ..support.validation import as_whole, shown
from ..topologies import Topology
from ..topologies.network.direct_graph import partial_hop_distances
from ..topologies.network.topology import as_topology

TOLERANCE = Fraction(1, 10**6)
"""Of solvers, for numbers of at least 0 and for the sum of the shares of one source."""


def as_count(value: object, what: str, *, high: int = 2**20) -> int:
    """Read a whole number from 1 to `high`."""
    return as_whole(value, what, high=high)


def as_ranks(names: object, topology: Topology, what: str) -> tuple[str, ...]:
    """Read names of different ranks, or one name."""
    ranks = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else ()
    for place, name in enumerate(ranks):
        if name not in topology.compute_nodes or name in ranks[:place]:
            raise UnsupportedError(f"the {what} have {shown(name)}; expected names of different ranks of {topology}")
    if not ranks:
        raise UnsupportedError(f"the {what} are {shown(names)}; expected names of ranks")
    return ranks


def as_share(value: Any, what: str) -> Fraction:
    """Read a number exactly; a negative one within a solver's tolerance becomes 0."""
    try:
        exact = Fraction(value)
    except (TypeError, ValueError, OverflowError):
        exact = Fraction(-1)
    if exact < -TOLERANCE:
        raise UnsupportedError(f"{what} is {shown(value)}; expected a number of at least 0")
    return max(exact, Fraction(0))


def hop_distances(topology: Topology, hops: Iterable[tuple[str, str]] | None = None) -> IntArray:
    """Fewest links, or given hops, from every rank to every rank. Shapes: returns int64 (num_ranks, num_ranks)."""
    if as_topology(topology).switch_nodes and hops is None:
        raise UnsupportedError(
            f"{topology} has switches, such as {topology.switch_nodes[0]!r}; expected direct links between ranks only"
        )
    ends = (link[:2] for link in topology.links) if hops is None else hops
    pairs = np.array([[topology.node_index[end] for end in pair] for pair in ends]).reshape(-1, 2)
    distances = partial_hop_distances(topology.num_ranks, *pairs.T)
    if (distances < 0).any():
        source, rank = (topology.compute_nodes[place] for place in np.argwhere(distances < 0)[0])
        raise BoundError(f"rank {source!r} cannot reach rank {rank!r}; add links until every rank reaches every other")
    return distances.astype(np.int64)
