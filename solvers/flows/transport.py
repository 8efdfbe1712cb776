"""Integral transportation plans with given row and column sums, near a fractional target.

Iterative proportional fitting, rounded down; an exact maximum flow places the missing units.  A transportation polytope
with integral sums has integral vertices, so an integral plan exists whenever a fractional one does.  `rounded_flow`
does the same for single-source flows.
"""

import numpy as np

from ...errors import SolverError
from ...support.arrays import BoolArray, FloatArray, IntArray
from .max_flow import flow_network, max_flow, solve_network

FITTING_ROUNDS = 40
LARGE_REMAINDER = 0.02  # remainders above this are rounded up before smaller ones


def integral_transport(rows: IntArray, columns: IntArray, target: FloatArray, allowed: BoolArray) -> IntArray | None:
    """Find a plan with the given sums, near `target` and zero where not `allowed`; None if there is none.

    Shapes: `rows` int64 (m,); `columns` int64 (n,); `target` float64, `allowed` bool and the result int64 (m, n).
    """
    fitted = _proportionally_fitted(rows, columns, np.where(allowed, target, 0.0))
    plan = np.floor(fitted + 1e-9).astype(np.int64)
    _trim(plan, rows)
    _trim(plan.T, columns)
    for entries in (fitted > plan + LARGE_REMAINDER, fitted > plan, allowed):
        missing_rows, missing_columns = rows - plan.sum(axis=1), columns - plan.sum(axis=0)
        if not missing_rows.any():
            return plan
        # At most one unit where rounding down removed a remainder, then any number wherever allowed.
        limit = 1 if entries is not allowed else int(missing_rows.sum())
        plan += _max_placement(missing_rows, missing_columns, entries & allowed, limit)
    if (rows - plan.sum(axis=1)).any():
        # From scratch, since the rounded plan may block the last units.
        plan = _max_placement(rows, columns, allowed, int(rows.sum()))
        return plan if plan.sum() == rows.sum() else None
    return plan


def _proportionally_fitted(rows: IntArray, columns: IntArray, target: FloatArray) -> FloatArray:
    fitted = target.copy()
    for _ in range(FITTING_ROUNDS):
        for sums, axis in ((rows, 1), (columns, 0)):
            totals = fitted.sum(axis=axis)
            factors = np.divide(sums, totals, out=np.zeros(len(sums)), where=totals > 0)
            fitted *= np.expand_dims(factors, axis)
        if np.abs(fitted.sum(axis=1) - rows).max(initial=0) < 1e-6:
            break
    return fitted


def _trim(plan: IntArray, rows: IntArray) -> None:
    """Reduce rows that exceed their sums, from the largest entries on."""
    for row in np.flatnonzero(plan.sum(axis=1) > rows):
        excess = int(plan[row].sum() - rows[row])
        for column in np.argsort(-plan[row], kind="stable"):
            part = min(excess, int(plan[row, column]))
            plan[row, column] -= part
            excess -= part


def _max_placement(rows: IntArray, columns: IntArray, entries: BoolArray, limit: int) -> IntArray:
    """Place as many units as possible in `entries`, at most `limit` in each."""
    origins, destinations = np.nonzero(entries & (rows[:, None] > 0) & (columns > 0))
    count, source = len(rows) + len(columns), len(rows) + len(columns)
    tails = np.concatenate([origins, np.full(len(rows), source), np.arange(len(rows), count)])
    heads = np.concatenate([destinations + len(rows), np.arange(len(rows)), np.full(len(columns), source + 1)])
    capacities = np.concatenate([np.full(len(origins), limit), rows, columns])
    flow = max_flow(count + 2, tails, heads, capacities, source, source + 1)
    placed = np.zeros(entries.shape, dtype=np.int64)
    placed[origins, destinations] = flow.residual[1 : 2 * len(origins) : 2]
    return placed


def rounded_flow(
    num_nodes: int, tails: IntArray, heads: IntArray, flow: FloatArray, source: int, demands: IntArray
) -> IntArray:
    """Find an integral flow that meets all demands, near a fractional one; `flow` float64 (links,), `demands` (nodes,).

    Integral capacities have integral maximum flows, so rounding an exact `flow` up leaves enough capacity.
    """
    sinks = np.flatnonzero(demands)
    all_tails = np.concatenate([tails, sinks])
    all_heads = np.concatenate([heads, np.full(len(sinks), num_nodes)])
    total = int(demands.sum())
    # Flow beyond the total demand circulates in cycles.
    rounded_up = np.ceil(np.minimum(flow, float(total))).astype(np.int64)
    for raisable in (flow > 0, np.ones(len(flow), dtype=np.bool_)):
        slack = 0
        while slack < 2 * max(total, 1):
            capacities = np.concatenate([np.minimum(rounded_up + slack * raisable, total), demands[sinks]])
            result = solve_network(flow_network(num_nodes + 1, all_tails, all_heads, capacities), source, num_nodes)
            if result.value == total:
                return result.residual[1 : 2 * len(tails) : 2].copy()
            slack = max(1, 2 * slack)
    raise SolverError(f"no flow from node {source} brings all {total} units")
