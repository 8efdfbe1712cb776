"""Circulant graphs and digraphs for the topology finder: searched, and each one's costs worked out exactly.

Nothing is assumed of them.  The paper's Conjecture 1, that breadth-first broadcast is bandwidth-optimal on all of those
with opposite links, is false; so T_B is computed for every set of offsets that is looked at, and what is kept is the
Pareto frontier of these sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ...topologies.direct_connect.circulant_search import bidirectional_offset_sets, digraph_offset_sets
from ...topologies.graphs.names import offset_names
from .constructions import Base

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ...solvers.bfb.circulant_loads import CirculantCosts

    IntArray = npt.NDArray[np.int64]

MAX_SEARCHED_DEGREE = 10  # beyond, the sets of offsets over which a step's load is a maximum are too many
MAX_SETS = 60_000
MAX_EQUALS = 100  # sets of equal cost that are looked at for what their line graphs may cost


class CirculantBase(NamedTuple):
    """A circulant graph or digraph with its exact costs."""

    steps: int  # T_L in alpha: the diameter
    factor: Fraction  # T_B in M/B of the best breadth-first broadcast
    hops: int  # sum of the distances between all nodes
    recipe: Base  # how to build it
    two_way: bool  # each link has an opposite one


def best_circulants(nodes: int, degree: int, effort: int) -> tuple[CirculantBase, ...]:
    """List the circulant digraphs, and those with opposite links, that are best in T_L and T_B of all looked at.

    All sets of offsets are looked at if the effort allows it, else a sample that is the same in every run: see
    `collopt.topologies.direct_connect.circulant_search`.  For two-way links of degree 2 and 4 nothing is searched, for
    theorems say which circulant graphs are best.
    """
    return tuple(found.base for found in _searched(nodes, degree, effort))


def line_graph_circulants(nodes: int, degree: int, effort: int) -> tuple[Base, ...]:
    """List circulant digraphs at the best cost whose line graphs may cost less than Theorem 7 says."""
    promising = (_promising(nodes, found.equals) for found in _searched(nodes, degree, effort))
    return tuple(_recipe(nodes, offsets) for offsets in promising if offsets)


class _Found(NamedTuple):
    """One of the best, and sets of offsets, it among them, that cost as much."""

    base: CirculantBase
    equals: IntArray


@cache
def _searched(nodes: int, degree: int, effort: int) -> tuple[_Found, ...]:
    """Search once for both."""
    if not 2 <= degree < min(nodes - 1, MAX_SEARCHED_DEGREE + 1):
        return ()
    most = min(effort // (degree * (nodes + 2 ** (degree + 1))) + 1, MAX_SETS)
    one_way = _best_of(nodes, digraph_offset_sets(nodes, degree, most))
    # Of two-way graphs of degree 2 and 4 theorems say which are best.
    two_way = () if degree in (2, 4) else _best_of(nodes, bidirectional_offset_sets(nodes, degree, most))
    return (*one_way, *two_way)


def _best_of(nodes: int, sets: IntArray) -> Iterator[_Found]:
    import numpy as np

    from ...solvers.bfb.circulant_loads import circulant_costs

    degree = sets.shape[1]
    costs = circulant_costs(nodes, sets)
    for place in _efficient(costs):
        offsets = tuple(sorted(sets[place].tolist()))
        factor = Fraction(int(costs.loads[place]) * degree, costs.unit * nodes)
        opposite = all(nodes - offset in offsets for offset in offsets)
        hops = int(costs.hops[place]) * nodes
        equal = (costs.steps == costs.steps[place]) & (costs.loads == costs.loads[place])
        yield _Found(
            CirculantBase(int(costs.steps[place]), factor, hops, _recipe(nodes, offsets), opposite),
            sets[np.flatnonzero(equal)[:MAX_EQUALS]],
        )


def _promising(nodes: int, sets: IntArray) -> tuple[int, ...]:
    """Return the first set whose offsets all lead equally far away, or none."""
    for row in sets.tolist():
        offsets = tuple(sorted(row))
        hops = _hops_from_zero(nodes, offsets)
        if len({hops[nodes - offset] for offset in offsets}) == 1 and hops[nodes - offsets[0]] > 1:
            return offsets
    return ()


def _hops_from_zero(nodes: int, offsets: tuple[int, ...]) -> dict[int, int]:
    hops, fresh, distance = {0: 0}, [0], 0
    while fresh:
        distance += 1
        reached = dict.fromkeys((node + offset) % nodes for node in fresh for offset in offsets)
        fresh = [node for node in reached if node not in hops]
        hops.update(dict.fromkeys(fresh, distance))
    return hops


def _efficient(costs: CirculantCosts) -> Iterator[int]:
    """Places of the sets that no other beats in T_L or T_B without losing in the other; of equals one of least hops."""
    import numpy as np

    least = None
    worked_out = np.flatnonzero(costs.steps)
    keys = (each[worked_out] for each in (costs.hops, costs.loads, costs.steps))
    for place in worked_out[np.lexsort(tuple(keys))].tolist():
        if least is None or costs.loads[place] < least:
            least = costs.loads[place]
            yield place


def _recipe(nodes: int, offsets: tuple[int, ...]) -> Base:
    """As a graph if it is one, for its name is shorter; the offset n / 2 is for digraphs only."""
    half = tuple(offset for offset in offsets if 2 * offset < nodes)
    if offsets == (*half, *(nodes - offset for offset in reversed(half))):
        return circulant_base(nodes, half)
    return Base("circulant_digraph", (nodes, offsets), f"DirCirc({nodes}, {offset_names(offsets)})")


def circulant_base(nodes: int, offsets: tuple[int, ...]) -> Base:
    """Describe `collopt.topologies.circulant` of these offsets, in order."""
    return Base("circulant", (nodes, offsets), f"C({nodes}, {offset_names(offsets)})")
