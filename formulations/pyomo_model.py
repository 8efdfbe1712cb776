"""Base class of Pyomo models, and their compilation to arrays for a solver."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedError
from ..support.arrays import FloatArray
from ..support.linear_program import LinearProgram
from ..support.validation import shown

Bounds = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False, repr=False)
class PyomoModel:
    """A linear or integer program in Pyomo, to which constraints can be added and whose objective can be replaced.

    Attributes
    ----------
    program : ConcreteModel
        For all that Pyomo can do; what changes in it counts from the next solve on.
    """

    program: Any

    def __post_init__(self) -> None:
        """Let expressions hold fractions, as all numbers of collopt are."""
        _register_fractions()

    def __repr__(self) -> str:
        """One line in angle brackets, with the sizes of variables and constraints."""
        import pyomo.environ as pyo

        parts = [
            (kind, ((part.local_name, len(part)) for part in self.program.component_objects(block)))
            for kind, block in (("variables", pyo.Var), ("constraints", pyo.Constraint))
        ]
        return model_text(self, self.program.name, parts)

    @property
    def variables(self) -> Any:
        """What has the variables as attributes, by their names in the formulation's table, to index in extensions."""
        return self.program

    def constrain(self, name: str, expressions: Any, *, rule: Callable[..., Any] | None = None) -> None:
        """Add constraints under a new name: linear in this model's variables, with ``<=``, ``>=`` or ``==``.

        Parameters
        ----------
        name : str
            Such as ``"quiet_uplink"``, by which solutions have its dual values.
        expressions : expression, mapping or iterable
            One constraint; several by their indices; or in a row, which are numbered from 0.
        rule : callable, optional
            Makes the expression of each index; `expressions` then are the indices.
        """
        import pyomo.environ as pyo
        from pyomo.core.base.indexed_component import normalize_index

        if not isinstance(name, str) or not name.isidentifier() or hasattr(self.program, name):
            raise UnsupportedError(
                f"the name of a constraint is {shown(name)}; expected a name such as 'quiet_uplink', and none that "
                f"{self.program.name} has"
            )
        if rule is not None:
            if not callable(rule) or not isinstance(expressions, Iterable):
                raise UnsupportedError(
                    f"constraint {name!r} has the indices {shown(expressions)} and the rule {shown(rule)}; expected "
                    "an iterable of indices, and a function"
                )
            expressions = {key: rule(*key) if isinstance(key, tuple) else rule(key) for key in expressions}
        elif isinstance(expressions, Iterable) and not isinstance(expressions, str | Mapping):
            expressions = dict(enumerate(expressions))
        if not isinstance(expressions, Mapping):
            self._check_relation(f"constraint {name!r}", expressions)
            self.program.add_component(name, pyo.Constraint(expr=expressions))
            return
        if not expressions:
            raise UnsupportedError(f"constraint {name!r} has no expressions; expected at least one")
        for key, expression in expressions.items():
            self._check_relation(f"constraint {name!r} of {shown(key)}", expression)
        # Pyomo flattens tuples in tuples, and takes one of a single part for that part.
        expressions = {normalize_index(key): expression for key, expression in expressions.items()}
        if len(lengths := {len(key) if isinstance(key, tuple) else 1 for key in expressions}) > 1:
            raise UnsupportedError(
                f"constraint {name!r} has indices of {min(lengths)} and of {max(lengths)} parts; expected as many in "
                "each"
            )
        self.program.add_component(
            name, pyo.Constraint(list(expressions), rule=lambda _, *key: expressions[key if len(key) > 1 else key[0]])
        )

    def _check_relation(self, what: str, expression: Any) -> None:
        from pyomo.core.expr.relational_expr import EqualityExpression, InequalityExpression, RangedExpression

        if not isinstance(expression, (EqualityExpression, InequalityExpression, RangedExpression)):
            raise UnsupportedError(f"{what} is {shown(expression)}; expected an expression with <=, >= or ==")
        self._check_linear(what, expression, expression.args)
        constant = all(_constant(expression.args[0] - part) for part in expression.args[1:])
        if constant or np.any(getattr(expression, "strict", False)):
            raise UnsupportedError(
                f"{what} is {shown(str(expression))}; expected <=, >= or ==, not strict, and variables that do not "
                "cancel out"
            )

    def add_constraints(self, name: str, *index: Any, rule: Callable[..., Any]) -> None:
        """Add a block of constraints: `rule` takes an index and returns its relational expression."""
        import pyomo.environ as pyo

        self.program.add_component(name, pyo.Constraint(*index, rule=lambda _, *key: rule(*key)))

    def maximize(self, expression: Any) -> None:
        """Replace the objective by the greatest value of a linear expression."""
        self._replace_objective(expression, "maximize")

    def minimize(self, expression: Any) -> None:
        """Replace the objective by the least value of a linear expression."""
        self._replace_objective(expression, "minimize")

    def linear_program(self) -> LinearProgram:
        """Return the program as it stands, as arrays; `UnsupportedError` if it is a part of another model."""
        home = self.program.model()
        if home is not self.program:
            raise UnsupportedError(
                f"{self.program.name!r} is a part of {home.name}; solve that model, or build this anew"
            )
        with _exact_parameters(self.program):
            return _compiled(self.program)

    def _replace_objective(self, expression: Any, sense: str) -> None:
        import pyomo.environ as pyo
        from pyomo.core.expr.relational_expr import RelationalExpression

        if isinstance(expression, RelationalExpression):
            raise UnsupportedError(f"the objective is {shown(str(expression))}; expected no comparison")
        self._check_linear("the objective", expression, (expression,))
        self.program.del_component("objective")
        self.program.objective = pyo.Objective(expr=expression, sense=getattr(pyo, sense))

    def _check_linear(self, what: str, expression: Any, parts: Sequence[Any]) -> None:
        from pyomo.core.expr.numvalue import native_numeric_types, polynomial_degree
        from pyomo.core.expr.visitor import identify_variables

        if any(type(part) not in native_numeric_types and not hasattr(part, "polynomial_degree") for part in parts):
            raise UnsupportedError(f"{what} is {shown(expression)}; expected an expression of this model's variables")
        used = [] if type(expression) in native_numeric_types else list(identify_variables(expression))
        home = self.program.model()
        if not used:
            raise UnsupportedError(f"{what} has no variable; expected some of this model's")
        if unknown := [variable.name for variable in used if variable.model() is not home]:
            raise UnsupportedError(
                f"{what} has variable {unknown[0]!r} of another model; use model.variables of this one"
            )
        if any(polynomial_degree(part) not in (0, 1) for part in parts):
            raise UnsupportedError(f"{what} is not linear; state it with products of numbers and variables only")


