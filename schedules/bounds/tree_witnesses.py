"""Witnesses where switches copy and add: dual values of Steiner tree packings, and partitions.

Dual values are checked by dynamic programming over sets of ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ...errors import CertificateError
from ...support.arrays import BoolArray, IntArray, components
from ...support.formatting import exact, rate_text
from ...topologies import Topology
from ..collective import ALLREDUCE, AnyCollective, Collective, Direction, as_collective
from .cuts import Partition, total_data
from .witness import EVERY_SCHEDULE, Argument, Crossing, Pair, RootedDuals, data_text, value_by_link

MAX_RANKS = 12  # the check takes time and memory in proportion to 3^ranks
INT64_LIMIT = 2**62

Costs = npt.NDArray[Any]  # whole numbers: int64, or Python's where those have no room


@dataclass(frozen=True)
class TreeDual(RootedDuals):
    """Dual values of links: no tree costs less than the cheapest one.

    A tree spans all ranks and branches at ranks and, in a broadcast, at switches that multicast, in a reduction at
    those that aggregate.  It costs the dual values y of the links on its paths, and of the links over which a switch
    with loopback sends a copy back.  ``1 / x`` is at least the cost of the cheapest trees over ``sum of b y``: ``sum of
    w(v) cost(v)`` over all roots v and, in an allreduce, all data times the least sum of an in-tree and an out-tree of
    the same root.  This is weak duality for the program of `collopt.formulations.steiner`.  The cheapest trees are
    found by the algorithm of Dreyfus and Wagner (The Steiner problem in graphs, Networks 1, 1971) on directed links.

    Attributes
    ----------
    links : tuple of LinkValue
        y; links without a dual value are free.
    """

    field: ClassVar[str] = "tree_dual"

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless the dual values fit the topology, which is small enough to check them."""
        value_by_link(self.links, {(link.tail, link.head) for link in topology.links}, "link")
        if topology.num_ranks > MAX_RANKS:
            raise CertificateError(
                f"the cheapest tree is not computed for {topology.num_ranks} ranks; expected at most {MAX_RANKS}"
            )

    def dual_reasons(self, links: str, amount: str, collective: Collective) -> tuple[str, ...]:  # noqa: ARG002
        """Name the trees that the bound is about, and the use of the cheapest."""
        return (
            f"Assign the dual values below to the bandwidth of {links}, and 0 to all others.",
            "The bound is about trees that branch at ranks and at switches that multicast or aggregate.",
            f"The cheapest of these use bandwidth worth {amount} per unit of rate.",
        )

    def scope(self, collective: AnyCollective) -> str:  # noqa: ARG002
        """Say which schedules the bound is about."""
        return "schedules made of trees that branch at ranks and at switches that multicast or reduce"

    def uses(self, topology: Topology, direction: Direction) -> list[Fraction | None]:
        """Cost of the cheapest tree of each root, None if there is none."""
        scale = lcm(*(dual.denominator for _, _, dual in self.links))
        total = {(tail, head): int(dual * scale) for tail, head, dual in self.links}
        outwards = {(link.tail, link.head): total.get((link.tail, link.head), 0) for link in topology.links}
        if direction == "reduce":
            outwards = {(head, tail): cost for (tail, head), cost in outwards.items()}
        branching = sorted(topology.multicast if direction == "broadcast" else topology.aggregation)
        # More than any tree costs, which takes each of its paths once there and at most once back.
        never = 2 * (topology.num_ranks + len(branching)) * sum(outwards.values()) + 1
        costs = _tree_costs(_vertex_costs(topology, branching, outwards, never), topology.num_ranks, never)
        return [None if cost >= never else Fraction(int(cost), scale) for cost in costs.tolist()]


def _vertex_costs(topology: Topology, branching: Sequence[str], outwards: Mapping[Pair, int], never: int) -> Costs:
    """Cost of the cheapest path past switches between vertices, ranks and switches that branch; `never` for none.

    A switch with loopback takes the path from a rank in both directions.
    """
    there = _past_switches(topology, outwards, never)
    opposites = {(head, tail): cost for (tail, head), cost in outwards.items()}
    pairs = {pair: cost + opposites[pair] for pair, cost in outwards.items() if pair in opposites}
    both = _past_switches(topology, pairs, never)
    vertices = [topology.node_index[node] for node in (*topology.compute_nodes, *branching)]
    costs = there[np.ix_(vertices, vertices)]
    for place, switch in enumerate(branching, start=topology.num_ranks):
        if switch in topology.loopback:
            costs[: topology.num_ranks, place] = both[: topology.num_ranks, topology.node_index[switch]]
    return costs


