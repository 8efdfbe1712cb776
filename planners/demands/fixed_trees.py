"""What libraries do for demands: copies one by one, chains as rings pipeline them, and binary trees, one per item."""

from ...schedules import Demands
from ...schedules.collective import DEMANDS
from ...topologies import Topology
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from .cuts import bound_demands
from .forests import fixed_forest


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


def _planned(topology: Topology, demands: Demands, planner: str) -> Plan:
    trace = Trace()
    with trace.stage("trees"):
        schedule = fixed_forest(topology, demands, planner)
    with trace.stage("bound"):
        bound = bound_demands(topology, demands)
    return proved_plan(topology, demands, schedule, planner, {}, trace, bound)
