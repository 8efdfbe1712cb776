"""What every kind of schedule says of itself, and that none of it can make a wrong schedule pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from collopt.errors import CertificateError, UnsupportedError
from collopt.planners import Plan, plan_of_schedule, schedule_all_to_allv
from collopt.runtime import lower, simulate
from collopt.schedules import (
    Allreduce,
    AllToAllvSchedule,
    FlowSchedule,
    Forest,
    Schedule,
    StepAllreduce,
    StepSchedule,
    rate_of_loads,
    schedule_time,
    schedule_to_json,
    verified_loads,
)
from collopt.schedules.collective import Direction
from collopt.topologies import Topology, ring

PAIR = ring(2, bandwidth=10, latency=3)
FOREST = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
STEPS = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
FLOW = FlowSchedule.from_paths(np.ones((2, 2), dtype=np.int64), 1, [(1, (0, 1), (0,)), (1, (1, 0), (0,))])
TREES_BOTH = Allreduce(replace(FOREST, direction="reduce"), FOREST)
STEPS_BOTH = StepAllreduce(replace(STEPS, direction="reduce"), STEPS)
KINDS = {"allgather": (FOREST, STEPS), "allreduce": (TREES_BOTH, STEPS_BOTH), "all_to_all": (FLOW,)}
STAGED = schedule_all_to_allv(np.array([[0, 3], [2, 0]]), servers=2, gpus_per_server=1)


@pytest.mark.parametrize(
    ("collective", "schedule"), [(name, each) for name, kinds in KINDS.items() for each in kinds], ids=repr
)
def test_methods_agree_with_the_check_and_with_the_functions(collective: str, schedule: Schedule) -> None:
    """Loads, rate, time and form of a kind are those of the functions that plans are made with."""
    loads = verified_loads(schedule, PAIR)
    assert schedule.verified_loads(PAIR).tolist() == loads.tolist() == schedule.link_loads(PAIR).tolist()
    assert len(schedule.load_units) == len(np.atleast_2d(loads))
    assert schedule.inverse_rate(PAIR) == rate_of_loads(loads, schedule, PAIR)
    assert schedule.time(PAIR, 1000) == schedule_time(schedule, PAIR, 1000)
    assert schedule.to_json() == schedule_to_json(schedule)
    made = plan_of_schedule(PAIR, collective, schedule)
    assert str(made).endswith(schedule.size_text)
    assert bool(schedule.phases) == (collective != "all_to_all")
    for other in KINDS.keys() - {collective}:
        with pytest.raises(UnsupportedError):
            plan_of_schedule(PAIR, other, schedule)
        with pytest.raises(UnsupportedError, match=f"{other} was requested"):
            lower(schedule, other)


class BoastfulForest(Forest):
    """Trees that vouch for themselves."""

    def verified_loads(self, topology: Topology) -> npt.NDArray[np.int64]:
        """Claim that no link carries anything."""
        return np.zeros(len(topology.links), dtype=np.int64)

    def link_loads(self, topology: Topology) -> npt.NDArray[np.int64]:
        """Claim the same."""
        return self.verified_loads(topology)


def test_a_subclass_is_checked_like_its_kind() -> None:
    """Whatever it says of itself: its loads are those of the arrays, and wrong arrays are refused."""
    parts = {name: getattr(FOREST, name) for name in ("roots", "weights", "routes", "path_starts", "path_nodes")}
    boastful = BoastfulForest(2, 1, **parts)
    assert verified_loads(boastful, PAIR).tolist() == [1, 1]
    honest = plan_of_schedule(PAIR, "allgather", FOREST)
    claimed = replace(honest, schedule=boastful, link_loads=boastful.link_loads(PAIR))
    with pytest.raises(
        CertificateError, match="the trees put 1 copies on the link from 'gpu0' to 'gpu1'; the plan states 0"
    ):
        claimed.verify()
    wrong = BoastfulForest(2, 1, **parts | {"routes": np.full((2, 2), -1, dtype=np.int32)})
    with pytest.raises(CertificateError, match="tree 0 does not deliver to rank 1"):
        replace(honest, schedule=wrong).verify()


@dataclass(frozen=True)
class Promise(Schedule):
    """A kind that nobody has registered a check for."""

    parts = "promises"
    subject = "promises are"
    load_text = "the promises put {load} words"

    num_ranks: int = 2
    total_weight: int = 2  # type: ignore[assignment]

    @property
    def phases(self) -> tuple[Direction, ...]:
        """For an allgather."""
        return ("broadcast",)

    @property
    def size_text(self) -> str:
        """How many."""
        return "1 promise"

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:
        """Anything."""
        return True


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda kind: plan_of_schedule(PAIR, "allgather", kind), "expected a Forest, an Allreduce, a StepSchedule"),
        (lambda kind: schedule_time(kind, PAIR, 1), "expected trees, steps or a flow"),
        (schedule_to_json, "expected a Forest, a StepSchedule, an allreduce or a FlowSchedule"),
        (lambda kind: kind.link_loads(PAIR), "expected trees, steps or a flow"),
        (lambda kind: kind.load_units, "expected trees, steps or a flow"),
        (lambda kind: kind.depth, "expected trees, steps or a flow"),
        (lambda kind: kind.time(PAIR, 1), "expected trees, steps or a flow"),
    ],
)
@pytest.mark.parametrize("kind", [Promise(), STAGED], ids=["unregistered", "staged"])
def test_kinds_without_links_are_no_plans(kind: Schedule, act: Any, message: str) -> None:
    """Neither one that is not known, nor stages, which say who sends but not over which links."""
    with pytest.raises(UnsupportedError, match=message):
        act(kind)
    with pytest.raises(CertificateError):
        verified_loads(kind, PAIR)
    honest = plan_of_schedule(PAIR, "allgather", FOREST)
    with pytest.raises(CertificateError, match="expected trees, steps or a flow"):
        replace(honest, schedule=kind).verify()


def test_unknown_kinds_are_not_lowered_or_simulated() -> None:
    """Layers above refuse what has not been registered with them."""
    with pytest.raises(UnsupportedError, match="the schedule for allgather is a Promise; only those made of trees"):
        lower(Promise(), "allgather")
    honest = plan_of_schedule(PAIR, "allgather", FOREST)
    with pytest.raises(UnsupportedError, match="expected trees, steps or a flow"):
        simulate(replace(honest, schedule=Promise()), 1000)


def test_a_staged_all_to_allv_is_a_schedule() -> None:
    """It can be asked for its data, and it can be lowered."""
    assert isinstance(STAGED, AllToAllvSchedule)
    assert isinstance(STAGED, Schedule)
    assert (STAGED.num_ranks, STAGED.total_weight, STAGED.phases) == (2, Fraction(5, 2), ())
    assert STAGED.size_text in repr(STAGED)
    assert STAGED.has_sizes((0, 3, 2, 0), 2)
    assert not STAGED.has_sizes((0, 3, 2, 1), 2)
    assert not STAGED.has_sizes((), 2)
    assert lower(STAGED, "all_to_allv").num_ranks == 2


def test_what_a_plan_lacks_is_told_by_its_parts() -> None:
    """Trees have no steps, and steps and flows no trees."""
    made: dict[str, Plan] = {name: plan_of_schedule(PAIR, name, kinds[-1]) for name, kinds in KINDS.items()}
    with pytest.raises(UnsupportedError, match="by 'given' consists of steps; expected one of trees"):
        _ = made["allgather"].trees
    with pytest.raises(UnsupportedError, match="by 'given' consists of the paths of a flow; expected one of trees"):
        _ = made["all_to_all"].trees
    with pytest.raises(UnsupportedError, match="by 'given' consists of trees; expected one of steps"):
        _ = plan_of_schedule(PAIR, "allgather", FOREST).num_steps
    with pytest.raises(UnsupportedError, match="consists of trees, which have none; leave steps out"):
        simulate(plan_of_schedule(PAIR, "allgather", FOREST), 1000, steps="wait")


def test_only_a_forest_of_one_shard_has_a_root() -> None:
    """All others have none, or several."""
    alone = Forest.from_paths(2, 1, [(1, 1, [(1, 0)])], root_weights=[0, 5])
    assert alone.root == 1
    assert [each.root for kinds in KINDS.values() for each in kinds] == [None] * 5
