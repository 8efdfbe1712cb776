"""Messages between ranks that are not linked: the ranks on a shortest path pass them on and keep them.

A step takes as many steps as its longest path has links.  What a rank has kept is not sent to it again, so that every
shard comes to every rank once.
"""

from __future__ import annotations

import numpy as np

from ...schedules.expansions.direct_sends import DirectSends
from ...support.arrays import IntArray, distinct
from ...topologies.network.hop_distances import partial_hop_distances
from ..trees.problem import TreeProblem


def relayed(problem: TreeProblem, sends: DirectSends) -> DirectSends:
    """Replace the sends of whole shards, on a network without switches, by sends over its links."""
    count = problem.topology.num_ranks
    pairs, numbers = distinct(sends.tails * count + sends.heads)
    paths = _paths(problem, *np.divmod(pairs, count))
    if paths.shape[1] == 2:
        return sends
    held = np.eye(count, dtype=np.bool_)  # by rank and source
    found, start = list[DirectSends](), 0
    for step in range(int(sends.steps.max()) + 1):
        now = np.flatnonzero(sends.steps == step)
        ways, sources = paths[numbers[now]], sends.sources[now]
        for hop in range(paths.shape[1] - 1):
            tails, heads = ways[:, hop], ways[:, hop + 1]
            fresh = np.flatnonzero((tails != heads) & ~held[heads, sources])
            fresh = fresh[np.unique(heads[fresh] * count + sources[fresh], return_index=True)[1]]
            heads, senders, shards = heads[fresh], tails[fresh], sources[fresh]
            held[heads, shards] = True
            zeros = np.zeros_like(heads)
            found.append(DirectSends(zeros + start + hop, shards, zeros, zeros + 1, senders, heads))
        start += paths.shape[1]
    return DirectSends.joined(found)


def _paths(problem: TreeProblem, tails: IntArray, heads: IntArray) -> IntArray:
    """Ranks on a shortest path of each pair, the last one repeated; shapes: int64 (pairs,), int64 (pairs, ranks)."""
    count = problem.topology.num_ranks
    distances = partial_hop_distances(count, problem.tails, problem.heads)
    order = np.argsort(problem.tails, kind="stable")
    degrees = np.bincount(problem.tails, minlength=count)
    neighbors = np.full((count, int(degrees.max())), -1)
    places = np.arange(len(order)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    neighbors[problem.tails[order], places] = problem.heads[order]
    passed = [tails]
    for _ in range(int(distances[tails, heads].max())):
        current = passed[-1].copy()
        far = np.flatnonzero(distances[current, heads] > 1)
        following = heads.copy()
        if len(far):
            nodes, ends = current[far], heads[far]
            near = neighbors[nodes]
            good = (near >= 0) & (distances[near, ends[:, None]] == distances[nodes, ends][:, None] - 1)
            chosen = (nodes + ends) % good.sum(axis=1)
            following[far] = near[np.arange(len(far)), np.argmax(np.cumsum(good, axis=1) > chosen[:, None], axis=1)]
        passed.append(following)
    return np.stack(passed, axis=1)
