"""Copies that a rank sends to all others of its switch group, found in a program: each becomes one ``gstore``.

A ``gstore`` also writes to the memory of its own GPU, so it stands for the copy there as well, or finds the same data.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import ProgramError
from ...schedules import Schedule
from ..programs.ordering import Order, with_joined_sends
from ..programs.program import ChunkRange, Program
from . import executor
from .execution_plan import Place
from .flow_control import Cell, cells

Group = tuple[int, ...]


@dataclass(frozen=True)
class Multicast:
    """Sends of one rank that become one store to a switch channel; `target` is where, on every GPU of the group."""

    sends: tuple[int, ...]  # In the order of the program
    target: Place


@dataclass(frozen=True)
class Multicasts:
    """Multicasts of a program, in whose order their sends follow one another."""

    order: Order
    by_send: Mapping[int, Multicast]
    dropped: frozenset[int]  # Copies that they make too
    groups: tuple[Group, ...]  # Those that they use


def switch_groups(schedule: Schedule, boxes: Sequence[int]) -> tuple[Group, ...]:
    """Ranks beside each switch that multicasts: disjoint groups of one box, to which one thread block can signal."""
    neighbors: dict[int, set[int]] = defaultdict(set)
    for forest in getattr(schedule, "forests", ()):
        if forest.direction == "broadcast" and len(forest.switches):
            switches = set(forest.switches.tolist())
            for number in range(len(forest.path_starts) - 1):
                path = forest.path(number)
                if len(path) == 2 and (on := switches & set(path)):
                    neighbors[min(on)].update(set(path) - on)
    groups: list[Group] = []
    for ranks in sorted({tuple(sorted(group)) for group in neighbors.values()}, key=lambda group: (-len(group), group)):
        alone = not any(set(ranks) & set(other) for other in groups)
        signalled = 1 <= len(ranks) - 1 <= executor.MAX_CHANNELS  # All by the thread block that stores
        if alone and signalled and len({boxes[rank] for rank in ranks}) == 1:
            groups.append(ranks)
    return tuple(sorted(groups))


def plan_multicasts(program: Program, order: Order, groups: Sequence[Group]) -> Multicasts:
    """Find the sends that one store can make; `groups` share no rank."""
    multicasts = _suited(program, order, groups)
    dropped: set[int] = set()
    while multicasts:
        covered = {
            cell
            for multicast in multicasts
            for cell in cells(program, multicast.target.rank, multicast.target, multicast.target.count)
        }
        split: set[Cell] = set()
        dropped = set()
        for number, step in enumerate(order.instructions):
            rank = order.sites[number].rank
            if step.kind == "copy" and step.target is not None and step.source is not None:
                own = set(cells(program, rank, step.target, step.count))
                if own <= covered:
                    dropped.add(number)
                else:
                    split |= own & covered
        if not split:
            break
        multicasts = [
            multicast
            for multicast in multicasts
            if not split & set(cells(program, multicast.target.rank, multicast.target, multicast.target.count))
        ]
    joined = order
    try:
        if multicasts:
            joined = with_joined_sends(order, [multicast.sends for multicast in multicasts])
    except ProgramError:
        # Programs of other origin may send in an order in which no rank can store for all.
        multicasts, dropped = [], set()
    used = {multicast.target.rank for multicast in multicasts}
    by_send = {send: multicast for multicast in multicasts for send in multicast.sends}
    # What stays in place is no copy, so nothing of it is dropped.
    return Multicasts(joined, by_send, frozenset(dropped), tuple(group for group in groups if used & set(group)))


def _suited(program: Program, order: Order, groups: Sequence[Group]) -> list[Multicast]:
    """Multicasts whose data is to be in the same place on all ranks, and their own."""
    group_of = {rank: frozenset(group) for group in groups for rank in group}
    sends: dict[tuple[int, ChunkRange, ChunkRange, int], dict[int, int]] = defaultdict(dict)
    writers: dict[Cell, set[int]] = defaultdict(set)
    for number, step in enumerate(order.instructions):
        rank = order.sites[number].rank
        if step.target is not None and rank in group_of:
            for cell in cells(program, rank, step.target, step.count):
                writers[cell].add(number)
        if step.kind != "send" or step.source is None:
            continue
        receive = order.instructions[order.partners[number]]
        peer = order.sites[order.partners[number]].rank
        if receive.kind == "recv" and receive.target is not None and receive.target.buffer == "output":
            sends[rank, step.source, receive.target, step.count].setdefault(peer, number)
    multicasts = []
    for (rank, source, target, count), numbers in sends.items():
        own = {peer: number for peer, number in numbers.items() if peer in group_of.get(rank, ())}
        if len(own) + 1 != len(group_of.get(rank, ())):
            continue
        pairs = zip(*(cells(program, rank, end, count) for end in (source, target)), strict=True)
        if all(here == there or _only_copied(program, order, writers[there], here, there) for here, there in pairs):
            place = Place(rank, target.buffer, target.start, count)
            multicasts.append(Multicast(tuple(sorted(own.values())), place))
    return _within_channels(order, multicasts)


def _only_copied(program: Program, order: Order, writers: Iterable[int], source: Cell, target: Cell) -> bool:
    """Whether all that is written to a chunk of the rank is a copy of another one of it."""
    steps = [order.instructions[number] for number in writers]
    return bool(steps) and all(
        step.kind == "copy"
        and step.source is not None
        and step.target is not None
        and (source, target)
        in zip(*(cells(program, source[0], end, step.count) for end in (step.source, step.target)), strict=True)
        for step in steps
    )


def _within_channels(order: Order, multicasts: Sequence[Multicast]) -> list[Multicast]:
    """Leave out multicasts by thread blocks that would need too many channels together."""
    component: dict[tuple[int, int], set[tuple[int, int]]] = {}
    kept = []
    for multicast in multicasts:
        blocks = {(order.sites[send].rank, order.sites[send].thread_block) for send in multicast.sends}
        merged = blocks.union(*(component.get(block, ()) for block in blocks))
        if len(merged) <= executor.MAX_CHANNELS:
            component.update(dict.fromkeys(merged, merged))
            kept.append(multicast)
    return kept
