"""Division of paths at switches that copy: in one tree, a path may begin where another one passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...support.arrays import IntArray
from ...support.kernels import kernel

if TYPE_CHECKING:
    from .switch_vertices import Abilities, NumberedRoutes


@kernel
def divide(
    weights: IntArray,
    depths: IntArray,
    numbered: NumberedRoutes,
    abilities: Abilities,
    column: IntArray,
    longest: int,
    pieces: IntArray,
) -> None:
    """Write for each vertex the piece of a path on which it receives: ``(path * longest + first) * longest + last``.

    Paths to ranks near the root come first, so that no tree becomes higher.

    Shapes: as in a Forest; `column` int64 (nodes,); `pieces` int64 (trees, vertices), -1 where nothing is received.
    """
    routes, starts, nodes = numbered
    ranks = routes.shape[1]
    supplier = np.empty(len(column), dtype=np.int64)  # the rank on whose path each switch receives
    begins = np.empty(len(column), dtype=np.int64)  # how many paths begin at each switch
    first = np.empty(ranks, dtype=np.int64)
    for tree in range(len(weights)):
        supplier[:] = -1
        begins[:] = 0
        # Each path begins at the last switch on it that has the data already.
        for rank in np.argsort(depths[tree], kind="mergesort")[1:]:
            path = routes[tree, rank]
            begin, length = starts[path], starts[path + 1] - starts[path]
            first[rank] = 0
            for place in range(length - 2, 0, -1):
                switch = nodes[begin + place]
                if supplier[switch] >= 0 and _takes(
                    switch, tree, supplier[switch], first, begins[switch], weights[tree], numbered, abilities
                ):
                    first[rank] = place
                    begins[switch] += 1
                    break
            # Further switches on the path have the data from now on.
            for place in range(first[rank] + 1, length - 1):
                switch = nodes[begin + place]
                if abilities.branches[switch] and supplier[switch] < 0:
                    supplier[switch] = rank
        # Paths end, and new ones begin, at the switches where others begin.
        for rank in range(ranks):
            path = routes[tree, rank]
            if path < 0:
                continue
            begin, length, since = starts[path], starts[path + 1] - starts[path], first[rank]
            for place in range(first[rank] + 1, length):
                node = nodes[begin + place]
                if place == length - 1 or (supplier[node] == rank and begins[node] > 0):
                    pieces[tree, column[node]] = (path * longest + since) * longest + place
                    since = place


@kernel
def _takes(
    switch: int,
    tree: int,
    supplier: int,
    first: IntArray,
    begun: int,
    weight: int,
    numbered: NumberedRoutes,
    abilities: Abilities,
) -> bool:
    """Whether one more path may begin at a switch; reserves links for the copy that the first one loops back."""
    if begun + 3 > abilities.group[switch]:
        return False
    if begun > 0 or not abilities.loops[switch] or first[supplier] > 0:
        return True
    begin = numbered.path_starts[numbered.routes[tree, supplier]]
    end = begin
    while numbered.path_nodes[end] != switch:
        end += 1
    back = abilities.opposite[begin:end]
    for link in back:
        if link < 0 or abilities.room[link] < weight:
            return False
    for link in back:
        abilities.room[link] -= weight
    return True
