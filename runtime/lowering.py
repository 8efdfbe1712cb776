"""From schedules made of trees to per-rank programs.

`collopt.runtime.strands` says which chunks follow which trees, and puts all transfers of the program into one global
order: each rank sends a strand towards the root after it has received it from all its children, and away from the root
after it has received it from its parent, and a root spreads a strand after it has received it from all its children.
What has to come before is in each case at a lower level, so earlier in the order.

Sums.  The first contribution that a rank receives is added to its own input, into its output where that is to hold the
strand in the end, and into scratch otherwise; further ones are added there, one after the other in the global order.
The input is never written.  Scratch holds each strand that passes an inner rank once, so it is never larger than what
the rank does not keep: input less output.  An allreduce needs none.

Steps.  Each thread block runs its transfers in the global order.  A step waits for the step before it that dealt with
the same strand on the same rank: a send for the last receive, a receive that adds for the one that added before, and a
receive of a final sum for the send of the partial one that it overwrites.

No deadlock.  Suppose that some transfers never happen and take the first of them in the global order.  The earlier
steps of its sending and of its receiving thread block belong to earlier transfers, so they have finished; so do the
steps that its two ends wait for.  Both ends are therefore at this transfer and nothing holds them back, whether the
connection buffers data or not: a contradiction.  (Local copies wait for nothing.)  When a runtime runs the whole list
again for every slice of the data, the same holds for the order (slice, global order).

Thread blocks.  Every connection (sender, receiver, channel) gets a sending block on one rank and a receiving block on
the other; receiving and sending on are never fused, because RCCL from ROCm 6.1 on refuses to launch fused steps
(ROCm/rccl#1005).  It refuses to add while receiving too: see `collopt.runtime.unfused`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..errors import UnsupportedError
from ..schedules import COLLECTIVES, Allreduce, Forest, TreeSchedule
from ..topologies.validation import shown
from .channels import assign_channels
from .layout import ROOTED, Layout
from .options import check_counts
from .program import Program
from .rank_writer import Known, write_rank
from .strands import check_forest, check_halves, ordered_hops, pieces, shard_chunks, strands_of

__all__ = ["lower", "lower_allgather"]

MAX_TRANSFERS = 2**26
"""Some tens of GB as steps."""


def lower(
    schedule: TreeSchedule,
    collective: str,
    *,
    max_steps: int = 64,
    max_count: int = 71,
    channels: int = 1,
    name: str | None = None,
) -> Program:
    """Lower a schedule to an out-of-place program.

    Parameters
    ----------
    schedule : Forest or Allreduce
        Trees that span all ranks, the weights of each rank's trees adding up to ``trees_per_root`` times the weight of
        its shard.
    collective : str
        What the trees are for: ``"allgather"`` or ``"broadcast"`` for a forest of direction "broadcast",
        ``"reduce_scatter"`` or ``"reduce"`` for one of direction "reduce", ``"allreduce"`` for both.
    max_steps : int
        Steps that one thread block may have.  A connection with more transfers is spread over several channels.
    max_count : int
        Chunks that one step may move.
    channels : int
        Channels that every connection is spread over at least, where it has as many transfers.  More channels mean more
        thread blocks at work at the same time.
    name : str or None
        Name of the program; that of the collective if left out.

    Returns
    -------
    Program
        Its chunks are laid out as `collopt.runtime.layout` says: the input of allgather and the output of
        reduce_scatter hold the own shard, everything else all chunks; broadcast has an input, and reduce an output, on
        the root alone.  The buffer of an allreduce is divided among the roots in proportion to their weights, in rank
        order, which nobody sees from outside.

    Raises
    ------
    UnsupportedError
        If the schedule is not for this collective, its weights do not add up, a parameter is not positive, or the
        chunks are too many to be written down.
    ProgramError
        If a tree does not span the ranks.

    Examples
    --------
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> print(lower(forest, "allgather"))
    allgather: allgather on 2 ranks, 2 chunks, 6 steps, 1 channels
    """
    check_counts({"max_steps": max_steps, "max_count": max_count, "channels": channels})
    if not isinstance(name, str | None):
        raise UnsupportedError(f"name is {shown(name)}; expected text, or None for that of the collective")
    _check_purpose(schedule, collective)
    for forest in schedule.forests:
        check_forest(forest)
    with _collector_paused():
        return _lowered(schedule, collective, max_steps, max_count, channels, name or collective)


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


def _lowered(
    schedule: TreeSchedule, collective: str, max_steps: int, max_count: int, channels: int, name: str
) -> Program:
    shards = shard_chunks(schedule)
    _check_size(schedule, sum(shards), max_count)
    given = () if collective == "allreduce" or len(set(shards)) == 1 else shards
    layout = Layout.of(collective, schedule.num_ranks, sum(shards), given)
    strands = strands_of(schedule, shards, max_count)
    hops = ordered_hops(schedule, strands)
    lanes = assign_channels(
        [(hop.sender, hop.receiver) for hop in hops], [strands[hop.strand].chunks for hop in hops], max_steps, channels
    )
    # Numbers of hops and not hops with their channels: there are millions.
    events: list[list[int]] = [[] for _ in range(schedule.num_ranks)]
    for number, hop in enumerate(hops):
        events[hop.sender].append(number)
        events[hop.receiver].append(number)
    known = Known(layout, strands, hops, lanes, max_steps)
    ranks = tuple(
        write_rank(known, rank, own, _copies(rank, layout, shards, max_count)) for rank, own in enumerate(events)
    )
    return Program(name, collective, schedule.num_ranks, layout.chunks, ranks, shards=given)


def lower_allgather(
    forest: Forest,
    *,
    max_steps: int = 64,
    max_count: int = 71,
    channels: int = 1,
    name: str = "allgather",
) -> Program:
    """Lower a forest to an out-of-place allgather; everything is as for `lower`.

    Examples
    --------
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> [block.instructions[0].kind for block in lower_allgather(forest).ranks[0].thread_blocks]
    ['recv', 'copy', 'send']
    """
    return lower(forest, "allgather", max_steps=max_steps, max_count=max_count, channels=channels, name=name)


def _check_purpose(schedule: TreeSchedule, collective: str) -> None:
    """Refuse a schedule that is not for this collective."""
    if not isinstance(schedule, Forest | Allreduce):
        raise UnsupportedError(
            f"the schedule for {collective} is a {type(schedule).__name__}; only those made of trees can be lowered"
        )
    if not isinstance(collective, str) or collective not in COLLECTIVES:
        raise UnsupportedError(
            f"there is no lowering for {shown(collective)}; expected one of {', '.join(COLLECTIVES)}"
        )
    wanted = {"allreduce": "both", "reduce_scatter": "reduce", "reduce": "reduce"}.get(collective, "broadcast")
    found = "both" if isinstance(schedule, Allreduce) else schedule.direction
    if found != wanted:
        raise UnsupportedError(
            f"{collective} was asked for, but the schedule's trees are for {found}; {collective} needs {wanted}"
        )
    if isinstance(schedule, Allreduce):
        check_halves(schedule)
    roots = int((schedule.root_weights > 0).sum())
    if collective in ROOTED and roots != 1:
        raise UnsupportedError(f"{collective} was asked for, but {roots} ranks have data; expected one, the root")


def _check_size(schedule: TreeSchedule, chunks: int, max_count: int) -> None:
    """Refuse a division of the data so fine that writing it down would take all memory."""
    transfers = len(schedule.forests) * (schedule.num_ranks - 1) * (chunks // max_count)
    if transfers > MAX_TRANSFERS:
        raise UnsupportedError(
            f"the trees divide the data into {chunks} chunks, which takes {transfers} transfers of {max_count} chunks "
            f"each; expected at most {MAX_TRANSFERS}: plan with fewer trees per root"
        )


def _copies(rank: int, layout: Layout, shards: Sequence[int], max_count: int) -> list[tuple[int, int]]:
    """(first chunk, count) of what a rank takes from its own input as it is."""
    if layout.reduces and len(shards) > 1:
        return []
    begin, end = layout.input_range(rank)
    return pieces(begin, end, max_count)
