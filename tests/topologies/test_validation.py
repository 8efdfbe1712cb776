"""Numbers and names as people write them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import TopologyError, UnsupportedError
from collopt.support.quantities import as_bandwidth, as_factor
from collopt.support.validation import as_name, as_names, as_whole, is_whole, shown
from sample_sizes import examples


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (25, Fraction(25)),
        (0.1, Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        ("65/3", Fraction(65, 3)),
        ("1e2", Fraction(100)),
        (Decimal("12.5"), Fraction(25, 2)),
        (Fraction(7, 3), Fraction(7, 3)),
        (np.int64(5), Fraction(5)),
        (np.float64(0.3), Fraction(3, 10)),
        (10**9, Fraction(10**9)),
    ],
)
def test_a_bandwidth_is_read_as_written(written: object, meant: Fraction) -> None:
    """Every accepted spelling means exactly what it says."""
    assert as_bandwidth(written, "link") == meant


@pytest.mark.parametrize("wrong", [
    0, -1, "0", True, None, "", "fast", "1/0", "25 gigabytes", "9" * 20 + "Tb/s", "nan", float("nan"), float("inf"),
    -float("inf"), Decimal("NaN"), 1j, [25], b"25", 10**9 + 1, pytest.param(10**5000, id="5001 digits"), "1e-13",
    "9" * 65, "1e99999999999", "1e9_9_9_9", Decimal("1e999999999"),
])  # fmt: skip
def test_a_bandwidth_that_is_no_positive_number_is_refused_at_once(wrong: object) -> None:
    """The message names the link; nothing hangs on huge exponents or chokes on huge integers."""
    with pytest.raises(TopologyError, match=r"bandwidth of link X .*expected") as caught:
        as_bandwidth(wrong, "link X")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_factor_is_positive() -> None:
    """Factors may be small and large, never zero."""
    assert as_factor("1/3", "factor") == Fraction(1, 3)
    for wrong in (0, -1, "x", False):
        with pytest.raises(TopologyError, match=r"factor is .*positive number"):
            as_factor(wrong, "factor")


@pytest.mark.parametrize(
    "wrong", ["", " ", "a ", "a\nb", "\ud800", None, 1.5, True, 10**18, pytest.param(10**5000, id="5001 digits")]
)
def test_names_that_cannot_be_printed_on_a_line_are_refused(wrong: object) -> None:
    """A name is printable text without spaces around it, or an integer of ordinary size."""
    with pytest.raises(TopologyError, match=r"node name .* is not usable"):
        as_name(wrong)


def test_a_name_that_occurs_twice_is_named() -> None:
    """An integer and its digits are the same name."""
    with pytest.raises(TopologyError, match="compute node '1' is listed twice"):
        as_names(["1", 1], "compute")


@settings(max_examples=examples(100))
@given(
    st.integers() | st.floats() | st.text() | st.decimals() | st.fractions() | st.binary() | st.none()
    | st.lists(st.integers())
)  # fmt: skip
def test_anything_is_a_positive_fraction_or_a_clear_refusal(value: object) -> None:
    """No other exception escapes."""
    try:
        bandwidth = as_bandwidth(value, "link")
    except TopologyError:
        return
    assert isinstance(bandwidth, Fraction)
    assert 0 < bandwidth <= 10**9


def deep(levels: int) -> list[object]:
    """A list in a list in a list."""
    nested: list[object] = []
    for _ in range(levels):
        nested = [nested]
    return nested


class Loud:
    """A value with the given repr, or none."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __repr__(self) -> str:
        if self.text is None:
            raise RuntimeError("no repr")
        return self.text


@pytest.mark.parametrize(
    "value",
    [
        Loud("a\nb\r\x1b[31m\u2028c"),
        Loud(None),
        [[["x" * 1000] * 6] * 6] * 6,
        {"x" * 1000 + str(number): ["y" * 1000] * 6 for number in range(6)},
        [10**5000],
        10**400,
        "x" * 10_000,
        list(range(10_000)),
        deep(100_000),
    ],
    ids=range(9),
)
def test_anything_is_shown_in_one_short_line(value: object) -> None:
    """Long texts, numbers and lists, deep lists, and what cannot be shown at all."""
    text = shown(value)
    assert text.isprintable()
    assert 0 < len(text) <= 100
    assert shown("gpu0") == "'gpu0'"


@pytest.mark.parametrize("number", [0, 7, 2**70, np.int8(7), np.uint64(2**63)])
def test_integers_of_python_and_numpy_are_whole_numbers(number: int) -> None:
    """They come back as Python's own, which do not overflow."""
    assert is_whole(number)
    assert type(as_whole(number, "chunks", low=0)) is int
    assert as_whole(number, "chunks", low=0) == number


@pytest.mark.parametrize("stranger", [True, np.True_, 2.0, np.float64(2), "2", None, [2], np.array(2), Fraction(2)])
def test_what_only_looks_like_a_whole_number_is_refused(stranger: object) -> None:
    """A float that happens to be whole is a mistake more often than it is meant."""
    assert not is_whole(stranger)
    with pytest.raises(UnsupportedError, match=r"^chunks is .*; expected a whole number of at least 1$"):
        as_whole(stranger, "chunks")
