"""Run of a plan on random tensors, compared with torch's own collectives.

Collectives that only move data are compared bit for bit.  Sums of integers are too: torch adds them in 64 bits, and the
lower bits of that are the same for every order of adding in fewer bits.  Floating-point sums depend on their order, so
they are compared with torch's sum in float64, within the bound that holds for every order (Higham, "Accuracy and
Stability of Numerical Algorithms", section 4.2): with N contributions x_i and machine epsilon e, ``|result - sum| <=
(N - 1) e sum |x_i|``, where e, twice the unit roundoff, covers the reference's own rounding.  A product may be off by
``(N - 1) e`` of itself, an average by ``N e`` of the average magnitude.  Minima and maxima are exact.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ....schedules import ALLGATHER, Collective
from ....schedules.traffic.collective import collective_or_given
from ....support.formatting import bandwidth_text, time_text
from ....support.seed import as_seed
from ...interpreter.check import check_program
from ...programs.checks import check_choice, check_counts, check_seconds
from ...programs.program import Program
from ..calls.arguments import OPERATIONS, check_operation
from ..processes.local_ranks import out_of_memory_as_error
from ..processes.rendezvous import BACKENDS, Rendezvous, on_all_ranks
from ..rounds.batches import shard_elements
from .execute import PlanLike, execute, program_of

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
    parts = on_all_ranks(
        partial(_measure, job),
        Rendezvous(program.num_ranks, backend, timeout_s),
        terms={"the plan": program.digest} | {name: getattr(job, name) for name in _Job._fields[1:]},
        preload=("collopt.runtime.distributed.execution.launch",),
    )
    correct = tuple(part.correct for part in parts)
    seconds = max(part.seconds for part in parts)
    return RunReport(
        parts[0].backend, program.num_ranks, elements, dtype, repeats, correct, seconds, program.collective, op,
        _elements_in_all(job), program.layout.root,
    )  # fmt: skip


def _elements_in_all(job: _Job) -> int:
    """Elements of all ranks together: for all_to_allv, the largest multiple of its traffic, or at least that itself."""
    total = total_elements(job.program.collective, job.program.num_ranks, job.elements)
    if not job.program.layout.in_pairs:
        return total
    unit = sum(job.program.layout.parts)
    return max(1, total // unit) * unit


def _measure(job: _Job, device: Any) -> _Measurement:
    """Run the program on this rank's tensors, compare, and take the time."""
    import torch
    import torch.distributed as dist

    rank, elements = dist.get_rank(), _elements_in_all(job)
    with out_of_memory_as_error(f"elements={job.elements} of {job.dtype}", "fewer"):
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


ELEMENT_BYTES = {
    "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int16": 2, "int32": 4, "int64": 8, "int8": 1, "uint8": 1,
}  # fmt: skip


@dataclass(frozen=True)
class RunReport:
    """Result of a run on real tensors.

    Attributes
    ----------
    backend : str
    num_ranks : int
    elements : int
        Of a shard for allgather and reduce_scatter, of what each rank has for each other for all_to_all, on average for
        all_to_allv, of the whole buffer otherwise.
    dtype : str
    repeats : int
    correct : tuple of bool
        Per rank: whether the output was that of torch's own collective every time; see
        `collopt.runtime.distributed.execution.launch`.
    seconds : float
        Median over the repeats, of the slowest rank.
    collective : Collective
        Its name will do.
    op : str
        Operation of collectives that add up.
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
        """Size as in nccl-tests: that of the data of all shards together, or of what one rank has for all others."""
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
        wrong = [rank for rank, correct in enumerate(self.correct) if not correct]
        verdict = f"WRONG on ranks {wrong}" if wrong else "correct on all ranks"
        each = " each" if self.collective.is_sharded else ""
        if self.collective.in_pairs:
            each = " from each to each" + (", on average" if self.collective.parts_differ else "")
        what = "" if self.collective is ALLGATHER else f"{self.collective} of "
        return (
            f"{self.backend}, {self.num_ranks} ranks, {what}{self.elements} {self.dtype}{each}: {verdict}, "
            f"{time_text(self.seconds * 1e6)}, algbw {bandwidth_text(self.algbw)}, busbw {bandwidth_text(self.busbw)}"
        )


def total_elements(collective: Collective, num_ranks: int, elements: int) -> int:
    """Elements of the whole collective: of all shards, where its size is given by that of one."""
    shards = num_ranks**2 if collective.in_pairs else num_ranks if collective.is_sharded else 1
    return elements * shards


class Reference(NamedTuple):
    """What a rank's output has to be."""

    value: Any  # In the output's type if it has to be met bit for bit, in float64 or complex128 otherwise
    tolerance: Any  # Largest difference allowed, element by element; None if every bit counts

    def accepts(self, output: Any) -> bool:
        """Whether an output is right."""
        import torch

        if self.tolerance is None:
            return bool(torch.equal(output.view(torch.uint8), self.value.view(torch.uint8)))
        # Written so that a NaN fails.
        return bool(((output.to(self.value.dtype) - self.value).abs() <= self.tolerance).all())


