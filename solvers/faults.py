"""Sentences about models that have no answer: which constraints, variables or options are at fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..errors import UnsupportedError
from .linear_program import FloatArray, IntArray, LinearProgram, named
from .solution import Termination
from .solver_options import HighsOptions

__all__ = ["Attempt", "check_numbers", "message"]

# HiGHS's small_matrix_value and large_matrix_value: coefficients beyond them it drops or refuses.
SMALLEST, LARGEST = 1e-9, 1e15

# HiGHS's infinite_cost.
INFINITE_COST = 1e20


class Attempt(Protocol):
    """A program that HiGHS has tried to solve."""

    program: LinearProgram
    options: HighsOptions
    highs: Any

    def restart(self) -> None:
        """Prepare for another run, of simplex without presolve, which leaves a ray if there is no answer."""


def check_numbers(program: LinearProgram) -> None:
    """Raise `UnsupportedError` for numbers that HiGHS would silently leave out: no model is solved without a part."""
    sizes = np.abs(program.matrix.data)
    wrong = np.flatnonzero(~((sizes == 0) | ((sizes >= SMALLEST) & (sizes < LARGEST))))
    if len(wrong):
        row = named(program.constraints, program.matrix.indices[wrong[:1]])
        value = float(program.matrix.data[wrong[0]])
        raise UnsupportedError(
            f"a coefficient of {row} in {program.name} is {value:g}; expected sizes of {SMALLEST:g} to {LARGEST:g}: "
            "choose another unit"
        )
    if len(endless := np.flatnonzero(~(np.abs(program.costs) < INFINITE_COST))):
        raise UnsupportedError(
            f"the objective of {program.name} has {named(program.variables, endless)} with coefficient "
            f"{float(program.costs[endless[0]]):g}; expected sizes below {INFINITE_COST:g}"
        )


def message(attempt: Attempt, termination: Termination) -> str:
    """Say in one sentence how a solve ended, and what to do if it did not end well."""
    name = attempt.program.name
    if termination is Termination.INFEASIBLE:
        return f"{name} is infeasible: {_conflict(attempt)}"
    if termination is Termination.UNBOUNDED:
        return f"{name} is unbounded: {_escape(attempt)}"
    if termination is Termination.TIME_LIMIT:
        limit = f"time_limit={attempt.options.time_limit:g}"
        return f"{name} was not solved within {limit} seconds; raise it or choose another algorithm"
    if termination is Termination.INTERRUPTED:
        return f"{name} was not solved, since the listener in HighsOptions.progress stopped it"
    if termination is Termination.OPTIMAL:
        return f"{name} is solved to optimality"
    stopped = attempt.highs.modelStatusToString(attempt.highs.getModelStatus())
    return f"{name} has no proved answer, HiGHS stopped with {stopped!r}; try another algorithm or look at log=True"


def _conflict(attempt: Attempt) -> str:
    lower, upper = attempt.program.column_bounds
    if crossed := named(attempt.program.variables, np.flatnonzero(lower > upper)):
        return f"the lower bound of {crossed} is above its upper bound; change one"
    if rows := named(attempt.program.constraints, _ray(attempt, attempt.highs.getDualRay)):
        return f"{rows} cannot hold together with the bounds of the variables; relax one"
    return "its constraints cannot hold together with whole values of its variables; relax one"


def _escape(attempt: Attempt) -> str:
    if columns := named(attempt.program.variables, _ray(attempt, attempt.highs.getPrimalRay)):
        return f"its objective improves without end along {columns}; bound one"
    return "its objective improves without end; bound the variables in it"


def _ray(attempt: Attempt, read: Callable[[], tuple[Any, bool, FloatArray]]) -> IntArray:
    if attempt.program.whole.any():
        return np.empty(0, dtype=np.int64)
    _, known, ray = read()
    if not known:
        # Interior point and PDLP leave no ray; simplex without presolve does.
        attempt.restart()
        attempt.highs.run()
        _, known, ray = read()
    return np.flatnonzero(np.abs(ray) > 1e-9) if known else np.empty(0, dtype=np.int64)
