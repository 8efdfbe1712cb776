"""``collopt plan``: make a plan, prove it, write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..schedules import PAIR_COLLECTIVES, as_bytes
from ..schedules.units import percentage_text, time_text
from ..schedules.wording import gap, rate
from .figures import plan_figures
from .files import check_targets, writing
from .network_options import NetworkOptions
from .output import advise, emit_csv, emit_json, emit_rows, flat, note
from .parameters import (
    CollectiveArgument,
    CsvOption,
    JsonOption,
    ShardOptions,
    TopologyArgument,
    UsageError,
    check_names,
    complete_planner,
    size_option,
    whole_number,
)
from .progress import computing

if TYPE_CHECKING:
    from ..planners import Plan
    from ..schedules import Bound

__all__ = ["plan"]

TreesOption = Annotated[
    int | None,
    typer.Option(
        "--trees-per-root",
        metavar="K",
        parser=whole_number("--trees-per-root"),
        help="Trees per root, or per unit of its part of the data; as many as the bound takes if left out.",
    ),
]
ChunksOption = Annotated[
    int | None,
    typer.Option(
        "--chunks",
        metavar="N",
        parser=whole_number("--chunks"),
        help="Chunks per shard, for plans in steps, or per unit of traffic; as many as the best takes if left out.",
    ),
]
SizeOption = Annotated[
    str | None,
    typer.Option(
        "--size",
        metavar="SIZE",
        help="Estimate the time for so many bytes in all: 64M, 1G; bfb also plans for this size.",
    ),
]
PlannerOption = Annotated[
    str,
    typer.Option(
        "--planner",
        metavar="NAME",
        autocompletion=complete_planner,
        help="Who plans: auto, forestcoll, strength, allreduce-lp, ring, hierarchical-ring, double-binary-tree, "
        "recursive-halving-doubling, multitree, blink, bfb, multicommodity or shortest-paths; auto if left out.",
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan to this file.")
]

PANEL = "Files for runtimes"
XmlOption = Annotated[
    Path | None, typer.Option("--xml", metavar="FILE", help="Write MSCCL XML to this file.", rich_help_panel=PANEL)
]
MscclppOption = Annotated[
    Path | None,
    typer.Option(
        "--mscclpp", metavar="FILE", help="Write an MSCCL++ execution plan to this file.", rich_help_panel=PANEL
    ),
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
    typer.Option(
        "--channels",
        metavar="N",
        parser=whole_number("--channels"),
        help="Channels of every connection with as many transfers.",
        rich_help_panel=PANEL,
    ),
]
InstancesOption = Annotated[
    int | None,
    typer.Option(
        "--instances",
        metavar="N",
        parser=whole_number("--instances"),
        help="Parts that every transfer is divided into, with thread blocks of their own.",
        rich_help_panel=PANEL,
    ),
]
InPlaceOption = Annotated[
    bool,
    typer.Option(
        "--in-place",
        help="Write for calls whose input lies in their output; MSCCL++ plans are for out-of-place calls otherwise.",
        rich_help_panel=PANEL,
    ),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option("--protocol", help="Of the XML: Simple, LL or LL128; Simple if left out.", rich_help_panel=PANEL),
]
MinBytesOption = Annotated[
    int | None,
    typer.Option(
        "--min-bytes",
        metavar="N",
        parser=whole_number("--min-bytes"),
        help="Smallest buffer to use the plan for.",
        rich_help_panel=PANEL,
    ),
]
MaxBytesOption = Annotated[
    int | None,
    typer.Option(
        "--max-bytes",
        metavar="N",
        parser=whole_number("--max-bytes"),
        help="Largest buffer to use the plan for.",
        rich_help_panel=PANEL,
    ),
]
BlocksOption = Annotated[
    int | None,
    typer.Option(
        "--max-thread-blocks",
        metavar="N",
        parser=whole_number("--max-thread-blocks"),
        help="Thread blocks that the GPU runs at once, if not the 108 of an A100.",
        rich_help_panel=PANEL,
    ),
]


def plan(
    topology: TopologyArgument,
    collective: CollectiveArgument,
    described: NetworkOptions,
    data: ShardOptions,
    trees_per_root: TreesOption = None,
    chunks: ChunksOption = None,
    planner: PlannerOption = "auto",
    size: SizeOption = None,
    output: OutputOption = None,
    mscclpp: MscclppOption = None,
    xml: XmlOption = None,
    runtime: RuntimeOption = None,
    channels: ChannelsOption = None,
    instances: InstancesOption = None,
    in_place: InPlaceOption = False,
    protocol: ProtocolOption = None,
    min_bytes: MinBytesOption = None,
    max_bytes: MaxBytesOption = None,
    max_thread_blocks: BlocksOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Plan a collective, prove the plan, and write it as a plan file or for a runtime."""
    from ..planners import bound as find_bound
    from ..planners import plan as make_plan
    from ..runtime.msccl.limits import runtime_limits
    from .networks import find_network, network_file

    xml_options = _given(runtime=runtime, protocol=protocol)
    # Whatever can be refused is refused before the work.
    check_names(collective, [planner])
    shared_options = _given(
        channels=channels,
        instances=instances,
        placement="in-place" if in_place else None,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        max_thread_blocks=max_thread_blocks,
    )
    _check_wanted(xml_options if xml is None else {}, shared_options if xml is None and mscclpp is None else {})
    if in_place and collective in PAIR_COLLECTIVES:
        raise UsageError(f"--in-place is not for {collective}, whose output is never its input; leave it out")
    if output is not None and output.suffix.lower() == ".xml":
        raise UsageError(f"--output {output}: plan files are JSON; give --xml {output} for MSCCL XML")
    if runtime is not None:
        runtime_limits(runtime)
    if size is not None:
        as_bytes(size)
    check_targets(
        {"--output": output, "--xml": xml, "--mscclpp": mscclpp}, sources=(network_file(topology), data.traffic)
    )
    network, shards = find_network(topology, described), data.read()
    with computing(f"planning {collective} on {network.name}"):
        options = _given(trees_per_root=trees_per_root, chunks=chunks) | size_option(planner, collective, size)
        made = make_plan(network, collective, planner=planner, **options, **shards)
        # Weights are for the ranks that are left, so they say nothing of the whole network.
        loses = bool(described.without) and data.weights is None
        whole = find_network(topology, described._replace(without=None)) if loses else None
        intact = find_bound(whole, collective, **shards) if whole else None
    written: list[Path] = []
    try:
        # The plan itself comes first: runtimes' limits may refuse the rest, and `export` tries other options then.
        _write(output, made.save, written)
        _write(xml, lambda path: made.to_msccl_xml(path, **xml_options, **shared_options), written)
        _write(mscclpp, lambda path: made.to_mscclpp_json(path, **shared_options), written)
        if as_json or as_csv:
            figures = plan_figures(made) | _loss(made, intact) | _estimate(made, size)
            emit_json(figures) if as_json else emit_csv([flat(figures)])
        else:
            _print(made, intact, size)
    finally:
        for path in written:
            calls = f", for {'in' if in_place else 'out-of'}-place calls"
            note(f"wrote {path}{calls if path == mscclpp or (in_place and path == xml) else ''}")
        if {xml, mscclpp} & set(written) and channels is None and instances is None:
            advise("one thread block seldom fills a link of a GPU; try --instances 4 too, and measure both")


