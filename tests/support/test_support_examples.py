"""Small examples of the internal functions of `collopt.support`."""

from __future__ import annotations

from fractions import Fraction

import pytest

from collopt.support.formatting import abbreviated_names, bandwidth_text, percentage_text, rate_text
from collopt.support.packages import requirements
from collopt.support.progress import batches


@pytest.mark.parametrize(("found", "text"), [
    (bandwidth_text(0.0123456), "12.3 MB/s"),
    (bandwidth_text(Fraction(5312, 15)), "354 GB/s"),
    (bandwidth_text(Fraction(5312, 15), 2), "354.13 GB/s"),
    (percentage_text(Fraction(37, 1162)), "3.18 %"),
    (percentage_text(0.5), "50.00 %"),
    (percentage_text(0.00001234), "0.00123 %"),
    (rate_text(Fraction(5312, 15)), "354.13 GB/s (5312/15)"),
    (rate_text(Fraction(320)), "320.00 GB/s"),
    (rate_text(Fraction(1, 3000)), "333.33 kB/s (1/3000 GB/s)"),
    (abbreviated_names(["box0/gpu0", "box0/gpu1", "box0/gpu2", "box0/nic0", "ib"]), "box0/gpu0..2, box0/nic0, ib"),
])  # fmt: skip
def test_numbers_and_names_are_shown_in_short(found: str, text: str) -> None:
    """Bandwidths with units, ratios in percent, exact fractions where rounding changes them, ranges of names."""
    assert found == text


def test_requirements_and_batches() -> None:
    """List the requirements of an extra; few parts of a kernel are one batch."""
    assert [requirement.package for requirement in requirements("plot")] == ["matplotlib"]
    assert list(batches(1000)) == [(0, 1000)]
