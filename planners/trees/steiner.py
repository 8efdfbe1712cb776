"""Exact optimum of trees that branch at switches, on small networks, by column generation.

Trees are added until, at exact dual values, none is cheaper than what its root pays for one.  The cheapest tree that
branches at a set of switches is a minimum arborescence on them and all ranks; ``docs/formulations/steiner.md`` shows
why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import chain, combinations
from math import floor, gcd
from typing import NamedTuple

from ...errors import BoundError, CapacityOverflowError, NoAnswerError, SolverError, UnsupportedError
from ...formulations.steiner import SteinerModel, SteinerTree, build
from ...schedules import TREE_COLLECTIVES, Allreduce, Bound, Forest
from ...schedules.bounds.cuts import rank_cut
from ...schedules.bounds.tree_witnesses import TreeDual
from ...schedules.bounds.witness import LinkValue
from ...schedules.collective import AnyCollective, Collective, Direction
from ...solvers import Algorithm, HighsOptions, Session, Solution
from ...solvers.trees.routed_graph import Arc, cheapest_arborescence
from ...support import progress
from ...support.quantities import MAX_BANDWIDTH
from ...topologies import Topology
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from .problem import check_request, shard_weights, whole_numbers

MAX_RANKS, MAX_SWITCHES = 12, 6  # of networks, and of their switches that multicast or aggregate
MAX_ROUNDS = 1000

GRAINS = 2**40  # dual values in floats are read in multiples of the largest of them over this
MAX_UNITS = 2**56  # what all trees together may weigh in 64-bit loads; their rates are rounded down otherwise
GRAINS_OF_RATES = 2**24  # then all rates together are this many units

Path = tuple[int, ...]


class Duals(NamedTuple):
    """Dual values in whole numbers of one unit."""

    links: list[int]
    roots: dict[Direction, list[int]]  # what a tree of each root earns


@dataclass(frozen=True)
class Optimum:
    """The bound of trees, GB/s in any unit of each tree that is used, and whether the trees reach the bound."""

    bound: Bound
    rates: tuple[tuple[SteinerTree, Fraction], ...]
    exact: bool


def check_abilities(topology: Topology) -> None:
    """Raise `UnsupportedError` if no switch multicasts or aggregates."""
    if not topology.multicast | topology.aggregation:
        raise UnsupportedError(f"no switch of {topology} multicasts or aggregates; use another planner")


def _check_size(topology: Topology) -> None:
    """Raise `UnsupportedError` if there are too many ranks or branching switches, or one joins too few neighbors."""
    branching = topology.multicast | topology.aggregation
    counts = {"ranks": (topology.num_ranks, MAX_RANKS), "switches that branch": (len(branching), MAX_SWITCHES)}
    for what, (count, limit) in counts.items():
        if count > limit:
            raise UnsupportedError(f"{topology} has {count} {what}; expected at most {limit} to find the best trees")
    for limits in topology.limits:
        # Each child leads to a rank of its own, and so does the way to the root.
        if limits.switch in branching and limits.group is not None and limits.group < topology.num_ranks:
            room = f"joins at most {limits.group} neighbors; expected room for all {topology.num_ranks} ranks"
            raise UnsupportedError(f"switch {limits.switch!r} {room}: use another planner")


def steiner_bound(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> Bound:
    """Bound a collective by the best schedule of trees that branch at ranks and at switches, on small networks.

    The witness is a `TreeDual`.  Trees reach the bound, unless the solver's dual values could not be made exact.
    Raises `UnsupportedError` above 12 ranks, above 6 switches that multicast or aggregate, or where the group limit of
    one is smaller than the number of ranks; `BoundError` if some rank is out of reach.

    Parameters
    ----------
    topology : Topology
        Switches may take in more or less than they give out.
    collective, root, weights
        As for `collopt.bound`.
    """
    collective = check_request(topology, collective)
    return best_trees(topology, collective, shard_weights(topology, collective, root, weights)).bound


@register_planner("steiner", TREE_COLLECTIVES)
def plan_steiner(
    topology: Topology,
    collective: Collective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> Plan:
    """Plan the best trees that branch at switches, on small networks."""
    from .forestcoll import bound_cuts  # with kernels

    check_abilities(topology)
    trace = Trace()
    sizes = shard_weights(topology, collective, root, weights)
    with trace.stage("column generation"):
        best = best_trees(topology, collective, sizes)
        trace.note("tree_algbw", str(best.bound.algbw))
    schedule = _schedule(topology, collective, sizes or (1,) * topology.num_ranks, best.rates)
    with trace.stage("bound"):
        try:
            bound = bound_cuts(topology, collective, sizes)
        except CapacityOverflowError:
            bound = Bound.from_witness(topology, collective, rank_cut(topology, collective, sizes), sizes)
        scoped = best.bound if best.bound.algbw < bound.algbw else None
    return proved_plan(topology, collective, schedule, "steiner", {}, trace, bound, scoped)


def best_trees(topology: Topology, collective: Collective, weights: tuple[int, ...]) -> Optimum:
    """Solve the program of trees, adding trees until none is missing."""
    _check_size(topology)
    capacities = topology.arrays.capacities
    # Whole numbers are exact in floats.
    unit = topology.arrays.unit if capacities.max() <= MAX_BANDWIDTH else Fraction(1)
    model = build(topology.scaled(1 / unit), collective, weights=weights or None)
    pricing = [_Pricing(topology, direction, model.weights) for direction in collective.phases]
    first = [GRAINS // int(capacity) for capacity in capacities]
    trees = [tree for side in pricing for _, tree in side.cheapest(first).values()]
    session = Session(model, HighsOptions(algorithm=Algorithm.SIMPLEX))
    # Price with floats until no tree is missing, then once with the exact dual values.
    with progress.status() as say:
        for number in range(MAX_ROUNDS):
            model.add_trees([_tidied(tree, topology.num_ranks) for tree in trees])
            say(f"round {number + 1}, {len(model.trees):,} trees")
            solution = session.solve()
            duals = _float_duals(solution, collective)
            trees = _missing(pricing, duals, slack=2 * topology.num_links)
            if not trees:
                exact = _exact_duals(solution, collective)
                trees = _missing(pricing, exact) if exact else []
                if not trees:
                    return _optimum(topology, model, weights, solution, exact or duals, exact is not None)
    raise SolverError(f"{model.blocks.name} lacks trees after {MAX_ROUNDS} rounds")


class _Pricing:
    """Cheapest trees of one direction."""

    def __init__(self, topology: Topology, direction: Direction, weights: Sequence[int]) -> None:
        self._topology, self._direction = topology, direction
        self._roots = [rank for rank, weight in enumerate(weights) if weight]
        branching = topology.multicast if direction == "broadcast" else topology.aggregation
        self._able = sorted(topology.node_index[switch] for switch in branching)
        self._looped = {topology.node_index[switch] for switch in branching & topology.loopback}
        ends = [(topology.node_index[link.tail], topology.node_index[link.head]) for link in topology.links]
        if direction == "reduce":
            ends = [(head, tail) for tail, head in ends]
        places = {pair: place for place, pair in enumerate(ends)}
        self._hops: list[list[tuple[int, int, int | None]]] = [[] for _ in topology.nodes]
        for place, (tail, head) in enumerate(ends):
            self._hops[tail].append((head, place, places.get((head, tail))))

    def cheapest(self, prices: Sequence[int]) -> dict[int, tuple[int, SteinerTree]]:
        """Find the cheapest tree of each root, and the dual values of its links together."""
        paths = self._vertex_paths(prices)
        best: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        sets = (combinations(self._able, count) for count in range(len(self._able) + 1))
        for switches in chain.from_iterable(sets):
            vertices = (*range(self._topology.num_ranks), *switches)
            number = {node: place for place, node in enumerate(vertices)}
            arcs = [
                Arc(number[tail], number[head], cost)
                for (tail, head), (cost, _) in paths.items()
                if tail in number and head in number
            ]
            cheapest_in: dict[int, int] = {}
            for arc in arcs:
                cheapest_in[arc.head] = min(arc.cost, cheapest_in.get(arc.head, arc.cost))
            for root in self._roots:
                # Every vertex but the root takes some arc.
                if root in best and sum(cheapest_in.values()) - cheapest_in.get(root, 0) >= best[root][0]:
                    continue
                places = cheapest_arborescence(len(vertices), root, arcs)
                if places is None:
                    continue
                cost = sum(arcs[place].cost for place in places)
                if root not in best or cost < best[root][0]:
                    best[root] = cost, [(vertices[arcs[place].tail], vertices[arcs[place].head]) for place in places]
        if lost := [root for root in self._roots if root not in best]:
            name = self._topology.compute_nodes[lost[0]]
            raise BoundError(
                f"no tree joins rank {name!r} with every other in {self._topology}; add links or leave ranks out"
            )
        return {
            root: (cost, SteinerTree(root, self._direction, tuple(paths[pair][1] for pair in pairs)))
            for root, (cost, pairs) in best.items()
        }

    def _vertex_paths(self, prices: Sequence[int]) -> dict[tuple[int, int], tuple[int, Path]]:
        """Cheapest paths between ranks and switches that branch trees."""
        ranks = self._topology.num_ranks
        paths: dict[tuple[int, int], tuple[int, Path]] = {}
        for tail in (*range(ranks), *self._able):
            there = self._paths(tail, prices, back=False)
            both = self._paths(tail, prices, back=True) if tail < ranks and self._looped else there
            for head in (*range(ranks), *self._able):
                if head != tail and head in (reached := both if head in self._looped else there):
                    paths[tail, head] = reached[head]
        return paths

    def _paths(self, start: int, prices: Sequence[int], *, back: bool) -> dict[int, tuple[int, Path]]:
        """Cheapest paths past switches to all nodes, by Dijkstra's algorithm; with `back`, there and back."""
        final: dict[int, tuple[int, Path]] = {}
        waiting: list[tuple[int, int, Path]] = [(0, 0, (start,))]
        while waiting:
            cost, hops, path = heappop(waiting)
            node = path[-1]
            if node in final:
                continue
            final[node] = cost, path
            if node != start and node < self._topology.num_ranks:
                continue
            for head, link, opposite in self._hops[node]:
                if head not in final and not (back and opposite is None):
                    price = prices[link] + (prices[opposite] if back and opposite is not None else 0)
                    heappush(waiting, (cost + price, hops + 1, (*path, head)))
        return final


