"""Guaranteed rate of a bandwidth reservation under any one of several failures, as a linear program.

Bandwidth is reserved once; after any failure, trees at the guaranteed rate must fit the rest of the reservation.  Each
failure is a scenario: the throughput model of the network without the failed links.

==================  ====================================================  ==================================
name                meaning                                               equation
==================  ====================================================  ==================================
variables
``rate``            GB/s per unit of weight that is promised              x
``reserved``        reserved bandwidth of a link                          r(u, v)
``<scenario>.*``    shares and flows after that failure                   as in `throughput`
constraints
``link_reserved``   a reservation fits the link                           r(u, v) <= b(u, v)
``promise``         every scenario keeps the promise                      x <= x_scenario
``within``          no scenario uses more than what is reserved           c_scenario(u, v) <= r(u, v)
``<scenario>.*``    the conditions of each scenario                       as in `throughput`
==================  ====================================================  ==================================

The rate alone is the smallest bound over all failures, which exact combinatorial code finds faster; the model is for
extensions, such as the cheapest reservation for a given rate.

Stated in Pyomo, to be read and extended: ``rate`` and ``reserved[tail, head]``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import UnsupportedError
from ..support.validation import shown
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from . import throughput
from .modelling.pyomo_model import PyomoModel
from .throughput import ThroughputModel

__all__ = ["SurvivalModel", "build", "cables"]

Cable = tuple[str, str]


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalModel(PyomoModel):
    """A reservation and the scenarios that it must survive.

    Attributes
    ----------
    program : ConcreteModel
        With one sub-block per scenario.
    topology : Topology
        Before any failure.
    scenarios : mapping of str to ThroughputModel
        By name, such as ``"without_0"``.
    failures : mapping of str to tuple of str
        The cable that each scenario is without.
    """

    topology: Topology
    scenarios: Mapping[str, ThroughputModel]
    failures: Mapping[str, Cable]


def cables(topology: Topology) -> tuple[Cable, ...]:
    """List the pairs of nodes with a link in one direction or both, each once, in the order of the links."""
    pairs: dict[frozenset[str], Cable] = {}
    for link in as_topology(topology).links:
        pairs.setdefault(frozenset((link.tail, link.head)), (link.tail, link.head))
    return tuple(pairs.values())


def build(
    topology: Topology, *, failures: Sequence[Cable] | None = None, weights: Sequence[object] | None = None
) -> SurvivalModel:
    """State the best guaranteed rate of allgather under any single failure.

    Parameters
    ----------
    topology : Topology
        Before any failure.
    failures : sequence of tuple of str, optional
        Pairs of nodes whose links, in both directions, may fail; each of `cables` by default.
    weights : sequence of number, optional
        Sizes of the shards in rank order, as in `throughput.build`.
    """
    import pyomo.environ as pyo

    lost = _checked_failures(as_topology(topology), failures)
    scenarios = {name: throughput.build(topology.without_link(*cable), weights=weights) for name, cable in lost.items()}
    program = pyo.ConcreteModel(name=f"survival of {topology.name}")
    for name, scenario in scenarios.items():
        scenario.program.objective.deactivate()
        program.add_component(name, scenario.program)
    program.rate = pyo.Var(domain=pyo.NonNegativeReals)
    program.reserved = pyo.Var([(link.tail, link.head) for link in topology.links], domain=pyo.NonNegativeReals)
    model = SurvivalModel(program, topology, scenarios, lost)
    _link_reserved(model)
    _promise(model)
    _within(model)
    model.maximize(model.variables.rate)
    return model


def _link_reserved(model: SurvivalModel) -> None:
    """r(u, v) <= b(u, v) for each link."""
    bandwidth = {(link.tail, link.head): float(link.bandwidth) for link in model.topology.links}
    reserved = model.variables.reserved
    model.add_constraints(
        "link_reserved", list(bandwidth), rule=lambda tail, head: reserved[tail, head] <= bandwidth[tail, head]
    )


def _promise(model: SurvivalModel) -> None:
    """The promised x is at most the x of each scenario."""
    rate, scenarios = model.variables.rate, model.scenarios
    model.add_constraints("promise", list(scenarios), rule=lambda name: rate <= scenarios[name].variables.rate)


def _within(model: SurvivalModel) -> None:
    """c(u, v) <= r(u, v) for each scenario and each link that is left in it."""
    reserved, scenarios = model.variables.reserved, model.scenarios
    model.add_constraints(
        "within",
        [(name, *link) for name, scenario in scenarios.items() for link in scenario.variables.share],
        rule=lambda name, tail, head: scenarios[name].variables.share[tail, head] <= reserved[tail, head],
    )


def _checked_failures(topology: Topology, failures: Sequence[Cable] | None) -> dict[str, Cable]:
    if failures is not None and (isinstance(failures, str) or not isinstance(failures, Iterable)):
        raise UnsupportedError(f"failures are {shown(failures)}; expected a list of pairs of names of nodes")
    chosen = cables(topology) if failures is None else tuple(failures)
    if not chosen:
        raise UnsupportedError("there is no failure to survive; expected at least one pair of nodes")
    for cable in chosen:
        if not isinstance(cable, (tuple, list)) or len(cable) != 2 or not all(isinstance(node, str) for node in cable):
            raise UnsupportedError(f"failure {shown(cable)} is not usable; expected a pair of names of nodes")
    return {f"without_{number}": (cable[0], cable[1]) for number, cable in enumerate(chosen)}
