"""Measures plans beside the backend's own collectives, the way nccl-tests does."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ....errors import UnsupportedError
from ....support.seed import as_seed
from ....support.validation import shown
from ...distributed.calls.reduce_ops import OPERATIONS, check_operation
from ...distributed.execution.execute import PlanLike, program_of
from ...distributed.execution.run_report import ELEMENT_BYTES
from ...distributed.processes.local_ranks import memory_for, tell
from ...distributed.processes.rendezvous import BACKENDS, Meeting, on_all_ranks
from ...programs.checks import check_choice, check_counts, check_seconds
from ...programs.program import Program
from .buffers import Question, fill_input, fill_wrong, make_expected, make_tensors, wrong_elements
from .libraries import BackendRival, PlanRival, Rival, comparable
from .report import BenchReport, BenchRow, Device, Reading
from .sizes import DATATYPES, Extent, extents, sweep

PLACES = (False, True)
"""Out of place, and in place."""


class _Job(NamedTuple):
    """What every rank has to know; it is pickled."""

    programs: tuple[tuple[str, Program], ...]
    sizes: tuple[Extent, ...]
    dtype: str
    op: str
    slices: int
    iters: int
    warmup_iters: int
    check: int
    seed: int

    @property
    def program(self) -> Program:
        """Any of them; what is asked of all is the same."""
        return self.programs[0][1]

    @property
    def beside_backend(self) -> bool:
        """Whether the backend has a collective of its own for this."""
        return not self.program.collective.is_sharded or len(set(self.program.layout.parts)) == 1

    @property
    def num_rows(self) -> int:
        """Of the report that comes of it."""
        return len(self.sizes) * (len(self.programs) + self.beside_backend)


class _Part(NamedTuple):
    """One rank's part of a report; rows are the same on all."""

    device: Device
    backend: str
    rows: tuple[BenchRow, ...]


def measure_plans(
    plans: Mapping[str, PlanLike | Program],
    *,
    minbytes: int = 2**25,
    maxbytes: int = 2**25,
    stepfactor: int | None = None,
    stepbytes: int = 2**20,
    iters: int = 20,
    warmup_iters: int = 5,
    check: int = 1,
    datatype: str = "float",
    op: str = "sum",
    backend: str = "gloo",
    slices: int = 1,
    timeout_s: float = 600.0,
    seed: int = 0,
    on_row: Callable[[BenchReport, int], object] | None = None,
) -> BenchReport:
    """Measure plans of one collective, and the backend's own collective beside them, over a sweep of sizes.

    One process per rank is started on this machine.  In a process that torchrun started, or in which torch.distributed
    is initialised, this one is a rank instead, and all ranks have to make the same call.

    Parameters
    ----------
    plans : mapping of str to Plan or Program
        By the names that the report is to have for them; all for the same ranks, collective, root and shares.
    minbytes, maxbytes, stepfactor, stepbytes : int
        Sizes as nccl-tests counts them, see `collopt.runtime.measuring.bench.sizes`; without a factor, steps of
        `stepbytes`. They are rounded down to what all parts divide equally.
    iters, warmup_iters : int
        Timed calls of each size, one after the other, and calls before those.
    check : int
        Calls whose results are compared with what they have to be, element by element; 0 for none.
    datatype : str
        A name of nccl-tests: int8, uint8, int32, int64, half, float, double or bfloat16.
    op : {"sum", "prod", "min", "max", "avg"}
        See `collopt.runtime.execute`.
    backend : {"gloo", "nccl"}
        "nccl" is RCCL on AMD GPUs.  An initialised torch.distributed keeps the one that it has.
    slices : int
        See `collopt.runtime.execute`.
    timeout_s : float
        Seconds for everything.
    seed : int
        Of the data that are sent, 0 to 2147483647.
    on_row : callable, optional
        Called after every row, with a report of those so far, which has no devices and no end yet, and the number of
        rows that there will be.  Where all ranks make this call, only the first one's is used.

    Returns
    -------
    BenchReport

    Raises
    ------
    UnsupportedError
        If a plan or an option makes no sense or cannot be run here, or the plans differ in what they are for.
    ProgramError
        If a program is wrong, or a rank fails, dies, is late or does not come.

    Notes
    -----
    The time of a size is the mean over its calls, of the slowest rank; all start after a barrier.  On CPUs every call
    is over when it returns.  On GPUs calls are queued, and the time is that between two events in the stream.  Torch
    has allreduce, reduce and broadcast in place only; out of place, its time includes the copy that people then make.
    The backend is left out where shares are not equal, for which torch has no collective.
    """
    check_words(datatype, op, backend)
    config = checked_config(minbytes, maxbytes, stepfactor, stepbytes, iters, warmup_iters, check, slices, seed)
    check_seconds("timeout_s", timeout_s)
    if not isinstance(plans, Mapping):
        raise UnsupportedError(f"the plans are {shown(plans)}; expected a mapping of names to them")
    programs = comparable({name: program_of(plan) for name, plan in plans.items()})
    program, dtype = programs[0][1], DATATYPES[datatype]
    check_operation(op, dtype, program.layout)
    sizes = sweep(minbytes, maxbytes, stepfactor, stepbytes)
    found = extents(program.layout, program.num_ranks, sizes, ELEMENT_BYTES[dtype])
    job = _Job(programs, found, dtype, op, slices, iters, warmup_iters, check, config["seed"])
    report = _begun(job, datatype, config, backend)
    so_far: list[BenchRow] = []

    def heard(news: tuple[str, BenchRow]) -> None:
        so_far.append(news[1])
        if on_row is not None:
            on_row(replace(report, backend=news[0], rows=tuple(so_far)), job.num_rows)

    parts = on_all_ranks(
        partial(_measure, job),
        Meeting(program.num_ranks, backend, timeout_s),
        terms=_terms(job, config),
        preload=("collopt.runtime.measuring.bench.bench",),
        heard=heard,
    )
    return replace(
        report,
        backend=parts[0].backend,
        devices=tuple(part.device for part in parts),
        rows=parts[0].rows,
        end_time=now(),
    )


