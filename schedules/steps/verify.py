"""Check of all that moves in steps or along paths, which every plan's certificate rests on.

It shares no code with planners and solvers: it reads the arrays of `Sends` and the topology's links and nothing else.
Items never meet, so sends of copies are looked at item by item, many at once by sorting, in blocks of bounded memory.
Of vectors that are added up, it follows whose vectors are in the sums of every rank, after every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ...errors import CertificateError
from ...support.arrays import IntArray, distinct
from ...support.validation import shown
from ...topologies import Topology
from ..path_checks import Hops, check_arrays, check_steps_used, checked_paths, refuse_if, verified_hops
from ..schedule import PairSchedule, RoutedSchedule
from .sends import EVERYONE, Sends

NEVER = 2**63 - 1  # the step that brings a chunk which never comes
FROM_THE_START = -1
BLOCK = 2**16
"""Sends and holdings that are looked at together, if that is not less than one item's: few enough for caches."""
LOAD_LIMIT = 2**62
MAX_PARTS = 2**25  # sends that add up, each counted once for every part of its item that it carries
BLOCK_BITS = 2**28  # of the sums that are looked at together, if that is not less than one part's


def verified_sends(sends: Sends, topology: Topology) -> IntArray:
    """Verify that sends bring every item to whoever needs it, and sum their loads; int64 (steps, links).

    Checked: every path follows links of the topology, passes only switches and no node twice; something happens in
    every step; a rank sends only chunks that it holds at the beginning of the step; in the end items are where they are
    needed.  Of a reduce-scatter also: no rank is brought the same part of a shard twice, for it would reduce it twice.
    Of vectors: no rank adds one to a sum twice, or is sent two values of a chunk in a step of which one replaces the
    other; in the end it has the sum of all.
    """
    hops = verified_hops(sends.path_starts, sends.path_nodes, topology, "schedule", sends.direction)
    _check_columns(sends)
    check_steps_used(sends.steps)
    loads = np.zeros((int(sends.steps.max()) + 1, topology.num_links), dtype=np.int64)
    for numbers in _checked_blocks(sends):
        sends.add_loads(loads, numbers, hops.links)
    return loads


def check_sends(sends: Sends) -> None:
    """Check all that `verified_sends` does without a topology, but for steps in which nothing happens."""
    if sends.num_ranks > 1 or len(sends.steps):
        checked_paths(sends.path_starts, sends.path_nodes, sends.num_ranks, "schedule")
    _check_columns(sends)
    check_contents(sends)


def check_contents(sends: Sends) -> None:
    """Check that ranks have what they send, and in the end what they need."""
    for _ in _checked_blocks(sends):
        pass


def check_shapes(
    schedule: RoutedSchedule, ranks: int, chunks: int, columns: tuple[str, ...], num_required: int
) -> None:
    """Check ranks, direction, number of chunks and arrays of a schedule that has at least so many sends."""
    sends = len(getattr(schedule, columns[0]))
    _check_ranks(schedule, ranks)
    if schedule.direction not in ("broadcast", "reduce"):
        raise CertificateError(
            f"the schedule's direction is {shown(schedule.direction)}; expected 'broadcast' or 'reduce'"
        )
    if chunks < 1 or int(chunks) * sends >= LOAD_LIMIT:
        raise CertificateError(
            f"the schedule has {chunks} chunks; expected at least 1, and fewer than {LOAD_LIMIT} in all sends"
        )
    if sends < num_required:
        # Also keeps the memory of this check in proportion to the schedule's own.
        raise CertificateError(f"the schedule has {sends} sends; {ranks} ranks need at least {num_required}")
    shapes = dict.fromkeys(columns, (sends,))
    shapes |= {name: (len(getattr(schedule, name)),) for name in ("path_starts", "path_nodes")}
    check_arrays(schedule, shapes, "schedule")


def _check_ranks(schedule: RoutedSchedule, ranks: int) -> None:
    if schedule.num_ranks < 1:
        raise CertificateError(f"the schedule is for {schedule.num_ranks} ranks; expected at least 1")
    if schedule.num_ranks != ranks:
        raise CertificateError(f"the schedule is for {schedule.num_ranks} ranks; the topology has {ranks}")


