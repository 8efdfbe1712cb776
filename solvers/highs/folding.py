"""Dimension reduction of linear programs by colour refinement (Grohe, Kersting, Mladenov and Selman, 2014)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...support.arrays import IntArray
from ...support.linear_program import LinearProgram
from ..lp.exact_optimum import ExactAnswer, ExactProgram
from ..lp.program import Model
from ..lp.rationals import exact
from .options import HighsOptions
from .session import solve

Hashes = npt.NDArray[np.uint64]


def solve_folded(model: Model, options: HighsOptions | None = None) -> ExactAnswer:
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
    found = solve(_folded(program, rows, columns), options).exact
    shares = [value / size for value, size in zip(found._duals, np.bincount(rows).tolist(), strict=True)]
    point = found._point[columns]
    answer = ExactAnswer(found.objective, ExactProgram(program), point, exact(shares)[rows])
    answer.verify()
    return answer


def equitable_classes(program: LinearProgram) -> tuple[IntArray, IntArray]:
    """Number the classes of rows and columns whose bounds, costs and coefficients with each other class are equal."""
    matrix = program.matrix.tocoo()
    factors = _mixed(np.ascontiguousarray(matrix.data).view(np.uint64))
    rows = _classes(*program.row_bounds)
    columns = _classes(program.costs, *program.column_bounds, program.whole)
    while True:
        before = rows.max(initial=0) + columns.max(initial=0)
        rows = _refined(rows, matrix.row, factors * _mixed(columns.astype(np.uint64))[matrix.col])
        columns = _refined(columns, matrix.col, factors * _mixed(rows.astype(np.uint64))[matrix.row])
        if rows.max(initial=0) + columns.max(initial=0) == before:
            return rows, columns


def _refined(classes: IntArray, places: IntArray, terms: Hashes) -> IntArray:
    """Divide classes by sums of hashes; the order of terms does not count."""
    sums = np.zeros(len(classes), dtype=np.uint64)
    np.add.at(sums, places, terms)
    return _classes(classes, sums)


def _classes(*columns: npt.NDArray[np.generic]) -> IntArray:
    """Number equal rows of several columns alike."""
    found = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = np.unique(column, return_inverse=True)[1]
        found = np.unique(found * (values.max(initial=0) + 1) + values, return_inverse=True)[1]
    return found


def _mixed(numbers: Hashes) -> Hashes:
    """Scramble 64 bits as SplitMix64 does."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


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
