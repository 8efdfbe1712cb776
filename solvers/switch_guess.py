"""Removal of all switches of one small network: guess, certify, learn from the cut, and only then split exactly.

Exact edge splitting (`collopt.solvers.edge_splitting`) computes flows for every pair of links.  Here a whole switch
is removed at once by an integral transport plan between its neighbours, and one sweep of maximum flows certifies all
switches together: every sink must still receive every supply, which is all that Theorem 6 of ForestColl asks for.  If
it does not, its minimum cut says which pairs wasted capacity; they are forbidden and the guess is repeated.  A switch
for which no guess passes is split exactly.

What the plan aims at: units straight from u to t as many as u supplies, so that trees become stars; where that is not
possible, shares in proportion to the capacities.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import SolverError
from .edge_splitting import split_pairs
from .sink_sweep import SinkSweep, sweep_sinks
from .transport import integral_transport

__all__ = ["SwitchPlan", "remove_all_switches", "split_all_switches"]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

JOINT_ROUNDS, SINGLE_ROUNDS = 8, 16
FAINT = 1e-3
"""Weight of the proportional plan beside the wished one, so that no allowed entry is ruled out."""


class SwitchPlan(NamedTuple):
    """What replaces one switch.

    Attributes
    ----------
    switch : int
        Number of the node.
    units : ndarray of int64, shape (nodes, nodes)
        Units from each node straight to each other; the diagonal is capacity given up.
    """

    switch: int
    units: IntArray


def remove_all_switches(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan]:
    """Choose transport plans for all switches of a network such that every sink still receives every supply.

    Parameters
    ----------
    capacities : ndarray of int64, shape (nodes, nodes)
        Capacity of the link between each two nodes; nodes ``len(supplies) ..`` are the switches.
    supplies : ndarray of int64, shape (sources,)
        What each node that is no switch sends to all sinks.
    num_sinks : int
        The first nodes are sinks; sources beyond them only send.

    Returns
    -------
    list of SwitchPlan
        In the order in which they apply: a switch may be a neighbour in the plans before its own.

    Raises
    ------
    SolverError
        If a switch cannot be removed, which means that it is unbalanced or the supplies did not fit.
    """
    together = _guess_together(capacities, supplies, num_sinks)
    return together if together is not None else _one_by_one(capacities, supplies, num_sinks)


def split_all_switches(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan]:
    """As `remove_all_switches`, by exact edge splitting alone."""
    current, plans = capacities.copy(), []
    for switch in _fewest_neighbours_first(capacities, len(supplies)):
        plans.append(_split_exactly(current, supplies, num_sinks, switch))
        _apply(current, plans[-1])
    return plans


def _guess_together(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan] | None:
    switches = _fewest_neighbours_first(capacities, len(supplies))
    forbidden = {switch: np.zeros(capacities.shape, dtype=np.bool_) for switch in switches}
    for _ in range(JOINT_ROUNDS):
        current, plans = capacities.copy(), []
        for switch in switches:
            plan = _guess(current, supplies, num_sinks, switch, forbidden[switch])
            if plan is None:
                return None
            plans.append(plan)
            _apply(current, plan)
        sweep = _sweep(current, supplies, num_sinks)
        if not sweep.lacking.any():
            return plans
        learnt = [_learn(plan, sweep, forbidden[plan.switch], len(supplies)) for plan in plans]
        if not any(learnt):
            return None
    return None


def _one_by_one(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan]:
    current, plans = capacities.copy(), []
    for switch in _fewest_neighbours_first(capacities, len(supplies)):
        plan = _guess_one(current, supplies, num_sinks, switch)
        if plan is None:
            plan = _split_exactly(current, supplies, num_sinks, switch)
        plans.append(plan)
        _apply(current, plan)
    return plans


def _guess_one(current: IntArray, supplies: IntArray, num_sinks: int, switch: int) -> SwitchPlan | None:
    forbidden = np.zeros(current.shape, dtype=np.bool_)
    for _ in range(SINGLE_ROUNDS):
        plan = _guess(current, supplies, num_sinks, switch, forbidden)
        if plan is None:
            return None
        after = current.copy()
        _apply(after, plan)
        sweep = _sweep(after, supplies, num_sinks)
        if not sweep.lacking.any():
            return plan
        if not _learn(plan, sweep, forbidden, len(current)):
            return None
    return None


def _fewest_neighbours_first(capacities: IntArray, first_switch: int) -> list[int]:
    neighbours = ((capacities > 0) | (capacities.T > 0)).sum(axis=1)
    return sorted(range(first_switch, len(capacities)), key=lambda switch: (neighbours[switch], switch))


def _guess(
    current: IntArray, supplies: IntArray, num_sinks: int, switch: int, forbidden: BoolArray
) -> SwitchPlan | None:
    rows, columns = current[:, switch], current[switch, :]
    around = np.flatnonzero((rows > 0) | (columns > 0))
    into, out = rows[around], columns[around]
    allowed = ~forbidden[np.ix_(around, around)]
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
    if chosen is None:
        return None
    units = np.zeros(current.shape, dtype=np.int64)
    units[np.ix_(around, around)] = chosen
    return SwitchPlan(switch, units)


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
    current += plan.units
    np.fill_diagonal(current, 0)


def _sweep(current: IntArray, supplies: IntArray, num_sinks: int) -> SinkSweep:
    tails, heads = np.nonzero(current)
    return sweep_sinks(len(current), tails, heads, current[tails, heads], supplies, num_sinks)


def _learn(plan: SwitchPlan, sweep: SinkSweep, forbidden: BoolArray, known: int) -> bool:
    """Forbid the pairs that wasted the switch's capacity across the cuts that were violated; say if any is new.

    Nodes from `known` on are switches that were gone when the cut was found, so the cut says nothing about them.
    """
    before = int(forbidden.sum())
    sided = np.arange(len(forbidden)) < known
    for cut in np.unique(sweep.reaching[sweep.lacking > 0], axis=0):
        inside, outside = cut & sided, ~cut & sided
        arriving, leaving = plan.units[outside].sum(), plan.units[:, inside].sum()
        wasteful = outside if arriving <= leaving else inside
        forbidden |= np.outer(wasteful, wasteful)
    return int(forbidden.sum()) > before


def _split_exactly(current: IntArray, supplies: IntArray, num_sinks: int, switch: int) -> SwitchPlan:
    tails, heads = np.nonzero(current)
    rows, left = split_pairs(
        len(current), tails, heads, current[tails, heads], supplies, num_sinks=num_sinks, switch=switch
    )
    if left:
        raise SolverError(
            f"edge splitting could not isolate switch number {switch}: is its ingress equal to its egress?"
        )
    units = np.zeros(current.shape, dtype=np.int64)
    np.add.at(units, (rows[:, 0], rows[:, 1]), rows[:, 2])
    return SwitchPlan(switch, units)
