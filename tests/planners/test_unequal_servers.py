"""FAST on servers of unequal sizes, and with NICs that are fewer, failed or slow: bounds, loads, and checks."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import CertificateError
from collopt.planners.all_to_all.fast import STAGES, schedule_all_to_allv
from collopt.schedules.stages.schedule import AllToAllvSchedule
from collopt.schedules.stages.segments import ARRAYS
from collopt.schedules.stages.two_tier_cost import H200, PIPELINES, TwoTierModel
from collopt.solvers.steps.stages import laned_exchange, staged_exchange
from sample_sizes import examples

IntArray = npt.NDArray[np.int64]
Rates = list[list[Fraction]]

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=5)
RATES = st.sampled_from([Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(1)])


def some_rates(gpus: st.SearchStrategy[int]) -> st.SearchStrategy[list[Fraction]]:
    """NICs of a server, at least one of which works."""
    return gpus.flatmap(lambda size: st.lists(RATES, min_size=size, max_size=size)).filter(any)


ANY_SERVERS = st.lists(some_rates(st.integers(1, 5)), min_size=1, max_size=4)


def sizes_of(servers: Sequence[int | Sequence[object]]) -> list[int]:
    """GPUs of servers that are given by number, or by the rates of their NICs."""
    return [row if isinstance(row, int) else len(row) for row in servers]


def random_traffic(servers: Sequence[int | Sequence[object]], seed: int, most: int = 10**6) -> IntArray:
    """Even traffic with empty cells."""
    random = np.random.default_rng(seed)
    ranks = sum(sizes_of(servers))
    return random.integers(0, most, (ranks, ranks)) * (random.random((ranks, ranks)) < 0.7)


def planned(traffic: npt.ArrayLike, servers: Sequence[int | Sequence[object]], **options: object) -> AllToAllvSchedule:
    """Plan for servers, and verify."""
    sizes = sizes_of(servers)
    if not isinstance(servers[0], int):
        options["nics"] = servers
    schedule = schedule_all_to_allv(traffic, servers=len(sizes), gpus_per_server=sizes, **options)  # type: ignore[arg-type]
    schedule.verify()
    return schedule


def optimum_by_hand(traffic: IntArray, nics: Rates) -> Fraction:
    """Bytes that a server sends or receives, over the sum of its rates."""
    home = np.repeat(np.arange(len(nics)), [len(row) for row in nics])
    most = Fraction(0)
    for server, row in enumerate(nics):
        here = home == server
        for total in (traffic[here][:, ~here].sum(), traffic[~here][:, here].sum()):
            most = max(most, int(total) / sum(row))
    return most


@given(SIZES, st.integers(0, 10**6), st.sampled_from(list(STAGES)), st.sampled_from([2, 100, 10**7]), st.booleans())
@settings(max_examples=examples(120))
def test_stages_take_what_the_busiest_server_needs(
    sizes: list[int], seed: int, stages: str, most: int, short: bool
) -> None:
    """Verified, and at the bound but for whole bytes."""
    traffic = random_traffic(sizes, seed, most)
    schedule = planned(traffic, sizes, stages=stages, max_stage_bytes=max(1, most // 3) if short else None)
    assert schedule.sizes == tuple(sizes)
    assert schedule.lower_bound == optimum_by_hand(traffic, [[Fraction(1)] * size for size in sizes])
    rounding = schedule.scale_out_bytes - schedule.lower_bound
    assert rounding >= 0
    assert rounding <= schedule.servers - 1 or stages == "rotations"
    assert schedule.completion_time(H200) >= schedule.optimum(H200)


@given(SIZES, st.integers(0, 10**6))
@settings(max_examples=examples(60))
def test_gpus_only_use_links_that_they_have(sizes: list[int], seed: int) -> None:
    """All phases of the frame: inside servers, or one to one between them; in the end everybody has what is theirs."""
    schedule = planned(random_traffic(sizes, seed), sizes)
    home = np.repeat(np.arange(len(sizes)), sizes)
    frame = schedule.to_frame()
    inside = home[frame["source"]] == home[frame["destination"]]
    assert ((frame["phase"] == "stage") == ~inside).all()
    stages = frame[~inside]
    assert not stages.duplicated(["stage", "source"]).any()
    assert not stages.duplicated(["stage", "destination"]).any()
    assert (stages["bytes"].to_numpy() <= schedule.stage_bytes[stages["stage"]]).all()
    arrived = np.where(home[:, None] == home, schedule.traffic, 0)
    for part in range(schedule.servers):
        pieces = schedule.pieces(part)
        assert (home[pieces.origin] == home[pieces.proxy]).all()
        assert (home[pieces.peer] == home[pieces.final]).all()
        np.add.at(arrived, (pieces.origin, pieces.final), pieces.length)
    assert np.array_equal(arrived, schedule.traffic)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([2, 1000]))
@settings(max_examples=examples(60))
def test_the_kernel_is_that_of_equal_servers_where_they_are_equal(n: int, m: int, seed: int, most: int) -> None:
    """All arrays are the same to the last byte; a list of equal sizes says no more than a number."""
    traffic = random_traffic([m] * n, seed, most)
    prices = (1 / 450, 1 / 50, 2000.0, 1.0)
    equal = staged_exchange(traffic, n, m, 0, 2**62, prices)
    lanes = laned_exchange(traffic, (m,) * n, np.ones(n * m, dtype=np.int64), 0, 2**62, prices)
    for one, other in zip(equal, lanes, strict=True):
        assert np.array_equal(one, other)
    schedule = schedule_all_to_allv(traffic, servers=n, gpus_per_server=[m] * n)
    assert schedule.server_sizes == ()
    assert schedule.servers == n


def test_the_time_of_a_small_case_is_what_a_hand_works_out() -> None:
    """One GPU receives 8 bytes from three others, which take 2 and 3 each; 1 and 4 ns per byte and 1 µs per step."""
    traffic = np.zeros((4, 4), dtype=np.int64)
    traffic[0, 3], traffic[1, 2] = 9000, 600
    schedule = planned(traffic, [3, 1], stages="plain")
    assert (schedule.servers, schedule.gpus_per_server, schedule.lower_bound) == (4, 1, 9000)
    # GPU 0 keeps 3000 bytes and hands as many to each neighbor; 600 bytes go from GPU 1 to 2 beside the stages.
    model = TwoTierModel(1, "0.25", wake_up=1)
    assert schedule.times(model, "balance first") == (2 + 3 + 3, 3 + 36, 0, Fraction("1.6"))
    assert schedule.num_stages == 3
    assert schedule.times(model) == (1 + 3, 3 + 36, 0, Fraction("1.6"))


def test_wrong_sizes_are_found() -> None:
    """Of other parts, or of other servers than the streams are between; copies keep theirs."""
    schedule = planned(random_traffic([4, 2, 2], 3), [4, 2, 2], stages="plain")
    assert (schedule.servers, schedule.gpus_per_server) == (4, 2)
    assert repr(schedule).startswith("<AllToAllvSchedule: 3 servers of 2 to 4 GPUs")
    for sizes, problem in (
        ((4, 3, 1), "expected 4 parts of 2"),
        ((4, 2), "shape"),
        ((8, 0), "GPUs"),
        ((2, 4, 2), "other servers"),
        ((), "servers"),
    ):
        with pytest.raises(CertificateError, match=problem):
            replace(schedule, server_sizes=sizes).verify()
    copy = pickle.loads(pickle.dumps(schedule))
    copy.verify()
    assert copy.server_sizes == (4, 2, 2)
    for name in ARRAYS:
        assert np.array_equal(getattr(copy, name), getattr(schedule, name))
        assert not getattr(copy, name).flags.writeable


def network(nics: Rates, scale_up: int) -> collopt.Topology:
    """GPUs at a switch of their server, and those with NICs at one for all; NICs of rate 1 have 1 GB/s."""
    links, rank = [], 0
    for server, row in enumerate(nics):
        for rate in row:
            ends = [(f"s{server}", Fraction(scale_up))] + [("fabric", rate)] * (rate > 0)
            links += [(*pair, width) for end, width in ends for pair in ((f"g{rank}", end), (end, f"g{rank}"))]
            rank += 1
    switches = ["fabric", *(f"s{server}" for server in range(len(nics)))]
    return collopt.Topology.from_links(links, compute=[f"g{rank}" for rank in range(rank)], switches=switches)


@given(ANY_SERVERS, st.integers(0, 10**6), st.sampled_from(["plain", "fewest", "rotations", None]), st.booleans())
@settings(max_examples=examples(30))
def test_nics_carry_no_more_than_their_rate(nics: Rates, seed: int, stages: str | None, short: bool) -> None:
    """Everything arrives at the bound but for whole bytes; GPUs without a NIC hand over what they have for others."""
    traffic = random_traffic(nics, seed)
    schedule = planned(traffic, nics, stages=stages, max_stage_bytes=300_000 if short else None)
    rates = np.array([rate for row in nics for rate in row])
    assert schedule.optimum(H200) == optimum_by_hand(traffic, nics) / 50_000
    over = schedule.scale_out_bytes - schedule.lower_bound
    assert over >= 0
    assert over <= schedule.servers or stages not in {"plain", "fewest"}
    arrived = np.where(schedule.homes[:, None] == schedule.homes, traffic, 0)
    carried = np.zeros((2, schedule.num_stages, len(rates)), dtype=np.int64)
    for part in range(schedule.servers):
        pieces = schedule.pieces(part)
        np.add.at(arrived, (pieces.origin, pieces.final), pieces.length)
        for end, ranks in enumerate((pieces.proxy, pieces.peer)):
            np.add.at(carried[end], (pieces.stage, ranks), pieces.length)
    assert (carried * schedule.lane_rate <= np.multiply.outer(schedule.stage_bytes, rates)).all()
    assert not short or carried.max(initial=0) <= 300_000
    assert np.array_equal(arrived, traffic)


@given(ANY_SERVERS, st.integers(0, 10**6), st.sampled_from(["plain", None]), st.booleans())
@settings(max_examples=examples(30))
def test_times_keep_their_guarantee(nics: Rates, seed: int, stages: str | None, mesh: bool) -> None:
    """Of few senders too, where scale-up is as fast as all NICs of a server, or its links twice as fast as one."""
    traffic = random_traffic(nics, seed)
    traffic[np.random.default_rng(seed).random(len(traffic)) < 0.5] = 0
    home = np.repeat(np.arange(len(nics)), [len(row) for row in nics])
    traffic[home[:, None] == home] = 0
    model = TwoTierModel(50 * 5, 50, scale_up_link=100 if mesh else None)
    schedule = planned(traffic, nics, stages=stages, max_stage_bytes=100_000)
    assert schedule.optimum(model) <= schedule.completion_time(model) <= schedule.time_guarantee(model)
    assert schedule.optimum(model) <= schedule.completion_time(model, PIPELINES[1])
    lanes = schedule.lane_counts.max()
    assert (schedule.scratch_bytes <= 4 * lanes * schedule.stage_bytes[-1:].sum()).all()


@pytest.mark.parametrize("servers", [2, 3])
@given(st.data())
@settings(max_examples=examples(9))
def test_the_bound_is_the_linear_programs(servers: int, data: st.DataObject) -> None:
    """The largest concurrent flow of all GPUs over all paths, with any rates, takes what the stages do."""
    nics = data.draw(st.lists(some_rates(st.just(2)), min_size=servers, max_size=servers))
    traffic = random_traffic(nics, data.draw(st.integers(0, 1000)), 100)
    traffic[0, -1] = 10
    np.fill_diagonal(traffic, 0)
    schedule = planned(traffic * 10**6, nics, stages="plain")
    plan = collopt.plan(network(nics, 18), "all_to_allv", traffic=traffic.tolist(), planner="multicommodity")
    assert plan.gap == 0
    assert Fraction(int(traffic.sum()), len(traffic)) / plan.algbw == optimum_by_hand(traffic, nics)
    assert schedule.scale_out_bytes - schedule.lower_bound <= schedule.servers


@pytest.mark.parametrize(("dead", "neighbor"), [(1, Fraction(7, 4)), (2, Fraction(3, 2)), (4, Fraction(1))])
def test_failed_nics_cost_their_share(dead: int, neighbor: Fraction) -> None:
    """Not what neighbors cost that each carry the stream of a failed one: 1.75 times the bound for one of eight."""
    nics = [[1] * 8 for _ in range(4)]
    nics[1][:dead] = [0] * dead
    traffic = random_traffic(np.ones((4, 8)).tolist(), 1, 10**8)
    traffic[8:16] *= 2
    traffic[:, 8:16] *= 2
    schedule = planned(traffic, nics)
    whole = schedule_all_to_allv(traffic, servers=4, gpus_per_server=8)
    assert 2 * whole.optimum(H200) == neighbor * schedule.optimum(H200)
    assert 1 < schedule.completion_time(H200) / schedule.optimum(H200) < Fraction("1.02")
    assert schedule.servers == 4


def test_wrong_lanes_are_found() -> None:
    """Copies keep NICs, rates of 1 say nothing, and NICs that other streams would need are refused."""
    nics = [[1, 1], [1, 0], [1, Fraction(1, 2)]]
    schedule = planned(random_traffic([[Fraction(1)] * 2] * 3, 3), nics)
    copy = pickle.loads(pickle.dumps(schedule))
    copy.verify()
    assert copy.nics == schedule.nics != ()
    assert planned(schedule.traffic, [[1, 1]] * 3).nics == ()
    for wrong, problem in (
        (((1, 0), (1, 1), (1, Fraction(1, 2))), "no lane"),
        (((1, 1), (1, 0)), "GPUs"),
        (((1, 1), (0, 0), (1, 1)), "no NIC"),
        (((1, 1), (1, -1), (1, 1)), "no NIC"),
        (((1, 1), (1, 0), (1, 4)), "expected 3 parts of 4"),
    ):
        with pytest.raises(CertificateError, match=problem):
            replace(schedule, nics=wrong).verify()
