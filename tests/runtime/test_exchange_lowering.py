"""Allreduces in one phase as programs: the right data, in place too, whatever the limits and formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runtime_rounds import run_in_rounds

import collopt
from collopt.errors import CertificateError, ColloptError
from collopt.planners.bounds import plan_of_schedule
from collopt.planners.by_size.families import families
from collopt.runtime import Program, lower, run_program
from collopt.runtime.programs.transformations import packed, without_receive_reduce
from collopt.schedules import StepExchange
from collopt.topologies import RuntimeCosts, Topology, complete, dgx_a100, hypercube

NETWORKS = [complete(2), complete(6), hypercube(3)]
COSTS = RuntimeCosts(alpha=2, send="0.2")


def exchanges(topology: Topology) -> list[StepExchange]:
    """All families in one phase."""
    found = [family.schedule for family in families(topology, "allreduce")]
    return [schedule for schedule in found if isinstance(schedule, StepExchange)]


def check(program: Program) -> None:
    """Run it out of place and in place, as it is and with separate additions."""
    for each in (program, without_receive_reduce(program)):
        run_program(each, interleavings=1)
        run_program(replace(each, in_place=True), interleavings=1)


@pytest.mark.parametrize("topology", NETWORKS, ids=lambda topology: topology.name)
def test_all_exchanges_have_the_right_data(topology: Topology) -> None:
    """Whatever the channels, instances, chunks of a step and thread blocks, of which schedules take turns."""
    for number, schedule in enumerate(exchanges(topology)):
        plain = lower(schedule, "allreduce", topology=topology)
        check(plain)
        if number % 3 == 0:
            check(packed(plain, 2, 256))
        elif number % 3 == 1:
            check(lower(schedule, "allreduce", topology=topology, instances=2, channels=2))
        else:
            check(lower(schedule, "allreduce", topology=topology, max_count=1, max_steps=1))


@pytest.mark.parametrize("in_place", [False, True])
def test_rounds_add_up(in_place: bool) -> None:
    """As torch.distributed runs them, with lengths that chunks do not divide."""
    for schedule in exchanges(complete(6)):
        run_in_rounds(lower(schedule, "allreduce"), 13, 2, in_place)


def test_what_is_sent_is_not_what_comes() -> None:
    """In one step sums are made in scratch, as the input is still being sent; in two the output holds the last ones."""
    first, second, *_ = [lower(schedule, "allreduce") for schedule in exchanges(complete(6))]
    kinds = [step.kind for block in first.ranks[0].thread_blocks for step in block.instructions]
    assert (first.scratch_chunks, kinds.count("copy")) == (1, 1)
    kinds = [step.kind for block in second.ranks[0].thread_blocks for step in block.instructions]
    assert (second.scratch_chunks, kinds.count("copy")) == (1, 0)


def test_intervals_travel_together() -> None:
    """Four chunks that one send carries are one step of the program, if limits allow."""
    sends = [(0, 1, 0, 4, (a, b)) for a in range(2) for b in range(2) if a != b]
    whole = lower(StepExchange.from_sends(2, 4, sends), "allreduce")  # type: ignore[arg-type]
    assert whole.chunks_per_loop == 1
    halves = [(0, 1, 0, 2, path) for *_, path in sends] + [(1, 1, 2, 4, path) for *_, path in sends]
    joined = halves[:2] + [(0, 1, 2, 4, path) for *_, path in sends]
    for rows, chunks in ((halves, 2), (joined, 2)):
        program = lower(StepExchange.from_sends(2, 4, rows), "allreduce")  # type: ignore[arg-type]
        assert program.chunks_per_loop == chunks
        check(program)


def test_schedules_are_checked_first() -> None:
    """What is no allreduce has no program."""
    sends = [(0, 1, 0, 1, (0, 1)), (1, 1, 0, 1, (1, 0))]
    with pytest.raises(CertificateError, match="in step 1 rank 0 adds a vector twice"):
        lower(StepExchange.from_sends(2, 1, sends), "allreduce")  # type: ignore[arg-type]
    good = StepExchange.from_sends(2, 1, [(0, 1, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    with pytest.raises(CertificateError, match="path 0 passes a node twice"):
        lower(replace(good, path_nodes=np.array([0, 0, 1, 0])), "allreduce")


def test_plans_for_small_data_can_be_used(tmp_path: Path) -> None:
    """Saved, exported to all formats that run in GPUs, and shown."""
    network = dgx_a100(boxes=2)
    plan = collopt.plan(network, "allreduce", planner="few-steps", size="64K", costs=COSTS)
    assert isinstance(plan.schedule, StepExchange)
    plan.save(tmp_path / "plan.json")
    assert collopt.load_plan(tmp_path / "plan.json", network).to_json() == plan.to_json()
    check(lower(plan.schedule, "allreduce", topology=network))
    plan.to_msccl_xml(tmp_path / "plan.xml")
    plan.to_mscclpp_json(tmp_path / "plan-mscclpp.json")
    plan.export("chakra-et", tmp_path / "trace", size="64K")
    assert len(list(tmp_path.iterdir())) == 3 + 16


def test_families_on_boxes_have_the_right_data() -> None:
    """Exchanges within boxes, then between them, and of shards of boxes."""
    topology = dgx_a100(boxes=2)
    for family in families(topology, "allreduce"):
        if family.name in ("exchange-2x4-of-shards-2", "exchange-2x8-in-all-orders"):
            schedule = plan_of_schedule(topology, "allreduce", family.schedule).schedule
            check(lower(schedule, "allreduce", topology=topology))


@pytest.mark.parametrize(
    ("ranks", "sends"), [(1, [(0, False, 0, 1, (0, 0))]), (1, [(0, True, 0, 1, (0, 5))]), (0, []), (-1, [])]
)
def test_exchanges_of_no_two_ranks_are_refused(
    ranks: int, sends: list[tuple[int, bool, int, int, tuple[int, ...]]]
) -> None:
    """A rank has nobody to exchange with, and paths lead to another rank."""
    with pytest.raises(ColloptError):
        lower(StepExchange.from_sends(ranks, 1, sends), "allreduce")
