"""Interface of models to the solver: linear programs as arrays, and their changes between two solves."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from ...support.arrays import FloatArray, IntArray
from ...support.linear_program import Labels, LinearProgram

NAMES_SHOWN = 3


class Model(Protocol):
    """A model that `solve` accepts: of a formulation, or `Blocks`."""

    def linear_program(self) -> LinearProgram:
        """Return the current state of the model as arrays that are not changed afterwards."""


def named(blocks: Mapping[str, Labels], chosen: IntArray) -> str:
    """Name a few of the chosen columns or rows: one per block, the last blocks first, as users add those."""
    names: list[str] = []
    for block in reversed(list(blocks.values())):
        places = np.flatnonzero(np.isin(block.positions.ravel(), chosen))
        if len(places) and len(names) < NAMES_SHOWN:
            names.append(repr(block.label(int(places[0]))))
    more = len(chosen) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


MAX_ENTRIES = 10_000  # above that it is quicker to hand over the whole matrix than one coefficient at a time


class Changes(NamedTuple):
    """Differences within the rows and columns that both programs have; further ones come after these."""

    costs: IntArray  # columns whose costs differ
    column_bounds: IntArray  # columns
    whole: IntArray  # columns
    row_bounds: IntArray  # rows
    entries: tuple[IntArray, IntArray, FloatArray]  # rows, columns and new values of coefficients that differ


def changes_between(old: LinearProgram, new: LinearProgram) -> Changes | None:
    """Compare two states of a model."""
    if not (_grown(old.variables, new.variables) and _grown(old.constraints, new.constraints)):
        return None
    rows, columns = old.matrix.shape
    difference = (new.matrix[:rows, :columns] - old.matrix).tocoo()
    wrong = difference.data != 0
    if np.count_nonzero(wrong) > MAX_ENTRIES:
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
