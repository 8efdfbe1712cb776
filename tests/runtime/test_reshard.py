"""State dicts that move between meshes, with eight and sixteen Gloo processes."""

from __future__ import annotations

from functools import partial

import pytest
import reshard_tasks

from collopt.runtime.execution.local_ranks import run_ranks

PRELOAD = ("torch", "torch.distributed", "torch.distributed.fsdp", "collopt.runtime.resharding.reshard")
RANKS = 8
MISMATCHES = {
    "another type": "tensor 'a': it is float64 in the state of rank 2; expected float32",
    "another shape": "tensor 'a': the state of rank 2 has shape (2, 4); expected (2, 3)",
    "too few rows": "tensor 'a': the state of rank 2 has shape (1, 3); expected (2, 3)",
    "one tensor missing": "tensor 'a': rank 2 does not have it",
    "a tensor outside the mesh": "tensor 'a': rank 6 has it",
    "another mesh": "the target",
    "another limit": "max_scratch_bytes",
    "little scratch": "max_scratch_bytes",
    "no target": "no target",
    "no rule": "'b'",
    "rank beyond": "8",
    "no such dimension": "tensor 'b'",
    "output of another shape": "the output of rank 5",
    "output missing": "rank 5 does not have it in its output",
    "output without state": "'c'",
    "no mapping": "",
    "not contiguous": "",
    "shared memory": "",
    "wrong timeout": "",
    "another network": "",
    "plan of other items": "other items",
    "plan of a collective": "",
}


@pytest.fixture(scope="module")
def answers() -> list[reshard_tasks.Answers]:
    """What all ranks have to tell."""
    return run_ranks(reshard_tasks.everything, RANKS, timeout_s=200, preload=PRELOAD)


def test_tensors_of_any_type_go_between_any_meshes(answers: list[reshard_tasks.Answers]) -> None:
    """All ranks have the slices of the whole, bit for bit, with outputs of their own or not, waited for or not."""
    assert all(all(answer.cases.values()) for answer in answers)


def test_agrees_with_redistribute_of_dtensors(answers: list[reshard_tasks.Answers]) -> None:
    """On one mesh, the shards and placements are those of torch, also where shards are uneven or empty."""
    assert [answer.dtensors for answer in answers] == [[]] * RANKS


def test_models_of_fsdp_and_tensor_parallelism_move(answers: list[reshard_tasks.Answers]) -> None:
    """Strided shards come together in the order of the whole tensor."""
    assert all(answer.model for answer in answers)


@pytest.mark.parametrize("mistake", MISMATCHES)
def test_mistakes_of_one_rank_raise_on_all(answers: list[reshard_tasks.Answers], mistake: str) -> None:
    """Before anything moves, with a message that says where the mistake is."""
    messages = [answer.refusals[mistake] for answer in answers]
    assert all(message.startswith(("ProgramError", "UnsupportedError")) for message in messages), messages
    assert all(MISMATCHES[mistake] in message for message in messages), messages


def test_calls_after_mistakes_are_fine(answers: list[reshard_tasks.Answers]) -> None:
    """The group is as it was before."""
    assert {(answer.refusals["fine"], answer.refusals["moved"]) for answer in answers} == {("fine", "True")}


def test_plans_once_for_tensors_of_a_kind(answers: list[reshard_tasks.Answers]) -> None:
    """Later calls compare a digest; other shapes are planned anew, and old plans are remembered."""
    assert all(all(answer.repeated) for answer in answers)


def test_meshes_of_a_part_of_the_ranks_name_ranks_of_all(answers: list[reshard_tasks.Answers]) -> None:
    """As DeviceMesh does."""
    assert all(answer.part for answer in answers)


@pytest.mark.slow
def test_sixteen_ranks_get_all_bytes() -> None:
    """Random meshes and tensors."""
    results = run_ranks(partial(reshard_tasks.random_cases, ranks=16, seeds=26), 16, timeout_s=280, preload=PRELOAD)
    assert all(all(result.values()) for result in results)
