"""Registry of planners, and the functions `plan` and `bound`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Literal

from ..errors import CapacityOverflowError, NoAnswerError, UnsupportedError
from ..schedules import (
    ALLREDUCE,
    BROADCAST,
    COLLECTIVES,
    PAIR_COLLECTIVES,
    REDUCE,
    TREE_COLLECTIVES,
    Bound,
    Collective,
)
from ..schedules.traffic.collective import EVERY_ROOT, AnyCollective, CollectiveName, as_collective
from ..support.validation import as_flag, shown
from ..topologies import Topology
from .plans.plan import Plan
from .trees.problem import check_topology, shard_weights

__all__ = ["PLANNERS", "CollectiveName", "Planner", "PlannerName", "as_planner", "bound", "plan", "unknown_name"]

PlannerName = Literal[
    "auto",
    "forestcoll",
    "strength",
    "allreduce-lp",
    "multicommodity",
    "ring",
    "hierarchical-ring",
    "double-binary-tree",
    "nvls",
    "nvls-tree",
    "collnet",
    "recursive-halving-doubling",
    "multitree",
    "blink",
    "shortest-paths",
    "bfb",
    "steiner",
    "swing",
    "bine",
]
"""The planners that come with collopt."""


@dataclass(frozen=True)
class Planner:
    """A planner: its name, function and options by collective.

    Attributes
    ----------
    name : str
        As `plan` takes it.
    summary : str
        One line for listings.
    function : callable or str
        Takes a topology, the `Collective` unless it plans only one, and the options as keywords; returns a `Plan`.  As
        a string, ``"package.module:function"`` below `collopt.planners`, imported when called: kernels load slowly.
    options : mapping of str to tuple of str
        The names of the options for each collective that it plans, by the collective's name.

    Examples
    --------
    >>> PLANNERS["bfb"].options["allgather"]
    ('chunks', 'size')
    """

    name: str
    summary: str
    function: Callable[..., Plan] | str
    options: Mapping[str, tuple[str, ...]]

    def takes(self, collective: AnyCollective, option: str) -> bool:
        """Whether it has an option for a collective."""
        return option in self.options.get(str(collective), ())

    def __call__(self, topology: Topology, collective: AnyCollective, **options: Any) -> Plan:
        """Plan, with options that it has."""
        if isinstance(self.function, str):
            module, _, name = self.function.partition(":")
            function: Callable[..., Plan] = getattr(import_module(f".{module}", __package__), name)
        else:
            function = self.function
        several = len(self.options) > 1
        return function(topology, as_collective(collective), **options) if several else function(topology, **options)


def _for(collectives: Iterable[Collective], *options: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(map(str, collectives), options)


class _PairOptions(Mapping[str, tuple[str, ...]]):
    """Planner options by collective: those given for tree collectives; root or traffic, and `more`, for pair ones."""

    def __init__(self, more: tuple[str, ...], trees: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._more, self._trees = more, trees or {}

    def __getitem__(self, name: str) -> tuple[str, ...]:
        known = COLLECTIVES.get(name)
        if known is None or not known.in_pairs:
            return self._trees[name]
        own = (("root", known.has_one_root), ("traffic", known.takes_traffic))
        return (*(option for option, has_it in own if has_it), *self._more)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._trees, *map(str, PAIR_COLLECTIVES)))

    def __len__(self) -> int:
        return len(self._trees) + len(PAIR_COLLECTIVES)


MANY_RANKS = 64  # above which ForestColl's trees may take minutes, and those of switches that add are packed first

FEW_RANKS, FEW_SWITCHES = 8, 4  # up to which the best trees that branch at switches take no more than a second

DEFAULTS: tuple[dict[str, Any], ...] = ({}, {"in_network": True})  # options that leave an allreduce all freedom

TREE_OPTIONS = ("trees_per_root", "root", "weights", "in_network")

PLANNERS = {
    planner.name: planner
    for planner in (
        Planner(
            "auto",
            "the best plan of the exact planners listed next",
            "registry:plan_auto",
            _PairOptions(("chunks", "order"), _for(TREE_COLLECTIVES, *TREE_OPTIONS)),
        ),
        Planner(
            "forestcoll",
            "throughput-optimal spanning trees, one set per rank (ForestColl)",
            "trees.forestcoll:plan_trees",
            _for(TREE_COLLECTIVES, *TREE_OPTIONS),
        ),
        Planner(
            "strength",
            "optimal allreduce on symmetric bidirectional links, by network strength",
            "trees.strength:plan_strength",
            _for([ALLREDUCE], "in_network"),
        ),
        Planner(
            "allreduce-lp",
            "optimal tree allreduce by linear programming",
            "trees.allreduce_lp:plan_allreduce_lp",
            _for([ALLREDUCE], "trees_per_root", "in_network"),
        ),
        Planner(
            "multicommodity",
            "paths of whole chunks from a maximum concurrent flow, for any traffic matrix",
            "pairs.multicommodity:plan_pairs",
            _PairOptions(("chunks", "order")),
        ),
        Planner(
            "ring",
            "rings through all boxes, as NCCL and RCCL run them",
            "patterns.ring:plan_ring",
            _for(TREE_COLLECTIVES, "channels", "order", "root", "weights"),
        ),
        Planner(
            "hierarchical-ring",
            "rings among boxes, then rings inside boxes (BlueConnect)",
            "patterns.hierarchical_ring:plan_hierarchical_ring",
            _for(EVERY_ROOT, "weights"),
        ),
        Planner(
            "double-binary-tree",
            "two trees over the boxes, as NCCL runs them",
            "patterns.double_binary_tree:plan_double_binary_tree",
            _for([ALLREDUCE, BROADCAST, REDUCE], "root"),
        ),
        Planner(
            "nvls",
            "one switch adds up and copies, as NCCL's NVLS",
            "patterns.nvls:plan_nvls",
            _for(EVERY_ROOT),
        ),
        Planner(
            "nvls-tree",
            "NVLS in boxes, double binary trees between them, as NCCL's NVLSTree",
            "patterns.nvls:plan_nvls_tree",
            _for([ALLREDUCE]),
        ),
        Planner(
            "collnet",
            "switches of the fabric add up for GPUs that do so in boxes, as NCCL's CollNet",
            "patterns.nvls:plan_collnet",
            _for([ALLREDUCE]),
        ),
        Planner(
            "recursive-halving-doubling",
            "recursive halving and doubling among ranks that differ in one bit",
            "patterns.recursive_halving_doubling:plan_recursive_doubling",
            _for(EVERY_ROOT),
        ),
        Planner(
            "multitree",
            "one greedily grown tree per rank (MultiTree)",
            "patterns.multitree:plan_multitree",
            _for(EVERY_ROOT, "weights"),
        ),
        Planner(
            "blink",
            "optimal trees that all have one root (Blink)",
            "patterns.blink:plan_blink",
            _for(TREE_COLLECTIVES, "root", "weights"),
        ),
        Planner(
            "shortest-paths",
            "each pair over one shortest path, all at once, as libraries send it",
            "pairs.multicommodity:plan_shortest_paths",
            _PairOptions(()),
        ),
        Planner(
            "bfb",
            "breadth-first broadcast in steps, for networks without switches",
            "bfb.bfb:plan_bfb",
            _for(EVERY_ROOT, "chunks", "size"),
        ),
        Planner(
            "steiner",
            "the best trees that branch at able switches, on small networks",
            "trees.steiner:plan_steiner",
            _for(TREE_COLLECTIVES, "root", "weights"),
        ),
        Planner(
            "swing",
            "exchanges at distances 1, 1, 3, 5, ..., on tori with all ports (Swing)",
            "step_patterns.swing:plan_swing",
            _for(EVERY_ROOT),
        ),
        Planner(
            "bine",
            "the same distances in trees and butterflies (Bine trees)",
            "step_patterns.swing:plan_bine",
            _for(EVERY_ROOT) | _for([BROADCAST, REDUCE], "root"),
        ),
    )
}
"""By name.  A planner that does not suit a topology raises `UnsupportedError`, whose message is the reason."""


def bound(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
) -> Bound:
    """Bound the rate of any schedule of a collective on a topology.

    Raises `UnsupportedError` for a collective without a bound here, an unbalanced switch, or a root or weights that do
    not fit; `BoundError` if some rank cannot reach another.

    Parameters
    ----------
    topology : Topology
        Every rank must reach every other; every switch must take in as much bandwidth as it gives out.  For the
        last two collectives, ranks must reach those that they have something for, and switches are free.
    collective : str or Collective
        ``"allgather"``, ``"reduce_scatter"``, ``"allreduce"``, ``"broadcast"``, ``"reduce"``, ``"all_to_all"`` or
        ``"all_to_allv"``; or one that was registered.
    root : int or str, optional
        Rank that broadcast starts from and reduce ends at, by number or name.
    weights : sequence of number, optional
        Relative sizes of the shards in rank order, for allgather and reduce_scatter.
    traffic : matrix of number, shape (ranks, ranks), optional
        What each rank (row) has for each other (column), for all_to_allv.

    Returns
    -------
    Bound

    Examples
    --------
    >>> from collopt.topologies import mi250
    >>> bound(mi250(boxes=2), "allgather").inverse_rate
    Fraction(15, 166)
    """
    from .pairs.multicommodity import bound_pairs
    from .trees.forestcoll import bound_trees

    check_topology(topology)
    collective = as_collective(collective, COLLECTIVES.values(), "the bound does not cover")
    if collective.in_pairs:
        shard_weights(topology, collective, root, weights)  # there are none
        return bound_pairs(topology, collective, root=root, traffic=traffic)
    if traffic is not None:
        raise UnsupportedError(f"{collective} takes no traffic; all_to_allv does")
    return bound_trees(topology, collective, root=root, weights=weights)


def plan(
    topology: Topology,
    collective: AnyCollective,
    *,
    planner: PlannerName | Planner = "auto",
    trees_per_root: int | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    chunks: int | None = None,
    size: int | str | None = None,
    channels: int | None = None,
    order: str | Sequence[int | str] | None = None,
    in_network: bool | None = None,
) -> Plan:
    """Plan a collective on a topology.

    Options that are None are left to the planner; one that the planner does not have for the collective is refused.
    Raises `UnsupportedError` for an unknown planner, a collective or an option that it does not have, or a topology
    that it cannot plan on; `BoundError` if some rank cannot reach another.

    Parameters
    ----------
    topology, collective
        As for `bound`.
    planner : str or Planner
        A key of `PLANNERS`, or a planner of your own.  ``"auto"`` is ``"forestcoll"``, but for an allreduce the first
        of ``"forestcoll"``, ``"strength"`` and ``"allreduce-lp"`` that takes the options given and reaches its bound,
        or the best of them and, on small networks with able switches, ``"steiner"``; on more than 64 ranks
        ``"strength"`` where its trees gain by spanning switches; ``"multicommodity"`` for an all-to-all(v).
    trees_per_root : int, optional
        The number k of trees per root, for ``"forestcoll"`` and ``"allreduce-lp"``; by default the smallest that
        reaches the bound.  Where roots have unequal shards, per unit of weight: see `Forest.root_weights`.
    root, weights, traffic
        As for `bound`.
    chunks : int, optional
        Chunks per shard, for ``"bfb"``; chunks per unit of traffic, for ``"multicommodity"``.
    size : int or str, optional
        Bytes that ``"bfb"`` plans for where links differ in latency, such as ``"1M"``.
    channels : int, optional
        Number of rings, for ``"ring"``.
    order : str or sequence of int or str, optional
        The order of ranks along a ``"ring"``; the order of hops, for ``"multicommodity"``.
    in_network : bool, optional
        Whether trees may branch at switches that multicast or aggregate, for ``"forestcoll"``, ``"strength"`` and
        ``"allreduce-lp"``; by default they do wherever switches can.

    Returns
    -------
    Plan
        Already verified.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> plan(ring(4, bandwidth=25), "allgather").algbw
    Fraction(200, 3)
    >>> plan(ring(4, bandwidth=25), "allgather", planner="blink").algbw
    Fraction(40, 1)
    """
    check_topology(topology)
    chosen = as_planner(planner)
    covered = [each for each in COLLECTIVES.values() if each.name in chosen.options]
    collective = as_collective(collective, covered, f"the planner {chosen.name!r} does not cover")
    given = {
        "trees_per_root": trees_per_root,
        "root": root,
        "weights": weights,
        "traffic": traffic,
        "chunks": chunks,
        "size": size,
        "channels": channels,
        "order": order,
        "in_network": None if in_network is None else as_flag(in_network, "in_network"),
    }
    options = {name: value for name, value in given.items() if value is not None}
    _check_options(chosen, collective, options)
    return chosen(topology, collective, **options)


def plan_auto(topology: Topology, collective: Collective, **options: Any) -> Plan:
    """Plan with the exact planner of the collective; for an allreduce, with the best of three."""
    if collective.in_pairs:
        return PLANNERS["multicommodity"](topology, collective, **options)
    if collective.has_two_phases:
        root, weights = options.pop("root", None), options.pop("weights", None)
        shard_weights(topology, collective, root, weights)  # it has neither
        return _best_allreduce(topology, options)
    return PLANNERS["forestcoll"](topology, collective, **options)


def as_planner(value: object) -> Planner:
    """Return the planner of this name, or the planner itself; anything else raises `UnsupportedError`."""
    if isinstance(value, Planner):
        return value
    if not isinstance(value, str) or value not in PLANNERS:
        raise unknown_name("planner", value, PLANNERS)
    return PLANNERS[value]


def unknown_name(what: str, name: object, known: Iterable[str]) -> UnsupportedError:
    """Return the error for an unknown name, with the closest known one, or else all known ones."""
    names = list(known)
    close = get_close_matches(name.lower().replace("_", "-")[:50], names, n=1) if isinstance(name, str) else []
    mended = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(names)}"
    return UnsupportedError(f"there is no {what} {shown(name)}; {mended}")


def _best_allreduce(topology: Topology, options: dict[str, Any]) -> Plan:
    """Try the exact planners in turn, and where a gap is left, trees that branch at switches, if these are few.

    On many ranks a plan whose trees span switches, and which is faster than the bound of all trees that do not, is
    taken without trying the others.
    """
    if topology.num_ranks > MANY_RANKS and options in DEFAULTS and (spanning := _plan_with_switches(topology)):
        return spanning
    best: Plan | None = None
    refusal: Exception | None = None
    for name in ("forestcoll", "strength", "allreduce-lp"):
        planner = PLANNERS[name]
        if not all(planner.takes(ALLREDUCE, option) for option in options):
            continue
        try:
            made = planner(topology, ALLREDUCE, **options)
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
    if best.gap and options in DEFAULTS and _has_few_trees(topology):
        with suppress(UnsupportedError, NoAnswerError):  # groups of switches are too small, or floats too coarse
            best = max(best, PLANNERS["steiner"](topology, ALLREDUCE), key=lambda made: (made.algbw, -made.gap))
    return best


def _plan_with_switches(topology: Topology) -> Plan | None:
    from .trees.strength import plan_with_switches

    with suppress(UnsupportedError, NoAnswerError, CapacityOverflowError):
        return plan_with_switches(topology)
    return None  # not for this network, or too large for it


def _has_few_trees(topology: Topology) -> bool:
    """Whether the best trees that branch at switches are found in a second."""
    return topology.num_ranks <= FEW_RANKS and 0 < len(topology.multicast | topology.aggregation) <= FEW_SWITCHES


def _check_options(planner: Planner, collective: Collective, options: Mapping[str, Any]) -> None:
    known = planner.options[collective.name]
    for option in options:
        if option == "traffic" and option not in known:
            raise UnsupportedError("only all_to_allv takes traffic; leave it out, or ask for all_to_allv")
        if option not in known:
            expected = f"expected one of {', '.join(known)}" if known else "it takes none here"
            raise UnsupportedError(f"planner {planner.name!r} has no option {option!r}; {expected}")