def _check_columns(sends: Sends) -> None:
    """Check each send by itself."""
    route, item, lower, upper = sends.routes, sends.items, sends.lower, sends.upper
    refuse_if((item < 0) | (item >= len(sends.sizes)), "send {} has a source that is not a rank")
    refuse_if((route < 0) | (route >= len(sends.path_starts) - 1), "send {} has a route that is not a path")
    invalid = (lower < 0) | (lower >= upper) | (upper > sends.sizes[item])
    if invalid.any():
        number = int(np.flatnonzero(invalid)[0])
        name, size = sends.item_name(int(item[number])), sends.sizes[item[number]]
        raise CertificateError(
            f"send {number} carries chunks {lower[number]} to {upper[number] - 1} of {name}; "
            f"expected an interval of its {size}"
        )
    refuse_if(sends.steps < 0, "send {} happens before step 0")


def _checked_blocks(sends: Sends) -> Iterator[IntArray]:
    """Yield the numbers of all sends in blocks, and refuse those that bring too little, too early or twice."""
    if sends.adds is not None:
        _check_sums(sends)
        yield np.arange(len(sends.steps))
        return
    num_items = len(sends.sizes)
    small = sends.items.astype(np.min_scalar_type(num_items))  # short integers are sorted fast
    order = np.argsort(small, kind="stable")
    until = np.cumsum(np.bincount(sends.items, minlength=num_items))
    weights = until + np.cumsum(np.where(sends.targets == EVERYONE, sends.num_ranks, 1))
    copies, first, begin, weight = _Copies(sends), 0, 0, 0
    # Points of a block are numbers of 64 bits.
    num_fitting = 2**63 // max(1, sends.num_ranks * (int(sends.sizes.max(initial=0)) + 1))
    while first < num_items:
        stop = min(int(np.searchsorted(weights, weight + BLOCK, side="right")), first + num_fitting)
        stop = max(stop, first + 1)
        numbers = order[begin : until[stop - 1]]
        copies.look_at(numbers, first, stop)
        yield numbers
        first, begin, weight = stop, int(until[stop - 1]), int(weights[stop - 1])
    copies.refuse()


