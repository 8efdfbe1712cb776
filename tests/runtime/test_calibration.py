"""Fitting a network's figures to measured times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import TopologyError, UnsupportedError
from collopt.planners import plan
from collopt.runtime.measuring.calibration.calibrate import Measurement, calibrate, fit_alpha_beta, fit_times
from collopt.runtime.measuring.calibration.measured_times import MeasuredRow, MeasuredTimes
from collopt.topologies import Topology, dgx_a100, ring
from sample_sizes import examples

SIZES = tuple(2**power for power in range(8, 31))


def measured(
    time: Callable[[int], float], collective: str | None = "sendrecv", num_ranks: int | None = 2, **options: Any
) -> MeasuredTimes:
    """Times as a function of the size has them, with noise."""
    noise, seed = options.get("noise", 0.0), options.get("seed", 0)
    factors = 1 + noise * np.random.default_rng(seed).uniform(-1, 1, len(SIZES))
    rows = tuple(MeasuredRow(size, time(size) * factor) for size, factor in zip(SIZES, factors.tolist(), strict=True))
    return MeasuredTimes(options.get("source", "times.txt"), collective, num_ranks, rows)


@settings(max_examples=examples(40))
@given(
    alpha=st.floats(1, 100),
    bandwidth=st.floats(5, 900),
    noise=st.sampled_from([0, 0.01, 0.05]),
    seed=st.integers(0, 99),
)
def test_alpha_and_bandwidth_are_recovered(alpha: float, bandwidth: float, noise: float, seed: int) -> None:
    """From noisy times of a known link, within what the noise allows."""
    line = fit_times(measured(lambda size: alpha + size / bandwidth / 1e3, noise=noise, seed=seed))
    assert line.latency == pytest.approx(alpha, rel=1e-6 + 2 * noise)
    assert 1 / line.slope == pytest.approx(bandwidth, rel=1e-6 + 2 * noise)
    assert line.median_residual <= noise + 1e-9
    assert line.has_latency
    assert line.has_slope


def test_one_stray_time_does_not_tilt_the_line() -> None:
    """A run that took ten times as long as the others."""
    times = measured(lambda size: 5 + size / 25e3)
    rows = [row._replace(microseconds=row.microseconds * (10 if row.size == 2**20 else 1)) for row in times.rows]
    line = fit_times(MeasuredTimes("times.txt", "sendrecv", 2, tuple(rows)))
    assert (line.latency, 1 / line.slope) == (pytest.approx(5, rel=0.03), pytest.approx(25, rel=0.03))
    assert line.worst_residual > 0.5


def test_confidence_intervals_mostly_hold() -> None:
    """About 95 of 100 have the true value."""
    inside = 0
    for seed in range(100):
        line = fit_times(measured(lambda size: 5 + size / 25e3, noise=0.05, seed=seed))
        inside += abs(line.slope - 1 / 25) <= line.slope_error
    assert inside >= 80


def test_links_of_two_classes_get_their_own_figures() -> None:
    """Times between two GPUs of a box, and between two boxes."""
    box = measured(lambda size: 4 + size / 240e3, source="box.txt")
    net = measured(lambda size: 12 + size / 22e3, source="net.txt")
    before = dgx_a100(boxes=2)
    found = calibrate(before, [Measurement(box, ("gpu-nvswitch",)), Measurement(net, ("gpu-nic", "nic-ib"))])
    after = found.topology
    assert after.link("box0/gpu3", "box0/nvswitch")[2:] == (240, 2)
    nic, fabric = after.link("box1/gpu3", "box1/nic3"), after.link("box1/nic3", "ib")
    assert (nic.bandwidth, fabric.bandwidth) == (22, 22)
    assert 2 * (nic.latency + fabric.latency) == pytest.approx(12, rel=0.01)
    # In the proportion that they had.
    assert nic.latency / fabric.latency == pytest.approx(0.35 / 0.5, rel=0.01)
    assert found.models == (
        "box.txt: sendrecv, one message over box0/gpu0 - box0/nvswitch - box0/gpu1",
        "net.txt: sendrecv, one message over box0/gpu0 - box0/nic0 - ib - box0/nic1 - box0/gpu1",
    )
    assert [row["together"] for row in found.rows()] == [["gpu-nvswitch"], *[["gpu-nic", "nic-ib"]] * 2]
    assert (after.compute_nodes, after.switch_nodes) == (before.compute_nodes, before.switch_nodes)


def test_links_that_nobody_measured_stay_as_they_are() -> None:
    """And their row says so."""
    before = dgx_a100(boxes=2)
    found = calibrate(before, [Measurement(measured(lambda size: 4 + size / 240e3), ("gpu-nvswitch",))])
    assert found.topology.link("box0/nic0", "ib") == before.link("box0/nic0", "ib")
    row = found.rows()[2]
    assert (row["points"], row["bandwidth_error"], row["bandwidth"]) == (0, None, 25.0)


@pytest.mark.parametrize(
    ("collective", "share", "messages"),
    [
        ("broadcast", 1, 1),
        ("allgather", 0.5, 1),
        ("reduce_scatter", 0.5, 1),
        ("all_to_all", 0.5, 1),
        ("allreduce", 1, 2),
    ],
)
def test_collectives_of_two_ranks_count_bytes_and_messages(collective: str, share: float, messages: int) -> None:
    """Each as nccl-tests counts its size."""
    times = measured(lambda size: 6 * messages + size * share / 50e3, collective)
    (link, _) = calibrate(ring(2, bandwidth=1), [times]).topology.links
    assert (link.bandwidth, link.latency) == (50, 6)


@settings(max_examples=examples(20))
@given(
    slower=st.sampled_from([Fraction(1, 2), Fraction(4, 5), Fraction(1)]),
    later=st.integers(1, 40),
    collective=st.sampled_from(["allgather", "allreduce", "broadcast"]),
)
def test_times_of_the_ring_itself_give_back_its_network(slower: Fraction, later: int, collective: str) -> None:
    """What the calibrated network predicts is what was measured."""
    described = ring(4, bandwidth=40, latency=1)
    real = Topology.from_links(
        [(*link[:2], link.bandwidth * slower, link.latency * later) for link in described.links],
        compute=described.compute_nodes,
    )
    made = plan(real, collective, planner="ring", **({"root": 0} if collective == "broadcast" else {}))
    found = calibrate(described, [measured(made.estimate, collective, 4, noise=0.01)])
    assert found.topology.links[0].bandwidth == pytest.approx(float(real.links[0].bandwidth), rel=0.02)
    assert found.topology.links[0].latency == pytest.approx(later, rel=0.02)


def test_several_collectives_of_all_ranks_are_fitted_together() -> None:
    """One factor that suits both."""
    described = dgx_a100(boxes=2)
    runs = []
    for collective in ("allgather", "allreduce"):
        made = plan(described, collective, planner="ring")
        runs.append(measured(lambda size, made=made: 2 * made.estimate(size), collective, 16))  # type: ignore[misc]
    found = calibrate(described, runs)
    assert [(link.bandwidth, link.latency) for link in found.topology.links[:1]] == [(150, Fraction(7, 10))]
    assert found.fits[0].line is not None
    assert found.fits[0].line.num_points == 2 * len(SIZES)


def test_sizes_that_tell_no_latency_leave_it_alone() -> None:
    """All of them large: the latency drowns in the noise."""
    times = measured(lambda size: 5 + size / 25e3, noise=0.02)
    large = MeasuredTimes("times.txt", "sendrecv", 2, tuple(row for row in times.rows if row.size >= 2**26))
    found = calibrate(ring(2, bandwidth=30, latency=7), [large])
    (fit,) = found.fits
    assert (fit.latency_error, fit.latency) == (None, 7)
    assert fit.bandwidth == pytest.approx(25, rel=0.03)
    assert found.topology.links[0].latency == 7


def rows(*sizes: int) -> MeasuredTimes:
    """A time for each size."""
    return MeasuredTimes("times.txt", "sendrecv", 2, tuple(MeasuredRow(size, 5.0) for size in sizes))


@pytest.mark.parametrize(
    ("times", "classes", "message"),
    [
        (rows(64, 64), ("gpu-nic", "nic-ib"), "times.txt: there are 2 measured times; expected at least 3"),
        (rows(64, 64, 64), ("gpu-nic", "nic-ib"), "cannot separate latency from bandwidth; measure at least two"),
        (measured(float, None), ("gpu-nvswitch",), "times.txt does not say which collective was measured"),
        (measured(float), (), "measured on 2 ranks, and the network has 16; name the link classes between them"),
        (measured(float, num_ranks=4), (), "measured on 4 ranks, and the network has 16; give the network"),
        (measured(float, num_ranks=16), ("nic-ib",), "link classes go with times between two; leave them out"),
        (
            measured(float, num_ranks=16),
            (),
            "measured sendrecv on 16 ranks, which no plan models; measure it between",
        ),
        (measured(float, "gather", 16), (), "name the link classes between them: --class NAMES=FILE"),
        (measured(float, "all_to_allv", 16), (), "times.txt: "),
        (measured(float), ("nic-ib",), "no two ranks are connected by these links alone"),
        (measured(float), ("gpu-nvswitch", "gpu-nic", "nic-ib"), "is about gpu-nic, but the shortest path"),
        (measured(float, "all_to_allv"), ("gpu-nvswitch",), "there is no model of all_to_allv between two ranks"),
    ],
)
def test_measurements_that_do_not_fit_are_refused(times: MeasuredTimes, classes: tuple[str, ...], message: str) -> None:
    """Each with its reason."""
    with pytest.raises(UnsupportedError) as caught:
        calibrate(dgx_a100(boxes=2), [Measurement(times, classes)])
    assert message in str(caught.value)


def test_classes_are_measured_together_or_apart() -> None:
    """Not overlapping, for which the factors would have no meaning."""
    runs = [Measurement(measured(float), ("gpu-nvswitch",)), Measurement(measured(float, num_ranks=16), ())]
    with pytest.raises(UnsupportedError, match="are both about gpu-nvswitch"):
        calibrate(dgx_a100(boxes=2), runs)
    with pytest.raises(UnsupportedError, match="no measurements"):
        calibrate(dgx_a100(), [])
    with pytest.raises(TopologyError, match=r"no link class 'gpu-nick' \(did you mean gpu-nic\?\)"):
        calibrate(dgx_a100(boxes=2), [Measurement(measured(float), ("gpu-nick",))])


def test_times_that_show_nothing_are_refused() -> None:
    """Noise, of which half is far from every line."""
    rows = tuple(MeasuredRow(size, 10.0 ** (number % 5)) for number, size in enumerate(SIZES))
    with pytest.raises(UnsupportedError, match=r"times\.txt: the times determine neither latency nor bandwidth"):
        calibrate(ring(2), [MeasuredTimes("times.txt", "sendrecv", 2, rows)])


def test_plans_in_steps_are_no_model() -> None:
    """Their times bend where latency and bandwidth change places."""
    with pytest.raises(UnsupportedError, match="plans in steps here"):
        calibrate(ring(4, bandwidth=5), [measured(float, "allgather", 4)], planner="bfb")


def test_a_fit_needs_two_unknowns_that_differ() -> None:
    """Also in the regression itself."""
    ones = np.ones(4)
    with pytest.raises(UnsupportedError, match="cannot separate latency from bandwidth"):
        fit_alpha_beta(ones, np.zeros(4), ones)


def rounded(sizes: Sequence[int], time: Callable[[int], float], digits: int = 2) -> MeasuredTimes:
    """Times as they are printed."""
    rows = (MeasuredRow(size, round(time(size), digits), rounding=0.5 * 0.1**digits) for size in sizes)
    return MeasuredTimes("times.txt", "sendrecv", 2, tuple(rows))


def test_rounded_times_of_small_sizes_tell_no_bandwidth() -> None:
    """At 200 GB/s, 128 bytes take less than the last digit shows."""
    line = fit_times(rounded((8, 16, 32, 64, 128), lambda size: 4 + size / 200e3))
    assert (line.has_latency, line.has_slope) == (True, False)
    assert line.latency == pytest.approx(4, abs=0.01)
    assert 0.004 < line.latency_error < 0.02


@settings(max_examples=examples(40))
@given(alpha=st.floats(1, 30), bandwidth=st.floats(5, 900), digits=st.integers(0, 3), largest=st.integers(12, 30))
def test_errors_cover_what_rounding_does(alpha: float, bandwidth: float, digits: int, largest: int) -> None:
    """True figures lie within the error, whether or not the sizes tell them."""
    sizes = [2**power for power in range(3, largest)]
    line = fit_times(rounded(sizes, lambda size: max(1, alpha + size / bandwidth / 1e3), digits))
    assert abs(line.latency - alpha) <= line.latency_error + 1e-6 * alpha
    assert abs(line.slope - 1 / bandwidth) <= line.slope_error + 1e-6 / bandwidth


def test_two_ranks_of_a_hypercube_exchange_halves() -> None:
    """As in an allgather, whose size is that of the result."""
    times = measured(lambda size: 3 + size / 2 / 200e3, "hypercube")
    found = calibrate(dgx_a100(), [Measurement(times, ("gpu-nvswitch",))])
    assert found.topology.link("box0/gpu0", "box0/nvswitch").bandwidth == 200
