"""Bounded reading of regular files: never blocks on a pipe, and never reads more than a given number of bytes."""

import os
import re
import stat
from typing import BinaryIO

from ..errors import FileFormatError
from .validation import as_path

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}

BLOCK_BYTES = 2**20  # bytes read at once
_OPEN_DESCRIPTOR = re.compile(r"/dev/stdin|/dev/fd/[0-9]+|/proc/(self|[0-9]+)/fd/[0-9]+")
"""Descriptors that are open already: standard input, and the shell's ``<(command)``."""


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
        if kind in KINDS and not _OPEN_DESCRIPTOR.fullmatch(os.path.normpath(file)):
            raise FileFormatError(f"{where} is {KINDS[kind]}; expected a file, or /dev/stdin")
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
