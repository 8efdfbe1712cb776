"""Costs of expanded schedules, predicted from the cost of the schedules that are expanded.

Each function says whether its figure is exact or a bound.  All hold for schedules that bring no part of a shard back to
its source, or cost at most that otherwise, for such sends are left out.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ...errors import UnsupportedError
from ...support.validation import as_kind, as_list, as_size, shown
from ...topologies import DirectGraph, bandwidth_optimum
from ...topologies.graphs.expansions import MAX_TIMES
from ...topologies.network.direct_graph import as_direct_graph
from ..steps.cost import StepCost


def line_graph_cost_bound(graph: DirectGraph, cost: StepCost, times: int = 1) -> StepCost:
    """Bound the cost of `line_graph_schedule` from above: T_B grows by 1/N, then 1/(dN), and so on.

    Direct-connect paper, Theorem 7 and Corollary 7.1.  The bound is exact, and optimal among BFB schedules, if `cost`
    is that of the best BFB schedule for the graph, and `is_line_graph_cost_exact` holds for every graph whose line
    graph is taken.  Parameters as for `line_graph_schedule`, with the cost of the schedule for the schedule.

    Examples
    --------
    >>> triangle = DirectGraph.from_arcs(3, [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)], "K(3)")
    >>> line_graph_cost_bound(triangle, StepCost(1, Fraction(2, 3)), times=2)
    StepCost(steps=3, bandwidth_factor=Fraction(7, 6))
    """
    times = as_size(times, "times", most=MAX_TIMES)
    as_direct_graph(graph)
    as_kind(cost, StepCost, "the cost")
    added = sum((Fraction(1, graph.num_nodes * graph.degree**done) for done in range(times)), Fraction(0))
    return StepCost(cost.steps + times, cost.bandwidth_factor + added)


def is_line_graph_cost_exact(graph: DirectGraph) -> bool:
    """Return whether T_B of the best BFB schedule is known to grow by exactly 1/N in the line graph.

    It does if, from every node u, arcs lead to several nodes, and these are not all equally many hops, two or more,
    away from u.  That holds wherever all arcs have opposite ones and every node several neighbors.  Theorem 10 of the
    direct-connect paper asks only for several nodes, which is not enough: see ``docs/explanation/direct-connect.md``.
    If False, `line_graph_cost_bound` may or may not be the exact cost.  The graph has to be regular and strongly
    connected.

    Examples
    --------
    >>> septagon = DirectGraph.from_arcs(7, [(i, (i + step) % 7) for i in range(7) for step in (1, 2, 4)], "")
    >>> is_line_graph_cost_exact(septagon)
    False
    """
    if as_direct_graph(graph).degree < 1:
        return False
    heads = graph.heads.reshape(graph.num_nodes, graph.degree)
    back = graph.distances[heads, np.arange(graph.num_nodes)[:, None]]
    several = (heads != heads[:, :1]).any(axis=1)
    differ = (back != back[:, :1]).any(axis=1) | (back[:, 0] <= 1)
    return bool((several & differ).all())


def degree_expansion_cost(graph: DirectGraph, cost: StepCost, copies: int) -> StepCost:
    """Return the exact cost of `degree_expansion_schedule` (direct-connect paper, Theorem 11).

    Parameters as there, with the cost of the schedule for the schedule.

    Examples
    --------
    >>> ring = DirectGraph.from_arcs(4, [(0, 1), (1, 2), (2, 3), (3, 0)], "UniRing(1, 4)")
    >>> degree_expansion_cost(ring, StepCost(3, Fraction(3, 4)), copies=2)
    StepCost(steps=4, bandwidth_factor=Fraction(7, 8))
    """
    copies = as_size(copies, "copies")
    as_kind(cost, StepCost, "the cost")
    if as_direct_graph(graph).num_self_loops:
        raise UnsupportedError(f"{graph.name} has self-loops; degree expansion is for graphs without self-loops")
    added = Fraction(copies - 1, copies * graph.num_nodes)
    return StepCost(cost.steps + (copies > 1), cost.bandwidth_factor + added)


def cartesian_power_cost(graph: DirectGraph, cost: StepCost, n: int) -> StepCost:
    """Return the exact cost of `cartesian_power_schedule` (direct-connect paper, Theorem 12).

    Parameters as there, with the cost of the schedule for the schedule.

    Examples
    --------
    >>> ring = DirectGraph.from_arcs(4, [(0, 1), (1, 2), (2, 3), (3, 0)], "UniRing(1, 4)")
    >>> cartesian_power_cost(ring, StepCost(3, Fraction(3, 4)), n=2)
    StepCost(steps=6, bandwidth_factor=Fraction(15, 16))
    """
    n, nodes = as_size(n, "n", most=MAX_TIMES), as_direct_graph(graph).num_nodes
    as_kind(cost, StepCost, "the cost")
    factor = bandwidth_optimum(nodes**n) / bandwidth_optimum(nodes)
    return StepCost(n * cost.steps, cost.bandwidth_factor * factor)


def bidirectional_cost_bound(cost: StepCost) -> StepCost:
    """Bound the cost of `bidirectional_schedule` from above by that of the schedule that is expanded.

    Direct-connect paper, A.6, where the two halves of the schedule are taken to use different links.  The bound is
    exact if no arc of the graph has an opposite; else a new arc may share the load of an old one beside it.
    """
    as_kind(cost, StepCost, "the cost")
    return cost


def cartesian_product_cost(factors: Sequence[tuple[DirectGraph, StepCost]]) -> StepCost:
    """Return the exact cost of the best BFB schedule on a product of graphs that each have a bandwidth-optimal one.

    Direct-connect paper, Theorem 13: steps add up, and the bandwidth is optimal again.  Factors are regular, without
    self-loops and parallel arcs, each with the cost of its best BFB schedule.  Raises `UnsupportedError` if the theorem
    does not apply: a graph has self-loops or parallel arcs, or a cost is another.

    Examples
    --------
    >>> ring = DirectGraph.from_arcs(4, [(0, 1), (1, 2), (2, 3), (3, 0)], "UniRing(1, 4)")
    >>> pair = DirectGraph.from_arcs(2, [(0, 1), (1, 0)], "K(2)")
    >>> cartesian_product_cost([(ring, StepCost(3, Fraction(3, 4))), (pair, StepCost(1, Fraction(1, 2)))])
    StepCost(steps=4, bandwidth_factor=Fraction(7, 8))
    """
    nodes, pairs = 1, [_as_factor(factor) for factor in as_list(factors, "the factors", most=MAX_TIMES)]
    if not pairs:
        raise UnsupportedError("the list of factors is empty; expected at least one factor")
    for graph, cost in pairs:
        if not graph.is_simple:
            raise UnsupportedError(f"{graph.name} has self-loops or parallel arcs; Theorem 13 is for graphs without")
        if cost != (graph.diameter, bandwidth_optimum(graph.num_nodes)):
            raise UnsupportedError(
                f"the cost for {graph.name} is {cost.steps} steps and T_B = {cost.bandwidth_factor}; Theorem 13 is for "
                f"BFB schedules of {graph.diameter} steps and T_B = {bandwidth_optimum(graph.num_nodes)}"
            )
        nodes *= graph.num_nodes
    return StepCost(sum(cost.steps for _, cost in pairs), bandwidth_optimum(nodes))


def _as_factor(factor: object) -> tuple[DirectGraph, StepCost]:
    if not isinstance(factor, Sequence) or isinstance(factor, str) or len(factor) != 2:
        raise UnsupportedError(f"a factor is {shown(factor)}; expected a DirectGraph and its StepCost")
    graph, cost = factor
    return as_direct_graph(graph), as_kind(cost, StepCost, "the cost")
