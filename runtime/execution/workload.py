"""Test data whose expected result every rank can compute, and that of torch's own collectives.

Each rank's numbers repeat every `PERIOD` elements, so all data follow from one small table per rank.  They are integers
so small that every order of adding gives the same bits; factors are 1 and -1, and 2 on one rank only.  Averages may be
off by ``N`` units of rounding, as libraries divide before or after.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np

from ...schedules import BROADCAST, REDUCE, Collective
from ..programs.layout import Layout
from .rank_rounds import shard_elements

PERIOD = 8191  # A prime
MAX_EXACT = {"int8": 127, "uint8": 255, "int16": 2**15 - 1, "bfloat16": 2**8, "float16": 2**11}
DEFAULT_MAX_EXACT = 2**16  # Integers up to which other types are exact, as far as is needed
MAX_MAGNITUDE = 100  # Magnitude of data for minima and maxima


class _Piece(NamedTuple):
    """Elements of a periodic table from index `begin` on."""

    table: np.ndarray[Any, Any]
    begin: int
    elements: int


@dataclass(frozen=True)
class Workload:
    """A collective at one size, on one rank."""

    layout: Layout
    num_ranks: int
    rank: int
    elements: int  # Of the whole collective; of an all-to-all(v), those of all ranks together
    dtype: str  # By torch's name
    op: str = "sum"
    seed: int = 0

    @property
    def collective(self) -> Collective:
        """Collective of the layout."""
        return self.layout.collective

    @property
    def own(self) -> Literal["input", "output"] | None:
        """Name of the tensor that is a rank's shard, if every rank has one."""
        if not self.collective.is_sharded:
            return None
        return "input" if self.collective.input == "shard" else "output"

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """Elements of each shard."""
        return shard_elements(self.layout, self.elements)

    @property
    def send_counts(self) -> tuple[int, ...]:
        """Elements sent to each rank in an all-to-all(v)."""
        return self.shares[self.rank * self.num_ranks : (self.rank + 1) * self.num_ranks]

    @property
    def recv_counts(self) -> tuple[int, ...]:
        """Elements received from each rank in an all-to-all(v)."""
        return self.shares[self.rank :: self.num_ranks]

    @property
    def begin(self) -> int:
        """Offset of this rank's shard in an allgather or reduce_scatter."""
        return sum(self.shares[: self.rank])

    @property
    def input_elements(self) -> int:
        """Number of elements on this rank."""
        return sum(self.send_counts) if self.layout.in_pairs else self._elements_of("input")

    @property
    def output_elements(self) -> int:
        """Number of elements on this rank."""
        return sum(self.recv_counts) if self.layout.in_pairs else self._elements_of("output")

    def _elements_of(self, name: str) -> int:
        return self.shares[self.rank] if self.own == name else self.elements

    @property
    def has_input(self) -> bool:
        """Whether this rank has an input."""
        return self.collective is not BROADCAST or self.rank == self.layout.root

    @property
    def has_output(self) -> bool:
        """Whether this rank has an output."""
        return self.collective is not REDUCE or self.rank == self.layout.root

    def make_tensors(self, in_place: bool, device: Any) -> tuple[Any, Any]:
        """Allocate a rank's output and input."""
        import torch

        def empty(elements: int) -> Any:
            return torch.empty(elements, dtype=getattr(torch, self.dtype), device=device)

        if not in_place:
            return empty(self.output_elements), empty(self.input_elements)
        buffer = empty(self.elements)
        shard = buffer[self.begin :][: self.shares[self.rank]] if self.own else buffer
        return (shard, buffer) if self.own == "output" else (buffer, shard)

    def fill_input(self, tensor: Any) -> None:
        """Write a rank's input."""
        _write([_Piece(self._table(self.rank), 0, tensor.numel())], tensor)

    def fill_random(self, tensor: Any) -> None:
        """Write a rank's input: random bytes, so all bit patterns, where data moves only, else as `fill_input` does."""
        import torch

        if self.layout.reduces:
            self.fill_input(tensor)
            return
        generator = torch.Generator().manual_seed(self.seed * self.num_ranks + self.rank)
        size = tensor.numel() * tensor.element_size()
        tensor.view(torch.uint8).copy_(torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator))

    def make_expected(self, like: Any) -> Any:
        """Return the correct output of a rank, with the shape, type and device of `like`."""
        import torch

        expected = torch.empty_like(like)
        _write(list(self._result()), expected)
        return expected

    def by_torch(self, mine: Any) -> Any:
        """Let torch's own collectives find out the output, in wider types if they add; all ranks call this together."""
        import torch
        import torch.distributed as dist

        kind, size = mine.dtype, mine.element_size()
        result = torch.empty(self.output_elements, dtype=kind, device=mine.device)
        parts: Any = result.view(torch.uint8)
        if self.layout.in_pairs:
            takes, sends = ([size * part for part in counts] for counts in (self.recv_counts, self.send_counts))
            dist.all_to_all_single(parts, mine.view(torch.uint8), takes, sends)
            return result
        if not self.layout.reduces:
            for owner, part in enumerate(parts.split([size * share for share in self.shares])):
                if owner == self.rank:
                    part.copy_(mine.view(torch.uint8)[: len(part)])
                if len(part):
                    dist.broadcast(part, src=owner)
            return result
        is_exact = not (kind.is_floating_point or kind.is_complex)
        value = mine.to(torch.int64 if is_exact else torch.promote_types(kind, torch.float64), copy=True)
        op = "SUM" if self.op == "avg" else {"prod": "PRODUCT"}.get(self.op, self.op.upper())
        dist.all_reduce(value, op=getattr(dist.ReduceOp, op))
        if self.op == "avg":
            value /= self.num_ranks
        begin = self.begin if self.own == "output" else 0
        return value[begin : begin + self.output_elements].to(kind)

    def count_wrong(self, output: Any, expected: Any) -> int:
        """Count the elements that differ from the correct ones: in any bit where data moves only."""
        import torch

        if not self.layout.reduces:
            differ = output.view(torch.uint8) != expected.view(torch.uint8)
            return int(differ.view(-1, output.element_size()).any(dim=1).sum().item())
        if self.op == "avg":
            tolerance = self.num_ranks * torch.finfo(expected.dtype).eps * expected.double().abs()
            # Written so that a NaN is wrong.
            right = (output.double() - expected.double()).abs() <= tolerance
        else:
            right = output == expected
        return int(right.numel() - right.sum().item())

    def _result(self) -> Iterator[_Piece]:
        if self.layout.reduces:
            begin = self.begin if self.own == "output" else 0
            yield _Piece(self._combined(), begin, self.output_elements)
        elif self.layout.in_pairs:
            for owner, elements in enumerate(self.recv_counts):
                first = owner * self.num_ranks
                begin = sum(self.shares[first : first + self.rank])
                yield _Piece(self._table(owner), begin, elements)
        else:
            # A broadcast is an allgather in which only the root has a shard.
            for owner, elements in enumerate(self.shares):
                yield _Piece(self._table(owner), 0, elements)

    def _table(self, rank: int) -> np.ndarray[Any, Any]:
        """Data of a rank, integers of shape (PERIOD,)."""
        kind = self.op if self.layout.reduces else "none"
        return _numbers(kind, self.dtype, rank, self.num_ranks, self.seed)

    def _combined(self) -> np.ndarray[Any, Any]:
        """Reduction of all ranks' data, shape (PERIOD,)."""
        function = {"prod": np.multiply, "min": np.minimum, "max": np.maximum}.get(self.op, np.add)
        result = reduce(function, (self._table(rank) for rank in range(self.num_ranks)))
        return result / self.num_ranks if self.op == "avg" else result


