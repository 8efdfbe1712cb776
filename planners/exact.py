"""The planner ``auto``: the exact planner of each collective, the best of them for an allreduce."""

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

from ..errors import CapacityOverflowError, NoAnswerError, UnsupportedError
from ..schedules import ALLREDUCE, COLLECTIVES, Collective
from ..topologies import Topology
from .fastest import plan_for_size
from .plans.plan import Plan
from .plans.registry import PLANNERS, checked_keywords, register_planner
from .trees.problem import has_few_trees, shard_weights

MANY_RANKS = 64
"""Above which what is exact may take minutes, and trees of switches that add, or FAST's stages, are tried first."""
VERY_MANY_RANKS, VERY_MANY_LINKED = 1024, 512
"""Above which trees by symmetries are tried first, in networks with switches and in those of ranks alone."""
HARDLY_SLOWER = Fraction(1, 1000)  # the gap up to which these are taken
CLOSE = Fraction(1, 50)  # the gap up to which these stages are taken


DEFAULTS: tuple[dict[str, Any], ...] = ({}, {"in_network": True})  # options that leave an allreduce all freedom


@register_planner("auto", COLLECTIVES.values())
def plan_auto(
    topology: Topology,
    collective: Collective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    size: int | str | None = None,
    trees_per_root: int | None = None,
    in_network: bool | None = None,
    chunks: int | None = None,
    order: str | None = None,
) -> Plan:
    """Plan the best plan of the exact planners, or for a size the fastest of many planners.

    Options are those of the exact planner of the collective: `trees_per_root` and `in_network` of ``"forestcoll"``, or
    `chunks` and `order` of ``"multicommodity"``.
    """
    keywords = {
        "root": root,
        "weights": weights,
        "traffic": traffic,
        "trees_per_root": trees_per_root,
        "in_network": in_network,
        "chunks": chunks,
        "order": order,
    }
    exact = PLANNERS["multicommodity" if collective.in_pairs else "forestcoll"]
    options = checked_keywords(exact, collective, keywords)
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
