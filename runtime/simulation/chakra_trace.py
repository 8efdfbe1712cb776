"""Chakra execution traces: a file per rank of length-prefixed messages, metadata and one node per operation.

Messages are those of ``et_def.proto`` (github.com/mlcommons/chakra, schema 0.0.4; the fork of ASTRA-sim has the same);
no package of it is published, so ``et_def.json`` describes them, for `google.protobuf` to make when first used.
"""

import io
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from ...errors import FileFormatError, UnsupportedError
from ...support.files import name_of, read_bytes, write_whole
from ...support.validation import as_kind, shown
from ..lowering.lower import collector_paused

VALUE_KINDS = ("double", "float", "int32", "int64", "uint32", "uint64", "bool", "string", "bytes")
"""Of an attribute's value.  Others hold lists, or numbers written in rarer ways."""


class Messages(NamedTuple):
    """Classes of the two protobuf messages of a trace file."""

    metadata: Any
    node: Any


@cache
def messages() -> Messages:
    """Create the message classes; imports `google.protobuf` only when called, as that is slow."""
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    text = (files(__package__) / "et_def.json").read_text(encoding="utf-8")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(json_format.Parse(text, descriptor_pb2.FileDescriptorProto()))
    metadata, node = (pool.FindMessageTypeByName(f"collopt_chakra.{name}") for name in ("Metadata", "Node"))
    return Messages(message_factory.GetMessageClass(metadata), message_factory.GetMessageClass(node))


SCHEMA = "0.0.4"

Value = int | float | bool | str | bytes


class NodeKind(IntEnum):
    """Node types, by their number in the schema."""

    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class Attribute(NamedTuple):
    """A value of a node or trace: `name` and `kind`, a type such as ``"int64"``, as in the schema, and the `value`."""

    name: str
    kind: str
    value: Value


@dataclass(frozen=True)
class TraceNode:
    """One operation of a rank.

    Attributes
    ----------
    number : int
        Its id, by which others name it.
    name : str
        For people.
    kind : int
        One of `NodeKind`.
    waits : tuple of int
        Nodes whose results it needs (the schema's data_deps).
    controls : tuple of int
        Nodes that it comes after for other reasons (ctrl_deps).
    duration : int
        µs.
    attributes : tuple of Attribute
    """

    number: int
    name: str
    kind: int
    waits: tuple[int, ...] = ()
    controls: tuple[int, ...] = ()
    duration: int = 0
    attributes: tuple[Attribute, ...] = ()

    def value(self, name: str) -> Value | None:
        """Value of the attribute of this name; None if there is none."""
        return next((attribute.value for attribute in self.attributes if attribute.name == name), None)


@dataclass(frozen=True)
class Trace:
    """All operations of one rank: `nodes` as in the file, `version` of the schema, and `attributes` of the trace."""

    nodes: tuple[TraceNode, ...]
    version: str = SCHEMA
    attributes: tuple[Attribute, ...] = ()


