"""Figures of generalized Kautz graphs, worked out once per machine and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..solvers.kautz_bandwidth import KautzFigures, as_figures, kautz_figures, kautz_table
from ..topologies.files import write_whole

__all__ = ["load_kautz_table", "stored_figures"]

LARGEST = 2000
"""Nodes of the graphs in the table: as far as the paper's Figure 18 goes."""
VERSION = 1
"""Of the files; a change of the kernel's results or of the table's layout makes it the next number."""

FOLDER_VARIABLE = "COLLOPT_CACHE_DIR"
"""Environment variable that names another folder for the files."""

IntArray = npt.NDArray[np.int64]

_tables: dict[int, IntArray] = {}


@cache
def stored_figures(degree: int, size: int) -> KautzFigures:
    """Return what `kautz_figures` returns, out of a table where one is loaded.

    Parameters
    ----------
    degree, size : int
        d of at least 2, and m of at least d + 1.

    Returns
    -------
    KautzFigures
    """
    if degree in _tables and size <= LARGEST:
        return as_figures(degree, size, _tables[degree][size - degree - 1])
    return kautz_figures(degree, size)


def load_kautz_table(degree: int) -> None:
    """Have the figures of all graphs of one degree ready: out of the cache, or worked out and put there.

    One graph takes milliseconds, all together some seconds.  A file that cannot be read or is not what it should be is
    written anew; where no file can be written, the table lasts as long as the process.

    Parameters
    ----------
    degree : int
        At least 2; from `LARGEST` on there is no table.
    """
    if degree in _tables or degree + 1 >= LARGEST:
        return
    path = _path(degree)
    table = _read(path, degree)
    if table is None:
        table = kautz_table(degree, degree + 1, LARGEST)
        _write(path, table, degree)
    _tables[degree] = table


def _path(degree: int) -> Path:
    from platformdirs import user_cache_path

    folder = os.environ.get(FOLDER_VARIABLE)
    return (Path(folder) if folder else user_cache_path("collopt", appauthor=False)) / f"kautz-{degree}.json"


def _read(path: Path, degree: int) -> IntArray | None:
    """Read a table, or return None if there is none that is sure to be right."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["version"] != VERSION or stored["sha256"] != _digest(degree, stored["rows"]):
            return None
        return np.array(stored["rows"], dtype=np.int64)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _write(path: Path, table: IntArray, degree: int) -> None:
    """Write a table, if it can be written."""
    rows = table.tolist()
    stored = {"version": VERSION, "degree": degree, "sha256": _digest(degree, rows), "rows": rows}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(stored) + "\n")


def _digest(degree: int, rows: object) -> str:
    return hashlib.sha256(json.dumps([VERSION, degree, LARGEST, rows]).encode()).hexdigest()
