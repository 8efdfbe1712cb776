"""Graph isomorphism and automorphism orbits by color refinement with individualization.

Refinement distinguishes nodes by the colors of their neighbors until nothing changes.  Then a node of one graph is
paired with each candidate of the other, the pair gets a color of its own, and refinement goes on.  It rules out only
pairings that no isomorphism has, all others are tried, and mappings are checked arc by arc, so answers are exact.  A
search that reaches its limit of attempts raises `NoAnswerError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, NoAnswerError, TopologyError, UnsupportedError
from ...support.arrays import IntArray, components
from ...support.validation import as_integers, shown
from ..network.direct_graph import DirectGraph, as_direct_graph


def isomorphism(graph: DirectGraph, other: DirectGraph) -> IntArray | None:
    """Find an isomorphism between two graphs.

    Parameters
    ----------
    graph, other : DirectGraph
        Any, with parallel arcs and self-loops.

    Returns
    -------
    ndarray of int64, shape (nodes,), or None
        The node of `other` for each node of `graph`; None if the graphs are not isomorphic;
        `NoAnswerError` if `MAX_ATTEMPTS` pairs of nodes did not decide it.

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
    identity = np.arange(graph.num_nodes)
    if preserves_arcs(graph, other, identity):
        return identity
    return NodeMatching(graph, other).run()


_reversals: WeakKeyDictionary[DirectGraph, IntArray | None] = WeakKeyDictionary()


def reverse_symmetry(graph: DirectGraph) -> IntArray | None:
    """Find an isomorphism from a graph to its transpose, by which schedules can be reversed (Theorem 2).

    Direct-connect paper, Definition 6; found once for each graph.

    Returns
    -------
    ndarray of int64, shape (nodes,), or None
        It is also one from the transpose to the graph; None if there is none.  `NoAnswerError` as by `isomorphism`.
    """
    if as_direct_graph(graph) not in _reversals:
        _reversals[graph] = isomorphism(graph, graph.transpose())
    return _reversals[graph]


def automorphisms(graph: DirectGraph) -> IntArray:
    """Find automorphisms of a graph that generate its orbits of nodes.

    Returns
    -------
    ndarray of int64, shape (found, nodes)
        Each row maps the nodes, and is checked arc by arc; the identity is left out.  The group that they generate has
        the same orbits of nodes as the full automorphism group, of which it may be a proper subgroup.
        `NoAnswerError` if `MAX_ATTEMPTS` pairs of nodes did not decide whether two are alike.

    Examples
    --------
    >>> automorphisms(DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)"))
    array([[1, 2, 0]])
    """
    as_direct_graph(graph)
    mappings = list(orbit_mappings(NodeMatching(graph, graph)))
    return np.array(mappings, dtype=np.int64).reshape(-1, graph.num_nodes)


def orbit_mappings(search: NodeMatching) -> Iterator[IntArray]:
    """Yield automorphisms until the orbits of nodes are known. Shapes: yields int64 (nodes,)."""
    labels = np.arange(search.size)
    for cell in search.cells():
        first: list[int] = []  # One node of each known orbit of this cell.
        for node in cell.tolist():
            for like in first:
                if labels[node] == labels[like]:
                    break
                if (mapping := search.run((like, node))) is not None:
                    yield mapping
                    labels = components(search.size, np.column_stack((labels, labels[mapping])))[labels]
                    break
            else:
                first.append(node)


HashArray = npt.NDArray[np.uint64]

MAX_ATTEMPTS = 20_000  # pairs of nodes that one search tries, about a minute for 1024 nodes
MAX_DISTANCE_TABLE = 4096  # nodes of graphs whose all-pairs distances are compared first


class Colors(NamedTuple):
    """Colors of nodes and arcs, numbers of at least 0, that an automorphism has to preserve."""

    nodes: IntArray  # int64 (nodes,)
    arcs: IntArray  # int64 (arcs,): in the order of the graph's arcs


