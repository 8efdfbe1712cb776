"""Dual values of a Steiner tree packing as a witness, checked by dynamic programming over sets of ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ...errors import CertificateError
from ...topologies import Topology
from ..traffic.collective import AnyCollective, Direction
from .witness import Pair, RootedDuals, value_by_link

MAX_RANKS = 12  # the check takes time and memory in proportion to 3^ranks
INT64_LIMIT = 2**62

Costs = npt.NDArray[Any]  # whole numbers: int64, or Python's where those have no room


@dataclass(frozen=True)
class TreeDual(RootedDuals):
    """Dual values of links: every tree costs at least what the cheapest one costs.

    A tree spans all ranks and branches at ranks and, in a broadcast, at switches that multicast, in a reduction at
    those that aggregate.  It costs the dual values y of the links on its paths, and of the links over which a switch
    with loopback sends a copy back.  All links together are worth ``sum of b y``; ``1 / x`` is at least the cost of
    the cheapest trees over that: ``sum of w(v) cost(v)`` over all roots v and, in an allreduce, all data times the
    least sum of an in-tree and an out-tree of the same root.

    Attributes
    ----------
    links : tuple of LinkValue
        y; links without a dual value are free.

    Notes
    -----
    This is weak duality for the program of `collopt.formulations.steiner`, whose dual values make the bound the
    optimum.  Any others prove a bound too.  The cheapest trees are found by the algorithm of Dreyfus and Wagner (The
    Steiner problem in graphs, Networks 1, 1971) on directed links.

    Examples
    --------
    Three ranks around a switch that adds and copies: every tree takes a link of each rank, either way.

    >>> from collopt.schedules import LinkValue
    >>> star = Topology.from_links(
    ...     [(rank, "s", 30) for rank in "abc"],
    ...     compute="abc",
    ...     switches="s",
    ...     bidirectional=True,
    ...     multicast="s",
    ...     aggregation="s",
    ... )
    >>> duals = TreeDual(tuple(LinkValue(link.tail, link.head, Fraction(1)) for link in star.links))
    >>> duals.verify(star, "allreduce")
    Crossing(amount=Fraction(18, 1), bandwidth=Fraction(180, 1))
    """

    field: ClassVar[str] = "tree_dual"

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless the dual values fit the topology, which is small enough to check them."""
        value_by_link(self.links, {(link.tail, link.head) for link in topology.links}, "link")
        if topology.num_ranks > MAX_RANKS:
            raise CertificateError(
                f"the cheapest tree is not computed for {topology.num_ranks} ranks; expected at most {MAX_RANKS}"
            )

    def scope(self, collective: AnyCollective) -> str:  # noqa: ARG002
        """Say which schedules the bound is about."""
        return "schedules made of trees that branch at ranks and at able switches"

    def uses(self, topology: Topology, direction: Direction) -> list[Fraction | None]:
        """Cost of the cheapest tree of each root, None if there is none."""
        scale = lcm(*(dual.denominator for _, _, dual in self.links))
        whole = {(tail, head): int(dual * scale) for tail, head, dual in self.links}
        outwards = {(link.tail, link.head): whole.get((link.tail, link.head), 0) for link in topology.links}
        if direction == "reduce":
            outwards = {(head, tail): cost for (tail, head), cost in outwards.items()}
        able = sorted(topology.multicast if direction == "broadcast" else topology.aggregation)
        # More than any tree costs, which takes each of its paths once there and at most once back.
        never = 2 * (topology.num_ranks + len(able)) * sum(outwards.values()) + 1
        costs = _tree_costs(_vertex_costs(topology, able, outwards, never), topology.num_ranks, never)
        return [None if cost >= never else Fraction(int(cost), scale) for cost in costs.tolist()]


def _vertex_costs(topology: Topology, able: Sequence[str], outwards: Mapping[Pair, int], never: int) -> Costs:
    """Cost of the cheapest path past switches between vertices, ranks and able switches; `never` for none.

    A switch with loopback takes the path from a rank in both directions.
    """
    there = _past_switches(topology, outwards, never)
    opposites = {(head, tail): cost for (tail, head), cost in outwards.items()}
    pairs = {pair: cost + opposites[pair] for pair, cost in outwards.items() if pair in opposites}
    both = _past_switches(topology, pairs, never)
    vertices = [topology.node_index[node] for node in (*topology.compute_nodes, *able)]
    costs = there[np.ix_(vertices, vertices)]
    for place, switch in enumerate(able, start=topology.num_ranks):
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
        others = sets[: covered - first][(sets[: covered - first] & ~(covered - first)) == 0]
        here = cheapest[covered].copy()
        if len(others):
            here = (cheapest[others + first] + cheapest[covered - first - others]).min(axis=0)
        for rank in range(num_ranks):
            if covered >> rank & 1:
                here[rank] = cheapest[covered - (1 << rank), rank]
        cheapest[covered] = np.minimum((costs + here).min(axis=1), never)
    best: Costs = cheapest[-1, :num_ranks]
    return best