def model_text(model: object, name: str, parts: Iterable[tuple[str, Iterable[tuple[str, int]]]]) -> str:
    """Return one line in angle brackets: the blocks of each kind, and how many entries those of several have."""
    listed = (
        f"{kind} " + (", ".join(block if count == 1 else f"{block} ({count})" for block, count in blocks) or "none")
        for kind, blocks in parts
    )
    return f"<{type(model).__name__} {name}: {'; '.join(listed)}>"


class Component(NamedTuple):
    """The columns or rows of one Pyomo component."""

    positions: npt.NDArray[np.int64]  # one per index; without dimensions if the component has no index
    keys: tuple[Any, ...]  # the indices, in that order
    names: tuple[str, ...]  # as Pyomo writes them

    def arrange(self, values: npt.NDArray[Any]) -> Any:
        """Return one number, or one per index."""
        if self.positions.ndim == 0:
            return np.asarray(values).item()
        return dict(zip(self.keys, values.tolist(), strict=True))

    def to_array(self, values: Any) -> FloatArray:
        """Undo `arrange`, where every index must have its number."""
        if self.positions.ndim == 0:
            return np.asarray(values, dtype=np.float64).reshape(())
        try:
            return np.array([values[key] for key in self.keys], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise UnsupportedError(f"a start value of {self.names[0]} and its like is not usable: {error!r}") from error

    def label(self, place: int) -> str:
        """Name one entry."""
        return self.names[place]


def total(terms: Iterable[Any]) -> Any:
    """Sum the terms of an expression."""
    import pyomo.environ as pyo

    return pyo.quicksum(terms)


def new_program(name: str) -> Any:
    """Return an empty Pyomo model whose parameters may be fractions."""
    import pyomo.environ as pyo

    _register_fractions()
    return pyo.ConcreteModel(name=name)


def _register_fractions() -> None:
    from pyomo.common.numeric_types import RegisterNumericType

    RegisterNumericType(Fraction)


@contextmanager
def _exact_parameters(program: Any) -> Iterator[None]:
    """Read parameters that were set to floats by their shortest decimals, so that products are rounded only once."""
    import pyomo.environ as pyo

    floats = [
        (parameter, parameter.value)
        for parameter in program.component_data_objects(pyo.Param, descend_into=True)
        if isinstance(parameter.value, float) and isfinite(parameter.value)
    ]
    for parameter, value in floats:
        parameter.set_value(Fraction(repr(float(value))))
    try:
        yield
    finally:
        for parameter, value in floats:
            parameter.set_value(value)


def _constant(expression: Any) -> bool:
    """Whether an expression is a number, whatever the values of variables and parameters."""
    from pyomo.core.expr.numvalue import native_numeric_types
    from pyomo.repn.standard_repn import generate_standard_repn

    if type(expression) in native_numeric_types:
        return True
    terms = generate_standard_repn(expression, compute_values=False)
    return not terms.linear_vars and type(terms.constant) in native_numeric_types


def _compiled(program: Any) -> LinearProgram:
    """Compile a Pyomo program to arrays, so that formulations and solvers do not import each other's packages."""
    import pyomo.environ as pyo
    from pyomo.common.errors import InfeasibleConstraintException
    from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

    for data in program.component_data_objects(pyo.Var, descend_into=True):
        if data.fixed and data.value is not None and not isfinite(data.value):
            raise UnsupportedError(f"{program.name} has {data.name!r} fixed at {data.value}; expected a number")
    try:
        form = LinearStandardFormCompiler().write(program, mixed_form=True, set_sense=None)
    except (InfeasibleConstraintException, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UnsupportedError(f"{program.name} cannot be solved: {reason}") from error
    if len(form.objectives) != 1:
        raise UnsupportedError(
            f"{program.name} has {len(form.objectives)} active objectives; expected 1, see maximize()"
        )
    variables, entries = _numbered(program, pyo.Var)
    columns = {id(data): column for column, data in enumerate(entries)}
    constraints, rows = _numbered(program, pyo.Constraint)
    matrix, row_bounds = _rows(form, {id(data): row for row, data in enumerate(rows)}, columns)
    costs = np.zeros(len(columns))
    costs[[columns[id(data)] for data in form.columns]] = form.c.toarray()[0]
    return LinearProgram(
        program.name,
        form.objectives[0].sense == pyo.maximize,
        costs,
        float(form.c_offset[0]),
        matrix,
        row_bounds,
        (_column_bounds(entries, "lb", -np.inf), _column_bounds(entries, "ub", np.inf)),
        np.array([data.is_integer() or data.is_binary() for data in entries], dtype=np.bool_),
        variables,
        constraints,
    )


def _numbered(program: Any, kind: Any) -> tuple[dict[str, Component], list[Any]]:
    """Number all entries of the components of one kind, and list them."""
    components: dict[str, Component] = {}
    entries: list[Any] = []
    for component in program.component_objects(kind, active=True, descend_into=True):
        own = list(component.values())
        positions: npt.NDArray[np.int64] = np.arange(len(entries), len(entries) + len(own), dtype=np.int64)
        if not component.is_indexed():
            positions = positions.reshape(())
        components[component.name] = Component(positions, tuple(component.keys()), tuple(data.name for data in own))
        entries += own
    return components, entries


def _rows(form: Any, rows: Mapping[int, int], columns: Mapping[int, int]) -> tuple[Any, Bounds]:
    """Put the rows and columns of Pyomo's standard form into our order, and a range's two rows into one."""
    from scipy.sparse import coo_array

    lower, upper = np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
    targets = np.array([rows[id(row.constraint)] for row in form.rows], dtype=np.int64)
    for target, row, bound in zip(targets, form.rows, form.rhs, strict=True):
        if row.bound_type <= 0:
            lower[target] = bound
        if row.bound_type >= 0:
            upper[target] = bound
    first = np.zeros(len(targets), dtype=np.bool_)
    first[np.unique(targets, return_index=True)[1]] = True
    places = np.array([columns[id(data)] for data in form.columns], dtype=np.int64)
    entries = form.A.tocoo()
    kept = first[entries.row]
    triplets = (entries.data[kept], (targets[entries.row[kept]], places[entries.col[kept]]))
    return coo_array(triplets, shape=(len(rows), len(columns))).tocsc(), (lower, upper)


def _column_bounds(variables: Sequence[Any], side: str, absent: float) -> FloatArray:
    try:
        values = [data.value if data.fixed else getattr(data, side) for data in variables]
    except ValueError as error:
        raise UnsupportedError(f"a variable has a bound that is no number: {error}") from error
    return np.array([absent if value is None else value for value in values], dtype=np.float64)
