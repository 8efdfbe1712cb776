"""Channels of an MSCCL++ plan: a pair of them for each connection of the program."""

from __future__ import annotations

from dataclasses import dataclass

from ...programs.program import Program
from ..format.execution_plan import ChannelType

End = tuple[ChannelType, int]
"""A channel of a GPU: its type, and its position among those of that type."""


@dataclass(frozen=True)
class Connections:
    """Channels of a plan.

    `senders`, `receivers`: Both ends of each connection.
    `peers`: Other end of each channel of each rank.
    """

    senders: dict[tuple[int, int, int], End]
    receivers: dict[tuple[int, int, int], End]
    peers: list[dict[ChannelType, list[int]]]

    @classmethod
    def of(cls, program: Program, on_ports: set[tuple[int, int]]) -> Connections:
        """Give every connection a channel at either end.

        Each connection has a pair of channels for itself: data and signals go one way, credits the other.
        """
        found = sorted(
            (
                min(rank.rank, block.send_peer),
                max(rank.rank, block.send_peer),
                rank.rank,
                block.send_peer,
                block.channel,
            )
            for rank in program.ranks
            for block in rank.thread_blocks
            if block.send_peer is not None
        )
        connections = cls({}, {}, [{"memory": [], "port": []} for _ in program.ranks])
        for _, _, sender, receiver, channel in found:
            kind: ChannelType = "port" if (sender, receiver) in on_ports else "memory"
            for ends, here, there in (
                (connections.senders, sender, receiver),
                (connections.receivers, receiver, sender),
            ):
                peers = connections.peers[here][kind]
                ends[sender, receiver, channel] = kind, len(peers)
                peers.append(there)
        return connections
