"""Capacity trimming that makes near-tight sets tight.

Capacity that enters a box beyond the supplies outside is removed equally from opposite links, and one sweep over the
sinks certifies all boxes; boxes that cross a violated cut get it back.  Candidates: *local bottlenecks*, the sets
around a rank with the largest ratio of outside supplies to ingress, or else groups of ranks attached to one switch.
"""

import numpy as np

from ...support import progress
from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel_with
from ..flow.max_flow import CAPACITY_LIMIT, FlowNetwork, paired_network, steps_of_sinks
from ..flow.push_relabel import SinkSweep, sweep_sinks, unmet_demand, workspace
from .bottleneck import cut_ratio
from .routed_graph import RoutedGraph

MAX_ROUNDS = 4
MIN_RANKS_FOR_LEAF_GROUPS = 128
"""Leaf groups save time on large networks; on smaller networks trees are lower without them."""


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
        sweep = _sweep(graph, supplies)
        if not sweep.deficit.any():
            return trimmed
        graph.units[:] = original
        violated = sweep.sink_sides[sweep.deficit > 0]
        sets = [members for members in sets if not _crosses(members, violated)]
    graph.units[:] = original
    return []


def _sweep(graph: RoutedGraph, supplies: IntArray) -> SinkSweep:
    alive = graph.alive()
    return sweep_sinks(
        graph.num_nodes, graph.tails[alive], graph.heads[alive], graph.units[alive], supplies, len(supplies)
    )


def _crosses(members: BoolArray, violated: BoolArray) -> bool:
    """Return whether a set crosses some violated cut."""
    inside = violated[:, members]
    return bool((inside.any(axis=1) & ~violated[:, ~members].all(axis=1)).any())


def _local_bottlenecks(graph: RoutedGraph, supplies: IntArray) -> list[BoolArray]:
    alive = graph.alive()
    units = graph.units[alive]
    weights = supplies // np.gcd.reduce(supplies)  # the sets depend on the proportions only
    if (sum(map(int, units)) + 1) * int(weights.sum()) >= CAPACITY_LIMIT:
        return []
    network = paired_network(graph.num_nodes, graph.tails[alive], graph.heads[alive], units)
    cuts = _all_local_cuts(network, weights)
    sizes = cuts[:, : len(supplies)].sum(axis=1)
    taken = np.zeros(graph.num_nodes, dtype=np.bool_)
    chosen = []
    for cut in cuts[np.argsort(-sizes, kind="stable")]:
        if 1 < cut[: len(supplies)].sum() < len(supplies) and not (cut & taken)[: len(supplies)].any():
            chosen.append(cut & ~taken)
            taken |= cut
    return chosen


def _all_local_cuts(network: FlowNetwork, supplies: IntArray) -> BoolArray:
    """Find, per uncovered rank, the set around it with the largest ratio of outside supply to ingress."""
    covered, found = np.zeros(len(supplies), dtype=np.bool_), []
    for begin, end in progress.batches(len(supplies)):
        found.append(_local_cuts(network, supplies, begin, end, covered))
    return np.concatenate(found)


def _leaf_groups(graph: RoutedGraph, num_ranks: int) -> list[BoolArray]:
    """Group ranks whose links all go to one switch, together with that switch."""
    alive = graph.alive()
    tails, heads = graph.tails[alive], graph.heads[alive]
    lowest = np.full(graph.num_nodes, graph.num_nodes)
    highest = np.full(graph.num_nodes, -1)
    for ends, others in ((tails, heads), (heads, tails)):
        np.minimum.at(lowest, ends, others)
        np.maximum.at(highest, ends, others)
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
    needed = int(supplies[~members[: len(supplies)]].sum())
    excess = int(graph.units[entering].sum()) - needed
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
    share = _apportion(excess, slack)
    graph.units[there] -= share
    graph.units[back] -= share
    return True


def _apportion(total: int, slack: IntArray) -> IntArray:
    """Apportion `total` by `slack`, which bounds the shares, with the largest remainder method."""
    whole = int(slack.sum())
    exact = [total * int(units) for units in slack]
    shares = np.array([part // whole for part in exact], dtype=np.int64)
    remainders = np.array([part % whole for part in exact], dtype=np.float64)
    shares[np.argsort(-remainders, kind="stable")[: total - int(shares.sum())]] += 1
    return shares


@kernel_with(steps_of_sinks)
def _local_cuts(network: FlowNetwork, supplies: IntArray, begin: int, end: int, covered: BoolArray) -> BoolArray:
    """Find local bottlenecks of uncovered ranks by Newton's method as in `bottleneck`, and update `covered`.

    Shapes: `covered` bool (ranks,); returns bool (cuts, nodes).
    """
    space = workspace(len(network.first_arc))
    found = np.zeros((end - begin, len(network.first_arc)), dtype=np.bool_)
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
        found[count] = cut
        count += 1
    return found[:count].copy()
