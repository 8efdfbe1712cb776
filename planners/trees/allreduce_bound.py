"""What no allreduce can beat: the narrowest cut, or the best partition of the ranks.

All data must leave every cut (pipeline paper, Theorem 16), and parts of the network must take in more between them the
more of them there are (`collopt.schedules.Partition`).  Where switches do not add up data the best partition is never
weaker than the cuts around single ranks of the paper's Theorem 17 and Corollary 18, whose mean counts here and not the
maximum.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...errors import CapacityOverflowError
from ...schedules import ALLREDUCE, Bound, Cut, Partition, Witness
from ...solvers.strength.strength import strength
from ...topologies import Topology
from .forest import bottleneck
from .problem import check_request, tree_problem


def allreduce_bound(topology: Topology) -> Bound:
    """Bound the speed of an allreduce."""
    check_request(topology, ALLREDUCE)
    witnesses: list[Witness] = [narrowest_cut(topology), *_best_partitions(topology)]
    bounds = [Bound.from_witness(topology, ALLREDUCE, witness) for witness in witnesses]
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
    away = named(topology, bottleneck(tree_problem(topology, "broadcast", first)).source_side)
    # Seen against the links' direction, what is outside the cut has to leave.
    back = named(topology, bottleneck(tree_problem(topology, "reduce", first)).source_side)
    cuts = [Cut(away), Cut(frozenset(topology.nodes) - back)]
    return min(cuts, key=lambda cut: cut.bandwidth(topology))


def _best_partitions(topology: Topology) -> list[Partition]:
    """Find the best partition and, where switches outside of its parts could add up data, others that keep them inside.

    Which part is best for such a switch is not known, so two ways are tried: that of all its neighbours, and that of
    its first neighbour.  Whatever they give is a valid bound.
    """
    found = [_best_partition(topology, np.arange(len(topology.nodes)))]
    if found[0] is None:
        found += [_best_partition(topology, _joined(topology, most)) for most in (len(topology.nodes), 1)]
    return [each for each in found if each is not None]


def _joined(topology: Topology, most: int) -> npt.NDArray[np.int64]:
    """Number groups of nodes, those with ranks first: a switch that adds up is in one with `most` of its neighbours."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    tails, heads, _, _ = topology.arrays
    joins: list[tuple[int, int]] = []
    for switch in sorted(map(topology.node_index.__getitem__, topology.aggregation)):
        near = np.unique(heads[tails == switch])[:most]
        joins += [(switch, node) for node in near.tolist()]
    size = len(topology.nodes)
    ends = np.array(joins, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(size, size))
    labels = connected_components(graph, directed=False)[1]
    # A group gets the number of its first node, so groups with ranks, which come first, stay in front.
    return np.unique(np.unique(labels, return_index=True)[1][labels], return_inverse=True)[1]


def _best_partition(topology: Topology, groups: npt.NDArray[np.int64]) -> Partition | None:
    """Find the best partition that divides no group, if there is one.

    Two-way links as fast as both directions together stand for the network: what enters all parts together is then
    twice what it was, whatever the parts, as what one part takes in another one, or a balanced switch, gives out.
    """
    tails, heads, capacities, _ = topology.arrays
    links = np.sort(np.stack([groups[tails], groups[heads]]), axis=0)
    outside = links[0] != links[1]
    ends, numbers = np.unique(links[:, outside], axis=1, return_inverse=True)
    both = np.zeros(ends.shape[1], dtype=np.int64)
    np.add.at(both, numbers.ravel(), capacities[outside])
    holders = len(np.unique(groups[: topology.num_ranks]))
    if holders < 2:
        return None
    try:
        best = strength(int(groups.max()) + 1, holders, ends[0], ends[1], both)
    except CapacityOverflowError:
        return None  # the cut needs less room
    return partition(topology, best.labels[groups])
