"""Search for metacirculant digraphs of low mean distance, and their costs.

Distances bound the rate of an all-to-all from above, and the fewer steps an allgather takes, the shorter they are.  So
sets of elements are compared by distances, and only the best by their broadcasts.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, islice
from math import comb, gcd
from operator import itemgetter

import numpy as np

from ...support.arrays import IntArray
from ...topologies import DirectGraph
from ...topologies.direct_connect.metacirculants import Group
from .bases import MAX_SEARCHED_DEGREE
from .constructions import Base

MAX_NODES = 1024
MAX_GROUPS = 64  # of one size
EFFORT, MAX_SETS = 10**7, 4000  # nodes times arcs of all sets of a size, and sets of a group
MAX_TWO_WAY_SETS = 200
KEPT, SMALL = 24, 256  # digraphs of up to 256 nodes whose broadcasts are looked at; of more nodes there are fewer


@cache
def low_hop_metacirculants(n: int, degree: int, *, two_way: bool) -> tuple[tuple[Base, DirectGraph], ...]:
    """List digraphs by increasing mean distance, the least that a search finds; none beyond its limits.

    Where there are too many sets a sample is looked at, the same in every run.
    """
    from ...solvers.bfb.circulant_loads import UNREACHABLE, hop_sums

    if n > MAX_NODES or not 2 <= degree < min(n - 1, MAX_SEARCHED_DEGREE + 1):
        return ()
    groups = list(islice(_groups(n), MAX_GROUPS))
    found: list[tuple[int, int, Group, list[int]]] = []
    for group in groups:
        sets = _element_sets(group, degree, min(EFFORT // (n * degree * len(groups)) + 1, MAX_SETS), two_way=two_way)
        sums = hop_sums(group.m, group.powers, sets)
        best = np.argsort(sums, kind="stable")[:KEPT].tolist()
        # Groups take turns where sums are equal, for many sets of one group differ by an automorphism only.
        found += [(int(sums[each]), turn, group, sets[each].tolist()) for turn, each in enumerate(best)]
    listed = sorted(found, key=itemgetter(0, 1))[: max(KEPT * SMALL // max(n, SMALL), 6)]
    return tuple(_made(group, elements) for hops, _, group, elements in listed if hops < UNREACHABLE)


def _made(group: Group, elements: list[int]) -> tuple[Base, DirectGraph]:
    graph = group.graph(elements)
    return Base("metacirculant_digraph", (*group, tuple(elements)), graph.name), graph


def _groups(n: int) -> Iterator[Group]:
    """Yield the groups of n elements that are not commutative; many are isomorphic to no other one here."""
    for k in range(2, n // 3 + 1):
        m, part = divmod(n, k)
        if part:
            continue
        for r in range(2, m):
            # Another generator of the second part, y^j, stands for r^j.
            if pow(r, k, m) == 1 and r == min(pow(r, j, m) for j in range(1, k) if gcd(j, k) == 1):
                yield Group(m, k, r)


def _element_sets(group: Group, degree: int, most: int, *, two_way: bool) -> IntArray:
    """Return all sets of elements, or a sample, int64 (sets, degree), increasing; if two-way, with all inverses."""
    n, random = group.m * group.k, np.random.default_rng(0)
    if two_way:
        inverses = group.heads(np.arange(n)).argmin(axis=1).tolist()  # 0 is the neutral element
        units = [{each, other} for each, other in enumerate(inverses) if 0 < each <= other]
        orders = (random.permutation(len(units)) for _ in range(min(most, MAX_TWO_WAY_SETS)))
        found = (_filled((units[place] for place in order), degree) for order in orders)
        listed = sorted({tuple(sorted(each)) for each in found if len(each) == degree})
        sets = np.array(listed, dtype=np.int64).reshape(-1, degree)
    elif comb(n - 1, degree) <= most:
        sets = np.array(list(combinations(range(1, n), degree)), dtype=np.int64)
    else:
        sets = np.sort(random.random((most, n - 1)).argpartition(degree, axis=1)[:, :degree] + 1, axis=1)
    return sets


def _filled(units: Iterator[set[int]], size: int) -> set[int]:
    """Join sets as long as no more than `size` elements come together."""
    joined: set[int] = set()
    for unit in units:
        if len(joined) + len(unit) <= size:
            joined |= unit
    return joined
