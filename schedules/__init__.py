"""What a plan is: forests of trees with routes, their bounds, checks and costs."""

from __future__ import annotations

from .allreduce import Allreduce, TreeSchedule
from .bound import COLLECTIVES, Bound, Cut, RankCuts, bus_factor
from .cost import as_bytes, forest_latency, schedule_time
from .forest import Forest, TreeEdge
from .forest_json import forest_from_json, forest_to_json, schedule_from_json, schedule_to_json
from .in_network import InNetwork, in_network
from .verify import verified_link_loads, verified_schedule_loads

__all__ = [
    "COLLECTIVES",
    "Allreduce",
    "Bound",
    "Cut",
    "Forest",
    "InNetwork",
    "RankCuts",
    "TreeEdge",
    "TreeSchedule",
    "as_bytes",
    "bus_factor",
    "forest_from_json",
    "forest_latency",
    "forest_to_json",
    "in_network",
    "schedule_from_json",
    "schedule_time",
    "schedule_to_json",
    "verified_link_loads",
    "verified_schedule_loads",
]
