"""What the ranks of the tests of the torch backend do; a module of its own because the processes import it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from runtime_forests import random_schedule
from runtime_tasks import message_of
from torch.nn.parallel import DistributedDataParallel

from collopt.runtime import all_to_all_single as staged_all_to_all
from collopt.runtime import backend, execute
from collopt.topologies import ring

RANKS = 4
TYPES = (torch.int32, torch.int64, torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def join(rank: int, store: str, name: str = "collopt", *, options: object = None, seconds: float = 60) -> None:
    """Make this process a rank of four."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        name,
        init_method=f"file://{store}",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=seconds),
        pg_options=options,
    )


class Answers(NamedTuple):
    """What one rank has to tell."""

    agrees: dict[str, bool]
    planned: dict[str, int]
    specials: dict[str, bool]
    fallbacks: dict[str, bool]
    said: list[str]
    groups: dict[str, object]
    losses: tuple[list[float], list[float]]


def everything(rank: int, folder: str, plans: str) -> Answers:
    """All that should work, one after the other: starting processes takes longer than what they do."""
    said = listen()
    backend.configure(plans=plans)
    join(rank, f"{folder}/first")
    own = dist.new_group(backend="gloo")
    assert own is not None
    agrees = comparisons(rank, own, [*((7, dtype) for dtype in TYPES), *product((1, 10007), TYPES[1:6:4])])
    planned = backend.usage().planned
    checks = specials(rank, own)
    unplanned = fallbacks(own)
    several = groups(rank, plans)
    planned_losses = losses(rank)
    dist.destroy_process_group()
    join(rank, f"{folder}/second", "gloo")
    plain_losses = losses(rank)
    dist.destroy_process_group()
    return Answers(agrees, planned, checks, unplanned, said, several, (planned_losses, plain_losses))


def listen() -> list[str]:
    """Return the list that the backend's log goes to from now on."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("collopt.runtime.backend").addHandler(handler)
    return said


def compared(call: Callable[..., torch.Tensor], own: Any) -> bool:
    """Whether the default group and one with torch's own backend give the same bits."""
    return torch.equal(call(group=None).view(-1).view(torch.uint8), call(group=own).view(-1).view(torch.uint8))


def values(elements: int, dtype: torch.dtype, rank: int) -> torch.Tensor:
    """Small whole numbers, whose sums and products are exact in every type."""
    return ((torch.arange(elements) * 7 + 5 * rank) % 4).to(dtype)


def all_reduce(size: int, dtype: torch.dtype, rank: int, group: Any, op: Any = dist.ReduceOp.SUM) -> torch.Tensor:
    """Reduce everywhere."""
    dist.all_reduce(data := values(size, dtype, rank), op, group=group)
    return data


def broadcast(size: int, dtype: torch.dtype, rank: int, group: Any, root: int = 2) -> torch.Tensor:
    """Send from a root to all."""
    dist.broadcast(data := values(size, dtype, rank), root, group=group)
    return data


def reduce(size: int, dtype: torch.dtype, rank: int, group: Any) -> torch.Tensor:
    """Reduce to rank 1; other ranks have no result."""
    dist.reduce(data := values(size, dtype, rank), 1, group=group)
    return data if rank == 1 else data[:0]


def all_gather_into_tensor(size: int, dtype: torch.dtype, rank: int, group: Any) -> torch.Tensor:
    """Gather into one tensor."""
    output = torch.full((RANKS * size,), 99).to(dtype)
    dist.all_gather_into_tensor(output, values(size, dtype, rank), group=group)
    return output


def all_gather(size: int, dtype: torch.dtype, rank: int, group: Any) -> torch.Tensor:
    """Gather into several tensors."""
    outputs = [torch.full((size,), 99).to(dtype) for _ in range(RANKS)]
    dist.all_gather(outputs, values(size, dtype, rank), group=group)
    return torch.cat(outputs)


def reduce_scatter_tensor(size: int, dtype: torch.dtype, rank: int, group: Any) -> torch.Tensor:
    """Reduce and scatter one tensor."""
    output = torch.full((size,), 99).to(dtype)
    dist.reduce_scatter_tensor(output, values(RANKS * size, dtype, rank), group=group)
    return output


