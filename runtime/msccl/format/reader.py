"""Reads MSCCL XML strictly: what the runtimes' parsers would reject, misread or hang on is refused."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import defusedxml.ElementTree
from defusedxml.common import DefusedXmlException

from ....errors import FileFormatError, UnsupportedError
from ....schedules import ALL_TO_ALL, COLLECTIVES, Collective
from ....support.reading import name_of, read_bytes
from ...interpreter.interpret import InterpreterReport, run_program
from ...programs.program import Buffer, ChunkRange, Dependency, Instruction, Kind, Program, RankProgram, ThreadBlock
from .limits import MAX_COUNT, SPELLINGS

__all__ = ["interpret_file", "read_placements", "read_xml"]

BUFFERS: dict[str, Buffer] = {"i": "input", "o": "output", "s": "scratch"}
KINDS: dict[str, Kind] = {"s": "send", "r": "recv", "cpy": "copy", "re": "reduce", "rrc": "recv_reduce"}
OTHER_KINDS = ("rcs", "rrs", "rrcs", "ra")
NAMES = "s, r, cpy, re, rrc and nop"
NAMED = COLLECTIVES | SPELLINGS
MAX_BYTES_OF_FILE = 1 << 30
INT32_MAX = 2**31 - 1
MAX_CHUNKS = 2**20
"""More than the 4095 elements that a parser keeps could ever move, 71 at a time."""
INT64_MAX = 2**63 - 1

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_SINGLE_QUOTED = re.compile(r"=\s*'")


def read_xml(path: str | os.PathLike[str]) -> Program:
    """Read an MSCCL algorithm.

    Steps that only wait (nops) are folded into the step that follows them, so a program that was written by
    `write_xml` comes back as it was.

    Parameters
    ----------
    path : path
        File to read.

    Returns
    -------
    Program
        Well formed, but not yet checked: see `check_program` and `run_program`.

    Raises
    ------
    FileFormatError
        If the file cannot be read, is not XML, or not in the form that the runtimes' parsers take, or has missing or
        senseless values; the message names the file and the place.
    UnsupportedError
        For step types that collopt does not run (those that receive and send on), or if the root of a broadcast or
        reduce cannot be told.
    """
    return _Reader(name_of(path), _load(path)).program()


def read_placements(path: str | os.PathLike[str]) -> tuple[bool, bool]:
    """Whether an MSCCL algorithm is for calls in place, and whether for calls out of place; raises as `read_xml`."""
    return _Reader(name_of(path), _load(path)).placements()


def _load(path: str | os.PathLike[str]) -> ET.Element:
    where, content = name_of(path), read_bytes(path, MAX_BYTES_OF_FILE)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{where}: byte {error.start} is not UTF-8; expected an MSCCL XML file") from error
    for found, what, mend in (
        (text.lstrip().startswith("<?"), "an XML prolog", "delete the line <?xml ...?>"),
        ("\t" in text, "a tab", "indent with spaces"),
        (_SINGLE_QUOTED.search(text) is not None, "an attribute in single quotes", "use double quotes"),
    ):
        if found:
            raise FileFormatError(f"{where}: the file has {what}, which the MSCCL parsers reject; {mend}")
    try:
        root: ET.Element = defusedxml.ElementTree.fromstring(text, forbid_dtd=True)
    except (ET.ParseError, DefusedXmlException, ValueError) as error:
        reason = str(error).replace("\n", " ") or type(error).__name__
        raise FileFormatError(f"{where}: the file is not well-formed XML ({reason})") from error
    return root


class _Reader:
    """Turns elements into a program; knows the file's name for its messages."""

    def __init__(self, path: str, root: ET.Element) -> None:
        self.path = path
        self.root = root

    def program(self) -> Program:
        """Read the whole file."""
        root = self.root
        if root.tag != "algo":
            self._fail(f"the file starts with <{root.tag[:40]}>; expected <algo>")
        if (protocol := self._text(root, "proto", "algo")) not in ("Simple", "LL", "LL128"):
            self._fail(f"algo has proto {protocol!r}; expected Simple, LL or LL128")
        channels = self._integer(root, "nchannels", "algo", 1, INT32_MAX)
        chunks = self._integer(root, "nchunksperloop", "algo", 1, MAX_CHUNKS)
        ranks = self._integer(root, "ngpus", "algo", 1, INT32_MAX)
        collective = self._text(root, "coll", "algo")
        self._check_window()
        found: dict[int, RankProgram] = {}
        for gpu in root.iterfind("gpu"):
            rank = self._integer(gpu, "id", "a gpu", 0, ranks - 1)
            if rank in found:
                self._fail(f"there are two gpu elements with id {rank}")
            found[rank] = self._rank(gpu, rank, ranks, channels)
        if len(found) < ranks:
            missing = next(rank for rank in range(ranks) if rank not in found)
            self._fail(f"there is no gpu element with id {missing}, but ngpus is {ranks}")
        # `Program.layout` refuses a name that is no collective's.
        known: Any = NAMED.get(collective, collective)
        return Program(
            root.get("name", "unnamed"),
            known,
            ranks,
            # Of an all-to-all, the file counts the chunks of one rank's input.
            chunks * ranks if known is ALL_TO_ALL else chunks,
            tuple(found[rank] for rank in range(ranks)),
            not self.placements()[1],
            self._shards(known, chunks, [found[rank] for rank in range(ranks)]),
        )

    def _shards(self, collective: object, chunks: int, ranks: list[RankProgram]) -> tuple[int, ...]:
        """Find the root of a broadcast or reduce: only it has an input, or an output."""
        if not isinstance(collective, Collective) or not collective.has_one_root:
            return ()
        held = [rank.output_chunks if collective.reduces else rank.input_chunks for rank in ranks]
        if (found := sum(count > 0 for count in held)) != 1:
            which = "o_chunks" if collective.reduces else "i_chunks"
            raise UnsupportedError(
                f"{self.path}: {found} ranks of the {collective} have {which} above 0; expected one, the root"
            )
        return tuple(chunks if count else 0 for count in held)

    def _check_window(self) -> None:
        smallest = self._integer(self.root, "minBytes", "algo", 0, INT64_MAX, default=0)
        largest = self._integer(self.root, "maxBytes", "algo", 0, INT64_MAX, default=INT64_MAX)
        if 0 < largest < smallest:
            self._fail(f"algo has minBytes {smallest} above maxBytes {largest}, so no size selects it")

    def placements(self) -> tuple[bool, bool]:
        """Whether the algorithm is for calls in place, and out of place, which microsoft/msccl leaves out."""
        inplace = self._integer(self.root, "inplace", "algo", 0, 1)
        outofplace = self._integer(self.root, "outofplace", "algo", 0, 1, default=1 - inplace)
        if not inplace and not outofplace:
            self._fail("algo has inplace 0 and outofplace 0, so no call selects it; set outofplace to 1")
        return bool(inplace), bool(outofplace)

    def _rank(self, gpu: ET.Element, rank: int, ranks: int, channels: int) -> RankProgram:
        where = f"gpu {rank}"
        sizes = [self._integer(gpu, f"{letter}_chunks", where, 0, MAX_CHUNKS) for letter in "ios"]
        elements: dict[int, ET.Element] = {}
        for block in gpu.iterfind("tb"):
            number = self._integer(block, "id", f"a tb of {where}", 0, INT32_MAX)
            if number in elements:
                self._fail(f"{where} has two tb elements with id {number}")
            elements[number] = block
        for number in range(len(elements)):
            if number not in elements:
                self._fail(f"{where} has {len(elements)} thread blocks but none with id {number}")
        steps = {number: list(elements[number].iterfind("step")) for number in range(len(elements))}
        folded = {number: self._folded(f"{where} tb {number}", steps[number]) for number in steps}
        targets = {
            (number, position): index
            for number, positions in folded.items()
            for index, position in enumerate(positions)
        }
        blocks = tuple(
            self._block(elements[number], f"{where} tb {number}", ranks, channels, steps, targets)
            for number in range(len(elements))
        )
        return RankProgram(rank, sizes[0], sizes[1], sizes[2], blocks)

    def _folded(self, where: str, steps: list[ET.Element]) -> list[int]:
        """Positions of the steps that do something."""
        positions = []
        for position, step in enumerate(steps):
            if (number := self._integer(step, "s", f"{where} step {position}", 0, INT32_MAX)) != position:
                self._fail(f"{where} step {position} has s {number}; steps run in file order, number them so")
            if self._text(step, "type", f"{where} step {position}") != "nop":
                positions.append(position)
        if steps and (not positions or positions[-1] < len(steps) - 1):
            self._fail(f"{where} ends with a nop; a nop has to precede the step that it holds back")
        return positions

    def _block(
        self,
        element: ET.Element,
        where: str,
        ranks: int,
        channels: int,
        steps: dict[int, list[ET.Element]],
        targets: dict[tuple[int, int], int],
    ) -> ThreadBlock:
        number = int(element.attrib["id"])
        send, recv = (self._integer(element, name, where, -1, ranks - 1) for name in ("send", "recv"))
        channel = self._integer(element, "chan", where, 0, channels - 1)
        instructions = tuple(self._instructions(where, steps[number], steps, targets))
        return ThreadBlock(None if send < 0 else send, None if recv < 0 else recv, channel, instructions)

    def _instructions(
        self,
        where: str,
        own: list[ET.Element],
        steps: dict[int, list[ET.Element]],
        targets: dict[tuple[int, int], int],
    ) -> Iterator[Instruction]:
        pending: list[Dependency] = []
        for position, element in enumerate(own):
            place = f"{where} step {position}"
            kind = element.attrib["type"]
            source, target = self._end(element, "src", place), self._end(element, "dst", place)
            least = 0 if kind == "nop" else 1
            count = self._integer(element, "cnt", place, least, MAX_COUNT)
            wait = self._wait(element, place, steps, targets)
            self._integer(element, "hasdep", place, 0, 1)
            if wait is None and (kind == "nop" or pending):
                self._fail(f"{place} waits for nothing; a nop, and the step after one, need depid and deps")
            pending.extend([wait] if wait else [])
            if kind == "nop":
                continue
            if kind in OTHER_KINDS:
                raise UnsupportedError(f"{self.path}: {place} has type {kind}; only {NAMES} are supported")
            if kind not in KINDS:
                self._fail(f"{place} has type {kind[:40]!r}; expected {NAMES}")
            used = {"s": (source, None), "r": (None, target)}.get(kind, (source, target))
            yield Instruction(KINDS[kind], *used, count, tuple(pending))
            pending = []

    def _end(self, step: ET.Element, side: str, where: str) -> ChunkRange:
        buffer = self._text(step, f"{side}buf", where)
        if buffer not in BUFFERS:
            self._fail(f"{where} has {side}buf {buffer[:40]!r}; expected i, o or s")
        return ChunkRange(BUFFERS[buffer], self._integer(step, f"{side}off", where, -1, INT32_MAX))

    def _wait(
        self, step: ET.Element, where: str, steps: dict[int, list[ET.Element]], targets: dict[tuple[int, int], int]
    ) -> Dependency | None:
        block = self._integer(step, "depid", where, -1, INT32_MAX)
        position = self._integer(step, "deps", where, -1, INT32_MAX)
        if (block < 0) != (position < 0):
            self._fail(f"{where} has depid {block} but deps {position}; both are -1 or neither is")
        if block < 0:
            return None
        if block not in steps or position >= len(steps[block]):
            self._fail(f"{where} waits for tb {block} step {position}, which does not exist")
        if (block, position) not in targets:
            self._fail(f"{where} waits for tb {block} step {position}, a nop, which never signals that it is done")
        if steps[block][position].get("hasdep") != "1":
            self._fail(f'{where} waits for tb {block} step {position}, which has no hasdep="1" and never signals')
        return Dependency(block, targets[block, position])

    def _text(self, element: ET.Element, name: str, where: str) -> str:
        value = element.get(name)
        if value is None:
            self._fail(f"{where} has no attribute {name}")
        return value

    def _integer(
        self, element: ET.Element, name: str, where: str, least: int, most: int, default: int | None = None
    ) -> int:
        if default is not None and name not in element.attrib:
            return default
        text = self._text(element, name, where)
        if not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
            self._fail(f"{where} has {name} {text[:40]!r}; expected a whole number from {least} to {most}")
        return int(text)

    def _fail(self, what: str) -> NoReturn:
        raise FileFormatError(f"{self.path}: {what}")


def interpret_file(
    path: str | os.PathLike[str], *, interleavings: int = 8, seed: int = 0, fifo_depth: int = 2
) -> InterpreterReport:
    """Read an MSCCL XML file and run it as `run_program` does: in place, out of place, or both ways, as it says.

    Parameters
    ----------
    path : str or path
        An MSCCL algorithm.
    interleavings, seed, fifo_depth : int
        As for `run_program`.

    Returns
    -------
    InterpreterReport

    Raises
    ------
    FileFormatError
        If the file is not an MSCCL algorithm that the runtimes would accept.
    ProgramError
        If the algorithm is wrong.
    UnsupportedError
        For step types or collectives that programs do not know.
    """
    program = read_xml(path)
    if all(read_placements(path)):
        run_program(replace(program, in_place=True), interleavings=interleavings, seed=seed, fifo_depth=fifo_depth)
    return run_program(program, interleavings=interleavings, seed=seed, fifo_depth=fifo_depth)
