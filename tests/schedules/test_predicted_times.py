"""Predicted times of schedules in many slices: close to those of whole runs, from a run of a part."""

import pytest

import collopt
from collopt.planners.by_size.families import families
from collopt.schedules.timing.run import Predictor, Rules, TimedSchedule
from collopt.topologies import LINKS_ONLY, RuntimeCosts, Topology, dgx_a100, dgx_h100, torus

FUSED = RuntimeCosts(alpha=2, send="0.2")
BOXES, MESH = dgx_h100(boxes=2), torus(4, 4, bandwidth=25, latency="0.5")


@pytest.mark.parametrize("costs", [FUSED, LINKS_ONLY], ids=lambda costs: costs.label)
@pytest.mark.parametrize(("network", "planner"), [(MESH, "forestcoll"), (MESH, "ring"), (BOXES, "forestcoll")])
def test_a_part_of_the_slices_tells_the_time_of_all(network: Topology, planner: str, costs: RuntimeCosts) -> None:
    """Few slices predict the time, also where latency decides or no link is ever busy."""
    for collective in ("allgather", "allreduce"):
        schedule = collopt.plan(network, collective, planner=planner).schedule
        timed = TimedSchedule(schedule, network, Rules(costs))
        part = Predictor(schedule, network, costs, 8 * len(timed.transfers.hop_links))
        for size in (2**16, 2**26):
            assert part.time(size) == pytest.approx(timed.run(size).time, rel=0.06 if size == 2**16 else 0.02)


@pytest.mark.parametrize("costs", [FUSED, LINKS_ONLY], ids=lambda costs: costs.label)
def test_families_take_no_less_than_their_links_and_messages(costs: RuntimeCosts) -> None:
    """The lower bound excludes no family that could be faster; phases of an allreduce overlap."""
    for family in (found for name in ("allgather", "allreduce") for found in families(dgx_a100(boxes=2), name)):
        for size in (2**10, 2**20, 2**28):
            time = Predictor(family.schedule, dgx_a100(boxes=2), costs).time(size)
            assert family.estimate(size, costs).minimum <= 1.005 * time
