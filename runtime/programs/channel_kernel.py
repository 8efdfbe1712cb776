"""Kernel that chooses the channels of all transfers; see `assign_channels`."""

import numpy as np

from ...support.arrays import IntArray
from ...support.kernels import kernel


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
