"""Topologies that the finder builds for one size, and their exact costs, by their best breadth-first broadcasts.

These can take less than theorems say, in either direction.  No theorem is about circulants with parallel links, nor
metacirculant digraphs of low mean distance, which bounds the rate of an all-to-all; both are searched.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, islice
from math import comb, gcd
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ...schedules import StepCost
from ...support.arrays import IntArray
from ...topologies import DirectGraph, bandwidth_optimum, moore_steps
from ...topologies.direct_connect.circulants import Group, low_diameter_offsets
from ..plans.stages import Trace
from .bases import (
    MAX_SEARCHED_DEGREE,
    Entry,
    best_circulants,
    circulant_base,
    circulant_of_offsets,
    line_graph_circulants,
    offset_sets,
)
from .candidate import Candidate, is_no_worse
from .constructions import Base, Construction, LineGraph, transposed
from .table import FinderTable

MAX_GROUP_ORDER = 1024
MAX_GROUPS = 64  # of one size
SET_EFFORT, MAX_SETS = 10**7, 4000  # nodes times arcs of all sets of a size, and sets of a group
MAX_TWO_WAY_SETS = 200
KEPT, SMALL = 24, 256  # digraphs of up to 256 nodes whose broadcasts are looked at; of more nodes there are fewer
MAX_WORK = 3 * 2**29
"""Nodes, squared, times links of a node, in all of the graphs that are measured: some fifteen seconds."""
LINE_GRAPH_WORK = 2**25  # the same of line graphs that are looked at because they may turn out better than theorems say
MAX_LINE_GRAPHS = 64
FLOW_WORK = 4  # how much longer it takes where links are too many for all sets of them to be looked at
CIRCULANT_TRIES = 100
CIRCULANT_EFFORT = 5 * 10**7  # about a tenth of a second

Offsets = tuple[int, ...]


def parallel_circulants(nodes: int, degree: int, effort: int, *, two_way: bool) -> Iterator[Base]:
    """List circulants in which every offset of a simple one is there equally often, and some are there once more.

    In one step T_B is ``d / (n floor(d / (n - 1)))`` M/B, which no topology beats; in more, it exceeds that of the
    simple circulant by at most the part of ports left over.
    """
    for simple in _simple_sets(nodes, effort) if degree >= nodes else ():
        copies, left = divmod(degree, len(simple))
        if left == 0 or (two_way and not _has_opposites(nodes, simple)):
            continue
        name = f"K({nodes})" if len(simple) == nodes - 1 else circulant_of_offsets(nodes, simple).name
        for extra in _extra_offsets(nodes, left, simple):
            if _has_opposites(nodes, extra) or not two_way:
                title = f"{name if copies == 1 else f'{copies}·{name}'} ∪ {circulant_of_offsets(nodes, extra).name}"
                yield Base("circulant_digraph", (nodes, (*simple * copies, *extra)), title)


def _simple_sets(nodes: int, effort: int) -> Iterator[Offsets]:
    """Yield all offsets, all but one, and those of searched circulants."""
    yield tuple(range(1, nodes))
    if nodes > 3:
        yield tuple(range(1, nodes - 1))
    for size in range(2, min(nodes - 2, MAX_SEARCHED_DEGREE + 1)):
        yield from offset_sets(nodes, size, effort)


def _extra_offsets(nodes: int, count: int, simple: Offsets) -> dict[Offsets, None]:
    """Return offsets of the ports left over: simple ones, next to each other or apart, and any with opposites."""
    spread = tuple(simple[place * len(simple) // count] for place in range(count))
    offset_sets = [simple[:count], spread]
    middle = (nodes // 2,) if count % 2 else ()
    if not middle or nodes % 2 == 0:
        half = range(1, (nodes + 1) // 2)
        for spacing in (1, max(1, 2 * len(half) // count)):
            spaced = [half[place * spacing] for place in range(count // 2)] if count // 2 * spacing <= len(half) else []
            offset_sets.append(tuple(sorted((*spaced, *middle, *(nodes - offsets for offsets in spaced)))))
    return dict.fromkeys(offsets for offsets in offset_sets if len(offsets) == count)


def _has_opposites(nodes: int, offsets: Offsets) -> bool:
    return all(nodes - offset in offsets for offset in offsets)


@cache
def low_hop_metacirculants(n: int, degree: int, *, two_way: bool) -> tuple[tuple[Base, DirectGraph], ...]:
    """List digraphs of a fixed sample by increasing mean distance; none beyond the limits of the search."""
    from ...solvers.steps.graph_costs import UNREACHABLE, hop_sums

    if n > MAX_GROUP_ORDER or not 2 <= degree < min(n - 1, MAX_SEARCHED_DEGREE + 1):
        return ()
    groups = list(islice(_groups(n), MAX_GROUPS))
    bases: list[tuple[int, int, Group, list[int]]] = []
    for group in groups:
        limit = min(SET_EFFORT // (n * degree * len(groups)) + 1, MAX_SETS)
        sets = _element_sets(group, degree, limit, two_way=two_way)
        sums = hop_sums(group.m, group.powers, sets)
        best = np.argsort(sums, kind="stable")[:KEPT].tolist()
        # Groups take turns where sums are equal, for many sets of one group differ by an automorphism only.
        bases += [(int(sums[row]), turn, group, sets[row].tolist()) for turn, row in enumerate(best)]
    listed = sorted(bases, key=itemgetter(0, 1))[: max(KEPT * SMALL // max(n, SMALL), 6)]
    kept = [(group, elements, group.graph(elements)) for hops, _, group, elements in listed if hops < UNREACHABLE]
    return tuple(
        (Base("metacirculant_digraph", (*group, tuple(elements)), graph.name), graph) for group, elements, graph in kept
    )


def _groups(n: int) -> Iterator[Group]:
    """Yield the groups of n elements that are not commutative; many are isomorphic to no other one here."""
    for k in range(2, n // 3 + 1):
        m, part = divmod(n, k)
        if part:
            continue
        for r in range(2, m):
            # Another generator of the second part, y^j, stands for r^j.
            if pow(r, k, m) == 1 and r == min(pow(r, j, m) for j in range(1, k) if gcd(j, k) == 1):
                yield Group(m, k, r)


def _element_sets(group: Group, degree: int, limit: int, *, two_way: bool) -> IntArray:
    """Return all sets of elements, or a sample, int64 (sets, degree), increasing; if two-way, with all inverses."""
    n, random = group.m * group.k, np.random.default_rng(0)
    if two_way:
        inverses = group.heads(np.arange(n)).argmin(axis=1).tolist()  # 0 is the neutral element
        units = [{element, other} for element, other in enumerate(inverses) if 0 < element <= other]
        orders = (random.permutation(len(units)) for _ in range(min(limit, MAX_TWO_WAY_SETS)))
        element_sets = (_filled((units[place] for place in order), degree) for order in orders)
        listed = sorted({tuple(sorted(element)) for element in element_sets if len(element) == degree})
        sets = np.array(listed, dtype=np.int64).reshape(-1, degree)
    elif comb(n - 1, degree) <= limit:
        sets = np.array(list(combinations(range(1, n), degree)), dtype=np.int64)
    else:
        sets = np.sort(random.random((limit, n - 1)).argpartition(degree, axis=1)[:, :degree] + 1, axis=1)
    return sets


def _filled(units: Iterator[set[int]], size: int) -> set[int]:
    """Join sets as long as no more than `size` elements come together."""
    joined: set[int] = set()
    for unit in units:
        if len(joined) + len(unit) <= size:
            joined |= unit
    return joined


class _PredictedCost(NamedTuple):
    """Cost of an iterated line graph by Theorem 7."""

    steps: int  # T_L of the base's schedule, and `times`
    factor: Fraction  # T_B in M/B
    name: str
    construction: Construction
    base: Entry
    times: int  # how many line graphs


class Costing:
    """Creates candidates of one size and degree; graphs that would take too long are counted as `unmeasured`."""

    def __init__(self, nodes: int, degree: int, *, two_way: bool, trace: Trace) -> None:
        self._nodes, self._degree, self._two_way, self._trace = nodes, degree, two_way, trace
        self._costs: dict[Construction, tuple[StepCost, StepCost]] = {}
        self._work = nodes**2 * degree * (FLOW_WORK if degree > MAX_SEARCHED_DEGREE else 1)
        self._work_left = MAX_WORK
        self.unmeasured = 0

    def of_entries(self, entries: Iterable[Entry]) -> Iterator[Candidate]:
        """Create candidates of table entries, at the cost by theorems and at that of breadth-first broadcasts."""
        for entry in entries:
            by_theorem = self.of_entry(entry)
            yield from _with_transpose(by_theorem)
            if not entry.breadth_first:
                for measured in self._exact_candidate(entry.construction, by_theorem):
                    yield from _with_transpose(measured)

    def of_entry(self, entry: Entry) -> Candidate:
        """Create a candidate at the cost by theorems, without building the graph."""
        cost = StepCost(entry.steps, entry.factor)
        back = cost if entry.reduce_factor is None else StepCost(entry.steps, entry.reduce_factor)
        return self._candidate(entry.construction, cost, back, breadth_first=entry.breadth_first)

    def of_circulants(self) -> Iterator[Candidate]:
        """Create candidates of searched circulants, of their line graphs, and of circulants with parallel links."""
        for base in best_circulants(self._nodes, self._degree, CIRCULANT_EFFORT):
            if base.two_way or not self._two_way:
                yield self.of_entry(base.entry)
        for construction in self._measured_circulants():
            yield from self._exact_candidate(construction)

    def _measured_circulants(self) -> Iterator[Construction]:
        nodes, degree = self._nodes, self._degree
        for times, size in self._line_graph_bases():
            for base in best_circulants(size, degree, CIRCULANT_EFFORT):
                # Often bandwidth-optimal beyond Theorem 7.
                yield _line_graph(base.entry.construction, times)
        if degree > MAX_SEARCHED_DEGREE and degree % 2 == 0 and nodes > degree:
            # Here `best_circulants` has none.  Its T_B may not be optimal (Conjecture 1).
            yield circulant_base(nodes, low_diameter_offsets(nodes, degree, tries=CIRCULANT_TRIES))
        yield from parallel_circulants(nodes, degree, CIRCULANT_EFFORT, two_way=self._two_way)

    def of_line_graphs(
        self, tables: Iterable[FinderTable], known_candidates: Iterable[Candidate]
    ) -> Iterator[Candidate]:
        """Create candidates of line graphs that may beat a known allgather, the most promising first, up to a limit."""
        allgathers = {candidate.cost for candidate in known_candidates}
        measured = 0
        promises = {promise.construction: promise for promise in self._predictions(tables)}
        for promise in sorted(promises.values(), key=itemgetter(0, 1, 2)):
            if promise.construction in self._costs or self._is_dominated(promise, allgathers):
                continue
            if measured == MAX_LINE_GRAPHS or measured * self._work > LINE_GRAPH_WORK:
                return
            measured += 1
            for candidate in self._exact_candidate(promise.construction):
                allgathers.add(candidate.cost)
                yield from _with_transpose(candidate)

    def _predictions(self, tables: Iterable[FinderTable]) -> Iterator[_PredictedCost]:
        for times, size in self._line_graph_bases():
            extra = sum((Fraction(1, size * self._degree**done) for done in range(times)), Fraction(0))
            for entry in (entry for table in tables for entry in table.all_entries(size, self._degree)):
                if not isinstance(entry.construction, LineGraph):
                    graph = _line_graph(entry.construction, times)
                    yield _PredictedCost(entry.steps + times, entry.factor + extra, graph.name, graph, entry, times)

    def _is_dominated(self, promise: _PredictedCost, known_costs: Iterable[StepCost]) -> bool:
        """Whether a known candidate is no worse than a lower bound on the line graph's cost.

        In data that is what an allgather takes, and no less than the best breadth-first broadcast of the base.  In
        steps it is the diameter of the base, and one for each line graph; a theorem's schedule may take more.
        """
        base, times = promise.base, promise.times
        optimum = bandwidth_optimum(self._nodes)
        factor = max(base.factor, optimum) if base.breadth_first else optimum

        def dominated(steps: int) -> bool:
            return any(is_no_worse(cost, StepCost(steps, factor)) for cost in known_costs)

        if base.breadth_first or not dominated(promise.steps):
            return dominated(promise.steps)
        # Only where it matters the base is built.
        if dominated(times + moore_steps(self._nodes // self._degree**times, self._degree)):
            return True
        return dominated(times + base.construction.graph().diameter)

    def of_equal_cost_circulants(self) -> Iterator[Candidate]:
        """Create candidates of line graphs of optimal circulants; see `line_graph_circulants`."""
        for times, size in self._line_graph_bases():
            for base in line_graph_circulants(size, self._degree, CIRCULANT_EFFORT):
                if (construction := _line_graph(base, times)) not in self._costs:
                    yield from self._exact_candidate(construction)

    def _line_graph_bases(self) -> Iterator[tuple[int, int]]:
        """Possible numbers of line-graph iterations, with the nodes of the base; none if two-way, or of degree 1."""
        if self._two_way or self._degree < 2:
            return
        times, size = 1, self._nodes
        while size % self._degree == 0 and size // self._degree > 1:
            size //= self._degree
            yield times, size
            times += 1

    def of_metacirculants(self) -> Iterator[Candidate]:
        """Create candidates of searched metacirculants and their line graphs."""
        for times, size in ((0, self._nodes), *self._line_graph_bases()):
            for base in _efficient_metacirculants(size, self._degree, two_way=self._two_way):
                for candidate in self._exact_candidate(_line_graph(base, times)):
                    yield from _with_transpose(candidate)

    def _exact_candidate(self, construction: Construction, by_theorem: Candidate | None = None) -> Iterator[Candidate]:
        """Create a candidate at the exact cost of breadth-first broadcasts, and ones mixed with costs by theorems."""
        unknown = StepCost(0, Fraction(0))
        blank = by_theorem or self._candidate(construction, unknown, unknown, breadth_first=True)
        if construction not in self._costs:
            work = self._work if construction.reverse_symmetric else 2 * self._work
            if work > self._work_left:
                self.unmeasured += 1
                return
            self._work_left -= work
            with self._trace.stage(f"breadth-first broadcasts on {construction.name}"):
                graph, count = blank.graph(), construction.orbit_representatives(self._degree)
                cost = back = breadth_first_cost(graph, count)
                if not construction.reverse_symmetric:
                    back = breadth_first_cost(graph.transpose(), count)
                self._costs[construction] = cost, back
        cost, back = self._costs[construction]
        gathering = {"cost": cost, "breadth_first": True}
        reducing = {"reduce_scatter_cost": back, "reduce_scatter_breadth_first": True}
        yield blank.changed(**gathering, **reducing)
        if by_theorem is not None:
            yield blank.changed(**gathering)
            yield blank.changed(**reducing)

    def _candidate(
        self, construction: Construction, cost: StepCost, back: StepCost, *, breadth_first: bool
    ) -> Candidate:
        return Candidate(self._nodes, self._degree, construction, cost, back, breadth_first, breadth_first)


def breadth_first_cost(graph: DirectGraph, orbit_representatives: int | None) -> StepCost:
    """Compute `bfb_cost` from the orbit representatives only."""
    from ...solvers.steps.load_balancing import busiest_sets
    from .bfb import read_network

    network = read_network(graph)
    sets = busiest_sets(network.intake, None if orbit_representatives is None else np.arange(orbit_representatives))
    loads = sum((busiest.load for busiest in sets), Fraction(0)) / network.unit
    return StepCost(len(sets), Fraction(graph.degree, graph.num_nodes) * loads)


def _with_transpose(candidate: Candidate) -> Iterator[Candidate]:
    """Yield the candidate, and that of the transposed graph if neither dominates the other."""
    yield candidate
    if candidate.cost != candidate.reduce_scatter_cost and not candidate.construction.reverse_symmetric:
        yield replace(
            candidate,
            construction=transposed(candidate.construction),
            cost=candidate.reduce_scatter_cost,
            reduce_scatter_cost=candidate.cost,
            breadth_first=candidate.reduce_scatter_breadth_first,
            reduce_scatter_breadth_first=candidate.breadth_first,
        )


@cache
def _efficient_metacirculants(nodes: int, degree: int, *, two_way: bool) -> tuple[Base, ...]:
    """List metacirculants of which none of less mean distance has an allgather that costs no more."""
    kept: list[tuple[StepCost, Base]] = []
    for base, graph in low_hop_metacirculants(nodes, degree, two_way=two_way):
        cost = breadth_first_cost(graph, 1)
        if not any(is_no_worse(other, cost) for other, _ in kept):
            kept.append((cost, base))
    return tuple(base for _, base in kept)


def _line_graph(base: Construction, times: int) -> Construction:
    for _ in range(times):
        base = LineGraph(base)
    return base
