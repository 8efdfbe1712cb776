"""Strict reader of MSCCL XML: refuses what the runtimes' parsers would reject, misread or hang on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from ....errors import FileFormatError, UnsupportedError
from ....schedules import ALL_TO_ALL, COLLECTIVES, Collective
from ....support.reading import name_of, read_bytes
from ...interpreter.findings import Findings, Severity
from ...interpreter.interpret import InterpreterReport, run_program
from ...programs.program import Buffer, ChunkRange, Dependency, Instruction, Kind, Program, RankProgram, ThreadBlock
from .document import IGNORED, INT32_MAX, INT64_MAX, Block, Document, Gpu, Step, at, read_document
from .limits import ATTRIBUTES, FUSED, MAX_AWAITED_BLOCK, MAX_COUNT, PLAIN, PROTOCOLS, SPELLINGS

KINDS = PLAIN | {"rrc"}
OTHER_KINDS = (FUSED | {"ra"}) - KINDS
NAMES = "s, r, cpy, re, rrc and nop"
NAMED = {name: each for name, each in COLLECTIVES.items() if each.traffic is None} | SPELLINGS
MAX_BYTES_OF_FILE = 1 << 30
MAX_CHUNKS = 2**20  # More than the 4095 elements that a parser keeps could ever move, 71 at a time


def read_xml(path: str | os.PathLike[str]) -> Program:
    """Read an MSCCL algorithm; nops are folded into the steps after them, so `write_xml` round-trips.

    The program is well formed, but not yet checked: see `check_program` and `run_program`.  Raises `FileFormatError` if
    the file cannot be read, is not in the form that the runtimes' parsers take, or has missing or invalid values, with
    the file and the place; `UnsupportedError` for steps that receive and send on, or if the root of a broadcast or
    reduce is not known.
    """
    return AlgorithmReader(path).program()


class _Refusals(Findings):
    """Raises the first finding, except those about elements that the parsers ignore."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def add(self, severity: Severity, message: str, where: str = "") -> None:
        """Refuse the file."""
        if severity != "note" or not message.endswith(IGNORED):
            raise FileFormatError(f"{self.path}: {f'{where}: ' if where else ''}{message}")

    def within(self, line: int, name: str, value: int, least: int, most: int) -> None:
        """Refuse a number that is out of range."""
        if not least <= value <= most:
            self.add("rejected", f"{name} is {value}; expected a whole number from {least} to {most}", at(line))


