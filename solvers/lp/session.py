"""Solver sessions: the interface to HiGHS.

Every program is minimized and signs are flipped once, because HiGHS 1.15.1 returns flipped duals for a maximization by
interior point without crossover or by PDLP.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import FloatArray, IntArray
from ...support.linear_program import LinearProgram
from ...support.validation import shown
from .diagnosis import check_numbers, crossed, empty_conflicts, message, proof
from .options import HighsOptions, Watch
from .program import Basis, Evidence, Model
from .solution import WITHOUT_OPTIMUM, DualStatus, PrimalStatus, Solution, Status, Termination

Start = Solution | Mapping[str, Any]
"""Warm start: an earlier solution, or values by name of the variable block as in `Solution.values`."""

TERMINATIONS = {
    "kOptimal": Termination.OPTIMAL,
    "kInfeasible": Termination.INFEASIBLE,
    "kUnbounded": Termination.UNBOUNDED,
    "kUnboundedOrInfeasible": Termination.INFEASIBLE_OR_UNBOUNDED,
    "kTimeLimit": Termination.TIME_LIMIT,
    **dict.fromkeys(("kIterationLimit", "kSolutionLimit", "kMemoryLimit"), Termination.OTHER_LIMIT),
    **dict.fromkeys(("kInterrupt", "kHighsInterrupt"), Termination.INTERRUPTED),
}


def solve(model: Model, options: HighsOptions | None = None, *, start: Start | None = None) -> Solution:
    """Solve a model with HiGHS.

    Where there is no answer, `Solution.status` says so, and reading a value raises the reason as an error.  Raises
    `UnsupportedError` if the model is none, has no variables, or numbers beyond what HiGHS takes; or if `options` or
    `start` are of another kind.

    Parameters
    ----------
    model : Model
        Of `collopt.formulations`, or `Blocks`.
    options : HighsOptions, optional
        HiGHS's own choices by default.
    start : Solution or mapping, optional
        Where to start from, see `Session.solve`.
    """
    return Session(model, options).solve(start)


class Session:
    """A model that is solved again and again, for sweeps and for models that grow.

    Every solve reads the model again.  Simplex goes on from the basis of the last solve, whose blocks it finds by name.

    Parameters
    ----------
    model : Model
    options : HighsOptions, optional
        For every solve.

    Examples
    --------
    The rate of a ring as the bandwidth of a link falls:

    >>> from collopt.formulations import throughput
    >>> from collopt.topologies import ring
    >>> model = throughput.build(ring(4, bandwidth=30))
    >>> session = Session(model)
    >>> rates = []
    >>> for bandwidth in (30, 20, 10):
    ...     model.program.bandwidth["gpu0", "gpu1"] = bandwidth
    ...     rates.append(str(session.solve().exact.objective))
    >>> rates
    ['20', '50/3', '40/3']
    """

    def __init__(self, model: Model, options: HighsOptions | None = None) -> None:
        if not callable(getattr(model, "linear_program", None)):
            raise UnsupportedError(
                f"cannot solve a {type(model).__name__}; expected a model of collopt.formulations or Blocks"
            )
        if options is not None and not isinstance(options, HighsOptions):
            raise UnsupportedError(
                f"options are {shown(options)}; expected a HighsOptions, such as HighsOptions(time_limit=60), or None"
            )
        self._model, self._options = model, options or HighsOptions()
        self._last: Solution | None = None

    def __repr__(self) -> str:
        """Name the model and the outcome of the last solve."""
        last = "not solved yet" if self._last is None else f"last {self._last!r}"
        return f"<Session of {type(self._model).__name__}: {last}>"

    def solve(self, start: Start | None = None) -> Solution:
        """Solve the model as it now stands, from where the last solve ended or from `start`.

        That is an earlier solution of this or a similar model, or values of some variables of an integer program, by
        name of their block and in the form that `Solution.values` has.
        """
        if start is not None and not isinstance(start, (Solution, Mapping)):
            raise UnsupportedError(
                f"start is {shown(start)}; expected an earlier Solution, or values by name of the variable block"
            )
        program = self._model.linear_program()
        if not len(program.costs):
            raise UnsupportedError(f"{program.name} has no variables; add some before solving it")
        check_numbers(program)
        run = _Run(program, self._options)
        if (first := start or self._last) is not None:
            run.start(first)
        self._last = run.solution()
        return self._last


class _Run:
    """One solve: a HiGHS object and the program that it holds."""

    def __init__(self, program: LinearProgram, options: HighsOptions) -> None:
        import highspy

        self.program, self.options = program, options
        self.integral, self.warm = bool(program.integral.any()), False
        # Signs of a maximization are flipped here, and back in `_answer`.
        self.sign = -1.0 if program.maximize else 1.0
        if "threads" in options.settings():
            # HiGHS refuses to change the number of threads of a scheduler that is running.
            highspy.Highs.resetGlobalScheduler(True)
        self.highs = _silent_highs()
        if self.highs.passModel(_highs_model(program, self.sign)) == highspy.HighsStatus.kError:
            raise UnsupportedError(f"HiGHS refuses {program.name}; look at its log, see HighsOptions(log=True)")

    def start(self, start: Start) -> None:
        """Pass a basis or values to HiGHS."""
        program, self.warm = self.program, True
        if isinstance(start, Solution):
            evidence = start.evidence
            if evidence.basis is not None and not self.integral:
                self.highs.setBasis(_highs_basis(*evidence.basis.moved(evidence.program, program)))
            elif self.integral and start.status.primal is PrimalStatus.FEASIBLE:
                self.start({name: start.values[name] for name in start.values if name in program.variables})
            return
        if not self.integral:
            raise UnsupportedError(
                f"{program.name} has no whole variables and starts from a basis, not from values; give a Solution"
            )
        columns, numbers = [np.empty(0, dtype=np.int32)], [np.empty(0)]
        for name, values in start.items():
            if name not in program.variables:
                names = ", ".join(program.variables)
                raise UnsupportedError(
                    f"the start names variable {name!r}, which {program.name} has not; it has {names}"
                )
            block = program.variables[name]
            columns.append(block.positions.ravel().astype(np.int32))
            numbers.append(np.ravel(block.to_array(values)))
        self.highs.setSolution(sum(map(len, columns)), np.concatenate(columns), np.concatenate(numbers))

    def solution(self) -> Solution:
        """Run HiGHS and read the solution."""
        settings = self.options.settings()
        if self.integral:
            # HiGHS 1.10 would solve the relaxation by any other.
            settings["solver"] = "choose"
        elif empty_conflicts(self.program).any():
            # Interior point may not end on these.
            settings["solver"] = "simplex"
        for name, value in settings.items():
            self.highs.setOptionValue(name, value)
        termination = self._run()
        if termination is Termination.UNKNOWN and self.warm:
            # The warm start may be at fault: solve from scratch.
            self.highs.clearSolver()
            termination = self._run()
        if self.integral:
            if termination is Termination.INFEASIBLE_OR_UNBOUNDED:
                termination = self._run_by_simplex()
            return self._answer(termination, None)
        return self._answer(*self._proved(termination))

    def _proved(self, termination: Termination) -> tuple[Termination, FloatArray | None]:
        """Accept infeasible and unbounded only with a proving ray; otherwise solve again by simplex."""
        if termination not in WITHOUT_OPTIMUM or crossed(self.program):
            return termination, None
        ray = proof(self.program, self.highs, termination, by_simplex=False)
        if ray is None:
            termination = self._run_by_simplex()
            if termination not in WITHOUT_OPTIMUM:
                return termination, None
            ray = proof(self.program, self.highs, termination, by_simplex=True)
        return (Termination.UNKNOWN if ray is None else termination), ray

    def _run_by_simplex(self) -> Termination:
        """Run again by simplex without presolve, which may err, be undecided, and yields no ray."""
        self.highs.clearSolver()
        self.highs.setOptionValue("presolve", "off")
        self.highs.setOptionValue("solver", "simplex")
        return self._run()

    def _run(self) -> Termination:
        Watch(self.highs, self.options.progress, self.sign, integral=self.integral).run()
        return self._claimed()

    def _claimed(self) -> Termination:
        """Return the termination that HiGHS claims."""
        return TERMINATIONS.get(self.highs.getModelStatus().name, Termination.UNKNOWN)

    def _answer(self, termination: Termination, ray: FloatArray | None) -> Solution:
        info, status, program = self.highs.getInfo(), self.highs.getSolution(), self.program
        kinds = (PrimalStatus.NONE, PrimalStatus.INFEASIBLE, PrimalStatus.FEASIBLE)
        dual_kinds = (DualStatus.NONE, DualStatus.INFEASIBLE, DualStatus.FEASIBLE)
        primal = kinds[info.primal_solution_status]
        dual = dual_kinds[info.dual_solution_status] if status.dual_valid else DualStatus.NONE
        if {termination, self._claimed()} & set(WITHOUT_OPTIMUM):
            # The values are then those of the last iterate or of the ray.
            primal, dual = PrimalStatus.NONE, DualStatus.NONE
        values = np.array(status.col_value, dtype=np.float64)
        # Adding 0 turns -0.0 into 0.0.
        duals, reduced = (
            self.sign * np.array(side, dtype=np.float64) + 0.0 for side in (status.row_dual, status.col_dual)
        )
        basis = self.highs.getBasis()
        bound = info.mip_dual_bound if self.integral else info.objective_function_value
        return Solution(
            Status(termination, primal, dual),
            message(program, self.highs, self.options.time_limit, termination, ray),
            Evidence(program, values, duals, reduced, Basis(basis) if basis.valid and not self.integral else None),
            self.sign * info.objective_function_value + 0.0,
            self.sign * bound + 0.0,
        )


def _silent_highs() -> Any:
    """Make a HiGHS object that prints nothing: from 1.16 on, its first callback logs a header unless it is silent."""
    import highspy

    base: Any = highspy.Highs

    def silently(highs: Any) -> None:
        highs.setOptionValue("output_flag", False)
        base.enableCallbacks(highs)

    return type("SilentHighs", (base,), {"enableCallbacks": silently})()


def _highs_basis(columns: IntArray, rows: IntArray) -> Any:
    """Convert states of columns and rows, coded as in `collopt.solvers.lp.program`, to a HiGHS basis."""
    import highspy

    states = [highspy.HighsBasisStatus(number) for number in range(5)]
    basis = highspy.HighsBasis()
    basis.col_status, basis.row_status = [states[at] for at in columns], [states[at] for at in rows]
    # Added or removed blocks can leave too many or too few basic: HiGHS repairs an alien basis.
    basis.valid = basis.alien = True
    return basis


def _highs_model(program: LinearProgram, sign: float) -> Any:
    """Convert a program to a HiGHS model, with costs and offset multiplied by `sign`."""
    import highspy

    model, types = highspy.HighsLp(), highspy.HighsVarType
    model.num_row_, model.num_col_ = program.matrix.shape
    model.col_cost_, model.offset_ = sign * program.costs, sign * program.offset
    model.col_lower_, model.col_upper_ = program.column_bounds
    model.row_lower_, model.row_upper_ = program.row_bounds
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = program.matrix.indptr
    model.a_matrix_.index_ = program.matrix.indices
    model.a_matrix_.value_ = program.matrix.data
    if program.integral.any():
        model.integrality_ = [types.kInteger if integral else types.kContinuous for integral in program.integral]
    return model
