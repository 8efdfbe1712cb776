"""What one rank of an MSCCL file does: fused steps taken apart, waits followed to the step that answers them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from ...interpreter.findings import Findings
from ...programs.program import Buffer, ChunkRange, Dependency, Instruction, RankProgram, ThreadBlock
from .document import Block, Gpu, Step, at
from .limits import MAX_AWAITED_BLOCK

BUFFERS: dict[str, Buffer] = {"i": "input", "o": "output", "s": "scratch"}
Place = tuple[int, int]
"""A thread block, and the position of a step in it."""


def rank_program(gpu: Gpu, input_chunks: int, output_chunks: int, findings: Findings) -> RankProgram:
    """Translate a gpu element, whose steps are of known types; what is odd about its waits joins the findings."""
    blocks = sorted(gpu.blocks, key=lambda block: block.number)
    numbers = {}
    for block in blocks:
        ends = count()
        for position, step in enumerate(block.steps):
            for _ in _apart(step, (), 0):
                numbers[block.number, position] = next(ends)
    scratch = gpu.scratch_chunks
    translated = []
    for block in blocks:
        waits = _Waits(gpu, block, blocks, numbers, findings)
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
            yield from _apart(step, tuple(pending), scratch)
            pending = []


def _apart(step: Step, depends: tuple[Dependency, ...], scratch: int) -> list[Instruction]:
    """Say in plain steps what a step does; one that sends on what it does not keep needs scratch to put it."""
    if step.kind == "nop":
        return []
    source = ChunkRange(BUFFERS.get(step.source, "scratch"), step.source_start)
    target = ChunkRange(BUFFERS.get(step.target, "scratch"), step.target_start)
    if step.kind == "rrs":
        target = ChunkRange("scratch", scratch)
    plain = {
        "s": [Instruction("send", source, None, step.chunks, depends)],
        "r": [Instruction("recv", None, target, step.chunks, depends)],
        "cpy": [Instruction("copy", source, target, step.chunks, depends)],
        "re": [Instruction("reduce", source, target, step.chunks, depends)],
    }
    if step.kind in plain:
        return plain[step.kind]
    on = [] if step.kind == "rrc" else [Instruction("send", target, None, step.chunks)]
    if step.kind == "rcs":
        return [Instruction("recv", None, target, step.chunks, depends), *on]
    return [Instruction("recv_reduce", source, target, step.chunks, depends), *on]


class _Waits:
    """Finds what the waits of one thread block come to."""

    def __init__(
        self, gpu: Gpu, block: Block, blocks: list[Block], numbers: dict[Place, int], findings: Findings
    ) -> None:
        self.gpu = gpu
        self.block = block
        self.numbers = numbers
        self.findings = findings
        self.steps = {other.number: other.steps for other in blocks}
        self.chain = False

    def answer(self, position: int, step: Step) -> Dependency | None:
        """Return the step that a step waits for, and put in the findings what is odd about that."""
        where, wait = at(step.line), (step.wait_block, step.wait_step)
        waits = min(wait) >= 0
        if min(wait) < -1:
            self.findings.add("rejected", f"depid and deps are {wait[0]} and {wait[1]}; expected -1 for none", where)
        elif not waits and max(wait) >= 0:
            self.findings.add("note", f"depid is {wait[0]} but deps {wait[1]}, so the step waits for nothing", where)
        if self.chain and not waits and step.kind != "nop":
            self.findings.add("rejected", "the step waits for nothing, but comes after a nop", where)
        if step.kind == "nop" and not waits:
            self.findings.add(
                "wrong data", "a nop that waits for nothing shifts the numbers of the steps after it", where
            )
        if step.kind == "nop" and position == len(self.block.steps) - 1:
            self.findings.add("note", "the thread block ends with a nop, which delays nothing", where)
        self.chain = step.kind == "nop"
        return self._answer(position, *wait, where) if waits else None

    def _answer(self, position: int, number: int, awaited: int, where: str) -> Dependency | None:
        name = f"thread block {number} step {awaited}"
        steps = self.steps.get(number)
        if steps is None or awaited >= len(steps):
            self.findings.add(
                "hangs", f"the step waits for {name} of rank {self.gpu.number}, which does not exist", where
            )
            return None
        if number > MAX_AWAITED_BLOCK:
            self.findings.add(
                "hangs", f"the step waits for thread block {number}; numbers up to {MAX_AWAITED_BLOCK} are kept", where
            )
        # A flag says how far a block has come, so that one raised later answers, too.
        tells = next(
            (at for at in range(awaited, len(steps)) if steps[at].tells == 1 and steps[at].kind != "nop"), None
        )
        if tells is None:
            what = "which is a nop and" if steps[awaited].kind == "nop" else 'which has no hasdep="1" and'
            self.findings.add("hangs", f"the step waits for {name}, {what} never signals that it is done", where)
            return None
        if number == self.block.number and tells >= position:
            self.findings.add(
                "hangs", f"the step waits for {name}, which is not before it in its own thread block", where
            )
            return None
        if tells != awaited:
            self.findings.add(
                "note", f"the step waits for {name}, which does not signal; step {tells} of it does", where
            )
        # What comes before a step in its own thread block has been done anyway.
        return None if number == self.block.number else Dependency(number, self.numbers[number, tells])
