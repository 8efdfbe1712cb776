"""The planners by name, and the two functions that most users call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UnsupportedError
from ..schedules import COLLECTIVES, Bound
from ..topologies import Topology
from ..topologies.validation import shown
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


def _forestcoll(collective: str) -> Callable[..., Plan]:
    def make(
        topology: Topology,
        *,
        trees_per_root: int | None = None,
        root: int | str | None = None,
        weights: Sequence[object] | None = None,
    ) -> Plan:
        # Imported on first use, like every module with kernels: see docs/explanation/architecture.md.
        from .forestcoll import plan_trees

        return plan_trees(topology, collective, trees_per_root=trees_per_root, root=root, weights=weights)

    return make


PLANNERS = {
    "forestcoll": Planner(
        "forestcoll",
        "throughput-optimal spanning trees on any topology with switches (ForestColl)",
        {collective: _forestcoll(collective) for collective in COLLECTIVES},
    )
}


def bound(
    topology: Topology,
    collective: str,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> Bound:
    """Find what no schedule of a collective can beat on a topology.

    Parameters
    ----------
    topology : Topology
        Every rank must reach every other; every switch must take in as much bandwidth as it gives out.
    collective : str
        ``"allgather"``, ``"reduce_scatter"``, ``"allreduce"``, ``"broadcast"`` or ``"reduce"``.
    root : int or str, optional
        Rank that broadcast starts from and reduce ends at, by number or name.
    weights : sequence of number, optional
        Relative sizes of the shards in rank order, for allgather and reduce_scatter.

    Returns
    -------
    Bound

    Raises
    ------
    UnsupportedError
        For a collective without a bound here, an unbalanced switch, or a root or weights that do not fit.
    BoundError
        If some rank cannot reach another.

    Examples
    --------
    >>> from collopt.topologies import mi250
    >>> bound(mi250(boxes=2), "allgather").inverse_rate
    Fraction(15, 166)
    """
    from .forestcoll import bound_trees

    _check_topology(topology)
    _check_collective(collective, COLLECTIVES, "bound")
    return bound_trees(topology, collective, root=root, weights=weights)


def plan(topology: Topology, collective: str, *, planner: str = "forestcoll", **options: Any) -> Plan:
    """Plan a collective on a topology.

    Parameters
    ----------
    topology : Topology
        As for `bound`.
    collective : str
        As for `bound`.
    planner : str
        A key of `PLANNERS`.
    **options : object
        What the planner takes: for ``"forestcoll"``, ``trees_per_root``, and ``root`` and ``weights`` as for `bound`.

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
    _check_topology(topology)
    if not isinstance(planner, str) or planner not in PLANNERS:
        raise UnsupportedError(f"there is no planner {planner!r}; expected one of {', '.join(PLANNERS)}")
    functions = PLANNERS[planner].functions
    _check_collective(collective, tuple(functions), f"planner {planner!r}")
    _check_options(functions[collective], options, planner)
    return functions[collective](topology, **options)


def _check_topology(topology: object) -> None:
    if not isinstance(topology, Topology):
        raise UnsupportedError(
            f"the topology is {shown(topology)}; expected a Topology, such as collopt.topologies.build('ring', n=4)"
        )


def _check_collective(collective: str, known: tuple[str, ...], what: str) -> None:
    if collective not in known:
        raise UnsupportedError(
            f"the {what} does not cover the collective {collective!r}; expected one of {', '.join(known)}"
        )


def _check_options(function: Callable[..., Plan], options: dict[str, Any], planner: str) -> None:
    known = [name for name in inspect.signature(function).parameters if name != "topology"]
    for option in options:
        if option not in known:
            raise UnsupportedError(f"planner {planner!r} has no option {option!r}; expected one of {', '.join(known)}")
