"""How links are drawn between the places of their nodes: straight, or bent around nodes in their way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...support.arrays import BoolArray, FloatArray
from ...topologies import Topology
from .node_layout import Places, places

if TYPE_CHECKING:
    import pandas as pd

NEAR = 0.3
"""Links do not come nearer to nodes that they do not join."""
MOST_COMPARISONS = 2 * 10**7
"""Of links with nodes; links of larger networks are drawn straight."""


def link_curves(topology: Topology) -> pd.DataFrame:
    """Choose curves for the links between nodes that are where `node_layout` puts them.

    Parameters
    ----------
    topology : Topology
        Of any size.

    Returns
    -------
    DataFrame
        One row per link, in the order of ``topology.links``: ``tail``, ``head``, and ``bend_x``, ``bend_y``, the
        control point of a quadratic Bézier curve from tail to head; the point in the middle for straight lines.  Both
        directions of a link have the same curve.

    Examples
    --------
    The link that closes a row of four bends over the two nodes in between:

    >>> from collopt.topologies import torus
    >>> curves = link_curves(torus(2, 4)).set_index(["tail", "head"])
    >>> curves.loc[[("gpu0.0", "gpu0.1"), ("gpu0.0", "gpu0.3"), ("gpu0.3", "gpu0.0")]].values.round(2).tolist()
    [[0.5, 1.0], [1.5, 1.88], [1.5, 1.88]]
    """
    import pandas as pd

    placed = places(topology)
    points = np.stack([placed.x, placed.y], axis=1)
    tails, heads = topology.arrays.tails, topology.arrays.heads
    first, last = np.minimum(tails, heads), np.maximum(tails, heads)
    bends = (points[first] + points[last]) / 2 + _offsets(points, first, last, placed)
    return pd.DataFrame(
        {
            "tail": [link.tail for link in topology.links],
            "head": [link.head for link in topology.links],
            "bend_x": bends[:, 0],
            "bend_y": bends[:, 1],
        }
    )


def _offsets(
    points: FloatArray, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], placed: Places
) -> FloatArray:
    """How far to pull the middle of each link aside, shape (links, 2); a curve goes half as far."""
    across = points[last] - points[first]
    spans = np.hypot(*across.T)
    normals = np.stack([-across[:, 1], across[:, 0]], axis=1) / np.maximum(spans, 1e-9)[:, None]
    middles = (points[first] + points[last]) / 2
    if placed.arrangement in ("rows", "rings"):
        rows = np.array(placed.rows)
        level = (rows[first] == rows[last]) & (spans > 1.3)
        # Away from the other rows: ranks down or outwards, switches up or inwards.
        away = np.where(rows[first] == 0, -1.0, 1.0)
        up = np.broadcast_to([0.0, 1.0], middles.shape) if placed.arrangement == "rows" else -middles
        sides = np.sign((normals * up).sum(axis=1)) * away
        pulls = np.where(level, 0.9 * spans**0.65, 0.0)
        return np.asarray((pulls * sides)[:, None] * normals)
    blocked = _blocked(points, first, last)
    sides = np.ones(len(spans))
    if placed.arrangement == "circle":
        sides = np.sign((normals * -middles).sum(axis=1))
    pulls = np.where(blocked, np.minimum(1.0, 0.4 + 0.16 * spans), 0.0)
    return np.asarray((pulls * sides)[:, None] * normals)


def _blocked(points: FloatArray, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> BoolArray:
    """Whether a straight line would pass near a third node."""
    if len(first) * len(points) > MOST_COMPARISONS:
        return np.zeros(len(first), dtype=np.bool_)
    blocked = np.zeros(len(first), dtype=np.bool_)
    for link, (start, end) in enumerate(zip(first, last, strict=True)):
        across = points[end] - points[start]
        length = float(across @ across)
        beside = points - points[start]
        along = beside @ across / max(length, 1e-9)
        distance = np.abs(beside @ np.array([-across[1], across[0]])) / max(length, 1e-9) ** 0.5
        near = (along > 0.01) & (along < 0.99) & (distance < NEAR)
        near[[start, end]] = False
        blocked[link] = bool(near.any())
    return blocked
