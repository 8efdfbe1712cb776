"""Runs of a linted file's program, in place and out of place, with connections that buffer some chunks."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate

from ....errors import ProgramError
from ....support.seed import current_seed
from ...interpreter.check import check_hazards, check_program
from ...interpreter.findings import Findings
from ...interpreter.interpret import run_interleaving
from ...programs.ordering import Order, global_order, numbered, sites
from ...programs.program import ChunkRange, Instruction, Program, RankProgram, ThreadBlock, copies_onto_itself
from .queues import Queue


def buffered_order(program: Program, depth: int, chunks: int = 1) -> Order:
    """Order the steps topologically with connections that buffer `depth` transfers of up to `chunks` chunks each.

    Bounded queues make the outcome independent of anybody's speed: if one order gets to the end, all do.
    """
    order = numbered(program)
    partners, before = order.partners, order.before
    queues: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (site, step) in enumerate(zip(order.sites, order.instructions, strict=True)):
        if partners[number] >= 0 and not step.receives:
            queues[site.rank, site.thread_block].append(number)
    waits = {number: set(earlier) for number, earlier in enumerate(before)}
    for sends in queues.values():
        ends = list(accumulate(-(-order.instructions[send].count // chunks) for send in sends))
        for position, send in enumerate(sends):
            waits[partners[send]].add(send)
            if (needed := ends[position] - depth) > 0:
                # All up to this one has been taken when the last one of this send finds a place.
                taker = bisect_left(ends, needed)
                waits[send].update([partners[sends[taker]]] if taker < position else before[partners[send]])
    try:
        sequence = list(TopologicalSorter(waits).static_order())
    except CycleError as error:
        raise ProgramError(f"{len(error.args[1]) - 1} of {len(waits)} steps wait for each other") from None
    return replace(order, sequence=sequence)


INTERLEAVINGS = 2  # Enough, because what comes before them proves that all give the same data


def check_execution(program: Program, in_place: bool, out_of_place: bool, queue: Queue, findings: Findings) -> None:
    """Check for deadlocks, races and wrong results."""
    needed = None
    try:
        global_order(program)
    except ProgramError as error:
        try:
            buffered_order(program, *queue)
        except ProgramError:
            findings.add("hangs", str(error))
            return
        needed = queue
        held = f"{queue.transfers} chunks" if queue.chunks == 1 else f"{queue.transfers} times {queue.chunks} chunks"
        message = f"ranks send before they receive, which needs the {held} that a connection holds, no more"
        findings.add("note", message)
    if in_place and program.layout.in_pairs:
        findings.add("wrong data", "in place, no part of an alltoall is where it was in the input; set inplace to 0")
        in_place = False
    if out_of_place:
        _check_data(program, "out of place", needed, findings)
    if in_place:
        _check_data(alias_in_place(program), "in place", needed, findings)


def _check_data(program: Program, how: str, queue: Queue | None, findings: Findings) -> None:
    if program.in_place and (idle := _idle_rank(program)) is not None:
        if program.num_ranks > 1:
            message = f"{how}, rank {idle} neither reads nor writes anything but what stays where it is"
            findings.add("wrong data", message)
        return
    try:
        if queue:
            check_hazards(program, buffered_order(program, *queue))
        elif program.in_place and any(step.target and step.target.buffer == "input" for _, step in sites(program)):
            # In place, the input is as good to work in as any other memory.
            check_hazards(program, global_order(program))
        else:
            check_program(program)
        for number in range(INTERLEAVINGS):
            run_interleaving(
                program, seed=current_seed() * INTERLEAVINGS + number, fifo_depth=queue.transfers if queue else 1
            )
    except ProgramError as error:
        findings.add("wrong data", f"{how}, {error}")


def _idle_rank(program: Program) -> int | None:
    """First rank that only copies its data onto itself."""
    busy = {
        site.rank
        for site, step in sites(program)
        if any(end is not None and end.buffer != "scratch" for end in (step.source, step.target))
        and not copies_onto_itself(program, site.rank, step)
    }
    return next((rank.rank for rank in program.ranks if rank.rank not in busy), None)


def alias_in_place(program: Program) -> Program:
    """Rewrite a program for in-place calls: shared memory is input where it is read, and output where it is written."""
    return replace(program, in_place=True, ranks=tuple(_alias_rank(program, rank) for rank in program.ranks))


def _alias_rank(program: Program, rank: RankProgram) -> RankProgram:
    inputs, outputs = program.layout.input_range(rank.rank), program.layout.output_range(rank.rank)
    begin, end = max(inputs[0], outputs[0]), min(inputs[1], outputs[1])

    def renamed(place: ChunkRange | None, count: int, written: bool) -> ChunkRange | None:
        if place is None or place.buffer == "scratch":
            return place
        chunk = place.start + (inputs if place.buffer == "input" else outputs)[0]
        if not begin <= chunk <= end - count:
            return place
        return ChunkRange("output", chunk - outputs[0]) if written else ChunkRange("input", chunk - inputs[0])

    blocks = [
        replace(
            block,
            instructions=tuple(
                replace(
                    step,
                    source=renamed(step.source, step.count, written=False),
                    target=renamed(step.target, step.count, written=True),
                )
                for step in block.instructions
            ),
        )
        for block in rank.thread_blocks
    ]
    if begin < end:
        places = ChunkRange("input", begin - inputs[0]), ChunkRange("output", begin - outputs[0])
        blocks.append(ThreadBlock(None, None, 0, (Instruction("copy", *places, end - begin),)))
    return replace(rank, thread_blocks=tuple(blocks))
