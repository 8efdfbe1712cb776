"""Runs of a linted file's program, in place and out of place, with what the queues of connections hold."""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from typing import NamedTuple

from ...errors import ProgramError
from ...support.seed import current_seed
from ..programs.check import check_hazards, check_program
from ..programs.findings import Findings
from ..programs.interpret import run_interleaving
from ..programs.ordering import Order, global_order, numbered, sites
from ..programs.program import ChunkRange, Instruction, Program, RankProgram, ThreadBlock, copies_onto_itself
from .document import Document, at
from .limits import MAX_COUNT, SPELLINGS, UNLIMITED, Dialect, largest_chunk

FIFO_DEPTHS = {"Simple": 2, "LL": 8, "LL128": 8}
"""Transfers that a connection buffers, by protocol: eight steps of NCCL, and Simple uses four for each."""


class Queue(NamedTuple):
    """Capacity of a connection."""

    transfers: int
    chunks: int  # That one transfer takes; a step that moves more is several


def queue_of(document: Document, dialect: Dialect) -> Queue:
    """Return what connections hold of the largest size for which the file is selected."""
    protocol, numbers = document.words.get("proto", ""), document.numbers
    if protocol not in FIFO_DEPTHS:
        return Queue(2, 1)
    first, end = dialect.sizes(numbers.get("minBytes"), numbers.get("maxBytes"))
    chunk = -(-(end - 1) // numbers["nchunksperloop"]) if first < end else UNLIMITED
    # They count one step where their kernel takes four; see `check_network`.
    capacity = dialect.transfer_bytes[protocol] // (4 if uses_one_step(document) else 1)
    return Queue(FIFO_DEPTHS[protocol], max(1, min(MAX_COUNT, capacity // max(1, chunk))))


def check_rounds(document: Document, dialect: Dialect, findings: Findings) -> None:
    """Note sizes for which a file is selected, but in whose many rounds the waits of the kernel hang."""
    protocol, chunks = document.words.get("proto", ""), document.numbers["nchunksperloop"]
    waits = any(step.wait_block >= 0 for gpu in document.gpus for block in gpu.blocks for step in block.steps)
    if protocol in ("LL", "LL128") and waits and chunks > 0:
        limit = chunks * largest_chunk(dialect, protocol)
        if dialect.sizes(document.numbers.get("minBytes"), document.numbers.get("maxBytes"))[1] > limit + 1:
            message = (
                f"calls of more than {limit} bytes hang with {protocol}, and maxBytes lets larger ones pick the file"
            )
            findings.add("note", message, at(document.line))


def uses_one_step(document: Document) -> bool:
    """Whether the proxies of the network take one of NCCL's steps at a time, where the kernel takes two."""
    collective = SPELLINGS.get(document.words["coll"])
    return document.words.get("proto") == "Simple" and collective is not None and collective.has_one_root


def check_network(document: Document, gpus_per_box: int | None, findings: Findings) -> None:
    """Report connections over a network that hang, as proxy and kernel wait for different steps of the queue."""
    if gpus_per_box is not None and (left := len(document.gpus) % gpus_per_box):
        message = f"boxes of {gpus_per_box} GPUs do not divide the {len(document.gpus)} ranks; the last box has {left}"
        findings.add("note", message, at(document.line))
    if not uses_one_step(document):
        return
    call = f"a {document.words['coll']} with proto Simple"
    what = f"{call} hangs over a network, where kernel and proxy disagree on steps"
    if gpus_per_box is None:
        message = f"{what}; give the number of GPUs in a box, or write LL or LL128"
        findings.add("note", message, at(document.line))
        return
    for gpu in document.gpus:
        for block in gpu.blocks:
            if block.send >= 0 and block.send // gpus_per_box != gpu.number // gpus_per_box:
                message = f"{what}, as from rank {gpu.number} to {block.send}; write LL or LL128"
                findings.add("hangs", message, at(block.line))
                return


def buffered_order(program: Program, depth: int, chunks: int = 1) -> Order:
    """Order the steps if connections buffer `depth` transfers of `chunks` chunks: if one order can finish, all do."""
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
            if (taken_before := ends[position] - depth) > 0:
                # All up to this one has been taken when the last one of this send finds a place.
                taker = bisect_left(ends, taken_before)
                waits[send].update([partners[sends[taker]]] if taker < position else before[partners[send]])
    try:
        sequence = list(TopologicalSorter(waits).static_order())
    except CycleError as error:
        raise ProgramError(f"{len(error.args[1]) - 1} of {len(waits)} steps wait for each other") from None
    return replace(order, sequence=sequence)


INTERLEAVINGS = 2  # Enough, because what comes before them proves that all give the same data


def check_execution(program: Program, in_place: bool, out_of_place: bool, queue: Queue, findings: Findings) -> None:
    """Check for deadlocks, races and wrong results."""
    used_queue = None
    try:
        global_order(program)
    except ProgramError as error:
        try:
            buffered_order(program, *queue)
        except ProgramError:
            findings.add("hangs", str(error))
            return
        used_queue = queue
        capacity = (
            f"{queue.transfers} chunks" if queue.chunks == 1 else f"{queue.transfers} times {queue.chunks} chunks"
        )
        message = f"ranks send before they receive, which needs the {capacity} that a connection holds, no more"
        findings.add("note", message)
    if in_place and program.layout.in_pairs:
        findings.add("wrong data", "in place, no part of an alltoall is where it was in the input; set inplace to 0")
        in_place = False
    if out_of_place:
        _check_data(program, "out of place", used_queue, findings)
    if in_place:
        ranks = tuple(_alias_rank(program, rank) for rank in program.ranks)
        _check_data(replace(program, in_place=True, ranks=ranks), "in place", used_queue, findings)


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


def _alias_rank(program: Program, rank: RankProgram) -> RankProgram:
    """Rewrite a rank for in-place calls: shared memory is input where it is read, and output where it is written."""
    inputs, outputs = program.layout.input_range(rank.rank), program.layout.output_range(rank.rank)
    begin, end = max(inputs[0], outputs[0]), min(inputs[1], outputs[1])

    def renamed(place: ChunkRange | None, count: int, is_target: bool) -> ChunkRange | None:
        if place is None or place.buffer == "scratch":
            return place
        chunk = place.start + (inputs if place.buffer == "input" else outputs)[0]
        if not begin <= chunk <= end - count:
            return place
        return ChunkRange("output", chunk - outputs[0]) if is_target else ChunkRange("input", chunk - inputs[0])

    blocks = [
        replace(
            block,
            instructions=tuple(
                replace(
                    step,
                    source=renamed(step.source, step.count, is_target=False),
                    target=renamed(step.target, step.count, is_target=True),
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
