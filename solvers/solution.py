"""What a solve gives back: how it ended, and the numbers that it found, reachable only if there are any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from ..errors import NoAnswerError
from .linear_program import FloatArray, Labels

__all__ = ["DualStatus", "Named", "PrimalStatus", "Solution", "Status", "Termination"]


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
