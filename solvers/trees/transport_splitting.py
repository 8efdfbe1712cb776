"""Removal of all switches of one small network: guess, certify, learn from the cut, and only then split exactly.

Exact edge splitting (`collopt.solvers.trees.edge_splitting`) computes flows for every pair of links.  Here a whole
switch is removed at once by an integral transport plan between its neighbours, and one sweep of maximum flows certifies
all switches together: every sink must still receive every supply, which is all that Theorem 6 of ForestColl asks for.
If it does not, its minimum cut says which pairs wasted capacity; they are forbidden and the guess is repeated.  A
switch for which no guess passes is split exactly.

What the plan aims at: units straight from u to t as many as u supplies, so that trees become stars; where that is not
possible, shares in proportion to the capacities.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import BoolArray, FloatArray, IntArray
from ..flow.sink_sweep import SinkSweep, sweep_sinks
from ..flow.transport import integral_transport
from .edge_splitting import split_pairs

__all__ = ["SwitchPlan", "remove_all_switches", "split_all_switches"]


JOINT_ROUNDS, SINGLE_ROUNDS = 8, 16
FAINT = 1e-3
"""Weight of the proportional plan beside the wished one, so that no allowed entry is ruled out."""


class SwitchPlan(NamedTuple):
    """What replaces one switch.

    `switch`: Number of the node.
    `neighbours` (int64 (m,)): Numbers of the nodes around it, rising.
    `units` (int64 (m, m)): Units from each neighbour straight to each other; the diagonal is capacity given up.
    """

    switch: int
    neighbours: IntArray
    units: IntArray


def remove_all_switches(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan]:
    """Choose transport plans for all switches of a network such that every sink still receives every supply.

    Shapes: `capacities` int64 (nodes, nodes); `supplies` int64 (sources,).
    """
    together = _guess_together(capacities, supplies, num_sinks)
    return together if together is not None else _one_by_one(capacities, supplies, num_sinks)


def split_all_switches(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan]:
    """As `remove_all_switches`, by exact edge splitting alone."""
    current, plans = capacities.copy(), []
    switches = _fewest_neighbours_first(capacities, len(supplies))
    for switch in progress.iterate(switches, len(switches)):
        plans.append(_split_exactly(current, supplies, num_sinks, switch))
        _apply(current, plans[-1])
    return plans


def _guess_together(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan] | None:
    switches = _fewest_neighbours_first(capacities, len(supplies))
    lessons: dict[int, list[BoolArray]] = {switch: [] for switch in switches}
    for _ in range(JOINT_ROUNDS):
        current, plans = capacities.copy(), []
        for switch in progress.iterate(switches, len(switches)):
            plan = _guess(current, supplies, num_sinks, switch, lessons[switch])
            if plan is None:
                return None
            plans.append(plan)
            _apply(current, plan)
        sweep = _sweep(current, supplies, num_sinks)
        if not sweep.lacking.any():
            return plans
        sides = _violated_sides(sweep, len(supplies))
        learnt = [_learn(plan, sides, lessons[plan.switch]) for plan in plans]
        if not any(learnt):
            return None
    return None


def _one_by_one(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan]:
    current, plans = capacities.copy(), []
    switches = _fewest_neighbours_first(capacities, len(supplies))
    for switch in progress.iterate(switches, len(switches)):
        plan = _guess_one(current, supplies, num_sinks, switch)
        if plan is None:
            plan = _split_exactly(current, supplies, num_sinks, switch)
        plans.append(plan)
        _apply(current, plan)
    return plans


def _guess_one(current: IntArray, supplies: IntArray, num_sinks: int, switch: int) -> SwitchPlan | None:
    lessons: list[BoolArray] = []
    for _ in range(SINGLE_ROUNDS):
        plan = _guess(current, supplies, num_sinks, switch, lessons)
        if plan is None:
            return None
        after = current.copy()
        _apply(after, plan)
        sweep = _sweep(after, supplies, num_sinks)
        if not sweep.lacking.any():
            return plan
        if not _learn(plan, _violated_sides(sweep, len(current)), lessons):
            return None
    return None


def _fewest_neighbours_first(capacities: IntArray, first_switch: int) -> list[int]:
    neighbours = ((capacities > 0) | (capacities.T > 0)).sum(axis=1)
    return sorted(range(first_switch, len(capacities)), key=lambda switch: (neighbours[switch], switch))


def _guess(
    current: IntArray, supplies: IntArray, num_sinks: int, switch: int, lessons: list[BoolArray]
) -> SwitchPlan | None:
    around = _around(current, switch)
    into, out = current[around, switch], current[switch, around]
    allowed = np.ones((len(around), len(around)), dtype=np.bool_)
    for wasteful in lessons:
        places = np.flatnonzero(wasteful[around])
        allowed[np.ix_(places, places)] = False
    # A neighbour with more than half of the switch has to be paired with itself: capacity given up.
    np.fill_diagonal(allowed, into + out > into.sum())
    star = _star(current, supplies, num_sinks, around)
    if np.array_equal(star.sum(axis=1), into) and np.array_equal(star.sum(axis=0), out) and not star[~allowed].any():
        chosen: IntArray | None = star
    else:
        # Of what u still owes to others, this switch carries its share among the switches that u has left.
        sent = current[around, len(supplies) :].sum(axis=1)
        wish = star * np.divide(into, sent, out=np.zeros(len(around)), where=sent > 0)[:, None]
        chosen = integral_transport(into, out, _filled(wish, into, out, around < num_sinks), allowed)
    return None if chosen is None else SwitchPlan(switch, around, chosen)


def _around(current: IntArray, switch: int) -> IntArray:
    return np.flatnonzero((current[:, switch] > 0) | (current[switch] > 0))


def _star(current: IntArray, supplies: IntArray, num_sinks: int, around: IntArray) -> IntArray:
    """Units that sinks still need from each other around a switch, for each to have a direct link to all others."""
    sinks = around < num_sinks
    offered = np.where(sinks, np.append(supplies, 0)[np.minimum(around, len(supplies))], 0)
    star = np.maximum(offered[:, None] - current[np.ix_(around, around)], 0)
    star[:, ~sinks] = 0
    np.fill_diagonal(star, 0)
    return star


def _filled(wish: FloatArray, units_in: IntArray, units_out: IntArray, sinks: BoolArray) -> FloatArray:
    """Complete a wish between sinks: what they do not send each other goes to, and comes from, the other neighbours."""
    # In floats, since the products may not fit int64.
    into, out = units_in.astype(np.float64), units_out.astype(np.float64)
    filled: FloatArray = FAINT * np.outer(into, out) / max(into.sum(), 1.0)
    unsent, missing = np.maximum(into - wish.sum(axis=1), 0), np.maximum(out - wish.sum(axis=0), 0)
    filled[np.ix_(sinks, sinks)] += wish[np.ix_(sinks, sinks)]
    filled[np.ix_(sinks, ~sinks)] += np.outer(unsent[sinks], out[~sinks]) / max(out[~sinks].sum(), 1.0)
    filled[np.ix_(~sinks, sinks)] += np.outer(into[~sinks], missing[sinks]) / max(into[~sinks].sum(), 1.0)
    return filled


def _apply(current: IntArray, plan: SwitchPlan) -> None:
    current[plan.switch, :] = 0
    current[:, plan.switch] = 0
    current[np.ix_(plan.neighbours, plan.neighbours)] += plan.units
    current[plan.neighbours, plan.neighbours] = 0


def _sweep(current: IntArray, supplies: IntArray, num_sinks: int) -> SinkSweep:
    tails, heads = np.nonzero(current)
    return sweep_sinks(len(current), tails, heads, current[tails, heads], supplies, num_sinks)


def _violated_sides(sweep: SinkSweep, known: int) -> list[tuple[BoolArray, BoolArray]]:
    """Sink side and source side of each violated cut.

    Nodes from `known` on are on neither: they are switches that were gone when the cut was found.
    """
    sided = np.arange(sweep.reaching.shape[1]) < known
    return [(cut & sided, ~cut & sided) for cut in np.unique(sweep.reaching[sweep.lacking > 0], axis=0)]


def _learn(plan: SwitchPlan, sides: list[tuple[BoolArray, BoolArray]], lessons: list[BoolArray]) -> bool:
    """Add to `lessons`, per cut, the side within which the switch's capacity was wasted; say if any is new.

    Nodes of that side are not paired with each other again.
    """
    before = len(lessons)
    arriving, leaving = plan.units.sum(axis=1), plan.units.sum(axis=0)
    for inside, outside in sides:
        within, without = inside[plan.neighbours], outside[plan.neighbours]
        wasteful = outside if arriving[without].sum() <= leaving[within].sum() else inside
        places = np.flatnonzero(wasteful[plan.neighbours])
        among = plan.units[np.ix_(places, places)]
        if among.sum() > among.trace():
            lessons.append(wasteful)
    return len(lessons) > before


def _split_exactly(current: IntArray, supplies: IntArray, num_sinks: int, switch: int) -> SwitchPlan:
    tails, heads = np.nonzero(current)
    rows, left = split_pairs(
        len(current), tails, heads, current[tails, heads], supplies, num_sinks=num_sinks, switch=switch
    )
    if left:
        raise SolverError(
            f"edge splitting could not isolate switch number {switch}: is its ingress equal to its egress?"
        )
    around = _around(current, switch)
    units = np.zeros((len(around), len(around)), dtype=np.int64)
    np.add.at(units, (np.searchsorted(around, rows[:, 0]), np.searchsorted(around, rows[:, 1])), rows[:, 2])
    return SwitchPlan(switch, around, units)
