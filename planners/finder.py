"""Find direct-connect topologies: the best trade-offs between few steps and little data per link.

The table of `finder_table` knows T_L and T_B by theorems.  What it finds for one size is then built: the best
breadth-first broadcast of each graph is worked out exactly, which can be better than the theorem's schedule, and the
throughput of all-to-all is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from fractions import Fraction
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..schedules import StepCost
from ..topologies.sizes import as_size
from ..topologies.validation import Exact, as_flag, as_list
from .candidates import Candidate, Frontier
from .circulant_bases import MOST_SEARCHED_DEGREE, best_circulants
from .finder_bases import Entry
from .finder_limits import FrontierBounds, Workload
from .finder_table import MOST_SEARCHED_NODES, TIES, FinderTable, Kind
from .recipes import Base, LineGraph
from .trace import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["find_topologies", "sweep_topologies"]

MOST_NODES = 8192
MOST_DEGREE = 64
MANY_SIZES = 64
"""From here on it pays to have the figures of all generalized Kautz graphs at hand."""
CIRCULANT_TRIES = 100
CIRCULANT_EFFORT = 5 * 10**7
"""About a tenth of a second."""


def find_topologies(
    nodes: int,
    degree: int,
    *,
    bidirectional: bool = False,
    alpha: Exact = 10,
    size: int | str = "1M",
    node_bandwidth: Exact = "12.5",
    all_to_all: bool = True,
) -> Frontier:
    """Find the Pareto-efficient topologies of so many nodes with so many links out of, and into, each.

    Parameters
    ----------
    nodes : int
        N, from 2 to 8192.
    degree : int
        d, from 1 to 64.
    bidirectional : bool
        Whether each link must have an opposite one.
    alpha : number
        µs per step, for `Frontier.best` and the times in `Frontier.to_frame`; these do not change what is found.
    size : int or str
        Bytes, such as ``"1M"``, for the same.
    node_bandwidth : number
        GB/s of all ports of a node together, for the same.
    all_to_all : bool
        Whether to bound the throughput of all-to-all too, and to keep topologies that may differ in nothing else.

    Returns
    -------
    Frontier
        By increasing T_L.

    Raises
    ------
    TopologyError
        If a number is not usable.
    UnsupportedError
        If the size is not understood, or no topology is known, as may be for odd degrees of two-way links.

    Notes
    -----
    Direct-connect paper, section 5.4, with circulant digraphs besides: for degrees 2 to 10 their offsets are searched,
    at this size and at those that it is a line graph's of, and each one's cost is computed.  Nothing says that there is
    no better topology unless it meets `Frontier.bounds`: these are the best of those that can be put together from
    known ones and these circulants.

    Examples
    --------
    >>> for candidate in find_topologies(32, 4):
    ...     print(candidate)
    <Candidate L(K(4, 4)): 3 steps, 1 M/B>
    <Candidate L(DirCirc(8, {1, 2, 3, 4})): 3 steps, 1 M/B>
    <Candidate DistReg(4, 32): 4 steps, 31/32 M/B>
    """
    nodes, degree = _as_sizes(nodes, degree)
    workload = Workload.read(size, alpha, node_bandwidth)
    kind: Kind = "two-way" if as_flag(bidirectional, "bidirectional") else "any"
    ties = TIES if as_flag(all_to_all, "all_to_all") else 1
    trace = Trace()
    with trace.stage("search"):
        entries = _entries(nodes, degree, kind)
    with trace.stage("breadth-first broadcasts"):
        candidates = _efficient(_costed(nodes, degree, kind, entries), ties)
    if all_to_all:
        with trace.stage("all-to-all"):
            candidates = _undecided(list(map(_with_all_to_all, candidates)))
    bounds = FrontierBounds.of(nodes, degree, bidirectional=kind == "two-way")
    return Frontier(nodes, degree, kind == "two-way", tuple(candidates), bounds, workload)


def sweep_topologies(
    nodes: Iterable[int],
    degree: int,
    *,
    bidirectional: bool = False,
    alpha: Exact = 10,
    size: int | str = "1M",
    node_bandwidth: Exact = "12.5",
    executor: Executor | None = None,
) -> pd.DataFrame:
    """List the Pareto-efficient topologies of many sizes, by theorems: nothing is built.

    Parameters
    ----------
    nodes : iterable of int
        Sizes, each from 2 to 8192.
    degree : int
        d, from 1 to 64.
    bidirectional : bool
        As for `find_topologies`.
    alpha, size, node_bandwidth : number
        As for `find_topologies`, for the column ``allreduce_us``.
    executor : concurrent.futures.Executor, optional
        Who works on the sizes, a part each; this thread by default.

    Returns
    -------
    DataFrame
        One row for each topology, sizes in the order given: ``nodes``, ``degree``, ``name``, ``steps``,
        ``bandwidth_factor`` (a float), ``bandwidth_factor_exact`` (a Fraction), ``breadth_first``, ``allreduce_us``,
        and ``best``, which marks the least of the times of each size.  Sizes without a topology have no row.

    Raises
    ------
    TopologyError
        If a number is not usable.
    UnsupportedError
        If the size of the data is not understood.

    See Also
    --------
    find_topologies : Builds what it finds, which can improve on the theorems, and searches circulants of the very size.

    Notes
    -----
    Circulant digraphs are searched for up to 64 nodes only, and expanded by theorems.  Left out are larger ones, and
    line graphs that turn out better than Theorem 7 says.

    Examples
    --------
    >>> sweep_topologies([12, 32], 4)[["nodes", "name", "best"]].values.tolist()
    [[12, 'C(12, {2, 3})', True], [32, 'L(K(4, 4))', True], [32, 'DistReg(4, 32)', False]]
    """
    import pandas as pd

    sizes = [_as_sizes(each, degree)[0] for each in as_list(nodes, "nodes")]
    degree = _as_sizes(2, degree)[1]
    workload = Workload.read(size, alpha, node_bandwidth)
    kind: Kind = "two-way" if as_flag(bidirectional, "bidirectional") else "any"
    trace, many = Trace(), len(sizes) >= MANY_SIZES
    if many:
        # Processes of an executor then find the figures in the cache, instead of working them out each for itself.
        with trace.stage("generalized Kautz graphs"):
            _load_tables(degree)
    rows_of = partial(_rows, degree=degree, kind=kind, workload=workload, many=many)
    found = iter(map(rows_of, sizes) if executor is None else executor.map(rows_of, sizes, chunksize=MANY_SIZES))
    rows: list[dict[str, object]] = []
    for done in range(0, len(sizes), MANY_SIZES):
        with trace.stage(f"sizes from number {done + 1} of {len(sizes)}"):
            rows += [row for each in islice(found, MANY_SIZES) for row in each]
    return pd.DataFrame(rows, columns=COLUMNS)


COLUMNS = [
    "nodes",
    "degree",
    "name",
    "steps",
    "bandwidth_factor",
    "bandwidth_factor_exact",
    "breadth_first",
    "allreduce_us",
    "best",
]


def _as_sizes(nodes: object, degree: object) -> tuple[int, int]:
    return as_size(nodes, "nodes", least=2, most=MOST_NODES), as_size(degree, "degree", most=MOST_DEGREE)


@cache
def _table(ties: int, searched: int = MOST_SEARCHED_NODES) -> FinderTable:
    return FinderTable(ties, searched)


def _load_tables(degree: int) -> None:
    """Have the figures of generalized Kautz graphs ready, of this degree and of those that expansions lead to."""
    from .kautz_store import load_kautz_table

    for divisor in range(2, degree + 1):
        if degree % divisor == 0:
            load_kautz_table(divisor)


def _rows(nodes: int, degree: int, kind: Kind, workload: Workload, *, many: bool) -> list[dict[str, object]]:
    """List the topologies of one size out of `many`; this may run in a process of its own."""
    if many:
        _load_tables(degree)
    found = [_candidate(nodes, degree, entry) for entry in _table(1).best(nodes, degree, kind)]
    times = [candidate.time_of("allreduce", workload) for candidate in found]
    return [
        {
            "nodes": nodes,
            "degree": degree,
            "name": candidate.name,
            "steps": candidate.cost.steps,
            "bandwidth_factor": float(candidate.cost.bandwidth_factor),
            "bandwidth_factor_exact": candidate.cost.bandwidth_factor,
            "breadth_first": candidate.breadth_first,
            "allreduce_us": float(time),
            "best": place == times.index(min(times)),
        }
        for place, (candidate, time) in enumerate(zip(found, times, strict=True))
    ]


def _entries(nodes: int, degree: int, kind: Kind) -> list[Entry]:
    """What is best by the theorems, with searched circulants among the bases and without.

    A line graph can be better than Theorem 7 says, so known families are not left to be beaten by theorems alone.
    """
    tables = _table(TIES), _table(TIES, searched=0)
    entries = list(dict.fromkeys(entry for table in tables for entry in table.best(nodes, degree, kind)))
    if not entries:
        raise UnsupportedError(
            f"no topology of {nodes} nodes with {degree} two-way links each is known here; expected an even degree, "
            "or bidirectional=False"
        )
    return entries


def _candidate(nodes: int, degree: int, entry: Entry) -> Candidate:
    return Candidate(nodes, degree, entry.recipe, StepCost(entry.steps, entry.factor), entry.breadth_first)


def _costed(nodes: int, degree: int, kind: Kind, entries: Iterable[Entry]) -> Iterator[Candidate]:
    """Give every candidate the cost of the theorem, and that of the best breadth-first broadcast if it is another."""
    from .bfb import bfb_cost

    for entry in entries:
        by_theorem = _candidate(nodes, degree, entry)
        yield by_theorem
        if not entry.breadth_first:
            yield by_theorem.changed(cost=bfb_cost(by_theorem.graph()), breadth_first=True)
    for found in best_circulants(nodes, degree, CIRCULANT_EFFORT):
        if found.two_way or kind != "two-way":
            yield Candidate(nodes, degree, found.recipe, StepCost(found.steps, found.factor), breadth_first=True)
    for recipe in (*_line_graphs(nodes, degree, kind), *_wide_circulants(nodes, degree)):
        unknown = Candidate(nodes, degree, recipe, StepCost(0, Fraction(0)), breadth_first=True)
        yield unknown.changed(cost=bfb_cost(unknown.graph()))


def _line_graphs(nodes: int, degree: int, kind: Kind) -> Iterator[LineGraph]:
    """Line graphs of searched circulants, which often are bandwidth-optimal although Theorem 7 does not say so."""
    if kind == "two-way" or nodes % degree or degree < 2:
        return
    for base in best_circulants(nodes // degree, degree, CIRCULANT_EFFORT):
        yield LineGraph(base.recipe)
    for inner in _line_graphs(nodes // degree, degree, kind):
        yield LineGraph(inner)


def _wide_circulants(nodes: int, degree: int) -> Iterator[Base]:
    """A circulant graph of low diameter where `best_circulants` has none; its T_B may not be optimal and is computed.

    C(15, {1, 4, 5}) refutes Conjecture 1: its best breadth-first broadcast takes 1 M/B, and not 14/15.
    """
    from ..topologies.circulant_search import low_diameter_offsets

    if degree > MOST_SEARCHED_DEGREE and degree % 2 == 0 and nodes > degree:
        offsets = low_diameter_offsets(nodes, degree, tries=CIRCULANT_TRIES)
        title = f"C({nodes}, {{{', '.join(map(str, offsets))}}})"
        yield Base("circulant", (nodes, offsets), title)


def _efficient(candidates: Iterable[Candidate], ties: int) -> list[Candidate]:
    """Keep those that no other beats in T_L or T_B without losing in the other, and some that are equal in both."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: candidate.cost):
        alike = [other for other in kept if other.cost == candidate.cost]
        if kept and candidate.cost.bandwidth_factor >= kept[-1].cost.bandwidth_factor and not alike:
            continue
        if len(alike) < ties and all(other.name != candidate.name for other in alike):
            kept.append(candidate)
    return kept


def _with_all_to_all(candidate: Candidate) -> Candidate:
    from ..solvers.shortest_path_loads import all_to_all_bounds

    graph = candidate.graph()
    return candidate.changed(all_to_all=all_to_all_bounds(graph.num_nodes, *graph.adjacency))


def _undecided(candidates: list[Candidate]) -> list[Candidate]:
    """Of candidates that cost the same, leave out those that another is no worse than by both bounds of all-to-all."""
    kept: list[Candidate] = []
    for candidate in candidates:
        rivals = [other for other in candidates if other.cost == candidate.cost]
        better = (_at_least(other, candidate) and not _at_least(candidate, other) for other in rivals)
        equal = (_at_least(other, candidate) and _at_least(candidate, other) for other in rivals if other in kept)
        if not any(better) and not any(equal):
            kept.append(candidate)
    return kept


def _at_least(one: Candidate, other: Candidate) -> bool:
    assert one.all_to_all is not None
    assert other.all_to_all is not None
    return all(mine >= theirs for mine, theirs in zip(one.all_to_all, other.all_to_all, strict=True))
