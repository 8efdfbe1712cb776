"""The allreduce program once more: every cut written out, and one flow for every pair of ranks."""

from __future__ import annotations

from itertools import permutations

import cvxpy as cp
import numpy as np

from collopt.topologies import Topology

__all__ = ["best_rate"]


def best_rate(topology: Topology) -> float:
    """Largest sum of root rates that in-trees and out-trees can have; for up to about 8 ranks.

    The formulation has a flow per rank as witness of the cuts, and flows per origin through the switches; here are the
    cuts of all ``2^N - 2`` sets of ranks, and flows per pair of ranks that may pass other ranks too.
    """
    nodes, ranks = len(topology.nodes), topology.num_ranks
    pairs = list(permutations(range(ranks), 2))
    tails, heads, _, _ = topology.arrays
    gained = np.eye(nodes)[:, heads] - np.eye(nodes)[:, tails]
    unit = max(float(link.bandwidth) for link in topology.links)
    room = np.array([float(link.bandwidth) for link in topology.links]) / unit
    rates = cp.Variable(ranks, nonneg=True)
    spread, added = cp.Variable(len(pairs), nonneg=True), cp.Variable(len(pairs), nonneg=True)
    flows = cp.Variable((len(room), len(pairs)), nonneg=True)
    ends = np.array([np.eye(nodes)[head] - np.eye(nodes)[tail] for tail, head in pairs]).T
    # Nodes may lose flow; only where a pair starts does it come from nowhere.
    kept = np.flatnonzero(ends.ravel(order="F") >= 0)
    surplus = cp.vec(gained @ flows - ends @ cp.diag(spread + added), order="F")
    limits = [cp.sum(flows, axis=1) <= room, surplus[kept] >= 0]
    for number in range(1, 2**ranks - 1):
        inside = np.array([number >> rank & 1 for rank in range(ranks)], dtype=bool)
        leaving = np.array([inside[tail] and not inside[head] for tail, head in pairs])
        entering = np.array([inside[head] and not inside[tail] for tail, head in pairs])
        limits += [leaving @ spread >= inside @ rates, entering @ added >= inside @ rates]
    problem = cp.Problem(cp.Maximize(cp.sum(rates)), limits)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-7, tol_gap_rel=1e-7, tol_feas=1e-7)
    assert problem.status == cp.OPTIMAL
    return unit * float(problem.value)
