"""Assignment of a connection's transfers to channels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from ...errors import UnsupportedError
from .program import Program

CONNECTIONS_PER_CHANNEL = 32
"""Sends, and receives, that MSCCL runtimes allow one rank to have on one channel (MAXSENDSPERCHANNEL, NCCL's arity)."""


def assign_channels(
    connections: Sequence[tuple[int, int]], sizes: Sequence[int], max_steps: int, channels: int
) -> list[int]:
    """Choose a channel per transfer: as many per connection as its steps require, with balanced loads."""
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, connection in enumerate(connections):
        members[connection].append(number)
    sends: Counter[tuple[int, int]] = Counter()
    receives: Counter[tuple[int, int]] = Counter()
    chosen = [0] * len(connections)
    for (sender, receiver), numbers in sorted(members.items()):
        needed = min(len(numbers), max(channels, -(-len(numbers) // max_steps)))
        own: list[int] = []
        channel = 0
        while len(own) < needed:
            if max(sends[sender, channel], receives[receiver, channel]) < CONNECTIONS_PER_CHANNEL:
                own.append(channel)
                sends[sender, channel] += 1
                receives[receiver, channel] += 1
            channel += 1
        # Each transfer goes to the channel that has moved least so far.
        chunks, steps = dict.fromkeys(own, 0), dict.fromkeys(own, 0)
        for number in numbers:
            least = own[0]
            if len(own) > 1:
                least = min((each for each in own if steps[each] < max_steps), key=lambda each: (chunks[each], each))
            chunks[least] += sizes[number]
            steps[least] += 1
            chosen[number] = least
    return chosen


def check_channels(program: Program, channels: int, instances: int) -> None:
    """Refuse more channels than any connection can use."""
    transfers = Counter(
        (rank.rank, block.send_peer)
        for rank in program.ranks
        for block in rank.thread_blocks
        for step in block.instructions
        if step.kind == "send"
    )
    most = max(transfers.values(), default=instances) // instances
    if channels > most:
        raise UnsupportedError(
            f"channels is {channels}, but no connection of this plan has more than {most} transfers to spread over "
            f"channels; expected at most {most}, and instances for more thread blocks than that"
        )
