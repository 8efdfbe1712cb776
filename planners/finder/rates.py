"""Rates of an all-to-all on the finder's candidates: within 1 % where a candidate may be the best at something.

The sum of all distances bounds a rate from above.  By decreasing bounds, a candidate is left out if another, whose rate
was found, costs no more and has a rate of at least this bound; only of the others a flow is worked out.
"""

from collections.abc import Iterable
from fractions import Fraction

from ...schedules import StepCost
from ...support import progress
from ..pairs.direct_connect_rate import all_to_all_rate_bounds
from .candidate import Candidate
from .constructions import Construction, transposed
from .frontier import is_as_good

MAX_DISTANCE_WORK = 2**31
"""Nodes, squared, times links of a node, of all graphs whose distances are summed: some ten seconds."""
MAX_FLOW_WORK = 3 * 2**20
"""Sources that symmetries leave, times all links, of all flows: some ten seconds."""
EXACT_COLUMNS = 5000  # vertex-transitive graphs of up to a thousand nodes; an exact optimum takes half a second
Rates = tuple[Fraction, Fraction]


def with_all_to_all(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Bound the rates of all-to-all; leave out candidates that cannot be better than others at anything.

    Where it would take too long, bounds are those of shortest paths in equal parts and of distances, or none at all.
    """
    found = list(candidates)
    graphs = {each.construction: each for each in found}
    if len(graphs) * found[0].nodes ** 2 * found[0].degree > MAX_DISTANCE_WORK:
        return found
    rates = {name: _by_distances(each) for name, each in progress.iterate(graphs.items(), len(graphs))}
    # What costs the same, and has the same bounds of both kinds, is most likely one graph under several names: all but
    # one of them come last, and are kept only where their rate is found to be better.
    rated: dict[tuple[StepCost, StepCost, Rates], dict[Construction, Candidate]] = {}
    for each in found:
        key = each.cost, each.reduce_scatter_cost, rates[each.construction]
        rated.setdefault(key, {}).setdefault(each.construction, each)
    ranked = sorted(
        ((place, each) for names in rated.values() for place, each in enumerate(names.values())),
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
    from ...solvers.multicommodity.shortest_path_loads import all_to_all_bounds

    graph = candidate.graph()
    return all_to_all_bounds(graph.num_nodes, *graph.adjacency)
