"""Isomorphisms of graphs and automorphisms of networks, by color refinement with individualization.

Refinement rules out only pairings that no isomorphism has, all others are tried, and mappings are checked arc by arc,
so answers are exact.  A search that reaches its limit of attempts raises `NoAnswerError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, NoAnswerError, TopologyError, UnsupportedError
from ...support.arrays import IntArray, components, orbits
from ...support.validation import as_integers, shown
from ..network.direct_graph import DirectGraph, as_direct_graph
from ..network.topology import Topology, as_topology
from .refinement import ColoredNetwork, mixed, node_kinds, refinements


def isomorphism(graph: DirectGraph, other: DirectGraph) -> IntArray | None:
    """Find an isomorphism between two graphs, with parallel arcs and self-loops.

    Parameters
    ----------
    graph, other : DirectGraph
        Any graphs.

    Returns
    -------
    ndarray of int64, shape (nodes,), or None
        The node of `other` for each node of `graph`; None if the graphs are not isomorphic; `NoAnswerError` if
        `MAX_ATTEMPTS` pairs of nodes did not decide it.

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
    """Find an isomorphism from a graph to its transpose, and back, by which schedules can be reversed (Theorem 2).

    Direct-connect paper, Definition 6; found once for each graph.  None and `NoAnswerError` as by `isomorphism`.

    Examples
    --------
    >>> from collopt.topologies import diamond, kautz
    >>> reverse_symmetry(diamond().graph) is None, reverse_symmetry(kautz(2, 1).graph) is None
    (True, False)
    """
    if as_direct_graph(graph) not in _reversals:
        _reversals[graph] = isomorphism(graph, graph.transpose())
    return _reversals[graph]


def automorphisms(graph: DirectGraph) -> IntArray:
    """Find automorphisms of a graph that generate its orbits of nodes; `NoAnswerError` as by `isomorphism`.

    Returns
    -------
    ndarray of int64, shape (found, nodes)
        Each row maps the nodes, and is checked arc by arc; the identity is left out.  The group that they generate has
        the same orbits of nodes as the full automorphism group, of which it may be a proper subgroup.
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


MAX_WORK = 5 * 10**7  # limit on attempts times the arcs that each looks at: seconds to half a minute
FIXED_COST = 5_000  # cost of an attempt without arcs, in arcs


def symmetries(topology: Topology, traffic: npt.ArrayLike | None = None) -> IntArray:
    """Find automorphisms of a network that generate its orbits of nodes, unless the search reaches its limit.

    Parameters
    ----------
    topology : Topology
        With or without switches.
    traffic : array_like of int, shape (ranks, ranks), optional
        Data from each rank (row) to each other (column), in any unit, or any numbers that are equal where amounts are;
        the diagonal is ignored.  Equal for all pairs by default.

    Returns
    -------
    ndarray of int64, shape (found, nodes)
        Each row has the image of each node of `Topology.nodes`, and is checked: ranks map to ranks, switches to
        switches of the same abilities, links to links of the same bandwidth and latency, and traffic to equal traffic.
        The identity is left out.

    Examples
    --------
    Three ranks around a switch form one orbit, unless the first sends more than it receives:

    >>> star = Topology.from_links([(rank, "s", 30) for rank in "abc"], compute="abc", switches="s", bidirectional=True)
    >>> symmetries(star)
    array([[1, 0, 2, 3],
           [2, 0, 1, 3]])
    >>> symmetries(star, [[0, 2, 2], [1, 0, 1], [1, 1, 0]])
    array([[0, 2, 1, 3]])
    """
    as_topology(topology)
    graph, colors = _colored_graph(topology, _as_traffic(traffic, topology.num_ranks))
    attempts = MAX_WORK // (FIXED_COST + graph.num_arcs)
    search = NodeMatching(graph, graph, colors, max_attempts=attempts)
    mappings: list[IntArray] = []
    with suppress(NoAnswerError):  # at the limit: any subgroup is valid
        for mapping in orbit_mappings(search):
            mappings.append(mapping)  # noqa: PERF402 - those before the limit stay
    return np.array(mappings, dtype=np.int64).reshape(-1, graph.num_nodes)


def _colored_graph(topology: Topology, traffic: IntArray | None) -> tuple[DirectGraph, Colors]:
    """Encode everything that a symmetry must preserve in the colors of nodes and arcs."""
    size, (tails, heads, kinds, _) = len(topology.nodes), topology.columns
    keys, links = tails * size + heads, kinds + 1
    pairs, amounts = _unusual(traffic, size) if traffic is not None else (keys[:0], keys[:0])
    arcs = np.unique(np.concatenate([keys, pairs]))
    arc_colors = np.zeros(len(arcs), dtype=np.int64)
    arc_colors[np.searchsorted(arcs, keys)] = links
    arc_colors[np.searchsorted(arcs, pairs)] += amounts * (len(keys) + 1)
    graph = DirectGraph(size, arcs // size, arcs % size, topology.name)
    return graph, Colors(node_kinds(topology), np.unique(arc_colors, return_inverse=True)[1])


def _unusual(traffic: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Return the pairs of ranks whose traffic is not the most common amount, and the number of their amount, from 1."""
    ranks = len(traffic)
    tails, heads = np.nonzero(~np.eye(ranks, dtype=np.bool_))
    _, numbers, counts = np.unique(traffic[tails, heads], return_inverse=True, return_counts=True)
    rare = numbers != counts.argmax()
    return (tails * size + heads)[rare], numbers[rare] + 1


