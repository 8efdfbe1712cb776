"""Flows in stages: their loads, times and messages, and what their check refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from collopt.errors import CertificateError, ProgramError
from collopt.planners import plan_of_schedule
from collopt.runtime import lower
from collopt.schedules import FlowSchedule, StagedFlow, verified_loads
from collopt.topologies import Topology, complete

FOUR = complete(4, bandwidth=10, latency=3)
TRAFFIC = np.array([[0, 0, 4, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
"""GPU 0 of one box of two hands half of what it has to GPU 1 while it sends the rest; before, one unit comes back."""
PATHS = [(2, (0, 2), (1,)), (2, (0, 1, 3, 2), (1, 2, 3)), (1, (2, 1), (0,))]
STAGED = StagedFlow.of(FlowSchedule.from_paths(TRAFFIC, 1, PATHS), np.array([0, 0, 1, 1]))


def test_steps_wait_for_each_other() -> None:
    """Each step has loads of its own, and the time is that of all."""
    loads = verified_loads(STAGED, FOUR)
    assert loads.tolist() == STAGED.link_loads(FOUR).tolist()
    assert loads.sum(axis=1).tolist() == [1, 4, 2, 2]
    assert STAGED.inverse_rate(FOUR) == Fraction(7, 10)
    # Four steps, each with a latency; a unit is 800 of 1000 bytes that a rank has on average.
    assert STAGED.time(FOUR, 1000) == 4 * 3 + Fraction(800 * 7, 10 * 1000)
    assert STAGED.messages.tolist() == [2, 1, 1, 1]
    assert not STAGED.pipelined
    assert repr(STAGED).startswith("<StagedFlow: all-to-allv of 4 ranks, 3 paths, 4 steps")


def test_what_goes_to_one_rank_in_one_step_is_one_message() -> None:
    """All paths to one rank in one step are one message."""
    paths = [(1, (0, 1, 3), (0, 1)), (1, (0, 1, 2), (0, 2))]
    traffic = np.zeros((4, 4), dtype=np.int64)
    traffic[0, 2:] = 1
    flow = StagedFlow.of(FlowSchedule.from_paths(traffic, 1, paths), np.zeros(4, dtype=np.int64))
    assert flow.messages.tolist() == [1, 2, 0, 0]


Change = Callable[[StagedFlow], dict[str, object]]
WRONG: dict[str, tuple[Change, str]] = {
    "other servers": (lambda flow: {"servers": np.arange(4)}, "in step 1 rank 0 sends to several ranks of other"),
    "too few servers": (lambda flow: {"servers": flow.servers[:3]}, "servers are int64 of shape"),
    "servers of floats": (lambda flow: {"servers": flow.servers + 0.5}, "servers are float64"),
    "all at once": (lambda flow: {"steps": np.zeros_like(flow.steps)}, "does not have them by then"),
    "less": (lambda flow: {"weights": flow.weights - (np.arange(flow.num_paths) == 0)}, "carries no chunk|never gets"),
    "a pause": (lambda flow: {"steps": flow.steps + (flow.steps > 2)}, "nothing is sent in step 3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_tampered_stages_are_refused(case: str) -> None:
    """The message names the first fault."""
    change, message = WRONG[case]
    with pytest.raises(CertificateError, match=message):
        verified_loads(replace(STAGED, **change(STAGED)), FOUR)


@pytest.mark.parametrize("does", ["sends to", "receives from"])
def test_two_partners_at_a_time_are_refused(does: str) -> None:
    """A rank has one partner in other servers, and may have several in its own."""
    traffic = np.zeros((4, 4), dtype=np.int64)
    ends = [(1, 2), (1, 3)] if does == "sends to" else [(2, 1), (3, 1)]
    for end in ends:
        traffic[end] = 1
    ranks = [f"g{rank}" for rank in range(4)]
    star = Topology.from_links([(one, "s", 10) for one in ranks], compute=ranks, switches=["s"], bidirectional=True)
    paths = [(1, (tail, 4, head), (0, 0)) for tail, head in ends]
    flow = FlowSchedule.from_paths(traffic, 1, paths)
    together = StagedFlow.of(flow, np.array([0, 0, 0, 0]))
    assert plan_of_schedule(star, "all_to_allv", together).gap == 0
    with pytest.raises(CertificateError, match=f"in step 0 rank 1 {does} several ranks of other servers; expected one"):
        verified_loads(replace(together, servers=np.array([0, 0, 1, 1])), star)


def test_programs_are_of_checked_stages() -> None:
    """Lowering refuses wrong stages, and servers need not be numbered from 0."""
    with pytest.raises((CertificateError, ProgramError), match="several ranks of other servers"):
        lower(replace(STAGED, servers=np.arange(4)), "all_to_allv")
    renamed = replace(STAGED, servers=np.array([7, 7, 2**40, 2**40]))
    assert lower(renamed, "all_to_allv") == lower(STAGED, "all_to_allv")
