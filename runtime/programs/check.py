"""Static checks of programs: deadlocks, data races by vector clocks (Fidge 1988, Mattern 1989), memory bounds.

A program without races computes the same whatever the speed of its ranks, so one run of the interpreter decides whether
its result is right; see docs/explanation/programs.md.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ...errors import ProgramError
from ...support.arrays import BoolArray, IntArray
from .happens_before import Accesses, EventGraph, Steps
from .ordering import Order, Site, global_order
from .program import (
    ChunkRange,
    Instruction,
    Program,
    RankProgram,
    ThreadBlock,
    check_structure,
    copies_onto_itself,
)


def check_program(program: Program) -> None:
    """Refuse a program that could deadlock, race or access memory out of bounds.

    Checked are, in this order: the type of every field; the number of ranks and the buffer sizes; peers, kinds and
    chunk ranges of every step; that both ends of each connection agree; dependencies; that no steps wait for each other
    in a cycle even if connections buffer nothing; that accesses to the same chunk are ordered, two additions included;
    that no step reads what nobody wrote; and that all of the output is written.  With `in_place`, chunks of input and
    output that are the same memory count as the same chunk.  Raises `ProgramError` naming the rank, the thread block,
    the step and the chunk.

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
            f"the program is an in-place {program.collective}, which there is none of; expected out of place"
        )
    for number, rank in enumerate(program.ranks):
        if rank.rank != number:
            raise ProgramError(f"entry {number} of the program is for rank {rank.rank}; list the ranks in order")
        for buffer, chunks, ranges in (
            ("input", rank.input_chunks, (layout.input_range(number),)),
            ("output", rank.output_chunks, layout.output_ranges(number)),
        ):
            expected = sum(end - begin for begin, end in ranges)
            if chunks != expected:
                what = f"{'an' if program.collective.name.startswith('a') else 'a'} {program.collective}"
                raise ProgramError(f"rank {number} has {chunks} {buffer} chunks; {what} needs {expected}")
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


CONNECTION_SIDES = {
    "send": (True, False),
    "recv": (False, True),
    "copy": (True, True),
    "reduce": (True, True),
    "recv_reduce": (True, True),
}
"""Whether a step of each kind has a source, and a target."""


def _check_instruction(rank: RankProgram, block: ThreadBlock, site: Site, step: Instruction) -> None:
    sides = CONNECTION_SIDES.get(step.kind)
    if sides is None:
        raise ProgramError(f"{site} is of kind {step.kind!r}; expected one of {', '.join(CONNECTION_SIDES)}")
    for required, peer, way in (
        (step.kind == "send", block.send_peer, "send"),
        (step.receives, block.recv_peer, "recv"),
    ):
        if required and peer is None:
            raise ProgramError(f"{site} is a {step.kind} but its thread block has no {way} peer")
    if step.count < 1:
        raise ProgramError(f"{site} moves {step.count} chunks; expected at least 1")
    for name, end, required in zip(("source", "target"), (step.source, step.target), sides, strict=True):
        if (end is not None) != required:
            raise ProgramError(f"{site} is a {step.kind} {'without' if required else 'with'} a {name}")
        if end is not None:
            _check_range(rank, site, name, end, step.count)
    if step.target is not None and step.target.buffer == "input":
        raise ProgramError(f"{site} writes to the input, which programs leave alone")
    if step.source is not None and step.target is not None and step.source.buffer == step.target.buffer:
        _check_overlap(site, step.kind, step.source, step.target, step.count)


def _check_overlap(site: Site, kind: str, source: ChunkRange, target: ChunkRange, count: int) -> None:
    """Refuse a step whose source and target overlap, except a reduction in place."""
    if abs(source.start - target.start) >= count or (kind == "recv_reduce" and source == target):
        return
    span = f"from chunk {source.start} to {target.start}"
    raise ProgramError(f"{site} is a {kind} of {count} {source.buffer} chunks onto themselves, {span}")


def _check_range(rank: RankProgram, site: Site, name: str, end: ChunkRange, count: int) -> None:
    sizes = {"input": rank.input_chunks, "output": rank.output_chunks, "scratch": rank.scratch_chunks}
    size = sizes.get(end.buffer)
    if size is None:
        raise ProgramError(f"{site} has a {name} in buffer {end.buffer!r}; expected input, output or scratch")
    if end.start < 0 or end.start + count > size:
        last = end.start + count - 1
        raise ProgramError(
            f"{site} has {name} chunks {end.start} to {last} of the {end.buffer}, which has {size} chunks"
        )


def check_hazards(program: Program, order: Order) -> None:
    """Refuse races, reads of chunks that nobody wrote, and output chunks that stay unwritten."""
    position = np.empty(len(order.sequence), dtype=np.int64)
    position[order.sequence] = np.arange(len(order.sequence))
    hazards = _Hazards(order, position)
    steps_of: list[list[int]] = [[] for _ in program.ranks]
    event_of = np.zeros(len(order.sequence), dtype=np.int64)
    for number in order.sequence:
        steps_of[order.sites[number].rank].append(number)
    for rank, steps in zip(program.ranks, steps_of, strict=True):
        buffers = _accesses(order, steps)
        memories = _alias_in_place(buffers, order, program, rank.rank) if program.in_place else buffers
        own = hazards.steps.events(steps)
        event_of[steps] = np.arange(len(steps))
        for memory, rows in memories.items():
            hazards.check_races(memory, rows, own, event_of)
        for buffer, rows in buffers.items():
            if buffer != "input":
                hazards.check_reads(buffer, rows)
        _check_output_written(order, rank, steps)


