"""On-disk cache of the costs of generalized Kautz graphs."""

import hashlib
import json
import os
from contextlib import suppress
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np

from ...solvers.bfb.kautz_bandwidth import (
    KautzFigures,
    as_figures,
    as_transpose_factor,
    kautz_figures,
    kautz_table,
    kautz_transpose_factor,
    kautz_transpose_table,
)
from ...support.arrays import IntArray
from ...support.writing import write_whole

LARGEST = 2000  # nodes of the graphs in the table: as far as the paper's Figure 18 goes
FIGURES = 5  # columns of a table that `as_figures` reads; the others are for `as_transpose_factor`
COLUMNS = FIGURES + 3
VERSION = 2  # of the files; a change of the kernel's results or of the table's layout makes it the next number
FOLDER_VARIABLE = "COLLOPT_CACHE_DIR"  # environment variable that names another folder for the files


_tables: dict[int, IntArray] = {}


@cache
def stored_figures(degree: int, size: int) -> KautzFigures:
    """Return `kautz_figures`, from the table if it is loaded."""
    if degree in _tables and size <= LARGEST:
        return as_figures(degree, size, _tables[degree][size - degree - 1, :FIGURES])
    return kautz_figures(degree, size)


@cache
def stored_transpose_factor(degree: int, size: int) -> Fraction:
    """Return `kautz_transpose_factor`, from the table if it is loaded."""
    if degree in _tables and size <= LARGEST:
        return as_transpose_factor(degree, size, _tables[degree][size - degree - 1, FIGURES:])
    return kautz_transpose_factor(degree, size)


def load_kautz_table(degree: int) -> None:
    """Load the figures of all graphs of one degree and their transposes; fill the cache if needed and possible."""
    if degree in _tables or degree + 1 >= LARGEST:
        return
    path = _path(degree)
    table = _read(path, degree)
    if table is None:
        sizes = degree + 1, LARGEST
        table = np.hstack((kautz_table(degree, *sizes), kautz_transpose_table(degree, *sizes)))
        _write(path, table, degree)
    _tables[degree] = table


def _path(degree: int) -> Path:
    from platformdirs import user_cache_path

    folder = os.environ.get(FOLDER_VARIABLE)
    return (
        Path(folder).expanduser() if folder else user_cache_path("collopt", appauthor=False)
    ) / f"kautz-{degree}.json"


def _read(path: Path, degree: int) -> IntArray | None:
    """Read a table; None if there is no valid one."""
    if not path.is_file():
        return None  # a pipe would be waited for
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["version"] != VERSION or stored["sha256"] != _digest(degree, stored["rows"]):
            return None
        table = np.array(stored["rows"], dtype=np.int64)
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return table if table.shape == (LARGEST - degree, COLUMNS) else None


def _write(path: Path, table: IntArray, degree: int) -> None:
    """Write a table; ignore failures."""
    rows = table.tolist()
    stored = {"version": VERSION, "degree": degree, "sha256": _digest(degree, rows), "rows": rows}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(stored) + "\n")


def _digest(degree: int, rows: object) -> str:
    return hashlib.sha256(json.dumps([VERSION, degree, LARGEST, rows]).encode()).hexdigest()
