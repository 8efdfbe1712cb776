"""Symmetries of a network, found as failures need them, and the orbits of failures under them.

Turns of equal boxes, or translations, merge most failures.  Of those left, a color refinement of two copies of the
network, in which each has one of two failures colored, finds maps of one to the other.  All are checked link by link;
one that is not found only leaves two cases where one would do.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from ...errors import TopologyError
from ...support.arrays import IntArray, components
from ..network.failures import Failure
from ..network.topology import Topology
from .refinement import ColoredNetwork, refined
from .translations import translations, two_copies
from .turns import nested_turns

MAX_TIES = 64  # nodes told apart, one after the other, to find one map
MAX_WORK = 5 * 10**7  # links that all searches for maps may look at: half a minute

Value = TypeVar("Value")


class Symmetries:
    """Symmetries of a network, and their action on failures.

    A part of a failure is one number: of its remaining share, and of both ends of its link, or its node twice.  A
    failure is a sorted row of parts.  Each of `generators` has the images of the nodes, int64 (nodes,); one that is no
    symmetry raises `TopologyError`.  Every symmetry has to fix the rank `fixed`, as the root of a broadcast.
    """

    def __init__(self, topology: Topology, generators: Sequence[IntArray] = (), fixed: int | None = None) -> None:
        self._topology, self._size = topology, len(topology.nodes)
        self._network = ColoredNetwork.of(topology)
        if fixed is not None:
            self._network.colors[fixed] = self._network.colors.max() + 1
        self.generators = list(generators)
        self._factors: dict[object, int] = {}
        self._work = 0
        for row, mapping in enumerate(self.generators):
            if not np.array_equal(np.sort(mapping), np.arange(self._size)) or not self._network.has_symmetry(mapping):
                raise TopologyError(f"symmetry {row} of the failures does not take {topology} to itself")

    def find(self) -> None:
        """Look for generators: turns of equal parts of a switched network, translations of a direct one."""
        ranks = self._topology.num_ranks
        if self._topology.switch_nodes:
            self.generators += [turn.mapping for turn in nested_turns(self._network, ranks)]
        else:
            self.generators += translations(self._network, ranks)

    def row(self, failure: Failure) -> tuple[int, ...]:
        """Number the parts of a failure."""
        index, size = self._topology.node_index, self._size
        rows = []
        for nodes, left in failure.faults:
            kind, ends = self._factors.setdefault(left, len(self._factors)), sorted(index[node] for node in nodes)
            rows.append((kind * size + ends[0]) * size + ends[-1])
        return tuple(sorted(rows))

    def orbits(self, rows: IntArray) -> IntArray:
        """Number orbits of failures, int64 (failures, parts), by failures that are alike; finds further generators."""
        # Failures that the known generators exchange.
        labels = np.arange(len(rows))
        for mapping in self.generators:
            labels = self._merged(rows, labels, mapping)
        # Cells: failures whose parts have nodes of the same colors; others are never alike.
        kinds, tails, heads = self._ends(rows)
        colors = self._colors
        ends = np.sort([colors[tails], colors[heads]], axis=0) + 1
        signatures = np.sort(
            (kinds * (self._size + 1) + ends[0]) * (self._size + 1) + ends[1] * (tails != heads), axis=1
        )
        cells = np.unique(signatures, axis=0, return_inverse=True)[1].ravel()
        # In each cell, search for a symmetry that takes a failure to a representative of another orbit.
        first: dict[int, list[int]] = {}
        for item, cell in enumerate(cells.tolist()):
            if self._work > MAX_WORK:
                break
            representatives = first.setdefault(cell, [])
            if any(labels[item] == labels[like] for like in representatives):
                continue
            for like in representatives:
                if (symmetry := self._mapping(rows[like], rows[item])) is not None:
                    self.generators.append(symmetry)
                    labels = self._merged(rows, labels, symmetry)
                    break
            else:
                representatives.append(item)
        return labels

    def known_image(self, failure: Failure, values: Mapping[tuple[int, ...], Value]) -> tuple[Value, IntArray] | None:
        """Find one of the known failures, by `row`, that is like this one, and a symmetry that takes it to this one."""
        images = [mapping.tolist() for mapping in self.generators]
        start = self.row(failure)
        before: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = {}
        for row in (queue := [start]):
            if row in values:
                mapping = np.arange(self._size)
                last = row
                while last != start:
                    last, number = before[last]
                    mapping = mapping[self.generators[number]]
                inverse = np.argsort(mapping)
                assert self._network.has_symmetry(inverse), "products of symmetries are symmetries"
                return values[row], inverse
            for number, image in enumerate(images):
                moved = self._moved(row, image)
                if moved != start and moved not in before:
                    before[moved] = row, number
                    queue.append(moved)
        return None

    def _moved(self, row: tuple[int, ...], image: list[int]) -> tuple[int, ...]:
        size, moved = self._size, []
        for part in row:
            kind, ends = divmod(part, size * size)
            tail, head = sorted((image[ends // size], image[ends % size]))
            moved.append((kind * size + tail) * size + head)
        return tuple(sorted(moved))

    def _ends(self, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the number of the remaining share of each part, and its two nodes."""
        kinds, ends = np.divmod(rows, self._size**2)
        return kinds, *np.divmod(ends, self._size)

    def _images(self, rows: IntArray, mapping: IntArray) -> IntArray:
        kinds, tails, heads = self._ends(rows)
        ends = np.sort([mapping[tails], mapping[heads]], axis=0)
        return np.sort((kinds * self._size + ends[0]) * self._size + ends[1], axis=-1)

    def _merged(self, rows: IntArray, labels: IntArray, mapping: IntArray) -> IntArray:
        """Give failures and their images, where these are among them, the same label."""
        both = np.concatenate([rows, self._images(rows, mapping)])
        numbers = np.unique(both, axis=0, return_inverse=True)[1].ravel()
        place = np.full(len(both), -1)
        place[numbers[: len(rows)]] = np.arange(len(rows))
        images = place[numbers[len(rows) :]]
        there = images >= 0
        return components(len(rows), np.column_stack([labels[there], labels[images[there]]]))[labels]

    @cached_property
    def _colors(self) -> IntArray:
        return refined(self._network, self._network.colors)

    @cached_property
    def _both(self) -> ColoredNetwork:
        return two_copies(self._network, [])

    def _mapping(self, here: IntArray, there: IntArray) -> IntArray | None:
        """Search for a symmetry that takes one failure to another; nodes stay where they are if they can."""
        # In each copy of the network, its failure gets colors of its own.
        size = self._size
        colors = np.tile(self._colors, 2)
        top = colors.max() + 1
        for side, (kinds, tails, heads) in enumerate((self._ends(here), self._ends(there))):
            colors[[tails + side * size, heads + side * size]] = top + 2 * kinds + (tails != heads)
        # Refine, try the mapping that colors suggest, and tell one more node apart.
        for _ in range(MAX_TIES):
            self._work += len(self._both.tails)
            colors = refined(self._both, colors)
            ours, theirs = colors[:size], colors[size:]
            if (np.sort(ours) != np.sort(theirs)).any():
                return None
            mapping = np.arange(size)
            moving = np.flatnonzero(ours != theirs)
            mapping[moving[np.argsort(ours[moving], kind="stable")]] = moving[np.argsort(theirs[moving], kind="stable")]
            if (self._images(here, mapping) == there).all() and self._network.has_symmetry(mapping):
                return mapping
            tied = np.bincount(ours)[ours] > 1
            if not tied.any():
                return None
            moved = moving[tied[moving]]
            node = moved[0] if len(moved) else np.flatnonzero(tied)[0]
            colors[[node, size + mapping[node]]] = colors.max() + 1
        return None
