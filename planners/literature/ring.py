"""Ring algorithm (Patarasuk and Yuan, JPDC 69(2), 2009) as NCCL and RCCL run it, BlueConnect, and switches as rings.

Rings visit box by box and enter and leave boxes through different NICs.  They are added one at a time by a walk with
limited patience, and looked for again; where that falls short of the best result possible, in other orders too.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...errors import TopologyError, UnsupportedError
from ...schedules import TREE_COLLECTIVES, Allreduce, Forest, TreeSchedule
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...support.arrays import joined_rows
from ...support.seed import current_seed
from ...support.validation import as_whole, shown
from ...topologies import Link, Topology
from ..bounds import plan_of_schedule
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.forest import bottleneck
from ..trees.forestcoll import plan_trees
from ..trees.problem import TreeProblem, check_request, tree_problem
from .fixed_pattern import forest_along, plan_pattern
from .ring_walk import Preference, Ring, RingContext, next_ring
from .routes import Hops, LinkLoads, find_boxes

MAX_CHANNELS = 32  # rings at most; NCCL has such a limit too
IMPROVEMENTS = 2  # how often each ring is looked for again
REGULAR = (Preference(True, "next"), Preference(False, "next"), Preference(True, "zigzag"))
EFFORT = 400  # how often random orders are tried, times the number of ranks
MAX_ATTEMPTS = 20
PATIENCE = 8  # attempts in a row without a better result after which there are no more


def ring_along(hops: Hops, ranks: Sequence[int], uses: LinkLoads) -> Ring:
    """Make the ring of a given order, or raise `UnsupportedError` where a hop is impossible."""
    pairs = zip(ranks, [*ranks[1:], ranks[0]], strict=True)
    return Ring(tuple(ranks), tuple(uses.take(hops.find_routes(tail, head)) for tail, head in pairs))


def find_rings(
    hops: Hops, boxes: Sequence[Sequence[int]], channels: int | None = None, ideal: Fraction = Fraction(0)
) -> list[Ring]:
    """Find rings that visit the boxes in their order."""
    everyone = [[rank for box in boxes for rank in box]]
    for groups, nearest in ((boxes, True), (boxes, False), (everyone, False)):
        near = RingContext(hops, groups, nearest)
        if rings := _best_rings(near, hops, channels, ideal):
            return rings
    raise UnsupportedError(
        f"no ring through {len(everyone[0])} ranks of {hops.problem.topology} was found whose neighbors are connected "
        "directly or through switches only; use another planner, or give an order"
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
    counts = [channels] if channels else range(1, _channel_limit(near) + 1)
    ideal = max(ideal, near.ideal(counts, LinkLoads(hops.problem.capacities)))
    for attempt in range(min(MAX_ATTEMPTS, 3 + EFFORT // len(near.order))):
        chance = random.Random(current_seed() * MAX_ATTEMPTS + attempt)
        preference = REGULAR[attempt] if attempt < len(REGULAR) else Preference(attempt % 2 == 0, chance)
        idle += 1
        for rings in _candidates(near, hops, channels, preference):
            sharing = sharing_time(hops, rings)
            if not best or sharing < time:
                best, time, idle = rings, sharing, 0
            if time == ideal:
                return best
        if not best or idle == PATIENCE:
            break
    return best


def _candidates(near: RingContext, hops: Hops, channels: int | None, preference: Preference) -> Iterator[list[Ring]]:
    """Yield rings found greedily, the best prefix of them, and each after improvement."""
    uses, rings = LinkLoads(hops.problem.capacities), list[Ring]()
    for number in range(channels or _channel_limit(near)):
        if (ring := next_ring(near, uses, number, preference)) is None:
            break
        rings.append(ring)
        uses.add(ring.links)
    if not rings:
        return
    if channels:
        rings = [rings[number % len(rings)] for number in range(channels)]
    else:
        best_count = min(range(1, len(rings) + 1), key=lambda count: sharing_time(hops, rings[:count]))
        yield rings[:best_count]
        yield _improved(near, hops, rings[:best_count], preference)
        if best_count == len(rings):
            return
    yield rings
    yield _improved(near, hops, rings, preference)


def _channel_limit(near: RingContext) -> int:
    """One ring per GPU of a box, so that each one's NIC has a ring; in a single box, one per link of a rank."""
    return min(MAX_CHANNELS, max(map(len, near.boxes)) if len(near.boxes) > 1 else near.links_per_rank)


