"""The sizes of a benchmark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt.runtime.measuring.bench_report import extents, sweep
from collopt.runtime.programs.layout import Layout


def test_a_sweep_goes_up_by_factors_or_steps() -> None:
    """The end counts only if it is met."""
    assert sweep(1 << 10, 16 << 10, 2, 1) == (1024, 2048, 4096, 8192, 16384)
    assert sweep(10, 95, 3, 1) == (10, 30, 90)
    assert sweep(10, 95, None, 40) == (10, 50, 90)
    assert sweep(7, 7, None, 1) == (7,)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "all_to_all"])
def test_sizes_with_parts_count_what_one_part_has(collective: str) -> None:
    """Counts follow nccl-tests; sizes without an element for each part are left out."""
    (extent,) = extents(Layout.of(collective, 8, 64), (4, 8, 31, 32, 35), 4)
    assert (extent.size, extent.count, extent.elements) == (32, 1, 64 if collective == "all_to_all" else 8)


def test_unequal_parts_count_on_average() -> None:
    """Sizes are multiples of the traffic in lowest terms, here of 1 + 3 elements."""
    layout = Layout.of("all_to_allv", 2, 8, [0, 2, 6, 0])
    assert [(each.size, each.count, each.elements) for each in extents(layout, (7, 8, 40), 4)] == [
        (8, 1, 4),
        (40, 5, 20),
    ]


@pytest.mark.parametrize("collective", ["allreduce", "broadcast", "reduce"])
def test_sizes_of_a_buffer_count_all_of_it(collective: str) -> None:
    """The count does not depend on the number of ranks."""
    found = extents(Layout.of(collective, 8, 8, [8, *[0] * 7] if collective != "allreduce" else ()), (1, 8, 31), 4)
    assert [(extent.size, extent.count, extent.elements) for extent in found] == [(8, 2, 2), (28, 7, 7)]


@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=20).map(sorted),
    st.sampled_from([1, 2, 4, 8]),
)
def test_sizes_are_whole_distinct_and_none_is_exceeded(ranks: int, sizes: list[int], width: int) -> None:
    """Sizes are rounded down by less than one element per part."""
    unit = ranks * width
    if max(sizes) < unit:
        return
    found = extents(Layout.of("allgather", ranks, ranks), tuple(sizes), width)
    assert [extent.size for extent in found] == sorted({size - size % unit for size in sizes} - {0})
    assert all(extent.elements * width == extent.size == extent.count * unit for extent in found)
