"""Folders of runtime files, with the fastest plan for each range of message sizes."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import TopologyError, UnsupportedError
from ...planners import Plan
from ...schedules import as_bytes
from ...support.files import write_all_whole
from ...support.validation import as_kind, as_list, as_path, shown
from ...topologies.network.link_costs import as_costs
from ..msccl.limits import RUNTIMES, dialect_of
from ..msccl.linter import loading_environment, loading_hints
from ..mscclpp.executor import VERSION as MSCCLPP_VERSION
from ..mscclpp.export import as_executed
from ..mscclpp.lint import RUNTIME as MSCCLPP
from ..mscclpp.lint import loading_lines as mscclpp_loading
from ..programs.findings import Severity
from ..programs.program import check_choice
from .windows import FamilyReport, lint_family

if TYPE_CHECKING:
    import pandas as pd


class SizeWindow(NamedTuple):
    """Range of sizes for which a plan is the fastest."""

    plan: Plan
    first: int  # Bytes, as the last ones included
    last: int


def fastest_windows(plans: Sequence[Plan], first: int, last: int) -> tuple[SizeWindow, ...]:
    """Divide a range of sizes, both ends included, among plans by their estimates; of equal ones the first wins.

    A plan that is the fastest only between two neighboring powers of two may be overlooked.
    Raises `UnsupportedError` if the plans were made with different costs, with which their estimates do not compare.
    """
    costs = [as_costs(None, plan.topology) for plan in plans]
    if other := next((cost for cost in costs if cost != costs[0]), None):
        raise UnsupportedError(
            f"some plans were made with {costs[0]} and some with {other}; plan all with the same costs"
        )

    @cache
    def fastest(size: int) -> int:
        # There is no time for no bytes, but a file may be for them.
        return min(range(len(plans)), key=lambda number: (plans[number].estimate(max(size, 1)), number))

    powers = [2**power for power in range(first.bit_length(), last.bit_length()) if first < 2**power < last]
    looked_at = sorted({first, *powers, last})
    starts = [first, *(start for ends in pairwise(looked_at) for start in _boundaries(fastest, *ends))]
    ends = [start - 1 for start in starts[1:]] + [last]
    return tuple(SizeWindow(plans[fastest(start)], start, end) for start, end in zip(starts, ends, strict=True))


def _boundaries(fastest: Callable[[int], int], low: int, high: int) -> Iterator[int]:
    """Yield the sizes above `low` and up to `high` at which another plan becomes the fastest."""
    if fastest(low) == fastest(high):
        return
    if high == low + 1:
        yield high
        return
    middle = (low + high) // 2
    yield from _boundaries(fastest, low, middle)
    yield from _boundaries(fastest, middle, high)


FORMATS = {"msccl-xml": ".xml", "mscclpp-json": ".json"}  # Endings of the files
DEFAULT_RUNTIMES = {"msccl-xml": "msccl-executor-nccl", "mscclpp-json": MSCCLPP}
MAX_PLANS = 64
FAILING: tuple[Severity, ...] = ("rejected", "ignored", "hangs", "wrong data")
OWN_OPTIONS = ("min_bytes", "max_bytes")  # Decided here


def write_family(
    plans: Sequence[Plan],
    folder: str | os.PathLike[str],
    *,
    sizes: tuple[int | str, int | str],
    runtime: str | None = None,
    format: str = "msccl-xml",  # noqa: A002 - as in `Plan.export`
    **options: Any,
) -> pd.DataFrame:
    """Write a folder of files from which a runtime selects the fastest plan for each size.

    Raises `UnsupportedError` if the sizes are not understood, the plans are for different calls, one of them does not
    fit the runtime, or the runtime would not pick each file for just its sizes; `TopologyError` if the plans are for
    different networks; `OSError` if the folder is not empty or cannot be written, leaving nothing behind.

    Parameters
    ----------
    plans : sequence of Plan
        For one collective, with one root if it has any, on one topology.  Of equally fast ones the first is taken.
    folder : path
        Empty, or not there yet, because runtimes load all files of a folder.
    sizes : (int or str, int or str)
        Smallest and largest size of the whole buffer in bytes, such as ``("1K", "1G")``; the smallest may be 0.
    runtime : str or None
        What will load the files; by default ``"msccl-executor-nccl"``, or ``"mscclpp"`` for its format.
    format : {"msccl-xml", "mscclpp-json"}
        Of the files.
    **options : object
        As the format's exporter takes them, except `min_bytes` and `max_bytes`.

    Returns
    -------
    DataFrame
        One row per file, by size: ``file``, ``planner``, ``min_bytes`` and ``max_bytes``, both included, ``us_at_min``
        and ``us_at_max``, the estimated µs for these sizes, and ``algbw``, GB/s of the plan without latency.  A plan
        that is nowhere the fastest has none.  Where ranks of MSCCL++ add up or copy what switches do in the plan, all
        of these are of what runs.

    Notes
    -----
    Estimates are compared at every power of two and at both ends; where the fastest plan changes, the first size of the
    next one is found by bisection.  A plan that is the fastest only between two neighboring powers of two may be
    overlooked if its time is no straight line.
    """
    check_choice("format", format, FORMATS)
    planned = _checked_plans(plans)
    runtime = DEFAULT_RUNTIMES[format] if runtime is None else runtime
    if format_of(runtime) != format:
        raise UnsupportedError(f"runtime is {shown(runtime)}, which does not load {format}")
    for name in OWN_OPTIONS:
        if name in options:
            raise UnsupportedError(f"{name} is {shown(options[name])}; leave it out, sizes are for the whole family")
    switches = {name: options[name] for name in ("boxes", "version") if name in options}
    run = [as_executed(plan, **switches) if format == "mscclpp-json" else plan for plan in planned]
    windows = fastest_windows(run, *size_range(sizes))
    files = {id(plan): original for plan, original in zip(run, planned, strict=True)}
    target = free_folder(folder)
    planners = [re.sub(r"[^A-Za-z0-9.+-]+", "-", window.plan.planner)[:40] for window in windows]
    collective, ending = planned[0].collective, FORMATS[format]
    names = [f"{number:02}-{collective}-{planner}{ending}" for number, planner in enumerate(planners)]
    with TemporaryDirectory() as temporary:
        for name, window in zip(names, windows, strict=True):
            _export(window._replace(plan=files[id(window.plan)]), Path(temporary, name), format, runtime, options)
        report = lint_family([temporary], runtime, max_thread_blocks=options.get("max_thread_blocks"))
        _check(report, names, windows)
        contents = {target / name: Path(temporary, name).read_bytes() for name in names}
    _write(free_folder(folder), contents)
    return _table(windows, [as_path(folder) / name for name in names])


def format_of(runtime: str) -> str:
    """Return the format of `write_family` that a runtime loads."""
    check_choice("runtime", runtime, (*RUNTIMES, MSCCLPP))
    return "mscclpp-json" if runtime == MSCCLPP else "msccl-xml"


def loading_notes(runtime: str, files: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the environment variables that make a runtime load a family, and further notes."""
    if runtime == MSCCLPP:
        return {}, list(mscclpp_loading(MSCCLPP_VERSION))
    dialect = dialect_of(runtime)
    return dict(loading_environment(list(files), dialect)), list(loading_hints(dialect, None))