def _past_switches(topology: Topology, lengths: Mapping[Pair, int], never: int) -> Costs:
    """Shortest paths between all nodes with only switches in between, by the algorithm of Floyd and Warshall."""
    size = len(topology.nodes)
    shortest = np.full((size, size), never, dtype=np.int64 if 4 * never < INT64_LIMIT else object)
    for (tail, head), length in lengths.items():
        shortest[topology.node_index[tail], topology.node_index[head]] = length
    for switch in range(topology.num_ranks, size):
        shortest = np.minimum(shortest, shortest[:, switch, None] + shortest[None, switch])
    limited: Costs = np.minimum(shortest, never)
    return limited


def _tree_costs(costs: Costs, num_ranks: int, never: int) -> Costs:
    """Cost of the cheapest tree of each rank that reaches all ranks, by the algorithm of Dreyfus and Wagner."""
    size = len(costs)
    np.fill_diagonal(costs, 0)
    for middle in range(size):
        costs = np.minimum(costs, costs[:, middle, None] + costs[None, middle])
    cheapest = np.full((2**num_ranks, size), never, dtype=costs.dtype)
    cheapest[0] = 0
    sets = np.arange(2**num_ranks)
    for covered in range(1, 2**num_ranks):
        first = covered & -covered
        remainder = sets[: covered - first][(sets[: covered - first] & ~(covered - first)) == 0]
        here = cheapest[covered].copy()
        if len(remainder):
            here = (cheapest[remainder + first] + cheapest[covered - first - remainder]).min(axis=0)
        for rank in range(num_ranks):
            if covered >> rank & 1:
                here[rank] = cheapest[covered - (1 << rank), rank]
        cheapest[covered] = np.minimum((costs + here).min(axis=1), never)
    best: Costs = cheapest[-1, :num_ranks]
    return best


