"""Order of messages: rounds that are permutations on every level, and steps' sends that make one message."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import collopt
from collopt.planners.by_size.families import families
from collopt.runtime import simulate
from collopt.schedules import Allreduce, Forest, StepSchedule
from collopt.schedules.message_order import (
    merged,
    message_rounds,
    ordered_transfers,
    piece_times,
    reordered,
    sending_turns,
    transfers_ahead,
)
from collopt.schedules.timed_run import Predictor, Rules, TimedSchedule
from collopt.topologies import (
    LINKS_ONLY,
    RuntimeCosts,
    Topology,
    complete,
    dgx_a100,
    dgx_h100,
    dragonfly,
    fat_tree,
    ring,
    torus,
)
from collopt.topologies.symmetry.rank_groups import rank_groups


def star(ranks: int, bandwidth: int = 25) -> collopt.Topology:
    """Ranks on one switch."""
    links = [(rank, "switch", bandwidth) for rank in range(ranks)]
    return collopt.Topology.from_links(
        links, compute=range(ranks), switches=["switch"], bidirectional=True, name=f"star-{ranks}"
    )


@pytest.mark.parametrize("network", [star(8), star(6), dgx_a100(boxes=2), dgx_h100(boxes=3), fat_tree(4), torus(3, 4)])
def test_rounds_are_permutations_on_every_level(network: collopt.Topology) -> None:
    """All pairs: in each round a rank sends to one rank, and so many messages leave and enter every group."""
    groups, ranks = rank_groups(network), network.num_ranks
    senders, receivers = np.nonzero(~np.eye(ranks, dtype=np.bool_))
    rounds = message_rounds(groups, senders, receivers)
    assert len(np.unique(rounds)) == ranks - 1
    for number in np.unique(rounds):
        tails, heads = senders[rounds == number], receivers[rounds == number]
        assert sorted(tails) == sorted(heads) == list(range(ranks))
        for level in range(1, len(groups.sizes)):
            inside = np.ravel_multi_index(tuple(groups.digits[:, :level].T), groups.sizes[:level])
            apart = inside[tails] != inside[heads]
            # All ranks of a group send out of it, or none.
            assert np.array_equal(np.bincount(inside[tails], apart), np.bincount(inside[heads], apart))
            assert apart.all() or not apart.any()


def test_ranks_of_a_group_send_to_different_groups() -> None:
    """No link between groups of a dragonfly has two messages of a round."""
    network = dragonfly(4, 2, 2)
    groups = rank_groups(network)
    senders, receivers = np.nonzero(~np.eye(network.num_ranks, dtype=np.bool_))
    ends = np.stack([groups.digits[senders, 0], groups.digits[receivers, 0]])
    between = ends[0] != ends[1]
    rounds = message_rounds(groups, senders[between], receivers[between])
    links = np.column_stack([rounds, *ends[:, between]])
    assert len(np.unique(links, axis=0)) == len(links)


def test_one_switch_is_busy_without_pause() -> None:
    """All to all of 8 ranks on a switch: seven messages of 5 µs, one more where switches store them."""
    network = star(8, bandwidth=25)
    plan = collopt.plan(network, "all_to_all", planner="shortest-paths")
    size = 8 * 125_000
    assert simulate(plan, size, 1).time == 35
    assert simulate(plan, size, 1, forwarding="store-and-forward").time == 40
    assert simulate(plan, size, 1, forwarding="store-and-forward", service="arrival").time == 40


def uneven_plan(network: collopt.Topology, seed: int) -> collopt.Plan:
    """Plan an all-to-allv of random parts, some of them empty."""
    chance = np.random.default_rng(seed)
    traffic = chance.integers(1, 100, (network.num_ranks,) * 2) * (chance.random((network.num_ranks,) * 2) < 0.8)
    return collopt.plan(network, "all_to_allv", traffic=traffic)


@pytest.mark.parametrize("network", [star(6), dgx_a100(boxes=2), fat_tree(4), torus(3, 3)])
def test_turns_of_uneven_traffic_are_times_at_which_links_are_free(network: collopt.Topology) -> None:
    """No link has two messages at a time, and some link of a path is busy until its message starts."""
    plan = uneven_plan(network, 7)
    transfers = plan.schedule.transfers(network)
    turns = sending_turns(plan.schedule, transfers, network, rank_groups(network))
    busy = transfers.amounts[transfers.hop_owners] / network.arrays.capacities[transfers.hop_links]
    ticks = np.ceil(busy * (2**40 / busy.max())).astype(np.int64)
    ends: dict[int, set[int]] = {}
    for link in np.unique(transfers.hop_links).tolist():
        hops = np.flatnonzero(transfers.hop_links == link)
        hops = hops[np.argsort(turns[transfers.hop_owners[hops]], kind="stable")]
        starts = turns[transfers.hop_owners[hops]]
        assert (starts[1:] >= starts[:-1] + ticks[hops[:-1]]).all()
        ends[link] = set((starts + ticks[hops]).tolist())
    for transfer, start in enumerate(turns.tolist()):
        first, last = transfers.hop_starts[transfer : transfer + 2]
        assert start == 0 or any(start in ends[link] for link in transfers.hop_links[first:last].tolist())


def test_turns_of_uneven_traffic_beat_rounds() -> None:
    """On one switch, the mean of ten matrices is within 3 % of the bound with ports in order of arrival."""
    network, ratios = star(8), []
    for seed in range(10):
        plan = uneven_plan(network, seed)
        run = simulate(plan, "128M", 1, service="arrival")
        ratios.append(float(plan.algbw) / run.algbw)
    assert 1 <= np.mean(ratios) < 1.03


def test_two_boxes_are_as_fast_as_their_nics() -> None:
    """All to all of 16 GPUs: eight messages for the other box."""
    network = dgx_a100(boxes=2)
    plan = collopt.plan(network, "all_to_all", planner="shortest-paths")
    run = simulate(plan, 16 * 25_000, 1, service="arrival")
    latency = Fraction(7, 20) * 2 + Fraction(1, 2) * 2
    assert 8 <= run.time <= 8 + latency + Fraction(1, 10)


def steps() -> StepSchedule:
    """Allgather of four ranks on a full mesh: rank 0 brings rank 1 two shards in one step."""
    direct = [(0, source, 0, 1, (source, head)) for source in range(4) for head in range(4) if source != head]
    kept = [send for send in direct if send[4] not in ((3, 1), (0, 1))]
    return StepSchedule.from_sends(4, 1, [*kept, (1, 3, 0, 1, (0, 1)), (1, 0, 0, 1, (0, 1))])


def test_sends_of_a_step_over_one_path_are_one_message() -> None:
    """It carries both shards, and waits for what the sends wait for."""
    transfers = steps().transfers(complete(4))
    whole = merged(transfers)
    assert len(whole.senders) == len(transfers.senders) - 1
    assert whole.amounts.sum() == transfers.amounts.sum()
    double = np.flatnonzero(whole.amounts == 2)
    assert (whole.senders[double], whole.receivers[double], whole.levels[double]) == (0, 1, 1)
    assert whole.before.tolist() == np.flatnonzero((whole.senders == 3) & (whole.receivers == 0)).tolist()
    assert whole.after.tolist() == double.tolist()


def test_another_order_is_the_same_run() -> None:
    """Dependencies and routes go with their transfers."""
    network = dgx_a100(boxes=2)
    transfers = ordered_transfers(collopt.plan(network, "allreduce").schedule, network)
    order = np.random.default_rng(5).permutation(len(transfers.senders))
    there = reordered(transfers, order)
    back = reordered(there, np.argsort(order))
    for name in ("senders", "receivers", "hop_starts", "hop_links", "before", "after", "levels", "adds", "firsts"):
        assert np.array_equal(getattr(transfers, name), getattr(back, name)), name
    assert (there.levels[there.before] <= there.levels[there.after]).all()


def test_software_costs_of_a_chain() -> None:
    """Launch, two hops of alpha, start and wire, and a sum of 0.1 MB."""
    row = collopt.Topology.from_links(
        [("a", "b", 25, 1), ("b", "c", 25, 1)], compute="abc", bidirectional=True, name="row"
    )
    costs = RuntimeCosts(alpha=2, send="1/2", launch=3, reduction=10)
    out = collopt.plan(row, "broadcast", root="a")
    assert simulate(out, 100_000, 1, costs=costs).time == 3 + 2 * (Fraction(1, 2) + 2 + 4 + 1)
    summed = collopt.plan(row, "reduce", root="a")
    assert simulate(summed, 100_000, 1, costs=costs).time == 3 + 2 * (Fraction(1, 2) + 2 + 4 + 1 + 1)


@pytest.mark.parametrize("planner", ["ring", "bfb"])
@pytest.mark.parametrize("collective", ["reduce_scatter", "allreduce"])
def test_estimates_add_what_the_busiest_rank_adds(collective: str, planner: str) -> None:
    """Three quarters of the data, 1 µs per MB, along a ring of one direction; each link waits for its receiver."""
    network = collopt.Topology.from_links([(a, "bcda"["abcd".index(a)], 25) for a in "abcd"], compute="abcd")
    plan = collopt.plan(network, collective, planner=planner)
    costs, size = RuntimeCosts(reduction=10), 400_000
    assert plan.estimate(size, costs=costs) == pytest.approx(plan.estimate(size) + 3)
    if not plan.schedule.pipelined:
        assert simulate(plan, size, costs=costs).time == pytest.approx(plan.estimate(size, costs=costs))
    assert collopt.plan(network, "allgather", planner=planner).estimate(size, costs=costs) == plan.estimate(size) / (
        2 if collective == "allreduce" else 1
    )


def test_starting_messages_takes_turns() -> None:
    """Seven messages of one rank begin half a microsecond apart."""
    network = complete(8, bandwidth=25)
    plan = collopt.plan(network, "allgather", planner="multitree")
    frame = simulate(plan, 8, 1, costs=RuntimeCosts(send="1/2")).to_frame()
    starts = sorted(frame.loc[frame["sender"] == network.nodes[0], "start_us"])
    assert len(starts) == 7
    assert starts[0] == 0.5
    assert all(later - earlier >= 0.499 for earlier, later in pairwise(starts))


def test_slices_are_as_many_as_can_be_started() -> None:
    """Broadcast along a ring: one message for each slice, so W / o of them."""
    plan = collopt.plan(ring(4, bandwidth=25), "broadcast", root=0, planner="ring")
    wire = simulate(plan, "64M", 1).link_busy["busy_us"].max()
    chosen = simulate(plan, "64M", costs=RuntimeCosts(send=1)).slices
    sent = max(1, round(wire / chosen))
    assert chosen > 1
    assert wire / chosen == pytest.approx(sent, rel=0.1)
    assert simulate(plan, 64, costs=RuntimeCosts(send=1)).slices == 1


def test_shares_of_line_rates() -> None:
    """Half the bandwidth is twice the time."""
    plan = collopt.plan(ring(4, bandwidth=25), "allgather")
    whole = simulate(plan, "1M", 4)
    assert simulate(plan, "1M", 4, costs=RuntimeCosts(efficiency={"gpu-gpu": "1/2"})).time == 2 * whole.time


PAIR = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])


def test_times_of_pieces_are_exact() -> None:
    """Halves of 300 bytes over 25 GB/s, that is of 6 ns, and a latency of 10 ns."""
    pair = complete(2, bandwidth=25, latency="0.01")
    times = piece_times(PAIR.transfers(pair), pair, 600, 2, LINKS_ONLY)
    assert (times.tick * 500, times.ticks.tolist(), times.delays.tolist()) == (1, [3, 3], [5, 5])


def test_times_on_links_are_rounded_down_to_whole_nanoseconds() -> None:
    """155 bytes over 25 GB/s, 6.2 ns, and a latency of 10.9 ns take 17 ns together."""
    pair = complete(2, bandwidth=25, latency="0.0109")
    times = piece_times(PAIR.transfers(pair), pair, 620, 2, LINKS_ONLY, "ns")
    assert (times.tick * 1000, times.ticks.tolist(), times.delays.tolist()) == (1, [6, 6], [11, 11])


def row(length: int) -> collopt.Topology:
    """Ranks in a row."""
    names = [f"r{place}" for place in range(length)]
    links = [(tail, head, 1) for tail, head in pairwise(names)]
    return collopt.Topology.from_links(links, compute=names, bidirectional=True)


def test_transfers_ahead_are_those_of_the_longest_branch() -> None:
    """Rank 1 of a row of four counts its way to ranks 2 and 3, not to rank 0."""
    forest = Forest.from_paths(4, 1, [(1, 1, [(1, 0), (1, 2), (2, 3)])], root_weights=[0, 1, 0, 0])
    transfers = forest.transfers(row(4))
    ahead = dict(zip(transfers.receivers.tolist(), transfers_ahead(transfers).tolist(), strict=True))
    assert ahead == {0: 0, 2: 1, 3: 0}


def test_sums_go_on_at_the_root() -> None:
    """With the root in the middle of three, one transfer is ahead of each that adds, and the turn is none."""
    star = Forest.from_paths(3, 1, [(1, 1, [(1, 0), (1, 2)])], root_weights=[0, 1, 0])
    inwards = Forest.from_paths(3, 1, [(1, 1, [(1, 0), (1, 2)])], root_weights=[0, 1, 0], direction="reduce")
    transfers = Allreduce(inwards, star).transfers(row(3))
    ahead = transfers_ahead(transfers)
    crosses = np.diff(transfers.hop_starts) > 0
    assert ahead[crosses & transfers.adds].tolist() == [1, 1]
    assert ahead[crosses & ~transfers.adds].tolist() == [0, 0]


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
@pytest.mark.parametrize("slices", [2, 16, 64])
def test_links_of_a_ring_are_never_idle(collective: str, slices: int) -> None:
    """Seven eighths of 1 MiB over two links, and one latency at the end, however fine the slices."""
    plan = collopt.plan(ring(8, bandwidth=50, latency="0.5"), collective)
    expected = 7 * 2**20 / 8 / 2 / 50_000 + 0.5
    assert simulate(plan, "1M", slices).microseconds == pytest.approx(expected, rel=1e-12)


def test_sums_take_as_long_as_what_they_are_the_reversal_of() -> None:
    """A reduce-scatter on a torus and in boxes takes as long as its allgather."""
    for topology in (torus(4, 4, bandwidth=50, latency="0.5"), dgx_a100(boxes=2)):
        gather, scatter = (collopt.plan(topology, name) for name in ("allgather", "reduce_scatter"))
        for size in ("1M", "256M"):
            longer = simulate(scatter, size, 16).microseconds
            assert longer == pytest.approx(simulate(gather, size, 16).microseconds, rel=0.05)


FUSED = RuntimeCosts(alpha=2, send="0.2")
BOXES, MESH = dgx_h100(boxes=2), torus(4, 4, bandwidth=25, latency="0.5")


@pytest.mark.parametrize("costs", [FUSED, LINKS_ONLY], ids=lambda costs: costs.label)
@pytest.mark.parametrize(("network", "planner"), [(MESH, "forestcoll"), (MESH, "ring"), (BOXES, "forestcoll")])
def test_fewer_slices_tell_the_time_of_all(network: Topology, planner: str, costs: RuntimeCosts) -> None:
    """Eight slices predict the time, also where latency decides or no link is ever busy."""
    for collective in ("allgather", "allreduce"):
        schedule = collopt.plan(network, collective, planner=planner).schedule
        timed = TimedSchedule(schedule, network, Rules(costs))
        part, events = Predictor(schedule, network, costs), 8 * len(timed.transfers.hop_links)
        for size in (2**16, 2**26):
            assert part.time(size, events) == pytest.approx(timed.run(size).time, rel=0.02)


@pytest.mark.parametrize("costs", [FUSED, LINKS_ONLY], ids=lambda costs: costs.label)
def test_families_take_no_less_than_their_links_and_messages(costs: RuntimeCosts) -> None:
    """The lower bound excludes no family that could be faster; phases of an allreduce overlap."""
    for family in (found for name in ("allgather", "allreduce") for found in families(dgx_a100(boxes=2), name)):
        for size in (2**10, 2**20, 2**28):
            time = Predictor(family.schedule, dgx_a100(boxes=2), costs).time(size)
            assert family.estimate(size, costs).minimum <= 1.005 * time
