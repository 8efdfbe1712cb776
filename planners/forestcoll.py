"""ForestColl: throughput-optimal spanning trees on any topology with switches.

Four steps (ForestColl section 5): the bottleneck cut gives the optimal rate ``x*`` and with it integer link
capacities and k trees per root; edge splitting removes the switches; tree packing fills the capacities; every tree
edge is mapped back to its route through the switches.  What comes out is verified before anyone sees it.
"""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import BoundError, SolverError, UnsupportedError
from ..schedules import Bound, Cut, Forest
from ..solvers.bottleneck import Bottleneck, bottleneck_cut, fixed_count_scale
from ..solvers.edge_splitting import LogicalNetwork, split_switches
from ..solvers.max_flow import check_capacities
from ..solvers.tree_packing import Packing, pack_trees
from ..topologies import Topology
from .plan import Plan

__all__ = ["bound_allgather", "plan_allgather"]

IntArray = npt.NDArray[np.int64]

MAX_TREES_PER_ROOT = 2**20


class _Pieces(NamedTuple):
    """Logical links between the same two ranks as one link, with the paths that its capacity consists of."""

    tails: IntArray
    heads: IntArray
    capacities: IntArray
    paths: list[deque[tuple[int, tuple[int, ...]]]]


def bound_allgather(topology: Topology) -> Bound:
    """Find the throughput bound of allgather with one shard of equal size per rank, and a bottleneck cut.

    ForestColl section 4, inequality (*), by Newton's method; see `collopt.solvers.bottleneck`.

    Parameters
    ----------
    topology : Topology
        Every switch must take in as much bandwidth as it gives out.

    Returns
    -------
    Bound

    Raises
    ------
    BoundError
        If some rank cannot reach another, so that no allgather exists.
    UnsupportedError
        If a switch's ingress and egress differ.
    CapacityOverflowError
        If exact arithmetic would leave int64.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> bound = bound_allgather(dgx_a100(boxes=2))
    >>> bound.inverse_rate
    Fraction(3, 65)
    """
    _check_reachable(topology)
    _check_balanced(topology)
    return _bound(topology, _bottleneck(topology))


def plan_allgather(topology: Topology, *, trees_per_root: int | None = None) -> Plan:
    """Plan an allgather whose trees together reach the throughput bound.

    Parameters
    ----------
    topology : Topology
        As for `bound_allgather`.
    trees_per_root : int, optional
        Number of trees per root, the paper's k; the smallest that reaches the bound by default.  With a given number
        the plan is the best for that number (Algorithm 5), which can be below the bound.

    Returns
    -------
    Plan
        Already verified.

    Raises
    ------
    BoundError, UnsupportedError, CapacityOverflowError
        As for `bound_allgather`; the second also if rounding capacities for `trees_per_root` leaves a switch
        unbalanced.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> plan = plan_allgather(dgx_a100(boxes=2))
    >>> plan.gap, plan.schedule.trees_per_root
    (Fraction(0, 1), 13)
    """
    _check_reachable(topology)
    _check_balanced(topology)
    best = _bottleneck(topology)
    if trees_per_root is None:
        capacities, count = _optimal_capacities(topology, best), best.capacity
    else:
        count = _checked_count(trees_per_root)
        capacities = _fixed_count_capacities(topology, count)
    forest = _forest(topology, capacities, count)
    plan = Plan(
        topology,
        "allgather",
        forest,
        _bound(topology, best),
        forest.congestion(topology),
        forest.link_loads(topology),
        "forestcoll",
        {} if trees_per_root is None else {"trees_per_root": count},
    )
    plan.verify()
    if trees_per_root is None and plan.gap != 0:
        raise SolverError(f"the plan misses its bound by {plan.gap}, which Theorems 6 and 10 rule out")
    return plan


def _check_reachable(topology: Topology) -> None:
    first = topology.compute_nodes[0]
    for towards in (False, True):
        reached, stack = {first}, [first]
        while stack:
            node = stack.pop()
            links = topology.in_links(node) if towards else topology.out_links(node)
            for link in links:
                other = link.tail if towards else link.head
                if other not in reached:
                    reached.add(other)
                    stack.append(other)
        for rank in topology.compute_nodes:
            if rank not in reached:
                source, target = (rank, first) if towards else (first, rank)
                raise BoundError(
                    f"there is no path from rank {source!r} to rank {target!r} in {topology!r}; "
                    "add links or leave ranks out"
                )


def _check_balanced(topology: Topology) -> None:
    for switch in topology.switch_nodes:
        ingress, egress = topology.ingress(switch), topology.egress(switch)
        if ingress != egress:
            raise UnsupportedError(
                f"switch {switch!r} takes in {float(ingress):g} GB/s and gives out {float(egress):g} GB/s; "
                "expected the same, since edge splitting pairs them: add the missing direction or lower the larger one"
            )


