"""FAST on the paper's examples, adversaries and bad input, and its baselines."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from all_to_allv_baselines import (
    BASELINES,
    ProxyExchange,
    at_once,
    hierarchical,
    padded,
    pxn,
    spread_out,
    two_hop,
    unbalanced_birkhoff,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CertificateError, UnsupportedError
from collopt.planners.all_to_all.fast import STAGES, schedule_all_to_allv
from collopt.schedules.stages.schedule import AllToAllvSchedule
from collopt.schedules.stages.segments import ARRAYS
from collopt.schedules.stages.two_tier_cost import H200, MI300X, PIPELINES, TwoTierModel
from collopt.solvers.steps.stages import SEARCH_NS
from sample_sizes import examples

IntArray = npt.NDArray[np.int64]

FOUR_SERVERS = np.array([[0, 2, 1, 5], [3, 0, 4, 6], [1, 6, 0, 3], [5, 1, 2, 0]])
"""As in FAST's Figure 9 server D receives most, 14 units, and SpreadOut takes 17."""
THREE_SERVERS = np.array(
    [
        [0, 0, 3, 2, 2, 1],
        [0, 0, 3, 2, 2, 1],
        [1, 1, 0, 0, 1, 1],
        [3, 3, 0, 0, 2, 2],
        [2, 2, 2, 1, 0, 0],
        [2, 2, 2, 1, 0, 0],
    ]
)
"""As in FAST's Figure 10 GPU B1 sends 10 units and B0 receives 10, but no server more than 8 per GPU."""
UNIT = TwoTierModel(10**6, 1, wake_up=0)
"""One byte between servers per ns, and inside servers next to no time."""


PAPERS = PIPELINES[1]


def papers(traffic: IntArray, n: int, m: int) -> AllToAllvSchedule:
    """The schedule of the paper, verified: plain stages, not cut."""
    schedule = schedule_all_to_allv(traffic, servers=n, gpus_per_server=m, stages="plain", max_stage_bytes=2**62)
    schedule.verify()
    return schedule


def zipf_cells(n: int, m: int, skew: float, seed: int) -> IntArray:
    """As before, but by one law for all pairs of ranks together, which is far more uneven."""
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, (n * m) ** 2 + 1) ** skew
    return (random.permutation(shares * 50e6 * len(shares) / shares.sum()).reshape(n * m, n * m)).astype(np.int64)


@pytest.mark.parametrize("stages", STAGES)
def test_figure_9_takes_14_and_spread_out_17(stages: str) -> None:
    """Servers of one GPU; rotations are the shifts of SpreadOut then."""
    schedule = schedule_all_to_allv(FOUR_SERVERS, servers=4, gpus_per_server=1, stages=stages)
    schedule.verify()
    assert schedule.lower_bound == 14
    assert schedule.scale_out_bytes == (17 if stages == "rotations" else 14)
    assert schedule.completion_time(UNIT) * 1000 == schedule.scale_out_bytes
    assert spread_out(FOUR_SERVERS, servers=4, gpus_per_server=1).completion_time(UNIT) * 1000 == 17
    assert unbalanced_birkhoff(FOUR_SERVERS, servers=4, gpus_per_server=1).completion_time(UNIT) * 1000 == 14


def test_balancing_lowers_the_bound_from_10_to_8() -> None:
    """Figure 10: three servers of two GPUs."""
    schedule = papers(THREE_SERVERS, 3, 2)
    assert (schedule.unbalanced_bound, schedule.lower_bound, schedule.scale_out_bytes) == (10, 8, 8)
    assert unbalanced_birkhoff(THREE_SERVERS, servers=3, gpus_per_server=2).completion_time(UNIT) * 1000 == 10


