"""What the ranks of the tests of asynchronous calls do; a module of its own because the processes import it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed as dist
from runtime_forests import COLLECTIVES, random_schedule, ring_forest
from runtime_tasks import RANKS, join, message_of

from collopt.runtime import all_to_all_single, execute, lower
from collopt.runtime.execution.call_queue import AsyncWork
from collopt.runtime.execution.execute import program_of
from collopt.runtime.execution.workload import (
    Workload,
    fill_incorrect,
)

CPU = torch.device("cpu")


class Begun(NamedTuple):
    """A call, and what has to come of it."""

    work: AsyncWork | None
    output: torch.Tensor
    accepts: Callable[[torch.Tensor], bool]


class Answers(NamedTuple):
    """What one rank has to tell."""

    right: dict[str, bool]
    refusals: dict[str, str]
    futures: dict[str, object]
    callbacks: list[list[int]]


def plan_for(collective: str, seed: int = 7) -> SimpleNamespace:
    """Trees of all sorts."""
    return SimpleNamespace(collective=collective, schedule=random_schedule(collective, RANKS, 3, seed=seed, root=2))


def started(call: Callable[[], AsyncWork | None]) -> AsyncWork:
    """Return the work of a call with ``async_op``."""
    work = call()
    assert work is not None
    return work


def begin(rank: int, collective: str, elements: int, dtype: torch.dtype, *, async_op: bool, **options: Any) -> Begun:
    """Begin a call on random data, after torch's own collective has said what has to come of it."""
    plan = plan_for(collective)
    program = program_of(plan)
    elements *= RANKS if collective in ("allgather", "reduce_scatter") else 1
    workload = Workload(program.layout, program.num_ranks, rank, elements, str(dtype).removeprefix("torch."))
    output, mine = workload.make_tensors(in_place=False, device=CPU)
    workload.fill_input(mine)
    wanted = workload.by_torch(mine)
    fill_incorrect(output, wanted)
    unused = collective == "reduce" and rank != program.layout.root
    # What a rank has no use for is not looked at.
    nothing: Any = "no tensor"
    work = execute(plan, nothing if unused else output, mine, async_op=async_op, **options)
    assert (work is not None) == async_op
    return Begun(work, output, (lambda _: True) if unused else lambda output: not workload.count_wrong(output, wanted))


def everything(rank: int, folder: str) -> Answers:
    """All that should work, one after the other: starting processes takes longer than what they do."""
    join(rank, folder)
    right = {
        "every collective": all(waited(begin(rank, each, 1003, torch.int64, async_op=True)) for each in COLLECTIVES),
        "several at once": several(rank),
        "some ranks asynchronously": all(
            waited(begin(rank, "allreduce", 500 + size, torch.float32, async_op=rank != 1)) for size in range(3)
        ),
        "between messages and collectives": between_others(rank),
        "with exchanges": with_exchanges(rank),
        "nothing to send": waited(begin(rank, "allreduce", 0, torch.float32, async_op=True)),
        "comparisons in the order of calls": comparisons(rank),
    }
    return Answers(right, refusals(rank), futures(rank), callbacks(rank))


def waited(begun: Begun) -> bool:
    """Wait, twice, and say whether all is right."""
    if begun.work is not None:
        assert begun.work.wait()
        assert begun.work.is_completed()
        assert begun.work.wait(5)
    return begun.accepts(begun.output)


def several(rank: int) -> bool:
    """Thirty calls of all sorts, every seventh of them synchronous, waited for in another order on each rank."""
    begun = []
    for number in range(30):
        collective = COLLECTIVES[number % len(COLLECTIVES)]
        each = begin(rank, collective, 100 + number, torch.int32, async_op=number % 7 != 3, slices=1 + number % 3)
        if each.work is None:
            # A call that is not asynchronous comes after those that are.
            assert all(other.work is None or other.work.is_completed() for other in begun)
            assert each.accepts(each.output)
        begun.append(each)
    order = sorted(range(30), key=lambda number: number * (2 * rank + 1) % 31)
    return all(waited(begun[number]) for number in order)


