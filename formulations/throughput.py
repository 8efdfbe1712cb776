"""The rate of allgather, broadcast, reduce-scatter and reduce as a linear program.

Every rank roots out-trees that carry its shard; `rate` is what flows down them per unit of weight.  Trees at that rate
exist if and only if every rank can receive all shards at that rate on its own, so each rank gets a flow as witness.

==================  ====================================================  ==================================
name                meaning                                               equation
==================  ====================================================  ==================================
variables
``rate``            GB/s that each root spreads per unit of its weight    x
``share``           bandwidth of a link that the collective uses          c(u, v)
``flow``            witness of rank t: how all shards reach t             f(u, v) of F(s, t)
constraints
``link_bandwidth``  a link's share fits the link                          c(u, v) <= b(u, v)
``flow_in_share``   no witness uses more of a link than its share         f(u, v) <= c(u, v)
``flow_balance``    a node passes on at most what it receives and roots   capacity w(v) x of the edge (s, v)
``flow_arrival``    a rank receives all shards                            F(s, t) >= x times the sum of w
==================  ====================================================  ==================================

With all weights 1 these are the flow conditions of ForestColl, Theorem 1 in appendix E.1; splitting them into shares
and flows is as in LP (5) of its appendix G.  Unequal shards change the capacities of the source's edges (section 5.7);
a weight of 1 for the root and 0 for the others makes it broadcast (pipeline paper, appendix A, equation (5)).
Reduce-scatter and reduce are the same with all communication reversed (ForestColl, section 5.7): every flow then starts
at its rank and ends at the roots.

The rate is an upper bound on any network.  Trees reach it where no switch takes in more, or less, than it gives out;
that is a matter of shares where a further constraint narrows one (the warning of ForestColl, appendix G).

Pyomo, because it is read and extended.

Examples
--------
A ring of 4 whose uplink from ``gpu0`` must stay half free:

>>> from collopt.solvers.highs import solve
>>> from collopt.topologies import ring
>>> model = build(ring(4, bandwidth=30))
>>> round(solve(model).objective, 6)
20.0
>>> model.constrain("quiet_uplink", model.variables.share["gpu0", "gpu1"] <= 15)
>>> round(solve(model).objective, 6)
15.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedError
from ..schedules.forest import Direction
from ..topologies import Topology
from ..topologies.validation import shown

__all__ = ["CompiledProgram", "Component", "PyomoModel", "ThroughputModel", "Variables", "build"]

FloatArray = npt.NDArray[np.float64]
Bounds = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class PyomoModel:
    """A linear or integer program in Pyomo, open to more constraints and to other objectives.

    Attributes
    ----------
    program : ConcreteModel
        For all that Pyomo can do; what changes in it counts from the next solve on.
    """

    program: Any

    def constrain(self, name: str, expression: Any) -> None:
        """Add a constraint.

        Parameters
        ----------
        name : str
            Under which its price will be found; new in this model.
        expression : relational expression
            Linear in this model's variables, with ``<=``, ``>=`` or ``==``.

        Raises
        ------
        UnsupportedError
            If the name is taken or no identifier, or the expression is not of that kind.
        """
        import pyomo.environ as pyo
        from pyomo.core.expr.relational_expr import EqualityExpression, InequalityExpression, RangedExpression

        if not isinstance(name, str) or not name.isidentifier():
            raise UnsupportedError(f"the name of a constraint is {shown(name)}; expected a name such as 'quiet_uplink'")
        if hasattr(self.program, name):
            raise UnsupportedError(
                f"the name {name!r} is taken in {self.program.name}; choose another for the constraint"
            )
        what = f"constraint {name!r}"
        if not isinstance(expression, (EqualityExpression, InequalityExpression, RangedExpression)):
            raise UnsupportedError(
                f"{what} is {shown(expression)}; expected an expression with <=, >= or == on variables"
            )
        self._check_linear(what, expression, expression.args)
        try:
            self.program.add_component(name, pyo.Constraint(expr=expression))
        except ValueError as error:
            self.program.del_component(name)
            raise UnsupportedError(f"{what} is {shown(str(expression))}; expected <=, >= or ==, not strict") from error

    def maximize(self, expression: Any) -> None:
        """Replace the objective by the greatest value of a linear expression; `UnsupportedError` if it is none."""
        self._replace_objective(expression, "maximize")

    def minimize(self, expression: Any) -> None:
        """Replace the objective by the least value of a linear expression; `UnsupportedError` if it is none."""
        self._replace_objective(expression, "minimize")

    def linear_program(self) -> CompiledProgram:
        """Return the program as it stands, as the arrays that `collopt.solvers.highs.solve` reads."""
        return _compiled(self.program)

    def _replace_objective(self, expression: Any, sense: str) -> None:
        import pyomo.environ as pyo

        self._check_linear("the objective", expression, (expression,))
        self.program.del_component("objective")
        self.program.objective = pyo.Objective(expr=expression, sense=getattr(pyo, sense))

    def _check_linear(self, what: str, expression: Any, parts: Sequence[Any]) -> None:
        from pyomo.core.expr.numvalue import native_numeric_types, polynomial_degree
        from pyomo.core.expr.visitor import identify_variables

        if any(type(part) not in native_numeric_types and not hasattr(part, "polynomial_degree") for part in parts):
            raise UnsupportedError(f"{what} is {shown(expression)}; expected an expression of this model's variables")
        used = [] if type(expression) in native_numeric_types else list(identify_variables(expression))
        if not used:
            raise UnsupportedError(f"{what} has no variable; expected some of this model's")
        if strangers := [variable.name for variable in used if variable.model() is not self.program]:
            raise UnsupportedError(
                f"{what} has variable {strangers[0]!r} of another model; use model.variables of this one"
            )
        if any(polynomial_degree(part) not in (0, 1) for part in parts):
            raise UnsupportedError(f"{what} is not linear; state it with products of numbers and variables only")


class Component(NamedTuple):
    """The columns or rows of one Pyomo component.

    Attributes
    ----------
    positions : ndarray of int64
        One per index; without dimensions if the component has no index.
    keys : tuple
        The indices, in that order.
    names : tuple of str
        As Pyomo writes them.
    """

    positions: npt.NDArray[np.int64]
    keys: tuple[Any, ...]
    names: tuple[str, ...]

    def arrange(self, values: FloatArray) -> float | dict[Any, float]:
        """Return one number, or one per index."""
        if self.positions.ndim == 0:
            return float(values)
        return dict(zip(self.keys, map(float, values), strict=True))

    def label(self, place: int) -> str:
        """Name one entry."""
        return self.names[place]


class CompiledProgram(NamedTuple):
    """A Pyomo program as arrays: a `collopt.solvers.highs.LinearProgram`."""

    name: str
    maximize: bool
    costs: FloatArray
    offset: float
    matrix: Any
    row_bounds: Bounds
    column_bounds: Bounds
    whole: npt.NDArray[np.bool_]
    variables: Mapping[str, Component]
    constraints: Mapping[str, Component]


@dataclass(frozen=True)
class Variables:
    """Handles of the variables, to index when extending the model.

    Attributes
    ----------
    rate : Var
        GB/s per unit of weight: x.
    share : Var
        ``[tail, head]``: GB/s of a link that the collective may use.
    flow : Var
        ``[rank, tail, head]``: the witness of a rank, by names of nodes.
    """

    rate: Any
    share: Any
    flow: Any


@dataclass(frozen=True, eq=False)
class ThroughputModel(PyomoModel):
    """A throughput program.

    Attributes
    ----------
    program : ConcreteModel
        ``program.bandwidth[tail, head]`` can be changed between two solves.
    topology : Topology
        Whose links carry the data.
    weights : tuple of Fraction
        Sizes of the shards in rank order; the algorithm bandwidth is their sum times the rate.
    direction : {"broadcast", "reduce"}
        Whether data runs from roots to ranks or from ranks to roots.
    variables : Variables
        To index when extending the model.
    """

    topology: Topology
    weights: tuple[Fraction, ...]
    direction: Direction
    variables: Variables


def build(
    topology: Topology, *, weights: Sequence[object] | None = None, direction: Direction = "broadcast"
) -> ThroughputModel:
    """State the rate of a collective on a topology.

    Parameters
    ----------
    topology : Topology
        Whose links carry the data.
    weights : sequence of number, optional
        Sizes of the shards in rank order, not negative, not all zero; 1 each by default.  A single 1 is broadcast (or
        reduce) with that root.
    direction : {"broadcast", "reduce"}
        Whether data runs from roots to ranks or from ranks to roots, as in `collopt.schedules.Forest`.

    Returns
    -------
    ThroughputModel
        Its objective is the rate.

    Raises
    ------
    UnsupportedError
        If `weights` or `direction` are not of their form.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> sorted(component.name for component in build(dgx_a100()).program.component_objects())[:4]
    ['bandwidth', 'flow', 'flow_arrival', 'flow_balance']
    """
    import pyomo.environ as pyo

    shards = _checked_weights(topology, weights)
    if direction not in ("broadcast", "reduce"):
        raise UnsupportedError(f"direction is {shown(direction)}; expected 'broadcast' or 'reduce'")
    program = pyo.ConcreteModel(name=f"throughput of {topology.name}")
    model = ThroughputModel(program, topology, shards, direction, _add_variables(program, topology))
    _link_bandwidth(model)
    _flow_in_share(model)
    _flow_balance(model)
    _flow_arrival(model)
    model.maximize(model.variables.rate)
    return model


def _add_variables(program: Any, topology: Topology) -> Variables:
    import pyomo.environ as pyo

    links = [(link.tail, link.head) for link in topology.links]
    bandwidths = {(link.tail, link.head): float(link.bandwidth) for link in topology.links}
    program.bandwidth = pyo.Param(links, initialize=bandwidths, mutable=True, within=pyo.NonNegativeReals)
    program.rate = pyo.Var(domain=pyo.NonNegativeReals)
    program.share = pyo.Var(links, domain=pyo.NonNegativeReals)
    program.flow = pyo.Var(topology.compute_nodes, links, domain=pyo.NonNegativeReals)
    return Variables(program.rate, program.share, program.flow)


def _link_bandwidth(model: ThroughputModel) -> None:
    """c(u, v) <= b(u, v) for each link."""
    import pyomo.environ as pyo

    share, bandwidth = model.variables.share, model.program.bandwidth
    model.program.link_bandwidth = pyo.Constraint(
        [(link.tail, link.head) for link in model.topology.links],
        rule=lambda _, tail, head: share[tail, head] <= bandwidth[tail, head],
    )


def _flow_in_share(model: ThroughputModel) -> None:
    """f(t; u, v) <= c(u, v) for each rank t and link."""
    import pyomo.environ as pyo

    share, flow = model.variables.share, model.variables.flow
    model.program.flow_in_share = pyo.Constraint(
        model.topology.compute_nodes,
        [(link.tail, link.head) for link in model.topology.links],
        rule=lambda _, rank, tail, head: flow[rank, tail, head] <= share[tail, head],
    )


def _flow_balance(model: ThroughputModel) -> None:
    """Out of v - into v <= w(v) x for each rank t and node v other than t; in the direction of the data."""
    import pyomo.environ as pyo

    topology, rate = model.topology, model.variables.rate
    weight = dict(zip(topology.compute_nodes, map(float, model.weights), strict=True))
    pairs = [(rank, node) for rank in topology.compute_nodes for node in topology.nodes if node != rank]
    model.program.flow_balance = pyo.Constraint(
        pairs, rule=lambda _, rank, node: -_net_arrival(model, rank, node) <= weight.get(node, 0.0) * rate
    )


def _flow_arrival(model: ThroughputModel) -> None:
    """Into t - out of t >= (sum of w - w(t)) x for each rank t: with its own shard that is everything."""
    import pyomo.environ as pyo

    ranks, rate = model.topology.compute_nodes, model.variables.rate
    others = {rank: float(sum(model.weights) - own) for rank, own in zip(ranks, model.weights, strict=True)}
    model.program.flow_arrival = pyo.Constraint(
        ranks, rule=lambda _, rank: _net_arrival(model, rank, rank) >= others[rank] * rate
    )


def _net_arrival(model: ThroughputModel, rank: str, node: str) -> Any:
    """Into `node` minus out of it, in the witness of `rank`; reversed where data runs from ranks to roots."""
    import pyomo.environ as pyo

    topology, flow = model.topology, model.variables.flow
    arriving = pyo.quicksum(flow[rank, link.tail, link.head] for link in topology.in_links(node))
    leaving = pyo.quicksum(flow[rank, link.tail, link.head] for link in topology.out_links(node))
    return arriving - leaving if model.direction == "broadcast" else leaving - arriving


def _checked_weights(topology: Topology, weights: Sequence[object] | None) -> tuple[Fraction, ...]:
    if weights is None:
        return (Fraction(1),) * topology.num_ranks
    exact = tuple(_as_weight(rank, value) for rank, value in enumerate(weights))
    if len(exact) != topology.num_ranks:
        raise UnsupportedError(f"weights has {len(exact)} entries; expected one per rank, {topology.num_ranks}")
    if not any(exact):
        raise UnsupportedError("all weights are 0; expected some rank to have data")
    return exact


def _as_weight(rank: int, value: object) -> Fraction:
    try:
        if isinstance(value, (int, float, str, Decimal, Rational)) and not isinstance(value, bool):
            # A float means what it is written as.
            exact = Fraction(repr(float(value)) if isinstance(value, float) else value)
            if exact >= 0:
                return exact
    except (ValueError, OverflowError, ZeroDivisionError):
        pass
    raise UnsupportedError(f"weight {shown(value)} of rank {rank} is not usable; expected a number of at least 0")


def _compiled(program: Any) -> CompiledProgram:
    """Turn a Pyomo program into arrays, so that neither side of the wall needs to know the other's packages."""
    import pyomo.environ as pyo
    from pyomo.common.errors import InfeasibleConstraintException, InvalidConstraintError
    from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

    try:
        form = LinearStandardFormCompiler().write(program, mixed_form=True, set_sense=None)
    except (InfeasibleConstraintException, InvalidConstraintError, ValueError) as error:
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
    return CompiledProgram(
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
    values = [data.value if data.fixed else getattr(data, side) for data in variables]
    return np.array([absent if value is None else value for value in values], dtype=np.float64)
