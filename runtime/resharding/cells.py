"""Intersection of the slices that ranks have with those that ranks need, as items for `collopt.schedules.Demands`.

A cell is what a source slice and a target slice of one tensor share.  Cells of all tensors with the same sources and
the same destinations are one item: their bytes, in the order of tensors, each cell row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules.demands import Demands, Item
from ...support.arrays import IntArray
from ...support.validation import as_whole, shown
from ...topologies import Topology
from .sharding import Sharding, as_sharding

MAX_BYTES = 2**53
Ranks = tuple[int, ...]


class CellGroup(NamedTuple):
    """Cells of one tensor with the same ranks."""

    sources: Ranks
    targets: Ranks
    destinations: Ranks  # Targets that are no sources
    boxes: IntArray  # int64 (cells, dimensions, 2): begins and ends in the whole tensor
    elements: int


class TensorMove(NamedTuple):
    """A tensor, and where it lies before and after.

    Attributes
    ----------
    name : str
    shape : tuple of int
        Of the whole tensor.
    itemsize : int
        Bytes of an element.
    source, target : Sharding
    """

    name: str
    shape: tuple[int, ...]
    itemsize: int
    source: Sharding
    target: Sharding


class Cell(NamedTuple):
    """A cell of an item, or one that a rank has already."""

    tensor: int  # Place in `Resharding.tensors`
    box: IntArray  # int64 (dimensions, 2): begins and ends in the whole tensor
    begin: int  # First byte in the item
    size: int  # Bytes


class MovedItem(NamedTuple):
    """Bytes that some ranks have and others need."""

    sources: Ranks
    destinations: Ranks
    size: int
    parts: list[tuple[int, IntArray, int]]  # Tensor, its cells (cells, dimensions, 2), and their first byte


@dataclass(frozen=True, eq=False)
class Resharding:
    """What moves between two shardings of some tensors.

    Attributes
    ----------
    tensors : tuple of TensorMove
    """

    tensors: tuple[TensorMove, ...]

    @cached_property
    def items(self) -> tuple[MovedItem, ...]:
        """Items that some rank needs, in the order in which tensors first have bytes of them."""
        sizes: dict[tuple[Ranks, Ranks], int] = {}
        parts: dict[tuple[Ranks, Ranks], list[tuple[int, IntArray, int]]] = {}
        for place, tensor in enumerate(self.tensors):
            for sources, _, destinations, boxes, elements in _cells(tensor.source, tensor.target, tensor.shape):
                if destinations:
                    key = sources, destinations
                    begin = sizes.get(key, 0)
                    parts.setdefault(key, []).append((place, boxes, begin))
                    sizes[key] = begin + elements * tensor.itemsize
        if sum(sizes.values()) > MAX_BYTES:
            raise UnsupportedError(f"the tensors have {sum(sizes.values())} bytes that move; expected at most 2^53")
        return tuple(MovedItem(*key, sizes[key], parts[key]) for key in parts)

    @property
    def moved_bytes(self) -> int:
        """Bytes of all items, each counted once."""
        return sum(item.size for item in self.items)

    def cells(self, item: int) -> Iterator[Cell]:
        """Yield the cells of an item in the order of its bytes."""
        for tensor, boxes, begin in self.items[item].parts:
            place = begin
            for box, count in zip(boxes, _counts(boxes).tolist(), strict=True):
                yield Cell(tensor, box, place, size := count * self.tensors[tensor].itemsize)
                place += size

    def own_cells(self, rank: int) -> Iterator[Cell]:
        """Yield the cells that a rank has already and is to have; their `begin` is 0."""
        for place, tensor in enumerate(self.tensors):
            for sources, targets, _, boxes, _ in _cells(tensor.source, tensor.target, tensor.shape):
                if rank in sources and rank in targets:
                    for box, count in zip(boxes, _counts(boxes).tolist(), strict=True):
                        yield Cell(place, box, 0, count * tensor.itemsize)

    def demands(self, ranks: Topology | Sequence[str] | None = None, *, grains: int | None = None) -> Demands:
        """Return the items as `Demands`, in bytes, which `collopt.bound` and `plan` take as a collective.

        Raises `UnsupportedError` if no bytes move, or a mesh has more ranks than there are.

        Parameters
        ----------
        ranks : Topology or sequence of str, optional
            Whose compute nodes the ranks are, or their names; the names are numbers by default.
        grains : int, optional
            Parts of all bytes to whose multiples sizes are rounded, one at least: coarse sizes are planned faster.
        """
        names = list(ranks.compute_nodes if isinstance(ranks, Topology) else ranks or map(str, range(self.num_ranks)))
        if len(names) < self.num_ranks:
            raise UnsupportedError(f"the meshes have rank {self.num_ranks - 1}; expected ranks below {len(names)}")
        if not self.items:
            raise UnsupportedError("no bytes move: every rank has its part of all tensors already")
        return Demands(
            Item(
                self._title(place),
                item.size if grains is None else max(1, round(Fraction(item.size * grains, self.moved_bytes))),
                tuple(names[rank] for rank in item.sources),
                tuple(names[rank] for rank in item.destinations),
            )
            for place, item in enumerate(self.items)
        )

    @property
    def num_ranks(self) -> int:
        """One more than the last rank of the meshes."""
        meshes = (mesh for tensor in self.tensors for mesh in (tensor.source.mesh, tensor.target.mesh))
        return max((max(mesh.ranks) for mesh in meshes), default=-1) + 1

    def _title(self, place: int) -> str:
        first, *later = sorted({tensor for tensor, _, _ in self.items[place].parts})
        return f"{place}: {self.tensors[first].name}{f' and {len(later)} more' if later else ''}"


def compare_shardings(
    tensors: Mapping[str, tuple[Sequence[int], int]] | Iterable[TensorMove], source: Any = None, target: Any = None
) -> Resharding:
    """Compute what moves when tensors go from one sharding to another; needs no torch.

    Raises `UnsupportedError` for tensors, meshes or placements that do not fit.

    Parameters
    ----------
    tensors : mapping
        From the name of a tensor to its whole shape and the bytes of an element.
    source, target : Sharding or mapping
        As for `collopt.reshard`, but not None.

    Examples
    --------
    A matrix in shards on two ranks, for two others that need all of it:

    >>> from collopt.runtime import Mesh, Replicate, Shard
    >>> moves = compare_shardings({"weight": ((6, 4), 2)}, (Mesh(range(2)), [Shard(0)]), (Mesh([2, 3]), [Replicate()]))
    >>> [(item.sources, item.destinations, item.size) for item in moves.items]
    [((0,), (2, 3), 24), ((1,), (2, 3), 24)]
    >>> moves.demands()
    <Demands: 2 items, 2 sources, 2 destinations>
    """
    if isinstance(tensors, Mapping):
        sources, targets = as_rules(source, "source"), as_rules(target, "target")
        tensors = [
            TensorMove(
                name,
                tuple(as_whole(size, f"a dimension of {name}", low=0) for size in shape),
                as_whole(itemsize, f"the bytes of an element of {name}"),
                find_rule(sources, name, "source"),
                find_rule(targets, name, "target"),
            )
            for name, (shape, itemsize) in tensors.items()
        ]
    result = Resharding(tuple(tensors))
    for tensor in result.tensors:
        try:
            _cells(tensor.source, tensor.target, tensor.shape)
        except UnsupportedError as error:
            raise UnsupportedError(f"tensor {tensor.name!r}: {error}") from None
    return result


Rules = tuple[tuple[str, Sharding], ...]


def as_rules(value: object, what: str) -> Rules:
    """Return patterns of names with their shardings; one sharding alone is for all names."""
    if not isinstance(value, Mapping):
        return (("*", as_sharding(value)),)
    if stray := next((name for name in value if not isinstance(name, str)), None):
        raise UnsupportedError(f"the {what} names {shown(stray)}; expected names of tensors, or patterns such as '*'")
    return tuple((name, as_sharding(sharding)) for name, sharding in value.items())


def find_rule(rules: Rules | Mapping[str, Any], name: str, what: str) -> Any:
    """Return the value of a name, else of the first pattern that it matches."""
    from fnmatch import fnmatchcase

    values = dict(rules)
    if name in values:
        return values[name]
    for pattern, value in values.items():
        if fnmatchcase(name, pattern):
            return value
    raise UnsupportedError(f"the {what} has no sharding for tensor {name!r}; add one, or the pattern '*'")


def _counts(boxes: IntArray) -> IntArray:
    """Elements of each box; int64 (boxes,)."""
    counts: IntArray = (boxes[..., 1] - boxes[..., 0]).prod(axis=1)
    return counts


@lru_cache(maxsize=4096)
def _cells(source: Sharding, target: Sharding, shape: tuple[int, ...]) -> list[CellGroup]:
    """Intersect all slices of a tensor."""
    (one, having), (two, needing) = (_slices(sharding, shape) for sharding in (source, target))
    begins = np.maximum(one[:, None, :, 0], two[None, :, :, 0])
    ends = np.minimum(one[:, None, :, 1], two[None, :, :, 1])
    groups: dict[tuple[Ranks, Ranks], list[IntArray]] = {}
    for row, column in np.argwhere((begins < ends).all(axis=2)).tolist():
        box = np.stack([begins[row, column], ends[row, column]], axis=1)
        groups.setdefault((having[row], needing[column]), []).append(box)
    return [
        CellGroup(sources, targets, tuple(sorted(set(targets).difference(sources))), cells, int(_counts(cells).sum()))
        for (sources, targets), boxes in groups.items()
        for cells in (np.stack(boxes),)
    ]


def _slices(sharding: Sharding, shape: tuple[int, ...]) -> tuple[IntArray, list[Ranks]]:
    """Return the different slices of a tensor that are not empty, in order, and the ranks that have each."""
    boxes = sharding.boxes(shape)
    ranks: dict[tuple[int, ...], list[int]] = {}
    for rank, box, count in zip(sharding.mesh.ranks, boxes, _counts(boxes).tolist(), strict=True):
        if count:
            ranks.setdefault(tuple(box.ravel().tolist()), []).append(rank)
    slices = sorted(ranks)
    return np.array(slices, dtype=np.int64).reshape(len(slices), len(shape), 2), [
        tuple(sorted(ranks[box])) for box in slices
    ]
