"""Offsets for circulant graphs of few hops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import ceil, gcd, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import TopologyError
from collopt.topologies import circulant, low_diameter_offsets
from collopt.topologies.direct_connect.circulants import circulant_diameter, least_circulant_diameter
from sample_sizes import examples


def least_by_enumeration(n: int, degree: int) -> int:
    """Least diameter of all connected circulant graphs."""
    sets = combinations(range(1, (n + 1) // 2), degree // 2)
    return min(hops for each in sets if gcd(n, *each) == 1 if (hops := circulant_diameter(n, each, n)) is not None)


@settings(max_examples=examples(60))
@given(st.data())
def test_the_diameter_is_that_of_a_breadth_first_search(data: st.DataObject) -> None:
    """The bits of one integer say the same as the distances between all nodes."""
    n = data.draw(st.integers(5, 60))
    offsets = data.draw(st.sets(st.integers(1, (n - 1) // 2), min_size=1, max_size=4))
    if gcd(n, *offsets) > 1:
        assert circulant_diameter(n, sorted(offsets), n) is None
        return
    diameter = circulant(n, sorted(offsets)).direct_graph().diameter
    assert circulant_diameter(n, sorted(offsets), n) == diameter
    assert circulant_diameter(n, sorted(offsets), diameter + 1) == diameter
    assert circulant_diameter(n, sorted(offsets), diameter) is None


@pytest.mark.parametrize("n", [5, 6, 7, 8, 12, 13, 14, 25, 26, 40, 41])
def test_degree_4_has_the_least_diameter_of_all_pairs(n: int) -> None:
    """Theorem 22 against enumeration; 13, 25 and 41 are the most nodes of their diameters."""
    hops = circulant_diameter(n, low_diameter_offsets(n, 4), n)
    assert hops == least_by_enumeration(n, 4)


@pytest.mark.parametrize("n", [7, 100, 1023, 1024, 1025, 65536])
def test_degree_4_follows_the_printed_formula(n: int) -> None:
    """m = ceil((-1 + sqrt(2 n - 1)) / 2), which is the bound from counting points, and reached."""
    m = ceil((-1 + sqrt(2 * n - 1)) / 2)
    assert low_diameter_offsets(n, 4) == (m, m + 1)
    assert least_circulant_diameter(n, 4) == m == circulant_diameter(n, (m, m + 1), n)


@pytest.mark.parametrize("degree", [6, 8])
@pytest.mark.parametrize("n", [9, 14, 20, 27])
def test_looking_at_all_sets_finds_the_least_diameter_where_one_offset_is_1(n: int, degree: int) -> None:
    """On these sizes a set without an offset prime to n is never better."""
    hops = circulant_diameter(n, low_diameter_offsets(n, degree, tries=10_000), n)
    assert hops == least_by_enumeration(n, degree)


@settings(max_examples=examples(60))
@given(st.integers(2, 6).map(lambda half: 2 * half), st.integers(13, 1500))
def test_offsets_are_usable_and_no_better_than_the_bound(degree: int, n: int) -> None:
    """Different, in order, below n / 2, and the graph they make is connected."""
    offsets = low_diameter_offsets(n, degree, tries=20)
    assert len(offsets) == degree // 2
    assert list(offsets) == sorted({*offsets})
    assert 1 <= offsets[0] <= offsets[-1] < n / 2
    hops = circulant_diameter(n, offsets, n)
    assert hops is not None
    assert hops >= least_circulant_diameter(n, degree)


def test_more_tries_find_no_more_hops() -> None:
    """The sample of few sets is the beginning of that of many, and the default is near the bound."""
    for n, degree in ((300, 6), (1000, 8), (1024, 6), (2000, 10)):
        hops = [circulant_diameter(n, low_diameter_offsets(n, degree, tries=tries), n) for tries in (1, 30, 400)]
        assert hops == sorted(hops, reverse=True)
        assert hops[-1] <= least_circulant_diameter(n, degree) + 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: low_diameter_offsets(20, 7), "degree is 7; expected an even number"),
        (lambda: low_diameter_offsets(20, 0), "degree is 0; expected a whole number from 2"),
        (lambda: low_diameter_offsets(4, 4), "n is 4; expected at least 5 nodes"),
        (lambda: low_diameter_offsets(2, 2), "n is 2; expected a whole number from 3"),
        (lambda: low_diameter_offsets(20, 6, tries=0), "tries is 0; expected a whole number from 1"),
        (lambda: low_diameter_offsets(20, 6, tries=True), "tries is True"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], object], message: str) -> None:
    """In one line that says what was expected."""
    with pytest.raises(TopologyError, match=message):
        call()
