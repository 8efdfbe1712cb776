"""The best lower bound on the time of a collective for each of several amounts of data."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import NoAnswerError
from ...schedules import Bound
from ...schedules.bounds.fan_out import FanOut
from ...schedules.bounds.size_bound import RateAndHop, SizeBound
from ...schedules.bounds.time_witness import TimedRequest, TimeWitness, shards_to
from ...topologies import RuntimeCosts, Topology
from .candidates import candidate_ends
from .timed_cuts import TimedCutSearch, exact_cut


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
