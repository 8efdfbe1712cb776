"""Laminar family of tight sets, along which tree packing decomposes, and trimming that makes near-tight sets tight.

A set is *tight* if the capacity entering it equals the supplies outside; each tree from outside then enters it
once.  Trimming removes excess that enters a box equally from opposite links, and one sweep over the sinks certifies all
boxes; those that cross a violated cut get it back.  Proof: docs/explanation/algorithms.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...support import progress
from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel_with
from ..flows.bottleneck import cut_ratio
from ..flows.max_flow import (
    CAPACITY_LIMIT,
    FlowNetwork,
    paired_network,
    steps_of_sinks,
    sweep_sinks,
    unmet_demand,
    workspace,
)
from .routed_graph import RoutedGraph

MAX_ROUNDS = 4
MIN_RANKS_FOR_LEAF_GROUPS = 128
"""Leaf groups save time on large networks; on smaller networks trees are lower without them."""


class LaminarFamily(NamedTuple):
    """A laminar family of node sets; set 0 is the whole network."""

    # int64 (sets,): the smallest set around each set; -1 for set 0.  A set has a larger number than its parent.
    parents: IntArray
    innermost: IntArray  # int64 (nodes,): the smallest set that each node is in

    def members(self, number: int) -> BoolArray:
        """Mark the nodes of a set."""
        inside = np.zeros(len(self.parents), dtype=np.bool_)
        inside[number] = True
        for other in range(number + 1, len(self.parents)):
            inside[other] = inside[self.parents[other]]
        return inside[self.innermost]


class _Contraction:
    """The network with the tight sets so far contracted; ranks and contracted sets come first, then switches."""

    def __init__(
        self, num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray
    ) -> None:
        self.links = (tails, heads, capacities)
        self.num_ranks = len(supplies)
        self.supplies = supplies
        self.group_of = np.arange(num_nodes)
        self.num_groups = num_nodes
        self.set_of_group: list[int] = [-1] * num_nodes

    @property
    def num_terminals(self) -> int:
        """Number of groups that hold ranks."""
        return len(self.supplies)

    def merged_links(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the links between different groups, parallel ones merged."""
        tails, heads, capacities = self.links
        tails, heads = self.group_of[tails], self.group_of[heads]
        between = (tails != heads) & (capacities > 0)
        keys, number = np.unique((tails * self.num_groups + heads)[between], return_inverse=True)
        merged = np.zeros(len(keys), dtype=np.int64)
        np.add.at(merged, number, capacities[between])
        return keys // self.num_groups, keys % self.num_groups, merged

    def contract(self, sets: list[BoolArray], numbers: list[int]) -> None:
        """Contract each set of groups into one group."""
        target = np.arange(self.num_groups)
        for members in sets:
            target[members] = np.flatnonzero(members)[0]
        kept = np.unique(target)
        # The first member of a set is a terminal, so terminals stay in front.
        supplies = np.zeros(self.num_groups, dtype=np.int64)
        np.add.at(supplies, target[: self.num_terminals], self.supplies)
        self.supplies = supplies[kept[kept < self.num_terminals]]
        set_of_group = np.array(self.set_of_group)
        for members, number in zip(sets, numbers, strict=True):
            set_of_group[np.flatnonzero(members)[0]] = number
        self.set_of_group = set_of_group[kept].tolist()
        self.group_of = np.searchsorted(kept, target)[self.group_of]
        self.num_groups = len(kept)


def tight_family(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    supplies: IntArray,
    candidates: Sequence[BoolArray] = (),
) -> LaminarFamily:
    """Find a laminar family of tight sets of a network that can carry its supplies.

    Shapes: `candidates` list of bool (nodes,).
    """
    network = _Contraction(num_nodes, tails, heads, capacities, supplies)
    parents, innermost = [0], np.zeros(num_nodes, dtype=np.int64)
    while network.num_terminals > 2:
        sets = _disjoint_tight_sets(network)
        if not sets:
            sets, candidates = _grouped(network, candidates), ()
        if not sets:
            break
        numbers = []
        for members in sets:
            numbers.append(len(parents))
            parents.append(0)
            for group in np.flatnonzero(members):
                if network.set_of_group[group] >= 0:
                    parents[network.set_of_group[group]] = numbers[-1]
            inside = members[network.group_of] & (innermost == 0)
            innermost[inside] = numbers[-1]
        network.contract(sets, numbers)
    return _outermost_first(np.array(parents), innermost)