def write_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write the trace of one rank atomically.

    Parameters
    ----------
    trace : Trace
        What one rank does.
    path : str or path
        An existing file is replaced.
    """
    write_whole(path, trace_bytes(trace))


def trace_bytes(trace: Trace) -> bytes:
    """Return the content of a trace file; raises as `write_trace`."""
    from google.protobuf.proto import serialize_length_prefixed

    as_kind(trace, Trace, "the trace")
    metadata, node_of = messages()
    file = io.BytesIO()
    head = metadata(version=trace.version)
    _add_attributes(head, trace.attributes)
    serialize_length_prefixed(head, file)
    for node in trace.nodes:
        message = node_of(
            number=node.number, name=node.name, kind=node.kind, controls=node.controls, waits=node.waits,
            duration=node.duration,
        )  # fmt: skip
        _add_attributes(message, node.attributes)
        serialize_length_prefixed(message, file)
    return file.getvalue()


def _add_attributes(message: Any, attributes: Sequence[Attribute]) -> None:
    for name, kind, value in attributes:
        if kind not in VALUE_KINDS:
            raise UnsupportedError(
                f"attribute {shown(name)} is of kind {shown(kind)}; expected one of {', '.join(VALUE_KINDS)}"
            )
        try:
            message.attributes.add(name=name, **{kind: value})
        except (TypeError, ValueError):
            raise UnsupportedError(f"attribute {shown(name)} is {shown(value)}; expected a value of {kind}") from None


GZIP = b"\x1f\x8b"
GZIP_WINDOW = 31  # What zlib calls a file of gzip
MAX_BYTES = 2**30
MAX_RATIO = 64  # Unpacked bytes for each packed one, six times as many as traces have; the first `FREE_BYTES` are free
FREE_BYTES, MAX_MESSAGE = 2**18, 2**20
MAX_NODES = 2**20  # More than any plan makes for one rank


@collector_paused()
def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read the trace of one rank, which may be compressed by gzip.

    Attributes that are lists are left out.  Raises `FileFormatError` if the file cannot be read, is no such trace, is
    cut short, or a node waits for one that is not there.
    """
    where = name_of(path)
    data = read_bytes(path, MAX_BYTES)
    try:
        trace = _trace(_TraceFile(_decompress(data)))
        _check_dependencies(trace.nodes)
    except FileFormatError as error:
        raise FileFormatError(f"{where} is not an execution trace: {error}") from None
    return trace


def _decompress(data: bytes) -> bytes:
    if data[:2] != GZIP:
        return data
    unpacker, limit = zlib.decompressobj(GZIP_WINDOW), min(MAX_BYTES, max(FREE_BYTES, MAX_RATIO * len(data)))
    try:
        unpacked = unpacker.decompress(data, limit)
    except zlib.error as error:
        raise FileFormatError(f"it cannot be unpacked ({error})") from None
    if not unpacker.eof:
        raise FileFormatError(f"it is cut short, or has more than {limit} bytes once unpacked")
    return unpacked


class _TraceFile(io.BytesIO):
    """Messages, none of which is larger than `MAX_MESSAGE`."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read a length or a message."""
        if size is not None and size > MAX_MESSAGE:
            raise FileFormatError(f"it has a message of {size} bytes; expected at most {MAX_MESSAGE}")
        return super().read(size)


def _trace(file: io.BytesIO) -> Trace:
    metadata, node = messages()
    head = _message(metadata, file)
    if head is None:
        raise FileFormatError("the file has no messages; expected the metadata")
    nodes: dict[int, TraceNode] = {}
    while (message := _message(node, file)) is not None:
        if len(nodes) >= MAX_NODES:
            raise FileFormatError(f"it has more than {MAX_NODES} nodes")
        if message.number in nodes:  # Found at once: many messages without content pack into a few bytes.
            raise FileFormatError(f"node {message.number} is there twice; expected ids of their own")
        waits, controls = tuple(message.waits), tuple(message.controls)
        nodes[message.number] = TraceNode(
            message.number, message.name, message.kind, waits, controls, message.duration, _attributes(message)
        )
    return Trace(tuple(nodes.values()), head.version, _attributes(head))


def _message(kind: Any, file: io.BytesIO) -> Any:
    """Read the next message of the file; None at its end."""
    from google.protobuf.message import DecodeError
    from google.protobuf.proto import parse_length_prefixed

    start = file.tell()
    try:
        return parse_length_prefixed(kind, file)
    except FileFormatError:
        raise
    except (DecodeError, EOFError, OverflowError, ValueError):
        raise FileFormatError(f"the message at byte {start} is damaged or cut short") from None


def _attributes(message: Any) -> tuple[Attribute, ...]:
    kinds = [(attribute, attribute.WhichOneof("value")) for attribute in message.attributes]
    return tuple(Attribute(attribute.name, kind, getattr(attribute, kind)) for attribute, kind in kinds if kind)


def _check_dependencies(nodes: Sequence[TraceNode]) -> None:
    """Refuse dependencies on missing nodes."""
    numbers = {node.number for node in nodes}
    for node in nodes:
        for other in (*node.waits, *node.controls):
            if other not in numbers:
                raise FileFormatError(f"node {node.number} waits for node {other}, which does not exist")
