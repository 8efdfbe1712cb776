"""Lists of sends in CSV: their reader, and the sends and messages that they say.

Each send has a step, the rank that it is from, the rank that it is to, and a chunk; see docs/how-to/score-schedules.md.
All sends of a step read what their senders have before the step.  A send waits for those of earlier steps that brought
its sender some of its chunks, and for nothing else.
"""

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import FileFormatError
from ...schedules import Collective
from ...schedules.steps.sends import EVERYONE, Sends
from ...support.files import name_of, read_text
from ...support.validation import shown
from ...topologies import Topology
from ...topologies.network.links import rank_number
from .messages import Messages

MAX_BYTES = 2**27
MAX_SENDS = 2**20
MAX_STEP = MAX_CHUNKS = 2**20
COLUMNS = ("step", "from", "to", "chunk", "owner", "target", "op")
REQUIRED = COLUMNS[:4]
CHUNKS = re.compile(r"\s*([0-9]{1,7})\s*(?:-\s*([0-9]{1,7})\s*)?")


Row = tuple[str, Mapping[str, str]]
"""Name of its place, and its cells that are not empty by column."""


class SendList(NamedTuple):
    """A list of sends, and the collective and root that it is for."""

    collective: Collective
    root: int | None
    sends: Sends  # By step; paths name ranks only


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
        columns = [self._send(place, row) for place, row in rows]
        order = sorted(range(len(rows)), key=lambda number: columns[number][0])
        collective, ranks = self._collective, self._topology.num_ranks
        chunks = max(last for _, last in ranges) + 1
        steps, senders, receivers, items, adds = np.array([columns[number] for number in order], dtype=np.int64).T
        lower, last = np.array([ranges[number] for number in order], dtype=np.int64).T
        pairs, routes = np.unique(senders * ranks + receivers, return_inverse=True)
        # Who has each item first, or gets it in the end, where these are not all ranks.
        owners = np.array([EVERYONE if self._root is None else self._root])
        if collective.is_sharded or collective.in_pairs:
            owners = np.arange(ranks)
        targets = owners
        if collective.in_pairs:
            owners, targets = np.repeat(owners, ranks), np.tile(owners, ranks)
        everyone = np.full_like(owners, EVERYONE)
        sends = Sends(
            ranks,
            np.full_like(owners, chunks),
            everyone if collective.reduces else owners,
            everyone if "broadcast" in collective.phases else targets,
            steps,
            items,
            lower,
            last + 1,
            routes,
            np.arange(len(pairs) + 1) * 2,
            np.stack(np.divmod(pairs, ranks), axis=1).reshape(-1),
            adds=adds != 0 if collective.reduces else None,
        )
        return SendList(collective, self._root, sends)

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

    def _send(self, place: str, row: Mapping[str, str]) -> tuple[int, int, int, int, bool]:
        """Step, sender, receiver, item, and whether the receiver adds."""
        step = re.fullmatch("[0-9]{1,7}", row["step"])
        if not step or int(step[0]) > MAX_STEP:
            raise self._fail(f"step of {place} is {shown(row['step'])}; expected a whole number from 0 to {MAX_STEP}")
        sender, receiver = (self._rank(row[name], f"{name} of {place}") for name in ("from", "to"))
        if sender == receiver:
            raise self._fail(f"{place} is from rank {sender} to itself; expected two ranks")
        return int(step[0]), sender, receiver, self._item(place, row), self._adds(place, row)

    def _item(self, place: str, row: Mapping[str, str]) -> int:
        """Number of the shard, or of the part of a pair."""
        collective, item = self._collective, 0
        expected = {"owner": collective.is_sharded or collective.in_pairs, "target": collective.in_pairs}
        for name, is_expected in expected.items():
            if (name in row) != is_expected:
                has, does = ("no", "needs") if is_expected else ("a", "does not have")
                raise self._fail(f"{place} has {has} {name}, which {collective} {does}")
            if is_expected:
                item = item * self._topology.num_ranks + self._rank(row[name], f"{name} of {place}")
        return item

    def _adds(self, place: str, row: Mapping[str, str]) -> bool:
        """Whether the receiver adds."""
        collective = self._collective
        usual = None if collective.has_two_phases else "add" if collective.reduces else "copy"
        allowed = ("copy", "add") if collective.reduces else ("copy",)
        if (op := row.get("op", usual)) not in allowed:
            raise self._fail(f"op of {place} is {shown(op)}; expected {' or '.join(allowed)} in {collective}")
        return bool(op == "add")


def send_messages(listed: SendList) -> Messages:
    """List the messages; their levels are the steps."""
    sends = listed.sends
    senders, receivers = sends.ends
    # Between pairs, all data is the average of a rank.
    items = len(sends.sizes) // (sends.num_ranks if listed.collective.in_pairs else 1)
    return Messages(
        Fraction(1, int(sends.sizes[0]) * items),
        senders.tolist(),
        receivers.tolist(),
        (sends.upper - sends.lower).tolist(),
        sends.steps.tolist(),
        [False] * len(senders) if sends.adds is None else sends.adds.tolist(),
        sends.waits.T.tolist(),
    )
