"""Removal of all switches from a network, level by level of its laminar family of tight sets.

In the *level problem* of a set its ranks and child sets are terminals, and everything outside is one node that only
supplies. An integral transportation plan between its neighbors replaces a switch; one sweep of maximum flows certifies
all plans (Theorem 6 of ForestColl).  Without a plan it is split exactly (Algorithm 3).  Proof:
docs/explanation/algorithms.md.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import BoolArray, FloatArray, IntArray
from ...support.kernels import kernel, kernel_with
from ..flows.max_flow import FlowNetwork, flow_network, paired_network, sweep_sinks, unmet_demand, workspace
from ..flows.rounding import integral_transport
from .routed_graph import RoutedGraph
from .tight_sets import LaminarFamily

JOINT_ROUNDS, SINGLE_ROUNDS = 8, 16
REGULARIZATION = 1e-3  # weight of the proportional plan in the target, so that every allowed entry is positive


def split_pairs(
    links: tuple[int, IntArray, IntArray, IntArray], supplies: IntArray, *, num_sinks: int, switch: int
) -> tuple[IntArray, int]:
    """Isolate one switch exactly; return int64 (pairs, 3) rows (into, out, units) and its remaining capacity."""
    sweep = sweep_sinks(*links, supplies, num_sinks)
    tight = np.unique(sweep.sink_sides[sweep.deficit == 0], axis=0)
    network = _with_pair_arcs(paired_network(*links), switch)
    # The arcs out of the switch, in the order of its list.
    arcs = np.flatnonzero(network.heads[np.arange(len(network.heads)) ^ 1] == switch)
    pairs = _pairs(len(arcs))
    pool = np.zeros((len(tight) + num_sinks, len(network.first_arc)), dtype=np.bool_)
    pool[: len(tight)] = tight
    order, pooled, splits = np.arange(num_sinks), len(tight), []
    for begin, end in progress.batches(len(pairs)):
        rows, pool, pooled = _split_some(network, switch, supplies, arcs, pairs[begin:end], order, pool, pooled)
        splits.append(rows)
    around = np.flatnonzero(network.heads == switch)
    left = network.capacities[around].sum() + network.capacities[around ^ 1].sum()
    return np.concatenate(splits), int(left)


def _with_pair_arcs(network: FlowNetwork, switch: int) -> FlowNetwork:
    """Add a pair of arcs between every two neighbors of `switch`, and drop arcs without capacity."""
    tails, heads = network.heads[1::2], network.heads[0::2]
    forward, backward = network.capacities[0::2], network.capacities[1::2]
    alive = (forward > 0) | (backward > 0)
    tails, heads, forward, backward = tails[alive], heads[alive], forward[alive], backward[alive]
    around = np.unique(np.concatenate([tails[heads == switch], heads[tails == switch]]))
    low, high = np.minimum(tails, heads), np.maximum(tails, heads)
    nodes = len(network.first_arc)
    rows, columns = np.triu_indices(len(around), 1)
    keys = around[rows] * nodes + around[columns]
    missing = keys[~np.isin(keys, low * nodes + high)]
    nothing = np.zeros(len(missing), dtype=np.int64)
    ends = np.concatenate([tails, missing // nodes]), np.concatenate([heads, missing % nodes])
    return flow_network(nodes, *ends, np.concatenate([forward, nothing]), np.concatenate([backward, nothing]))


@kernel_with(lambda network, _, __, ___, pairs, order, *____: len(pairs) * len(order) * len(network.heads))
def _split_some(
    network: FlowNetwork,
    switch: int,
    supplies: IntArray,
    arcs: IntArray,
    pairs: IntArray,
    order: IntArray,
    pool: BoolArray,
    pooled: int,
) -> tuple[IntArray, BoolArray, int]:
    """Split off some pairs; return (into, out, units) rows, the pool of tight cuts, and how many there are in it."""
    splits = np.empty((len(pairs), 3), dtype=np.int64)
    done = 0
    for pair in range(len(pairs)):
        from_arc, to_arc = arcs[pairs[pair, 0]], arcs[pairs[pair, 1]]
        into, out = network.heads[from_arc], network.heads[to_arc]
        if min(network.capacities[from_arc ^ 1], network.capacities[to_arc]) == 0:
            continue
        if _forbidden(pool, pooled, into, switch, out):
            continue
        if pooled == len(pool):
            pool = np.concatenate((pool, np.zeros_like(pool)))
        units, limited = _split_pair(network, from_arc, to_arc, supplies, order, pool[pooled])
        pooled += limited
        if units > 0:
            splits[done, 0], splits[done, 1], splits[done, 2] = into, out, units
            done += 1
    return splits[:done].copy(), pool, pooled


@kernel
def _pairs(degree: int) -> IntArray:
    """List all ordered pairs of neighbor indices, shape (degree^2, 2), in rotations to spread links over many others.

    Pairs of a neighbor with itself come last, needed only if one neighbor holds more than half of the switch.
    """
    pairs = np.empty((degree * degree, 2), dtype=np.int64)
    for shift in range(1, degree + 1):
        for index in range(degree):
            row = (shift - 1) * degree + index
            pairs[row, 0], pairs[row, 1] = index, (index + shift) % degree
    return pairs


@kernel
def _split_pair(
    network: FlowNetwork, from_arc: int, to_arc: int, supplies: IntArray, order: IntArray, cut: BoolArray
) -> tuple[int, bool]:
    """Split as many units of one pair as every sink allows; return them and whether some sink limited them.

    The cut of the last limiting sink, which is tight, is written into `cut`; that sink moves to the front of `order`.
    """
    space = workspace(len(network.first_arc))
    into, out = network.heads[from_arc], network.heads[to_arc]
    direct: int = network.first_arc[into] if into != out else -1
    while direct >= 0 and network.heads[direct] != out:
        direct = network.next_arc[direct]
    units = min(network.capacities[from_arc ^ 1], network.capacities[to_arc])
    _move(network.capacities, from_arc, to_arc, direct, units)
    limited = False
    for position in range(len(order)):
        sink = order[position]
        deficit = unmet_demand(network, network.capacities.copy(), supplies, sink, space)
        if deficit == 0:
            continue
        _move(network.capacities, from_arc, to_arc, direct, -deficit)
        units -= deficit
        cut[:] = space.labels >= 0
        limited = True
        order[1 : position + 1] = order[:position].copy()
        order[0] = sink
        if units == 0:
            break
    return units, limited


@kernel
def _forbidden(cuts: BoolArray, count: int, into: int, switch: int, out: int) -> bool:
    """Return whether some tight cut has the switch on one side and both neighbors on the other."""
    for cut in range(count):  # noqa: SIM110 - numba compiles no generator
        if cuts[cut, into] == cuts[cut, out] and cuts[cut, into] != cuts[cut, switch]:
            return True
    return False


@kernel
def _move(capacities: IntArray, from_arc: int, to_arc: int, direct: int, units: int) -> None:
    """Split `units` of the pair; a negative number undoes a split."""
    capacities[from_arc ^ 1] -= units
    capacities[to_arc] -= units
    if direct >= 0:
        capacities[direct] += units


class SwitchPlan(NamedTuple):
    """A transportation plan that replaces one switch."""

    switch: int  # number of the node
    neighbors: IntArray  # int64 (m,): its neighbors, ascending
    units: IntArray  # int64 (m, m): units from each neighbor straight to each other; the diagonal is capacity given up


def remove_all_switches(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan]:
    """Choose plans for all switches of `capacities`, int64 (nodes, nodes); every sink still gets every supply."""
    switches = _fewest_neighbors_first(capacities, len(supplies))
    together = _planned(capacities, supplies, num_sinks, switches, JOINT_ROUNDS)
    return _one_by_one(capacities, supplies, num_sinks, SINGLE_ROUNDS) if together is None else together


def split_all_switches(capacities: IntArray, supplies: IntArray, num_sinks: int) -> list[SwitchPlan]:
    """Remove all switches by exact edge splitting alone; arguments and result as in `remove_all_switches`."""
    return _one_by_one(capacities, supplies, num_sinks, 0)


def _planned(
    capacities: IntArray, supplies: IntArray, num_sinks: int, switches: list[int], rounds: int
) -> list[SwitchPlan] | None:
    """Plan some switches together, in rounds that forbid the pairs which wasted capacity; None if that fails."""
    cut_constraints: dict[int, list[BoolArray]] = {switch: [] for switch in switches}
    stays = ~np.isin(np.arange(len(capacities)), switches)
    for _ in range(rounds):
        current, plans = capacities.copy(), []
        for switch in progress.iterate(switches, len(switches)):
            plan = _plan(current, supplies, num_sinks, switch, cut_constraints[switch])
            if plan is None:
                return None
            plans.append(plan)
            _apply(current, plan)
        sweep = sweep_sinks(*_links(current), supplies, num_sinks)
        if not sweep.deficit.any():
            return plans
        cuts = np.unique(sweep.sink_sides[sweep.deficit > 0], axis=0)
        sides = [(cut & stays, ~cut & stays) for cut in cuts]
        separated = [_separate(plan, sides, cut_constraints[plan.switch]) for plan in plans]
        if not any(separated):
            return None
    return None


def _one_by_one(capacities: IntArray, supplies: IntArray, num_sinks: int, rounds: int) -> list[SwitchPlan]:
    """Plan one switch after the other, and split those exactly for which that fails."""
    current, plans = capacities.copy(), []
    switches = _fewest_neighbors_first(capacities, len(supplies))
    for switch in progress.iterate(switches, len(switches)):
        alone = _planned(current, supplies, num_sinks, [switch], rounds)
        plans.append(alone[0] if alone else _split_exactly(current, supplies, num_sinks, switch))
        _apply(current, plans[-1])
    return plans


def _fewest_neighbors_first(capacities: IntArray, first_switch: int) -> list[int]:
    neighbors = ((capacities > 0) | (capacities.T > 0)).sum(axis=1)
    return sorted(range(first_switch, len(capacities)), key=lambda switch: (neighbors[switch], switch))


def _plan(
    current: IntArray, supplies: IntArray, num_sinks: int, switch: int, cut_constraints: list[BoolArray]
) -> SwitchPlan | None:
    neighbors = _neighbors_of(current, switch)
    into, out = current[neighbors, switch], current[switch, neighbors]
    allowed = np.ones((len(neighbors), len(neighbors)), dtype=np.bool_)
    for side in cut_constraints:
        places = np.flatnonzero(side[neighbors])
        allowed[np.ix_(places, places)] = False
    # A neighbor with more than half of the switch has to be paired with itself: capacity given up.
    np.fill_diagonal(allowed, into + out > into.sum())
    direct = _direct_demand(current, supplies, num_sinks, neighbors)
    if (
        np.array_equal(direct.sum(axis=1), into)
        and np.array_equal(direct.sum(axis=0), out)
        and not direct[~allowed].any()
    ):
        units: IntArray | None = direct
    else:
        # This switch carries its share, among u's remaining switches, of what u still has to send.
        sent = current[neighbors, len(supplies) :].sum(axis=1)
        target = direct * np.divide(into, sent, out=np.zeros(len(neighbors)), where=sent > 0)[:, None]
        units = integral_transport(into, out, _completed(target, into, out, neighbors < num_sinks), allowed)
    return None if units is None else SwitchPlan(switch, neighbors, units)


def _neighbors_of(current: IntArray, switch: int) -> IntArray:
    return np.flatnonzero((current[:, switch] > 0) | (current[switch] > 0))


def _direct_demand(current: IntArray, supplies: IntArray, num_sinks: int, neighbors: IntArray) -> IntArray:
    """Units that the sinks next to a switch still need from each other for a direct link from each to all others."""
    sinks = neighbors < num_sinks
    offered = np.where(sinks, np.append(supplies, 0)[np.minimum(neighbors, len(supplies))], 0)
    direct = np.maximum(offered[:, None] - current[np.ix_(neighbors, neighbors)], 0)
    direct[:, ~sinks] = 0
    np.fill_diagonal(direct, 0)
    return direct


def _completed(target: FloatArray, ingress: IntArray, egress: IntArray, sinks: BoolArray) -> FloatArray:
    """Extend a target between sinks to the other neighbors, which take and provide the remaining units."""
    # In floats, since the products may not fit int64.
    into, out = ingress.astype(np.float64), egress.astype(np.float64)
    filled: FloatArray = REGULARIZATION * np.outer(into, out) / max(into.sum(), 1.0)
    unsent, missing = np.maximum(into - target.sum(axis=1), 0), np.maximum(out - target.sum(axis=0), 0)
    filled[np.ix_(sinks, sinks)] += target[np.ix_(sinks, sinks)]
    filled[np.ix_(sinks, ~sinks)] += np.outer(unsent[sinks], out[~sinks]) / max(out[~sinks].sum(), 1.0)
    filled[np.ix_(~sinks, sinks)] += np.outer(into[~sinks], missing[sinks]) / max(into[~sinks].sum(), 1.0)
    return filled


def _apply(current: IntArray, plan: SwitchPlan) -> None:
    current[plan.switch, :] = 0
    current[:, plan.switch] = 0
    current[np.ix_(plan.neighbors, plan.neighbors)] += plan.units
    current[plan.neighbors, plan.neighbors] = 0


def _links(current: IntArray) -> tuple[int, IntArray, IntArray, IntArray]:
    tails, heads = np.nonzero(current)
    return len(current), tails, heads, current[tails, heads]


def _separate(plan: SwitchPlan, sides: list[tuple[BoolArray, BoolArray]], cut_constraints: list[BoolArray]) -> bool:
    """Add, per violated cut, the side within which the plan wastes the switch's capacity; return whether any is new.

    A cut constraint forbids pairing the nodes of its side with each other.
    """
    before = len(cut_constraints)
    units_in, units_out = plan.units.sum(axis=1), plan.units.sum(axis=0)
    for inside, outside in sides:
        within, without = inside[plan.neighbors], outside[plan.neighbors]
        side = outside if units_in[without].sum() <= units_out[within].sum() else inside
        places = np.flatnonzero(side[plan.neighbors])
        among = plan.units[np.ix_(places, places)]
        if among.sum() > among.trace():
            cut_constraints.append(side)
    return len(cut_constraints) > before


def _split_exactly(current: IntArray, supplies: IntArray, num_sinks: int, switch: int) -> SwitchPlan:
    rows, left = split_pairs(_links(current), supplies, num_sinks=num_sinks, switch=switch)
    if left:
        raise SolverError(
            f"edge splitting could not isolate switch number {switch}: is its ingress equal to its egress?"
        )
    neighbors = _neighbors_of(current, switch)
    units = np.zeros((len(neighbors), len(neighbors)), dtype=np.int64)
    np.add.at(units, (np.searchsorted(neighbors, rows[:, 0]), np.searchsorted(neighbors, rows[:, 1])), rows[:, 2])
    return SwitchPlan(switch, neighbors, units)


RemoveAll = Callable[[IntArray, IntArray, int], list[SwitchPlan]]


class _Level(NamedTuple):
    """One level problem."""

    # int64 (nodes,): terminal of each node, then the outside, then the switches; -1 for switches that are gone
    place: IntArray
    supplies: IntArray  # int64 (terminals + 1,): of the terminals and the outside
    switches: IntArray  # node numbers, in the order of their places


def join_pass_through(graph: RoutedGraph, num_ranks: int) -> None:
    """Remove switches with two neighbors that forward all ingress: straight through serves every cut best."""
    while True:
        alive = graph.alive()
        into, out = _by_node(graph.heads, alive), _by_node(graph.tails, alive)
        joined: set[int] = set()
        pairs = []
        for switch in range(num_ranks, graph.num_nodes):
            incoming, outgoing = into.get(switch, []), out.get(switch, [])
            if len(incoming) != 2 or len(outgoing) != 2:
                continue
            ends = {int(graph.tails[incoming[0]]), int(graph.tails[incoming[1]])}
            if ends != {int(graph.heads[link]) for link in outgoing} or len(ends) != 2 or ends & joined:
                continue
            straight = [(a, b) for a in incoming for b in outgoing if graph.tails[a] != graph.heads[b]]
            if all(graph.units[a] == graph.units[b] for a, b in straight):
                pairs += straight
                joined.add(switch)
        if not pairs:
            return
        first, second = np.array(pairs, dtype=np.int64).T
        graph.join(first, second, graph.units[first])


def _by_node(ends: IntArray, links: IntArray) -> dict[int, list[int]]:
    by_node: dict[int, list[int]] = {}
    for link, node in zip(links.tolist(), ends[links].tolist(), strict=True):
        by_node.setdefault(node, []).append(link)
    return by_node


def remove_switches(
    graph: RoutedGraph, supplies: IntArray, family: LaminarFamily, remove: RemoveAll = remove_all_switches
) -> None:
    """Replace every switch by links between ranks, so that every rank can still receive every supply."""
    solved: dict[bytes, list[SwitchPlan]] = {}
    for number in progress.iterate(range(len(family.parents) - 1, -1, -1), len(family.parents)):
        alive = graph.alive()
        busy = np.zeros(graph.num_nodes, dtype=np.bool_)
        busy[graph.tails[alive]] = busy[graph.heads[alive]] = True
        switches = np.flatnonzero((family.innermost == number) & busy)
        switches = switches[switches >= len(supplies)]
        if not len(switches):
            continue
        level = _level(graph, supplies, family, number, switches)
        capacities = _capacities(graph, alive, level)
        key = level.supplies.tobytes() + capacities.tobytes()
        if key not in solved:
            solved[key] = remove(capacities, level.supplies, len(level.supplies) - 1)
        first_switch = len(level.supplies)
        for plan in solved[key]:
            _distribute(graph, level.place, int(switches[plan.switch - first_switch]), plan)


def _level(graph: RoutedGraph, supplies: IntArray, family: LaminarFamily, number: int, switches: IntArray) -> _Level:
    owner = _children(family, number)
    inside = owner >= -1
    # Sets by number, ranks as themselves; terminals are numbered by their first rank.
    label = np.where(owner >= 0, graph.num_nodes + owner, np.arange(graph.num_nodes))
    ranks = np.flatnonzero(inside[: len(supplies)])
    _, first, terminal = np.unique(label[ranks], return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first, kind="stable"), kind="stable")
    count = len(first)
    place = np.full(graph.num_nodes, -1, dtype=np.int64)
    place[~inside] = count
    place[ranks] = order[terminal]
    place_of_label = dict(zip(label[ranks].tolist(), order[terminal].tolist(), strict=True))
    for node in np.flatnonzero(inside & (owner >= 0)):
        place[node] = place_of_label[int(label[node])]
    place[switches] = count + 1 + np.arange(len(switches))
    totals = np.zeros(count + 1, dtype=np.int64)
    np.add.at(totals, np.minimum(np.where(inside, place, count)[: len(supplies)], count), supplies)
    return _Level(place, totals, switches)


def _children(family: LaminarFamily, number: int) -> IntArray:
    """Return, per node, the child set of set `number` around it, -1 if directly inside, -2 if outside."""
    child = np.full(len(family.parents), -2, dtype=np.int64)
    child[number] = -1
    for other in range(number + 1, len(family.parents)):
        parent = family.parents[other]
        child[other] = other if parent == number else child[parent]
    return child[family.innermost]


def _capacities(graph: RoutedGraph, alive: IntArray, level: _Level) -> IntArray:
    size = len(level.supplies) + len(level.switches)
    capacities = np.zeros((size, size), dtype=np.int64)
    tails, heads = level.place[graph.tails[alive]], level.place[graph.heads[alive]]
    between = (tails != heads) & (tails >= 0) & (heads >= 0)
    np.add.at(capacities, (tails[between], heads[between]), graph.units[alive][between])
    return capacities


def _distribute(graph: RoutedGraph, place: IntArray, switch: int, plan: SwitchPlan) -> None:
    """Join the links at a switch by its plan, spreading each terminal's share over its ports."""
    alive = graph.alive()
    incoming, outgoing = alive[graph.heads[alive] == switch], alive[graph.tails[alive] == switch]
    if not len(incoming):
        return  # the other switches gave up all its links
    sent, origin, target = _sent(graph, place, incoming, plan)
    pairs = [np.empty((0, 3), dtype=np.int64)]
    for terminal in np.unique(target):
        towards = np.flatnonzero(target == terminal)
        ports = outgoing[place[graph.heads[outgoing]] == terminal]
        ports = ports[np.argsort(graph.heads[ports], kind="stable")]
        pairs.append(_north_west_corner(origin[towards], sent[towards], ports, graph.units[ports]))
    into, out, units = np.concatenate(pairs).T
    graph.join(into, out, units)
    graph.units[incoming] = graph.units[outgoing] = 0


