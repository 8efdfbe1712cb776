"""Transformations of programs: replicas that share the data, packed thread blocks, split receive-reduce steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from ...errors import ProgramError, UnsupportedError
from .layout import Layout
from .ordering import Site, global_order
from .program import (
    Buffer,
    ChunkRange,
    Dependency,
    Instruction,
    Program,
    RankProgram,
    ThreadBlock,
    check_counts,
    require_program,
)

MAX_INSTRUCTIONS = 2**22  # Steps of all replicas: with their thread blocks, two to three gigabytes


def replicated(program: Program, instances: int) -> Program:
    """Divide all chunks, and replicate the program for each part."""
    require_program(program)
    check_counts({"instances": instances})
    if instances == 1:
        return program
    if (steps := program.num_instructions * instances) > MAX_INSTRUCTIONS:
        raise UnsupportedError(
            f"instances is {instances}, which makes {steps} steps; expected at most {MAX_INSTRUCTIONS} steps, "
            f"so at most {max(1, MAX_INSTRUCTIONS // program.num_instructions)} instances"
        )
    return replace(
        program,
        chunks_per_loop=program.chunks_per_loop * instances,
        ranks=tuple(_replicated_rank(program, rank, instances) for rank in program.ranks),
        shards=tuple(shard * instances for shard in program.shards),
    )


def _replicated_rank(program: Program, rank: RankProgram, instances: int) -> RankProgram:
    places = _ChunkMap(program.layout, rank, instances)
    blocks = tuple(
        ThreadBlock(
            block.send_peer,
            block.recv_peer,
            number * program.num_channels + block.channel,
            tuple(
                Instruction(
                    step.kind,
                    places.moved(step.source, step.count, number),
                    places.moved(step.target, step.count, number),
                    step.count,
                    tuple(Dependency(wait.thread_block * instances + number, wait.step) for wait in step.depends),
                )
                for step in block.instructions
            ),
        )
        for block in rank.thread_blocks
        for number in range(instances)
    )
    inputs, outputs, scratch = (
        instances * size for size in (rank.input_chunks, rank.output_chunks, rank.scratch_chunks)
    )
    return RankProgram(rank.rank, inputs, outputs, scratch, blocks)


class _ChunkMap:
    """Positions of the chunks of one rank's buffers after division."""

    def __init__(self, layout: Layout, rank: RankProgram, instances: int) -> None:
        self.rank = rank.rank
        self.instances = instances
        sizes = (end - begin for begin, end in layout.output_ranges(rank.rank))
        self.borders: dict[Buffer, Sequence[int]] = {
            "input": _inside(layout.blocks, *layout.input_range(rank.rank)),
            "output": list(accumulate(sizes, initial=0))
            if layout.in_pairs
            else _inside(layout.blocks, *layout.output_range(rank.rank)),
            "scratch": (0, rank.scratch_chunks),
        }
        # Steps that follow each other often have the same chunks.
        self._moved = cache(self._find)

    def moved(self, place: ChunkRange | None, count: int, number: int) -> ChunkRange | None:
        """Return the position of a replica's part of some chunks."""
        return None if place is None else self._moved(place.buffer, place.start, count, number)

    def _find(self, buffer: Buffer, start: int, count: int, number: int) -> ChunkRange:
        borders = self.borders[buffer]
        piece = bisect_right(borders, start) - 1
        begin, end = borders[piece], borders[piece + 1]
        if start + count > end:
            raise ProgramError(
                f"a step of rank {self.rank} moves {buffer} chunks {start} to {start + count - 1}, which are not of "
                f"one shard, so {self.instances} instances cannot share it; give lower the number of instances"
            )
        return ChunkRange(buffer, begin * self.instances + number * (end - begin) + start - begin)


def _inside(borders: Sequence[int], begin: int, end: int) -> list[int]:
    """Borders inside a range of chunks, relative to its begin."""
    inner = {border for border in borders if begin < border < end}
    return [border - begin for border in sorted({begin, end} | inner)]


def packed(program: Program, max_thread_blocks: int, max_steps: int) -> Program:
    """Merge thread blocks, the shortest first, until no rank has too many; steps keep the global order."""
    require_program(program)
    check_counts({"max_thread_blocks": max_thread_blocks, "max_steps": max_steps})
    if all(len(rank.thread_blocks) <= max_thread_blocks for rank in program.ranks):
        return program
    order = global_order(program)
    places = {order.sites[number]: place for place, number in enumerate(order.sequence)}
    ranks = tuple(
        _joined(rank, _groups(rank, max_thread_blocks, max_steps), places)
        if len(rank.thread_blocks) > max_thread_blocks
        else rank
        for rank in program.ranks
    )
    return replace(program, ranks=ranks)


def document_steps(block: ThreadBlock) -> int:
    """Number of steps of a block in a format with one wait per step, in which each further wait is a step."""
    return sum(max(1, len(step.depends)) for step in block.instructions)


class _Group(NamedTuple):
    """Thread blocks of a rank to be merged; fields are in sorting order."""

    steps: int
    members: tuple[int, ...]
    sends: bool
    receives: bool
    channel: int

    def fits(self, other: _Group, max_steps: int) -> bool:
        """Whether two groups can be merged."""
        local = not (self.sends or self.receives) or not (other.sends or other.receives)
        compatible = not (self.sends and other.sends) and not (self.receives and other.receives)
        return self.steps + other.steps <= max_steps and (local or (compatible and self.channel == other.channel))

    def joined(self, other: _Group) -> _Group:
        """Merge two groups."""
        channel = self.channel if self.sends or self.receives else other.channel
        ways = self.sends or other.sends, self.receives or other.receives
        return _Group(self.steps + other.steps, tuple(sorted(self.members + other.members)), *ways, channel)


