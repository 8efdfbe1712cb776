"""Reads Chakra execution traces; see `collopt.runtime.chakra.trace`."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Sequence
from typing import Any

from ...errors import FileFormatError
from ...support.reading import name_of, read_bytes
from .trace import Attribute, Trace, TraceNode, messages

GZIP = b"\x1f\x8b"
GZIP_WINDOW = 31
"""What zlib calls a file of gzip."""
MOST_BYTES = 2**30
MOST_NODES = 2**23
"""More than any plan makes for one rank; a packed file of some kilobytes can claim to hold a billion."""


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
        trace = _trace(io.BytesIO(_unpacked(data)))
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


def _trace(file: io.BytesIO) -> Trace:
    metadata, node = messages()
    head = _message(metadata, file)
    if head is None:
        raise FileFormatError("there is no message in it; expected the metadata")
    nodes: list[TraceNode] = []
    while (message := _message(node, file)) is not None:
        if len(nodes) >= MOST_NODES:
            raise FileFormatError(f"it has more than {MOST_NODES} nodes")
        waits, controls = tuple(message.waits), tuple(message.controls)
        nodes.append(
            TraceNode(
                message.number, message.name, message.kind, waits, controls, message.duration, _attributes(message)
            )
        )
    return Trace(tuple(nodes), head.version, _attributes(head))


def _message(kind: Any, file: io.BytesIO) -> Any:
    """Read the next message of the file; None at its end."""
    from google.protobuf.message import DecodeError
    from google.protobuf.proto import parse_length_prefixed

    start = file.tell()
    try:
        return parse_length_prefixed(kind, file)
    except (DecodeError, EOFError, OverflowError, ValueError):
        raise FileFormatError(f"the message at byte {start} is damaged or cut short") from None


def _attributes(message: Any) -> tuple[Attribute, ...]:
    kinds = [(each, each.WhichOneof("value")) for each in message.attributes]
    return tuple(Attribute(each.name, kind, getattr(each, kind)) for each, kind in kinds if kind)


def _check_nodes(nodes: Sequence[TraceNode]) -> None:
    """Refuse ids that occur twice, and dependencies on nodes that are not there."""
    known = {node.number for node in nodes}
    if len(known) < len(nodes):
        raise FileFormatError(f"of {len(nodes)} nodes, only {len(known)} have ids of their own")
    for node in nodes:
        for other in (*node.waits, *node.controls):
            if other not in known:
                raise FileFormatError(f"node {node.number} waits for node {other}, which does not exist")
