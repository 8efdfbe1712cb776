"""Output files of commands: checks of paths before the work, exports for runtimes, and messages when writing fails."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ... import planners
from ...errors import TooLargeError
from ...schedules import Collective
from ...support.files import write_all_whole
from ...support.quantities import as_bytes
from .output import note
from .parameters import UsageError, takes_option
from .progress import computing, handling, working

XML_OPTIONS = ("runtime", "protocol")
EXPORT_OPTIONS = ("channels", "instances", "in_place", "min_bytes", "max_bytes", "max_thread_blocks")
FEW_TREES, MANY_TREES = 8, 256  # Trees of a root that are few, and of all roots that are many
FEW_CHUNKS = (4, 2, 1)  # Numbers of chunks to try, per shard or unit of traffic


def check_targets(targets: Mapping[str, Path | None], sources: Iterable[Path | None] = ()) -> None:
    """Refuse output files that cannot or must not be written, before the work starts."""
    paths = [source for source in sources if source is not None]
    for option, path in targets.items():
        if path is None:
            continue
        if problem := _problem(path, paths):
            raise UsageError(f"{option} {path} {problem}")
        paths.append(path)


def check_figure(option: str, path: Path | None) -> None:
    """Refuse a figure whose format its name does not say."""
    if path is not None and path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise UsageError(f"{option} {path} does not end in .svg, .png or .pdf; name one of them")


@contextmanager
def name_errors_after(path: Path) -> Iterator[None]:
    """Make errors name `path` instead of the temporary file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror}", os.fspath(path)) from error


CHECKER = "collopt_check.py"


def checker_beside(path: Path | None) -> dict[Path, bytes]:
    """Return the checker of plan files, by its path in the folder of an output file."""
    from importlib.resources import files

    from ... import checker

    if path is None:
        raise UsageError("--checker writes a file beside the plan; give --output too")
    return {path.parent / CHECKER: (files(checker) / CHECKER).read_bytes()}


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write all files or none; errors name the one that cannot be written, as it was given."""
    try:
        write_all_whole(contents)
    except OSError as error:
        path = next((target for target in contents if os.path.realpath(target) == error.filename), error.filename)
        raise OSError(error.errno, f"cannot be written: {error.strerror}", os.fspath(path)) from error


def _problem(path: Path, paths: list[Path]) -> str:
    if os.fspath(path) == "-":
        return "does not stand for standard output; expected the name of a file, such as ./-.json"
    folder = path.parent
    if not folder.is_dir():
        reason = f"{folder} is a file" if folder.is_file() else f"there is no folder {folder}; create it first"
        return f"cannot be written: {reason}"
    if path.is_dir():
        return "is a folder; expected the name of a file"
    if (path.exists() and not path.is_file()) or Path(os.path.realpath(path)).is_symlink():
        # Files are replaced, and a device or pipe must not be; links that lead back to themselves name none.
        return "is not a regular file; expected a regular file or a new name"
    with suppress(OSError, ValueError, AttributeError):  # where standard output is closed, or no file
        if os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno())):
            return "is the file that standard output is redirected to; expected another file"
    # Hard links are of one file too.
    if any(os.path.realpath(path) == os.path.realpath(other) for other in paths) or any(
        path.samefile(other) for other in paths if path.exists() and other.exists()
    ):
        return "is also read or written by this command; expected another file"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"cannot be written: the folder {folder} is not writable"
    return ""


class RuntimeFiles(NamedTuple):
    """Options that export a plan for runtimes."""

    mscclpp: Path | None = None
    register: Path | None = None
    xml: Path | None = None
    runtime: str | None = None
    channels: int | None = None
    instances: int | None = None
    in_place: bool = False
    protocol: str | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    max_thread_blocks: int | None = None

    def check(self, collective: Collective) -> None:
        """Refuse options of files that are not written, and impossible files, before the work starts."""
        flags = [f"--{name.replace('_', '-')}" for name in self._values(*XML_OPTIONS, *EXPORT_OPTIONS)]
        if self.xml is None and self._values(*XML_OPTIONS):
            raise UsageError(f"{flags[0]} applies to MSCCL XML; give --xml FILE too, or leave it out")
        if self.xml is None and self.mscclpp is None and flags:
            raise UsageError(f"{flags[0]} applies to files; give --xml FILE or --mscclpp FILE too, or leave it out")
        if self.register is not None and self.mscclpp is None:
            raise UsageError(f"--register {self.register} is for an MSCCL++ plan; give --mscclpp FILE too")
        if self.in_place and collective.in_pairs:
            raise UsageError(f"--in-place does not apply to {collective}, which is always out of place; leave it out")
        if self.runtime is not None:
            from ...runtime.msccl.limits import runtime_limits

            runtime_limits(self.runtime)

    def contents(self, planned: planners.Plan) -> dict[Path, bytes]:
        """Return the contents of a plan's files, once all of them are known to be possible."""
        shared = self._values(*EXPORT_OPTIONS)
        if shared.pop("in_place", False):
            shared["placement"] = "in-place"
        xml, mscclpp = "msccl-xml", "mscclpp-json"
        paths = {xml: self.xml, mscclpp: self.mscclpp}
        options = {xml: self._values(*XML_OPTIONS) | shared, mscclpp: shared}
        files: dict[Path, bytes] = {}
        for form, path in paths.items():
            files |= _exported(planned, form, path, options[form]) if path else {}
        if self.register and self.mscclpp:
            from ...runtime.mscclpp.export import registration_code
            from ...runtime.mscclpp.reader import parse_document

            document = parse_document(json.loads(files[self.mscclpp]), os.fspath(self.mscclpp))
            files[self.register] = registration_code([(self.mscclpp, document)], self.register).encode()
        return files

    def notes(self, plan: planners.Plan, paths: Collection[Path]) -> list[str]:
        """Say what an MSCCL++ file makes of a plan."""
        if self.mscclpp is None or self.mscclpp not in paths:
            return []
        from ...runtime.mscclpp.export import mscclpp_notes

        return mscclpp_notes(plan, self.mscclpp)

    def calls(self, path: Path) -> str:
        """Describe the calls of a file that is not for both placements."""
        if path == self.mscclpp or (self.in_place and path == self.xml):
            return f", for {'in' if self.in_place else 'out-of'}-place calls"
        return ""

    def _values(self, *names: str) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in names}
        # 0 is a value, which those that take it refuse.
        return {name: value for name, value in values.items() if value is not None and value is not False}


