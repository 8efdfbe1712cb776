"""Whether two direct-connect graphs are the same up to the numbers of their nodes, and which nodes are alike.

Every mapping is checked arc by arc, and that there is none is only said when all were ruled out; see
`collopt.topologies.graphs.isomorphism` for how.

The search for a mapping between the nodes of two direct-connect graphs that keeps all arcs.

Colour refinement tells nodes apart by the colours of their neighbours until that says no more.  Then a node of one
graph is paired with each candidate of the other in turn, the pair gets a colour of its own, and refinement goes on.
Refinement only ever rules out pairings that no isomorphism has, all others are tried, and what is found is checked arc
by arc, so an answer is exact.  The search may need too many attempts to give one; it then says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, NoAnswerError, TopologyError, UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import as_integers, shown
from ..network.direct_graph import DirectGraph, as_direct_graph

__all__ = [
    "Colours",
    "NodeMatching",
    "as_permutation",
    "automorphisms",
    "is_isomorphism",
    "isomorphism",
    "keeps_arcs",
    "orbit_mappings",
    "orbits",
]


def isomorphism(graph: DirectGraph, other: DirectGraph) -> IntArray | None:
    """Find a renumbering of nodes that turns one graph into another.

    Parameters
    ----------
    graph, other : DirectGraph
        Any; parallel arcs and self-loops count as often as they are there.

    Returns
    -------
    ndarray of int64, shape (nodes,), or None
        To which node of `other` each node of `graph` goes; None if the graphs are not isomorphic.

    Raises
    ------
    NoAnswerError
        If `node_matching.MAX_ATTEMPTS` were not enough to find one or to rule all out.

    Examples
    --------
    >>> ring = DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)")
    >>> isomorphism(ring, ring.transpose())
    array([0, 2, 1])
    """
    as_direct_graph(graph)
    as_direct_graph(other)
    if graph.num_nodes != other.num_nodes or graph.num_arcs != other.num_arcs:
        return None
    same = np.arange(graph.num_nodes)
    if keeps_arcs(graph, other, same):
        return same
    return NodeMatching(graph, other).run()


def automorphisms(graph: DirectGraph) -> IntArray:
    """Find automorphisms of a graph, enough to see which nodes are alike.

    Parameters
    ----------
    graph : DirectGraph
        Any.

    Returns
    -------
    ndarray of int64, shape (found, nodes)
        Each row maps the nodes, and is checked arc by arc; the identity is left out.  The group that they generate has
        the same orbits of nodes as the group of all automorphisms, of which it may be a proper subgroup.

    Raises
    ------
    NoAnswerError
        If `node_matching.MAX_ATTEMPTS` were not enough to tell two nodes apart or to map one to the other.

    Examples
    --------
    >>> automorphisms(DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)"))
    array([[1, 2, 0]])
    """
    as_direct_graph(graph)
    found = list(orbit_mappings(NodeMatching(graph, graph)))
    return np.array(found, dtype=np.int64).reshape(-1, graph.num_nodes)


def orbit_mappings(search: NodeMatching) -> Iterator[IntArray]:
    """Look for mappings of a graph to itself until it is known which nodes are alike.

    Shapes: yields int64 (nodes,).
    """
    labels = np.arange(search.size)
    for cell in search.cells():
        first: list[int] = []  # One node of each orbit of this cell that is known so far.
        for node in cell.tolist():
            for like in first:
                if labels[node] == labels[like]:
                    break
                if (mapping := search.run((like, node))) is not None:
                    yield mapping
                    labels = _merged(labels, mapping)
                    break
            else:
                first.append(node)


def orbits(graph: DirectGraph) -> IntArray:
    """Tell which nodes are alike: some automorphism takes one to the other.

    Parameters
    ----------
    graph : DirectGraph
        Any.

    Returns
    -------
    ndarray of int64, shape (nodes,)
        The least node of each node's orbit.  Two nodes have the same if and only if they are alike.

    Raises
    ------
    NoAnswerError
        As `automorphisms`.

    Examples
    --------
    >>> orbits(DirectGraph.from_arcs(3, [(0, 1), (1, 0), (1, 2), (2, 1)], "path"))
    array([0, 1, 0])
    """
    found = automorphisms(graph)
    labels = np.arange(graph.num_nodes)
    for mapping in found:
        labels = _merged(labels, mapping)
    return labels


def _merged(labels: IntArray, mapping: IntArray) -> IntArray:
    """Give nodes that a mapping takes to each other the same label, the least of them."""
    while True:
        least = labels.copy()
        np.minimum.at(least, labels, labels[mapping])
        np.minimum.at(least, labels[mapping], labels)
        merged = least[labels]
        if (merged == labels).all():
            return labels
        labels = merged


HashArray = npt.NDArray[np.uint64]

MAX_ATTEMPTS = 20_000
"""Pairs of nodes that one search tries; 1024 nodes take about a minute for so many."""
DISTANCES_UP_TO = 4096
"""Nodes of graphs whose distances are compared first; the table has an entry for every two."""


class Colours(NamedTuple):
    """What a mapping has to keep besides the arcs: numbers of at least 0, equal for what may go to each other.

    `nodes` (int64 (nodes,)).
    `arcs` (int64 (arcs,)): In the order of the graph's arcs.
    """

    nodes: IntArray
    arcs: IntArray


class NodeMatching:
    """All ways to pair the nodes of two graphs; those of the second are numbered after those of the first.

    Colours are kept for the nodes of both graphs in one array, so that equal colours mean the same in both.  Hashes
    stand for multisets of colours: if two happen to be equal, nodes that could be told apart are not, which takes more
    attempts but rules out nothing.
    """

    def __init__(
        self,
        graph: DirectGraph,
        other: DirectGraph,
        colours: tuple[Colours, Colours] | None = None,
        *,
        most_attempts: int | None = None,
    ) -> None:
        self.graph, self.other, self.size, self.colours = graph, other, graph.num_nodes, colours
        self.most_attempts = most_attempts
        tails = np.concatenate([graph.tails, other.tails + self.size])
        heads = np.concatenate([graph.heads, other.heads + self.size])
        back = np.argsort(heads, kind="stable")
        # Those at the far end of the arcs of each node, for arcs out of it and into it.
        self.far = heads, tails[back]
        self.ends = tuple(np.searchsorted(near, np.arange(2 * self.size + 1)) for near in (tails, heads[back]))
        ours, theirs = (None, None) if colours is None else colours
        self.twins = np.concatenate([_twins(graph, ours), _twins(other, theirs)])
        self.attempts = 0
        hashes = np.concatenate([_first_hashes(graph), _first_hashes(other)])
        # What is added to the hash of a node at the far end of an arc.
        self.salts: tuple[HashArray, HashArray] | None = None
        if ours is not None and theirs is not None:
            salts = _mixed(np.concatenate([ours.arcs, theirs.arcs]).astype(np.uint64))
            self.salts = salts, salts[back]
            hashes = _mixed(hashes + np.concatenate([ours.nodes, theirs.nodes]).astype(np.uint64))
        self.start = self._refined(np.unique(hashes, return_inverse=True)[1])

    def cells(self) -> Iterator[IntArray]:
        """Yield the nodes of the first graph that refinement alone does not tell apart, where there are several."""
        if self.start is not None:
            for cell in _split(self.start[: self.size]):
                if len(cell) > 1:
                    yield cell

    def run(self, pair: tuple[int, int] | None = None) -> IntArray | None:
        """Find an isomorphism.

        Shapes: returns int64 (nodes,).
        """
        if self.most_attempts is None:
            self.attempts = 0
        colours = self.start
        if pair is not None and colours is not None:
            colours = self._paired(colours, *pair)
        if colours is None:
            return None
        mapping = self._matched(colours)
        stack = [self._branches(colours)]
        while mapping is None and stack:
            colours = next(stack[-1], None)
            if colours is None:
                stack.pop()
            else:
                mapping = self._matched(colours)
                stack.append(self._branches(colours))
        return mapping

    def _branches(self, colours: IntArray) -> Iterator[IntArray]:
        """Pair one node of the smallest open cell with every candidate; yield what is not ruled out.

        A cell of nodes that all have the very same neighbours is not open: how they are paired makes no difference.
        """
        here, there = _split(colours[: self.size]), _split(colours[self.size :])
        open_cells = [
            (len(cell), place)
            for place, cell in enumerate(here)
            if len(cell) > 1 and not (self._are_twins(cell) and self._are_twins(there[place] + self.size))
        ]
        if open_cells:
            place = min(open_cells)[1]
            for candidate in there[place].tolist():
                if (refined := self._paired(colours, int(here[place][0]), candidate)) is not None:
                    yield refined

    def _are_twins(self, nodes: IntArray) -> bool:
        return bool((self.twins[nodes] == self.twins[nodes[0]]).all())

    def _paired(self, colours: IntArray, node: int, candidate: int) -> IntArray | None:
        if colours[node] != colours[self.size + candidate]:
            return None
        self.attempts += 1
        most = MAX_ATTEMPTS if self.most_attempts is None else self.most_attempts
        if self.attempts > most:
            raise NoAnswerError(
                f"{most} attempts to map {self.graph.name} to {self.other.name} neither found an "
                "isomorphism nor ruled it out; give one that you know"
            )
        colours = colours.copy()
        colours[[node, self.size + candidate]] = len(colours)
        return self._refined(colours)

    def _refined(self, colours: IntArray) -> IntArray | None:
        """Tell nodes apart by the colours around them until nothing changes; None if the graphs turn out different."""
        count = 0
        while True:
            colours_seen, colours = np.unique(colours, return_inverse=True)
            here, there = (np.bincount(half, minlength=len(colours_seen)) for half in np.split(colours, 2))
            if (here != there).any():
                return None
            if len(colours_seen) <= count or len(colours_seen) == self.size:
                return colours
            count = len(colours_seen)
            hashes = _mixed(colours.astype(np.uint64) + np.uint64(1))
            around = hashes
            for side, (far, ends) in enumerate(zip(self.far, self.ends, strict=True)):
                terms = hashes[far] if self.salts is None else _mixed(hashes[far] + self.salts[side])
                sums = np.concatenate([[np.uint64(0)], np.cumsum(terms, dtype=np.uint64)])
                around = _mixed(around * np.uint64(3) + sums[ends[1:]] - sums[ends[:-1]])
            colours = around.view(np.int64)

    def _matched(self, colours: IntArray) -> IntArray | None:
        """Pair nodes of equal colour in the order of their numbers, if that is an isomorphism."""
        here, there = (np.argsort(half, kind="stable") for half in np.split(colours, 2))
        mapping = np.empty(self.size, dtype=np.int64)
        mapping[here] = there
        if not keeps_arcs(self.graph, self.other, mapping):
            return None
        return mapping if self.colours is None or self._keeps_colours(mapping, *self.colours) else None

    def _keeps_colours(self, mapping: IntArray, ours: Colours, theirs: Colours) -> bool:
        """Compare colours for a mapping that keeps arcs."""
        if (ours.nodes != theirs.nodes[mapping]).any():
            return False
        mapped = np.lexsort((ours.arcs, mapping[self.graph.heads], mapping[self.graph.tails]))
        other = np.lexsort((theirs.arcs, self.other.heads, self.other.tails))
        return bool((ours.arcs[mapped] == theirs.arcs[other]).all())


def is_isomorphism(graph: DirectGraph, other: DirectGraph, mapping: npt.ArrayLike) -> bool:
    """Whether a renumbering of nodes takes the arcs of one graph to those of the other, as often as they are there.

    Parameters
    ----------
    graph, other : DirectGraph
        Any.
    mapping : array_like of int, shape (nodes,)
        A permutation: to which node of `other` each node of `graph` goes.

    Returns
    -------
    bool

    Raises
    ------
    UnsupportedError
        If one of the graphs is something else, or the mapping is no permutation of the nodes of `graph`.

    Examples
    --------
    >>> ring = DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)")
    >>> is_isomorphism(ring, ring, [1, 2, 0]), is_isomorphism(ring, ring, [1, 0, 2])
    (True, False)
    """
    numbers = as_permutation(mapping, as_direct_graph(graph).num_nodes)
    return keeps_arcs(graph, as_direct_graph(other), numbers)


def as_permutation(mapping: npt.ArrayLike, size: int) -> IntArray:
    """Read the new number of each of `size` nodes; anything but a permutation raises `UnsupportedError`."""
    refusal = UnsupportedError(f"the mapping is {shown(mapping)}; expected each number from 0 to {size - 1} once")
    try:
        numbers = as_integers(mapping, "the numbers", "whole ones")
    except TopologyError:
        raise refusal from None
    if numbers.shape != (size,) or (np.sort(numbers) != np.arange(size)).any():
        raise refusal
    return numbers


def keeps_arcs(graph: DirectGraph, other: DirectGraph, mapping: IntArray) -> bool:
    """Answer as `is_isomorphism` does, for a mapping that is known to be a permutation."""
    if graph.num_nodes != other.num_nodes or graph.num_arcs != other.num_arcs:
        return False
    keys = np.sort(mapping[graph.tails] * graph.num_nodes + mapping[graph.heads])
    return bool((keys == other.tails * graph.num_nodes + other.heads).all())


def _mixed(values: HashArray) -> HashArray:
    """Scramble 64 bits, so that sums of different multisets differ but by accident (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _split(colours: IntArray) -> list[IntArray]:
    """Nodes of each colour, least colour first."""
    order = np.argsort(colours, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(colours[order])) + 1)


