"""Assignment of a connection's transfers to channels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from ...errors import UnsupportedError
from .program import Program

CONNECTIONS_PER_CHANNEL = 32
"""Sends, and receives, that MSCCL runtimes allow one rank to have on one channel (MAXSENDSPERCHANNEL, NCCL's arity)."""


def assign_channels(
    connections: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    max_steps: int,
    channels: int,
    copies: Sequence[int] = (),
) -> list[int]:
    """Choose a channel per transfer: as many per connection as its steps require, with balanced loads.

    Transfers with the same number of 0 or more in `copies` are copies for different receivers, on one channel.
    """
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, connection in enumerate(connections):
        members[connection].append(number)
    sends: Counter[tuple[int, int]] = Counter()
    receives: Counter[tuple[int, int]] = Counter()
    chosen = [0] * len(connections)
    common = _common_channels(connections, sizes, max_steps, channels, copies)
    for (sender, receiver), numbers in sorted(members.items()):
        needed = min(len(numbers), max(channels, -(-len(numbers) // max_steps)))
        own = sorted({common[copies[number]] for number in numbers if copies and copies[number] >= 0})
        channel = 0
        while len(own) < needed:
            if channel in own:
                pass
            elif max(sends[sender, channel], receives[receiver, channel]) < CONNECTIONS_PER_CHANNEL:
                own.append(channel)
                sends[sender, channel] += 1
                receives[receiver, channel] += 1
            channel += 1
        # Each transfer goes to the channel that has moved least so far.
        chunks, steps = dict.fromkeys(own, 0), dict.fromkeys(own, 0)
        for number in numbers:
            if copies and copies[number] >= 0:
                chosen[number] = least = common[copies[number]]
                chunks[least] += sizes[number]
                steps[least] += 1
        for number in numbers:
            least = own[0]
            if copies and copies[number] >= 0:
                continue
            if len(own) > 1:
                least = min((each for each in own if steps[each] < max_steps), key=lambda each: (chunks[each], each))
            chunks[least] += sizes[number]
            steps[least] += 1
            chosen[number] = least
    return chosen


def _common_channels(
    connections: Sequence[tuple[int, int]], sizes: Sequence[int], max_steps: int, channels: int, copies: Sequence[int]
) -> dict[int, int]:
    """Channel of each number in `copies`, of as many per sender as the steps require."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for (sender, _), size, number in zip(connections, sizes, copies, strict=False):
        if number >= 0:
            found[sender][number] = size
    common = {}
    for own in found.values():
        needed = min(len(own), max(channels, -(-len(own) // max_steps)))
        chunks, steps = [0] * needed, [0] * needed
        for number, size in own.items():
            least = min((each for each in range(needed) if steps[each] < max_steps), key=chunks.__getitem__)
            chunks[least] += size
            steps[least] += 1
            common[number] = least
    return common


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
