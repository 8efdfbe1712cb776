"""Breadth-first broadcast (BFB): the schedule with the least bandwidth time among those in the fewest hops.

Exact formulas answer linear program (1) of the direct-connect paper, and flows of whole chunks make that a schedule.  A
reduce-scatter is the reverse of an allgather on the transposed network (Corollary 1.1), an allreduce is both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from math import lcm
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from ...errors import BoundError, UnsupportedError
from ...schedules import AnyStepSchedule, StepAllreduce, StepCost, StepSchedule, as_bytes
from ...schedules.collective import EVERY_ROOT, AnyCollective, Direction, as_collective
from ...support.arrays import IntArray
from ...support.validation import as_kind, as_whole, shown
from ...topologies import DirectGraph, Topology
from ..bounds import bound_of_schedule
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from ..trees.problem import check_request

if TYPE_CHECKING:
    from ...solvers.steps.load_balancing import BusiestSet, Groups, Intake, Shares


Solver = Literal["auto", "subsets", "newton", "lp"]
SOLVERS = get_args(Solver)
MAX_CHUNKS = 2**20
CHUNKS_TRIED = 256  # where an exact schedule needs more than `MAX_CHUNKS`
CHUNKS_TRIED_FOR_SIZE = 16
MAX_LINKS = 10  # into a rank: all sets of them are looked at, in exact fractions
NS_PER_US = 1000
MAX_RANKS = 2**13  # distances of all pairs take 6 bytes each, a schedule 40 bytes per send


class BfbProblem(NamedTuple):
    """Input of breadth-first broadcast: links in the direction from sources."""

    tails: IntArray  # int64 (links,); links are turned around for a reduce-scatter
    heads: IntArray  # int64 (links,)
    unit: Fraction  # bandwidth that counts as 1 in `intake`: GB/s of a topology, arcs of a graph
    intake: Intake  # links by the rank that they lead to, and distances


def read_network(network: DirectGraph | Topology, direction: Direction = "broadcast") -> BfbProblem:
    """Convert a network to a `BfbProblem`; raise if it is unsuitable."""
    from ...solvers.steps.load_balancing import intake

    if isinstance(network, DirectGraph):
        names: Sequence[Any] = range(network.num_nodes)
        (tails, heads, widths), unit = network.adjacency, Fraction(1)
    else:
        as_kind(network, Topology, "the network", hint=" or a DirectGraph")
        if network.switch_nodes:
            raise UnsupportedError(
                f"{network} has switches, such as {network.switch_nodes[0]!r}; expected direct links between ranks"
            )
        names, (tails, heads, widths, unit) = network.compute_nodes, network.arrays
    if len(names) > MAX_RANKS:
        raise UnsupportedError(f"there are {len(names)} ranks in {network.name}; expected at most {MAX_RANKS}")
    if direction == "reduce":
        tails, heads = heads, tails
    arranged = intake(len(names), tails, heads, widths)
    if (arranged.hops < 0).any():
        pair = np.argwhere(arranged.hops < 0)[0]
        source, rank = (names[end] for end in (pair if direction == "reduce" else pair[::-1]))
        raise BoundError(
            f"there is no path from rank {source!r} to rank {rank!r} in {network.name}; add links or leave ranks out"
        )
    return BfbProblem(tails, heads, unit * arranged.divisor, arranged)


def schedule_of(problem: BfbProblem, chunks: int, shares: Shares, direction: Direction) -> StepSchedule:
    """Turn intervals of shards into a schedule whose paths are the links of the network."""
    sends = shares.steps, shares.sources, shares.lower, shares.upper, shares.links
    starts = 2 * np.arange(len(problem.tails) + 1)
    ends = np.stack([problem.tails, problem.heads], axis=1).ravel()
    return StepSchedule(problem.intake.num_ranks, chunks, *sends, starts, ends, direction)


def bfb_schedule(
    network: DirectGraph | Topology, *, chunks: int | None = None, direction: Direction = "broadcast"
) -> StepSchedule:
    """Build the breadth-first broadcast of the least bandwidth time.

    It is the best for its number of chunks.  Raises `UnsupportedError` if there are switches or too many ranks, or an
    option is not of its form; `BoundError` if some rank cannot reach another; `CapacityOverflowError` if exact
    arithmetic would leave int64.

    Parameters
    ----------
    network : DirectGraph or Topology
        Without switches; every rank reaches every other.  Links may differ in bandwidth; latencies do not count.
    chunks : int, optional
        Chunks per shard.  By default as many as the optimum of linear program (1) needs; if these are more than 2^20,
        the best number up to 256.
    direction : {"broadcast", "reduce"}
        With "reduce" a reduce-scatter: the reverse of the allgather on the transposed network.

    Examples
    --------
    >>> from collopt.topologies import torus
    >>> schedule = bfb_schedule(torus(4, 4))
    >>> schedule
    <StepSchedule: allgather of 16 ranks, 4 steps, 4 chunks per shard, 320 sends>
    >>> schedule.inverse_rate(torus(4, 4))
    Fraction(15, 4)
    """
    from ...solvers.steps.load_balancing import busiest_sets, chunk_capacities, chunked_times, share_out

    count = None if chunks is None else as_whole(chunks, "chunks", high=MAX_CHUNKS)
    if not isinstance(direction, str) or direction not in ("broadcast", "reduce"):
        raise UnsupportedError(f"direction is {shown(direction)}; expected 'broadcast' or 'reduce'")
    problem = read_network(network, direction)
    sets = busiest_sets(problem.intake)
    times: Sequence[Fraction]
    if count is None and (denominator := lcm(*(busiest.load.denominator for busiest in sets))) <= MAX_CHUNKS:
        count, times = denominator, [busiest.load * denominator for busiest in sets]
    else:
        count = fastest_chunks(problem, sets, CHUNKS_TRIED) if count is None else count
        times = chunked_times(problem.intake, tuple(sets), count)
    shares = share_out(problem.intake, count, chunk_capacities(problem.intake, times))
    return schedule_of(problem, count, shares, direction)


@register_planner("bfb", EVERY_ROOT)
def plan_bfb(
    topology: Topology, collective: AnyCollective, *, chunks: int | None = None, size: int | str | None = None
) -> Plan:
    """Plan breadth-first broadcast in steps, for networks without switches.

    Parameters
    ----------
    topology : Topology
        As for `bfb_schedule`.
    collective : str or Collective
        ``"allgather"``, ``"reduce_scatter"`` or ``"allreduce"``.
    chunks : int, optional
        As for `bfb_schedule`.
    size : int or str, optional
        Bytes in all, such as ``"1M"``, to plan for where links differ in latency.  Where more than ten links lead into
        a rank, the schedule is that for large sizes, as ``provenance["planned_for"]`` says.

    Examples
    --------
    >>> from collopt.topologies import hypercube
    >>> plan = plan_bfb(hypercube(4, bandwidth=25), "allreduce")
    >>> plan.gap, plan.schedule.num_steps
    (Fraction(0, 1), 8)
    """
    check_request(topology, collective)
    collective = as_collective(collective, EVERY_ROOT, "breadth-first broadcast does not implement")
    count = None if chunks is None else as_whole(chunks, "chunks", high=MAX_CHUNKS)
    num_bytes = None if size is None else as_bytes(size)
    options = {name: value for name, value in (("chunks", count), ("size", num_bytes)) if value is not None}
    trace = Trace()
    planned_for = _relevant_size(topology, collective.phases, num_bytes, trace)
    parts: list[StepSchedule] = []
    for direction in collective.phases:
        with trace.stage("shares" if direction == "broadcast" else "reduction shares"):
            if planned_for is None:
                parts.append(bfb_schedule(topology, chunks=count, direction=direction))
            else:
                parts.append(timed_bfb(topology, planned_for, count, direction))
    schedule: AnyStepSchedule = StepAllreduce(*parts) if len(parts) > 1 else parts[0]
    trace.note("steps", schedule.num_steps)
    trace.note("diameter", parts[0].num_steps)
    find = partial(bound_of_schedule, topology, collective, schedule)
    return proved_plan(topology, collective, schedule, "bfb", options, trace, find)


def _relevant_size(topology: Topology, directions: Sequence[Direction], size: int | None, trace: Trace) -> int | None:
    """Return the size if latencies matter and `timed_bfb` can enumerate the sets of links into ranks."""
    if size is None or len({link.latency for link in topology.links}) < 2:
        return None
    tails, heads, _, _ = topology.arrays
    entered = (heads if direction == "broadcast" else tails for direction in directions)
    if max(int(np.bincount(ends).max()) for ends in entered) > MAX_LINKS:
        trace.note("planned_for", f"large sizes, because a rank has more than {MAX_LINKS} incoming links")
        return None
    trace.note("planned_for", f"{size} bytes")
    return size


def bfb_cost(graph: DirectGraph | Topology, *, solver: Solver = "auto") -> StepCost:
    """Find T_L and T_B of the best breadth-first broadcast: the optimum of linear program (1), exactly.

    It is the `collopt.schedules.step_cost` of what `bfb_schedule` builds.  Raises `UnsupportedError` if there are
    switches, nodes differ in their number of ports, or for an unknown solver.

    Parameters
    ----------
    graph : DirectGraph or Topology
        Regular; every rank reaches every other.
    solver : {"auto", "subsets", "newton", "lp"}
        By all sets of links into a rank, by maximum flows, or by linear programs, which find the same; "auto" takes the
        first up to ten links and the second beyond.

    Examples
    --------
    >>> from collopt.topologies import hypercube
    >>> bfb_cost(hypercube(10))
    StepCost(steps=10, bandwidth_factor=Fraction(1023, 1024))
    """
    from ...solvers.steps.load_balancing import busiest_sets

    if not isinstance(solver, str) or solver not in SOLVERS:
        raise UnsupportedError(f"solver is {shown(solver)}; expected one of {', '.join(SOLVERS)}")
    if not isinstance(graph, DirectGraph):
        graph = as_kind(graph, Topology, "the topology", hint=" without switches").direct_graph()
    if solver == "lp":
        from ...formulations import bfb
        from ...solvers.lp.session import solve

        programs = (bfb.build(Topology.from_graph(graph), distance) for distance in range(1, graph.diameter + 1))
        loads = [max(solve(program).exact.values["busiest"].values()) for program in programs]
    else:
        network = read_network(graph)
        loads = [busiest.load / network.unit for busiest in busiest_sets(network.intake, method=solver)]
    return StepCost(len(loads), Fraction(graph.degree, graph.num_nodes) * sum(loads, Fraction(0)))


def fastest_chunks(network: BfbProblem, sets: Sequence[BusiestSet], limit: int) -> int:
    """Find the least number of chunks per shard, up to `limit`, that takes the least time."""
    from ...solvers.steps.load_balancing import chunked_times, least_chunked_times

    lowest, best, floor = Fraction(0), 0, sum((busiest.load for busiest in sets), Fraction(0))
    for chunks in range(1, limit + 1):
        if best and sum(least_chunked_times(network.intake, tuple(sets), chunks), Fraction(0)) >= lowest * chunks:
            continue
        total = sum(chunked_times(network.intake, tuple(sets), chunks), Fraction(0)) / chunks
        if not best or total < lowest:
            lowest, best = total, chunks
        if lowest == floor:
            break
    return best


class LinkCost(NamedTuple):
    """Alpha-beta cost of a link."""

    latency: Fraction  # µs
    rate: Fraction  # units of data per µs: bytes, shards or chunks


Demand = tuple[tuple[LinkCost, ...], int]
"""A set of links into a rank, in bytes per µs, and how many shards only they can bring."""


def timed_bfb(
    topology: Topology, num_bytes: int, chunks: int | None, direction: Direction = "broadcast"
) -> StepSchedule:
    """Build the breadth-first broadcast of least time for so many bytes in all, of up to 16 chunks per shard if any.

    A link of latency alpha into a rank brings its bandwidth B for U - alpha of the time U of a step.  What only links
    of a set S can bring has to fit into what they bring together: U is the largest of the least times with sum over S
    of B max(0, U - alpha) >= c(S) M / N.  That is the best of linear program (14) over all choices of links (E.3).
    """
    from ...solvers.steps.load_balancing import share_out

    counts = range(1, CHUNKS_TRIED_FOR_SIZE + 1) if chunks is None else (chunks,)
    problem, demands = demands_of(topology, direction)
    shard = Fraction(num_bytes, topology.num_ranks)
    limit = sum(divisible_times(demands, shard), Fraction(0))
    parts, best = 0, list[Fraction]()
    for count in counts:
        piece = shard / count
        times = [
            max(indivisible_time(_scaled(costs, piece), shards * count) for costs, shards in step) for step in demands
        ]
        if not parts or sum(times) < sum(best):
            parts, best = count, times
        if sum(times) == limit:
            break
    # Chunks that each link can deliver in each step, links in the order of the network's arrays.
    links = [topology.links[number] for number in problem.intake.links]
    costs = _scaled((LinkCost(link.latency, link.bandwidth * NS_PER_US) for link in links), shard / parts)
    chunk_limit = problem.intake.num_ranks * MAX_CHUNKS  # no link is asked for more
    capacities = np.array([[min(_pieces(cost, time), chunk_limit) for cost in costs] for time in best], dtype=np.int64)
    return schedule_of(problem, parts, share_out(problem.intake, parts, capacities), direction)


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
    from ...solvers.steps.load_balancing import groups_at

    problem = read_network(topology, direction)
    network = problem.intake
    if network.in_degree > MAX_LINKS:
        raise UnsupportedError(
            f"{network.in_degree} links lead into a rank of {topology}; expected at most {MAX_LINKS} where a "
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
