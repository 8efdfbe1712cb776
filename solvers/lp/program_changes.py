"""What changed in a linear program since it was solved last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .program import FloatArray, IntArray, Labels, LinearProgram

__all__ = ["Changes", "changes_between"]

MOST_ENTRIES = 10_000
"""Above that it is quicker to hand over the whole matrix than one coefficient at a time."""


class Changes(NamedTuple):
    """Differences within the rows and columns that both programs have; further ones come after these.

    Attributes
    ----------
    costs, column_bounds, whole, row_bounds : ndarray of int64
        Columns or rows whose numbers differ.
    entries : tuple of ndarray
        Rows, columns and new values of coefficients that differ.
    """

    costs: IntArray
    column_bounds: IntArray
    whole: IntArray
    row_bounds: IntArray
    entries: tuple[IntArray, IntArray, FloatArray]


def changes_between(old: LinearProgram, new: LinearProgram) -> Changes | None:
    """Compare two states of a model.

    Parameters
    ----------
    old : LinearProgram
        As HiGHS has it.
    new : LinearProgram
        As it stands.

    Returns
    -------
    Changes or None
        None where it is simpler to start afresh: blocks have gone, moved or changed their size, or most of the matrix
        is new.
    """
    if not (_grown(old.variables, new.variables) and _grown(old.constraints, new.constraints)):
        return None
    rows, columns = old.matrix.shape
    difference = (new.matrix[:rows, :columns] - old.matrix).tocoo()
    wrong = difference.data != 0
    if np.count_nonzero(wrong) > MOST_ENTRIES:
        return None
    places = difference.row[wrong].astype(np.int64), difference.col[wrong].astype(np.int64)
    values = np.asarray(new.matrix.tocsr()[places] if len(places[0]) else [], dtype=np.float64).ravel()
    flipped = old.maximize != new.maximize
    return Changes(
        np.flatnonzero(old.costs != (-1.0 if flipped else 1.0) * new.costs[:columns]),
        _differing(old.column_bounds, new.column_bounds, columns),
        np.flatnonzero(old.whole != new.whole[:columns]),
        _differing(old.row_bounds, new.row_bounds, rows),
        (*places, values),
    )


def _grown(old: Mapping[str, Labels], new: Mapping[str, Labels]) -> bool:
    """Whether all blocks are where they were, so that new ones can only have come after them."""
    return all(name in new and np.array_equal(block.positions, new[name].positions) for name, block in old.items())


def _differing(old: tuple[FloatArray, FloatArray], new: tuple[FloatArray, FloatArray], count: int) -> IntArray:
    return np.flatnonzero((old[0] != new[0][:count]) | (old[1] != new[1][:count]))
