"""The planners by name, and the two functions that most users call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import NoAnswerError, UnsupportedError
from ..schedules import COLLECTIVES, Bound
from ..topologies import Topology
from ..topologies.validation import shown
from . import lazy_planners as lazy
from .lazy_planners import Make
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


def _auto(collective: str) -> Make:
    def make(
        topology: Topology,
        *,
        trees_per_root: int | None = None,
        root: int | str | None = None,
        weights: Sequence[object] | None = None,
    ) -> Plan:
        if trees_per_root is None and collective == "allreduce":
            return _best_allreduce(topology, root=root, weights=weights)
        forestcoll = PLANNERS["forestcoll"].functions[collective]
        return forestcoll(topology, trees_per_root=trees_per_root, root=root, weights=weights)

    return make


EVERY_ROOT = ("allgather", "reduce_scatter", "allreduce")
"""Collectives in which all ranks do the same."""

ONE_ROOT = ("allreduce", "broadcast", "reduce")
"""Collectives that all data can pass one rank in."""


def _planner(name: str, summary: str, collectives: Sequence[str], function: Callable[[str], Make]) -> Planner:
    return Planner(name, summary, {collective: function(collective) for collective in collectives})


PLANNERS = {
    planner.name: planner
    for planner in (
        _planner("auto", "the best plan of the exact planners, the next three", COLLECTIVES, _auto),
        _planner(
            "forestcoll",
            "throughput-optimal spanning trees, one set per rank (ForestColl)",
            COLLECTIVES,
            lazy.forestcoll,
        ),
        Planner("strength", "optimal allreduce where links are as fast both ways", {"allreduce": lazy.strength}),
        Planner(
            "allreduce-lp",
            "the best allreduce that trees allow, by linear programming",
            {"allreduce": lazy.allreduce_lp},
        ),
        _planner("ring", "rings through all boxes, as NCCL and RCCL run them", COLLECTIVES, lazy.ring),
        _planner(
            "hierarchical-ring",
            "rings among boxes, then rings inside boxes (BlueConnect)",
            EVERY_ROOT,
            lazy.hierarchical_ring,
        ),
        _planner(
            "double-binary-tree", "two trees over the boxes, as NCCL runs them", ONE_ROOT, lazy.double_binary_tree
        ),
        _planner(
            "recursive-halving-doubling",
            "exchanges with ranks that differ in one bit",
            EVERY_ROOT,
            lazy.recursive_doubling,
        ),
        _planner("multitree", "one greedily grown tree per rank (MultiTree)", EVERY_ROOT, lazy.multitree),
        _planner("blink", "optimal trees that all have one root (Blink)", COLLECTIVES, lazy.blink),
    )
}
"""By name.  A planner that does not suit a topology raises `UnsupportedError`, whose message is the reason."""


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


def plan(topology: Topology, collective: str, *, planner: str = "auto", **options: Any) -> Plan:
    """Plan a collective on a topology.

    Parameters
    ----------
    topology : Topology
        As for `bound`.
    collective : str
        As for `bound`.
    planner : str
        A key of `PLANNERS`.  ``"auto"`` is ForestColl, which is optimal, but for an allreduce the first of
        ``"forestcoll"``, ``"strength"`` and ``"allreduce-lp"`` that reaches its bound, or the best of them.
    **options : object
        What the planner takes: for ``"auto"`` and ``"forestcoll"``, ``trees_per_root``, and ``root`` and ``weights`` as
        for `bound`.

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
    >>> plan(ring(4, bandwidth=25), "allgather", planner="blink").algbw
    Fraction(40, 1)
    """
    _check_topology(topology)
    if not isinstance(planner, str) or planner not in PLANNERS:
        raise UnsupportedError(f"there is no planner {planner!r}; expected one of {', '.join(PLANNERS)}")
    functions = PLANNERS[planner].functions
    _check_collective(collective, tuple(functions), f"planner {planner!r}")
    _check_options(functions[collective], options, planner)
    return functions[collective](topology, **options)


def _best_allreduce(topology: Topology, **shards: Any) -> Plan:
    """Ask one exact planner after the other; none of them beats "strength" where it applies."""
    best = PLANNERS["forestcoll"].functions["allreduce"](topology, **shards)
    for name in ("strength", "allreduce-lp"):
        if best.gap == 0:
            break
        try:
            other = PLANNERS[name].functions["allreduce"](topology)
        except (UnsupportedError, NoAnswerError):
            continue  # not for this network, or too large for it
        if (other.algbw, -other.gap) > (best.algbw, -best.gap):
            best = other
        if name == "strength":
            break
    return best


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
            expected = f"expected one of {', '.join(known)}" if known else "it takes none here"
            raise UnsupportedError(f"planner {planner!r} has no option {option!r}; {expected}")
