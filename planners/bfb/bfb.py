"""Breadth-first broadcast (BFB): the schedule with the least bandwidth time among those in the fewest hops.

Linear program (1) of the direct-connect paper asks how evenly links can share the work of a step; exact formulas answer
it, and flows of whole chunks turn the answer into a schedule.  A reduce-scatter is the reverse of an allgather on the
transposed network (Corollary 1.1), an allreduce is both.  All such schedules take as many steps as the network has hops
(Theorem 15); on many networks they also reach the least bandwidth time of any schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from ...errors import UnsupportedError
from ...schedules import AnyStepSchedule, StepAllreduce, StepCost, StepSchedule, as_bytes
from ...schedules.traffic.collective import EVERY_ROOT, AnyCollective, Direction, as_collective
from ...support.validation import shown
from ...topologies import DirectGraph, Topology
from ..from_schedule import bound_of_schedule
from ..plans.plan import Plan, proved_plan
from ..plans.stages import Trace
from ..trees.problem import check_request
from .latencies import MAX_LINKS, timed_bfb
from .problem import MAX_CHUNKS, BfbProblem, as_chunks, as_graph, read_network, schedule_of

if TYPE_CHECKING:
    from ...solvers.bfb.load_balancing import BusiestSet

CHUNKS_TRIED = 256  # where an exact schedule needs more than `MAX_CHUNKS`


def bfb_schedule(
    network: DirectGraph | Topology, *, chunks: int | None = None, direction: Direction = "broadcast"
) -> StepSchedule:
    """Build the breadth-first broadcast of the least bandwidth time.

    It is the best for its number of chunks; `collopt.schedules.verified_loads` checks that it is a schedule.
    Raises `UnsupportedError` if there are switches or too many ranks, or an option is not of its form; `BoundError` if
    some rank cannot reach another; `CapacityOverflowError` if exact arithmetic would leave int64.

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
    parts = None if chunks is None else as_chunks(chunks)
    return _schedule(*_sets(network, direction), parts, direction)


def plan_bfb(
    topology: Topology, collective: AnyCollective, *, chunks: int | None = None, size: int | str | None = None
) -> Plan:
    """Plan a collective by breadth-first broadcast, by its reverse, or by both, and verify the plan.

    Raises `UnsupportedError` as for `bfb_schedule`, or for another collective.

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
    count = None if chunks is None else as_chunks(chunks)
    num_bytes = None if size is None else as_bytes(size)
    given = {"chunks": count, "size": num_bytes}
    options: dict[str, int | str] = {name: value for name, value in given.items() if value is not None}
    trace = Trace()
    planned_for = _relevant_size(topology, collective.phases, num_bytes, trace)
    parts: list[StepSchedule] = []
    for direction in collective.phases:
        with trace.stage("shares" if direction == "broadcast" else "reduction shares"):
            if planned_for is None:
                parts.append(bfb_schedule(topology, chunks=count, direction=direction))
            else:
                parts.append(timed_bfb(topology, planned_for, count, direction).schedule)
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


def _schedule(
    problem: BfbProblem, sets: Sequence[BusiestSet], chunks: int | None, direction: Direction
) -> StepSchedule:
    from ...solvers.bfb.balanced_shares import share_out
    from ...solvers.bfb.load_balancing import chunk_capacities, chunked_times

    times: Sequence[Fraction]
    if chunks is None and (needed := lcm(*(each.load.denominator for each in sets))) <= MAX_CHUNKS:
        chunks, times = needed, [each.load * needed for each in sets]
    else:
        chunks = fastest_chunks(problem, sets, CHUNKS_TRIED) if chunks is None else chunks
        times = chunked_times(problem.intake, tuple(sets), chunks)
    return schedule_of(
        problem, chunks, share_out(problem.intake, chunks, chunk_capacities(problem.intake, times)), direction
    )


def bfb_cost(graph: DirectGraph | Topology, *, solver: str = "auto") -> StepCost:
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
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise UnsupportedError(f"solver is {shown(solver)}; expected one of {', '.join(SOLVERS)}")
    graph = as_graph(graph)
    return _cost(graph, SOLVERS[solver](graph))


def fastest_chunks(network: BfbProblem, sets: Sequence[BusiestSet], most: int) -> int:
    """Find the least number of chunks per shard, up to `most`, that takes the least time; from `_sets`, the others."""
    from ...solvers.bfb.load_balancing import chunked_times, least_chunked_times

    least, best, floor = Fraction(0), 0, sum((each.load for each in sets), Fraction(0))
    for chunks in range(1, most + 1):
        if best and sum(least_chunked_times(network.intake, tuple(sets), chunks), Fraction(0)) >= least * chunks:
            continue
        total = sum(chunked_times(network.intake, tuple(sets), chunks), Fraction(0)) / chunks
        if not best or total < least:
            least, best = total, chunks
        if least == floor:
            break
    return best


def _sets(
    network: DirectGraph | Topology, direction: Direction = "broadcast"
) -> tuple[BfbProblem, tuple[BusiestSet, ...]]:
    from ...solvers.bfb.load_balancing import busiest_sets

    problem = read_network(network, direction)
    return problem, busiest_sets(problem.intake)


def _cost(graph: DirectGraph, loads: Sequence[Fraction]) -> StepCost:
    """Sum of the shards per arc over all steps."""
    return StepCost(len(loads), Fraction(graph.degree, graph.num_nodes) * sum(loads, Fraction(0)))


def _by_sets(method: str, graph: DirectGraph) -> list[Fraction]:
    from ...solvers.bfb.load_balancing import METHODS

    network = read_network(graph)
    return [found.load / network.unit for found in METHODS[method](network.intake)]


def _by_linear_programs(graph: DirectGraph) -> list[Fraction]:
    """One program of `collopt.formulations.bfb` for each distance, and its exact answer."""
    from ...formulations import bfb
    from ...solvers.highs.session import solve

    topology = Topology.from_graph(graph)
    programs = (bfb.build(topology, distance) for distance in range(1, graph.diameter + 1))
    return [max(solve(program).exact.values["busiest"].values()) for program in programs]


SOLVERS: dict[str, Callable[[DirectGraph], list[Fraction]]] = {
    **{method: partial(_by_sets, method) for method in ("auto", "subsets", "newton")},
    "lp": _by_linear_programs,
}
"""Ways to find the largest load of each step, in shards per arc."""
