"""Infeasibility and unboundedness certificates: Farkas rays and primal rays of HiGHS, checked here.

HiGHS's presolve and its interior point can declare a feasible program infeasible, so the claim counts only with a
proof; see `conflict` and `escape`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ...support.arrays import BoolArray, FloatArray
from ..lp.program import LinearProgram
from .solution import Termination

# What is smaller than this, relative to what it is the sum of, is rounding.
ROUNDING = 1e-9

# By how much, relative to its terms, the inequality that decides must be met.
CLEAR = 1e-12


class Attempt(Protocol):
    """A program that HiGHS has tried to solve."""

    program: LinearProgram
    highs: Any


def proof(attempt: Attempt, termination: Termination, *, by_simplex: bool) -> FloatArray | None:
    """Return a checked ray that proves infeasibility (per row) or unboundedness (per column), or None.

    Unless HiGHS is set to simplex without presolve, only an existing ray is read.  For a new one HiGHS would solve
    another program with the algorithm that is set, and interior point without presolve does not terminate on some
    programs with empty rows (in HiGHS 1.15.1).
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
        # HiGHS solves programs without coefficients in presolve, and keeps no ray.
        return escape(program, True, _improving(program))
    if termination is Termination.UNBOUNDED and (by_simplex or highs.getPrimalRayExist()[1]):
        return escape(program, *highs.getPrimalRay()[1:])
    return None


def crossed(program: LinearProgram) -> bool:
    """Return whether a lower bound exceeds its upper bound, which needs no ray."""
    return any((lower > upper).any() for lower, upper in (program.column_bounds, program.row_bounds))


def empty_conflicts(program: LinearProgram) -> BoolArray:
    """Mark rows without coefficients whose bounds exclude 0."""
    filled = np.zeros(program.matrix.shape[0], dtype=np.bool_)
    filled[program.matrix.indices[program.matrix.data != 0]] = True
    lower, upper = program.row_bounds
    return np.asarray(~filled & ((lower > 0) | (upper < 0)))


def conflict(program: LinearProgram, known: bool, ray: FloatArray) -> FloatArray | None:
    """Check a Farkas ray of infeasibility, and return it with the proving sign, or None.

    The combination of rows by the ray must require more than ``(matrix.T @ ray) @ x`` attains within the bounds of the
    columns x.
    """
    for candidate in _candidates(known, ray):
        for turned in (candidate, -candidate):
            if farkas_violation(program, turned) > 0:
                return turned
    return None


def column_sums(program: LinearProgram, ray: FloatArray) -> FloatArray:
    """Return the coefficients of the columns in the combination of rows, cleared of cancellation errors."""
    return _cleared(program.matrix.T @ ray, abs(program.matrix).T @ np.abs(ray))


def farkas_violation(program: LinearProgram, ray: FloatArray) -> float:
    """Return by how much the combined rows exceed what the columns attain, 0 if within rounding."""
    sums = column_sums(program, ray)
    required, attained = np.where(ray > 0, *program.row_bounds), np.where(sums < 0, *program.column_bounds)
    used, moved = ray != 0, sums != 0
    terms = np.concatenate([required[used] * ray[used], -attained[moved] * sums[moved]])
    # An absent bound makes its term minus infinity.
    total = float(np.sum(terms)) if np.isfinite(terms).all() else -np.inf
    return total if total > CLEAR * float(np.sum(np.abs(terms))) else min(total, 0.0)


def escape(program: LinearProgram, known: bool, ray: FloatArray) -> FloatArray | None:
    """Check a primal ray: no bound limits it and the objective improves along it."""
    for candidate in _candidates(known, ray):
        rows = _cleared(program.matrix @ candidate, abs(program.matrix) @ np.abs(candidate))
        gains = (1.0 if program.maximize else -1.0) * program.costs * candidate
        free = _unbounded(candidate, program.column_bounds) and _unbounded(rows, program.row_bounds)
        if free and float(np.sum(gains)) > CLEAR * float(np.sum(np.abs(gains))):
            return candidate
    return None


def _improving(program: LinearProgram) -> FloatArray:
    """Return the improving direction along columns that are unbounded in it."""
    better = np.sign(program.costs) * (1.0 if program.maximize else -1.0)
    return np.where(np.isinf(np.where(better > 0, program.column_bounds[1], program.column_bounds[0])), better, 0.0)


def _unbounded(direction: FloatArray, bounds: tuple[FloatArray, FloatArray]) -> bool:
    lower, upper = bounds
    return bool((np.isinf(upper) | (direction <= 0)).all() and (np.isinf(lower) | (direction >= 0)).all())


def _candidates(known: bool, ray: FloatArray) -> list[FloatArray]:
    """Return the ray cleared of rounding, which names fewer rows, then as it is."""
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
