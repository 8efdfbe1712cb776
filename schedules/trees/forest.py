"""`Forest`, weighted spanning trees with their loads, latencies and JSON form, and `Allreduce`, two in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import Any, ClassVar

import numpy as np

from ...errors import CapacityOverflowError, FileFormatError, UnsupportedError
from ...support.arrays import BoolArray, IntArray, joined_rows
from ...support.formatting import count_text
from ...support.validation import shown
from ...topologies import Topology
from ..collective import Collective, Direction
from ..fields import path_arrays, schedule_fields, whole_count, whole_numbers
from ..schedule import AllreduceSchedule
from ..transfers import INT64_LIMIT, Transfers, path_latencies, path_links, slowest_path
from .transfers import tree_transfers
from .tree_arrays import TreeArrays
from .tree_schedule import TreeSequence, chunk_columns
from .verify import verified_forest, verified_halves

LOAD_LIMIT = 2**62  # as in `collopt.schedules.trees.verify`
FIELDS = ("kind", "direction", "trees_per_root", "root_weights", "paths", "trees")


@dataclass(frozen=True, eq=False)
class Forest(TreeArrays, TreeSequence, kind="forest"):
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
    def size_text(self) -> str:
        """Such as ``"8 trees, 1 per root by weight"``."""
        return f"{count_text(self.num_trees, 'tree')}, {self.trees_per_root} per root by weight"

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

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify the trees; see `verified_forest`."""
        return verified_forest(self, topology)

    def transfers(self, topology: Topology) -> Transfers:
        """List the hops of all trees."""
        return tree_transfers(self, topology)

    def renumbered(self, image: IntArray) -> Forest:
        """Number the nodes anew; `image`, int64 (nodes,), has the new number of each."""
        ranks = image[: self.num_ranks]
        routes, weights = self.routes.copy(), self.root_weights.copy()
        routes[:, ranks] = self.routes[:, : self.num_ranks]
        weights[ranks] = self.root_weights
        return replace(
            self,
            roots=ranks[self.roots],
            routes=routes,
            path_nodes=image[self.path_nodes],
            root_weights=weights,
            switches=image[self.switches],
        )

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

    @classmethod
    def from_json(cls, data: object, where: str) -> Forest:
        """Build the forest that a decoded JSON value describes; only its form is checked."""
        own = isinstance(data, Mapping) and "switches" in data
        fields = schedule_fields(data, "forest", (*FIELDS, "switches") if own else FIELDS, where)
        count = whole_count(fields["trees_per_root"], f"{where}: field schedule.trees_per_root")
        if not isinstance(fields["root_weights"], list):
            raise FileFormatError(f"{where}: field schedule.root_weights is not a list")
        root_weights = integers_of(fields["root_weights"], 1, f"{where}: the entries of schedule.root_weights")
        columns = tree_columns(fields["trees"], ("root", "weight", "routes"), where)
        columns |= path_arrays(fields["paths"], where)
        return Forest(
            num_ranks=len(root_weights),
            trees_per_root=count,
            root_weights=root_weights,
            direction=fields["direction"],
            **columns,
            switches=whole_numbers(fields.get("switches", []), f"{where}: field schedule.switches"),
        )

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
            shares, switch_array = np.array(root_weights, dtype=np.int64), np.array(list(places), dtype=np.int64)
            columns = joined_rows(numbers)
            return cls(num_ranks, trees_per_root, roots, weights, routes, *columns, shares, direction, switch_array)
        except (TypeError, ValueError, IndexError, OverflowError):
            raise UnsupportedError(
                f"the trees {shown(trees)} are not of the form (root, weight, paths) for {shown(num_ranks)} ranks; "
                "expected whole numbers, and paths that end at ranks"
            ) from None