def reduce_scatter(size: int, dtype: torch.dtype, rank: int, group: Any) -> torch.Tensor:
    """Reduce and scatter several tensors."""
    output = torch.full((size,), 99).to(dtype)
    dist.reduce_scatter(output, list(values(RANKS * size, dtype, rank).split(size)), group=group)
    return output


def all_to_all_single(size: int, dtype: torch.dtype, rank: int, group: Any) -> torch.Tensor:
    """Exchange equal parts."""
    output = torch.full((RANKS * size,), 99).to(dtype)
    dist.all_to_all_single(output, values(RANKS * size, dtype, rank), group=group)
    return output


def uneven(rank: int, group: Any) -> torch.Tensor:
    """Exchange unequal parts: rank r gives every rank r rows."""
    output = torch.zeros(6)
    dist.all_to_all_single(output, torch.full((4 * rank,), float(rank)), [0, 1, 2, 3], [rank] * 4, group=group)
    return output


CALLS = (
    all_reduce, broadcast, reduce, all_gather_into_tensor, all_gather, reduce_scatter_tensor, reduce_scatter,
    all_to_all_single,
)  # fmt: skip


def comparisons(rank: int, own: Any, sizes_and_types: Iterable[tuple[int, torch.dtype]]) -> dict[str, bool]:
    """Compare every collective on the default group with that on a group of torch's own backend."""
    return {
        f"{call.__name__} of {size} {dtype}": compared(partial(call, size, dtype, rank), own)
        for size, dtype in sizes_and_types
        for call in CALLS
    }


def specials(rank: int, own: Any) -> dict[str, bool]:
    """What else should work."""
    ops = {
        f"all_reduce with {name}": compared(
            partial(all_reduce, 9, torch.float32, rank, op=getattr(dist.ReduceOp, name)), own
        )
        for name in ("PRODUCT", "MIN", "MAX")
    }
    before = backend.usage().planned
    results = {
        **ops,
        "average": average(rank),
        "shapes": shapes(rank),
        "several tensors as one": coalesced(rank, own),
        "functional": functional_collectives(rank),
        "works at once": works_at_once(rank),
        "beside the caller": beside_the_caller(rank),
        "callbacks": callbacks(rank),
        "messages on the way": messages(rank),
        "inference tensors": inference_tensors(rank),
        "objects": objects(rank),
        "nothing": nothing(),
        "nothing of a type that Gloo has not": nothing(torch.int16),
        "barrier": dist.barrier() is None,
        "call without lists": direct(rank),
        "execute": executes(rank),
        "all_to_all_single": exchanges_unequal_parts(rank),
    }
    after = backend.usage().planned
    results["all but what has no data ran by plans"] = sum(after.values()) - sum(before.values()) >= 12
    return results


def average(rank: int) -> bool:
    """Gloo has no averages."""
    dist.all_reduce(data := torch.full((5,), float(rank)), dist.ReduceOp.AVG)
    return data.tolist() == [1.5] * 5


def shapes(rank: int) -> bool:
    """Tensors that are not contiguous, and ones of several dimensions."""
    dist.all_reduce(strided := torch.arange(12.0).view(3, 4).t())
    gathered = torch.zeros(RANKS, 2, 3)
    dist.all_gather_into_tensor(gathered, torch.full((2, 3), float(rank)))
    return torch.equal(strided, 4 * torch.arange(12.0).view(3, 4).t()) and gathered[:, 1, 2].tolist() == [0, 1, 2, 3]


def coalesced(rank: int, own: Any) -> bool:
    """Several tensors of different sizes."""
    results = []
    for group in (None, own):
        tensors = [values(size, torch.float32, rank) for size in (3, 1, 8)]
        dist.all_reduce_coalesced(tensors, group=group)
        results.append(torch.cat(tensors))
    return torch.equal(*results)


