"""Base graphs of the topology finder with known schedules (direct-connect paper, Tables 8 and 9), and circulants.

The paper's Conjecture 1, that breadth-first broadcast is bandwidth-optimal on all circulants with opposite links, is
false; so T_B is computed for every set of offsets that is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cache
from math import isqrt
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...support.arrays import IntArray, distances_from
from ...topologies import bandwidth_optimum
from ...topologies.direct_connect.arcs import bidirectional_arcs, offset_names
from ...topologies.direct_connect.circulants import bidirectional_offset_sets, digraph_offset_sets
from ...topologies.direct_connect.distance_regular import DISTANCE_REGULAR
from .constructions import Base, Construction, Transpose

if TYPE_CHECKING:
    from ...solvers.steps.graph_costs import CirculantCosts

MAX_SEARCHED_DEGREE = 10  # beyond, the sets of offsets over which a step's load is a maximum are too many
MAX_SETS = 60_000
MAX_EQUALS = 100  # sets of equal cost that are looked at for what their line graphs may cost
MAX_KAUTZ_NODES = 2**15
SEARCH_EFFORT = 3 * 10**6  # for `best_circulants`: milliseconds


def best_circulants(nodes: int, degree: int, effort: int) -> tuple[BaseEntry, ...]:
    """List the searched circulants, of a fixed sample beyond the effort, that are Pareto-optimal in T_L and T_B."""
    return tuple(entry.base for entry in _search(nodes, degree, effort))


def offset_sets(nodes: int, degree: int, effort: int) -> Iterator[tuple[int, ...]]:
    """Yield the offsets of a circulant for each of the costs of `best_circulants`."""
    return (tuple(sorted(entry.equals[0].tolist())) for entry in _search(nodes, degree, effort))


def line_graph_circulants(nodes: int, degree: int, effort: int) -> tuple[Base, ...]:
    """List optimal circulant digraphs whose line graphs may cost less than Theorem 7 says."""
    promising = (_equidistant(nodes, entry.equals) for entry in _search(nodes, degree, effort))
    return tuple(circulant_of_offsets(nodes, offsets) for offsets in promising if offsets)


class _SearchResult(NamedTuple):
    """An optimal circulant, and the sets of offsets with the same cost."""

    base: BaseEntry
    equals: IntArray


@cache
def _search(nodes: int, degree: int, effort: int) -> tuple[_SearchResult, ...]:
    """Search once for `best_circulants` and `line_graph_circulants`."""
    if not 2 <= degree < min(nodes - 1, MAX_SEARCHED_DEGREE + 1):
        return ()
    limit = min(effort // (degree * (nodes + 2 ** (degree + 1))) + 1, MAX_SETS)
    one_way = _best_of(nodes, digraph_offset_sets(nodes, degree, limit))
    # Of two-way graphs of degree 2 and 4 theorems say which are best.
    two_way = () if degree in (2, 4) else _best_of(nodes, bidirectional_offset_sets(nodes, degree, limit))
    return (*one_way, *two_way)


def _best_of(nodes: int, sets: IntArray) -> Iterator[_SearchResult]:
    from ...solvers.steps.graph_costs import circulant_costs

    degree = sets.shape[1]
    costs = circulant_costs(nodes, sets)
    for place in _efficient(costs):
        offsets = tuple(sorted(sets[place].tolist()))
        factor = Fraction(int(costs.loads[place]) * degree, costs.unit * nodes)
        opposite = all(nodes - offset in offsets for offset in offsets)
        hops = int(costs.hops[place]) * nodes
        equal = (costs.steps == costs.steps[place]) & (costs.loads == costs.loads[place])
        entry = Entry(int(costs.steps[place]), factor, hops, circulant_of_offsets(nodes, offsets))
        yield _SearchResult(BaseEntry(entry, two_way=opposite), sets[np.flatnonzero(equal)[:MAX_EQUALS]])


def _equidistant(nodes: int, sets: IntArray) -> tuple[int, ...]:
    """Return the first set whose offsets all reach nodes of equal eccentricity, or none."""
    for row in sets.tolist():
        offsets = np.array(sorted(row))
        heads = (np.arange(nodes)[:, None] + offsets) % nodes
        hops = distances_from(0, nodes, np.repeat(np.arange(nodes), len(offsets)), heads.ravel())[nodes - offsets]
        if (hops == hops[0]).all() and hops[0] > 1:
            return tuple(offsets.tolist())
    return ()


def _efficient(costs: CirculantCosts) -> Iterator[int]:
    """Indices of Pareto-optimal sets in T_L and T_B; of equals one with the fewest hops."""
    lowest = None
    worked_out = np.flatnonzero(costs.steps)
    keys = (column[worked_out] for column in (costs.hops, costs.loads, costs.steps))
    for place in worked_out[np.lexsort(tuple(keys))].tolist():
        if lowest is None or costs.loads[place] < lowest:
            lowest = costs.loads[place]
            yield place


def circulant_of_offsets(nodes: int, offsets: tuple[int, ...]) -> Base:
    """Construct an undirected graph where possible; the offset n / 2 is for digraphs only."""
    half = tuple(offset for offset in offsets if 2 * offset < nodes)
    if offsets == (*half, *(nodes - offset for offset in reversed(half))):
        return circulant_base(nodes, half)
    return Base("circulant_digraph", (nodes, offsets), f"DirCirc({nodes}, {offset_names(offsets)})")


def circulant_base(nodes: int, offsets: tuple[int, ...]) -> Base:
    """Describe `collopt.topologies.circulant` of these offsets, in order."""
    return Base("circulant", (nodes, offsets), f"C({nodes}, {offset_names(offsets)})")


optimum = cache(bandwidth_optimum)
"""(N - 1)/N, the same object every time: what is the same needs no comparison of fractions."""


class Entry(NamedTuple):
    """A topology, or its transpose, with the cost of its schedule, and properties that expansions require."""

    steps: int  # T_L in alpha
    factor: Fraction  # T_B in M/B
    hops: int  # sum of all distances or an estimate; of two topologies alike otherwise, the one with fewer is kept
    construction: Construction  # how to build both
    simple: bool = True  # neither parallel links nor self-loops
    loop_free: bool = True  # no self-loops
    breadth_first: bool = True  # whether the cost is that of the best breadth-first broadcast
    reduce_factor: Fraction | None = None  # T_B of the reduce-scatter in M/B where it is more; T_L is the same

    @property
    def both_factors(self) -> Fraction:
        """T_B of a reduce-scatter and an allgather together."""
        return self.factor + (self.factor if self.reduce_factor is None else self.reduce_factor)

    def changed(self, extra: Fraction, times: Fraction | int = 1, **changes: Any) -> Entry:
        """Return a copy whose factors are so many times as large and `extra`, with other attributes changed too."""
        back = None if self.reduce_factor is None else self.reduce_factor * times + extra
        return self._replace(factor=self.factor * times + extra, reduce_factor=back, **changes)


class BaseEntry(NamedTuple):
    """A base graph with the properties that searches require; reverse-symmetric as in Definition 6."""

    entry: Entry
    reverse_symmetric: bool = True
    two_way: bool = False  # each link has an opposite one


def pareto(entries: Iterable[Entry], ties: int) -> list[Entry]:
    """Keep Pareto-optimal entries in T_L and T_B, for an allgather or an allreduce, and `ties` of least hops."""
    candidates = list(entries)
    kept = _front(((order_of_entry(entry), entry) for entry in candidates), ties)
    if ties > 1:
        kept_ids = {id(entry) for entry in kept}
        near = [entry for entry in by_hops(sorted(candidates, key=order_of_entry), ties) if id(entry) not in kept_ids]
        kept = sorted((*kept, *near), key=order_of_entry)
    if all(entry.reduce_factor is None for entry in kept):
        return kept
    both = [((entry.steps, entry.both_factors, entry.factor, entry.hops), entry) for entry in candidates]
    kept_ids = {id(entry) for entry in kept}
    costs = [key[:2] for key, entry in both if id(entry) in kept_ids]
    additions = [
        entry
        for entry in _front(both, ties)
        if not any(steps <= entry.steps and factors <= entry.both_factors for steps, factors in costs)
    ]
    return sorted((*kept, *additions), key=order_of_entry)


_Key = tuple[int, Fraction, Fraction, int]


def _front(entries: Iterable[tuple[_Key, Entry]], ties: int) -> list[Entry]:
    """Pareto front by the first two numbers of the keys; of ties keep the least third, with different fourth."""
    by_steps: dict[int, list[tuple[_Key, Entry]]] = {}
    for row in entries:
        by_steps.setdefault(row[0][0], []).append(row)
    kept: list[Entry] = []
    lowest: Fraction | None = None
    for _, rows in sorted(by_steps.items(), key=itemgetter(0)):
        # Few are ever kept, and sorting would compare the fractions of all.
        factor, second = min(key[1:3] for key, _ in rows)
        if lowest is None or factor < lowest:
            lowest = factor
            kept += by_hops((entry for key, entry in rows if key[1:3] == (factor, second)), ties)
    return kept


def by_hops(entries: Iterable[Entry], ties: int) -> list[Entry]:
    """Keep the first entry for each of the least sums of hops."""
    firsts: dict[int, Entry] = {}
    for entry in entries:
        firsts.setdefault(entry.hops, entry)
    return [firsts[hops] for hops in sorted(firsts)[:ties]]


def order_of_entry(entry: Entry) -> _Key:
    """Sort by T_L, then T_B of an allgather, then of a reduce-scatter, then hops."""
    steps, factor, hops, *_, back = entry
    return steps, factor, factor if back is None else back, hops


KNOWN_GRAPHS = {
    (8, 2): (
        (Base("diamond", (), "Diamond"), 3, 106, False),
        (Base("modified_de_bruijn", (2, 3), "DBJMod(2, 3)"), 4, 112, True),
    ),
    (16, 2): ((Base("modified_de_bruijn", (2, 4), "DBJMod(2, 4)"), 5, 650, False),),
    (9, 3): ((Base("modified_de_bruijn", (3, 2), "DBJMod(3, 2)"), 3, 117, False),),
    (16, 4): ((Base("modified_de_bruijn", (4, 2), "DBJMod(4, 2)"), 3, 446, False),),
}
"""Graphs that a bandwidth-optimal schedule is kept with, as it is not breadth-first, by size and degree.

