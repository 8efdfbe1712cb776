"""Registry of planners: look-up by name, and the function `plan`."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

from ..errors import CapacityOverflowError, NoAnswerError, UnsupportedError
from ..schedules import ALLREDUCE, COLLECTIVES, Collective
from ..schedules.collective import AnyCollective, CollectiveName, as_collective
from ..support.validation import as_flag, shown
from ..topologies import RuntimeCosts, Topology
from ..topologies.files import NetworkLike, as_network
from ..topologies.network.link_costs import CostsName, as_costs
from .catalogue import PLANNERS, Planner, PlannerName
from .fastest import plan_for_size
from .plans.plan import Plan
from .trees.problem import has_few_trees, shard_weights

__all__ = ["PLANNERS", "CollectiveName", "Planner", "PlannerName", "as_planner", "plan", "unknown_name"]

MANY_RANKS = 64
"""Above which what is exact may take minutes, and trees of switches that add, or FAST's stages, are tried first."""
VERY_MANY_RANKS, VERY_MANY_LINKED = 1024, 512
"""Above which trees by symmetries are tried first, in networks with switches and in those of ranks alone."""
HARDLY_SLOWER = Fraction(1, 1000)  # the gap up to which these are taken
CLOSE = Fraction(1, 50)  # the gap up to which these stages are taken


DEFAULTS: tuple[dict[str, Any], ...] = ({}, {"in_network": True})  # options that leave an allreduce all freedom


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
        A key of `PLANNERS`, or a planner of your own.  ``"auto"`` is ``"forestcoll"``, or ``"symmetric"`` on more
        than 1024 ranks, or 512 without switches, where that comes within 0.1 % of its bound.  For an allreduce it is
        the first of ``"forestcoll"``, ``"strength"`` and ``"allreduce-lp"`` that takes the options given and reaches
        its bound, or the best of them and, on small networks with able switches, ``"steiner"``; on more than 64 ranks
        ``"strength"`` where its trees gain by spanning switches; ``"multicommodity"`` for an all-to-all(v), but
        ``"fast"`` for uneven traffic of more than 64 ranks where it comes within 2 % of its bound.
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
    }
    options = {name: value for name, value in given.items() if value is not None}
    _check_options(chosen, collective, options)
    if costs is not None:
        topology = topology.changed(costs=as_costs(costs, topology))
    return chosen(topology, collective, **options)


def plan_auto(topology: Topology, collective: Collective, *, size: int | str | None = None, **options: Any) -> Plan:
    """Plan with the exact planner of the collective, for an allreduce with the best of three; or for a size."""
    if size is None:
        return _plan_exactly(topology, collective, **options)
    return plan_for_size(
        topology, collective, size, lambda network: _plan_exactly(network, collective, **options), options
    )


def _plan_exactly(topology: Topology, collective: Collective, **options: Any) -> Plan:
    many = VERY_MANY_RANKS if topology.switch_nodes else VERY_MANY_LINKED
    if topology.num_ranks > many and not options and (symmetric := _by_symmetry(topology, collective)):
        return symmetric
    if collective.in_pairs:
        return _in_stages(topology, collective, options) or PLANNERS["multicommodity"](topology, collective, **options)
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
    if best.gap and options in DEFAULTS and has_few_trees(topology):
        with suppress(UnsupportedError, NoAnswerError):  # groups of switches are too small, or floats too coarse
            best = max(best, PLANNERS["steiner"](topology, ALLREDUCE), key=lambda made: (made.algbw, -made.gap))
    return best


def _by_symmetry(topology: Topology, collective: Collective) -> Plan | None:
    """Plan by symmetries, if that covers the collective and comes close to the bound."""
    if PLANNERS["symmetric"].plans(collective):
        with suppress(UnsupportedError, CapacityOverflowError):
            made = PLANNERS["symmetric"](topology, collective)
            return made if made.gap <= HARDLY_SLOWER else None
    return None


def _plan_with_switches(topology: Topology) -> Plan | None:
    from .trees.strength import plan_with_switches

    with suppress(UnsupportedError, NoAnswerError, CapacityOverflowError):
        return plan_with_switches(topology)
    return None  # not for this network, or too large for it


def _in_stages(topology: Topology, collective: Collective, options: dict[str, Any]) -> Plan | None:
    """Plan uneven traffic of many ranks by FAST, if that suits and comes close to its bound."""
    if topology.num_ranks > MANY_RANKS and options.keys() == {"traffic"}:
        with suppress(UnsupportedError, NoAnswerError, CapacityOverflowError):
            made = PLANNERS["fast"](topology, collective, **options)
            return made if made.gap <= CLOSE else None
    return None


def _check_options(planner: Planner, collective: Collective, options: Mapping[str, Any]) -> None:
    known = planner.options[collective.name]
    for option in options:
        if option == "traffic" and option not in known:
            raise UnsupportedError("only all_to_allv takes traffic; leave it out, or ask for all_to_allv")
        if option not in known:
            expected = f"expected one of {', '.join(known)}" if known else "it takes none here"
            raise UnsupportedError(f"planner {planner.name!r} has no option {option!r}; {expected}")
