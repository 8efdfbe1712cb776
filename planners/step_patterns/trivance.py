"""Trivance: exchanges with both neighbors at distances 1, 3, 9, ... (Jürß, Addanki and Schmid, 2026, arXiv 2602.17254).

In step j of a reduce-scatter, a rank exchanges with the ranks at distance ``3^j`` on both sides: ``ceil(log3 n)`` steps
on n ranks.  The last distance is ``ceil((n - 3^(k-1)) / 2)`` with k steps, which reaches all ranks if n is no power of
three; what both sides could bring then comes from each by half.  An allgather takes the steps in reverse order.  On a
torus of D dimensions there are D such collectives at the same time, each of which begins with another dimension.  What
they take is in docs/explanation/algorithms.md.
"""

from __future__ import annotations

import numpy as np

from ...schedules import StepSchedule
from ...schedules.traffic.collective import AnyCollective
from ...topologies import Topology
from ..plans.plan import Plan
from ..trees.problem import TreeProblem
from .movements import Move, Pattern, spread
from .step_plans import plan_in_steps, schedule_along
from .torus_shapes import Torus, grid_of


def plan_trivance(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan with Trivance on a torus, with or without routers, or on ranks joined by switches, which are then one ring.

    Where ranks are linked themselves and pass messages on, there is one step for each link that these pass.
    """
    return plan_in_steps(topology, collective, "trivance", _exchanges)


def _exchanges(problem: TreeProblem) -> StepSchedule:
    torus = grid_of(problem.topology, "trivance")
    patterns = [_pattern(torus, axis) for axis in range(len(torus.shape))]
    chunks, sends = spread(torus, patterns, not problem.topology.switch_nodes)
    return schedule_along(problem, chunks, sends, torus)


def _pattern(torus: Torus, first: int) -> Pattern:
    """The exchanges of one collective, the dimensions in turn."""
    distances = [_distances(size) for size in torus.shape]
    turns = [(axis + first) % len(torus.shape) for axis in range(len(torus.shape))]
    rounds = [
        (axis, distances[axis][step])
        for step in range(max(map(len, distances)))
        for axis in turns
        if step < len(distances[axis])
    ]
    ahead = np.ones(len(torus.ranks), dtype=np.int64)
    return [
        [Move(axis, distance, ahead * side) for side in ((1, -1) if torus.shape[axis] > 2 else (1,))]
        for axis, distance in reversed(rounds)
    ]


def _distances(size: int) -> list[int]:
    """Distances of a reduce-scatter on a ring."""
    found = [1]
    while 3 ** len(found) < size:
        found.append(3 ** len(found))
    found[-1] = -((found[-1] - size) // 2)
    return found
