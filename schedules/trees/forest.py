"""`Forest`: weighted spanning trees with their routes through switches, stored as arrays, and its JSON form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import FileFormatError, UnsupportedError
from ...support.arrays import IntArray, SmallArray, read_only
from ...support.validation import shown
from ...topologies import Topology
from ..paths.congestion import congestion, path_links
from ..paths.schedule import RoutedSchedule
from ..paths.written_paths import node_paths, schedule_fields, whole_count
from ..traffic.collective import Collective, Direction

BLOCK_ENTRIES = 2**19  # tree entries that are worked on at a time: what fits the processor's cache


def depth_blocks(senders: IntArray, routes: npt.NDArray[np.integer], roots: IntArray) -> Iterator[IntArray]:
    """Yield how many hops each rank is from its root, a block of trees after the other.

    Shapes: `senders` int64 (paths + 1,); `routes` (trees, ranks); `roots` int64 (trees,); yields int64 (trees of the
    block, ranks).
    """
    trees, ranks = routes.shape
    size = max(1, BLOCK_ENTRIES // max(1, ranks))
    for first in range(0, trees, size):
        block = slice(first, first + size)
        yield _depths(senders[routes[block]], roots[block, None])


def _depths(parents: IntArray, roots: IntArray) -> IntArray:
    """Hops to the root by pointer doubling."""
    count, ranks = parents.shape
    own = np.arange(ranks)
    stays = (own == roots) | (parents < 0) | (parents >= ranks)
    # Places in the flattened block, which are quicker to follow than columns.
    base = np.arange(count)[:, None] * ranks
    ancestors = (np.where(stays, own, parents) + base).ravel()
    hops = (~stays).astype(np.int64).ravel()
    goals = np.broadcast_to(roots + base, parents.shape).ravel()
    for _ in range(ranks.bit_length()):
        arrived = ancestors == goals
        if arrived.all():
            break
        hops += hops[ancestors]
        ancestors = ancestors[ancestors]
    hops[ancestors != goals] = ranks
    depths: IntArray = hops.reshape(parents.shape)
    return depths


INT64_LIMIT = 2**63
ARRAYS = ("roots", "weights", "routes", "path_starts", "path_nodes", "root_weights")


class TreeEdge(NamedTuple):
    """One hop of a tree: `tail` sends to `head` along `path` (both ends included, switches in between).

    Attributes
    ----------
    tail, head : int
        Ranks.
    path : tuple of int
        Node numbers.
    """

    tail: int
    head: int
    path: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Forest(RoutedSchedule):
    """Weighted spanning trees, the schedule of ForestColl (section 5).

    Rank v has a shard of ``root_weights[v]`` units; tree ``t`` carries ``weights[t] / trees_per_root`` units of the
    shard of its root.  Node numbers are those of `Topology.nodes`: ranks first, then switches.

    Trees are described from the root outwards.  With `direction` "reduce" data runs the other way: a path is passed
    from its end to its start, and the root reduces what all ranks have for its shard.  The arrays are read-only, not
    copied.

    Attributes
    ----------
    num_ranks : int
        Compute nodes that every tree spans.
    trees_per_root : int
        The paper's k: the weights of the trees of root v add up to ``k * root_weights[v]``.
    roots, weights : ndarray of int64, shape (trees,)
        Root rank, and multiplicity, of each tree.
    routes : ndarray of int32, shape (trees, num_ranks)
        ``routes[t, v]`` is the number of the path on which rank ``v`` receives in tree ``t``; -1 at the root.
    path_starts : ndarray of int64, shape (paths + 1,)
        Path ``p`` is ``path_nodes[path_starts[p]:path_starts[p + 1]]``.
    path_nodes : ndarray of int64
        Node numbers: the sending rank, the switches passed, the receiving rank.
    root_weights : ndarray of int64, shape (num_ranks,)
        Relative sizes of the shards; all 1 by default, 0 for ranks without one.
    direction : {"broadcast", "reduce"}
        Whether data runs away from the roots or towards them.
    """

    parts: ClassVar[str] = "trees"
    subject: ClassVar[str] = "trees are"
    load_text: ClassVar[str] = "the trees put {load} copies"
    single_root: ClassVar[bool] = True

    num_ranks: int
    trees_per_root: int
    roots: IntArray
    weights: IntArray
    routes: SmallArray
    path_starts: IntArray
    path_nodes: IntArray
    root_weights: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    direction: Direction = "broadcast"

    def __post_init__(self) -> None:
        """Set equal shards if no weights are given, and make the arrays read-only."""
        self._freeze(ARRAYS, "forest")
        if not len(self.root_weights):
            object.__setattr__(self, "root_weights", read_only(np.ones(self.num_ranks, dtype=np.int64)))

    @property
    def forests(self) -> tuple[Forest, ...]:
        """The forest itself, as the only part."""
        return (self,)

    @property
    def root(self) -> int | None:
        """The rank that alone has a shard, if there is one."""
        ranks = np.flatnonzero(self.root_weights > 0)
        return int(ranks[0]) if len(ranks) == 1 else None

    @property
    def phases(self) -> tuple[Direction, ...]:
        """That of all trees, alone."""
        return (self.direction,)

    @property
    def load_units(self) -> tuple[int, ...]:
        """Copies of trees that carry a unit of data: k."""
        return (self.trees_per_root,)

    @property
    def size_text(self) -> str:
        """Such as ``"8 trees, 1 per root by weight"``."""
        return f"{self.num_trees} trees, {self.trees_per_root} per root by weight"

    @property
    def total_weight(self) -> int:
        """Sum of the weights of all shards."""
        return int(self.root_weights.sum())

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:
        """Whether these are the weights of its shards."""
        return bool(self.root_weights.tolist() == list(weights or (1,) * num_ranks))

    def problem(self, collective: Collective) -> dict[str, Any]:
        """Return the root of a broadcast or reduce, or the weights of unequal shards."""
        weights = self.root_weights.tolist()
        if collective.has_one_root:
            roots = [rank for rank, weight in enumerate(weights) if weight]
            if len(roots) != 1:
                raise UnsupportedError(f"the schedule has {len(roots)} roots; expected one for a {collective}")
            return {"root": roots[0]}
        return {} if len(set(weights)) == 1 else {"weights": weights}

    @property
    def num_trees(self) -> int:
        """Number of distinct trees; a tree of weight w counts once."""
        return len(self.roots)

    @cached_property
    def parents(self) -> IntArray:
        """Shape (trees, num_ranks): the rank that each rank receives from; -1 at the root."""
        return read_only(self._senders()[self.routes])

    def edges(self, tree: int) -> Iterator[TreeEdge]:
        """Yield the hops of one tree, each after the hop that brings data to its sender."""
        order = np.lexsort((np.arange(self.num_ranks), self.depths[tree]))
        for head in order[1:]:
            path = self.path(int(self.routes[tree, head]))
            yield TreeEdge(path[0], int(head), path)

    @cached_property
    def depths(self) -> IntArray:
        """Shape (trees, num_ranks): hops between ranks from the root; a path through switches counts one.

        Ranks that a malformed tree never reaches get ``num_ranks``.
        """
        blocks = depth_blocks(self._senders(), self.routes, self.roots)
        return read_only(np.concatenate([np.empty((0, self.num_ranks), dtype=np.int64), *blocks]))

    @cached_property
    def heights(self) -> IntArray:
        """Shape (trees,): the largest depth of each tree."""
        blocks = depth_blocks(self._senders(), self.routes, self.roots)
        return read_only(np.concatenate([np.empty(0, dtype=np.int64), *(block.max(axis=1) for block in blocks)]))

    def link_loads(self, topology: Topology) -> IntArray:
        """Tree copies on each link, int64 (links,): ``sum of weights[t]`` over trees ``t`` and their uses of the link.

        Raises `CertificateError` if a route uses a link that the topology does not have.
        """
        users = np.zeros(len(self.path_starts) - 1, dtype=np.int64)
        for routes, weight in zip(self.routes, self.weights, strict=True):
            users[routes[routes >= 0]] += weight
        links = path_links(self.path_starts, self.path_nodes, topology, self.direction)
        loads = np.zeros(len(topology.links), dtype=np.int64)
        np.add.at(loads, links, np.repeat(users, np.diff(self.path_starts) - 1))
        return loads

    def congestion(self, topology: Topology) -> Fraction:
        """The schedule's own value of 1/x, in 1/(GB/s); see `collopt.schedules.congestion`."""
        return congestion(self.link_loads(topology), self.trees_per_root, topology)

    @property
    def depth(self) -> int:
        """Height of the highest tree, in hops between ranks."""
        return int(self.heights.max())

    def latency(self, topology: Topology) -> Fraction:
        """Largest sum of link latencies between a root and a rank along a tree, in µs: until first bytes arrive."""
        ends = (0, 1) if self.direction == "broadcast" else (1, 0)
        latency = {(link[ends[0]], link[ends[1]]): link.latency for link in topology.links}
        names = topology.nodes
        scale = math.lcm(*(link.latency.denominator for link in topology.links))
        exact = [
            sum(int(latency[names[tail], names[head]] * scale) for tail, head in pairwise(path))
            for path in map(self.path, range(len(self.path_starts) - 1))
        ]
        # Python's integers where the common denominator of all latencies leaves no room in int64.
        delays = np.array(exact, dtype=np.int64 if max(exact) * self.num_ranks < INT64_LIMIT else object)
        senders, used = np.maximum(self.parents, 0), self.routes >= 0
        arrival = np.zeros(self.routes.shape, dtype=delays.dtype)
        for _ in range(self.depth):
            arrival = np.where(used, np.take_along_axis(arrival, senders, axis=1) + delays[self.routes], 0)
        return Fraction(int(arrival.max()), scale)

    def to_json(self) -> dict[str, Any]:
        """As `collopt.schedules.forest_to_json`."""
        trees = zip(self.roots.tolist(), self.weights.tolist(), self.routes.tolist(), strict=True)
        return {
            "kind": "forest",
            "direction": self.direction,
            "trees_per_root": self.trees_per_root,
            "root_weights": self.root_weights.tolist(),
            "paths": self._path_lists(),
            "trees": [[root, weight, routes] for root, weight, routes in trees],
        }

    def _senders(self) -> IntArray:
        """First node of each path, -1 for no path."""
        return np.append(self.path_nodes[self.path_starts[:-1]], -1)

    def __repr__(self) -> str:
        return (
            f"<Forest: {self.direction}, {self.num_ranks} ranks, {self.num_trees} trees, "
            f"{self.trees_per_root} per root by weight>"
        )

    @classmethod
    def from_paths(
        cls,
        num_ranks: int,
        trees_per_root: int,
        trees: Sequence[tuple[int, int, Sequence[Sequence[int]]]],
        *,
        root_weights: Sequence[int] = (),
        direction: Direction = "broadcast",
    ) -> Forest:
        """Build a forest, not verified, from ``(root, weight, paths)`` triples, one path per rank but the root.

        Paths are sequences of node numbers; all else is as the attributes.

        Examples
        --------
        >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 2, 1)]), (1, 1, [(1, 2, 0)])])
        >>> forest.parents.tolist()
        [[-1, 0], [1, -1]]
        """
        try:
            numbers: dict[tuple[int, ...], int] = {}
            routes = np.full((len(trees), num_ranks), -1, dtype=np.int32)
            for tree, (_, _, paths) in enumerate(trees):
                for path in paths:
                    routes[tree, path[-1]] = numbers.setdefault(tuple(int(node) for node in path), len(numbers))
            return cls(
                num_ranks,
                trees_per_root,
                np.array([root for root, _, _ in trees], dtype=np.int64),
                np.array([weight for _, weight, _ in trees], dtype=np.int64),
                routes,
                np.cumsum([0, *map(len, numbers)], dtype=np.int64),
                np.array([node for path in numbers for node in path], dtype=np.int64),
                np.array(root_weights, dtype=np.int64),
                direction,
            )
        except (TypeError, ValueError, IndexError, OverflowError):
            raise UnsupportedError(
                f"the trees {shown(trees)} are not of the form (root, weight, paths) for {shown(num_ranks)} ranks; "
                "expected whole numbers, and paths that end at ranks"
            ) from None


