"""Breadth-first broadcast: the best schedule that brings every shard to every rank in the fewest hops.

Linear program (1) of the direct-connect paper asks how evenly links can share the work of a step; `bfb_costs` answers
it with exact formulas, and here flows of whole chunks turn the answer into a schedule.  A reduce-scatter is the reverse
of an allgather on the transposed network (Corollary 1.1), an allreduce is both.

All such schedules take as many steps as the network has hops (Theorem 15).  On many networks they also reach the
least bandwidth time that any schedule can have; where they do not, `Plan.gap` says by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from ...schedules import AnyStepSchedule, StepAllreduce, StepSchedule, as_bytes
from ...schedules.trees.forest import Direction
from ...topologies import DirectGraph, Topology
from ..from_schedule import proved_plan
from ..plans.plan import Plan
from ..plans.stages import Trace
from ..trees.problem import check_collective, check_request
from .costs import BfbLoad, best_chunks, bfb_cost, bfb_loads, chunked_cost, fastest_chunks
from .latencies import MOST_LINKS, timed_bfb
from .problem import MOST_CHUNKS, BfbNetwork, as_chunks, read_network, schedule_of

if TYPE_CHECKING:
    from ...solvers.bfb.load_balancing import BusiestSet

__all__ = ["BfbLoad", "best_chunks", "bfb_cost", "bfb_loads", "bfb_schedule", "chunked_cost", "plan_bfb"]

CHUNKS_TRIED = 256
"""Where an exact schedule needs more than `MOST_CHUNKS`."""

DIRECTIONS: dict[str, tuple[Direction, ...]] = {
    "allgather": ("broadcast",),
    "reduce_scatter": ("reduce",),
    "allreduce": ("reduce", "broadcast"),
}


def bfb_schedule(
    network: DirectGraph | Topology, *, chunks: int | None = None, direction: Direction = "broadcast"
) -> StepSchedule:
    """Build the breadth-first broadcast of the least bandwidth time.

    Parameters
    ----------
    network : DirectGraph or Topology
        Without switches; every rank reaches every other.  Links may differ in bandwidth; for links that differ in
        latency, see `collopt.planners.bfb.latencies.timed_bfb`.
    chunks : int, optional
        Pieces that each shard is cut into.  By default as many as the optimum of linear program (1) needs; if these are
        more than 2^20, which takes links by the dozen or of odd bandwidths, then the best number up to 256.
    direction : {"broadcast", "reduce"}
        With "reduce" a reduce-scatter: the reverse of the allgather on the transposed network.

    Returns
    -------
    StepSchedule
        Best for its number of chunks; `collopt.schedules.verified_step_loads` checks that it is a schedule.

    Raises
    ------
    UnsupportedError
        If there are switches or too many ranks, or an option is not of its form.
    BoundError
        If some rank cannot reach another.
    CapacityOverflowError
        If exact arithmetic would leave int64.

    Examples
    --------
    >>> from collopt.topologies import torus
    >>> schedule = bfb_schedule(torus(4, 4))
    >>> schedule
    <StepSchedule: allgather of 16 ranks, 4 steps, 4 chunks per shard, 320 sends>
    >>> schedule.inverse_rate(torus(4, 4))
    Fraction(15, 4)
    """
    from ...solvers.bfb.load_balancing import busiest_sets

    parts = None if chunks is None else as_chunks(chunks)
    asked = read_network(network, direction)
    return _schedule(asked, busiest_sets(asked.intake), parts, direction)


def plan_bfb(topology: Topology, collective: str, *, chunks: int | None = None, size: int | str | None = None) -> Plan:
    """Plan a collective by breadth-first broadcast, by its reverse, or by both.

    Parameters
    ----------
    topology : Topology
        As for `bfb_schedule`.
    collective : str
        ``"allgather"``, ``"reduce_scatter"`` or ``"allreduce"``.
    chunks : int, optional
        As for `bfb_schedule`.
    size : int or str, optional
        Bytes in all, such as ``"1M"``, that links of different latency should be used best for; see
        `collopt.planners.bfb.latencies.timed_bfb`.  Where all latencies are equal it makes no difference.  Where more
        links lead into a rank than that takes, the schedule is that for large sizes, as ``provenance["planned_for"]``
        says.

    Returns
    -------
    Plan
        Already verified; see `Plan.gap` for what it misses.

    Raises
    ------
    UnsupportedError
        As for `bfb_schedule`, or for another collective.
    BoundError, CapacityOverflowError
        As for `bfb_schedule`.

    Examples
    --------
    >>> from collopt.topologies import hypercube
    >>> plan = plan_bfb(hypercube(4, bandwidth=25), "allreduce")
    >>> plan.gap, plan.schedule.num_steps
    (Fraction(0, 1), 8)
    """
    check_request(topology, collective)
    check_collective(collective, tuple(DIRECTIONS), "breadth-first broadcast does not carry out")
    count = None if chunks is None else as_chunks(chunks)
    num_bytes = None if size is None else as_bytes(size)
    given = {"chunks": count, "size": num_bytes}
    options: dict[str, int | str] = {name: value for name, value in given.items() if value is not None}
    trace = Trace()
    planned_for = _size_to_plan_for(topology, DIRECTIONS[collective], num_bytes, trace)
    parts: list[StepSchedule] = []
    for direction in DIRECTIONS[collective]:
        with trace.stage("shares" if direction == "broadcast" else "reduction shares"):
            parts.append(_one_way(topology, direction, count, planned_for))
    schedule: AnyStepSchedule = StepAllreduce(*parts) if len(parts) > 1 else parts[0]
    trace.note("steps", schedule.num_steps)
    trace.note("diameter", parts[0].num_steps)
    return proved_plan(topology, collective, schedule, "bfb", options, trace)


def _one_way(topology: Topology, direction: Direction, chunks: int | None, size: int | None) -> StepSchedule:
    if size is None:
        return bfb_schedule(topology, chunks=chunks, direction=direction)
    return timed_bfb(topology, size, chunks=chunks, direction=direction).schedule


def _size_to_plan_for(
    topology: Topology, directions: Sequence[Direction], size: int | None, trace: Trace
) -> int | None:
    """Return the size if it makes a difference and `timed_bfb` can look at all sets of links into ranks."""
    if size is None or len({link.latency for link in topology.links}) < 2:
        return None
    tails, heads, _, _ = topology.arrays
    entered = (heads if direction == "broadcast" else tails for direction in directions)
    if max(int(np.bincount(ends).max()) for ends in entered) > MOST_LINKS:
        trace.note("planned_for", f"large sizes, as more than {MOST_LINKS} links lead into a rank")
        return None
    trace.note("planned_for", f"{size} bytes")
    return size


def _schedule(asked: BfbNetwork, sets: Sequence[BusiestSet], chunks: int | None, direction: Direction) -> StepSchedule:
    from ...solvers.bfb.balanced_shares import share_out
    from ...solvers.bfb.chunk_times import chunk_capacities, chunked_times

    times: Sequence[Fraction]
    if chunks is None and (needed := lcm(*(each.load.denominator for each in sets))) <= MOST_CHUNKS:
        chunks, times = needed, [each.load * needed for each in sets]
    else:
        chunks = fastest_chunks(asked, sets, CHUNKS_TRIED) if chunks is None else chunks
        times = chunked_times(asked.intake, tuple(sets), chunks)
    return schedule_of(asked, chunks, share_out(asked.intake, chunks, chunk_capacities(asked.intake, times)), direction)