def _begun(job: _Job, datatype: str, config: dict[str, Any], backend: str) -> BenchReport:
    """Make a report without rows."""
    layout = job.program.layout
    return BenchReport(
        job.program.collective,
        backend,
        job.program.num_ranks,
        datatype,
        job.op if layout.reduces else "none",
        -1 if layout.root is None else layout.root,
        config,
        (),
        (),
        now(),
        "",
    )


def _terms(job: _Job, config: Mapping[str, Any]) -> dict[str, object]:
    """What has to be the same on all ranks."""
    plans = [(name, program.digest) for name, program in job.programs]
    return {"the plans": plans, "the datatype": job.dtype, "the op": job.op, **config}


def _measure(job: _Job, device: Any) -> _Part:
    """Be one of the ranks."""
    import torch.distributed as dist

    backend = dist.get_backend()
    rivals: list[Rival] = [PlanRival(name, program, job.slices) for name, program in job.programs]
    if job.beside_backend:
        rivals.insert(0, BackendRival(backend))
    rank, ranks, rows = dist.get_rank(), dist.get_world_size(), []
    for extent in job.sizes:
        question = Question(job.program.layout, ranks, rank, extent.elements, job.dtype, job.op, job.seed)
        for rival in rivals:
            mine = tuple(_reading(job, question, rival, together, device) for together in PLACES)
            everyones: list[Any] = [None] * ranks
            dist.all_gather_object(everyones, mine)
            row = BenchRow(rival.name, extent.size, extent.count, *map(_together, zip(*everyones, strict=True)))
            rows.append(row)
            if rank == 0:
                tell((backend, row))
    return _Part(described(rank, device), backend, tuple(rows))


