"""Meshes of ranks and placements on them, as PyTorch's DTensor has them, and the part of a tensor on each rank.

Shards are those of ``torch.chunk``: ceil(n / k) rows each, as long as there are rows; the last ones may be short or
empty (torch 2.13, ``distributed/tensor/placement_types.py``, ``local_shard_size_and_offset``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import TopologyError, UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import as_integers, as_whole, shown


@dataclass(frozen=True)
class Shard:
    """A placement: the tensor is split along a dimension.

    Attributes
    ----------
    dim : int
        Negative ones count from the last.
    split_factor : int
        Shards into which axes further right split the same dimension before this one does, as FSDP does with tensors
        of tensor parallelism, whose placement DTensor calls ``_StridedShard``.
    """

    dim: int
    split_factor: int = 1

    def __post_init__(self) -> None:
        as_whole(self.dim, "the dimension of a shard", low=-64, high=63)
        as_whole(self.split_factor, "split_factor")


@dataclass(frozen=True)
class Replicate:
    """A placement: every rank along the axis has the same data."""


Placement = Shard | Replicate


@dataclass(frozen=True)
class Mesh:
    """Ranks in a grid.

    Attributes
    ----------
    ranks : tuple of int
        The rank at each place, row by row; given as a grid, such as ``range(8)`` or ``np.arange(8).reshape(2, 4)``.
    names : tuple of str
        Of the axes, such as ``("dp", "tp")``, if they have any; meshes that differ in names only are equal.
    shape : tuple of int

    Examples
    --------
    >>> Mesh(np.arange(8).reshape(2, 4), ("dp", "tp")).shape
    (2, 4)
    """

    ranks: Any
    names: tuple[str, ...] = field(default=(), compare=False)
    shape: tuple[int, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        listed = list(self.ranks) if isinstance(self.ranks, range) else self.ranks
        try:
            grid = as_integers(listed, "the ranks of a mesh", "a grid of whole numbers")
        except TopologyError as error:
            raise UnsupportedError(str(error)) from None
        ranks = grid.ravel().tolist()
        if not grid.ndim or not ranks or min(ranks) < 0 or len(set(ranks)) < len(ranks):
            raise UnsupportedError(f"the ranks of a mesh are {shown(ranks)}; expected each rank once, from 0")
        names = tuple(self.names or ())
        if names and (len(set(names)) < len(names) or len(names) != grid.ndim):
            raise UnsupportedError(
                f"the axes of a mesh are called {shown(names)}; expected {grid.ndim} names, all different"
            )
        object.__setattr__(self, "ranks", tuple(ranks))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "shape", grid.shape)

    def __str__(self) -> str:
        """Name the shape and the ranks."""
        return f"the mesh of {' x '.join(map(str, self.shape))} ranks {shown(list(self.ranks))}"


@dataclass(frozen=True)
class Sharding:
    """A mesh, and how tensors lie on it.

    Attributes
    ----------
    mesh : Mesh
        Given as one, or as a DeviceMesh of torch.
    placements : tuple
        A `Shard` or `Replicate`, of this module or of torch, for each axis; given in order, or as a mapping from names
        of axes, in which those left out replicate.  Partial sums are refused.

    Examples
    --------
    >>> mesh = Mesh(np.arange(4).reshape(2, 2), ("dp", "tp"))
    >>> Sharding(mesh, {"tp": Shard(0)}).boxes((3, 8)).tolist()  # begin and end of each dimension
    [[[0, 2], [0, 8]], [[2, 3], [0, 8]], [[0, 2], [0, 8]], [[2, 3], [0, 8]]]
    """

    mesh: Mesh
    placements: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "mesh", as_mesh(self.mesh))
        values, mesh = self.placements, self.mesh
        if isinstance(values, Mapping):
            if unknown := sorted(set(values) - set(mesh.names), key=str):
                raise UnsupportedError(f"axis {shown(unknown[0])} is not one of {mesh}, whose are {list(mesh.names)}")
            values = [values.get(name, Replicate()) for name in mesh.names]
        if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != len(mesh.shape):
            raise UnsupportedError(
                f"the placements are {shown(values)}; expected one for each of the {len(mesh.shape)} axes of {mesh}"
            )
        object.__setattr__(self, "placements", tuple(map(as_placement, values)))

    @cached_property
    def order(self) -> list[int]:
        """Axes that split tensors, in the order in which they do: strided ones last, from right to left."""
        dims = {axis: place for axis, place in enumerate(self.placements) if isinstance(place, Shard)}
        strided = [axis for axis, place in dims.items() if place.split_factor > 1]
        for axis in strided:
            place, shape = dims[axis], self.mesh.shape
            later = prod(shape[other] for other in dims if other > axis and dims[other].dim == place.dim)
            if later != place.split_factor:
                raise UnsupportedError(
                    f"a shard of dimension {place.dim} has split_factor {place.split_factor}; expected {later}, the "
                    f"shards that later axes of {self.mesh} make of it"
                )
        return [axis for axis in dims if axis not in strided] + strided[::-1]

    def boxes(self, shape: Sequence[int]) -> IntArray:
        """Return begin and end of each dimension on each rank of the mesh; int64 (ranks, dimensions, 2)."""
        return _boxes(self, tuple(shape))

    def on_ranks(self, ranks: Sequence[int]) -> Sharding:
        """Return the sharding with every rank of the mesh replaced by its place in `ranks`."""
        if list(ranks) == list(range(len(ranks))) and max(self.mesh.ranks) < len(ranks):
            return self
        places = {rank: place for place, rank in enumerate(ranks)}
        if strays := sorted(set(self.mesh.ranks) - set(places)):
            raise UnsupportedError(f"{self.mesh} has rank {strays[0]}; expected those of {shown(list(ranks))}")
        return replace(self, mesh=Mesh(np.reshape([places[rank] for rank in self.mesh.ranks], self.mesh.shape)))

    def to_json(self) -> list[Any]:
        """Return the ranks, the shape and the placements as lists; the names of axes do not count."""
        places = [[place.dim, place.split_factor] if isinstance(place, Shard) else None for place in self.placements]
        return [list(self.mesh.ranks), list(self.mesh.shape), places]

    @classmethod
    def from_json(cls, data: Any) -> Sharding:
        """Read what `to_json` returns."""
        ranks, shape, places = data
        return cls(Mesh(np.reshape(ranks, shape)), [Shard(*place) if place else Replicate() for place in places])


@lru_cache(maxsize=4096)
def _boxes(sharding: Sharding, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    mesh = sharding.mesh
    places = np.indices(mesh.shape).reshape(len(mesh.shape), -1)
    begins = np.zeros((len(mesh.ranks), len(shape)), dtype=np.int64)
    sizes = begins + np.array(shape, dtype=np.int64)
    for axis in sharding.order:
        placement, count = sharding.placements[axis], mesh.shape[axis]
        if not -len(shape) <= placement.dim < len(shape):
            raise UnsupportedError(
                f"a tensor of shape {shape} is to be split along dimension {placement.dim}, which it does not have"
            )
        dim = placement.dim % len(shape)
        if placement.split_factor > 1 and (sizes[:, dim] % count).any():
            raise UnsupportedError(
                f"dimension {dim} of a tensor of shape {shape} does not divide by the {count * placement.split_factor} "
                "shards of a strided placement; choose another placement"
            )
        step = -(-sizes[:, dim] // count)
        offset = np.minimum(step * places[axis], sizes[:, dim])
        begins[:, dim] += offset
        sizes[:, dim] = np.minimum(step, sizes[:, dim] - offset)
    boxes = np.stack([begins, begins + sizes], axis=2)
    boxes.flags.writeable = False
    return boxes


def as_mesh(value: object) -> Mesh:
    """Return a `Mesh`, also of a DeviceMesh of torch, whose ranks are those of all processes."""
    if isinstance(value, Mesh):
        return value
    grid: Any = getattr(value, "mesh", None)
    if grid is None or not hasattr(value, "mesh_dim_names"):
        raise UnsupportedError(f"the mesh is {shown(value)}; expected a Mesh, or a DeviceMesh of torch")
    return Mesh(grid.tolist(), tuple(value.mesh_dim_names or ()))


def as_placement(value: object) -> Placement:
    """Return a placement, also of one of torch; `UnsupportedError` for partial sums and anything else."""
    if isinstance(value, (Shard, Replicate)):
        return value
    kind = type(value).__name__
    if kind == "Replicate":
        return Replicate()
    if kind in ("Shard", "_StridedShard"):
        return Shard(int(value.dim), int(getattr(value, "split_factor", 1)))  # type: ignore[attr-defined]
    hint = "; add up its parts first, as redistribute to Replicate() does" if "Partial" in kind else ""
    raise UnsupportedError(f"a placement is {shown(value)}; expected Shard or Replicate{hint}")


def as_sharding(value: object) -> Sharding:
    """Return a `Sharding`, also of a pair of a mesh and its placements."""
    if isinstance(value, Sharding):
        return value
    if isinstance(value, tuple) and len(value) == 2:
        return Sharding(*value)
    raise UnsupportedError(f"a sharding is {shown(value)}; expected a Sharding, or a mesh and its placements")


def cache_sharding(ranks: Sequence[int], heads: int, dim: int = 1) -> Sharding:
    """Shard a key-value cache by heads over the ranks of an engine, as tensor parallelism does.

    Where there are more ranks than heads, runs of neighbors have the same head.

    Parameters
    ----------
    ranks : sequence of int
        Of the prefill or decode engine.
    heads : int
        Key-value heads; they divide the ranks, or the ranks them.
    dim : int
        Dimension of heads in the cache.

    Examples
    --------
    >>> cache_sharding(range(4), heads=2).boxes((1, 2, 128))[:, 1].tolist()
    [[0, 1], [0, 1], [1, 2], [1, 2]]
    """
    as_whole(heads, "heads")
    ranks = list(ranks)
    shards = min(heads, max(len(ranks), 1))
    if len(ranks) % shards or heads % shards:
        raise UnsupportedError(f"{heads} heads do not divide by {len(ranks)} ranks; expected a multiple or a divisor")
    return Sharding(Mesh(np.reshape(ranks, (shards, -1))), (Shard(dim), Replicate()))


def expert_shardings(placement: Mapping[str, Sequence[int]]) -> dict[str, Sharding]:
    """Return the sharding of each expert's tensors, which lie whole on some ranks.

    Parameters
    ----------
    placement : mapping
        From the name of a tensor, or a pattern such as ``"experts.3.*"``, to the ranks that have it.
    """
    return {name: Sharding(Mesh(list(ranks)), (Replicate(),)) for name, ranks in placement.items()}
