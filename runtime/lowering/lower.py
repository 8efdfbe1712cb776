"""Lowering of schedules of trees, steps and paths to per-rank programs of thread blocks.

One global order of all transfers, in which each comes after all that it waits for, makes programs free of deadlocks;
see docs/explanation/programs.md for the order and the proof.  Receiving and sending on are never fused, because RCCL
from ROCm 6.1 on launches no fused steps (ROCm/rccl#1005).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...errors import TooLargeError, UnsupportedError
from ...schedules import (
    COLLECTIVES,
    Allreduce,
    AllToAllvSchedule,
    AnyStepSchedule,
    Collective,
    FlowSchedule,
    Forest,
    Schedule,
    StepAllreduce,
    StepSchedule,
    TreeSchedule,
)
from ...schedules.traffic.collective import CollectiveName, as_collective
from ...support.validation import shown
from ..programs.channels import assign_channels
from ..programs.checks import check_counts
from ..programs.layout import Layout
from ..programs.program import Program
from ..programs.transformations import replicated
from .fitting import LoweringOptions, check_fitting, lowered
from .flows import lower_flow, lower_stages
from .rank_writer import Known, write_rank
from .step_transfers import check_step_halves, joined_hops, step_shares, step_trees
from .tree_transfers import (
    MAX_TRANSFERS,
    Hop,
    Strand,
    check_forest,
    check_halves,
    cut_strands,
    ordered_hops,
    pieces,
    shard_chunks,
    strands_of,
)

_Routed = tuple[Layout, tuple[int, ...], list[Strand], list[Hop]]


def lower(
    schedule: Schedule,
    collective: CollectiveName | Collective,
    *,
    max_steps: int = 64,
    max_count: int = 71,
    channels: int = 1,
    instances: int = 1,
    name: str | None = None,
) -> Program:
    """Lower a schedule to an out-of-place program.

    Parameters
    ----------
    schedule : Schedule
        Trees that span all ranks, the weights of each rank's trees adding up to ``trees_per_root`` times the weight of
        its shard; or steps, in which every rank gets every shard from ranks that hold what they send, and in a
        reduce-scatter no part of it twice.  Or a FlowSchedule: paths, those of two ranks carrying
        ``chunks_per_unit`` times the traffic between them.  Or an AllToAllvSchedule, which becomes exactly what it
        says, a chunk being the largest amount that all its parts are multiples of.
    collective : str or Collective
        What the schedule is for: ``"allgather"`` for direction "broadcast", ``"reduce_scatter"`` for direction
        "reduce", ``"allreduce"`` for both; a forest with one root also ``"broadcast"`` and ``"reduce"``.  The
        last two are for ``"all_to_allv"``, or with equal traffic for ``"all_to_all"``.
    max_steps : int
        Steps that one thread block may have.  A connection with more transfers is spread over several channels.
    max_count : int
        Chunks that one step may move.
    channels : int
        Channels that the transfers of every connection are dealt out to at least, where it has as many.  More channels
        mean more thread blocks at work at the same time.
    instances : int
        Parts that every transfer is divided into, each with thread blocks and channels of its own; see
        `collopt.runtime.programs.transformations` for how the two differ, and go together.
    name : str or None
        Name of the program; that of the collective if left out.

    Returns
    -------
    Program
        Its chunks are laid out as `collopt.runtime.programs.layout` says: the input of allgather and the output of
        reduce_scatter hold the own shard, everything else all chunks; broadcast has an input, and reduce an output, on
        the root alone.  An all-to-all(v) has for each rank what the ranks have for each other, its own part included;
        scratch, where a rank keeps what it passes on, is used again and again.  The buffer of an allreduce is divided
        among the roots in proportion to their weights, in rank order, which nobody sees from outside.

    Raises
    ------
    UnsupportedError
        If the schedule is not for this collective, its weights do not add up, a parameter is not positive, or the
        chunks are too many to be written down.
    ProgramError
        If a tree does not span the ranks, a schedule in steps does not bring every shard to every rank, or paths do
        not carry what their ranks have for each other.
    CertificateError
        If an AllToAllvSchedule does not bring everything where it belongs.

    Examples
    --------
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> print(lower(forest, "allgather"))
    allgather: allgather on 2 ranks, 2 chunks, 6 steps, 1 channels
    """
    options = LoweringOptions(max_steps, max_count, channels, instances)
    check_counts(options._asdict())
    if not isinstance(name, str | None):
        raise UnsupportedError(f"name is {shown(name)}; expected text, or None for that of the collective")
    collective = as_collective(collective, COLLECTIVES.values(), "there is no lowering for")
    check_fitting(schedule, collective)
    with _collector_paused():
        return replicated(lowered(schedule, collective, options, name or collective.name), instances)


lowered.register(FlowSchedule)(lower_flow)
lowered.register(AllToAllvSchedule)(lower_stages)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Spare millions of objects, none of which is part of a cycle, the search for cycles, which takes longer."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@lowered.register(Forest)
def _lowered_forest(schedule: Forest, collective: Collective, options: LoweringOptions, name: str) -> Program:
    roots = int((schedule.root_weights > 0).sum())
    if collective.has_one_root and roots != 1:
        raise UnsupportedError(f"{collective} was requested, but {roots} ranks have data; expected one, the root")
    check_forest(schedule)
    return _written(_routed_trees(schedule, collective, options.max_count), collective, options, name)


@lowered.register(Allreduce)
def _lowered_allreduce(schedule: Allreduce, collective: Collective, options: LoweringOptions, name: str) -> Program:
    for forest in schedule.forests:
        check_forest(forest)
    check_halves(schedule)
    return _written(_routed_trees(schedule, collective, options.max_count), collective, options, name)


@lowered.register(StepSchedule)
def _lowered_steps(schedule: AnyStepSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    return _written(_routed_steps(schedule, collective, options), collective, options, name)


@lowered.register(StepAllreduce)
def _lowered_step_allreduce(
    schedule: StepAllreduce, collective: Collective, options: LoweringOptions, name: str
) -> Program:
    check_step_halves(schedule)
    return _lowered_steps(schedule, collective, options, name)


def _written(routed: _Routed, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Write the programs of all ranks."""
    max_steps, max_count, channels, _ = options
    layout, shards, strands, hops = routed
    sizes = [strands[hop.strand].chunks if hop.strands == 1 else _chunks_of(hop, strands) for hop in hops]
    lanes = assign_channels([(hop.sender, hop.receiver) for hop in hops], sizes, max_steps, channels)
    # Numbers of hops and not hops with their channels: there are millions.
    events: list[list[int]] = [[] for _ in shards]
    for number, hop in enumerate(hops):
        events[hop.sender].append(number)
        events[hop.receiver].append(number)
    known = Known(layout, strands, hops, sizes, lanes, max_steps)
    ranks = tuple(
        write_rank(known, rank, own, _copies(rank, layout, shards, max_count)) for rank, own in enumerate(events)
    )
    return Program(name, collective, len(shards), layout.chunks, ranks, shards=_given(collective, shards))


