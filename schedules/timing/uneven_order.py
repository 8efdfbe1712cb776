"""Order of messages of unequal sizes: list scheduling of an open shop, where each message needs all links of its path.

Time is filled greedily: whenever links become free, of the messages whose links are all free those start first that
more messages wait for one after the other, then the longest.  Where messages need two links, as on one switch, any such
schedule takes at most twice the least time (Shmoys, Stein, Wein, SIAM Journal on Computing 23(3), 1994).  The least
time itself, by the colors of a bipartite graph's edges (Gonzalez, Sahni, Journal of the ACM 23(4), 1976), cuts messages
into parts; here they stay whole.
"""

import numpy as np

from ...support.arrays import IntArray
from ...support.kernels import kernel
from ...topologies import Topology
from ..transfers import Transfers
from .message_times import transfers_ahead

LONGEST = 2**40  # Ticks of the longest message on one link
NEVER = 2**62


def uneven_turns(transfers: Transfers, topology: Topology, rounds: IntArray) -> IntArray:
    """When each message would start, int64 (transfers,); of equal ones the earliest of `rounds` goes first."""
    busy = transfers.amounts[transfers.hop_owners] / topology.arrays.capacities[transfers.hop_links]
    ticks = np.ceil(busy * (LONGEST / busy.max(initial=1e-9))).astype(np.int64)
    longest = np.zeros(len(rounds), dtype=np.int64)
    np.maximum.at(longest, transfers.hop_owners, ticks)
    order = np.lexsort((rounds, -longest, -transfers_ahead(transfers)))
    return _starts(order, transfers.hop_starts, transfers.hop_links, ticks, topology.num_links)


@kernel
def _starts(order: IntArray, hop_starts: IntArray, hop_links: IntArray, ticks: IntArray, num_links: int) -> IntArray:
    """Start times of messages, tried in `order` whenever a link becomes free."""
    starts = np.zeros(len(order), dtype=np.int64)
    free = np.zeros(num_links, dtype=np.int64)
    left, count, now = order.copy(), len(order), 0
    while count:
        waiting, soonest = 0, NEVER
        for place in range(count):
            message = left[place]
            ready = now
            for hop in range(hop_starts[message], hop_starts[message + 1]):
                ready = max(ready, free[hop_links[hop]])
            if ready > now:
                left[waiting] = message
                waiting += 1
                soonest = min(soonest, ready)
                continue
            starts[message] = now
            for hop in range(hop_starts[message], hop_starts[message + 1]):
                free[hop_links[hop]] = now + ticks[hop]
        count, now = waiting, soonest
    return starts