class NodeMatching:
    """Search for isomorphisms of two graphs, whose nodes share one color array; colliding hashes only cost attempts."""

    def __init__(
        self, graph: DirectGraph, other: DirectGraph, colors: Colors | None = None, *, max_attempts: int | None = None
    ) -> None:
        from .refinement import ColoredNetwork, mixed

        self.graph, self.other, self.size, self.colors = graph, other, graph.num_nodes, colors
        self.max_attempts, self.attempts = max_attempts, 0
        self.twins = np.concatenate([_twins(side, colors) for side in (graph, other)])
        hashes = np.concatenate([_first_hashes(graph), _first_hashes(other)])
        kinds = np.zeros(graph.num_arcs, dtype=np.int64) if colors is None else colors.arcs
        if colors is not None:
            hashes = mixed(hashes + np.tile(colors.nodes, 2).astype(np.uint64))
        tails = np.concatenate([graph.tails, other.tails + self.size])
        heads = np.concatenate([graph.heads, other.heads + self.size])
        self.network = ColoredNetwork(tails, heads, np.tile(kinds, 2), hashes.view(np.int64))
        self.start = self._refined(self.network.colors)

    def cells(self) -> Iterator[IntArray]:
        """Yield the classes of several nodes of the first graph that refinement does not distinguish."""
        if self.start is not None:
            for cell in _split(self.start[: self.size]):
                if len(cell) > 1:
                    yield cell

    def run(self, pair: tuple[int, int] | None = None) -> IntArray | None:
        """Find an isomorphism, int64 (nodes,), or one that maps `pair` in order; None if there is none."""
        if self.max_attempts is None:
            self.attempts = 0
        colors = self.start
        if pair is not None and colors is not None:
            colors = self._paired(colors, *pair)
        if colors is None:
            return None
        mapping = self._matched(colors)
        stack = [self._branches(colors)]
        while mapping is None and stack:
            colors = next(stack[-1], None)
            if colors is None:
                stack.pop()
            else:
                mapping = self._matched(colors)
                stack.append(self._branches(colors))
        return mapping

    def _branches(self, colors: IntArray) -> Iterator[IntArray]:
        """Pair one node of the smallest open cell with every candidate, and yield the colors not ruled out.

        A cell of twins, which have the same neighbors, is not open: all ways to pair them are equivalent.
        """
        here, there = _split(colors[: self.size]), _split(colors[self.size :])
        open_cells = [
            (len(cell), place)
            for place, cell in enumerate(here)
            if len(cell) > 1 and not (self._are_twins(cell) and self._are_twins(there[place] + self.size))
        ]
        if open_cells:
            place = min(open_cells)[1]
            for candidate in there[place].tolist():
                if (refined := self._paired(colors, int(here[place][0]), candidate)) is not None:
                    yield refined

    def _are_twins(self, nodes: IntArray) -> bool:
        return bool((self.twins[nodes] == self.twins[nodes[0]]).all())

    def _paired(self, colors: IntArray, node: int, candidate: int) -> IntArray | None:
        if colors[node] != colors[self.size + candidate]:
            return None
        self.attempts += 1
        limit = MAX_ATTEMPTS if self.max_attempts is None else self.max_attempts
        if self.attempts > limit:
            raise NoAnswerError(
                f"{limit} attempts to map {self.graph.name} to {self.other.name} neither found an "
                "isomorphism nor ruled it out; give one that you know"
            )
        colors = colors.copy()
        colors[[node, self.size + candidate]] = len(colors)
        return self._refined(colors)

    def _refined(self, start: IntArray) -> IntArray | None:
        """Refine colors by those of neighbors until nothing changes; None if the graphs differ."""
        from .refinement import refinements

        for colors in refinements(self.network, start):
            here, there = (np.bincount(half, minlength=int(colors.max()) + 1) for half in np.split(colors, 2))
            if (here != there).any():
                return None
            if len(here) == self.size:
                break
        return colors

    def _matched(self, colors: IntArray) -> IntArray | None:
        """Pair nodes of equal color in the order of their numbers, if that is an isomorphism."""
        here, there = (np.argsort(half, kind="stable") for half in np.split(colors, 2))
        mapping = np.empty(self.size, dtype=np.int64)
        mapping[here] = there
        if not preserves_arcs(self.graph, self.other, mapping):
            return None
        return mapping if self.colors is None or self._preserves_colors(mapping, self.colors) else None

    def _preserves_colors(self, mapping: IntArray, colors: Colors) -> bool:
        """Return whether an automorphism preserves colors."""
        mapped = np.lexsort((colors.arcs, mapping[self.graph.heads], mapping[self.graph.tails]))
        ours = np.lexsort((colors.arcs, self.graph.heads, self.graph.tails))
        return bool((colors.nodes == colors.nodes[mapping]).all() and (colors.arcs[mapped] == colors.arcs[ours]).all())