FIELDS = ("kind", "direction", "trees_per_root", "root_weights", "paths", "trees")


def forest_to_json(forest: Forest) -> dict[str, Any]:
    """Describe a forest by lists and integers, ready for `json.dumps`.

    Parameters
    ----------
    forest : Forest
        Left alone.

    Returns
    -------
    dict

    Examples
    --------
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 2, 1)]), (1, 1, [(1, 2, 0)])])
    >>> forest_to_json(forest)["trees"]
    [[0, 1, [-1, 0]], [1, 1, [1, -1]]]
    """
    return forest.to_json()


def forest_from_json(data: object, where: str) -> Forest:
    """Build the forest that a decoded JSON value describes; only its form is checked.

    Parameters
    ----------
    data : dict
        As `forest_to_json` makes it.
    where : str
        Names the document in error messages.

    Returns
    -------
    Forest
    """
    fields = schedule_fields(data, "forest", FIELDS, where)
    count = whole_count(fields["trees_per_root"], f"{where}: field schedule.trees_per_root")
    if not isinstance(fields["root_weights"], list):
        raise FileFormatError(f"{where}: field schedule.root_weights is not a list")
    root_weights = _integers(fields["root_weights"], 1, f"{where}: the entries of schedule.root_weights")
    paths = node_paths(fields["paths"], where)
    trees = fields["trees"]
    if not isinstance(trees, list) or not all(isinstance(tree, list) and len(tree) == 3 for tree in trees):
        raise FileFormatError(f"{where}: field schedule.trees is not a list of [root, weight, routes]")
    routes = _integers([tree[2] for tree in trees], 2, f"{where}: the routes of schedule.trees")
    if (routes != routes.astype(np.int32)).any():
        raise FileFormatError(f"{where}: the routes of schedule.trees hold a number beyond 32 bits")
    return Forest(
        num_ranks=len(root_weights),
        trees_per_root=count,
        root_weights=root_weights,
        direction=fields["direction"],
        roots=_integers([tree[0] for tree in trees], 1, f"{where}: the roots of schedule.trees"),
        weights=_integers([tree[1] for tree in trees], 1, f"{where}: the weights of schedule.trees"),
        routes=routes.astype(np.int32),
        path_starts=np.cumsum([0, *map(len, paths)], dtype=np.int64),
        path_nodes=_integers([node for path in paths for node in path], 1, f"{where}: field schedule.paths"),
    )


def _integers(values: list[Any], dimensions: int, what: str) -> npt.NDArray[np.int64]:
    try:
        array = np.array(values)
    except ValueError:  # rows of unequal length
        array = np.array([])
    # Numpy takes true and false among integers for 1 and 0.
    if array.dtype != np.int64 or array.ndim != dimensions or bool in map(type, np.ravel(np.array(values, object))):
        raise FileFormatError(f"{what} are not whole numbers in rows of equal length")
    return array