def functional_collectives(rank: int) -> bool:
    """What compiled code and distributed tensors call."""
    world = dist.group.WORLD
    assert world is not None
    total = functional.all_reduce(torch.full((3,), float(rank)), "sum", world)
    parts = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, world)
    share = functional.reduce_scatter_tensor(torch.arange(8.0), "sum", 0, world)
    return (
        total.tolist() == [6] * 3
        and parts.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        and share.tolist() == [8.0 * rank, 8.0 * rank + 4]
    )


def works_at_once(rank: int) -> bool:
    """All sorts of collectives go on at the same time, with tensors that have to be copied, and one that does not."""
    strided = torch.arange(12).view(3, 4).t()
    gathered, shares = torch.zeros(RANKS, 2), [torch.zeros(3) for _ in range(RANKS)]
    share, exchanged = torch.zeros(3), torch.zeros(RANKS)
    works = [
        dist.all_reduce(strided, async_op=True),
        dist.all_gather_into_tensor(gathered, torch.full((2,), float(rank)), async_op=True),
        dist.all_gather(shares, torch.full((3,), float(rank)), async_op=True),
        dist.reduce_scatter(share, list(torch.arange(12.0).split(3)), async_op=True),
        dist.all_to_all_single(exchanged, torch.full((RANKS,), float(rank)), async_op=True),
        dist.broadcast(sent := torch.full((3,), rank), 2, async_op=True),
    ]
    dist.all_reduce(total := torch.full((3,), rank))
    over = all(work.is_completed() for work in works)
    results = [work.get_future().wait() for work in works]
    right = all(work.wait() and work.wait(timedelta(seconds=5)) for work in works)
    return (
        over
        and right
        and [len(each) for each in results] == [1, 1, RANKS, 1, 1, 1]
        and results[2][3] is shares[3]
        and torch.equal(strided, 4 * torch.arange(12).view(3, 4).t())
        and gathered[:, 1].tolist() == [each[2].item() for each in shares] == exchanged.tolist() == [0, 1, 2, 3]
        and share.tolist() == [4 * (3.0 * rank + number) for number in range(3)]
        and sent.tolist() == [2] * 3
        and total.tolist() == [6] * 3
    )


def beside_the_caller(rank: int) -> bool:
    """A rank that has begun a collective can send what the others wait for before they call."""
    dist.all_reduce(torch.ones(5))  # Or it would be the first of its kind, of which the ranks tell each other.
    data = torch.full((5,), float(rank))
    if rank == 0:
        begun = dist.all_reduce(data, async_op=True)
        going = not begun.is_completed()
        for other in range(1, RANKS):
            dist.send(torch.ones(1), other)
    else:
        dist.recv(torch.zeros(1), 0)
        begun = dist.all_reduce(data, async_op=True)
        going = True
    return going and begun.wait() and data.tolist() == [6] * 5


def callbacks(rank: int) -> bool:
    """They go on with collectives and wait for these, as PowerSGD's do."""

    def go_on(future: Any) -> torch.Tensor:
        (first,) = future.value()
        dist.all_reduce(first)
        (second,) = dist.all_reduce(first, async_op=True).get_future().wait()
        return second.clone()

    begun = dist.all_reduce(torch.full((3,), rank), async_op=True)
    result = begun.get_future().then(go_on)
    after = dist.all_reduce(torch.full((3,), rank), async_op=True)
    return after.wait() and result.wait().tolist() == [96] * 3


def messages(rank: int) -> bool:
    """Messages of the caller that are on the way do not get mixed up with those of a plan."""
    left, right = (rank - 1) % RANKS, (rank + 1) % RANKS
    taken = dist.irecv(message := torch.zeros(5, dtype=torch.int64), left)
    dist.all_reduce(data := torch.full((5,), rank))
    given = dist.isend(torch.full((5,), rank), right)
    assert taken is not None
    assert given is not None
    taken.wait()
    given.wait()
    return message.tolist() == [left] * 5 and data.tolist() == [6] * 5


def inference_tensors(rank: int) -> bool:
    """Tensors that were made in inference mode can be written to outside it, as torch's own backends do."""
    with torch.inference_mode():
        data = torch.full((3,), rank)
    dist.all_reduce(data)
    return data.tolist() == [6] * 3


