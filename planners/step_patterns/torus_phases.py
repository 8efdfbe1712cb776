"""The bucket algorithm: rings along one dimension of a torus after the other, both ways and in all orders.

An allgather runs along the rings of the first dimension, then along those of the second with what these collected, and
so on; a reduce-scatter is its reverse (Jain and Sabharwal, ICS 2010; Sack and Gropp, PPoPP 2012).  On a torus of D
dimensions 2D such collectives run at the same time, for each dimension to begin with and each way round, with
``1 / 2D`` of the data each, so that all ports are busy; see docs/explanation/algorithms.md.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from ...schedules import StepSchedule
from ...schedules.traffic.collective import AnyCollective
from ...topologies import Topology
from ..plans.plan import Plan
from ..trees.problem import TreeProblem
from .movements import Move, Pattern, spread
from .step_plans import plan_in_steps, schedule_along
from .torus_shapes import Torus, needed_torus

PLANNER = "torus-2-phase"


def plan_torus_phases(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan in steps with rings along one dimension of a torus after the other."""
    return plan_in_steps(topology, collective, PLANNER, _rings)


def _rings(problem: TreeProblem) -> StepSchedule:
    torus = needed_torus(problem.topology, PLANNER)
    patterns = [_pattern(torus, axis, side) for axis, side in product(range(len(torus.shape)), (1, -1))]
    chunks, sends = spread(torus, patterns, relays=False)
    return schedule_along(problem, chunks, sends, torus)


def _pattern(torus: Torus, first: int, side: int) -> Pattern:
    """The steps of one collective: all those of a dimension, then those of the next."""
    turns = [(axis + first) % len(torus.shape) for axis in range(len(torus.shape))]
    signs = np.full(len(torus.ranks), side)
    return [[Move(axis, 1, signs)] for axis in turns for _ in range(torus.shape[axis] - 1)]
