"""Regression by relative errors, alone and on the times of one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_sweeps import SIZES, measured

from collopt.errors import UnsupportedError
from collopt.runtime.measuring.cost_fit import RelativeFit, fit_line, fit_relative, independent_columns
from collopt.runtime.measuring.measured_times import MeasuredRow, MeasuredTimes
from collopt.support.arrays import FloatArray
from sample_sizes import examples

LINKS = ((1, 25.0), (15, 200.0))
"""Hops and GB/s of runs on two ranks and on sixteen."""


def noisy_sweep(generator: np.random.Generator, true: FloatArray) -> RelativeFit:
    """Fit launch, alpha and the inverse of the efficiency to sweeps with 5 % noise and 10 % of stray times."""
    rows = np.array(
        [(1, hops, 2.0**power / line / 1e3, run) for run, (hops, line) in enumerate(LINKS) for power in range(10, 31)]
    )
    times = rows[:, :3] @ true * (1 + 0.05 * generator.standard_normal(len(rows)))
    times *= np.where(generator.random(len(rows)) < 0.1, generator.uniform(1.5, 2.5, len(rows)), 1)
    return fit_relative(rows[:, :3], times, np.array([0.0, 0.0, 1.0]), runs=rows[:, 3])


def test_noisy_sweeps_give_back_their_costs() -> None:
    """Errors are within 3 % in most of 150, none is below its bound, and intervals mostly hold."""
    generator = np.random.default_rng(1)
    errors, inside = [], []
    for _ in range(150):
        true = generator.uniform((5, 2, 1), (50, 20, 2))
        fit = noisy_sweep(generator, true)
        assert (fit.values >= (0, 0, 1 - 1e-9)).all()
        errors.append(np.abs(fit.values / true - 1))
        inside.append((fit.low <= true) & (true <= fit.high))
    assert (np.median(errors, axis=0) <= 0.03).all()
    assert (np.mean(inside, axis=0) >= 0.9).all()


def test_values_at_bounds_have_intervals_beyond_them() -> None:
    """The interval shows that the times contradict the bound."""
    loads = np.array([2.0**power for power in range(0, 30, 3)])
    columns = np.column_stack((np.ones(10), loads))
    fit = fit_relative(columns, 1000 + 0.8 * loads * np.tile([0.99, 1.01], 5), np.array([0.0, 1.0]))
    assert fit.values[1] == 1
    assert fit.high[1] < 1
    assert fit.low[0] <= fit.values[0] <= fit.high[0]


def test_columns_that_say_the_same_are_left_out() -> None:
    """Columns of zeros are left out too, and columns with too few points."""
    assert independent_columns(np.array([[1.0, 2.0, 0.0, 1.0], [1.0, 2.0, 0.0, 3.0], [1.0, 2.0, 0.0, 3.0]])) == [0, 3]
    assert independent_columns(np.array([[1.0, 1.0], [1.0, 2.0]])) == [0]


@settings(max_examples=examples(40))
@given(
    alpha=st.floats(1, 100),
    bandwidth=st.floats(5, 900),
    noise=st.sampled_from([0, 0.01, 0.05]),
    seed=st.integers(0, 99),
)
def test_alpha_and_bandwidth_are_recovered(alpha: float, bandwidth: float, noise: float, seed: int) -> None:
    """Noisy times of a known link give its figures within the noise."""
    line = fit_line(measured(lambda size: alpha + size / bandwidth / 1e3, noise=noise, seed=seed))
    assert line.values[0] == pytest.approx(alpha, rel=1e-6 + 2 * noise)
    assert 1 / line.values[1] == pytest.approx(bandwidth, rel=1e-6 + 2 * noise)
    assert np.median(abs(line.residuals)) <= noise + 1e-9
    assert (line.values > line.reach).all()


def test_one_stray_time_does_not_tilt_the_line() -> None:
    """One run takes ten times as long as the others."""
    times = measured(lambda size: 5 + size / 25e3)
    rows = [row._replace(microseconds=row.microseconds * (10 if row.size == 2**20 else 1)) for row in times.rows]
    line = fit_line(MeasuredTimes("times.txt", "sendrecv", 2, tuple(rows)))
    assert (line.values[0], 1 / line.values[1]) == (pytest.approx(5, rel=0.03), pytest.approx(25, rel=0.03))
    assert abs(line.residuals).max() > 0.5


def rounded(sizes: Sequence[int], time: Callable[[int], float], digits: int = 2) -> MeasuredTimes:
    """Times as they are printed."""
    rows = (MeasuredRow(size, round(time(size), digits), rounding=0.5 * 0.1**digits) for size in sizes)
    return MeasuredTimes("times.txt", "sendrecv", 2, tuple(rows))


def test_rounded_times_of_small_sizes_tell_no_bandwidth() -> None:
    """At 200 GB/s, 128 bytes take less than the last digit shows."""
    line = fit_line(rounded((8, 16, 32, 64, 128), lambda size: 4 + size / 200e3))
    assert (line.values > line.reach).tolist() == [True, False]
    assert line.values[0] == pytest.approx(4, abs=0.01)
    assert 0.004 < line.reach[0] < 0.02


@settings(max_examples=examples(40))
@given(alpha=st.floats(1, 30), bandwidth=st.floats(5, 900), digits=st.integers(0, 3), largest=st.integers(12, 30))
def test_errors_cover_what_rounding_does(alpha: float, bandwidth: float, digits: int, largest: int) -> None:
    """True figures lie within the error, whether or not the sizes tell them."""
    sizes = [2**power for power in range(3, largest)]
    line = fit_line(rounded(sizes, lambda size: max(1, alpha + size / bandwidth / 1e3), digits))
    true = np.array([alpha, 1 / bandwidth])
    assert (np.abs(line.values - true) <= line.reach + 1e-6 * true).all()


def test_a_file_of_one_size_has_no_line() -> None:
    """Two times have none either."""
    one = MeasuredTimes("times.txt", "sendrecv", 2, tuple(MeasuredRow(SIZES[0], 5.0) for _ in range(3)))
    with pytest.raises(UnsupportedError, match=r"times\.txt: the measured sizes cannot separate latency"):
        fit_line(one)
    with pytest.raises(UnsupportedError, match=r"times\.txt: there are 2 measured times"):
        fit_line(MeasuredTimes("times.txt", "sendrecv", 2, one.rows[:2]))
