"""Flows in whole numbers near flows in floats, which conserve what they carry only within tolerances."""

from __future__ import annotations

import numpy as np

from ...errors import SolverError
from ...support.arrays import FloatArray, IntArray
from .max_flow import flow_network, solve_network

__all__ = ["whole_flow"]


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
