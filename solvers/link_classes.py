"""Nodes and links that are alike, from automorphisms that are checked here and not believed.

A flow of all sources can be averaged over a group of automorphisms: it then puts equal loads on links that the group
maps to each other, and what one source of each kind sends tells those loads.  So one source of each kind and one
capacity per kind of link are enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import SolverError

__all__ = ["LinkClasses", "link_classes", "no_classes"]

IntArray = npt.NDArray[np.int64]


class LinkClasses(NamedTuple):
    """What a group of automorphisms makes alike.

    Attributes
    ----------
    sources : ndarray of int64, shape (kinds,)
        The first rank of each kind that sends anything.
    counts : ndarray of int64, shape (kinds,)
        How many ranks of the kind there are.
    classes : ndarray of int64, shape (links,)
        The kind of each link, from 0.
    sizes : ndarray of int64, shape (classes,)
        Links of each kind.
    """

    sources: IntArray
    counts: IntArray
    classes: IntArray
    sizes: IntArray


def no_classes(num_links: int, demands: IntArray) -> LinkClasses:
    """Take every rank that sends anything, and every link, for itself; parameters are those of `link_classes`."""
    sources = np.flatnonzero(_sends(demands))
    return LinkClasses(sources, np.ones_like(sources), np.arange(num_links), np.ones(num_links, dtype=np.int64))


def link_classes(
    tails: IntArray, heads: IntArray, capacities: IntArray, demands: IntArray, automorphisms: IntArray
) -> LinkClasses:
    """Tell which ranks and links some automorphisms map to each other, after checking that they are automorphisms.

    Parameters
    ----------
    tails, heads, capacities : ndarray of int64, shape (links,)
        Links between nodes, parallel ones too.
    demands : ndarray of int64, shape (ranks, ranks)
        Ranks are the nodes before the switches; the diagonal does not matter.
    automorphisms : ndarray of int64, shape (generators, nodes)
        Each row tells where the nodes go.

    Returns
    -------
    LinkClasses

    Raises
    ------
    SolverError
        If a row is no permutation, or takes a rank to a switch, a link to none of the same capacity, or a demand to
        another one.

    Examples
    --------
    Turning a ring of three makes all alike:

    >>> import numpy as np
    >>> ring = np.array([0, 1, 2]), np.array([1, 2, 0]), np.array([5, 5, 5])
    >>> found = link_classes(*ring, np.ones((3, 3), dtype=np.int64), np.array([[1, 2, 0]]))
    >>> found.sources, found.counts, found.classes
    (array([0]), array([3]), array([0, 0, 0]))
    """
    num_ranks = len(demands)
    apart = ~np.eye(num_ranks, dtype=np.bool_)
    different = bool((demands != demands[0, -1]).any(where=apart))
    order = np.lexsort((capacities, heads, tails))
    links = [side[order] for side in (tails, heads, capacities)]
    images = []
    for row, mapping in enumerate(automorphisms):
        if not (np.sort(mapping) == np.arange(automorphisms.shape[1])).all():
            raise SolverError(f"row {row} of the automorphisms is no permutation of the nodes")
        if (mapping[:num_ranks] >= num_ranks).any():
            raise SolverError(f"row {row} of the automorphisms takes a rank to a switch; expected ranks to go to ranks")
        if different and (demands[np.ix_(mapping[:num_ranks], mapping[:num_ranks])] != demands).any(where=apart):
            raise SolverError(f"row {row} of the automorphisms does not take every demand to an equal one")
        image = np.lexsort((capacities, mapping[heads], mapping[tails]))
        mapped = mapping[tails][image], mapping[heads][image], capacities[image]
        if any((side != found).any() for side, found in zip(links, mapped, strict=True)):
            raise SolverError(f"row {row} of the automorphisms does not take every link to one of the same capacity")
        images.append(np.empty(len(tails), dtype=np.int64))
        images[-1][image] = order
    kinds = _merged(num_ranks, [mapping[:num_ranks] for mapping in automorphisms])
    classes = _merged(len(tails), images)
    _, first, counts = np.unique(kinds, return_index=True, return_counts=True)
    sending = _sends(demands)[first]
    return LinkClasses(first[sending], counts[sending], classes, np.bincount(classes))


def _merged(size: int, mappings: list[IntArray]) -> IntArray:
    """Number the orbits of what the mappings generate."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    tails = np.tile(np.arange(size), len(mappings))
    heads = np.concatenate([np.empty(0, dtype=np.int64), *mappings])
    edges = coo_array((np.ones(len(tails), dtype=np.bool_), (tails, heads)), shape=(size, size))
    return np.asarray(connected_components(edges, directed=False)[1], dtype=np.int64)


def _sends(demands: IntArray) -> npt.NDArray[np.bool_]:
    return np.asarray(np.count_nonzero(demands, axis=1) > (np.diagonal(demands) != 0))
