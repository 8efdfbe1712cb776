"""Breadth-first broadcast on links of different latencies, for a given size.

Linear program (14) of the direct-connect paper makes every link count with its latency, used or not.  Here a link into
a rank brings nothing before its latency alpha is over, then its bandwidth B for U - alpha.  All that only links of a
set S can bring must fit into what they bring together, so

    U = max over nonempty S of the least U with sum over S of B max(0, U - alpha) >= c(S) M / N,

which is the best of (14) over all choices of links to use (section E.3, Theorem 19 generalized).  Every inverse is of a
piecewise linear function, and exact.  Steps are those of distances in hops, however slow the only link is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import StepSchedule, schedule_time
from ...schedules.traffic.collective import Direction
from ...support.arrays import IntArray
from ...support.validation import as_kind
from ...topologies import Topology
from .problem import MAX_CHUNKS, BfbProblem, read_network, schedule_of

if TYPE_CHECKING:
    from ...solvers.bfb.link_masks import Groups

CHUNKS_TRIED = 16
MAX_LINKS = 10  # into a rank: all sets of them are looked at, in exact fractions
NS_PER_US = 1000


class LinkCost(NamedTuple):
    """Alpha-beta cost of a link."""

    latency: Fraction  # µs
    rate: Fraction  # units of data per µs: bytes, shards or chunks


Demand = tuple[tuple[LinkCost, ...], int]
"""A set of links into a rank, in bytes per µs, and how many shards only they can bring."""


class TimedBfb(NamedTuple):
    """Breadth-first broadcast for one size."""

    schedule: StepSchedule  # in whole chunks
    time: Fraction  # µs, worked out from the schedule: see `StepSchedule.time`
    limit: Fraction  # µs that it takes if shards can be cut anywhere; `time` is more by what whole chunks cost


def timed_bfb(topology: Topology, num_bytes: int, chunks: int | None, direction: Direction = "broadcast") -> TimedBfb:
    """Build the breadth-first broadcast of least time for so many bytes in all, of up to 16 chunks per shard if any."""
    from ...solvers.bfb.balanced_shares import share_out

    tried = range(1, CHUNKS_TRIED + 1) if chunks is None else (chunks,)
    problem, demands = demands_of(topology, direction)
    shard = Fraction(num_bytes, topology.num_ranks)
    limit = sum(divisible_times(demands, shard), Fraction(0))
    parts, times = _best_chunks(demands, shard, tried, limit)
    capacities = _capacities(problem, topology, times, shard / parts)
    schedule = schedule_of(problem, parts, share_out(problem.intake, parts, capacities), direction)
    return TimedBfb(schedule, schedule_time(schedule, topology, num_bytes), limit)


def _best_chunks(
    demands: Sequence[set[Demand]], shard: Fraction, tried: Iterable[int], limit: Fraction
) -> tuple[int, tuple[Fraction, ...]]:
    best: tuple[int, tuple[Fraction, ...]] = 0, ()
    for chunks in tried:
        times = tuple(
            max(indivisible_time(_scaled(costs, shard / chunks), shards * chunks) for costs, shards in step)
            for step in demands
        )
        if not best[0] or sum(times) < sum(best[1]):
            best = chunks, times
        if sum(times) == limit:
            break
    return best


def divisible_times(demands: Sequence[set[Demand]], shard: Fraction) -> tuple[Fraction, ...]:
    """Least time of each step, in µs, with divisible shards of so many bytes."""
    return tuple(max(divisible_time(_scaled(costs, shard), shards) for costs, shards in step) for step in demands)


def _scaled(costs: Iterable[LinkCost], unit: Fraction) -> list[LinkCost]:
    """Express rates in units of `unit` bytes."""
    return [LinkCost(latency, rate / unit) for latency, rate in costs]


def divisible_time(costs: Sequence[LinkCost], amount: int) -> Fraction:
    """Least time in which links deliver a divisible amount together."""
    rate, missed, time = Fraction(0), Fraction(0), Fraction(0)
    for cost in sorted(costs):
        if rate and time <= cost.latency:
            break
        rate += cost.rate
        missed += cost.rate * cost.latency
        time = (amount + missed) / rate
    return time


def indivisible_time(costs: Sequence[LinkCost], amount: int) -> Fraction:
    """Least time in which links deliver a number of indivisible pieces, each over one link."""
    time = divisible_time(costs, amount)
    brought = [_pieces(cost, time) for cost in costs]
    while sum(brought) < amount:
        following = [cost.latency + (count + 1) / cost.rate for cost, count in zip(costs, brought, strict=True)]
        time = min(following)
        brought = [count + (next_time == time) for count, next_time in zip(brought, following, strict=True)]
    return time


def _pieces(cost: LinkCost, time: Fraction) -> int:
    return int(max(Fraction(0), time - cost.latency) * cost.rate)


def demands_of(topology: Topology, direction: Direction) -> tuple[BfbProblem, list[set[Demand]]]:
    """For each distance, the demands on sets of links into ranks; sets with equal costs are kept once."""
    from ...solvers.bfb.link_masks import groups_at, max_in_degree

    as_kind(topology, Topology, "the topology", hint=" without switches")
    problem = read_network(topology, direction)
    network = problem.intake
    if max_in_degree(network) > MAX_LINKS:
        raise UnsupportedError(
            f"{max_in_degree(network)} links lead into a rank of {topology}; expected at most {MAX_LINKS} where a "
            "size is planned for"
        )
    costs = [LinkCost(link.latency, link.bandwidth * NS_PER_US) for link in topology.links]
    demands: list[set[Demand]] = [set() for _ in range(network.diameter)]
    for rank in range(network.num_ranks):
        into = [costs[number] for number in network.links[network.first[rank] : network.first[rank + 1]]]
        for distance in range(1, int(network.hops[rank].max()) + 1):
            demands[distance - 1] |= _rank_demands(groups_at(network, rank, distance), into)
    return problem, demands


def _rank_demands(groups: Groups, into: Sequence[LinkCost]) -> set[Demand]:
    """Demands on sets of links that are unions of masks; other sets are dominated by a subset."""
    masks = dict(zip(groups.masks[:, 0].tolist(), np.diff(groups.starts).tolist(), strict=True))
    unions = {0}
    for mask in masks:
        unions |= {mask | union for union in unions}
    return {
        (
            tuple(sorted(cost for place, cost in enumerate(into) if union >> place & 1)),
            sum(count for mask, count in masks.items() if not mask & ~union),
        )
        for union in unions
        if union
    }


def _capacities(problem: BfbProblem, topology: Topology, times: Sequence[Fraction], piece: Fraction) -> IntArray:
    """Chunks that each link can deliver in each step, links in the order of the network's arrays."""
    links = [topology.links[number] for number in problem.intake.links]
    costs = _scaled((LinkCost(link.latency, link.bandwidth * NS_PER_US) for link in links), piece)
    most = problem.intake.num_ranks * MAX_CHUNKS  # no link is asked for more
    return np.array([[min(_pieces(cost, time), most) for cost in costs] for time in times], dtype=np.int64)
