"""`Scenario`: a network, changes of it and what is asked of it, as an address and as a command line."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from logging.handlers import BufferingHandler
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from ...errors import UnsupportedError
from ...planners import PLANNERS, Plan, bound, bound_sizes, plan
from ...planners.plans.plan import document_text
from ...schedules import ALLGATHER, Bound, Collective
from ...schedules.collective import as_collective
from ...support.formatting import percentage_text, rate_text, time_text, times_text
from ...support.validation import hint, shown
from ...topologies import Failure, Scaling, Topology, link_classes, scaled_links, write_topology
from ...topologies.network.link_costs import as_costs
from ..tables import check_rows, schedule_rows
from .scene import scene


@dataclass(frozen=True)
class Scenario:
    """One state of the page.

    >>> scenario = Scenario(("dgx-a100", "--boxes", "2"), "allreduce", without=("box0/nic0",))
    >>> scenario.to_query()
    'network=dgx-a100+--boxes+2&collective=allreduce&without=box0%2Fnic0'
    >>> scenario.command("plan")
    'collopt plan dgx-a100 allreduce --boxes 2 --without box0/nic0'
    """

    network: tuple[str, ...]  # What describes the network on the command line: its name or file, and options
    collective: str = ALLGATHER.name
    root: str | None = None  # Of a broadcast or reduce
    size: str | None = None  # Bytes in all, such as ``"64M"``; None for endless data
    planner: str = "auto"
    scale: tuple[Scaling, ...] = ()  # Bandwidths that are multiplied
    without: tuple[str, ...] = ()  # Nodes and links that are gone, as `Failure.read` reads them

    @classmethod
    def from_query(cls, text: str) -> Scenario:
        """Read the address of a state; `UnsupportedError` for what is not one."""
        fields: dict[str, list[str]] = {}
        for name, value in parse_qsl(text, keep_blank_values=True):
            fields.setdefault(name, []).append(value)
        for name, values in fields.items():
            if name not in cls.__dataclass_fields__:
                raise UnsupportedError(
                    f"the address has {shown(name)}{hint(name, cls.__dataclass_fields__)}; expected parts "
                    f"{', '.join(cls.__dataclass_fields__)}"
                )
            if len(values) > 1 and name not in ("scale", "without"):
                raise UnsupportedError(f"the address has {name} twice; keep one")
        single: dict[str, Any] = {name: values[0] for name, values in fields.items() if values[0]}
        single["network"] = split_words(single.get("network", ""))
        single["scale"] = tuple(map(Scaling.read, fields.get("scale", ())))
        single["without"] = tuple(fields.get("without", ()))
        return cls(**single)

    def to_query(self) -> str:
        """Write the state as the part of an address that `from_query` reads."""
        return urlencode([("network", shlex.join(self.network)), ("collective", self.collective), *self._options()])

    def words(self) -> list[str]:
        """Return the arguments of ``collopt plan`` that ask for the same."""
        options = [word for name, value in self._options() for word in (f"--{name}", value)]
        return [*self.network[:1], self.collective, *self.network[1:], *options]

    def command(self, name: str, *words: str) -> str:
        """Return the command of this name for the state, to be typed in a shell."""
        return shlex.join(["collopt", name, *self.words(), *words])

    def changed(self, network: Topology) -> Topology:
        """Apply the changes to the network."""
        return Failure.read(network, self.without).applied(scaled_links(network, self.scale))

    def _options(self) -> Iterator[tuple[str, str]]:
        for name in ("root", "size", "planner"):
            if (value := getattr(self, name)) != self.__dataclass_fields__[name].default:
                yield name, value
        yield from (("scale", str(scaling)) for scaling in self.scale)
        yield from (("without", failed) for failed in self.without)


def split_words(text: str) -> tuple[str, ...]:
    """Split what describes a network into words, as a shell does."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UnsupportedError(f"the network {shown(text)} cannot be read: {error}; close the quotes") from None
    if not words or words[0].startswith("-"):
        raise UnsupportedError("the network has no name; expected one such as dgx-a100 --boxes 2, or a file")
    return words


BOUNDED_RANKS = 256  # up to which bounding the time of a size takes a second
PLAYED_SIZE = "64M"  # where no size is asked for
KEPT_PLANS = 4
Answer = dict[str, Any]
_plans: dict[tuple[Scenario, str], Plan] = {}


