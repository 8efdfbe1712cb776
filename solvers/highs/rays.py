"""Rays that prove that a linear program has no best point, asked of HiGHS and checked here.

HiGHS's presolve and its interior point can take a program for infeasible that is not, so what they say counts only
with a proof; see `conflict` and `escape` for what proves what.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ...support.arrays import BoolArray, FloatArray
from ..lp.program import LinearProgram
from .solution import Termination

__all__ = ["column_sums", "conflict", "crossed", "empty_conflicts", "escape", "proof", "shortfall"]

# What is smaller than this, relative to what it is the sum of, is rounding.
ROUNDING = 1e-9

# By how much, relative to its terms, the inequality that decides must be met.
CLEAR = 1e-12


class Attempt(Protocol):
    """A program that HiGHS has tried to solve."""

    program: LinearProgram
    highs: Any


def proof(attempt: Attempt, termination: Termination, *, by_simplex: bool) -> FloatArray | None:
    """Ask for the ray that proves how a linear program ended, per row if infeasible and per column if unbounded.

    Unless HiGHS is set to simplex without presolve, only a ray that is there already is read.  For another one HiGHS
    would solve a program of its own with the algorithm that is set, and interior point without presolve does not end
    on some programs with empty rows (in HiGHS 1.15.1).
    """
    program, highs = attempt.program, attempt.highs
    if termination is Termination.INFEASIBLE:
        empty = empty_conflicts(program)
        if empty.any():
            return np.where(empty, np.where(program.row_bounds[0] > 0, 1.0, -1.0), 0.0)
        if not (by_simplex or highs.getDualRayExist()[1]):
            return None
        return conflict(program, *highs.getDualRay()[1:])
    if termination is Termination.UNBOUNDED and not program.matrix.data.any():
        # HiGHS solves programs without coefficients at sight.
        return escape(program, True, _improving(program))
    if termination is Termination.UNBOUNDED and (by_simplex or highs.getPrimalRayExist()[1]):
        return escape(program, *highs.getPrimalRay()[1:])
    return None


def crossed(program: LinearProgram) -> bool:
    """Whether a lower bound is above its upper one, which needs no ray."""
    return any((lower > upper).any() for lower, upper in (program.column_bounds, program.row_bounds))


def empty_conflicts(program: LinearProgram) -> BoolArray:
    """Which rows have no coefficients, and bounds that exclude 0."""
    filled = np.zeros(program.matrix.shape[0], dtype=np.bool_)
    filled[program.matrix.indices[program.matrix.data != 0]] = True
    lower, upper = program.row_bounds
    return np.asarray(~filled & ((lower > 0) | (upper < 0)))


def conflict(program: LinearProgram, known: bool, ray: FloatArray) -> FloatArray | None:
    """Check that rows cannot hold together, by Farkas' lemma, and turn the ray so that it says so.

    The rows, added up with the factors in the ray, must ask for more than ``(matrix.T @ ray) @ x`` reaches within the
    bounds of the columns x.
    """
    for candidate in _candidates(known, ray):
        for turned in (candidate, -candidate):
            if shortfall(program, turned) > 0:
                return turned
    return None


def column_sums(program: LinearProgram, ray: FloatArray) -> FloatArray:
    """Factors of the columns in the sum of rows, without rounding errors of what cancels out."""
    return _cleared(program.matrix.T @ ray, abs(program.matrix).T @ np.abs(ray))


def shortfall(program: LinearProgram, ray: FloatArray) -> float:
    """By how much the sum of rows asks for more than the columns reach, 0 if that is within rounding."""
    sums = column_sums(program, ray)
    asked, reached = np.where(ray > 0, *program.row_bounds), np.where(sums < 0, *program.column_bounds)
    used, moved = ray != 0, sums != 0
    terms = np.concatenate([asked[used] * ray[used], -reached[moved] * sums[moved]])
    # A bound that is not there makes its term minus infinity.
    total = float(np.sum(terms)) if np.isfinite(terms).all() else -np.inf
    return total if total > CLEAR * float(np.sum(np.abs(terms))) else min(total, 0.0)


def escape(program: LinearProgram, known: bool, ray: FloatArray) -> FloatArray | None:
    """Check that one can move along a ray without end, which no bound stops, while the objective improves."""
    for candidate in _candidates(known, ray):
        rows = _cleared(program.matrix @ candidate, abs(program.matrix) @ np.abs(candidate))
        gains = (1.0 if program.maximize else -1.0) * program.costs * candidate
        free = _unbounded(candidate, program.column_bounds) and _unbounded(rows, program.row_bounds)
        if free and float(np.sum(gains)) > CLEAR * float(np.sum(np.abs(gains))):
            return candidate
    return None


def _improving(program: LinearProgram) -> FloatArray:
    """In what direction the objective improves along the columns that may go on in them for ever."""
    better = np.sign(program.costs) * (1.0 if program.maximize else -1.0)
    return np.where(np.isinf(np.where(better > 0, program.column_bounds[1], program.column_bounds[0])), better, 0.0)


def _unbounded(direction: FloatArray, bounds: tuple[FloatArray, FloatArray]) -> bool:
    lower, upper = bounds
    return bool((np.isinf(upper) | (direction <= 0)).all() and (np.isinf(lower) | (direction >= 0)).all())


def _candidates(known: bool, ray: FloatArray) -> list[FloatArray]:
    """The ray without what looks like rounding, which names less, and then as it is."""
    if not known:
        return []
    given = np.array(ray, dtype=np.float64)
    size = float(np.max(np.abs(given), initial=0.0))
    if not 0 < size < np.inf:
        return []
    given /= size
    return [_cleared(given, np.ones(len(given))), given]


def _cleared(numbers: FloatArray, sizes: FloatArray) -> FloatArray:
    return np.where(np.abs(numbers) > ROUNDING * sizes, numbers, 0.0)
