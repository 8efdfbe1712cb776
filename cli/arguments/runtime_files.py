"""Options of `collopt plan` that export the plan for runtimes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from ...schedules import Collective
from ...support.writing import write_whole
from ..terminal.progress import working
from .output_files import writing
from .parameters import UsageError, count_option, option

if TYPE_CHECKING:
    from ...planners import Plan

_option = partial(option, panel="Export for runtimes")
_count = partial(count_option, panel="Export for runtimes")
OF_XML = ("runtime", "protocol")
OF_ANY = ("channels", "instances", "in_place", "min_bytes", "max_bytes", "max_thread_blocks")


class RuntimeFiles(NamedTuple):
    """Options that export a plan for runtimes."""

    mscclpp: Annotated[Path | None, _option("--mscclpp FILE", "Write an MSCCL++ execution plan to this file.")] = None
    xml: Annotated[Path | None, _option("--xml FILE", "Write MSCCL XML to this file.")] = None
    runtime: Annotated[
        str | None,
        _option("--runtime", "Runtime that will load the XML: msccl-executor-nccl (default), msccl or rccl."),
    ] = None
    channels: Annotated[
        int | None, _count("--channels N", "Channels to spread the transfers of every connection over.")
    ] = None
    instances: Annotated[
        int | None,
        _count(
            "--instances N",
            "Instances of the program: every transfer is split into N parts, each with its own thread blocks.",
        ),
    ] = None
    in_place: Annotated[
        bool,
        _option("--in-place", "Export for in-place calls. Without it, MSCCL++ plans are for out-of-place calls."),
    ] = False
    protocol: Annotated[str | None, _option("--protocol", "Protocol of the XML: Simple (default), LL or LL128.")] = None
    min_bytes: Annotated[
        int | None, _count("--min-bytes N", "Smallest buffer, in bytes, for which the runtime uses the plan.")
    ] = None
    max_bytes: Annotated[
        int | None, _count("--max-bytes N", "Largest buffer, in bytes, for which the runtime uses the plan.")
    ] = None
    max_thread_blocks: Annotated[
        int | None,
        _count("--max-thread-blocks N", "Thread blocks that the GPU runs concurrently (default: 108, as on an A100)."),
    ] = None

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
