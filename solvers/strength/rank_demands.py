"""Needs of ranks: a number of trees divided so that every set of ranks has those that its links cannot bring.

If c(S) trees can enter a set S of nodes, ``level - c(S)`` have to be its ranks' own, in the sense of
`collopt.solvers.strength.orientation`.  Such numbers exist exactly if the level is at most twice the strength
(`collopt.solvers.strength.strength`): ranks that get the least that the sets of ranks before them leave open need no
more than the level in all.
"""

from __future__ import annotations

import numba
import numpy as np

from ...errors import SolverError
from ...support.arrays import BoolArray, IntArray
from ...support.progress import portions
from ..flow.max_flow import check_capacities
from .priced_cuts import PricedCuts, least_cut, priced_cuts

__all__ = ["rank_needs"]


def rank_needs(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, level: int, wish: IntArray
) -> IntArray:
    """Divide `level` among the ranks so that every set of ranks gets at least `level` less any cut around it.

    In symbols: ``need(all) = level``, and ``need(X) >= level - c(S)`` for every set of nodes S that holds the ranks X
    and no others.  Needs may be negative.  They are near the wish: first every rank gets what it wishes, or more if a
    cut asks for it; what is too much in all is then taken back, in equal steps as far as cuts allow.

    Shapes: `tails`, `heads`, `capacities` int64 (links,); `wish` int64 (ranks,); returns int64 (ranks,).

    A path of two unit links, whose strength is 1.  One link leads to each end, so each needs one of the two:

    >>> import numpy as np
    >>> rank_needs(3, np.array([0, 1]), np.array([1, 2]), np.array([1, 1]), 2, np.array([0, 2, 0])).tolist()
    [1, 0, 1]
    """
    check_capacities(4 * sum(map(int, capacities)) + 2 * level * (len(wish) + 1))
    cuts = priced_cuts(num_nodes, len(wish), tails, heads, capacities)
    needs, settled = np.zeros_like(wish), np.zeros(len(wish), dtype=np.bool_)
    for begin, end in portions(len(wish)):
        _raise(cuts, level, begin, end, wish, needs, settled)
    # First in equal steps, then as much as cuts allow.
    for last in (False, True):
        excess = int(needs.sum()) - level
        limit = excess if last else excess // max(1, int((~settled).sum())) + 1
        for begin, end in portions(len(wish)):
            _take_back(cuts, level, limit, begin, end, needs, settled)
    if (excess := int(needs.sum()) - level) > 0:
        raise SolverError(f"the ranks need {excess} more than {level}, which is beyond twice the strength")
    return needs


@numba.njit(cache=True, nogil=True)
def _raise(
    cuts: PricedCuts, level: int, begin: int, end: int, wish: IntArray, needs: IntArray, settled: BoolArray
) -> None:
    """Give some ranks, once those before have theirs, what they wish, or more if a cut asks for it."""
    nodes, ranks = len(cuts.first), cuts.num_ranks
    scratch = np.empty((4, nodes), dtype=np.int64)
    residual = np.empty_like(cuts.capacities)
    active = np.arange(nodes) >= ranks
    active[:begin] = True
    for rank in range(begin, end):
        active[rank] = True
        least = level - least_cut(cuts, 1, needs, rank, active, residual, scratch)
        needs[rank] = max(wish[rank], least)
        if least >= wish[rank]:
            settled[:rank] |= scratch[0, :rank] < 0
            settled[rank] = True


@numba.njit(cache=True, nogil=True)
def _take_back(
    cuts: PricedCuts, level: int, limit: int, begin: int, end: int, needs: IntArray, settled: BoolArray
) -> None:
    """Take from some ranks what is too much in all, up to a limit each, as far as cuts allow."""
    nodes, ranks = len(cuts.first), cuts.num_ranks
    scratch = np.empty((4, nodes), dtype=np.int64)
    residual = np.empty_like(cuts.capacities)
    active = np.ones(nodes, dtype=np.bool_)
    excess: int = needs.sum() - level
    for rank in range(begin, end):
        if settled[rank] or excess == 0:
            continue
        spare = needs[rank] + least_cut(cuts, 1, needs, rank, active, residual, scratch) - level
        if spare <= min(limit, excess):
            settled |= scratch[0, :ranks] < 0
        needs[rank] -= min(spare, limit, excess)
        excess -= min(spare, limit, excess)