@dataclass(frozen=True, eq=False)
class Allreduce(TreeSequence, AllreduceSchedule, of="forest"):
    """A reduce-scatter, `reduce`, followed, shard by shard and chunk by chunk, by an allgather, `broadcast`.

    Both run at the same time once data flows, so a link's load is the sum of both.  All ranks end with all sums, so the
    shards need not be equal, and some ranks, or all but one, can be without; they are the same in both.
    """

    reduce: Forest
    broadcast: Forest

    @property
    def halves(self) -> tuple[Forest, Forest]:
        """Both, in execution order."""
        return self.reduce, self.broadcast

    @property
    def forests(self) -> tuple[Forest, ...]:
        """Both forests, in execution order."""
        return self.halves

    @property
    def size_text(self) -> str:
        """Such as ``"16 trees, 1 per root by weight"``."""
        return f"{self.num_trees} trees, {self.broadcast.trees_per_root} per root by weight"

    @property
    def num_trees(self) -> int:
        """Number of distinct trees of both kinds."""
        return self.reduce.num_trees + self.broadcast.num_trees

    @property
    def trees_per_root(self) -> int:
        """The unit in which `link_loads` counts: the least common multiple of both forests' k."""
        return lcm(self.reduce.trees_per_root, self.broadcast.trees_per_root)

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify both forests of an allreduce, and that they match; sum their load on every link."""
        return verified_halves(self.halves, Forest, verified_forest, topology)

    def transfers(self, topology: Topology) -> Transfers:
        """List the hops of the reduction, then those of the broadcast."""
        return tree_transfers(self, topology)

    @property
    def hops_before(self) -> tuple[IntArray, ...]:
        """Hops before the first one of each tree: a broadcast tree goes on when the last of its chunks are summed."""
        _, reduce_trees, broadcast_trees = chunk_columns(self)
        before = np.zeros(self.broadcast.num_trees, dtype=np.int64)
        np.maximum.at(before, broadcast_trees, self.reduce.heights[reduce_trees])
        return np.zeros(self.reduce.num_trees, dtype=np.int64), before

    def hop_numbers(self, transfers: Transfers) -> IntArray:
        """Number of each transfer's hop in its tree; levels differ from it where reduce trees are uneven."""
        (_, before), (firsts, reduce_trees, broadcast_trees) = self.hops_before, chunk_columns(self)
        later = before[broadcast_trees] - self.reduce.heights[reduce_trees]
        ranges = np.searchsorted(firsts, transfers.firsts)
        return transfers.levels + np.where(transfers.adds, 0, later[ranges])

    def link_loads(self, topology: Topology) -> IntArray:
        """Add up the loads of both on each link, in multiples of ``1 / trees_per_root`` units of data.

        Raises `CapacityOverflowError` if the unit that suits both forests is so small that loads could leave int64.
        """
        loads = [forest.link_loads(topology) for forest in self.halves]
        scales = [self.trees_per_root // forest.trees_per_root for forest in self.halves]
        if sum(scale * int(load.max()) for scale, load in zip(scales, loads, strict=True)) >= LOAD_LIMIT:
            raise CapacityOverflowError(
                f"the loads of both forests in units of 1/{self.trees_per_root} add up to {LOAD_LIMIT} or more; "
                "round the bandwidths to fewer digits or use fewer trees per root"
            )
        return loads[0] * scales[0] + loads[1] * scales[1]

    def hop_rate(self, topology: Topology) -> Fraction:
        """Of the slower of both; see `Forest.hop_rate`."""
        return max(forest.hop_rate(topology) for forest in self.halves)

    @property
    def depth(self) -> int:
        """Heights of the highest trees of both kinds together."""
        return sum(forest.depth for forest in self.halves)

    def latency(self, topology: Topology) -> Fraction:
        """Sum of both, in µs; see `Forest.latency`."""
        return sum((forest.latency(topology) for forest in self.halves), Fraction(0))

    def __repr__(self) -> str:
        return (
            f"<Allreduce: {self.num_ranks} ranks, {self.reduce.num_trees} reduce trees, "
            f"{self.broadcast.num_trees} broadcast trees>"
        )


TreeSchedule = Forest | Allreduce
"""All schedules whose trees are written down."""


def tree_columns(trees: object, names: Sequence[str], where: str) -> dict[str, Any]:
    """Read rows of trees, one entry for each of the names, as columns by the plurals of these.

    Shapes: routes int32 (trees, vertices), others int64 (trees,).
    """
    if not isinstance(trees, list) or not all(isinstance(tree, list) and len(tree) == len(names) for tree in trees):
        raise FileFormatError(f"{where}: field schedule.trees is not a list of [{', '.join(names)}]")
    arrays: dict[str, Any] = {}
    for place, name in enumerate(names):
        plural = name if name == "routes" else f"{name}s"
        what = f"{where}: the {plural} of schedule.trees"
        arrays[plural] = integers_of([tree[place] for tree in trees], 1 + (name == "routes"), what)
    if (arrays["routes"] != arrays["routes"].astype(np.int32)).any():
        raise FileFormatError(f"{where}: the routes of schedule.trees hold a number beyond 32 bits")
    return arrays | {"routes": arrays["routes"].astype(np.int32)}


def integers_of(values: list[Any], dimensions: int, what: str) -> IntArray:
    """Read whole numbers, in rows of equal length where there are two dimensions."""
    try:
        array = np.array(values)
    except ValueError:  # rows of unequal length
        array = np.array([])
    # Numpy takes true and false among integers for 1 and 0.
    if array.dtype != np.int64 or array.ndim != dimensions or bool in map(type, np.ravel(np.array(values, object))):
        raise FileFormatError(f"{what} are not whole numbers in rows of equal length")
    return array
