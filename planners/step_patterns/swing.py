"""Swing and Bine trees: exchanges at distances 1, 1, 3, 5, 11, ..., to and fro; see docs/explanation/algorithms.md.

In step s of a reduce-scatter in a ring, rank r exchanges with rank r + rho(s) if r is even, and r - rho(s) if it is
odd, where ``rho(s) = 1 - 2 + 4 - ... = (1 - (-2)^(s+1)) / 3``; an allgather takes the steps in reverse order.  Swing
(De Sensi, Bonato, Saam and Hoefler, NSDI 2024, arXiv 2401.09356) does so on a torus of D dimensions, one after the
other in turn, by 2D such collectives at the same time: each begins with another dimension, D of them mirrored.  Bine
trees (De Sensi et al., SC 2025, arXiv 2508.17311) are the trees that the shards of these exchanges follow.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Forest, StepSchedule
from ...schedules.traffic.collective import AnyCollective, as_collective
from ...topologies import Topology
from ..patterns.fixed_pattern import plan_baseline
from ..plans.plan import Plan
from ..trees.problem import TreeProblem
from .movements import Move, Pattern, spread
from .step_plans import plan_in_steps, schedule_along
from .torus_shapes import Torus, grid_of


def plan_swing(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan with Swing: on a torus of even sizes with all ports of the ranks, on evenly many ranks at switches with one.

    Where ranks are linked themselves and pass messages on, there is one step for each link that these pass.
    """
    return plan_in_steps(topology, collective, "swing", lambda problem: _exchanges(problem, "swing"))


def plan_bine(topology: Topology, collective: AnyCollective, *, root: int | str | None = None) -> Plan:
    """Plan with Bine trees; parameters as for `plan_swing`, and a root for broadcast and reduce."""
    known = as_collective(collective)
    if known.has_one_root:
        return plan_baseline(topology, known, "bine", _trees, root=root)
    return plan_in_steps(topology, known, "bine", lambda problem: _exchanges(problem, "bine"))


def _exchanges(problem: TreeProblem, planner: str) -> StepSchedule:
    torus = grid_of(problem.topology, planner)
    chunks, sends = spread(torus, _patterns(torus, problem.topology, planner), not problem.topology.switch_nodes)
    return schedule_along(problem, chunks, sends, torus)


def _trees(problem: TreeProblem) -> Forest:
    """One tree for each collective: who brings the root's shard to whom."""
    torus = grid_of(problem.topology, "bine")
    patterns = _patterns(torus, problem.topology, "bine")
    roots = np.flatnonzero(problem.root_weights)
    chunks, sends = spread(torus, patterns, not problem.topology.switch_nodes, roots)
    schedule = schedule_along(problem, chunks, sends, torus)
    paths = [list[tuple[int, ...]]() for _ in range(chunks)]
    for send in schedule.sends():
        paths[send.lower].append(send.path)
    ranks = problem.topology.num_ranks
    return Forest.from_paths(
        ranks,
        chunks,
        [(int(roots[0]), 1, tree) for tree in paths],
        root_weights=problem.root_weights.tolist(),
        direction=problem.direction,
    )


def _patterns(torus: Torus, topology: Topology, planner: str) -> list[Pattern]:
    """The exchanges of an allgather: of twice as many collectives as dimensions on a torus, of one elsewhere.

    Where all sizes are 2, mirror images would be the same.
    """
    if any(size % 2 for size in torus.shape):
        raise UnsupportedError(
            f"{planner} pairs even ranks with odd ones; expected an even size of each dimension, not {torus.label} of "
            f"{topology!r}"
        )
    dimensions = len(torus.shape)
    is_torus = torus.routers is not None or not topology.switch_nodes
    sides = (False, True) if max(torus.shape) > 2 else (False,)
    ports = list(product(sides, range(dimensions))) if is_torus else [(False, 0)]
    return [_pattern(torus, first, mirrored) for mirrored, first in ports]


def _pattern(torus: Torus, first: int, mirrored: bool) -> Pattern:
    """The exchanges of one collective, the dimensions in turn, until each is through."""
    dimensions = len(torus.shape)
    lengths = [(size - 1).bit_length() for size in torus.shape]
    turns = [(axis + first) % dimensions for axis in range(dimensions)]
    rounds = [(axis, step) for step in range(max(lengths)) for axis in turns if step < lengths[axis]]
    return [[_exchange(torus, axis, step, mirrored)] for axis, step in reversed(rounds)]


def _exchange(torus: Torus, axis: int, step: int, mirrored: bool) -> Move:
    """Step `step` of a reduce-scatter along a dimension, over at most half of its links."""
    size = torus.shape[axis]
    way = (1 - (-2) ** (step + 1)) // 3
    shorter = (way + size // 2) % size - size // 2
    sign = (1 if shorter > 0 else -1) * (-1 if mirrored else 1)
    return Move(axis, abs(shorter), np.where(torus.places[:, axis] % 2, -sign, sign))
