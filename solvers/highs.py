"""The only door to HiGHS: options in, one frozen answer out.

A model is anything that can hand over a `LinearProgram`: the formulations, whose Pyomo programs are compiled on their
own side, and `collopt.solvers.blocks.Blocks`.  Inside, everything is minimised and signs are flipped once, because
HiGHS 1.15.1 returns flipped duals for a maximisation by interior point without crossover or by PDLP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from .linear_program import FloatArray, IntArray, Labels, LinearProgram, Model
from .solution import DualStatus, Named, PrimalStatus, Solution, Status, Termination
from .solver_options import HighsOptions

__all__ = ["solve"]

NAMES_SHOWN = 3

# HiGHS's small_matrix_value and large_matrix_value: coefficients beyond them it drops or refuses.
SMALLEST, LARGEST = 1e-9, 1e15

# HiGHS's infinite_cost.
INFINITE_COST = 1e20

TERMINATIONS = {
    "kOptimal": Termination.OPTIMAL,
    "kInfeasible": Termination.INFEASIBLE,
    "kUnbounded": Termination.UNBOUNDED,
    "kUnboundedOrInfeasible": Termination.INFEASIBLE_OR_UNBOUNDED,
    "kTimeLimit": Termination.TIME_LIMIT,
    "kIterationLimit": Termination.OTHER_LIMIT,
    "kSolutionLimit": Termination.OTHER_LIMIT,
    "kMemoryLimit": Termination.OTHER_LIMIT,
    "kInterrupt": Termination.OTHER_LIMIT,
    "kHighsInterrupt": Termination.OTHER_LIMIT,
}


def solve(model: Model, options: HighsOptions | None = None) -> Solution:
    """Solve a model with HiGHS.

    Parameters
    ----------
    model : Model
        Of `collopt.formulations`, or `Blocks`.
    options : HighsOptions, optional
        HiGHS's own choices by default.

    Returns
    -------
    Solution
        Also where there is no answer: look at `Solution.status`, or read a value and get the reason as an error.

    Raises
    ------
    UnsupportedError
        If `model` is not a model, has no variables, or has numbers beyond what HiGHS takes.
    """
    if not callable(getattr(model, "linear_program", None)):
        raise UnsupportedError(
            f"cannot solve a {type(model).__name__}; expected a model of collopt.formulations or Blocks"
        )
    program = model.linear_program()
    if not len(program.costs):
        raise UnsupportedError(f"{program.name} has no variables; add some before solving it")
    _check_numbers(program)
    return _Run(program, options or HighsOptions()).solution()


def _check_numbers(program: LinearProgram) -> None:
    """HiGHS would silently leave out what is too small; a model must not be solved without a part of it."""
    sizes = np.abs(program.matrix.data)
    wrong = np.flatnonzero(~((sizes == 0) | ((sizes >= SMALLEST) & (sizes < LARGEST))))
    if len(wrong):
        row = _names(program.constraints, program.matrix.indices[wrong[:1]])
        value = float(program.matrix.data[wrong[0]])
        raise UnsupportedError(
            f"a coefficient of {row} in {program.name} is {value:g}; expected sizes of {SMALLEST:g} to {LARGEST:g}: "
            "choose another unit"
        )
    if len(endless := np.flatnonzero(~(np.abs(program.costs) < INFINITE_COST))):
        raise UnsupportedError(
            f"the objective of {program.name} has {_names(program.variables, endless)} with coefficient "
            f"{float(program.costs[endless[0]]):g}; expected sizes below {INFINITE_COST:g}"
        )


class _Run:
    """One solve: HiGHS's object and the program that it holds."""

    def __init__(self, program: LinearProgram, options: HighsOptions) -> None:
        highspy = _highspy()
        self.program, self.options = program, options
        # All signs of a maximisation are turned here, and back in `solution`.
        self.sign = -1.0 if program.maximize else 1.0
        if options.threads is not None:
            # HiGHS refuses to change the number of threads of a scheduler that is running.
            highspy.Highs.resetGlobalScheduler(True)
        self.highs = highspy.Highs()
        for name, value in options.settings().items():
            self.highs.setOptionValue(name, value)
        if self.highs.passModel(_highs_model(program, self.sign)) == highspy.HighsStatus.kError:
            raise UnsupportedError(f"HiGHS refuses {program.name}; look for bounds that are not numbers")

    def solution(self) -> Solution:
        termination = self._run()
        if termination is Termination.INFEASIBLE_OR_UNBOUNDED:
            # Only presolve leaves this open.
            self._restart()
            termination = self._run()
        info, found = self.highs.getInfo(), self.highs.getSolution()
        kinds = (PrimalStatus.NONE, PrimalStatus.INFEASIBLE, PrimalStatus.FEASIBLE)
        primal = PrimalStatus.NONE if termination is Termination.UNBOUNDED else kinds[info.primal_solution_status]
        dual_kinds = (DualStatus.NONE, DualStatus.INFEASIBLE, DualStatus.FEASIBLE)
        dual = dual_kinds[info.dual_solution_status] if found.dual_valid else DualStatus.NONE
        program = self.program
        objective = self.sign * info.objective_function_value
        values = np.array(found.col_value, dtype=np.float64)
        duals, reduced = (self.sign * np.array(side, dtype=np.float64) for side in (found.row_dual, found.col_dual))
        return Solution(
            Status(termination, primal, dual),
            self._message(termination),
            objective,
            Named("variable", program.variables, values),
            Named("constraint", program.constraints, duals),
            Named("variable", program.variables, reduced),
        )

    def _run(self) -> Termination:
        self.highs.run()
        return TERMINATIONS.get(self.highs.getModelStatus().name, Termination.UNKNOWN)

    def _restart(self) -> None:
        self.highs.clearSolver()
        self.highs.setOptionValue("presolve", "off")
        self.highs.setOptionValue("solver", "simplex")

    def _message(self, termination: Termination) -> str:
        name = self.program.name
        if termination is Termination.INFEASIBLE:
            return f"{name} is infeasible: {self._conflict()}"
        if termination is Termination.UNBOUNDED:
            return f"{name} is unbounded: {self._escape()}"
        if termination is Termination.TIME_LIMIT:
            limit = f"time_limit={self.options.time_limit:g}"
            return f"{name} was not solved within {limit} seconds; raise it or choose another algorithm"
        if termination is Termination.OPTIMAL:
            return f"{name} is solved to optimality"
        stopped = self.highs.modelStatusToString(self.highs.getModelStatus())
        return f"{name} has no proved answer, HiGHS stopped with {stopped!r}; try another algorithm or look at log=True"

    def _conflict(self) -> str:
        lower, upper = self.program.column_bounds
        if crossed := _names(self.program.variables, np.flatnonzero(lower > upper)):
            return f"the lower bound of {crossed} is above its upper bound; change one"
        if rows := _names(self.program.constraints, self._ray(self.highs.getDualRay)):
            return f"{rows} cannot hold together with the bounds of the variables; relax one"
        return "its constraints cannot hold together with whole values of its variables; relax one"

    def _escape(self) -> str:
        if columns := _names(self.program.variables, self._ray(self.highs.getPrimalRay)):
            return f"its objective improves without end along {columns}; bound one"
        return "its objective improves without end; bound the variables in it"

    def _ray(self, read: Callable[[], tuple[Any, bool, FloatArray]]) -> IntArray:
        if self.program.whole.any():
            return np.empty(0, dtype=np.int64)
        _, known, ray = read()
        if not known:
            # Interior point and PDLP leave no ray; simplex without presolve does.
            self._restart()
            self.highs.run()
            _, known, ray = read()
        return np.flatnonzero(np.abs(ray) > 1e-9) if known else np.empty(0, dtype=np.int64)


def _highspy() -> Any:
    """Import HiGHS, whose type information is incomplete."""
    import highspy

    return highspy


def _names(blocks: Mapping[str, Labels], chosen: IntArray) -> str:
    """Name a few of the columns or rows chosen: one per block, last blocks first, for those are what users add."""
    names: list[str] = []
    for block in reversed(list(blocks.values())):
        places = np.flatnonzero(np.isin(block.positions.ravel(), chosen))
        if len(places) and len(names) < NAMES_SHOWN:
            names.append(repr(block.label(int(places[0]))))
    more = len(chosen) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _highs_model(program: LinearProgram, sign: float) -> Any:
    highspy = _highspy()
    rows, columns = program.matrix.shape
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, rows
    model.col_cost_, model.offset_ = sign * program.costs, sign * program.offset
    model.col_lower_, model.col_upper_ = program.column_bounds
    model.row_lower_, model.row_upper_ = program.row_bounds
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = program.matrix.indptr
    model.a_matrix_.index_ = program.matrix.indices
    model.a_matrix_.value_ = program.matrix.data
    if program.whole.any():
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(whole)] for whole in program.whole]
    return model
