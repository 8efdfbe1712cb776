"""Each check of an MSCCL++ plan, on plans of two GPUs: the last number that it lets pass, and the first it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from collopt.errors import UnsupportedError
from collopt.runtime.mscclpp.check import PlanError, check_execution_plan, same_memory
from collopt.runtime.mscclpp.execution_plan import ExecutionPlan, Gpu, Operation, Place, SwitchGroup

Blocks = tuple[tuple[Operation, ...], ...]
NOP = Operation("nop")
IDLE: Blocks = ((NOP,),)
FIRST = "gpu 0 threadblock 0 op 0"
BOTH = (0, 1)
LARGEST = (2**32 - 1) // 4 // 16 * 64
"""Of four chunks, a multiple of 16 bytes each, with offsets below 2**32."""


def plan(
    *blocks: tuple[Operation, ...], other: Blocks = IDLE, first: dict[str, Any] | None = None, **changes: Any
) -> ExecutionPlan:
    """Return a plan with these thread blocks on GPU 0 and `other` on GPU 1; `first` changes GPU 0."""
    gpus = [
        Gpu(4, 4, 4, {"memory": (1 - rank,) * 9, "port": (1 - rank,) * 9}, (0,) * 17, on_gpu)
        for rank, on_gpu in enumerate((blocks or IDLE, other))
    ]
    gpus[0] = replace(gpus[0], **first or {})
    made = ExecutionPlan("two", "allreduce", False, 0, 2**20, 1024, tuple(gpus))  # type: ignore[arg-type]
    return replace(made, **changes)


def sized(collective: str, given: int, kept: int, *, in_place: bool = False) -> ExecutionPlan:
    """Return a plan of another collective and with other buffers."""
    gpus = tuple(replace(gpu, input_chunks=given, output_chunks=kept) for gpu in plan().gpus)
    return plan(collective=collective, in_place=in_place, gpus=gpus)


def on(name: str, *channels: int, kind: str = "memory") -> tuple[Operation, ...]:
    """Return a thread block with one operation on channels."""
    return (Operation(name, kind, channels),)  # type: ignore[arg-type]


def signal(*channels: int, **options: Any) -> ExecutionPlan:
    """Return a plan with signals, and as many waits on the other GPU."""
    return plan(on("signal", *channels), other=(on("wait", *channels),), **options)


def semaphores(*numbers: int, **options: Any) -> ExecutionPlan:
    """Return a plan in which one thread block acquires and the other releases."""
    return plan(acquire(*numbers), release(*numbers), **options)


def acquire(*numbers: int) -> tuple[Operation, ...]:
    """Return a thread block that waits for semaphores."""
    return (Operation("sem_acquire", semaphores=numbers),)


def release(*numbers: int) -> tuple[Operation, ...]:
    """Return a thread block that releases semaphores."""
    return (Operation("sem_release", semaphores=numbers),)


def places(letters: str, count: int = 1) -> tuple[Place, ...]:
    """Return places on GPU 0, or 1 for capital letters: a letter of the buffer and the first chunk for each."""
    names = {"i": "input", "o": "output", "s": "scratch"}
    return tuple(
        Place(int(each[0].isupper()), names[each[0].lower()], int(each[1:]), count)  # type: ignore[arg-type]
        for each in letters.split()
    )


def moves(name: str, sources: str, targets: str, count: int = 1, **channels: Any) -> tuple[Operation, ...]:
    """Return a thread block with one operation on data."""
    return (Operation(name, sources=places(sources, count), targets=places(targets, count), **channels),)


def puts(number: int, channels: int | None = None) -> tuple[Operation, ...]:
    """Return a thread block with a put of as many places, by channels of which several may be one."""
    used = (0,) * (number if channels is None else channels)
    return moves("put", "i0 " * number, "O0 " * number, channel_type="memory", channels=used)


def pipeline(*body: Operation, unit: int = 16, chunks: int = 1) -> tuple[Operation, ...]:
    """Return a thread block with a pipeline."""
    return (Operation("pipeline", unit_bytes=unit, num_chunks=chunks, body=body),)


def switched(
    *groups: tuple[str, tuple[int, ...]],
    own: tuple[str, tuple[int, ...]] | None = None,
    op: tuple[Operation, ...] = (NOP,),
    base: ExecutionPlan | None = None,
    by: int = 0,
) -> ExecutionPlan:
    """Return a plan with switch channels on both GPUs, GPU 0 with its `own` too, and an operation of GPU `by`."""
    made = base or plan()
    known = tuple(SwitchGroup(buffer, ranks) for buffer, ranks in groups)  # type: ignore[arg-type]
    gpus = [replace(gpu, switches=known) for gpu in made.gpus]
    if own:
        gpus[0] = replace(gpus[0], switches=(*known, SwitchGroup(*own)))  # type: ignore[arg-type]
    gpus[by] = replace(gpus[by], thread_blocks=(op,))
    return replace(made, gpus=tuple(gpus))


def ordered(first: str, second: str) -> ExecutionPlan:
    """Return a plan in which GPU 0 lists its switch channels by the first string, GPU 1 by the second."""
    groups = {"i": SwitchGroup("input", BOTH), "o": SwitchGroup("output", BOTH)}
    gpus = zip(plan().gpus, (first, second), strict=True)
    return plan(gpus=tuple(replace(gpu, switches=tuple(groups[each] for each in letters)) for gpu, letters in gpus))


def gstore(source: str, target: str, count: int, **options: Any) -> ExecutionPlan:
    """Return a plan in which a GPU stores to the outputs of both."""
    operation = moves("gstore", source, target, count, channel_type="switch", channels=(0,))
    return switched(("output", BOTH), op=operation, **options)


IN_PLACE = sized("allgather", 4, 8, in_place=True)
SIGNALS_ALONE = {"peers": {"memory": (1,) * 10, "port": (1,) * 9}}
ACCEPTED = {
    "idle": plan(),
    "operations": plan((*pipeline(*(NOP,) * 61), NOP, NOP)),
    "allgather": sized("allgather", 2, 4),
    "reduce-scatter": sized("reduce_scatter", 4, 2),
    "all-to-all": sized("all_to_all", 4, 4),
    "odd": sized("allreduce", 3, 3),
    "in place": plan(in_place=True),
    "small": plan(min_bytes=0, max_bytes=64),
    "large": plan(min_bytes=LARGEST, max_bytes=2**40),
    "channels": signal(*range(8)),
    "ports": plan(on("signal", 0, kind="port"), other=(on("wait", 0, kind="port"),)),
    "a channel of another end": plan(puts(1), first=SIGNALS_ALONE),
    "puts in two blocks": plan(puts(1), puts(1)),
    "threads": signal(0, 1, threads_per_block=2),
    "threads of semaphores": semaphores(0, 1, threads_per_block=2),
    "semaphores": semaphores(*range(1, 17)),
    "two semaphores": plan(acquire(0) + acquire(1), release(0), release(1)),
    "puts": plan(puts(8)),
    "re": plan(moves("re", "o0 i1 i2 i3 s0 s1 s2 s3", "o0")),
    "copy": plan(moves("copy", "o0", "o2", 2)),
    "copy before": plan(moves("copy", "o2", "o0", 2)),
    "last chunk": plan(moves("copy", "i2", "o2", 2)),
    "writes in place": plan(moves("copy", "o0", "i1"), in_place=True),
    "puts elsewhere": plan(moves("put", "i0", "o0", channel_type="memory", channels=(0,))),
    "port": plan(moves("pws", "i0", "O0", channel_type="port", channels=(0,)), other=(on("wait", 0, kind="port"),)),
    "pipeline": plan(pipeline(*moves("copy", "i0", "o0", 2), chunks=2)),
    "slices": plan(pipeline(NOP), max_bytes=2**22 - 1),
    "slices of two chunks": plan(pipeline(NOP, chunks=2), max_bytes=2**21 - 1),
    "slices of the largest message": plan(pipeline(NOP, unit=2**14), max_bytes=2**40),
    "signals inside": plan(pipeline(*on("signal", 0)), other=(pipeline(*on("wait", 0)),)),
    "semaphores inside": plan(pipeline(*acquire(0)), pipeline(*release(0))),
    "groups": switched(("input", BOTH), ("output", (0, 1)), ("output", (1, 0)), ("input", BOTH)),
    "groups of two buffers": switched(("input", BOTH), own=("output", (0,))),
    "switch of the larger buffer": switched(("output", BOTH), base=sized("allgather", 2, 4, in_place=True)),
    "switch of the larger input": switched(("input", BOTH), base=sized("reduce_scatter", 4, 2, in_place=True)),
    "switch of scratch": switched(("scratch", BOTH), base=sized("allgather", 2, 4, in_place=True)),
    "switch out of place": switched(("input", BOTH), base=sized("allgather", 2, 4)),
    "switch in place": switched(("input", BOTH), ("output", BOTH), base=plan(in_place=True)),
    "order": ordered("ioi", "ioi"),
    "stores onto itself": gstore("o1", "o1", 2),
    "stores beside itself": gstore("o0", "o2", 2),
    "stores before itself": gstore("o2", "o0", 2),
    "stores its input": gstore("i0", "o1", 2),
    "stores its shard": gstore("I0", "O4", 3, base=IN_PLACE, by=1),
    "stores its shard elsewhere": gstore("I0", "O1", 3, base=IN_PLACE, by=1),
}


@pytest.mark.parametrize("made", ACCEPTED.values(), ids=ACCEPTED)
def test_what_the_executor_takes_is_accepted(made: ExecutionPlan) -> None:
    """Up to its limits."""
    check_execution_plan(made, "plan.json")


REFUSED: list[tuple[ExecutionPlan, str, str]] = [
    (plan((*pipeline(*(NOP,) * 62), NOP, NOP)), "gpu 0 threadblock 0 has 65 operations", "rejected"),
    (sized("allgather", 2, 5), "gpu 0 has 2 input chunks and", "rejected"),
    (sized("reduce_scatter", 4, 8), "gpu 0 has 4 input chunks and", "rejected"),
    (sized("reduce_scatter", 5, 2), "gpu 0 has 5 input chunks and", "not checked"),
    (sized("all_to_all", 3, 3), "gpu 0 has 3 input chunks and", "not checked"),
    (plan(first={"input_chunks": 3, "output_chunks": 3}), "gpu 1 has other numbers of input", "not checked"),
    (plan(max_bytes=63), "min_message_size is 0 and max_message_size 63", "rejected"),
    (
        plan(min_bytes=LARGEST + 1, max_bytes=2**40),
        "min_message_size is 4294967233 and max_message_size 1099511627776",
        "rejected",
    ),
    (plan(first={"peers": {"memory": (1, 0), "port": ()}}), "gpu 0 has a memory channel to", "hangs"),
    (plan(first={"peers": {"memory": (), "port": (0,)}}), "gpu 0 has a port channel to", "hangs"),
    (plan(on("signal", 9), first=SIGNALS_ALONE), "gpu 0 has more memory channels to", "hangs"),
    (plan(on("signal", 3), on("signal", 3)), "gpu 1 waits 0 times on memory channel 3", "hangs"),
    (signal(*range(9)), f"{FIRST} has 9 channels", "wrong data"),
    (signal(0, 0), f"{FIRST} names a channel twice", "hangs"),
    (signal(0, 1, threads_per_block=1), f"{FIRST} takes 2 threads", "hangs"),
    (semaphores(0, 1, threads_per_block=1), f"{FIRST} takes 2 threads", "hangs"),
    (semaphores(*range(17)), f"{FIRST} has 17 semaphores", "wrong data"),
    (semaphores(0, 0), f"{FIRST} names a semaphore twice", "hangs"),
    (semaphores(16, 17), f"{FIRST} uses semaphore 17", "wrong data"),
    (plan(puts(11, 8)), f"{FIRST} is a put from", "wrong data"),
    (plan(moves("re", "i0 " * 11, "o0")), f"{FIRST} is a re from", "wrong data"),
    (plan(moves("re", "i0", "o0")), f"{FIRST} is a re from", "wrong data"),
    (plan(moves("re", "i0 i1", "o0 o1")), f"{FIRST} is a re from", "wrong data"),
    (plan(moves("copy", "i0 i1", "o0 o1")), f"{FIRST} is a copy from", "wrong data"),
    (plan(moves("copy", "i0 i1", "o0")), f"{FIRST} is a copy from", "wrong data"),
    (
        plan((Operation("copy", sources=places("i0"), targets=places("o0", 2)),)),
        f"{FIRST} has places of different",
        "wrong data",
    ),
    (
        plan(moves("pws", "i0", "O0", channel_type="memory", channels=(0,)), other=(on("wait", 0),)),
        f"{FIRST} is a pws on",
        "wrong data",
    ),
    (plan(moves("copy", "o0", "o1", 2)), f"{FIRST} copies chunks onto themselves", "wrong data"),
    (plan(moves("copy", "o1", "o0", 2)), f"{FIRST} copies chunks onto themselves", "wrong data"),
    (plan(moves("copy", "o1", "o1")), f"{FIRST} copies chunks onto themselves", "wrong data"),
    (plan(moves("re", "i0 o0", "o1", 2)), f"{FIRST} adds chunks at an", "wrong data"),
    (plan(moves("copy", "i3", "o2", 2)), f"{FIRST} has input chunks 3 to", "wrong data"),
    (plan(moves("copy", "o0", "i1")), f"{FIRST} writes to the input", "wrong data"),
    (plan(pipeline(*moves("copy", "i0", "o0", 1), chunks=2)), f"{FIRST} op 0 moves 1", "wrong data"),
    (plan(pipeline(*moves("copy", "i0", "o0", 2), chunks=1)), f"{FIRST} op 0 moves 2", "wrong data"),
    (
        plan(moves("put", "i0 i0", "O0 O0", channel_type="port", channels=(0,))),
        f"{FIRST} has 1 channels for",
        "wrong data",
    ),
    (
        plan(moves("put", "i0 o0", "O0 O1", channel_type="memory", channels=(0, 1))),
        f"{FIRST} has sources in several",
        "wrong data",
    ),
    (plan(moves("put", "i0", "o0", channel_type="port", channels=(0,))), f"{FIRST} puts to gpu 0", "wrong data"),
    (plan(pipeline(NOP, unit=24)), "unit_size is 24", "wrong data"),
    (plan(pipeline(NOP), max_bytes=2**22), "max_message_size is 4194304", "wrong data"),
    (plan(pipeline(NOP, chunks=2), max_bytes=2**21), "max_message_size is 2097152", "wrong data"),
    (plan(on("signal", 2)), "gpu 1 waits 0 times on memory", "hangs"),
    (plan(on("wait", 2)), "gpu 0 waits 1 times on memory", "hangs"),
    (plan(pipeline(*on("signal", 2)), other=(on("wait", 2),)), "gpu 1 waits 1 times on memory", "hangs"),
    (plan(pipeline(*on("signal", 2))), "gpu 1 waits 0 times on memory", "hangs"),
    (plan(acquire(0)), "gpu 0 semaphore 0 is not acquired", "hangs"),
    (plan(release(0)), "gpu 0 semaphore 0 is not acquired", "hangs"),
    (plan(acquire(0), acquire(0), release(0) * 2), "gpu 0 semaphore 0 is not acquired", "hangs"),
    (plan(acquire(0) * 2, release(0), release(0)), "gpu 0 semaphore 0 is not acquired", "hangs"),
    (plan(acquire(0) * 2, release(0)), "gpu 0 semaphore 0 is acquired 2", "hangs"),
    (plan(pipeline(*acquire(0)), release(0)), "gpu 0 semaphore 0 is acquired 1", "hangs"),
    (switched(("input", BOTH), own=("input", (0,))), "gpu 0 has its input in switch", "wrong data"),
    (ordered("oi", "io"), ("gpu 0 has switch channel 0 on"), "wrong data"),
    (ordered("io", "i"), ("gpu 0 has switch channel 1 on"), "wrong data"),
    (gstore("o0", "o1", 2), f"{FIRST} stores chunks at an", "wrong data"),
    (gstore("o1", "o0", 2), f"{FIRST} stores chunks at an", "wrong data"),
    (gstore("i0", "o1", 2, base=plan(in_place=True)), f"{FIRST} stores chunks at an", "wrong data"),
    (gstore("I0", "O5", 3, base=IN_PLACE, by=1), "gpu 1 threadblock 0 op 0 stores", "wrong data"),
    (
        switched(("input", BOTH), own=("output", (0,)), base=plan(in_place=True)),
        "gpu 0 has its output in switch",
        "wrong data",
    ),
    (
        switched(("input", BOTH), base=sized("allgather", 2, 4, in_place=True)),
        "gpu 0 has a switch channel on",
        "wrong data",
    ),
    (
        switched(("output", BOTH), base=sized("reduce_scatter", 4, 2, in_place=True)),
        ("gpu 0 has a switch channel on"),
        "wrong data",
    ),
]


@pytest.mark.parametrize(("made", "message", "severity"), REFUSED, ids=[message for _, message, _ in REFUSED])
def test_what_breaks_a_limit_is_refused(made: ExecutionPlan, message: str, severity: str) -> None:
    """With its place, and with what becomes of it."""
    with pytest.raises(PlanError, match=f"^plan.json: {re.escape(message)}") as caught:
        check_execution_plan(made, "plan.json")
    assert caught.value.severity == severity


def test_slices_of_two_kinds_are_unsupported() -> None:
    """Both numbers of a pipeline count."""
    for unit, chunks in ((32, 1), (16, 2)):
        with pytest.raises(UnsupportedError, match=r"^plan\.json: pipelines have slices of 2 kinds"):
            check_execution_plan(plan(pipeline(NOP), pipeline(NOP, unit=unit, chunks=chunks)), "plan.json")


def test_places_that_are_one_memory_are_found() -> None:
    """In place, the input of a rank is its shard of the output."""
    made = sized("allgather", 4, 8, in_place=True)
    for one, other, expected in (("I0", "O4", True), ("I0", "O0", False), ("i0", "o0", True), ("i0", "O0", False)):
        assert same_memory(made, *places(one), *places(other)) == expected
    assert not same_memory(plan(), *places("i0"), *places("o0"))
