"""Runs a plan on real tensors and compares the result with the library's own collective."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Any, NamedTuple

from ....support.seed import as_seed
from ...interpreter.check import check_program
from ...programs.checks import check_choice, check_counts, check_seconds
from ...programs.program import Program
from ..calls.reduce_ops import OPERATIONS, check_operation
from ..processes.local_ranks import memory_for
from ..processes.rendezvous import BACKENDS, Meeting, on_all_ranks
from .execute import PlanLike, execute, program_of
from .reference_results import poison, reference, tensors
from .run_report import ELEMENT_BYTES, RunReport, total_elements

__all__ = ["RunReport", "run_local"]


class _Job(NamedTuple):
    program: Program
    elements: int
    dtype: str
    repeats: int
    slices: int
    op: str
    seed: int


class _Measurement(NamedTuple):
    """One rank's part of a report."""

    backend: str
    correct: bool
    seconds: float


def run_local(
    plan: PlanLike | Program,
    *,
    backend: str = "gloo",
    elements: int = 65536,
    dtype: str = "float32",
    timeout_s: float = 120.0,
    repeats: int = 3,
    slices: int = 1,
    op: str = "sum",
    seed: int = 0,
) -> RunReport:
    """Run a plan on this machine, one process per rank, and compare the result with torch's own collective.

    In a process that torchrun started, or in which torch.distributed is initialised, no processes are started: this one
    is a rank, and all ranks have to make the same call.

    Parameters
    ----------
    plan : Plan or Program
        What to run.
    backend : {"gloo", "nccl"}
        Transport; "nccl" is RCCL on AMD GPUs.  An initialised torch.distributed keeps the one that it has.
    elements : int
        Elements of a shard for allgather and reduce_scatter (of an average one, if the plan has weights), of what each
        rank has for each for all_to_all (on average for all_to_allv, whose parts are multiples of the plan's traffic),
        of the whole buffer otherwise.
    dtype : str
        Name of a torch type, such as ``"float32"`` or ``"int32"``.
    timeout_s : float
        Seconds for everything.
    repeats : int
        Timed runs, after one that is not.
    slices : int
        See `execute`.
    op : {"sum", "prod", "min", "max", "avg"}
        See `execute`.
    seed : int
        Of the data that are sent, 0 to 2147483647.

    Returns
    -------
    RunReport

    Raises
    ------
    UnsupportedError
        If the backend or the type is not available, the number of ranks does not fit, or the variables of torchrun
        make no sense.
    ProgramError
        If the program is wrong, or a rank fails, dies, is late or does not come; no process is left running.
    """
    check_choice("backend", backend, BACKENDS)
    check_choice("dtype", dtype, ELEMENT_BYTES)
    check_counts({"elements": elements, "repeats": repeats, "slices": slices})
    check_seconds("timeout_s", timeout_s)
    check_choice("op", op, OPERATIONS)
    program = program_of(plan)
    check_program(program)
    check_operation(op, dtype, program.layout)
    job = _Job(program, elements, dtype, repeats, slices, op, as_seed(seed))
    parts = on_all_ranks(
        partial(_measure, job),
        Meeting(program.num_ranks, backend, timeout_s),
        terms=_terms(job),
        preload=("collopt.runtime.distributed.execution.launch",),
    )
    correct = tuple(part.correct for part in parts)
    seconds = max(part.seconds for part in parts)
    return RunReport(
        parts[0].backend,
        program.num_ranks,
        elements,
        dtype,
        repeats,
        correct,
        seconds,
        program.collective,
        op,
        _elements_in_all(job),
    )


def _elements_in_all(job: _Job) -> int:
    """Elements of all ranks together: for all_to_allv, the largest multiple of its traffic, or at least that itself."""
    total = total_elements(job.program.collective, job.program.num_ranks, job.elements)
    if not job.program.layout.in_pairs:
        return total
    unit = sum(job.program.layout.parts)
    return max(1, total // unit) * unit


def _terms(job: _Job) -> dict[str, object]:
    """What has to be the same on all ranks."""
    return {
        "the plan": job.program.digest,
        "elements": job.elements,
        "dtype": job.dtype,
        "repeats": job.repeats,
        "slices": job.slices,
        "op": job.op,
        "seed": job.seed,
    }


def _measure(job: _Job, device: Any) -> _Measurement:
    """Run the program on this rank's tensors, compare, and take the time."""
    import torch
    import torch.distributed as dist

    rank, elements = dist.get_rank(), _elements_in_all(job)
    with memory_for(f"elements={job.elements} of {job.dtype}", "fewer"):
        output, mine = tensors(job.program, rank, elements, getattr(torch, job.dtype), device, seed=job.seed)
        wanted = reference(job.program, rank, elements, mine, job.op)
    correct, times = True, []
    for _ in range(1 + job.repeats):
        poison(output, wanted)
        dist.barrier()
        _finish(torch, device)
        start = time.perf_counter()
        execute(job.program, output, mine, slices=job.slices, op=job.op)
        _finish(torch, device)
        times.append(time.perf_counter() - start)
        correct = correct and wanted.accepts(output)
    return _Measurement(dist.get_backend(), correct, statistics.median(times[1:]))


def _finish(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
