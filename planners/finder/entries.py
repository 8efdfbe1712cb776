"""What the topology finder's table is made of, and which topologies are worth keeping in it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

from ...topologies import bandwidth_optimum
from .constructions import Construction

optimum = cache(bandwidth_optimum)
"""(N - 1)/N, the same object every time: what is the same needs no comparison of fractions."""


class Entry(NamedTuple):
    """A topology, what is known of its schedule, and what may be done with it.

    `steps`: T_L in alpha.
    `factor`: T_B in M/B.
    `hops`: Sum of all distances, or an estimate of it: of two topologies that are alike otherwise, the one with fewer
        hops is kept for all-to-all.
    `recipe`: How to build both.
    `simple`: Neither parallel links nor self-loops.
    `loop_free`: No self-loops.
    `breadth_first`: `steps` and `factor` are those of the best breadth-first broadcast; otherwise that may be better or
        worse.
    `reduce_factor`: T_B of the reduce-scatter in M/B where it is another than `factor`, and then more: of a graph and
        its transpose the one with the better allgather stands for both.  T_L is the same.
    """

    steps: int
    factor: Fraction
    hops: int
    recipe: Construction
    simple: bool = True
    loop_free: bool = True
    breadth_first: bool = True
    reduce_factor: Fraction | None = None

    @property
    def both_factors(self) -> Fraction:
        """T_B of a reduce-scatter and an allgather together."""
        return self.factor + (self.factor if self.reduce_factor is None else self.reduce_factor)

    def changed(self, more: Fraction, times: Fraction | int = 1, **changes: Any) -> Entry:
        """Return a copy whose factors are so many times as large and `more`, with other attributes changed too."""
        back = None if self.reduce_factor is None else self.reduce_factor * times + more
        return self._replace(factor=self.factor * times + more, reduce_factor=back, **changes)


class BaseEntry(NamedTuple):
    """A base, and which searches may use it.

    `reverse_symmetric`: The graph with all links reversed is the same up to the order of the nodes (Definition 6).
    `two_way`: Each link has an opposite one.
    """

    entry: Entry
    reverse_symmetric: bool = True
    two_way: bool = False


def pareto(entries: Iterable[Entry], ties: int) -> list[Entry]:
    """Keep those that no other beats in T_L or T_B without losing in the other, for an allgather or for an allreduce.

    A reduce-scatter needs no list of its own, for what an entry's takes is what the allgather of its transpose takes.
    """
    found = list(entries)
    kept = _front(((order_of_entry(entry), entry) for entry in found), ties)
    if all(entry.reduce_factor is None for entry in kept):
        return kept
    both = [((entry.steps, entry.both_factors, entry.factor, entry.hops), entry) for entry in found]
    known = {id(entry) for entry in kept}
    costs = [key[:2] for key, entry in both if id(entry) in known]
    more = [
        entry
        for entry in _front(both, ties)
        if not any(steps <= entry.steps and factors <= entry.both_factors for steps, factors in costs)
    ]
    return sorted((*kept, *more), key=order_of_entry)


def fewest(entries: Iterable[Entry], ties: int) -> list[Entry]:
    """Keep those of fewest steps, where all have the same T_B."""
    found = list(entries)
    least = min((entry.steps for entry in found), default=0)
    return _by_hops((entry for entry in found if entry.steps == least), ties)


_Key = tuple[int, Fraction, Fraction, int]


def _front(entries: Iterable[tuple[_Key, Entry]], ties: int) -> list[Entry]:
    """Go by the first two numbers of the keys; in ties the third must be the least, and the fourth different."""
    by_steps: dict[int, list[tuple[_Key, Entry]]] = {}
    for row in entries:
        by_steps.setdefault(row[0][0], []).append(row)
    kept: list[Entry] = []
    least: Fraction | None = None
    for _, rows in sorted(by_steps.items(), key=itemgetter(0)):
        # Few are ever kept, and sorting would compare the fractions of all.
        factor, second = min(key[1:3] for key, _ in rows)
        if least is None or factor < least:
            least = factor
            kept += _by_hops((entry for key, entry in rows if key[1:3] == (factor, second)), ties)
    return kept


def _by_hops(alike: Iterable[Entry], ties: int) -> list[Entry]:
    """Keep one for each of the fewest sums of hops, the first."""
    by_hops: dict[int, Entry] = {}
    for entry in alike:
        by_hops.setdefault(entry.hops, entry)
    return [by_hops[hops] for hops in sorted(by_hops)[:ties]]


def order_of_entry(entry: Entry) -> _Key:
    """Sort by T_L, then T_B of an allgather, then of a reduce-scatter, then hops."""
    steps, factor, hops, *_, back = entry
    return steps, factor, factor if back is None else back, hops
