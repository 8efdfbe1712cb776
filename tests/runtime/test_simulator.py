"""Plans, run event by event."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from runtime_forests import random_schedule, schedules

import collopt
from collopt import Topology
from collopt.errors import CertificateError, UnsupportedError
from collopt.planners import plan_of_schedule
from collopt.runtime import Simulation, simulate
from collopt.schedules import (
    Allreduce,
    FlowSchedule,
    Forest,
    StepSchedule,
    TreeSchedule,
    as_bytes,
    schedule_time,
)
from collopt.topologies import SwitchLimits, complete, dgx_a100, dgx_h100, hypercube, kautz, mi250, ring, torus
from sample_sizes import examples
from slow_cases import slow_where

SPEED = 25


def row(*latencies: object) -> Topology:
    """Ranks a, b, c, ... in a row, 25 GB/s, with these latencies."""
    names = "abcdefg"[: len(latencies) + 1]
    links = [(*pair, SPEED, late) for pair, late in zip(pairwise(names), latencies, strict=True)]
    return Topology.from_links(links, compute=names, bidirectional=True, name="row")


def shortest_time(plan: collopt.Plan, size: int | str) -> Fraction:
    """What the busiest link takes, without any latency, in µs."""
    return as_bytes(size) / plan.algbw / 1000


def random_network(ranks: int, seed: int, latencies: bool) -> Topology:
    """All ranks joined to each other by links of random speeds."""
    chance = np.random.default_rng(seed)
    return Topology.from_links(
        [
            (f"g{tail}", f"g{head}", int(chance.integers(1, 9)), Fraction(int(chance.integers(0, 9)) * latencies, 4))
            for tail in range(ranks)
            for head in range(ranks)
            if tail != head
        ],
        compute=[f"g{rank}" for rank in range(ranks)],
    )


@pytest.mark.parametrize(("slices", "expected"), [(1, 3), (2, Fraction(5, 2)), (4, Fraction(9, 4))])
def test_slices_of_a_tree_follow_each_other(slices: int, expected: object) -> None:
    """Two hops of 1 µs for 25 kB and latencies of 1/2 µs: the last slice is one slice later at the second hop."""
    plan = collopt.plan(row("0.5", "0.5"), "broadcast", root="a")
    assert simulate(plan, 25_000, slices).time == expected
    assert float(simulate(plan, 25_000, slices).time) == plan.estimate(25_000, slices)


def test_a_sum_is_sent_when_all_parts_have_come() -> None:
    """Rank b waits for both a, 1 µs away, and c, 5 µs away, before it sends the sum on to d."""
    links = [("a", "b", 25, 1), ("c", "b", 25, 5), ("b", "d", 25, 1)]
    topology = Topology.from_links(links, compute="abcd", bidirectional=True)
    forest = Forest.from_paths(4, 1, [(3, 1, [(3, 1), (1, 0), (1, 2)])], root_weights=[0, 0, 0, 1], direction="reduce")
    run = simulate(plan_of_schedule(topology, "reduce", forest), 25_000, 1)
    assert run.time == 1 + 5 + 1 + 1
    events = run.to_frame()
    assert events[["tail", "head", "start_us"]].to_numpy().tolist() == [["a", "b", 0], ["c", "b", 0], ["b", "d", 6]]


def test_switches_pass_on_what_ranks_store() -> None:
    """Through a switch 25 kB take 1 µs and two latencies; through a rank they take 1 µs twice."""
    links = [("a", "s", 25, "0.5"), ("s", "b", 25, "0.5"), ("b", "s", 25, "0.5"), ("s", "a", 25, "0.5")]
    through_switch = Topology.from_links(links, compute="ab", switches="s")
    assert simulate(collopt.plan(through_switch, "broadcast", root="a"), 25_000, 1).time == 2
    through_rank = collopt.plan(row("0.5", "0.5"), "broadcast", root="a")
    assert simulate(through_rank, 25_000, 1).time == 3


def test_an_allreduce_turns_at_each_root_as_soon_as_a_slice_is_complete() -> None:
    """Three hops towards the root and three back over other links: slices pass the root without a stop."""
    spread = Forest.from_paths(4, 1, [(3, 1, [(3, 2), (2, 1), (1, 0)])], root_weights=[0, 0, 0, 1])
    plan = plan_of_schedule(row(0, 0, 0), "allreduce", Allreduce(replace(spread, direction="reduce"), spread))
    for slices in (1, 2, 5):
        assert simulate(plan, 25_000, slices).time == 1 + Fraction(5, slices)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
@pytest.mark.parametrize(
    "topology",
    [torus(3, 4, bandwidth=25, latency=2), hypercube(3, latency=1), kautz(2, 2, latency=1), complete(5)],
    ids=lambda topology: topology.name,
)
def test_steps_that_are_waited_for_take_what_the_model_says(topology: Topology, collective: str) -> None:
    """Where links join ranks, each step takes a latency and its largest load; not to wait is never slower."""
    plan = collopt.plan(topology, collective, planner="bfb")
    for size in (1, 4096, "1M"):
        waited = simulate(plan, size, steps="wait").time
        assert waited == schedule_time(plan.schedule, topology, size)
        assert shortest_time(plan, size) <= waited
        assert simulate(plan, size).time <= waited


def test_steps_go_on_without_the_slowest() -> None:
    """A rank sends on what it has in the next step while another still receives in this one."""
    links = [("a", "b", 10), ("b", "c", 10), ("c", "a", 10), ("b", "a", 1), ("c", "b", 10), ("a", "c", 10)]
    topology = Topology.from_links(links, compute="abc")
    sends = [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0)), (0, 2, 0, 1, (2, 0)), (0, 1, 0, 1, (1, 2))]
    sends += [(1, 0, 0, 1, (1, 2)), (1, 2, 0, 1, (0, 1))]
    plan = plan_of_schedule(topology, "allgather", StepSchedule.from_sends(3, 1, sends))
    assert simulate(plan, 30_000, steps="wait").time == 10 + 1
    assert simulate(plan, 30_000).time == 10


def test_flows_follow_their_steps() -> None:
    """On a one-way ring of three, half the data of each link goes one hop and half two."""
    near = [(1, (rank, (rank + 1) % 3), (0,)) for rank in range(3)]
    far = [(1, (rank, (rank + 1) % 3, (rank + 2) % 3), (1, 2)) for rank in range(3)]
    schedule = FlowSchedule.from_paths(np.ones((3, 3), dtype=np.int64), 1, near + far)
    plan = plan_of_schedule(ring(3, bandwidth=10, bidirectional=False), "all_to_all", schedule)
    assert simulate(plan, 30_000, 1).time == 3
    assert simulate(plan, 30_000, 1, steps="wait").time == 3
    assert simulate(plan, 30_000, 10).time == 3


@settings(max_examples=examples(60))
@given(schedules(), st.integers(1, 5), st.integers(0, 2**32), st.integers(1, 10**6))
def test_every_run_is_a_run_that_the_model_allows(
    given_schedule: tuple[TreeSchedule, str], slices: int, seed: int, size: int
) -> None:
    """Links carry one piece at a time, pieces wait for what they need and never otherwise with an idle link."""
    schedule, collective = given_schedule
    # Plans count shards in their common measure.
    assume(np.gcd.reduce(schedule.root_weights) == 1)
    topology = random_network(schedule.num_ranks, seed, latencies=True)
    plan = plan_of_schedule(topology, collective, schedule)
    run = simulate(plan, size, slices)
    assert run.time >= shortest_time(plan, size)
    check_run(run)


def check_run(run: Simulation) -> None:
    """Check the events of a run on a network without switches, in which each transfer has at most one hop."""
    transfers, times = run.transfers, run.times
    starts = {}
    for hop, owner in enumerate(transfers.hop_owners.tolist()):
        starts[owner] = run.starts[hop]
    ends = {}

    def end(transfer: int) -> np.ndarray:
        if transfer not in ends:
            hop = int(transfers.hop_starts[transfer])
            ends[transfer] = (
                starts[transfer] + times.ticks[hop] + times.delays[hop] if transfer in starts else ready(transfer)
            )
        return ends[transfer]

    def ready(transfer: int) -> np.ndarray:
        before = transfers.before[transfers.after == transfer].tolist()
        return np.max([np.zeros(run.slices), *(end(each) for each in before)], axis=0)

    busy: dict[int, list[tuple[int, int]]] = {}
    for hop, owner in enumerate(transfers.hop_owners.tolist()):
        assert (starts[owner] >= ready(owner)).all()
        pieces = [(int(start), int(start + times.ticks[hop])) for start in starts[owner]]
        busy.setdefault(int(transfers.hop_links[hop]), []).extend(pieces)
    for pieces in busy.values():
        pieces.sort()
        assert all(earlier[1] <= later[0] for earlier, later in pairwise(pieces))
    for hop, owner in enumerate(transfers.hop_owners.tolist()):
        for start, could in zip(starts[owner].tolist(), ready(owner).tolist(), strict=True):
            # The link was busy all the time from when the piece could start until it did.
            covered = sum(
                min(last, start) - max(first, could)
                for first, last in busy[int(transfers.hop_links[hop])]
                if first < start and last > could
            )
            assert covered == start - could
    assert run.time == times.tick * int(max(end(each).max() for each in range(len(transfers.senders))))


@settings(max_examples=examples(40))
@given(
    st.sampled_from(["allgather", "reduce_scatter", "allreduce", "broadcast"]), st.integers(2, 5), st.integers(0, 999)
)
def test_many_slices_come_down_to_the_estimate(collective: str, ranks: int, seed: int) -> None:
    """Without latencies no run beats the estimate, and twice the hops of all trees in slices is all that it misses."""
    topology = random_network(ranks, seed, latencies=False)
    plan = plan_of_schedule(topology, collective, random_schedule(collective, ranks, 2, seed))
    slices = 200
    run = simulate(plan, "1M", slices)
    hops = sum(int(forest.heights.max()) for forest in plan.trees.forests)
    assert shortest_time(plan, "1M") <= run.time <= shortest_time(plan, "1M") * (1 + Fraction(2 * hops, slices))
    assert plan.estimate("1M") == pytest.approx(float(shortest_time(plan, "1M")))


@pytest.mark.parametrize(
    ("topology", "collective"),
    slow_where(
        product((dgx_a100(boxes=2), mi250(boxes=1)), ("allgather", "reduce_scatter", "allreduce", "all_to_all")),
        lambda case: case[0].name.startswith("dgx") and case[1] != "allgather",
    ),
    ids=lambda value: getattr(value, "name", None),
)
def test_real_boxes_come_close_to_the_estimate(topology: Topology, collective: str) -> None:
    """Through switches of several speeds, where the estimate counts no waiting at all."""
    plan = collopt.plan(topology, collective)
    run = simulate(plan, "256M", 128)
    assert shortest_time(plan, "256M") <= run.time
    assert run.microseconds <= plan.estimate("256M") * 1.03


def test_tables_add_up() -> None:
    """Bytes and busy times by link are those of the events, and of the schedule's loads."""
    plan = collopt.plan(mi250(boxes=1), "allgather")
    run = simulate(plan, "1M", 3)
    events, links = run.to_frame(), run.link_busy.set_index(["tail", "head"])
    events["busy_us"] = events["end_us"] - events["start_us"]
    sums = events.groupby(["tail", "head"])[["bytes", "busy_us"]].sum()
    used = links[links["pieces"] > 0]
    assert np.allclose(used[["bytes", "busy_us"]], sums.loc[used.index])
    assert len(events) == run.starts.size == used["pieces"].sum()
    assert events["start_us"].is_monotonic_increasing
    scale = 2**20 / (plan.trees.trees_per_root * plan.trees.total_weight)
    assert np.allclose(links["bytes"], plan.link_loads * scale)
    assert links["share"].max() <= 1


