"""Vector clocks of an execution plan's run, worked out for a few processes at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....support.arrays import IntArray, ShortArray, SmallArray
from ....support.compiling.kernels import kernel
from . import fields
from .code import Code
from .state import State

MAX_CLOCKS = 2**23  # Numbers held at a time: more do not stay in a cache


def first_unknown(code: Code, state: State) -> SmallArray | None:
    """Return the first query, in order of execution, whose row does not know of the step that it asks for."""
    queries, rows = state.queries[: state.counts[fields.QUERIES]], int(state.counts[fields.ROWS])
    processes, numbers = np.unique(queries[:, fields.EARLIER], return_inverse=True)
    most = max(processes.max(initial=0), len(code.ranks) + code.ranks.max())
    column_of = np.full(most + 1, -1, dtype=np.int64)
    column_of[processes] = np.arange(len(processes))
    steps = int(state.processes[:, fields.COUNT].max(initial=0))
    width = min(len(processes), max(8, MAX_CLOCKS // rows))
    narrow: npt.DTypeLike = np.int16 if steps <= np.iinfo(np.int16).max else np.int32
    clocks = np.empty((rows, width), dtype=narrow)
    order = np.argsort(numbers, kind="stable")
    found = _first_unknown(state.row_ends, state.parts, queries, order, column_of, clocks)
    return queries[found] if found < len(queries) else None


@kernel
def _first_unknown(
    row_ends: IntArray,
    parts: SmallArray,
    queries: SmallArray,
    order: IntArray,
    column_of: IntArray,
    clocks: ShortArray | SmallArray,
) -> int:
    """Work out clocks of (rows, columns) for some columns, then for the next ones.

    Shapes: `order` (queries,), by columns; `column_of` (processes,), -1 for none.
    """
    found, at, low = len(queries), 0, 0
    while at < len(order):
        begin = 0
        for row in range(len(clocks)):
            clock = clocks[row]
            clock[:] = 0
            for number in range(begin, row_ends[row]):
                other = parts[number, 0]
                if other >= 0:
                    known = clocks[other]
                    for column in range(len(clock)):
                        clock[column] = max(clock[column], known[column])
                for place in (1, 3):
                    if parts[number, place] >= 0:
                        column = column_of[parts[number, place]] - low
                        if 0 <= column < len(clock):
                            clock[column] = max(clock[column], parts[number, place + 1])
            begin = row_ends[row]
        low += clocks.shape[1]
        while at < len(order):
            query = queries[order[at]]
            column = column_of[query[1]] - low + clocks.shape[1]
            if column >= clocks.shape[1]:
                break
            if order[at] < found and (query[0] < 0 or clocks[query[0], column] < query[2]):
                found = order[at]
            at += 1
    return found