def _given(**options: object) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check_wanted(of_xml: Mapping[str, Any], of_any: Mapping[str, Any]) -> None:
    """Refuse options of files that are not written."""
    if of_xml:
        flag = next(iter(of_xml)).replace("_", "-")
        raise UsageError(f"--{flag} is about MSCCL XML; give --xml FILE too, or leave it out")
    if of_any:
        name = next(iter(of_any))
        flag = "--in-place" if name == "placement" else f"--{name.replace('_', '-')}"
        raise UsageError(f"{flag} is about files for runtimes; give --xml FILE or --mscclpp FILE, or leave it out")


def _write(path: Path | None, write: Callable[[Path], None], written: list[Path]) -> None:
    if path is not None:
        with writing(path):
            write(path)
        written.append(path)


def _print(made: Plan, intact: Bound | None, size: str | None) -> None:
    from ..report.schedule_rows import schedule_rows

    network = made.topology
    emit_rows(
        f"{made.collective} on {network.name}, {network.num_ranks} ranks, by {made.planner}, verified",
        {
            "algbw": rate(made.algbw),
            "busbw": rate(made.busbw),
            "bound": f"{rate(made.bound.algbw)} algbw",
            "gap": gap(made.gap),
        }
        | schedule_rows(made)
        | ({} if size is None else {"estimate": f"{size} in {time_text(made.estimate(size))}, {_flow(made)}"})
        | (
            {}
            if intact is None
            else {"loss": f"{_lost(made, intact)} of the {rate(intact.algbw)} of the whole network"}
        ),
    )


def _flow(made: Plan) -> str:
    flow = "step by step" if made.has_steps else "finely pipelined"
    # Not of every plan: links of equal latency are used in the same way for all sizes.
    return f"{flow}; planned for {made.provenance['planned_for']}" if "planned_for" in made.provenance else flow


def _lost(made: Plan, intact: Bound) -> str:
    return percentage_text(1 - made.algbw / intact.algbw)


def _estimate(made: Plan, size: str | None) -> dict[str, Any]:
    if size is None:
        return {}
    planned_for = _given(planned_for=made.provenance.get("planned_for"))
    return {"size": as_bytes(size), "estimate_us": made.estimate(size)} | planned_for


def _loss(made: Plan, intact: Bound | None) -> dict[str, Any]:
    """What failures cost, for JSON."""
    return {} if intact is None else {"intact_algbw": float(intact.algbw), "loss": float(1 - made.algbw / intact.algbw)}
