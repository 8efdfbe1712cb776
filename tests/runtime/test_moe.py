"""Dispatch and combine of a mixture of experts, with Gloo processes."""

from __future__ import annotations

from functools import partial

import moe_tasks
import pytest

from collopt.runtime.execution.local_ranks import run_ranks

PRELOAD = ("torch", "torch.distributed", "moe_kernels")


@pytest.fixture(scope="module")
def answers() -> list[moe_tasks.Answers]:
    """What all ranks have to tell."""
    return run_ranks(moe_tasks.everything, moe_tasks.RANKS, timeout_s=120, preload=PRELOAD)


def wrong(results: list[dict[str, bool]]) -> list[str]:
    """Names of what came out wrong on any rank."""
    return [f"{name} on rank {rank}" for rank, each in enumerate(results) for name, fine in each.items() if not fine]


def test_dispatch_combine_and_gradients_are_those_of_one_rank(answers: list[moe_tasks.Answers]) -> None:
    """Results agree on 2 x 2 and 4 x 1 GPUs, with relays, without tokens or choices, and asynchronous on some ranks."""
    assert len(answers[0].right) == 33
    assert wrong([each.right for each in answers]) == []


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "seeds"), [(4, 4), (8, 1)])
def test_many_dispatches_are_those_of_one_rank(ranks: int, seeds: int) -> None:
    """One server, two, and as many as ranks run long and short stages of both kinds."""
    task = partial(moe_tasks.many, ranks=ranks, seeds=seeds)
    assert wrong(run_ranks(task, ranks, timeout_s=280, preload=PRELOAD)) == []


def test_tokens_cross_once_and_sums_come_back(answers: list[moe_tasks.Answers]) -> None:
    """Three tokens for both GPUs of a server: rank 1 carries one, their peers copy; in reverse one sum each.

    A row has 16 bytes, and in the dispatch 12 of number and experts.
    """
    there, back = zip(*(each.bytes for each in answers), strict=True)
    assert there == ([0, 28, 56, 0], [0, 0, 0, 28], [0, 0, 0, 56], [0, 0, 28, 0])
    assert back == ([0, 0, 0, 0], [16, 0, 0, 0], [32, 0, 0, 16], [0, 16, 32, 0])


def test_relays_share_the_sends_of_one_server(answers: list[moe_tasks.Answers]) -> None:
    """Of 60 tokens for all of three servers each gets 20 at first hand, of 32 bytes, and sends these on to two."""
    there, back = zip(*(each.relayed for each in answers), strict=True)
    assert there == ([0, 640, 640, 640], [0, 0, 640, 640], [0, 640, 0, 640], [0, 640, 640, 0])
    assert back == ([0, 0, 0, 0], [320, 0, 320, 320], [320, 320, 0, 320], [320, 320, 320, 0])


OWN = {
    "index": "indices[2, 1] is 4; expected an expert from 0 to 3",
    "fractions": "indices have type torch.float32; expected whole numbers",
    "number of indices": "there are indices of 3 tokens; expected 4, as many as rows",
    "sparse indices": "indices are torch.sparse_coo on cpu; expected a dense tensor",
    "indices without values": "indices are torch.strided on meta; expected a dense tensor",
    "placement": "placement[3] is 4; expected a rank from 0 to 3",
    "no tokens": "tokens is a NoneType; expected a torch.Tensor",
    "strided": "tokens has shape (4, 3) and is not contiguous",
    "device": "tokens are on meta; expected them on cpu",
    "type of weights": "weights have shape (4, 2) and type torch.int64; expected",
    "servers": "servers is 3, but the group has 4 ranks",
    "stages": "stages is 'few'",
    "cap": "max_stage_tokens is 0",
    "rounds": "relay_rounds is 2000; expected at most 1024 among 2 servers",
    "asynchronous": "async_op is 1; expected True or False",
    "timeout": "timeout is -1",
    "rows": "expert_outputs have 3 rows; expected 4, one for each pair",
    "output": "expert_outputs is a NoneType",
    "factors": "weights have shape (3,); expected one for each of 4 pairs",
    "factors elsewhere": "weights are torch.strided on meta; expected a dense tensor on cpu",
}
DIFFERENT = {
    "types differ": "about the type of tokens, such as ranks 0 and 2",
    "columns differ": "about the columns of tokens: 3 on rank 0, 2 on rank 2",
    "placements differ": "about the placement of experts",
    "weights differ": "about the type of weights",
    "servers differ": "about servers: 2 on rank 0, 4 on rank 2",
    "stages differ": "about stages",
    "caps differ": "about max_stage_tokens: not given on rank 0, 5 on rank 2",
    "rounds differ": "about relay_rounds: not given on rank 0, 5 on rank 2",
    "kinds of outputs differ": "about the type of expert_outputs",
    "columns of outputs differ": "about the columns of expert_outputs: 3 on rank 0, 1 on rank 2",
}


def test_wrong_arguments_raise_on_every_rank(answers: list[moe_tasks.Answers]) -> None:
    """The rank that is wrong says why; where ranks differ, all say the same."""
    for rank, told in enumerate(each.told for each in answers):
        assert told.keys() == {*OWN, *DIFFERENT, "after all that"}
        assert told["after all that"] == "fine"
        for name, message in OWN.items():
            expected = f"UnsupportedError: {message}"
            expected = expected if rank == 2 else "ProgramError: rank 2 refused its arguments of the "
            assert told[name].startswith(expected), (rank, name, told[name])
        for name, message in DIFFERENT.items():
            assert told[name].startswith(f"ProgramError: the ranks disagree {message}"), (rank, name, told[name])


def test_different_kinds_of_calls_are_told_apart(answers: list[moe_tasks.Answers]) -> None:
    """All ranks name the call of rank 2, and the next calls go right."""
    for told in (each.mixed for each in answers):
        for calls, message in told.items():
            if ", " in calls:
                one, other = calls.split(", ")
                expected = f"the ranks make different calls: the {one} on rank 0, the {other} on rank 2"
                assert message.partition("Error: ")[2] == expected
            else:
                assert message == "fine"


def test_an_absent_rank_ends_the_call_at_its_timeout(answers: list[moe_tasks.Answers]) -> None:
    """The others say that they could not agree."""
    assert answers[3].absence == "absent"
    for each in answers[:3]:
        assert each.absence.startswith("ProgramError: the ranks could not agree"), each.absence
