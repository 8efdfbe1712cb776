"""Programs from the gpu elements of MSCCL XML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from ..interpreter.findings import Findings
from ..programs.program import Buffer, ChunkRange, Dependency, Instruction, Kind, RankProgram, ThreadBlock
from .document import Block, Gpu, Step, at
from .limits import MAX_AWAITED_BLOCK

BUFFERS: dict[str, Buffer] = {"i": "input", "o": "output", "s": "scratch"}
Place = tuple[int, int]  # A thread block, and the position of a step in it


def rank_program(gpu: Gpu, input_chunks: int, output_chunks: int, findings: Findings) -> RankProgram:
    """Convert a gpu element whose steps are of known types; invalid waits become findings."""
    blocks = sorted(gpu.blocks, key=lambda block: block.number)
    numbers = {}
    for block in blocks:
        ends = count()
        for position, step in enumerate(block.steps):
            for _ in _split_fused(step, (), 0):
                numbers[block.number, position] = next(ends)
    steps = {block.number: block.steps for block in blocks}
    scratch = gpu.scratch_chunks
    translated = []
    for block in blocks:
        waits = _Waits(gpu, block, steps, numbers, findings)
        instructions = tuple(_instructions(block, waits, scratch))
        scratch += max((step.chunks for step in block.steps if step.kind == "rrs"), default=0)
        send, recv = (None if peer < 0 else peer for peer in (block.send, block.recv))
        translated.append(ThreadBlock(send, recv, block.channel, instructions))
    return RankProgram(gpu.number, input_chunks, output_chunks, scratch, tuple(translated))


def _instructions(block: Block, waits: _Waits, scratch: int) -> Iterator[Instruction]:
    pending: list[Dependency] = []
    for position, step in enumerate(block.steps):
        wait = waits.answer(position, step)
        if wait is not None and wait not in pending:
            pending.append(wait)
        if step.kind != "nop":
            yield from _split_fused(step, tuple(pending), scratch)
            pending = []


def _split_fused(step: Step, depends: tuple[Dependency, ...], scratch: int) -> list[Instruction]:
    """Split a fused step into plain steps; forwarding without storing needs scratch."""
    if step.kind == "nop":
        return []
    source = ChunkRange(BUFFERS.get(step.source, "scratch"), step.source_start)
    target = ChunkRange(BUFFERS.get(step.target, "scratch"), step.target_start)
    if step.kind == "rrs":
        target = ChunkRange("scratch", scratch)
    kinds: dict[str, tuple[Kind, ChunkRange | None, ChunkRange | None]] = {
        "s": ("send", source, None),
        "r": ("recv", None, target),
        "rcs": ("recv", None, target),
        "cpy": ("copy", source, target),
        "re": ("reduce", source, target),
    }
    kind, source_end, target_end = kinds.get(step.kind, ("recv_reduce", source, target))
    first = Instruction(kind, source_end, target_end, step.chunks, depends)
    forwards = step.kind in ("rcs", "rrs", "rrcs")
    return [first, Instruction("send", target, None, step.chunks)] if forwards else [first]


@dataclass
class _Waits:
    """Resolves the waits of one thread block, given the instructions of all steps of the rank."""

    gpu: Gpu
    block: Block
    steps: Mapping[int, Sequence[Step]]
    numbers: Mapping[Place, int]
    findings: Findings
    chain: bool = False  # Whether the step before is a nop that waits

    def answer(self, position: int, step: Step) -> Dependency | None:
        """Return the step that a step waits for; an invalid wait becomes a finding."""
        where, wait = at(step.line), (step.wait_block, step.wait_step)
        waits = min(wait) >= 0
        if wait[0] >= 0 > wait[1]:
            message = f"deps is {wait[1]}, so the step waits until thread block {wait[0]} has signaled anything at all"
            self.findings.add("hangs", message, where)
        elif not waits and max(wait) >= 0:
            self.findings.add("note", f"depid is {wait[0]} but deps {wait[1]}, so the step waits for nothing", where)
        elif min(wait) < -1:
            self.findings.add("note", f"depid and deps are {wait[0]} and {wait[1]}, read as -1 for none", where)
        if self.chain and wait[0] < 0 and step.kind != "nop":
            self.findings.add("rejected", "the step waits for nothing, but comes after a nop that waits", where)
        if step.kind == "nop" and not waits:
            message = "a nop that waits for nothing shifts the numbers of the steps after it"
            self.findings.add("wrong data", message, where)
        if step.kind == "nop" and position == len(self.block.steps) - 1:
            self.findings.add("note", "the thread block ends with a nop, which delays nothing", where)
        self.chain = step.kind == "nop" and (self.chain or wait[0] >= 0)
        return self._answer(position, *wait, where) if waits else None

    def _answer(self, position: int, number: int, awaited: int, where: str) -> Dependency | None:
        name = f"thread block {number} step {awaited}"
        steps = self.steps.get(number, ())
        # A flag says how far a block has come, so that one raised later answers, too.
        later = (place for place in range(awaited, len(steps)) if steps[place].signals == 1)
        signaling = next((place for place in later if steps[place].kind != "nop"), len(steps))
        problem = ""
        if awaited >= len(steps):
            problem = f"{name} of rank {self.gpu.number}, which does not exist"
        elif signaling == len(steps):
            what = "which is a nop and" if steps[awaited].kind == "nop" else 'which has no hasdep="1" and'
            problem = f"{name}, {what} never signals that it is done"
        elif number == self.block.number and signaling >= position:
            problem = f"{name}, which is not before it in its own thread block"
        if number > MAX_AWAITED_BLOCK and awaited < len(steps):
            message = f"the step waits for thread block {number}; numbers up to {MAX_AWAITED_BLOCK} are kept"
            self.findings.add("hangs", message, where)
        if problem:
            self.findings.add("hangs", f"the step waits for {problem}", where)
            return None
        if signaling != awaited:
            message = f"the step waits for {name}, which does not signal; step {signaling} of it does"
            self.findings.add("note", message, where)
        # What comes before a step in its own thread block has been done anyway.
        return None if number == self.block.number else Dependency(number, self.numbers[number, signaling])
