"""What a plan is: forests of trees with routes, their bounds, checks and costs."""

from __future__ import annotations

from .bound import Bound, Cut
from .cost import as_bytes, forest_latency, forest_time
from .forest import Forest, TreeEdge
from .forest_json import forest_from_json, forest_to_json
from .verify import verified_link_loads

__all__ = [
    "Bound",
    "Cut",
    "Forest",
    "TreeEdge",
    "as_bytes",
    "forest_from_json",
    "forest_latency",
    "forest_time",
    "forest_to_json",
    "verified_link_loads",
]
