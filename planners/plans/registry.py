"""Planners by name, the decorator that adds one, and the function `plan`."""

import inspect
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

from ...errors import CertificateError, UnsupportedError
from ...schedules import Collective, as_bytes
from ...schedules.collective import AnyCollective, as_collective
from ...support.validation import as_flag, hint, shown
from ...topologies import RuntimeCosts, Topology
from ...topologies.builders import NetworkLike, refuse_network_options
from ...topologies.builders import topology as as_network
from ...topologies.network.link_costs import CostsName, as_costs
from .plan import Plan

PROBLEM = ("root", "weights", "traffic", "size")
"""Keywords of planners that are about the problem: what to plan, not how."""


CHOICES = ("planner", "costs")  # other parameters of `plan`
PACKAGE = ENTRY_POINTS = "collopt.planners"
"""Where collopt's own planners are, and the entry point group of other packages'."""
DECORATOR = re.compile(r'^@register_planner\(\s*"([^"]+)"', re.MULTILINE)

PlannerFunction = TypeVar("PlannerFunction", bound=Callable[..., Plan])
_log = logging.getLogger("collopt.planners.plans.registry")


@dataclass(frozen=True)
class Planner:
    """A planner: a function that plans some collectives, and its name.

    Attributes
    ----------
    name : str
        As `plan` takes it.
    function : callable
        Takes a topology, the `Collective` unless it plans only one, or the `Demands`, and keywords; returns a `Plan`.
        Keywords ``root``,
        ``weights``, ``traffic`` and ``size`` are those of `plan`; all others are options of this planner.
    collectives : collection of Collective
        The collectives that it plans.

    Examples
    --------
    >>> PLANNERS["ring"].summary
    'rings through all boxes, as NCCL and RCCL run them'
    >>> PLANNERS["ring"].options
    ('channels', 'order')
    """

    name: str
    function: Callable[..., Plan]
    collectives: Collection[Collective]

    @property
    def summary(self) -> str:
        """First sentence of the function's docstring, without a leading "Plan"."""
        paragraph = " ".join((inspect.getdoc(self.function) or "").partition("\n\n")[0].split())
        return paragraph.partition(". ")[0].removesuffix(".").removeprefix("Plan ")

    @cached_property
    def keywords(self) -> dict[str, inspect.Parameter]:
        """Keyword parameters of the function, by name."""
        parameters = inspect.signature(self.function).parameters
        return {name: parameter for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options that only this planner defines."""
        return tuple(name for name in self.keywords if name not in PROBLEM)

    def plans(self, collective: AnyCollective) -> bool:
        """Whether it plans a collective."""
        return str(collective) in map(str, self.collectives)

    def takes(self, collective: AnyCollective, keyword: str) -> bool:
        """Whether it plans a collective and has a keyword, an option or part of the problem."""
        return keyword in self.keywords and self.plans(collective)

    def __call__(self, topology: Topology, collective: AnyCollective, **keywords: Any) -> Plan:
        """Plan, with keywords that it has; a result that is no plan of this problem raises `CertificateError`."""
        operation = as_collective(collective)
        planned = () if len(self.collectives) == 1 and not operation.has_items else (operation,)
        answer: object = self.function(topology, *planned, **keywords)
        if not isinstance(answer, Plan):
            raise CertificateError(f"planner {self.name!r} returned {shown(answer)}; expected a Plan")
        if str(answer.collective) != str(collective) or answer.topology.compute_nodes != topology.compute_nodes:
            answered, expected = f"{answer.collective} on {answer.topology.name}", f"{collective} on {topology.name}"
            raise CertificateError(f"planner {self.name!r} returned a plan of {answered}; expected one of {expected}")
        return answer


def _sources(folder: Traversable, package: str) -> Iterator[tuple[str, str]]:
    """Yield each module of a package, and its source, which may lie in a zip file."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{package}.{entry.name}")
        elif entry.name.endswith(".py"):
            yield f"{package}.{entry.name.removesuffix('.py')}", entry.read_text(encoding="utf-8")


