"""``collopt run``: execute a plan file on this machine or on launched ranks, and compare the data with torch's own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ... import planners
from ...errors import ProgramError
from ...schedules import Collective
from ...schedules.collective import as_collective
from ..terminal.networks import find_network
from ..terminal.output import CHECK_FAILED, Formats, emit, emit_json, note
from ..terminal.parameters import NetworkOptions, ShardOptions, UsageError, check_planners
from ..terminal.progress import computing, working

if TYPE_CHECKING:
    from ...runtime import BenchReport, RunReport


GRACE_S = 5.0  # Torch's own errors, which say more, get this long after the deadline


def note_copies(plans: Mapping[str, planners.Plan]) -> None:
    """Say that ranks do what switches do in these plans, so that their rates are not those of the plans."""
    from ...runtime.lowering.trees import branches_at_switches

    if names := [name for name, plan in plans.items() if branches_at_switches(plan.schedule)]:
        note(
            f"collopt: note: ranks copy and add up what switches do in the trees of {', '.join(names)}, as "
            "torch.distributed sends from rank to rank"
        )


@contextmanager
def as_one_of_the_ranks(what: str, timeout: float) -> Iterator[None]:
    """Under torchrun, silence torch's libraries and end the process after `timeout` seconds; elsewhere do nothing.

    Torch can wait for ever if something else than a rank answers at the master's address.
    """
    from ...runtime.execution.rendezvous import launch_of_environment

    launch = launch_of_environment()
    if launch is None:
        yield
        return
    # Their errors come as exceptions too, without stack traces; the libraries look at this when torch is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    message = (
        f"rank {launch.rank} of {launch.size} did not finish {what} within {timeout:g} s; check that all ranks "
        f"are started and can reach {launch.master}, or give a longer --timeout"
    )
    late = threading.Timer(timeout + GRACE_S, _give_up, (message,))
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def check_op(op: str | None, collective: Collective, name: object) -> None:
    """Refuse a reduction operation for a collective that does not reduce."""
    if op is not None and not collective.reduces:
        raise UsageError(f"--op {op} reduces, but the {collective} of {name} does not reduce; leave it out")


def _give_up(message: str) -> None:
    note(f"collopt: error: {message}")
    os._exit(CHECK_FAILED)


def run(
    plan: Path,
    backend: str = "gloo",
    elements: int = 65536,
    dtype: str = "float32",
    op: str = "sum",
    repeats: int = 3,
    slices: int = 1,
    timeout: float = 120,
    as_json: bool = False,
) -> None:
    """Run a plan on real tensors, one process per rank, and compare the result with torch's own collective.

    All ranks are started on this machine, each importing torch: 64 ranks take 64 times its memory and startup time.
    Under torchrun, each process is one rank, and rank 0 prints.
    """
    from ...runtime import launched_rank, run_local
    from ...support.seed import current_seed

    loaded, rank = planners.load_plan(plan), launched_rank()
    check_op(op if op in ("prod", "min", "max", "avg") else None, loaded.collective, plan)
    # Under torchrun all ranks have the whole report, and one of them is enough.
    progress = nullcontext() if rank else working(f"running {plan} on {loaded.topology.num_ranks} ranks")
    with progress, as_one_of_the_ranks(str(plan), timeout):
        report = run_local(
            loaded,
            backend=backend,
            elements=elements,
            dtype=dtype,
            timeout_s=timeout,
            repeats=repeats,
            slices=slices,
            op=op,
            seed=current_seed(),
        )
    if not rank:
        if as_json:
            emit_json(_as_json(plan, report))
        else:
            emit(str(report))
        note_copies({str(plan): loaded})
    if not report.all_correct:
        wrong_ranks = [rank for rank, correct in enumerate(report.correct) if not correct]
        raise ProgramError(f"{plan} left wrong data on ranks {wrong_ranks}; rule out faulty hardware, and report this")


def _as_json(plan: Path, report: RunReport) -> dict[str, Any]:
    names = ("op", "backend", "num_ranks", "elements", "dtype", "repeats", "total_bytes")
    return {
        "plan": str(plan),
        "collective": str(report.collective),
        **{name: getattr(report, name) for name in names},
        "correct": report.all_correct,
        "wrong_ranks": [rank for rank, correct in enumerate(report.correct) if not correct],
        "microseconds": report.seconds * 1e6,
        "algbw": report.algbw,
        "busbw": report.busbw,
    }


PLACES = ("out_of_place", "in_place")


def bench(
    described: NetworkOptions,
    data: ShardOptions,
    formats: Formats,
    plans: list[Path] | None = None,
    minbytes: int = 2**25,
    maxbytes: int = 2**25,
    stepfactor: int | None = None,
    stepbytes: int | None = None,
    iters: int = 20,
    warmup_iters: int = 5,
    check: int = 1,
    datatype: str = "float",
    op: str | None = None,
    backend: str = "gloo",
    slices: int = 1,
    timeout: float = 600,
    topology: str | None = None,
    collective: str | None = None,
    planner: list[str] | None = None,
) -> None:
    """Measure plans side by side with the backend's own collective, with the flags and columns of nccl-tests.

    All ranks are started on this machine. Under torchrun, each process is one rank, and rank 0 prints.
    """
    from ...runtime import launched_rank, measure_plans
    from ...support.seed import current_seed

    if stepfactor is not None and stepbytes is not None:
        raise UsageError("--stepfactor and --stepbytes are mutually exclusive; give one of them")
    rank = launched_rank()
    compared: dict[str, planners.Plan] = {}
    named = [(str(path), planners.load_plan(path)) for path in plans or []]
    named += [(planned.planner, planned) for planned in _planned(topology, collective, planner or [], described, data)]
    for name, loaded in named:
        if name in compared:
            raise UsageError(f"{name} is given twice; keep one")
        compared[name] = loaded
    if not compared:
        raise UsageError("there is nothing to measure; give plan files, or --topology and --collective")
    for name, compared_plan in compared.items():
        check_op(op, compared_plan.collective, name)
    what = ", ".join(compared)
    table = LiveTable(f"measuring {what}", prints=not any(formats))
    # Under torchrun all ranks have the whole report, and one of them is enough.
    with nullcontext() if rank else table, as_one_of_the_ranks(what, timeout):
        report = measure_plans(
            compared,
            minbytes=minbytes,
            maxbytes=maxbytes,
            stepfactor=stepfactor,
            stepbytes=stepbytes or 2**20,
            iters=iters,
            warmup_iters=warmup_iters,
            check=check,
            datatype=datatype,
            op=op or "sum",
            backend=backend,
            slices=slices,
            timeout_s=timeout,
            seed=current_seed(),
            on_row=table.add,
        )
    if not rank:
        planned = {name: float(plan.busbw) for name, plan in compared.items()}
        document = {"args": sys.argv} | report.to_json() | {"planned_bus_bandwidth": planned}
        if not formats.emit(lambda: _tidy_rows(document["results"]), lambda: document):
            table.finish(report, compared)
        note_copies(compared)
    if report.wrong_elements:
        names = [name for name in report.names if any(row.name == name and row.wrong_elements for row in report.rows)]
        raise ProgramError(
            f"{report.wrong_elements} elements computed by {', '.join(names)} are wrong; rule out faulty hardware, and "
            "report this"
        )


def _tidy_rows(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per measured time."""
    return [
        {name: value for name, value in result.items() if name not in PLACES} | {"place": place} | result[place]
        for result in results
        for place in PLACES
        if result[place] is not None
    ]


