"""`Forest`: weighted spanning trees with their routes through switches, stored as arrays, and its JSON form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, overload

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import BoolArray, IntArray, SmallArray, joined_rows, read_only
from ...support.validation import shown
from ...topologies import Topology
from ..paths.congestion import INT64_LIMIT, path_latencies, path_links, slowest_path
from ..paths.schedule import RoutedSchedule
from ..traffic.collective import Collective, Direction
from .switch_vertices import branching, columns, joined_routes, without_leaves

BLOCK_ENTRIES = 2**19  # tree entries that are worked on at a time: what fits the processor's cache


def depth_blocks(parents: IntArray, roots: IntArray) -> Iterator[IntArray]:
    """Yield how many hops each vertex is from its root, a block of trees after the other.

    Shapes: `parents` int64 (trees, vertices); `roots` int64 (trees,); yields int64 (trees of the block, vertices).
    """
    trees, vertices = parents.shape
    size = max(1, BLOCK_ENTRIES // max(1, vertices))
    for first in range(0, trees, size):
        block = slice(first, first + size)
        yield _depths(parents[block], roots[block, None])


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


ARRAYS = ("roots", "weights", "routes", "path_starts", "path_nodes", "root_weights", "switches")


class TreeEdge(NamedTuple):
    """One hop of a tree: `tail` sends to `head`, ranks or switches where it branches, along `path` with both ends."""

    tail: int
    head: int
    path: tuple[int, ...]


class Tree(NamedTuple):
    """One tree of a schedule.

    Attributes
    ----------
    root : int
        Rank number.
    share : Fraction
        Of all data, that the tree carries.
    direction : {"broadcast", "reduce"}
        Whether data runs away from the root or towards it.
    edges : tuple of TreeEdge
        Its hops, from the root outwards.
    """

    root: int
    share: Fraction
    direction: Direction
    edges: tuple[TreeEdge, ...]

    def __repr__(self) -> str:
        """One line in angle brackets."""
        return f"<Tree of rank {self.root}: {self.direction} of {self.share} of all data over {len(self.edges)} edges>"


class TreeSequence:
    """Length, items and iteration of schedules that consist of forests."""

    if TYPE_CHECKING:

        @property
        def forests(self) -> tuple[Forest, ...]:
            """Parts, each of one direction."""

    def __len__(self) -> int:
        """Number of distinct trees."""
        return sum(forest.num_trees for forest in self.forests)

    @overload
    def __getitem__(self, number: int) -> Tree: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Tree, ...]: ...
    def __getitem__(self, number: int | slice) -> Tree | tuple[Tree, ...]:
        """Tree of this number, from 0, or trees of a slice; negative numbers count from the end."""
        if isinstance(number, slice):
            return tuple(self[each] for each in range(len(self))[number])
        place = index(number) + (len(self) if number < 0 else 0)
        for forest in self.forests:
            if 0 <= place < forest.num_trees:
                root, weight = int(forest.roots[place]), int(forest.weights[place])
                share = Fraction(weight, forest.trees_per_root * forest.total_weight)
                return Tree(root, share, forest.direction, tuple(forest.edges(place)))
            place -= forest.num_trees
        raise IndexError(f"there is no tree {number}; the schedule has {len(self)}")

    def __iter__(self) -> Iterator[Tree]:
        """Yield the trees in order."""
        return (self[number] for number in range(len(self)))


@dataclass(frozen=True, eq=False)
class Forest(TreeSequence, RoutedSchedule):
    """Weighted spanning trees, the schedule of ForestColl (section 5).

    Rank v has a shard of ``root_weights[v]`` units; tree ``t`` carries ``weights[t] / trees_per_root`` units of the
    shard of its root.  Node numbers are those of `Topology.nodes`: ranks first, then switches.

    Trees branch at ranks, and at the switches listed in `switches`, which multicast, or add up what they receive if
    `direction` is "reduce".  Ranks and these switches are the *vertices* of the trees; a tree spans all ranks, and
    those switches that it uses.  Paths run from vertex to vertex.

    Trees are described from the root outwards.  With `direction` "reduce" data runs the other way: a path is passed
    from its end to its start, and the root reduces what all ranks have for its shard.  The arrays are read-only, not
    copied.  A forest has a length, and its items are `Tree`.

    Attributes
    ----------
    num_ranks : int
        Compute nodes that every tree spans.
    trees_per_root : int
        The paper's k: the weights of the trees of root v add up to ``k * root_weights[v]``.
    roots, weights : ndarray of int64, shape (trees,)
        Root rank, and multiplicity, of each tree.
    routes : ndarray of int32, shape (trees, vertices)
        ``routes[t, v]`` is the number of the path on which vertex ``v`` receives in tree ``t``; -1 at the root, and at
        switches that are not part of the tree.
    path_starts : ndarray of int64, shape (paths + 1,)
        Path ``p`` is ``path_nodes[path_starts[p]:path_starts[p + 1]]``.
    path_nodes : ndarray of int64
        Node numbers: the sending vertex, the switches passed, the receiving vertex.
    root_weights : ndarray of int64, shape (num_ranks,)
        Relative sizes of the shards; all 1 by default, 0 for ranks without one.
    direction : {"broadcast", "reduce"}
        Whether data runs away from the roots or towards them.
    switches : ndarray of int64
        Node numbers of the switches where trees branch, the vertices after the ranks; none by default.
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
    switches: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

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
        """Shape (trees, vertices): the vertex that each one receives from; -1 at the root and outside of the tree."""
        senders = np.append(self.path_nodes[self.path_starts[:-1]], -1)  # of each path, -1 for no path
        return read_only(columns(senders, self.num_ranks, self.switches)[self.routes])

    @cached_property
    def unicast(self) -> Forest:
        """The same trees without switches among their vertices: every copy is sent from rank to rank."""
        if not len(self.switches):
            return self
        return self._joined(np.broadcast_to(np.arange(self.routes.shape[1]) < self.num_ranks, self.routes.shape))

    def tidied(self) -> Forest:
        """Leave out switches that hand a tree on to one rank or to nobody; paths pass them instead."""
        if not len(self.switches):
            return self
        parents = without_leaves(self.parents, self.num_ranks)
        kept = branching(parents, self.num_ranks)
        kept[:, : self.num_ranks] = True
        return self._joined(kept)

    def _joined(self, kept: BoolArray) -> Forest:
        """Join paths at the vertices that are not in the mask `kept`, shape (trees, vertices)."""
        joined = joined_routes(self.routes, self.parents, kept, self.path_starts, self.path_nodes)
        used = kept[:, self.num_ranks :].any(axis=0)
        columns = np.append(np.ones(self.num_ranks, dtype=np.bool_), used)
        return replace(
            self, switches=self.switches[used], **joined._replace(routes=joined.routes[:, columns])._asdict()
        )

    def edges(self, tree: int) -> Iterator[TreeEdge]:
        """Yield the hops of one tree, each after the hop that brings data to its sender."""
        hops = next(depth_blocks(self.parents[tree : tree + 1], self.roots[tree : tree + 1]))[0]
        for head in np.lexsort((np.arange(len(hops)), hops)).tolist():
            if (route := int(self.routes[tree, head])) >= 0:
                path = self.path(route)
                yield TreeEdge(path[0], path[-1], path)

    @cached_property
    def depths(self) -> IntArray:
        """Shape (trees, num_ranks): hops between ranks from the root; a path through switches counts one.

        Ranks that a malformed tree never reaches get ``num_ranks``.
        """
        blocks = depth_blocks(self.unicast.parents, self.roots)
        return read_only(np.concatenate([np.empty((0, self.num_ranks), dtype=np.int64), *blocks]))

    @cached_property
    def heights(self) -> IntArray:
        """Shape (trees,): the largest depth of each tree."""
        blocks = depth_blocks(self.unicast.parents, self.roots)
        return read_only(np.concatenate([np.empty(0, dtype=np.int64), *(block.max(axis=1) for block in blocks)]))

    def link_loads(self, topology: Topology) -> IntArray:
        """Tree copies on each link, int64 (links,): ``sum of weights[t]`` over trees ``t`` and their uses of the link.

        A switch with loopback that branches a tree, or feeds another switch, also uses the links back to the rank above
        it.  Raises `CertificateError` if a route uses a link that the topology does not have.
        """
        loads = self._loads_of(self.routes >= 0, topology, self.direction)
        looped = self.looped(topology)
        if looped.any():
            loads += self._loads_of(looped, topology, "reduce" if self.direction == "broadcast" else "broadcast")
        return loads

    def looped(self, topology: Topology) -> BoolArray:
        """Whether each vertex is a switch that loops copies back to the rank above it, shape (trees, vertices)."""
        above = self.parents
        back = np.isin([topology.nodes[node] for node in self.switches.tolist()], list(topology.loopback))
        if not back.any():
            return np.zeros(above.shape, dtype=np.bool_)
        looped = branching(above, self.num_ranks) & (above >= 0) & (above < self.num_ranks)
        looped[:, self.num_ranks :] &= back
        return looped

    def _loads_of(self, used: BoolArray, topology: Topology, direction: Direction) -> IntArray:
        """Copies on each link of the paths into the vertices in the mask `used`, shape (trees, vertices)."""
        users = np.zeros(len(self.path_starts) - 1, dtype=np.int64)
        for routes, mask, weight in zip(self.routes, used, self.weights, strict=True):
            users[routes[mask]] += weight
        hops = np.diff(self.path_starts) - 1
        if direction != self.direction:  # the opposite of a link need not be there where nothing comes back
            kept = np.repeat(users > 0, hops + 1)
            starts = np.concatenate([[0], np.cumsum(np.diff(self.path_starts)[users > 0])])
            links = path_links(starts, self.path_nodes[kept], topology, direction)
            hops, users = hops[users > 0], users[users > 0]
        else:
            links = path_links(self.path_starts, self.path_nodes, topology, direction)
        loads = np.zeros(topology.num_links, dtype=np.int64)
        np.add.at(loads, links, np.repeat(users, hops))
        return loads

    def hop_rate(self, topology: Topology) -> Fraction:
        """Longest time that the data of one tree takes on one link, in 1/(GB/s): see `Schedule.hop_rate`."""
        heaviest = np.zeros(len(self.path_starts) - 1, dtype=np.int64)
        trees, vertices = np.nonzero(self.routes >= 0)
        np.maximum.at(heaviest, self.routes[trees, vertices], self.weights[trees])
        links = self.path_links(topology)
        starts = self.path_starts - np.arange(len(self.path_starts))
        return slowest_path(heaviest, starts, links, topology) / self.trees_per_root

    @property
    def messages(self) -> IntArray:
        """Edges that each rank sends over, shape (ranks,); switches start no messages."""
        trees, vertices = np.nonzero(self.routes >= 0)
        senders = self.parents[trees, vertices] if self.direction == "broadcast" else vertices
        return np.bincount(senders, minlength=self.num_ranks)[: self.num_ranks]

    @property
    def most_added(self) -> Fraction:
        """Data that a rank adds in all trees; switches add at line rate."""
        if self.direction == "broadcast":
            return Fraction(0)
        trees, vertices = np.nonzero(self.routes >= 0)
        added = np.zeros(self.parents.shape[1], dtype=np.int64)
        np.add.at(added, self.parents[trees, vertices], self.weights[trees])
        return Fraction(int(added[: self.num_ranks].max()), self.trees_per_root)

    @property
    def depth(self) -> int:
        """Height of the highest tree, in hops between ranks."""
        return int(self.heights.max())

    @property
    def least_hops(self) -> int:
        """Those of the highest tree."""
        return self.depth

    def latency(self, topology: Topology) -> Fraction:
        """Largest sum of link latencies between a root and a rank along a tree, in µs: until first bytes arrive."""
        if len(self.switches):
            return self.unicast.latency(topology)
        links = self.path_links(topology)
        delays, scale = path_latencies(self.path_starts, links, topology)
        if max(delays.tolist()) * self.num_ranks >= INT64_LIMIT:
            delays = delays.astype(object)
        used = self.routes >= 0
        above = np.where(used, self.parents, np.arange(self.num_ranks))
        arrival = np.where(used, delays[self.routes], 0)
        # After n rounds, `arrival` has the last 2^n hops to each vertex, and `above` is where they begin.
        for _ in range(max(self.depth - 1, 0).bit_length()):
            arrival = arrival + np.take_along_axis(arrival, above, axis=1)
            above = np.take_along_axis(above, above, axis=1)
        return Fraction(int(arrival.max()), scale)

    def to_json(self) -> dict[str, Any]:
        """Describe it by lists and integers, ready for `json.dumps`."""
        trees = zip(self.roots.tolist(), self.weights.tolist(), self.routes.tolist(), strict=True)
        return {
            "kind": "forest",
            "direction": self.direction,
            "trees_per_root": self.trees_per_root,
            "root_weights": self.root_weights.tolist(),
            "paths": self._path_lists(),
            "trees": [[root, weight, routes] for root, weight, routes in trees],
            **({"switches": self.switches.tolist()} if len(self.switches) else {}),
        }

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
        switches: Sequence[int] = (),
    ) -> Forest:
        """Build a forest, not verified, from ``(root, weight, paths)`` triples, one path per vertex but the root.

        Paths are sequences of node numbers; all else is as the attributes.
        """
        try:
            numbers: dict[tuple[int, ...], int] = {}
            places = {int(switch): num_ranks + number for number, switch in enumerate(switches)}
            routes = np.full((len(trees), num_ranks + len(places)), -1, dtype=np.int32)
            for tree, (_, _, paths) in enumerate(trees):
                for path in paths:
                    nodes = tuple(int(node) for node in path)
                    routes[tree, places.get(nodes[-1], nodes[-1])] = numbers.setdefault(nodes, len(numbers))
            roots, weights = (np.array([tree[column] for tree in trees], dtype=np.int64) for column in (0, 1))
            shares, able = np.array(root_weights, dtype=np.int64), np.array(list(places), dtype=np.int64)
            columns = joined_rows(numbers)
            return cls(num_ranks, trees_per_root, roots, weights, routes, *columns, shares, direction, able)
        except (TypeError, ValueError, IndexError, OverflowError):
            raise UnsupportedError(
                f"the trees {shown(trees)} are not of the form (root, weight, paths) for {shown(num_ranks)} ranks; "
                "expected whole numbers, and paths that end at ranks"
            ) from None
