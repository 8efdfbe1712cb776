"""Run of a plan on random tensors, compared with torch's own collectives; see `workload` for the data."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ...schedules import ALLGATHER, Collective
from ...schedules.collective import collective_or_given
from ...support.formatting import bandwidth_text, time_text
from ...support.seed import as_seed
from ..programs.check import check_program
from ..programs.program import Program, check_choice, check_counts, check_seconds
from .arguments import OPERATIONS, check_operation
from .execute import PlanLike, execute, program_of
from .local_ranks import out_of_memory_as_error
from .rendezvous import BACKENDS, Rendezvous, on_all_ranks
from .workload import Workload, fill_incorrect

__all__ = ["RunReport", "run_local"]

ELEMENT_BYTES = {
    "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int16": 2, "int32": 4, "int64": 8, "int8": 1, "uint8": 1,
}  # fmt: skip


class _Job(NamedTuple):
    program: Program
    elements: int
    dtype: str
    repeats: int
    slices: int
    op: str
    seed: int

    @property
    def elements_in_all(self) -> int:
        """Elements of all ranks; for all_to_allv, the largest multiple of its traffic, or at least that itself."""
        layout = self.program.layout
        total = total_elements(layout.collective, self.program.num_ranks, self.elements)
        unit = sum(layout.parts) if layout.in_pairs else 1
        return max(1, total // unit) * unit


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

    In a process that torchrun started, or in which torch.distributed is initialised, this process is a rank instead,
    and all ranks have to make the same call.

    Raises `UnsupportedError` if the backend or the type is not available, the number of ranks does not fit, or the
    variables of torchrun make no sense; `ProgramError` if the program is wrong, or a rank fails, dies, is late or does
    not come; no process is left running.

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
    slices, op : int and str
        See `execute`.
    seed : int
        Of the data that are sent, 0 to 2147483647.
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
    terms = {"the plan": program.digest} | {name: getattr(job, name) for name in _Job._fields[1:]}
    rendezvous = Rendezvous(program.num_ranks, backend, timeout_s, terms)
    parts = on_all_ranks(partial(_measure, job), rendezvous, "collopt.runtime.execution.launch")
    backends, correct, seconds = zip(*parts, strict=True)
    return RunReport(
        backends[0], program.num_ranks, elements, dtype, repeats, correct, max(seconds), program.collective, op,
        job.elements_in_all, program.layout.root,
    )  # fmt: skip


def _measure(job: _Job, device: Any) -> tuple[str, bool, float]:
    """Run the program on this rank's tensors; return the backend, whether all was correct, and the median of times."""
    import torch
    import torch.distributed as dist

    program = job.program
    workload = Workload(
        program.layout, program.num_ranks, dist.get_rank(), job.elements_in_all, job.dtype, job.op, job.seed
    )
    with out_of_memory_as_error(f"elements={job.elements} of {job.dtype}", "fewer"):
        output, own = workload.make_tensors(in_place=False, device=device)
        workload.fill_random(own)
        expected = workload.by_torch(own)
    finish: Callable[[], object] = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    correct, times = True, []
    for _ in range(1 + job.repeats):
        fill_incorrect(output, expected)
        dist.barrier()
        finish()
        start = time.perf_counter()
        execute(program, output, own, slices=job.slices, op=job.op)
        finish()
        times.append(time.perf_counter() - start)
        correct = correct and not (workload.has_output and workload.count_wrong(output, expected))
    return dist.get_backend(), correct, statistics.median(times[1:])


@dataclass(frozen=True)
class RunReport:
    """Result of a run on real tensors.

    Attributes
    ----------
    backend, elements, dtype, repeats, op
        As for `run_local`.
    num_ranks : int
    correct : tuple of bool
        Per rank: whether the output was that of torch's own collective every time.
    seconds : float
        Median over the repeats, of the slowest rank.
    collective : Collective
        Its name will do.
    elements_in_all : int
        Of all ranks' data together; 0 if that follows from the other numbers, as it does but for all_to_allv.
    root : int or None
        Of a collective that has one.
    """

    backend: str
    num_ranks: int
    elements: int
    dtype: str
    repeats: int
    correct: tuple[bool, ...]
    seconds: float
    collective: Collective = ALLGATHER
    op: str = "sum"
    elements_in_all: int = 0
    root: int | None = None

    def __post_init__(self) -> None:
        """Look up the collective by its name."""
        object.__setattr__(self, "collective", collective_or_given(self.collective))

    @property
    def all_correct(self) -> bool:
        """Whether every rank got the right data."""
        return all(self.correct)

    @property
    def total_bytes(self) -> int:
        """Size as in nccl-tests: all shards together, or the parts of one rank for all ranks."""
        ranks = self.num_ranks if self.collective.in_pairs else 1
        elements = self.elements_in_all or total_elements(self.collective, self.num_ranks, self.elements)
        return elements * ELEMENT_BYTES[self.dtype] // ranks

    @property
    def algbw(self) -> float:
        """GB/s as in nccl-tests: size over time."""
        return self.total_bytes / self.seconds / 1e9

    @property
    def busbw(self) -> float:
        """GB/s as in nccl-tests: `algbw` times the collective's factor, (n - 1) / n for allgather."""
        return self.algbw * float(self.collective.bus_factor(self.num_ranks, self.root))

    def __str__(self) -> str:
        """One line."""
        wrong_ranks = [rank for rank, correct in enumerate(self.correct) if not correct]
        verdict = f"WRONG on ranks {wrong_ranks}" if wrong_ranks else "correct on all ranks"
        suffix = " each" if self.collective.is_sharded else ""
        if self.collective.in_pairs:
            suffix = " from each to each" + (", on average" if self.collective.parts_differ else "")
        what = "" if self.collective is ALLGATHER else f"{self.collective} of "
        return (
            f"{self.backend}, {self.num_ranks} ranks, {what}{self.elements} {self.dtype}{suffix}: {verdict}, "
            f"{time_text(self.seconds * 1e6)}, algbw {bandwidth_text(self.algbw)}, busbw {bandwidth_text(self.busbw)}"
        )


def total_elements(collective: Collective, num_ranks: int, elements: int) -> int:
    """Elements of the whole collective: of all shards, where its size is given by that of one."""
    shards = num_ranks**2 if collective.in_pairs else num_ranks if collective.is_sharded else 1
    return elements * shards