def _bottleneck(topology: Topology) -> Bottleneck:
    tails, heads, capacities, _ = topology.arrays
    ones = np.ones(topology.num_ranks, dtype=np.int64)
    return bottleneck_cut(len(topology.nodes), tails, heads, capacities, ones)


def _bound(topology: Topology, best: Bottleneck) -> Bound:
    inside = frozenset(node for node, inside in zip(topology.nodes, best.source_side, strict=True) if inside)
    return Bound(topology, "allgather", Fraction(best.supply, best.capacity) / topology.arrays.unit, Cut(inside))


def _optimal_capacities(topology: Topology, best: Bottleneck) -> IntArray:
    """Trees per link when every root has ``best.capacity``: ``U b_e`` of section 5.2 with the smallest integral U."""
    check_capacities(sum(map(int, topology.arrays.capacities)) * best.supply)
    return topology.arrays.capacities * best.supply


def _checked_count(trees_per_root: int) -> int:
    if isinstance(trees_per_root, bool) or not isinstance(trees_per_root, (int, np.integer)):
        raise UnsupportedError(f"trees_per_root is {trees_per_root!r}; expected a whole number")
    if not 1 <= trees_per_root <= MAX_TREES_PER_ROOT:
        raise UnsupportedError(f"trees_per_root is {trees_per_root}; expected 1 to {MAX_TREES_PER_ROOT}")
    return int(trees_per_root)


def _fixed_count_capacities(topology: Topology, count: int) -> IntArray:
    """``floor(U b_e)`` for the smallest U that leaves room for `count` trees per root (Algorithm 5)."""
    tails, heads, capacities, _ = topology.arrays
    ones = np.ones(topology.num_ranks, dtype=np.int64)
    scale = fixed_count_scale(len(topology.nodes), tails, heads, capacities, ones, count)
    check_capacities(sum(map(int, capacities)) * scale.numerator)
    floored = capacities * scale.numerator // scale.denominator
    surplus = np.zeros(len(topology.nodes), dtype=np.int64)
    np.add.at(surplus, heads, floored)
    np.subtract.at(surplus, tails, floored)
    for number in range(topology.num_ranks, len(topology.nodes)):
        if surplus[number]:
            raise UnsupportedError(
                f"{count} trees per root leave switch {topology.nodes[number]!r} with different capacities in and out "
                "once they are rounded; leave trees_per_root out, or make every link bidirectional"
            )
    return floored


def _forest(topology: Topology, capacities: IntArray, count: int) -> Forest:
    tails, heads = topology.arrays.tails, topology.arrays.heads
    supplies = np.full(topology.num_ranks, count, dtype=np.int64)
    pieces = _merged(split_switches(len(topology.nodes), tails, heads, capacities, supplies), topology.num_ranks)
    packing = pack_trees(topology.num_ranks, pieces.tails, pieces.heads, pieces.capacities, supplies)
    return _mapped_back(packing, pieces, count)


def _merged(logical: LogicalNetwork, num_ranks: int) -> _Pieces:
    keys, link_of = np.unique(logical.tails * num_ranks + logical.heads, return_inverse=True)
    capacities = np.zeros(len(keys), dtype=np.int64)
    np.add.at(capacities, link_of, logical.capacities)
    paths: list[deque[tuple[int, tuple[int, ...]]]] = [deque() for _ in keys]
    # Short routes first: the first trees of a packing are its lowest.
    for piece in np.argsort(np.diff(logical.path_starts), kind="stable").tolist():
        path = tuple(logical.path_nodes[logical.path_starts[piece] : logical.path_starts[piece + 1]].tolist())
        paths[link_of[piece]].append((int(logical.capacities[piece]), path))
    return _Pieces(keys // num_ranks, keys % num_ranks, capacities, paths)


def _mapped_back(packing: Packing, pieces: _Pieces, count: int) -> Forest:
    """Give every tree edge a route, cutting a tree's copies into groups that take the same routes everywhere."""
    trees: list[tuple[int, int, list[tuple[int, ...]]]] = []
    for root, weight, links in zip(packing.roots.tolist(), packing.weights.tolist(), packing.links, strict=True):
        sources = [pieces.paths[link] for link in links[links >= 0]]
        missing = weight
        while missing:
            copies = min(missing, *(source[0][0] for source in sources))
            trees.append((root, copies, [source[0][1] for source in sources]))
            for source in sources:
                units, path = source.popleft()
                if units > copies:
                    source.appendleft((units - copies, path))
            missing -= copies
    return Forest.from_paths(len(packing.links[0]), count, trees)
