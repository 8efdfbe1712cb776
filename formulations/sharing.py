"""Max-min fair rates of several concurrent collectives on one fabric, as a joint linear program.

Each collective keeps its own formulation as a part of the joint program; the sum of their shares of a link is at most
its bandwidth.

==================  ====================================================  ==================================
name                meaning                                               equation
==================  ====================================================  ==================================
variables
``<part>.<name>``   the variables of each part, under the part's name     as in the part's formulation
``least``           the smallest of the parts' weighted rates             z
constraints
``<part>.<name>``   the constraints of each part                          as in the part's formulation
``link_shared``     all parts together fit each link                      sum of c_part(u, v) <= b(u, v)
``least_rate``      no part is slower than its weight times the least     z <= rate_part / weight_part
``usage_balance``   on request, of each part: switches pass on all        in of c_part = out of c_part
==================  ====================================================  ==================================

The objective is the least weighted rate, the first round of max-min fairness; any other expression can replace it, and
`collopt.formulations.cvxpy_constraints` takes a sum of logarithms (proportional fairness).  Stated in Pyomo.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..errors import TopologyError, UnsupportedError
from ..support.quantities import as_factor
from ..support.validation import shown
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from .allreduce import AllreduceModel
from .pyomo_model import PyomoModel, total
from .throughput import ThroughputModel, add_switch_balance

__all__ = ["SharingModel", "build"]


@dataclass(frozen=True, eq=False, repr=False)
class SharingModel(PyomoModel):
    """The joint program of collectives that share a fabric.

    Attributes
    ----------
    program : ConcreteModel
        ``program.bandwidth[tail, head]`` can be changed between two solves; each part keeps its own limits, too.
    topology : Topology
        Whose links are shared.
    parts : mapping of str to PyomoModel
        The collectives; index their variables to extend the joint model.
    """

    topology: Topology
    parts: Mapping[str, Any]

    def balance_switches(self) -> None:
        """Require of each part that the ingress of every switch equals its egress; see `ThroughputModel`.

        Each part then has shares that are a network of its own to plan on.  Blocks are named ``<part>.usage_balance``.
        """
        for part in self.parts.values():
            add_switch_balance(part, "usage_balance", part.usage)


def build(topology: Topology, parts: Mapping[str, Any], *, weights: Mapping[str, object] | None = None) -> SharingModel:
    """State the joint program of several collectives on one fabric.

    The objective is the least weighted rate.

    Parameters
    ----------
    topology : Topology
        The fabric.
    parts : mapping of str to model
        Models of `collopt.formulations.throughput` and `collopt.formulations.allreduce`, each on this topology or on a
        part of it.  They belong to the joint program from then on.
    weights : mapping of str to number, optional
        What each part's rate counts by in the objective, positive; 1 each by default.  Rates are per unit of weight,
        or for an allreduce of all data.
    """
    import pyomo.environ as pyo

    as_topology(topology)
    if not isinstance(parts, Mapping) or not parts:
        raise UnsupportedError(f"parts is {shown(parts)}; expected a mapping from names to models")
    program = pyo.ConcreteModel(name=f"sharing of {topology.name}")
    for name, part in parts.items():
        _check_part(program, topology, name, part)
    worth = _checked_weights(parts, weights)
    if len({id(part) for part in parts.values()}) < len(parts):
        raise UnsupportedError("two parts are the same model; build one for each")
    program.least = pyo.Var()
    for name, part in parts.items():
        part.program.objective.deactivate()
        program.add_component(name, part.program)
    model = SharingModel(program, topology, dict(parts))
    _link_shared(model)
    _least_rate(model, worth)
    model.maximize(model.variables.least)
    return model


def _link_shared(model: SharingModel) -> None:
    """Sum over parts of c(u, v) <= b(u, v) for each link."""
    import pyomo.environ as pyo

    program, links = model.program, {(link.tail, link.head): link.bandwidth for link in model.topology.links}
    program.bandwidth = pyo.Param(
        list(links), initialize={link: float(bandwidth) for link, bandwidth in links.items()}, mutable=True
    )
    usages = [part.usage for part in model.parts.values()]
    # A link that no part can use has nothing to share.
    used = [link for link in links if any(link in usage for usage in usages)]
    model.add_constraints(
        "link_shared",
        used,
        rule=lambda *link: total(usage[link] for usage in usages if link in usage) <= program.bandwidth[link],
    )


def _least_rate(model: SharingModel, worth: Mapping[str, Fraction]) -> None:
    """Weight times z <= rate, for each part."""
    lowest, parts = model.variables.least, model.parts
    model.add_constraints("least_rate", list(parts), rule=lambda name: float(worth[name]) * lowest <= parts[name].rate)


def _checked_weights(parts: Mapping[str, Any], weights: Mapping[str, object] | None) -> dict[str, Fraction]:
    if weights is None:
        return dict.fromkeys(parts, Fraction(1))
    if not isinstance(weights, Mapping) or set(weights) != set(parts):
        raise UnsupportedError(f"weights is {shown(weights)}; expected one number for each of {', '.join(parts)}")
    worth = {}
    for name, value in weights.items():
        try:
            worth[name] = as_factor(value, "it")
        except TopologyError as error:
            raise UnsupportedError(f"the weight of {name!r} is not usable: {error}") from None
    return worth


def _check_part(program: Any, topology: Topology, name: object, part: Any) -> None:
    names = ("bandwidth", "least", "least_rate", "link_shared", "objective")
    if not isinstance(name, str) or not name.isidentifier() or name in names or hasattr(program, name):
        raise UnsupportedError(
            f"the name of a part is {shown(name)}; expected a name such as 'training', and none that Pyomo models use"
        )
    if type(part) not in (ThroughputModel, AllreduceModel) or part.program.parent_block() is not None:
        raise UnsupportedError(
            f"part {name!r} is a {type(part).__name__}; expected a model of throughput.build or allreduce.build of its "
            "own, in no other program"
        )
    links = {(link.tail, link.head) for link in topology.links}
    if unknown := [link for link in part.usage if link not in links]:
        raise TopologyError(
            f"part {name!r} uses a link from {unknown[0][0]!r} to {unknown[0][1]!r}, which {topology.name} does "
            "not have; build the part on this topology or on a part of it"
        )
