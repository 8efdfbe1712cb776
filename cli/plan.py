"""``collopt plan``: make a plan, prove it, write it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ..schedules import as_bytes
from ..schedules.units import percentage_text, time_text
from .figures import busiest_links, plan_figures
from .files import check_targets, writing
from .output import emit_json, emit_rows, note
from .parameters import (
    BoxesOption,
    CollectiveArgument,
    JsonOption,
    NetworkOptions,
    NodesOption,
    RanksOption,
    RootOption,
    SetOption,
    ShapeOption,
    TopologyArgument,
    UsageError,
    WeightsOption,
    WithoutOption,
    shard_options,
)
from .progress import computing
from .wording import gap, rate

if TYPE_CHECKING:
    from ..planners import Plan
    from ..schedules import Bound

__all__ = ["plan"]

TreesOption = Annotated[
    int | None,
    typer.Option(
        "--trees-per-root",
        help="Trees per root, or per unit of its part of the data; as many as the bound takes if left out.",
    ),
]
SizeOption = Annotated[
    str | None, typer.Option("--size", metavar="SIZE", help="Estimate the time for so many bytes in all: 64M, 1G.")
]
PlannerOption = Annotated[
    str,
    typer.Option(
        "--planner",
        metavar="NAME",
        help="Who plans: auto, forestcoll, strength, allreduce-lp, ring, hierarchical-ring, double-binary-tree, "
        "recursive-halving-doubling, multitree or blink; auto if left out.",
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan to this file.")
]

LARGE = 2**18
"""Tree entries beyond which what switches could save is not worked out for the summary."""

PANEL = "MSCCL XML"
XmlOption = Annotated[
    Path | None, typer.Option("--xml", metavar="FILE", help="Write MSCCL XML to this file.", rich_help_panel=PANEL)
]
RuntimeOption = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        help="What will load the XML: msccl-executor-nccl, msccl or rccl; the first if left out.",
        rich_help_panel=PANEL,
    ),
]
ChannelsOption = Annotated[
    int | None,
    typer.Option("--channels", help="Channels of every connection with as many transfers.", rich_help_panel=PANEL),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option("--protocol", help="Simple, LL or LL128; Simple if left out.", rich_help_panel=PANEL),
]
MinBytesOption = Annotated[
    int | None, typer.Option("--min-bytes", help="Smallest buffer to use the plan for.", rich_help_panel=PANEL)
]
MaxBytesOption = Annotated[
    int | None, typer.Option("--max-bytes", help="Largest buffer to use the plan for.", rich_help_panel=PANEL)
]
BlocksOption = Annotated[
    int | None,
    typer.Option(
        "--max-thread-blocks",
        help="Thread blocks that the GPU runs at once, if not the 108 of an A100.",
        rich_help_panel=PANEL,
    ),
]


def plan(
    topology: TopologyArgument,
    collective: CollectiveArgument,
    boxes: BoxesOption = None,
    nodes: NodesOption = None,
    shape: ShapeOption = None,
    ranks: RanksOption = None,
    settings: SetOption = None,
    without: WithoutOption = None,
    root: RootOption = None,
    weights: WeightsOption = None,
    trees_per_root: TreesOption = None,
    planner: PlannerOption = "auto",
    size: SizeOption = None,
    output: OutputOption = None,
    xml: XmlOption = None,
    runtime: RuntimeOption = None,
    channels: ChannelsOption = None,
    protocol: ProtocolOption = None,
    min_bytes: MinBytesOption = None,
    max_bytes: MaxBytesOption = None,
    max_thread_blocks: BlocksOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a collective, prove the plan, and write it as a plan file, as MSCCL XML, or both."""
    from ..planners import bound as find_bound
    from ..planners import plan as make_plan
    from ..runtime.msccl_limits import runtime_limits
    from .networks import find_network, network_file

    xml_options = _given(
        runtime=runtime,
        channels=channels,
        protocol=protocol,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        max_thread_blocks=max_thread_blocks,
    )
    # Whatever can be refused is refused before the work.
    if xml is None and xml_options:
        flag = next(iter(xml_options)).replace("_", "-")
        raise UsageError(f"--{flag} is about MSCCL XML; give --xml FILE too, or leave it out")
    if runtime is not None:
        runtime_limits(runtime)
    if size is not None:
        as_bytes(size)
    check_targets({"--output": output, "--xml": xml}, source=network_file(topology))
    asked = NetworkOptions(boxes, nodes, shape, ranks, settings, without)
    network, shards = find_network(topology, asked), shard_options(root, weights)
    with computing(f"planning {collective} on {network.name}"):
        made = make_plan(network, collective, planner=planner, **_given(trees_per_root=trees_per_root), **shards)
        # Weights are for the ranks that are left, so they say nothing of the whole network.
        whole = find_network(topology, asked._replace(without=None)) if without and weights is None else None
        intact = find_bound(whole, collective, **shards) if whole else None
    written: list[Path] = []
    try:
        # The XML first, since a runtime's limits can refuse it.
        _write(xml, lambda path: made.to_msccl_xml(path, **xml_options), written)
        _write(output, made.save, written)
        if as_json:
            emit_json(plan_figures(made) | _loss(made, intact) | _estimate(made, size))
        else:
            _print(made, intact, size)
    finally:
        for path in written:
            note(f"wrote {path}")


