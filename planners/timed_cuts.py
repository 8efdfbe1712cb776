"""The best lower bound on the time of a collective for each of several amounts of data.

Linear programs of flows over time find timed cuts between ranks from some distance or outside of a nested group, or in
the bottleneck cut, and one sink of each kind of ranks.  Floats only choose the potentials; what they prove is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ..errors import NoAnswerError
from ..formulations import flow_over_time
from ..schedules import Bound, Cut, Demands
from ..schedules.bounds.size_bound import FanOut, RateAndHop, SizeBound, TimedCut, TimedRequest, TimeWitness, shards_to
from ..schedules.collective import Direction
from ..solvers import Session
from ..support.arrays import FloatArray, IntArray
from ..topologies import RuntimeCosts, Topology
from ..topologies.symmetry.rank_groups import rank_groups

MAX_SINKS = 8
MAX_DISTANCES = 8
DIGITS = 9  # of distances in µs that are compared


class Ends(NamedTuple):
    """Where data starts, and where it has to get to."""

    sources: frozenset[str]
    sinks: frozenset[str]


def candidate_ends(request: TimedRequest) -> list[Ends]:
    """List sources and sinks between which data moves, each pair once."""
    distances = rank_distances(request)
    candidates: dict[Ends, None] = {}
    for sink in _representatives(request, distances):
        for sources in (*_by_distance(distances[:, sink]), *_by_group(request, sink)):
            _add(candidates, request, sources, np.array([sink]))
    for sources, sinks in _by_cut(request):
        _add(candidates, request, sources, sinks)
    if request.collective.in_pairs:
        for sources, sinks in _between_groups(request):
            _add(candidates, request, sources, sinks)
    return list(candidates)


def rank_distances(request: TimedRequest) -> FloatArray:
    """Least µs from each rank (row) to each (column) as data passes the links; infinite where there is no way."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    network = request.network
    links = list(request.links())
    places = [[network.node_index[getattr(link, end)] for link in links] for end in ("tail", "head")]
    # Stored zeros are links without latency only to some versions; a tiny latency is one to all.
    delays = np.maximum([float(link.delay) for link in links], 1e-12)
    graph = csr_array((delays, places), shape=(len(network.nodes),) * 2)
    distances: FloatArray = dijkstra(graph, indices=np.arange(network.num_ranks))[:, : network.num_ranks]
    return distances.round(DIGITS)


def _add(candidates: dict[Ends, None], request: TimedRequest, sources: IntArray, sinks: IntArray) -> None:
    """Add sources and sinks if data moves between them; those without data for the others would weaken the bound."""
    names, weights = request.network.compute_nodes, np.array(request.rate.weights)
    if isinstance(request.collective, Demands):
        inside, sink = {names[rank] for rank in sources}, names[sinks[0]]
        groups = [group.sources for group in request.collective.groups if sink in group.destinations]
        having = {name for ranks in groups if inside.issuperset(ranks) for name in ranks}
        sources = np.array([rank for rank in sources if names[rank] in having], dtype=np.int64)
    elif request.collective.has_two_phases:
        sources = sources[:1]
    elif len(weights) and request.collective.in_pairs:
        between = weights.reshape(len(names), len(names))[np.ix_(sources, sinks)]
        sources, sinks = sources[between.any(axis=1)], sinks[between.any(axis=0)]
    elif len(weights):
        sources = sources[weights[sources] > 0]
    if len(sources) and len(sinks):
        candidates[Ends(frozenset(names[rank] for rank in sources), frozenset(names[rank] for rank in sinks))] = None


def _representatives(request: TimedRequest, distances: FloatArray) -> list[int]:
    """Ranks to be sinks, one of each kind; of many kinds, those farthest from the root, or from any other."""
    network, weights = request.network, request.rate.weights
    kinds: dict[tuple[object, ...], int] = {}
    own = weights if weights and not request.collective.in_pairs else (1,) * network.num_ranks
    root = int(np.argmax(own))
    for rank, name in enumerate(network.compute_nodes):
        around = (network.ingress(name), network.egress(name), own[rank])
        profile = [np.sort(distances[rank]).tobytes(), np.sort(distances[:, rank]).tobytes()]
        if request.collective.has_one_root:
            profile.append(distances[root, rank].tobytes())
        kinds.setdefault((*around, *profile), rank)
    finite = np.where(np.isfinite(distances), distances, 0)
    ways = finite[root] if request.collective.has_one_root else finite.max(axis=0)
    ranked = sorted(kinds.values(), key=lambda rank: (-ways[rank], -finite[:, rank].sum(), rank))
    return ranked[:MAX_SINKS]


def _by_distance(distances: FloatArray) -> Iterator[IntArray]:
    """Ranks at least so far from a sink, for each distance, or some of them."""
    steps = np.unique(distances[np.isfinite(distances) & (distances > 0)])
    if len(steps) > MAX_DISTANCES:
        steps = steps[np.linspace(0, len(steps) - 1, MAX_DISTANCES).round().astype(np.int64)]
    for threshold in steps:
        yield np.flatnonzero(np.isfinite(distances) & (distances >= threshold))


def _by_group(request: TimedRequest, sink: int) -> Iterator[IntArray]:
    """Ranks outside of each nested group of the sink."""
    digits = rank_groups(request.network).digits
    for level in range(1, digits.shape[1]):
        yield np.flatnonzero((digits[:, :level] != digits[sink, :level]).any(axis=1))


