"""Data whose result every rank knows beforehand, element by element, so that wrong ones can be counted.

Each rank's numbers repeat every `PERIOD` elements, a prime, so that what any rank has anywhere, and what all of them
come to, follows from one small table per rank and no communication.  Numbers are small whole ones: however a sum is
put together, the magnitudes of its parts add up to no more than the element type holds exactly, so every order gives
the same bits.  Factors are 1 and -1, and 2 on one rank only.  Averages alone are not exact, since libraries divide
before or after they add; they may be off by ``N`` units of rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np

from ....schedules import BROADCAST, REDUCE, Collective
from ...distributed.rounds.batches import shard_elements
from ...programs.layout import Layout

PERIOD = 8191
EXACT = {"int8": 127, "uint8": 255, "bfloat16": 2**8, "float16": 2**11}
"""Up to where whole numbers are exact; more than enough for the other types is `ENOUGH`."""
ENOUGH = 2**16
SPREAD = 100
"""Magnitude of what minima and maxima are taken of."""


@dataclass(frozen=True)
class Question:
    """What is asked of one rank.

    `layout`: Of the collective.
    `elements`: Of the whole collective; of an all-to-all(v), those of all ranks together.
    `dtype`: By torch's name.
    """

    layout: Layout
    num_ranks: int
    rank: int
    elements: int
    dtype: str
    op: str = "sum"
    seed: int = 0

    @property
    def collective(self) -> Collective:
        """What is asked."""
        return self.layout.collective

    @property
    def own(self) -> Literal["input", "output"] | None:
        """Which of the two is a rank's shard, where every rank has one."""
        if not self.collective.is_sharded:
            return None
        return "input" if self.collective.input == "shard" else "output"

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """Elements of each shard."""
        return shard_elements(self.layout, self.elements)

    @property
    def parts_out(self) -> tuple[int, ...]:
        """Elements for each rank, of an all-to-all(v)."""
        return self.shares[self.rank * self.num_ranks : (self.rank + 1) * self.num_ranks]

    @property
    def parts_in(self) -> tuple[int, ...]:
        """Elements from each rank, of an all-to-all(v)."""
        return self.shares[self.rank :: self.num_ranks]

    @property
    def begin(self) -> int:
        """Where this rank's shard stands in the whole, of allgather and reduce_scatter."""
        return sum(self.shares[: self.rank])

    @property
    def input_elements(self) -> int:
        """Of this rank."""
        if self.layout.in_pairs:
            return sum(self.parts_out)
        return self.shares[self.rank] if self.own == "input" else self.elements

    @property
    def output_elements(self) -> int:
        """Of this rank."""
        if self.layout.in_pairs:
            return sum(self.parts_in)
        return self.shares[self.rank] if self.own == "output" else self.elements

    @property
    def has_input(self) -> bool:
        """Whether this rank contributes."""
        return self.collective is not BROADCAST or self.rank == self.layout.root

    @property
    def has_output(self) -> bool:
        """Whether this rank's output counts."""
        return self.collective is not REDUCE or self.rank == self.layout.root


class _Piece(NamedTuple):
    """Elements of a table that repeats, from number `begin` on."""

    table: np.ndarray[Any, Any]
    begin: int
    elements: int


def make_tensors(question: Question, together: bool, device: Any) -> tuple[Any, Any]:
    """Make a rank's output and input, of which nothing is known yet."""
    import torch

    def empty(elements: int) -> Any:
        return torch.empty(elements, dtype=getattr(torch, question.dtype), device=device)

    if not together:
        return empty(question.output_elements), empty(question.input_elements)
    whole = empty(question.elements)
    if question.own == "input":
        return whole, whole[question.begin : question.begin + question.input_elements]
    if question.own == "output":
        return whole[question.begin : question.begin + question.output_elements], whole
    return whole, whole


def fill_input(question: Question, tensor: Any) -> None:
    """Write a rank's input."""
    _write([_Piece(_table(question, question.rank), 0, tensor.numel())], tensor)


def make_expected(question: Question, like: Any) -> Any:
    """Return what a rank's output has to be, with the shape, type and place of `like`."""
    import torch

    expected = torch.empty_like(like)
    _write(list(_result(question)), expected)
    return expected


def fill_wrong(output: Any, expected: Any) -> None:
    """Make every element wrong, so that none can be right by chance."""
    import torch

    output.view(torch.uint8).copy_(~expected.view(torch.uint8))


def wrong_elements(question: Question, output: Any, expected: Any) -> int:
    """Count the elements that are not what they have to be."""
    import torch

    if question.op == "avg" and question.layout.reduces:
        tolerance = question.num_ranks * torch.finfo(expected.dtype).eps * expected.double().abs()
        # Written so that a NaN is wrong.
        right = (output.double() - expected.double()).abs() <= tolerance
    else:
        right = output == expected
    return int(right.numel() - right.sum().item())


def _result(question: Question) -> Iterator[_Piece]:
    if question.layout.reduces:
        begin = question.begin if question.own == "output" else 0
        yield _Piece(_combined(question), begin, question.output_elements)
    elif question.layout.in_pairs:
        for owner, elements in enumerate(question.parts_in):
            first = owner * question.num_ranks
            begin = sum(question.shares[first : first + question.rank])
            yield _Piece(_table(question, owner), begin, elements)
    else:
        # A broadcast is an allgather in which only the root has a shard.
        for owner, elements in enumerate(question.shares):
            yield _Piece(_table(question, owner), 0, elements)


def _write(pieces: Sequence[_Piece], tensor: Any) -> None:
    import torch

    ends = accumulate(piece.elements for piece in pieces)
    for piece, end in zip(pieces, ends, strict=True):
        turned = np.roll(piece.table, -(piece.begin % PERIOD))
        values = torch.from_numpy(turned).to(tensor.dtype).to(tensor.device)
        target = tensor[end - piece.elements : end]
        whole = piece.elements // PERIOD * PERIOD
        target[:whole].view(-1, PERIOD).copy_(values)
        target[whole:].copy_(values[: piece.elements - whole])


def _table(question: Question, rank: int) -> np.ndarray[Any, Any]:
    """What a rank has: whole numbers, one for each element of a period."""
    kind = question.op if question.layout.reduces else "none"
    return _numbers(kind, question.dtype, rank, question.num_ranks, question.seed)


@lru_cache(maxsize=64)
def _numbers(kind: str, dtype: str, rank: int, num_ranks: int, seed: int) -> np.ndarray[Any, Any]:
    random, places = np.random.default_rng([rank, seed]), np.arange(PERIOD)
    exact = EXACT.get(dtype, ENOUGH)
    if kind == "none":
        return random.integers(0, exact + 1, PERIOD)
    if kind in ("min", "max"):
        return random.integers(0 if dtype == "uint8" else -SPREAD, SPREAD + 1, PERIOD)
    if kind == "prod":
        return np.where(places % num_ranks == rank, 2, random.choice([-1, 1], PERIOD))
    # With more ranks than the type can count, each element has contributions from only some of them.
    groups = -(-num_ranks // exact)
    most = exact // -(-num_ranks // groups)
    return np.where((places - rank) % groups == 0, random.integers(1, most + 1, PERIOD), 0)


def _combined(question: Question) -> np.ndarray[Any, Any]:
    """What all ranks' numbers come to."""
    function = {"prod": np.multiply, "min": np.minimum, "max": np.maximum}.get(question.op, np.add)
    result = _table(question, 0)
    for rank in range(1, question.num_ranks):
        result = function(result, _table(question, rank))
    return result / question.num_ranks if question.op == "avg" else result
