"""`SymmetricForest`: trees of a few roots, and permutations of the nodes that make those of all other roots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ...errors import CertificateError, FileFormatError, UnsupportedError
from ...support.arrays import IntArray, decode_integers, encode_integers, orbits, read_only
from ...support.formatting import count_text
from ...topologies import Topology
from ...topologies.network.links import as_root
from ..collective import Direction
from ..fields import schedule_fields, whole_count
from ..transfers import Transfers
from .forest import Allreduce, Forest
from .tree_schedule import Trees
from .verify import verified_halves, verified_images

COUNTS = ("num_ranks", "num_nodes", "num_generators", "num_trees", "num_paths", "num_path_nodes", "trees_per_root")
ARRAYS = ("generators", "roots", "weights", "routes", "path_lengths", "path_nodes")
MAX_ENTRIES = 2**27  # of an array
MAX_EXPANDED = 2**28  # entries of the routes of all trees


@dataclass(frozen=True, eq=False)
class SymmetricForest(Trees, kind="symmetric-forest"):
    """Spanning trees for all roots, where only the trees of *representatives* are stored.

    The generators are commuting symmetries of the network, and no product of their powers but the identity fixes a
    rank.  So every rank is the image h(r) of one representative r under one product h, and its trees are the images
    under h of the trees of r.  On a link of an orbit O, with |H| products, all trees together put ``|H| / |O|`` times
    the load that the trees of the representatives put on all of O.

    Attributes
    ----------
    base : Forest
        The trees of the representatives, whose shards have weight 1; those of all other ranks have weight 0.
    generators : ndarray of int64, shape (generators, nodes)
        The image of each node.
    """

    base: Forest
    generators: IntArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "generators", read_only(self.generators))

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        """Copy and pickle by construction, as `Forest` does."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @property
    def num_ranks(self) -> int:
        """Compute nodes that every tree spans."""
        return self.base.num_ranks

    @property
    def trees_per_root(self) -> int:
        """The paper's k; see `Forest`."""
        return self.base.trees_per_root

    @property
    def direction(self) -> Direction:
        """Whether data runs away from the roots or towards them."""
        return self.base.direction

    @property
    def phases(self) -> tuple[Direction, ...]:
        """That of all trees, alone."""
        return self.base.phases

    @cached_property
    def root_weights(self) -> IntArray:
        """Sizes of the shards: all 1."""
        return read_only(np.ones(self.num_ranks, dtype=np.int64))

    @property
    def total_weight(self) -> int:
        """Number of shards."""
        return self.num_ranks

    @property
    def num_representatives(self) -> int:
        """Roots whose trees are written down."""
        return int(np.count_nonzero(self.base.root_weights))

    @property
    def num_trees(self) -> int:
        """Number of distinct trees of all roots."""
        return self.base.num_trees * self.num_ranks // self.num_representatives

    @property
    def size_text(self) -> str:
        """Such as ``"131072 trees, 1 per root by weight, images of 8"``."""
        return f"{self.num_trees} trees, {self.trees_per_root} per root by weight, images of {self.base.num_trees}"

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:  # noqa: ARG002
        """Whether these are equal shards."""
        return set(weights) <= {1}

    @cached_property
    def orbits(self) -> IntArray:
        """The number of the orbit of each rank, shape (ranks,)."""
        return read_only(orbits(self.generators[:, : self.num_ranks]))

    @cached_property
    def expanded(self) -> Forest:
        """All trees; raises `UnsupportedError` if there are too many to write down."""
        if self.num_trees * self.num_ranks > MAX_EXPANDED:
            raise UnsupportedError(
                f"{self.num_trees} trees over {self.num_ranks} ranks would have {self.num_trees * self.num_ranks} "
                f"routes; expected at most {MAX_EXPANDED}: ask for one rank at a time by `rank_transfers`"
            )
        return _expand(self)

    @property
    def forests(self) -> tuple[Forest, ...]:
        """The trees of representatives, as the only part."""
        return (self.base,)

    def link_loads(self, topology: Topology) -> IntArray:
        """Tree copies on each link, shape (links,)."""
        of_links = link_orbits(self.generators, topology)
        sums = _orbit_sums(of_links, self.base.link_loads(topology))
        return (sums * (self.num_ranks // self.num_representatives) // np.bincount(of_links))[of_links]

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify the trees of representatives and the symmetries; see `verified_images`."""
        return verified_images(self.base, self.generators, topology)

    def transfers(self, topology: Topology) -> Transfers:
        """List the hops of all trees."""
        return self.expanded.transfers(topology)

    def renumbered(self, image: IntArray) -> SymmetricForest:
        """Number the nodes anew, those of symmetries too."""
        generators = self.generators.copy()
        generators[:, image] = image[self.generators]
        return replace(self, base=self.base.renumbered(image), generators=generators)

    def checks(self) -> dict[str, str]:
        """Describe the checks of symmetries and trees."""
        return symmetry_checks(self) | super().checks()

    def rows(self, topology: Topology, busiest: dict[str, str]) -> dict[str, str]:  # noqa: ARG002
        """Count trees, their heights, and those that are written down."""
        return symmetric_rows(self) | busiest

    @property
    def depth(self) -> int:
        """Height of the highest tree, in hops between ranks."""
        return self.base.depth

    @property
    def least_hops(self) -> int:
        """Those of the highest tree."""
        return self.depth

    def latency(self, topology: Topology) -> Fraction:
        """Largest sum of link latencies between a root and a rank along a tree, in µs."""
        return self.base.latency(topology)

    def hop_rate(self, topology: Topology) -> Fraction:
        """Longest time that the data of one tree takes on one link; see `Schedule.hop_rate`."""
        return self.base.hop_rate(topology)

    @property
    def messages(self) -> IntArray:
        """Edges that each rank sends over, shape (ranks,)."""
        return _orbit_sums(self.orbits, self.base.messages)[self.orbits]

    @property
    def most_added(self) -> Fraction:
        """Data that a rank adds in all trees."""
        if self.direction == "broadcast":
            return Fraction(0)
        trees, ranks = np.nonzero(self.base.routes >= 0)
        added = _orbit_sums(self.orbits[self.base.parents[trees, ranks]], self.base.weights[trees])
        return Fraction(int(added.max()), self.trees_per_root)

    def to_json(self) -> dict[str, Any]:
        """Describe it by counts and compressed arrays; see ``docs/reference/plan-json.md``."""
        base = self.base
        counts = {
            "num_ranks": base.num_ranks,
            "num_nodes": self.generators.shape[1],
            "num_generators": len(self.generators),
            "num_trees": base.num_trees,
            "num_paths": len(base.path_starts) - 1,
            "num_path_nodes": len(base.path_nodes),
            "trees_per_root": base.trees_per_root,
        }
        arrays: dict[str, npt.NDArray[np.integer]] = {
            "generators": self.generators,
            "roots": base.roots,
            "weights": base.weights,
            "routes": base.routes,
            "path_lengths": np.diff(base.path_starts),
            "path_nodes": base.path_nodes,
        }
        documents = {name: encode_integers(array) for name, array in arrays.items()}
        return {"kind": "symmetric-forest", "direction": base.direction, **counts, **documents}

    @classmethod
    def from_json(cls, data: object, where: str) -> SymmetricForest:
        """Build the symmetric forest that a decoded JSON value describes; only its form is checked."""
        fields = schedule_fields(data, "symmetric-forest", ("kind", "direction", *COUNTS, *ARRAYS), where)
        counts = {name: whole_count(fields[name], f"{where}: field schedule.{name}") for name in COUNTS}
        ranks, nodes, trees = counts["num_ranks"], counts["num_nodes"], counts["num_trees"]
        shapes = {
            "generators": (counts["num_generators"], nodes),
            "roots": (trees,),
            "weights": (trees,),
            "routes": (trees, ranks),
            "path_lengths": (counts["num_paths"],),
            "path_nodes": (counts["num_path_nodes"],),
        }
        # A path has two ends, and passes switches at most once.
        longest = counts["num_paths"] * (nodes - ranks + 2)
        fits = ranks <= nodes and counts["num_paths"] <= trees * ranks and counts["num_path_nodes"] <= longest
        if not fits or max(int(np.prod(shape, dtype=object)) for shape in shapes.values()) > MAX_ENTRIES:
            raise FileFormatError(f"{where}: the counts of the schedule are out of proportion; is the file complete?")
        limits = {"generators": nodes, "roots": ranks, "routes": 2**31, "path_nodes": nodes}
        arrays: dict[str, IntArray] = {}
        for name, shape in shapes.items():
            what = f"{where}: field schedule.{name}"
            lowest, highest = -1 if name == "routes" else 0, limits.get(name, 2**62) - 1
            arrays[name] = decode_integers(fields[name], shape, what, low_limit=lowest, high_limit=highest)
        starts = np.concatenate([[0], np.cumsum(arrays["path_lengths"])])
        weights = np.zeros(ranks, dtype=np.int64)
        weights[arrays["roots"]] = 1
        base = Forest(
            num_ranks=ranks,
            trees_per_root=counts["trees_per_root"],
            roots=arrays["roots"],
            weights=arrays["weights"],
            routes=arrays["routes"].astype(np.int32),
            path_starts=starts,
            path_nodes=arrays["path_nodes"],
            root_weights=weights,
            direction=fields["direction"],
        )
        return SymmetricForest(base, arrays["generators"])


@dataclass(frozen=True, eq=False, repr=False)
class SymmetricAllreduce(Allreduce, of="symmetric-forest"):
    """An allreduce, `reduce` and `broadcast`, along trees of which only those of representatives are stored."""

    reduce: SymmetricForest  # type: ignore[assignment]
    broadcast: SymmetricForest  # type: ignore[assignment]

    @property
    def expanded(self) -> Allreduce:
        """All trees of both; see `SymmetricForest.expanded`."""
        return Allreduce(self.reduce.expanded, self.broadcast.expanded)

    @property
    def forests(self) -> tuple[Forest, ...]:
        """The trees of representatives of both."""
        return self.reduce.base, self.broadcast.base

    @property
    def size_text(self) -> str:
        """Such as ``"262144 trees, 1 per root by weight, images of 16"``."""
        trees_stored = self.reduce.base.num_trees + self.broadcast.base.num_trees
        return f"{super().size_text}, images of {trees_stored}"

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify both parts, and that they match; sum their load on every link."""

        def verified(half: SymmetricForest, topology: Topology) -> IntArray:
            return verified_images(half.base, half.generators, topology)

        return verified_halves((self.reduce, self.broadcast), SymmetricForest, verified, topology)

    def transfers(self, topology: Topology) -> Transfers:
        """List the hops of all trees."""
        return self.expanded.transfers(topology)

    def hop_numbers(self, transfers: Transfers) -> IntArray:
        """Number each transfer's hop, as with all trees."""
        return self.expanded.hop_numbers(transfers)

    def checks(self) -> dict[str, str]:
        """Describe the checks of symmetries and trees."""
        return symmetry_checks(self) | super().checks()

    def rows(self, topology: Topology, busiest: dict[str, str]) -> dict[str, str]:  # noqa: ARG002
        """Count trees, their heights, and those that are written down."""
        return symmetric_rows(self) | busiest


def symmetry_checks(schedule: Trees) -> dict[str, str]:
    """Describe the checks of the generators."""
    products = schedule.num_ranks // int(np.count_nonzero(schedule.forests[-1].root_weights))
    kept = f"generators commute and keep links and bandwidths; 1 of their {products} products fixes a rank"
    return {"symmetries": kept}


def symmetric_rows(schedule: Trees) -> dict[str, str]:
    """Count trees, their heights, and those that are written down."""
    roots = count_text(int(np.count_nonzero(schedule.forests[-1].root_weights)), "representative")
    return {
        "trees per root": str(schedule.forests[-1].trees_per_root),
        "trees": f"{schedule.num_trees} distinct, {schedule.height_range.text}",
        "written": f"{sum(forest.num_trees for forest in schedule.forests)} of them, of {roots}",
    }


def link_orbits(generators: IntArray, topology: Topology) -> IntArray:
    """Number the orbits of links; int64 (links,).  Raises `CertificateError` if a link has no image."""
    tails, heads, _, _ = topology.columns
    images = [topology.link_places(generator[tails], generator[heads]) for generator in generators]
    for row, image in enumerate(images):
        if (image < 0).any():
            raise CertificateError(f"generator {row} takes a link to where the topology has none")
    return orbits(np.array(images))


def _orbit_sums(orbits: IntArray, values: IntArray) -> IntArray:
    """Add up the values of each orbit; int64 (orbits,)."""
    sums = np.zeros(orbits.max() + 1, dtype=np.int64)
    np.add.at(sums, orbits, values)
    return sums


def products(generators: IntArray) -> Iterator[IntArray]:
    """Yield all products of powers of permutations, the identity first; `CertificateError` where there is no end."""
    size = generators.shape[1]
    if not len(generators):
        yield np.arange(size)
        return
    for outer in products(generators[:-1]):
        product = outer
        for _ in range(size):
            yield product
            product = generators[-1][product]
            if (product == outer).all():
                break
        else:
            raise CertificateError(f"a generator taken {size} times, the number of nodes, is not the identity")


def _expand(schedule: SymmetricForest) -> Forest:
    """Write down the images of all trees, with each path once."""
    base = schedule.base
    lengths, ranks = np.diff(base.path_starts), np.arange(base.num_ranks)
    members = list(products(schedule.generators))
    routes = np.full((len(members), base.num_trees, base.num_ranks), -1, dtype=np.int32)
    starts, nodes, path_count = [np.zeros(1, dtype=np.int64)], [], 0
    numbers = np.empty((len(members), len(lengths)), dtype=np.int64)
    for length in np.unique(lengths).tolist():
        selected = np.flatnonzero(lengths == length)
        rows = base.path_nodes[base.path_starts[selected][:, None] + np.arange(length)]
        unique_rows, inverse = np.unique(
            np.concatenate([member[rows] for member in members]), axis=0, return_inverse=True
        )
        numbers[:, selected] = path_count + inverse.reshape(len(members), -1)
        starts.append(starts[-1][-1] + length * np.arange(1, len(unique_rows) + 1))
        nodes.append(unique_rows.ravel())
        path_count += len(unique_rows)
    for number, member in enumerate(members):
        receives = base.routes >= 0
        routes[number][:, member[ranks]] = np.where(receives, numbers[number][base.routes], -1)
    return replace(
        base,
        roots=np.concatenate([member[base.roots] for member in members]),
        weights=np.tile(base.weights, len(members)),
        routes=routes.reshape(-1, base.num_ranks),
        path_starts=np.concatenate(starts),
        path_nodes=np.concatenate(nodes),
        root_weights=schedule.root_weights,
    )


class RankEdges(NamedTuple):
    """By edges of trees at a rank, shape (edges,): `roots`, `trees` in ``schedule.base``, `peers`, and `depths`.

    The root is the rank whose shard the tree carries, the peer that at the other end; edges are sorted by their depths,
    hops between the root and the farther end.
    """

    roots: IntArray
    trees: IntArray
    peers: IntArray
    depths: IntArray


class RankTransfers(NamedTuple):
    """Edges of trees `above` a rank, from those that it receives from, and `below`, to those that it sends to.

    With direction "reduce", data runs against them.
    """

    above: RankEdges
    below: RankEdges


def rank_transfers(schedule: SymmetricForest, rank: int) -> RankTransfers:
    """List the transfers of one rank, without the trees of all roots.

    Parameters
    ----------
    schedule : SymmetricForest
        One that was verified.
    rank : int
        From 0.

    Examples
    --------
    >>> import collopt
    >>> made = collopt.plan(collopt.topologies.torus(4, 4), "allgather", planner="symmetric")
    >>> edges = rank_transfers(made.schedule, 5)
    >>> sorted(set(edges.above.roots.tolist())) == [root for root in range(16) if root != 5]
    True
    """
    base, own = schedule.base, as_root(range(schedule.num_ranks), rank)  # type: ignore[arg-type]
    coordinates = _coordinates(schedule)
    trees, ranks = np.nonzero(base.routes >= 0)
    senders, depths = base.parents[trees, ranks], base.depths[trees, ranks]
    return RankTransfers(
        *(
            _moved(coordinates, own, trees[selected], depths[selected], near[selected], far[selected], base.roots)
            for near, far in ((ranks, senders), (senders, ranks))
            for selected in [coordinates.orbits[near] == coordinates.orbits[own]]
        )
    )


class _Coordinates(NamedTuple):
    orbits: IntArray  # int64 (ranks,): place of the representative
    exponents: IntArray  # int64 (ranks, generators): of the product that takes the representative to the rank
    orders: tuple[int, ...]
    ranks: IntArray  # int64 (products, representatives): the other way round


def _coordinates(schedule: SymmetricForest) -> _Coordinates:
    ranks = np.flatnonzero(schedule.base.root_weights)[None]
    orders = []
    for generator in schedule.generators:
        powers = [ranks]
        while (following := generator[powers[-1]])[0, 0] != ranks[0, 0]:
            powers.append(following)
        orders.append(len(powers))
        ranks = np.stack(powers, axis=1).reshape(-1, ranks.shape[1])
    orbits, exponents = np.empty(schedule.num_ranks, np.int64), np.empty((schedule.num_ranks, len(orders)), np.int64)
    orbits[ranks] = np.arange(ranks.shape[1])
    exponents[ranks] = np.stack(np.unravel_index(np.arange(len(ranks)), orders), axis=1)[:, None]
    return _Coordinates(orbits, exponents, tuple(orders), ranks)


def _moved(
    at: _Coordinates, own: int, trees: IntArray, depths: IntArray, near: IntArray, far: IntArray, roots: IntArray
) -> RankEdges:
    """Move edges by the products that take their near ends to one rank."""
    shifts = at.exponents[own] - at.exponents[near]
    ends = []
    for nodes in (roots[trees], far):
        place = np.ravel_multi_index(tuple((at.exponents[nodes] + shifts).T), at.orders, mode="wrap")
        ends.append(at.ranks[place, at.orbits[nodes]])
    order = np.lexsort((trees, ends[0], depths))
    return RankEdges(ends[0][order], trees[order], ends[1][order], depths[order])