def _exported(plan: planners.Plan, form: str, path: Path, options: dict[str, Any]) -> dict[Path, bytes]:
    """Return the contents of a file and of those beside it; SIGTERM removes the folder that it is written to, too."""
    ended = handling(signal.SIGTERM, signal.SIG_DFL, lambda number, _: sys.exit(128 + number))
    with working(f"exporting {path}"), ended, TemporaryDirectory() as folder, name_errors_after(path):
        plan.export(form, Path(folder) / path.name, **options)
        return {path.with_name(file.name): file.read_bytes() for file in sorted(Path(folder).iterdir())}


def write_fitting(
    plan: planners.Plan, write: Callable[[planners.Plan], None], planner: str, options: Mapping[str, Any]
) -> planners.Plan:
    """Write a plan's files, or those of the first smaller plan within the runtime's limits, with a note."""
    try:
        write(plan)
    except TooLargeError as error:
        refusal = error
    else:
        return plan
    smaller: Iterator[tuple[planners.Plan, str]] = iter(())
    unsized = {name: value for name, value in options.items() if name not in ("size", "costs")}
    if "size" in options and "family" in plan.provenance:
        smaller = _other_families(plan, as_bytes(options["size"]))
    elif not plan.collective.in_pairs and takes_option(planner, plan.collective, "trees_per_root"):
        smaller = _fewer_trees(plan, planner, unsized)
    elif takes_option(planner, plan.collective, "chunks"):
        smaller = _fewer_chunks(plan, planner, options)
    for other, choice in smaller:
        try:
            write(other)
        except TooLargeError:
            continue
        rates = f"{float(other.algbw):.2f} GB/s instead of {float(plan.algbw):.2f} GB/s"
        note(
            f"collopt: note: the best plan ({_size(plan)}) does not fit: {str(refusal).partition(';')[0]}; using "
            f"{choice} instead: {_size(other)}, {'same algbw' if other.algbw == plan.algbw else rates}"
        )
        return other
    raise refusal


def _other_families(best: planners.Plan, num_bytes: int) -> Iterator[tuple[planners.Plan, str]]:
    """Yield plans of the families in few steps that have fewer chunks, the fastest for the size first."""
    from ...planners.by_size.families import families
    from ...topologies.network.link_costs import as_costs

    network, costs = best.topology, as_costs(None, best.topology)
    by_time = sorted(families(network, best.collective), key=lambda family: family.estimate(num_bytes, costs))
    for family in by_time:
        if not family.schedule.num_steps or max(family.schedule.load_units) < _chunks(best):
            smaller = planners.plan(network, best.collective, planner="few-steps", family=family.name)
            yield smaller, f"the family {family.name}"


def _fewer_trees(best: planners.Plan, planner: str, options: Mapping[str, Any]) -> Iterator[tuple[planners.Plan, str]]:
    """Yield plans with ever fewer trees, the fastest first."""
    with computing(f"planning {best.collective} on {best.topology.name} with fewer trees"):
        counts = list(_counts(best))
        frame = planners.scan_trees_per_root(best.topology, best.collective, counts or None, planner=planner, **options)
        plans = list(frame["plan"])
    fewest = best.trees.num_trees
    for other in sorted(plans, key=lambda plan: (-plan.algbw, plan.trees.num_trees)):
        if other.trees.num_trees < fewest:
            fewest = other.trees.num_trees
            yield other, f"--trees-per-root {other.trees.forests[-1].trees_per_root}"


def _counts(plan: planners.Plan) -> Iterator[int]:
    """Numbers of trees per root to try: small ones, and their doubles up to a limit on all trees."""
    roots = int((plan.trees.root_weights > 0).sum())
    count = 1
    while count < plan.trees.forests[-1].trees_per_root and (count <= FEW_TREES or count * roots <= MANY_TREES):
        yield count
        count += 1 if count < FEW_TREES else count


def _fewer_chunks(best: planners.Plan, planner: str, options: Mapping[str, Any]) -> Iterator[tuple[planners.Plan, str]]:
    for count in FEW_CHUNKS:
        if count < _chunks(best):
            with computing(f"planning {best.collective} on {best.topology.name} with --chunks {count}"):
                other = planners.plan(best.topology, best.collective, planner=planner, chunks=count, **options)
            yield other, f"--chunks {count}"


def _chunks(plan: planners.Plan) -> int:
    """Chunks per shard or unit of traffic; the most of them where halves of an allreduce differ."""
    return 1 if plan.schedule.num_trees else max(plan.schedule.load_units)


def _size(plan: planners.Plan) -> str:
    number, what = (plan.schedule.num_trees, "tree") if plan.schedule.num_trees else (_chunks(plan), "chunk")
    return f"{number} {what}{'' if number == 1 else 's'}"
