"""``collopt plan``: make a plan, prove it, write it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .figures import busiest_links, mean_height, plan_figures
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
    shard_options,
)
from .progress import computing
from .wording import gap, rate

if TYPE_CHECKING:
    from ..planners import Plan

__all__ = ["plan"]

TreesOption = Annotated[
    int | None, typer.Option("--trees-per-root", help="Trees per root; if left out, as many as the bound takes.")
]
PlannerOption = Annotated[str, typer.Option("--planner", help="Who plans: forestcoll.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan to this file.")
]

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
    typer.Option("--channels", help="Channels that every connection has at least.", rich_help_panel=PANEL),
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
    root: RootOption = None,
    weights: WeightsOption = None,
    trees_per_root: TreesOption = None,
    planner: PlannerOption = "forestcoll",
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
    check_targets({"--output": output, "--xml": xml}, source=network_file(topology))
    network = find_network(topology, NetworkOptions(boxes, nodes, shape, ranks, settings))
    with computing(f"planning {collective} on {network.name}"):
        made = make_plan(
            network,
            collective,
            planner=planner,
            **_given(trees_per_root=trees_per_root),
            **shard_options(root, weights),
        )
    written: list[Path] = []
    try:
        _write(output, made.save, written)
        _write(xml, lambda path: made.to_msccl_xml(path, **xml_options), written)
        if as_json:
            emit_json(plan_figures(made))
        else:
            _print(made)
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


def _print(made: Plan) -> None:
    forest, network = made.schedule, made.topology
    emit_rows(
        f"{made.collective} on {network.name}, {network.num_ranks} ranks, by {made.planner}, verified",
        {
            "algbw": rate(made.algbw),
            "busbw": rate(made.busbw),
            "bound": f"{rate(made.bound.algbw)} algbw",
            "gap": gap(made.gap),
            "trees per root": str(forest.forests[-1].trees_per_root),
            "trees": f"{forest.num_trees} different ones, {forest.heights.min()} to {forest.heights.max()} hops high, "
            f"{mean_height(made):.1f} on average",
            "busiest links": f"{busiest_links(made)} of {len(network.links)}",
        },
    )
