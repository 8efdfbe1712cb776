"""Benchmark of plans beside the backend's own collectives, as nccl-tests measures them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ...errors import UnsupportedError
from ...schedules import ALLGATHER, ALLREDUCE, REDUCE, REDUCE_SCATTER
from ...support.seed import as_seed
from ...support.validation import shown
from ..execution.arguments import OPERATIONS, check_operation
from ..execution.execute import PlanLike, execute, program_of
from ..execution.launch import ELEMENT_BYTES
from ..execution.local_ranks import notify, out_of_memory_as_error
from ..execution.rank_rounds import works_in_place
from ..execution.rendezvous import BACKENDS, Rendezvous, on_all_ranks
from ..execution.workload import Workload, fill_incorrect
from ..programs.check import check_program
from ..programs.program import Program, check_choice, check_counts, check_seconds
from .bench_report import DATATYPES, BenchReport, BenchRow, Device, Extent, Reading, extents, sweep

IN_PLACE = (False, True)  # Out of place, and in place


class _Job(NamedTuple):
    """Benchmark of one rank; pickled."""

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
        """The first program; all have the same collective, root and shards."""
        return self.programs[0][1]

    @property
    def compares_backend(self) -> bool:
        """Whether the backend supports this collective, which requires equal shards."""
        return not self.program.collective.is_sharded or len(set(self.program.layout.parts)) == 1


class _Library(NamedTuple):
    """What runs a collective on every rank, on GPUs asynchronously; nothing exchanges in place between pairs."""

    name: str
    has_in_place: bool
    run: Callable[[Workload, Any, Any], None]


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

    Processes are started, and errors raised, as by `run_local`; also `UnsupportedError` if plans differ in collective,
    ranks, root or shares.

    Parameters
    ----------
    plans : mapping of str to Plan or Program
        By the names that the report is to have for them.
    minbytes, maxbytes, stepfactor, stepbytes : int
        Sizes as nccl-tests counts them, see `collopt.runtime.measuring.bench_report`; without a factor, steps of
        `stepbytes`. They are rounded down to equal parts.
    iters, warmup_iters : int
        Timed calls of each size, and calls before those.
    check : int
        Calls whose results are compared with the correct ones, element by element; 0 for none.
    datatype : str
        A name of nccl-tests: int8, uint8, int32, int64, half, float, double or bfloat16.
    op : str
        See `execute`.
    backend, slices, timeout_s, seed
        As for `run_local`.
    on_row : callable, optional
        Called after every row, with a report of those so far, which has no devices and no end yet, and the number of
        rows that there will be.  Where all ranks make this call, only the first one's is used.

    Notes
    -----
    The time of a size is the mean over its calls, of the slowest rank; all start after a barrier.  On GPUs it is that
    between two events in the stream.  Torch has allreduce, reduce and broadcast in place only; out of place, its time
    includes a copy.  The backend is left out where shares are not equal, for which torch has no collective.
    """
    check_choice("datatype", datatype, DATATYPES)
    check_choice("op", op, OPERATIONS)
    check_choice("backend", backend, BACKENDS)
    config = check_config(minbytes, maxbytes, stepfactor, stepbytes, iters, warmup_iters, check, slices, seed)
    check_seconds("timeout_s", timeout_s)
    if not isinstance(plans, Mapping):
        raise UnsupportedError(f"the plans are {shown(plans)}; expected a mapping of names to them")
    programs = check_comparable({name: program_of(plan) for name, plan in plans.items()})
    program, layout, dtype = programs[0][1], programs[0][1].layout, DATATYPES[datatype]
    check_operation(op, dtype, layout)
    extents_ = extents(layout, sweep(minbytes, maxbytes, stepfactor, stepbytes), ELEMENT_BYTES[dtype])
    job = _Job(programs, extents_, dtype, op, slices, iters, warmup_iters, check, config["seed"])
    redop, root = op if layout.reduces else "none", -1 if layout.root is None else layout.root
    report = BenchReport(
        program.collective, backend, program.num_ranks, datatype, redop, root, config, (), (), _now(), ""
    )
    num_rows, so_far = len(extents_) * (len(programs) + job.compares_backend), list[BenchRow]()

    def on_update(update: tuple[str, BenchRow]) -> None:
        so_far.append(update[1])
        if on_row is not None:
            on_row(replace(report, backend=update[0], rows=tuple(so_far)), num_rows)

    digests = [(name, member.digest) for name, member in programs]
    terms = {"the plans": digests, "the datatype": dtype, "the op": op, **config}
    rendezvous = Rendezvous(program.num_ranks, backend, timeout_s, terms)
    parts = on_all_ranks(partial(_measure, job), rendezvous, "collopt.runtime.measuring.measure_plans", on_update)
    devices, backends, rows = zip(*parts, strict=True)
    return replace(report, backend=backends[0], devices=devices, rows=rows[0], end_time=_now())


