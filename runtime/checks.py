"""Static checks: a program that passes cannot deadlock, race, or touch memory it does not own.

What remains is whether the right data arrives, which `collopt.runtime.interpreter` finds out.  A program without races
computes the same whatever the speed of its ranks, so there a single run would decide.
"""

from __future__ import annotations

from ..errors import ProgramError, UnsupportedError
from .hazards import check_hazards
from .ordering import Site, global_order
from .program import ChunkRange, Instruction, Program, RankProgram, ThreadBlock

__all__ = ["check_program"]


def check_program(program: Program) -> None:
    """Refuse a program that could go wrong on some machine.

    Checked are, in this order: the number of ranks and the buffer sizes; peers, kinds and chunk ranges of every step;
    that both ends of each connection agree; dependencies; that no steps wait for each other in a circle even if
    connections buffer nothing; that accesses to the same chunk are ordered; that no step reads what nobody wrote; and
    that all of the output is written.

    Parameters
    ----------
    program : Program
        Anything at all.

    Raises
    ------
    ProgramError
        Naming the rank, the thread block, the step and the chunk.
    UnsupportedError
        For a collective other than out-of-place allgather.

    Examples
    --------
    >>> from collopt.runtime.program import Instruction, Program, RankProgram, ThreadBlock, ChunkRange
    >>> copy = Instruction("copy", ChunkRange("input", 0), ChunkRange("output", 0), 1)
    >>> lonely = RankProgram(0, 1, 1, 0, (ThreadBlock(None, None, 0, (copy,)),))
    >>> check_program(Program("trivial", "allgather", 1, 1, (lonely,)))
    """
    _check_sizes(program)
    for rank in program.ranks:
        for number, block in enumerate(rank.thread_blocks):
            _check_thread_block(program, rank, number, block)
            for step, instruction in enumerate(block.instructions):
                _check_instruction(rank, block, Site(rank.rank, number, step), instruction)
    check_hazards(program, global_order(program))


def _check_sizes(program: Program) -> None:
    if program.collective != "allgather" or program.in_place:
        place = "in-place" if program.in_place else "out-of-place"
        raise UnsupportedError(
            f"the program is an {place} {program.collective}; only out-of-place allgather programs are supported"
        )
    if program.num_ranks < 1 or len(program.ranks) != program.num_ranks:
        raise ProgramError(f"the program has steps for {len(program.ranks)} ranks; expected {program.num_ranks}")
    shard = program.chunks_per_loop // program.num_ranks
    if shard < 1 or shard * program.num_ranks != program.chunks_per_loop:
        raise ProgramError(
            f"the program has {program.chunks_per_loop} chunks; expected a positive multiple of its "
            f"{program.num_ranks} ranks"
        )
    for number, rank in enumerate(program.ranks):
        if rank.rank != number:
            raise ProgramError(f"entry {number} of the program is for rank {rank.rank}; list the ranks in order")
        for buffer, chunks, expected in (
            ("input", rank.input_chunks, shard),
            ("output", rank.output_chunks, program.chunks_per_loop),
        ):
            if chunks != expected:
                raise ProgramError(f"rank {number} has {chunks} {buffer} chunks; an allgather needs {expected}")
        if rank.scratch_chunks < 0:
            raise ProgramError(f"rank {number} has {rank.scratch_chunks} scratch chunks; expected 0 or more")


def _check_thread_block(program: Program, rank: RankProgram, number: int, block: ThreadBlock) -> None:
    where = f"rank {rank.rank} thread block {number}"
    for way, peer in (("send", block.send_peer), ("receive", block.recv_peer)):
        if peer is None:
            continue
        if not 0 <= peer < program.num_ranks:
            raise ProgramError(f"{where} has {way} peer {peer}; expected a rank from 0 to {program.num_ranks - 1}")
        if peer == rank.rank:
            raise ProgramError(f"{where} has its own rank as {way} peer; use a copy instead")
    if block.channel < 0:
        raise ProgramError(f"{where} has channel {block.channel}; expected 0 or more")


def _check_instruction(rank: RankProgram, block: ThreadBlock, site: Site, step: Instruction) -> None:
    sides = {"send": (True, False), "recv": (False, True), "copy": (True, True)}.get(step.kind)
    if sides is None:
        raise ProgramError(f"{site} is of kind {step.kind!r}; expected send, recv or copy")
    if (step.kind, None) in (("send", block.send_peer), ("recv", block.recv_peer)):
        raise ProgramError(f"{site} is a {step.kind} but its thread block has no {step.kind} peer")
    if step.count < 1:
        raise ProgramError(f"{site} moves {step.count} chunks; expected at least 1")
    for name, end, wanted in zip(("source", "target"), (step.source, step.target), sides, strict=True):
        if (end is not None) != wanted:
            raise ProgramError(f"{site} is a {step.kind} {'without' if wanted else 'with'} a {name}")
        if end is not None:
            _check_range(rank, site, name, end, step.count)
    if step.target is not None and step.target.buffer == "input":
        raise ProgramError(f"{site} writes to the input, which an out-of-place collective leaves alone")
    if step.source is not None and step.target is not None and step.source.buffer == step.target.buffer:
        distance = abs(step.source.start - step.target.start)
        if distance < step.count:
            raise ProgramError(
                f"{site} copies {step.count} {step.source.buffer} chunks onto themselves, from chunk "
                f"{step.source.start} to {step.target.start}"
            )


def _check_range(rank: RankProgram, site: Site, name: str, end: ChunkRange, count: int) -> None:
    sizes = {"input": rank.input_chunks, "output": rank.output_chunks, "scratch": rank.scratch_chunks}
    size = sizes.get(end.buffer)
    if size is None:
        raise ProgramError(f"{site} has a {name} in buffer {end.buffer!r}; expected input, output or scratch")
    if end.start < 0 or end.start + count > size:
        raise ProgramError(
            f"{site} has {name} chunks {end.start} to {end.start + count - 1} of the {end.buffer}, which has {size} "
            "chunks"
        )