def _as_traffic(traffic: npt.ArrayLike | None, ranks: int) -> IntArray | None:
    if traffic is None:
        return None
    expected = f"a row and a column of whole numbers for each of {ranks} ranks"
    try:
        amounts = as_integers(traffic, "the amounts of traffic", expected)
    except ValueError as error:
        raise UnsupportedError(str(error)) from None
    except RuntimeError:  # numpy's, of lists without end
        raise UnsupportedError(f"the amounts of traffic are {shown(traffic)}; expected {expected}") from None
    if amounts.shape != (ranks, ranks):
        raise UnsupportedError(f"the traffic has shape {amounts.shape}; expected {expected}")
    return np.asarray(amounts)  # every slice of an np.matrix is two-dimensional


class LinkOrbits(NamedTuple):
    """Orbits of a group of symmetries."""

    sources: IntArray  # int64 (orbits,): the least rank of each orbit of ranks with demands
    counts: IntArray  # int64 (orbits,): ranks in the orbit
    classes: IntArray  # int64 (links,): the number of each link's orbit, from 0
    sizes: IntArray  # int64 (classes,): links in each orbit


def trivial_link_orbits(num_links: int, demands: IntArray) -> LinkOrbits:
    """Return the orbits of the identity: every rank with demands, and every link, by itself."""
    sources = np.flatnonzero(_sends(demands))
    return LinkOrbits(sources, np.ones_like(sources), np.arange(num_links), np.ones(num_links, dtype=np.int64))


def link_orbits(
    tails: IntArray, heads: IntArray, capacities: IntArray, demands: IntArray, symmetries: IntArray
) -> LinkOrbits:
    """Return the orbits that symmetries, (generators, nodes), generate; `UnsupportedError` if one is none."""
    num_ranks = len(demands)
    off_diagonal = ~np.eye(num_ranks, dtype=np.bool_)
    different = bool((demands != demands[0, -1]).any(where=off_diagonal))
    images = link_images(tails, heads, capacities, symmetries)
    for row, mapping in enumerate(symmetries):
        if (mapping[:num_ranks] >= num_ranks).any():
            raise UnsupportedError(
                f"row {row} of the symmetries takes a rank to a switch; expected ranks to go to ranks"
            )
        if different and (demands[np.ix_(mapping[:num_ranks], mapping[:num_ranks])] != demands).any(where=off_diagonal):
            raise UnsupportedError(f"row {row} of the symmetries does not take every demand to an equal one")
    kinds, classes = orbits(symmetries[:, :num_ranks]), orbits(images)
    _, first, counts = np.unique(kinds, return_index=True, return_counts=True)
    sending = _sends(demands)[first]
    return LinkOrbits(first[sending], counts[sending], classes, np.bincount(classes))


def link_images(tails: IntArray, heads: IntArray, capacities: IntArray, symmetries: IntArray) -> IntArray:
    """Return the image of each link under each symmetry, int64 (generators, links), after checking that it exists."""
    order = np.lexsort((capacities, heads, tails))
    links = [side[order] for side in (tails, heads, capacities)]
    images = np.empty((len(symmetries), len(tails)), dtype=np.int64)
    for row, mapping in enumerate(symmetries):
        if not (np.sort(mapping) == np.arange(symmetries.shape[1])).all():
            raise UnsupportedError(f"row {row} of the symmetries is no permutation of the nodes")
        image = np.lexsort((capacities, mapping[heads], mapping[tails]))
        mapped = mapping[tails][image], mapping[heads][image], capacities[image]
        if any((side != image_side).any() for side, image_side in zip(links, mapped, strict=True)):
            raise UnsupportedError(f"row {row} of the symmetries does not take every link to one of the same capacity")
        images[row, image] = order
    return images


def _sends(demands: IntArray) -> npt.NDArray[np.bool_]:
    return np.asarray(np.count_nonzero(demands, axis=1) > (np.diagonal(demands) != 0))