def _sent(
    graph: RoutedGraph, place: IntArray, incoming: IntArray, plan: SwitchPlan
) -> tuple[IntArray, IntArray, IntArray]:
    """Return units, port and terminal of what each incoming port sends, with aligned ports together."""
    parts = []
    for terminal in np.unique(place[graph.tails[incoming]]):
        ports = incoming[place[graph.tails[incoming]] == terminal]
        ports = ports[np.argsort(graph.tails[ports], kind="stable")]
        row = plan.units[np.searchsorted(plan.neighbors, terminal)]
        targets, aims, capacity = plan.neighbors[row > 0], row[row > 0], graph.units[ports]
        share = aims[None, :]
        if len(ports) > 1:
            everything = np.ones((len(ports), len(targets)), dtype=np.bool_)
            proportional = np.outer(capacity.astype(np.float64), aims)
            split = integral_transport(capacity, aims, proportional, everything)
            assert split is not None, "ports and plan hold the same units"
            share = split
        port, column = np.nonzero(share)
        given_up = targets[column] == terminal
        parts.append(np.stack([share[port, column], ports[port], targets[column], port])[:, ~given_up])
    units, port, target, position = np.concatenate(parts, axis=1)
    # The j-th ports of all terminals meet the j-th port of their target: rails stay rails.
    order = np.lexsort((port, position))
    return units[order], port[order], target[order]


def _north_west_corner(into: IntArray, sent: IntArray, out: IntArray, capacity: IntArray) -> IntArray:
    """Match two sequences of units in order (north-west corner rule); return (into, out, units) rows."""
    rows, columns = np.cumsum(sent), np.cumsum(capacity)
    ends = np.unique(np.concatenate([rows, columns[columns < rows[-1]]]))
    units = np.diff(ends, prepend=0)
    return np.stack([into[np.searchsorted(rows, ends)], out[np.searchsorted(columns, ends)], units], axis=1)
