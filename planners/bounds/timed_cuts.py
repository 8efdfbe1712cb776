"""The best lower bound on the time of a collective for each of several amounts of data.

Timed cuts are searched for by linear programs of flows over time, whose potentials are rounded to exact ones.  Floats
only choose the potentials; what they prove is computed exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from heapq import heappop, heappush

from ...errors import NoAnswerError
from ...formulations import flow_over_time
from ...schedules import Bound
from ...schedules.bounds.fan_out import FanOut
from ...schedules.bounds.size_bound import RateAndHop, SizeBound
from ...schedules.bounds.time_witness import TimedRequest, TimeWitness, shards_to
from ...schedules.bounds.timed_cuts import TimedCut
from ...schedules.traffic.collective import Direction
from ...solvers import Session
from ...support.arrays import FloatArray
from ...topologies import RuntimeCosts, Topology
from .candidates import Ends, candidate_ends

DENOMINATORS = (10**3, 10**6, 10**9)
"""Potentials are sums of latencies and of times of whole links, whose denominators are small more often than not."""
PARTS = 2**40  # of which a share consists


def bounds_at_sizes(topology: Topology, rate: Bound, sizes: Sequence[int], costs: RuntimeCosts) -> list[SizeBound]:
    """Bound the time for each size by the best timed cut, the fan-out, or `rate`, for reached bandwidths."""
    requests = [TimedRequest(rate, size, costs) for size in sizes]
    if not requests:
        return []
    searches = [TimedCutSearch(requests[0], ends) for ends in candidate_ends(requests[0])]
    rising = sorted(requests, key=lambda request: request.num_bytes)
    found = {request.num_bytes: _bound_at(topology, request, searches) for request in rising}
    return [found[size] for size in sizes]


def _bound_at(topology: Topology, request: TimedRequest, searches: Sequence[TimedCutSearch]) -> SizeBound:
    witnesses: list[TimeWitness] = []
    solved = []
    for search in searches:
        try:
            solved.append((*search.solve(request), search.ends))
        except NoAnswerError:  # numbers too far apart for the solver
            continue
    if solved:
        _, potentials, ends = max(solved, key=lambda each: each[0])
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
    ranks = request.network.compute_nodes if request.rate.weights else request.network.compute_nodes[:1]
    receivers, rank = max(((len(shards_to(request, rank)), rank) for rank in ranks), key=lambda found: found[0])
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
    distances = latencies(request, ends)
    amount = request.amount(*ends)
    cuts = [TimedCut(*ends, tuple(distances))]
    for denominator in DENOMINATORS:
        rounded = _at_sinks(request, ends, [Fraction(time).limit_denominator(denominator) for time in potentials])
        carried = TimedCut(*ends, rounded).carried(request)
        share = Fraction(int(min(Fraction(1), amount / carried) * PARTS) if carried else PARTS, PARTS)
        mixed = (share * more + (1 - share) * less for more, less in zip(rounded, distances, strict=True))
        cuts.append(TimedCut(*ends, tuple(mixed)))
    return max(cuts, key=lambda cut: cut.least_time(request))


def _at_sinks(request: TimedRequest, ends: Ends, potentials: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Set the potentials of sinks to 0."""
    nodes = request.network.nodes
    return tuple(Fraction(0) if node in ends.sinks else value for node, value in zip(nodes, potentials, strict=True))


def latencies(request: TimedRequest, ends: Ends) -> list[Fraction]:
    """Least µs from each node to the sinks, by Dijkstra's algorithm in fractions; the most where there is no way."""
    into: dict[str, list[tuple[str, Fraction]]] = {node: [] for node in request.network.nodes}
    for link in request.links():
        into[link.head].append((link.tail, link.delay))
    found: dict[str, Fraction] = dict.fromkeys(ends.sinks, Fraction(0))
    waiting = [(Fraction(0), node) for node in sorted(ends.sinks)]
    while waiting:
        time, node = heappop(waiting)
        if time > found[node]:
            continue
        for tail, delay in into[node]:
            if tail not in found or time + delay < found[tail]:
                found[tail] = time + delay
                heappush(waiting, (time + delay, tail))
    farthest = max(found.values())
    return [found.get(node, farthest) for node in request.network.nodes]
