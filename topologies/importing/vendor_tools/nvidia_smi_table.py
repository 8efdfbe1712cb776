"""The table that ``nvidia-smi topo -m`` prints, taken apart: which rows are GPUs, and what each pair shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ....support.validation import shown
from ..sources.document import Document
from ..sources.text_matrix import MAX_LINE, CellKind, Header, TextMatrix, plain_lines, read_rows

__all__ = ["Table", "matches", "read_table"]

_GPU = re.compile(r"GPU\d{1,4}", re.ASCII)
_ROW = re.compile(r"\bGPU\d{1,4}\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\b", re.ASCII)
_LABEL = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_CELL = CellKind(
    re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC", re.ASCII),
    "X, NV#, PIX, PXB, PHB, NODE or SYS, as `nvidia-smi topo -m` prints",
)
_AFFINITY = re.compile(r"[\d,-]*", re.ASCII)


class Table(NamedTuple):
    """The table, taken apart.

    Attributes
    ----------
    matrix : TextMatrix
        GPUs and NICs.
    gpus, nics : tuple of int
        Rows of either, in their order.
    affinities : tuple of str
        NUMA node or CPU cores of each GPU; empty where the table says neither.
    """

    matrix: TextMatrix
    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    affinities: tuple[str, ...]

    def between(self, one: int, other: int) -> str:
        """Return the cell of two GPUs, by their position among the GPUs."""
        return self.matrix.cells[self.gpus[one]][self.gpus[other]]

    def line(self, gpu: int) -> int | None:
        """Return where the row of a GPU stands."""
        return self.matrix.lines[self.gpus[gpu]]


def matches(document: Document) -> bool:
    """Tell whether there is a table of GPUs with the tool's kinds of connections; never raises."""
    lines = plain_lines(document) if "GPU" in document.text else []
    return any(_ROW.search(line) for line in lines) and _header(lines) is not None


def read_table(document: Document) -> Table:
    """Read the table; `FileFormatError` if it is cut or contradicts itself."""
    lines = plain_lines(document)
    header = _header(lines)
    if header is None:
        raise document.error("there is no line that names the GPUs of the table; expected `nvidia-smi topo -m`")
    matrix = _unglued(document, read_rows(document, lines, header, _CELL))
    for row, cells in enumerate(matrix.cells):
        for column, cell in enumerate(cells):
            if (cell == "X") != (row == column):
                expected = "X" if row == column else "a kind of connection"
                raise document.error(
                    f"{matrix.cell_name(row, column)} is {shown(cell)}; expected {expected}", matrix.lines[row]
                )
    matrix.check_symmetry(document)
    gpus = tuple(row for row, label in enumerate(matrix.labels) if _GPU.fullmatch(label))
    if len(gpus) < 2:
        raise document.error("the table has one GPU only; expected at least two", header.line)
    nics = tuple(row for row in range(len(matrix.labels)) if row not in set(gpus))
    return Table(matrix, gpus, nics, _affinities(lines[header.line - 1], matrix, gpus))


def _header(lines: Sequence[str]) -> Header | None:
    """Find the first line that names GPUs in columns."""
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            continue
        before, affinity, _ = line.partition("CPU Affinity")
        words = before.split()
        first = next((place for place, word in enumerate(words) if _GPU.fullmatch(word)), None)
        if first is None or any(_CELL.pattern.fullmatch(word) or not _LABEL.fullmatch(word) for word in words[first:]):
            continue
        if affinity or (len(words) > first + 1 and _GPU.fullmatch(words[first + 1])):
            return Header(number, tuple(words[first:]))
    return None


def _unglued(document: Document, matrix: TextMatrix) -> TextMatrix:
    """Part last cells from affinities that a lost tab has joined with them, as in ``NV120-31``.

    How many digits are the cell's is what the same pair shows at its other end.
    """
    last = len(matrix.labels) - 1
    rows, tails = list(matrix.cells), list(matrix.tails)
    for row, tail in enumerate(tails):
        cell = rows[row][last]
        word = f"{cell}{tail}".split(None, 1)[0]
        if word == cell:
            _refuse_more_cells(document, matrix, row)
            continue
        mirror = rows[last][row]
        rest = word[len(mirror) :]
        if not word.startswith(mirror) or not _AFFINITY.fullmatch(rest):
            raise document.error(
                f"{matrix.cell_name(row, last)} is {shown(word)}; expected {_CELL.expected}", matrix.lines[row]
            )
        rows[row] = (*rows[row][:last], mirror)
        tails[row] = f" {cell[len(mirror) :]}{tail}"
    return matrix._replace(cells=tuple(rows), tails=tuple(tails))


def _refuse_more_cells(document: Document, matrix: TextMatrix, row: int) -> None:
    following = matrix.tails[row].split(None, 1)
    if following and _CELL.pattern.fullmatch(following[0]):
        raise document.error(
            f"row {matrix.labels[row]} has more than {len(matrix.labels)} cells; expected one for each column",
            matrix.lines[row],
        )


def _affinities(header: str, matrix: TextMatrix, gpus: Sequence[int]) -> tuple[str, ...]:
    """Return the NUMA node of each GPU, or its CPU cores from drivers that do not print the node."""
    column = 1 if "NUMA Affinity" in header else 0
    words = [matrix.tails[gpu].split() for gpu in gpus]
    return tuple(row[column] if len(row) > column and row[column][0].isdigit() else "" for row in words)