@dataclass(frozen=True)
class TreePartition(Partition):
    """A partition whose parts without ranks may hold switches that multicast and aggregate.

    *Allreduce by trees*: with p parts that hold ranks, the hops of one tree leave and enter them ``2 (p - 1)`` times,
    if they branch at no switch outside.  Switches in the other parts form components; one that is next to D of the p
    parts, and that can branch the tree, saves at most ``D - 2`` of these crossings.  It saves ``D - 3`` if all its
    switches loop back the copy of the rank above, and none of the D parts holds such a switch, which could be above
    instead. ``docs/explanation/in-network.md`` has the proof.
    """

    field: ClassVar[str] = "tree_partition"
    title: ClassVar[str] = "Partition for trees"
    subject: ClassVar[str] = "Reduce trees and broadcast trees"

    def crossing(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Add up the links that leave or enter parts with ranks, see `Witness.crossing`."""
        if (collective := as_collective(collective)) is not ALLREDUCE:
            raise CertificateError(f"a partition does not bound {collective.name!r}")
        parts = self._numbered(topology)
        count = int(parts.max()) + 1
        saved = _saved(topology, parts, topology.multicast) + _saved(topology, parts, topology.aggregation)
        tails, heads, capacities, unit = topology.arrays
        crosses = parts[tails] != parts[heads]
        leaving, entering = crosses & (parts[tails] >= 0), crosses & (parts[heads] >= 0)
        bandwidth = int(capacities[leaving].sum()) + int(capacities[entering].sum())
        return Crossing((4 * (count - 1) - saved) * total_data(topology, weights), bandwidth * unit)

    def scope(self, collective: AnyCollective) -> str:  # noqa: ARG002
        """Say which schedules the bound is about."""
        return "allreduces by trees"

    def reason(self, topology: Topology, collective: AnyCollective) -> str:
        """State the number of parts, and the data that crosses their borders."""
        amount, bandwidth = self.crossing(topology, collective)
        ratio = f"{exact(bandwidth, 'GB/s')}, carrying {exact(amount / topology.num_ranks)} times all data"
        return f"ingress and egress of p = {len(self._parties(topology))} parts: {ratio}"

    def link_weights(self, topology: Topology, collective: AnyCollective) -> dict[Pair, Fraction]:  # noqa: ARG002
        """Weight 1 for every link between a part with ranks and one without, 2 between two with ranks."""
        parts = self._numbered(topology)
        tails, heads, _, _ = topology.arrays
        ends = np.where(parts[tails] != parts[heads], (parts[tails] >= 0).astype(int) + (parts[heads] >= 0), 0)
        pairs = ((link.tail, link.head) for link in topology.links)
        return {pair: Fraction(count) for pair, count in zip(pairs, ends.tolist(), strict=True) if count}

    def argument(self, topology: Topology, collective: Collective, weights: tuple[int, ...], links: str) -> Argument:
        """Argue by the borders of the parts, less the crossings that switches save."""
        amount, bandwidth = self.crossing(topology, collective, weights)
        parts = len(self._parties(topology))
        crossings = f"{self.subject} leave and enter these parts {4 * (parts - 1)} times"
        units = data_text(amount, topology, collective, weights)
        reasons = (
            f"Partition the network; p = {parts} parts contain ranks.",
            f"{crossings}, less what switches outside of them save: {units}.",
            f"The parts give out and take in {rate_text(bandwidth)} together, over {links}.",
        )
        return Argument(self.title, reasons, "ingress and egress of the parts with ranks")

    def _check_idle(self, topology: Topology, parties: list[frozenset[str]]) -> None:
        """Accept switches that reduce outside of parts with ranks; `crossing` counts the crossings that they save."""


@dataclass(frozen=True, repr=False)
class LoopbackPartition(TreePartition):
    """A `TreePartition` that bounds every allreduce, since switches outside of parts with ranks loop back.

    Such a switch sends on what one rank hands it, copies that, or adds up what several do and hands the sum to one
    rank.  If it is alone in its component, and links lead from that to ranks only, then whatever operations there are
    cross the borders of the parts as often as trees.  ``docs/explanation/in-network.md`` has the proof.
    """

    field: ClassVar[str] = "loopback_partition"
    title: ClassVar[str] = "Partition around switches"
    subject: ClassVar[str] = "Without network coding, the messages that add up and spread a byte"

    def scope(self, collective: AnyCollective) -> str:  # noqa: ARG002
        """Say which schedules the bound is about."""
        return EVERY_SCHEDULE

    def _check_idle(self, topology: Topology, parties: list[frozenset[str]]) -> None:
        """Refuse switches outside of the parts with ranks that do not loop back, or not to a rank."""
        idle_switches = (topology.multicast | topology.aggregation).difference(*parties)
        if plain := idle_switches - topology.loopback:
            raise CertificateError(
                f"the bound's partition has {min(plain)!r}, which does not loop back, in a part without ranks"
            )
        parts, nodes = self._numbered(topology), topology.nodes
        labels = _idle_components(topology, parts)
        own, counts = np.unique(labels[_mask(topology, idle_switches)], return_counts=True)
        tails, heads, _, _ = topology.arrays
        # A relay would hand on data of a rank that is not looped back to that.
        foreign = (parts >= 0) & (np.arange(len(nodes)) >= topology.num_ranks) | _mask(topology, topology.relays)
        for here, there in ((tails, heads), (heads, tails)):
            adjacent_links = (parts[here] < 0) & foreign[there] & np.isin(labels[here], own)
            if adjacent_links.any() or counts.max(initial=1) > 1:
                what = nodes[there[adjacent_links.argmax()]] if adjacent_links.any() else min(idle_switches)
                raise CertificateError(
                    f"the bound's partition has switch or relay {what!r} next to one that copies or adds"
                )


def _saved(topology: Topology, parts: IntArray, branching: frozenset[str]) -> int:
    """Crossings that switches of no part save in a tree at most, where those in `branching` branch it."""
    tails, heads, _, _ = topology.arrays
    idle = parts < 0
    size = len(parts)
    labels = _idle_components(topology, parts)
    branches = _mask(topology, branching) & idle
    full_branches = branches & ~_mask(topology, topology.loopback)
    saved = 0
    border = [(labels[tails], parts[heads], idle[tails] & ~idle[heads])]
    border += [(labels[heads], parts[tails], idle[heads] & ~idle[tails])]
    near = np.unique(np.hstack([np.stack([label[here], part[here]]) for label, part, here in border]), axis=1)
    counts = np.bincount(near[0], minlength=size)
    # A switch in a part may be above one outside, which then loops nothing back to any rank.
    hidden = np.isin(near[1], np.unique(parts[_mask(topology, branching) & ~idle]))
    above = np.bincount(near[0][hidden], minlength=size)
    for label in np.unique(labels[branches]).tolist():
        looped = not full_branches[labels == label].any() and not above[label]
        saved += max(0, int(counts[label]) - 2 - looped)
    return saved


def _idle_components(topology: Topology, parts: IntArray) -> IntArray:
    """Number the components of the nodes in no part with ranks; int64 (nodes,)."""
    tails, heads, _, _ = topology.arrays
    inner = (parts[tails] < 0) & (parts[heads] < 0)
    return components(len(parts), np.column_stack((tails[inner], heads[inner])))


def _mask(topology: Topology, names: frozenset[str]) -> BoolArray:
    mask = np.zeros(len(topology.nodes), dtype=np.bool_)
    mask[[topology.node_index[name] for name in names]] = True
    return mask
