"""Cuts that bound demands: around single ranks, what has and what needs items, and where lengths of links say."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ...schedules import Bound, Cut, Demands
from ...support.arrays import BoolArray, FloatArray, IntArray
from ...topologies import Topology
from ...topologies.symmetry.rank_groups import rank_groups
from ..all_to_all.multicommodity import cuts_at


def best_cut(topology: Topology, demands: Demands, lengths: IntArray | None = None) -> Bound:
    """Return the lowest of the bounds by these cuts."""
    tails, heads, capacities, _ = topology.arrays
    ends = demands.ends(topology)
    weights = np.array([group.weight for group in demands.groups], dtype=object)
    having, needing = np.zeros((2, len(ends), len(topology.nodes)), dtype=np.float64)
    for group, (sources, targets) in enumerate(ends):
        having[group, list(sources)] = needing[group, list(targets)] = 1
    best: tuple[Fraction, Cut] | None = None
    sides_tried = set[bytes]()
    for inside in _candidates(topology, (having, needing), lengths):
        if inside.tobytes() in sides_tried:
            continue
        sides_tried.add(inside.tobytes())
        amount = int(weights[(having @ ~inside == 0) & (needing @ ~inside > 0)].sum())
        width = int(capacities[inside[tails] & ~inside[heads]].sum())
        if amount and width and (best is None or Fraction(amount, width) > best[0]):
            nodes = frozenset(topology.nodes[place] for place in np.flatnonzero(inside).tolist())
            best = Fraction(amount, width), Cut(nodes)
    assert best is not None, "every destination is in reach, so that its links carry something"
    return Bound.from_witness(topology, demands, best[1])


def _candidates(
    topology: Topology, roles: tuple[FloatArray, FloatArray], lengths: IntArray | None
) -> Iterator[BoolArray]:
    """Yield sides of cuts, bool (nodes,): ranks or nested groups of ranks alone, or all others."""
    ranks = topology.num_ranks
    digits = rank_groups(topology).digits
    sides = [np.arange(ranks) == rank for rank in range(ranks)]
    for level in range(1, digits.shape[1]):
        _, number = np.unique(digits[:, :level], axis=0, return_inverse=True)
        sides += [number == group for group in range(int(number.max()) + 1)]
    sides += [role[:, :ranks].any(axis=0) for role in roles]
    for side in sides:
        inside = _with_switches(topology, side)
        yield inside
        yield ~inside
    if lengths is not None:
        for cut in cuts_at(topology, [Fraction(int(length)) for length in lengths]):
            yield np.array([node in cut.nodes for node in topology.nodes])


def _with_switches(topology: Topology, ranks: BoolArray) -> BoolArray:
    """Put switches on the side to which most of their bandwidth leads, those next to ranks first."""
    tails, heads, capacities, _ = topology.arrays
    side = np.zeros(len(topology.nodes))
    side[: len(ranks)] = np.where(ranks, 1, -1)
    for _ in range(len(topology.nodes)):
        pull = np.zeros(len(side))
        np.add.at(pull, tails, capacities * side[heads])
        np.add.at(pull, heads, capacities * side[tails])
        undecided = (side == 0) & (pull != 0)
        if not undecided.any():
            break
        side[undecided] = np.sign(pull[undecided])
    return side > 0
