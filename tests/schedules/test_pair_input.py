"""Traffic between pairs of ranks, as people have it, becomes whole numbers, or is refused."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from collopt.errors import UnsupportedError
from collopt.schedules.collective import as_pair_traffic

LONG = "5.666666666666667"
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize("entry", [float(LONG), np.float64(LONG), LONG, f"{LONG}e0", Decimal(LONG), Fraction(LONG)])
def test_many_digits_are_read_whatever_they_are_written_in(entry: Any) -> None:
    """Measured amounts in a list, a table or a text file keep their digits."""
    assert as_pair_traffic([[0, entry], [1, 0]], "ab").tolist() == [[0, 5666666666666667], [10**15, 0]]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble])
def test_lists_may_hold_numbers_of_numpy(kind: type[np.floating[Any]]) -> None:
    """Numbers of any precision are read."""
    assert as_pair_traffic([[kind(0), kind(1.5)], [kind(3), 0]], "ab").tolist() == [[0, 1], [2, 0]]


class Frame:
    """A table without an index, as other libraries than pandas have it."""

    columns = ("a", "b")

    def __len__(self) -> int:
        """Rows."""
        return 2

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """As numpy asks for it."""
        return np.array([[0, 2], [4, 0]], dtype=dtype)


def test_tables_need_no_index() -> None:
    """Rows then are ranks in their order."""
    assert as_pair_traffic(Frame(), "ab").tolist() == [[0, 1], [2, 0]]


@pytest.mark.parametrize(("traffic", "message"), [
    (torch.ones(2, 2, dtype=torch.bfloat16), "is a Tensor that numpy cannot read; expected a dense matrix"),
    (torch.ones(2, 2, requires_grad=True), "is a Tensor that numpy cannot read; expected a dense matrix"),
    (np.ma.masked_equal(np.eye(2), 0), "has masked entries"),
    ([["", "a"], ["a", "1"], ["b", "2"]], r"of shape \(3, 2\); expected 2 .* without a header or labels"),
    (ENDLESS, "expected 2 rows of 2 numbers, one per rank$"),
    ([["1e9999", "1"], ["1", "1"]], "from rank 0 to rank 0 is '1e9999'"),
    ([[np.float64("nan"), 1], [1, 1]], f"from rank 0 to rank 0 is {re.escape(repr(np.float64('nan')))}"),
    ([[Fraction(-1, 3), 1], [1, 1]], "from rank 0 to rank 0 is Fraction"),
    ([[Decimal("-1.5"), 1], [1, 1]], "from rank 0 to rank 0 is Decimal"),
])  # fmt: skip
def test_other_traffic_is_refused_in_one_line(traffic: Any, message: str) -> None:
    """The line names the expected form."""
    with pytest.raises(UnsupportedError, match=message) as refused:
        as_pair_traffic(traffic, "ab")
    assert "\n" not in str(refused.value)


def test_measured_amounts_are_rounded_and_none_to_nothing() -> None:
    """Only floats are rounded, to 2^40 units in all, and none becomes 0."""
    measured = np.random.default_rng(5).random((3, 3))
    measured[0, 1] = 1e-20
    units = as_pair_traffic(measured, "abc")
    assert units[0, 1] == 1
    ratios = units / units.sum()
    assert np.allclose(ratios, measured / measured.sum(), atol=1e-11)
    with pytest.raises(UnsupportedError, match="counts more than"):
        as_pair_traffic([["0", "1e-20"], ["1", "0"]], "ab")


def test_tables_that_name_ranks_are_read_by_name() -> None:
    """Rows and columns may be in any order; other labels only have to agree."""
    frame = pd.DataFrame([[0, 1], [2, 0]], index=["b", "a"], columns=["b", "a"])
    assert as_pair_traffic(frame, ["a", "b"]).tolist() == [[0, 2], [1, 0]]
    assert as_pair_traffic(frame, ["x", "y"]).tolist() == [[0, 1], [2, 0]]
