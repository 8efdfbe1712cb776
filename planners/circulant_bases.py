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
    from ..solvers.circulant_loads import CirculantCosts

__all__ = ["MOST_SEARCHED_DEGREE", "CirculantBase", "best_circulants"]

MOST_SEARCHED_DEGREE = 10
"""Beyond, the sets of offsets over which a step's load is a maximum are too many."""
MOST_SETS = 60_000


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


@cache
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
    if not 2 <= degree < min(nodes - 1, MOST_SEARCHED_DEGREE + 1):
        return ()
    from ..solvers.circulant_loads import circulant_costs

    most = min(effort // (degree * (nodes + 2 ** (degree + 1))) + 1, MOST_SETS)
    found: list[CirculantBase] = []
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
    return tuple(found)


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
