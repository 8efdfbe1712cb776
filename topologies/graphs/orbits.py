"""Orbits of ranks and links under symmetries, which are checked here.

A flow of all sources can be averaged over a group of symmetries: it then has equal loads on the links of an orbit, and
the flow of one source of each orbit determines them.  So one source per orbit of ranks and one capacity per orbit of
links are enough.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...support.arrays import IntArray, orbits


class LinkOrbits(NamedTuple):
    """Orbits of a group of symmetries."""

    sources: IntArray  # int64 (orbits,): the least rank of each orbit of ranks with demands
    counts: IntArray  # int64 (orbits,): ranks in the orbit
    classes: IntArray  # int64 (links,): the number of each link's orbit, from 0
    sizes: IntArray  # int64 (classes,): links in each orbit


def trivial_link_orbits(num_links: int, demands: IntArray) -> LinkOrbits:
    """Return the orbits of the identity: every rank with demands, and every link, by itself."""
    sources = np.flatnonzero(_sends(demands))
    return LinkOrbits(sources, np.ones_like(sources), np.arange(num_links), np.ones(num_links, dtype=np.int64))


def link_orbits(
    tails: IntArray, heads: IntArray, capacities: IntArray, demands: IntArray, symmetries: IntArray
) -> LinkOrbits:
    """Return the orbits that symmetries, (generators, nodes), generate; `UnsupportedError` if one is none."""
    num_ranks = len(demands)
    apart = ~np.eye(num_ranks, dtype=np.bool_)
    different = bool((demands != demands[0, -1]).any(where=apart))
    images = link_images(tails, heads, capacities, symmetries)
    for row, mapping in enumerate(symmetries):
        if (mapping[:num_ranks] >= num_ranks).any():
            raise UnsupportedError(
                f"row {row} of the symmetries takes a rank to a switch; expected ranks to go to ranks"
            )
        if different and (demands[np.ix_(mapping[:num_ranks], mapping[:num_ranks])] != demands).any(where=apart):
            raise UnsupportedError(f"row {row} of the symmetries does not take every demand to an equal one")
    kinds, classes = orbits(symmetries[:, :num_ranks]), orbits(images)
    _, first, counts = np.unique(kinds, return_index=True, return_counts=True)
    sending = _sends(demands)[first]
    return LinkOrbits(first[sending], counts[sending], classes, np.bincount(classes))


def link_images(tails: IntArray, heads: IntArray, capacities: IntArray, symmetries: IntArray) -> IntArray:
    """Return the image of each link under each symmetry, int64 (generators, links), after checking that it exists."""
    order = np.lexsort((capacities, heads, tails))
    links = [side[order] for side in (tails, heads, capacities)]
    images = np.empty((len(symmetries), len(tails)), dtype=np.int64)
    for row, mapping in enumerate(symmetries):
        if not (np.sort(mapping) == np.arange(symmetries.shape[1])).all():
            raise UnsupportedError(f"row {row} of the symmetries is no permutation of the nodes")
        image = np.lexsort((capacities, mapping[heads], mapping[tails]))
        mapped = mapping[tails][image], mapping[heads][image], capacities[image]
        if any((side != found).any() for side, found in zip(links, mapped, strict=True)):
            raise UnsupportedError(f"row {row} of the symmetries does not take every link to one of the same capacity")
        images[row, image] = order
    return images


def _sends(demands: IntArray) -> npt.NDArray[np.bool_]:
    return np.asarray(np.count_nonzero(demands, axis=1) > (np.diagonal(demands) != 0))
