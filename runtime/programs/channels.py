"""Assignment of a connection's transfers to channels."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray, narrow
from .program import Program

CONNECTIONS_PER_CHANNEL = 32
"""Sends, and receives, that MSCCL runtimes allow one rank to have on one channel (MAXSENDSPERCHANNEL, NCCL's arity)."""


def assign_channels(
    connections: Sequence[tuple[int, int]] | IntArray,
    sizes: Sequence[int] | IntArray,
    max_steps: int,
    channels: int,
    copies: Sequence[int] | IntArray = (),
) -> IntArray:
    """Choose a channel per transfer, with balanced loads; those of equal `copies`, a number from 0 on, share one."""
    from .channel_kernel import chosen_channels

    # Contiguous also where there are several, or the kernel would be compiled twice.
    senders, receivers = np.ascontiguousarray(np.asarray(connections, dtype=np.int64).reshape(-1, 2).T)
    copy_numbers, amounts = np.asarray(copies, dtype=np.int64), np.asarray(sizes, dtype=np.int64)
    common = np.full(len(senders), -1, dtype=np.int64)
    if (copy_numbers >= 0).any():
        channels_of_copies = _common_channels(
            senders.tolist(), amounts.tolist(), max_steps, channels, copy_numbers.tolist()
        )
        common[copy_numbers >= 0] = [channels_of_copies[number] for number in copy_numbers[copy_numbers >= 0].tolist()]
    if not len(senders):
        return common
    ranks = int(max(senders.max(), receivers.max())) + 1
    order = np.lexsort((narrow(receivers), narrow(senders)))
    # A connection passes over channels that are full at one of its ends, or are its own.
    begins = np.flatnonzero(np.diff((senders * ranks + receivers)[order], prepend=-1))
    first_of, lengths = order[begins], np.diff(begins, append=len(order))
    widths = np.minimum(lengths, np.maximum(channels, -(-lengths // max_steps)))
    full = [np.bincount(side[first_of], widths).max() // CONNECTIONS_PER_CHANNEL for side in (senders, receivers)]
    bound = int(sum(full) + widths.max() + common.max()) + 3
    return chosen_channels(
        order, senders, receivers, amounts, common, max_steps, channels, CONNECTIONS_PER_CHANNEL, (ranks, bound)
    )


def _common_channels(
    senders: Sequence[int], sizes: Sequence[int], max_steps: int, channels: int, copies: Sequence[int]
) -> dict[int, int]:
    """Channel of each number in `copies`, of as many per sender as the steps require."""
    sizes_of: dict[int, dict[int, int]] = defaultdict(dict)
    for sender, size, number in zip(senders, sizes, copies, strict=True):
        if number >= 0:
            sizes_of[sender][number] = size
    common = {}
    for own in sizes_of.values():
        width = min(len(own), max(channels, -(-len(own) // max_steps)))
        chunks, steps = [0] * width, [0] * width
        for number, size in own.items():
            lightest = min(
                (candidate for candidate in range(width) if steps[candidate] < max_steps), key=chunks.__getitem__
            )
            chunks[lightest] += size
            steps[lightest] += 1
            common[number] = lightest
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
    limit = max(transfers.values(), default=instances) // instances
    if channels > limit:
        raise UnsupportedError(
            f"channels is {channels}, but no connection of this plan has more than {limit} transfers to spread over "
            f"channels; expected at most {limit}, and instances for more thread blocks than that"
        )