def objects(rank: int) -> bool:
    """Pickled ones, which are of different length."""
    everybodys: list[object] = [None] * RANKS
    dist.all_gather_object(everybodys, "x" * rank)
    dist.broadcast_object_list(first := [f"from {rank}"], 2)
    return everybodys == ["", "x", "xx", "xxx"] and first == ["from 2"]


def direct(rank: int) -> bool:
    """The form in which DDP calls its group with uneven inputs, and the one with an operation."""
    world = dist.group.WORLD
    assert world is not None
    before = backend.usage().planned["allreduce"]
    world.allreduce(one := torch.full((3,), rank)).wait()
    world.allreduce([two := torch.full((3,), rank)], dist.ReduceOp.MAX).wait()
    world.broadcast(three := torch.full((3,), rank), 2).wait()
    parts = [torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.zeros(1)]
    world.allgather(parts, torch.full((1,), float(rank))).wait()
    right = one.tolist() == [6] * 3 and two.tolist() == [3] * 3 and three.tolist() == [2] * 3
    return right and torch.cat(parts).tolist() == [0, 1, 2, 3] and backend.usage().planned["allreduce"] == before + 2


def executes(rank: int) -> bool:
    """Our own call on such a group, with any plan; what is wrong on one rank is told on all."""
    before = backend.usage()
    plan = SimpleNamespace(collective="reduce_scatter", schedule=random_schedule("reduce_scatter", RANKS, 2, seed=3))
    output, mine = torch.zeros(7, dtype=torch.int64), torch.arange(7 * RANKS) + rank
    refused = message_of(lambda: execute(plan, None if rank == 1 else output, mine, timeout=60))
    execute(plan, output, mine, timeout=60)
    expected = (torch.arange(7 * RANKS) * RANKS + 6)[7 * rank : 7 * rank + 7]
    told = "output has 0 elements" if rank == 1 else "rank 1 refused its arguments"
    # The group's own collectives had nothing to do with it.
    return torch.equal(output, expected) and told in refused and backend.usage() == before


def exchanges_unequal_parts(rank: int) -> bool:
    """For which the group itself has no plans."""
    before = backend.usage()
    takes, sends = [source + 1 for source in range(RANKS)], [rank + 1] * RANKS
    output = torch.zeros(sum(takes))
    staged_all_to_all(output, torch.full((sum(sends),), float(rank)), takes, sends, servers=2, timeout=60)
    return output.tolist() == [source for source in range(RANKS) for _ in range(source + 1)] and (
        backend.usage() == before
    )


def nothing(dtype: torch.dtype = torch.float32) -> bool:
    """Empty tensors."""
    dist.all_reduce(empty := torch.zeros(0, dtype=dtype))
    return empty.numel() == 0


def fallbacks(own: Any) -> dict[str, bool]:
    """What no plan is made for agrees with torch too; each is called twice."""
    rank = dist.get_rank()
    before = backend.usage().planned
    results = {}
    for turn in ("once", "again"):
        results[f"{turn}: bits"] = compared(partial(all_reduce, 9, torch.int32, rank, op=dist.ReduceOp.BOR), own)
        results[f"{turn}: another root"] = compared(partial(broadcast, 9, torch.int32, rank, root=3), own)
        results[f"{turn}: uneven"] = compared(partial(uneven, rank), own)
        results[f"{turn}: parts"] = scattered(rank)
    results["without plans"] = backend.usage().planned == before
    return results


def scattered(rank: int) -> bool:
    """Scatter and gather, which the backend leaves alone."""
    parts = list(torch.arange(8.0).split(2)) if rank == 0 else None
    dist.scatter(part := torch.zeros(2), parts, src=0)
    everybodys = [torch.zeros(2) for _ in range(RANKS)] if rank == 0 else None
    dist.gather(part, everybodys, dst=0)
    return part[0] == 2 * rank and (everybodys is None or torch.cat(everybodys).tolist() == list(range(8)))


