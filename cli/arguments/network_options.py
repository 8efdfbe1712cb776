"""Options that describe a network, which all commands about one take together."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

__all__ = ["NetworkOptions"]

PANEL = "Network"
BoxesOption = Annotated[str | None, typer.Option("--boxes", metavar="N", help="How many boxes.", rich_help_panel=PANEL)]
NodesOption = Annotated[
    str | None,
    typer.Option("--nodes", metavar="N", help="How many nodes a ring or complete graph has.", rich_help_panel=PANEL),
]
ShapeOption = Annotated[
    str | None, typer.Option("--shape", help="Sizes of a torus, such as 4x4.", rich_help_panel=PANEL)
]
FabricOption = Annotated[
    str | None,
    typer.Option(
        "--fabric",
        metavar="NAME",
        help="What joins the boxes of a file that describes one: full, rail or leaf_spine.",
        rich_help_panel=PANEL,
    ),
]
RanksOption = Annotated[
    str | None,
    typer.Option("--ranks", help="Keep only these ranks: numbers, ranges, names; 0-7,16-23.", rich_help_panel=PANEL),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other option: of a topology, those of `collopt topologies NAME`; of a file of one box, gpu, figures, "
        "nic_bandwidth, pcie_bandwidth, nics, oversubscription, boxes_per_leaf. Bandwidths are GB/s, or have a unit, "
        "as 400Gb/s has. Repeatable.",
        rich_help_panel=PANEL,
    ),
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="NODE|NODE--NODE",
        help="A failed GPU, NIC or switch, or a failed link between two of them. Repeatable.",
        rich_help_panel=PANEL,
    ),
]


class NetworkOptions(NamedTuple):
    """What was typed besides the name; the builder, or the reader of the file, reads the texts."""

    boxes: BoxesOption = None
    fabric: FabricOption = None
    nodes: NodesOption = None
    shape: ShapeOption = None
    ranks: RanksOption = None
    settings: SetOption = None
    without: WithoutOption = None

    def given(self) -> list[str]:
        """Options that were typed, as they were."""
        flags = ("--boxes", "--fabric", "--nodes", "--shape", "--ranks", "--set", "--without")
        return [flag for flag, value in zip(flags, self, strict=True) if value not in (None, [])]