class Case(NamedTuple):
    """A scenario, the intact network that it is about, and what was assumed to make it."""

    scenario: Scenario
    network: Topology
    assumed: Sequence[str] = ()

    @property
    def changed(self) -> Topology:
        """The network after the changes."""
        return self.scenario.changed(self.network)

    def answers(self) -> Iterator[Answer]:
        """Yield what is known as soon as it is: the intact network, the changed one, its bound, and a plan."""
        network = self.network
        classes = [{"name": entry.name, "bandwidth": float(entry.bandwidth)} for entry in link_classes(network)]
        figures = {"name": network.name, "counts": _counts(network), "classes": classes, "scene": scene(network)}
        yield {"network": {**figures, "assumed": list(self.assumed)}}
        changed = self.changed
        yield {"changed": {"name": changed.name, "counts": _counts(changed), "scene": scene(changed)}}
        limit = bound(changed, self._collective, **self._data())
        yield {"bound": {**self._bound_figures(limit), "scene": scene(limit)}}
        # Plans for endless data are found sooner than the fastest of many for a size.
        cases = (self._replace(scenario=replace(self.scenario, size=None)), self) if self._sized else (self,)
        for case in cases:
            plan = case.plan()
            yield {"plan": {**self._plan_figures(plan), "interim": case is not self, "scene": scene(plan)}}

    def run(self) -> Iterator[Answer]:
        """Yield the plan's scene with what moves when."""
        yield {"play": {"scene": scene(self.plan(), [self.scenario.size or PLAYED_SIZE])}}

    def plan(self) -> Plan:
        """Plan what the scenario asks for, or return the last plans again."""
        key = self.scenario, self.network.digest
        if key not in _plans:
            options = self._data() | ({"size": self.scenario.size} if self._sized else {})
            _plans[key] = plan(self.changed, self._collective, planner=self.scenario.planner, **options)
        while len(_plans) > KEPT_PLANS:
            del _plans[next(iter(_plans))]
        return _plans[key]

    def file(self, form: str) -> Iterator[Answer]:
        """Yield the content of a file, as ``collopt import`` and ``collopt plan`` write it."""
        if form not in FILES:
            raise UnsupportedError(f"there is no file of the kind {shown(form)}; expected one of {', '.join(FILES)}")
        with TemporaryDirectory() as folder:
            target = Path(folder) / form
            handler = BufferingHandler(1000)
            handler.setLevel(logging.WARNING)
            logging.getLogger("collopt").addHandler(handler)
            try:
                FILES[form](self, target)
            finally:
                logging.getLogger("collopt").removeHandler(handler)
            yield {"file": target.read_bytes(), "note": "; ".join(note.getMessage() for note in handler.buffer)}

    @property
    def _collective(self) -> Collective:
        return as_collective(self.scenario.collective)

    @property
    def _sized(self) -> bool:
        """Whether the planner plans for the size, and does not just tell the time for it."""
        scenario = self.scenario
        planner = PLANNERS.get(scenario.planner)
        return scenario.size is not None and planner is not None and planner.takes(self._collective, "size")

    def _data(self) -> dict[str, Any]:
        if (root := self.scenario.root) is None:
            return {}
        is_number = root.isascii() and root.isdecimal() and len(root) < 10
        return {"root": int(root) if is_number else root}

    def _bound_figures(self, limit: Bound) -> Answer:
        limit.verify()
        size = self.scenario.size
        figures = {
            "algbw": float(limit.algbw),
            "text": rate_text(limit.algbw),
            "reason": limit.witness.reason(limit.topology, limit.collective),
        }
        if size is not None and limit.topology.num_ranks <= BOUNDED_RANKS:
            (sized,) = bound_sizes(limit.topology, limit.collective, [size], **self._data())
            figures |= {"microseconds": float(sized.time), "time": time_text(sized.time)}
        return figures

    def _plan_figures(self, plan: Plan) -> Answer:
        scoped = plan.scoped_bound
        figures = {
            "algbw": float(plan.algbw),
            "text": rate_text(plan.algbw),
            "planner": plan.planner,
            "optimal": plan.gap == 0,
            "gap": percentage_text(plan.gap) if plan.gap else "0",
            "bound": rate_text(plan.bound.algbw),
            "scope": scoped.scope if scoped else "",
            "scoped": rate_text(scoped.algbw) if scoped else "",
            "scopedGap": percentage_text(plan.scoped_gap) if plan.scoped_gap else "0",
            "rows": list((schedule_rows(plan) | check_rows(plan, "in this page")).items()),
        }
        if self.scenario.size is not None:
            time = float(plan.provenance.get("predicted_us") or plan.estimate(self.scenario.size))
            costs = as_costs(None, plan.topology).label
            ends = plan.time_range(self.scenario.size)
            figures |= {"microseconds": time, "time": times_text(time, ends), "costs": costs, "range": ends}
        return figures


def _counts(network: Topology) -> str:
    return f"{network.num_ranks} ranks, {len(network.switch_nodes)} switches, {network.num_links} links"


FILES: Mapping[str, Callable[[Case, Path], object]] = {
    "topology.json": lambda case, path: write_topology(case.changed, path),
    "plan.json": lambda case, path: path.write_text(document_text(case.plan().to_json()), encoding="utf-8"),
    "msccl.xml": lambda case, path: case.plan().export("msccl-xml", path),
    "mscclpp.json": lambda case, path: case.plan().export("mscclpp-json", path),
}
"""Files that a scenario has, and how they are written."""
