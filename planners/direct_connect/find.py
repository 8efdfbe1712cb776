"""Search for direct-connect topologies: trade-offs between few steps and little data per link, as a `Frontier`.

The finder's table knows T_L and T_B by theorems; what it finds for one size is built, and measured exactly.  A flow is
worked out only for candidates that the sum of all distances allows a better all-to-all than others of no more cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, overload

from ...errors import UnsupportedError
from ...schedules import ALL_TO_ALL, ALLREDUCE, StepCost
from ...schedules.collective import AnyCollective
from ...support import progress
from ...support.quantities import Exact, as_factor, as_latency
from ...support.validation import as_flag, as_list, as_size
from ..all_to_all.flows import all_to_all_rate_bounds
from ..plans.stages import Trace
from .candidate import Calls, Candidate, FrontierBounds, Workload, is_no_worse
from .constructions import Construction, transposed
from .costs import Costing
from .table import MAX_SEARCHED_NODES, TIES, FinderTable, Kind

if TYPE_CHECKING:
    import pandas as pd

COSTS: tuple[Callable[[Candidate], StepCost], ...] = (
    attrgetter("cost"),
    attrgetter("reduce_scatter_cost"),
    attrgetter("allreduce_cost"),
)
"""By which a candidate may be worth having."""
MAX_NODES = 8192
MAX_DEGREE = 64
AT_ONCE = 64  # sizes of a sweep that a process is given together
COLUMNS = [
    "nodes", "degree", "name", "steps", "bandwidth_factor", "bandwidth_factor_exact", "reduce_scatter_steps",
    "reduce_scatter_factor", "reduce_scatter_factor_exact", "breadth_first", "reduce_scatter_breadth_first",
    "allreduce_us", "best",
]  # fmt: skip
MAX_DISTANCE_WORK = 2**31
"""Nodes, squared, times links of a node, of all graphs whose distances are summed: some ten seconds."""
MAX_FLOW_WORK = 3 * 2**20
"""Sources that symmetries leave, times all links, of all flows: some ten seconds."""
EXACT_COLUMNS = 5000  # vertex-transitive graphs of up to a thousand nodes; an exact optimum takes half a second

Rates = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Frontier(Sequence[Candidate]):
    """The Pareto-optimal candidates that `find_topologies` finds, by increasing T_L and then T_B of the allgather.

    Each is Pareto-efficient for an allgather, a reduce-scatter or an allreduce: none of those looked at beats it in T_L
    or T_B of that collective, or in the rate of an all-to-all, without losing in another of these three.

    Attributes
    ----------
    nodes, degree : int
        N and d.
    bidirectional : bool
        Whether only topologies with opposite links were looked for.
    candidates : tuple of Candidate
        In order.
    bounds : FrontierBounds
        What no topology can beat.
    workload : Workload
        What `best` and `to_frame` assume where nothing else is said.
    unmeasured : int
        Topologies too large for the exact best breadth-first broadcast to be worked out: these are listed with what
        theorems say, which may be more than they take, or are left out where no theorem says anything.
    """

    nodes: int
    degree: int
    bidirectional: bool
    candidates: tuple[Candidate, ...]
    bounds: FrontierBounds
    workload: Workload
    unmeasured: int = 0

    def __len__(self) -> int:
        return len(self.candidates)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self.candidates[index]

    def best(
        self,
        collective: AnyCollective = "allreduce",
        *,
        size: int | str | None = None,
        alpha: Exact | None = None,
        node_bandwidth: Exact | None = None,
    ) -> Candidate:
        """Return the candidate with the least time; of equals, the one with more all-to-all throughput.

        Parameters are as for `Candidate.runtime`; by default they are what the search was for.
        """
        sizes = {self.workload.num_bytes if size is None else size: 1}
        return self.best_mix({collective: sizes}, alpha=alpha, node_bandwidth=node_bandwidth)

    def best_mix(self, calls: Calls, *, alpha: Exact | None = None, node_bandwidth: Exact | None = None) -> Candidate:
        """Return the candidate with the least total time of several calls, as in the direct-connect paper, section 5.4.

        Calls are by collective and size in bytes how many there are, or which share of all; the others as for `best`.

        Examples
        --------
        >>> from collopt.planners import find_topologies
        >>> found = find_topologies(32, 4)
        >>> found.best("all_to_all", size="64M").name
        'L(MetaCirc(4, 2, 3; {1, 2, 3, 4}))'
        >>> found.best_mix({"allreduce": {"64K": 40, "16M": 4}, "all_to_all": {"64M": 1}}).name
        'MetaCirc(8, 4, 7; {9, 10, 21, 28})'
        """
        work = self.workload
        if alpha is not None:
            work = work._replace(alpha=as_latency(alpha, "a step"))
        if node_bandwidth is not None:
            work = work._replace(node_bandwidth=as_factor(node_bandwidth, "node_bandwidth"))
        return min(self, key=lambda entry: (entry.time_of_calls(calls, work), -(entry.all_to_all or (0,))[0]))

    def room(self) -> dict[int, Fraction]:
        """By T_L, the part by which the least T_B of an allgather in so many steps could be lower at most.

        Where it is 0 nothing better exists, as ``docs/explanation/refutations.md`` proves next to the Moore bound.
        """
        best: dict[int, Fraction] = {}
        for steps, factor in (candidate.cost for candidate in self):
            reachable = sum(self.degree**hops for hops in range(1, steps + 1))
            shards = Fraction(reachable if 2 * (reachable + 1 - self.nodes) < self.degree else self.nodes - 1)
            if steps == 1:  # every neighbor's shard comes whole, over one link where there are fewest
                shards = Fraction(self.degree, self.degree // (self.nodes - 1))
            best.setdefault(steps, 1 - shards / self.nodes / factor)
        return best

    def to_frame(self) -> pd.DataFrame:
        """List the candidates, one row each.

        Columns are ``nodes``, ``degree``, ``name``; ``steps``, ``bandwidth_factor`` (a float) and
        ``bandwidth_factor_exact`` (a Fraction) of the allgather; ``reduce_scatter_steps``, ``reduce_scatter_factor``
        and ``reduce_scatter_factor_exact`` likewise; ``breadth_first``, ``reduce_scatter_breadth_first``,
        ``allreduce_us``; where all-to-all was bounded ``all_to_all_lower``, ``all_to_all_upper`` and ``all_to_all_us``;
        and ``candidate``, the `Candidate`.
        """
        import pandas as pd

        rows = []
        for candidate in self:
            row = candidate.figures() | {"allreduce_us": float(candidate.time_of(ALLREDUCE, self.workload))}
            if candidate.all_to_all is not None:
                row["all_to_all_lower"], row["all_to_all_upper"] = map(float, candidate.all_to_all)
                row["all_to_all_us"] = float(candidate.time_of(ALL_TO_ALL, self.workload))
            rows.append(row | {"candidate": candidate})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return f"<Frontier of {self.nodes} nodes, degree {self.degree}: {len(self)} candidates>"


def pareto_efficient(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Keep those that are Pareto-efficient for an allgather, a reduce-scatter or an allreduce, and an all-to-all."""
    ordered = sorted(candidates, key=lambda entry: (entry.cost, entry.reduce_scatter_cost))
    return [candidate for place, candidate in enumerate(ordered) if _is_efficient(place, candidate, ordered)]


