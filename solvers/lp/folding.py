"""Dimension reduction of linear programs by color refinement (Grohe, Kersting, Mladenov and Selman, 2014)."""

import numpy as np
import numpy.typing as npt

from ...support.arrays import IntArray
from ...support.linear_program import LinearProgram
from .exact_optimum import ExactAnswer, ExactProgram
from .program import Model
from .rationals import exact
from .session import solve


def solve_folded(model: Model) -> ExactAnswer:
    """Solve a linear program exactly, with one column and one row for each class of alike ones.

    Columns of a class have equal values in some optimum, and rows of a class equal dual values.  What was alike only by
    a collision of hashes fails the check of the answer, which is on the whole program.  Raises `NoAnswerError` if there
    is no exact answer.

    Examples
    --------
    >>> from collopt.formulations import throughput
    >>> from collopt.topologies import ring
    >>> solve_folded(throughput.build(ring(6, bandwidth=10))).objective
    Fraction(4, 1)
    """
    program = model.linear_program()
    rows, columns = equitable_classes(program)
    solution = solve(_folded(program, rows, columns)).exact
    shares = [value / size for value, size in zip(solution._duals, np.bincount(rows).tolist(), strict=True)]
    answer = ExactAnswer(solution.objective, ExactProgram(program), solution._point[columns], exact(shares)[rows])
    answer.verify()
    return answer


def equitable_classes(program: LinearProgram) -> tuple[IntArray, IntArray]:
    """Number the classes of rows and columns whose bounds, costs and coefficients with each other class are equal."""
    random = np.random.default_rng(0)

    def hashed(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
        hashes, places = np.unique(values, return_inverse=True)
        return random.integers(2**64, size=len(hashes), dtype=np.uint64)[places]

    matrix = program.matrix.copy()
    matrix.data = hashed(matrix.data)
    rows = _classes(*program.row_bounds)
    columns = _classes(program.costs, *program.column_bounds, program.whole)
    while True:
        before = rows.max(initial=0) + columns.max(initial=0)
        # Sums modulo 2^64, in which the order of terms does not count.
        rows = _classes(rows, matrix @ hashed(columns))
        columns = _classes(columns, matrix.T @ hashed(rows))
        if rows.max(initial=0) + columns.max(initial=0) == before:
            return rows, columns


def _classes(*columns: npt.NDArray[np.generic]) -> IntArray:
    """Number equal rows of several columns alike."""
    import pandas as pd

    frame = pd.DataFrame(dict(enumerate(columns)))
    return frame.groupby(list(frame)).ngroup().to_numpy().astype(np.int64)


def _folded(program: LinearProgram, rows: IntArray, columns: IntArray) -> LinearProgram:
    """Keep one row of each class, and add up the columns of each class."""
    from scipy.sparse import csc_array

    first_rows, first_columns = (np.unique(classes, return_index=True)[1] for classes in (rows, columns))
    ones = (np.ones(len(columns)), (np.arange(len(columns)), columns))
    return program._replace(
        costs=np.bincount(columns, program.costs).astype(np.float64),
        matrix=(program.matrix.tocsr()[first_rows] @ csc_array(ones)).tocsc(),
        row_bounds=(program.row_bounds[0][first_rows], program.row_bounds[1][first_rows]),
        column_bounds=(program.column_bounds[0][first_columns], program.column_bounds[1][first_columns]),
        whole=program.whole[first_columns],
        variables={},
        constraints={},
    )
