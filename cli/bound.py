"""``collopt bound``: what no schedule can beat, and the cut that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .output import emit_json, emit_rows
from .parameters import (
    BoxesOption,
    CollectiveArgument,
    JsonOption,
    NetworkOptions,
    NodesOption,
    RanksOption,
    SetOption,
    ShapeOption,
    TopologyArgument,
)
from .progress import computing
from .wording import rate, shortened

if TYPE_CHECKING:
    from ..schedules import Bound

__all__ = ["bound"]


def bound(
    topology: TopologyArgument,
    collective: CollectiveArgument,
    boxes: BoxesOption = None,
    nodes: NodesOption = None,
    shape: ShapeOption = None,
    ranks: RanksOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the exact bound on the speed of a collective, and the bottleneck cut that proves it."""
    from ..planners import bound as find_bound
    from .networks import find_network

    network = find_network(topology, NetworkOptions(boxes, nodes, shape, ranks, settings))
    with computing(f"bounding {collective} on {network.name}"):
        found = find_bound(network, collective)
        found.verify()
    if as_json:
        emit_json(_as_json(found))
    else:
        _print(found)


def _as_json(found: Bound) -> dict[str, Any]:
    cut = found.witness
    return {
        "topology": found.topology.name,
        "digest": found.topology.digest,
        "collective": found.collective,
        "num_ranks": found.topology.num_ranks,
        "inverse_rate": str(found.inverse_rate),
        "algbw": float(found.algbw),
        "algbw_exact": str(found.algbw),
        "busbw": float(found.busbw),
        "trees_per_root": found.trees_per_root,
        "cut_ranks": cut.supply(found.topology),
        "cut_bandwidth": str(cut.bandwidth(found.topology)),
        "cut": [node for node in found.topology.nodes if node in cut.nodes],
    }


def _print(found: Bound) -> None:
    network, cut = found.topology, found.witness
    rows = {
        "algbw": f"at most {rate(found.algbw)}",
        "busbw": f"at most {rate(found.busbw)}",
        "1/x*": f"{found.inverse_rate} ns per byte of a shard",
        "trees per root": f"{found.trees_per_root} reach it exactly",
        "bottleneck cut": f"{cut.supply(network)} of {network.num_ranks} ranks, "
        f"whose shards leave over {cut.bandwidth(network)} GB/s",
        "ranks inside": shortened(node for node in network.compute_nodes if node in cut.nodes),
    }
    if switches := [node for node in network.switch_nodes if node in cut.nodes]:
        rows["switches inside"] = shortened(switches)
    emit_rows(f"{found.collective} on {network.name}, {network.num_ranks} ranks", rows)
