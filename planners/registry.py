"""The planners by name, and the two functions that most users call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import UnsupportedError
from ..schedules import Bound
from ..topologies import Topology
from .plan import Plan

__all__ = ["PLANNERS", "Planner", "bound", "plan"]


@dataclass(frozen=True)
class Planner:
    """One way to make plans.

    Attributes
    ----------
    name : str
        As `plan` takes it.
    summary : str
        One line for people.
    functions : dict of str to callable
        Per collective, the function that takes a topology and options and returns a `Plan`.
    """

    name: str
    summary: str
    functions: dict[str, Callable[..., Plan]]


def _forestcoll_allgather(topology: Topology, *, trees_per_root: int | None = None) -> Plan:
    # Imported on first use, like every module with kernels: see docs/explanation/architecture.md.
    from .forestcoll import plan_allgather

    return plan_allgather(topology, trees_per_root=trees_per_root)


PLANNERS = {
    "forestcoll": Planner(
        "forestcoll",
        "throughput-optimal spanning trees on any topology with switches (ForestColl)",
        {"allgather": _forestcoll_allgather},
    )
}


def bound(topology: Topology, collective: str) -> Bound:
    """Find what no schedule of a collective can beat on a topology.

    Parameters
    ----------
    topology : Topology
        Every rank must reach every other; every switch must take in as much bandwidth as it gives out.
    collective : str
        ``"allgather"``.

    Returns
    -------
    Bound

    Raises
    ------
    UnsupportedError
        For a collective without a bound here, or an unbalanced switch.
    BoundError
        If some rank cannot reach another.

    Examples
    --------
    >>> from collopt.topologies import mi250
    >>> bound(mi250(boxes=2), "allgather").inverse_rate
    Fraction(15, 166)
    """
    from .forestcoll import bound_allgather

    _check_collective(collective, ["allgather"], "bound")
    return bound_allgather(topology)


def plan(topology: Topology, collective: str, *, planner: str = "forestcoll", **options: Any) -> Plan:
    """Plan a collective on a topology.

    Parameters
    ----------
    topology : Topology
        As for `bound`.
    collective : str
        ``"allgather"``.
    planner : str
        A key of `PLANNERS`.
    **options : object
        What the planner takes: ``trees_per_root`` for ``"forestcoll"``.

    Returns
    -------
    Plan
        Already verified.

    Raises
    ------
    UnsupportedError
        For an unknown planner or option, a collective that it does not plan, or a topology that it cannot plan on.
    BoundError
        If some rank cannot reach another.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> plan(ring(4, bandwidth=25), "allgather").algbw
    Fraction(200, 3)
    """
    if planner not in PLANNERS:
        raise UnsupportedError(f"there is no planner {planner!r}; expected one of {', '.join(PLANNERS)}")
    functions = PLANNERS[planner].functions
    _check_collective(collective, list(functions), f"planner {planner!r}")
    _check_options(functions[collective], options, planner)
    return functions[collective](topology, **options)


def _check_collective(collective: str, known: list[str], what: str) -> None:
    if collective not in known:
        raise UnsupportedError(
            f"the {what} does not cover the collective {collective!r}; expected one of {', '.join(known)}"
        )


def _check_options(function: Callable[..., Plan], options: dict[str, Any], planner: str) -> None:
    known = [name for name in inspect.signature(function).parameters if name != "topology"]
    for option in options:
        if option not in known:
            raise UnsupportedError(f"planner {planner!r} has no option {option!r}; expected one of {', '.join(known)}")