class _Planners(MutableMapping[str, Planner]):
    """Planners by name, in alphabetical order; the module of each of collopt's own is imported when it is looked up."""

    def __init__(self) -> None:
        self._registered: dict[str, Planner] = {}

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Modules of collopt's own planners by name, from their sources, because imports take long."""
        return {name: module for module, text in _sources(files(PACKAGE), PACKAGE) for name in DECORATOR.findall(text)}

    @cached_property
    def _entries(self) -> int:
        """Load the planners of other packages, and count them."""
        entries = entry_points(group=ENTRY_POINTS)
        for entry in entries:
            try:
                entry.load()
            except Exception as error:  # noqa: BLE001 - whatever another package raises costs its own planners only
                _log.warning("the planner %s of %s cannot be loaded: %r", entry.name, entry.value, error)
        return len(entries)

    def __getitem__(self, name: str) -> Planner:
        if name not in self._registered:
            if name in self._modules:
                import_module(self._modules[name])
            else:
                _ = self._entries
        return self._registered[name]

    def __setitem__(self, name: str, planner: Planner) -> None:
        self._registered[name] = planner

    def __delitem__(self, name: str) -> None:
        del self._registered[name]

    def __iter__(self) -> Iterator[str]:
        _ = self._entries
        return iter(sorted({*self._registered, *self._modules}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


PLANNERS: MutableMapping[str, Planner] = _Planners()
"""Planners by name.  One that does not suit a topology raises `UnsupportedError`, whose message is the reason."""


def register_planner(
    name: str, collectives: AnyCollective | Collection[AnyCollective]
) -> Callable[[PlannerFunction], PlannerFunction]:
    """Return a decorator that adds a function to `PLANNERS`, and leaves it as it is.

    A package that states the function as an entry point of the group ``collopt.planners`` adds it to every program
    and to the command line.  Raises `UnsupportedError` if another planner has the name, or an argument is not usable.

    Parameters
    ----------
    name : str
        As `plan` takes it.
    collectives : str, Collective or collection of these
        The collectives that the function plans; it takes no collective if there is only one.

    Examples
    --------
    >>> @register_planner("one-ring", "allgather")
    ... def plan_one_ring(topology, *, order=None):
    ...     '''Plan one ring, in any order.'''
    ...     return plan(topology, "allgather", planner="ring", channels=1, order=order)
    >>> from collopt.topologies import ring
    >>> plan(ring(4), "allgather", planner="one-ring").planner
    'ring'
    >>> del PLANNERS["one-ring"]
    """
    if not isinstance(name, str) or not name:
        raise UnsupportedError(f"the planner's name is {shown(name)}; expected a string such as 'nearest'")
    planned: Any = (collectives,) if isinstance(collectives, str | Collective) else collectives
    if not isinstance(planned, Collection):
        raise UnsupportedError(f"collectives is {shown(collectives)}; expected names such as 'allgather'")
    if not all(isinstance(entry, Collective) for entry in planned):
        planned = tuple(as_collective(entry) for entry in planned)

    def register(function: PlannerFunction) -> PlannerFunction:
        if not function.__module__.startswith(f"{PACKAGE}.") and name in PLANNERS:
            raise UnsupportedError(f"there is a planner {name!r} already; give this one another name")
        PLANNERS[name] = Planner(name, function, planned)
        return function

    return register


def plan(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    size: int | str | None = None,
    costs: RuntimeCosts | CostsName | None = None,
    planner: str | Planner = "auto",
    **options: Any,
) -> Plan:
    """Plan a collective on a topology, and verify the plan.

    Raises `UnsupportedError` for an unknown planner, a collective or an option that it does not have, or a topology
    that it cannot plan on; `BoundError` if some rank cannot reach another.

    Parameters
    ----------
    topology, collective, root, weights, traffic
        As for `collopt.bound`.
    size : int or str, optional
        Bytes in all to plan for, such as ``"64K"``; by default endless data.  Planners whose schedules do not depend on
        the size ignore it.
    costs : RuntimeCosts or {"links", "generic", "fused"}, optional
        As for `collopt.bound`; the plan's topology has them.
    planner : str or Planner
        A key of `PLANNERS`, or a planner of your own.
    **options
        The planner's own options, such as ``channels=2`` for ``"ring"``; None leaves an option to the planner.
        ``PLANNERS["ring"].options`` are their names, and the documentation's table of planners explains them.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100, ring
    >>> plan(dgx_a100(boxes=2), "allgather").algbw
    Fraction(1040, 3)
    >>> plan(ring(4, bandwidth=25), "allgather", planner="ring", channels=1).algbw
    Fraction(100, 3)
    """
    if isinstance(collective, Collective) and collective.has_items and planner == "auto":
        planner = "steiner-trees"
    solver = as_planner(planner)
    planned = as_collective(collective, solver.collectives, f"the planner {solver.name!r} does not cover")
    if any(name not in solver.options for name in options):
        option_names = {option for entry in PLANNERS.values() for option in entry.options}
        refuse_network_options(
            plan, topology, {name: value for name, value in options.items() if name not in option_names}
        )
    keywords = {"root": root, "weights": weights, "traffic": traffic, "size": size, **options}
    keywords = checked_keywords(solver, planned, keywords)
    network = as_network(topology)
    if costs is not None:
        network = network.changed(costs=as_costs(costs, network))
    return solver(network, planned, **keywords)


def checked_keywords(planner: Planner, collective: Collective, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that are not None, without a size on which the planner's schedules do not depend.

    Raises `UnsupportedError` for others that the planner does not have.
    """
    checked: dict[str, Any] = {}
    for name, value in keywords.items():
        if value is None:
            continue
        if name == "size":
            as_bytes(value)
        if name in planner.keywords:
            is_flag = isinstance(planner.keywords[name].default, bool)
            checked[name] = as_flag(value, name) if is_flag else value
        elif name != "size":
            raise _not_taken(planner, collective, name, value)
    return checked


def _not_taken(planner: Planner, collective: Collective, name: str, value: object) -> UnsupportedError:
    """Return the error for a part of the problem, or an option, that a planner does not have."""
    if name == "root":
        return UnsupportedError(f"{collective} has no root; leave root={shown(value)} out")
    if name == "traffic":
        return UnsupportedError(f"{collective} takes no traffic; all_to_allv does")
    if name == "weights":
        if collective.is_sharded:
            return UnsupportedError(f"planner {planner.name!r} takes no weights; leave them out")
        return UnsupportedError(f"{collective} takes no weights; only allgather and reduce_scatter do")
    text = f"planner {planner.name!r} has no option {name!r}{hint(name, (*planner.options, *PROBLEM, *CHOICES))}; "
    text += f"its options: {', '.join(planner.options) or 'none'}"
    planner_names = [
        entry.name for entry in PLANNERS.values() if entry.takes(collective, name) and entry.name != "auto"
    ]
    return UnsupportedError(text + (f"; planners with {name}: {', '.join(planner_names)}" if planner_names else ""))


def as_planner(value: object) -> Planner:
    """Return the planner of this name, or the planner itself; anything else raises `UnsupportedError`."""
    if isinstance(value, Planner):
        return value
    if not isinstance(value, str) or value not in PLANNERS:
        raise unknown_name("planner", value, PLANNERS)
    return PLANNERS[value]


def unknown_name(kind: str, name: object, known_names: Iterable[str]) -> UnsupportedError:
    """Return the error for an unknown name, with the closest known one, or else all known ones."""
    names = list(known_names)
    close = get_close_matches(name.lower().replace("_", "-")[:50], names, n=1) if isinstance(name, str) else []
    advice = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(names)}"
    return UnsupportedError(f"there is no {kind} {shown(name)}; {advice}")