def _given(**options: object) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _write(path: Path | None, write: Callable[[Path], None], written: list[Path]) -> None:
    if path is not None:
        with writing(path):
            write(path)
        written.append(path)


def _print(made: Plan, intact: Bound | None, size: str | None) -> None:
    network, heights = made.topology, made.heights
    emit_rows(
        f"{made.collective} on {network.name}, {network.num_ranks} ranks, by {made.planner}, verified",
        {
            "algbw": rate(made.algbw),
            "busbw": rate(made.busbw),
            "bound": f"{rate(made.bound.algbw)} algbw",
            "gap": gap(made.gap),
            "trees per root": _trees_per_root(made),
            "trees": f"{_trees(made)}, {heights.lowest} to {heights.highest} hops high, {heights.mean:.1f} on average",
            "busiest links": f"{busiest_links(made)} of {len(network.links)}",
        }
        | _roots(made)
        | _savings(made)
        | ({} if size is None else {"estimate": f"{size} in {time_text(made.estimate(size))}, finely pipelined"})
        | (
            {}
            if intact is None
            else {"loss": f"{_lost(made, intact)} of the {rate(intact.algbw)} of the whole network"}
        ),
    )


def _trees_per_root(made: Plan) -> str:
    """Count trees by weight, as planners do, unless roots differ: then a root's trees are as many as its part needs."""
    forest = made.schedule.forests[-1]
    if len(set(forest.root_weights[forest.root_weights > 0].tolist())) == 1:
        return str(forest.trees_per_root)
    different = np.unique(forest.roots, return_counts=True)[1]
    return f"{different.min()} to {different.max()} different ones, by the root's part of the data"


def _trees(made: Plan) -> str:
    """Count the different trees, and those of both kinds where there are two."""
    forests = made.schedule.forests
    text = f"{made.schedule.num_trees} different ones"
    if len(forests) == 1:
        return text
    verbs = {"reduce": "add up", "broadcast": "spread"}
    return f"{text} in all ({', '.join(f'{part.num_trees} {verbs[part.direction]}' for part in forests)})"


def _roots(made: Plan) -> dict[str, str]:
    """Where an allreduce adds up, unless all ranks do alike."""
    weights, total = made.schedule.root_weights.tolist(), made.schedule.total_weight
    if made.collective != "allreduce" or len(set(weights)) == 1:
        return {}
    parts = sorted({Fraction(weight, total) for weight in weights if weight})
    if parts == [1]:
        return {"roots": f"{made.topology.compute_nodes[weights.index(total)]} alone adds up all data"}
    each = " to ".join(map(str, dict.fromkeys((parts[0], parts[-1]))))
    return {"roots": f"{sum(weight > 0 for weight in weights)} of {len(weights)} ranks add up {each} of the data each"}


def _lost(made: Plan, intact: Bound) -> str:
    return percentage_text(1 - made.algbw / intact.algbw)


def _estimate(made: Plan, size: str | None) -> dict[str, Any]:
    return {} if size is None else {"size": as_bytes(size), "estimate_us": made.estimate(size)}


def _loss(made: Plan, intact: Bound | None) -> dict[str, Any]:
    """What failures cost, for JSON."""
    return {} if intact is None else {"intact_algbw": float(intact.algbw), "loss": float(1 - made.algbw / intact.algbw)}


def _savings(made: Plan) -> dict[str, str]:
    """What switches that copy or add up would save, where there are such switches."""
    small = made.schedule.num_trees * made.topology.num_ranks <= LARGE
    if not small or not (made.topology.multicast or made.topology.aggregation):
        return {}
    saved = max(pruned.saving for pruned in made.in_network())
    return {"in-network": f"multicast and aggregation in switches can save {percentage_text(saved)} of the traffic"}
