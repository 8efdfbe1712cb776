"""Graph layout of a network: positions of nodes, and curves of links around nodes in their way.

Tori are grids, other networks without switches stress majorizations (Gansner, Koren and North, GD 2004) or circles, and
networks with switches rows, with ranks box by box and switches by their distance from ranks, or rings around the top.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..support.arrays import BoolArray, FloatArray
from ..topologies import Topology
from ..topologies.network.topology import as_topology

if TYPE_CHECKING:
    import pandas as pd


Arrangement = Literal["grid", "stress", "circle", "rows", "rings"]

MOST_STRESSED = 64  # Nodes that are moved to show structure
ROUNDS, STARTS = 300, 8  # How often they move, and from how many places
DENSE = 0.75  # Share of all possible links above which there is no structure to show
NEAREST = 0.75  # Distance of such nodes
WIDEST_ROW = 80  # Places in a row; more go around a circle
GAP = 0.8  # Between ranks of different boxes, in addition to the 1 between neighbors
LOWEST, HIGHEST = 1.7, 3.2  # Distance of two rows
BELOW = -1  # Row of the switches inside boxes


class Places(NamedTuple):
    """Positions of nodes in the order of `Topology.nodes`; `rows` are 0 for ranks, -1 for switches below them."""

    x: FloatArray
    y: FloatArray
    rows: tuple[int, ...]
    arrangement: Arrangement


def node_layout(topology: Topology) -> pd.DataFrame:
    """Place the nodes of a topology on a plane.

    Returns
    -------
    DataFrame
        One row per node, in the order of ``topology.nodes``: ``node``; ``kind``, compute or switch; ``box``, what comes
        before the slash in the name, empty where there is none; ``x`` and ``y``, in multiples of about the distance
        between neighbors.  The same for the same topology.

    Examples
    --------
    >>> from collopt.topologies import torus
    >>> print(node_layout(torus(2, 2)).to_string(index=False))
      node    kind box   x   y
    gpu0.0 compute     0.0 1.0
    gpu0.1 compute     1.0 1.0
    gpu1.0 compute     0.0 0.0
    gpu1.1 compute     1.0 0.0
    """
    import pandas as pd

    placed, boxes = places(topology), box_of_nodes(topology)
    return pd.DataFrame(
        {
            "node": list(topology.nodes),
            "kind": ["compute"] * topology.num_ranks + ["switch"] * len(topology.switch_nodes),
            "box": [boxes[node] for node in topology.nodes],
            "x": placed.x,
            "y": placed.y,
        }
    )


def places(topology: Topology) -> Places:
    """Choose an arrangement and place the nodes; see `node_layout`."""
    as_topology(topology)
    if topology.switch_nodes:
        return _in_rows(topology)
    flat = (0,) * topology.num_ranks
    if coordinates := _coordinates(topology.compute_nodes):
        return Places(*_on_grid(coordinates), flat, "grid")
    # A row of ranks, wrapped clockwise around a circle from the top; two nodes need no circumference of two.
    positions = _rank_positions(topology)
    angles, radius = 2 * math.pi * positions / (positions.max() + 1), max((positions.max() + 1) / (2 * math.pi), 0.5)
    circle = radius * np.sin(angles), radius * np.cos(angles)
    sparse = topology.num_links < DENSE * topology.num_ranks * (topology.num_ranks - 1)
    if sparse and topology.num_ranks <= MOST_STRESSED:
        return Places(*_by_distances(topology, np.stack(circle, axis=1)), flat, "stress")
    return Places(*circle, flat, "circle")


def box_of_nodes(topology: Topology) -> Mapping[str, str]:
    """Box of each node: its name up to the slash, or of a rank without one the only neighbor."""
    boxes = {node: node.rpartition("/")[0] for node in topology.nodes}
    for rank in topology.compute_nodes:
        neighbor_boxes = {boxes[link.head] for link in topology.out_links(rank)}
        if not boxes[rank] and len(neighbor_boxes) == 1:
            boxes[rank] = neighbor_boxes.pop()
    return boxes


def _coordinates(names: Sequence[str]) -> list[tuple[int, ...]]:
    """Read coordinates such as those of ``gpu1.0.3``; none, if not every name has as many, and other ones."""
    matches = [re.fullmatch(r"\D*([0-9]{1,6}(?:\.[0-9]{1,6})+)", name) for name in names]
    coordinates = [tuple(map(int, match[1].split("."))) for match in matches if match]
    regular = (
        len(coordinates) == len(names) == len(set(coordinates)) and len({len(place) for place in coordinates}) == 1
    )
    return coordinates if regular else []


def _on_grid(coordinates: Sequence[tuple[int, ...]]) -> tuple[FloatArray, FloatArray]:
    """Place nodes on a grid: the last coordinate across, the one before it down, others as copies of the grid."""
    places = np.array(coordinates, dtype=np.float64).T[::-1]
    across, down = np.zeros(len(coordinates)), np.zeros(len(coordinates))
    strides = [1.0, 1.0]
    for number, values in enumerate(places):
        (across, down)[number % 2][:] += values * strides[number % 2]
        strides[number % 2] *= float(values.max()) + 1 + GAP
    return across, down.max() - down


def _by_distances(topology: Topology, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Move nodes from their `points`, shape (nodes, 2), until they are as far apart as the links between them are long.

    A link is the longer the less bandwidth it has.  Each round minimizes a majorant of the stress, the sum of squared
    relative errors of all distances, which has many local minima: the least of several starts is taken,
    lying flat where the ranks have lost their order.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import shortest_path

    tails, heads, capacities, _ = topology.arrays
    count = len(points)
    lengths = np.sqrt(capacities.max(initial=1) / capacities)
    targets = shortest_path(coo_array((lengths, (tails, heads)), shape=(count, count)).tocsr(), directed=False)
    targets = np.minimum(targets, 2 * np.max(targets, where=np.isfinite(targets), initial=1))  # of parts without links
    order = np.random.default_rng(0)
    starts = [points, *(points[order.permutation(count)] for _ in range(STARTS - 1))]
    ends = [_unstressed(start, targets) for start in starts]
    # The first of those that are equal but for rounding, so that all machines choose the same.
    lowest = min(stress for _, stress in ends)
    number_of_best = next(number for number, (_, stress) in enumerate(ends) if stress <= lowest * 1.001 + 1e-9)
    points = ends[number_of_best][0]
    if number_of_best > 0:
        points = points @ np.linalg.svd(points, full_matrices=False)[2].T
        # Libraries differ in signs: the first node is at the top left.
        points = points * np.where(points[0] * [-1, 1] < 0, -1, 1)
    distances = _distances(points)
    nearest = np.min(distances, axis=1, where=distances > 0, initial=distances.max())
    # Most are 1 from their nearest neighbor, and none is so near that nodes would overlap.
    x, y = np.round(points / min(np.median(nearest), nearest.min() / NEAREST), 2).T
    return x, y


def _unstressed(points: FloatArray, targets: FloatArray) -> tuple[FloatArray, float]:
    """Return a local minimum of the stress of `points` around 0, and the stress."""
    weights = 1 / np.where(targets > 0, targets, np.inf) ** 2
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    for _ in range(ROUNDS):
        distances = _distances(points)
        pulls = weights * targets / np.where(distances > 0, distances, np.inf)
        points = inverse @ (np.diag(pulls.sum(axis=1)) - pulls) @ points
    return points, float((weights * (_distances(points) - targets) ** 2).sum())


def _distances(points: FloatArray) -> FloatArray:
    across, up = (points[:, None] - points[None]).transpose(2, 0, 1)
    return np.asarray(np.hypot(across, up))


def _rank_positions(topology: Topology) -> FloatArray:
    """Order ranks in a row by box, or else by switch."""
    boxes = box_of_nodes(topology)
    switches = set(topology.switch_nodes)
    groups: dict[object, list[int]] = {}
    for rank, node in enumerate(topology.compute_nodes):
        neighbors = frozenset(link.head for link in topology.out_links(node)) & switches
        groups.setdefault(boxes[node] or neighbors, []).append(rank)
    positions = np.zeros(topology.num_ranks)
    start = 0.0
    for ranks in groups.values():
        positions[ranks] = start + np.arange(len(ranks))
        start += len(ranks) + GAP
    return positions


def _in_rows(topology: Topology) -> Places:
    """Place ranks in a row, and switches in rows above the mean of their neighbors below."""
    x = np.zeros(len(topology.nodes))
    x[: topology.num_ranks] = _rank_positions(topology)
    neighbors = _neighbors(topology)
    rows = _row_numbers(topology, neighbors)
    width = float(x.max()) + 1
    for row in sorted({row for row in rows if row != 0}, key=lambda row: (abs(row), row)):
        members = [node for node, at in enumerate(rows) if at == row]
        lower = [[other for other in neighbors[node] if abs(rows[other]) < abs(row)] for node in members]
        targets = np.array([x[below].mean() if below else width / 2 for below in lower])
        # A few switches over many ranks have room, around a circle all of it.
        room = width / len(members) * (1 if width > WIDEST_ROW else 0.5)
        x[members] = _spread(targets, max(room, 1.0) if row > 1 else 1.0)
    width = float(np.ptp(x)) + 1
    height = min(max(width / 9, LOWEST), HIGHEST)
    if width > WIDEST_ROW:
        return _in_rings(x, rows)
    return Places(x, height * np.array(rows, dtype=np.float64), rows, "rows")


def _in_rings(x: FloatArray, rows: tuple[int, ...]) -> Places:
    """Bend rows to circles, the upper ones inside."""
    # Rows that stick out, as many spines over few leaves do, must not overlap themselves.
    x = x - x.min()
    angles = 2 * math.pi * x / (x.max() + 1 + GAP)
    top = max(rows)
    alone = sum(row == top for row in rows) == 1
    # Switches of boxes are between their ranks and the centre, too.
    heights = np.array([0.5 if row == BELOW else row for row in rows], dtype=np.float64)
    inner = top if alone else top + 0.5
    radii = (x.max() + 1) / (2 * math.pi) * (inner - heights) / inner
    return Places(radii * np.sin(angles), radii * np.cos(angles), rows, "rings")


def _neighbors(topology: Topology) -> list[list[int]]:
    """Nodes that each node has a link with, in either direction."""
    neighbors: list[set[int]] = [set() for _ in topology.nodes]
    for tail, head in zip(topology.arrays.tails.tolist(), topology.arrays.heads.tolist(), strict=True):
        neighbors[tail].add(head)
        neighbors[head].add(tail)
    return [sorted(nodes) for nodes in neighbors]


def _row_numbers(topology: Topology, neighbors: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Row of each node: hops from the nearest rank; switches linked with ranks only are below if others are above."""
    ranks = topology.num_ranks
    rows = dict.fromkeys(range(ranks), 0)
    reached, distance = list(rows), 0
    while reached:
        distance += 1
        reached = sorted({other for node in reached for other in neighbors[node]} - rows.keys())
        rows |= dict.fromkeys(reached, distance)
    top = max(rows.values())
    for node in range(ranks, len(topology.nodes)):
        if top > 1 and rows.get(node) == 1 and all(other < ranks for other in neighbors[node]):
            rows[node] = BELOW
    # A switch without links has to be somewhere.
    return tuple(rows.get(node, max(top, 1)) for node in range(len(topology.nodes)))


