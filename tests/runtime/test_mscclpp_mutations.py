"""Plan files with one thing wrong are refused, or shown to go wrong when they are run."""

from __future__ import annotations

import copy

import pytest
from mscclpp_plans import TWO_BOXES, operations, run_document, small_document
from runtime_forests import COLLECTIVES

from collopt.errors import ColloptError, ProgramError
from slow_cases import slow_where

CASES = slow_where(
    (
        (collective, TWO_BOXES if number % 2 else None, None if number % 3 else 4096)
        for number, collective in enumerate(COLLECTIVES)
    ),
    lambda case: case[0] == "allreduce",
)
STRIDE = 3
"""Every so many operations one is tried: an allreduce has hundreds."""


@pytest.mark.parametrize(("collective", "boxes", "slices"), CASES)
def test_no_operation_can_be_left_out(collective: str, boxes: list[int] | None, slices: int | None) -> None:
    """Without any one of its operations, syncs apart, the plan is refused or runs wrong."""
    document = small_document(collective, boxes=boxes, slice_bytes=slices)
    for number, (held, position) in enumerate(operations(document)):
        if number % STRIDE or held[position]["name"] == "nop":
            continue
        changed = copy.deepcopy(document)
        ops, at = operations(changed)[number]
        del ops[at]
        with pytest.raises(ColloptError):
            run_document(changed)


@pytest.mark.parametrize(("collective", "boxes", "slices"), CASES)
def test_no_chunk_can_be_another_one(collective: str, boxes: list[int] | None, slices: int | None) -> None:
    """Each source and target moved on by one chunk is refused or runs wrong."""
    document = small_document(collective, boxes=boxes, slice_bytes=slices)
    for number, (held, position) in enumerate(operations(document)):
        for side in ("src_buff", "dst_buff") if number % STRIDE == 0 else ():
            for end in range(len(held[position].get(side, ()))):
                changed = copy.deepcopy(document)
                ops, at = operations(changed)[number]
                ops[at][side][end]["index"] += 1
                with pytest.raises(ColloptError):
                    run_document(changed)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
def test_a_semaphore_left_out_at_both_ends_is_a_race(collective: str) -> None:
    """Whoever relied on it reads what may not be there yet."""
    document = small_document(collective, slice_bytes=None)
    races = 0
    for rank, gpu in enumerate(document["gpus"]):
        for semaphore in range(len(gpu["semaphores"])):
            changed = copy.deepcopy(document)
            for block in changed["gpus"][rank]["threadblocks"]:
                for operation in block["ops"]:
                    if operation.get("semaphore_ids") == [semaphore]:
                        operation.clear()
                        operation["name"] = "nop"
            if changed == document:
                continue  # It only occurs together with others.
            with pytest.raises(ColloptError) as caught:
                run_document(changed)
            races += "race" in str(caught.value)
    assert races > 3


def test_a_sync_left_out_is_a_race() -> None:
    """Between a put and its signal, and between a wait and what is read then, all threads have to meet."""
    document = small_document("reduce", slice_bytes=None)
    found = {"put": 0, "wait": 0}
    for number, (held, position) in enumerate(operations(document)):
        before = held[position - 1]["name"] if position else ""
        if held[position]["name"] != "nop" or before not in found:
            continue
        changed = copy.deepcopy(document)
        ops, at = operations(changed)[number]
        del ops[at]
        with pytest.raises(ProgramError, match="race"):
            run_document(changed)
        found[before] += 1
    assert min(found.values()) > 0


@pytest.mark.parametrize("boxes", [None, TWO_BOXES])
def test_a_put_before_the_other_gpu_has_started_is_a_race(boxes: list[int] | None) -> None:
    """Without the first signal and its wait the data may arrive while the last call still reads there."""
    document = small_document("allgather", boxes=boxes, slice_bytes=None)
    for held, position in operations(document):
        if held[position]["name"] in ("rlxsignal", "rlxwait"):
            held[position] = {"name": "nop"}
    with pytest.raises(ProgramError, match="may not have started"):
        run_document(document)


def test_a_call_that_ends_before_its_data_have_left_is_a_race() -> None:
    """A port channel reads its source when it likes, so somebody has to say that it has."""
    document = small_document("allgather", boxes=TWO_BOXES, slice_bytes=None)
    changed = copy.deepcopy(document)
    for gpu in changed["gpus"]:
        for block in gpu["threadblocks"]:
            kinds = {channel["channel_type"] for channel in block["channels"]}
            last = block["ops"][-1]["name"]
            sends = any(operation["name"] == "pws" for operation in block["ops"])
            if kinds == {"port"} and last == ("wait" if sends else "signal"):
                block["ops"].pop()
    assert changed != document
    with pytest.raises(ProgramError, match="may end before"):
        run_document(changed)