def tensors(program: Program, rank: int, elements: int, kind: Any, device: Any, *, seed: int = 0) -> tuple[Any, Any]:
    """Make one rank's output and random input."""
    import torch

    sizes = _sizes(program, rank, elements)
    generator = torch.Generator().manual_seed(seed * program.num_ranks + rank)
    if program.layout.reduces and (kind.is_floating_point or kind.is_complex):
        # Between 1/2 and 3/2, so that products stay in range, with either sign.
        real = torch.rand(sizes["input"], generator=generator, dtype=torch.float64) + 0.5
        sign = torch.randint(0, 2, (sizes["input"],), generator=generator) * 2 - 1
        mine = (real * sign).to(kind).to(device)
    else:
        # Random bytes cover every bit pattern; what they mean as numbers does not matter.
        size = sizes["input"] * torch.empty(0, dtype=kind).element_size()
        mine = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator).to(device).view(kind)
    return torch.empty(sizes["output"], dtype=kind, device=device), mine


def _sizes(program: Program, rank: int, elements: int) -> dict[str, int]:
    """Elements of one rank's input and output."""
    shares = shard_elements(program.layout, elements)
    if program.layout.in_pairs:
        return {name: sum(parts) for name, parts in _splits(program, rank, elements).items()}
    own = elements if program.collective.has_two_phases else shares[rank]
    whole = "input" if program.collective.direction == "reduce" else "output"
    return {"input": own, "output": own, whole: elements}


def _splits(program: Program, rank: int, elements: int) -> dict[str, list[int]]:
    """Elements for each rank, and from each rank, of an all-to-all(v)."""
    shares, ranks = shard_elements(program.layout, elements), program.num_ranks
    return {"input": list(shares[rank * ranks : (rank + 1) * ranks]), "output": list(shares[rank::ranks])}


def poison(output: Any, wanted: Reference) -> None:
    """Make every element wrong, so that none can be right by chance."""
    import torch

    if wanted.tolerance is None:
        output.view(torch.uint8).copy_(~wanted.value.view(torch.uint8))
    else:
        output.fill_(float("nan"))


def reference(program: Program, rank: int, elements: int, mine: Any, op: str) -> Reference:
    """Let torch's own collectives find out what a rank's output has to be; all ranks call this together."""
    if program.layout.in_pairs:
        return Reference(_exchanged(program, rank, elements, mine), None)
    if not program.layout.reduces:
        return Reference(_moved(program, rank, elements, mine), None)
    return _combined(program, rank, elements, mine, op)


def _moved(program: Program, rank: int, elements: int, mine: Any) -> Any:
    import torch
    import torch.distributed as dist

    shares = shard_elements(program.layout, elements)
    result = torch.empty(elements, dtype=mine.dtype, device=mine.device)
    if len(set(shares)) == 1:
        # torch 2.13 renamed it.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(result.view(torch.uint8), mine.view(torch.uint8))
        return result
    begin = 0
    for owner, share in enumerate(shares):
        piece = result[begin : begin + share]
        begin += share
        if owner == rank:
            piece.copy_(mine)
        if len(piece):
            dist.broadcast(piece.view(torch.uint8), src=owner)
    return result


def _exchanged(program: Program, rank: int, elements: int, mine: Any) -> Any:
    import torch
    import torch.distributed as dist

    splits = _splits(program, rank, elements)
    result = torch.empty(sum(splits["output"]), dtype=mine.dtype, device=mine.device)
    wide = mine.element_size()
    takes, sends = ([wide * part for part in splits[name]] for name in ("output", "input"))
    dist.all_to_all_single(result.view(torch.uint8), mine.view(torch.uint8), takes, sends)
    return result


def _combined(program: Program, rank: int, elements: int, mine: Any, op: str) -> Reference:
    import torch
    import torch.distributed as dist

    kind, ranks = mine.dtype, program.num_ranks
    wide = torch.int64 if not (kind.is_floating_point or kind.is_complex) else torch.promote_types(kind, torch.float64)
    value = mine.to(wide, copy=True)
    own = {"avg": "sum"}.get(op, op)
    dist.all_reduce(value, op=getattr(dist.ReduceOp, {"prod": "PRODUCT"}.get(own, own.upper())))
    shares = shard_elements(program.layout, elements)
    begin = sum(shares[:rank])
    part = slice(None) if program.collective.has_two_phases else slice(begin, begin + shares[rank])
    if wide == torch.int64 or op in ("min", "max"):
        return Reference(value.to(kind)[part].clone(), None)
    size = value.abs()
    if op != "prod":
        size = mine.to(wide).abs()
        dist.all_reduce(size)
    tolerance = (ranks - 1) * torch.finfo(kind).eps * size
    if op == "avg":
        value, tolerance = value / ranks, ranks * torch.finfo(kind).eps * size / ranks
    return Reference(value[part].clone(), tolerance[part].clone())
