"""``collopt lint`` and ``family``: checks of files for MSCCL and MSCCL++, and folders of them to pick from by size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from ... import planners
from ...errors import TooLargeError, UnsupportedError
from ...schedules import Collective
from ...schedules.collective import as_collective
from ...support.files import write_whole
from ...support.formatting import count_text, time_text
from ...topologies import Topology
from ..terminal.networks import find_network
from ..terminal.output import CHECK_FAILED, emit, emit_json, note, number_table
from ..terminal.output_files import check_targets, write_fitting
from ..terminal.parameters import NetworkOptions, ShardOptions, UsageError, check_planners, takes_option
from ..terminal.progress import computing, working

if TYPE_CHECKING:
    import pandas as pd

    from ...runtime.nccl.windows import FamilyReport
    from ...runtime.programs.findings import Finding, LintReport


FAILING = ("rejected", "hangs", "wrong data")
WIDTH = len("environment")

MAKING = "give FILE to check it, and --host or --box for a file like these"
RUNTIME_NAMES = "msccl, msccl-executor-nccl, rccl, or mscclpp for MSCCL++ plans"


def lint(
    files: list[str],
    runtime: str | None = None,
    version: str | None = None,
    max_thread_blocks: int | None = None,
    gpus_per_box: int | None = None,
    as_json: bool = False,
) -> None:
    """Check whether a runtime would reject a file, ignore it, deadlock or compute wrong results, and why."""
    from ...runtime.nccl.windows import lint_family
    from ...support.files import MSCCLPP_KIND, kind_of

    _refuse_other_files(files)
    kinds = [kind_of(Path(file)) for file in files]
    if runtime is None and all(kind and kind.name == MSCCLPP_KIND for kind in kinds):
        runtime = "mscclpp"
    if runtime is None:
        raise UsageError(f"--runtime is missing; expected one of {RUNTIME_NAMES}")
    with working(f"reading {', '.join(files)}"):
        linted = lint_family(files, runtime, version, max_thread_blocks=max_thread_blocks, gpus_per_box=gpus_per_box)
    if as_json:
        emit_json(_as_json(linted))
    else:
        emit("\n".join(_lines(linted)))
    findings = [finding for report in linted.reports for finding in report.findings]
    if any(finding.severity in FAILING for finding in (*findings, *linted.findings)):
        raise typer.Exit(CHECK_FAILED)


def topology_file(
    file: Path | None = None,
    host: Path | None = None,
    box: str | None = None,
    gpu: str | None = None,
    output: Path | None = None,
    as_json: bool = False,
) -> None:
    """Check a topology file for NCCL (NCCL_TOPO_FILE), or write one like a host or a box."""
    from ...runtime.nccl import topology_file as files

    if host is None and box is None:
        if file is None or output is not None:
            raise UsageError(f"{'FILE' if file is None else '--host'} is missing; {MAKING}")
        report = files.lint_topology_file(file, gpu)
        if as_json:
            findings = [finding._asdict() for finding in report.findings]
            emit_json({"path": report.path, "verdict": report.verdict, "findings": findings})
        else:
            title = _printable(f"{file}: {report.verdict} by NCCL {report.version}")
            emit("\n".join([title, *_findings(report.findings)]))
        if report.verdict != "accepted":
            raise typer.Exit(CHECK_FAILED)
        return
    if as_json or (host is not None and box is not None):
        raise UsageError(f"{'--json is of a check of FILE' if as_json else '--box replaces --host'}; leave one out")
    check_targets({"--output": output}, sources=[source for source in (file, host) if source is not None])
    text = files.topology_file(file, host=host, box=box, gpu=gpu)
    if output is None:
        emit(text.rstrip())
    else:
        write_whole(output, text)
        note(f"wrote {output}; set NCCL_TOPO_FILE={output}")


def _refuse_other_files(files: list[str]) -> None:
    """Refuse files of other commands by naming the command; in folders all files are checked."""
    from ...support.files import MSCCL_KIND, MSCCLPP_KIND, wrong_kind

    for file in files:
        if file and not Path(file).exists():
            raise UsageError(f"{file} does not exist; check the path")
        if problem := wrong_kind(file, "a file for MSCCL or MSCCL++", [MSCCL_KIND, MSCCLPP_KIND]):
            raise UsageError(problem)


def _lines(linted: FamilyReport) -> Iterator[str]:
    alone = len(linted.reports) == 1
    for report in linted.reports:
        yield _printable(f"{report.path}: {report.verdict} by {report.runtime} {report.version}")
        if report.summary:
            yield row("for", report.summary)
        yield from _findings(report.findings)
        if alone:
            yield from _loading(linted, report)
    if alone:
        return
    yield f"{len(linted.reports)} files together"
    yield from _findings(linted.findings)
    for span in linted.spans:
        yield row("picked", str(span))
    yield from _loading(linted, linted.reports[0])


def _findings(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        yield row(finding.severity, f"{f'{finding.where}: ' if finding.where else ''}{finding.message}")


def _loading(linted: FamilyReport, report: LintReport) -> Iterator[str]:
    for name, value in linted.environment.items():
        yield row("environment", f"{name}={value}")
    for line in report.loading:
        yield row("loading", line)


def row(name: str, text: str) -> str:
    """Format a name and its text in one row."""
    return f"  {name:<{WIDTH}}  {_printable(text)}"


def _printable(text: str) -> str:
    """Escape control characters of file contents and names."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _as_json(linted: FamilyReport) -> dict[str, Any]:
    return {
        "runtime": linted.runtime,
        "version": linted.version,
        "files": [
            {name: getattr(report, name) for name in ("path", "verdict", "summary")}
            | {"findings": [finding._asdict() for finding in report.findings], "loading": list(report.loading)}
            for report in linted.reports
        ],
        "findings": [finding._asdict() for finding in linted.findings],
        "picked": [span._asdict() for span in linted.spans],
        "environment": dict(linted.environment),
    }


