"""The only door to HiGHS: options in, one frozen answer out.

A model is anything that can hand over a `LinearProgram`: the formulations, whose Pyomo programs are compiled on their
own side, and `collopt.solvers.blocks.Blocks`.  Inside, everything is minimised and signs are flipped once, because
HiGHS 1.15.1 returns flipped duals for a maximisation by interior point without crossover or by PDLP.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import SolverError, UnsupportedError

__all__ = [
    "Algorithm",
    "DualStatus",
    "HighsOptions",
    "Labels",
    "LinearProgram",
    "Model",
    "Named",
    "NoAnswerError",
    "PrimalStatus",
    "Solution",
    "Status",
    "Termination",
    "solve",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NAMES_SHOWN = 3

# HiGHS's small_matrix_value and large_matrix_value: coefficients beyond them it drops or refuses.
SMALLEST, LARGEST = 1e-9, 1e15

# HiGHS's infinite_cost.
INFINITE_COST = 1e20


class NoAnswerError(SolverError):
    """A value was asked of a solution that has none; the message says why it has none."""


class Algorithm(Enum):
    """How HiGHS solves a linear program; integer programs are always solved by branch and bound."""

    SIMPLEX = "simplex"
    """Dual simplex: ends in a basis, best for re-solving and up to about 10^4 columns."""
    IPM = "ipm"
    """Interior point, then crossover to a basis: best for flows above about 10^4 columns."""
    IPM_WITHOUT_CROSSOVER = "ipm without crossover"
    """Interior point alone: an answer in the middle of the optimal face, and no basis."""
    PDLP = "pdlp"
    """First-order primal-dual method: for programs too large to factorise, at lower accuracy."""


class Termination(Enum):
    """Why the solver stopped."""

    OPTIMAL = "optimal"
    """A best answer was found, within tolerances."""
    INFEASIBLE = "infeasible"
    """No point meets all constraints."""
    UNBOUNDED = "unbounded"
    """The objective improves without end."""
    INFEASIBLE_OR_UNBOUNDED = "infeasible or unbounded"
    """There is no best answer, and the solver did not find out for which reason."""
    TIME_LIMIT = "time limit"
    """`HighsOptions.time_limit` ran out."""
    OTHER_LIMIT = "other limit"
    """Iterations, memory, or an interrupt."""
    UNKNOWN = "unknown"
    """The solver gave up, usually for numerical reasons."""


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


class PrimalStatus(Enum):
    """What is known of the values of the variables."""

    NONE = "none"
    """There are none, or the objective is unbounded and they mean nothing."""
    INFEASIBLE = "infeasible"
    """The solver stopped at a point that breaks a constraint."""
    FEASIBLE = "feasible"
    """They meet every constraint within tolerances."""


class DualStatus(Enum):
    """What is known of the prices of the constraints."""

    NONE = "none"
    """There are none, as for every integer program."""
    INFEASIBLE = "infeasible"
    """The solver stopped at prices that prove nothing."""
    FEASIBLE = "feasible"
    """They prove a bound on the objective, within tolerances."""


class Status(NamedTuple):
    """How a solve ended.

    Attributes
    ----------
    termination : Termination
    primal : PrimalStatus
    dual : DualStatus
    """

    termination: Termination
    primal: PrimalStatus
    dual: DualStatus


@dataclass(frozen=True)
class HighsOptions:
    """What to ask of HiGHS; None leaves the choice to it.

    Attributes
    ----------
    algorithm : Algorithm, optional
    time_limit : float, optional
        Seconds.
    threads : int, optional
    primal_tolerance, dual_tolerance : float, optional
        How far a constraint, or a reduced cost, may be off; 1e-10 to 1.
    log : bool
        Let HiGHS print its own log.

    Examples
    --------
    >>> HighsOptions(algorithm=Algorithm.IPM, time_limit=60).threads is None
    True
    """

    algorithm: Algorithm | None = None
    time_limit: float | None = None
    threads: int | None = None
    primal_tolerance: float | None = None
    dual_tolerance: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        """Check every field once."""
        if self.algorithm is not None and not isinstance(self.algorithm, Algorithm):
            known = ", ".join(f"Algorithm.{member.name}" for member in Algorithm)
            raise UnsupportedError(f"algorithm is {self.algorithm!r}; expected one of {known}")
        _check_number("time_limit", self.time_limit, 0, math.inf)
        _check_number("threads", self.threads, 1, 2**20, whole=True)
        _check_number("primal_tolerance", self.primal_tolerance, 1e-10, 1)
        _check_number("dual_tolerance", self.dual_tolerance, 1e-10, 1)

    def settings(self) -> dict[str, Any]:
        """Return HiGHS's own names and values of the options that are set."""
        settings: dict[str, Any] = {"output_flag": self.log}
        if self.algorithm is not None:
            bare = self.algorithm is Algorithm.IPM_WITHOUT_CROSSOVER
            settings["solver"] = "ipm" if bare else self.algorithm.value
            settings["run_crossover"] = "off" if bare else "on"
        given = {
            "time_limit": None if self.time_limit is None else float(self.time_limit),
            "threads": self.threads,
            "primal_feasibility_tolerance": self.primal_tolerance,
            "dual_feasibility_tolerance": self.dual_tolerance,
        }
        return settings | {name: value for name, value in given.items() if value is not None}


