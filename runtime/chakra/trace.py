"""Chakra execution traces, which ASTRA-sim and others read: one file per rank, one node per operation.

A file is a row of messages, each behind its length: first the metadata, then the nodes.  Messages are those of
``et_def.proto`` (github.com/mlcommons/chakra, schema 0.0.4; the fork of ASTRA-sim has the same), in the wire format of
Protocol Buffers.  collopt writes and reads that itself: no package for it is published.  Reading is in
`collopt.runtime.chakra.reader`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from ...errors import UnsupportedError
from ...support.validation import shown
from ...support.writing import write_whole
from ..programs.checks import check_counts
from .protobuf import BYTES, FIXED32, FIXED64, VARINT, bytes_field, packed_field, varint, varint_field

__all__ = [
    "FLOATS",
    "KIND_FIELDS",
    "WIRES",
    "Attribute",
    "NodeKind",
    "Trace",
    "TraceNode",
    "Value",
    "rotate_trace",
    "trace_bytes",
    "write_trace",
]

SCHEMA = "0.0.4"

PEERS = ("comm_src", "comm_dst")
"""Attributes that name another rank."""

Value = int | float | bool | str | bytes


class NodeKind(IntEnum):
    """What a node is, by its number in the schema."""

    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


KIND_FIELDS = {
    "double": 3,
    "float": 5,
    "int32": 7,
    "int64": 9,
    "uint32": 11,
    "uint64": 13,
    "bool": 27,
    "string": 29,
    "bytes": 31,
}
"""Field of an attribute's value by its kind.  Others hold lists, or numbers written in rarer ways."""
WIRES = dict.fromkeys(KIND_FIELDS, VARINT) | {"double": FIXED64, "float": FIXED32, "string": BYTES, "bytes": BYTES}
FLOATS = {"double": "<d", "float": "<f"}


class Attribute(NamedTuple):
    """A named value of a node or trace.

    Attributes
    ----------
    name : str
        As the schema's readers look for it.
    kind : str
        Its type in the schema, such as ``"int64"``.
    value : bool, int, float, str or list
        Of that type.
    """

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
        return next((each.value for each in self.attributes if each.name == name), None)


@dataclass(frozen=True)
class Trace:
    """All operations of one rank.

    Attributes
    ----------
    nodes : tuple of TraceNode
        In the order of the file.
    version : str
        Of the schema, where the file says so.
    attributes : tuple of Attribute
        About the trace as a whole.
    """

    nodes: tuple[TraceNode, ...]
    version: str = SCHEMA
    attributes: tuple[Attribute, ...] = ()


def write_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write the trace of one rank, whole or not at all.

    Parameters
    ----------
    trace : Trace
        What one rank does.
    path : str or path
        A file there before is replaced.

    Raises
    ------
    UnsupportedError
        If it is no trace, or an attribute is of a kind that is not written.
    OSError
        If the file cannot be written.
    """
    write_whole(path, trace_bytes(trace))


def trace_bytes(trace: Trace) -> bytes:
    """Return what stands in the file of a trace; raises as `write_trace`."""
    _require_trace(trace)
    head = (bytes_field(1, trace.version.encode()) if trace.version else b"") + _attributes(2, trace.attributes)
    messages = [head, *map(_node, trace.nodes)]
    return b"".join(varint(len(message)) + message for message in messages)


def _require_trace(trace: object) -> None:
    if not isinstance(trace, Trace):
        raise UnsupportedError(f"the trace is {shown(trace)}; expected a Trace")


def _node(node: TraceNode) -> bytes:
    """Write a node; fields with the value 0 are left out, as the format has it."""
    parts = [
        varint_field(1, node.number) if node.number else b"",
        bytes_field(2, node.name.encode()) if node.name else b"",
        varint_field(3, node.kind),
        packed_field(4, node.controls),
        packed_field(5, node.waits),
        varint_field(7, node.duration) if node.duration else b"",
        _attributes(10, node.attributes),
    ]
    return b"".join(parts)


def _attributes(number: int, attributes: Sequence[Attribute]) -> bytes:
    return b"".join(bytes_field(number, bytes_field(1, each.name.encode()) + _value(each)) for each in attributes)


def _value(attribute: Attribute) -> bytes:
    """Write a value; unlike other fields, 0 is written, for it says which kind was meant."""
    name, kind, value = attribute
    if kind not in KIND_FIELDS:
        raise UnsupportedError(
            f"attribute {shown(name)} is of kind {shown(kind)}; expected one of {', '.join(KIND_FIELDS)}"
        )
    number = KIND_FIELDS[kind]
    if kind in FLOATS:
        return varint(number << 3 | WIRES[kind]) + struct.pack(FLOATS[kind], value)
    if isinstance(value, str | bytes):
        return bytes_field(number, value.encode() if isinstance(value, str) else value)
    return varint_field(number, int(value))


def rotate_trace(trace: Trace, shift: int, num_ranks: int) -> Trace:
    """Make the trace of the rank `shift` further on of one whose peers are that much further on, too.

    Parameters
    ----------
    trace : Trace
        Of a rank in a schedule that looks the same from every rank, such as a ring.
    shift : int
        How many ranks further on.
    num_ranks : int
        After the last of which comes rank 0.

    Returns
    -------
    Trace

    Raises
    ------
    UnsupportedError
        If an argument is none of these.

    Examples
    --------
    >>> node = TraceNode(0, "send", NodeKind.COMM_SEND, attributes=(Attribute("comm_dst", "int32", 1),))
    >>> rotate_trace(Trace((node,)), 3, 4).nodes[0].value("comm_dst")
    0
    """
    _require_trace(trace)
    check_counts({"num_ranks": num_ranks})
    check_counts({"shift": shift}, least=0)

    def turned(attribute: Attribute) -> Attribute:
        if attribute.name not in PEERS or not isinstance(attribute.value, int):
            return attribute
        return attribute._replace(value=(attribute.value + shift) % num_ranks)

    nodes = [replace(node, attributes=tuple(map(turned, node.attributes))) for node in trace.nodes]
    return replace(trace, nodes=tuple(nodes))
