"""Schedules: forests of trees with routes, schedules in steps, flows, their bounds, checks and costs."""

from ..support.quantities import as_bytes
from .bounds.bound import Bound, link_values
from .bounds.cuts import Cut, Partition, RankCuts
from .bounds.item_cuts import ItemCut, ItemCuts
from .bounds.length_duals import CutDual, LengthDual
from .bounds.size_bound import FanOut, RateAndHop, SizeBound, TimedCut, TimedLink, TimedRequest, TimeWitness
from .bounds.tree_witnesses import LoopbackPartition, TreeDual, TreePartition
from .bounds.witness import EVERY_SCHEDULE, Crossing, LinkValue, Witness
from .collective import (
    ALL_TO_ALL,
    ALL_TO_ALLV,
    ALLGATHER,
    ALLREDUCE,
    BROADCAST,
    COLLECTIVES,
    PAIR_COLLECTIVES,
    REDUCE,
    REDUCE_SCATTER,
    TREE_COLLECTIVES,
    Collective,
    register_collective,
)
from .demands import Demands, Item
from .schedule import (
    SCHEDULE_KINDS,
    Schedule,
    rate_of_loads,
    schedule_from_json,
    schedule_time,
    schedule_to_json,
    verified_loads,
)
from .stages.schedule import AllToAllvSchedule, Stage
from .stages.two_tier_cost import H200, MI300X, PIPELINES, TwoTierModel, TwoTierTimes
from .steps.allreduce import AnyStepSchedule, StepAllreduce, StepCost, step_cost
from .steps.expansions import (
    allreduce_schedule,
    base_reduce_scatter,
    base_schedule,
    bidirectional_schedule,
    cartesian_power_schedule,
    degree_expansion_schedule,
    line_graph_schedule,
    reduce_scatter_schedule,
    reversed_schedule,
    without_repeats,
)
from .steps.flow import FlowPath, FlowSchedule, StagedFlow
from .steps.step_schedule import Send, StepExchange, StepSchedule
from .transfers import busiest_links, congestion
from .trees.demand_forest import DemandForest
from .trees.forest import Allreduce, Forest, TreeSchedule
from .trees.in_network import in_network
from .trees.symmetric_forest import RankEdges, RankTransfers, SymmetricAllreduce, SymmetricForest, rank_transfers
from .trees.tree_arrays import TreeEdge
from .trees.tree_schedule import Tree

__all__ = ["ALLGATHER", "ALLREDUCE", "ALL_TO_ALL", "ALL_TO_ALLV", "BROADCAST", "REDUCE", "REDUCE_SCATTER"]
__all__ += ["COLLECTIVES", "PAIR_COLLECTIVES", "TREE_COLLECTIVES", "Collective", "as_bytes"]
__all__ += ["Demands", "Item", "register_collective"]
__all__ += ["Schedule", "busiest_links", "congestion", "rate_of_loads", "schedule_time", "verified_loads"]
__all__ += ["SCHEDULE_KINDS", "schedule_from_json", "schedule_to_json"]
__all__ += ["Allreduce", "Forest", "SymmetricAllreduce", "SymmetricForest", "Tree", "TreeEdge", "TreeSchedule"]
__all__ += ["DemandForest", "in_network"]
__all__ += ["RankEdges", "RankTransfers", "rank_transfers"]
__all__ += ["AnyStepSchedule", "Send", "StepAllreduce", "StepCost", "StepExchange", "StepSchedule", "step_cost"]
__all__ += ["FlowPath", "FlowSchedule", "StagedFlow"]
__all__ += ["H200", "MI300X", "PIPELINES", "AllToAllvSchedule", "Stage", "TwoTierModel", "TwoTierTimes"]
__all__ += ["EVERY_SCHEDULE", "Bound", "Crossing", "Cut", "CutDual", "LengthDual", "LinkValue", "Partition", "RankCuts"]
__all__ += ["ItemCut", "ItemCuts"]
__all__ += ["LoopbackPartition", "TreeDual", "TreePartition", "Witness", "link_values"]
__all__ += ["FanOut", "RateAndHop", "SizeBound", "TimeWitness", "TimedCut", "TimedLink", "TimedRequest"]
__all__ += ["allreduce_schedule", "reduce_scatter_schedule", "reversed_schedule", "without_repeats"]
__all__ += ["base_reduce_scatter", "base_schedule", "bidirectional_schedule", "cartesian_power_schedule"]
__all__ += ["degree_expansion_schedule", "line_graph_schedule"]
