"""Reads traffic matrices from files."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError
from ...support.reading import read_bytes, read_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_RANKS = 2**10
"""Files for runtimes hold all-to-alls of at most as many."""
MOST_BYTES = 32 * MOST_RANKS**2
"""Numbers of 24 characters, as numpy.savetxt writes them, and what is between them."""


def read_traffic(path: Path) -> list[list[str]] | npt.NDArray[np.generic]:
    """Read a matrix; what its entries mean is for the planner to check."""
    from ...support.file_kinds import NUMBERS_KIND, wrong_kind

    is_array = path.suffix == ".npy"
    if not is_array and (told := wrong_kind(path, "a traffic matrix", [NUMBERS_KIND])):
        raise FileFormatError(told)
    return _array(path) if is_array else _rows(path)


def _array(path: Path) -> Any:
    import numpy as np

    content = read_bytes(path, MOST_BYTES)
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception:  # noqa: BLE001 - numpy reads the header as Python, and makes room for whatever it promises
        raise FileFormatError(f"{path}: the traffic is not an array written by numpy.save") from None
    _check_entries(path, array.size)
    return array


def _rows(path: Path) -> list[list[str]]:
    text = read_text(path, MOST_BYTES)
    # Short numbers take many times as much memory as a file.
    _check_entries(path, text.count(",") + max(text.count("\n"), text.count("\r")) - MOST_RANKS)
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
    if entries > MOST_RANKS**2:
        raise FileFormatError(f"{path}: the traffic has more than {MOST_RANKS} ranks; expected at most {MOST_RANKS}")
