"""Text files to import, bounded JSON of other tools, square text tables, and imported networks.

A pasted table may have lost its tabs, have terminal colors, a prompt or a log prefix, and be truncated.  So rows are
parsed by the pattern of their cells, from the first label on; errors name the line.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from ...errors import FileFormatError
from ...support.files import MAX_BYTES, decode_json, name_of, read_text
from ...support.validation import shown
from ..network.topology import Topology


class Document(NamedTuple):
    """The text of a file."""

    where: str  # the path, for error messages
    text: str  # all of it, without a byte order mark, lines ended by line feeds

    def error(self, message: str, line: int | None = None) -> FileFormatError:
        """Return an error about this file, with the number of a line if one is given."""
        at = "" if line is None else f", line {line}"
        return FileFormatError(f"{self.where}{at}: {message}")


def read_document(path: str | os.PathLike[str]) -> Document:
    """Read a text file of at most `MAX_BYTES`."""
    document = Document(name_of(path), read_text(path, MAX_BYTES).replace("\r\n", "\n").replace("\r", "\n"))
    if "\0" in document.text:
        raise document.error("it is a binary file; expected text")
    if not document.text.strip():
        raise document.error("it is empty; expected a description of a network")
    return document


class Imported(NamedTuple):
    """An imported network; `notes` are sentences on assumptions, omissions and overrides."""

    topology: Topology
    notes: tuple[str, ...] = ()


MAX_DIGITS = 30
MAX_EXPONENT = 400  # writing out a larger power of ten would take long; floats end at 308


def decode(document: Document) -> dict[str, Any]:
    """Decode a JSON object."""
    data = decode_json(document.text, document.where, parse_float=as_decimal)
    if not isinstance(data, dict):
        raise document.error(f"it holds {shown(data)}; expected a JSON object")
    return data


def looks_like(document: Document, *keys: str) -> bool:
    """Return whether a text could be a JSON object with these keys, without decoding it."""
    return document.text.lstrip().startswith("{") and all(f'"{key}"' in document.text for key in keys)


def as_decimal(text: str) -> Decimal:
    """Read a number with a point or an exponent; `ValueError` for one that would be long when written out."""
    digits, _, exponent = text.lower().partition("e")
    long = len(digits.strip("+-").replace(".", "")) > MAX_DIGITS
    if long or len(exponent) > MAX_DIGITS or abs(int(exponent or 0)) > MAX_EXPONENT:
        raise ValueError(
            f"it has the number {shown(text)}; expected at most {MAX_DIGITS} digits and a power of ten from "
            f"-{MAX_EXPONENT} to {MAX_EXPONENT}"
        )
    return Decimal(text)


MAX_LABELS = 512  # columns of a table; no box has as many GPUs and NICs
MAX_LINE = 2**16  # characters of a line of a table

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[@-~]")
_WORD = re.compile(r"\S+")


class CellKind(NamedTuple):
    """The syntax of a cell."""

    pattern: re.Pattern[str]  # of the cell alone; blanks before it are skipped
    expected: str  # for error messages


class Header(NamedTuple):
    """The first line of a table: its number, from 1, and the labels of the columns."""

    line: int
    labels: tuple[str, ...]


class TextMatrix(NamedTuple):
    """A table whose rows and columns have the same labels in the same order."""

    labels: tuple[str, ...]  # no two are equal
    cells: tuple[tuple[str, ...], ...]  # row by row
    lines: tuple[int | None, ...]  # line number of each row, from 1; None if the source is not a text table
    tails: tuple[str, ...]  # text after the last cell of each row, with the blanks before it

    def cell_name(self, row: int, column: int) -> str:
        """Format the name of a cell for messages."""
        return f"cell {self.labels[row]}-{self.labels[column]}"

    def wrong_cell(self, document: Document, row: int, column: int, expected: str) -> FileFormatError:
        """Return the error for a cell that is not as expected."""
        cell = shown(self.cells[row][column])
        return document.error(f"{self.cell_name(row, column)} is {cell}; expected {expected}", self.lines[row])

    def check_symmetry(self, document: Document) -> None:
        """Raise `FileFormatError` if the table is not symmetric."""
        for row, cells in enumerate(self.cells):
            for column, mirror in enumerate(self.cells[:row]):
                if cells[column] != mirror[row]:
                    other = f"{shown(mirror[row])} of {self.cell_name(column, row)}"
                    other += "" if self.lines[column] is None else f" on line {self.lines[column]}"
                    raise self.wrong_cell(document, row, column, f"{other}, the same from both ends")

    def check_ends(self, document: Document) -> None:
        """Raise `FileFormatError` if a row has text after its last cell."""
        for label, tail, line in zip(self.labels, self.tails, self.lines, strict=True):
            if tail.strip():
                raise document.error(
                    f"row {label} goes on with {shown(tail.strip())} after its {len(self.labels)} cells; expected one "
                    "for each column",
                    line,
                )


def plain_lines(document: Document) -> list[str]:
    """Return the lines of a document without terminal escape sequences."""
    return _ESCAPES.sub("", document.text).split("\n")


def find_headers(lines: Sequence[str], label: re.Pattern[str]) -> Iterator[Header]:
    """Yield the lines that end with two labels or more."""
    for number, line in enumerate(lines, 1):
        words = line.split() if len(line) <= MAX_LINE else []
        first = len(words)
        while first and label.fullmatch(words[first - 1]):
            first -= 1
        if len(words) - first >= 2:
            yield Header(number, tuple(words[first:]))


def read_rows(document: Document, lines: Sequence[str], header: Header, cell: CellKind) -> TextMatrix:
    """Read the rows below a header, in any order."""
    labels = header.labels
    if len(labels) > MAX_LABELS:
        raise document.error(f"the table has {len(labels)} columns; expected at most {MAX_LABELS}", header.line)
    label, times = Counter(labels).most_common(1)[0]
    if times > 1:
        raise document.error(f"two columns are called {shown(label)}; expected different names", header.line)
    names, rows = frozenset(labels), dict[str, tuple[tuple[str, ...], int, str]]()
    for number, line in enumerate(lines[header.line :], header.line + 1):
        if len(line) > MAX_LINE:
            raise document.error(f"it has {len(line)} characters; expected at most {MAX_LINE} in a table", number)
        start = next((word for word in _WORD.finditer(line) if word.group() in names), None)
        if start is None:
            words = line.split(None, 2)
            if len(words) > 1 and cell.pattern.fullmatch(words[1]):
                raise document.error(f"there is a row {shown(words[0])}, but no column of that name", number)
            if words:
                break
            continue
        label, position = start.group(), start.end()
        if label in rows:
            following = _WORD.search(line, position)
            if following is not None and following.group() in names:
                break  # the header of the next table
            raise document.error(f"row {label} appears twice, first on line {rows[label][1]}; keep one", number)
        cells, tail = _cells(document, number, line, (label, position), labels, cell)
        rows[label] = (cells, number, tail)
    if missing := [label for label in labels if label not in rows]:
        raise document.error(
            f"the table has a column {shown(missing[0])}, but no row of that name below; is it cut short?", header.line
        )
    contents, numbers, tails = zip(*(rows[label] for label in labels), strict=True)
    return TextMatrix(labels, contents, numbers, tails)


def _cells(
    document: Document, number: int, line: str, start: tuple[str, int], labels: Sequence[str], cell: CellKind
) -> tuple[tuple[str, ...], str]:
    row, position = start
    cells: list[str] = []
    for column in labels:
        word = _WORD.search(line, position)
        if word is None:
            raise document.error(
                f"row {row} has {len(cells)} cells; expected {len(labels)}, one for each column: is the table cut or "
                "wrapped?",
                number,
            )
        match = cell.pattern.match(line, word.start())
        if match is None:
            raise document.error(f"cell {row}-{column} is {shown(word.group())}; expected {cell.expected}", number)
        cells.append(match.group())
        position = match.end()
    return tuple(cells), line[position:]


def titled_table(
    document: Document, lines: Sequence[str], title: str, label: re.Pattern[str], cell: CellKind
) -> TextMatrix | None:
    """Read the table whose header follows the line with a title; None if there is no such line."""
    at = next((number for number, line in enumerate(lines, 1) if title in line), None)
    if at is None:
        return None
    header = next(find_headers(lines[at:], label), None)
    if header is None or any(line.strip() for line in lines[at : at + header.line - 1]):
        raise document.error(f"no line that names two GPUs or more follows the title '{title}'; is it cut short?", at)
    matrix = read_rows(document, lines, header._replace(line=at + header.line), cell)
    matrix.check_ends(document)
    return matrix
