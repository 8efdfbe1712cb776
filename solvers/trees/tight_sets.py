"""Laminar family of tight sets, along which tree packing decomposes.

A set X is *tight* if the capacity entering it equals the supplies outside; each tree from outside then enters it once,
so the quotient, with X contracted, and the inside are independent (`forest_packing`).  The smallest tight set around a
rank holds the nodes that reach it in the residual network of a maximum flow.  Proof: docs/explanation/algorithms.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray
from ..flow.push_relabel import sweep_sinks


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
    known: Sequence[BoolArray] = (),
) -> LaminarFamily:
    """Find a laminar family of tight sets of a network that can carry its supplies.

    Shapes: `known` list of bool (nodes,).
    """
    network = _Contraction(num_nodes, tails, heads, capacities, supplies)
    parents, innermost = [0], np.zeros(num_nodes, dtype=np.int64)
    while network.num_terminals > 2:
        found = _disjoint_tight_sets(network)
        if not found:
            found, known = _grouped(network, known), ()
        if not found:
            break
        numbers = []
        for members in found:
            numbers.append(len(parents))
            parents.append(0)
            for group in np.flatnonzero(members):
                if network.set_of_group[group] >= 0:
                    parents[network.set_of_group[group]] = numbers[-1]
            inside = members[network.group_of] & (innermost == 0)
            innermost[inside] = numbers[-1]
        network.contract(found, numbers)
    return _outermost_first(np.array(parents), innermost)


def _disjoint_tight_sets(network: _Contraction) -> list[BoolArray]:
    """Find smallest tight sets of two or more terminals, made disjoint."""
    links, terminals = network.merged_links(), network.num_terminals
    sweep = sweep_sinks(network.num_groups, *links, network.supplies, terminals)
    sizes = sweep.sink_sides[:, :terminals].sum(axis=1)
    proper = (sizes > 1) & (sizes < terminals) & (sweep.deficit == 0)
    order = np.flatnonzero(proper)[np.argsort(sizes[proper], kind="stable")]
    taken = np.zeros(network.num_groups, dtype=np.bool_)
    found = []
    for sink in order:
        members = sweep.sink_sides[sink]
        if (members & taken)[:terminals].any():
            continue
        # Sets that share only switches stay tight without them, where switches are balanced.
        members = members & ~taken
        if _is_tight(members, links, network.supplies):
            taken |= members
            found.append(members)
    return found


def _grouped(network: _Contraction, sets: Sequence[BoolArray]) -> list[BoolArray]:
    """Return the tight ones of some node sets, with two or more terminals, as sets of groups."""
    links, terminals = network.merged_links(), network.num_terminals
    taken = np.zeros(network.num_groups, dtype=np.bool_)
    found = []
    for nodes in sets:
        members = np.zeros(network.num_groups, dtype=np.bool_)
        members[network.group_of[nodes]] = True
        members &= ~taken
        if 1 < members[:terminals].sum() < terminals and _is_tight(members, links, network.supplies):
            taken |= members
            found.append(members)
    return found


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
