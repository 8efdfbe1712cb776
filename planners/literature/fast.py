"""FAST on networks of boxes: proxies share the NICs of a box evenly, in one-to-one stages between boxes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import chain, product, zip_longest
from math import gcd, lcm
from typing import Any, NamedTuple

import numpy as np

from ...errors import CertificateError, UnsupportedError
from ...schedules import PAIR_COLLECTIVES, Bound, Collective, Cut, StagedFlow, schedule_time
from ...schedules.collective import AnyCollective
from ...schedules.stages.as_flow import LocalParts, Routes, all_pieces, as_flow, at_once
from ...schedules.stages.segments import StagedArrays, lane_rate
from ...schedules.steps.verify import check_partners
from ...support import progress
from ...support.arrays import IntArray, joined_rows, rows_with_repeats
from ...support.quantities import as_bytes
from ...topologies import Topology
from ...topologies.network.direct_graph import partial_hop_distances
from ...topologies.network.link_costs import as_costs
from ...topologies.symmetry.rank_groups import rank_groups
from ..all_to_all.fast import MAX_BYTES, STAGES, schedule_all_to_allv
from ..all_to_all.multicommodity import as_pair_collective, checked_traffic
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from ..trees.problem import TreeProblem
from .routes import Hops, LinkLoads, find_boxes

CUTS = (1, 4, 16, 64)
"""Stages have at most such a part of the bound: shorter ones leave less before and after them, and start more steps."""
GRAIN = 4  # chunks that the longest stage has at least
MAX_PAIRS = 2**17  # of ranks with traffic: a plan has one path for each, or several


@register_planner("fast", PAIR_COLLECTIVES)
def plan_fast(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    traffic: Any = None,
    size: int | str | None = None,
) -> Plan:
    """Plan balanced one-to-one stages between boxes of GPUs, for skewed traffic (FAST)."""
    collective = as_pair_collective(topology, collective)
    matrix = checked_traffic(topology, collective, traffic, root)
    num_bytes = None if size is None else as_bytes(size)
    trace = Trace()
    with trace.stage("boxes"):
        ones = np.ones(topology.num_ranks, dtype=np.int64)
        hops = Hops(TreeProblem(topology, "broadcast", *topology.arrays[:3], ones))
        boxes = boxes_of(hops)
        if (pairs := np.count_nonzero(matrix)) > MAX_PAIRS:
            raise UnsupportedError(
                f"{pairs} pairs of ranks of {topology} have traffic; expected at most {MAX_PAIRS} in a plan: "
                "collopt.schedule_all_to_allv plans for more at run time"
            )
        networks = _networks(hops, boxes)
    with trace.stage("bound"):
        bound = _box_bound(topology, collective, matrix, boxes)
    with trace.stage("stages"):
        best = _fastest(networks, matrix, num_bytes)
    if len(turning := rows_with_repeats(best.flow.path_starts, best.flow.path_nodes)):
        start = topology.nodes[best.flow.path_nodes[best.flow.path_starts[turning[0]]]]
        raise UnsupportedError(
            f"what GPU {start!r} of {topology} hands to others of its box passes the same switch again on its way to "
            "another box; FAST needs links in boxes beside those to NICs: plan with 'multicommodity'"
        )
    trace.note("stages", f"{best.kind or 'chosen'}, of up to 1/{best.cut} of the bound")
    if num_bytes is not None:
        trace.note("planned_for", f"{num_bytes} bytes")
    return proved_plan(topology, collective, best.flow, "fast", {} if size is None else {"size": size}, trace, bound)


class _Timed(NamedTuple):
    """A schedule with its time, smaller ones the better."""

    time: Fraction
    steps: int
    kind: str | None
    cut: int
    flow: StagedFlow


def _fastest(networks: Sequence[_Network], traffic: IntArray, num_bytes: int | None) -> _Timed:
    """Try all kinds of stages, longer or shorter ones until they take more time; for so many bytes or endless data."""
    best: _Timed | None = None
    candidates = [(network, kind) for network in networks for kind in network.kinds]
    for network, kind in progress.iterate(candidates, len(candidates)):
        before: _Timed | None = None
        for cut in CUTS[::-1] if num_bytes is None else CUTS:
            schedule = network.timed(traffic, kind, cut, num_bytes)
            if schedule is None or (before is not None and schedule.time > before.time):
                break
            best = min(best or schedule, schedule, key=lambda timed: (*timed[:2], timed.kind or "", timed.cut))
            before = schedule
    if best is None:
        box, other, *_ = networks[0].boxes
        raise _without_nic(networks[0].topology, int(box[0]), int(other[0]))
    return best


def boxes_of(hops: Hops) -> list[IntArray]:
    """Find boxes of ranks that reach each other by the shortest hops, each with its ranks in the order of peers."""
    topology, boxes = hops.problem.topology, find_boxes(hops)
    if len(boxes) < 2:
        raise UnsupportedError(
            f"the ranks of {topology} form one box, and FAST is for traffic between several; plan with 'multicommodity'"
        )
    nearest = map(hops.nearest, range(topology.num_ranks))
    shortest = min((length for length, peers in nearest if peers), default=0)
    for tail, head in ((one, other) for box in boxes for one in box for other in box if other != one):
        if hops.distances(tail).get(head) != shortest:
            raise UnsupportedError(
                f"GPUs {topology.nodes[tail]!r} and {topology.nodes[head]!r} of one box of {topology} are not joined "
                "by a switch or a link; FAST needs boxes in which all are: plan with 'multicommodity'"
            )
    values = rank_groups(topology).values
    return [np.array(sorted(box, key=values.item), dtype=np.int64) for box in boxes]


def nic_rates(hops: Hops, boxes: list[IntArray]) -> tuple[tuple[Fraction, ...], ...]:
    """Rates at which GPUs reach other boxes alone, the slower way, in eighths of the largest; none if all are alike."""
    ranks, capacities = hops.problem.topology.num_ranks, hops.problem.capacities
    widths = np.zeros((ranks, ranks), dtype=np.int64)
    for tail, row in enumerate(widths):
        near = hops.widths(tail)
        row[:] = [near.get(head, 0) for head in range(ranks)]
    rates = np.zeros((2, ranks))
    for box in boxes:
        widths[np.ix_(box, box)] = 0
        for way, reached in enumerate((widths, widths.T)):
            loads = LinkLoads(capacities)
            sides: list[tuple[int, ...]] = []
            for place, gpu in enumerate(box):
                widest = np.flatnonzero(reached[gpu] == (largest := reached[gpu].max()))
                ends = (int(gpu), int(widest[place % len(widest)]))
                routes = hops.routes(*ends[:: -1 if way else 1]) if largest else ()
                links = loads.take(routes).links if routes else ()
                sides.append((links, links[::-1])[way][: (len(links) + 1) // 2])  # those of this box
            uses = np.bincount(np.fromiter(chain.from_iterable(sides), dtype=np.int64), minlength=len(capacities))
            for gpu, links in zip(box, sides, strict=True):
                rates[way, gpu] = min([reached[gpu].max(), *(capacities[link] / uses[link] for link in links)])
    smallest = rates.min(axis=0)
    eighths = np.where(smallest > 0, np.maximum(1, np.rint(8 * smallest / max(1, smallest.max()))), 0).astype(int)
    if eighths.min() == 8:
        return ()
    return tuple(tuple(Fraction(int(eighth), 8) for eighth in eighths[box]) for box in boxes)


def _networks(hops: Hops, boxes: list[IntArray]) -> list[_Network]:
    """Take NICs as if they were alike, or where they differ by their rates, or those alone that are not slow.

    GPUs of slow NICs are at the end, by place in all boxes alike, as rails join them, or in each box by itself.
    """
    topology = hops.problem.topology
    if not (rates := nic_rates(hops, boxes)):
        return [_Network(topology, boxes, *_routes(hops, boxes, gcd(*map(len, boxes))))]
    if lost := [box for box, row in zip(boxes, rates, strict=True) if not any(row)]:
        raise _without_nic(topology, int(lost[0][0]), int(boxes[0 if lost[0] is boxes[-1] else -1][0]))
    routes = _routes(hops, boxes, 1)
    worst = [min(place) for place in zip_longest(*rates, fillvalue=Fraction(1))]
    networks: dict[Any, _Network] = {"alike": _Network(topology, boxes, *routes)} if all(map(all, rates)) else {}
    for keys, floor in product(([worst] * len(rates), rates), (0, 1)):
        orders = [np.argsort(-np.array(by[: len(row)]), kind="stable") for by, row in zip(keys, rates, strict=True)]
        nics = tuple(
            tuple(row[at] if row[at] >= floor else Fraction(0) for at in order)
            for row, order in zip(rates, orders, strict=True)
        )
        if all(map(any, nics)):
            sorted_boxes = [box[order] for box, order in zip(boxes, orders, strict=True)]
            networks[str(sorted_boxes), nics] = _Network(topology, sorted_boxes, *routes, nics)
    return list(networks.values())


def _routes(hops: Hops, boxes: list[IntArray], part: int) -> tuple[Routes, IntArray]:
    """Shortest routes in boxes, and to peers of equal place in a part of another box; and their links."""
    ranks = hops.problem.topology.num_ranks
    numbers, routes = np.full((ranks, ranks), -1, dtype=np.int64), list[tuple[int, ...]]()
    for shift in range(len(boxes)):
        loads = LinkLoads(hops.problem.capacities)
        for number, box in enumerate(boxes):
            other_box = boxes[(number + shift) % len(boxes)]
            for (place, tail), (other, head) in product(enumerate(box), enumerate(other_box)):
                if tail == head or (shift and place % part != other % part):
                    continue
                if ways := hops.routes(int(tail), int(head)):
                    numbers[tail, head] = len(routes)
                    routes.append(loads.take(ways).links)
    starts, links = joined_rows(routes)
    return Routes(numbers, starts, hops.problem.heads[links]), links


def _without_nic(topology: Topology, tail: int, head: int) -> UnsupportedError:
    return UnsupportedError(
        f"GPU {topology.nodes[tail]!r} reaches {topology.nodes[head]!r}, its peer in another box of {topology}, by "
        "no path without other GPUs; FAST needs one through a NIC for all peers: plan with 'multicommodity'"
    )


class _Network(NamedTuple):
    """Boxes of GPUs of a topology, and the routes between ranks with their links."""

    topology: Topology
    boxes: list[IntArray]
    routes: Routes
    links: IntArray
    nics: tuple[tuple[Fraction, ...], ...] = ()

    @property
    def kinds(self) -> tuple[str | None, ...]:
        """Kinds of stages to try; None stands for whole or parts of boxes, whichever is faster."""
        return ("fewest", "rotations", None) if self.nics else tuple(STAGES)

    def timed(self, traffic: IntArray, kind: str | None, cut: int, num_bytes: int | None) -> _Timed | None:
        """Let FAST plan in stages of a kind, none longer than a part of the bound, and predict the time.

        None if ranks have no route to their peers, or several peers at once by lanes of their NICs.  `traffic` int64
        (ranks, ranks).
        """
        ranks, sizes = np.concatenate(self.boxes), [len(box) for box in self.boxes]
        ordered = traffic[np.ix_(ranks, ranks)]
        rate = lane_rate(self.nics)
        units, longest = _units(ordered, sizes, [int(sum(row) / rate) for row in self.nics] or sizes, cut)
        schedule = schedule_all_to_allv(
            ordered * units,
            servers=len(sizes),
            gpus_per_server=sizes,
            nics=self.nics or None,
            stages=kind,
            max_stage_bytes=longest * int(max(map(max, self.nics), default=1) / rate),
        )
        pieces = all_pieces(schedule)
        if (self.routes.numbers[ranks[pieces.proxy], ranks[pieces.peer]] < 0).any():
            return None
        flow = as_flow(schedule, self._filled_in(schedule, ranks), ranks, self.routes)
        try:
            check_partners(flow)
        except CertificateError:
            return None
        time = flow.inverse_rate(self.topology)
        if num_bytes is not None:
            time = schedule_time(flow, self.topology, num_bytes, costs=as_costs(None, self.topology))
        return _Timed(time, flow.num_steps, kind, cut, flow)

    def _filled_in(self, schedule: StagedArrays, ranks: IntArray) -> LocalParts:
        """Divide local bytes among steps in which their links have room; what is left over moves in the longest."""
        local, pieces = at_once(schedule), all_pieces(schedule)
        if not len(pieces.stage) or not len(local.source):
            return local
        chunk = int(np.gcd.reduce(np.concatenate([pieces.length, pieces.first, schedule.traffic.ravel()])))
        between = as_flow(schedule, LocalParts(*(column[:0] for column in local)), ranks, self.routes)
        size = int(np.gcd.reduce(schedule.traffic, axis=None)) // between.chunks_per_unit
        loads = between.step_loads(self.topology) * float(size)
        capacities = self.topology.arrays.capacities
        busy = (loads / capacities).max(axis=1)
        room = np.floor((busy[:, None] * capacities - loads) / chunk).astype(np.int64) * chunk
        skipped = int(pieces.stage[pieces.origin != pieces.proxy].min(initial=1) > 0)  # nothing to balance at first
        parts = list[tuple[int, int, int, int]]()
        for source, destination, length in zip(*(column.tolist() for column in local[:3]), strict=True):
            route = self.routes.numbers[ranks[source], ranks[destination]]
            used = self.links[self.routes.starts[route] : self.routes.starts[route + 1]]
            free = np.maximum(room[:, used].min(axis=1), 0)
            order = np.argsort(-free, kind="stable")
            before = np.cumsum(free[order]) - free[order]
            lengths = np.zeros_like(free)
            lengths[order] = np.clip(length - before, 0, free[order])
            lengths[int(busy.argmax())] += length - lengths.sum()
            room[:, used] -= lengths[:, None]
            parts += [(source, destination, int(lengths[at]), int(at) + skipped) for at in np.flatnonzero(lengths)]
        return LocalParts(*np.array(parts, dtype=np.int64).T)


def _units(traffic: IntArray, sizes: list[int], lanes: list[int], cut: int) -> tuple[int, int]:
    """Parts to divide a traffic of 1 into, such that lanes share it evenly, and how many the longest stage may have."""
    firsts = np.cumsum([0, *sizes[:-1]])
    tiles = np.add.reduceat(np.add.reduceat(traffic, firsts, axis=0), firsts, axis=1)
    np.fill_diagonal(tiles, 0)
    busiest = zip(np.maximum(tiles.sum(axis=0), tiles.sum(axis=1)).tolist(), lanes, strict=True)
    bound = max(Fraction(total, size) for total, size in busiest)
    part = gcd(*lanes)
    shares = lcm(*(one * other // part for one, other in product(set(lanes), repeat=2)))
    units = shares // gcd(shares, *tiles.ravel().tolist())
    units *= -(-GRAIN * cut // max(1, int(bound * units)))
    if sum(traffic.ravel().tolist()) * units >= MAX_BYTES:
        units = 1  # streams differ by one of very many
    return units, max(1, -(-bound.numerator * units // (bound.denominator * cut)))


def _box_bound(topology: Topology, collective: Collective, traffic: IntArray, boxes: list[IntArray]) -> Bound:
    """Bound by what leaves or enters a box, over its NICs or what is behind them, or a single rank."""
    tails, heads, capacities, _ = topology.arrays
    ranks, size = topology.num_ranks, len(topology.nodes)
    distances = partial_hop_distances(size, tails, heads, ranks).astype(np.int64)
    distances[distances < 0] = size
    nearest = np.stack([distances[box].min(axis=0) for box in boxes])
    inside = [np.arange(size) == rank for rank in range(ranks)]
    for number in range(len(boxes)):
        others_nearest = np.delete(nearest, number, axis=0).min(axis=0)
        own = nearest[number] < others_nearest
        inside += [own & (nearest[number] <= reach) for reach in np.unique(nearest[number][own])]
        inside += [own & (others_nearest >= reach) for reach in np.unique(others_nearest[own])]
    sides = np.stack([*inside, *np.logical_not(inside)])
    weights = sides[:, :ranks].astype(np.float64)
    amounts = ((weights @ traffic) * (1 - weights)).sum(axis=1)
    leaving = (sides[:, tails] & ~sides[:, heads]) @ capacities
    best = sides[int((amounts / np.maximum(leaving, 1)).argmax())]
    cut = Cut(frozenset(topology.nodes[node] for node in np.flatnonzero(best)))
    weighted = tuple(map(int, traffic.ravel().tolist())) if collective.parts_differ else ()
    return Bound.from_witness(topology, collective, cut, weighted)
