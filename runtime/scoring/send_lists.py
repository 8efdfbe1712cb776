"""Lists of sends in CSV: their reader, their execution on symbolic chunks, and their messages.

Each send has a step, the rank that it is from, the rank that it is to, and a chunk; see docs/how-to/score-schedules.md.
All sends of a step read what their senders have before the step.  A send waits for those of earlier steps that brought
its sender some of its chunks, and for nothing else.
"""

import csv
import io
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from ...errors import FileFormatError, ProgramError
from ...schedules import Collective
from ...support.files import name_of, read_text
from ...support.validation import shown
from ...topologies import Topology
from ...topologies.network.links import rank_number
from ..programs.interpret import Contents, describe_contents, expected_outputs, symbolic_inputs
from ..programs.layout import Layout
from .messages import Messages

MAX_BYTES = 2**27
MAX_SENDS = 2**20
MAX_STEP = MAX_CHUNKS = 2**20
COLUMNS = ("step", "from", "to", "chunk", "owner", "target", "op")
REQUIRED = COLUMNS[:4]
CHUNKS = re.compile(r"\s*([0-9]{1,7})\s*(?:-\s*([0-9]{1,7})\s*)?")


Row = tuple[str, Mapping[str, str]]
"""Name of its place, and its cells that are not empty by column."""


class Send(NamedTuple):
    """A send of consecutive chunks."""

    step: int
    sender: int
    receiver: int
    first: int  # Chunk, in the row of all chunks of the collective
    length: int
    adds: bool
    where: str  # Such as ``"line 3"``


@dataclass(frozen=True)
class SendList:
    """A list of sends."""

    collective: Collective
    num_ranks: int
    chunks: int  # Of one shard, or part, or of all data where nobody owns it
    root: int | None
    sends: tuple[Send, ...]  # By step


def read_sends(
    path: str | os.PathLike[str],
    topology: Topology,
    collective: Collective | None = None,
    root: int | str | None = None,
) -> SendList:
    """Read a list of sends, as CSV with a header."""
    where = name_of(path)
    rows = _rows(read_text(path, MAX_BYTES), where)
    if not rows:
        raise FileFormatError(f"{where} has no sends; expected a row for each")
    if len(rows) > MAX_SENDS:
        raise FileFormatError(f"{where} has {len(rows)} sends; expected at most {MAX_SENDS}")
    return _Reader(where, topology, collective, root).read(rows)


def _rows(text: str, where: str) -> list[Row]:
    """Read the cells of all rows that are not empty."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    reader = csv.reader(io.StringIO("\n".join(line for _, line in lines)), skipinitialspace=True, strict=True)
    try:
        cells = [[cell.strip() for cell in row] for row in reader]
    except csv.Error as error:
        raise FileFormatError(f"{where} is not valid CSV: {error}") from None
    if not cells or not set(REQUIRED) <= set(cells[0]):
        raise FileFormatError(f"{where} is no list of sends: its first line is not a header with {', '.join(REQUIRED)}")
    header = cells[0]
    for name in header:
        if name not in COLUMNS or header.count(name) > 1:
            problem = "is there twice" if name in COLUMNS else "is not known"
            raise FileFormatError(f"{where}: column {shown(name)} {problem}; expected {', '.join(COLUMNS)}, each once")
    rows = list[Row]()
    for (number, _), row in zip(lines[1:], cells[1:], strict=False):
        if len(row) != len(header):
            raise FileFormatError(f"{where}, line {number} has {len(row)} entries; expected {len(header)}, as above")
        rows.append((f"line {number}", {name: cell for name, cell in zip(header, row, strict=True) if cell}))
    return rows


class _Reader:
    """Reads the sends of one file."""

    def __init__(self, where: str, topology: Topology, collective: Collective | None, root: int | str | None) -> None:
        self._where = where
        self._topology = topology
        self._collective = self._checked(collective)
        self._root = self._checked_root(root)

    def _fail(self, what: str) -> FileFormatError:
        return FileFormatError(f"{self._where}: {what}")

    def _checked(self, collective: Collective | None) -> Collective:
        if collective is None:
            raise self._fail("the list does not say of which collective; give it, such as allgather")
        if collective.parts_differ:
            raise self._fail(f"lists are not for {collective}, whose parts differ in size; expected another collective")
        return collective

    def _checked_root(self, root: int | str | None) -> int | None:
        if not self._collective.has_one_root:
            if root is not None:
                raise self._fail(f"{self._collective} has no root; leave it out")
            return None
        if root is None:
            raise self._fail(f"the list does not say from or to which root the {self._collective} is; give it")
        return self._rank(root, "root")

    def _rank(self, value: object, what: str) -> int:
        number = rank_number(self._topology.compute_nodes, value)
        if number is None and isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
            number = rank_number(self._topology.compute_nodes, int(value))
        if number is None:
            last = self._topology.num_ranks - 1
            raise self._fail(f"{what} is {shown(value)}; expected a rank from 0 to {last}, or a node's name")
        return number

    def read(self, rows: Sequence[Row]) -> SendList:
        """Read all sends."""
        ranges = [self._range(place, row) for place, row in rows]
        chunks = max(last for _, last in ranges) + 1
        sends = [self._send(place, row, bounds, chunks) for (place, row), bounds in zip(rows, ranges, strict=True)]
        sends.sort(key=lambda send: send.step)
        return SendList(self._collective, self._topology.num_ranks, chunks, self._root, tuple(sends))

    def _range(self, place: str, row: Mapping[str, str]) -> tuple[int, int]:
        """First and last chunk of a row, in its shard."""
        for name in REQUIRED:
            if name not in row:
                raise self._fail(f"{place} has no {name}")
        match = CHUNKS.fullmatch(row["chunk"])
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < MAX_CHUNKS:
            raise self._fail(f"chunk of {place} is {shown(row['chunk'])}; expected a number, or a range such as 0-3")
        return first, last

    def _send(self, place: str, row: Mapping[str, str], bounds: tuple[int, int], chunks: int) -> Send:
        step = re.fullmatch("[0-9]{1,7}", row["step"])
        if not step or int(step[0]) > MAX_STEP:
            raise self._fail(f"step of {place} is {shown(row['step'])}; expected a whole number from 0 to {MAX_STEP}")
        sender, receiver = (self._rank(row[name], f"{name} of {place}") for name in ("from", "to"))
        if sender == receiver:
            raise self._fail(f"{place} is from rank {sender} to itself; expected two ranks")
        begin = self._begin(place, row) * chunks
        return Send(
            int(step[0]), sender, receiver, begin + bounds[0], bounds[1] - bounds[0] + 1, self._adds(place, row), place
        )

    def _begin(self, place: str, row: Mapping[str, str]) -> int:
        """Place of the shard, or of the part of a pair, among all of them."""
        collective, begin = self._collective, 0
        expected = {"owner": collective.is_sharded or collective.in_pairs, "target": collective.in_pairs}
        for name, is_expected in expected.items():
            if (name in row) != is_expected:
                has, does = ("no", "needs") if is_expected else ("a", "does not have")
                raise self._fail(f"{place} has {has} {name}, which {collective} {does}")
            if is_expected:
                begin = begin * self._topology.num_ranks + self._rank(row[name], f"{name} of {place}")
        return begin

    def _adds(self, place: str, row: Mapping[str, str]) -> bool:
        """Whether the receiver adds."""
        collective = self._collective
        usual = None if collective.has_two_phases else "add" if collective.reduces else "copy"
        allowed = ("copy", "add") if collective.reduces else ("copy",)
        if (op := row.get("op", usual)) not in allowed:
            raise self._fail(f"op of {place} is {shown(op)}; expected {' or '.join(allowed)} in {collective}")
        return bool(op == "add")


def layout_of(sends: SendList) -> Layout:
    """Lay out the list's chunks."""
    collective, ranks = sends.collective, sends.num_ranks
    shards = tuple(sends.chunks * (rank == sends.root) for rank in range(ranks)) if collective.has_one_root else ()
    parts = ranks**2 if collective.in_pairs else ranks if collective.is_sharded else 1
    return Layout.of(collective, ranks, sends.chunks * parts, shards)