def _measure(job: _Job, device: Any) -> tuple[Device, str, tuple[BenchRow, ...]]:
    """Measure all sizes; return this rank's device, the backend, and the rows of all ranks."""
    import torch.distributed as dist

    backend = dist.get_backend()
    libraries = [
        _Library(name, works_in_place(program), partial(_run_plan, program, job.slices))
        for name, program in job.programs
    ]
    if job.compares_backend:
        libraries.insert(0, _Library(backend, True, _run_backend))
    rank, ranks, rows = dist.get_rank(), dist.get_world_size(), []
    for extent in job.sizes:
        workload = Workload(job.program.layout, ranks, rank, extent.elements, job.dtype, job.op, job.seed)
        for library in libraries:
            mine = tuple(_reading(job, workload, library, in_place, device) for in_place in IN_PLACE)
            everyones: list[Any] = [None] * ranks
            dist.all_gather_object(everyones, mine)
            row = BenchRow(library.name, extent.size, extent.count, *map(_combined, zip(*everyones, strict=True)))
            rows.append(row)
            if rank == 0:
                notify((backend, row))
    return _describe_device(rank, device), backend, tuple(rows)


def _reading(job: _Job, workload: Workload, library: _Library, in_place: bool, device: Any) -> Reading | None:
    """Check the result, then measure this rank's time."""
    import torch.distributed as dist

    if in_place and (workload.layout.in_pairs or not library.has_in_place):
        return None
    elements = max(workload.input_elements, workload.output_elements)
    with out_of_memory_as_error(f"a buffer of {elements} {job.dtype}", "a smaller maxbytes"):
        output, mine = workload.make_tensors(in_place, device)
        expected = workload.make_expected(output) if workload.has_output else None
    wrong_elements = 0
    # At least one call, even without a check: the first one compares the ranks' arguments.
    for _ in range(max(job.check, 1)):
        if expected is not None:
            fill_incorrect(output, expected)
        # After the output, of which the input may be a part.
        if workload.has_input:
            workload.fill_input(mine)
        library.run(workload, output, mine)
        if expected is not None and job.check:
            wrong_elements += workload.count_wrong(output, expected)
    del expected
    for _ in range(job.warmup_iters):
        library.run(workload, output, mine)
    dist.barrier()
    seconds = _mean_seconds(partial(library.run, workload, output, mine), job.iters, device)
    return Reading(seconds * 1e6, wrong_elements if job.check else None)


def _combined(readings: Sequence[Any]) -> Reading | None:
    """Combine the ranks' readings: the largest time, and the wrong elements of all."""
    if readings[0] is None:
        return None
    wrong_elements = None if readings[0].wrong_elements is None else sum(reading.wrong_elements for reading in readings)
    return Reading(max(reading.microseconds for reading in readings), wrong_elements)