def between_others(rank: int) -> bool:
    """Messages and collectives of the same group, while calls go on, do not get mixed up with theirs."""
    right = []
    for number in range(5):
        each = begin(rank, "allreduce", 10007, torch.int64, async_op=True)
        left, over = (rank - 1) % RANKS, (rank + 1) % RANKS
        sent = dist.isend(torch.tensor([rank, number]), over)
        dist.all_reduce(total := torch.tensor([rank]))
        dist.recv(message := torch.zeros(2, dtype=torch.int64), left)
        assert sent is not None
        sent.wait()
        right += [total.item() == 6, message.tolist() == [left, number], waited(each)]
    return all(right)


def with_exchanges(rank: int) -> bool:
    """`all_to_all_single` has the same queue; what it gives has the same methods."""
    plan, data = plan_for("allreduce"), torch.full((3, 2000), rank)
    output = torch.zeros(8, dtype=torch.int64)
    first = started(lambda: execute(plan, data[0], data[0], async_op=True))
    second = started(lambda: all_to_all_single(output, torch.full((8,), rank), async_op=True, servers=2))
    third = started(lambda: execute(plan, data[1], data[1], async_op=True))
    (exchanged,) = second.get_future().wait()
    # Later ones are over no earlier.
    assert first.is_completed()
    third.wait()
    execute(plan, data[2], data[2])
    return exchanged is output and output.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and bool((data == 6).all())


def refusals(rank: int) -> dict[str, str]:
    """What is told of wrong arguments: at once, by the call, on all ranks."""
    # One that was not called before: a rank that is wrong later cannot tell the others.
    plan, ten, other = plan_for("allreduce", seed=8), torch.zeros(10), rank == 2
    works: list[AsyncWork] = []

    def debugged() -> None:
        with patch("torch.distributed.get_debug_level", return_value=dist.DebugLevel.DETAIL):
            execute(plan, ten.int(), ten.int(), async_op=True)

    return {
        "expanded": message_of(lambda: execute(plan, torch.zeros(1).expand(10), ten, async_op=True)),  # type: ignore[func-returns-value]
        "no bool": message_of(lambda: execute(plan, ten.half(), ten.half(), async_op=1)),  # type: ignore[arg-type, func-returns-value]
        "debugging": message_of(debugged),
        "one rank": message_of(
            lambda: execute(plan, torch.zeros(11 if other else 10), ten, async_op=True)  # type: ignore[func-returns-value]
        ),
        "afterwards": message_of(lambda: works.append(started(lambda: execute(plan, ten.clone(), ten, async_op=True)))),
        "wait": message_of(lambda: works[0].wait(timeout=0)),  # type: ignore[func-returns-value]
    }


def futures(rank: int) -> dict[str, object]:
    """What `get_future` gives, before the call is over and after."""
    plan, data = plan_for("allreduce"), torch.full((2, 2000), rank)
    work = started(lambda: execute(plan, data[0], data[0], async_op=True))
    first = work.get_future().then(lambda future: future.value()[0][0].item() * 2).wait()
    second = work.get_future().wait()[0] is not None
    reduce, root = plan_for("reduce"), rank == 2
    work = started(lambda: execute(reduce, data[1].clone() if root else None, data[1], async_op=True))
    return {"then": first, "afterwards": second, "outputs": len(work.get_future().wait())}


