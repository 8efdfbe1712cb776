"""Splits steps that add while they receive, for runtimes that only receive and only add.

RCCL from ROCm 6.1 on launches no program with a fused step, and receiving and adding is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .checks import require_program
from .program import ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock


def without_receive_reduce(program: Program) -> Program:
    """Replace each recv_reduce by a recv and a reduce.

    What is received to be added to the sum so far goes to scratch of the thread block first, and is added from there.
    Where the sum begins with the rank's own input, in scratch, what comes is received there and the input added to it;
    in the output, which may be the input's memory, the input is copied there and what came to the block's scratch
    added to it.  Each thread block needs as much scratch as its largest such step moves, on top of the program's own.

    Parameters
    ----------
    program : Program
        Checked or not.

    Returns
    -------
    Program
        It does the same in up to three times as many steps per thread block.

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


def _split_rank(rank: RankProgram) -> RankProgram:
    # A step becomes up to three, and whoever waited for it waits for the last of them.
    numbers: dict[Dependency, Dependency] = {}
    for block_number, block in enumerate(rank.thread_blocks):
        after = -1
        for number, step in enumerate(block.instructions):
            after += len(_split(step, 0, ()))
            numbers[Dependency(block_number, number)] = Dependency(block_number, after)
    scratch = rank.scratch_chunks
    blocks = []
    for block in rank.thread_blocks:
        staging = scratch
        scratch += max((step.count for step in block.instructions if _is_staged(step)), default=0)
        blocks.append(replace(block, instructions=tuple(_split_block(block, staging, numbers))))
    return replace(rank, scratch_chunks=scratch, thread_blocks=tuple(blocks))


def _split_block(block: ThreadBlock, staging: int, numbers: dict[Dependency, Dependency]) -> Iterator[Instruction]:
    for step in block.instructions:
        yield from _split(step, staging, tuple(numbers.get(wait, wait) for wait in step.depends))


def _split(step: Instruction, staging: int, depends: tuple[Dependency, ...]) -> list[Instruction]:
    if step.kind != "recv_reduce":
        return [replace(step, depends=depends)]
    if not _is_staged(step):
        return [
            Instruction("recv", None, step.target, step.count, depends),
            Instruction("reduce", step.source, step.target, step.count),
        ]
    arrival = ChunkRange("scratch", staging)
    steps = [
        Instruction("recv", None, arrival, step.count),
        Instruction("copy", step.source, step.target, step.count, depends),
        Instruction("reduce", arrival, step.target, step.count),
    ]
    if step.source == step.target:
        steps[1:] = [replace(steps[2], depends=depends)]
    return steps


def _is_staged(step: Instruction) -> bool:
    """Whether what comes cannot go straight to where the sum is to stand."""
    if step.kind != "recv_reduce" or step.target is None:
        return False
    return step.source == step.target or step.target.buffer == "output"
