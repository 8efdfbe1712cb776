"""The all-to-all program once more: one commodity per pair of ranks, in matrices."""

from __future__ import annotations

from itertools import permutations

import cvxpy as cp
import numpy as np
import numpy.typing as npt

from collopt.topologies import Topology

__all__ = ["best_rate"]


def best_rate(topology: Topology, traffic: npt.NDArray[np.float64] | None = None) -> float:
    """Largest f at which f times the traffic flows from each rank to each other at once.

    The formulation has one flow per source, in which nothing tells the destinations apart.
    """
    nodes, ranks = len(topology.nodes), topology.num_ranks
    amounts = np.ones((ranks, ranks)) if traffic is None else traffic
    pairs = [pair for pair in permutations(range(ranks), 2) if amounts[pair] > 0]
    tails, heads, _, _ = topology.arrays
    gained = np.eye(nodes)[:, heads] - np.eye(nodes)[:, tails]
    unit = max(float(link.bandwidth) for link in topology.links)
    room = np.array([float(link.bandwidth) for link in topology.links]) / unit
    rate = cp.Variable(nonneg=True)
    flows = cp.Variable((len(room), len(pairs)), nonneg=True)
    wanted = np.array([amounts[pair] * np.eye(nodes)[pair[1]] for pair in pairs]).T
    # Nodes may lose flow; only where a pair starts does it come from nowhere.
    kept = np.flatnonzero(np.array([np.arange(nodes) != pair[0] for pair in pairs]).ravel())
    surplus = cp.vec(gained @ flows - wanted * rate, order="F")
    problem = cp.Problem(cp.Maximize(rate), [cp.sum(flows, axis=1) <= room, surplus[kept] >= 0])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-7, tol_gap_rel=1e-7, tol_feas=1e-7)
    assert problem.status == cp.OPTIMAL
    return unit * float(problem.value)