def _tidied(tree: SteinerTree, num_ranks: int) -> SteinerTree:
    """Leave out switches that hand data on to one rank or to nobody."""
    while True:
        hops = tuple(edge.path for edge in tree.forest(num_ranks).tidied().edges(0))
        if len(hops) == len(tree.paths):
            return tree
        tree = tree._replace(paths=hops)


def _missing(pricing: Sequence[_Pricing], duals: Duals, slack: int = 0) -> list[SteinerTree]:
    """Find trees that cost less than they earn, the cheapest of each root."""
    cheapest = [priced for side in pricing for priced in side.cheapest(duals.links).values()]
    return [tree for cost, tree in cheapest if cost + slack < duals.roots[tree.direction][tree.root]]


def _float_duals(solution: Solution, collective: Collective) -> Duals:
    """Read dual values in floats as multiples of one grain."""
    links = solution.duals["link_bandwidth"]
    grains = GRAINS / max(float(links.max()), 1e-300)
    roots = {
        direction: [round(-dual * grains) for dual in solution.duals[f"{direction}_rooted"]]
        for direction in collective.phases
    }
    return Duals([round(max(dual, 0.0) * grains) for dual in links.tolist()], roots)


def _exact_duals(solution: Solution, collective: Collective) -> Duals | None:
    """Dual values of the exact basis, None if it is not optimal without tolerances."""
    try:
        exact = solution.exact.duals
    except NoAnswerError:
        return None
    rows = [exact["link_bandwidth"], *(-exact[f"{direction}_rooted"] for direction in collective.phases)]
    integers = iter(whole_numbers([dual for row in rows for dual in row.tolist()]))
    links, *roots = [[next(integers) for _ in row] for row in rows]
    return Duals(links, dict(zip(collective.phases, roots, strict=True)))