def _checked_plans(plans: object) -> list[Plan]:
    checked = list(as_list(plans, "the plans", high=MAX_PLANS))
    if not checked:
        raise UnsupportedError("there is no plan; expected at least one")
    for plan in checked:
        as_kind(plan, Plan, "one of the plans")
        first = checked[0]
        if plan.topology.digest != first.topology.digest:
            raise TopologyError(
                f"the plans are for different networks, {first.topology} and {plan.topology}; expected one network"
            )
        if (plan.collective, plan.bound.weights) != (first.collective, first.bound.weights):
            what = "roots or shards" if plan.collective == first.collective else "collectives"
            raise UnsupportedError(
                f"the plans are for different {what}: {first!r} and {plan!r}; make a family for each"
            )
    return checked


def size_range(sizes: object) -> tuple[int, int]:
    """Return the smallest and the largest size in bytes; only the former may be 0."""
    if isinstance(sizes, str) or not isinstance(sizes, Sequence) or len(sizes) != 2:
        raise UnsupportedError(f"sizes are {shown(sizes)}; expected the smallest and the largest, such as ('1K', '1G')")
    low, high = as_bytes(sizes[0], low=0), as_bytes(sizes[1], "the largest size")
    if low > high:
        raise UnsupportedError(f"sizes are {shown(sizes)}; expected the smallest first")
    return low, high


