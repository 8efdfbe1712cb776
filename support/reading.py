"""Reading a file whole, as long as it is one: never waiting for a pipe, and never more bytes than were asked for.

Every reader of this package reads through here, so that all of them refuse the same things in the same words.
"""

from __future__ import annotations

import os
import re
import stat
from typing import BinaryIO

from ..errors import FileFormatError
from .validation import as_path

__all__ = ["name_of", "read_bytes", "read_text"]

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}

PIECE = 2**20
"""Bytes read at once."""

_GIVEN = re.compile(r"/dev/stdin|/dev/fd/[0-9]+|/proc/(self|[0-9]+)/fd/[0-9]+")
"""What somebody has opened already: standard input, and the shell's ``<(command)``."""


def read_bytes(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Read a file that a user named."""
    where = name_of(path)
    if not os.fspath(path):
        raise FileFormatError("the path is empty; expected the name of a file")
    file = as_path(path)
    try:
        # Before it is opened, which would wait for a pipe's writer, and may do things to a device.
        found = file.stat()
        kind = stat.S_IFMT(found.st_mode)
        if kind in KINDS and not _GIVEN.fullmatch(os.path.normpath(file)):
            raise FileFormatError(f"{where} is {KINDS[kind]}; expected a file, or /dev/stdin")
        if kind == stat.S_IFREG and found.st_size > most_bytes:
            raise _too_large(where, most_bytes)
        with file.open("rb") as stream:
            content = _at_most(stream, most_bytes + 1)
    except FileFormatError:
        raise
    except FileNotFoundError:
        raise FileFormatError(f"{where} does not exist; check the path") from None
    except IsADirectoryError:
        # pathlib makes "." of nothing at all, which is more often what was typed, by a variable that is not set.
        given = "the path is empty, or ., which" if where == "." and not isinstance(path, str) else where
        raise FileFormatError(f"{given} is a folder; expected a file") from None
    except OSError as error:
        raise FileFormatError(f"{where} cannot be read: {error.strerror or error}") from error
    except ValueError:
        # A null byte, the one character that no path may hold.
        raise FileFormatError(f"{where} is not a path; remove the null byte") from None
    if len(content) > most_bytes:
        raise _too_large(where, most_bytes)
    return content


def read_text(path: str | os.PathLike[str], most_bytes: int) -> str:
    """Read a file of UTF-8 text, with or without a byte order mark; otherwise as `read_bytes`."""
    content = read_bytes(path, most_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{name_of(path)} is not UTF-8 text (byte {error.start}); expected text") from None


def _too_large(where: str, most_bytes: int) -> FileFormatError:
    return FileFormatError(f"{where} is larger than {most_bytes} bytes; expected a smaller file")


def _at_most(stream: BinaryIO, most_bytes: int) -> bytes:
    """Read piece by piece: a pipe does not tell how much is in it, and room for the most may be far too much."""
    content = bytearray()
    while piece := stream.read(min(most_bytes - len(content), PIECE)):
        content += piece
    return bytes(content)


def name_of(path: str | os.PathLike[str]) -> str:
    """Show a path in an error message on one line."""
    name = str(as_path(path))
    return name if name.isprintable() else repr(name)
