"""``collopt calibrate``: costs of the runtime on a network, fitted to measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError
from ...support.formatting import count_text, percentage_text
from ...support.validation import shown
from ...topologies import Topology
from ..terminal.networks import network_file, network_if_named
from ..terminal.output import Formats, emit, note, plain_table
from ..terminal.output_files import check_figure, check_targets, name_errors_after
from ..terminal.parameters import NetworkOptions, UsageError, check_planners
from ..terminal.progress import working

if TYPE_CHECKING:
    from ...runtime import Calibration
    from ...runtime.measuring.calibrate import FittedCost
    from ...runtime.measuring.cost_fit import RelativeFit
    from ...runtime.measuring.measured_times import MeasuredTimes

MAX_MEDIAN_ERROR, MAX_WORST_ERROR = 0.1, 0.3  # Relative; beyond, a model is said not to describe its times
NOT_IDENTIFIABLE = "not identifiable from these sizes"
UNITS = {"launch": "µs", "alpha": "µs per hop", "reduction": "µs per MB", "latency": "µs"}


def calibrate(
    described: NetworkOptions,
    formats: Formats,
    files: list[Path] | None = None,
    classes: list[str] | None = None,
    topology: str | None = None,
    collective: str | None = None,
    by: str | None = None,
    planner: str | None = None,
    output: Path | None = None,
    figure: Path | None = None,
) -> None:
    """Fit launch, alpha and efficiency of links to times measured by nccl-tests.

    Without a network, alpha and algbw are fitted to each file.  With a network and no file, its link classes are
    listed.
    """
    from ...report import save_figure
    from ...runtime import Measurement
    from ...runtime import calibrate as calibrated
    from ...topologies import write_topology

    runs = [(file, ()) for file in files or []] + [_tie(text) for text in classes or []]
    about = {"--class": classes, "--output": output, "--figure": figure, "--planner": planner}
    if (topology is None or not runs) and (flags := [flag for flag, value in about.items() if value]):
        where = "applies to a network; give --topology" if topology is None else "needs measured times; give them"
        raise UsageError(f"{flags[0]} {where} too, or leave it out")
    if topology is None and not runs:
        raise UsageError("there is nothing to calibrate; give output of nccl-tests, or --topology for its link classes")
    check_planners([planner] if planner else ())
    sources = [file for file, _ in runs]
    check_figure("--figure", figure)
    read = [*sources, None if topology is None else network_file(topology)]
    check_targets({"--output": output, "--figure": figure}, sources=read)
    network = network_if_named(topology, described)
    with working("fitting"):
        measured = [(_read(file, collective, by), names) for file, names in runs]
        calibration = None
        if network and measured:
            calibration = calibrated(network, [Measurement(*run) for run in measured], planner=planner)
        rows = _lines(measured) if network is None else _classes(network) if calibration is None else calibration.rows()
    if calibration and output:
        with name_errors_after(output):
            write_topology(calibration.topology, output)
        note(f"wrote {output}")
    if calibration and figure:
        with name_errors_after(figure):
            save_figure(calibration.plot(), figure)
        note(f"wrote {figure}")
    document: Any = rows
    if calibration:
        run_rows = [run._asdict() for run in calibration.runs]
        document = {"runs": run_rows, "costs": rows, "notes": list(calibration.notes)}
    if formats.emit(lambda: rows, lambda: document):
        return
    if calibration:
        _print(calibration)
        return
    unknown = dict.fromkeys(("alpha_us", "algbw"), NOT_IDENTIFIABLE)
    emit(plain_table([row | {name: unknown.get(name) for name in row if row[name] is None} for row in rows]))


def _tie(text: str) -> tuple[Path, tuple[str, ...]]:
    names, equals, file = text.partition("=")
    class_names = tuple(filter(None, (name.strip() for name in names.split(","))))
    if not equals or not file or not class_names:
        raise UsageError(f"--class {shown(text)} is not of the form NAMES=FILE, such as gpu-nic,nic-ib=times.txt")
    return Path(file), class_names


def _read(file: Path, collective: str | None, by: str | None) -> MeasuredTimes:
    from ...runtime import read_nccl_tests
    from ...runtime.measuring.measured_times import collective_by_name
    from ...support.files import MEASURED_KIND, wrong_kind

    try:
        read = read_nccl_tests(file)
    except FileFormatError:
        if problem := wrong_kind(file, MEASURED_KIND, [MEASURED_KIND]):
            raise FileFormatError(problem) from None
        raise
    if by is None and len(read.names) > 1:
        raise UsageError(f"{file} has several backends or plans; choose one: --by {' or --by '.join(read.names)}")
    times = read.of(by)
    if collective is None:
        return times
    name = collective_by_name(collective)
    if name is None:
        raise UsageError(f"--collective is {shown(collective)}; expected one of nccl-tests, such as sendrecv")
    if times.collective not in (None, name):
        raise UsageError(f"--collective is {name}, but {file} says {times.collective}; leave the option out")
    return replace(times, collective=name)


def _lines(measured: Sequence[tuple[MeasuredTimes, tuple[str, ...]]]) -> list[dict[str, Any]]:
    """Fit a line to each file alone."""
    from ...runtime.measuring.cost_fit import fit_line

    return [
        {"file": times.source, "collective": times.collective and str(times.collective)} | _line(fit_line(times))
        for times, _ in measured
    ]


def _line(line: RelativeFit) -> dict[str, Any]:
    (latency, slope), (latency_error, slope_error) = line.values.tolist(), line.reach.tolist()
    residuals = sorted(abs(line.residuals).tolist())
    return {
        "alpha_us": latency if latency > latency_error else None,
        "alpha_error": latency_error / latency if latency > latency_error else None,
        "algbw": 1 / slope if slope > slope_error else None,
        "algbw_error": slope_error / slope if slope > slope_error else None,
        "points": len(residuals),
        "median_residual": median(residuals),
        "worst_residual": residuals[-1],
    }


def _classes(network: Topology) -> list[dict[str, Any]]:
    from ...topologies.network.link_costs import link_classes

    return [
        {"class": link_class.name, "links": len(link_class.links), "bandwidth": float(link_class.bandwidth)}
        | {"latency_us": float(link_class.latency)}
        for link_class in link_classes(network)
    ]


def _print(calibration: Calibration) -> None:
    emit(f"{calibration.topology.name}; rounded by a tenth of their 95 % confidence intervals at most")
    for run in calibration.runs:
        emit(f"  model for {run.model}")
        emit(f"    {count_text(run.num_points, 'time')}, median error {percentage_text(run.median_residual)}")
    emit(plain_table([_row(cost) for cost in calibration.costs]))
    for text in calibration.notes:
        emit(f"  {text}")
    for run in calibration.runs:
        if run.median_residual > MAX_MEDIAN_ERROR or run.worst_residual > MAX_WORST_ERROR:
            off, worst = percentage_text(run.median_residual), percentage_text(run.worst_residual)
            source, _, _ = run.model.partition(": ")
            what = f"{source}: the model does not describe the {run.num_points} measured times well"
            note(f"collopt: note: {what}: median error {off}, worst {worst}")


def _row(cost: FittedCost) -> dict[str, str]:
    kind = f", {UNITS[cost.name]}" if cost.name in UNITS else ""
    interval = "" if cost.low is None or cost.high is None else f"{cost.low:.4g} to {cost.high:.4g}"
    reached = ""
    if cost.links is not None and cost.name == "efficiency" and not cost.reason:
        reached = f"{float(cost.value * cost.links.bandwidth):.4g} of {float(cost.links.bandwidth):g} GB/s"
    return {
        "cost": cost.title + kind,
        "before": f"{float(cost.before):g}",
        "value": cost.reason or f"{float(cost.value):g}",
        "95 %": interval,
        "reached": reached,
        "fitted with": ", ".join(name for name in cost.together if cost.links and name != cost.links.name),
    }
