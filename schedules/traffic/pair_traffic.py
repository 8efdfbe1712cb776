"""What pairs of ranks have for each other in an all-to-all(v), as bounds and their witnesses add it up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def traffic_matrix(weights: tuple[int, ...], num_ranks: int) -> npt.NDArray[np.object_]:
    """Lay out weights by source and destination.

    Shapes: returns (ranks, ranks).
    """
    flat = np.array(weights or (1,) * num_ranks**2, dtype=object)
    matrix: npt.NDArray[np.object_] = flat.reshape(num_ranks, num_ranks)
    np.fill_diagonal(matrix, 0)
    return matrix


def crossing_traffic(inside: npt.NDArray[np.bool_], weights: tuple[int, ...]) -> int:
    """Add up what ranks inside a cut have for ranks outside.

    Shapes: `inside` bool (ranks,).
    """
    within = int(inside.sum())
    if not weights:
        return within * (len(inside) - within)
    rows = (weights[rank * len(inside) : (rank + 1) * len(inside)] for rank in np.flatnonzero(inside).tolist())
    outside = np.flatnonzero(~inside).tolist()
    return sum(row[rank] for row in rows for rank in outside)
