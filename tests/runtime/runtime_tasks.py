"""What the ranks of multi-process tests do; a module of its own because the processes import it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from runtime_forests import (
    COLLECTIVES,
    allreduce_at,
    random_forest,
    random_schedule,
    ring_allreduce_at_one_rank,
    ring_forest,
    weighted_forest,
)

from collopt.errors import ColloptError
from collopt.runtime import Program, execute, lower, run_local
from collopt.runtime.execution.arguments import OPERATIONS
from collopt.runtime.execution.execute import program_of
from collopt.runtime.execution.rank_rounds import shard_elements
from collopt.runtime.execution.workload import (
    Workload,
    fill_incorrect,
)

RANKS = 4


def join(rank: int, folder: str) -> None:
    """Make this process a rank of a Gloo group."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=60),
    )


def message_of(call: Callable[[], None]) -> str:
    """Return the class and text of the error of ours that `call` raises, or ``"fine"``."""
    try:
        call()
    except ColloptError as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


def inputs(elements: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Every rank's input; equal on all ranks."""
    return [(torch.arange(elements) * 7 + 31 * rank).to(dtype) for rank in range(RANKS)]


def gathers(
    rank: int, elements: int, *, dtype: torch.dtype = torch.int64, run: Callable[[torch.Tensor, torch.Tensor], None]
) -> bool:
    """Run one allgather on poisoned memory and compare it with what is known."""
    everything = inputs(elements, dtype)
    output = torch.full((RANKS * elements,), 99).to(dtype)
    mine = everything[rank].clone()
    run(output, mine)
    return same(output, torch.cat(everything)) and same(mine, everything[rank])


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same bits."""
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def gather_everything(rank: int, folder: str) -> dict[str, bool]:
    """Gather tensors of all sorts with all sorts of programs."""
    join(rank, folder)
    trees = lower(random_forest(RANKS, 5, seed=3, max_weight=3), "allgather")
    ring = lower(ring_forest(RANKS), "allgather")
    sizes = {
        f"{elements} elements, {slices} slices": gathers(rank, elements, run=partial(execute, trees, slices=slices))
        for elements, slices in ((1, 1), (3, 1), (0, 1), (1000003, 1), (1000003, 5), (3, 7))
    }
    types = {
        str(dtype): gathers(rank, 10, dtype=dtype, run=partial(execute, ring))
        for dtype in (torch.uint8, torch.int16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool)
    }
    return {
        **sizes,
        **types,
        "timeout": gathers(rank, 9, run=lambda output, mine: execute(ring, output, mine, timeout=30)),
        "shapes": gathers(rank, 6, run=lambda output, mine: execute(ring, output.view(4, 2, 3), mine.view(3, 2))),
        "own place": gathers_in_place(rank, ring),
        "autograd": gathers_with_gradients(rank, ring),
        "plan": gathers_by_plan(rank),
        "subgroup": gathers_in_subgroup(rank),
    }


def reduce_everything(rank: int, folder: str) -> dict[str, bool]:
    """Every collective, on integers and floats, sizes that do not divide, all operations, in place and by plan."""
    join(rank, folder)
    results = {}
    for collective in COLLECTIVES:
        schedule = random_schedule(collective, RANKS, 3, seed=7, root=2)
        plan = SimpleNamespace(collective=collective, schedule=schedule)
        unit = RANKS if collective in ("allgather", "reduce_scatter") else 1
        for elements, slices, dtype in (
            (1, 1, torch.int64),
            (10007, 1, torch.int32),
            (10007, 3, torch.uint8),
            (10007, 2, torch.float32),
            (3, 5, torch.bfloat16),
            (0, 1, torch.float64),
        ):
            case = f"{collective} of {elements} {dtype} in {slices} slices"
            results[case] = agrees(rank, plan, elements * unit, dtype, slices=slices)
        results[f"{collective} in place"] = agrees(rank, plan, 101 * unit, torch.int16, in_place=True)
    results["unequal shards"] = all(
        agrees(rank, weighted_plan(collective), elements, torch.int64)
        for collective in ("allgather", "reduce_scatter")
        for elements in (1, 5, 6000, 6001)
    )
    results["allreduce at some roots"] = all(
        agrees(rank, plan, elements, torch.int64, slices=slices, in_place=in_place)
        for plan in plans_with_free_roots()
        for elements, slices in ((0, 1), (1, 1), (5, 2), (6000, 1), (6001, 3))
        for in_place in (False, True)
    )
    allreduce = SimpleNamespace(collective="allreduce", schedule=random_schedule("allreduce", RANKS, 2, seed=1))
    for op in OPERATIONS:
        types = (torch.float16, torch.float64) + (() if op == "avg" else (torch.int8, torch.uint8))
        results[op] = all(agrees(rank, allreduce, 999, dtype, op=op) for dtype in types)
    results["complex"] = agrees(rank, allreduce, 50, torch.complex64)
    results["same bits everywhere"] = same_bits_everywhere(rank, allreduce)
    return results


def weighted_plan(collective: str) -> SimpleNamespace:
    """Shards of weights 1, 0, 3, 2."""
    direction = "broadcast" if collective == "allgather" else "reduce"
    return SimpleNamespace(
        collective=collective, schedule=weighted_forest([1, 0, 3, 2], 2, seed=5, direction=direction)
    )


def plans_with_free_roots() -> list[SimpleNamespace]:
    """Allreduces that add up everything at one rank, or unequal parts at some."""
    schedules = [ring_allreduce_at_one_rank(), allreduce_at([0, 5, 0, 2], 3, seed=4)]
    return [SimpleNamespace(collective="allreduce", schedule=schedule) for schedule in schedules]


def agrees(
    rank: int,
    plan: SimpleNamespace,
    elements: int,
    dtype: torch.dtype,
    *,
    slices: int = 1,
    op: str = "sum",
    in_place: bool = False,
) -> bool:
    """Run a plan on random data and compare with torch's own collective."""
    program = program_of(plan)
    workload = Workload(program.layout, program.num_ranks, rank, elements, str(dtype).removeprefix("torch."), op)
    output, mine = workload.make_tensors(in_place=False, device=torch.device("cpu"))
    workload.fill_input(mine)
    wanted = workload.by_torch(mine)
    before = mine.clone()
    if in_place:
        output, mine = one_memory(program, rank, elements, output, mine)
    else:
        fill_incorrect(output, wanted)
    # What a rank has no use for may be left out.
    root = program.layout.root
    execute(
        plan,
        None if str(plan.collective) == "reduce" and rank != root else output,
        None if str(plan.collective) == "broadcast" and rank != root else mine,
        slices=slices,
        op=op,
    )
    right = not workload.has_output or workload.count_wrong(output, wanted) == 0
    return right and (in_place or same(mine, before))


def one_memory(
    program: Program, rank: int, elements: int, output: torch.Tensor, mine: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the smaller of two tensors its part of the larger; the input keeps its data."""
    begin = sum(shard_elements(program.layout, elements)[:rank]) if len(output) != len(mine) else 0
    if len(mine) > len(output):
        return mine[begin : begin + len(output)], mine
    whole = torch.zeros_like(output)
    whole[begin : begin + len(mine)] = mine
    return whole, whole[begin : begin + len(mine)]


def same_bits_everywhere(rank: int, plan: SimpleNamespace) -> bool:
    """Floating-point sums depend on their order, but all ranks have the same ones."""
    generator = torch.Generator().manual_seed(rank)
    mine = torch.randn(5000, generator=generator)
    output = torch.empty_like(mine)
    execute(plan, output, mine)
    first = output.clone()
    dist.broadcast(first, src=0)
    return same(first, output)


def gathers_in_place(rank: int, program: Program) -> bool:
    """The input may lie where it has to go."""
    everything = inputs(5, torch.int32)
    output = torch.zeros(RANKS * 5, dtype=torch.int32)
    mine = output[rank * 5 : (rank + 1) * 5]
    mine.copy_(everything[rank])
    execute(program, output, mine)
    return torch.equal(output, torch.cat(everything))


def gathers_with_gradients(rank: int, program: Program) -> bool:
    """A parameter can be gathered."""
    mine = torch.full((3,), float(rank), requires_grad=True)
    output = torch.empty(RANKS * 3)
    execute(program, output, mine)
    return not output.requires_grad and output.tolist() == [float(owner) for owner in range(RANKS) for _ in range(3)]


def gathers_by_plan(rank: int) -> bool:
    """A plan is lowered once and runs twice."""
    plan = SimpleNamespace(collective="allgather", schedule=random_forest(RANKS, 100, 1, max_weight=90))
    return all(gathers(rank, 17, run=lambda output, mine: execute(plan, output, mine)) for _ in range(2))


def gathers_in_subgroup(rank: int) -> bool:
    """Ranks 3 and 1, in that order, form a group of two; the others are told that they are no members."""
    group = dist.new_group([3, 1])
    program = lower(ring_forest(2), "allgather")
    output, mine = torch.zeros(4, dtype=torch.int64), torch.full((2,), rank)
    if rank not in (1, 3):
        return "not a member" in message_of(lambda: execute(program, output, mine, group=group))
    execute(program, output, mine, group=group)
    first, second = (dist.get_global_rank(group, member) for member in range(2))
    return output.tolist() == [first, first, second, second]


def wrong_calls(rank: int, folder: str) -> dict[str, str]:
    """Make calls that one rank, or all, get wrong; the group stays usable after each."""
    join(rank, folder)
    ring, trees = lower(ring_forest(RANKS), "allgather"), lower(random_forest(RANKS, 2, 0), "allgather")
    ten, forty = torch.zeros(10), torch.zeros(40)
    other = rank == 2
    adding = SimpleNamespace(collective="allreduce", schedule=random_schedule("allreduce", RANKS, 1, 0))
    scattering = SimpleNamespace(collective="reduce_scatter", schedule=random_schedule("reduce_scatter", RANKS, 1, 0))
    calls: dict[str, Callable[[], None]] = {
        "output size on one rank": lambda: execute(ring, torch.zeros(39) if other else forty, ten),
        "input size differs": lambda: execute(ring, torch.zeros(4 * (10 + other)), torch.zeros(10 + other)),
        "type differs": lambda: execute(ring, forty.double() if other else forty, ten.double() if other else ten),
        "program differs": lambda: execute(trees if other else ring, forty, ten),
        "slices differ": lambda: execute(ring, forty, ten, slices=1 + other),
        "types": lambda: execute(ring, forty.double(), ten),
        "strided": lambda: execute(ring, forty, torch.zeros(20)[::2]),
        "no tensor": lambda: execute(ring, forty, [0.0] * 10),
        "conjugate": lambda: execute(ring, forty.cfloat(), ten.cfloat().conj()),
        "overlap": lambda: execute(ring, forty, forty[5:15]),
        "group size": lambda: execute(lower(ring_forest(3), "allgather"), forty, ten),
        "slices": lambda: execute(ring, forty, ten, slices=0),
        "timeout": lambda: execute(ring, forty, ten, timeout=0),
        "plan": lambda: execute(SimpleNamespace(collective="allreduce", schedule=None), forty, ten),
        "ops differ": lambda: execute(adding, ten.clone(), ten, op="max" if other else "min"),
        "no such op": lambda: execute(adding, ten.clone(), ten, op="xor"),
        "op and type": lambda: execute(adding, ten.int(), ten.int(), op="avg"),
        "no output": lambda: execute(adding, None, ten),
        "allreduce sizes": lambda: execute(adding, torch.zeros(11), ten),
        "reduce_scatter sizes": lambda: execute(scattering, torch.zeros(3), ten),
        "weights": lambda: execute(weighted_plan("allgather"), torch.zeros(60), ten),
        "after all that": lambda: execute(ring, forty, ten),
        "and then a wrong size": lambda: execute(ring, torch.zeros(39), ten),
    }
    return {name: message_of(call) for name, call in calls.items()}


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
    adding = SimpleNamespace(collective="allreduce", schedule=random_schedule("allreduce", RANKS, 1, 0))
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
