"""Reads Chakra execution traces; see `collopt.runtime.chakra.trace`."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence

from ...errors import FileFormatError
from ...support.reading import name_of, read_bytes
from ...support.validation import shown
from .protobuf import BYTES, fields, signed, varint_at
from .trace import FLOATS, KIND_FIELDS, WIRES, Attribute, Trace, TraceNode, Value

__all__ = ["read_trace"]

GZIP = b"\x1f\x8b"
GZIP_WINDOW = 31
"""What zlib calls a file of gzip."""
MOST_BYTES = 2**30
MOST_NODES = 2**23
"""More than any plan makes for one rank; a packed file of some kilobytes can claim to hold a billion."""

FIELD_KINDS = {number: kind for kind, number in KIND_FIELDS.items()}
UNSIGNED = ("uint32", "uint64")


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read the trace of one rank; it may be compressed by gzip.

    Parameters
    ----------
    path : path
        File to read.

    Returns
    -------
    Trace
        Attributes that are lists are left out.

    Raises
    ------
    FileFormatError
        If the file cannot be read, is no such trace, is cut short, or a node waits for one that is not there.
    """
    where = name_of(path)
    data = read_bytes(path, MOST_BYTES)
    try:
        messages = list(_messages(_unpacked(data)))
        if not messages:
            raise FileFormatError("there is no message in it; expected the metadata")
        trace = _trace(messages)
        _check_nodes(trace.nodes)
    except FileFormatError as error:
        raise FileFormatError(f"{where} is not an execution trace: {error}") from None
    return trace


def _unpacked(data: bytes) -> bytes:
    if data[:2] != GZIP:
        return data
    unpacker = zlib.decompressobj(GZIP_WINDOW)
    try:
        unpacked = unpacker.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise FileFormatError(f"it cannot be unpacked ({error})") from None
    if not unpacker.eof:
        raise FileFormatError(f"it is cut short, or has more than {MOST_BYTES} bytes once unpacked")
    return unpacked


def _messages(data: bytes) -> Iterator[bytes]:
    place = found = 0
    while place < len(data):
        if found > MOST_NODES:
            raise FileFormatError(f"it has more than {MOST_NODES} nodes")
        found += 1
        length, place = varint_at(data, place)
        if length > len(data) - place:
            raise FileFormatError(f"a message at byte {place} has {length} bytes, but {len(data) - place} are left")
        yield data[place : place + length]
        place += length


def _trace(messages: Sequence[bytes]) -> Trace:
    version, attributes = "", []
    for number, wire, value in fields(messages[0]):
        if number == 1 and wire == BYTES:
            version = _text(value)
        elif number == 2 and wire == BYTES:
            attributes.append(_read_attribute(value))
    known = tuple(each for each in attributes if each is not None)
    return Trace(tuple(map(_read_node, messages[1:])), version, known)


def _read_node(message: bytes) -> TraceNode:
    node_number, name, kind, duration = 0, "", 0, 0
    waits: list[int] = []
    controls: list[int] = []
    attributes = []
    for number, wire, value in fields(message):
        if number in {4, 5}:
            (controls if number == 4 else waits).extend(_numbers(value))
        elif wire == BYTES and number == 2:
            name = _text(value)
        elif wire == BYTES and number == 10:
            attributes.append(_read_attribute(value))
        elif isinstance(value, int):
            node_number = value if number == 1 else node_number
            kind = value if number == 3 else kind
            duration = value if number == 7 else duration
    known = tuple(each for each in attributes if each is not None)
    return TraceNode(node_number, name, kind, tuple(waits), tuple(controls), duration, known)


def _read_attribute(message: int | bytes) -> Attribute | None:
    name, found = "", None
    assert isinstance(message, bytes)
    for number, wire, value in fields(message):
        if number == 1:
            name = _text(value)
        elif number in FIELD_KINDS and wire == WIRES[FIELD_KINDS[number]]:
            kind = FIELD_KINDS[number]
            found = kind, _read_value(kind, value)
    return None if found is None else Attribute(name, *found)


def _read_value(kind: str, value: int | bytes) -> Value:
    if isinstance(value, int):
        return bool(value) if kind == "bool" else value if kind in UNSIGNED else signed(value)
    if kind in FLOATS:
        number: float = struct.unpack(FLOATS[kind], value)[0]
        return number
    return _text(value) if kind == "string" else value


def _numbers(value: int | bytes) -> Iterator[int]:
    """Whole numbers, one by one or packed."""
    if isinstance(value, int):
        yield value
        return
    place = 0
    while place < len(value):
        number, place = varint_at(value, place)
        yield number


def _text(value: int | bytes) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise FileFormatError(f"the text {shown(value)} is not UTF-8") from None


def _check_nodes(nodes: Sequence[TraceNode]) -> None:
    """Refuse ids that occur twice, and dependencies on nodes that are not there."""
    known = {node.number for node in nodes}
    if len(known) < len(nodes):
        raise FileFormatError(f"of {len(nodes)} nodes, only {len(known)} have ids of their own")
    for node in nodes:
        for other in (*node.waits, *node.controls):
            if other not in known:
                raise FileFormatError(f"node {node.number} waits for node {other}, which is not there")
