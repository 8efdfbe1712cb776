"""Sources and sinks that are worth a timed cut: any subset of them gives valid bounds.

Sources are the ranks from some distance on, the ranks outside of a nested group, and those in the bottleneck cut of
the bound for endless data.  Of ranks that look alike from the network, one is a sink: those with the same bandwidths
and the same distances to and from all others.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...schedules import Cut
from ...schedules.bounds.time_witness import TimedRequest
from ...support.arrays import FloatArray, IntArray
from ...topologies.graphs.rank_groups import rank_groups

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
    found: dict[Ends, None] = {}
    for sink in _representatives(request, distances):
        for sources in (*_by_distance(distances[:, sink]), *_by_group(request, sink)):
            _add(found, request, sources, np.array([sink]))
    for sources, sinks in _by_cut(request):
        _add(found, request, sources, sinks)
    if request.collective.in_pairs:
        for sources, sinks in _between_groups(request):
            _add(found, request, sources, sinks)
    return list(found)


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
    found: FloatArray = dijkstra(graph, indices=np.arange(network.num_ranks))[:, : network.num_ranks]
    return found.round(DIGITS)


def _add(found: dict[Ends, None], request: TimedRequest, sources: IntArray, sinks: IntArray) -> None:
    """Add sources and sinks if data moves between them; those without data for the others would weaken the bound."""
    names, weights = request.network.compute_nodes, np.array(request.rate.weights)
    if request.collective.has_two_phases:
        sources = sources[:1]
    elif len(weights) and request.collective.in_pairs:
        between = weights.reshape(len(names), len(names))[np.ix_(sources, sinks)]
        sources, sinks = sources[between.any(axis=1)], sinks[between.any(axis=0)]
    elif len(weights):
        sources = sources[weights[sources] > 0]
    if len(sources) and len(sinks):
        found[Ends(frozenset(names[rank] for rank in sources), frozenset(names[rank] for rank in sinks))] = None


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
    for least in steps:
        yield np.flatnonzero(np.isfinite(distances) & (distances >= least))


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