class _Copies:
    """Arrivals of copies, and the first of each kind of faults over all blocks, in the order of steps or items."""

    def __init__(self, sends: Sends) -> None:
        self._sends = sends
        starts, nodes = sends.path_starts, sends.path_nodes
        self._tails, self._heads = nodes[starts[:-1]], nodes[starts[1:] - 1]
        self._early: tuple[int, ...] | None = None
        self._missing = ""
        self._again = ""

    def look_at(self, numbers: IntArray, first: int, stop: int) -> None:
        """Check the sends of the items ``first``, ..., ``stop - 1``.

        A *holding* is one rank's copy of one item, number ``item * num_ranks + rank``, items counted from `first`.  It
        falls into pieces between the points where intervals that this rank sends or is sent begin or end.  A point is
        the number of its holding times `span` plus its chunk, so that one sorted array holds all of them.
        """
        sends, ranks = self._sends, self._sends.num_ranks
        used = first + np.flatnonzero(sends.sizes[first:stop])
        if not len(used):
            return
        sizes, steps, span = sends.sizes[used], sends.steps[numbers], int(sends.sizes[first:stop].max()) + 1
        if (stop - first) * ranks * span > 2**63:
            raise CertificateError(f"items of {span - 1} chunks could overflow the 64-bit numbers of this check")
        items, routes = (sends.items[numbers] - first) * ranks, sends.routes[numbers]
        sent, brought = ((items + ends[routes]) * span for ends in (self._tails, self._heads))
        lower, upper = sends.lower[numbers], sends.upper[numbers]
        own = ((used - first) * ranks + sends.owners[used]) * span
        targets = sends.targets[used]
        holders = np.where(targets == EVERYONE, ranks, 1)
        which = np.repeat(np.arange(len(used)), holders)
        rank = np.arange(len(which)) - np.repeat(np.cumsum(holders) - holders, holders)
        rank += np.where(targets == EVERYONE, 0, targets)[which]
        demand, length = ((used[which] - first) * ranks + rank) * span, sizes[which]
        begins = (own, brought + lower, sent + lower, demand)
        ends = (own + sizes, brought + upper, sent + upper, demand + length)
        points, places = distinct(np.concatenate(begins + ends))
        starts, stops = places[: len(places) // 2], places[len(places) // 2 :]
        # The step that brings each piece first, and the step after which senders have all that they send.
        num_arrivals, first_demand = len(own) + len(brought), len(own) + len(brought) + len(sent)
        arrivals = np.concatenate([np.full(len(own), FROM_THE_START), steps])
        arrival = _least_over(len(points), starts[:num_arrivals], stops[:num_arrivals], arrivals)
        ready = _greatest_in(arrival, starts[num_arrivals:first_demand], stops[num_arrivals:first_demand])
        self._look_for_early(numbers[ready >= steps])
        lacking = np.concatenate([[0], np.cumsum(arrival == NEVER)])
        missing = np.flatnonzero(lacking[stops[first_demand:]] > lacking[starts[first_demand:]])
        if len(missing) and not self._missing:
            begin = int(starts[first_demand + missing[0]])
            holder, what = self._describe(int(points[begin + np.argmax(arrival[begin:] == NEVER)]), span, first)
            self._missing = f"rank {holder} never gets {what}"
        if sends.direction == "reduce" and not self._again:
            changes = np.bincount(starts[:num_arrivals], minlength=len(points)) - np.bincount(
                stops[:num_arrivals], minlength=len(points)
            )
            times = np.cumsum(changes)
            if (times > 1).any():
                piece = int(np.argmax(times > 1))
                holder, what = self._describe(int(points[piece]), span, first)
                self._again = f"rank {holder} would send {what} {times[piece]} times"

    def refuse(self) -> None:
        """Raise the first error; early sends come first, as missing chunks may follow from them."""
        if self._early is not None:
            step, sender, item, lower, _, upper = self._early
            raise CertificateError(
                f"in step {step} rank {sender} sends chunks {lower} to {upper - 1} of {self._sends.item_name(item)}, "
                "but does not have them by then"
            )
        if self._missing or self._again:
            raise CertificateError(self._missing or self._again)

    def _look_for_early(self, early: IntArray) -> None:
        """Keep the first of the sends of chunks that have not arrived at the sender."""
        if len(early):
            sends = self._sends
            senders = self._tails[sends.routes[early]]
            keys = (sends.steps[early], senders, sends.items[early], sends.lower[early], early, sends.upper[early])
            first = np.lexsort(keys[::-1])[0]
            fault = tuple(int(key[first]) for key in keys)
            self._early = fault if self._early is None else min(self._early, fault)

    def _describe(self, point: int, span: int, first: int) -> tuple[int, str]:
        """Rank, and chunk of an item, of a point."""
        holding, chunk = divmod(point, span)
        item, rank = divmod(holding, self._sends.num_ranks)
        return rank, f"chunk {chunk} of {self._sends.item_name(first + item)}"


def _least_over(size: int, starts: IntArray, stops: IntArray, values: IntArray) -> IntArray:
    """At each position the least value of the intervals that cover it, `NEVER` if none does.

    An interval is covered by two blocks whose length is a power of two; blocks are halved, the longest first.
    """
    powers = np.frexp(stops - starts)[1] - 1
    minimum = np.full(size, NEVER)
    for power in range(int(powers.max(initial=-1)), -1, -1):
        block = 1 << power
        wider, minimum = minimum, minimum.copy()
        np.minimum(minimum[block:], wider[:-block], out=minimum[block:])
        mask = powers == power
        np.minimum.at(minimum, starts[mask], values[mask])
        np.minimum.at(minimum, stops[mask] - block, values[mask])
    return minimum


def _greatest_in(values: IntArray, starts: IntArray, stops: IntArray) -> IntArray:
    """Greatest value in each interval, by blocks as in `_least_over`, the shortest first."""
    powers = np.frexp(stops - starts)[1] - 1
    greatest = np.empty(len(starts), dtype=np.int64)
    values = values.copy()
    for power in range(int(powers.max(initial=-1)) + 1):
        block = 1 << power
        mask = powers == power
        greatest[mask] = np.maximum(values[starts[mask]], values[stops[mask] - block])
        values[:-block] = np.maximum(values[:-block], values[block:])
    return greatest


def _check_sums(sends: Sends) -> None:
    """Check each part of an item, between points where sends begin or end, by itself; many at once."""
    # A point is the number of its item times `span` plus its chunk.
    span, ranks = int(sends.sizes.max()) + 1, sends.num_ranks
    bases = np.arange(len(sends.sizes)) * span
    lower, upper = (bases[sends.items] + bound for bound in (sends.lower, sends.upper))
    points = np.unique(np.concatenate([bases, bases + sends.sizes, lower, upper]))
    first = np.searchsorted(points, lower)
    counts = np.searchsorted(points, upper) - first
    if int(counts.sum()) > MAX_PARTS:
        raise CertificateError(f"the sends carry {counts.sum()} parts of items; expected at most {MAX_PARTS}")
    numbers = np.repeat(np.arange(len(counts)), counts)
    parts = np.arange(len(numbers)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    block = max(1, BLOCK_BITS // ranks**2)
    order = np.lexsort((sends.ends[1][numbers], parts, sends.steps[numbers], parts // block))
    numbers, parts = numbers[order], parts[order]
    limits = np.searchsorted(parts // block, np.arange(-(-len(points) // block) + 1))
    for turn, (begin, end) in enumerate(pairwise(limits.tolist())):
        here = points[turn * block : (turn + 1) * block]
        _check_parts(sends, numbers[begin:end], parts[begin:end] - turn * block, *np.divmod(here, span))


def _check_parts(sends: Sends, numbers: IntArray, parts: IntArray, items: IntArray, chunks: IntArray) -> None:
    """Follow the sums of parts of `items` from `chunks` on; sends are by step, part and receiver."""
    assert sends.adds is not None
    ranks, (tails, heads) = sends.num_ranks, sends.ends
    # Bits of a row are the vectors in the sum that a rank holds of a part; their number tells whether any is twice.
    vectors = np.tile(np.packbits(np.eye(ranks, dtype=np.bool_), axis=1), (len(items), 1))
    count = np.ones(len(vectors), dtype=np.int64)
    senders, receivers = (parts * ranks + ends[numbers] for ends in (tails, heads))
    steps, adds = sends.steps[numbers], sends.adds[numbers]
    for begin, end in pairwise(np.flatnonzero(np.diff(steps, prepend=-1, append=-1)).tolist()):
        rows, givers = receivers[begin:end], senders[begin:end]
        begins = np.flatnonzero(np.diff(rows, prepend=-1))
        targets, arrivals = rows[begins], np.diff(begins, append=len(rows))
        replaced = np.logical_or.reduceat(~adds[begin:end], begins)
        if (faults := targets[replaced & (arrivals > 1)]).size:
            part, rank = divmod(int(faults[0]), ranks)
            raise CertificateError(
                f"in step {steps[begin]} rank {rank} is sent two values of chunk {chunks[part]} to keep"
            )
        sums = np.bitwise_or.reduceat(vectors[givers], begins, axis=0) | vectors[targets] * ~replaced[:, None]
        number = np.add.reduceat(count[givers], begins) + count[targets] * ~replaced
        distinct_vectors = np.unpackbits(sums, axis=1).sum(axis=1, dtype=np.int64)
        if (faults := targets[number != distinct_vectors]).size:
            part, rank = divmod(int(faults[0]), ranks)
            raise CertificateError(
                f"in step {steps[begin]} rank {rank} adds a vector twice to its sum of chunk {chunks[part]}"
            )
        vectors[targets], count[targets] = sums, number
    targets = sends.targets[items][:, None]
    needs = ((targets == EVERYONE) | (targets == np.arange(ranks))) & (chunks < sends.sizes[items])[:, None]
    if (lacking := np.flatnonzero(needs.reshape(-1) & (count < ranks))).size:
        part, rank = divmod(int(lacking[0]), ranks)
        missing = int(np.argmin(np.unpackbits(vectors[lacking[0]], count=ranks)))
        of_item = "" if len(sends.sizes) == 1 else f" to {sends.item_name(int(items[part]))}"
        raise CertificateError(f"rank {rank} never adds chunk {chunks[part]} of rank {missing}{of_item}")


class FlowArrays(RoutedSchedule, PairSchedule):
    """The data of a `FlowSchedule`, which describes them: all that its check rests on; `servers` only of stages."""

    num_ranks: int
    chunks_per_unit: int
    weights: IntArray
    steps: IntArray
    servers: IntArray


def flow_sends(schedule: FlowArrays) -> Sends:
    """Read the sends from rank to rank."""
    traffic = schedule.traffic * int(schedule.chunks_per_unit)
    return Sends.along_paths(traffic, schedule.weights, schedule.path_starts, schedule.path_nodes, schedule.steps)


def verified_flow(schedule: FlowArrays, topology: Topology) -> Hops:
    """Verify that a schedule delivers the traffic of every pair, and return its hops.

    Checked: the arrays fit together; every path follows links of the topology and passes no node twice; its steps stay
    the same at switches; something happens in every step; and all that `verified_sends` checks.
    """
    if not len(schedule.weights):
        raise CertificateError("the schedule has no paths")
    _check_flow_shapes(schedule, topology.num_ranks)
    hops = verified_hops(schedule.path_starts, schedule.path_nodes, topology, "schedule", through_ranks=True)
    _check_hop_steps(schedule, hops.paths)
    check_steps_used(schedule.steps)
    _check_flow(schedule)
    return hops


def check_flow(schedule: FlowArrays) -> None:
    """Check all that `verified_flow` does without a topology, but for steps in which nothing happens."""
    _check_flow_shapes(schedule, schedule.num_ranks)
    if len(schedule.weights):
        starts, nodes, ranks = schedule.path_starts, schedule.path_nodes, schedule.num_ranks
        path = checked_paths(starts, nodes, ranks, "schedule", through_ranks=True)
        # No hop begins at the last node of a path.
        _check_hop_steps(schedule, np.delete(path, starts[1:] - 1))
    _check_flow(schedule)


def _check_flow(schedule: FlowArrays) -> None:
    sends = flow_sends(schedule)
    _check_columns(sends)
    check_contents(sends)


def check_partners(schedule: FlowArrays) -> None:
    """Check that in no step a rank sends to two ranks of other servers, or receives from two."""
    ranks, sends = schedule.num_ranks, flow_sends(schedule)
    check_arrays(schedule, {"servers": (ranks,)}, "schedule")
    senders, receivers = sends.ends
    away = schedule.servers[senders] != schedule.servers[receivers]
    steps, *ends = np.unique(np.stack([sends.steps, senders, receivers])[:, away], axis=1)
    for does, end in zip(("sends to", "receives from"), ends, strict=True):
        busy, counts = np.unique(steps * ranks + end, return_counts=True)
        if (counts > 1).any():
            step, rank = divmod(int(busy[counts > 1][0]), ranks)
            raise CertificateError(f"in step {step} rank {rank} {does} several ranks of other servers; expected one")


def _check_flow_shapes(schedule: FlowArrays, ranks: int) -> None:
    paths = len(schedule.weights)
    _check_ranks(schedule, ranks)
    if not 1 <= schedule.chunks_per_unit < LOAD_LIMIT:
        raise CertificateError(f"the schedule has {schedule.chunks_per_unit} chunks per unit; expected 1 to 2^62 - 1")
    shapes: dict[str, tuple[int, ...]] = {
        "traffic": (ranks, ranks),
        "weights": (paths,),
        "path_starts": (paths + 1,),
        "path_nodes": (schedule.path_nodes.size,),
        "steps": (schedule.path_nodes.size - paths,),
    }
    check_arrays(schedule, shapes, "schedule")
    if (schedule.traffic < 0).any():
        source, destination = np.argwhere(schedule.traffic < 0)[0]
        raise CertificateError(f"the traffic from rank {source} to rank {destination} is negative")
    refuse_if(schedule.weights < 1, "path {} carries no chunk")
    # As a path passes a link at most once, no load is more than all weights together.
    if max(_total(schedule.weights), _total(schedule.traffic) * int(schedule.chunks_per_unit)) >= LOAD_LIMIT:
        raise CertificateError("the schedule's chunks could overflow the 64-bit sums of this check")


def _total(values: IntArray) -> int:
    """Sum without overflow, by halves of 32 bits."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _check_hop_steps(schedule: FlowArrays, path_of_hop: IntArray) -> None:
    """Check that the steps of a path stay the same at switches."""
    steps = schedule.steps
    if (steps < 0).any():
        raise CertificateError(f"path {path_of_hop[np.flatnonzero(steps < 0)[0]]} has a hop before step 0")
    goes_on = np.flatnonzero(np.diff(path_of_hop) == 0)
    # The first hop of path p is p less than its first node, so the node after hop h of it is h + p + 1.
    at_switch = schedule.path_nodes[goes_on + path_of_hop[goes_on] + 1] >= schedule.num_ranks
    if (waits := goes_on[at_switch & (np.diff(steps)[goes_on] != 0)]).size:
        raise CertificateError(
            f"the steps of path {path_of_hop[waits[0]]} do not stay the same at a switch that it passes"
        )
