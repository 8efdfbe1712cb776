"""Lifting of flows from one source per orbit to all sources, with equal loads on all links of an orbit.

The pairs (source, link) are numbered by their orbits under the group; each pair of an orbit gets an equal share of what
the flow of the orbit's source has on it.  Shares are fractions, so flows are integers and a common scale.
Proof: docs/formulations/all_to_all.md.
"""

from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import CapacityOverflowError
from ...support.arrays import IntArray
from ...support.kernels import kernel_with
from ...support.validation import shown
from ...topologies.symmetry.isomorphism import link_images

LabelArray = npt.NDArray[np.int32]

MAX_INT64 = 2**63 - 1
MAX_PAIRS = 2**31 - 1  # pairs of a source and a link; their orbits are numbered in 32 bits


class LiftedFlows(NamedTuple):
    """Integral flows of all sources."""

    # int64 (ranks, links): flow of each source on each link, times `scale`; 0 for ranks that send nothing
    flows: IntArray
    scale: int  # at least 1


def lift_flows(
    num_ranks: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    symmetries: IntArray,
    sources: IntArray,
    flows: npt.NDArray[np.int64] | npt.NDArray[np.object_],
) -> LiftedFlows:
    """Compute flows of all sources that put equal loads on all links of an orbit.

    Memory is O(ranks * links), time O(ranks * links * generators).  Shapes: `symmetries` int64 (generators, nodes);
    `sources` int64 (sources,); `flows` int64 (sources, links).
    """
    if num_ranks * len(tails) > MAX_PAIRS:
        raise CapacityOverflowError(
            f"there are {num_ranks} ranks and {len(tails)} links; expected at most {MAX_PAIRS} pairs of them"
        )
    images = link_images(tails, heads, capacities, symmetries)
    labels = np.full((num_ranks, len(tails)), -1, dtype=np.int32)
    queue = np.empty(labels.size, dtype=np.int64)
    shares: list[Fraction] = []
    for source, flow in zip(sources.tolist(), flows, strict=True):
        before = len(shares)
        _label(source, symmetries, images, labels, queue, before)
        shares += _averages(flow, labels[source] - before)
    scale = lcm(*(share.denominator for share in shares))
    integers = [share.numerator * (scale // share.denominator) for share in shares]
    if max(integers) > MAX_INT64:
        raise _overflow(scale)
    # The last entry is for the label -1, of ranks that send nothing.
    lifted = np.array([*integers, 0], dtype=np.int64)[labels]
    if lifted.sum(axis=0, dtype=np.float64).max() > MAX_INT64 / 2:
        raise _overflow(scale)
    return LiftedFlows(lifted, scale)


def _averages(flow: npt.NDArray[np.int64] | npt.NDArray[np.object_], orbits: IntArray) -> list[Fraction]:
    """Average the flow of a source over each orbit of its links."""
    sizes = np.bincount(orbits)
    sums = np.zeros(len(sizes), dtype=np.object_)
    np.add.at(sums, orbits, flow.astype(np.object_))
    return [Fraction(total) / size for total, size in zip(sums.tolist(), sizes.tolist(), strict=True)]


@kernel_with(lambda _, symmetries, __, labels, *___: len(symmetries) * labels.shape[1])
def _label(
    source: int, symmetries: IntArray, images: IntArray, labels: LabelArray, queue: IntArray, count: int
) -> None:
    """Number the orbits of the pairs of a source from `count` on, by BFS."""
    links = labels.shape[1]
    for link in range(links):
        if labels[source, link] >= 0:
            continue
        labels[source, link] = count
        queue[0], first, last = source * links + link, 0, 1
        while first < last:
            at, over = queue[first] // links, queue[first] % links
            first += 1
            for row in range(len(symmetries)):
                node, image = symmetries[row, at], images[row, over]
                if labels[node, image] < 0:
                    labels[node, image] = count
                    queue[last] = node * links + image
                    last += 1
        count += 1


def _overflow(scale: int) -> CapacityOverflowError:
    return CapacityOverflowError(
        f"equal parts of the flows are whole numbers only {shown(scale)} times as large, which overflows int64; "
        "state the flows in larger units"
    )
