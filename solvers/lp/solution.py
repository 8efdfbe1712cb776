"""Solutions: status, values and dual values of a solve, available only where they are meaningful."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from ...errors import NoAnswerError
from .program import Evidence, Named

if TYPE_CHECKING:
    import pandas as pd

    from .exact_optimum import ExactAnswer, Interval


class Termination(Enum):
    """Why the solver stopped."""

    OPTIMAL = "optimal"
    """An optimal solution was found, within primal and dual tolerances.

    With numbers of very different magnitudes, the model may be infeasible or unbounded by less than the tolerances;
    `Solution.exact` and `Solution.interval` have no tolerances.
    """
    INFEASIBLE = "infeasible"
    """No point meets all constraints; for a linear program a ray is checked in floats."""
    UNBOUNDED = "unbounded"
    """The objective improves without end; checked likewise."""
    INFEASIBLE_OR_UNBOUNDED = "infeasible or unbounded"
    """There is no optimum, and the solver did not determine the reason."""
    TIME_LIMIT = "time limit"
    """`HighsOptions.time_limit` ran out."""
    OTHER_LIMIT = "other limit"
    """Iterations or memory."""
    INTERRUPTED = "interrupted"
    """The callback in `HighsOptions.progress` stopped the solve."""
    UNKNOWN = "unknown"
    """The solver gave up, usually for numerical reasons."""


WITHOUT_OPTIMUM = (Termination.INFEASIBLE, Termination.UNBOUNDED, Termination.INFEASIBLE_OR_UNBOUNDED)


class PrimalStatus(Enum):
    """Status of the values of the variables."""

    NONE = "none"
    """There are none, or the model is infeasible or unbounded and they are meaningless."""
    INFEASIBLE = "infeasible"
    """The solver stopped at a point that breaks a constraint."""
    FEASIBLE = "feasible"
    """They meet every constraint within tolerances."""


class DualStatus(Enum):
    """Status of the dual values of the constraints."""

    NONE = "none"
    """There are none, as for every integer program and every model that is infeasible or unbounded."""
    INFEASIBLE = "infeasible"
    """The solver stopped at dual values that prove no bound."""
    FEASIBLE = "feasible"
    """They prove a bound on the objective, within tolerances."""


class Status(NamedTuple):
    """How a solve ended: its `termination`, and what its `primal` and `dual` values are."""

    termination: Termination
    primal: PrimalStatus
    dual: DualStatus


@dataclass(frozen=True, eq=False)
class Solution:
    """Status of a solve, and the solution if there is one.

    Attributes
    ----------
    status : Status
    message : str
        One sentence that names the model and, without an answer, the constraints or inputs at fault.
    evidence : Evidence
        Arrays and basis from which exact results are proved.
    """

    status: Status
    message: str
    evidence: Evidence
    _objective: float
    _bound: float

    def __repr__(self) -> str:
        """Show the termination, and the objective if there is one."""
        figures = ""
        if self.status.termination is Termination.OPTIMAL:
            figures = f", objective {self._objective:.6g}"
        elif self.evidence.program.integral.any() and self.status.primal is PrimalStatus.FEASIBLE:
            figures = f", best so far {self._objective:.6g}, bound {self._bound:.6g}"
        return f"<Solution {self.evidence.program.name}: {self.status.termination.value}{figures}>"

    def to_frame(self) -> pd.DataFrame:
        """One row per block: ``kind``, ``name``, ``entries``, and ``nonzero``, ``smallest`` and ``largest`` of these.

        The latter are about values of variables and dual values of constraints, and NaN where there are none.
        """
        import numpy as np
        import pandas as pd

        has_values, has_duals = self.status.primal is PrimalStatus.FEASIBLE, self.status.dual is DualStatus.FEASIBLE
        program, none = self.evidence.program, np.full(0, np.nan)
        sides = (
            ("variable", program.variables, self.evidence.values if has_values else none),
            ("constraint", program.constraints, self.evidence.duals if has_duals else none),
        )
        rows = []
        for kind, blocks, numbers in sides:
            for name, block in blocks.items():
                row = {"kind": kind, "name": name, "entries": block.positions.size}
                if len(numbers) and block.positions.size:
                    part = numbers[block.positions]
                    row |= {"nonzero": np.count_nonzero(part), "smallest": part.min(), "largest": part.max()}
                rows.append(row)
        return pd.DataFrame(rows, columns=["kind", "name", "entries", "nonzero", "smallest", "largest"])

    def _repr_html_(self) -> str:
        """What notebooks show: the status, and `to_frame`."""
        return f"<p><code>{escape(repr(self)[1:-1])}</code></p>{self.to_frame().to_html(index=False, na_rep='')}"

    @property
    def objective(self) -> float:
        """The optimal value; `NoAnswerError` unless the status is optimal."""
        if self.status.termination is not Termination.OPTIMAL:
            raise NoAnswerError(f"there is no objective value: {self.message}")
        return self._objective

    @property
    def bound(self) -> float:
        """Dual bound that HiGHS computed in floats, for integer programs that ran out of time."""
        if self.status.termination is Termination.OPTIMAL or self.evidence.program.integral.any():
            return self._bound
        raise NoAnswerError(f"there is no bound: {self.message}")

    @property
    def values(self) -> Named:
        """Values by name of the variable block; `NoAnswerError` unless the primal status is feasible."""
        if self.status.primal is not PrimalStatus.FEASIBLE:
            raise NoAnswerError(f"there are no values of variables: {self.message}")
        return Named("variable", self.evidence.program.variables, self.evidence.values)

    @property
    def duals(self) -> Named:
        """Dual values by name of the constraint block; `NoAnswerError` unless the dual status is feasible.

        A dual value is the change of the objective, in the sense of the model, per unit added to the bound.
        """
        self._check_dual("duals")
        return Named("constraint", self.evidence.program.constraints, self.evidence.duals)

    @property
    def reduced_costs(self) -> Named:
        """Reduced costs by name of the variable block; as `duals`."""
        self._check_dual("reduced costs")
        return Named("variable", self.evidence.program.variables, self.evidence.reduced_costs)

    @cached_property
    def exact(self) -> ExactAnswer:
        """The exact optimum in fractions, with dual values that prove it; computed on first use.

        A coefficient means the simplest fraction that rounds to its float, see `collopt.solvers.lp.rationals`.
        `NoAnswerError` unless the solve ended in a basis that is optimal without tolerances; `interval` encloses the
        optimum otherwise.
        """
        from .exact_optimum import exact_answer

        if self.status.termination is not Termination.OPTIMAL:
            raise NoAnswerError(f"there is no exact answer: {self.message}")
        return exact_answer(self.evidence.program, self.evidence.basis)

    @cached_property
    def interval(self) -> Interval:
        """Certified interval around the optimum, in fractions; a single point if there is an exact answer.

        One end is the value of an exact feasible point, the other the bound of exact dual values; an unproved end is
        None.  Branch and bound proves nothing exactly: for an integer program only the former end is known, and `bound`
        is the float counterpart of the latter.  `NoAnswerError` if the model is infeasible or unbounded.
        """
        from .exact_optimum import Interval, certified_interval

        if self.status.termination in WITHOUT_OPTIMUM:
            raise NoAnswerError(f"there is no interval: {self.message}")
        try:
            return Interval(self.exact.objective, self.exact.objective)
        except NoAnswerError:
            return certified_interval(self.evidence)

    def _check_dual(self, what: str) -> None:
        if self.status.dual is not DualStatus.FEASIBLE:
            raise NoAnswerError(f"there are no {what}: {self.message}")
