"""All-to-all of unequal parts, with four Gloo processes."""

from __future__ import annotations

import itertools
from functools import partial

import all_to_all_tasks
import numpy as np
import numpy.typing as npt
import pytest
import torch

from collopt.errors import UnsupportedError
from collopt.planners import schedule_all_to_allv
from collopt.runtime import all_to_all_single
from collopt.runtime.all_to_allv.steps import Exchange, rank_steps
from collopt.runtime.execution.local_ranks import run_ranks

PRELOAD = (
    "torch",
    "torch.distributed",
    "collopt.planners.pairs.fast",
    "collopt.solvers.fast.stages",
    "collopt.runtime.all_to_allv.step_kernel",
)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile the kernels once, before all ranks would do so at the same time."""
    rank_steps(Exchange(np.ones((4, 4), dtype=np.int64).tobytes(), 2, 2, 4), 0)


@pytest.fixture(scope="module")
def answers() -> list[all_to_all_tasks.Answers]:
    """What all ranks have to tell."""
    return run_ranks(all_to_all_tasks.everything, all_to_all_tasks.RANKS, timeout_s=120, preload=PRELOAD)


def wrong(results: list[dict[str, bool]], cases: int) -> list[str]:
    """Names of what came out wrong on any rank."""
    assert {len(each) for each in results} == {cases}
    return [f"{name} on rank {rank}" for rank, each in enumerate(results) for name, right in each.items() if not right]


@pytest.mark.slow
def test_agrees_with_torch_on_many_matrices() -> None:
    """Bit for bit, whatever the splits and types, on 2 x 2, 1 x 4 and 4 x 1 GPUs: hundreds of them."""
    task = partial(all_to_all_tasks.many_matrices, seeds=25)
    results = run_ranks(task, all_to_all_tasks.RANKS, timeout_s=280, preload=PRELOAD)
    assert wrong(results, 25 * 3 * (2 * 4 + 6)) == []


@pytest.mark.slow
def test_sixteen_ranks_agree_with_torch() -> None:
    """Two hundred matrices in one run, as 4 x 4 and 2 x 8 GPUs."""
    task = partial(all_to_all_tasks.sixteen_ranks, seeds=25)
    assert wrong(run_ranks(task, 16, timeout_s=280, preload=PRELOAD), 200) == []


@pytest.mark.slow
def test_what_ranks_send_is_near_the_optimum() -> None:
    """Bytes of eight ranks, counted as they were sent; links are a thousandth as fast as those for cells of 50 MB."""
    reports = run_ranks(all_to_all_tasks.counted_exchanges, 8, timeout_s=280, preload=PRELOAD)
    cases = itertools.product(all_to_all_tasks.KINDS, all_to_all_tasks.NICS)
    for (kind, nics), *counted in zip(cases, *reports, strict=True):
        check_counts(all_to_all_tasks.cells_of_50_kb(kind), nics, counted)


def check_counts(
    traffic: npt.NDArray[np.int64], nics: list[list[int]] | None, reports: list[all_to_all_tasks.Counted]
) -> None:
    """Compare the bytes of all steps with the schedule and the optimum; without a NIC there are none outside."""
    model = all_to_all_tasks.SLOW_LINKS
    assert all(each.right for each in reports)
    steps = max(step for each in reports for step, *_ in each.sent) + 1
    bytes_of = np.zeros((2, 2, 8, steps), dtype=np.int64)  # inside servers or between them, sent or received
    for rank, each in enumerate(reports):
        for step, peer, length in each.sent:
            outside = int(rank // 2 != peer // 2)
            bytes_of[outside, 0, rank, step] += length
            bytes_of[outside, 1, peer, step] += length
    if nics:
        assert not bytes_of[1, :, 3].any()
    inside, outside = bytes_of.max(axis=(1, 2))
    times = np.maximum(inside / float(model.scale_up), outside / float(model.scale_out)) / 1000
    times += float(model.wake_up) * (times > 0)
    schedule = schedule_all_to_allv(traffic, servers=4, gpus_per_server=2, nics=nics, model=model)
    assert times.sum() == pytest.approx(float(schedule.completion_time(model)))
    assert times.sum() <= 1.02 * float(schedule.optimum(model))
    assert [each.scratch for each in reports] == schedule.scratch_bytes.tolist()
    assert max(each.scratch for each in reports) <= traffic.sum(axis=1).mean() / (2 if nics else 4)


def test_options_groups_and_odd_tensors_work(answers: list[all_to_all_tasks.Answers]) -> None:
    """Equal splits, given traffic, small stages, long and empty rows, subgroups, what the environment says."""
    assert wrong([each.specials for each in answers], 20) == []


def test_exchanges_go_on_beside_the_caller(answers: list[all_to_all_tasks.Answers]) -> None:
    """Some at once, of two groups, with collectives and messages of these groups between them."""
    assert wrong([each.beside for each in answers], 6) == []


OWN = {
    "sum": "input_split_sizes add up to 9; expected 8, the rows of input",
    "negative": "output_split_sizes has -4; expected",
    "length": "input_split_sizes is [4, 4]; expected 4 whole numbers",
    "fractions": "input_split_sizes is [2.0, 2.0, 2.0, 2.0]; expected 4 whole numbers",
    "words": "input_split_sizes is '2222'; expected 4 whole numbers",
    "uneven": "input has 7 rows, which 4 ranks cannot share",
    "strided": "input has shape (8,) and is not contiguous",
    "sparse": "input has shape (8,) and is not contiguous",
    "conjugate": "input is a lazy conjugate",
    "no tensor": "input is a NoneType; expected a torch.Tensor",
    "number": "input is a single number",
    "types": "output is torch.int64 and input is torch.int32",
    "device": "input is on meta but the group's backend is gloo",
    "rows": "output has rows of 8 bytes and input has rows of 16",
    "overlap": "input and output overlap",
    "shape": "servers is 3 and gpus_per_server is 2, but the group has 4 ranks",
    "servers": "servers is 0; expected",
    "timeout": "timeout is '1'; expected",
    "stage": "max_stage_bytes is 0; expected",
    "unequal servers": "gpus_per_server adds up to 3, but the group has 4 ranks",
    "no NIC": "nics[0] has no rate above 0; expected at least one NIC in each server",
    "odd NIC": "the largest rate of nics is 100 times the one that divides all; expected at most 32 times",
    "model": "the model is 450; expected a TwoTierModel",
    "scratch": "max_scratch_bytes is -1; expected",
    "kind of stages": "stages is 'few'; expected one of plain, fewest, rotations",
    "async": "async_op is 2; expected True or False",
    "async call in debugging": "async_op is True and TORCH_DISTRIBUTED_DEBUG is DETAIL",
    "sum of an async call": "input_split_sizes add up to 9; expected 8, the rows of input",
    "no number": "input_split_sizes is [2, 2, 2, nan]; expected 4 whole numbers",
    "64 bits": "input_split_sizes is [9223372036854775808, 2, 2, 2]; expected 4 whole numbers",
    "more than 64 bits": "input_split_sizes is [1180591620717411303424, 2, 2, 2]; expected 4 whole numbers",
    "traffic below 0": "the traffic from rank 0 to 0 is -1 bytes; expected at least 0",
    "traffic that is no number": "the traffic has entries of type float64; expected integers",
    "traffic of fractions": "the traffic has entries of type float64; expected integers",
    "traffic beyond 64 bits": "the traffic has entries of type object; expected integers",
    "too much traffic": "the traffic adds up to 9223372036854775840 bytes; expected less than 2^62",
    "traffic row": "traffic has 3 at position 2 of row 2; expected 2, as rank 2's input split sizes",
    "traffic shape": "the traffic has shape (4, 3); expected a square matrix",
}
EVERYWHERE = {
    "three servers": None,
    "servers differ in size": "the ranks disagree about gpus_per_server, such as ranks 0 and 2",
    "NICs differ": "the ranks disagree about the rates of NICs, such as ranks 0 and 2",
    "traffic of others": "the ranks disagree about whether traffic is given, and what",
    "traffic on one": "the ranks disagree about whether traffic is given, and what",
    "mismatch": "rank 2 has 1 rows for rank 1, which expects 2; expected",
    "types differ": "the ranks disagree about the element type",
    "shapes differ": "the ranks disagree about servers: 2 on rank 0, 1 on rank 2; all",
    "sizes of stages differ": "the ranks disagree about max_stage_bytes: 20 on rank 0, 21 on rank 2; all",
    "stages differ": "the ranks disagree about stages: not given on rank 0, fewest on rank 2; all",
    "scratch differs": "the ranks disagree about max_scratch_bytes: not given on rank 0, 20 on rank 2; all",
    "too little scratch": "the exchange needs 16 bytes of scratch on rank 0, with stages of up to 32 bytes, and "
    "max_scratch_bytes is 15; expected at least 16",
    "models differ": "the ranks disagree about the model, such as ranks 0 and 2",
    "rows differ": "rows have 8 bytes on rank 0 and 16 on rank 2; expected",
}


@pytest.mark.parametrize("name", OWN)
def test_what_is_wrong_on_one_rank_stops_all(answers: list[all_to_all_tasks.Answers], name: str) -> None:
    """That rank hears what is wrong, the others which rank it is; nothing is written."""
    for rank, each in enumerate(answers):
        message, untouched = each.refusals[name]
        wanted = OWN[name] if rank == 2 else "rank 2 refused its arguments"
        assert message.startswith(f"UnsupportedError: {wanted}"), f"rank {rank}: {message}"
        assert untouched


@pytest.mark.parametrize("name", [name for name, wanted in EVERYWHERE.items() if wanted])
def test_what_does_not_fit_together_stops_all(answers: list[all_to_all_tasks.Answers], name: str) -> None:
    """All hear the same; nothing is written."""
    assert {each.refusals[name][1] for each in answers} == {True}
    (message,) = {each.refusals[name][0] for each in answers}
    assert message.startswith(f"UnsupportedError: {EVERYWHERE[name]}"), message
    assert "\n" not in message


def test_servers_have_to_share_the_ranks(answers: list[all_to_all_tasks.Answers]) -> None:
    """Three servers cannot have four ranks."""
    (message,) = {each.refusals["three servers"][0] for each in answers}
    assert message.startswith("UnsupportedError: servers is 3, but the group has 4 ranks; expected servers x gpus")


def test_the_group_stays_usable(answers: list[all_to_all_tasks.Answers]) -> None:
    """After all the errors."""
    assert {each.refusals["after all that"][0] for each in answers} == {"fine"}


def test_a_rank_that_stays_away_is_noticed_in_time(answers: list[all_to_all_tasks.Answers]) -> None:
    """The others give up after the timeout."""
    *messages, absent = (each.absence for each in answers)
    assert absent == "absent"
    for message in messages:
        assert message.startswith("ProgramError: the ranks could not agree on the all-to-all: "), message
        assert message.endswith("; rank 3 gave no sign: late, or ended")


@pytest.fixture(scope="module")
def lates() -> list[all_to_all_tasks.Late]:
    """What all ranks have to tell of one that sends nothing."""
    return run_ranks(all_to_all_tasks.lates, all_to_all_tasks.RANKS, timeout_s=120, preload=PRELOAD)


@pytest.mark.slow
def test_a_rank_that_sends_nothing_is_noticed_in_time(lates: list[all_to_all_tasks.Late]) -> None:
    """Rank 2 is on its server and waits for it; ranks 0 and 1 miss it, or what it was to send on, a step later."""
    assert lates[3].late == "late"
    for rank, each in enumerate(lates[:3]):
        assert each.late.startswith(f"ProgramError: rank {rank} could not finish step "), each.late


@pytest.mark.slow
def test_waiting_tells_of_a_rank_that_sends_nothing(lates: list[all_to_all_tasks.Late]) -> None:
    """The call has returned before; a second one, on which the ranks would have to agree after it, does not."""
    assert lates[3].late_beside[1].startswith("ProgramError: the ranks could not agree on the all-to-all: ")
    for rank, each in enumerate(lates[:3]):
        first, second = each.late_beside
        assert first.startswith(f"ProgramError: rank {rank} could not finish step "), first
        told = "an earlier call on the group failed, so this one was not started; the earlier error: "
        assert second == f"ProgramError: {told}{first.removeprefix('ProgramError: ')}"


def test_asks_for_an_initialised_group() -> None:
    """And says how to get one."""
    with pytest.raises(UnsupportedError, match="init_process_group"):
        all_to_all_single(torch.zeros(2), torch.zeros(2))
