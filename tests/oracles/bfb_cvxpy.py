"""The programs of a breadth-first broadcast once more, as matrices, one rank at a time."""

from __future__ import annotations

import cvxpy as cp
import networkx as nx
import numpy as np

from collopt.topologies import Topology

__all__ = ["least_times"]


def least_times(topology: Topology, distance: int, shard_bytes: int | None = None) -> dict[str, float]:
    """U of every rank: of linear program (1) in ns per byte of shard, or with a size of (14) in µs.

    Rows are sources and columns are links into the rank; what may not be sent is 0.  The largest time is minimised as
    such, instead of a variable above all times.
    """
    hops = nx.floyd_warshall_numpy(topology.to_networkx(), nodelist=topology.compute_nodes, weight="none")
    return {rank: _least_time(topology, hops, distance, rank, shard_bytes) for rank in topology.compute_nodes}


def _least_time(topology: Topology, hops: np.ndarray, distance: int, rank: str, shard_bytes: int | None) -> float:
    here, links = topology.node_index[rank], topology.in_links(rank)
    due = hops[:, here] == distance
    allowed = (hops[:, [topology.node_index[link.tail] for link in links]] == distance - 1)[due]
    useful = allowed.any(axis=0)
    if not useful.any():
        return 0.0
    size = 1 if shard_bytes is None else shard_bytes / 1000
    paces = size / np.array([float(link.bandwidth) for link in links])[useful]
    waits = np.array([0 if shard_bytes is None else float(link.latency) for link in links])[useful]
    share = cp.Variable(allowed[:, useful].shape, nonneg=True)
    times = waits + cp.multiply(paces, cp.sum(share, axis=0))
    limits = [cp.sum(share, axis=1) == 1, cp.multiply(share, ~allowed[:, useful]) == 0]
    problem = cp.Problem(cp.Minimize(cp.max(times)), limits)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert problem.status == cp.OPTIMAL
    return float(problem.value)
