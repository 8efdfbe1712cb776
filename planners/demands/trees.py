"""The planner ``steiner-trees``: any demands by trees from their sources to their destinations."""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Bound, DemandForest, Demands
from ...schedules.collective import DEMANDS
from ...support.validation import as_kind, as_whole, shown
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from .cuts import bound_packing
from .packing import PackedTree, packed

MAX_UNITS = 2**50  # of all trees together; finer rates are rounded
GRAINS = 2**20  # units of a group whose rates are rounded


def bound_demands(topology: Topology, demands: Demands) -> Bound:
    """Bound any schedule of demands, as `collopt.bound`."""
    as_topology(topology)
    return bound_packing(topology, demands, packed(topology, demands))


@register_planner("steiner-trees", (DEMANDS,))
def plan_demands(topology: Topology, demands: Demands, *, chunks: int | None = None, order: str | None = None) -> Plan:
    """Plan trees that bring every item from any of its sources to its destinations.

    With ``order="layers"`` each layer comes as early as those before it allow.
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
    with trace.stage("bound"):
        bound = bound_packing(topology, demands, packing)
    given = {"chunks": chunks, "order": order}
    options = {name: value for name, value in given.items() if value is not None}
    return proved_plan(topology, demands, schedule, "steiner-trees", options, trace, bound)


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
        loads = loads + schedule.link_loads(topology) * (part.unit / demands.unit / schedule.trees_per_root)
        trees += [(tree._replace(group=numbers[tree.group]), rate) for tree, rate in packing.trees]
    return trees


def weighted_forest(
    topology: Topology, demands: Demands, trees: Sequence[tuple[PackedTree, Fraction]], chunks: int | None = None
) -> DemandForest:
    """Count trees in whole units: `chunks` for each unit of data, or as many as their rates need."""
    shares: list[list[tuple[PackedTree, Fraction]]] = [[] for _ in demands.groups]
    for tree, rate in trees:
        shares[tree.group].append((tree, rate))
    for row in shares:
        total = sum((rate for _, rate in row), Fraction(0))
        row[:] = [(tree, rate / total) for tree, rate in row]
    weights = [group.weight for group in demands.groups]
    count = chunks or lcm(
        *(
            lcm(share.denominator, weight) // weight
            for weight, row in zip(weights, shares, strict=True)
            for _, share in row
        )
    )
    if count * sum(weights) > MAX_UNITS:
        if chunks:
            raise UnsupportedError(f"chunks is {chunks}, of each of {sum(weights)} units of data; expected fewer")
        count = max(1, GRAINS // min(weights))
    rows = []
    for number, (weight, row) in enumerate(zip(weights, shares, strict=True)):
        counts = _rounded([share for _, share in row], count * weight)
        rows += [(copies, tree.paths, number) for (tree, _), copies in zip(row, counts, strict=True) if copies]
    having = [set(sources) for sources, _ in demands.ends(topology)]
    begun = [min(path[0] for path in paths if path[0] in having[group]) for _, paths, group in rows]
    return DemandForest.of_trees(
        topology, demands, count, [(root, *row) for root, row in zip(begun, rows, strict=True)]
    )


def _rounded(shares: Sequence[Fraction], total: int) -> list[int]:
    """Divide a whole number by shares, the largest remainders rounded up (Hamilton)."""
    parts = [share * total for share in shares]
    counts = [int(part) for part in parts]
    order = sorted(range(len(parts)), key=lambda place: counts[place] - parts[place])
    for place in order[: total - sum(counts)]:
        counts[place] += 1
    return counts
