"""What the ranks tell each other of their tensors, and whether it fits together."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import ProgramError, UnsupportedError
from ...support.validation import shown
from ..execution.arguments import check_tensor, import_torch, overlap
from .cells import Rules, TensorMove, find_rule
from .sharding import Sharding

MAX_NAME = 1000


class LocalTensor(NamedTuple):
    """A tensor of one rank; `full` and `sharding` are those of a DTensor."""

    dtype: str
    shape: tuple[int, ...]
    full: tuple[int, ...] | None
    sharding: Sharding | None


class RankSpec(NamedTuple):
    """The tensors of one rank."""

    state: dict[str, LocalTensor]
    output: dict[str, LocalTensor] | None

    def encoded(self) -> bytes:
        """Return the spec as compressed JSON."""
        parts = [None if part is None else [[name, *_row(tensor)] for name, tensor in part.items()] for part in self]
        return zlib.compress(json.dumps(parts).encode())

    @classmethod
    def decoded(cls, data: bytes) -> RankSpec:
        """Read what `encoded` returns."""
        state, output = json.loads(zlib.decompress(data))
        return cls(_table(state), None if output is None else _table(output))


def _row(tensor: LocalTensor) -> list[Any]:
    sharding = None if tensor.sharding is None else tensor.sharding.to_json()
    return [tensor.dtype, tensor.shape, tensor.full, sharding]


def _table(rows: list[Any]) -> dict[str, LocalTensor]:
    return {
        name: LocalTensor(
            dtype,
            tuple(shape),
            None if full is None else tuple(full),
            None if sharding is None else Sharding.from_json(sharding),
        )
        for name, dtype, shape, full, sharding in rows
    }


def read_tensors(value: object, what: str, ranks: Sequence[int]) -> tuple[dict[str, Any], dict[str, LocalTensor]]:
    """Return a state dict's own tensors on this rank, and their description, by name.

    Raises `UnsupportedError` for anything but a flat mapping from names to contiguous tensors.  `ranks` are those of
    the group among all.
    """
    if not isinstance(value, Mapping):
        raise UnsupportedError(f"the {what} is {shown(value)}; expected a mapping from names to tensors")
    tensors, table = {}, {}
    for name, entry in value.items():
        if not isinstance(name, str) or not name or len(name) > MAX_NAME:
            raise UnsupportedError(f"the {what} has a tensor called {shown(name)}; expected text")
        is_dtensor = hasattr(entry, "to_local") and hasattr(entry, "placements")
        # The tensor itself, without a graph of gradients.
        own = entry.detach().to_local() if is_dtensor else entry
        check_tensor(f"{what}[{name!r}]", own)
        sharding = Sharding(entry.device_mesh, entry.placements).on_ranks(ranks) if is_dtensor else None
        full = tuple(entry.shape) if is_dtensor else None
        table[name] = LocalTensor(str(own.dtype).removeprefix("torch."), tuple(own.shape), full, sharding)
        tensors[name] = own.detach()
    if len({tensor.device for tensor in tensors.values()}) > 1:
        raise UnsupportedError(f"the tensors of the {what} are on several devices; expected one")
    return tensors, table


def check_apart(state: Mapping[str, Any], output: Mapping[str, Any]) -> None:
    """Refuse output tensors that share memory with each other or with the state."""
    named = [("state", name, tensor) for name, tensor in state.items()]
    named += [("output", name, tensor) for name, tensor in output.items()]
    named = sorted((row for row in named if row[2].numel()), key=lambda row: row[2].data_ptr())
    last = next(iter(named), None)  # Of those so far the one that ends last
    for row in named[1:]:
        assert last is not None  # There are several.
        if "output" in (row[0], last[0]) and overlap(last[2], row[2]) is not None:
            raise UnsupportedError(
                f"{last[0]}[{last[1]!r}] and {row[0]}[{row[1]!r}] share memory; give every tensor of the output its own"
            )
        last = max(last, row, key=lambda row: _end(row[2]))


def _end(tensor: Any) -> int:
    return int(tensor.data_ptr() + tensor.numel() * tensor.element_size())


class MovedTensor(NamedTuple):
    """A tensor that all ranks agree on."""

    move: TensorMove
    dtype: str


def merged(specs: Sequence[RankSpec], source: Rules | None, target: Rules | None) -> list[MovedTensor]:
    """Join what all ranks say of their tensors, in the order of the first rank that has each.

    Raises `ProgramError`, the same on all ranks, if it does not fit together.
    """
    states = [spec.state for spec in specs]
    outputs = [spec.output or {} for spec in specs]
    writes = any(spec.output is not None for spec in specs)
    names = list(dict.fromkeys(name for state in states for name in state))
    strays = [name for output in outputs for name in output if name not in set(names)]
    if strays:
        raise ProgramError(f"the output has tensor {strays[0]!r}, which no rank has in its state")
    result = []
    for name in names:
        try:
            before = _sharding("source", name, states, source)
            after = _sharding("target", name, outputs, target)
            dtype, shape = _checked("state", "source", name, states, before, None)
            if writes:
                _checked("output", "target", name, outputs, after, (dtype, shape))
            after.boxes(shape)
        except UnsupportedError as error:
            raise ProgramError(f"tensor {name!r}: {error}") from None
        result.append(MovedTensor(TensorMove(name, shape, _itemsize(dtype), before, after), dtype))
    return result


def _itemsize(dtype: str) -> int:
    torch, _ = import_torch()
    return int(getattr(torch, dtype).itemsize)


def _entries(name: str, tables: Sequence[Mapping[str, LocalTensor]]) -> Iterator[tuple[int, LocalTensor]]:
    return ((rank, table[name]) for rank, table in enumerate(tables) if name in table)


def _sharding(side: str, name: str, tables: Sequence[Mapping[str, LocalTensor]], rules: Rules | None) -> Sharding:
    """Return the sharding of a tensor by the rules, or by the DTensors of all ranks."""
    stated = [(rank, tensor.sharding) for rank, tensor in _entries(name, tables) if tensor.sharding is not None]
    if rules is None and not stated:
        raise UnsupportedError(f"no {side} is given and no rank has it as a DTensor; give {side}=")
    first = find_rule(rules, name, side) if rules is not None else stated[0][1]
    place = f"the argument {side}" if rules is not None else f"rank {stated[0][0]}"
    assert first is not None  # `stated` leaves others out.
    for rank, sharding in stated:
        if sharding is not None and sharding != first:
            texts = ", ".join(map(str, sharding.placements))
            raise UnsupportedError(f"rank {rank} has it on {sharding.mesh} as {texts}; {place} says otherwise")
    return first


def _checked(
    what: str,
    side: str,
    name: str,
    tables: Sequence[Mapping[str, LocalTensor]],
    sharding: Sharding,
    expected: tuple[str, tuple[int, ...]] | None,
) -> tuple[str, tuple[int, ...]]:
    """Check the tensors of one name on all ranks of a mesh; return their type and the full shape."""
    mesh, entries = sharding.mesh, dict(_entries(name, tables))
    if max(mesh.ranks) >= len(tables):
        raise UnsupportedError(f"the {side} has rank {max(mesh.ranks)}; the group has {len(tables)} ranks")
    for rank in mesh.ranks:
        if rank not in entries:
            raise UnsupportedError(f"rank {rank} does not have it in its {what}, but is in the mesh of the {side}")
    if strays := [rank for rank in entries if rank not in mesh.ranks and entries[rank].sharding is None]:
        raise UnsupportedError(f"rank {strays[0]} has it in its {what}, but is not in the mesh of the {side}")
    first = entries[mesh.ranks[0]]
    dtype, shape = expected or (first.dtype, _full_shape(sharding, entries))
    boxes = sharding.boxes(shape)
    for rank, box in zip(mesh.ranks, boxes, strict=True):
        tensor, local = entries[rank], tuple((box[:, 1] - box[:, 0]).tolist())
        if tensor.dtype != dtype:
            raise UnsupportedError(f"it is {tensor.dtype} in the {what} of rank {rank}; expected {dtype}")
        if tensor.shape != local or tensor.full not in (None, shape):
            raise UnsupportedError(
                f"the {what} of rank {rank} has shape {tensor.shape}; expected {local}, its part of {shape}"
            )
    return dtype, shape


def _full_shape(sharding: Sharding, entries: Mapping[int, LocalTensor]) -> tuple[int, ...]:
    """Return the full shape of a tensor: in split dimensions the sum of its shards' sizes."""
    mesh, first = sharding.mesh, entries[sharding.mesh.ranks[0]]
    if first.full is not None:
        return first.full
    grid, rank_count, shape = np.reshape(mesh.ranks, mesh.shape), len(first.shape), list(first.shape)
    for axes in _axes_by_dim(sharding, rank_count).values():
        dim = sharding.placements[axes[0]].dim % rank_count
        ranks = grid[tuple(slice(None) if axis in axes else 0 for axis in range(grid.ndim))].ravel().tolist()
        parts = [entries[rank].shape for rank in ranks]
        if any(len(part) != rank_count for part in parts):
            raise UnsupportedError(f"its shards have different numbers of dimensions: {sorted(set(map(len, parts)))}")
        shape[dim] = sum(part[dim] for part in parts)
    return tuple(shape)


def _axes_by_dim(sharding: Sharding, dims: int) -> dict[int, list[int]]:
    """Return the axes of a mesh that split each dimension."""
    axes: dict[int, list[int]] = {}
    for axis in sharding.order:
        dim = sharding.placements[axis].dim
        if not -dims <= dim < dims:
            raise UnsupportedError(f"it has {dims} dimensions and is to be split along dimension {dim}")
        axes.setdefault(dim % dims, []).append(axis)
    return axes
