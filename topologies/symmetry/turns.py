"""Turns of equal parts of a switched network: boxes round a fabric, pods of a fat tree, hosts of a switch.

Without its outermost switches a network falls apart.  Where the parts are equal, and linked equally to what was taken
away, moving each to the next one is a symmetry that fixes all else.  The same goes for the parts of a part, so the
turns of all levels commute.  Nodes of parts are matched by color refinement in all of them at the same time.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray, components, distances_from
from .refinement import ColoredNetwork, refined

MAX_TIES = 64  # sets of nodes that refinement does not tell apart, in a part


class Turn(NamedTuple):
    """A symmetry that moves equal parts in a circle."""

    mapping: IntArray  # int64 (nodes,): where each node goes
    order: int
    # int64 (products, nodes of a part): the first part and its images under the outer turns and this one
    parts: IntArray


def nested_turns(network: ColoredNetwork, num_ranks: int) -> Iterator[Turn]:
    """Yield commuting turns of a network with switches, the outermost first, each checked link by link."""
    ends = np.concatenate([[network.tails, network.heads], [network.heads, network.tails]], axis=1)
    levels = np.maximum(distances_from(np.arange(num_ranks), network.num_nodes, *ends), 0)  # links to the nearest rank
    # From the outermost switches inwards: take them away, match the parts, turn them in all images at once.
    images = np.arange(network.num_nodes)[None]
    for level in range(int(levels.max()), 0, -1):
        block = images[0]
        inside = levels[block] < level
        for at_once in (True, False):
            steps = _equal_parts(network, block[inside], num_ranks, at_once=at_once)
            if steps is None:
                break
            moves = np.flatnonzero(inside)[steps]
            mapping = np.arange(network.num_nodes)
            mapping[images[:, moves.ravel()]] = images[:, np.roll(moves, -1, axis=0).ravel()]
            if network.has_symmetry(mapping):
                images = images[:, moves].reshape(-1, moves.shape[1])
                yield Turn(mapping, len(moves), images)
                break


def hosts_of_sites(network: ColoredNetwork, num_ranks: int) -> IntArray | None:
    """Return the hosts of each router, int64 (routers, hosts of each): equally many, each linked to its router alone.

    Without switches every rank is its own site.  None for other networks with switches.
    """
    routers = network.num_nodes - num_ranks
    if not routers:
        return np.arange(num_ranks)[:, None]
    if routers == 1:
        return None
    # Every rank has one link up and one down, to the same router; routers have equally many ranks.
    ups, downs = network.tails < num_ranks, network.heads < num_ranks
    own, other = ([ends[links] for ends in (network.tails, network.heads)] for links in (ups, downs))
    above, below = np.argsort(own[0]), np.argsort(other[1])
    ranks, near = np.arange(num_ranks), own[1][above]
    if len(above) != num_ranks or (own[0][above] != ranks).any() or near.min() < num_ranks:
        return None
    if len(below) != num_ranks or (other[1][below] != ranks).any() or (other[0][below] != near).any():
        return None
    if (np.bincount(near - num_ranks, minlength=routers) * routers != num_ranks).any():
        return None
    # Links of the hosts of a router are of the same kinds.
    hosts = np.argsort(near, kind="stable").reshape(routers, -1)
    kinds = np.array([network.kinds[ups][above], network.kinds[downs][below]])[:, hosts]
    return hosts if (kinds == kinds[:, :, :1]).all() else None


def _equal_parts(network: ColoredNetwork, inside: IntArray, num_ranks: int, *, at_once: bool) -> IntArray | None:
    """Match the parts that some nodes fall into; int64 (parts, nodes of each), places in `inside`.

    Nodes that are tied are told apart in the order of their numbers: all at once, or one at a time.  None if there are
    no equal parts, or too many ties.
    """
    # Parts are the components of the nodes inside; those with ranks have to be equally large.
    local, colors = network.around(inside)
    size = len(inside)
    both = (local.tails < size) & (local.heads < size)
    part = components(size, np.column_stack([local.tails[both], local.heads[both]]))
    with_ranks = np.zeros(part.max(initial=0) + 1, dtype=np.bool_)
    with_ranks[part[inside < num_ranks]] = True
    moving = with_ranks[part]
    counts = np.bincount(part)[with_ranks]
    if len(counts) < 2 or (counts != counts[0]).any():
        return None
    colors[:size][~moving] = colors.max() + 1 + np.flatnonzero(~moving)
    # Refine all parts together until no color ties two nodes of a part.
    for _ in range(MAX_TIES):
        colors = refined(local, colors)
        order = np.lexsort((np.arange(size), colors[:size], part))
        order = order[moving[order]]
        rows = order.reshape(-1, counts[0])
        tied = _ties(colors[rows])
        if tied is None:
            return rows if (colors[rows] == colors[rows[0]]).all() else None
        nodes, places = rows[tied.mask], tied.places
        if not at_once:
            nodes, places = nodes[places == 0], places[places == 0]
        colors[nodes] = colors.max() + 1 + places
    return None


class _Ties(NamedTuple):
    mask: BoolArray  # bool (parts, nodes): the nodes of one color that ties some in each part
    places: IntArray  # int64 (mask,): their places among those of their part


def _ties(rows: IntArray) -> _Ties | None:
    """Find the color that ties fewest nodes of a part; `rows` int64 (parts, nodes), sorted. None without ties."""
    repeats = rows[:, 1:] == rows[:, :-1]
    if not repeats.any():
        return None
    tied = np.unique(rows[:, 1:][repeats])
    sizes = [(rows == color).sum(axis=1).max() for color in tied.tolist()]
    mask = rows == tied[np.argmin(sizes)]
    return _Ties(mask, (np.cumsum(mask, axis=1) - 1)[mask])
