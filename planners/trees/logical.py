"""Logical topology: the ranks and links that edge splitting leaves (ForestColl, sections 5.3, E.2; figures 7, 16)."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...errors import SolverError, UnsupportedError
from ...schedules import Bound
from ...solvers.flows.bottleneck import Bottleneck
from ...solvers.flows.max_flow import check_capacities
from ...solvers.trees.routed_graph import RoutedGraph
from ...solvers.trees.switch_removal import RemoveAll, remove_all_switches, remove_switches, split_all_switches
from ...solvers.trees.tight_sets import LaminarFamily, tight_family
from ...support.arrays import IntArray
from ...support.validation import as_kind
from ...topologies import Topology
from .forest import bottleneck
from .problem import TreeProblem, check_request, tree_problem

Pair = tuple[str, str]


class Split(NamedTuple):
    """Units of the links ``tail -> switch`` and ``switch -> head`` that a link ``tail -> head`` replaces.

    Attributes
    ----------
    switch, tail, head : str
        Nodes; the last two may be switches that later splits remove.
    units : int
        Trees.
    """

    switch: str
    tail: str
    head: str
    units: int


class Route(NamedTuple):
    """A way through the network's switches, both ends included, and the units of a logical link that take it.

    Attributes
    ----------
    path : tuple of str
        Nodes, from rank to rank.
    units : int
        Trees.
    """

    path: tuple[str, ...]
    units: int


@dataclass(frozen=True)
class LogicalTopology:
    """Ranks and the links between them that take the place of switches: ``G*`` of ForestColl.

    A unit is what one tree uses of a link, so a link of three units is in at most three trees.

    Attributes
    ----------
    topology : Topology
        The logical links, without latencies; its bound is that of the network.
    unit : Fraction
        Bandwidth of one tree, GB/s.
    splits : tuple of Split
        In the order of their making; later ones may take a link that an earlier one made.
    routes : mapping from pair of str to tuple of Route
        Ways of each logical link, by its tail and head.  All together fit the bandwidth of the network's links.
    """

    topology: Topology
    unit: Fraction
    splits: tuple[Split, ...]
    routes: Mapping[Pair, tuple[Route, ...]]

    @cached_property
    def multiplicities(self) -> dict[Pair, int]:
        """Units of each logical link, by its tail and head."""
        return {pair: sum(route.units for route in routes) for pair, routes in self.routes.items()}


def logical_topology(bound: Bound) -> LogicalTopology:
    """Replace the switches of a bound's network by links between ranks at which the same bound holds.

    Of the many ways to do so, this is the one that a plan of ``forestcoll`` would take of untrimmed links.

    Parameters
    ----------
    bound : Bound
        Of an allgather, a reduce-scatter, a broadcast or a reduce.

    Examples
    --------
    >>> from collopt import bound, topologies
    >>> logical = logical_topology(bound(topologies.dgx_h100(), "allgather"))
    >>> logical.splits[0]
    Split(switch='box0/nvswitch', tail='box0/gpu1', head='box0/gpu0', units=1)
    >>> logical.topology.num_links, logical.unit
    (56, Fraction(450, 7))
    """
    bound = as_kind(bound, Bound, "the bound")
    collective = check_request(bound.topology, bound.collective)
    if collective.has_two_phases:
        raise UnsupportedError(f"{collective} has two phases; expected a bound of reduce_scatter or of allgather")
    problem = tree_problem(bound.topology, collective.phases[0], bound.weights)
    best = bottleneck(problem)
    capacities, supplies = problem.capacities * best.supply, problem.root_weights * best.capacity
    check_capacities(sum(map(int, problem.capacities)) * best.supply, int(supplies.sum()))
    trivial = LaminarFamily(np.array([-1]), np.zeros(problem.num_nodes, dtype=np.int64))
    tight = tight_family(problem.num_nodes, problem.tails, problem.heads, capacities, supplies, [])
    # The first is fast and may miss a cut; the second is exact.
    ways: tuple[tuple[LaminarFamily, RemoveAll], ...] = ((tight, remove_all_switches), (trivial, split_all_switches))
    for family, remove in ways:
        graph = RoutedGraph(problem.num_nodes, problem.tails, problem.heads, capacities)
        remove_switches(graph, supplies, family, remove)
        logical = _described(graph, problem, best)
        left = bottleneck(tree_problem(logical.topology, problem.direction, bound.weights))
        if Fraction(left.supply, left.capacity) / logical.topology.arrays.unit == 1 / (logical.unit * best.capacity):
            return logical
    raise SolverError("edge splitting changed the bottleneck, which Theorem 6 rules out")


def _described(graph: RoutedGraph, problem: TreeProblem, best: Bottleneck) -> LogicalTopology:
    """Put names to a graph without switches."""
    names = problem.topology.nodes
    forwards = 1 if problem.direction == "broadcast" else -1
    alive = graph.alive()
    starts, nodes = graph.routes(alive)
    routes: dict[Pair, list[Route]] = {}
    for place, units in enumerate(graph.units[alive].tolist()):
        path = tuple(names[node] for node in nodes[starts[place] : starts[place + 1]][::forwards])
        routes.setdefault((path[0], path[-1]), []).append(Route(path, units))
    unit = problem.topology.arrays.unit / best.supply
    rows = [(*pair, sum(route.units for route in ways) * unit) for pair, ways in routes.items()]
    compute = problem.topology.compute_nodes
    logical = Topology.from_links(rows, compute=compute, name=f"{problem.topology.name} without switches")
    return LogicalTopology(
        logical, unit, _splits(graph, names, forwards), {pair: tuple(ways) for pair, ways in routes.items()}
    )


def _splits(graph: RoutedGraph, names: tuple[str, ...], forwards: int) -> tuple[Split, ...]:
    """List the joints of links that are left: of each with the units that pass it in the end."""
    units: IntArray = graph.units.copy()
    joined = np.flatnonzero(graph.before >= 0).tolist()
    for link in reversed(joined):
        units[[graph.before[link], graph.after[link]]] += units[link]
    splits = []
    for link in joined:
        tail, head = (names[graph.tails[link]], names[graph.heads[link]])[::forwards]
        if units[link]:
            splits.append(Split(names[graph.heads[graph.before[link]]], tail, head, int(units[link])))
    return tuple(splits)
