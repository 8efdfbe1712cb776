"""Text files to import, bounded JSON of other tools read field by field, and imported networks."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from ...errors import FileFormatError
from ...support.files import decode_json, name_of, read_bytes
from ...support.validation import is_int, shown
from ..network.topology import Topology

MAX_BYTES = 256 * 2**20  # larger files are refused unread


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
    where = name_of(path)
    content = read_bytes(path, MAX_BYTES)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileFormatError(f"{where} is UTF-16 text; save it as UTF-8")
    if b"\0" in content:
        raise FileFormatError(f"{where} is a binary file; expected text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileFormatError(f"{where}, line {line}: is not UTF-8 text; save it as UTF-8") from None
    if not text.strip():
        raise FileFormatError(f"{where} is empty; expected a description of a network")
    return Document(where, text.replace("\r\n", "\n").replace("\r", "\n"))


class Imported(NamedTuple):
    """An imported network; `notes` are sentences on assumptions, omissions and overrides."""

    topology: Topology
    notes: tuple[str, ...] = ()


MAX_NUMBER = 10**9
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


class Fields:
    """Reads the fields of a JSON object, with errors that name them."""

    def __init__(self, document: Document, data: dict[str, Any], within: str = "") -> None:
        self._document, self._data, self._within = document, data, within

    def __contains__(self, name: str) -> bool:
        return name in self._data

    def part(self, name: str) -> Fields:
        """Return the fields of an object inside this one."""
        value = self._data.get(name)
        if not isinstance(value, dict):
            raise self._error(name, value, "an object")
        return Fields(self._document, value, f"{self._within}{name}.")

    def text(self, name: str) -> str:
        """Read a text."""
        value = self._data.get(name)
        if not isinstance(value, str) or not value.isprintable():
            raise self._error(name, value, "printable text")
        return value

    def count(self, name: str, *, maximum: int, minimum: int = 1, default: int | None = None) -> int:
        """Read a whole number from `minimum` to `maximum`."""
        value = self._data.get(name, default)
        if not is_int(value) or not minimum <= value <= maximum:
            raise self._error(name, value, f"a whole number from {minimum} to {maximum}")
        return value

    def number(self, name: str, *, minimum: int = 0) -> Decimal:
        """Read a number that is at least `minimum`."""
        return self._number(name, self._data.get(name), minimum)

    def numbers(self, name: str, *, minimum: int = 0) -> list[Decimal]:
        """Read a list of numbers, each at least `minimum`."""
        value = self._data.get(name)
        if not isinstance(value, list):
            raise self._error(name, value, "a list of numbers")
        return [self._number(f"{name}[{place}]", number, minimum) for place, number in enumerate(value)]

    def square(self, name: str, size: int) -> list[list[Decimal]]:
        """Read a square matrix of numbers of at least 0."""
        value = self._data.get(name)
        rows = value if isinstance(value, list) else []
        if len(rows) != size or not all(isinstance(row, list) and len(row) == size for row in rows):
            raise self._error(name, value, f"{size} lists of {size} numbers")
        return [
            [self._number(f"{name}[{i}][{j}]", number, 0) for j, number in enumerate(row)] for i, row in enumerate(rows)
        ]

    def _number(self, name: str, value: object, minimum: int) -> Decimal:
        right = not isinstance(value, bool) and isinstance(value, (int, Decimal)) and minimum <= value <= MAX_NUMBER
        if not right:
            raise self._error(name, value, f"a number from {minimum} to {MAX_NUMBER}")
        return Decimal(value)  # type: ignore[arg-type]

    def _error(self, name: str, value: object, expected: str) -> Exception:
        content = "missing" if value is None else shown(value)
        return self._document.error(f"field {self._within}{name} is {content}; expected {expected}")


def as_decimal(text: str) -> Decimal:
    """Read a number with a point or an exponent."""
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
    """The first line of a table."""

    line: int  # counted from 1
    labels: tuple[str, ...]  # of the columns


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
            for column in range(row):
                if cells[column] != self.cells[column][row]:
                    other = "" if self.lines[column] is None else f" on line {self.lines[column]}"
                    raise document.error(
                        f"{self.cell_name(row, column)} is {shown(cells[column])}, but {self.cell_name(column, row)}"
                        f"{other} is {shown(self.cells[column][row])}; expected the same from both ends",
                        self.lines[row],
                    )

    def check_ends(self, document: Document) -> None:
        """Raise `FileFormatError` if a row has text after its last cell."""
        for row, tail in enumerate(self.tails):
            if tail.strip():
                raise document.error(
                    f"row {self.labels[row]} goes on with {shown(tail.strip())} after its {len(self.labels)} cells; "
                    "expected one for each column",
                    self.lines[row],
                )


def plain_lines(document: Document) -> list[str]:
    r"""Return the lines of a document without terminal escape sequences."""
    return _ESCAPES.sub("", document.text).split("\n")


def find_headers(lines: Sequence[str], label: re.Pattern[str]) -> Iterator[Header]:
    """Yield the lines that end with two labels or more."""
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            continue
        words = line.split()
        first = len(words)
        while first and label.fullmatch(words[first - 1]):
            first -= 1
        if len(words) - first >= 2:
            yield Header(number, tuple(words[first:]))


def line_below(lines: Sequence[str], line: int) -> str:
    """Return the next line with text after a line number, from 1; an empty text at the end."""
    for number in range(line, len(lines)):
        if lines[number].strip():
            return lines[number]
    return ""


def read_rows(document: Document, lines: Sequence[str], header: Header, cell: CellKind) -> TextMatrix:
    """Read the rows below a header, in any order."""
    labels = header.labels
    if len(labels) > MAX_LABELS:
        raise document.error(f"the table has {len(labels)} columns; expected at most {MAX_LABELS}", header.line)
    names = set(labels)
    if twice := [label for label, count in Counter(labels).items() if count > 1]:
        raise document.error(f"two columns are called {shown(twice[0])}; expected different names", header.line)
    rows: dict[str, tuple[tuple[str, ...], int, str]] = {}
    for number in range(header.line + 1, len(lines) + 1):
        line = lines[number - 1]
        if len(line) > MAX_LINE:
            raise document.error(f"it has {len(line)} characters; expected at most {MAX_LINE} in a table", number)
        labelled = ((word.group(), word.end()) for word in _WORD.finditer(line) if word.group() in names)
        start = next(labelled, None)
        if start is None:
            if not line.strip():
                continue
            words = line.split(None, 2)
            if len(words) > 1 and cell.pattern.fullmatch(words[1]):
                raise document.error(f"there is a row {shown(words[0])}, but no column of that name", number)
            break
        label, position = start
        if label in rows:
            following = _WORD.search(line, position)
            if following is not None and following.group() in names:
                break  # the header of the next table
            raise document.error(f"row {label} appears twice, first on line {rows[label][1]}; keep one", number)
        cells, tail = _cells(document, number, line, (label, position), labels, cell)
        rows[label] = (cells, number, tail)
    missing = [label for label in labels if label not in rows]
    if missing:
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