def check_sends(sends: SendList) -> None:
    """Execute the sends; raise `ProgramError` for a chunk that its sender does not have, or wrong data at the end."""
    layout = layout_of(sends)
    inputs = symbolic_inputs(layout)
    contents: list[dict[int, Contents]] = []
    for rank, own in enumerate(inputs):
        begin, end = layout.input_range(rank)
        contents.append(dict(zip(range(begin, end), own[:, 0], strict=True)))
    for step, group in groupby(sends.sends, key=lambda send: send.step):
        _run_step(step, list(group), contents, layout)
    for rank, expected in enumerate(expected_outputs(layout, inputs)):
        for chunk, required in zip(layout.output_chunks(rank), expected[:, 0], strict=True):
            content = contents[rank].get(chunk)
            if content != required:
                ends = "without it" if content is None else f"with {describe_contents(content, layout)}"
                raise ProgramError(f"rank {rank} ends {ends}; expected {describe_contents(required, layout)}")


def _run_step(step: int, sends: list[Send], contents: list[dict[int, Contents]], layout: Layout) -> None:
    arrived: dict[tuple[int, int], tuple[Send, Contents]] = {}
    for send in sends:
        for chunk in range(send.first, send.first + send.length):
            what = contents[send.sender].get(chunk)
            if what is None:
                raise ProgramError(
                    f"{send.where}: rank {send.sender} sends in step {step} {layout.chunk_name(chunk)}, which it "
                    "does not have then"
                )
            key = send.receiver, chunk
            if key in arrived:
                other, earlier = arrived[key]
                if send.adds and other.adds:
                    what = earlier + what
                elif send.adds or other.adds or earlier != what:
                    raise ProgramError(
                        f"{other.where} and {send.where} both bring rank {send.receiver} {layout.chunk_name(chunk)} in "
                        f"step {step}, not the same, so that either may win"
                    )
            arrived[key] = send, what
    for (receiver, chunk), (send, what) in arrived.items():
        before = contents[receiver].get(chunk)
        contents[receiver][chunk] = before + what if send.adds and before is not None else what


def send_messages(sends: SendList) -> Messages:
    """List the messages; their levels are the steps."""
    messages = Messages.of(layout_of(sends))
    # What has brought each rank each chunk, so far.
    arrivals: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for step, group in groupby(sends.sends, key=lambda send: send.step):
        brought = []
        for send in group:
            chunks = range(send.first, send.first + send.length)
            before = [arrival for chunk in chunks for arrival in arrivals[send.sender, chunk]]
            number = messages.send(send.sender, send.receiver, send.length, before, adds=send.adds)
            messages.levels[number] = step
            brought.append((send, number, chunks))
        for send, number, chunks in brought:
            for chunk in chunks:
                # A copy replaces earlier data; a sum needs all contributions.
                kept = arrivals[send.receiver, chunk] if send.adds else []
                arrivals[send.receiver, chunk] = [*kept, number]
    return messages
