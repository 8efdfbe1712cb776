"""Removal of all switches of a small network by integral transportation plans and cutting planes.

A plan between its neighbors replaces a whole switch; one sweep of maximum flows certifies all plans together, which is
all that Theorem 6 of ForestColl requires.  Cuts below their demand forbid the pairs that wasted capacity, and switches
without a feasible plan are split exactly (`edge_splitting`); see docs/explanation/algorithms.md.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import BoolArray, FloatArray, IntArray
from ..flow.push_relabel import SinkSweep, sweep_sinks
from ..flow.transport import integral_transport
from .edge_splitting import split_pairs

JOINT_ROUNDS, SINGLE_ROUNDS = 8, 16
REGULARIZATION = 1e-3  # weight of the proportional plan in the target, so that every allowed entry is positive


class SwitchPlan(NamedTuple):
    """A transportation plan that replaces one switch."""

    switch: int  # number of the node
    neighbors: IntArray  # int64 (m,): its neighbors, ascending
    units: IntArray  # int64 (m, m): units from each neighbor straight to each other; the diagonal is capacity given up


def remove_all_switches(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan]:
    """Choose plans for all switches of `capacities`, int64 (nodes, nodes); every sink still gets every supply."""
    together = _plan_jointly(capacities, supplies, num_sinks)
    return together if together is not None else _plan_one_by_one(capacities, supplies, num_sinks, _plan_one)


def split_all_switches(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan]:
    """Remove all switches by exact edge splitting alone; arguments and result as in `remove_all_switches`."""
    return _plan_one_by_one(capacities, supplies, num_sinks, _split_exactly)


def _plan_jointly(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan] | None:
    switches = _fewest_neighbors_first(capacities, len(supplies))
    cut_constraints: dict[int, list[BoolArray]] = {switch: [] for switch in switches}
    for _ in range(JOINT_ROUNDS):
        current, plans = capacities.copy(), []
        for switch in progress.iterate(switches, len(switches)):
            plan = _plan(current, supplies, num_sinks, switch, cut_constraints[switch])
            if plan is None:
                return None
            plans.append(plan)
            _apply(current, plan)
        sweep = _sweep(current, supplies, num_sinks)
        if not sweep.deficit.any():
            return plans
        sides = _violated_cuts(sweep, len(supplies))
        separated = [_separate(plan, sides, cut_constraints[plan.switch]) for plan in plans]
        if not any(separated):
            return None
    return None


def _plan_one_by_one(
    capacities: IntArray, supplies: IntArray, num_sinks: int, plan: Callable[..., SwitchPlan]
) -> list[SwitchPlan]:
    current, plans = capacities.copy(), []
    switches = _fewest_neighbors_first(capacities, len(supplies))
    for switch in progress.iterate(switches, len(switches)):
        plans.append(plan(current, supplies, num_sinks, switch))
        _apply(current, plans[-1])
    return plans


def _plan_one(current: IntArray, supplies: IntArray, num_sinks: int, switch: int) -> SwitchPlan:
    cut_constraints: list[BoolArray] = []
    for _ in range(SINGLE_ROUNDS):
        plan = _plan(current, supplies, num_sinks, switch, cut_constraints)
        if plan is None:
            break
        after = current.copy()
        _apply(after, plan)
        sweep = _sweep(after, supplies, num_sinks)
        if not sweep.deficit.any():
            return plan
        if not _separate(plan, _violated_cuts(sweep, len(current)), cut_constraints):
            break
    return _split_exactly(current, supplies, num_sinks, switch)


def _fewest_neighbors_first(capacities: IntArray, first_switch: int) -> list[int]:
    neighbors = ((capacities > 0) | (capacities.T > 0)).sum(axis=1)
    return sorted(range(first_switch, len(capacities)), key=lambda switch: (neighbors[switch], switch))


def _plan(
    current: IntArray, supplies: IntArray, num_sinks: int, switch: int, cut_constraints: list[BoolArray]
) -> SwitchPlan | None:
    neighbors = _neighbors_of(current, switch)
    into, out = current[neighbors, switch], current[switch, neighbors]
    allowed = np.ones((len(neighbors), len(neighbors)), dtype=np.bool_)
    for side in cut_constraints:
        places = np.flatnonzero(side[neighbors])
        allowed[np.ix_(places, places)] = False
    # A neighbor with more than half of the switch has to be paired with itself: capacity given up.
    np.fill_diagonal(allowed, into + out > into.sum())
    direct = _direct_demand(current, supplies, num_sinks, neighbors)
    if (
        np.array_equal(direct.sum(axis=1), into)
        and np.array_equal(direct.sum(axis=0), out)
        and not direct[~allowed].any()
    ):
        chosen: IntArray | None = direct
    else:
        # This switch carries its share, among u's remaining switches, of what u still has to send.
        sent = current[neighbors, len(supplies) :].sum(axis=1)
        target = direct * np.divide(into, sent, out=np.zeros(len(neighbors)), where=sent > 0)[:, None]
        chosen = integral_transport(into, out, _completed(target, into, out, neighbors < num_sinks), allowed)
    return None if chosen is None else SwitchPlan(switch, neighbors, chosen)


def _neighbors_of(current: IntArray, switch: int) -> IntArray:
    return np.flatnonzero((current[:, switch] > 0) | (current[switch] > 0))


def _direct_demand(current: IntArray, supplies: IntArray, num_sinks: int, neighbors: IntArray) -> IntArray:
    """Units that the sinks next to a switch still need from each other for a direct link from each to all others."""
    sinks = neighbors < num_sinks
    offered = np.where(sinks, np.append(supplies, 0)[np.minimum(neighbors, len(supplies))], 0)
    direct = np.maximum(offered[:, None] - current[np.ix_(neighbors, neighbors)], 0)
    direct[:, ~sinks] = 0
    np.fill_diagonal(direct, 0)
    return direct


def _completed(target: FloatArray, ingress: IntArray, egress: IntArray, sinks: BoolArray) -> FloatArray:
    """Extend a target between sinks to the other neighbors, which take and provide the remaining units."""
    # In floats, since the products may not fit int64.
    into, out = ingress.astype(np.float64), egress.astype(np.float64)
    filled: FloatArray = REGULARIZATION * np.outer(into, out) / max(into.sum(), 1.0)
    unsent, missing = np.maximum(into - target.sum(axis=1), 0), np.maximum(out - target.sum(axis=0), 0)
    filled[np.ix_(sinks, sinks)] += target[np.ix_(sinks, sinks)]
    filled[np.ix_(sinks, ~sinks)] += np.outer(unsent[sinks], out[~sinks]) / max(out[~sinks].sum(), 1.0)
    filled[np.ix_(~sinks, sinks)] += np.outer(into[~sinks], missing[sinks]) / max(into[~sinks].sum(), 1.0)
    return filled


def _apply(current: IntArray, plan: SwitchPlan) -> None:
    current[plan.switch, :] = 0
    current[:, plan.switch] = 0
    current[np.ix_(plan.neighbors, plan.neighbors)] += plan.units
    current[plan.neighbors, plan.neighbors] = 0


def _sweep(current: IntArray, supplies: IntArray, num_sinks: int) -> SinkSweep:
    tails, heads = np.nonzero(current)
    return sweep_sinks(len(current), tails, heads, current[tails, heads], supplies, num_sinks)


def _violated_cuts(sweep: SinkSweep, known: int) -> list[tuple[BoolArray, BoolArray]]:
    """Return sink and source side of each violated cut; nodes from `known` on, removed before, are on neither."""
    sided = np.arange(sweep.sink_sides.shape[1]) < known
    return [(cut & sided, ~cut & sided) for cut in np.unique(sweep.sink_sides[sweep.deficit > 0], axis=0)]


def _separate(plan: SwitchPlan, sides: list[tuple[BoolArray, BoolArray]], cut_constraints: list[BoolArray]) -> bool:
    """Add, per violated cut, the side within which the plan wastes the switch's capacity; return whether any is new.

    A cut constraint forbids pairing the nodes of its side with each other.
    """
    before = len(cut_constraints)
    units_in, units_out = plan.units.sum(axis=1), plan.units.sum(axis=0)
    for inside, outside in sides:
        within, without = inside[plan.neighbors], outside[plan.neighbors]
        side = outside if units_in[without].sum() <= units_out[within].sum() else inside
        places = np.flatnonzero(side[plan.neighbors])
        among = plan.units[np.ix_(places, places)]
        if among.sum() > among.trace():
            cut_constraints.append(side)
    return len(cut_constraints) > before


def _split_exactly(current: IntArray, supplies: IntArray, num_sinks: int, switch: int) -> SwitchPlan:
    tails, heads = np.nonzero(current)
    rows, left = split_pairs(
        len(current), tails, heads, current[tails, heads], supplies, num_sinks=num_sinks, switch=switch
    )
    if left:
        raise SolverError(
            f"edge splitting could not isolate switch number {switch}: is its ingress equal to its egress?"
        )
    neighbors = _neighbors_of(current, switch)
    units = np.zeros((len(neighbors), len(neighbors)), dtype=np.int64)
    np.add.at(units, (np.searchsorted(neighbors, rows[:, 0]), np.searchsorted(neighbors, rows[:, 1])), rows[:, 2])
    return SwitchPlan(switch, neighbors, units)