def check_config(
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
    """Validate the configuration, and name it as in nccl-tests' JSON."""
    counts = {"minbytes": minbytes, "maxbytes": maxbytes, "stepbytes": stepbytes, "iters": iters, "slices": slices}
    check_counts(counts)
    check_counts({"warmup_iters": warmup_iters, "check": check}, minimum=0)
    check_counts({} if stepfactor is None else {"stepfactor": stepfactor}, minimum=2)
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


def _mean_seconds(call: Callable[[], object], times: int, device: Any) -> float:
    """Mean time of a repeated call, in seconds; on GPUs, where calls are asynchronous, between two events."""
    import torch

    cuda: Any = torch.cuda
    begun, ended = (cuda.Event(enable_timing=True) if device.type == "cuda" else None for _ in range(2))
    if begun is not None:
        cuda.synchronize(device)
        begun.record()
    start = time.perf_counter()
    for _ in range(times):
        call()
    if begun is None or ended is None:
        return (time.perf_counter() - start) / times
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1e3 / times


def _describe_device(rank: int, device: Any) -> Device:
    """Describe the device of a rank."""
    import torch

    if device.type != "cuda":
        return Device(rank, os.getpid(), socket.gethostname(), -1, "", device.type)
    properties = torch.cuda.get_device_properties(device)
    # Older versions of torch lack the bus.
    place = [getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device")]
    bus = f"{place[0]:04x}:{place[1]:02x}:{place[2]:02x}"
    return Device(rank, os.getpid(), socket.gethostname(), device.index, bus, properties.name)


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _run_plan(program: Program, slices: int, workload: Workload, output: Any, own: Any) -> None:
    execute(program, output, own, slices=slices, op=workload.op)


def _run_backend(workload: Workload, output: Any, own: Any) -> None:
    """Call torch's own collective, after a copy if it is in place only and the tensors differ."""
    import torch.distributed as dist

    op = getattr(dist.ReduceOp, {"prod": "PRODUCT"}.get(workload.op, workload.op.upper()))
    # torch 2.13 renamed some.
    if workload.collective is ALLGATHER:
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(output, own)
    elif workload.collective is REDUCE_SCATTER:
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        scatter(output, own, op=op)
    elif workload.layout.in_pairs:
        dist.all_to_all_single(output, own, list(workload.recv_counts), list(workload.send_counts))
    else:
        if output.data_ptr() != own.data_ptr() and workload.has_input:
            output.copy_(own)
        if workload.collective is ALLREDUCE:
            dist.all_reduce(output, op=op)
        elif workload.collective is REDUCE:
            dist.reduce(output, workload.layout.root, op=op)
        else:
            dist.broadcast(output, workload.layout.root)


def check_comparable(programs: Mapping[str, Program]) -> tuple[tuple[str, Program], ...]:
    """Refuse invalid programs, and programs of different collectives."""
    if not programs:
        raise UnsupportedError("there is no plan to measure; expected at least one")
    (name, first), *other_plans = programs.items()
    for plan_name, program in programs.items():
        check_program(program)
        if not isinstance(plan_name, str) or not plan_name.strip() or not plan_name.isprintable():
            raise UnsupportedError(f"a plan is called {shown(plan_name)}; expected a printable name")
        if plan_name in BACKENDS:
            raise UnsupportedError(f"a plan is called {plan_name}, like a backend; give it another name")
    for other, program in other_plans:
        for what, one, two in (
            ("ranks", first.num_ranks, program.num_ranks),
            ("collective", first.collective, program.collective),
            ("root", first.layout.root, program.layout.root),
        ):
            if one != two:
                raise UnsupportedError(f"{name} and {other} differ in {what}: {one} and {two}; measure them separately")
        has_parts = first.collective.is_sharded or first.layout.in_pairs
        if has_parts and first.layout.parts != program.layout.parts:
            raise UnsupportedError(f"{name} and {other} differ in the shares of the ranks; measure them separately")
    return tuple(programs.items())
