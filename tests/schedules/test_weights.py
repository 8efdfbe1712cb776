"""Weights as people write them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from collopt.errors import UnsupportedError
from collopt.schedules.sizes import as_weights


def test_any_exact_number_is_a_weight() -> None:
    """Floats by their shortest decimal form; numpy's integers like Python's."""
    written = [1, "1/3", 0.1, Decimal("2.50"), Fraction(2, 7), np.int64(4), 0]
    expected = (1, Fraction(1, 3), Fraction(1, 10), Fraction(5, 2), Fraction(2, 7), 4, 0)
    assert as_weights(written, 7) == expected
    assert as_weights(np.array([2, 3]), 2) == (2, 3)


def test_no_weights_are_equal_weights() -> None:
    """One each."""
    assert as_weights(None, 3) == (1, 1, 1)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (3, "weights is 3; expected a list of numbers, one per rank in rank order"),
        ("111", "weights is '111'; expected a list"),
        (b"111", "weights is b'111'; expected a list"),
        ({0: 1, 1: 1, 2: 1}, "weights is {0: 1, 1: 1, 2: 1}; expected a list"),
        (pd.Series([1, 2, 3]), "weights is 0 1 1 2 2 3 dtype: int64; expected a list"),
        (pd.Series(["x" * 1000] * 100), "weights is 0 x"),
        (np.array(3), r"weights is an array of shape \(\); expected one number per rank"),
        (np.ones((3, 1)), r"weights is an array of shape \(3, 1\); expected one number per rank"),
        ([1, 1], "weights has 2 entries; expected one per rank, 3"),
        ([1, None, 1], "weight None of rank 1 is not usable; expected a number of at least 0"),
        ([1, True, 1], "weight True of rank 1"),
        ([1, 1, -1], "weight -1 of rank 2"),
        ([1, float("inf"), 1], "weight inf of rank 1"),
        ([1, "1/0", 1], "weight '1/0' of rank 1"),
        ([0, 0, 0], "all weights are 0; expected some rank to have data"),
    ],
)
def test_anything_else_is_refused(weights: object, message: str) -> None:
    """In one line that shows it."""
    with pytest.raises(UnsupportedError, match=f"^{message}") as caught:
        as_weights(weights, 3)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
