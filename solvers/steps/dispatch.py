"""Dispatch of routed tokens: counts by the GPUs that want them, and relays that send copies on, by water filling.

A token of server i for a set S of others has one chief among S and i: the server that sends the copies; if that is not
i, i sends one to the chief.  The GPUs of one server that want a token are the bits of one byte, and tokens go in their
order.
"""

import numpy as np
import numpy.typing as npt

from ...support.arrays import IntArray
from ...support.kernels import kernel, runtime_kernel

PIECES = 32  # Parts of what a server has in a round, of which each is dealt out at once
SWEEPS = 2  # over all classes; more change the largest number of sends by less than a percent


MaskArray = npt.NDArray[np.uint8]


@runtime_kernel
def destination_masks(indices: IntArray, homes: IntArray, servers: int, gpus: int) -> MaskArray:
    """Return the GPUs that want each token, by server; shapes (tokens, choices) and (experts,) to (tokens, servers)."""
    masks = np.zeros((len(indices), servers), dtype=np.uint8)
    server, bit = homes // gpus, (1 << homes % gpus).astype(np.uint8)
    for token in range(len(indices)):
        for expert in indices[token]:
            masks[token, server[expert]] |= bit[expert]
    return masks


@runtime_kernel
def sorted_by_mask(masks: MaskArray, gpus: int) -> tuple[IntArray, IntArray, IntArray]:
    """Count tokens by server and mask, and sort each server's by mask, then number.

    Shapes: returns int64 (servers, 2^gpus), with 0 for the empty mask; the sorted tokens, server by server; and where
    each server's begin, int64 (servers + 1,).
    """
    tokens, servers = masks.shape
    histogram = np.zeros((servers, 1 << gpus), dtype=np.int64)
    for token in range(tokens):
        for server in range(servers):
            histogram[server, masks[token, server]] += 1
    histogram[:, 0] = 0
    places = np.zeros((servers, 1 << gpus), dtype=np.int64)
    begins = np.zeros(servers + 1, dtype=np.int64)
    total = 0
    for server in range(servers):
        for mask in range(1 << gpus):
            places[server, mask] = total
            total += histogram[server, mask]
        begins[server + 1] = total
    ordered = np.empty(total, dtype=np.int64)
    for token in range(tokens):
        for server in range(servers):
            mask = masks[token, server]
            if mask:
                ordered[places[server, mask]] = token
                places[server, mask] += 1
    return histogram, ordered, begins


@runtime_kernel
def heaviest_subset(once: IntArray, classes: IntArray) -> tuple[int, int]:
    """Find the servers X with the most sends per server that no relays among X can do without: sends and servers.

    These are the sum of ``once[i]`` over X, and ``|S| - 1`` for each token of a server i in X whose set S of other
    servers is in X.

    Shapes: `once` int64 (servers,); `classes` int64 (servers, 2^servers), tokens by their set S, as bits.
    """
    servers, subsets = classes.shape
    sends = np.zeros(subsets, dtype=np.int64)
    sizes = np.zeros(subsets, dtype=np.int64)
    for subset in range(1, subsets):
        sizes[subset] = sizes[subset >> 1] + (subset & 1)
    for server in range(servers):
        sends[1 << server] += once[server]
        for subset in range(1, subsets):
            sends[subset | (1 << server)] += classes[server, subset] * (sizes[subset] - 1)
    for server in range(servers):
        for subset in range(subsets):
            if subset >> server & 1:
                sends[subset] += sends[subset ^ (1 << server)]
    best, size = 0, 1
    for subset in range(1, subsets):
        if sends[subset] * size > best * sizes[subset]:
            best, size = sends[subset], sizes[subset]
    return best, size


