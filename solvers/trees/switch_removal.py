"""Removal of all switches from a network, level by level of its laminar family of tight sets.

In the *level problem* of a set its ranks and child sets are terminals, everything outside is one node that supplies but
is no sink, and the switches directly inside are removed (`transport_splitting`).  No links are paired within one
terminal or the outside, so tight sets stay tight.  A terminal's plan is then distributed over its links (its *ports*).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...support import progress
from ...support.arrays import IntArray
from ..flow.transport import integral_transport
from .routed_graph import RoutedGraph
from .tight_sets import LaminarFamily
from .transport_splitting import SwitchPlan, remove_all_switches

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
    found: dict[int, list[int]] = {}
    for link, node in zip(links.tolist(), ends[links].tolist(), strict=True):
        found.setdefault(node, []).append(link)
    return found


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
        targets, wanted, capacity = plan.neighbors[row > 0], row[row > 0], graph.units[ports]
        share = wanted[None, :]
        if len(ports) > 1:
            everything = np.ones((len(ports), len(targets)), dtype=np.bool_)
            proportional = np.outer(capacity.astype(np.float64), wanted)
            split = integral_transport(capacity, wanted, proportional, everything)
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