def free_folder(folder: str | os.PathLike[str]) -> Path:
    """Resolve the target folder through symbolic links; refuse one that is not empty."""
    path = as_path(folder)
    if "\0" in str(path):
        raise UnsupportedError(f"the folder is {shown(folder)}; expected the name of one")
    target = Path(os.path.realpath(path))
    if target.is_dir() and any(target.iterdir()):
        problem = "is not empty, and runtimes load all files of a folder; name another or empty it"
        raise FileExistsError(errno.EEXIST, problem, str(path))
    if (target.exists() or target.is_symlink()) and not target.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is not a folder", str(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"cannot be made: there is no folder {target.parent}", str(path))
    return target


def _write(target: Path, contents: dict[Path, bytes]) -> None:
    """Write files to an empty folder, or none of them; a new folder goes again."""
    is_new = not target.is_dir()
    target.mkdir(exist_ok=True)
    try:
        write_all_whole(contents)
    except BaseException:
        for path in contents:
            path.unlink(missing_ok=True)
        if is_new:
            shutil.rmtree(target, ignore_errors=True)
        raise


def _export(window: SizeWindow, path: Path, format: str, runtime: str, options: dict[str, Any]) -> None:  # noqa: A002
    # The first runtime takes sizes below maxBytes, all others up to it.
    sizes = {"min_bytes": window.first, "max_bytes": window.last + (runtime == "msccl")}
    extra = {} if runtime == MSCCLPP else {"runtime": runtime}
    try:
        window.plan.export(format, path, **extra, **sizes, **options)
        # Runtimes load all files of a folder.
        Path(f"{path}.env").unlink(missing_ok=True)
    except UnsupportedError as error:
        what = f"the plan by {window.plan.planner!r} cannot be written for {window.first} to {window.last} bytes"
        raise type(error)(f"{what}: {error}") from error


def _check(report: FamilyReport, names: Sequence[str], windows: Sequence[SizeWindow]) -> None:
    """Refuse files unless the runtime selects each for exactly its sizes."""
    findings = [(Path(report_of.path).name, finding) for report_of in report.reports for finding in report_of.findings]
    findings += [(Path(finding.where).name, finding) for finding in report.findings]
    for name, finding in findings:
        if finding.severity in FAILING:
            fate = finding.severity if finding.severity in ("rejected", "ignored") else f"wrong ({finding.severity})"
            raise UnsupportedError(f"{name or 'the family'} would be {fate}: {finding.message}")
    expected = [(window.first, window.last + 1, name, ()) for window, name in zip(windows, names, strict=True)]
    for call in {span[:3] for span in report.spans}:
        mine = [span for span in report.spans if span[:3] == call and span.path]
        picked = [(span.first, span.end, Path(span.path).name, span.later_paths) for span in mine]
        if picked != expected:
            raise UnsupportedError(f"{report.runtime} would pick {shown(picked)}; expected {shown(expected)}")


def _table(windows: Sequence[SizeWindow], paths: Sequence[Path]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {
            "file": [str(path) for path in paths],
            "planner": [window.plan.planner for window in windows],
            "min_bytes": [window.first for window in windows],
            "max_bytes": [window.last for window in windows],
            "us_at_min": [window.plan.estimate(max(window.first, 1)) for window in windows],
            "us_at_max": [window.plan.estimate(max(window.last, 1)) for window in windows],
            "algbw": [float(window.plan.algbw) for window in windows],
        }
    )
