"""What libraries do for demands: copies one by one, chains as rings pipeline them, and binary trees, one per item."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from ...schedules import DemandForest, Demands
from ...schedules.collective import DEMANDS
from ...solvers.trees.steiner_trees import Tree
from ...topologies import Topology
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from .packing import Pricing
from .trees import bound_demands, weighted_forest

Ways = Sequence[tuple[int, int]]


def _copies(turn: int, sources: Sequence[int], targets: Sequence[int]) -> Ways:
    return [(sources[(turn + place) % len(sources)], target) for place, target in enumerate(targets)]


def _heap(turn: int, sources: Sequence[int], targets: Sequence[int], children: int) -> Ways:
    """Each destination receives from the one above it in a heap, the first from the source whose turn it is."""
    ranks = [sources[turn % len(sources)], *targets]
    return [(ranks[(place - 1) // children], ranks[place]) for place in range(1, len(ranks))]


PATTERNS: dict[str, Callable[[int, Sequence[int], Sequence[int]], Ways]] = {
    "item-copies": _copies,
    "item-chains": partial(_heap, children=1),
    "item-binary-trees": partial(_heap, children=2),
}
"""Who sends to whom, by the number of the group, its sources and its destinations."""


@register_planner("item-copies", (DEMANDS,))
def plan_copies(topology: Topology, demands: Demands) -> Plan:
    """Plan a copy from a source to each destination of an item, the sources by turns, as point-to-point sends."""
    return _planned(topology, demands, "item-copies")


@register_planner("item-chains", (DEMANDS,))
def plan_chains(topology: Topology, demands: Demands) -> Plan:
    """Plan a chain from a source through the destinations of each item in rank order, as rings broadcast."""
    return _planned(topology, demands, "item-chains")


@register_planner("item-binary-trees", (DEMANDS,))
def plan_binary_trees(topology: Topology, demands: Demands) -> Plan:
    """Plan a binary tree from a source over the destinations of each item in rank order, as trees broadcast."""
    return _planned(topology, demands, "item-binary-trees")


def fixed_forest(topology: Topology, demands: Demands, pattern: str) -> DemandForest:
    """Build one tree per group, of ways over few links."""
    pricing = Pricing(topology, demands)
    pricing.set_lengths(np.ones(topology.num_links, dtype=np.int64))
    trees = []
    for group, ends in enumerate(pricing.groups):
        tree = Tree(0, np.array(PATTERNS[pattern](group, *ends), dtype=np.int64))
        trees.append((pricing.expanded(group, tree), Fraction(1)))
    return weighted_forest(topology, demands, trees)


def _planned(topology: Topology, demands: Demands, planner: str) -> Plan:
    trace = Trace()
    with trace.stage("trees"):
        schedule = fixed_forest(topology, demands, planner)
    with trace.stage("bound"):
        bound = bound_demands(topology, demands)
    return proved_plan(topology, demands, schedule, planner, {}, trace, bound)
