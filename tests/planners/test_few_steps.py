"""Families of schedules in few steps: every one is a schedule, and as fast as its formula says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from collopt import bound
from collopt.planners.by_size.digits import Digits, Level, with_radix
from collopt.planners.by_size.families import families
from collopt.schedules import Forest, StepAllreduce, StepExchange, StepSchedule, schedule_time, verified_loads
from collopt.topologies import (
    RuntimeCosts,
    Topology,
    dgx_a100,
    dgx_h100,
    dragonfly,
    fat_tree,
    hamming,
    mi300x,
    rail,
    ring,
    torus,
)

A100, H100, MI300X = dgx_a100(boxes=2), dgx_h100(boxes=4), mi300x(boxes=4)
DRAGONFLY, FAT_TREE = dragonfly(4, 2, 2), fat_tree(8)
COLLECTIVES = ("allgather", "reduce_scatter", "allreduce")

FACTORS = [  # of today's bound, as hand-made formulas have them
    (A100, {"direct": 6.93, "rails-then-box": 1.88, "rails-beside-box": 1.37, "rail-trees": 1.011}),
    (A100, {"rail-pieces-in-3": 1.053, "rail-pieces-in-4": 1.011}),
    (H100, {"direct": 7.74, "rails-then-box": 1.97, "rails-beside-box": 1.72, "rail-trees": 1.004}),
    (H100, {f"rail-pieces-in-{k}": factor for k, factor in ((3, 1.30), (4, 1.16), (5, 1.09), (8, 1.013))}),
    (MI300X, {"direct": 7.71, "rails-then-box": 1.97, "rails-beside-box": 1.72, "rail-trees": 1.004}),
    (MI300X, {f"rail-pieces-in-{k}": factor for k, factor in ((3, 1.29), (4, 1.16), (5, 1.09), (8, 1.009))}),
    (DRAGONFLY, {"direct": 1.437, "rails-beside-box-9x8": 1, "rail-trees-9x8": 1}),
    (FAT_TREE, {"direct": 1, "rails-then-box-32x4": 1, "rails-beside-box-8x4x4": 1, "rail-trees-8x16": 1}),
]


@pytest.mark.parametrize(("topology", "factors"), FACTORS, ids=lambda value: getattr(value, "name", None))
def test_bandwidth_times_are_those_of_the_formulas(topology: Topology, factors: dict[str, float]) -> None:
    """Each family has the factor over the bound that its formula gives."""
    best = bound(topology, "allgather").inverse_rate
    found = {family.name: family for family in families(topology, "allgather")}
    for name, factor in factors.items():
        schedule = found[name].schedule
        assert float(schedule.inverse_rate(topology) / best) == pytest.approx(factor, abs=0.006)
        assert isinstance(schedule, Forest if "trees" in name else StepSchedule)


@pytest.mark.parametrize("topology", [A100, H100, MI300X, DRAGONFLY, FAT_TREE], ids=lambda topology: topology.name)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_all_families_are_schedules(topology: Topology, collective: str) -> None:
    """Every rank gets all that it must from ranks that have it, and the steps are as many as announced."""
    names = set()
    for family in families(topology, collective):
        schedule = family.schedule
        verified_loads(schedule, topology)
        assert family.name not in names
        names.add(family.name)
        if isinstance(schedule, StepSchedule | StepAllreduce | StepExchange):
            assert schedule.num_steps == family.num_steps
        else:
            assert sum(int(forest.heights.max()) for forest in schedule.forests) == family.num_steps


def test_pieces_are_offered_as_long_as_they_gain() -> None:
    """On two DGX A100 four steps suffice; on a fat tree two steps lose nothing."""
    names = [family.name for family in families(A100, "allgather")]
    assert [name for name in names if "pieces" in name] == ["rail-pieces-in-3", "rail-pieces-in-4"]
    assert not [family.name for family in families(FAT_TREE, "allgather") if "pieces" in family.name]


@pytest.mark.parametrize("boxes", [2, 3])
def test_exchange_on_rails_then_in_boxes_takes_the_times_of_both(boxes: int) -> None:
    """(B - 1) / NIC and B (g - 1) / NVLink, of which the second loses what boxes have themselves if steps overlap."""
    topology = rail(boxes, gpus_per_box=4, nvswitch_bandwidth=300, nic_bandwidth=25, oversubscription=None)
    found = {family.name: family.schedule.inverse_rate(topology) for family in families(topology, "allgather")}
    assert "direct" not in found  # no rail leads to another
    assert found["rails-then-box"] == Fraction(boxes - 1, 25) + Fraction(boxes * 3, 300)
    assert found["rails-beside-box"] == Fraction(boxes - 1, 25) + Fraction((boxes - 1) * 3, 300)
    assert found["rail-trees"] == max(Fraction(boxes - 1, 25), Fraction(boxes * 3, 300))


@pytest.mark.parametrize(("ranks", "radix", "steps"), [(8, 2, 3), (9, 3, 2), (10, 4, 2), (13, 2, 4), (72, 5, 3)])
def test_bruck_on_one_switch_loses_no_bandwidth(ranks: int, radix: int, steps: int) -> None:
    """Every rank takes in each shard once, in as many steps as the radix allows."""
    names = [str(rank) for rank in range(ranks)]
    links = [(name, "switch", 10) for name in names]
    topology = Topology.from_links(links, compute=names, switches=["switch"], bidirectional=True)
    found = {family.name: family for family in families(topology, "allgather")}
    family = found[f"bruck-radix-{radix}"]
    verified_loads(family.schedule, topology)
    assert family.num_steps == steps
    assert family.schedule.inverse_rate(topology) == Fraction(ranks - 1, 10)


def test_on_a_torus_of_routers_columns_follow_rows() -> None:
    """Two steps, whatever the size, with the factors of both orders together over one."""
    topology = torus(8, 8, bandwidth=25, routers=True)
    found = {family.name: family for family in families(topology, "allgather")}
    for name in ("direct", "rails-then-box", "rows-and-columns"):
        verified_loads(found[name].schedule, topology)
    assert found["rows-and-columns"].num_steps == 2
    times = [found[name].schedule.inverse_rate(topology) for name in ("rails-then-box", "rows-and-columns")]
    assert times[1] < times[0]
    # On a Hamming graph half of each shard in either order is optimal.
    grid = hamming(2, 4, bandwidth=10)
    found = {family.name: family for family in families(grid, "allgather")}
    assert found["rows-and-columns"].num_steps == 2
    assert found["rows-and-columns"].schedule.inverse_rate(grid) == bound(grid, "allgather").inverse_rate
    assert "direct" not in found
    # A rank cannot send past another.
    assert not [family for network in (ring(8), torus(4, 4)) for family in families(network, "allgather")]


def test_links_that_differ_by_direction_give_each_phase_its_own_schedule() -> None:
    """A reduce-scatter runs on the reversed network."""
    links = [("a", "s", 10), ("s", "a", 10), ("b", "t", 10), ("t", "b", 10), ("s", "t", 5), ("t", "s", 5)]
    links += [("c", "s", 10), ("s", "c", 10), ("c", "t", 4), ("t", "c", 4)]
    topology = Topology.from_links(links, compute="abc", switches="st")
    lopsided = Topology.from_links([*links, ("a", "b", 1)], compute="abc", switches="st")
    for network in (topology, lopsided):
        for collective in COLLECTIVES:
            for family in families(network, collective):
                verified_loads(family.schedule, network)


@pytest.mark.parametrize("topology", [A100, MI300X, DRAGONFLY, hamming(2, 4)], ids=lambda topology: topology.name)
@pytest.mark.parametrize("collective", ["reduce_scatter", "allreduce"])
def test_estimates_are_close_to_the_times_of_the_schedules(topology: Topology, collective: str) -> None:
    """What moves carry, multiplied out, says what the schedule's own loads and latencies say."""
    for costs in (RuntimeCosts(), RuntimeCosts(alpha=2, send="1/5", launch=3)):
        for family in families(topology, collective):
            schedule = family.schedule
            for size in (1024, 2**20, 2**30):
                time = float(schedule_time(schedule, topology, size, costs=costs))
                if isinstance(schedule, StepExchange) and costs.send:
                    # The estimate knows that the messages of each step start one after the other.
                    assert 0.997 * time <= family.estimate(size, costs).time <= 1.5 * time
                elif "waves" in family.name:  # which do not wait for each other
                    assert family.estimate(size, costs).time <= time
                elif isinstance(schedule, StepSchedule | StepAllreduce | StepExchange):
                    assert family.estimate(size, costs).time == pytest.approx(time, rel=0.003)
                else:
                    assert family.estimate(size, costs).time == pytest.approx(time, rel=0.25)