def _groups(rank: RankProgram, max_thread_blocks: int, max_steps: int) -> list[_Group]:
    """Group the blocks to merge: always the shortest with the shortest that fits it."""
    groups = sorted(
        _Group(
            document_steps(block), (number,), block.send_peer is not None, block.recv_peer is not None, block.channel
        )
        for number, block in enumerate(rank.thread_blocks)
    )
    place = 0
    while len(groups) > max_thread_blocks and place < len(groups):
        one = groups[place]
        partner = next((other for other in groups[place + 1 :] if one.fits(other, max_steps)), None)
        if partner is None:
            place += 1
            continue
        groups.remove(one)
        groups.remove(partner)
        groups = sorted([*groups, one.joined(partner)])
        place = 0
    # Blocks stay about where they were: those that others wait for came first.
    return sorted(groups, key=lambda group: group.members)


def _joined(rank: RankProgram, groups: list[_Group], places: dict[Site, int]) -> RankProgram:
    """Rewrite the blocks of one rank, merged by groups."""
    orders = [
        sorted(
            (
                Site(rank.rank, member, step)
                for member in group.members
                for step in range(len(rank.thread_blocks[member].instructions))
            ),
            key=places.__getitem__,
        )
        for group in groups
    ]
    moved = {site: Dependency(block, step) for block, order in enumerate(orders) for step, site in enumerate(order)}
    blocks = []
    for number, (group, order) in enumerate(zip(groups, orders, strict=True)):
        members = [rank.thread_blocks[member] for member in group.members]
        steps = tuple(_renumbered_step(rank, site, number, moved) for site in order)
        send_peer, recv_peer = (
            next((peer for peer in peers if peer is not None), None)
            for peers in ([one.send_peer for one in members], [one.recv_peer for one in members])
        )
        blocks.append(ThreadBlock(send_peer, recv_peer, group.channel, steps))
    return replace(rank, thread_blocks=tuple(blocks))


def _renumbered_step(rank: RankProgram, site: Site, block: int, moved: dict[Site, Dependency]) -> Instruction:
    """Return a step with renumbered waits, without those for its own block."""
    instruction = rank.thread_blocks[site.thread_block].instructions[site.step]
    last: dict[int, int] = {}
    for wait in instruction.depends:
        now = moved[Site(rank.rank, wait.thread_block, wait.step)]
        if now.thread_block != block:
            last[now.thread_block] = max(now.step, last.get(now.thread_block, -1))
    return replace(instruction, depends=tuple(Dependency(*wait) for wait in last.items()))


def without_receive_reduce(program: Program) -> Program:
    """Replace each recv_reduce by a recv and a reduce, because RCCL from ROCm 6.1 on launches no fused steps.

    What is added to a partial sum is received in scratch first: each thread block needs as much more scratch as its
    largest such step moves.  Where the sum begins with the rank's input, the data is received at the target and the
    input added, or, if the target is output and may be the input's memory, the input is copied there first.  The result
    does the same in up to three times as many steps per thread block.

    Examples
    --------
    >>> from collopt.runtime.lowering.lower import lower
    >>> from collopt.schedules import Forest
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> program = lower(replace(forest, direction="reduce"), "reduce_scatter")
    >>> [step.kind for step in without_receive_reduce(program).ranks[0].thread_blocks[0].instructions]
    ['recv', 'copy', 'reduce']
    """
    require_program(program)
    return replace(program, ranks=tuple(_split_rank(rank) for rank in program.ranks))


def expanded(
    rank: RankProgram, length: Callable[[Instruction], int], parts: Callable[[Instruction, int], Iterable[Instruction]]
) -> RankProgram:
    """Replace each step by the list that `parts` returns for it; waits for a step become waits for its last part."""
    last: dict[Dependency, Dependency] = {}
    for number, block in enumerate(rank.thread_blocks):
        ends = accumulate(length(step) for step in block.instructions)
        last |= {Dependency(number, at): Dependency(number, end - 1) for at, end in enumerate(ends)}
    blocks = []
    for number, block in enumerate(rank.thread_blocks):
        steps: list[Instruction] = []
        for step in block.instructions:
            steps += parts(replace(step, depends=tuple(last.get(wait, wait) for wait in step.depends)), number)
        blocks.append(replace(block, instructions=tuple(steps)))
    return replace(rank, thread_blocks=tuple(blocks))


def _split_rank(rank: RankProgram) -> RankProgram:
    staged = [
        max((step.count for step in block.instructions if _is_staged(step)), default=0) for block in rank.thread_blocks
    ]
    places = list(accumulate(staged, initial=rank.scratch_chunks))
    split = expanded(rank, lambda step: len(_split(step, 0)), lambda step, block: _split(step, places[block]))
    return replace(split, scratch_chunks=places[-1])


def _split(step: Instruction, staging: int) -> list[Instruction]:
    if step.kind != "recv_reduce":
        return [step]
    if not _is_staged(step):
        return [
            Instruction("recv", None, step.target, step.count, step.depends),
            Instruction("reduce", step.source, step.target, step.count),
        ]
    arrival = ChunkRange("scratch", staging)
    receive = Instruction("recv", None, arrival, step.count)
    add = Instruction("reduce", arrival, step.target, step.count)
    if step.source == step.target:
        return [receive, replace(add, depends=step.depends)]
    return [receive, Instruction("copy", step.source, step.target, step.count, step.depends), add]


def _is_staged(step: Instruction) -> bool:
    """Whether received data cannot be written directly to the target of the sum."""
    if step.kind != "recv_reduce" or step.target is None:
        return False
    return step.source == step.target or step.target.buffer == "output"