def callbacks(rank: int) -> list[list[int]]:
    """Callbacks that go on with collectives of the same group, whatever is waiting there already."""
    plan, done = plan_for("allreduce"), []
    data = torch.full((4, 3000), rank)
    execute(plan, data[3].clone(), data[3])  # So that no later call has to be agreed on.

    def go_on(future: Any) -> list[int]:
        (first,) = future.value()
        execute(plan, data[1], first)
        work = started(lambda: execute(plan, data[2], data[1], async_op=True))
        work.wait()
        return [int(first[0]), int(data[1][0]), int(data[2][0])]

    work = started(lambda: execute(plan, data[0], data[0], async_op=True))
    future = work.get_future().then(go_on)
    after = started(lambda: execute(plan, data[3], data[3], async_op=True))
    after.wait()
    done.append(future.wait())
    done.append([int(data[3][0])])
    return done


def comparisons(rank: int) -> bool:
    """Callbacks and the program make calls that are the first of their kind: of different kinds, one kind, exchanges.

    Rank 1 is late, so callbacks run beside the program on the others; rank 2's dawdle, and rank 0's program does.
    """
    plan, right = plan_for("allreduce"), []

    def add(elements: int, value: int) -> bool:
        execute(plan, data := torch.full((elements,), value), data)
        return data[0].item() == RANKS * value

    def exchange(elements: int, _: int) -> bool:
        all_to_all_single(
            output := torch.zeros(RANKS * elements), torch.full((RANKS * elements,), float(rank)), servers=2
        )
        return output.view(RANKS, elements)[:, 0].tolist() == list(range(RANKS))

    for call, sizes in ((add, (211, 212)), (add, (213, 213)), (exchange, (3, 4))):
        dist.barrier()
        if rank == 1:
            time.sleep(0.3)
        work = begin(rank, "allreduce", 10007, torch.int64, async_op=True).work
        assert work is not None

        def callback(_: Any, call: Any = call, size: int = sizes[0]) -> bool:
            if rank == 2:
                time.sleep(0.2)
            return call(size, 2)  # type: ignore[no-any-return]

        future = work.get_future().then(callback)
        if rank == 0:
            time.sleep(0.6)
        right += [call(sizes[1], 3), future.wait()]
    return all(right)


def leaving_early(rank: int, folder: str) -> list[int]:
    """Rank 0 begins its calls when the others have come to the end of theirs without waiting."""
    join(rank, folder)
    plan, data = plan_for("allreduce"), torch.full((3, 3000), rank)
    execute(plan, data[0].clone(), data[0])
    dist.barrier()
    if rank == 0:
        time.sleep(1)
    works = [started(partial(execute, plan, row, row, async_op=True)) for row in data]
    return [int(row[0]) for work, row in zip(works, data, strict=True) if rank == 0 and work.wait()]


def told() -> list[str]:
    """Return the list that the log goes to from now on."""
    said: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("collopt.runtime").addHandler(handler)
    return said


def absent_rank(rank: int, folder: str) -> tuple[list[str], list[str], float]:
    """Rank 3 stays away from three outstanding calls and a synchronous one; what waits raise, twice for the first."""
    join(rank, folder)
    said = told()
    ring = lower(ring_forest(RANKS), "allgather")
    ten, forty = torch.zeros(10), torch.zeros(4, 40)
    execute(ring, forty[0], ten)
    dist.barrier()
    begin_s = time.monotonic()
    if rank == 3:
        while len(list(Path(folder).glob("done*"))) < 3 and time.monotonic() < begin_s + 60:
            time.sleep(0.05)
        return [], [], 0
    works = [started(lambda row=row: execute(ring, row, ten, timeout=1, async_op=True)) for row in forty[:3]]
    early = message_of(lambda: works[0].wait(timeout=0.05))  # type: ignore[func-returns-value]
    messages = [message_of(work.wait) for work in (works[0], *works)]  # type: ignore[arg-type]
    future = works[0].get_future()
    with suppress(Exception):
        future.wait()
        messages.append("no error")
    messages.append(message_of(lambda: execute(ring, forty[3], ten, timeout=1)))  # type: ignore[func-returns-value]
    assert all(work.is_completed() for work in works)
    seconds = time.monotonic() - begin_s
    Path(folder, f"done{rank}").touch()
    return [early, *messages], said, seconds