def _optimum(
    topology: Topology, model: SteinerModel, weights: tuple[int, ...], solution: Solution, duals: Duals, exact: bool
) -> Optimum:
    pairs = zip(topology.links, duals.links, strict=True)
    witness = TreeDual(tuple(LinkValue(link.tail, link.head, Fraction(dual)) for link, dual in pairs if dual))
    values = solution.exact.values if exact else solution.values
    blocks = [name for name in values if name.startswith("trees_")]
    rates = [Fraction(value) for name in blocks for value in values[name].tolist()]
    used = tuple((tree, rate) for tree, rate in zip(model.trees, rates, strict=True) if rate > 0)
    return Optimum(Bound.from_witness(topology, model.collective, witness, weights), used, exact)


def _schedule(
    topology: Topology, collective: Collective, weights: Sequence[int], rates: Sequence[tuple[SteinerTree, Fraction]]
) -> Forest | Allreduce:
    """Count trees in whole units, as many of each root as its share is in both directions."""
    counts = whole_numbers([rate for _, rate in rates])
    if sum(counts) > MAX_UNITS:
        total = sum(rate for _, rate in rates)
        counts = tuple(floor(rate / total * GRAINS_OF_RATES) for _, rate in rates)
    sums: dict[Direction, list[int]] = {direction: [0] * topology.num_ranks for direction in collective.phases}
    for (tree, _), count in zip(rates, counts, strict=True):
        sums[tree.direction][tree.root] += count
    shares = [min(direction) for direction in zip(*sums.values(), strict=True)]
    if collective.has_two_phases:
        per_root = gcd(*shares)
    else:
        per_root = min(share // weight for share, weight in zip(shares, weights, strict=True) if weight)
    if per_root == 0:
        raise NoAnswerError(f"the best trees of {topology} have rates that differ too much; use another planner")
    sizes = [share // per_root for share in shares] if collective.has_two_phases else list(weights)
    counted = [(tree, count) for (tree, _), count in zip(rates, counts, strict=True)]
    forests = [_forest(topology, direction, counted, sizes, per_root) for direction in collective.phases]
    return Allreduce(*forests) if collective.has_two_phases else forests[0]


def _forest(
    topology: Topology,
    direction: Direction,
    counted: Sequence[tuple[SteinerTree, int]],
    sizes: Sequence[int],
    per_root: int,
) -> Forest:
    left = [size * per_root for size in sizes]
    trees = []
    for tree, count in counted:
        if tree.direction == direction and (kept := min(count, left[tree.root])):
            left[tree.root] -= kept
            trees.append((tree.root, kept, tree.paths))
    ends = {node for _, _, paths in trees for path in paths for node in (path[0], path[-1])}
    switches = sorted(node for node in ends if node >= topology.num_ranks)
    return Forest.from_paths(
        topology.num_ranks, per_root, trees, root_weights=sizes, direction=direction, switches=switches
    )