class AlgorithmReader:
    """Converts a file to a program, and refuses files that the runtimes' parsers read differently."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, content = name_of(path), read_bytes(path, MAX_BYTES_OF_FILE)
        self.refusals = _Refusals(self.path)
        try:
            document = read_document(content.decode("utf-8"), ATTRIBUTES, self.refusals)
        except UnicodeDecodeError as error:
            what = f"byte {error.start} is not UTF-8; expected an MSCCL XML file"
            raise FileFormatError(f"{self.path}: {what}") from error
        assert document is not None  # What is not read has been refused.
        self.document: Document = document

    def program(self) -> Program:
        """Read the program."""
        words, numbers = self.document.words, self.document.numbers
        self._check_header()
        chunks, ranks = numbers["nchunksperloop"], numbers["ngpus"]
        self._check_numbers("gpu element", self.document.gpus, ranks)
        found = [self._rank(gpu) for gpu in sorted(self.document.gpus, key=lambda gpu: gpu.number)]
        # `Program.layout` refuses a name that is no collective's.
        known: Any = NAMED.get(words["coll"], words["coll"])
        # Of an all-to-all, the file counts the chunks of one rank's input.
        total = chunks * ranks if known is ALL_TO_ALL else chunks
        in_place = not self.placements()[1]
        name, shards = words.get("name", "unnamed"), self._shards(known, chunks, found)
        return Program(name, known, ranks, total, tuple(found), in_place, shards)

    def placements(self) -> tuple[bool, bool]:
        """Whether the algorithm is for in-place, and for out-of-place calls; microsoft/msccl has no such attribute."""
        line, numbers = self.document.line, self.document.numbers
        inplace = numbers["inplace"]
        outofplace = numbers.get("outofplace", 1 - inplace)
        for name, value in (("inplace", inplace), ("outofplace", outofplace)):
            self.refusals.within(line, name, value, 0, 1)
        if not inplace and not outofplace:
            message = "inplace and outofplace are 0, so no call selects the file; set outofplace to 1"
            self.refusals.add("ignored", message, at(line))
        return bool(inplace), bool(outofplace)

    def _check_header(self) -> None:
        line, words, numbers = self.document.line, self.document.words, self.document.numbers
        if words["proto"] not in PROTOCOLS:
            message = f"proto is {words['proto'][:40]!r}; expected Simple, LL or LL128"
            self.refusals.add("rejected", message, at(line))
        ranges = {"nchannels": INT32_MAX, "nchunksperloop": MAX_CHUNKS, "ngpus": INT32_MAX}
        for name, most in ranges.items():
            self.refusals.within(line, name, numbers[name], 1, most)
        smallest, largest = numbers.get("minBytes", 0), numbers.get("maxBytes", INT64_MAX)
        for name, size in (("minBytes", smallest), ("maxBytes", largest)):
            self.refusals.within(line, name, size, 0, INT64_MAX)
        if 0 < largest < smallest:
            message = f"minBytes {smallest} above maxBytes {largest}, so no size selects the file"
            self.refusals.add("ignored", message, at(line))

    def _check_numbers(self, what: str, elements: Sequence[Gpu | Block], count: int) -> None:
        """Refuse ids that are not 0, 1, 2, ..., each once."""
        found: set[int] = set()
        for element in elements:
            self.refusals.within(element.line, "id", element.number, 0, count - 1)
            if element.number in found:
                self.refusals.add("rejected", f"there are two {what}s with id {element.number}", at(element.line))
            found.add(element.number)
        missing = next((number for number in range(count) if number not in found), None)
        if missing is not None:
            self.refusals.add("rejected", f"there is no {what} with id {missing}; expected ids 0 to {count - 1}")

    def _rank(self, gpu: Gpu) -> RankProgram:
        within = self.refusals.within
        sizes = {"i_chunks": gpu.input_chunks, "o_chunks": gpu.output_chunks, "s_chunks": gpu.scratch_chunks}
        for name, size in sizes.items():
            within(gpu.line, name, size, 0, MAX_CHUNKS)
        self._check_numbers("tb element", gpu.blocks, len(gpu.blocks))
        for block in gpu.blocks:
            for name, peer in (("send", block.send), ("recv", block.recv)):
                within(block.line, name, peer, -1, self.document.numbers["ngpus"] - 1)
            within(block.line, "chan", block.channel, 0, self.document.numbers["nchannels"] - 1)
            self._check_steps(block)
        return rank_program(gpu, gpu.input_chunks, gpu.output_chunks, self.refusals)

    def _check_steps(self, block: Block) -> None:
        within, refuse = self.refusals.within, self.refusals.add
        for position, step in enumerate(block.steps):
            if step.kind in OTHER_KINDS:
                where = f"{self.path}: {at(step.line)}"
                raise UnsupportedError(f"{where}: the step has type {step.kind}; only {NAMES} are supported")
            if step.kind not in KINDS:
                refuse("rejected", f"type is {step.kind[:40]!r}; expected {NAMES}", at(step.line))
            if step.number != position:
                message = f"s is {step.number}, but steps run in file order, and this is {position}; number them so"
                refuse("note", message, at(step.line))
            for name, buffer in (("srcbuf", step.source), ("dstbuf", step.target)):
                if buffer not in BUFFERS:
                    refuse("rejected", f"{name} is {buffer[:40]!r}; expected i, o or s", at(step.line))
            within(step.line, "srcoff", step.source_start, -1, INT32_MAX)
            within(step.line, "dstoff", step.target_start, -1, INT32_MAX)
            within(step.line, "cnt", step.chunks, 0 if step.kind == "nop" else 1, MAX_COUNT)
            within(step.line, "hasdep", step.signals, 0, 1)

    def _shards(self, collective: object, chunks: int, ranks: list[RankProgram]) -> tuple[int, ...]:
        """Find the root of a broadcast or reduce: the only rank with an input, or an output."""
        if not isinstance(collective, Collective) or not collective.has_one_root:
            return ()
        held = [rank.output_chunks if collective.reduces else rank.input_chunks for rank in ranks]
        if (found := sum(count > 0 for count in held)) != 1:
            which = "o_chunks" if collective.reduces else "i_chunks"
            raise UnsupportedError(
                f"{self.path}: {found} ranks of the {collective} have {which} above 0; expected one, the root"
            )
        return tuple(chunks if count else 0 for count in held)


def interpret_file(
    path: str | os.PathLike[str], *, interleavings: int = 8, seed: int = 0, fifo_depth: int = 2
) -> InterpreterReport:
    """Read an MSCCL XML file and run it as `run_program` does: in place, out of place, or both ways, as it says.

    Raises `FileFormatError` if the file is not an MSCCL algorithm that the runtimes would accept; `ProgramError` if the
    algorithm is wrong.

    Parameters
    ----------
    path : str or path
        File to read.
    interleavings, seed, fifo_depth : int
        As for `run_program`.
    """
    reader = AlgorithmReader(path)
    program = reader.program()
    run = partial(run_program, interleavings=interleavings, seed=seed, fifo_depth=fifo_depth)
    if all(reader.placements()):
        run(replace(program, in_place=True))
    return run(program)


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
        wrong = ""
        if awaited >= len(steps):
            wrong = f"{name} of rank {self.gpu.number}, which does not exist"
        elif signaling == len(steps):
            what = "which is a nop and" if steps[awaited].kind == "nop" else 'which has no hasdep="1" and'
            wrong = f"{name}, {what} never signals that it is done"
        elif number == self.block.number and signaling >= position:
            wrong = f"{name}, which is not before it in its own thread block"
        if number > MAX_AWAITED_BLOCK and awaited < len(steps):
            message = f"the step waits for thread block {number}; numbers up to {MAX_AWAITED_BLOCK} are kept"
            self.findings.add("hangs", message, where)
        if wrong:
            self.findings.add("hangs", f"the step waits for {wrong}", where)
            return None
        if signaling != awaited:
            message = f"the step waits for {name}, which does not signal; step {signaling} of it does"
            self.findings.add("note", message, where)
        # What comes before a step in its own thread block has been done anyway.
        return None if number == self.block.number else Dependency(number, self.numbers[number, signaling])
