"""What FAST and its baselines take for traffic, and how they refuse the rest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from all_to_allv_baselines import BASELINES

from collopt.errors import UnsupportedError
from collopt.planners.all_to_all.fast import schedule_all_to_allv
from collopt.schedules.stages.segments import ARRAYS

PLANS = (schedule_all_to_allv, *BASELINES.values())


def with_entry(entry: object, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Four ranks that have nothing to say but for what rank 1 has for rank 2."""
    traffic = np.zeros((4, 4), dtype=dtype)
    traffic[1, 2] = entry
    return traffic


def refusal(plan: object, traffic: object) -> str:
    """The sentence, of one line, that two servers of two GPUs are refused with."""
    with pytest.raises(UnsupportedError, match="expected") as refused:
        plan(traffic, servers=2, gpus_per_server=2)  # type: ignore[operator]
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("traffic", "problem"),
    [
        (np.zeros((4, 3), dtype=int), "shape (4, 3)"),
        (pd.DataFrame(np.zeros((3, 4), dtype=int)), "shape (3, 4)"),
        (pd.Series([0, 0, 0, 0]), "shape (4,)"),
        (np.zeros((6, 6), dtype=int), "6 ranks; expected 4"),
        ([[0, 1], [2]], "square"),
        ("text", "shape ()"),
        (np.zeros((4, 4)), "0.0, of type float64; expected integers"),
        (np.zeros((4, 4), dtype=object), "type object"),
        (np.zeros((4, 4), dtype=bool), "type bool"),
        (np.zeros((4, 4), dtype="M8[s]"), "type datetime64[s]"),
        (np.full((4, 4), 2**59), "adds up to 9223372036854775808"),
        ([[2**70] * 4] * 4, "from rank 0 to 0 is 1180591620717411303424"),
    ],
)
def test_other_matrices_are_refused(plan: object, traffic: object, problem: str) -> None:
    """Other shapes, types, and sums beyond 2^62."""
    assert problem in refusal(plan, traffic)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("entry", "dtype", "written"),
    [
        (np.nan, np.float64, "nan"),
        (np.inf, np.float16, "inf"),
        (0.5, np.float64, "0.5"),
        (1e300, np.float64, "1e+300"),
        ("many", object, "'many'"),
        (True, object, "True"),
        (1.0, object, "1.0"),
        (2**64, object, "18446744073709551616"),
        pytest.param(10**5000, object, "an integer of more than 4300 digits", id="huge"),
        (-5, np.int64, "-5"),
        (-(2**63), np.int64, str(-(2**63))),
        (2**63, np.uint64, str(2**63)),
    ],
)
def test_entries_that_are_no_numbers_of_bytes_are_named(
    plan: object, entry: object, dtype: npt.DTypeLike, written: str
) -> None:
    """With their type, where they are, and what, in arrays and in frames; also integers out of range."""
    traffic = with_entry(entry, dtype)
    for given in (traffic, pd.DataFrame(traffic)):
        assert f"from rank 1 to 2 is {written}, of type" in refusal(plan, given)


def test_missing_entries_of_frames_are_named() -> None:
    """Both of pandas' kinds; and numpy's masks are not overlooked."""
    assert "masked" in refusal(schedule_all_to_allv, np.ma.masked_equal(with_entry(3, int), 3))
    for dtype, written in (("Int64", "<NA>"), (float, "nan")):
        frame = pd.DataFrame([[0, 0, 0, None], *[[0, 0, 0, 0]] * 3], dtype=dtype)
        assert f"from rank 0 to 3 is {written}, of type" in refusal(schedule_all_to_allv, frame)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("rows", "columns", "problem"),
    [
        ("abcd", "abdc", "row 2 labelled 'c' and column 2 labelled 'd'"),
        (range(4), "0123", "row 0 labelled 0 and column 0 labelled '0'"),
        (range(4), [0, 1, 3, 2], "row 2 labelled 2 and column 2 labelled 3"),
        ("abca", "abca", "several rows labelled 'a'"),
    ],
)
def test_labels_have_to_be_the_same_both_ways(plan: object, rows: object, columns: object, problem: str) -> None:
    """In another order bytes would go to other ranks than their labels say."""
    frame = pd.DataFrame(np.zeros((4, 4), dtype=int), index=list(rows), columns=list(columns))
    assert problem in refusal(plan, frame)


@pytest.mark.parametrize("labels", ["abcd", range(4), [3, 1, 0, 2], [("a", 0), ("a", 1), ("b", 0), ("b", 1)]])
def test_ranks_are_in_the_order_of_frames(labels: object) -> None:
    """Whatever their labels are."""
    traffic = np.random.default_rng(0).integers(0, 1000, (4, 4))
    index = pd.Index(list(labels))
    schedule = schedule_all_to_allv(pd.DataFrame(traffic, index, index), servers=2, gpus_per_server=2)
    expected = schedule_all_to_allv(traffic, servers=2, gpus_per_server=2)
    for name in ARRAYS:
        assert np.array_equal(getattr(schedule, name), getattr(expected, name))
