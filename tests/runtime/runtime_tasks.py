"""What ranks of tests on several processes do; a module of its own because the processes import it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from runtime_flows import random_flow, ring_flow
from runtime_forests import random_forest, random_schedule, ring_forest, weighted_forest

from collopt.errors import ColloptError
from collopt.runtime import Program, execute, lower, run_local
from collopt.runtime.execution.workload import Workload, fill_incorrect
from collopt.schedules import FlowSchedule

RANKS = 4


def join(rank: int, folder: str, ranks: int = RANKS) -> None:
    """Make this process a rank of a Gloo group."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks, timeout=timedelta(seconds=600)
    )


def message_of(call: Callable[[], object]) -> str:
    """Return the class and text of the error of ours that `call` raises, or ``"fine"``."""
    try:
        call()
    except ColloptError as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same bits."""
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def planned(collective: str, schedule: Any) -> SimpleNamespace:
    """Return a schedule in the form of a plan."""
    return SimpleNamespace(collective=collective, schedule=schedule)


class Case(NamedTuple):
    """A program, and the data that it runs on; `elements` are those of the whole collective."""

    name: str
    program: Program
    elements: int
    dtype: str = "int64"
    slices: int = 1
    op: str = "sum"
    in_place: bool = False


def compared(rank: int, folder: str, cases: Sequence[Case]) -> list[str]:
    """Run all cases on one group; return the names of those whose output is not that of torch's own collective."""
    torch.set_num_threads(1)
    join(rank, folder, cases[0].program.num_ranks)
    wrong_names = [str(case[2:]) + case.name for case in cases if not agrees(rank, case)]
    dist.barrier()
    return wrong_names


def agrees(rank: int, case: Case) -> bool:
    """Run a program on random data, and compare with torch's own collective; the input has to stay."""
    program, layout = case.program, case.program.layout
    workload = Workload(layout, program.num_ranks, rank, case.elements, case.dtype, case.op)
    output, mine = workload.make_tensors(in_place=False, device=torch.device("cpu"))
    workload.fill_random(mine)
    expected, before = workload.by_torch(mine), mine.clone()
    if case.in_place:
        output, mine = workload.make_tensors(in_place=True, device=torch.device("cpu"))
        mine.copy_(before)
    else:
        fill_incorrect(output, expected)
    # What a rank has no use for may be left out.
    arguments = (output if workload.has_output else None, mine if workload.has_input else None)
    execute(program, *arguments, slices=case.slices, op=case.op)
    is_right = not workload.has_output or workload.count_wrong(output, expected) == 0
    return is_right and (case.in_place or same(mine, before))


def specials(rank: int, folder: str) -> dict[str, bool]:
    """Run calls with special types, shapes, groups and gradients."""
    join(rank, folder)
    ring, trees = lower(ring_forest(RANKS), "allgather"), lower(random_forest(RANKS, 5, seed=3), "allgather")
    results = {}
    for dtype in (torch.float8_e4m3fn, torch.complex64, torch.bool, torch.bfloat16):
        everything = [(torch.arange(10) * 7 + 31 * owner).to(dtype) for owner in range(RANKS)]
        output = torch.full((RANKS * 10,), 99).to(dtype)
        execute(trees, output.view(4, 2, 5), everything[rank].view(5, 2), timeout=30)
        results[str(dtype)] = same(output, torch.cat(everything))
    parameter, output = torch.full((3,), float(rank), requires_grad=True), torch.empty(RANKS * 3)
    execute(ring, output, parameter)
    results["gradients"] = not output.requires_grad and output[::3].tolist() == [0, 1, 2, 3]
    results["same bits of sums"] = same_bits_everywhere(rank)
    results["subgroup"] = gathers_in_subgroup(rank)
    return results