@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from(["random", "zipf", "sparse", "hot"]),
    st.sampled_from(list(STAGES)),
    st.sampled_from([None, 1, 10]),
)
@settings(max_examples=examples(80))
def test_schedules_hold_on_any_traffic(seed: int, n: int, m: int, kind: str, stages: str, cuts: int | None) -> None:
    """Verified, at the exact bound of whole bytes, and with stages no larger than allowed."""
    random = np.random.default_rng(seed)
    traffic = random.integers(0, 10**5, (n * m, n * m))
    if kind == "zipf":
        traffic = zipf_cells(n, m, 0.4 + random.random() / 2, seed)
    elif kind == "sparse":
        traffic *= random.random((n * m, n * m)) < 0.1
    elif kind == "hot":
        traffic[:, random.integers(n * m)] *= 1000
    whole = schedule_all_to_allv(traffic, servers=n, gpus_per_server=m, stages=stages, max_stage_bytes=2**62)
    most = None if cuts is None else max(1, ceil(whole.lower_bound) // cuts)
    schedule = schedule_all_to_allv(traffic, servers=n, gpus_per_server=m, stages=stages, max_stage_bytes=most)
    schedule.verify()
    rounding = schedule.scale_out_bytes - schedule.lower_bound
    assert rounding >= 0
    assert rounding <= n - 1 or stages == "rotations"
    assert schedule.scale_out_bytes == whole.scale_out_bytes
    assert whole.num_stages <= n - 1 or stages != "rotations"
    assert schedule.scratch_bytes.max() <= 4 * schedule.stage_bytes.max(initial=0)
    assert most is None or schedule.stage_bytes.max(initial=0) <= most
    assert whole.num_stages <= n * n - 2 * n + 2


def test_the_same_matrix_gives_the_same_schedule_in_any_form() -> None:
    """Frames, lists, other integers, other orders of memory."""
    traffic = np.random.default_rng(0).integers(0, 1000, (12, 12))
    expected = schedule_all_to_allv(traffic, servers=3, gpus_per_server=4)
    for same in (
        pd.DataFrame(traffic),
        traffic.tolist(),
        traffic.astype(np.uint64),
        traffic.astype(np.int16),
        np.asfortranarray(traffic),
        np.repeat(traffic, 2, axis=1)[:, ::2],
    ):
        schedule = schedule_all_to_allv(same, servers=np.int64(3), gpus_per_server=4)
        for name in ARRAYS:
            assert np.array_equal(getattr(schedule, name), getattr(expected, name))


def one_gpu_each(n: int) -> IntArray:
    """GPU 0 of each of n servers of 8 has all for GPU 0 of the others, as much as even cells of 50 MB are."""
    traffic = np.zeros((8 * n, 8 * n), dtype=np.int64)
    traffic[::8, ::8] = np.random.default_rng(n).integers(0, 64 * 10**8, (n, n)) * ~np.eye(n, dtype=np.bool_)
    return traffic


KINDS = {
    "uniform": lambda n: np.random.default_rng(n).integers(0, 10**8, (8 * n, 8 * n)),
    "zipf cells": lambda n: zipf_cells(n, 8, 0.8, n),
    "adversary": one_gpu_each,
}


@pytest.mark.parametrize("n", [2, 4, 8, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_times_are_near_the_optimum_in_little_scratch(n: int, kind: str) -> None:
    """Cells of 50 MB take 2 % more than the bound and 10 % of the buffer; 100 MB per GPU a quarter of it.

    Stages are found in the way that is best, or nearly so, with the time that this takes.
    """
    shape = {"servers": n, "gpus_per_server": 8}
    traffic = KINDS[kind](n)
    schedule = schedule_all_to_allv(traffic, **shape)
    factor = schedule.completion_time(H200) / schedule.optimum(H200)
    assert 1 <= factor <= Fraction("1.02" if n > 2 else "1.04")
    assert schedule.completion_time(MI300X) / schedule.optimum(MI300X) <= factor
    assert schedule.scratch_bytes.max() * 10 <= traffic.sum(axis=1).mean()
    small = traffic * 2 // (8 * n)
    schedule = schedule_all_to_allv(small, **shape)
    assert schedule.scratch_bytes.max() * 4 <= small.sum(axis=1).mean()
    best = min(schedule_all_to_allv(small, **shape, stages=stages).completion_time(H200) for stages in STAGES)
    assert schedule.completion_time(H200) <= best * Fraction("1.03") + Fraction(SEARCH_NS) / 1000 * n**3


@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.integers(2, 8),
    st.sampled_from(list(STAGES)),
    st.sampled_from([1, 5, 64]),
)
@settings(max_examples=examples(60))
def test_steps_take_no_longer_than_guaranteed(seed: int, n: int, m: int, stages: str, cuts: int) -> None:
    """With B_1 = m B_2, whatever the matrix: sparse, heavy-tailed or of few senders."""
    random = np.random.default_rng(seed)
    traffic = (random.pareto(1, (n * m, n * m)) * 1000).astype(np.int64)
    traffic *= random.random(traffic.shape) < random.random()
    traffic[random.random(n * m) < random.random()] = 0
    home = np.arange(n * m) // m
    traffic[home[:, None] == home] = 0
    shape = {"servers": n, "gpus_per_server": m}
    most = max(1, int(schedule_all_to_allv(traffic, **shape).lower_bound) // cuts)
    schedule = schedule_all_to_allv(traffic, **shape, stages=stages, max_stage_bytes=most)
    model = TwoTierModel(50 * m, 50, wake_up=random.integers(3))
    assert schedule.optimum(model) <= schedule.completion_time(model) <= schedule.time_guarantee(model)


def test_scratch_is_limited() -> None:
    """Shorter stages keep it where none are given; otherwise the error says what would do."""
    traffic = KINDS["adversary"](4)
    free = schedule_all_to_allv(traffic, servers=4, gpus_per_server=8)
    most = int(free.scratch_bytes.max())
    least = schedule_all_to_allv(traffic, servers=4, gpus_per_server=8, max_scratch_bytes=most // 3)
    assert least.scratch_bytes.max() <= most // 3
    assert least.num_stages > free.num_stages
    options = {"servers": 4, "gpus_per_server": 8, "max_stage_bytes": 10**8, "max_scratch_bytes": most // 3}
    with pytest.raises(UnsupportedError, match=f"max_scratch_bytes is {most // 3}; expected at least") as refused:
        schedule_all_to_allv(traffic, **options)
    assert str(refused.value).endswith(f"or max_stage_bytes of at most {most // 3 // 4}")
    schedule_all_to_allv(traffic, **(options | {"max_stage_bytes": most // 3 // 4}))
    needed = int(str(refused.value).split()[3])
    schedule_all_to_allv(traffic, **(options | {"max_scratch_bytes": needed}))
    with pytest.raises(UnsupportedError, match="bytes of scratch on rank"):
        schedule_all_to_allv(traffic, servers=4, gpus_per_server=8, max_scratch_bytes=1000)
    with pytest.raises(UnsupportedError, match=r"max_scratch_bytes is 3; expected at least [0-9]+$"):
        schedule_all_to_allv(traffic, servers=4, gpus_per_server=8, max_scratch_bytes=3)


def test_units_are_not_divided() -> None:
    """Options stay in bytes."""
    tokens = np.random.default_rng(1).integers(0, 10**4, (16, 16))
    options = {"servers": 2, "gpus_per_server": 8, "max_stage_bytes": 10**6, "max_scratch_bytes": 4 * 10**6}
    schedule = schedule_all_to_allv(tokens, unit_bytes=7168, **options)
    schedule.verify()
    assert 10**6 - 7168 < int(schedule.stage_bytes[-1]) * 7168 <= 10**6
    assert schedule.lower_bound == schedule_all_to_allv(tokens, servers=2, gpus_per_server=8).lower_bound


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(2, 8), st.sampled_from([1, 2, 9]), st.booleans())
@settings(max_examples=examples(60))
def test_concentrated_traffic_stays_within_the_worst_case(seed: int, n: int, m: int, spare: int, local: bool) -> None:
    """Few GPUs send to few, local traffic is as much as allowed, and B_1 as little as allowed or more."""
    random = np.random.default_rng(seed)
    model = TwoTierModel(50 * (m - 1) * spare, 50, wake_up=0)
    traffic = np.zeros((n * m, n * m), dtype=np.int64)
    for _ in range(random.integers(1, 3 * n)):
        source, destination = random.integers(n, size=2) * m + random.integers(0, m, 2) ** 2 // m
        if source // m != destination // m:
            traffic[source, destination] += random.integers(1, 1000) * m * n * 10**5
    sent = traffic.reshape(n, -1).sum(axis=1)
    if local:
        traffic[np.arange(n) * m, np.arange(n) * m + random.integers(1, m, n)] = sent // n
    schedule = papers(traffic, n, m)
    assert schedule.completion_time(model, PAPERS) <= model.worst_factor(m) * schedule.optimum(model)


def test_theorem_3_as_printed_does_not_hold() -> None:
    """One GPU sends to one GPU: balancing and redistributing both move 7/8 of it, (m - 1) B_2/B_1 of the optimum."""
    model = TwoTierModel(450, 50, wake_up=0)
    traffic = np.zeros((16, 16), dtype=np.int64)
    traffic[0, 8] = 720 * 8 * 10**6
    schedule = papers(traffic, 2, 8)
    factor = schedule.completion_time(model, PAPERS) / schedule.optimum(model)
    assert factor == 1 + Fraction(14, 9) == model.worst_factor(8)
    assert factor > 1 + Fraction(50, 450) * (8 + Fraction(8, 2))


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (3, 4)])
def test_baselines_send_everything(name: str, shape: tuple[int, int]) -> None:
    """Those in steps one to one; those without proxies are not faster than the bound of the largest row or column."""
    n, m = shape
    traffic = np.random.default_rng(1).integers(0, 1000, (n * m, n * m))
    exchange = BASELINES[name](traffic, servers=n, gpus_per_server=m)
    exchange.verify()
    frame = exchange.to_frame()
    apart = frame[frame["source"] // m != frame["destination"] // m]
    if name in ("spread-out", "birkhoff", "padded"):
        assert not apart.duplicated(["stage", "source"]).any()
        assert not apart.duplicated(["stage", "destination"]).any()
    schedule = schedule_all_to_allv(traffic, servers=n, gpus_per_server=m)
    _, origin, proxy, final, _ = exchange.moves.T
    has_proxies = bool(((proxy != origin) & (proxy != final)).any())
    assert has_proxies == (name in ("pxn", "two-hop", "hierarchical") and n > 1 < m)
    bound = schedule.lower_bound if has_proxies else schedule.unbalanced_bound
    assert exchange.completion_time(UNIT) * 1000 >= bound
    if len(frame):
        with pytest.raises(CertificateError, match="bytes are sent"):
            ProxyExchange(name, exchange.traffic, n, m, exchange.moves[1:]).verify()


def test_proxies_aggregate_flows_and_a_hierarchy_waits() -> None:
    """Two servers of two: three GPU pairs of 10 bytes; PXN meets one flow at a GPU where direct sends meet two."""
    traffic = np.zeros((4, 4), dtype=np.int64)
    traffic[0, 2] = traffic[1, 2] = traffic[1, 3] = 10
    slow = TwoTierModel(1, 1, wake_up=0)
    shape = {"servers": 2, "gpus_per_server": 2}
    assert at_once(traffic, **shape).completion_time(slow, incast_loss=1) * 1000 == 40
    assert pxn(traffic, **shape).completion_time(slow, incast_loss=1) * 1000 == 20
    assert hierarchical(traffic, **shape).completion_time(slow, incast_loss=1) * 1000 == 30
    assert two_hop(traffic, **shape).completion_time(slow, incast_loss=1) * 1000 == 20
    assert padded(traffic, **shape).completion_time(slow) * 1000 == 20
    # Every further flow into a receiver costs a tenth.
    incast = np.zeros((4, 4), dtype=np.int64)
    incast[:3, 3] = 10
    assert at_once(incast, servers=4, gpus_per_server=1).completion_time(UNIT, incast_loss="0.1") * 1000 == 36
    hops = two_hop(traffic, **shape).to_frame()
    assert hops.loc[hops["source"] == 3, "destination"].tolist() == [2]


def test_too_many_servers_for_memory_are_refused() -> None:
    """By their number, or by the stages that they need."""
    with pytest.raises(UnsupportedError, match="1025 servers"):
        schedule_all_to_allv(np.zeros((1025, 1025), dtype=int), servers=1025, gpus_per_server=1)
    traffic = np.random.default_rng(0).integers(0, 10**6, (560, 560))
    with pytest.raises(UnsupportedError, match="fewest"):
        schedule_all_to_allv(traffic, servers=560, gpus_per_server=1, stages="plain")