def _improved(near: RingContext, hops: Hops, rings: Sequence[Ring], preference: Preference) -> list[Ring]:
    """Search for each ring again, given all others."""
    rings, uses = list(rings), LinkLoads(hops.problem.capacities)
    for ring in rings:
        uses.add(ring.links)
    for _ in range(IMPROVEMENTS):
        before = list(rings)
        for number, ring in enumerate(rings):
            if uses.peak(ring.links) < uses.peak():
                continue
            peak = uses.peak(ring.links)
            uses.add(ring.links, -1)
            better = next_ring(near, uses, number, preference, peak)
            rings[number] = better or ring
            uses.add(rings[number].links)
            if not better:
                return rings
        if rings == before:
            break
    return rings


@register_planner("ring", TREE_COLLECTIVES)
def plan_ring(
    topology: Topology,
    collective: AnyCollective,
    *,
    channels: int | None = None,
    order: str | Sequence[int | str] | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> Plan:
    """Plan rings through all boxes, as NCCL and RCCL run them."""
    options: dict[str, int | str] = {}
    ranks: list[int] = []
    if order is not None:
        if channels is not None:
            raise UnsupportedError("order describes one ring; leave channels out")
        ranks = _checked_order(topology, order)
        options["order"] = ",".join(map(str, ranks))
    if channels is not None:
        options["channels"] = as_whole(channels, "channels", high=MAX_CHANNELS)

    def build(problem: TreeProblem) -> Forest:
        return _forest(problem, _rings_in_order(problem, ranks) if ranks else _search(problem, channels))

    return plan_pattern(topology, collective, "ring", build, root=root, weights=weights, options=options)


def _search(problem: TreeProblem, channels: int | None) -> list[Ring]:
    """Search for rings box by box; as rings cross every cut, the bottleneck cut bounds their rate."""
    hops, ranks = Hops(problem), problem.topology.num_ranks
    narrowest = bottleneck(tree_problem(problem.topology, problem.direction, (1, *[0] * (ranks - 1))))
    return find_rings(hops, find_boxes(hops), channels, Fraction(narrowest.supply, narrowest.capacity))


def _rings_in_order(problem: TreeProblem, ranks: list[int]) -> list[Ring]:
    """The ring of a given order, and its reverse if that is possible and better."""
    hops, uses = Hops(problem), LinkLoads(problem.capacities)
    # With reductions the network is turned around, and data still runs in the order given.
    ring = ring_along(hops, ranks if problem.direction == "broadcast" else ranks[::-1], uses)
    try:
        both = [ring, ring_along(hops, ring.ranks[::-1], uses)]
    except UnsupportedError:
        return [ring]
    return min([ring], both, key=lambda rings: sharing_time(hops, rings))


def _forest(problem: TreeProblem, rings: list[Ring]) -> Forest:
    """One path per shard and ring, from the shard's root all the way round."""
    count, ranks = len(rings), problem.topology.num_ranks
    hops = np.empty((count, ranks), dtype=np.int32)
    for number, ring in enumerate(rings):
        hops[number, np.roll(ring.ranks, -1)] = number * ranks + np.arange(ranks)
    roots = np.flatnonzero(problem.root_weights)
    return forest_along(
        problem,
        count,
        np.repeat(roots, count),
        np.repeat(problem.root_weights[roots], count),
        np.tile(hops, (len(roots), 1)),
        [route for ring in rings for route in ring.routes],
    )


def _checked_order(topology: Topology, order: str | Sequence[int | str]) -> list[int]:
    entries: Any = [part.strip() for part in order.split(",")] if isinstance(order, str) else order
    if isinstance(entries, np.ndarray) and entries.ndim == 1:
        entries = entries.tolist()
    if not isinstance(entries, list | tuple):
        raise UnsupportedError(f"order is {shown(order)}; expected the ranks one after the other, such as '0,2,1,3'")
    numbers = [int(entry) if isinstance(entry, str) and entry.isdecimal() else entry for entry in entries]
    try:
        names = topology.restrict(numbers).compute_nodes
    except TopologyError as error:
        raise UnsupportedError(f"order does not name ranks: {error}") from None
    if len(names) != topology.num_ranks:
        raise UnsupportedError(f"order has {len(names)} ranks; expected all {topology.num_ranks}, each once")
    return [topology.node_index[name] for name in names]


@register_planner("hierarchical-ring", EVERY_ROOT)
def plan_hierarchical_ring(
    topology: Topology, collective: AnyCollective, *, weights: Sequence[object] | None = None
) -> Plan:
    """Plan rings among boxes, then rings inside boxes (BlueConnect)."""
    return plan_pattern(topology, collective, "hierarchical-ring", _hierarchical_forest, weights=weights)


def box_rings(hops: Hops, boxes: Sequence[Sequence[int]]) -> list[list[Ring]]:
    """Find rings inside every box, equally many in all boxes: the best number for the slowest box."""
    rings_by_box: list[list[Ring]] = []
    for number, box in enumerate(boxes):
        # Boxes of one kind can have the same rings, which saves looking for them.
        copies = _moved(hops, rings_by_box[-1], boxes[number - 1], box) if rings_by_box else None
        rings_by_box.append(copies or find_rings(hops, [box]))
    counts = sorted({len(rings) for rings in rings_by_box})
    filled = [[[rings[number % len(rings)] for number in range(count)] for rings in rings_by_box] for count in counts]
    return min(filled, key=lambda all_rings: max(sharing_time(hops, rings) for rings in all_rings))


def _moved(hops: Hops, rings: Sequence[Ring], box: Sequence[int], other: Sequence[int]) -> list[Ring] | None:
    """Translate the rings of one box to another, if they are possible there and as fast."""
    if len(box) != len(other):
        return None
    place, uses = dict(zip(box, other, strict=True)), LinkLoads(hops.problem.capacities)
    try:
        moved = [ring_along(hops, [place[rank] for rank in ring.ranks], uses) for ring in rings]
    except UnsupportedError:
        return None
    return moved if sharing_time(hops, moved) <= sharing_time(hops, rings) else None


def _hierarchical_forest(problem: TreeProblem) -> Forest:
    hops = Hops(problem)
    boxes = find_boxes(hops)
    sizes = sorted({len(box) for box in boxes})
    if len(boxes) < 2:
        raise UnsupportedError(
            f"the ranks of {problem.topology} form one box, where a hierarchical ring is a ring; use the planner 'ring'"
        )
    if len(sizes) > 1 or sizes[0] < 2:
        raise UnsupportedError(
            f"the boxes of {problem.topology} have {' or '.join(map(str, sizes))} ranks; a hierarchical ring needs "
            "boxes of equal size, of two or more"
        )
    # The routes into each rank by the rings of its box.
    inside, uses = box_rings(hops, boxes), LinkLoads(problem.capacities)
    channels, routes = len(inside[0]), [route for rings in inside for ring in rings for route in ring.routes]
    into, first = np.empty((channels, problem.topology.num_ranks), dtype=np.int32), 0
    for rings in inside:
        for number, ring in enumerate(rings):
            into[number, np.roll(ring.ranks, -1)] = first + np.arange(sizes[0])
            first += sizes[0]
    # Rows for each root, which change where its shard enters boxes.
    rows, roots = [], []
    for members in zip(*boxes, strict=True):
        entered = np.array(members)
        numbers = len(routes) + (np.arange(len(boxes)) - 1) % len(boxes)
        routes += [uses.take(hops.find_routes(*ends)) for ends in pairwise([*members, members[0]])]
        for root in entered[problem.root_weights[entered] > 0]:
            row = into.copy()
            row[:, entered] = numbers
            rows.append(row)
            roots.append(root)
    weights = np.repeat(problem.root_weights[roots], channels)
    return forest_along(problem, channels, np.repeat(roots, channels), weights, np.concatenate(rows), routes)


class _Port(NamedTuple):
    """How a rank reaches a switch and is reached: nodes between them, such as a NIC, and the links both ways."""

    rank: str
    between: tuple[str, ...]
    out: tuple[Link, ...]
    back: tuple[Link, ...]


@register_planner("ring-unwinding", TREE_COLLECTIVES)
def plan_ring_unwinding(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> Plan:
    """Plan optimal trees on a network whose switches are replaced by rings, as TACCL and TACOS do."""
    planned = check_request(topology, collective)
    network, ways = _unwound(topology)
    ring_plan = plan_trees(network, planned, root=root, weights=weights)
    forests = [_rewound(forest, topology, ways) for forest in ring_plan.trees.forests]
    schedule: TreeSchedule = Allreduce(*forests) if len(forests) > 1 else forests[0]
    return plan_of_schedule(topology, planned, schedule, planner="ring-unwinding")


def _unwound(topology: Topology) -> tuple[Topology, list[tuple[int, ...]]]:
    """Replace switches by rings whose hops have a node each; list the nodes that each of these stands for."""
    if not topology.switch_nodes:
        raise UnsupportedError(f"{topology} has no switches to unwind; use the planner 'forestcoll'")
    links = [link for link in topology.links if {link.tail, link.head} <= set(topology.compute_nodes)]
    names, ways = list[str](), list[tuple[int, ...]]()
    for switch, ports in _ports(topology):
        for port, following in pairwise([*ports, ports[0]]):
            name = f"{switch} from {port.rank}"
            passed = (*port.between, switch, *following.between[::-1])
            used = [*port.out, *following.back]
            bandwidth, latency = min(link.bandwidth for link in used), sum((link.latency for link in used), Fraction(0))
            links += [Link(port.rank, name, bandwidth, latency), Link(name, following.rank, bandwidth, Fraction(0))]
            names.append(name)
            ways.append(tuple(topology.node_index[node] for node in passed))
    network = Topology.from_links(
        links, compute=topology.compute_nodes, switches=names, name=f"{topology.name}, unwound"
    )
    return network, ways


def _ports(topology: Topology) -> Iterator[tuple[str, list[_Port]]]:
    """Yield the switches that join ranks, with a port for each rank."""
    ranks = set(topology.compute_nodes)
    neighbors: dict[str, dict[str, None]] = {node: {} for node in topology.nodes}
    for link in topology.links:
        neighbors[link.tail][link.head] = neighbors[link.head][link.tail] = None
    ends = {
        node
        for node in topology.switch_nodes
        if len(neighbors[node]) == 2 and len(ranks.intersection(neighbors[node])) == 1
    }
    wires = {node for node in ends if not ends.intersection(neighbors[node])}
    for switch in topology.switch_nodes:
        if switch in wires:
            continue
        ports: dict[str, _Port] = {}
        for node in neighbors[switch]:
            between = (node,) if node in wires else ()
            rank = next(iter(ranks.intersection(neighbors[node])), None) if between else node
            if rank not in ranks or rank in ports:
                raise UnsupportedError(
                    f"switch {switch!r} of {topology} and {node!r} are linked; ring-unwinding takes switches between "
                    "ranks only, which reach each in one way"
                )
            way = (str(rank), *between, switch)
            try:
                out, back = (tuple(topology.link(*ends) for ends in pairwise(nodes)) for nodes in (way, way[::-1]))
            except TopologyError as error:
                raise UnsupportedError(f"ring-unwinding needs links both ways at switches, but {error}") from None
            ports[way[0]] = _Port(way[0], between, out, back)
        if len(ports) > 1:
            yield switch, sorted(ports.values(), key=lambda port: topology.node_index[port.rank])


def _rewound(forest: Forest, topology: Topology, ways: Sequence[tuple[int, ...]]) -> Forest:
    """Let the paths of a forest on the unwound network pass the switches; reductions run from their ends."""
    ranks, turned = topology.num_ranks, forest.direction == "reduce"
    paths = list[list[int]]()
    for start, end in pairwise(forest.path_starts.tolist()):
        nodes = list[int]()
        for node in forest.path_nodes[start:end].tolist():
            nodes += [node] if node < ranks else ways[node - ranks][:: -1 if turned else 1]
        paths.append(nodes)
    starts, nodes_of_paths = joined_rows(paths)
    return replace(forest, path_starts=starts, path_nodes=nodes_of_paths)
