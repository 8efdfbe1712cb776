"""The planner ``steiner-trees``: any demands by trees from their sources to their destinations."""

from fractions import Fraction
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...schedules import DemandForest, Demands, as_bytes
from ...schedules.collective import DEMANDS
from ...schedules.timed_run import MANY_EVENTS, Predictor
from ...support.validation import as_kind, as_whole, shown
from ...topologies import Topology
from ...topologies.network.link_costs import as_costs
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from .cuts import bound_packing
from .forests import PATTERNS, fixed_forest, weighted_forest
from .packing import PackedTree, packed


@register_planner("steiner-trees", (DEMANDS,))
def plan_demands(
    topology: Topology,
    demands: Demands,
    *,
    chunks: int | None = None,
    order: str | None = None,
    size: int | str | None = None,
) -> Plan:
    """Plan trees that bring every item from any of its sources to its destinations.

    With ``order="layers"`` each layer comes as early as those before it allow.  For a size, simpler trees are taken
    where their predicted time is less.
    """
    as_kind(demands, Demands, "the demands")
    if chunks is not None:
        as_whole(chunks, "chunks", high=2**16)
    if order not in (None, "layers"):
        raise UnsupportedError(f"order is {shown(order)}; expected 'layers', or None for all items at once")
    trace = Trace()
    with trace.stage("column generation"):
        packing = packed(topology, demands)
        trees = packing.trees if order is None else _by_layers(topology, demands)
    schedule = weighted_forest(topology, demands, trees, chunks)
    if size is not None and order is None:
        with trace.stage("times"):
            schedule = _fastest(topology, demands, schedule, as_bytes(size), trace)
    with trace.stage("bound"):
        bound = bound_packing(topology, demands, packing)
    values = {"chunks": chunks, "order": order}
    options = {name: value for name, value in values.items() if value is not None}
    return proved_plan(topology, demands, schedule, "steiner-trees", options, trace, bound)


def _fastest(topology: Topology, demands: Demands, best: DemandForest, num_bytes: int, trace: Trace) -> DemandForest:
    """Return these trees, or those of a fixed pattern, by their predicted times."""
    costs = as_costs(None, topology)
    forests = [best, *(fixed_forest(topology, demands, pattern) for pattern in PATTERNS)]
    times = [Predictor(forest, topology, costs).time(num_bytes, MANY_EVENTS) for forest in forests]
    trace.note("planned_for", f"{num_bytes} bytes")
    trace.note("predicted_us", float(min(times)))
    trace.note("plans_compared", len(forests))
    return forests[times.index(min(times))]


def _by_layers(topology: Topology, demands: Demands) -> list[tuple[PackedTree, Fraction]]:
    """Pack one layer after the other, each beside the loads of those before it."""
    places = {group[1:4]: number for number, group in enumerate(demands.groups)}
    loads: Any = np.full(topology.num_links, Fraction(0))
    trees: list[tuple[PackedTree, Fraction]] = []
    for layer in sorted({group.layer for group in demands.groups}):
        part = Demands([item for item in demands.items if item.layer == layer and item.destinations])
        packing = packed(topology, part, loads * demands.unit / part.unit)
        numbers = [places[group[1:4]] for group in part.groups]
        schedule = weighted_forest(topology, part, packing.trees)
        copies: Any = schedule.link_loads(topology)
        loads = loads + copies * (part.unit / demands.unit / schedule.trees_per_root)
        trees += [(tree._replace(group=numbers[tree.group]), rate) for tree, rate in packing.trees]
    return trees
