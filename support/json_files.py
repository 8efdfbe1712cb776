"""Strict readers of files and of JSON, and of collopt's versioned JSON files."""

import json
import os
import re
import stat
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, BinaryIO

from ..errors import FileFormatError
from .validation import as_path, is_whole, shown

MAX_BYTES = 256 * 2**20  # larger files are refused unread: no network that can be planned needs them
MAX_DIGITS = 100  # digits of a JSON integer; valid files stay far below
SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
BLOCK_BYTES = 2**20  # bytes read at once
_OPEN_DESCRIPTOR = re.compile(r"/dev/stdin|/dev/fd/[0-9]+|/proc/(self|[0-9]+)/fd/[0-9]+")
"""Descriptors that are open already: standard input, and the shell's ``<(command)``."""


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


def read_bytes(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Read a file of at most `max_bytes`, or raise `FileFormatError`."""
    where = name_of(path)
    if not os.fspath(path):
        raise FileFormatError("the path is empty; expected the name of a file")
    file = as_path(path)
    try:
        # Before opening, which would block on a pipe and may affect a device.
        data = file.stat()
        kind = stat.S_IFMT(data.st_mode)
        if kind in SPECIAL and not _OPEN_DESCRIPTOR.fullmatch(os.path.normpath(file)):
            raise FileFormatError(f"{where} is {SPECIAL[kind]}; expected a file, or /dev/stdin")
        if kind == stat.S_IFREG and data.st_size > max_bytes:
            raise _too_large(where, max_bytes)
        with file.open("rb") as stream:
            content = _at_most(stream, max_bytes + 1)
    except FileFormatError:
        raise
    except FileNotFoundError:
        raise FileFormatError(f"{where} does not exist; check the path") from None
    except IsADirectoryError:
        # pathlib turns an empty path, such as an unset shell variable, into ".".
        path_name = "the path is empty, or ., which" if where == "." and not isinstance(path, str) else where
        raise FileFormatError(f"{path_name} is a folder; expected a file") from None
    except OSError as error:
        raise FileFormatError(f"{where} cannot be read: {error.strerror or error}") from error
    except ValueError:
        # A null byte, the one character that no path may hold.
        raise FileFormatError(f"{where} is not a path; remove the null byte") from None
    if len(content) > max_bytes:
        raise _too_large(where, max_bytes)
    return content


def read_text(path: str | os.PathLike[str], max_bytes: int) -> str:
    """Read a file of UTF-8 text, with or without a byte order mark; otherwise as `read_bytes`."""
    content = read_bytes(path, max_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{name_of(path)} is not UTF-8 text (byte {error.start}); expected text") from None


def _too_large(where: str, max_bytes: int) -> FileFormatError:
    return FileFormatError(f"{where} is larger than {max_bytes} bytes; expected a smaller file")


def _at_most(stream: BinaryIO, max_bytes: int) -> bytes:
    """Read block by block: the size of a pipe is unknown, and a buffer for the maximum may be far too large."""
    content = bytearray()
    while block := stream.read(min(max_bytes - len(content), BLOCK_BYTES)):
        content += block
    return bytes(content)


def name_of(path: str | os.PathLike[str]) -> str:
    """Format a path for an error message, on one line."""
    name = str(as_path(path))
    return name if name.isprintable() else repr(name)