def test_times_that_no_tick_fits_are_rounded_up() -> None:
    """Speeds whose common measure would leave int64: no run is faster than the busiest link, and by little slower."""
    primes = [Fraction(10**9 + offset, 10**8) for offset in (7, 9, 21, 33, 87, 93)]
    pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("b", "a"), ("c", "b"), ("a", "c")]
    topology = Topology.from_links([(*pair, speed) for pair, speed in zip(pairs, primes, strict=True)], compute="abc")
    plan = collopt.plan(topology, "allgather", trees_per_root=1)
    run = simulate(plan, 10**9 + 7, 7)
    assert shortest_time(plan, 10**9 + 7) <= run.time
    assert run.times.ticks.max() < 2**62
    rough = sum(run.times.ticks.tolist()) * run.times.tick
    assert rough == pytest.approx(float(run.link_busy["busy_us"].sum() / 7), rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("1M", 0), {}, "slices is 0; expected a whole number of at least 1"),
        (("1M", True), {}, "slices is True"),
        (("none",), {}, "size 'none' is not understood"),
        (("1M", 2**40), {}, "slices is 1099511627776, which makes"),
        (("1M",), {"steps": "wait"}, "the plan consists of trees"),
        (("1M",), {"steps": "maybe"}, "steps is 'maybe'; expected one of overlap, wait"),
    ],
)
def test_refuses_what_makes_no_sense(arguments: tuple[object, ...], options: dict[str, object], message: str) -> None:
    """Every refusal says what was wrong and what is expected."""
    plan = collopt.plan(ring(3), "allgather")
    with pytest.raises(UnsupportedError, match=message):
        simulate(plan, *arguments, **options)


