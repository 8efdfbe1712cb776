"""`DemandForest`: weighted trees that carry items from any of their sources to all of their destinations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...errors import CertificateError, FileFormatError
from ...support.arrays import IntArray, read_only
from ...support.formatting import count_text, percentage_text, span_text
from ...support.validation import as_kind
from ...topologies import Topology
from ..collective import Collective
from ..demands import Demands
from ..fields import path_arrays, schedule_fields, whole_count, whole_numbers
from ..transfers import Transfers
from .forest import Forest, tree_columns
from .transfers import checked_transfers
from .tree_arrays import TreeEdge
from .verify import verified_items

FIELDS = ("kind", "trees_per_root", "items", "paths", "trees", "switches")


class Prefix(NamedTuple):
    """All layers up to one: their share of all data, and when they are complete, in ns per byte of all data."""

    layer: int
    share: Fraction
    time: Fraction


@dataclass(frozen=True, eq=False)
class DemandForest(Forest, kind="demand-forest"):
    """Trees for `Demands`: each carries a part of one group of items from a source to all ranks that need it.

    Attributes are those of a `Forest`, with these differences.  A tree spans the destinations of its group, and other
    ranks that pass its data on.  It begins at any of the sources, of which `roots` names one, so that it may consist of
    several parts.  Trees of group g weigh ``trees_per_root`` times its weight together; `root_weights` count nothing.

    Attributes
    ----------
    groups : ndarray of int64, shape (trees,)
        Number of the group of each tree in ``demands.groups``.
    demands : Demands
        What the trees are for.
    """

    groups: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    demands: Demands = field(default_factory=lambda: Demands([("none", 1, ["0"], ["1"])]))

    @property
    def shards(self) -> IntArray:
        """Group that each tree carries."""
        return self.groups

    @cached_property
    def shard_weights(self) -> IntArray:
        """Units of data of each group."""
        return read_only(np.array([group.weight for group in self.demands.groups], dtype=np.int64))

    @property
    def total_weight(self) -> int:
        """Units of all items."""
        return self.demands.total_weight

    @property
    def root(self) -> int | None:
        """None: items may have any sources."""
        return None

    @property
    def size_text(self) -> str:
        """Such as ``"16 trees for 8 groups of items"``."""
        groups = count_text(len(self.demands.groups), "group")
        return f"{count_text(self.num_trees, 'tree')} for {groups} of items"

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:  # noqa: ARG002
        """Whether there are no weights: sizes are those of the items."""
        return not weights

    def problem(self, collective: Collective) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing: the demands are the whole problem."""
        return {}

    @cached_property
    def depths(self) -> IntArray:
        """Shape (trees, num_ranks): hops between ranks from a source; 0 also outside of a tree."""
        return read_only(_hops_above(self.unicast.parents))

    def edges(self, tree: int) -> Iterator[TreeEdge]:
        """Yield the hops of one tree, each after the hop that brings data to its sender."""
        hops = _hops_above(self.parents[tree : tree + 1])[0]
        for head in np.argsort(hops, kind="stable").tolist():
            if (route := int(self.routes[tree, head])) >= 0:
                path = self.path(route)
                yield TreeEdge(path[0], path[-1], path)

    @cached_property
    def heights(self) -> IntArray:
        """Shape (trees,): the largest depth of each tree."""
        return read_only(self.depths.max(axis=1, initial=0))

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify the trees; see `verified_items`."""
        as_kind(self.demands, Demands, "the demands of the trees", error=CertificateError)
        return verified_items(self, self.groups, self.demands, topology)

    def transfers(self, topology: Topology) -> Transfers:
        """List the hops of all trees; data is numbered group by group."""
        self.verified_loads(topology)
        return checked_transfers(self, topology)

    def checks(self) -> dict[str, str]:
        """Describe the checks of routes and trees."""
        groups = count_text(len(self.demands.groups), "group")
        span = f"{self.num_trees} trees lead from a source to all destinations of their items, in {groups}"
        return super().checks() | {"trees": f"{span}; weights sum to the size of each"}

    @property
    def _per_root(self) -> str:
        numbers = np.unique(self.groups, return_counts=True)[1]
        return span_text(numbers.min(), numbers.max(), "distinct tree")

    def prefixes(self, topology: Topology) -> tuple[Prefix, ...]:
        """Say when each layer is complete if all links serve the layers in their order."""
        layers = np.array([group.layer for group in self.demands.groups])
        prefixes = []
        for layer in sorted(set(layers.tolist())):
            part = replace(self, weights=np.where(layers[self.groups] <= layer, self.weights, 0))
            share = Fraction(int(self.shard_weights[layers <= layer].sum()), self.total_weight)
            prefixes.append(Prefix(layer, share, part.inverse_rate(topology) / self.total_weight))
        return tuple(prefixes)

    def rows(self, topology: Topology, busiest: dict[str, str]) -> dict[str, str]:
        """Describe it by lines of a summary, and its layers if there are several."""
        parts = self.prefixes(topology)
        texts = [f"{percentage_text(part.share)} after {percentage_text(part.time / parts[-1].time)}" for part in parts]
        layers = {"layers": f"{', '.join(texts[:8])} of the time"} if len(texts) > 1 else {}
        rows = {name.replace("per root", "per group"): text for name, text in super().rows(topology, busiest).items()}
        return rows | layers

    def to_json(self) -> dict[str, Any]:
        """Describe it by lists, texts and integers."""
        columns = (self.roots, self.weights, self.routes, self.groups)
        return {
            "kind": self.kind,
            "trees_per_root": self.trees_per_root,
            "items": self.demands.rows(),
            "paths": self._path_lists(),
            "trees": [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)],
            "switches": self.switches.tolist(),
        }

    @classmethod
    def from_json(cls, data: object, where: str) -> DemandForest:
        """Build the trees that a decoded JSON value describes; only its form is checked."""
        fields: Mapping[str, Any] = schedule_fields(data, cls.kind, FIELDS, where)
        columns = tree_columns(fields["trees"], ("root", "weight", "routes", "group"), where)
        columns |= path_arrays(fields["paths"], where)
        switches = whole_numbers(fields["switches"], f"{where}: field schedule.switches")
        vertices = columns["routes"].shape[1]
        if len(switches) > vertices:
            raise FileFormatError(f"{where}: schedule.switches has more entries than the routes of a tree")
        return cls(
            num_ranks=vertices - len(switches),
            trees_per_root=whole_count(fields["trees_per_root"], f"{where}: field schedule.trees_per_root"),
            switches=switches,
            demands=Demands.from_rows(fields["items"], f"{where}, field schedule"),
            **columns,
        )

    def __repr__(self) -> str:
        return f"<DemandForest: {self.num_ranks} ranks, {self.num_trees} trees for {self.demands!r}>"

    @classmethod
    def of_trees(
        cls, topology: Topology, demands: Demands, trees_per_root: int, trees: Sequence[tuple[int, int, Any, int]]
    ) -> DemandForest:
        """Build them, not verified, from ``(root, weight, paths, group)`` rows, one path into each vertex but the root.

        Paths are sequences of node numbers, which begin and end at ranks and at switches that multicast.
        """
        ends = {node for _, _, paths, _ in trees for path in paths for node in (path[0], path[-1])}
        switches = sorted(int(node) for node in ends if node >= topology.num_ranks)
        rows = [tree[:3] for tree in trees]
        plain = Forest.from_paths(topology.num_ranks, trees_per_root, rows, switches=switches)
        numbers = np.array([tree[3] for tree in trees], dtype=np.int64)
        columns = (plain.roots, plain.weights, plain.routes, plain.path_starts, plain.path_nodes, plain.root_weights)
        return cls(
            topology.num_ranks, trees_per_root, *columns, "broadcast", plain.switches, groups=numbers, demands=demands
        )


def _hops_above(parents: IntArray) -> IntArray:
    """Count the hops from where each tree begins to each vertex, 0 outside of it; int64 (trees, vertices)."""
    moves = parents >= 0
    above, hops = np.where(moves, parents, np.arange(parents.shape[1])), moves.astype(np.int64)
    for _ in range(parents.shape[1].bit_length()):
        hops = hops + np.take_along_axis(hops, above, axis=1)
        above = np.take_along_axis(above, above, axis=1)
    return hops
