"""`Plan`: a schedule with the certificate of its rate, and its JSON form."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import CertificateError, TopologyError, UnsupportedError
from ...schedules import (
    EVERY_SCHEDULE,
    Bound,
    Collective,
    Schedule,
    TreeSchedule,
    as_bytes,
    rate_of_loads,
    schedule_time,
    schedule_to_json,
    verified_loads,
)
from ...schedules.bounds.bound import witness_to_json
from ...schedules.collective import collective_or_given
from ...schedules.schedule import is_verifiable
from ...schedules.timed_run import MANY_EVENTS, Predictor
from ...schedules.trees.tree_schedule import Heights
from ...support.arrays import IntArray, read_only
from ...support.files import write_whole
from ...support.formatting import bandwidth_text, percentage_text
from ...support.packages import VIEWS, Viewed, call_registered, register
from ...support.validation import as_kind, shown
from ...topologies import RuntimeCosts, Topology
from ...topologies.network.link_costs import CostsName, as_costs
from ...topologies.network.topology_json import topology_to_json
from .stages import Trace

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd


PLAN_FORMAT = "collopt-plan"
PLAN_VERSION = 10
"""Versions added: 2 partitions and duals as witnesses, and allreduces with any roots; 3 steps; 4 all-to-all(v); 5 trees
that branch at switches; 6 allreduces in one phase; 7 flows in stages; 8 trees by symmetries; 9 bounds of some schedules
beside that of all, and partitions around switches that loop back; 10 trees of demands, and cuts that items enter.
"""


def document_text(fields: Mapping[str, object]) -> str:
    """Return the text of the file of a plan."""
    body = ",\n".join(f"{json.dumps(key)}: {_json_text(value)}" for key, value in fields.items())
    return f"{{\n{body}\n}}\n"


def _json_text(value: object) -> str:
    """JSON text with one line per link, path or tree, for diffs and editing."""
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    rows = {
        key: "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in entry) + "\n]"
        if isinstance(entry, list) and entry and isinstance(entry[0], (list, dict))
        else json.dumps(entry, ensure_ascii=False)
        for key, entry in value.items()
    }
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {text}" for key, text in rows.items()) + "\n}"


Exporter = TypeVar("Exporter", bound=Callable[..., None])

EXPORTERS = "collopt.exporters"
"""Group of entry points that `Plan.export` looks in; other packages can add formats there."""


def exporter(name: str) -> Callable[[Exporter], Exporter]:
    """Decorate a function that writes plans, so that `Plan.export` and ``collopt export`` have its format.

    The function takes the plan and the path, and its options by keyword.  That holds for the running program; a package
    lists its exporters as entry points of the group ``collopt.exporters`` instead.

    Parameters
    ----------
    name : str
        Of the format, such as ``"msccl-xml"``.
    """
    return register(EXPORTERS, name)


SIMULATORS = "collopt.simulators"
"""Group of entry points that `Plan.simulate` looks in, of functions that return µs; other packages can add some."""


@dataclass(frozen=True, eq=False)
class Plan(Viewed):
    """A schedule for one collective on one topology, with the certificate that says how good it is.

    The certificate consists of `bound`, `inverse_rate` and `link_loads`; `verify` checks all of it against the
    topology.

    Attributes
    ----------
    topology : Topology
        The network.
    collective : Collective
        Such as `ALLGATHER`, or its name.
    schedule : Schedule
        Trees that data flows through, steps that wait for each other, or paths from ranks to ranks.
    bound : Bound
        What no schedule can beat; its scope is `EVERY_SCHEDULE`.
    inverse_rate : Fraction
        What this one achieves, ``1 / x``: ns per byte of a shard of weight 1 in ``schedule.root_weights``.  Those of an
        allreduce may differ from the bound's, so compare `algbw`.  Of an all-to-all(v), ns per byte of a traffic of 1.
    link_loads : ndarray of int64, shape (links,), or (steps, links)
        Copies of trees, or chunks in each step, on each link; see `collopt.schedules.verified_loads`.
    planner : str
        Name of the planner in the registry, or of whoever gave the schedule.
    options : mapping
        Options of the planner.
    provenance : mapping
        How the plan came about: seconds per stage, and which way was taken; proves nothing.
    scoped_bound : Bound or None
        A lower bound of some schedules, such as those by trees: its scope.
    """

    topology: Topology
    collective: Collective
    schedule: Schedule
    bound: Bound
    inverse_rate: Fraction
    link_loads: npt.NDArray[np.int64]
    planner: str
    options: Mapping[str, int | str] = field(default_factory=dict)
    provenance: Mapping[str, float | str] = field(default_factory=dict)
    scoped_bound: Bound | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "collective", collective_or_given(self.collective))
        if not isinstance(self.link_loads, np.ndarray):
            raise UnsupportedError(
                f"the plan's link_loads is {shown(self.link_loads)}; expected a numpy array of integers"
            )
        object.__setattr__(self, "link_loads", read_only(self.link_loads))

    def __reduce__(self) -> tuple[type[Plan], tuple[object, ...]]:
        """Copy and pickle by construction, as `Forest` does."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @property
    def algbw(self) -> Fraction:
        """Algorithm bandwidth in GB/s as in nccl-tests: bytes in all over time, latency left out."""
        return Fraction(self.schedule.total_weight) / self.inverse_rate

    @property
    def busbw(self) -> Fraction:
        """Bus bandwidth in GB/s as in nccl-tests; see `Collective.bus_factor`."""
        own = {} if self.collective.traffic is None else self.schedule.problem(self.collective)
        return self.algbw * self.collective.bus_factor(self.topology.num_ranks, own.get("root"))

    @property
    def gap(self) -> Fraction:
        """Exact share of the bound that is missed, ``1 - algbw / bound.algbw``; 0 means optimal."""
        return 1 - self.algbw / self.bound.algbw

    @property
    def scoped_gap(self) -> Fraction:
        """Exact share of `scoped_bound` that is missed, or `gap` if there is none; 0 rules out its schedules only."""
        return 1 - self.algbw / (self.scoped_bound or self.bound).algbw

    def verify(self, topology: Topology | None = None) -> None:
        """Check the bound, the schedule and the plan's claims, independently of the code that made them.

        `topology` is the network that the plan is to be used on; it must be the one that the plan was made for.  Raises
        `TopologyError` if the plan is for another network; `CertificateError` if anything else is not as claimed.
        """
        if topology is not None:
            check_network(self.topology, topology)
        bounds = [self.bound] if self.scoped_bound is None else [self.bound, self.scoped_bound]
        for bound in bounds:
            as_kind(bound, Bound, "the plan's bound", error=CertificateError).verify()
            as_kind(self.topology, Topology, "the plan's topology", error=CertificateError)
            network = bound.topology
            if bound.collective != self.collective or (
                network is not self.topology and network.digest != self.topology.digest
            ):
                raise CertificateError(f"the plan's bound is for {bound.collective} on {bound.topology}")
            check_schedule_fits_bound(self.collective, self.schedule, bound)
        if self.bound.scope != EVERY_SCHEDULE:
            raise CertificateError(
                f"the plan's bound is about {self.bound.scope} alone; expected one of {EVERY_SCHEDULE}, and this as "
                "scoped_bound"
            )
        if self.scoped_bound is not None and self.scoped_bound.scope == EVERY_SCHEDULE:
            raise CertificateError(f"the plan's scoped bound is about {EVERY_SCHEDULE}; expected it as bound")
        loads = verified_loads(self.schedule, self.topology)
        if not np.array_equal(loads, self.link_loads):
            report_load_mismatch(self.link_loads, loads, self.schedule, self.topology)
        rate = rate_of_loads(loads, self.schedule, self.topology)
        if rate != self.inverse_rate:
            busiest = "its busiest link gives" if self.schedule.pipelined else "its busiest links give"
            raise CertificateError(f"the plan claims 1/x = {self.inverse_rate}; {busiest} {rate}")
        if beaten := [bound for bound in bounds if self.algbw > bound.algbw]:
            raise CertificateError(f"the plan claims algbw = {self.algbw}, which beats its bound: {beaten[0]}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON; `load_plan` reads it back."""
        write_whole(path, document_text(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON document, as `save` writes it."""
        return {
            "format": PLAN_FORMAT,
            "version": PLAN_VERSION,
            "made_by": f"collopt {version('collopt')}",
            "collective": str(self.collective),
            "planner": self.planner,
            "options": dict(self.options),
            "inverse_rate": str(self.inverse_rate),
            "bound": _bound_to_json(self.bound),
            **({} if self.scoped_bound is None else {"scoped_bound": _bound_to_json(self.scoped_bound)}),
            "topology_digest": self.topology.digest,
            "topology": topology_to_json(self.topology),
            "link_loads": self.link_loads.tolist(),
            "schedule": schedule_to_json(self.schedule),
        }

    def estimate(
        self, size: int | str, slices: int | None = None, *, costs: RuntimeCosts | CostsName | None = None
    ) -> float:
        """Predict the time in µs by the alpha-beta model.

        Raises `UnsupportedError` if an argument is not understood, or slices are given for steps.

        Parameters
        ----------
        size : int or str
            Bytes in all, such as ``2**30`` or ``"1G"``.
        slices : int, optional
            Pieces that follow each other along trees or paths; by default infinitely many, or as many as can be started
            while the busiest link is busy.
        costs : RuntimeCosts or {"links", "generic", "fused"}, optional
            Of the software; by default those that the topology states.
        """
        cost_model = as_costs(costs, self.topology)
        rate = self.inverse_rate
        return float(schedule_time(self.schedule, self.topology, size, slices, inverse_rate=rate, costs=cost_model))

    def time_range(self, size: int | str) -> tuple[float, float] | None:
        """Return the least and the largest time in µs by costs that measured times do not tell apart, or None.

        By all events for the size that the plan was made for, and by `estimate` for others.
        """
        costs, num_bytes = as_costs(None, self.topology), as_bytes(size)
        if self.provenance.get("planned_for") == f"{num_bytes} bytes" and "predicted_us" in self.provenance:
            return costs.range_of(lambda end: Predictor(self.schedule, self.topology, end).time(num_bytes, MANY_EVENTS))
        return costs.range_of(lambda end: self.estimate(num_bytes, costs=end))

    def simulate(self, size: int | str, *, simulator: str = "event-driven", **options: Any) -> float:
        """Simulate the plan on its topology and return the time in µs; see `collopt.runtime.simulate` for more.

        Raises `UnsupportedError` for unknown simulators, options or sizes.

        Parameters
        ----------
        size : int or str
            Bytes in all.
        simulator : str
            ``"event-driven"``, or one of another package's entry points of the group ``collopt.simulators``.
        **options
            Of the simulator: ``slices`` and ``steps`` of the event-driven one.

        Examples
        --------
        >>> import collopt
        >>> plan = collopt.plan(collopt.topologies.ring(4, bandwidth=25, latency=1), "allgather")
        >>> plan.estimate("64K"), plan.simulate("64K", slices=1)
        (2.98304, 2.65536)
        """
        time: float = call_registered(SIMULATORS, "simulator", simulator, (self, size), options)
        return time

    def to_frame(self, kind: str = "links", **options: Any) -> pd.DataFrame:
        """Tabulate the plan; `UnsupportedError` for an unknown kind or option, or a plan that has no such table.

        Parameters
        ----------
        kind : str, optional
            ``"links"``: load and utilization; ``"trees"``: hops; ``"steps"``: busy times at ``size="64M"``;
            ``"curves"``: predicted times at several ``sizes``.
        **options
            Of the function for that kind in `collopt.report`: `link_table`, `tree_table`, `step_table`, `curve_table`.
        """
        frame: pd.DataFrame = call_registered(VIEWS, "view", "frame", (self, kind), {"options": options})
        return frame

    def to_networkx(self) -> nx.DiGraph:
        """Convert the network as `Topology.to_networkx` does, with the other columns of ``to_frame()`` on its edges."""
        import networkx as nx

        graph = self.topology.to_networkx()
        rows = self.to_frame().drop(columns=["bandwidth_gbps", "latency_us"]).set_index(["tail", "head"])
        nx.set_edge_attributes(graph, rows.to_dict("index"))
        return graph

    @property
    def trees(self) -> TreeSchedule:
        """The schedule of a plan of trees, with items; raises `UnsupportedError` if it consists of something else."""
        schedule = self.schedule.expanded
        if not isinstance(schedule, TreeSchedule):
            raise UnsupportedError(
                f"the plan by {self.planner!r} consists of {self.schedule.parts}; expected one of trees"
            )
        return schedule

    @property
    def num_steps(self) -> int:
        """Number of steps, of both parts of an allreduce; raises `UnsupportedError` if the plan consists of trees."""
        if not self.schedule.num_steps:
            raise UnsupportedError(
                f"the plan by {self.planner!r} consists of {self.schedule.parts}; expected one of steps"
            )
        return self.schedule.num_steps

    @property
    def heights(self) -> Heights:
        """Lowest, mean (over the data) and highest height of the trees; raises `UnsupportedError` for other plans."""
        schedule: Any = self.schedule if self.schedule.num_trees else self.trees
        heights: Heights = schedule.height_range
        return heights

    def export(self, format: str, path: str | os.PathLike[str], **options: Any) -> None:  # noqa: A002
        """Write the plan to `path` in a runtime's format, with the options of its exporter.

        The format is ``"msccl-xml"``, or what another package registered in the entry point group `EXPORTERS`.  Raises
        `UnsupportedError` for an unknown format, wrong or missing options, or a plan that it cannot hold.
        """
        call_registered(EXPORTERS, "export format", format, (self, path), options)

    def to_msccl_xml(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the plan as MSCCL XML; options as for `collopt.runtime.msccl.export.export_msccl_xml`."""
        self.export("msccl-xml", path, **options)

    def to_mscclpp_json(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write an MSCCL++ plan; options as for `collopt.runtime.mscclpp.export.export_mscclpp_json`."""
        self.export("mscclpp-json", path, **options)

    def __str__(self) -> str:
        verdict = "optimal" if self.gap == 0 else f"{percentage_text(self.gap)} below the bound"
        if self.scoped_bound is not None:
            missed = f"{percentage_text(self.scoped_gap)} below" if self.scoped_gap else "at"
            verdict += f", {missed} that of {self.scoped_bound.scope}"
        return (
            f"{self.collective} on {self.topology.name} by {self.planner}: {bandwidth_text(self.algbw, 2)}, {verdict}; "
            f"{self.schedule.size_text}"
        )

    def __repr__(self) -> str:
        return f"<Plan {self}>"


def _bound_to_json(bound: Bound) -> dict[str, Any]:
    rate = {"inverse_rate": str(bound.inverse_rate), "weights": list(bound.weights)}
    return rate | witness_to_json(bound.witness)


def proved_plan(
    topology: Topology,
    collective: Collective,
    schedule: Schedule,
    planner: str,
    options: Mapping[str, int | str],
    trace: Trace,
    bound: Bound | Callable[[Fraction], Bound],
    scoped_bound: Bound | None = None,
) -> Plan:
    """Make a verified plan of a schedule; `bound` may be a function of the achieved rate."""
    with trace.stage("loads"):
        loads = schedule.link_loads(topology)
        rate = rate_of_loads(loads, schedule, topology)
    if not isinstance(bound, Bound):
        with trace.stage("bound"):
            bound = bound(rate)
    plan = Plan(topology, collective, schedule, bound, rate, loads, planner, options, trace.provenance, scoped_bound)
    with trace.stage("verification"):
        plan.verify()
    return plan


def check_network(planned: Topology, topology: Topology) -> None:
    """Raise `TopologyError` unless a plan is for this network; its name may differ."""
    if not isinstance(topology, Topology):
        raise TopologyError(f"the topology is {shown(topology)}; expected the Topology to use the plan on")
    if topology.digest != planned.digest:
        raise TopologyError(
            f"the plan was made for {planned} (digest {planned.digest[:12]}), not for {topology} "
            f"(digest {topology.digest[:12]}); plan again for this topology"
        )


def check_schedule_fits_bound(collective: Collective, schedule: Schedule, bound: Bound) -> None:
    """Raise `CertificateError` unless the schedule is of the collective's kind, for the shards of the bound."""
    if not is_verifiable(schedule):
        raise CertificateError(f"the plan's schedule is {shown(schedule)}; expected trees, steps or a flow")
    if schedule.phases != collective.phases:
        subject = "schedule is" if collective.in_pairs else schedule.subject
        raise CertificateError(f"the plan's {subject} not of the kind that {collective.name!r} needs")
    if schedule.demands != (collective if collective.has_items else None):
        raise CertificateError("the plan's trees are for other items than its bound")
    if not schedule.has_sizes(bound.weights, bound.topology.num_ranks):
        raise CertificateError(f"the plan's {'traffic' if collective.in_pairs else 'shards'} differ from its bound's")


def report_load_mismatch(stated: IntArray, loads: IntArray, schedule: Schedule, topology: Topology) -> None:
    """Raise `CertificateError` with the first difference between stated and actual loads."""
    if stated.shape != loads.shape:
        raise CertificateError(
            f"the plan states link loads of shape {stated.shape}; its schedule makes them of shape {loads.shape}"
        )
    place = tuple(np.argwhere(loads != stated)[0].tolist())
    link = topology.link_at(place[-1])
    puts = schedule.load_text.format(load=loads[place], step=place[0])
    raise CertificateError(f"{puts} on the link from {link.tail!r} to {link.head!r}; the plan states {stated[place]}")