def fill_incorrect(output: Any, expected: Any) -> None:
    """Overwrite the output so that no element is correct."""
    import torch

    output.view(torch.uint8).copy_(~expected.view(torch.uint8))


def _write(pieces: Sequence[_Piece], tensor: Any) -> None:
    import torch

    ends = accumulate(piece.elements for piece in pieces)
    for piece, end in zip(pieces, ends, strict=True):
        turned = np.roll(piece.table, -(piece.begin % PERIOD))
        values = torch.from_numpy(turned).to(tensor.dtype).to(tensor.device)
        target = tensor[end - piece.elements : end]
        full_periods = piece.elements // PERIOD * PERIOD
        target[:full_periods].view(-1, PERIOD).copy_(values)
        target[full_periods:].copy_(values[: piece.elements - full_periods])


@lru_cache(maxsize=64)
def _numbers(kind: str, dtype: str, rank: int, num_ranks: int, seed: int) -> np.ndarray[Any, Any]:
    random, places = np.random.default_rng([rank, seed]), np.arange(PERIOD)
    exact = MAX_EXACT.get(dtype, DEFAULT_MAX_EXACT)
    if kind == "none":
        return random.integers(0, exact + 1, PERIOD)
    if kind in ("min", "max"):
        return random.integers(0 if dtype == "uint8" else -MAX_MAGNITUDE, MAX_MAGNITUDE + 1, PERIOD)
    if kind == "prod":
        return np.where(places % num_ranks == rank, 2, random.choice([-1, 1], PERIOD))
    # With more ranks than the type can count, each element has contributions from only some of them.
    groups = -(-num_ranks // exact)
    highest = exact // -(-num_ranks // groups)
    return np.where((places - rank) % groups == 0, random.integers(1, highest + 1, PERIOD), 0)