@pytest.mark.parametrize("sizes", [(5,), (4, 3), (2, 9, 2)])
@pytest.mark.parametrize("radix", [2, 3, 16])
def test_moves_carry_what_last_hops_do(sizes: tuple[int, ...], radix: int) -> None:
    """Shards of each step, of both kinds of exchanges, counted hop by hop."""
    ranks = int(np.prod(sizes))
    digits = np.stack(np.unravel_index(np.arange(ranks), sizes))
    levels = [Level(row, size, size) for row, size in zip(digits, sizes, strict=True)]
    divided = with_radix(Digits(levels), radix)
    hops = divided.last_hops
    senders, receivers = divided.partners
    move = np.zeros((ranks, ranks), dtype=np.int64)
    move[senders, receivers] = np.arange(len(senders))[:, None]
    of_pair = move[hops.senders, hops.receivers]
    for shards, steps in ((divided.shards_in_turn(), hops.places), (divided.shards_overlapping(), hops.counts - 1)):
        counted = np.zeros_like(shards)
        np.add.at(counted, (steps, of_pair), 1)
        assert np.array_equal(shards * ranks, counted)


def test_paths_spread_over_equal_switches() -> None:
    """All links of a fat tree carry the same in an exchange of all with all."""
    (family, *_) = families(FAT_TREE, "allgather")
    loads = family.schedule.link_loads(FAT_TREE)[0]
    assert family.name == "direct"
    assert len(np.unique(loads[FAT_TREE.arrays.tails < 128])) == 1
    assert loads.max() == 127