def same_bits_everywhere(rank: int) -> bool:
    """Floating-point sums depend on their order, but all ranks have the same ones."""
    mine = torch.randn(5000, generator=torch.Generator().manual_seed(rank))
    output = torch.empty_like(mine)
    execute(planned("allreduce", random_schedule("allreduce", RANKS, 2, seed=1)), output, mine)
    first = output.clone()
    dist.broadcast(first, src=0)
    return same(first, output)


def gathers_in_subgroup(rank: int) -> bool:
    """Ranks 3 and 1, in that order, form a group of two; the others are no members."""
    group = dist.new_group([3, 1])
    program = lower(ring_forest(2), "allgather")
    output, mine = torch.zeros(4, dtype=torch.int64), torch.full((2,), rank)
    if rank not in (1, 3):
        return "not a member" in message_of(lambda: execute(program, output, mine, group=group))
    execute(program, output, mine, group=group)
    first, second = (dist.get_global_rank(group, member) for member in range(2))
    return output.tolist() == [first, first, second, second]


IDLE = FlowSchedule.from_paths(
    np.diag([2, 2, 0, 0]) + 2 * np.eye(RANKS, k=3, dtype=np.int64), 1, [(2, (0, 2, 3), (0, 1))]
)
"""Rank 0 sends to rank 3 through rank 2, which has nothing itself."""


def wrong_calls(rank: int, folder: str) -> dict[str, str]:
    """Make calls that rank 2, or all ranks, get wrong; the group stays usable after each."""
    join(rank, folder)
    ring, trees = lower(ring_forest(RANKS), "allgather"), lower(random_forest(RANKS, 2, 0), "allgather")
    adding, scattering = (planned(name, random_schedule(name, RANKS, 1, 0)) for name in ("allreduce", "reduce_scatter"))
    weighted = planned("allgather", weighted_forest([1, 0, 3, 2], 2, seed=5))
    exchange, uneven = ring_flow(RANKS), random_flow(RANKS, 1, 4, most=6)
    parts, idle = planned("all_to_all", exchange), planned("all_to_allv", IDLE)
    uneven_parts, traffic = planned("all_to_allv", uneven), uneven.traffic
    row, column = int(traffic[rank].sum()), int(traffic[:, rank].sum())
    other, zeros = rank == 2, torch.zeros
    eight, ten, forty = zeros(8), zeros(10), zeros(40)
    calls: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
        "timeout on one rank": (ring, forty, ten, {"timeout": "1" if other else 1e300}),
        "output size on one rank": (ring, zeros(39) if other else forty, ten, {}),
        "input size differs": (ring, zeros(4 * (10 + other)), zeros(10 + other), {}),
        "type differs": (ring, *((forty.double(), ten.double()) if other else (forty, ten)), {}),
        "program differs": (trees if other else ring, forty, ten, {}),
        "slices differ": (ring, forty, ten, {"slices": 1 + other}),
        "ops differ": (adding, ten.clone(), ten, {"op": "max" if other else "min"}),
        "types": (ring, forty.double(), ten, {}),
        "strided": (ring, forty, zeros(20)[::2], {}),
        "no tensor": (ring, forty, [0.0] * 10, {}),
        "conjugate": (ring, forty.cfloat(), ten.cfloat().conj(), {}),
        "overlap": (ring, forty, forty[5:15], {}),
        "group size": (lower(ring_forest(3), "allgather"), forty, ten, {}),
        "slices": (ring, forty, ten, {"slices": 0}),
        "timeout": (ring, forty, ten, {"timeout": 0}),
        "plan": (planned("allreduce", None), forty, ten, {}),
        "no such op": (adding, ten.clone(), ten, {"op": "xor"}),
        "op and type": (adding, ten.int(), ten.int(), {"op": "avg"}),
        "no output": (adding, None, ten, {}),
        "allreduce sizes": (adding, zeros(11), ten, {}),
        "reduce_scatter sizes": (scattering, zeros(3), ten, {}),
        "weights": (weighted, zeros(60), ten, {}),
        "parts": (parts, zeros(7), zeros(7), {}),
        "uneven parts": (uneven_parts, zeros(2 * column), zeros(row), {}),
        "overlap of parts": (parts, eight, eight, {}),
        "overlap of a part": (lower(exchange, "all_to_all"), eight, eight[:4], {}),
        "no input": (parts, eight, None, {}),
        "parts on one rank": (parts, zeros(12 if other else 8), eight, {}),
        "parts differ": (parts, zeros(4 + 4 * other), zeros(4 + 4 * other), {}),
        "around an idle rank": (idle, zeros((1, 2, 0, 3)[rank]), zeros((2, 2, 0, 0)[rank]), {}),
        "idle rank": (idle, zeros(1 if other else 3), zeros((6, 3, 0, 0)[rank]), {}),
        "after all that": (ring, forty, ten, {}),
        "and then a wrong size": (ring, zeros(39), ten, {}),
    }
    return {
        name: message_of(lambda plan=plan, tensors=tensors, options=options: execute(plan, *tensors, **options))
        for name, (plan, *tensors, options) in calls.items()
    }