def _spread(targets: FloatArray, distance: float) -> FloatArray:
    """Separate positions by `distance` in the same order, with the least squared movement."""
    from scipy.optimize import isotonic_regression

    order, offsets = np.argsort(targets, kind="stable"), distance * np.arange(len(targets))
    places = np.empty(len(targets))
    places[order] = isotonic_regression(targets[order] - offsets).x + offsets
    return places


NEAR = 0.3  # Links do not come nearer to nodes that they do not join
MAX_COMPARISONS = 2 * 10**7  # Of links with nodes; links of larger networks are drawn straight


def link_curves(topology: Topology) -> pd.DataFrame:
    """Choose curves for the links between nodes that are where `node_layout` puts them.

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
    """Offset of the control point of each link's curve, shape (links, 2)."""
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
    if placed.arrangement in ("circle", "stress"):
        sides = np.sign((normals * -middles).sum(axis=1))
    pulls = np.where(blocked, np.minimum(1.0, 0.4 + 0.16 * spans), 0.0)
    return np.asarray((pulls * sides)[:, None] * normals)


def _blocked(points: FloatArray, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> BoolArray:
    """Whether a straight line would pass near a third node."""
    if len(first) * len(points) > MAX_COMPARISONS:
        return np.zeros(len(first), dtype=np.bool_)
    blocked = np.zeros(len(first), dtype=np.bool_)
    for link, (start, end) in enumerate(zip(first, last, strict=True)):
        across = points[end] - points[start]
        length = float(across @ across)
        offsets = points - points[start]
        components = offsets @ across / max(length, 1e-9)
        distance = np.abs(offsets @ np.array([-across[1], across[0]])) / max(length, 1e-9) ** 0.5
        near = (components > 0.01) & (components < 0.99) & (distance < NEAR)
        near[[start, end]] = False
        blocked[link] = bool(near.any())
    return blocked
