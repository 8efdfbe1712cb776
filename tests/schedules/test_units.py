"""Figures for people."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collopt
from collopt.support.formatting import bandwidth_text, percentage_text, time_text
from collopt.topologies import Topology

FACTORS = {"GB/s": 1, "MB/s": Fraction(1, 10**3), "kB/s": Fraction(1, 10**6), "B/s": Fraction(1, 10**9)}


@pytest.mark.parametrize(("value", "text"), [
    (0, "0 B/s"), (0.0, "0 B/s"), (1, "1.00 GB/s"), (9.996, "10.0 GB/s"), (12345.6, "12346 GB/s"),
    (0.9996, "1.00 GB/s"), (0.9994, "999 MB/s"), (Fraction(1, 3), "333 MB/s"), (4.3e-4, "430 kB/s"),
    (5e-9, "5.00 B/s"), (5e-12, "0.00500 B/s"), (5e-15, "5.00e-06 B/s"), (float("inf"), "inf GB/s"),
])  # fmt: skip
def test_bandwidths_have_a_unit_that_suits_them(value: float | Fraction, text: str) -> None:
    """Never 0.000 GB/s for what is not zero."""
    assert bandwidth_text(value) == text


@given(exponent=st.integers(-9, 6), digits=st.integers(100, 999))
def test_three_digits_survive(exponent: int, digits: int) -> None:
    """A figure of three digits is written exactly at any size."""
    value = digits * Fraction(10) ** (exponent - 2)
    number, unit = bandwidth_text(value).split()
    assert Fraction(number) * FACTORS[unit] == value


def test_times_and_shares() -> None:
    """Microseconds, and shares of 1 with two decimals where that is enough."""
    assert [time_text(value) for value in (0.5, 1, 999.6, 6914.5, 2.5e6)] == [
        "500 ns", "1.00 µs", "1.00 ms", "6.91 ms", "2.50 s",
    ]  # fmt: skip
    assert [percentage_text(value) for value in (0, Fraction(1, 8), Fraction(1, 10**6))] == [
        "0 %", "12.50 %", "0.000100 %",
    ]  # fmt: skip


def test_one_tree_and_one_transfer_are_singular() -> None:
    """Rows and titles count alike."""
    pair = Topology.from_links([("a", "b", 10)], compute="ab", bidirectional=True)
    tree = collopt.plan(pair, "broadcast", root=0)
    assert str(tree).endswith("; 1 tree, 1 per root by weight")
    assert collopt.plan(pair, "all_to_all").schedule.rows(pair, {})["paths"] == "2, of 1 transfer each"
