"""Runs a plan on real tensors and compares the result with the library's own collective."""

from __future__ import annotations

import importlib.util
import math
import os
import socket
import statistics
import sys
import time
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from ..errors import MissingDependencyError, UnsupportedError
from .checks import check_program
from .distributed import PlanLike, execute, program_of
from .local_ranks import run_ranks
from .program import Program
from .reductions import OPERATIONS
from .references import poison, reference, tensors
from .run_report import ELEMENT_BYTES, RunReport, total_elements

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
        Elements of a shard for allgather and reduce_scatter (of an average one, if the plan has weights), of the whole
        buffer otherwise.
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
        If the backend or the type is not available, or the number of ranks does not fit.
    ProgramError
        If the program is wrong, or a rank fails, dies or is late; no process is left running.
    MissingDependencyError
        If torch is not installed.
    """
    if backend not in BACKENDS:
        raise UnsupportedError(f"backend is {backend!r}; expected one of {', '.join(BACKENDS)}")
    if dtype not in ELEMENT_BYTES:
        raise UnsupportedError(f"dtype is {dtype!r}; expected one of {', '.join(ELEMENT_BYTES)}")
    for name, value in (("elements", elements), ("repeats", repeats), ("slices", slices)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnsupportedError(f"{name} is {value!r}; expected a whole number of at least 1")
    if not 0 < timeout_s < math.inf:
        raise UnsupportedError(f"timeout_s is {timeout_s!r}; expected a positive number of seconds")
    if op not in OPERATIONS:
        raise UnsupportedError(f"op is {op!r}; expected one of {', '.join(OPERATIONS)}")
    program = program_of(plan)
    check_program(program)
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("running a program needs torch; install it with: pip install 'collopt[torch]'")
    job = _Job(program, backend, elements, dtype, repeats, slices, op, timeout_s)
    if _is_launched():
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
    return RunReport(job.backend, program.num_ranks, elements, dtype, repeats, correct, seconds, program.collective, op)


def _is_launched() -> bool:
    """Whether this process is already one of the ranks."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return True
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def _measure_here(job: _Job) -> tuple[_Job, list[_Measurement]]:
    """Be one of the ranks that somebody else started, and hear from the others; a group that exists has its backend."""
    import torch.distributed as dist

    own_group = not dist.is_initialized()
    size = int(os.environ["WORLD_SIZE"]) if own_group else dist.get_world_size()
    if size != job.program.num_ranks:
        raise UnsupportedError(f"{size} processes were started, the program is for {job.program.num_ranks} ranks")
    if not own_group:
        job = job._replace(backend=dist.get_backend())
    else:
        _check_backend(job, int(os.environ.get("LOCAL_WORLD_SIZE", size)))
        dist.init_process_group(job.backend, timeout=timedelta(seconds=job.timeout_s))
    part = _measure(job, int(os.environ.get("LOCAL_RANK", dist.get_rank())))
    parts: list[Any] = [None] * job.program.num_ranks
    dist.all_gather_object(parts, part)
    if own_group:
        dist.destroy_process_group()
    return job, parts


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
    rank, elements = dist.get_rank(), total_elements(job.program.collective, job.program.num_ranks, job.elements)
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


def _finish(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