def _by_cut(request: TimedRequest) -> Iterator[tuple[IntArray, IntArray]]:
    """Ranks in the bottleneck cut of the bound for endless data, and one outside; between pairs all outside."""
    witness = request.rate.witness
    if not isinstance(witness, Cut):
        return
    is_inside = np.array([name in witness.nodes for name in request.network.compute_nodes])
    inside, outside = np.flatnonzero(is_inside), np.flatnonzero(~is_inside)
    yield inside, outside if request.collective.in_pairs else outside[:1]


def _between_groups(request: TimedRequest) -> Iterator[tuple[IntArray, IntArray]]:
    """All other ranks and the first group of each level, in both directions; the first rank and all others."""
    digits = rank_groups(request.network).digits
    for level in range(1, digits.shape[1] + 1):
        is_other = (digits[:, :level] != digits[0, :level]).any(axis=1)
        yield np.flatnonzero(is_other), np.flatnonzero(~is_other)
        yield np.flatnonzero(~is_other), np.flatnonzero(is_other)


DENOMINATORS = (10**3, 10**6, 10**9)
"""Potentials are sums of latencies and of times of whole links, whose denominators are small more often than not."""
PARTS = 2**40  # of which a share consists


def bounds_at_sizes(topology: Topology, rate: Bound, sizes: Sequence[int], costs: RuntimeCosts) -> list[SizeBound]:
    """Bound the time for each size by the best timed cut, the fan-out, or `rate`, for reached bandwidths."""
    requests = {size: TimedRequest(rate, size, costs) for size in sorted(sizes)}
    searches: list[TimedCutSearch] = []
    if requests:
        first = next(iter(requests.values()))
        searches = [TimedCutSearch(first, ends) for ends in candidate_ends(first)]
    bounds = {size: _bound_at(topology, request, searches) for size, request in requests.items()}
    return [bounds[size] for size in sizes]


def _bound_at(topology: Topology, request: TimedRequest, searches: Sequence[TimedCutSearch]) -> SizeBound:
    witnesses: list[TimeWitness] = []
    solved = []
    for search in searches:
        try:
            solved.append((*search.solve(request), search.ends))
        except NoAnswerError:  # numbers too far apart for the solver
            continue
    if solved:
        _, potentials, ends = max(solved, key=lambda entry: entry[0])
        witnesses.append(exact_cut(request, ends, potentials))
    if fan_out := _best_fan_out(request):
        witnesses.append(fan_out)
    witnesses.append(RateAndHop())
    bounds = [SizeBound.from_witness(topology, request, witness) for witness in witnesses]
    return max(bounds, key=lambda bound: bound.time)


def _best_fan_out(request: TimedRequest) -> FanOut | None:
    """Return the fan-out of a rank whose data must get to most others, if messages take time."""
    if not request.costs.send:
        return None
    ranks = request.network.compute_nodes
    if not request.rate.weights and not request.collective.has_items:
        ranks = ranks[:1]  # all are alike
    receivers, rank = max(((len(shards_to(request, rank)), rank) for rank in ranks), key=lambda entry: entry[0])
    return FanOut(rank) if receivers > 1 else None


class TimedCutSearch:
    """The program of one set of sources and sinks, solved for one amount of data after the other."""

    def __init__(self, request: TimedRequest, ends: Ends) -> None:
        self.ends = ends
        direction: Direction = "reduce" if request.is_turned else "broadcast"
        sources, sinks = (sorted(names) for names in ends)
        self._model = flow_over_time.build(
            request.network, sources, sinks, 1, alpha=request.costs.alpha, direction=direction
        )
        self._session = Session(self._model)

    def solve(self, request: TimedRequest) -> tuple[float, FloatArray]:
        """Return the least time for the data of a request in µs, and potentials of all nodes that show it."""
        self._model.carry(request.amount(*self.ends) * 1000)
        solution = self._session.solve()
        return solution.objective, self._model.potentials(solution.duals["flow_balance"])


def exact_cut(request: TimedRequest, ends: Ends, potentials: FloatArray) -> TimedCut:
    """Round potentials to fractions, and move them towards latencies until the links carry no more than they may."""
    nodes, distances, amount = request.network.nodes, latencies(request, ends), request.amount(*ends)
    cuts = [TimedCut(*ends, tuple(distances))]
    for denominator in DENOMINATORS:
        rounded = tuple(
            Fraction(0) if node in ends.sinks else Fraction(time).limit_denominator(denominator)
            for node, time in zip(nodes, potentials, strict=True)
        )
        capacity = TimedCut(*ends, rounded).capacity(request)
        share = Fraction(int(min(Fraction(1), amount / capacity) * PARTS) if capacity else PARTS, PARTS)
        mixed = (share * upper + (1 - share) * lower for upper, lower in zip(rounded, distances, strict=True))
        cuts.append(TimedCut(*ends, tuple(mixed)))
    return max(cuts, key=lambda cut: cut.least_time(request))


def latencies(request: TimedRequest, ends: Ends) -> list[Fraction]:
    """Least µs from each node to the sinks, exactly; the most of all where there is no way."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(request.network.nodes)
    graph.add_weighted_edges_from((link.head, link.tail, link.delay) for link in request.links())
    times = nx.multi_source_dijkstra_path_length(graph, set(ends.sinks))
    farthest = max(times.values())
    return [Fraction(times.get(node, farthest)) for node in request.network.nodes]