@runtime_kernel
def chief_quotas(once: IntArray, classes: IntArray, target: int) -> IntArray:
    """Return the tokens of each class by chief, so that the most sends are few; no relays below `target` sends.

    Shapes: `once` int64 (servers,), tokens that leave each; `classes` int64 (servers, 2^servers), tokens by the set of
    other servers that want them; returns int64 (servers, 2^servers, servers).
    """
    servers, subsets = classes.shape
    quotas = np.zeros((servers, subsets, servers), dtype=np.int64)
    sends = once.copy()
    for server in range(servers):
        for subset in range(1, subsets):
            quotas[server, subset, server] = classes[server, subset]
            sends[server] += classes[server, subset] * _extra_copies(subset)
    for _ in range(SWEEPS):
        for server in range(servers):
            for subset in range(1, subsets):
                if classes[server, subset] and _extra_copies(subset):
                    _fill(
                        quotas[server, subset],
                        sends,
                        subset | 1 << server,
                        classes[server, subset],
                        _extra_copies(subset),
                    )
    for server in range(servers):
        for subset in range(1, subsets):
            for chief in range(servers):
                if chief != server and quotas[server, subset, chief]:
                    back = max(0, min(quotas[server, subset, chief], (target - sends[server]) // _extra_copies(subset)))
                    quotas[server, subset, chief] -= back
                    quotas[server, subset, server] += back
                    sends[chief] -= back * _extra_copies(subset)
                    sends[server] += back * _extra_copies(subset)
    return quotas


@kernel
def _extra_copies(subset: int) -> int:
    """Copies that a chief sends besides the first: servers in a set, less one."""
    count = -1
    while subset:
        count += subset & 1
        subset >>= 1
    return count


@kernel
def _fill(quota: IntArray, sends: IntArray, members: int, tokens: int, extra: int) -> None:
    """Deal the tokens of one class out to its members anew, to those with the fewest sends first."""
    for chief in range(len(quota)):
        sends[chief] -= quota[chief] * extra
        quota[chief] = 0
    left, level, count = tokens, 2**62, len(quota) + 1
    while True:  # until all that are below the level keep it so, but for rounding
        total, below = tokens * extra, 0
        for chief in range(len(quota)):
            if members >> chief & 1 and sends[chief] < level:
                total += sends[chief]
                below += 1
        if below == 0 or below >= count:
            break
        level, count = total // below, below
    for chief in range(len(quota)):
        if members >> chief & 1 and sends[chief] < level:
            quota[chief] = min(left, (level - sends[chief]) // extra)
            left -= quota[chief]
            sends[chief] += quota[chief] * extra
    while left:
        idlest = -1
        for chief in range(len(quota)):
            if members >> chief & 1 and (idlest < 0 or sends[chief] < sends[idlest]):
                idlest = chief
        quota[idlest] += 1
        sends[idlest] += extra
        left -= 1


@runtime_kernel
def dealt(classes: IntArray, quotas: IntArray, rounds: int) -> tuple[IntArray, IntArray]:
    """Deal the tokens of all ranks out to chiefs and rounds; return rows of equal ones, and what ranks send by round.

    The round after its own, a relayed token is sent on by the GPU of the chief that has the number of its rank's.
    Equal tokens of a rank stay together up to a part of what a server has, so that there are few rows; each goes to the
    chief with the most left, in the round in which that has the fewest.

    Shapes: `classes` int64 (ranks, 2^servers); `quotas` as `chief_quotas` returns them; rows int64 (rows, 5) with rank,
    class, chief, round and tokens, by rank and class; sends int64 (rounds + 1, ranks, servers).
    """
    ranks, subsets = classes.shape
    servers = quotas.shape[2]
    gpus = ranks // servers
    rows = np.empty(
        (min(classes.sum(), np.count_nonzero(classes) * servers + 2 * PIECES * rounds * servers), 5), np.int64
    )
    sends = np.zeros((rounds + 1, ranks, servers), dtype=np.int64)
    count = 0
    for server in range(servers):
        left, busy = quotas[server].copy(), np.zeros((servers, rounds), dtype=np.int64)
        portion = max(1, left.sum() // (PIECES * rounds))
        for rank in range(server * gpus, (server + 1) * gpus):
            for subset in range(1, subsets):
                tokens = classes[rank, subset]
                while tokens:
                    chief, number = 0, 0
                    for other in range(servers):
                        if left[subset, other] > left[subset, chief]:
                            chief = other
                    for other in range(rounds):
                        if busy[chief, other] < busy[chief, number]:
                            number = other
                    some = min(tokens, portion, left[subset, chief])
                    if some == 0:
                        break
                    row = rows[count]
                    row[0], row[1], row[2], row[3], row[4] = rank, subset, chief, number, some
                    count += 1
                    tokens -= some
                    left[subset, chief] -= some
                    busy[chief, number] += some * max(1, _extra_copies(subset))
                    _send(sends, rank, subset, chief, number, some, gpus)
    return rows[:count], sends


@kernel
def _send(sends: IntArray, rank: int, subset: int, chief: int, number: int, tokens: int, gpus: int) -> None:
    """Add the sends of some tokens, and those of their relay one round later."""
    relay = chief * gpus + rank % gpus
    for server in range(sends.shape[2]):
        if subset >> server & 1:
            if chief in (rank // gpus, server):
                sends[number, rank, server] += tokens
            else:
                sends[number + 1, relay, server] += tokens