def test_refuses_slices_of_steps_and_what_is_no_plan() -> None:
    """Chunks of steps are sent whole."""
    plan = collopt.plan(ring(4), "allgather", planner="bfb")
    with pytest.raises(
        UnsupportedError, match=r"slices is 2, but the plan's steps send chunks whole; leave slices out"
    ):
        simulate(plan, "1M", 2)
    with pytest.raises(UnsupportedError, match="the plan is 3; expected a Plan"):
        simulate(3, "1M")


def test_refuses_schedules_that_do_not_belong_to_the_network() -> None:
    """A plan whose schedule was exchanged for one with links that are not there."""
    plan = collopt.plan(ring(4), "broadcast", root=0)
    forest = Forest.from_paths(4, 1, [(0, 1, [(0, 1), (0, 2), (0, 3)])], root_weights=[1, 0, 0, 0])
    with pytest.raises(CertificateError, match="uses a link that the topology does not have"):
        simulate(replace(plan, schedule=forest), "1M")


def test_a_plan_simulates_itself() -> None:
    """In µs, with the options of `simulate`."""
    plan = collopt.plan(row("0.5", "0.5"), "broadcast", root="a")
    assert plan.simulate(25_000, slices=4) == simulate(plan, 25_000, 4).microseconds == 2.25
    with pytest.raises(UnsupportedError, match=r"simulator event-driven cannot be used with these options: .*'chunks'"):
        plan.simulate("1K", chunks=3)
    with pytest.raises(UnsupportedError, match="there is no simulator 'ns-3'; expected one of event-driven"):
        plan.simulate("1K", simulator="ns-3")


@pytest.mark.parametrize("loopback", [False, True])
@pytest.mark.parametrize("collective", ["allreduce", "allgather", "reduce_scatter"])
def test_switches_that_branch_trees_are_links_ends_too(collective: str, loopback: bool) -> None:
    """What links carry is what the schedule says, copies that are looped back included; the rate follows."""
    topology = replace(
        dgx_h100(boxes=2), limits=tuple(SwitchLimits(f"box{box}/nvswitch", loopback=loopback) for box in range(2))
    )
    made = collopt.plan(topology, collective)
    assert collective != "allreduce" or len(made.trees.forests[0].switches) == 2
    events = simulate(made, 10**9, slices=8)
    carried = events.to_frame().groupby(["tail", "head"])["bytes"].sum()
    unit = 10**9 / made.schedule.total_weight / made.schedule.load_units[0]
    for link, load in zip(topology.links, made.link_loads.tolist(), strict=True):
        assert carried.get((link.tail, link.head), 0) == pytest.approx(float(load * unit), rel=1e-9)
    assert 0 < made.simulate(10**9, slices=64) < 1.1 * made.estimate(10**9)
