"""Walks through boxes for one ring: depth first with limited patience, and as little load as possible on any link."""

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from operator import itemgetter
from typing import Literal, NamedTuple

from .routes import Hops, LinkLoads, Route

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

    `tie`: the next rank by number; zigzag from where the walk entered the box, 0, 1, -1, 2, -2, ..., whose rotations
    use each pair of an even number of ranks once (Williams 1949); or chance.
    """

    widest_first: bool  # wide links above ranks with few ways on, which will be hard to pass later; or the latter alone
    tie: Literal["next", "zigzag"] | random.Random


class RingContext:
    """Possible successors of each rank, inside its box and in the next box, with their routes."""

    def __init__(self, hops: Hops, boxes: Sequence[Sequence[int]], nearest: bool) -> None:
        self.boxes = boxes
        self.order = [rank for box in boxes for rank in box]
        self.inside: dict[int, Row] = {}  # per rank, the ranks of its box that one hop leads to, with routes
        self.onward: dict[int, Row] = {}  # the same of the next box
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
        reached = {head for rank in boxes[-1] for head in self.onward[rank]}
        self.starts = [rank for rank in boxes[0] if rank in reached]
        # Per link and rank the heads that only routes over the link lead to, as bits; and pairs with other routes too.
        self.needs: dict[int, dict[int, int]] = {link: {} for link in self.links}
        self.offers: dict[int, set[tuple[int, int]]] = {link: set() for link in self.links}
        for rank, row in [*self.inside.items(), *self.onward.items()]:
            for head, ways in row.items():
                shared = set(ways[0].links).intersection(*(way.links for way in ways[1:]))
                for link in shared:
                    self.needs[link][rank] = self.needs[link].get(rank, 0) | 1 << head
                for link in {link for way in ways for link in way.links} - shared:
                    self.offers[link].add((rank, head))
        self.inside_masks = {rank: _mask_of(row) for rank, row in self.inside.items()}
        self.onward_masks = {rank: _mask_of(row) for rank, row in self.onward.items()}
        self.first_inside = {rank: _first_links(row) for rank, row in self.inside.items()}
        self._capacities = hops.problem.capacities.tolist()

    def ideal(self, counts: Iterable[int], loads: LinkLoads) -> Fraction:
        """Lower bound on the time per unit of data of so many rings, which each leave every rank and box."""
        demands: list[tuple[int, list[int]]] = []  # uses per ring, of links that each take so much time per use
        for box in self.boxes:
            inside = [_first_links(self.inside[rank]) for rank in box]
            # The first links of routes, their second ones, and so on up to the length of the shortest route.
            routes = [way.links for rank in box for ways in self.onward[rank].values() for way in ways]
            onward = [set(links) for links in zip(*routes, strict=False)]
            leaving = [_first_links(self.onward[rank]) for rank in box]
            demands += [
                (1, [loads.costs[link] for link in {*near, *far}]) for near, far in zip(inside, leaving, strict=True)
            ]
            if len(self.boxes) > 1:
                demands.append((len(box) - 1, [loads.costs[link] for links in inside for link in links]))
                demands += [(1, [loads.costs[link] for link in links]) for links in onward]
        usable = [(uses, Counter(costs)) for uses, costs in demands if costs and uses]
        distinct = {(uses, tuple(sorted(costs.items()))) for uses, costs in usable}
        return min(
            Fraction(
                max((_least_time(uses * count, costs) for uses, costs in distinct), default=0), loads.common * count
            )
            for count in counts
        )

    def entering_time(self, start: int, uses: LinkLoads) -> int:
        """Time of the busiest link if one more ring enters the first box at `start`; 0 in a single box."""
        if len(self.boxes) == 1:
            return 0
        routes = [way for rank in self.boxes[-1] for way in self.onward[rank].get(start, ())]
        return min(max((uses.uses[link] + 1) * uses.costs[link] for link in way.links) for way in routes)

    @property
    def links_per_rank(self) -> int:
        """Upper bound on the number of rings, from the rank with most bandwidth over its narrowest link."""
        firsts = [_first_links(self.inside[rank]) | _first_links(self.onward[rank]) for rank in self.order]
        rows = [[self._capacities[link] for link in links] for links in firsts if links]
        thinnest = min(map(min, rows), default=1)
        return max((-(-sum(row) // thinnest) for row in rows), default=1)


def _first_links(row: Row) -> set[int]:
    """The links that hops begin with."""
    return {way.links[0] for ways in row.values() for way in ways}


def _least_time(uses: int, costs: Sequence[tuple[int, int]]) -> int:
    """Time in which links, so many (second) of each cost (first), can be used so often together."""
    # Not by `bisect`, whose positions are 64-bit: costs are over the common multiple of all bandwidths.
    lower, enough = 0, uses * max(cost for cost, _ in costs)
    while lower < enough:
        time = (lower + enough) // 2
        if sum(time // cost * links for cost, links in costs) >= uses:
            enough = time
        else:
            lower = time + 1
    return enough


def next_ring(
    near: RingContext, uses: LinkLoads, number: int, preference: Preference, below: int | None = None
) -> Ring | None:
    """Search for the ring with the least load on its busiest link, `below` one if given, starting in the first box."""
    if not near.starts:
        return None
    turn = number % len(near.starts)
    start = min(near.starts[turn:] + near.starts[:turn], key=lambda rank: near.entering_time(rank, uses))
    ceilings = sorted({(uses.uses[link] + 1) * uses.costs[link] for link in near.links})
    rings: dict[int, Ring | None] = {}

    def closes(ceiling: int) -> bool:
        rings[ceiling] = _Walk(near, uses, ceiling, preference).ring_from(start)
        return rings[ceiling] is not None

    if below is not None:
        ceilings = ceilings[: bisect_left(ceilings, below)]
        if not ceilings or not closes(ceilings[-1]):
            return None
    best = bisect_left(ceilings, True, key=closes)
    if best < len(ceilings):
        return rings[ceilings[best]]
    return _Walk(near, uses, sum(ceilings) * len(near.order), preference).ring_from(start)


def _reached(hops: Hops, rank: int, box: Sequence[int], place: Mapping[int, int]) -> Row:
    """Ranks of a box that are one hop away, in cyclic rank order."""
    others_in_order = sorted(box, key=lambda other: (place[other] - place[rank]) % len(place))
    return {other: routes for other in others_in_order if (routes := hops.routes(rank, other))}


class _Walk:
    """Search for a ring with the time of every link at most `ceiling`."""

    def __init__(self, near: RingContext, uses: LinkLoads, ceiling: int, preference: Preference) -> None:
        self._near, self._preference, self._total = near, preference, len(near.order)
        self._capacity: list[int] = [ceiling // cost - used for cost, used in zip(uses.costs, uses.uses, strict=True)]
        self._box_at = [number for number, box in enumerate(near.boxes) for _ in box]
        self._box_ends = list(accumulate(map(len, near.boxes)))
        self._closed, self._open = dict[int, int](), near.inside_masks
        self._free, self._exits = 0, list[int]()

    def ring_from(self, start: int) -> Ring | None:
        """Find a ring that begins at `start`, within a search limit."""
        if self._is_stuck():
            return None
        self._close()
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

    def _is_stuck(self) -> bool:
        """Whether two ranks of a box cannot send to others of it; one may leave the box."""
        full = {
            rank for rank, links in self._near.first_inside.items() if all(self._capacity[link] <= 0 for link in links)
        }
        return any(len(box) > 1 and len(full.intersection(box)) > 1 for box in self._near.boxes)

    def _close(self) -> None:
        """Note the hops without capacity."""
        full = [link for link in self._near.links if self._capacity[link] <= 0]
        for link in full:
            for rank, heads in self._near.needs[link].items():
                self._closed[rank] = self._closed.get(rank, 0) | heads
        for rank, head in set[tuple[int, int]]().union(*(self._near.offers[link] for link in full)):
            routes = self._near.inside[rank].get(head) or self._near.onward[rank][head]
            if all(any(self._capacity[link] <= 0 for link in route.links) for route in routes):
                self._closed[rank] = self._closed.get(rank, 0) | 1 << head
        self._open = {rank: mask & ~self._closed.get(rank, 0) for rank, mask in self._near.inside_masks.items()}

    def _choices(self, path: list[int]) -> Iterator[tuple[int, Route]]:
        """Possible next ranks of the walk, with the widest routes there."""
        tail, place = path[-1], len(path)
        if place == self._total:
            row, allowed = self._near.onward[tail], 1 << path[0]
        else:
            within = self._box_at[place] == self._box_at[place - 1]
            row, allowed = (self._near.inside if within else self._near.onward)[tail], self._allowed(place)
        entry = path[bisect_left(self._box_at, self._box_at[place - 1])]
        capacity = self._capacity
        ways: list[tuple[tuple[float, ...], int, Route]] = []
        for head, routes in row.items():
            if not allowed >> head & 1:
                continue
            width, widest = 0, None
            for route in routes:
                narrowest = min([capacity[link] for link in route.links])
                if narrowest > width:
                    width, widest = narrowest, route
            if widest:
                ways.append((self._rating(head, width, entry), head, widest))
        ways.sort(key=itemgetter(0))
        return iter([way[1:] for way in ways])

    def _rating(self, head: int, width: int, entry: int) -> tuple[float, ...]:
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
        return (-width, ways_on, tie) if self._preference.widest_first else (ways_on, tie)

    def _allowed(self, place: int) -> int:
        """Ranks that are free and after which the walk can still leave the box."""
        number = self._box_at[place]
        exits = self._exits[number] & self._free
        if place + 1 == self._box_ends[number]:
            return exits
        return self._free if exits & (exits - 1) else self._free & ~exits if exits else 0

    def _exit_masks(self, start: int) -> list[int]:
        """Per box, the ranks from which the next box, or from the last box the start, can be reached."""
        targets = [_mask_of(box) for box in self._near.boxes[1:]] + [1 << start]
        onward = self._near.onward_masks
        return [
            _mask_of(rank for rank in box if onward[rank] & ~self._closed.get(rank, 0) & target)
            for box, target in zip(self._near.boxes, targets, strict=True)
        ]


def _mask_of(ranks: Iterable[int]) -> int:
    mask = 0
    for rank in ranks:
        mask |= 1 << rank
    return mask