class _Hazards:
    """Checks of accesses as in `_accesses`; `position`: place of each step in the order, (steps,)."""

    def __init__(self, order: Order, position: IntArray) -> None:
        self.order, self.position, self.steps = order, position, Steps.of(order)

    @cached_property
    def events(self) -> EventGraph:
        """All steps, in the order."""
        return self.steps.events(self.order.sequence)

    def check_races(self, memory: str, rows: IntArray, own: EventGraph, event_of: IntArray) -> None:
        """Refuse conflicting accesses with no path between them.

        `own`: steps of the rank alone; `event_of`: number of each step there, (steps,).
        """
        accesses = self._by_segment(rows)
        earlier, later = accesses.conflicts()
        before, after = rows[accesses.numbers[earlier], 2], rows[accesses.numbers[later], 2]
        # Most are ordered by what happens on the rank itself, which takes far smaller clocks.
        unordered = np.flatnonzero(~self._know(own, event_of[after], before))
        if len(unordered):
            ordered = self._know(self.events, self.position[after[unordered]], before[unordered])
            unordered = unordered[~ordered]
        for pair in unordered[:1].tolist():
            ways = ["writes" if accesses.writes[row] else "reads" for row in (earlier[pair], later[pair])]
            first, second = (self.order.sites[int(number)] for number in (before[pair], after[pair]))
            raise ProgramError(
                f"race: {first} {ways[0]} {memory} chunk {accesses.firsts[earlier[pair]]} and {second} {ways[1]} it, "
                "but nothing makes one wait for the other; add a dependency"
            )

    def check_reads(self, buffer: str, rows: IntArray) -> None:
        """Refuse a step that reads what nobody has written by then."""
        accesses = self._by_segment(rows)
        for row in np.flatnonzero((accesses.last_writes() < 0) & ~accesses.writes)[:1].tolist():
            raise ProgramError(
                f"{self.order.sites[int(rows[accesses.numbers[row], 2])]} reads {buffer} chunk {accesses.firsts[row]}, "
                "which nothing has written by then"
            )

    def _by_segment(self, rows: IntArray) -> Accesses:
        return Accesses.of(rows[:, 0], rows[:, 0] + rows[:, 1], self.position[rows[:, 2]], rows[:, 3])

    def _know(self, events: EventGraph, later: IntArray, earlier: IntArray) -> BoolArray:
        """Whether events come after steps."""
        return events.knows(later, self.steps.processes[earlier], self.steps.steps[earlier])


def _accesses(order: Order, steps: Sequence[int]) -> dict[str, IntArray]:
    """Rows (first chunk, chunks, step, whether it writes) of one rank's accesses to each buffer."""
    table: dict[str, list[tuple[int, int, int, bool]]] = defaultdict(list)
    for number in steps:
        step = order.instructions[number]
        if step.source:
            table[step.source.buffer].append((step.source.start, step.count, number, False))
        if step.target:
            if step.kind == "reduce":
                table[step.target.buffer].append((step.target.start, step.count, number, False))
            table[step.target.buffer].append((step.target.start, step.count, number, True))
    return {buffer: np.array(rows, dtype=np.int64) for buffer, rows in sorted(table.items())}


def _alias_in_place(buffers: dict[str, IntArray], order: Order, program: Program, rank: int) -> dict[str, IntArray]:
    """Name chunks of input and output by their number in the collective; copies onto themselves do not count."""
    firsts = {"input": program.layout.input_range(rank)[0], "output": program.layout.output_range(rank)[0]}
    shared = [rows + np.array([firsts[buffer], 0, 0, 0]) for buffer, rows in buffers.items() if buffer in firsts]
    separate = {buffer: rows for buffer, rows in buffers.items() if buffer not in firsts}
    if not shared:
        return separate
    together = np.concatenate(shared)
    idle = [copies_onto_itself(program, rank, order.instructions[number]) for number in together[:, 2].tolist()]
    kept = together[~np.array(idle)]
    return {"in-place": kept, **separate} if len(kept) else separate


def _check_output_written(order: Order, rank: RankProgram, steps: Sequence[int]) -> None:
    """Refuse an output chunk that no step writes."""
    is_written = np.zeros(rank.output_chunks + 1, dtype=np.bool_)
    for number in steps:
        step = order.instructions[number]
        if step.target and step.target.buffer == "output":
            is_written[step.target.start : step.target.start + step.count] = True
    if (missing := int(np.argmin(is_written))) < rank.output_chunks:
        raise ProgramError(f"rank {rank.rank} never writes output chunk {missing} of {rank.output_chunks}")
