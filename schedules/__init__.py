"""What a plan is: forests of trees with routes, their bounds, checks and costs."""

from __future__ import annotations

from .allreduce import Allreduce, TreeSchedule
from .bound import COLLECTIVES, Bound, bus_factor
from .cost import as_bytes, forest_latency, schedule_time
from .forest import Forest, TreeEdge
from .forest_json import forest_from_json, forest_to_json, schedule_from_json, schedule_to_json
from .in_network import InNetwork, in_network
from .link_prices import bound_sensitivity, link_prices
from .prices import LinkPrice, Prices
from .rates import busiest_links, congestion
from .step_cost import StepCost, step_cost
from .step_schedule import AnyStepSchedule, Send, StepAllreduce, StepSchedule
from .step_verify import verified_step_loads, verified_step_schedule_loads
from .verify import verified_link_loads, verified_schedule_loads
from .witnesses import EVERY_SCHEDULE, Crossing, Cut, Partition, RankCuts, Witness

__all__ = [
    "COLLECTIVES",
    "EVERY_SCHEDULE",
    "Allreduce",
    "AnyStepSchedule",
    "Bound",
    "Crossing",
    "Cut",
    "Forest",
    "InNetwork",
    "LinkPrice",
    "Partition",
    "Prices",
    "RankCuts",
    "Send",
    "StepAllreduce",
    "StepCost",
    "StepSchedule",
    "TreeEdge",
    "TreeSchedule",
    "Witness",
    "as_bytes",
    "bound_sensitivity",
    "bus_factor",
    "busiest_links",
    "congestion",
    "forest_from_json",
    "forest_latency",
    "forest_to_json",
    "in_network",
    "link_prices",
    "schedule_from_json",
    "schedule_time",
    "schedule_to_json",
    "step_cost",
    "verified_link_loads",
    "verified_schedule_loads",
    "verified_step_loads",
    "verified_step_schedule_loads",
]
