"""Registry of planners: look-up by name, and the function `plan`."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ..errors import UnsupportedError
from ..schedules import COLLECTIVES, Collective
from ..schedules.collective import AnyCollective, CollectiveName, as_collective
from ..support.validation import as_flag, shown
from ..topologies import RuntimeCosts
from ..topologies.files import NetworkLike, as_network
from ..topologies.network.link_costs import CostsName, as_costs
from .catalogue import PLANNERS, Planner, PlannerName
from .plans.plan import Plan

__all__ = ["PLANNERS", "CollectiveName", "Planner", "PlannerName", "as_planner", "plan", "unknown_name"]


def plan(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    planner: PlannerName | Planner = "auto",
    trees_per_root: int | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    chunks: int | None = None,
    size: int | str | None = None,
    costs: RuntimeCosts | CostsName | None = None,
    family: str | None = None,
    channels: int | None = None,
    order: str | Sequence[int | str] | None = None,
    in_network: bool | None = None,
    radix: int | None = None,
    aggregation: int | None = None,
    effort: str | float | None = None,
    **network: Any,
) -> Plan:
    """Plan a collective on a topology, and verify the plan.

    Options that are None are left to the planner; one that the planner does not have for the collective is refused.
    Raises `UnsupportedError` for an unknown planner, a collective or an option that it does not have, or a topology
    that it cannot plan on; `BoundError` if some rank cannot reach another.

    Parameters
    ----------
    topology, collective
        As for `collopt.bound`.
    planner : str or Planner
        A key of `PLANNERS`, or a planner of your own.  ``"auto"`` runs exact planners until one reaches its bound, or
        with a `size` lets all planners compete; ``plan.provenance`` says which it ran and which it left out.
    trees_per_root : int, optional
        The number k of trees per root, for ``"forestcoll"`` and ``"allreduce-lp"``; by default the smallest that
        reaches the bound.  Where roots have unequal shards, per unit of weight: see `Forest.root_weights`.
    root, weights, traffic
        As for `collopt.bound`.
    chunks : int, optional
        Chunks per shard, for ``"bfb"``, ``"greedy"`` and ``"milp"``; chunks per unit of traffic, for
        ``"multicommodity"``.
    size : int or str, optional
        Bytes in all to plan for, such as ``"64K"``.  ``"auto"`` then returns the plan that is predicted to be the
        fastest for that size: in few steps for small data, of few low trees for more.  Also for ``"few-steps"``,
        ``"nccl"``, ``"fast"``, and ``"bfb"`` where links differ in latency.
    costs : RuntimeCosts or {"links", "generic", "fused"}, optional
        Costs of the software for times, instead of those that the topology states; the plan's topology has them.
    family : str, optional
        Which family of schedules, for ``"few-steps"``.
    channels : int, optional
        Number of rings, for ``"ring"``.
    order : str or sequence of int or str, optional
        The order of ranks along a ``"ring"``; the order of hops, for ``"multicommodity"``.
    in_network : bool, optional
        Whether trees may branch at switches that multicast or aggregate, for ``"forestcoll"``, ``"strength"`` and
        ``"allreduce-lp"``; by default they do wherever switches can.
    radix : int, optional
        Of ``"bruck"``: one more than the messages that a rank sends in a step.
    aggregation : int, optional
        Trees that ``"pat"`` sends through at once, a power of two.
    effort : {"low", "default", "high"} or float, optional
        How much ``"auto"`` may compute, or estimated CPU seconds of it.
    **network
        As for `collopt.bound`.

    Examples
    --------
    >>> plan("dgx-a100", "allgather", boxes=2).algbw
    Fraction(1040, 3)
    >>> from collopt.topologies import ring
    >>> plan(ring(4, bandwidth=25), "allgather").algbw
    Fraction(200, 3)
    >>> plan(ring(4, bandwidth=25), "allgather", planner="blink").algbw
    Fraction(40, 1)
    """
    topology = as_network(topology, network, plan)
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
        "radix": radix,
        "family": family,
        "aggregation": aggregation,
        "effort": effort,
    }
    options = {name: value for name, value in given.items() if value is not None}
    _check_options(chosen, collective, options)
    if costs is not None:
        topology = topology.changed(costs=as_costs(costs, topology))
    return chosen(topology, collective, **options)


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


def _check_options(planner: Planner, collective: Collective, options: Mapping[str, Any]) -> None:
    known = planner.options[collective.name]
    for option in options:
        if option == "traffic" and option not in known:
            raise UnsupportedError("only all_to_allv takes traffic; leave it out, or ask for all_to_allv")
        if option not in known:
            expected = f"expected one of {', '.join(known)}" if known else "it takes none here"
            raise UnsupportedError(f"planner {planner.name!r} has no option {option!r}; {expected}")
