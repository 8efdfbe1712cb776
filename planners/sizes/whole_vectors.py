"""Allreduces in one phase along the digits of ranks: exchanges of whole vectors, or of shards of inner groups.

Ranks that differ in one digit send each other what they have and add it up, one digit after the other, the innermost
first.  Of the innermost digits any number can be reduced by a reduce-scatter instead, so that shards of their groups
are exchanged, and gathered in the end.  See Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, for both.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ...schedules import StepExchange
from ...support.arrays import FloatArray, IntArray
from ...topologies.symmetry.rank_groups import RankGroups
from .digits import Digits, Level
from .exchanges import routes_of
from .routing import Routing


class _Step(NamedTuple):
    """Exchanges along one level."""

    level: int
    adds: bool
    before: int  # Parts that the vector is divided into when the step begins
    parts: int  # Into how many more, of which each rank is sent its own


class Exchange(NamedTuple):
    """Exchange along digits, of which `scattered` ones, the innermost, are reduced by a reduce-scatter."""

    digits: Digits
    scattered: int

    @property
    def name(self) -> str:
        """Such as ``"exchange-4x8"``, or ``"exchange-4-of-shards-8"``."""
        sizes = [str(level.size) for level in self.digits.levels]
        outer, inner = sizes[: len(sizes) - self.scattered], sizes[len(sizes) - self.scattered :]
        return f"exchange-{'x'.join(outer)}" + (f"-of-shards-{'x'.join(inner)}" if inner else "")

    @property
    def steps(self) -> list[_Step]:
        """All steps, in their order."""
        reductions, divided = list[_Step](), 1
        for number in range(len(self.digits.levels) - 1, -1, -1):
            parts = self.digits.levels[number].size if len(reductions) < self.scattered else 1
            reductions.append(_Step(number, True, divided, parts))
            divided *= parts
        gathers = [step._replace(adds=False, before=step.before * step.parts, parts=1) for step in reductions]
        return reductions + gathers[: self.scattered][::-1]

    @property
    def vectors(self) -> FloatArray:
        """What each move carries in each step, in vectors, float (steps, moves)."""
        level_of = np.array([move.level for move in self.digits.moves])
        return np.array([(level_of == step.level) / (step.before * step.parts) for step in self.steps])

    @property
    def chunks(self) -> int:
        """Parts that the vector is divided into."""
        return prod(level.size for level in self.digits.levels[len(self.digits.levels) - self.scattered :])

    def sends(self, offset: int) -> tuple[IntArray, ...]:
        """Columns of all sends: steps, adds, lower and upper from `offset` on, senders and receivers."""
        level_of = np.array([move.level for move in self.digits.moves])
        first = np.full(self.digits.num_ranks, offset)  # of the chunks that a rank is to reduce
        rows: list[tuple[IntArray, ...]] = []
        for number, step in enumerate(self.steps):
            tails, heads = (ends[level_of == step.level].ravel() for ends in self.digits.partners)
            digits, width = self.digits.levels[step.level].digits, self.chunks // (step.before * step.parts)
            lower = first[tails] + (digits[heads] * width if step.parts > 1 else 0)
            numbers, adds = (np.full_like(tails, value) for value in (number, step.adds))
            rows.append((numbers, adds, lower, lower + width, tails, heads))
            if step.parts > 1:
                first += digits * width
            elif not step.adds:
                first -= digits * width
        return tuple(map(np.concatenate, zip(*rows, strict=True)))


def schedule_of(routing: Routing, parts: Sequence[Exchange]) -> StepExchange:
    """Build the schedule of exchanges of equal parts of the vector at the same time."""
    columns = [part.sends(number * part.chunks) for number, part in enumerate(parts)]
    steps, adds, lower, upper, tails, heads = map(np.concatenate, zip(*columns, strict=True))
    routes, chunks = routes_of(routing, tails, heads), parts[0].chunks * len(parts)
    return StepExchange(routing.num_ranks, chunks, steps, adds != 0, lower, upper, routes.numbers, *routes.paths)


def exchanges(groups: RankGroups, ways: Sequence[Digits], radices: Sequence[int], largest: int) -> Iterator[Digits]:
    """Yield digits to exchange along: those of `ways`, and each level of the groups in factors up to a radix."""
    ways_by_sizes = {tuple(level.size for level in digits.levels): digits for digits in ways}
    for radix in radices:
        sizes = tuple(part for size in groups.sizes for part in _factors(size, radix))
        if sizes not in ways_by_sizes:
            values = zip(np.unravel_index(groups.values, tuple(sizes)), sizes, strict=True)
            ways_by_sizes[sizes] = Digits(
                [Level(np.asarray(value, dtype=np.int64), size, size) for value, size in values]
            )
    yield from (digits for sizes, digits in ways_by_sizes.items() if max(sizes) <= largest)


def _factors(size: int, radix: int) -> list[int]:
    """Divide a size into factors, each the largest that is at most a radix; a prime one may be larger."""
    factors = []
    while size > radix:
        factor = max((divisor for divisor in range(2, radix + 1) if size % divisor == 0), default=size)
        factors.append(factor)
        size //= factor
    return factors + [size] * (size > 1)
