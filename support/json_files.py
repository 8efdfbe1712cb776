"""Strict reader of JSON, and of collopt's versioned JSON files."""

import json
import os
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..errors import FileFormatError
from .reading import name_of, read_text
from .validation import is_whole, shown

MAX_BYTES = 256 * 2**20  # larger files are refused unread: no network that can be planned needs them
MAX_DIGITS = 100  # digits of a JSON integer; valid files stay far below


def read_json(path: str | os.PathLike[str], expected_format: str, max_version: int) -> dict[str, Any]:
    """Read a versioned JSON file and check its header."""
    where = name_of(path)
    return parse_json(_read_text(path, where), where, expected_format, max_version)


def parse_json(text: str, where: str, expected_format: str, max_version: int) -> dict[str, Any]:
    """Decode the text of the JSON file `where` and check its header."""
    if text.lstrip().startswith("<"):
        raise FileFormatError(f"{where} is an XML file; expected a JSON file of format {expected_format!r}")
    data = decode_json(text, where, parse_float=Decimal, object_pairs_hook=_unique_keys)
    check_header(data, expected_format, max_version, where)
    assert isinstance(data, dict)
    return data


def decode_json(text: str, where: str, **hooks: Any) -> Any:
    """Decode the JSON text of the file `where`, whose numbers are finite and short; hooks as for `json.loads`."""
    try:
        return json.loads(text, **{"parse_int": _short_integer, "parse_constant": _refuse_constant, **hooks})
    except json.JSONDecodeError as error:
        raise FileFormatError(
            f"{where} is not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}); "
            "is it cut short, or another kind of file?"
        ) from None
    except RecursionError:
        raise FileFormatError(f"{where} is nested too deeply; expected a few levels") from None
    except ArithmeticError:
        raise FileFormatError(f"{where} has a number whose exponent is too large; expected ordinary numbers") from None
    except ValueError as error:
        raise FileFormatError(f"{where}: {error}") from None


def check_header(data: object, expected_format: str, max_version: int, where: str) -> None:
    """Raise `FileFormatError` unless a document has the expected format and a version from 1 to `max_version`."""
    if not isinstance(data, Mapping):
        actual = "null" if data is None else shown(data)
        raise FileFormatError(f"{where} holds {actual}; expected a JSON object of format {expected_format!r}")
    if "format" not in data:
        raise FileFormatError(f"{where} has no field 'format'; expected format {expected_format!r}")
    if data["format"] != expected_format:
        raise FileFormatError(f"{where} is of format {shown(data['format'])}; expected {expected_format!r}")
    version = data.get("version")
    if not is_whole(version) or version < 1:
        raise FileFormatError(f"field version of {where} is {shown(version)}; expected a whole number from 1")
    if version > max_version:
        readable = "version 1" if max_version == 1 else f"versions 1 to {max_version}"
        raise FileFormatError(f"{where} is version {shown(version)}; this release reads {readable}: upgrade collopt")


def _read_text(path: str | os.PathLike[str], where: str) -> str:
    text = read_text(path, MAX_BYTES)
    if not text.strip():
        raise FileFormatError(f"{where} is empty; expected a JSON file")
    return text


def _short_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer has {len(text)} digits; expected at most {MAX_DIGITS}")
    return int(text)


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number; expected a finite one")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise ValueError(f"key {shown(key)} occurs twice in one object; keep one")
        unique[key] = value
    return unique
