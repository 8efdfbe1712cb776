"""What no allreduce can beat: the narrowest cut, or the best partition of the ranks.

All data must leave every cut (pipeline paper, Theorem 16), and parts of the network must take in more between them the
more of them there are (`collopt.schedules.Partition`).  Where switches do not add up data the best partition is never
weaker than the cuts around single ranks of the paper's Theorem 17 and Corollary 18, whose mean counts here and not the
maximum.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import CapacityOverflowError
from ..schedules import Bound, Cut, Partition, Witness
from ..solvers.strength import strength
from ..topologies import Topology
from .requests import check_request, network
from .tree_engine import bottleneck

__all__ = ["allreduce_bound", "named", "narrowest_cut", "partition"]


def allreduce_bound(topology: Topology) -> Bound:
    """Bound the speed of an allreduce.

    Parameters
    ----------
    topology : Topology
        Every switch must take in as much bandwidth as it gives out.

    Returns
    -------
    Bound
        Some plan reaches it where all links have equal opposites and no switch adds up data; elsewhere the true optimum
        may be slower.

    Raises
    ------
    BoundError
        If some rank cannot reach another.
    UnsupportedError
        If a switch's ingress and egress differ.
    CapacityOverflowError
        If exact arithmetic would leave int64.

    Examples
    --------
    Two boxes have to exchange all sums over their NICs, 200 GB/s each way:

    >>> from collopt.topologies import dgx_a100
    >>> allreduce_bound(dgx_a100(boxes=4)).algbw
    Fraction(400, 3)
    """
    check_request(topology, "allreduce")
    witnesses: list[Witness] = [narrowest_cut(topology), *_best_partitions(topology)]
    bounds = [Bound.from_witness(topology, "allreduce", witness) for witness in witnesses]
    return max(bounds, key=lambda bound: bound.inverse_rate)


def named(topology: Topology, inside: npt.NDArray[np.bool_]) -> frozenset[str]:
    """Name the nodes that are marked, one mark for each of ``topology.nodes``."""
    return frozenset(topology.nodes[number] for number in np.flatnonzero(inside))


def partition(topology: Topology, labels: npt.NDArray[np.int64]) -> Partition | None:
    """Put nodes of one label into one part; None where switches in no part, of label -1, can add up data."""
    parts: dict[int, set[str]] = {}
    for node, label in zip(topology.nodes, labels.tolist(), strict=True):
        parts.setdefault(label, set()).add(node)
    if topology.aggregation & parts.get(-1, set()):
        return None
    return Partition(tuple(frozenset(part) for part in parts.values()))


def narrowest_cut(topology: Topology) -> Cut:
    """Find the narrowest cut with ranks on both sides: of those with rank 0 inside, and of those without."""
    first = (1, *(0 for _ in topology.compute_nodes[1:]))
    away = named(topology, bottleneck(network(topology, "broadcast", first)).source_side)
    # Seen against the links' direction, what is outside the cut has to leave.
    back = named(topology, bottleneck(network(topology, "reduce", first)).source_side)
    cuts = [Cut(away), Cut(frozenset(topology.nodes) - back)]
    return min(cuts, key=lambda cut: cut.bandwidth(topology))


def _best_partitions(topology: Topology) -> list[Partition]:
    """Find the best partition, if there is one.

    Two-way links as fast as both directions together stand for the network: what enters all parts together is then
    twice what it was, whatever the parts, as what one part takes in another one, or a balanced switch, gives out.
    """
    tails, heads, capacities, _ = topology.arrays
    ends, numbers = np.unique(np.sort(np.stack([tails, heads]), axis=0), axis=1, return_inverse=True)
    both = np.zeros(ends.shape[1], dtype=np.int64)
    np.add.at(both, numbers.ravel(), capacities)
    try:
        best = strength(len(topology.nodes), topology.num_ranks, ends[0], ends[1], both)
    except CapacityOverflowError:
        return []  # the cut needs less room
    found = partition(topology, best.labels)
    return [] if found is None else [found]
