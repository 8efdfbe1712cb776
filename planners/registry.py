"""The planners by name, and the two functions that most users call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..errors import CapacityOverflowError, NoAnswerError, UnsupportedError
from ..schedules import COLLECTIVES, PAIR_COLLECTIVES, Bound
from ..support.validation import shown
from ..topologies import Topology
from . import lazy_planners as lazy
from .lazy_planners import Make
from .plans.plan import Plan
from .trees.problem import check_collective, check_topology, shard_weights

__all__ = ["PLANNERS", "Planner", "bound", "check_planner", "plan", "unknown_name"]


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
    if collective in PAIR_COLLECTIVES:
        return lazy.multicommodity(collective)

    def make(
        topology: Topology,
        *,
        trees_per_root: int | None = None,
        root: int | str | None = None,
        weights: Sequence[object] | None = None,
    ) -> Plan:
        if collective == "allreduce":
            shard_weights(topology, collective, root, weights)  # it has neither
            return _best_allreduce(topology, {} if trees_per_root is None else {"trees_per_root": trees_per_root})
        forestcoll = PLANNERS["forestcoll"].functions[collective]
        return forestcoll(topology, trees_per_root=trees_per_root, root=root, weights=weights)

    return make


EVERY_ROOT = ("allgather", "reduce_scatter", "allreduce")
"""Collectives in which all ranks do the same."""

EVERY_COLLECTIVE = (*COLLECTIVES, *PAIR_COLLECTIVES)
"""All that can be planned."""

ONE_ROOT = ("allreduce", "broadcast", "reduce")
"""Collectives that all data can pass one rank in."""


def _planner(name: str, summary: str, collectives: Sequence[str], function: Callable[[str], Make]) -> Planner:
    return Planner(name, summary, {collective: function(collective) for collective in collectives})


PLANNERS = {
    planner.name: planner
    for planner in (
        _planner("auto", "the best plan of the exact planners, which come next", EVERY_COLLECTIVE, _auto),
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
        _planner(
            "multicommodity",
            "paths of whole chunks from flows at the best rate, for any traffic between pairs",
            PAIR_COLLECTIVES,
            lazy.multicommodity,
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
        _planner(
            "shortest-paths",
            "everything at once, each pair over one shortest path, as libraries send it",
            PAIR_COLLECTIVES,
            lazy.shortest_paths,
        ),
        _planner("bfb", "breadth-first broadcast in steps, for networks without switches", EVERY_ROOT, lazy.bfb),
    )
}
"""By name.  A planner that does not suit a topology raises `UnsupportedError`, whose message is the reason."""


def bound(
    topology: Topology,
    collective: str,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
) -> Bound:
    """Find what no schedule of a collective can beat on a topology.

    Parameters
    ----------
    topology : Topology
        Every rank must reach every other; every switch must take in as much bandwidth as it gives out.  For the
        last two collectives, ranks must reach those that they have something for, and switches are free.
    collective : str
        ``"allgather"``, ``"reduce_scatter"``, ``"allreduce"``, ``"broadcast"``, ``"reduce"``, ``"all_to_all"`` or
        ``"all_to_allv"``.
    root : int or str, optional
        Rank that broadcast starts from and reduce ends at, by number or name.
    weights : sequence of number, optional
        Relative sizes of the shards in rank order, for allgather and reduce_scatter.
    traffic : matrix of number, shape (ranks, ranks), optional
        What each rank (row) has for each other (column), for all_to_allv.

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
    from .pairs.multicommodity import bound_pairs
    from .trees.forestcoll import bound_trees

    check_topology(topology)
    check_collective(collective, EVERY_COLLECTIVE, "the bound does not cover")
    if collective in PAIR_COLLECTIVES:
        shard_weights(topology, collective, root, weights)  # there are none
        return bound_pairs(topology, collective, traffic=traffic)
    if traffic is not None:
        raise UnsupportedError(f"{collective} takes no traffic; all_to_allv does")
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
        A key of `PLANNERS`.  ``"auto"`` is ``"forestcoll"``, but for an allreduce the first of ``"forestcoll"``,
        ``"strength"`` and ``"allreduce-lp"`` that takes the options given and reaches its bound, or the best of them.
    **options : object
        What the planner takes: for ``"auto"`` and ``"forestcoll"``, ``trees_per_root``, and ``root`` and ``weights`` as
        for `bound`.  Where roots have unequal parts of the data, ``trees_per_root`` is the number per unit of such a
        part: see `Forest.root_weights`.  ``"bfb"``, whose plans have steps, takes ``chunks`` per shard, and the
        ``size`` that it plans for; ``"multicommodity"`` takes `chunks`, the ``order`` of hops, and for an all-to-allv
        the ``traffic``: see `collopt.planners.pairs.multicommodity.plan_pairs`.

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
    check_topology(topology)
    check_planner(planner)
    functions = PLANNERS[planner].functions
    check_collective(collective, tuple(functions), f"the planner {planner!r} does not cover")
    _check_options(functions[collective], options, planner)
    return functions[collective](topology, **options)


def check_planner(name: object) -> None:
    """Raise `UnsupportedError` for a name that is no planner's, before anything else is looked at.

    Examples
    --------
    >>> check_planner("forest_coll")
    Traceback (most recent call last):
        ...
    collopt.errors.UnsupportedError: there is no planner 'forest_coll'; did you mean forestcoll?
    """
    if not isinstance(name, str) or name not in PLANNERS:
        raise unknown_name("planner", name, PLANNERS)


def unknown_name(what: str, name: object, known: Iterable[str]) -> UnsupportedError:
    """Return an error about a name that nothing has: with the one that was meant, or else with those that there are."""
    names = list(known)
    close = get_close_matches(name.lower().replace("_", "-")[:50], names, n=1) if isinstance(name, str) else []
    mended = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(names)}"
    return UnsupportedError(f"there is no {what} {shown(name)}; {mended}")


def _best_allreduce(topology: Topology, options: dict[str, Any]) -> Plan:
    """Ask one exact planner after the other; none of them beats "strength" where it applies."""
    best: Plan | None = None
    refusal: Exception | None = None
    for name in ("forestcoll", "strength", "allreduce-lp"):
        function = PLANNERS[name].functions["allreduce"]
        if not set(options) <= set(_options_of(function)):
            continue
        try:
            made = function(topology, **options)
        except (UnsupportedError, NoAnswerError, CapacityOverflowError) as error:
            refusal = refusal or error  # not for this network, or too large for it
            continue
        if best is None or (made.algbw, -made.gap) > (best.algbw, -best.gap):
            best = made
        if best.gap == 0 or name == "strength":
            break
    if best is None:
        assert refusal  # every planner that was asked has refused, and ForestColl takes all options
        raise refusal
    return best


def _options_of(function: Callable[..., Plan]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "topology"]


def _check_options(function: Callable[..., Plan], options: dict[str, Any], planner: str) -> None:
    known = _options_of(function)
    for option in options:
        if option == "traffic" and option not in known:
            raise UnsupportedError("only all_to_allv takes traffic; leave it out, or ask for all_to_allv")
        if option not in known:
            expected = f"expected one of {', '.join(known)}" if known else "it takes none here"
            raise UnsupportedError(f"planner {planner!r} has no option {option!r}; {expected}")
