"""Export of the constraints of a model to CVXPY, for convex nonlinear objectives.

Logarithmic utilities, quadratic costs and the like are beyond the linear solver.  The constraints stay those of the
formulation, compiled to arrays as for `collopt.solve`; only the language of the objective changes.
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedError
from ..support.linear_program import Labels
from ..support.validation import shown

__all__ = ["ConvexProgram", "restate"]


@dataclass(frozen=True, eq=False)
class ConvexProgram:
    """The variables and constraints of a model, as CVXPY objects.

    Attributes
    ----------
    variables : mapping of str to Expression, or to a mapping from index to Expression
        Under the names and indices that `collopt.Solution.values` uses; here they are expressions.
    constraints : list of Constraint
        All of the model; more can be appended.
    """

    variables: Mapping[str, Any]
    constraints: list[Any]

    def maximize(self, utility: Any) -> Any:
        """State the problem of the greatest utility, concave in the variables by CVXPY's rules.

        Solve it with its own ``solve()``; then expressions have a ``value``.
        """
        import cvxpy

        return self._problem(cvxpy.Maximize, utility, "concave")

    def minimize(self, cost: Any) -> Any:
        """State the problem of the least convex cost; as `maximize`."""
        import cvxpy

        return self._problem(cvxpy.Minimize, cost, "convex")

    def _problem(self, sense: Any, expression: Any, shape: str) -> Any:
        import cvxpy

        number = isinstance(expression, (int, float, np.number)) and np.isfinite(expression)
        if not number and not isinstance(expression, cvxpy.Expression):
            raise UnsupportedError(
                f"the objective is {shown(expression)}; expected an expression of CVXPY in this model's variables"
            )
        names = {variable.id for constraint in self.constraints for variable in constraint.variables()}
        for entry in self.variables.values():
            parts = entry.values() if isinstance(entry, Mapping) else (entry,)
            names |= {variable.id for part in parts for variable in part.variables()}
        used = [] if number else expression.variables()
        if unknown := [variable.name() for variable in used if variable.id not in names]:
            raise UnsupportedError(
                f"the objective has variable {unknown[0]!r}, which is neither the model's nor in its constraints"
            )
        try:
            objective = sense(expression)
        except ValueError as error:
            raise UnsupportedError(f"the objective is no scalar expression of CVXPY: {error}") from error
        if not objective.is_dcp():
            raise UnsupportedError(
                f"the objective {str(expression)[:60]!r} is not seen to be {shape}; state it by CVXPY's rules (DCP)"
            )
        return cvxpy.Problem(objective, self.constraints)


def restate(model: Any) -> ConvexProgram:
    """State the constraints of a model in CVXPY; its own objective is left behind.

    The model may be any that `collopt.solve` takes, without whole variables.

    Examples
    --------
    The most even use of the links at four fifths of the best rate:

    >>> import cvxpy
    >>> from collopt.formulations import throughput
    >>> from collopt.topologies import ring
    >>> program = restate(throughput.build(ring(4, bandwidth=30)))
    >>> program.constraints.append(program.variables["rate"] >= 16)
    >>> shares = cvxpy.hstack(list(program.variables["share"].values()))
    >>> _ = program.minimize(cvxpy.sum_squares(shares)).solve(solver="CLARABEL")
    >>> shares.value.round(3).tolist()
    [24.0, 24.0, 24.0, 24.0, 24.0, 24.0, 24.0, 24.0]
    """
    import cvxpy

    if not callable(getattr(model, "linear_program", None)):
        raise UnsupportedError(f"cannot restate a {type(model).__name__}; expected a model of collopt.formulations")
    program = model.linear_program()
    if program.integral.any():
        raise UnsupportedError(f"{program.name} has whole variables; only continuous models can be restated")
    columns = cvxpy.Variable(len(program.costs))
    variables = {name: _arranged(labels, columns) for name, labels in program.variables.items()}
    rows = program.matrix @ columns
    return ConvexProgram(variables, _within(rows, program.row_bounds) + _within(columns, program.column_bounds))


def _arranged(labels: Labels, columns: Any) -> Any:
    """Index the columns of one block as its user does."""
    positions = labels.positions
    keys = getattr(labels, "keys", None)
    if positions.ndim == 0:
        return columns[int(positions)]
    if keys is None:
        return columns[positions]
    return {key: columns[int(place)] for key, place in zip(keys, positions, strict=True)}


def _within(expression: Any, bounds: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]) -> list[Any]:
    """``lower <= expression <= upper`` where there are bounds; an equation where both are the same."""
    lower, upper = bounds
    equal = np.flatnonzero(lower == upper)
    below = np.flatnonzero(np.isfinite(lower) & (lower != upper))
    above = np.flatnonzero(np.isfinite(upper) & (lower != upper))
    sides = ((equal, operator.eq, lower), (below, operator.ge, lower), (above, operator.le, upper))
    return [relation(expression[places], bound[places]) for places, relation, bound in sides if len(places)]