class Labels(Protocol):
    """Which columns or rows one named block of a model occupies, and how its user indexes them."""

    @property
    def positions(self) -> IntArray:
        """Columns or rows, in the block's own shape."""

    def arrange(self, values: FloatArray) -> Any:
        """Give `values`, in the shape of `positions`, the form in which the user indexes the block."""

    def label(self, place: int) -> str:
        """Name the entry at a flat place of `positions`, for messages."""


class LinearProgram(Protocol):
    """A linear or integer program as arrays: optimise ``costs @ x + offset`` over rows and columns with bounds."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def maximize(self) -> bool:
        """The sense of the objective."""

    @property
    def costs(self) -> FloatArray:
        """One per column."""

    @property
    def offset(self) -> float:
        """Constant part of the objective."""

    @property
    def matrix(self) -> Any:
        """A `scipy.sparse.csc_array`, rows by columns."""

    @property
    def row_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper."""

    @property
    def column_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper."""

    @property
    def whole(self) -> npt.NDArray[np.bool_]:
        """Which columns must be integers."""

    @property
    def variables(self) -> Mapping[str, Labels]:
        """Columns by name of their block."""

    @property
    def constraints(self) -> Mapping[str, Labels]:
        """Rows by name of their block."""


class Model(Protocol):
    """What `solve` takes: a formulation's model or `Blocks`."""

    def linear_program(self) -> LinearProgram:
        """Return the model as it stands, as arrays."""


class Named(Mapping[str, Any]):
    """Numbers by name of the block that they belong to; each is arranged when asked for."""

    def __init__(self, kind: str, labels: Mapping[str, Labels], numbers: FloatArray) -> None:
        self._kind, self._labels, self._numbers = kind, labels, numbers

    def __getitem__(self, name: str) -> Any:
        if name not in self._labels:
            raise KeyError(f"there is no {self._kind} {name!r}; this model has {', '.join(self._labels)}")
        block = self._labels[name]
        return block.arrange(self._numbers[block.positions])

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)


@dataclass(frozen=True)
class Solution:
    """How a solve ended, and what it found, if anything.

    Attributes
    ----------
    status : Status
    message : str
        One sentence that names the model and, where there is no answer, the constraints or inputs at fault.
    """

    status: Status
    message: str
    _objective: float
    _values: Named
    _duals: Named
    _reduced_costs: Named

    @property
    def objective(self) -> float:
        """The best value of the objective; `NoAnswerError` unless the status is optimal."""
        if self.status.termination is not Termination.OPTIMAL:
            raise NoAnswerError(f"there is no objective value: {self.message}")
        return self._objective

    @property
    def values(self) -> Named:
        """Values by name of the variable block; `NoAnswerError` unless the primal status is feasible."""
        if self.status.primal is not PrimalStatus.FEASIBLE:
            raise NoAnswerError(f"there are no values of variables: {self.message}")
        return self._values

    @property
    def duals(self) -> Named:
        """Prices by name of the constraint block; `NoAnswerError` unless the dual status is feasible.

        A price is the change of the objective, in the sense that the model states it, per unit added to the bound.
        """
        self._check_dual("duals")
        return self._duals

    @property
    def reduced_costs(self) -> Named:
        """Prices of the variables' own bounds, by name of the variable block; as `duals`."""
        self._check_dual("reduced costs")
        return self._reduced_costs

    def _check_dual(self, what: str) -> None:
        if self.status.dual is not DualStatus.FEASIBLE:
            raise NoAnswerError(f"there are no {what}: {self.message}")


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


def _check_number(name: str, value: float | None, least: float, most: float, *, whole: bool = False) -> None:
    kind = int if whole else (int, float)
    if value is None or (isinstance(value, kind) and not isinstance(value, bool) and least <= value <= most):
        return
    expected = f"{'a whole number' if whole else 'a number'} from {least:g} to {most:g}, or None"
    raise UnsupportedError(f"{name} is {value!r}; expected {expected}")


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