def _is_efficient(place: int, candidate: Candidate, ordered: Sequence[Candidate]) -> bool:
    """Whether none is as good in all collectives, and none is better in each; of equals the first is."""
    for number, other in enumerate(ordered):
        if is_as_good(other, candidate) and (number < place or not is_as_good(candidate, other)):
            return False
    return not all(
        any(is_as_good(other, candidate, only) and not is_as_good(candidate, other, only) for other in ordered)
        for only in ((cost,) for cost in COSTS)
    )


def is_as_good(one: Candidate, other: Candidate, costs: Iterable[Callable[[Candidate], StepCost]] = COSTS) -> bool:
    """Whether these costs are no worse, and both bounds of all-to-all, where both have them, no less."""
    rates = zip(one.all_to_all or (), other.all_to_all or (), strict=False)
    return all(mine >= theirs for mine, theirs in rates) and all(is_no_worse(cost(one), cost(other)) for cost in costs)


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
    """Find the Pareto-optimal topologies of a number of nodes with a number of links out of, and into, each.

    Raises `UnsupportedError` if the size is not understood, or no topology is known, as may be for odd degrees of
    two-way links.

    Parameters
    ----------
    nodes : int
        N, from 2 to 8192.
    degree : int
        d, from 1 to 64.
    bidirectional : bool
        Whether each link must have an opposite one.
    alpha, size, node_bandwidth : number
        µs per step, bytes, such as ``"1M"``, and GB/s of all ports of a node together, for `Frontier.best` and the
        times in `Frontier.to_frame`; these do not change what is found.
    all_to_all : bool
        Whether the rate of an all-to-all is a third objective; see `Candidate.all_to_all`.

    Notes
    -----
    Those of the direct-connect paper, section 5.4, transposes, searched circulants and metacirculants, and line graphs
    beyond Theorem 7.  No better topology exists where `Frontier.bounds` are met; see `Frontier.room`.

    Examples
    --------
    >>> for candidate in find_topologies(32, 4):
    ...     print(candidate, round(float(candidate.all_to_all[0]), 4))
    <Candidate MetaCirc(8, 4, 7; {9, 10, 21, 28}): 3 steps, 31/32 M/B> 0.0563
    <Candidate L(MetaCirc(4, 2, 3; {1, 2, 3, 4})): 3 steps, 1 M/B> 0.0573
    """
    nodes, degree = as_size(nodes, "nodes", low=2, high=MAX_NODES), as_size(degree, "degree", high=MAX_DEGREE)
    workload, two_way = Workload.read(size, alpha, node_bandwidth), as_flag(bidirectional, "bidirectional")
    kind: Kind = "two-way" if two_way else "any"
    trace = Trace()
    costing = Costing(nodes, degree, two_way=two_way, trace=trace)
    # Line graphs of known families can be better than those of searched circulants.
    tables = _table(TIES), _table(TIES, searched=0)
    with trace.stage("search"):
        entries = list(dict.fromkeys(entry for table in tables for entry in table.best(nodes, degree, kind)))
    with trace.stage("circulants"):
        circulants = list(costing.of_circulants())
    with trace.stage("breadth-first broadcasts"):
        results = [*costing.of_entries(progress.iterate(entries, len(entries))), *circulants]
    with trace.stage("line graphs"):
        # The order matters only where a limit is reached: what is measured first uses up work that is left.
        results += costing.of_line_graphs(tables, results)
        results += costing.of_equal_cost_circulants()
    with trace.stage("metacirculants"):
        results += costing.of_metacirculants()
    if not results:
        raise UnsupportedError(
            f"no topology of {nodes} nodes with {degree} two-way links each is known here; expected an even degree"
        )
    if as_flag(all_to_all, "all_to_all"):
        with trace.stage("all-to-all"):
            results = with_all_to_all(results)
    candidates = pareto_efficient(results)
    bounds = FrontierBounds.of(nodes, degree, bidirectional=two_way)
    return Frontier(nodes, degree, two_way, tuple(candidates), bounds, workload, costing.unmeasured)


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
    """List good topologies of many sizes, by theorems: nothing is built.

    Parameters as for `find_topologies`, and an executor of `concurrent.futures` to work in place of this thread.

    Returns
    -------
    DataFrame
        One row for each topology that none of the others looked at beats in T_L or T_B of an allgather or an allreduce
        without losing in the other, sizes in the order given.  Columns are those of `Frontier.to_frame` up to
        ``allreduce_us``, and ``best``, which marks the least of these times of each size.  There is no row for
        transposed topologies, whose reduce-scatter is the better one, and none for sizes without a topology.

    Examples
    --------
    >>> sweep_topologies([12, 32], 4)[["nodes", "name", "best"]].values.tolist()
    [[12, 'C(12, {2, 3})', True], [32, 'L(K(4, 4))', True], [32, 'DistReg(4, 32)', False]]
    """
    import pandas as pd

    sizes = [as_size(size, "nodes", low=2, high=MAX_NODES) for size in as_list(nodes, "nodes")]
    degree = as_size(degree, "degree", high=MAX_DEGREE)
    workload = Workload.read(size, alpha, node_bandwidth)
    kind: Kind = "two-way" if as_flag(bidirectional, "bidirectional") else "any"
    trace = Trace()
    rows_of = partial(_rows, degree=degree, kind=kind, workload=workload)
    batches = iter(map(rows_of, sizes) if executor is None else executor.map(rows_of, sizes, chunksize=AT_ONCE))
    rows: list[dict[str, object]] = []
    for done in progress.iterate(range(0, len(sizes), AT_ONCE), -(-len(sizes) // AT_ONCE)):
        with trace.stage(f"sizes from number {done + 1} of {len(sizes)}"):
            rows += [row for node_range in islice(batches, AT_ONCE) for row in node_range]
    return pd.DataFrame(rows, columns=COLUMNS)


@cache
def _table(ties: int, searched: int = MAX_SEARCHED_NODES) -> FinderTable:
    return FinderTable(ties, searched)


def _rows(nodes: int, degree: int, kind: Kind, workload: Workload) -> list[dict[str, object]]:
    """Rows of one size of a sweep; may run in another process."""
    costing = Costing(nodes, degree, two_way=kind == "two-way", trace=Trace())
    candidates = [costing.of_entry(entry) for entry in _table(1).best(nodes, degree, kind)]
    times = [candidate.time_of(ALLREDUCE, workload) for candidate in candidates]
    fastest = times.index(min(times)) if times else None
    return [
        candidate.figures() | {"allreduce_us": float(time), "best": place == fastest}
        for place, (candidate, time) in enumerate(zip(candidates, times, strict=True))
    ]


def with_all_to_all(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Bound the rates of all-to-all, as far as time allows; leave out candidates that are no better at anything."""
    copies = list(candidates)
    graphs = {entry.construction: entry for entry in copies}
    if len(graphs) * copies[0].nodes ** 2 * copies[0].degree > MAX_DISTANCE_WORK:
        return copies
    rates = {name: _by_distances(entry) for name, entry in progress.iterate(graphs.items(), len(graphs))}
    # What costs the same, and has the same bounds of both kinds, is most likely one graph under several names: all but
    # one of them come last, and are kept only where their rate is found to be better.
    rated: dict[tuple[StepCost, StepCost, Rates], dict[Construction, Candidate]] = {}
    for entry in copies:
        key = entry.cost, entry.reduce_scatter_cost, rates[entry.construction]
        rated.setdefault(key, {}).setdefault(entry.construction, entry)
    ranked = sorted(
        ((place, entry) for names in rated.values() for place, entry in enumerate(names.values())),
        key=lambda item: (item[0] > 0, -rates[item[1].construction][1]),
    )
    left, sharp, kept = MAX_FLOW_WORK, dict[Construction, Rates](), list[Candidate]()
    for place, candidate in progress.iterate(ranked, len(ranked)):
        name = candidate.construction
        bounds = sharp.get(name, rates[name])
        # Rates up to those of candidates that cost no more are of no use.
        unrated = candidate.changed(all_to_all=None)
        reached = (other.all_to_all[0] for other in kept if other.all_to_all and is_as_good(other, unrated))
        if (floor := max(reached, default=Fraction(0))) >= bounds[1]:
            continue
        work = (name.orbit_representatives(candidate.degree) or candidate.nodes) * candidate.nodes * candidate.degree
        work *= max(1, candidate.nodes // 1024) ** 2  # on larger graphs flows take more rounds, and these longer
        if name not in sharp and work <= left:
            left -= work
            bounds = all_to_all_rate_bounds(
                candidate.graph(), symmetries=name.symmetries(), exact_columns=EXACT_COLUMNS, floor=floor
            )
            if bounds[1] <= floor:
                continue
            # On the transposed graph the same flows run backwards.
            sharp[name] = sharp[transposed(name)] = bounds
        if not place or bounds[0] > floor:
            kept.append(candidate.changed(all_to_all=bounds))
    return kept


def _by_distances(candidate: Candidate) -> Rates:
    """Bound the rate by shortest paths in equal parts, and by the sum of distances."""
    from ...solvers.flows.shortest_paths import all_to_all_bounds

    graph = candidate.graph()
    return all_to_all_bounds(graph.num_nodes, *graph.adjacency)
