"""Sends and receives of Chakra traces: the k-th send and receive of the same ends, tag and size match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import ProgramError, UnsupportedError
from ...support.validation import shown
from .trace import NodeKind, TraceNode

MAX_MESSAGE_BYTES = 2**53
MAX_TAG = 2**31
KIND_NAMES: dict[int, str] = {kind.value: kind.name for kind in NodeKind}


class TraceMessage(NamedTuple):
    """What a node sends or receives."""

    sender: int
    receiver: int
    tag: int
    size: int  # Bytes


class Matching:
    """Collects the nodes of all ranks, and matches sends with receives."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._sends: defaultdict[TraceMessage, list[int]] = defaultdict(list)
        self._receives: defaultdict[TraceMessage, list[int]] = defaultdict(list)

    def add(self, rank: int, node: TraceNode, number: int) -> TraceMessage | None:
        """Add a node, which is known by `number`; return what it sends or receives, None for a computation.

        Raises `UnsupportedError` for other kinds of nodes, and `ProgramError` for missing attributes.
        """
        if node.kind == NodeKind.COMP:
            return None
        if node.kind not in {NodeKind.COMM_SEND, NodeKind.COMM_RECV}:
            kind = KIND_NAMES.get(node.kind, node.kind)
            raise UnsupportedError(
                f"node {node.number} of rank {rank} is of kind {kind}; expected sends, receives and computations"
            )
        sends = node.kind == NodeKind.COMM_SEND
        peer = _count(rank, node, "comm_dst" if sends else "comm_src", self._num_ranks)
        ends = (rank, peer) if sends else (peer, rank)
        size = _count(rank, node, "comm_size", MAX_MESSAGE_BYTES)
        message = TraceMessage(*ends, _count(rank, node, "comm_tag", MAX_TAG), size)
        (self._sends if sends else self._receives)[message].append(number)
        return message

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield each send with its receive; `ProgramError` if their numbers differ."""
        for message in sorted(self._sends.keys() | self._receives.keys()):
            sends, receives = self._sends[message], self._receives[message]
            if len(sends) != len(receives):
                raise ProgramError(
                    f"rank {message.sender} sends {len(sends)} messages of {message.size} bytes with tag {message.tag} "
                    f"to rank {message.receiver}, which receives {len(receives)} of them; expected equally many"
                )
            yield from zip(sends, receives, strict=True)


def _count(rank: int, node: TraceNode, name: str, limit: int) -> int:
    value = node.value(name)
    if not isinstance(value, int) or not 0 <= value < limit:
        raise ProgramError(
            f"node {node.number} of rank {rank} has {name} {shown(value)}; expected a whole number below {limit}"
        )
    return value
