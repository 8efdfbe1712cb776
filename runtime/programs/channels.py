"""Channels of all transfers of a program, chosen by a kernel so that no two thread blocks share a connection."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray, narrow
from ...support.kernels import kernel
from .program import Program

CONNECTIONS_PER_CHANNEL = 32
"""Sends, and receives, that MSCCL runtimes allow one rank to have on one channel (MAXSENDSPERCHANNEL, NCCL's arity)."""


@kernel
def chosen_channels(
    order: IntArray,
    senders: IntArray,
    receivers: IntArray,
    sizes: IntArray,
    common: IntArray,
    max_steps: int,
    channels: int,
    limit: int,
    bounds: tuple[int, int],
) -> IntArray:
    """Channel of each transfer: the one of its connection that has moved least so far, or that of its copies.

    Shapes: `order` (transfers,), by connection; `common` (transfers,), -1 for none.  `bounds`: numbers of ranks and
    of channels; `limit`: connections per channel of a sender, and of a receiver.
    """
    channel_of = np.zeros(len(order), dtype=np.int64)
    sends, receives = np.zeros(bounds, dtype=np.uint8), np.zeros(bounds, dtype=np.uint8)
    own = np.zeros(bounds[1], dtype=np.bool_)
    chunks, steps = np.zeros(bounds[1], dtype=np.int64), np.zeros(bounds[1], dtype=np.int64)
    begin = 0
    while begin < len(order):
        sender, receiver = senders[order[begin]], receivers[order[begin]]
        # Transfers of the next connection, and the channels that their copies share
        end = begin
        own[:] = False
        chunks[:] = 0
        steps[:] = 0
        while end < len(order) and senders[order[end]] == sender and receivers[order[end]] == receiver:
            transfer = order[end]
            shared = common[transfer]
            if shared >= 0:
                own[shared] = True
                channel_of[transfer] = shared
                chunks[shared] += sizes[transfer]
                steps[shared] += 1
            end += 1
        # Open as many channels as the connection needs, past those that are full at one of its ends.
        width = min(end - begin, max(channels, -(-(end - begin) // max_steps)))
        left, channel = width - own.sum(), 0
        while left > 0:
            if not own[channel] and max(sends[sender, channel], receives[receiver, channel]) < limit:
                own[channel] = True
                sends[sender, channel] += 1
                receives[receiver, channel] += 1
                left -= 1
            channel += 1
        # Give each other transfer to the channel that has moved least so far.
        mine = np.flatnonzero(own)
        for transfer in order[begin:end]:
            if common[transfer] >= 0:
                continue
            lightest = -1
            for candidate in mine:
                if len(mine) == 1 or (
                    steps[candidate] < max_steps and (lightest < 0 or chunks[candidate] < chunks[lightest])
                ):
                    lightest = int(candidate)
            channel_of[transfer] = lightest
            chunks[lightest] += sizes[transfer]
            steps[lightest] += 1
        begin = end
    return channel_of


def assign_channels(
    connections: Sequence[tuple[int, int]] | IntArray,
    sizes: Sequence[int] | IntArray,
    max_steps: int,
    channels: int,
    copies: Sequence[int] | IntArray = (),
) -> IntArray:
    """Choose a channel per transfer, with balanced loads; those of equal `copies`, a number from 0 on, share one."""
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
