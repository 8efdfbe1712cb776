"""Text files to import, bounded JSON of other tools read field by field, and imported networks."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Any, NamedTuple

from ...errors import FileFormatError
from ...support.json_files import decode_json, name_of, read_bytes
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
