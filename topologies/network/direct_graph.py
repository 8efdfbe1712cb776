"""`DirectGraph`: a direct-connect network as a directed multigraph with self-loops.

A `Topology` merges parallel links and has no self-loops.  Both matter in d-regular graphs: a self-loop occupies a port,
and a line graph has a node for every arc.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, TopologyError, UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import MAX_LINKS, as_integers, as_kind, as_list, as_size, as_title, check_links, shown


class Adjacency(NamedTuple):
    """Links from `tails` to other nodes, `heads`, parallel ones once, and their `multiplicities`; int64 (links,) each.

    They are sorted by tail, then head.
    """

    tails: IntArray
    heads: IntArray
    multiplicities: IntArray


@dataclass(frozen=True, eq=False, repr=False)
class DirectGraph:
    """A directed graph whose arcs are the links of a direct-connect network.

    `from_arcs` makes one of checked arcs; the constructor only sorts them.

    Attributes
    ----------
    num_nodes : int
        Ranks 0 to ``num_nodes - 1``.
    tails, heads : ndarray of int64, shape (arcs,)
        Sorted by tail, then head; each parallel arc and self-loop is one entry.
    name : str
        In the paper's notation, such as ``"L(K(4, 4))"``.

    Examples
    --------
    >>> graph = DirectGraph.from_arcs(2, [(0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1)], "pair")
    >>> graph.degree, graph.num_self_loops, graph.has_parallel_links, graph.diameter
    (3, 2, True, 1)
    """

    num_nodes: int
    tails: IntArray
    heads: IntArray
    name: str

    def __post_init__(self) -> None:
        """Sort the arcs and make them read-only; `from_arcs` has checked them."""
        order = np.lexsort((self.heads, self.tails))
        for end in ("tails", "heads"):
            ends = np.asarray(getattr(self, end), dtype=np.int64)[order]
            ends.flags.writeable = False
            object.__setattr__(self, end, ends)

    @classmethod
    def from_arcs(cls, num_nodes: int, arcs: Iterable[tuple[int, int]] | IntArray, name: str) -> DirectGraph:
        """Build a graph from pairs of node numbers.

        Parameters
        ----------
        num_nodes : int
            At least 2.
        arcs : iterable of (tail, head), or ndarray of shape (arcs, 2)
            In any order.
        name : str
            For display.
        """
        num_nodes = as_size(num_nodes, "num_nodes", low=2)
        listed = arcs if isinstance(arcs, np.ndarray) else as_list(arcs, "the arcs", high=MAX_LINKS)
        expected = "pairs (tail, head) of whole numbers"
        rows = as_integers(listed, "the arcs", expected)
        if rows.size == 0 or rows.ndim != 2 or rows.shape[1] != 2:
            raise TopologyError(f"the arcs are {shown(listed)}; expected {expected}")
        check_links(len(rows), as_title(name, "the graph's name"))
        outside = ((rows < 0) | (rows >= num_nodes)).any(axis=1)
        if outside.any():
            tail, head = rows[outside][0].tolist()
            raise TopologyError(f"{name} has the arc {(tail, head)}; expected node numbers from 0 to {num_nodes - 1}")
        return cls(num_nodes, rows[:, 0], rows[:, 1], name)

    @property
    def num_arcs(self) -> int:
        """Arcs, self-loops and parallel ones included."""
        return len(self.tails)

    @cached_property
    def adjacency(self) -> Adjacency:
        """Links between different nodes, parallel ones once."""
        proper = self.tails != self.heads
        keys, counts = np.unique(self.tails[proper] * self.num_nodes + self.heads[proper], return_counts=True)
        columns = keys // self.num_nodes, keys % self.num_nodes, counts.astype(np.int64)
        for column in columns:
            column.flags.writeable = False
        return Adjacency(*columns)

    @property
    def num_self_loops(self) -> int:
        """Arcs whose tail is their head."""
        return int((self.tails == self.heads).sum())

    @property
    def has_parallel_links(self) -> bool:
        """Whether some node has several arcs to the same other node."""
        return bool((self.adjacency.multiplicities > 1).any())

    @property
    def is_simple(self) -> bool:
        """Whether there are neither parallel arcs nor self-loops, as Theorem 13 requires."""
        return not self.num_self_loops and not self.has_parallel_links

    @property
    def is_bidirectional(self) -> bool:
        """Whether every arc has an opposite one."""
        back = np.lexsort((self.tails, self.heads))
        return bool((self.tails == self.heads[back]).all() and (self.heads == self.tails[back]).all())

    @cached_property
    def degrees(self) -> tuple[IntArray, IntArray]:
        """Arcs out of and into each node, each of shape (nodes,)."""
        return tuple(np.bincount(end, minlength=self.num_nodes) for end in (self.tails, self.heads))  # type: ignore[return-value]

    @property
    def is_regular(self) -> bool:
        """Whether in-degree and out-degree are equal, and the same at all nodes."""
        out, into = self.degrees
        return bool((out == out[0]).all() and (into == out[0]).all())

    @property
    def degree(self) -> int:
        """The number d of arcs out of, and into, every node; `UnsupportedError` if nodes differ."""
        out, into = self.degrees
        if not self.is_regular:
            node = int(np.flatnonzero((out != out[0]) | (into != out[0]))[0])
            raise UnsupportedError(
                f"{self.name} is not regular: {out[0]} arcs leave node 0, {out[node]} leave and {into[node]} enter "
                f"node {node}; expected equal degrees everywhere"
            )
        return int(out[0])

    @cached_property
    def distances(self) -> npt.NDArray[np.int16]:
        """Fewest hops from every node to every node, shape (nodes, nodes), ``[source, node]``."""
        return hop_distances(self.num_nodes, self.adjacency.tails, self.adjacency.heads, self.name)

    @cached_property
    def diameter(self) -> int:
        """Maximum distance between two nodes, in hops."""
        return int(self.distances.max())

    def transpose(self) -> DirectGraph:
        """Return the graph with all arcs reversed: the paper's G^T."""
        name = self.name[:-2] if self.name.endswith("^T") else f"{self.name}^T"
        return DirectGraph(self.num_nodes, self.heads, self.tails, name)

    def renamed(self, name: str) -> DirectGraph:
        """Return the same graph under another name."""
        return DirectGraph(self.num_nodes, self.tails, self.heads, name)

    def __reduce__(self) -> tuple[type[DirectGraph], tuple[object, ...]]:
        """Copy and pickle by construction, as numpy does not keep the read-only flag."""
        return type(self), (self.num_nodes, self.tails, self.heads, self.name)

    def __repr__(self) -> str:
        """Name and size in angle brackets."""
        return f"<DirectGraph {self.name}: {self.num_nodes} nodes, {self.num_arcs} arcs>"


