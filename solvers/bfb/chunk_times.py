"""Step times of a breadth-first broadcast with shards of indivisible chunks.

In time T a link of bandwidth b carries ``floor(b T)`` chunks, so over every set S of links into a rank these numbers
must sum to at least the chunks that only links of S can carry.  By max-flow min-cut that is also sufficient: integer
program (13) of the direct-connect paper needs no branching.  With equal bandwidths, ``T = ceil(P U)`` with
the load U of divisible shards.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ...support.arrays import IntArray
from ...support.compiling.kernels import kernel
from ..flow.max_flow import check_capacities
from .balanced_shares import balance
from .link_masks import Intake, groups_at, shards_within
from .load_balancing import BusiestSet


def least_chunked_times(network: Intake, sets: tuple[BusiestSet, ...], chunks: int) -> tuple[Fraction, ...]:
    """Find lower bounds of the step times, which are attained if all bandwidths are equal."""
    check_capacities(2 * chunks * network.num_ranks * int(network.widths.sum()))
    times = (time_to_bring(network.widths[_places(network, each)], chunks * each.shards) for each in sets)
    return tuple(Fraction(*time) for time in times)


def chunked_times(network: Intake, sets: tuple[BusiestSet, ...], chunks: int) -> tuple[Fraction, ...]:
    """Find the step times; parameters as for `least_chunked_times`."""
    least = least_chunked_times(network, sets, chunks)
    if (network.widths == 1).all():
        return least
    times = np.array([(time.numerator, time.denominator) for time in least], dtype=np.int64)
    _raise_times(network, chunks, times)
    return tuple(Fraction(*time) for time in times.tolist())


def chunk_capacities(network: Intake, times: Sequence[Fraction]) -> IntArray:
    """Count the whole chunks that each link can bring in each step, int64 (diameter, links), for `share_out`."""
    check_capacities(*(int(network.widths.max()) * time.numerator for time in times))
    capacities = np.empty((len(times), len(network.widths)), dtype=np.int64)
    for row, time in zip(capacities, times, strict=True):
        row[:] = network.widths * time.numerator // time.denominator
    return capacities


def _places(network: Intake, found: BusiestSet) -> IntArray:
    """Return the indices of the links of a set in the arrays of the network."""
    begin, end = network.first[found.rank : found.rank + 2]
    places: IntArray = begin + np.flatnonzero(np.isin(network.links[begin:end], found.links))
    return places


@kernel
def time_to_bring(widths: IntArray, chunks: int) -> tuple[int, int]:
    """Return the least time, as a fraction, in which links of given bandwidths together carry so many chunks."""
    total = widths.sum()
    above, below = chunks, total
    while True:
        brought = 0
        for width in widths:
            brought += width * above // below
        if brought >= chunks:
            return above, below
        # The next time at which some link completes a chunk.
        soonest, unit = -1, 1
        for width in widths:
            count = width * above // below + 1
            if soonest < 0 or count * unit < soonest * width:
                soonest, unit = count, width
        above, below = soonest, unit


@kernel
def _raise_times(network: Intake, chunks: int, times: IntArray) -> None:
    """Raise the time of each distance, a fraction in `times`, until all chunks fit into all ranks."""
    for rank in range(len(network.hops)):
        widths = network.widths[network.first[rank] : network.first[rank + 1]]
        for distance in range(1, len(times) + 1):
            if network.starts[rank, distance] == network.starts[rank, distance + 1]:
                break
            groups, time = groups_at(network, rank, distance), times[distance - 1]
            while True:
                _, violated = balance(groups, chunks, widths * time[0] // time[1])
                if not violated.any():
                    break
                time[0], time[1] = time_to_bring(widths[violated], chunks * shards_within(groups, violated))
