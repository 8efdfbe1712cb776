"""Certificates and diagnosis of solves without an answer: checked Farkas and primal rays, and what is at fault.

HiGHS's presolve and its interior point can declare a feasible program infeasible, so the claim counts only with a
proof; see `conflict` and `escape`.
"""

from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import BoolArray, FloatArray
from ...support.linear_program import LinearProgram
from .program import named
from .solution import Termination

# What is smaller than this, relative to what it is the sum of, is rounding.
ROUNDING = 1e-9

# By how much, relative to its terms, the inequality that decides must be met.
CLEAR = 1e-12


def proof(program: LinearProgram, highs: Any, termination: Termination, *, by_simplex: bool) -> FloatArray | None:
    """Return a checked ray that proves infeasibility (per row) or unboundedness (per column), or None.

    Only an existing ray is read unless HiGHS is set to simplex: interior point may not terminate (in HiGHS 1.15.1).
    """
    if termination is Termination.INFEASIBLE:
        empty = empty_conflicts(program)
        if empty.any():
            return np.where(empty, np.where(program.row_bounds[0] > 0, 1.0, -1.0), 0.0)
        if not (by_simplex or highs.getDualRayExist()[1]):
            return None
        return conflict(program, *highs.getDualRay()[1:])
    if termination is Termination.UNBOUNDED and not program.matrix.data.any():
        # HiGHS solves programs without coefficients in presolve, and keeps no ray; unbounded columns are one.
        better = np.sign(program.costs) * (1.0 if program.maximize else -1.0)
        ends = np.where(better > 0, program.column_bounds[1], program.column_bounds[0])
        return escape(program, True, np.where(np.isinf(ends), better, 0.0))
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


def conflict(program: LinearProgram, candidates: bool, ray: FloatArray) -> FloatArray | None:
    """Check a Farkas ray of infeasibility, and return it with the proving sign, or None."""
    for candidate in _candidates(candidates, ray):
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


def escape(program: LinearProgram, candidates: bool, ray: FloatArray) -> FloatArray | None:
    """Check a primal ray: no bound limits it and the objective improves along it."""
    for candidate in _candidates(candidates, ray):
        rows = _cleared(program.matrix @ candidate, abs(program.matrix) @ np.abs(candidate))
        gains = (1.0 if program.maximize else -1.0) * program.costs * candidate
        free = _unbounded(candidate, program.column_bounds) and _unbounded(rows, program.row_bounds)
        if free and float(np.sum(gains)) > CLEAR * float(np.sum(np.abs(gains))):
            return candidate
    return None


def _unbounded(direction: FloatArray, bounds: tuple[FloatArray, FloatArray]) -> bool:
    lower, upper = bounds
    return bool((np.isinf(upper) | (direction <= 0)).all() and (np.isinf(lower) | (direction >= 0)).all())


def _candidates(rows: bool, ray: FloatArray) -> list[FloatArray]:
    """Return the ray cleared of rounding, which names fewer rows, then as it is."""
    if not rows:
        return []
    subset = np.array(ray, dtype=np.float64)
    size = float(np.max(np.abs(subset), initial=0.0))
    if not 0 < size < np.inf:
        return []
    subset /= size
    return [_cleared(subset, np.ones(len(subset))), subset]


def _cleared(numbers: FloatArray, sizes: FloatArray) -> FloatArray:
    return np.where(np.abs(numbers) > ROUNDING * sizes, numbers, 0.0)


SMALLEST, LARGEST, INFINITE = 1e-9, 1e15, 1e20
"""HiGHS drops or refuses coefficients beyond the first two, and takes what exceeds the last for infinite."""


