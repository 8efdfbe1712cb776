"""The fastest allgather in a number of steps once more, by who holds what after each step."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from collopt.topologies import Topology

__all__ = ["least_time"]


def least_time(topology: Topology, steps: int, chunks: int) -> float:
    """Least sum of the steps' times in ns per byte of shard; infinite if there is no schedule.

    Unlike in the formulation a chunk may come twice, or back to its source, and nothing is left out because of
    distances; the times of steps are not whole numbers but fractions of the bandwidths.
    """
    ranks, links = topology.num_ranks, len(topology.links)
    leaves, enters = np.zeros((links, ranks)), np.zeros((links, ranks))
    leaves[np.arange(links), topology.arrays.tails] = enters[np.arange(links), topology.arrays.heads] = 1
    pace = np.array([1 / float(link.bandwidth) for link in topology.links]) / chunks
    pieces = ranks * chunks
    holds = [np.repeat(np.eye(ranks), chunks, axis=0)]
    limits, total = [], 0
    for _ in range(steps):
        sends = cp.Variable((pieces, links), boolean=True)
        after = cp.Variable((pieces, ranks), nonneg=True)
        limits += [sends <= holds[-1] @ leaves.T, after <= holds[-1] + sends @ enters, after <= 1]
        total += cp.max(cp.multiply(pace, cp.sum(sends, axis=0)))
        holds.append(after)
    problem = cp.Problem(cp.Minimize(total), [*limits, holds[-1] == 1])
    problem.solve(solver=cp.HIGHS)
    return float("inf") if problem.status == cp.INFEASIBLE else float(problem.value)
