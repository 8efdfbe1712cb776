"""FAST on servers of unequal sizes: what is moved, how fast, and what checks find."""

from __future__ import annotations

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CertificateError
from collopt.planners.all_to_all.fast import STAGES, schedule_all_to_allv
from collopt.schedules.stages.schedule import AllToAllvSchedule
from collopt.schedules.stages.segments import ARRAYS
from collopt.schedules.stages.two_tier_cost import H200, TwoTierModel
from collopt.solvers.steps.stages import laned_exchange, staged_exchange
from sample_sizes import examples

IntArray = npt.NDArray[np.int64]

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def random_traffic(sizes: list[int], seed: int, most: int = 10**6, full: float = 0.7) -> IntArray:
    """Even traffic with empty cells."""
    random = np.random.default_rng(seed)
    ranks = sum(sizes)
    return random.integers(0, most, (ranks, ranks)) * (random.random((ranks, ranks)) < full)


def planned(traffic: IntArray, sizes: list[int], **options: object) -> AllToAllvSchedule:
    """Verified."""
    schedule = schedule_all_to_allv(traffic, servers=len(sizes), gpus_per_server=sizes, **options)
    schedule.verify()
    return schedule


def bound_by_hand(traffic: IntArray, sizes: list[int]) -> Fraction:
    """What a server sends or receives over its GPUs."""
    ends = np.cumsum(sizes).tolist()
    most = Fraction(0)
    for end, size in zip(ends, sizes, strict=True):
        here = np.zeros(len(traffic), dtype=bool)
        here[end - size : end] = True
        for total in (traffic[here][:, ~here].sum(), traffic[~here][:, here].sum()):
            most = max(most, Fraction(int(total), size))
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
    assert schedule.lower_bound == bound_by_hand(traffic, sizes)
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
