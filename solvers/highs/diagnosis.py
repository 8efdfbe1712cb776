"""Diagnosis of solves without an answer: the constraints, variables or options at fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import BoolArray, FloatArray
from ..lp.program import Labels, LinearProgram, named
from .options import HighsOptions
from .rays import column_sums, empty_conflicts
from .solution import Termination

# HiGHS's small_matrix_value and large_matrix_value: coefficients beyond them it drops or refuses.
SMALLEST, LARGEST = 1e-9, 1e15

# HiGHS's infinite_cost and infinite_bound.
INFINITE = 1e20


class Attempt(Protocol):
    """A program that HiGHS has tried to solve."""

    program: LinearProgram
    options: HighsOptions
    highs: Any


def check_numbers(program: LinearProgram) -> None:
    """Raise `UnsupportedError` for numbers that HiGHS refuses or would silently drop, naming their location."""
    sizes = np.abs(program.matrix.data)
    wrong = np.flatnonzero(~((sizes == 0) | ((sizes >= SMALLEST) & (sizes < LARGEST))))
    if len(wrong):
        row = named(program.constraints, program.matrix.indices[wrong[:1]])
        value = float(program.matrix.data[wrong[0]])
        raise UnsupportedError(
            f"a coefficient of {row} in {program.name} is {value:g}; expected sizes of {SMALLEST:g} to {LARGEST:g}: "
            "choose another unit"
        )
    if len(endless := np.flatnonzero(~(np.abs(program.costs) < INFINITE))):
        raise UnsupportedError(
            f"the objective of {program.name} has {named(program.variables, endless[:1])} with coefficient "
            f"{float(program.costs[endless[0]]):g}; expected sizes below {INFINITE:g}"
        )
    if not abs(program.offset) < INFINITE:
        raise UnsupportedError(
            f"the objective of {program.name} has the constant {program.offset:g}; expected a number"
        )
    _check_bounds(program, program.constraints, program.row_bounds)
    _check_bounds(program, program.variables, program.column_bounds)


def _check_bounds(program: LinearProgram, blocks: Mapping[str, Labels], bounds: tuple[FloatArray, FloatArray]) -> None:
    for side, numbers, none in zip(("lower", "upper"), bounds, (-np.inf, np.inf), strict=True):
        if len(wrong := np.flatnonzero(~((np.abs(numbers) < INFINITE) | (numbers == none)))):
            raise UnsupportedError(
                f"the {side} bound of {named(blocks, wrong[:1])} in {program.name} is {float(numbers[wrong[0]]):g}; "
                f"expected a number of a size below {INFINITE:g}, or {none:g} for none"
            )


def message(attempt: Attempt, termination: Termination, ray: FloatArray | None) -> str:
    """Describe in one sentence how a solve ended, as the ray proves, and how to fix it."""
    name = attempt.program.name
    if termination is Termination.INFEASIBLE:
        return f"{name} is infeasible: {_conflict(attempt.program, ray)}"
    if termination is Termination.UNBOUNDED:
        columns = "" if ray is None else named(attempt.program.variables, np.flatnonzero(ray))
        cause = f" along {columns}; bound one" if columns else "; bound the variables in it"
        return f"{name} is unbounded: its objective improves without end{cause}"
    if termination is Termination.TIME_LIMIT:
        limit = f"time_limit={attempt.options.time_limit:g}"
        remedy = "raise it" if attempt.program.whole.any() else "raise it or choose another algorithm"
        return f"{name} was not solved within {limit} seconds; {remedy}"
    if termination is Termination.INTERRUPTED:
        return f"{name} was not solved, since the callback in HighsOptions.progress stopped it"
    if termination is Termination.OPTIMAL:
        return f"{name} is solved to optimality"
    stopped = attempt.highs.modelStatusToString(attempt.highs.getModelStatus())
    if attempt.highs.getModelStatus().name in ("kInfeasible", "kUnbounded"):
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
    together = " with whole values of its variables" if program.whole.any() else ""
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
    if parts := [_several(program, what, chosen) for what, chosen in groups if chosen.any()]:
        return f" with {' and '.join(parts)}"
    return " with variables of at least 0" if sums.any() else ""


def _several(program: LinearProgram, what: str, chosen: BoolArray) -> str:
    plural = "s" if np.count_nonzero(chosen) > 1 else ""
    return f"the {what}{plural} of {named(program.variables, np.flatnonzero(chosen))}"
