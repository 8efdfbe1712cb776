"""What the theorems of the direct-connect paper say that expanded schedules cost, given the cost of the old ones."""

from fractions import Fraction

import numpy as np

from collopt.schedules import StepCost
from collopt.topologies import DirectGraph, bandwidth_optimum


def line_graph_cost_bound(graph: DirectGraph, cost: StepCost, times: int = 1) -> StepCost:
    """Theorem 7 and Corollary 7.1: T_B grows by at most 1/N, then 1/(dN), and so on."""
    added = sum((Fraction(1, graph.num_nodes * graph.degree**done) for done in range(times)), Fraction(0))
    return StepCost(cost.steps + times, cost.bandwidth_factor + added)


def is_line_graph_cost_exact(graph: DirectGraph) -> bool:
    """Whether T_B of the best BFB schedule is known to grow by exactly 1/N: ``docs/explanation/direct-connect.md``.

    From every node arcs lead to several nodes, and these are not all equally many hops, two or more, away from it.
    """
    heads = graph.heads.reshape(graph.num_nodes, graph.degree)
    back = graph.distances[heads, np.arange(graph.num_nodes)[:, None]]
    several = (heads != heads[:, :1]).any(axis=1)
    differ = (back != back[:, :1]).any(axis=1) | (back[:, 0] <= 1)
    return bool((several & differ).all())


def degree_expansion_cost(graph: DirectGraph, cost: StepCost, copies: int) -> StepCost:
    """Theorem 11."""
    added = Fraction(copies - 1, copies * graph.num_nodes)
    return StepCost(cost.steps + (copies > 1), cost.bandwidth_factor + added)


def cartesian_power_cost(graph: DirectGraph, cost: StepCost, n: int) -> StepCost:
    """Theorem 12."""
    factor = bandwidth_optimum(graph.num_nodes**n) / bandwidth_optimum(graph.num_nodes)
    return StepCost(n * cost.steps, cost.bandwidth_factor * factor)
