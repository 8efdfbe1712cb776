"""``collopt run``: execute a plan file on this machine or on launched ranks, and compare the data with torch's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ProgramError
from ...schedules import Collective
from ..terminal.output import CHECK_FAILED, emit, emit_json, note
from ..terminal.parameters import UsageError
from ..terminal.progress import working

if TYPE_CHECKING:
    from ...planners import Plan
    from ...runtime import RunReport

GRACE_S = 5.0  # Torch's own errors, which say more, get this long after the deadline


def note_copies(plans: Mapping[str, Plan]) -> None:
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
    from ...planners import load_plan
    from ...runtime import launched_rank, run_local
    from ...support.seed import current_seed

    loaded, rank = load_plan(plan), launched_rank()
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
