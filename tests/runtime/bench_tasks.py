"""What the ranks of the tests of benchmarks do; a module of its own because the processes import it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from runtime_forests import random_schedule
from runtime_tasks import RANKS, join

from collopt.runtime import BenchReport, execute, lower, measure_plans
from collopt.runtime.measuring import measure_plans as bench_libraries

SIZE = 4096


def measure(rank: int, folder: str, collective: str, op: str = "sum", datatype: str = "int32") -> BenchReport:
    """Measure in a group that is there already, while rank 1 spoils what plans leave there."""
    join(rank, folder)

    def spoiled(program: Any, output: Any, mine: Any, **options: Any) -> None:
        execute(program, output, mine, **options)
        if rank == 1:
            output[0] += 1
            output[-3:] = output[-3:].flip(0) + 1

    bench_libraries.execute = spoiled  # type: ignore[attr-defined, assignment]
    program = lower(random_schedule(collective, RANKS, 2, seed=5, root=1), collective)
    report = measure_plans(
        {"spoiled": program}, minbytes=SIZE, maxbytes=SIZE, iters=1, warmup_iters=0, check=2, op=op, datatype=datatype
    )
    dist.barrier()
    return report


def swap_inputs(rank: int, folder: str) -> list[int]:
    """Every rank gathers with its neighbor's data, whose right place is another one."""
    join(rank, folder)

    def swapped(program: Any, output: Any, mine: Any, **options: Any) -> None:
        other = torch.empty_like(mine)
        works = [dist.isend(mine, rank ^ 1), dist.irecv(other, rank ^ 1)]
        for work in works:
            work.wait()
        execute(program, output, other, **options)

    bench_libraries.execute = swapped  # type: ignore[attr-defined, assignment]
    program = lower(random_schedule("allgather", RANKS, 1, seed=2), "allgather")
    report = measure_plans({"swapped": program}, minbytes=SIZE, maxbytes=SIZE, iters=1, warmup_iters=0)
    return [reading.wrong_elements or 0 for row in report.rows for reading in row.readings if row.name == "swapped"][:1]
