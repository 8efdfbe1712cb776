"""``collopt run``: execute a plan file on this machine and compare the data with torch's own."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ProgramError
from ..terminal.output import emit, emit_json
from ..terminal.progress import working
from .launched import as_one_of_the_ranks, check_op, note_copies

if TYPE_CHECKING:
    from ...runtime import RunReport


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
        wrong = [rank for rank, correct in enumerate(report.correct) if not correct]
        raise ProgramError(f"{plan} left wrong data on ranks {wrong}; rule out faulty hardware, and report this")


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
