"""Bounds of demands: a cut, cuts of items by dual ascent, or those of the linear program where trees miss it."""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

import numpy as np

from ...errors import CertificateError, NoAnswerError
from ...formulations.multicast import MulticastModel, build, count_flows
from ...schedules import Bound, Demands, ItemCut, ItemCuts, LinkValue
from ...schedules.bounds.item_cuts import hop_ends, hop_lengths
from ...solvers import Algorithm, HighsOptions, solve
from ...solvers.trees.steiner_trees import FAR, dual_ascent
from ...support.arrays import IntArray
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from .cut_search import best_cut
from .packing import Packing, packed

MAX_FLOWS = 40_000  # variables of the linear program that is solved where cuts leave a gap


def bound_demands(topology: Topology, demands: Demands) -> Bound:
    """Bound any schedule of demands, as `collopt.bound`."""
    as_topology(topology)
    return bound_packing(topology, demands, packed(topology, demands))


def bound_packing(topology: Topology, demands: Demands, packing: Packing) -> Bound:
    """Bound all schedules of demands, by the simplest witness that meets what the trees reach, or by the best."""
    rate = sum((rate for _, rate in packing.trees), Fraction(0))
    bounds = [best_cut(topology, demands, packing.lengths)]
    if bounds[0].algbw > rate:
        bounds += _by_ascent(topology, demands, packing.lengths)
    if min(bound.algbw for bound in bounds) > rate and count_flows(topology, demands) <= MAX_FLOWS:
        bounds += _by_program(topology, demands)
    return min(bounds, key=lambda bound: bound.algbw)


def _by_ascent(topology: Topology, demands: Demands, lengths: IntArray) -> list[Bound]:
    """Weigh cuts of every group by dual ascent, at lengths of links."""
    places = zip(topology.links, lengths.tolist(), strict=True)
    hops = hop_lengths(topology, {link[:2]: length for link, length in places})
    table = np.where(np.isfinite(hops), hops, FAR).astype(np.int64)
    ends = hop_ends(topology)
    rows = []
    for sources, targets in demands.ends(topology):
        ascent = dual_ascent(table, np.array(sources), np.array(targets))
        cuts = zip(ascent.weights.tolist(), ascent.cuts, strict=True)
        rows.append([(Fraction(weight), cut) for weight, cut in cuts if weight])
    return _bounds(topology, demands, [Fraction(length) for length in lengths.tolist()], rows, ends)


def _by_program(topology: Topology, demands: Demands) -> list[Bound]:
    """Solve the linear program of all schedules, and read its dual values as lengths and cuts."""
    model = build(topology, demands)
    # In GB/s of all data, prices are far from the tolerances of floats.
    model.maximize([(model.variables.rate, float(demands.total_weight))])
    solution = solve(model, HighsOptions(algorithm=Algorithm.SIMPLEX))
    try:
        duals = solution.exact.duals
    except NoAnswerError:
        return []
    potentials = _potentials(model, duals["flow_balance"], duals["flow_arrival"], len(hop_ends(topology)))
    rows: list[list[tuple[Fraction, np.ndarray]]] = [[] for _ in demands.groups]
    for (group, _), own in zip(model.targets.tolist(), potentials, strict=True):
        # The sets of ends of at least each potential: a hop enters as many as it gains.
        levels = sorted({value for value in own if value > 0})
        for level, below in zip(levels, [Fraction(0), *levels], strict=False):
            rows[group].append((level - below, np.array([value >= level for value in own])))
    return _bounds(topology, demands, list(duals["link_bandwidth"]), rows, hop_ends(topology))


def _potentials(model: MulticastModel, balance: np.ndarray, arrival: np.ndarray, ends: int) -> list[list[Fraction]]:
    """Worth of data of each destination at each end, at most that at the destination, which it is worth for."""
    potentials = []
    for row, (_, target) in enumerate(model.targets.tolist()):
        limit = abs(arrival[row])
        own = [min(abs(balance[row, end]), limit) for end in range(ends)]
        own[target] = limit
        potentials.append(own)
    return potentials


def _bounds(
    topology: Topology,
    demands: Demands,
    lengths: Sequence[Fraction],
    rows: Sequence[Sequence[tuple[Fraction, np.ndarray]]],
    ends: Sequence[str],
) -> list[Bound]:
    """State the bound of lengths and cuts, none if they prove nothing."""
    scale = lcm(*(length.denominator for length in lengths))
    cuts = []
    for row in rows:
        joined: dict[frozenset[str], Fraction] = {}
        for weight, inside in row:
            nodes = frozenset(ends[place] for place in np.flatnonzero(inside).tolist())
            joined[nodes] = joined.get(nodes, Fraction(0)) + weight * scale
        cuts.append(tuple(ItemCut(weight, nodes) for nodes, weight in joined.items()))
    links = tuple(
        LinkValue(link.tail, link.head, length * scale)
        for link, length in zip(topology.links, lengths, strict=True)
        if length
    )
    try:
        return [Bound.from_witness(topology, demands, ItemCuts(links, tuple(cuts)))]
    except CertificateError:
        return []