With each its T_L, sum of hops, and whether it is reverse-symmetric; reduce-scatters take as long.
"""


def bases(nodes: int, degree: int) -> Iterator[BaseEntry]:
    """List the bases with so many nodes and ports, those first that are preferred of equal cost and hops."""
    yield from _optimal_bases(nodes, degree)
    for base, steps, hops, reverse_symmetric in KNOWN_GRAPHS.get((nodes, degree), ()):
        yield BaseEntry(Entry(steps, optimum(nodes), hops, base, breadth_first=False), reverse_symmetric)
    if nodes == degree >= 2:
        # The de Bruijn graph of one node, with self-loops only; its line graphs are the others.
        loops = Base("de_bruijn", (degree, 1), f"DBJ({degree}, 1)")
        entry = Entry(1, Fraction(1), nodes * (nodes - 1), loops, simple=False, loop_free=False)
        yield BaseEntry(entry, two_way=True)
    if degree >= 2 and degree + 1 < nodes <= MAX_KAUTZ_NODES:
        yield _kautz(nodes, degree)


def bandwidth_optimal_bases(nodes: int, degree: int) -> Iterator[BaseEntry]:
    """List the bases that Theorem 13 applies to: simple graphs with a bandwidth-optimal breadth-first broadcast."""
    return (base for base in _optimal_bases(nodes, degree) if base.entry.simple)


def _optimal_bases(nodes: int, degree: int) -> Iterator[BaseEntry]:
    """List reverse-symmetric bases with a bandwidth-optimal breadth-first broadcast."""

    def entry(base: Base, steps: int, hops: int, *, simple: bool = True, two_way: bool = True) -> BaseEntry:
        return BaseEntry(Entry(steps, optimum(nodes), hops, base, simple=simple), two_way=two_way)

    if nodes == degree + 1:
        yield entry(Base("complete", (nodes,), f"K({nodes})"), 1, nodes * degree)
    if nodes == 2 * degree >= 4:
        base = Base("complete_bipartite", (degree,), f"K({degree}, {degree})")
        yield entry(base, 2, nodes * (degree + 2 * (degree - 1)))
    if nodes == degree + 2 >= 4:
        base = Base("directed_circulant", (degree,), f"DirCirc({degree})")
        yield entry(base, 2, nodes * (degree + 2), two_way=False)
    if nodes >= 2 and degree >= 1:
        base = Base("unidirectional_ring", (degree, nodes), f"UniRing({degree}, {nodes})")
        yield entry(base, nodes - 1, nodes * nodes * (nodes - 1) // 2, simple=degree == 1, two_way=False)
    if nodes >= 3 and degree >= 2 and degree % 2 == 0:
        base = Base("bidirectional_ring", (degree, nodes), f"BiRing({degree}, {nodes})")
        yield entry(base, nodes // 2, nodes * (nodes * nodes // 4), simple=degree == 2)
    if degree == 4 and nodes > 6:
        # The circulant graph of degree 4 with the least diameter (Theorem 22).
        from ...solvers.steps.graph_costs import hop_sums

        offset = isqrt(2 * nodes - 1) // 2
        offset += (2 * offset + 1) ** 2 < 2 * nodes - 1
        elements = np.array([[offset, offset + 1, nodes - offset, nodes - offset - 1]])
        hops = nodes * int(hop_sums(nodes, np.ones(1, dtype=np.int64), elements)[0])
        yield entry(circulant_base(nodes, (offset, offset + 1)), offset, hops)
    if degree == 4 and nodes in DISTANCE_REGULAR:
        distances = _distances(nodes)
        base = Base("distance_regular", (nodes,), f"DistReg(4, {nodes})")
        yield entry(base, int(distances.max()), nodes * int(distances.sum()))


@cache
def _distances(nodes: int) -> IntArray:
    """Hops from one node of a distance-regular graph to each, which are as many from any other."""
    tails, heads = bidirectional_arcs(DISTANCE_REGULAR[nodes].edges()).T
    return distances_from(0, nodes, tails, heads)


def _kautz(nodes: int, degree: int) -> BaseEntry:
    """The generalized Kautz graph, or its transpose if that has the better allgather."""
    from ...solvers.steps.graph_costs import kautz_figures, kautz_transpose_factor

    steps, factor, hops = kautz_figures(degree, nodes)
    back = kautz_transpose_factor(degree, nodes)
    simple = nodes % (degree + 1) == 0
    construction: Construction = Base("generalized_kautz", (degree, nodes), f"Π({degree}, {nodes})")
    if back < factor:
        construction, factor, back = Transpose(construction), back, factor
    entry = Entry(steps, factor, hops, construction, simple=simple, loop_free=simple)
    return BaseEntry(entry if back == factor else entry._replace(reduce_factor=back), reverse_symmetric=False)
