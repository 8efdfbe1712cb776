"""All-to-all(v) by multicommodity flow, decomposed into paths of whole chunks, and by single shortest paths.

Each pair's chunks are divided over the paths of its source's flow in proportion, and hops are assigned to steps so that
those who wait for each step to end lose little.  Lengths of links prove how near to the optimum that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import CapacityOverflowError, CertificateError, NoAnswerError, UnsupportedError
from ...schedules import PAIR_COLLECTIVES, Bound, Collective, Cut, FlowSchedule, LengthDual, LinkValue, congestion
from ...schedules.collective import AnyCollective, as_collective, as_pair_traffic
from ...support import progress
from ...support.arrays import IntArray
from ...support.seed import current_seed
from ...support.validation import as_whole, shown
from ...topologies import Topology
from ...topologies.network.direct_graph import partial_hop_distances
from ...topologies.network.topology import as_topology
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from ..trees.problem import shard_weights
from .flows import PairAnswer, check_pairs_reachable, node_demands, solve_pairs

if TYPE_CHECKING:
    from ...solvers.flows.path_decomposition import Paths

ROWS = 16  # parts at most that the chunks of a path are cut into, so that they can pass one after the other
MAX_ROUND_HOPS = 2**22  # hops, after cutting, beyond which rounds are not looked at by themselves
CHUNK_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
"""Numbers of chunks per unit of traffic that are tried if none is asked for."""
MAX_PER_UNIT = 2**20  # chunks that can be asked for
MAX_EXACT = 2**12  # chunks per unit that are taken if they put exactly on each path what its flow does
MAX_PER_PAIR = 2**12
"""Chunks of a pair beyond which smaller ones are not tried: the traffic itself counts finely enough."""
MAX_HOPS = 2**25  # hops of all numbers of chunks together
MAX_CHUNKS = 2**62  # all together
EFFORT = 2 * 10**7  # hops that are looked at for each number, a fraction of a second
MAX_CUTS = 64  # different ones that are looked at
MAX_UNITS = 2**52  # all lengths together, in their common unit


def order_by_hops(paths: Paths, topology: Topology) -> tuple[Paths, IntArray]:
    """Assign the h-th hop of every path to step h."""
    _, heads, _, _ = topology.arrays
    at_rank = (heads[paths.links] < topology.num_ranks).astype(np.int64)
    before = np.cumsum(at_rank) - at_rank
    return paths, before - np.repeat(before[paths.starts[:-1]], np.diff(paths.starts))


def order_by_rounds(paths: Paths, topology: Topology) -> tuple[Paths, IntArray]:
    """Assign hops to many steps with few chunks per link, those with the longest remaining path first."""
    from ...solvers.flows.list_scheduling import list_schedule, split

    if topology.switch_nodes:
        raise UnsupportedError(
            f"order is 'rounds', but {topology} has switches, at which data does not wait; expected 'hops'"
        )
    grain = _chunk_group(paths)
    parts, _ = split(paths, grain)
    return parts, list_schedule(parts, topology.arrays.capacities, batch=grain)


ORDERS = {"hops": order_by_hops, "rounds": order_by_rounds}


def best_order(
    topology: Topology, traffic: IntArray, chunks_per_unit: int, paths: Paths, order: str | None
) -> FlowSchedule:
    """Choose the order with the least time, and build the schedule; `traffic` int64 (ranks, ranks)."""
    keep, lengths = paths.weights > 0, np.diff(paths.starts)
    starts = np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64)
    used = type(paths)(paths.weights[keep], starts, paths.links[np.repeat(keep, lengths)])

    def ordered(name: str) -> FlowSchedule:
        parts, steps = ORDERS[name](used, topology)
        return FlowSchedule(len(traffic), chunks_per_unit, traffic, parts.weights, *_nodes(parts, topology), steps)

    if order is not None:
        return ordered(order)
    large = int((-(-used.weights // _chunk_group(used)) * np.diff(used.starts)).sum()) > MAX_ROUND_HOPS
    by_hop = ordered("hops")
    rate = by_hop.step_rate(topology)
    if topology.switch_nodes or large or rate == by_hop.inverse_rate(topology):
        return by_hop
    try:
        by_round = ordered("rounds")
    except CapacityOverflowError:
        return by_hop
    return by_round if by_round.step_rate(topology) < rate else by_hop


def _chunk_group(paths: Paths) -> int:
    """Number of chunks that are scheduled together."""
    return -(-int(paths.weights.max()) // ROWS)


def _nodes(paths: Paths, topology: Topology) -> tuple[IntArray, IntArray]:
    """List the nodes of paths: the tail of the first link, and the heads of all."""
    tails, heads, _, _ = topology.arrays
    firsts = paths.starts[:-1]
    nodes = np.insert(heads[paths.links], firsts, tails[paths.links[firsts]])
    return paths.starts + np.arange(len(paths.starts)), nodes


def shared_chunks(
    paths: Paths, topology: Topology, traffic: IntArray, chunks: int | None, bound: Bound
) -> tuple[int, Paths]:
    """Divide the chunks of each pair among its paths; `traffic` int64 (ranks, ranks)."""
    from ...solvers.flows.path_decomposition import path_loads
    from ...solvers.flows.rounding import rounded

    if chunks is not None and sum(traffic.ravel().tolist()) * chunks >= MAX_CHUNKS:
        raise CapacityOverflowError(
            f"{chunks} chunks of each of {sum(traffic.ravel().tolist())} units of traffic overflow int64; use fewer"
        )
    ranks, capacities = topology.num_ranks, topology.arrays.capacities
    tails, heads, _, _ = topology.arrays
    sources, targets = tails[paths.links[paths.starts[:-1]]], heads[paths.links[paths.starts[1:] - 1]]
    pair_numbers, pairs = np.unique(sources * ranks + targets, return_inverse=True)
    parts = traffic.reshape(-1)[pair_numbers]
    # Try numbers of chunks until one reaches the bound.
    best: tuple[Fraction, int, IntArray] | None = None
    numbers = [chunks] if chunks is not None else list(_chunk_counts(paths, parts, pairs))
    for count in progress.iterate(numbers, len(numbers)):
        goal = bound.inverse_rate * count * topology.arrays.unit
        weights = rounded(paths, pairs, parts * count, capacities, goal=goal, effort=EFFORT)
        rate = congestion(path_loads(paths, weights, len(capacities)), count, topology)
        if best is None or rate < best[0]:
            best = rate, count, weights
        if rate == bound.inverse_rate:
            break
    assert best  # there is at least one number
    return best[1], paths._replace(weights=best[2])


def _chunk_counts(paths: Paths, parts: IntArray, pairs: IntArray) -> Iterator[int]:
    """Numbers of chunks to try; the last one represents the flow of each path exactly, if it is not too large."""
    left = MAX_HOPS // max(1, len(paths.links))
    for place, count in enumerate(CHUNK_COUNTS):
        if place == 0 or (place < left and count * int(parts.max()) <= MAX_PER_PAIR):
            yield count
    sums = np.zeros(len(parts), dtype=np.int64)
    np.add.at(sums, pairs, paths.weights)
    # What a traffic of 1 gets is the same for all pairs.
    amount = int(sums[0] // parts[0])
    exact = amount // gcd(amount, int(np.gcd.reduce(paths.weights)))
    if exact not in CHUNK_COUNTS and exact * int(parts.max()) <= MAX_EXACT:
        yield exact


@register_planner("multicommodity", PAIR_COLLECTIVES)
def plan_pairs(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    traffic: Any = None,
    chunks: int | None = None,
    order: str | None = None,
) -> Plan:
    """Plan paths of whole chunks from a maximum concurrent flow, for any traffic matrix."""
    collective = as_pair_collective(topology, collective)
    matrix = checked_traffic(topology, collective, traffic, root)
    count = None if chunks is None else as_whole(chunks, "chunks", high=MAX_PER_UNIT)
    if order is not None and (not isinstance(order, str) or order not in ORDERS):
        raise UnsupportedError(f"order is {shown(order)}; expected one of {', '.join(ORDERS)}")
    trace = Trace()
    answer = solve_pairs(topology, matrix, trace)
    with trace.stage("bound"):
        bound = lengths_bound(topology, collective, matrix, answer.lengths)
    with trace.stage("paths"):
        paths = _paths(topology, matrix, answer)
    with trace.stage("chunks"):
        per_unit, divided = shared_chunks(paths, topology, matrix, count, bound)
    with trace.stage("order"):
        schedule = best_order(topology, matrix, per_unit, divided, order)
    options = {name: value for name, value in (("chunks", count), ("order", order)) if value is not None}
    return proved_plan(topology, collective, schedule, "multicommodity", options, trace, bound)


def bound_pairs(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    traffic: Any = None,
    needs_exact: bool = False,
) -> Bound:
    """Bound the rate of any all-to-all(v); `NoAnswerError` if that has to be exact, and the linear program is not."""
    collective = as_pair_collective(topology, collective)
    matrix = checked_traffic(topology, collective, traffic, root)
    answer = solve_pairs(topology, matrix, Trace())
    if needs_exact and not answer.is_exact:
        raise NoAnswerError(
            f"the flows of {collective} on {topology} are too many to be known exactly; ask about fewer ranks, or "
            "about whole classes of links"
        )
    return lengths_bound(topology, collective, matrix, answer.lengths)


def as_pair_collective(topology: object, collective: object) -> Collective:
    """Look up a collective; raise `UnsupportedError` unless it is an all-to-all or all-to-allv."""
    as_topology(topology)
    return as_collective(collective, PAIR_COLLECTIVES, "flows between pairs do not implement")


def checked_traffic(
    topology: Topology, collective: Collective, traffic: Any, root: int | str | None = None
) -> IntArray:
    """Return the traffic as integers, all 1 for an all-to-all; raises as `plan_pairs` does."""
    rooted = shard_weights(topology, collective, root, None)
    if not collective.takes_traffic:
        if traffic is not None:
            own = "equal parts" if collective.traffic is None else "traffic of its own"
            raise UnsupportedError(f"{collective} has {own} and takes no traffic; all_to_allv does")
        return collective.pair_traffic(topology.num_ranks, rooted.index(1) if rooted else None)
    if traffic is None:
        raise UnsupportedError("all_to_allv needs traffic: a matrix of bytes, one row of numbers per rank")
    return as_pair_traffic(traffic, topology.compute_nodes)


def _paths(topology: Topology, traffic: IntArray, answer: PairAnswer) -> Paths:
    """Decompose the flows of all sources into paths."""
    from ...solvers.flows.path_decomposition import joined, source_paths

    pair_flows, size, (tails, heads, _, _) = answer.flows(), len(topology.nodes), topology.arrays
    paths = list["Paths"]()
    for source, flow in enumerate(progress.iterate(pair_flows.flows, len(pair_flows.flows))):
        if traffic[source].any():
            demands = pair_flows.amount * node_demands(topology, traffic, source)
            paths.append(source_paths(size, tails, heads, flow, source, demands))
    return joined(paths)


def lengths_bound(topology: Topology, collective: Collective, traffic: IntArray, lengths: Sequence[Fraction]) -> Bound:
    """Return the bound that length duals prove for traffic, (ranks, ranks), by a cut if one proves the same."""
    weights = tuple(map(int, traffic.ravel().tolist())) if collective.parts_differ else ()
    weighted = tuple(
        LinkValue(link.tail, link.head, length)
        for link, length in zip(topology.links, _simplified(lengths), strict=True)
        if length
    )
    best = Bound.from_witness(topology, collective, LengthDual(weighted), weights)
    for cut in cuts_at(topology, lengths):
        try:
            simple = Bound.from_witness(topology, collective, cut, weights)
        except CertificateError:
            continue  # no ranks on one side, or nothing to cross
        if simple.inverse_rate >= best.inverse_rate:
            return simple
    return best


def _simplified(lengths: Sequence[Fraction]) -> Sequence[Fraction]:
    """Round lengths without a small common denominator: any lengths give a bound, and these nearly the same."""
    total, unit = sum(lengths), lcm(*(length.denominator for length in lengths))
    if total * unit < MAX_UNITS:
        return lengths
    return [Fraction(round(length * MAX_UNITS / total)) for length in lengths]


def cuts_at(topology: Topology, lengths: Sequence[Fraction]) -> Iterator[Cut]:
    """Candidate cuts: sets of nodes left only by links with a length; contains the cut if the lengths are one."""
    size, ranks, (tails, heads, _, _) = len(topology.nodes), topology.num_ranks, topology.arrays
    free = np.array([length == 0 for length in lengths], dtype=np.bool_)
    ahead = partial_hop_distances(size, tails[free], heads[free])[:ranks] >= 0
    # What can reach a rank for nothing is entered over links with a length, so the others are left over them.
    behind = partial_hop_distances(size, heads[free], tails[free])[:ranks] < 0
    sides: set[bytes] = set()
    for inside in (*ahead, *behind):
        if len(sides) < MAX_CUTS and inside.tobytes() not in sides:
            sides.add(inside.tobytes())
            yield Cut(frozenset(topology.nodes[node] for node in np.flatnonzero(inside).tolist()))


@register_planner("shortest-paths", PAIR_COLLECTIVES)
def plan_shortest_paths(
    topology: Topology, collective: AnyCollective, *, root: int | str | None = None, traffic: Any = None
) -> Plan:
    """Plan one shortest path for each pair, all at once, as libraries send it."""
    collective = as_pair_collective(topology, collective)
    matrix = checked_traffic(topology, collective, traffic, root)
    check_pairs_reachable(topology, matrix)
    trace = Trace()
    with trace.stage("paths"):
        schedule = best_order(topology, matrix, 1, _shortest_paths(topology, matrix), "hops")

    def bound(_: Fraction) -> Bound:
        return bound_pairs(topology, collective, **schedule.problem(collective))

    return proved_plan(topology, collective, schedule, "shortest-paths", {}, trace, bound)


def _shortest_paths(topology: Topology, traffic: IntArray) -> Paths:
    """Trace the paths of all pairs back from their destinations along shortest-path trees."""
    from ...solvers.flows.path_decomposition import Paths

    sources, targets = np.nonzero(traffic * ~np.eye(len(traffic), dtype=np.bool_))
    links, hops = _predecessor_links(topology), []
    tails, _, _, _ = topology.arrays
    at = targets
    while (away := at != sources).any():
        last_links = np.where(away, links[sources, at], -1)
        hops.append(last_links)
        at = np.where(away, tails[last_links], at)
    table = np.array(hops[::-1]).T
    used = table >= 0
    starts = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int64)
    return Paths(traffic[sources, targets], starts, table[used])


def _predecessor_links(topology: Topology) -> IntArray:
    """For each rank the last link of a shortest path to each node; -1 for itself and unreachable nodes."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    tails, heads, _, _ = topology.arrays
    size = len(topology.nodes)
    # Passing a rank costs more than passing all switches.
    lengths = np.where(heads < topology.num_ranks, float(size), 1.0)
    before = np.empty((topology.num_ranks, size), dtype=np.int64)
    for source in progress.iterate(range(topology.num_ranks), topology.num_ranks):
        # Without a little noise, all ranks would take the same ones of equally short paths.
        noise = np.random.default_rng([source, current_seed()]).random(len(tails)) / (2 * size)
        graph = csr_array((lengths + noise, (tails, heads)), shape=(size, size))
        before[source] = dijkstra(graph, indices=source, return_predecessors=True)[1]
    link_keys = tails * size + heads
    order = np.argsort(link_keys)
    keys = before * size + np.arange(size)
    place = np.minimum(np.searchsorted(link_keys[order], keys), len(link_keys) - 1)
    return np.where(before >= 0, order[place], -1)