def _disjoint_tight_sets(network: _Contraction) -> list[BoolArray]:
    """Find smallest tight sets of two or more terminals, made disjoint."""
    links, terminals = network.merged_links(), network.num_terminals
    sweep = sweep_sinks(network.num_groups, *links, network.supplies, terminals)
    sizes = sweep.sink_sides[:, :terminals].sum(axis=1)
    proper = (sizes > 1) & (sizes < terminals) & (sweep.deficit == 0)
    order = np.flatnonzero(proper)[np.argsort(sizes[proper], kind="stable")]
    used = np.zeros(network.num_groups, dtype=np.bool_)
    disjoint = []
    for sink in order:
        members = sweep.sink_sides[sink]
        if (members & used)[:terminals].any():
            continue
        # Sets that share only switches stay tight without them, where switches are balanced.
        members = members & ~used
        if _is_tight(members, links, network.supplies):
            used |= members
            disjoint.append(members)
    return disjoint


def _grouped(network: _Contraction, sets: Sequence[BoolArray]) -> list[BoolArray]:
    """Return the tight ones of some node sets, with two or more terminals, as sets of groups."""
    links, terminals = network.merged_links(), network.num_terminals
    used = np.zeros(network.num_groups, dtype=np.bool_)
    disjoint = []
    for nodes in sets:
        members = np.zeros(network.num_groups, dtype=np.bool_)
        members[network.group_of[nodes]] = True
        members &= ~used
        if 1 < members[:terminals].sum() < terminals and _is_tight(members, links, network.supplies):
            used |= members
            disjoint.append(members)
    return disjoint


def _is_tight(members: BoolArray, links: tuple[IntArray, IntArray, IntArray], supplies: IntArray) -> bool:
    tails, heads, capacities = links
    entering = capacities[~members[tails] & members[heads]].sum()
    return bool(entering == supplies[~members[: len(supplies)]].sum())


def _outermost_first(parents: IntArray, innermost: IntArray) -> LaminarFamily:
    """Renumber the sets so that parents precede their children; set 0 stays."""
    depth = np.zeros(len(parents), dtype=np.int64)
    # Sets were found inside out: a parent has the larger number.
    for number in range(len(parents) - 1, 0, -1):
        depth[number] = depth[parents[number]] + 1
    order = np.argsort(depth, kind="stable")
    new_number = np.empty_like(order)
    new_number[order] = np.arange(len(order))
    new_parents = new_number[parents[order]]
    new_parents[0] = -1
    return LaminarFamily(new_parents, new_number[innermost])


def trim_to_tight_sets(graph: RoutedGraph, supplies: IntArray) -> list[BoolArray]:
    """Reduce capacities until as many boxes as possible are tight; return their masks, each bool (nodes,)."""
    sets = _local_bottlenecks(graph, supplies)
    if not sets and len(supplies) > MIN_RANKS_FOR_LEAF_GROUPS:
        sets = _leaf_groups(graph, len(supplies))
    original = graph.units.copy()
    for _ in range(MAX_ROUNDS):
        trimmed = [members for members in sets if _trim(graph, members, supplies)]
        if not trimmed:
            break
        alive = graph.alive()
        links = graph.tails[alive], graph.heads[alive], graph.units[alive]
        sweep = sweep_sinks(graph.num_nodes, *links, supplies, len(supplies))
        if not sweep.deficit.any():
            return trimmed
        graph.units[:] = original
        violated = sweep.sink_sides[sweep.deficit > 0]
        # Boxes that cross a violated cut get their capacity back.
        crossing = [violated[:, box].any(axis=1) & ~violated[:, ~box].all(axis=1) for box in sets]
        sets = [members for members, cuts in zip(sets, crossing, strict=True) if not cuts.any()]
    graph.units[:] = original
    return []


