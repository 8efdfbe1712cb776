"""Integral transport plans with given row and column sums, as close to a wish as integers allow.

The real-valued plan is found by scaling rows and columns in turn (iterative proportional fitting), which is only a
hint: it is rounded down, and the units that are still missing are placed by an exact maximum flow.  A transport
polytope with integral sums has integral vertices, so rounding never fails for lack of integers.

`whole_flow` does the same for flows in floats, which conserve what they carry only within tolerances.
"""

from __future__ import annotations

import numpy as np

from ...errors import SolverError
from ...support.arrays import BoolArray, FloatArray, IntArray
from .max_flow import flow_network, max_flow, solve_network

__all__ = ["integral_transport", "whole_flow"]


def whole_flow(
    num_nodes: int, tails: IntArray, heads: IntArray, flow: FloatArray, source: int, demands: IntArray
) -> IntArray:
    """Find a flow in whole numbers that brings what is asked for and hardly exceeds a flow in floats on any link.

    Maximum flows are whole if capacities are; so where `flow` is exact, rounding it up leaves enough.

    Shapes: `tails`, `heads` int64 (links,); `flow` float64 (links,); `demands` int64 (nodes,); returns int64 (links,).

    >>> whole_flow(3, np.array([0, 1]), np.array([1, 2]), np.array([2.0000001, 0.9999999]), 0, np.array([0, 1, 1]))
    array([2, 1])
    """
    wanted = np.flatnonzero(demands)
    all_tails = np.concatenate([tails, wanted])
    all_heads = np.concatenate([heads, np.full(len(wanted), num_nodes)])
    total = int(demands.sum())
    # More than all that is asked for goes round in cycles.
    rooms = np.ceil(np.minimum(flow, float(total))).astype(np.int64)
    for usable in (flow > 0, np.ones(len(flow), dtype=np.bool_)):
        slack = 0
        while slack < 2 * max(total, 1):
            most = np.concatenate([np.minimum(rooms + slack * usable, total), demands[wanted]])
            found = solve_network(flow_network(num_nodes + 1, all_tails, all_heads, most), source, num_nodes)
            if found.value == total:
                return found.residual[1 : 2 * len(tails) : 2].copy()
            slack = max(1, 2 * slack)
    raise SolverError(f"no flow from node {source} brings all {total} units")


FITTING_ROUNDS = 40
NOTABLE = 0.02
"""Fractions that are rounded up before smaller ones."""


def integral_transport(rows: IntArray, columns: IntArray, wish: FloatArray, allowed: BoolArray) -> IntArray | None:
    """Find a plan with the given sums, near the wish and zero where it is not allowed to ship.

    Shapes: `rows` int64 (m,); `columns` int64 (n,); `wish` float64 (m, n); `allowed` bool (m, n); returns int64 (m, n).

    >>> import numpy as np
    >>> integral_transport(np.array([2, 1]), np.array([1, 2]), np.ones((2, 2)), np.ones((2, 2), dtype=bool)).tolist()
    [[1, 1], [0, 1]]
    """
    fitted = _fitted(rows, columns, np.where(allowed, wish, 0.0))
    plan = np.floor(fitted + 1e-9).astype(np.int64)
    _trim(plan, rows)
    _trim(plan.T, columns)
    for entries in (fitted > plan + NOTABLE, fitted > plan, allowed):
        missing_rows, missing_columns = rows - plan.sum(axis=1), columns - plan.sum(axis=0)
        if not missing_rows.any():
            return plan
        # First one unit at most where rounding took something away, then whatever is allowed.
        limit = 1 if entries is not allowed else int(missing_rows.sum())
        plan += _placed(missing_rows, missing_columns, entries & allowed, limit)
    if (rows - plan.sum(axis=1)).any():
        return _placed_anew(rows, columns, allowed)
    return plan


def _fitted(rows: IntArray, columns: IntArray, wish: FloatArray) -> FloatArray:
    fitted = wish.copy()
    for _ in range(FITTING_ROUNDS):
        for sums, axis in ((rows, 1), (columns, 0)):
            totals = fitted.sum(axis=axis)
            factors = np.divide(sums, totals, out=np.zeros(len(sums)), where=totals > 0)
            fitted *= np.expand_dims(factors, axis)
        if np.abs(fitted.sum(axis=1) - rows).max(initial=0) < 1e-6:
            break
    return fitted


def _trim(plan: IntArray, rows: IntArray) -> None:
    """Take back what a row has too much, from its largest entries."""
    for row in np.flatnonzero(plan.sum(axis=1) > rows):
        excess = int(plan[row].sum() - rows[row])
        for column in np.argsort(-plan[row], kind="stable"):
            taken = min(excess, int(plan[row, column]))
            plan[row, column] -= taken
            excess -= taken


def _placed(rows: IntArray, columns: IntArray, entries: BoolArray, limit: int) -> IntArray:
    """As many units as fit, at most `limit` per entry."""
    origins, destinations = np.nonzero(entries & (rows[:, None] > 0) & (columns > 0))
    count, source = len(rows) + len(columns), len(rows) + len(columns)
    tails = np.concatenate([origins, np.full(len(rows), source), np.arange(len(rows), count)])
    heads = np.concatenate([destinations + len(rows), np.arange(len(rows)), np.full(len(columns), source + 1)])
    capacities = np.concatenate([np.full(len(origins), limit), rows, columns])
    flow = max_flow(count + 2, tails, heads, capacities, source, source + 1)
    placed = np.zeros(entries.shape, dtype=np.int64)
    placed[origins, destinations] = flow.residual[1 : 2 * len(origins) : 2]
    return placed


def _placed_anew(rows: IntArray, columns: IntArray, allowed: BoolArray) -> IntArray | None:
    """Any plan at all: the rounded one may block the last units."""
    plan = _placed(rows, columns, allowed, int(rows.sum()))
    return plan if plan.sum() == rows.sum() else None
