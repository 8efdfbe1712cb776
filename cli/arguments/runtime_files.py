"""Options of files for runtimes, which `collopt plan` writes beside the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ...schedules import Collective
from ...support.writing import write_whole
from ..terminal.progress import working
from .output_files import writing
from .parameters import UsageError, whole_number

if TYPE_CHECKING:
    from ...planners import Plan

PANEL = "Export for runtimes"
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
        help="Runtime that will load the XML: msccl-executor-nccl (default), msccl or rccl.",
        rich_help_panel=PANEL,
    ),
]
ChannelsOption = Annotated[
    int | None,
    typer.Option(
        "--channels",
        metavar="N",
        parser=whole_number("--channels"),
        help="Channels to spread the transfers of every connection over.",
        rich_help_panel=PANEL,
    ),
]
InstancesOption = Annotated[
    int | None,
    typer.Option(
        "--instances",
        metavar="N",
        parser=whole_number("--instances"),
        help="Instances of the program: every transfer is split into N parts, each with its own thread blocks.",
        rich_help_panel=PANEL,
    ),
]
InPlaceOption = Annotated[
    bool,
    typer.Option(
        "--in-place",
        help="Export for in-place calls. Without it, MSCCL++ plans are for out-of-place calls.",
        rich_help_panel=PANEL,
    ),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option("--protocol", help="Protocol of the XML: Simple (default), LL or LL128.", rich_help_panel=PANEL),
]
MinBytesOption = Annotated[
    int | None,
    typer.Option(
        "--min-bytes",
        metavar="N",
        parser=whole_number("--min-bytes"),
        help="Smallest buffer, in bytes, for which the runtime uses the plan.",
        rich_help_panel=PANEL,
    ),
]
MaxBytesOption = Annotated[
    int | None,
    typer.Option(
        "--max-bytes",
        metavar="N",
        parser=whole_number("--max-bytes"),
        help="Largest buffer, in bytes, for which the runtime uses the plan.",
        rich_help_panel=PANEL,
    ),
]
BlocksOption = Annotated[
    int | None,
    typer.Option(
        "--max-thread-blocks",
        metavar="N",
        parser=whole_number("--max-thread-blocks"),
        help="Thread blocks that the GPU runs concurrently (default: 108, as on an A100).",
        rich_help_panel=PANEL,
    ),
]
OF_XML = ("runtime", "protocol")
OF_ANY = ("channels", "instances", "in_place", "min_bytes", "max_bytes", "max_thread_blocks")


class RuntimeFiles(NamedTuple):
    """What was typed about files for runtimes."""

    mscclpp: MscclppOption = None
    xml: XmlOption = None
    runtime: RuntimeOption = None
    channels: ChannelsOption = None
    instances: InstancesOption = None
    in_place: InPlaceOption = False
    protocol: ProtocolOption = None
    min_bytes: MinBytesOption = None
    max_bytes: MaxBytesOption = None
    max_thread_blocks: BlocksOption = None

    def check(self, collective: Collective) -> None:
        """Refuse, before the work, options of files that are not written, and what no file can be."""
        from ...runtime.msccl.format.limits import runtime_limits

        if self.xml is None and (stray := self._given(*OF_XML)):
            raise UsageError(f"{_flag(next(iter(stray)))} applies to MSCCL XML; give --xml FILE too, or leave it out")
        if self.xml is None and self.mscclpp is None and (stray := self._given(*OF_ANY)):
            raise UsageError(
                f"{_flag(next(iter(stray)))} applies to exported files; give --xml FILE or --mscclpp FILE, or leave "
                "it out"
            )
        if self.in_place and collective.in_pairs:
            raise UsageError(f"--in-place does not apply to {collective}, which is always out of place; leave it out")
        if self.runtime is not None:
            runtime_limits(self.runtime)

    def write(self, made: Plan, written: list[Path]) -> None:
        """Write a plan's files, once all of them are known to be possible, and list those that are there."""
        shared = self._given(*OF_ANY)
        if shared.pop("in_place", False):
            shared["placement"] = "in-place"
        xml, mscclpp = "msccl-xml", "mscclpp-json"
        wanted = {xml: self.xml, mscclpp: self.mscclpp}
        options = {xml: self._given(*OF_XML) | shared, mscclpp: shared}
        contents = {path: _exported(made, form, path, options[form]) for form, path in wanted.items() if path}
        for path, content in contents.items():
            write(path, lambda target, content=content: write_whole(target, content), written)  # type: ignore[misc]

    def calls(self, path: Path) -> str:
        """Which calls a file is for, where it is not for both."""
        if path == self.mscclpp or (self.in_place and path == self.xml):
            return f", for {'in' if self.in_place else 'out-of'}-place calls"
        return ""

    def _given(self, *names: str) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in names}
        # 0 is a value, which those that take it refuse.
        return {name: value for name, value in values.items() if value is not None and value is not False}


def write(path: Path | None, save: Callable[[Path], None], written: list[Path]) -> None:
    """Write a file, if it is to be, and list it once it is there."""
    if path is None:
        return
    with writing(path):
        save(path)
    if path not in written:
        written.append(path)


def _exported(made: Plan, form: str, path: Path, options: dict[str, Any]) -> bytes:
    """What is to be in a file."""
    with working(f"exporting {path}"), TemporaryDirectory() as folder:
        made.export(form, target := Path(folder) / path.name, **options)
        return target.read_bytes()


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