def as_permutation(mapping: npt.ArrayLike, size: int) -> IntArray:
    """Return a permutation of `size` nodes as int64; anything else raises `UnsupportedError`."""
    refusal = UnsupportedError(f"the mapping is {shown(mapping)}; expected each number from 0 to {size - 1} once")
    try:
        numbers = as_integers(mapping, "the numbers", "whole ones")
    except TopologyError:
        raise refusal from None
    if numbers.shape != (size,) or (np.sort(numbers) != np.arange(size)).any():
        raise refusal
    return numbers


def preserves_arcs(graph: DirectGraph, other: DirectGraph, mapping: IntArray) -> bool:
    """Return whether a permutation of the nodes is an isomorphism."""
    if graph.num_nodes != other.num_nodes or graph.num_arcs != other.num_arcs:
        return False
    keys = np.sort(mapping[graph.tails] * graph.num_nodes + mapping[graph.heads])
    return bool((keys == other.tails * graph.num_nodes + other.heads).all())


def _split(colors: IntArray) -> list[IntArray]:
    """Return the nodes of each color, least color first."""
    order = np.argsort(colors, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(colors[order])) + 1)


def _first_hashes(graph: DirectGraph) -> HashArray:
    """Hash invariants of each node: self-loops, twins, and the distribution of distances."""
    from .refinement import mixed

    loops = np.bincount(graph.tails[graph.tails == graph.heads], minlength=graph.num_nodes)
    twins = _twins(graph, None)
    hashes: HashArray = mixed((loops * graph.num_nodes + np.bincount(twins)[twins]).astype(np.uint64))
    if graph.num_nodes <= MAX_DISTANCE_TABLE:
        with suppress(BoundError):
            steps = mixed(np.arange(1, graph.diameter + 2, dtype=np.uint64))[graph.distances]
            hashes = mixed(mixed(hashes + steps.sum(axis=0)) + steps.sum(axis=1))
    return hashes


def _twins(graph: DirectGraph, colors: Colors | None) -> IntArray:
    """Number the sets of twins: nodes with the same in- and out-neighbors over arcs of equal colors."""
    back = np.argsort(graph.heads, kind="stable")
    heads, tails = graph.heads, graph.tails[back]
    if colors is not None:
        count = int(colors.arcs.max(initial=0)) + 1
        heads, tails = heads * count + colors.arcs, tails * count + colors.arcs[back]
    around = [
        np.split(neighbors, np.cumsum(degrees)[:-1])
        for neighbors, degrees in zip((heads, tails), graph.degrees, strict=True)
    ]
    numbers: dict[tuple[bytes, bytes], int] = {}
    rows = (
        numbers.setdefault((out.tobytes(), into.tobytes()), len(numbers)) for out, into in zip(*around, strict=True)
    )
    return np.fromiter(rows, dtype=np.int64, count=graph.num_nodes)