def family(
    topology: str,
    collective: str,
    output: str,
    described: NetworkOptions,
    planners: str = "auto",
    sizes: str = "1K-1G",
    runtime: str = "msccl-executor-nccl",
    root: str | None = None,
    costs: str | None = None,
    register: Path | None = None,
    as_json: bool = False,
) -> None:
    """Export a folder of files from which a runtime picks the fastest plan by size."""
    from ...runtime.mscclpp.export import write_registration
    from ...runtime.nccl.families import format_of, free_folder, loading_notes, write_family

    format, names, ends = format_of(runtime), _planner_names(planners), _size_range(sizes)  # noqa: A001 - as in `write_family`
    operation = as_collective(collective)
    check_planners(names)
    if register and format != "mscclpp-json":
        raise UsageError(f"--register {register} is for MSCCL++ plans; give --runtime mscclpp too")
    check_targets({"--register": register})
    free_folder(output)
    network = find_network(topology, described)
    with computing(f"planning {collective} on {network.name}"):
        shards = ShardOptions(root).read() | ({} if costs is None else {"costs": costs})
        plans_by_name = {}
        for name in names:
            # In MSCCL XML no switch copies or adds.
            plain = format == "msccl-xml" and not operation.in_pairs and takes_option(name, operation, "in_network")
            plans_by_name[name] = _plans(
                network, operation, name, ends, shards | ({"in_network": False} if plain else {})
            )
    plans = [candidate for pairs in plans_by_name.values() for candidate, _ in pairs]
    with working(f"writing {output}"):
        try:
            frame = write_family(plans, output, sizes=ends, runtime=runtime, format=format)
        except TooLargeError:
            plans = [
                _fitting(candidate, name, options, runtime)
                for name, pairs in plans_by_name.items()
                for candidate, options in pairs
            ]
            frame = write_family(plans, output, sizes=ends, runtime=runtime, format=format)
    if register:
        write_registration(frame["file"], register)
    environment, loading = loading_notes(runtime, list(frame["file"]))
    if as_json:
        emit_json({"runtime": runtime, "files": frame.to_dict("records"), "environment": environment})
    else:
        _print_family(frame, f"{collective} on {network.name}, {network.num_ranks} ranks, for {runtime}")
        for name, value in environment.items():
            emit(row("environment", f"{name}={value}"))
        for line in loading:
            emit(row("loading", line))
    note(f"wrote {count_text(len(frame), 'file')} to {output}")
    if register:
        note(f"wrote {register}")
    for text in _notes(network, operation, plans, frame, format):
        note(f"collopt: note: {text}")
    unused = list(dict.fromkeys(plan.planner for plan in plans if plan.planner not in set(frame["planner"])))
    if unused:
        verb, they_are = ("has", "it is") if len(unused) == 1 else ("have", "they are")
        note(f"collopt: note: {', '.join(unused)} {verb} no file, as {they_are} not the fastest for any size")