def check_numbers(program: LinearProgram) -> None:
    """Raise `UnsupportedError` for numbers that HiGHS refuses or would silently drop, naming their location."""
    sizes = np.abs(program.matrix.data)
    faulty = np.flatnonzero(~((sizes == 0) | ((sizes >= SMALLEST) & (sizes < LARGEST))))
    if len(faulty):
        row = named(program.constraints, program.matrix.indices[faulty[:1]])
        raise UnsupportedError(
            f"a coefficient of {row} in {program.name} is {float(program.matrix.data[faulty[0]]):g}; expected sizes of "
            f"{SMALLEST:g} to {LARGEST:g}: choose another unit"
        )
    if not abs(program.offset) < INFINITE:
        raise UnsupportedError(
            f"the objective of {program.name} has the constant {program.offset:g}; expected a number"
        )
    for what, blocks, numbers, none in (
        ("cost", program.variables, program.costs, 0.0),
        ("lower bound", program.constraints, program.row_bounds[0], -np.inf),
        ("upper bound", program.constraints, program.row_bounds[1], np.inf),
        ("lower bound", program.variables, program.column_bounds[0], -np.inf),
        ("upper bound", program.variables, program.column_bounds[1], np.inf),
    ):
        if len(faulty := np.flatnonzero(~((np.abs(numbers) < INFINITE) | (numbers == none)))):
            raise UnsupportedError(
                f"the {what} of {named(blocks, faulty[:1])} in {program.name} is {float(numbers[faulty[0]]):g}; "
                f"expected a number of a size below {INFINITE:g}, or {none:g} for none"
            )


def message(
    program: LinearProgram, highs: Any, limit: float | None, termination: Termination, ray: FloatArray | None
) -> str:
    """Describe in one sentence how a solve ended, as the ray proves, and how to fix it."""
    name = program.name
    if termination is Termination.INFEASIBLE:
        return f"{name} is infeasible: {_conflict(program, ray)}"
    if termination is Termination.UNBOUNDED:
        columns = "" if ray is None else named(program.variables, np.flatnonzero(ray))
        cause = f" along {columns}; bound one" if columns else "; bound the variables in it"
        return f"{name} is unbounded: its objective improves without end{cause}"
    if termination is Termination.TIME_LIMIT:
        remedy = "raise it" if program.integral.any() else "raise it or choose another algorithm"
        return f"{name} was not solved within time_limit={limit:g} seconds; {remedy}"
    if termination is Termination.INTERRUPTED:
        return f"{name} was not solved, since the callback in HighsOptions.progress stopped it"
    if termination is Termination.OPTIMAL:
        return f"{name} is solved to optimality"
    status = highs.getModelStatus()
    stopped = highs.modelStatusToString(status)
    if status.name in ("kInfeasible", "kUnbounded"):
        return (
            f"{name} has no proved answer: HiGHS calls it {stopped.lower()} without a ray that proves it; look for "
            "numbers of very different sizes and choose other units"
        )
    return f"{name} has no proved answer, HiGHS stopped with {stopped!r}; try another algorithm or look at log=True"


def _conflict(program: LinearProgram, ray: FloatArray | None) -> str:
    for blocks, (lower, upper) in (
        (program.variables, program.column_bounds),
        (program.constraints, program.row_bounds),
    ):
        if crossed := named(blocks, np.flatnonzero(lower > upper)):
            return f"the lower bound of {crossed} is above its upper bound; change one"
    empty = empty_conflicts(program)
    if impossible := named(program.constraints, np.flatnonzero(empty)):
        have, their = ("have", "their") if np.count_nonzero(empty) > 1 else ("has", "its")
        return f"{impossible} {have} no variables, and {their} bounds exclude 0; change them"
    if ray is not None and (rows := named(program.constraints, np.flatnonzero(ray))):
        return f"{rows} cannot hold together{_with_bounds(program, ray)}; relax one"
    together = " with whole values of its variables" if program.integral.any() else ""
    return f"its constraints cannot hold together{together}; relax one"


def _with_bounds(program: LinearProgram, ray: FloatArray) -> str:
    """Name the bounds of variables in a conflict, except the usual lower bounds of 0."""
    sums = column_sums(program, ray)
    lower, upper = program.column_bounds
    fixed = lower == upper
    groups = (
        ("fixed value", fixed & (sums != 0)),
        ("lower bound", ~fixed & (sums < 0) & (lower != 0)),
        ("upper bound", ~fixed & (sums > 0)),
    )
    if parts := [_joined(program, what, subset) for what, subset in groups if subset.any()]:
        return f" with {' and '.join(parts)}"
    return " with variables of at least 0" if sums.any() else ""


def _joined(program: LinearProgram, what: str, subset: BoolArray) -> str:
    plural = "s" if np.count_nonzero(subset) > 1 else ""
    return f"the {what}{plural} of {named(program.variables, np.flatnonzero(subset))}"
