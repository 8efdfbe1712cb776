"""Small examples of the internal functions of `collopt.support`."""

from __future__ import annotations

from fractions import Fraction

from collopt.support.arrays import components
from collopt.support.formatting import (
    abbreviated_names,
    bandwidth_text,
    percentage_text,
    rate_text,
)
from collopt.support.packages import requirements
from collopt.support.progress import batches
from collopt.support.quantities import as_bandwidth


def test_bandwidth_text() -> None:
    """Format a bandwidth."""
    assert (bandwidth_text(0.0123456), bandwidth_text(Fraction(5312, 15)), bandwidth_text(Fraction(5312, 15), 2)) == (
        "12.3 MB/s",
        "354 GB/s",
        "354.13 GB/s",
    )


def test_percentage_text() -> None:
    """Format a ratio in percent."""
    assert (percentage_text(Fraction(37, 1162)), percentage_text(0.5), percentage_text(0.00001234)) == (
        "3.18 %",
        "50.00 %",
        "0.00123 %",
    )


def test_rate_text() -> None:
    """Format a bandwidth in GB/s, followed by the exact fraction where rounding changes it."""
    assert (rate_text(Fraction(5312, 15)), rate_text(Fraction(320)), rate_text(Fraction(1, 3000))) == (
        "354.13 GB/s (5312/15)",
        "320.00 GB/s",
        "333.33 kB/s (1/3000 GB/s)",
    )


def test_abbreviated_names() -> None:
    """List names in their order, consecutively numbered ones as a range."""
    assert (
        abbreviated_names(["box0/gpu0", "box0/gpu1", "box0/gpu2", "box0/nic0", "ib"]) == "box0/gpu0..2, box0/nic0, ib"
    )


def test_requirements() -> None:
    """List the requirements of collopt itself or of one of its extras."""
    assert [requirement.package for requirement in requirements("plot")] == ["matplotlib"]


def test_batches() -> None:
    """Divide the parts ``0 .. total - 1`` of a kernel into ranges, and report the parts that are done."""
    assert list(batches(1000)) == [(0, 1000)]


def test_as_bandwidth() -> None:
    """Read a bandwidth in GB/s as an exact positive fraction."""
    assert as_bandwidth(0.1, "link ('a', 'b')") == Fraction(1, 10)
    assert as_bandwidth("400Gb/s", "every NIC") == Fraction(50, 1)


def test_components() -> None:
    """By their first nodes; nodes without a pair are alone."""
    assert components(4, [(3, 1)]).tolist() == [0, 1, 2, 1]
    assert components(2, []).tolist() == [0, 1]
