"""Search for rings that share the links well: the channels of a ring algorithm.

As in NCCL, rings visit the boxes one after the other and the GPUs of a box without leaving it, and enter and leave
boxes through different NICs.  Rings are added one at a time, by a depth-first walk with limited patience that keeps the
busiest link as little busy as possible; then each is looked for again.  Where that falls short of the best result
possible, it is repeated in other orders.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Literal, NamedTuple

from ...errors import UnsupportedError
from ...support.seed import current_seed
from .fixed_pattern import Hops, LinkLoads, Route

Row = Mapping[int, tuple[Route, ...]]


class Ring(NamedTuple):
    """`ranks` in the order in which data passes them; ``routes[i]`` leads to the next, the last one to the first."""

    ranks: tuple[int, ...]
    routes: tuple[Route, ...]

    @property
    def links(self) -> list[int]:
        """Every link, once per use."""
        return [link for route in self.routes for link in route.links]


class Preference(NamedTuple):
    """Preferences of a walk among candidate ranks.

    `tie`: Among equals: the next rank by number; or zigzag from where the walk entered the box, 0, 1, -1, 2, -2, ...,
        whose rotations use each pair of an even number of ranks once (Williams 1949); or chance.
    """

    widest_first: bool  # wide links above ranks with few ways on, which will be hard to pass later; or the latter alone
    tie: Literal["next", "zigzag"] | random.Random


class RingContext:
    """Possible successors of each rank, inside its box and in the next box, with their routes.

    `order`: All ranks.
    `place`: Where each of them is in `order`.
    `inside`, `onward`: Per rank, the ranks of its own and of the next box that one hop leads to, with routes.
    """

    def __init__(self, hops: Hops, boxes: Sequence[Sequence[int]], nearest: bool) -> None:
        self.boxes = boxes
        self.order = [rank for box in boxes for rank in box]
        self.inside: dict[int, Row] = {}
        self.onward: dict[int, Row] = {}
        self.place = {rank: number for number, rank in enumerate(self.order)}
        for box, following in zip(boxes, [*boxes[1:], boxes[0]], strict=True):
            for rank in box:
                self.inside[rank] = _reached(hops, rank, box, self.place)
                self.onward[rank] = _reached(hops, rank, following, self.place) if len(boxes) > 1 else self.inside[rank]
        if nearest:
            lengths = [len(ways[0].links) for row in self.inside.values() for ways in row.values()]
            shortest = min(lengths, default=0)
            for rank, row in self.inside.items():
                self.inside[rank] = {to: ways for to, ways in row.items() if len(ways[0].links) == shortest}
        rows = [*self.inside.values(), *self.onward.values()]
        self.links = sorted({link for row in rows for ways in row.values() for way in ways for link in way.links})
        self._capacities = hops.problem.capacities.tolist()

    @property
    def ideal(self) -> Fraction:
        """Lower bound on the time per unit of data of any rings: all data leaves every rank."""
        return max((Fraction(1, sum(row)) for row in self._first_links() if row), default=Fraction(0))

    @property
    def links_per_rank(self) -> int:
        """Upper bound on the number of rings, from the rank with most bandwidth over its narrowest link."""
        rows = [row for row in self._first_links() if row]
        thinnest = min(map(min, rows), default=1)
        return max((-(-sum(row) // thinnest) for row in rows), default=1)

    def _first_links(self) -> list[list[int]]:
        """Per rank, the capacities of the links that its hops begin with."""
        both = [[*self.inside[rank].values(), *self.onward[rank].values()] for rank in self.order]
        firsts = [{way.links[0] for ways in known for way in ways} for known in both]
        return [[self._capacities[link] for link in links] for links in firsts]


def next_ring(near: RingContext, uses: LinkLoads, number: int, preference: Preference) -> Ring | None:
    """Search for the ring with the least load on its busiest link, starting in the first box."""
    start = near.boxes[0][number % len(near.boxes[0])]
    ceilings = sorted({(uses.uses[link] + 1) * uses.costs[link] for link in near.links})
    found: dict[int, Ring | None] = {}

    def closes(ceiling: int) -> bool:
        found[ceiling] = _Walk(near, uses, ceiling, preference).ring_from(start)
        return found[ceiling] is not None

    best = bisect_left(ceilings, True, key=closes)
    if best < len(ceilings):
        return found[ceilings[best]]
    return _Walk(near, uses, sum(ceilings) * len(near.order), preference).ring_from(start)


def _reached(hops: Hops, rank: int, box: Sequence[int], place: Mapping[int, int]) -> Row:
    """Ranks of a box that are one hop away, in cyclic rank order."""
    others = sorted(box, key=lambda other: (place[other] - place[rank]) % len(place))
    return {other: routes for other in others if (routes := hops.routes(rank, other))}


class _Walk:
    """Search for a ring with the time of every link at most `ceiling`."""

    def __init__(self, near: RingContext, uses: LinkLoads, ceiling: int, preference: Preference) -> None:
        self._near, self._preference, self._total = near, preference, len(near.order)
        self._capacity: list[int] = [ceiling // cost - used for cost, used in zip(uses.costs, uses.uses, strict=True)]
        self._open = {rank: self._mask(row) for rank, row in near.inside.items()}
        self._box_at = [number for number, box in enumerate(near.boxes) for _ in box]
        self._box_ends = list(accumulate(map(len, near.boxes)))
        self._free, self._exits = 0, list[int]()

    def ring_from(self, start: int) -> Ring | None:
        """Find a ring that begins at `start`, within a search limit."""
        self._free = _mask_of(self._near.order) & ~(1 << start)
        self._exits = self._exit_masks(start)
        patience = 2000 + 20 * self._total
        path, routes = [start], list[Route]()
        choices = [self._choices(path)]
        while choices and patience:
            patience -= 1
            head, route = next(choices[-1], (None, None))
            if head is None or route is None:
                choices.pop()
                if routes:
                    self._free |= 1 << path.pop()
                    for link in routes.pop().links:
                        self._capacity[link] += 1
            elif head == start:
                return Ring(tuple(path), (*routes, route))
            else:
                self._free ^= 1 << head
                for link in route.links:
                    self._capacity[link] -= 1
                path.append(head)
                routes.append(route)
                choices.append(self._choices(path))
        return None

    def _choices(self, path: list[int]) -> Iterator[tuple[int, Route]]:
        """Possible next ranks of the walk, with routes."""
        tail, place = path[-1], len(path)
        if place == self._total:
            row, heads = self._near.onward[tail], [path[0]]
        else:
            within = self._box_at[place] == self._box_at[place - 1]
            row = (self._near.inside if within else self._near.onward)[tail]
            heads = [head for head in row if self._free >> head & 1 and self._can_leave_box(head, place)]
        ways = {head: way for head in heads if (way := self._widest_route(row.get(head, ())))}
        entry = path[bisect_left(self._box_at, self._box_at[place - 1])]
        yield from sorted(ways.items(), key=lambda step: self._rating(step[0], step[1], entry))

    def _rating(self, head: int, route: Route, entry: int) -> tuple[float, ...]:
        """Sorting key of a choice, by preference; ties stay in rank order."""
        ways_on = (self._open[head] & self._free).bit_count()
        tie: float = 0
        if isinstance(self._preference.tie, random.Random):
            tie = self._preference.tie.random()
        elif self._preference.tie == "zigzag":
            place = self._near.place
            size = len(self._near.boxes[self._box_at[place[head]]])
            ahead, behind = (place[head] - place[entry]) % size, (place[entry] - place[head]) % size
            tie = min(2 * ahead, 2 * behind + 1)
        return (-self._least_capacity(route), ways_on, tie) if self._preference.widest_first else (ways_on, tie)

    def _widest_route(self, routes: tuple[Route, ...]) -> Route | None:
        """The widest of the routes, if all its links have capacity."""
        best = max(routes, key=self._least_capacity, default=None)
        return best if best and self._least_capacity(best) > 0 else None

    def _least_capacity(self, route: Route) -> int:
        return min(self._capacity[link] for link in route.links)

    def _can_leave_box(self, head: int, place: int) -> bool:
        """Whether the walk can still leave the box after moving to `head`."""
        number = self._box_at[place]
        exits = self._exits[number] & self._free
        is_last = place + 1 == self._box_ends[number]
        return bool(exits >> head & 1) if is_last else bool(exits & ~(1 << head))

    def _exit_masks(self, start: int) -> list[int]:
        """Per box, the ranks from which the next box, or from the last box the start, can be reached."""
        wanted = [_mask_of(box) for box in self._near.boxes[1:]] + [1 << start]
        return [
            _mask_of(rank for rank in box if self._mask(self._near.onward[rank]) & target)
            for box, target in zip(self._near.boxes, wanted, strict=True)
        ]

    def _mask(self, row: Row) -> int:
        return _mask_of(head for head, routes in row.items() if self._widest_route(routes))


def _mask_of(ranks: Iterable[int]) -> int:
    mask = 0
    for rank in ranks:
        mask |= 1 << rank
    return mask


MAX_CHANNELS = 32  # rings at most; NCCL has such a limit too

IMPROVEMENTS = 2  # how often each ring is looked for again

REGULAR = (Preference(True, "next"), Preference(False, "next"), Preference(True, "zigzag"))
EFFORT = 400  # how often random orders are tried, times the number of ranks

MAX_ATTEMPTS = 20
PATIENCE = 8  # attempts in a row without a better result after which there are no more


def ring_along(hops: Hops, ranks: Sequence[int], uses: LinkLoads) -> Ring:
    """Make the ring of a given order, or raise `UnsupportedError` where a hop is impossible."""
    pairs = zip(ranks, [*ranks[1:], ranks[0]], strict=True)
    return Ring(tuple(ranks), tuple(uses.take(hops.needed(tail, head)) for tail, head in pairs))


def find_rings(
    hops: Hops, boxes: Sequence[Sequence[int]], channels: int | None = None, ideal: Fraction = Fraction(0)
) -> list[Ring]:
    """Find rings that visit the boxes in their order."""
    everyone = [[rank for box in boxes for rank in box]]
    for groups, nearest in ((boxes, True), (boxes, False), (everyone, False)):
        near = RingContext(hops, groups, nearest)
        if rings := _best_rings(near, hops, channels, max(ideal, near.ideal)):
            return rings
    raise UnsupportedError(
        f"no ring through {len(everyone[0])} ranks of {hops.problem.topology!r} was found whose neighbors are "
        "connected directly or through switches only; use another planner, or give the order of a known ring"
    )


def sharing_time(hops: Hops, rings: Sequence[Ring]) -> Fraction:
    """Time per unit of data of the busiest link, in units of capacity, with equal shares of the rings."""
    uses = LinkLoads(hops.problem.capacities)
    for ring in rings:
        uses.add(ring.links)
    return Fraction(uses.peak(), uses.common * len(rings))


def _best_rings(near: RingContext, hops: Hops, channels: int | None, ideal: Fraction) -> list[Ring]:
    """Try regular orders, then random ones until they stop improving."""
    best, time, idle = list[Ring](), Fraction(0), 0
    for attempt in range(min(MAX_ATTEMPTS, 3 + EFFORT // len(near.order))):
        preference = (
            REGULAR[attempt]
            if attempt < len(REGULAR)
            else Preference(attempt % 2 == 0, random.Random(current_seed() * MAX_ATTEMPTS + attempt))
        )
        idle += 1
        for rings in _candidates(near, hops, channels, preference):
            taken = sharing_time(hops, rings)
            if not best or taken < time:
                best, time, idle = rings, taken, 0
            if time == ideal:
                return best
        if not best or idle == PATIENCE:
            break
    return best


def _candidates(near: RingContext, hops: Hops, channels: int | None, preference: Preference) -> Iterator[list[Ring]]:
    """Yield rings found greedily, the best prefix of them, and each after improvement."""
    uses, found = LinkLoads(hops.problem.capacities), list[Ring]()
    # One ring per GPU of a box, so that each one's NIC has a ring; in a single box, one per link of a rank.
    useful = min(MAX_CHANNELS, max(map(len, near.boxes)) if len(near.boxes) > 1 else near.links_per_rank)
    for number in range(channels or useful):
        if (ring := next_ring(near, uses, number, preference)) is None:
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
        yield _improved(near, hops, found[:few], preference)
    yield found
    yield _improved(near, hops, found, preference)


def _improved(near: RingContext, hops: Hops, rings: Sequence[Ring], preference: Preference) -> list[Ring]:
    """Search for each ring again, given all others."""
    rings, uses = list(rings), LinkLoads(hops.problem.capacities)
    for ring in rings:
        uses.add(ring.links)
    for _ in range(IMPROVEMENTS):
        for number, ring in enumerate(rings):
            uses.add(ring.links, -1)
            other = next_ring(near, uses, number, preference)
            if other and _peak_with(uses, other) < _peak_with(uses, ring):
                rings[number] = other
            uses.add(rings[number].links)
    return rings


def _peak_with(uses: LinkLoads, ring: Ring) -> int:
    """Time of the ring's busiest link if it is added."""
    uses.add(ring.links)
    peak = uses.peak(ring.links)
    uses.add(ring.links, -1)
    return peak
