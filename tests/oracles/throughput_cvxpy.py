"""The throughput program once more, in matrices and with a source node as the paper draws it."""

from __future__ import annotations

from collections.abc import Sequence

import cvxpy as cp
import numpy as np

from collopt.topologies import Topology

__all__ = ["best_rate"]


def best_rate(topology: Topology, weights: Sequence[float] | None = None) -> float:
    """Largest x at which the max flow from a source, with edges of capacity w x to each rank, is all it offers.

    Unlike the formulation there are no shares, and what the source sends is a variable.
    """
    nodes, ranks = len(topology.nodes), topology.num_ranks
    sizes = np.ones(ranks) if weights is None else np.array(weights, dtype=float)
    tails = [topology.node_index[link.tail] for link in topology.links]
    heads = [topology.node_index[link.head] for link in topology.links]
    arriving = np.eye(nodes)[:, heads] - np.eye(nodes)[:, tails]
    unit = max(float(link.bandwidth) for link in topology.links)
    room = np.array([float(link.bandwidth) for link in topology.links]) / unit
    rate = cp.Variable(nonneg=True)
    limits = []
    for sink in range(ranks):
        flow, sent = cp.Variable(len(room), nonneg=True), cp.Variable(ranks, nonneg=True)
        gained = arriving @ flow + np.eye(nodes, ranks) @ sent
        others = np.arange(nodes) != sink
        limits += [flow <= room, sent <= sizes * rate, gained[others] >= 0, gained[sink] >= sizes.sum() * rate]
    problem = cp.Problem(cp.Maximize(rate), limits)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)
    assert problem.status == cp.OPTIMAL
    return unit * float(rate.value)
