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

from ..topologies.offset_sets import digraph_offset_sets, two_way_offset_sets
from .recipes import Base

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..solvers.circulant_loads import CirculantCosts

    IntArray = npt.NDArray[np.int64]

__all__ = ["MOST_SEARCHED_DEGREE", "CirculantBase", "best_circulants", "line_graph_circulants"]

MOST_SEARCHED_DEGREE = 10
"""Beyond, the sets of offsets over which a step's load is a maximum are too many."""
MOST_SETS = 60_000
MOST_EQUALS = 100
"""Sets of equal cost that are looked at for what their line graphs may cost."""


class CirculantBase(NamedTuple):
    """A circulant graph or digraph with its exact costs.

    Attributes
    ----------
    steps : int
        T_L in alpha: the diameter.
    factor : Fraction
        T_B in M/B of the best breadth-first broadcast.
    hops : int
        Sum of the distances between all nodes.
    recipe : Base
        How to build it.
    two_way : bool
        Each link has an opposite one.
    """

    steps: int
    factor: Fraction
    hops: int
    recipe: Base
    two_way: bool


def best_circulants(nodes: int, degree: int, effort: int) -> tuple[CirculantBase, ...]:
    """List the circulant digraphs, and those with opposite links, that are best in T_L and T_B of all looked at.

    Parameters
    ----------
    nodes, degree : int
        N and d.
    effort : int
        How long to search: distances and sets of offsets to look at, for digraphs and for two-way graphs each.

    Returns
    -------
    tuple of CirculantBase
        Those without opposite links first; each kind by increasing T_L.  None for degrees of 1, N - 1 and more, where
        there is but one circulant digraph, and for degrees beyond 10.

    Notes
    -----
    All sets of offsets are looked at if the effort allows it, else a sample that is the same in every run: see
    `collopt.topologies.offset_sets`.  For two-way links of degree 2 and 4 nothing is searched, for theorems say which
    circulant graphs are best.

    Examples
    --------
    >>> [(base.recipe.name, base.steps, str(base.factor)) for base in best_circulants(7, 3, 10**5)]
    [('DirCirc(7, {1, 2, 4})', 2, '6/7')]
    """
    return _searched(nodes, degree, effort)[0]


def line_graph_circulants(nodes: int, degree: int, effort: int) -> tuple[Base, ...]:
    """List circulant digraphs that cost what the best ones do and whose line graphs may cost less than Theorem 7 says.

    Parameters
    ----------
    nodes, degree, effort : int
        As for `best_circulants`.

    Returns
    -------
    tuple of Base
        At most one for each of the best: all their arcs lead equally far away, which
        `collopt.schedules.is_line_graph_cost_exact` explains.
    """
    return _searched(nodes, degree, effort)[1]


@cache
def _searched(nodes: int, degree: int, effort: int) -> tuple[tuple[CirculantBase, ...], tuple[Base, ...]]:
    """Search once for both."""
    if not 2 <= degree < min(nodes - 1, MOST_SEARCHED_DEGREE + 1):
        return (), ()
    from ..solvers.circulant_loads import circulant_costs

    most = min(effort // (degree * (nodes + 2 ** (degree + 1))) + 1, MOST_SETS)
    found: list[CirculantBase] = []
    promising: list[Base] = []
    for sets, two_way in (
        (digraph_offset_sets(nodes, degree, most), False),
        (two_way_offset_sets(nodes, degree, most) if degree not in (2, 4) else None, True),
    ):
        if sets is not None:
            costs = circulant_costs(nodes, sets)
            for place in _efficient(costs):
                offsets = tuple(sorted(sets[place].tolist()))
                factor = Fraction(int(costs.loads[place]) * degree, costs.unit * nodes)
                hops = int(costs.hops[place]) * nodes
                recipe = _recipe(nodes, offsets)
                opposite = two_way or all(nodes - offset in offsets for offset in offsets)
                found.append(CirculantBase(int(costs.steps[place]), factor, hops, recipe, opposite))
                promising += [_recipe(nodes, equal) for equal in _promising(nodes, sets, costs, place)]
    return tuple(found), tuple(promising)


def _promising(nodes: int, sets: IntArray, costs: CirculantCosts, place: int) -> Iterator[tuple[int, ...]]:
    """Yield the first of the sets that cost as much whose offsets all lead equally far away, if there is one."""
    import numpy as np

    equal = (costs.steps == costs.steps[place]) & (costs.loads == costs.loads[place])
    for other in np.flatnonzero(equal)[:MOST_EQUALS].tolist():
        offsets = tuple(sorted(sets[other].tolist()))
        hops = _hops_from_zero(nodes, offsets)
        if len({hops[nodes - offset] for offset in offsets}) == 1 and hops[nodes - offsets[0]] > 1:
            yield offsets
            return


def _hops_from_zero(nodes: int, offsets: tuple[int, ...]) -> dict[int, int]:
    hops, fresh = {0: 0}, [0]
    while fresh:
        reached = dict.fromkeys((node + offset) % nodes for node in fresh for offset in offsets)
        fresh = [node for node in reached if node not in hops]
        hops.update(dict.fromkeys(fresh, max(hops.values()) + 1))
    return hops


def _efficient(costs: CirculantCosts) -> Iterator[int]:
    """Places of the sets that no other beats in T_L or T_B without losing in the other; of equals one of least hops."""
    import numpy as np

    least = None
    for place in np.lexsort((costs.hops, costs.loads, costs.steps)).tolist():
        if costs.steps[place] and (least is None or costs.loads[place] < least):
            least = costs.loads[place]
            yield place


def _recipe(nodes: int, offsets: tuple[int, ...]) -> Base:
    """As a graph if it is one, for its name is shorter; the offset n / 2 is for digraphs only."""
    half = tuple(offset for offset in offsets if 2 * offset < nodes)
    if offsets == (*half, *(nodes - offset for offset in reversed(half))):
        return Base("circulant", (nodes, half), f"C({nodes}, {_braces(half)})")
    return Base("circulant_digraph", (nodes, offsets), f"DirCirc({nodes}, {_braces(offsets)})")


def _braces(offsets: tuple[int, ...]) -> str:
    return f"{{{', '.join(map(str, offsets))}}}"