def _planned(
    topology: str | None, collective: str | None, names: Sequence[str], options: NetworkOptions, shards: ShardOptions
) -> list[planners.Plan]:
    """Plan for the network described by the options, if any."""
    if topology is None:
        described = {"--collective": collective, "--planner": names}
        if stray := [flag for flag, value in described.items() if value] + shards.flags() + options.flags():
            raise UsageError(f"{stray[0]} applies to plans made for --topology; give --topology too, or leave it out")
        return []
    if collective is None:
        raise UsageError(f"--topology {topology} needs --collective, the collective to plan")
    as_known = as_collective(collective)
    check_planners(names)
    network, shard_options = find_network(topology, options), shards.read()
    with computing(f"planning {collective} on {network.name}"):
        return [planners.plan(network, as_known, planner=name, **shard_options) for name in names or ["auto"]]


class LiveTable:
    """Prints the rows of the benchmark as they are measured, with a progress bar below them on a terminal."""

    def __init__(self, message: str, *, prints: bool) -> None:
        self._message, self._prints = message, prints
        self._shown = ExitStack()
        self._reached: Callable[[int], None] | None = None
        self._printed = 0

    def __enter__(self) -> Self:
        """Show the progress bar."""
        self._shown.enter_context(working(self._message))
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the progress bar."""
        self._shown.close()

    def add(self, report: BenchReport, total: int) -> None:
        """Print the new row of a report, of `total` rows."""
        if self._prints and sys.stdout is not None and sys.stdout.isatty():
            # A terminal has one place to write at, where the bar stands.
            self._shown.close()
            self._print(report)
            self._shown.enter_context(working(self._message))
            self._reached = None
        elif self._prints:
            self._print(report)
        if self._reached is None:
            from ...support import progress

            self._reached = self._shown.enter_context(progress.task(total))
        self._reached(len(report.rows))

    def finish(self, report: BenchReport, plans: Mapping[str, planners.Plan]) -> None:
        """Print the remaining rows and the lines below them."""
        self._print(report)
        planned = [
            f"# Planned bus bandwidth: {float(plan.busbw):g} {name} on {plan.topology.name}"
            for name, plan in plans.items()
        ]
        emit("\n".join([*report.tail_lines(), *planned]))

    def _print(self, report: BenchReport) -> None:
        head = [] if self._printed else report.head_lines()
        if lines := head + [report.row_line(row) for row in report.rows[self._printed :]]:
            emit("\n".join(lines))
        self._printed = len(report.rows)
