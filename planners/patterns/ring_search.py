"""Finds rings that share the links well: the channels of a ring algorithm.

NCCL looks for as many rings as it can run next to each other at some speed, each of which visits the boxes one after
the other and the GPUs of a box without leaving it, and enters and leaves boxes through different NICs.  The search
here has the same aim.  Rings are added one at a time, each so that the busiest of its links, counting the rings before
it, is as little busy as possible; then each is looked for again.  Where that falls short of the best result possible,
it is repeated in other orders.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction

from ...errors import UnsupportedError
from ...support.seed import current_seed
from .ring_walk import Ring, Surroundings, Taste, next_ring
from .shortest_routes import Hops, LinkUses

__all__ = ["MAX_CHANNELS", "find_rings", "ring_along", "sharing_time"]

MAX_CHANNELS = 32
"""Rings at most; NCCL has such a limit too."""

IMPROVEMENTS = 2
"""How often each ring is looked for again."""

REGULAR = (Taste(True, "next"), Taste(False, "next"), Taste(True, "zigzag"))
EFFORT = 400
"""How often random orders are tried, times the number of ranks."""

MAX_ATTEMPTS = 20
PATIENCE = 8
"""Attempts in a row without a better result after which there are no more."""


def ring_along(hops: Hops, ranks: Sequence[int], uses: LinkUses) -> Ring:
    """Make the ring of a given order, or raise `UnsupportedError` where a hop is impossible."""
    pairs = zip(ranks, [*ranks[1:], ranks[0]], strict=True)
    return Ring(tuple(ranks), tuple(uses.take(hops.needed(tail, head)) for tail, head in pairs))


def find_rings(
    hops: Hops, boxes: Sequence[Sequence[int]], channels: int | None = None, ideal: Fraction = Fraction(0)
) -> list[Ring]:
    """Find rings that visit the boxes in their order.

    Parameters
    ----------
    hops : Hops
        Of the network.
    boxes : sequence of sequence of int
        Ranks of each box, two or more in all; ranks outside are left out.
    channels : int, optional
        How many rings; as many as share the data fastest by default.
    ideal : Fraction
        What `sharing_time` cannot go below; the search stops there.

    Returns
    -------
    list of Ring
        All to carry the same share.

    Raises
    ------
    UnsupportedError
        If no ring is found.
    """
    everyone = [[rank for box in boxes for rank in box]]
    for groups, nearest in ((boxes, True), (boxes, False), (everyone, False)):
        near = Surroundings(hops, groups, nearest)
        if rings := _best_rings(near, hops, channels, max(ideal, near.ideal)):
            return rings
    raise UnsupportedError(
        f"no ring through {len(everyone[0])} ranks of {hops.network.topology!r} was found in which only switches lie "
        "between neighbours; use another planner, or give the order of a ring if you know one"
    )


def sharing_time(hops: Hops, rings: Sequence[Ring]) -> Fraction:
    """Time per unit of data of the busiest link, in units of capacity, if each ring carries an equal part."""
    uses = LinkUses(hops.network.capacities)
    for ring in rings:
        uses.add(ring.links)
    return Fraction(uses.peak(), uses.common * len(rings))


def _best_rings(near: Surroundings, hops: Hops, channels: int | None, ideal: Fraction) -> list[Ring]:
    """Try regular orders first and after that random ones, until these have not helped for some time."""
    best, time, idle = list[Ring](), Fraction(0), 0
    for attempt in range(min(MAX_ATTEMPTS, 3 + EFFORT // len(near.order))):
        taste = (
            REGULAR[attempt]
            if attempt < len(REGULAR)
            else Taste(attempt % 2 == 0, random.Random(current_seed() * MAX_ATTEMPTS + attempt))
        )
        idle += 1
        for rings in _candidates(near, hops, channels, taste):
            taken = sharing_time(hops, rings)
            if not best or taken < time:
                best, time, idle = rings, taken, 0
            if time == ideal:
                return best
        if not best or idle == PATIENCE:
            break
    return best


def _candidates(near: Surroundings, hops: Hops, channels: int | None, taste: Taste) -> Iterator[list[Ring]]:
    """Rings found one after the other, then so many of them as are fastest; and each with its rings found again."""
    uses, found = LinkUses(hops.network.capacities), list[Ring]()
    for number in range(channels or _useful_channels(near)):
        if (ring := next_ring(near, uses, number, taste)) is None:
            break
        found.append(ring)
        uses.add(ring.links)
    if not found:
        return
    if channels:
        found = [found[number % len(found)] for number in range(channels)]
    else:
        few = min(range(1, len(found) + 1), key=lambda count: sharing_time(hops, found[:count]))
        yield found[:few]
        yield _improved(near, hops, found[:few], taste)
    yield found
    yield _improved(near, hops, found, taste)


def _useful_channels(near: Surroundings) -> int:
    """One ring per GPU of a box, so that each one's NIC has a ring; in a single box, one per link of a rank."""
    return min(MAX_CHANNELS, max(map(len, near.boxes)) if len(near.boxes) > 1 else near.links_per_rank)


def _improved(near: Surroundings, hops: Hops, rings: Sequence[Ring], taste: Taste) -> list[Ring]:
    """Look for each ring again, now that all others are known."""
    rings, uses = list(rings), LinkUses(hops.network.capacities)
    for ring in rings:
        uses.add(ring.links)
    for _ in range(IMPROVEMENTS):
        for number, ring in enumerate(rings):
            uses.add(ring.links, -1)
            other = next_ring(near, uses, number, taste)
            if other and _peak_with(uses, other) < _peak_with(uses, ring):
                rings[number] = other
            uses.add(rings[number].links)
    return rings


def _peak_with(uses: LinkUses, ring: Ring) -> int:
    """Time of the ring's busiest link if it is added."""
    uses.add(ring.links)
    peak = uses.peak(ring.links)
    uses.add(ring.links, -1)
    return peak