def absent_rank(rank: int, folder: str) -> str:
    """Rank 3 stays away from the second call."""
    join(rank, folder)
    ring = lower(ring_forest(RANKS), "allgather")
    ten, forty = torch.zeros(10), torch.zeros(40)
    execute(ring, forty, ten)
    if rank == 3:
        time.sleep(4)
        return "absent"
    return message_of(lambda: execute(ring, forty, ten, timeout=1))


def mismatches(rank: int, folder: str, debug: str = "") -> dict[str, str]:
    """Calls of kinds that were all used before, and rank 2 makes another call than the others."""
    os.environ["COLLOPT_DEBUG"] = debug
    plan, other = lower(ring_forest(RANKS), "allgather"), rank == 2
    adding = planned("allreduce", random_schedule("allreduce", RANKS, 1, 0))
    ten, forty = torch.zeros(10), torch.zeros(40)
    calls = {
        "op": lambda: execute(adding, ten, ten, op="max" if other else "sum", timeout=1),
        "size": lambda: execute(adding, *[forty if other else ten] * 2, timeout=1),
        "collective": lambda: execute(plan, forty, ten, timeout=1) if other else execute(adding, ten, ten, timeout=1),
        "arguments": lambda: execute(adding, ten, forty if other else ten, timeout=1),
        "straggler": lambda: time.sleep(3) if other else execute(adding, ten, ten, timeout=1),
    }
    told = {}
    for name, call in calls.items():
        # Gloo's connections do not survive a timeout.
        Path(folder, name).mkdir(exist_ok=True)
        join(rank, f"{folder}/{name}")
        for tensor in (ten, forty):
            for op in ("sum", "max"):
                execute(adding, tensor, tensor, op=op)
        execute(plan, forty, ten)
        told[name] = message_of(call)
        dist.destroy_process_group()
    return told


def dying_rank(rank: int, folder: str) -> None:
    """Rank 1 is killed between two calls, while the others wait for it."""
    join(rank, folder)
    ring = lower(ring_forest(RANKS), "allgather")
    ten, forty = torch.zeros(10), torch.zeros(40)
    execute(ring, forty, ten)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    execute(ring, forty, ten)


def as_if_by_torchrun(rank: int, folder: str, port: int, ranks: int) -> Any:
    """Call `run_local` as a process that torchrun started would."""
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    report = run_local(lower(ring_forest(RANKS), "allgather"), elements=100, dtype="int16", repeats=1)
    assert not dist.is_initialized()
    return report


def in_own_group(rank: int, folder: str) -> Any:
    """Call `run_local` where torch.distributed is already set up; the group stays."""
    join(rank, folder)
    report = run_local(lower(ring_forest(RANKS), "allgather"), elements=100, dtype="int16", repeats=1)
    dist.barrier()
    return report
