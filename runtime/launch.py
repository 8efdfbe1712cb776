"""Runs a plan on real tensors and compares the result with the library's own collective."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from ..errors import ColloptError, MissingDependencyError, ProgramError, UnsupportedError
from .agreement import first_line
from .arguments import import_torch
from .checks import check_program
from .distributed import PlanLike, execute, program_of
from .local_ranks import run_ranks
from .options import check_choice, check_counts, check_seconds
from .program import Program
from .reductions import OPERATIONS, check_operation
from .references import poison, reference, tensors
from .run_report import ELEMENT_BYTES, RunReport, total_elements
from .torchrun import launch_of_environment, launched_rank

__all__ = ["RunReport", "run_local"]

BACKENDS = ("gloo", "nccl")


class _Job(NamedTuple):
    program: Program
    backend: str
    elements: int
    dtype: str
    repeats: int
    slices: int
    op: str
    timeout_s: float


class _Measurement(NamedTuple):
    """One rank's part of a report."""

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
    MissingDependencyError
        If torch is not installed.
    """
    check_choice("backend", backend, BACKENDS)
    check_choice("dtype", dtype, ELEMENT_BYTES)
    check_counts({"elements": elements, "repeats": repeats, "slices": slices})
    check_seconds("timeout_s", timeout_s)
    check_choice("op", op, OPERATIONS)
    program = program_of(plan)
    check_program(program)
    check_operation(op, dtype, program.layout)
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("running a program needs torch; install it with: pip install 'collopt[torch]'")
    job = _Job(program, backend, elements, dtype, repeats, slices, op, timeout_s)
    if launched_rank() is not None:
        job, parts = _measure_here(job)
    else:
        parts = run_ranks(
            partial(_measure_local_rank, job),
            program.num_ranks,
            timeout_s=timeout_s,
            preload=("torch", "torch.distributed", "collopt.runtime.launch"),
        )
    correct = tuple(part.correct for part in parts)
    seconds = max(part.seconds for part in parts)
    return RunReport(
        job.backend,
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


def _measure_here(job: _Job) -> tuple[_Job, list[_Measurement]]:
    """Be one of the ranks that somebody else started, and hear from the others; a group that exists has its backend."""
    _, dist = import_torch()
    if dist.is_initialized():
        _check_ranks(job, dist.get_world_size())
        job = job._replace(backend=dist.get_backend())
        return job, _gathered(job, int(os.environ.get("LOCAL_RANK", dist.get_rank())))
    launch = launch_of_environment()
    assert launch is not None  # Or `launched_rank` would have said that this process is no rank.
    _check_ranks(job, launch.size)
    _check_backend(job, launch.local_size)
    with _told_by(f"rank {launch.rank} of {launch.size} could not join the others at {launch.meeting_point}"):
        dist.init_process_group(job.backend, timeout=timedelta(seconds=job.timeout_s))
    try:
        return job, _gathered(job, launch.local_rank)
    finally:
        # After a failure the group may be past an orderly end, and the failure is what is to be told.
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _check_ranks(job: _Job, size: int) -> None:
    if size != job.program.num_ranks:
        raise UnsupportedError(f"{size} processes were started, the program is for {job.program.num_ranks} ranks")


def _gathered(job: _Job, local_rank: int) -> list[_Measurement]:
    """Measure on this rank, and hear from the others."""
    import torch.distributed as dist

    parts: list[Any] = [None] * job.program.num_ranks
    with _told_by(f"rank {dist.get_rank()} of {job.program.num_ranks} could not finish"):
        # Gloo ends the process, without an exception, where sizes differ.
        dist.all_gather_object(parts, _terms(job))
        _check_agreement(parts)
        dist.all_gather_object(parts, _measure(job, local_rank))
    return parts


def _terms(job: _Job) -> dict[str, object]:
    """What has to be the same on all ranks."""
    return {
        "the plan": job.program.digest,
        "elements": job.elements,
        "dtype": job.dtype,
        "repeats": job.repeats,
        "slices": job.slices,
        "op": job.op,
    }


def _check_agreement(terms: Sequence[dict[str, object]]) -> None:
    """Refuse different jobs, on all ranks alike."""
    for name in terms[0]:
        values = list(dict.fromkeys(str(each[name]) for each in terms))
        if len(values) > 1:
            shown = "" if name == "the plan" else f": {', '.join(values)}"
            raise ProgramError(f"the ranks disagree about {name}{shown}; start all with the same plan and options")


@contextmanager
def _told_by(what: str) -> Iterator[None]:
    """Turn what torch raises when ranks do not come, or leave, into an error of ours: its first line after `what`."""
    try:
        yield
    except ColloptError:
        raise
    except (RuntimeError, ValueError, OSError) as error:
        raise ProgramError(f"{what}: {first_line(error)}") from error


def _measure_local_rank(job: _Job, rank: int, folder: str) -> _Measurement:
    """Be one of the ranks that `run_local` started."""
    import torch.distributed as dist

    _check_backend(job, job.program.num_ranks)
    if "lo" in (name for _, name in socket.if_nameindex()):
        # Everything stays on this machine, whatever its host name resolves to.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        job.backend,
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=job.program.num_ranks,
        timeout=timedelta(seconds=job.timeout_s),
    )
    part = _measure(job, rank)
    dist.barrier()
    dist.destroy_process_group()
    return part


def _check_backend(job: _Job, local_ranks: int) -> None:
    """Say what there is if the backend cannot run here."""
    import torch
    import torch.distributed as dist

    available = [name for name in (*BACKENDS, "mpi", "ucc") if dist.is_available() and dist.is_backend_available(name)]
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if job.backend not in available or (job.backend == "nccl" and gpus == 0):
        raise UnsupportedError(
            f"backend {job.backend} is not available: torch {torch.__version__} has {', '.join(available) or 'none'} "
            f"and sees {gpus} GPUs; try backend='gloo'"
        )
    if job.backend == "nccl" and gpus < local_ranks and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1":
        raise UnsupportedError(
            f"{local_ranks} local ranks need as many GPUs for nccl, there are {gpus}; use backend='gloo', or with NCCL "
            "2.30 or later set NCCL_MULTI_RANK_GPU_ENABLE=1"
        )


def _measure(job: _Job, local_rank: int) -> _Measurement:
    """Run the program on this rank's tensors, compare, and take the time."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    device = torch.device("cpu")
    if job.backend == "nccl":
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    rank, elements = dist.get_rank(), _elements_in_all(job)
    with _memory_of(job):
        output, mine = tensors(job.program, rank, elements, getattr(torch, job.dtype), device)
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
    return _Measurement(correct, statistics.median(times[1:]))


@contextmanager
def _memory_of(job: _Job) -> Iterator[None]:
    """Tell in our words that tensors do not fit memory; torch has no exception of its own for that on CPUs."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not re.search("memory|overflow|size", str(error)):
            raise
        raise UnsupportedError(
            f"there is not enough memory for elements={job.elements} of {job.dtype} on this rank; give fewer"
        ) from error


def _finish(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