def _first_hashes(graph: DirectGraph) -> HashArray:
    """What tells nodes apart at once: self-loops and twins, and how many nodes are how far away."""
    loops = np.bincount(graph.tails[graph.tails == graph.heads], minlength=graph.num_nodes)
    twins = _twins(graph, None)
    hashes = _mixed((loops * graph.num_nodes + np.bincount(twins)[twins]).astype(np.uint64))
    if graph.num_nodes > DISTANCES_UP_TO:
        return hashes
    try:
        steps = _mixed(np.arange(1, graph.diameter + 2, dtype=np.uint64))[graph.distances]
    except BoundError:
        return hashes
    return _mixed(_mixed(hashes + steps.sum(axis=0)) + steps.sum(axis=1))


def _twins(graph: DirectGraph, colours: Colours | None) -> IntArray:
    """Number the sets of nodes that have the very same neighbours, in both directions, over arcs of equal colours."""
    back = np.argsort(graph.heads, kind="stable")
    heads, tails = graph.heads, graph.tails[back]
    if colours is not None:
        count = int(colours.arcs.max(initial=0)) + 1
        heads, tails = heads * count + colours.arcs, tails * count + colours.arcs[back]
    around = [
        np.split(far, np.cumsum(degrees)[:-1]) for far, degrees in zip((heads, tails), graph.degrees, strict=True)
    ]
    numbers: dict[tuple[bytes, bytes], int] = {}
    rows = (
        numbers.setdefault((out.tobytes(), into.tobytes()), len(numbers)) for out, into in zip(*around, strict=True)
    )
    return np.fromiter(rows, dtype=np.int64, count=graph.num_nodes)
