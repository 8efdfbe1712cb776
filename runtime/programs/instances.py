"""Does a program several times at once, each time on another part of all data.

One thread block seldom fills a link.  `instances` says how many share the work of each: every chunk is divided into as
many equal parts, and what was one program becomes that many, one for each part, with thread blocks and channels of
their own.  They never wait for each other, so what was free of deadlocks and races stays so; each has as many steps as
the program had, which move as many chunks as before, only smaller ones.

Parts.  Replica k has the k-th part of each shard, or of the whole buffer where the chunks belong to nobody.  A range of
chunks of one shard is then still one range.  One that goes on in the next shard would not be, so programs that are to
be replicated have no such steps at their inputs and outputs: `lower` keeps them apart.  In scratch, where nothing is
prescribed, the replicas' places follow one another.

`channels` is the other way to have more thread blocks at work: it deals the transfers of a connection out to several,
without dividing any, so it is of use as far as there are several at a time.  Both can be given; a connection with
enough transfers then has channels times instances thread blocks at either end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate

from ...errors import ProgramError, UnsupportedError
from .checks import check_counts, require_program
from .layout import Layout
from .program import Buffer, ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock

MAX_INSTRUCTIONS = 2**22
"""Steps of all replicas: with their thread blocks, two to three gigabytes."""


def replicated(program: Program, instances: int) -> Program:
    """Divide all chunks, and have a program for each part.

    >>> from collopt.runtime.lowering.lower import lower
    >>> from collopt.schedules import Forest
    >>> program = lower(Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])]), "allgather")
    >>> print(replicated(program, 3))
    allgather: allgather on 2 ranks, 6 chunks, 18 steps, 3 channels
    """
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
    places = _Places(program.layout, rank, instances)
    blocks = tuple(
        _replica(block, number, instances, program.num_channels, places)
        for block in rank.thread_blocks
        for number in range(instances)
    )
    return RankProgram(
        rank.rank,
        instances * rank.input_chunks,
        instances * rank.output_chunks,
        instances * rank.scratch_chunks,
        blocks,
    )


def _replica(block: ThreadBlock, number: int, instances: int, channels: int, places: _Places) -> ThreadBlock:
    """Return what a thread block does on one of the parts."""
    steps = tuple(
        Instruction(
            step.kind,
            places.moved(step.source, step.count, number),
            places.moved(step.target, step.count, number),
            step.count,
            tuple(Dependency(wait.thread_block * instances + number, wait.step) for wait in step.depends),
        )
        for step in block.instructions
    )
    return ThreadBlock(block.send_peer, block.recv_peer, number * channels + block.channel, steps)


class _Places:
    """Where the chunks of one rank's buffers are once they are divided."""

    def __init__(self, layout: Layout, rank: RankProgram, instances: int) -> None:
        self.rank = rank.rank
        self.instances = instances
        begin, end = layout.input_range(rank.rank)
        self.borders: dict[Buffer, Sequence[int]] = {
            "input": _inside(layout.blocks, begin, end),
            "output": _pieces_of_output(layout, rank.rank),
            "scratch": (0, rank.scratch_chunks),
        }
        # Steps that follow each other often have the same chunks.
        self._moved = cache(self._find)

    def moved(self, place: ChunkRange | None, count: int, number: int) -> ChunkRange | None:
        """Return where a replica has its part of some chunks."""
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
    """Borders of a range of chunks that lie in another, counted from where it begins."""
    inner = {border for border in borders if begin < border < end}
    return [border - begin for border in sorted({begin, end} | inner)]


def _pieces_of_output(layout: Layout, rank: int) -> list[int]:
    """Borders of the shards in a rank's output."""
    if layout.in_pairs:
        sizes = (end - begin for begin, end in layout.output_ranges(rank))
        return list(accumulate(sizes, initial=0))
    return _inside(layout.blocks, *layout.output_range(rank))