def as_direct_graph(value: object) -> DirectGraph:
    """Return a `DirectGraph` unchanged; anything else raises `UnsupportedError`."""
    return as_kind(value, DirectGraph, "the graph", hint=", such as topology.direct_graph() returns")


def hop_distances(num_nodes: int, tails: IntArray, heads: IntArray, name: str) -> npt.NDArray[np.int16]:
    """Return int16 hop distances ``[source, node]`` of int64 (arcs,) arcs; `BoundError` if a node is unreachable."""
    distances = partial_hop_distances(num_nodes, tails, heads)
    if (distances < 0).any():
        node, source = np.argwhere(distances.T < 0)[0].tolist()
        raise BoundError(
            f"node {source} of {name} cannot reach node {node}; add arcs until every node reaches every other"
        )
    return distances


def partial_hop_distances(
    num_nodes: int, tails: IntArray, heads: IntArray, num_ranks: int | None = None
) -> npt.NDArray[np.int16]:
    """Return hop distances as `hop_distances`, -1 where there is no path; 8 sources are searched per byte.

    With `num_ranks`, the sources are the first nodes, and these do not pass anything on.
    """
    sources = num_nodes if num_ranks is None else num_ranks
    by_node = np.full((num_nodes, sources), -1, dtype=np.int16)  # [node, source]
    np.fill_diagonal(by_node, 0)
    # Bit s of row v: whether source s has reached node v, or reached it in the last round.
    reached = np.packbits(np.eye(num_nodes, sources, dtype=np.bool_), axis=1)
    frontier, distance = reached.copy(), 0
    # Arcs sorted by their heads, so that one reduction collects all that arrives at a node.
    by_head = np.argsort(heads, kind="stable")
    tails, heads = tails[by_head], heads[by_head]
    nodes, starts = np.unique(heads, return_index=True)
    while frontier.any() and len(nodes):
        distance += 1
        arrived = np.zeros_like(reached)
        arrived[nodes] = np.bitwise_or.reduceat(frontier[tails], starts, axis=0)
        frontier = arrived & ~reached
        reached |= frontier
        by_node[np.unpackbits(frontier, axis=1, count=sources).astype(np.bool_)] = distance
        frontier[: num_ranks or 0] = 0
    distances = np.ascontiguousarray(by_node.T)
    distances.flags.writeable = False
    return distances