def _reading(job: _Job, question: Question, rival: Rival, together: bool, device: Any) -> Reading | None:
    """Check what comes out, then take the time; this rank's part of a reading."""
    import torch.distributed as dist

    if together and not rival.in_place(question.layout):
        return None
    elements = max(question.input_elements, question.output_elements)
    with memory_for(f"a buffer of {elements} {job.dtype}", "a smaller maxbytes"):
        output, mine = make_tensors(question, together, device)
        expected = make_expected(question, output) if question.has_output else None
    wrong = 0
    # Without a check too there is a call: the first one makes sure that all ranks mean the same.
    for _ in range(max(job.check, 1)):
        if expected is not None:
            fill_wrong(output, expected)
        # After the output, of which it may be a part, or all of it where there is nothing to put in.
        if question.has_input:
            fill_input(question, mine)
        rival.run(question, output, mine)
        if expected is not None and job.check:
            wrong += wrong_elements(question, output, expected)
    del expected
    for _ in range(job.warmup_iters):
        rival.run(question, output, mine)
    dist.barrier()
    seconds = mean_seconds(partial(rival.run, question, output, mine), job.iters, device)
    return Reading(seconds * 1e6, wrong if job.check else None)


def _together(readings: Sequence[Any]) -> Reading | None:
    """The slowest rank, and the wrong elements of all."""
    if readings[0] is None:
        return None
    checked = readings[0].wrong is not None
    return Reading(
        max(each.microseconds for each in readings), sum(each.wrong for each in readings) if checked else None
    )


def check_words(datatype: str, op: str, backend: str) -> None:
    """Refuse what is no name of its kind."""
    check_choice("datatype", datatype, DATATYPES)
    check_choice("op", op, OPERATIONS)
    check_choice("backend", backend, BACKENDS)


def checked_config(
    minbytes: int,
    maxbytes: int,
    stepfactor: int | None,
    stepbytes: int,
    iters: int,
    warmup_iters: int,
    check: int,
    slices: int,
    seed: int,
) -> dict[str, Any]:
    """Check the numbers, and name them as nccl-tests does in its JSON files."""
    counts = {"minbytes": minbytes, "maxbytes": maxbytes, "stepbytes": stepbytes, "iters": iters, "slices": slices}
    check_counts(counts)
    check_counts({"warmup_iters": warmup_iters, "check": check}, least=0)
    check_counts({} if stepfactor is None else {"stepfactor": stepfactor}, least=2)
    step = {"step_bytes": stepbytes} if stepfactor is None else {"step_factor": stepfactor}
    return {
        "nthreads": 1,
        "ngpus": 1,
        "minimum_bytes": minbytes,
        "maximum_bytes": maxbytes,
        **step,
        "warmup_iters": warmup_iters,
        "iterations": iters,
        "aggregated_iterations": 1,
        "validation": check,
        "graph": 0,
        "blocking_collectives": "false",
        "parallel_init": "false",
        "slices": slices,
        "seed": as_seed(seed),
    }


def mean_seconds(call: Callable[[], object], times: int, device: Any) -> float:
    """Make a call several times, one after the other, and return the mean time of one."""
    if device.type == "cuda":
        return _on_gpu(call, times, device)
    begun = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begun) / times


def _on_gpu(call: Callable[[], object], times: int, device: Any) -> float:
    """Between two events in the stream, since calls return before their work is done."""
    import torch

    cuda: Any = torch.cuda
    begun, ended = (cuda.Event(enable_timing=True) for _ in range(2))
    cuda.synchronize(device)
    begun.record()
    for _ in range(times):
        call()
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1e3 / times


def described(rank: int, device: Any) -> Device:
    """Say what a rank runs on."""
    import torch

    if device.type != "cuda":
        return Device(rank, os.getpid(), socket.gethostname(), -1, "", device.type)
    found = torch.cuda.get_device_properties(device)
    # Older versions of torch do not tell the bus.
    place = [getattr(found, f"pci_{part}_id", 0) for part in ("domain", "bus", "device")]
    bus = f"{place[0]:04x}:{place[1]:02x}:{place[2]:02x}"
    return Device(rank, os.getpid(), socket.gethostname(), device.index, bus, found.name)


def now() -> str:
    """Date and time of this place."""
    return time.strftime("%Y-%m-%d %H:%M:%S")
