"""Greedy synthesis on the time-expanded network, in the manner of TACOS (Won et al., MICRO 2024).

Time goes from event to event.  A free link is matched with a chunk that its tail has, and that its head neither has nor
is being sent; fast links choose first.  A link is busy with a chunk as long as its bandwidth says, and the chunk can be
passed on when it has arrived, not before.  TACOS chooses chunks by chance.  Here chance decides only between those that
the fewest ranks have or are being sent, so that few copies of a chunk cross slow links.  Where TACOS takes rings for
switches, a hop through switches here keeps each link on its way busy, as long as that link's own bandwidth says.

The hops of one chunk are a tree.  A reduce-scatter is the reverse of an allgather, an allreduce is both.
"""

import random
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Forest
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...support.arrays import IntArray
from ...support.seed import current_seed
from ...support.validation import as_whole
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem
from .fixed_pattern import Hops, LinkLoads, Route, forest_along, plan_baseline

USUAL_CHUNKS = 16  # per shard, or fewer to stay within `USUAL_WORK`
USUAL_WORK, MAX_WORK = 2**20, 2**23  # hops times chunks: some seconds, and half a minute
MAX_MATCHED_RANKS = 256


@register_planner("greedy", EVERY_ROOT)
def plan_greedy(
    topology: Topology,
    collective: AnyCollective,
    *,
    chunks: int | None = None,
    weights: Sequence[object] | None = None,
) -> Plan:
    """Plan chunks matched greedily with links over time, in the manner of TACOS.

    `chunks` per shard, up to 16 by default.

    Another seed, by `collopt.solvers.seeded`, gives another plan.
    """
    count = None if chunks is None else as_whole(chunks, "chunks", high=MAX_WORK)
    options = {} if count is None else {"chunks": count}
    return plan_baseline(topology, collective, "greedy", partial(_matched_forest, count), weights=weights, options=options)


class _Hop(NamedTuple):
    """A hop from rank to rank, and the time of a chunk of weight 1 on each of its links."""

    cost: int  # the largest of `costs`
    tail: int
    head: int
    costs: tuple[int, ...]
    route: Route


def _matched_forest(count: int | None, problem: TreeProblem) -> Forest:
    ranks, roots = problem.topology.num_ranks, np.flatnonzero(problem.root_weights)
    if ranks > MAX_MATCHED_RANKS:
        raise UnsupportedError(f"greedy synthesis is for up to {MAX_MATCHED_RANKS} ranks; {problem.topology} has more")
    hops = _hops(problem)
    work = len(hops) * len(roots)
    count = count or max(min(USUAL_CHUNKS, USUAL_WORK // work), 1)
    if work * count > MAX_WORK:
        raise UnsupportedError(
            f"{len(hops)} hops and {count * len(roots)} chunks on {problem.topology} take too long to match; "
            f"expected a product of at most {MAX_WORK}: take fewer chunks or ranks"
        )
    trees = np.repeat(roots, count)
    weights = problem.root_weights[trees]
    brought = _match(hops, ranks, trees.tolist(), weights.tolist())
    return forest_along(problem, count, trees, weights, brought, [hop.route for hop in hops])


def _hops(problem: TreeProblem) -> list[_Hop]:
    """List the hops between all pairs of ranks that have a way past no other rank, the fastest first."""
    hops, costs, ranks = Hops(problem), LinkLoads(problem.capacities).costs, problem.topology.num_ranks
    pairs = [(tail, head) for tail in range(ranks) for head in hops.distances(tail) if head < ranks]
    routes = [(tail, head, route) for tail, head in pairs for route in hops.routes(tail, head)]
    times = [tuple(costs[link] for link in route.links) for _, _, route in routes]
    return sorted(
        _Hop(max(own), tail, head, own, route) for own, (tail, head, route) in zip(times, routes, strict=True)
    )


def _match(hops: Sequence[_Hop], num_ranks: int, roots: Sequence[int], weights: Sequence[int]) -> IntArray:
    """Match chunks, given by root and weight, with hops until all are everywhere.

    Shapes: returns the hop that brings each chunk to each rank, int64 (chunks, ranks).
    """
    chance = random.Random(current_seed())
    brought = np.zeros((len(roots), num_ranks), dtype=np.int64)
    everything = (1 << len(roots)) - 1  # sets of chunks are bits
    holdings = [sum(1 << chunk for chunk, root in enumerate(roots) if root == rank) for rank in range(num_ranks)]
    missing = [everything ^ own for own in holdings]
    copies = [everything, *[0] * num_ranks]  # the chunks by how many more ranks have them, or are being sent them
    free = dict.fromkeys((link for hop in hops for link in hop.route.links), 0)
    groups = [list(group) for _, group in groupby(enumerate(hops), key=lambda pair: pair[1].cost)]
    events = [(0, 0, 0)]  # time, rank, and the chunks that have arrived there by then
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, rank, arrived = heappop(events)
            holdings[rank] |= arrived
        for group in groups:
            chance.shuffle(group)
            for number, (cost, tail, head, costs, route) in group:
                choice = holdings[tail] & missing[head]
                if not choice or max(map(free.__getitem__, route.links)) > now:
                    continue
                level = next(number for number, chunks in enumerate(copies) if chunks & choice)
                chunk = _some_bit(choice & copies[level], chance.randrange(len(roots)))
                for bits, place in ((copies, level), (copies, level + 1), (missing, head)):
                    bits[place] ^= 1 << chunk
                brought[chunk, head] = number
                for link, time in zip(route.links, costs, strict=True):
                    free[link] = now + weights[chunk] * time
                    heappush(events, (free[link], head, 1 << chunk if time == cost else 0))
    return brought


def _some_bit(bits: int, first: int) -> int:
    """Return the lowest bit that is not below `first`, or else the lowest of all."""
    later = bits >> first << first or bits
    return (later & -later).bit_length() - 1
