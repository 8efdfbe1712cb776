"""Reads traffic matrices from files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FileFormatError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["read_traffic"]

MOST_BYTES = 2**30
"""A larger file is none of traffic between as many ranks as can be planned for."""


def read_traffic(path: Path) -> list[list[str]] | npt.NDArray[np.generic]:
    """Read a matrix; what its entries mean is for the planner to check.

    Parameters
    ----------
    path : path
        CSV without a header, or an array as ``numpy.save`` writes it, by its name.

    Returns
    -------
    list of list of str, or ndarray

    Raises
    ------
    FileFormatError
        If the file cannot be read as one.
    """
    try:
        if path.exists() and not path.is_file():
            raise FileFormatError(f"{path}: the traffic is not in a regular file; write it to one")
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise FileFormatError(f"{path}: the file has {size} bytes; expected at most {MOST_BYTES} for traffic")
        return _array(path) if path.suffix == ".npy" else _rows(path)
    except OSError as error:
        raise FileFormatError(f"{path}: the traffic cannot be read: {error.strerror or error}") from None


def _array(path: Path) -> Any:
    import numpy as np

    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except OSError:
        raise
    except Exception:  # noqa: BLE001 - numpy reads the header as Python, and makes room for whatever it promises
        raise FileFormatError(f"{path}: the traffic is no array as numpy.save writes it") from None


def _rows(path: Path) -> list[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [[entry.strip() for entry in row] for row in csv.reader(file, strict=True) if any(row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path}: the traffic is no CSV text in UTF-8: {error}") from None
    if not rows:
        raise FileFormatError(f"{path}: the traffic is empty; expected one line of numbers per rank")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise FileFormatError(
                f"{path}, row {number}: the traffic has {len(row)} entries here and {len(rows[0])} in row 1"
            )
    return rows
