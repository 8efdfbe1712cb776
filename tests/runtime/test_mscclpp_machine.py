"""Races and missing ends that the MSCCL++ machine finds, in plans of a few operations written by hand."""

from __future__ import annotations

import pytest
from mscclpp_plans import TWO_BOXES, small_document

from collopt.errors import ProgramError
from collopt.runtime.mscclpp.execution_plan import ExecutionPlan, Gpu, Operation, Place
from collopt.runtime.mscclpp.interpret import run_execution_plan
from collopt.runtime.mscclpp.reader import parse_document
from collopt.runtime.programs import happens_before


def plan_of(collective: str, *gpus: Gpu, in_place: bool = False) -> ExecutionPlan:
    """Return a plan for messages of 16 bytes per chunk."""
    return ExecutionPlan("by-hand", collective, in_place, 16, 2**20, 32, gpus)  # type: ignore[arg-type]


def copy(source: Place, target: Place) -> Operation:
    """Copy inside a GPU."""
    return Operation("copy", sources=(source,), targets=(target,))


@pytest.mark.parametrize("between", [(), (Operation("nop"),)])
def test_threads_of_a_block_wait_for_each_other(between: tuple[Operation, ...]) -> None:
    """One of them reads what another one writes, though the kernel ends after both."""
    given, held, kept = (Place(0, buffer, 0, 1) for buffer in ("input", "scratch", "output"))
    block = (copy(given, held), *between, copy(held, kept))
    plan = plan_of("allgather", Gpu(1, 1, 1, {"memory": (), "port": ()}, (), (block,)))
    if between:
        run_execution_plan(plan)
        return
    with pytest.raises(ProgramError, match="race: rank 0 thread block 0 writes scratch chunk 0 of rank 0"):
        run_execution_plan(plan)


def broadcast(*ends: Operation) -> ExecutionPlan:
    """Put a chunk to a GPU of another box, in place; `ends`: what the two GPUs do then."""
    sent = Operation("pws", "port", (0,), (Place(0, "input", 0, 1),), (Place(1, "output", 0, 1),))
    started = Operation("rlxwait", "port", (0,)), Operation("rlxsignal", "port", (0,))
    root = Gpu(1, 1, 0, {"memory": (), "port": (1,)}, (), ((started[0], sent, *ends[:1]),))
    other = Gpu(1, 1, 0, {"memory": (), "port": (0,)}, (), ((started[1], Operation("wait", "port", (0,)), *ends[1:]),))
    return plan_of("broadcast", root, other, in_place=True)


def test_a_kernel_may_not_end_before_its_data_has_been_read() -> None:
    """By its port channel, which a signal from the other end shows, be it all that is read."""
    run_execution_plan(broadcast(Operation("wait", "port", (0,)), Operation("signal", "port", (0,))))
    with pytest.raises(ProgramError, match="rank 0 may end before port channel 0 of rank 0 has finished with shared"):
        run_execution_plan(broadcast(), slices=1)


@pytest.mark.parametrize(("kind", "number"), [("memory", 0), ("memory", 2), ("port", 1)])
def test_a_signal_needs_another_end(kind: str, number: int) -> None:
    """The channel without one is named."""
    signal = Operation("signal", kind, (number,))  # type: ignore[arg-type]
    peers = {"memory": (1,) * 3, "port": (1,) * 3}
    gpus = (Gpu(1, 1, 0, peers, (), ((signal,),)), Gpu(1, 1, 0, {"memory": (), "port": ()}, (), ((Operation("nop"),),)))  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=f"rank 0 signals on {kind} channel {number}, which has no other end"):
        run_execution_plan(plan_of("allreduce", *gpus), interleavings=1)


def test_a_signal_that_nobody_waits_for_is_found() -> None:
    """The next call would take it for its own."""
    signal, nop = Operation("signal", "memory", (0,)), Operation("nop")
    blocks = (((signal,),), ((nop,),))
    gpus = (Gpu(1, 1, 0, {"memory": (1 - rank,), "port": ()}, (), own) for rank, own in enumerate(blocks))
    with pytest.raises(ProgramError, match="rank 1 ends with 1 signals on memory channel 0"):
        run_execution_plan(plan_of("allreduce", *gpus), interleavings=1)


def test_clocks_of_some_processes_at_a_time_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many to hold them all are worked out for the first ones, then for the next ones."""
    document = small_document("allreduce", boxes=TWO_BOXES, slice_bytes=None)
    right = parse_document(document, "plan.json")
    found = []
    for most in (happens_before.MAX_CLOCKS, 1):
        monkeypatch.setattr(happens_before, "MAX_CLOCKS", most)
        run_execution_plan(right, interleavings=1)
        for gpu in document["gpus"]:
            for block in gpu["threadblocks"]:
                kept = block["ops"]
                block["ops"] = [each for each in kept if each["name"] != "nop"]
                try:
                    run_execution_plan(parse_document(document, "plan.json"), interleavings=1)
                    found.append("right")
                except ProgramError as error:
                    found.append(str(error))
                block["ops"] = kept
    assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert any("race" in each for each in found)