def _local_bottlenecks(graph: RoutedGraph, supplies: IntArray) -> list[BoolArray]:
    alive = graph.alive()
    units = graph.units[alive]
    weights = supplies // np.gcd.reduce(supplies)  # the sets depend on the proportions only
    if (sum(map(int, units)) + 1) * int(weights.sum()) >= CAPACITY_LIMIT:
        return []
    network = paired_network(graph.num_nodes, graph.tails[alive], graph.heads[alive], units)
    covered, blocks = np.zeros(len(supplies), dtype=np.bool_), []
    for begin, end in progress.batches(len(supplies)):
        blocks.append(_local_cuts(network, weights, begin, end, covered))
    cuts = np.concatenate(blocks)
    sizes = cuts[:, : len(supplies)].sum(axis=1)
    used = np.zeros(graph.num_nodes, dtype=np.bool_)
    disjoint = []
    for cut in cuts[np.argsort(-sizes, kind="stable")]:
        if 1 < cut[: len(supplies)].sum() < len(supplies) and not (cut & used)[: len(supplies)].any():
            disjoint.append(cut & ~used)
            used |= cut
    return disjoint


def _leaf_groups(graph: RoutedGraph, num_ranks: int) -> list[BoolArray]:
    """Group ranks whose links all go to one switch, together with that switch."""
    alive = graph.alive()
    tails, heads = graph.tails[alive], graph.heads[alive]
    lowest = np.full(graph.num_nodes, graph.num_nodes)
    highest = np.full(graph.num_nodes, -1)
    for ends, neighbors in ((tails, heads), (heads, tails)):
        np.minimum.at(lowest, ends, neighbors)
        np.maximum.at(highest, ends, neighbors)
    groups = []
    for switch in range(num_ranks, graph.num_nodes):
        members = (lowest == switch) & (highest == switch)
        members[num_ranks:] = False
        if 1 < members.sum() < num_ranks:
            members[switch] = True
            groups.append(members)
    return groups


def _trim(graph: RoutedGraph, members: BoolArray, supplies: IntArray) -> bool:
    """Reduce the ingress of a set to the supplies outside, and its egress equally; return whether that is possible."""
    alive = graph.alive()
    tails, heads = graph.tails[alive], graph.heads[alive]
    entering, leaving = alive[~members[tails] & members[heads]], alive[members[tails] & ~members[heads]]
    demand = int(supplies[~members[: len(supplies)]].sum())
    excess = int(graph.units[entering].sum()) - demand
    if excess <= 0:
        return excess == 0
    opposite = {(int(graph.heads[link]), int(graph.tails[link])): int(link) for link in leaving}
    pairs = [
        (int(link), opposite[ends])
        for link in entering
        if (ends := (int(graph.tails[link]), int(graph.heads[link]))) in opposite
    ]
    if not pairs:
        return False
    there, back = np.array(pairs, dtype=np.int64).T
    slack = np.minimum(graph.units[there], graph.units[back])
    if slack.sum() < excess:
        return False
    # The largest remainder method; slack bounds the shares.
    exact, total = [excess * int(units) for units in slack], int(slack.sum())
    share = np.array([part // total for part in exact], dtype=np.int64)
    remainders = np.array([part % total for part in exact], dtype=np.float64)
    share[np.argsort(-remainders, kind="stable")[: excess - int(share.sum())]] += 1
    graph.units[there] -= share
    graph.units[back] -= share
    return True


@kernel_with(steps_of_sinks)
def _local_cuts(network: FlowNetwork, supplies: IntArray, begin: int, end: int, covered: BoolArray) -> BoolArray:
    """Find local bottlenecks of uncovered ranks by Newton's method as in `bottleneck`, and update `covered`.

    Shapes: `covered` bool (ranks,); returns bool (cuts, nodes).
    """
    space = workspace(len(network.first_arc))
    cuts = np.zeros((end - begin, len(network.first_arc)), dtype=np.bool_)
    count = 0
    for sink in range(begin, end):
        if covered[sink]:
            continue
        cut = np.zeros(len(network.first_arc), dtype=np.bool_)
        cut[sink] = True
        while True:
            outside, entering = cut_ratio(network, supplies, cut)
            scaled = network.capacities * outside
            if entering == 0 or unmet_demand(network, scaled, supplies * entering, sink, space) == 0:
                break
            cut = space.labels >= 0
        covered |= cut[: len(supplies)]
        cuts[count] = cut
        count += 1
    return cuts[:count].copy()
