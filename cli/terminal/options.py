"""Arguments and options that several commands share: planners, the network, and the data of each rank."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import FileFormatError
from ...support.quantities import as_bytes
from ...support.reading import read_bytes, read_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ...schedules import Collective

MAX_RANKS = 2**10  # Of a traffic matrix; files for runtimes hold all-to-alls of at most as many
MAX_BYTES = 32 * MAX_RANKS**2  # Numbers of 24 characters, as numpy.savetxt writes them, and separators


def check_planners(names: Iterable[str]) -> None:
    """Raise `UnsupportedError` for an unknown planner, before any other work."""
    from ...planners.plans.registry import as_planner

    for name in names:
        as_planner(name)


def distinct_sizes(texts: Iterable[str] | None) -> list[str]:
    """Leave out sizes that equal an earlier one, such as 1024 after 1K."""
    firsts: dict[int, str] = {}
    for size in texts or ():
        firsts.setdefault(as_bytes(size), size)
    return list(firsts.values())


def takes_option(planner: str, collective: Collective, name: str) -> bool:
    """Whether a planner has an option for a collective."""
    from ...planners import PLANNERS

    return planner in PLANNERS and PLANNERS[planner].takes(collective, name)


class NetworkOptions(NamedTuple):
    """Options given besides the network's name, as text; its builder, or the reader of its file, parses them."""

    boxes: str | None = None
    fabric: str | None = None
    nodes: str | None = None
    shape: str | None = None
    ranks: str | None = None
    relay: bool = False
    settings: list[str] | None = None
    scale: list[str] | None = None
    without: list[str] | None = None

    def flags(self) -> list[str]:
        """Flags of the options that were given."""
        return list(dict.fromkeys(flag for flag, *_ in self._pairs()))

    def words(self) -> list[str]:
        """Write the options as they are typed."""
        return [word for pair in self._pairs() for word in pair]

    def _pairs(self) -> Iterator[tuple[str, ...]]:
        """Yield the flag of each option that was given, and its value if it takes one."""
        names = ("--boxes", "--fabric", "--nodes", "--shape", "--ranks", "--relay", "--set", "--scale", "--without")
        for flag, value in zip(names, self, strict=True):
            if isinstance(value, list):
                yield from ((flag, entry) for entry in value)
            elif value not in (None, False):
                yield (flag,) if value is True else (flag, str(value))


class ShardOptions(NamedTuple):
    """Options that describe the data of each rank."""

    root: str | None = None
    weights: str | None = None
    traffic: Path | None = None

    def flags(self) -> list[str]:
        """Flags of the options that were given."""
        return [f"--{name}" for name, value in self._asdict().items() if value is not None]

    def read(self) -> dict[str, Any]:
        """Convert the options to arguments of planners, which check the values; read the traffic file."""
        options: dict[str, Any] = {} if self.traffic is None else {"traffic": read_traffic(self.traffic)}
        if self.root is not None:
            is_number = self.root.isascii() and self.root.isdigit() and len(self.root) < 10
            options["root"] = int(self.root) if is_number else self.root
        if self.weights is not None:
            options["weights"] = [weight.strip() for weight in self.weights.split(",")]
        return options


def read_traffic(path: Path) -> list[list[str]] | npt.NDArray[np.generic]:
    """Read a traffic matrix; the planner checks its entries."""
    from ...support.file_kinds import NUMBERS_KIND, wrong_kind

    is_array = path.suffix == ".npy"
    if not is_array and (problem := wrong_kind(path, "a traffic matrix", [NUMBERS_KIND])):
        raise FileFormatError(problem)
    return _array(path) if is_array else _rows(path)


def _array(path: Path) -> Any:
    import numpy as np

    content = read_bytes(path, MAX_BYTES)
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception:  # noqa: BLE001 - numpy reads the header as Python, and allocates whatever it promises
        raise FileFormatError(f"{path}: the traffic is not an array written by numpy.save") from None
    _check_entries(path, array.size)
    return array


def _rows(path: Path) -> list[list[str]]:
    text = read_text(path, MAX_BYTES)
    # Short numbers take many times as much memory as a file.
    _check_entries(path, text.count(",") + max(text.count("\n"), text.count("\r")) - MAX_RANKS)
    lines = io.StringIO(text, newline="")
    try:
        rows = [[entry.strip() for entry in row] for row in csv.reader(lines, strict=True) if any(row)]
    except csv.Error as error:
        raise FileFormatError(f"{path}: the traffic is not valid CSV: {error}") from None
    if not rows:
        raise FileFormatError(f"{path}: the traffic is empty; expected one line of numbers per rank")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise FileFormatError(
                f"{path}, row {number}: the traffic has {len(row)} entries; expected {len(rows[0])}, as in row 1"
            )
    return rows


def _check_entries(path: Path, entries: int) -> None:
    if entries > MAX_RANKS**2:
        raise FileFormatError(f"{path}: the traffic has more than {MAX_RANKS} ranks; expected at most {MAX_RANKS}")
