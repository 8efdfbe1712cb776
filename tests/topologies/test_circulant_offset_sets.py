"""Sets of offsets to look through."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.topologies.direct_connect.circulants import (
    bidirectional_offset_sets,
    digraph_offset_sets,
    sampled_offset_sets,
)
from sample_sizes import examples


@settings(max_examples=examples(80))
@given(st.data())
def test_rows_are_different_offsets(data: st.DataObject) -> None:
    """From 1 to n - 1, and with opposite ones where links are to go both ways."""
    n = data.draw(st.integers(3, 300))
    degree = data.draw(st.integers(2, min(n - 1, 9)))
    most = data.draw(st.integers(1, 500))
    for rows in (digraph_offset_sets(n, degree, most), bidirectional_offset_sets(n, degree, most)):
        assert rows.shape[1] == degree
        assert len(rows) <= most + n
        for row in rows.tolist():
            assert len({*row}) == degree
            assert 1 <= min(row) <= max(row) < n
    for row in bidirectional_offset_sets(n, degree, most).tolist():
        assert {n - offset for offset in row} == {*row}


@pytest.mark.parametrize(("n", "degree"), [(6, 2), (7, 3), (8, 5)])
def test_few_sets_are_all_listed(n: int, degree: int) -> None:
    """Up to the limit."""
    listed = {tuple(sorted(row)) for row in digraph_offset_sets(n, degree, 1000).tolist()}
    assert listed == {*combinations(range(1, n), degree)}
    with_one = {tuple(sorted(row)) for row in digraph_offset_sets(n, degree, 2 ** (n - 2)).tolist()}
    assert {row for row in listed if 1 in row} <= with_one


def test_two_way_sets_of_odd_size_need_an_even_number_of_nodes() -> None:
    """For the link to the opposite node."""
    assert len(bidirectional_offset_sets(9, 3, 100)) == 0
    assert {tuple(sorted(row)) for row in bidirectional_offset_sets(8, 3, 100).tolist()} == {
        (1, 4, 7),
        (2, 4, 6),
        (3, 4, 5),
    }


@pytest.mark.parametrize(("n", "degree", "subgroup"), [(13, 3, [1, 3, 9]), (31, 5, [1, 2, 4, 8, 16]), (1009, 7, None)])
def test_subgroups_of_the_units_come_first(n: int, degree: int, subgroup: list[int] | None) -> None:
    """A multiplication by any offset maps such a set to itself."""
    first = digraph_offset_sets(n, degree, 1)[0].tolist()
    assert subgroup is None or sorted(first) == subgroup
    assert all({one * other % n for other in first} == {*first} for one in first)


def test_the_sample_is_one_sequence() -> None:
    """Wherever it starts, without repeated offsets, and not only a few sets over and over."""
    whole = sampled_offset_sets(1000, 4, range(300))
    assert np.array_equal(whole[100:], sampled_offset_sets(1000, 4, range(100, 300)))
    assert (np.diff(whole, axis=1) > 0).all()
    assert len(np.unique(whole, axis=0)) == 300
    assert sampled_offset_sets(4, 4, range(2)).tolist() == [[1, 2, 3, 4]] * 2
