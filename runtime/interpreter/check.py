"""Static checks: a program that passes cannot deadlock, race, or touch memory it does not own.

What remains is whether the right data arrives, which `collopt.runtime.interpreter.interpret` finds out.  A program
without races computes the same whatever the speed of its ranks, so there a single run would decide.
"""

from __future__ import annotations

from ...errors import ProgramError
from ...schedules import Collective
from ..programs.ordering import Site, global_order
from ..programs.program import ChunkRange, Instruction, Program, RankProgram, ThreadBlock
from ..programs.structure import check_structure
from .hazards import check_hazards


def check_program(program: Program) -> None:
    """Refuse a program that could go wrong on some machine.

    Checked are, in this order: that every field has its type; the number of ranks and the buffer sizes; peers, kinds
    and chunk ranges of every step; that both ends of each connection agree; dependencies; that no steps wait for each
    other in a circle even if connections buffer nothing; that accesses to the same chunk are ordered, two additions to
    it included; that no step reads what nobody wrote; and that all of the output is written.  With `in_place`, chunks
    of input and output that are the same memory count as the same chunk.

    Parameters
    ----------
    program : Program
        Anything at all.

    Raises
    ------
    ProgramError
        Naming the rank, the thread block, the step and the chunk.

    Examples
    --------
    >>> from collopt.runtime.programs.program import Instruction, Program, RankProgram, ThreadBlock, ChunkRange
    >>> copy = Instruction("copy", ChunkRange("input", 0), ChunkRange("output", 0), 1)
    >>> lonely = RankProgram(0, 1, 1, 0, (ThreadBlock(None, None, 0, (copy,)),))
    >>> check_program(Program("trivial", "allgather", 1, 1, (lonely,)))
    """
    check_structure(program)
    _check_sizes(program)
    for rank in program.ranks:
        for number, block in enumerate(rank.thread_blocks):
            _check_thread_block(program, rank, number, block)
            for step, instruction in enumerate(block.instructions):
                _check_instruction(rank, block, Site(rank.rank, number, step), instruction)
    check_hazards(program, global_order(program))


def _check_sizes(program: Program) -> None:
    if program.num_ranks < 1 or len(program.ranks) != program.num_ranks:
        raise ProgramError(f"the program has steps for {len(program.ranks)} ranks; expected {program.num_ranks}")
    layout = program.layout
    if program.in_place and layout.in_pairs:
        raise ProgramError(
            f"the program is an in-place {program.collective}, in which no part of the output is where it was in the "
            "input; expected an out-of-place one"
        )
    for number, rank in enumerate(program.ranks):
        if rank.rank != number:
            raise ProgramError(f"entry {number} of the program is for rank {rank.rank}; list the ranks in order")
        for buffer, chunks, ranges in (
            ("input", rank.input_chunks, (layout.input_range(number),)),
            ("output", rank.output_chunks, layout.output_ranges(number)),
        ):
            needed = sum(end - begin for begin, end in ranges)
            if chunks != needed:
                raise ProgramError(
                    f"rank {number} has {chunks} {buffer} chunks; {_with_article(program.collective)} needs {needed}"
                )
        if rank.scratch_chunks < 0:
            raise ProgramError(f"rank {number} has {rank.scratch_chunks} scratch chunks; expected 0 or more")


def _with_article(collective: Collective) -> str:
    return f"{'an' if collective.name.startswith('a') else 'a'} {collective}"


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


SIDES = {
    "send": (True, False),
    "recv": (False, True),
    "copy": (True, True),
    "reduce": (True, True),
    "recv_reduce": (True, True),
}
"""Whether a step of each kind has a source, and a target."""


def _check_instruction(rank: RankProgram, block: ThreadBlock, site: Site, step: Instruction) -> None:
    sides = SIDES.get(step.kind)
    if sides is None:
        raise ProgramError(f"{site} is of kind {step.kind!r}; expected one of {', '.join(SIDES)}")
    for wanted, peer, way in ((step.kind == "send", block.send_peer, "send"), (step.receives, block.recv_peer, "recv")):
        if wanted and peer is None:
            raise ProgramError(f"{site} is a {step.kind} but its thread block has no {way} peer")
    if step.count < 1:
        raise ProgramError(f"{site} moves {step.count} chunks; expected at least 1")
    for name, end, wanted in zip(("source", "target"), (step.source, step.target), sides, strict=True):
        if (end is not None) != wanted:
            raise ProgramError(f"{site} is a {step.kind} {'without' if wanted else 'with'} a {name}")
        if end is not None:
            _check_range(rank, site, name, end, step.count)
    if step.target is not None and step.target.buffer == "input":
        raise ProgramError(f"{site} writes to the input, which programs leave alone")
    if step.source is not None and step.target is not None and step.source.buffer == step.target.buffer:
        _check_overlap(site, step.kind, step.source, step.target, step.count)


def _check_overlap(site: Site, kind: str, source: ChunkRange, target: ChunkRange, count: int) -> None:
    """Refuse a step that reads what it writes, unless it adds to each chunk what arrives for it."""
    if abs(source.start - target.start) >= count or (kind == "recv_reduce" and source == target):
        return
    raise ProgramError(
        f"{site} is a {kind} of {count} {source.buffer} chunks onto themselves, from chunk {source.start} to "
        f"{target.start}"
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
