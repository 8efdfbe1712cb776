"""Checks of the switch channels of an MSCCL++ plan and of what uses them.

The loader checks none of this: it binds the buffer of every GPU to the group's multicast object (``executor.cc`` of
0.9.0, line 383) and adds the same offset to it wherever it is (``execution_plan.cc``, line 531).
"""

from collections.abc import Callable
from itertools import product
from typing import NoReturn

from ....schedules import REDUCE_SCATTER
from .execution_plan import ExecutionPlan, Operation, Place, SwitchGroup

Fail = Callable[[str], NoReturn]


def check_switch_groups(plan: ExecutionPlan, fail: Fail) -> None:
    """Refuse groups on buffers that cannot be one memory at one offset, and groups that would wait for each other."""
    for rank, gpu in enumerate(plan.gpus):
        bound: dict[str, SwitchGroup] = {}
        for group in gpu.switches:
            if plan.in_place and plan.collective.is_sharded and group.buffer == _smaller(plan):
                fail(
                    f"gpu {rank} has a switch channel on its {group.buffer}, which in place begins at another offset "
                    f"on every gpu ({plan.collective})"
                )
            memory = "shared" if plan.in_place and group.buffer != "scratch" else group.buffer
            other = bound.setdefault(memory, group)
            if set(other.ranks) != set(group.ranks):
                fail(
                    f"gpu {rank} has its {group.buffer} in switch groups of ranks {list(other.ranks)} and "
                    f"{list(group.ranks)}; a buffer is for the channels of one group"
                )
    _check_order(plan, fail)


def _smaller(plan: ExecutionPlan) -> str:
    return "output" if plan.collective is REDUCE_SCATTER else "input"


def _check_order(plan: ExecutionPlan, fail: Fail) -> None:
    """Set up all groups as the executor does: each when it is next on all of its GPUs."""
    listed = [[(group.buffer, frozenset(group.ranks)) for group in gpu.switches] for gpu in plan.gpus]
    at = [0] * plan.num_ranks
    waiting = list(range(plan.num_ranks))
    while waiting:
        rank = waiting.pop()
        if at[rank] == len(listed[rank]):
            continue
        following = listed[rank][at[rank]]
        if all(listed[member][at[member] :][:1] == [following] for member in following[1]):
            for member in following[1]:
                at[member] += 1
            waiting.extend(following[1])
    for rank, groups in enumerate(listed):
        if at[rank] < len(groups):
            buffer, members = groups[at[rank]]
            fail(
                f"gpu {rank} has switch channel {at[rank]} on the {buffer} of ranks {sorted(members)}, which not all of"
                " them list in this order; they would wait for each other for ever"
            )


def check_switch_operation(plan: ExecutionPlan, where: str, rank: int, operation: Operation, fail: Fail) -> None:
    """Refuse an operation that stores at an offset onto what it reads: other threads may not have read it yet."""
    read, written = operation.copies(plan.gpus[rank])
    for source, target in product(read, written):
        (one, first), (other, start) = _located(plan, source), _located(plan, target)
        if (source.rank, one) == (target.rank, other) and 0 < abs(first - start) < source.count:
            fail(f"{where} stores chunks at an offset onto what it reads")


def same_memory(plan: ExecutionPlan, one: Place, other: Place) -> bool:
    """Whether two places of one size are the same memory."""
    return one.rank == other.rank and _located(plan, one) == _located(plan, other)


def _located(plan: ExecutionPlan, place: Place) -> tuple[str, int]:
    """Memory and first chunk, input and output being one memory in place."""
    if not plan.in_place or place.buffer == "scratch":
        return place.buffer, place.start
    begin = 0
    if plan.collective.is_sharded and place.buffer == _smaller(plan):
        begin = place.rank * plan.gpus[place.rank].chunks[place.buffer]
    return "shared", begin + place.start