def _given(collective: Collective, shards: tuple[int, ...]) -> tuple[int, ...]:
    """Shards as programs list them: not those that nobody sees, or that are equal."""
    return () if collective.has_two_phases or len(set(shards)) == 1 else shards


def _layout(collective: Collective, shards: tuple[int, ...]) -> Layout:
    return Layout.of(collective, len(shards), sum(shards), _given(collective, shards))


def _routed_trees(schedule: TreeSchedule, collective: Collective, max_count: int) -> _Routed:
    """Lay out the collective; chunks of every rank's shard, strands, and hops in the global order."""
    shards = shard_chunks(schedule)
    transfers = len(schedule.forests) * (schedule.num_ranks - 1) * (sum(shards) // max_count)
    _check_size("trees", sum(shards), transfers, max_count, "plan with fewer trees per root")
    strands = strands_of(schedule, shards, max_count)
    return _layout(collective, shards), shards, strands, ordered_hops(schedule, strands)


def _routed_steps(schedule: AnyStepSchedule, collective: Collective, options: LoweringOptions) -> _Routed:
    """Return the same of a schedule in steps."""
    trees = {half.direction: step_trees(half) for half in schedule.schedules}
    shards, shares = step_shares(schedule, trees)
    max_count, layout = options.max_count, _layout(collective, shards)
    transfers = len(trees) * (schedule.num_ranks - 1) * (sum(shards) // max_count)
    _check_size("steps", sum(shards), transfers, max_count, "cut shards into fewer chunks")
    strands = cut_strands(shares, shards, max_count)
    return layout, shards, strands, joined_hops(trees, strands, max_count, options.borders(layout))


def _check_size(what: str, chunks: int, transfers: int, max_count: int, remedy: str) -> None:
    """Refuse a division of the data so fine that writing it down would take all memory."""
    if transfers > MAX_TRANSFERS:
        raise TooLargeError(
            f"the {what} divide the data into {chunks} chunks, which takes {transfers} transfers of {max_count} chunks "
            f"each; expected at most {MAX_TRANSFERS}: {remedy}"
        )


def _chunks_of(hop: Hop, strands: Sequence[Strand]) -> int:
    last = strands[hop.strand + hop.strands - 1]
    return last.first + last.chunks - strands[hop.strand].first


def _copies(rank: int, layout: Layout, shards: Sequence[int], max_count: int) -> list[tuple[int, int]]:
    """(first chunk, count) of what a rank takes from its own input as it is."""
    if layout.reduces and len(shards) > 1:
        return []
    begin, end = layout.input_range(rank)
    return pieces(begin, end, max_count)
