"""Link loads with in-network multicast and aggregation (ForestColl section 5.6).

In one tree all data is the same.  Once a switch that can multicast has it, a path that passes the switch can begin
there; likewise with switches that can aggregate when data runs towards the root.  The throughput stays what it was,
since every rank still receives every shard over its own links; what becomes less is the traffic on the way.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ...errors import CertificateError, UnsupportedError
from ...support.arrays import IntArray, read_only
from ...support.validation import shown
from ...topologies import Topology
from .forest import Forest


@dataclass(frozen=True, eq=False)
class InNetwork:
    """A forest whose paths may start at switches that already have the data.

    Attributes
    ----------
    forest : Forest
    topology : Topology
    skipped : ndarray of int64, shape (trees, num_ranks)
        How many of the first hops of each path are left out.
    """

    forest: Forest
    topology: Topology
    skipped: IntArray

    @property
    def link_loads(self) -> IntArray:
        """Copies of trees on each link, in the order of ``topology.links``."""
        index = {(link.tail, link.head): number for number, link in enumerate(self.topology.links)}
        names = self.topology.nodes
        loads = np.zeros(len(index), dtype=np.int64)
        for tree, weight in enumerate(self.forest.weights.tolist()):
            for tail, head in self._hops(tree):
                ends = (names[tail], names[head])
                loads[index[ends if self.forest.direction == "broadcast" else ends[::-1]]] += weight
        return loads

    @property
    def saving(self) -> Fraction:
        """Share of all traffic, added up over links, that is left out."""
        before = int(self.forest.link_loads(self.topology).sum())
        return 1 - Fraction(int(self.link_loads.sum()), before)

    def verify(self) -> None:
        """Check that every rank still receives each tree's data once, and that only able switches copy.

        Raises `CertificateError` naming the tree and the node where it fails.
        """
        able = _able(self.forest, self.topology)
        for tree, root in enumerate(self.forest.roots.tolist()):
            hops = self._hops(tree)
            into, out = Counter(head for _, head in hops), Counter(tail for tail, _ in hops)
            reached, frontier = {root}, [root]
            while frontier:
                node = frontier.pop()
                fresh = {head for tail, head in hops if tail == node} - reached
                reached |= fresh
                frontier += fresh
            for node in range(len(self.topology.nodes)):
                rank = node < self.topology.num_ranks
                wrong = into[node] != (node != root) if rank else node not in able and into[node] != out[node]
                if wrong or ((rank or out[node]) and node not in reached):
                    raise CertificateError(
                        f"tree {tree} with in-network multicast fails at {self.topology.nodes[node]!r}"
                    )

    def _hops(self, tree: int) -> list[tuple[int, int]]:
        hops = []
        for rank, route in enumerate(self.forest.routes[tree].tolist()):
            if route >= 0:
                hops += list(pairwise(self.forest.path(route)))[self.skipped[tree, rank] :]
        return hops


def in_network(forest: Forest, topology: Topology) -> InNetwork:
    """Remove traffic that switches with multicast (or aggregation, for reduce trees) make redundant.

    Parameters
    ----------
    forest : Forest
        Left alone.
    topology : Topology
        Its `multicast` and `aggregation` say which switches support it.

    Returns
    -------
    InNetwork

    Examples
    --------
    Two leaves behind one switch receive from the same root; the second copy starts at the switch:

    >>> links = [(rank, "sw", 1) for rank in "abc"]
    >>> topology = Topology.from_links(links, compute="abc", switches=["sw"], bidirectional=True, multicast=["sw"])
    >>> trees = [(root, 1, [(root, 3, rank) for rank in range(3) if rank != root]) for root in range(3)]
    >>> pruned = in_network(Forest.from_paths(3, 1, trees), topology)
    >>> pruned.verify()
    >>> pruned.saving
    Fraction(1, 4)
    """
    if not isinstance(forest, Forest):
        raise UnsupportedError(
            f"the forest is {shown(forest)}; expected a Forest, such as one of plan.schedule.forests"
        )
    able = _able(forest, topology)
    skipped = np.zeros(forest.routes.shape, dtype=np.int64)
    if able:
        for tree in range(forest.num_trees):
            supplied: set[int] = set()
            for edge in forest.edges(tree):
                known = [place for place, node in enumerate(edge.path) if node in supplied]
                skipped[tree, edge.head] = known[-1] if known else 0
                supplied |= able & set(edge.path[skipped[tree, edge.head] :])
    return InNetwork(forest, topology, read_only(skipped))


def _able(forest: Forest, topology: Topology) -> frozenset[int]:
    names = topology.multicast if forest.direction == "broadcast" else topology.aggregation
    return frozenset(topology.node_index[name] for name in names)