def groups(rank: int, plans: str) -> dict[str, object]:
    """Several groups at once: pairs, for which there are plans too, others, and one with settings of its own."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    dist.new_group([0])  # Now rank 0 is in more groups than the others.
    apart = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    dist.all_reduce(torch.ones(1), group=pairs[rank // 2])
    high = dist.new_group(pg_options=backend.BackendSettings(plans=plans, min_bytes=1000, slices=3))
    pair, far = pairs[rank // 2], apart[rank % 2]
    found: dict[str, object] = {}
    for name, group in (("pair", pair), ("apart", far), ("large only", high)):
        for turn in range(3):
            dist.all_reduce(one := torch.full((3,), rank + turn), group=group)
            dist.all_reduce(two := torch.full((3,), rank))
            found[f"{name} {turn}"] = (one[0].item(), two[0].item())
        found[name] = backend.usage(group).planned
    dist.all_reduce(large := torch.ones(1000), group=high)
    found["large"] = backend.usage(high).planned if bool((large == RANKS).all()) else {}
    dist.destroy_process_group(pair)
    dist.all_reduce(after := torch.ones(3))
    found["after the pair"] = after.tolist()
    return found


def losses(rank: int) -> list[float]:
    """Train a linear model, whose numbers are all short enough to be exact in any order of adding."""
    model = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
    torch.nn.init.constant_(model.weight, rank)  # DDP begins with those of rank 0.
    trained = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(trained.parameters(), lr=1 / 64)
    inputs = values(32, torch.float64, rank).view(8, 4)
    targets = inputs.sum(1, keepdim=True)
    seen = []
    for _ in range(4):
        loss = ((trained(inputs) - targets) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(loss.item())
    return seen


def outlived(rank: int, folder: str, *, turns: int) -> int:
    """Let DDP models go only after their groups, which the wrapped backend has served."""
    backend.configure(topology=ring(RANKS, bandwidth=25), min_bytes=10**9)
    for turn in range(turns):
        join(rank, f"{folder}/{turn}")
        model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Linear(64, 1)))
        for _ in range(4):
            model(torch.ones(8, 16)).sum().backward()
        dist.destroy_process_group()
        del model
    return turns


def begun_and_destroyed(rank: int, folder: str, *, turns: int) -> list[int]:
    """Count what this process has open after each of some groups."""
    backend.configure(topology=ring(RANKS, bandwidth=25))
    found = []
    for turn in range(turns):
        join(rank, f"{folder}/{turn}")
        dist.all_reduce(torch.ones(100))
        dist.destroy_process_group()
        found.append(len(list(Path("/proc/self/fd").iterdir())))
    return found


def wrong_settings(rank: int, folder: str, folders: dict[str, str]) -> dict[str, str]:
    """Join with settings that are wrong on all ranks, or on rank 2."""
    four = backend.BackendSettings(plans=folders["good"])
    cases: dict[str, backend.BackendSettings] = {
        "nothing": backend.BackendSettings(),
        "no such folder": backend.BackendSettings(plans=f"{folders['good']}/nowhere"),
        "empty": backend.BackendSettings(plans=folders["empty"]),
        "broken": backend.BackendSettings(plans=folders["broken"]),
        "two networks": backend.BackendSettings(plans=folders["mixed"]),
        "another topology": backend.BackendSettings(plans=folders["good"], topology=folders["topology"]),
        "broken on one rank": backend.BackendSettings(plans=folders["broken"]) if rank == 2 else four,
        "others on one rank": backend.BackendSettings(plans=folders["pairs"]) if rank == 2 else four,
        "slices on one rank": backend.BackendSettings(plans=folders["good"], slices=1 + (rank == 2)),
    }
    answers = {
        name: message_of(partial(join, rank, f"{folder}/store{number}", options=settings))
        for number, (name, settings) in enumerate(cases.items())
    }
    said = listen()
    join(rank, f"{folder}/last", options=backend.BackendSettings(plans=folders["pairs"]))
    dist.all_reduce(data := torch.full((3,), rank))
    answers["plans for two"] = " ".join([str(data.tolist()), *said])
    return answers
