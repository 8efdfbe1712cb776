"""Text files to import, and imported networks."""

import os
from typing import NamedTuple

from ....errors import FileFormatError
from ....support.reading import name_of, read_bytes
from ...network.topology import Topology

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
    """An imported network; `notes` are sentences on what was assumed, left out or overridden."""

    topology: Topology
    notes: tuple[str, ...] = ()