def _planner_names(planners: str) -> list[str]:
    names = [name.strip() for name in planners.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"--planners is {planners!r}; expected distinct names separated by commas, such as auto,ring")
    return names


def _size_range(sizes: str) -> tuple[int, int]:
    from ...runtime.nccl.families import size_range

    low, between, high = sizes.partition("-")
    if not between:
        raise UsageError(f"--sizes is {sizes!r}; expected smallest-largest, such as 1K-1G")
    return size_range((low, high))


def _notes(
    network: Topology, collective: Collective, plans: list[planners.Plan], frame: pd.DataFrame, form: str
) -> list[str]:
    """Say what the files make of switches that copy or add."""
    from ...runtime.mscclpp.export import mscclpp_notes

    if form == "msccl-xml":
        capable = network.multicast | network.aggregation
        return ["no switch copies or adds in MSCCL XML"] if capable and not collective.in_pairs else []
    files = dict(zip(frame["planner"], frame["file"], strict=True))
    notes = [mscclpp_notes(plan, files[plan.planner]) for plan in plans if plan.planner in files]
    return list(dict.fromkeys(text for texts in notes for text in texts))


def _plans(
    network: Topology, collective: Collective, planner: str, ends: tuple[int, int], shards: dict[str, Any]
) -> list[tuple[planners.Plan, dict[str, Any]]]:
    """Make a planner's plan, or several in the range of sizes if it plans for a size, each with its options."""
    plans: list[tuple[planners.Plan, dict[str, Any]]] = []
    for size in _sizes_between(*ends):
        options = {"size": size} | shards
        with _name_planner_in_errors(planner):
            planned = planners.plan(network, collective, planner=planner, **options)
        if not any(_is_same(planned, earlier) for earlier, _ in plans):
            plans.append((planned, options))
        if "planned_for" not in planned.provenance:
            break  # links of equal latency are used in the same way for all sizes
    return plans


def _sizes_between(low: int, high: int) -> list[int]:
    """Both ends of a range, and two powers of two between them, evenly apart; some runtimes load four files at most."""
    smallest = max(low, 1)
    gap = (high.bit_length() - smallest.bit_length()) / 3
    between = (2 ** round(smallest.bit_length() - 1 + gap * part) for part in (1, 2))
    return sorted({smallest, high, *(size for size in between if smallest < size < high)})


def _is_same(plan: planners.Plan, other: planners.Plan) -> bool:
    """Whether two plans of one planner put the same loads on all links in as many steps or trees."""
    equal_kind = (plan.planner, plan.schedule.size_text) == (other.planner, other.schedule.size_text)
    return equal_kind and plan.link_loads.tolist() == other.link_loads.tolist()


def _fitting(plan: planners.Plan, planner: str, plan_options: dict[str, Any], runtime: str) -> planners.Plan:
    """Return a plan, or a smaller one if it exceeds the runtime's limits."""
    from ...runtime.mscclpp.lint import RUNTIME as MSCCLPP
    from ...runtime.nccl.families import format_of

    options = {} if runtime == MSCCLPP else {"runtime": runtime}
    with TemporaryDirectory() as folder, _name_planner_in_errors(planner):
        file = Path(folder) / "plan"
        return write_fitting(
            plan, lambda fitting: fitting.export(format_of(runtime), file, **options), planner, plan_options
        )


@contextmanager
def _name_planner_in_errors(planner: str) -> Iterator[None]:
    """Make errors name the planner."""
    try:
        yield
    except UnsupportedError as error:
        raise UnsupportedError(f"{planner} has no plan for this: {error}") from None


def _print_family(frame: pd.DataFrame, title: str) -> None:
    text = "planner", "file"
    table = number_table("min bytes", "max bytes", "estimate", "algbw GB/s", *text, text=text)
    table.title, table.title_justify = title, "left"
    for file in frame.to_dict("records"):
        times = f"{time_text(file['us_at_min'])} to {time_text(file['us_at_max'])}"
        bandwidth = f"{file['algbw']:.2f}"
        table.add_row(str(file["min_bytes"]), str(file["max_bytes"]), times, bandwidth, file["planner"], file["file"])
    emit(table)
