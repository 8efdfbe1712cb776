"""All-to-all(v) plans on real tensors, one process per rank, beside torch's own."""

from __future__ import annotations

import numpy as np
import pytest
from flow_tasks import exchange_everything, wrong_exchanges
from runtime_flows import random_flow
from runtime_tasks import RANKS

import collopt
from collopt.runtime import RunReport, run_local
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.topologies import dgx1_v100, ring

PRELOAD = ("torch", "torch.distributed", "collopt.runtime.execution.execute")
TIMEOUT_S = 300


def test_exchanges_agree_with_torch_bit_for_bit() -> None:
    """Equal and unequal parts, of no element to thousands, of one byte to eight, in slices."""
    for rank, results in enumerate(run_ranks(exchange_everything, RANKS, timeout_s=TIMEOUT_S, preload=PRELOAD)):
        assert [case for case, right in results.items() if not right] == [], rank
        assert len(results) == 25


def test_wrong_calls_are_told_on_every_rank() -> None:
    """In words of sizes and traffic; the same group works on."""
    answers = run_ranks(wrong_exchanges, RANKS, timeout_s=TIMEOUT_S, preload=PRELOAD)
    expected = {
        "not a multiple": "expected 4 and 4 times the same number",
        "unequal parts": "of the traffic, in lowest terms",
        "overlap": "give the output memory of its own",
        "no input": "input is None; all_to_all needs one on every rank",
        "no output": "output is None; all_to_all needs one on every rank",
        "sizes around an idle rank": "disagree about the number of elements",
        "overlap of a part": "give the output memory of its own",
        "after all that": "fine",
    }
    for rank, answer in enumerate(answers):
        for name, message in expected.items():
            assert message in answer[name], (rank, name)
        assert ("output has 12 elements" if rank == 2 else "another rank refused") in answer["one rank's sizes"]
        assert "disagree about the number of elements" in answer["sizes differ"]
        assert ("expected 0 and 0 times" if rank == 2 else "another rank refused") in answer["idle rank"]


def test_plans_run_on_processes_of_this_machine() -> None:
    """Equal parts of a planned network, and a report of what one rank has."""
    report = run_local(collopt.plan(ring(4), "all_to_all"), elements=1001, repeats=1, slices=2, timeout_s=TIMEOUT_S)
    assert report.all_correct
    assert report.total_bytes == 4 * 1001 * 4
    assert "all_to_all of 1001 float32 from each to each: correct" in str(report)


@pytest.mark.slow
def test_eight_ranks_with_traffic_of_their_own_agree_with_torch() -> None:
    """Parts are multiples of the traffic, as many as fit."""
    traffic = np.ones((8, 8), dtype=np.int64)
    traffic[:, 3] = 5
    plan = collopt.plan(dgx1_v100(), "all_to_allv", traffic=traffic)
    report = run_local(plan, elements=1000, repeats=1, dtype="int16", timeout_s=TIMEOUT_S)
    assert report.all_correct
    # 96 units of 666 elements are the most within 64000.
    assert report.elements_in_all == 63936
    assert report.total_bytes == 2 * 63936 // 8
    assert "from each to each, on average" in str(report)


def test_at_least_one_unit_is_sent() -> None:
    """Even if that is more than was asked for."""
    schedule = random_flow(2, 0, 1, most=30)

    class Planned:
        collective = "all_to_allv"

        def __init__(self) -> None:
            self.schedule = schedule

    report = run_local(Planned(), elements=1, repeats=1, timeout_s=TIMEOUT_S)
    assert report.all_correct
    assert report.elements_in_all == int(schedule.traffic.sum()) // int(np.gcd.reduce(schedule.traffic, axis=None))


def test_reports_of_parts_count_what_one_rank_has() -> None:
    """As nccl-tests does, whether the sum is given or follows."""
    report = RunReport("gloo", 4, 250, "float32", 3, (True,) * 4, 0.5, "all_to_all")
    assert report.total_bytes == 4000
    assert report.busbw == pytest.approx(report.algbw * 3 / 4)
    assert RunReport("gloo", 4, 1, "uint8", 1, (True,) * 4, 0.5, "all_to_allv", "sum", 48).total_bytes == 12
